//! The way of one access: TLB, page table, cache, memory, sampler.
//!
//! A batch goes through two passes, each a short loop that the host runs well. The first looks each
//! page up in the TLB, walks where that fails, and notes where the access goes; it stops at an access
//! that needs the kernel. The second asks the cache, charges what the line cost, and counts down to the
//! next sample. What came before a stop is charged, and the call ends.
//!
//! Nearly all of the host's time would go to waiting for its own memory: a page's entry is somewhere in
//! hundreds of megabytes. Both passes know their addresses beforehand, so they ask for the line that
//! they need [`DISTANCE`] accesses later while they work on this one. That is a hint to the host's
//! cache; it changes no result.
//!
//! What stays true: a TLB hit decides alone where an access goes; the TLB, the cache and the sampler
//! each see the accesses in order. A batch is as long as fits into the time by what accesses cost last,
//! so a thread may run over its time by some accesses; it begins its next quantum later by as much.
//! Times are picoseconds of one simulated access, not yet times the scale.

use super::oracle::Census;
use crate::hardware::cpu::Cpu;
use crate::hardware::llc::{Llc, Place};
use crate::hardware::tlb::{Found, Translation};
use crate::hardware::{Sample, ServedBy};
use crate::host::fetch;
use crate::kernel::Fault;
use crate::kernel::contents::Contents;
use crate::page::{Flags, HUGE_PAGES, MAX_NODES, Pte};
use crate::workload::Access;

/// Accesses of a batch.
pub const BATCH: usize = 256;
/// How many accesses ahead a pass asks for memory: the time of so many is that of a few cache misses.
const DISTANCE: usize = 32;
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

impl Prices {
    /// Think time and translation, by how an address was found.
    fn translation(&self) -> [u64; 4] {
        [0, self.second_tlb, self.walk, self.walk_huge].map(|price| self.think + price)
    }

    #[cold]
    fn sampled_ns(&self, memory: Option<usize>, write: bool) -> u32 {
        match memory {
            Some(node) => self.latency_ns[node][usize::from(write)],
            None => self.cache_latency_ns,
        }
    }

    #[cold]
    fn sampled_source(&self, memory: Option<usize>) -> ServedBy {
        match memory {
            Some(node) => self.served[node].unwrap_or(ServedBy::Extension),
            None => ServedBy::Cache,
        }
    }
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
    /// TLB misses of loads, stores and fetches.
    pub tlb_misses: [u64; 3],
    /// Data lines that memory served, by node: for loads, and for stores, which write them back later.
    pub missed: [[u64; 2]; MAX_NODES],
    /// Lines of page tables that memory served, by node.
    pub walked: [u64; MAX_NODES],
    /// Lines written without being read, by node.
    pub streamed: [u64; MAX_NODES],
    /// Data lines that memory served until the three above were last emptied, by node.
    pub served: [u64; MAX_NODES],
    /// Accesses by group of pages.
    pub heat: [u64; HEAT_GROUPS],
    /// Samples taken, for their cost.
    pub samples: u64,
    /// What an access cost lately, in picoseconds.
    pub typical_ps: u64,
    /// A little chance for shared lines.
    pub noise: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            accesses: 0,
            tlb_misses: [0; 3],
            missed: [[0; 2]; MAX_NODES],
            walked: [0; MAX_NODES],
            streamed: [0; MAX_NODES],
            served: [0; MAX_NODES],
            heat: [0; HEAT_GROUPS],
            samples: 0,
            typical_ps: 0,
            noise: 0x243f_6a88_85a3_08d3,
        }
    }
}

impl Tally {
    /// Lines read and written of a node's memory since the sums were last emptied.
    #[must_use]
    pub fn traffic(&self, node: usize) -> [u64; 2] {
        let [loads, stores] = self.missed[node];
        let streamed = self.streamed[node];
        [loads + stores + self.walked[node], stores + streamed]
    }

    /// Lines that threads waited for since the sums were last emptied, by node: at the price of a load, and of
    /// a store.
    #[must_use]
    pub fn asked(&self) -> [[u64; 2]; MAX_NODES] {
        std::array::from_fn(|node| {
            let [loads, stores] = self.missed[node];
            [loads + self.walked[node], stores + self.streamed[node]]
        })
    }

    /// Data lines that memory of a node served for loads or for stores, where somebody wants to know.
    #[inline(always)]
    fn of_memory(&self, node: usize, write: bool, wanted: bool) -> u64 {
        match wanted {
            true => self.missed[node][usize::from(write)] + u64::from(write) * self.streamed[node],
            false => 0,
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

/// A batch between its passes.
pub struct Ahead {
    steps: [Step; BATCH],
    data: [Place; BATCH],
    tables: [Place; BATCH],
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead {
            steps: [Step::default(); BATCH],
            data: [Place::default(); BATCH],
            tables: [Place::default(); BATCH],
        }
    }
}

/// Where an access goes: frame, node, and how that was found.
#[derive(Clone, Copy, Debug, Default)]
struct Step(u64);

impl Step {
    const SECOND: u64 = 1 << 36;
    const WALK: u64 = 2 << 36;
    const WALK_HUGE: u64 = 3 << 36;

    #[inline(always)]
    fn new(entry: Translation, offset: u32, how: u64) -> Step {
        let frame = u64::from(entry.frame() + offset);
        Step(frame | (entry.node_index() as u64) << 32 | how)
    }

    #[inline(always)]
    fn frame(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    fn node(self) -> usize {
        (self.0 >> 32) as usize & 15
    }

    #[inline(always)]
    fn how(self) -> u64 {
        self.0 & Step::WALK_HUGE
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
    /// Whether there are huge pages.
    pub huge: bool,
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
    /// What frames hold, if accesses are checked.
    pub contents: Option<&'a mut Contents>,
    /// The oracle's counts.
    pub census: Option<Census<'a>>,
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
        match (self.cache.exists(), self.shared.is_empty()) {
            (false, true) => self.go::<false, false>(accesses, ahead, at, budget),
            (true, true) => self.go::<true, false>(accesses, ahead, at, budget),
            (false, false) => self.go::<false, true>(accesses, ahead, at, budget),
            (true, false) => self.go::<true, true>(accesses, ahead, at, budget),
        }
    }

    fn go<const CACHE: bool, const SHARED: bool>(
        &mut self,
        accesses: &[Access],
        ahead: &mut Ahead,
        at: &mut usize,
        budget: u64,
    ) -> (Stop, u64) {
        let (mut spent, begin) = (0, *at);
        let stop = loop {
            let rest = &accesses[*at..];
            if rest.is_empty() {
                break Stop::Done;
            }
            if spent >= budget {
                break Stop::Time;
            }
            // As many as will fit into the time, by what they cost last.
            let fit = ((budget - spent) / self.tally.typical_ps.max(1)).clamp(1, BATCH as u64);
            let rest = &rest[..rest.len().min(fit as usize)];
            let (count, fault) = match self.huge {
                false => self.translate::<CACHE, false>(rest, ahead),
                true => self.translate::<CACHE, true>(rest, ahead),
            };
            let rest = &rest[..count];
            if self.contents.is_some() {
                self.check(rest, ahead);
            }
            let cost = self.charge::<CACHE, SHARED>(rest, ahead);
            if count > 0 {
                self.tally.typical_ps = cost / count as u64;
            }
            spent += cost;
            *at += count;
            if let Some(why) = fault {
                break Stop::Fault(why);
            }
        };
        self.tally.accesses += (*at - begin) as u64;
        (stop, spent)
    }

    /// First pass: TLB and page table. How many accesses came through, and why the next did not.
    #[inline(never)]
    fn translate<const CACHE: bool, const HUGE: bool>(
        &mut self,
        accesses: &[Access],
        ahead: &mut Ahead,
    ) -> (usize, Option<Fault>) {
        let ptes = &mut *self.ptes;
        let tlb = &mut self.cpu.tlb;
        let cache = &*self.cache;
        let (mut count, mut misses) = (0, [0u64; 3]);
        let mut fault = None;
        for access in accesses.iter().take(DISTANCE) {
            fetch(ptes, access.slot() as usize);
        }
        let places = ahead.data.iter_mut().zip(&mut ahead.tables);
        let steps = ahead.steps.iter_mut().zip(places);
        for (&access, (step, (data, table))) in accesses.iter().zip(steps) {
            let later = accesses.get(count + DISTANCE).unwrap_or(&access);
            fetch(ptes, later.slot() as usize);
            let (slot, write) = (access.slot(), access.is_write());
            let huge = HUGE && ptes[slot as usize].has(Flags::HUGE);
            let head = if huge { slot & !(HUGE_PAGES - 1) } else { slot };
            let walked = if huge { Step::WALK_HUGE } else { Step::WALK };
            let found = match tlb.find(head, huge) {
                Found::Nothing => walk(&mut ptes[head as usize], access.store()).map(|entry| {
                    misses[access.translation()] += 1;
                    tlb.insert(head, huge, entry);
                    (entry, walked)
                }),
                Found::First(entry) if !write | entry.stores() => Ok((entry, 0)),
                Found::Second(entry) if !write | entry.stores() => Ok((entry, Step::SECOND)),
                // The first store through an entry that a load brought.
                _ => walk(&mut ptes[head as usize], access.store()).map(|entry| {
                    tlb.set(head, huge, entry);
                    (entry, walked)
                }),
            };
            let (entry, how) = match found {
                Ok(found) => found,
                Err(why) => {
                    fault = Some(why);
                    break;
                }
            };
            *step = Step::new(entry, slot - head, how);
            if CACHE {
                *data = cache.place(step.frame(), access.line());
                *table = match how == Step::WALK_HUGE {
                    true => cache.place_of_huge_entry(slot),
                    false => cache.place_of_entry(slot),
                };
            }
            count += 1;
        }
        for (sum, more) in self.tally.tlb_misses.iter_mut().zip(misses) {
            *sum += more;
        }
        (count, fault)
    }

    /// Between the two: whether each access finds what it should.
    #[cold]
    #[inline(never)]
    fn check(&mut self, accesses: &[Access], ahead: &Ahead) {
        let who = (self.thread, self.cpu_number);
        let Some(contents) = &mut self.contents else {
            return;
        };
        for (access, step) in accesses.iter().zip(&ahead.steps) {
            contents.access(who, access.slot(), step.frame(), access.is_write());
        }
    }

    /// Second pass: caches, memory, sampler. Returns the time.
    #[inline(never)]
    fn charge<const CACHE: bool, const SHARED: bool>(
        &mut self,
        accesses: &[Access],
        ahead: &Ahead,
    ) -> u64 {
        let mut time = 0;
        let mut countdown = self.cpu.sampler.left();
        let operations = self.prices.operations;
        let translation = self.prices.translation();
        let mut lines = Lines::<CACHE, SHARED> {
            cache: &mut *self.cache,
            prices: self.prices,
            tally: &mut *self.tally,
            seen: &mut *self.seen,
            shared: self.shared,
        };
        let groups = self.groups;
        // Nearly all tables lie on one node, so its lines are counted here as long as that stays.
        let (mut table_node, mut tables) = (0, 0);
        let places = ahead.data.iter().zip(&ahead.tables);
        let steps = accesses.iter().zip(&ahead.steps).zip(places);
        for (at, ((&access, &step), (&data, &table))) in steps.enumerate() {
            if CACHE {
                let later = (at + DISTANCE) % BATCH;
                lines.cache.fetch(ahead.data[later]);
                lines.cache.fetch(ahead.tables[later]);
            }
            let (slot, write) = (access.slot(), access.is_write());
            let group = groups[(slot >> Group::SHIFT) as usize];
            let mut cost = translation[(step.how() >> 36) as usize];
            if step.how() >= Step::WALK {
                if group.table_node() != table_node {
                    lines.tally.walked[table_node] += tables;
                    (table_node, tables) = (group.table_node(), 0);
                }
                let hit = lines.table(table);
                tables += u64::from(!hit);
                cost += if hit {
                    lines.prices.cache
                } else {
                    lines.prices.memory[table_node][0]
                };
            }
            let node = step.node();
            let mut served = None;
            let counted = lines.tally.of_memory(node, write, self.census.is_some());
            cost += if access.is_one_line() {
                lines.line(data, node, write, group, &mut served)
            } else {
                lines.several(access, step.frame(), node, group, &mut served)
            };
            if let Some(census) = &mut self.census {
                let more = lines.tally.of_memory(node, write, true) - counted;
                census.count(access, more, data);
            }
            lines.tally.heat[group.heat()] += 1;
            if SHARED {
                let seen = &mut lines.seen[group.region()];
                seen.accesses += 1;
                seen.stores += u64::from(write);
            }
            countdown -= operations;
            if countdown <= 0 {
                let sample = Sample {
                    slot,
                    cpu: self.cpu_number,
                    thread: self.thread,
                    write,
                    latency_ns: lines.prices.sampled_ns(served, write),
                    served: lines.prices.sampled_source(served),
                };
                let (next, taken) = self.cpu.sampler.pick(sample);
                // What the last operation counted too much, the next interval has less.
                countdown += next;
                lines.tally.samples += u64::from(taken);
                cost += if taken { lines.prices.interrupt } else { 0 };
            }
            time += cost;
        }
        lines.tally.walked[table_node] += tables;
        self.cpu.sampler.set_left(countdown);
        time
    }
}

/// Walks the page table for an access, to the entry of the page or of the huge page's head. Whether it
/// stores is as good as random, so `store` (0 or 1) is reckoned with and no branch asks for it.
#[inline(always)]
fn walk(entry: &mut Pte, store: u64) -> Result<Translation, Fault> {
    const BAD: u64 = Flags::HINT.0 | Flags::MIGRATING.0;
    let need = Flags::PRESENT.0 | (Flags::WRITABLE.0 * store);
    if entry.0 & (need | BAD) != need {
        return Err(why(*entry, store));
    }
    // Written also where the bits are set already: that too would often be foretold wrongly.
    entry.0 |= Flags::ACCESSED.0 | (Flags::DIRTY.0 * store);
    Ok(Translation::of(*entry))
}

/// Lines on their way through cache and memory.
struct Lines<'a, const CACHE: bool, const SHARED: bool> {
    cache: &'a mut Llc,
    prices: &'a Prices,
    tally: &'a mut Tally,
    seen: &'a mut [Seen],
    shared: &'a [Shared],
}

impl<const CACHE: bool, const SHARED: bool> Lines<'_, CACHE, SHARED> {
    /// Whether the cache has the line of the page table at the end of a walk.
    #[inline(always)]
    fn table(&mut self, place: Place) -> bool {
        CACHE && self.cache.access(place)
    }

    /// One line of data. `served` is the node if memory served it.
    #[inline(always)]
    fn line(
        &mut self,
        place: Place,
        node: usize,
        write: bool,
        group: Group,
        served: &mut Option<usize>,
    ) -> u64 {
        let mut hit = CACHE && self.cache.access_branching(place);
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
                return self.prices.other_cache;
            }
        }
        if hit {
            return self.prices.cache;
        }
        self.tally.missed[node][usize::from(write)] += 1;
        *served = Some(node);
        self.prices.memory[node][usize::from(write)]
    }

    /// Lines in order, or streaming stores, which read nothing and leave nothing in a cache.
    #[inline(never)]
    fn several(
        &mut self,
        access: Access,
        frame: u32,
        node: usize,
        group: Group,
        served: &mut Option<usize>,
    ) -> u64 {
        if access.is_streaming() {
            let lines = u64::from(access.lines());
            self.tally.streamed[node] += lines;
            *served = Some(node);
            return lines * self.prices.memory[node][1];
        }
        let mut cost = 0;
        for line in access.line()..access.line() + access.lines() {
            let place = self.cache.place(frame, line);
            cost += self.line(place, node, access.is_write(), group, served);
        }
        cost
    }
}

/// Why an entry cannot be used.
#[cold]
fn why(entry: Pte, store: u64) -> Fault {
    Fault::of(entry, store != 0).expect("an entry that lacks something or has too much")
}
