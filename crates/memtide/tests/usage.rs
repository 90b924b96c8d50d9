//! What happens to those who use the command wrongly, or on a machine where
//! it cannot work: an exit status and one clear line, and no kernel is touched.
//!
//! All runs read copies of machines. Those of `memtide tier` end before a
//! source is opened, or name a process that cannot exist.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Larger than any process id of the kernel's, 1 << 22 at most ...
const NO_PID: &str = "4194305";
/// ... and the largest that could be one, which no copy of a machine has.
const ABSENT_PID: &str = "4194304";

fn fixture(machine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../memtide-linux/tests/fixtures")
        .join(machine)
}

/// Exit status and the one line of a run that must fail in silence otherwise.
fn fails(root: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_memtide"))
        .args(arguments)
        .env("MEMTIDE_ROOT", root)
        .output()
        .expect("the command was just built");
    let error = String::from_utf8(output.stderr).expect("the command prints text");
    assert_eq!(output.stdout, b"", "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    let line = error.strip_prefix("memtide: ").expect("the command's name");
    (output.status.code(), line.trim_end().to_owned())
}

/// A copy of a fixture that may be changed.
struct Machine(tempfile::TempDir);

impl Machine {
    fn copy(machine: &str) -> Machine {
        let copied = Machine(tempfile::tempdir().unwrap());
        copy(&fixture(machine), copied.0.path());
        copied
    }

    fn with(self, file: &str, text: &str) -> Machine {
        std::fs::write(self.0.path().join(file), text).unwrap();
        self
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => std::fs::write(&target, std::fs::read(entry.path()).unwrap()).unwrap(),
        }
    }
}

#[test]
fn nonsense_in_an_option_is_named_with_what_would_be_right() {
    let cases: [(&str, &[&str], &str); 18] = [
        (
            "--pid",
            &["x", "0", "-1", "1.5", NO_PID, " 1"],
            "not a process id, 1 to 4194304",
        ),
        (
            "--source",
            &["x", "Damon", "damon,x"],
            "possible values: auto, damon",
        ),
        (
            "--source",
            &["damon,auto", "auto,auto"],
            "auto stands alone",
        ),
        ("--source", &["damon,page-table"], "name one of them"),
        ("--source", &["ibs,ibs"], "a source is named twice"),
        (
            "--gate",
            &["x", "2"],
            "possible values: pghot, threshold-free",
        ),
        (
            "--rate-limit",
            &["x", "-1", "1QB"],
            "not a size; write it as 64MiB or 1G",
        ),
        (
            "--rate-limit",
            &["99999999999999999999G"],
            "more than there can be",
        ),
        (
            "--headroom",
            &["lots", "-64MiB", "MiB"],
            "not a size; write it as 64MiB or 1G",
        ),
        (
            "--threshold",
            &["0", "8", "x", "-1"],
            "not a number from 1 to 7",
        ),
        (
            "--window",
            &["5", "soon", "-1s"],
            "not a time with its unit; write it as 500ms or 10s",
        ),
        ("--window", &["0s", "17s"], "1000 to 16383 ms"),
        (
            "--observe-cpu",
            &["0", "101", "5%", "-5"],
            "not a number from 1 to 100",
        ),
        (
            "--demote-idle",
            &["600", "soon", "-10m"],
            "not a time with its unit; write it as 90s or 10m",
        ),
        (
            "--demote-idle",
            &["9s", "31days"],
            "not a time from 10s to 30days",
        ),
        (
            "--demote-idle-rate",
            &["fast", "-1"],
            "not a size; write it as 64MiB or 1G",
        ),
        (
            "--duration",
            &["5", "x", "5 bananas"],
            "not a time with its unit; write it as 500ms or 10s",
        ),
        ("--dry-run", &["=maybe"], "no more were expected"),
    ];
    let root = fixture("one-node");
    for (option, values, right) in cases {
        for value in values {
            let joined = match value.strip_prefix('=') {
                Some(_) => format!("{option}{value}"),
                None => format!("{option}={value}"),
            };
            let (status, line) = fails(&root, &["tier", "--pid", ABSENT_PID, &joined]);
            assert_eq!(status, Some(2), "{joined}: {line}");
            assert!(line.contains(right), "{joined}: {line}");
            assert!(line.contains(option), "{joined}: {line}");
        }
    }
}

#[test]
fn negative_numbers_are_values_and_not_options() {
    for option in [
        "--pid",
        "--rate-limit",
        "--headroom",
        "--threshold",
        "--observe-cpu",
    ] {
        let (status, line) = fails(&fixture("one-node"), &["tier", option, "-1"]);
        assert_eq!(status, Some(2), "{line}");
        assert!(
            line.contains(&format!("invalid value '-1' for '{option}")),
            "{line}"
        );
    }
}

/// `+5` is a number to the standard library, and a slip of the hand to us.
#[test]
fn a_number_has_no_plus() {
    for words in [
        "tier --pid +1",
        "tier --all --threshold +2",
        "tier --all --observe-cpu +5",
        "balance --all --cpu-limit +5",
        "tier --all --tiers 0-+1/2",
        "tier --all --tiers +0,1/2",
        "topology --tiers 0-+1/2",
        "explain +1 0x1",
        "explain 1 0x+1",
        "explain 1 +1",
        "sim run x --seed=+1",
        "sim run x --seeds=+1",
        "sim run x --scale=1/+16",
        "sim run x --jobs=+1",
        "policy place interleave 0-+1",
        "policy place interleave 0 --nodes +0-1",
        "policy place interleave 0 --nodes 0-1 --kernel +6.+12",
        "policy place interleave 0 --nodes 0-1 --run-on +0",
        "policy place interleave 0 --nodes 0-1 --pages 0-+1",
        "policy place 0x+1 0",
        "rebalance --pid 1 --weights +0=1",
        "weights --set 0=+1",
        "pager x --budget 1MiB --threads +1",
    ] {
        let arguments: Vec<&str> = words.split(' ').collect();
        let (status, line) = fails(&fixture("one-node"), &arguments);
        assert_eq!(status, Some(2), "{words}: {line}");
        assert!(line.contains("invalid value"), "{words}: {line}");
    }
}

#[test]
fn values_that_are_missing_or_too_many_are_bad_usage() {
    let root = fixture("one-node");
    let options = [
        "--pid",
        "--cgroup",
        "--source",
        "--gate",
        "--rate-limit",
        "--headroom",
        "--threshold",
        "--window",
        "--observe-cpu",
        "--duration",
    ];
    for option in options {
        let (status, line) = fails(&root, &["tier", "--all", option]);
        assert_eq!(status, Some(2), "{option}: {line}");
        assert!(
            line.contains(&format!("a value is required for '{option}")),
            "{line}"
        );
    }
    for (arguments, right) in [
        (&["tier"][..], "--pid <PID>|--cgroup <PATH>|--all"),
        (&["tier", "--dry-run"], "--pid <PID>|--cgroup <PATH>|--all"),
        (&["tier", "--all", "--pid", "1"], "cannot be used with"),
        (&["tier", "--all", "--cgroup", "/x"], "cannot be used with"),
        (&["tier", "--all", "--all"], "cannot be used multiple times"),
        (&["tier", "--all", "now"], "unexpected argument 'now'"),
        (&["tier", "--all", "--fast"], "unexpected argument '--fast'"),
        (&["topology", "now"], "unexpected argument 'now'"),
        (&["topology", "--json=yes"], "unexpected value 'yes'"),
        (&["topology", "--root"], "a value is required"),
        (&["topology", "--pid", "1"], "unexpected argument '--pid'"),
    ] {
        let (status, line) = fails(&root, arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {line}");
        assert!(line.contains(right), "{arguments:?}: {line}");
    }
}

#[test]
fn one_tier_leaves_nothing_to_promote() {
    for machine in ["one-node", "two-sockets"] {
        for selection in [&["--all"][..], &["--pid", ABSENT_PID], &["--cgroup", "/x"]] {
            let arguments = [&["tier"], selection].concat();
            assert_eq!(
                fails(&fixture(machine), &arguments),
                (
                    Some(1),
                    "this machine has one tier of memory, so there is nothing to promote; \
                     memtide topology shows its nodes, and the option tiers gives them tiers by hand"
                        .to_owned()
                ),
                "{machine}"
            );
        }
    }
}

#[test]
fn a_file_that_makes_no_sense_is_named_with_line_and_item() {
    for (file, text, words) in [
        ("sys/devices/system/node/online", "0-x\n", ":1: node list: "),
        (
            "sys/devices/system/node/node2/meminfo",
            "Node 2 MemTotal: many kB\n",
            ":1: MemTotal: ",
        ),
        (
            "sys/devices/system/node/node1/distance",
            "20 10 near\n",
            ":1: ",
        ),
    ] {
        let machine = Machine::copy("two-sockets-cxl-hmat").with(file, text);
        let path = machine.0.path().join(file);
        for arguments in [&["topology"][..], &["tier", "--pid", ABSENT_PID]] {
            let (status, line) = fails(machine.0.path(), arguments);
            assert_eq!(status, Some(1), "{line}");
            let place = format!("{}{words}", path.display());
            assert!(line.starts_with(&place), "{line}");
        }
    }
}

#[test]
fn a_right_that_is_missing_is_named() {
    // All 41 rights but bit 23, which is CAP_SYS_NICE: moving shared pages.
    let machine = Machine::copy("two-sockets-cxl-hmat").with(
        "proc/self/status",
        "Name:\tmemtide\nCapEff:\t000001ffff7fffff\n",
    );
    assert_eq!(
        fails(machine.0.path(), &["tier", "--pid", ABSENT_PID]),
        (
            Some(1),
            "not permitted: CAP_SYS_NICE is missing; run as root".to_owned()
        )
    );
    // None at all; a dry run moves nothing and needs one less.
    let machine = machine.with("proc/self/status", "Name:\tmemtide\nCapEff:\t0\n");
    for (option, missing) in [
        ("--explain", "CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_SYS_NICE"),
        ("--dry-run", "CAP_SYS_PTRACE, CAP_SYS_ADMIN"),
    ] {
        assert_eq!(
            fails(machine.0.path(), &["tier", "--pid", ABSENT_PID, option]),
            (
                Some(1),
                format!("not permitted: {missing} is missing; run as root")
            )
        );
    }
    let machine = machine.with("proc/self/status", "Name:\tmemtide\nCapEff:\tall\n");
    let (status, line) = fails(machine.0.path(), &["tier", "--pid", ABSENT_PID]);
    assert_eq!(status, Some(1));
    assert!(line.contains("proc/self/status:2: CapEff: "), "{line}");
}

#[test]
fn a_source_that_is_not_there_says_what_is_missing() {
    let machine =
        Machine::copy("two-sockets-cxl-hmat").with("proc/sys/kernel/numa_balancing", "0\n");
    for (source, words) in [
        (
            "hint-faults",
            "numa_balancing is 0: no hint faults unless it is turned on",
        ),
        (
            "page-table",
            "kcore: not there; use a kernel with CONFIG_PROC_KCORE",
        ),
        ("auto", "no source of accesses works here: "),
    ] {
        let arguments = ["tier", "--pid", ABSENT_PID, "--source", source];
        let (status, line) = fails(machine.0.path(), &arguments);
        assert_eq!(status, Some(1), "{line}");
        assert!(line.contains(words), "{line}");
    }
}
