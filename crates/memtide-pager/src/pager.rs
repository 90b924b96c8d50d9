//! The pager: one budget, one evictor thread, many regions.

use crate::builder::{Builder, Settings};
use crate::error::Error;
use crate::region::{Adopted, Region};
use crate::source::Source;
use crate::state::State;
use crate::statistics::Statistics;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// Serves read-only data in a bounded amount of memory.
///
/// Clones are the same pager. The evictor thread ends when the last clone and
/// the last region are gone, or with [`Pager::shutdown`].
#[derive(Clone, Debug)]
pub struct Pager {
    shared: Arc<Shared>,
}

/// What the pager, its regions and its threads have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    #[expect(dead_code)]
    settings: Settings,
}

impl Pager {
    /// Starts with the defaults; a budget has to be given.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn start(settings: Settings) -> Result<Pager, Error> {
        Ok(Pager {
            shared: Arc::new(Shared { settings }),
        })
    }

    /// Opens a file and serves all of it.
    ///
    /// # Errors
    ///
    /// [`Error::File`], [`Error::Empty`], [`Error::Limit`], [`Error::ShutDown`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Region, Error> {
        let _ = path.as_ref();
        todo!()
    }

    /// Serves data that need not be a file. Strict mode only.
    ///
    /// # Errors
    ///
    /// [`Error::StrictOnly`], and as [`Pager::open`].
    pub fn open_source(&self, source: impl Source + 'static) -> Result<Region, Error> {
        let _ = source;
        todo!()
    }

    /// Takes care of a mapping that somebody else made: `bytes` bytes at
    /// `address` (both of whole pages; the last page may be cut by the file's
    /// end), which map `file` from `offset` on. The mapping must be readable and
    /// not writable. File mode only; the descriptor is duplicated.
    ///
    /// # Errors
    ///
    /// [`Error::NotAdoptable`] with what speaks against it (writable, locked,
    /// another file, not a mapping at all), [`Error::File`],
    /// [`Error::ShutDown`].
    pub fn adopt(
        &self,
        address: usize,
        bytes: usize,
        file: impl AsFd,
        offset: u64,
    ) -> Result<Adopted, Error> {
        let _ = (address, bytes, file.as_fd(), offset);
        todo!()
    }

    /// Takes every part of every adopted mapping that lies in the range out of
    /// the pager's care; for who intercepts munmap, mremap, mprotect and mmap
    /// over something and does not know what was there. Once it has returned,
    /// the pager touches the range no more. True if there was such a part.
    pub fn forget(&self, address: usize, bytes: usize) -> bool {
        let _ = (address, bytes);
        todo!()
    }

    /// What it did so far.
    pub fn statistics(&self) -> Statistics {
        todo!()
    }

    /// What the kernel grants, and how the regions stand.
    pub fn state(&self) -> State {
        todo!()
    }

    /// Brings memory down to the budget now, and waits for that (5 s at most).
    /// True if it came.
    pub fn settle(&self) -> bool {
        todo!()
    }

    /// Ends the evictor and returns what it did. File regions that are still
    /// open stay readable, bounded by nobody.
    ///
    /// # Errors
    ///
    /// [`Error::RegionsOpen`] in strict mode, whose regions need the evictor.
    pub fn shutdown(self) -> Result<Statistics, Error> {
        todo!()
    }
}
