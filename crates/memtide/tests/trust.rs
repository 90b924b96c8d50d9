//! What comes from outside and where output goes: nothing that is not ours is
//! removed, nothing endless is read, nothing foreign reaches the terminal, and
//! a device that takes nothing is an error and no panic.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn memtide(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    memtide(arguments)
        .output()
        .expect("the command was just built")
}

/// Exit status and the one line of a run that fails.
fn fails(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    assert!(error.starts_with("memtide: "), "{arguments:?}: {error}");
    (output.status.code(), error)
}

fn recording() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../memtide-linux/tests/recordings/minor-faults.perf.data")
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_import_that_fails_removes_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recording();
    let import = |output: &Path| fails(&["trace", "import", text(&recording), "-o", text(output)]);
    // A link to where nothing can be written: it was removed, once.
    let link = dir.path().join("full.csv");
    symlink("/dev/full", &link).unwrap();
    assert_eq!(import(&link).0, Some(1));
    assert!(link.is_symlink());
    // A folder in the file's place, and a folder that is not there.
    let folder = dir.path().join("folder.csv");
    std::fs::create_dir(&folder).unwrap();
    assert_eq!(import(&folder).0, Some(1));
    assert!(folder.is_dir());
    assert_eq!(import(&dir.path().join("absent/a.csv")).0, Some(1));
    // What was there stays if the recording is no good.
    let old = dir.path().join("old.csv");
    std::fs::write(&old, "old").unwrap();
    let (status, _) = fails(&["trace", "import", "/dev/null", "-o", text(&old)]);
    assert_eq!(status, Some(1));
    assert_eq!(std::fs::read(&old).unwrap(), b"old");
    // And one that works leaves the trace and nothing beside it.
    let output = run(&["trace", "import", text(&recording), "-o", text(&old)]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        std::fs::read(&old)
            .unwrap()
            .starts_with(b"time_ns,thread,address,write\n")
    );
    let names = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 3, "full.csv, folder.csv, old.csv");
}

#[test]
fn what_never_ends_is_refused_with_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo.csv");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let endless = dir.path().join("zero.toml");
    symlink("/dev/zero", &endless).unwrap();
    let zero_csv = dir.path().join("zero.csv");
    symlink("/dev/zero", &zero_csv).unwrap();
    let out = dir.path().join("o.csv");
    for (arguments, says) in [
        (&["policy", "replay", "/dev/zero"][..], "longer than 16 MiB"),
        (&["sim", "run", text(&endless)], "larger than 16 MiB"),
        (&["sim", "run", "--trace", text(&zero_csv)], "it is no file"),
        (&["sim", "run", "--trace", text(&fifo)], "it is no file"),
        (
            &["trace", "import", text(&fifo), "-o", text(&out)],
            "not a regular file",
        ),
        (
            &["trace", "import", "/dev/zero", "-o", text(&out)],
            "not a regular file",
        ),
    ] {
        let (status, error) = fails(arguments);
        assert!(matches!(status, Some(1 | 2)), "{arguments:?}: {status:?}");
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
}

#[test]
fn nothing_foreign_reaches_the_terminal() {
    let named = "\x1b]0;owned\x07\x1b[2J\nmemtide: all is well.toml";
    let long = format!("{}.toml", "x/".repeat(50_000));
    for arguments in [
        &["sim", "run", named][..],
        &["sim", "explain", named],
        &["trace", "import", named, "-o", "x.csv"],
        &["policy", "replay", named],
        &["policy", "validate", named],
        &["run", "--membind", named, "true"],
        &["tier", "--source", named],
        &["tier", "--pid", named],
        &["tier", "--from-journal", named],
        &["balance", "--source", named, "--all"],
        &["balance", "--cpu-limit", named, "--all"],
        &["balance", "--from-journal", named],
        &["rebalance", "--pid", named, "--weights", "0=1"],
        &["rebalance", "--pid", "1", "--weights", named],
        &["sim", "run", &long],
        &["policy", "validate", &long],
        &["weights", "--set", &long],
    ] {
        let output = run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        let foreign = |c: char| c.is_control() && c != '\n';
        assert!(!error.contains(foreign), "{arguments:?}: {error:?}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.len() < 5000, "{} bytes", error.len());
        assert!(!output.stdout.contains(&0x1b));
    }
}

#[test]
fn a_full_device_is_an_error_and_no_panic() {
    for arguments in [&["--help"][..], &["tier", "--help"], &["--version"]] {
        let output = memtide(arguments).stdout(full()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("memtide: cannot write"), "{error}");
    }
    // Nobody can be told why; the status still says so.
    for arguments in [
        &["tier", "--source", "x"][..],
        &["policy", "replay", "/absent"],
    ] {
        let status = memtide(arguments)
            .stderr(full())
            .stdout(full())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn no_cause_is_said_twice() {
    let cause = "No such file or directory";
    for arguments in [
        &["trace", "import", "/absent", "-o", "x.csv"][..],
        &["weights", "--from", "/absent"],
        &["sim", "run", "/absent.toml"],
        &["policy", "replay", "/absent"],
        &["topology", "--root", "/absent"],
    ] {
        let error = String::from_utf8(run(arguments).stderr).unwrap();
        assert!(error.matches(cause).count() <= 1, "{arguments:?}: {error}");
    }
}

#[test]
fn the_environment_is_in_the_help() {
    let output = run(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(
        help.contains("MEMTIDE_ROOT") && help.contains("NO_COLOR"),
        "{help}"
    );
}

/// A million pages, each a run of its own, within 300 MB of addresses: they
/// were collected, some 400 bytes each.
#[test]
fn many_pages_are_placed_in_little_memory() {
    let last = (1u32 << 20) - 1;
    let script = format!(
        "ulimit -v 300000; exec \"$1\" policy place weighted-interleave 0-1 --nodes 0-1 \
         --pages 0-{last}"
    );
    let mut child = Command::new("sh")
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_memtide")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (mut lines, mut line) = (0, String::new());
    let mut end = String::new();
    while out.read_line(&mut line).unwrap() > 0 {
        lines += 1;
        std::mem::swap(&mut end, &mut line);
        line.clear();
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(lines, (1 << 20) + 2);
    assert_eq!(end, "in all: 524288 on node 0, 524288 on node 1\n");
}
