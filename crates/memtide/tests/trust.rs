//! What comes from outside and where output goes: nothing that is not ours is
//! removed, nothing endless is read, nothing foreign reaches the terminal, and
//! a device that takes nothing is an error and no panic.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
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

/// Names, titles and figures out of files: a line cannot be forged, nor the screen filled.
#[test]
fn nothing_foreign_in_a_file_reaches_the_terminal() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let read = |name: &str| std::fs::read_to_string(data.join(name)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let long = "x".repeat(1 << 20);
    let forged = |text: &str| format!("{text}\\nmemtide: all is well\\n\\u001b[2J{long}");
    let hostile = read("tiny.toml")
        .replace("title = \"Two", &format!("title = \"{}", forged("Two")))
        .replace("document = \"", &format!("document = \"{}", forged("of")))
        .replace("shows = \"That", &format!("shows = \"{}", forged("That")))
        .replace("\"samples\"", &format!("\"{}\"", forged("samples")))
        .replace("about = \"", &format!("about = \"{}", forged("it")))
        .replace("\"magic\"", &format!("\"{}\"", forged("magic")))
        .replace("not_run = \"", &format!("not_run = \"{}", forged("since")))
        .replace("note = \"", &format!("note = \"{}", forged("for")))
        .replace("seconds = 2.0", "seconds = 1e-200")
        .replace("seconds = 1.0", "seconds = 1e100")
        .replace("accesses = 2_000_000", "accesses = 20_000");
    std::fs::write(file("hostile.toml"), hostile).unwrap();
    let machine =
        read("tiny-machine.toml").replace("about = \"", &format!("about = \"{}", forged("a")));
    std::fs::write(file("tiny-machine.toml"), machine).unwrap();
    let measured = read("measured-cxl.json")
        .replace("112.0", "1e308")
        .replace("\"0-27\"", &format!("\"{}\"", forged("0-27")))
        .replace(
            "\"notes\": []",
            &format!("\"notes\": [\"{}\"]", forged("n")),
        )
        .replace("0.01,", "1e308,")
        .replace("\"seconds\": 10.0", "\"seconds\": 1e308");
    std::fs::write(file("measured.json"), measured).unwrap();
    let (scenario, report) = (file("hostile.toml"), file("report.html"));
    for arguments in [
        &["sim", "explain", text(&scenario)][..],
        &["sim", "run", text(&scenario), "--report", text(&report)],
        &["weights", "--from", text(&file("measured.json"))],
    ] {
        let output = memtide(arguments)
            .env(
                "MEMTIDE_ROOT",
                data.join("../../../memtide-linux/tests/fixtures/holes"),
            )
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        let forged = |line: &str| line.trim_start().starts_with("memtide: ");
        assert!(!printed.lines().any(forged), "{arguments:?}: {printed}");
        assert!(!printed.contains('\x1b'), "{arguments:?}");
        // Some dozens of names and sentences, each cut.
        assert!(printed.len() < 100_000, "{} bytes", printed.len());
        let zeros = "0".repeat(40);
        assert!(!printed.contains(&zeros), "{arguments:?}: {printed}");
    }
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    assert!(!page.contains('\x1b') && !page.contains("\nmemtide: "));
}

#[test]
fn a_trace_is_not_put_over_its_recording() {
    let dir = tempfile::tempdir().unwrap();
    let (own, link) = (dir.path().join("self.parquet"), dir.path().join("link.csv"));
    std::fs::copy(recording(), &own).unwrap();
    let hard = dir.path().join("hard.csv");
    std::fs::hard_link(&own, &hard).unwrap();
    symlink("self.parquet", &link).unwrap();
    for output in [&own, &link, &hard] {
        let (status, error) = fails(&["trace", "import", text(&own), "-o", text(output)]);
        assert_eq!(status, Some(2), "{error}");
        assert!(
            error.contains("the recording itself; name another"),
            "{error}"
        );
    }
    let before = std::fs::read(recording()).unwrap();
    assert_eq!(std::fs::read(&own).unwrap(), before);
    assert_eq!(std::fs::read(&hard).unwrap(), before);
}

/// A scenario, its machine and its recording, each by a link, too.
#[test]
fn results_are_not_put_over_what_they_come_from() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny-machine.toml");
    std::fs::copy(machine, at("machine.toml")).unwrap();
    let rows = "time_ns,thread,address,write\n0,0,0,0\n9,0,4096,0\n";
    std::fs::write(at("rows.csv"), rows).unwrap();
    let scenario = "title = \"A trace\"\nshows = \"It.\"\nmachine = \"machine.toml\"\nscale = 1\n\
                    [workload.trace]\nfile = \"rows.csv\"\nnode = 0\non = 0\nops_per_access = 10\n\
                    think = \"1 ns\"\n[[configuration]]\nname = \"off\"\nabout = \"Nothing.\"\n";
    std::fs::write(at("scenario.toml"), scenario).unwrap();
    let names = ["scenario.toml", "machine.toml", "rows.csv"];
    let before = names.map(|name| std::fs::read(at(name)).unwrap());
    let (scenario, machine, rows) = (at(names[0]), at(names[1]), at(names[2]));
    let run = ["sim", "run", text(&scenario)];
    let replay = [
        "sim",
        "run",
        "--trace",
        text(&rows),
        "--machine",
        text(&machine),
    ];
    for (words, inputs) in [(&run[..], &names[..]), (&replay[..], &names[1..])] {
        for (option, input) in ["--json", "--report"]
            .iter()
            .flat_map(|option| inputs.iter().map(move |input| (*option, *input)))
        {
            let link = at("link");
            symlink(input, &link).unwrap();
            for output in [&at(input), &link] {
                let (status, error) = fails(&[words, &[option, text(output)]].concat());
                assert_eq!(status, Some(2), "{error}");
                let told = format!(
                    "{option} {}: one of the inputs; name another file",
                    text(output)
                );
                assert!(error.contains(&told), "{error}");
            }
            std::fs::remove_file(link).unwrap();
        }
    }
    assert_eq!(names.map(|name| std::fs::read(at(name)).unwrap()), before);
    // Whoever forgets that --json takes a file loses no scenario; and what cannot be written is no surprise
    // at the end.
    let other = at("other.toml");
    std::fs::write(&other, "mine").unwrap();
    let nowhere = at("nowhere/x.html");
    for (words, status, told) in [
        (
            ["--json", text(&other)],
            2,
            "results are not written to .toml files",
        ),
        (["--report", text(&nowhere)], 1, "cannot write"),
    ] {
        let output = memtide(&[&run[..], &words].concat()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.contains(told) && output.stdout.is_empty(), "{error}");
    }
    assert_eq!(std::fs::read(&other).unwrap(), b"mine");
    let output = memtide(&[&run[..], &["--json", text(&at("new.json"))]].concat()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(at("new.json").exists());
}

#[test]
fn a_full_device_is_an_error_and_no_panic() {
    for arguments in [&["--help"][..], &["tier", "--help"], &["--version"]] {
        let output = memtide(arguments).stdout(full()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("memtide: cannot write"), "{error}");
    }
    // A library that writes for us has no words of its own.
    let dir = tempfile::tempdir().unwrap();
    for name in ["full.csv", "full.parquet"] {
        let output = dir.path().join(name);
        symlink("/dev/full", &output).unwrap();
        let (status, error) = fails(&["trace", "import", text(&recording()), "-o", text(&output)]);
        let says = format!(
            "memtide: {}: No space left on device (os error 28)\n",
            output.display()
        );
        assert_eq!((status, error), (Some(1), says));
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
    // Three things are put back, all of them from one folder, which anybody may write to.
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run/memtide");
    std::fs::create_dir_all(&folder).unwrap();
    let table = root
        .path()
        .join("sys/kernel/mm/mempolicy/weighted_interleave");
    std::fs::create_dir_all(&table).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    let output = memtide(&["doctor", "--restore"])
        .env("MEMTIDE_ROOT", root.path())
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error.matches("run/memtide").count(), 1, "{error}");
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
