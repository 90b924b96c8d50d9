//! What became of a page, and sums of that.

use crate::sys::Errno;
use memtide_core::units::NodeId;
pub use memtide_loop::world::Outcome;

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
        errno => Outcome::Failed(errno.raw_os_error()),
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
        errno => Outcome::Failed(errno.raw_os_error()),
    }
}

/// The meaning of an error of a call that only asks: it says nothing about
/// room or permission on the target.
pub(super) fn of_query(errno: Errno) -> Outcome {
    match of_call(errno) {
        gone @ (Outcome::ProcessGone | Outcome::NotPermitted) => gone,
        _ => Outcome::Failed(errno.raw_os_error()),
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
