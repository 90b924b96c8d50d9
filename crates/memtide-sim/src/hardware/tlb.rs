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

/// The first level for one size of page: sets, as many as a power of two.
struct First(Vec<Set>);

impl First {
    fn new(entries: u32) -> First {
        First(vec![Set::default(); power_of_two_sets(entries, FIRST_WAYS)])
    }
}

/// The set of the page of number `index` in a first level, and the page's tag there.
#[inline(always)]
fn first_set(sets: &mut [Set], index: u32) -> (&mut Set, u16) {
    let tag = index.wrapping_mul(0x9e37_79b1) >> 16;
    let set = index as usize & (sets.len() - 1);
    (&mut sets[set], (tag as u16).max(1))
}

/// A set of the second level: its tags are one line of the host's cache, as a look-up that fails needs
/// nothing else.
#[derive(Clone)]
#[repr(align(64))]
struct Ways {
    tags: [u32; WAYS],
    values: [Translation; WAYS],
    /// Ways that were used lately, a bit each; those that the level lacks count as used.
    used: u16,
    /// Ways that the level does not have.
    absent: u16,
}

impl Ways {
    fn new(ways: u32) -> Ways {
        let absent = !(0xffff >> (WAYS as u32 - ways));
        Ways {
            tags: std::array::from_fn(|way| if way < ways as usize { EMPTY } else { ABSENT }),
            values: Default::default(),
            used: absent,
            absent,
        }
    }

    fn clear(&mut self) {
        for tag in self.tags.iter_mut().filter(|tag| **tag != ABSENT) {
            *tag = EMPTY;
        }
        self.used = self.absent;
    }

    /// The way of `tag`. Whether it is there at all is a few comparisons at once; where it is matters only
    /// then.
    #[inline(always)]
    fn way(&self, tag: u32) -> Option<usize> {
        let mut found = [0u32; 4];
        for four in self.tags.as_chunks::<4>().0 {
            for (found, &way) in found.iter_mut().zip(four) {
                *found |= if way == tag { u32::MAX } else { 0 };
            }
        }
        if found[0] | found[1] | found[2] | found[3] == 0 {
            return None;
        }
        let way = self.tags.iter().position(|&way| way == tag)?;
        Some(way & (WAYS - 1))
    }

    #[inline(always)]
    fn touch(&mut self, way: usize) {
        let used = self.used | 1 << way;
        self.used = if used == 0xffff {
            self.absent | 1 << way
        } else {
            used
        };
    }

    #[inline(always)]
    fn find(&mut self, tag: u32) -> Option<Translation> {
        let way = self.way(tag)?;
        self.touch(way);
        Some(self.values[way])
    }

    /// Puts an entry in that was not found.
    #[inline(always)]
    fn insert(&mut self, tag: u32, value: Translation) {
        // With one way only, all are always used: it is way 0.
        let way = (!u32::from(self.used)).trailing_zeros() as usize & (WAYS - 1);
        self.touch(way);
        self.tags[way] = tag;
        self.values[way] = value;
    }

    fn remove(&mut self, tag: u32) {
        if let Some(way) = self.way(tag) {
            self.tags[way] = EMPTY;
            self.used &= !(1 << way);
        }
    }
}

/// The second level: sets, as many as a power of two.
struct Second(Vec<Ways>);

impl Second {
    fn new(entries: u32, ways: u32) -> Second {
        let ways = ways.max(1);
        let ways = ways.div_ceil(ways.div_ceil(WAYS as u32).next_power_of_two());
        Second(vec![Ways::new(ways); power_of_two_sets(entries, ways)])
    }

    /// The set of the page of number `index`.
    fn set(&mut self, index: u32) -> &mut Ways {
        let set = index as usize & (self.0.len() - 1);
        &mut self.0[set]
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
        self.second.0[0].absent.count_zeros() * self.second.0.len() as u32
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
        self.small.0.fill(Set::default());
        self.large.0.fill(Set::default());
        self.second.0.iter_mut().for_each(Ways::clear);
    }

    /// The TLB for many look-ups.
    #[inline(always)]
    pub fn open(&mut self) -> OpenTlb<'_> {
        OpenTlb {
            small: &mut self.small.0,
            large: &mut self.large.0,
            second: &mut self.second.0,
        }
    }

    /// See [`OpenTlb::find`].
    pub fn find(&mut self, slot: Slot, huge: bool) -> Found {
        self.open().find(slot, huge)
    }

    /// See [`OpenTlb::insert`].
    pub fn insert(&mut self, slot: Slot, huge: bool, value: Translation) {
        self.open().insert(slot, huge, value);
    }

    /// See [`OpenTlb::set`].
    pub fn set(&mut self, slot: Slot, huge: bool, value: Translation) {
        self.open().set(slot, huge, value);
    }

    /// Forgets a page, of whichever size; for a huge page its head is given.
    pub fn flush_page(&mut self, slot: Slot) {
        if self.flush_pending {
            return;
        }
        self.second.set(slot).remove(slot);
        if slot.is_multiple_of(HUGE_PAGES) {
            let (tag, index) = tagged(slot, true);
            self.second.set(index).remove(tag);
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
            self.second.set(index).remove(tag);
        }
    }

    /// Points all entries to where their pages are now.
    pub fn follow(&mut self, ptes: &[Pte]) {
        let sets = self.second.0.iter_mut();
        for (&tag, value) in sets.flat_map(|set| set.tags.iter().zip(&mut set.values)) {
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
        let sets = self.second.0.iter();
        sets.flat_map(|set| set.tags.iter().zip(&set.values))
            .filter(|&(&tag, _)| tag != EMPTY && tag != ABSENT)
            .filter(|_| !self.flush_pending)
            .map(|(&tag, &value)| (tag & !HUGE_TAG, tag & HUGE_TAG != 0, value))
    }
}

/// A TLB's tables by themselves: where they lie is looked up once, not at each access.
pub struct OpenTlb<'a> {
    small: &'a mut [Set],
    large: &'a mut [Set],
    second: &'a mut [Ways],
}

impl OpenTlb<'_> {
    #[inline(always)]
    fn first(&mut self, huge: bool) -> &mut [Set] {
        match huge {
            true => self.large,
            false => self.small,
        }
    }

    #[inline(always)]
    fn second(&mut self, index: u32) -> &mut Ways {
        let set = index as usize & (self.second.len() - 1);
        &mut self.second[set]
    }

    /// Looks up a page; `huge` if `slot` is the head of a huge page. Afterwards the first level has it.
    #[inline(always)]
    pub fn find(&mut self, slot: Slot, huge: bool) -> Found {
        let (tag, index) = tagged(slot, huge);
        let Some(value) = self.second(index).find(tag) else {
            return Found::Nothing;
        };
        let (set, tag) = first_set(self.first(huge), index);
        match set.access(tag) {
            true => Found::First(value),
            false => Found::Second(value),
        }
    }

    /// Notes a translation that a walk found after [`OpenTlb::find`] found nothing.
    #[inline(always)]
    pub fn insert(&mut self, slot: Slot, huge: bool, value: Translation) {
        let (tag, index) = tagged(slot, huge);
        let (set, first_tag) = first_set(self.first(huge), index);
        set.push(first_tag);
        self.second(index).insert(tag, value);
    }

    /// Replaces a translation that [`OpenTlb::find`] found: a store made it dirty.
    #[inline(always)]
    pub fn set(&mut self, slot: Slot, huge: bool, value: Translation) {
        let (tag, index) = tagged(slot, huge);
        let set = self.second(index);
        if let Some(way) = set.way(tag) {
            set.values[way] = value;
        }
    }
}
