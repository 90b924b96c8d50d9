//! The files for containers say what the unit and the code say.
//!
//! `deploy/kubernetes.yaml` is read line by line: it is written so that what is looked for here lies on one
//! line. That a container of it works is shown in the guests (`serve/container`).

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const MANIFEST: &str = include_str!("../../../deploy/kubernetes.yaml");
const DOCKERFILE: &str = include_str!("../../../deploy/Dockerfile");
const UNIT: &str = include_str!("../../../packaging/memtide.service");
const CONFIGURATION: &str = "etc/memtide/memtide.toml";

/// The names in `[a, b]` behind `key`, on one line.
fn list<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let start = format!("{key}: [");
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(start.as_str()));
    let line = line
        .unwrap_or_else(|| panic!("no {key}"))
        .trim_end_matches(']');
    line.split(", ").collect()
}

/// What is behind the first `key: `.
fn value<'a>(text: &'a str, key: &str) -> &'a str {
    let start = format!("{key}: ");
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(start.as_str()));
    line.unwrap_or_else(|| panic!("no {key}"))
}

/// The fields of a mount, which is on one line: its place, and the line.
fn mounts() -> Vec<(&'static str, &'static str)> {
    let lines = MANIFEST
        .lines()
        .filter(|line| !line.trim().starts_with('#'));
    let mounts = lines.filter_map(|line| Some((line.split_once("mountPath: ")?.1, line)));
    mounts
        .map(|(rest, line)| (rest.split([',', '}']).next().unwrap(), line))
        .collect()
}

/// The configuration as it is, or with all keys that it shows.
fn configuration(all_keys: bool) -> String {
    let (_, rest) = MANIFEST.split_once("memtide.toml: |\n").unwrap();
    let lines = rest.lines().take_while(|line| *line != "---");
    let lines = lines.map(|line| {
        let line = line.trim_start();
        let key = line.strip_prefix('#').filter(|key| !key.starts_with(' '));
        if all_keys { key.unwrap_or(line) } else { line }
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// `memtide serve --check` on a machine with two tiers and this configuration.
fn checked(configuration: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let mode = std::fs::Permissions::from_mode;
        std::fs::set_permissions(path.parent().unwrap(), mode(0o755)).unwrap();
        std::fs::set_permissions(&path, mode(0o644)).unwrap();
    };
    put(CONFIGURATION, configuration);
    // A mount of the manifest, for the metrics file.
    put("metrics/memtide.prom", "");
    put(
        "proc/self/mountinfo",
        "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    );
    let machine = "../memtide-linux/tests/fixtures/cxl-no-hmat/sys/devices/system/node";
    let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join(machine);
    let place = folder.path().join("sys/devices/system");
    std::fs::create_dir_all(&place).unwrap();
    std::os::unix::fs::symlink(machine, place.join("node")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    command
        .args(["serve", "--check"])
        .env("MEMTIDE_ROOT", folder.path());
    command.output().unwrap()
}

#[test]
fn the_container_has_the_capabilities_of_the_unit_and_no_others() {
    let unit = UNIT.lines();
    let unit = unit.filter_map(|line| line.strip_prefix("CapabilityBoundingSet=CAP_"));
    let unit: BTreeSet<&str> = unit.collect();
    let added = list(MANIFEST, "add");
    assert_eq!(added.len(), unit.len(), "{added:?}");
    assert_eq!(added.into_iter().collect::<BTreeSet<_>>(), unit);
    assert_eq!(list(MANIFEST, "drop"), ["ALL"]);
    assert_eq!(value(MANIFEST, "allowPrivilegeEscalation"), "false");
    assert!(UNIT.contains("\nNoNewPrivileges=yes\n"));
    assert_eq!(value(MANIFEST, "readOnlyRootFilesystem"), "true");
    assert!(!MANIFEST.contains("privileged: true"));
}

#[test]
fn the_pod_sees_the_hosts_processes_and_not_the_cluster() {
    assert_eq!(value(MANIFEST, "hostPID"), "true");
    assert_eq!(value(MANIFEST, "automountServiceAccountToken"), "false");
    for kind in ["ServiceAccount", "Role", "ClusterRole", "RoleBinding"] {
        assert!(!MANIFEST.contains(&format!("kind: {kind}\n")), "{kind}");
    }
}

/// The notes outlive the container; only what is written to is writable.
#[test]
fn what_is_mounted_is_what_the_code_uses() {
    let places: Vec<&str> = mounts().iter().map(|(place, _)| *place).collect();
    let configuration = format!("/{CONFIGURATION}");
    let notes = format!("/{}", memtide_linux::lent::FOLDER);
    assert!(places.contains(&configuration.as_str()), "{places:?}");
    assert!(places.contains(&notes.as_str()), "{places:?}");
    let host = format!("hostPath: {{path: {notes}, type: DirectoryOrCreate}}");
    assert!(MANIFEST.contains(&host), "no {host}");
    let writable = mounts().into_iter();
    let writable = writable.filter(|(_, line)| !line.contains("readOnly: true"));
    let writable: Vec<&str> = writable.map(|(place, _)| place).collect();
    assert_eq!(writable, [&notes, "/sys/kernel/mm", "/sys/module"]);
    // A folder made of a ConfigMap is one in which everybody may write, in most versions.
    let (_, line) = mounts()[0];
    assert!(line.contains("subPath: memtide.toml"), "{line}");
}

#[test]
fn the_configuration_is_valid_with_and_without_its_examples() {
    for all_keys in [false, true] {
        let text = configuration(all_keys);
        let output = checked(&text);
        assert!(output.status.success(), "{text}\n{output:?}");
        assert_eq!(text.contains("\nfast.low"), all_keys);
    }
    // So a mistake would be found.
    let output = checked("[class.x]\ncgroup = \"/a\"\nfast.lo = \"1GiB\"\n");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn the_image_has_the_program_that_is_started_and_probed() {
    let program = "/usr/bin/memtide";
    assert!(DOCKERFILE.contains("\nFROM scratch\n"));
    assert!(DOCKERFILE.contains(&format!("\nCOPY bin/memtide {program}\n")));
    assert!(DOCKERFILE.contains(&format!("\nENTRYPOINT [\"{program}\", \"serve\"]\n")));
    assert!(UNIT.contains(&format!("\nExecStart={program} serve\n")));
    assert_eq!(list(MANIFEST, "command"), [program, "status"]);
    assert!(!MANIFEST.contains("\n          args:"));
}
