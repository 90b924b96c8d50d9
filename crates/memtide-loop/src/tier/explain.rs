//! Why pages stay where they are.

use super::pressed::PRESSED;
use super::promoter::{NO_FASTER, RESTS};
use super::shared::Shared;
use super::subjects;
use crate::ledger::Ledger;
use crate::report::{Event, Range, Reporter, Stay, WhyStayed};
use memtide_core::hotness::Hotness;
use memtide_core::promotion::{Kept, Verdict};
use memtide_core::units::{Millis, NodeId, PageNumber};

/// Says why a page that asked was not let in.
pub(super) fn kept(
    shared: &Shared,
    page: PageNumber,
    node: NodeId,
    hotness: &Hotness,
    kept: Kept,
    now: Millis,
    reporter: &mut dyn Reporter,
) {
    let ledger = &shared.ledger;
    let why = match kept {
        Kept::Immovable(RESTS) => match rests(shared, page) {
            Some(why) => why,
            None => return,
        },
        Kept::Immovable(NO_FASTER) => match no_faster(shared, node) {
            Some(why) => why,
            None => return,
        },
        Kept::Immovable(PRESSED) => Stay::Pressure,
        Kept::Immovable(by) => Stay::Forbidden { by },
        Kept::Gate(Verdict::Latency { threshold_ms, .. }) => Stay::TooLongAgo {
            ms: u64::from(hotness.age_ms),
            threshold_ms: u64::from(threshold_ms),
        },
        Kept::Gate(Verdict::BelowCut { .. }) => Stay::Colder,
        Kept::Gate(Verdict::Damped { moved_ms_ago }) => Stay::JustMoved { ms: moved_ms_ago },
        Kept::Gate(Verdict::NoBenefit { .. }) => Stay::NotWorthIt,
        Kept::Gate(_) | Kept::WindowClosed => Stay::RateLimit,
        Kept::NoRoom(target) => Stay::NoRoom { target },
        Kept::Share if is_pressed(shared, page) => Stay::Pressure,
        Kept::Share => Stay::Share,
        Kept::Cold
        | Kept::Elsewhere(_)
        | Kept::Gone
        | Kept::NoTarget
        | Kept::AtTarget
        | Kept::SameFolio => return,
    };
    let run = Run {
        first: page,
        pages: 1,
        node,
        why,
    };
    run.tell(ledger, now, reporter);
}

/// Whether it is pressure and not a bound that keeps a page of a class.
fn is_pressed(shared: &Shared, page: PageNumber) -> bool {
    let Shared {
        budgets, pressed, ..
    } = shared;
    let class = shared.ledger.class(page);
    class.is_some_and(|class| pressed.binds(class, budgets.left(class)))
}

/// That the page's process rests; none while it is only slow, as its turn comes within seconds.
pub(super) fn rests(shared: &Shared, page: PageNumber) -> Option<Stay> {
    let (owner, _) = shared.ledger.space.locate(page)?;
    let rests = shared.account.as_ref()?.rests(owner)?;
    Some(Stay::Rests {
        won_ns_per_s: rests.won_per_s,
        spent_ns_per_s: rests.spent_per_s,
    })
}

/// That the fast node to which pages of slow `node` go is no faster under its load.
pub(super) fn no_faster(shared: &Shared, node: NodeId) -> Option<Stay> {
    let Shared {
        ledger, latencies, ..
    } = shared;
    let targets = ledger.preferred_targets();
    let (_, target) = *targets.iter().find(|(lower, _)| *lower == node)?;
    let pair = latencies.slower(&ledger.topology, node, target)?;
    Some(Stay::NoFaster {
        target,
        fast_ns: pair.fast_ns,
        slow_ns: pair.slow_ns,
    })
}

/// Says of every page on a slow node that is not hot why it stays, in runs.
pub(super) fn stays(shared: &Shared, now: Millis, reporter: &mut dyn Reporter) {
    let (config, ledger, store) = (&shared.config, &shared.ledger, &shared.records.store);
    let threshold = config.hotness.threshold();
    let window = u64::from(store.config().window_ms());
    for watched in ledger.processes.iter() {
        for run in subjects::runs_by_tier(ledger, watched, false) {
            let mut open: Option<Run> = None;
            let (owner, first) = (watched.owner, run.first);
            ledger
                .space
                .for_runs(owner, first, run.pages, |_, dense, pages| {
                    for page in (dense.0..dense.0 + pages).map(PageNumber) {
                        let Some(place) = ledger.placement.get(page) else {
                            continue;
                        };
                        let touches = match store.peek(page, now) {
                            Some(hotness) if hotness.ready => continue,
                            Some(hotness) if u64::from(hotness.age_ms) <= window => {
                                hotness.frequency
                            }
                            _ => 0,
                        };
                        let why = match touches {
                            0 => Stay::Untouched,
                            touches => Stay::TooRarely { touches, threshold },
                        };
                        let node = place.node();
                        match &mut open {
                            Some(run) if run.is_followed_by(page, node, why) => run.pages += 1,
                            _ => {
                                let first = page;
                                let fresh = Run {
                                    first,
                                    pages: 1,
                                    node,
                                    why,
                                };
                                if let Some(run) = open.replace(fresh) {
                                    run.tell(ledger, now, reporter);
                                }
                            }
                        }
                    }
                });
            if let Some(run) = open {
                run.tell(ledger, now, reporter);
            }
        }
    }
}

/// Pages in a row that stay for one reason.
struct Run {
    first: PageNumber,
    pages: u64,
    node: NodeId,
    why: Stay,
}

impl Run {
    fn is_followed_by(&self, page: PageNumber, node: NodeId, why: Stay) -> bool {
        self.first.0 + self.pages == page.0 && self.node == node && self.why == why
    }

    fn tell(&self, ledger: &Ledger, now: Millis, reporter: &mut dyn Reporter) {
        let Some((owner, at)) = ledger.space.locate(self.first) else {
            return;
        };
        let Some(watched) = ledger.processes.get(owner) else {
            return;
        };
        let range = Range {
            pid: watched.process.pid,
            address: ledger.address(at),
            pages: self.pages,
        };
        let event = Event::Stayed {
            range,
            node: self.node,
            to: None,
            why: WhyStayed::Tier(self.why),
        };
        reporter.event(now, event);
    }
}
