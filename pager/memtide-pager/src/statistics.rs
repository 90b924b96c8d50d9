//! What the pager did, in numbers.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A struct of numbers that is also a row of words, in the order of its fields.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub struct $type:ident {
            $($(#[$doc:meta])* pub $name:ident: u64,)*
        }
    ) => {
        $(#[$about])*
        pub struct $type {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $type {
            /// The fields' names.
            pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// The fields.
            pub(crate) fn words(&self) -> [u64; Self::NAMES.len()] {
                [$(self.$name),*]
            }

            /// From its words, each asked for once and in order.
            pub(crate) fn of(word: impl Fn(usize) -> u64) -> $type {
                let mut nth = 0..;
                let mut next = || word(nth.next().unwrap_or_default());
                $type {
                    $($name: next(),)*
                }
            }
        }
    };
}
pub(crate) use words;

words! {
    /// A snapshot of all regions together. Pages are base pages; everything but the
    /// two `resident` figures and `pending_pages` grows only.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    #[non_exhaustive]
    pub struct Statistics {
        /// What was asked for.
        pub budget_bytes: u64,
        /// Data in memory, as last seen (file mode) or exactly (strict).
        pub resident_bytes: u64,
        /// The most of it that was ever seen.
        pub peak_resident_bytes: u64,
        /// Chosen for eviction, and still mapped and readable.
        pub pending_pages: u64,
        /// Chosen for eviction.
        pub evicted_pages: u64,
        /// Chosen, and touched again before their memory was taken.
        pub rescued_pages: u64,
        /// Unmapped only to see whether they are in use.
        pub probed_pages: u64,
        /// Unmapped.
        pub zapped_pages: u64,
        /// Calls that unmapped, each with one flush of the process's translations
        /// where [`State::unmap`](crate::State::unmap) is batched.
        pub flush_calls: u64,
        /// Taken out of memory.
        pub dropped_pages: u64,
        /// Came into memory a second time or more.
        pub refilled_pages: u64,
        /// Came into memory at all.
        pub filled_pages: u64,
        /// Read in by the pager's own threads ahead of the program.
        pub read_ahead_pages: u64,
        /// Looks that found more in memory than the budget.
        pub budget_overruns: u64,
        /// Batches unmapped and dropped at once because of an overrun.
        pub urgent_batches: u64,
        /// Pages that the kernel would not let go (locked, mapped by others).
        pub stuck_pages: u64,
        /// Calls of the kernel that failed and were worked around.
        pub failed_calls: u64,
        /// Reads of the data that failed.
        pub read_errors: u64,
        /// Processor time of the evictor thread, microseconds.
        pub evictor_us: u64,
        /// Turns of the evictor thread.
        pub rounds: u64,
        /// Times that reading around faults was stopped because of an overrun.
        pub held_back: u64,
    }
}

/// A number that several threads add to.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    pub fn raise_to(&self, n: u64) {
        self.0.fetch_max(n, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($name:ident)*) => {
        /// The fields of [`Statistics`], being counted.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub $name: Count,)*
        }

        impl Counters {
            pub fn snapshot(&self) -> Statistics {
                Statistics {
                    $($name: self.$name.get(),)*
                }
            }
        }
    };
}

counters! {
    budget_bytes resident_bytes peak_resident_bytes pending_pages evicted_pages rescued_pages
    probed_pages zapped_pages flush_calls dropped_pages refilled_pages filled_pages
    read_ahead_pages budget_overruns urgent_batches stuck_pages failed_calls read_errors
    evictor_us rounds held_back
}
