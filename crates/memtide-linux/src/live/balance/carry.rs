//! Carrying out what was decided about pages.
//!
//! The core has asked what the pages' owners allow and how much room there is (by
//! the same code as tiering, [`crate::live::view`]). Here its word becomes
//! calls: neighbouring pages of one process with one target go together, the
//! mover checks before each call that the process is still the one that was
//! meant, and what became of each page goes back to the core, to the map of
//! pages and to people.

use super::report::{Event, MovedPages, Range, Reporter};
use crate::live::carry_out::refusal;
use crate::live::processes::Processes;
use crate::live::survey::HUGE_PAGES;
use crate::mover::{self, Kernel, Move, Mover, Outcome};
use memtide_core::balancing::gate::Verdict;
use memtide_core::balancing::sampled::PageMove;
use memtide_core::tiering::placement::Placement;
use memtide_core::tiering::space::{OwnerId, Space, VirtualPage};
use memtide_core::units::{Millis, NodeId, PageSize};
use std::collections::BTreeMap;

/// Base pages by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// They moved, or would have.
    pub moved: u64,
    /// The kernel would not move them.
    pub failed: u64,
}

/// All that carrying out needs to know, and keeps up to date.
pub struct Books<'a, K> {
    /// Whose pages they are.
    pub processes: &'a Processes,
    /// Which dense page is which.
    pub space: &'a Space,
    /// Where each page is.
    pub placement: &'a mut Placement,
    /// Who moves them.
    pub mover: &'a mut Mover<K>,
    /// The base page.
    pub page: PageSize,
    /// Since the start of the run.
    pub at: Millis,
    /// Plan and tell only.
    pub dry_run: bool,
    /// Tell of every run.
    pub explain: bool,
}

/// Pages of one process that go to one node, by address.
type Job<'a> = BTreeMap<VirtualPage, &'a PageMove>;

impl<K: Kernel> Books<'_, K> {
    /// Moves all of `moves` and tells of it; `outcome` hears of each whether it is
    /// where it should be now.
    pub fn carry_out(
        &mut self,
        moves: &[PageMove],
        reporter: &mut dyn Reporter,
        mut outcome: impl FnMut(&PageMove, bool),
    ) -> Sums {
        let mut jobs: BTreeMap<(OwnerId, NodeId), Job<'_>> = BTreeMap::new();
        for page_move in moves {
            if let Some((owner, at)) = self.space.locate(page_move.page) {
                let job = jobs.entry((owner, page_move.to)).or_default();
                job.insert(at, page_move);
            }
        }
        let mut sums = Sums::default();
        for ((owner, to), job) in jobs {
            let Some(watched) = self.processes.get(owner) else {
                continue;
            };
            let process = watched.process;
            match self.dry_run {
                true => self.pretend(process.pid, &job, &mut sums, reporter, &mut outcome),
                false => self.run(process, to, &job, &mut sums, reporter, &mut outcome),
            }
        }
        sums
    }

    /// Tells of the pages as if they had moved, and takes them for moved, so that
    /// each is told of once and the share of local accesses is what it would be.
    fn pretend(
        &mut self,
        pid: u32,
        job: &Job<'_>,
        sums: &mut Sums,
        reporter: &mut dyn Reporter,
        outcome: &mut impl FnMut(&PageMove, bool),
    ) {
        let mut runs = Runs::new(self.at, self.page);
        for (at, wanted) in job {
            let pages = u64::from(wanted.pages);
            sums.moved += pages;
            let placement = &mut self.placement;
            placement.set_run(wanted.page, pages, wanted.to, pages > 1);
            outcome(wanted, true);
            let told = Told::moved(wanted, wanted.from, true);
            runs.add(pid, *at, pages, told, reporter);
        }
        runs.flush(reporter);
    }

    fn run(
        &mut self,
        process: mover::Process,
        to: NodeId,
        job: &Job<'_>,
        sums: &mut Sums,
        reporter: &mut dyn Reporter,
        outcome: &mut impl FnMut(&PageMove, bool),
    ) {
        let shift = self.page.shift();
        let moves = joined(job, to, self.page);
        let (placement, explain, at_now) = (&mut *self.placement, self.explain, self.at);
        let mut runs = Runs::new(at_now, self.page);
        let mut by_node: BTreeMap<NodeId, u64> = BTreeMap::new();
        self.mover.run(process, &moves, |settled| {
            let at = VirtualPage(settled.address as u64 >> shift);
            let Some(wanted) = job.get(&at) else {
                return;
            };
            let pages = settled.pages as u64;
            let told = match settled.outcome {
                Outcome::Moved { from } => {
                    sums.moved += pages;
                    placement.set_run(wanted.page, pages, to, pages > 1);
                    if !explain {
                        *by_node.entry(from).or_default() += pages;
                    }
                    Some(Told::moved(wanted, from, false))
                }
                Outcome::AlreadyThere => {
                    placement.set_run(wanted.page, pages, to, pages > 1);
                    None
                }
                Outcome::NotPresent | Outcome::ZeroOrUnmapped | Outcome::ProcessGone => {
                    placement.clear_run(wanted.page, pages);
                    None
                }
                refused => {
                    sums.failed += pages;
                    // What is in use just now is asked for again.
                    if !matches!(refused, Outcome::Busy | Outcome::NoMemory) {
                        placement.set_stuck(wanted.page);
                    }
                    Some(Told::Stayed {
                        node: wanted.from,
                        to,
                        why: refusal(refused),
                    })
                }
            };
            outcome(wanted, settled.outcome.is_there());
            if let (Some(told), true) = (told, explain) {
                runs.add(process.pid, at, pages, told, reporter);
            }
        });
        runs.flush(reporter);
        for (from, pages) in by_node {
            let moved = MovedPages {
                pid: process.pid,
                from,
                to,
                pages,
            };
            reporter.event(at_now, Event::MovedPages(moved));
        }
    }
}

/// Neighbours of one kind as one move.
fn joined(job: &Job<'_>, to: NodeId, page: PageSize) -> Vec<Move> {
    let mut moves: Vec<Move> = Vec::new();
    for (at, wanted) in job {
        let address = (at.0 << page.shift()) as usize;
        let (pages, huge) = (wanted.pages as usize, u64::from(wanted.pages) == HUGE_PAGES);
        match moves.last_mut() {
            Some(last)
                if last.huge == huge && last.address + (last.pages << page.shift()) == address =>
            {
                last.pages += pages;
            }
            _ => moves.push(Move {
                address,
                pages,
                huge,
                target: to,
            }),
        }
    }
    moves
}

/// The gate's reason, for people.
pub fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NoMemory => "the node has no memory",
        Verdict::Stale => "nobody is known to have used it",
        Verdict::Young => "first user of the page, in a thread that was placed few times yet",
        Verdict::OtherNode => "another node used it just before",
        Verdict::Own => "the same thread used it twice in a row",
        Verdict::Alone => "the same node used it twice in a row",
        Verdict::MoreActive => "its group runs mostly there",
        Verdict::Balance => "its group has more memory elsewhere than it runs there",
        Verdict::Spread => "its group's memory is spread as its threads are",
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Moved {
        dry_run: bool,
        from: NodeId,
        to: NodeId,
        why: Verdict,
    },
    Stayed {
        node: NodeId,
        to: NodeId,
        why: &'static str,
    },
}

impl Told {
    fn moved(wanted: &PageMove, from: NodeId, dry_run: bool) -> Told {
        Told::Moved {
            dry_run,
            from,
            to: wanted.to,
            why: wanted.why,
        }
    }
}

/// Joins neighbouring pages of the same fate to one event.
struct Runs {
    at: Millis,
    page: PageSize,
    open: Option<(u32, VirtualPage, u64, Told)>,
}

impl Runs {
    fn new(at: Millis, page: PageSize) -> Runs {
        let open = None;
        Runs { at, page, open }
    }

    fn add(&mut self, pid: u32, at: VirtualPage, pages: u64, told: Told, to: &mut dyn Reporter) {
        if let Some((of, first, length, open)) = &mut self.open
            && *of == pid
            && first.0 + *length == at.0
            && *open == told
        {
            *length += pages;
            return;
        }
        self.flush(to);
        self.open = Some((pid, at, pages, told));
    }

    fn flush(&mut self, reporter: &mut dyn Reporter) {
        let Some((pid, first, pages, told)) = self.open.take() else {
            return;
        };
        let range = Range {
            pid,
            address: first.0 << self.page.shift(),
            pages,
        };
        let event = match told {
            Told::Moved {
                dry_run,
                from,
                to,
                why,
            } => Event::Moved {
                dry_run,
                range,
                from,
                to,
                why: format!("used from node {to}: {}", words(why)),
            },
            Told::Stayed { node, to, why } => Event::Stayed {
                range,
                node,
                to,
                why: format!("used from node {to}, but the kernel did not move it: {why}"),
            },
        };
        reporter.event(self.at, event);
    }
}

#[cfg(test)]
#[path = "carry_tests.rs"]
mod tests;
