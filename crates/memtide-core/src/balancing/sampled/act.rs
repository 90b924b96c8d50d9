//! A batch: what queued up is asked once more, and becomes a plan.

use super::super::balancer::TaskId;
use super::super::cpupid::Cpupid;
use super::super::gate::Verdict;
use super::plan::{PageMove, Plan, Stay, TaskMove};
use super::{Pending, Sampled};
use crate::hotness::Hotness;
use crate::pages::{NodeSpace, Pages};
use crate::units::{Millis, NodeId, PageNumber};

/// The longest time for which pages that did not move may move later.
const SAVED_MS: u64 = 1000;

/// Pages that may move now, so that over time no more do than allowed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    at_ms: Option<u64>,
    /// In thousandths of pages.
    saved: u64,
}

impl Allowance {
    /// What may be spent at `now_ms`. The first call has all that can be saved.
    fn refill(&mut self, per_s: u64, now_ms: u64) -> u64 {
        let passed = self.at_ms.map_or(SAVED_MS, |at| now_ms.saturating_sub(at));
        self.at_ms = Some(now_ms.max(self.at_ms.unwrap_or(0)));
        let most = per_s.saturating_mul(SAVED_MS);
        let more = per_s.saturating_mul(passed.min(SAVED_MS));
        self.saved = self.saved.saturating_add(more).min(most);
        self.saved / 1000
    }

    fn spend(&mut self, pages: u64) {
        self.saved = self.saved.saturating_sub(pages.saturating_mul(1000));
    }
}

/// What is left of nodes' room while a batch fills it. Few nodes are asked about.
struct Rooms(Vec<(NodeId, Option<NodeSpace>)>);

impl Rooms {
    fn take(&mut self, node: NodeId, folio: u64, pages: &impl Pages) -> bool {
        let known = self.0.iter().position(|&(id, _)| id == node);
        let at = known.unwrap_or_else(|| {
            self.0.push((node, pages.space(node)));
            self.0.len() - 1
        });
        let room = &mut self.0[at].1;
        let takes = room.is_none_or(|room| room.takes(folio));
        *room = room.map(|room| if takes { room.less(folio) } else { room });
        takes
    }
}

impl Sampled {
    /// Decides what to do with what has queued up, at `now`; `plan` is filled anew.
    /// Pages that find the batch full wait for the next one, the most frequent first.
    pub fn act(&mut self, now: Millis, pages: &impl Pages, plan: &mut Plan) {
        self.act_at_most(u64::MAX, now, pages, plan);
    }

    /// As [`act`](Self::act), with about `most` base pages to move: what its caller
    /// can pay for now. The last folio may go beyond, or else a huge page behind a
    /// single one could wait for ever.
    pub fn act_at_most(&mut self, most: u64, now: Millis, pages: &impl Pages, plan: &mut Plan) {
        plan.moves.clear();
        plan.tasks.clear();
        plan.stays = super::Stays::default();
        let mut queue = std::mem::take(&mut self.pending);
        for pending in &mut queue {
            self.ask_late(pending, pages);
        }
        self.place_tasks(now, plan);
        let saved = self.allowance.refill(self.config.pages_per_s, now.0);
        let batch = saved.min(self.config.batch_pages);
        let queued: u64 = queue.iter().map(|pending| u64::from(pending.pages)).sum();
        if queued > batch.min(most) {
            let store = &self.store;
            let seen = |page| store.peek(page, now).map_or(0, |hot| hot.frequency);
            queue.sort_by_cached_key(|pending| (u8::MAX - seen(pending.page), pending.page));
        }
        let mut rooms = Rooms(Vec::new());
        let mut planned = 0;
        queue.retain(|pending| {
            let folio = u64::from(pending.pages);
            match self.admit(pending, now, pages, plan) {
                Ok(_) if planned >= most || planned + folio > batch => {
                    plan.stays.waiting += 1;
                    return true;
                }
                Ok(page_move) if rooms.take(page_move.to, folio, pages) => {
                    planned += folio;
                    plan.moves.push(page_move);
                }
                Ok(_) => plan.stays.add(Stay::NoRoom),
                Err(why) => plan.stays.add(why),
            }
            self.notes.unqueue(pending.page);
            false
        });
        self.pending = queue;
        self.allowance.spend(planned);
        plan.moves.sort_unstable_by_key(|m| (m.to, m.task, m.page));
    }

    /// What became of a planned move. A failed page may be asked for again at once;
    /// its failure makes the task's samples rarer.
    pub fn outcome(&mut self, done: &PageMove, moved: bool, now: Millis) {
        let pages = u64::from(done.pages);
        match moved {
            true => {
                self.account.pages_moved += pages;
                self.notes.moved(done.page, self.config.rest_ms, now.0);
            }
            false => {
                self.account.pages_failed += pages;
                self.balancer.failed(done.task, pages);
            }
        }
    }

    /// Asks the gate about a page whose node was not known before.
    fn ask_late(&mut self, pending: &mut Pending, pages: &impl Pages) {
        if pending.verdict.is_none()
            && let Some(node) = pages.node_of(pending.page)
        {
            let mut touch = pending.touch;
            touch.node = node;
            let (verdict, _) = self.judge(&touch, pending.to, &pending.clock);
            pending.verdict = Some(verdict);
            pending.touch = touch;
        }
    }

    /// Whether a queued page shall move.
    fn admit(
        &self,
        pending: &Pending,
        now: Millis,
        pages: &impl Pages,
        plan: &Plan,
    ) -> Result<PageMove, Stay> {
        let Pending { page, task, to, .. } = *pending;
        let from = pages.node_of(page).ok_or(Stay::Gone)?;
        if self.balancer.task(task).is_none() {
            return Err(Stay::Gone);
        }
        if from == to {
            return Err(Stay::AtTarget);
        }
        let why = pending.verdict.ok_or(Stay::Gone)?;
        if !why.moves() {
            return Err(Stay::Gate(why));
        }
        if plan.tasks.iter().any(|t| t.task == task) {
            return Err(Stay::TaskMoves);
        }
        let hot = self.seen_enough(page, why, now).ok_or(Stay::Seldom)?;
        if !self.is_last_from(page, to) {
            return Err(Stay::Contested);
        }
        if self.notes.rests(page, self.config.rest_ms, now.0) {
            return Err(Stay::Rests);
        }
        pages.may_move(page, to).map_err(Stay::Immovable)?;
        Ok(PageMove {
            page,
            pages: pending.pages,
            task,
            from,
            to,
            frequency: hot.frequency,
            why,
        })
    }

    /// The page's record if it was seen often enough within the window.
    fn seen_enough(&self, page: PageNumber, why: Verdict, now: Millis) -> Option<Hotness> {
        let hot = self.store.peek(page, now)?;
        let config = self.store.config();
        let at_once = why == Verdict::Young && self.config.young_at_once;
        let enough = hot.frequency >= config.threshold() || at_once;
        (enough && hot.age_ms <= config.window_ms()).then_some(hot)
    }

    /// Whether the last touch came from that node.
    fn is_last_from(&self, page: PageNumber, node: NodeId) -> bool {
        let last: Cpupid = self.notes.last(page);
        let balancer = &self.config.balancer;
        let cpu = balancer.format.cpu(last) as usize;
        balancer.node_of_cpu.get(cpu) == Some(&node)
    }

    /// Tasks that wish to run elsewhere and have rested.
    fn place_tasks(&mut self, now: Millis, plan: &mut Plan) {
        let mut wishing = std::mem::take(&mut self.wishing);
        for task in wishing.drain(..) {
            let index = task.0 as usize;
            let Some(to) = self.wishes[index].take() else {
                continue;
            };
            if now.0 < self.task_rest_ms[index] {
                continue;
            }
            if let Some(task_move) = self.task_move(task, to) {
                self.task_rest_ms[index] = now.0 + u64::from(self.config.task_rest_ms);
                plan.tasks.push(task_move);
            }
        }
        self.wishing = wishing;
    }

    fn task_move(&self, task: TaskId, to: NodeId) -> Option<TaskMove> {
        let own = self.balancer.task(task)?;
        let group = self.balancer.group_of(task);
        let mem = match group {
            Some(group) => &group.sums().mem,
            None => &own.faults().averages().mem,
        };
        Some(TaskMove {
            task,
            to,
            group: own.group(),
            there: mem.of(to),
            all: mem.total(),
        })
    }
}
