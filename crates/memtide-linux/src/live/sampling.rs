//! What tells of accesses, and of who made them.
//!
//! Balancing needs more of a source than tiering does: not only that a page is
//! used but by which thread, on which CPU. What offers that
//! ([`crate::source::samples`]), from the best down:
//!
//! - *ibs*, *pebs*: the processor samples loads and stores. Reads and writes, all
//!   kinds of memory, nothing to provoke.
//! - *hint faults*: where `kernel.numa_balancing` has its bit 0, the kernel takes
//!   pages away from under processes and perf tells who came for them. Reads
//!   and writes of anonymous memory, as often as the kernel scans. The kernel
//!   moves pages, too; what it moved is where it is found.
//! - *write faults*: neither hardware nor scans; see
//!   [`crate::source::write_faults`]. Writes only, and only if asked for.
//!
//! DAMON and the page-table scan are not here: they see pages and not threads.
//! Nor is a guess from where a process's threads run: two sets of threads in
//! one process are what balancing is about.

use crate::fs::proc::Process;
use crate::fs::{FsError, Root};
use crate::source::hint_faults::{HintFaults, HintFaultsError};
use crate::source::samples::{Kind, Options, SampleError, SampleSource, Scope, Window};
use crate::source::write_faults::{self, WriteFaultsError};
use memtide_core::units::Millis;
use memtide_loop::world::{Sample, SourceId};
use memtide_loop::write_rounds::{Rounds, WriteFaultRate};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Why there is nothing to hear.
#[derive(Debug, thiserror::Error)]
pub enum SamplingError {
    /// The samples.
    #[error(transparent)]
    Samples(#[from] SampleError),
    /// The kernel does not scan.
    #[error(transparent)]
    HintFaults(#[from] HintFaultsError),
    /// The kernel scans slow tiers only.
    #[error(
        "{}: bit 0 is not set: the kernel makes no hint faults between sockets",
        .0.display()
    )]
    TieringOnly(std::path::PathBuf),
    /// Write faults.
    #[error(transparent)]
    WriteFaults(#[from] WriteFaultsError),
    /// The kernel's files.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Waiting failed.
    #[error("cannot wait for samples: {0}")]
    Wait(#[from] io::Error),
}

/// What the kernel spends on a sample of hardware, in ns: its interrupt and the record.
/// *Memory access profiler(IBS) driven NUMA balancing* measured 1.1 to 1.3 us on its
/// machines. Here it cannot be measured: the time is that of whoever ran on the CPU.
const INTERRUPT_NS: u64 = 1_260;

/// A source of accesses with their threads.
#[derive(Debug)]
pub struct Sampling {
    name: &'static str,
    root: Root,
    source: SampleSource,
    provoked: Option<Provoked>,
    /// Samples that the kernel took, lost ones included.
    records: u64,
}

/// Who is made to fault, and when.
#[derive(Debug)]
struct Provoked {
    rate: WriteFaultRate,
    rounds: BTreeMap<u32, (Process, Rounds)>,
    /// Processes that are too large, by pid, to be told of.
    left_out: Vec<(u32, u64)>,
}

impl Sampling {
    /// Hardware that samples, of this kind. Nobody is listened to yet.
    ///
    /// # Errors
    ///
    /// Why it cannot be had.
    pub fn hardware(kind: Kind, options: &Options) -> Result<Sampling, SamplingError> {
        Sampling::open(kind.name(), kind, options)
    }

    /// The hint faults of the kernel's own scans.
    ///
    /// # Errors
    ///
    /// Why there are none.
    pub fn hint_faults(options: &Options) -> Result<Sampling, SamplingError> {
        let mode = HintFaults::available(&options.root.path("/"))?;
        if !mode.normal {
            let setting = options.root.path("proc/sys/kernel/numa_balancing");
            return Err(SamplingError::TieringOnly(setting));
        }
        Sampling::open("hint faults", Kind::Faults, options)
    }

    /// Faults that are provoked, if a write of our own is heard.
    ///
    /// # Errors
    ///
    /// Why they cannot be.
    pub fn write_faults(
        options: &Options,
        rate: WriteFaultRate,
    ) -> Result<Sampling, SamplingError> {
        write_faults::prove(&options.root)?;
        let mut sampling = Sampling::open("write faults", Kind::Faults, options)?;
        sampling.provoked = Some(Provoked {
            rate,
            rounds: BTreeMap::new(),
            left_out: Vec::new(),
        });
        Ok(sampling)
    }

    fn open(name: &'static str, kind: Kind, options: &Options) -> Result<Sampling, SamplingError> {
        // Opened for this process, so that whatever is in the way shows at once.
        let me = Process::current(&options.root)?;
        let mut source = SampleSource::open(kind, Scope::Processes(vec![me]), options)?;
        source.watch(Vec::new())?;
        Ok(Sampling {
            name,
            root: options.root.clone(),
            source,
            provoked: None,
            records: 0,
        })
    }

    /// Samples that the kernel took since this was opened, whatever became of them.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// What they cost the kernel, in ns, reckoned by their number: every sample of
    /// hardware is an interrupt. Faults are paid by who takes them, and the kernel
    /// takes hint faults whether they are listened to or not.
    pub fn kernel_cpu_ns(&self) -> u64 {
        match self.source.kind() {
            Kind::Faults => 0,
            Kind::Ibs | Kind::Pebs => self.records * INTERRUPT_NS,
        }
    }

    /// Which mechanism it is.
    pub fn kind(&self) -> Kind {
        self.source.kind()
    }

    /// A word for people.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// From now on these processes, and no others.
    ///
    /// # Errors
    ///
    /// perf refused.
    pub fn listen_to(&mut self, processes: &[Process]) -> Result<(), SamplingError> {
        self.source.watch(processes.to_vec())?;
        if let Some(provoked) = &mut self.provoked {
            let old = std::mem::take(&mut provoked.rounds);
            for process in processes {
                let known = old.get(&process.pid).filter(|(known, _)| known == process);
                let rounds = known.map_or(Rounds::NEW, |(_, rounds)| *rounds);
                provoked.rounds.insert(process.pid, (*process, rounds));
            }
        }
        Ok(())
    }

    /// Does what provokes accesses, where something must.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn provoke(&mut self, now: Millis) -> Result<(), SamplingError> {
        let Some(Provoked {
            rate,
            rounds,
            left_out,
        }) = &mut self.provoked
        else {
            return Ok(());
        };
        let mut refreshed = false;
        for (process, rounds) in rounds.values_mut() {
            if !rounds.is_due(now.0, rate) {
                continue;
            }
            let resident = match process.status(&self.root) {
                Ok(status) => status.resident.unwrap_or(0),
                // The next refresh notices.
                Err(FsError::Gone { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            if resident > rate.most_bytes {
                if !left_out.iter().any(|(pid, _)| *pid == process.pid) {
                    left_out.push((process.pid, resident));
                }
                continue;
            }
            // Most faults come at once: threads that are not listened to yet
            // would take them unheard.
            if !std::mem::replace(&mut refreshed, true) {
                self.source.refresh()?;
            }
            write_faults::protect(&self.root, *process)?;
        }
        Ok(())
    }

    /// Processes that are too large to be provoked, with their resident bytes;
    /// each is told of once.
    pub fn left_out(&mut self) -> Vec<(u32, u64)> {
        let provoked = self.provoked.as_mut();
        let (told, fresh) = provoked.map_or((Vec::new(), Vec::new()), |provoked| {
            let all = std::mem::take(&mut provoked.left_out);
            all.into_iter().partition(|(_, resident)| *resident == 0)
        });
        if let Some(provoked) = &mut self.provoked {
            // Zero stands for "told".
            let now_told = fresh.iter().map(|(pid, _)| (*pid, 0));
            provoked.left_out = told.into_iter().chain(now_told).collect();
        }
        fresh
    }

    /// Waits until there may be something, `patience` at most.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn wait(&self, patience: Duration) -> Result<(), SamplingError> {
        if self.source.coverage().events == 0 {
            std::thread::sleep(patience);
            return Ok(());
        }
        self.source.wait(patience)?;
        Ok(())
    }

    /// Looks for threads and CPUs that came or went. True if the events never
    /// had the unit although they were on for a while: somebody else keeps it.
    ///
    /// # Errors
    ///
    /// perf refused an event for one of them.
    pub fn refresh(&mut self) -> Result<bool, SamplingError> {
        Ok(self.source.refresh()?.is_starved())
    }

    /// Adds everything since the last time to `heard`, unless something is
    /// missing.
    pub fn drain(&mut self, source: SourceId, heard: &mut Vec<Sample>) -> Window {
        let provoked = &mut self.provoked;
        let polled = self.source.poll(&mut |access| {
            if let Some(provoked) = provoked
                && let Some((_, rounds)) = provoked.rounds.get_mut(&access.pid)
            {
                rounds.saw(1);
            }
            if let Some(cpu) = access.cpu {
                heard.push(Sample {
                    source,
                    pid: access.pid,
                    tid: access.tid,
                    cpu,
                    address: access.address,
                });
            }
        });
        self.records += polled.walk.samples + polled.walk.lost;
        polled.window
    }

    /// The longest of the periods between samples; none of a source that has no
    /// such thing.
    pub fn period(&self) -> Option<u64> {
        match self.source.kind() {
            Kind::Faults => None,
            Kind::Ibs | Kind::Pebs => self.source.periods().map(|(_, period)| period).max(),
        }
    }

    /// Sets the periods by what came during the last `elapsed`; see
    /// [`SampleSource::adapt`]. Faults come one by one.
    pub fn adapt(&mut self, elapsed: Duration, percent: u32) {
        if self.source.kind() != Kind::Faults {
            self.source.adapt(elapsed, percent);
        }
    }
}
