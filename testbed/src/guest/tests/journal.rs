//! A live run that was written down does the same again, byte for byte.
//!
//! The journal is of a real kernel's answers: what came late, what would not move, who ended. That the
//! loop decides by nothing else (no clock, no order of a hash table, no address of its own) is what
//! `--from-journal` proves. It needs no right and no process of the run's.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::{BootClass, Context, Test};
use crate::guest::late::{in_time, within};
use crate::guest::memtide::{Memtide, tier};
use crate::guest::pace::{self, Stretch};
use crate::guest::subject::{KnownPages, Victim, census_hot};

/// How long anything may take, in quiet time.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a run goes on after its pages moved, in quiet time: glances, looks and rests are in the journal,
/// too.
const GOES_ON: Duration = Duration::from_secs(3);
/// Turns of such a run, at least: more than it takes to begin. A turn may take half a second here.
const TURNS: u64 = 5;

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::promise(
            "journal/tier".to_owned(),
            "cxl",
            BootClass::Quiet,
            tier_again,
        ),
        Test::promise(
            "journal/balance".to_owned(),
            "two-socket",
            BootClass::Quiet,
            balance_again,
        ),
    ]
}

/// Tiering with hot pages that come home, and a process that ends on the way.
fn tier_again(context: &mut Context) -> Result<()> {
    let victim = Victim::start("--size 64 --hot 8 --scattered", 1)?;
    let brief = Victim::start("--size 8 --hot 1", 1)?;
    let dram = context.dram.clone();
    let path = "/journal-tier";
    let command = tier(
        &["--json", "--explain", "--journal", path],
        &[victim.truth().pid, brief.truth().pid],
    );
    let known = victim.known_pages();
    written_down(context, command, &known, &dram, brief)?;
    runs_again(context, "tier", path)
}

/// Balancing by write faults: two sets of threads, each with its memory on the other's node.
fn balance_again(context: &mut Context) -> Result<()> {
    let sets = |words: &str| -> Result<Victim> {
        let mut command = Command::new("/init");
        command.arg("sets").args(words.split_whitespace());
        Victim::spawn(command, words.matches("--set").count())
    };
    let victim = sets("--set 0:1 --set 1:0")?;
    let brief = sets("--size 4 --set 0:1")?;
    let path = "/journal-balance";
    let mut command = Command::new("memtide");
    command.args(["balance", "--json", "--source", "writes", "--explain"]);
    command.args(["--journal", path]);
    for of in [&victim, &brief] {
        command.args(["--pid", &of.truth().pid.to_string()]);
    }
    let known = victim.known_pages();
    written_down(context, command, &known[..1], &[0], brief)?;
    runs_again(context, "balance", path)
}

/// Runs `command` until pages of `known` are on `nodes`, then has `brief` end, and a while longer.
fn written_down(
    context: &mut Context,
    command: Command,
    known: &[KnownPages],
    nodes: &[u32],
    brief: Victim,
) -> Result<()> {
    let mut memtide = Memtide::spawn(command)?;
    let stretch = Stretch::begin();
    while census_hot(known, nodes)?.share() < 0.5 {
        within(&stretch, PATIENCE, || {
            "half of the pages did not move".to_owned()
        })?;
        memtide.check()?;
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(brief);
    pace::sleep(GOES_ON);
    let ended = memtide.end(Signal::TERM)?;
    ensure!(
        ended.status.success() && ended.errors.is_empty(),
        "memtide ended with {}: {:?}",
        ended.status,
        ended.errors
    );
    // Who has little processor time looks for processes more rarely.
    let told = ended.lines.iter().any(|line| line.contains("process_gone"));
    in_time(told, || "it does not say that a process ended".to_owned())?;
    context.note(format!("{} lines were told", ended.lines.len()))
}

/// `memtide COMMAND --from-journal PATH` agrees to the end.
fn runs_again(context: &mut Context, command: &str, path: &str) -> Result<()> {
    let bytes = Path::new(path)
        .metadata()
        .with_context(|| path.to_owned())?
        .len();
    let mut again = Command::new("memtide");
    again.args([command, "--from-journal", path]);
    let ended = Memtide::spawn(again)?.wait(PATIENCE)?;
    let said = ended.lines.first().cloned().unwrap_or_default();
    context.note(format!("{bytes} bytes; {said}"))?;
    ensure!(
        ended.status.success() && ended.errors.is_empty(),
        "it does not do the same again, {}: {:?}",
        ended.status,
        ended.errors
    );
    let turns = said.strip_prefix("all ").and_then(|rest| {
        let turns = rest.strip_suffix(" turns agree")?;
        turns.parse::<u64>().ok()
    });
    ensure!(
        turns.is_some_and(|turns| turns >= TURNS),
        "not {TURNS} turns to the end of the run: {said:?}"
    );
    std::fs::remove_file(path).with_context(|| path.to_owned())
}
