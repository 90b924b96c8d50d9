//! What the kernel grants a pager, and how each region stands.

use serde::Serialize;
use std::fmt;

/// How something is done, and why not better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Means {
    /// The way that is used.
    pub way: &'static str,
    /// Whether it is the best that the pager knows.
    pub best: bool,
    /// Why not the best; empty if it is.
    pub reason: String,
}

impl Means {
    pub(crate) fn best(way: &'static str) -> Means {
        Means {
            way,
            best: true,
            reason: String::new(),
        }
    }

    pub(crate) fn instead(way: &'static str, reason: impl Into<String>) -> Means {
        Means {
            way,
            best: false,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.best {
            true => f.write_str(self.way),
            false => write!(f, "{} ({})", self.way, self.reason),
        }
    }
}

/// What a pager found on this kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct State {
    /// How batches are unmapped.
    pub unmap: Means,
    /// How it is seen what is in memory.
    pub sight: Means,
    /// How faults are served.
    pub faults: Means,
    /// The evictor's priority.
    pub priority: Means,
    /// Whether the budget is what was asked for, or a memory limit is lower.
    pub memory: Means,
    /// Every region.
    pub regions: Vec<RegionState>,
}

/// How a region stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionState {
    /// The file or the source's name.
    pub name: String,
    /// Address of its first byte.
    pub address: usize,
    /// Its length.
    pub bytes: u64,
    /// As last seen.
    pub resident_bytes: u64,
    /// Why it is not evicted from any more, or reads of it fail; `None` if all
    /// is well.
    pub trouble: Option<String>,
}
