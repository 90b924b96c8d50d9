//! `cargo xtask pager-programs`: real programs with no limit, under the kernel's cgroup and with the
//! pager, in turns, and a table of what it cost.
//!
//! `demo/programs.sh` has the programs, and makes and reads their data. What the distribution has
//! not installed comes from PyPI, into a virtual environment below `target/`. A program that cannot
//! be had is named with the reason, and counted as skipped. Outputs that differ are a failure; times
//! and counts are only shown: they are this machine's, at this moment.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use testbed::lab::{Workspace, cargo};

/// Each with the part of its data that it may have in memory: a quarter, a sixth, a half.
const PROGRAMS: [(&str, u64); 9] = [
    ("sqlite3", 4),
    ("lmdb", 6),
    ("ripgrep", 4),
    ("numpy", 4),
    ("safetensors", 4),
    ("git", 4),
    ("pyarrow", 4),
    ("faiss", 4),
    ("usearch", 2),
];
/// Of PyPI, for what the programs need.
const PACKAGES: [&str; 7] = [
    "numpy",
    "lmdb",
    "safetensors",
    "ripgrep",
    "pyarrow",
    "faiss-cpu",
    "usearch",
];
/// Names of all their data.
const FILES: [&str; 2] = ["data.*", "*.pack"];

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Data of each program, in MiB; the budget is a quarter, with lmdb a sixth and with usearch a half
    #[arg(long, default_value_t = 256)]
    mib: u64,
    /// Times that each way runs; shown are medians
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

const WAYS: [&str; 3] = ["no limit", "kernel's cgroup", "pager"];

/// What one run cost.
#[derive(Clone, Debug)]
struct Cost {
    output: Vec<u8>,
    seconds: f64,
    shootdowns: u64,
    major_faults: u64,
    /// Peak of the data in memory, in MiB, and percent of looks above budget and a twentieth.
    seen: (f64, f64),
}

/// Where things are.
struct Bench {
    root: PathBuf,
    memtide: PathBuf,
    python: PathBuf,
    folder: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<i32> {
    let root = Workspace::find()?.root;
    let built = Command::new(cargo())
        .args(["build", "--release", "--quiet"])
        .args(["-p", "memtide", "-p", "memtide-pager-preload"])
        .current_dir(&root)
        .status()?;
    ensure!(built.success(), "the release build: {built}");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let place = target.join("pager-programs");
    std::fs::create_dir_all(&place)?;
    let bench = Bench {
        memtide: target.join("release/memtide"),
        python: environment(&place)?,
        folder: place.join("data"),
        root,
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "{} MiB each, {} rounds, load {}",
        arguments.mib,
        arguments.rounds,
        load.split(' ').take(3).collect::<Vec<_>>().join(" ")
    );
    println!(
        "{:<12} {:<16} {:>9} {:>11} {:>12} {:>10}  above budget + 5 %",
        "", "", "time", "shootdowns", "major faults", "peak"
    );
    let (mut ran, mut skipped) = (0, 0);
    for (name, part) in PROGRAMS {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == name) {
            continue;
        }
        let needs = bench.script(&["needs", name]).output()?;
        if !needs.status.success() {
            let why = String::from_utf8_lossy(&needs.stdout);
            println!("{name:<12} skipped: {}", why.trim());
            skipped += 1;
            continue;
        }
        bench.compare(name, arguments.mib / part, arguments)?;
        ran += 1;
    }
    println!("{ran} programs, all outputs equal; {skipped} skipped");
    Ok(i32::from(ran == 0))
}

/// The virtual environment's Python, or the system's where none can be made.
fn environment(place: &Path) -> Result<PathBuf> {
    let folder = place.join("venv");
    let python = folder.join("bin/python");
    let made = || {
        let mut command = Command::new("python3");
        command.args(["-m", "venv"]).arg(&folder);
        command.status().is_ok_and(|status| status.success())
    };
    if !python.exists() && !made() {
        println!("no virtual environment: python3 -m venv failed; only what is installed runs");
        return Ok("python3".into());
    }
    // What is there is not fetched again.
    for package in PACKAGES {
        let fetched = Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--retries=1"])
            .args(["--disable-pip-version-check", package])
            .status()?;
        if !fetched.success() {
            println!("{package} cannot be fetched: {fetched}");
        }
    }
    Ok(python)
}

impl Bench {
    fn script(&self, words: &[&str]) -> Command {
        let mut command = Command::new("bash");
        command.arg(self.root.join("demo/programs.sh")).args(words);
        self.prepare(&mut command);
        command
    }

    /// The environment's programs come first.
    fn prepare(&self, command: &mut Command) {
        let mut path = OsString::from(self.python.parent().unwrap_or(Path::new("")));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path).env("PYTHON", &self.python);
    }

    fn compare(&self, name: &str, budget: u64, arguments: &Arguments) -> Result<()> {
        if self.folder.exists() {
            std::fs::remove_dir_all(&self.folder)?;
        }
        std::fs::create_dir_all(&self.folder)?;
        let folder = self.folder.to_str().context("a path that is no text")?;
        let made = self
            .script(&["make", name, folder, &arguments.mib.to_string()])
            .output()?;
        ensure!(made.status.success(), "{name}: its data: {made:?}");
        let data = data_in(&self.folder)?.with_context(|| format!("{name} made no data"))?;
        let mut costs: [Vec<Cost>; 3] = Default::default();
        for _ in 0..arguments.rounds {
            for (way, costs) in costs.iter_mut().enumerate() {
                match self.once(name, way, &data, budget) {
                    Ok(cost) => costs.push(cost),
                    // Only where no cgroup can be had.
                    Err(why) if way == 1 => println!("{name:<12} {:<16} {why:#}", WAYS[way]),
                    Err(why) => return Err(why),
                }
            }
        }
        println!(
            "{name:<12} {budget} of {} MiB",
            data.metadata()?.len() >> 20
        );
        for (way, costs) in WAYS.iter().zip(&costs) {
            if costs.is_empty() {
                continue;
            }
            let median = |of: &dyn Fn(&Cost) -> f64| {
                let mut all: Vec<f64> = costs.iter().map(of).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            println!(
                "{:<12} {way:<16} {:>7.1} s {:>11.0} {:>12.0} {:>6.0} MiB  {:.1} %",
                "",
                median(&|cost| cost.seconds),
                median(&|cost| cost.shootdowns as f64),
                median(&|cost| cost.major_faults as f64),
                median(&|cost| cost.seen.0),
                median(&|cost| cost.seen.1),
            );
        }
        let mut outputs = costs.iter().flatten().map(|cost| &cost.output);
        let first = outputs.next().context("nothing ran")?;
        ensure!(
            outputs.all(|output| output == first),
            "{name}: the outputs differ"
        );
        Ok(())
    }

    /// One run of one way.
    fn once(&self, name: &str, way: usize, data: &Path, budget: u64) -> Result<Cost> {
        // Every run begins with nothing in memory.
        let forgot = Command::new("dd")
            .arg(format!("of={}", data.display()))
            .args([
                "oflag=nocache",
                "conv=notrunc,fdatasync",
                "count=0",
                "status=none",
            ])
            .status()?;
        ensure!(forgot.success(), "dd: {forgot}");
        let mut watch = Command::new("python3")
            .arg(self.root.join("demo/llama.py"))
            .arg("watch")
            .arg(data)
            .arg(budget.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("python3, which watches the page cache")?;
        let words = ["bash", "demo/programs.sh", "read", name];
        let mut command = match way {
            0 => Command::new("env"),
            _ => {
                let mut command = Command::new(&self.memtide);
                command.args(["pager", "run"]);
                command.args(FILES.iter().flat_map(|pattern| ["--files", pattern]));
                command.arg("--budget").arg(format!("{budget}MiB"));
                command.args((way == 1).then_some("--plain")).arg("--");
                command
            }
        };
        command
            .args(words)
            .arg(&self.folder)
            .current_dir(&self.root);
        self.prepare(&mut command);
        let before = (shootdowns()?, major_faults()?);
        let began = Instant::now();
        let output = command.output()?;
        let seconds = began.elapsed().as_secs_f64();
        let after = (shootdowns()?, major_faults()?);
        if let Some(mut input) = watch.stdin.take() {
            input.write_all(b"end\n")?;
        }
        let seen = watch.wait_with_output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
        let mut seen = seen.split_whitespace().map(str::parse::<f64>);
        let mut number = || seen.next().and_then(Result::ok).context("nobody watched");
        Ok(Cost {
            output: output.stdout,
            seconds,
            shootdowns: after.0 - before.0,
            major_faults: after.1 - before.1,
            seen: (number()?, number()?),
        })
    }
}

/// The file below `folder` that is read: the largest one whose name says so.
fn data_in(folder: &Path) -> Result<Option<PathBuf>> {
    let mut found: Option<(u64, PathBuf)> = None;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.metadata()?);
            let named = path.file_stem().is_some_and(|stem| stem == "data")
                || path.extension().is_some_and(|end| end == "pack");
            if kind.is_dir() {
                folders.push(path);
            } else if named && found.as_ref().is_none_or(|(bytes, _)| *bytes < kind.len()) {
                found = Some((kind.len(), path));
            }
        }
    }
    Ok(found.map(|(_, path)| path))
}

/// TLB shootdown interrupts of the machine since boot.
fn shootdowns() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/interrupts")?;
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("TLB:"));
    let words = line.unwrap_or_default().split_whitespace();
    Ok(words.filter_map(|word| word.parse::<u64>().ok()).sum())
}

/// Faults of the machine since boot that waited for a disk.
fn major_faults() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/vmstat")?;
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix("pgmajfault "));
    Ok(values
        .next()
        .and_then(|value| value.parse().ok())
        .unwrap_or(0))
}
