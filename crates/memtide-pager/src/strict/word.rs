//! The state of a granule in one word, which is also what its waiters sleep on.
//!
//!     absent ─► loading ─► here ─► leaving ─► absent
//!                  └─► failed ─► loading
//!
//! Only one thread at a time owns a granule that is loading or leaving; everybody
//! else waits. Pins keep it from leaving. Waiters announce themselves with a bit,
//! so that a change that nobody waits for makes no system call.

use crate::bell::{wait_while, wake_all};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Absent,
    Loading,
    Here,
    Leaving,
    Failed,
}

const STAGES: [Stage; 5] = [
    Stage::Absent,
    Stage::Loading,
    Stage::Here,
    Stage::Leaving,
    Stage::Failed,
];
const STAGE: u32 = 0b111;
const PIN: u32 = 0b1000;
const WAITED_FOR: u32 = 1 << 31;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Word(AtomicU32);

impl Default for Word {
    fn default() -> Word {
        Word(AtomicU32::new(0))
    }
}

fn stage_of(word: u32) -> Stage {
    STAGES[(word & STAGE).min(4) as usize]
}

impl Word {
    pub fn stage(&self) -> Stage {
        stage_of(self.0.load(SeqCst))
    }

    /// Takes the step if the granule is at `from`; a pinned one does not leave.
    /// Whoever succeeds owns the granule.
    pub fn step(&self, from: Stage, to: Stage) -> bool {
        let mut word = self.0.load(SeqCst);
        loop {
            let pinned = word & !WAITED_FOR >= PIN;
            if stage_of(word) != from || (to == Stage::Leaving && pinned) {
                return false;
            }
            let next = word & !STAGE | to as u32;
            match self.0.compare_exchange(word, next, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Ends the ownership: the granule is at `to`, and waiters look again.
    pub fn settle(&self, to: Stage) {
        let mut word = self.0.load(SeqCst);
        loop {
            let next = word & !(STAGE | WAITED_FOR) | to as u32;
            match self.0.compare_exchange(word, next, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if word & WAITED_FOR != 0 {
            self.wake();
        }
    }

    /// Keeps it from leaving if it is here.
    pub fn pin(&self) -> bool {
        let mut word = self.0.load(SeqCst);
        loop {
            if stage_of(word) != Stage::Here {
                return false;
            }
            match self.0.compare_exchange(word, word + PIN, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    pub fn unpin(&self) {
        self.0.fetch_sub(PIN, SeqCst);
    }

    /// Waits until somebody settles it, or for a while, if it is owned.
    pub fn wait(&self) {
        let word = self.0.load(SeqCst);
        if !matches!(stage_of(word), Stage::Loading | Stage::Leaving) {
            return;
        }
        let marked = word | WAITED_FOR;
        if word != marked
            && self
                .0
                .compare_exchange(word, marked, SeqCst, SeqCst)
                .is_err()
        {
            return;
        }
        self.sleep(marked);
    }

    #[cfg(not(loom))]
    fn sleep(&self, word: u32) {
        wait_while(&self.0, word, LOOK_AGAIN);
    }

    #[cfg(not(loom))]
    fn wake(&self) {
        wake_all(&self.0);
    }

    // Loom has no futex: the model looks again instead of sleeping.
    #[cfg(loom)]
    fn sleep(&self, _: u32) {
        let _ = (wait_while, LOOK_AGAIN);
        loom::thread::yield_now();
    }

    #[cfg(loom)]
    fn wake(&self) {
        let _ = wake_all;
    }
}
