//! Programs wait for memory: for how long, and what goes up meanwhile.

use super::*;
use crate::swarm::plan::Waits;

/// The part of the time from which on memory is short without any doubt, in thousandths.
const SHORT_PERMILLE: u64 = 300;

/// How long it is so before nothing goes up any more, in ms: a reading that is all of that
/// time comes after two, each of which may be a second and a turn late.
const NOTICE_MS: u64 = 5_000;
/// And how many turns.
const NOTICE_TURNS: u64 = 6;

/// That memory is short.
#[derive(Default)]
pub(super) struct Short {
    /// Since when, and turns since then.
    since: Option<(u64, u64)>,
    /// Pages that went up in this turn all the same.
    up: u64,
}

impl SwarmWorld {
    /// For how long some task has waited until now, in µs.
    fn waited_us(&self, waits: impl Fn(&Waits) -> u64) -> u64 {
        let now_ms = self.now_ms();
        let one = |of: &Waits| now_ms.clamp(of.from_ms, of.to_ms) - of.from_ms;
        let all = self.plan.waits.iter();
        all.map(|of| one(of) * waits(of)).sum()
    }

    pub(super) fn tell_pressure(&mut self, stalls: &mut Stalls) {
        let (now_ms, waited) = (self.now_ms(), self.waited_us(|of| of.machine_permille));
        let of_class = |class: u64| self.waited_us(|of| of.class_permille * (class + 1));
        *stalls = Stalls {
            machine: Some(waited),
            classes: (0..self.first_class)
                .map(|_| Some(0))
                .chain((0..self.plan.classes.len() as u64).map(|class| Some(of_class(class))))
                .collect(),
        };
        let until = self.plan.waits.iter().filter(|of| of.from_ms <= now_ms);
        if let Some(until) = until.map(|of| of.to_ms).max() {
            self.goes_on(Kind::Waits, until);
        }
    }

    /// A turn begins.
    pub(super) fn note_waits(&mut self) {
        let now_ms = self.now_ms();
        let now = self.plan.waits.iter();
        let now = now.filter(|of| of.from_ms <= now_ms && now_ms < of.to_ms);
        let short = now.map(|of| of.machine_permille).sum::<u64>() >= SHORT_PERMILLE;
        let before = self.short.since.take().filter(|_| short);
        self.short = Short {
            since: short.then(|| before.map_or((now_ms, 0), |(at, turns)| (at, turns + 1))),
            up: 0,
        };
    }

    /// The clock leapt: nobody could be told in that time.
    pub(super) fn forget_waits(&mut self) {
        self.short = Short::default();
    }

    /// Judges a move up: while memory is short only pages that commute come up.
    pub(super) fn judge_waits(&mut self, process: ProcessId, target: NodeId) {
        let now_ms = self.now_ms();
        let told = |(at, turns)| now_ms - at >= NOTICE_MS && turns >= NOTICE_TURNS;
        if !self.short.since.is_some_and(told) || !self.machine.node(target).top {
            return;
        }
        self.short.up += 1;
        if self.short.up > 2 * self.machine.processes.len() as u64 {
            let text = || format!("at {now_ms} ms a page of {process:?} goes up, memory is short");
            self.violations.add(text);
        }
    }
}
