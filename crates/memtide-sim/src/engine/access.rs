//! The way of one access: TLB, page table, cache, memory, sampler.
//!
//! A batch goes through two passes. The first reads what the second will need, all loads independent of
//! one another, so that the host's memory works on many of them at once: entries, then the cache sets
//! to which their frames lead, and the sets of the lines that hold the entries themselves. The second
//! makes the accesses one after the other, each seeing what the one before it did. It stops where the
//! kernel is needed and is called again at the same access.
//!
//! What stays true: a TLB hit decides alone where an access goes, whatever the first pass read; a walk
//! reads the entry anew. Times are picoseconds of one simulated access, not yet times the scale.

use crate::hardware::cpu::Cpu;
use crate::hardware::llc::{Llc, Place};
use crate::hardware::tlb::{Found, Translation};
use crate::hardware::{Sample, ServedBy};
use crate::kernel::Fault;
use crate::page::{Flags, HUGE_PAGES, MAX_NODES, Pte, Slot};
use crate::workload::Access;

/// Accesses of a batch.
pub const BATCH: usize = 256;
/// Accesses that the first pass looks ahead.
pub const AHEAD: usize = 128;
/// Groups of pages whose accesses are counted.
pub const HEAT_GROUPS: usize = 64;

/// What the engine knows of 512 slots: region, heat group, node of the page table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group(u32);

impl Group {
    /// Slots of a group.
    pub const SHIFT: u32 = 9;

    /// Packs the three.
    #[must_use]
    pub fn new(region: u16, heat: u8, table_node: usize) -> Group {
        Group(u32::from(region) | u32::from(heat & 63) << 16 | (table_node as u32) << 22)
    }

    /// The region.
    #[inline]
    #[must_use]
    pub fn region(self) -> usize {
        self.0 as usize & 0xffff
    }

    #[inline]
    fn heat(self) -> usize {
        self.0 as usize >> 16 & 63
    }

    #[inline]
    fn table_node(self) -> usize {
        self.0 as usize >> 22 & 15
    }
}

/// What things cost a thread now, in picoseconds; what overlaps is divided by how much it does.
#[derive(Clone, Debug, Default)]
pub struct Prices {
    /// An access without memory.
    pub think: u64,
    /// A hit in the second level of the TLB.
    pub second_tlb: u64,
    /// A walk besides its last access to memory.
    pub walk: u64,
    /// A walk that ends at a huge entry.
    pub walk_huge: u64,
    /// A hit in the cache.
    pub cache: u64,
    /// A line from another cache.
    pub other_cache: u64,
    /// Memory, by node: load, store.
    pub memory: [[u64; 2]; MAX_NODES],
    /// Memory as a sampler sees it, in nanoseconds.
    pub latency_ns: [[u32; 2]; MAX_NODES],
    /// The same of the cache.
    pub cache_latency_ns: u32,
    /// What each node is to this CPU.
    pub served: [Option<ServedBy>; MAX_NODES],
    /// A sampler's interrupt.
    pub interrupt: u64,
    /// Operations of an access.
    pub operations: i64,
}

/// How a region's lines are shared between caches, as chances out of 65,536.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// A line that the own cache has is not stale.
    pub valid: u32,
    /// A line that it lacks is in another cache.
    pub elsewhere: u32,
}

/// What was seen of a region in a quantum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Lines looked for.
    pub lines: u64,
    /// Of these, in the own cache by tag.
    pub hits: u64,
    /// Accesses that store.
    pub stores: u64,
    /// Accesses.
    pub accesses: u64,
}

/// What accesses add up to.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Accesses made.
    pub accesses: u64,
    /// TLB misses.
    pub tlb_misses: u64,
    /// Lines that memory served, by node.
    pub read: [u64; MAX_NODES],
    /// Lines that will be written back, or were written, by node.
    pub written: [u64; MAX_NODES],
    /// Data lines that memory served (walks left out), by node.
    pub served: [u64; MAX_NODES],
    /// Accesses by group of pages.
    pub heat: [u64; HEAT_GROUPS],
    /// Samples taken, for their cost.
    pub samples: u64,
    /// A little chance for shared lines.
    pub noise: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            accesses: 0,
            tlb_misses: 0,
            read: [0; MAX_NODES],
            written: [0; MAX_NODES],
            served: [0; MAX_NODES],
            heat: [0; HEAT_GROUPS],
            samples: 0,
            noise: 0x243f_6a88_85a3_08d3,
        }
    }
}

/// Why the second pass stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All accesses are made.
    Done,
    /// The time is up.
    Time,
    /// The access at hand needs the kernel.
    Fault(Fault),
}

/// What the first pass read.
pub struct Ahead {
    entries: [Pte; AHEAD],
    places: [Place; AHEAD],
    first: usize,
    end: usize,
    /// Keeps the reads from being optimised away.
    pub sum: u32,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead {
            entries: [Pte::default(); AHEAD],
            places: [Place::default(); AHEAD],
            first: 0,
            end: 0,
            sum: 0,
        }
    }
}

impl Ahead {
    /// Forgets what was read.
    pub fn clear(&mut self) {
        (self.first, self.end) = (0, 0);
    }

    /// Reads ahead for `accesses[from..to]`, at most [`AHEAD`] of them.
    pub fn read(&mut self, ptes: &[Pte], cache: &Llc, accesses: &[Access], from: usize, to: usize) {
        let to = to.min(from + AHEAD).min(accesses.len());
        let accesses = &accesses[from..to];
        for (entry, access) in self.entries.iter_mut().zip(accesses) {
            *entry = ptes[access.slot() as usize];
        }
        if cache.exists() {
            let mut sum = 0u32;
            for ((entry, access), place) in self.entries.iter().zip(accesses).zip(&mut self.places)
            {
                *place = cache.place(entry.frame(), access.line());
                sum = sum.wrapping_add(cache.peek(*place));
                sum = sum.wrapping_add(cache.peek(cache.place_of_entry(access.slot())));
            }
            self.sum = self.sum.wrapping_add(sum);
        }
        (self.first, self.end) = (from, to);
    }
}

/// All that an access touches, borrowed for a part of a batch.
pub struct Path<'a> {
    /// Page tables.
    pub ptes: &'a mut [Pte],
    /// The CPU.
    pub cpu: &'a mut Cpu,
    /// Its cache.
    pub cache: &'a mut Llc,
    /// Groups of slots.
    pub groups: &'a [Group],
    /// Regions' sharing; empty if only one cache is in use.
    pub shared: &'a [Shared],
    /// What was seen of each region, where sharing counts.
    pub seen: &'a mut [Seen],
    /// Costs.
    pub prices: &'a Prices,
    /// Sums.
    pub tally: &'a mut Tally,
    /// For samples.
    pub thread: u32,
    /// For samples.
    pub cpu_number: u32,
}

impl Path<'_> {
    /// Makes accesses from `*at` on until they are done, `budget` picoseconds are spent, or the kernel
    /// is needed; the access that needs it is not counted. Returns why, and the time spent.
    pub fn run(
        &mut self,
        accesses: &[Access],
        ahead: &mut Ahead,
        at: &mut usize,
        budget: u64,
    ) -> (Stop, u64) {
        match self.shared.is_empty() {
            true => self.go::<false>(accesses, ahead, at, budget),
            false => self.go::<true>(accesses, ahead, at, budget),
        }
    }

    fn go<const SHARED: bool>(
        &mut self,
        accesses: &[Access],
        ahead: &mut Ahead,
        at: &mut usize,
        budget: u64,
    ) -> (Stop, u64) {
        let mut spent = 0u64;
        let mut left = self.cpu.sampler.left();
        let begin = *at;
        let mut index = begin;
        let stop = loop {
            if index >= accesses.len() {
                break Stop::Done;
            }
            if spent >= budget {
                break Stop::Time;
            }
            if index >= ahead.end || index < ahead.first {
                ahead.read(self.ptes, self.cache, accesses, index, accesses.len());
            }
            let access = accesses[index];
            let (slot, write) = (access.slot(), access.is_write());
            let seen = ahead.entries[(index - ahead.first) % AHEAD];
            let mut cost = self.prices.think;
            let huge = seen.has(Flags::HUGE);
            let key = if huge { slot & !(HUGE_PAGES - 1) } else { slot };
            let group = self.groups[(slot >> Group::SHIFT) as usize];
            let (entry, huge) = match self.cpu.tlb.find(key, huge) {
                Found::First(entry) if !write || entry.stores() => (entry, huge),
                Found::Second(entry) if !write || entry.stores() => {
                    cost += self.prices.second_tlb;
                    (entry, huge)
                }
                found => match self.walk(slot, write, found == Found::Nothing, group, &mut cost) {
                    Ok(walked) => walked,
                    Err(why) => {
                        // What the first pass read of this page will have changed.
                        ahead.end = index;
                        break Stop::Fault(why);
                    }
                },
            };
            let frame = entry.frame() + if huge { slot % HUGE_PAGES } else { 0 };
            let node = entry.node_index();
            let mut served = None;
            if access.lines() == 1 && !access.is_streaming() {
                let place = if frame == seen.frame() {
                    ahead.places[(index - ahead.first) % AHEAD]
                } else {
                    self.cache.place(frame, access.line())
                };
                served = self.line::<SHARED>(place, node, write, group, &mut cost);
            } else {
                self.lines::<SHARED>(access, frame, node, group, &mut served, &mut cost);
            }
            self.tally.heat[group.heat()] += 1;
            if SHARED {
                let seen = &mut self.seen[group.region()];
                seen.accesses += 1;
                seen.stores += u64::from(write);
            }
            left -= self.prices.operations;
            if left <= 0 {
                (left, cost) = self.sample(slot, node, write, served, cost);
            }
            spent += cost;
            index += 1;
        };
        self.cpu.sampler.set_left(left);
        self.tally.accesses += (index - begin) as u64;
        *at = index;
        (stop, spent)
    }

    /// Walks the page table, or for a store through a clean TLB entry, marks the page dirty.
    #[inline]
    fn walk(
        &mut self,
        slot: Slot,
        write: bool,
        absent: bool,
        group: Group,
        cost: &mut u64,
    ) -> Result<(Translation, bool), Fault> {
        const BAD: u64 = Flags::HINT.0 | Flags::MIGRATING.0;
        let pte = self.ptes[slot as usize];
        let huge = pte.has(Flags::HUGE);
        let head = if huge { slot & !(HUGE_PAGES - 1) } else { slot };
        let entry = &mut self.ptes[head as usize];
        let need = Flags::PRESENT.0 | if write { Flags::WRITABLE.0 } else { 0 };
        if entry.0 & (need | BAD) != need {
            return Err(why(*entry));
        }
        let mark = Flags::ACCESSED.0 | if write { Flags::DIRTY.0 } else { 0 };
        if entry.0 & mark != mark {
            entry.0 |= mark;
        }
        let stores = entry.has(Flags::WRITABLE.with(Flags::DIRTY));
        let translation = Translation::new(entry.frame(), entry.node_index(), stores);
        let (place, walk) = if huge {
            (self.cache.place_of_huge_entry(slot), self.prices.walk_huge)
        } else {
            (self.cache.place_of_entry(slot), self.prices.walk)
        };
        *cost += walk;
        *cost += if self.cache.access(place) {
            self.prices.cache
        } else {
            let node = group.table_node();
            self.tally.read[node] += 1;
            self.prices.memory[node][0]
        };
        if absent {
            self.tally.tlb_misses += 1;
            self.cpu.tlb.insert(head, huge, translation);
        } else {
            self.cpu.tlb.set(head, huge, translation);
        }
        Ok((translation, huge))
    }

    /// One line of data. `None` if a cache served it.
    #[inline]
    fn line<const SHARED: bool>(
        &mut self,
        place: Place,
        node: usize,
        write: bool,
        group: Group,
        cost: &mut u64,
    ) -> Option<usize> {
        let mut hit = self.cache.access(place);
        if SHARED {
            let seen = &mut self.seen[group.region()];
            seen.lines += 1;
            seen.hits += u64::from(hit);
            let chances = self.shared[group.region()];
            let noise = self.tally.noise;
            self.tally.noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            hit &= ((noise >> 48) as u32) < chances.valid;
            if !hit && ((noise >> 32) as u32 & 0xffff) < chances.elsewhere {
                *cost += self.prices.other_cache;
                return None;
            }
        }
        if hit {
            *cost += self.prices.cache;
            return None;
        }
        *cost += self.prices.memory[node][usize::from(write)];
        self.tally.read[node] += 1;
        self.tally.written[node] += u64::from(write);
        self.tally.served[node] += 1;
        Some(node)
    }

    /// Lines in order, or streaming stores, which read nothing and leave nothing in a cache.
    fn lines<const SHARED: bool>(
        &mut self,
        access: Access,
        frame: u32,
        node: usize,
        group: Group,
        served: &mut Option<usize>,
        cost: &mut u64,
    ) {
        if access.is_streaming() {
            let lines = u64::from(access.lines());
            *cost += lines * self.prices.memory[node][1];
            self.tally.written[node] += lines;
            self.tally.served[node] += lines;
            *served = Some(node);
            return;
        }
        for line in access.line()..access.line() + access.lines() {
            let place = self.cache.place(frame, line);
            let line = self.line::<SHARED>(place, node, access.is_write(), group, cost);
            *served = line.or(*served);
        }
    }

    /// The sampler picks the access; what then is left to count down, and what the access cost.
    #[cold]
    fn sample(
        &mut self,
        slot: Slot,
        node: usize,
        write: bool,
        memory: Option<usize>,
        cost: u64,
    ) -> (i64, u64) {
        let latency_ns = match memory {
            Some(node) => self.prices.latency_ns[node][usize::from(write)],
            None => self.prices.cache_latency_ns,
        };
        let (left, taken) = self.cpu.sampler.pick(Sample {
            slot,
            cpu: self.cpu_number,
            thread: self.thread,
            write,
            latency_ns,
            served: match memory {
                Some(_) => self.prices.served[node].unwrap_or(ServedBy::Extension),
                None => ServedBy::Cache,
            },
        });
        if !taken {
            return (left, cost);
        }
        self.tally.samples += 1;
        (left, cost + self.prices.interrupt)
    }
}

/// Why an entry cannot be used.
#[cold]
fn why(entry: Pte) -> Fault {
    if entry.has(Flags::MIGRATING) {
        Fault::Migrating
    } else if !entry.has(Flags::PRESENT) {
        Fault::NotPresent
    } else if entry.has(Flags::HINT) {
        Fault::Hint
    } else {
        Fault::WriteProtect
    }
}
