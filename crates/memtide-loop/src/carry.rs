//! Carrying out moves, and noting what became of each page.
//!
//! Tiering and balancing decide for different reasons and carry out in the same
//! way: neighbouring pages of one process with one target go together, the map
//! of pages is kept up to date, people hear of runs or sums, and whoever decided
//! hears of each folio what became of it.

use crate::ledger::Ledger;
use crate::report::{Direction, Event, MovedPages, Range, Reporter, WhyStayed};
use crate::world::{HUGE_PAGES, MoveHow, Outcome, PageRun, ProcessId, Settled, World};
use memtide_core::pages::Folio;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::{Millis, NodeId, PageNumber, PageSize};

/// Folios of one process with one target.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Whose.
    pub owner: OwnerId,
    /// The process.
    pub process: ProcessId,
    /// Whereto.
    pub target: NodeId,
    /// Which way that is, between tiers.
    pub direction: Option<Direction>,
    /// In order of their dense numbers.
    pub folios: &'a [Folio],
}

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    /// Sums by process and nodes.
    Sums,
    /// Each run, and why pages stayed.
    Runs,
}

/// Why whoever decided wants it.
pub trait Reasons {
    /// What makes two neighbours one run for people, beside their fate.
    type Key: Copy + PartialEq;
    /// The key of a folio.
    fn key(&self, first: PageNumber) -> Self::Key;
    /// Why pages with this key moved, or should have.
    fn moved(&self, key: Self::Key) -> String;
    /// Why pages with this key stayed although they were to move; and where they
    /// are wanted, if that is told. `None`: nobody needs to know.
    fn stayed(&self, key: Self::Key, outcome: Outcome) -> Option<(WhyStayed, Option<NodeId>)>;
}

/// Base pages by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// They moved, or would have.
    pub moved: u64,
    /// The kernel would not move them.
    pub failed: u64,
    /// The target was full, whatever its watermark had said.
    pub no_memory: u64,
}

/// Moves pages over a world. Keep one: it reuses its buffers.
#[derive(Debug, Default)]
pub struct Carrier {
    runs: Vec<PageRun>,
    settled: Vec<Settled>,
}

impl Carrier {
    /// Moves what `job` names, tells `reporter` of it, and `on` of each folio's
    /// outcome.
    #[expect(
        clippy::too_many_arguments,
        reason = "who, whereto, how, and who hears of it"
    )]
    pub fn carry_out<R: Reasons>(
        &mut self,
        world: &mut dyn World,
        ledger: &mut Ledger,
        job: Job<'_>,
        how: MoveHow,
        (tell, reasons): (Tell, &R),
        now: Millis,
        reporter: &mut dyn Reporter,
        mut on: impl FnMut(PageNumber, u64, Outcome),
    ) -> Done {
        joined(&mut self.runs, ledger, job.folios);
        self.settled.clear();
        world.move_pages(job.process, job.target, &self.runs, how, &mut self.settled);
        let mut done = Done::default();
        let mut told = Telling::new(job, tell, false, reasons, (ledger.page, now));
        for settled in &self.settled {
            let (space, placement) = (&ledger.space, &mut ledger.placement);
            let visitors = &mut ledger.visitors;
            let (outcome, folio_pages) = (settled.outcome, settled.folio_pages());
            space.for_runs(
                job.owner,
                settled.first,
                settled.pages,
                |first, dense, pages| {
                    let lay = placement
                        .get(dense)
                        .map_or(job.target, |place| place.node());
                    match outcome {
                        Outcome::Moved { .. } => done.moved += pages,
                        Outcome::NoMemory => done.no_memory += pages,
                        Outcome::AlreadyThere
                        | Outcome::NotPresent
                        | Outcome::ZeroOrUnmapped
                        | Outcome::ProcessGone => {}
                        _ => done.failed += pages,
                    }
                    match outcome {
                        Outcome::Moved { .. } | Outcome::AlreadyThere => {
                            placement.set_run(dense, pages, job.target, settled.huge);
                        }
                        Outcome::NotPresent | Outcome::ZeroOrUnmapped | Outcome::ProcessGone => {
                            placement.clear_run(dense, pages);
                        }
                        // What is in use, or finds no room, may move later.
                        Outcome::Busy | Outcome::NoMemory => {}
                        _ => (0..pages)
                            .step_by(folio_pages as usize)
                            .for_each(|n| placement.set_stuck(PageNumber(dense.0 + n))),
                    }
                    for n in (0..pages).step_by(folio_pages as usize) {
                        let page = PageNumber(dense.0 + n);
                        let length = folio_pages.min(pages - n);
                        let visit = match outcome.leaves_it_as_it_was() {
                            true => None,
                            false => visitors.end(page),
                        };
                        // What was there for a moment stays: that moves it, too.
                        let visit = visit.filter(|_| outcome == Outcome::AlreadyThere);
                        let outcome = visit.map_or(outcome, |visit| {
                            done.moved += length;
                            Outcome::Moved { from: visit.home }
                        });
                        told.folio(
                            VirtualPage(first.0 + n),
                            page,
                            length,
                            (outcome, lay),
                            reporter,
                        );
                        on(page, length, outcome);
                    }
                },
            );
        }
        told.flush(reporter);
        // Who decides next decides by what is left.
        ledger.rooms.came(job.target, done.moved);
        done
    }

    /// Tells of `job` as if it had been carried out. Nothing of the ledger
    /// changes.
    pub fn pretend<R: Reasons>(
        ledger: &Ledger,
        job: Job<'_>,
        reasons: &R,
        now: Millis,
        reporter: &mut dyn Reporter,
    ) -> Done {
        let mut told = Telling::new(job, Tell::Runs, true, reasons, (ledger.page, now));
        let mut done = Done::default();
        for folio in job.folios {
            let place = ledger.placement.get(folio.first);
            let (Some(place), Some((_, at))) = (place, ledger.space.locate(folio.first)) else {
                continue;
            };
            let pages = u64::from(folio.pages);
            let lay = place.node();
            let fate = (Outcome::Moved { from: lay }, lay);
            told.folio(at, folio.first, pages, fate, reporter);
            done.moved += pages;
        }
        told.flush(reporter);
        done
    }
}

/// Neighbours of one kind as one run.
fn joined(runs: &mut Vec<PageRun>, ledger: &Ledger, folios: &[Folio]) {
    runs.clear();
    for folio in folios {
        let Some((_, first)) = ledger.space.locate(folio.first) else {
            continue;
        };
        let pages = u64::from(folio.pages);
        let huge = pages == HUGE_PAGES;
        match runs.last_mut() {
            Some(last) if last.huge == huge && last.first.0 + last.pages == first.0 => {
                last.pages += pages;
            }
            _ => runs.push(PageRun { first, pages, huge }),
        }
    }
    // Dense numbers follow the order in which sections were met.
    runs.sort_unstable_by_key(|run| run.first);
}

/// Neighbours of the same fate.
struct Run<K> {
    first: VirtualPage,
    pages: u64,
    /// What became of them, and where they lay.
    fate: (Outcome, NodeId),
    key: K,
}

/// Joins neighbouring folios of the same fate to one event.
struct Telling<'a, R: Reasons> {
    job: Job<'a>,
    tell: Tell,
    dry_run: bool,
    reasons: &'a R,
    page: PageSize,
    now: Millis,
    open: Option<Run<R::Key>>,
    /// Pages by the node that they left, where only sums are told.
    sums: Vec<(NodeId, u64)>,
}

impl<'a, R: Reasons> Telling<'a, R> {
    fn new(
        job: Job<'a>,
        tell: Tell,
        dry_run: bool,
        reasons: &'a R,
        (page, now): (PageSize, Millis),
    ) -> Self {
        Telling {
            job,
            tell,
            dry_run,
            reasons,
            page,
            now,
            open: None,
            sums: Vec::new(),
        }
    }

    fn folio(
        &mut self,
        at: VirtualPage,
        dense: PageNumber,
        pages: u64,
        fate: (Outcome, NodeId),
        to: &mut dyn Reporter,
    ) {
        if self.tell == Tell::Sums {
            if let (Outcome::Moved { from }, _) = fate {
                match self.sums.iter_mut().find(|(node, _)| *node == from) {
                    Some((_, sum)) => *sum += pages,
                    None => self.sums.push((from, pages)),
                }
            }
            return;
        }
        if fate.0 == Outcome::AlreadyThere {
            return;
        }
        let key = self.reasons.key(dense);
        match &mut self.open {
            Some(run) if run.fate == fate && run.key == key && run.first.0 + run.pages == at.0 => {
                run.pages += pages;
            }
            _ => {
                self.flush(to);
                self.open = Some(Run {
                    first: at,
                    pages,
                    fate,
                    key,
                });
            }
        }
    }

    fn flush(&mut self, to: &mut dyn Reporter) {
        let Job {
            process,
            target,
            direction,
            ..
        } = self.job;
        for (from, pages) in self.sums.drain(..) {
            let moved = MovedPages {
                direction,
                pid: process.pid,
                from,
                to: target,
                pages,
            };
            to.event(self.now, Event::MovedPages(moved));
        }
        let Some(run) = self.open.take() else {
            return;
        };
        let (pages, (outcome, node), key) = (run.pages, run.fate, run.key);
        let range = Range {
            pid: process.pid,
            address: run.first.0 << self.page.shift(),
            pages,
        };
        let event = match outcome {
            Outcome::Moved { from } => Event::Moved {
                direction,
                dry_run: self.dry_run,
                range,
                from,
                to: target,
                why: self.reasons.moved(key),
            },
            outcome => {
                let Some((why, to)) = self.reasons.stayed(key, outcome) else {
                    return;
                };
                Event::Stayed {
                    range,
                    node,
                    to,
                    why,
                }
            }
        };
        to.event(self.now, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Visit;
    use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
    use crate::world::SharedPages;
    use memtide_core::tiering::space::OwnerId;

    struct NoReason;

    impl Reasons for NoReason {
        type Key = ();
        fn key(&self, _: PageNumber) -> Self::Key {}
        fn moved(&self, (): Self::Key) -> String {
            String::new()
        }
        fn stayed(&self, (): Self::Key, _: Outcome) -> Option<(WhyStayed, Option<NodeId>)> {
            None
        }
    }

    /// A page that was on fast memory for a moment, and is to stay, has moved like any other.
    #[test]
    fn who_was_there_for_a_moment_and_stays_has_moved() {
        let mut world = FakeWorld::two_tiers(100, 100);
        world.processes.push(FakeProcess::new(7, 1000, 3, SLOW));
        let mut ledger = Ledger::new(&world, 0);
        ledger.processes.refresh(&mut world, Millis(0)).unwrap();
        let owner = OwnerId(0);
        ledger.survey(&mut world, owner).unwrap();
        let first = ledger.space.find(owner, VirtualPage(1000)).unwrap();
        let (home, away) = (SLOW, FAST);
        ledger.visitors.begin(first, Visit { home, away });
        world.processes[0].pages.insert(VirtualPage(1000), FAST);
        let folios = [0, 1, 2].map(|n| Folio {
            first: PageNumber(first.0 + n),
            pages: 1,
        });
        let job = Job {
            owner,
            process: world.processes[0].process,
            target: FAST,
            direction: Some(Direction::Promotion),
            folios: &folios,
        };
        let how = MoveHow {
            batch: 1024,
            shared: SharedPages::Leave,
        };
        let mut told: Vec<(Millis, Event)> = Vec::new();
        let done = Carrier::default().carry_out(
            &mut world,
            &mut ledger,
            job,
            how,
            (Tell::Sums, &NoReason),
            Millis(1),
            &mut told,
            |_, _, _| {},
        );
        assert_eq!(done.moved, 3);
        let sum = |(_, event): &(Millis, Event)| match event {
            Event::MovedPages(moved) => moved.pages,
            _ => 0,
        };
        assert_eq!(told.iter().map(sum).sum::<u64>(), 3);
        assert!(ledger.visitors.is_empty());
    }
}
