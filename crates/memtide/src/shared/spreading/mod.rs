//! Spreading by weights beside tiering: the memory of the classes that have weights is kept so.
//!
//! It is done as `memtide run --weights` does it ([`tending`](super::tending)), on a thread of its own:
//! moving gigabytes at a rate takes seconds, and tiering's passes must not wait for them. Which class a
//! process is of follows from the same rules as for tiering, which leaves these classes alone, and so does
//! balancing: nothing else moves their pages.
//!
//! # Properties
//!
//! - The thread prints nothing. What it tells waits, and the loop prints it: one line for each class of
//!   which a process cannot be spread, and one at the end. So there are few.
//! - It ends within a step of moving when it is asked to. Nothing is lent, so nothing is put back.
//! - Nothing of a class moves that is paused, also not what was about to.

mod machine;

use super::context::Context;
use super::control::standing::{Standing, Weights};
use super::metrics::Metrics;
use super::outside::causes;
use super::report::Printer;
use super::spread::page_size;
use super::tending::{FIRST, Manner, Spreader, Tended, Tender};
use super::tiering;
use super::weights_options::WeightsOptions;
use machine::Running as RunningMachine;
use memtide_core::units::PageSize;
use memtide_linux::fs::proc::Process;
use memtide_linux::live::processes::Selection;
use memtide_linux::mover::SharedPages;
use memtide_linux::respread::{Options, Spread};
use memtide_loop::options::Classes;
use memtide_loop::world::ClassId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A service has time: looking takes a fiftieth of it, or a tenth where pages move.
const MANNER: Manner = Manner {
    shares: [50, 10],
    starting: Duration::ZERO,
    again: Some(Duration::from_secs(60)),
};

/// Whom the service is to spread, and how.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// How.
    pub options: &'a WeightsOptions,
    /// Which classes have weights.
    pub classes: &'a Classes,
}

impl Wanted<'_> {
    /// Whether there is anybody to spread.
    pub fn anybody(&self) -> bool {
        self.classes.values().any(|class| class.weights.is_some())
    }

    /// By class, its number and how its memory is spread.
    fn by_class(&self, page: PageSize) -> ByClass {
        let classes = (0..).map(ClassId).zip(self.classes);
        let of = |(id, (name, class)): (ClassId, (&String, _))| {
            let class: &memtide_loop::options::ClassOptions = class;
            let weights = class.weights.as_ref()?.by_node();
            let options = Options {
                spread: Spread::new(weights.iter().map(|(node, weight)| (*node, *weight)))?,
                shared: SharedPages::Leave,
                dry_run: self.options.dry_run,
                page,
            };
            Some((name.clone(), (id, options)))
        };
        classes.filter_map(of).collect()
    }

    /// Begins, beside a run of tiering of the same processes. Where it cannot, that is said.
    pub fn begin(
        self,
        context: &Context,
        selection: Selection,
        printer: &mut Printer,
    ) -> Spreading {
        if !self.anybody() {
            return Spreading::default();
        }
        let begun = || -> anyhow::Result<_> {
            let page = page_size()?;
            let classes = self.by_class(page);
            let rules = tiering::rules(context, self.classes)?;
            let root = context.root.clone();
            let machine = move || RunningMachine::new(root, page, selection, rules);
            let per_second = page.pages(self.options.rate_limit.0);
            let running = Running::start(machine, &classes, per_second)?;
            Ok((running, classes))
        };
        match begun() {
            Ok((running, classes)) => Spreading {
                running: Some(running),
                rests: None,
                classes: (classes.into_iter())
                    .map(|(name, (id, _))| (name, id))
                    .collect(),
            },
            Err(why) => {
                let why = causes(&why);
                printer.notice(&rests(&why));
                Spreading {
                    rests: Some(why),
                    ..Spreading::default()
                }
            }
        }
    }
}

/// As it is said.
fn rests(why: &str) -> String {
    format!("nothing is spread by weights: {why}")
}

/// A process of a class: its page faults so far, and the class.
type Member = (Process, u64, ClassId);

/// The machine as spreading sees it.
trait Machine: Spreader {
    /// The processes that are in classes.
    fn members(&mut self) -> Result<Vec<Member>, String>;

    /// `spread` in the numbers of the kernel's table where that has the same proportions.
    fn counted(&mut self, spread: &Spread) -> Spread;

    /// The thread's processor time.
    fn cpu(&self) -> Duration;
}

/// What was done since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Processes whose memory is kept spread.
    pub processes: usize,
    /// Of those, processes that cannot be at present.
    pub refused: usize,
    /// Pages that moved, or would have in a dry run.
    pub moved_pages: u64,
    /// Its processor time.
    pub cpu: Duration,
}

/// What the thread and the service share.
#[derive(Default)]
struct Shared {
    latest: Mutex<Latest>,
    ends: Condvar,
}

#[derive(Default)]
struct Latest {
    /// Whether it is to end.
    ends: bool,
    /// Classes whose pages stay where they are.
    paused: BTreeSet<ClassId>,
    figures: Figures,
    /// What is to be said.
    says: Vec<String>,
    /// Why it has ended by itself.
    failed: Option<String>,
}

impl Shared {
    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It ends by itself, which is said once.
    fn fails(&self, why: String) {
        let mut latest = self.latest();
        latest.says.push(rests(&why));
        latest.failed = Some(why);
    }

    /// Prints what waits.
    fn tell(&self, printer: &mut Printer) {
        let says = std::mem::take(&mut self.latest().says);
        says.iter().for_each(|text| printer.notice(text));
    }

    /// Waits for so long, or until it is to end. Whether it is.
    fn wait(&self, limit: Duration) -> bool {
        let latest = self.latest();
        if limit.is_zero() {
            return latest.ends;
        }
        let waited = self
            .ends
            .wait_timeout_while(latest, limit, |latest| !latest.ends);
        waited.unwrap_or_else(PoisonError::into_inner).0.ends
    }

    /// The same, or whether nothing of the class may move.
    fn stops(&self, class: Option<ClassId>, limit: Duration) -> bool {
        let paused = || class.is_some_and(|class| self.latest().paused.contains(&class));
        self.wait(limit) || paused()
    }
}

/// How classes are spread, by name.
type ByClass = BTreeMap<String, (ClassId, Options)>;

/// How each class is spread now: the kernel's table may be another one than in the last round.
fn counted(machine: &mut impl Machine, classes: &ByClass) -> BTreeMap<ClassId, Options> {
    let of = |(id, options): &(ClassId, Options)| {
        let mut options = options.clone();
        options.spread = machine.counted(&options.spread);
        (*id, options)
    };
    classes.values().map(of).collect()
}

/// Rounds until `wait_for` says that it is to end.
///
/// # Errors
/// Why it ends by itself.
fn work(
    machine: &mut impl Machine,
    classes: &ByClass,
    per_second: u64,
    shared: &Shared,
    mut wait_for: impl FnMut(Duration) -> bool,
) -> Result<(), String> {
    let mut tender = Tender::new(MANNER, per_second);
    let (mut told, started, mut wait) = (BTreeSet::new(), Instant::now(), FIRST);
    while !wait_for(wait) {
        let began = Instant::now();
        let members = machine.members()?;
        let options = counted(machine, classes);
        let tended = members.iter().filter_map(|(process, faults, class)| {
            Some(Tended {
                process: *process,
                faults: *faults,
                options: options.get(class)?,
            })
        });
        let tended: Vec<Tended<'_>> = tended.collect();
        let members = members.iter().map(|(process, _, class)| (*process, *class));
        let of: BTreeMap<Process, ClassId> = members.collect();
        let before = {
            let figures = &mut shared.latest().figures;
            figures.processes = tended.len();
            figures.moved_pages
        };
        let round = tender.round(
            started.elapsed(),
            &tended,
            machine,
            |process, wait, moved| {
                // Moving gigabytes takes seconds, in which that is seen.
                shared.latest().figures.moved_pages = before + moved;
                shared.stops(of.get(&process).copied(), wait)
            },
        );
        let mut latest = shared.latest();
        for (process, error) in &round.failed {
            let class = of.get(process);
            let named = classes.iter().find(|(_, (id, _))| class == Some(id));
            if let Some((name, _)) = named
                && told.insert(name)
            {
                latest.says.push(format!(
                    "weights: class {name}: {error}; it stays as it is, and so do others of the class like it"
                ));
            }
        }
        latest.figures = Figures {
            processes: tended.len(),
            refused: tender.refused(),
            moved_pages: before + round.moved,
            cpu: machine.cpu(),
        };
        drop(latest);
        wait = tender.wait(&round, began.elapsed(), started.elapsed());
    }
    Ok(())
}

/// Spreading beside a run of tiering. By default nobody wants it.
#[derive(Default)]
pub struct Spreading {
    running: Option<Running>,
    /// Why it could not begin.
    rests: Option<String>,
    /// The classes that have weights.
    classes: BTreeMap<String, ClassId>,
}

struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Has a thread work at the machine that `make` makes there.
    fn start<M: Machine>(
        make: impl FnOnce() -> M + Send + 'static,
        classes: &ByClass,
        per_second: u64,
    ) -> std::io::Result<Running> {
        let shared = Arc::new(Shared::default());
        let (of_thread, classes) = (Arc::clone(&shared), classes.clone());
        let named = std::thread::Builder::new().name("weights".to_owned());
        let thread = named.spawn(move || {
            let wait = |limit| of_thread.wait(limit);
            let done = work(&mut make(), &classes, per_second, &of_thread, wait);
            done.unwrap_or_else(|why| of_thread.fails(why));
        })?;
        Ok(Running { shared, thread })
    }

    fn fails(&self) -> Option<String> {
        let latest = self.shared.latest();
        let gone = || {
            (self.thread.is_finished() && !latest.ends).then(|| "its thread has ended".to_owned())
        };
        latest.failed.clone().or_else(gone)
    }
}

impl Spreading {
    /// Has pages of the class of this name stay where they are, or no more.
    pub fn pause(&self, class: &str, paused: bool) {
        if let (Some(running), Some(id)) = (&self.running, self.classes.get(class)) {
            let all = &mut running.shared.latest().paused;
            match paused {
                true => all.insert(*id),
                false => all.remove(id),
            };
        }
    }

    /// What was done, or why it rests. None if nobody wants it.
    fn stands(&self) -> Option<Result<Figures, String>> {
        let failed = || self.running.as_ref().and_then(Running::fails);
        if let Some(why) = self.rests.clone().or_else(failed) {
            return Some(Err(why));
        }
        let running = self.running.as_ref()?;
        let figures = running.shared.latest().figures;
        Some(Ok(figures))
    }

    /// Prints what it has told, and tells metrics where it stands.
    pub fn tells(&self, printer: &mut Printer, metrics: &Metrics) {
        if let Some(running) = &self.running {
            running.shared.tell(printer);
        }
        let stands = self.stands();
        metrics.tell_of_spreading(stands.map(Result::ok));
    }

    /// Writes where it stands into what is told of the service, beside what the kernel's table reads.
    pub fn complete(&self, standing: &mut Standing, table: Option<String>, page: PageSize) {
        let stands = self.stands();
        if let Some(Ok(figures)) = &stands {
            standing.cpu_ms += figures.cpu.as_millis() as u64;
            for class in &mut standing.classes {
                class.spread = self.classes.contains_key(&class.name);
            }
        }
        if stands.is_none() && table.is_none() {
            return;
        }
        let (figures, rests) = match stands {
            Some(Err(why)) => (Figures::default(), Some(why)),
            stands => (stands.and_then(Result::ok).unwrap_or_default(), None),
        };
        standing.weights = Some(Weights {
            table,
            rests,
            processes: figures.processes as u64,
            refused: figures.refused as u64,
            moved_bytes: figures.moved_pages.saturating_mul(page.bytes()),
            cpu_ms: figures.cpu.as_millis() as u64,
        });
    }

    /// The same in few words, for who manages services.
    pub fn short(&self, printer: &Printer) -> Option<String> {
        Some(match self.stands()? {
            Ok(figures) => format!(
                "spreading {} processes: moved {}",
                figures.processes,
                printer.size(figures.moved_pages)
            ),
            Err(why) => rests(&why),
        })
    }

    /// Asks it to end.
    pub fn ends(&self) {
        if let Some(running) = &self.running {
            running.shared.latest().ends = true;
            running.shared.ends.notify_all();
        }
    }

    /// Ends it, and says what it did.
    ///
    /// # Errors
    /// A mistake of memtide's ended it.
    pub fn finish(self, printer: &mut Printer) -> anyhow::Result<()> {
        self.ends();
        let Some(Running { shared, thread }) = self.running else {
            return Ok(());
        };
        let joined = thread.join();
        shared.tell(printer);
        let moved = shared.latest().figures.moved_pages;
        printer.notice(&format!("weights: moved {}", printer.size(moved)));
        match joined {
            Ok(()) => Ok(()),
            Err(_) => anyhow::bail!(
                "spreading by weights ended by a mistake of memtide's; pages stay where they are"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
