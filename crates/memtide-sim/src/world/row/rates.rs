//! A row in which `memtide tier` runs beside a hot set on the machine of rates.
//!
//! The engine makes every access, so it cannot hold terabytes at full size; and at a coarse scale a page
//! that stands for thousands hides what a search has to find. The machine of rates ([`Light`]) is always
//! at full size. What it leaves out is in its essay: nothing gets slower there, so the row's measure is
//! when the hot pages were home, and not how fast the program was.

use super::super::{Heat, Light, LightArea, LightNode, LightProcess, LightSpec, Machine};
use super::super::{SimWorld, SourceChoice, WorldCosts};
use super::tier::choices;
use crate::config::Configuration;
use crate::kernel::KernelError;
use crate::page::HUGE_PAGES;
use crate::result::{HOME_SHARE, Home, RunResult, Series, Tiering};
use crate::spec::{MachineSpec, NodeSpec};
use crate::workload::HotSetSpec;
use memtide_core::demotion::Watermarks;
use memtide_core::units::{NodeId, PageSize};
use memtide_core::vmstat::{Counter, Counters};
use memtide_loop::World;
use memtide_loop::options::TierOptions;
use memtide_loop::tier::{TierConfig, Tierer};
use memtide_loop::world::{Allowed, MemoryKind, SourceId, WorldError};
use std::collections::VecDeque;

/// What nobody uses is touched all the same now and then: each page once a minute on average, as
/// programs, their allocators and the kernel do. A search that takes such pages for hot shows here.
pub const COLD_PER_S: f64 = 1.0 / 60.0;
/// The program's first page.
const BASE: u64 = 1 << 25;
/// How often its truth is looked at, in nanoseconds.
const SAMPLE_NS: u64 = 50_000_000;
/// Points of the series, at most.
const POINTS: u64 = 400;
const MINUTE_NS: u64 = 60_000_000_000;

/// Runs `tier` beside the hot set of `spec` for as long as that takes.
///
/// # Errors
///
/// What ended the loop, or options that cannot be.
pub fn run(
    machine: &MachineSpec,
    spec: &HotSetSpec,
    (configuration, tier): (&Configuration, &TierOptions),
    seed: u64,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<RunResult, KernelError> {
    let hot_per_s = rate(machine, spec);
    let light = Light::new(light(machine, spec, hot_per_s, seed));
    let ended = |error: WorldError| KernelError::Machine(format!("memtide tier: {error}"));
    let (_, hot) = light.hot_pages(hot_per_s);
    let cold = u64::from(spec.layout(1).count).saturating_sub(hot);
    let costs = WorldCosts::BARE;
    let sources = looking(tier)?;
    let mut world = SimWorld::new(light, &sources, costs, seed);
    let config = TierConfig::new(
        tier,
        &machine.topology,
        PageSize::KIB_4,
        seed ^ super::tier::SEED,
    )
    .map_err(|error| KernelError::Machine(error.to_string()))?;
    let mut tierer = Tierer::new(&mut world, config);
    let until_ns = spec.time.0 as u64;
    let mut record = Record::new(until_ns);
    while world.machine.now_ns() < until_ns {
        if !tierer.step(&mut world, &mut ()).map_err(ended)? {
            world.rest(super::IDLE_MS);
        }
        if record.is_due(world.machine.now_ns()) {
            let promoted = tierer.status(&mut world).tiering;
            let promoted = promoted.map_or(0, |tiering| tiering.pgpromote_success);
            record.take(&mut world, hot_per_s, promoted);
            progress(world.machine.now_ns() as f64 / until_ns as f64);
        }
    }
    tierer.finish(&mut world).map_err(ended)?;
    let status = tierer.status(&mut world);
    let tiering = status.tiering.unwrap_or_default();
    let (home, _) = world.machine.hot_pages(hot_per_s);
    let budget = f64::from(tier.observe_cpu.permille()) / 1000.0;
    let mut counters = Counters::ZERO;
    if !tier.dry_run {
        counters.add(Counter::PgpromoteSuccess, tiering.pgpromote_success);
        counters.add(Counter::NumaPagesMigrated, tiering.pgpromote_success);
        counters.add(Counter::PgdemoteProactive, tiering.pgdemote_proactive);
    }
    let nodes = machine.nodes.iter();
    let result = RunResult {
        counters,
        seconds: until_ns as f64 * 1e-9,
        fast_share: world.machine.fast_share(),
        pages_by_node: nodes
            .map(|node| world.machine.pages_on(NodeId(node.id)))
            .collect(),
        bytes_per_s: vec![0.0; machine.nodes.len()],
        tiering: Some(Tiering {
            own_cpu_ns: status.cpu.as_nanos() as u64,
            observing_cpu_ns: tiering.kernel_cpu.as_nanos() as u64,
            passes: tiering.passes,
            lost: status.lost,
            failed_pages: status.failed_pages,
            classes: Vec::new(),
        }),
        home: Some(Home {
            seconds: record.home_s,
            // What went up and is not hot; a page that went up twice counts twice.
            cold_share: Some(
                tiering.pgpromote_success.saturating_sub(home) as f64 / cold.max(1) as f64,
            ),
            minute_share: record.worst,
            bound_s: Some(
                page(spec.memory.0) as f64 * 2.0 * pass_ns(&costs, &sources) as f64 * 1e-9
                    / budget.max(1e-9),
            ),
            ..Home::default()
        }),
        series: record.series,
        ..RunResult::of(&configuration.name)
    };
    Ok(result)
}

/// The sources that `tier` names.
///
/// # Errors
///
/// Hardware that samples, and page faults: this machine makes no accesses of which they could be.
fn looking(tier: &TierOptions) -> Result<Vec<SourceChoice>, KernelError> {
    let sources = choices(tier);
    let single = |source: &SourceChoice| {
        matches!(
            source,
            SourceChoice::Hardware { .. } | SourceChoice::Faults(_)
        )
    };
    if sources.iter().any(single) {
        let what = format!(
            "memtide tier: source = \"{}\": the machine of rates has neither hardware that samples nor page faults; \
             leave it out, or `rates`",
            tier.source
        );
        return Err(KernelError::Machine(what));
    }
    Ok(sources)
}

/// What a page and a pass cost the one who observes.
fn pass_ns(costs: &WorldCosts, sources: &[SourceChoice]) -> u64 {
    match sources {
        [SourceChoice::PageTables] => costs.scan_page_ns,
        _ => costs.damon_region_ns,
    }
}

fn page(bytes: u64) -> u64 {
    bytes / 4096
}

/// Accesses a second of a hot page: what the threads make while all of it is slow.
fn rate(machine: &MachineSpec, spec: &HotSetSpec) -> f64 {
    let layout = spec.layout(1);
    let node = machine.nodes.iter().find(|node| node.id == spec.on);
    let read_ns = node.map_or(0.0, |node| node.memory.read_ns);
    let access_ns = spec.think.0
        + read_ns
            / spec
                .misses_at_once
                .unwrap_or(machine.cpu.mlp_random)
                .max(1.0);
    let hot = f64::from(layout.pieces) * f64::from(layout.piece);
    f64::from(spec.threads) * 1e9 / access_ns.max(1.0) / hot.max(1.0)
}

fn light(machine: &MachineSpec, spec: &HotSetSpec, hot_per_s: f64, seed: u64) -> LightSpec {
    let layout = spec.layout(1);
    let (piece, every) = (u64::from(layout.piece), u64::from(layout.every));
    // The rest behind the last piece is no piece.
    let pages = every * u64::from(layout.pieces - 1) + piece;
    let hot = Heat {
        first: u64::from(layout.first),
        ..Heat::pieces(pages, piece, every, hot_per_s)
    };
    let count = u64::from(layout.count);
    // A huge page is accessed where one of its pages is: once a minute, too.
    let cold_per_s = match spec.huge {
        true => COLD_PER_S / f64::from(HUGE_PAGES),
        false => COLD_PER_S,
    };
    let area = LightArea {
        first: BASE,
        pages: count,
        node: NodeId(spec.on),
        huge: spec.huge,
        allowed: Allowed::Anywhere,
        kind: MemoryKind::Anonymous,
        backing: None,
        heat: vec![hot, Heat::range(0, count, cold_per_s)],
    };
    LightSpec {
        topology: machine.topology.clone(),
        nodes: nodes(machine),
        processes: vec![LightProcess {
            pid: 1000,
            parent: 1,
            born_ms: 0,
            ends_ms: None,
            busy: f64::from(spec.threads),
            cgroup: None,
            areas: vec![area],
            fork_of: None,
        }],
        move_page_ns: machine.costs.migrate_page_ns as u64 + copy_ns(machine, spec.on),
        move_batch_ns: machine.costs.migrate_batch_ns as u64,
        seed,
    }
}

/// Reading a page from the node that it leaves, in nanoseconds.
fn copy_ns(machine: &MachineSpec, from: u16) -> u64 {
    let node = machine.nodes.iter().find(|node| node.id == from);
    node.map_or(0, |node| {
        (4096.0 * 1e9 / node.memory.read_bytes_per_s) as u64
    })
}

/// Nodes with nothing on them, with the watermarks that the engine gives them.
fn nodes(machine: &MachineSpec) -> Vec<LightNode> {
    let total: u64 = machine.nodes.iter().map(|n| page(n.capacity_bytes)).sum();
    let node = |node: &NodeSpec| {
        let present = page(node.capacity_bytes);
        let share = u128::from(page(machine.min_free_bytes)) * u128::from(present);
        let min = (share / u128::from(total.max(1))) as u64;
        let marks = Watermarks::new(min, present, machine.watermark_scale_factor);
        LightNode {
            id: NodeId(node.id),
            space: marks.space(present, present),
            min: marks.min(),
            latency_ns: node.memory.read_ns as u32,
        }
    };
    machine.nodes.iter().map(node).collect()
}

/// What is noted while the run goes on.
struct Record {
    next_ns: u64,
    next_point_ns: u64,
    point_ns: u64,
    home_s: Option<f64>,
    moved: Option<u64>,
    fast_share: f64,
    /// When, and the time that observing had taken by then.
    spent: VecDeque<(u64, u64)>,
    worst: Option<f64>,
    series: Series,
}

impl Record {
    fn new(until_ns: u64) -> Record {
        Record {
            next_ns: 0,
            next_point_ns: 0,
            point_ns: (until_ns / POINTS).max(SAMPLE_NS),
            home_s: None,
            moved: None,
            fast_share: 0.0,
            spent: VecDeque::from([(0, 0)]),
            worst: None,
            series: Series::default(),
        }
    }

    fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    fn take(&mut self, world: &mut SimWorld<Light>, hot_per_s: f64, promoted: u64) {
        let now_ns = world.machine.now_ns();
        self.next_ns = now_ns + SAMPLE_NS;
        // Where nothing moved, nothing changed.
        let moved = world.machine.moved();
        if self.moved != Some(moved) {
            self.moved = Some(moved);
            self.fast_share = world.machine.fast_share();
            let (fast, all) = world.machine.hot_pages(hot_per_s);
            if self.home_s.is_none() && fast as f64 >= HOME_SHARE * all as f64 {
                self.home_s = Some(now_ns as f64 * 1e-9);
            }
        }
        self.minute(world, now_ns);
        if now_ns >= self.next_point_ns {
            self.next_point_ns = now_ns + self.point_ns;
            self.series.seconds.push(now_ns as f64 * 1e-9);
            self.series.pages_migrated.push(promoted);
            self.series.fast_share.push(self.fast_share);
        }
    }

    /// The most that observing took in a minute that ends now.
    fn minute(&mut self, world: &mut SimWorld<Light>, now_ns: u64) {
        let status = world.source_status(SourceId(0));
        let spent = match status.kernel_cpu_ns {
            // A scan of the page tables is memtide's own work.
            0 => world.own_cpu_ns(),
            kernel_ns => kernel_ns,
        };
        self.spent.push_back((now_ns, spent));
        while self
            .spent
            .get(1)
            .is_some_and(|&(at, _)| at + MINUTE_NS <= now_ns)
        {
            self.spent.pop_front();
        }
        let (at, before) = self.spent[0];
        if at + MINUTE_NS <= now_ns {
            let share = (spent - before) as f64 / (now_ns - at) as f64;
            self.worst = Some(self.worst.map_or(share, |worst| worst.max(share)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, Nanos};

    fn spec(memory: u64, piece: Option<u64>) -> HotSetSpec {
        HotSetSpec {
            threads: 4,
            node: 0,
            memory: Bytes(memory),
            on: 1,
            hot: Bytes(memory / 64),
            piece: piece.map(Bytes),
            time: Nanos(90e9),
            stores_percent: 30,
            ops_per_access: 20,
            think: Nanos(100.0),
            huge: false,
            misses_at_once: None,
        }
    }

    fn machine() -> MachineSpec {
        let shipped = crate::scenario::shipped("scale-4g").unwrap();
        shipped.read().unwrap().machine
    }

    /// A page takes 100 ns, and half of 260 ns because two misses are under way at once: four threads
    /// make 17.4 million accesses a second to 4096 pages.
    #[test]
    fn rates_follow_from_the_machine() {
        let per_s = rate(&machine(), &spec(1 << 30, None));
        assert!((per_s - 4e9 / 230.0 / 4096.0).abs() < 1e-6, "{per_s}");
    }

    #[test]
    fn pieces_are_where_the_engine_has_them() {
        let light = light(&machine(), &spec(1 << 30, Some(2 << 20)), 100.0, 1);
        let heat = &light.processes[0].areas[0].heat[0];
        // 16 MiB hot: 8 pieces of 512 pages in 262,144.
        assert_eq!((heat.first, heat.run, heat.every), (0, 512, 32_768));
        let whole = Light::new(light);
        assert_eq!(whole.hot_pages(100.0), (0, 4096));
    }

    #[test]
    fn the_same_row_twice() {
        let tier = TierOptions::DEFAULT;
        let configuration = Configuration::off("memtide tier");
        let once = || {
            let spec = HotSetSpec {
                time: Nanos(5e9),
                ..spec(1 << 28, None)
            };
            let row = run(&machine(), &spec, (&configuration, &tier), 1, &|_| ()).unwrap();
            serde_json::to_string(&row).unwrap()
        };
        assert_eq!(once(), once());
    }
}
