//! One turn of the evictor over file regions.
//!
//! With m the pages of a batch, and counting down from the budget: above
//! budget - 3m a batch is chosen and stays mapped; above budget - 2m it is
//! unmapped with one call and has its second chance; above budget - m what was
//! not touched again is dropped. Above the budget a batch is unmapped and dropped at
//! once, and is smaller, so that readers have no time to touch it again.

use super::{FileMode, FileRegion, Gone, Granules, Inner, Sight};
use crate::adopt::Layout;
use crate::board::Board;
use crate::builder::Unmapping;
use crate::kernel::Range;
use crate::round::Round;
use crate::unmap::lock;
use memtide_core::eviction::Granule;
use memtide_core::lazy_flush::{Due, Stamp};
use memtide_linux::sys::descriptors;
use std::os::fd::AsFd;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// Batches that one round takes, at most.
const STEPS_A_ROUND: usize = 64;
/// After so many in a row of which nothing left memory, as all was touched again, the
/// next would do no better.
const IN_VAIN: usize = 4;
/// Turns that the evictor gives to threads that wait for the books.
const TURNS: usize = 20;
const TURN: Duration = Duration::from_micros(50);
/// Rounds between two looks at whether files changed and the books are right.
pub(super) const CHECK_FILES: u64 = 64;
/// Of so many victims, one member of main is probed.
const VICTIMS_A_PROBE: usize = 8;
/// A batch above the budget: dropping it takes about a millisecond.
const URGENT_GRANULES: usize = 128;
/// Of the pace at which memory filled, what a round keeps of the one before.
const PACE_KEPT: f64 = 0.9;
const SHORTEST: Duration = Duration::from_micros(300);
const LONGEST: Duration = Duration::from_millis(100);
/// While something comes, and while a stream is read ahead of by the pager alone.
const BUSY: Duration = Duration::from_millis(10);
const STREAMING: Duration = Duration::from_millis(2);
/// Where nothing would leave, it is of no use to try again at once.
const STUCK: Duration = Duration::from_millis(5);

impl FileMode {
    /// Tells on the `board` how it ended.
    pub fn round(&self, last_wait: Duration, board: Option<&Board>) -> Round {
        let orders = self.meet_others();
        let mut guard = self.inner_behind_all();
        let inner = &mut *guard;
        inner.rounds += 1;
        if inner.rounds.is_multiple_of(CHECK_FILES) {
            self.check_files(inner);
            descriptors::close_waiting();
            inner.hold();
        }
        // What was counted, or seen where nothing counts: the closer look takes its
        // time to get round.
        let seen = inner.eviction.filled_pages();
        let read_ahead = self.wanted.unseen_pages();
        self.follow_growth(inner);
        let read_bytes = self.kernel.read_bytes();
        self.keep_together(inner, read_bytes, orders);
        let came = self.look_for_all(inner, read_bytes);
        self.follow_streams(inner);
        let filled = came.max(inner.eviction.filled_pages() - seen);
        let budget = self.budget_pages();
        self.counters
            .resident_bytes
            .set(inner.in_memory() * self.page_bytes as u64);
        self.counters
            .peak_resident_bytes
            .raise_to(inner.in_memory() * self.page_bytes as u64);
        self.wanted.seen(read_ahead);
        if inner.in_memory() > budget {
            self.counters.budget_overruns.add(1);
        }
        if inner
            .overrun
            .note(inner.in_memory(), budget, Instant::now())
        {
            self.say_overrun(inner.in_memory());
        }
        self.hold_back(inner);
        let (mut stuck, mut in_vain) = (false, 0);
        for _ in 0..STEPS_A_ROUND {
            match self.step(inner) {
                Step::Idle => break,
                Step::Stuck => stuck = true,
                Step::InVain => in_vain += 1,
                Step::Moved => in_vain = 0,
            }
            stuck |= in_vain == IN_VAIN;
            if stuck || self.is_waited_for() {
                break;
            }
        }
        let pending: u64 = inner
            .pending
            .iter()
            .map(|(granule, _)| u64::from(inner.eviction.pages(*granule)))
            .sum();
        self.counters.pending_pages.set(pending);
        self.counters
            .resident_bytes
            .set(inner.in_memory() * self.page_bytes as u64);
        self.hold_back(inner);
        self.forget_empty_orphans(inner);
        if let Some(board) = board {
            self.post_in(inner, board);
        }
        let short = self.wanted.short_pages() > 0;
        self.wanted.made_room();
        // What others lead is not ours to evict.
        let within = inner.in_memory() <= budget || inner.leads_nothing();
        // Pages come in bursts: what came fast a moment ago will again.
        let pace = filled as f64 / last_wait.as_secs_f64().max(SHORTEST.as_secs_f64());
        inner.pace = pace.max(inner.pace * PACE_KEPT);
        // Half of the way to the next threshold.
        let room = (self.batch_pages() / 2).max(1) as f64;
        let wait = match stuck {
            true => STUCK,
            false if !within || short => SHORTEST,
            false => Duration::from_secs_f64(room / inner.pace.max(1.0)),
        };
        // Where nobody comes any more, looks become rare by and by.
        let longest = match FileMode::follows_streams(inner) {
            true if filled > 0 => STREAMING,
            _ if filled > 0 => BUSY,
            _ => (last_wait * 5 / 4).clamp(BUSY, LONGEST),
        };
        Round {
            wait: wait.clamp(SHORTEST, longest),
            within,
            settled: within && !inner.unseen.is_owed() && !inner.wants_a_lead(),
            idle: filled == 0 && wait >= longest,
        }
    }

    /// The books, after those who waited for them: a lock that is taken again at once
    /// would be had by nobody else.
    fn inner_behind_all(&self) -> MutexGuard<'_, Inner> {
        for _ in 0..TURNS {
            if !self.is_waited_for() {
                break;
            }
            std::thread::sleep(TURN);
        }
        lock(&self.inner)
    }

    pub(super) fn budget_pages(&self) -> u64 {
        self.settings.budget_bytes / self.page_bytes as u64
    }

    pub(super) fn batch_pages(&self) -> u64 {
        (self.settings.batch * self.settings.granule_bytes / self.page_bytes) as u64
    }

    fn step(&self, inner: &mut Inner) -> Step {
        let (budget, batch) = (self.budget_pages(), self.batch_pages());
        // What is read ahead of a stream next is as good as there: it need not wait then.
        let short = match FileMode::follows_streams(inner) {
            true => batch,
            false => self.wanted.short_pages().min(batch),
        };
        let over = |inner: &Inner, margin: u64| inner.in_memory() + short + margin > budget;
        if !over(inner, 3 * batch) || inner.leads_nothing() {
            return Step::Idle;
        }
        if inner.pending.is_empty() {
            self.choose(inner);
        }
        if inner.pending.is_empty() && over(inner, batch) {
            self.look_everywhere(inner);
            self.choose(inner);
        }
        if !over(inner, 2 * batch) {
            return Step::Idle;
        }
        let eager = self.settings.unmapping != Unmapping::Lazy;
        if inner.unmapped.is_empty() {
            if inner.pending.is_empty() {
                return Step::Stuck;
            }
            self.note_leaving(inner);
            self.unmap_pending(inner);
            if inner.in_memory() <= budget && self.wanted.short_pages() == 0 && !eager {
                return Step::Idle;
            }
            self.counters.urgent_batches.add(u64::from(!eager));
        }
        if !over(inner, batch) {
            return Step::Idle;
        }
        self.drop_unmapped(inner)
    }

    /// Chooses a batch; it stays mapped.
    fn choose(&self, inner: &mut Inner) {
        let mut chosen = Vec::new();
        // Above the budget readers are faster than we: a batch must be dropped before
        // they touch it again, so it is small, but it need not be whole granules.
        let urgent = inner.in_memory() > self.budget_pages();
        let (pages, most) = match urgent {
            true => (u64::MAX, URGENT_GRANULES),
            false => (self.batch_pages(), self.settings.batch_most()),
        };
        let regions = &inner.regions;
        let used = |granule| self.is_mapped(regions, granule);
        inner.eviction.choose(pages, most, &mut chosen, used);
        self.complete_folios(inner, &mut chosen);
        for granule in chosen {
            let pages = u64::from(inner.eviction.pages(granule));
            self.counters.evicted_pages.add(pages);
            if let Some(region) = inner.regions[granule.region as usize].as_mut() {
                region.evicted_pages += pages;
            }
            // Nothing pauses deferring here, so it is never refused.
            let deferred = inner.flush.defer(Granules(vec![granule]));
            let stamp = deferred.unwrap_or(Stamp::NONE);
            inner.pending.push((granule, stamp));
        }
    }

    /// A folio leaves memory as a whole: with a granule of a block that has larger
    /// folios, everything of the block is chosen.
    fn complete_folios(&self, inner: &mut Inner, chosen: &mut Vec<Granule>) {
        for at in 0..chosen.len() {
            let Granule { region, index } = chosen[at];
            let Some(of) = &inner.regions[region as usize] else {
                continue;
            };
            let block = self.block_of(index);
            if !of.blocks[block].large {
                continue;
            }
            for index in self.granules_of(block) {
                let granule = Granule { region, index };
                if inner.eviction.choose_this(granule) {
                    chosen.push(granule);
                }
            }
        }
    }

    /// Unmaps all that is pending, and some of main to see whether it is used.
    fn unmap_pending(&self, inner: &mut Inner) {
        let Some(&(_, stamp)) = inner.pending.last() else {
            return;
        };
        let mut probes = Vec::new();
        if self.settings.unmapping == Unmapping::Lazy {
            let room = (crate::builder::MOST_RANGES - inner.pending.len().min(1024))
                .min(inner.pending.len() / VICTIMS_A_PROBE + 1);
            inner.eviction.probe(room, &mut probes);
        }
        let mut probed_pages = 0;
        for granule in &probes {
            probed_pages += u64::from(inner.eviction.pages(*granule));
            let _ = inner.flush.defer(Granules(vec![*granule]));
        }
        self.counters.probed_pages.add(probed_pages);
        let (mut refused, mut gone) = (Vec::new(), Vec::new());
        let regions = &inner.regions;
        let flush = |granules: Granules| {
            let spans = granules.0.iter().flat_map(|g| self.spans_of(regions, *g));
            refused = self.unmap(regions, spans.collect(), &mut gone);
        };
        inner.flush.take(stamp, flush);
        let chosen = inner.pending.iter().map(|(granule, _)| *granule);
        let all: Vec<Granule> = chosen.chain(probes).collect();
        self.post_unmapped(inner, &all);
        let mut unmapped_pages = probed_pages;
        for (granule, stamp) in std::mem::take(&mut inner.pending) {
            let mut spans = self.spans_of(&inner.regions, granule);
            if spans.any(|span| refused.contains(&span)) {
                drop(spans);
                self.stuck(inner, granule);
                continue;
            }
            unmapped_pages += u64::from(inner.eviction.pages(granule));
            inner.unmapped.push_back((granule, stamp));
        }
        self.counters.zapped_pages.add(unmapped_pages);
        // A call that nobody saw took them away.
        for range in gone {
            self.cut_in(inner, range, None, Gone::Unmapped);
        }
    }

    /// Unmaps what is still ours. Returns what was not unmapped, and adds to `gone`
    /// what is another's by now.
    pub(super) fn unmap(
        &self,
        regions: &[Option<FileRegion>],
        mut ranges: Vec<Range>,
        gone: &mut Vec<Range>,
    ) -> Vec<Range> {
        let counters = &self.counters;
        let mut refused = Vec::new();
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut rest, mut anothers) = (&ranges[..], Vec::new());
        while !rest.is_empty() {
            let mut asked = self.ask(regions, rest);
            rest = &rest[asked.ranges()..];
            let ours = &mut asked.ours[..];
            refused.extend(match self.settings.unmapping {
                Unmapping::Lazy => {
                    let widen = |range| self.widened(regions, range);
                    self.unmapper.unmap(ours, counters, widen)
                }
                Unmapping::EagerPages => self.unmap_each(regions, ours, self.page_bytes),
                Unmapping::EagerGranules => {
                    self.unmap_each(regions, ours, self.settings.granule_bytes)
                }
            });
            refused.append(&mut asked.unknown);
            anothers.append(&mut asked.anothers);
        }
        let mut layout = Layout::of(&*self.kernel);
        for range in &anothers {
            gone.append(&mut self.strangers_in(&mut layout, regions, *range));
        }
        refused.append(&mut anothers);
        refused
    }

    /// See [`Unmapping`]. Calls for single pieces take their time.
    fn unmap_each(
        &self,
        regions: &[Option<FileRegion>],
        ranges: &[Range],
        bytes: usize,
    ) -> Vec<Range> {
        let ours = |piece| self.is_ours(regions, piece);
        let counters = &self.counters;
        self.unmapper.unmap_each(ranges, bytes, counters, ours)
    }

    /// Drops what was unmapped and not touched again.
    fn drop_unmapped(&self, inner: &mut Inner) -> Step {
        self.wait_for_followers(inner);
        let (mut leaving, mut rescued) = (Vec::new(), 0);
        while let Some((granule, stamp)) = inner.unmapped.pop_front() {
            let pages = u64::from(inner.eviction.pages(granule));
            if !inner.eviction.is_chosen(granule) {
                continue;
            }
            if self.is_mapped(&inner.regions, granule) {
                rescued += pages;
                let regions = &inner.regions;
                let used = |granule| self.is_mapped(regions, granule);
                inner.eviction.used(granule, used);
                continue;
            }
            // The rule of the lazy flush: no memory is taken whose unmapping is
            // still due.
            if inner.flush.due(stamp) == Due::Flush {
                inner.eviction.put_back(granule);
                continue;
            }
            leaving.push(granule);
        }
        leaving.sort_unstable();
        let before = inner.resident_pages;
        let mut unclear = Vec::new();
        for run in leaving.chunk_by(|a, b| a.region == b.region && a.index + 1 == b.index) {
            if !self.drop_run(inner, run) {
                unclear.extend_from_slice(run);
            }
        }
        self.look_again(inner, &unclear);
        for granule in &leaving {
            // The look may have found that nobody maps the file any more.
            if inner.regions[granule.region as usize].is_none() {
                continue;
            }
            let block = self.block_of(granule.index);
            let held = inner.eviction.is_chosen(*granule) && inner.eviction.pages(*granule) > 0;
            let region = inner.regions[granule.region as usize].as_ref();
            let followed = region.is_some_and(FileRegion::is_followed);
            let mapped = held && self.is_mapped(&inner.regions, *granule);
            // By this process just now, or most likely by another one.
            let touched = mapped || (held && followed);
            if let Some(region) = inner.regions[granule.region as usize].as_mut() {
                // A block that was emptied comes back in smaller folios.
                let block = &mut region.blocks[block];
                block.large = held && !mapped || (block.large && block.known > 0);
            }
            match (held, touched) {
                (true, true) => {
                    let regions = &inner.regions;
                    let used = |granule| self.is_mapped(regions, granule);
                    inner.eviction.used(*granule, used);
                    rescued += u64::from(inner.eviction.pages(*granule));
                }
                (true, false) => self.stuck(inner, *granule),
                (false, _) => {}
            }
        }
        self.counters.rescued_pages.add(rescued);
        let dropped = before.saturating_sub(inner.resident_pages);
        self.counters.dropped_pages.add(dropped);
        match (dropped, rescued) {
            (0, 0) => Step::Stuck,
            (0, _) => Step::InVain,
            _ => Step::Moved,
        }
    }

    /// Has the page cache drop neighbours. True if they are known to be gone.
    fn drop_run(&self, inner: &mut Inner, run: &[Granule]) -> bool {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return true;
        };
        let Some(region) = inner.regions[first.region as usize].as_ref() else {
            return true;
        };
        let granule_bytes = self.settings.granule_bytes as u64;
        let offset = u64::from(first.index) * granule_bytes;
        let bytes = u64::from(last.index + 1 - first.index) * granule_bytes;
        if self
            .kernel
            .drop_cached(region.file.as_fd(), offset, bytes)
            .is_err()
        {
            self.counters.failed_calls.add(1);
        }
        let file = region.file.as_fd();
        let gone = match region.sight {
            // Nothing shows that they are gone but that we asked for it.
            Sight::Mapped => true,
            Sight::Seen => false,
            Sight::CountedThenSeen => self.kernel.count_cached(file, offset, bytes) == Ok(0),
        };
        if gone {
            for granule in run {
                let pages = inner.eviction.pages(*granule);
                inner.eviction.dropped(*granule);
                let block = self.block_of(granule.index);
                if let Some(region) = inner.regions[granule.region as usize].as_mut() {
                    inner.resident_pages -= region.take_out(block, pages);
                }
            }
        }
        gone
    }

    /// The kernel would not let it go: locked, mapped by somebody else, dirty, or
    /// part of a larger folio.
    fn stuck(&self, inner: &mut Inner, granule: Granule) {
        let pages = inner.eviction.pages(granule);
        self.counters.stuck_pages.add(u64::from(pages));
        inner.eviction.put_back(granule);
    }

    fn check_files(&self, inner: &mut Inner) {
        for region in inner.regions.iter_mut().flatten() {
            if let Some(what) = self.changed(region) {
                region.trouble = Some(format!("{what} since it was opened"));
            }
        }
    }
}

enum Step {
    /// Nothing is to be done.
    Idle,
    Moved,
    /// All of it was touched again.
    InVain,
    /// Nothing of what is to be done can be done now.
    Stuck,
}
