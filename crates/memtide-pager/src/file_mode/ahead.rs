//! Reading ahead of sequential readers.
//!
//! The kernel reads ahead too, but on the faulting thread's account: what it
//! reads follows that thread's memory policy. The pager's threads carry the
//! policy of the pager. A *stream* is a run of granules that came into memory
//! where the last such run ended, whole ones: pages here and there are random
//! reads. What the pager itself read in says nothing about the reader, so a
//! stream goes on only when the reader was seen in the second half of it.

use super::{FileMode, FileRegion, Inner};
use crate::bell::Bell;
use crate::sys::known_file::KnownFile;
use crate::unmap::lock;
use memtide_core::eviction::Granule;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Mutex;

/// Streams that a region remembers.
const STREAMS: usize = 8;
/// A stream is read ahead of once it went on so often.
const SEQUENTIAL: u32 = 2;
/// Requests that wait; the oldest goes when there are more.
const WAITING: usize = 64;
/// Bytes of one call.
const PIECE: u64 = 1 << 20;

/// Streams of a region, the one that went on last at the end.
#[derive(Debug, Default)]
pub(super) struct Streams(VecDeque<Stream>);

#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Granule after the last that the reader brought in.
    end: u32,
    /// Granule after the last that was asked for.
    asked: u32,
    /// How often it went on where it had ended. Random reads do so once by chance.
    times: u32,
}

impl Streams {
    /// Granules `from..to` came. What is to be read in.
    fn arrived(&mut self, (from, to): (u32, u32), ahead: u32) -> Option<Range<u32>> {
        let found = self
            .0
            .iter()
            .position(|s| (s.end..=s.asked).contains(&from));
        let Some(at) = found else {
            if self.0.len() == STREAMS {
                self.0.pop_front();
            }
            self.0.push_back(Stream {
                end: to,
                asked: to,
                times: 0,
            });
            return None;
        };
        if from < self.0[at].asked {
            return None;
        }
        let mut stream = self.0.remove(at)?;
        stream.end = to;
        stream.asked = to;
        stream.times += 1;
        let sequential = stream.times >= SEQUENTIAL;
        if sequential {
            stream.asked = to + ahead;
        }
        self.0.push_back(stream);
        sequential.then_some(to..to + ahead)
    }

    /// Of the streams whose readers came to the second half of what was asked
    /// for, what comes next. `used` says whether a granule is being read.
    fn go_on(
        &mut self,
        granules: u32,
        ahead: u32,
        mut used: impl FnMut(u32) -> bool,
    ) -> Vec<Range<u32>> {
        self.0.retain(|s| s.end < granules);
        let mut wanted = Vec::new();
        for stream in &mut self.0 {
            let half = stream.asked.saturating_sub(ahead / 2 + 1);
            if stream.asked > stream.end && half < granules && used(half) {
                wanted.push(stream.asked..stream.asked + ahead);
                stream.end = half;
                stream.asked += ahead;
            }
        }
        wanted
    }
}

/// What is to be read in.
#[derive(Debug)]
pub(crate) struct Request {
    /// Who asked for it, if not the pager itself.
    care: Option<u32>,
    file: KnownFile,
    offset: u64,
    bytes: u64,
}

/// Requests, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    queue: Mutex<VecDeque<Request>>,
    pub bell: Bell,
}

impl Wanted {
    fn push(&self, request: Request) {
        let mut queue = lock(&self.queue);
        if queue.len() >= WAITING {
            queue.pop_front();
        }
        queue.push_back(request);
        drop(queue);
        self.bell.ring();
    }

    /// The next request.
    pub fn pop(&self) -> Option<Request> {
        lock(&self.queue).pop_front()
    }

    pub fn forget(&self, care: u32) {
        lock(&self.queue).retain(|request| request.care != Some(care));
    }
}

impl FileMode {
    /// Notes granules `from..to` that came into memory as a whole.
    pub(super) fn note_stream(&self, inner: &mut Inner, number: usize, come: (u32, u32)) {
        let ahead = self.ahead_granules();
        let Some(region) = inner.regions[number].as_mut().filter(|_| ahead > 0) else {
            return;
        };
        if let Some(wanted) = region.streams.arrived(come, ahead) {
            self.want(inner, number, wanted);
        }
    }

    /// Reads on where readers use what was read ahead of them.
    pub(super) fn follow_streams(&self, inner: &mut Inner) {
        let ahead = self.ahead_granules();
        if ahead == 0 {
            return;
        }
        for number in 0..inner.regions.len() {
            let Some(region) = inner.regions[number].as_mut() else {
                continue;
            };
            let granules = self.granules_in(region);
            let mut streams = std::mem::take(&mut region.streams);
            let regions = &inner.regions;
            let wanted = streams.go_on(granules, ahead, |index| {
                let region = number as u32;
                self.is_mapped(regions, Granule { region, index })
            });
            if let Some(region) = inner.regions[number].as_mut() {
                region.streams = streams;
            }
            for range in wanted {
                self.want(inner, number, range);
            }
        }
    }

    /// How far ahead; never so far that it would be evicted before its turn.
    fn ahead_granules(&self) -> u32 {
        let most = self.settings.budget_bytes / 64;
        let bytes = (self.settings.read_ahead.bytes as u64).min(most);
        (bytes / self.settings.granule_bytes as u64) as u32
    }

    /// Granules of a file that somebody maps, counted from its begin.
    fn granules_in(&self, region: &FileRegion) -> u32 {
        let last = region.views.iter().map(|view| view.end_offset()).max();
        let last = last.unwrap_or(0).min(region.seen_bytes);
        last.div_ceil(self.settings.granule_bytes as u64) as u32
    }

    /// Has granules read in, but for those at the begin that are in memory.
    fn want(&self, inner: &Inner, number: usize, mut wanted: Range<u32>) {
        let Some(region) = inner.regions[number].as_ref() else {
            return;
        };
        wanted.end = wanted.end.min(self.granules_in(region));
        let holds = |index: u32| {
            let region = number as u32;
            inner.eviction.holds(Granule { region, index })
        };
        while !wanted.is_empty() && holds(wanted.start) {
            wanted.start += 1;
        }
        if wanted.is_empty() {
            return;
        }
        let Ok(file) = region.file.try_clone() else {
            self.counters.failed_calls.add(1);
            return;
        };
        let granule_bytes = self.settings.granule_bytes as u64;
        self.wanted.push(Request {
            care: None,
            file,
            offset: u64::from(wanted.start) * granule_bytes,
            bytes: wanted.len() as u64 * granule_bytes,
        });
    }

    /// Asks for what lies at addresses that are in the pager's care. No more is asked
    /// for than half the budget.
    pub fn read_ahead_at(&self, range: Range<usize>) {
        let inner = lock(&self.inner);
        let mut left = self.settings.budget_bytes / 2;
        for region in inner.regions.iter().flatten() {
            for view in &region.views {
                let (start, end) = (view.range.start, view.range.end());
                let (from, to) = (start.max(range.start), end.min(range.end));
                let offset = view.offset + from.saturating_sub(start) as u64;
                let bytes = (to.saturating_sub(from) as u64)
                    .min(region.seen_bytes.saturating_sub(offset))
                    .min(left);
                if bytes == 0 {
                    continue;
                }
                left -= bytes;
                match region.file.try_clone() {
                    Ok(file) => self.wanted.push(Request {
                        care: Some(view.care),
                        file,
                        offset,
                        bytes,
                    }),
                    Err(_) => self.counters.failed_calls.add(1),
                }
            }
        }
    }

    /// Asks for part of a region.
    pub fn read_ahead(&self, number: u32, offset: u64, bytes: u64) {
        let inner = lock(&self.inner);
        let Some(care) = inner.cares[number as usize] else {
            return;
        };
        let Some(region) = inner.regions[care.region].as_ref() else {
            return;
        };
        let bytes = bytes
            .min(care.bytes.saturating_sub(offset))
            .min(self.settings.budget_bytes / 2);
        match region.file.try_clone() {
            Ok(file) if bytes > 0 => self.wanted.push(Request {
                care: Some(number),
                file,
                offset: care.offset + offset,
                bytes,
            }),
            Ok(_) => {}
            Err(_) => self.counters.failed_calls.add(1),
        }
    }

    /// Reads what was asked for, piece by piece, so that a large request keeps
    /// nobody waiting for long.
    pub fn serve(&self, request: Request, stopped: impl Fn() -> bool) {
        let (mut offset, end) = (request.offset, request.offset + request.bytes);
        // Ahead of use is ahead of need: it may fill what is free, and no more.
        let room = || self.settings.budget_bytes - self.settings.budget_bytes / 16;
        while offset < end && !stopped() && self.counters.resident_bytes.get() + PIECE <= room() {
            let bytes = PIECE.min(end - offset);
            let before = self
                .kernel
                .count_cached(request.file.as_fd(), offset, bytes);
            match self.kernel.read_ahead(request.file.as_fd(), offset, bytes) {
                Ok(()) => {
                    let there = before.unwrap_or(0);
                    let pages = bytes.div_ceil(self.page_bytes as u64);
                    self.counters
                        .read_ahead_pages
                        .add(pages.saturating_sub(there));
                }
                Err(_) => self.counters.failed_calls.add(1),
            }
            offset += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_in_order_is_read_ahead_of_as_it_goes() {
        let mut streams = Streams::default();
        assert_eq!(streams.arrived((10, 12), 32), None);
        assert_eq!(streams.arrived((12, 14), 32), None);
        // The second time that it went on.
        assert_eq!(streams.arrived((14, 16), 32), Some(16..48));
        // What was asked for comes, and moves nothing by itself.
        assert_eq!(streams.arrived((16, 48), 32), None);
        assert!(streams.go_on(1000, 32, |_| false).is_empty());
        // The reader is in its second half.
        let next = streams.go_on(1000, 32, |index| index < 40);
        assert_eq!(next.iter().map(|r| (r.start, r.end)).next(), Some((48, 80)));
        assert!(streams.go_on(1000, 32, |index| index < 40).is_empty());
        // A reader that was faster brings in what comes behind it.
        assert_eq!(streams.arrived((80, 82), 32), Some(82..114));
    }

    #[test]
    fn reads_here_and_there_are_no_stream() {
        let mut streams = Streams::default();
        for turn in 0..10_000u32 {
            // A step that meets each of 4,096 granules once.
            let from = turn.wrapping_mul(1_237) % 4_096;
            assert_eq!(streams.arrived((from, from + 1), 32), None);
        }
    }

    #[test]
    fn a_stream_ends_with_its_region() {
        let mut streams = Streams::default();
        for from in [90, 92, 94] {
            let _ = streams.arrived((from, from + 2), 32);
        }
        // 96..128 was asked for; there are 100 granules.
        assert!(streams.go_on(100, 32, |_| true).is_empty());
    }
}
