//! Text that comes from outside, on its way to a terminal.
//!
//! Names of processes and files, arguments and values out of files are whatever
//! somebody chose. Printed as they are, escape sequences among them would draw
//! on the terminal of root, a line end would make a line that looks like one of
//! ours, marks of the direction of writing would turn around what stands beside
//! them, and a value of a gigabyte would fill the screen for an hour.
//!
//! So names and values go through [`outside`] or [`path`]: one line, nothing
//! that is not printed, cut. Whole messages go through [`message`] or [`line()`],
//! and what is printed in the end through [`screen`] or [`json`], which let nothing pass
//! that moves more than the cursor's line, whoever has forgotten the first.

use memtide_linux::text::{is_hidden, one_line};
use std::borrow::Cow;
use std::path::Path;

/// Characters of a name or a value that are shown.
const LONGEST: usize = 200;
/// Characters of a message that are shown.
const LONGEST_MESSAGE: usize = 4000;

/// A name or a value, for people.
pub fn outside(text: &str) -> Cow<'_, str> {
    one_line(text, LONGEST)
}

/// A value in quotes, as it would be written in a program.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((cut, _)) => format!("{:?}... ({} bytes)", &text[..cut], text.len()),
    }
}

/// A path, for people. What is no text in it is shown by a mark.
pub fn path(path: &Path) -> String {
    outside(&path.to_string_lossy()).into_owned()
}

/// A message, as one line.
pub fn message(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    one_line(&words.join(" "), LONGEST_MESSAGE).into_owned()
}

/// A sentence, as one line. Unlike in [`message`], its spaces stay as they are.
pub fn line(text: &str) -> Cow<'_, str> {
    one_line(text, LONGEST_MESSAGE)
}

/// An error with its causes, none of them said twice: many an error's own words
/// end with its cause's.
pub fn causes(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

/// Text as it goes to standard output, with lines of its own; with colours and
/// weights, if `styled`.
pub fn screen(text: &str, styled: bool) -> Cow<'_, str> {
    let hidden = |c: char| is_hidden(c) && c != '\n' && c != '\t';
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if styled && let Some(length) = style(rest) {
            clean.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        match hidden(first) {
            true => clean.extend(first.escape_default()),
            false => clean.push(first),
        }
        rest = &rest[first.len_utf8()..];
    }
    Cow::Owned(clean)
}

/// The length of the style with which `text` begins (`ESC [ 1 ; 31 m`).
fn style(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    (parameters[end..].starts_with('m')).then_some(2 + end + 1)
}

/// A JSON document: the same document, written with escapes where the library
/// leaves characters that are not printed.
pub fn json(document: &str) -> Cow<'_, str> {
    let hidden = |c: char| is_hidden(c) && c != '\n';
    if !document.contains(hidden) {
        return Cow::Borrowed(document);
    }
    let mut clean = String::with_capacity(document.len());
    for c in document.chars() {
        match hidden(c) {
            true => {
                let units = c.encode_utf16(&mut [0; 2]).to_owned();
                clean.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
            false => clean.push(c),
        }
    }
    Cow::Owned(clean)
}

/// A name as somebody might choose it who wants to write on root's terminal, for
/// tests of who prints names.
#[cfg(test)]
pub const HOSTILE: &str = "a\x1b]0;owned\x07\x1b[2J\u{9b}1A\rb\nmemtide: all is well\u{202e}";

/// Whether `text` is one line without a line end that a terminal shows as it is,
/// and has [`HOSTILE`] in it, written out.
#[cfg(test)]
pub fn shows_hostile(text: &str) -> bool {
    !text.contains(is_hidden) && text.contains(&*outside(HOSTILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_on_their_line_and_in_their_colour() {
        assert_eq!(outside("redis-server"), "redis-server");
        assert_eq!(outside("caf\u{e9}"), "caf\u{e9}");
        assert_eq!(outside("\x1b[31mred\n"), r"\u{1b}[31mred\n");
        assert_eq!(outside("\u{9b}2J\u{202e}\x7f"), r"\u{9b}2J\u{202e}\u{7f}");
        assert_eq!(quoted("a\"\x1b\u{202e}\n"), r#""a\"\u{1b}\u{202e}\n""#);
        let long = "x".repeat(1 << 20);
        assert_eq!(quoted(&long).len(), 202 + "... (1048576 bytes)".len());
        assert_eq!(outside(&long).len(), 200 + "... (1048576 bytes)".len());
        assert!(message(&long).len() < 4100);
        assert_eq!(message("a\n  b\x1b[2J"), r"a b\u{1b}[2J");
        assert_eq!(line("a  b\n\tc\x1b[2J"), r"a  b\n\tc\u{1b}[2J");
        assert!(line(&long).len() < 4100);
    }

    #[test]
    fn a_screen_lets_lines_and_styles_pass() {
        let table = "a\t\x1b[1;31mb\x1b[0m\n";
        assert_eq!(screen(table, true), table);
        assert_eq!(screen("\x1b[1mb\n", false), "\\u{1b}[1mb\n");
        assert_eq!(
            screen("\x1b[2J\x1b]0;t\x07", true),
            r"\u{1b}[2J\u{1b}]0;t\u{7}"
        );
    }

    #[test]
    fn a_document_means_the_same() {
        let name = "a\u{9b}\x7f\u{e0001}\n\u{e9}";
        let text = serde_json::to_string_pretty(&[name]).unwrap();
        let clean = json(&text);
        assert!(
            !clean.contains(|c: char| is_hidden(c) && c != '\n'),
            "{clean}"
        );
        assert_eq!(serde_json::from_str::<Vec<String>>(&clean).unwrap(), [name]);
    }

    #[test]
    fn no_cause_is_said_twice() {
        let cause = std::io::Error::other("disk on fire");
        let error = anyhow::Error::new(cause).context("a: disk on fire; run");
        assert_eq!(causes(&error), "a: disk on fire; run");
        let error = anyhow::anyhow!("c").context("b").context("a");
        assert_eq!(causes(&error), "a: b: c");
    }
}
