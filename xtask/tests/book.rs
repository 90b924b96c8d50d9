//! Commands of the pages that need a guest have a test there that runs the same.
//!
//! `crates/memtide/tests/book.rs` runs the other commands. Both read `book/commands.toml` beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
struct Classes {
    guest: BTreeMap<String, Guest>,
}

#[derive(Deserialize)]
struct Guest {
    test: String,
    #[serde(default)]
    without: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The words of the sources below `path`, without those of comments.
fn words(path: &Path, deep: bool, found: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() || deep {
                words(&path, deep, found);
            }
        }
    } else if path.is_file() && path.extension().is_some_and(|end| end == "rs") {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().map(str::trim_start);
        for line in lines.filter(|line| !line.starts_with("//")) {
            let pieces = line.split(|c: char| !c.is_ascii_lowercase() && c != '-');
            found.extend(pieces.map(str::to_owned));
        }
    }
}

/// What is wrong with the test that stands for a command.
fn judge(command: &str, guest: &Guest) -> Option<String> {
    let tests = testbed::guest::tests::all();
    let Some(test) = tests.iter().find(|test| test.name == guest.test) else {
        return Some(format!("there is no test {}", guest.test));
    };
    if test.on_request {
        return Some(format!("{} is not part of every run", test.name));
    }
    let group = test.name.split('/').next().unwrap();
    let sources = root().join("testbed/src/guest");
    let mut used = BTreeSet::new();
    words(&sources, false, &mut used);
    words(&sources.join("tests").join(group), true, &mut used);
    words(
        &sources.join("tests").join(format!("{group}.rs")),
        true,
        &mut used,
    );
    let mut asked = command.split_whitespace().take_while(|word| *word != "--");
    assert_eq!(asked.next(), Some("memtide"), "{command}");
    let subcommand = asked.next().unwrap();
    let options = asked.filter(|word| word.starts_with("--"));
    std::iter::once(subcommand).chain(options).find_map(|word| {
        let left_out = guest.without.iter().any(|option| option == word);
        match (used.contains(word), left_out) {
            (true, false) | (false, true) => None,
            (false, false) => Some(format!("no test of {group} has {word}")),
            (true, true) => Some(format!("{group} has {word} by now")),
        }
    })
}

#[test]
fn commands_that_need_a_guest_have_their_test() {
    let file = root().join("crates/memtide/tests/book/commands.toml");
    let text = std::fs::read_to_string(file).unwrap();
    let classes: Classes = toml::from_str(&text).unwrap();
    assert!(classes.guest.len() > 10);
    for (command, guest) in &classes.guest {
        if let Some(why) = judge(command, guest) {
            panic!("{command}: {why}");
        }
    }
}

#[test]
fn a_test_that_does_not_run_the_command_is_found_out() {
    let judge = |command: &str, test: &str, without: &[&str]| {
        let guest = Guest {
            test: test.to_owned(),
            without: without.iter().map(|&option| option.to_owned()).collect(),
        };
        judge(command, &guest)
    };
    assert_eq!(
        judge("memtide rebalance --pid 1", "respread/shares", &[]),
        None
    );
    for (command, test, without, why) in [
        (
            "memtide tier --pid 1",
            "manners/no",
            &[][..],
            "there is no test manners/no",
        ),
        (
            "memtide tier --pid 1",
            "tiering/scattered/kernel",
            &[],
            "tiering/scattered/kernel is not part of every run",
        ),
        (
            "memtide rebalance --strange",
            "respread/shares",
            &[],
            "no test of respread has --strange",
        ),
        (
            "memtide rebalance --pid 1",
            "respread/shares",
            &["--pid"],
            "respread has --pid by now",
        ),
    ] {
        assert_eq!(judge(command, test, without).as_deref(), Some(why));
    }
}
