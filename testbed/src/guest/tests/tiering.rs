//! Hot pages come home, cold pages stay: one case per kind of load, for each mechanism.
//!
//! Every case starts with all of a program's memory on the slow node and part of it in use. The
//! kernel's own tiering is measured as the baseline: its rows pass when they could be measured,
//! because "never" is a result. memtide's rows keep the promises of [`Promise`]: of what moves, in one
//! try; of time, in quiet seconds.

use std::time::Duration;

use anyhow::Result;

use super::{BootClass, Context, Needs, Test};
use crate::guest::late::in_time;
use crate::guest::measure::{Figures, GOAL, LONGEST, watch};
use crate::guest::mechanism::{Mechanism, Running};
use crate::guest::redis::Redis;
use crate::guest::subject::{KnownPages, Victim, census_hot};
use crate::report::Verdict;

/// The table that these tests fill.
const TABLE: &str = "tiering";
/// How long the kernel may take, in quiet time; a "never" costs this much.
const KERNEL_LIMIT: Duration = Duration::from_secs(20);
/// How long memtide is watched before its row counts as "never", in quiet time.
const MEMTIDE_LIMIT: Duration = Duration::from_secs(12);

/// The keys of redis that nineteen of twenty requests ask for.
const HOT_KEYS: usize = 160;
/// How many of memtide's last lines are shown when a promise was broken.
const LAST_LINES: usize = 12;

/// What memtide's rows promise. Both times are quiet ones: [`crate::guest::pace`].
struct Promise {
    /// Seconds until 99 % of the hot pages are on DRAM.
    seconds: f64,
    /// Share of the cold pages that may come along, and of the hot ones that may leave again.
    astray: f64,
    /// CPU seconds of memtide's own process until then; nothing is promised where it has to make
    /// room first, but the table tells.
    own_cpu_seconds: Option<f64>,
    /// Free pages that a DRAM node has over its low watermark at every moment.
    least_room: i64,
}

impl Promise {
    fn of(load: Load) -> Promise {
        let overcommit = matches!(load, Load::Overcommit(_));
        Promise {
            seconds: if overcommit { 8.0 } else { 4.0 },
            astray: 0.01,
            own_cpu_seconds: (!overcommit).then_some(1.0),
            least_room: 0,
        }
    }

    /// What took longer.
    fn late(&self, figures: &Figures) -> Vec<String> {
        let slowness = figures.slowness.max(1.0);
        let slow = match slowness > 1.0 {
            true => format!(" on a machine {slowness:.1} times as slow as a quiet one"),
            false => String::new(),
        };
        let mut late = Vec::new();
        match figures.seconds {
            Some(seconds) if seconds <= self.seconds * slowness => {}
            Some(seconds) => late.push(format!(
                "home after {seconds:.1} s{slow}, promised are {:.0}",
                self.seconds
            )),
            None => late.push(format!(
                "{:.1} % of the hot pages on DRAM after {} quiet s{slow}, promised are {:.0} % after {:.0}",
                figures.hot_share * 100.0,
                MEMTIDE_LIMIT.as_secs(),
                GOAL * 100.0,
                self.seconds
            )),
        }
        if let (Some(own), Some(promised)) = (figures.own_cpu_seconds, self.own_cpu_seconds)
            && own > promised * slowness
        {
            late.push(format!(
                "memtide used {own:.2} s of CPU{slow}, promised are {promised:.0}"
            ));
        }
        late
    }

    /// What is not kept and has nothing to do with time.
    fn broken(&self, figures: &Figures) -> Vec<String> {
        let percent = |share: f64| share * 100.0;
        let mut broken = Vec::new();
        for (share, what) in [
            (figures.cold_share, "cold pages came along"),
            (figures.hot_lost, "hot pages left again"),
        ] {
            if share > self.astray {
                broken.push(format!(
                    "{:.1} % of the {what}, allowed are {:.0} %",
                    percent(share),
                    percent(self.astray)
                ));
            }
        }
        // Slow is late; blind is broken, where there was the time to see.
        let quiet = LONGEST.as_secs_f64() / figures.slowness.max(1.0);
        let blind = figures.seconds.is_none() && figures.hot_share < NOTHING;
        if blind && quiet >= MEMTIDE_LIMIT.as_secs_f64() {
            broken.push("nothing came home".to_owned());
        }
        // All nodes of an emulated machine are alike, whatever a canary reads.
        if figures.last_lines.iter().any(|line| line.contains(NOT_UP)) {
            broken.push("fast memory was taken for slower than slow memory".to_owned());
        }
        if figures.least_room < self.least_room {
            broken.push(format!(
                "{} pages below the low watermark",
                -figures.least_room
            ));
        }
        broken
    }
}

/// Of the hot pages: fewer are nothing.
const NOTHING: f64 = 0.01;
/// What memtide says when readings of its canaries stop promotion.
const NOT_UP: &str = "no page goes up from there";

/// MiB that the filler leaves on an over-committed node. The kernel calls a node of the guests full
/// at 27, so about half of the 32 MiB hot set finds room without demotion.
const OVERCOMMIT_FREE: &str = "44";

/// A load.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// A victim with these words and this number of processes.
    Plain(&'static str, usize),
    /// The same, on a DRAM node filled with pages that nobody uses.
    Overcommit(&'static str),
    /// The hot set changes after it came home, and comes home again: the second time is measured.
    Change(&'static str),
    /// Watched for 25 s, while every page is touched once in 20 s.
    TouchAll,
    /// redis-server with [`HOT_KEYS`] of its ten thousand values in use.
    Redis,
}

/// Four busy threads on the host's few processors would measure the host, so they are half busy.
const CASES: [(&str, Load); 12] = [
    ("contiguous", Load::Plain("", 1)),
    ("scattered", Load::Plain("--scattered", 1)),
    ("file", Load::Plain("--map-file /mnt/victim", 1)),
    ("shared", Load::Plain("--shared", 1)),
    ("huge", Load::Plain("--huge", 1)),
    (
        "four-threads",
        Load::Plain("--scattered --threads 4 --busy 50", 1),
    ),
    ("four-processes", Load::Plain(FOUR_PROCESSES, 4)),
    ("hot-set-changes", Load::Change("--scattered")),
    ("touched-once-in-20-s", Load::TouchAll),
    ("redis", Load::Redis),
    ("overcommit-contiguous", Load::Overcommit("")),
    ("overcommit-scattered", Load::Overcommit("--scattered")),
];

const FOUR_PROCESSES: &str = "--scattered --processes 4 --size 64 --hot 8 --busy 50";

pub(super) fn tests() -> Vec<Test> {
    let mechanisms = [
        (BootClass::KernelTiering, Mechanism::Kernel),
        (BootClass::Quiet, Mechanism::Memtide(&[])),
    ];
    mechanisms
        .into_iter()
        .flat_map(|(class, mechanism)| {
            CASES.into_iter().map(move |(case, load)| Test {
                name: format!("tiering/{case}/{}", mechanism.name()),
                topology: if matches!(load, Load::Overcommit(_)) {
                    "small-dram"
                } else {
                    "cxl"
                },
                class,
                needs: Needs {
                    disk: case == "file",
                    redis: matches!(load, Load::Redis),
                    ..Needs::default()
                },
                // Measured and not judged: a table's other columns.
                on_request: matches!(mechanism, Mechanism::Kernel),
                run: Box::new(move |context| run(context, case, load, mechanism)),
            })
        })
        .collect()
}

fn run(context: &mut Context, case: &str, load: Load, mechanism: Mechanism) -> Result<Verdict> {
    if let Some(reason) = mechanism.missing() {
        return Ok(Verdict::Skipped(reason));
    }
    let figures = measure(context, load, mechanism)?;
    let mut cells = vec![
        ("case".to_owned(), case.to_owned()),
        ("mechanism".to_owned(), mechanism.name().to_owned()),
    ];
    cells.extend(figures.cells());
    context.row(TABLE, cells)?;
    let verdict = judge(&figures, load, mechanism);
    if !matches!(verdict, Ok(Verdict::Passed)) {
        for line in figures.last_lines.iter().rev().take(LAST_LINES).rev() {
            context.note(line.clone())?;
        }
    }
    verdict
}

/// What is late as well as otherwise broken fails for good, with all reasons.
fn judge(figures: &Figures, load: Load, mechanism: Mechanism) -> Result<Verdict> {
    if !matches!(mechanism, Mechanism::Memtide(_)) {
        return Ok(Verdict::Passed);
    }
    let promise = Promise::of(load);
    let (mut late, broken) = (promise.late(figures), promise.broken(figures));
    if broken.is_empty() {
        in_time(late.is_empty(), || late.join("; ")).map(|()| Verdict::Passed)
    } else {
        late.extend(broken);
        Ok(Verdict::Failed(late.join("; ")))
    }
}

fn limit(mechanism: Mechanism) -> Duration {
    match mechanism {
        Mechanism::Kernel | Mechanism::DamonRegions => KERNEL_LIMIT,
        Mechanism::Memtide(_) => MEMTIDE_LIMIT,
    }
}

fn measure(context: &mut Context, load: Load, mechanism: Mechanism) -> Result<Figures> {
    let dram = context.dram.clone();
    let slow = slow_node(&dram);
    let watch = |known: &[KnownPages], running: &mut Running, at_least: Duration| {
        watch(
            known,
            &dram,
            running,
            at_least,
            limit(mechanism).max(at_least),
        )
    };
    let start = |words: &str, processes| {
        let victim = Victim::start(&format!("--node {slow} {words}"), processes)?;
        let running = mechanism.start(&victim.pids())?;
        anyhow::Ok((victim, running))
    };
    let figures = match load {
        Load::Plain(words, processes) => {
            let (victim, mut running) = start(words, processes)?;
            let mut figures = watch(&victim.known_pages(), &mut running, Duration::ZERO)?;
            figures.last_lines = running.stop()?;
            figures
        }
        Load::Overcommit(words) => {
            let filler = |node| format!("--node {node} --leave-free {OVERCOMMIT_FREE}");
            let fillers: Vec<Victim> = dram
                .iter()
                .map(|node| Victim::start(&filler(node), 1))
                .collect::<Result<_>>()?;
            // memtide manages those whose pages may have to leave as well.
            let victim = Victim::start(&format!("--node {slow} {words}"), 1)?;
            let mut pids = victim.pids();
            pids.extend(fillers.iter().flat_map(Victim::pids));
            let mut running = mechanism.start(&pids)?;
            let mut figures = watch(&victim.known_pages(), &mut running, Duration::ZERO)?;
            figures.last_lines = running.stop()?;
            drop(fillers);
            figures
        }
        Load::Change(words) => {
            let (mut victim, mut running) = start(words, 1)?;
            let first = watch(&victim.known_pages(), &mut running, Duration::ZERO)?;
            let seconds = first
                .seconds
                .map_or("never".to_owned(), |s| format!("{s:.1} s"));
            context.note(format!("first hot set home: {seconds}"))?;
            let before = running.own_cpu_seconds();
            victim.change_hot_set()?;
            // What was hot is cold now and on DRAM already: only new arrivals count as moved, and
            // only what the second home-coming cost.
            let mut figures = watch(&victim.known_pages(), &mut running, Duration::ZERO)?;
            figures.own_cpu_seconds = figures
                .own_cpu_seconds
                .zip(before)
                .map(|(now, before)| now - before);
            figures.last_lines = running.stop()?;
            figures
        }
        Load::TouchAll => {
            let (victim, mut running) = start("--scattered --touch-all-every 20", 1)?;
            let whole_round = Duration::from_secs(25);
            let mut figures = watch(&victim.known_pages(), &mut running, whole_round)?;
            figures.last_lines = running.stop()?;
            figures
        }
        Load::Redis => {
            let server = Redis::start(200)?;
            // So few that each is asked for some ten times a second: emulation is slow.
            let hot_keys = server.draw_keys(HOT_KEYS, 3);
            let known = [server.settle_on(slow, &hot_keys)?];
            let before = census_hot(&known, &[slow])?;
            context.note(format!(
                "{} of {} hot pages on the slow node",
                before.there, before.asked
            ))?;
            let requests = server.load(hot_keys, 4)?;
            let mut running = mechanism.start(&[server.pid()])?;
            let mut figures = watch(&known, &mut running, Duration::ZERO)?;
            figures.last_lines = running.stop()?;
            context.note(format!("{} requests answered", requests.finish()?))?;
            figures
        }
    };
    Ok(figures)
}

/// The last node without CPUs: topologies put the slow one behind the fast ones.
fn slow_node(dram: &[u32]) -> u32 {
    dram.iter().max().map_or(1, |last| last + 1)
}

#[cfg(test)]
mod promises {
    use super::*;
    use crate::guest::late::is_late;

    fn figures() -> Figures {
        Figures {
            seconds: Some(2.0),
            hot_share: 1.0,
            own_cpu_seconds: Some(0.5),
            slowness: 1.0,
            ..Figures::default()
        }
    }

    fn verdict(figures: &Figures, load: Load) -> Result<Verdict> {
        judge(figures, load, Mechanism::Memtide(&[]))
    }

    const PLAIN: Load = Load::Plain("", 1);

    #[test]
    fn the_kernel_is_measured_and_memtide_is_judged() {
        let never = Figures {
            seconds: None,
            hot_share: 0.5,
            ..figures()
        };
        let kernel = judge(&never, PLAIN, Mechanism::Kernel).unwrap();
        assert_eq!(kernel, Verdict::Passed);
        assert_eq!(verdict(&figures(), PLAIN).unwrap(), Verdict::Passed);
        let words = "50.0 % of the hot pages on DRAM after 12 quiet s, promised are 99 % after 4";
        let late = verdict(&never, PLAIN).unwrap_err();
        assert!(is_late(&late));
        assert_eq!(late.to_string(), words);
    }

    #[test]
    fn slow_is_late_and_blind_is_broken() {
        let never = |hot_share, slowness| {
            let figures = Figures {
                seconds: None,
                hot_share,
                slowness,
                ..figures()
            };
            verdict(&figures, PLAIN)
        };
        assert!(is_late(&never(0.02, 4.0).unwrap_err()));
        // Twelve quiet seconds would be longer than anything is watched.
        assert!(is_late(&never(0.0, 30.0).unwrap_err()));
        let Verdict::Failed(words) = never(0.0, 4.0).unwrap() else {
            panic!("nothing came home");
        };
        assert!(words.ends_with("; nothing came home"), "{words}");
    }

    #[test]
    fn every_broken_promise_is_named_and_there_is_no_second_try() {
        let slow = Figures {
            seconds: Some(6.0),
            cold_share: 0.2,
            hot_lost: 0.02,
            own_cpu_seconds: Some(1.5),
            least_room: -3,
            ..figures()
        };
        let words = "home after 6.0 s, promised are 4; \
            memtide used 1.50 s of CPU, promised are 1; \
            20.0 % of the cold pages came along, allowed are 1 %; \
            2.0 % of the hot pages left again, allowed are 1 %; \
            3 pages below the low watermark";
        let plain = verdict(&slow, PLAIN).unwrap();
        assert_eq!(plain, Verdict::Failed(words.to_owned()));
        let overcommit = verdict(&slow, Load::Overcommit("")).unwrap();
        assert!(matches!(overcommit, Verdict::Failed(words) if words.starts_with("20.0 %")));
    }

    /// Twice as slow: 8 s and 2 s of CPU are as promised, and a tenth more is not. Pages have no excuse.
    #[test]
    fn times_are_those_of_a_quiet_machine() {
        let twice = |seconds, own, cold_share| {
            let figures = Figures {
                seconds: Some(seconds),
                own_cpu_seconds: Some(own),
                cold_share,
                slowness: 2.0,
                ..figures()
            };
            verdict(&figures, PLAIN)
        };
        assert_eq!(twice(8.0, 2.0, 0.0).unwrap(), Verdict::Passed);
        assert!(is_late(&twice(8.8, 2.0, 0.0).unwrap_err()));
        assert!(is_late(&twice(8.0, 2.2, 0.0).unwrap_err()));
        assert!(matches!(twice(8.0, 2.0, 0.02).unwrap(), Verdict::Failed(_)));
    }
}
