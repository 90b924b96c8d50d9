//! Wakes a thread that waits, from anywhere, a signal handler included.

use rustix::io::Errno;
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Counts rings; who waits says up to which it knows.
#[derive(Debug, Default)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    pub fn ring(&self) {
        self.0.fetch_add(1, SeqCst);
        wake_all(&self.0);
    }

    /// The rings so far.
    pub fn heard(&self) -> u32 {
        self.0.load(SeqCst)
    }

    /// Waits for a ring after the first `heard`, `limit` at most.
    pub fn wait(&self, heard: u32, limit: Duration) {
        wait_while(&self.0, heard, limit);
    }

    /// The same, and for one of `others`: words that other processes change and wake. Each with the value up to which
    /// it is known.
    pub fn wait_with(&self, heard: u32, others: &[(&AtomicU32, u32)], limit: Duration) {
        if others.is_empty() {
            return self.wait(heard, limit);
        }
        let wait = |word: &AtomicU32, value: u32, flags: WaitFlags| {
            let mut wait = Wait::new();
            wait.val = value.into();
            wait.uaddr = WaitPtr::new(word.as_ptr().cast());
            wait.flags = flags | WaitFlags::SIZE_U32;
            wait
        };
        let own = wait(&self.0, heard, WaitFlags::PRIVATE);
        let others = others.iter().take(MOST_WORDS);
        let others = others.map(|(word, value)| wait(word, *value, WaitFlags::empty()));
        let all: Vec<Wait> = std::iter::once(own).chain(others).collect();
        let end = timespec(now() + limit);
        let clock = ClockId::Monotonic;
        match futex::waitv(&all, WaitvFlags::empty(), Some(&end), clock) {
            Ok(_) | Err(Errno::AGAIN | Errno::TIMEDOUT | Errno::INTR) => {}
            // An older kernel, or a filter of system calls.
            Err(_) => self.wait(heard, limit.min(BLIND)),
        }
    }
}

/// Words that one call waits for, beside its own.
const MOST_WORDS: usize = 127;
/// How long is waited where one word only can be waited for (before Linux 5.16).
const BLIND: Duration = Duration::from_millis(2);

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

/// Waits until `word` is no longer `value`, or somebody wakes, or `limit` is over.
pub(crate) fn wait_while(word: &AtomicU32, value: u32, limit: Duration) {
    wait_on(word, futex::Flags::PRIVATE, value, limit);
}

/// The same, for a word that other processes change.
pub(crate) fn wait_for_others(word: &AtomicU32, value: u32, limit: Duration) {
    wait_on(word, futex::Flags::empty(), value, limit);
}

fn wait_on(word: &AtomicU32, flags: futex::Flags, value: u32, limit: Duration) {
    // Interrupted, changed, timed out: the caller looks again in every case.
    let _ = futex::wait(word, flags, value, Some(&timespec(limit)));
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

pub(crate) fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// Wakes those of all processes.
pub(crate) fn wake_others(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}
