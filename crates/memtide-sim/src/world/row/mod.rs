//! A row of a scenario in which a loop of memtide runs, over the engine.
//!
//! The loop takes its turns until the workload is done. On a machine at scale
//! 1/S its quantities in pages are a part of S, and its times as they are.

mod balance;
#[cfg(test)]
mod faults_tests;
pub mod rates;
#[cfg(test)]
mod samples_tests;
#[cfg(test)]
mod tests;
mod tier;
pub(crate) use tier::attended_ns;
#[cfg(test)]
mod tier_tests;

use super::{Machine, SimWorld, Simulated};
use crate::config::Configuration;
use crate::engine::{Run, Source};
use crate::kernel::KernelError;
use crate::result::RunResult;
use crate::spec::MachineSpec;
use memtide_loop::World;
use memtide_loop::world::WorldError;

/// How long a loop rests while there is no process to manage, in ms.
const IDLE_MS: u64 = 100;

/// Runs `source` under `configuration`, with the loop that it has beside it or with none; see
/// [`crate::engine::run`].
///
/// # Errors
///
/// What the kernel could not do for the workload, or what ended the loop.
pub fn run<W: Source>(
    machine: &MachineSpec,
    source: W,
    configuration: &Configuration,
    (seed, scale): (u64, u32),
    progress: &(dyn Fn(f64) + Sync),
) -> Result<RunResult, KernelError> {
    match (&configuration.tier, &configuration.balance) {
        (None, None) => crate::engine::run(machine, source, configuration, seed, scale, progress),
        (Some(options), _) => {
            let run = Run::new(machine, source, configuration, seed, scale)?;
            tier::run(
                machine,
                run,
                options,
                &configuration.classes,
                (seed, scale),
                progress,
            )
        }
        (None, Some(options)) => {
            let run = Run::new(machine, source, configuration, seed, scale)?;
            balance::run(run, options, (seed, scale), progress)
        }
    }
}

/// Lets a loop take its `turn`s, each of which says whether there is anybody to manage, until the
/// workload is done.
fn take_turns<W: Source>(
    world: &mut SimWorld<Simulated<W>>,
    progress: &(dyn Fn(f64) + Sync),
    mut turn: impl FnMut(&mut SimWorld<Simulated<W>>) -> Result<bool, WorldError>,
) -> Result<(), WorldError> {
    let mut told = 0.0;
    while !world.machine.is_over() {
        if !turn(world)? {
            world.rest(IDLE_MS);
        }
        let done = world.machine.run().done();
        if done - told > 0.002 {
            told = done;
            progress(done);
        }
    }
    progress(1.0);
    Ok(())
}
