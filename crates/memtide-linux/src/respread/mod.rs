//! Moves the pages that a process already has to a wanted spread.
//!
//! # Problem
//!
//! Interleave weights say where *new* pages go. A process that has run for a
//! week has its pages where they were placed then, and nothing in the kernel
//! spreads them anew.
//!
//! # Approach
//!
//! Each page belongs on the node that weighted interleave would give it by its
//! address ([`Spread`], [`Counting`]); so new pages and moved ones agree, a
//! second run finds nothing to move, and processes that share memory agree on
//! it. A *pass* goes through the mappings window by window: where are the pages
//! ([`crate::live::survey`]), which are not on their node ([`Queue`]), move
//! those ([`crate::mover`]). What is pinned, or found its target full, is tried
//! again in the next pass, [`PASSES`] in all.
//!
//! The caller hands out the budget: [`Respread::step`] moves at most as many
//! pages as it is told, and returns, so that budgets, progress and signals are
//! the caller's business.
//!
//! # What stays where it is
//!
//! Mappings that [`areas`] names; pages that other processes map too, unless
//! the caller wants those moved; pages that the kernel will not move. Huge
//! pages move whole, one index each. A process whose cpuset lacks a wanted node
//! is refused before anything moves.
//!
//! # What cannot be seen
//!
//! A large folio that is mapped page by page moves as a whole whichever of its
//! pages is named, and `pagemap` does not show it. Its pages end up on the node
//! of the one that was moved last.

pub mod areas;
mod pace;
mod plan;
mod report;
mod spread;

pub use areas::{Area, Counting};
pub use pace::Pace;
pub use plan::{Planned, Queue};
pub use report::{End, MappingReport, Report, Stayed};
pub use spread::Spread;

use crate::fs::proc::Process;
use crate::fs::{FsError, Root, list};
use crate::live::survey::{SurveyError, Surveyor};
use crate::mover::{Config, Kernel, Mover, Outcome, Settled, SharedPages};
use crate::sys::Errno;
use memtide_core::nodemask::NodeMask;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::PageSize;
use memtide_loop::world::Span;
use report::Books;
use std::time::{Duration, Instant};

/// How often pages that were busy, or whose target was full, are tried.
pub const PASSES: u32 = 3;
/// Pages of a window, a multiple of a huge page's: 1 GiB with 4 KiB pages.
const WINDOW: u64 = 1 << 18;

/// Why a process's pages cannot be spread.
#[derive(Debug, thiserror::Error)]
pub enum RespreadError {
    /// There is no such process.
    #[error("process {0} does not exist")]
    NoProcess(u32),
    /// It has no memory of its own.
    #[error("process {0} has no memory: it is a kernel thread, or has ended")]
    NoMemory(u32),
    /// It is not ours.
    #[error(
        "process {0}: not permitted to move its pages; run as root, or with CAP_SYS_PTRACE and CAP_SYS_NICE"
    )]
    NotPermitted(u32),
    /// Its cpuset lacks a wanted node.
    #[error("process {pid}: its cpuset, {allowed}, leaves out node {missing}")]
    Cpuset {
        /// The process.
        pid: u32,
        /// The nodes that its cpuset allows.
        allowed: String,
        /// Wanted nodes that it does not.
        missing: String,
    },
    /// A file of the kernel makes no sense.
    #[error(transparent)]
    Fs(FsError),
    /// Its pages cannot be found.
    #[error(transparent)]
    Survey(SurveyError),
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The wanted spread.
    pub spread: Spread,
    /// What to do with pages that other processes map too.
    pub shared: SharedPages,
    /// Plan and count, but move nothing.
    pub dry_run: bool,
    /// The base page.
    pub page: PageSize,
}

/// What a step found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more to do.
    Going,
    /// Every page was looked at.
    Done,
    /// The process has ended.
    Gone,
}

/// A process whose pages are being spread.
#[derive(Debug)]
pub struct Respread<K> {
    root: Root,
    process: Process,
    options: Options,
    surveyor: Surveyor<K>,
    mover: Mover<K>,
    areas: Vec<Area>,
    /// The area and the page in it at which the next window begins.
    at: (usize, u64),
    /// Which area the queue is of.
    queued: usize,
    queue: Queue,
    pass: u32,
    /// Time spent on finding out where pages are.
    looking: Duration,
    books: Books,
}

impl<K: Kernel + Clone> Respread<K> {
    /// Reads the mappings of process `pid`; nothing moves yet.
    pub fn open(root: &Root, kernel: K, pid: u32, options: Options) -> Result<Self, RespreadError> {
        let process = Process::find(root, pid).map_err(|e| from_fs(pid, e))?;
        let stat = process.stat(root).map_err(|e| from_fs(pid, e))?;
        if !stat.has_address_space() {
            return Err(RespreadError::NoMemory(pid));
        }
        let wanted = options.spread.nodes();
        let status = process.status(root).map_err(|e| from_fs(pid, e))?;
        if let Some(allowed) = status.mems_allowed {
            let allowed: NodeMask = allowed.into_iter().collect();
            let missing = wanted.iter().filter(|node| !allowed.contains(*node));
            let missing = list::format(missing.map(|node| u32::from(node.0)));
            if !missing.is_empty() {
                let allowed = allowed.to_string();
                return Err(RespreadError::Cpuset {
                    pid,
                    allowed,
                    missing,
                });
            }
        }
        let areas =
            areas::read(root, options.page, process, &wanted).map_err(|e| from_fs(pid, e))?;
        let config = Config {
            base: options.page,
            shared: options.shared,
            ..Config::default()
        };
        Ok(Respread {
            root: root.clone(),
            process,
            surveyor: Surveyor::new(kernel.clone(), options.page),
            mover: Mover::new(kernel, config),
            books: Books::new(stat.name, &areas),
            options,
            areas,
            at: (0, 0),
            queued: 0,
            queue: Queue::default(),
            pass: 1,
            looking: Duration::ZERO,
        })
    }

    /// The process.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Whether it only plans and counts.
    pub fn is_dry_run(&self) -> bool {
        self.options.dry_run
    }

    /// Pages that are looked at in a pass: those of mappings that do not stay.
    pub fn pages(&self) -> u64 {
        let moving = self.areas.iter().filter(|area| area.stays.is_none());
        moving.map(Area::present).sum()
    }

    /// Pages of this pass that were looked at, and moved if they were elsewhere.
    pub fn looked_at(&self) -> u64 {
        self.books.looked_at
    }

    /// Pages that moved so far; with a dry run, that would have.
    pub fn moved(&self) -> u64 {
        self.books.moved()
    }

    /// Time spent so far on finding out where pages are; moving them is apart.
    pub fn looking(&self) -> Duration {
        self.looking
    }

    /// Moves at most `pages` base pages, or one huge page.
    pub fn step(&mut self, pages: u64) -> Result<Step, RespreadError> {
        while self.queue.is_empty() {
            let began = Instant::now();
            let refilled = self.refill();
            self.looking += began.elapsed();
            match refilled {
                Ok(true) => {}
                Ok(false) if self.begin_pass() => return Ok(Step::Going),
                Ok(false) => return Ok(Step::Done),
                Err(SurveyError::Gone(_)) => return Ok(self.gone()),
                Err(SurveyError::NotPermitted(pid)) => {
                    return Err(RespreadError::NotPermitted(pid));
                }
                Err(error) => return Err(RespreadError::Survey(error)),
            }
        }
        let portion = self.queue.take(pages, self.options.page);
        let books = &mut self.books;
        let area = &self.areas[self.queued];
        if self.options.dry_run {
            for Planned { move_, from } in portion {
                books.settled(
                    area,
                    &Settled {
                        address: move_.address,
                        pages: move_.pages,
                        target: move_.target,
                        outcome: Outcome::Moved { from },
                    },
                );
            }
            return Ok(Step::Going);
        }
        let moves: Vec<_> = portion.iter().map(|planned| planned.move_).collect();
        let sums = self.mover.run(self.process, &moves, |settled| {
            books.settled(area, &settled)
        });
        if sums.not_permitted > 0 {
            return Err(RespreadError::NotPermitted(self.process.pid));
        }
        match sums.process_gone {
            0 => Ok(Step::Going),
            _ => Ok(self.gone()),
        }
    }

    fn gone(&mut self) -> Step {
        self.books.gone = true;
        Step::Gone
    }

    /// Plans the next window. False if there is none.
    fn refill(&mut self) -> Result<bool, SurveyError> {
        let (index, from) = self.at;
        let Some(area) = self.areas.get(index) else {
            return Ok(false);
        };
        let first = area.first.0 + from;
        let end = area.first.0 + area.pages;
        // Windows end at multiples of a huge page, so that none is cut in two.
        let until = ((first / WINDOW + 1) * WINDOW).min(end);
        self.at = match until == end {
            true => (index + 1, 0),
            false => (index, until - area.first.0),
        };
        if area.stays.is_some() {
            self.at = (index + 1, 0);
            return Ok(true);
        }
        self.queued = index;
        let (spread, page) = (&self.options.spread, self.options.page);
        let (queue, books, counting) = (&mut self.queue, &mut self.books, &area.counting);
        let window = Span {
            first: VirtualPage(first),
            pages: until - first,
        };
        let proc_root = self.root.path("proc");
        self.surveyor
            .survey_spans(&proc_root, self.process, &[window.into()], |found| {
                books.looked_at += queue.plan(found, counting, spread, page);
            })?;
        queue.sort();
        Ok(true)
    }

    /// Begins the next pass, if one may help.
    fn begin_pass(&mut self) -> bool {
        if self.options.dry_run || self.pass == PASSES || !self.books.may_try_again() {
            return false;
        }
        self.pass += 1;
        self.at = (0, 0);
        self.books.begin_pass();
        true
    }

    /// Reads where the pages are now, and reports. `interrupted` if the caller
    /// stopped before the end.
    pub fn finish(self, interrupted: bool) -> Result<Report, RespreadError> {
        let pid = self.process.pid;
        let wanted = self.options.spread.nodes();
        let mut books = self.books;
        let after = match books.gone || self.options.dry_run {
            true => None,
            false => match areas::read(&self.root, self.options.page, self.process, &wanted) {
                Ok(areas) => Some(areas),
                Err(FsError::Gone { .. }) => None,
                Err(error) => return Err(from_fs(pid, error)),
            },
        };
        // A process without any page is about to end.
        let after = after.filter(|areas| !areas.is_empty());
        books.gone |= after.is_none() && !self.options.dry_run;
        Ok(books.report(
            pid,
            &self.areas,
            after.as_deref(),
            &self.options,
            interrupted,
        ))
    }
}

fn from_fs(pid: u32, error: FsError) -> RespreadError {
    match error {
        FsError::Gone { pid } => RespreadError::NoProcess(pid),
        error if error.is_errno(Errno::ACCESS) || error.is_errno(Errno::PERM) => {
            RespreadError::NotPermitted(pid)
        }
        error => RespreadError::Fs(error),
    }
}

#[cfg(test)]
mod tests;
