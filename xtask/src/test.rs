//! Every check of the repository, in one run with one count.
//!
//! Steps run on after a failure, so that one run tells everything. The counts are those that cargo's
//! test harness and the guests print themselves; a step that fails without naming a failed test (a
//! format difference, a lint, code that does not build) counts as one failure, so that the last line
//! can never look better than the run was. Failed tests are named once more before the counts.

use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testbed::lab::{Workspace, behind_others, cargo};
use testbed::report::Verdict;
use testbed::suite::{Summary, Tally};

use crate::fuzz::Effort;
use crate::random_programs::build_library;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Leave the guests out
    #[arg(long)]
    no_guest: bool,
    /// Begin no guest after so many minutes; its tests are named and counted as skipped
    #[arg(long, value_name = "MINUTES")]
    no_guest_after: Option<u64>,
}

/// A command of the host's part.
struct Step {
    name: &'static str,
    words: &'static [&'static str],
    rustflags: Option<&'static str>,
}

const DOCUMENTATION: &str = "documentation without a broken link";
const TESTS: &str = "unit, integration and documentation tests";
const STATIC_COMPILES: &str = "the pager compiles for the targets of static binaries";
const ADVISORIES: &str = "no advisory against what is linked in";
const OLDEST_BUILDS: &str = "the oldest compiler builds it";
const BOOK: &str = "the book builds, and needs no network";
const PROMETHEUS: &str = "a real Prometheus judges the dashboard and the alerts";
/// Long enough for all that is kept, and for a few thousand inputs more. They are the same in each run:
/// what a run finds must be what a change broke. New inputs are looked for by hand.
const FUZZ: Effort = Effort {
    seconds: 5,
    seed: Some(1),
};
const LOOM: &str = "--cfg loom";

/// The words that run loom's models of some of memtide-core's tests. Two steps: beside the models a
/// library built for loom has tests of other things, which fail where its atomics are loom's.
///
/// Its own target folder: other flags would rebuild everything twice a run. Without optimisation, except
/// where the profile says otherwise: all models take a second either way, and building them does not.
macro_rules! loom {
    ($($which:literal),*) => {
        ["test", "--quiet", "--package", "memtide-core", "--target-dir", "target/loom", $($which),*]
    };
}

const STEPS: [Step; 6] = [
    Step {
        name: "format",
        words: &["fmt", "--all", "--check"],
        rustflags: None,
    },
    Step {
        name: "lints",
        words: &[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        rustflags: None,
    },
    Step {
        name: DOCUMENTATION,
        words: &[
            "doc",
            "--quiet",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ],
        rustflags: None,
    },
    Step {
        name: TESTS,
        // Every test is named: of a program that ends early, that is how one knows where.
        words: &["test", "--workspace", "--no-fail-fast"],
        rustflags: None,
    },
    Step {
        name: "loom: every interleaving of granules and credits",
        words: &loom!("--lib", "loom"),
        rustflags: Some(LOOM),
    },
    Step {
        name: "loom: every interleaving of the hotness store",
        words: &loom!("--test", "loom"),
        rustflags: Some(LOOM),
    },
];

pub fn run(arguments: &Arguments) -> Result<i32> {
    let workspace = Workspace::find()?;
    let until = arguments
        .no_guest_after
        .map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let mut summary = Summary::default();
    let mut ahead = Vec::new();
    let oldest = oldest_compiler(&workspace)?;
    eprintln!("test: {OLDEST_BUILDS}: {oldest:?}");
    summary.count(OLDEST_BUILDS.to_owned(), &oldest);
    let compiles = static_targets(&workspace)?;
    eprintln!("test: {STATIC_COMPILES}: {compiles:?}");
    summary.count(STATIC_COMPILES.to_owned(), &compiles);
    let advised = advisories(&workspace)?;
    eprintln!("test: {ADVISORIES}: {advised:?}");
    summary.count(ADVISORIES.to_owned(), &advised);
    let book = crate::book::verdict(&workspace);
    eprintln!("test: {BOOK}: {book:?}");
    summary.count(BOOK.to_owned(), &book);
    // Where it is there, its tests count.
    if !has_prometheus(&workspace) {
        let why = "prometheus and promtool are neither in PATH nor in target/prometheus";
        let skipped = Verdict::Skipped(why.to_owned());
        eprintln!("test: {PROMETHEUS}: {skipped:?}");
        summary.count(PROMETHEUS.to_owned(), &skipped);
    }
    for step in &STEPS {
        match step.name {
            TESTS => ahead = build_ahead(&workspace, arguments.no_guest),
            // Whether they succeeded is told by the steps that need them.
            _ => ahead.drain(..).for_each(|mut child| drop(child.wait())),
        }
        eprintln!("test: {}", step.name);
        let began = Instant::now();
        let result = run_step(step, &workspace)?;
        eprintln!("test: took {:.0} s", began.elapsed().as_secs_f64());
        if result.tally.failed > 0 {
            eprintln!("test: {} FAILED", step.name);
        }
        summary.add(result);
    }
    eprintln!("test: fuzz targets, {} s each", FUZZ.seconds);
    let began = Instant::now();
    match crate::fuzz::run_targets(&workspace, &[], FUZZ) {
        Ok(result) => summary.add(result),
        Err(error) => {
            eprintln!("test: fuzz targets FAILED: {error:#}");
            summary.count("fuzz".to_owned(), &Verdict::Failed(format!("{error:#}")));
        }
    }
    eprintln!("test: took {:.0} s", began.elapsed().as_secs_f64());
    if arguments.no_guest {
        eprintln!("test: guests left out, as asked");
    } else {
        eprintln!("test: guests");
        match crate::guest::run_everything(until) {
            Ok(result) => summary.add(result),
            Err(error) => {
                eprintln!("test: guests FAILED: {error:#}");
                summary.count("guests".to_owned(), &Verdict::Failed(format!("{error:#}")));
            }
        }
    }
    println!("{summary}");
    Ok(i32::from(summary.tally.failed > 0))
}

/// Whether the oldest compiler that the manifest names builds everything. Where it is the one in use,
/// the other steps show that; else it is asked, if it is installed.
fn oldest_compiler(workspace: &Workspace) -> Result<Verdict> {
    const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");
    let version = |program: &mut Command| {
        let output = program.arg("--version").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let minor = text
            .split_whitespace()
            .nth(1)?
            .rsplit_once('.')?
            .0
            .to_owned();
        output.status.success().then_some(minor)
    };
    let of_toolchain = || {
        let mut rustup = Command::new("rustup");
        rustup.args(["run", OLDEST]);
        rustup
    };
    let in_use = version(&mut Command::new("rustc"));
    if in_use.as_deref() == Some(OLDEST) {
        return Ok(Verdict::Passed);
    }
    if version(of_toolchain().arg("rustc")).as_deref() != Some(OLDEST) {
        let in_use = in_use.unwrap_or_default();
        let why = format!("Rust {in_use} is in use; rustup toolchain install {OLDEST}");
        return Ok(Verdict::Skipped(why));
    }
    let status = of_toolchain()
        .args(["cargo", "check", "--quiet", "--workspace", "--all-targets"])
        .args(["--target-dir", "target/oldest"])
        .current_dir(&workspace.root)
        .env_remove("CARGO")
        .status()
        .context("cannot run rustup")?;
    Ok(match status.success() {
        true => Verdict::Passed,
        false => Verdict::Failed(format!("Rust {OLDEST} does not build the workspace")),
    })
}

/// Whether the database of advisories names what is linked in, where there is somebody to ask it.
fn advisories(workspace: &Workspace) -> Result<Verdict> {
    let deny = |words: &[&str]| {
        let mut command = Command::new(cargo());
        command.arg("deny").args(words).current_dir(&workspace.root);
        command
    };
    let there = deny(&["--version"]).output().context("cannot run cargo")?;
    if !there.status.success() {
        let why = "cargo-deny is not installed; the hosted workflow asks";
        return Ok(Verdict::Skipped(why.to_owned()));
    }
    let fetched = deny(&["fetch", "db"])
        .output()
        .context("cannot run cargo")?;
    if !fetched.status.success() {
        let why = "the database of advisories cannot be reached";
        return Ok(Verdict::Skipped(why.to_owned()));
    }
    let status = deny(&["check", "--disable-fetch", "advisories"]).status();
    Ok(match status.context("cannot run cargo")?.success() {
        true => Verdict::Passed,
        false => Verdict::Failed("see the output of cargo deny".to_owned()),
    })
}

/// Whether the tests find one: in `PATH`, or where `.ci/run` unpacks the package.
fn has_prometheus(workspace: &Workspace) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = workspace.root.join("target/prometheus/usr/bin");
    let mut folders = std::env::split_paths(&path).chain([unpacked]);
    folders.any(|folder| {
        ["prometheus", "promtool"].map(|name| folder.join(name).is_file()) == [true; 2]
    })
}

/// Whether what is linked into a release compiles there. The pager's crates are those that call a C
/// library themselves, so only they are asked; nothing is linked.
fn static_targets(workspace: &Workspace) -> Result<Verdict> {
    let targets = [crate::dist::STATIC, crate::dist::AARCH64];
    for target in targets {
        if let Some(why) = crate::dist::missing(target)? {
            return Ok(Verdict::Skipped(why));
        }
    }
    let status = Command::new(cargo())
        .args(["check", "--quiet", "--package", "memtide-pager"])
        .args(targets.map(|target| format!("--target={target}")))
        .current_dir(&workspace.root)
        .status()
        .context("cannot run cargo")?;
    Ok(match status.success() {
        true => Verdict::Passed,
        false => Verdict::Failed("memtide-pager does not compile; see the output".to_owned()),
    })
}

/// Builds what later steps need while the tests run, which leave processors idle now and then: random
/// cases for a minute, one thread where there are two. Nothing is lost where that cannot be started.
fn build_ahead(workspace: &Workspace, no_guest: bool) -> Vec<Child> {
    let mut loom = behind_others(cargo());
    loom.current_dir(&workspace.root)
        .args(loom!("--lib", "--test", "loom", "--no-run"))
        .env("RUSTFLAGS", LOOM)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut fuzz = crate::fuzz::build(workspace, behind_others(cargo()));
    fuzz.stdout(Stdio::null()).stderr(Stdio::null());
    let mut children: Vec<Child> = loom.spawn().into_iter().chain(fuzz.spawn()).collect();
    if !no_guest {
        children.extend(workspace.start_guest_build());
        let mut library = build_library(workspace, behind_others(cargo()), true);
        library.stdout(Stdio::null()).stderr(Stdio::null());
        children.extend(library.spawn());
    }
    children
}

fn run_step(step: &Step, workspace: &Workspace) -> Result<Summary> {
    let mut command = Command::new(cargo());
    command
        .current_dir(&workspace.root)
        .args(step.words)
        .stdout(Stdio::piped());
    if let Some(flags) = step.rustflags {
        command.env("RUSTFLAGS", flags);
    }
    if step.name == DOCUMENTATION {
        command.env("RUSTDOCFLAGS", "-D warnings");
    }
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let output = child.stdout.take().context("cargo without output")?;
    let errors = child.stderr.take().context("cargo without errors")?;
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(pass_on_errors(errors)));
    let mut summary = Summary::default();
    let mut failures = Failures::default();
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        failures.take(&line);
        if let Some(counts) = parse_summary(&line) {
            summary.tally.add(counts);
            let of_step = |(name, why)| match why {
                None => (name, format!("failed in: {}", step.name)),
                Some(why) => (name, format!("{why}; failed in: {}", step.name)),
            };
            let failed = failures.finish().into_iter();
            summary.failures.extend(failed.map(of_step));
        }
    }
    let status = child.wait()?;
    // Who was left behind by a program that ended early may keep the pipe open.
    for ended in told.recv_timeout(LAST_WORDS).unwrap_or_default() {
        let unfinished = ended.unfinished(&failures.finished, workspace);
        let why = format!("{}; not finished: {unfinished}", ended.said.join(" / "));
        summary.count(ended.program, &Verdict::Failed(why));
    }
    if !status.success() && summary.tally.failed == 0 {
        let why = "the command failed and named no test; see its output".to_owned();
        summary.count(step.name.to_owned(), &Verdict::Failed(why));
    }
    Ok(summary)
}

/// A program of tests that ended before its harness could count: by a signal, or because a test left.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    program: String,
    /// What was said last, the signal included.
    said: Vec<String>,
}

/// How long after cargo's end what it said is waited for.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// Of what a program said before it ended, so many lines are repeated.
const LAST_LINES: usize = 6;
/// Of its tests that did not come to their end, so many are named: each thread had one, and the harness begins
/// them in the order of their names.
const UNFINISHED: usize = 4;

/// Passes on what cargo and the tests say, and finds who ended early.
fn pass_on_errors(errors: impl Read) -> Vec<Ended> {
    let mut last = VecDeque::new();
    let mut found = Vec::new();
    let mut errors = BufReader::new(errors);
    let mut bytes = Vec::new();
    while errors
        .read_until(b'\n', &mut bytes)
        .is_ok_and(|read| read > 0)
    {
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        bytes.clear();
        eprintln!("{line}");
        found.extend(ended_early(&line, &last));
        last.push_back(line);
        if last.len() > LAST_LINES {
            last.pop_front();
        }
    }
    found
}

/// Of cargo's line ``process didn't exit successfully: `target/debug/deps/name-hash` (signal: 11, SIGSEGV: …)``. A
/// harness that counted ends with 101.
fn ended_early(line: &str, before: &VecDeque<String>) -> Option<Ended> {
    let (_, rest) = line.split_once("process didn't exit successfully: `")?;
    let (program, how) = rest.split_once('`')?;
    (!how.contains("(exit status: 101)")).then(|| Ended {
        program: program.split(' ').next().unwrap_or(program).to_owned(),
        said: before
            .iter()
            .map(String::as_str)
            .chain([how])
            .map(|said| said.trim().to_owned())
            .filter(|said| !said.is_empty())
            .collect(),
    })
}

impl Ended {
    /// The first of its tests that told of no result.
    fn unfinished(&self, finished: &BTreeSet<String>, workspace: &Workspace) -> String {
        let mut list = Command::new(&self.program);
        list.arg("--list").current_dir(&workspace.root);
        let Ok(output) = list.output() else {
            return "it cannot be asked".to_owned();
        };
        first_left(&String::from_utf8_lossy(&output.stdout), finished)
    }
}

/// Of a harness's list, the first that are not among those that finished.
fn first_left(list: &str, finished: &BTreeSet<String>) -> String {
    let all = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let left: Vec<&str> = all.filter(|name| !finished.contains(*name)).collect();
    left[..left.len().min(UNFINISHED)].join(", ")
}

/// The harness's list of failures: the indented lines right below the line `failures:`. Of two such lines, the first
/// is followed by an empty one and by what the tests printed, each below its name.
#[derive(Debug, Default)]
struct Failures {
    listing: bool,
    names: Vec<String>,
    /// What they said, from the panic on, by name.
    said: Vec<(String, String)>,
    saying: bool,
    /// Of all harnesses so far, which tests had a result.
    finished: BTreeSet<String>,
}

/// Of what a test said, about so many bytes are repeated at the end.
const MOST_SAID: usize = 600;

impl Failures {
    fn take(&mut self, line: &str) {
        let heading = line.strip_prefix("---- ");
        let result = line.strip_prefix("test ");
        if let Some((name, _)) = result.and_then(|rest| rest.split_once(" ... ")) {
            let name = name.strip_suffix(" - should panic").unwrap_or(name);
            self.finished.insert(name.to_owned());
        }
        if line == "failures:" {
            self.listing = true;
            self.saying = false;
            self.names.clear();
        } else if let Some(name) = heading.and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.said.push((name.to_owned(), String::new()));
            (self.listing, self.saying) = (false, false);
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| self.listing) {
            self.names.push(name.to_owned());
        } else {
            self.listing = false;
            self.saying |= line.starts_with("thread '") && line.contains(" panicked at ");
            if let Some((_, said)) = self.said.last_mut().filter(|_| self.saying)
                && !line.starts_with("note: ")
            {
                let left = MOST_SAID.saturating_sub(said.len());
                let between = if said.is_empty() { "" } else { " / " };
                said.extend(between.chars().chain(line.trim().chars()).take(left));
            }
        }
    }

    /// The names of one harness, at its line of counts, and what each said.
    fn finish(&mut self) -> Vec<(String, Option<String>)> {
        let names = std::mem::take(&mut self.names);
        let mut said = std::mem::take(&mut self.said);
        (self.listing, self.saying) = (false, false);
        let why = |name: String| {
            let of = said.iter_mut().find(|(of, _)| *of == name);
            let why = of.map(|(_, said)| std::mem::take(said));
            (name, why.filter(|why| !why.is_empty()))
        };
        names.into_iter().map(why).collect()
    }
}

/// The counts of the harness's line
/// `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; ...`.
fn parse_summary(line: &str) -> Option<Tally> {
    let (_, counts) = line
        .trim()
        .strip_prefix("test result: ")?
        .split_once(". ")?;
    let count = |name: &str| -> u64 {
        counts
            .split("; ")
            .find_map(|part| part.strip_suffix(name)?.trim().parse().ok())
            .unwrap_or(0)
    };
    Some(Tally {
        passed: count("passed"),
        failed: count("failed"),
        skipped: count("ignored"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_failed_tests_and_what_they_said() {
        let output = "running 3 tests\n..F\n\nfailures:\n\n---- a::b stdout ----\n    said by it\n\n\
                      thread 'a::b' (7) panicked at src/a.rs:3:5:\n2 and not 3\n\
                      note: run with more\n\nfailures:\n    a::b\n    src/lib.rs - c (line 7)\n\n\
                      test result: FAILED. 1 passed; 2 failed";
        let mut failures = Failures::default();
        for line in output.lines() {
            failures.take(line);
        }
        let why = "thread 'a::b' (7) panicked at src/a.rs:3:5: / 2 and not 3";
        let found = failures.finish();
        assert_eq!(found[0].0, "a::b");
        assert!(found[0].1.as_ref().unwrap().starts_with(why), "{found:?}");
        assert_eq!(found[1], ("src/lib.rs - c (line 7)".to_owned(), None));
        assert!(failures.finish().is_empty());
    }

    /// Its harness named no test: what it said last tells, and what had not passed.
    #[test]
    fn a_program_that_ended_early_is_told_of() {
        let errors = "a warning\n\nfatal runtime error: it ends here, aborting\n\
                      error: test failed, to rerun pass `-p a --lib`\n\nCaused by:\n  process didn't exit \
                      successfully: `/bin/false --quiet` (signal: 6, SIGABRT: process abort signal)\n\
                      process didn't exit successfully: `/bin/false` (exit status: 101)\n";
        let found = pass_on_errors(errors.as_bytes());
        let said = [
            "a warning",
            "fatal runtime error: it ends here, aborting",
            "error: test failed, to rerun pass `-p a --lib`",
            "Caused by:",
            "(signal: 6, SIGABRT: process abort signal)",
        ];
        let program = "/bin/false".to_owned();
        let said = said.map(str::to_owned).to_vec();
        assert_eq!(found, [Ended { program, said }]);
    }

    #[test]
    fn what_finished_is_known_of_all_programs() {
        let mut failures = Failures::default();
        let lines = [
            "test a ... ok",
            "test b - should panic ... ok",
            "test c ... ignored, it takes an hour",
            "test d ... FAILED",
        ];
        for line in lines {
            failures.take(line);
        }
        failures.finish();
        let list = "a: test\nb: test\nc: test\nd: test\ne: test\nf: test\ng: benchmark\n";
        assert_eq!(first_left(list, &failures.finished), "e, f");
    }

    /// Models elsewhere would be left out silently.
    #[test]
    fn every_loom_model_has_its_step() {
        fn collect(folder: &std::path::Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    collect(&path, found);
                } else if path.extension().is_some_and(|end| end == "rs")
                    && std::fs::read_to_string(&path)
                        .unwrap()
                        .contains("loom::model(")
                {
                    found.push(path.display().to_string());
                }
            }
        }
        let root = Workspace::find().unwrap().root;
        let mut found = Vec::new();
        for folder in ["crates", "pager"] {
            let folder = root.join(folder);
            if folder.exists() {
                collect(&folder, &mut found);
            }
        }
        found.sort();
        let core = root.join("crates/memtide-core");
        let expected = ["src/residency/loom_tests.rs", "tests/loom.rs"];
        assert_eq!(
            found,
            expected.map(|file| core.join(file).display().to_string())
        );
    }

    #[test]
    fn summaries_of_the_harness() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out; \
                    finished in 0.00s";
        assert_eq!(
            parse_summary(line),
            Some(Tally {
                passed: 5,
                failed: 2,
                skipped: 1
            })
        );
        assert_eq!(parse_summary("running 3 tests"), None);
    }
}
