//! `memtide trace import`: what perf recorded becomes a trace.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn recording() -> PathBuf {
    here("../memtide-linux/tests/recordings/minor-faults.perf.data")
}

fn import(recording: &Path, output: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memtide"))
        .args(["trace", "import"])
        .arg(recording)
        .arg("-o")
        .arg(output)
        .args(more)
        .output()
        .expect("the command was just built")
}

/// Exit status and the one line of a run that must fail.
fn fails(recording: &Path, output: &Path, more: &[&str]) -> (Option<i32>, String) {
    let run = import(recording, output, more);
    let error = String::from_utf8(run.stderr).unwrap();
    assert_eq!(
        (run.stdout, error.lines().count()),
        (Vec::new(), 1),
        "{error}"
    );
    assert!(!output.exists(), "{error}");
    (run.status.code(), error)
}

#[test]
fn a_recording_becomes_rows_in_the_order_of_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("dd.csv");
    let run = import(&recording(), &output, &[]);
    assert!(run.status.success());
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(
        text.contains("112 accesses of 1 thread in 0.001 s, process 13188 (dd)"),
        "{text}"
    );
    let rows = std::fs::read_to_string(output).unwrap();
    let rows: Vec<Vec<&str>> = rows
        .lines()
        .skip(1)
        .map(|row| row.split(',').collect())
        .collect();
    assert_eq!(rows.len(), 112);
    let times: Vec<u64> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(times.is_sorted());
    assert!(
        rows.iter()
            .all(|row| row[1] == "13188" && row[3] == "false")
    );
}

#[test]
fn what_is_wrong_is_one_line_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.parquet");
    let (status, error) = fails(&here("Cargo.toml"), &trace, &[]);
    assert_eq!(status, Some(1));
    assert!(error.contains("Cargo.toml: no perf.data file"), "{error}");
    let (status, error) = fails(&recording(), &folder.path().join("trace.txt"), &[]);
    assert_eq!(status, Some(2));
    assert!(error.contains("ends with .parquet or .csv"), "{error}");
    let (status, error) = fails(&recording(), &trace, &["--pid", "7"]);
    assert_eq!(status, Some(2));
    assert!(error.contains("it has 13188 (dd, 112)"), "{error}");
    let (status, error) = fails(&folder.path().join("absent"), &trace, &[]);
    assert_eq!(status, Some(1));
    assert!(error.contains("absent: No such file"), "{error}");
}

/// Every key of the document stands in docs/json.md, and the other way around.
#[test]
fn the_documents_keys_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let run = import(&recording(), &folder.path().join("dd.parquet"), &["--json"]);
    let document: Value = serde_json::from_slice(&run.stdout).unwrap();
    let guide = std::fs::read_to_string(here("../../docs/json.md")).unwrap();
    let section = guide
        .split("\n## ")
        .find(|section| section.starts_with("trace import"));
    let section = section.expect("docs/json.md has a section trace import");
    let mut explained: Vec<&str> = (section.lines())
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    explained.sort_unstable();
    let mut keys: Vec<&str> = document
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, explained);
}
