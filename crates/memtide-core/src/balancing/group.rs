//! Tasks that share memory, placed together.
//!
//! A task makes a group of one at its first shared fault. When a page says that
//! another task touched it last, and that task still runs on the CPU that the
//! page names, the two belong together: the one in the smaller group leaves it
//! for the larger, of equal groups the one with the lower number leaves. Only
//! tasks of one address space, or tasks that meet on a page of a shared mapping,
//! join; others may have met by equal process bits, and their fault is private.
//!
//! A group holds the sums of its members' averages. What must stay true: the sum
//! over all groups and lone tasks never changes by a join.

use super::faults::{Averages, ByNode};
use super::machine::Machine;
use super::timing::GroupShare;
use crate::units::NodeId;
use serde::Serialize;

/// A node is active in a group if its CPU faults times this exceed the most.
pub const ACTIVE_FRACTION: u64 = 3;

/// A group's number. Later groups have higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct GroupId(pub u64);

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    id: GroupId,
    members: u64,
    sums: Averages,
    active_nodes: usize,
    most_cpu: u64,
}

impl Group {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// How many tasks.
    #[must_use]
    pub fn members(&self) -> u64 {
        self.members
    }

    /// The members' averages added up.
    #[must_use]
    pub fn sums(&self) -> &Averages {
        &self.sums
    }

    /// Memory faults over all nodes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.sums.mem.total()
    }

    /// How many nodes were active at the last count.
    #[must_use]
    pub fn active_nodes(&self) -> usize {
        self.active_nodes
    }

    /// Whether `node` is active by the last count's maximum.
    #[must_use]
    pub fn is_active(&self, node: NodeId) -> bool {
        self.sums.cpu.of(node) * ACTIVE_FRACTION > self.most_cpu
    }

    /// What the scan periods need to know.
    #[must_use]
    pub fn share(&self) -> GroupShare {
        GroupShare {
            members: self.members,
            shared: self.sums.mem.of_kind(false),
            private: self.sums.mem.of_kind(true),
        }
    }

    /// Counts the active nodes anew.
    pub fn count_active(&mut self, machine: &Machine) {
        let faults = |cpu: &ByNode, n: NodeId| cpu.of(n);
        let nodes = machine.with_cpus().iter().copied();
        self.most_cpu = nodes
            .clone()
            .map(|n| faults(&self.sums.cpu, n))
            .max()
            .unwrap_or(0);
        self.active_nodes = nodes.filter(|&n| self.is_active(n)).count();
    }
}

/// What became of a shared fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Join {
    /// The task left its group for this one.
    Joined(GroupId),
    /// It stays: nobody to join, or its group is the larger. The fault is shared.
    Stays,
    /// The other task is a stranger. The fault is private.
    Stranger,
}

/// All groups.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// Ascending by number; only groups with members.
    groups: Vec<Group>,
    next: u64,
}

impl Groups {
    /// No group.
    #[must_use]
    pub fn new() -> Groups {
        Groups::default()
    }

    /// The group of that number.
    #[must_use]
    pub fn get(&self, id: GroupId) -> Option<&Group> {
        let at = self.groups.binary_search_by_key(&id, |g| g.id).ok()?;
        Some(&self.groups[at])
    }

    /// The same, to change.
    pub fn get_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        let at = self.groups.binary_search_by_key(&id, |g| g.id).ok()?;
        Some(&mut self.groups[at])
    }

    /// The groups, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    /// A group of one task with these averages.
    pub fn found(&mut self, averages: &Averages) -> GroupId {
        let id = GroupId(self.next);
        self.next += 1;
        self.groups.push(Group {
            id,
            members: 1,
            sums: averages.clone(),
            active_nodes: 1,
            most_cpu: 0,
        });
        id
    }

    /// Takes out of a group's sums what a member's averages were.
    pub(super) fn withdraw(&mut self, id: GroupId, averages: &Averages) {
        if let Some(group) = self.get_mut(id) {
            group.sums.sub(averages);
        }
    }

    /// Adds to a group's sums what a member's averages became.
    pub(super) fn deposit(&mut self, id: GroupId, averages: &Averages) {
        if let Some(group) = self.get_mut(id) {
            group.sums.add(averages);
        }
    }

    /// Takes a member out; an empty group is gone.
    pub fn leave(&mut self, id: GroupId, averages: &Averages) {
        let Ok(at) = self.groups.binary_search_by_key(&id, |g| g.id) else {
            return;
        };
        let group = &mut self.groups[at];
        group.sums.sub(averages);
        group.members -= 1;
        if group.members == 0 {
            self.groups.remove(at);
        }
    }

    /// A task of group `mine` with these averages met a task of group `other`.
    /// `kin`: they have one address space, or met on a page of a shared mapping.
    pub fn meet(&mut self, mine: GroupId, averages: &Averages, other: GroupId, kin: bool) -> Join {
        let size = |id| self.get(id).map_or(0, |g| g.members);
        let (own, its) = (size(mine), size(other));
        if mine == other || its == 0 || own > its || (own == its && mine > other) {
            return Join::Stays;
        }
        if !kin {
            return Join::Stranger;
        }
        self.leave(mine, averages);
        if let Some(group) = self.get_mut(other) {
            group.sums.add(averages);
            group.members += 1;
        }
        Join::Joined(other)
    }
}

#[cfg(test)]
mod tests {
    use super::super::faults::{Counted, Faults, Ran};
    use super::super::machine::tests::{machine, pair};
    use super::*;
    use proptest::prelude::*;

    /// Averages of a task with so many faults from node `cpu` to node `mem`.
    fn averages(pages: u64, mem: u16, cpu: u16) -> Averages {
        let mut faults = Faults::new(4);
        faults.count(&Counted {
            pages,
            mem: NodeId(mem),
            cpu: NodeId(cpu),
            private: false,
            local: false,
            failed: false,
        });
        faults.fold(Ran::ALWAYS);
        faults.averages().clone()
    }

    #[test]
    fn the_smaller_group_joins_the_larger_and_of_equals_the_older() {
        let mut groups = Groups::new();
        let [a, b, c] = [(3, 0), (5, 1), (7, 0)].map(|(n, node)| averages(n, node, node));
        let [ga, gb, gc] = [&a, &b, &c].map(|x| groups.found(x));
        // Equal sizes: the later one stays, the older one goes.
        assert_eq!(groups.meet(gb, &b, ga, true), Join::Stays);
        assert_eq!(groups.meet(ga, &a, gb, true), Join::Joined(gb));
        assert!(groups.get(ga).is_none());
        let merged = groups.get(gb).unwrap();
        assert_eq!((merged.members(), merged.total()), (2, 8));
        assert_eq!(merged.sums().mem.of(NodeId(0)), 3);
        // One joins two; two do not join one.
        assert_eq!(groups.meet(gb, &b, gc, true), Join::Stays);
        assert_eq!(groups.meet(gc, &c, gb, true), Join::Joined(gb));
        assert_eq!(groups.get(gb).unwrap().total(), 15);
        // In one group already.
        assert_eq!(groups.meet(gb, &c, gb, true), Join::Stays);
    }

    #[test]
    fn strangers_do_not_join() {
        let mut groups = Groups::new();
        let (a, b) = (averages(3, 0, 0), averages(5, 1, 1));
        let (ga, gb) = (groups.found(&a), groups.found(&b));
        assert_eq!(groups.meet(ga, &a, gb, false), Join::Stranger);
        // Size is looked at first: the fault then stays shared.
        assert_eq!(groups.meet(gb, &b, ga, false), Join::Stays);
        assert_eq!(groups.get(ga).unwrap().members(), 1);
    }

    #[test]
    fn active_nodes_have_more_than_a_third_of_the_most() {
        let mut groups = Groups::new();
        let lone = groups.found(&averages(1, 0, 0));
        let mut group = groups.get(lone).unwrap().clone();
        group.sums = Averages::new(4);
        // One fault each gives floor(65534 / 2) = 32767 a node; three on node 0
        // make 98301: node 1's 32767 * 3 = 98301 is not more.
        for cpu in [0, 0, 0, 1] {
            group.sums.add(&averages(1, 0, cpu));
        }
        group.count_active(&pair());
        assert_eq!(group.active_nodes(), 1);
        assert!(group.is_active(NodeId(0)) && !group.is_active(NodeId(1)));
        group.sums.add(&averages(1, 0, 1));
        group.count_active(&pair());
        assert_eq!(group.active_nodes(), 2);
        // A node without CPUs is never counted.
        let cxl = machine(&[&[10, 20], &[20, 10]], &[1]);
        group.count_active(&cxl);
        assert_eq!(group.active_nodes(), 1);
    }

    proptest! {
        #[test]
        fn joins_conserve_totals_and_members(
            tasks in proptest::collection::vec((1u64..1000, 0u16..4, 0u16..4), 2..12),
            meetings in proptest::collection::vec((0usize..12, 0usize..12, any::<bool>()), 0..60),
        ) {
            let mut groups = Groups::new();
            let tasks: Vec<_> = tasks.iter().map(|&(n, m, c)| averages(n, m, c)).collect();
            let mut of: Vec<_> = tasks.iter().map(|t| groups.found(t)).collect();
            let total: u64 = tasks.iter().map(|t| t.mem.total() + t.cpu.total()).sum();
            for (a, b, kin) in meetings {
                let (a, b) = (a % tasks.len(), b % tasks.len());
                let before = groups.get(of[b]).unwrap().members();
                if let Join::Joined(to) = groups.meet(of[a], &tasks[a], of[b], kin) {
                    prop_assert!(kin && to == of[b]);
                    of[a] = to;
                    prop_assert_eq!(groups.get(to).unwrap().members(), before + 1);
                }
            }
            let sum = |g: &Group| g.sums().mem.total() + g.sums().cpu.total();
            prop_assert_eq!(groups.iter().map(sum).sum::<u64>(), total);
            for group in groups.iter() {
                let mut own = Averages::new(4);
                let members = of.iter().zip(&tasks).filter(|(id, _)| **id == group.id());
                let count = members.map(|(_, t)| own.add(t)).count() as u64;
                prop_assert_eq!(&own, group.sums());
                prop_assert_eq!(count, group.members());
            }
        }
    }
}
