//! One strict region: a range of anonymous memory whose granules are brought in
//! by whoever touches them.

use super::gate::Gate;
use crate::bell::{Bell, wait_while, wake_all};
use crate::error::Error;
use crate::kernel::{Kernel, Range};
use crate::source::Source;
use crate::statistics::Counters;
use crate::sys::Errno;
use crate::sys::mapping::{Mapping, replace_in_child};
use crate::sys::sigbus::{Served, say};
use memtide_core::residency::{Residency, Stage};
use memtide_linux::sys::pagemap::PagemapEntry;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Sequential readers that a region tells apart.
const STREAMS: usize = 8;
/// A waiter looks by itself after so long.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct StrictRegion {
    pub name: String,
    pub mapping: Mapping,
    /// Of data; the mapping has whole pages.
    pub bytes: usize,
    pub granule_bytes: usize,
    pub page_bytes: usize,
    pub number: u32,
    pub words: Vec<Residency>,
    /// Granules that came in since the evictor looked.
    pub arrived: Bits,
    /// Granules that a reader thread owns and is to load.
    pub wanted: Bits,
    /// Granules that would be good to have.
    pub ahead: Bits,
    ahead_granules: usize,
    streams: [AtomicU32; STREAMS],
    next_stream: AtomicU32,
    source: SourceBox,
    faults: Arc<OwnedFd>,
    gate: Arc<Gate>,
    readers: Arc<Bell>,
    kernel: Arc<dyn Kernel>,
    counters: Arc<Counters>,
    explain: bool,
    /// Of the last failed load; 0 for none.
    errno: AtomicI32,
    failed_at: AtomicU64,
    pub closed: AtomicBool,
}

struct SourceBox(Box<dyn Source>);

impl std::fmt::Debug for SourceBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.name())
    }
}

/// What a region is made of.
pub(super) struct Parts {
    pub source: Box<dyn Source>,
    pub mapping: Mapping,
    pub bytes: usize,
    pub granule_bytes: usize,
    pub ahead_bytes: usize,
    pub number: u32,
    pub faults: Arc<OwnedFd>,
    pub gate: Arc<Gate>,
    pub readers: Arc<Bell>,
    pub kernel: Arc<dyn Kernel>,
    pub counters: Arc<Counters>,
    pub explain: bool,
}

impl StrictRegion {
    pub(super) fn new(parts: Parts) -> StrictRegion {
        let granules = parts.bytes.div_ceil(parts.granule_bytes);
        StrictRegion {
            name: parts.source.name(),
            mapping: parts.mapping,
            bytes: parts.bytes,
            granule_bytes: parts.granule_bytes,
            page_bytes: rustix::param::page_size(),
            number: parts.number,
            words: (0..granules).map(|_| Residency::default()).collect(),
            arrived: Bits::new(granules),
            wanted: Bits::new(granules),
            ahead: Bits::new(granules),
            ahead_granules: parts.ahead_bytes / parts.granule_bytes,
            streams: [const { AtomicU32::new(u32::MAX) }; STREAMS],
            next_stream: AtomicU32::new(0),
            source: SourceBox(parts.source),
            faults: parts.faults,
            gate: parts.gate,
            readers: parts.readers,
            kernel: parts.kernel,
            counters: parts.counters,
            explain: parts.explain,
            errno: AtomicI32::new(0),
            failed_at: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Addresses of a granule, of whole pages.
    pub fn span_of(&self, index: usize) -> Range {
        let from = index * self.granule_bytes;
        Range {
            start: self.mapping.address() + from,
            bytes: self.granule_bytes.min(self.mapping.bytes() - from),
        }
    }

    pub fn pages_of(&self, index: usize) -> u32 {
        (self.span_of(index).bytes / self.page_bytes) as u32
    }

    /// Ends the ownership of a granule, and wakes who waits for that.
    pub fn settle(&self, index: usize, to: Stage) {
        if self.words[index].settle(to) {
            wake_all(self.words[index].word());
        }
    }

    /// Waits until a granule's owner settles it, or for a while.
    pub fn wait(&self, index: usize) {
        let granule = &self.words[index];
        if let Some(value) = granule.announce() {
            wait_while(granule.word(), value, LOOK_AGAIN);
        }
    }

    /// What went wrong last.
    pub fn trouble(&self) -> Option<String> {
        let errno = self.errno.load(SeqCst);
        let at = self.failed_at.load(SeqCst);
        (errno != 0).then(|| {
            let errno = io::Error::from_raw_os_error(errno);
            format!("reading at {at}: {errno}")
        })
    }

    /// Has the granule in memory. False if it cannot be had. May run in a signal
    /// handler.
    pub fn bring(&self, index: usize) -> bool {
        let mut waited = false;
        loop {
            let stage = self.words[index].stage();
            match stage {
                Stage::Here => return true,
                Stage::Failed if waited => return false,
                Stage::Absent | Stage::Failed => {
                    if !self.words[index].step(stage, Stage::Loading) {
                        continue;
                    }
                    self.note_stream(index);
                    if self.source.0.file().is_some() {
                        return self.load(index, true);
                    }
                    self.wanted.set(index);
                    self.readers.ring();
                    waited = true;
                }
                Stage::Loading | Stage::Leaving => {
                    if self.gate.is_given_up() {
                        return false;
                    }
                    self.wait(index);
                    waited = true;
                }
            }
        }
    }

    /// Loads a granule that the caller owns. Without a credit: waits for one, or
    /// leaves the granule absent.
    pub fn load(&self, index: usize, wait: bool) -> bool {
        let credit = if wait {
            self.gate.take()
        } else {
            self.gate.take_now()
        };
        if !credit {
            let outcome = if wait { Stage::Failed } else { Stage::Absent };
            self.settle(index, outcome);
            return false;
        }
        let span = self.span_of(index);
        let offset = (index * self.granule_bytes) as u64;
        let loaded = self.fetch(index);
        match loaded {
            Ok(()) => {
                self.arrived.set(index);
                self.settle(index, Stage::Here);
                true
            }
            Err(errno) => {
                self.failed_at.store(offset, SeqCst);
                self.errno.store(errno.raw_os_error(), SeqCst);
                self.counters.read_errors.add(1);
                // Nothing half: the next try starts from an empty granule.
                let _ = self.kernel.zap_one(span);
                self.settle(index, Stage::Failed);
                self.gate.give(1);
                false
            }
        }
    }

    /// Drops what a read of the granule left in the page cache: pages that were in
    /// somebody's hands when they were to go. So there are never more such copies
    /// than granules in memory.
    pub fn drop_copy(&self, index: usize) {
        let span = self.span_of(index);
        let offset = (index * self.granule_bytes) as u64;
        if let Some(file) = self.source.0.file() {
            // Only memory is lost if it fails.
            let _ = self.kernel.drop_cached(file, offset, span.bytes as u64);
        }
    }

    /// Fills the buffer from the source; the data ends where it was said to.
    fn read_whole(&self, buffer: &mut [u8], offset: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let rest = &mut buffer[done..];
            let read = match self.source.0.file() {
                Some(file) => self.kernel.read_once(file, rest, at),
                None => self.source.0.read_at(rest, at).map_err(|error| {
                    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
                }),
            };
            match read {
                // The data was cut short.
                Ok(0) => return Err(Errno::NODATA),
                Ok(n) => done += n.min(buffer.len() - done),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Puts a granule's pages in. A page that is there already holds the same.
    fn put(&self, span: Range, data: &[u8]) -> Result<(), Errno> {
        let (mut done, mut tries) = (0, 0);
        while done < data.len() {
            let (filled, errno) =
                self.kernel
                    .fill(self.faults.as_fd(), span.start + done, &data[done..]);
            done += filled;
            match errno {
                None => {}
                Some(Errno::EXIST) => done += self.page_bytes,
                // Somebody changes the address space; a change takes a moment.
                Some(Errno::AGAIN | Errno::INTR) if tries < 1000 => {
                    tries += 1;
                    std::thread::yield_now();
                }
                Some(errno) => return Err(errno),
            }
            if filled > 0 {
                tries = 0;
            }
        }
        Ok(())
    }

    /// A reader that goes on where one ended has the next granules read ahead.
    fn note_stream(&self, index: usize) {
        if self.ahead_granules == 0 {
            return;
        }
        let index = index as u32;
        let known = self.streams.iter().find(|end| end.load(SeqCst) == index);
        let Some(stream) = known else {
            let at = self.next_stream.fetch_add(1, SeqCst) as usize % STREAMS;
            self.streams[at].store(index + 1, SeqCst);
            return;
        };
        let until = (index as usize + 1 + self.ahead_granules).min(self.words.len());
        stream.store(until as u32, SeqCst);
        self.want_ahead(index as usize + 1, until);
    }

    /// Asks for granules that nobody waits for.
    pub fn want_ahead(&self, from: usize, until: usize) {
        for index in from..until {
            self.ahead.set(index);
        }
        self.readers.ring();
    }

    /// One turn of a reader thread. True if there was anything to do.
    pub fn serve_readers(&self, stopped: &dyn Fn() -> bool) -> bool {
        let mut any = false;
        self.wanted.take_each(|index| {
            any = true;
            self.load(index, true);
        });
        self.ahead.take_each(|index| {
            if stopped() || self.closed.load(SeqCst) {
                return;
            }
            any = true;
            if self.words[index].step(Stage::Absent, Stage::Loading) && self.load(index, false) {
                self.counters
                    .read_ahead_pages
                    .add(u64::from(self.pages_of(index)));
                if self.closed.load(SeqCst) {
                    self.take_back(index);
                }
            }
            // Who waits comes first.
            self.wanted.take_each(|index| {
                self.load(index, true);
            });
        });
        any
    }

    /// The granule is here, and yet a page of it faults: it came meanwhile, or
    /// somebody unmapped it. In the latter case everything of it goes, and it is
    /// brought in anew.
    fn mend(&self, index: usize, address: usize) -> bool {
        let mut entry = [PagemapEntry::default()];
        if self.kernel.mapped(address, &mut entry).is_ok() && entry[0].present() {
            return true;
        }
        if self.words[index].step(Stage::Here, Stage::Leaving) {
            let gone = self.kernel.zap_one(self.span_of(index)).is_ok();
            self.settle(index, if gone { Stage::Absent } else { Stage::Here });
            if !gone {
                return false;
            }
            self.gate.give(1);
        } else if self.words[index].pin() {
            // Pinned before, perhaps by this very thread in the middle of a copy.
            let whole = self.source.0.file().is_some() && self.fetch(index).is_ok();
            self.words[index].unpin();
            return whole;
        }
        self.bring(index)
    }

    /// Reads a granule and puts in what of it is missing.
    fn fetch(&self, index: usize) -> Result<(), Errno> {
        let span = self.span_of(index);
        let offset = (index * self.granule_bytes) as u64;
        self.gate.with_buffer(|buffer| {
            let buffer = &mut buffer[..span.bytes];
            let data = (self.bytes - index * self.granule_bytes).min(span.bytes);
            self.read_whole(&mut buffer[..data], offset)?;
            buffer[data..].fill(0);
            self.put(span, buffer)
        })
    }

    /// Takes out what a reader thread brought in after the region was closed.
    fn take_back(&self, index: usize) {
        if self.words[index].step(Stage::Here, Stage::Leaving) {
            let _ = self.kernel.zap_one(self.span_of(index));
            self.settle(index, Stage::Absent);
            self.gate.give(1);
        }
    }

    /// Copies data, and brings it in as needed. The caller's thread takes no
    /// signals meanwhile.
    pub fn copy(&self, buffer: &mut [u8], offset: usize) -> Result<(), Error> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done;
            let index = at / self.granule_bytes;
            let n = (buffer.len() - done).min((index + 1) * self.granule_bytes - at);
            loop {
                if !self.bring(index) {
                    return Err(self.read_error(at as u64, n));
                }
                if self.words[index].pin() {
                    break;
                }
            }
            let data = &self.mapping.as_slice(self.bytes)[at..at + n];
            buffer[done..done + n].copy_from_slice(data);
            self.words[index].unpin();
            done += n;
        }
        Ok(())
    }

    /// Reads without the memory: what a forked child does.
    pub fn copy_from_source(&self, buffer: &mut [u8], offset: usize) -> Result<(), Error> {
        self.read_whole(buffer, offset as u64).map_err(|errno| {
            self.errno.store(errno.raw_os_error(), SeqCst);
            self.read_error(offset as u64, buffer.len())
        })
    }

    fn read_error(&self, offset: u64, bytes: usize) -> Error {
        let errno = self.errno.load(SeqCst);
        let cut = errno == Errno::NODATA.raw_os_error();
        let path = std::path::PathBuf::from(&self.name);
        match (cut, self.gate.is_given_up() && errno == 0) {
            (true, _) => Error::Changed {
                path,
                what: "cut short".to_owned(),
            },
            (_, true) => Error::ShutDown,
            _ => Error::Read {
                path,
                offset,
                bytes,
                reason: io::Error::from_raw_os_error(errno),
            },
        }
    }

    pub fn source_file(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.source.0.file()
    }
}

impl Served for StrictRegion {
    fn span(&self) -> (usize, usize) {
        let start = self.mapping.address();
        (start, start + self.mapping.bytes())
    }

    fn fault(&self, address: usize) -> bool {
        let index = (address - self.mapping.address()) / self.granule_bytes;
        let served = match self.words[index].stage() {
            Stage::Here => self.mend(index, address),
            _ => self.bring(index),
        };
        if !served && self.explain {
            say(&[
                b"memtide-pager: ",
                self.name.as_bytes(),
                b": a read of the region failed (the data was cut short, or cannot be read); \
                  Region::read_at returns the reason\n",
            ]);
        }
        served
    }

    fn forked(&self) {
        if let Some(file) = self.source.0.file() {
            replace_in_child(
                self.mapping.address(),
                self.mapping.bytes(),
                file.as_raw_fd(),
            );
        }
    }
}

/// One bit for each granule.
#[derive(Debug)]
pub(crate) struct Bits(Vec<AtomicU64>);

impl Bits {
    fn new(bits: usize) -> Bits {
        Bits((0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn set(&self, index: usize) {
        self.0[index / 64].fetch_or(1 << (index % 64), SeqCst);
    }

    /// Clears every bit that is set, and acts on it.
    pub fn take_each(&self, mut act: impl FnMut(usize)) {
        for (at, word) in self.0.iter().enumerate() {
            if word.load(SeqCst) == 0 {
                continue;
            }
            let mut left = word.swap(0, SeqCst);
            while left != 0 {
                act(at * 64 + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }
}
