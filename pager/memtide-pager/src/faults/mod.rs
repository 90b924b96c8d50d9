//! Faults, one by one: the nth call of the kernel fails, and what is read stays
//! right.
//!
//! [`Faulty`] passes everything on to the running kernel but for the calls that a
//! plan names. Whatever fails, a read returns the right bytes or an error, nobody
//! waits for ever, and in strict mode the budget holds.

mod broken;
mod closed;
mod files;
mod modes;
mod need;
mod panics;

use crate::kernel::{FileFacts, Kernel, Linux, Range};
use crate::order::ReadOrder;
use crate::sys::Errno;
use crate::sys::vma::Vma;
use memtide_linux::sys::pagemap::PagemapEntry;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use tempfile::NamedTempFile;

pub(super) const PAGE: usize = 4096;

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Zap,
    ZapOne,
    DropCached,
    CountCached,
    InCore,
    Mapped,
    Query,
    Facts,
    Read,
    ReadAhead,
    Advise,
    Fill,
}

pub(super) const OPS: [Op; 12] = [
    Op::Zap,
    Op::ZapOne,
    Op::DropCached,
    Op::CountCached,
    Op::InCore,
    Op::Mapped,
    Op::Query,
    Op::Facts,
    Op::Read,
    Op::ReadAhead,
    Op::Advise,
    Op::Fill,
];

/// The running kernel, of which some calls fail.
#[derive(Debug)]
pub(super) struct Faulty {
    inner: Linux,
    op: Op,
    /// The first that fails, from 0.
    from: u64,
    /// How many fail from there on.
    count: u64,
    errno: Errno,
    calls: AtomicU64,
    pub failed: AtomicU64,
    /// In place of a failure, calls do nothing and say that they did.
    pub lie: bool,
    /// With the first range that is unmapped by itself, the program puts memory of its own
    /// right behind it, filled with 0xa5: then its address, 0 before.
    pub intruder: Option<Arc<Intruder>>,
    /// Bytes read from devices beside what the kernel counts.
    pub beside: AtomicU64,
}

impl Faulty {
    pub fn new(op: Op, from: u64, count: u64, errno: Errno) -> Faulty {
        Faulty {
            inner: Linux::new().unwrap(),
            op,
            from,
            count,
            errno,
            calls: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            lie: false,
            intruder: None,
            beside: AtomicU64::new(0),
        }
    }

    /// One of which nothing fails.
    pub fn sound() -> Faulty {
        Faulty::new(Op::Zap, 0, 0, Errno::IO)
    }

    fn strikes(&self, op: Op) -> bool {
        if op != self.op {
            return false;
        }
        let call = self.calls.fetch_add(1, SeqCst);
        let strikes = call >= self.from && call - self.from < self.count;
        self.failed.fetch_add(u64::from(strikes), SeqCst);
        strikes
    }

    fn or_fail<T>(
        &self,
        op: Op,
        done: T,
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match (self.strikes(op), self.lie) {
            (true, false) => Err(self.errno),
            (true, true) => Ok(done),
            (false, _) => call(),
        }
    }

    /// A page of it, then the error: a disk that fails half-way.
    fn or_half(
        &self,
        buffer: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        match (self.strikes(Op::Read), buffer.len() > PAGE) {
            (true, true) => read(&mut buffer[..PAGE]),
            (true, false) => Err(self.errno),
            (false, _) => read(buffer),
        }
    }
}

/// Puts a page of the program's own behind the first piece that is unmapped by itself, within a mapping.
#[derive(Debug, Default)]
pub struct Intruder {
    /// Where the mapping ends; 0 until it is there. What lies behind is somebody else's.
    end: AtomicUsize,
    /// Where the page comes to lie; 0 until it comes.
    place: AtomicUsize,
    /// Whether it is there.
    done: AtomicBool,
}

impl Intruder {
    fn comes_to(&self, address: usize) {
        if address < self.end.load(SeqCst) && self.place.load(SeqCst) == 0 {
            self.place.store(address, SeqCst);
            crate::sys::child::overwrite(address, PAGE, 0xa5);
            self.done.store(true, SeqCst);
        }
    }
}

impl Kernel for Faulty {
    fn zap(&self, ranges: &[Range]) -> Result<usize, Errno> {
        let all = ranges.iter().map(|range| range.bytes).sum();
        self.or_fail(Op::Zap, all, || self.inner.zap(ranges))
    }

    fn zap_one(&self, range: Range) -> Result<(), Errno> {
        if let Some(intruder) = &self.intruder {
            intruder.comes_to(range.end());
        }
        self.or_fail(Op::ZapOne, (), || self.inner.zap_one(range))
    }

    fn drop_cached(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), Errno> {
        self.or_fail(Op::DropCached, (), || {
            self.inner.drop_cached(file, offset, bytes)
        })
    }

    fn count_cached(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<u64, Errno> {
        self.or_fail(Op::CountCached, 0, || {
            self.inner.count_cached(file, offset, bytes)
        })
    }

    fn in_core(&self, address: usize, out: &mut [u8]) -> Result<(), Errno> {
        self.or_fail(Op::InCore, (), || self.inner.in_core(address, out))
    }

    fn mapped(&self, address: usize, out: &mut [PagemapEntry]) -> Result<(), Errno> {
        self.or_fail(Op::Mapped, (), || self.inner.mapped(address, out))
    }

    fn query(&self, address: usize) -> Result<Vma, Errno> {
        match self.strikes(Op::Query) {
            true => Err(self.errno),
            false => self.inner.query(address),
        }
    }

    fn vmas(&self) -> Result<Vec<Vma>, Errno> {
        self.inner.vmas()
    }

    fn may_see(&self, file: BorrowedFd<'_>) -> bool {
        self.inner.may_see(file)
    }

    fn facts(&self, file: BorrowedFd<'_>) -> Result<FileFacts, Errno> {
        if self.strikes(Op::Facts) {
            return Err(self.errno);
        }
        self.inner.facts(file)
    }

    fn read(&self, file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.or_half(buffer, |part| self.inner.read(file, part, offset))
    }

    fn read_once(
        &self,
        file: BorrowedFd<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        self.or_half(buffer, |part| self.inner.read_once(file, part, offset))
    }

    fn read_ahead(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), Errno> {
        self.or_fail(Op::ReadAhead, (), || {
            self.inner.read_ahead(file, offset, bytes)
        })
    }

    fn advise(&self, range: Range, order: ReadOrder) -> Result<(), Errno> {
        self.or_fail(Op::Advise, (), || self.inner.advise(range, order))
    }

    fn read_bytes(&self) -> Option<u64> {
        Some(self.inner.read_bytes().unwrap_or(0) + self.beside.load(SeqCst))
    }

    fn read_around(&self, device: u64) -> Option<u64> {
        self.inner.read_around(device)
    }

    fn fill(&self, faults: BorrowedFd<'_>, to: usize, from: &[u8]) -> (usize, Option<Errno>) {
        if self.strikes(Op::Fill) {
            // Half of it, as a real one may.
            let half = from.len() / PAGE / 2 * PAGE;
            let (done, _) = match half {
                0 => (0, None),
                _ => self.inner.fill(faults, to, &from[..half]),
            };
            return (done, Some(self.errno));
        }
        self.inner.fill(faults, to, from)
    }
}

/// What page `page` holds, over and over.
pub(super) fn value(page: usize) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A file whose pages hold their own numbers, clean.
pub(super) fn numbered(pages: usize) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    for page in 0..pages {
        file.write_all(&value(page).to_le_bytes().repeat(PAGE / 8))
            .unwrap();
    }
    file.as_file().sync_all().unwrap();
    file
}

/// The value that a page holds, if it holds one.
pub(super) fn number_of(page: &[u8]) -> Option<u64> {
    let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
    [2048, PAGE - 8]
        .iter()
        .all(|at| word(*at) == word(0))
        .then(|| word(0))
}

pub(super) fn builder(pages: usize, share: usize) -> crate::Builder {
    crate::Pager::builder()
        .budget((pages * PAGE / share) as u64)
        .granule(16 << 10)
}

pub(super) fn start(builder: crate::Builder, kernel: Faulty) -> crate::Pager {
    crate::Pager::start_on(builder.check().unwrap(), Arc::new(kernel)).unwrap()
}
