//! The least time that a piece of work takes, wherever its pages are.
//!
//! The work is known as groups of pages that are accessed alike: how many pages, and for each node how long
//! threads wait for the group's lines there if it is idle (P) and how long the node is busy with them (L).
//! The time of K threads is spent on what needs no memory (C), on the idle latencies, and on what
//! load adds. A placement gives each group's accesses to nodes in shares, within the nodes' capacities.
//!
//! The bound is the dual of that problem. Let each node have a price for the time it is busy (a) and a
//! price for a page on it (e), whatever they are, but none negative. Then, as a node that is loaded with the share u
//! on average makes threads lose at least r u (f(u) - 1) of its time ([`Excess`]; r is the least P / L),
//!
//! ```text
//! K T >= C + sum over groups of min over nodes (P + a L + e pages) - sum over nodes e capacity
//!        - T sum over nodes max over u (a u - r u (f(u) - 1)) - what comes at once
//! ```
//!
//! Every choice of prices gives a bound, and the best prices give the best one ([`search`]).
//! The last term is what a node carries too much while its latency does not yet follow its load: latency
//! follows late, so a program that begins, or whose load falls on another node, gets more for some quanta.
//! All of it is granted once in each piece and to each node at the highest demand there can be.
//!
//! What is not granted: load that swings within milliseconds again and again.

use super::search;
use crate::engine::QUANTUM_NS;
use crate::hardware::law::{Excess, Law, rise};

/// Quanta after which a node's latency has followed a sudden demand.
const RISE: usize = 40;

/// A node as the bound sees it.
pub struct Place {
    /// Pages that it holds.
    pub capacity: f64,
    /// Its law.
    pub law: Law,
    /// The same in the long run.
    pub excess: Excess,
}

/// Pages that are accessed alike, or other lines, which take no room.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// How many.
    pub pages: f64,
    /// Nanoseconds for which threads wait for its lines, by place, without load.
    pub wait_ns: Vec<f64>,
    /// Nanoseconds for which a place is busy with them.
    pub busy_ns: Vec<f64>,
}

/// A piece of a run.
pub struct Work {
    /// Threads, each on a processor of its own.
    pub threads: f64,
    /// Nanoseconds of all threads that need no memory.
    pub own_ns: f64,
    /// What they access.
    pub groups: Vec<Group>,
}

/// What prices come to: the right side of the inequality is `work - at_once - time * rent`.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    work: f64,
    at_once: f64,
    rent: f64,
}

impl Work {
    /// The least time that all of it takes, in nanoseconds.
    #[must_use]
    pub fn least_ns(&self, places: &[Place]) -> f64 {
        self.best(places, &|sums| {
            let below = self.threads + sums.rent;
            let time = (sums.work - sums.at_once) / below;
            (time, [1.0 / below, -1.0 / below, -time / below])
        })
    }

    /// How often it fits into `time_ns` at most.
    #[must_use]
    pub fn most_within(&self, places: &[Place], time_ns: f64) -> f64 {
        let times = self.best(places, &|sums| {
            let below = time_ns * (self.threads + sums.rent) + sums.at_once;
            let times = sums.work / below;
            (
                times,
                [1.0 / below, -times / below, -times * time_ns / below],
            )
        });
        1.0 / times
    }

    /// The largest of `figure` over all prices. It says a value, and how that changes with each sum.
    fn best(&self, places: &[Place], figure: &dyn Fn(Sums) -> (f64, [f64; 3])) -> f64 {
        let least = |at: usize| {
            let shares = self
                .groups
                .iter()
                .map(|group| (group.wait_ns[at], group.busy_ns[at]));
            let shares = shares.filter(|&(_, busy)| busy > 0.0);
            shares
                .map(|(wait, busy)| wait / busy)
                .fold(f64::INFINITY, f64::min)
        };
        let rates: Vec<f64> = (0..places.len()).map(least).collect();
        let pages: f64 = self.groups.iter().map(|group| group.pages).sum();
        let all: f64 = places.iter().map(|place| place.capacity).sum();
        // What is larger than memory is not held to it: who knows when which page is away.
        let held = |place: &Place| pages > place.capacity && pages <= all;
        let rises: Vec<Vec<f64>> = places
            .iter()
            .zip(&rates)
            .map(|(place, rate)| match rate.is_finite() && *rate > 0.0 {
                true => rise(&place.law, self.threads / rate).take(RISE).collect(),
                false => Vec::new(),
            })
            .collect();
        // The prices that are looked for, with the highest that can matter. A node that is idle even if all
        // threads want it alone has no price. Else it is the slope of u (f - 1) where f is that
        // factor: at most, as f rises with the 200th power.
        let dear = |(rise, rate): (&Vec<f64>, &f64)| {
            let factor = rise.first().zip(rise.last()).map_or(1.0, |(d, u)| d / u);
            (factor > 1.0 + 1e-9).then_some(rate * factor * 250.0)
        };
        let dear: Vec<Option<f64>> = rises.iter().zip(&rates).map(dear).collect();
        // A page is worth no more than what its group costs on the node where that is the most.
        let costs = |group: &Group| {
            let dear = dear.iter().map(|dear| dear.unwrap_or(0.0));
            let costs = group.wait_ns.iter().zip(&group.busy_ns).zip(dear);
            let costs = costs.map(|((wait, busy), dear)| wait + dear * busy);
            costs.fold(0.0, f64::max) / group.pages
        };
        let groups = self.groups.iter().filter(|group| group.pages > 0.0);
        let worth = groups.map(costs).fold(0.0, f64::max);
        let busy = (0..places.len()).filter_map(|at| Some(((at, false), dear[at]?)));
        let page = (0..places.len()).filter(|&at| held(&places[at]));
        let page = page.map(|at| ((at, true), worth));
        let (asked, size): (Vec<(usize, bool)>, Vec<f64>) = busy.chain(page).unzip();
        let tries = 60 + 40 * size.len() * size.len().max(2);
        let (mut busy, mut page) = (vec![0.0; places.len()], vec![0.0; places.len()]);
        search::largest(&size, tries, &mut |prices, slope| {
            for (&(at, is_page), &price) in asked.iter().zip(prices) {
                match is_page {
                    true => page[at] = price,
                    false => busy[at] = price,
                }
            }
            let (mut sums, mut by_busy, mut by_page) = (
                Sums::default(),
                vec![[0.0; 3]; places.len()],
                vec![0.0; places.len()],
            );
            sums.work = self.own_ns;
            for group in &self.groups {
                let cost = |at: usize| {
                    group.wait_ns[at] + busy[at] * group.busy_ns[at] + page[at] * group.pages
                };
                let Some(at) = (0..places.len()).min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
                else {
                    continue;
                };
                sums.work += cost(at);
                by_busy[at][0] += group.busy_ns[at];
                by_page[at] += group.pages;
            }
            for (at, place) in places.iter().enumerate() {
                sums.work -= page[at] * place.capacity;
                by_page[at] -= place.capacity;
                if busy[at] == 0.0 {
                    continue;
                }
                let rate = rates[at];
                let (value, share) = place.excess.best(busy[at] / rate);
                let rent = value * rate;
                sums.rent += rent;
                by_busy[at][2] = share;
                let demand = rises[at][0];
                for &carried in &rises[at] {
                    let gain = busy[at] * carried - rate * (demand - carried) - rent;
                    if gain > 0.0 {
                        sums.at_once += gain * QUANTUM_NS as f64;
                        by_busy[at][1] += (carried - share) * QUANTUM_NS as f64;
                    }
                }
            }
            let (value, change) = figure(sums);
            for (&(at, is_page), slope) in asked.iter().zip(slope) {
                *slope = match is_page {
                    true => change[0] * by_page[at],
                    false => (0..3).map(|n| change[n] * by_busy[at][n]).sum(),
                };
            }
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::LoadedLatency;

    fn place(capacity: f64) -> Place {
        let law = Law::new(LoadedLatency::Regions {
            flat_until: 0.4,
            linear_until: 0.8,
            linear_factor: 1.5,
            peak_factor: 3.0,
        });
        let excess = Excess::new(&law);
        Place {
            capacity,
            law,
            excess,
        }
    }

    fn group(pages: f64, wait_ns: [f64; 2], busy_ns: [f64; 2]) -> Group {
        Group {
            pages,
            wait_ns: wait_ns.to_vec(),
            busy_ns: busy_ns.to_vec(),
        }
    }

    #[test]
    fn the_hottest_pages_fill_the_fast_node() {
        // 100 pages fit; 50 hot ones take 4 us there and 10 us elsewhere, 100 cold ones 1 and 2.5. Best: all
        // hot ones and half of the cold ones near: 4 + 0.5 + 1.25 = 5.75, and 3 us of their own.
        let work = Work {
            threads: 1.0,
            own_ns: 3e3,
            groups: vec![
                group(50.0, [4e3, 10e3], [1.0, 1.0]),
                group(100.0, [1e3, 2.5e3], [1.0, 1.0]),
            ],
        };
        let least = work.least_ns(&[place(100.0), place(1000.0)]);
        assert!((least - 8.75e3).abs() < 1.0, "{least}");
        // Where all fits, all is near; where not even both nodes hold it, nothing is held to them.
        for capacities in [[150.0, 0.0], [10.0, 20.0]] {
            let least = work.least_ns(&capacities.map(place));
            assert!((least - 8e3).abs() < 1.0, "{least}");
        }
    }

    #[test]
    fn a_loaded_node_takes_what_its_law_lets_it() {
        // 20 processors, a second of a node's bandwidth for which they wait 10 s in all. The demand is
        // 20 / 10 = 2, so f(u) u = 2: 1.5 * 2^((u - 0.8) / 0.195) u = 2 at u = 0.9081. That is 1.1012 s,
        // less what the first quanta carry too much: below 6 ms of it.
        let work = Work {
            threads: 20.0,
            own_ns: 0.0,
            groups: vec![group(1.0, [10e9, 1e12], [1e9, 1e9])],
        };
        let least = work.least_ns(&[place(10.0), place(10.0)]) / 1e9;
        assert!((1.095..1.1013).contains(&least), "{least}");
        // As much as that fits into as long, a tenth of it into a tenth.
        let share = work.most_within(&[place(10.0), place(10.0)], 0.1e9);
        assert!((0.0908..0.0960).contains(&share), "{share}");
    }

    #[test]
    fn two_nodes_share_what_one_cannot_carry() {
        // Two equal nodes: each carries half, at demand 1: u (1 + 1.25 (u - 0.4)) = 1 at
        // u = 0.7165, and 0.5 / 0.7165 = 0.6978.
        let work = Work {
            threads: 20.0,
            own_ns: 0.0,
            groups: vec![group(1.0, [10e9, 10e9], [1e9, 1e9])],
        };
        let least = work.least_ns(&[place(10.0), place(10.0)]) / 1e9;
        assert!((0.692..0.6979).contains(&least), "{least}");
    }

    #[test]
    fn what_the_fast_node_cannot_hold_loads_the_slow_one() {
        // 20 threads; half of the pages fit the fast node, which has bandwidth to spare. The other half
        // keeps the slow node busy for 5 s of its bandwidth. Threads wait 5 s for the fast half and
        // 10 f(u) s for the slow one, where u = 5 / T: so 20 T = 5 + 10 f(5 / T).
        let places = [place(100.0), place(1000.0)];
        let work = Work {
            threads: 20.0,
            own_ns: 0.0,
            groups: vec![group(200.0, [10e9, 20e9], [0.1e9, 10e9])],
        };
        let (mut low, mut high) = (1.0, 100.0);
        for _ in 0..60 {
            let time = (low + high) / 2.0;
            match 20.0 * time < 5.0 + 10.0 * places[1].law.factor(5.0 / time) {
                true => low = time,
                false => high = time,
            }
        }
        assert!((low - 4.99).abs() < 0.01, "{low}");
        // A demand of 10 carries some 20 ms too much before latency has followed, 0.5 % of it.
        let least = work.least_ns(&places) / 1e9;
        assert!(least <= low && least >= low * 0.993, "{least}, not {low}");
    }
}
