//! Hardware that samples, as a source of a world.
//!
//! The engine's samplers take one of so many operations that miss the last-level
//! cache, on every CPU, and disturb whoever runs there. What they took in a
//! quantum is here at its end; what belongs to nobody who is observed is dropped.

use super::machine::Machine;
use memtide_core::access;
use memtide_loop::world::{Abilities, ProcessId, Sample, SourceId, SourceInfo, SourceStatus};

/// Operations between samples at first.
const PERIOD: u32 = 100_000;
/// Samples a second of a CPU that are wanted.
const WANTED: u64 = 1000;
/// The bounds of a period, and of what changes at once.
const PERIODS: (u64, u64) = (1_000, 100_000_000);
const MOST_CHANGE: u64 = 8;

/// The samplers of all CPUs.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    id: SourceId,
    name: &'static str,
    period: u32,
    pids: Vec<u32>,
    came: u64,
}

impl Sampler {
    pub(super) fn new(id: SourceId, name: &'static str) -> Sampler {
        Sampler {
            id,
            name,
            period: PERIOD,
            pids: Vec::new(),
            came: 0,
        }
    }

    pub(super) fn info(&self) -> SourceInfo {
        SourceInfo {
            name: self.name.to_owned(),
            kind: access::Source::Hardware,
            abilities: Abilities {
                samples: true,
                ..Abilities::default()
            },
        }
    }

    pub(super) fn status(&self) -> SourceStatus {
        SourceStatus {
            period: Some(self.period.into()),
            ..SourceStatus::default()
        }
    }

    pub(super) fn sample(&mut self, machine: &mut dyn Machine, processes: &[ProcessId]) {
        self.pids = processes.iter().map(|process| process.pid).collect();
        self.pids.sort_unstable();
        let on = !self.pids.is_empty();
        machine.set_sampling(if on { self.period } else { 0 });
    }

    pub(super) fn take(&mut self, machine: &mut dyn Machine, into: &mut Vec<Sample>) {
        if self.pids.is_empty() {
            return;
        }
        let before = into.len();
        machine.take_samples(&mut |sample| {
            if self.pids.binary_search(&sample.pid).is_ok() {
                into.push(Sample {
                    source: self.id,
                    ..sample
                });
            }
        });
        self.came += (into.len() - before) as u64 * machine.scale();
    }

    /// Goes where the wanted number would have come.
    pub(super) fn adapt(&mut self, machine: &mut dyn Machine, elapsed_ms: u64, percent: u32) {
        let cpus = machine.topology().nodes().iter();
        let cpus: usize = cpus.map(|node| node.cpus.len()).sum();
        let wanted = WANTED * cpus as u64 * u64::from(percent) / 100 * elapsed_ms / 1000;
        let came = std::mem::take(&mut self.came);
        if wanted == 0 || (came * 4 >= wanted * 3 && came * 4 <= wanted * 5) {
            return;
        }
        let period = u64::from(self.period);
        let right = (period * came / wanted)
            .clamp(period / MOST_CHANGE, period * MOST_CHANGE)
            .clamp(PERIODS.0, PERIODS.1);
        self.period = right as u32;
        if !self.pids.is_empty() {
            machine.set_sampling(self.period);
        }
    }
}
