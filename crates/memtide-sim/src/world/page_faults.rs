//! Page faults as a source of a world.
//!
//! perf tells of the minor faults of the processes that are listened to. Hint faults are among them where
//! the simulated kernel scans, first touches always, and stores to pages that were protected so that they
//! fault. Tiering hears which pages; balancing hears threads and CPUs, too. Each thread has a ring; what
//! finds no room in it before it is read is lost. Faults wake nobody: rings are read when it is time.

use super::machine::Machine;
use memtide_core::access;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_loop::world::{
    Abilities, AddressSpace, Came, Invalid, Notice, Presence, ProcessId, Report, Sample, SourceId,
    SourceInfo, SourceStatus, Span, Subject, View,
};
use memtide_loop::write_rounds::{Rounds, WriteFaultRate, too_large};
use std::collections::BTreeMap;

/// Records that a thread's ring holds: 1,024 pages, and 48 bytes a record.
const RING: u64 = 1024 * 4096 / 48;

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
            }
        });
        self.listened = listened.collect();
        let pids: Vec<u32> = self.listened.iter().map(|one| one.process.pid).collect();
        machine.hear_faults(&pids)
    }

    /// Takes the faults of the last step.
    pub(super) fn take(&mut self, machine: &mut dyn Machine, into: &mut Came) {
        let scale = machine.scale();
        let mut lost = 0;
        machine.take_faults(&mut |fault| {
            self.records += scale;
            let listened = &mut self.listened;
            let Ok(at) = listened.binary_search_by_key(&fault.pid, |one| one.process.pid) else {
                return;
            };
            if !finds_room(&mut self.unread, fault.tid, scale) {
                lost += scale;
                return;
            }
            self.told += scale;
            listened[at].rounds.saw(scale);
            match listened[at].owner {
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
        });
        self.lost += lost;
        if lost > 0 && self.heard_for != FaultsFor::Tiering {
            // What is missing would look like pages that nobody uses.
            into.samples.retain(|sample| sample.source != self.id);
            into.invalid.push(Invalid {
                source: self.id,
                lost,
                throttled: 0,
            });
        }
    }

    /// All rings were read.
    pub(super) fn drained(&mut self) {
        self.unread.clear();
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

/// Whether `records` more have room in the ring of thread `tid`; they are in it then.
fn finds_room(unread: &mut BTreeMap<u32, u64>, tid: u32, records: u64) -> bool {
    let unread = unread.entry(tid).or_default();
    let finds = *unread + records <= RING;
    if finds {
        *unread += records;
    }
    finds
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

    /// Threads have rings of their own, and one that is full loses what comes until it is read.
    #[test]
    fn a_full_ring_loses_what_comes() {
        let mut faults = PageFaults::new(SourceId(0), FaultsFor::Balancing, 60);
        for _ in 0..RING / 64 {
            assert!(finds_room(&mut faults.unread, 1, 64));
        }
        assert!(!finds_room(&mut faults.unread, 1, 64));
        assert!(finds_room(&mut faults.unread, 1, RING % 64));
        assert!(finds_room(&mut faults.unread, 2, 64));
        faults.drained();
        assert!(finds_room(&mut faults.unread, 1, 64));
    }
}
