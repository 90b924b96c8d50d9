//! `memtide balance`: pages come to the threads that use them, and nothing else happens.
//!
//! The subject is [`crate::guest::sets`]: sets of threads with their memory on the wrong node. The
//! promise is 95 % of each set's pages on its own node within a minute; the kernel's own balancing is
//! measured by the same code, in a boot of the same guest in which it is on from the start (switching
//! it while the machine runs patches the kernel's code; see [`crate::guest::pins`]).
//!
//! A guest has no hardware that samples. With the kernel's balancing off the source is write faults,
//! with it on hint faults; what hardware samples decode to is tested elsewhere.

mod bound;
mod endings;
mod limit;
pub(super) mod tasks;
mod two_sets;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::{BootClass, Context, Needs, Test};
use crate::guest::late::in_time;
use crate::guest::memtide::{Ended, Memtide};
use crate::guest::pace::Stretch;
use crate::guest::subject::{KnownPages, Victim, census_hot};
use crate::report::Verdict;

/// The share of each set's pages that has to be on its node.
const GOAL: f64 = 0.95;
/// Within so long, in quiet time as all limits here.
pub(super) const PROMISED: Duration = Duration::from_secs(60);
/// How long anything else may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// The table that these tests fill.
const TABLE: &str = "balance";

/// A promise: an error says how it was broken.
type Promise = fn(&mut Context) -> Result<()>;
/// One that cannot be put to the test every time.
type Occasion = fn(&mut Context) -> Result<Verdict>;

const TASKS: [(&str, Occasion); 2] = [
    ("tasks", tasks::set_and_put_back),
    ("tasks/killed", tasks::killed),
];

const QUIET: [(&str, &str, Promise); 9] = [
    ("two-sets/memtide", "two-socket", two_sets::memtide),
    ("read-only", "two-socket", two_sets::reads_are_not_seen),
    ("idle", "two-socket", endings::idle),
    ("cpu-limit", "two-socket", limit::cpu_limit),
    ("dry-run", "two-socket", two_sets::dry_run),
    ("process-ends", "two-socket", endings::process_ends),
    ("churn", "two-socket", endings::churn),
    ("refusals", "two-socket", endings::refusals),
    // Last: it leaves the machine with a CPU that was away.
    ("cpu-offline", "two-socket", endings::cpu_offline),
];

const BALANCING: [(&str, &str, Promise); 2] = [
    ("two-sets/kernel", "two-socket", two_sets::kernel),
    ("two-sets/hint-faults", "two-socket", two_sets::hint_faults),
];

const FOUR: [(&str, &str, Promise); 1] = [("bound", "four-socket", bound::stays_within)];

pub(super) fn tests() -> Vec<Test> {
    let test = |class: BootClass, (name, topology, promise): (&str, &'static str, Promise)| {
        Test::promise(format!("balance/{name}"), topology, class, promise)
    };
    let quiet = QUIET.map(|row| test(BootClass::Quiet, row));
    let balancing = BALANCING.map(|row| test(BootClass::KernelBalancing, row));
    let four = FOUR.map(|row| test(BootClass::Quiet, row));
    let tasks = TASKS.map(|(name, occasion)| Test {
        name: format!("balance/{name}"),
        topology: "two-socket",
        class: BootClass::Quiet,
        needs: Needs::default(),
        on_request: false,
        run: Box::new(occasion),
    });
    let all = tasks.into_iter().chain(quiet);
    all.chain(balancing).chain(four).collect()
}

/// `guest sets` with these words, ready.
pub(super) fn sets(words: &str) -> Result<Victim> {
    let mut command = Command::new("/init");
    command.arg("sets").args(words.split_whitespace());
    Victim::spawn(command, words.matches("--set").count())
}

/// `memtide balance --json` with these words for the process of `victim`.
fn balance(words: &[&str], victim: &Victim) -> Command {
    let mut command = Command::new("memtide");
    command.arg("balance").arg("--json").args(words);
    command.args(["--pid", &victim.truth().pid.to_string()]);
    command
}

/// The share of each set's pages on its node.
pub(super) fn shares(known: &[KnownPages], nodes: &[u32]) -> Result<Vec<f64>> {
    let share = |(pages, node): (&KnownPages, &u32)| {
        Ok(census_hot(std::slice::from_ref(pages), &[*node])?.share())
    };
    known.iter().zip(nodes).map(share).collect()
}

/// Waits until each set has [`GOAL`] of its pages on its node: the seconds it took, none if it took
/// longer than `limit`; and the least share of any set in the end.
pub(super) fn until_home(
    known: &[KnownPages],
    nodes: &[u32],
    limit: Duration,
    mut check: impl FnMut() -> Result<()>,
) -> Result<(Option<f64>, f64)> {
    let stretch = Stretch::begin();
    loop {
        let least = shares(known, nodes)?.into_iter().fold(1.0, f64::min);
        if least >= GOAL {
            return Ok((Some(stretch.elapsed().as_secs_f64()), least));
        }
        if stretch.is_over(limit) {
            return Ok((None, least));
        }
        check()?;
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// That [`until_home`] found them home.
pub(super) fn are_home((seconds, least): (Option<f64>, f64)) -> Result<()> {
    in_time(seconds.is_some(), || {
        format!(
            "{:.1} % of a set's pages on its node after {} quiet s",
            least * 100.0,
            PROMISED.as_secs()
        )
    })
}

/// Ends it as a person would; its lines.
fn end(memtide: Memtide) -> Result<Vec<Value>> {
    events(&memtide.end(Signal::TERM)?)
}

/// The lines of an end without complaint.
fn events(ended: &Ended) -> Result<Vec<Value>> {
    ensure!(
        ended.status.success() && ended.errors.is_empty(),
        "memtide ended with {}: {:?}",
        ended.status,
        ended.errors
    );
    let parse =
        |line: &String| serde_json::from_str(line).with_context(|| format!("no line: {line}"));
    ended.lines.iter().map(parse).collect()
}

/// The last line, which is the summary.
fn summary(lines: &[Value]) -> Result<&Value> {
    match lines.last() {
        Some(line) if line["event"] == "summary" => Ok(line),
        other => bail!("the last line is no summary: {other:?}"),
    }
}

/// A number of a line.
pub(super) fn number(line: &Value, key: &str) -> Result<u64> {
    line[key]
        .as_u64()
        .with_context(|| format!("no number {key} in {line}"))
}

/// A row of the table of these tests.
fn cells(case: &str, figures: &[(&str, String)]) -> Vec<(String, String)> {
    let case = ("case".to_owned(), case.to_owned());
    let figures = figures
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    std::iter::once(case).chain(figures).collect()
}
