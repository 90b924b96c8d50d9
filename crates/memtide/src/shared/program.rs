//! Staying beside a program until it ends.
//!
//! Signals are passed on, except those that a terminal sent: it sends them to
//! the program as well. The program's children are found by their parents; for
//! that, those that lose theirs are handed to us.

use crate::shared::context::complain;
use anyhow::Context as _;
use memtide_linux::sys::signals::{Arrived, Blocked};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

/// What is passed on, and the news of a child's end.
const SIGNALS: [i32; 7] = [SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Blocks the signals that are passed on later: from here on none of them ends
/// this process.
pub fn block() -> anyhow::Result<Blocked> {
    Blocked::new(&SIGNALS).context("cannot block signals")
}

/// A running program.
#[derive(Debug)]
pub struct Program<'a> {
    pid: Pid,
    signals: &'a Blocked,
    ended: Option<u8>,
}

impl<'a> Program<'a> {
    /// Starts `command`, which inherits policy and CPUs of the calling thread.
    /// That must be the main thread: a program may ask to die with the thread
    /// that started it.
    pub fn start(command: &mut Command, signals: &'a Blocked) -> io::Result<Program<'a>> {
        set_child_subreaper(Some(rustix::process::getpid()))?;
        let child = signals.spawn(command)?;
        Ok(Program {
            pid: Pid::from_child(&child),
            signals,
            ended: None,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Its exit status, once it has ended: its own, or as shells say 128 and the
    /// number of the signal that ended it.
    pub fn ended(&self) -> Option<u8> {
        self.ended
    }

    /// Waits for `limit`, for a signal, which it deals with, or for the end.
    /// Says whether the program has ended.
    pub fn wait(&mut self, limit: Duration) -> bool {
        if self.ended.is_none() {
            match self.signals.wait(limit) {
                Some(Arrived {
                    number: SIGCHLD, ..
                }) => self.reap(),
                Some(Arrived { number, sent: true }) => self.pass_on(number),
                // The terminal has told the program too.
                Some(Arrived { sent: false, .. }) | None => {}
            }
        }
        self.ended.is_some()
    }

    /// Waits until `limit` is over, whatever signals come, or until the end.
    pub fn wait_whole(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.wait(left) || left.is_zero() {
                return self.ended.is_some();
            }
        }
    }

    fn pass_on(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            // It may have ended; then its end is the next signal.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Buries the dead: the program, or orphans that were handed to us.
    fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid => {
                    let signal = status.terminating_signal().map(|number| 128 + number);
                    let code = status.exit_status().or(signal).unwrap_or(1);
                    self.ended = Some(code as u8);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(Errno::CHILD) => return,
                Err(errno) => {
                    complain(&format!("cannot wait for the program: {errno}"));
                    return;
                }
            }
        }
    }
}

/// What went wrong when a program was to be started, and the exit status that
/// shells give: 127 if it was not found, 126 if it cannot be executed.
pub fn not_started(program: &str, error: &io::Error) -> (u8, String) {
    match error.kind() {
        io::ErrorKind::NotFound => (127, format!("{program}: not found; is it in PATH?")),
        io::ErrorKind::PermissionDenied => (126, format!("{program}: not executable by this user")),
        _ => (126, format!("{program}: cannot be executed: {error}")),
    }
}
