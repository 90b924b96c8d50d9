//! Why mappings of wanted files are not kept. Each reason is said once in a process,
//! and stands in the report.

use std::sync::atomic::{AtomicU32, Ordering};

/// Why a mapping is left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It may be written to or executed, or is of a special kind.
    Kind,
    /// What is behind the descriptor is no regular file, or it cannot be held open.
    File,
    /// The file system refuses a shared mapping of it.
    Shared,
    /// There are [`crate::ranges::MOST`] kept ones.
    Many,
    /// The pager refused it; it said why.
    Pager,
    /// There is no memory for our own tables.
    Memory,
    /// The program locked everything in memory.
    Locked,
}

const ALL: [Reason; 7] = [
    Reason::Kind,
    Reason::File,
    Reason::Shared,
    Reason::Many,
    Reason::Pager,
    Reason::Locked,
    Reason::Memory,
];

static MET: AtomicU32 = AtomicU32::new(0);

impl Reason {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Reason::Kind => "mapped for more than reading",
            Reason::File => "not a regular file, or no descriptor is free to hold it",
            Reason::Shared => "its file system maps nothing shared",
            Reason::Many => "more than 1,024 mappings are kept",
            Reason::Pager => "the pager refused it",
            Reason::Locked => "the program locks all its memory",
            Reason::Memory => "no memory for the pager's own tables",
        }
    }

    /// Notes it. True for the first time in this process.
    pub fn meet(self) -> bool {
        let bit = 1 << self as u32;
        MET.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

/// All that were met.
pub fn met() -> Vec<&'static str> {
    let bits = MET.load(Ordering::Relaxed);
    let met = ALL
        .iter()
        .filter(|reason| bits & (1 << **reason as u32) != 0);
    met.map(|reason| reason.words()).collect()
}

/// Begins anew, in a forked child.
pub fn reset() {
    MET.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once() {
        assert!(Reason::Kind.meet() && Reason::Many.meet());
        assert!(!Reason::Kind.meet());
        assert_eq!(met(), [Reason::Kind.words(), Reason::Many.words()]);
        reset();
        assert!(met().is_empty());
    }
}
