//! `memtide tier` by hardware samples, alone and beside DAMON, on a small machine.

use super::*;
use crate::kernel::testing::{machine, region};
use crate::page::Slot;
use crate::rng::Rng;
use crate::workload::{Access, Filled, Pattern, Places, Plan, RegionPlan, ThreadPlan, Truth};
use memtide_core::vmstat::Counter;
use memtide_loop::options::TierOptions;

/// Pages on the slow node.
const PAGES: u32 = 4_000;
/// Of these in use: 2 MiB, twice as much as the cache holds.
const HOT: u32 = 500;
const SECONDS: u64 = 10;

/// Two threads that read random lines of the first `hot` pages.
struct Reader {
    plan: Plan,
    hot: u32,
    base: Slot,
}

fn spec() -> MachineSpec {
    machine(&[(16_384, 4), (16_384, 0)], 64)
}

fn reader(hot: u32, ops_per_access: u32) -> Reader {
    let places = Places::new(&spec());
    let memory = RegionPlan {
        policy: places.prefer(1),
        policy_after: Some(places.default_policy()),
        populated_from: Some(0),
        ..region(PAGES)
    };
    let thread = || ThreadPlan {
        space: 0,
        nodes: vec![0],
        pattern: Pattern::Random,
        ops_per_access,
        think_ns: 2000.0,
        misses_at_once: None,
        group: 0,
    };
    Reader {
        plan: Plan {
            regions: vec![memory],
            threads: vec![thread(), thread()],
            ends_at_ns: Some(SECONDS * 1_000_000_000),
        },
        hot,
        base: 0,
    }
}

impl Source for Reader {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn mapped(&mut self, slots: &[Slot]) {
        self.base = slots[0];
    }

    fn fill(&mut self, _: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        for access in &mut *batch {
            *access = Access::new(self.base + rng.below(self.hot), rng.below(64), 1, false);
        }
        Filled::Accesses(batch.len())
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

fn options(text: &str) -> TierOptions {
    toml::from_str(text).unwrap()
}

fn ran(reader: Reader, text: &str) -> RunResult {
    let configuration = Configuration {
        tier: Some(options(text)),
        ..Configuration::off("test")
    };
    run(&spec(), reader, &configuration, (1, 1), &|_| ()).unwrap()
}

fn promoted(result: &RunResult) -> u64 {
    result.counters.get(Counter::PgpromoteSuccess)
}

#[test]
fn what_is_sampled_comes_home_and_nothing_else() {
    for text in ["source = 'ibs'", "source = 'damon,ibs'"] {
        let result = ran(reader(HOT, 1), text);
        let came = promoted(&result);
        assert!(
            (u64::from(HOT) * 99 / 100..=505).contains(&came),
            "{text}: {came}"
        );
        let tiering = result.tiering.as_ref().unwrap();
        // Half a second of a CPU in ten, and what is in hand for looks.
        let most_ns = SECONDS * 50_000_000 + 3_000_000_000;
        assert!(tiering.observing_cpu_ns <= most_ns, "{text}: {tiering:?}");
        assert!(result.overhead.sampler_ns > 0, "{text}");
        assert_eq!(
            tiering.passes > 0,
            text.contains("damon"),
            "{text}: {tiering:?}"
        );
    }
}

/// A thousand operations go by with each access, so that samples come as fast as anybody
/// wants: the kernel throttles them, and the budget bounds them.
#[test]
fn hardware_that_is_throttled_does_its_work_within_the_budget() {
    let text = "source = 'ibs'\nsample_rate = 1000000\nobserve_cpu = 100";
    let flooded = ran(reader(HOT, 1000), text);
    assert!(promoted(&flooded) >= u64::from(HOT) * 99 / 100);
    let unbound_ns = flooded.tiering.unwrap().observing_cpu_ns;
    let result = ran(reader(HOT, 1000), "source = 'ibs'\nsample_rate = 1000000");
    assert!(promoted(&result) >= u64::from(HOT) * 99 / 100);
    let spent_ns = result.tiering.unwrap().observing_cpu_ns;
    // Five percent, and half a second of them before anything was known.
    assert!(spent_ns <= SECONDS * 50_000_000 + 25_000_000, "{spent_ns}");
    assert!(unbound_ns > 2 * spent_ns, "{unbound_ns}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let of = || {
        let result = ran(reader(HOT, 1), "source = 'damon,pebs'");
        (
            format!("{:?}", result.counters),
            result.tiering,
            result.accesses,
        )
    };
    assert_eq!(of(), of());
}
