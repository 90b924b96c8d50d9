//! Carrying out moves, and noting what became of each page.

use super::report::{Direction, Event, MovedPages, Range, Reporter, Stay};
use super::survey::HUGE_PAGES;
use crate::mover::{self, Kernel, Move, Mover, Outcome};
use memtide_core::hotness::{Hotness, Store};
use memtide_core::pages::Folio;
use memtide_core::promotion::{Moved, RecentMoves};
use memtide_core::tiering::placement::Placement;
use memtide_core::tiering::space::{OwnerId, Space, VirtualPage};
use memtide_core::units::{Millis, NodeId, PageNumber, PageSize};

/// Folios of one process with one target.
#[derive(Clone, Debug)]
pub struct Job {
    /// Whose.
    pub owner: OwnerId,
    /// The process, for the mover's check.
    pub process: mover::Process,
    /// Whereto.
    pub target: NodeId,
    /// Which way that is.
    pub direction: Direction,
    /// In order of their dense numbers; with the hotness of promoted ones.
    pub folios: Vec<(Folio, Option<Hotness>)>,
    /// Why, for people.
    pub why: String,
}

/// What is kept up to date as pages move.
pub struct Books<'a> {
    /// Which dense page is whose.
    pub space: &'a Space,
    /// Where each page is.
    pub placement: &'a mut Placement,
    /// Records; a page that could not move now is put back.
    pub store: &'a Store,
    /// Moves of late.
    pub recent: &'a mut RecentMoves,
    /// The base page.
    pub page: PageSize,
    /// Now.
    pub now: Millis,
    /// Whether to tell of every run, and of pages that stayed.
    pub explain: bool,
}

/// Base pages by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// They moved.
    pub moved: u64,
    /// The kernel would not move them.
    pub failed: u64,
    /// The target was full, whatever its watermark had said.
    pub no_memory: u64,
}

/// Moves what `job` names and tells `reporter` of each run.
pub fn carry_out<K: Kernel>(
    mover: &mut Mover<K>,
    job: &Job,
    books: &mut Books<'_>,
    reporter: &mut dyn Reporter,
) -> Done {
    let moves: Vec<Move> = moves(job, books);
    let mut done = Done::default();
    let mut runs = Runs::new(job, books, false);
    mover.run(job.process, &moves, |settled| {
        let pages = settled.pages as u64;
        let first = VirtualPage(settled.address as u64 >> books.page.shift());
        let Some(dense) = books.space.find(job.owner, first) else {
            return;
        };
        match settled.outcome {
            Outcome::Moved { from } => {
                done.moved += pages;
                books.placement.set_run(dense, pages, job.target, pages > 1);
                let way = match job.direction {
                    Direction::Promotion => Moved::Up,
                    Direction::Demotion => Moved::Down,
                };
                books.recent.note(dense, way, books.now);
                runs.moved(settled.address as u64, pages, from, reporter);
            }
            Outcome::AlreadyThere => {
                books.placement.set_run(dense, pages, job.target, pages > 1);
            }
            outcome => {
                runs.stayed(settled.address as u64, pages, outcome, reporter);
                failed(job, books, dense, pages, outcome, &mut done);
            }
        }
    });
    runs.flush(reporter);
    done
}

/// Tells of `job` as if it had been carried out.
///
/// The pages then count as ones that the kernel would not move, so that each is
/// told of once.
pub fn pretend(job: &Job, books: &mut Books<'_>, reporter: &mut dyn Reporter) -> u64 {
    let mut runs = Runs::new(job, books, true);
    let mut pages = 0;
    for (folio, _) in &job.folios {
        let place = books.placement.get(folio.first);
        if let (Some(place), Some((_, at))) = (place, books.space.locate(folio.first)) {
            let address = at.0 << books.page.shift();
            runs.moved(address, u64::from(folio.pages), place.node(), reporter);
            pages += u64::from(folio.pages);
            for page in folio.first.0..folio.first.0 + u64::from(folio.pages) {
                books.placement.set_stuck(PageNumber(page));
            }
        }
    }
    runs.flush(reporter);
    pages
}

fn moves(job: &Job, books: &Books<'_>) -> Vec<Move> {
    let mut moves: Vec<Move> = Vec::with_capacity(job.folios.len());
    for (folio, _) in &job.folios {
        let Some((_, first)) = books.space.locate(folio.first) else {
            continue;
        };
        let address = (first.0 << books.page.shift()) as usize;
        let (pages, huge) = (folio.pages as usize, u64::from(folio.pages) == HUGE_PAGES);
        match moves.last_mut() {
            Some(last)
                if last.huge == huge
                    && last.address + last.pages * books.page.bytes() as usize == address =>
            {
                last.pages += pages;
            }
            _ => moves.push(Move {
                address,
                pages,
                huge,
                target: job.target,
            }),
        }
    }
    moves
}

/// What a page's failure means for the next rounds.
fn failed(
    job: &Job,
    books: &mut Books<'_>,
    dense: PageNumber,
    pages: u64,
    outcome: Outcome,
    done: &mut Done,
) {
    match outcome {
        Outcome::NoMemory | Outcome::Busy => {
            if outcome == Outcome::NoMemory {
                done.no_memory += pages;
            } else {
                done.failed += pages;
            }
            // Later may be better: the page stays asked for while it is hot.
            let at = job
                .folios
                .binary_search_by_key(&dense, |(folio, _)| folio.first);
            if let Ok((_, Some(hotness))) = at.map(|at| job.folios[at]) {
                books.store.put_back(dense, &hotness, books.now);
            }
        }
        Outcome::NotPresent | Outcome::ZeroOrUnmapped | Outcome::ProcessGone => {
            books.placement.clear_run(dense, pages);
        }
        _ => {
            done.failed += pages;
            books.placement.set_stuck(dense);
        }
    }
}

/// Why the kernel did not move a page, in its own terms.
pub fn refusal(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Moved { .. } | Outcome::AlreadyThere => "it moved",
        Outcome::NotPresent => "it is not present any more",
        Outcome::ZeroOrUnmapped => "nothing is mapped there any more",
        Outcome::Shared => "other processes map it too, and moving such pages takes CAP_SYS_NICE",
        Outcome::Busy => "it is pinned or in use",
        Outcome::NoMemory => "the target is full",
        Outcome::NotAllowed => "its cpuset excludes the target",
        Outcome::NoSuchNode => "the target is offline or has no memory",
        Outcome::NotPermitted => "not allowed without CAP_SYS_PTRACE and CAP_SYS_NICE",
        Outcome::ProcessGone => "its process has ended",
        Outcome::Failed(_) => "of an error that is not expected here",
    }
}

/// Joins neighbouring pages of the same fate to one event.
struct Runs<'a> {
    job: &'a Job,
    now: Millis,
    dry_run: bool,
    detailed: bool,
    open: Option<(u64, u64, Fate)>,
    /// Pages by the node that they left, where only sums are told.
    sums: Vec<(NodeId, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Moved(NodeId),
    Stayed(&'static str),
}

impl<'a> Runs<'a> {
    fn new(job: &'a Job, books: &Books<'_>, dry_run: bool) -> Runs<'a> {
        Runs {
            job,
            now: books.now,
            dry_run,
            detailed: books.explain || dry_run,
            open: None,
            sums: Vec::new(),
        }
    }

    fn moved(&mut self, address: u64, pages: u64, from: NodeId, to: &mut dyn Reporter) {
        self.add(address, pages, Fate::Moved(from), to);
    }

    fn stayed(&mut self, address: u64, pages: u64, outcome: Outcome, to: &mut dyn Reporter) {
        self.add(address, pages, Fate::Stayed(refusal(outcome)), to);
    }

    fn add(&mut self, address: u64, pages: u64, fate: Fate, to: &mut dyn Reporter) {
        if !self.detailed {
            if let Fate::Moved(from) = fate {
                match self.sums.iter_mut().find(|(node, _)| *node == from) {
                    Some((_, sum)) => *sum += pages,
                    None => self.sums.push((from, pages)),
                }
            }
            return;
        }
        if let Some((first, length, open)) = &mut self.open
            && *open == fate
            && *first + (*length << PageSize::KIB_4.shift()) == address
        {
            *length += pages;
            return;
        }
        self.flush(to);
        self.open = Some((address, pages, fate));
    }

    fn flush(&mut self, to: &mut dyn Reporter) {
        for (from, pages) in self.sums.drain(..) {
            let moved = MovedPages {
                direction: self.job.direction,
                pid: self.job.process.pid,
                from,
                to: self.job.target,
                pages,
            };
            to.event(self.now, Event::MovedPages(moved));
        }
        let Some((address, pages, fate)) = self.open.take() else {
            return;
        };
        let range = Range {
            pid: self.job.process.pid,
            address,
            pages,
        };
        let event = match fate {
            Fate::Moved(from) => Event::Moved {
                direction: self.job.direction,
                dry_run: self.dry_run,
                range,
                from,
                to: self.job.target,
                why: self.job.why.clone(),
            },
            Fate::Stayed(why) => Event::Stayed {
                range,
                node: self.job.target,
                why: Stay::Refused { why },
            },
        };
        to.event(self.now, event);
    }
}
