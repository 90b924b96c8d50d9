//! What the pager, its regions and its threads have in common.

use crate::bell::Bell;
use crate::board::Board;
use crate::builder::Settings;
use crate::error::Error;
use crate::file_mode::FileMode;
use crate::kernel::Kernel;
use crate::state::Means;
use crate::statistics::Counters;
use crate::strict::StrictMode;
use crate::sys;
use crate::unmap::lock;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// What the pager, its regions and adopted mappings have in common. The threads
/// hold only [`Core`]; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct Shared {
    pub core: Arc<Core>,
    pub threads: Mutex<Vec<sys::thread::Thread>>,
    pub regions: AtomicUsize,
}

/// What the threads work on.
#[derive(Debug)]
pub(crate) struct Core {
    pub settings: Settings,
    pub kernel: Arc<dyn Kernel>,
    pub counters: Arc<Counters>,
    pub file: FileMode,
    pub strict: Option<StrictMode>,
    pub bell: Arc<Bell>,
    pub stop: AtomicBool,
    pub priority: Mutex<Means>,
    pub memory: Means,
    /// Looks, and whether the last one found nothing left to do, for `Pager::settle`.
    pub within: Mutex<(u64, bool)>,
    pub process: u32,
    /// Where the evictor tells what is done, if it does.
    pub board: OnceLock<Board>,
}

impl Core {
    /// Whether this is the process in which the threads run.
    pub fn at_home(&self) -> bool {
        std::process::id() == self.process
    }

    pub fn usable(&self) -> Result<(), Error> {
        match (self.at_home(), self.stop.load(SeqCst)) {
            (false, _) => Err(Error::Forked),
            (true, true) => Err(Error::ShutDown),
            (true, false) => Ok(()),
        }
    }
}

impl Shared {
    pub fn spawn(&self, name: &'static CStr, work: fn(&Core)) -> Result<(), Error> {
        let core = self.core.clone();
        let body = move || {
            // What panics here must not leave readers waiting for ever.
            let panicked = catch_unwind(AssertUnwindSafe(|| work(&core))).is_err();
            // All threads end when one does.
            if let Some(board) = core.board.get() {
                board.end();
            }
            // Others would wait for a leader that does nothing any more.
            core.file.part();
            if panicked {
                core.stop.store(true, SeqCst);
                if let Some(strict) = &core.strict {
                    strict.give_up();
                }
            }
        };
        let thread = sys::thread::spawn(name, body).map_err(|reason| Error::Thread {
            name: name.to_str().unwrap_or_default(),
            reason,
        })?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    pub fn stop(&self) {
        self.core.stop.store(true, SeqCst);
        let threads = std::mem::take(&mut *lock(&self.threads));
        if !self.core.at_home() {
            // They run in the parent only; to join them would be to wait for ever.
            threads.into_iter().for_each(std::mem::forget);
            return;
        }
        for thread in threads {
            self.core.bell.ring();
            self.core.file.wanted.bell.ring();
            if let Some(strict) = &self.core.strict {
                strict.give_up();
            }
            thread.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn core_readers(core: &Core) -> usize {
    let asked = match core.settings.read_ahead.bytes {
        0 => 0,
        _ => core.settings.read_ahead.threads,
    };
    // Sources that are no files are read by these threads only.
    asked.max(usize::from(core.strict.is_some()))
}

/// The evictor thread.
pub(crate) fn evictor(core: &Core) {
    if core.settings.nice != 0
        && let Err(errno) = sys::thread_time::set_nice(core.settings.nice)
    {
        let reason = format!("setpriority: {errno}; a negative value needs CAP_SYS_NICE");
        *lock(&core.priority) = Means::instead("as the process", reason);
    }
    let mut wait = Duration::from_millis(1);
    while !core.stop.load(SeqCst) {
        let heard = core.bell.heard();
        let start = sys::thread_time::used_us();
        core.counters.rounds.add(1);
        let board = core.board.get();
        let round = match &core.strict {
            Some(strict) => {
                let round = strict.round();
                if let Some(board) = board {
                    core.file.post(board);
                }
                round
            }
            None => core.file.round(wait, board),
        };
        let end = sys::thread_time::used_us();
        core.counters.evictor_us.set(end);
        let mut within = lock(&core.within);
        *within = (within.0 + 1, round.settled);
        drop(within);
        // Looking must not cost more than half a processor while memory is within the
        // budget, and no more than a tenth while nothing comes.
        let cost = Duration::from_micros(end - start);
        wait = match (round.within, round.idle) {
            (true, true) => round.wait.max(cost * 9),
            (true, false) => round.wait.max(cost),
            (false, _) => round.wait,
        };
        core.file.wait(&core.bell, heard, wait);
    }
}

/// A thread that reads ahead, and reads what is no file.
pub(crate) fn reader(core: &Core) {
    // Whoever reads in order waits for what is not there in time.
    let _ = sys::thread_time::set_nice(core.settings.nice);
    if let Some(policy) = &core.settings.memory_policy
        && policy.apply_to_thread().is_err()
    {
        core.counters.failed_calls.add(1);
    }
    let stopped = || core.stop.load(SeqCst);
    match &core.strict {
        Some(strict) => strict.read(stopped),
        None => {
            let wanted = &core.file.wanted;
            while !stopped() {
                let heard = wanted.bell.heard();
                match wanted.pop() {
                    Some(request) => core.file.serve(request, stopped, || core.bell.ring()),
                    None => wanted.bell.wait(heard, Duration::from_secs(1)),
                }
            }
        }
    }
}
