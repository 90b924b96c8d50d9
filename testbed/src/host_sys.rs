//! The one piece of `unsafe` on the host's side: a child that cannot outlive us.

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
