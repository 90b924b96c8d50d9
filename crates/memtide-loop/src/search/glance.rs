//! The glance: sweeps that draw attention, and samples of what has it.

use super::blocks::{Blocks, Flag};
use super::evidence::{Tally, Verdict, judge};
use super::look::{each_run, push};
use super::worth::{FirstGlances, Offer};
use super::{EAGER_SHARE, LOST_MS, Order, Search, Span, View, Watch, finish_ms, spans_of};
use memtide_core::units::Millis;
use std::ops::Range;

/// What the present glance is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Purpose {
    /// There is none.
    #[default]
    Nothing,
    /// Every block, in each pass.
    All,
    /// Blocks that have the attention.
    Attend,
    /// A part of the memory in larger pieces, once: which sweep.
    Sweep(usize),
}

impl Purpose {
    /// How many passes it has before the source is told anew.
    fn passes(self) -> u32 {
        match self {
            Purpose::All => ALL_PASSES,
            Purpose::Attend => ATTEND_PASSES,
            Purpose::Sweep(_) | Purpose::Nothing => 1,
        }
    }
}

/// A walk over all blocks in turn.
#[derive(Clone, Copy, Debug, Default)]
struct Sweep {
    cursor: usize,
    /// Blocks in a piece.
    piece: u32,
}

/// A block that has the attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Attended {
    block: u32,
    /// How far its attention reaches when it is found hot.
    reach: u8,
}

/// The present glance.
#[derive(Debug, Default)]
pub struct Glancing {
    purpose: Purpose,
    /// Runs of blocks, ascending: the first and how many.
    runs: Vec<(u32, u32)>,
    pieces: u64,
    /// What is glanced at beside these: so many pieces.
    beside: u64,
    hits: Vec<u32>,
    /// Pieces that were touched in this pass.
    touched: u64,
    /// Those of the present walk over all memory, and how many were glanced at in it.
    walked: (u64, u64),
    /// Longer passes see so many pages in use that hot ones do not stand out, in ms.
    tells_apart_ms: Option<u64>,
    passes_left: u32,
    at_work: bool,
    /// Whether the source was told that the present pass is the last, and whether a pass went
    /// on for that this was not said in time.
    finishing: bool,
    missed: bool,
    /// Whether a pass has ended since the last plan.
    pass_ended: bool,
    began: Millis,
    interval_ms: u64,
    attended: Vec<Attended>,
    /// From where on blocks have the next turn.
    turn: u32,
    /// The blocks among which the present glance took all that speak, and whether they are
    /// the last ones.
    swept: Range<usize>,
    ends: bool,
    sweeps: [Sweep; 2],
    last: usize,
    /// So many in a row were for what has the attention; the last took so many blocks.
    attends: u32,
    took: usize,
    /// When a block was found hot last.
    found_at: Millis,
    first: FirstGlances,
    /// What the present glance may use beyond the account, which owes it then.
    granted: f64,
}

/// The largest piece in blocks: 32 MiB, half of what is called a large range.
const LARGEST: u32 = 16;
/// The coarse sweep's pieces are so large that it takes about this long, in s.
const COARSE_S: f64 = 6.0;
/// How often all blocks are glanced at before the source is told anew.
const ALL_PASSES: u32 = 8;
/// And those that have the attention.
const ATTEND_PASSES: u32 = 3;
/// And how many such glances there are between two sweeps, at most.
const ATTENDS: u32 = 4;
/// All blocks are glanced at more rarely when none was found hot for so long, in
/// ms, by this factor.
const QUIET_MS: u64 = 10_000;
const QUIET_STRETCH: u64 = 5;
/// So many random pieces say how much is in use.
const TELLING: u64 = 64;
/// Where one of so many is touched, passes are too long to tell hot pages from others.
const COMMONLY: f64 = 4.0;
/// And where fewer than one of so many are, they may be longer.
const RARELY: f64 = 16.0;
/// Or where there is room for so many times as much as is in use.
const ROOMY: f64 = 2.0;
/// A pass that is late is asked for so often, in ms, or each such part of its interval.
const SOON_MS: u64 = 5;
const SOON_PART: u64 = 16;
/// No pass is shorter than this for it, in ms, and none so long is bounded.
const SHORTEST_MS: u64 = 50;
const LONG_MS: u64 = 2_000;
/// A part of a walk over all memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its first block: the walk begins with block 0.
    pub from: usize,
    /// The first block of the next part.
    pub to: usize,
    /// The walk ends with it.
    pub is_last: bool,
    /// Pages of a piece, of which one was sampled.
    pub pages: u64,
}

/// How far attention reaches at most, in blocks.
const REACH: u8 = 16;
/// So many blocks in use of which none was seen stood still together, and not by chance.
const STANDING: u32 = 3;
/// What is glanced at beside the search costs one part in so many of the budget.
const BESIDE_PART: f64 = 2.0;
/// But so much of it always is.
const BESIDE_LEAST: u64 = 8;
/// Blocks that a sweep passes over at most, before it is told.
const STEPS: usize = 1 << 21;

impl Glancing {
    /// A page of block `n` was touched.
    pub fn touched(&mut self, n: u32) {
        self.hits.push(n);
    }

    /// A piece was touched: those were its blocks.
    pub fn touched_piece(&mut self) {
        self.touched += 1;
    }

    /// The longest pass that tells hot pages from others.
    pub fn tells_apart_ms(&self) -> u64 {
        self.tells_apart_ms.unwrap_or(u64::MAX)
    }

    /// The pass that is complete was a part of the walk over all `pages` pages. Fast memory has room
    /// for `room` pages: while it has room for all that is in use, nothing has to be told apart.
    fn learn_to_tell_apart(&mut self, pages: u64, room: u64) {
        if self.swept.start == 0 {
            self.walked = (0, 0);
        }
        self.walked.0 += self.touched;
        self.walked.1 += self.pieces;
        let (touched, pieces) = self.walked;
        if !self.ends || pieces < TELLING {
            return;
        }
        let share = touched as f64 / pieces as f64;
        let in_use = share * pages as f64;
        if share * COMMONLY > 1.0 && in_use > room as f64 {
            self.tells_apart_ms = Some((self.interval_ms / 2).max(SHORTEST_MS));
        } else if share * RARELY < 1.0 || in_use * ROOMY < room as f64 {
            // Passes of one order are as long as each other.
            let longer = self.tells_apart_ms.map(|_| 2 * self.interval_ms);
            self.tells_apart_ms = longer.filter(|ms| *ms < LONG_MS);
        }
    }

    /// What was asked for brings nothing.
    pub fn abandon(&mut self) {
        self.purpose = Purpose::Nothing;
        self.hits.clear();
    }

    /// Whether a pass is under way that began more than `ms` before `now`.
    pub fn began_before(&self, now: Millis, ms: u64) -> bool {
        let since = self.under_way_since(now);
        since.is_some_and(|(_, since_ms)| since_ms > ms)
    }

    /// Pieces of the pass that is under way, and for how long it has been, in ms.
    pub fn under_way_since(&self, now: Millis) -> Option<(u64, u64)> {
        (self.purpose != Purpose::Nothing).then(|| (self.all(), now.since(self.began)))
    }

    /// How long the passes of the present glance are asked to be, in ms.
    pub(super) fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    /// Pieces of a pass.
    fn all(&self) -> u64 {
        self.pieces + self.beside
    }

    /// What the present glance is of the whole, if it is a part of that and not of what
    /// was chosen for what it showed: the other sweep's parts would count twice.
    pub(super) fn part(&self, blocks: &Blocks) -> Option<Part> {
        let piece = match self.purpose {
            Purpose::All => 1,
            Purpose::Sweep(0) => self.sweeps[0].piece,
            Purpose::Sweep(_) | Purpose::Attend | Purpose::Nothing => return None,
        };
        Some(Part {
            from: self.swept.start,
            to: self.swept.end,
            is_last: self.ends,
            pages: u64::from(piece) * blocks.block_pages(),
        })
    }

    /// Blocks of pieces in which a page was touched, ascending.
    pub(super) fn hit_blocks(&self) -> Vec<u32> {
        let mut hits = self.hits.clone();
        hits.sort_unstable();
        hits.dedup();
        hits
    }

    /// Whether block `n` is being glanced at.
    pub(super) fn covers(&self, n: u32) -> bool {
        let after = self.runs.partition_point(|(from, _)| *from <= n);
        after > 0 && n < self.runs[after - 1].0 + self.runs[after - 1].1
    }
}

impl Search {
    /// Blocks in a piece of the coarse sweep: as few as it can afford.
    pub(super) fn coarse(&self) -> u32 {
        let affords = COARSE_S * self.purse.rate(View::Glance) as f64 / self.costs.pass(1);
        let mut piece = 1;
        while piece < LARGEST && self.blocks.in_use() as f64 / f64::from(piece) > affords {
            piece *= 2;
        }
        piece
    }

    /// Whether every pass can glance at every block.
    pub(super) fn sees_all(&self) -> bool {
        let pass_us = self.purse.rate(View::Glance) as f64 * self.interval_ms as f64 / 1000.0;
        let fits = self.config.cuts || self.blocks.in_use() <= self.config.spans as u64;
        fits && self.costs.pass(self.blocks.in_use()) <= pass_us
    }

    /// Whether the first glances may soon say where to look: none has ended yet, or something has the attention.
    pub(super) fn first_glances_may_tell(&mut self, now: Millis) -> bool {
        let waiting = !self.glancing.attended.is_empty();
        self.glancing.first.may_tell(now, waiting)
    }

    /// What the glance should do now.
    pub(super) fn plan_glance(&mut self, now: Millis) -> Order {
        if self.glancing.purpose != Purpose::Nothing {
            if !self.is_over() {
                return self.finish(now);
            }
            self.glancing.purpose = Purpose::Nothing;
        }
        let credit = self.purse.credit(View::Glance) as f64;
        let order = self.begin_glance(now, credit);
        match order {
            Order::Keep if self.glancing.at_work => {
                self.glancing.at_work = false;
                Order::Stop
            }
            order => order,
        }
    }

    /// What is at work ends when it is over, and nothing begins.
    pub(super) fn end_glance(&mut self, now: Millis) -> Order {
        if !self.glancing.at_work {
            return Order::Keep;
        }
        if !self.is_over() {
            return self.finish(now);
        }
        let glancing = &mut self.glancing;
        glancing.purpose = Purpose::Nothing;
        glancing.at_work = false;
        Order::Stop
    }

    /// Whether the last pass of the present glance has ended.
    fn is_over(&mut self) -> bool {
        let goes_on = self.pays_for_another(0);
        let glancing = &mut self.glancing;
        if !std::mem::take(&mut glancing.pass_ended) {
            return false;
        }
        if glancing.finishing || glancing.missed {
            return true;
        }
        // Another is under way, wanted or not, and ending takes as long as that does.
        glancing.missed = !goes_on;
        false
    }

    /// Whether the present glance has passes beyond the next `passes`, and can pay for one.
    fn pays_for_another(&self, passes: u32) -> bool {
        let glancing = &self.glancing;
        let credit = self.purse.credit(View::Glance) as f64 + glancing.granted;
        let pass = self.costs.pass(glancing.all());
        glancing.passes_left > passes && credit >= f64::from(passes + 1) * pass
    }

    /// Says of the pass under way that it is the last, if it is and has not long to go.
    fn finish(&mut self, now: Millis) -> Order {
        let is_last = self.is_last();
        // One that should be over may be, and another under way.
        let in_time = (1..=finish_ms(self.glancing.interval_ms)).contains(&self.pass_left_ms(now));
        let due = is_last && in_time;
        if self.glancing.purpose == Purpose::Nothing || self.glancing.finishing || !due {
            return Order::Keep;
        }
        self.glancing.finishing = true;
        Order::Finish
    }

    /// Whether no pass is wanted, or can be paid for, after the one under way.
    fn is_last(&self) -> bool {
        self.glancing.missed || !self.pays_for_another(1)
    }

    /// How long the pass under way should go on, in ms, where it has a processor for itself.
    fn pass_left_ms(&self, now: Millis) -> u64 {
        (self.glancing.began.0 + self.glance_least_ms()).saturating_sub(now.0)
    }

    /// How long a pass of the present glance takes at least, in ms.
    fn glance_least_ms(&self) -> u64 {
        self.glancing.interval_ms + (self.costs.pass(self.glancing.all()) / 1000.0) as u64
    }

    /// Whether the pass under way, which is the last, should have ended long ago: nothing comes any more.
    pub(super) fn last_pass_is_lost(&self, now: Millis) -> bool {
        let late_ms = self.costs.late(View::Glance, self.glancing.all());
        let takes_ms = (self.glancing.interval_ms + late_ms).max(self.glance_least_ms());
        self.glancing.finishing && self.glancing.began_before(now, 2 * takes_ms + LOST_MS)
    }

    /// In how many ms the glance at work should be [planned](Search::plan) again: when its last pass is
    /// nearly over, or a pass should have ended.
    pub(super) fn glance_due_ms(&self, now: Millis) -> Option<u64> {
        let glancing = &self.glancing;
        if !glancing.at_work || glancing.purpose == Purpose::Nothing {
            return None;
        }
        let left_ms = self.pass_left_ms(now);
        let finish_ms = finish_ms(glancing.interval_ms);
        let is_due = !glancing.finishing && self.is_last() && left_ms > 0;
        Some(match is_due {
            true => left_ms.saturating_sub(finish_ms).max(1),
            false => left_ms.max(SOON_MS).max(glancing.interval_ms / SOON_PART),
        })
    }

    /// How many pieces may be glanced at beside what is searched, in passes of `interval_ms`: they cost
    /// a part of what observing may.
    pub fn affords_beside(&self, interval_ms: u64) -> u64 {
        let passes_per_s = 1000.0 / interval_ms.max(1) as f64;
        let told = self.costs.span() / f64::from(self.glancing.purpose.passes());
        let each = passes_per_s * (self.costs.pass(1) + told);
        let us = self.purse.rate_of_all() as f64 / BESIDE_PART;
        ((us / each) as u64).max(BESIDE_LEAST)
    }

    /// So many pieces are glanced at beside those of the present glance, or alone where there is none.
    pub fn glances_beside(&mut self, pieces: u64) {
        self.glancing.beside = pieces;
        if pieces > 0 {
            self.charge_for_spans(View::Glance, pieces);
        }
    }

    fn begin_glance(&mut self, now: Millis, credit: f64) -> Order {
        let beside = self.glancing.beside;
        let sees_all = self.sees_all();
        let waiting = !self.glancing.attended.is_empty();
        let attends = waiting && !sees_all && self.attends_again();
        let passes = f64::from(ATTEND_PASSES);
        let least = passes * self.costs.pass(1) + self.costs.span();
        let all = passes * self.costs.pass(beside) + self.glancing.attended.len() as f64 * least;
        let offer = Offer {
            credit,
            cap: self.purse.cap(View::Glance) as f64,
            told: self.costs.tell(beside),
            told_alone: self.costs.tell(0),
            waits: attends.then_some(all),
        };
        let can = self.blocks.in_use() > 0 && self.costs.known();
        let Some(grant) = offer.grant().filter(|_| can) else {
            return Order::Keep;
        };
        self.glancing.granted = grant.owed;
        let left = grant.passes;
        if sees_all {
            let runs = self.sweep_runs(0, u64::MAX, 1, true);
            (self.glancing.swept, self.glancing.ends) = (0..self.blocks.len(), true);
            return self.tell_glance(now, Purpose::All, runs, 1);
        }
        if attends {
            self.glancing.attends += 1;
            let runs = self.attended_runs((left - passes * self.costs.pass(beside)).max(least));
            return self.tell_glance(now, Purpose::Attend, runs, 1);
        }
        self.glancing.attends = 0;
        let which = self.next_sweep();
        let piece = self.glancing.sweeps[which].piece;
        let each = self.costs.pass(1)
            + if self.config.cuts {
                0.0
            } else {
                self.costs.span()
            };
        let from = self.glancing.sweeps[which].cursor;
        let left = left - self.costs.pass(beside);
        // What has the attention has as much: a sweep that used up all would draw attention to ever
        // more, and leave next to nothing to sample it. What it does not need comes next time.
        let left = if waiting { left / 2.0 } else { left };
        let runs = self.sweep_runs(which, ((left / each) as u64).max(1), piece, false);
        let cursor = self.glancing.sweeps[which].cursor;
        self.glancing.ends = cursor == 0;
        self.glancing.swept = match self.glancing.ends {
            true => from..self.blocks.len(),
            false => from..cursor,
        };
        self.tell_glance(now, Purpose::Sweep(which), runs, piece)
    }

    /// Whether what has the attention is glanced at before another sweep: in turn with sweeps, and more
    /// often while more waits than such a glance takes, since sweeps would only draw attention to more.
    fn attends_again(&self) -> bool {
        let glancing = &self.glancing;
        let many = glancing.took > 0 && glancing.attended.len() > glancing.took;
        glancing.attends == 0 || (many && glancing.attends < ATTENDS)
    }

    /// Which sweep goes on: the coarse one and the other in turn.
    fn next_sweep(&mut self) -> usize {
        let coarse = self.coarse();
        let sweeps = &mut self.glancing.sweeps;
        if sweeps[0].cursor == 0 {
            sweeps[0].piece = coarse;
        }
        if sweeps[1].cursor == 0 {
            // Smaller from round to round, then large again.
            let before = sweeps[1].piece;
            sweeps[1].piece = if before > 1 { before / 4 } else { coarse / 8 }.max(1);
        }
        self.glancing.last = if coarse == 1 {
            0
        } else {
            1 - self.glancing.last
        };
        self.glancing.last
    }

    /// The next `pieces` pieces of a sweep, or of all, as runs of blocks. A sweep
    /// that comes to the end ends there.
    fn sweep_runs(&mut self, which: usize, pieces: u64, piece: u32, all: bool) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut at = if all {
            0
        } else {
            self.glancing.sweeps[which].cursor
        };
        let mut count = 0;
        let end = if all {
            self.blocks.len()
        } else {
            self.blocks.len().min(at + STEPS)
        };
        while at < end && count < pieces && (all || runs.len() < self.config.spans) {
            let block = self.blocks.get(at);
            let joins = runs
                .last()
                .is_some_and(|(from, n)| (from + n) as usize == at);
            // What was found and is still there was promoted in vain.
            if block.speaks() {
                match runs.last_mut() {
                    Some((_, n)) if joins => {
                        *n += 1;
                        count += u64::from((*n - 1) % piece == 0);
                    }
                    _ => {
                        runs.push((at as u32, 1));
                        count += 1;
                    }
                }
            }
            at += 1;
        }
        if !all {
            self.glancing.sweeps[which].cursor = if at >= self.blocks.len() { 0 } else { at };
        }
        runs
    }

    /// As many of the blocks that have the attention as can be paid for.
    fn attended_runs(&mut self, us: f64) -> Vec<(u32, u32)> {
        let attended = &mut self.glancing.attended;
        let from = attended.partition_point(|a| a.block < self.glancing.turn);
        attended.rotate_left(from);
        let passes = f64::from(ATTEND_PASSES) * self.costs.pass(1);
        let (mut left, mut spans, mut taken) = (us, 0, 0);
        let mut last = None;
        for a in attended.iter() {
            let joins = self.config.cuts && last.is_some_and(|last: u32| last + 1 == a.block);
            left -= passes + if joins { 0.0 } else { self.costs.span() };
            spans += usize::from(!joins);
            if left < 0.0 || spans > self.config.spans {
                break;
            }
            taken += 1;
            last = Some(a.block);
        }
        self.glancing.turn = last.map_or(0, |last| last + 1);
        self.glancing.took = taken;
        let mut blocks: Vec<u32> = attended[..taken].iter().map(|a| a.block).collect();
        blocks.sort_unstable();
        let mut runs = Vec::new();
        each_run(&blocks, |from, count| runs.push((from, count)));
        runs
    }

    fn tell_glance(
        &mut self,
        now: Millis,
        purpose: Purpose,
        runs: Vec<(u32, u32)>,
        piece: u32,
    ) -> Order {
        let grain = u64::from(piece) * self.blocks.block_pages();
        let mut spans: Vec<Span> = Vec::new();
        let Search {
            blocks,
            shared,
            turns,
            ..
        } = self;
        let turn = &mut turns[View::Glance as usize];
        *turn += 1;
        for (from, count) in &runs {
            spans_of(blocks, *from, *count, |span| {
                // Not joined with the one before: pieces begin where blocks do.
                shared.outward(span, *turn, |span| spans.push(span));
            });
        }
        if spans.is_empty() {
            return Order::Keep;
        }
        if !self.config.cuts {
            spans = spans
                .iter()
                .flat_map(|span| pieces_of(*span, grain))
                .collect();
        }
        spans.sort_unstable_by_key(|span| (span.owner, span.first));
        let pieces = spans.iter().map(|span| span.pages.div_ceil(grain)).sum();
        self.charge_for_telling(View::Glance, spans.len() as u64);
        let glancing = &mut self.glancing;
        glancing.purpose = purpose;
        glancing.runs = runs;
        glancing.pieces = pieces;
        glancing.hits.clear();
        glancing.touched = 0;
        glancing.passes_left = purpose.passes();
        glancing.at_work = true;
        (glancing.finishing, glancing.missed) = (false, false);
        glancing.pass_ended = false;
        glancing.began = now;
        // Where nothing was found for a while, what all of it costs can be less.
        let quiet = purpose == Purpose::All && now.since(glancing.found_at) >= QUIET_MS;
        let (_, most) = self.config.interval_ms;
        let stretch = if quiet { QUIET_STRETCH } else { 1 };
        let most = most.min(glancing.tells_apart_ms());
        glancing.interval_ms = (self.interval_ms * stretch).min(most);
        Order::Begin(Watch {
            spans,
            grain,
            interval_ms: glancing.interval_ms,
        })
    }

    /// A pass of the glance is complete.
    pub(super) fn glance_done(&mut self, now: Millis) {
        if self.glancing.purpose == Purpose::Nothing {
            // What is beside it goes on alone.
            self.charge(View::Glance, self.costs.pass(self.glancing.beside));
            return;
        }
        let pieces = self.glancing.all();
        self.charge(View::Glance, self.costs.pass(pieces));
        let glancing = &mut self.glancing;
        glancing.first.pass_ended();
        let took = now.since(glancing.began);
        self.costs
            .took(View::Glance, pieces, glancing.interval_ms, took);
        glancing.began = now;
        glancing.pass_ended = true;
        glancing.passes_left = glancing.passes_left.saturating_sub(1);
        let mut hits = std::mem::take(&mut glancing.hits);
        hits.sort_unstable();
        hits.dedup();
        if matches!(glancing.purpose, Purpose::All | Purpose::Sweep(0)) {
            glancing.learn_to_tell_apart(self.blocks.pages(), self.room);
        }
        glancing.touched = 0;
        match self.glancing.purpose {
            Purpose::Sweep(which) if self.glancing.sweeps[which].piece > 1 => {
                for n in &hits {
                    self.attend(*n, 1);
                }
            }
            _ => {
                let known = self.glancing.attended.len();
                for n in &hits {
                    if self.attend(*n, 1) {
                        self.blocks.get_mut(*n as usize).tally.add(true);
                    }
                }
                self.count(&hits, known);
                self.judge_all(now);
            }
        }
        if !hits.is_empty() {
            self.cover.glimpsed(now);
        }
        hits.clear();
        self.glancing.hits = hits;
        // One that was judged and drawn attention to again stands there twice.
        let attended = &mut self.glancing.attended;
        attended.retain(|a| self.blocks.get(a.block as usize).has(Flag::Attended));
        attended.sort_unstable();
        attended.dedup_by_key(|a| a.block);
    }

    /// Counts a pass for the first `known` of those that have the attention, if
    /// they were in it.
    fn count(&mut self, hits: &[u32], known: usize) {
        if self.stood_still(hits, known) {
            return;
        }
        for at in 0..known {
            let n = self.glancing.attended[at].block;
            if self.glancing.covers(n) {
                let hit = hits.binary_search(&n).is_ok();
                self.blocks.get_mut(n as usize).tally.add(hit);
            }
        }
    }

    /// Whether the programs did not run in this pass: of the blocks that are known to be
    /// in use none was. What was not seen then says nothing.
    fn stood_still(&self, hits: &[u32], known: usize) -> bool {
        let attended = self.glancing.attended[..known].iter().map(|a| a.block);
        let in_use = attended.filter(|n| {
            let tally = self.blocks.get(*n as usize).tally;
            tally.hits > 1 && tally.hits > tally.misses && self.glancing.covers(*n)
        });
        let mut seen = 0;
        for n in in_use {
            if hits.binary_search(&n).is_ok() {
                return false;
            }
            seen += 1;
        }
        seen >= STANDING
    }

    fn judge_all(&mut self, now: Millis) {
        for at in 0..self.glancing.attended.len() {
            let Attended { block: n, reach } = self.glancing.attended[at];
            let block = *self.blocks.get(n as usize);
            if !block.has(Flag::Attended) {
                continue;
            }
            if !block.speaks() {
                self.blocks.get_mut(n as usize).set(Flag::Attended, false);
                continue;
            }
            match judge(
                block.tally,
                self.tally_beside(n, -1),
                self.tally_beside(n, 1),
            ) {
                Verdict::Open => continue,
                Verdict::Hot => self.found_whole(now, n, reach),
                Verdict::Mixed => self.be_eager(n as usize, block.tally.share()),
                // What made it eager has gone.
                Verdict::Barren if !block.has(Flag::Unseen) => {
                    self.blocks.get_mut(n as usize).set(Flag::Eager, false);
                }
                Verdict::Barren => {}
            }
            let block = self.blocks.get_mut(n as usize);
            block.set(Flag::Attended, false);
            block.tally = Tally::default();
        }
    }

    /// Block `n` is hot throughout.
    fn found_whole(&mut self, now: Millis, n: u32, reach: u8) {
        let block = self.blocks.get_mut(n as usize);
        block.set(Flag::Found, true);
        for seen in [Flag::Eager, Flag::Unseen, Flag::Seeing] {
            block.set(seen, false);
        }
        let pages = block.extent();
        self.yields[View::Glance as usize].pages += pages as f64;
        self.shape.add(false);
        self.found.push_back((now, n));
        self.glancing.found_at = now;
        let mut spans = Vec::new();
        spans_of(&self.blocks, n, 1, |span| push(&mut spans, span));
        for span in spans {
            self.find(span, false);
        }
        self.draw_attention(n, reach);
        self.call_the_mute(n, reach);
    }

    /// Has a look see the blocks on either side of `n` of which samples say nothing.
    fn call_the_mute(&mut self, n: u32, reach: u8) {
        for by in (1..=i64::from(reach)).flat_map(|by| [-by, by]) {
            let there = self.blocks.beside(n as usize, by);
            if let Some(there) = there.filter(|there| self.blocks.get(*there).is_mute()) {
                self.be_eager(there, EAGER_SHARE);
            }
        }
    }

    fn tally_beside(&self, n: u32, by: i64) -> Tally {
        let Some(there) = self.blocks.beside(n as usize, by) else {
            return Tally::default();
        };
        let block = self.blocks.get(there);
        if block.has(Flag::Found) {
            Tally::FOUND
        } else {
            block.tally
        }
    }

    /// Draws attention to the `reach` blocks on either side of `n`.
    pub(super) fn draw_attention(&mut self, n: u32, reach: u8) {
        for by in (1..=i64::from(reach)).flat_map(|by| [-by, by]) {
            if let Some(there) = self.blocks.beside(n as usize, by) {
                self.attend(there as u32, (reach * 2).min(REACH));
            }
        }
    }

    /// Draws attention to block `n`, if samples of it say anything and nothing
    /// else is known of it; whether that was new.
    fn attend(&mut self, n: u32, reach: u8) -> bool {
        let full = self.glancing.attended.len() >= self.config.attention;
        let block = self.blocks.get_mut(n as usize);
        // What a look was asked to see is judged by that.
        let is_asked = block.has(Flag::Unseen) || block.has(Flag::Seeing);
        if full || !block.speaks() || block.has(Flag::Attended) || is_asked {
            return false;
        }
        block.set(Flag::Attended, true);
        block.tally = Tally::default();
        self.glancing.attended.push(Attended { block: n, reach });
        true
    }
}

/// Cuts `span` into pieces of `grain` pages.
fn pieces_of(span: Span, grain: u64) -> impl Iterator<Item = Span> {
    (0..span.pages.div_ceil(grain)).map(move |k| Span {
        owner: span.owner,
        first: memtide_core::tiering::space::VirtualPage(span.first.0 + k * grain),
        pages: grain.min(span.pages - k * grain),
    })
}
