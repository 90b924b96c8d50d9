//! How latency follows load: the factor f at a share of bandwidth, and what load costs in the long run.
//!
//! A node that carries the share u at latency factor f(u) makes those who wait for it lose u (f(u) - 1) of
//! its time more than an idle node would ([`Excess`]). The oracle needs the least that a share of u on
//! average costs, however it is spread over time: the lower convex hull of that function. Between two
//! steps of the share a chord would lie above it. So each step counts at what the step before it
//! costs: that lies below, as the function never falls, and by one step at most.
//!
//! What stays true: f never falls, f(0) = 1.

use crate::spec::LoadedLatency;

/// How much of the averaged demand a quantum's replaces.
pub(super) const DEMAND_WEIGHT: f64 = 0.25;

/// The share of bandwidth at which the curve's peak factor is reached.
pub const PEAK_SHARE: f64 = 0.995;
/// The power with which latency rises beyond it.
const OVERLOAD_POWER: f64 = 200.0;
/// No load makes latency more than so many times that of an idle node. Only a scale at which one
/// access is more than a quantum's traffic comes near it.
const MOST: f64 = 1e4;

/// How latency follows load.
#[derive(Clone, Debug)]
pub struct Law(LoadedLatency);

impl Law {
    /// The law of a node's specification.
    #[must_use]
    pub fn new(loaded: LoadedLatency) -> Law {
        Law(loaded)
    }

    /// The factor at share `u` of full bandwidth.
    #[must_use]
    pub fn factor(&self, u: f64) -> f64 {
        let beyond = (u / PEAK_SHARE).max(1.0).powf(OVERLOAD_POWER);
        let u = u.clamp(0.0, PEAK_SHARE);
        let within = match &self.0 {
            LoadedLatency::Regions {
                flat_until,
                linear_until,
                linear_factor,
                peak_factor,
            } => {
                if u <= *flat_until {
                    1.0
                } else if u <= *linear_until {
                    1.0 + (linear_factor - 1.0) * (u - flat_until) / (linear_until - flat_until)
                } else {
                    let part = (u - linear_until) / (PEAK_SHARE - linear_until);
                    linear_factor * (peak_factor / linear_factor).powf(part)
                }
            }
            LoadedLatency::Measured(curve) => {
                let mbps = u * curve.peak_mbps() as f64;
                let low = curve.latency_at(mbps as u64);
                let high = curve.latency_at(mbps as u64 + 1);
                match (curve.idle_ns(), low, high) {
                    (Some(idle), Some(low), Some(high)) => {
                        (low + (high - low) * mbps.fract()) / idle
                    }
                    _ => 1.0,
                }
            }
        };
        within * beyond
    }

    /// The solution L of L = f(c / L).
    #[must_use]
    pub fn settle(&self, c: f64) -> f64 {
        // It lies between 1 and f(c); in logarithms.
        let (mut low, mut high) = (0.0, self.factor(c).min(MOST).ln());
        while high - low > 1e-6 {
            let middle = 0.5 * (low + high);
            match self.factor(c * (-middle).exp()).ln() > middle {
                true => low = middle,
                false => high = middle,
            }
        }
        low.exp()
    }
}

/// Steps of the share in [`Excess`], and the last of them: there latency is beyond any that a node reaches.
const STEP: f64 = 0.0001;
const STEPS: u32 = 10_500;

/// What load costs in the long run.
#[derive(Clone, Debug)]
pub struct Excess {
    /// Corners of the hull: shares, and the least excess at that share on average.
    corners: Vec<(f64, f64)>,
}

impl Excess {
    /// That of a law.
    #[must_use]
    pub fn new(law: &Law) -> Excess {
        let mut corners: Vec<(f64, f64)> = Vec::new();
        let mut before = 0.0;
        for step in 0..=STEPS {
            let u = f64::from(step) * STEP;
            let next = (u, before);
            before = u * (law.factor(u) - 1.0);
            let slope = |a: (f64, f64), b: (f64, f64)| (b.1 - a.1) / (b.0 - a.0);
            while let [.., a, b] = corners[..] {
                if slope(a, b) < slope(b, next) {
                    break;
                }
                corners.pop();
            }
            corners.push(next);
        }
        Excess { corners }
    }

    /// Where a share is worth `price`: the most that price times share less excess can be, and the share.
    #[must_use]
    pub fn best(&self, price: f64) -> (f64, f64) {
        let corners = &self.corners;
        let rises = |pair: &[(f64, f64)]| {
            let [(u, e), (next_u, next_e)] = [pair[0], pair[1]];
            price * (next_u - u) > next_e - e
        };
        // The hull's slopes rise, so it pays to go on up to some corner.
        let (mut low, mut high) = (0, corners.len() - 1);
        while low < high {
            let middle = (low + high) / 2;
            match rises(&corners[middle..middle + 2]) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let (u, e) = corners[low];
        (price * u - e, u)
    }
}

/// The shares that are asked of an idle node, quantum by quantum, when a `demand` falls on it at once and
/// nobody waits for what is too much: latency follows late, so the first are above what it carries.
pub fn rise(law: &Law, demand: f64) -> impl Iterator<Item = f64> + '_ {
    let mut averaged = 0.0;
    std::iter::repeat_with(move || {
        let share = demand / law.settle(averaged);
        averaged += DEMAND_WEIGHT * (demand - averaged);
        share
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_regions() -> Law {
        Law::new(LoadedLatency::Regions {
            flat_until: 0.4,
            linear_until: 0.8,
            linear_factor: 1.5,
            peak_factor: 3.0,
        })
    }

    #[test]
    fn a_share_costs_what_its_latency_says() {
        let excess = Excess::new(&three_regions());
        // Nothing up to 0.4, so any price makes that worth having.
        let (value, share) = excess.best(0.01);
        assert!((value - 0.004).abs() < 1e-4 && (share - 0.4).abs() < 0.01);
        // u (f - 1) = 1.25 u (u - 0.4): its slope is 1.25 (2 u - 0.4), at 0.6 just 1; there it is 0.15.
        let (value, share) = excess.best(1.0);
        assert!((share - 0.6).abs() < 0.001, "{share}");
        // The value is a step's worth higher, and never lower.
        assert!((0.45..0.45 + 1.01 * STEP).contains(&value), "{value}");
        // No price makes a node carry much more than it can.
        assert!(excess.best(1e9).1 <= 1.0501);
    }

    #[test]
    fn no_share_is_worth_more_than_the_best() {
        // Shares between steps, where a chord of the hull would lie above the function: a third of a step on.
        let law = three_regions();
        let excess = Excess::new(&law);
        for price in [0.3, 1.0, 3.0, 30.0, 300.0, 3000.0] {
            let best = excess.best(price).0;
            for step in 0..31_000 {
                let u = f64::from(step) * STEP / 3.0;
                let value = price * u - u * (law.factor(u) - 1.0);
                assert!(
                    value <= best * (1.0 + 1e-12),
                    "{price} at {u}: {value}, {best}"
                );
            }
        }
    }

    #[test]
    fn too_much_is_asked_of_an_idle_node_at_first() {
        // Demand 2: in the first quantum all of it; then averages 0.5, 0.875, ... hold.
        let law = three_regions();
        let shares: Vec<f64> = rise(&law, 2.0).take(60).collect();
        assert_eq!(shares[0], 2.0);
        assert!((shares[1] - 2.0 / law.settle(0.5)).abs() < 1e-9);
        assert!((shares[59] - 2.0 / law.settle(2.0)).abs() < 1e-4);
    }
}
