//! What every command gets, and how it speaks: documents and text on standard output, one line on
//! standard error for what was wrong.

use super::outside;
use anyhow::Context as _;
use memtide_linux::fs::Root;
use serde::Serialize;
use std::io::{ErrorKind as IoErrorKind, Write};

/// Words that are well formed and that this machine cannot make sense of: exit
/// status 2, as for words that are not.
#[derive(Debug)]
pub struct BadUsage(pub String);

impl std::fmt::Display for BadUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUsage {}

/// What a subcommand gets besides its own arguments.
#[derive(Debug)]
pub struct Context {
    /// Where to read; also from `MEMTIDE_ROOT`.
    pub root: Root,
    /// Whether to print JSON.
    pub json: bool,
    /// Whether standard output is a terminal that may be styled.
    pub styled: bool,
}

impl Context {
    /// Writes `text` to standard output as it is.
    pub fn print(&self, text: &str) -> anyhow::Result<()> {
        let text = outside::screen(text, self.styled);
        unless_gone(out(text.as_bytes()))
    }

    /// Writes `document` as JSON, indented, with a line end.
    pub fn print_json(&self, document: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(document)?;
        text.push('\n');
        unless_gone(out(outside::json(&text).as_bytes()))
    }
}

fn out(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// What writing to standard output gave. A reader that has seen enough, as
/// `head` does, is no error.
pub fn unless_gone(written: std::io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == IoErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// Says what was wrong on standard error: one line, whatever the message holds.
pub fn complain(message: &str) {
    say(&format!("memtide: {}", outside::message(message)));
}

/// A line on standard error. If that takes nothing there is nobody to tell.
pub fn say(line: &str) {
    let mut err = std::io::stderr().lock();
    let _ = writeln!(err, "{line}");
}
