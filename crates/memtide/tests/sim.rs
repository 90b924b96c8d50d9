//! What `memtide sim` says: of a tiny scenario in full, of those that come with it by name.
//!
//! After a wanted change run the tests once with `SNAPSHOTS=overwrite` and read the difference.

use serde_json::Value;
use snapbox::Data;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn tiny() -> String {
    here("tests/data/tiny.toml").display().to_string()
}

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memtide"))
        .arg("sim")
        .args(arguments)
        .env_remove("MEMTIDE_ROOT")
        .output()
        .expect("the command was just built")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the command prints text")
}

/// Standard output of a run that must succeed in silence.
fn prints(arguments: &[&str]) -> String {
    let output = sim(arguments);
    let errors = text(output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    assert_eq!(errors, "");
    text(output.stdout)
}

/// Exit status and the one line of a run that must print nothing else.
fn fails(arguments: &[&str]) -> (Option<i32>, String) {
    let output = sim(arguments);
    let error = text(output.stderr);
    assert_eq!(output.stdout, b"", "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    let line = error.strip_prefix("memtide: ").expect("the command's name");
    (output.status.code(), line.trim_end().to_owned())
}

fn assert_snapshot(actual: String, name: &str) {
    let expected = Data::read_from(&here("tests/snapshots").join(name), None);
    snapbox::Assert::new()
        .action_env("SNAPSHOTS")
        .eq(Data::text(actual).raw(), expected.raw());
}

/// The files of a folder of the repository that end with `.toml`, without that.
fn files(folder: &str) -> BTreeSet<String> {
    std::fs::read_dir(here("../../scenarios").join(folder))
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            Some(name.strip_suffix(".toml")?.to_owned())
        })
        .collect()
}

fn names(array: &Value) -> BTreeSet<String> {
    let names = array.as_array().unwrap().iter();
    names
        .map(|line| line["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn every_file_of_the_folders_comes_with_the_program() {
    let list: Value = serde_json::from_str(&prints(&["list", "--json"])).unwrap();
    assert_eq!(names(&list["scenarios"]), files(""));
    assert_eq!(names(&list["machines"]), files("machines"));
    let text = prints(&["list"]);
    for name in files("").iter().chain(&files("machines")) {
        assert!(
            text.lines().any(|line| line.starts_with(name.as_str())),
            "{name}"
        );
    }
}

#[test]
fn every_scenario_can_be_explained_by_name_and_by_path() {
    for name in files("") {
        let by_name = prints(&["explain", &name]);
        let path = here("../../scenarios").join(&name).with_extension("toml");
        let path = path.display().to_string();
        let by_path = prints(&["explain", &path]);
        assert_eq!(by_name, by_path.replace(&path, &name));
        for part in [
            "THE MACHINE",
            "THE WORKLOAD",
            "THE CONFIGURATIONS",
            "  oracle\n",
        ] {
            // Pages are counted, or a hot set is looked for: no bound is in place there.
            let unbounded = ["page-count", "scale", "scale-large"].contains(&&name[..]);
            assert!(
                unbounded && part.contains("oracle") || by_name.contains(part),
                "{name}: {part}\n{by_name}"
            );
        }
        assert!(
            by_name.lines().all(|line| !line.contains("  , ")),
            "{by_name}"
        );
    }
}

#[test]
fn a_scenario_in_plain_words() {
    let printed = prints(&["explain", &tiny()]);
    assert!(!printed.contains('\x1b'), "a pipe gets no escapes");
    assert_snapshot(
        printed.replace(&tiny(), "tiny.toml"),
        "sim-explain-tiny.txt",
    );
}

/// What a run prints, without the one line that the clock on the wall decides.
fn without_rate(text: &str) -> String {
    let rates = text
        .lines()
        .filter(|line| line.ends_with(" million simulated accesses/s"));
    assert_eq!(rates.count(), 1, "{text}");
    text.lines()
        .filter(|line| !line.ends_with(" million simulated accesses/s"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Text with `N` in place of every figure, and single spaces: what a change of the model leaves alone.
fn without_figures(text: &str) -> String {
    let mask = |word: &str| match word.contains(|c: char| c.is_ascii_digit()) {
        true => "N".to_owned(),
        false => word.to_owned(),
    };
    text.lines()
        .map(|line| {
            line.split_whitespace()
                .map(mask)
                .collect::<Vec<_>>()
                .join(" ")
                + "\n"
        })
        .collect()
}

#[test]
fn a_run_prints_tables_and_writes_what_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let report = folder.path().join("out.html");
    let printed = prints(&[
        "run",
        &tiny(),
        "--json",
        json.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ]);
    let (tables, charts) = printed.rsplit_once("Charts: ").unwrap();
    assert_eq!(charts.trim_end(), report.to_str().unwrap());
    assert_snapshot(without_figures(&without_rate(tables)), "sim-run-tiny.txt");
    // The same document goes to standard output if no file is named, and then nothing else does.
    let written = std::fs::read_to_string(&json).unwrap();
    assert_eq!(written, prints(&["run", &tiny(), "--json"]));
    assert_eq!(written, prints(&["run", "--json", "-", &tiny()]));
    let page = std::fs::read_to_string(&report).unwrap();
    // Three charts over time, two over nodes and a map of each of five runs; two of bars.
    let charts = ["lines", "heat", "bars"].map(|kind| {
        let chart = format!("class=\"chart {kind}\"");
        page.matches(&chart).count()
    });
    assert_eq!(charts, [3 + 2 * 5, 5, 2]);
    assert!(page.contains("memtide sim run tiny.toml --report report.html"));
    assert!(page.contains("Published, but not run: magic") && page.contains("300 ns"));
    let machine = here("").display().to_string();
    assert!(!page.contains(&machine) && !written.contains(&machine));
}

#[test]
fn every_access_can_be_checked() {
    let printed = prints(&["run", &tiny(), "--check", "--only", "scans, precise"]);
    let line = printed.lines().find(|line| line.starts_with("Checked: "));
    // Two threads of two million accesses, and a page of their list for each 512 of them: 3,907 a thread.
    assert_eq!(
        line,
        Some("Checked: all of 4,007,814 simulated accesses found their page's newest content."),
        "{printed}"
    );
}

#[test]
fn what_is_not_asked_for_is_not_run() {
    let printed = prints(&[
        "run",
        &tiny(),
        "--only",
        "samples,scans, precise",
        "--json",
        "-",
    ]);
    let document: Value = serde_json::from_str(&printed).unwrap();
    let runs = document["scenarios"][0]["cases"][0]["configurations"]
        .as_array()
        .unwrap();
    let named: Vec<_> = runs
        .iter()
        .map(|run| run["configuration"].as_str().unwrap())
        .collect();
    assert_eq!(named, ["scans, precise", "samples"]);
    // There is nothing to compare with.
    assert!(runs.iter().all(|run| run["ratio"].is_null()));
    assert_eq!(document["scenarios"][0]["scale"], 1);
    let halved = prints(&[
        "run",
        &tiny(),
        "--only",
        "off",
        "--scale",
        "1/2",
        "--json",
        "-",
    ]);
    let halved: Value = serde_json::from_str(&halved).unwrap();
    assert_eq!(halved["scenarios"][0]["scale"], 2);
    let other = prints(&[
        "run",
        &tiny(),
        "--only",
        "samples",
        "--seed",
        "2",
        "--json",
        "-",
    ]);
    assert_ne!(
        other,
        prints(&["run", &tiny(), "--only", "samples", "--json", "-"])
    );
}

/// The smallest scale at which every node of the scenario's machine has 512 pages, up to 1/16384.
fn smallest(name: &str) -> String {
    match name {
        "page-count" => return "1".to_owned(),
        // Its 8 GiB have 4096 huge pages.
        "pghot-mode3" => return "1/4096".to_owned(),
        _ => (),
    }
    let scenario: Value = serde_json::from_str(&prints(&["explain", name, "--json"])).unwrap();
    let nodes = scenario["machine"]["nodes"].as_array().unwrap();
    let bytes = nodes
        .iter()
        .map(|node| node["memory_bytes"].as_u64().unwrap());
    let most = bytes.min().unwrap() / 4096 / 512;
    format!("1/{}", (1 << most.ilog2()).min(16384))
}

/// The same bytes at any number of jobs, for each scenario that comes with memtide. Two
/// configurations each, at a small scale: time and not size is what costs there.
#[test]
fn the_same_bytes_at_any_number_of_jobs() {
    // Those at full size whatever the scale, and those of many minutes, are made small where the simulator tests
    // itself (`memtide-sim/tests/scenarios.rs`).
    let large = ["scale", "scale-large", "numab-bind-pmbench", "luf-llama"];
    let all = files("").into_iter();
    let all: Vec<String> = all.filter(|name| !large.contains(&&**name)).collect();
    let list: Value = serde_json::from_str(&prints(&["list", "--json"])).unwrap();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while let Some(name) =
                    all.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let lines = list["scenarios"].as_array().unwrap();
                    let line = lines.iter().find(|line| line["name"] == **name).unwrap();
                    let runs = line["configurations"].as_array().unwrap();
                    // The one that does most stands before ours and the bounds.
                    let only = runs[runs.len().saturating_sub(4)].as_str().unwrap();
                    let scale = smallest(name);
                    let run = |jobs| {
                        let first = runs[0].as_str().unwrap();
                        prints(&[
                            "run", name, "--json", "-", "--scale", &scale, "--jobs", jobs,
                            "--only", only, "--only", first,
                        ])
                    };
                    assert!(run("1") == run("2"), "{name}: other bytes at two jobs");
                }
            });
        }
    });
}

#[test]
fn a_recording_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("recording.csv");
    let mut rows = "time_ns,thread,address,write\n".to_owned();
    for n in 0..4000u64 {
        // 64 pages, one after the other, by two threads; each access 10 us after the one before.
        rows += &format!(
            "{},{},{},{}\n",
            n * 10_000,
            n % 2,
            0x10_0000 + n % 64 * 4096,
            n % 3 == 0
        );
    }
    std::fs::write(&csv, &rows).unwrap();
    let machine = here("tests/data/tiny-machine.toml").display().to_string();
    let csv = csv.to_str().unwrap();
    let run = |file: &str| prints(&["run", "--trace", file, "--machine", &machine, "--json", "-"]);
    let document: Value = serde_json::from_str(&run(csv)).unwrap();
    let runs = document["scenarios"][0]["cases"][0]["configurations"]
        .as_array()
        .unwrap();
    let named: Vec<_> = runs
        .iter()
        .map(|run| run["configuration"].as_str().unwrap())
        .collect();
    assert_eq!(named, ["off", "kernel", "memtide tier", "static", "oracle"]);
    // 4,000 accesses, the last after 39.99 ms.
    assert_eq!(runs[0]["accesses"], 4000);
    let seconds = runs[0]["seconds"].as_f64().unwrap();
    assert!((0.039..0.06).contains(&seconds), "{seconds}");

    // What the machine's file names lies beside it.
    let text = std::fs::read_to_string(&machine).unwrap();
    let (head, first) = text.split_once("id = 0\n").unwrap();
    let measured = format!("{head}id = 0\nmeasured = \"m.json\"\n{first}");
    let own = folder.path().join("own.toml");
    std::fs::write(&own, measured).unwrap();
    std::fs::copy(
        here("tests/data/measured-cxl.json"),
        folder.path().join("m.json"),
    )
    .unwrap();
    let own = own.to_str().unwrap();
    let printed = prints(&[
        "run",
        "--trace",
        csv,
        "--machine",
        own,
        "--only",
        "off,static",
    ]);
    assert!(printed.contains("static"), "{printed}");

    std::fs::write(csv, format!("{rows}1,0,0,0\n")).unwrap();
    let (status, line) = fails(&["run", "--trace", csv]);
    assert_eq!(status, Some(2));
    assert!(
        line.ends_with("row 4001: time_ns goes back from 39990000 to 1; sort the rows by time_ns")
    );
    let (status, line) = fails(&["run", "--trace", "absent.parquet"]);
    assert_eq!(status, Some(2), "{line}");
    assert!(line.starts_with("absent.parquet: "), "{line}");
}

/// Nobody waits through them, in no row.
#[test]
fn idle_days_of_a_recording_are_over_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("days.csv");
    let last = 100 * 86_400 * 1_000_000_000u64;
    let rows = format!("time_ns,thread,address,write\n0,0,0,0\n{last},0,4096,0\n");
    std::fs::write(&csv, rows).unwrap();
    let machine = here("tests/data/tiny-machine.toml").display().to_string();
    let csv = csv.to_str().unwrap();
    let only = "memtide tier";
    let words = ["run", "--trace", csv, "--machine", &machine, "--only", only];
    let document = prints(&[&words[..], &["--no-scale-error", "--json", "-"]].concat());
    let document: Value = serde_json::from_str(&document).unwrap();
    let run = &document["scenarios"][0]["cases"][0]["configurations"][0];
    assert_eq!(run["seconds"].as_f64().unwrap().round(), 8_640_000.0);
    // Only while it was awake, some seconds, did the loop look at anything.
    let passes = run["tiering"]["passes"].as_u64().unwrap();
    assert!(passes < 1000, "{passes}");
}

#[test]
fn a_recording_has_threads_within_limits() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("threads.csv");
    let mut rows = "time_ns,thread,address,write\n".to_owned();
    (0..=1 << 16).for_each(|thread| rows += &format!("{thread},{thread},0,0\n"));
    std::fs::write(&csv, rows).unwrap();
    let (status, line) = fails(&["run", "--trace", csv.to_str().unwrap()]);
    assert_eq!(status, Some(2));
    assert!(
        line.ends_with("it has more than 65,536 threads; cut it"),
        "{line}"
    );
}

#[test]
fn mistakes_are_named_with_what_would_be_right() {
    let cases: [(&[&str], &str); 13] = [
        (&["run"], "NAME|FILE"),
        (&["run", "pghot-mod1"], "did you mean pghot-mode1? "),
        (
            &["explain", "nothing-like-it-at-all"],
            "memtide sim list shows those that there are",
        ),
        (&["run", "absent.toml"], "absent.toml: No such file"),
        (
            &["run", "pghot-mode1", "--scale", "1/3"],
            "N a power of two",
        ),
        (&["run", "pghot-mode1", "--scale", "-1"], "write it as 1/16"),
        (
            &["run", "pghot-mode1", "--jobs", "0"],
            "not a number from 1 to 1024",
        ),
        (
            &["run", "pghot-mode1", "--seed", "-1"],
            "not a number from 0 to 2^64 - 1",
        ),
        (&["run", "pghot-mode1", "--only", "NUMAB9"], "NUMAB9"),
        (&["run", "page-count", "--scale", "1/2"], "page-count"),
        (
            &["run", "pghot-mode1", "--trace", "x.csv"],
            "cannot be used with",
        ),
        (
            &["run", "pghot-mode1", "--machine", "x"],
            "cannot be used with",
        ),
        (&["run", "--machine", "x"], "--trace <FILE>"),
    ];
    for (arguments, right) in cases {
        let (status, line) = fails(arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {line}");
        assert!(line.contains(right), "{arguments:?}: {line}");
    }
}

#[test]
fn a_mistake_in_a_file_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(tiny()).unwrap();
    let machine = std::fs::read_to_string(here("tests/data/tiny-machine.toml")).unwrap();
    std::fs::write(folder.path().join("tiny-machine.toml"), &machine).unwrap();
    let file = folder.path().join("wrong.toml");
    let file_name = file.to_str().unwrap();
    for (right, wrong, says) in [
        ("threads = 2", "threds = 2", "did you mean `threads`?"),
        ("memory = \"16 MiB\"", "memory = \"16\"", "has no unit"),
        ("memory = \"16 MiB\"", "memory = 16", "memory"),
        ("on = 1", "on = 7", "on: "),
        ("tiny-machine.toml", "absent.toml", "machine: "),
        ("scale = 1", "scale = 3", "scale: 3 is no power of two"),
        ("page-table-scan", "page-table-scam", "page-table-scan"),
    ] {
        let line = text.lines().position(|line| line.contains(right)).unwrap() + 1;
        std::fs::write(&file, text.replacen(right, wrong, 1)).unwrap();
        let (status, error) = fails(&["run", file_name]);
        assert_eq!(status, Some(2), "{error}");
        let place = format!("{file_name}:{line}: ");
        assert!(
            error.starts_with(&place) && error.contains(says),
            "{wrong}: {error}"
        );
    }
    std::fs::write(&file, &text).unwrap();
    let wrong = machine.replacen("\ncpus = 4", "\ncpu = 4", 1);
    std::fs::write(folder.path().join("tiny-machine.toml"), &wrong).unwrap();
    let (status, error) = fails(&["explain", file_name]);
    assert_eq!(status, Some(2));
    let line = wrong.lines().position(|line| line == "cpu = 4").unwrap() + 1;
    assert!(
        error.contains(&format!("tiny-machine.toml:{line}: ")),
        "{error}"
    );
}

/// The keys that a file may hold at the place of `zzz`, which it may not.
fn known_keys(file: &Path, text: &str) -> BTreeSet<String> {
    std::fs::write(file, text).unwrap();
    let scenario = file.with_file_name("scenario.toml");
    let (status, error) = fails(&["explain", scenario.to_str().unwrap()]);
    assert_eq!(status, Some(2), "{error}");
    let known = error
        .rsplit_once("known here: ")
        .unwrap_or_else(|| panic!("{text}: {error}"));
    known.1.split(", ").map(str::to_owned).collect()
}

/// What docs/scenarios.md names, and what files may hold.
#[test]
fn the_format_of_scenarios_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("scenario.toml");
    let machine = folder.path().join("machine.toml");
    let guide = std::fs::read_to_string(here("../../docs/scenarios.md")).unwrap();
    let named: BTreeSet<&str> = guide.split('`').skip(1).step_by(2).collect();
    let head = "title = \"\"\nshows = \"\"\nmachine = \"machine.toml\"\nscale = 1\n";
    let mut known = known_keys(&scenario, "zzz = 1\n");
    let kinds = known_keys(&scenario, &format!("{head}[workload.zzz]\n"));
    for kind in &kinds {
        known.extend(known_keys(
            &scenario,
            &format!("{head}[workload.{kind}]\nzzz = 1\n"),
        ));
    }
    for table in [
        "[[workload.ranges.range]]",
        "[[case]]",
        "[[case]]\n[case.home]",
        "[[program]]",
        "[[configuration]]",
        "[[configuration]]\n[configuration.class.x]",
        "[[configuration]]\n[configuration.pghot]",
        "[[configuration]]\n[configuration.interleave]",
        "[[configuration]]\n[configuration.samples]",
        "[[configuration]]\n[configuration.tier]",
        "[[configuration]]\n[configuration.balance]",
        "[[published]]",
        "[[published]]\n[published.balancing]",
        "[[published]]\n[published.tlb]",
    ] {
        known.extend(known_keys(&scenario, &format!("{head}{table}\nzzz = 1\n")));
    }
    std::fs::write(&scenario, format!("{head}configuration = []\n")).unwrap();
    for table in [
        "",
        "[cpu]",
        "[costs]",
        "[storage]",
        "[[node]]",
        "[[node]]\n[node.loaded]",
        "[[link]]",
    ] {
        known.extend(known_keys(&machine, &format!("{table}\nzzz = 1\n")));
    }
    known.extend(kinds);
    for key in &known {
        assert!(
            named.contains(key.as_str()),
            "docs/scenarios.md does not name `{key}`"
        );
    }
    // The other way around: what stands in the first column of a table is a key or a kind.
    for row in guide.lines().filter_map(|line| line.strip_prefix("| `")) {
        let key = row.split('`').next().unwrap();
        assert!(
            known.contains(key),
            "docs/scenarios.md names `{key}`, which does not exist"
        );
    }
}

#[test]
fn the_example_in_the_guide_is_a_scenario() {
    let guide = std::fs::read_to_string(here("../../docs/scenarios.md")).unwrap();
    let example = guide
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("machines")).unwrap();
    let machine = "machines/small-cxl.toml";
    std::fs::copy(
        here("../../scenarios").join(machine),
        folder.path().join(machine),
    )
    .unwrap();
    let file = folder.path().join("example.toml");
    std::fs::write(&file, example).unwrap();
    let printed = prints(&["explain", file.to_str().unwrap()]);
    assert!(
        printed.contains("8 threads on node 0 make 100 million accesses each"),
        "{printed}"
    );
}

/// Every key that the documents hold stands in docs/json.md, and the other way around.
#[test]
fn the_schemas_are_documented() {
    let tiny = tiny();
    let tier = ["run", "zipf-drift", "--only", "memtide tier"];
    let tier = [&tier[..], &["--scale", "1/4096", "--json", "-"]].concat();
    let balance = ["run", "sockets", "--only", "memtide balance"];
    let balance = [&balance[..], &["--scale", "1/16384", "--json", "-"]].concat();
    for (section, runs) in [
        (
            "sim run",
            &[
                &["run", &tiny, "--check", "--json", "-"][..],
                &["run", &tiny, "--seeds", "2", "--json", "-"],
                &tier,
                &balance,
            ][..],
        ),
        ("sim list", &[&["list", "--json"]]),
        ("sim explain", &[&["explain", &tiny, "--json"]]),
    ] {
        let guide = std::fs::read_to_string(here("../../docs/json.md")).unwrap();
        let found = guide
            .split("\n## ")
            .find(|part| part.starts_with(&format!("{section}\n")));
        let documented: BTreeSet<&str> = found
            .expect("docs/json.md has the section")
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        let mut used = BTreeSet::new();
        for arguments in runs {
            let document: Value = serde_json::from_str(&prints(arguments)).unwrap();
            collect_keys(&document, "", &mut used);
        }
        assert_eq!(
            documented,
            used.iter().map(String::as_str).collect(),
            "{section}: documented on the left, printed on the right"
        );
    }
}

/// The keys of several programs and of classes are in another document.
#[test]
fn the_schema_of_programs_is_documented() {
    let keys = |guide: &str, section: &str| -> BTreeSet<String> {
        let guide = std::fs::read_to_string(here("../../docs").join(guide)).unwrap();
        let mut parts = guide.split("\n## ");
        let part = parts.find(|part| part.starts_with(&format!("{section}\n")));
        let lines = part.expect("the section is there").lines();
        lines
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .map(str::to_owned)
            .collect()
    };
    let row = ["--only", "memtide tier, classes", "--json", "-"];
    let run = [&["run", "burst", "--scale", "1/512"][..], &row].concat();
    let document: Value = serde_json::from_str(&prints(&run)).unwrap();
    let mut used = BTreeSet::new();
    collect_keys(&document, "", &mut used);
    let documented = keys("simulator.md", "Several programs at once");
    assert!(
        documented.is_subset(&used),
        "documented on the left, printed on the right"
    );
    let both = &documented | &keys("json.md", "sim run");
    let missing: Vec<_> = used.difference(&both).collect();
    assert!(missing.is_empty(), "not documented: {missing:?}");
}

/// The keys of a document. Counters, mappings and causes are named by others.
fn collect_keys(value: &Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields)
            if ![".counters", ".pages", ".luf.refused", ".luf.forced"]
                .iter()
                .any(|end| path.ends_with(end)) =>
        {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                collect_keys(value, &path, keys);
                keys.insert(path);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect_keys(item, &format!("{path}[]"), keys);
            }
        }
        _ => {}
    }
}
