//! What `memtide weights` says and does on copies of machines. Running kernels,
//! and what they make of a write, are tested in the test guest.
//!
//! After a wanted change run the tests once with `SNAPSHOTS=overwrite` and read
//! the difference.

use serde_json::Value;
use snapbox::Data;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TABLE: &str = "sys/kernel/mm/mempolicy/weighted_interleave";
/// What `memtide run --apply-weights` holds, and notes.
const LOCK: &str = "run/memtide/run-weights.lock";
const NOTE: &str = "run/memtide/run-weights.json";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn fixture(machine: &str) -> PathBuf {
    here("../memtide-linux/tests/fixtures").join(machine)
}

fn measured() -> String {
    here("tests/data/measured-cxl.json").display().to_string()
}

fn weights(root: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memtide"))
        .arg("weights")
        .args(arguments)
        .env("MEMTIDE_ROOT", root)
        .output()
        .expect("the command was just built")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the command prints text")
}

/// Standard output of a run that must succeed in silence.
fn prints(root: &Path, arguments: &[&str]) -> String {
    let output = weights(root, arguments);
    let errors = text(output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    assert_eq!(errors, "");
    text(output.stdout)
}

fn document(root: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&prints(root, &[arguments, &["--json"]].concat())).unwrap()
}

/// Exit status and the one line of a run that must print nothing else.
fn fails(root: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = weights(root, arguments);
    let error = text(output.stderr);
    assert_eq!(output.stdout, b"", "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    let line = error.strip_prefix("memtide: ").expect("the command's name");
    (output.status.code(), line.trim_end().to_owned())
}

fn assert_snapshot(actual: String, name: &str) {
    let expected = Data::read_from(&here("tests/snapshots").join(name), None);
    snapbox::Assert::new()
        .action_env("SNAPSHOTS")
        .eq(Data::text(actual).raw(), expected.raw());
}

/// A copy of a fixture that may be changed.
struct Machine(tempfile::TempDir);

impl Machine {
    fn copy(machine: &str) -> Machine {
        let copied = Machine(tempfile::tempdir().unwrap());
        copy(&fixture(machine), copied.root());
        copied
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    /// Every file with its content, but for the lock, which stays and is empty.
    fn files(&self) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false if path.ends_with(LOCK) => {}
                    false => {
                        drop(files.insert(path.clone(), std::fs::read_to_string(path).unwrap()))
                    }
                }
            }
        }
        files
    }

    /// `holes`, whose weights are 4, 4 and 1, after a run that wanted 5, 4 and 2
    /// was killed.
    fn after_a_killed_run() -> Machine {
        let machine = Machine::copy("holes");
        let root = machine.root();
        std::fs::create_dir_all(root.join("run/memtide")).unwrap();
        let note = r#"{"boot_id":"","weights":{"0":4,"2":4,"5":1},"auto":null,
            "ours":{"0":[4,5],"2":[4],"5":[1,2]}}"#;
        std::fs::write(root.join(NOTE), note).unwrap();
        std::fs::write(root.join(TABLE).join("node0"), "5\n").unwrap();
        std::fs::write(root.join(TABLE).join("node5"), "2\n").unwrap();
        machine
    }

    fn weights(&self) -> [String; 3] {
        [0, 2, 5].map(|node| self.weight(node))
    }

    fn weight(&self, node: u32) -> String {
        let file = self.root().join(TABLE).join(format!("node{node}"));
        std::fs::read_to_string(file).unwrap().trim_end().to_owned()
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
fn the_firmwares_bandwidths_by_the_kernels_rule() {
    for machine in [
        "two-sockets-cxl-hmat",
        "hbm",
        "two-sockets",
        "cxl-no-hmat",
        "one-node",
    ] {
        let printed = prints(&fixture(machine), &[]);
        assert!(!printed.contains('\x1b'), "a pipe gets no escapes");
        assert_snapshot(printed, &format!("weights-{machine}.txt"));
    }
}

#[test]
fn bandwidths_that_are_given() {
    let root = fixture("two-sockets-cxl-hmat");
    let given = |bandwidths| prints(&root, &["--bandwidth", bandwidths]);
    assert_snapshot(given("0=200,2=22"), "weights-given.txt");
    assert_snapshot(given("0=200,2=900MB/s"), "weights-near-alone.txt");
}

#[test]
fn an_earlier_measurement() {
    let root = fixture("two-sockets-cxl-hmat");
    let printed = prints(&root, &["--from", &measured()]);
    assert_snapshot(printed, "weights-measured.txt");
    // The document that is printed can be read again, and says the same.
    let folder = tempfile::tempdir().unwrap();
    let again = folder.path().join("again.json");
    let first = prints(&root, &["--from", &measured(), "--json"]);
    std::fs::write(&again, &first).unwrap();
    let second = prints(&root, &["--from", again.to_str().unwrap(), "--json"]);
    assert_eq!(first, second);
    // Another mix has other curves.
    let read = document(&root, &["--from", &measured(), "--mix", "read"]);
    assert_eq!(read["computed"]["mix"], "read");
    assert_ne!(
        read["computed"]["expected"],
        document(&root, &["--from", &measured()])["computed"]["expected"]
    );
}

#[test]
fn what_is_set_can_be_put_back() {
    let machine = Machine::copy("holes");
    let before = machine.files();
    let root = machine.root();
    let set = document(root, &["--set", "0=9,5=3"]);
    assert_eq!(set["change"]["action"], "set");
    assert_eq!(set["change"]["written"], "0,5");
    assert_eq!(set["nodes"][0]["weight_before"], 4);
    assert_eq!(set["nodes"][0]["weight"], 9);
    assert_eq!([0, 2, 5].map(|node| machine.weight(node)), ["9", "4", "3"]);
    // Given again, there is nothing to do.
    let again = document(root, &["--set", "0=9,5=3"]);
    assert_eq!(again["change"]["written"], "");
    let restored = prints(root, &["--restore"]);
    assert!(
        restored.contains("Put back what stood there before memtide: 0=4,2=4,5=1."),
        "{restored}"
    );
    let after = machine
        .files()
        .into_iter()
        .map(|(path, text)| (path, text.trim_end().to_owned()));
    let before = before
        .into_iter()
        .map(|(path, text)| (path, text.trim_end().to_owned()));
    assert_eq!(after.collect::<BTreeMap<_, _>>(), before.collect());
    assert_eq!(
        fails(root, &["--restore"]),
        (
            Some(1),
            "nothing to put back: memtide has not changed the weights since this boot".to_owned()
        )
    );
}

#[test]
fn what_is_computed_is_applied() {
    let machine = Machine::copy("two-sockets-cxl-hmat");
    let printed = prints(
        machine.root(),
        &["--bandwidth", "0=180,1=180,2=20", "--apply"],
    );
    assert_eq!([0, 1, 2].map(|node| machine.weight(node)), ["9", "9", "1"]);
    assert!(printed.contains("Wrote 0=9,1=9,2=1; "), "{printed}");
    // What the kernel has already is not written, and auto stays as it is.
    let machine = Machine::copy("two-sockets-cxl-hmat");
    let before = machine.files();
    let printed = prints(machine.root(), &["--apply"]);
    assert!(
        printed.contains("Nothing to write: the table reads so already."),
        "{printed}"
    );
    assert_eq!(machine.files(), before);
}

#[test]
fn a_dry_run_says_it_and_changes_nothing() {
    for (arguments, says) in [
        (&["--set", "0=9"][..], "Would write 0=9; "),
        (&["--set", "0=9"], "This would switch auto off: "),
        (
            &["--bandwidth", "0=300,2=100", "--apply"],
            "Would write 0=3,2=1; ",
        ),
        (
            &["--reset"],
            "Would put back: the kernel computes the weights (auto).",
        ),
    ] {
        let machine = Machine::copy("two-sockets-cxl-hmat");
        let before = machine.files();
        let printed = prints(machine.root(), &[arguments, &["--dry-run"]].concat());
        assert!(printed.contains(says), "{arguments:?}: {printed}");
        assert_eq!(machine.files(), before, "{arguments:?}");
    }
    let machine = Machine::copy("two-sockets");
    let printed = prints(machine.root(), &["--reset", "--dry-run"]);
    assert!(
        printed.contains("Would put back: the default of 1 for every node."),
        "{printed}"
    );
}

const LEFT: &str = "left the interleave weights 0=5,2=4,5=2 in place of 0=4,2=4,5=1";

#[test]
fn what_a_killed_run_left_is_shown_and_stays() {
    let machine = Machine::after_a_killed_run();
    let before = machine.files();
    let printed = prints(machine.root(), &[]);
    let says = format!("Not for good: a killed memtide run or service {LEFT}; ");
    assert!(printed.contains(&says), "{printed}");
    let shown = document(machine.root(), &[]);
    assert_eq!(shown["lent"]["killed"], true);
    assert_eq!(shown["nodes"][0]["weight"], 5);
    // As it would be: from what comes back, not from what stands there.
    let would = document(machine.root(), &["--set", "0=9", "--dry-run"]);
    assert_eq!(would["change"]["put_back_first"], true);
    let weights = would["nodes"].as_array().unwrap().iter();
    let weights: Vec<_> = weights.map(|node| node["weight"].clone()).collect();
    assert_eq!(weights, [9, 4, 1]);
    let printed = prints(machine.root(), &["--restore", "--dry-run"]);
    assert!(printed.contains("memtide: 0=4,2=4,5=1."), "{printed}");
    assert_eq!(machine.files(), before);
    // Once somebody else has written the table, it is theirs.
    std::fs::write(machine.root().join(TABLE).join("node2"), "7\n").unwrap();
    assert_eq!(document(machine.root(), &[])["lent"], Value::Null);
}

#[test]
fn what_a_killed_run_left_is_put_back_before_anything_else() {
    for (arguments, weights) in [
        (&["--set", "0=9"][..], ["9", "4", "1"]),
        // Written as it stood there before the run: nothing is left to write.
        (&["--set", "0=4"], ["4", "4", "1"]),
        (&["--bandwidth", "0=300,2=100", "--apply"], ["3", "1", "1"]),
        (&["--restore"], ["4", "4", "1"]),
    ] {
        let machine = Machine::after_a_killed_run();
        let root = machine.root();
        let changed = document(root, arguments);
        assert_eq!(changed["change"]["put_back_first"], true, "{arguments:?}");
        assert_eq!(changed["lent"], Value::Null);
        assert_eq!(machine.weights(), weights, "{arguments:?}");
        assert!(!root.join(NOTE).exists());
        // The weights before are those before the run.
        if weights != ["4", "4", "1"] {
            document(root, &["--restore"]);
            assert_eq!(machine.weights(), ["4", "4", "1"]);
        }
        assert_eq!(fails(root, &["--restore"]).0, Some(1));
    }
    let machine = Machine::after_a_killed_run();
    let printed = prints(machine.root(), &["--set", "0=9"]);
    let says = "Put back first what a killed memtide had left.\nWrote 0=9; ";
    assert!(printed.contains(says), "{printed}");
    // Bad words come before.
    let machine = Machine::after_a_killed_run();
    let before = machine.files();
    assert_eq!(fails(machine.root(), &["--set", "0=9,7=2"]).0, Some(2));
    assert_eq!(machine.files(), before);
}

/// `holes` after a change for good to 9, 9 and 9 was killed at its second write.
fn after_a_change_was_cut_short() -> Machine {
    let machine = Machine::copy("holes");
    let root = machine.root();
    std::fs::create_dir_all(root.join("run/memtide")).unwrap();
    let note = r#"{"boot_id":"","weights":{"0":4,"2":4,"5":1},"auto":null,
        "ours":{"0":[4,9],"2":[4,9],"5":[1,9]},
        "begun":{"weights":{"0":4,"2":4,"5":1},"auto":null,"wanted":{"0":9,"2":9,"5":9}}}"#;
    std::fs::write(root.join("run/memtide/weights.json"), note).unwrap();
    std::fs::write(root.join(TABLE).join("node0"), "9\n").unwrap();
    machine
}

#[test]
fn a_change_that_was_cut_short_is_told_and_mended_first() {
    let machine = after_a_change_was_cut_short();
    let before = machine.files();
    let printed = prints(machine.root(), &[]);
    let says = "Not for good: memtide weights was cut short and left the interleave weights \
                0=9,2=4,5=1, half written, in place of 0=4,2=4,5=1; the next run or service, \
                memtide doctor --restore, or any change here puts it back.";
    assert!(printed.contains(says), "{printed}");
    assert_eq!(document(machine.root(), &[])["lent"]["killed"], true);
    assert_eq!(machine.files(), before);
    for (arguments, weights) in [
        (&["--set", "5=2"][..], ["4", "4", "2"]),
        (&["--restore"], ["4", "4", "1"]),
    ] {
        let machine = after_a_change_was_cut_short();
        let changed = document(machine.root(), arguments);
        assert_eq!(changed["change"]["put_back_first"], true, "{arguments:?}");
        assert_eq!(machine.weights(), weights, "{arguments:?}");
    }
}

#[test]
fn a_table_that_a_run_holds_is_not_written() {
    let machine = Machine::after_a_killed_run();
    let root = machine.root();
    let lock = std::fs::File::create(root.join(LOCK)).unwrap();
    lock.lock().unwrap();
    let before = machine.files();
    for arguments in [
        &["--set", "0=9"][..],
        &["--reset"],
        &["--restore"],
        &["--bandwidth", "0=2", "--apply"],
        &["--measure", "--apply"],
    ] {
        let (status, line) = fails(root, arguments);
        assert_eq!(status, Some(1), "{arguments:?}: {line}");
        assert!(line.contains("when it ends"), "{line}");
    }
    let shown = document(root, &["--set", "0=9", "--dry-run"]);
    assert_eq!(shown["lent"]["killed"], false);
    assert_eq!(shown["change"]["put_back_first"], false);
    assert_eq!(machine.files(), before);
}

#[test]
fn bad_input_names_the_word_and_changes_nothing() {
    let cases: [(&[&str], i32, &str); 29] = [
        (
            &["--set", "0=0"],
            2,
            "\"0\" in \"0=0\" is no weight from 1 to 255",
        ),
        (
            &["--set", "0=9,2=256"],
            2,
            "\"256\" in \"2=256\" is no weight from 1 to 255",
        ),
        (
            &["--set", "0=-1"],
            2,
            "\"-1\" in \"0=-1\" is no weight from 1 to 255",
        ),
        (
            &["--set", "0=3x"],
            2,
            "\"3x\" in \"0=3x\" is no weight from 1 to 255",
        ),
        (&["--set", ""], 2, "empty; give at least one NODE=WEIGHT"),
        (&["--set"], 2, "a value is required"),
        (&["--set", "9"], 2, "\"9\" is not NODE=WEIGHT"),
        (
            &["--set", "-1=9"],
            2,
            "\"-1\" in \"-1=9\" is no node from 0 to 1023",
        ),
        (&["--set", "0=1,0=2"], 2, "node 0 is there twice"),
        (
            &["--set", "0=9,7=2"],
            2,
            "node 7 does not exist; nodes with memory: 0",
        ),
        (
            &["--set", "0=9,1=2"],
            2,
            "node 1 has no memory; nodes with memory: 0",
        ),
        (
            &["--bandwidth", "0=200,7=2", "--apply"],
            2,
            "node 7 does not exist",
        ),
        (
            &["--bandwidth", "0=fast"],
            2,
            "\"fast\" in \"0=fast\" is no bandwidth above 0",
        ),
        (
            &["--bandwidth", "0=-3"],
            2,
            "\"-3\" in \"0=-3\" is no bandwidth above 0",
        ),
        (
            &["--bandwidth", ""],
            2,
            "empty; give at least one NODE=BANDWIDTH",
        ),
        (&["--set", "0=9", "--apply"], 2, "cannot be used with"),
        (&["--set", "0=9", "--reset"], 2, "cannot be used with"),
        (&["--measure", "--from", "x"], 2, "cannot be used with"),
        (
            &["--mix", "3:1"],
            2,
            "possible values: read, 2:1, 1:1, write",
        ),
        (&["--time", "5s"], 2, "--measure"),
        (&["--measure", "--time", "5"], 2, "not a time with its unit"),
        (&["--measure", "--memory", "-1"], 2, "not a size"),
        (&["--measure", "--nodes", ""], 2, "empty; write it as 0,2-3"),
        (&["--measure", "--nodes", "0,!1"], 2, "stand in front of"),
        (
            &["--measure", "--nodes", "+7"],
            2,
            "--nodes: node +7 does not exist",
        ),
        (
            &["--measure", "--cpus", "99"],
            2,
            "--cpus: CPU 99 does not exist",
        ),
        (
            &["--measure"],
            1,
            "only the running machine can be measured",
        ),
        (
            &["--apply"],
            1,
            "nothing to apply: the firmware tells no bandwidths",
        ),
        (&["--from", "no-such-file"], 1, "no-such-file: No such file"),
    ];
    let machine = Machine::copy("node-offline");
    let before = machine.files();
    for (arguments, status, says) in cases {
        let (code, line) = fails(machine.root(), arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {line}");
        assert!(line.contains(says), "{arguments:?}: {line}");
        assert_eq!(machine.files(), before, "{arguments:?}");
    }
}

#[test]
fn a_file_without_a_measurement_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.json");
    for (content, says) in [
        (
            "nodes",
            "no measurement (write one with memtide weights --measure --json)",
        ),
        ("{\"measurement\":null}", "the measurement in it is null"),
        (
            "{\"nodes\":[{}]}",
            "no measurement (write one with memtide weights --measure --json): missing field `node`",
        ),
        ("{\"nodes\":[]}", "no node was measured"),
        (
            "{\"nodes\":[],\"nodes\":[]}",
            "no measurement (write one with memtide weights --measure --json): two values for \"nodes\"",
        ),
        (
            "{\"measurement\":null,\"x\":{\"y\":1,\"y\":2}}",
            "no measurement (write one with memtide weights --measure --json): two values for \"y\"",
        ),
    ] {
        std::fs::write(&file, content).unwrap();
        let (code, line) = fails(&fixture("holes"), &["--from", file.to_str().unwrap()]);
        assert_eq!(code, Some(1), "{line}");
        assert!(
            line.starts_with(&format!("{}: {says}", file.display())),
            "{line}"
        );
    }
    let (_, line) = fails(
        &fixture("holes"),
        &["--from", &measured(), "--mix", "write"],
    );
    assert!(
        line.ends_with(": node 0 was not measured at write"),
        "{line}"
    );
}

#[test]
fn a_kernel_without_a_table_is_a_state_and_not_a_mistake() {
    let machine = Machine::copy("cxl-no-hmat");
    let before = machine.files();
    let no_table = "this kernel (6.6) has no table of interleave weights; \
                    Linux has it since 6.9, with CONFIG_NUMA";
    let shown = document(machine.root(), &["--bandwidth", "0=200,1=22"]);
    assert_eq!(shown["no_table"], no_table);
    assert_eq!(shown["nodes"][0]["weight"], Value::Null);
    assert_eq!(shown["nodes"][0]["computed_weight"], 19);
    for change in [
        &["--set", "0=9"][..],
        &["--reset"],
        &["--restore"],
        &["--bandwidth", "0=2", "--apply"],
    ] {
        assert_eq!(
            fails(machine.root(), change),
            (Some(1), no_table.to_owned())
        );
    }
    assert_eq!(machine.files(), before);
}

/// Every key that the documents hold stands in docs/json.md, and the other
/// way around.
#[test]
fn the_schema_is_documented() {
    let guide = std::fs::read_to_string(here("../../docs/json.md")).unwrap();
    let section = guide.split("\n## ").find(|s| s.starts_with("weights\n"));
    let documented: BTreeSet<&str> = section
        .expect("docs/json.md has a section weights")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let mut used = BTreeSet::new();
    let machine = Machine::copy("two-sockets-cxl-hmat");
    let document = document(machine.root(), &["--from", &measured(), "--apply"]);
    collect_keys(&document, "", &mut used);
    let machine = Machine::after_a_killed_run();
    collect_keys(&self::document(machine.root(), &[]), "", &mut used);
    assert_eq!(
        documented,
        used.iter().map(String::as_str).collect(),
        "documented on the left, printed on the right"
    );
}

fn collect_keys(value: &Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                collect_keys(value, &path, keys);
                keys.insert(path);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect_keys(item, &format!("{path}[]"), keys);
            }
        }
        _ => {}
    }
}
