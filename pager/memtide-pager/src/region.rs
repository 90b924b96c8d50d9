//! Data that a pager serves.

use crate::error::Error;
use crate::file_mode::Gone;
use crate::kernel::Range;
use crate::order::ReadOrder;
use crate::shared::Shared;
use crate::strict;
use crate::sys::known_file::KnownFile;
use crate::sys::mapping::Mapping;
use crate::sys::sigbus::Registration;
use memtide_linux::sys::signals::Blocked;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Data mapped by the pager: a slice of bytes, of which a part is in memory.
///
/// It keeps the pager's evictor running. Dropping it unmaps the data.
#[derive(Debug)]
pub struct Region {
    shared: Arc<Shared>,
    held: Held,
}

/// What a region is, by mode.
#[derive(Debug)]
pub(crate) enum Held {
    File {
        /// Ends before the mapping does.
        explained: Option<Registration>,
        number: u32,
        path: PathBuf,
        file: KnownFile,
        mapping: Mapping,
        bytes: usize,
    },
    Strict(strict::Open),
}

impl Region {
    pub(crate) fn new(shared: &Arc<Shared>, held: Held) -> Region {
        shared.regions.fetch_add(1, SeqCst);
        Region {
            shared: shared.clone(),
            held,
        }
    }

    /// The bytes. What is not in memory is read when it is touched.
    ///
    /// The file must not be written to meanwhile: a slice promises that its
    /// bytes stay. A read that fails ends in SIGBUS, as with every mapping;
    /// [`Region::read_at`] returns an error instead.
    pub fn as_slice(&self) -> &[u8] {
        match &self.held {
            Held::File { mapping, bytes, .. } => mapping.as_slice(*bytes),
            Held::Strict(open) => open.region.mapping.as_slice(open.region.bytes),
        }
    }

    /// Copies bytes from `offset` into `buffer` and never faults. Fewer bytes
    /// than asked for at the end of the data.
    ///
    /// # Errors
    ///
    /// [`Error::Read`], and [`Error::Changed`] for a file that was cut short.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        let left = (self.len() as u64).saturating_sub(offset);
        let bytes = (buffer.len() as u64).min(left) as usize;
        let buffer = &mut buffer[..bytes];
        match &self.held {
            Held::File { path, file, .. } => self.pread(path, file, buffer, offset)?,
            Held::Strict(open) if !self.shared.core.at_home() => {
                open.region.copy_from_source(buffer, offset as usize)?;
            }
            Held::Strict(open) => {
                // A handler that read the region in the middle of a load would
                // wait for its own thread. Faults of our own still come.
                let faults = [libc::SIGBUS, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE];
                let signals: Vec<i32> = (1..=64)
                    .filter(|n| !faults.contains(n) && !matches!(n, 32 | 33))
                    .collect();
                let _blocked = Blocked::new(&signals);
                open.region.copy(buffer, offset as usize)?;
            }
        }
        Ok(bytes)
    }

    fn pread(
        &self,
        path: &std::path::Path,
        file: &KnownFile,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < buffer.len() {
            let (rest, at) = (&mut buffer[done..], offset + done as u64);
            // A program may close what it did not open, and the number be another file's by now.
            let read = match file.is_ours() {
                true => self.shared.core.kernel.read(file.as_fd(), rest, at),
                false => Err(crate::sys::Errno::BADF),
            };
            match read {
                Ok(0) => {
                    return Err(Error::Changed {
                        path: path.to_owned(),
                        what: "cut short".to_owned(),
                    });
                }
                Ok(n) => done += n,
                Err(crate::sys::Errno::INTR) => {}
                Err(errno) => {
                    self.shared.core.counters.read_errors.add(1);
                    return Err(Error::Read {
                        path: path.to_owned(),
                        offset: at,
                        bytes: buffer.len() - done,
                        reason: errno.into(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Says in which order the data will be read, to the kernel, too. What the kernel is told by `madvise(2)`
    /// alone the pager does not know, and undoes once memory was above the budget. In strict mode nothing is
    /// read around a fault, and this changes nothing.
    pub fn advise(&self, order: ReadOrder) {
        let core = &self.shared.core;
        if let (Ok(()), Held::File { number, .. }) = (core.usable(), &self.held) {
            core.file.expect(*number, order);
        }
    }

    /// Has bytes read in ahead of use; returns at once. No more is read than
    /// half the budget. Nothing happens where the pager has no reader thread.
    pub fn read_ahead(&self, offset: u64, bytes: u64) {
        let core = &self.shared.core;
        if core.usable().is_err() || offset >= self.len() as u64 {
            return;
        }
        match &self.held {
            Held::File { number, .. } => core.file.read_ahead(*number, offset, bytes),
            Held::Strict(open) => {
                let bytes = bytes.min(core.settings.budget_bytes / 2);
                let end = offset.saturating_add(bytes).min(self.len() as u64) as usize;
                let granule = core.settings.granule_bytes;
                open.region
                    .want_ahead(offset as usize / granule, end.div_ceil(granule));
            }
        }
    }

    /// Whether the data is still what was opened.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`] for a file that was cut short or written to, and [`Error::Forked`] in a
    /// forked child of file mode.
    pub fn check(&self) -> Result<(), Error> {
        match &self.held {
            // The evictor of the parent may have had the books' lock for itself.
            Held::File { .. } if !self.shared.core.at_home() => Err(Error::Forked),
            Held::File { number, .. } => self.shared.core.file.check(*number),
            Held::Strict(open) => open.check(),
        }
    }

    /// Address of the first byte; whole pages from there.
    pub fn address(&self) -> usize {
        match &self.held {
            Held::File { mapping, .. } => mapping.address(),
            Held::Strict(open) => open.region.mapping.address(),
        }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        match &self.held {
            Held::File { bytes, .. } => *bytes,
            Held::Strict(open) => open.region.bytes,
        }
    }

    /// Never: empty data is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let core = &self.shared.core;
        self.shared.regions.fetch_sub(1, SeqCst);
        // In a forked child nobody else is at work, and locks may be held for ever.
        if !core.at_home() {
            return;
        }
        match &mut self.held {
            Held::File {
                number, explained, ..
            } => {
                *explained = None;
                core.file.remove(*number, Gone::Unmapped);
            }
            Held::Strict(open) => {
                open.registration = None;
                if let Some(strict) = &core.strict {
                    strict.close(&open.region);
                }
            }
        }
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
    shared: Arc<Shared>,
    number: u32,
    range: Range,
}

impl Adopted {
    pub(crate) fn new(shared: &Arc<Shared>, number: u32, range: Range) -> Adopted {
        shared.regions.fetch_add(1, SeqCst);
        Adopted {
            shared: shared.clone(),
            number,
            range,
        }
    }

    /// Takes part of the mapping out of the pager's care, for good: whole pages that
    /// the range touches. The rest goes on.
    pub fn exclude(&self, address: usize, bytes: usize) {
        let core = &self.shared.core;
        if core.at_home() {
            let range = Range {
                start: address,
                bytes,
            };
            core.file.cut(range, Some(self.number), Gone::HandedOver);
        }
    }

    /// Has bytes of the mapping read in ahead of use; returns at once.
    pub fn read_ahead(&self, offset: u64, bytes: u64) {
        let core = &self.shared.core;
        if core.usable().is_ok() && offset < self.range.bytes as u64 {
            core.file.read_ahead(self.number, offset, bytes);
        }
    }

    /// Address of the first byte.
    pub fn address(&self) -> usize {
        self.range.start
    }

    /// How many bytes, in whole pages.
    pub fn len(&self) -> usize {
        self.range.bytes
    }

    /// Never: an empty mapping is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        self.shared.regions.fetch_sub(1, SeqCst);
        if self.shared.core.at_home() {
            self.shared.core.file.remove(self.number, Gone::HandedOver);
        }
    }
}
