//! The commands that the README and the book show are true.
//!
//! - A code block marked `console` is run, and its output compared. `...` is
//!   any number of lines, and a first line `? 1` is the exit status. The
//!   commands of a page run one after the other on a copy of a machine, two
//!   sockets with a CXL expander; the host is neither read nor changed, except
//!   by the pager on files of its own.
//! - A block marked `sh`, and commands in a block without a mark, are run as
//!   well, and must succeed.
//! - What needs a guest, root or more is told in `book/commands.toml`, a test
//!   in the guests or the reason with each; a command that is in no class fails.
//!   A block marked `console recorded` holds such commands with their output.
//! - Of all commands, and of words such as `memtide tier --all`, the commands
//!   and their options must exist.
//!
//! After a wanted change run the tests once with `SNAPSHOTS=overwrite` and read
//! the difference.

#[path = "book/blocks.rs"]
mod blocks;
#[path = "book/classes.rs"]
mod classes;
mod pages;

use blocks::{Shown, code, words};
use classes::{Class, Classes, Here};
use pages::{Page, all, root};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

const MACHINE: &str = "crates/memtide-linux/tests/fixtures/two-sockets-cxl-hmat";

fn memtide() -> Command {
    Command::new(env!("CARGO_BIN_EXE_memtide"))
}

/// Whether `actual` is `expected`, in which a line `...` is any lines.
fn matches(expected: &str, actual: &str) -> bool {
    fn lines(expected: &[&str], actual: &[&str]) -> bool {
        match expected.split_first() {
            None => actual.is_empty(),
            Some((&"...", rest)) => (0..=actual.len()).any(|skip| lines(rest, &actual[skip..])),
            Some((line, rest)) => actual.first() == Some(line) && lines(rest, &actual[1..]),
        }
    }
    let expected: Vec<&str> = expected.lines().collect();
    let actual: Vec<&str> = actual.lines().collect();
    lines(&expected, &actual)
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

/// What `output` should be instead, with as many lines before a last `...`.
fn rewritten(output: &str, actual: &str) -> String {
    match output.strip_suffix("...\n") {
        None => actual.to_owned(),
        Some(kept) => {
            let lines = actual.split_inclusive('\n').take(kept.lines().count());
            lines.chain(["...\n"]).collect()
        }
    }
}

/// Where the commands of a page are run.
struct Place {
    machine: tempfile::TempDir,
    folder: tempfile::TempDir,
}

impl Place {
    fn new(classes: &Classes) -> Place {
        let place = Place {
            machine: tempfile::tempdir().unwrap(),
            folder: tempfile::tempdir().unwrap(),
        };
        copy(&root().join(MACHINE), place.machine.path());
        for (name, source) in &classes.given {
            let (from, to) = (root().join(source), place.folder.path().join(name));
            if source.starts_with("memtide ") {
                let output = place.run(source, &Here::default());
                assert!(output.status.success(), "{source}: {output:?}");
            } else if from.is_dir() {
                copy(&from, &to);
            } else {
                std::fs::copy(&from, &to).unwrap();
            }
        }
        place
    }

    fn run(&self, command: &str, how: &Here) -> Output {
        let ours = Path::new(env!("CARGO_BIN_EXE_memtide")).parent().unwrap();
        // Where cargo builds the library for tests.
        let test = std::env::current_exe().unwrap();
        let library = test.with_file_name("libmemtide_pager_preload.so");
        let others = std::env::var_os("PATH").unwrap_or_default();
        let folders = [ours.to_owned(), self.folder.path().to_owned()];
        let folders = folders.into_iter().chain(std::env::split_paths(&others));
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("{command} {}", how.and))
            .env("PATH", std::env::join_paths(folders).unwrap())
            .env("MEMTIDE_PAGER_LIBRARY", library)
            .env("HOME", self.folder.path())
            .env_remove("MEMTIDE_ROOT")
            .current_dir(self.folder.path());
        if !how.host {
            shell.env("MEMTIDE_ROOT", self.machine.path());
        }
        shell.output().expect("a shell")
    }
}

fn run_page(page: &Page, classes: &Classes, wrong: &mut Vec<String>) -> usize {
    let mut place = None;
    let mut text = page.text.clone();
    let mut ran = 0;
    let blocks = code(&page.text);
    let blocks = blocks.iter().filter(|code| !code.is_recorded());
    for shown in blocks.flat_map(|block| block.commands().unwrap_or_default()) {
        let Some(Class::Here(how)) = classes.of(&shown.command) else {
            continue;
        };
        let place = place.get_or_insert_with(|| Place::new(classes));
        let output = place.run(&shown.command, &how);
        ran += 1;
        let status = output.status.code();
        let errors = String::from_utf8_lossy(&output.stderr);
        let actual = String::from_utf8_lossy(&output.stdout);
        let Shown {
            command,
            output: expected,
            ..
        } = shown;
        if status != Some(shown.status) {
            wrong.push(format!(
                "{}: {command}: status {status:?}: {errors}",
                page.path
            ));
        } else if let Some(expected) = expected.filter(|expected| !matches(expected, &actual)) {
            wrong.push(format!(
                "{}: {command} prints\n{actual}instead of\n{expected}",
                page.path
            ));
            text = text.replace(&expected, &rewritten(&expected, &actual));
        }
    }
    // A page of a test of this harness is no file.
    let is_file = root().join(&page.path).exists();
    if is_file
        && text != page.text
        && std::env::var("SNAPSHOTS").is_ok_and(|action| action == "overwrite")
    {
        std::fs::write(root().join(&page.path), text).unwrap();
    }
    ran
}

/// Names every command of a page with what becomes of it, and what nobody
/// thought of.
fn classify(page: &Page, classes: &Classes, wrong: &mut Vec<String>) -> Vec<(String, Class)> {
    let mut all = Vec::new();
    for block in code(&page.text) {
        let Some(commands) = block.commands() else {
            wrong.push(format!(
                "{}: a block is marked {:?}, which says nothing of its commands",
                page.path, block.mark
            ));
            continue;
        };
        for Shown { command, .. } in commands {
            match classes.of(&command) {
                None => wrong.push(format!(
                    "{}: {command}: in no class; book/commands.toml has them",
                    page.path
                )),
                // Its output may be one that no run repeats; then a block without output runs it.
                Some(Class::Here(_))
                    if block.is_recorded()
                        && !all.iter().any(|(other, class)| {
                            *other == command && matches!(class, Class::Here(_))
                        }) =>
                {
                    wrong.push(format!(
                        "{}: {command}: recorded, though it can be run here",
                        page.path
                    ));
                }
                Some(class) => all.push((command, class)),
            }
        }
    }
    all
}

#[test]
fn commands_do_what_the_pages_show() {
    let classes = Classes::read();
    let mut wrong = Vec::new();
    let pages = all();
    let run = |page| run_page(page, &classes, &mut wrong);
    let ran: usize = pages.iter().map(run).sum();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(ran >= 30, "{ran} commands were found");
}

#[test]
fn every_command_of_the_pages_is_in_a_class() {
    let classes = Classes::read();
    let mut wrong = Vec::new();
    let mut commands = Vec::new();
    for page in all() {
        for (command, class) in classify(&page, &classes, &mut wrong) {
            match &class {
                Class::Here(_) => println!("{}: {command}: run here", page.path),
                Class::Guest(test) => println!("{}: {command}: in a guest, {test}", page.path),
                Class::Nowhere(why) => println!("{}: {command}: not run: {why}", page.path),
            }
            commands.push(command);
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    let idle = classes.idle(commands.iter().map(String::as_str));
    assert!(idle.is_empty(), "no command fits these lines: {idle:#?}");
    assert!(commands.len() > 70, "{} commands", commands.len());
}

/// What `memtide` says about its commands, each asked once.
#[derive(Default)]
struct Helps(BTreeMap<Vec<String>, String>);

impl Helps {
    fn of(&mut self, path: &[String]) -> &str {
        self.0.entry(path.to_vec()).or_insert_with(|| {
            let output = memtide().args(path).arg("--help").output();
            let output = output.expect("the command was just built");
            assert!(output.status.success(), "memtide {path:?} --help");
            String::from_utf8(output.stdout).expect("the command prints text")
        })
    }

    fn has_command(&mut self, path: &[String], name: &str) -> bool {
        let help = self.of(path);
        let commands = help.split("Commands:\n").nth(1).unwrap_or_default();
        let mut lines = commands.lines().take_while(|line| !line.is_empty());
        lines.any(|line| line.split_whitespace().next() == Some(name))
    }

    fn has_option(&mut self, path: &[String], name: &str) -> bool {
        let in_name = |c: char| c.is_ascii_lowercase() || c == '-';
        self.of(path)
            .split(|c| !in_name(c))
            .any(|option| option == name)
    }

    /// What is wrong with a command line of ours.
    fn judge(&mut self, words: &[String]) -> Option<String> {
        let mut path = Vec::new();
        let mut rest = words.iter();
        while let Some(word) = rest.as_slice().first() {
            if !self.has_command(&path, word) {
                break;
            }
            path.extend(rest.next().cloned());
        }
        let first = rest.as_slice().first();
        if let Some(word) = first.filter(|word| path.is_empty() && !word.starts_with('-')) {
            let placeholder = word.chars().all(|c| !c.is_lowercase());
            return (!placeholder).then(|| format!("there is no command {word}"));
        }
        rest.take_while(|word| *word != "--")
            .filter(|word| word.starts_with("--"))
            .map(|word| word.split(['=', '[']).next().unwrap_or_default())
            .find(|option| !self.has_option(&path, option))
            .map(|option| format!("memtide {} has no option {option}", path.join(" ")))
    }
}

#[test]
fn commands_and_options_that_the_pages_name_exist() {
    let mut helps = Helps::default();
    let mut wrong = Vec::new();
    let mut judged = 0;
    for page in all() {
        for code in code(&page.text) {
            for line in code.text.lines() {
                let line = line.trim_start();
                let line = line.strip_prefix("$ ").unwrap_or(line);
                let words = words(line);
                if words.first().is_none_or(|word| word != "memtide") {
                    continue;
                }
                judged += 1;
                if let Some(why) = helps.judge(&words[1..]) {
                    wrong.push(format!("{}: {line}: {why}", page.path));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(judged > 60, "{judged} command lines were found");
}

#[test]
fn a_wrong_page_is_found_out() {
    let page = Page {
        path: "page.md".to_owned(),
        text: "```console\n$ memtide policy validate bind 0\n? 1\nno\n$ memtide topology\nno\n...\n```\n"
            .to_owned(),
    };
    let classes = Classes::read();
    let mut wrong = Vec::new();
    assert_eq!(run_page(&page, &classes, &mut wrong), 2);
    assert!(wrong[0].starts_with("page.md: memtide policy validate bind 0: status Some(0)"));
    assert!(wrong[1].starts_with("page.md: memtide topology prints\nnode"));
    assert_eq!(wrong.len(), 2);

    let mut helps = Helps::default();
    let mut judge = |line: &str| helps.judge(&words(line));
    assert_eq!(judge("tier --pid 1 --explain # words"), None);
    assert_eq!(judge("run --membind 0 -- program --strange"), None);
    assert_eq!(judge("COMMAND --help"), None);
    assert_eq!(
        judge("tier --pids 1").as_deref(),
        Some("memtide tier has no option --pids")
    );
    assert_eq!(
        judge("sim run --rep x").as_deref(),
        Some("memtide sim run has no option --rep")
    );
    assert_eq!(
        judge("teir --pid 1").as_deref(),
        Some("there is no command teir")
    );
}

#[test]
fn a_command_in_no_class_is_found_out() {
    let classes = Classes::read();
    let wrong = |text: &str| {
        let page = Page {
            path: "page.md".to_owned(),
            text: text.to_owned(),
        };
        let mut wrong = Vec::new();
        classify(&page, &classes, &mut wrong);
        wrong
    };
    let none: [String; 0] = [];
    assert_eq!(wrong("```sh\nmemtide sim list # words\n\n```\n"), none);
    assert_eq!(wrong("```toml\nrm = 1\n```\n"), none);
    assert_eq!(wrong("words\n\n    crates/memtide/  the command\n"), none);
    for text in [
        "```sh\nrm -rf target\n```\n",
        "```sh\nmemtide tier --pid 4712\n```\n",
        "```console\n$ memtide balance --all\n```\n",
        "words\n\n    memtide tier --pid 4712\n",
        "```console recorded\n$ memtide topology\n```\n",
        "```\ncargo yank\n```\n",
        "```bash\nmemtide topology\n```\n",
    ] {
        assert_eq!(wrong(text).len(), 1, "{text}");
    }
    assert_eq!(
        classes.of("cargo xtask demo --balance"),
        classes.of("cargo xtask fetch")
    );
    assert_eq!(classes.of("cargo xtasks"), None);
    let idle = |commands: &[&str]| classes.idle(commands.iter().copied()).len();
    assert_eq!(idle(&["cargo xtask fetch", "no"]), idle(&[]) - 1);
}

#[test]
fn three_points_stand_for_any_lines() {
    assert!(matches("a\n...\nd\n...\n", "a\nb\nc\nd\n"));
    assert!(!matches("a\n...\nd\n", "a\nb\nc\n"));
    assert!(!matches("a\n", "a\nb\n"));
    assert_eq!(rewritten("a\nb\n...\n", "c\nd\ne\nf\n"), "c\nd\n...\n");
    assert_eq!(
        words("a 'b c' --d=\"e f\" | g # h"),
        ["a", "b c", "--d=e f"]
    );
}
