//! Signals as messages: blocked, then waited for with `sigtimedwait(2)`.
//!
//! A program that stands between a child and the rest of the world has to know
//! where a signal came from. What a terminal sends, the kernel sends to every
//! process in the foreground, the child included; what somebody sends with
//! kill(2) reaches only the one that was named. A handler cannot wait for a
//! child at the same time without a race; a blocked signal stays pending until
//! it is asked for, so nothing is lost between two questions.
//!
//! Blocking is inherited by children and survives exec, so a child has to be
//! given the old mask back ([`Blocked::spawn`]).

use super::Errno;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub number: i32,
    /// Whether a process sent it, rather than the kernel (a terminal, a timer,
    /// a child's end).
    pub sent: bool,
}

/// Signals that do not interrupt the calling thread, and threads that it starts
/// later, while this lives.
#[derive(Debug)]
pub struct Blocked {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Blocked {
    /// Blocks `numbers`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a number that is no signal.
    pub fn new(numbers: &[i32]) -> Result<Blocked, Errno> {
        // SAFETY: a signal set is plain integers, and `sigemptyset` sets all.
        let (mut set, mut before) = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            (set, set)
        };
        for number in numbers {
            // SAFETY: the set was initialised above.
            if unsafe { libc::sigaddset(&raw mut set, *number) } != 0 {
                return Err(Errno::INVAL);
            }
        }
        // SAFETY: both sets are ours and outlive the call.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) } {
            0 => Ok(Blocked { set, before }),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    }

    /// Waits for one of the signals, `limit` at most.
    pub fn wait(&self, limit: Duration) -> Option<Arrived> {
        let limit = libc::timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // SAFETY: `siginfo_t` is plain data that may be all zeros; set and
        // limit outlive the call, and the kernel fills the info of the signal
        // whose number it returns.
        let (number, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let number = libc::sigtimedwait(&raw const self.set, &raw mut info, &raw const limit);
            (number, info)
        };
        // An interruption by another signal counts as a short wait.
        (number > 0).then_some(Arrived {
            number,
            // SI_USER, SI_QUEUE, SI_TKILL are not positive; the kernel's are.
            sent: info.si_code <= 0,
        })
    }

    /// Starts `command` with the signals as they were before. The child's end
    /// is told, by `SIGCHLD` and to wait(2), also where this process was started
    /// with that signal ignored.
    ///
    /// # Errors
    ///
    /// What fork and exec say.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let before = self.before;
        let unblock = move || {
            // SAFETY: a set of our own; sigprocmask(2) is safe after fork.
            match unsafe {
                libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
            } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the default action of SIGCHLD runs nothing of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(unblock) };
        command.spawn()
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the mask that this thread had before. It cannot fail for a
        // mask that came from the kernel.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use std::os::unix::process::ExitStatusExt;

    /// `SIGCHLD` is pending for a whole process, and the test runner has other
    /// threads; a signal that is sent to a thread of our own is not.
    #[test]
    fn a_blocked_signal_waits_until_it_is_asked_for() {
        std::thread::spawn(|| {
            let blocked = Blocked::new(&[libc::SIGUSR1]).unwrap();
            assert_eq!(blocked.wait(Duration::ZERO), None);
            // SAFETY: the calling thread, and a signal that it blocks.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) };
            let arrived = blocked.wait(Duration::from_secs(5));
            assert_eq!(
                arrived,
                Some(Arrived {
                    number: libc::SIGUSR1,
                    sent: true
                })
            );
            assert_eq!(blocked.wait(Duration::ZERO), None);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_child_does_not_inherit_the_block() {
        let blocked = Blocked::new(&[libc::SIGTERM, libc::SIGUSR2]).unwrap();
        let mut child = blocked.spawn(Command::new("sleep").arg("60")).unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn what_is_no_signal_is_refused() {
        assert_eq!(Blocked::new(&[4711]).unwrap_err(), Errno::INVAL);
    }
}
