//! `cargo xtask fuzz`: builds the fuzz targets and runs each for a while.
//!
//! The compiler is the one that builds the rest: what libFuzzer needs of it are passes and arguments
//! that a stable one takes, too. Only the address sanitizer would need a nightly one, and outside of `sys`
//! folders there is no `unsafe` to look for. `cargo fuzz` of a nightly
//! compiler finds the same targets.
//!
//! Each target begins with the inputs that are kept: `fuzz/corpus/TARGET`, and files that are in the
//! repository anyway. What it finds beyond goes to `target/fuzz/corpus`, and a later run begins there.
//! An input that breaks a promise is in `target/fuzz/broken`, and its path is the failure's reason.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use testbed::lab::{Workspace, cargo};
use testbed::report::Verdict;
use testbed::suite::Summary;

/// Not the host's flags: build scripts and macros stay as they are.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What libFuzzer wants to be told, in each branch and comparison.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];

/// A target, and where else than in `fuzz/corpus` there is something to begin with.
struct Target {
    name: &'static str,
    seeds: &'static [&'static str],
}

const fn target(name: &'static str, seeds: &'static [&'static str]) -> Target {
    Target { name, seeds }
}

const TARGETS: [Target; 15] = [
    target("configuration", &[]),
    target("fs_parsers", &["crates/memtide-linux/tests/fixtures"]),
    target("journals", &[]),
    target("kcore", &[]),
    target("measurement", &["crates/memtide/tests/data"]),
    target("notes", &[]),
    target("perf_data", &["crates/memtide-linux/tests/recordings"]),
    target("perf_samples", &[]),
    target("policy_replay", &[]),
    target("preload_settings", &[]),
    target("sim_swarm", &[]),
    target("toml_files", &["scenarios"]),
    target("trace_csv", &[]),
    target("trace_parquet", &[]),
    target("varlink", &[]),
];

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these targets; all of them otherwise
    targets: Vec<String>,
    /// How long each target runs
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Draw inputs from this seed, not from another one each time
    #[arg(long, value_name = "SEED")]
    seed: Option<u32>,
}

/// How targets run.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How long each.
    pub seconds: u64,
    /// What inputs are drawn from; something else each time if absent.
    pub seed: Option<u32>,
}

pub fn run(arguments: &Arguments) -> Result<i32> {
    for name in &arguments.targets {
        let known = TARGETS.map(|target| target.name);
        ensure!(
            known.contains(&name.as_str()),
            "no target {name}; there are {}",
            known.join(", ")
        );
    }
    let effort = Effort {
        seconds: arguments.seconds,
        seed: arguments.seed,
    };
    let summary = run_targets(&Workspace::find()?, &arguments.targets, effort)?;
    println!("{summary}");
    Ok(i32::from(summary.tally.failed > 0))
}

/// Builds all targets, runs those that are named, or all; as many at once as there are processors.
pub fn run_targets(workspace: &Workspace, named: &[String], effort: Effort) -> Result<Summary> {
    let folder = workspace.root.join("target/fuzz");
    let status = build(workspace, Command::new(cargo()))
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the fuzz targets do not build");
    let chosen = |target: &&Target| named.is_empty() || named.iter().any(|n| n == target.name);
    let waiting = Mutex::new(TARGETS.iter().filter(chosen));
    let summary = Mutex::new(Summary::default());
    let next = || waiting.lock().ok()?.next();
    let run_next = || {
        while let Some(target) = next() {
            let verdict = run_target(&workspace.root, &folder, target, effort)
                .unwrap_or_else(|error| Verdict::Failed(format!("{error:#}")));
            if let Ok(mut summary) = summary.lock() {
                summary.count(format!("fuzz {}", target.name), &verdict);
            }
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(run_next);
        }
    });
    Ok(summary.into_inner().unwrap_or_default())
}

/// Has `cargo` build all targets.
pub fn build(workspace: &Workspace, mut cargo: Command) -> Command {
    cargo
        .current_dir(workspace.root.join("fuzz"))
        .args(["build", "--quiet", "--locked", "--release", "--bins"])
        .args(["--target", TARGET, "--target-dir", "../target/fuzz"])
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"))
        .env_remove("RUSTFLAGS");
    cargo
}

fn run_target(root: &Path, folder: &Path, target: &Target, effort: Effort) -> Result<Verdict> {
    let name = target.name;
    let made = |kind: &str| {
        let path = folder.join(kind).join(name);
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        anyhow::Ok(path)
    };
    // The first folder takes what is found; the others are only read.
    let mut begins = vec![made("corpus")?, root.join("fuzz/corpus").join(name)];
    begins.extend(target.seeds.iter().map(|seeds| root.join(seeds)));
    begins.retain(|path| path.is_dir());
    let broken = made("broken")?;
    let log = folder.join(format!("{name}.log"));
    let program: PathBuf = folder.join(TARGET).join("release").join(name);
    let mut child = Command::new(&program)
        .args(begins)
        .arg(format!("-max_total_time={}", effort.seconds))
        // 0 is libFuzzer's word for any.
        .arg(format!("-seed={}", effort.seed.unwrap_or(0)))
        .arg(format!("-artifact_prefix={}/", broken.display()))
        .args(["-timeout=25", "-rss_limit_mb=2048", "-print_final_stats=1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let told = child.stderr.take().context("a program without output")?;
    let mut lines = Vec::new();
    // What it tells may be no text: it shows inputs.
    for line in BufReader::new(told).split(b'\n') {
        lines.push(String::from_utf8_lossy(&line?).into_owned());
    }
    let status = child.wait()?;
    std::fs::write(&log, lines.join("\n")).with_context(|| log.display().to_string())?;
    let executions = stat(&lines, "stat::number_of_executed_units:");
    let seconds = effort.seconds;
    eprintln!("fuzz: {name}: {executions} inputs in {seconds} s");
    Ok(match status.success() {
        true => Verdict::Passed,
        false => Verdict::Failed(format!(
            "{status}; see {} and the input in {}",
            log.display(),
            broken.display()
        )),
    })
}

/// A figure of those that libFuzzer ends with.
fn stat(lines: &[String], name: &str) -> u64 {
    let value = |line: &String| line.strip_prefix(name)?.trim().parse().ok();
    lines.iter().rev().find_map(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that is not listed would never run.
    #[test]
    fn every_target_is_listed() {
        let root = Workspace::find().unwrap().root;
        let mut files: Vec<String> = std::fs::read_dir(root.join("fuzz/fuzz_targets"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .map(|name| name.trim_end_matches(".rs").to_owned())
            .collect();
        files.sort();
        assert_eq!(files, TARGETS.map(|target| target.name));
        for seeds in TARGETS.iter().flat_map(|target| target.seeds) {
            assert!(root.join(seeds).is_dir(), "{seeds}");
        }
    }

    #[test]
    fn figures_of_the_fuzzer() {
        let lines = ["#2 INITED", "stat::number_of_executed_units: 1234"].map(str::to_owned);
        assert_eq!(stat(&lines, "stat::number_of_executed_units:"), 1234);
        assert_eq!(stat(&lines, "stat::average_exec_per_sec:"), 0);
    }
}
