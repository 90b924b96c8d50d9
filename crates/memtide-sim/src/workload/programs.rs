//! Several programs at once, each with a workload of its own.
//!
//! Each program has its own address spaces, files and threads; what they share is the machine. One that
//! starts late makes its memory when it starts: its threads touch each page once, in order, before
//! they begin. One that ends takes its memory with it: the engine gives it back. A program ends at its
//! `end`, at the time that its workload is told to last, or when its work is done.
//!
//! A workload knows nothing of the others: it counts its regions and threads from 0, and its time from its start.

use super::{
    Access, Acts, Filled, Kind, MAX_ACCESSES, MAX_SPAN_NS, MAX_THREADS, Measure, Places, Plan,
    Program, TraceRow, Truth, WorkloadSpec, Wrong, want,
};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::Nanos;
use std::ops::Range;
use std::sync::Arc;

/// Most programs of a scenario.
pub const MAX_PROGRAMS: usize = 1000;
/// Processes of all of them at most: each has an address space and files, which have numbers of 16 bits.
const MOST_PROCESSES: u64 = 10_000;
/// How long a thread whose part of the set-up is done waits before it looks if the others' is, too.
const LOOK_NS: u64 = 1_000_000;

/// The programs of a scenario, in order.
#[derive(Clone, Debug)]
pub struct ProgramsSpec(pub Vec<ProgramSpec>);

/// A program.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// Its name.
    pub name: String,
    /// The path of its cgroup; the root if left out.
    pub cgroup: Option<String>,
    /// When it starts.
    pub start: Nanos,
    /// When it is ended, if its work is not done before.
    pub end: Option<Nanos>,
    /// Whether it is there for its load only: the score leaves it out, and a row's interleave leaves its
    /// memory where it is.
    pub background: bool,
    /// What it does.
    pub workload: WorkloadSpec,
}

/// A program as the engine knows it.
#[derive(Clone, Debug)]
pub struct ProgramPlan {
    /// Its name.
    pub name: String,
    /// The path of its cgroup.
    pub cgroup: Option<String>,
    /// When it starts, since the run's start.
    pub start_ns: u64,
    /// When it ends, if that is a time.
    pub end_ns: Option<u64>,
    /// Whether it is there for its load only.
    pub background: bool,
    /// Its regions in the plan.
    pub regions: Range<usize>,
    /// Its threads in the plan.
    pub threads: Range<usize>,
    /// Its address spaces.
    pub spaces: Range<u16>,
}

impl ProgramSpec {
    /// When it ends, if that is a time and not its work: `own_ns` is how long its workload lasts.
    fn end_ns(&self, own_ns: Option<u64>) -> Option<u64> {
        let own = own_ns.map(|ns| self.start.0 as u64 + ns);
        let end = self.end.map(|end| end.0 as u64);
        own.into_iter().chain(end).min()
    }

    /// What it asks of the machine and of time.
    pub(crate) fn check(&self, places: &Places) -> Result<(), Wrong> {
        self.workload.check(places)?;
        let most = MAX_SPAN_NS as f64;
        want(self.start.0 <= most, "start", "give 100 days at most")?;
        if let Some(end) = self.end {
            want(end.0 <= most, "end", "give 100 days at most")?;
            want(
                end.0 > self.start.0,
                "end",
                "it is before its start; give a later time since the run's start",
            )?;
        }
        let counts = self.workload.measure() != Measure::Pages;
        want(
            counts,
            "workload",
            "page-count takes no time; let it be a scenario's only workload",
        )
    }
}

impl ProgramsSpec {
    /// Threads of all programs.
    pub(super) fn threads(&self) -> u64 {
        self.0.iter().map(|one| one.workload.threads().1).sum()
    }

    /// Accesses of the programs that end when their work is done; `None` if there is none.
    pub(super) fn accesses(&self) -> Option<u128> {
        let by_work = self.0.iter().filter(|one| one.end.is_none());
        let accesses = by_work.filter_map(|one| Some(one.workload.accesses()?.1));
        accesses.reduce(|all, one| all + one)
    }

    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        let why = || format!("{} of them; give {MAX_PROGRAMS} at most", self.0.len());
        want(self.0.len() <= MAX_PROGRAMS, "program", why())?;
        let all = self.0.iter().all(|one| one.background);
        let why = "all of them are background, so nothing is measured; let one not be";
        want(self.0.is_empty() || !all, "background", why)?;
        let processes = |one: &ProgramSpec| match &one.workload {
            WorkloadSpec::Inference(spec) => u64::from(spec.processes),
            _ => 1,
        };
        let processes: u64 = self.0.iter().map(processes).sum();
        let why = format!("{processes} processes are more than {MOST_PROCESSES}; give fewer");
        want(processes <= MOST_PROCESSES, "program", why)?;
        let recorded = self.0.iter().filter(|one| one.workload.trace().is_some());
        want(
            recorded.count() <= 1,
            "program",
            "only one of them may replay a recording",
        )?;
        let threads = self.threads();
        let why = format!("{threads} threads are more than {MAX_THREADS}; give fewer");
        want(threads <= MAX_THREADS, "program", why)?;
        let accesses = self.accesses().unwrap_or(0);
        let why = format!(
            "{accesses} accesses of all threads are more than {MAX_ACCESSES}; give fewer, or an end"
        );
        want(accesses <= u128::from(MAX_ACCESSES), "program", why)?;
        self.0.iter().try_for_each(|one| one.check(places))
    }

    pub(super) fn build(
        &self,
        places: &Places,
        scale: u32,
        rows: &Arc<Vec<TraceRow>>,
    ) -> (Plan, Programs) {
        let mut plan = Plan::default();
        let mut programs = Programs::default();
        let (mut files, mut groups) = (0, 0);
        for spec in &self.0 {
            let own = spec.workload.build(places, scale, rows);
            let (own, program) = (own.plan, own.program);
            let start_ns = spec.start.0 as u64;
            let spaces = programs.plans.last().map_or(0, |last| last.spaces.end);
            let (regions, threads) = (plan.regions.len(), plan.threads.len());
            let all = own.regions.iter().map(|region| region.space);
            let all = all.chain(own.threads.iter().map(|thread| thread.space));
            let end_of_spaces = spaces + all.max().map_or(0, |last| last + 1);
            let own_files = own.regions.iter().filter_map(|region| region.file).max();
            let own_groups = own.threads.iter().map(|thread| thread.group).max();
            let mut to_make = Vec::new();
            for (nth, mut region) in own.regions.into_iter().enumerate() {
                region.name = format!("{}: {}", spec.name, region.name);
                region.space += spaces;
                region.file = region.file.map(|file| file + files);
                region.freed_at_ns = region.freed_at_ns.map(|ns| ns + start_ns);
                if start_ns > 0 && region.populated_from.take().is_some() {
                    let writes = region.writable && region.kind == Kind::Anonymous;
                    to_make.push((nth, region.pages, writes));
                }
                plan.regions.push(region);
            }
            for mut thread in own.threads {
                thread.space += spaces;
                thread.group += groups;
                plan.threads.push(thread);
            }
            files += own_files.map_or(0, |last| last + 1);
            groups += own_groups.map_or(0, |last| last + 1);
            let threads = threads..plan.threads.len();
            let n = programs.all.len() as u32;
            let own_threads = (0..).take(threads.len()).map(|own| (n, own));
            programs.of_thread.extend(own_threads);
            programs
                .of_region
                .extend((regions..plan.regions.len()).map(|_| n));
            programs.all.push(One {
                program,
                set_up: SetUp::new(to_make, threads.len()),
                start_ns,
                end_ns: spec.end_ns(own.ends_at_ns),
                first_region: regions,
            });
            programs.plans.push(ProgramPlan {
                name: spec.name.clone(),
                cgroup: spec.cgroup.clone(),
                start_ns,
                end_ns: spec.end_ns(own.ends_at_ns),
                background: spec.background,
                regions: regions..plan.regions.len(),
                threads,
                spaces: spaces..end_of_spaces,
            });
        }
        let ends = programs.all.iter().map(|one| one.end_ns);
        let ends: Option<Vec<u64>> = ends.collect();
        plan.ends_at_ns = ends.and_then(|ends| ends.into_iter().max());
        (plan, programs)
    }
}

/// The programs, running.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    plans: Vec<ProgramPlan>,
    all: Vec<One>,
    /// By thread: its program, and its number there.
    of_thread: Vec<(u32, u32)>,
    /// By region.
    of_region: Vec<u32>,
}

#[derive(Clone, Debug)]
struct One {
    program: Program,
    set_up: SetUp,
    start_ns: u64,
    end_ns: Option<u64>,
    first_region: usize,
}

impl One {
    fn runs_at(&self, now_ns: u64) -> bool {
        now_ns >= self.start_ns && self.end_ns.is_none_or(|end| now_ns < end)
    }
}

/// What a program that starts late does first: it touches its memory, page by page. Each thread has
/// an equal part of it.
#[derive(Clone, Debug)]
struct SetUp {
    /// Its program's nth region, pages, whether it is written.
    regions: Vec<(usize, u32, bool)>,
    bases: Vec<Slot>,
    /// By thread: the page of all to be touched next, and the end of its part.
    parts: Vec<(u64, u64)>,
    left: usize,
}

impl SetUp {
    fn new(regions: Vec<(usize, u32, bool)>, threads: usize) -> SetUp {
        let pages: u64 = regions.iter().map(|&(_, pages, _)| u64::from(pages)).sum();
        let threads = threads as u64;
        let part = |n: u64| (pages * n / threads, pages * (n + 1) / threads);
        let parts: Vec<(u64, u64)> = (0..threads).map(part).collect();
        SetUp {
            left: parts.iter().filter(|(from, to)| from < to).count(),
            bases: Vec::new(),
            regions,
            parts,
        }
    }

    /// The next touches of `thread`; `None` once all memory is there.
    fn fill(&mut self, thread: usize, batch: &mut [Access]) -> Option<Filled> {
        if self.left == 0 {
            return None;
        }
        let (at, end) = &mut self.parts[thread];
        if at == end {
            return Some(Filled::Thinks(LOOK_NS));
        }
        let mut count = 0;
        let mut first = 0;
        for (&(_, pages, writes), base) in self.regions.iter().zip(&self.bases) {
            let last = first + u64::from(pages);
            while count < batch.len() && (first..last.min(*end)).contains(at) {
                batch[count] = Access::new(base + (*at - first) as u32, 0, 1, writes);
                (*at, count) = (*at + 1, count + 1);
            }
            first = last;
        }
        self.left -= usize::from(at == end);
        Some(Filled::Accesses(count))
    }
}

impl Programs {
    /// Who they are, in order.
    pub fn plans(&self) -> &[ProgramPlan] {
        &self.plans
    }

    /// Whether any replays a recording.
    pub fn is_recorded(&self) -> bool {
        let recorded = |one: &One| matches!(one.program, Program::Trace(_));
        self.all.iter().any(recorded)
    }
}

impl Acts for Programs {
    fn mapped(&mut self, slots: &[Slot]) {
        for (one, plan) in self.all.iter_mut().zip(&self.plans) {
            let own = &slots[plan.regions.clone()];
            let made = one.set_up.regions.iter();
            one.set_up.bases = made.map(|&(region, ..)| own[region]).collect();
            one.program.mapped(own);
        }
    }

    fn fill(&mut self, thread: usize, now_ns: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let (program, thread) = self.of_thread[thread];
        let one = &mut self.all[program as usize];
        let Some(own_ns) = now_ns.checked_sub(one.start_ns) else {
            return Filled::Thinks(one.start_ns - now_ns);
        };
        let left_ns = one
            .end_ns
            .map_or(u64::MAX, |end| end.saturating_sub(now_ns));
        if left_ns == 0 {
            return Filled::Done;
        }
        if let Some(filled) = one.set_up.fill(thread as usize, batch) {
            return filled;
        }
        match one.program.fill(thread as usize, own_ns, rng, batch) {
            Filled::Thinks(ns) => Filled::Thinks(ns.min(left_ns)),
            filled => filled,
        }
    }

    /// Of the programs that end when their work is done: of the others the engine knows it by the time.
    fn done(&self) -> f64 {
        let by_work = self.all.iter().filter(|one| one.end_ns.is_none());
        by_work.map(|one| one.program.done()).fold(1.0, f64::min)
    }

    fn phase(&self, now_ns: u64) -> u64 {
        let phase = |one: &One| {
            let own = one.program.phase(now_ns.saturating_sub(one.start_ns));
            own.wrapping_mul(2)
                .wrapping_add(u64::from(one.runs_at(now_ns)))
        };
        let mix = |all: u64, one| {
            all.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(phase(one))
        };
        self.all.iter().fold(0, mix)
    }

    fn truth(&self, region: usize, page: u32, now_ns: u64) -> Truth {
        let one = &self.all[self.of_region[region] as usize];
        let own_ns = now_ns.saturating_sub(one.start_ns);
        let truth = one.program.truth(region - one.first_region, page, own_ns);
        Truth {
            rate: if one.runs_at(now_ns) { truth.rate } else { 0.0 },
            ..truth
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::small_machine;

    /// Two threads that access 4 MiB, 100 times each.
    const RANDOM: &str = "[random]\nthreads = 2\nnode = 0\nmemory = '4 MiB'\non = 0\nstores_percent = 0\n\
        accesses = 100\nops_per_access = 1\nthink = '0 ns'";

    fn spec(name: &str, start_ms: f64, end_ms: Option<f64>) -> ProgramSpec {
        ProgramSpec {
            name: name.to_owned(),
            cgroup: None,
            start: Nanos(start_ms * 1e6),
            end: end_ms.map(|ms| Nanos(ms * 1e6)),
            background: false,
            workload: toml::from_str(RANDOM).unwrap(),
        }
    }

    fn built(all: Vec<ProgramSpec>) -> (Plan, Programs) {
        let places = Places::new(&small_machine());
        let spec = ProgramsSpec(all);
        spec.check(&places).unwrap();
        let (plan, mut programs) = spec.build(&places, 1, &Arc::default());
        let mut first = 0;
        let slots = plan.regions.iter().map(|region| {
            first += region.pages;
            first - region.pages
        });
        programs.mapped(&slots.collect::<Vec<Slot>>());
        (plan, programs)
    }

    #[test]
    fn each_has_spaces_and_threads_of_its_own() {
        let (plan, programs) = built(vec![spec("a", 0.0, None), spec("b", 5.0, Some(9.0))]);
        let spaces: Vec<u16> = plan.threads.iter().map(|thread| thread.space).collect();
        assert_eq!(spaces, [0, 0, 1, 1]);
        let groups: Vec<u16> = plan.threads.iter().map(|thread| thread.group).collect();
        assert_eq!(groups, [0, 0, 1, 1]);
        let names: Vec<&str> = plan.regions.iter().map(|region| &*region.name).collect();
        assert_eq!(names, ["a: memory", "a: lists", "b: memory", "b: lists"]);
        // What starts late touches its memory first.
        let before: Vec<bool> = (plan.regions.iter())
            .map(|region| region.populated_from.is_some())
            .collect();
        assert_eq!(before, [true, true, false, false]);
        assert_eq!(plan.ends_at_ns, None, "a ends when its work is done");
        let b = &programs.plans()[1];
        assert_eq!((b.regions.clone(), b.threads.clone()), (2..4, 2..4));
        assert_eq!((b.start_ns, b.end_ns), (5_000_000, Some(9_000_000)));
        let (plan, _) = built(vec![spec("a", 0.0, Some(7.0)), spec("b", 5.0, Some(9.0))]);
        assert_eq!(plan.ends_at_ns, Some(9_000_000));
    }

    #[test]
    fn who_comes_late_sleeps_then_touches_all_and_then_begins() {
        let (plan, mut programs) = built(vec![spec("a", 0.0, None), spec("b", 5.0, Some(9.0))]);
        let mut rng = Rng::new(1, 1);
        let mut batch = [Access(0); 4096];
        let mut fill = |thread, now_ns: u64| {
            let filled = programs.fill(thread, now_ns, &mut rng, &mut batch);
            let count = match filled {
                Filled::Accesses(count) => count,
                _ => 0,
            };
            let slots: Vec<Slot> = batch[..count].iter().map(|access| access.slot()).collect();
            (filled, slots)
        };
        assert_eq!(fill(2, 1_000_000).0, Filled::Thinks(4_000_000));
        let (_, mut touched) = fill(2, 5_000_000);
        // Its part is done, and the other thread's is not.
        assert_eq!(fill(2, 5_000_000).0, Filled::Thinks(LOOK_NS));
        touched.extend(fill(3, 5_000_000).1);
        touched.sort_unstable();
        let of_b = plan.regions[0].pages + plan.regions[1].pages;
        let all = of_b..2 * of_b;
        assert_eq!(touched, all.collect::<Vec<Slot>>());
        let (_, work) = fill(3, 5_000_000);
        assert!(work.len() >= 100 && work.iter().all(|&slot| slot >= of_b));
        assert_eq!(fill(3, 9_000_000).0, Filled::Done);
        // The first one was never told to wait.
        assert!(matches!(fill(0, 0).0, Filled::Accesses(_)));
    }

    #[test]
    fn pages_of_who_does_not_run_have_no_rate() {
        let (_, programs) = built(vec![spec("a", 0.0, None), spec("b", 5.0, Some(9.0))]);
        let rate = |region, ms: u64| programs.truth(region, 0, ms * 1_000_000).rate;
        assert!(rate(0, 0) > 0.0 && rate(2, 6) > 0.0);
        assert_eq!((rate(2, 4), rate(2, 9)), (0.0, 0.0));
        let phases: std::collections::BTreeSet<u64> = [0, 5, 9]
            .into_iter()
            .map(|ms| programs.phase(ms * 1_000_000))
            .collect();
        assert_eq!(phases.len(), 2, "before, while b runs, and as before");
    }

    #[test]
    fn too_much_is_refused() {
        let places = Places::new(&small_machine());
        let wrong = |spec: ProgramSpec| ProgramsSpec(vec![spec]).check(&places).unwrap_err();
        assert_eq!(wrong(spec("a", 5.0, Some(5.0))).key, "end");
        assert_eq!(wrong(spec("a", 1e12, None)).key, "start");
        let most = vec![spec("a", 0.0, None); MAX_PROGRAMS + 1];
        assert_eq!(
            ProgramsSpec(most).check(&places).unwrap_err().key,
            "program"
        );
    }
}
