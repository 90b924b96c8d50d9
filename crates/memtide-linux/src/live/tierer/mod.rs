//! The loop that keeps pages on the tiers where they belong.
//!
//! One [`Tierer::step`] is one turn: listen to the source, record what was
//! touched, let the core decide, move, note what became of it. The order of
//! things is the core's; here is only what a live kernel adds: processes come
//! and go, memory is mapped and unmapped, moves fail.
//!
//! Nothing of the kernel's is changed except where pages are and, by the
//! source, what it needs to observe; the source puts that back itself.

mod decide;
mod flush;
mod listen;
mod observe;
mod refresh;

use super::kernel::RunningKernel;
use super::processes::{Processes, Selection};
use super::report::{Event, Reporter, Status};
use super::survey::{SurveyError, Surveyor};
use super::view::{Machine, Rooms};
use crate::fs::{FsError, Root, zoneinfo};
use crate::mover::{self, Mover, SharedPages};
use crate::source::observe::{Source, SourceError};
use crate::sys::mempolicy;
use flush::Flusher;
use listen::{Reports, Stretches};
use memtide_core::demotion::{Cursor, IdleStore};
use memtide_core::hotness::{self, SECTION_PAGES, Store};
use memtide_core::promotion::{Gate, GateConfig, RecentMoves, ThresholdFree};
use memtide_core::tiering::cadence::{Cadence, CadenceConfig, Observe, PassNews};
use memtide_core::tiering::placement::Placement;
use memtide_core::tiering::space::Space;
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, PageSize};
use memtide_core::vmstat::{Counter, Counters};
use refresh::Surveyed;
use std::time::{Duration, Instant};

/// How the loop works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which processes.
    pub selection: Selection,
    /// When a page counts as hot.
    pub hotness: hotness::Config,
    /// The gate's settings.
    pub gate: GateConfig,
    /// Choose the pages that just fill the fast tier, if moving them pays,
    /// instead of all that are hot.
    pub threshold_free: Option<ThresholdFree>,
    /// Pages that stay free on each node beyond its high watermark.
    pub headroom: u64,
    /// How much observing may cost.
    pub cadence: CadenceConfig,
    /// The length of a pass of a look.
    pub look_every: Duration,
    /// The length of a pass of a glance.
    pub glance_every: Duration,
    /// Single pages of the lower tiers that a glance observes.
    pub samples: u64,
    /// Stretches of the top tier that a glance observes when room is scarce.
    pub stretches: u64,
    /// Complete observations in a row that must find a page untouched before it
    /// may be demoted.
    pub idle_passes: u8,
    /// And how long these must reach back.
    pub idle_ms: u64,
    /// A page stays on the fast tier at least this long after its promotion.
    pub settle_ms: u64,
    /// The most pages that one look takes in.
    pub look_pages: u64,
    /// Decide and report, but move nothing.
    pub dry_run: bool,
    /// Report of pages that stay, too.
    pub explain: bool,
    /// Where random choices start.
    pub seed: u64,
}

/// Why the loop cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TiererError {
    /// A file of the kernel's.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Where pages are.
    #[error(transparent)]
    Survey(#[from] SurveyError),
}

/// The largest space: 2 TiB of watched addresses.
const SECTIONS: u32 = 16_384;
/// The longest wait of a turn while every page is looked at.
const LOOK_PATIENCE: Duration = Duration::from_millis(30);
/// The longest wait of a turn while something is expected.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest wait of a turn while nothing is.
const IDLE_PATIENCE: Duration = Duration::from_millis(1000);
/// How often is decided without news, in ms.
const DECIDE_MS: u64 = 2000;
/// How often room is looked for while hot pages wait for it, in ms.
const RETRY_MS: u64 = 100;
/// How often the gate is asked although no target has room, in ms.
const PROMOTE_MS: u64 = 1000;
/// How often the cost of glances is charged, in ms: they are cheap, asking is not.
const ACCOUNT_MS: u64 = 2000;
/// Moves that are remembered, so that pages do not go to and fro.
const RECENT_MOVES: usize = 1 << 17;

/// The loop. See the module's essay.
pub struct Tierer {
    root: Root,
    topology: Topology,
    page: PageSize,
    options: Options,
    start: Instant,
    source: Box<dyn Source>,
    processes: Processes,
    space: Space,
    placement: Placement,
    store: Store,
    idle: IdleStore,
    recent: RecentMoves,
    gate: Gate,
    cursor: Cursor,
    counters: Counters,
    surveyor: Surveyor<RunningKernel>,
    mover: Mover<RunningKernel>,
    cadence: Cadence,
    told: Option<Observe>,
    told_at: Millis,
    /// Since when a look has been waiting for room.
    cramped_since: Option<Millis>,
    flushers: Vec<Flusher>,
    flushed: Millis,
    /// How often to flush while glancing, after what the last time cost.
    glance_flush_ms: u64,
    /// How long the last pass of a look took, and when it ended.
    pass_ms: u64,
    pass_ended: Millis,
    /// How long the passes of the present look are; see [`Cadence::stretch`].
    stretch: u32,
    reports: Reports,
    look_news: PassNews,
    glance_news: PassNews,
    stretches: Stretches,
    /// Pages that looks in turns have taken in since the first page's turn.
    looked: u64,
    rooms: Rooms,
    refreshed: Option<Millis>,
    surveyed: Vec<Surveyed>,
    unstuck: Millis,
    expired: Millis,
    /// Pages that found no room in the last round of promotions.
    wanting: u64,
    /// Pages that are hot and were refused for now in the last round.
    refused: u64,
    /// Whether a page became ready since the last decision.
    news: bool,
    decided: Millis,
    promoted: Millis,
    accounted: Millis,
    kernel_cpu: Duration,
    failed_pages: u64,
    passes: u64,
    random: u64,
}

impl Tierer {
    /// Keeps this process's own memory off fast nodes where there is a choice:
    /// the keeper of fast memory should be the last to use it. Best done first,
    /// as it holds for memory that is taken later.
    pub fn stay_off_fast_memory(topology: &Topology) {
        let lower = topology
            .nodes()
            .iter()
            .filter(|node| !node.top_tier && node.has_memory());
        let mut mask = vec![0u64; usize::from(memtide_core::units::NodeId::LIMIT) / 64];
        for node in lower {
            mask[node.id.index() / 64] |= 1 << (node.id.index() % 64);
        }
        // A wish, not a need: a kernel or a sandbox that refuses is no reason
        // to stop.
        let _ = mempolicy::set_policy(mempolicy::PREFERRED_MANY, &mask);
    }

    /// A loop over the machine under `root` that listens to `source`.
    pub fn new(
        root: Root,
        topology: Topology,
        page: PageSize,
        source: Box<dyn Source>,
        options: Options,
    ) -> Tierer {
        let kernel = RunningKernel::new(root.clone());
        let pages = u64::from(SECTIONS) * SECTION_PAGES as u64;
        let nodes = topology
            .nodes()
            .last()
            .map_or(1, |node| node.id.index() + 1);
        let mover = mover::Config {
            // The fixed cost of a call falls on us, not on whoever is moved.
            batch: 2048,
            base: page,
            shared: SharedPages::Move,
            ..Default::default()
        };
        Tierer {
            processes: Processes::new(root.clone(), page, options.selection.clone()),
            space: Space::new(SECTIONS),
            placement: Placement::new(),
            store: Store::new(options.hotness, pages),
            idle: IdleStore::new(pages),
            recent: RecentMoves::new(RECENT_MOVES),
            gate: Gate::new(options.gate, nodes),
            cursor: Cursor::default(),
            counters: Counters::default(),
            surveyor: Surveyor::new(kernel.clone(), page),
            mover: Mover::new(kernel, mover),
            cadence: Cadence::new(options.cadence, Millis(0)),
            told: None,
            told_at: Millis(0),
            cramped_since: None,
            flushers: Vec::new(),
            flushed: Millis(0),
            glance_flush_ms: 0,
            pass_ms: 300,
            pass_ended: Millis(0),
            stretch: 1,
            reports: Reports::default(),
            look_news: PassNews::default(),
            glance_news: PassNews::default(),
            stretches: Stretches::default(),
            looked: 0,
            rooms: Rooms::default(),
            refreshed: None,
            surveyed: Vec::new(),
            unstuck: Millis(0),
            expired: Millis(0),
            wanting: 0,
            refused: 0,
            news: false,
            decided: Millis(0),
            promoted: Millis(0),
            accounted: Millis(0),
            kernel_cpu: Duration::ZERO,
            failed_pages: 0,
            passes: 0,
            random: options.seed,
            start: Instant::now(),
            root,
            topology,
            page,
            options,
            source,
        }
    }

    /// One turn, which waits for something to happen, at most half a second.
    /// Returns whether any managed process is left.
    pub fn step(&mut self, reporter: &mut dyn Reporter) -> Result<bool, TiererError> {
        let patience = self.patience();
        self.refresh(reporter)?;
        self.tell_source(reporter)?;
        self.flush_translations();
        self.source.poll(patience, &mut self.reports)?;
        self.account();
        self.digest(reporter);
        self.end_look()?;
        if self.decision_due() {
            self.read_rooms()?;
            if self.promotion_may_help() {
                self.promote(reporter);
            }
            self.demote(reporter);
        }
        self.stretch_look()?;
        Ok(!self.processes.is_empty())
    }

    /// Where things stand.
    pub fn status(&self) -> Status {
        let top = |top: bool| {
            let nodes = self
                .topology
                .nodes()
                .iter()
                .filter(|node| node.top_tier == top);
            nodes.map(|node| self.placement.resident(node.id)).sum()
        };
        Status {
            at_ms: self.now().0,
            processes: self.processes.len(),
            top_pages: top(true),
            lower_pages: top(false),
            pgpromote_success: self.counters.get(Counter::PgpromoteSuccess),
            pgpromote_candidate: self.counters.get(Counter::PgpromoteCandidate),
            pgpromote_candidate_nrl: self.counters.get(Counter::PgpromoteCandidateNrl),
            pgdemote_proactive: self.counters.get(Counter::PgdemoteProactive),
            pghot_recorded_accesses: self.counters.get(Counter::PghotRecordedAccesses),
            failed_pages: self.failed_pages,
            passes: self.passes,
            lost: self.source.lost(),
            free_pages: self.rooms.free(),
            observing: match self.told {
                Some(Observe::Look) => "look",
                Some(Observe::Glance) => "glance",
                None => "start",
            },
            cpu: own_cpu(),
            kernel_cpu: self.kernel_cpu,
        }
    }

    /// Ends observation and puts back what the source changed.
    pub fn finish(&mut self) -> Result<(), TiererError> {
        self.recall_flushers();
        self.source.close()?;
        self.account();
        Ok(())
    }

    /// How long the next turn may wait. While a look runs its end is near;
    /// glances say little, and that can wait.
    fn patience(&self) -> Duration {
        let waiting = self.wanting > 0 || self.refused > 0 || !self.stretches.is_empty();
        match self.told {
            Some(Observe::Look) => LOOK_PATIENCE,
            Some(Observe::Glance) if !waiting && self.source.abilities().glances => IDLE_PATIENCE,
            _ => PATIENCE,
        }
    }

    /// Whether something became ready, something is waiting for room, or it is
    /// time to see whether ready pages that were refused are admitted now.
    fn decision_due(&mut self) -> bool {
        let now = self.now();
        let waiting = self.wanting > 0 || self.refused > 0 || self.cramped_since.is_some();
        let wait = if waiting { RETRY_MS } else { DECIDE_MS };
        let due = self.news || now.since(self.decided) >= wait;
        if due {
            self.decided = now;
            self.news = false;
        }
        due
    }

    /// Whether asking the gate makes sense: pages that wait for room are asked
    /// for again only when there is some, and counted as candidates once.
    fn promotion_may_help(&mut self) -> bool {
        let now = self.now();
        let roomy = self
            .preferred_targets()
            .iter()
            .any(|(_, target)| self.rooms.takes(*target) > 0);
        let due = roomy || now.since(self.promoted) >= PROMOTE_MS;
        if due {
            self.promoted = now;
        }
        due
    }

    fn now(&self) -> Millis {
        Millis(self.start.elapsed().as_millis() as u64)
    }

    fn read_rooms(&mut self) -> Result<(), TiererError> {
        let zones = zoneinfo::read(&self.root)?;
        self.rooms = Rooms::new(&self.topology, &zones, self.options.headroom);
        Ok(())
    }

    /// The machine as the core sees it.
    fn machine(&self) -> Machine<'_> {
        Machine {
            space: &self.space,
            placement: &self.placement,
            processes: &self.processes,
            rooms: &self.rooms,
        }
    }

    /// Charges what observing has cost since the last call.
    fn account(&mut self) {
        let now = self.now();
        let cheap = self.told == Some(Observe::Glance);
        if cheap && now.since(self.accounted) < ACCOUNT_MS {
            return;
        }
        self.accounted = now;
        let spent = self.source.kernel_time();
        let since = spent.saturating_sub(self.kernel_cpu);
        self.cadence.spent(since.as_micros() as u64);
        self.kernel_cpu = self.kernel_cpu.max(spent);
    }

    /// SplitMix64: good enough to choose samples, and the same for the same seed.
    fn next_random(random: &mut u64) -> u64 {
        *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn notice(&self, text: String, reporter: &mut dyn Reporter) {
        reporter.event(self.now(), Event::Notice { text });
    }
}

/// Processor time that this process has used.
fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
