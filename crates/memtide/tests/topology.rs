//! What `memtide topology` prints on machines of all shapes.
//!
//! The machines are memtide-linux's fixtures, the expected output stands in
//! `tests/snapshots/`. After a wanted change run the tests once with
//! `SNAPSHOTS=overwrite` and read the difference.

use snapbox::Data;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MACHINES: [&str; 7] = [
    "one-node",
    "two-sockets",
    "two-sockets-cxl-hmat",
    "cxl-no-hmat",
    "hbm",
    "node-offline",
    "holes",
];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn fixture(machine: &str) -> PathBuf {
    here("../memtide-linux/tests/fixtures").join(machine)
}

fn memtide(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    command.args(arguments).env_remove("MEMTIDE_ROOT");
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the command was just built")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the command prints text")
}

/// Standard output of a run that must succeed in silence.
fn prints(command: &mut Command) -> String {
    let output = output(command);
    let errors = text(output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");
    text(output.stdout)
}

/// Exit status and standard error of a run that must print nothing else.
fn fails(command: &mut Command) -> (Option<i32>, String) {
    let output = output(command);
    assert_eq!(text(output.stdout), "");
    (output.status.code(), text(output.stderr))
}

fn assert_snapshot(actual: String, name: &str) {
    let expected = Data::read_from(&here("tests/snapshots").join(name), None);
    snapbox::Assert::new()
        .action_env("SNAPSHOTS")
        .eq(Data::text(actual).raw(), expected.raw());
}

#[test]
fn tables_of_every_machine() {
    for machine in MACHINES {
        let printed = prints(memtide(&["topology"]).arg("--root").arg(fixture(machine)));
        assert!(!printed.contains('\x1b'), "a pipe gets no escapes");
        assert_snapshot(printed, &format!("topology-{machine}.txt"));
    }
}

#[test]
fn documents_of_every_machine() {
    for machine in MACHINES {
        let printed =
            prints(memtide(&["topology", "--json"]).env("MEMTIDE_ROOT", fixture(machine)));
        let document: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert!(document["nodes"].is_array());
        assert_snapshot(printed, &format!("topology-{machine}.json"));
    }
}

#[test]
fn tiers_by_hand_are_shown_and_refused_where_they_do_not_fit() {
    let with = |tiers| {
        let mut command = memtide(&["topology", "--json", "--tiers", tiers]);
        command.env("MEMTIDE_ROOT", fixture("two-sockets"));
        command
    };
    let printed = prints(&mut with("1/0"));
    let document: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(document["tier_origin"], "by-hand");
    assert_eq!(document["nodes"][0]["promotion_target"], 1);
    assert_eq!(document["nodes"][1]["top_tier"], true);
    for (tiers, wrong) in [
        (
            "0/7",
            "--tiers 0/7: node 7 is in a tier, but this machine has no memory there",
        ),
        ("0/1/1", "node 1 is in two tiers"),
        ("0,1", "one tier only"),
    ] {
        let output = with(tiers).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && error.contains(wrong),
            "{tiers}: {error}"
        );
    }
}

/// Every key that the documents hold stands in docs/json.md, and the other
/// way around.
#[test]
fn the_schema_is_documented() {
    let guide = std::fs::read_to_string(here("../../docs/json.md")).unwrap();
    let section = guide.split("\n## ").find(|s| s.starts_with("topology\n"));
    let documented: std::collections::BTreeSet<&str> = section
        .expect("docs/json.md has a section topology")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let mut used = std::collections::BTreeSet::new();
    let printed = prints(
        memtide(&["topology", "--json"])
            .arg("--root")
            .arg(fixture("hbm")),
    );
    collect_keys(&serde_json::from_str(&printed).unwrap(), "", &mut used);
    assert_eq!(
        documented,
        used.iter().map(String::as_str).collect(),
        "documented on the left, printed on the right"
    );
}

fn collect_keys(
    value: &serde_json::Value,
    path: &str,
    keys: &mut std::collections::BTreeSet<String>,
) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                collect_keys(value, &path, keys);
                keys.insert(path);
            }
        }
        serde_json::Value::Array(items) => {
            for item in items {
                collect_keys(item, &format!("{path}[]"), keys);
            }
        }
        _ => {}
    }
}

#[test]
fn the_running_machine_has_an_answer() {
    let output = output(memtide(&["topology"]).env("NO_COLOR", "1"));
    let errors = text(output.stderr);
    if output.status.success() {
        assert!(text(output.stdout).starts_with("node"));
    } else {
        // A kernel without NUMA; anything else is a failure of ours.
        assert!(errors.contains("CONFIG_NUMA"), "{errors}");
        println!("this machine has no NUMA: {errors}");
    }
}

#[test]
fn errors_are_one_line() {
    let empty = tempfile::tempdir().unwrap();
    let missing = empty.path().join("sys/devices/system/node/online");
    assert_eq!(
        fails(memtide(&["topology"]).arg("--root").arg(empty.path())),
        (
            Some(1),
            format!(
                "memtide: {}: missing: the list of memory nodes; \
                 the kernel needs CONFIG_NUMA and sysfs mounted\n",
                missing.display()
            )
        )
    );
    assert_eq!(
        fails(&mut memtide(&["topology", "--colour"])),
        (
            Some(2),
            "memtide: unexpected argument '--colour' found; see memtide --help\n".to_owned()
        )
    );
    assert_eq!(
        fails(&mut memtide(&["typology"])),
        (
            Some(2),
            "memtide: unrecognized subcommand 'typology'; see memtide --help\n".to_owned()
        )
    );
    let (status, help) = fails(&mut memtide(&[]));
    assert_eq!(status, Some(2));
    assert!(help.contains("Usage: memtide"), "{help}");
}
