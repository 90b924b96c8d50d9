//! A machine made of rates, for memory too large to make every access of.
//!
//! # Problem
//!
//! An hour of a terabyte is 10^13 accesses and 268 million pages. The loop sees
//! none of these accesses; it sees accessed bits of the pages that it looks at,
//! where pages are, and what becomes of moves.
//!
//! # Approach
//!
//! A program is a list of [`Heat`]: which pages of a mapping are accessed, how
//! often, from when to when. Where pages are is kept as runs. An accessed bit is
//! drawn when it is read: a page that is accessed `r` times a second is found
//! accessed after `t` seconds with probability 1 - e^(-rt), as random accesses
//! are. Pages that nothing accesses are not even visited, so time goes with what
//! is looked at, with runs, and with what happens; never with what there is.
//!
//! # What it leaves out
//!
//! - Feedback: no access takes longer on slow memory, nobody waits for a page on
//!   the move, and observing takes nothing from programs. Times are when pages
//!   come home, not how fast a program is.
//! - TLBs: every access sets its bit.
//! - That two views share one bit: each sees what happened since it cleared it.
//! - The kernel's own reclaim. A node that has no frame left above its lowest
//!   watermark takes no page; nothing is swapped or demoted by the kernel.
//! - Copies on write: a fork shares its parent's pages for good.
//! - Caches: where it has hardware that samples ([`Light::with_sampler`]), every
//!   access may be sampled. What memory is charged to a cgroup is that of its
//!   programs, and what two share is charged to both.

mod heat;
mod object;
mod sampling;
mod spec;

pub use heat::Heat;
pub use spec::{LightArea, LightNode, LightProcess, LightSpec};

use super::machine::{Machine, Missing};
use crate::rng::Rng;
use memtide_core::nodemask::NodeMask;
use memtide_core::pages::NodeSpace;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, NodeId};
use memtide_loop::world::{
    AddressSpace, Area, Found, HUGE_PAGES, MoveHow, Outcome, PageRun, Presence, ProcessId,
    ProcessSeen, Sample, Settled, SharedPages, Span, WorldError,
};
use object::Object;
use sampling::Sampling;
use std::collections::BTreeMap;

/// Nanoseconds of a clock tick and of a millisecond.
const TICK_NS: u64 = 10_000_000;
const MS: u64 = 1_000_000;
/// The stream of chance that accessed bits are drawn from.
const STREAM: u64 = 0x11_6874;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Unborn,
    Here,
    Gone,
}

#[derive(Clone, Debug)]
struct Program {
    spec: LightProcess,
    life: Life,
    /// The object of each area, and its first page there.
    objects: Vec<(usize, u64)>,
}

/// The machine. See the module's essay.
#[derive(Clone, Debug)]
pub struct Light {
    topology: Topology,
    nodes: Vec<LightNode>,
    programs: Vec<Program>,
    objects: Vec<Object>,
    shared: BTreeMap<(u64, u64), usize>,
    move_page_ns: u64,
    move_batch_ns: u64,
    now_ns: u64,
    rng: Rng,
    /// Pages moved so far.
    moved: u64,
    charged_ns: u64,
    sampling: Option<Sampling>,
}

impl Light {
    /// A machine on which the programs that are there from the beginning run.
    #[must_use]
    pub fn new(spec: LightSpec) -> Light {
        let programs = spec.processes.into_iter().map(|spec| Program {
            spec,
            life: Life::Unborn,
            objects: Vec::new(),
        });
        let mut light = Light {
            topology: spec.topology,
            nodes: spec.nodes,
            programs: programs.collect(),
            objects: Vec::new(),
            shared: BTreeMap::new(),
            move_page_ns: spec.move_page_ns,
            move_batch_ns: spec.move_batch_ns,
            now_ns: 0,
            rng: Rng::new(spec.seed, STREAM),
            moved: 0,
            charged_ns: 0,
            sampling: None,
        };
        light.happen();
        light
    }

    /// Draws anew from here on.
    pub fn reseed(&mut self, seed: u64) {
        self.rng = Rng::new(seed, STREAM);
    }

    /// Pages that were moved so far.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Processor time that others than programs used.
    #[must_use]
    pub fn charged_ns(&self) -> u64 {
        self.charged_ns
    }

    /// The share of all accesses that the top tier serves now: by truth, not by
    /// what anybody saw. 1 if there are none.
    #[must_use]
    pub fn fast_share(&self) -> f64 {
        let (mut fast, mut all) = (0.0, 0.0);
        for program in self.programs.iter().filter(|p| p.life == Life::Here) {
            for (area, &(object, first)) in program.spec.areas.iter().zip(&program.objects) {
                for heat in &area.heat {
                    if heat.seconds(self.now_ns, self.now_ns + 1) == 0.0 {
                        continue;
                    }
                    let runs = self.objects[object].within(first, first + area.pages);
                    for (from, pages, node) in runs {
                        let (from, to) = (from - first, from - first + pages);
                        let rate = (heat.before(to) - heat.before(from)) as f64 * heat.per_s;
                        all += rate;
                        if self.topology.is_top_tier(node) {
                            fast += rate;
                        }
                    }
                }
            }
        }
        if all > 0.0 { fast / all } else { 1.0 }
    }

    /// Of the pages that are accessed at least `per_s` times a second now: how many are on the top tier,
    /// and how many there are. By truth, not by what anybody saw.
    #[must_use]
    pub fn hot_pages(&self, per_s: f64) -> (u64, u64) {
        let (mut fast, mut all) = (0, 0);
        for program in self.programs.iter().filter(|p| p.life == Life::Here) {
            for (area, &(object, first)) in program.spec.areas.iter().zip(&program.objects) {
                let hot = |heat: &&Heat| {
                    heat.per_s >= per_s && heat.seconds(self.now_ns, self.now_ns + 1) > 0.0
                };
                for heat in area.heat.iter().filter(hot) {
                    for (from, pages, node) in
                        self.objects[object].within(first, first + area.pages)
                    {
                        let (from, to) = (from - first, from - first + pages);
                        let pages = heat.before(to) - heat.before(from);
                        all += pages;
                        if self.topology.is_top_tier(node) {
                            fast += pages;
                        }
                    }
                }
            }
        }
        (fast, all)
    }

    /// Pages on a node that are in use.
    #[must_use]
    pub fn pages_on(&self, node: NodeId) -> u64 {
        let runs = self.objects.iter().flat_map(|object| object.runs.values());
        let here = runs.filter(|&&(_, at)| at == node);
        here.map(|&(pages, _)| pages).sum()
    }

    /// Ends and begins what is due.
    fn happen(&mut self) {
        for index in 0..self.programs.len() {
            let program = &self.programs[index];
            let ended = program
                .spec
                .ends_ms
                .is_some_and(|ms| ms * MS <= self.now_ns);
            if ended && program.life == Life::Here {
                self.end(index);
            }
        }
        for index in 0..self.programs.len() {
            let program = &self.programs[index];
            if program.life == Life::Unborn && program.spec.born_ms * MS <= self.now_ns {
                self.begin(index);
            }
        }
    }

    fn begin(&mut self, index: usize) {
        let spec = self.programs[index].spec.clone();
        if let Some(parent) = spec.fork_of {
            let objects = self.programs[parent].objects.clone();
            for &(object, _) in &objects {
                self.objects[object].mappers += 1;
            }
            if spec.areas.is_empty() {
                self.programs[index].spec.areas = self.programs[parent].spec.areas.clone();
            }
            self.programs[index].objects = objects;
        } else {
            for area in &spec.areas {
                let at = self.map(area);
                self.programs[index].objects.push(at);
            }
        }
        self.programs[index].life = Life::Here;
    }

    /// The object of an area, and its first page there; its pages become present.
    fn map(&mut self, area: &LightArea) -> (usize, u64) {
        let fresh = self.objects.len();
        let (index, first) = match area.backing {
            Some(backing) => {
                let index = *self.shared.entry(backing.object).or_insert(fresh);
                (index, backing.first)
            }
            None => (fresh, area.first),
        };
        if index == fresh {
            self.objects.push(Object {
                huge: area.huge,
                ..Object::default()
            });
        }
        self.objects[index].mappers += 1;
        let end = first + area.pages;
        let present: Vec<_> = self.objects[index].within(first, end).collect();
        let mut at = first;
        for (from, pages, _) in present.into_iter().chain([(end, 0, area.node)]) {
            let room = self.takes(area.node).min(from - at);
            let unit = if area.huge { HUGE_PAGES } else { 1 };
            let room = room / unit * unit;
            if room > 0 {
                self.objects[index].place(at, at + room, area.node);
                self.node(area.node).expect("it takes pages").space.free -= room;
            }
            at = from + pages;
        }
        (index, first)
    }

    fn end(&mut self, index: usize) {
        self.programs[index].life = Life::Gone;
        for (object, _) in std::mem::take(&mut self.programs[index].objects) {
            let object = &mut self.objects[object];
            object.mappers -= 1;
            if object.mappers > 0 {
                continue;
            }
            for (_, (pages, at)) in std::mem::take(&mut object.runs) {
                let node = self.nodes.iter_mut().find(|node| node.id == at);
                node.expect("pages are on nodes").space.free += pages;
            }
        }
    }

    fn node(&mut self, id: NodeId) -> Option<&mut LightNode> {
        self.nodes.iter_mut().find(|node| node.id == id)
    }

    /// How many pages a node still lets in.
    fn takes(&self, id: NodeId) -> u64 {
        let node = self.nodes.iter().find(|node| node.id == id);
        node.map_or(0, |node| node.space.free.saturating_sub(node.min))
    }

    fn program(&self, process: ProcessId) -> Option<&Program> {
        let same = |program: &&Program| program_id(&program.spec) == process;
        let mut here = self.programs.iter().filter(|p| p.life == Life::Here);
        here.find(same)
    }

    /// The parts of a span that a process maps: the area's index, and from where
    /// to where in the area.
    fn parts(&self, program: &Program, span: Span) -> Vec<(usize, u64, u64)> {
        let areas = program.spec.areas.iter().enumerate();
        let part = |(index, area): (usize, &LightArea)| {
            let low = span.first.0.max(area.first);
            let high = (span.first.0 + span.pages).min(area.first + area.pages);
            (low < high).then(|| (index, low - area.first, high - area.first))
        };
        areas.filter_map(part).collect()
    }
}

fn program_id(spec: &LightProcess) -> ProcessId {
    ProcessId {
        pid: spec.pid,
        start_ticks: spec.born_ms * MS / TICK_NS + 1,
    }
}

impl Machine for Light {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn step(&mut self, until_ns: u64) -> Result<(), WorldError> {
        let events = self
            .programs
            .iter()
            .filter_map(|program| match program.life {
                Life::Unborn => Some(program.spec.born_ms * MS),
                Life::Here => Some(program.spec.ends_ms? * MS),
                Life::Gone => None,
            });
        let next_ns = events.filter(|&at| at > self.now_ns).min();
        let from_ns = self.now_ns;
        self.now_ns = until_ns.min(next_ns.unwrap_or(u64::MAX)).max(self.now_ns);
        self.sample(from_ns);
        if next_ns == Some(self.now_ns) {
            self.happen();
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.programs
            .iter()
            .all(|program| program.life == Life::Gone)
    }

    fn scale(&self) -> u64 {
        1
    }

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn room(&self, node: NodeId) -> Option<NodeSpace> {
        let mut nodes = self.nodes.iter();
        Some(nodes.find(|own| own.id == node)?.space)
    }

    fn latency_ns(&self, node: NodeId) -> Option<u32> {
        let mut nodes = self.nodes.iter();
        Some(nodes.find(|own| own.id == node)?.latency_ns)
    }

    fn processes(&self, seen: &mut Vec<ProcessSeen>) {
        let here = self.programs.iter().filter(|p| p.life == Life::Here);
        let before = seen.len();
        seen.extend(here.map(|program| {
            let spec = &program.spec;
            let lived_ns = self.now_ns - spec.born_ms * MS;
            ProcessSeen {
                process: program_id(spec),
                parent: spec.parent,
                born: Millis(spec.born_ms),
                ticks: (lived_ns as f64 * spec.busy) as u64 / TICK_NS,
                faults: spec.areas.iter().map(|area| area.pages).sum(),
                class: None,
            }
        }));
        seen[before..].sort_by_key(|seen| seen.process.pid);
    }

    fn cgroup(&self, process: ProcessId) -> Option<&str> {
        self.program(process)?.spec.cgroup.as_deref()
    }

    fn charged(&self, charged: &mut dyn FnMut(&str, NodeId, u64)) {
        for program in self.programs.iter().filter(|p| p.life == Life::Here) {
            let Some(cgroup) = &program.spec.cgroup else {
                continue;
            };
            for (area, &(object, first)) in program.spec.areas.iter().zip(&program.objects) {
                for (_, pages, node) in self.objects[object].within(first, first + area.pages) {
                    charged(cgroup, node, pages);
                }
            }
        }
    }

    fn address_space(&self, process: ProcessId, into: &mut AddressSpace) -> Presence {
        let Some(program) = self.program(process) else {
            return Presence::Gone;
        };
        into.name = format!("program-{}", process.pid);
        into.cpuset = NodeMask::ALL;
        into.areas.clear();
        into.areas
            .extend(program.spec.areas.iter().map(|area| Area {
                first: VirtualPage(area.first),
                pages: area.pages,
                allowed: area.allowed.clone(),
                kind: area.kind,
                backing: area.backing,
                // The world counts.
                counted: None,
            }));
        Presence::Here
    }

    fn present(&self, process: ProcessId, span: Span, found: &mut dyn FnMut(Found)) -> u64 {
        let Some(program) = self.program(process) else {
            return 0;
        };
        let mut present = 0;
        for (index, from, to) in self.parts(program, span) {
            let (area, (object, first)) = (&program.spec.areas[index], program.objects[index]);
            let object = &self.objects[object];
            for (at, pages, node) in object.within(first + from, first + to) {
                present += pages;
                found(Found {
                    first: VirtualPage(at - first + area.first),
                    pages,
                    node,
                    huge: object.huge,
                });
            }
        }
        present
    }

    fn clear_accessed(&mut self, _: ProcessId, _: Span) {}

    fn accessed(
        &mut self,
        process: ProcessId,
        span: Span,
        exposed_ns: u64,
        touched: &mut dyn FnMut(Span),
    ) {
        let mut rng = self.rng.clone();
        let Some(program) = self.program(process) else {
            return;
        };
        let began_ns = self.now_ns.saturating_sub(exposed_ns);
        let mut runs = Vec::new();
        for (index, from, to) in self.parts(program, span) {
            let (area, (object, first)) = (&program.spec.areas[index], program.objects[index]);
            let object = &self.objects[object];
            // A huge page is accessed if any of its pages is.
            let unit = if object.huge { HUGE_PAGES } else { 1 };
            let (wide_from, wide_to) = (from / unit * unit, to.next_multiple_of(unit));
            runs.clear();
            for heat in &area.heat {
                let seconds = heat.seconds(began_ns, self.now_ns);
                heat.draw(&mut rng, wide_from, wide_to, seconds, &mut runs);
            }
            for (at, pages) in &mut runs {
                let end = (*at + *pages).next_multiple_of(unit).min(to);
                *at = (*at / unit * unit).max(from);
                *pages = end - *at;
            }
            heat::join(&mut runs);
            for &(at, pages) in &runs {
                // Only what is present has a bit.
                for (at, pages, _) in object.within(first + at, first + at + pages) {
                    touched(Span {
                        first: VirtualPage(at - first + area.first),
                        pages,
                    });
                }
            }
        }
        self.rng = rng;
    }

    fn migrate(
        &mut self,
        process: ProcessId,
        target: NodeId,
        runs: &[PageRun],
        how: MoveHow,
        settled: &mut Vec<Settled>,
    ) -> u64 {
        let mut moved = 0;
        let Some(program) = self.program(process).cloned() else {
            settled.extend(
                runs.iter()
                    .map(|run| settle(run, run.first.0, run.pages, Outcome::ProcessGone)),
            );
            return 0;
        };
        for run in runs {
            if self.room(target).is_none() {
                settled.push(settle(run, run.first.0, run.pages, Outcome::NoSuchNode));
                continue;
            }
            let mut at = run.first.0;
            let end = run.first.0 + run.pages;
            let span = Span {
                first: run.first,
                pages: run.pages,
            };
            for (index, from, to) in self.parts(&program, span) {
                let base = program.spec.areas[index].first;
                if base + from > at {
                    settled.push(settle(run, at, base + from - at, Outcome::ZeroOrUnmapped));
                }
                moved += self.migrate_part(&program, index, from..to, target, (run, how), settled);
                at = base + to;
            }
            if at < end {
                settled.push(settle(run, at, end - at, Outcome::ZeroOrUnmapped));
            }
        }
        self.moved += moved;
        match moved {
            0 => 0,
            _ => self.move_batch_ns + moved * self.move_page_ns,
        }
    }

    fn charge(&mut self, ns: u64) {
        self.charged_ns += ns;
    }

    fn set_sampling(&mut self, period: u32) {
        if let Some(sampling) = &mut self.sampling {
            sampling.set(period);
        }
    }

    fn take_samples(&mut self, sampled: &mut dyn FnMut(Sample)) -> Missing {
        if let Some(sampling) = &mut self.sampling {
            sampling.taken().for_each(sampled);
        }
        Missing::default()
    }

    fn sample_ns(&self) -> u64 {
        sampling::INTERRUPT_NS
    }
}

fn settle(run: &PageRun, first: u64, pages: u64, outcome: Outcome) -> Settled {
    Settled {
        first: VirtualPage(first),
        pages,
        huge: run.huge,
        outcome,
    }
}

impl Light {
    /// Moves a part of an area; how many pages moved.
    fn migrate_part(
        &mut self,
        program: &Program,
        index: usize,
        part: std::ops::Range<u64>,
        target: NodeId,
        (run, how): (&PageRun, MoveHow),
        settled: &mut Vec<Settled>,
    ) -> u64 {
        let (base, (object, first)) = (program.spec.areas[index].first, program.objects[index]);
        let shared = self.objects[object].mappers > 1 && how.shared == SharedPages::Leave;
        let unit = if self.objects[object].huge {
            HUGE_PAGES
        } else {
            1
        };
        let (from, to) = (first + part.start, first + part.end);
        let there: Vec<_> = self.objects[object].within(from, to).collect();
        let (mut at, mut moved) = (from, 0);
        let mut tell = |from: u64, to: u64, outcome| {
            if from < to {
                settled.push(settle(run, from - first + base, to - from, outcome));
            }
        };
        for (low, pages, node) in there {
            let high = low + pages;
            tell(at, low, Outcome::NotPresent);
            at = high;
            if node == target {
                tell(low, high, Outcome::AlreadyThere);
                continue;
            }
            if shared {
                tell(low, high, Outcome::Shared);
                continue;
            }
            // Huge pages go whole, also the part of them that was not named.
            let (whole_low, whole_high) = (low / unit * unit, high.next_multiple_of(unit));
            let room = self.takes(target) / unit * unit;
            let whole_mid = whole_high.min(whole_low + room);
            let mid = whole_mid.clamp(low, high);
            if whole_low < whole_mid {
                let pages = whole_mid - whole_low;
                self.objects[object].place(whole_low, whole_mid, target);
                self.node(target).expect("it has room").space.free -= pages;
                self.node(node).expect("pages are on nodes").space.free += pages;
                moved += pages;
            }
            tell(low, mid, Outcome::Moved { from: node });
            tell(mid, high, Outcome::NoMemory);
        }
        tell(at, to, Outcome::NotPresent);
        moved
    }
}
