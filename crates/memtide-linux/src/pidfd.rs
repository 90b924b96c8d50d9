//! `pidfd_open(2)`: tells when a process has ended. Until then its number cannot be another process's.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;

/// A descriptor that becomes readable when all threads of the process have ended that has `pid` now.
///
/// # Errors
///
/// `ESRCH` if there is none, `ENOSYS` before Linux 5.3, and what the limit of open files says.
pub fn open(pid: u32) -> Result<OwnedFd, Errno> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pidfd_open(raw.ok_or(Errno::SRCH)?, PidfdFlags::empty())
}

/// Whether that process has ended, or may have.
pub fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // A signal comes before the answer.
    !matches!(poll(&mut fds, Some(&now)), Ok(0) | Err(Errno::INTR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_has_ended_when_it_is_no_more() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = open(child.id()).unwrap();
        assert!(!has_ended(&process));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&process));
        assert_eq!(open(child.id()).unwrap_err(), Errno::SRCH);
        assert_eq!(open(0).unwrap_err(), Errno::SRCH);
        assert_eq!(open(u32::MAX).unwrap_err(), Errno::SRCH);
    }
}
