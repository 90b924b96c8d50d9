//! Classes of programs: what each uses of fast memory, and what the loop may do to it.

use super::*;

/// How long a class may be above its bound after faults ended, in ms.
const BOUND_MS: u64 = 5_000;
/// The same where moves failed: pages that would not move are left alone for a minute,
/// and where pages lie is found out anew after two at most.
const BOUND_AFTER_FAILURES_MS: u64 = 190_000;

impl SwarmWorld {
    /// The pages of `class`, and of those within it, on the top tier.
    pub(super) fn used_within(&self, class: ClassId) -> u64 {
        self.used_by(|of| self.plan.path(of).any(|of| of == class))
    }

    /// The pages on the top tier of classes that `fit`.
    pub(super) fn used_by(&self, fit: impl Fn(ClassId) -> bool) -> u64 {
        let members = self.machine.processes.iter();
        let members = members.filter(|process| self.plan.class(process.id.pid).is_some_and(&fit));
        let on_top = |process: &Process| {
            let present = process.present();
            present
                .filter(|(_, node)| self.machine.node(*node).top)
                .count() as u64
        };
        members.map(on_top).sum()
    }

    /// The classes that contain `process`, and what they use now, if that is judged by now.
    pub(super) fn class_pages(&self, process: ProcessId) -> Vec<(ClassId, u64)> {
        let judged = self.now_ms() >= self.shares_from_ms;
        let class = self.plan.class(process.pid).filter(|_| judged);
        let around = class.into_iter().flat_map(|class| self.plan.path(class));
        around
            .map(|class| (class, self.used_within(class)))
            .collect()
    }

    /// Judges a move of a page by what the loop knew: of who has less than is protected
    /// only pages that commute leave, one of each process in a turn. Bounds of classes within
    /// one hold whatever is protected around them.
    pub(super) fn judge_protected(&mut self, process: ProcessId, target: NodeId) {
        let Some(class) = self.plan.class(process.pid) else {
            return;
        };
        let path: Vec<ClassId> = self.plan.path(class).collect();
        for (n, class) in path.iter().enumerate() {
            let has_bound = |class: &ClassId| self.plan.classes[class.0 as usize].1.is_some();
            // What is protected within a bound may have to leave for it, too.
            let bound = path[..n].iter().chain(&path[n + 1..]).any(has_bound);
            self.judge_floor(process, target, *class, bound);
        }
    }

    /// What of `class` is not taken for others: what it protects, and no more than is protected around it.
    fn floor(&self, class: ClassId) -> u64 {
        let low = |class: ClassId| self.plan.classes[class.0 as usize].0;
        let around = self.plan.path(class).skip(1).map(low);
        around.filter(|low| *low > 0).fold(low(class), u64::min)
    }

    fn judge_floor(&mut self, process: ProcessId, target: NodeId, class: ClassId, bound: bool) {
        let low = self.floor(class);
        let (now_ms, slack) = (self.now_ms(), self.commuting());
        let Some(told) = self.told.get_mut(&class) else {
            return;
        };
        let before = *told;
        if self.machine.node(target).top {
            *told += 1;
            return;
        }
        *told = before.saturating_sub(1);
        if bound || before + slack >= low {
            return;
        }
        let taken = self.taken.entry(class).or_default();
        *taken += 1;
        if *taken > slack {
            let text = || {
                format!(
                    "at {now_ms} ms a page of {process:?} is taken, {before} are and {low} are protected"
                )
            };
            self.violations.add(text);
        }
    }

    /// One page of each process commutes, whatever its class has.
    fn commuting(&self) -> u64 {
        2 * self.machine.processes.len() as u64
    }

    /// Judges a move up by what its class used before.
    pub(super) fn judge_share(
        &mut self,
        process: ProcessId,
        target: NodeId,
        before: &[(ClassId, u64)],
    ) {
        for (class, used) in before {
            self.judge_bound(process, target, *class, *used);
        }
    }

    fn judge_bound(&mut self, process: ProcessId, target: NodeId, class: ClassId, used: u64) {
        let (_, high) = self.plan.classes[class.0 as usize];
        let (now_ms, slack) = (self.now_ms(), self.commuting());
        let up = self.machine.node(target).top;
        // Who may have no more gets no more, though pages that may not leave are more.
        let fewest = self.fewest.entry(class).or_insert(used);
        *fewest = (*fewest).min(used);
        let most = high.map(|high| high.max(*fewest) + slack);
        if up && most.is_some_and(|most| used >= most) {
            let text = || {
                format!(
                    "at {now_ms} ms a page of {process:?} comes up, {used} are and {high:?} may be"
                )
            };
            self.violations.add(text);
        }
    }

    /// When classes have to be within their bounds, and are judged from then on.
    pub fn judge_shares_from(&mut self) -> u64 {
        let failed =
            !self.refused.is_empty()
                || self.plan.faults.iter().any(|(_, fault)| {
                    matches!(fault, Fault::Offline { .. } | Fault::Swapped { .. })
                });
        let after_ms = match failed {
            true => BOUND_AFTER_FAILURES_MS,
            false => BOUND_MS,
        };
        self.shares_from_ms = self.now_ms() + after_ms;
        self.shares_from_ms
    }

    /// Judges whether each class is within its bound, by more than a fiftieth; but for
    /// pages that may not leave, or for which there is no room, and for what is protected
    /// within it until things have `settled`.
    pub fn check_shares(&mut self, settled: bool) {
        if self.dry_run() {
            return;
        }
        let lower = self.machine.nodes.iter().filter(|node| !node.top);
        let roomy = lower.filter(|node| node.room() > self.headroom() + self.commuting());
        let roomy: Vec<NodeId> = roomy.map(|node| node.id).collect();
        for class in (0..self.plan.classes.len() as u32).map(ClassId) {
            let Some(high) = self.plan.classes[class.0 as usize].1 else {
                continue;
            };
            let (used, slack) = (self.used_within(class), self.commuting());
            let contains = |of| self.plan.path(of).any(|of| of == class);
            let members = self.machine.processes.iter();
            let members =
                members.filter(|process| self.plan.class(process.id.pid).is_some_and(contains));
            let stays = |process: &Process| {
                let present = process.present();
                let may = |page, node: &NodeId| process.memory.may_move(page, *node).is_ok();
                let stays = present.filter(|(page, node)| {
                    self.machine.node(*node).top && !roomy.iter().any(|node| may(*page, node))
                });
                stays.count() as u64
            };
            let mut fixed: u64 = members.map(stays).sum();
            if !settled && self.plan.nested && class == ClassId(0) && self.plan.classes.len() > 1 {
                fixed += self.plan.classes[1].0;
            }
            if used > fixed.max(high + high / 50) + slack {
                let now_ms = self.now_ms();
                let text = || {
                    format!(
                        "at {now_ms} ms {class:?} has {used} fast pages, {fixed} of them for good, and may have {high}"
                    )
                };
                self.violations.add(text);
            }
        }
    }
}
