//! `memtide run`: the program gets what was asked for, judged by the kernel's numa_maps.
//!
//! The program is the victim without a wish of its own: it maps memory, touches it, and says where it
//! is. Counts are exact: where the kernel places pages by address, address and weights say how many
//! belong on each node.

mod older;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::{BootClass, Context, Test};
use crate::guest::late::within;
use crate::guest::pace::Stretch;
use crate::guest::procfs::{NumaLine, numa_line, parse_list};
use crate::guest::subject::Victim;

/// What a victim needs to be small, quiet and where the policy wants it.
pub(super) const PROGRAM: [&str; 6] = ["/init", "victim", "--anywhere", "--hot", "0", "--size"];
/// MiB of memory, and its pages.
pub(super) const MIB: &str = "32";
const PAGES: u64 = 32 << 8;
const TABLE: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";
/// How long anything may take, in quiet time.
const PATIENCE: Duration = Duration::from_secs(20);

type Promise = fn(&mut Context) -> Result<()>;

const PROMISES: [(&str, Promise); 9] = [
    ("weighted-interleave", weighted_interleave),
    ("balancing", balancing),
    ("policies", policies),
    ("cpus", cpus),
    ("ends", ends),
    ("weights/moved", weights_moved),
    ("weights/applied", weights_applied),
    ("weights/killed", weights_killed),
    ("before-6.9", older::before_6_9),
];

pub(super) fn tests() -> Vec<Test> {
    PROMISES
        .into_iter()
        .map(|(name, promise)| {
            // CPU lists want more CPUs than the default machine has.
            let topology = if name == "cpus" { "two-socket" } else { "cxl" };
            Test::promise(format!("run/{name}"), topology, BootClass::Quiet, promise)
        })
        .collect()
}

/// Weights in the kernel's table, until dropped.
pub(super) struct Weights(Vec<(PathBuf, String)>);

impl Weights {
    pub(super) fn write(weights: &[(u32, u8)]) -> Result<Self> {
        let before = table()?;
        for (node, weight) in weights {
            let path = format!("{TABLE}/node{node}");
            std::fs::write(&path, weight.to_string())
                .with_context(|| format!("cannot write {path}"))?;
        }
        Ok(Self(before))
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        // Any weight that is written turns `auto` off, so it comes last.
        for (path, value) in self.0.iter().rev() {
            let _ = std::fs::write(path, value);
        }
    }
}

/// The files of the kernel's table with what they say, by name: `auto` first.
pub(super) fn table() -> Result<Vec<(PathBuf, String)>> {
    let entries = std::fs::read_dir(TABLE).with_context(|| format!("cannot read {TABLE}"))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let value = std::fs::read_to_string(&path)?.trim().to_owned();
        files.push((path, value));
    }
    files.sort();
    Ok(files)
}

fn memtide_run(words: &[&str]) -> Command {
    let mut command = Command::new("memtide");
    command.arg("run").args(words);
    command
}

/// A victim that `memtide run` with these words starts.
fn start(words: &[&str]) -> Result<Victim> {
    let mut command = memtide_run(words);
    command.args(PROGRAM).arg(MIB);
    Victim::spawn(command, 1)
}

/// Where the victim's memory is, once all of it is somewhere: a page on its way is on no node.
fn placed(victim: &Victim) -> Result<NumaLine> {
    placed_all(victim, PAGES)
}

/// The same of a victim that has so many pages.
pub(super) fn placed_all(victim: &Victim, all: u64) -> Result<NumaLine> {
    let stretch = Stretch::begin();
    loop {
        let line = numa_line(victim.truth().pid, victim.truth().start)?;
        let pages: u64 = line.pages.values().sum();
        if pages == all {
            return Ok(line);
        }
        let words = || format!("{pages} of {all} pages are there: {line:?}");
        ensure!(pages < all, words());
        within(&stretch, PATIENCE, words)?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// How many pages of the victim's memory belong on each of `weights`' nodes, by their addresses.
pub(super) fn belongs(start: usize, pages: u64, weights: &[(u32, u8)]) -> Vec<u64> {
    let round: Vec<usize> = (0..weights.len())
        .flat_map(|at| std::iter::repeat_n(at, usize::from(weights[at].1)))
        .collect();
    let mut counts = vec![0; weights.len()];
    for page in 0..pages as usize {
        counts[round[((start >> 12) + page) % round.len()]] += 1;
    }
    counts
}

fn is_spread(victim: &Victim, line: &NumaLine, weights: &[(u32, u8)]) -> Result<()> {
    let wanted = belongs(victim.truth().start, PAGES, weights);
    let there: Vec<u64> = weights.iter().map(|(node, _)| line.on(*node)).collect();
    ensure!(
        there == wanted,
        "{there:?} pages instead of {wanted:?} for {weights:?}"
    );
    Ok(())
}

/// The weighted interleave series' feature, by the document's own command: the table says 9:1, numa_maps too.
fn weighted_interleave(context: &mut Context) -> Result<()> {
    let _weights = Weights::write(&[(0, 9), (2, 1)])?;
    let victim = start(&["--weighted-interleave", "0,2"])?;
    let line = placed(&victim)?;
    ensure!(
        line.policy == "weighted interleave:0,2",
        "policy {:?}",
        line.policy
    );
    context.note(format!("9:1 gives {} and {} pages", line.on(0), line.on(2)))?;
    is_spread(&victim, &line, &[(0, 9), (2, 1)])?;
    // Weights that the table has in the same proportion need nothing else: memtide is gone.
    let mut victim = start(&["-w", "0,2", "--weights", "0=18,2=2"])?;
    ensure!(
        victim.truth().pid == victim.child().id(),
        "memtide stayed without need"
    );
    let line = placed(&victim)?;
    is_spread(&victim, &line, &[(0, 9), (2, 1)])
}

/// The bound-nodes balancing series': bound to several nodes, with the flag. 6.12 writes it as an equals sign alone.
fn balancing(context: &mut Context) -> Result<()> {
    let victim = start(&["--membind", "0,1", "--balancing"])?;
    let line = placed(&victim)?;
    context.note(format!("policy {:?}", line.policy))?;
    let flagged = ["bind=balancing:0-1", "bind=:0-1"];
    ensure!(
        flagged.contains(&line.policy.as_str()),
        "policy {:?}",
        line.policy
    );
    let victim = start(&["--preferred-many", "0,1", "-b"])?;
    let policy = placed(&victim)?.policy;
    let flagged = ["prefer (many)=balancing:0-1", "prefer (many)=:0-1"];
    ensure!(flagged.contains(&policy.as_str()), "policy {policy:?}");
    Ok(())
}

/// Each option gives its policy, and the pages are where it says.
fn policies(_: &mut Context) -> Result<()> {
    let cases: [(&[&str], &str, &[u32]); 9] = [
        (&["--membind", "2"], "bind:2", &[2]),
        (&["-m", "!0,2"], "bind:1", &[1]),
        (&["--membind", "all"], "bind:0-2", &[0, 1, 2]),
        (&["-a", "-m", "+1"], "bind:1", &[1]),
        (&["--preferred", "1"], "prefer:1", &[1]),
        (&["--preferred-many", "1-2"], "prefer (many):1-2", &[1, 2]),
        (&["--localalloc", "--cpunodebind", "1"], "local", &[1]),
        (&["-l", "-C", "0"], "local", &[0]),
        (&["--interleave", "0-1"], "interleave:0-1", &[0, 1]),
    ];
    for (words, policy, nodes) in cases {
        let line = placed(&start(words)?)?;
        ensure!(line.policy == policy, "{words:?}: policy {:?}", line.policy);
        let there: u64 = nodes.iter().map(|node| line.on(*node)).sum();
        ensure!(there == PAGES, "{words:?}: {line:?}");
    }
    let victim = start(&["--interleave", "0,2"])?;
    let line = placed(&victim)?;
    is_spread(&victim, &line, &[(0, 1), (2, 1)])
}

/// The CPUs that the program may run on.
fn cpus(_: &mut Context) -> Result<()> {
    let allowed = |words: &[&str]| -> Result<Vec<u32>> {
        let grep = ["grep", "Cpus_allowed_list", "/proc/self/status"];
        let output = memtide_run(words).args(grep).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let list = text
            .split_whitespace()
            .nth(1)
            .with_context(|| format!("{output:?}"))?;
        parse_list(list)
    };
    let of_node = |node: u32| -> Result<Vec<u32>> {
        let path = format!("/sys/devices/system/node/node{node}/cpulist");
        parse_list(&std::fs::read_to_string(path)?)
    };
    let (first, second) = (of_node(0)?, of_node(1)?);
    ensure!(allowed(&["--cpunodebind", "1"])? == second);
    ensure!(allowed(&["-N", "!1"])? == first);
    ensure!(allowed(&["-N", "all"])? == [first, second].concat());
    ensure!(allowed(&["--physcpubind", "1,3"])? == [1, 3]);
    ensure!(allowed(&["-C", "+2-3"])? == [2, 3]);
    Ok(())
}

/// Exit statuses are the program's, or say in one line what was wrong.
fn ends(context: &mut Context) -> Result<()> {
    let cases: [(&[&str], i32, &str); 12] = [
        (&["-m", "0", "sh", "-c", "exit 7"], 7, ""),
        (
            &[
                "-w",
                "0,2",
                "--weights",
                "0=3,2=2",
                "--",
                "sh",
                "-c",
                "exit 7",
            ],
            7,
            "moved",
        ),
        (
            &[
                "-w",
                "0,2",
                "--weights",
                "0=3,2=2",
                "sh",
                "-c",
                "kill -9 $$",
            ],
            137,
            "moved",
        ),
        (
            &["-m", "0", "no-such-program"],
            127,
            "no-such-program: not found",
        ),
        (
            &["-w", "0,2", "--weights", "0=3,2=2", "no-such-program"],
            127,
            "not found",
        ),
        (
            &["-m", "0", "/etc/passwd"],
            126,
            "/etc/passwd: not executable",
        ),
        (&["-m", "0", "-i", "1", "true"], 2, "cannot be used with"),
        (
            &["-m", "3", "true"],
            2,
            "node 3 does not exist; the nodes are 0-2",
        ),
        (&["-m", "0-9", "true"], 2, "node 3 does not exist"),
        (&["-N", "2", "true"], 2, "node 2 has no CPUs"),
        (&["-m", "", "true"], 2, "the list is empty"),
        (
            &["-w", "0,2", "--weights", "0=9", "true"],
            2,
            "node 2 of --weighted-interleave",
        ),
    ];
    let before = table()?;
    for (words, status, word) in cases {
        let output = memtide_run(words).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(status),
            "{words:?}: {}: {said}",
            output.status
        );
        ensure!(
            said.contains(word),
            "{words:?}: {said:?} does not name {word:?}"
        );
        ensure!(
            status == 7 || status == 137 || said.lines().count() == 1,
            "{words:?}: {said:?}"
        );
    }
    // Also for one that was started with the news of its children's ends ignored.
    let run = "trap '' CHLD; exec memtide run -w 0,2 --weights 0=3,2=2 sh -c 'exit 7'";
    let status = Command::new("sh")
        .args(["-c", run])
        .stderr(Stdio::null())
        .status()?;
    ensure!(status.code() == Some(7), "{status}");
    context.note("exit statuses are as documented".to_owned())?;
    ensure!(table()? == before, "the table changed");
    Ok(())
}

/// Weights that the kernel's table does not have, and shall not get: pages follow while it runs, those
/// of the program's children too.
fn weights_moved(context: &mut Context) -> Result<()> {
    let weights = [(0, 9), (2, 1)];
    let before = table()?;
    let stretch = Stretch::begin();
    let words = [
        "-w",
        "0,2",
        "--weights",
        "0=9,2=1",
        "sh",
        "-c",
        "\"$@\" & wait",
        "sh",
    ];
    let mut victim = start(&words)?;
    let wanted = belongs(victim.truth().start, PAGES, &weights);
    loop {
        // A page on its way is on no node, so some may be missing.
        let line = numa_line(victim.truth().pid, victim.truth().start)?;
        if [line.on(0), line.on(2)] == wanted[..] {
            break;
        }
        within(&stretch, PATIENCE, || {
            format!("{line:?} instead of {wanted:?}")
        })?;
        std::thread::sleep(Duration::from_millis(50));
    }
    context.note(format!(
        "{wanted:?} pages after {:.1} s",
        stretch.elapsed().as_secs_f64()
    ))?;
    ensure!(table()? == before, "the kernel's table changed");
    ensure!(
        victim.truth().pid != victim.child().id(),
        "nobody stayed to move the pages"
    );
    // A signal to memtide is one to the program.
    let code = end(&mut victim, Signal::TERM)?;
    ensure!(code == Some(128 + 15), "exit status {code:?}");
    Ok(())
}

/// With the table written for the run: exact from the first page, and as before at the end.
fn weights_applied(context: &mut Context) -> Result<()> {
    let weights = [(0, 5), (2, 2)];
    let before = table()?;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut victim = start(&["-w", "0,2", "--weights", "0=5,2=2", "--apply-weights"])?;
        is_spread(&victim, &placed(&victim)?, &weights)?;
        ensure!(table()? != before, "the table did not change");
        // The table is lent to one run at a time.
        let words = [
            "-w",
            "0,2",
            "--weights",
            "0=9,2=1",
            "--apply-weights",
            "true",
        ];
        let other = memtide_run(&words).output()?;
        let said = String::from_utf8_lossy(&other.stderr);
        ensure!(
            other.status.code() == Some(1) && said.contains("another memtide run"),
            "{said}"
        );
        // What is lent will not last, so another run does not rely on it.
        let words = ["-w", "0,2", "--weights", "0=5,2=2", "true"];
        let other = memtide_run(&words).output()?;
        let said = String::from_utf8_lossy(&other.stderr);
        ensure!(
            other.status.success() && said.contains("are moved to"),
            "{said}"
        );
        let code = end(&mut victim, signal)?;
        ensure!(
            code == Some(128 + signal.as_raw()),
            "{signal:?}: exit status {code:?}"
        );
        ensure!(
            table()? == before,
            "{signal:?}: {:?} instead of {before:?}",
            table()?
        );
    }
    // A program that cannot be started leaves nothing behind either.
    let words = [
        "-w",
        "0,2",
        "--weights",
        "0=5,2=2",
        "--apply-weights",
        "no-such-program",
    ];
    let output = memtide_run(&words).output()?;
    ensure!(output.status.code() == Some(127), "{output:?}");
    ensure!(table()? == before, "{:?} instead of {before:?}", table()?);
    context.note(format!(
        "put back: {:?}",
        before.iter().map(|(_, v)| v).collect::<Vec<_>>()
    ))
}

/// A run that is killed leaves the table; the next one puts it back, and so does whoever is asked to.
fn weights_killed(context: &mut Context) -> Result<()> {
    let ways: [(&[&str], &str); 4] = [
        (&["run", "-m", "0", "true"], "a killed memtide had left"),
        (
            &["doctor", "--restore"],
            "Put back: memtide run or service left the interleave weights 0=5,",
        ),
        (
            &["weights", "--restore"],
            "Put back first what a killed memtide had left.",
        ),
        // The default is what stands there before.
        (
            &["weights", "--reset"],
            "Put back first what a killed memtide had left.",
        ),
    ];
    let before = table()?;
    for (words, word) in ways {
        let mut victim = start(&["-w", "0,2", "--weights", "0=5,2=2", "--apply-weights"])?;
        let says = |words: &[&str]| -> Result<(bool, String)> {
            let output = Command::new("memtide").args(words).output()?;
            let said = [output.stdout, output.stderr].concat();
            Ok((
                output.status.success(),
                String::from_utf8_lossy(&said).into_owned(),
            ))
        };
        let left =
            |of: &[&str]| -> Result<bool> { Ok(says(of)?.1.contains("run or service left")) };
        let (done, said) = says(&["weights", "--set", "0=9"])?;
        ensure!(!done && said.contains("when it ends"), "{said}");
        ensure!(!left(&["doctor", "--no-probe"])?, "it runs still");
        victim.child().kill()?;
        victim.child().wait()?;
        let there = table()?;
        ensure!(there != before, "a killed program has put something back");
        ensure!(left(&["doctor", "--no-probe"])?, "doctor does not know");
        ensure!(left(&["weights"])?, "weights does not know");
        ensure!(table()? == there, "looking changed something");
        let (done, said) = says(words)?;
        context.note(said.lines().last().unwrap_or_default().to_owned())?;
        ensure!(done && said.contains(word), "{words:?}: {said}");
        ensure!(
            table()? == before,
            "{words:?}: {:?} instead of {before:?}",
            table()?
        );
        // And once is enough.
        let output = memtide_run(&["-m", "0", "true"]).output()?;
        ensure!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
    }
    Ok(())
}

/// Signals what started the victim, and waits for its end.
fn end(victim: &mut Victim, signal: Signal) -> Result<Option<i32>> {
    kill_process(Pid::from_child(victim.child()), signal)?;
    let stretch = Stretch::begin();
    loop {
        if let Some(status) = victim.child().try_wait()? {
            return Ok(status.code());
        }
        within(&stretch, PATIENCE, || format!("no end on {signal:?}"))?;
        std::thread::sleep(Duration::from_millis(10));
    }
}
