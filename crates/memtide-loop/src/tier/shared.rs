//! What the parts of tiering share: what is known, and the hands to act with.

use super::budgets::Budgets;
use super::config::TierConfig;
use crate::carry::{Carrier, Job, Reasons, Tell};
use crate::ledger::{Ledger, SECTIONS, Watched};
use crate::records::Records;
use crate::report::{Direction, Reporter, Stay, WhyStayed};
use crate::world::{ClassId, MoveHow, Outcome, SharedPages, World};
use memtide_core::demotion::IdleRounds;
use memtide_core::hotness::{Hotness, SECTION_PAGES};
use memtide_core::pages::{Folio, Immovable};
use memtide_core::promotion::Moved;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{NodeId, PageNumber};
use memtide_core::vmstat::{Counter, Counters};

/// How pages move: the fixed cost of a call falls on us, not on whoever is moved.
pub(super) const HOW: MoveHow = MoveHow {
    batch: 2048,
    shared: SharedPages::Move,
};

/// What all parts know.
#[derive(Debug)]
pub(super) struct Shared {
    pub config: TierConfig,
    pub ledger: Ledger,
    pub records: Records,
    pub counters: Counters,
    pub budgets: Budgets,
    /// Pages that the kernel would not move.
    pub failed_pages: u64,
    /// Pages that came to a lower tier or left it, or will not leave it soon,
    /// since the search was last told.
    pub moved: Vec<(PageNumber, u64, Moved)>,
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

impl Shared {
    pub fn new(world: &dyn World, config: TierConfig) -> Shared {
        let pages = u64::from(SECTIONS) * SECTION_PAGES as u64;
        let mut ledger = Ledger::new(world, config.headroom);
        let classes = (0..).map(ClassId).zip(&config.classes);
        let left_alone = classes.filter(|(_, class)| class.leave_alone);
        (ledger.processes).leave_alone(left_alone.map(|(class, _)| class));
        let mut records = Records::new(config.hotness, pages);
        records.rounds = config.idle.as_ref().map(|_| IdleRounds::new(pages));
        Shared {
            ledger,
            records,
            counters: Counters::default(),
            budgets: Budgets::new(&config),
            failed_pages: 0,
            moved: Vec::new(),
            carrier: Carrier::default(),
            config,
        }
    }

    /// Moves `folios` of one owner, in order of their dense numbers, with the
    /// hotness of each if they go up. How many base pages moved, or would have.
    pub fn move_folios(
        &mut self,
        world: &mut dyn World,
        (owner, target, direction): (OwnerId, NodeId, Direction),
        folios: &[Folio],
        hot: &[Hotness],
        why: String,
        reporter: &mut dyn Reporter,
    ) -> u64 {
        let Some(watched) = self.ledger.processes.get(owner) else {
            return 0;
        };
        hold(&self.ledger, watched, target, direction, folios);
        let class = watched.class;
        let job = Job {
            owner,
            process: watched.process,
            target,
            direction: Some(direction),
            folios,
        };
        let now = world.now();
        let why = Because(why);
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
            let on = |page: PageNumber, pages, outcome| match outcome {
                Outcome::Moved { .. } => {
                    records.recent.note(page, way, now);
                    if let Some(rounds) = &records.rounds {
                        rounds.touched(page, pages);
                    }
                    moves.push((page, pages, way));
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
        let counter = match direction {
            Direction::Promotion => Counter::PgpromoteSuccess,
            Direction::Demotion => Counter::PgdemoteProactive,
        };
        self.counters.add(counter, done.moved);
        self.ledger.processes.moved(owner, direction, done.moved);
        if let Some(class) = class {
            self.budgets.moved(class, direction, done.moved, now);
        }
        done.moved
    }
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
