//! How much of the memory is in use, from the samples that the search takes anyway.
//!
//! A walk over all blocks samples one random page of each piece. So a piece that was touched
//! stands for as many pages as it has, and the others for none: over many pieces that is how
//! many pages are in use. Two kinds of blocks are not sampled. One that was *found* is hot
//! throughout, and counts as that. Of one of which many pages have left nothing is known.
//!
//! Samples of what has the attention are left out: it has it because it was in use.

use super::blocks::Flag;
use super::{OwnerId, Part, Search, Span, VirtualPage, spans_of};

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing.
    No,
    /// It was found.
    Found,
    /// A sample of its piece was touched.
    InUse,
    /// The sample of its piece was not touched.
    Idle,
}

impl Search {
    /// Whether samples of the walk speak for this slow page: not where many pages have left.
    pub fn samples(&self, owner: OwnerId, page: VirtualPage) -> bool {
        let span = Span {
            owner,
            first: page,
            pages: 1,
        };
        let mut samples = false;
        self.shared.inward(span, |part| {
            self.blocks.parts(part.owner, part.first, 1, |n, _, _| {
                let block = self.blocks.get(n);
                samples |= block.pages > 0 && !block.is_mute();
            });
        });
        samples
    }

    /// Whether the present glance is a part of the walk over all memory.
    pub fn walks(&self) -> bool {
        self.glancing.part(&self.blocks).is_some()
    }

    /// What the complete pass of a glance saw of the walk over all memory: so many pages of each
    /// owner, and how many of them count as touched, of all who map them. `None` if the pass was
    /// no part of the walk. To be asked before [`Search::pass_done`].
    pub fn sampled(&self, mut each: impl FnMut(OwnerId, u64, u64)) -> Option<Part> {
        let part = self.glancing.part(&self.blocks)?;
        let hits = self.glancing.hit_blocks();
        let known = |n: usize| {
            let block = self.blocks.get(n);
            if block.pages == 0 {
                Known::No
            } else if block.has(Flag::Found) {
                Known::Found
            } else if !self.glancing.covers(n as u32) {
                Known::No
            } else if hits.binary_search(&(n as u32)).is_ok() {
                Known::InUse
            } else {
                Known::Idle
            }
        };
        let mut tell = |from: usize, to: usize, what: Known| {
            let blocks = (from..to).map(|n| self.blocks.get(n));
            let (pages, extent) = blocks.fold((0, 0), |(pages, extent), block| {
                (pages + u64::from(block.pages), extent + block.extent())
            });
            spans_of(&self.blocks, from as u32, (to - from) as u32, |span| {
                self.shared.outward_all(span, |span| {
                    // A sample may be of a page that is not there: a hit stands for more than
                    // those that are.
                    let there = span.pages * pages / extent.max(1);
                    let touched = match what {
                        Known::Found => there,
                        Known::InUse => span.pages,
                        Known::Idle | Known::No => 0,
                    };
                    each(span.owner, there, touched);
                });
            });
        };
        let end = part.to.min(self.blocks.len());
        let mut from = part.from;
        while from < end {
            let what = known(from);
            let mut to = from + 1;
            while to < end && known(to) == what {
                to += 1;
            }
            if what != Known::No {
                tell(from, to, what);
            }
            from = to;
        }
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Memory, Order, View};
    use super::*;
    use memtide_core::tiering::sample::Run;
    use memtide_core::units::Millis;

    const ME: OwnerId = OwnerId(1);
    const OTHER: OwnerId = OwnerId(2);
    const BLOCK: u64 = super::super::BLOCK_PAGES;

    fn run(first: u64, pages: u64) -> Run {
        Run {
            first: VirtualPage(first),
            pages,
        }
    }

    /// A search that sees all of so many blocks of mine in each pass, or in parts.
    fn search(blocks: u64, permille: u32) -> Search {
        let config = Config {
            permille,
            ..Config::default()
        };
        let mut search = Search::new(config, Millis(0));
        search.costs.expect(100_000.0);
        search.costs.used(100_000.0, 0.0);
        let memory = Memory {
            run: run(0, blocks * BLOCK),
            object: None,
        };
        search.set_memory(ME, &[memory]);
        search
    }

    fn touch(search: &mut Search, block: u64) {
        search.touched(
            View::Glance,
            Span {
                owner: ME,
                first: VirtualPage(block * BLOCK),
                pages: BLOCK,
            },
        );
    }

    /// Blocks in use, and idle ones.
    fn sampled(search: &Search) -> (Option<Part>, [u64; 2]) {
        let mut sums = [0; 2];
        let part = search.sampled(|owner, pages, touched| {
            assert_eq!(owner, ME);
            sums[0] += touched / BLOCK;
            sums[1] += (pages - touched) / BLOCK;
        });
        (part, sums)
    }

    fn whole(blocks: usize) -> Option<Part> {
        Some(Part {
            from: 0,
            to: blocks,
            is_last: true,
            pages: BLOCK,
        })
    }

    #[test]
    fn a_glance_at_all_blocks_says_how_many_are_in_use() {
        let mut search = search(40, 50);
        assert_eq!(sampled(&search), (None, [0, 0]));
        search.looks_wait(true);
        search.plan(Millis(0));
        for block in [3, 4, 9] {
            touch(&mut search, block);
        }
        assert_eq!(sampled(&search), (whole(64), [3, 37]));
        search.pass_done(View::Glance, Millis(50));
        // The next pass is another one.
        assert_eq!(sampled(&search), (whole(64), [0, 40]));
    }

    /// Block 5 is found after some passes, and is glanced at no more when the source is told anew. Of block 7
    /// half has left.
    #[test]
    fn what_was_found_is_in_use_and_what_has_left_is_unknown() {
        let mut search = search(40, 50);
        search.looks_wait(true);
        let half = Span {
            owner: ME,
            first: VirtualPage(7 * BLOCK + 100),
            pages: BLOCK / 2,
        };
        search.left(half);
        let samples = [6, 7, 8, 40].map(|n| search.samples(ME, VirtualPage(n * BLOCK)));
        assert_eq!(samples, [true, false, true, false]);
        let mut now = 0;
        for _ in 0..20 {
            search.plan(Millis(now));
            touch(&mut search, 5);
            assert_eq!(sampled(&search), (whole(64), [1, 38]), "{now}");
            now += 100;
            search.pass_done(View::Glance, Millis(now));
        }
        assert!(search.blocks.get(5).has(Flag::Found));
        search.plan(Millis(now));
        assert_eq!(sampled(&search), (whole(64), [1, 38]));
    }

    /// 64 GiB with a thousandth of a processor: every eighth block is in use. The parts of one walk are all of
    /// it, each block once.
    #[test]
    fn the_parts_of_a_walk_are_the_whole() {
        let blocks = 32_768;
        let mut search = search(blocks, 1);
        search.looks_wait(true);
        let (mut now, mut parts, mut sums, mut next) = (0, 0, [0; 2], 0);
        let mut all_told = 0;
        loop {
            let order = search.plan(Millis(now)).glance;
            now += 500;
            if let Order::Begin(watch) = &order {
                let mut told = 0;
                for span in &watch.spans {
                    for at in (0..span.pages).step_by(watch.grain as usize) {
                        // Every eighth piece, and a piece is touched as a whole.
                        if (span.first.0 + at) / watch.grain % 8 == 0 {
                            let first = VirtualPage(span.first.0 + at);
                            let pages = watch.grain.min(span.pages - at);
                            let owner = span.owner;
                            told += pages / BLOCK;
                            search.touched(
                                View::Glance,
                                Span {
                                    owner,
                                    first,
                                    pages,
                                },
                            );
                        }
                    }
                }
                let mut seen = [0; 2];
                let part = search.sampled(|_, pages, touched| {
                    seen[0] += touched / BLOCK;
                    seen[1] += (pages - touched) / BLOCK;
                });
                if let Some(part) = part {
                    if part.from == 0 {
                        (parts, sums, next, all_told) = (0, [0; 2], 0, 0);
                    }
                    assert_eq!(part.from, next);
                    next = part.to;
                    parts += 1;
                    all_told += told;
                    (sums[0], sums[1]) = (sums[0] + seen[0], sums[1] + seen[1]);
                    if part.is_last {
                        break;
                    }
                }
                search.pass_done(View::Glance, Millis(now));
                search.findings(|_| {});
            }
            search.spent(0, 0, Millis(now));
            assert!(now < 3_600_000, "no end of the walk");
        }
        assert!(parts > 1);
        assert_eq!(sums[0] + sums[1], blocks);
        assert_eq!(sums[0], all_told);
        // Parts need not begin where pieces do.
        assert!(sums[0].abs_diff(blocks / 8) <= parts, "{sums:?}");
    }

    /// Both map the same 40 blocks.
    #[test]
    fn shared_memory_counts_for_all_who_map_it() {
        let mut search = search(0, 50);
        let memory = |first: u64| {
            vec![Memory {
                run: run(first * BLOCK, 40 * BLOCK),
                object: Some((7, 0)),
            }]
        };
        search.set_memory(ME, &memory(0));
        search.set_memory(OTHER, &memory(1_000));
        search.looks_wait(true);
        search.plan(Millis(0));
        let mut of = Vec::new();
        search.sampled(|owner, pages, touched| of.push((owner, pages, touched)));
        of.sort_unstable();
        assert_eq!(of, [(ME, 40 * BLOCK, 0), (OTHER, 40 * BLOCK, 0)]);
    }

    /// Of each block every second page is there, and each of these is in use: half of the samples are hits.
    #[test]
    fn samples_of_what_is_not_there_say_nothing() {
        let mut search = search(0, 50);
        let half = |n: u64| Memory {
            run: run(2 * n, 1),
            object: None,
        };
        let memory: Vec<Memory> = (0..40 * BLOCK / 2).map(half).collect();
        search.set_memory(ME, &memory);
        search.looks_wait(true);
        search.plan(Millis(0));
        for block in (0..40).step_by(2) {
            touch(&mut search, block);
        }
        let mut sums = [0; 2];
        search.sampled(|_, pages, touched| {
            sums[0] += pages;
            sums[1] += touched;
        });
        let all = 40 * BLOCK / 2;
        assert!(
            sums[0].abs_diff(all) <= all / 100 && sums[1].abs_diff(all) <= all / 100,
            "{sums:?}"
        );
    }
}
