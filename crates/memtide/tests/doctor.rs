//! What `memtide doctor` says of copies of machines. On a copy nothing is
//! tried, so these tests touch no kernel; the proofs themselves are tested on
//! running kernels in the test guest.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn doctor(root: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memtide"))
        .arg("doctor")
        .args(arguments)
        .env("MEMTIDE_ROOT", root)
        .output()
        .expect("the command was just built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command prints text")
}

fn document(root: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = doctor(root, &[arguments, &["--json"]].concat());
    assert_eq!(text(&output.stderr), "");
    let document = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), document)
}

/// State and detail of a check.
fn check<'a>(document: &'a Value, name: &str) -> (&'a str, &'a str) {
    let checks = document["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    let field = |name: &str| check[name].as_str().unwrap();
    (field("state"), field("detail"))
}

/// A copy of a fixture that may be changed.
struct Machine(tempfile::TempDir);

impl Machine {
    fn copy(fixture: &str) -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        copy(
            &here("../memtide-linux/tests/fixtures").join(fixture),
            machine.root(),
        );
        machine
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.root().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// Every file with its content.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let (mut pending, mut files) = (vec![self.root().to_owned()], Vec::new());
        while let Some(folder) = pending.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => pending.push(path),
                    false => files.push((path.clone(), std::fs::read(path).unwrap())),
                }
            }
        }
        files.sort();
        files
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
fn two_tiers_are_found_and_nothing_is_tried() {
    let machine = Machine::copy("two-sockets-cxl-hmat");
    machine.write(KDAMONDS, "0\n");
    let (status, document) = document(machine.root(), &[]);
    assert_eq!(document["verdict"], "unproved");
    assert_eq!(document["probed"], false);
    assert_eq!(status, Some(0));
    let (state, tiers) = check(&document, "tiers");
    assert_eq!(state, "works");
    assert!(tiers.ends_with("node 2 promotes to node 0"), "{tiers}");
    assert_eq!(check(&document, "privileges").0, "works");
    assert_eq!(check(&document, "damon").0, "not_probed");
    assert_eq!(check(&document, "mover").0, "not_probed");
}

#[test]
fn one_tier_is_no_failure() {
    let machine = Machine::copy("one-node");
    let (status, document) = document(machine.root(), &["--no-probe"]);
    assert_eq!(
        (status, &document["verdict"]),
        (Some(0), &"one_tier".into())
    );
    assert_eq!(check(&document, "mover").0, "unavailable");
    let (state, why) = check(&document, "damon");
    assert_eq!(state, "unavailable");
    assert!(why.contains("DAMON_SYSFS"), "{why}");
    let (state, why) = check(&document, "hint_faults");
    assert_eq!(state, "unavailable");
    assert!(why.contains("numa_balancing is 0"), "{why}");
}

#[test]
fn what_samples_accesses_is_found_by_reading() {
    let machine = Machine::copy("one-node");
    let (_, without) = document(machine.root(), &[]);
    for name in ["ibs", "pebs"] {
        let (state, why) = check(&without, name);
        assert_eq!(state, "unavailable");
        assert!(why.contains("sys/bus/event_source/devices"), "{why}");
    }
    assert_eq!(check(&without, "page_faults").0, "not_probed");
    let unit = "sys/bus/event_source/devices/ibs_op";
    machine.write(&format!("{unit}/type"), "11\n");
    machine.write(&format!("{unit}/format/cnt_ctl"), "config:19\n");
    let (_, with) = document(machine.root(), &[]);
    assert_eq!(check(&with, "ibs").0, "not_probed");
    machine.write(&format!("{unit}/format/cnt_ctl"), "nonsense\n");
    let (_, damaged) = document(machine.root(), &[]);
    let (state, why) = check(&damaged, "ibs");
    assert_eq!(state, "broken");
    assert!(why.contains("format/cnt_ctl"), "{why}");
}

#[test]
fn anothers_damon_is_busy_and_stays_as_it_is() {
    let machine = Machine::copy("two-sockets-cxl-hmat");
    machine.write(KDAMONDS, "1\n");
    let before = machine.files();
    let (_, document) = document(machine.root(), &[]);
    let (state, why) = check(&document, "damon");
    assert_eq!(state, "busy");
    assert!(why.contains("1 in use by another program"), "{why}");
    let output = doctor(machine.root(), &["--restore"]);
    assert_eq!(
        text(&output.stdout),
        "Nothing of a crashed memtide is left.\n"
    );
    assert_eq!(machine.files(), before);
}

#[test]
fn what_a_crash_left_is_broken_until_it_is_put_back() {
    let machine = Machine::copy("two-sockets-cxl-hmat");
    machine.write(KDAMONDS, "0\n");
    machine.write("proc/sys/kernel/random/boot_id", "this-boot\n");
    machine.write(
        "run/memtide/damon.json",
        r#"{"boot_id":"this-boot","pid":77777777,"start_time":9,"kdamonds":2,"paused_modules":[]}"#,
    );
    // The copy needs the start time of the very process that reads it; a shell
    // knows its number before it becomes memtide. 18 fields lie between the
    // state and the start time.
    let script = r#"mkdir -p "$1/proc/$$" &&
        echo "$$ (memtide) S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5" > "$1/proc/$$/stat" &&
        exec "$2" doctor --json --root "$1""#;
    let output = Command::new("sh")
        .args(["-c", script, "sh"])
        .args([machine.root(), Path::new(env!("CARGO_BIN_EXE_memtide"))])
        .output()
        .expect("a shell runs");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        check(&document, "left_over"),
        (
            "broken",
            "a memtide crashed: process 77777777 held 2 kdamonds; \
             memtide doctor --restore puts it back"
        )
    );
    assert_eq!(check(&document, "damon").0, "busy");
    assert_eq!(document["verdict"], "broken");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn weights_of_a_killed_run_are_put_back() {
    const TABLE: &str = "sys/kernel/mm/mempolicy/weighted_interleave/node0";
    const LEFT: &str =
        "memtide run or service left the interleave weights 0=9,1=1 in place of 0=1,1=1";
    let machine = Machine::copy("two-sockets");
    machine.write(TABLE, "9\n");
    machine.write(
        "run/memtide/run-weights.json",
        r#"{"boot_id":"","weights":{"0":1,"1":1},"auto":null,"ours":{"0":[1,9],"1":[1]}}"#,
    );
    let before = machine.files();
    let (status, document) = document(machine.root(), &[]);
    assert_eq!((status, &document["verdict"]), (Some(1), &"broken".into()));
    let (state, why) = check(&document, "left_over");
    assert_eq!(state, "broken");
    let says = format!("a memtide crashed: {LEFT}; memtide doctor --restore puts it back");
    assert_eq!(why, says);
    assert_eq!(machine.files(), before);
    // While a run goes on, they are its own.
    machine.write("run/memtide/run-weights.lock", "");
    let lock = std::fs::File::open(machine.root().join("run/memtide/run-weights.lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(
        check(&self::document(machine.root(), &[]).1, "left_over").0,
        "works"
    );
    let nothing = "Nothing of a crashed memtide is left.\n";
    assert_eq!(
        text(&doctor(machine.root(), &["--restore"]).stdout),
        nothing
    );
    drop(lock);
    let output = doctor(machine.root(), &["--restore"]);
    assert_eq!(text(&output.stdout), format!("Put back: {LEFT}.\n"));
    let table = std::fs::read_to_string(machine.root().join(TABLE)).unwrap();
    assert_eq!(table.trim(), "1");
    assert_eq!(
        text(&doctor(machine.root(), &["--restore"]).stdout),
        nothing
    );
}

/// `memtide weights --set 0=9,1=9` was killed at its second write.
#[test]
fn weights_that_were_half_written_are_put_back() {
    const TABLE: &str = "sys/kernel/mm/mempolicy/weighted_interleave/node0";
    const NOTE: &str = "run/memtide/weights.json";
    const LEFT: &str = "memtide weights was cut short and left the interleave weights 0=9,1=1, half \
                        written, in place of 0=1,1=1";
    let machine = Machine::copy("two-sockets");
    machine.write(TABLE, "9\n");
    machine.write(
        NOTE,
        r#"{"boot_id":"","weights":{"0":1,"1":1},"auto":null,"ours":{"0":[1,9],"1":[1,9]},
            "begun":{"weights":{"0":1,"1":1},"auto":null,"wanted":{"0":9,"1":9}}}"#,
    );
    let (status, document) = document(machine.root(), &[]);
    assert_eq!((status, &document["verdict"]), (Some(1), &"broken".into()));
    let says = format!("a memtide crashed: {LEFT}; memtide doctor --restore puts it back");
    assert_eq!(check(&document, "left_over"), ("broken", says.as_str()));
    let output = doctor(machine.root(), &["--restore"]);
    assert_eq!(text(&output.stdout), format!("Put back: {LEFT}.\n"));
    let table = std::fs::read_to_string(machine.root().join(TABLE)).unwrap();
    assert_eq!(table.trim(), "1");
    assert!(!machine.root().join(NOTE).exists());
    let nothing = "Nothing of a crashed memtide is left.\n";
    assert_eq!(
        text(&doctor(machine.root(), &["--restore"]).stdout),
        nothing
    );
}

/// A run was killed when all was put back and the note not yet gone. What somebody writes by hand
/// later is theirs, even if that run had wanted the same.
#[test]
fn a_note_of_weights_that_were_put_back_is_forgotten() {
    const TABLE: &str = "sys/kernel/mm/mempolicy/weighted_interleave/node0";
    const NOTE: &str = "run/memtide/run-weights.json";
    let machine = Machine::copy("two-sockets");
    machine.write(TABLE, "1\n");
    machine.write(
        NOTE,
        r#"{"boot_id":"","weights":{"0":1,"1":1},"auto":null,"ours":{"0":[1,9],"1":[1]}}"#,
    );
    let nothing = "Nothing of a crashed memtide is left.\n";
    for table in ["1\n", "9\n"] {
        machine.write(TABLE, table);
        let output = doctor(machine.root(), &["--restore"]);
        assert_eq!(text(&output.stdout), nothing);
        assert!(!machine.root().join(NOTE).exists());
        let now = std::fs::read_to_string(machine.root().join(TABLE)).unwrap();
        assert_eq!(now, table);
    }
}

/// Two sockets that the kernel takes for equal, of which the second is slow.
#[test]
fn it_judges_with_tiers_that_are_given() {
    let machine = Machine::copy("two-sockets");
    let (status, alone) = document(machine.root(), &[]);
    assert_eq!(check(&alone, "tiers").0, "unavailable");
    assert_eq!(status, Some(0));
    let (_, given) = document(machine.root(), &["--tiers", "0/1"]);
    let (state, detail) = check(&given, "tiers");
    assert_eq!(state, "works");
    assert!(
        detail.ends_with(", as --tiers gives them; node 1 promotes to node 0"),
        "{detail}"
    );
    assert_ne!(given["verdict"], alone["verdict"]);
    let wrong = doctor(machine.root(), &["--tiers", "0/7"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        text(&wrong.stderr).starts_with("memtide: --tiers 0/7: "),
        "{wrong:?}"
    );
}

#[test]
fn rights_that_are_missing_are_named() {
    let machine = Machine::copy("two-sockets-cxl-hmat");
    // All but bits 19 and 23: 0x1ffffffffff - 0x80000 - 0x800000.
    machine.write(
        "proc/self/status",
        "Name:\tmemtide\nCapEff:\t000001ffff77ffff\nMems_allowed_list:\t0-2\n",
    );
    let (_, document) = document(machine.root(), &[]);
    assert_eq!(
        check(&document, "privileges"),
        (
            "not_permitted",
            "CAP_SYS_PTRACE, CAP_SYS_NICE is missing; run as root"
        )
    );
}

#[test]
fn a_cpuset_of_one_node_leaves_nowhere_to_move_to() {
    let machine = Machine::copy("two-sockets-cxl-hmat");
    machine.write(
        "proc/self/status",
        "Name:\tmemtide\nCapEff:\t000001ffffffffff\nMems_allowed_list:\t1\n",
    );
    let (status, document) = document(machine.root(), &[]);
    assert_eq!(check(&document, "mover").0, "unavailable");
    assert_eq!(
        (status, &document["verdict"]),
        (Some(1), &"not_ready".into())
    );
}

#[test]
fn a_file_that_makes_no_sense_is_broken_with_its_place() {
    let machine = Machine::copy("two-sockets-cxl-hmat");
    machine.write("proc/sys/kernel/numa_balancing", "many\n");
    machine.write("sys/devices/system/node/online", "0-x\n");
    let (status, document) = document(machine.root(), &[]);
    assert_eq!((status, &document["verdict"]), (Some(1), &"broken".into()));
    for (name, file) in [
        ("numa_balancing", "proc/sys/kernel/numa_balancing:1: "),
        ("tiers", "sys/devices/system/node/online:1: "),
    ] {
        let (state, why) = check(&document, name);
        assert_eq!(state, "broken");
        assert!(why.contains(file), "{why}");
    }
}

#[test]
fn people_get_a_line_a_check() {
    let machine = Machine::copy("two-sockets-cxl-hmat");
    let output = doctor(machine.root(), &[]);
    let printed = text(&output.stdout);
    assert!(!printed.contains('\x1b'), "a pipe gets no escapes");
    let lines: Vec<&str> = printed.lines().collect();
    // A header, twenty checks, an empty line and the conclusion.
    assert_eq!(lines.len(), 1 + 20 + 2, "{printed}");
    assert!(lines[0].starts_with("check"));
    assert!(lines[1].starts_with("kernel") && lines[1].ends_with("7.2.13-amd64"));
    assert!(lines[22].starts_with("Nothing speaks against memtide tier"));
}

#[test]
fn memory_that_the_kernel_was_not_given_is_advice_and_no_failure() {
    let machine = Machine::copy("two-sockets-cxl-hmat");
    let blocks = "sys/devices/system/memory";
    machine.write(&format!("{blocks}/block_size_bytes"), "80000000\n");
    machine.write(&format!("{blocks}/auto_online_blocks"), "offline\n");
    machine.write(&format!("{blocks}/memory0/state"), "online\n");
    machine.write(&format!("{blocks}/memory64/state"), "offline\n");
    machine.write(&format!("{blocks}/memory64/node2/cpulist"), "\n");
    machine.write("sys/bus/dax/devices/dax1.0/size", "17179869184\n");
    machine.write("sys/bus/dax/devices/dax1.0/target_node", "3\n");
    machine.write("proc/swaps", "Filename\tType\n/swap file\n");
    machine.write("sys/module/zswap/parameters/enabled", "Y\n");
    let (status, document) = document(machine.root(), &[]);
    assert_eq!(
        (status, &document["verdict"]),
        (Some(0), &"unproved".into())
    );
    let (state, blocks) = check(&document, "memory_blocks");
    assert_eq!(state, "advice");
    assert!(
        blocks.starts_with("2.0 GiB of node 2 (1 block of 2.0 GiB) offline; "),
        "{blocks}"
    );
    let (state, devices) = check(&document, "memory_devices");
    assert_eq!(state, "advice");
    assert!(
        devices.starts_with("dax1.0 holds 16.0 GiB of node 3 as a device; "),
        "{devices}"
    );
    assert_eq!(check(&document, "zswap").0, "advice");
}

/// What is only looked at for advice makes no machine broken.
#[test]
fn files_for_advice_that_make_no_sense_are_no_failure() {
    let machine = Machine::copy("two-sockets-cxl-hmat");
    machine.write("sys/module/zswap/parameters/enabled", "perhaps\n");
    machine.write("sys/devices/system/memory/block_size_bytes", "large\n");
    let (status, document) = document(machine.root(), &[]);
    assert_eq!(status, Some(0));
    for name in ["zswap", "memory_blocks"] {
        let (state, why) = check(&document, name);
        assert_eq!(state, "unavailable", "{name}: {why}");
    }
}

/// Memory without processors that is faster than DRAM is where it should be.
#[test]
fn hbm_is_not_taken_for_slow_memory() {
    let machine = Machine::copy("hbm");
    let (_, document) = document(machine.root(), &[]);
    assert_ne!(check(&document, "tiers").0, "advice", "{document}");
}

/// Slow memory of which firmware tells nothing may count as fast.
#[test]
fn memory_without_processors_in_the_tier_of_dram_is_told() {
    let machine = Machine::copy("two-sockets-cxl-hmat");
    let tiers = "sys/devices/virtual/memory_tiering";
    let of_machine = machine.root().join(tiers);
    for entry in std::fs::read_dir(&of_machine).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }
    machine.write(&format!("{tiers}/memory_tier4/nodelist"), "0-2\n");
    let (_, document) = document(machine.root(), &[]);
    let (state, tiers) = check(&document, "tiers");
    assert_eq!(state, "advice");
    assert_eq!(
        tiers,
        "tier 4 is nodes 0-2; node 2 without processors counts as fast; \
         if that is wrong, say so with --tiers"
    );
}

/// Every key of the document stands in docs/json.md, and the other way
/// around. On a copy no proof is made, so its keys are added by hand.
#[test]
fn the_schema_is_documented() {
    let guide = std::fs::read_to_string(here("../../docs/json.md")).unwrap();
    let section = guide.split("\n## ").find(|s| s.starts_with("doctor\n"));
    let section = section.expect("docs/json.md has a section doctor");
    let documented: BTreeSet<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let machine = Machine::copy("two-sockets-cxl-hmat");
    let (_, document) = document(machine.root(), &[]);
    let proof = ["expected", "seen", "unexpected", "passes"];
    let mut used: BTreeSet<String> = proof.map(|key| format!("checks[].proof.{key}")).into();
    for (name, value) in document.as_object().unwrap() {
        used.insert(name.clone());
        for check in value.as_array().into_iter().flatten() {
            used.extend(
                check
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(|key| format!("{name}[].{key}")),
            );
            assert!(section.contains(&format!("`{}`", check["name"].as_str().unwrap())));
        }
    }
    let used: BTreeSet<&str> = used.iter().map(String::as_str).collect();
    assert_eq!(
        documented, used,
        "documented on the left, printed on the right"
    );
}

#[test]
fn nonsense_is_one_line() {
    let machine = Machine::copy("one-node");
    for arguments in [
        &["--limit", "5"][..],
        &["--limit", "10ms"],
        &["--limit", ""],
        &["--no-probe", "--restore"],
        &["--no-prob"],
        &["now"],
    ] {
        let output = doctor(machine.root(), arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.starts_with("memtide: "), "{error}");
        assert_eq!(text(&output.stdout), "");
    }
}
