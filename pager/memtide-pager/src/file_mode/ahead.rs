//! Reading ahead of sequential readers.
//!
//! The kernel reads ahead too, but on the faulting thread's account: what it
//! reads follows that thread's memory policy. The pager's threads carry the
//! policy of the pager. A *stream* is a run of granules that came into memory
//! where the last such run ended, whole ones: pages here and there are random
//! reads. What the pager itself read in says nothing about the reader, so a
//! stream goes on only when the reader was seen in the second half of it.
//!
//! Where nothing is read around a fault ([`super::around`]) a granule that came as a
//! whole was read page by page, so it is a stream by itself. Little is read ahead of
//! it then, and twice as much each time that it goes on.
//!
//! What is ahead of use may wait, and waits: for a stream the evictor is asked to
//! make room, and nothing is read before it did.

use super::look::warm_up;
use super::{FileMode, FileRegion, Inner, View};
use crate::bell::Bell;
use crate::order::ReadOrder;
use crate::sys::known_file::KnownFile;
use crate::unmap::lock;
use memtide_core::eviction::Granule;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Streams that a region remembers.
const STREAMS: usize = 8;
/// A stream is read ahead of once it went on so often.
const SEQUENTIAL: u32 = 2;
/// Requests that wait; the oldest goes when there are more.
const WAITING: usize = 64;
/// Bytes of one call, at most.
const PIECE: u64 = 1 << 20;
/// Granules read ahead of what may be a stream.
const FIRST: u32 = 2;
/// Granules between what was read ahead of a stream and the next that it brings in.
const SLACK: u32 = 2;
/// How long a stream waits for room, at a time and in all.
const WAIT: Duration = Duration::from_millis(10);
const WAITS: u32 = 100;

/// A stream that did not go on for so many rounds shares what is read ahead with nobody.
const ACTIVE: u64 = 16;

/// Streams of a region.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// The one in which granules arrived last is at the end.
    all: VecDeque<Stream>,
    /// Rounds so far.
    rounds: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Granule after the last that the reader brought in.
    end: u32,
    /// Granule after the last that was asked for.
    asked: u32,
    /// How often it went on where it had ended. Random reads do so once by chance.
    times: u32,
    /// How far ahead of it is read.
    window: u32,
    /// The round in which it last went on.
    went_on: u64,
}

impl Streams {
    /// Granules `from..to` came, page by page as they were touched if `by_need`. What
    /// is to be read in, `ahead` granules at most.
    fn arrived(&mut self, (from, to): (u32, u32), ahead: u32, by_need: bool) -> Option<Range<u32>> {
        let goes_on = |s: &Stream| (s.end..=s.asked + SLACK).contains(&from);
        let mut stream = match self.all.iter().position(goes_on) {
            // What was asked for.
            Some(at) if to <= self.all[at].asked => return None,
            Some(at) => self.all.remove(at)?,
            None => {
                if self.all.len() == STREAMS {
                    self.all.pop_front();
                }
                let (times, window) = match by_need {
                    true => (SEQUENTIAL - 1, FIRST / 2),
                    false => (0, ahead),
                };
                self.all.push_back(Stream {
                    end: to,
                    asked: to,
                    times,
                    window,
                    went_on: self.rounds,
                });
                match by_need {
                    true => self.all.pop_back()?,
                    false => return None,
                }
            }
        };
        stream.end = to;
        stream.asked = to;
        stream.times += 1;
        stream.went_on = self.rounds;
        let sequential = stream.times >= SEQUENTIAL;
        if sequential {
            stream.window = (stream.window * 2).min(ahead);
            stream.asked = to + stream.window;
        }
        self.all.push_back(stream);
        sequential.then_some(to..stream.asked)
    }

    /// A stream that came to another one goes on as that: they would share what is read
    /// ahead, for one reader.
    fn join(&mut self) {
        let mut at = 0;
        while at < self.all.len() {
            let of = self.all[at];
            let meets =
                |s: &Stream| s.asked >= of.asked && (s.end..=s.asked + SLACK).contains(&of.asked);
            let other = (0..self.all.len()).find(|other| *other != at && meets(&self.all[*other]));
            match other {
                Some(_) => drop(self.all.remove(at)),
                None => at += 1,
            }
        }
    }

    /// Whether a granule was asked for ahead of a stream.
    fn covers(&self, index: u32) -> bool {
        self.all.iter().any(|s| (s.end..s.asked).contains(&index))
    }

    /// Those for which something was asked whose reader is not through, and came on of late.
    fn active(&self) -> usize {
        let active = |s: &&Stream| s.asked > s.end && self.rounds - s.went_on <= ACTIVE;
        self.all.iter().filter(active).count()
    }

    /// Of the streams whose readers came to the second half of what was asked
    /// for, what comes next. `used` says whether a granule is being read. A round begins.
    fn go_on(
        &mut self,
        granules: u32,
        ahead: u32,
        mut used: impl FnMut(u32) -> bool,
    ) -> Vec<Range<u32>> {
        self.rounds += 1;
        self.all.retain(|s| s.end < granules);
        self.join();
        let mut wanted = Vec::new();
        for stream in &mut self.all {
            let half = stream.asked.saturating_sub(stream.window / 2 + 1);
            if stream.asked > stream.end && half < granules && used(half) {
                stream.window = (stream.window * 2).min(ahead);
                wanted.push(stream.asked..stream.asked + stream.window);
                stream.end = half;
                stream.went_on = self.rounds;
                stream.asked += stream.window;
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

impl Request {
    /// Somebody is reading just before it: it is worth evicting for.
    fn is_of_a_stream(&self) -> bool {
        self.care.is_none()
    }
}

/// Requests, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    queue: Mutex<VecDeque<Request>>,
    pub bell: Bell,
    /// Pages read in that the evictor has not yet seen.
    unseen: AtomicU64,
    /// Pages that a stream waits to have room for.
    short: AtomicU64,
    /// Rings when there may be room.
    room: Bell,
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

    /// Pages read in that nobody has seen; to be taken off once they were.
    pub fn unseen_pages(&self) -> u64 {
        self.unseen.load(Relaxed)
    }

    pub fn seen(&self, pages: u64) {
        self.unseen.fetch_sub(pages, Relaxed);
    }

    /// Pages for which room is wanted.
    pub fn short_pages(&self) -> u64 {
        self.short.load(Relaxed)
    }

    /// There may be room now.
    pub fn made_room(&self) {
        self.room.ring();
    }

    pub fn forget(&self, care: u32) {
        lock(&self.queue).retain(|request| request.care != Some(care));
    }
}

/// Streams that are read ahead of just now, of all files.
fn active_streams(inner: &Inner) -> usize {
    let regions = inner.regions.iter().flatten();
    regions.map(|region| region.streams.active()).sum()
}

impl FileMode {
    /// Notes granules `from..to` that came into memory as a whole.
    pub(super) fn note_stream(&self, inner: &mut Inner, number: usize, come: (u32, u32)) {
        let ahead = self.ahead_granules(active_streams(inner) + 1);
        let Some(region) = inner.regions[number].as_mut().filter(|_| ahead > 0) else {
            return;
        };
        let granule_bytes = self.settings.granule_bytes as u64;
        let last = u64::from(come.1 - 1) * granule_bytes;
        let in_order = |view: &View| {
            view.order != ReadOrder::Random && view.part(last, granule_bytes).is_some()
        };
        if !region.views.iter().any(in_order) {
            return;
        }
        let by_need = region.around.by_need();
        if !by_need && self.settings.memory_policy.is_none() {
            return;
        }
        if let Some(wanted) = region.streams.arrived(come, ahead, by_need) {
            self.want(inner, number, wanted);
        }
    }

    /// Whether the pager asked for a granule ahead of a stream.
    pub(super) fn is_asked_for(region: &FileRegion, index: u32) -> bool {
        region.streams.covers(index)
    }

    /// Whether somebody reads in order just now, and only the pager reads ahead of it.
    pub(super) fn follows_streams(inner: &Inner) -> bool {
        let mut regions = inner.regions.iter().flatten();
        regions.any(|region| region.around.by_need() && region.streams.active() > 0)
    }

    /// Reads on where readers use what was read ahead of them.
    pub(super) fn follow_streams(&self, inner: &mut Inner) {
        let ahead = self.ahead_granules(active_streams(inner));
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

    /// How far ahead of each of so many streams; never so far that it would be evicted
    /// before its turn.
    fn ahead_granules(&self, streams: usize) -> u32 {
        let most = self.settings.budget_bytes / 32 / streams.max(1) as u64;
        let bytes = (self.settings.read_ahead.bytes as u64).min(most);
        let granules = (bytes / self.settings.granule_bytes as u64) as u32;
        match self.settings.read_ahead.bytes {
            0 => 0,
            _ => granules.max(1),
        }
    }

    /// Granules of a file that somebody maps, counted from its begin.
    fn granules_in(&self, region: &FileRegion) -> u32 {
        let last = region.views.iter().map(|view| view.end_offset()).max();
        let last = last.unwrap_or(0).min(region.seen_bytes);
        last.div_ceil(self.settings.granule_bytes as u64) as u32
    }

    /// Has granules read in, but for those at the begin that are in memory.
    fn want(&self, inner: &mut Inner, number: usize, mut wanted: Range<u32>) {
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
        for block in self.block_of(wanted.start)..=self.block_of(wanted.end - 1) {
            warm_up(inner, number, block);
        }
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
        let inner = self.inner();
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
        let inner = self.inner();
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
    /// nobody waiting for long. `ring` wakes the evictor.
    pub fn serve(&self, request: Request, stopped: impl Fn() -> bool, ring: impl Fn()) {
        let (mut offset, end) = (request.offset, request.offset + request.bytes);
        let granule = self.settings.granule_bytes as u64;
        let half_a_batch = self.settings.batch as u64 * granule / 2;
        let piece = PIECE.min(half_a_batch / granule * granule).max(granule);
        while offset < end && !stopped() {
            let bytes = piece.min(end - offset);
            let file = request.file.as_fd();
            let pages = bytes.div_ceil(self.page_bytes as u64);
            let there = self.kernel.count_cached(file, offset, bytes).unwrap_or(0);
            let pages = pages.saturating_sub(there);
            if pages > 0 {
                let all = (end - offset).div_ceil(self.page_bytes as u64);
                if !self.wait_for_room(&request, pages, all, &stopped, &ring) {
                    break;
                }
                match self.kernel.read_ahead(file, offset, bytes) {
                    Ok(()) => {
                        self.wanted.unseen.fetch_add(pages, Relaxed);
                        self.counters.read_ahead_pages.add(pages);
                    }
                    Err(_) => self.counters.failed_calls.add(1),
                }
            }
            offset += bytes;
        }
    }

    /// Whether so many pages may be read in. Ahead of use is ahead of need: a program's
    /// wish may fill what is free, and no more. For a stream the evictor makes room, for
    /// as much as `all` at once.
    fn wait_for_room(
        &self,
        request: &Request,
        pages: u64,
        all: u64,
        stopped: impl Fn() -> bool,
        ring: impl Fn(),
    ) -> bool {
        let (budget, batch) = (self.budget_pages(), self.batch_pages());
        let most = match request.is_of_a_stream() {
            true => budget - batch / 2,
            false => budget - 2 * batch,
        };
        let fits = || {
            let seen = self.counters.resident_bytes.get() / self.page_bytes as u64;
            seen + self.wanted.unseen_pages() + pages <= most
        };
        let mut waits = 0;
        let fine = loop {
            let heard = self.wanted.room.heard();
            if fits() {
                break true;
            }
            if !request.is_of_a_stream() || waits == WAITS || stopped() {
                break false;
            }
            self.wanted.short.store(all, Relaxed);
            ring();
            self.wanted.room.wait(heard, WAIT);
            waits += 1;
        };
        self.wanted.short.store(0, Relaxed);
        fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_in_order_is_read_ahead_of_as_it_goes() {
        let mut streams = Streams::default();
        assert_eq!(streams.arrived((10, 12), 32, false), None);
        assert_eq!(streams.arrived((12, 14), 32, false), None);
        // The second time that it went on.
        assert_eq!(streams.arrived((14, 16), 32, false), Some(16..48));
        // What was asked for comes, and moves nothing by itself.
        assert_eq!(streams.arrived((16, 48), 32, false), None);
        assert!(streams.go_on(1000, 32, |_| false).is_empty());
        // The reader is in its second half.
        let next = streams.go_on(1000, 32, |index| index < 40);
        assert_eq!(next.iter().map(|r| (r.start, r.end)).next(), Some((48, 80)));
        assert!(streams.go_on(1000, 32, |index| index < 40).is_empty());
        // A reader that was faster brings in what comes behind it.
        assert_eq!(streams.arrived((80, 82), 32, false), Some(82..114));
    }

    #[test]
    fn reads_here_and_there_are_no_stream() {
        let mut streams = Streams::default();
        for turn in 0..10_000u32 {
            // A step that meets each of 4,096 granules once.
            let from = turn.wrapping_mul(1_237) % 4_096;
            assert_eq!(streams.arrived((from, from + 1), 32, false), None);
        }
    }

    #[test]
    fn what_was_read_page_by_page_is_a_stream_and_its_window_grows() {
        let mut streams = Streams::default();
        assert_eq!(streams.arrived((10, 11), 32, true), Some(11..13));
        assert!(streams.covers(12) && !streams.covers(13));
        // The reader passes what was asked for: four, then eight.
        assert_eq!(streams.arrived((12, 14), 32, true), Some(14..18));
        let next = streams.go_on(1000, 32, |index| index < 16);
        assert_eq!(next.first(), Some(&(18..26)));
        // Never more than 32.
        for _ in 0..5 {
            let next = streams.go_on(1000, 32, |_| true);
            assert!(next[0].len() <= 32, "{next:?}");
        }
    }

    #[test]
    fn a_stream_whose_reader_went_elsewhere_is_active_no_more() {
        let mut streams = Streams::default();
        for from in [10, 500] {
            assert!(streams.arrived((from, from + 1), 32, true).is_some());
        }
        assert_eq!(streams.active(), 2);
        for _ in 0..ACTIVE {
            let _ = streams.go_on(1_000, 32, |index| index > 400);
        }
        assert_eq!(streams.active(), 2);
        let _ = streams.go_on(1_000, 32, |index| index > 400);
        assert_eq!(streams.active(), 1);
        // It comes back.
        assert!(streams.arrived((11, 15), 32, true).is_some());
        assert_eq!(streams.active(), 2);
    }

    #[test]
    fn streams_that_meet_are_one() {
        let mut streams = Streams::default();
        assert_eq!(streams.arrived((10, 11), 32, true), Some(11..13));
        assert_eq!(streams.arrived((20, 21), 32, true), Some(21..23));
        assert_eq!(streams.active(), 2);
        // The first goes over what is in memory, up to the second: 13, 17, 25.
        for _ in 0..3 {
            let _ = streams.go_on(1_000, 32, |index| index < 18);
        }
        assert_eq!((streams.active(), streams.all.len()), (1, 1));
        assert_eq!(streams.all[0].asked, 25);
    }

    #[test]
    fn a_stream_ends_with_its_region() {
        let mut streams = Streams::default();
        for from in [90, 92, 94] {
            let _ = streams.arrived((from, from + 2), 32, false);
        }
        // 96..128 was asked for; there are 100 granules.
        assert!(streams.go_on(100, 32, |_| true).is_empty());
    }
}
