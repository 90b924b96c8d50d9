//! `memtide run` and `memtide rebalance` used wrongly: exit status 2 and one
//! line that names the word, and nothing is started or moved.
//!
//! All runs read copies of machines. Well-formed ones end at the latest where
//! the running machine would be needed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The largest process id that could be, which no copy of a machine has.
const ABSENT_PID: &str = "4194304";
/// Ends every command line that makes sense.
const ONLY_LIVE: &str = "running machine";

fn fixture(machine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../memtide-linux/tests/fixtures")
        .join(machine)
}

/// Exit status and the one line of a run that must fail in silence otherwise.
fn fails(machine: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_memtide"))
        .args(arguments)
        .env("MEMTIDE_ROOT", fixture(machine))
        .output()
        .expect("the command was just built");
    let error = String::from_utf8(output.stderr).expect("the command prints text");
    assert_eq!(output.stdout, b"", "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    let line = error.strip_prefix("memtide: ").expect("the command's name");
    (output.status.code(), line.trim_end().to_owned())
}

/// Nodes 0 and 1 with CPUs, node 2 without.
fn on_cxl(arguments: &[&str], status: i32, words: &str) {
    let (code, line) = fails("two-sockets-cxl-hmat", arguments);
    assert_eq!(code, Some(status), "{arguments:?}: {line}");
    assert!(
        line.contains(words),
        "{arguments:?}: {line:?} does not say {words:?}"
    );
}

#[test]
fn numactls_options_are_understood() {
    for options in [
        &["--interleave", "0,2"][..],
        &["-i", "all"],
        &["--interleave=!1"],
        &["--weighted-interleave", "0-2"],
        &["-w+0,2"],
        &["--membind=2"],
        &["-m", "0-1", "--balancing"],
        &["--preferred", "1"],
        &["-p!0,2"],
        &["--preferred-many=1,2", "-b"],
        &["-P", "1"],
        &["--localalloc"],
        &["-l", "--cpunodebind", "1"],
        &["-N", "all", "-m", "2"],
        &["--physcpubind", "0"],
        &["-C", "+0"],
        &["--all", "-m", "0"],
        &["-w", "0,2", "--weights", "0=9,2=1", "--apply-weights"],
    ] {
        on_cxl(&[&["run"], options, &["true"]].concat(), 1, ONLY_LIVE);
    }
}

#[test]
fn what_belongs_to_the_program_is_left_to_it() {
    for program in [
        &["true", "--json", "-m", "9"][..],
        &["--", "true"],
        &["ls", "-l"],
    ] {
        on_cxl(&[&["run", "-m", "0"], program].concat(), 1, ONLY_LIVE);
    }
}

#[test]
fn a_list_that_makes_no_sense_is_named() {
    for option in [
        "--interleave",
        "--weighted-interleave",
        "--membind",
        "--preferred-many",
    ] {
        for (list, words) in [
            ("", "the list is empty"),
            ("x", "\"x\" is no number"),
            ("-1", "\"-1\" is no number"),
            ("0,", "\"\" is no number"),
            ("2-0", "\"2-0\" is backwards"),
            ("0,!1", "\"!1\": ! and + stand in front"),
            ("3", "node 3 does not exist; the nodes are 0-2"),
            ("0-9", "node 3 does not exist"),
            ("1024", "node 1024 does not exist"),
            ("99999", "\"99999\" is larger"),
            ("!all", "the list !all leaves no node"),
            ("+3", "node +3 does not exist: 3 may be used"),
        ] {
            on_cxl(&["run", option, list, "true"], 2, words);
            on_cxl(&["run", option, list, "true"], 2, option);
        }
    }
    on_cxl(
        &["run", "--preferred", "0,1", "true"],
        2,
        "0,1 is more than one node",
    );
    on_cxl(
        &["run", "--cpunodebind", "2", "true"],
        2,
        "node 2 has no CPUs",
    );
    on_cxl(
        &["run", "--physcpubind", "512", "true"],
        2,
        "CPU 512 does not exist",
    );
}

#[test]
fn holes_in_the_numbers_are_no_nodes() {
    assert_eq!(
        fails("holes", &["run", "--membind", "1", "true"]),
        (
            Some(2),
            "--membind: node 1 does not exist; the nodes are 0,2,5".to_owned()
        )
    );
}

#[test]
fn options_that_contradict_each_other_are_bad_usage() {
    for (arguments, words) in [
        (&["run"][..], "<PROGRAM>"),
        (&["run", "-m", "0"], "<PROGRAM>"),
        (&["run", "true"], "nothing to set for true"),
        (&["run", "--all", "true"], "nothing to set for true"),
        (
            &["run", "-m", "0", "-i", "1", "true"],
            "cannot be used with",
        ),
        (&["run", "-l", "-p", "1", "true"], "cannot be used with"),
        (
            &["run", "-N", "0", "-C", "0", "true"],
            "cannot be used with",
        ),
        (&["run", "-b", "true"], "--membind <NODES>|--preferred-many"),
        (
            &["run", "-b", "-i", "0", "true"],
            "--membind <NODES>|--preferred-many",
        ),
        (
            &["run", "-i", "0", "--weights", "0=1", "true"],
            "--weighted-interleave",
        ),
        (&["run", "-w", "0", "--apply-weights", "true"], "--weights"),
        (
            &["run", "-w", "0,2", "--weights", "0=9", "true"],
            "node 2 of --weighted-interleave 0,2",
        ),
        (
            &["run", "-w", "0", "--weights", "0=9,2=1", "true"],
            "node 2 is not among",
        ),
        (
            &["run", "--colour", "true"],
            "unexpected argument '--colour'",
        ),
        (&["rebalance"], "--pid <PID>"),
        (&["rebalance", "--pid", ABSENT_PID], "--weights"),
        (&["rebalance", "--weights", "0=1"], "--pid"),
    ] {
        on_cxl(arguments, 2, words);
    }
}

#[test]
fn weights_that_make_no_sense_are_named() {
    let run = ["run", "-w", "0,2", "--weights"];
    let rebalance = ["rebalance", "--pid", ABSENT_PID, "--weights"];
    for (weights, words) in [
        ("0=0,2=1", "\"0=0\""),
        ("0=256,2=1", "\"256\""),
        ("0=-1,2=1", "\"-1\""),
        ("0=3x,2=1", "\"3x\""),
        ("", "empty"),
        ("0", "\"0\""),
        ("x=1", "\"x\""),
        ("0=1,0=2", "node 0"),
        ("0=9,3=1", "node 3 does not exist; the nodes are 0-2"),
        ("1024=1", "\"1024\""),
    ] {
        on_cxl(&[&run[..], &[weights, "true"]].concat(), 2, words);
        on_cxl(&[&rebalance[..], &[weights]].concat(), 2, words);
    }
    on_cxl(&[&rebalance[..], &["0=9,2=1"]].concat(), 1, ONLY_LIVE);
    for (option, words) in [
        ("--rate-limit=x", "not a size"),
        ("--pid=0", "not a process id"),
    ] {
        on_cxl(&["rebalance", "--weights", "0=1", option], 2, words);
    }
}
