//! `memtide pager`, on files of its own: what it compares, what it refuses, and
//! a program that it runs.
//!
//! Counts are checked for sense and not for size: other programs share the
//! machine. `cargo bench -p memtide --bench pager` has the figures.

mod held;

use held::{Held, holder, made, memtide, paged, stdout};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    memtide(arguments)
        .output()
        .expect("the command was just built")
}

/// The keys of the section `name` of docs/json-pager.md; `a.*` stands for the counters.
fn documented(name: &str) -> BTreeSet<String> {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json-pager.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let section = guide
        .split("\n## ")
        .find(|s| s.starts_with(&format!("{name}\n")));
    let section = section.unwrap_or_else(|| panic!("docs/json-pager.md has no section {name}"));
    let rows = section.lines();
    rows.filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .flat_map(|key| match key.strip_suffix('*') {
            None => vec![key.to_owned()],
            Some(of) => {
                let counters = documented("pager counters").into_iter();
                counters.map(|key| format!("{of}{key}")).collect()
            }
        })
        .collect()
}

fn keys(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                keys(value, &path, into);
                into.insert(path);
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| keys(item, &format!("{path}[]"), into)),
        _ => {}
    }
}

/// Whether each of the pager's ways read more than its budget.
fn fills_the_budget(report: &Value) -> bool {
    let ways = report["ways"].as_array().unwrap().iter();
    let mut pagers = ways
        .map(|way| &way["pager"])
        .filter(|pager| !pager.is_null());
    pagers.all(|pager| {
        let number = |key: &str| pager[key].as_u64().unwrap();
        number("filled_pages") * 4096 > number("budget_bytes")
    })
}

#[test]
fn a_file_is_read_in_every_way_and_every_byte_is_right() {
    let (_folder, path) = made();
    let path = path.to_str().unwrap();
    let report = |duration| -> Value {
        let words = [path, "--budget", "4MiB", "--threads", "2", "--json"];
        let output = run(&[&words[..], &["--duration", duration]].concat());
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    // On a busy machine it may take longer until the budget is full.
    let report = match report("600ms") {
        report if fills_the_budget(&report) => report,
        _ => report("10s"),
    };
    let ways = report["ways"].as_array().unwrap();
    let names: Vec<&str> = ways
        .iter()
        .map(|way| way["way"].as_str().unwrap())
        .collect();
    match report["no_limit"].as_str() {
        None => assert_eq!(names, ["kernel", "eager", "lazy"]),
        Some(why) => {
            println!("plain mmap skipped: {why}");
            assert_eq!(names, ["eager", "lazy"]);
        }
    }
    for way in ways {
        assert_eq!(way["wrong_pages"], 0, "{way}");
        assert_eq!(way["checked"], true, "{way}");
        assert!(way["reads"].as_u64().unwrap() > 0, "{way}");
        if way["way"] != "kernel" {
            assert!(way["pager"]["evicted_pages"].as_u64().unwrap() > 0, "{way}");
        }
    }
    assert_eq!(
        report["lazy_against"].as_array().unwrap().len(),
        ways.len() - 1
    );
    let mut printed = BTreeSet::new();
    keys(&report, "", &mut printed);
    assert_eq!(documented("pager"), printed, "documented on the left");
}

#[test]
fn a_file_that_shows_other_bytes_is_a_failure() {
    let (_folder, path) = made();
    // The last page tells that the file is one of ours; one before is spoilt.
    let mut bytes = std::fs::read(&path).unwrap();
    for page in 1..4095 {
        bytes[page * 4096 + 100] ^= 1;
    }
    std::fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap();
    let output = run(&[
        path,
        "--budget",
        "4MiB",
        "--threads",
        "1",
        "--duration",
        "100ms",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("WRONG: "), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    let (folder, path) = made();
    let path = path.to_str().unwrap();
    let nothing = folder.path().join("nothing");
    let fifo = folder.path().join("fifo");
    let make = Command::new("mkfifo").arg(&fifo).status();
    assert!(make.unwrap().success());
    for (arguments, status, words) in [
        (
            &["nowhere", "--budget", "4MiB"][..],
            1,
            "nowhere: cannot open it: No such file",
        ),
        (&[path, "--budget", "1GiB"], 2, "fits, 16.0 MiB; give less"),
        (&[path, "--budget", "16MiB"], 2, "fits, 16.0 MiB; give less"),
        (&[path, "--budget", "4KiB"], 2, "give at least 1.0 MiB"),
        (&[path, "--budget", "much"], 2, "not a size"),
        (&[path], 2, "--budget <SIZE>"),
        (&["--budget", "4MiB"], 2, "<FILE>"),
        (
            &[path, "--budget", "4MiB", "--threads", "0"],
            2,
            "not a number from 1 to 1024",
        ),
        (
            &[path, "--budget", "4MiB", "--duration", "0s"],
            2,
            "not a time from 100ms to 1h",
        ),
        (
            &[path, "--budget", "4MiB", "--pattern", "all"],
            2,
            "invalid value 'all'",
        ),
        (&["/dev/null", "--budget", "4MiB"], 1, "not a regular file"),
        // It waited for somebody to write into the pipe.
        (
            &[fifo.to_str().unwrap(), "--budget", "4MiB"],
            1,
            "fifo: not a regular file; give one",
        ),
        (
            &["--make", path, "--size", "16MiB"],
            1,
            "cannot make it: File exists",
        ),
        (
            &["--make", nothing.to_str().unwrap(), "--size", "1"],
            2,
            "give at least 4096 bytes",
        ),
        (&["--make", nothing.to_str().unwrap()], 2, "--size <SIZE>"),
        (&["run", "--budget", "4MiB", "true"], 2, "--files <PATTERN>"),
        (&["run", "--files", "x", "true"], 2, "--budget <SIZE>"),
        (
            &["run", "--files", "a***", "--budget", "4MiB", "true"],
            2,
            "--files \"a***\"",
        ),
        (
            &["run", "--files", "x", "--budget", "4KiB", "true"],
            2,
            "at least 1MiB",
        ),
        (&["run", "--files", "x", "--budget", "4MiB"], 2, "<PROGRAM>"),
        (
            &["run", "--files", "x", "--budget", "4MiB", "nonesuch"],
            127,
            "nonesuch: not found",
        ),
        (
            &[
                "run",
                "--files",
                "x",
                "--budget",
                "4MiB",
                "--stats=/nowhere/at/all",
                "true",
            ],
            1,
            "/nowhere/at/all: cannot be written",
        ),
    ] {
        let output = run(arguments);
        let line = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
        assert!(
            line.starts_with("memtide: ") && line.contains(words),
            "{arguments:?}: {line}"
        );
        assert_eq!(output.stdout, b"", "{arguments:?}");
    }
    assert!(!nothing.exists());
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    let (_folder, path) = made();
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0);
    std::fs::set_permissions(&path, permissions).unwrap();
    if std::fs::File::open(&path).is_ok() {
        println!("skipped: this user may read everything");
        return;
    }
    let output = run(&[path.to_str().unwrap(), "--budget", "4MiB"]);
    let line = String::from_utf8_lossy(&output.stderr);
    assert!(line.contains("cannot open it: Permission denied"), "{line}");
}

/// A program that knows nothing of memtide and maps its input for reading.
fn mapper(folder: &Path) -> PathBuf {
    let source = folder.join("mapper.c");
    let text = "#include <fcntl.h>\n#include <stdio.h>\n#include <sys/mman.h>\n#include <sys/stat.h>\n\
        int main(int n, char **v) { struct stat s; int f = open(v[1], O_RDONLY); fstat(f, &s);\n\
        const unsigned char *p = mmap(0, s.st_size, PROT_READ, MAP_PRIVATE, f, 0);\n\
        unsigned long sum = n; for (int t = 0; t < 3; t++) for (long i = 0; i < s.st_size; i++)\n\
        sum = sum * 31 + p[i]; printf(\"%lx\\n\", sum); return 3; }\n";
    std::fs::write(&source, text).unwrap();
    let program = folder.join("mapper");
    let compiled = Command::new("cc")
        .arg("-O1")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status();
    assert!(
        compiled
            .expect("a C compiler, as README.md asks for")
            .success()
    );
    program
}

#[test]
fn a_program_gets_the_same_result_in_a_quarter_of_the_memory() {
    let (folder, path) = made();
    let program = mapper(folder.path());
    let plain = Command::new(&program).arg(&path).output().unwrap();
    assert_eq!(plain.status.code(), Some(3));
    let stats = folder.path().join("stats.json");
    let given = format!("--stats={}", stats.display());
    let options = ["run", "--files", "*.bin", "--budget", "4MiB"];
    let paged = memtide(&options)
        .arg(&given)
        .arg(&program)
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(
        (paged.status.code(), paged.stdout),
        (Some(3), plain.stdout.clone())
    );
    assert_eq!(String::from_utf8_lossy(&paged.stderr), "");
    let text = std::fs::read_to_string(&stats).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&report["program"], &report["kept_mappings"]),
        (&"mapper".into(), &1.into())
    );
    assert!(
        report["pager"]["evicted_pages"].as_u64().unwrap() > 0,
        "{report}"
    );
    let mut printed = BTreeSet::new();
    keys(&report, "", &mut printed);
    // What copies did is there with --local only, which needs nodes.
    assert!(report["local"].is_null(), "{report}");
    let mut expected = documented("pager run");
    expected.retain(|key| !key.starts_with("local."));
    assert_eq!(expected, printed, "documented on the left");
    // For people, and a program that maps nothing that was asked for.
    let output = memtide(&options)
        .args(["--stats", "true"])
        .output()
        .unwrap();
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        line,
        "memtide-pager: true: no mapping was kept: no file that it mapped matches --files\n"
    );
    let output = memtide(&options)
        .args(["--plain"])
        .arg(&program)
        .arg(&path)
        .output()
        .unwrap();
    let line = String::from_utf8_lossy(&output.stderr);
    match line.contains("cannot be limited") {
        true => println!("skipped: {line}"),
        false => assert_eq!(
            (output.status.code(), output.stdout),
            (Some(3), plain.stdout),
            "{line}"
        ),
    }
}

#[test]
fn where_no_program_has_a_pager_there_is_one_line() {
    let machine = tempfile::tempdir().unwrap();
    std::fs::create_dir(machine.path().join("proc")).unwrap();
    for arguments in [&["status"][..], &["status", "--json"]] {
        let mut command = memtide(arguments);
        let output = command.env("MEMTIDE_ROOT", machine.path()).output();
        let output = output.unwrap();
        let line = String::from_utf8_lossy(&output.stderr);
        let expected =
            "memtide: no program is seen to have a pager; memtide pager run starts one\n";
        assert_eq!((&*line, output.status.code()), (expected, Some(1)));
        assert_eq!(output.stdout, b"");
    }
}

fn status(pids: &[u32]) -> Value {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let mut arguments = vec!["status", "--json"];
    arguments.extend(pids.iter().map(String::as_str));
    serde_json::from_str(&stdout(&run(&arguments))).unwrap()
}

/// Whether a process's report has all that a row has, and no counter of it is less. What does
/// not only grow is not compared: the kernel takes memory back whenever it wants to.
fn goes_on_from(report: &Value, row: &Value) -> bool {
    let may_fall = ["resident_bytes", "pending_pages"];
    let only_here = [
        "files",
        "other_files",
        "last_turn_ms",
        "ended",
        "torn",
        "machine_shootdowns",
    ];
    row.as_object().unwrap().iter().all(|(name, then)| {
        let now = &report[name];
        match (now.as_u64(), then.as_u64()) {
            _ if only_here.contains(&name.as_str()) => true,
            _ if name == "pager" => goes_on_from(now, then),
            (Some(now), Some(then)) => now >= then || may_fall.contains(&name.as_str()),
            _ => now == then,
        }
    })
}

#[test]
fn a_running_programs_pager_is_seen_as_it_reports_itself_at_the_end() {
    let (folder, path) = made();
    let program = holder(folder.path());
    let stats = folder.path().join("stats.json");
    let (held, told) = Held::start(&mut paged(&program, "alone", &path, &stats), 1);
    let pid = told[0].1;
    // Until the evictor has looked, and brought memory down to the budget.
    let budget = 4 << 20;
    let began = std::time::Instant::now();
    let row = loop {
        let row = status(&[pid])["processes"][0].clone();
        let pager = |name: &str| row["pager"][name].as_u64().unwrap();
        if pager("evicted_pages") > 0 && pager("resident_bytes") <= budget {
            break row;
        }
        assert!(began.elapsed().as_secs() < 120, "{row}");
    };
    let pager = &row["pager"];
    assert_eq!(
        (&row["pid"], &row["program"]),
        (&pid.into(), &"holder".into())
    );
    assert_eq!(pager["budget_bytes"], budget);
    assert_eq!(
        (&row["ended"], &row["torn"]),
        (&false.into(), &false.into())
    );
    assert!(row["last_turn_ms"].as_u64().unwrap() < 120_000, "{row}");
    // Only one file is kept: it has it all.
    let files = row["files"].as_array().unwrap();
    assert_eq!((files.len(), &row["other_files"]["count"]), (1, &0.into()));
    assert_eq!(files[0]["name"], path.to_str().unwrap());
    assert_eq!(files[0]["mapped_bytes"], 16 << 20);
    for name in ["resident_bytes", "evicted_pages", "refilled_pages"] {
        assert_eq!(files[0][name], pager[name], "{name}");
    }
    // For people, and without its number.
    let text = stdout(&run(&["status", &pid.to_string()]));
    assert!(
        text.contains("  holder ") && text.contains("weights.bin"),
        "{text}"
    );
    let all = status(&[]);
    let mut numbers = all["processes"].as_array().unwrap().iter();
    assert!(numbers.any(|row| row["pid"] == pid), "{all}");
    held.end();
    let text = std::fs::read_to_string(&stats).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert!(goes_on_from(&report, &row), "{report}\n{row}");
    // It is gone now, and no page of it is left for others.
    let output = run(&["status", "--json", &pid.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let gone: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(gone["not_read"][0]["reason"], "there is no such process");
    let mut printed = BTreeSet::new();
    keys(&all, "", &mut printed);
    keys(&gone, "", &mut printed);
    assert_eq!(
        documented("pager status"),
        printed,
        "documented on the left"
    );
}

#[test]
fn a_forked_child_has_a_pager_of_its_own_and_others_have_none() {
    let (folder, path) = made();
    let program = holder(folder.path());
    let stats = folder.path().join("stats.json");
    let (held, told) = Held::start(&mut paged(&program, "family", &path, &stats), 3);
    let [(_, child), (_, copy), (_, parent)] = told[..] else {
        panic!("{told:?}")
    };
    // Each shows what its own evictor did, as soon as that has had a turn: one chooses, and both unmap.
    let counted = |row: &Value, name| row["pager"][name].as_u64().unwrap() > 0;
    let unmapped = |row: &Value| {
        row["kept_mappings"] == 1 && counted(row, "flush_calls") && counted(row, "resident_bytes")
    };
    let chose = |row: &Value| counted(row, "filled_pages") && counted(row, "evicted_pages");
    let began = std::time::Instant::now();
    loop {
        let both = status(&[parent, child]);
        let rows = both["processes"].as_array().unwrap();
        let pids = rows.iter().map(|row| row["pid"].as_u64().unwrap() as u32);
        assert!(pids.eq([parent.min(child), parent.max(child)]), "{both}");
        if rows.iter().all(unmapped) && rows.iter().any(chose) {
            break;
        }
        assert!(began.elapsed().as_secs() < 120, "{both}");
    }
    let has_none = |pid: u32| {
        let none = run(&["status", &pid.to_string()]);
        let line = String::from_utf8_lossy(&none.stderr);
        let words = format!("memtide: process {pid}: it has the pager's library, which shows ");
        assert!(
            line.starts_with(&words) && line.lines().count() == 1,
            "{line}"
        );
        assert_eq!(none.status.code(), Some(1));
    };
    has_none(copy);
    held.end();
    // This child has its parent's memory, and its numbers are not the child's.
    let (held, told) = Held::start(&mut paged(&program, "vfork", &path, &stats), 1);
    let parent = held.0.id();
    assert_eq!(status(&[parent])["processes"][0]["pid"], parent);
    assert_ne!(told[0].1, parent);
    has_none(told[0].1);
    held.end();
    // And another program has nothing of the one before it.
    let (held, told) = Held::start(&mut paged(&program, "exec", &path, &stats), 1);
    assert_eq!(told[0].1, held.0.id());
    has_none(told[0].1);
    held.end();
}

#[test]
fn what_only_has_the_name_and_what_may_not_be_read_is_said_in_one_line() {
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    let program = holder(folder.path());
    let (held, told) = Held::start(Command::new(&program).arg("garbage"), 1);
    let pid = told[0].1.to_string();
    let mut as_another = memtide(&["status", &pid]);
    as_another.uid(65534);
    let none = "what it shows under that name are no statistics of a pager";
    for (output, words) in [
        (Some(run(&["status", &pid])), none),
        (
            as_another.output().ok(),
            "it may not be looked into; run as root, with CAP_SYS_PTRACE",
        ),
    ] {
        let Some(output) = output else {
            println!("skipped: nobody else can run the command");
            continue;
        };
        let line = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert_eq!(line, format!("memtide: process {pid}: {words}\n"));
        assert_eq!(output.stdout, b"");
    }
    held.end();
}
