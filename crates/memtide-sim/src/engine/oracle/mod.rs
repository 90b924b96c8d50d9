//! The oracle: what a run would take if every page were where it should be, at no cost.
//!
//! The program runs once on a machine whose memory answers as if nobody else asked, each line from the
//! nearest node. Nothing faults, scans or interrupts, and entries in TLBs follow pages. Meanwhile a census
//! counts what the caches miss, by groups of pages with the same true rate and by kinds of threads. The rates change now
//! and then; from one change to the next is a *piece*. What it takes at least, wherever its pages are, follows
//! from the counts ([`bound`]): each node with its own latencies, bandwidths, law and capacity, loads and
//! stores apart, and the pages placed anew in each piece. The run's time is the sum over pieces.
//!
//! A quantum in which rates change, and what follows until the next census begins, counts as it ran: no
//! placement is faster.
//!
//! Where the census does not tell enough for a proof, [`Oracle::doubt`] says why, and the result is an
//! estimate. For people to look at, pages lie by their rates, the hottest on the nearest nodes. A page keeps
//! one frame number for good, so that what is cached of it stays cached.

mod bound;
mod search;

use super::{PS, QUANTUM_NS, Source};
use crate::hardware::Hardware;
use crate::hardware::law::Excess;
use crate::kernel::Kernel;
use crate::page::{Flags, HUGE_PAGES, MAX_NODES, Pte, Slot};
use crate::result::{RunResult, Series};
use crate::spec::MachineSpec;
use crate::workload::{Access, Pattern, Plan};
use bound::{Group, Place, Work};
use memtide_core::units::NodeId;
use std::collections::BTreeMap;

/// Least time between two placements, in nanoseconds.
const INTERVAL_NS: u64 = 10_000_000;

/// Standard deviations of cache hits that another placement may be luckier.
const LUCK: f64 = 4.0;

/// Threads that wait equally long for the same line.
#[derive(Clone, Debug, PartialEq)]
struct Kind {
    /// The nodes on whose CPUs they may run.
    nodes: Vec<u16>,
    pattern: Pattern,
}

/// What an access does with the lines that memory serves: it reads them; it reads them and writes them back
/// later; it writes them without reading. An index into counts.
const LOAD: usize = 0;
const STORE: usize = 1;
const STREAM: usize = 2;

/// Counts of an access path: lines that memory served, by group and kind.
pub struct Census<'a> {
    group_of: &'a [u32],
    lines: &'a mut [[u64; 3]],
    kinds: usize,
    kind: usize,
}

impl Census<'_> {
    /// Memory served `lines` lines to an access.
    #[inline]
    pub fn count(&mut self, access: Access, lines: u64) {
        let group = self.group_of[access.slot() as usize] as usize;
        let way = match access.is_streaming() {
            true => STREAM,
            false if access.is_write() => STORE,
            false => LOAD,
        };
        self.lines[group * self.kinds + self.kind][way] += lines;
    }
}

/// A piece of the run, or quanta that count as they ran.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// How long it ran, in nanoseconds.
    ran_ns: f64,
    /// How long it takes; the same if the run's end is a time.
    takes_ns: f64,
    /// The share of its accesses that counts.
    share: f64,
    /// Accesses that ran.
    accesses: u64,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// By group, then kind.
    lines: Vec<[u64; 3]>,
    /// Lines of page tables, by kind.
    walked: Vec<u64>,
    /// Time of the threads, memory included, in picoseconds times the scale.
    spent_ps: u64,
    accesses: u64,
}

impl Counts {
    fn clear(&mut self, groups: usize, kinds: usize) {
        self.lines.clear();
        self.lines.resize(groups * kinds, [0; 3]);
        self.walked.clear();
        self.walked.resize(kinds, 0);
        (self.spent_ps, self.accesses) = (0, 0);
    }

    fn add(&mut self, other: &Counts) {
        for (sum, more) in self.lines.iter_mut().zip(&other.lines) {
            *sum = std::array::from_fn(|way| sum[way] + more[way]);
        }
        for (sum, more) in self.walked.iter_mut().zip(&other.walked) {
            *sum += more;
        }
        self.spent_ps += other.spent_ps;
        self.accesses += other.accesses;
    }

    /// The share of the misses that no luck takes away. Other frames fall into other sets of a cache: of n
    /// accesses with a share p of hits, some sqrt(n p (1 - p)) more may hit, and four times that are granted.
    fn kept(&self) -> f64 {
        let missed: u64 = self.lines.iter().flatten().sum();
        let (missed, hits) = (missed as f64, self.accesses.saturating_sub(missed) as f64);
        if missed == 0.0 || hits == 0.0 {
            return 1.0;
        }
        let deviation = (missed * hits / (missed + hits)).sqrt();
        (1.0 - LUCK * deviation / missed).max(0.0)
    }
}

/// The oracle.
pub struct Oracle {
    /// Base pages of each node.
    capacity: Vec<(NodeId, u64)>,
    places: Vec<Place>,
    kinds: Vec<Kind>,
    kind_of: Vec<usize>,
    scale: f64,
    /// Whether the run ends at a time.
    timed: bool,
    doubt: Option<&'static str>,
    /// Folios: rate as bits (rates are not negative, so bits order as they do), node of the accessor,
    /// head.
    folios: Vec<(u32, u16, Slot)>,
    group_of: Vec<u32>,
    pages: Vec<u64>,
    /// This quantum's, and the piece's before it.
    quantum: Counts,
    piece: Counts,
    cpus: f64,
    /// The rates in force: phase, mappings given back.
    rates: (u64, usize),
    placed_ns: u64,
    began_ns: u64,
    /// Whether the census knows the rates in force.
    knows: bool,
    pieces: Vec<Piece>,
}

impl Oracle {
    /// An oracle for `machine`; no page is placed yet.
    pub fn new<W: Source>(
        machine: &MachineSpec,
        source: &W,
        scale: u32,
        kernel: &mut Kernel,
        hw: &mut Hardware,
    ) -> Oracle {
        hw.memory.keep_still();
        let nodes = machine.nodes.iter().filter(|node| node.capacity_bytes > 0);
        let first_cpu_node = machine.nodes.iter().find(|node| node.cpus > 0);
        let tables = NodeId(first_cpu_node.map_or(0, |node| node.id));
        for index in 0..kernel.regions.len() {
            let region = kernel.regions.get_mut(index);
            region.page_table_node = Some(tables);
            let flags = match region.plan.writable {
                true => Flags::WRITABLE.with(Flags::DIRTY),
                false => Flags(0),
            };
            let (huge, base) = (region.plan.huge, region.base);
            let whole = region.plan.pages / HUGE_PAGES * HUGE_PAGES;
            for slot in region.slots() {
                let huge = huge && slot - base < whole;
                let flags = if huge { flags.with(Flags::HUGE) } else { flags };
                kernel.ptes[slot as usize] = Pte::present(slot, tables, flags);
            }
        }
        let capacity: Vec<(NodeId, u64)> = nodes
            .map(|node| {
                (
                    NodeId(node.id),
                    node.capacity_bytes / 4096 / u64::from(scale),
                )
            })
            .collect();
        let places = capacity.iter().filter_map(|&(node, pages)| {
            let law = hw.memory.law(node)?.clone();
            Some(Place {
                capacity: pages as f64,
                excess: Excess::new(&law),
                law,
            })
        });
        let plan = source.plan();
        let mut kinds: Vec<Kind> = Vec::new();
        let kind_of = plan.threads.iter().map(|thread| {
            let with_cpus = thread
                .nodes
                .iter()
                .filter(|&&node| hw.has_cpus(NodeId(node)));
            let kind = Kind {
                nodes: with_cpus.copied().collect(),
                pattern: thread.pattern,
            };
            let known = kinds.iter().position(|known| *known == kind);
            known.unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            })
        });
        let kind_of = kind_of.collect();
        let doubt = doubt(plan, &kinds, &capacity, hw, source.is_recorded());
        Oracle {
            places: places.collect(),
            capacity,
            kind_of,
            scale: f64::from(scale.max(1)),
            timed: plan.ends_at_ns.is_some(),
            doubt,
            folios: Vec::new(),
            group_of: vec![0; kernel.ptes.len()],
            pages: Vec::new(),
            quantum: Counts::default(),
            piece: Counts::default(),
            cpus: 0.0,
            rates: (u64::MAX, 0),
            placed_ns: 0,
            began_ns: 0,
            knows: false,
            pieces: Vec::new(),
            kinds,
        }
    }

    /// What an access path of `thread` counts into.
    pub fn census(&mut self, thread: usize) -> Census<'_> {
        Census {
            group_of: &self.group_of,
            lines: &mut self.quantum.lines,
            kinds: self.kinds.len(),
            kind: self.kind_of[thread],
        }
    }

    /// `thread` made so many accesses in so many picoseconds (times the scale) and read so many lines of page tables.
    pub fn ran(&mut self, thread: usize, accesses: u64, spent_ps: u64, walked: u64) {
        self.quantum.accesses += accesses;
        self.quantum.spent_ps += spent_ps;
        self.quantum.walked[self.kind_of[thread]] += walked;
    }

    /// Looks at what a quantum brought, at its end, and places all pages by their true rates where
    /// these changed.
    pub fn end_quantum<W: Source>(
        &mut self,
        source: &W,
        kernel: &mut Kernel,
        hw: &mut Hardware,
        now_ns: u64,
    ) {
        let gone = |at: Option<u64>| at.is_some_and(|at| at <= now_ns);
        let freed = kernel.regions.iter();
        let freed = freed.filter(|r| gone(r.plan.freed_at_ns)).count();
        let rates = (source.phase(now_ns), freed);
        let changed = rates != self.rates;
        if self.knows && !changed {
            self.piece.add(&self.quantum);
        } else {
            let from_ns = now_ns.saturating_sub(QUANTUM_NS).max(self.began_ns);
            self.close(hw, from_ns as f64);
            let ran_ns = now_ns as f64 - from_ns as f64;
            if ran_ns > 0.0 {
                self.pieces.push(Piece {
                    ran_ns,
                    takes_ns: match self.timed {
                        true => ran_ns,
                        false => ran_ns * self.quantum.kept(),
                    },
                    share: match self.timed {
                        true => 1.0 / self.quantum.kept().max(0.5),
                        false => 1.0,
                    },
                    accesses: self.quantum.accesses,
                });
            }
            self.began_ns = now_ns;
            self.knows = false;
        }
        self.rates = rates;
        let first = self.pages.is_empty();
        if !self.knows && (first || now_ns >= self.placed_ns + INTERVAL_NS) {
            self.placed_ns = now_ns;
            self.knows = true;
            self.place(source, kernel, hw, now_ns);
            self.fill(kernel, hw);
            hw.memory_moved(&kernel.ptes);
            self.cpus = Oracle::cpus(hw);
            self.piece.clear(self.pages.len(), self.kinds.len());
        }
        self.quantum.clear(self.pages.len(), self.kinds.len());
    }

    /// Processors that the threads that are left can keep busy. Where threads share processors, an access
    /// may run over its thread's turn into that of another; so each counts as if it had its own.
    fn cpus(hw: &Hardware) -> f64 {
        hw.running_threads().count() as f64
    }

    /// Ends the piece that began last, at `until_ns`.
    fn close(&mut self, hw: &Hardware, until_ns: f64) {
        let ran_ns = until_ns - self.began_ns as f64;
        if !self.knows || ran_ns <= 0.0 {
            return;
        }
        let work = self.work(hw);
        let kept = self.piece.kept();
        let (takes_ns, share) = match self.timed {
            true => match work.most_within(&self.places, ran_ns) {
                all if all >= 1.0 => (ran_ns, 1.0 / kept.max(0.5)),
                part => (ran_ns, part),
            },
            false => (work.least_ns(&self.places).max(ran_ns * kept), 1.0),
        };
        self.pieces.push(Piece {
            ran_ns,
            takes_ns,
            share,
            accesses: self.piece.accesses,
        });
    }

    /// The piece's counts as times.
    fn work(&self, hw: &Hardware) -> Work {
        // Picoseconds of a line, as access paths charge it.
        let price = |kind: &Kind, ns: f64| (ns / hw.mlp(kind.pattern).max(1.0) * PS as f64).floor();
        let kinds = self.kinds.len();
        let mut own_ps = self.piece.spent_ps as f64;
        let kept = self.piece.kept();
        let mut add = |group: &mut Group, kind: &Kind, way: usize, lines: u64| {
            if lines == 0 {
                return;
            }
            let lines = lines as f64 * self.scale;
            let write = way != LOAD;
            own_ps -= lines * price(kind, hw.memory.least_ns(&kind.nodes, write));
            let lines = lines * kept;
            for (at, &(node, _)) in self.capacity.iter().enumerate() {
                let ns = hw.memory.least_to_ns(&kind.nodes, node, write);
                group.wait_ns[at] += lines * price(kind, ns) / PS as f64;
                let [read, written] = [false, true].map(|write| hw.memory.line_ns(node, write));
                let busy = [read, read + written, written][way];
                group.busy_ns[at] += lines * busy;
            }
        };
        let empty = Group {
            pages: 0.0,
            wait_ns: vec![0.0; self.capacity.len()],
            busy_ns: vec![0.0; self.capacity.len()],
        };
        let mut groups = vec![empty; self.pages.len() + 1];
        for (at, &pages) in self.pages.iter().enumerate() {
            groups[at].pages = pages as f64;
            for (kind, lines) in self.kinds.iter().zip(&self.piece.lines[at * kinds..]) {
                for way in [LOAD, STORE, STREAM] {
                    add(&mut groups[at], kind, way, lines[way]);
                }
            }
        }
        for (kind, &lines) in self.kinds.iter().zip(&self.piece.walked) {
            add(&mut groups[self.pages.len()], kind, LOAD, lines);
        }
        Work {
            cpus: self.cpus,
            own_ns: own_ps.max(0.0) / PS as f64,
            groups,
        }
    }

    /// Ends the last piece when the run does, and makes the run's result the oracle's.
    pub fn conclude(&mut self, hw: &Hardware, end_ns: f64, result: &mut RunResult) {
        self.close(hw, end_ns.max(self.began_ns as f64));
        result.estimate = self.doubt.map(str::to_owned);
        let sum = |of: &dyn Fn(&Piece) -> f64| -> f64 { self.pieces.iter().map(of).sum() };
        let (ran, takes) = (sum(&|p| p.ran_ns), sum(&|p| p.takes_ns));
        let (made, counts) = (
            sum(&|p| p.accesses as f64),
            sum(&|p| p.accesses as f64 * p.share),
        );
        if ran <= 0.0 || made <= 0.0 {
            return;
        }
        let seconds = result.seconds + (takes - ran) / 1e9;
        let (longer, share) = (seconds / result.seconds, counts / made);
        result.seconds = seconds;
        result.accesses = (result.accesses as f64 * share) as u64;
        for seconds in &mut result.group_seconds {
            *seconds *= longer;
        }
        for rate in &mut result.bytes_per_s {
            *rate *= share / longer;
        }
        self.stretch(&mut result.series);
    }

    /// Brings a series from the times of the run to those of its pieces.
    fn stretch(&self, series: &mut Series) {
        let mut pieces = self.pieces.iter();
        let (mut ran, mut takes) = (0.0, 0.0);
        let mut now = pieces.next();
        for (at, seconds) in series.seconds.iter_mut().enumerate() {
            while let Some(piece) = now {
                if *seconds * 1e9 <= ran + piece.ran_ns {
                    break;
                }
                (ran, takes) = (ran + piece.ran_ns, takes + piece.takes_ns);
                now = pieces.next();
            }
            let (longer, share) = now.map_or((1.0, 1.0), |p| (p.takes_ns / p.ran_ns, p.share));
            *seconds = (takes + (*seconds * 1e9 - ran) * longer) / 1e9;
            for rates in &mut series.bytes_per_s {
                rates[at] *= share / longer;
            }
        }
    }

    /// Takes all pages' true rates at `now_ns`.
    fn place<W: Source>(&mut self, source: &W, kernel: &mut Kernel, hw: &Hardware, now_ns: u64) {
        let gone = |at: Option<u64>| at.is_some_and(|at| at <= now_ns);
        self.folios.clear();
        let mut groups: BTreeMap<(usize, u32, u16), u32> = BTreeMap::new();
        self.pages.clear();
        for index in 0..kernel.regions.len() {
            // Page tables lie where they are walked from.
            let node = NodeId(source.truth(index, 0, now_ns).node);
            if hw.memory.law(node).is_some() {
                kernel.regions.get_mut(index).page_table_node = Some(node);
            }
        }
        for (index, region) in kernel.regions.iter().enumerate() {
            let held = !gone(region.plan.freed_at_ns);
            let mut slot = region.base;
            while slot < region.slots().end {
                let huge = kernel.ptes[slot as usize].has(Flags::HUGE);
                let pages = if huge { HUGE_PAGES } else { 1 };
                let truths =
                    (slot..slot + pages).map(|s| source.truth(index, s - region.base, now_ns));
                let (mut rate, mut node, mut most) = (0.0f32, 0, -1.0f32);
                for truth in truths {
                    rate += truth.rate;
                    if truth.rate > most {
                        (node, most) = (truth.node, truth.rate);
                    }
                }
                let rate = (rate / pages as f32).max(0.0).to_bits();
                let next = self.pages.len() as u32;
                let group = *groups.entry((index, rate, node)).or_insert(next);
                if group == next {
                    self.pages.push(0);
                }
                self.group_of[slot as usize..(slot + pages) as usize].fill(group);
                if held {
                    self.pages[group as usize] += u64::from(pages);
                    self.folios.push((rate, node, slot));
                }
                slot += pages;
            }
        }
        self.folios
            .sort_unstable_by_key(|&(rate, _, slot)| (std::cmp::Reverse(rate), slot));
    }

    /// Puts the hottest pages on the nearest nodes.
    fn fill(&mut self, kernel: &mut Kernel, hw: &Hardware) {
        let mut room = [0u64; MAX_NODES];
        for &(node, pages) in &self.capacity {
            room[node.index()] = pages;
        }
        let orders: Vec<Vec<NodeId>> = (0..MAX_NODES as u16)
            .map(|from| {
                let mut order: Vec<NodeId> = self.capacity.iter().map(|&(node, _)| node).collect();
                let idle = |to: &NodeId| hw.memory.idle_ns(NodeId(from), *to, false);
                order.sort_by(|a, b| idle(a).total_cmp(&idle(b)));
                order
            })
            .collect();
        for &(_, accessor, head) in &self.folios {
            let huge = kernel.ptes[head as usize].has(Flags::HUGE);
            let pages = if huge { HUGE_PAGES } else { 1 };
            let order = &orders[usize::from(accessor) % MAX_NODES];
            let fits = |node: &&NodeId| room[node.index()] >= u64::from(pages);
            // What no node has room for is shown on the last; the bound does not ask.
            let node = order.iter().find(fits).or(order.last());
            let Some(&node) = node else { return };
            room[node.index()] = room[node.index()].saturating_sub(u64::from(pages));
            for slot in head..head + pages {
                kernel.ptes[slot as usize].set_frame(slot, node);
            }
        }
    }
}

/// Why the oracle of a program is an estimate; `None` if it is a bound.
fn doubt(
    plan: &Plan,
    kinds: &[Kind],
    capacity: &[(NodeId, u64)],
    hw: &Hardware,
    recorded: bool,
) -> Option<&'static str> {
    let pages: u64 = plan
        .regions
        .iter()
        .map(|region| u64::from(region.pages))
        .sum();
    let all: u64 = capacity.iter().map(|&(_, pages)| pages).sum();
    let first = plan.threads.first();
    let several = |thread| Some(thread) != first.map(|first| (first.group, first.space));
    let (kind, rest) = kinds.split_first()?;
    let cpus = kind
        .nodes
        .iter()
        .map(|&node| hw.cpus_of_node(NodeId(node)).len());
    let usable: usize = cpus.sum();
    if recorded {
        Some("a recording says what was accessed, not at what rates")
    } else if pages > all {
        Some("the program is larger than memory, and reading it again is not counted")
    } else if kind.nodes.len() > 1 {
        Some("threads may move to other nodes, where caches hold other lines")
    } else if plan.threads.len() > usable {
        Some("threads share processors, and what one does not use another may")
    } else if !rest.is_empty() || plan.threads.iter().any(|t| several((t.group, t.space))) {
        Some("threads of several kinds share memory, and one kind may gain what another loses")
    } else {
        None
    }
}
