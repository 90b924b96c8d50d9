//! A two-level TLB of one CPU, for 4 KiB and 2 MiB pages.
//!
//! An entry is a tag and what it translates to: frame, node, and whether stores may go through it
//! without a look at the page table. A hit uses the entry alone, so an entry that was not flushed
//! translates to where the page was: that is what accessed bits miss and lazy flushing relies on.
//!
//! The first level has four ways, replaced in true LRU order, apart for each size of page; the second
//! is shared by both sizes and replaces an entry that was not used since all others were. Numbers of
//! sets are powers of two, indexed by the low bits of the page's number. Scaling divides the entries,
//! but a level keeps at least one full set.
//!
//! A full flush is noted and done before the next look-up ([`Tlb::settle`]), so that many flushes of a
//! CPU that does not run cost one.

use crate::page::{Frame, HUGE_PAGES, Pte, Slot};
use crate::spec::CpuSpec;
use memtide_core::units::NodeId;

/// Ways of the first level.
const L1_WAYS: usize = 4;
/// The second level's ways come in lanes of eight, so that a set is compared at once.
const LANE: usize = 8;
/// A tag that no page has.
const EMPTY: u32 = u32::MAX;
/// A way that the level does not have.
const ABSENT: u32 = u32::MAX - 1;
/// Tags of huge pages; slots are below it.
const HUGE_TAG: u32 = 1 << 31;

/// What an entry translates to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translation(u64);

impl Translation {
    const STORES: u64 = 1 << 36;

    /// To `frame` of `node`; `stores`: writable and dirty already.
    #[inline]
    #[must_use]
    pub fn new(frame: Frame, node_index: usize, stores: bool) -> Translation {
        Translation(
            u64::from(frame) | ((node_index as u64) << 32) | (u64::from(stores) * Self::STORES),
        )
    }

    /// The frame; of a huge page, its first.
    #[inline]
    #[must_use]
    pub fn frame(self) -> Frame {
        self.0 as u32
    }

    /// The frame's node, as an index.
    #[inline]
    #[must_use]
    pub fn node_index(self) -> usize {
        (self.0 >> 32 & 15) as usize
    }

    /// The frame's node.
    #[must_use]
    pub fn node(self) -> NodeId {
        NodeId(self.node_index() as u16)
    }

    /// Whether stores need no look at the page table.
    #[inline]
    #[must_use]
    pub fn stores(self) -> bool {
        self.0 & Self::STORES != 0
    }
}

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the first level.
    First(Translation),
    /// In the second.
    Second(Translation),
    /// Nowhere.
    Nothing,
}

/// The first level for one size of page.
struct First {
    tags: Vec<[u32; L1_WAYS]>,
    values: Vec<[Translation; L1_WAYS]>,
    mask: u32,
}

impl First {
    fn new(entries: u32) -> First {
        let sets = power_of_two_sets(entries, L1_WAYS as u32);
        First {
            tags: vec![[EMPTY; L1_WAYS]; sets],
            values: vec![Default::default(); sets],
            mask: sets as u32 - 1,
        }
    }

    /// Finds `tag` and makes it the most recent.
    #[inline]
    fn find(&mut self, tag: u32, index: u32) -> Option<Translation> {
        let set = (index & self.mask) as usize;
        let tags = &mut self.tags[set];
        if tags[0] == tag {
            return Some(self.values[set][0]);
        }
        let way = (1..L1_WAYS).find(|&way| tags[way] == tag)?;
        let values = &mut self.values[set];
        tags[..=way].rotate_right(1);
        values[..=way].rotate_right(1);
        Some(values[0])
    }

    #[inline]
    fn insert(&mut self, tag: u32, index: u32, value: Translation) {
        let set = (index & self.mask) as usize;
        let tags = &mut self.tags[set];
        *tags = [tag, tags[0], tags[1], tags[2]];
        let values = &mut self.values[set];
        *values = [value, values[0], values[1], values[2]];
    }

    fn remove(&mut self, tag: u32, index: u32) {
        let set = (index & self.mask) as usize;
        for way in &mut self.tags[set] {
            if *way == tag {
                *way = EMPTY;
            }
        }
    }
}

/// The second level.
struct Second {
    /// `lanes` lanes a set.
    tags: Vec<[u32; LANE]>,
    values: Vec<[Translation; LANE]>,
    /// Ways of a set that were used lately, a bit each.
    used: Vec<u32>,
    lanes: usize,
    all_ways: u32,
    mask: u32,
}

impl Second {
    fn new(entries: u32, ways: u32) -> Second {
        let ways = ways.clamp(1, 32);
        let sets = power_of_two_sets(entries, ways);
        let lanes = (ways as usize).div_ceil(LANE);
        let mut second = Second {
            tags: vec![[EMPTY; LANE]; sets * lanes],
            values: vec![Default::default(); sets * lanes],
            used: vec![0; sets],
            lanes,
            all_ways: u32::MAX >> (32 - ways),
            mask: sets as u32 - 1,
        };
        second.clear();
        second
    }

    fn clear(&mut self) {
        for (index, lane) in self.tags.iter_mut().enumerate() {
            let first = index % self.lanes * LANE;
            for (way, tag) in lane.iter_mut().enumerate() {
                let exists = self.all_ways >> (first + way) & 1 == 1;
                *tag = if exists { EMPTY } else { ABSENT };
            }
        }
        self.used.fill(0);
    }

    /// The way of `tag` in `set`.
    #[inline]
    fn way(&self, tag: u32, set: usize) -> Option<usize> {
        let first = set * self.lanes;
        for (number, lane) in self.tags[first..first + self.lanes].iter().enumerate() {
            let mut equal = 0u32;
            for (way, &found) in lane.iter().enumerate() {
                equal |= u32::from(found == tag) << way;
            }
            if equal != 0 {
                return Some(number * LANE + equal.trailing_zeros() as usize);
            }
        }
        None
    }

    #[inline]
    fn touch(&mut self, set: usize, way: usize) {
        let used = self.used[set] | 1 << way;
        self.used[set] = if used == self.all_ways {
            1 << way
        } else {
            used
        };
    }

    #[inline]
    fn find(&mut self, tag: u32, index: u32) -> Option<Translation> {
        let set = (index & self.mask) as usize;
        let way = self.way(tag, set)?;
        self.touch(set, way);
        Some(self.values[set * self.lanes + way / LANE][way % LANE])
    }

    /// Puts an entry in that was not found.
    #[inline]
    fn insert(&mut self, tag: u32, index: u32, value: Translation) {
        let set = (index & self.mask) as usize;
        // A set of one way has all of it used.
        let way = ((!self.used[set] & self.all_ways).trailing_zeros() as usize)
            .min(self.lanes * LANE - 1);
        let way = if self.all_ways == 1 { 0 } else { way };
        self.touch(set, way);
        let lane = set * self.lanes + way / LANE;
        self.tags[lane][way % LANE] = tag;
        self.values[lane][way % LANE] = value;
    }

    fn set_value(&mut self, tag: u32, index: u32, value: Translation) {
        let set = (index & self.mask) as usize;
        if let Some(way) = self.way(tag, set) {
            self.values[set * self.lanes + way / LANE][way % LANE] = value;
        }
    }

    fn remove(&mut self, tag: u32, index: u32) {
        let set = (index & self.mask) as usize;
        if let Some(way) = self.way(tag, set) {
            self.tags[set * self.lanes + way / LANE][way % LANE] = EMPTY;
            self.used[set] &= !(1 << way);
        }
    }
}

/// Sets of `ways` ways for `entries` entries: a power of two, at least one.
fn power_of_two_sets(entries: u32, ways: u32) -> usize {
    let sets = (entries / ways).max(1);
    1 << sets.ilog2()
}

fn retarget<'a>(
    tags: impl Iterator<Item = &'a u32>,
    values: impl Iterator<Item = &'a mut Translation>,
    ptes: &[Pte],
) {
    for (&tag, value) in tags.zip(values) {
        if tag != EMPTY && tag != ABSENT {
            let pte = ptes[(tag & !HUGE_TAG) as usize];
            *value = Translation::new(pte.frame(), pte.node_index(), value.stores());
        }
    }
}

/// A CPU's TLB.
pub struct Tlb {
    small: First,
    large: First,
    second: Second,
    flush_pending: bool,
}

impl Tlb {
    /// An empty TLB with the entries of `spec` divided by `scale`.
    #[must_use]
    pub fn new(spec: &CpuSpec, scale: u32) -> Tlb {
        Tlb {
            small: First::new(spec.l1_tlb_4k / scale),
            large: First::new(spec.l1_tlb_2m / scale),
            second: Second::new(spec.l2_tlb / scale, spec.l2_tlb_ways),
            flush_pending: false,
        }
    }

    /// Entries of the second level, which bound what both levels reach.
    #[must_use]
    pub fn reach(&self) -> u32 {
        self.second.all_ways.count_ones() * (self.second.mask + 1)
    }

    /// Does a full flush that was asked for; to be called before look-ups.
    #[inline]
    pub fn settle(&mut self) {
        if self.flush_pending {
            self.clear();
        }
    }

    #[cold]
    fn clear(&mut self) {
        self.flush_pending = false;
        self.small.tags.fill([EMPTY; L1_WAYS]);
        self.large.tags.fill([EMPTY; L1_WAYS]);
        self.second.clear();
    }

    /// Looks up a page; `huge` if `slot` is the head of a huge page. A hit in the second level moves
    /// the entry to the first.
    #[inline]
    pub fn find(&mut self, slot: Slot, huge: bool) -> Found {
        let (first, tag, index) = if huge {
            (&mut self.large, slot | HUGE_TAG, slot / HUGE_PAGES)
        } else {
            (&mut self.small, slot, slot)
        };
        if let Some(value) = first.find(tag, index) {
            return Found::First(value);
        }
        match self.second.find(tag, index) {
            Some(value) => {
                first.insert(tag, index, value);
                Found::Second(value)
            }
            None => Found::Nothing,
        }
    }

    /// Notes a translation that a walk found after [`Tlb::find`] found nothing.
    #[inline]
    pub fn insert(&mut self, slot: Slot, huge: bool, value: Translation) {
        let (first, tag, index) = if huge {
            (&mut self.large, slot | HUGE_TAG, slot / HUGE_PAGES)
        } else {
            (&mut self.small, slot, slot)
        };
        first.insert(tag, index, value);
        self.second.insert(tag, index, value);
    }

    /// Replaces a translation, wherever it is: a store made it dirty.
    pub fn set(&mut self, slot: Slot, huge: bool, value: Translation) {
        let (first, tag, index) = if huge {
            (&mut self.large, slot | HUGE_TAG, slot / HUGE_PAGES)
        } else {
            (&mut self.small, slot, slot)
        };
        first.remove(tag, index);
        first.insert(tag, index, value);
        self.second.set_value(tag, index, value);
    }

    /// Forgets a page, of whichever size; for a huge page its head is given.
    pub fn flush_page(&mut self, slot: Slot) {
        if self.flush_pending {
            return;
        }
        self.small.remove(slot, slot);
        self.second.remove(slot, slot);
        if slot.is_multiple_of(HUGE_PAGES) {
            self.large.remove(slot | HUGE_TAG, slot / HUGE_PAGES);
            self.second.remove(slot | HUGE_TAG, slot / HUGE_PAGES);
        }
    }

    /// Points all entries to where their pages are now.
    pub fn follow(&mut self, ptes: &[Pte]) {
        let first = |first: &mut First| {
            let tags = first.tags.iter().flatten();
            retarget(tags, first.values.iter_mut().flatten(), ptes);
        };
        first(&mut self.small);
        first(&mut self.large);
        let tags = self.second.tags.iter().flatten();
        retarget(tags, self.second.values.iter_mut().flatten(), ptes);
    }

    /// Forgets everything.
    pub fn flush_all(&mut self) {
        self.flush_pending = true;
    }

    /// All entries: slot (of a huge page, its head), whether huge, and translation. An entry may be in
    /// both levels. For checks that none is stale.
    pub fn entries(&self) -> impl Iterator<Item = (Slot, bool, Translation)> + '_ {
        let firsts = [&self.small, &self.large];
        let first = firsts.into_iter().flat_map(|first| {
            let tags = first.tags.iter().flatten();
            tags.zip(first.values.iter().flatten())
        });
        let tags = self.second.tags.iter().flatten();
        let second = tags.zip(self.second.values.iter().flatten());
        let valid = |&(&tag, _): &(&u32, &Translation)| tag != EMPTY && tag != ABSENT;
        let all = first.chain(second).filter(valid);
        all.filter(|_| !self.flush_pending)
            .map(|(&tag, &value)| (tag & !HUGE_TAG, tag & HUGE_TAG != 0, value))
    }
}
