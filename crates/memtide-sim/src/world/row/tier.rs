//! A row in which `memtide tier` runs.

use super::super::{SimWorld, Simulated, SourceChoice, WorldCosts};
use super::take_turns;
use crate::engine::{Run, Source};
use crate::kernel::KernelError;
use crate::result::{RunResult, Tiering};
use memtide_core::topology::Topology;
use memtide_core::vmstat::Counter;
use memtide_loop::World;
use memtide_loop::options::{TierOptions, TierSource};
use memtide_loop::report::TierStatus;
use memtide_loop::tier::{IdleRule, TierConfig, Tierer};
use memtide_loop::world::WorldError;

/// Where the loop's random choices start, apart from the workload's.
const SEED: u64 = 0x7135;

/// Runs it beside the workload of `run`.
pub(super) fn run<W: Source>(
    run: Run<W>,
    options: &TierOptions,
    (seed, scale): (u64, u32),
    progress: &(dyn Fn(f64) + Sync),
) -> Result<RunResult, KernelError> {
    let choice = match options.source {
        TierSource::PageTable => SourceChoice::PageTables,
        _ => SourceChoice::Damon,
    };
    let mut world = SimWorld::new(Simulated::new(run), &[choice], WorldCosts::BARE, seed);
    if let Some(tiers) = &options.tiers {
        let wrong = |error| KernelError::Machine(format!("tiers = \"{tiers}\": {error}"));
        world = world.with_tiers(tiers).map_err(wrong)?;
    }
    let config = config(options, world.topology(), scale, seed)
        .map_err(|error| KernelError::Machine(error.to_string()))?;
    let ended = |error: WorldError| KernelError::Machine(format!("memtide tier: {error}"));
    let mut tierer = Tierer::new(&mut world, config);
    let mut booked = Booked::default();
    take_turns(&mut world, progress, |world| {
        let managed = tierer.step(world, &mut ())?;
        if let Some(tiering) = tierer.status(world).tiering {
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
    };
    let mut result = world.into_machine().into_run().result();
    result.tiering = Some(tiering);
    Ok(result)
}

/// The loop's settings on a machine at scale 1/`scale`.
fn config(
    options: &TierOptions,
    topology: &Topology,
    scale: u32,
    seed: u64,
) -> Result<TierConfig, memtide_core::hotness::ConfigError> {
    let page = memtide_core::units::PageSize::KIB_4;
    let whole = TierConfig::new(options, topology, page, seed ^ SEED)?;
    let scale = u64::from(scale);
    Ok(TierConfig {
        gate: whole.gate.scaled(scale),
        headroom: whole.headroom / scale,
        idle: whole.idle.map(|rule| IdleRule {
            rate_pages: rule.rate_pages / scale,
            least_pages: rule.least_pages / scale,
            ..rule
        }),
        look_pages: (whole.look_pages / scale).max(1),
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
            machine.count(counter, now.saturating_sub(*booked));
            *booked = now;
        }
    }
}
