//! C programs with the library between them and the C library, beside the same
//! programs without it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Pages of the file: four times the budget.
const PAGES: u64 = 1024;
const BUDGET: &str = "1MiB";

/// The library that belongs to this test run.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    // Beside the tests, where cargo puts what they are built with.
    own.parent().unwrap().join("libmemtide_pager_preload.so")
}

/// The programs, compiled once.
fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        for name in [
            "sequences",
            "hammer",
            "refused",
            "raw",
            "forks",
            "mappings",
            "unseen",
            "allocations",
            "cancelled",
            "closing",
            "filter",
            "locks",
            "resident",
        ] {
            let source = programs.join(name).with_extension("c");
            compile(&folder.path().join(name), &[source], &[]);
        }
        let random = programs.join("random");
        let into = |name| folder.path().join(name);
        compile(&into("reader"), &c_files(&programs.join("reader")), &[]);
        compile(&into("random"), &c_files(&random), &[]);
        let plugin = c_files(&random.join("plugin"));
        compile(&into("random_plugin.so"), &plugin, &["-shared", "-fPIC"]);
        compile(&into("compare"), &c_files(&random.join("compare")), &[]);
        folder
    });
    folder.path().join(name)
}

fn compile(output: &Path, sources: &[PathBuf], options: &[&str]) {
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(output)
        .args(sources)
        .args(options)
        .arg("-lpthread")
        .output()
        .expect("a C compiler, as README.md asks for");
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{errors}");
}

fn c_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "c"));
    paths.sort();
    paths
}

/// A folder with `data.bin`: word 0 and the last word of page n are n.
fn data() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.bin");
    let mut file = std::fs::File::create(&path).unwrap();
    for page in 0..PAGES {
        let mut bytes = [0; 4096];
        bytes[..8].copy_from_slice(&page.to_le_bytes());
        bytes[4088..].copy_from_slice(&page.to_le_bytes());
        file.write_all(&bytes).unwrap();
    }
    file.sync_all().unwrap();
    (folder, path)
}

fn preloaded(command: &mut Command, stats: &Path) -> Output {
    preload(command, stats).output().unwrap()
}

fn preload<'a>(command: &'a mut Command, stats: &Path) -> &'a mut Command {
    command
        .env("LD_PRELOAD", library())
        .env("MEMTIDE_PAGER_FILES", "*.bin")
        .env("MEMTIDE_PAGER_BUDGET", BUDGET)
        .env("MEMTIDE_PAGER_STATS", stats)
}

fn text(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    // Many readers of little memory overrun it where the evictor has no processor, and are told so.
    let overrun = |line: &&str| line.starts_with("memtide-pager: the budget of ");
    let said: Vec<&str> = error.lines().filter(|line| !overrun(line)).collect();
    assert_eq!(said, [""; 0]);
    text_beside_remarks(output)
}

/// Of a program that is told what could not be kept.
fn text_beside_remarks(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}{error}{}", output.status);
    let mut lines = error.lines();
    assert!(
        lines.all(|line| line.starts_with("memtide-pager: ")),
        "{error}"
    );
    out
}

/// The reports of all processes of a run.
fn reports(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn first_difference<'a>(left: &'a str, right: &'a str) -> Option<(&'a str, &'a str)> {
    let mut lines = left.lines().zip(right.lines());
    lines.find(|(left, right)| left != right)
}

#[test]
fn random_sequences_of_calls_come_to_the_same() {
    let seeds = std::env::var("MEMTIDE_PRELOAD_SEEDS").map_or(6, |text| text.parse().unwrap());
    let (mut kept, mut evicted) = (0, 0);
    for seed in 1..=seeds {
        let run = |with: bool| {
            // It writes to its file, so each run has one of its own.
            let (folder, file) = data();
            let mut command = Command::new(program("sequences"));
            command.arg(file).args([&seed.to_string(), "150"]);
            let stats = folder.path().join("stats.json");
            let output = match with {
                true => preloaded(&mut command, &stats),
                false => command.output().unwrap(),
            };
            (text_beside_remarks(&output), reports(&stats))
        };
        let (plain, _) = run(false);
        let (paged, reports) = run(true);
        let difference = first_difference(&plain, &paged);
        assert_eq!(difference, None, "seed {seed}: plain and preloaded differ");
        assert_eq!(plain.len(), paged.len(), "seed {seed}");
        for report in reports {
            kept += report["kept_mappings"].as_u64().unwrap();
            evicted += report["pager"]["evicted_pages"].as_u64().unwrap_or(0);
        }
    }
    assert!(kept > 0 && evicted > 0, "kept {kept}, evicted {evicted}");
}

#[test]
fn threads_that_map_write_and_unmap_read_what_is_right() {
    let (folder, file) = data();
    let seconds = std::env::var("MEMTIDE_PAGER_SECONDS").map_or(2, |text| text.parse().unwrap());
    let stats = folder.path().join("stats.json");
    let sum = |field: &dyn Fn(&serde_json::Value) -> Option<u64>| -> u64 {
        reports(&stats).iter().filter_map(field).sum()
    };
    // On a busy machine two seconds are a few mappings: then there are more runs.
    let enough = || {
        let counted = |name| sum(&|report| report[name].as_u64());
        counted("kept_mappings") > 10 && counted("handed_over") > 0
    };
    for run in 0..20 {
        if run > 0 && enough() {
            break;
        }
        let mut command = Command::new(program("hammer"));
        command.arg(&file).args(["4", &format!("{seconds}000")]);
        // So many readers overrun so small a budget there, and are told so.
        let output = text_beside_remarks(&preloaded(&mut command, &stats));
        assert!(output.ends_with("none wrong\n"), "{output}");
    }
    assert!(enough(), "{:?}", reports(&stats));
    let evicted = sum(&|report| report["pager"]["evicted_pages"].as_u64());
    assert!(evicted > 0, "{:?}", reports(&stats));
}

#[test]
fn what_is_answered_otherwise_is_what_would_break_the_budget() {
    let (folder, file) = data();
    let stats = folder.path().join("stats.json");
    let plain = text(
        &Command::new(program("refused"))
            .arg(&file)
            .output()
            .unwrap(),
    );
    // In memory it may still be from being written.
    drop_from_memory(&file);
    let paged = text(&preloaded(
        Command::new(program("refused")).arg(&file),
        &stats,
    ));
    let differences: Vec<(&str, &str)> = plain
        .lines()
        .zip(paged.lines())
        .filter(|(plain, paged)| plain != paged)
        .collect();
    // ENOMEM is 12.
    assert_eq!(
        differences,
        [
            ("all read in: 1", "all read in: 0"),
            ("mlock: 0", "mlock: error 12"),
            ("mlock2: 0", "mlock2: error 12"),
        ]
    );
    let report = &reports(&stats)[0];
    assert_eq!(report["kept_mappings"], 2, "{report}");
    assert_eq!(report["not_read_in"], 3, "{report}");
    assert_eq!(report["locks_refused"], 2, "{report}");
    assert_eq!(report["handed_over"], 1, "{report}");
}

#[test]
fn memory_that_took_a_kept_mappings_place_unseen_is_left_alone() {
    let (folder, file) = data();
    let stats = folder.path().join("stats.json");
    let mut command = Command::new(program("raw"));
    let output = text(&preloaded(command.arg(file), &stats));
    assert_eq!(output, "lost: 0\n");
    let report = &reports(&stats)[0];
    assert!(
        report["pager"]["evicted_pages"].as_u64().unwrap() > 0,
        "{report}"
    );
}

#[test]
fn what_is_done_around_the_c_library_comes_to_the_same() {
    for case in [
        "protect",
        "fork",
        "none",
        "dontfork",
        "closed",
        "beyond",
        "around",
        "guard",
        "guards",
        "guards-fork",
        "again",
        "leader",
    ] {
        let (folder, file) = data();
        let stats = folder.path().join("stats.json");
        let mut command = Command::new(program("unseen"));
        command.arg(file).arg(case);
        let plain = text(&command.output().unwrap());
        let paged = text_beside_remarks(&preloaded(&mut command, &stats));
        assert_eq!(plain, paged, "{case}");
        let reports = reports(&stats);
        let kept = |report: &serde_json::Value| report["kept_mappings"].as_u64() > Some(0);
        assert!(reports.iter().any(kept), "{case}: {reports:?}");
    }
}

/// Also the library's own, at the moment when it closes or uses them.
#[test]
fn descriptors_may_be_closed_at_any_moment() {
    let (folder, file) = data();
    let stats = folder.path().join("stats.json");
    let mut command = Command::new(program("closing"));
    command.arg(file).arg("2000");
    let output = text_beside_remarks(&preloaded(&mut command, &stats));
    assert_eq!(output, "wrong 0\n");
}

/// Closing any descriptor of a file would end them, the library's own copies included.
#[test]
fn record_locks_of_the_program_last() {
    let (folder, file) = data();
    let stats = folder.path().join("stats.json");
    let mut command = Command::new(program("locks"));
    command.arg(file);
    let plain = text(&command.output().unwrap());
    assert!(plain.ends_with("then locked, then free\n"), "{plain}");
    let paged = text_beside_remarks(&preloaded(&mut command, &stats));
    assert_eq!(plain, paged);
    let kept = reports(&stats)[0]["kept_mappings"].as_u64();
    assert!(kept > Some(0), "{kept:?}");
}

/// The nth that the library makes, once or from then on.
#[test]
fn an_allocation_that_fails_passes_mappings_over_and_ends_nobody() {
    let (folder, file) = data();
    let run = |nth: u32, how: &str, with: bool| {
        let mut command = Command::new(program("allocations"));
        command.arg(&file).args([&nth.to_string(), how]);
        match with {
            true => preloaded(&mut command, &folder.path().join("stats.json")),
            false => command.output().unwrap(),
        }
    };
    let plain = run(1, "once", false).stdout;
    let mut passed_over = 0;
    for how in ["once", "ever"] {
        let mut nth = 1;
        loop {
            let output = run(nth, how, true);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(text, String::from_utf8_lossy(&plain), "{how} {nth}: {said}");
            match output.status.code() {
                Some(0) => {
                    let words = "no memory for the pager's own tables";
                    passed_over += u32::from(said.contains(words));
                }
                // So many were not made.
                Some(3) => break,
                _ => panic!("{how} {nth}: {} {said}", output.status),
            }
            nth = (nth + 1).max(nth * 9 / 8);
        }
        assert!(nth > 100, "only {nth}");
    }
    assert!(passed_over > 50, "{passed_over}");
}

/// More by `cargo xtask random-programs`, which also runs one again.
#[test]
fn random_programs_come_to_the_same() {
    let programs = std::env::var("MEMTIDE_RANDOM_PROGRAMS").unwrap_or("200".to_owned());
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(program("compare"))
        .arg(library())
        .arg(program("random"))
        .arg(folder.path())
        .args(["1", &programs, "2"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    println!("{said}");
    assert!(
        !said.contains("kept 0 ") && !said.contains("evicted 0 "),
        "{said}"
    );
}

fn forks(arguments: &[&str]) -> String {
    let (folder, file) = data();
    // Who waits for a lock takes no other signal.
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120"]).arg(program("forks"));
    command.arg(file).args(arguments);
    // Only what maps something is to report.
    command.env("MEMTIDE_PAGER_PID", "1");
    text(&preloaded(&mut command, &folder.path().join("stats.json")))
}

#[test]
fn copies_of_the_process_made_without_libc_wait_for_nobody() {
    let copies = std::env::var("MEMTIDE_PRELOAD_COPIES").unwrap_or("2000".to_owned());
    assert_eq!(forks(&["copies", &copies]), "stuck 0, wrong 0\n");
}

#[test]
fn a_handler_of_others_may_unmap_kept_pages_while_the_process_forks() {
    assert_eq!(forks(&["prepare"]), "forked: 0\n");
}

#[test]
fn forks_and_libraries_that_come_and_go_wait_for_nobody() {
    assert_eq!(forks(&["libraries", "500"]), "500 forks\n");
}

#[test]
fn a_fork_with_a_thousand_kept_mappings_costs_no_listing_for_each() {
    // Four times as many take four times as long. With a listing of all mappings for
    // each it is 16 times; between the two lies 8.
    let times: f64 = forks(&["many", "1000"]).trim().parse().unwrap();
    assert!(times < 8.0, "{times} times as long for four times as many");
}

#[test]
fn the_budget_holds_whatever_becomes_of_the_mappings() {
    for case in [
        "start", "middle", "end", "unseen", "longer", "grows", "populate", "twice", "windows",
        "offset", "moved", "advised",
    ] {
        let (folder, file) = data();
        let mut command = Command::new(program("mappings"));
        command.arg(file).args([case, "256"]);
        let stats = folder.path().join("stats.json");
        let output = preloaded(&mut command, &stats);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "wrong 0, within\n",
            "{case}: {said}"
        );
        let report = &reports(&stats)[0];
        assert!(
            report["kept_mappings"].as_u64().unwrap() > 0,
            "{case}: {report}"
        );
    }
}

#[test]
fn a_hostile_name_stays_on_its_line() {
    let (folder, file) = data();
    let hostile = folder.path().join("a\x1b[2J\n.bin");
    std::fs::rename(&file, &hostile).unwrap();
    let mut command = Command::new("python3");
    let text = "import mmap,sys\nf=open(sys.argv[1],'r+b')\nmmap.mmap(f.fileno(),0)[0]\n";
    command.env("MEMTIDE_PAGER_PID", "1");
    let stats = folder.path().join("stats.json");
    let output = preloaded(command.args(["-c", text]).arg(&hostile), &stats);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains(r"a\u{1b}[2J\n.bin: left to the kernel"),
        "{said:?}"
    );
    assert_eq!(said.lines().count(), 1, "{said:?}");
}

#[test]
fn what_is_not_kept_is_said_once_with_its_reason() {
    let (folder, file) = data();
    let stats = folder.path().join("stats.json");
    let mut command = Command::new("python3");
    let text = "import mmap,sys\nf=open(sys.argv[1],'r+b')\n\
                for n in range(3): mmap.mmap(f.fileno(),0)[0]\n";
    // Where python3 is a script, that would report, too.
    command.env("MEMTIDE_PAGER_PID", "1");
    let output = preloaded(command.args(["-c", text]).arg(&file), &stats);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = format!(
        "memtide-pager: {}: left to the kernel: mapped for more than reading\n",
        file.display()
    );
    assert_eq!(said, line);
    let report = &reports(&stats)[0];
    assert_eq!(report["left_out"], 3, "{report}");
    assert_eq!(
        report["left_out_because"][0],
        "mapped for more than reading"
    );
    // Nothing matched at all: said without being asked.
    let output = Command::new(program("raw"))
        .arg(&file)
        .env("LD_PRELOAD", library())
        .env("MEMTIDE_PAGER_FILES", "*.nothing")
        .env("MEMTIDE_PAGER_BUDGET", BUDGET)
        .output();
    assert_eq!(
        String::from_utf8_lossy(&output.unwrap().stderr),
        "memtide-pager: raw: no mapping was kept: no file that it mapped matches --files\n"
    );
}

/// Drops the file from memory, as far as the kernel lets us.
fn drop_from_memory(path: &Path) {
    let dropped = Command::new("dd")
        .arg(format!("of={}", path.display()))
        .args([
            "oflag=nocache",
            "conv=notrunc,fdatasync",
            "count=0",
            "status=none",
        ])
        .status();
    assert!(dropped.unwrap().success());
}

#[test]
fn settings_that_make_no_sense_are_said_and_harm_nobody() {
    for (budget, said) in [
        (
            "much",
            "memtide-pager: MEMTIDE_PAGER_BUDGET: \"much\" is not a size; write it as 2GiB\n",
        ),
        (
            "",
            "memtide-pager: MEMTIDE_PAGER_BUDGET is missing; write it as 2GiB\n",
        ),
        (
            "1",
            "memtide-pager: budget 1: give at least 16 granules of 65536 bytes\n",
        ),
    ] {
        let (_folder, file) = data();
        let output = Command::new(program("hammer"))
            .arg(file)
            .args(["8", "50"])
            .env("LD_PRELOAD", library())
            .env("MEMTIDE_PAGER_FILES", "*.bin")
            .env("MEMTIDE_PAGER_BUDGET", budget)
            .output()
            .unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), said);
    }
}

/// Before, such a thread ended in the middle of a call, and with it the process (SIGABRT).
#[test]
fn a_cancelled_thread_does_not_end_in_the_middle_of_a_call() {
    let (folder, file) = data();
    let stats = folder.path().join("stats.json");
    let mut command = Command::new(program("cancelled"));
    let plain = text(&command.arg(&file).output().unwrap());
    assert_eq!(plain.lines().count(), 1, "{plain}");
    assert!(plain.starts_with("mapped 20, ") && plain.ends_with(", cancelled\n"));
    let kept = text(&preloaded(&mut command, &stats));
    assert_eq!(kept, plain);
    assert_eq!(reports(&stats)[0]["kept_mappings"], 20);
}

/// A program may have forbidden itself the memory file in which statistics are shown.
#[test]
fn what_a_filter_of_system_calls_refuses_is_said_and_can_be_switched_off() {
    let (folder, file) = data();
    let stats = folder.path().join("stats.json");
    for (way, status, said) in [
        (
            "refuse",
            "on",
            "memtide-pager: a memory file that shows statistics: Operation not permitted (os error \
             1); all else is as usual, but memtide pager status sees none of this process\n",
        ),
        ("refuse", "off", ""),
        ("kill", "off", ""),
    ] {
        let mut command = Command::new(program("filter"));
        command.arg(&file).arg(way);
        command.env("MEMTIDE_PAGER_STATUS", status);
        let output = preloaded(&mut command, &stats);
        if output.status.code() == Some(77) {
            println!("skipped: this kernel has no filters of system calls");
            return;
        }
        assert!(output.status.success(), "{way} {status}: {}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stderr), said);
        let sum = PAGES * (PAGES - 1) / 2;
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{sum}\n"));
    }
    let kept = reports(&stats);
    assert!(
        kept.len() == 3 && kept.iter().all(|report| report["kept_mappings"] == 1),
        "{kept:?}"
    );
}

#[test]
fn children_and_programs_that_map_nothing() {
    let (folder, file) = data();
    let stats = folder.path().join("stats.json");
    // The shell and cat map nothing that is wanted; what the shell starts does.
    let mut command = Command::new("sh");
    command
        .args(["-c", "cat \"$1\" | wc -c; \"$0\" \"$1\" 2 300"])
        .arg(program("hammer"))
        .arg(&file);
    // Only the shell would report that nothing was kept.
    command.env("MEMTIDE_PAGER_PID", "1");
    let output = text(&preloaded(&mut command, &stats));
    assert!(output.starts_with("4194304\nchecked "), "{output}");
    let reports = reports(&stats);
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!(reports[0]["program"], "hammer");
}

/// A program that reads all of its file whenever it is told to.
struct Reader {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Reader {
    fn start(file: &Path, stats: &Path) -> Reader {
        let mut command = Command::new(program("reader"));
        preload(command.arg(file), stats);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut reader = Reader { child, answers };
        assert_eq!(reader.answer(), "mapped\n");
        reader
    }

    fn tell(&mut self, what: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(what.as_bytes()).unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line
    }
}

/// All of them map and read all of the file, so that none could have a page dropped by itself. The one that was
/// there first is killed then.
#[test]
fn several_processes_keep_one_budget() {
    let (folder, file) = data();
    let stats = folder.path().join("stats.json");
    let mut command = Command::new(program("resident"));
    command.arg(&file);
    let mut resident = || {
        let pages = text(&command.output().unwrap());
        pages.trim().parse::<u64>().unwrap()
    };
    let mut readers = [(); 3].map(|()| Reader::start(&file, &stats));
    let mut read = |readers: &mut [Reader], what: &str| {
        for _ in 0..4 {
            readers.iter_mut().for_each(|reader| reader.tell("0\n"));
            for reader in readers.iter_mut() {
                assert_eq!(reader.answer(), "right\n", "{what}");
            }
        }
        let until = Instant::now() + Duration::from_secs(30);
        while resident() > PAGES / 4 {
            assert!(Instant::now() < until, "{what}: {} pages", resident());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    read(&mut readers, "three");
    readers[0].child.kill().unwrap();
    readers[0].child.wait().unwrap();
    read(&mut readers[1..], "two, after one was killed");
    for reader in &mut readers[1..] {
        reader.tell("ends\n");
        assert!(reader.child.wait().unwrap().success());
    }
    let reports = reports(&stats);
    let count = |name: &str| {
        let counts = reports.iter().map(|report| &report["pager"][name]);
        counts
            .map(|count| count.as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    // Both unmapped; who leads dropped.
    assert!(
        count("flush_calls").iter().all(|calls| *calls > 0),
        "{reports:?}"
    );
    assert!(
        count("dropped_pages").iter().any(|pages| *pages > 0),
        "{reports:?}"
    );
}
