//! Every check of the repository, in one run with one count.
//!
//! Steps run on after a failure, so that one run tells everything. The counts are those that cargo's
//! test harness and the guests print themselves; a step that fails without naming a failed test (a
//! format difference, a lint, code that does not build) counts as one failure, so that the last line
//! can never look better than the run was. Failed tests are named once more before the counts.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use testbed::lab::Workspace;
use testbed::report::Verdict;
use testbed::suite::{Summary, Tally};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Leave the guests out
    #[arg(long)]
    no_guest: bool,
}

/// A command of the host's part.
struct Step {
    name: &'static str,
    words: &'static [&'static str],
    rustflags: Option<&'static str>,
}

const STEPS: [Step; 4] = [
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
        name: "unit, integration and documentation tests",
        words: &["test", "--quiet", "--workspace", "--no-fail-fast"],
        rustflags: None,
    },
    Step {
        // Its own target folder: other flags would rebuild everything twice a run.
        name: "loom: every interleaving of the lock-free parts",
        words: &[
            "test",
            "--quiet",
            "--release",
            "--package",
            "memtide-core",
            "--lib",
            "--target-dir",
            "target/loom",
            "loom",
        ],
        rustflags: Some("--cfg loom"),
    },
];

pub fn run(arguments: &Arguments) -> Result<i32> {
    let workspace = Workspace::find()?;
    let mut summary = Summary::default();
    for step in &STEPS {
        eprintln!("test: {}", step.name);
        let began = Instant::now();
        let result = run_step(step, &workspace)?;
        eprintln!("test: took {:.0} s", began.elapsed().as_secs_f64());
        if result.tally.failed > 0 {
            eprintln!("test: {} FAILED", step.name);
        }
        summary.add(result);
    }
    if arguments.no_guest {
        eprintln!("test: guests left out, as asked");
    } else {
        eprintln!("test: guests");
        match crate::guest::run_everything() {
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

fn run_step(step: &Step, workspace: &Workspace) -> Result<Summary> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(&workspace.root)
        .args(step.words)
        .stdout(Stdio::piped());
    if let Some(flags) = step.rustflags {
        command.env("RUSTFLAGS", flags);
    }
    let mut child = command.spawn().context("cannot run cargo")?;
    let output = child.stdout.take().context("cargo without output")?;
    let mut summary = Summary::default();
    let mut names = FailedNames::default();
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        names.take(&line);
        if let Some(counts) = parse_summary(&line) {
            summary.tally.add(counts);
            let named = names.finish().into_iter();
            summary
                .failures
                .extend(named.map(|name| (name, format!("failed in: {}", step.name))));
        }
    }
    if !child.wait()?.success() && summary.tally.failed == 0 {
        let why = "the command failed and named no test; see its output".to_owned();
        summary.count(step.name.to_owned(), &Verdict::Failed(why));
    }
    Ok(summary)
}

/// The names in the harness's list of failures: the indented lines right below the line `failures:`.
/// Of two such lines, the first is followed by an empty one and by what the tests printed.
#[derive(Debug, Default)]
struct FailedNames {
    listing: bool,
    names: Vec<String>,
}

impl FailedNames {
    fn take(&mut self, line: &str) {
        if line == "failures:" {
            self.listing = true;
            self.names.clear();
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| self.listing) {
            self.names.push(name.to_owned());
        } else {
            self.listing = false;
        }
    }

    /// The names of one harness, at its line of counts.
    fn finish(&mut self) -> Vec<String> {
        std::mem::take(self).names
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
    fn names_of_failed_tests() {
        let output = "running 3 tests\n..F\n\nfailures:\n\n---- a::b stdout ----\n    said by it\n\n\
                      \nfailures:\n    a::b\n    src/lib.rs - c (line 7)\n\n\
                      test result: FAILED. 1 passed; 2 failed";
        let mut names = FailedNames::default();
        for line in output.lines() {
            names.take(line);
        }
        assert_eq!(names.finish(), ["a::b", "src/lib.rs - c (line 7)"]);
        assert!(names.finish().is_empty());
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
