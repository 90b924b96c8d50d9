//! One turn of a measurement: threads load a node for a while, and perhaps one
//! more follows a chain through it.
//!
//! Problem. Threads do not begin or end at the same time, so neither beginning
//! nor end may count.
//!
//! Approach. A turn has phases. All threads run when the *counting* begins, and
//! all still run when it ends; each notes by itself what it had done at either
//! moment. Less load than the most is made by pacing: a thread that is ahead of
//! its rate waits.
//!
//! Others may want the same processors. A thread that is made to wait carries
//! less, and that is what it carries; but the chain's latency is taken in the
//! thread's own processor time, so that waiting for a processor is not mistaken
//! for waiting for memory. How much of its time the least favoured thread got is
//! part of what is found.

use crate::measure::{MeasureError, chain};
use crate::sys::node_memory::{LINE_BYTES, Line, NodeMemory};
use crate::sys::traffic;
use memtide_core::mempolicy::measured::Mix;
use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Lines that a thread goes through between two looks at the clock. Longer
/// where there is no rate to keep: at its end, stores are waited for.
const PACED_LINES: usize = 128;
const FREE_LINES: usize = 1024;

/// Steps between two counts.
const STEPS: usize = 256;

/// How far a thread may fall behind its rate and catch up, in chunks.
const CATCH_UP: u32 = 16;

/// A thread that loads the node.
#[derive(Debug)]
pub struct Loader<'a> {
    /// Where it runs.
    pub cpu: u32,
    /// What it reads and writes.
    pub memory: &'a mut NodeMemory,
}

/// A thread that follows a chain.
#[derive(Clone, Copy, Debug)]
pub struct Chaser<'a> {
    /// Where it runs.
    pub cpu: u32,
    /// The chain, linked.
    pub memory: &'a NodeMemory,
}

/// What a turn found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// What all loaders carried together, in bytes a nanosecond (GB/s).
    pub bytes_a_ns: f64,
    /// A step of the chain, if there was a chaser.
    pub step_ns: Option<f64>,
    /// How much of its time the least favoured thread had its processor, 0 to 1.
    pub cpu_share: f64,
}

/// What a turn is at.
const WARM_UP: u8 = 0;
const COUNTING: u8 = 1;
const END: u8 = 2;

/// What all threads of a turn share.
struct Shared {
    begin: Barrier,
    phase: AtomicU8,
}

impl Shared {
    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Relaxed)
    }
}

/// What a thread did while its turn was counting.
#[derive(Clone, Copy, Debug)]
struct Counted {
    done: u64,
    wall_ns: f64,
    cpu_ns: f64,
}

/// A thread's count of what it does.
struct Meter<'a> {
    shared: &'a Shared,
    phase: u8,
    /// What was done, and the clocks, when counting began.
    began: (u64, Instant, f64),
}

impl Meter<'_> {
    fn new(shared: &Shared) -> Meter<'_> {
        Meter {
            shared,
            phase: WARM_UP,
            began: (0, Instant::now(), cpu_ns()),
        }
    }

    /// Takes note that `done` is done by now; what was counted, at the end.
    fn note(&mut self, done: u64) -> Option<Counted> {
        let phase = self.shared.phase();
        if phase == self.phase {
            return None;
        }
        self.phase = phase;
        if phase == COUNTING {
            self.began = (done, Instant::now(), cpu_ns());
            return None;
        }
        let (before, began, cpu_began) = self.began;
        Some(Counted {
            done: done - before,
            wall_ns: began.elapsed().as_nanos() as f64,
            cpu_ns: cpu_ns() - cpu_began,
        })
    }
}

/// This thread's processor time.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Lets all threads run for `time` and a fifth of it before. `rate` is what
/// all loaders together should carry in bytes a nanosecond, as much as they
/// can if `None`.
///
/// # Errors
///
/// [`MeasureError::Pin`] if a thread may not run where it should.
pub fn run(
    mix: Mix,
    loaders: Vec<Loader<'_>>,
    chaser: Option<Chaser<'_>>,
    rate: Option<f64>,
    time: Duration,
) -> Result<Found, MeasureError> {
    let threads = loaders.len() + usize::from(chaser.is_some());
    let shared = &Shared {
        begin: Barrier::new(threads + 1),
        phase: AtomicU8::new(WARM_UP),
    };
    let rate = rate.map(|rate| rate / loaders.len() as f64);
    std::thread::scope(|scope| {
        let load = |loader: Loader| {
            let lines = loader.memory.lines_mut();
            pinned(loader.cpu, shared, || load(lines, mix, rate, shared))
        };
        let follow = |chaser: Chaser| {
            let lines = chaser.memory.lines();
            pinned(chaser.cpu, shared, || chase(lines, shared))
        };
        let loaders = loaders.into_iter();
        let running: Vec<_> = loaders
            .map(|loader| scope.spawn(move || load(loader)))
            .collect();
        let chaser = chaser.map(|chaser| scope.spawn(move || follow(chaser)));
        shared.begin.wait();
        std::thread::sleep(time / 5);
        shared.phase.store(COUNTING, Ordering::Relaxed);
        std::thread::sleep(time);
        shared.phase.store(END, Ordering::Relaxed);
        let loads = running.into_iter().map(joined);
        let loads: Vec<Counted> = loads.collect::<Result<_, _>>()?;
        let steps = chaser.map(joined).transpose()?;
        Ok(found(&loads, steps))
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn found(loads: &[Counted], steps: Option<Counted>) -> Found {
    let rate = |load: &Counted| load.done as f64 / load.wall_ns.max(1.0);
    let share = |counted: &Counted| counted.cpu_ns / counted.wall_ns.max(1.0);
    let shares = loads.iter().chain(&steps).map(share);
    Found {
        bytes_a_ns: loads.iter().map(rate).sum(),
        // A chain without a step in all that time has the longest latency.
        step_ns: steps.map(|steps| steps.cpu_ns / steps.done.max(1) as f64),
        cpu_share: shares.fold(1.0, f64::min),
    }
}

/// Runs `work` on `cpu`, with all the others.
fn pinned(
    cpu: u32,
    shared: &Shared,
    work: impl FnOnce() -> Counted,
) -> Result<Counted, MeasureError> {
    let mut set = CpuSet::new();
    let known = (cpu as usize) < CpuSet::MAX_CPU;
    if known {
        set.set(cpu as usize);
    }
    let pinned = rustix::thread::sched_setaffinity(None, &set);
    // Also if that failed: the others wait for us.
    shared.begin.wait();
    pinned.map_err(|cause| MeasureError::Pin { cpu, cause })?;
    Ok(work())
}

fn load(lines: &mut [Line], mix: Mix, rate: Option<f64>, shared: &Shared) -> Counted {
    let streams = match mix {
        Mix::Read | Mix::Write => 1,
        Mix::OneToOne => 2,
        Mix::TwoToOne => 3,
    };
    let length = lines.len() / streams;
    let chunk = rate.map_or(FREE_LINES, |_| PACED_LINES).min(length);
    let bytes = (chunk * streams * LINE_BYTES) as u64;
    let step = rate.map(|rate| Duration::from_nanos((bytes as f64 / rate) as u64));
    let (first, rest) = lines.split_at_mut(length);
    let (second, third) = rest.split_at_mut(rest.len().min(length));
    let mut due = Instant::now();
    let (mut at, mut done) = (0, 0);
    let mut meter = Meter::new(shared);
    loop {
        let here = at..at + chunk;
        match mix {
            Mix::Read => traffic::read(&first[here]),
            Mix::Write => traffic::write(&mut first[here]),
            Mix::OneToOne => traffic::copy(&first[here.clone()], &mut second[here]),
            Mix::TwoToOne => {
                let (one, other) = (&first[here.clone()], &second[here.clone()]);
                traffic::merge(one, other, &mut third[here]);
            }
        }
        at += chunk;
        if at + chunk > length {
            at = 0;
        }
        done += bytes;
        if let Some(step) = step {
            due = wait(due, step, shared);
        }
        if let Some(counted) = meter.note(done) {
            return counted;
        }
    }
}

/// Waits until the next chunk is due; when the one after it is.
fn wait(due: Instant, step: Duration, shared: &Shared) -> Instant {
    let due = due + step;
    let mut now = Instant::now();
    while now < due && shared.phase() != END {
        std::hint::spin_loop();
        now = Instant::now();
    }
    due.max(now.checked_sub(step * CATCH_UP).unwrap_or(due))
}

fn chase(lines: &[Line], shared: &Shared) -> Counted {
    let (mut at, mut done) = (0, 0);
    let mut meter = Meter::new(shared);
    loop {
        at = black_box(chain::follow(lines, at, STEPS));
        done += STEPS as u64;
        if let Some(counted) = meter.note(done) {
            return counted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::units::NodeId;

    fn memory(bytes: usize) -> NodeMemory {
        let allowed = crate::sys::mempolicy::get_allowed().unwrap();
        let word = allowed.iter().position(|word| *word != 0).unwrap();
        let node = word as u16 * 64 + allowed[word].trailing_zeros() as u16;
        NodeMemory::map(bytes, NodeId(node)).unwrap()
    }

    fn own_cpu() -> u32 {
        let set = rustix::thread::sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu)).unwrap() as u32
    }

    #[test]
    fn every_mix_carries_and_the_chain_goes_on() {
        let cpu = own_cpu();
        let mut stream = memory(2 << 20);
        let mut chained = memory(2 << 20);
        chain::link(chained.lines_mut());
        for mix in Mix::ALL {
            let loader = Loader {
                cpu,
                memory: &mut stream,
            };
            let chaser = Chaser {
                cpu,
                memory: &chained,
            };
            let time = Duration::from_millis(20);
            let found = run(mix, vec![loader], Some(chaser), None, time).unwrap();
            assert!(found.bytes_a_ns >= 0.0, "{mix:?}: {found:?}");
            assert!(found.step_ns.unwrap() > 0.0, "{mix:?}: {found:?}");
        }
    }

    #[test]
    fn a_rate_is_not_exceeded() {
        let mut stream = memory(2 << 20);
        let loader = Loader {
            cpu: own_cpu(),
            memory: &mut stream,
        };
        // 10 MB/s, which any machine can do; a chunk takes 0.8 ms.
        let time = Duration::from_secs(1);
        let found = run(Mix::Read, vec![loader], None, Some(0.01), time).unwrap();
        // Catching up may add 16 chunks of 8 KiB to the 10 MB, or to less for a thread that waited for a
        // processor as counting began.
        assert!(found.bytes_a_ns < 0.0125, "{found:?}");
        assert_eq!(found.step_ns, None);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error_and_no_hang() {
        for cpu in [1023, 5000] {
            let mut stream = memory(2 << 20);
            let loader = Loader {
                cpu,
                memory: &mut stream,
            };
            let time = Duration::from_millis(1);
            let error = run(Mix::Read, vec![loader], None, None, time).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("CPU {cpu}: ")),
                "{error}"
            );
        }
    }
}
