//! Which processes there are, and where their pages lie.

use super::shared::Shared;
use super::subjects;
use crate::ledger::Ledger;
use crate::report::{Event, Reporter};
use crate::world::{World, WorldError};
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::Millis;
use std::collections::BTreeMap;

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
struct Surveyed {
    at: Millis,
    faults: u64,
}

/// Keeps the ledger up to date.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    refreshed: Option<Millis>,
    surveyed: BTreeMap<OwnerId, Surveyed>,
    unstuck: Millis,
    expired: Millis,
}

/// What a refresh found.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Memory came, went or grew so much that it should be looked at.
    pub changed: bool,
    /// Slots whose process is gone.
    pub went: Vec<OwnerId>,
}

impl Refresh {
    /// Looks for processes that came or went, and surveys those whose memory
    /// may have changed, if it is time.
    pub fn run(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        reporter: &mut dyn Reporter,
    ) -> Result<News, WorldError> {
        let Shared {
            config,
            ledger,
            records,
            ..
        } = shared;
        let now = world.now();
        if (self.refreshed).is_some_and(|last| now.since(last) < REFRESH_MS) {
            return Ok(News::default());
        }
        if self.refreshed.replace(now).is_none() {
            ledger.read_rooms(world)?;
        }
        let changes = ledger.processes.refresh(world)?;
        for (owner, process) in &changes.went {
            ledger.forget(*owner, |section| records.remove_section(section));
            self.surveyed.remove(owner);
            reporter.event(now, Event::ProcessGone { pid: process.pid });
        }
        for owner in &changes.came {
            self.survey(world, ledger, *owner)?;
            tell(ledger, *owner, now, reporter);
        }
        let mut changed = !changes.is_empty();
        for owner in self.due(ledger, now) {
            let lower = ledger.lower_pages();
            ledger.processes.reread(world, owner)?;
            self.survey(world, ledger, owner)?;
            // A hundredth more slow memory than before is news.
            changed |= ledger.lower_pages() > lower + lower / 100;
        }
        if !config.dry_run && now.since(self.unstuck) >= UNSTICK_MS {
            self.unstuck = now;
            ledger.placement.unstick();
        }
        if now.since(self.expired) >= EXPIRE_MS {
            self.expired = now;
            records.expire(now);
        }
        let went = changes.went.iter().map(|(owner, _)| *owner).collect();
        Ok(News { changed, went })
    }

    fn due(&self, ledger: &Ledger, now: Millis) -> Vec<OwnerId> {
        let is_due = |(owner, surveyed): (&OwnerId, &Surveyed)| {
            let age = now.since(surveyed.at);
            let faulted = || {
                let watched = ledger.processes.get(*owner);
                watched.is_some_and(|watched| watched.faults != surveyed.faults)
            };
            let due = age >= SURVEY_MS && (age >= SURVEY_ANYWAY_MS || faulted());
            due.then_some(*owner)
        };
        self.surveyed.iter().filter_map(is_due).collect()
    }

    fn survey(
        &mut self,
        world: &mut dyn World,
        ledger: &mut Ledger,
        owner: OwnerId,
    ) -> Result<(), WorldError> {
        let faults = ledger.processes.get(owner).map(|watched| watched.faults);
        ledger.survey(world, owner)?;
        if let Some(faults) = faults {
            let at = world.now();
            self.surveyed.insert(owner, Surveyed { at, faults });
        }
        Ok(())
    }
}

fn tell(ledger: &Ledger, owner: OwnerId, now: Millis, reporter: &mut dyn Reporter) {
    let Some(watched) = ledger.processes.get(owner) else {
        return;
    };
    let count = |top| {
        let runs = subjects::runs_by_tier(ledger, watched, top);
        runs.iter().map(|run| run.pages).sum()
    };
    let event = Event::Process {
        pid: watched.process.pid,
        name: watched.memory.name.clone(),
        top_pages: Some(count(true)),
        lower_pages: Some(count(false)),
    };
    reporter.event(now, event);
}
