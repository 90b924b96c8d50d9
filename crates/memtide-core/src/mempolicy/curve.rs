//! How late a node of memory answers, by how much it is asked.
//!
//! Problem. A measured curve is a handful of points with noise in them, and
//! past saturation it bends back: more demand, less bandwidth, more latency.
//! Whoever asks "what is the latency at this bandwidth" needs a function.
//!
//! Approach. Points are kept in ascending order of bandwidth. Where noise or
//! saturation makes a later point answer sooner than an earlier one, both get
//! their mean, together with their neighbours as far as it takes: the curve that
//! never falls and is nearest to what was measured (isotonic regression by
//! pooling adjacent violators). Between points it is a straight line, before the
//! first it is flat, and beyond the last there is nothing.

use serde::{Deserialize, Serialize};

/// A measured point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPoint {
    /// What was carried, in megabytes (10^6 bytes) a second.
    pub bandwidth_mbps: u64,
    /// How long an access took then, in nanoseconds.
    pub latency_ns: f64,
}

/// Latency by bandwidth, never falling.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Ascending in both; empty if only the peak is known.
    points: Vec<LoadPoint>,
    peak_mbps: u64,
}

impl Curve {
    /// A node of which only the peak is known.
    pub fn peak_only(peak_mbps: u64) -> Curve {
        Curve {
            points: Vec::new(),
            peak_mbps,
        }
    }

    /// A measured curve, its points in any order; `peak_mbps` is the most that
    /// the node carried in any measurement of the same mix. Points without a
    /// latency above zero are left out.
    pub fn new(mut points: Vec<LoadPoint>, peak_mbps: u64) -> Curve {
        points.retain(|point| point.latency_ns.is_finite() && point.latency_ns > 0.0);
        points.sort_by_key(|point| point.bandwidth_mbps);
        pool(&mut points);
        let last = points.last().map_or(0, |point| point.bandwidth_mbps);
        Curve {
            points,
            peak_mbps: peak_mbps.max(last),
        }
    }

    /// The most that the node carries.
    pub fn peak_mbps(&self) -> u64 {
        self.peak_mbps
    }

    /// Latency without load, if it was measured.
    pub fn idle_ns(&self) -> Option<f64> {
        Some(self.points.first()?.latency_ns)
    }

    /// Latency while the node carries `mbps`; beyond the last measured point
    /// it is that point's. `None` if only the peak is known.
    pub fn latency_at(&self, mbps: u64) -> Option<f64> {
        let after = self.points.partition_point(|p| p.bandwidth_mbps < mbps);
        let (Some(before), Some(next)) = (
            after.checked_sub(1).map(|i| self.points[i]),
            self.points.get(after),
        ) else {
            // Before the first or beyond the last.
            return self
                .points
                .get(after)
                .or(self.points.last())
                .map(|p| p.latency_ns);
        };
        let width = (next.bandwidth_mbps - before.bandwidth_mbps) as f64;
        let part = (mbps - before.bandwidth_mbps) as f64 / width;
        Some(before.latency_ns + part * (next.latency_ns - before.latency_ns))
    }

    /// The most that the node carries with a latency of at most `limit_ns`.
    pub fn bandwidth_within(&self, limit_ns: f64) -> u64 {
        let within = self.points.partition_point(|p| p.latency_ns <= limit_ns);
        let Some(next) = self.points.get(within) else {
            return self.peak_mbps;
        };
        let Some(last) = within.checked_sub(1).map(|i| self.points[i]) else {
            return 0;
        };
        let part = (limit_ns - last.latency_ns) / (next.latency_ns - last.latency_ns);
        let width = (next.bandwidth_mbps - last.bandwidth_mbps) as f64;
        last.bandwidth_mbps + (part * width) as u64
    }

    /// What the node carries before its latency has doubled from idle.
    pub fn usable_mbps(&self) -> u64 {
        match self.idle_ns() {
            Some(idle_ns) => self.bandwidth_within(2.0 * idle_ns),
            None => self.peak_mbps,
        }
    }
}

/// Gives points that fall their mean, until none does; points of one bandwidth
/// become one.
fn pool(points: &mut Vec<LoadPoint>) {
    // The points pooled so far: mean latency and number of points.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (i, point) in points.iter().enumerate() {
        let mut pool = (point.latency_ns, 1);
        let mut equal = i > 0 && points[i - 1].bandwidth_mbps == point.bandwidth_mbps;
        while let Some(&(mean, count)) = pools.last()
            && (equal || mean > pool.0)
        {
            let sum = mean * count as f64 + pool.0 * pool.1 as f64;
            pool = (sum / (count + pool.1) as f64, count + pool.1);
            pools.pop();
            equal = false;
        }
        pools.push(pool);
    }
    let means = pools
        .iter()
        .flat_map(|&(mean, count)| std::iter::repeat_n(mean, count));
    for (point, mean) in points.iter_mut().zip(means) {
        point.latency_ns = mean;
    }
    points.dedup_by_key(|point| point.bandwidth_mbps);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn curve(points: &[(u64, f64)], peak_mbps: u64) -> Curve {
        let point = |&(bandwidth_mbps, latency_ns): &(u64, f64)| LoadPoint {
            bandwidth_mbps,
            latency_ns,
        };
        Curve::new(points.iter().map(point).collect(), peak_mbps)
    }

    #[test]
    fn a_curve_of_the_documents_shape() {
        // Flat to 40 % of 200 GB/s, linear to 80 %, then steep.
        let points = [
            (10, 100.0),
            (80_000, 100.0),
            (160_000, 180.0),
            (190_000, 400.0),
        ];
        let curve = curve(&points, 200_000);
        assert_eq!(curve.idle_ns(), Some(100.0));
        assert_eq!(curve.latency_at(0), Some(100.0));
        assert_eq!(curve.latency_at(120_000), Some(140.0));
        assert_eq!(curve.latency_at(250_000), Some(400.0));
        // 200 ns are 20/220 of the way from 160,000 to 190,000: 2,727 further.
        assert_eq!(curve.usable_mbps(), 162_727);
        assert_eq!(curve.bandwidth_within(99.0), 0);
        assert_eq!(curve.bandwidth_within(400.0), 200_000);
        assert_eq!(curve.peak_mbps(), 200_000);
    }

    #[test]
    fn a_curve_that_bends_back_is_straightened() {
        let bent = curve(&[(10, 90.0), (100, 300.0), (95, 350.0), (50, 80.0)], 0);
        assert_eq!(bent.peak_mbps(), 100);
        // 90 and 80 become 85, 350 and 300 become 325.
        assert_eq!(bent.idle_ns(), Some(85.0));
        assert_eq!(bent.latency_at(50), Some(85.0));
        assert_eq!(bent.latency_at(100), Some(325.0));
        // One point that was disturbed does not raise all that follow.
        let disturbed = [
            (0, 100.0),
            (10, 400.0),
            (20, 100.0),
            (30, 100.0),
            (40, 150.0),
        ];
        let disturbed = curve(&disturbed, 50);
        // (400 + 100 + 100 + 150) / 4.
        assert_eq!(disturbed.latency_at(20), Some(187.5));
        assert_eq!(disturbed.usable_mbps(), 50);
        let same = curve(&[(10, 90.0), (10, 110.0)], 0);
        assert_eq!(same.latency_at(10), Some(100.0));
    }

    #[test]
    fn without_points_the_peak_is_all_there_is() {
        let curve = Curve::peak_only(22_000);
        assert_eq!(curve.usable_mbps(), 22_000);
        assert_eq!(curve.latency_at(1), None);
        assert_eq!(curve.idle_ns(), None);
    }

    proptest! {
        #[test]
        fn latency_never_falls_and_limits_are_kept(
            points in prop::collection::vec((0u64..100_000, -5.0f64..1000.0), 1..12),
            mbps in prop::collection::vec(0u64..120_000, 2),
            limit in 0.0f64..1200.0,
        ) {
            let curve = curve(&points, 0);
            let (low, high) = (mbps[0].min(mbps[1]), mbps[0].max(mbps[1]));
            prop_assert!(curve.latency_at(low) <= curve.latency_at(high));
            let within = curve.bandwidth_within(limit);
            prop_assert!(within <= curve.peak_mbps());
            if within > 0 && within < curve.peak_mbps() {
                prop_assert!(curve.latency_at(within).unwrap() <= limit + 1e-6);
            }
        }
    }
}
