//! What the source is asked to observe, and when.

use super::super::report::Reporter;
use super::super::subjects;
use super::{Tierer, TiererError};
use crate::source::observe::Subject;
use memtide_core::promotion::Moved;
use memtide_core::tiering::cadence::{Observe, PassNews};
use memtide_core::tiering::sample::{self, Run};
use memtide_core::units::Millis;

/// How long a source without glances rests between looks, in ms.
const REST_MS: u64 = 1000;
/// How long a look waits for room at most, in ms.
const CRAMPED_MS: u64 = 3000;
/// The most runs of pages that a look is asked to observe in one process.
const LOOK_RUNS: usize = 256;
/// How long a page that was demoted needs no look, in ms: it was idle.
const KNOWN_IDLE_MS: u64 = 10_000;
/// The least length of a stretch, in pages.
const STRETCH_PAGES: u64 = 64;

impl Tierer {
    /// Tells the source what to observe, if that has changed.
    pub(super) fn tell_source(&mut self, reporter: &mut dyn Reporter) -> Result<(), TiererError> {
        let now = self.now();
        self.look_again(now);
        let observe = match self.cadence.observe(now) {
            Observe::Look if self.look_must_wait(now) => Observe::Glance,
            observe => observe,
        };
        // While hot pages wait for room, moving comes first; the glance at what
        // may leave goes on meanwhile.
        let moving = observe == Observe::Glance
            && self.told == Some(Observe::Look)
            && self.wanting > 0
            && !self.stretches.is_empty();
        if self.told == Some(observe) || moving {
            return Ok(());
        }
        self.read_rooms()?;
        let first_time = self.told.is_none();
        self.choose_flushers(now);
        self.told = Some(observe);
        self.told_at = now;
        let abilities = self.source.abilities();
        // A source that never completes a pass is not told to stop: it costs by
        // what happens, not by what there is.
        if observe == Observe::Glance && !abilities.passes {
            return Ok(());
        }
        self.look_news = PassNews::default();
        self.glance_news = PassNews::default();
        if abilities.glances && (first_time || observe == Observe::Glance) {
            let glance = self.glance_subjects(observe);
            // Evidence for demotion is wanted sooner than news of hot pages.
            let pace = if self.stretches.is_empty() { 2 } else { 1 };
            self.source
                .glance(&glance, self.options.glance_every * pace)?;
        }
        if observe == Observe::Glance {
            self.source.look(&[], self.options.look_every)?;
            return Ok(());
        }
        let (wanted, looked) = self.look()?;
        let skipped = wanted.saturating_sub(looked);
        if abilities.glances && skipped > wanted / 10 {
            let text = format!("looking at {looked} slow pages closely, {skipped} in later turns");
            self.notice(text, reporter);
            // Until as many were looked at as there are, the next turn is soon.
            self.looked += looked;
            if self.looked < wanted {
                self.cadence.look_is_partial();
            } else {
                self.looked = 0;
            }
        } else {
            self.looked = 0;
        }
        Ok(())
    }

    /// A close look takes memory of the kernel's, which comes from fast nodes.
    /// Where they lack even their headroom, a glance first finds what can leave;
    /// but not for ever, as perhaps nothing can.
    fn look_must_wait(&mut self, now: Millis) -> bool {
        let targets = self.preferred_targets();
        let cramped = targets.iter().any(|(_, top)| self.rooms.takes(*top) == 0);
        if !cramped || !self.source.abilities().glances || self.told == Some(Observe::Look) {
            self.cramped_since = None;
            return false;
        }
        now.since(*self.cramped_since.get_or_insert(now)) < CRAMPED_MS
    }

    /// A source without glances rests instead, and looks again after that, or at
    /// once while hot pages wait for idle ones to leave.
    fn look_again(&mut self, now: Millis) {
        let abilities = self.source.abilities();
        let resting = self.told == Some(Observe::Glance) && !abilities.glances;
        let rested = now.since(self.told_at) >= REST_MS || self.wanting > 0;
        if resting && abilities.passes && rested {
            self.cadence.look_due();
        }
    }

    /// Begins a look with passes as long as they should be now; how many pages
    /// it should take in, and how many it does.
    fn look(&mut self) -> Result<(u64, u64), TiererError> {
        let (subjects, wanted) = self.look_subjects();
        self.stretch = self.cadence.stretch();
        let interval = self.options.look_every * self.stretch;
        Ok((wanted, self.source.look(&subjects, interval)?))
    }

    /// Ends a look that has seen enough at once: what comes next takes time in
    /// which it would only cost.
    pub(super) fn end_look(&mut self) -> Result<(), TiererError> {
        let looking = self.told == Some(Observe::Look) && self.source.abilities().passes;
        if looking && self.cadence.observe(self.now()) == Observe::Glance {
            self.source.look(&[], self.options.look_every)?;
        }
        Ok(())
    }

    /// Gives a look that goes on the passes that it should have by now.
    pub(super) fn stretch_look(&mut self) -> Result<(), TiererError> {
        let looking = self.told == Some(Observe::Look) && self.source.abilities().passes;
        let goes_on = looking && self.cadence.observe(self.now()) == Observe::Look;
        if goes_on && self.cadence.stretch() != self.stretch {
            self.look()?;
        }
        Ok(())
    }

    /// Every page of the lower tiers except those that were just sent there,
    /// which is known of them to be idle; for a source that looks cheaply and
    /// offers no glances, every page. And how many there are, which may be more
    /// than one look should take.
    fn look_subjects(&mut self) -> (Vec<Subject>, u64) {
        let everything = !self.source.abilities().glances;
        let now = self.now();
        let idle = |page| {
            self.recent
                .moved_within(page, Moved::Down, KNOWN_IDLE_MS, now)
        };
        let wanted = |page, node| everything || (!self.topology.is_top_tier(node) && !idle(page));
        let mut budget = self.options.look_pages;
        let mut pages = 0;
        let mut subjects = Vec::new();
        // Where not all fits into one look, the next one begins elsewhere.
        let offset = match self.processes.len() {
            0 => 0,
            n => Tierer::next_random(&mut self.random) as usize % n,
        };
        let all: Vec<_> = self.processes.iter().collect();
        for watched in all[offset..].iter().chain(&all[..offset]) {
            let mut runs = subjects::runs(watched, &self.space, &self.placement, wanted);
            runs = sample::joined(&runs, LOOK_RUNS);
            pages += runs.iter().map(|run| run.pages).sum::<u64>();
            if !everything {
                budget = cut(&mut runs, budget, &mut self.random);
            }
            if !runs.is_empty() {
                subjects.push(subjects::whole(watched, &runs));
            }
        }
        (subjects, pages)
    }

    /// A sample of the lower tiers, unless a look is at them anyway, and
    /// stretches of the top tier if promotions may find it full.
    fn glance_subjects(&mut self, observe: Observe) -> Vec<Subject> {
        self.stretches.clear();
        let runs = |watched, top: bool| {
            let wanted = |_, node| self.topology.is_top_tier(node) == top;
            subjects::runs(watched, &self.space, &self.placement, wanted)
        };
        let lower: Vec<Vec<Run>> = match observe {
            Observe::Glance => self
                .processes
                .iter()
                .map(|watched| runs(watched, false))
                .collect(),
            Observe::Look => vec![Vec::new(); self.processes.len()],
        };
        let top: Vec<Vec<Run>> = if self.room_is_scarce() {
            self.processes
                .iter()
                .map(|watched| runs(watched, true))
                .collect()
        } else {
            vec![Vec::new(); self.processes.len()]
        };
        let samples = subjects::shares(&totals(&lower), self.options.samples);
        let pieces = subjects::shares(&totals(&top), self.options.stretches);
        let mut subjects = Vec::new();
        for (n, watched) in self.processes.iter().enumerate() {
            let mut random = || Tierer::next_random(&mut self.random);
            let pages = subjects::draw(&lower[n], samples[n], &mut random);
            let stretches = sample::stretches(&top[n], pieces[n], STRETCH_PAGES);
            // Short runs are many and say little: only as many as asked for.
            let mut stretches: Vec<Run> = stretches;
            stretches.sort_by_key(|run| std::cmp::Reverse(run.pages));
            stretches.truncate(pieces[n] as usize + 1);
            if pages.is_empty() && stretches.is_empty() {
                continue;
            }
            for run in &stretches {
                self.stretches
                    .insert((watched.owner, run.first), (run.pages, false));
            }
            subjects.push(subjects::sampled(watched, &pages, &stretches));
        }
        subjects
    }

    /// Whether not all pages of the lower tiers would fit into the top tier.
    fn room_is_scarce(&self) -> bool {
        let top = self.topology.nodes().iter().filter(|node| node.top_tier);
        let room: u64 = top.map(|node| self.rooms.takes(node.id)).sum();
        let lower = self.lower_pages();
        lower > 0 && room < lower
    }
}

fn totals(runs: &[Vec<Run>]) -> Vec<u64> {
    runs.iter()
        .map(|runs| runs.iter().map(|run| run.pages).sum())
        .collect()
}

/// Cuts `runs` to `budget` pages, beginning at a random one; what is left of
/// the budget.
fn cut(runs: &mut Vec<Run>, budget: u64, random: &mut u64) -> u64 {
    let total: u64 = runs.iter().map(|run| run.pages).sum();
    if total <= budget {
        return budget - total;
    }
    if !runs.is_empty() {
        let start = Tierer::next_random(random) as usize % runs.len();
        runs.rotate_left(start);
    }
    let mut left = budget;
    runs.retain_mut(|run| {
        run.pages = run.pages.min(left);
        left -= run.pages;
        run.pages > 0
    });
    runs.sort_by_key(|run| run.first);
    left
}
