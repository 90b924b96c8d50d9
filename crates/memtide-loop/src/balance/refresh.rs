//! Which processes there are, and what was known and is no more.

use super::shared::Shared;
use super::tasks::Tasks;
use crate::report::{Event, Reporter};
use crate::world::{ProcessId, SourceId, World, WorldError};
use memtide_core::hotness::SECTION_PAGES;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, PageNumber};
use std::collections::BTreeMap;

/// How often processes are looked for anew, in ms.
const REFRESH_MS: u64 = 1000;
/// The same while nothing is heard.
const QUIET_REFRESH_MS: u64 = 4000;
/// How often mappings and policies of a process that takes faults are read
/// anew, in ms.
const REREAD_MS: u64 = 10_000;
/// And at most this share of the time: reading them walks its page tables.
const REREAD_SHARE: u64 = 200;
/// How long the answer to where a page is holds, in ms.
const RELOCATE_MS: u64 = 10_000;
/// How often stuck pages get another chance, in ms.
const UNSTICK_MS: u64 = 60_000;
/// How often old records are emptied, in ms: within the record's time range.
const EXPIRE_MS: u64 = 3_000;

/// When a process's mappings were read.
#[derive(Clone, Copy, Debug)]
struct Reread {
    at: Millis,
    faults: u64,
    cost_ms: u64,
}

impl Reread {
    fn is_due(&self, now: Millis, faults: u64) -> bool {
        let wait = REREAD_MS.max(self.cost_ms * REREAD_SHARE);
        faults != self.faults && now.since(self.at) >= wait
    }
}

/// Keeps the ledger up to date.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    /// Managed processes by pid, ascending.
    owners: Vec<(u32, OwnerId)>,
    refreshed: Option<Millis>,
    reread: BTreeMap<OwnerId, Reread>,
    relocated: Millis,
    unstuck: Millis,
    expired: Millis,
    /// That there is more memory than is watched was told.
    told_full: bool,
}

impl Refresh {
    /// The slot of the process that has `pid`.
    pub fn owner(&self, pid: u32) -> Option<OwnerId> {
        let place = self.owners.binary_search_by_key(&pid, |(pid, _)| *pid);
        place.ok().map(|place| self.owners[place].1)
    }

    /// Looks for what came, went or grew old, if it is time. While nothing is
    /// heard (`quiet`) there is time for everything.
    pub fn run(
        &mut self,
        world: &mut dyn World,
        source: SourceId,
        shared: &mut Shared,
        tasks: &mut Tasks,
        quiet: bool,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        let at = world.now();
        let pause = match quiet {
            true => QUIET_REFRESH_MS,
            false => REFRESH_MS,
        };
        if self.refreshed.is_some_and(|last| at.since(last) < pause) {
            return Ok(());
        }
        self.refreshed = Some(at);
        self.processes(world, source, shared, tasks, reporter)?;
        tasks.threads.sweep(world, at)?;
        tasks.remove_ended(shared);
        let placement = &mut shared.ledger.placement;
        // A dry run's pages are where it would have moved them.
        if !shared.config.dry_run && at.since(self.relocated) >= RELOCATE_MS {
            self.relocated = at;
            let space = &shared.ledger.space;
            let owners = self.owners.iter().map(|(_, owner)| *owner);
            for section in owners.flat_map(|owner| space.sections_of(owner)) {
                placement.clear_unstuck(section);
            }
        }
        if at.since(self.unstuck) >= UNSTICK_MS {
            self.unstuck = at;
            placement.unstick();
        }
        if at.since(self.expired) >= EXPIRE_MS {
            self.expired = at;
            let now = shared.since_boot(at);
            shared.sampled.store().expire(0..usize::MAX, now);
        }
        Ok(())
    }

    fn processes(
        &mut self,
        world: &mut dyn World,
        source: SourceId,
        shared: &mut Shared,
        tasks: &mut Tasks,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        let at = world.now();
        if let Some(text) = shared.ledger.was_full().filter(|_| !self.told_full) {
            self.told_full = true;
            reporter.event(at, Event::Notice { text });
        }
        let changes = shared.ledger.processes.refresh(world, at)?;
        let elapsed_ms = world.now().since(at);
        let cost_ms = elapsed_ms / changes.came.len().max(1) as u64;
        for &(owner, process) in &changes.went {
            self.owners.retain(|(_, of)| *of != owner);
            self.reread.remove(&owner);
            reporter.event(at, Event::ProcessGone { pid: process.pid });
            // It may only have left its class.
            if tasks.has_lent(process)
                && let Err(why) = world.put_back_of(process)
            {
                let text = why.to_string();
                reporter.event(at, Event::Notice { text });
            }
            tasks.went(shared, owner, process);
            let sampled = &mut shared.sampled;
            shared.ledger.forget(owner, |section| {
                let first = u64::from(section) * SECTION_PAGES as u64;
                let pages = first..first + SECTION_PAGES as u64;
                pages.for_each(|page| sampled.forget(PageNumber(page)));
            });
        }
        for &owner in &changes.came {
            let Some(watched) = shared.ledger.processes.get(owner) else {
                continue;
            };
            let (pid, born) = (watched.process.pid, watched.born);
            let reread = Reread {
                at,
                faults: watched.faults,
                cost_ms,
            };
            let event = Event::Process {
                pid,
                name: watched.memory.name.clone(),
                top_pages: None,
                lower_pages: None,
            };
            self.reread.insert(owner, reread);
            self.owners.push((pid, owner));
            tasks.came(shared, owner, born);
            reporter.event(at, event);
        }
        self.owners.sort_unstable();
        if !changes.is_empty() {
            let all = shared.ledger.processes.iter();
            let all: Vec<ProcessId> = all.map(|watched| watched.process).collect();
            world.sample(source, &all)?;
        }
        for n in 0..self.owners.len() {
            self.reread_if_due(world, shared, self.owners[n].1)?;
        }
        Ok(())
    }

    /// Mappings and policies change; so does what may move where.
    fn reread_if_due(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        owner: OwnerId,
    ) -> Result<(), WorldError> {
        let at = world.now();
        let processes = &mut shared.ledger.processes;
        let faults = processes.get(owner).map_or(0, |watched| watched.faults);
        let due = self.reread.get(&owner);
        if !due.is_some_and(|reread| reread.is_due(at, faults)) {
            return Ok(());
        }
        processes.reread(world, owner)?;
        let cost_ms = world.now().since(at);
        let reread = Reread {
            at,
            faults,
            cost_ms,
        };
        self.reread.insert(owner, reread);
        Ok(())
    }
}
