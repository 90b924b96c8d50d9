//! Real programs, unmodified, with the library and without: the same output. Small;
//! `cargo xtask pager-programs` runs more of them, larger, and measures.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MIB: &str = "24";
const BUDGET: &str = "4MiB";

fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().join("libmemtide_pager_preload.so")
}

fn script(words: &[&str]) -> Command {
    let mut command = Command::new("bash");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/programs.sh");
    command.arg(script).args(words).env("SMALL", "yes");
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Reads a program's data plain and with the library. What is missing is said, and the
/// test is one that was skipped.
fn holds(name: &str) {
    let needs = script(&["needs", name]).output().unwrap();
    if !needs.status.success() {
        println!("skipped: {name}: {}", text(&needs).trim());
        eprintln!("skipped: {name}: {}", text(&needs).trim());
        return;
    }
    // Not where files are kept in memory for good.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let place = folder.path().to_str().unwrap();
    let made = script(&["make", name, place, MIB]).output().unwrap();
    assert!(made.status.success(), "{name}: {made:?}");
    let stats = folder.path().join("stats.json");
    let plain = script(&["read", name, place]).output().unwrap();
    let paged = script(&["read", name, place])
        .env("LD_PRELOAD", library())
        .env("MEMTIDE_PAGER_FILES", "data.*:*.pack")
        .env("MEMTIDE_PAGER_BUDGET", BUDGET)
        .env("MEMTIDE_PAGER_STATS", &stats)
        .output()
        .unwrap();
    assert!(plain.status.success(), "{name}: {plain:?}");
    assert!(paged.status.success(), "{name}: {paged:?}");
    assert!(!plain.stdout.is_empty(), "{name}: {plain:?}");
    assert_eq!(text(&plain), text(&paged), "{name}");
    let reports = std::fs::read_to_string(stats).unwrap();
    let kept = reports.lines().map(|line| {
        let report: serde_json::Value = serde_json::from_str(line).unwrap();
        report["kept_mappings"].as_u64().unwrap()
    });
    assert!(kept.sum::<u64>() > 0, "{name}: {reports}");
}

#[test]
fn sqlite3_looks_up_the_same_rows() {
    holds("sqlite3");
}

#[test]
fn ripgrep_finds_the_same_lines() {
    holds("ripgrep");
}

#[test]
fn git_reads_the_same_objects() {
    holds("git");
}

#[test]
fn numpy_sums_to_the_same() {
    holds("numpy");
}
