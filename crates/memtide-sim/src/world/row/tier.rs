//! A row in which `memtide tier` runs.

use super::super::{FaultsFor, SimWorld, Simulated, SourceChoice, WorldCosts};
use super::take_turns;
use crate::engine::{Run, Source};
use crate::kernel::KernelError;
use crate::result::{ClassResult, RunResult, Tiering};
use crate::spec::{MachineSpec, NodeSpec};
use memtide_core::topology::Topology;
use memtide_core::units::NodeId;
use memtide_core::vmstat::Counter;
use memtide_loop::World;
use memtide_loop::options::{Classes, TierOptions, TierSource};
use memtide_loop::report::{ClassStatus, TierStatus};
use memtide_loop::tier::{Class, IdleRule, TierConfig, Tierer};
use memtide_loop::world::WorldError;

/// Where the loop's random choices start, apart from the workload's.
pub(super) const SEED: u64 = 0x7135;

/// Runs it beside the workload of `run` on `machine`, which is told of unscaled.
pub(super) fn run<W: Source>(
    machine: &MachineSpec,
    run: Run<W>,
    options: &TierOptions,
    classes: &Classes,
    (seed, scale): (u64, u32),
    progress: &(dyn Fn(f64) + Sync),
) -> Result<RunResult, KernelError> {
    let choices = choices(options);
    let mut world = SimWorld::new(Simulated::new(run), &choices, WorldCosts::BARE, seed);
    if let Some(tiers) = &options.tiers {
        let wrong = |error| KernelError::Machine(format!("tiers = \"{tiers}\": {error}"));
        world = world.with_tiers(tiers).map_err(wrong)?;
    }
    let mut world = world.with_classes(classes);
    let config = config(options, classes, world.topology(), scale, seed)
        .map_err(|error| KernelError::Machine(error.to_string()))?;
    world
        .machine
        .attend_idle_time(attended_ns(machine, options));
    let ended = |error: WorldError| KernelError::Machine(format!("memtide tier: {error}"));
    let mut tierer = Tierer::new(&mut world, config);
    let mut booked = Booked::default();
    take_turns(&mut world, progress, |world| {
        let managed = tierer.step(world, &mut ())?;
        let moved = tierer.status(world).tiering.filter(|_| !options.dry_run);
        if let Some(tiering) = moved {
            booked.book(&mut world.machine, &tiering);
        }
        Ok(managed)
    })
    .map_err(ended)?;
    tierer.finish(&mut world).map_err(ended)?;
    let status = tierer.status(&mut world);
    let tiering = status.tiering.as_ref();
    let tiering = Tiering {
        own_cpu_ns: status.cpu.as_nanos() as u64,
        observing_cpu_ns: tiering.map_or(0, |tiering| tiering.kernel_cpu.as_nanos() as u64),
        passes: tiering.map_or(0, |tiering| tiering.passes),
        lost: status.lost,
        failed_pages: status.failed_pages * u64::from(scale),
        classes: tiering.map_or(Vec::new(), |tiering| {
            let of = |class| class_result(class, u64::from(scale));
            tiering.classes.iter().map(of).collect()
        }),
    };
    let mut result = world.into_machine().into_run().result();
    result.tiering = Some(tiering);
    Ok(result)
}

/// What the sources of `options` are here; `auto` is DAMON.
pub(super) fn choices(options: &TierOptions) -> Vec<SourceChoice> {
    if options.source.is_auto() {
        return vec![SourceChoice::Damon];
    }
    let per_cpu_second = options.sample_rate.get();
    let choice = |source: &TierSource| match source {
        TierSource::Damon => SourceChoice::Damon,
        TierSource::PageTable => SourceChoice::PageTables,
        TierSource::Ibs | TierSource::Pebs => SourceChoice::Hardware {
            name: source.name(),
            per_cpu_second,
        },
        TierSource::HintFaults => SourceChoice::Faults(FaultsFor::Tiering),
    };
    options.source.named().iter().map(choice).collect()
}

/// How long nobody does anything before all idle pages have left, in ns; 0 where none leave. Rounds may
/// take twice as long as they should, where there is more to observe than fits; then all fast memory
/// leaves at the rate.
pub fn attended_ns(machine: &MachineSpec, options: &TierOptions) -> u64 {
    const SECOND_NS: u128 = 1_000_000_000;
    let Some(after) = options.demote_idle else {
        return 0;
    };
    let fast = |node: &&NodeSpec| machine.topology.is_top_tier(NodeId(node.id));
    let bytes = machine
        .nodes
        .iter()
        .filter(fast)
        .map(|node| u128::from(node.capacity_bytes));
    // Nothing ever leaves at no rate.
    let rate = u128::from(options.demote_idle_rate.0);
    let leave_ns = (bytes.sum::<u128>() * SECOND_NS).checked_div(rate);
    let rounds_ns = u128::from(after.ms()) * 1_000_000 * 2;
    u64::try_from(rounds_ns + leave_ns.unwrap_or(0)).unwrap_or(u64::MAX)
}

fn class_result(class: &ClassStatus, scale: u64) -> ClassResult {
    ClassResult {
        name: class.name.clone(),
        within: class.within.clone(),
        fast_pages: class.fast_pages.map(|pages| pages * scale),
        low_pages: class.low_pages * scale,
        high_pages: class.high_pages.map(|pages| pages * scale),
        promoted_pages: class.promoted_pages * scale,
        demoted_pages: class.demoted_pages * scale,
        waiting_pages: class.waiting_pages * scale,
        fast_access_permille: class.fast_access_permille,
        fast_touched_permille: class.fast_touched_permille,
    }
}

/// The loop's settings on a machine at scale 1/`scale`.
pub(super) fn config(
    options: &TierOptions,
    classes: &Classes,
    topology: &Topology,
    scale: u32,
    seed: u64,
) -> Result<TierConfig, memtide_core::hotness::ConfigError> {
    let page = memtide_core::units::PageSize::KIB_4;
    let whole = TierConfig::new(options, topology, page, seed ^ SEED)?;
    let whole = whole.with_classes(classes, topology, page);
    let scale = u64::from(scale);
    let share = |class: &Class| Class {
        low: class.low.map(|low| low / scale),
        high: class.high.map(|high| high / scale),
        ..class.clone()
    };
    Ok(TierConfig {
        classes: whole.classes.iter().map(share).collect(),
        gate: whole.gate.scaled(scale),
        headroom: whole.headroom / scale,
        page_weight: scale,
        idle: whole.idle.map(|rule| IdleRule {
            rate_pages: rule.rate_pages / scale,
            least_pages: rule.least_pages / scale,
            ..rule
        }),
        look_pages: (whole.look_pages / scale).max(1),
        page_cost: scale,
        turn_pages: (whole.turn_pages / scale).max(1),
        ..whole
    })
}

/// What of the loop's own counts is in the machine's already: tables and series
/// show promotions by whomever.
#[derive(Default)]
struct Booked {
    promoted: u64,
    demoted: u64,
}

impl Booked {
    fn book<W: Source>(&mut self, machine: &mut Simulated<W>, status: &TierStatus) {
        for (counter, booked, now) in [
            (
                Counter::PgpromoteSuccess,
                &mut self.promoted,
                status.pgpromote_success,
            ),
            (
                Counter::PgdemoteProactive,
                &mut self.demoted,
                status.pgdemote_proactive,
            ),
        ] {
            let pages = now.saturating_sub(*booked);
            machine.count(counter, pages);
            // The kernel's promotions are in both counts, too.
            if counter == Counter::PgpromoteSuccess {
                machine.count(Counter::NumaPagesMigrated, pages);
            }
            *booked = now;
        }
    }
}
