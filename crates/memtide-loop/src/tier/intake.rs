//! From what a source reports to records and idle ages.

use super::explain;
use super::observer::Observer;
use super::shared::Shared;
use crate::report::Reporter;
use crate::world::{Report, View};
use memtide_core::access::{self, Access, SourceSet};
use memtide_core::hotness::{Intake, Intook};
use memtide_core::pages::Pages as _;
use memtide_core::tiering::cadence::PassNews;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::{Millis, NodeId, PageNumber};

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
}

impl Digest<'_> {
    /// Records `reports`; whether a page became ready.
    pub fn take(&mut self, reports: &[Report]) -> bool {
        let mut news = false;
        for report in reports {
            news |= self.report(report);
        }
        news
    }

    fn report(&mut self, report: &Report) -> bool {
        match *report {
            // What an earlier source still had to tell is of no view of this one.
            Report::Touched { source, .. }
            | Report::Untouched { source, .. }
            | Report::Pass { source, .. }
                if source != self.observer.source =>
            {
                false
            }
            Report::Touched {
                view: View::Glance,
                owner,
                first,
                pages,
                ..
            } if self.touched_stretch(owner, first) => {
                self.idle_run(owner, first, pages, false);
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
            } => self.touched(view, owner, first, pages),
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
                false
            }
            Report::Pass {
                view: View::Look, ..
            } => {
                self.look_done();
                false
            }
        }
    }

    fn look_done(&mut self) {
        let (observer, now) = (&mut *self.observer, self.now);
        observer.passes += 1;
        observer.pass_ms = now.since(observer.pass_ended.max(observer.told_at));
        observer.pass_ended = now;
        observer.choice.pass_done(now);
        let news = std::mem::take(&mut observer.look_news);
        if self.shared.config.explain {
            explain::stays(self.shared, now, self.reporter);
        }
        if !observer.abilities.glances {
            self.shared.records.idle.pass_done(now);
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
        let news = std::mem::take(&mut self.observer.glance_news);
        self.observer
            .cadence
            .glance_found(self.now, news.became_ready);
    }

    fn touched_stretch(&mut self, owner: OwnerId, first: VirtualPage) -> bool {
        match self.observer.stretches.get_mut(&(owner, first)) {
            Some((_, touched)) => {
                *touched = true;
                true
            }
            None => false,
        }
    }

    /// Notes that pages of the top tier were seen untouched, or touched.
    fn idle_run(&mut self, owner: OwnerId, first: VirtualPage, pages: u64, idle: bool) {
        let store = &self.shared.records.idle;
        let note = |_, dense, pages| {
            match idle {
                true => store.untouched(dense, pages),
                false => store.touched(dense, pages),
            };
        };
        self.shared.ledger.space.for_runs(owner, first, pages, note);
    }

    /// Records an access to each page; whether one became ready.
    fn touched(&mut self, view: View, owner: OwnerId, first: VirtualPage, pages: u64) -> bool {
        let now = self.now;
        if view == View::Look {
            self.observer.choice.touched(owner, first, pages, now);
        }
        let Shared {
            ledger,
            records,
            counters,
            ..
        } = &mut *self.shared;
        let (ledger, records) = (&*ledger, &*records);
        let intake = Intake::new(&records.store, &ledger.topology, SourceSet::ALL);
        let targets = &self.targets;
        let mut news = PassNews::default();
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
                        }
                        Intook::TopTier | Intook::Local => {
                            records.idle.touched(folio.first, u64::from(folio.pages));
                        }
                        Intook::BadNode | Intook::SourceDisabled | Intook::NoPage => {}
                    }
                }
            });
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
