//! From what a source reports to records and idle ages.

use super::super::report::Reporter;
use super::super::view::Machine;
use super::Tierer;
use crate::source::observe::{Sink, View};
use memtide_core::access::{Access, SourceSet};
use memtide_core::hotness::{Intake, Intook};
use memtide_core::pages::Pages;
use memtide_core::tiering::cadence::{Observe, PassNews};
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::{Millis, NodeId, PageNumber};
use std::collections::BTreeMap;

/// What a source reported since the last turn, in its order.
#[derive(Debug, Default)]
pub(super) struct Reports(Vec<Report>);

#[derive(Clone, Copy, Debug)]
enum Report {
    Touched {
        view: View,
        owner: OwnerId,
        first: VirtualPage,
        pages: u64,
    },
    Untouched {
        owner: OwnerId,
        first: VirtualPage,
        pages: u64,
    },
    Pass(View),
}

impl Sink for Reports {
    fn touched(&mut self, view: View, owner: OwnerId, first: VirtualPage, pages: u64) {
        self.0.push(Report::Touched {
            view,
            owner,
            first,
            pages,
        });
    }

    fn untouched(&mut self, owner: OwnerId, first: VirtualPage, pages: u64) {
        self.0.push(Report::Untouched {
            owner,
            first,
            pages,
        });
    }

    fn pass_complete(&mut self, view: View) {
        self.0.push(Report::Pass(view));
    }
}

/// The stretches of the top tier that are being glanced at: their length, and
/// whether this pass saw them touched.
pub(super) type Stretches = BTreeMap<(OwnerId, VirtualPage), (u64, bool)>;

impl Tierer {
    /// Records what was reported.
    pub(super) fn digest(&mut self, reporter: &mut dyn Reporter) {
        let now = self.now();
        let reports = std::mem::take(&mut self.reports.0);
        let by = self.preferred_targets();
        for report in &reports {
            match *report {
                Report::Touched {
                    view: View::Glance,
                    owner,
                    first,
                    pages,
                } if self.touched_stretch(owner, first) => {
                    self.idle_run(owner, first, pages, false);
                }
                // While a look runs, it sees what the samples see.
                Report::Touched {
                    view: View::Glance, ..
                } if self.told == Some(Observe::Look) => {}
                Report::Touched {
                    view,
                    owner,
                    first,
                    pages,
                } => {
                    self.touched(view, owner, first, pages, &by, now);
                }
                Report::Untouched {
                    owner,
                    first,
                    pages,
                } => {
                    self.idle_run(owner, first, pages, true);
                }
                Report::Pass(View::Glance) => self.glance_done(now),
                Report::Pass(View::Look) => {
                    self.passes += 1;
                    self.pass_ms = now.since(self.pass_ended.max(self.told_at));
                    self.pass_ended = now;
                    let news = std::mem::take(&mut self.look_news);
                    if self.options.explain {
                        self.explain_stays(now, reporter);
                    }
                    if !self.source.abilities().glances {
                        self.idle.pass_done(now);
                    }
                    self.cadence.pass_done(now, news);
                }
            }
        }
        self.reports.0 = reports;
        self.reports.0.clear();
    }

    fn touched_stretch(&mut self, owner: OwnerId, first: VirtualPage) -> bool {
        match self.stretches.get_mut(&(owner, first)) {
            Some((_, touched)) => {
                *touched = true;
                true
            }
            None => false,
        }
    }

    fn glance_done(&mut self, now: Millis) {
        for ((owner, first), (pages, touched)) in std::mem::take(&mut self.stretches) {
            if !touched {
                self.idle_run(owner, first, pages, true);
            }
            self.stretches.insert((owner, first), (pages, false));
        }
        self.idle.pass_done(now);
        let news = std::mem::take(&mut self.glance_news);
        self.cadence.glance_found(now, news.became_ready);
    }

    /// Notes that pages of the top tier were seen untouched, or touched.
    fn idle_run(&mut self, owner: OwnerId, first: VirtualPage, pages: u64, idle: bool) {
        let store = &self.idle;
        self.space.for_runs(owner, first, pages, |_, dense, pages| {
            if idle {
                store.untouched(dense, pages);
            } else {
                store.touched(dense, pages);
            }
        });
    }

    fn touched(
        &mut self,
        view: View,
        owner: OwnerId,
        first: VirtualPage,
        pages: u64,
        by: &[(NodeId, NodeId)],
        now: Millis,
    ) {
        let machine = Machine {
            space: &self.space,
            placement: &self.placement,
            processes: &self.processes,
            rooms: &self.rooms,
        };
        let intake = Intake::new(&self.store, &self.topology, SourceSet::ALL);
        let (counters, source) = (&mut self.counters, self.source.kind());
        let mut news = PassNews::default();
        let idle = &self.idle;
        self.space.for_runs(owner, first, pages, |_, dense, pages| {
            let end = dense.0 + pages;
            let mut at = dense.0;
            while at < end {
                let page = PageNumber(at);
                let folio = machine.folio(page);
                at = folio.first.0 + u64::from(folio.pages);
                let home = machine.node_of(page);
                let node = by
                    .iter()
                    .find(|(lower, _)| Some(*lower) == home)
                    .map(|(_, top)| *top);
                let access = Access {
                    page,
                    node,
                    source,
                    at: now,
                };
                match intake.report(&access, &machine, counters) {
                    Intook::Recorded => {
                        news.touched += u64::from(folio.pages);
                        let peeked = self.store.peek(folio.first, now);
                        if peeked.is_some_and(|hotness| !hotness.ready) {
                            news.first_touch += u64::from(folio.pages);
                        }
                    }
                    Intook::BecameReady => {
                        news.touched += u64::from(folio.pages);
                        news.became_ready += u64::from(folio.pages);
                    }
                    Intook::TopTier | Intook::Local => {
                        idle.touched(folio.first, u64::from(folio.pages));
                    }
                    Intook::BadNode | Intook::SourceDisabled | Intook::NoPage => {}
                }
            }
        });
        self.news |= news.became_ready > 0;
        let sum = match view {
            View::Look => &mut self.look_news,
            View::Glance => &mut self.glance_news,
        };
        sum.touched += news.touched;
        sum.became_ready += news.became_ready;
        sum.first_touch += news.first_touch;
    }

    /// For each lower node the top-tier node to which its hot pages should go:
    /// the nearest with room, or the nearest of all if none has any.
    pub(super) fn preferred_targets(&self) -> Vec<(NodeId, NodeId)> {
        let mut targets = Vec::new();
        for lower in self.topology.nodes().iter().filter(|node| !node.top_tier) {
            let Some(nearest) = self.topology.promotion_target(lower.id) else {
                continue;
            };
            let distance = |node: NodeId| self.topology.distance(lower.id, node);
            let roomy = self
                .topology
                .nodes()
                .iter()
                .filter(|node| node.top_tier && self.rooms.takes(node.id) > 0)
                .min_by_key(|node| (node.id != nearest, distance(node.id), node.id));
            targets.push((lower.id, roomy.map_or(nearest, |node| node.id)));
        }
        targets
    }
}
