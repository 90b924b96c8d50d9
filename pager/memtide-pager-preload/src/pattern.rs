//! Patterns of paths as a shell has them: `*`, `?`, `[a-z]`, `[!a-z]` within a name, `**` for
//! any number of names.
//!
//! What a pattern means is the `glob` crate's word, and so is whether there is such a
//! pattern. Its matcher tries all ways to divide a name among stars, which takes hours with
//! some ten of them. Here it is bounded; see [`wildcard`].

use glob::PatternError;
use memtide_core::wildcard;
use std::path::Path;

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Whether it stands for whole paths, and not for names.
    whole: bool,
    names: Vec<Name>,
}

/// What is between two slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    /// `**`.
    AnyNumber,
    Of(Vec<Part>),
}

/// A part of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `*`.
    Any,
    Character(char),
    /// `?` or what is in brackets.
    Class(glob::Pattern),
}

impl Pattern {
    /// Reads it.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        glob::Pattern::new(text)?;
        let mut names = vec![Vec::new()];
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let length = if first == '[' {
                class(rest)
            } else {
                first.len_utf8()
            };
            let (part, after) = rest.split_at(length);
            rest = after;
            match part {
                "/" => names.push(Vec::new()),
                part => names.last_mut().into_iter().try_for_each(|name| {
                    name.push(match part {
                        "*" => Part::Any,
                        _ if first != '?' && first != '[' => Part::Character(first),
                        part => Part::Class(glob::Pattern::new(part)?),
                    });
                    Ok(())
                })?,
            }
        }
        let name = |parts: Vec<Part>| match parts.as_slice() {
            [Part::Any, Part::Any] => Name::AnyNumber,
            _ => Name::Of(parts),
        };
        let mut names: Vec<Name> = names.into_iter().map(name).collect();
        // A slash behind `**` says nothing more. At the end it stands for one name at least.
        if names.ends_with(&[Name::AnyNumber, Name::Of(Vec::new())]) {
            names.pop();
        }
        if names.last() == Some(&Name::AnyNumber) {
            names.push(Name::Of(vec![Part::Any]));
        }
        Ok(Pattern {
            whole: text.contains('/'),
            names,
        })
    }

    /// Whether it stands for `path`, or for its last name if the pattern has no slash.
    pub fn matches(&self, path: &Path) -> bool {
        let text = match self.whole {
            true => path.to_str(),
            false => path.file_name().and_then(|name| name.to_str()),
        };
        let Some(text) = text else {
            return false;
        };
        wildcard::matches(
            &self.names,
            text.split('/'),
            |name| *name == Name::AnyNumber,
            |name, text| match name {
                Name::AnyNumber => true,
                Name::Of(parts) => is_name(parts, text),
            },
        )
    }
}

/// How long the class is that `text` begins with, `[` and `]` included.
fn class(text: &str) -> usize {
    let inner = if text.starts_with("[!") { 2 } else { 1 };
    // A bracket that comes first is one of the class.
    let first = text[inner..].chars().next().map_or(0, char::len_utf8);
    let end = text[inner + first..].find(']');
    end.map_or(text.len(), |end| inner + first + end + 1)
}

fn is_name(parts: &[Part], text: &str) -> bool {
    wildcard::matches(
        parts,
        text.chars(),
        |part| *part == Part::Any,
        |part, one| match part {
            Part::Any => true,
            Part::Character(own) => own == one,
            Part::Class(class) => class.matches(one.encode_utf8(&mut [0; 4])),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use glob::MatchOptions;

    /// All texts of `length` of these characters.
    fn texts(alphabet: &str, length: u32) -> impl Iterator<Item = String> + '_ {
        let all: Vec<char> = alphabet.chars().collect();
        let count = all.len().pow(length);
        (0..count).map(move |n| {
            let digit = |at: u32| all[n / all.len().pow(at) % all.len()];
            (0..length).map(digit).collect()
        })
    }

    /// What the crate says of whole texts.
    const OPTIONS: MatchOptions = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: false,
    };

    #[test]
    fn all_short_patterns_mean_what_the_crate_says() {
        let paths: Vec<String> = (1..4).flat_map(|n| texts("ab/.", n)).collect();
        for pattern in (1..6).flat_map(|length| texts("ab/*?[]!", length)) {
            let (Ok(theirs), Ok(ours)) = (glob::Pattern::new(&pattern), Pattern::new(&pattern))
            else {
                assert!(glob::Pattern::new(&pattern).is_err(), "{pattern}");
                continue;
            };
            let ours = Pattern {
                whole: true,
                ..ours
            };
            for path in &paths {
                let theirs = theirs.matches_with(path, OPTIONS);
                assert_eq!(ours.matches(Path::new(path)), theirs, "{pattern} {path}");
            }
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = Pattern::new(&format!("/{}b", "*a".repeat(100))).unwrap();
        assert!(!pattern.matches(Path::new(&format!("/{}", "a".repeat(255)))));
        let deep = Pattern::new(&format!("{}b", "/**/a".repeat(100))).unwrap();
        assert!(!deep.matches(Path::new(&"/a".repeat(2000))));
    }

    #[test]
    fn without_a_slash_it_is_of_names() {
        let pattern = Pattern::new("[a-c]?.*").unwrap();
        assert!(pattern.matches(Path::new("/x/b1.gguf")));
        assert!(!pattern.matches(Path::new("/b1.d/gguf")));
    }
}
