//! A turn on busy CPUs for those who observe and move.
//!
//! Beside programs that keep every CPU busy a thread with the usual priority waits for most of
//! the time: passes take several times as long, and the longer a pass the less it says. How
//! much processor time memtide uses is bounded by its budgets, not by waiting.

use rustix::process::{Pid, setpriority_process};

/// The nice value.
const NICE: i32 = -10;

/// Asks for it for the calling thread and those that it starts from now on, or for the thread
/// `tid`. Where priorities may not be raised (CAP_SYS_NICE) nothing changes.
pub fn ask(tid: Option<u32>) {
    let thread = match tid {
        None => None,
        Some(tid) => match i32::try_from(tid).ok().and_then(Pid::from_raw) {
            None => return,
            thread => thread,
        },
    };
    let _ = setpriority_process(thread, NICE);
}
