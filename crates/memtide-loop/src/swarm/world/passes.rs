//! What sources see: passes over what is watched, and samples of threads.

use super::*;

impl SwarmWorld {
    /// Ends one pass of a view.
    pub(super) fn pass(&mut self, (source, glance): (SourceId, bool), came: &mut Came) {
        let watching = &self.views[&(source, glance)];
        let view = if glance { View::Glance } else { View::Look };
        let (mut pages, mut spans) = (0, 0);
        for subject in &watching.subjects {
            let Some(at) = self.machine.find(subject.process) else {
                continue;
            };
            let process = &self.machine.processes[at];
            for span in &subject.spans {
                pages += span.pages;
                spans += 1;
                let (mut first, mut sampled) = (span.first, span.pages);
                if glance {
                    // One page answers for all of them, another one in each pass: no source that offers
                    // glances sees more of a span, and the search counts on it. If each page answered,
                    // a block with a few hot pages would look hot throughout, and no stretch with one idle.
                    first.0 += self.glanced.below(span.pages);
                    sampled = 1;
                }
                let hot = within(&process.hot, first, sampled);
                let warm = within(&process.warm, first, sampled);
                let random = &mut self.random;
                let warm = warm.iter().filter(|_| random.below(4) == 0);
                let mut touched: Vec<u64> = hot.iter().chain(warm).copied().collect();
                touched.sort_unstable();
                touched.retain(|page| process.node(VirtualPage(*page)).is_some());
                if glance {
                    touched.iter_mut().for_each(|page| *page = span.first.0);
                }
                let pages = if glance { span.pages } else { 1 };
                let owner = subject.owner;
                came.reports
                    .extend(touched.into_iter().map(|first| Report::Touched {
                        source,
                        view,
                        owner,
                        first: VirtualPage(first),
                        pages,
                    }));
            }
        }
        let dearer = if self.now_ms() < self.slow_until_ms {
            50
        } else {
            1
        };
        let cost_ns = match view {
            View::Look => pages * self.plan.page_ns * dearer,
            // A span costs what a page of it does.
            View::Glance => spans * 500,
        };
        *self.kernel_ns.entry(source).or_default() += cost_ns;
        if view == View::Look {
            self.dearest_ns = self.dearest_ns.max(cost_ns);
        }
        // The pass that uses up what is in hand is begun before that is known, and
        // those after it without which the look decides nothing.
        let mut slack_ns = self.passes_of_a_look() * self.dearest_ns + 50_000_000;
        if self.lossy {
            // A pass that loses its reports is not known to have ended: as much as
            // can be saved up is owed before the look is given up.
            slack_ns += BURST_NS;
        }
        let now_ms = self.now_ms();
        if let Some(over) = self.observing.used(now_ms, cost_ns, slack_ns) {
            let text = || format!("at {now_ms} ms observing took {over} ns too much");
            self.violations.add(text);
        }
        came.reports.push(Report::Pass { source, view });
    }

    /// Passes without which a look decides nothing.
    pub(super) fn passes_of_a_look(&self) -> u64 {
        u64::from(self.plan.tier.threshold.get()).max(2)
    }

    pub(super) fn watch(
        &mut self,
        key: (SourceId, bool),
        subjects: Vec<Subject>,
        interval_ms: u64,
    ) {
        self.views.remove(&key);
        let wrong = subjects.iter().find(|subject| !subject.is_in_order());
        assert!(wrong.is_none(), "spans overlap: {wrong:?}");
        if !subjects.is_empty() {
            let interval_ns = interval_ms.max(1) * 1_000_000;
            let watching = Watching {
                subjects,
                interval_ns,
                due_ns: self.now_ns + interval_ns,
                ends: false,
            };
            self.views.insert(key, watching);
        }
    }

    /// Time passes until a pass ends, or for so long.
    pub(super) fn passes(&mut self, at_most_ms: u64, came: &mut Came) {
        let end_ns = self.now_ns + at_most_ms * 1_000_000;
        let due = self.views.iter().map(|(key, view)| (view.due_ns, *key));
        match due.min().filter(|(due_ns, _)| *due_ns <= end_ns) {
            Some((due_ns, key)) => {
                self.now_ns = self.now_ns.max(due_ns);
                self.pass(key, came);
                let longer = if self.now_ms() < self.slow_until_ms {
                    50
                } else {
                    1
                };
                let now_ns = self.now_ns;
                let view = self.views.get_mut(&key).expect("it was due");
                // What a leap of the clock left out is not made up for.
                view.due_ns = now_ns + view.interval_ns * longer;
                if view.ends {
                    self.views.remove(&key);
                }
            }
            None => self.now_ns = end_ns,
        }
    }

    /// What threads touched while time passed.
    pub(super) fn sampled(&mut self, at_most_ms: u64, came: &mut Came) {
        let passed_ms = at_most_ms.min(50);
        self.now_ns += passed_ms * 1_000_000;
        for process in &mut self.machine.processes {
            let threads = process.threads.len();
            for n in 0..threads {
                let thread = &mut process.threads[n];
                thread.runtime_ns += passed_ms * 1_000_000;
                let node = self.lent.get(&thread.id).copied().unwrap_or(thread.node);
                let part = process.hot.len().div_ceil(threads).max(1);
                let own = process.hot.chunks(part).nth(n).unwrap_or(&[]);
                // Every page is as likely as the others.
                for _ in 0..own.len().div_ceil(2).min(64) {
                    let page = own[self.random.below(own.len() as u64) as usize];
                    came.samples.push(Sample {
                        source: SourceId(0),
                        pid: thread.id.pid,
                        tid: thread.id.tid,
                        cpu: 2 * u32::from(node.0),
                        address: page << 12,
                    });
                }
            }
        }
        let Some((one_in, _)) = self.lost else { return };
        if self.random.below(one_in) == 0 {
            let invalid = Invalid {
                source: SourceId(0),
                lost: came.samples.len() as u64,
                throttled: 0,
            };
            came.samples.clear();
            came.invalid.push(invalid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::tiering::space::OwnerId;

    /// One page of 64 is in use. In 6400 passes it is the one that answers about 100 times, with a
    /// deviation of ten.
    #[test]
    fn one_page_answers_for_all_that_a_glance_was_given() {
        let fits = |plan: &Plan| {
            let program = &plan.programs[0];
            !plan.balance && program.born_ms == 0 && program.areas[0].pages >= 64
        };
        let plan = (0..1000).map(Plan::draw).find(fits).expect("one of many");
        let mut world = SwarmWorld::new(&plan, None);
        let process = &mut world.machine.processes[0];
        let (id, first) = (process.id, process.memory.areas[0].first);
        let end = VirtualPage(first.0 + 64);
        let hot = {
            let mut present = process.present().map(|(page, _)| page);
            present.find(|page| (first..end).contains(page))
        };
        let hot = hot.expect("most are present").0;
        (process.hot, process.warm) = (vec![hot], Vec::new());
        let subject = Subject {
            owner: OwnerId(0),
            process: id,
            spans: vec![Span { first, pages: 64 }],
        };
        let key = (SourceId(0), true);
        world.watch(key, vec![subject], 100);
        let mut touched = 0;
        for _ in 0..6400 {
            let mut came = Came::default();
            world.pass(key, &mut came);
            touched += came.reports.len() - 1;
            if let [
                Report::Touched {
                    first: of, pages, ..
                },
                _,
            ] = came.reports[..]
            {
                assert_eq!((of, pages), (first, 64), "the span as a whole");
            }
        }
        assert!((60..=140).contains(&touched), "{touched}");
    }
}
