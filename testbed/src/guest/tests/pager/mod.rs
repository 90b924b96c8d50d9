//! `memtide pager` on running kernels: with the batched call and before it, and with its memory spread
//! by weight.
//!
//! The file lies on a disk and every byte that is read is checked. Emulated processors are slow and
//! their interrupts dear: no figure but counts by the page means anything beyond its run.

mod local;

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::run::Weights;
use super::{BootClass, Context, Needs, Test};
use crate::guest::late::in_time;

const TABLE: &str = "pager";
const FILE: &str = "/mnt/weights.bin";
/// MiB of the file, and of the budget.
const MIB: (u32, u32) = (32, 8);
/// Evicted pages by which flushes are judged.
const ENOUGH: f64 = 1000.0;
/// Where eviction makes room for one page after another, shares wander by so many points.
const POINTS: f64 = 3.0;

type Promise = fn(&mut Context) -> Result<()>;

const PROMISES: [(&str, Promise); 4] = [
    ("ways", ways),
    ("weighted/strict", weighted_strict),
    ("weighted/file", weighted_file),
    ("huge-pages", huge_pages),
];

pub(super) fn tests() -> Vec<Test> {
    let test = |(name, promise): (&str, Promise)| Test {
        needs: Needs {
            disk: true,
            ..Needs::default()
        },
        ..Test::promise(format!("pager/{name}"), "cxl", BootClass::Quiet, promise)
    };
    let own = PROMISES.into_iter().map(test);
    own.chain(local::tests()).collect()
}

/// Runs `memtide pager` and returns its document.
fn pager(words: &[&str]) -> Result<Value> {
    let mut command = Command::new("memtide");
    command.arg("pager").args(words).arg("--json");
    let output = command.stdin(Stdio::null()).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{words:?}: {errors}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The comparison of all ways to read the file, every byte of it right.
fn compared(words: &[&str]) -> Result<Value> {
    compared_of(FILE, MIB, &[&["--duration", "2s"], words].concat())
}

/// The same of another file, whose size and budget are so many MiB.
fn compared_of(file: &str, (size, budget): (u32, u32), words: &[&str]) -> Result<Value> {
    let (size, budget) = (format!("{size}MiB"), format!("{budget}MiB"));
    if !std::path::Path::new(file).exists() {
        pager(&["--make", file, "--size", &size])?;
    }
    let mut all = vec![file, "--budget", &budget];
    all.extend(words);
    let report = pager(&all)?;
    for way in report["ways"].as_array().context("no ways")? {
        ensure!(way["checked"] == true && way["wrong_pages"] == 0, "{way}");
        ensure!(way["reads"].as_u64() > Some(0), "{way}");
    }
    Ok(report)
}

fn way<'a>(report: &'a Value, name: &str) -> Result<&'a Value> {
    let ways = report["ways"].as_array().context("no ways")?;
    let found = ways.iter().find(|way| way["way"] == name);
    found.with_context(|| format!("no way {name}: {report}"))
}

/// The pager says how it unmaps here, and flushes less than page by page.
///
/// Page by page is a flush a page. Whom a flush interrupts depends on who runs just then: beside other
/// work the two readers have the processors one after the other, and even page by page interrupts
/// nobody three times of four. So calls and interrupts are each judged by a flush a page, which here
/// interrupts one processor at most, and not one way's interrupts by another's.
fn ways(context: &mut Context) -> Result<()> {
    let report = compared(&[])?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let release = release.trim();
    for name in ["kernel", "eager", "lazy"] {
        let Ok(way) = way(&report, name) else {
            context.note(format!("no {name}: {}", report["no_limit"]))?;
            continue;
        };
        let cell = |key: &str, digits: usize| {
            let value = way[key].as_f64().unwrap_or(f64::NAN);
            (key.to_owned(), format!("{value:.digits$}"))
        };
        let cells = vec![
            ("way".to_owned(), name.to_owned()),
            cell("reads_per_s", 0),
            cell("shootdowns_per_evicted_page", 4),
        ];
        context.row(TABLE, cells)?;
    }
    let unmap = way(&report, "lazy")?["unmap"].as_str().unwrap_or_default();
    context.note(format!("{release}: unmapped by {unmap}"))?;
    let batched = !release.starts_with("6.12");
    ensure!(
        unmap.starts_with("process_madvise") == batched,
        "{release}: {unmap}"
    );
    let count = |name: &str, key: &str| -> Result<f64> {
        let way = way(&report, name)?;
        let counted = way[key].as_f64().or(way["pager"][key].as_f64());
        counted.with_context(|| format!("no {key}: {way}"))
    };
    // Without the batched call neighbours are unmapped along, and come back.
    let promised = if batched { 0.05 } else { 0.2 };
    let (unmapped, evicted) = (
        count("lazy", "zapped_pages")?,
        count("lazy", "evicted_pages")?,
    );
    let flushes = count("lazy", "flush_calls")? / unmapped;
    let interrupts = count("lazy", "shootdowns")? / evicted;
    context.note(format!(
        "{flushes:.4} flushes and {interrupts:.4} interrupts a page"
    ))?;
    let pages = evicted.min(unmapped);
    in_time(pages >= ENOUGH, || format!("{pages} pages evicted"))?;
    ensure!(
        flushes <= promised,
        "{flushes} flushes a page, {promised} promised"
    );
    // Interrupts are the whole machine's.
    in_time(interrupts <= promised, || {
        format!("{interrupts} interrupts a page, {promised} promised")
    })
}

/// Three of four pages on node 0, whoever evicts.
fn is_spread(context: &mut Context, report: &Value) -> Result<()> {
    let lazy = way(report, "lazy")?;
    let nodes = lazy["mapped"].as_array().context("no nodes")?;
    let on = |node: u32| {
        let there = nodes.iter().find(|on| on["node"] == node);
        there.and_then(|on| on["bytes"].as_f64()).unwrap_or(0.0)
    };
    let sum: f64 = nodes.iter().filter_map(|on| on["bytes"].as_f64()).sum();
    let percent = 100.0 * on(0) / sum;
    context.note(format!(
        "3:1 gives {percent:.1} % on node 0, {:.1} % on node 2",
        100.0 * on(2) / sum
    ))?;
    ensure!(
        (percent - 75.0).abs() <= POINTS && on(0) + on(2) == sum,
        "{percent} % on node 0: {lazy}"
    );
    Ok(())
}

const BY_WEIGHT: [&str; 2] = ["--memory-policy", "weighted-interleave:0,2"];

fn weighted_strict(context: &mut Context) -> Result<()> {
    let _weights = Weights::write(&[(0, 3), (2, 1)])?;
    let report = compared(&[&BY_WEIGHT[..], &["--mode", "strict"]].concat())?;
    let peak = way(&report, "lazy")?["peak_resident_bytes"].as_u64();
    let budget = report["budget_bytes"].as_u64();
    ensure!(peak <= budget, "{peak:?} bytes at most, of {budget:?}");
    is_spread(context, &report)
}

fn weighted_file(context: &mut Context) -> Result<()> {
    let _weights = Weights::write(&[(0, 3), (2, 1)])?;
    let report = compared(&BY_WEIGHT)?;
    is_spread(context, &report)
}

/// Where the kernel collects pages of files into huge ones, it does so all the time.
const COLLECTING: [(&str, &str); 4] = [
    ("enabled", "always"),
    ("khugepaged/scan_sleep_millisecs", "0"),
    ("khugepaged/alloc_sleep_millisecs", "0"),
    ("khugepaged/pages_to_scan", "65536"),
];
/// Pages in a huge one.
const HUGE_PAGES: u64 = 512;
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage";
/// The file that it would make huge pages of, and MiB of it and of the budget: a twentieth of the budget is what two
/// readers bring in within a tenth of a second, and not within one turn of the host's scheduler.
const LARGER: (&str, (u32, u32)) = ("/mnt/larger.bin", (64, 32));

/// Settings that are put back.
struct Collecting(Vec<(String, String)>);

impl Collecting {
    fn start() -> Result<Collecting> {
        let mut before = Collecting(Vec::new());
        for (name, text) in COLLECTING {
            let path = format!("{HUGE}/{name}");
            let stood = std::fs::read_to_string(&path).context(path.clone())?;
            let chosen = stood.split(['[', ']']).nth(1).unwrap_or(stood.trim());
            before.0.push((path.clone(), chosen.to_owned()));
            std::fs::write(&path, text).context(path)?;
        }
        Ok(before)
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        for (path, text) in self.0.iter().rev() {
            let _ = std::fs::write(path, text);
        }
    }
}

/// The kernel reads in nothing of the file to make huge pages of what the pager keeps.
fn huge_pages(context: &mut Context) -> Result<()> {
    let _collecting = Collecting::start()?;
    let collapsed = || -> Result<u64> {
        let text = std::fs::read_to_string("/proc/vmstat")?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("thp_collapse_alloc "));
        Ok(line.context("no thp_collapse_alloc")?.parse()?)
    };
    let before = collapsed()?;
    let (file, mib) = LARGER;
    let number = |value: &Value| value.as_u64().context("no number");
    // On a slow machine a few seconds' reads do not fill the budget.
    let mut tried = Ok(Value::Null);
    for duration in ["4s", "20s"] {
        tried = compared_of(file, mib, &["--duration", duration]);
        let Ok(report) = &tried else { break };
        if number(&way(report, "lazy")?["pager"]["evicted_pages"])? as f64 >= ENOUGH {
            break;
        }
    }
    std::fs::remove_file(file)?;
    let report = tried?;
    let lazy = way(&report, "lazy")?;
    let peak = number(&lazy["peak_resident_bytes"])?;
    let budget = number(&report["budget_bytes"])?;
    let filled = number(&lazy["pager"]["filled_pages"])?;
    let read = number(&lazy["refilled_pages"])?;
    let evicted = number(&lazy["pager"]["evicted_pages"])? as f64;
    context.note(format!(
        "{} pages collected; at most {:.1} % of the budget; {filled} pages came, {read} read by the program",
        collapsed()? - before,
        100.0 * peak as f64 / budget as f64,
    ))?;
    // Not as much came unasked as one huge page holds.
    ensure!(
        filled < read + HUGE_PAGES,
        "{filled} pages came, {read} read by the program"
    );
    in_time(evicted >= ENOUGH, || format!("{evicted} pages evicted"))?;
    // Whether the evictor has a processor at the right moment is a matter of time.
    in_time(peak as f64 <= 1.05 * budget as f64, || {
        format!("{peak} bytes at most, of {budget}")
    })
}
