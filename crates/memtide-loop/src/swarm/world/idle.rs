//! Pages that leave because nobody touched them for long: what the loop was told of
//! each, and how fast they go.

use super::*;
use crate::report::{Direction, Event};

/// What was told, and what left.
#[derive(Default)]
pub(super) struct Told {
    /// When each page was last told to be in use, in ms.
    used: BTreeMap<(ProcessId, VirtualPage), u64>,
    /// Of pages that went down: when, and when they were last told to be in use.
    went: BTreeMap<(u32, VirtualPage), (u64, Option<u64>)>,
    /// What the rate admits, in thousandths of a page.
    rate: Option<Allowance>,
}

impl SwarmWorld {
    /// Notes what the loop is about to be told.
    pub(super) fn note_told(&mut self, came: &mut Came) {
        if self.plan.tier.demote_idle.is_none() {
            return;
        }
        let now_ms = self.now_ms();
        for report in &came.reports {
            let Report::Touched {
                source,
                view,
                owner,
                first,
                pages,
            } = *report
            else {
                continue;
            };
            let view = self.views.get(&(source, view == View::Glance));
            let mut subjects = view.iter().flat_map(|view| &view.subjects);
            let Some(subject) = subjects.find(|subject| subject.owner == owner) else {
                continue;
            };
            for page in (first.0..first.0 + pages).map(VirtualPage) {
                self.told_idle.used.insert((subject.process, page), now_ms);
            }
        }
        if self.is(Mistake::ForgetUse) {
            came.reports.retain(|report| !self.is_of_fast(report));
        }
    }

    /// Whether pages of the top tier are said to be in use.
    fn is_of_fast(&self, report: &Report) -> bool {
        let Report::Touched { owner, first, .. } = *report else {
            return false;
        };
        let mut subjects = self.views.values().flat_map(|view| &view.subjects);
        let subject = subjects.find(|subject| subject.owner == owner);
        let at = subject.and_then(|subject| self.machine.find(subject.process));
        let node = at.and_then(|at| self.machine.processes[at].node(first));
        node.is_some_and(|node| self.machine.node(node).top)
    }

    /// Notes that a page goes to a lower tier.
    pub(super) fn note_down(&mut self, process: ProcessId, page: VirtualPage, target: NodeId) {
        if self.plan.tier.demote_idle.is_some() && !self.machine.node(target).top {
            let used = self.told_idle.used.get(&(process, page)).copied();
            let went = (self.now_ms(), used);
            self.told_idle.went.insert((process.pid, page), went);
        }
    }

    /// Judges what the loop says of its moves: what left for idleness was not told to be
    /// in use for as long as that takes, and did not go faster than the rate.
    pub fn judge_idle(&mut self, events: &[(Millis, Event)]) {
        let Some(after) = self.plan.tier.demote_idle else {
            return;
        };
        let mut rate = self.plan.tier.demote_idle_rate.0 >> 12;
        if !self.plan.waits.is_empty() {
            // Up to four times as fast, and pages of classes by themselves.
            rate *= 4 + 3 * self.plan.classes.len() as u64;
        }
        let long = format!("not touched for {after}");
        for (at, event) in events {
            let Event::Moved {
                direction: Some(Direction::Demotion),
                dry_run: false,
                range,
                why,
                ..
            } = event
            else {
                continue;
            };
            if *why != long {
                continue;
            }
            let most = 1000 * rate.max(512);
            let told = &mut self.told_idle;
            let allowance = told.rate.get_or_insert_with(|| Allowance::new(rate, most));
            if let Some(over) = allowance.used(at.0, 1000 * range.pages, 1000) {
                let text = || format!("at {} ms {over} too many left for idleness", at.0);
                self.violations.add(text);
            }
            let first = range.address >> 12;
            for page in (first..first + range.pages).map(VirtualPage) {
                let Some((went, Some(used))) = told.went.get(&(range.pid, page)) else {
                    continue;
                };
                if went - used < after.ms() {
                    let text = || {
                        format!(
                            "{page:?} left for idleness at {went} ms, and was in use at {used} ms"
                        )
                    };
                    self.violations.add(text);
                }
            }
        }
    }
}
