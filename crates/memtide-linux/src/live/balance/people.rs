//! Threads are told, or had, to run elsewhere.

use super::affinity::Kept;
use super::report::{Event, Reporter, TaskMove, TaskState};
use super::{Balancing, Tasks};
use memtide_core::balancing::sampled;
use memtide_core::units::NodeId;
use std::collections::BTreeSet;

impl Balancing {
    pub(super) fn place_tasks(&mut self, wanted: &[sampled::TaskMove], to: &mut dyn Reporter) {
        for task_move in wanted {
            self.place_task(task_move, to);
        }
    }

    fn place_task(&mut self, wanted: &sampled::TaskMove, reporter: &mut dyn Reporter) {
        let Some(known) = self.threads.of_task(wanted.task) else {
            return;
        };
        let thread = known.thread;
        let cpus = self.cpus_of(wanted.to);
        let only_said = self.options.dry_run || self.options.tasks == Tasks::Propose;
        let done = match only_said {
            true => self.affinities.propose(thread, &cpus),
            false => self.affinities.lend(thread, &cpus),
        };
        let share = (wanted.there * 100).checked_div(wanted.all).unwrap_or(0);
        let whose = match wanted.group {
            Some(_) => "its group's",
            None => "its",
        };
        let used = format!(
            "{share} % of {whose} accesses go to memory of node {}",
            wanted.to
        );
        let (state, cpus, why) = match done {
            Ok(cpus) if only_said => (TaskState::Proposed, cpus, used),
            Ok(cpus) => (TaskState::Set, cpus, used),
            // There is nothing to tell of who is gone.
            Err(Kept::Gone) => return,
            Err(why) => (
                TaskState::Kept,
                BTreeSet::new(),
                format!("{used}, but {why}"),
            ),
        };
        // Whoever is left alone is told of once.
        let fresh = self.told_tasks.insert((thread, wanted.to, state));
        if state == TaskState::Set || fresh {
            self.counts.proposed += usize::from(state == TaskState::Proposed);
            let event = TaskMove {
                pid: thread.pid,
                tid: thread.tid,
                node: wanted.to,
                state,
                cpus,
                why,
            };
            reporter.event(self.at(), Event::Task(event));
        }
    }

    fn cpus_of(&self, node: NodeId) -> BTreeSet<u32> {
        let nodes = self.topology.nodes().iter();
        let mut found = nodes.filter(|known| known.id == node);
        found
            .next()
            .map_or_else(BTreeSet::new, |node| node.cpus.iter().copied().collect())
    }
}
