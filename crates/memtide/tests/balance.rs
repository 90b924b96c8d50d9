//! `memtide balance` where it cannot work, and used wrongly: an exit status and
//! one clear line, and no kernel is touched. All runs read copies of machines.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The largest number that could be a process's, which no copy has.
const ABSENT_PID: &str = "4194304";

fn fixture(machine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../memtide-linux/tests/fixtures")
        .join(machine)
}

/// Exit status and the one line of a run that must fail in silence otherwise.
fn fails(machine: &str, words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_memtide"))
        .arg("balance")
        .args(words)
        .env("MEMTIDE_ROOT", fixture(machine))
        .output()
        .expect("the command was just built");
    let error = String::from_utf8(output.stderr).expect("the command prints text");
    assert_eq!(output.stdout, b"", "{words:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{words:?}: {error}");
    let line = error.strip_prefix("memtide: ").expect("the command's name");
    (output.status.code(), line.trim_end().to_owned())
}

#[test]
fn one_node_has_nothing_to_choose() {
    for selection in [&["--all"][..], &["--pid", ABSENT_PID], &["--cgroup", "/x"]] {
        let (status, line) = fails("one-node", selection);
        assert_eq!(status, Some(1), "{line}");
        assert!(
            line.starts_with("fewer than two nodes have both CPUs and memory"),
            "{line}"
        );
    }
}

#[test]
fn words_that_make_no_sense_are_bad_usage() {
    for (words, right) in [
        (&[][..], "--pid <PID>|--cgroup <PATH>|--all"),
        (&["--all", "--pid", "1"], "cannot be used with"),
        (&["--all", "--source", "damon"], "invalid value 'damon'"),
        (&["--all", "--tasks=always"], "invalid value 'always'"),
        (&["--all", "--tasks", "set"], "unexpected argument 'set'"),
        (&["--all", "--cpu-limit", "0"], "from 0.1 to 100"),
        (&["--all", "--cpu-limit", "-1"], "from 0.1 to 100"),
        (&["--all", "--rate", "0"], "from 1 to 1000000"),
        (&["--all", "--duration", "5"], "not a time with its unit"),
        (&["--all", "--headroom", "-1"], "not a size"),
    ] {
        let (status, line) = fails("two-sockets", words);
        assert_eq!(status, Some(2), "{words:?}: {line}");
        assert!(line.contains(right), "{words:?}: {line}");
    }
}

#[test]
fn a_copy_of_a_machine_has_no_pages_to_move() {
    // Whatever sources the copy has: it ends before a page is touched.
    let (status, line) = fails("two-sockets", &["--pid", ABSENT_PID]);
    assert_eq!(status, Some(1), "{line}");
}
