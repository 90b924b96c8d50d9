//! What is known of the slow memory, in dense arrays of blocks.
//!
//! A *block* is 2 MiB of an owner's addresses, aligned: as large as a huge
//! page, so that one is never split between two. What is known of a block is
//! twelve bytes, which is 24 MiB for 4 TiB. Each 128 MiB of addresses with
//! anything in them gets 64 blocks ([`Space`]).
//!
//! A block knows its *extent*, from its first slow page to its last, and how
//! many pages between are slow. Others may be unmapped, or on a fast node by
//! now: then it is *worn*, since samples of it may show what is already home.

use super::evidence::Tally;
use memtide_core::hotness::SECTION_PAGES;
use memtide_core::tiering::sample::Run;
use memtide_core::tiering::space::{OwnerId, Space, VirtualPage};
use memtide_core::units::PageNumber;

/// Pages in a block, at most: those of a huge page.
pub const BLOCK_PAGES: u64 = 512;

/// What is known of a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// Its first slow page.
    pub lo: u16,
    /// One past its last.
    pub hi: u16,
    /// Its slow pages.
    pub pages: u16,
    /// Samples since attention was drawn to it.
    pub tally: Tally,
    flags: u8,
    /// It is covered in one of `2^rest` rounds.
    pub rest: u8,
    /// The round in which each of its pages was looked at last.
    pub looked: u16,
}

/// A property of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flag {
    /// Pages between others have left it.
    Worn = 1,
    /// It is being sampled.
    Attended = 2,
    /// It was found hot and waits for what becomes of it.
    Found = 4,
    /// It waits for a look.
    Eager = 8,
    /// Pages came that may be in use, and no look has begun since.
    Unseen = 16,
    /// The look that began then has not seen them twice.
    Seeing = 32,
}

impl Block {
    /// Whether it has `flag`.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags & flag as u8 != 0
    }

    /// Gives it `flag`, or takes it away.
    pub fn set(&mut self, flag: Flag, on: bool) {
        if on {
            self.flags |= flag as u8;
        } else {
            self.flags &= !(flag as u8);
        }
    }

    /// Pages from the first slow one to the last.
    pub fn extent(&self) -> u64 {
        u64::from(self.hi - self.lo)
    }

    /// Whether something may be found of which samples say nothing.
    pub fn is_mute(&self) -> bool {
        self.pages > 0 && !self.has(Flag::Found) && !self.speaks()
    }

    /// Whether a sampled page that was touched says something: nearly all pages
    /// between the first and the last are slow, or those that are not were
    /// never seen.
    pub fn speaks(&self) -> bool {
        let holes = self.extent() - u64::from(self.pages);
        self.pages > 0
            && !self.has(Flag::Found)
            && (!self.has(Flag::Worn) || holes * 8 <= self.extent())
    }
}

/// All blocks. See the module's essay.
#[derive(Debug)]
pub struct Blocks {
    space: Space,
    cut: Cut,
    blocks: Vec<Block>,
    pages: u64,
    in_use: u64,
    left_out: u64,
}

impl Blocks {
    /// Room for `sections` of so many pages that are cut into blocks of `pages`, a power of two up to
    /// [`BLOCK_PAGES`].
    pub fn new(sections: u32, pages: u64) -> Blocks {
        Blocks {
            space: Space::new(sections),
            cut: Cut::new(pages),
            blocks: Vec::new(),
            pages: 0,
            in_use: 0,
            left_out: 0,
        }
    }

    /// Pages in a whole block.
    pub fn block_pages(&self) -> u64 {
        self.cut.pages()
    }

    /// Slow pages in all.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Blocks with any slow page.
    pub fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Pages that found no room in the last [`Blocks::set`] of any owner.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// One past the largest index.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The block with index `n`.
    pub fn get(&self, n: usize) -> &Block {
        &self.blocks[n]
    }

    /// The block with index `n`, to change.
    pub fn get_mut(&mut self, n: usize) -> &mut Block {
        &mut self.blocks[n]
    }

    /// Whose block `n` is, and its first address, slow or not.
    pub fn locate(&self, n: usize) -> Option<(OwnerId, VirtualPage)> {
        self.space.locate(PageNumber(self.cut.first(n)))
    }

    /// The index of the block `by` blocks beside `n` in its owner's addresses.
    pub fn beside(&self, n: usize, by: i64) -> Option<usize> {
        let there = n as i64 + by;
        let section = self.cut.in_section();
        if there >= 0 && there as usize / section == n / section {
            return Some(there as usize);
        }
        let (owner, first) = self.locate(n)?;
        let page = first.0.checked_add_signed(by * self.cut.pages() as i64)?;
        let dense = self.space.find(owner, VirtualPage(page))?;
        Some(self.cut.block(dense.0))
    }

    /// Gives the part of `first..first + pages` in each known block to `visit`:
    /// the block's index, the first page in it and one past the last.
    pub fn parts(
        &self,
        owner: OwnerId,
        first: VirtualPage,
        pages: u64,
        mut visit: impl FnMut(usize, u16, u16),
    ) {
        self.space.for_runs(owner, first, pages, |_, dense, pages| {
            self.cut.each(dense.0, pages, &mut visit);
        });
    }

    /// The slow pages of `owner` are `runs`, ascending. What is known of blocks
    /// that it had before stays.
    pub fn set(&mut self, owner: OwnerId, runs: &[Run]) {
        let sections: Vec<u32> = self.space.sections_of(owner).collect();
        let needed = count_sections(runs);
        if sections.len() > 64 && sections.len() > 2 * needed {
            // Its memory has moved on: give back what it left behind.
            self.remove(owner);
            return self.set(owner, runs);
        }
        let count = self.cut.in_section();
        let mut before = Vec::with_capacity(sections.len() * count);
        for section in &sections {
            let from = *section as usize * count;
            for block in &mut self.blocks[from..from + count] {
                before.push(block.pages);
                self.pages -= u64::from(block.pages);
                self.in_use -= u64::from(block.pages > 0);
                (block.lo, block.hi, block.pages) = (0, 0, 0);
            }
        }
        self.left_out = 0;
        for run in runs {
            self.came(owner, run.first, run.pages);
        }
        let indices = sections
            .iter()
            .flat_map(|section| *section as usize * count..(*section as usize + 1) * count);
        for (n, before) in indices.zip(before) {
            let block = &mut self.blocks[n];
            if block.pages == 0 {
                *block = Block::default();
            } else if before > block.pages {
                block.set(Flag::Worn, block.extent() > u64::from(block.pages));
            }
        }
    }

    /// `pages` pages of `owner` from `first` on are slow from now on.
    pub fn came(&mut self, owner: OwnerId, first: VirtualPage, pages: u64) {
        let (space, blocks, cut) = (&mut self.space, &mut self.blocks, self.cut);
        let (mut more, mut fresh, mut placed) = (0, 0, 0);
        let result = space.place_runs(owner, first, pages, |_, dense, pages| {
            let last = cut.block(dense.0 + pages - 1);
            let end = (last + 1).next_multiple_of(cut.in_section());
            if blocks.len() < end {
                blocks.resize(end, Block::default());
            }
            placed += pages;
            cut.each(dense.0, pages, &mut |n, lo, hi| {
                let block = &mut blocks[n];
                if block.pages == 0 {
                    fresh += 1;
                    (block.lo, block.hi) = (lo, hi);
                }
                block.lo = block.lo.min(lo);
                block.hi = block.hi.max(hi);
                let had = block.pages;
                block.pages = (had + (hi - lo)).min(block.hi - block.lo);
                more += u64::from(block.pages - had);
            });
        });
        if result.is_err() {
            self.left_out += pages - placed;
        }
        self.pages += more;
        self.in_use += fresh;
    }

    /// The blocks of these pages are not known to be barren any more.
    pub fn have_news(&mut self, owner: OwnerId, first: VirtualPage, pages: u64) {
        let (space, blocks, cut) = (&self.space, &mut self.blocks, self.cut);
        space.for_runs(owner, first, pages, |_, dense, pages| {
            cut.each(dense.0, pages, &mut |n, _, _| blocks[n].rest = 0);
        });
    }

    /// They are not slow any more, or not there.
    pub fn left(&mut self, owner: OwnerId, first: VirtualPage, pages: u64) {
        let (space, blocks, cut) = (&self.space, &mut self.blocks, self.cut);
        let (mut fewer, mut emptied) = (0, 0);
        space.for_runs(owner, first, pages, |_, dense, pages| {
            cut.each(dense.0, pages, &mut |n, lo, hi| {
                let block = &mut blocks[n];
                let part = (hi.min(block.hi)).saturating_sub(lo.max(block.lo));
                let gone = part.min(block.pages);
                if gone == 0 {
                    return;
                }
                fewer += u64::from(gone);
                block.pages -= gone;
                if block.pages == 0 {
                    *block = Block::default();
                    emptied += 1;
                } else if lo <= block.lo {
                    block.lo = hi;
                } else if hi >= block.hi {
                    block.hi = lo;
                }
                // Pages were told twice as gone, or not one by one.
                if block.extent() < u64::from(block.pages) {
                    let odd = block.pages - (block.hi - block.lo);
                    fewer += u64::from(odd);
                    block.pages -= odd;
                    if block.pages == 0 {
                        *block = Block::default();
                        emptied += 1;
                    }
                }
                block.set(Flag::Worn, block.extent() > u64::from(block.pages));
                block.set(Flag::Found, false);
            });
        });
        self.pages -= fewer;
        self.in_use -= emptied;
    }

    /// `owner` is gone.
    pub fn remove(&mut self, owner: OwnerId) {
        for section in self.space.release(owner) {
            let count = self.cut.in_section();
            let from = section as usize * count;
            for block in &mut self.blocks[from..from + count] {
                self.pages -= u64::from(block.pages);
                self.in_use -= u64::from(block.pages > 0);
                *block = Block::default();
            }
        }
    }
}

/// Where blocks begin and end in dense pages.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// A block has two to the power of this many pages.
    shift: u32,
}

impl Cut {
    fn new(pages: u64) -> Cut {
        debug_assert!(pages.is_power_of_two() && pages <= BLOCK_PAGES);
        Cut {
            shift: pages.clamp(1, BLOCK_PAGES).ilog2(),
        }
    }

    fn pages(self) -> u64 {
        1 << self.shift
    }

    /// Blocks in a section.
    fn in_section(self) -> usize {
        SECTION_PAGES >> self.shift
    }

    fn block(self, dense: u64) -> usize {
        (dense >> self.shift) as usize
    }

    fn first(self, n: usize) -> u64 {
        (n as u64) << self.shift
    }

    /// Cuts dense pages at the borders of blocks.
    fn each(self, dense: u64, pages: u64, visit: &mut impl FnMut(usize, u16, u16)) {
        let end = dense + pages;
        let mut at = dense;
        while at < end {
            let n = self.block(at);
            let base = self.first(n);
            let next = (base + self.pages()).min(end);
            visit(n, (at - base) as u16, (next - base) as u16);
            at = next;
        }
    }
}

fn count_sections(runs: &[Run]) -> usize {
    let pages = SECTION_PAGES as u64;
    let (mut count, mut last) = (0, None);
    for run in runs.iter().filter(|run| run.pages > 0) {
        let (from, to) = (run.first.0 / pages, (run.first.0 + run.pages - 1) / pages);
        let from = if last == Some(from) { from + 1 } else { from };
        count += (to + 1).saturating_sub(from) as usize;
        last = Some(to);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const ME: OwnerId = OwnerId(3);

    fn run(first: u64, pages: u64) -> Run {
        Run {
            first: VirtualPage(first),
            pages,
        }
    }

    #[test]
    fn blocks_keep_their_extents() {
        let mut blocks = Blocks::new(8, BLOCK_PAGES);
        // 100..1100: 412 pages of block 0, all of block 1, 76 of block 2.
        blocks.set(ME, &[run(100, 1000)]);
        let extents: Vec<_> = (0..3)
            .map(|n| (blocks.get(n).lo, blocks.get(n).hi))
            .collect();
        assert_eq!(extents, [(100, 512), (0, 512), (0, 76)]);
        assert_eq!((blocks.pages(), blocks.in_use()), (1000, 3));
        // The middle of block 1 leaves: worn. The beginning of block 0: smaller.
        blocks.left(ME, VirtualPage(600), 50);
        blocks.left(ME, VirtualPage(100), 12);
        assert!(blocks.get(1).has(Flag::Worn) && !blocks.get(0).has(Flag::Worn));
        assert_eq!((blocks.get(0).lo, blocks.get(0).pages), (112, 400));
        assert_eq!(blocks.pages(), 938);
        // 50 of 512 are holes: less than an eighth, so samples still speak.
        assert!(blocks.get(1).speaks());
        blocks.left(ME, VirtualPage(700), 50);
        assert!(!blocks.get(1).speaks());
    }

    #[test]
    fn what_is_known_stays_over_a_survey_and_goes_with_the_owner() {
        let mut blocks = Blocks::new(8, BLOCK_PAGES);
        blocks.set(ME, &[run(0, 2048)]);
        blocks.get_mut(1).rest = 2;
        blocks.set(ME, &[run(0, 1024), run(1536, 512)]);
        assert_eq!(blocks.get(1).rest, 2);
        assert_eq!(blocks.in_use(), 3);
        blocks.remove(ME);
        assert_eq!((blocks.pages(), blocks.in_use()), (0, 0));
        blocks.set(OwnerId(4), &[run(0, 1024)]);
        assert_eq!(blocks.get(1).rest, 0);
        assert_eq!(blocks.locate(1), Some((OwnerId(4), VirtualPage(512))));
    }

    #[test]
    fn neighbours_are_found_across_sections() {
        let mut blocks = Blocks::new(8, BLOCK_PAGES);
        // Two sections apart in the array, one after the other in addresses.
        blocks.set(ME, &[run(SECTION_PAGES as u64, 512)]);
        blocks.set(OwnerId(9), &[run(0, 512)]);
        blocks.set(ME, &[run(SECTION_PAGES as u64 - 512, 1024)]);
        let right = blocks.beside(0, -1).unwrap();
        assert_eq!(blocks.beside(right, 1), Some(0));
        assert_eq!(blocks.beside(0, -1000), None);
    }

    #[test]
    fn more_memory_than_room_is_counted() {
        let mut blocks = Blocks::new(1, BLOCK_PAGES);
        blocks.set(ME, &[run(0, 3 * SECTION_PAGES as u64)]);
        assert_eq!(blocks.left_out(), 2 * SECTION_PAGES as u64);
        assert_eq!(blocks.pages(), SECTION_PAGES as u64);
    }

    #[test]
    fn an_owner_whose_memory_moves_on_leaves_nothing_behind() {
        // What is there, what was before, and as much again.
        let mut blocks = Blocks::new(300, BLOCK_PAGES);
        for n in 0..50u64 {
            blocks.set(
                ME,
                &[run(
                    n * 100 * SECTION_PAGES as u64,
                    100 * SECTION_PAGES as u64,
                )],
            );
            assert_eq!(blocks.left_out(), 0, "{n}");
        }
    }

    proptest! {
        #[test]
        fn pages_are_counted_as_a_set_has_them(
            steps in prop::collection::vec((any::<bool>(), 0u64..4000, 1u64..900), 1..40),
        ) {
            let mut blocks = Blocks::new(4, BLOCK_PAGES);
            let mut model = BTreeSet::new();
            for (come, first, pages) in steps {
                // Each page is told once.
                for page in first..first + pages {
                    if come && model.insert(page) {
                        blocks.came(ME, VirtualPage(page), 1);
                    } else if !come && model.remove(&page) {
                        blocks.left(ME, VirtualPage(page), 1);
                    }
                }
                prop_assert_eq!(blocks.pages(), model.len() as u64);
                let used: BTreeSet<u64> = model.iter().map(|page| page / BLOCK_PAGES).collect();
                prop_assert_eq!(blocks.in_use(), used.len() as u64);
                for page in &model {
                    let mut within = false;
                    blocks.parts(ME, VirtualPage(*page), 1, |n, lo, hi| {
                        let block = blocks.get(n);
                        within = block.lo <= lo && hi <= block.hi;
                    });
                    prop_assert!(within);
                }
            }
        }
    }
}
