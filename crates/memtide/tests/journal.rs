//! `--from-journal`: a run that was written down runs again, and differences are named.

use memtide_core::tiering::space::VirtualPage;
use memtide_loop::journal::{Facts, Journal, Line, Recording, Telling};
use memtide_loop::options::TierOptions;
use memtide_loop::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use memtide_loop::tier::{TierConfig, Tierer};
use memtide_loop::world::World;
use std::cell::RefCell;
use std::process::Command;

const TURNS: usize = 200;
const SEED: u64 = 5;

#[derive(Default)]
struct Text(Vec<String>);

impl Journal for Text {
    fn line(&mut self, line: Line<'_>) {
        self.0.push(serde_json::to_string(&line).unwrap());
    }
}

/// A journal of some turns of tiering on a small world, line by line.
fn journal() -> Vec<String> {
    let mut live = FakeWorld::two_tiers(300, 3000);
    live.processes.push(FakeProcess::new(6, 0, 250, FAST));
    let mut process = FakeProcess::new(7, 1000, 2000, SLOW);
    process.hot = (1000..3000).step_by(20).map(VirtualPage).collect();
    live.processes.push(process);
    let options = TierOptions::DEFAULT;
    let head = serde_json::json!({
        "memtide_journal": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "run": {"tier": {"options": options, "seed": SEED}},
        "facts": Facts::of(&live),
    });
    let lines = RefCell::new(Text(vec![head.to_string()]));
    let config = TierConfig::new(&options, live.topology(), live.page(), SEED).unwrap();
    let mut world = Recording::new(&mut live, &lines);
    let mut tierer = Tierer::new(&mut world, config);
    for _ in 0..TURNS {
        lines.borrow_mut().line(Line::Step);
        let mut nobody = ();
        let mut reporter = Telling::new(&mut nobody, &lines);
        tierer.step(&mut world, &mut reporter).unwrap();
    }
    lines.borrow_mut().line(Line::Finish);
    tierer.finish(&mut world).unwrap();
    lines.into_inner().0
}

/// The exit status, and all that was printed.
fn replayed(text: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.journal");
    std::fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_memtide"))
        .args(["tier", "--from-journal"])
        .arg(&file)
        .env_remove("MEMTIDE_ROOT")
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&printed).into_owned(),
    )
}

#[test]
fn a_full_device_is_an_error_and_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.journal");
    std::fs::write(&file, text(&journal())).unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let output = Command::new(env!("CARGO_BIN_EXE_memtide"))
        .args(["tier", "--from-journal"])
        .arg(&file)
        .env_remove("MEMTIDE_ROOT")
        .stdout(full.unwrap())
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("memtide: cannot write"), "{error}");
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_run_that_was_written_down_runs_again() {
    let (status, printed) = replayed(&text(&journal()));
    assert_eq!(status, Some(0), "{printed}");
    assert!(printed.contains("all 200 turns agree"), "{printed}");
}

#[test]
fn a_changed_answer_is_named() {
    let mut lines = journal();
    // The page that commutes to flush translations did not move: another takes its place.
    let moved = format!(r#"{{"moved":{{"from":{}}}}}"#, SLOW.0);
    let mut moves = lines.iter_mut().filter(|line| line.contains(&moved));
    let changed = moves.next().expect("a page moved");
    *changed = changed.replacen(&moved, r#""busy""#, 1);
    let (status, printed) = replayed(&text(&lines));
    assert_eq!(status, Some(1), "{printed}");
    assert!(printed.contains("line "), "{printed}");
}

#[test]
fn a_journal_cut_in_the_middle_agrees_as_far_as_it_goes() {
    let whole = text(&journal());
    let (status, printed) = replayed(&whole[..whole.len() / 2]);
    assert_eq!(status, Some(0), "{printed}");
    assert!(
        printed.contains("whole turns agree; the journal ends"),
        "{printed}"
    );
}

#[test]
fn what_is_no_journal_is_refused_with_its_line() {
    let mut lines = journal();
    lines[4] = "{\"call\":".to_owned();
    let (status, printed) = replayed(&text(&lines));
    assert_eq!(status, Some(1), "{printed}");
    assert!(printed.contains("line 5"), "{printed}");
    for other in ["", "{}\n", "[1, 2]\n", "\u{0}\u{1}"] {
        let (status, printed) = replayed(other);
        assert!(matches!(status, Some(1 | 2)), "{other:?}: {printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
    }
}
