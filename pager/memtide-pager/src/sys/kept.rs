//! A descriptor that is done without once the program closed it.
//!
//! Programs close what they did not open. Without this a pager in such a program
//! would be blind from then on, or ask a file of the program's that got the number.
//! To open it again would take a number that the program may be about to get: a program
//! that closes all it has opens its own files next.

use super::Errno;
use super::apart::apart;
use super::known_file::KnownFile;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

/// What one opening gives, at a high number, for as long as nobody closes it; from then on,
/// for each use where the program does not see it.
#[derive(Debug)]
pub(crate) struct Kept {
    open: fn() -> Result<KnownFile, Errno>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Unopened,
    Open(KnownFile),
    Closed,
}

impl Kept {
    /// Opened when it is first used.
    pub fn new(open: fn() -> Result<KnownFile, Errno>) -> Kept {
        Kept {
            open,
            state: Mutex::new(State::Unopened),
        }
    }

    /// Has `call`, which must not panic, use it; a second time, with a new one, if it was
    /// closed meanwhile.
    pub fn with<T: Send>(
        &self,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno> + Send,
    ) -> Result<T, Errno> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Unopened = *state {
            *state = State::Open((self.open)()?.high());
        }
        if let State::Open(file) = &*state {
            if file.is_ours() {
                match call(file.as_fd()) {
                    Err(Errno::BADF) => {}
                    answer => return answer,
                }
            }
            *state = State::Closed;
        }
        match apart(|| call((self.open)()?.as_fd())) {
            // Where there is no such thread, the number is taken for as long as it is used.
            Err(Errno::NOSYS | Errno::AGAIN) => call((self.open)()?.as_fd()),
            answer => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    /// In a child, where no other test gets the numbers that this one closes.
    #[test]
    fn what_was_closed_or_replaced_is_done_without() {
        let mut other = tempfile::tempfile().unwrap();
        other.write_all(b"xy").unwrap();
        let passed = crate::sys::child::run(|| {
            let kept = Kept::new(|| KnownFile::open(Path::new("/proc/thread-self/maps")));
            let number = || kept.with(|file| Ok(file.as_raw_fd())).unwrap();
            let readable = || kept.with(|file| rustix::io::pread(file, &mut [0u8; 8], 0));
            let before = number();
            assert_eq!((number(), readable()), (before, Ok(8)));
            // SAFETY: it is open, and closed as a program does that closes all.
            unsafe { libc::close(before) };
            assert_eq!(readable(), Ok(8));
            // Another file has the number now.
            // SAFETY: both are open.
            assert!(unsafe { libc::dup2(other.as_raw_fd(), number()) } >= 0);
            assert_eq!(readable(), Ok(8));
            0
        });
        assert_eq!(passed, Ok(0));
    }

    #[test]
    fn what_cannot_be_opened_is_an_error_each_time() {
        let kept = Kept::new(|| Err(Errno::MFILE));
        assert_eq!(kept.with(|_| Ok(())), Err(Errno::MFILE));
        assert_eq!(kept.with(|_| Ok(())), Err(Errno::MFILE));
    }
}
