//! Hot pages in large slow memory: 64 MiB of 2, 4 and 8 GiB, beside what the kernel and DAMON do.
//!
//! In 256 MiB every page can be looked at once a second; here hot pages have to be searched for. Each
//! case runs four times in one boot: under the kernel's NUMA balancing in tiering mode, under DAMON's
//! scheme that migrates hot regions, and twice under memtide, with the source that it takes by itself
//! and with page-table scans. Both of memtide's are judged by the other two: memtide is no
//! later than either, or, where single pages are scattered, takes at most one and a half times as long
//! as the kernel, which sees every access. What did not come home at all bounds nobody. Beyond that
//! there are seconds for ranges and pieces in 4 and 8 GiB.
//!
//! The kernel's rows come first, with its tiering on from the boot; then it is switched off, once
//! (switching patches the kernel's code; see [`crate::guest::pins`]).
//!
//! These are not part of a run of everything yet: `cargo xtask guest --test large/4g/`.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{BootClass, Context, Needs, Test};
use crate::guest::late::in_time;
use crate::guest::measure::{Figures, GOAL, watch};
use crate::guest::mechanism::{Mechanism, PAGE_TABLE};
use crate::guest::subject::{KnownPages, Victim};
use crate::report::Verdict;

/// The table that these tests fill.
const TABLE: &str = "large";
/// MiB that are hot.
const HOT: usize = 64;
/// How long anybody may take in quiet time; a "never" costs this much.
const LIMIT: Duration = Duration::from_secs(100);
/// So long memtide is watched at least before its row counts as "never".
const MEMTIDE_LIMIT: Duration = Duration::from_secs(30);
/// Of the cold pages one in so many is asked for: asking for all takes seconds.
const COLD_SAMPLE: usize = 16;
/// Share of the cold pages that may come along, and of the hot ones that may leave again.
const ASTRAY: f64 = 0.01;
/// How much longer than the kernel single pages may take.
const SCATTERED_FACTOR: f64 = 1.5;

const TIERING: &str = "/proc/sys/kernel/numa_balancing";
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

/// How much slow memory.
#[derive(Debug, Clone, Copy)]
struct Size {
    name: &'static str,
    topology: &'static str,
    mib: usize,
    /// Quiet seconds that are promised of ranges and pieces.
    seconds: Option<f64>,
}

const SIZES: [Size; 3] = [
    Size {
        name: "2g",
        topology: "large-2g",
        mib: 2 << 10,
        seconds: None,
    },
    Size {
        name: "4g",
        topology: "large-4g",
        mib: 4 << 10,
        seconds: Some(8.0),
    },
    Size {
        name: "8g",
        topology: "large-8g",
        mib: 8 << 10,
        seconds: Some(12.0),
    },
];

/// Name, and the victim's word for it.
const PATTERNS: [(&str, &str); 3] = [
    ("contiguous", ""),
    ("pieces", "--pieces"),
    (SCATTERED, "--scattered"),
];
const SCATTERED: &str = "scattered";

/// Those that memtide is compared with.
const OTHERS: [Mechanism; 2] = [Mechanism::Kernel, Mechanism::DamonRegions];
/// In running order.
const MECHANISMS: [Mechanism; 4] = [
    Mechanism::Kernel,
    Mechanism::DamonRegions,
    Mechanism::Memtide(&[]),
    Mechanism::Memtide(PAGE_TABLE),
];

pub(super) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for size in SIZES {
        for mechanism in MECHANISMS {
            for (pattern, words) in PATTERNS {
                tests.push(Test {
                    name: name(pattern, size, mechanism),
                    topology: size.topology,
                    class: BootClass::KernelTiering,
                    needs: Needs {
                        gigabytes: true,
                        ..Needs::default()
                    },
                    on_request: true,
                    run: Box::new(move |context| run(context, pattern, words, size, mechanism)),
                });
            }
        }
    }
    tests
}

fn name(pattern: &str, size: Size, mechanism: Mechanism) -> String {
    format!("large/{}/{pattern}/{}", size.name, mechanism.name())
}

fn run(
    context: &mut Context,
    pattern: &str,
    words: &str,
    size: Size,
    mechanism: Mechanism,
) -> Result<Verdict> {
    if let Some(reason) = mechanism.missing() {
        return Ok(Verdict::Skipped(reason));
    }
    if !matches!(mechanism, Mechanism::Kernel) {
        switch_tiering_off()?;
    }
    let others = OTHERS.map(|other| context.measured.get(&name(pattern, size, other)).cloned());
    let limit = match mechanism {
        Mechanism::Memtide(_) => longest(&others).max(MEMTIDE_LIMIT),
        _ => LIMIT,
    };
    let figures = measure(context, words, size, mechanism, limit)?;
    let mut cells = vec![
        ("case".to_owned(), format!("{pattern} {}", size.name)),
        ("mechanism".to_owned(), mechanism.name().to_owned()),
    ];
    cells.extend(figures.cells());
    context.row(TABLE, cells)?;
    if !matches!(mechanism, Mechanism::Memtide(_)) {
        context
            .measured
            .insert(name(pattern, size, mechanism), figures);
        return Ok(Verdict::Passed);
    }
    for (other, mechanism) in others.iter().zip(OTHERS) {
        if other.is_none() && mechanism.missing().is_none() {
            let mechanism = mechanism.name();
            context.note(format!(
                "no row of the {mechanism}'s in this boot to judge by"
            ))?;
        }
    }
    judge(&figures, pattern, size, &others)
}

/// No kernel moves pages from now on.
fn switch_tiering_off() -> Result<()> {
    for (path, off) in [(TIERING, "0"), (DEMOTION, "false")] {
        let now = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        if now.trim() != off {
            std::fs::write(path, off).with_context(|| format!("cannot write {off:?} to {path}"))?;
        }
    }
    Ok(())
}

fn measure(
    context: &mut Context,
    words: &str,
    size: Size,
    mechanism: Mechanism,
    limit: Duration,
) -> Result<Figures> {
    let dram = context.dram.clone();
    let words = format!("--node 2 --size {} --hot {HOT} {words}", size.mib);
    let victim = Victim::start(&words, 1)?;
    let sampled = |mut pages: KnownPages| {
        pages.cold = pages.cold.into_iter().step_by(COLD_SAMPLE).collect();
        pages
    };
    let known: Vec<KnownPages> = victim.known_pages().into_iter().map(sampled).collect();
    context.note(format!("{} MiB are placed", size.mib))?;
    let mut running = mechanism.start(&victim.pids())?;
    let mut figures = watch(&known, &dram, &mut running, Duration::ZERO, limit)?;
    figures.last_lines = running.stop()?;
    Ok(figures)
}

/// Quiet seconds of a row that came home.
fn quiet(figures: &Figures) -> Option<f64> {
    figures
        .seconds
        .map(|seconds| seconds / figures.slowness.max(1.0))
}

/// As long as memtide has to be watched to be compared.
fn longest(others: &[Option<Figures>; 2]) -> Duration {
    let seconds = others.iter().flatten().filter_map(quiet);
    Duration::from_secs_f64(seconds.fold(0.0, f64::max) * SCATTERED_FACTOR).min(LIMIT)
}

/// `others` are the kernel's row and DAMON's.
fn judge(
    figures: &Figures,
    pattern: &str,
    size: Size,
    others: &[Option<Figures>; 2],
) -> Result<Verdict> {
    let [kernel, damon] = others.each_ref().map(|row| row.as_ref().and_then(quiet));
    let bounds = match pattern == SCATTERED {
        true => [
            (
                "one and a half times the kernel's",
                kernel.map(|s| s * SCATTERED_FACTOR),
            ),
            ("DAMON's regions'", None),
            ("a quiet machine's", None),
        ],
        false => [
            ("the kernel's", kernel),
            ("DAMON's regions'", damon),
            ("a quiet machine's", size.seconds),
        ],
    };
    let ours = quiet(figures);
    let told = ours.map_or_else(
        || {
            format!(
                "{:.1} % of the hot pages came home",
                figures.hot_share * 100.0
            )
        },
        |ours| format!("home after {ours:.1} quiet s"),
    );
    let mut late = Vec::new();
    for (whose, bound) in bounds {
        if let Some(bound) = bound
            && ours.is_none_or(|ours| ours > bound)
        {
            late.push(format!("{told}, promised are {whose} {bound:.1}"));
        }
    }
    if late.is_empty() && ours.is_none() {
        late.push(format!("{told}, promised are {:.0} %", GOAL * 100.0));
    }
    let astray = [
        (figures.cold_share, "cold pages came along"),
        (figures.hot_lost, "hot pages left again"),
    ];
    let astray = astray.into_iter().filter(|(share, _)| *share > ASTRAY);
    let broken: Vec<String> = astray
        .map(|(share, what)| format!("{:.1} % of the {what}", share * 100.0))
        .collect();
    if broken.is_empty() {
        in_time(late.is_empty(), || late.join("; ")).map(|()| Verdict::Passed)
    } else {
        late.extend(broken);
        Ok(Verdict::Failed(late.join("; ")))
    }
}

#[cfg(test)]
mod promises {
    use super::*;
    use crate::guest::late::is_late;

    fn row(seconds: Option<f64>, slowness: f64) -> Figures {
        Figures {
            seconds,
            slowness,
            ..Figures::default()
        }
    }

    /// What a row breaks, in words; nothing if it is late in nothing.
    fn late(figures: &Figures, pattern: &str, others: [Option<f64>; 2]) -> String {
        let others = others.map(|seconds| Some(row(seconds, 1.0)));
        match judge(figures, pattern, SIZES[1], &others) {
            Ok(verdict) => {
                assert_eq!(verdict, Verdict::Passed);
                String::new()
            }
            Err(error) => {
                assert!(is_late(&error));
                error.to_string()
            }
        }
    }

    #[test]
    fn no_later_than_either_nor_than_promised() {
        let six = row(Some(6.0), 1.0);
        assert_eq!(late(&six, "pieces", [Some(6.0), Some(7.0)]), "");
        let words = "home after 6.0 quiet s, promised are DAMON's regions' 5.5";
        assert_eq!(late(&six, "pieces", [Some(26.0), Some(5.5)]), words);
        let nine = late(&row(Some(9.0), 1.0), "contiguous", [Some(26.0), None]);
        assert_eq!(
            nine,
            "home after 9.0 quiet s, promised are a quiet machine's 8.0"
        );
        // The same on a machine that is twice as slow, and was not when the kernel's row was made.
        assert_eq!(late(&row(Some(12.0), 2.0), "pieces", [Some(6.0), None]), "");
    }

    #[test]
    fn scattered_pages_may_take_half_as_long_again_as_the_kernel() {
        let both = [Some(20.0), Some(1.0)];
        assert_eq!(late(&row(Some(30.0), 1.0), SCATTERED, both), "");
        assert_ne!(late(&row(Some(30.1), 1.0), SCATTERED, both), "");
    }

    #[test]
    fn who_never_comes_home_is_late_whatever_the_others_do() {
        let never = row(None, 1.0);
        assert_ne!(late(&never, SCATTERED, [None, None]), "");
        assert_ne!(late(&never, "pieces", [Some(26.0), None]), "");
    }

    #[test]
    fn cold_pages_that_came_along_have_no_second_try() {
        let dragged = Figures {
            cold_share: 0.5,
            ..row(Some(1.0), 1.0)
        };
        let verdict = judge(&dragged, "pieces", SIZES[1], &[None, None]).unwrap();
        assert!(matches!(verdict, Verdict::Failed(why) if why.contains("50.0 %")));
    }
}
