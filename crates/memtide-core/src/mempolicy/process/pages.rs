//! Which page lies on which node, in the shape of the page tables.
//!
//! A table of the lowest level holds one entry a page; three levels above it
//! matter only because each table is itself a page that the kernel takes
//! through the task's policy, which advances the interleave counter. Tables
//! come with the first fault in their span and go when the last mapping does.
//!
//! After a fork(2), parent and child have the same pages. Addresses never move
//! here, so a shared page is named by its virtual page and by the fork that it
//! became shared with ([`Entry::shared`]): who has the same number there has
//! the same page.

use crate::units::{NodeId, PageSize};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::ops::Range;

/// The number of a fork, from 1.
pub(super) type Fork = NonZeroU16;

/// What lies at a virtual page. Small, since there is one a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    at: u16,
    shared: Option<Fork>,
}

impl Entry {
    /// Nothing was ever touched here.
    pub(super) const NONE: Entry = Entry::of(u16::MAX);
    /// It was read only: the kernel's page of zeros is mapped.
    pub(super) const ZERO_PAGE: Entry = Entry::of(u16::MAX - 1);

    const fn of(at: u16) -> Entry {
        Entry { at, shared: None }
    }

    /// A page that no other process has.
    pub(super) fn on(node: NodeId) -> Entry {
        Entry::of(node.0)
    }

    /// The node of a page that is not the kernel's page of zeros.
    pub(super) fn node(self) -> Option<NodeId> {
        (self.at < NodeId::LIMIT).then_some(NodeId(self.at))
    }

    /// The fork since which others may have the page, if any may.
    pub(super) fn shared(self) -> Option<Fork> {
        self.shared
    }

    /// The same page, moved to `node`.
    pub(super) fn moved(self, node: NodeId) -> Entry {
        Entry { at: node.0, ..self }
    }
}

/// All entries of a process.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// Base-two logarithm of the entries in a table.
    bits: u32,
    /// The lowest tables, by page number over entries.
    tables: BTreeMap<u64, Box<[Entry]>>,
    /// The two levels above (PMD and PUD), by their span's number.
    upper: [BTreeSet<u64>; 2],
}

impl Pages {
    pub(super) fn new(page: PageSize) -> Pages {
        Pages {
            // An entry is eight bytes.
            bits: page.shift() - 3,
            tables: BTreeMap::new(),
            upper: Default::default(),
        }
    }

    pub(super) fn get(&self, page: u64) -> Entry {
        let slot = (page & self.slot_mask()) as usize;
        let table = self.tables.get(&(page >> self.bits));
        table.map_or(Entry::NONE, |t| t[slot])
    }

    /// How many entries there are, present or not.
    pub(super) fn room(&self) -> u64 {
        (self.tables.len() as u64) << self.bits
    }

    fn slot_mask(&self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Cuts `pages` at the borders of tables.
    pub(super) fn pieces(&self, pages: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let bits = self.bits;
        let mut at = pages.start;
        std::iter::from_fn(move || {
            let end = (((at >> bits) + 1) << bits).min(pages.end);
            (at < end).then(|| std::mem::replace(&mut at, end)..end)
        })
    }

    /// The entries of a piece, its tables made where missing, and how many
    /// had to be made.
    pub(super) fn populate(&mut self, piece: Range<u64>) -> (&mut [Entry], u32) {
        let number = piece.start >> self.bits;
        let mut made = 0;
        let entries = self.tables.entry(number).or_insert_with(|| {
            made = 1;
            vec![Entry::NONE; 1 << self.bits].into()
        });
        if made == 1 {
            for (level, spans) in self.upper.iter_mut().enumerate() {
                made += u32::from(spans.insert(number >> (self.bits * (level as u32 + 1))));
            }
        }
        let slots = piece.end - piece.start;
        let first = piece.start & ((1 << self.bits) - 1);
        (&mut entries[first as usize..(first + slots) as usize], made)
    }

    /// The entries in `pages` that have a table, ascending, each with its page.
    pub(super) fn present(&self, pages: Range<u64>) -> impl Iterator<Item = (u64, Entry)> {
        let tables = self.tables.range(self.spans(&pages, 1));
        tables
            .flat_map(|(&n, t)| (n << self.bits..).zip(t.iter().copied()))
            .filter(move |(page, entry)| pages.contains(page) && *entry != Entry::NONE)
    }

    /// Changes the entries in `pages` that have a table.
    pub(super) fn change(&mut self, pages: Range<u64>, mut f: impl FnMut(u64, &mut Entry)) {
        let spans = self.spans(&pages, 1);
        let bits = self.bits;
        for (&n, table) in self.tables.range_mut(spans) {
            let slots = slots(n, bits, &pages);
            let first = (n << bits) + slots.start as u64;
            for (page, entry) in (first..).zip(&mut table[slots]) {
                f(page, entry);
            }
        }
    }

    /// Forgets `pages`, and the tables whose span `mapped` says holds no
    /// mapping any more.
    pub(super) fn unmap(&mut self, pages: Range<u64>, mapped: impl Fn(Range<u64>) -> bool) {
        self.change(pages.clone(), |_, entry| *entry = Entry::NONE);
        let span = |n: u64, bits: u32| n << bits..(n + 1) << bits;
        let bits = self.bits;
        let inside = self.spans(&pages, 1);
        let gone: Vec<u64> = self.tables.range(inside).map(|(&n, _)| n).collect();
        for n in gone.into_iter().filter(|&n| !mapped(span(n, bits))) {
            self.tables.remove(&n);
        }
        for level in [2, 3] {
            let inside = self.spans(&pages, level);
            let spans = &mut self.upper[level as usize - 2];
            let gone: Vec<u64> = spans.range(inside).copied().collect();
            for n in gone.into_iter().filter(|&n| !mapped(span(n, bits * level))) {
                spans.remove(&n);
            }
        }
    }

    /// Gives `child` the tables and the pages of `pages`; from now on they are
    /// shared, those that were not yet since `fork`. Returns how many tables
    /// had to be made.
    pub(super) fn share(&mut self, pages: Range<u64>, fork: Fork, child: &mut Pages) -> u32 {
        let (spans, bits) = (self.spans(&pages, 1), self.bits);
        let mut made = 0;
        for (&n, table) in self.tables.range_mut(spans) {
            let copy = child.tables.entry(n).or_insert_with(|| {
                made += 1;
                vec![Entry::NONE; 1 << bits].into()
            });
            let slots = slots(n, bits, &pages);
            for entry in &mut table[slots.clone()] {
                if entry.node().is_some() {
                    entry.shared = entry.shared.or(Some(fork));
                }
            }
            copy[slots.clone()].copy_from_slice(&table[slots]);
        }
        for level in [2, 3] {
            let inside = self.spans(&pages, level);
            for &n in self.upper[level as usize - 2].range(inside) {
                made += u32::from(child.upper[level as usize - 2].insert(n));
            }
        }
        made
    }

    /// Takes the marks from those of `pages` that none of `others` has.
    pub(super) fn settle(&mut self, pages: Range<u64>, others: &[&Pages]) {
        let (spans, bits) = (self.spans(&pages, 1), self.bits);
        for (&n, table) in self.tables.range_mut(spans) {
            let slots = slots(n, bits, &pages);
            if table[slots.clone()].iter().all(|e| e.shared.is_none()) {
                continue;
            }
            let tables = others.iter().filter_map(|other| other.tables.get(&n));
            let tables: Vec<&[Entry]> = tables.map(|table| &table[slots.clone()]).collect();
            for (slot, entry) in table[slots].iter_mut().enumerate() {
                let has = |table: &&[Entry]| table[slot].shared == entry.shared;
                if entry.shared.is_some() && !tables.iter().any(has) {
                    entry.shared = None;
                }
            }
        }
    }

    /// Those of `pages` that `moved` has, too, are where they are there.
    pub(super) fn follow(&mut self, pages: Range<u64>, moved: &Pages) {
        let (spans, bits) = (self.spans(&pages, 1), self.bits);
        for (&n, table) in self.tables.range_mut(spans) {
            let Some(theirs) = moved.tables.get(&n) else {
                continue;
            };
            let slots = slots(n, bits, &pages);
            for (entry, theirs) in table[slots.clone()].iter_mut().zip(&theirs[slots]) {
                if entry.shared.is_some() && entry.shared == theirs.shared {
                    *entry = *theirs;
                }
            }
        }
    }

    /// The numbers of the tables of a level, from 1, that cover `pages`.
    fn spans(&self, pages: &Range<u64>, level: u32) -> Range<u64> {
        let shift = self.bits * level;
        match pages.is_empty() {
            true => 0..0,
            false => pages.start >> shift..((pages.end - 1) >> shift) + 1,
        }
    }
}

/// The part of table `n` that lies in `pages`, of which it has at least one.
fn slots(n: u64, bits: u32, pages: &Range<u64>) -> Range<usize> {
    let first = n << bits;
    let end = first + (1 << bits);
    let slot = |page: u64| (page - first) as usize;
    slot(pages.start.clamp(first, end))..slot(pages.end.clamp(first, end))
}
