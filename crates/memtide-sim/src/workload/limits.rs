//! How large a workload may be. Beyond these figures a run would not end, or its arithmetic would not
//! hold; each is far beyond what a machine that can be described here would do.

use super::{WorkloadSpec, Wrong, want};
use crate::units::Nanos;

/// Most threads of a workload.
pub const MAX_THREADS: u64 = 1 << 16;
/// Most accesses of all its threads together: at a million of them a second, thirty years.
pub const MAX_ACCESSES: u64 = 1_000_000_000_000_000;
/// Longest time that a run may be told to last, or a recording may: 100 days. The clock is a 64-bit
/// number of picoseconds, which ends after 213.
pub const MAX_SPAN_NS: u64 = 100 * 86_400 * 1_000_000_000;
/// Most misses that a thread has under way at once: more than any core's buffers for them.
pub const MAX_MISSES: f64 = 256.0;
/// Largest S of a machine at scale 1/S.
pub(super) const MAX_SCALE: u32 = 1 << 16;
/// Longest time between two accesses of a thread.
pub const MAX_THINK: Nanos = Nanos(1e9);

impl WorkloadSpec {
    /// Threads, with the key that says how many.
    pub(super) fn threads(&self) -> (&'static str, u64) {
        let (key, threads) = match self {
            WorkloadSpec::Random(spec) => ("threads", spec.threads),
            WorkloadSpec::Regions(_) | WorkloadSpec::PageCount(_) | WorkloadSpec::Trace(_) => {
                ("threads", 1)
            }
            WorkloadSpec::TwoSet(spec) => ("threads_per_set", spec.threads_per_set),
            WorkloadSpec::Sockets(spec) => ("threads", spec.threads),
            WorkloadSpec::Pmbench(spec) => ("processes", spec.processes),
            WorkloadSpec::Stream(spec) => ("threads", spec.threads),
            WorkloadSpec::Mlc(spec) => ("threads", spec.threads),
            WorkloadSpec::Xsbench(spec) => ("threads", spec.threads),
            WorkloadSpec::Zipf(spec) => ("threads", spec.threads),
            WorkloadSpec::Phases(spec) => ("threads", spec.threads),
            WorkloadSpec::ScanOverHot(spec) => ("threads", spec.threads),
            WorkloadSpec::PointerChase(spec) => ("threads", spec.threads),
            WorkloadSpec::HotSet(spec) => ("threads", spec.threads),
            WorkloadSpec::Gups(spec) => ("threads", spec.threads),
            WorkloadSpec::Ranges(spec) => ("threads", spec.threads),
            WorkloadSpec::Inference(spec) => {
                let all = u64::from(spec.threads) * u64::from(spec.processes);
                return ("threads", all);
            }
            WorkloadSpec::Programs(spec) => return ("program", spec.threads()),
        };
        (key, u64::from(threads))
    }

    /// Accesses of all threads, with the key that says how many; `None` where a time ends the run or the
    /// memory's size decides.
    #[must_use]
    pub fn accesses(&self) -> Option<(&'static str, u128)> {
        let each =
            |key, threads: u32, each: u64| Some((key, u128::from(threads) * u128::from(each)));
        match self {
            WorkloadSpec::Random(spec) => each("accesses", spec.threads, spec.accesses),
            WorkloadSpec::Regions(spec) => each(
                "accesses_per_region",
                spec.regions,
                spec.accesses_per_region,
            ),
            WorkloadSpec::TwoSet(spec) => {
                let pages = spec.memory_per_set.0 / 4096;
                let (key, sets) = each("iterations", spec.threads_per_set, pages)?;
                Some((key, 2 * sets * u128::from(spec.iterations)))
            }
            WorkloadSpec::Sockets(spec) => each("accesses", spec.threads, spec.accesses),
            WorkloadSpec::Zipf(spec) => each("accesses", spec.threads, spec.accesses),
            WorkloadSpec::Phases(spec) => {
                let (key, phase) =
                    each("accesses_per_phase", spec.threads, spec.accesses_per_phase)?;
                Some((key, phase * u128::from(spec.phases)))
            }
            WorkloadSpec::ScanOverHot(spec) => each("accesses", spec.threads, spec.accesses),
            WorkloadSpec::PointerChase(spec) => each("accesses", spec.threads, spec.accesses),
            WorkloadSpec::Xsbench(spec) => Some(("lookups", u128::from(spec.lookups) * 65)),
            WorkloadSpec::Programs(spec) => Some(("program", spec.accesses()?)),
            WorkloadSpec::Pmbench(_)
            | WorkloadSpec::Stream(_)
            | WorkloadSpec::Mlc(_)
            | WorkloadSpec::PageCount(_)
            | WorkloadSpec::HotSet(_)
            | WorkloadSpec::Gups(_)
            | WorkloadSpec::Ranges(_)
            | WorkloadSpec::Inference(_)
            | WorkloadSpec::Trace(_) => None,
        }
    }

    /// Time between accesses.
    fn think(&self) -> Nanos {
        match self {
            WorkloadSpec::Random(spec) => spec.think,
            WorkloadSpec::Regions(spec) => spec.think,
            WorkloadSpec::TwoSet(spec) => spec.think,
            WorkloadSpec::Sockets(spec) => spec.think,
            WorkloadSpec::Pmbench(spec) => spec.think,
            WorkloadSpec::Xsbench(spec) => spec.think,
            WorkloadSpec::Zipf(spec) => spec.think,
            WorkloadSpec::Phases(spec) => spec.think,
            WorkloadSpec::ScanOverHot(spec) => spec.think,
            WorkloadSpec::PointerChase(spec) => spec.think,
            WorkloadSpec::HotSet(spec) => spec.think,
            WorkloadSpec::Gups(spec) => spec.think,
            WorkloadSpec::Ranges(spec) => spec.think,
            WorkloadSpec::Inference(spec) => spec.think,
            WorkloadSpec::Trace(spec) => spec.think,
            // Each program's is checked by itself.
            WorkloadSpec::Stream(_)
            | WorkloadSpec::Mlc(_)
            | WorkloadSpec::PageCount(_)
            | WorkloadSpec::Programs(_) => Nanos(0.0),
        }
    }

    /// Misses that a thread has under way at once, where the workload says so.
    pub(super) fn misses_at_once(&self) -> Option<f64> {
        match self {
            WorkloadSpec::Random(spec) => spec.misses_at_once,
            WorkloadSpec::Regions(spec) => spec.misses_at_once,
            WorkloadSpec::TwoSet(spec) => spec.misses_at_once,
            WorkloadSpec::Sockets(spec) => spec.misses_at_once,
            WorkloadSpec::Pmbench(spec) => spec.misses_at_once,
            WorkloadSpec::Stream(spec) => spec.misses_at_once,
            WorkloadSpec::Mlc(spec) => spec.misses_at_once,
            WorkloadSpec::Xsbench(spec) => spec.misses_at_once,
            WorkloadSpec::Zipf(spec) => spec.misses_at_once,
            WorkloadSpec::Phases(spec) => spec.misses_at_once,
            WorkloadSpec::ScanOverHot(spec) => spec.misses_at_once,
            WorkloadSpec::PointerChase(spec) => spec.misses_at_once,
            WorkloadSpec::HotSet(spec) => spec.misses_at_once,
            WorkloadSpec::Gups(spec) => spec.misses_at_once,
            WorkloadSpec::Ranges(spec) => spec.misses_at_once,
            WorkloadSpec::Inference(spec) => spec.misses_at_once,
            WorkloadSpec::Trace(spec) => spec.misses_at_once,
            // Each program's is its own.
            WorkloadSpec::PageCount(_) | WorkloadSpec::Programs(_) => None,
        }
    }

    /// That it is within them.
    pub(super) fn within_limits(&self) -> Result<(), Wrong> {
        let (key, threads) = self.threads();
        let why = format!("{threads} threads are more than {MAX_THREADS}; give fewer");
        want(threads <= MAX_THREADS, key, why)?;
        if let Some((key, accesses)) = self.accesses() {
            let why = format!(
                "{accesses} accesses of all threads are more than {MAX_ACCESSES}; give fewer"
            );
            want(accesses <= u128::from(MAX_ACCESSES), key, why)?;
        }
        let think = self.think().0;
        let why = format!("{} s between two accesses; give 1 s at most", think / 1e9);
        want(think <= MAX_THINK.0, "think", why)?;
        let misses = self.misses_at_once().unwrap_or(1.0);
        let why = format!("{misses} misses at once; give 1 to {MAX_MISSES}");
        want((1.0..=MAX_MISSES).contains(&misses), "misses_at_once", why)?;
        let (key, span) = match self {
            WorkloadSpec::Pmbench(spec) => ("until", spec.until.0),
            WorkloadSpec::Mlc(spec) => ("until", spec.until.0),
            WorkloadSpec::HotSet(spec) => ("time", spec.time.0),
            WorkloadSpec::Gups(spec) => ("time", spec.time.0),
            WorkloadSpec::Ranges(spec) => ("time", spec.time.0),
            _ => ("until", 0.0),
        };
        want(span <= MAX_SPAN_NS as f64, key, "give 100 days at most")
    }
}
