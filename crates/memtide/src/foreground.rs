//! A loop that runs until a signal, its time, or the end of the last process it manages: what
//! `memtide tier` and `memtide balance` have in common.

use crate::journal::Journaled;
use crate::report::Printer;
use anyhow::Context as _;
use memtide_loop::World;
use memtide_loop::journal::Line;
use memtide_loop::report::Reporter;
use memtide_loop::world::WorldError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often the status is printed.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// What ends a loop, and who writes it down.
pub struct Foreground<'a> {
    /// The number of the signal that wants an end, or 0.
    pub signal: &'a AtomicUsize,
    /// How long it may run.
    pub limit: Option<Duration>,
    /// Whether it ends with the last process that it manages.
    pub ends_with_processes: bool,
    /// The run's journal.
    pub journal: &'a Journaled,
}

impl Foreground<'_> {
    /// Turns until something ends them; what that was.
    pub fn work<L>(
        &self,
        looped: &mut L,
        world: &mut dyn World,
        printer: &mut Printer,
        step: impl Fn(&mut L, &mut dyn World, &mut dyn Reporter) -> Result<bool, WorldError>,
        status: impl Fn(&mut Printer, &mut L, &mut dyn World),
    ) -> anyhow::Result<String> {
        let time = |world: &mut dyn World| Duration::from_nanos(world.now_ns());
        let (started, mut printed) = (time(world), time(world));
        loop {
            match self.signal.load(Ordering::Relaxed) {
                0 => {}
                number => return Ok(format!("stopped by {}", signal_name(number))),
            }
            let elapsed = time(world).saturating_sub(started);
            if self.limit.is_some_and(|limit| elapsed >= limit) {
                return Ok("done".to_owned());
            }
            let turn = Some(Line::Step);
            let any_left = self.journal.note(turn, world, printer, |world, reporter| {
                step(looped, world, reporter)
            })?;
            if !any_left && self.ends_with_processes {
                return Ok("all processes have ended".to_owned());
            }
            if time(world).saturating_sub(printed) >= STATUS_EVERY {
                printed = time(world);
                status(printer, looped, world);
            }
        }
    }
}

/// The number of the signal that wants an end, or 0.
pub fn hear_signals() -> anyhow::Result<Arc<AtomicUsize>> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)
            .context("cannot handle signals")?;
    }
    Ok(signal)
}

/// A signal's name.
fn signal_name(number: usize) -> &'static str {
    match number as i32 {
        SIGINT => "SIGINT",
        SIGTERM => "SIGTERM",
        _ => "SIGHUP",
    }
}
