//! `memtide pager`, on files of its own: what it compares, what it refuses, and
//! a program that it runs.
//!
//! Counts are checked for sense and not for size: other programs share the
//! machine. `cargo bench -p memtide --bench pager` has the figures.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn memtide(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    command
        .arg("pager")
        .args(arguments)
        .env_remove("MEMTIDE_ROOT");
    // Where cargo put what this test was built with.
    let own = std::env::current_exe().unwrap();
    let library = own.with_file_name("libmemtide_pager_preload.so");
    command.env("MEMTIDE_PAGER_LIBRARY", library);
    command
}

fn run(arguments: &[&str]) -> Output {
    memtide(arguments)
        .output()
        .expect("the command was just built")
}

fn stdout(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{error}");
    text
}

/// A file of 16 MiB that can be checked.
fn made() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.bin");
    let text = stdout(&run(&["--make", path.to_str().unwrap(), "--size", "16MiB"]));
    assert_eq!(text, format!("{}: 16.0 MiB written\n", path.display()));
    (folder, path)
}

/// The keys of the section `name` of docs/json.md.
fn documented(name: &str) -> BTreeSet<String> {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let section = guide
        .split("\n## ")
        .find(|s| s.starts_with(&format!("{name}\n")));
    let section = section.unwrap_or_else(|| panic!("docs/json.md has no section {name}"));
    let rows = section.lines();
    rows.filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
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

#[test]
fn a_file_is_read_in_every_way_and_every_byte_is_right() {
    let (_folder, path) = made();
    let path = path.to_str().unwrap();
    let output = run(&[
        path,
        "--budget",
        "4MiB",
        "--threads",
        "2",
        "--duration",
        "600ms",
        "--json",
    ]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
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
    assert_eq!(documented("pager run"), printed, "documented on the left");
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
