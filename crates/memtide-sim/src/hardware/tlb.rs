//! A two-level TLB of one CPU, for 4 KiB and 2 MiB pages.
//!
//! An entry is a tag and what it translates to: frame, node, and whether stores may go through it
//! without a look at the page table. A hit uses the entry alone, so an entry that was not flushed
//! translates to where the page was: that is what accessed bits miss and lazy flushing relies on.
//!
//! Entries are kept by the second level, which both sizes share. It replaces an entry that was not
//! used since all others of its set were. The first level says which of them are at hand at no cost:
//! four ways in LRU order for each size of page, by 16 bits of the tag, as an error there is one of
//! cost only. Numbers of sets are powers of two, indexed by the low bits of the page's number; more
//! ways than 16 are taken for twice as many sets of half of them. Scaling divides the entries, but a
//! level keeps at least one full set.
//!
//! A full flush is noted and done before the next look-up ([`Tlb::settle`]), so that many flushes of a
//! CPU that does not run cost one.

use super::llc::Set;
use crate::page::{Frame, HUGE_PAGES, Pte, Slot};
use crate::spec::CpuSpec;
use memtide_core::units::NodeId;

/// Ways of the first level.
const FIRST_WAYS: u32 = 4;
/// Most ways of the second.
const WAYS: usize = 16;
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

    /// As a walk finds it in a page's entry.
    #[inline(always)]
    #[must_use]
    pub fn of(entry: Pte) -> Translation {
        let stores = entry.is_dirty_and_writable();
        Translation(entry.place() | (stores * Self::STORES))
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
    sets: Vec<Set>,
    mask: u32,
}

impl First {
    fn new(entries: u32) -> First {
        let sets = power_of_two_sets(entries, FIRST_WAYS);
        First {
            sets: vec![Set::default(); sets],
            mask: sets as u32 - 1,
        }
    }

    /// Whether the page of number `index` is there; afterwards it is.
    #[inline(always)]
    fn access(&mut self, index: u32) -> bool {
        let tag = index.wrapping_mul(0x9e37_79b1) >> 16;
        self.sets[(index & self.mask) as usize].access((tag as u16).max(1))
    }

    /// Puts a page in that was in neither level.
    #[inline(always)]
    fn push(&mut self, index: u32) {
        let tag = index.wrapping_mul(0x9e37_79b1) >> 16;
        self.sets[(index & self.mask) as usize].push((tag as u16).max(1));
    }
}

/// The tags of a set, in one line of the host's cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Tags([u32; WAYS]);

/// The second level. Tags, values and use lie apart, as a look-up that fails needs tags only.
struct Second {
    tags: Vec<Tags>,
    values: Vec<[Translation; WAYS]>,
    /// Ways that were used lately, a bit each; those that the level lacks count as used.
    used: Vec<u16>,
    /// Ways that the level does not have.
    absent: u16,
    mask: u32,
}

impl Second {
    fn new(entries: u32, ways: u32) -> Second {
        let ways = ways.max(1);
        let ways = ways.div_ceil(ways.div_ceil(WAYS as u32).next_power_of_two());
        let sets = power_of_two_sets(entries, ways);
        let absent = !(0xffff >> (WAYS as u32 - ways));
        let tags = std::array::from_fn(|way| if way < ways as usize { EMPTY } else { ABSENT });
        Second {
            tags: vec![Tags(tags); sets],
            values: vec![Default::default(); sets],
            used: vec![absent; sets],
            absent,
            mask: sets as u32 - 1,
        }
    }

    fn clear(&mut self) {
        for tag in self.tags.iter_mut().flat_map(|set| &mut set.0) {
            if *tag != ABSENT {
                *tag = EMPTY;
            }
        }
        self.used.fill(self.absent);
    }

    /// The way of `tag` in `set`. Whether it is there at all is a few comparisons at once; where it is
    /// matters only then.
    #[inline(always)]
    fn way(&self, tag: u32, set: usize) -> Option<usize> {
        let tags = &self.tags[set].0;
        let mut found = [0u32; 4];
        for four in tags.as_chunks::<4>().0 {
            for (found, &way) in found.iter_mut().zip(four) {
                *found |= if way == tag { u32::MAX } else { 0 };
            }
        }
        if found[0] | found[1] | found[2] | found[3] == 0 {
            return None;
        }
        tags.iter().position(|&way| way == tag)
    }

    #[inline(always)]
    fn touch(&mut self, set: usize, way: usize) {
        let used = self.used[set] | 1 << way;
        self.used[set] = if used == 0xffff {
            self.absent | 1 << way
        } else {
            used
        };
    }

    #[inline(always)]
    fn find(&mut self, tag: u32, index: u32) -> Option<Translation> {
        let set = (index & self.mask) as usize;
        let way = self.way(tag, set)? & (WAYS - 1);
        self.touch(set, way);
        Some(self.values[set][way])
    }

    /// Puts an entry in that was not found.
    #[inline(always)]
    fn insert(&mut self, tag: u32, index: u32, value: Translation) {
        let set = (index & self.mask) as usize;
        // With one way only, all are always used.
        let way = (!self.used[set]).trailing_zeros() as usize;
        let way = if way < WAYS { way } else { 0 };
        self.touch(set, way);
        self.tags[set].0[way] = tag;
        self.values[set][way] = value;
    }

    fn set_value(&mut self, tag: u32, index: u32, value: Translation) {
        let set = (index & self.mask) as usize;
        if let Some(way) = self.way(tag, set) {
            self.values[set][way] = value;
        }
    }

    fn remove(&mut self, tag: u32, index: u32) {
        let set = (index & self.mask) as usize;
        if let Some(way) = self.way(tag, set) {
            self.tags[set].0[way] = EMPTY;
            self.used[set] &= !(1 << way);
        }
    }
}

/// Sets of `ways` ways for `entries` entries: a power of two, at least one.
fn power_of_two_sets(entries: u32, ways: u32) -> usize {
    let sets = (entries / ways).max(1);
    1 << sets.ilog2()
}

/// A page's tag, and its number among pages of its size.
#[inline(always)]
fn tagged(slot: Slot, huge: bool) -> (u32, u32) {
    match huge {
        true => (slot | HUGE_TAG, slot / HUGE_PAGES),
        false => (slot, slot),
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

    /// How many translations it holds.
    #[must_use]
    pub fn reach(&self) -> u32 {
        self.second.absent.count_zeros() * (self.second.mask + 1)
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
        self.small.sets.fill(Set::default());
        self.large.sets.fill(Set::default());
        self.second.clear();
    }

    /// Looks up a page; `huge` if `slot` is the head of a huge page. Afterwards the first level has it.
    #[inline(always)]
    pub fn find(&mut self, slot: Slot, huge: bool) -> Found {
        let (tag, index) = tagged(slot, huge);
        let Some(value) = self.second.find(tag, index) else {
            return Found::Nothing;
        };
        let first = if huge {
            &mut self.large
        } else {
            &mut self.small
        };
        match first.access(index) {
            true => Found::First(value),
            false => Found::Second(value),
        }
    }

    /// Notes a translation that a walk found after [`Tlb::find`] found nothing.
    #[inline(always)]
    pub fn insert(&mut self, slot: Slot, huge: bool, value: Translation) {
        let (tag, index) = tagged(slot, huge);
        let first = if huge {
            &mut self.large
        } else {
            &mut self.small
        };
        first.push(index);
        self.second.insert(tag, index, value);
    }

    /// Replaces a translation that [`Tlb::find`] found: a store made it dirty.
    pub fn set(&mut self, slot: Slot, huge: bool, value: Translation) {
        let (tag, index) = tagged(slot, huge);
        self.second.set_value(tag, index, value);
    }

    /// Forgets a page, of whichever size; for a huge page its head is given.
    pub fn flush_page(&mut self, slot: Slot) {
        if self.flush_pending {
            return;
        }
        self.second.remove(slot, slot);
        if slot.is_multiple_of(HUGE_PAGES) {
            self.second.remove(slot | HUGE_TAG, slot / HUGE_PAGES);
        }
    }

    /// Forgets the base and huge pages of which `forget` says so.
    pub fn flush_where(&mut self, forget: impl Fn(Slot) -> bool) {
        if self.flush_pending {
            return;
        }
        let gone: Vec<(Slot, bool)> = self
            .entries()
            .filter(|&(slot, ..)| forget(slot))
            .map(|(slot, huge, _)| (slot, huge))
            .collect();
        for (slot, huge) in gone {
            let (tag, index) = tagged(slot, huge);
            self.second.remove(tag, index);
        }
    }

    /// Points all entries to where their pages are now.
    pub fn follow(&mut self, ptes: &[Pte]) {
        let tags = self.second.tags.iter().flat_map(|set| &set.0);
        for (&tag, value) in tags.zip(self.second.values.iter_mut().flatten()) {
            if tag != EMPTY && tag != ABSENT {
                let pte = ptes[(tag & !HUGE_TAG) as usize];
                *value = Translation::new(pte.frame(), pte.node_index(), value.stores());
            }
        }
    }

    /// Forgets everything.
    pub fn flush_all(&mut self) {
        self.flush_pending = true;
    }

    /// All entries: slot (of a huge page, its head), whether huge, and translation. For checks that
    /// none is stale.
    pub fn entries(&self) -> impl Iterator<Item = (Slot, bool, Translation)> + '_ {
        let tags = self.second.tags.iter().flat_map(|set| &set.0);
        let entries = tags.zip(self.second.values.iter().flatten());
        entries
            .filter(|&(&tag, _)| tag != EMPTY && tag != ABSENT)
            .filter(|_| !self.flush_pending)
            .map(|(&tag, &value)| (tag & !HUGE_TAG, tag & HUGE_TAG != 0, value))
    }
}
