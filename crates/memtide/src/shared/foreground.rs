//! A loop that runs until a signal, its time, or the end of the last process it manages: what
//! `memtide tier`, `balance` and `serve` have in common.

use crate::shared::journal::Journaled;
use crate::shared::report::Printer;
use crate::shared::signals::name;
use memtide_loop::World;
use memtide_loop::journal::Line;
use memtide_loop::report::Reporter;
use memtide_loop::world::WorldError;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How often the status is printed.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// What ends a loop.
pub struct Foreground<'a> {
    /// The number of the signal that wants an end, or 0.
    pub signal: &'a AtomicUsize,
    /// Whether the configuration or the machine is to be read again, for whom that ends it; taken when it is
    /// heard.
    pub reload: Option<&'a AtomicBool>,
    /// How long it may run.
    pub limit: Option<Duration>,
    /// Whether it ends with the last process that it manages.
    pub ends_with_processes: bool,
}

/// What ended a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The signal of this number.
    Signal(usize),
    /// A wish for a new configuration, or for one of the machine as it is now.
    Reload,
    /// Its time.
    Time,
    /// The end of the last process.
    Processes,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Signal(number) => write!(f, "stopped by {}", name(*number)),
            Ended::Reload => f.write_str("reloaded"),
            Ended::Time => f.write_str("done"),
            Ended::Processes => f.write_str("all processes have ended"),
        }
    }
}

impl Foreground<'_> {
    /// Turns, which the journal notes, until something ends them; what that was.
    pub fn work<L>(
        &self,
        journal: &Journaled,
        looped: &mut L,
        world: &mut dyn World,
        printer: &mut Printer,
        step: impl Fn(&mut L, &mut dyn World, &mut dyn Reporter) -> Result<bool, WorldError>,
        status: impl Fn(&mut Printer, &mut L, &mut dyn World),
    ) -> anyhow::Result<Ended> {
        let time = |world: &mut dyn World| Duration::from_nanos(world.now_ns());
        let (started, mut printed) = (time(world), time(world));
        loop {
            match self.signal.load(Ordering::Relaxed) {
                0 => {}
                number => return Ok(Ended::Signal(number)),
            }
            let elapsed = time(world).saturating_sub(started);
            if self.limit.is_some_and(|limit| elapsed >= limit) {
                return Ok(Ended::Time);
            }
            let turn = Some(Line::Step);
            let any_left = journal.note(turn, world, printer, |world, reporter| {
                step(looped, world, reporter)
            })?;
            if !any_left && self.ends_with_processes {
                return Ok(Ended::Processes);
            }
            // After a turn: one reload after the other does not keep the loop from its work. Who
            // raised the flag has left what the reload is to find.
            if self
                .reload
                .is_some_and(|asked| asked.swap(false, Ordering::AcqRel))
            {
                return Ok(Ended::Reload);
            }
            if time(world).saturating_sub(printed) >= STATUS_EVERY {
                printed = time(world);
                status(printer, looped, world);
            }
        }
    }
}
