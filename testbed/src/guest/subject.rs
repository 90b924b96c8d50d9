//! Starting a victim from a test, and asking the kernel where its pages are.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::procfs::how_it_ended;
use super::sys::query_nodes;
use super::victim::Truth;

/// How long a victim may take to place its memory: no promise of anybody's, but the end of a hang.
const READY: Duration = Duration::from_secs(180);

/// Pages of one process, told apart by what the test knows about them.
#[derive(Debug, Clone)]
pub struct KnownPages {
    /// The process.
    pub pid: u32,
    /// Addresses of pages in use.
    pub hot: Vec<usize>,
    /// Addresses of pages not in use.
    pub cold: Vec<usize>,
}

impl From<&Truth> for KnownPages {
    fn from(truth: &Truth) -> Self {
        let mut is_hot = vec![false; truth.pages];
        for &(first, count) in &truth.hot {
            is_hot[first..first + count].fill(true);
        }
        let addresses = |wanted: bool| {
            (0..truth.pages)
                .filter(|&page| is_hot[page] == wanted)
                .map(|page| truth.start + page * truth.page_size)
                .collect()
        };
        Self {
            pid: truth.pid,
            hot: addresses(true),
            cold: addresses(false),
        }
    }
}

/// How many of some pages are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Pages asked for.
    pub asked: usize,
    /// Pages on one of the given nodes.
    pub there: usize,
    /// Pages that are on no node, being swapped out or in the middle of a move.
    pub nowhere: usize,
}

impl Census {
    /// Share on the given nodes, 0 for no pages.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.asked == 0 {
            0.0
        } else {
            self.there as f64 / self.asked as f64
        }
    }

    /// Counts pages on `nodes` among the answers of move_pages(2).
    #[must_use]
    pub fn of(answers: &[i32], nodes: &[u32]) -> Self {
        let on = |&&node: &&i32| u32::try_from(node).is_ok_and(|node| nodes.contains(&node));
        Self {
            asked: answers.len(),
            there: answers.iter().filter(on).count(),
            nowhere: answers.iter().filter(|&&node| node < 0).count(),
        }
    }

    fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.there += other.there;
        self.nowhere += other.nowhere;
    }
}

/// Counts the hot pages of all processes that are on `nodes`.
///
/// # Errors
/// When a process is gone.
pub fn census_hot(known: &[KnownPages], nodes: &[u32]) -> Result<Census> {
    census(known, nodes, |pages| &pages.hot)
}

/// Counts the cold pages of all processes that are on `nodes`.
///
/// # Errors
/// When a process is gone.
pub fn census_cold(known: &[KnownPages], nodes: &[u32]) -> Result<Census> {
    census(known, nodes, |pages| &pages.cold)
}

fn census(
    known: &[KnownPages],
    nodes: &[u32],
    which: impl Fn(&KnownPages) -> &Vec<usize>,
) -> Result<Census> {
    /// Bounds how long one question holds the process's address space.
    const BATCH: usize = 16_384;
    let mut sum = Census::default();
    for pages in known {
        for batch in which(pages).chunks(BATCH) {
            let answers = query_nodes(pages.pid, batch).with_context(|| {
                let how = how_it_ended(pages.pid).map(|how| format!(", and {how}"));
                let how = how.unwrap_or_default();
                format!("cannot ask for the pages of process {}{how}", pages.pid)
            })?;
            sum.add(Census::of(&answers, nodes));
        }
    }
    Ok(sum)
}

/// A running victim; killed on drop.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    lines: Receiver<Truth>,
    truths: Vec<Truth>,
}

impl Victim {
    /// Starts `guest victim` with these words, separated by blanks, and waits until all its `processes` are ready.
    ///
    /// # Errors
    /// When it ends early or is not ready within three minutes.
    pub fn start(words: &str, processes: usize) -> Result<Self> {
        let mut command = Command::new("/init");
        command.arg("victim").args(words.split_whitespace());
        Self::spawn(command, processes)
    }

    /// Starts `command`, whose output is that of `processes` victims.
    ///
    /// # Errors
    /// As [`Victim::start`].
    pub fn spawn(mut command: Command, processes: usize) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a victim")?;
        let output = child.stdout.take().context("a victim without output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(truth) = serde_json::from_str::<Truth>(&line) else {
                    continue;
                };
                if sender.send(truth).is_err() {
                    break;
                }
            }
        });
        let mut victim = Self {
            child,
            lines,
            truths: Vec::new(),
        };
        for _ in 0..processes {
            let truth = victim.next_line("ready")?;
            victim.truths.push(truth);
        }
        Ok(victim)
    }

    fn next_line(&mut self, event: &str) -> Result<Truth> {
        match self.lines.recv_timeout(READY) {
            Ok(truth) if truth.event == event => Ok(truth),
            Ok(truth) => bail!("the victim said {:?} instead of {event:?}", truth.event),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the victim was not {event} within {} s", READY.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the victim ended: {}", self.child.wait()?)
            }
        }
    }

    /// The process that was started: the victim, or what started it.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// What it last said of its first process.
    #[must_use]
    pub fn truth(&self) -> &Truth {
        &self.truths[0]
    }

    /// Its processes.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.truths.iter().map(|truth| truth.pid).collect()
    }

    /// Its pages as of the last truth.
    #[must_use]
    pub fn known_pages(&self) -> Vec<KnownPages> {
        self.truths.iter().map(KnownPages::from).collect()
    }

    /// Makes other pages hot; for a victim of one process.
    ///
    /// # Errors
    /// When it does not say that it did.
    pub fn change_hot_set(&mut self) -> Result<()> {
        self.child
            .stdin
            .as_mut()
            .context("a victim without input")?
            .write_all(b"move\n")?;
        self.truths = vec![self.next_line("moved")?];
        Ok(())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // What started it ends by itself when it is gone, and may have things to put back.
        // A victim that ended already is no error here.
        for pid in self.pids() {
            let _ = Pid::from_raw(pid.cast_signed()).map(|pid| kill_process(pid, Signal::KILL));
        }
        for _ in 0..200 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_splits_into_hot_and_cold() {
        let truth = Truth {
            event: "ready".into(),
            pid: 1,
            page_size: 4096,
            start: 0x10000,
            pages: 4,
            hot: vec![(1, 2)],
        };
        let known = KnownPages::from(&truth);
        assert_eq!(known.hot, [0x11000, 0x12000]);
        assert_eq!(known.cold, [0x10000, 0x13000]);
    }

    /// Of five answers two are on nodes 0 or 1, one is an error: 2/5 = 0.4.
    #[test]
    fn census_counts_nodes_and_errors() {
        let census = Census::of(&[0, 1, 2, 2, -2], &[0, 1]);
        assert_eq!(
            census,
            Census {
                asked: 5,
                there: 2,
                nowhere: 1
            }
        );
        assert!((census.share() - 0.4).abs() < 1e-12);
    }
}
