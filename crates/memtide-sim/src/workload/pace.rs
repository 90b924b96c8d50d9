//! How many accesses each thread still has to make.

/// A thread's accesses, all threads alike.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    left: Vec<u64>,
    total: u64,
}

impl Pace {
    /// `total` accesses for each of `threads`; at least 1.
    pub fn new(threads: usize, total: u64) -> Pace {
        let total = total.max(1);
        Pace {
            left: vec![total; threads],
            total,
        }
    }

    /// How many of the next `room` accesses `thread` may make; it makes them.
    #[inline]
    pub fn take(&mut self, thread: usize, room: usize) -> usize {
        let left = &mut self.left[thread];
        let count = (*left).min(room as u64);
        *left -= count;
        count as usize
    }

    /// How many accesses `thread` has made.
    #[inline]
    pub fn made(&self, thread: usize) -> u64 {
        self.total - self.left[thread]
    }

    /// Whether `thread` has made all.
    #[inline]
    pub fn is_over(&self, thread: usize) -> bool {
        self.left[thread] == 0
    }

    /// Whether all threads have made at least `count`.
    pub fn all_made(&self, count: u64) -> bool {
        self.left.iter().all(|left| self.total - left >= count)
    }

    /// The slowest thread's share.
    pub fn done(&self) -> f64 {
        let most = self.left.iter().max().copied().unwrap_or(0);
        1.0 - most as f64 / self.total as f64
    }
}
