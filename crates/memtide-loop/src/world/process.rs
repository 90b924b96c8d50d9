//! Processes and threads: who they are, and what their owners allow.

use super::{Counted, HUGE_PAGES};
use memtide_core::nodemask::NodeMask;
use memtide_core::pages::Immovable;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::{Millis, NodeId};
use serde::{Deserialize, Serialize};

/// A process, proof against its pid being used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot. Only equality means anything.
    pub start_ticks: u64,
}

/// A thread, proof against its number being used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadId {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub tid: u32,
    /// When the thread started, in clock ticks since boot.
    pub start_ticks: u64,
}

/// A class of processes that have a share of fast memory in common: its place in
/// the list of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClassId(pub u32);

/// Whether a process is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[must_use]
pub enum Presence {
    /// It is.
    Here,
    /// It has ended, or has given up its memory.
    Gone,
}

/// A process as a list of all has it: cheap to read for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSeen {
    /// Who it is.
    pub process: ProcessId,
    /// The process that made it.
    pub parent: u32,
    /// When it started, since boot.
    pub born: Millis,
    /// Processor time that it has used, in clock ticks: one that has used none
    /// since last time has touched nothing.
    pub ticks: u64,
    /// Page faults that it took: one that took none has the memory that it had.
    pub faults: u64,
    /// The class that it belongs to, if there are classes and it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassId>,
}

/// What a process maps, and where its owner lets that be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressSpace {
    /// The program's name, for people.
    pub name: String,
    /// The nodes of its cpuset; all if the kernel does not say.
    pub cpuset: NodeMask,
    /// Its mappings, in order of address, none overlapping another. What the
    /// kernel itself maps is left out.
    pub areas: Vec<Area>,
}

impl Default for AddressSpace {
    fn default() -> AddressSpace {
        AddressSpace {
            name: String::new(),
            cpuset: NodeMask::ALL,
            areas: Vec::new(),
        }
    }
}

impl AddressSpace {
    /// The area that holds `page`.
    pub fn area(&self, page: VirtualPage) -> Option<&Area> {
        let after = self.areas.partition_point(|area| area.first <= page);
        let area = &self.areas[after.checked_sub(1)?];
        (page.0 - area.first.0 < area.pages).then_some(area)
    }

    /// Whether the 2 MiB around `page` are in one area.
    pub fn holds_huge(&self, page: VirtualPage) -> bool {
        let first = page.0 / HUGE_PAGES * HUGE_PAGES;
        self.area(page).is_some_and(|area| {
            area.first.0 <= first && first + HUGE_PAGES <= area.first.0 + area.pages
        })
    }

    /// Whether `page` may go to `target`.
    pub fn may_move(&self, page: VirtualPage, target: NodeId) -> Result<(), Immovable> {
        let Some(area) = self.area(page) else {
            return Err(Immovable::Other("its mapping is gone"));
        };
        match &area.allowed {
            Allowed::Never(why) => Err(Immovable::Other(why.text())),
            Allowed::Anywhere => Ok(()),
            Allowed::Nodes(nodes) if !nodes.contains(target) => Err(Immovable::Mempolicy),
            Allowed::Nodes(_) => Ok(()),
        }
        .and_then(|()| match self.cpuset.contains(target) {
            true => Ok(()),
            false => Err(Immovable::Cpuset),
        })
    }
}

/// A mapping that holds pages which may be managed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// Its first page.
    pub first: VirtualPage,
    /// Its length in base pages.
    pub pages: u64,
    /// Where its memory policy lets its pages be.
    pub allowed: Allowed,
    /// What kind of memory it is.
    #[serde(default)]
    pub kind: MemoryKind,
    /// What other mappings of the same memory have in common with it; `None`
    /// for memory that is this process's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing: Option<Backing>,
    /// Its present pages as they were counted when this was read, if they were all on
    /// one node. The kernel counts pages by node when it tells of a mapping; to ask for
    /// each page costs several times as much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
}

/// Where a mapping's pages may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allowed {
    /// On every node that the cpuset allows. A preferred node is a wish for new
    /// pages and no rule for old ones.
    Anywhere,
    /// On these, to which it is bound.
    Nodes(Box<NodeMask>),
    /// Only where they are.
    Never(Fixed),
}

/// Why a mapping's pages stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fixed {
    /// Somebody spread them on purpose, and moving one breaks the spread.
    Interleaved,
    /// It belongs to hugetlbfs.
    Hugetlb,
}

impl Fixed {
    /// The reason, for people.
    pub fn text(self) -> &'static str {
        match self {
            Fixed::Interleaved => "its mapping is interleaved on purpose",
            Fixed::Hugetlb => "it belongs to hugetlbfs",
        }
    }
}

/// What a mapping maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Memory of the process's own.
    #[default]
    Anonymous,
    /// A file's pages.
    File,
    /// Shared memory without a file that anybody could read: `memfd`, `tmpfs`,
    /// System V.
    Shared,
}

/// What a shared mapping maps: pages of two areas with the same `object` are
/// the same memory where `first` and their place in the area agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Backing {
    /// Device and inode, or whatever else tells one object from another.
    pub object: (u64, u64),
    /// The object's page that the area begins with.
    pub first: u64,
}

/// A thread as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSeen {
    /// Who it is.
    pub thread: ThreadId,
    /// Processor time that it has used, in nanoseconds.
    pub runtime_ns: u64,
}

/// What to do about a thread's affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lend {
    /// Say what it would get.
    Propose,
    /// Give it.
    Set,
}

/// What became of a thread's affinity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// The CPUs that it has now, or would get; ascending.
    Given(Vec<u32>),
    /// It stays as it is.
    Kept(Kept),
}

/// Why a thread stays where it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Somebody pinned it.
    #[error("it has an affinity of its own")]
    Own,
    /// Its cpuset has no CPU of that node.
    #[error("its cpuset has no CPU of that node")]
    Cpuset,
    /// It ended.
    #[error("it has ended")]
    Gone,
    /// The kernel's error, by its number.
    #[error("the kernel refused (error {0})")]
    Refused(i32),
    /// More CPUs than the call can name.
    #[error("the node's CPUs have numbers above 1023")]
    TooManyCpus,
    /// What would be lent could not be noted, so nothing was changed.
    #[error("it could not be noted who is changed, so nobody is")]
    NotNoted,
    /// This world has no threads.
    #[error("this machine places no threads")]
    Unsupported,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(cpuset: &[u16]) -> AddressSpace {
        let area = |first, pages, allowed| Area {
            first: VirtualPage(first),
            pages,
            allowed,
            kind: MemoryKind::Anonymous,
            backing: None,
            counted: None,
        };
        let bound: NodeMask = [NodeId(1), NodeId(2)].into_iter().collect();
        AddressSpace {
            name: "test".into(),
            cpuset: cpuset.iter().map(|node| NodeId(*node)).collect(),
            areas: vec![
                area(100, 4, Allowed::Anywhere),
                area(200, 2, Allowed::Nodes(Box::new(bound))),
                area(300, 1, Allowed::Never(Fixed::Interleaved)),
            ],
        }
    }

    #[test]
    fn policy_and_cpuset_decide_where_a_page_may_go() {
        let all = space(&[0, 1, 2]);
        let (free, bound, spread) = (VirtualPage(103), VirtualPage(201), VirtualPage(300));
        assert_eq!(all.may_move(free, NodeId(0)), Ok(()));
        assert_eq!(all.may_move(bound, NodeId(0)), Err(Immovable::Mempolicy));
        assert_eq!(all.may_move(bound, NodeId(1)), Ok(()));
        let fixed = Err(Immovable::Other(Fixed::Interleaved.text()));
        assert_eq!(all.may_move(spread, NodeId(0)), fixed);
        let narrow = space(&[1, 2]);
        assert_eq!(narrow.may_move(free, NodeId(0)), Err(Immovable::Cpuset));
        assert_eq!(narrow.may_move(bound, NodeId(1)), Ok(()));
    }

    #[test]
    fn a_huge_page_is_in_one_mapping_or_cut() {
        let mut space = space(&[0]);
        let whole = |space: &AddressSpace, page| space.holds_huge(VirtualPage(page));
        assert!(!whole(&space, 100), "from page 0 on nothing is mapped");
        (space.areas[0].first, space.areas[0].pages) = (VirtualPage(512), 1023);
        space.areas.truncate(1);
        assert!(whole(&space, 512) && whole(&space, 1023));
        assert!(!whole(&space, 1024), "its last page is gone");
        assert!(!whole(&space, 511));
    }

    #[test]
    fn pages_outside_of_every_mapping_never_move() {
        let space = space(&[0]);
        for page in [0, 99, 104, 202, 301] {
            let answer = space.may_move(VirtualPage(page), NodeId(0));
            assert_eq!(
                answer,
                Err(Immovable::Other("its mapping is gone")),
                "{page}"
            );
        }
    }
}
