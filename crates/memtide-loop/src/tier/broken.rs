//! What sources that broke had cost and lost.
//!
//! Nobody asks a source that broke again. What it had come to is remembered, and added to
//! what those that are left say, so that counters never fall.

use crate::world::SourceStatus;

/// What sources have come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Broken {
    /// The kernel's processor time.
    pub kernel_cpu_ns: u64,
    /// Reports that were lost.
    pub lost: u64,
}

impl Broken {
    /// One that breaks now: a world that has closed it may no longer know what was `known`.
    pub fn of(known: Broken, now: SourceStatus) -> Broken {
        Broken {
            kernel_cpu_ns: known.kernel_cpu_ns.max(now.kernel_cpu_ns),
            lost: known.lost.max(now.lost),
        }
    }

    /// Another one broke.
    pub fn add(&mut self, other: Broken) {
        self.kernel_cpu_ns = self.kernel_cpu_ns.saturating_add(other.kernel_cpu_ns);
        self.lost = self.lost.saturating_add(other.lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_counts_if_nobody_knows_it_any_more() {
        let known = Broken {
            kernel_cpu_ns: 500,
            lost: 3,
        };
        let mut all = Broken::of(known, SourceStatus::default());
        assert_eq!(all, known);
        let later = SourceStatus {
            kernel_cpu_ns: 700,
            lost: 2,
            ..SourceStatus::default()
        };
        all.add(Broken::of(known, later));
        assert_eq!((all.kernel_cpu_ns, all.lost), (1200, 6));
    }
}
