//! Two sets of threads, each with its memory on the other's node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{
    PATIENCE, PROMISED, TABLE, are_home, balance, cells, end, number, sets, shares, summary,
    until_home,
};
use crate::guest::late::in_time;
use crate::guest::memtide::Memtide;
use crate::guest::pace::Stretch;
use crate::guest::procfs::{cpu_time, vmstat};
use crate::guest::subject::census_hot;
use crate::guest::sys::PAGE_SIZE;
use crate::guest::tests::Context;

/// Two threads and 16 MiB on each side.
const SWAPPED: &str = "--set 0:1 --set 1:0";
/// How long the kernel is watched.
const KERNEL_LIMIT: Duration = Duration::from_secs(40);
/// How long a dry run plans, in quiet time.
const PLANNING: Duration = Duration::from_secs(4);

/// Who balances.
enum Who {
    Kernel,
    Memtide(&'static [&'static str]),
}

pub(super) fn kernel(context: &mut Context) -> Result<()> {
    measure(context, "kernel", &Who::Kernel)
}

pub(super) fn memtide(context: &mut Context) -> Result<()> {
    measure(
        context,
        "memtide, write faults",
        &Who::Memtide(&["--source", "writes"]),
    )
}

pub(super) fn hint_faults(context: &mut Context) -> Result<()> {
    measure(
        context,
        "both, hint faults",
        &Who::Memtide(&["--source", "auto"]),
    )
}

fn measure(context: &mut Context, who: &str, mechanism: &Who) -> Result<()> {
    let victim = sets(SWAPPED)?;
    let (known, nodes) = (victim.known_pages(), [0, 1]);
    let pid = victim.truth().pid;
    let system = |pid| cpu_time(pid).map_or(0.0, |time| time.system);
    let (before, counters) = (system(pid), vmstat()?);
    let mut figures: Vec<(&str, String)> = Vec::new();
    let (seconds, least) = match mechanism {
        Who::Kernel => until_home(&known, &nodes, KERNEL_LIMIT, || Ok(()))?,
        Who::Memtide(words) => {
            let mut memtide = Memtide::spawn(balance(words, &victim))?;
            let found = until_home(&known, &nodes, PROMISED, || memtide.check())?;
            // A while longer: what is home stays home, and little is done for that.
            std::thread::sleep(Duration::from_secs(2));
            let lines = end(memtide)?;
            let summary = summary(&lines)?;
            let local = number(summary, "local_samples")? * 100;
            let samples = number(summary, "samples")?;
            figures.extend([
                ("accesses", samples.to_string()),
                (
                    "local %",
                    local.checked_div(samples).unwrap_or(0).to_string(),
                ),
                ("moved", number(summary, "moved_pages")?.to_string()),
                ("own CPU s", summary["cpu_s"].to_string()),
                ("own CPU %", summary["cpu_percent"].to_string()),
                ("ns a moved page", summary["ns_per_moved_page"].to_string()),
            ]);
            found
        }
    };
    let counted = |name: &str| -> Result<u64> {
        let (now, before) = (vmstat()?, &counters);
        Ok(now.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0))
    };
    let mut row = vec![
        (
            "s to 95 %",
            seconds.map_or(format!("never ({:.0} %)", least * 100.0), |s| {
                format!("{s:.1}")
            }),
        ),
        ("program's system s", format!("{:.2}", system(pid) - before)),
        ("numa_hint_faults", counted("numa_hint_faults")?.to_string()),
        (
            "numa_pages_migrated",
            counted("numa_pages_migrated")?.to_string(),
        ),
        (
            "pgmigrate_success",
            counted("pgmigrate_success")?.to_string(),
        ),
    ];
    row.extend(figures);
    context.row(TABLE, cells(who, &row))?;
    let stays = shares(&known, &nodes)?.into_iter().fold(1.0, f64::min);
    if let Who::Memtide(_) = mechanism {
        are_home((seconds, least))?;
        ensure!(
            stays >= 0.95,
            "{:.1} % of a set's pages on its node in the end",
            stays * 100.0
        );
    }
    Ok(())
}

/// Write faults see writes: who only reads keeps its pages where they are.
///
/// The kernel takes a page away for the moment in which it protects it. A read that meets that moment
/// faults like a write: its page is used from where the fault came, and moves. So nothing moves but what
/// was seen, and next to nothing is.
pub(super) fn reads_are_not_seen(context: &mut Context) -> Result<()> {
    let victim = sets("--read-only --set 0:1 --set 1:0")?;
    let known = victim.known_pages();
    let words = ["--source", "writes", "--duration", "3s"];
    let ended = Memtide::spawn(balance(&words, &victim))?.wait(PATIENCE)?;
    let lines = super::events(&ended)?;
    let counted = summary(&lines)?;
    let samples = number(counted, "samples")?;
    let from_afar = samples - number(counted, "local_samples")?;
    let mut away = 0;
    for (set, node) in known.iter().zip([1, 0]) {
        let census = census_hot(std::slice::from_ref(set), &[node])?;
        away += census.asked - census.there;
    }
    let pages: usize = known.iter().map(|set| set.hot.len()).sum();
    ensure!(
        away as u64 <= from_afar,
        "{away} pages that are only read moved, and {from_afar} accesses from another node were seen: {counted}"
    );
    ensure!(
        away * 100 <= pages,
        "{away} of {pages} pages that are only read moved: {counted}"
    );
    context.note(format!(
        "{samples} accesses seen, {away} of {pages} pages that are only read moved"
    ))
}

/// Plans all and moves nothing; every run has its reason.
pub(super) fn dry_run(context: &mut Context) -> Result<()> {
    let victim = sets(SWAPPED)?;
    let known = victim.known_pages();
    // What it may cost has a test of its own: here nothing is left out for want of time.
    let words = ["--source", "writes", "--dry-run", "--cpu-limit", "100"];
    let mut memtide = Memtide::spawn(balance(&words, &victim))?;
    let stretch = Stretch::begin();
    while !stretch.is_over(PLANNING) {
        std::thread::sleep(Duration::from_millis(300));
        memtide.check()?;
    }
    let lines = end(memtide)?;
    let there = shares(&known, &[1, 0])?;
    ensure!(there == [1.0, 1.0], "a dry run moved pages: {there:?}");
    let own: BTreeMap<u64, u64> = (known.iter().zip([0, 1]))
        .flat_map(|(set, node)| set.hot.iter().map(move |page| (*page as u64, node)))
        .collect();
    let mut planned = BTreeSet::new();
    for line in lines.iter().filter(|line| line["event"] == "moved") {
        ensure!(line["dry_run"] == true, "it says that it moved: {line}");
        let why = line["why"].as_str().unwrap_or_default();
        ensure!(why.starts_with("used from node "), "no reason: {line}");
        let (first, pages) = (
            number(&line["range"], "address")?,
            number(&line["range"], "pages")?,
        );
        let to = number(line, "to")?;
        for page in (0..pages).map(|page| first + page * PAGE_SIZE as u64) {
            let Some(node) = own.get(&page) else {
                continue;
            };
            ensure!(*node == to, "{page:#x} would go to node {to}: {line}");
            planned.insert(page);
        }
    }
    let planned = planned.len();
    let pages: usize = known.iter().map(|set| set.hot.len()).sum();
    context.note(format!("{planned} pages planned, {pages} belong elsewhere"))?;
    in_time(planned * 100 >= pages * 95, || {
        let slowness = stretch.slowness();
        format!("only {planned} of {pages} pages are planned, slowness {slowness:.1}")
    })
}
