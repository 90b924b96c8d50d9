//! The simulated kernel: address spaces, frames, faults, reclaim, balancing, migration.
//!
//! One struct holds all that the kernel knows of the machine; its files divide the work as a real
//! kernel's do. Faults, ticks and hardware samples come in through the entry points below, each
//! answered with what it costs the thread in nanoseconds; [`Kernel::background`] is what kernel
//! threads do beside the application.
//!
//! *Units.* Pages, events and nanoseconds are those of the simulated machine, which is the real one
//! divided by S: an event that costs `c` nanoseconds on the real machine is answered with `c`, and the
//! engine multiplies by S. So kernel threads that have a time `dt` do work worth `dt / S`. Counters
//! and [`Overhead`] are kept unscaled and multiplied when printed.
//!
//! *Owners.* Every frame in use has one owner, a slot: the page of the mapping for anonymous memory
//! (private copies of file pages are anonymous), the page of the file's own range of slots for page
//! cache. The owner's entry says on which LRU list the folio is. A huge folio is owned by its head.

mod aging;
pub mod balance;
mod by_samples;
mod check;
pub mod contents;
mod error;
mod events;
mod fault;
mod frames;
pub mod heard;
mod hint_fault;
mod hint_scan;
mod kmigrated;
mod lazy;
mod lru;
pub mod migrate;
mod page_view;
mod place;
mod populate;
mod reclaim;
mod shrink;
mod spaces;
mod storage;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use check::Violation;
pub use error::KernelError;
pub use frames::{Frames, NO_FRAME};
pub use lazy::{Cpus, Lazy, Omit, counts_once};
pub use lru::Lists;
pub use spaces::{File, Mappings, Region, Regions};

use crate::config::{Bound, Configuration, Luf};
use crate::hardware::{Hardware, Sample};
use crate::page::{Flags, Frame, MAX_NODES, Pte, Slot};
use crate::result::Overhead;
use crate::rng::Rng;
use crate::spec::{Costs, MachineSpec};
use crate::workload::Plan;
use contents::Contents;
use memtide_core::mempolicy::{Machine, Weights};
use memtide_core::topology::Topology;
use memtide_core::units::NodeId;
use memtide_core::vmstat::{Counter, Counters};

/// Who makes an access or a call.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The thread.
    pub thread: u32,
    /// Its CPU.
    pub cpu: u32,
    /// That CPU's node.
    pub node: NodeId,
    /// Its address space.
    pub space: u16,
    /// Its clock.
    pub now_ns: u64,
}

/// Why the hardware called the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No frame behind the page.
    NotPresent,
    /// A hint-protected entry.
    Hint,
    /// A store to an entry that is not writable.
    WriteProtect,
    /// The page is being moved.
    Migrating,
}

impl Fault {
    /// Why the hardware cannot use `entry` for a load, or for a store if `write`; `None` if it can.
    #[must_use]
    pub fn of(entry: Pte, write: bool) -> Option<Fault> {
        if entry.has(Flags::MIGRATING) {
            Some(Fault::Migrating)
        } else if !entry.has(Flags::PRESENT) {
            Some(Fault::NotPresent)
        } else if entry.has(Flags::HINT) {
            Some(Fault::Hint)
        } else if write && !entry.has(Flags::WRITABLE) {
            Some(Fault::WriteProtect)
        } else {
            None
        }
    }
}

/// The kernel.
pub struct Kernel {
    /// The page tables of all spaces and the page caches of all files, by slot.
    pub ptes: Vec<Pte>,
    /// Memory.
    pub frames: Frames,
    /// Mappings and files.
    pub regions: Regions,
    /// The LRU lists' lengths; their links are in the frames.
    pub lists: Lists,
    /// What was counted, in pages and events of the simulated machine.
    pub counters: Counters,
    /// What was spent, in nanoseconds before multiplication by S.
    pub overhead: Overhead,
    /// What this run does.
    pub configuration: Configuration,
    /// Nodes, tiers and distances.
    pub topology: Topology,
    /// The same machine as the mempolicy model sees it.
    pub machine: Machine,
    /// The weight table.
    pub weights: Weights,
    /// What work costs on the real machine.
    pub costs: Costs,
    /// S: a simulated page stands for so many real ones.
    pub scale: u32,
    /// The kernel's own chance.
    pub rng: Rng,
    /// NUMA balancing's and promotion's state.
    pub balance: balance::Balance,
    /// Lazy flushing, if on.
    pub lazy: Option<Box<Lazy>>,
    /// Page faults that somebody listens to.
    pub heard: heard::Heard,
    /// What frames hold, if accesses are checked.
    pub contents: Option<Box<Contents>>,
    storage: storage::Storage,
    reclaim: reclaim::Reclaim,
    aging: aging::Aging,
    placing: place::Placing,
    /// Pages that steps have paid for looking at: [`check`].
    pages_to_check: usize,
}

impl Kernel {
    /// A kernel that has booted on `spec`, scaled by `scale`, and mapped `plan`'s regions; no page has
    /// a frame yet.
    ///
    /// # Errors
    ///
    /// A machine or plan that cannot be: too many nodes or pages, a huge mapping of a file.
    pub fn new(
        spec: &MachineSpec,
        plan: &Plan,
        configuration: &Configuration,
        scale: u32,
        seed: u64,
    ) -> Result<Kernel, KernelError> {
        let regions = Regions::new(plan)?;
        let mut frames = Frames::new(spec, scale)?;
        let machine = place::machine(spec)?;
        let weights = place::weights(configuration);
        let placing = place::Placing::new(&regions, &machine, &weights);
        let lists = Lists::new(configuration.lru, &mut frames);
        Ok(Kernel {
            ptes: vec![Pte::default(); regions.slots() as usize],
            balance: balance::Balance::new(spec, &regions, plan, configuration, scale)?,
            lazy: match (configuration.luf, configuration.bound) {
                (Some(luf), None) => Some(Box::new(Lazy::new(luf == Luf::Zones))),
                _ => None,
            },
            contents: (configuration.check && configuration.bound != Some(Bound::Oracle))
                .then(|| Box::new(Contents::new(&regions, frames.end()))),
            storage: storage::Storage::new(spec),
            reclaim: reclaim::Reclaim::new(),
            aging: aging::Aging::new(),
            heard: heard::Heard::default(),
            counters: Counters::ZERO,
            overhead: Overhead::default(),
            configuration: configuration.clone(),
            topology: spec.topology.clone(),
            costs: spec.costs.clone(),
            scale,
            rng: Rng::new(seed, u64::MAX),
            frames,
            regions,
            lists,
            machine,
            weights,
            placing,
            pages_to_check: 0,
        })
    }

    /// Answers a fault on `slot`; what it costs the thread, in nanoseconds before multiplication by S.
    /// The caller reads the entry anew and may fault again (first not present, then write-protect).
    ///
    /// # Errors
    ///
    /// Out of memory; a store to a mapping that may not be written.
    pub fn fault(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        slot: Slot,
        why: Fault,
        write: bool,
    ) -> Result<u64, KernelError> {
        let from_storage = self.counters.get(Counter::Pgmajfault);
        let ns = match why {
            Fault::NotPresent => self.fault_not_present(hw, who, slot, write)?,
            Fault::WriteProtect => self.fault_write_protect(hw, who, slot)?,
            Fault::Hint => self.hint_fault(hw, who, slot, write),
            Fault::Migrating => match self.migration_wait(hw, who, slot, write) {
                // It was there already.
                0 => return Ok(0),
                ns => ns,
            },
        };
        // A fault that waits for storage is a major one.
        let minor = self.counters.get(Counter::Pgmajfault) == from_storage;
        Ok(match minor {
            true => ns + self.hear(who, slot, why),
            false => ns,
        })
    }

    /// A thread ran for another millisecond of CPU time; what its work for the kernel costs it.
    pub fn tick(&mut self, hw: &mut Hardware, who: &Who, ran_ns: u64) -> u64 {
        self.numa_tick(hw, who, ran_ns)
    }

    /// Hardware samples of the last quantum.
    pub fn samples(&mut self, hw: &mut Hardware, samples: &[Sample], now_ns: u64) {
        match self.configuration.samples {
            Some(_) => self.balance_by_samples(hw, samples, now_ns),
            None => self.record_samples(hw, samples, now_ns),
        }
    }

    /// What kernel threads did in the `dt_ns` up to `now_ns`.
    pub fn background(&mut self, hw: &mut Hardware, now_ns: u64, dt_ns: u64) {
        self.free_regions(hw, now_ns);
        self.background_reclaim(hw, now_ns, dt_ns);
        self.kmigrated(hw, now_ns, dt_ns);
        self.act_on_samples(hw, now_ns);
        self.check_now_and_then();
    }

    /// Whether files are read from a device.
    #[must_use]
    pub fn has_storage(&self) -> bool {
        self.storage.exists()
    }

    /// Adds to a counter.
    #[inline]
    pub fn count(&mut self, counter: Counter, amount: u64) {
        self.counters.add(counter, amount);
    }

    /// The slot that stands for the page's folio in its page table: the head of a huge one.
    #[inline]
    #[must_use]
    pub fn head(&self, slot: Slot) -> Slot {
        match self.ptes[slot as usize].has(Flags::HUGE) {
            true => slot & !(crate::page::HUGE_PAGES - 1),
            false => slot,
        }
    }

    /// Base pages of the folio behind `slot`: 512 or 1.
    #[inline]
    #[must_use]
    pub fn folio_pages(&self, slot: Slot) -> u32 {
        match self.ptes[slot as usize].has(Flags::HUGE) {
            true => crate::page::HUGE_PAGES,
            false => 1,
        }
    }

    /// The owner of the folio that a present entry maps: itself for anonymous memory, the file's slot
    /// for page cache. `None` if nothing stands behind `slot`.
    #[inline]
    #[must_use]
    pub fn owner(&self, slot: Slot) -> Option<Slot> {
        let head = self.head(slot);
        let pte = self.ptes[head as usize];
        if !pte.has_any(Flags::PRESENT.with(Flags::MIGRATING)) {
            return None;
        }
        Some(owner_of_mapped(&self.regions, &self.frames, head, pte))
    }

    /// The entries that map the folio of owner `owner`: itself, or each mapping of a file's page that
    /// has it now. Heads only.
    pub fn mappers(&self, owner: Slot) -> impl Iterator<Item = Slot> + '_ {
        let frame = self.ptes[owner as usize].frame();
        self.regions.mappings(owner).filter(move |&slot| {
            let pte = self.ptes[slot as usize];
            pte.frame() == frame && pte.has_any(Flags::PRESENT.with(Flags::MIGRATING))
        })
    }

    /// Bytes on the heap for pages: entries, frames and what reclaim keeps; the hotness store comes
    /// beside it.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.ptes.capacity() * size_of::<Pte>()
            + self.frames.heap_bytes()
            + self.placing.heap_bytes()
            + self.reclaim_heap_bytes()
    }

    /// Pages in use of a region by node.
    #[must_use]
    pub fn pages_by_node(&self, region: usize) -> [u64; MAX_NODES] {
        let mut pages = [0; MAX_NODES];
        let region = self.regions.get(region);
        for slot in region.slots() {
            let pte = self.ptes[slot as usize];
            if pte.has_any(Flags::PRESENT.with(Flags::MIGRATING)) {
                pages[pte.node_index()] += 1;
            }
        }
        pages
    }

    /// The pages by node that belong to the regions of a program: its anonymous memory, its private
    /// copies and its files' page caches, each once.
    #[must_use]
    pub fn charged(&self, regions: std::ops::Range<usize>) -> [u64; MAX_NODES] {
        let mut pages = [0; MAX_NODES];
        let mut add = |slots: std::ops::Range<Slot>, of_file: bool| {
            for slot in slots {
                let pte = self.ptes[slot as usize];
                if pte.has_any(Flags::PRESENT.with(Flags::MIGRATING))
                    && (!of_file || self.owner(slot) == Some(slot))
                {
                    pages[pte.node_index()] += 1;
                }
            }
        };
        for at in regions.clone() {
            let region = self.regions.get(at);
            add(region.slots(), region.file.is_some());
        }
        for file in self.regions.files() {
            let first = file.mappings.first();
            if first.is_some_and(|at| regions.contains(at)) {
                add(file.base..file.base + file.pages, false);
            }
        }
        pages
    }
}

/// The owner of the folio that the present entry `pte` of `head` maps. Mostly known without a look at
/// the frame, which lies far from the entry in the host's memory.
#[inline]
fn owner_of_mapped(regions: &Regions, frames: &Frames, head: Slot, pte: Pte) -> Slot {
    let looked_up = || frames.owner(pte.frame()).unwrap_or(head);
    match regions.owns_itself(head) {
        true => {
            debug_assert_eq!(looked_up(), head);
            head
        }
        false => looked_up(),
    }
}
