//! The code of a page, and the commands in it.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Marks of blocks that show data and no command.
const DATA: [&str; 4] = ["toml", "jsonl", "json", "promql"];
/// First words of commands in blocks without a mark, which show other things, too.
const PROGRAMS: [&str; 4] = ["memtide", "cargo", "rustup", "perf"];

/// A block of code with the words behind its fence, or words between backticks.
pub struct Code {
    pub mark: String,
    pub text: String,
}

pub fn code(text: &str) -> Vec<Code> {
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
pub struct Shown {
    pub command: String,
    pub status: i32,
    /// None where a block shows commands only.
    pub output: Option<String>,
}

impl Code {
    pub fn is_recorded(&self) -> bool {
        self.mark == "console recorded"
    }

    /// Its commands without their comments; none if the mark is unknown.
    pub fn commands(&self) -> Option<Vec<Shown>> {
        match self.mark.as_str() {
            "console" | "console recorded" => Some(self.with_outputs()),
            "sh" => Some(self.lines(|_| true)),
            "" => Some(self.lines(|first| PROGRAMS.contains(&first))),
            "words" => Some(Vec::new()),
            mark => DATA.contains(&mark).then(Vec::new),
        }
    }

    fn lines(&self, counts: impl Fn(&str) -> bool) -> Vec<Shown> {
        let lines = self.text.lines().map(without_comment);
        lines
            .filter(|line| line.split_whitespace().next().is_some_and(&counts))
            .map(|line| Shown {
                command: line.to_owned(),
                status: 0,
                output: None,
            })
            .collect()
    }

    fn with_outputs(&self) -> Vec<Shown> {
        let mut all: Vec<Shown> = Vec::new();
        for line in self.text.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                all.push(Shown {
                    command: without_comment(command).to_owned(),
                    status: 0,
                    output: Some(String::new()),
                });
            } else if let Some(last) = all.last_mut() {
                let output = last.output.get_or_insert_default();
                match line.strip_prefix("? ").map(str::parse) {
                    Some(Ok(status)) if output.is_empty() => last.status = status,
                    _ => output.extend([line, "\n"]),
                }
            }
        }
        all
    }
}

/// Where the words of a shell line end: at a comment or, if `operators`, at what ends a command.
/// Quotes hold words together, which is all that the pages use.
fn end(line: &str, operators: bool) -> usize {
    let (mut quote, mut last) = (None, ' ');
    for (at, c) in line.char_indices() {
        let begins = last.is_whitespace();
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') if begins => return at,
            (None, '>' | '|' | ';') if begins && operators => return at,
            _ => {}
        }
        last = c;
    }
    line.len()
}

fn without_comment(line: &str) -> &str {
    line[..end(line, false)].trim()
}

/// The words of a shell line up to what ends a command.
pub fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line[..end(line, true)].chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => words.last_mut().unwrap().push(c),
            (None, '\'' | '"') => quote = Some(c),
            (None, c) if c.is_whitespace() => words.push(String::new()),
            (None, c) => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
