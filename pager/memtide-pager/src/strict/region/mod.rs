//! One strict region: a range of anonymous memory whose pages are brought in by
//! whoever touches them.
//!
//! A granule is owned as a whole, and of a file it comes in page by page, as it is
//! needed. Only its owner changes which of its pages are here. Other sources are
//! read a granule at a time: what is compressed or far away has no cheap pages.
//!
//! Who brings in more of a granule never waits for a credit while he owns it: what
//! is here of it could not be evicted meanwhile, and all might wait for each other.

use super::gate::Gate;
use super::need::{Needs, Streams};
use super::pages::Bits;
use crate::bell::{Bell, wait_while, wake_all};
use crate::error::Error;
use crate::kernel::{Kernel, Range};
use crate::source::Source;
use crate::statistics::Counters;
use crate::sys::Errno;
use crate::sys::mapping::{Mapping, replace_in_child, reserve_in_child};
use crate::sys::sigbus::{Served, say};
use crate::sys::userfault::Held;
use memtide_core::residency::{Residency, Stage};
use memtide_linux::sys::pagemap::PagemapEntry;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

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
    /// Pages in memory.
    here: Bits,
    /// Pages that ever were.
    known: Bits,
    /// Granules of which something came in since the evictor looked.
    pub arrived: Bits,
    /// Granules that a reader thread owns and is to load.
    pub wanted: Bits,
    /// Granules that would be good to have.
    pub ahead: Bits,
    streams: Streams,
    /// Granules come as a whole or not at all.
    whole: bool,
    source: SourceBox,
    faults: Arc<Held>,
    gate: Arc<Gate>,
    readers: Arc<Bell>,
    kernel: Arc<dyn Kernel>,
    counters: Arc<Counters>,
    explain: bool,
    /// Of the last failed load; 0 for none.
    errno: AtomicI32,
    failed_at: AtomicU64,
    pub closed: AtomicBool,
    /// This is a child that `fork` made: the memory and who brings it in are the parent's.
    inherited: AtomicBool,
}

/// Numbers of pages of a region.
type Pages = std::ops::Range<usize>;

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
    pub faults: Arc<Held>,
    pub gate: Arc<Gate>,
    pub readers: Arc<Bell>,
    pub kernel: Arc<dyn Kernel>,
    pub counters: Arc<Counters>,
    pub explain: bool,
}

impl StrictRegion {
    pub(super) fn new(parts: Parts) -> StrictRegion {
        let granules = parts.bytes.div_ceil(parts.granule_bytes);
        let page_bytes = rustix::param::page_size();
        let pages = parts.mapping.bytes() / page_bytes;
        let granule = (parts.granule_bytes / page_bytes) as u32;
        let whole = parts.source.file().is_none();
        let ahead = parts.ahead_bytes / parts.granule_bytes * granule as usize;
        let needs = Needs {
            least: if whole { granule } else { 1 },
            granule,
            ahead: ahead as u64,
        };
        StrictRegion {
            name: parts.source.name(),
            mapping: parts.mapping,
            bytes: parts.bytes,
            granule_bytes: parts.granule_bytes,
            page_bytes,
            number: parts.number,
            words: (0..granules).map(|_| Residency::default()).collect(),
            here: Bits::new(pages),
            known: Bits::new(pages),
            arrived: Bits::new(granules),
            wanted: Bits::new(granules),
            ahead: Bits::new(granules),
            streams: Streams::new(needs),
            whole,
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
            inherited: AtomicBool::new(false),
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

    /// A granule's pages, by their number in the region.
    pub fn pages_of(&self, index: usize) -> Pages {
        let first = index * (self.granule_bytes / self.page_bytes);
        first..first + self.span_of(index).bytes / self.page_bytes
    }

    /// Addresses of pages.
    fn span(&self, pages: &Pages) -> Range {
        Range {
            start: self.mapping.address() + pages.start * self.page_bytes,
            bytes: pages.len() * self.page_bytes,
        }
    }

    fn granule_of(&self, page: usize) -> usize {
        page / (self.granule_bytes / self.page_bytes)
    }

    /// How many pages of a granule are here.
    pub fn held(&self, index: usize) -> u32 {
        self.here.count(self.pages_of(index))
    }

    /// How many pages of the region are here.
    pub fn held_in_all(&self) -> u32 {
        self.here.count(0..self.mapping.bytes() / self.page_bytes)
    }

    /// What of a granule is here, in runs.
    pub fn held_spans(&self, index: usize) -> Vec<Range> {
        let mut rest = self.pages_of(index);
        let mut spans = Vec::new();
        loop {
            let run = self.here.run(rest.clone(), true);
            if run.is_empty() {
                return spans;
            }
            rest.start = run.end;
            spans.push(self.span(&run));
        }
    }

    /// Says that nothing of a granule is in memory any more. Returns how many pages
    /// there were. Its owner's.
    pub fn gone(&self, index: usize) -> u32 {
        self.here.clear_all(self.pages_of(index))
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

    /// Has a page in memory, and `want` from there on if they are to be had at once.
    /// False if it cannot be had. May run in a signal handler.
    pub fn bring(&self, page: usize, want: usize) -> bool {
        let mut credits = 0;
        let brought = self.bring_with(page, want, &mut credits);
        if credits > 0 {
            self.gate.give(credits);
        }
        brought
    }

    /// `credits` are at hand; those that are left over are the caller's.
    fn bring_with(&self, page: usize, want: usize, credits: &mut u32) -> bool {
        let index = self.granule_of(page);
        let mut waited = false;
        let mut chosen = None;
        loop {
            let stage = self.words[index].stage();
            match stage {
                Stage::Here if self.here.has(page) => return true,
                // Of a file only other pages may have failed.
                Stage::Failed if waited && self.whole => return false,
                Stage::Absent | Stage::Failed | Stage::Here => {
                    if !self.words[index].step(stage, Stage::Loading) {
                        continue;
                    }
                    let pages = *chosen.get_or_insert_with(|| self.note_miss(page, want));
                    if self.whole {
                        self.wanted.set(index);
                        self.readers.ring();
                        waited = true;
                        continue;
                    }
                    match self.load(index, page, want, pages, credits) {
                        Ok(()) => return true,
                        Err(Some(_)) => return false,
                        Err(None) => {}
                    }
                    *credits = self.gate.take(1, 1);
                    if *credits == 0 {
                        return false;
                    }
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

    /// Loads up to `most` pages from `page` on of a granule that the caller owns, at
    /// least the first `want` if they can be read, and ends the ownership. Waits for
    /// nothing but the data: `Err(None)` if there is no credit.
    fn load(
        &self,
        index: usize,
        page: usize,
        want: usize,
        most: usize,
        credits: &mut u32,
    ) -> Result<(), Option<Errno>> {
        let end = self.pages_of(index).end.min(page + most);
        let outcome = match self.here.has(page) {
            true => Ok(()),
            false => {
                let run = self.here.run(page..end, false);
                *credits += match (run.len() as u32).saturating_sub(*credits) {
                    0 => 0,
                    more => self.gate.take_now(1, more),
                };
                let tried = run.len().min(*credits as usize);
                match self.take_in(run.clone(), credits) {
                    // What was asked for may be readable by itself.
                    Err(Some(_)) if tried > want => {
                        self.take_in(run.start..run.start + want, credits)
                    }
                    outcome => outcome,
                }
            }
        };
        self.settle_as_it_is(index, matches!(outcome, Err(Some(_))));
        outcome
    }

    /// Loads what is missing of a granule that the caller owns, and ends the ownership.
    /// With `wait` it waits for credits, otherwise does what there are credits for.
    /// Returns how many pages came.
    fn load_rest(&self, index: usize, wait: bool) -> u32 {
        let mut rest = self.pages_of(index);
        let (mut came, mut failed) = (0, false);
        while !failed {
            let run = self.here.run(rest.clone(), false);
            let pages = run.len() as u32;
            if pages == 0 {
                break;
            }
            let least = if self.whole { pages } else { 1 };
            let mut credits = match wait {
                true => self.gate.take(least, pages),
                false => self.gate.take_now(least, pages),
            };
            let (taken, short) = (credits, credits < pages);
            rest.start = run.end;
            match self.take_in(run, &mut credits) {
                Ok(()) => came += taken,
                Err(reason) => failed = wait || reason.is_some(),
            }
            if credits > 0 {
                self.gate.give(credits);
            }
            if short {
                break;
            }
        }
        self.settle_as_it_is(index, failed);
        came
    }

    /// Ends the ownership of a granule whose loading ended.
    fn settle_as_it_is(&self, index: usize, failed: bool) {
        let here = self.held(index) > 0;
        self.settle(
            index,
            match (here, failed) {
                (true, _) => Stage::Here,
                (false, true) => Stage::Failed,
                (false, false) => Stage::Absent,
            },
        );
        if here {
            // Afterwards: the evictor forgets what arrived and is not here.
            self.arrived.set(index);
        }
    }

    /// Brings in as much of a run of missing pages as there are credits for, and uses
    /// those up. The caller owns the granule.
    fn take_in(&self, run: Pages, credits: &mut u32) -> Result<(), Option<Errno>> {
        let run = run.start..run.end.min(run.start + *credits as usize);
        if run.is_empty() {
            return Err(None);
        }
        match self.fetch(&run) {
            Ok(()) => {
                *credits -= run.len() as u32;
                let again = self.known.set_all(run.clone());
                self.counters.filled_pages.add(run.len() as u64);
                self.counters.refilled_pages.add(u64::from(again));
                self.here.set_all(run);
                Ok(())
            }
            Err(errno) => {
                self.failed_at
                    .store((run.start * self.page_bytes) as u64, SeqCst);
                self.errno.store(errno.raw_os_error(), SeqCst);
                self.counters.read_errors.add(1);
                // Nothing half: the next try starts from missing pages.
                let _ = self.kernel.zap_one(self.span(&run));
                Err(Some(errno))
            }
        }
    }

    /// Drops what reads of the granule left in the page cache: pages that were in
    /// somebody's hands when they were to go. Only what is in memory was read, so such
    /// copies are never more pages than the granules in memory have.
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

    /// How many pages the miss of one is to bring in. A stream has the next granules
    /// read ahead.
    fn note_miss(&self, page: usize, want: usize) -> usize {
        let from = match self.whole {
            true => self.pages_of(self.granule_of(page)).start,
            false => page,
        };
        let choice = self.streams.missed(from, want);
        if !choice.ahead.is_empty() {
            let last = self.words.len();
            let (from, until) = (choice.ahead.start, choice.ahead.end);
            self.want_ahead(
                self.granule_of(from).min(last),
                self.granule_of(until).min(last),
            );
        }
        choice.pages
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
            self.load_rest(index, true);
        });
        self.ahead.take_each(|index| {
            if stopped() || self.closed.load(SeqCst) {
                return;
            }
            any = true;
            let word = &self.words[index];
            let missing = || (self.held(index) as usize) < self.pages_of(index).len();
            if word.step(Stage::Absent, Stage::Loading)
                || missing() && word.step(Stage::Here, Stage::Loading)
            {
                let came = self.load_rest(index, false);
                self.counters.read_ahead_pages.add(u64::from(came));
                if self.closed.load(SeqCst) {
                    self.take_back(index);
                }
            }
            // Who waits comes first.
            self.wanted.take_each(|index| {
                self.load_rest(index, true);
            });
        });
        any
    }

    /// A page is here, and yet it faults: it came meanwhile, or somebody unmapped it.
    /// In the latter case everything of its granule goes, and it is brought in anew.
    fn mend(&self, page: usize) -> bool {
        let index = self.granule_of(page);
        let alone = page..page + 1;
        let mapped = || {
            let mut entry = [PagemapEntry::default()];
            let asked = self.kernel.mapped(self.span(&alone).start, &mut entry);
            // One that is just being moved is there, too.
            asked.is_ok() && (entry[0].present() || entry[0].swapped())
        };
        if mapped() {
            return true;
        }
        if self.words[index].step(Stage::Here, Stage::Leaving) {
            let gone = self.kernel.zap_one(self.span_of(index)).is_ok();
            let pages = if gone { self.gone(index) } else { 0 };
            self.settle(index, if gone { Stage::Absent } else { Stage::Here });
            if !gone {
                return false;
            }
            self.gate.give(pages);
        } else if self.words[index].pin() {
            // Pinned before, perhaps by this very thread in the middle of a copy.
            let counted = self.here.has(page);
            let mended = counted
                && match self.whole {
                    // It may have come meanwhile. Foreign code may not run here.
                    true => mapped(),
                    false => self.fetch(&alone).is_ok(),
                };
            self.words[index].unpin();
            if counted {
                return mended;
            }
            // It left meanwhile, and another page of the granule came.
        }
        self.bring(page, 1)
    }

    /// Reads missing pages of one granule and puts them in.
    fn fetch(&self, pages: &Pages) -> Result<(), Errno> {
        let span = self.span(pages);
        let offset = pages.start * self.page_bytes;
        self.gate.with_buffer(|buffer| {
            let buffer = &mut buffer[..span.bytes];
            let data = (self.bytes - offset).min(span.bytes);
            self.read_whole(&mut buffer[..data], offset as u64)?;
            buffer[data..].fill(0);
            self.put(span, buffer)
        })
    }

    /// Takes out what a reader thread brought in after the region was closed.
    fn take_back(&self, index: usize) {
        if self.words[index].step(Stage::Here, Stage::Leaving) {
            let _ = self.kernel.zap_one(self.span_of(index));
            let pages = self.gone(index);
            self.settle(index, Stage::Absent);
            self.gate.give(pages);
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
            let last = (at + n - 1) / self.page_bytes;
            let mut first = at / self.page_bytes;
            loop {
                if self.words[index].pin() {
                    first = self.here.run(first..last + 1, false).start;
                    if first > last {
                        break;
                    }
                    self.words[index].unpin();
                }
                if !self.bring(first, last + 1 - first) {
                    return Err(self.read_error(at as u64, n));
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
        let page = (address - self.mapping.address()) / self.page_bytes;
        let word = &self.words[self.granule_of(page)];
        let served = match word.stage() {
            // What lies here now fails for a reason of its own, and nobody is left to wait for.
            _ if self.inherited.load(SeqCst) => false,
            Stage::Here if self.here.has(page) => self.mend(page),
            _ => self.bring(page, 1),
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
        self.inherited.store(true, SeqCst);
        let (start, bytes) = (self.mapping.address(), self.mapping.bytes());
        // What the child maps later must not come to lie in the region: closing it would unmap that.
        let file = self.source.0.file();
        let replaced = file.is_some_and(|file| replace_in_child(start, bytes, file.as_raw_fd()));
        if !replaced {
            reserve_in_child(start, bytes);
        }
    }
}

#[cfg(test)]
mod race_tests;
