//! Which blocks the next look takes: eager ones first, then the next of the
//! cover.

use super::blocks::Flag;
use super::{ASKED_SHARE, EAGER_SHARE, Search};
use memtide_core::units::Millis;

/// Where the cover stands.
#[derive(Debug)]
pub struct Cover {
    round: u16,
    began: Millis,
    ended: Millis,
    cursor: usize,
    /// Pages found in this round.
    found: u64,
    /// Until when it rests.
    until: Option<Millis>,
    /// Whether the last round was over so soon that no block needs to rest.
    brief: bool,
    /// Rounds in a row that found next to nothing.
    barren: u32,
    /// Blocks that wait for a look, with the share of them that was in use.
    eager: Vec<(u32, u32)>,
    /// Those that looks left ragged, with the slow pages that they had then.
    ragged: Vec<(u32, u16)>,
    /// Whether the last look confirmed nothing.
    barren_look: bool,
}

/// Blocks that are passed over, at most, before the next plan goes on.
const STEPS: usize = 1 << 16;
/// The most blocks that wait for a look.
const EAGER: usize = 1 << 14;
/// A round that found less than one page in so many was barren.
const BARREN: u64 = 1024;
/// Barren rounds in a row come twice as rarely, so often.
const LONGER: u32 = 2;
/// The wait after the first barren round until a glance may call for another,
/// in ms; doubles with each further one.
const WAIT_MS: u64 = 1_000;

impl Cover {
    pub fn new(now: Millis) -> Cover {
        Cover {
            round: 1,
            began: now,
            ended: now,
            cursor: 0,
            found: 0,
            until: None,
            brief: false,
            barren: 0,
            eager: Vec::new(),
            ragged: Vec::new(),
            barren_look: false,
        }
    }

    /// A look confirmed `pages` pages.
    pub fn looked(&mut self, pages: u64) {
        self.found += pages;
        self.barren_look = pages == 0;
    }

    /// There is memory that has never been looked at.
    pub fn wake_up(&mut self) {
        self.until = None;
        self.barren = 0;
    }

    /// A glance saw something in use.
    pub fn glimpsed(&mut self, now: Millis) {
        let wait = match self.barren {
            0 => 0,
            n => WAIT_MS << (n - 1).min(8),
        };
        if now.since(self.ended) >= wait {
            self.until = None;
        }
    }

    /// Block `n` should be looked at soon, `share` 256ths of which are in use.
    /// Whether there is room for it.
    pub fn eager(&mut self, n: u32, share: u32) -> bool {
        let fits = self.eager.len() < EAGER;
        if fits {
            self.eager.push((share, n));
        }
        fits
    }

    /// Block `n`, of `pages` slow pages, should be looked at again once looks find nothing, if some have left
    /// it by then.
    pub fn is_ragged(&mut self, n: u32, pages: u16) {
        if self.ragged.len() < EAGER {
            self.ragged.push((n, pages));
        }
    }

    /// The last block was passed.
    fn wrap(&mut self, now: Millis, pages: u64, round_ms: u64) {
        self.cursor = 0;
        self.round = self.round.wrapping_add(1);
        self.brief = now.since(self.began) < round_ms;
        if self.found * BARREN < pages {
            self.barren += 1;
            let period_ms = round_ms << (self.barren - 1).min(LONGER);
            let next = (self.began.0 + period_ms).max(now.0 + WAIT_MS / 2);
            self.until = Some(Millis(next));
        } else {
            self.barren = 0;
        }
        self.found = 0;
        self.began = now;
        self.ended = now;
    }
}

impl Search {
    /// Chooses blocks of about `pages` pages for a look, ascending; of the cover no more than `cover`.
    pub(super) fn choose(&mut self, now: Millis, pages: u64, cover: u64, chosen: &mut Vec<u32>) {
        let mut left = pages as i64;
        let resting = self.cover.until.is_some_and(|until| now < until);
        // The cover goes on whatever there is to be eager about, but for what it may not take.
        let cover = i64::try_from(cover).unwrap_or(i64::MAX);
        let mut eager = match resting {
            true => left,
            false => left - (left / 4).min(cover),
        };
        if self.cover.barren_look {
            self.take_ragged();
        }
        self.tidy_eager();
        while eager > 0 {
            let Some((_, n)) = self.cover.eager.pop() else {
                break;
            };
            let block = self.blocks.get_mut(n as usize);
            let is_eager = block.has(Flag::Eager);
            block.set(Flag::Eager, false);
            if is_eager && block.pages > 0 && !block.has(Flag::Found) {
                self.blocks.get_mut(n as usize).looked = self.cover.round;
                chosen.push(n);
                eager -= self.price(n);
                left -= self.price(n);
            }
        }
        if !resting {
            if self.cover.until.take().is_some() {
                self.cover.began = now;
            }
            self.cover_on(now, left.min(cover), chosen);
        }
        chosen.sort_unstable();
        chosen.dedup();
    }

    /// What is known to be in use comes before what shows nothing.
    fn take_ragged(&mut self) {
        let mut ragged = std::mem::take(&mut self.cover.ragged);
        for (n, pages) in ragged.drain(..) {
            // Where nothing leaves there is no room for it, and another look would say the same.
            if (1..pages).contains(&self.blocks.get(n as usize).pages) {
                self.be_eager(n as usize, EAGER_SHARE);
            }
        }
        self.cover.ragged = ragged;
    }

    /// Sorts those that wait for a look by how eager to see them, without those that do not wait any more.
    /// Where there is no room for others, the less eager half goes, but nothing that was asked for: the cover
    /// sees it.
    pub(super) fn tidy_eager(&mut self) {
        let Search { cover, blocks, .. } = self;
        let eager = &mut cover.eager;
        eager.retain(|(_, n)| blocks.get(*n as usize).has(Flag::Eager));
        eager.sort_unstable();
        if eager.len() >= EAGER {
            let asked = eager.partition_point(|(share, _)| *share < ASKED_SHARE);
            for (_, n) in eager.drain(..asked.min(EAGER / 2)) {
                blocks.get_mut(n as usize).set(Flag::Eager, false);
            }
            // One may have had another entry.
            for (_, n) in eager {
                blocks.get_mut(*n as usize).set(Flag::Eager, true);
            }
        }
    }

    /// Adds the next blocks of the cover.
    fn cover_on(&mut self, now: Millis, mut left: i64, chosen: &mut Vec<u32>) {
        // A block costs a span of its own: one for 32 pages of a look, or for each page of smaller blocks.
        let most = (self.config.look_pages / (self.blocks.block_pages() / 32).max(1)) as usize;
        let mut wrapped = false;
        for _ in 0..STEPS {
            if left <= 0 || chosen.len() >= most {
                return;
            }
            let at = self.cover.cursor;
            if at >= self.blocks.len() {
                if self.blocks.pages() == 0 || wrapped {
                    return;
                }
                wrapped = true;
                // Blocks that this look takes are not covered yet; their round is
                // over when the next begins.
                self.cover
                    .wrap(now, self.blocks.pages(), self.config.round_ms);
                if self.cover.until.is_some() {
                    return;
                }
                continue;
            }
            self.cover.cursor += 1;
            let block = self.blocks.get(at);
            let round = self.cover.round;
            let rests = !self.cover.brief && round & ((1 << block.rest) - 1) != 0;
            if block.pages > 0 && !block.has(Flag::Found) && !rests && block.looked != round {
                self.blocks.get_mut(at).looked = round;
                chosen.push(at as u32);
                left -= self.price(at as u32);
            }
        }
    }

    /// What a look at block `n` costs, in pages.
    fn price(&self, n: u32) -> i64 {
        let pages = self.blocks.get(n as usize).extent();
        // Most blocks continue another; those with holes do not.
        let alone = pages < self.blocks.block_pages();
        (pages + if alone { self.costs.gap() } else { 0 }) as i64
    }
}
