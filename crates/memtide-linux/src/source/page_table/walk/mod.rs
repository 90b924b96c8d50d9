//! Walks x86-64 page tables in memory that does not hold still.
//!
//! # The tables
//!
//! A table is one page of 512 entries of eight bytes. The bits of a virtual
//! address choose an entry in each level: 9 bits a level above the 12 bits inside
//! the page. Level 4 (or 5) is the root; an entry of level 1 maps a page, and an
//! entry of level 2 or 3 with bit 7 set maps 2 MiB or 1 GiB at once. The
//! processor sets bit 5 of a mapping entry when it uses it: *accessed*.
//!
//! An entry without bit 0 faults. If it has bit 8 nevertheless, it is a mapping
//! that the kernel took away to see who wants it (a NUMA hint) or that the
//! program forbade (`PROT_NONE`): the page is there. Such an entry keeps the
//! accessed bit of before, so that is what is reported.
//!
//! # What may happen meanwhile
//!
//! The process runs and unmaps memory, and the kernel frees its tables while we
//! read. So no address is trusted: [`Memory`] refuses what is not RAM. And a
//! level-1 table counts only if the entry that led to it is unchanged after it
//! was read; otherwise its pages are left out and counted in
//! [`WalkStats::unstable`]. Larger tables are read once a walk and live as long
//! as the process maps anything in the GiB around.

use std::ops::Range;

/// Entries in a table.
const ENTRIES: usize = 512;
const PRESENT: u64 = 1;
const ACCESSED: u64 = 1 << 5;
const LARGE: u64 = 1 << 7;
const HELD_BACK: u64 = 1 << 8;

/// The address bits of an entry, if the kernel does not say otherwise.
pub const PHYSICAL_MASK: u64 = (1 << 52) - 1;

/// Physical memory.
pub trait Memory {
    /// Fills `out` from `address`. False if that is no memory.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;
}

impl Memory for super::kcore::Kcore {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        self.read_physical(address, out)
    }
}

/// Neighbouring present pages of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// Virtual page number of the first.
    pub vpn: u64,
    /// How many base pages.
    pub pages: u64,
    /// Whether they were accessed since the bits were cleared. For huge pages:
    /// whether any part was.
    pub accessed: bool,
    /// Whether they are mapped by entries of 2 MiB or 1 GiB.
    pub huge: bool,
}

/// What a walk came across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkStats {
    /// Present base pages.
    pub present: u64,
    /// Those of them that were accessed.
    pub accessed: u64,
    /// Tables read.
    pub tables: u64,
    /// Level-1 tables that vanished while they were read.
    pub unstable: u64,
    /// Entries that pointed outside of RAM.
    pub unreadable: u64,
}

/// The root of a process's tables and how to read entries.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// Physical address of the topmost table.
    pub table: u64,
    /// 4 or 5.
    pub levels: u32,
    /// The bits of an entry that are address or flags, without an encryption
    /// bit among the address bits.
    pub physical_mask: u64,
}

/// The tables of one process, and the last one read at each level.
#[derive(Debug)]
pub struct Walk {
    /// At index `level - 1`.
    tables: [Table; 5],
    bytes: Box<[u8; ENTRIES * 8]>,
    stats: WalkStats,
    run: Option<PageRun>,
}

#[derive(Debug)]
struct Table {
    address: Option<u64>,
    entries: Box<[u64; ENTRIES]>,
}

impl Default for Walk {
    fn default() -> Walk {
        Walk {
            tables: std::array::from_fn(|_| Table {
                address: None,
                entries: Box::new([0; ENTRIES]),
            }),
            bytes: Box::new([0; ENTRIES * 8]),
            stats: WalkStats::default(),
            run: None,
        }
    }
}

impl Walk {
    /// Reports the present pages of `ranges` (virtual page numbers) as runs, in
    /// order. Absent pages are in no run. Best sorted: neighbours share tables.
    pub fn walk(
        &mut self,
        memory: &impl Memory,
        root: Root,
        ranges: &[Range<u64>],
        on: &mut dyn FnMut(PageRun),
    ) -> WalkStats {
        self.tables
            .iter_mut()
            .for_each(|table| table.address = None);
        self.stats = WalkStats::default();
        // The upper half of the address space is the kernel's own.
        let limit = 1 << (root.levels * 9 - 1);
        for range in ranges {
            let range = range.start.min(limit)..range.end.min(limit);
            if !range.is_empty() && self.load(memory, root.levels, root.table) {
                self.level(memory, root, root.levels, range, on);
            }
            self.end_run(on);
        }
        self.stats
    }

    /// Walks `range` in the loaded table of `level`.
    fn level(
        &mut self,
        memory: &impl Memory,
        root: Root,
        level: u32,
        range: Range<u64>,
        on: &mut dyn FnMut(PageRun),
    ) {
        let span = 1u64 << ((level - 1) * 9);
        let mut vpn = range.start;
        while vpn < range.end {
            let index = (vpn / span) as usize % ENTRIES;
            let end = range.end.min((vpn / span + 1) * span);
            let entry = self.tables[level as usize - 1].entries[index];
            match kind(entry, level) {
                Kind::Nothing => {}
                Kind::Pages => self.pages(vpn..end, entry & ACCESSED != 0, level > 1, on),
                Kind::Table => {
                    let at = entry & root.physical_mask & PHYSICAL_MASK & !0xfff;
                    let place = self.tables[level as usize - 1].address.unwrap_or_default();
                    let place = place + index as u64 * 8;
                    if self.descend(memory, level - 1, at, place, entry) {
                        self.level(memory, root, level - 1, vpn..end, on);
                    }
                }
            }
            vpn = end;
        }
    }

    /// Loads the table that `entry`, which stands at `place`, points to.
    fn descend(
        &mut self,
        memory: &impl Memory,
        level: u32,
        at: u64,
        place: u64,
        entry: u64,
    ) -> bool {
        if self.tables[level as usize - 1].address == Some(at) {
            return true;
        }
        if !self.load(memory, level, at) {
            return false;
        }
        let mut now = [0; 8];
        // The processor may set the accessed bit of the entry at any time.
        let same = |now: u64| (now ^ entry) & !ACCESSED == 0;
        if level == 1 && !(memory.read(place, &mut now) && same(u64::from_le_bytes(now))) {
            self.tables[0].address = None;
            self.stats.unstable += 1;
            return false;
        }
        true
    }

    fn load(&mut self, memory: &impl Memory, level: u32, at: u64) -> bool {
        let table = &mut self.tables[level as usize - 1];
        if table.address == Some(at) {
            return true;
        }
        table.address = None;
        if !memory.read(at, &mut self.bytes[..]) {
            self.stats.unreadable += 1;
            return false;
        }
        let (words, _) = self.bytes.as_chunks::<8>();
        for (entry, word) in table.entries.iter_mut().zip(words) {
            *entry = u64::from_le_bytes(*word);
        }
        table.address = Some(at);
        self.stats.tables += 1;
        true
    }

    /// Adds pages to the current run, or begins another.
    fn pages(&mut self, vpns: Range<u64>, accessed: bool, huge: bool, on: &mut dyn FnMut(PageRun)) {
        let pages = vpns.end - vpns.start;
        self.stats.present += pages;
        self.stats.accessed += if accessed { pages } else { 0 };
        match &mut self.run {
            Some(run)
                if run.vpn + run.pages == vpns.start
                    && (run.accessed, run.huge) == (accessed, huge) =>
            {
                run.pages += pages;
            }
            _ => {
                self.end_run(on);
                self.run = Some(PageRun {
                    vpn: vpns.start,
                    pages,
                    accessed,
                    huge,
                });
            }
        }
    }

    fn end_run(&mut self, on: &mut dyn FnMut(PageRun)) {
        if let Some(run) = self.run.take() {
            on(run);
        }
    }
}

enum Kind {
    Nothing,
    Pages,
    Table,
}

fn kind(entry: u64, level: u32) -> Kind {
    let mapping = level == 1 || (level <= 3 && entry & LARGE != 0);
    if mapping && entry & (PRESENT | HELD_BACK) != 0 {
        Kind::Pages
    } else if !mapping && entry & PRESENT != 0 {
        Kind::Table
    } else {
        Kind::Nothing
    }
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one range is meant"
)]
pub(super) mod tests;
