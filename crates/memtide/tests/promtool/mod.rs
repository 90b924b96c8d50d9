//! Prometheus' own tool, asked by tests of the program and of what is deployed beside it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where it is installed; where it is not, that is said.
pub fn promtool() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&path).map(|folder| folder.join("promtool"));
    let found = all.find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: promtool is not installed");
        eprintln!("skipped: promtool is not installed");
    }
    found
}

/// Runs `promtool` from the repository's root with `input`; it must agree.
pub fn agrees(promtool: &Path, words: &[&str], input: &str) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut child = Command::new(promtool)
        .args(words)
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may not ask for any.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(output.status.success(), "promtool {words:?}: {told}");
}
