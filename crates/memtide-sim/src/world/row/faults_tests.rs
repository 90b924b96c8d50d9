//! Loops that learn from page faults: from the kernel's hint faults, or from writes that they make fault.

use super::super::{FaultsFor, SimWorld, Simulated, SourceChoice, WorldCosts};
use super::*;
use crate::kernel::testing::{machine, region};
use crate::page::Slot;
use crate::rng::Rng;
use crate::workload::{Access, Filled, Pattern, Places, Plan, RegionPlan, ThreadPlan, Truth};
use memtide_core::tiering::space::OwnerId;
use memtide_core::vmstat::Counter;
use memtide_loop::World;
use memtide_loop::options::{BalanceOptions, BalanceSource, TierOptions};
use memtide_loop::world::{Came, SourceId, Subject};

/// Pages of each thread.
const PAGES: u32 = 500;
const SECONDS: u64 = 30;

/// Two nodes, the second without CPUs if there is one `tier` more.
fn spec(tiers: u32) -> MachineSpec {
    let mut spec = machine(&[(16_384, 4), (16_384, 8 - 4 * tiers)], 64);
    if tiers == 1 {
        for (id, node) in spec.nodes.iter_mut().enumerate() {
            node.seen_from[1 - id] = 2.0;
        }
    }
    spec
}

/// Two threads of one process, each with pages of its own that lie on another node than it runs.
struct Own {
    plan: Plan,
    writes: bool,
    bases: Vec<Slot>,
}

/// On a machine with `tiers` tiers; of one with two all pages are on the slow node.
fn own(tiers: u32, writes: bool) -> Own {
    let places = Places::new(&spec(tiers));
    let memory = |on: u16, at: u64| RegionPlan {
        policy: places.bind(&[on], false),
        policy_after: Some(places.default_policy()),
        populated_from: Some(on),
        start_vpn: at * 4096,
        ..region(PAGES)
    };
    let thread = |node: u16| ThreadPlan {
        space: 0,
        nodes: vec![node],
        pattern: Pattern::Random,
        ops_per_access: 1,
        think_ns: 2000.0,
        misses_at_once: None,
        group: 0,
    };
    let (nodes, on) = match tiers {
        1 => ([0, 1], [1, 0]),
        _ => ([0, 0], [1, 1]),
    };
    Own {
        plan: Plan {
            regions: vec![memory(on[0], 0), memory(on[1], 1)],
            threads: nodes.map(thread).into(),
            ends_at_ns: Some(SECONDS * 1_000_000_000),
        },
        writes,
        bases: Vec::new(),
    }
}

impl Source for Own {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn mapped(&mut self, slots: &[Slot]) {
        self.bases = slots.to_vec();
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        for access in &mut *batch {
            let page = self.bases[thread] + rng.below(PAGES);
            *access = Access::new(page, rng.below(64), 1, self.writes);
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

/// A run on a kernel that balances so, whose own promotion is held to nearly nothing.
fn tiered(numa_balancing: u8, tier: Option<&str>) -> RunResult {
    let options = |text: &str| -> TierOptions { toml::from_str(text).unwrap() };
    let configuration = Configuration {
        numa_balancing,
        tier: tier.map(options),
        rate_limit_mbps: 0,
        ..Configuration::off("test")
    };
    run(&spec(2), own(2, false), &configuration, (1, 1), &|_| ()).unwrap()
}

fn balanced(numa_balancing: u8, source: Option<BalanceSource>, writes: bool) -> RunResult {
    let options = |source| BalanceOptions {
        source,
        ..BalanceOptions::DEFAULT
    };
    let configuration = Configuration {
        numa_balancing,
        balance: source.map(options),
        ..Configuration::off("test")
    };
    run(&spec(1), own(1, writes), &configuration, (1, 1), &|_| ()).unwrap()
}

/// Nobody looks; the kernel's scans alone tell of the pages, and memtide's gate lets them up.
#[test]
fn what_the_kernel_scans_comes_home() {
    let kernel = tiered(2, None);
    let promoted = |result: &RunResult| result.counters.get(Counter::PgpromoteSuccess);
    assert!(promoted(&kernel) < 2 * u64::from(PAGES) / 2, "{kernel:?}");
    for text in ["source = 'hint-faults'", "source = 'damon,faults'"] {
        let result = tiered(2, Some(text));
        let came = promoted(&result);
        assert!(came >= 2 * u64::from(PAGES) * 99 / 100, "{text}: {came}");
        // Each costs 1 us, and 0.4 more if it is heard. A few come before anybody listens.
        let faults = result.counters.get(Counter::NumaHintFaults);
        let heard = (result.overhead.hint_fault_ns - 1000 * faults) / 400;
        assert!(faults > 0 && heard * 10 >= faults * 9, "{heard} {faults}");
    }
}

/// Whoever waits for a second waits for a second, though pages fault meanwhile.
#[test]
fn a_few_faults_wake_nobody() {
    let configuration = Configuration {
        numa_balancing: 2,
        rate_limit_mbps: 0,
        ..Configuration::off("test")
    };
    let run = Run::new(&spec(2), own(2, false), &configuration, 1, 1).unwrap();
    let source = SourceChoice::Faults(FaultsFor::Tiering);
    let mut world = SimWorld::new(Simulated::new(run), &[source], WorldCosts::BARE, 1);
    let mut seen = Vec::new();
    world.processes(&mut seen).unwrap();
    let subject = Subject {
        owner: OwnerId(0),
        process: seen[0].process,
        spans: Vec::new(),
    };
    world.look(SourceId(0), &[subject], 1000).unwrap();
    let mut heard = 0;
    for _ in 0..10 {
        let (before, mut came) = (world.now_ns(), Came::default());
        world.wait(1000, &mut came).unwrap();
        heard += came.reports.len();
        assert!(world.now_ns() - before >= 999_000_000);
    }
    assert!(heard >= 2 * PAGES as usize, "{heard}");
}

/// The kernel moves most; memtide hears the same faults, and sees pages where they are by then.
#[test]
fn balancing_hears_hint_faults_beside_the_kernel() {
    let result = balanced(1, Some(BalanceSource::Faults), false);
    let met = result.memtide_balance.as_ref().unwrap();
    let faults = result.counters.get(Counter::NumaHintFaults);
    assert!(met.samples > 0 && met.samples <= faults, "{met:?} {faults}");
    assert_eq!((met.failed_pages, met.lost), (0, 0));
    let moved = result.counters.get(Counter::NumaPagesMigrated);
    assert!(
        moved >= 2 * u64::from(PAGES) * 99 / 100,
        "{moved} of the pages moved"
    );
}

/// Without samplers and without scans, who writes a page has it brought to it; who reads does not.
#[test]
fn balancing_makes_writes_fault() {
    let written = balanced(0, Some(BalanceSource::Writes), true);
    let met = written.memtide_balance.as_ref().unwrap();
    let account = &written.balancing;
    assert!(
        account.pages_moved >= 2 * u64::from(PAGES) * 99 / 100,
        "{met:?}"
    );
    // Rounds are half a second apart at least, and there is more than one.
    let round = 2 * u64::from(PAGES);
    assert!(met.samples > round && met.samples <= round * 2 * (SECONDS + 1));
    assert!(written.accesses > balanced(0, None, true).accesses);
    let read = balanced(0, Some(BalanceSource::Writes), false);
    assert_eq!(read.balancing.pages_moved, 0);
    assert_eq!(read.memtide_balance.unwrap().samples, 0);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let bytes = |source| serde_json::to_string(&balanced(1, Some(source), true)).unwrap();
    for source in [BalanceSource::Faults, BalanceSource::Writes] {
        assert!(bytes(source) == bytes(source));
    }
    let tiers = || serde_json::to_string(&tiered(2, Some("source = 'damon,faults'"))).unwrap();
    assert!(tiers() == tiers());
}
