//! Idle pages go down, where hot ones need the room.

use super::config::TierConfig;
use super::promoter::TURN_PAGES;
use super::shared::Shared;
use crate::ledger::Ledger;
use crate::random::Random;
use crate::records::Records;
use crate::report::{Direction, Reporter};
use crate::world::World;
use memtide_core::demotion::{Cursor, Evidence, Limits, Victim, choose_target};
use memtide_core::hotness::SECTION_PAGES;
use memtide_core::nodemask::NodeMask;
use memtide_core::pages::{Folio, Pages as _};
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId};
use std::collections::BTreeMap;

/// Pages that the choice of victims looks at between two checks whether it has
/// enough: one section.
const SCAN_PAGES: u64 = SECTION_PAGES as u64;
/// Makes the demoter's random numbers others than the observer's.
const SEED: u64 = 0x6d65_6d74_6964_6531;

/// The demoter. See the module's essay.
#[derive(Debug)]
pub(super) struct Demoter {
    cursor: Cursor,
    random: Random,
}

impl Demoter {
    pub fn new(config: &TierConfig) -> Demoter {
        Demoter {
            cursor: Cursor::default(),
            random: Random::new(config.seed ^ SEED),
        }
    }

    /// Makes room for `wanting` hot pages that found none, and keeps the headroom
    /// where some may come.
    pub fn demote(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        wanting: u64,
        reporter: &mut dyn Reporter,
    ) {
        if shared.ledger.lower_pages() == 0 {
            return;
        }
        let now = world.now();
        let targets = shared.ledger.preferred_targets();
        let mut top: Vec<NodeId> = targets.iter().map(|(_, top)| *top).collect();
        top.sort_unstable();
        top.dedup();
        let mut left = TURN_PAGES;
        for node in top {
            let short = shared.ledger.rooms.short_of(node, wanting).min(left);
            if short == 0 {
                continue;
            }
            let victims = self.victims(shared, node, short, now);
            let random = self.random.draw();
            let ledger = &shared.ledger;
            let target = choose_target(
                &ledger.topology,
                node,
                1,
                &NodeMask::ALL,
                |node| ledger.rooms.get(node),
                random,
            );
            let Some(target) = target.map(|chosen| chosen.node) else {
                continue;
            };
            let (jobs, taken) = jobs(ledger, &victims, target);
            left -= taken.min(left);
            let why = format!(
                "not touched in at least {} observations over {} ms; node {node} lacks {short} pages of room",
                shared.config.idle_passes, shared.config.idle_ms
            );
            for (owner, mut folios) in jobs {
                folios.sort_by_key(|folio| folio.first);
                let job = (owner, target, Direction::Demotion);
                let why = why.clone();
                shared.move_folios(world, job, &folios, &[], why, reporter);
            }
        }
    }

    /// At least `short` pages of `node` that were idle for long enough, if there
    /// are so many: one round over everything at most, and only as far as it takes.
    fn victims(&mut self, shared: &Shared, node: NodeId, short: u64, now: Millis) -> Vec<Victim> {
        let Shared {
            config,
            ledger,
            records,
            ..
        } = shared;
        let evidence = Evidence {
            idle: &records.idle,
            hotness: &records.store,
            recent: &records.recent,
        };
        let min_age = least_idle_age(config, records, now);
        let extent = ledger.space.extent();
        let (mut victims, mut found, mut scanned) = (Vec::new(), 0, 0);
        while found < short && scanned < extent {
            if self.cursor.page().0 >= extent {
                self.cursor = Cursor::default();
            }
            let limits = Limits {
                pages: short - found,
                scan: SCAN_PAGES,
                min_age,
                settle_ms: config.settle_ms,
            };
            let some = evidence.choose(node, &limits, &mut self.cursor, ledger, now);
            scanned += SCAN_PAGES;
            found += some.pages;
            victims.extend(some.folios);
        }
        victims
    }
}

/// How old a page's idleness must be: so many observations, over so long.
fn least_idle_age(config: &TierConfig, records: &Records, now: Millis) -> u8 {
    let by_time = records.idle.age_for_ms(config.idle_ms, now);
    config.idle_passes.max(by_time.unwrap_or(u8::MAX))
}

/// Pages that nobody has touched for long enough to leave.
pub(super) fn idle_pages(config: &TierConfig, records: &Records, now: Millis) -> u64 {
    let ages = records.idle.histogram();
    let least = usize::from(least_idle_age(config, records, now));
    ages[least..].iter().sum()
}

/// The victims that may go to `target` and fit there, by owner; and their pages.
fn jobs(
    ledger: &Ledger,
    victims: &[Victim],
    target: NodeId,
) -> (BTreeMap<OwnerId, Vec<Folio>>, u64) {
    let room = ledger.rooms.takes(target);
    let mut jobs: BTreeMap<OwnerId, Vec<Folio>> = BTreeMap::new();
    let mut taken = 0;
    for Victim { folio, .. } in victims {
        let pages = u64::from(folio.pages);
        if taken + pages > room || ledger.may_move(folio.first, target).is_err() {
            continue;
        }
        taken += pages;
        let owner = OwnerId(ledger.group(folio.first) as u32);
        jobs.entry(owner).or_default().push(*folio);
    }
    (jobs, taken)
}
