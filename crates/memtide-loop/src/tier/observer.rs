//! What the source is asked to observe, and when.
//!
//! The core's cadence says when to look closely and when to glance; here that
//! becomes subjects: which pages of which processes. What comes back is
//! digested in [`super::intake`].

use super::broken::Broken;
use super::choice::{AnyRun, Candidate};
use super::config::TierConfig;
use super::exchange::Exchange;
use super::look_cost::LookCost;
use super::moving_time;
use super::refresh::News;
use super::searching::Searching;
use super::shared::Shared;
use super::subjects;
use crate::ledger::{Ledger, Watched};
use crate::random::Random;
use crate::records::Records;
use crate::world::{Abilities, SourceId, SourceStatus, Subject, World, WorldError};
use memtide_core::access;
use memtide_core::tiering::cadence::{Cadence, Observe, PassNews};
use memtide_core::tiering::sample::{self, Run};
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::{Millis, PageNumber};
use std::collections::BTreeMap;

/// The longest wait of a turn while every page is looked at, in ms.
const LOOK_PATIENCE_MS: u64 = 30;
/// The longest wait of a turn while something is expected, in ms.
const PATIENCE_MS: u64 = 100;
/// The longest wait of a turn while nothing is, in ms.
const IDLE_PATIENCE_MS: u64 = 1000;
/// While every page is looked at, reports are read each such part of a pass: passes are not all as long as the
/// last one.
const LOOK_PART: u64 = 8;
/// How long a source without glances rests between looks, in ms.
const REST_MS: u64 = 1000;
/// How long a look waits for room at most, in ms.
const CRAMPED_MS: u64 = 3000;
/// The most runs of pages that a look is asked to observe in one process.
const LOOK_RUNS: usize = 256;
/// How long a page that was demoted needs no look, in ms: it was idle.
const KNOWN_IDLE_MS: u64 = 10_000;
/// How long after it much that left as idle is looked at, in ms.
const DOUBT_MS: u64 = 2_000;
/// The least length of a stretch, in pages.
const STRETCH_PAGES: u64 = 64;
/// How often the cost of glances is charged, in ms: they are cheap, asking is not.
const ACCOUNT_MS: u64 = 2000;
/// How often stretches are chosen anew, in ms.
pub(super) const STRETCHES_MS: u64 = 2_000;
/// The most turns in which they are chosen.
const MOST_TURNS: u64 = 64;
/// A pass of a look is late after so long, in ms, and so many passes that are as long as the last one.
const LATE_MS: u64 = 5_000;
const LATE_PASSES: u64 = 20;
/// How long a pass of a look is taken to be before the first has ended, in ms.
pub(super) const FIRST_PASS_MS: u64 = 300;

/// The stretches of the top tier that are being glanced at: their length, and
/// whether this pass saw them touched.
pub(super) type Stretches = BTreeMap<(OwnerId, VirtualPage), (u64, bool)>;

/// The observer. See the module's essay.
#[derive(Debug)]
pub(super) struct Observer {
    pub source: SourceId,
    pub abilities: Abilities,
    pub cadence: Cadence,
    pub choice: AnyRun,
    /// The search, where that is the way to drive the source.
    pub searching: Option<Searching>,
    /// What the source was told; `None` if it must be told anew.
    pub told: Option<Observe>,
    pub told_at: Millis,
    /// Whether the look that it was told of last has ended already.
    look_ended: bool,
    /// Whose slow pages the last look was to take in. Not of a search's.
    looks_at: Vec<OwnerId>,
    /// Whether others are to be glanced at than the source was told beside the look, and when it was.
    pub glance_outdated: bool,
    glance_told_at: Millis,
    /// Whether a look is to begin as soon as none is being carried out: one that goes on
    /// does not take in what came meanwhile.
    pub look_wanted: bool,
    /// Looks that began, which of them was the last of which enough passes have ended, and
    /// how many of the present one have. Not of a search's.
    pub begun: u64,
    pub seen: u64,
    pub look_passes: u32,
    /// Whether the present look leaves out pages that it should take in.
    pub is_partial: bool,
    /// What left before is not taken for idle: a sample of it was seen in use, or it was
    /// much.
    pub doubted: Option<Millis>,
    /// When what left lately is to be looked at.
    doubts_due: Option<Millis>,
    /// Since when a look has been waiting for room.
    cramped_since: Option<Millis>,
    /// How long the last pass of a look took, and when it ended.
    pub pass_ms: u64,
    pub pass_ended: Millis,
    /// What the latest look costs. Not of a search's.
    pub look_cost: LookCost,
    /// How long the passes of the present look are; see [`Cadence::stretch`].
    stretch: u32,
    pub look_news: PassNews,
    pub glance_news: PassNews,
    pub stretches: Stretches,
    /// Whether there are more, which have their turns; and the next one's first.
    takes_turns: bool,
    turn: usize,
    /// Whether pages of them left for idleness since they were chosen: what is seen of
    /// these is news of slow pages.
    outdated: bool,
    /// Pages that looks in turns have taken in since the first page's turn.
    looked: u64,
    /// Complete passes of looks.
    pub passes: u64,
    /// The kernel's time as far as it is known, and the charged time in all, with ours;
    /// and when.
    pub kernel_cpu_ns: u64,
    charged_ns: u64,
    /// Reports that it had lost when it was last asked.
    lost: u64,
    accounted: Millis,
    random: Random,
    pub draws: subjects::Draws,
    /// What fast memory gives up where none of it is idle.
    pub exchange: Exchange,
}

/// What a look takes in.
pub(super) struct Looked {
    /// Pages that it should.
    wanted: u64,
    /// Pages that it does.
    taken: u64,
}

impl Looked {
    /// Pages that are left to later turns, if they are enough to be told of.
    pub fn skipped(&self) -> Option<(u64, u64)> {
        let skipped = self.wanted.saturating_sub(self.taken);
        (skipped > self.wanted / 10).then_some((self.taken, skipped))
    }
}

impl Observer {
    pub fn new(world: &dyn World, source: SourceId, config: &TierConfig, now: Millis) -> Observer {
        Observer {
            source,
            abilities: abilities(world, source),
            cadence: Cadence::new(config.cadence, now),
            choice: AnyRun::new(config.seed),
            searching: None,
            told: None,
            told_at: now,
            look_ended: false,
            looks_at: Vec::new(),
            glance_outdated: false,
            glance_told_at: now,
            look_wanted: false,
            begun: 0,
            seen: 0,
            look_passes: 0,
            is_partial: false,
            doubted: None,
            doubts_due: None,
            cramped_since: None,
            pass_ms: FIRST_PASS_MS,
            pass_ended: now,
            look_cost: LookCost::default(),
            stretch: 1,
            look_news: PassNews::default(),
            glance_news: PassNews::default(),
            stretches: Stretches::default(),
            takes_turns: false,
            turn: 0,
            outdated: false,
            looked: 0,
            passes: 0,
            kernel_cpu_ns: 0,
            charged_ns: 0,
            lost: 0,
            accounted: now,
            random: Random::new(config.seed),
            draws: subjects::Draws::default(),
            exchange: Exchange::default(),
        }
    }

    /// Whether its source is told what to observe: not one that samples, whose
    /// samples are heard by [`Listeners`](super::listeners::Listeners).
    pub fn is_told(&self) -> bool {
        self.abilities.passes || !self.abilities.samples
    }

    /// Looks may use so many thousandths of a CPU from now on.
    pub fn set_share(&mut self, now: Millis, permille: u32) {
        self.cadence.set_share(now, permille);
        if let Some(searching) = &mut self.searching {
            searching.search.set_budget(permille);
        }
    }

    /// The source broke: `next` takes its place.
    pub fn take_over(&mut self, world: &mut dyn World, next: SourceId) {
        self.source = next;
        self.abilities = abilities(world, next);
        self.drop_search(world.now());
        self.cadence.look_due();
        // Its clock of costs is its own. What it had cost before, others were charged.
        let status = match self.is_told() {
            true => world.source_status(next),
            false => SourceStatus::default(),
        };
        self.kernel_cpu_ns = status.kernel_cpu_ns;
        self.charged_ns = status.kernel_cpu_ns.saturating_add(status.own_cpu_ns);
        self.lost = status.lost;
    }

    /// What its source had come to when it was last asked.
    pub fn last_known(&self) -> Broken {
        Broken {
            kernel_cpu_ns: self.kernel_cpu_ns,
            lost: self.lost,
        }
    }

    /// Under which name accesses of the present source are counted.
    pub fn source_kind(&self, world: &dyn World) -> Option<access::Source> {
        let info = world.sources().get(usize::from(self.source.0));
        info.map(|info| info.kind)
    }

    /// How long the next turn may wait. While a look runs its end is near;
    /// glances say little, and that can wait, unless pages do.
    pub fn patience_ms(&self, pages_wait: bool) -> u64 {
        let waiting = pages_wait || !self.stretches.is_empty();
        match self.told {
            _ if self.searching.is_some() && !self.is_looking() => PATIENCE_MS,
            Some(Observe::Look) => LOOK_PATIENCE_MS,
            Some(Observe::Glance) if !waiting && self.abilities.glances => IDLE_PATIENCE_MS,
            _ => PATIENCE_MS,
        }
    }

    /// How long the search can be left alone, in ms. What glances see wakes nobody.
    pub fn search_due_ms(&self, now: Millis) -> u64 {
        let searching = self.searching.as_ref();
        let due_ms = searching.and_then(|searching| searching.search.due_ms(now));
        due_ms.unwrap_or(u64::MAX)
    }

    /// How long pages may be moved before what is reported meanwhile should be read, in ms.
    pub fn moving_ms(&self, now: Millis) -> u64 {
        let (least, most) = moving_time::TIMES_MS;
        let looks = self.is_looking() && self.abilities.passes && !self.look_ended;
        match (&self.searching, looks) {
            (Some(_), _) => self.search_due_ms(now).clamp(least, most),
            (None, true) => (self.pass_ms / LOOK_PART).clamp(least, most),
            (None, false) => most,
        }
    }

    /// Whether reports of a look would be lost if nobody read them for long.
    pub fn needs_a_reader(&self, now: Millis) -> bool {
        let searching = self.searching.as_ref();
        searching.is_some_and(|searching| searching.search.look_needs_a_reader(now))
    }

    /// Whether a look waits for room.
    pub fn is_cramped(&self) -> bool {
        self.cramped_since.is_some()
    }

    /// Counts looks that take in what came to slow memory: how many began, and the last
    /// of them that has seen each page twice.
    pub fn looks(&mut self) -> (u64, u64) {
        match &mut self.searching {
            Some(searching) => searching.search.seen(),
            None => (self.begun, self.seen),
        }
    }

    /// When the source was told last what the passes observe from which it is concluded how well
    /// classes are served: see [`Fairness`](super::fairness::Fairness).
    pub fn pass_told_at(&self) -> Millis {
        match &self.searching {
            Some(searching) => searching.glance_told_at,
            None => self.told_at,
        }
    }

    /// Whether `pages` cost too much to look at all of them: a pass costs more than can be saved up, and may be
    /// given up before its end.
    pub fn looks_are_dear(&self, pages: u64) -> bool {
        self.look_cost.of(pages) > self.cadence.config().burst_us as f64
    }

    /// Whether a look is being carried out.
    pub fn is_looking(&self) -> bool {
        self.told == Some(Observe::Look)
    }

    /// What the source should be told, if that is not what it was told last.
    /// `wanting` pages are hot and find no room.
    pub fn change(&mut self, ledger: &Ledger, wanting: u64, now: Millis) -> Option<Observe> {
        if !self.is_told() {
            self.told.get_or_insert(Observe::Glance);
            return None;
        }
        if self.doubts_due.is_some_and(|due| now >= due) {
            self.doubts_due = None;
            self.doubted = Some(now);
            self.look_wanted = true;
        }
        if self.look_wanted && (!self.is_looking() || self.look_ended) {
            self.look_wanted = false;
            self.cadence.look_due();
        }
        self.look_again(wanting, now);
        let observe = match self.cadence.observe(now) {
            Observe::Look if self.look_must_wait(ledger, now) => Observe::Glance,
            observe => observe,
        };
        // While hot pages wait for room, moving comes first; the glance at what
        // may leave goes on meanwhile.
        let moving = observe == Observe::Glance
            && self.is_looking()
            && wanting > 0
            && !self.stretches.is_empty();
        let again = match observe {
            Observe::Look => self.look_ended,
            // Other stretches have their turn, or pages of these have left.
            Observe::Glance => {
                let others = self.takes_turns || self.outdated;
                others && now.since(self.told_at) >= STRETCHES_MS
            }
        };
        ((self.told != Some(observe) || again) && !moving).then_some(observe)
    }

    /// Tells the source to `observe`. If that is a look, what it takes in.
    pub fn tell(
        &mut self,
        world: &mut dyn World,
        shared: &Shared,
        observe: Observe,
        now: Millis,
    ) -> Result<Option<Looked>, WorldError> {
        let first_time = self.told.replace(observe).is_none();
        self.told_at = now;
        self.begun += u64::from(observe == Observe::Look);
        self.look_passes = 0;
        self.look_ended = false;
        // A source that never completes a pass is not told to stop: it costs by
        // what happens, not by what there is.
        if observe == Observe::Glance && !self.abilities.passes {
            return Ok(None);
        }
        self.look_news = PassNews::default();
        self.glance_news = PassNews::default();
        if self.abilities.glances && (first_time || observe == Observe::Glance) {
            self.tell_glance(world, shared, observe, now)?;
        }
        if observe == Observe::Glance {
            world.look(self.source, &[], shared.config.look_every_ms)?;
            return Ok(None);
        }
        let looked = self.look(world, shared, now)?;
        self.is_partial = looked.skipped().is_some();
        if looked.taken == 0 {
            // No pass will end of a look at nothing.
            self.cadence.pass_done(now, PassNews::default());
        }
        if self.abilities.glances && looked.skipped().is_some() {
            // Until as many were looked at as there are, the next turn is soon.
            self.looked += looked.taken;
            if self.looked < looked.wanted {
                self.cadence.look_is_partial();
            } else {
                self.looked = 0;
            }
        } else {
            self.looked = 0;
        }
        Ok(Some(looked))
    }

    /// Ends a look that has seen enough at once: what comes next takes time in
    /// which it would only cost.
    pub fn end_look(
        &mut self,
        world: &mut dyn World,
        config: &TierConfig,
        now: Millis,
    ) -> Result<(), WorldError> {
        let looking = self.is_looking() && self.abilities.passes && !self.look_ended;
        if looking && self.cadence.observe(now) == Observe::Glance {
            world.look(self.source, &[], config.look_every_ms)?;
            self.look_ended = true;
        }
        Ok(())
    }

    /// Gives a look that goes on the passes that it should have by now.
    pub fn stretch_look(
        &mut self,
        world: &mut dyn World,
        shared: &Shared,
        now: Millis,
    ) -> Result<(), WorldError> {
        let looking = self.is_looking() && self.abilities.passes;
        let goes_on = looking && !self.look_ended && self.cadence.observe(now) == Observe::Look;
        if goes_on && self.cadence.stretch() != self.stretch {
            self.look(world, shared, now)?;
        }
        Ok(())
    }

    /// Memory came or went. A look that is under way goes on if no slow memory did, and only the glance is told
    /// anew: where passes are long, and programs come and go all the time, none would ever end. It begins anew
    /// where its pass is late, too: its end may be lost. A search is told otherwise.
    pub fn memory_changed(&mut self, news: &News, now: Millis) {
        // Who comes in the place of one that went has other memory.
        self.stretches
            .retain(|(owner, _), _| !news.went.contains(owner));
        if self.searching.is_some() {
            return;
        }
        let looking = self.is_looking() && !self.look_ended && self.abilities.passes;
        let slow = news.slow || self.looks_at.iter().any(|owner| news.went.contains(owner));
        let since = now.since(self.told_at.max(self.pass_ended));
        let is_late = since >= LATE_MS + LATE_PASSES * self.pass_ms;
        if looking && !slow && !is_late {
            self.glance_outdated = true;
            return;
        }
        self.told = None;
        self.cadence.look_due();
    }

    /// Whether the source is to be told anew what to glance at beside the look. Not so often that no glance would
    /// come to its end.
    pub fn glances_anew(&self, now: Millis) -> bool {
        let due = now.since(self.glance_told_at) >= STRETCHES_MS;
        self.glance_outdated && self.told.is_some() && due
    }

    /// Tells it so.
    pub fn glance_anew(
        &mut self,
        world: &mut dyn World,
        shared: &Shared,
        now: Millis,
    ) -> Result<(), WorldError> {
        self.glance_outdated = false;
        let Some(observe) = self.told.filter(|_| self.abilities.glances) else {
            return Ok(());
        };
        self.glance_news = PassNews::default();
        self.tell_glance(world, shared, observe, now)
    }

    fn tell_glance(
        &mut self,
        world: &mut dyn World,
        shared: &Shared,
        observe: Observe,
        now: Millis,
    ) -> Result<(), WorldError> {
        (self.glance_outdated, self.glance_told_at) = (false, now);
        let glance = self.glance_subjects(shared, observe);
        // Evidence for demotion is wanted sooner than news of hot pages.
        let pace = if self.stretches.is_empty() { 2 } else { 1 };
        world.glance(self.source, &glance, shared.config.glance_every_ms * pace)
    }

    /// Others may have to be glanced at than now: it is chosen anew. A look goes on.
    pub fn chooses_anew(&mut self) {
        if self.searching.is_none() && !self.is_looking() {
            self.told = None;
        }
    }

    /// Pages left the top tier for idleness, and are slow ones to look at from now on.
    pub fn pages_left(&mut self, world: &mut dyn World, shared: &Shared, now: Millis) {
        self.outdated = self.abilities.glances;
        self.take_up_search(world, shared, now);
    }

    /// Much left the top tier as idle, by samples: some of it may be in use.
    pub fn many_left(&mut self, now: Millis) {
        if self.abilities.glances {
            self.doubts_due.get_or_insert(Millis(now.0 + DOUBT_MS));
        }
    }

    /// Charges what observing has cost since the last call.
    pub fn account(&mut self, world: &mut dyn World, now: Millis) {
        let cheap = self.told == Some(Observe::Glance);
        if !self.is_told() {
            return;
        }
        if cheap && now.since(self.accounted) < ACCOUNT_MS {
            return;
        }
        self.accounted = now;
        let since = self.newly_spent_ns(world);
        self.cadence.spent(since / 1000);
        if self.is_looking() && !self.look_ended {
            self.look_cost.us += since / 1000;
        }
    }

    /// What observing has cost that was not asked for yet, in ns, whoever it was
    /// charged to.
    pub fn newly_spent_ns(&mut self, world: &mut dyn World) -> u64 {
        let status = world.source_status(self.source);
        let spent = status.kernel_cpu_ns.saturating_add(status.own_cpu_ns);
        let since = spent.saturating_sub(self.charged_ns);
        self.charged_ns = self.charged_ns.max(spent);
        self.kernel_cpu_ns = self.kernel_cpu_ns.max(status.kernel_cpu_ns);
        self.lost = self.lost.max(status.lost);
        since
    }

    /// A close look takes memory of the kernel's, which comes from fast nodes.
    /// Where they lack even their headroom, a glance first finds what can leave;
    /// but not for ever, as perhaps nothing can.
    pub fn look_must_wait(&mut self, ledger: &Ledger, now: Millis) -> bool {
        let targets = ledger.preferred_targets();
        let cramped = targets.iter().any(|(_, top)| ledger.rooms.takes(*top) == 0);
        let looking = self.is_looking() && !self.look_ended;
        if !cramped || !self.abilities.glances || looking {
            self.cramped_since = None;
            return false;
        }
        now.since(*self.cramped_since.get_or_insert(now)) < CRAMPED_MS
    }

    /// A source without glances rests instead, and looks again after that, or at
    /// once while hot pages wait for idle ones to leave.
    fn look_again(&mut self, wanting: u64, now: Millis) {
        let resting = self.told == Some(Observe::Glance) && !self.abilities.glances;
        let rested = now.since(self.told_at) >= REST_MS || wanting > 0;
        if resting && self.abilities.passes && rested {
            self.cadence.look_due();
        }
    }

    /// Begins a look with passes as long as they should be now.
    fn look(
        &mut self,
        world: &mut dyn World,
        shared: &Shared,
        now: Millis,
    ) -> Result<Looked, WorldError> {
        let (subjects, wanted) = self.look_subjects(shared, now);
        self.stretch = self.cadence.stretch();
        let interval_ms = shared.config.look_every_ms * u64::from(self.stretch);
        let taken = world.look(self.source, &subjects, interval_ms)?;
        if taken > 0 {
            self.look_cost = LookCost::over(taken);
        }
        // A source without glances looks at fast pages, too.
        let slow_only = self.abilities.glances;
        let is_slow = |owner: &OwnerId| {
            let watched = shared.ledger.processes.get(*owner);
            slow_only
                || watched.is_some_and(|watched| {
                    !subjects::runs_by_tier(&shared.ledger, watched, false).is_empty()
                })
        };
        let owners = subjects.iter().map(|subject| subject.owner);
        self.looks_at = owners.filter(is_slow).collect();
        Ok(Looked { wanted, taken })
    }

    /// Every page of the lower tiers except those that were just sent there and
    /// are taken for idle; for a source that looks cheaply and
    /// offers no glances, every page. And how many there are, which may be more
    /// than one look should take.
    fn look_subjects(&mut self, shared: &Shared, now: Millis) -> (Vec<Subject>, u64) {
        let Shared {
            config,
            ledger,
            records,
            ..
        } = shared;
        let everything = !self.abilities.glances;
        let known_ms = match self.doubted {
            Some(at) => KNOWN_IDLE_MS.min(now.since(at)),
            None => KNOWN_IDLE_MS,
        };
        let recent = &records.recent;
        let idle = |page| recent.left_idle_within(page, known_ms, now);
        let some_idle = recent.any_down_within(known_ms, now);
        let mut pages = 0;
        let mut candidates: Vec<Candidate> = Vec::new();
        for watched in ledger.processes.iter() {
            // By runs where no page need be asked about: by pages costs by the memory.
            let runs = match everything || some_idle {
                true => subjects::runs(ledger, watched, |page, node| {
                    everything || (!ledger.topology.is_top_tier(node) && !idle(page))
                }),
                false => subjects::runs_by_tier(ledger, watched, false),
            };
            let runs = sample::joined(&runs, LOOK_RUNS);
            pages += runs.iter().map(|run| run.pages).sum::<u64>();
            if !runs.is_empty() {
                let owner = watched.owner;
                candidates.push(Candidate { owner, runs });
            }
        }
        if !everything {
            self.choice.choose(&mut candidates, config.look_pages);
        }
        let subject = |candidate: &Candidate| {
            let watched = ledger.processes.get(candidate.owner)?;
            Some(subjects::whole(watched, &candidate.runs))
        };
        (candidates.iter().filter_map(subject).collect(), pages)
    }

    /// A sample of the lower tiers, unless a look is at them anyway, and
    /// stretches of the top tier if promotions may find it full; or of those who
    /// have nearly all that they may have of it.
    pub fn glance_subjects(&mut self, shared: &Shared, observe: Observe) -> Vec<Subject> {
        let (ledger, config) = (&shared.ledger, &shared.config);
        self.stretches.clear();
        self.outdated = false;
        self.draws.begin(ledger);
        let runs = |top: bool, wanted: &dyn Fn(&Watched) -> bool| -> Vec<Vec<Run>> {
            let of = |watched| match wanted(watched) {
                true => subjects::runs_by_tier(ledger, watched, top),
                false => Vec::new(),
            };
            ledger.processes.iter().map(of).collect()
        };
        let lower = runs(false, &|_| observe == Observe::Glance);
        let scarce = room_is_scarce(ledger);
        let turns = turns_of_stretches(shared, scarce);
        let top = runs(true, &|watched| {
            let tiered = shared.budgets.tiered(watched.class);
            let paused = ledger.processes.is_paused(watched.class);
            let long = config.idle.is_some() && tiered.demote_idle && !paused;
            tiered.demote && (scarce || shared.budgets.is_tight(watched.class) || long)
        });
        let samples = subjects::shares(&totals(&lower), config.samples);
        let most = config.stretches * turns.unwrap_or(1);
        let pieces = subjects::shares(&totals(&top), most);
        let cut = |(runs, pieces): (&Vec<Run>, &u64)| {
            let mut stretches: Vec<Run> = sample::stretches(runs, *pieces, STRETCH_PAGES);
            if turns.is_none() {
                // Short runs are many and say little: only as many as asked for.
                stretches.sort_by_key(|run| std::cmp::Reverse(run.pages));
                stretches.truncate(*pieces as usize + 1);
            }
            stretches
        };
        let mut cut: Vec<Vec<Run>> = top.iter().zip(&pieces).map(cut).collect();
        self.takes_turns = turns.is_some() && self.next_turn(&mut cut, config.stretches);
        let mut subjects = Vec::new();
        for (n, watched) in ledger.processes.iter().enumerate() {
            let pages = (self.draws).draw(watched.owner, &lower[n], samples[n], &mut self.random);
            let stretches = &cut[n];
            if pages.is_empty() && stretches.is_empty() {
                continue;
            }
            for run in stretches {
                self.stretches
                    .insert((watched.owner, run.first), (run.pages, false));
            }
            subjects.push(subjects::sampled(watched, &pages, stretches));
        }
        subjects
    }

    /// Leaves those of `all` whose turn it is: about `most` that follow those of the last
    /// turn. Whether there are others.
    fn next_turn(&mut self, all: &mut [Vec<Run>], most: u64) -> bool {
        let total: usize = all.iter().map(Vec::len).sum();
        let most = most as usize;
        if total <= most {
            return false;
        }
        let from = if self.turn < total { self.turn } else { 0 };
        let to = from + most;
        self.turn = to;
        let mut before = 0;
        for stretches in all {
            let here = before..before + stretches.len();
            before = here.end;
            stretches.truncate(to.clamp(here.start, here.end) - here.start);
            stretches.drain(..from.clamp(here.start, here.end) - here.start);
        }
        true
    }
}

/// Whether no look is due for `page`: it was idle when it left.
pub(super) fn is_taken_for_idle(records: &Records, page: PageNumber, now: Millis) -> bool {
    records.recent.left_idle_within(page, KNOWN_IDLE_MS, now)
}

/// In how many turns stretches of the top tier are glanced at, where that takes its time:
/// only pages that nobody touches for long are looked for. They are the shorter for it:
/// one page in use does not speak for so many. All have had their turn in half a round.
fn turns_of_stretches(shared: &Shared, scarce: bool) -> Option<u64> {
    let rule = shared.config.idle.as_ref()?;
    if scarce || shared.budgets.any_tight() {
        return None;
    }
    Some((rule.round_ms() / 2 / STRETCHES_MS).clamp(1, MOST_TURNS))
}

/// The source that is told what to look at, where there is one: the first that
/// completes passes, else one that does not sample, else the first of all.
pub(super) fn main_source(world: &dyn World) -> SourceId {
    let sources = world.sources();
    let passes = sources.iter().position(|info| info.abilities.passes);
    let told = || sources.iter().position(|info| !info.abilities.samples);
    SourceId(passes.or_else(told).unwrap_or(0) as u8)
}

fn abilities(world: &dyn World, source: SourceId) -> Abilities {
    let sources = world.sources();
    let info = sources.get(usize::from(source.0));
    info.map(|info| info.abilities).unwrap_or_default()
}

/// Whether not all pages of the lower tiers would fit into the top tier.
pub(super) fn room_is_scarce(ledger: &Ledger) -> bool {
    let lower = ledger.lower_pages();
    lower > 0 && ledger.top_room() < lower
}

fn totals(runs: &[Vec<Run>]) -> Vec<u64> {
    let total = |runs: &Vec<Run>| runs.iter().map(|run| run.pages).sum();
    runs.iter().map(total).collect()
}
