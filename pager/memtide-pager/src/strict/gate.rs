//! The strict budget: one credit for each page that may be in memory.
//!
//! A load takes its credits first; the evictor gives credits back after it has
//! unmapped. Taking happens in a signal handler: atomics and futexes only.

use crate::bell::{Bell, wait_while, wake_all};
use crate::statistics::Counters;
use memtide_core::residency::Credits;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Loads that can be under way at a time; others wait.
const BUFFERS: usize = 16;
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// After so long without a credit, while the evictor can evict nothing (all is
/// locked or pinned), the budget is overrun by as much as it needs: a reader must not wait
/// for ever.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often that has to be seen, at least.
const LOOKS: u32 = 10;

#[derive(Debug)]
pub(crate) struct Gate {
    credits: Credits,
    waiting: AtomicU32,
    /// The evictor is woken when so few are left.
    low: u32,
    given_up: AtomicBool,
    /// The evictor found nothing that it could evict.
    stuck: AtomicBool,
    evictor: Arc<Bell>,
    buffers: Vec<Mutex<Vec<u8>>>,
    /// Counts returned buffers; who found none waits on it.
    returned: AtomicU32,
    /// Who waits for a buffer.
    lacking: AtomicU32,
    counters: Arc<Counters>,
}

impl Gate {
    pub fn new(
        total: u32,
        low: u32,
        buffer_bytes: usize,
        evictor: Arc<Bell>,
        counters: Arc<Counters>,
    ) -> Gate {
        Gate {
            credits: Credits::new(total),
            waiting: AtomicU32::new(0),
            low,
            given_up: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            evictor,
            buffers: (0..BUFFERS)
                .map(|_| Mutex::new(vec![0; buffer_bytes]))
                .collect(),
            returned: AtomicU32::new(0),
            lacking: AtomicU32::new(0),
            counters,
        }
    }

    /// Takes `most` credits, or fewer, and waits until there are `least`. How many;
    /// 0 once nobody gives any more.
    pub fn take(&self, least: u32, most: u32) -> u32 {
        // Since when it is stuck, and how often that was seen: a machine that stood still for a while is not.
        let mut stuck: Option<(Instant, u32)> = None;
        loop {
            let seen = self.credits.free();
            let taken = self.take_now(least, most);
            if taken > 0 {
                return taken;
            }
            if self.given_up.load(SeqCst) {
                return 0;
            }
            if self.stuck.load(SeqCst) {
                let (since, times) = stuck.get_or_insert_with(|| (Instant::now(), 0));
                *times += 1;
                if since.elapsed() > PATIENCE && *times > LOOKS {
                    self.credits.borrow(least);
                    self.counters.budget_overruns.add(1);
                    return least;
                }
            } else {
                stuck = None;
            }
            self.waiting.fetch_add(1, SeqCst);
            self.evictor.ring();
            // Too few, if not none: whoever gives some changes the word.
            if seen < least {
                wait_while(self.credits.word(), seen, LOOK_AGAIN);
            }
            self.waiting.fetch_sub(1, SeqCst);
        }
    }

    /// Takes `most` credits, or as many as there are if those are at least `least`;
    /// 0 if there are fewer.
    pub fn take_now(&self, least: u32, most: u32) -> u32 {
        let Some((taken, left)) = self.credits.take(least, most) else {
            return 0;
        };
        if left <= self.low && left + taken > self.low {
            self.evictor.ring();
        }
        taken
    }

    /// Gives credits back; what is owed is paid first.
    pub fn give(&self, credits: u32) {
        let free = self.credits.give(credits);
        if free > 0 && self.waiting.load(SeqCst) > 0 {
            wake_all(self.credits.word());
        }
    }

    /// The evictor keeps more than these free.
    pub fn low(&self) -> u32 {
        self.low
    }

    pub fn free(&self) -> u32 {
        self.credits.free()
    }

    /// Pages in memory or on their way in.
    pub fn in_use(&self) -> u32 {
        self.credits.in_use()
    }

    /// Whether somebody waits for a credit.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Says whether everything in memory has to stay.
    pub fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, SeqCst);
    }

    /// Nobody gives credits any more: who waits gets an error.
    pub fn give_up(&self) {
        self.given_up.store(true, SeqCst);
        wake_all(self.credits.word());
    }

    pub fn is_given_up(&self) -> bool {
        self.given_up.load(SeqCst)
    }

    /// Runs `work` with a buffer of one granule.
    pub fn with_buffer<T>(&self, work: impl FnOnce(&mut [u8]) -> T) -> T {
        loop {
            let returned = self.returned.load(SeqCst);
            if let Some(mut buffer) = self.buffers.iter().find_map(try_lock) {
                let result = work(&mut buffer);
                drop(buffer);
                self.returned.fetch_add(1, SeqCst);
                if self.lacking.load(SeqCst) > 0 {
                    wake_all(&self.returned);
                }
                return result;
            }
            self.lacking.fetch_add(1, SeqCst);
            wait_while(&self.returned, returned, LOOK_AGAIN);
            self.lacking.fetch_sub(1, SeqCst);
        }
    }
}

fn try_lock(buffer: &Mutex<Vec<u8>>) -> Option<MutexGuard<'_, Vec<u8>>> {
    match buffer.try_lock() {
        Ok(guard) => Some(guard),
        // A source panicked while it filled it; the next load overwrites it.
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_are_neither_lost_nor_made() {
        let counters = Arc::new(Counters::default());
        let gate = Gate::new(5, 1, 4096, Arc::default(), counters);
        assert!((0..5).all(|_| gate.take_now(1, 1) == 1));
        assert_eq!(gate.take_now(1, 1), 0);
        assert_eq!(gate.in_use(), 5);
        gate.give(2);
        assert_eq!((gate.free(), gate.in_use()), (2, 3));
        // Four threads take and give a thousand times each, some of them both that
        // there are.
        std::thread::scope(|scope| {
            for least in [1, 1, 2, 2] {
                let gate = &gate;
                scope.spawn(move || {
                    for _ in 0..1000 {
                        let taken = gate.take(least, 2);
                        assert!((least..=2).contains(&taken));
                        gate.give(taken);
                    }
                });
            }
        });
        assert_eq!(gate.in_use(), 3);
    }

    #[test]
    fn who_waits_for_a_credit_is_let_go() {
        let gate = Arc::new(Gate::new(1, 0, 4096, Arc::default(), Arc::default()));
        assert_eq!(gate.take(1, 1), 1);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| gate.take(1, 1));
            while !gate.is_awaited() {
                std::thread::yield_now();
            }
            gate.give_up();
            assert_eq!(waiter.join().unwrap(), 0);
        });
    }
}
