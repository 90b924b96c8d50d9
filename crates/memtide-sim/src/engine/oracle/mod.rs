//! The oracle: what a run would take if every page were where it should be, at no cost.
//!
//! The program runs once on a machine whose memory answers as if nobody else asked, each line from the
//! nearest node. Nothing faults, scans or interrupts, and entries in TLBs follow pages. Meanwhile a census
//! counts what the caches miss, by groups of pages with the same true rate and by kinds of threads
//! ([`census`]). The rates change now and then; from one change to the next is a *piece*. What it takes at
//! least, wherever its pages are, follows from the counts ([`bound`]): each node with its own latencies,
//! bandwidths, law and capacity, loads and stores apart, and the pages placed again in each piece. The run's
//! time is the sum over pieces ([`pieces`]).
//!
//! What it bounds: placements that know the rates of pages, but not the next access. Where accesses come in
//! an order, a mover that knew or guessed it could have each page near just in time.
//!
//! A quantum in which rates change, and what follows until the next census begins, counts as it ran: no
//! placement is faster.
//!
//! Where the census does not tell enough for a proof, [`doubt`] says why, and the result is an
//! estimate. For people to look at, pages lie by their rates, the hottest on the nearest nodes. A page keeps
//! one frame number for good, so that what is cached of it stays cached.

mod bound;
mod census;
mod doubt;
mod pieces;
mod placing;
mod search;

pub use census::Census;

use super::{PS, QUANTUM_NS, Source};
use crate::hardware::Hardware;
use crate::hardware::law::Excess;
use crate::hardware::llc::Llc;
use crate::kernel::Kernel;
use crate::page::{Flags, HUGE_PAGES, Pte, Slot};
use crate::result::RunResult;
use crate::spec::MachineSpec;
use bound::{Group, Place, Work};
use census::{Counts, Kind, LOAD, STORE, STREAM};
use memtide_core::units::NodeId;
use pieces::Piece;

/// Least time between two placements, in nanoseconds.
const INTERVAL_NS: u64 = 10_000_000;

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
    /// Threads that are left.
    threads: f64,
    /// Sets of a cache; 0 if there is none.
    sets: usize,
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
                misses_at_once: thread.misses_at_once,
            };
            let known = kinds.iter().position(|known| *known == kind);
            known.unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            })
        });
        let kind_of = kind_of.collect();
        let doubt = doubt::of_program(source, &kinds, &capacity, hw);
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
            threads: 0.0,
            sets: hw.caches.iter().map(Llc::sets).min().unwrap_or(0),
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
            counts: &mut self.quantum,
            kinds: self.kinds.len(),
            kind: self.kind_of[thread],
        }
    }

    /// `thread` made so many accesses in so many picoseconds (times the scale) and read so many lines of
    /// page tables.
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
                let floor = self.floor(hw, &self.quantum);
                self.pieces.push(self.as_it_ran(ran_ns, floor));
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
            self.threads = Oracle::threads(hw);
            self.piece.clear(self.pages.len(), self.kinds.len());
        }
        self.quantum.clear(self.pages.len(), self.kinds.len());
    }

    /// Threads that are left. Where they share processors, an access may run over its thread's turn into
    /// that of another; so each counts as if it had its own processor.
    fn threads(hw: &Hardware) -> f64 {
        hw.running_threads().count() as f64
    }

    /// Ends the piece that began last, at `until_ns`.
    fn close(&mut self, hw: &Hardware, until_ns: f64) {
        let ran_ns = until_ns - self.began_ns as f64;
        if !self.knows || ran_ns <= 0.0 {
            return;
        }
        let work = self.work(hw);
        let floor = self.floor(hw, &self.piece);
        let (takes_ns, share) = match self.timed {
            true => (
                ran_ns,
                work.most_within(&self.places, ran_ns).min(1.0 / floor),
            ),
            false => (work.least_ns(&self.places).max(ran_ns * floor), 1.0),
        };
        self.pieces.push(Piece {
            ran_ns,
            takes_ns,
            share,
            accesses: self.piece.accesses,
            as_it_ran: false,
        });
    }

    /// A quantum of which there is no census. No placement is faster than it was, but for luck.
    fn as_it_ran(&self, ran_ns: f64, floor: f64) -> Piece {
        let (takes_ns, share) = match self.timed {
            true => (ran_ns, 1.0 / floor),
            false => (ran_ns * floor, 1.0),
        };
        Piece {
            ran_ns,
            takes_ns,
            share,
            accesses: self.quantum.accesses,
            as_it_ran: true,
        }
    }

    /// The share of the counted time that no luck with caches takes away.
    fn floor(&self, hw: &Hardware, counts: &Counts) -> f64 {
        if counts.spent_ps == 0 {
            return 1.0;
        }
        let of_memory = self.memory_ps(hw, counts) / counts.spent_ps as f64;
        let floor = 1.0 - (1.0 - counts.kept(self.sets)) * of_memory.min(1.0);
        // Only where all time is misses that luck may take away would it be nothing.
        floor.max(1e-3)
    }

    /// Picoseconds of the counted time that went to lines that a cache may hold, as the run was charged.
    fn memory_ps(&self, hw: &Hardware, counts: &Counts) -> f64 {
        let charged = |kind: &Kind, lines: u64, write| {
            lines as f64 * self.scale * kind.price(hw, hw.memory.least_ns(&kind.nodes, write))
        };
        let kinds = || self.kinds.iter();
        let walked = kinds().zip(&counts.walked);
        let walked: f64 = walked
            .map(|(kind, &lines)| charged(kind, lines, false))
            .sum();
        let data = kinds().cycle().zip(&counts.lines);
        let data = data.map(|(kind, ways)| {
            charged(kind, ways[LOAD], false) + charged(kind, ways[STORE], true)
        });
        data.sum::<f64>() + walked
    }

    /// The piece's counts as times.
    fn work(&self, hw: &Hardware) -> Work {
        let kinds = self.kinds.len();
        let mut own_ps = self.piece.spent_ps as f64;
        // Either channel of a duplex node gives a bound by itself: the one that has more to do.
        let (mut reads, mut writes) = (self.piece.walked.iter().sum::<u64>(), 0);
        for lines in &self.piece.lines {
            reads += lines[LOAD] + lines[STORE];
            writes += lines[STORE] + lines[STREAM];
        }
        let kept = self.piece.kept(self.sets);
        let mut add = |group: &mut Group, kind: &Kind, way: usize, lines: u64| {
            if lines == 0 {
                return;
            }
            let lines = lines as f64 * self.scale;
            let write = way != LOAD;
            own_ps -= lines * kind.price(hw, hw.memory.least_ns(&kind.nodes, write));
            let lines = if way == STREAM { lines } else { lines * kept };
            for (at, &(node, _)) in self.capacity.iter().enumerate() {
                let ns = hw.memory.least_to_ns(&kind.nodes, node, write);
                group.wait_ns[at] += lines * kind.price(hw, ns) / PS as f64;
                let [read, written] = [false, true].map(|write| hw.memory.line_ns(node, write));
                let reading = reads as f64 * read >= writes as f64 * written;
                let busy = match (hw.memory.is_duplex(node), reading) {
                    (false, _) => [read, read + written, written],
                    (true, true) => [read, read, 0.0],
                    (true, false) => [0.0, written, written],
                };
                let busy = busy[way];
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
            threads: self.threads,
            own_ns: own_ps.max(0.0) / PS as f64,
            groups,
        }
    }

    /// Ends the last piece when the run does, and makes the run's result the oracle's.
    pub fn conclude(&mut self, hw: &Hardware, end_ns: f64, result: &mut RunResult) {
        self.close(hw, end_ns.max(self.began_ns as f64));
        let doubt = self.doubt.or_else(|| doubt::of_run(&self.pieces));
        result.estimate = doubt.map(str::to_owned);
        pieces::conclude(&self.pieces, result);
    }
}
