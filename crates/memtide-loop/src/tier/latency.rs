//! How late each node answers under its present load, by canaries.
//!
//! # Problem
//!
//! What a promotion saves is the difference of two latencies, and both follow load:
//! fast memory that all programs use at once may answer later than slow memory that
//! nobody uses (Vuppalapati and Agarwal, ["Tiered Memory Management: Access Latency is
//! the Key!"](https://dl.acm.org/doi/10.1145/3694715.3695968)).
//!
//! # Approach
//!
//! Once a second each node is asked for a reading ([`World::canary`]), and readings are averaged over
//! about four. While fast memory is slower they come more often, and so do the first ones. While
//! nothing of slow memory is in use they matter to nobody and are rare; after such a time an average
//! begins anew, with readings as often as the first ones. What is believed of nodes stays.
//!
//! Of an emulated machine, or one whose tiers are an assumption, readings say nothing of tiers. So
//! those of two nodes are *believed* if the slow one's least reading was once a fifth above the fast one's; if
//! five readings of the fast one in a row were a fifth above the slow one's, as where other
//! programs load it from the beginning, until about as many were not; or if firmware tells both
//! latencies and no least reading is below half of what it tells: load makes memory later and
//! never earlier.
//!
//! # Properties
//!
//! - Where readings are not believed, nothing is decided by them.
//! - Fast memory is *slower* from when its latency reaches that of slow memory until it
//!   is a twentieth below. So a reading more or less changes nothing.

use crate::world::{World, WorldError};
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// How often nodes are asked, in ms.
const READ_MS: u64 = 1000;
/// Until there are enough readings, so that little is promoted before that.
const FIRST_MS: u64 = 25;
/// And while fast memory is slower: that may have been for a moment.
const SLOWER_MS: u64 = 100;
/// While they matter to nobody.
const IDLE_MS: u64 = 30_000;
/// How long slow memory counts as in use after an access, in ms.
const IN_USE_MS: u64 = 3_000;
/// Readings that an average is over.
const AVERAGED: u32 = 4;
/// Readings before any is believed.
const READINGS: u32 = 5;

/// What is known of one node.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The average, in sixteenths of a nanosecond.
    sixteenths: u64,
    last_ns: u32,
    least_ns: u32,
    readings: u32,
}

impl Known {
    fn ns(self) -> u64 {
        (self.sixteenths + 8) / 16
    }
}

/// A fast node's latency and a slow one's, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub fast_ns: u64,
    pub slow_ns: u64,
}

impl Pair {
    /// What an access to the fast node saves.
    pub fn saved_ns(self) -> u64 {
        self.slow_ns.saturating_sub(self.fast_ns)
    }
}

/// The latencies of all nodes. See the module's essay.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    known: BTreeMap<NodeId, Known>,
    asked: Option<Millis>,
    /// Readings since nodes were asked for the first time, or after a time in which none mattered; at
    /// most [`READINGS`].
    first: u32,
    always: bool,
    /// When another number of accesses to slow memory was recorded, and this number.
    recorded: (Millis, u64),
    /// Whether that is not long ago.
    in_use: bool,
    /// Slow nodes with fast ones, and how many readings were a fifth later of the fast one, at most
    /// twice [`READINGS`].
    later: BTreeMap<(NodeId, NodeId), u32>,
    /// Slow nodes, with fast ones that are slower.
    slower: BTreeSet<(NodeId, NodeId)>,
}

impl Latencies {
    /// Of which none is believed yet. `always`: they matter also while slow memory is not in use.
    pub fn new(always: bool) -> Latencies {
        Latencies {
            always,
            ..Latencies::default()
        }
    }

    /// How often nodes are asked now, in ms.
    pub fn every_ms(&self) -> u64 {
        let mut known = self.known.values();
        let first = self.first < READINGS || known.any(|known| known.readings < READINGS);
        match (first, self.always || self.in_use) {
            (true, _) => FIRST_MS,
            (_, false) => IDLE_MS,
            (_, true) if self.slower.is_empty() => READ_MS,
            (_, true) => SLOWER_MS,
        }
    }

    /// Asks each node of `topology` that has memory, if it is time. What people should know of it.
    /// `recorded` is how many accesses to slow memory were recorded so far.
    pub fn read(
        &mut self,
        world: &mut dyn World,
        topology: &Topology,
        recorded: u64,
        now: Millis,
    ) -> Result<Vec<String>, WorldError> {
        if recorded != self.recorded.1 {
            self.recorded = (now, recorded);
        }
        self.in_use = recorded > 0 && now.since(self.recorded.0) < IN_USE_MS;
        let age = self.asked.map(|at| now.since(at));
        if self.in_use && age.is_some_and(|age| age > 2 * READ_MS) {
            // What was read before says little of now.
            self.first = 0;
        }
        if age.is_some_and(|age| age < self.every_ms()) {
            return Ok(Vec::new());
        }
        self.first = (self.first + 1).min(READINGS);
        self.asked = Some(now);
        for node in topology.memory_nodes().iter() {
            match world.canary(node)? {
                Some(ns) => self.note(node, ns),
                None => {
                    self.known.remove(&node);
                }
            }
        }
        let nodes = topology.memory_nodes();
        let both = |(slow, fast): &(NodeId, NodeId)| nodes.contains(*slow) && nodes.contains(*fast);
        self.known.retain(|node, _| nodes.contains(*node));
        self.later.retain(|key, _| both(key));
        self.slower.retain(both);
        self.tell_apart(topology);
        let before = self.slower.clone();
        self.judge(topology);
        let news = before.symmetric_difference(&self.slower);
        Ok(news.map(|key| self.words(*key)).collect())
    }

    /// What changed of a slow node and a fast one.
    fn words(&self, (slow, fast): (NodeId, NodeId)) -> String {
        let ns = |node| self.known.get(&node).map_or(0, |known| known.ns());
        let (slow_ns, fast_ns) = (ns(slow), ns(fast));
        match self.slower.contains(&(slow, fast)) {
            true => format!(
                "under its load node {fast} answers after {fast_ns} ns, node {slow} after {slow_ns}: \
                 no page goes up from there to it"
            ),
            false => format!("pages go up from node {slow} to node {fast} again"),
        }
    }

    /// Counts readings of which the fast node's was a fifth above the slow one's: in a row until they
    /// are enough, and from then on those that were less those that were not.
    fn tell_apart(&mut self, topology: &Topology) {
        let nodes = topology.nodes();
        for slow in nodes.iter().filter(|node| !node.top_tier) {
            for fast in nodes.iter().filter(|node| node.top_tier) {
                let [slow_read, fast_read] = [slow.id, fast.id].map(|node| self.known.get(&node));
                let (Some(slow_read), Some(fast_read)) = (slow_read, fast_read) else {
                    continue;
                };
                let later = 5 * u64::from(fast_read.last_ns) >= 6 * u64::from(slow_read.last_ns);
                let count = self.later.entry((slow.id, fast.id)).or_default();
                *count = match later {
                    true => (*count + 1).min(2 * READINGS),
                    false if *count < READINGS => 0,
                    false => *count - 1,
                };
            }
        }
    }

    fn note(&mut self, node: NodeId, ns: u32) {
        let read = 16 * u64::from(ns);
        let known = self.known.entry(node).or_insert(Known {
            sixteenths: read,
            last_ns: ns,
            least_ns: ns,
            readings: 0,
        });
        // What was read before a pause has no weight any more.
        let weight = u64::from(self.first.clamp(1, AVERAGED));
        known.sixteenths = ((weight - 1) * known.sixteenths + read + weight / 2) / weight;
        known.last_ns = ns;
        known.least_ns = known.least_ns.min(ns);
        known.readings = known.readings.saturating_add(1);
    }

    fn judge(&mut self, topology: &Topology) {
        let nodes = topology.nodes();
        for slow in nodes.iter().filter(|node| !node.top_tier) {
            for fast in nodes.iter().filter(|node| node.top_tier) {
                let key = (slow.id, fast.id);
                match self.pair(topology, key.0, key.1) {
                    Some(pair) if pair.fast_ns >= pair.slow_ns => self.slower.insert(key),
                    Some(pair) if 20 * pair.fast_ns > 19 * pair.slow_ns => continue,
                    _ => self.slower.remove(&key),
                };
            }
        }
    }

    /// The average of each node, in nanoseconds.
    pub fn all(&self) -> impl Iterator<Item = (NodeId, u32)> {
        let known = self.known.iter();
        known.map(|(node, known)| (*node, known.ns() as u32))
    }

    /// The latencies of these two nodes, if they are believed.
    pub fn pair(&self, topology: &Topology, slow: NodeId, fast: NodeId) -> Option<Pair> {
        let [slow_known, fast_known] = [slow, fast].map(|node| self.known.get(&node).copied());
        let (slow_known, fast_known) = (slow_known?, fast_known?);
        if slow_known.readings.min(fast_known.readings) < READINGS {
            return None;
        }
        let tells_apart = 5 * u64::from(slow_known.least_ns) >= 6 * u64::from(fast_known.least_ns);
        let confirms = |node: NodeId, known: Known| {
            let told = topology.node(node)?.figures.read_latency_ns?;
            Some(2 * u64::from(known.least_ns) >= u64::from(told))
        };
        // An emulator answers late on every node: half of the difference must be there, too.
        let told = |node: NodeId| topology.node(node)?.figures.read_latency_ns;
        let apart = || {
            let told = told(slow)?.saturating_sub(told(fast)?);
            let read = slow_known.least_ns.saturating_sub(fast_known.least_ns);
            Some(2 * u64::from(read) >= u64::from(told))
        };
        let confirmed = || {
            let both = confirms(slow, slow_known)? && confirms(fast, fast_known)?;
            Some(both && apart()?)
        };
        let later = self.later.get(&(slow, fast));
        let later = later.is_some_and(|count| *count >= READINGS);
        (tells_apart || later || confirmed() == Some(true)).then(|| Pair {
            fast_ns: fast_known.ns().max(1),
            slow_ns: slow_known.ns().max(1),
        })
    }

    /// Whether any fast node is slower than a slow one.
    pub fn is_any_slower(&self) -> bool {
        !self.slower.is_empty()
    }

    /// Whether the latencies of any slow node and any fast one are believed.
    pub fn is_any_believed(&self, topology: &Topology) -> bool {
        let nodes = || topology.nodes().iter();
        let fast = |slow: NodeId| {
            let mut fast = nodes().filter(|node| node.top_tier);
            fast.any(|fast| self.pair(topology, slow, fast.id).is_some())
        };
        let mut slow = nodes().filter(|node| !node.top_tier);
        slow.any(|slow| fast(slow.id))
    }

    /// Both latencies, if `fast` answers so late that promotion from `slow` to it is no gain.
    pub fn slower(&self, topology: &Topology, slow: NodeId, fast: NodeId) -> Option<Pair> {
        let slower = self.slower.contains(&(slow, fast));
        slower.then(|| self.pair(topology, slow, fast)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FAST, FakeWorld, SLOW};
    use memtide_core::topology::{AccessFigures, NodeInput, TierId, TopologyInput};

    /// After a reading of each moment: fast and slow.
    fn after(latencies: &mut Latencies, readings: &[(u32, u32)]) -> Option<Pair> {
        let mut world = FakeWorld::two_tiers(100, 100);
        let topology = world.topology().clone();
        for (fast, slow) in readings {
            world.latencies = [(FAST, *fast), (SLOW, *slow)].into();
            world.now_ns += 1_000_000_000;
            let now = Millis(latencies.asked.map_or(0, |at| at.0) + READ_MS);
            latencies.read(&mut world, &topology, 0, now).unwrap();
        }
        latencies.pair(&topology, SLOW, FAST)
    }

    fn slower(latencies: &Latencies) -> bool {
        let world = FakeWorld::two_tiers(100, 100);
        latencies.slower(world.topology(), SLOW, FAST).is_some()
    }

    /// 100 and 200; then 3/4 of 100 and 1/4 of 180 are 120.
    #[test]
    fn readings_are_averaged() {
        let mut latencies = Latencies::new(true);
        assert_eq!(after(&mut latencies, &[(100, 200); 4]), None);
        let pair = |fast_ns, slow_ns| Some(Pair { fast_ns, slow_ns });
        assert_eq!(after(&mut latencies, &[(100, 200)]), pair(100, 200));
        assert_eq!(after(&mut latencies, &[(180, 200)]), pair(120, 200));
        let all: Vec<_> = latencies.all().collect();
        assert_eq!(all, [(FAST, 120), (SLOW, 200)]);
    }

    /// On an emulated machine all nodes are alike: 119 is less than a fifth above 100.
    #[test]
    fn nodes_that_are_alike_are_not_believed() {
        let mut latencies = Latencies::new(true);
        assert_eq!(after(&mut latencies, &[(100, 119); 50]), None);
        // Four readings may be late by chance.
        for _ in 0..10 {
            let late = [(300, 119), (300, 119), (300, 119), (300, 119), (119, 119)];
            assert_eq!(after(&mut latencies, &late), None);
        }
        assert!(!slower(&latencies));
        // Once the fast one answers earlier, they are.
        let pair = after(&mut latencies, &[(99, 119); 1]);
        assert!(pair.is_some());
    }

    /// Other programs use fast memory from the beginning, so that nobody has seen it answer earlier.
    #[test]
    fn fast_memory_that_is_always_later_is_slower() {
        let mut latencies = Latencies::new(true);
        assert_eq!(after(&mut latencies, &[(160, 134); 50]), None);
        assert_eq!(after(&mut latencies, &[(161, 134); 4]), None);
        let pair = after(&mut latencies, &[(161, 134)]);
        assert!(pair.is_some() && slower(&latencies));
        // Now and then one is not.
        after(
            &mut latencies,
            &[(300, 134), (300, 134), (134, 134), (300, 134)],
        );
        assert!(slower(&latencies));
        // Where both are alike, nobody knows any more.
        assert_eq!(after(&mut latencies, &[(134, 134); 10]), None);
        assert!(!slower(&latencies));
    }

    /// The first five come within a tenth of a second, and while fast memory is slower there are ten in a second.
    #[test]
    fn the_first_readings_are_soon_enough() {
        let mut world = FakeWorld::two_tiers(100, 100);
        world.latencies = [(FAST, 300), (SLOW, 134)].into();
        let topology = world.topology().clone();
        let mut latencies = Latencies::new(true);
        let mut news = Vec::new();
        let mut until = |latencies: &mut Latencies, from: u64, to: u64, fast: u32| {
            world.latencies.insert(FAST, fast);
            for ms in from..to {
                news.extend(
                    latencies
                        .read(&mut world, &topology, 0, Millis(ms))
                        .unwrap(),
                );
            }
            latencies.known[&FAST].readings
        };
        assert_eq!(until(&mut latencies, 0, 101, 300), READINGS);
        assert!(slower(&latencies));
        assert_eq!(until(&mut latencies, 101, 1_101, 300), READINGS + 10);
        let free = until(&mut latencies, 1_101, 3_101, 70);
        assert!(!slower(&latencies));
        assert_eq!(until(&mut latencies, 3_101, 6_101, 70), free + 3);
        let told = [
            "under its load node 0 answers after 300 ns, node 1 after 134: no page goes up from there to it",
            "pages go up from node 1 to node 0 again",
        ];
        assert_eq!(news, told);
    }

    /// Each half minute; and again five in a tenth of a second once something is accessed.
    #[test]
    fn while_slow_memory_is_idle_nodes_are_hardly_asked() {
        let mut world = FakeWorld::two_tiers(100, 100);
        world.latencies = [(FAST, 70), (SLOW, 134)].into();
        let topology = world.topology().clone();
        let mut latencies = Latencies::new(false);
        let mut readings = |latencies: &mut Latencies, recorded: u64, from: u64, to: u64| {
            let before = latencies.known.get(&FAST).map_or(0, |known| known.readings);
            for ms in from..to {
                let news = latencies.read(&mut world, &topology, recorded, Millis(ms));
                assert!(news.unwrap().is_empty());
            }
            latencies.known[&FAST].readings - before
        };
        assert_eq!(readings(&mut latencies, 0, 0, 101), READINGS);
        assert_eq!(readings(&mut latencies, 0, 101, 60_101), 2);
        assert_eq!(readings(&mut latencies, 7, 70_000, 70_101), READINGS);
        for second in 71..80 {
            let from = 1_000 * second;
            let asked = readings(&mut latencies, second, from + 101, from + 1_101);
            assert_eq!(asked, 1, "in second {second}");
        }
        assert_eq!(readings(&mut latencies, 79, 80_101, 83_101), 2);
        assert_eq!(readings(&mut latencies, 79, 83_101, 100_101), 0);
    }

    /// Firmware tells 80 and 250 ns, and an emulator answers late on both.
    #[test]
    fn nodes_that_are_alike_are_not_believed_because_firmware_says_otherwise() {
        let node = |id, tier, read_latency_ns| NodeInput {
            id,
            online: true,
            memory_bytes: 100 << 12,
            cpus: Vec::new(),
            distances: Some(vec![10, 20]),
            figures: AccessFigures {
                read_latency_ns: Some(read_latency_ns),
                ..AccessFigures::default()
            },
            tier: Some(TierId(tier)),
        };
        let topology = TopologyInput::new(vec![node(FAST, 4, 80), node(SLOW, 22, 250)]);
        let topology: Topology = topology.try_into().unwrap();
        for (readings, believed) in [((300, 300), false), ((140, 140), false), ((500, 590), true)] {
            let mut world = FakeWorld::two_tiers(100, 100);
            let mut latencies = Latencies::new(true);
            for n in 1..=50 {
                world.latencies = [(FAST, readings.0), (SLOW, readings.1)].into();
                let now = Millis(n * READ_MS);
                latencies.read(&mut world, &topology, 0, now).unwrap();
            }
            let pair = latencies.pair(&topology, SLOW, FAST);
            assert_eq!(pair.is_some(), believed, "{readings:?}");
        }
    }

    #[test]
    fn a_world_without_an_answer_is_not_believed() {
        let mut latencies = Latencies::new(true);
        assert!(after(&mut latencies, &[(100, 200); 5]).is_some());
        let mut world = FakeWorld::two_tiers(100, 100);
        let topology = world.topology().clone();
        let now = Millis(100_000);
        latencies.read(&mut world, &topology, 0, now).unwrap();
        assert_eq!(latencies.pair(&topology, SLOW, FAST), None);
        assert_eq!(latencies.all().count(), 0);
    }

    /// Slower from 200 on, and no more below 190.
    #[test]
    fn fast_memory_that_is_slower_stays_so_for_a_while() {
        let mut latencies = Latencies::new(true);
        let mut settles = |fast| {
            after(&mut latencies, &[(fast, 200); 50]);
            slower(&latencies)
        };
        assert!(!settles(100));
        assert!(!settles(199));
        assert!(settles(201));
        assert!(settles(191));
        assert!(!settles(189));
        assert!(!settles(199));
    }
}
