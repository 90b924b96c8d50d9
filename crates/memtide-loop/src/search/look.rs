//! The look: a chunk of blocks, page by page, until what was touched in it is
//! confirmed.

use super::blocks::{BLOCK_PAGES, Flag};
use super::{EAGER_SHARE, LOST_MS, Order, Search, Span, View, Watch, finish_ms, spans_of};
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::Millis;

const WORDS: usize = (BLOCK_PAGES / 64) as usize;

/// One bit for each page of a block.
type Bits = [u64; WORDS];

/// Where the present look stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none.
    #[default]
    Resting,
    /// The first pass is under way.
    First,
    /// It is over: something was touched.
    Confirm,
    /// The second pass is under way.
    Second,
    /// A pass is under way for somebody who borrows the look; `last` is the second.
    Lent { last: bool },
}

/// The present look.
#[derive(Debug)]
pub struct Look {
    pub(super) stage: Stage,
    /// Ascending.
    blocks: Vec<u32>,
    /// Touched in the first pass.
    seen: Vec<Bits>,
    /// Touched in the present one.
    now: Vec<Bits>,
    /// Whether the source is at work, and whether it was told that the present pass is the last.
    at_work: bool,
    finishing: bool,
    /// Whether first passes show so little that the second takes in only that, or is left out.
    narrows: bool,
    /// Whether the last one that is over found a page.
    confirmed: bool,
    /// Pages in a pass.
    pages: u64,
    began: Millis,
    interval_ms: u64,
}

impl Look {
    /// Each of the pages `lo..hi` of block `n` was touched.
    pub fn touched(&mut self, n: u32, lo: u16, hi: u16) {
        if let Ok(at) = self.blocks.binary_search(&n) {
            for page in usize::from(lo)..usize::from(hi) {
                self.now[at][page / 64] |= 1 << (page % 64);
            }
        }
    }
}

/// Pages that a look's first pass saw in use, and those that both did.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    first: u32,
    both: u32,
}

impl Default for Look {
    /// None. Most memory is idle, and first passes show little.
    fn default() -> Look {
        Look {
            stage: Stage::default(),
            blocks: Vec::new(),
            seen: Vec::new(),
            now: Vec::new(),
            at_work: false,
            finishing: false,
            narrows: true,
            confirmed: false,
            pages: 0,
            began: Millis(0),
            interval_ms: 0,
        }
    }
}

impl Look {
    /// Whether another pass over the same is not wanted after the one under way.
    fn is_last(&self) -> bool {
        match self.stage {
            Stage::Lent { last } => last,
            stage => stage == Stage::Second || self.narrows,
        }
    }

    /// The source is at work for somebody else: two passes of `pages` pages.
    pub(super) fn lend(&mut self, pages: u64, interval_ms: u64, now: Millis) {
        (self.stage, self.confirmed) = (Stage::Lent { last: false }, false);
        (self.at_work, self.finishing) = (true, false);
        (self.pages, self.interval_ms, self.began) = (pages, interval_ms, now);
    }

    /// Whether the one that is over found a page.
    pub(super) fn found(&mut self, confirmed: bool) {
        self.confirmed = confirmed;
    }

    /// What was asked for brings nothing. These blocks are not looked at.
    pub fn abandon(&mut self) -> Vec<u32> {
        self.stage = Stage::Resting;
        std::mem::take(&mut self.blocks)
    }

    /// Whether a pass is under way that began more than `ms` before `now`.
    pub fn began_before(&self, now: Millis, ms: u64) -> bool {
        let since = self.under_way_since(now);
        since.is_some_and(|(_, since_ms)| since_ms > ms)
    }

    /// Pages of the pass that is under way, and for how long it has been, in ms.
    pub fn under_way_since(&self, now: Millis) -> Option<(u64, u64)> {
        let under_way = matches!(
            self.stage,
            Stage::First | Stage::Second | Stage::Lent { .. }
        );
        under_way.then(|| (self.pages, now.since(self.began)))
    }

    /// Whether the source makes passes that may bring `reports` and more.
    pub fn may_bring(&self, reports: u64) -> bool {
        self.stage != Stage::Resting && self.pages >= reports
    }

    /// Pages of a pass, and how long it was to be.
    pub fn size(&self) -> (u64, u64) {
        (self.pages, self.interval_ms)
    }
}

/// A block of which most is hot, and one page in so many was seen in use once and not twice, has the next
/// turn again; one of which most is in use and less was seen twice, where the cover finds nothing.
const RAGGED: u64 = 32;
/// A block in which more than one page in so many that were touched was touched twice holds pages in
/// steady use; in others chance touches may be all there is.
const STEADY: u32 = 8;
/// Touched pages that must be there for their share to say something.
const TELLING: u32 = 16;
/// Where no look saw a page twice for so long, in ms, and so many saw pages once, passes are too
/// short.
const NOTHING_MS: u64 = 10_000;
const NOTHING_LOOKS: u32 = 4;
/// And for so long they stay longer then, in ms.
const HOLD_MS: u64 = 60_000;

impl Search {
    /// What the look should do now.
    pub(super) fn plan_look(&mut self, now: Millis) -> Order {
        match self.look.stage {
            Stage::First | Stage::Second | Stage::Lent { .. } => self.finish_look(now),
            Stage::Confirm => self.confirm(now),
            Stage::Resting => {
                self.purse.hold_at_least(2 * self.least_us() as u64);
                let order = self.begin_look(now);
                match order {
                    Order::Keep if self.look.at_work => {
                        self.look.at_work = false;
                        Order::Stop
                    }
                    order => order,
                }
            }
        }
    }

    /// Says of the pass under way that it is the last before the source is told anew, if it is and has
    /// not long to go.
    fn finish_look(&mut self, now: Millis) -> Order {
        // One that should be over may be, and another under way.
        let left_ms = self.look_left_ms(now);
        let in_time = (1..=finish_ms(self.look.interval_ms)).contains(&left_ms);
        let due = self.look.is_last() && in_time;
        if self.look.finishing || !due {
            return Order::Keep;
        }
        self.look.finishing = true;
        Order::Finish
    }

    /// How long the pass under way should go on, in ms, where it has a processor for itself.
    fn look_left_ms(&self, now: Millis) -> u64 {
        (self.look.began.0 + self.look_least_ms()).saturating_sub(now.0)
    }

    /// How long a pass of the present look takes at least, in ms.
    fn look_least_ms(&self) -> u64 {
        self.look.interval_ms + (self.costs.look(self.look.pages) / 1000.0) as u64
    }

    /// Whether the pass under way, which is the last, should have ended long ago: nothing comes any more.
    pub(super) fn last_look_is_lost(&self, now: Millis) -> bool {
        let takes_ms = self.look_pass_ms().max(self.look_least_ms());
        self.look.finishing && self.look.began_before(now, 2 * takes_ms + LOST_MS)
    }

    /// In how many ms the look at work should be [planned](Search::plan) again: when its last pass is
    /// nearly over. When a pass has ended, its reports tell.
    pub(super) fn look_due_ms(&self, now: Millis) -> Option<u64> {
        let look = &self.look;
        let under_way = !matches!(look.stage, Stage::Resting | Stage::Confirm);
        let finishes = under_way && !look.finishing && look.is_last();
        let left_ms = self.look_left_ms(now);
        let finish_ms = finish_ms(look.interval_ms);
        (finishes && left_ms > 0).then(|| left_ms.saturating_sub(finish_ms).max(1))
    }

    /// The source is at work for a look that somebody else began. It ends as one of our own
    /// does: with the next plan, unless another look takes its place.
    pub fn inherits_look(&mut self) {
        self.look.at_work = true;
    }

    /// The smallest chunk: one block, twice, and begun. To begin must not cost more than to look, where a look may
    /// be larger.
    fn least_us(&self) -> f64 {
        let Search { costs, blocks, .. } = self;
        let begun = costs.tell(1);
        let block = costs.look(blocks.block_pages());
        let most = costs.look(self.config.look_pages.min(blocks.pages()));
        begun + 2.0 * block.max((begun / 2.0).min(most))
    }

    /// Begins with the next chunk, if it can be paid for.
    fn begin_look(&mut self, now: Millis) -> Order {
        let credit = self.purse.credit(View::Look) as f64;
        if credit < self.least_us() || self.looks_wait {
            return Order::Keep;
        }
        let block = self.blocks.block_pages();
        let most = if self.costs.known() {
            self.config.look_pages
        } else {
            block
        };
        let pages = ((credit - self.costs.tell(1)) / (2.0 * self.costs.look(1))) as u64;
        let pages = pages
            .min(most)
            .min(self.costs.within(View::Look, self.longest_ms()))
            .max(block);
        let mut chosen = std::mem::take(&mut self.look.blocks);
        chosen.clear();
        let cover = self.cover_pages(now, credit);
        self.choose(now, pages, cover, &mut chosen);
        self.look.blocks = chosen;
        if self.look.blocks.is_empty() {
            return Order::Keep;
        }
        self.turns[View::Look as usize] += 1;
        let spans = self.chosen_spans();
        let Search { blocks, look, .. } = self;
        for n in &look.blocks {
            let block = blocks.get_mut(*n as usize);
            block.set(
                Flag::Seeing,
                block.has(Flag::Unseen) || block.has(Flag::Seeing),
            );
            block.set(Flag::Unseen, false);
        }
        look.seen.clear();
        look.now.clear();
        look.now.resize(look.blocks.len(), [0; WORDS]);
        look.stage = Stage::First;
        self.tell_look(now, spans)
    }

    /// Pages that the cover may take of a look. While samples may soon say where to look, half of what the account
    /// can hold waits for that: a first look in the dark would leave nothing for the second.
    fn cover_pages(&mut self, now: Millis, credit: f64) -> u64 {
        // What a look costs is known only after a look.
        if !self.costs.known() || !self.first_glances_may_tell(now) {
            return u64::MAX;
        }
        let kept = self.purse.cap(View::Look) as f64 / 2.0;
        match credit - kept + 1.0 >= self.least_us() {
            true => ((credit - kept - self.costs.tell(1)) / (2.0 * self.costs.look(1))) as u64,
            false => 0,
        }
    }

    /// The slow pages of the blocks of the look.
    fn chosen_spans(&self) -> Vec<Span> {
        let turn = self.turns[View::Look as usize];
        let mut spans = Vec::new();
        each_run(&self.look.blocks, |from, count| {
            spans_of(&self.blocks, from, count, |span| {
                self.shared
                    .outward(span, turn, |span| push(&mut spans, span));
            });
        });
        spans
    }

    /// Has the second pass take in only what the first saw touched where that costs less. It goes on with
    /// all of it if it has begun to.
    fn confirm(&mut self, now: Millis) -> Order {
        self.look.stage = Stage::Second;
        let gap = self.costs.gap();
        let mut spans: Vec<Span> = Vec::new();
        let Search {
            blocks,
            shared,
            look,
            turns,
            ..
        } = &*self;
        let turn = &turns[View::Look as usize];
        for (n, bits) in look.blocks.iter().zip(&look.seen) {
            let Some((owner, base)) = blocks.locate(*n as usize) else {
                continue;
            };
            each_bits(bits, gap, |lo, hi| {
                let span = Span {
                    owner,
                    first: VirtualPage(base.0 + lo),
                    pages: hi - lo,
                };
                shared.outward(span, *turn, |span| push(&mut spans, span));
            });
        }
        let pages: u64 = spans.iter().map(|span| span.pages).sum();
        let anew = self.costs.tell(spans.len() as u64) + self.costs.look(pages);
        let fits = spans.len() <= self.config.spans;
        self.look.narrows = fits && anew < self.costs.look(self.look.pages);
        if !self.look.finishing {
            // The second is under way.
            self.look.began = now;
            return Order::Keep;
        }
        if !self.look.narrows {
            spans = self.chosen_spans();
        }
        self.tell_look(now, spans)
    }

    fn tell_look(&mut self, now: Millis, mut spans: Vec<Span>) -> Order {
        spans.sort_unstable_by_key(|span| (span.owner, span.first));
        let pages = spans.iter().map(|span| span.pages).sum();
        self.charge_for_telling(View::Look, spans.len() as u64);
        self.look.pages = pages;
        self.look.began = now;
        self.look.interval_ms = self.own_interval_ms();
        (self.look.at_work, self.look.finishing) = (true, false);
        Order::Begin(Watch {
            spans,
            grain: 1,
            interval_ms: self.look.interval_ms,
        })
    }

    /// How much later than asked for a pass may be, in ms: pages that are touched now and then look hot
    /// in long passes.
    pub(super) fn longest_ms(&self) -> u64 {
        (self.config.window_ms.0 / 2).saturating_sub(2 * self.interval_ms)
    }

    /// How long a pass of a look should be.
    pub(super) fn own_interval_ms(&self) -> u64 {
        // A look sees each page twice: it may be longer than a glance.
        let most = self.glancing.tells_apart_ms().saturating_mul(2);
        self.interval_ms.min(most)
    }

    /// A pass of the look is complete.
    pub(super) fn look_done(&mut self, now: Millis) {
        if matches!(self.look.stage, Stage::Resting | Stage::Confirm) {
            return;
        }
        let us = self.costs.look(self.look.pages);
        self.charge(View::Look, us);
        let look = &mut self.look;
        let took = now.since(look.began);
        self.costs
            .took(View::Look, look.pages, look.interval_ms, took);
        if let Stage::Lent { last } = look.stage {
            look.began = now;
            look.stage = match last {
                true => Stage::Resting,
                false => Stage::Lent { last: true },
            };
        } else if look.stage == Stage::First {
            std::mem::swap(&mut look.seen, &mut look.now);
            look.now.clear();
            look.now.resize(look.blocks.len(), [0; WORDS]);
            look.stage = Stage::Confirm;
            if look.seen.iter().flatten().all(|bits| *bits == 0) {
                look.narrows = true;
                self.settle(now);
            }
        } else {
            self.settle(now);
        }
    }

    /// Whether the source is still at work for a look that is over and found something. Then it is to
    /// be stopped before anything else is done: moving what was found takes its time, and passes that
    /// nobody needs are paid for, too. Said once.
    pub fn look_is_spent(&mut self) -> bool {
        let spent = self.look.at_work && self.look.stage == Stage::Resting && self.look.confirmed;
        if spent {
            self.look.at_work = false;
        }
        spent
    }

    /// Both passes are over, or nothing was touched in the first.
    fn settle(&mut self, now: Millis) {
        self.look.stage = Stage::Resting;
        let blocks = std::mem::take(&mut self.look.blocks);
        let seen = std::mem::take(&mut self.look.seen);
        let again = std::mem::take(&mut self.look.now);
        let (mut first, mut both) = (0, 0);
        let mut steady = Seen::default();
        for ((n, seen), again) in blocks.iter().zip(&seen).zip(&again) {
            let mut hot = *seen;
            hot.iter_mut()
                .zip(again)
                .for_each(|(hot, again)| *hot &= again);
            let (touched, pages) = (count(seen), count(&hot));
            first += touched;
            both += pages;
            if pages * STEADY > touched {
                steady.first += touched;
                steady.both += pages;
            }
            let block = self.blocks.get_mut(*n as usize);
            if block.pages == 0 {
                continue;
            }
            // What was asked for since this look began waits for another one.
            block.set(Flag::Eager, block.has(Flag::Unseen));
            block.set(Flag::Seeing, false);
            if touched > 0 || count(again) > 0 {
                block.rest = 0;
            } else {
                block.rest = (block.rest + 1).min(2);
            }
            let extent = block.extent();
            let slow = block.pages;
            let rich = u64::from(pages) * 8 > extent;
            if pages > 0 {
                self.shape.add(!rich);
                self.report(*n, &hot);
            }
            if rich {
                self.draw_attention(*n, 2);
            }
            let once = seen.iter().zip(again).map(|(seen, again)| seen ^ again);
            let once: u32 = once.map(u64::count_ones).sum();
            // No sample tells of the rest: much of it is home by then.
            if u64::from(once) * RAGGED > extent {
                let slow_pages = u64::from(slow);
                if u64::from(pages) * 2 > extent {
                    self.be_eager(*n as usize, EAGER_SHARE);
                } else if u64::from(pages) * 8 > slow_pages
                    && u64::from(pages + once) * 2 > slow_pages
                {
                    // Where few pages are seen twice, those that flicker would keep the cover waiting.
                    self.cover.is_ragged(*n, slow);
                }
            }
        }
        self.look.confirmed = both > 0;
        self.cover.looked(u64::from(both));
        self.yields[View::Look as usize].pages += f64::from(both);
        self.lengthen(Seen { first, both }, steady, now);
        (self.look.blocks, self.look.seen, self.look.now) = (blocks, seen, again);
        self.look.began = now;
    }

    fn report(&mut self, n: u32, hot: &Bits) {
        let Some((owner, base)) = self.blocks.locate(n as usize) else {
            return;
        };
        each_bits(hot, 0, |lo, hi| {
            let span = Span {
                owner,
                first: VirtualPage(base.0 + lo),
                pages: hi - lo,
            };
            self.find(span, true);
        });
    }

    /// Makes passes longer where the second does not see what the first saw, and
    /// shorter again where it sees all; or next to nothing, since then chance
    /// touches are all there is, and longer passes would see more of them.
    ///
    /// Where fast memory is full, passes are as short as may be, unless no look saw any page
    /// twice for long. Then they stay as long as it takes for a while.
    fn lengthen(&mut self, all: Seen, steady: Seen, now: Millis) {
        let Seen { first, both } = all;
        let (least, most) = self.config.interval_ms;
        if both > 0 {
            (self.confirmed_at, self.unconfirmed) = (now, 0);
        } else if first >= TELLING {
            self.unconfirmed = self.unconfirmed.saturating_add(1);
        }
        if self.room_is_short {
            let holds = self.lengthened_at.is_some_and(|at| now.since(at) < HOLD_MS);
            let nothing = now.since(self.confirmed_at) >= NOTHING_MS;
            if both > 0 && !holds {
                self.interval_ms = (self.interval_ms * 3 / 4).max(least);
            } else if nothing && self.unconfirmed >= NOTHING_LOOKS {
                self.interval_ms = (self.interval_ms * 2).min(most);
                self.lengthened_at = Some(now);
            }
            return;
        }
        if first < TELLING {
            return;
        }
        // What was touched by chance says nothing of how often hot pages are in use.
        let (most_of, all_of) = match steady.first >= TELLING {
            true => (steady.both, steady.first),
            false => (both, first),
        };
        if most_of * 50 >= all_of * 49 || both * 64 < first {
            self.interval_ms = (self.interval_ms * 3 / 4).max(least);
        } else if most_of * 10 < all_of * 9 {
            self.interval_ms = (self.interval_ms * 2).min(most);
        }
    }
}

/// Adds `span` to `spans`, joined with the last if it continues it.
pub(super) fn push(spans: &mut Vec<Span>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.owner == span.owner && last.first.0 + last.pages == span.first.0 => {
            last.pages += span.pages;
        }
        _ => spans.push(span),
    }
}

/// Gives runs of successive numbers to `visit`: the first and how many.
pub(super) fn each_run(numbers: &[u32], mut visit: impl FnMut(u32, u32)) {
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        visit(run[0], run.len() as u32);
    }
}

fn count(bits: &Bits) -> u32 {
    bits.iter().map(|word| word.count_ones()).sum()
}

/// Gives runs of set bits to `visit`, those joined that are no more than `gap`
/// apart: the first and one past the last.
fn each_bits(bits: &Bits, gap: u64, mut visit: impl FnMut(u64, u64)) {
    let mut open: Option<(u64, u64)> = None;
    for (w, word) in bits.iter().enumerate() {
        let mut left = *word;
        while left != 0 {
            let at = w as u64 * 64 + u64::from(left.trailing_zeros());
            left &= left - 1;
            match &mut open {
                Some((_, end)) if at <= *end + gap => *end = at + 1,
                _ => {
                    if let Some((lo, hi)) = open.replace((at, at + 1)) {
                        visit(lo, hi);
                    }
                }
            }
        }
    }
    if let Some((lo, hi)) = open {
        visit(lo, hi);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_become_runs() {
        let mut bits = [0; WORDS];
        bits[0] = 0b1011;
        bits[1] = 1;
        bits[7] = 1 << 63;
        let runs = |gap| {
            let mut runs = Vec::new();
            each_bits(&bits, gap, |lo, hi| runs.push((lo, hi)));
            runs
        };
        assert_eq!(runs(0), [(0, 2), (3, 4), (64, 65), (511, 512)]);
        assert_eq!(runs(1), [(0, 4), (64, 65), (511, 512)]);
        assert_eq!(runs(60), [(0, 65), (511, 512)]);
    }

    #[test]
    fn successive_numbers_are_a_run() {
        let mut runs = Vec::new();
        each_run(&[3, 4, 5, 9, 11, 12], |from, count| {
            runs.push((from, count))
        });
        assert_eq!(runs, [(3, 3), (9, 1), (11, 2)]);
    }
}
