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
pub fn run_before_others(command: &mut Command) {
    const NICE: libc::c_int = -10;
    // SAFETY: as above; setpriority(2) takes numbers only.
    unsafe {
        command.pre_exec(|| {
            // Refused to who has no CAP_SYS_NICE: then as all others.
            let _ = libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
            Ok(())
        });
    }
}
