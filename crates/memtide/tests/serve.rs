//! The service as far as a machine without tiers can show it: its configuration, its refusals, and what
//! the service manager hears of them. That it works is shown in the guests (`serve/reload`).

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const UNIT: &str = include_str!("../../../packaging/memtide.service");

fn fixture(machine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../memtide-linux/tests/fixtures")
        .join(machine)
}

fn memtide(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    command.args(words).env("MEMTIDE_ROOT", root);
    command.env_remove("NOTIFY_SOCKET");
    command
}

/// What it printed on standard output, if it succeeded.
fn printed(root: &Path, words: &[&str]) -> String {
    let output = memtide(root, words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Exit status and the one line of a failure.
fn complaint(output: Output) -> (Option<i32>, String) {
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.stdout, b"", "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    let line = line.strip_prefix("memtide: ").expect("the command's name");
    (output.status.code(), line.trim_end().to_owned())
}

/// A machine with a configuration.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        Machine(tempfile::tempdir().unwrap())
    }

    /// Writes a file below `/etc/memtide`, which root alone may change.
    fn with(self, name: &str, text: &str) -> Machine {
        let path = self.0.path().join("etc/memtide").join(name);
        let folder = path.parent().unwrap();
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(&path, text).unwrap();
        for (path, mode) in [(folder, 0o755), (&path, 0o644)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        self
    }

    fn root(&self) -> &Path {
        self.0.path()
    }
}

#[test]
fn what_packages_install_is_valid_and_sets_nothing() {
    let none = Machine::new();
    let default = printed(none.root(), &["config", "--default"]);
    let machine = Machine::new().with("memtide.toml", &default);
    let main = machine.root().join("etc/memtide/memtide.toml");
    let valid = format!("{}: valid\n", main.display());
    assert_eq!(printed(machine.root(), &["serve", "--check"]), valid);
    let main = main.to_str().unwrap();
    let named = ["serve", "--check", "--config", main];
    assert_eq!(printed(none.root(), &named), valid);
    let shown = printed(machine.root(), &["config", "--show"]);
    assert_eq!(shown, printed(none.root(), &["config", "--show"]));
    assert!(shown.contains("\nrate_limit = \"4GiB\""), "{shown}");
}

/// A restart does not make it: status 2, after which the unit does not try again.
#[test]
fn a_group_that_does_not_exist_is_bad_configuration() {
    let machine = Machine::new().with("memtide.toml", "control.group = \"wacht\"\n");
    std::fs::write(machine.root().join("etc/group"), "watch:x:7:\n").unwrap();
    for words in [&["serve", "--check"][..], &["serve"]] {
        let output = memtide(machine.root(), words).output().unwrap();
        let (status, line) = complaint(output);
        assert_eq!(status, Some(2), "{line}");
        assert!(line.contains("memtide.toml:"), "{line}");
        assert!(line.contains(": group wacht: not in "), "{line}");
    }
    std::fs::write(machine.root().join("etc/group"), "wacht:x:7:\n").unwrap();
    printed(machine.root(), &["serve", "--check"]);
}

#[test]
fn what_is_in_force_has_its_file_and_line() {
    let machine = Machine::new()
        .with(
            "memtide.toml",
            "[tier]\nheadroom = '64MiB'\nwindow = '2s'\n",
        )
        .with("memtide.toml.d/50-db.toml", "[tier]\nwindow = '3s'\n");
    let checked = printed(machine.root(), &["serve", "--check"]);
    assert!(checked.ends_with("valid, 2 files in all\n"), "{checked}");
    let json = printed(machine.root(), &["config", "--show", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    let row = |key: &str| rows.iter().find(|row| row["key"] == key).unwrap();
    assert_eq!(row("window")["value"], "3s");
    let file = row("window")["from"]["file"].as_str().unwrap();
    assert!(file.ends_with("/memtide.toml.d/50-db.toml"), "{file}");
    assert_eq!(row("headroom")["from"]["line"], 2);
    assert!(row("gate")["from"].is_null() && row("listen")["value"].is_null());
    assert_eq!(row("all")["table"], "select");
}

/// As docs/json.md has them.
#[test]
fn the_rows_are_documented() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let machine = Machine::new().with("memtide.toml", "[tier]\nwindow = '2s'\n");
    let json = printed(machine.root(), &["config", "--show", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    let set = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| !row["from"].is_null());
    let set = set.unwrap().as_object().unwrap();
    let from = set["from"].as_object().unwrap().keys();
    let keys = set.keys().map(|key| format!("[].{key}"));
    for key in keys.chain(from.map(|key| format!("[].from.{key}"))) {
        assert!(guide.contains(&format!("| `{key}` |")), "{key}");
    }
}

#[test]
fn a_configuration_that_is_wrong_is_bad_usage_with_its_place() {
    let machine = Machine::new()
        .with("memtide.toml", "[tier]\n")
        .with("memtide.toml.d/10.toml", "[tier]\nrate_limt = '1GiB'\n");
    let words = "10.toml:2:1: unknown key or word `rate_limt`; did you mean `rate_limit`?";
    for command in [&["serve", "--check"][..], &["serve"], &["config", "--show"]] {
        let output = memtide(machine.root(), command).output().unwrap();
        let (status, line) = complaint(output);
        assert_eq!(status, Some(2), "{line}");
        assert!(line.contains(words), "{line}");
    }
    for words in [&["config"][..], &["config", "--default", "--show"]] {
        let output = memtide(machine.root(), words).output().unwrap();
        assert_eq!(complaint(output).0, Some(2));
    }
}

/// The unit does not restart what a restart cannot help, and its state has the reason.
#[test]
fn tiers_by_hand_are_held_against_the_machine() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let check = |tiers: &str| {
        std::fs::write(file.path(), format!("[tier]\ntiers = {tiers:?}\n")).unwrap();
        let words = [
            "serve",
            "--check",
            "--config",
            file.path().to_str().unwrap(),
        ];
        memtide(&fixture("two-sockets"), &words).output().unwrap()
    };
    assert!(check("0/1").status.success(), "{:?}", check("0/1"));
    for (tiers, wrong) in [
        (
            "0/7",
            ":2:9: tiers 0/7: node 7 is in a tier, but this machine has no memory there",
        ),
        ("0/1,0", "node 0 is in two tiers"),
    ] {
        let (status, said) = complaint(check(tiers));
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(wrong), "{said}");
    }
}

#[test]
fn a_metrics_file_needs_its_folder() {
    let text = "[metrics]\nfile = '/figures/memtide.prom'\n";
    let machine = Machine::new().with("memtide.toml", text);
    let check = || {
        memtide(machine.root(), &["serve", "--check"])
            .output()
            .unwrap()
    };
    let (status, line) = complaint(check());
    assert_eq!(status, Some(2), "{line}");
    assert!(line.contains("memtide.toml:2:8: file: "), "{line}");
    assert!(line.contains("/figures is no directory"), "{line}");
    std::fs::create_dir(machine.root().join("figures")).unwrap();
    assert!(check().status.success());
}

#[test]
fn one_tier_is_no_reason_to_start_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut service = memtide(&fixture("one-node"), &["serve"]);
    let output = service.env("NOTIFY_SOCKET", &path).output().unwrap();
    let (status, line) = complaint(output);
    let prevented = UNIT
        .lines()
        .any(|line| line == "RestartPreventExitStatus=2");
    assert!(status == Some(2) && prevented, "{status:?}");
    assert!(line.starts_with("this machine has one tier"), "{line}");
    manager.set_nonblocking(true).unwrap();
    let mut bytes = [0; 1024];
    let length = manager.recv(&mut bytes).unwrap();
    assert_eq!(bytes[..length], *format!("STATUS={line}\n").as_bytes());
    // It was never ready.
    assert!(manager.recv(&mut bytes).is_err());
}

/// Nodes need not be numbered without gaps: 0, 2 and 5 are three.
#[test]
fn the_unit_asks_for_a_second_node_of_any_number_or_what_may_become_one() {
    let conditions = UNIT
        .lines()
        .filter_map(|line| line.strip_prefix("ConditionPathExistsGlob=|/sys/"));
    let one_of_them = [
        "devices/system/node/node[1-9]*",
        "bus/cxl/devices/*",
        "bus/dax/devices/*",
    ];
    assert_eq!(conditions.collect::<Vec<_>>(), one_of_them);
    assert_eq!(UNIT.matches("\nCondition").count(), one_of_them.len());
}

/// Neither prints what docs/json.md has, nor can it.
#[test]
fn what_is_no_document_is_no_json() {
    let none = Machine::new();
    for words in [
        &["serve", "--check", "--json"][..],
        &["config", "--default", "--json"],
    ] {
        let (status, line) = complaint(memtide(none.root(), words).output().unwrap());
        assert_eq!(status, Some(2), "{line}");
        assert!(line.contains("leave --json out"), "{line}");
    }
}

#[test]
fn the_unit_starts_a_command_that_there_is() {
    let start = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let start = start.unwrap().strip_prefix("/usr/bin/memtide ").unwrap();
    let none = Machine::new();
    let checked = printed(none.root(), &[start, "--check"]);
    assert!(
        checked.ends_with("not there, the defaults are valid\n"),
        "{checked}"
    );
}
