//! Allocations are refused, one at a time and from one on, near the first and the last ones each:
//! the command ends with one line of error or is aborted, and
//!
//! - a file that it was to write is the old one or the whole new one,
//! - what was lent or set can be put back by the next start.
//!
//! Lending itself, of DAMON and of affinities, and the journal of a run are tested where they are
//! written, in the same way.

use memtide_linux::files::refusals::{Ended, Library};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

const TABLE: &str = "sys/kernel/mm/mempolicy/weighted_interleave";
const NODES: [u32; 3] = [0, 2, 5];
/// What the table of the copy reads.
const BEFORE: &str = "4 4 1 false";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn memtide(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    command.args(arguments).env_remove("MEMTIDE_ROOT");
    command
}

fn on(root: &Path, arguments: &[&str]) -> Command {
    let mut command = memtide(arguments);
    command.env("MEMTIDE_ROOT", root);
    command
}

fn succeeds(mut command: Command, at: &str) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the command was just built");
    let said = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{at}: {said}");
    String::from_utf8(stdout).unwrap()
}

/// The allocator, and a folder for what it needs.
struct Refusing {
    _folder: tempfile::TempDir,
    library: Library,
}

fn refusing() -> Refusing {
    let folder = tempfile::tempdir().unwrap();
    Refusing {
        library: Library::build(folder.path()),
        _folder: folder,
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

/// A machine whose nodes 0, 2 and 5 weigh 4, 4 and 1.
fn machine() -> tempfile::TempDir {
    let machine = tempfile::tempdir().unwrap();
    copy(
        &here("../memtide-linux/tests/fixtures/holes"),
        machine.path(),
    );
    assert_eq!(table(machine.path()), BEFORE);
    machine
}

fn table(root: &Path) -> String {
    let names = NODES.map(|node| format!("node{node}"));
    let names = names.iter().map(String::as_str).chain(["auto"]);
    let read = |name| std::fs::read_to_string(root.join(TABLE).join(name)).unwrap();
    let values: Vec<String> = names.map(|name| read(name).trim().to_owned()).collect();
    values.join(" ")
}

/// Who changes the table and has not enough memory leaves it as it was or as it should be, or
/// a note by which it is put back.
#[test]
fn weights_are_set_or_can_be_put_back() {
    const WANTED: &str = "9 8 7 false";
    let partly = Cell::new(0);
    let ended = refusing().library.each(
        machine,
        |machine| on(machine.path(), &["weights", "--set", "0=9,2=8,5=7"]),
        |machine, ended, at| {
            let root = machine.path();
            let now = table(root);
            match ended {
                Ended::Done => assert_eq!(now, WANTED, "{at}"),
                // It says that nothing was changed or all was put back.
                Ended::Failed(said) => {
                    let kept = said.contains("nothing was changed") || said.contains("put back");
                    assert!(!kept || now == BEFORE, "{at}: {now}: {said}");
                }
                Ended::Aborted => {}
            }
            partly.set(partly.get() + u32::from(now != BEFORE && now != WANTED));
            if now != BEFORE {
                succeeds(on(root, &["weights", "--restore"]), at);
                assert_eq!(table(root), BEFORE, "{at}");
            }
        },
    );
    assert!(ended > 100, "only {ended}");
    assert!(partly.get() > 0, "never between two writes");
}

#[test]
fn weights_are_put_back_or_can_be() {
    let ended = refusing().library.each(
        || {
            let machine = machine();
            let set = on(machine.path(), &["weights", "--set", "0=9,2=8,5=7"]);
            succeeds(set, "set");
            machine
        },
        |machine| on(machine.path(), &["weights", "--restore"]),
        |machine, ended, at| {
            let root = machine.path();
            match ended {
                Ended::Done => {}
                Ended::Failed(_) | Ended::Aborted if table(root) == BEFORE => {}
                Ended::Failed(_) | Ended::Aborted => {
                    succeeds(on(root, &["weights", "--restore"]), at);
                }
            }
            assert_eq!(table(root), BEFORE, "{at}");
        },
    );
    assert!(ended > 100, "only {ended}");
}

const NOTHING: &str = "Nothing of a crashed memtide is left.\n";

/// What a killed `memtide run` left is put back by a start that has the memory.
#[test]
fn what_a_killed_run_left_is_put_back_in_the_end() {
    const NOTE: &str = "run/memtide/run-weights.json";
    let ended = refusing().library.each(
        || {
            let machine = machine();
            let root = machine.path();
            let note = r#"{"boot_id":"","weights":{"0":4,"2":4,"5":1},"auto":false,
                "ours":{"0":[4,5],"2":[4],"5":[1,2]}}"#;
            std::fs::create_dir_all(root.join("run/memtide")).unwrap();
            std::fs::write(root.join(NOTE), note).unwrap();
            std::fs::write(root.join(TABLE).join("node0"), "5\n").unwrap();
            std::fs::write(root.join(TABLE).join("node5"), "2\n").unwrap();
            machine
        },
        |machine| on(machine.path(), &["doctor", "--restore"]),
        |machine, ended, at| {
            let root = machine.path();
            if matches!(ended, Ended::Done) {
                assert_eq!(table(root), BEFORE, "{at}");
            }
            succeeds(on(root, &["doctor", "--restore"]), at);
            assert_eq!(table(root), BEFORE, "{at}");
            assert!(!root.join(NOTE).exists(), "{at}");
            assert_eq!(succeeds(on(root, &["doctor", "--restore"]), at), NOTHING);
        },
    );
    assert!(ended > 100, "only {ended}");
}

/// A process of this machine's that runs on one CPU, by a note of memtide's.
struct Pinned {
    root: tempfile::TempDir,
    child: Child,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn allowed(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("Cpus_allowed_list:"));
    line.unwrap().split_whitespace().last().unwrap().to_owned()
}

impl Pinned {
    fn new(cpu: usize) -> Pinned {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/proc", root.path().join("proc")).unwrap();
        let cpus = "sys/devices/system/cpu";
        std::fs::create_dir_all(root.path().join(cpus)).unwrap();
        for file in ["possible", "online"] {
            let from = Path::new("/").join(cpus).join(file);
            std::fs::copy(from, root.path().join(cpus).join(file)).unwrap();
        }
        let pid = child.id();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let after_name = stat.rsplit_once(") ").unwrap().1;
        let start: u64 = after_name.split(' ').nth(19).unwrap().parse().unwrap();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let note = serde_json::json!({
            "boot_id": boot.trim(),
            "lent": [{
                "thread": {"pid": pid, "tid": pid, "start_ticks": start},
                "given": [{"cpus": [cpu], "at_ticks": start + 1}],
            }],
        });
        let folder = root.path().join("run/memtide");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("affinity.json"), note.to_string()).unwrap();
        let mut one = rustix::thread::CpuSet::new();
        one.set(cpu);
        let pinned = rustix::process::Pid::from_child(&child);
        rustix::thread::sched_setaffinity(Some(pinned), &one).unwrap();
        Pinned { root, child }
    }
}

#[test]
fn threads_of_a_killed_run_are_freed_in_the_end() {
    let own = rustix::thread::sched_getaffinity(None).unwrap();
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| own.is_set(cpu));
    let (Some(cpu), Some(_)) = (cpus.next(), cpus.next()) else {
        println!("skipped: this test may run on one CPU only");
        return;
    };
    let free = allowed(std::process::id());
    let ended = refusing().library.each(
        || Pinned::new(cpu),
        |pinned| on(pinned.root.path(), &["doctor", "--restore"]),
        |pinned, ended, at| {
            let root = pinned.root.path();
            let pid = pinned.child.id();
            if matches!(ended, Ended::Done) {
                assert_eq!(allowed(pid), free, "{at}");
            }
            succeeds(on(root, &["doctor", "--restore"]), at);
            assert_eq!(allowed(pid), free, "{at}");
            assert_eq!(succeeds(on(root, &["doctor", "--restore"]), at), NOTHING);
        },
    );
    assert!(ended > 100, "only {ended}");
}

const OLD: Option<&[u8]> = Some(b"old");

/// The command that `arguments` makes for a folder, refused memory, leaves of each of `names` the old
/// file or the new one, and nothing beside it unless it was aborted. Without `before` there is no old
/// one.
fn leaves_the_old_or_the_new(
    names: &[&str],
    before: Option<&[u8]>,
    arguments: impl Fn(&Path) -> Vec<String>,
) {
    let command = |folder: &Path| {
        let arguments = arguments(folder);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        memtide(&arguments)
    };
    let folder = tempfile::tempdir().unwrap();
    succeeds(command(folder.path()), "all memory");
    let read = |folder: &Path, name| std::fs::read(folder.join(name)).ok();
    let whole: Vec<Option<Vec<u8>>> = names.iter().map(|name| read(folder.path(), name)).collect();
    let (old, new) = (Cell::new(0), Cell::new(0));
    let ended = refusing().library.each(
        || {
            let folder = tempfile::tempdir().unwrap();
            for (name, old) in names.iter().zip(before.iter().cycle()) {
                std::fs::write(folder.path().join(name), old).unwrap();
            }
            folder
        },
        |folder| command(folder.path()),
        |folder, ended, at| {
            for (name, whole) in names.iter().zip(&whole) {
                let now = read(folder.path(), name);
                let is_old = now.as_deref() == before;
                match is_old {
                    true => old.set(old.get() + 1),
                    false => new.set(new.get() + 1),
                }
                let done = matches!(ended, Ended::Done);
                assert!(now == *whole || !done && is_old, "{at}: {name}, {ended:?}");
            }
            let there = std::fs::read_dir(folder.path()).unwrap();
            let there = there.map(|entry| entry.unwrap().file_name());
            let beside = there.filter(|there| !names.iter().any(|name| there == name));
            let beside = beside.count();
            let aborted = matches!(ended, Ended::Aborted);
            assert!(
                beside == 0 || aborted,
                "{at}: {beside} files beside, {ended:?}"
            );
        },
    );
    assert!(ended > 100, "only {ended}");
    assert!(old.get() > 100 && new.get() > 0, "{old:?} old, {new:?} new");
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn an_import_leaves_the_old_trace_or_the_new() {
    let recording = here("../memtide-linux/tests/recordings/minor-faults.perf.data");
    for name in ["trace.csv", "trace.parquet"] {
        leaves_the_old_or_the_new(&[name], OLD, |folder| {
            let output = text(&folder.join(name));
            words(&["trace", "import", &text(&recording), "-o", &output])
        });
    }
}

#[test]
fn a_simulation_leaves_the_old_results_or_the_new() {
    let scenario = tempfile::tempdir().unwrap();
    let data = here("tests/data");
    let machine = "tiny-machine.toml";
    std::fs::copy(data.join(machine), scenario.path().join(machine)).unwrap();
    let tiny = std::fs::read_to_string(data.join("tiny.toml")).unwrap();
    let short = tiny.replace("accesses = 2_000_000", "accesses = 2_000");
    assert_ne!(short, tiny);
    let path = scenario.path().join("short.toml");
    std::fs::write(&path, short.replace("16 MiB", "1 MiB")).unwrap();
    leaves_the_old_or_the_new(&["results.json", "report.html"], OLD, |folder| {
        let json = text(&folder.join("results.json"));
        let report = text(&folder.join("report.html"));
        words(&[
            "sim",
            "run",
            &text(&path),
            "--json",
            &json,
            "--report",
            &report,
        ])
    });
}

#[test]
fn a_file_for_the_pager_is_whole_or_not_there() {
    leaves_the_old_or_the_new(&["words"], None, |folder| {
        let made = text(&folder.join("words"));
        words(&["pager", "--make", &made, "--size", "256K"])
    });
}
