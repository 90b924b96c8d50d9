//! Data that a pager serves.

use crate::error::Error;
use crate::pager::Shared;
use std::ops::Deref;
use std::sync::Arc;

/// Data mapped by the pager: a slice of bytes, of which a part is in memory.
///
/// It keeps the pager's evictor running. Dropping it unmaps the data.
#[derive(Debug)]
pub struct Region {
    pub(crate) shared: Arc<Shared>,
}

impl Region {
    /// The bytes. What is not in memory is read when it is touched.
    ///
    /// The file must not be written to meanwhile: a slice promises that its
    /// bytes stay. A read that fails ends in SIGBUS, as with every mapping;
    /// [`Region::read_at`] returns an error instead.
    pub fn as_slice(&self) -> &[u8] {
        todo!()
    }

    /// Copies bytes from `offset` into `buffer` and never faults. Fewer bytes
    /// than asked for at the end of the data.
    ///
    /// # Errors
    ///
    /// [`Error::Read`], and [`Error::Changed`] for a file that was cut short.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        let _ = (buffer, offset);
        todo!()
    }

    /// Has bytes read in ahead of use; returns at once. No more is read than
    /// half the budget.
    pub fn read_ahead(&self, offset: u64, bytes: u64) {
        let _ = (offset, bytes);
        todo!()
    }

    /// Whether the data is still what was opened.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`] for a file that was cut short or written to.
    pub fn check(&self) -> Result<(), Error> {
        todo!()
    }

    /// Address of the first byte; whole pages from there.
    pub fn address(&self) -> usize {
        todo!()
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Never: empty data is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// A mapping that somebody else made and keeps; the pager evicts from it.
///
/// Dropping it ends the pager's care and leaves the mapping as it is. That must
/// happen before the mapping is unmapped, moved, replaced or made writable: once
/// `drop` or [`Adopted::exclude`] has returned, the pager touches the range no
/// more.
#[derive(Debug)]
pub struct Adopted {
    pub(crate) shared: Arc<Shared>,
}

impl Adopted {
    /// Takes part of the mapping out of the pager's care, for good. Whole
    /// granules that the range touches; the rest goes on.
    pub fn exclude(&self, address: usize, bytes: usize) {
        let _ = (address, bytes);
        todo!()
    }

    /// Address of the first byte.
    pub fn address(&self) -> usize {
        todo!()
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Never: an empty mapping is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
