//! How slow the machine is just now: known work, done again and again while tests run.
//!
//! A guest's processors are threads of the host. One that waits for a real processor counts the wait
//! as its own time, and so as the time of the program that it ran: beside other programs seconds and
//! processor time of everything grow alike, and a slower machine makes them grow as well. So a promise
//! of time is judged in *quiet seconds*: seconds divided by the slowness.
//!
//! Terms. *Burst*: [`ROUNDS`] of known work on one processor, measured in its thread's own processor
//! time, so that what the guest's scheduler gives to others in the midst of it does not count.
//! *Slowness*: the mean of some bursts over [`QUIET`], the time of one on the quiet machine on which
//! the promises were measured; never less than 1, so that a faster machine has no less time, and on a
//! quiet one a quiet second is a second. *Stall*: all processors stand still for a second, now and then.
//! A burst that it fell into does not tell the pace of the half second around it, so it counts as
//! [`STALL`] medians at most; else one stall in a short stretch would excuse anything.
//!
//! There is a thread for each processor, which takes a fiftieth of it. A burst is longer than
//! a turn of the host's scheduler (3 ms): a shorter one would mostly fit into the turn that it began
//! in and never see a wait.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::procfs::online_cpus;
use super::random::SplitMix;
use super::sys::PAGE_SIZE;

/// Rounds of a burst.
const ROUNDS: usize = 250_000;
/// How long a burst takes on an undisturbed emulated processor of the machine on which the promises
/// were measured (two cores of an AMD EPYC of family 25, QEMU 7.2): the shortest of four hundred bursts.
/// What a burst does must be what programs do, and must not depend on where the compiler put it: a
/// loop of arithmetic took 15 ms, or 39 ms where it lay across the end of a page, because the emulator
/// looks up each jump to another page. So each round goes where nobody knows, as calls of programs do.
const QUIET: Duration = Duration::from_micros(8_700);
/// From one burst of a processor to the next.
const EVERY: Duration = Duration::from_millis(500);
/// So many bursts from before a stretch count with it: two seconds of two processors.
const BEFORE: usize = 8;
/// A burst of more than so many medians counts as that many.
const STALL: u32 = 4;
/// Words that a burst touches.
const WORDS: usize = 64 * PAGE_SIZE / 8;

/// All bursts so far, in the order of their ends.
static BURSTS: Mutex<Vec<Duration>> = Mutex::new(Vec::new());

fn bursts() -> std::sync::MutexGuard<'static, Vec<Duration>> {
    BURSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the threads, which go on until the process ends.
///
/// # Errors
/// When the kernel does not tell its processors.
pub fn start() -> Result<()> {
    for cpu in online_cpus()? {
        std::thread::spawn(move || {
            let mut set = CpuSet::new();
            set.set(cpu as usize);
            // One that cannot be pinned measures where it runs.
            let _ = sched_setaffinity(None, &set);
            let mut memory = vec![0; WORDS];
            loop {
                let began = Instant::now();
                let spent = burst(&mut memory);
                bursts().push(spent);
                std::thread::sleep(EVERY.saturating_sub(began.elapsed()));
            }
        });
    }
    Ok(())
}

/// The processor time of this thread for known work: calls, arithmetic, and words of pages that fit a TLB.
fn burst(memory: &mut [u64]) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
    };
    let began = now();
    let mut state = 1;
    for _ in 0..ROUNDS {
        state = STEPS[(state >> 60) as usize](state);
        let at = state as usize % WORDS;
        memory[at] = memory[at].wrapping_add(1);
    }
    std::hint::black_box(&mut *memory);
    now().saturating_sub(began)
}

/// Where a round may go. Which one is next depends on what the last one made of its number, so that
/// no compiler and no emulator knows.
const STEPS: [fn(u64) -> u64; 16] = [
    step::<1>, step::<2>, step::<3>, step::<4>, step::<5>, step::<6>, step::<7>, step::<8>,
    step::<9>, step::<10>, step::<11>, step::<12>, step::<13>, step::<14>, step::<15>, step::<16>,
];

#[inline(never)]
fn step<const N: u32>(state: u64) -> u64 {
    SplitMix::new(state.rotate_left(N)).draw()
}

/// A time that began, and how slow the machine was since.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    began: Instant,
    /// Its first burst.
    first: usize,
}

impl Stretch {
    /// Begins now; the last bursts before count as well.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            began: Instant::now(),
            first: bursts().len().saturating_sub(BEFORE),
        }
    }

    /// How many times as long everything took as on a quiet machine; 1 where nothing was measured.
    #[must_use]
    pub fn slowness(&self) -> f64 {
        slowness(&bursts()[self.first..])
    }

    /// Since its beginning.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// What a quiet machine would have taken for the same.
    #[must_use]
    pub fn quiet(&self) -> Duration {
        self.elapsed().div_f64(self.slowness())
    }

    /// Whether quiet time of `limit` is over.
    #[must_use]
    pub fn is_over(&self, limit: Duration) -> bool {
        // The list of bursts is looked at only when it can matter.
        self.elapsed() > limit && self.quiet() > limit
    }
}

/// Sleeps until quiet time of `time` is over.
pub fn sleep(time: Duration) {
    let stretch = Stretch::begin();
    while !stretch.is_over(time) {
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn slowness(bursts: &[Duration]) -> f64 {
    let mut sorted = bursts.to_vec();
    sorted.sort_unstable();
    let Some(median) = sorted.get(sorted.len() / 2) else {
        return 1.0;
    };
    let most = *median * STALL;
    let sum: Duration = sorted.iter().map(|burst| *burst.min(&most)).sum();
    let mean = sum.as_secs_f64() / sorted.len() as f64;
    (mean / QUIET.as_secs_f64()).max(1.0)
}

/// How long to measure.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Options {
    /// Seconds
    #[arg(long, default_value_t = 20)]
    pub seconds: u64,
}

/// Measures for a while and prints how long bursts took, in microseconds: what [`QUIET`] is on this
/// machine.
///
/// # Errors
/// As [`start`].
pub fn main(options: Options) -> Result<()> {
    start()?;
    let stretch = Stretch::begin();
    std::thread::sleep(Duration::from_secs(options.seconds));
    let mut all: Vec<u128> = bursts().iter().map(Duration::as_micros).collect();
    all.sort_unstable();
    let share = |percent: usize| all.get(all.len() * percent / 100).copied().unwrap_or(0);
    println!(
        "{} bursts; least {}, a quarter {}, half {}, three quarters {}, mean {} us; slowness {:.2}",
        all.len(),
        share(0),
        share(25),
        share(50),
        share(75),
        all.iter().sum::<u128>() / all.len().max(1) as u128,
        stretch.slowness()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts of twice and four times the quiet time are three times on the average.
    #[test]
    fn slowness_is_the_mean_and_never_less_than_one() {
        assert!((slowness(&[QUIET * 2, QUIET * 4]) - 3.0).abs() < 1e-9);
        assert!((slowness(&[QUIET]) - 1.0).abs() < 1e-9);
        assert!((slowness(&[QUIET / 2]) - 1.0).abs() < 1e-9);
        assert!((slowness(&[]) - 1.0).abs() < 1e-9);
    }

    /// Of ten bursts one takes a second: nine and four quiet times, 13 in 10.
    #[test]
    fn a_stall_excuses_little() {
        let mut bursts = [QUIET; 10];
        bursts[3] = Duration::from_secs(1);
        assert!((slowness(&bursts) - 1.3).abs() < 1e-9);
    }

    #[test]
    fn a_burst_takes_processor_time() {
        let mut memory = vec![0; WORDS];
        assert!(burst(&mut memory) > Duration::ZERO);
        assert_eq!(memory.iter().sum::<u64>(), ROUNDS as u64);
    }

    #[test]
    fn measuring_takes_little() {
        assert!(QUIET * 40 <= EVERY);
    }
}
