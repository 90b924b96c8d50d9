//! A turn on busy CPUs for those who observe and move.
//!
//! Beside programs that keep every CPU busy a thread with the usual priority waits for most of
//! the time: passes take several times as long, and the longer a pass the less it says. What
//! observing and moving cost is bounded by a budget and a rate limit, not by waiting.

use rustix::process::{Pid, getpriority_process, setpriority_process};

/// The nice value.
const NICE: i32 = -10;

/// What a thread had before it asked.
#[derive(Clone, Copy, Debug)]
pub struct Usual(Option<i32>);

impl Usual {
    /// Does `work` as before: threads that it starts are not preferred either.
    pub fn during<T>(self, work: impl FnOnce() -> T) -> T {
        if let Some(usual) = self.0 {
            let _ = setpriority_process(None, usual);
        }
        let done = work();
        ask();
        done
    }
}

/// Asks for it for the calling thread and those that it starts from now on. Where priorities may not
/// be raised (CAP_SYS_NICE) nothing changes.
pub fn ask() -> Usual {
    let usual = getpriority_process(None).ok();
    let _ = setpriority_process(None, NICE);
    Usual(usual)
}

/// The same for DAMON's thread `tid`. In a pid namespace of one's own that number may be somebody
/// else's: only what is called `kdamond` is meant.
pub fn ask_for_kdamond(tid: u32) {
    let name = std::fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
    let thread = i32::try_from(tid).ok().and_then(Pid::from_raw);
    if name.starts_with("kdamond") && thread.is_some() {
        let _ = setpriority_process(thread, NICE);
    }
}
