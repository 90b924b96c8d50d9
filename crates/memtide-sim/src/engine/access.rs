//! The way of one access: TLB, page table, cache, memory, sampler.
//!
//! A batch goes in blocks through two passes, each a short loop that the host runs well. The first looks
//! each page up in the TLB, walks where that fails, and notes where the access goes; it stops at an
//! access that needs the kernel. The second asks the cache, charges what the line cost, and counts down
//! to the next sample. What came before a stop is charged, and the call ends. Without a cache there are
//! no tags that the second would have to wait for: then one loop does both.
//!
//! Nearly all of the host's time would go to waiting for its own memory: a page's entry is somewhere in
//! hundreds of megabytes. The loops know addresses beforehand: entries are asked for a block or
//! [`DISTANCE`] accesses before they are needed, and the cache's tags in the first pass, for the second.
//! That is a hint to the host's cache; it changes no result.
//!
//! What stays true: a TLB hit decides alone where an access goes; the TLB, the cache and the sampler
//! each see the accesses in order. A batch is as long as fits into the time by what accesses cost last,
//! so a thread may run over its time by some accesses; it begins its next quantum later by as much.
//! Times are picoseconds of one simulated access, not yet times the scale.

use super::oracle::Census;
use crate::hardware::cpu::Cpu;
use crate::hardware::llc::{Llc, Place};
use crate::hardware::sampler::Sampler;
use crate::hardware::tlb::{Found, OpenTlb, Tlb, Translation};
use crate::hardware::{Sample, ServedBy};
use crate::host::fetch;
use crate::kernel::Fault;
use crate::kernel::contents::Contents;
use crate::page::{Flags, HUGE_PAGES, MAX_NODES, Pte};
use crate::workload::Access;
use std::mem::take;

/// Accesses of a batch.
pub const BATCH: usize = 256;
/// How many accesses ahead a pass asks for memory: the time of so many is that of a few cache misses.
const DISTANCE: usize = 32;
/// Accesses that go through one pass before they go through the other.
const BLOCK: usize = 64;
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

    /// What a sampler sees of an access of a thread on a CPU; `memory` is the node, if memory served it.
    #[cold]
    fn sample(&self, who: (u32, u32), access: Access, memory: Option<usize>) -> Sample {
        Sample {
            slot: access.slot(),
            cpu: who.1,
            thread: who.0,
            write: access.is_write(),
            latency_ns: match memory {
                Some(node) => self.latency_ns[node][usize::from(access.is_write())],
                None => self.cache_latency_ns,
            },
            served: match memory {
                Some(node) => self.served[node].unwrap_or(ServedBy::Extension),
                None => ServedBy::Cache,
            },
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

/// A block between its passes.
pub struct Ahead {
    steps: [Step; BLOCK],
    data: [Place; BLOCK],
    tables: [Place; BLOCK],
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead {
            steps: [Step::default(); BLOCK],
            data: [Place::default(); BLOCK],
            tables: [Place::default(); BLOCK],
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
            let passes = CACHE || SHARED || self.contents.is_some() || self.census.is_some();
            let (count, fault, cost) = match (passes, self.huge) {
                (false, false) => self.at_once::<false>(rest),
                (false, true) => self.at_once::<true>(rest),
                (true, false) => self.two_passes::<CACHE, SHARED, false>(rest, ahead),
                (true, true) => self.two_passes::<CACHE, SHARED, true>(rest, ahead),
            };
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

    /// Both passes in one, where there is no cache for whose tags the second would have to wait. How many
    /// accesses came through, why the next did not, and the time.
    #[inline(never)]
    fn at_once<const HUGE: bool>(&mut self, accesses: &[Access]) -> (usize, Option<Fault>, u64) {
        let mut walks = Walks::<HUGE>::new(self.ptes, &mut self.cpu.tlb);
        let mut lines = Lines::<false, false>::new(
            (&mut *self.cache, self.prices),
            (&mut *self.tally, &mut *self.seen),
            (self.shared, self.groups),
        );
        fetch_entries(walks.ptes, &accesses[..accesses.len().min(DISTANCE)]);
        let (mut time, mut at, mut fault) = (0, 0, None);
        let mut countdown = Countdown::new(&self.cpu.sampler, self.prices);
        while at < accesses.len() && fault.is_none() {
            let until = accesses.len().min(at + countdown.accesses().min(DISTANCE));
            let later = [at, until].map(|at| accesses.len().min(at + DISTANCE));
            fetch_entries(walks.ptes, &accesses[later[0]..later[1]]);
            let (from, mut served) = (at, None);
            for &access in &accesses[from..until] {
                match walks.step(access) {
                    Ok(step) => {
                        let cost;
                        (cost, served) =
                            lines.access(access, step, Place::default(), Place::default());
                        time += cost;
                        at += 1;
                    }
                    Err(why) => {
                        fault = Some(why);
                        break;
                    }
                }
            }
            if countdown.made(at - from) {
                let who = (self.thread, self.cpu_number);
                let sample = self.prices.sample(who, accesses[at - 1], served);
                time += lines.sample(&mut self.cpu.sampler, &mut countdown, sample);
            }
        }
        time += lines.end();
        walks.end(self.tally);
        self.cpu.sampler.set_left(countdown.left);
        (at, fault, time)
    }

    /// The same in two passes.
    fn two_passes<const CACHE: bool, const SHARED: bool, const HUGE: bool>(
        &mut self,
        accesses: &[Access],
        ahead: &mut Ahead,
    ) -> (usize, Option<Fault>, u64) {
        let (mut at, mut time) = (0, 0);
        fetch_entries(self.ptes, &accesses[..accesses.len().min(BLOCK)]);
        while at < accesses.len() {
            let (block, later) = accesses[at..].split_at(BLOCK.min(accesses.len() - at));
            fetch_entries(self.ptes, &later[..later.len().min(BLOCK)]);
            let (count, fault) = self.translate::<CACHE, HUGE>(block, ahead);
            let through = &block[..count];
            if self.contents.is_some() {
                self.check(through, ahead);
            }
            time += match self.census.is_some() {
                false => self.charge::<CACHE, SHARED, false>(through, ahead),
                true => self.charge::<CACHE, SHARED, true>(through, ahead),
            };
            at += count;
            if fault.is_some() {
                return (at, fault, time);
            }
        }
        (at, None, time)
    }

    /// First pass: TLB and page table. How many accesses came through, and why the next did not.
    #[inline(never)]
    fn translate<const CACHE: bool, const HUGE: bool>(
        &mut self,
        accesses: &[Access],
        ahead: &mut Ahead,
    ) -> (usize, Option<Fault>) {
        let cache = &*self.cache;
        let mut walks = Walks::<HUGE>::new(self.ptes, &mut self.cpu.tlb);
        let (mut count, mut fault) = (0_usize, None);
        let places = ahead.data.iter_mut().zip(&mut ahead.tables);
        let steps = ahead.steps.iter_mut().zip(places);
        for (&access, (step, (data, table))) in accesses.iter().zip(steps) {
            *step = match walks.step(access) {
                Ok(step) => step,
                Err(why) => {
                    fault = Some(why);
                    break;
                }
            };
            if CACHE {
                *data = cache.place(step.frame(), access.line());
                *table = match step.how() == Step::WALK_HUGE {
                    true => cache.place_of_huge_entry(access.slot()),
                    false => cache.place_of_entry(access.slot()),
                };
                cache.fetch(*data);
                cache.fetch(*table);
            }
            count += 1;
        }
        walks.end(self.tally);
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
    fn charge<const CACHE: bool, const SHARED: bool, const CENSUS: bool>(
        &mut self,
        accesses: &[Access],
        ahead: &Ahead,
    ) -> u64 {
        let mut lines = Lines::<CACHE, SHARED>::new(
            (&mut *self.cache, self.prices),
            (&mut *self.tally, &mut *self.seen),
            (self.shared, self.groups),
        );
        let (mut time, mut at) = (0, 0);
        let mut countdown = Countdown::new(&self.cpu.sampler, self.prices);
        while at < accesses.len() {
            let until = accesses.len().min(at + countdown.accesses());
            let mut served = None;
            let places = ahead.data[at..until].iter().zip(&ahead.tables[at..until]);
            let steps = accesses[at..until].iter().zip(&ahead.steps[at..until]);
            for ((&access, &step), (&data, &table)) in steps.zip(places) {
                let (node, write) = (step.node(), access.is_write());
                let counted = lines.tally.of_memory(node, write, CENSUS);
                let cost;
                (cost, served) = lines.access(access, step, data, table);
                time += cost;
                if CENSUS && let Some(census) = &mut self.census {
                    let more = lines.tally.of_memory(node, write, true) - counted;
                    census.count(access, more, data);
                }
            }
            if countdown.made(until - at) {
                let who = (self.thread, self.cpu_number);
                let sample = self.prices.sample(who, accesses[until - 1], served);
                time += lines.sample(&mut self.cpu.sampler, &mut countdown, sample);
            }
            at = until;
        }
        time += lines.end();
        self.cpu.sampler.set_left(countdown.left);
        time
    }
}

/// Operations until the next sample, so that nobody asks for it at each access.
struct Countdown {
    left: i64,
    /// Of an access.
    operations: i64,
}

impl Countdown {
    fn new(sampler: &Sampler, prices: &Prices) -> Countdown {
        Countdown {
            left: sampler.left(),
            operations: prices.operations,
        }
    }

    /// How many accesses may be made before [`Countdown::made`] is asked: at least one.
    fn accesses(&self) -> usize {
        match self.left {
            ..1 => 1,
            left => ((left - 1) / self.operations.max(1)) as usize + 1,
        }
    }

    /// So many were made: whether the last of them is to be sampled.
    fn made(&mut self, accesses: usize) -> bool {
        self.left -= self.operations * accesses as i64;
        accesses > 0 && self.left <= 0
    }
}

/// Asks the host for entries that will be needed.
#[inline(always)]
fn fetch_entries(ptes: &[Pte], accesses: &[Access]) {
    for access in accesses {
        fetch(ptes, access.slot() as usize);
    }
}

/// Accesses on their way through TLB and page table.
struct Walks<'a, const HUGE: bool> {
    ptes: &'a mut [Pte],
    tlb: OpenTlb<'a>,
    /// By three bits of the access.
    misses: [u64; 8],
}

impl<'a, const HUGE: bool> Walks<'a, HUGE> {
    fn new(ptes: &'a mut [Pte], tlb: &'a mut Tlb) -> Walks<'a, HUGE> {
        Walks {
            ptes,
            tlb: tlb.open(),
            misses: [0; 8],
        }
    }

    /// Where an access goes.
    #[inline(always)]
    fn step(&mut self, access: Access) -> Result<Step, Fault> {
        let (slot, write) = (access.slot(), access.is_write());
        let huge = HUGE && self.ptes[slot as usize].has(Flags::HUGE);
        let head = if huge { slot & !(HUGE_PAGES - 1) } else { slot };
        let walked = if huge { Step::WALK_HUGE } else { Step::WALK };
        let (entry, how) = match self.tlb.find(head, huge) {
            Found::Nothing => {
                let entry = walk(&mut self.ptes[head as usize], access.store())?;
                self.misses[access.kind_bits()] += 1;
                self.tlb.insert(head, huge, entry);
                (entry, walked)
            }
            Found::First(entry) if !write | entry.stores() => (entry, 0),
            Found::Second(entry) if !write | entry.stores() => (entry, Step::SECOND),
            // The first store through an entry that a load brought.
            _ => {
                let entry = walk(&mut self.ptes[head as usize], access.store())?;
                self.tlb.set(head, huge, entry);
                (entry, walked)
            }
        };
        Ok(Step::new(entry, slot - head, how))
    }

    fn end(self, tally: &mut Tally) {
        for (bits, misses) in self.misses.iter().enumerate() {
            tally.tlb_misses[Access::translation_of(bits)] += misses;
        }
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
    /// Think time and translation, by how an address was found.
    translation: [u64; 4],
    groups: &'a [Group],
    /// Nearly all tables lie on one node, so walks that ended there are counted here as long as that
    /// stays, and those of them that the cache lacked the line for.
    table_node: usize,
    walks: u64,
    tables: u64,
}

impl<'a, const CACHE: bool, const SHARED: bool> Lines<'a, CACHE, SHARED> {
    fn new(
        (cache, prices): (&'a mut Llc, &'a Prices),
        (tally, seen): (&'a mut Tally, &'a mut [Seen]),
        (shared, groups): (&'a [Shared], &'a [Group]),
    ) -> Self {
        Lines {
            cache,
            prices,
            tally,
            seen,
            shared,
            translation: prices.translation(),
            groups,
            table_node: 0,
            walks: 0,
            tables: 0,
        }
    }

    /// An access that translation sent somewhere: its cost, and the node if memory served it.
    #[inline(always)]
    fn access(
        &mut self,
        access: Access,
        step: Step,
        data: Place,
        table: Place,
    ) -> (u64, Option<usize>) {
        let group = self.groups[(access.slot() >> Group::SHIFT) as usize];
        let mut cost = self.translation[(step.how() >> 36) as usize];
        if step.how() >= Step::WALK {
            if group.table_node() != self.table_node {
                cost += self.end();
                self.table_node = group.table_node();
            }
            self.walks += 1;
            self.tables += u64::from(!self.table(table));
        }
        let (of_data, served) = match access.is_one_line() {
            true => self.line(data, step.node(), access.is_write(), group),
            false => self.several(access, step.frame(), step.node(), group),
        };
        self.tally.heat[group.heat()] += 1;
        if SHARED {
            let seen = &mut self.seen[group.region()];
            seen.accesses += 1;
            seen.stores += access.store();
        }
        (cost + of_data, served)
    }

    /// The countdown is over: what the sample costs.
    #[cold]
    fn sample(&mut self, sampler: &mut Sampler, countdown: &mut Countdown, sample: Sample) -> u64 {
        let (next, taken) = sampler.pick(sample);
        // What the last operation counted too much, the next interval has less.
        countdown.left += next;
        self.tally.samples += u64::from(taken);
        if taken { self.prices.interrupt } else { 0 }
    }

    /// Notes what was counted here, and returns what the ends of these walks cost.
    fn end(&mut self) -> u64 {
        let (walks, tables) = (take(&mut self.walks), take(&mut self.tables));
        self.tally.walked[self.table_node] += tables;
        (walks - tables) * self.prices.cache + tables * self.prices.memory[self.table_node][0]
    }

    /// Whether the cache has the line of the page table at the end of a walk.
    #[inline(always)]
    fn table(&mut self, place: Place) -> bool {
        CACHE && self.cache.access(place)
    }

    /// One line of data: its cost, and the node if memory served it.
    #[inline(always)]
    fn line(
        &mut self,
        place: Place,
        node: usize,
        write: bool,
        group: Group,
    ) -> (u64, Option<usize>) {
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
                return (self.prices.other_cache, None);
            }
        }
        if hit {
            return (self.prices.cache, None);
        }
        self.tally.missed[node][usize::from(write)] += 1;
        (self.prices.memory[node][usize::from(write)], Some(node))
    }

    /// Lines in order, or streaming stores, which read nothing and leave nothing in a cache.
    #[inline(never)]
    fn several(
        &mut self,
        access: Access,
        frame: u32,
        node: usize,
        group: Group,
    ) -> (u64, Option<usize>) {
        if access.is_streaming() {
            let lines = u64::from(access.lines());
            self.tally.streamed[node] += lines;
            return (lines * self.prices.memory[node][1], Some(node));
        }
        let (mut cost, mut served) = (0, None);
        for line in access.line()..access.line() + access.lines() {
            let place = self.cache.place(frame, line);
            let (more, by) = self.line(place, node, access.is_write(), group);
            cost += more;
            served = by.or(served);
        }
        (cost, served)
    }
}

/// Why an entry cannot be used.
#[cold]
fn why(entry: Pte, store: u64) -> Fault {
    Fault::of(entry, store != 0).expect("an entry that lacks something or has too much")
}
