//! The small steps that all parsers share.
//!
//! A parser sees bytes, not a string: paths in procfs may hold any byte but
//! zero. It works line by line and says on which line it gave up.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Where in a file, and over what, a parser gave up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {item}: {problem}")]
pub struct ParseError {
    /// Line number, from 1.
    pub line: usize,
    /// The field or record that was being read.
    pub item: String,
    /// What was wrong.
    pub problem: String,
}

impl ParseError {
    pub(crate) fn new(line: usize, item: impl Into<String>, problem: impl Into<String>) -> Self {
        ParseError {
            line,
            item: item.into(),
            problem: problem.into(),
        }
    }
}

pub(crate) type Parsed<T> = Result<T, ParseError>;

/// The lines with their numbers, without line ends; empty ones are left out.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes
        .split(|byte| *byte == b'\n')
        .zip(1..)
        .map(|(line, number)| (number, line))
        .filter(|(_, line)| !line.trim_ascii().is_empty())
}

/// `bytes` as text; the kernel writes ASCII wherever it does not print a path.
pub(crate) fn text<'a>(bytes: &'a [u8], line: usize, item: &str) -> Parsed<&'a str> {
    std::str::from_utf8(bytes)
        .map_err(|_| ParseError::new(line, item, format!("{} is not text", quoted(bytes))))
}

/// A decimal number. Unlike `str::parse` it refuses a plus sign.
pub(crate) fn number(bytes: &[u8], line: usize, item: &str) -> Parsed<u64> {
    radix(bytes, 10, line, item)
}

/// A number in hexadecimal without a prefix.
pub(crate) fn hex(bytes: &[u8], line: usize, item: &str) -> Parsed<u64> {
    radix(bytes, 16, line, item)
}

fn radix(bytes: &[u8], radix: u32, line: usize, item: &str) -> Parsed<u64> {
    let kind = if radix == 16 {
        "a hexadecimal number"
    } else {
        "an unsigned number"
    };
    let refuse = || ParseError::new(line, item, format!("{} is not {kind}", quoted(bytes)));
    if bytes.first() == Some(&b'+') {
        return Err(refuse());
    }
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|digits| u64::from_str_radix(digits, radix).ok())
        .ok_or_else(refuse)
}

/// A decimal number that fits `T`.
pub(crate) fn small<T: TryFrom<u64>>(bytes: &[u8], line: usize, item: &str) -> Parsed<T> {
    let value = number(bytes, line, item)?;
    T::try_from(value).map_err(|_| ParseError::new(line, item, format!("{value} is too large")))
}

/// A file of one number.
pub(crate) fn only_number(bytes: &[u8]) -> Parsed<u64> {
    number(bytes.trim_ascii(), 1, "value")
}

/// The words of a line.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// `bytes` for a message: quoted, escaped, and cut after 40 bytes.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(40)];
    let rest = if shown.len() < bytes.len() { "..." } else { "" };
    format!("\"{}{rest}\"", shown.escape_ascii())
}

/// Undoes the kernel's three-digit octal escapes (`\040` is a space).
/// A backslash without three octal digits behind it stands for itself.
pub(crate) fn unescape(bytes: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        rest = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                path.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                tail
            }
            _ => {
                path.push(first);
                tail
            }
        };
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_escapes_are_undone_and_other_backslashes_kept() {
        // \040 = 4 * 8 = 32, a space; \377 = 255; \9 is no escape.
        assert_eq!(unescape(b"/a\\040b"), PathBuf::from("/a b"));
        assert_eq!(unescape(b"/a\\9\\04"), PathBuf::from("/a\\9\\04"));
        assert_eq!(
            unescape(b"\\377"),
            PathBuf::from(OsString::from_vec(vec![255]))
        );
    }

    #[test]
    fn numbers_refuse_signs_and_overflow() {
        assert_eq!(number(b"18446744073709551615", 1, "x"), Ok(u64::MAX));
        for wrong in [&b"+1"[..], b"-1", b"", b"1 ", b"18446744073709551616"] {
            assert!(number(wrong, 1, "x").is_err(), "{wrong:?}");
        }
        assert_eq!(
            small::<u16>(b"65536", 4, "x").unwrap_err().to_string(),
            "4: x: 65536 is too large"
        );
    }

    #[test]
    fn long_input_is_cut_in_messages() {
        assert_eq!(quoted(b"a\n"), "\"a\\n\"");
        assert_eq!(quoted(&[b'x'; 50]).len(), 40 + 2 + 3);
    }
}
