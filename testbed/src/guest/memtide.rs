//! A running `memtide tier --json`: starting it, reading its lines, ending it.
//!
//! The lines are read as they come, so that a test may wait for one. When the process has ended, all
//! of them are there: the end is told only after both pipes ran dry. *Lines* are what came on
//! standard output, *errors* what came on standard error.

use std::io::{BufRead, BufReader, PipeWriter, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::late::within;
use super::pace::Stretch;
use super::procfs::cpu_time;

/// How long an end that was asked for may take, in quiet time as all limits here.
const END: Duration = Duration::from_secs(5);

/// `memtide tier` with these words for these processes, not started yet.
#[must_use]
pub fn tier(words: &[&str], pids: &[u32]) -> Command {
    let mut command = Command::new("memtide");
    command.arg("tier").args(words);
    for pid in pids {
        command.arg("--pid").arg(pid.to_string());
    }
    command
}

/// A line of its JSON output, as far as tests look at it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    /// A process is managed.
    Process {
        /// Its id.
        pid: u32,
    },
    /// A managed process has ended.
    ProcessGone {
        /// Its id.
        pid: u32,
    },
    /// How many pages of a process moved in about a second.
    MovedPages {
        /// `promotion` or `demotion`; empty if balancing moved them.
        #[serde(default)]
        direction: String,
        /// The process.
        pid: u32,
        /// How many.
        pages: u64,
    },
    /// A run of pages moved, or would have: with `--explain` or `--dry-run`, instead of the sums.
    Moved {
        /// `promotion` or `demotion`; empty if balancing moved them.
        #[serde(default)]
        direction: String,
        /// Whether it was only planned.
        dry_run: bool,
        /// Which pages.
        range: Range,
        /// Their node before.
        from: u32,
        /// Their node after.
        to: u32,
        /// For people.
        why: String,
    },
    /// Pages stayed.
    Stayed {
        /// Which pages.
        range: Range,
        /// Their node.
        node: u32,
        /// For programs.
        why: Why,
    },
    /// A sentence for people.
    Notice {
        /// The sentence.
        text: String,
    },
    /// A thread runs elsewhere, or should.
    Task,
    /// Samples of balancing were dropped.
    WindowInvalid,
    /// How balancing stands beside it.
    Balancing,
    /// How balancing ended.
    BalancingSummary,
    /// How it stands.
    Status(Status),
    /// How it ended.
    Summary(Status),
}

/// Pages of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Range {
    /// The process.
    pub pid: u32,
    /// Address of the first page.
    pub address: usize,
    /// Number of base pages.
    pub pages: usize,
}

/// Why pages stayed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Why {
    /// A word such as `untouched`.
    pub reason: String,
    /// What forbids it, where something does.
    pub by: Option<String>,
}

/// Counts since the start, under the kernel's names where it has one.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Status {
    /// Pages that moved up.
    pub pgpromote_success: u64,
    /// Pages that the rate window counted.
    pub pgpromote_candidate: u64,
    /// Pages that moved down.
    pub pgdemote_proactive: u64,
    /// Accesses that were recorded.
    pub pghot_recorded_accesses: u64,
    /// Pages that the kernel would not move.
    pub failed_pages: u64,
}

impl Line {
    /// One line of output.
    ///
    /// # Errors
    /// When it is not what memtide promises.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).with_context(|| format!("no line of memtide's: {text}"))
    }
}

/// How it ended, and all that it said.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub lines: Vec<String>,
    /// Standard error.
    pub errors: Vec<String>,
}

impl Ended {
    /// The parsed lines of an end without complaint.
    ///
    /// # Errors
    /// When it failed, complained, or printed something else.
    pub fn clean(&self) -> Result<Vec<Line>> {
        ensure!(
            self.status.success() && self.errors.is_empty(),
            "memtide ended with {}: {}",
            self.status,
            self.errors.join(" / ")
        );
        self.lines.iter().map(|line| Line::parse(line)).collect()
    }
}

/// A running memtide; killed on drop.
#[derive(Debug)]
pub struct Memtide {
    child: Child,
    lines: Stream,
    errors: Stream,
}

impl Memtide {
    /// Starts `memtide tier --json` with these words for these processes.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(words: &[&str], pids: &[u32]) -> Result<Self> {
        let mut command = tier(words, pids);
        command.arg("--json");
        Self::spawn(command)
    }

    /// Starts `command`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(command: Command) -> Result<Self> {
        Self::spawn_with(command, Stdio::piped())
    }

    /// Starts `command` with its standard output in `pipe`, whose lines are the caller's to read.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_into(command: Command, pipe: PipeWriter) -> Result<Self> {
        Self::spawn_with(command, pipe.into())
    }

    fn spawn_with(mut command: Command, output: Stdio) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start memtide")?;
        let lines = match child.stdout.take() {
            Some(pipe) => Stream::new(pipe),
            None => Stream::new(std::io::empty()),
        };
        let errors = Stream::new(child.stderr.take().context("memtide without errors")?);
        Ok(Self {
            child,
            lines,
            errors,
        })
    }

    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its processor time so far.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        cpu_time(self.child.id()).map_or(0.0, |time| time.total)
    }

    /// Its last word, a complaint if there is one.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.errors
            .last()
            .or_else(|| self.lines.last())
            .unwrap_or_else(|| "silently".to_owned())
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// The kernel's.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// An error if it ended by itself.
    ///
    /// # Errors
    /// With its status and last words.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("memtide ended by itself, {status}: {}", self.last_words());
        }
        Ok(())
    }

    /// Waits for a line that `wanted` likes.
    ///
    /// # Errors
    /// When none comes in time, or it ends without one.
    pub fn wait_for(
        &mut self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Line) -> bool,
    ) -> Result<()> {
        let stretch = Stretch::begin();
        let mut seen = 0;
        loop {
            let fresh = self.lines.since(seen);
            for line in &fresh {
                if wanted(&Line::parse(line)?) {
                    return Ok(());
                }
            }
            seen += fresh.len();
            within(&stretch, limit, || {
                format!("memtide did not say {what} (last: {})", self.last_words())
            })?;
            self.check()?;
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal).context("cannot signal memtide")
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not come in time.
    pub fn wait(mut self, limit: Duration) -> Result<Ended> {
        let stretch = Stretch::begin();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            within(&stretch, limit, || {
                format!("memtide did not end (last: {})", self.last_words())
            })?;
            std::thread::sleep(Duration::from_millis(10));
        };
        Ok(Ended {
            status,
            lines: self.lines.complete(),
            errors: self.errors.complete(),
        })
    }

    /// Sends a signal that ends it, and waits for the end.
    ///
    /// # Errors
    /// When it ended before, or does not end within five seconds.
    pub fn end(mut self, signal: Signal) -> Result<Ended> {
        self.check()?;
        self.signal(signal)?;
        self.wait(END)
    }

    /// Ends it as a person would, and returns its lines.
    ///
    /// # Errors
    /// When it does not end within five seconds or ends with a failure.
    pub fn stop(self) -> Result<Vec<String>> {
        let last = self.last_words();
        let ended = self.end(Signal::TERM)?;
        ensure!(
            ended.status.success(),
            "memtide ended with {} on SIGTERM: {}",
            ended.status,
            ended.errors.last().unwrap_or(&last)
        );
        Ok(ended.lines)
    }
}

impl Drop for Memtide {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a pipe, read by a thread of its own until it runs dry.
#[derive(Debug)]
struct Stream {
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    fn new(pipe: impl Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                sink.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
            }
        });
        Self {
            lines,
            reader: Some(reader),
        }
    }

    fn known(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self, first: usize) -> Vec<String> {
        self.known()[first..].to_vec()
    }

    fn last(&self) -> Option<String> {
        self.known().last().cloned()
    }

    fn complete(&mut self) -> Vec<String> {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.since(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_stayed() {
        let text = r#"{"at_ms":7,"event":"stayed","range":{"pid":3,"address":4096,"pages":2},
                       "node":2,"why":{"reason":"forbidden","by":"its mempolicy"}}"#;
        let Ok(Line::Stayed { range, node, why }) = Line::parse(text) else {
            panic!("{:?}", Line::parse(text));
        };
        assert_eq!((range.address, range.pages, node), (4096, 2, 2));
        assert_eq!(why.reason, "forbidden");
        assert_eq!(why.by.as_deref(), Some("its mempolicy"));
    }

    #[test]
    fn something_else_is_an_error_that_shows_it() {
        let error = Line::parse("promoted 3 pages").unwrap_err();
        assert_eq!(error.to_string(), "no line of memtide's: promoted 3 pages");
    }
}
