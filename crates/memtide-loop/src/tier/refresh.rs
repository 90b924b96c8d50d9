//! Which processes there are, and where their pages lie.
//!
//! A process that takes page faults is surveyed again and again. What surveys
//! cost follows its memory, so that they have a budget, [`SURVEY_PERMILLE`]. A
//! process waits as long as the root of what its survey cost, times the sum of
//! these roots over all processes, demands: all of them together use up the
//! budget exactly, and no other division of it has shorter waits in all. No process
//! waits longer than [`SURVEY_LATEST_MS`]; where memory is so large that this is too
//! often for the budget, surveys take more. Where
//! memory is small, all are surveyed every [`SURVEY_MS`].
//!
//! A program that begins grows, and what it says of its memory changes: a process that came
//! lately is surveyed again whenever it is twice as old as at the last survey. That ends
//! when it is [`SURVEY_MS`] old, and is left out where surveys cost more than
//! [`EARLY_PERMILLE`]; of many that came together some wait.

use super::shared::{HOW, Shared};
use super::subjects;
use crate::ledger::Ledger;
use crate::records::Records;
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
/// How long a survey of a process that takes page faults holds at most, whatever the
/// next one costs.
const SURVEY_LATEST_MS: u64 = 600_000;
/// Processor time for surveys of processes that were surveyed before, in thousandths
/// of a CPU.
const SURVEY_PERMILLE: u64 = 10;
/// The same for surveys of a process that came lately.
const EARLY_PERMILLE: u64 = 50;
/// How often stuck pages get another chance, in ms.
const UNSTICK_MS: u64 = 60_000;
/// How often old records are emptied, in ms: within the record's time range.
const EXPIRE_MS: u64 = 3_000;

/// When a process was surveyed first and last, how many page faults it had taken, what
/// the last survey cost in microseconds, and the root of that where it counts for the budget.
#[derive(Clone, Copy, Debug)]
struct Surveyed {
    came: Millis,
    at: Millis,
    faults: u64,
    cost_us: u64,
    cost_root: u64,
}

impl Surveyed {
    /// How long it holds if its process came lately.
    fn early_ms(&self) -> Option<u64> {
        let early_ms = (self.at.since(self.came)).max(self.cost_us / EARLY_PERMILLE);
        (early_ms < SURVEY_MS).then_some(early_ms.max(REFRESH_MS))
    }

    /// How long it holds, in ms, where the roots of all come to `roots`.
    fn holds_ms(&self, roots: u64) -> u64 {
        if let Some(early_ms) = self.early_ms() {
            return early_ms;
        }
        // Microseconds of a CPU, over thousandths of it, are ms.
        let wait_ms = self.cost_root.saturating_mul(roots) / SURVEY_PERMILLE;
        wait_ms.clamp(SURVEY_MS, SURVEY_LATEST_MS)
    }
}

/// Keeps the ledger up to date.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    refreshed: Option<Millis>,
    surveyed: BTreeMap<OwnerId, Surveyed>,
    unstuck: Millis,
    expired: Millis,
    /// That there is more memory than is watched was told.
    told_full: bool,
}

/// What a refresh found.
#[derive(Debug, Default)]
pub(super) struct News {
    /// It was time for one.
    pub refreshed: bool,
    /// Memory came, went or grew so much that it should be looked at.
    pub changed: bool,
    /// Who came has slow memory, or there is a hundredth more of it.
    pub slow: bool,
    /// Slots whose process is gone.
    pub went: Vec<OwnerId>,
    /// Slots whose pages were surveyed.
    pub surveyed: Vec<OwnerId>,
}

impl Refresh {
    /// Processes are looked for at the next turn, whatever else is to be done: nothing may be decided
    /// before.
    pub fn is_due(&mut self) {
        self.refreshed = None;
    }

    /// Whether that is so.
    pub fn is_owed(&self) -> bool {
        self.refreshed.is_none()
    }

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
        let changes = ledger.processes.refresh(world, now)?;
        for (owner, process) in &changes.went {
            // It may live, and only be in a class that is left alone now.
            ledger.send_home(world, *owner, *process, HOW);
            ledger.forget(*owner, |section| records.remove_section(section));
            self.surveyed.remove(owner);
            reporter.event(now, Event::ProcessGone { pid: process.pid });
        }
        let mut slow = false;
        for owner in &changes.came {
            self.survey(world, ledger, *owner)?;
            slow |= tell(ledger, *owner, now, reporter) > 0;
        }
        let mut surveyed = changes.came.clone();
        for owner in self.due(ledger, now) {
            surveyed.push(owner);
            let lower = ledger.lower_pages();
            self.survey(world, ledger, owner)?;
            // A hundredth more slow memory than before is news.
            slow |= ledger.lower_pages() > lower + lower / 100;
        }
        if let Some(text) = ledger.was_full().filter(|_| !self.told_full) {
            self.told_full = true;
            reporter.event(now, Event::Notice { text });
        }
        if !config.dry_run && now.since(self.unstuck) >= UNSTICK_MS {
            self.unstuck = now;
            ledger.placement.unstick();
        }
        let went = changes.went.iter().map(|(owner, _)| *owner).collect();
        Ok(News {
            refreshed: true,
            changed: slow || !changes.is_empty(),
            slow,
            went,
            surveyed,
        })
    }

    /// Empties records that would look young again, if it is time.
    pub fn expire(&mut self, records: &mut Records, now: Millis) {
        if now.since(self.expired) >= EXPIRE_MS {
            self.expired = now;
            records.expire(now);
        }
    }

    fn due(&self, ledger: &Ledger, now: Millis) -> Vec<OwnerId> {
        let roots = self.surveyed.values().map(|one| one.cost_root).sum();
        let mut early_us = 0;
        let is_due = |(owner, surveyed): (&OwnerId, &Surveyed)| {
            let age = now.since(surveyed.at);
            let faulted = || {
                let watched = ledger.processes.get(*owner);
                watched.is_some_and(|watched| watched.faults != surveyed.faults)
            };
            let mut due = age >= surveyed.holds_ms(roots) && (age >= SURVEY_ANYWAY_MS || faulted());
            if due && surveyed.early_ms().is_some() {
                // Others wait for the next second.
                due = early_us < EARLY_PERMILLE * REFRESH_MS;
                early_us += surveyed.cost_us;
            }
            due.then_some(*owner)
        };
        self.surveyed.iter().filter_map(is_due).collect()
    }

    /// Surveys a process; its mappings are read again unless this is the first time.
    fn survey(
        &mut self,
        world: &mut dyn World,
        ledger: &mut Ledger,
        owner: OwnerId,
    ) -> Result<(), WorldError> {
        let before_ns = world.own_cpu_ns();
        let before = self.surveyed.get(&owner).copied();
        if before.is_some() {
            ledger.processes.reread(world, owner)?;
        }
        let faults = ledger.processes.get(owner).map(|watched| watched.faults);
        ledger.survey(world, owner)?;
        let cost_us = world.own_cpu_ns().saturating_sub(before_ns) / 1000;
        if let Some(faults) = faults {
            let at = world.now();
            let came = before.map_or(at, |before| before.came);
            // Early ones have a budget of their own, and the first tells little: its mappings
            // were read before, and a program that begins has little memory yet.
            let cost_root = match at.since(came) < SURVEY_MS {
                true => 0,
                false => cost_us.isqrt(),
            };
            let surveyed = Surveyed {
                came,
                at,
                faults,
                cost_us,
                cost_root,
            };
            self.surveyed.insert(owner, surveyed);
        }
        Ok(())
    }
}

/// Tells of a process, and returns how many slow pages it has.
fn tell(ledger: &Ledger, owner: OwnerId, now: Millis, reporter: &mut dyn Reporter) -> u64 {
    let Some(watched) = ledger.processes.get(owner) else {
        return 0;
    };
    let count = |top| -> u64 {
        let runs = subjects::runs_by_tier(ledger, watched, top);
        runs.iter().map(|run| run.pages).sum()
    };
    let lower = count(false);
    let event = Event::Process {
        pid: watched.process.pid,
        name: watched.memory.name.clone(),
        top_pages: Some(count(true)),
        lower_pages: Some(lower),
    };
    reporter.event(now, event);
    lower
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TierOptions;
    use crate::testing::{FAST, FakeProcess, FakeWorld};
    use crate::tier::TierConfig;

    fn shared(world: &FakeWorld) -> Shared {
        let (topology, page) = (world.topology().clone(), world.page());
        let config = TierConfig::new(&TierOptions::DEFAULT, &topology, page, 1).unwrap();
        Shared::new(world, config)
    }

    /// One that costs nothing, one whose surveys take 300 ms, which is 6 s at 5 %, and one whose surveys take 600.
    #[test]
    fn a_process_that_came_lately_is_surveyed_when_it_is_twice_as_old() {
        for (page_ns, seconds) in [
            (0, &[5, 6, 7, 9, 13, 21][..]),
            (3_000_000, &[5, 12, 20]),
            (6_000_000, &[5, 16]),
        ] {
            let mut world = FakeWorld::two_tiers(10_000, 10_000);
            world.survey_page_ns = page_ns;
            let mut shared = shared(&world);
            let mut refresh = Refresh::default();
            let mut at = Vec::new();
            for second in 0..30 {
                if second == 5 {
                    world.processes = vec![FakeProcess::new(7, 0, 100, FAST)];
                }
                let now = world.now();
                world.rest((second * 1000_u64).saturating_sub(now.0));
                let news = refresh.run(&mut world, &mut shared, &mut Vec::new());
                at.extend(news.unwrap().surveyed.iter().map(|_| second));
                world.processes.iter_mut().for_each(|one| one.faults += 1);
            }
            assert_eq!(at, seconds, "{page_ns}");
        }
    }

    /// A process of 4,000 pages and one of 4, which take a page fault a second.
    #[test]
    fn surveys_of_large_memory_are_rare_and_those_of_small_memory_are_not() {
        let mut world = FakeWorld::two_tiers(10_000, 10_000);
        world.processes = vec![
            FakeProcess::new(7, 0, 4000, FAST),
            FakeProcess::new(8, 0, 4, FAST),
        ];
        world.survey_page_ns = 1_000_000;
        let mut shared = shared(&world);
        let mut refresh = Refresh::default();
        let mut surveys = [0_u64; 2];
        let mut begun_ns = None;
        while world.now().0 < 1_000_000 {
            let news = refresh
                .run(&mut world, &mut shared, &mut Vec::new())
                .unwrap();
            for owner in news.surveyed {
                surveys[owner.0 as usize] += 1;
            }
            // The first surveys, of 4 s, are no part of the budget.
            begun_ns.get_or_insert(world.cpu_ns);
            world.rest(1000);
            world.processes.iter_mut().for_each(|one| one.faults += 1);
        }
        // 10 ms a second, and the last surveys at once.
        let spent_ms = (world.cpu_ns - begun_ns.unwrap()) / 1_000_000;
        assert!(spent_ms <= 1000 * 10 + 4004, "{spent_ms}");
        // Roots of 4 s and 4 ms in us: 2000 and 63, 2063 in all. So they wait for
        // 412 and 13 s, the second ones for 10. In 1000 s there is room for 4 and 78. That the
        // small one is surveyed at 1, 2, 4 and 8 s, too, makes three more.
        assert!((3..=4).contains(&surveys[0]), "{surveys:?}");
        assert!((73..=81).contains(&surveys[1]), "{surveys:?}");
    }
}
