//! Keeping the memory of processes spread by weights, while their new pages come as the kernel places them.
//!
//! Who tends goes in rounds. A round looks at every process that took page faults since it was looked at
//! last, for others have the pages that they had, and moves what is not where its weights want it. How long
//! looking took says when the next round may begin, so that it takes a bounded part of the time; how much
//! may move is one budget for all processes of a round.
//!
//! Clocks, waiting and the pages themselves are the caller's: `memtide run` tends its program until that
//! ends, the service tends classes on a thread of its own.

use super::pacing::{Budget, Ended, spread_out};
use memtide_linux::fs::Root;
use memtide_linux::fs::proc::Process;
use memtide_linux::live::kernel::RunningKernel;
use memtide_linux::respread::{Options, Respread, RespreadError};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The first look: programs allocate most when they start.
pub const FIRST: Duration = Duration::from_millis(100);
/// The shortest and the longest time between two.
const BETWEEN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// How often to look.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Looking may take one part in so many of the time: in vain, and where it pays.
    pub shares: [u32; 2],
    /// As long as this after the beginning it counts as if it paid.
    pub starting: Duration,
    /// After how long a process is looked at again that took no page faults: others may have moved its
    /// pages, or its nodes were full.
    pub again: Option<Duration>,
}

/// A process whose memory is to be spread.
#[derive(Clone, Copy, Debug)]
pub struct Tended<'o> {
    /// Which one.
    pub process: Process,
    /// The page faults that it has taken.
    pub faults: u64,
    /// How.
    pub options: &'o Options,
}

/// What came of one process.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Pages that moved, or would have in a dry run.
    pub moved: u64,
    /// How long that took.
    pub moving: Duration,
    /// Whether every page was looked at.
    pub whole: bool,
}

/// Who spreads the pages of one process.
pub trait Spreader {
    /// Does so within `budget`. `pause` waits, often for no time, and says whether to stop; it is told how many
    /// pages of the process have moved so far.
    fn spread(
        &mut self,
        process: Process,
        options: &Options,
        budget: &mut Budget,
        pause: &mut dyn FnMut(Duration, u64) -> bool,
    ) -> Result<Done, RespreadError>;
}

/// The running machine's pages.
#[derive(Debug)]
pub struct Pages<'a>(pub &'a Root);

impl Spreader for Pages<'_> {
    fn spread(
        &mut self,
        process: Process,
        options: &Options,
        budget: &mut Budget,
        pause: &mut dyn FnMut(Duration, u64) -> bool,
    ) -> Result<Done, RespreadError> {
        let pid = process.pid;
        let kernel = RunningKernel::new(self.0.clone());
        let mut respread = Respread::open(self.0, kernel, pid, options.clone())?;
        if respread.process() != process {
            return Err(RespreadError::NoProcess(pid));
        }
        // Until here it was looked at.
        let (began, so_far) = (Instant::now(), Cell::new(0));
        let ended = spread_out(
            &mut respread,
            budget,
            |wait| pause(wait, so_far.get()),
            |respread| so_far.set(respread.moved()),
        )?;
        Ok(Done {
            moved: respread.moved(),
            moving: began.elapsed().saturating_sub(respread.looking()),
            whole: ended == Ended::Done,
        })
    }
}

/// What is known of a process.
#[derive(Clone, Copy, Debug)]
struct Seen {
    faults: u64,
    at: Duration,
    /// The most that would have moved of it at once.
    planned: u64,
}

/// What a round came to.
#[derive(Debug, Default)]
pub struct Round {
    /// Whether no process had taken page faults.
    pub quiet: bool,
    /// How long moving took.
    pub moving: Duration,
    /// Pages that moved, or would have in a dry run.
    pub moved: u64,
    /// Processes that could not be spread, and why.
    pub failed: Vec<(Process, RespreadError)>,
}

/// Who tends, and what is known.
#[derive(Debug)]
pub struct Tender {
    manner: Manner,
    per_second: u64,
    seen: BTreeMap<Process, Seen>,
    refused: BTreeSet<Process>,
    wait: Duration,
}

impl Tender {
    /// Tends in this manner, and moves at most so many pages a second.
    pub fn new(manner: Manner, per_second: u64) -> Tender {
        Tender {
            manner,
            per_second,
            seen: BTreeMap::new(),
            refused: BTreeSet::new(),
            wait: FIRST,
        }
    }

    /// How many of those that live could not be spread.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Looks at whom that is due of `all`, at the time `now` since the beginning. `pause` is
    /// [`Spreader::spread`]'s, of the process, and is told how many pages of all moved so far in this round. A
    /// process that is stopped is looked at again.
    pub fn round(
        &mut self,
        now: Duration,
        all: &[Tended<'_>],
        spreader: &mut impl Spreader,
        mut pause: impl FnMut(Process, Duration, u64) -> bool,
    ) -> Round {
        let mut round = Round {
            quiet: true,
            ..Round::default()
        };
        let live: BTreeSet<Process> = all.iter().map(|one| one.process).collect();
        self.seen.retain(|process, _| live.contains(process));
        self.refused.retain(|process| live.contains(process));
        let mut budget = Budget::new(self.per_second);
        for one in all {
            let process = one.process;
            let known = self.seen.get(&process).copied();
            let faulted = known.is_none_or(|seen| seen.faults != one.faults);
            let again = |seen: Seen| {
                let again = self.manner.again;
                again.is_some_and(|again| now.saturating_sub(seen.at) >= again)
            };
            if !(faulted || known.is_some_and(again)) || pause(process, Duration::ZERO, round.moved)
            {
                continue;
            }
            round.quiet &= !faulted;
            let planned = known.map_or(0, |seen| seen.planned);
            let mut seen = Seen {
                faults: one.faults,
                at: now,
                planned,
            };
            let (before, dry_run) = (round.moved, one.options.dry_run);
            let last = Cell::new(0);
            let mut pause = |wait, moved| {
                let moved = if dry_run { 0 } else { moved };
                last.set(moved);
                pause(process, wait, before + moved)
            };
            match spreader.spread(process, one.options, &mut budget, &mut pause) {
                Ok(done) => {
                    self.refused.remove(&process);
                    round.moving += done.moving;
                    // What only would move is there again the next time.
                    round.moved += match dry_run {
                        true => done.moved.saturating_sub(planned),
                        false => done.moved,
                    };
                    seen.planned = planned.max(done.moved);
                    if !done.whole {
                        self.seen.remove(&process);
                        continue;
                    }
                }
                Err(RespreadError::NoProcess(_) | RespreadError::NoMemory(_)) => {}
                Err(error) => {
                    // What had moved by then has moved.
                    round.moved += last.get();
                    self.refused.insert(process);
                    round.failed.push((process, error));
                }
            }
            self.seen.insert(process, seen);
        }
        round
    }

    /// How long to wait after `round`, which took so long and ended at `now`.
    pub fn wait(&mut self, round: &Round, took: Duration, now: Duration) -> Duration {
        let looking = took.saturating_sub(round.moving);
        let pays = round.moved > 0 || now < self.manner.starting;
        let next = if round.quiet {
            self.wait * 2
        } else {
            BETWEEN[0]
        };
        let least = looking * self.manner.shares[usize::from(pays)];
        self.wait = next.clamp(BETWEEN[0], BETWEEN[1]).max(least);
        self.wait
    }
}

#[cfg(test)]
#[path = "tending_tests.rs"]
mod tests;
