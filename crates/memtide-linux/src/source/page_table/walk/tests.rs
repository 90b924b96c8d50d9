//! Walks of tables that the tests wrote.

use super::*;
use std::cell::{Cell, RefCell};

const PAGE: u64 = 4096;
/// Present, writable, user.
pub(in super::super) const MAP: u64 = 7;

/// RAM from address 0 on, in which tests build page tables.
#[derive(Default)]
pub(in super::super) struct Ram {
    pub(in super::super) bytes: RefCell<Vec<u8>>,
    reads: Cell<usize>,
    /// Overwrites (address, entry) after the nth read.
    change: Cell<Option<(usize, u64, u64)>>,
}

impl Memory for Ram {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let bytes = self.bytes.borrow();
        let Some(from) = bytes
            .get(address as usize..)
            .and_then(|b| b.get(..out.len()))
        else {
            return false;
        };
        out.copy_from_slice(from);
        drop(bytes);
        self.reads.set(self.reads.get() + 1);
        if let Some((nth, address, entry)) = self.change.get()
            && nth == self.reads.get()
        {
            self.set(address, entry);
        }
        true
    }
}

impl Ram {
    /// A new table's address.
    pub(in super::super) fn table(&self) -> u64 {
        let mut bytes = self.bytes.borrow_mut();
        let at = bytes.len() as u64;
        bytes.resize((at + PAGE) as usize, 0);
        at
    }

    fn get(&self, address: u64) -> u64 {
        let bytes = self.bytes.borrow();
        u64::from_le_bytes(bytes[address as usize..][..8].try_into().unwrap())
    }

    pub(in super::super) fn set(&self, address: u64, entry: u64) {
        let mut bytes = self.bytes.borrow_mut();
        bytes[address as usize..][..8].copy_from_slice(&entry.to_le_bytes());
    }

    /// Sets the entry for `vpn` at `level`, making the tables above it.
    pub(in super::super) fn map(&self, root: Root, vpn: u64, level: u32, entry: u64) -> u64 {
        let mut table = root.table;
        for upper in (level + 1..=root.levels).rev() {
            let place = table + (vpn >> ((upper - 1) * 9)) % 512 * 8;
            if self.get(place) == 0 {
                let below = self.table();
                self.set(place, below | MAP);
            }
            table = self.get(place) & !0xfff;
        }
        let place = table + (vpn >> ((level - 1) * 9)) % 512 * 8;
        self.set(place, entry);
        place
    }
}

pub(in super::super) fn root(ram: &Ram, levels: u32) -> Root {
    Root {
        table: ram.table(),
        levels,
        physical_mask: PHYSICAL_MASK,
    }
}

fn walk(ram: &Ram, root: Root, ranges: &[Range<u64>]) -> (Vec<(u64, u64, bool, bool)>, WalkStats) {
    let mut runs = Vec::new();
    let stats = Walk::default().walk(ram, root, ranges, &mut |run| {
        runs.push((run.vpn, run.pages, run.accessed, run.huge));
    });
    (runs, stats)
}

#[test]
fn touched_and_untouched_pages_are_runs_in_four_and_five_levels() {
    for levels in [4, 5] {
        let ram = Ram::default();
        let root = root(&ram, levels);
        // A page number that uses an entry other than 0 in every level.
        let first = 0x0005_4321_0fe0 & ((1 << (levels * 9 - 1)) - 1);
        for (n, accessed) in [true, true, false, true].into_iter().enumerate() {
            let bit = if accessed { ACCESSED } else { 0 };
            ram.map(root, first + n as u64, 1, 0x7000 | MAP | bit);
        }
        // A hole of one page, then one more, in the next level-1 table too.
        ram.map(root, first + 5, 1, 0x8000 | MAP);
        ram.map(root, first + 32, 1, 0x8000 | MAP);
        let (runs, stats) = walk(&ram, root, &[first - 4..first + 600]);
        let small = |at, pages, accessed| (first + at, pages, accessed, false);
        assert_eq!(
            runs,
            [
                small(0, 2, true),
                small(2, 1, false),
                small(3, 1, true),
                small(5, 1, false),
                small(32, 1, false),
            ]
        );
        assert_eq!((stats.present, stats.accessed), (6, 3));
        assert_eq!(stats.tables, u64::from(levels) + 1);
    }
}

#[test]
fn huge_entries_are_clipped_to_the_range() {
    let ram = Ram::default();
    let root = root(&ram, 4);
    ram.map(root, 512, 2, 0x20_0000 | MAP | LARGE | ACCESSED);
    ram.map(root, 1024, 2, 0x40_0000 | MAP | LARGE | ACCESSED);
    ram.map(root, 1 << 18, 3, 0x4000_0000 | MAP | LARGE);
    let (runs, stats) = walk(&ram, root, &[600..1030, (1 << 18) + 5..(1 << 18) + 7]);
    let huge = |vpn, pages, accessed| (vpn, pages, accessed, true);
    assert_eq!(runs, [huge(600, 430, true), huge((1 << 18) + 5, 2, false)]);
    assert_eq!(stats.present, 432);
}

#[test]
fn held_back_entries_are_there_and_swapped_ones_are_not() {
    let ram = Ram::default();
    let root = root(&ram, 4);
    ram.map(root, 10, 1, 0x7000 | HELD_BACK | ACCESSED);
    ram.map(root, 11, 1, 0x7000 | HELD_BACK);
    // A swap entry: neither bit, whatever else is set.
    ram.map(root, 12, 1, 0xffff_ffff_0000_0000 | ACCESSED);
    ram.map(root, 512, 2, 0x20_0000 | HELD_BACK | LARGE);
    let (runs, _) = walk(&ram, root, &[0..1024]);
    assert_eq!(
        runs,
        [
            (10, 1, true, false),
            (11, 1, false, false),
            (512, 512, false, true)
        ]
    );
}

#[test]
fn an_entry_that_points_nowhere_hides_only_its_own_pages() {
    let ram = Ram::default();
    let root = root(&ram, 4);
    ram.map(root, 0, 1, 0x7000 | MAP);
    ram.map(root, 512, 2, 0xffff_ffff_f000 | MAP);
    ram.map(root, 1024, 1, 0x7000 | MAP);
    let (runs, stats) = walk(&ram, root, &[0..2048]);
    assert_eq!(runs, [(0, 1, false, false), (1024, 1, false, false)]);
    assert_eq!(stats.unreadable, 1);
}

#[test]
fn a_table_that_is_freed_while_it_is_read_is_left_out() {
    let ram = Ram::default();
    let root = root(&ram, 4);
    ram.map(root, 0, 1, 0x7000 | MAP);
    // The level-2 table is the third one; its entry 0 leads to the fourth,
    // which is the fourth read.
    let (place, below) = (2 * PAGE, (3 * PAGE) | MAP);
    assert_eq!(ram.get(place), below);
    ram.change.set(Some((4, place, 0)));
    let (runs, stats) = walk(&ram, root, &[0..512]);
    assert_eq!((runs, stats.unstable), (vec![], 1));
    // That the processor marks the entry as used is no change.
    ram.set(place, below);
    ram.reads.set(0);
    ram.change.set(Some((4, place, below | ACCESSED)));
    let (runs, stats) = walk(&ram, root, &[0..512]);
    assert_eq!((runs.len(), stats.unstable), (1, 0));
}

#[test]
fn an_encryption_bit_is_no_address_bit() {
    let ram = Ram::default();
    let root = Root {
        physical_mask: PHYSICAL_MASK & !(1 << 51),
        ..root(&ram, 4)
    };
    let below = ram.table();
    let place = ram.map(root, 0, 2, below | MAP | 1 << 51);
    ram.set(below, 0x7000 | MAP);
    assert_eq!(walk(&ram, root, &[0..1]).0.len(), 1);
    ram.set(place, 0);
    assert_eq!(walk(&ram, root, &[0..1]).0.len(), 0);
}

#[test]
fn the_kernels_half_is_never_walked() {
    let ram = Ram::default();
    let root = root(&ram, 4);
    ram.map(root, 1 << 35, 1, 0x7000 | MAP);
    ram.map(root, (1 << 35) - 1, 1, 0x7000 | MAP);
    let (runs, _) = walk(&ram, root, &[(1 << 35) - 2..u64::MAX]);
    assert_eq!(runs, [((1 << 35) - 1, 1, false, false)]);
}

proptest::proptest! {
    #[test]
    fn a_walk_agrees_with_what_was_mapped(
        pages in proptest::collection::btree_map(0u64..2000, proptest::bool::ANY, 0..300),
        start in 0u64..2000,
        length in 0u64..2000,
    ) {
        let ram = Ram::default();
        let root = root(&ram, 4);
        for (&vpn, &accessed) in &pages {
            ram.map(root, vpn, 1, 0x7000 | MAP | if accessed { ACCESSED } else { 0 });
        }
        let range = start..start + length;
        let (runs, _) = walk(&ram, root, std::slice::from_ref(&range));
        let seen: Vec<(u64, bool)> = runs
            .iter()
            .flat_map(|&(vpn, pages, accessed, _)| (vpn..vpn + pages).map(move |vpn| (vpn, accessed)))
            .collect();
        let expected: Vec<(u64, bool)> =
            pages.range(range).map(|(&vpn, &accessed)| (vpn, accessed)).collect();
        proptest::prop_assert_eq!(seen, expected);
    }

    #[test]
    fn tables_that_lead_anywhere_are_walked_to_an_end(
        entries in proptest::collection::vec((0u64..6, 0u64..4096), 4 * 512),
    ) {
        // Four tables that point to each other, to themselves and to nowhere.
        let ram = Ram::default();
        for (n, (page, flags)) in entries.into_iter().enumerate() {
            if n % 512 == 0 {
                ram.table();
            }
            ram.set(n as u64 * 8, (page * PAGE) | flags);
        }
        let root = Root { table: 0, levels: 5, physical_mask: PHYSICAL_MASK };
        let end = 1 << 17;
        let (runs, _) = walk(&ram, root, &[3..end]);
        let mut last = 3;
        for (vpn, pages, _, _) in runs {
            assert!(vpn >= last && pages > 0);
            last = vpn + pages;
            assert!(last <= end);
        }
    }
}
