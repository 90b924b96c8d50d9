//! The `unsafe` on the host's side: how a guest's process begins.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel kill the child when the thread that spawned it ends, so that an interrupted run
/// leaves no machine behind.
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec only prctl(2) runs, which is async-signal-safe and touches no
    // memory of ours.
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
}

/// Has the child run before others where that is allowed: an emulated processor that waits for a real
/// one counts the wait as its program's time, and figures are processor time.
///
/// Where the kernel groups processes by session (`sched_autogroup_enabled`), niceness tells apart those
/// of one session only, and a session's share is set by its autogroup. So the child gets a session of
/// its own, unless it needs this one's terminal.
pub fn run_before_others(command: &mut Command, own_session: bool) {
    const NICE: libc::c_int = -10;
    const GROUP: &[u8] = b"-10";
    // SAFETY: as above; open(2), write(2) and close(2) are async-signal-safe and get a string and bytes
    // that live for ever, setsid(2) and setpriority(2) get numbers only.
    unsafe {
        command.pre_exec(move || {
            // Refused to who has no CAP_SYS_NICE: then as all others.
            let _ = libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
            if own_session && libc::setsid() >= 0 {
                let file = libc::open(c"/proc/self/autogroup".as_ptr(), libc::O_WRONLY);
                if file >= 0 {
                    let _ = libc::write(file, GROUP.as_ptr().cast(), GROUP.len());
                    let _ = libc::close(file);
                }
            }
            Ok(())
        });
    }
}
