//! What a task's faults say about its nodes.
//!
//! Four numbers a node, each for shared and for private faults: how often the
//! task touched memory *there* (`MEM`) and from *there* (`CPU`), as averages
//! that halve at each placement, and the live counts since the last placement
//! that will be folded into them.
//!
//! Folding adds `count - average / 2` with the half rounded down, so an average
//! becomes `ceil(average / 2) + count` and a 1 never dies. CPU counts are first
//! weighed by the share of time that the task ran, and divided by its number of
//! faults, so that every task of a group counts by its CPU use, however much it
//! faults.

use super::timing::FaultSums;
use crate::units::NodeId;

/// Shared faults are at 0, private ones at 1.
pub const KINDS: usize = 2;
/// The sum of a kernel's decaying load average, that of a task that always runs.
pub const LOAD_AVG_MAX: u64 = 47_742;

/// A number for each node and kind of fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByNode(Box<[[u64; KINDS]]>);

impl ByNode {
    /// All zero, for ids below `nodes`.
    #[must_use]
    pub fn new(nodes: usize) -> ByNode {
        ByNode(vec![[0; KINDS]; nodes].into_boxed_slice())
    }

    /// The number of a node and kind.
    #[must_use]
    pub fn get(&self, node: NodeId, private: bool) -> u64 {
        self.0
            .get(node.index())
            .map_or(0, |n| n[usize::from(private)])
    }

    /// Both kinds of a node.
    #[must_use]
    pub fn of(&self, node: NodeId) -> u64 {
        self.get(node, false) + self.get(node, true)
    }

    /// A kind over all nodes.
    #[must_use]
    pub fn of_kind(&self, private: bool) -> u64 {
        self.0.iter().map(|n| n[usize::from(private)]).sum()
    }

    /// Everything.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().flatten().sum()
    }

    /// The node with the most, the lowest id among equals, and how many;
    /// `None` if all are zero.
    #[must_use]
    pub fn most(&self) -> Option<(NodeId, u64)> {
        let mut best = None;
        let mut most = 0;
        for (id, kinds) in self.0.iter().enumerate() {
            let count = kinds.iter().sum();
            if count > most {
                most = count;
                best = Some(NodeId(id as u16));
            }
        }
        best.map(|node| (node, most))
    }

    fn bump(&mut self, node: NodeId, private: bool, pages: u64) {
        if let Some(kinds) = self.0.get_mut(node.index()) {
            kinds[usize::from(private)] += pages;
        }
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &ByNode) {
        self.each(other, |mine, theirs| mine + theirs);
    }

    /// Takes `other` away, which this holds.
    pub fn sub(&mut self, other: &ByNode) {
        self.each(other, |mine, theirs| mine - theirs);
    }

    fn each(&mut self, other: &ByNode, change: impl Fn(u64, u64) -> u64) {
        for (mine, theirs) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *mine = change(*mine, *theirs);
        }
    }
}

/// Averages of a task, or their sum over a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Averages {
    /// By the node of the memory.
    pub mem: ByNode,
    /// By the node of the CPU.
    pub cpu: ByNode,
}

impl Averages {
    /// All zero.
    #[must_use]
    pub fn new(nodes: usize) -> Averages {
        Averages {
            mem: ByNode::new(nodes),
            cpu: ByNode::new(nodes),
        }
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Averages) {
        self.mem.add(&other.mem);
        self.cpu.add(&other.cpu);
    }

    /// Takes another's away.
    pub fn sub(&mut self, other: &Averages) {
        self.mem.sub(&other.mem);
        self.cpu.sub(&other.cpu);
    }

    fn clear(&mut self) {
        self.mem.0.fill([0; KINDS]);
        self.cpu.0.fill([0; KINDS]);
    }
}

/// One fault as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Base pages.
    pub pages: u64,
    /// The node of the memory, after a move.
    pub mem: NodeId,
    /// The node of the CPU.
    pub cpu: NodeId,
    /// Whether the task is the page's only user, as far as is known.
    pub private: bool,
    /// Whether it counts as local.
    pub local: bool,
    /// Whether a move failed.
    pub failed: bool,
}

/// How long a task ran since its last placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Time on a CPU.
    pub runtime: u64,
    /// Time in all, in the same unit.
    pub period: u64,
}

impl Ran {
    /// What counts at the first placement of a task that always ran.
    pub const ALWAYS: Ran = Ran {
        runtime: LOAD_AVG_MAX,
        period: LOAD_AVG_MAX,
    };

    /// The share of time in 65,536ths.
    #[must_use]
    pub fn weight(self) -> u64 {
        let weight = (u128::from(self.runtime) << 16) / (u128::from(self.period) + 1);
        u64::try_from(weight).unwrap_or(u64::MAX)
    }
}

/// A task's statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    averages: Averages,
    counts: Averages,
    /// Remote, local, failed.
    locality: [u64; 3],
}

impl Faults {
    /// Nothing seen, for node ids below `nodes`.
    #[must_use]
    pub fn new(nodes: usize) -> Faults {
        Faults {
            averages: Averages::new(nodes),
            counts: Averages::new(nodes),
            locality: [0; 3],
        }
    }

    /// The averages.
    #[must_use]
    pub fn averages(&self) -> &Averages {
        &self.averages
    }

    /// Counts a fault.
    pub fn count(&mut self, fault: &Counted) {
        let Counted { pages, private, .. } = *fault;
        self.counts.mem.bump(fault.mem, private, pages);
        self.counts.cpu.bump(fault.cpu, private, pages);
        self.locality[usize::from(fault.local)] += pages;
        if fault.failed {
            self.locality[2] += pages;
        }
    }

    /// Counts pages that could not be moved, found out after they were counted.
    pub(super) fn count_failed(&mut self, pages: u64) {
        self.locality[2] += pages;
    }

    /// Folds the counts into the averages and empties them. What the counts
    /// were, for [`super::timing::feedback`]; how many were local, remote and
    /// failed counts on from fold to fold until [`Faults::forget_locality`].
    pub fn fold(&mut self, ran: Ran) -> FaultSums {
        let [remote, local, failed] = self.locality;
        let sums = FaultSums {
            remote,
            local,
            failed,
            shared: self.counts.mem.of_kind(false),
            private: self.counts.mem.of_kind(true),
        };
        let (weight, all) = (u128::from(ran.weight()), u128::from(remote + local) + 1);
        let weighed = |count: u64| (weight * u128::from(count) / all) as u64;
        let decayed = |average: u64| average - average / 2;
        let Averages { mem, cpu } = &mut self.averages;
        mem.each(&self.counts.mem, |old, count| decayed(old) + count);
        cpu.each(&self.counts.cpu, |old, count| decayed(old) + weighed(count));
        self.counts.clear();
        sums
    }

    /// Begins to count local, remote and failed faults anew. The kernel does so
    /// when it adjusts a period by them and not when it backs off: once a move
    /// has failed, every placement backs off until the task ends.
    pub fn forget_locality(&mut self) {
        self.locality = [0; 3];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fault(pages: u64, mem: u16, cpu: u16, private: bool) -> Counted {
        Counted {
            pages,
            mem: NodeId(mem),
            cpu: NodeId(cpu),
            private,
            local: mem == cpu,
            failed: false,
        }
    }

    #[test]
    fn an_average_is_half_of_itself_rounded_up_and_what_is_new() {
        let mut faults = Faults::new(2);
        faults.count(&fault(7, 1, 0, true));
        let sums = faults.fold(Ran::ALWAYS);
        assert_eq!((sums.private, sums.shared, sums.remote), (7, 0, 7));
        let mem = |f: &Faults| f.averages().mem.get(NodeId(1), true);
        assert_eq!(mem(&faults), 7);
        // ceil(7/2) + 2 = 6, then 3, 2, 1, and 1 stays.
        faults.count(&fault(2, 1, 0, true));
        faults.fold(Ran::ALWAYS);
        let mut seen = vec![mem(&faults)];
        for _ in 0..4 {
            faults.fold(Ran::ALWAYS);
            seen.push(mem(&faults));
        }
        assert_eq!(seen, [6, 3, 2, 1, 1]);
    }

    #[test]
    fn cpu_averages_count_by_the_time_that_the_task_ran() {
        // Ran a quarter of the time: (250 << 16) / 1001 = 16367; 30 of 40 faults
        // from node 0: 16367 * 30 / 41 = 11975; 10 from node 1: 16367 * 10 / 41 = 3991.
        let mut faults = Faults::new(2);
        faults.count(&fault(30, 0, 0, true));
        faults.count(&fault(10, 0, 1, false));
        let sums = faults.fold(Ran {
            runtime: 250,
            period: 1000,
        });
        assert_eq!((sums.local, sums.remote), (30, 10));
        let cpu = &faults.averages().cpu;
        assert_eq!(cpu.get(NodeId(0), true), 11_975);
        assert_eq!(cpu.get(NodeId(1), false), 3991);
        // Always running, at the first placement: (47742 << 16) / 47743 = 65534.
        assert_eq!(Ran::ALWAYS.weight(), 65_534);
    }

    #[test]
    fn the_lowest_of_equal_nodes_is_the_most() {
        let mut counts = ByNode::new(4);
        assert_eq!(counts.most(), None);
        counts.bump(NodeId(3), true, 5);
        counts.bump(NodeId(1), true, 2);
        counts.bump(NodeId(1), false, 3);
        assert_eq!(counts.most(), Some((NodeId(1), 5)));
    }

    #[test]
    fn failed_moves_and_a_new_window() {
        let mut faults = Faults::new(2);
        faults.count(&Counted {
            failed: true,
            ..fault(4, 1, 0, false)
        });
        assert_eq!(faults.fold(Ran::ALWAYS).failed, 4);
        // Counted on until it is forgotten; by kind it began anew.
        let again = faults.fold(Ran::ALWAYS);
        assert_eq!((again.failed, again.remote, again.shared), (4, 4, 0));
        faults.forget_locality();
        assert_eq!(faults.fold(Ran::ALWAYS), FaultSums::default());
    }

    proptest! {
        #[test]
        fn decays_never_lose_more_than_half_nor_make_faults(
            counts in proptest::collection::vec((0u64..1000, 0u16..4, 0u16..4, any::<bool>()), 0..40),
            runtime in 0u64..2000, period in 0u64..1000,
        ) {
            let mut faults = Faults::new(4);
            for chunk in counts.chunks(8) {
                let before = faults.averages().clone();
                let mut added = 0;
                for &(pages, mem, cpu, private) in chunk {
                    faults.count(&fault(pages, mem, cpu, private));
                    added += pages;
                }
                let ran = Ran { runtime, period };
                let sums = faults.fold(ran);
                faults.forget_locality();
                prop_assert_eq!(sums.local + sums.remote, added);
                prop_assert_eq!(sums.shared + sums.private, added);
                let after = faults.averages();
                // ceil(x/2) each: at least half in all, and less than one more a number.
                let (old, new) = (before.mem.total(), after.mem.total() - added);
                prop_assert!(new >= old.div_ceil(2) && new <= old / 2 + 8);
                // A task's CPU faults weigh at most its share of time.
                let fresh = after.cpu.total() - before.cpu.0.iter().flatten().map(|a| a - a / 2).sum::<u64>();
                prop_assert!(fresh <= ran.weight());
            }
        }
    }
}
