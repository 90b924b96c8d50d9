//! Who reads around a fault.
//!
//! *Problem.* The kernel reads in what lies around a missing page, as much as the
//! device's `read_ahead_kb` says: 128 KiB on most, many megabytes on some. For single
//! pages at random that is a multiple of what was asked for, in time and in memory.
//! The kernel stops by itself after a hundred misses, but each page that it finds in
//! memory takes one of them back, and a pager that unmaps pages and has them mapped
//! again makes it find many. It also reads whether there is room or not.
//!
//! *Ways.* A file has one of two gears. With the *kernel's*, its mappings are as the
//! program made them. *By need*, they are advised as `MADV_RANDOM`: a fault brings in
//! its page and nothing else, and what is read ahead are streams, by the pager's own
//! threads, as far as there is room ([`super::ahead`]). The budget is easily kept
//! then: what comes in faster than it is asked for is ours to hold back.
//!
//! *Choice.* A file whose device reads around more than a sixty-fourth part of the
//! budget is read by need: a few faults would break the budget. Of any other file the
//! gear is changed by what is seen. With the kernel's gear, granules that leave memory
//! were mapped at some time or were read for nothing; if less than three quarters were of
//! use, need is tried. (Half of them are where single pages are read at random: the kernel
//! maps 64 KiB of the 128 that it reads around each.) By need, pages come in exactly where
//! they are touched, so the length of the runs in which they come is known: where an eighth of what the kernel would
//! read is asked for in one run, one large read is cheaper than many small ones, and
//! the kernel has it again, each time for twice as long.
//!
//! Above the budget nothing is read around, whatever was advised: a reader that
//! waits for each of its pages leaves the evictor time.

use super::{FileMode, FileRegion, Inner, View};
use crate::order::ReadOrder;

/// Part of the budget that the kernel may read around one fault.
const PART_OF_BUDGET: u64 = 64;
/// What is assumed where nobody says how much the kernel reads around a fault: its
/// default.
const USUAL_BYTES: u64 = 128 << 10;
/// Granules seen leaving before the kernel's gear is judged, at first.
const PATIENCE: u64 = 256;
/// Of a batch that leaves, so many are looked at.
const SAMPLES: usize = 16;
/// Pages seen coming before need is judged.
const ENOUGH_PAGES: u64 = 2048;
/// Of what the kernel reads around, the part that one run must use.
const PART_IN_A_RUN: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gear {
    Kernel,
    Need,
}

/// How a file is read around a fault, and what speaks for and against it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    kernel_bytes: u64,
    /// The kernel reads no more than the budget has place for.
    fits: bool,
    gear: Gear,
    /// With the kernel's gear: granules that left, and those among them that were
    /// of use.
    left: (u64, u64),
    patience: u64,
    /// By need: pages that came, and runs in which they did.
    came: (u64, u64),
}

impl Around {
    pub fn new(kernel_bytes: Option<u64>, budget_bytes: u64) -> Around {
        let kernel_bytes = kernel_bytes.unwrap_or(USUAL_BYTES);
        let fits = kernel_bytes <= budget_bytes / PART_OF_BUDGET;
        Around {
            kernel_bytes,
            fits,
            gear: match fits {
                true => Gear::Kernel,
                false => Gear::Need,
            },
            left: (0, 0),
            patience: PATIENCE,
            came: (0, 0),
        }
    }

    pub fn by_need(&self) -> bool {
        self.gear == Gear::Need
    }

    /// Notes a granule that leaves. True if the gear changed.
    fn leaves(&mut self, of_use: bool) -> bool {
        if self.gear == Gear::Need {
            return false;
        }
        self.left = (self.left.0 + 1, self.left.1 + u64::from(of_use));
        if self.left.0 < self.patience {
            return false;
        }
        let (all, useful) = std::mem::take(&mut self.left);
        if useful * 4 < all * 3 {
            self.gear = Gear::Need;
            self.came = (0, 0);
        }
        self.gear == Gear::Need
    }

    /// Notes pages that came by need, in so many runs. True if the gear changed.
    fn comes(&mut self, pages: u64, runs: u64, page_bytes: u64) -> bool {
        if self.gear == Gear::Kernel || !self.fits {
            return false;
        }
        self.came = (self.came.0 + pages, self.came.1 + runs);
        if self.came.0 < ENOUGH_PAGES {
            return false;
        }
        let (pages, runs) = std::mem::take(&mut self.came);
        if pages / runs.max(1) * page_bytes * PART_IN_A_RUN >= self.kernel_bytes {
            self.gear = Gear::Kernel;
            self.patience *= 2;
        }
        self.gear == Gear::Kernel
    }
}

/// Pages of a granule that came into memory, and the runs that begin with them.
/// `before` is the page in front of them.
pub(super) fn runs(before: bool, part: &[u8]) -> (u64, u64) {
    let (mut pages, mut runs, mut last) = (0, 0, before);
    for page in part {
        let there = page & 1 == 1;
        pages += u64::from(there);
        runs += u64::from(there && !last);
        last = there;
    }
    (pages, runs)
}

impl FileMode {
    /// What the kernel is to be told of a view.
    fn order_of(view: &View, by_need: bool, held_back: bool) -> ReadOrder {
        match view.order {
            ReadOrder::Normal if held_back || by_need => ReadOrder::Random,
            ReadOrder::Sequential if held_back => ReadOrder::Random,
            order => order,
        }
    }

    /// Tells the kernel of what changed.
    pub(super) fn tell_orders(&self, inner: &mut Inner) {
        let held_back = inner.held_back;
        let mut told = Vec::new();
        for (number, region) in inner.regions.iter().enumerate() {
            let Some(region) = region else { continue };
            let by_need = match region.follows() {
                true => region.told_by_need,
                false => region.around.by_need(),
            };
            for (at, view) in region.views.iter().enumerate() {
                // What others lead is read as they say.
                let held_back = held_back && !region.follows();
                let order = FileMode::order_of(view, by_need, held_back);
                if view.told != order {
                    told.push((number, at, order));
                    self.tell_order(&inner.regions, view.range, order);
                }
            }
        }
        for (number, at, order) in told {
            if let Some(region) = inner.regions[number].as_mut() {
                region.views[at].told = order;
            }
        }
    }

    /// Notes how much came by need, and in how many runs.
    pub(super) fn note_runs(&self, inner: &mut Inner, number: usize, came: (u64, u64)) {
        let (pages, runs) = came;
        let Some(region) = inner.regions[number].as_mut().filter(|_| pages > 0) else {
            return;
        };
        let changed = region.around.comes(pages, runs, self.page_bytes as u64);
        if changed {
            self.tell_orders(inner);
        }
    }

    /// Notes of some of what is pending whether it was of use: whether somebody had it
    /// mapped.
    pub(super) fn note_leaving(&self, inner: &mut Inner) {
        let mut changed = false;
        let step = inner.pending.len().div_ceil(SAMPLES).max(1);
        for (granule, _) in inner.pending.iter().step_by(step) {
            let number = granule.region as usize;
            // What only followers had mapped cannot be told from what nobody had.
            let judged = |region: &FileRegion| !region.around.by_need() && !region.is_followed();
            if !inner.regions[number].as_ref().is_some_and(judged) {
                continue;
            }
            let of_use = self.is_mapped(&inner.regions, *granule);
            if let Some(region) = inner.regions[number].as_mut() {
                changed |= region.around.leaves(of_use);
            }
        }
        if changed {
            self.tell_orders(inner);
        }
    }

    /// Above the budget nobody reads around a fault; half a batch below it they do again.
    pub(super) fn hold_back(&self, inner: &mut Inner) {
        let (budget, batch) = (self.budget_pages(), self.batch_pages());
        let held_back = match inner.held_back {
            false => inner.in_memory() > budget,
            true => inner.in_memory() + batch / 2 > budget,
        };
        // What others lead is read as they say.
        let held_back = held_back && !inner.leads_nothing();
        if held_back != inner.held_back {
            inner.held_back = held_back;
            self.counters.held_back.add(u64::from(held_back));
            self.tell_orders(inner);
        }
    }

    /// The program says in which order it reads what is a part of `care`; the kernel is told.
    pub fn expect(&self, care: u32, order: ReadOrder) {
        let inner = &mut *self.inner();
        let views = inner.regions.iter_mut().flatten();
        let views = views.flat_map(|region| &mut region.views);
        for view in views.filter(|view| view.care == care) {
            view.order = order;
        }
        self.tell_orders(inner);
    }

    /// The program said to the kernel in which order it reads what lies in a range.
    pub fn advise(&self, range: crate::kernel::Range, order: ReadOrder) {
        let inner = &mut *self.inner();
        for region in inner.regions.iter_mut().flatten() {
            let mut parts = Vec::with_capacity(region.views.len() + 2);
            for view in std::mem::take(&mut region.views) {
                match view.within(&range) {
                    None => parts.push(view),
                    Some(part) => {
                        let [before, behind] = view.without(&range);
                        parts.extend(before);
                        parts.push(View {
                            order,
                            told: order,
                            ..part
                        });
                        parts.extend(behind);
                    }
                }
            }
            region.views = parts;
        }
        self.tell_orders(inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_reads_more_than_its_part_of_the_budget_never_has_the_kernels_gear() {
        // A sixty-fourth part of 50 MiB is 800 KiB.
        assert!(!Around::new(Some(128 << 10), 50 * MIB).by_need());
        let mut around = Around::new(Some(8 * MIB), 50 * MIB);
        assert!(around.by_need());
        assert!(!around.comes(1 << 20, 1, 4096));
    }

    #[test]
    fn what_is_read_for_nothing_is_not_read_and_long_runs_are_again() {
        let mut around = Around::new(Some(128 << 10), 1024 * MIB);
        // Two of five granules were of use: pages at random.
        let changes = |around: &mut Around, granules: u64| {
            (0..granules).filter(|n| around.leaves(n % 5 < 2)).count()
        };
        assert_eq!(changes(&mut around, PATIENCE - 1), 0);
        assert_eq!((changes(&mut around, 1), around.by_need()), (1, true));
        // Single pages: 4 KiB of 128 KiB is less than an eighth.
        assert!(!around.comes(ENOUGH_PAGES, ENOUGH_PAGES, 4096));
        // Runs of four: 16 KiB of 128 KiB.
        assert!(around.comes(ENOUGH_PAGES, ENOUGH_PAGES / 4, 4096));
        // It was tried in vain: now it takes twice as long.
        assert_eq!(changes(&mut around, 2 * PATIENCE - 1), 0);
        assert_eq!(changes(&mut around, 1), 1);
    }

    /// The kernel reads 128 KiB around a single page, and maps the half that is around it.
    #[test]
    fn half_is_of_use_to_single_pages_and_three_quarters_are_enough() {
        let mut around = Around::new(None, 1024 * MIB);
        assert!((0..10 * PATIENCE).all(|n| !around.leaves(n % 4 > 0)));
        assert!((0..PATIENCE).any(|n| around.leaves(n % 2 == 0)));
    }

    /// By what the kernel says of two mappings of one file, only one of which is advised.
    #[test]
    fn what_the_program_says_of_a_mapping_outlives_an_overrun() {
        use crate::faults::Faulty;
        use crate::file_mode::Opening;
        use crate::kernel::Kernel as _;
        use crate::sys::mapping::Mapping;
        use std::os::fd::AsFd;
        use std::sync::Arc;

        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4 * MIB).unwrap();
        let fd = file.as_file().as_fd();
        let kernel = Arc::new(Faulty::sound());
        let settings = crate::Pager::builder().budget(64 * MIB).check().unwrap();
        let mode = FileMode::new(settings, kernel.clone(), Arc::default());
        let mappings = [0, 0].map(|offset| Mapping::of_file(fd, offset, 4 << 20).unwrap());
        let numbers = mappings.each_ref().map(|mapping| {
            let range = crate::kernel::Range {
                start: mapping.address(),
                bytes: mapping.bytes(),
            };
            let opening = Opening {
                name: None,
                file: fd,
                facts: kernel.facts(fd).unwrap(),
                range,
                offset: 0,
            };
            mode.add(opening).unwrap()
        });
        // Whatever the device here reads around.
        for region in mode.inner().regions.iter_mut().flatten() {
            region.around = Around::new(None, 64 * MIB);
        }
        mode.expect(numbers[1], ReadOrder::Random);
        for held_back in [false, true, false] {
            {
                let mut inner = mode.inner();
                inner.held_back = held_back;
                mode.tell_orders(&mut inner);
            }
            let is_random = |mapping: &Mapping| {
                let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
                let (_, of) = smaps.split_once(&format!("\n{:x}-", mapping.address()))?;
                let (_, flags) = of.split_once("VmFlags:")?;
                Some(flags.lines().next()?.contains(" rr"))
            };
            let found = mappings.each_ref().map(is_random);
            if found.contains(&None) {
                println!("skipped: the kernel says no flags of mappings");
                return;
            }
            assert_eq!(found, [Some(held_back), Some(true)]);
        }
    }

    #[test]
    fn a_run_begins_where_the_page_before_is_absent() {
        assert_eq!(runs(false, &[1, 1, 0, 1]), (3, 2));
        assert_eq!(runs(true, &[1, 1, 0, 1]), (3, 1));
        assert_eq!(runs(true, &[0, 0]), (0, 0));
    }
}
