//! Which processes there are, and where their pages lie.

use super::super::report::{Event, Reporter};
use super::super::subjects;
use super::super::survey::SurveyError;
use super::{Tierer, TiererError};
use crate::fs::FsError;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::Millis;

/// How often processes are looked for anew, in ms.
const REFRESH_MS: u64 = 1000;
/// How often a process that takes page faults is surveyed anew, in ms.
const SURVEY_MS: u64 = 10_000;
/// How often any is: others may move its pages, too.
const SURVEY_ANYWAY_MS: u64 = 120_000;
/// How often stuck pages get another chance, in ms.
const UNSTICK_MS: u64 = 60_000;
/// How often old records are emptied, in ms: within the record's time range.
const EXPIRE_MS: u64 = 3_000;
/// When a process was surveyed, and how many page faults it had taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surveyed {
    owner: OwnerId,
    at: Millis,
    faults: u64,
}

impl Tierer {
    /// Looks for processes that came or went, and surveys those whose memory
    /// may have changed.
    pub(super) fn refresh(&mut self, reporter: &mut dyn Reporter) -> Result<(), TiererError> {
        let now = self.now();
        if self
            .refreshed
            .is_some_and(|last| now.since(last) < REFRESH_MS)
        {
            return Ok(());
        }
        if self.refreshed.is_none() {
            self.read_rooms()?;
        }
        self.refreshed = Some(now);
        let before: Vec<(OwnerId, u32)> = self
            .processes
            .iter()
            .map(|watched| (watched.owner, watched.process.pid))
            .collect();
        let changes = self.processes.refresh()?;
        for owner in &changes.went {
            self.forget(*owner);
            if let Some((_, pid)) = before.iter().find(|(known, _)| known == owner) {
                reporter.event(now, Event::ProcessGone { pid: *pid });
            }
        }
        for owner in &changes.came {
            self.survey(*owner)?;
            if let Some(watched) = self.processes.get(*owner) {
                let count = |top: bool| {
                    let wanted = |_, node| self.topology.is_top_tier(node) == top;
                    let runs = subjects::runs(watched, &self.space, &self.placement, wanted);
                    runs.iter().map(|run| run.pages).sum()
                };
                let event = Event::Process {
                    pid: watched.process.pid,
                    name: watched.name.clone(),
                    top_pages: count(true),
                    lower_pages: count(false),
                };
                reporter.event(now, event);
            }
        }
        let mut changed = !changes.came.is_empty() || !changes.went.is_empty();
        let due: Vec<OwnerId> = self
            .surveyed
            .iter()
            .filter(|surveyed| now.since(surveyed.at) >= SURVEY_MS)
            .filter(|surveyed| {
                let faults = self
                    .processes
                    .get(surveyed.owner)
                    .map(|watched| watched.faults);
                let changed = faults.is_some_and(|faults| faults != surveyed.faults);
                changed || now.since(surveyed.at) >= SURVEY_ANYWAY_MS
            })
            .map(|surveyed| surveyed.owner)
            .collect();
        for owner in due {
            let lower = self.lower_pages();
            self.processes.reread(owner).or_else(|error| match error {
                FsError::Gone { .. } => Ok(()),
                error => Err(error),
            })?;
            self.survey(owner)?;
            // A hundredth more slow memory than before is news.
            changed |= self.lower_pages() > lower + lower / 100;
        }
        if changed {
            self.told = None;
            self.cadence.look_due();
        }
        if !self.options.dry_run && now.since(self.unstuck) >= UNSTICK_MS {
            self.unstuck = now;
            self.placement.unstick();
        }
        if now.since(self.expired) >= EXPIRE_MS {
            self.expired = now;
            self.store.expire(0..usize::MAX, now);
        }
        Ok(())
    }

    pub(super) fn lower_pages(&self) -> u64 {
        let nodes = self.topology.nodes().iter().filter(|node| !node.top_tier);
        nodes.map(|node| self.placement.resident(node.id)).sum()
    }

    fn forget(&mut self, owner: OwnerId) {
        for section in self.space.release(owner) {
            self.placement.clear_section(section);
            self.store.remove_section(section as usize);
            self.idle.remove_section(section as usize);
        }
        self.surveyed.retain(|surveyed| surveyed.owner != owner);
    }

    /// Finds out where a process's pages are. A process that ends meanwhile is
    /// noticed at the next refresh.
    fn survey(&mut self, owner: OwnerId) -> Result<(), TiererError> {
        let Some(watched) = self.processes.get(owner) else {
            return Ok(());
        };
        let faults = watched.faults;
        for section in self.space.sections_of(owner).collect::<Vec<_>>() {
            self.placement.clear_unstuck(section);
        }
        let (space, placement) = (&mut self.space, &mut self.placement);
        let mut full = None;
        let proc_root = self.root.path("proc");
        let surveyed = self.surveyor.survey(&proc_root, watched, |found| {
            let placed = space.place_runs(owner, found.first, found.pages, |_, dense, pages| {
                placement.set_run(dense, pages, found.node, found.huge);
            });
            full = full.or(placed.err());
        });
        match surveyed {
            Ok(()) | Err(SurveyError::Gone(_)) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(full) = full {
            return Err(SurveyError::Failed {
                pid: watched.process.pid,
                what: full.to_string(),
            }
            .into());
        }
        self.surveyed.retain(|surveyed| surveyed.owner != owner);
        self.surveyed.push(Surveyed {
            owner,
            at: self.now(),
            faults,
        });
        Ok(())
    }
}
