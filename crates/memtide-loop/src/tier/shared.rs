//! What the parts of tiering share: what is known, and the hands to act with.

use super::account::Account;
use super::budgets::Budgets;
use super::config::TierConfig;
use super::fairness::Fairness;
use super::latency::Latencies;
use super::moving_time::MovingTime;
use super::pressed::Pressed;
use crate::carry::{Carrier, Job, Reasons, Tell};
use crate::ledger::{Ledger, MOST_PAGES, Renumbered, Watched};
use crate::records::Records;
use crate::report::{Direction, Reporter, Stay, WhyStayed};
use crate::world::{ClassId, MoveHow, Outcome, SharedPages, World};
use memtide_core::demotion::IdleRounds;
use memtide_core::hotness::Hotness;
use memtide_core::pages::{Folio, Immovable};
use memtide_core::promotion::Moved;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId, PageNumber};
use memtide_core::vmstat::{Counter, Counters};

/// How pages move: the fixed cost of a call falls on us, not on whoever is moved.
pub(super) const HOW: MoveHow = MoveHow {
    batch: 2048,
    shared: SharedPages::Move,
};

/// A page that moves back no later than this after its last move, in ms, has
/// *returned*: neither move was worth its cost. The loop lets a page settle for half
/// of this after its promotion, so that a shorter time would count next to none of
/// those that go up, down and up again.
pub const RETURN_MS: u64 = 120_000;

/// What all parts know.
#[derive(Debug)]
pub(super) struct Shared {
    pub config: TierConfig,
    pub ledger: Ledger,
    pub records: Records,
    pub counters: Counters,
    pub budgets: Budgets,
    pub pressed: Pressed,
    pub fairness: Fairness,
    /// What promotion won and cost; none where nodes' latencies cannot be told.
    pub account: Option<Account>,
    pub latencies: Latencies,
    /// Pages that the kernel would not move.
    pub failed_pages: u64,
    /// Pages that moved back soon: see [`RETURN_MS`].
    pub returned_pages: u64,
    /// Pages that came to a lower tier or left it, or will not leave it soon,
    /// since the search was last told.
    pub moved: Vec<(PageNumber, u64, Moved)>,
    /// How long pages may still be moved.
    pub moving_time: MovingTime,
    carrier: Carrier,
}

/// One reason for all.
struct Because(String);

impl Reasons for Because {
    type Key = ();

    fn key(&self, _first: PageNumber) {}

    fn moved(&self, (): ()) -> String {
        self.0.clone()
    }

    fn stayed(&self, (): (), outcome: Outcome) -> Option<(WhyStayed, Option<NodeId>)> {
        let why = Stay::Refused {
            why: outcome.refusal(),
        };
        Some((WhyStayed::Tier(why), None))
    }
}

/// Room for the ages of all pages, if idle ones leave.
pub(super) fn idle_rounds(config: &TierConfig) -> Option<IdleRounds> {
    config.idle.as_ref().map(|_| IdleRounds::new(MOST_PAGES))
}

/// Has those left alone whom `config` does not tier.
fn leave_alone(ledger: &mut Ledger, config: &TierConfig) {
    let classes = (0..).map(ClassId).zip(&config.classes);
    let left_alone = classes.filter(|(_, class)| !class.tiered.tier);
    let left_alone = left_alone.map(|(class, _)| class);
    (ledger.processes).leave_alone(left_alone, !config.others.tier);
}

impl Shared {
    pub fn new(world: &dyn World, config: TierConfig) -> Shared {
        let mut ledger = Ledger::new(world, config.headroom);
        leave_alone(&mut ledger, &config);
        let mut records = Records::new(config.hotness, MOST_PAGES);
        records.rounds = idle_rounds(&config);
        let account = || {
            let window_ms = config.hotness.window_ms();
            Account::new(config.benefit, window_ms, config.page_weight, config.seed)
        };
        let account = (config.rest && world.has_canary()).then(account);
        Shared {
            latencies: Latencies::new(account.is_some()),
            account,
            ledger,
            records,
            counters: Counters::default(),
            budgets: Budgets::new(&config),
            pressed: Pressed::new(world, &config),
            fairness: Fairness::new(config.classes.len()),
            failed_pages: 0,
            returned_pages: 0,
            moved: Vec::new(),
            moving_time: MovingTime::default(),
            carrier: Carrier::default(),
            config,
        }
    }

    /// Goes on by `config`, whose classes have these numbers.
    pub fn follow(&mut self, world: &dyn World, config: TierConfig, numbers: &Renumbered) {
        self.ledger.set_headroom(config.headroom);
        self.ledger.processes.renumber(numbers);
        leave_alone(&mut self.ledger, &config);
        self.budgets.follow(&config, numbers);
        self.pressed.follow(world, &config, numbers);
        self.fairness.follow(config.classes.len(), numbers);
        self.config = config;
    }

    /// Pages that may be moved in one turn, as far as is known.
    pub fn turn_pages(&self) -> u64 {
        self.config.turn_pages.min(self.moving_time.affords())
    }

    /// Moves `folios` of one owner, in order of their dense numbers, with the
    /// hotness of each if they go up; as many as there is [time](MovingTime) for. How many base pages
    /// moved, or would have.
    pub fn move_folios(
        &mut self,
        world: &mut dyn World,
        job: (OwnerId, NodeId, Direction),
        folios: &[Folio],
        hot: &[Hotness],
        why: &str,
        reporter: &mut dyn Reporter,
    ) -> u64 {
        let (mut moved, mut at) = (0, 0);
        while at < folios.len() {
            let began = world.now();
            let Some(most) = self.moving_time.next(began) else {
                // If they go up, they were found hot and would be there by now: while they wait they grow no older.
                for (folio, hotness) in folios.iter().zip(hot).skip(at) {
                    self.records.store.put_back(folio.first, hotness, began);
                }
                break;
            };
            let (end, pages) = part(folios, at, most);
            let hot = hot.get(at..end).unwrap_or_default();
            let went = self.move_at_once(world, job, &folios[at..end], hot, why, reporter);
            self.moving_time
                .moved(pages, went, world.now().since(began));
            moved += went;
            at = end;
        }
        moved
    }

    /// Moves them without a look at the clock.
    fn move_at_once(
        &mut self,
        world: &mut dyn World,
        (owner, target, direction): (OwnerId, NodeId, Direction),
        folios: &[Folio],
        hot: &[Hotness],
        why: &str,
        reporter: &mut dyn Reporter,
    ) -> u64 {
        let Some(watched) = self.ledger.processes.get(owner) else {
            return 0;
        };
        hold(&self.ledger, watched, target, direction, folios);
        let class = watched.class;
        let now = world.now();
        // Moves from before it came are another's, which had its numbers.
        let lately = Millis(now.0.saturating_sub(RETURN_MS + 1)).max(watched.since);
        let mut returned = 0;
        let job = Job {
            owner,
            process: watched.process,
            target,
            direction: Some(direction),
            folios,
        };
        let why = Because(why.to_owned());
        let done = if self.config.dry_run {
            let done = Carrier::pretend(&self.ledger, job, &why, now, reporter);
            // They then count as pages that the kernel would not move, so that
            // each is told of once.
            let placement = &mut self.ledger.placement;
            for folio in folios {
                let end = folio.first.0 + u64::from(folio.pages);
                (folio.first.0..end).for_each(|page| placement.set_stuck(PageNumber(page)));
                let pages = u64::from(folio.pages);
                self.moved.push((folio.first, pages, Moved::Up));
            }
            done
        } else {
            let tell = match self.config.explain {
                true => Tell::Runs,
                false => Tell::Sums,
            };
            let way = match direction {
                Direction::Promotion => Moved::Up,
                Direction::Demotion => Moved::Down,
            };
            let (records, moves) = (&mut self.records, &mut self.moved);
            let account = &mut self.account;
            let on = |page: PageNumber, pages: u64, outcome| match outcome {
                Outcome::Moved { from } => {
                    let folio = Folio {
                        first: page,
                        pages: pages as u32,
                    };
                    returned += records.recent.returning(folio, way, lately);
                    records.recent.note(folio, way, now);
                    if let Some(rounds) = &records.rounds {
                        rounds.touched(page, pages);
                    }
                    moves.push((page, pages, way));
                    if let Some(account) = account {
                        account.moved(owner, pages, way == Moved::Up);
                        let at = folios.binary_search_by_key(&page, |folio| folio.first);
                        if let Some(hotness) = at.ok().and_then(|at| hot.get(at)) {
                            account.raised(owner, folio, from, hotness);
                        }
                    }
                }
                // Later may be better: the page stays asked for while it is hot.
                Outcome::Busy | Outcome::NoMemory => {
                    let at = folios.binary_search_by_key(&page, |folio| folio.first);
                    if let Some(hotness) = at.ok().and_then(|at| hot.get(at)) {
                        records.store.put_back(page, hotness, now);
                    }
                }
                // It is not there any more, or stays where it is for a while.
                _ if way == Moved::Up => moves.push((page, pages, way)),
                _ => {}
            };
            let ledger = &mut self.ledger;
            self.carrier
                .carry_out(world, ledger, job, HOW, (tell, &why), now, reporter, on)
        };
        self.failed_pages += done.failed;
        self.returned_pages += returned;
        let counter = match direction {
            Direction::Promotion => Counter::PgpromoteSuccess,
            Direction::Demotion => Counter::PgdemoteProactive,
        };
        self.counters.add(counter, done.moved);
        self.ledger
            .processes
            .moved(owner, direction, done.moved, returned);
        if direction == Direction::Promotion {
            self.pressed.promoted(class, done.moved);
        }
        if let Some(class) = class {
            self.budgets.moved(class, direction, done.moved, now);
            self.budgets.returned(class, returned);
        }
        done.moved
    }
}

/// Where the folios from `at` on end that have `most` pages, or the first of them alone; and their pages.
fn part(folios: &[Folio], at: usize, most: u64) -> (usize, u64) {
    let (mut end, mut pages) = (at, 0);
    for folio in &folios[at..] {
        let more = pages + u64::from(folio.pages);
        if end > at && more > most {
            break;
        }
        (end, pages) = (end + 1, more);
    }
    (end, pages)
}

/// What tiering promises of each move, whatever it was decided by. The first folio and the last
/// one stand for all: a job is of one decision.
fn hold(
    ledger: &Ledger,
    watched: &Watched,
    target: NodeId,
    direction: Direction,
    folios: &[Folio],
) {
    let nodes = ledger.topology.nodes();
    let tier = |node: NodeId| ledger.topology.node(node).and_then(|node| node.tier);
    match direction {
        Direction::Promotion => assert!(
            ledger.topology.is_top_tier(target),
            "a page is to be promoted to node {target}, which is not of the top tier"
        ),
        Direction::Demotion => assert!(
            nodes
                .iter()
                .any(|node| node.tier.is_some() && node.tier < tier(target)),
            "a page is to be demoted to node {target}, than which none is faster"
        ),
    }
    for folio in [folios.first(), folios.last()].into_iter().flatten() {
        let Some((owner, page)) = ledger.space.locate(folio.first) else {
            continue;
        };
        assert_eq!(
            owner, watched.owner,
            "a page of one process is to move as another's"
        );
        let may = watched.memory.may_move(page, target);
        assert!(
            !matches!(may, Err(Immovable::Mempolicy | Immovable::Cpuset)),
            "a page is to move to node {target}, where its owner does not allow it"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TierOptions;
    use crate::options::Tiered;
    use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
    use crate::tier::Class;
    use memtide_core::tiering::space::VirtualPage;

    /// Processes of 100 slow pages each, from address 0 on; the first two are in class 0.
    fn shared(pids: &[u32]) -> (FakeWorld, Shared) {
        let mut world = FakeWorld::two_tiers(1000, 1000);
        for (n, pid) in pids.iter().enumerate() {
            let mut process = FakeProcess::new(*pid, 0, 100, SLOW);
            process.class = (n < 2).then_some(ClassId(0));
            world.processes.push(process);
        }
        let (topology, page) = (world.topology().clone(), world.page());
        let mut config = TierConfig::new(&TierOptions::DEFAULT, &topology, page, 1).unwrap();
        assert_eq!(RETURN_MS, 2 * config.settle_ms);
        config.classes.push(Class {
            name: "db".into(),
            low: None,
            high: None,
            leave_alone: false,
            tiered: Tiered::default(),
            heed_pressure: true,
        });
        let mut shared = Shared::new(&world, config);
        refresh(&mut world, &mut shared);
        (world, shared)
    }

    fn refresh(world: &mut FakeWorld, shared: &mut Shared) {
        let now = world.now();
        let (ledger, records) = (&mut shared.ledger, &mut shared.records);
        let changes = ledger.processes.refresh(world, now).unwrap();
        for (owner, _) in changes.went {
            ledger.forget(owner, |section| records.remove_section(section));
        }
        for owner in changes.came {
            ledger.survey(world, owner).unwrap();
        }
    }

    /// Moves the first `pages` pages of the process in this slot at `ms`.
    fn go(world: &mut FakeWorld, shared: &mut Shared, ms: u64, slot: u32, up: bool, pages: u64) {
        world.now_ns = ms * 1_000_000;
        let owner = OwnerId(slot);
        let page = |n| shared.ledger.space.find(owner, VirtualPage(n)).unwrap();
        let folio = |n| Folio {
            first: page(n),
            pages: 1,
        };
        let folios: Vec<Folio> = (0..pages).map(folio).collect();
        let (target, direction) = match up {
            true => (FAST, Direction::Promotion),
            false => (SLOW, Direction::Demotion),
        };
        let job = (owner, target, direction);
        let moved = shared.move_folios(world, job, &folios, &[], "", &mut ());
        assert_eq!(moved, pages);
    }

    /// Of process, class and all.
    fn returned(shared: &Shared, slot: u32) -> [u64; 3] {
        let watched = shared.ledger.processes.get(OwnerId(slot)).unwrap();
        let class = shared.budgets.status()[0].returned_pages;
        [watched.returned_pages, class, shared.returned_pages]
    }

    #[test]
    fn a_page_that_moves_back_soon_has_returned() {
        let (mut world, mut shared) = shared(&[7]);
        let (world, shared) = (&mut world, &mut shared);
        go(world, shared, 1_000, 0, true, 1);
        assert_eq!(returned(shared, 0), [0; 3]);
        // Down and up again: two returns.
        go(world, shared, 31_000, 0, false, 1);
        go(world, shared, 61_000, 0, true, 1);
        assert_eq!(returned(shared, 0), [2; 3]);
        // The last moment, and a moment later.
        go(world, shared, 61_000 + RETURN_MS, 0, false, 1);
        assert_eq!(returned(shared, 0), [3; 3]);
        go(world, shared, 61_000 + 2 * RETURN_MS + 1, 0, true, 1);
        assert_eq!(returned(shared, 0), [3; 3]);
        let process = &shared.ledger.processes.get(OwnerId(0)).unwrap();
        assert_eq!((process.promoted_pages, process.demoted_pages), (3, 2));
    }

    /// 10 + 20 + 5 pages up at 1 s, of which 4 + 6 + 5 are down at 2 s.
    #[test]
    fn processes_and_classes_add_up() {
        let (mut world, mut shared) = shared(&[7, 8, 9]);
        let (world, shared) = (&mut world, &mut shared);
        for (slot, up, down) in [(0, 10, 4), (1, 20, 6), (2, 5, 5)] {
            go(world, shared, 1_000, slot, true, up);
            go(world, shared, 2_000, slot, false, down);
        }
        // Two are in the class.
        let all = [0, 1, 2].map(|slot| returned(shared, slot));
        assert_eq!(all, [[4, 10, 15], [6, 10, 15], [5, 10, 15]]);
    }

    /// What took over the numbers of pages of one that ended did not move before.
    #[test]
    fn who_comes_later_has_not_returned() {
        let (mut world, mut shared) = shared(&[7]);
        let (world, shared) = (&mut world, &mut shared);
        go(world, shared, 1_000, 0, true, 10);
        world.processes = vec![FakeProcess::new(8, 0, 100, FAST)];
        refresh(world, shared);
        assert_eq!(
            shared.ledger.processes.get(OwnerId(0)).unwrap().since.0,
            1_000
        );
        go(world, shared, 2_000, 0, false, 10);
        assert_eq!(returned(shared, 0)[2], 0);
        go(world, shared, 3_000, 0, true, 10);
        assert_eq!(returned(shared, 0)[2], 10);
    }
}
