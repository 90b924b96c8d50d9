//! From what a source reports to records and idle ages.

use super::explain;
use super::fairness::Glanced;
use super::listeners::Listeners;
use super::observer::{Observer, is_taken_for_idle};
use super::shared::Shared;
use super::singles::Rest;
use crate::report::Reporter;
use crate::search;
use crate::world::{Report, Sample, SourceId, View};
use memtide_core::access::{self, Access, SourceSet};
use memtide_core::hotness::{Intake, Intook};
use memtide_core::pages::Pages as _;
use memtide_core::tiering::cadence::PassNews;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::{Millis, NodeId, PageNumber};

/// Accesses to a page that a look which confirms it has seen.
const SEEN: u8 = 2;

/// Takes in what one source reported, at one moment.
pub(super) struct Digest<'a> {
    pub shared: &'a mut Shared,
    pub observer: &'a mut Observer,
    /// Under which name accesses are counted.
    pub kind: access::Source,
    pub now: Millis,
    pub reporter: &'a mut dyn Reporter,
    /// For each lower node the top-tier node to which its hot pages should go.
    pub targets: Vec<(NodeId, NodeId)>,
    /// Who else is heard.
    pub listeners: &'a Listeners,
}

impl Digest<'_> {
    /// Records `reports`; whether a page became ready.
    pub fn take(&mut self, reports: &[Report]) -> bool {
        self.shared.fairness.told(self.observer.pass_told_at());
        let mut news = false;
        for report in reports {
            self.note_use(report);
            news |= self.report(report);
        }
        news
    }

    /// Notes what is in use for the rounds of pages that nobody touches: each page that
    /// a report names, whichever source says so.
    fn note_use(&mut self, report: &Report) {
        let Some(rounds) = &self.shared.records.rounds else {
            return;
        };
        let Report::Touched {
            owner,
            first,
            pages,
            ..
        } = *report
        else {
            return;
        };
        let note = |_, dense, pages| rounds.touched(dense, pages);
        self.shared.ledger.space.for_runs(owner, first, pages, note);
    }

    /// Records `samples`; whether a page became ready.
    pub fn take_samples(&mut self, samples: &[Sample]) -> bool {
        let mut news = false;
        let shift = self.shared.ledger.page.shift();
        for sample in samples {
            let Some(owner) = self.listeners.owner(sample.pid) else {
                continue;
            };
            let page = VirtualPage(sample.address >> shift);
            if let Some(rounds) = &self.shared.records.rounds {
                let note = |_, dense, pages| rounds.touched(dense, pages);
                self.shared.ledger.space.for_runs(owner, page, 1, note);
            }
            let Shared {
                fairness, ledger, ..
            } = &mut *self.shared;
            fairness.sampled(ledger, owner, page, self.now);
            news |= self.heard(sample.source, owner, page, 1);
        }
        news
    }

    /// Records an access to each page, of which a listener tells. Whether one became
    /// ready. What it finds hot calls for a look as what a glance finds does.
    fn heard(&mut self, source: SourceId, owner: OwnerId, first: VirtualPage, pages: u64) -> bool {
        let Some(kind) = self.listeners.kind(source) else {
            return false;
        };
        let own = std::mem::replace(&mut self.kind, kind);
        let news = self.touched(View::Glance, owner, first, pages);
        self.kind = own;
        news
    }

    fn report(&mut self, report: &Report) -> bool {
        if let Report::Touched {
            source,
            view: View::Glance,
            owner,
            first,
            ..
        } = *report
            && source == self.observer.source
            && let Some(stretch) = self.stretch(owner, first)
        {
            self.touched_stretch(owner, stretch);
            return false;
        }
        match *report {
            Report::Touched {
                source,
                owner,
                first,
                pages,
                ..
            } if source != self.observer.source => self.heard(source, owner, first, pages),
            // What an earlier source still had to tell is of no view of this one.
            Report::Untouched { source, .. } | Report::Pass { source, .. }
                if source != self.observer.source =>
            {
                false
            }
            // Some page of a piece: which, only the search can find out.
            Report::Touched {
                view: View::Glance,
                owner,
                first,
                pages,
                ..
            } if self.observer.searching.is_some() => {
                if let Some(rest) = self.single(owner, first) {
                    self.glanced(owner, first, 1, Glanced::Single(rest));
                    return false;
                }
                let span = search::Span {
                    owner,
                    first,
                    pages,
                };
                if let Some(searching) = &mut self.observer.searching {
                    searching.search.touched(search::View::Glance, span);
                }
                false
            }
            // While a look runs, it sees what the samples see.
            Report::Touched {
                view: View::Glance, ..
            } if self.observer.is_looking() => false,
            Report::Touched {
                view,
                owner,
                first,
                pages,
                ..
            } => {
                match view {
                    View::Look => self.tell_search(owner, first, pages),
                    View::Glance => self.glanced(owner, first, pages, Glanced::Slow),
                }
                self.touched(view, owner, first, pages)
            }
            Report::Untouched {
                owner,
                first,
                pages,
                ..
            } => {
                self.idle_run(owner, first, pages, true);
                false
            }
            Report::Pass {
                view: View::Glance, ..
            } => {
                self.glance_done();
                self.search_pass(search::View::Glance)
            }
            Report::Pass {
                view: View::Look, ..
            } => {
                self.look_done();
                let won = self.contest_pass();
                self.search_pass(search::View::Look) | won
            }
        }
    }

    /// A pass is over of the look that the search may have lent. Whether a page became ready.
    fn contest_pass(&mut self) -> bool {
        let observer = &mut *self.observer;
        let Some(searching) = observer.searching.as_mut() else {
            return false;
        };
        if !searching.search.is_lent() {
            return false;
        }
        let won = observer.exchange.pass_done(self.now);
        let pages = won.iter().map(|folio| u64::from(folio.pages)).sum();
        searching.search.borrower_found(pages);
        // Two passes are recorded, and make a page hot as they do in the search's own looks.
        let threshold = self.shared.config.hotness.threshold();
        let mut news = false;
        for folio in won {
            let Some((owner, first)) = self.shared.ledger.space.locate(folio.first) else {
                continue;
            };
            for _ in SEEN..threshold {
                news |= self.touched(View::Glance, owner, first, u64::from(folio.pages));
            }
        }
        news
    }

    /// What a page that the search has glanced at stands for, if it is one that was drawn.
    fn single(&self, owner: OwnerId, first: VirtualPage) -> Option<Rest> {
        let searching = self.observer.searching.as_ref()?;
        searching.singles.find(owner, first)
    }

    /// Notes for its class what a glance saw touched.
    fn glanced(&mut self, owner: OwnerId, first: VirtualPage, pages: u64, what: Glanced) {
        let Shared {
            fairness, ledger, ..
        } = &mut *self.shared;
        fairness.glanced(ledger, (owner, first, pages), what);
    }

    /// Tells the search which pages a look saw in use; those that are on the top
    /// tier by now are none of its business.
    fn tell_search(&mut self, owner: OwnerId, first: VirtualPage, pages: u64) {
        let Some(searching) = &mut self.observer.searching else {
            return;
        };
        if searching.search.is_lent() {
            let (space, exchange) = (&self.shared.ledger.space, &mut self.observer.exchange);
            space.for_runs(owner, first, pages, |_, dense, pages| {
                exchange.touched(dense, pages);
            });
            return;
        }
        let ledger = &self.shared.ledger;
        let slow = |dense: u64| {
            let home = ledger.node_of(PageNumber(dense));
            home.is_some_and(|home| !ledger.topology.is_top_tier(home))
        };
        let tell = |first: VirtualPage, dense: PageNumber, pages| {
            for n in (0..pages).filter(|n| slow(dense.0 + n)) {
                let span = search::Span {
                    owner,
                    first: VirtualPage(first.0 + n),
                    pages: 1,
                };
                searching.search.touched(search::View::Look, span);
            }
        };
        ledger.space.for_runs(owner, first, pages, tell);
    }

    /// Tells the search that a pass is complete, and records what it found: as
    /// many accesses as make pages hot, less those that looks have recorded.
    /// Whether a page became ready.
    fn search_pass(&mut self, view: search::View) -> bool {
        let Some(searching) = &mut self.observer.searching else {
            return false;
        };
        searching.passed = true;
        searching.search.pass_done(view, self.now);
        let mut found = Vec::new();
        searching.search.findings(|finding| found.push(finding));
        let threshold = self.shared.config.hotness.threshold();
        let mut news = false;
        for search::Finding { span, exact } in found {
            let seen = if exact { SEEN } else { 0 };
            for _ in seen..threshold {
                news |= self.touched(View::Glance, span.owner, span.first, span.pages);
            }
        }
        news
    }

    fn look_done(&mut self) {
        let (observer, now) = (&mut *self.observer, self.now);
        observer.passes += 1;
        observer.look_passes += 1;
        observer.look_cost.pass_done();
        let nothing = observer.look_news.touched == 0;
        let enough = self.shared.config.cadence.passes_min;
        if (observer.look_passes == enough || nothing) && !observer.is_partial {
            observer.seen = observer.begun;
        }
        observer.pass_ms = now.since(observer.pass_ended.max(observer.told_at));
        observer.pass_ended = now;
        let least_ms = self.shared.config.hotness.window_ms();
        self.shared.records.follow(observer.pass_ms, least_ms);
        let news = std::mem::take(&mut observer.look_news);
        if self.shared.config.explain {
            explain::stays(self.shared, now, self.reporter);
        }
        if !observer.abilities.glances {
            self.shared.records.idle.pass_done(now);
            match observer.is_partial {
                true => self.shared.fairness.drop_pass(),
                false => self.shared.fairness.look_done(now),
            }
        }
        observer.cadence.pass_done(now, news);
    }

    fn glance_done(&mut self) {
        let mut stretches = std::mem::take(&mut self.observer.stretches);
        for ((owner, first), (pages, touched)) in &mut stretches {
            if !std::mem::take(touched) {
                self.idle_run(*owner, *first, *pages, true);
            }
        }
        self.observer.stretches = stretches;
        self.shared.records.idle.pass_done(self.now);
        let observer = &*self.observer;
        let Shared {
            fairness, ledger, ..
        } = &mut *self.shared;
        match &observer.searching {
            Some(searching) => {
                let told = (&observer.stretches, &searching.singles);
                fairness.searched(ledger, told, &searching.search, self.now);
            }
            None if !observer.is_looking() => {
                let single = observer.draws.last();
                fairness.glance_done(ledger, &observer.stretches, single, self.now);
            }
            None => fairness.drop_pass(),
        }
        let news = std::mem::take(&mut self.observer.glance_news);
        self.observer
            .cadence
            .glance_found(self.now, news.became_ready);
    }

    /// The stretch in which a page lies: its first page and its length. A source that cuts names a
    /// piece of it.
    fn stretch(&self, owner: OwnerId, page: VirtualPage) -> Option<(VirtualPage, u64)> {
        let mut before = self.observer.stretches.range(..=(owner, page));
        let ((of, first), (pages, _)) = before.next_back()?;
        let within = *of == owner && page.0 < first.0 + *pages;
        within.then_some((*first, *pages))
    }

    /// A page of a stretch was touched, and stands for all of it.
    fn touched_stretch(&mut self, owner: OwnerId, (first, pages): (VirtualPage, u64)) {
        if let Some((_, touched)) = self.observer.stretches.get_mut(&(owner, first))
            && std::mem::replace(touched, true)
        {
            return;
        }
        let what = match self.single(owner, first) {
            Some(rest) => Glanced::Single(rest),
            None => Glanced::Stretch,
        };
        self.glanced(owner, first, pages, what);
        self.idle_run(owner, first, pages, false);
        if let Some(rounds) = &self.shared.records.rounds {
            let note = |_, dense, pages| rounds.touched(dense, pages);
            self.shared.ledger.space.for_runs(owner, first, pages, note);
        }
    }

    /// Notes that pages of the top tier were seen untouched, or touched.
    fn idle_run(&mut self, owner: OwnerId, first: VirtualPage, pages: u64, idle: bool) {
        let (store, rounds) = (&self.shared.records.idle, &self.shared.records.rounds);
        let note = |_, dense, pages| {
            match idle {
                true => store.untouched(dense, pages),
                false => store.touched(dense, pages),
            };
            if let Some(rounds) = rounds.as_ref().filter(|_| idle) {
                rounds.untouched(dense, pages);
            }
        };
        self.shared.ledger.space.for_runs(owner, first, pages, note);
    }

    /// Records an access to each page; whether one became ready.
    fn touched(&mut self, view: View, owner: OwnerId, first: VirtualPage, pages: u64) -> bool {
        let now = self.now;
        let Shared {
            ledger,
            records,
            counters,
            fairness,
            ..
        } = &mut *self.shared;
        let (ledger, records) = (&*ledger, &*records);
        let intake = Intake::new(&records.store, &ledger.topology, SourceSet::ALL);
        let targets = &self.targets;
        let mut news = PassNews::default();
        let (mut mistaken, mut fast) = (false, 0);
        ledger
            .space
            .for_runs(owner, first, pages, |_, dense, pages| {
                let end = dense.0 + pages;
                let mut at = dense.0;
                while at < end {
                    let page = PageNumber(at);
                    let folio = ledger.folio(page);
                    at = folio.first.0 + u64::from(folio.pages);
                    let home = ledger.node_of(page);
                    let target = targets.iter().find(|(lower, _)| Some(*lower) == home);
                    let access = Access {
                        page,
                        node: target.map(|(_, top)| *top),
                        source: self.kind,
                        at: now,
                    };
                    match intake.report(&access, ledger, counters) {
                        Intook::Recorded => {
                            news.touched += u64::from(folio.pages);
                            let peeked = records.store.peek(folio.first, now);
                            if peeked.is_some_and(|hotness| !hotness.ready) {
                                news.first_touch += u64::from(folio.pages);
                            }
                        }
                        Intook::BecameReady => {
                            news.touched += u64::from(folio.pages);
                            news.became_ready += u64::from(folio.pages);
                            mistaken |=
                                view == View::Glance && is_taken_for_idle(records, page, now);
                        }
                        Intook::TopTier | Intook::Local => {
                            records.idle.touched(folio.first, u64::from(folio.pages));
                            fast += u64::from(folio.pages);
                        }
                        Intook::BadNode | Intook::SourceDisabled | Intook::NoPage => {}
                    }
                }
            });
        if mistaken {
            self.observer.doubted = Some(now);
        }
        let abilities = self.observer.abilities;
        if view == View::Look && abilities.passes && !abilities.glances {
            let watched = ledger.processes.get(owner);
            fairness.looked(watched, fast, news.touched);
        }
        let sum = match view {
            View::Look => &mut self.observer.look_news,
            View::Glance => &mut self.observer.glance_news,
        };
        sum.touched += news.touched;
        sum.became_ready += news.became_ready;
        sum.first_touch += news.first_touch;
        news.became_ready > 0
    }
}
