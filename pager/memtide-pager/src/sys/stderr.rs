//! `pidfd_getfd(2)` and `dup2(2)`: the program's standard error for a thread that has a table of
//! descriptors of its own.
//!
//! The thread does not keep it: a program that closes its standard error has closed it.

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Does `work` while the number of standard error is the program's, and nothing if it has none.
/// For a thread with a table of its own, in which that number is taken and nobody else's.
pub(crate) fn with_programs(work: impl FnOnce()) {
    let Ok(process) = pidfd_open(getpid(), PidfdFlags::empty()) else {
        return;
    };
    let number = libc::STDERR_FILENO;
    let Ok(theirs) = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) else {
        return;
    };
    let Ok(nothing) = File::open("/dev/null") else {
        return;
    };
    // SAFETY: both are open; the number is this thread's own, and nothing is lost with it.
    if unsafe { libc::dup2(theirs.as_raw_fd(), number) } == number {
        work();
        // SAFETY: as above.
        unsafe { libc::dup2(nothing.as_raw_fd(), number) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::apart::apart;
    use std::os::fd::FromRawFd;

    /// In a child, whose standard error is a pipe.
    #[test]
    fn a_line_gets_out_of_a_table_of_its_own() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let status = crate::sys::child::run(move || {
            // SAFETY: both are open.
            unsafe { libc::dup2(writer.as_raw_fd(), 2) };
            let told = apart(|| {
                let _null = [(); 3].map(|()| File::open("/dev/null"));
                with_programs(|| {
                    // SAFETY: this thread's standard error, not closed here.
                    let stderr = unsafe { File::from_raw_fd(2) };
                    let _ = std::io::Write::write(&mut &stderr, b"told\n");
                    std::mem::forget(stderr);
                });
                Ok(())
            });
            i32::from(told.is_err())
        });
        assert_eq!(status, Ok(0));
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "told\n");
    }
}
