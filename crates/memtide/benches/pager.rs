//! TLB shootdowns and reads of the pager, beside eager eviction and the kernel.
//!
//! Reader threads on every processor read pages of a file four times the budget
//! and check each byte. `memtide pager` runs the three ways in turn, each in a
//! process of its own; this repeats that and takes medians, since the interrupts
//! are the whole machine's and other programs share it. Promised are 5 % of
//! eager eviction's shootdowns a page and no fewer reads; what reclaim in a
//! memory cgroup comes to stands beside.
//!
//! `cargo bench -p memtide --bench pager`: options `--mib 1024`, `--rounds 3`,
//! `--seconds 4`, and patterns (`uniform hot sweep`).

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

struct Options {
    mib: u64,
    rounds: usize,
    seconds: String,
    patterns: Vec<String>,
}

fn options() -> Options {
    let mut options = Options {
        mib: 1024,
        rounds: 3,
        seconds: "4".to_owned(),
        patterns: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .unwrap_or_else(|| panic!("{word}: give a value"))
        };
        match word.as_str() {
            "--mib" => options.mib = value().parse().expect("a number of MiB"),
            "--rounds" => options.rounds = value().parse().expect("a number of rounds"),
            "--seconds" => options.seconds = value(),
            // Cargo's own.
            "--bench" => {}
            pattern => options.patterns.push(pattern.to_owned()),
        }
    }
    if options.patterns.is_empty() {
        options.patterns = ["uniform", "hot", "sweep"].map(str::to_owned).to_vec();
    }
    options
}

fn memtide(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_memtide"))
        .arg("pager")
        .args(arguments)
        .output()
        .expect("the command was just built");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{error}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    output.stdout
}

/// A folder on a disk: what lies in memory cannot be evicted.
fn folder() -> tempfile::TempDir {
    let in_memory = |path: &Path| {
        let kind = rustix::fs::statfs(path).map(|status| status.f_type);
        kind.is_ok_and(|kind| kind == 0x0102_1994)
    };
    let usual = std::env::temp_dir();
    let place = if in_memory(&usual) {
        PathBuf::from("/var/tmp")
    } else {
        usual
    };
    tempfile::tempdir_in(place).expect("a folder")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Medians of a way over all rounds: reads a second, shootdowns a page, peak MiB.
fn medians(rounds: &[Value], way: &str) -> Option<[f64; 3]> {
    let values = |key: &str| -> Vec<f64> {
        let ways = rounds
            .iter()
            .flat_map(|round| round["ways"].as_array().expect("ways"));
        ways.filter(|row| row["way"] == way)
            .filter_map(|row| row[key].as_f64())
            .collect()
    };
    let reads = values("reads_per_s");
    (!reads.is_empty()).then(|| {
        let peak = median(values("peak_resident_bytes")) / f64::from(1 << 20);
        [
            median(reads),
            median(values("shootdowns_per_evicted_page")),
            peak,
        ]
    })
}

fn main() -> ExitCode {
    let options = options();
    let folder = folder();
    let path = folder.path().join("weights.bin");
    let path = path.to_str().expect("a path of ours");
    let mib = format!("{}MiB", options.mib);
    memtide(&["--make", path, "--size", &mib]);
    let budget = format!("{}MiB", options.mib / 4);
    println!(
        "{mib}, budget {budget}, a thread for each processor, medians of {} rounds",
        options.rounds
    );
    println!("pattern  way                  reads/s  shootdowns/page  peak MiB");
    let mut kept = true;
    for pattern in &options.patterns {
        let arguments = [
            path,
            "--budget",
            &budget,
            "--pattern",
            pattern,
            "--duration",
            &format!("{}s", options.seconds),
            "--json",
        ];
        let rounds: Vec<Value> = (0..options.rounds)
            .map(|_| serde_json::from_slice(&memtide(&arguments)).expect("a document"))
            .collect();
        for (way, name) in [
            ("kernel", "plain mmap, cgroup"),
            ("eager", "pager, page by page"),
            ("lazy", "pager"),
        ] {
            if let Some([reads, each, peak]) = medians(&rounds, way) {
                println!("{pattern:8} {name:19} {reads:>8.0}  {each:>15.5}  {peak:>8.0}");
            }
        }
        if let (Some(eager), Some(lazy)) = (medians(&rounds, "eager"), medians(&rounds, "lazy")) {
            let (reads, each) = (lazy[0] / eager[0], lazy[1] / eager[1]);
            // The uniform pattern is the promised one.
            kept &= pattern != "uniform" || reads >= 1.0 && each <= 0.05;
            println!(
                "{pattern:8} against page by page: {:.2} % fewer shootdowns a page, {:+.0} % reads",
                (1.0 - each) * 100.0,
                (reads - 1.0) * 100.0
            );
        }
    }
    println!("promise: {}", if kept { "kept" } else { "NOT KEPT" });
    if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
