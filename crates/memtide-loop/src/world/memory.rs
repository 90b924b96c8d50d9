//! Pages: where they are, and what becomes of those that are to move.

use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::NodeId;
use serde::{Deserialize, Serialize};

/// Base pages in a huge page on x86-64.
pub const HUGE_PAGES: u64 = 512;

/// A range of one process's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Its first page.
    pub first: VirtualPage,
    /// Its length in base pages.
    pub pages: u64,
}

/// A range of one process's pages whose places are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sought {
    /// The range.
    #[serde(flatten)]
    pub span: Span,
    /// Where all of its pages are, if they were counted on one node (see
    /// [`Area::counted`](super::Area::counted)). Then it is asked only which pages
    /// are present, unless more are present than were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
}

/// Pages that were counted on one node, and none on any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The node.
    pub node: NodeId,
    /// Base pages on it.
    pub pages: u64,
}

impl Counted {
    /// What comes of pages by node; `None` if they are on several nodes, or none.
    pub fn of(by_node: impl IntoIterator<Item = (NodeId, u64)>) -> Option<Counted> {
        let mut by_node = by_node.into_iter().filter(|(_, pages)| *pages > 0);
        let (node, first) = by_node.next()?;
        let pages = by_node.try_fold(first, |sum, (other, pages)| {
            (other == node).then(|| sum.saturating_add(pages))
        })?;
        Some(Counted { node, pages })
    }

    /// The node, if no more than was counted is `present`. What is more came since,
    /// or is not counted by the kernel: a page of zeros, memory of a device.
    pub fn holds(self, present: u64) -> Option<NodeId> {
        (present <= self.pages).then_some(self.node)
    }
}

impl From<Span> for Sought {
    fn from(span: Span) -> Sought {
        Sought {
            span,
            counted: None,
        }
    }
}

/// A run of present pages on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Its first page.
    pub first: VirtualPage,
    /// Its length in base pages.
    pub pages: u64,
    /// Where it is.
    pub node: NodeId,
    /// Whether it is mapped as huge pages.
    pub huge: bool,
}

/// For how long programs have waited for memory: the time, in µs, in which some task
/// stalled on it, in all. Only differences mean something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// Of the whole machine; `None` if nobody says so.
    pub machine: Option<u64>,
    /// Of each class, by [`ClassId`](super::ClassId), the longest of its cgroups;
    /// likewise.
    pub classes: Vec<Option<u64>>,
}

/// Pages that are to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRun {
    /// Its first page.
    pub first: VirtualPage,
    /// Its length in base pages.
    pub pages: u64,
    /// Whether it is mapped as huge pages, which move whole.
    pub huge: bool,
}

/// What happens to pages that several processes map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedPages {
    /// They stay: their other users may be bound to where they are.
    Leave,
    /// They move, if the kernel permits it.
    Move,
}

/// How to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveHow {
    /// Base pages that are unmapped together, at most: a thread that touches
    /// one of them waits until all are copied.
    pub batch: u32,
    /// What to do with shared pages.
    pub shared: SharedPages,
}

/// What became of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It lay on `from` and lies on the target now.
    Moved {
        /// Where it lay.
        from: NodeId,
    },
    /// It lay on the target before.
    AlreadyThere,
    /// Never touched, or swapped out, or unmapped meanwhile and mapped anew.
    NotPresent,
    /// The page of zeros, or no mapping is there, or a kind of memory that has
    /// no place (a device's).
    ZeroOrUnmapped,
    /// Other processes map it too, and [`SharedPages::Leave`] was chosen or the
    /// kernel does not permit moving such pages.
    Shared,
    /// Pinned, or in use by the kernel at this moment. Trying later may help.
    Busy,
    /// The target has no room.
    NoMemory,
    /// The process's cpuset excludes the target.
    NotAllowed,
    /// The target is not a node with memory.
    NoSuchNode,
    /// We may not move this process's pages.
    NotPermitted,
    /// The process has ended, is ending, or never had memory of its own.
    ProcessGone,
    /// The kernel's error by its number, of a kind that is not expected here.
    Failed(i32),
}

impl Outcome {
    /// Whether the page lies where it was wanted.
    pub fn is_there(self) -> bool {
        matches!(self, Outcome::Moved { .. } | Outcome::AlreadyThere)
    }

    /// Whether the page is still where it was.
    pub fn leaves_it_as_it_was(self) -> bool {
        let gone = matches!(
            self,
            Outcome::NotPresent | Outcome::ZeroOrUnmapped | Outcome::ProcessGone
        );
        !gone && !self.is_there()
    }

    /// Why the kernel did not move the page, for people.
    pub fn refusal(self) -> &'static str {
        match self {
            Outcome::Moved { .. } | Outcome::AlreadyThere => "it moved",
            Outcome::NotPresent => "it is not present any more",
            Outcome::ZeroOrUnmapped => "nothing is mapped there any more",
            Outcome::Shared => {
                "other processes map it too, and moving such pages takes CAP_SYS_NICE"
            }
            Outcome::Busy => "it is pinned or in use",
            Outcome::NoMemory => "the target is full",
            Outcome::NotAllowed => "its cpuset excludes the target",
            Outcome::NoSuchNode => "the target is offline or has no memory",
            Outcome::NotPermitted => "not allowed without CAP_SYS_PTRACE and CAP_SYS_NICE",
            Outcome::ProcessGone => "its process has ended",
            Outcome::Failed(_) => "of an error that is not expected here",
        }
    }
}

/// A run of pages with the same outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Its first page.
    pub first: VirtualPage,
    /// Its length in base pages.
    pub pages: u64,
    /// Whether these were moved, or tried, as huge pages.
    pub huge: bool,
    /// What became of each.
    pub outcome: Outcome,
}

impl Settled {
    /// Base pages that share one fate: a page, or all of a huge page.
    pub fn folio_pages(&self) -> u64 {
        if self.huge { HUGE_PAGES } else { 1 }
    }

    /// Adds a page, or a huge one, to the end of `list`, joined with the run
    /// that it continues.
    pub fn push(list: &mut Vec<Settled>, next: Settled) {
        match list.last_mut() {
            Some(last)
                if last.first.0 + last.pages == next.first.0
                    && last.huge == next.huge
                    && last.outcome == next.outcome =>
            {
                last.pages += next.pages;
            }
            _ => list.push(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_fate_are_one_run() {
        let page = |first, huge, outcome| Settled {
            first: VirtualPage(first),
            pages: if huge { 512 } else { 1 },
            huge,
            outcome,
        };
        let moved = Outcome::Moved { from: NodeId(2) };
        let mut list = Vec::new();
        for next in [
            page(510, false, moved),
            page(511, false, moved),
            page(512, true, moved),
            page(1024, true, moved),
            page(1536, true, Outcome::Busy),
            page(3000, true, Outcome::Busy),
        ] {
            Settled::push(&mut list, next);
        }
        let runs: Vec<_> = list.iter().map(|run| (run.first.0, run.pages)).collect();
        assert_eq!(runs, [(510, 2), (512, 1024), (1536, 512), (3000, 512)]);
    }
}
