//! The look: a chunk of blocks, page by page, until what was touched in it is
//! confirmed.
//!
//! Two short passes show what is in steady use. Pages that only one of them saw
//! were touched by chance, or are in use now and then. Which of the two shows a
//! *longer* pass over just these, and if that leaves many open a still longer
//! one. Where such a pass confirmed few, it was chance, and the next looks do
//! without; ever more of them, if it is so each time.

use super::blocks::{BLOCK, Flag};
use super::{Order, Search, Span, View, Watch, spans_of};
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::Millis;

const WORDS: usize = (BLOCK / 64) as usize;

/// One bit for each page of a block.
type Bits = [u64; WORDS];

/// Where the present look stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// There is none.
    #[default]
    Resting,
    /// A pass is under way.
    Passing,
    /// One is over, and another is to follow.
    Between,
}

/// The present look.
#[derive(Debug, Default)]
pub struct Look {
    stage: Stage,
    /// Ascending.
    blocks: Vec<u32>,
    /// Touched in any pass that is over.
    seen: Vec<Bits>,
    /// Touched in two of them.
    hot: Vec<Bits>,
    /// Touched in the present one.
    now: Vec<Bits>,
    /// Passes that are over.
    passes: u32,
    /// Pages that the first pass saw, and of these the second.
    first: u32,
    both: u32,
    /// Whether the source is at work.
    at_work: bool,
    /// Pages in a pass.
    pages: u64,
    began: Millis,
    interval_ms: u64,
    /// So many looks do without longer passes, and so many are left.
    spare: u32,
    spare_left: u32,
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

impl Look {
    /// What was asked for brings nothing.
    pub fn abandon(&mut self) {
        self.stage = Stage::Resting;
        self.blocks.clear();
    }

    /// Whether a pass is under way that began more than `ms` before `now`.
    pub fn began_before(&self, now: Millis, ms: u64) -> bool {
        self.stage == Stage::Passing && now.since(self.began) > ms
    }

    /// Whether there is none.
    pub fn rests(&self) -> bool {
        self.stage == Stage::Resting
    }

    /// Whether one was over so long ago that what glances see since then is not
    /// what it found.
    pub fn is_history(&self, now: Millis) -> bool {
        self.rests() && now.since(self.began) >= HISTORY_MS
    }

    /// What the pass under way should have cost by now, in microseconds.
    pub fn under_way(&self, costs: &super::Costs, now: Millis) -> f64 {
        match self.stage {
            Stage::Passing => {
                let ms = self.interval_ms + costs.late(View::Look, self.pages);
                costs.pass(self.pages) * part(self.began, ms, now)
            }
            Stage::Resting | Stage::Between => 0.0,
        }
    }

    /// Pages of a pass, and how long it was to be.
    pub fn size(&self) -> (u64, u64) {
        (self.pages, self.interval_ms)
    }
}

/// A look is worth to be begun that costs this many times what beginning it does.
const WORTH: f64 = 8.0;
/// A source that cannot cut has to visit more than it was asked for, the more the
/// less that is, so up to this many pages are looked at together before it is
/// known what that costs: 256 MiB.
const TOGETHER: u64 = 65_536;

/// Touched pages that must be there for their share to say something.
const TELLING: u32 = 16;
/// How long what a look found takes to leave, and a glance that began before, in
/// ms.
const HISTORY_MS: u64 = 500;
/// Passes of a look, at most.
const PASSES: u32 = 4;
/// How many times as long as the first two the third and the fourth are.
const LONGER: [u64; 2] = [6, 20];
/// A longer pass is worth it for more than one page in so many of those found.
const STRAGGLERS: u32 = 50;
/// A longer pass that confirms fewer than one page in so many was in vain.
const IN_VAIN: u32 = 4;
/// The most looks in a row that do without.
const SPARE: u32 = 63;

impl Search {
    /// What the look should do now.
    pub(super) fn plan_look(&mut self, now: Millis) -> Order {
        match self.look.stage {
            Stage::Passing => Order::Keep,
            Stage::Between => self.confirm(now),
            Stage::Resting => {
                let worth = self.worth_us();
                self.purse.hold_at_least(View::Look, 2 * worth as u64);
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

    /// What a look should cost at least, in microseconds: most of it should go into
    /// looking. If that is more than there is to look at, all of it.
    fn worth_us(&self) -> f64 {
        let tell = self.costs.tell(1);
        let least = tell + 2.0 * self.costs.pass(BLOCK);
        match self.together() {
            // The first pass; there may be no second.
            Some(all) if self.costs.known() => tell + self.costs.pass(all),
            Some(_) => least,
            None => {
                let all = tell + 2.0 * self.costs.pass(self.blocks.pages());
                (WORTH * tell).min(all).max(least)
            }
        }
    }

    /// All pages, where a look at fewer would cost no less.
    fn together(&self) -> Option<u64> {
        let all = self.blocks.pages();
        let most = match self.costs.known() {
            true => self.config.look_pages,
            false => TOGETHER,
        };
        (!self.config.cuts && all <= most.min(self.config.look_pages)).then_some(all)
    }

    /// Begins with the next chunk, if it can be paid for.
    fn begin_look(&mut self, now: Millis) -> Order {
        let credit = self.purse.credit(View::Look) as f64;
        if credit < self.worth_us() || self.looks_wait {
            return Order::Keep;
        }
        // Pages that are touched now and then look hot in long passes.
        let longest = (self.config.window_ms.0 / 2).saturating_sub(self.interval_ms);
        let most = if self.costs.known() {
            self.config.look_pages
        } else {
            BLOCK
        };
        let pages = ((credit - self.costs.tell(1)) / (2.0 * self.costs.pass(1))) as u64;
        let pages = match self.together() {
            Some(all) => all,
            None => pages
                .min(most)
                .min(self.costs.within(View::Look, longest))
                .max(BLOCK),
        };
        let mut chosen = std::mem::take(&mut self.look.blocks);
        chosen.clear();
        self.choose(now, pages, &mut chosen);
        self.look.blocks = chosen;
        if self.look.blocks.is_empty() {
            return Order::Keep;
        }
        let mut spans = Vec::new();
        let Search {
            blocks,
            shared,
            look,
            turns,
            ..
        } = self;
        let turn = &mut turns[View::Look as usize];
        *turn += 1;
        each_run(&look.blocks, |from, count| {
            spans_of(blocks, from, count, |span| {
                shared.outward(span, *turn, |span| push(&mut spans, span));
            });
        });
        for bits in [&mut look.seen, &mut look.hot, &mut look.now] {
            bits.clear();
            bits.resize(look.blocks.len(), [0; WORDS]);
        }
        (look.passes, look.first, look.both) = (0, 0, 0);
        self.tell_look(now, spans, self.interval_ms)
    }

    /// Has the next pass take in only what was touched once, or goes on if telling
    /// that would cost more.
    fn confirm(&mut self, now: Millis) -> Order {
        let interval_ms = self.next_interval_ms();
        let gap = self.costs.gap();
        let mut spans: Vec<Span> = Vec::new();
        let Search {
            blocks,
            shared,
            look,
            turns,
            ..
        } = self;
        let turn = &turns[View::Look as usize];
        for ((n, seen), hot) in look.blocks.iter().zip(&look.seen).zip(&look.hot) {
            let Some((owner, base)) = blocks.locate(*n as usize) else {
                continue;
            };
            let open: Bits = std::array::from_fn(|word| seen[word] & !hot[word]);
            each_bits(&open, gap, |lo, hi| {
                let span = Span {
                    owner,
                    first: VirtualPage(base.0 + lo),
                    pages: hi - lo,
                };
                shared.outward(span, *turn, |span| push(&mut spans, span));
            });
        }
        let pages: u64 = spans.iter().map(|span| span.pages).sum();
        let anew = self.costs.tell(spans.len() as u64) + self.costs.pass(pages);
        let dearer = spans.len() > self.config.spans || anew >= self.costs.pass(self.look.pages);
        if interval_ms == self.look.interval_ms && dearer {
            self.look.stage = Stage::Passing;
            self.look.began = now;
            return Order::Keep;
        }
        if dearer && spans.len() > self.config.spans {
            // All of it, and longer.
            spans.clear();
            each_run(&self.look.blocks, |from, count| {
                spans_of(&self.blocks, from, count, |span| {
                    self.shared
                        .outward(span, self.turns[View::Look as usize], |span| {
                            push(&mut spans, span);
                        });
                });
            });
        }
        self.tell_look(now, spans, interval_ms)
    }

    /// How long the next pass of the present look is to be.
    fn next_interval_ms(&self) -> u64 {
        let longer = match self.look.passes {
            0 | 1 => 1,
            n => LONGER[(n as usize - 2).min(1)],
        };
        (self.interval_ms * longer).min(self.config.interval_ms.1)
    }

    fn tell_look(&mut self, now: Millis, mut spans: Vec<Span>, interval_ms: u64) -> Order {
        spans.sort_unstable_by_key(|span| (span.owner, span.first));
        let pages = spans.iter().map(|span| span.pages).sum();
        let us = self.costs.tell(spans.len() as u64);
        self.charge_tell(View::Look, us);
        self.look.stage = Stage::Passing;
        self.look.pages = pages;
        self.look.began = now;
        self.look.interval_ms = interval_ms;
        self.look.at_work = true;
        Order::Begin(Watch {
            spans,
            grain: 1,
            interval_ms,
        })
    }

    /// A pass of the look is complete.
    pub(super) fn look_done(&mut self, now: Millis) {
        if self.look.stage != Stage::Passing {
            return;
        }
        let us = self.costs.pass(self.look.pages);
        self.charge_pass(View::Look, us);
        let took = now.since(self.look.began);
        let (pages, interval_ms) = self.look.size();
        self.costs.took(View::Look, pages, interval_ms, took);
        let [touched, open, confirmed] = self.count_pass();
        let look = &mut self.look;
        look.passes += 1;
        let hot: u32 = look.hot.iter().map(count).sum();
        let goes_on = match look.passes {
            1 => {
                look.first = touched;
                touched > 0
            }
            passes => {
                if passes == 2 {
                    look.both = confirmed;
                } else if confirmed * IN_VAIN < open {
                    look.spare = (2 * look.spare + 1).min(SPARE);
                    look.spare_left = look.spare;
                } else {
                    look.spare = 0;
                }
                let left: u32 = look.seen.iter().map(count).sum::<u32>() - hot;
                let helps = passes == 2 || confirmed > 0;
                // A crowd that was seen once was mostly chance; where it was not, the
                // passes of the next look are longer anyway.
                let stragglers = left >= TELLING && left <= hot && left * STRAGGLERS > hot;
                helps && passes < PASSES && stragglers
            }
        };
        if !goes_on {
            return self.settle(now);
        }
        if self.look.passes >= 2 && !self.affords_longer() {
            return self.settle(now);
        }
        self.look.stage = Stage::Between;
    }

    /// Counts the present pass in. Pages that it saw in use, those that were seen
    /// once before, and of these those that it saw again: they are found.
    fn count_pass(&mut self) -> [u32; 3] {
        let mut sums = [0; 3];
        for at in 0..self.look.blocks.len() {
            let look = &mut self.look;
            let (seen, hot, now) = (&mut look.seen[at], &mut look.hot[at], &mut look.now[at]);
            let open: Bits = std::array::from_fn(|word| seen[word] & !hot[word]);
            let found: Bits = std::array::from_fn(|word| open[word] & now[word]);
            for word in 0..WORDS {
                seen[word] |= now[word];
                hot[word] |= found[word];
            }
            let pages = [count(now), count(&open), count(&found)];
            *now = [0; WORDS];
            sums.iter_mut().zip(pages).for_each(|(sum, n)| *sum += n);
            let n = look.blocks[at];
            if pages[2] > 0 && self.blocks.get(n as usize).pages > 0 {
                self.report(n, &found);
            }
        }
        sums
    }

    /// Whether a longer pass is to follow: not if the last ones were in vain, and
    /// only if it can be paid for.
    fn affords_longer(&mut self) -> bool {
        let look = &mut self.look;
        if look.passes == 2 && look.spare_left > 0 {
            look.spare_left -= 1;
            return false;
        }
        let us = self.costs.tell(1) + self.costs.pass(self.look.pages);
        self.purse.credit(View::Look) as f64 >= us
    }

    /// The look is over.
    fn settle(&mut self, now: Millis) {
        self.look.stage = Stage::Resting;
        let blocks = std::mem::take(&mut self.look.blocks);
        let mut found = 0;
        for (at, n) in blocks.iter().enumerate() {
            let (seen, pages) = (count(&self.look.seen[at]), count(&self.look.hot[at]));
            found += pages;
            let block = self.blocks.get_mut(*n as usize);
            if block.pages == 0 {
                continue;
            }
            block.set(Flag::Eager, false);
            block.rest = match seen {
                0 => (block.rest + 1).min(2),
                _ => 0,
            };
            if u64::from(pages) * 8 > block.extent() {
                self.draw_attention(*n, 2);
            }
        }
        self.cover.looked(u64::from(found));
        self.yields[View::Look as usize].pages += f64::from(found);
        self.lengthen(self.look.first, self.look.both);
        self.look.blocks = blocks;
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
    fn lengthen(&mut self, first: u32, both: u32) {
        let (least, most) = self.config.interval_ms;
        if first < TELLING {
            return;
        }
        if both * 50 >= first * 49 || both * 64 < first {
            self.interval_ms = (self.interval_ms * 3 / 4).max(least);
        } else if both * 4 < first * 3 {
            self.interval_ms = (self.interval_ms * 2).min(most);
        }
    }
}

/// Which part of a pass of `ms` that began at `began` is over.
pub(super) fn part(began: Millis, ms: u64, now: Millis) -> f64 {
    (now.since(began) as f64 / ms.max(1) as f64).min(1.0)
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
