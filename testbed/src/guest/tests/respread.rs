//! `memtide rebalance`: pages that are there go where the weights say, by the kernel's numa_maps.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::run::{Weights, belongs, table};
use super::{BootClass, Context, Test};
use crate::guest::late::within;
use crate::guest::pace::Stretch;
use crate::guest::procfs::{anon_huge_kib, numa_line};
use crate::guest::subject::Victim;

/// The user without any rights.
const NOBODY: u32 = 65534;

type Promise = fn(&mut Context) -> Result<()>;

const PROMISES: [(&str, Promise); 10] = [
    ("shares", shares),
    ("as-the-kernel", as_the_kernel),
    ("bound", bound),
    ("cpuset", cpuset),
    ("huge", huge),
    ("shared", shared),
    ("process-ends", process_ends),
    ("interrupted", interrupted),
    ("own", own),
    ("refusals", refusals),
];

pub(super) fn tests() -> Vec<Test> {
    let test = |topology, name: &str, promise: Promise| {
        Test::promise(
            format!("respread/{name}"),
            topology,
            BootClass::Quiet,
            promise,
        )
    };
    let on_cxl = PROMISES.map(|(name, promise)| test("cxl", name, promise));
    let on_small = test("small-dram", "full", full);
    on_cxl.into_iter().chain([on_small]).collect()
}

/// What `--json` prints, as far as tests look at it.
#[derive(Debug, Deserialize)]
struct Report {
    end: String,
    reached: bool,
    spread_pages: u64,
    left_pages: u64,
    moved: u64,
    stayed: Stayed,
    mappings: Vec<Mapping>,
}

#[derive(Debug, Deserialize)]
struct Stayed {
    shared: u64,
    no_memory: u64,
}

#[derive(Debug, Deserialize)]
struct Mapping {
    address: usize,
    before: Vec<(u32, u64)>,
    after: Option<Vec<(u32, u64)>>,
    moved: u64,
    left: Option<String>,
}

fn rebalance(pid: u32, words: &[&str]) -> Command {
    let mut command = Command::new("memtide");
    command.args(["rebalance", "--json", "--pid", &pid.to_string()]);
    command.args(words).stdin(Stdio::null());
    command
}

fn report(output: &Output) -> Result<Report> {
    serde_json::from_slice(&output.stdout).with_context(|| format!("no report: {output:?}"))
}

/// Runs it to a good end.
fn succeeds(pid: u32, words: &[&str]) -> Result<Report> {
    let output = rebalance(pid, words).output()?;
    ensure!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    report(&output)
}

fn of_victim<'a>(report: &'a Report, victim: &Victim) -> Result<&'a Mapping> {
    let start = victim.truth().start;
    let mapping = report
        .mappings
        .iter()
        .find(|mapping| mapping.address == start);
    mapping.context("the report lacks the victim's memory")
}

fn on(victim: &Victim, nodes: &[u32]) -> Result<Vec<u64>> {
    let line = numa_line(victim.truth().pid, victim.truth().start)?;
    Ok(nodes.iter().map(|node| line.on(*node)).collect())
}

/// 256 MiB from one node to 9:1: a dry run says so and moves nothing, then it is so, and then there
/// is nothing left to do.
fn shares(context: &mut Context) -> Result<()> {
    let words = ["--weights", "0=9,2=1"];
    let victim = Victim::start("--size 256 --hot 16 --node 0", 1)?;
    let (pid, pages) = (victim.truth().pid, victim.truth().pages as u64);
    let wanted = belongs(victim.truth().start, pages, &[(0, 9), (2, 1)]);
    let planned = succeeds(pid, &[&words[..], &["--dry-run"]].concat())?;
    ensure!(
        on(&victim, &[0, 2])? == [pages, 0],
        "a dry run moved something"
    );
    let mapping = of_victim(&planned, &victim)?;
    ensure!(mapping.moved == wanted[1], "{mapping:?}");
    ensure!(
        mapping.after == Some(vec![(0, wanted[0]), (2, wanted[1])]),
        "{mapping:?}"
    );
    let began = Instant::now();
    let done = succeeds(pid, &words)?;
    let seconds = began.elapsed().as_secs_f64();
    let line = numa_line(pid, victim.truth().start)?;
    let row = [
        ("case", "256 MiB to 9:1".to_owned()),
        (
            "pages on 0 and 2",
            format!("{} and {}", line.on(0), line.on(2)),
        ),
        (
            "off by",
            format!("{:.2} %", 100.0 * (line.share(2) - 0.1).abs()),
        ),
        ("moved", done.moved.to_string()),
        ("s", format!("{seconds:.1}")),
    ];
    context.row(
        "respread",
        row.map(|(name, value)| (name.to_owned(), value)).to_vec(),
    )?;
    ensure!(done.reached && done.end == "done", "{done:?}");
    ensure!(
        (line.share(2) - 0.1).abs() < 0.01 && (line.share(0) - 0.9).abs() < 0.01,
        "{line:?}"
    );
    // Pages in use may be busy at the wrong moment, but hardly any stay so.
    ensure!(
        line.on(2).abs_diff(wanted[1]) <= pages / 1000,
        "{line:?} instead of {wanted:?}"
    );
    let mapping = of_victim(&done, &victim)?;
    ensure!(mapping.before == [(0, pages)], "{mapping:?}");
    let after = mapping.after.clone().unwrap_or_default();
    ensure!(
        after == [(0, line.on(0)), (2, line.on(2))],
        "{after:?} is not {line:?}"
    );
    let again = succeeds(pid, &words)?;
    ensure!(
        again.moved <= pages / 1000,
        "{} pages moved again",
        again.moved
    );
    Ok(())
}

/// Pages that the kernel has placed by the same weights are where they belong already, whatever
/// numbers of that proportion were given.
fn as_the_kernel(_: &mut Context) -> Result<()> {
    let _weights = Weights::write(&[(0, 10), (2, 4)])?;
    let mut command = Command::new("memtide");
    command.args([
        "run",
        "-w",
        "0,2",
        "/init",
        "victim",
        "--anywhere",
        "--size",
        "32",
        "--hot",
        "0",
    ]);
    let victim = Victim::spawn(command, 1)?;
    let report = succeeds(victim.truth().pid, &["--weights", "0=5,2=2"])?;
    let mapping = of_victim(&report, &victim)?;
    ensure!(mapping.moved == 0 && mapping.left.is_none(), "{mapping:?}");
    Ok(())
}

/// A mapping that is bound elsewhere stays, and the report says why.
fn bound(context: &mut Context) -> Result<()> {
    let victim = Victim::start("--size 32 --hot 4 --node 2 --keep-policy", 1)?;
    let pages = victim.truth().pages as u64;
    let report = succeeds(victim.truth().pid, &["--weights", "0=9,2=1"])?;
    ensure!(on(&victim, &[0, 2])? == [0, pages], "bound pages moved");
    let left = of_victim(&report, &victim)?
        .left
        .clone()
        .unwrap_or_default();
    context.note(left.clone())?;
    ensure!(
        left.contains("bind:2 leaves out node 0") && report.left_pages >= pages,
        "{report:?}"
    );
    // A policy of the whole process forbids it all.
    let mut command = Command::new("memtide");
    command.args([
        "run",
        "-m",
        "1",
        "/init",
        "victim",
        "--anywhere",
        "--size",
        "32",
        "--hot",
        "0",
    ]);
    let victim = Victim::spawn(command, 1)?;
    let report = succeeds(victim.truth().pid, &["--weights", "0=9,2=1"])?;
    ensure!((report.moved, report.spread_pages) == (0, 0), "{report:?}");
    ensure!(on(&victim, &[1])? == [victim.truth().pages as u64]);
    Ok(())
}

/// A process whose cpuset lacks a wanted node is refused whole.
fn cpuset(context: &mut Context) -> Result<()> {
    const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.subtree_control";
    let group = Path::new("/sys/fs/cgroup/respread");
    std::fs::write(CONTROLLERS, "+cpuset")?;
    std::fs::create_dir(group)?;
    let refused = || -> Result<Output> {
        std::fs::write(group.join("cpuset.mems"), "0-1")?;
        let victim = Victim::start("--size 16 --hot 0 --node 0", 1)?;
        let pid = victim.truth().pid;
        std::fs::write(group.join("cgroup.procs"), pid.to_string())?;
        let output = rebalance(pid, &["--weights", "0=9,2=1"]).output()?;
        ensure!(
            on(&victim, &[0])? == [victim.truth().pages as u64],
            "pages moved"
        );
        Ok(output)
    };
    let output = refused();
    std::fs::remove_dir(group)?;
    let output = output?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    context.note(said.trim().to_owned())?;
    ensure!(
        output.status.code() == Some(1) && output.stdout.is_empty(),
        "{output:?}"
    );
    ensure!(
        said.contains("its cpuset, 0-1, leaves out node 2"),
        "{said}"
    );
    Ok(())
}

/// Huge pages move whole: every 2 MiB are on one node, and none was split.
fn huge(context: &mut Context) -> Result<()> {
    let victim = Victim::start("--size 128 --hot 8 --node 0 --huge", 1)?;
    let (pid, start, pages) = (
        victim.truth().pid,
        victim.truth().start,
        victim.truth().pages as u64,
    );
    let before = anon_huge_kib(pid, start)?;
    ensure!(before == 128 << 10, "{before} KiB of huge pages");
    let report = succeeds(pid, &["--weights", "0=3,2=1"])?;
    let on = on(&victim, &[0, 2])?;
    context.note(format!("{on:?} of {pages} pages, {} moved", report.moved))?;
    // 64 huge pages: every fourth, 16, of 512 base pages each.
    ensure!(on == [pages * 3 / 4, pages / 4], "{on:?}");
    ensure!(
        anon_huge_kib(pid, start)? == before,
        "huge pages were split"
    );
    Ok(())
}

/// Pages that two processes map stay, unless they are asked for.
fn shared(_: &mut Context) -> Result<()> {
    let victim = Victim::start("--size 32 --hot 4 --node 0 --shared", 1)?;
    let (pid, pages) = (victim.truth().pid, victim.truth().pages as u64);
    let left = succeeds(pid, &["--weights", "0=1,2=1"])?;
    ensure!(on(&victim, &[0, 2])? == [pages, 0], "shared pages moved");
    ensure!(left.stayed.shared >= pages / 2 && left.reached, "{left:?}");
    succeeds(pid, &["--weights", "0=1,2=1", "--shared"])?;
    let on = on(&victim, &[0, 2])?;
    ensure!(
        on[1].abs_diff(pages / 2) <= pages / 100,
        "{on:?} of {pages}"
    );
    Ok(())
}

/// A node without room for its share: what fits is there, and it is told as a failure.
fn full(context: &mut Context) -> Result<()> {
    let victim = Victim::start("--size 96 --hot 0 --node 1", 1)?;
    let pages = victim.truth().pages as u64;
    let filler = Victim::start("--node 0 --leave-free 50", 1)?;
    let words = ["--weights", "0=3,1=1"];
    let output = rebalance(victim.truth().pid, &words).output()?;
    let short = report(&output)?;
    let there = on(&victim, &[0])?[0];
    context.note(format!(
        "{there} pages fit, {} did not",
        short.stayed.no_memory
    ))?;
    ensure!(
        output.status.code() == Some(1) && output.stderr.is_empty(),
        "{output:?}"
    );
    ensure!(
        !short.reached && short.end == "done" && short.stayed.no_memory > 0,
        "{short:?}"
    );
    ensure!(
        there + short.stayed.no_memory >= pages * 3 / 4,
        "{there} pages and {short:?}"
    );
    // With room again, what is lacking follows.
    drop(filler);
    let rest = succeeds(victim.truth().pid, &words)?;
    ensure!(
        on(&victim, &[0, 1])? == [pages * 3 / 4, pages / 4],
        "{rest:?}"
    );
    Ok(())
}

/// The process ends half-way: that is told, and is no failure.
fn process_ends(context: &mut Context) -> Result<()> {
    let victim = Victim::start("--size 128 --hot 0 --node 0", 1)?;
    let words = ["--weights", "0=1,2=1", "--rate-limit", "8MiB"];
    let mut command = rebalance(victim.truth().pid, &words);
    let running = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    until_some_moved(&victim)?;
    drop(victim);
    let output = running.wait_with_output()?;
    let report = report(&output)?;
    context.note(format!("{} pages had moved", report.moved))?;
    ensure!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    ensure!(
        report.end == "process_ended" && report.moved > 0 && !report.reached,
        "{report:?}"
    );
    ensure!(
        report
            .mappings
            .iter()
            .all(|mapping| mapping.after.is_none()),
        "{report:?}"
    );
    Ok(())
}

/// SIGINT stops it between two portions; the rate was kept until then.
fn interrupted(context: &mut Context) -> Result<()> {
    // Eight seconds.
    let victim = Victim::start("--size 128 --hot 0 --node 0", 1)?;
    let words = ["--weights", "2=1", "--rate-limit", "16MiB"];
    let began = Instant::now();
    let mut command = rebalance(victim.truth().pid, &words);
    let running = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // More than half of what the first second may move.
    until_moved(&victim, 2049)?;
    std::thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&running), Signal::INT)?;
    let output = running.wait_with_output()?;
    let seconds = began.elapsed().as_secs_f64();
    let report = report(&output)?;
    let moved = on(&victim, &[2])?[0];
    context.note(format!("{moved} pages in {seconds:.1} s at 4,096 a second"))?;
    ensure!(
        output.status.code() == Some(1) && report.end == "interrupted",
        "{output:?}"
    );
    ensure!(
        moved > 2048 && (moved as f64) < 4096.0 * (seconds + 0.1),
        "{moved} in {seconds}"
    );
    Ok(())
}

/// One's own process needs no rights.
fn own(_: &mut Context) -> Result<()> {
    let mut command = Command::new("/init");
    command.args(["victim", "--size", "16", "--hot", "0", "--node", "0"]);
    command.uid(NOBODY).gid(NOBODY);
    let victim = Victim::spawn(command, 1)?;
    let mut command = rebalance(victim.truth().pid, &["--weights", "0=3,2=1"]);
    let output = command.uid(NOBODY).gid(NOBODY).output()?;
    ensure!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let pages = victim.truth().pages as u64;
    ensure!(on(&victim, &[0, 2])? == [pages * 3 / 4, pages / 4]);
    Ok(())
}

fn until_some_moved(victim: &Victim) -> Result<()> {
    until_moved(victim, 1)
}

/// Until more pages than these are on node 2.
fn until_moved(victim: &Victim, pages: u64) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let stretch = Stretch::begin();
    while on(victim, &[2])?[0] < pages {
        within(&stretch, PATIENCE, || {
            format!("fewer than {pages} pages moved")
        })?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Each mistake is one line that names it, and nothing changes.
fn refusals(context: &mut Context) -> Result<()> {
    let victim = Victim::start("--size 16 --hot 0 --node 0", 1)?;
    let pid = victim.truth().pid;
    let mut gone = Command::new("/bin/true").stdin(Stdio::null()).spawn()?;
    gone.wait()?;
    let weights = |text| ["--weights", text];
    let mut stranger = rebalance(pid, &weights("0=9,2=1"));
    stranger.uid(NOBODY).gid(NOBODY);
    let before = table()?;
    let gone = gone.id();
    let cases = [
        (rebalance(pid, &weights("0=0,2=1")), 2, "\"0=0\"".to_owned()),
        (rebalance(pid, &weights("0=256")), 2, "\"256\"".to_owned()),
        (rebalance(pid, &weights("0=-1")), 2, "\"-1\"".to_owned()),
        (rebalance(pid, &weights("0=3x")), 2, "\"3x\"".to_owned()),
        (rebalance(pid, &weights("")), 2, "empty".to_owned()),
        (
            rebalance(pid, &weights("0=9,3=1")),
            2,
            "node 3 does not exist".to_owned(),
        ),
        (rebalance(pid, &weights("1024=1")), 2, "\"1024\"".to_owned()),
        (
            rebalance(gone, &weights("0=1")),
            1,
            format!("process {gone} does not exist"),
        ),
        (
            rebalance(2, &weights("0=1")),
            1,
            "process 2 has no memory".to_owned(),
        ),
        (stranger, 1, format!("process {pid}: not permitted")),
    ];
    for (mut command, status, word) in cases {
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let what = format!("{command:?}: {output:?}");
        ensure!(
            output.status.code() == Some(status) && output.stdout.is_empty(),
            "{what}"
        );
        ensure!(
            said.starts_with("memtide: ") && said.lines().count() == 1,
            "{what}"
        );
        ensure!(said.contains(&word), "{what} does not name {word}");
    }
    context.note("ten mistakes, each told in a line".to_owned())?;
    ensure!(
        on(&victim, &[0])? == [victim.truth().pages as u64],
        "pages moved"
    );
    ensure!(table()? == before, "the table changed");
    Ok(())
}
