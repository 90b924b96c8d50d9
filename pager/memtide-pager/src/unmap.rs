//! Unmapping a batch of ranges, in the best way that the kernel grants.
//!
//! The batched call stops at the first range with a hole or a lock and says how
//! far it came. Where it stops, a mapping may be about to be replaced. So that range is
//! tried alone if it still is ours, and what lies behind it is asked about again, a few
//! ranges before each call. A kernel without the batched call gets one call for each
//! 2 MiB that hold something to unmap: neighbours that are unmapped along with it
//! come back by a minor fault. Whose pages those neighbours are is asked right before
//! the call, for a program may have put other memory there by itself.

use crate::kernel::{Kernel, Range};
use crate::state::Means;
use crate::statistics::Counters;
use crate::sys::Errno;
use memtide_core::lazy_flush::Pending;
use memtide_linux::sys::own_memory::OwnPages;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The unit of the fallback: what one page-table page maps.
pub(crate) const FALLBACK_BYTES: usize = 2 << 20;
/// Ranges that are asked about before a call, once one has stopped short.
const FEW: usize = 16;
/// Most ranges in a call.
const MOST: usize = crate::builder::MOST_RANGES;

/// Ranges that wait for their unmapping: what is pending in a lazy flush.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(pub Vec<Range>);

impl Pending for Ranges {
    fn fold(&mut self, mut other: Ranges) {
        self.0.append(&mut other.0);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Unmaps for both modes.
#[derive(Debug)]
pub(crate) struct Unmapper {
    kernel: Arc<dyn Kernel>,
    batched: AtomicBool,
    means: Mutex<Means>,
}

impl Unmapper {
    /// Tries the batched call on two pages of its own.
    pub fn new(kernel: Arc<dyn Kernel>) -> Unmapper {
        let means = match probe(&*kernel) {
            Ok(()) if flushes_once() => Means::best("process_madvise, one flush a batch"),
            Ok(()) => fallback("the kernel flushes for each range of a batch before Linux 6.16"),
            Err(reason) => fallback(reason),
        };
        Unmapper {
            batched: AtomicBool::new(means.best),
            means: Mutex::new(means),
            kernel,
        }
    }

    pub fn means(&self) -> Means {
        lock(&self.means).clone()
    }

    /// Unmaps all ranges, sorted in place. `widen` is what may be unmapped along with
    /// a range, that range included, by one call of the fallback; `None` if the range
    /// itself is not ours any more. Returns those that were not unmapped.
    pub fn unmap(
        &self,
        ranges: &mut [Range],
        counters: &Counters,
        widen: impl Fn(Range) -> Option<Range>,
    ) -> Vec<Range> {
        ranges.sort_unstable_by_key(|range| range.start);
        let mut refused = Vec::new();
        if !self.batched.load(Relaxed) {
            self.by_blocks(ranges, counters, widen, &mut refused);
            return refused;
        }
        for batch in ranges.chunks(MOST) {
            self.batch(batch, counters, &widen, &mut refused);
        }
        refused
    }

    fn batch(
        &self,
        batch: &[Range],
        counters: &Counters,
        widen: &impl Fn(Range) -> Option<Range>,
        refused: &mut Vec<Range>,
    ) {
        let all: usize = batch.iter().map(|range| range.bytes).sum();
        counters.flush_calls.add(1);
        let mut done = match self.kernel.zap(batch) {
            Ok(done) if done >= all => return,
            Ok(done) => done,
            Err(_) => 0,
        };
        counters.failed_calls.add(1);
        let mut rest = batch;
        while let Some(first) = rest.first().filter(|first| first.bytes <= done) {
            done -= first.bytes;
            rest = &rest[1..];
        }
        // The one at which it stopped, alone.
        let Some((first, behind)) = rest.split_first() else {
            return;
        };
        if widen(*first).is_none() || self.alone(*first, *first, counters, widen).is_err() {
            refused.push(*first);
        }
        for some in behind.chunks(FEW) {
            let (ours, anothers): (Vec<Range>, Vec<Range>) =
                some.iter().partition(|range| widen(**range).is_some());
            refused.extend(anothers);
            if !ours.is_empty() {
                self.batch(&ours, counters, widen, refused);
            }
        }
    }

    /// A call that is interrupted or finds the address space busy is repeated, if what
    /// it unmaps still may go with `range`.
    fn alone(
        &self,
        unmapped: Range,
        range: Range,
        counters: &Counters,
        widen: impl Fn(Range) -> Option<Range>,
    ) -> Result<(), Errno> {
        for attempt in 0..4 {
            let within = |all: Range| all.start <= unmapped.start && unmapped.end() <= all.end();
            if attempt > 0 && !widen(range).is_some_and(within) {
                return Err(Errno::AGAIN);
            }
            counters.flush_calls.add(1);
            match self.kernel.zap_one(unmapped) {
                Err(Errno::INTR | Errno::AGAIN) => counters.failed_calls.add(1),
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    fn by_blocks(
        &self,
        ranges: &[Range],
        counters: &Counters,
        widen: impl Fn(Range) -> Option<Range>,
        refused: &mut Vec<Range>,
    ) {
        let mut unmapped_to = 0;
        for range in ranges {
            if range.end() <= unmapped_to {
                continue;
            }
            let Some(block) = widen(*range) else {
                refused.push(*range);
                continue;
            };
            if self.alone(block, *range, counters, &widen).is_ok() {
                unmapped_to = block.end();
            } else {
                counters.failed_calls.add(1);
                let ours = widen(*range).is_some();
                if !ours || self.alone(*range, *range, counters, &widen).is_err() {
                    refused.push(*range);
                }
            }
        }
    }

    /// Every piece by itself, for comparison. Such calls take their time, so whether a
    /// piece still is `ours` is asked right before each. Returns what was refused.
    pub fn unmap_each(
        &self,
        ranges: &[Range],
        step: usize,
        counters: &Counters,
        ours: impl Fn(Range) -> bool,
    ) -> Vec<Range> {
        let mut refused = Vec::new();
        for range in ranges {
            let mut fine = true;
            for start in (range.start..range.end()).step_by(step) {
                let bytes = step.min(range.end() - start);
                let piece = Range { start, bytes };
                let asked = |piece| ours(piece).then_some(piece);
                fine &= ours(piece) && self.alone(piece, piece, counters, asked).is_ok();
            }
            if !fine {
                refused.push(*range);
            }
        }
        refused
    }
}

fn fallback(reason: impl Into<String>) -> Means {
    Means::instead("madvise, one flush for 2 MiB", reason)
}

fn probe(kernel: &dyn Kernel) -> Result<(), String> {
    let pages = OwnPages::map(2).map_err(|errno| format!("no memory to try it on: {errno}"))?;
    let page = pages.bytes() / 2;
    (0..2).for_each(|index| pages.write(index, 1));
    let ranges = [0, 1].map(|index| Range {
        start: pages.address() + index * page,
        bytes: page,
    });
    match kernel.zap(&ranges) {
        Ok(done) if done == 2 * page && pages.read(0) == 0 && pages.read(1) == 0 => Ok(()),
        Ok(done) => Err(format!("process_madvise did {done} of {} bytes", 2 * page)),
        Err(errno) => Err(format!(
            "process_madvise(MADV_DONTNEED) on oneself: {errno}; it needs Linux 6.13, and 6.16 to save flushes"
        )),
    }
}

/// Whether a batch costs one flush; nothing but the version tells.
fn flushes_once() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    match (number(), number()) {
        (Some(major), Some(minor)) => (major, minor) >= (6, 16),
        _ => false,
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
