//! What the simulated threads do: regions to map, threads that access them, and when they are done.
//!
//! A workload is one of the kinds in this folder, so that the engine's inner loop makes no indirect
//! call per access: it asks for a batch ([`Workload::fill`]) and goes through it. A kind is pure: its
//! own state, the generator it is handed and the time decide what it does, and nothing else.
//!
//! Scaling: a page stands for S real pages and an access for S real accesses, so a kind divides both
//! its memory and its accesses a thread by S when it is built. Loops over all of a region keep their
//! number of rounds, because a round has S times fewer pages.

pub(crate) mod about;
mod alias;
mod checks;
mod gups;
mod hot_set;
mod huge_pages;
mod inference;
mod limits;
mod lines;
mod list;
mod pace;
mod page_count;
mod phases;
mod places;
mod pmbench;
mod pointer_chase;
mod programs;
mod random;
mod ranges;
mod regions;
mod scan_over_hot;
mod sockets;
mod streams;
mod trace;
mod two_set;
mod xsbench;
mod zipf;

pub use gups::GupsSpec;
pub use hot_set::HotSetSpec;
pub use inference::InferenceSpec;
pub use limits::{MAX_ACCESSES, MAX_SPAN_NS, MAX_THINK, MAX_THREADS};
pub use page_count::PageCountSpec;
pub use phases::PhasesSpec;
pub use places::Places;
pub use pmbench::PmbenchSpec;
pub use pointer_chase::PointerChaseSpec;
pub use programs::{MAX_PROGRAMS, ProgramPlan, ProgramSpec, ProgramsSpec};
pub use random::RandomSpec;
pub use ranges::{RangeSpec, RangesSpec};
pub use regions::RegionsSpec;
pub use scan_over_hot::ScanOverHotSpec;
pub use sockets::SocketsSpec;
pub use streams::{MlcSpec, StreamSpec};
pub use trace::{SLEEP_NS, TraceRow, TraceSpec};
pub(crate) use trace::{pauses, spread};
pub use two_set::TwoSetSpec;
pub use xsbench::XsbenchSpec;
pub use zipf::ZipfSpec;

use crate::config::Interleave;
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use std::sync::Arc;

/// One access, packed: slot, first line of 64 bytes in the page, how many lines in order, store or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub u64);

impl Access {
    /// An access to `lines` (1 to 64) lines from `line` of `slot`.
    #[inline]
    #[must_use]
    pub fn new(slot: Slot, line: u32, lines: u32, write: bool) -> Access {
        Access(
            u64::from(slot)
                | (u64::from(line) << 32)
                | (u64::from(lines) << 38)
                | (u64::from(write) << 45),
        )
    }

    /// The page.
    #[inline]
    #[must_use]
    pub fn slot(self) -> Slot {
        self.0 as u32
    }

    /// The first line.
    #[inline]
    #[must_use]
    pub fn line(self) -> u32 {
        (self.0 >> 32) as u32 & 63
    }

    /// The same as a streaming store: it writes whole lines without reading them first, and leaves
    /// none in a cache.
    #[inline]
    #[must_use]
    pub fn streaming(slot: Slot, line: u32, lines: u32) -> Access {
        Access(Access::new(slot, line, lines, true).0 | 1 << 46)
    }

    /// Whether it is a streaming store.
    #[inline]
    #[must_use]
    pub fn is_streaming(self) -> bool {
        self.0 >> 46 & 1 == 1
    }

    /// An instruction fetch from `line` of `slot`.
    #[inline]
    #[must_use]
    pub fn fetch(slot: Slot, line: u32) -> Access {
        Access(Access::new(slot, line, 1, false).0 | 1 << 47)
    }

    /// Three bits that decide what kind of translation it needs.
    #[inline]
    #[must_use]
    pub fn kind_bits(self) -> usize {
        (self.0 >> 45) as usize & 7
    }

    /// What kind of translation an access of these [`Access::kind_bits`] needs: 0 for a load, 1 for a store,
    /// 2 for a fetch.
    #[must_use]
    pub fn translation_of(kind_bits: usize) -> usize {
        match kind_bits >> 2 {
            0 => kind_bits & 1,
            _ => 2,
        }
    }

    /// How many lines.
    #[inline]
    #[must_use]
    pub fn lines(self) -> u32 {
        (self.0 >> 38) as u32 & 127
    }

    /// Whether it is to one line and no streaming store.
    #[inline]
    #[must_use]
    pub fn is_one_line(self) -> bool {
        self.0 >> 38 & 0x17f == 1
    }

    /// 1 if it stores, 0 if it loads.
    #[inline]
    #[must_use]
    pub fn store(self) -> u64 {
        self.0 >> 45 & 1
    }

    /// Whether it stores.
    #[inline]
    #[must_use]
    pub fn is_write(self) -> bool {
        self.0 >> 45 & 1 == 1
    }
}

/// How accesses of a thread follow one another; decides how many misses overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Each address comes from the one before.
    Dependent,
    /// Independent addresses.
    Random,
    /// In order.
    Sequential,
    /// Page after page, a line of each: independent addresses, but threads that go over the same
    /// memory meet at the same page.
    Sweep,
}

/// What memory a mapping has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anonymous.
    Anonymous,
    /// A file, private.
    PrivateFile,
    /// A file, shared.
    SharedFile,
}

/// A mapping that the workload asks for.
#[derive(Clone, Debug)]
pub struct RegionPlan {
    /// Its name, for reports.
    pub name: String,
    /// The address space, 0 to spaces - 1.
    pub space: u16,
    /// What memory.
    pub kind: Kind,
    /// The file that stands behind it, if any; equal numbers share pages.
    pub file: Option<u16>,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it has huge pages.
    pub huge: bool,
    /// Base pages, scaled already.
    pub pages: u32,
    /// First virtual page number (decides interleaving).
    pub start_vpn: u64,
    /// The policy under which it is populated: mode and nodes, as in the mempolicy model.
    pub policy: memtide_core::mempolicy::Policy,
    /// The policy in force once it is populated, which hint faults ask; `None`: the same.
    pub policy_after: Option<memtide_core::mempolicy::Policy>,
    /// Populated before the measured time starts (by a CPU of this node), or by first touch (`None`).
    pub populated_from: Option<u16>,
    /// Driven for bandwidth: a targeted interleave takes it.
    pub bandwidth: bool,
    /// Given back at this time of the measured run (the memory eater's end).
    pub freed_at_ns: Option<u64>,
    /// Its file changes without the kernel taking part, as one of a network file system does.
    pub foreign: bool,
}

impl RegionPlan {
    /// The same, with huge pages if `huge` and if there is room for one.
    fn in_huge_pages(self, huge: bool) -> RegionPlan {
        let huge = huge && self.pages >= crate::page::HUGE_PAGES;
        RegionPlan { huge, ..self }
    }
}

/// A thread.
#[derive(Clone, Debug)]
pub struct ThreadPlan {
    /// Its address space.
    pub space: u16,
    /// The node whose CPUs it may use, by preference; the engine gives each a CPU of one of them.
    pub nodes: Vec<u16>,
    /// How its accesses follow one another.
    pub pattern: Pattern,
    /// Operations that retire per access (for samplers).
    pub ops_per_access: u32,
    /// Time per access that no memory is needed for.
    pub think_ns: f64,
    /// Misses that it has under way at once; `None`: as many as the machine's CPUs have for its pattern.
    pub misses_at_once: Option<f64>,
    /// Threads of one group do the same; series and scores go by group.
    pub group: u16,
}

impl ThreadPlan {
    /// A thread on `node`, of the first address space and group.
    fn on(node: u16, pattern: Pattern, ops_per_access: u32, think: Nanos) -> ThreadPlan {
        ThreadPlan {
            space: 0,
            nodes: vec![node],
            pattern,
            ops_per_access,
            think_ns: think.0,
            misses_at_once: None,
            group: 0,
        }
    }
}

/// What a workload needs of the machine.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Mappings in order; region n's slots begin where those of n-1 end.
    pub regions: Vec<RegionPlan>,
    /// Threads in order.
    pub threads: Vec<ThreadPlan>,
    /// Stop at this time even if threads have accesses left (workloads measured by rate).
    pub ends_at_ns: Option<u64>,
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// So many accesses were written.
    Accesses(usize),
    /// It needs no memory for so many nanoseconds; ask again then.
    Thinks(u64),
    /// It waits for the others (barrier); ask again next quantum.
    Waits,
    /// It is done.
    Done,
}

impl Filled {
    /// `count` accesses; done if there were none left.
    #[inline]
    pub(crate) fn of(count: usize) -> Filled {
        match count {
            0 => Filled::Done,
            _ => Filled::Accesses(count),
        }
    }
}

/// The true rate of a page, for the oracle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// Relative rate of accesses.
    pub rate: f32,
    /// The node of the CPUs that make most of them.
    pub node: u16,
}

/// A workload as a scenario describes it, in figures of the real machine.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadSpec {
    /// Threads that access random pages.
    Random(RandomSpec),
    /// One thread that works through hot regions one after another.
    Regions(RegionsSpec),
    /// Two groups of threads on two nodes, whose memory begins on the first.
    TwoSet(TwoSetSpec),
    /// Threads on several nodes, with memory of their own and memory that they share.
    Sockets(SocketsSpec),
    /// Many processes, and an eater of memory that leaves.
    Pmbench(PmbenchSpec),
    /// Copy, scale, add, triad.
    Stream(StreamSpec),
    /// Bandwidth by a mix of reads and writes.
    Mlc(MlcSpec),
    /// Cross-section lookups.
    Xsbench(XsbenchSpec),
    /// A program that touches its pages once; where they lie is the result.
    PageCount(PageCountSpec),
    /// Few pages get most accesses, and which ones changes slowly.
    Zipf(ZipfSpec),
    /// The hot set changes all at once.
    Phases(PhasesSpec),
    /// A small hot set in a large memory.
    HotSet(HotSetSpec),
    /// Updates at random, most of them to a hot part.
    Gups(GupsSpec),
    /// Ranges of memory, each with its share of the accesses and its time.
    Ranges(RangesSpec),
    /// A hot set, and a scan that touches much memory once.
    ScanOverHot(ScanOverHotSpec),
    /// Each address comes from the one before.
    PointerChase(PointerChaseSpec),
    /// Language models that are read layer after layer for each token.
    Inference(InferenceSpec),
    /// Recorded accesses again.
    Trace(TraceSpec),
    /// Several programs at once; a scenario's `[[program]]`.
    #[serde(skip)]
    Programs(ProgramsSpec),
}

/// What a description of a workload gets wrong: the key, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The key.
    pub key: &'static str,
    /// What is wrong and what to do.
    pub why: String,
}

/// `Err` unless `good`.
pub(crate) fn want(good: bool, key: &'static str, why: impl Into<String>) -> Result<(), Wrong> {
    match good {
        true => Ok(()),
        false => Err(Wrong {
            key,
            why: why.into(),
        }),
    }
}

/// Base pages of the simulated machine that `bytes` of the real one are: at least 1; if `huge`, whole huge
/// pages where there is one.
pub(crate) fn pages(bytes: Bytes, scale: u32, huge: bool) -> u32 {
    let huge_pages = u64::from(crate::page::HUGE_PAGES);
    let pages = bytes.0 / 4096 / u64::from(scale);
    let pages = match huge && pages >= huge_pages {
        true => pages / huge_pages * huge_pages,
        false => pages,
    };
    pages.clamp(1, u64::from(u32::MAX)) as u32
}

/// `pages`, or if `huge` the next whole number of huge pages.
fn whole(pages: u32, huge: bool) -> u32 {
    let up = || pages.checked_next_multiple_of(crate::page::HUGE_PAGES);
    if huge { up().unwrap_or(pages) } else { pages }
}

macro_rules! each_program {
    ($self:expr, $program:ident => $do:expr) => {
        match $self {
            Program::Random($program) => $do,
            Program::Regions($program) => $do,
            Program::TwoSet($program) => $do,
            Program::Sockets($program) => $do,
            Program::Pmbench($program) => $do,
            Program::Streams($program) => $do,
            Program::Xsbench($program) => $do,
            Program::PageCount($program) => $do,
            Program::Zipf($program) => $do,
            Program::Phases($program) => $do,
            Program::HotSet($program) => $do,
            Program::Gups($program) => $do,
            Program::Ranges($program) => $do,
            Program::ScanOverHot($program) => $do,
            Program::PointerChase($program) => $do,
            Program::Inference($program) => $do,
            Program::Trace($program) => $do,
            Program::Programs($program) => $do,
        }
    };
}

#[derive(Clone, Debug)]
enum Program {
    Random(random::Random),
    Regions(regions::Regions),
    TwoSet(two_set::TwoSet),
    Sockets(sockets::Sockets),
    Pmbench(pmbench::Pmbench),
    Streams(streams::Streams),
    Xsbench(xsbench::Xsbench),
    PageCount(page_count::PageCount),
    Zipf(zipf::Zipf),
    Phases(phases::Phases),
    HotSet(hot_set::HotSet),
    Gups(gups::Gups),
    Ranges(ranges::Ranges),
    ScanOverHot(scan_over_hot::ScanOverHot),
    PointerChase(pointer_chase::PointerChase),
    Inference(inference::Inference),
    Trace(trace::Trace),
    Programs(programs::Programs),
}

/// What each kind can do.
trait Acts {
    fn mapped(&mut self, slots: &[Slot]);
    fn fill(&mut self, thread: usize, now_ns: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled;
    fn done(&self) -> f64;
    fn phase(&self, _now_ns: u64) -> u64 {
        0
    }
    fn truth(&self, region: usize, page: u32, now_ns: u64) -> Truth;
}

impl Acts for Program {
    fn mapped(&mut self, slots: &[Slot]) {
        each_program!(self, program => program.mapped(slots));
    }

    fn fill(&mut self, thread: usize, now_ns: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        each_program!(self, program => program.fill(thread, now_ns, rng, batch))
    }

    fn done(&self) -> f64 {
        each_program!(self, program => program.done())
    }

    fn phase(&self, now_ns: u64) -> u64 {
        each_program!(self, program => program.phase(now_ns))
    }

    fn truth(&self, region: usize, page: u32, now_ns: u64) -> Truth {
        each_program!(self, program => program.truth(region, page, now_ns))
    }
}

/// How a workload measures itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Seconds until it is done; fewer are better.
    Seconds,
    /// Accesses a second; more are better.
    Rate,
    /// Bytes a second that the program itself counts (arrays read and written); more are better.
    Bytes,
    /// Bytes a second that memory carried, reads for stores included; more are better.
    Traffic,
    /// Where its pages lie; no time.
    Pages,
}

impl WorkloadSpec {
    /// Checks it against the machine.
    ///
    /// # Errors
    ///
    /// The first key that cannot be.
    pub fn check(&self, places: &Places) -> Result<(), Wrong> {
        self.within_limits()?;
        self.check_kind(places)?;
        self.has_huge_pages()
    }

    fn check_kind(&self, places: &Places) -> Result<(), Wrong> {
        match self {
            WorkloadSpec::Random(spec) => spec.check(places),
            WorkloadSpec::Regions(spec) => spec.check(places),
            WorkloadSpec::TwoSet(spec) => spec.check(places),
            WorkloadSpec::Sockets(spec) => spec.check(places),
            WorkloadSpec::Pmbench(spec) => spec.check(places),
            WorkloadSpec::Stream(spec) => spec.check(places),
            WorkloadSpec::Mlc(spec) => spec.check(places),
            WorkloadSpec::Xsbench(spec) => spec.check(places),
            WorkloadSpec::PageCount(spec) => spec.check(places),
            WorkloadSpec::Zipf(spec) => spec.check(places),
            WorkloadSpec::Phases(spec) => spec.check(places),
            WorkloadSpec::HotSet(spec) => spec.check(places),
            WorkloadSpec::Gups(spec) => spec.check(places),
            WorkloadSpec::Ranges(spec) => spec.check(places),
            WorkloadSpec::ScanOverHot(spec) => spec.check(places),
            WorkloadSpec::PointerChase(spec) => spec.check(places),
            WorkloadSpec::Inference(spec) => spec.check(places),
            WorkloadSpec::Trace(spec) => spec.check(places),
            WorkloadSpec::Programs(spec) => spec.check(places),
        }
    }

    /// How its result is measured.
    #[must_use]
    pub fn measure(&self) -> Measure {
        match self {
            WorkloadSpec::Pmbench(_)
            | WorkloadSpec::HotSet(_)
            | WorkloadSpec::Gups(_)
            | WorkloadSpec::Ranges(_)
            | WorkloadSpec::Programs(_) => Measure::Rate,
            WorkloadSpec::Stream(_) => Measure::Bytes,
            WorkloadSpec::Mlc(_) => Measure::Traffic,
            WorkloadSpec::PageCount(_) => Measure::Pages,
            _ => Measure::Seconds,
        }
    }

    /// Whether it has programs that are there for their load only.
    #[must_use]
    pub fn has_background(&self) -> bool {
        match self {
            WorkloadSpec::Programs(ProgramsSpec(all)) => all.iter().any(|one| one.background),
            _ => false,
        }
    }

    /// The largest S at which it still means something.
    #[must_use]
    pub fn max_scale(&self) -> u32 {
        match self {
            WorkloadSpec::PageCount(_) => 1,
            WorkloadSpec::Ranges(spec) if !spec.huge => spec.max_scale(),
            WorkloadSpec::Programs(ProgramsSpec(all)) => {
                let scales = all.iter().map(|one| one.workload.max_scale());
                scales.min().unwrap_or(1)
            }
            _ => self.max_huge_scale().unwrap_or(limits::MAX_SCALE),
        }
    }

    /// The recording that it or one of its programs replays.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceSpec> {
        match self {
            WorkloadSpec::Trace(spec) => Some(spec),
            WorkloadSpec::Programs(ProgramsSpec(all)) => {
                all.iter().find_map(|one| one.workload.trace())
            }
            _ => None,
        }
    }

    /// The workload at scale 1/`scale`, on the machine of `places`; `rows` are a trace's.
    #[must_use]
    pub fn build(&self, places: &Places, scale: u32, rows: &Arc<Vec<TraceRow>>) -> Workload {
        let (mut plan, program) = match self {
            WorkloadSpec::Random(spec) => wrap(spec.build(places, scale), Program::Random),
            WorkloadSpec::Regions(spec) => wrap(spec.build(places, scale), Program::Regions),
            WorkloadSpec::TwoSet(spec) => wrap(spec.build(places, scale), Program::TwoSet),
            WorkloadSpec::Sockets(spec) => wrap(spec.build(places, scale), Program::Sockets),
            WorkloadSpec::Pmbench(spec) => wrap(spec.build(places, scale), Program::Pmbench),
            WorkloadSpec::Stream(spec) => wrap(spec.build(places, scale), Program::Streams),
            WorkloadSpec::Mlc(spec) => wrap(spec.build(places, scale), Program::Streams),
            WorkloadSpec::Xsbench(spec) => wrap(spec.build(places, scale), Program::Xsbench),
            WorkloadSpec::PageCount(spec) => wrap(spec.build(places), Program::PageCount),
            WorkloadSpec::Zipf(spec) => wrap(spec.build(places, scale), Program::Zipf),
            WorkloadSpec::Phases(spec) => wrap(spec.build(places, scale), Program::Phases),
            WorkloadSpec::HotSet(spec) => wrap(spec.build(places, scale), Program::HotSet),
            WorkloadSpec::Gups(spec) => wrap(spec.build(places, scale), Program::Gups),
            WorkloadSpec::Ranges(spec) => wrap(spec.build(places, scale), Program::Ranges),
            WorkloadSpec::ScanOverHot(spec) => {
                wrap(spec.build(places, scale), Program::ScanOverHot)
            }
            WorkloadSpec::PointerChase(spec) => {
                wrap(spec.build(places, scale), Program::PointerChase)
            }
            WorkloadSpec::Inference(spec) => wrap(spec.build(places, scale), Program::Inference),
            WorkloadSpec::Trace(spec) => wrap(spec.build(places, scale, rows), Program::Trace),
            WorkloadSpec::Programs(spec) => {
                wrap(spec.build(places, scale, rows), Program::Programs)
            }
        };
        if let Some(misses) = self.misses_at_once() {
            for thread in &mut plan.threads {
                thread.misses_at_once = Some(misses);
            }
        }
        Workload { plan, program }
    }
}

fn wrap<T>(built: (Plan, T), program: fn(T) -> Program) -> (Plan, Program) {
    (built.0, program(built.1))
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    plan: Plan,
    program: Program,
}

impl Workload {
    /// What it needs; region n's slots begin where those of n-1 end.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Changes the policies under which its regions are populated.
    pub(crate) fn regions_mut(&mut self) -> &mut [RegionPlan] {
        &mut self.plan.regions
    }

    /// Populates its regions in turn on the nodes of an interleave instead of where it says. Programs that
    /// are there for their load only are none of its business.
    pub fn interleave(&mut self, places: &Places, interleave: &Interleave) {
        let weights = &interleave.weights;
        let nodes: Vec<u16> = weights.iter().map(|&(node, _)| node).collect();
        let plain = weights.iter().all(|&(_, weight)| weight == 1);
        let background = self.programs().iter().filter(|plan| plan.background);
        let background: Vec<_> = background.map(|plan| plan.regions.clone()).collect();
        for (n, region) in self.plan.regions.iter_mut().enumerate() {
            let own = background.iter().all(|regions| !regions.contains(&n));
            if !own || interleave.targeted && !region.bandwidth {
                continue;
            }
            region.policy = match nodes.as_slice() {
                [only] => places.bind(&[*only], false),
                _ => places.interleave(&nodes, !plain),
            };
            region.policy_after = None;
        }
    }

    /// Told once, after mapping: the first slot of each region.
    pub fn mapped(&mut self, slots: &[Slot]) {
        each_program!(&mut self.program, program => program.mapped(slots));
    }

    /// The next accesses of `thread`, at `now_ns` of its clock since the measured start.
    #[inline]
    pub fn fill(
        &mut self,
        thread: usize,
        now_ns: u64,
        rng: &mut Rng,
        batch: &mut [Access],
    ) -> Filled {
        each_program!(&mut self.program, program => program.fill(thread, now_ns, rng, batch))
    }

    /// The share that the slowest group of threads has done, 0 to 1.
    #[must_use]
    pub fn done(&self) -> f64 {
        each_program!(&self.program, program => program.done())
    }

    /// Whether it replays a recording.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        match &self.program {
            Program::Trace(_) => true,
            Program::Programs(programs) => programs.is_recorded(),
            _ => false,
        }
    }

    /// The programs that it consists of; none if it is one.
    #[must_use]
    pub fn programs(&self) -> &[ProgramPlan] {
        match &self.program {
            Program::Programs(programs) => programs.plans(),
            _ => &[],
        }
    }

    /// A number that changes whenever the true rates do.
    #[must_use]
    pub fn phase(&self, now_ns: u64) -> u64 {
        each_program!(&self.program, program => program.phase(now_ns))
    }

    /// The true rate of page `page` of region `region` at `now_ns`.
    #[must_use]
    pub fn truth(&self, region: usize, page: u32, now_ns: u64) -> Truth {
        each_program!(&self.program, program => program.truth(region, page, now_ns))
    }
}

#[cfg(test)]
mod tests;
