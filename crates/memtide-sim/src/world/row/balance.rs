//! A row in which `memtide balance` runs.
//!
//! Its source are the samplers of the engine, whichever of them the option names: they
//! pick loads and stores that the last-level cache missed, as IBS and PEBS are set to do.
//! Or page faults: those of the simulated kernel's scans, or those that are provoked.

use super::super::{FaultsFor, SimWorld, Simulated, SourceChoice, WorldCosts};
use super::take_turns;
use crate::engine::{Run, Source};
use crate::kernel::KernelError;
use crate::result::{MemtideBalance, RunResult};
use memtide_core::balancing::sampled::Cause;
use memtide_core::hotness::ConfigError;
use memtide_core::vmstat::Counter;
use memtide_loop::World;
use memtide_loop::balance::{BalanceConfig, Balancer};
use memtide_loop::options::{BalanceOptions, BalanceSource};
use memtide_loop::report::{BalanceStatus, Status};
use memtide_loop::world::WorldError;
use memtide_loop::write_rounds::WriteFaultRate;

/// Samples a second of each CPU that are wanted if nobody says.
const RATE: u32 = 1000;

/// Runs it beside the workload of `run`.
pub(super) fn run<W: Source>(
    run: Run<W>,
    options: &BalanceOptions,
    (seed, scale): (u64, u32),
    progress: &(dyn Fn(f64) + Sync),
) -> Result<RunResult, KernelError> {
    let hardware = |name| SourceChoice::Hardware {
        name,
        per_cpu_second: options.rate.map_or(RATE, |rate| rate.get()),
    };
    let choice = match options.source {
        BalanceSource::Auto | BalanceSource::Ibs => hardware("ibs"),
        BalanceSource::Pebs => hardware("pebs"),
        BalanceSource::Faults => SourceChoice::Faults(FaultsFor::Balancing),
        BalanceSource::Writes => {
            SourceChoice::Faults(FaultsFor::WriteFaults(WriteFaultRate::of(options.rate)))
        }
    };
    let failed = |error: &dyn std::fmt::Display| KernelError::Machine(error.to_string());
    let ended = |error: WorldError| KernelError::Machine(format!("memtide balance: {error}"));
    let mut world = SimWorld::new(Simulated::new(run), &[choice], WorldCosts::BARE, seed);
    let config = config(options, &world, scale).map_err(|error| failed(&error))?;
    let mut balancer = Balancer::new(&mut world, config).map_err(|error| failed(&error))?;
    let mut booked = 0;
    take_turns(&mut world, progress, |world| {
        let managed = balancer.step(world, &mut ())?;
        let moved = balancer
            .status(world)
            .balancing
            .map_or(0, |b| b.moved_pages);
        // Tables and series show what balancing moved, by whomever.
        if !options.dry_run {
            world
                .machine
                .count(Counter::NumaPagesMigrated, moved - booked);
        }
        booked = moved;
        Ok(managed)
    })
    .map_err(ended)?;
    let status = balancer.status(&mut world);
    let freed = balancer.finish(&mut world).map_err(ended)?;
    let mut result = world.into_machine().into_run().result();
    if let Some(balancing) = &status.balancing {
        book(
            &mut result,
            &status,
            balancing,
            (freed, u64::from(scale)),
            options.dry_run,
        );
    }
    Ok(result)
}

/// The loop's settings on a machine at scale 1/`scale`.
fn config(
    options: &BalanceOptions,
    world: &dyn World,
    scale: u32,
) -> Result<BalanceConfig, ConfigError> {
    let by_rounds = options.source.is_of_faults();
    let whole = BalanceConfig::new(options, world.page(), by_rounds)?;
    let part = |pages: u64| (pages / u64::from(scale)).max(1);
    Ok(BalanceConfig {
        headroom: whole.headroom / u64::from(scale),
        pages_per_s: part(whole.pages_per_s),
        turn_pages: part(whole.turn_pages),
        gap_pages: whole.gap_pages / u64::from(scale),
        ..whole
    })
}

/// Adds what it did and met to the result.
fn book(
    result: &mut RunResult,
    status: &Status,
    balancing: &BalanceStatus,
    (freed, scale): (usize, u64),
    dry_run: bool,
) {
    let spent = &balancing.spent;
    let (samples, moved) = (balancing.samples * scale, balancing.moved_pages * scale);
    let causes = [
        (Cause::Sample, samples, spent.samples_ns + spent.locate_ns),
        (Cause::Decide, 0, spent.decide_ns + spent.refresh_ns),
        // Protecting pages is to write faults what arming them is to hint faults.
        (Cause::Scan, 0, spent.protect_ns),
        (Cause::Move, if dry_run { 0 } else { moved }, spent.move_ns),
    ];
    let failed_pages = status.failed_pages * scale;
    let pages = (if dry_run { 0 } else { moved }, failed_pages);
    result.balancing.book(&causes, pages, result.seconds);
    result.memtide_balance = Some(MemtideBalance {
        own_cpu_ns: status.cpu.as_nanos() as u64,
        rested_ms: balancing.rested_ms,
        samples,
        local_samples: balancing.local_samples * scale,
        // The world counts them for the real machine.
        lost: status.lost,
        period: balancing.period.unwrap_or(0),
        failed_pages,
        forbidden_pages: balancing.forbidden_pages * scale,
        no_room_pages: balancing.no_room_pages * scale,
        placed_tasks: balancing.placed_tasks as u64,
        freed_tasks: freed as u64,
    });
}
