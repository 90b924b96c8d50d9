//! Page faults as a source of a world.
//!
//! perf tells of the minor faults of the processes that are listened to. Hint faults are among them where
//! the simulated kernel scans, first touches always, and stores to pages that were protected so that they
//! fault. Tiering hears which pages; balancing hears threads and CPUs, too. Each thread has a ring; what
//! finds no room in it before it is read is lost. A ring of the first source that is half full wakes the loop;
//! else rings are read when its wait is over. (A live machine has a ring for each CPU where there are more than
//! 64 threads.)

use super::machine::Machine;
use memtide_core::access;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_loop::world::{
    Abilities, AddressSpace, Came, Invalid, Notice, Presence, ProcessId, Report, Sample, SourceId,
    SourceInfo, SourceStatus, Span, Subject, View,
};
use memtide_loop::write_rounds::{Rounds, WriteFaultRate, too_large};
use std::collections::BTreeMap;

/// What they are heard for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultsFor {
    /// Tiering: pages, of what the kernel's scans take away.
    Tiering,
    /// Balancing: the same, with threads.
    Balancing,
    /// Balancing by stores to pages that are protected so often.
    WriteFaults(WriteFaultRate),
}

/// One process that is listened to.
#[derive(Clone, Copy, Debug)]
struct Listened {
    process: ProcessId,
    owner: Option<OwnerId>,
    rounds: Rounds,
    told_too_large: bool,
    /// Its records in all rings.
    unread: u64,
}

/// What came since rings were read last.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    told: u64,
    lost: u64,
}

/// The faults of all processes that are listened to.
#[derive(Clone, Debug)]
pub(super) struct PageFaults {
    id: SourceId,
    heard_for: FaultsFor,
    /// Ascending by pid.
    listened: Vec<Listened>,
    /// By thread, what is in its ring.
    unread: BTreeMap<u32, u64>,
    window: Window,
    lost: u64,
    records: u64,
    /// Those that were handed over, and what reading one costs.
    told: u64,
    report_ns: u64,
}

impl PageFaults {
    pub(super) fn new(id: SourceId, heard_for: FaultsFor, report_ns: u64) -> PageFaults {
        PageFaults {
            id,
            heard_for,
            listened: Vec::new(),
            unread: BTreeMap::new(),
            window: Window::default(),
            lost: 0,
            records: 0,
            told: 0,
            report_ns,
        }
    }

    pub(super) fn info(&self) -> SourceInfo {
        let kind = access::Source::HintFault;
        SourceInfo {
            name: match self.heard_for {
                FaultsFor::Tiering => kind.to_string(),
                FaultsFor::Balancing => "hint faults".to_owned(),
                FaultsFor::WriteFaults(_) => "write faults".to_owned(),
            },
            kind,
            abilities: Abilities {
                samples: self.heard_for != FaultsFor::Tiering,
                ..Abilities::default()
            },
        }
    }

    /// Whoever takes a fault pays for it.
    pub(super) fn status(&self) -> SourceStatus {
        SourceStatus {
            period: None,
            lost: self.lost,
            kernel_cpu_ns: 0,
            records: self.records,
            own_cpu_ns: self.told * self.report_ns,
        }
    }

    /// Listens to the processes of `subjects`, wherever they fault. Pages that are asked for.
    pub(super) fn look(&mut self, machine: &mut dyn Machine, subjects: &[Subject]) -> u64 {
        let those = subjects.iter().map(|of| (of.process, Some(of.owner)));
        match self.listen(machine, those.collect()) {
            true => subjects.iter().map(Subject::pages).sum(),
            false => 0,
        }
    }

    /// Listens to `processes`.
    pub(super) fn sample(&mut self, machine: &mut dyn Machine, processes: &[ProcessId]) {
        let those = processes.iter().map(|process| (*process, None));
        self.listen(machine, those.collect());
    }

    fn listen(
        &mut self,
        machine: &mut dyn Machine,
        mut those: Vec<(ProcessId, Option<OwnerId>)>,
    ) -> bool {
        those.sort_unstable_by_key(|(process, _)| process.pid);
        let known = std::mem::take(&mut self.listened);
        let listened = those.into_iter().map(|(process, owner)| {
            let same = known.iter().find(|one| one.process == process);
            Listened {
                process,
                owner,
                rounds: same.map_or(Rounds::NEW, |one| one.rounds),
                told_too_large: same.is_some_and(|one| one.told_too_large),
                unread: same.map_or(0, |one| one.unread),
            }
        });
        self.listened = listened.collect();
        let pids: Vec<u32> = self.listened.iter().map(|one| one.process.pid).collect();
        if self
            .listened
            .iter()
            .map(|one| one.process)
            .ne(known.iter().map(|one| one.process))
        {
            // Threads that have ended leave their share of the rings.
            self.unread.retain(|_, unread| *unread > 0);
        }
        machine.hear_faults(&pids)
    }

    /// Takes the faults of the last step.
    pub(super) fn take(&mut self, machine: &mut dyn Machine, into: &mut Came) {
        let scale = machine.scale();
        machine.take_faults(&mut |fault| self.hear(fault, scale, into));
    }

    /// Hears of a fault that stands for `scale` of them.
    fn hear(&mut self, fault: Sample, scale: u64, into: &mut Came) {
        self.records += scale;
        let listened = &self.listened;
        let Ok(at) = listened.binary_search_by_key(&fault.pid, |one| one.process.pid) else {
            return;
        };
        let ring = ring(self.unread.len());
        let unread = self.unread.entry(fault.tid).or_default();
        if *unread + scale > ring {
            self.window.lost += scale;
            return;
        }
        *unread += scale;
        self.window.told += scale;
        self.listened[at].unread += scale;
        match self.listened[at].owner {
            Some(owner) => into.reports.push(Report::Touched {
                source: self.id,
                view: View::Look,
                owner,
                first: VirtualPage(fault.address / 4096),
                pages: 1,
            }),
            None => into.samples.push(Sample {
                source: self.id,
                ..fault
            }),
        }
    }

    /// Whether a ring is half full, which wakes the reader.
    pub(super) fn is_half_full(&self) -> bool {
        let ring = ring(self.unread.len());
        self.unread.values().any(|unread| *unread * 2 >= ring)
    }

    /// All rings were read. Of a window in which some were lost, balancing uses none.
    pub(super) fn drained(&mut self, into: &mut Came) {
        let window = std::mem::take(&mut self.window);
        self.lost += window.lost;
        let used = window.lost == 0 || self.heard_for == FaultsFor::Tiering;
        if used {
            self.told += window.told;
        } else {
            // What is missing would look like pages that nobody uses.
            into.samples.retain(|sample| sample.source != self.id);
            into.invalid.push(Invalid {
                source: self.id,
                lost: window.lost,
                throttled: 0,
            });
        }
        for one in &mut self.listened {
            let unread = std::mem::take(&mut one.unread);
            if used {
                one.rounds.saw(unread);
            }
        }
        self.unread.values_mut().for_each(|unread| *unread = 0);
    }

    /// Protects the pages of each process whose turn it is at `now_ms`; what that takes us, in ns.
    pub(super) fn provoke(
        &mut self,
        machine: &mut dyn Machine,
        now_ms: u64,
        notices: &mut Vec<Notice>,
    ) -> u64 {
        let FaultsFor::WriteFaults(rate) = self.heard_for else {
            return 0;
        };
        let mut ns = 0;
        for one in &mut self.listened {
            if !one.rounds.is_due(now_ms, &rate) {
                continue;
            }
            let bytes = resident(machine, one.process) * machine.scale() * 4096;
            if bytes <= rate.most_bytes {
                ns += machine.protect(one.process);
            } else if !std::mem::replace(&mut one.told_too_large, true) {
                notices.push(Notice::LeftOut {
                    pid: one.process.pid,
                    why: too_large(bytes),
                });
            }
        }
        ns
    }
}

/// Records that each of so many threads' rings holds: 1,024 pages at most and 64 at least, of 16,384 for
/// all, with 48 bytes a record.
fn ring(threads: usize) -> u64 {
    let pages = (16_384 / threads.max(1)).clamp(64, 1024);
    // Rings are powers of two.
    (1u64 << pages.ilog2()) * 4096 / 48
}

/// The present pages of `process`.
fn resident(machine: &dyn Machine, process: ProcessId) -> u64 {
    let mut space = AddressSpace::default();
    if machine.address_space(process, &mut space) != Presence::Here {
        return 0;
    }
    let areas = space.areas.iter().map(|area| Span {
        first: area.first,
        pages: area.pages,
    });
    areas
        .map(|span| machine.present(process, span, &mut |_| ()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> ProcessId {
        ProcessId {
            pid,
            start_ticks: 1,
        }
    }

    /// What is heard of processes 7 and 9 for balancing.
    fn listening() -> PageFaults {
        let mut faults = PageFaults::new(SourceId(3), FaultsFor::WriteFaults(RATE), 60);
        faults.listened = [7, 9].map(listened).to_vec();
        faults
    }

    const RATE: WriteFaultRate = WriteFaultRate {
        per_second: 1000,
        shortest_ms: 500,
        most_bytes: 16 << 30,
    };

    fn listened(pid: u32) -> Listened {
        Listened {
            process: process(pid),
            owner: None,
            rounds: Rounds::NEW,
            told_too_large: false,
            unread: 0,
        }
    }

    fn fault(pid: u32, tid: u32) -> Sample {
        Sample {
            source: SourceId(0),
            pid,
            tid,
            cpu: 1,
            address: 5 << 12,
        }
    }

    #[test]
    fn rings_are_as_large_as_their_number_allows() {
        let records = |pages: u64| pages * 4096 / 48;
        assert_eq!([1, 16].map(ring), [records(1024); 2]);
        assert_eq!([17, 32].map(ring), [records(512); 2]);
        assert_eq!(ring(1000), records(64));
    }

    #[test]
    fn only_those_that_are_listened_to_are_heard() {
        let (mut faults, mut came) = (listening(), Came::default());
        for pid in [7, 8, 9] {
            faults.hear(fault(pid, 10 * pid), 4, &mut came);
        }
        let pids: Vec<u32> = came.samples.iter().map(|sample| sample.pid).collect();
        assert_eq!(pids, [7, 9]);
        assert!(came.samples.iter().all(|sample| sample.source == faults.id));
        faults.drained(&mut came);
        assert!(came.invalid.is_empty());
        let status = faults.status();
        assert_eq!((status.records, status.lost), (12, 0));
        assert_eq!(status.own_cpu_ns, 8 * 60);
    }

    /// A ring wakes its reader at half, and what finds it full takes the window with it. The next round
    /// comes as late as if nothing had been written.
    #[test]
    fn a_full_ring_spoils_the_window() {
        let (mut faults, mut came) = (listening(), Came::default());
        assert!(faults.listened[0].rounds.is_due(0, &RATE));
        let half = ring(1) / 2 / 64;
        for n in 0..=ring(1) / 64 {
            assert_eq!(faults.is_half_full(), n > half, "{n}");
            faults.hear(fault(7, 70), 64, &mut came);
        }
        faults.hear(fault(9, 90), 64, &mut came);
        assert_eq!(faults.window.lost, 64);
        faults.drained(&mut came);
        assert!(came.samples.is_empty());
        assert_eq!(came.invalid.len(), 1);
        assert_eq!(
            (came.invalid[0].source, came.invalid[0].lost),
            (faults.id, 64)
        );
        assert_eq!(faults.status().own_cpu_ns, 0);
        assert!(!faults.listened[0].rounds.is_due(4_999, &RATE));
        assert!(faults.listened[0].rounds.is_due(5_000, &RATE));
        // The next window is whole.
        faults.hear(fault(7, 70), 64, &mut came);
        faults.drained(&mut came);
        assert_eq!((came.invalid.len(), faults.status().lost), (1, 64));
        assert_eq!(faults.status().own_cpu_ns, 64 * 60);
        assert!(faults.listened[0].rounds.is_due(5_500, &RATE));
    }
}
