//! What the parts of balancing share: what is known, and the hands to act with.

use super::config::BalanceConfig;
use crate::carry::{Carrier, Job, Reasons, Tell};
use crate::ledger::Ledger;
use crate::report::{Reporter, Spent, WhyStayed};
use crate::world::{MoveHow, Outcome, SharedPages, World};
use memtide_core::balancing::gate::Verdict;
use memtide_core::balancing::sampled::{PageMove, Sampled, SampledError, Stays};
use memtide_core::pages::Folio;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId, PageNumber};
use std::collections::BTreeMap;

/// How pages move: calls as short as threads that use the pages want them.
const HOW: MoveHow = MoveHow {
    batch: 1024,
    shared: SharedPages::Leave,
};

/// What all parts know.
#[derive(Debug)]
pub(super) struct Shared {
    pub config: BalanceConfig,
    pub ledger: Ledger,
    pub sampled: Sampled,
    pub counts: Counts,
    pub spent: Spent,
    /// Boot to start, in ms: the core's clock runs since boot, so that a process
    /// that is older than this run has its start delay behind it.
    boot_ms: u64,
    carrier: Carrier,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub samples: u64,
    pub local: u64,
    pub lost: u64,
    pub invalid_windows: u64,
    pub moved: u64,
    pub failed: u64,
    pub stays: Stays,
    pub proposed: usize,
    /// Samples and local ones at the last status.
    pub told: (u64, u64),
    /// Samples of the last turn.
    pub turn: u64,
}

impl Shared {
    pub fn new(world: &dyn World, config: BalanceConfig) -> Result<Shared, SampledError> {
        let mut ledger = Ledger::new(world, config.headroom);
        let left_alone = config.left_alone.iter().copied();
        let classless = config.classless_left_alone;
        ledger.processes.leave_alone(left_alone, classless);
        Ok(Shared {
            sampled: Sampled::new(config.sampled(&ledger.topology))?,
            counts: Counts::default(),
            spent: Spent::default(),
            boot_ms: world.boot_ms(),
            carrier: Carrier::default(),
            ledger,
            config,
        })
    }

    /// A moment of the world's as the core counts: since boot.
    pub fn since_boot(&self, at: Millis) -> Millis {
        Millis(self.boot_ms + at.0)
    }

    /// Whether memory of `node` is balancing's business.
    pub fn is_ours(&self, node: NodeId) -> bool {
        !self.config.beside_tiering || self.ledger.topology.is_top_tier(node)
    }

    /// Whether nothing of this process is to happen for now.
    pub fn is_paused(&self, owner: OwnerId) -> bool {
        let processes = &self.ledger.processes;
        let class = processes.get(owner).and_then(|watched| watched.class);
        processes.is_paused(class)
    }

    /// Moves all of `moves` and tells of it; the core hears of each whether it is
    /// where it should be now.
    pub fn carry_out(
        &mut self,
        world: &mut dyn World,
        moves: &[PageMove],
        reporter: &mut dyn Reporter,
    ) {
        let at = world.now();
        let now = self.since_boot(at);
        let mut jobs: BTreeMap<(OwnerId, NodeId), BTreeMap<PageNumber, &PageMove>> =
            BTreeMap::new();
        for wanted in moves {
            if let Some((owner, _)) = self.ledger.space.locate(wanted.page) {
                let job = jobs.entry((owner, wanted.to)).or_default();
                job.insert(wanted.page, wanted);
            }
        }
        for ((owner, target), wanted) in jobs {
            let Some(watched) = self.ledger.processes.get(owner) else {
                continue;
            };
            let folio = |wanted: &&PageMove| Folio {
                first: wanted.page,
                pages: wanted.pages,
            };
            let folios: Vec<Folio> = wanted.values().map(folio).collect();
            let job = Job {
                owner,
                process: watched.process,
                target,
                direction: None,
                folios: &folios,
            };
            let why = Because {
                wanted: &wanted,
                target,
            };
            let sampled = &mut self.sampled;
            let done = if self.config.dry_run {
                let done = Carrier::pretend(&self.ledger, job, &why, at, reporter);
                // They are taken for moved, so that each is told of once and the
                // share of local accesses is what it would be.
                for wanted in wanted.values() {
                    let pages = u64::from(wanted.pages);
                    let placement = &mut self.ledger.placement;
                    placement.set_run(wanted.page, pages, target, pages > 1);
                    sampled.outcome(wanted, true, now);
                }
                done
            } else {
                let tell = match self.config.explain {
                    true => Tell::Runs,
                    false => Tell::Sums,
                };
                let on = |page: PageNumber, _, outcome: Outcome| {
                    if let Some(wanted) = wanted.get(&page) {
                        sampled.outcome(wanted, outcome.is_there(), now);
                    }
                };
                let (ledger, carrier) = (&mut self.ledger, &mut self.carrier);
                carrier.carry_out(world, ledger, job, HOW, (tell, &why), at, reporter, on)
            };
            self.counts.moved += done.moved;
            self.counts.failed += done.failed + done.no_memory;
        }
    }
}

/// The gate's reason for each page.
struct Because<'a> {
    wanted: &'a BTreeMap<PageNumber, &'a PageMove>,
    target: NodeId,
}

impl Reasons for Because<'_> {
    type Key = Option<Verdict>;

    fn key(&self, first: PageNumber) -> Option<Verdict> {
        self.wanted.get(&first).map(|wanted| wanted.why)
    }

    fn moved(&self, key: Option<Verdict>) -> String {
        let why = key.map_or("it moved along", words);
        format!("used from node {}: {why}", self.target)
    }

    fn stayed(
        &self,
        _key: Option<Verdict>,
        outcome: Outcome,
    ) -> Option<(WhyStayed, Option<NodeId>)> {
        let to = self.target;
        let why = match outcome {
            Outcome::NotPresent | Outcome::ZeroOrUnmapped | Outcome::ProcessGone => return None,
            refused => refused.refusal(),
        };
        let why = format!("used from node {to}, but the kernel did not move it: {why}");
        Some((WhyStayed::Words(why), Some(to)))
    }
}

/// The gate's reason, for people.
fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NoMemory => "the node has no memory",
        Verdict::Stale => "nobody is known to have used it",
        Verdict::Young => "first user of the page, in a thread that was placed few times yet",
        Verdict::OtherNode => "another node used it just before",
        Verdict::Own => "the same thread used it twice in a row",
        Verdict::Alone => "the same node used it twice in a row",
        Verdict::MoreActive => "its group runs mostly there",
        Verdict::Balance => "its group has more memory elsewhere than it runs there",
        Verdict::Spread => "its group's memory is spread as its threads are",
    }
}
