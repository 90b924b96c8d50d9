//! TOML in, and errors that say where: file, line, key, and what would be right.
//!
//! The TOML reader knows the place of an error as a range of bytes. Here that becomes a line, the
//! key that stands there, and, where a name is unknown, the known name that is spelled most alike.

use serde::de::DeserializeOwned;
use std::ops::Range;

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct TextError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key, what is wrong with it, and what to do.
    pub what: String,
}

/// A file's name and text, for errors that come after reading.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its name as the user gave it.
    pub file: &'a str,
    /// Its text.
    pub text: &'a str,
}

impl Source<'_> {
    /// Reads a value from the text.
    ///
    /// # Errors
    ///
    /// What the TOML reader or the value's type objects to, with its line.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, TextError> {
        toml::from_str(self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let message = friendly(error.message());
            match self.key_at(&span) {
                // These messages name their key themselves.
                Some(key) if !message.contains('`') => {
                    self.error(span, &format!("{key}: {message}"))
                }
                _ => self.error(span, &message),
            }
        })
    }

    /// An error at a place of the text.
    #[must_use]
    pub fn error(&self, span: Range<usize>, what: &str) -> TextError {
        let before = self.text.get(..span.start).unwrap_or("");
        TextError {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            what: what.lines().collect::<Vec<_>>().join("; "),
        }
    }

    /// The key before the value at `span`, on the same line.
    fn key_at(&self, span: &Range<usize>) -> Option<String> {
        let before = self.text.get(..span.start)?;
        let line = &before[before.rfind('\n').map_or(0, |at| at + 1)..];
        let key = line.rsplit_once('=')?.0;
        let key = key.rsplit(['{', ',']).next()?.trim();
        (!key.is_empty()).then(|| key.to_owned())
    }
}

/// Adds the nearest right spelling to an "unknown field" or "unknown variant".
#[must_use]
pub fn friendly(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown ") else {
        return message.to_owned();
    };
    let mut names = rest.split('`').skip(1).step_by(2);
    let Some(wrong) = names.next() else {
        return message.to_owned();
    };
    let known: Vec<&str> = names.collect();
    format!(
        "unknown key or word `{wrong}`{}; known here: {}",
        did_you_mean(wrong, &known),
        known.join(", ")
    )
}

/// "; did you mean `x`?" if one of `known` is spelled much like `wrong`.
#[must_use]
pub fn did_you_mean(wrong: &str, known: &[&str]) -> String {
    nearest(wrong, known).map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

/// The name that is spelled most like `wrong`, if any is near.
#[must_use]
pub fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &str| strsim::damerau_levenshtein(wrong, name);
    let best = known.iter().min_by_key(|name| distance(name))?;
    let longest = wrong.chars().count().max(best.chars().count());
    (distance(best) * 2 <= longest).then_some(*best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Example {
        threads: u32,
        latency: Nanos,
    }

    fn error(text: &str) -> String {
        let source = Source {
            file: "a.toml",
            text,
        };
        source.read::<Example>().unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_comes_with_line_and_spelling() {
        assert_eq!(
            error("latency = \"1 ns\"\n\nthreds = 4\n"),
            "a.toml:3: unknown key or word `threds`; did you mean `threads`?; known here: threads, latency"
        );
        assert!(!error("zebra = 1\n").contains("did you mean"));
    }

    #[test]
    fn a_missing_unit_comes_with_line_and_key() {
        assert_eq!(
            error("threads = 1\nlatency = 110\n"),
            "a.toml:2: latency: \"110\" has no unit; write a number and one of ns, us, ms, s, min, as in \"110 ns\""
        );
    }

    #[test]
    fn what_is_no_toml_has_its_line_too() {
        assert!(error("threads = 1\nlatency = \n").starts_with("a.toml:2: "));
        assert!(error("threads = 1\n").contains("missing field `latency`"));
    }
}
