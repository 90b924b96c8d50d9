//! Where a strict region's data comes from.

use std::io;
use std::os::fd::BorrowedFd;

/// Read-only data that need not be a file: compressed, remote, computed.
///
/// The same bytes must come back whenever they are asked for: what is evicted
/// is read again.
///
/// `read_at` runs on the pager's own threads while a thread of the program waits
/// in the middle of a load. It must not take a lock that the program holds while
/// it reads the region, and must not itself read a region of the same pager.
pub trait Source: Send + Sync {
    /// How many bytes there are. Must not change.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` from `offset`. Fewer bytes than asked for, while there
    /// should be more, is asked again for the rest; 0 bytes there is an error.
    ///
    /// # Errors
    ///
    /// Whatever prevents it. The thread that wanted the data gets it from
    /// [`Region::read_at`](crate::Region::read_at), or a SIGBUS if it read the
    /// memory directly.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// What messages call it.
    fn name(&self) -> String {
        "source".to_owned()
    }

    /// The file, if it is one that `pread(2)` reads the same bytes from at the
    /// same offsets. The faulting thread then reads by itself, which is twice as
    /// fast, and a forked child reads the file.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
