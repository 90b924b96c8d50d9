//! Hardware that samples, as a source of a world.
//!
//! The engine's samplers take one of so many operations that miss the last-level
//! cache, on every CPU, and disturb whoever runs there. What they took in a
//! quantum is here at its end; what belongs to nobody who is observed is dropped.
//! A quantum in which some were lost, or a sampler was throttled, is withheld and told
//! of as invalid. The period follows the rule that the live source has, which is the
//! core's. Each sample has cost its interrupt, whoever was sampled.

use super::machine::{Machine, Missing};
use memtide_core::access;
use memtide_core::balancing::sample_rate::{Came as Rate, next_period};
use memtide_loop::world::{
    Abilities, Came, Invalid, ProcessId, Sample, SourceId, SourceInfo, SourceStatus,
};

/// Operations between samples at first.
const PERIOD: u64 = 100_000;
/// The bounds of a period.
const PERIODS: (u64, u64) = (1_000, 100_000_000);
/// Nothing came yet.
const NOTHING: Rate = Rate {
    samples: 0,
    wanted: 0,
    invalid: false,
};

/// The samplers of all CPUs.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    id: SourceId,
    name: &'static str,
    /// Samples a second of a CPU that are wanted.
    per_cpu_second: u32,
    period: u64,
    pids: Vec<u32>,
    came: Rate,
    lost: u64,
    /// Samples that were taken, and what their interrupts cost.
    records: u64,
    interrupts_ns: u64,
    /// Those that were handed over, and what reading one costs.
    told: u64,
    report_ns: u64,
}

impl Sampler {
    pub(super) fn new(
        id: SourceId,
        name: &'static str,
        per_cpu_second: u32,
        report_ns: u64,
    ) -> Sampler {
        Sampler {
            id,
            name,
            per_cpu_second,
            period: PERIOD,
            pids: Vec::new(),
            came: NOTHING,
            lost: 0,
            records: 0,
            interrupts_ns: 0,
            told: 0,
            report_ns,
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
            period: Some(self.period),
            lost: self.lost,
            kernel_cpu_ns: self.interrupts_ns,
            records: self.records,
            own_cpu_ns: self.told * self.report_ns,
        }
    }

    pub(super) fn sample(&mut self, machine: &mut dyn Machine, processes: &[ProcessId]) {
        self.pids = processes.iter().map(|process| process.pid).collect();
        self.pids.sort_unstable();
        self.set(machine);
    }

    pub(super) fn take(&mut self, machine: &mut dyn Machine, into: &mut Came) {
        if self.pids.is_empty() {
            return;
        }
        let before = into.samples.len();
        let mut taken = 0;
        let missing = machine.take_samples(&mut |sample| {
            taken += 1;
            if self.pids.binary_search(&sample.pid).is_ok() {
                into.samples.push(Sample {
                    source: self.id,
                    ..sample
                });
            }
        });
        let scale = machine.scale();
        let own = (into.samples.len() - before) as u64 * scale;
        self.came.samples += own;
        let records = (taken + missing.lost) * scale;
        self.records += records;
        self.interrupts_ns += records * machine.sample_ns();
        if missing == Missing::default() {
            self.told += own;
        } else {
            let lost = missing.lost * scale;
            into.samples.truncate(before);
            self.lost += lost;
            self.came.invalid = true;
            into.invalid.push(Invalid {
                source: self.id,
                lost,
                throttled: missing.throttled,
            });
        }
    }

    /// Goes where the wanted number would have come.
    pub(super) fn adapt(&mut self, machine: &mut dyn Machine, elapsed_ms: u64, percent: u32) {
        let cpus = machine.topology().nodes().iter();
        let cpus: usize = cpus.map(|node| node.cpus.len()).sum();
        let each = u64::from(self.per_cpu_second) * u64::from(percent) / 100;
        let came = Rate {
            wanted: each * cpus as u64 * elapsed_ms / 1000,
            ..std::mem::replace(&mut self.came, NOTHING)
        };
        let (fewest, most) = PERIODS;
        let next = next_period(self.period, came, fewest, most);
        if next != self.period {
            self.period = next;
            self.set(machine);
        }
    }

    fn set(&self, machine: &mut dyn Machine) {
        let on = !self.pids.is_empty();
        machine.set_sampling(if on { self.period as u32 } else { 0 });
    }
}
