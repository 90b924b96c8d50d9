//! What goes wrong, and what programs do meanwhile.

use super::*;

impl SwarmWorld {
    pub(super) fn births(&mut self, now_ms: u64) {
        let programs = &mut self.plan.programs;
        let (born, later) = std::mem::take(programs)
            .into_iter()
            .partition(|program| program.born_ms <= now_ms);
        *programs = later;
        let born: Vec<Program> = born;
        for program in &born {
            self.machine.begin(program, &mut self.random);
        }
    }

    /// A process ends; if `replaced`, another program has its pid at once.
    pub(super) fn end(&mut self, process: ProcessId, replaced: bool) {
        let now_ms = self.now_ms();
        let Some(ended) = self.machine.end(process) else {
            return;
        };
        self.ghosts.push(seen(&ended));
        self.gone.insert(process, now_ms);
        self.lent.retain(|thread, _| thread.pid != process.pid);
        self.moment(Kind::Died);
        if !replaced {
            return;
        }
        self.moment(Kind::Reused);
        let areas = ended.memory.areas;
        // What its owner allows is another thing.
        let areas = areas.into_iter().map(|mut area| {
            area.allowed = match self.random.below(2) {
                0 => Allowed::Anywhere,
                _ => Allowed::Never(crate::world::Fixed::Interleaved),
            };
            area
        });
        let successor = Program {
            pid: process.pid,
            born_ms: now_ms,
            areas: areas.collect(),
            cpuset: self.machine.nodes.iter().map(|node| node.id).collect(),
            fast_one_in: 4,
            hot: (1, 0, ended.hot.len() as u64),
            warm_one_in: 7,
            threads: ended.threads.iter().map(|thread| thread.node).collect(),
        };
        let used = self.machine.nodes.clone();
        self.machine.begin(&successor, &mut self.random);
        for (before, now) in used.iter().zip(&self.machine.nodes) {
            *self.untold.entry(now.id).or_default() += now.used - before.used;
        }
    }

    /// Whoever is named in this call may end in it.
    pub(super) fn names(&mut self, process: ProcessId) {
        let Some((calls, replaced)) = self.dies_within else {
            return;
        };
        self.dies_within = match calls {
            0 => None,
            _ => Some((calls - 1, replaced)),
        };
        if calls == 0 && self.machine.processes.len() > 1 {
            self.end(process, replaced);
        }
    }

    pub(super) fn faults(&mut self) {
        let now_ms = self.now_ms();
        self.births(now_ms);
        while let Some((at, fault)) = self.plan.faults.get(self.next_fault)
            && *at <= now_ms
        {
            let fault = fault.clone();
            self.next_fault += 1;
            self.fault(fault, now_ms);
        }
        self.failing.retain(|(_, _, until)| now_ms < *until);
        if self.lost.is_some_and(|(_, until)| now_ms >= until) {
            self.lost = None;
        }
        let due = |(at, _): &(u64, Fault)| *at <= now_ms;
        for (_, fault) in self
            .restores
            .extract_if(.., |entry| due(entry))
            .collect::<Vec<_>>()
        {
            self.restore(&fault);
        }
    }

    pub(super) fn restore(&mut self, fault: &Fault) {
        match fault {
            Fault::Full { node, percent, .. } => self.machine.nodes[*node].taken -= percent,
            Fault::Offline { node, .. } => self.machine.nodes[*node].offline = false,
            _ => {}
        }
    }

    pub(super) fn of_pid(&self, pid: u32) -> Option<ProcessId> {
        let mut all = self.machine.processes.iter();
        all.find(|known| known.id.pid == pid).map(|known| known.id)
    }

    pub(super) fn fault(&mut self, fault: Fault, now_ms: u64) {
        match fault {
            Fault::Moves {
                outcome,
                one_in,
                for_ms,
            } => self.failing.push((outcome, one_in, now_ms + for_ms)),
            Fault::Full {
                node,
                percent,
                for_ms,
            } => {
                let taken = self.machine.nodes[node].room() * percent / 100;
                self.machine.nodes[node].taken += taken;
                self.goes_on(Kind::Full, now_ms + for_ms);
                let back = Fault::Full {
                    node,
                    percent: taken,
                    for_ms,
                };
                self.restores.push((now_ms + for_ms, back));
            }
            Fault::Dies { pid } => {
                if let Some(process) = self.of_pid(pid) {
                    self.end(process, false);
                }
            }
            Fault::Replaced { pid } => {
                if let Some(process) = self.of_pid(pid) {
                    self.end(process, true);
                }
            }
            Fault::DiesWithin { calls, replaced } => self.dies_within = Some((calls, replaced)),
            Fault::Lost { one_in, for_ms } => {
                self.lost = Some((one_in, now_ms + for_ms));
                self.lossy = true;
                self.goes_on(Kind::Lost, now_ms + for_ms);
            }
            Fault::Breaks => self.breaks = !self.plan.balance,
            Fault::Slow { for_ms } => {
                self.slow_until_ms = now_ms + for_ms;
                self.goes_on(Kind::Slow, now_ms + for_ms);
            }
            Fault::Offline { node, for_ms } => {
                if self.machine.offline(node) {
                    self.goes_on(Kind::Offline, now_ms + for_ms);
                    self.restores.push((now_ms + for_ms, fault));
                }
            }
            Fault::Still { turns } => {
                self.still = turns;
                self.moment(Kind::Still);
            }
            Fault::Leap { ms } => {
                self.now_ns += ms * 1_000_000;
                self.forget_waits();
                // Nobody could notice anything in that time.
                self.gone.values_mut().for_each(|went| *went += ms);
                self.moment(Kind::Leapt);
            }
            Fault::OtherHot { pid, hot } => {
                if let Some(at) = self.of_pid(pid).and_then(|id| self.machine.find(id)) {
                    self.machine.processes[at].heat(hot);
                    self.moment(Kind::OtherHot);
                }
            }
            Fault::Swapped { pid, one_in } => {
                let Some(id) = self.of_pid(pid) else { return };
                let at = self.machine.find(id).expect("it is there");
                let all = self.machine.processes[at].present();
                let all: Vec<VirtualPage> = all.map(|(page, _)| page).collect();
                for page in all {
                    if self.random.below(one_in) == 0 {
                        self.machine.swap_out(id, page);
                    }
                }
                self.moment(Kind::Swapped);
            }
        }
    }

    /// From now on nothing goes wrong.
    pub fn end_faults(&mut self) {
        self.next_fault = self.plan.faults.len();
        self.births(u64::MAX);
        for (_, fault) in std::mem::take(&mut self.restores) {
            self.restore(&fault);
        }
        self.failing.clear();
        self.lost = None;
        self.dies_within = None;
        self.still = 0;
        self.slow_until_ms = 0;
        self.breaks = false;
        self.until_ms
            .retain(|kind, _| *kind == Kind::ManyMappings as usize);
        self.machine.swap_in();
    }

    /// The outcome with which this move fails, if it does.
    pub(super) fn fails(&mut self, process: ProcessId, page: VirtualPage) -> Option<Outcome> {
        if self.is(Mistake::StuckForEver) && self.refused.contains(&(process, page)) {
            return Some(Outcome::NotPermitted);
        }
        let mut chosen = None;
        for (outcome, one_in, _) in &self.failing {
            if self.random.below(*one_in) == 0 {
                chosen = Some(FAILURES[*outcome]);
            }
        }
        match chosen? {
            Outcome::NotPresent | Outcome::ZeroOrUnmapped => {
                self.machine.swap_out(process, page);
            }
            Outcome::ProcessGone => {
                if self.machine.processes.len() < 2 || self.random.below(50) > 0 {
                    return None;
                }
                self.end(process, false);
            }
            _ => {}
        }
        self.refused.insert((process, page));
        chosen
    }
}
