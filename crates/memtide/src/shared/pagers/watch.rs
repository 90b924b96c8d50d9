//! The service's look at pagers: a thread that looks, and what it has seen.
//!
//! A round comes every ten seconds, and later if the last one took more than a tenth of a second of
//! processor time. Nothing is lent, so the thread may end at any moment: who ends the service does
//! not wait for it.

use super::all::{Looked, Patience, look_at_all, own_cpu};
use super::find::{Answer, Shown};
use super::known::{Known, Listed};
use super::sums::{PagerFigures, Sums};
use super::{WAITS, find};
use crate::shared::control::standing::{self, Standing};
use crate::shared::metrics::Metrics;
use crate::shared::outside::{causes, outside};
use crate::shared::pagers_options::{PagersOptions, Show};
use crate::shared::report::Printer;
use memtide_core::units::PageSize;
use memtide_linux::fs::Root;
use memtide_linux::fs::interrupts::tlb_shootdowns;
use memtide_linux::fs::proc::{self, Process};
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// From a round to the next.
const PERIOD: Duration = Duration::from_secs(10);
/// And to the first.
const FIRST: Duration = Duration::from_secs(1);
/// Of so many parts of the time, looking takes one of processor time.
const SHARE: u32 = 100;
/// Processes with a pager that are told of; the others count as not read.
const MOST_PROCESSES: usize = 256;
/// One after the other: nobody hurries. Who keeps it waiting is given up, and another thread goes on.
const PATIENCE: Patience = Patience {
    at_once: 1,
    silence: Duration::from_secs(2),
    all: Duration::from_secs(20),
};

/// What of the machine is asked, so that tests can answer.
trait Machine {
    /// The processes with memory of their own.
    fn list(&mut self) -> Result<Vec<Listed>, String>;
    /// Looks at these.
    fn look(&mut self, pids: Vec<u32>) -> Result<Looked, String>;
    /// TLB shootdown interrupts since boot.
    fn shootdowns(&mut self) -> Option<u64>;
    /// Since the beginning.
    fn now(&self) -> Duration;
}

struct Live {
    root: Root,
    begun: Instant,
}

impl Machine for Live {
    fn list(&mut self) -> Result<Vec<Listed>, String> {
        let all = proc::list(&self.root).map_err(|error| causes(&error.into()))?;
        let programs = all.iter().filter(|one| one.stat.has_address_space());
        Ok(programs.map(|one| (one.process, one.stat.faults)).collect())
    }

    fn look(&mut self, pids: Vec<u32>) -> Result<Looked, String> {
        look_at_all(&self.root, pids, PATIENCE)
            .map_err(|error| format!("no thread can be started to look: {error}"))
    }

    fn shootdowns(&mut self) -> Option<u64> {
        tlb_shootdowns(&self.root).ok().flatten()
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// What the thread and the service share.
#[derive(Default)]
struct Shared {
    latest: Mutex<Latest>,
    ends: Condvar,
}

#[derive(Default)]
struct Latest {
    ends: bool,
    figures: PagerFigures,
    /// Why nothing is seen at present.
    failed: Option<String>,
    /// What is to be said.
    says: Vec<String>,
}

impl Shared {
    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for so long, or until it is to end. Whether it is.
    fn wait(&self, limit: Duration) -> bool {
        let waited = self
            .ends
            .wait_timeout_while(self.latest(), limit, |latest| !latest.ends);
        waited.unwrap_or_else(PoisonError::into_inner).0.ends
    }
}

/// As it is said.
fn rests(why: &str) -> String {
    format!("pagers are not seen: {why}")
}

/// Why a process that seems to have a pager is not read.
fn reason(answer: &Answer) -> Option<&str> {
    match answer {
        Answer::NotRead(why) => Some(why),
        Answer::Waits => Some(WAITS),
        _ => None,
    }
}

/// Rounds until `wait_for` says that it is to end.
fn work(
    machine: &mut impl Machine,
    show: Show,
    shared: &Shared,
    mut wait_for: impl FnMut(Duration) -> bool,
) {
    let (mut known, mut sums) = (Known::default(), Sums::default());
    let (mut cpu, mut wait) = (Duration::ZERO, FIRST);
    let (mut said, mut failed_before) = (false, false);
    while !wait_for(wait) {
        let before = own_cpu();
        let round = round(machine, &mut known, &mut sums);
        let mut spent = own_cpu().saturating_sub(before);
        let mut latest = shared.latest();
        match round {
            Ok(Round {
                looking,
                not_read,
                complaint,
                shootdowns,
            }) => {
                spent += looking;
                cpu += spent;
                let by_file = show == Show::Files;
                latest.figures = sums.figures(by_file, not_read, shootdowns, cpu);
                latest.failed = None;
                failed_before = false;
                // One line: there may be thousands, and it is anybody's doing.
                if let Some(complaint) = complaint.filter(|_| !said) {
                    latest.says.push(complaint);
                    said = true;
                }
            }
            Err(why) => {
                cpu += spent;
                if !failed_before {
                    latest.says.push(rests(&why));
                }
                (latest.failed, failed_before) = (Some(why), true);
            }
        }
        drop(latest);
        wait = PERIOD.max(spent * SHARE);
    }
}

struct Round {
    /// Processor time of the threads that looked.
    looking: Duration,
    not_read: u64,
    complaint: Option<String>,
    shootdowns: Option<u64>,
}

fn round(machine: &mut impl Machine, known: &mut Known, sums: &mut Sums) -> Result<Round, String> {
    let listed = machine.list()?;
    let due = known.due(&listed);
    let looked = match due.is_empty() {
        true => Looked::default(),
        false => machine.look(due)?,
    };
    let mut complaint = None;
    let mut shown: Vec<Shown> = Vec::new();
    let mut beyond = 0;
    for (pid, answer) in looked.answers {
        known.note(pid, &answer);
        if let Some(why) = reason(&answer) {
            complaint.get_or_insert_with(|| {
                let why = outside(why);
                format!(
                    "the pager of process {pid} cannot be read: {why}; memtide pager status tells of others"
                )
            });
        }
        match answer {
            find::Answer::Shown(one) if shown.len() < MOST_PROCESSES => shown.push(*one),
            find::Answer::Shown(_) => beyond += 1,
            _ => {}
        }
    }
    let there: BTreeSet<Process> = listed.into_iter().map(|(process, _)| process).collect();
    let shootdowns = machine.shootdowns();
    sums.round(machine.now(), &there, &shown, shootdowns);
    Ok(Round {
        looking: looked.cpu,
        not_read: known.not_read() + beyond,
        complaint,
        shootdowns,
    })
}

/// The service's look at pagers. By default there is none.
#[derive(Default)]
pub struct Pagers {
    running: Option<(Arc<Shared>, JoinHandle<()>)>,
    options: Option<PagersOptions>,
    /// Why it could not begin.
    rests: Option<String>,
}

impl Pagers {
    /// Looks as `options` want it from now on. What goes on as before forgets nothing. Where no thread
    /// can be had, that is said.
    pub fn follow(&mut self, root: &Root, options: PagersOptions, printer: &mut Printer) {
        if self.options == Some(options) {
            return;
        }
        self.ends();
        self.options = Some(options);
        if options.show == Show::Nothing {
            return;
        }
        let shared = Arc::new(Shared::default());
        let (of_thread, root) = (Arc::clone(&shared), root.clone());
        let named = std::thread::Builder::new().name("pagers".to_owned());
        let thread = named.spawn(move || {
            let mut machine = Live {
                root,
                begun: Instant::now(),
            };
            work(&mut machine, options.show, &of_thread, |limit| {
                of_thread.wait(limit)
            });
        });
        match thread {
            Ok(thread) => self.running = Some((shared, thread)),
            Err(why) => {
                let why = format!("no thread can be started: {why}");
                printer.notice(&rests(&why));
                self.rests = Some(why);
            }
        }
    }

    /// What was seen, or why nothing is. None if nobody wants it.
    fn stands(&self) -> Option<Result<PagerFigures, String>> {
        if let Some(why) = &self.rests {
            return Some(Err(why.clone()));
        }
        let (shared, thread) = self.running.as_ref()?;
        let latest = shared.latest();
        Some(match &latest.failed {
            Some(why) => Err(why.clone()),
            None if thread.is_finished() => Err("its thread has ended".to_owned()),
            None => Ok(latest.figures.clone()),
        })
    }

    /// Prints what it has to say, and tells metrics what was seen.
    pub fn tells(&self, printer: &mut Printer, metrics: &Metrics) {
        if let Some((shared, _)) = &self.running {
            let says = std::mem::take(&mut shared.latest().says);
            says.iter().for_each(|text| printer.notice(text));
        }
        metrics.tell_of_pagers(self.stands().map(Result::ok));
    }

    /// Writes what was seen into what is told of the service.
    pub fn complete(&self, standing: &mut Standing, page: PageSize) {
        standing.pagers = self
            .stands()
            .map(|stands| standing::Pagers::of(stands, page));
    }

    /// Has it end, and waits for nothing.
    pub fn ends(&mut self) {
        if let Some((shared, _)) = self.running.take() {
            shared.latest().ends = true;
            shared.ends.notify_all();
        }
        self.rests = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::sums::tests::shown;
    use super::*;
    use std::collections::BTreeMap;

    /// What the machine answers, round by round.
    #[derive(Default)]
    struct Pretended {
        rounds: Vec<Result<Vec<(u32, Answer)>, String>>,
        /// Whom it was asked to look at.
        asked: Vec<Vec<u32>>,
        at: usize,
        cpu: Duration,
    }

    fn process(pid: u32) -> Process {
        Process {
            pid,
            start_ticks: 1,
        }
    }

    impl Machine for Pretended {
        fn list(&mut self) -> Result<Vec<Listed>, String> {
            self.at += 1;
            let answers = self.rounds[self.at - 1].as_ref().map_err(Clone::clone)?;
            let faults = self.at as u64;
            Ok(answers
                .iter()
                .map(|(pid, _)| (process(*pid), faults))
                .collect())
        }

        fn look(&mut self, pids: Vec<u32>) -> Result<Looked, String> {
            let answers = std::mem::replace(&mut self.rounds[self.at - 1], Ok(Vec::new()));
            let answers: BTreeMap<u32, Answer> = answers.unwrap().into_iter().collect();
            let asked = pids.clone();
            self.asked.push(pids);
            Ok(Looked {
                answers: (answers.into_iter())
                    .filter(|(pid, _)| asked.contains(pid))
                    .collect(),
                left_out: 0,
                cpu: self.cpu,
            })
        }

        fn shootdowns(&mut self) -> Option<u64> {
            Some(100 * self.at as u64)
        }

        fn now(&self) -> Duration {
            PERIOD * self.at as u32
        }
    }

    /// Runs all rounds; how long it waited before each and at the end.
    fn run(machine: &mut Pretended, shared: &Shared, show: Show) -> Vec<Duration> {
        let (mut waited, rounds) = (Vec::new(), machine.rounds.len());
        work(machine, show, shared, |wait| {
            waited.push(wait);
            waited.len() > rounds
        });
        waited
    }

    fn pager(pid: u32, evicted: u64) -> (u32, Answer) {
        let files = [("/models/a.gguf", 8 << 20, 4 << 20, evicted)];
        (pid, Answer::Shown(Box::new(shown(pid, evicted, &files))))
    }

    #[test]
    fn what_pagers_show_is_told_and_one_line_of_who_cannot_be_read() {
        let refused = |pid| (pid, Answer::NotRead("no\u{1b}[2Jsense".to_owned()));
        let mut machine = Pretended {
            rounds: vec![
                Ok(vec![pager(1, 10), (2, Answer::NoPager), refused(3)]),
                Ok(vec![pager(1, 17), refused(4), (5, Answer::Gone)]),
            ],
            ..Pretended::default()
        };
        let shared = Shared::default();
        run(&mut machine, &shared, Show::Files);
        assert_eq!(machine.asked, [vec![1, 2, 3], vec![1, 4, 5]]);
        let latest = shared.latest();
        let figures = &latest.figures;
        assert_eq!((figures.processes, figures.not_read), (1, 1));
        assert_eq!(figures.counts.evicted_pages, 7);
        assert_eq!(figures.files[0].name, "a.gguf");
        assert_eq!(figures.shootdowns, Some(100));
        let [said] = &latest.says[..] else {
            panic!("{:?}", latest.says);
        };
        assert!(said.starts_with("the pager of process 3 cannot be read: no"));
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }

    /// Half a second of a CPU is a hundredth of 50 s.
    #[test]
    fn what_costs_more_comes_more_rarely() {
        let rounds = || vec![Ok(vec![pager(1, 1)]), Ok(vec![pager(1, 2)])];
        let mut cheap = Pretended {
            rounds: rounds(),
            ..Pretended::default()
        };
        let waited = run(&mut cheap, &Shared::default(), Show::Files);
        assert_eq!(waited, [FIRST, PERIOD, PERIOD]);
        let mut dear = Pretended {
            rounds: rounds(),
            cpu: Duration::from_millis(500),
            ..Pretended::default()
        };
        let shared = Shared::default();
        let waited = run(&mut dear, &shared, Show::Files);
        let long = Duration::from_secs(50);
        let near = |wait: &Duration| (long..long + PERIOD).contains(wait);
        assert!(waited[1..].iter().all(near), "{waited:?}");
        assert!(shared.latest().figures.cpu >= Duration::from_secs(1));
    }

    #[test]
    fn a_list_that_cannot_be_had_is_said_once_and_tried_again() {
        let mut machine = Pretended {
            rounds: vec![
                Err("no procfs".to_owned()),
                Err("no procfs".to_owned()),
                Ok(vec![pager(1, 1)]),
            ],
            ..Pretended::default()
        };
        let shared = Shared::default();
        run(&mut machine, &shared, Show::Sums);
        let latest = shared.latest();
        assert_eq!(latest.says, ["pagers are not seen: no procfs"]);
        assert_eq!((&latest.failed, latest.figures.processes), (&None, 1));
        assert_eq!(latest.figures.other_files, 1, "no names");
    }

    #[test]
    fn more_pagers_than_are_told_of_count_as_not_read() {
        let all = (1..=300).map(|pid| pager(pid, 1)).collect();
        let mut machine = Pretended {
            rounds: vec![Ok(all)],
            ..Pretended::default()
        };
        let shared = Shared::default();
        run(&mut machine, &shared, Show::Files);
        let figures = &shared.latest().figures;
        assert_eq!((figures.processes, figures.not_read), (256, 44));
    }

    /// The fake tree has a process 7 that shows nonsense.
    #[test]
    fn a_tree_that_is_not_the_kernels_is_read_too() {
        let named = "1000-5000 rw-p 00000000 00:01 9 /memfd:memtide-pager (deleted)\n";
        let (_folder, root) = find::tests::machine(named, &[0xa5; 0x6000]);
        let mut machine = Live {
            root,
            begun: Instant::now(),
        };
        let (mut known, mut sums) = (Known::default(), Sums::default());
        let round = round(&mut machine, &mut known, &mut sums).unwrap();
        assert_eq!((round.not_read, round.shootdowns), (1, None));
        let complaint = round.complaint.unwrap();
        assert!(
            complaint.contains("no statistics of a pager"),
            "{complaint}"
        );
    }
}
