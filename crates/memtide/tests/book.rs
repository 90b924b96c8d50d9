//! The commands that the README and the book show are true.
//!
//! - A code block marked `console` is run, and its output compared. `...` is
//!   any number of lines, and a first line `? 1` is the exit status. The
//!   commands of a page run one after the other on a copy of a machine, two
//!   sockets with a CXL expander; the host is neither read nor changed.
//! - A block marked `console recorded` needs a guest or root. Of it, of all
//!   other code and of words such as `memtide tier --all`, the commands and
//!   their options must exist.
//!
//! After a wanted change run the tests once with `SNAPSHOTS=overwrite` and read
//! the difference.

mod pages;

use pages::{Page, all, root};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const MACHINE: &str = "crates/memtide-linux/tests/fixtures/two-sockets-cxl-hmat";

fn memtide() -> Command {
    Command::new(env!("CARGO_BIN_EXE_memtide"))
}

/// A block of code with the words behind its fence, or words between backticks.
struct Code {
    mark: String,
    text: String,
}

fn code(text: &str) -> Vec<Code> {
    let mut found = Vec::new();
    let mut block: Option<Code> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let mark = match kind {
                    CodeBlockKind::Fenced(mark) => mark.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                block = Some(Code {
                    mark,
                    text: String::new(),
                });
            }
            Event::Text(words) => {
                if let Some(block) = &mut block {
                    block.text.push_str(&words);
                }
            }
            Event::End(TagEnd::CodeBlock) => found.extend(block.take()),
            Event::Code(words) => found.push(Code {
                mark: "words".to_owned(),
                text: words.into_string(),
            }),
            _ => {}
        }
    }
    found
}

/// A command of a block, with what it must print.
#[derive(Debug, PartialEq)]
struct Shown {
    command: String,
    status: i32,
    output: String,
}

fn shown(block: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            all.push(Shown {
                command: command.to_owned(),
                status: 0,
                output: String::new(),
            });
        } else if let Some(last) = all.last_mut() {
            match line.strip_prefix("? ").map(str::parse) {
                Some(Ok(status)) if last.output.is_empty() => last.status = status,
                _ => last.output.extend([line, "\n"]),
            }
        }
    }
    all
}

/// The words of a shell line up to what ends a command. Quotes hold words
/// together, which is all that the pages use.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => words.last_mut().unwrap().push(c),
            (None, '\'' | '"') => quote = Some(c),
            (None, '#' | '>' | '|' | ';') if words.last().unwrap().is_empty() => break,
            (None, c) if c.is_whitespace() => words.push(String::new()),
            (None, c) => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
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

fn run_page(page: &Page, wrong: &mut Vec<String>) -> usize {
    let machine = tempfile::tempdir().unwrap();
    copy(&root().join(MACHINE), machine.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let mut text = page.text.clone();
    let mut ran = 0;
    let blocks = code(&page.text);
    let blocks = blocks.iter().filter(|code| code.mark == "console");
    for shown in blocks.flat_map(|block| shown(&block.text)) {
        let words = words(&shown.command);
        assert_eq!(words[0], "memtide", "{}: {}", page.path, shown.command);
        let output = memtide()
            .args(&words[1..])
            .env("MEMTIDE_ROOT", machine.path())
            .current_dir(elsewhere.path())
            .output()
            .expect("the command was just built");
        ran += 1;
        let status = output.status.code();
        let errors = String::from_utf8_lossy(&output.stderr);
        let actual = String::from_utf8_lossy(&output.stdout);
        if status != Some(shown.status) {
            wrong.push(format!(
                "{}: {}: status {status:?}: {errors}",
                page.path, shown.command
            ));
        } else if !matches(&shown.output, &actual) {
            wrong.push(format!(
                "{}: {} prints\n{actual}instead of\n{}",
                page.path, shown.command, shown.output
            ));
            text = text.replace(&shown.output, &rewritten(&shown.output, &actual));
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

#[test]
fn commands_print_what_the_pages_show() {
    let mut wrong = Vec::new();
    let ran: usize = all().iter().map(|page| run_page(page, &mut wrong)).sum();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(ran >= 8, "{ran} commands were found");
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
    let mut wrong = Vec::new();
    assert_eq!(run_page(&page, &mut wrong), 2);
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
