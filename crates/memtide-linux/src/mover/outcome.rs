//! What became of a page, and sums of that.

use crate::sys::Errno;
use memtide_core::units::NodeId;

/// What became of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Other processes map it too, and [`super::SharedPages::Leave`] was chosen
    /// or the kernel does not permit moving such pages.
    Shared,
    /// Pinned, or in use by the kernel at this moment. Trying later may help.
    Busy,
    /// The target has no room.
    NoMemory,
    /// The process's cpuset excludes the target.
    NotAllowed,
    /// The target is not a node with memory.
    NoSuchNode,
    /// We may not move this process's pages (`CAP_SYS_PTRACE`, `CAP_SYS_NICE`).
    NotPermitted,
    /// The process has ended, is ending, or never had memory of its own.
    ProcessGone,
    /// The kernel's error, of a kind that is not expected here. If it was the
    /// question afterwards that failed, the page may have moved.
    Failed(Errno),
}

impl Outcome {
    /// Whether the page lies where it was wanted.
    pub fn is_there(self) -> bool {
        matches!(self, Outcome::Moved { .. } | Outcome::AlreadyThere)
    }

    /// The meaning of a page's negative status.
    pub(super) fn of_status(status: i32) -> Outcome {
        // What no kernel writes, the sentinel included, is an I/O error.
        let raw = status.checked_neg().filter(|raw| (1..4096).contains(raw));
        match raw.map_or(Errno::IO, Errno::from_raw_os_error) {
            Errno::NOENT => Outcome::NotPresent,
            Errno::FAULT => Outcome::ZeroOrUnmapped,
            Errno::ACCESS => Outcome::Shared,
            Errno::BUSY => Outcome::Busy,
            Errno::NOMEM => Outcome::NoMemory,
            errno => Outcome::Failed(errno),
        }
    }

    /// The meaning of an error of the whole call.
    pub(super) fn of_call(errno: Errno) -> Outcome {
        match errno {
            Errno::NOMEM => Outcome::NoMemory,
            Errno::ACCESS => Outcome::NotAllowed,
            Errno::NODEV => Outcome::NoSuchNode,
            Errno::PERM => Outcome::NotPermitted,
            // A zombie and a kernel thread are EINVAL; our flags are valid.
            Errno::SRCH | Errno::INVAL => Outcome::ProcessGone,
            errno => Outcome::Failed(errno),
        }
    }

    /// The meaning of an error of a call that only asks: it says nothing about
    /// room or permission on the target.
    pub(super) fn of_query(errno: Errno) -> Outcome {
        match Outcome::of_call(errno) {
            gone @ (Outcome::ProcessGone | Outcome::NotPermitted) => gone,
            _ => Outcome::Failed(errno),
        }
    }
}

/// One page or huge page and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Its first byte.
    pub address: usize,
    /// Base pages in it.
    pub pages: usize,
    /// Where it was to go.
    pub target: NodeId,
    /// What became of it.
    pub outcome: Outcome,
}

/// Base pages by outcome; [`Sums::duplicates`] counts requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the outcome of its name")]
pub struct Sums {
    pub moved: usize,
    pub already_there: usize,
    pub not_present: usize,
    pub zero_or_unmapped: usize,
    pub shared: usize,
    pub busy: usize,
    pub no_memory: usize,
    pub not_allowed: usize,
    pub no_such_node: usize,
    pub not_permitted: usize,
    pub process_gone: usize,
    pub failed: usize,
    /// Requests for a page that the same batch had already.
    pub duplicates: usize,
}

impl Sums {
    /// Counts one page.
    pub fn count(&mut self, settled: &Settled) {
        let sum = match settled.outcome {
            Outcome::Moved { .. } => &mut self.moved,
            Outcome::AlreadyThere => &mut self.already_there,
            Outcome::NotPresent => &mut self.not_present,
            Outcome::ZeroOrUnmapped => &mut self.zero_or_unmapped,
            Outcome::Shared => &mut self.shared,
            Outcome::Busy => &mut self.busy,
            Outcome::NoMemory => &mut self.no_memory,
            Outcome::NotAllowed => &mut self.not_allowed,
            Outcome::NoSuchNode => &mut self.no_such_node,
            Outcome::NotPermitted => &mut self.not_permitted,
            Outcome::ProcessGone => &mut self.process_gone,
            Outcome::Failed(_) => &mut self.failed,
        };
        *sum += settled.pages;
    }

    /// Base pages with any outcome.
    pub fn settled(&self) -> usize {
        self.moved
            + self.already_there
            + self.not_present
            + self.zero_or_unmapped
            + self.shared
            + self.busy
            + self.no_memory
            + self.not_allowed
            + self.no_such_node
            + self.not_permitted
            + self.process_gone
            + self.failed
    }
}
