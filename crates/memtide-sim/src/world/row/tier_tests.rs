//! `memtide tier` through days in which nobody does anything, at the beginning of which all memory of a
//! program is fast.

use super::*;
use crate::kernel::testing::{machine, region};
use crate::page::Slot;
use crate::rng::Rng;
use crate::workload::{Access, Filled, Pattern, Plan, RegionPlan, ThreadPlan, Truth};
use memtide_core::vmstat::Counter;
use memtide_loop::options::TierOptions;

const PAGES: u32 = 500;
const DAY_NS: u64 = 86_400_000_000_000;

/// It touches each page, is idle for 100 days, and touches one.
struct Sleeper {
    plan: Plan,
    base: Slot,
    turn: u32,
}

fn sleeper() -> Sleeper {
    let memory = RegionPlan {
        populated_from: Some(0),
        ..region(PAGES)
    };
    let thread = ThreadPlan {
        space: 0,
        nodes: vec![0],
        pattern: Pattern::Random,
        ops_per_access: 1,
        think_ns: 0.0,
        misses_at_once: None,
        group: 0,
    };
    Sleeper {
        plan: Plan {
            regions: vec![memory],
            threads: vec![thread],
            ends_at_ns: None,
        },
        base: 0,
        turn: 0,
    }
}

impl Source for Sleeper {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn mapped(&mut self, slots: &[Slot]) {
        self.base = slots[0];
    }

    fn fill(&mut self, _: usize, _: u64, _: &mut Rng, batch: &mut [Access]) -> Filled {
        self.turn += 1;
        match self.turn {
            PAGES => Filled::Thinks(100 * DAY_NS),
            1..=PAGES | 501 => {
                batch[0] = Access::new(self.base + self.turn % PAGES, 0, 1, false);
                Filled::Accesses(1)
            }
            _ => Filled::Done,
        }
    }

    fn done(&self) -> f64 {
        0.0
    }

    fn phase(&self, _: u64) -> u64 {
        0
    }

    fn truth(&self, _: usize, _: u32, _: u64) -> Truth {
        Truth { rate: 1.0, node: 0 }
    }
}

fn ran(tier: TierOptions) -> RunResult {
    let spec = machine(&[(16_384, 4), (16_384, 0)], 64);
    let configuration = Configuration {
        tier: Some(tier),
        ..Configuration::off("test")
    };
    let result = run(&spec, sleeper(), &configuration, (1, 1), &|_| ()).unwrap();
    assert_eq!((result.seconds / 86_400.0).round(), 100.0);
    result
}

#[test]
fn the_loop_sleeps_through_idle_days() {
    let result = ran(TierOptions::DEFAULT);
    let tiering = result.tiering.unwrap();
    // It is awake for two seconds, before the engine's time jumps, and for some quanta.
    assert!(tiering.own_cpu_ns < 1_000_000, "{tiering:?}");
    assert_eq!(result.counters.get(Counter::PgdemoteProactive), 0);
}

#[test]
fn what_is_idle_for_days_leaves_in_them() {
    let result = ran(TierOptions {
        demote_idle: Some("10m".parse().unwrap()),
        ..TierOptions::DEFAULT
    });
    // One page commutes, so that translations are flushed; it need not be one of those that left.
    let left = result.counters.get(Counter::PgdemoteProactive);
    assert!(
        (u64::from(PAGES) - 1..=u64::from(PAGES)).contains(&left),
        "{left}"
    );
    // At the latest twenty minutes on, and one second in which the rate admits all, it is asleep.
    let tiering = result.tiering.unwrap();
    assert!(tiering.passes < 100_000, "{tiering:?}");
}
