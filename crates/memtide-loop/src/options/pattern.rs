//! Patterns of paths: whole paths in which `*` stands for any part of one name, and
//! `**` for any number of names.
//!
//! Everything else means itself, backslashes and brackets too: systemd writes
//! `\x2d` into the names of cgroups. Paths are bytes, as the kernel has them.
//!
//! Who is matched may have chosen the path, so the time is bounded; see [`wildcard`].

use memtide_core::wildcard;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The longest pattern, in bytes: the kernel's longest path.
const LONGEST: usize = 4096;
/// Where cgroups are usually mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// A path, or a pattern of paths. Empty names and `.` are left out.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// What is between its slashes.
    names: Vec<Box<[u8]>>,
}

impl Pattern {
    /// Whether the path of these names is one of those.
    pub fn matches(&self, names: &[&[u8]]) -> bool {
        wildcard::matches(
            &self.names,
            names.iter(),
            |name| **name == *b"**",
            |a, b| one(a, b),
        )
    }

    /// Whether it may match a path that begins with these names and has more.
    pub fn may_match_below(&self, names: &[&[u8]]) -> bool {
        let own = &self.names;
        let across = own.iter().position(|name| **name == *b"**");
        let before = &own[..across.unwrap_or(own.len())];
        (across.is_some() || names.len() < own.len())
            && before.iter().zip(names).all(|(own, name)| one(own, name))
    }

    /// Whether it stands for one path.
    pub fn is_plain(&self) -> bool {
        !self.text.contains('*')
    }

    /// Its names, from the root on.
    pub fn names(&self) -> Vec<&[u8]> {
        self.names.iter().map(|name| &**name).collect()
    }

    /// The names before the first that has a star.
    pub fn fixed(&self) -> Vec<&[u8]> {
        let names = self.names().into_iter();
        names.take_while(|name| !name.contains(&b'*')).collect()
    }

    /// As a path of cgroups, without the place where they are mounted: the usual
    /// one, or `mount`.
    #[must_use]
    pub fn below(&self, mount: &str) -> Pattern {
        let strip = |mount: &str| {
            let rest = self.text.strip_prefix(mount.trim_end_matches('/'))?;
            (rest.is_empty() || rest.starts_with('/')).then_some(rest)
        };
        let rest = strip(mount).or_else(|| strip(CGROUPS));
        Pattern::of(rest.unwrap_or(&self.text))
    }

    fn of(text: &str) -> Pattern {
        let names = text.split('/').filter(|name| !matches!(*name, "" | "."));
        let names: Vec<&str> = names.collect();
        Pattern {
            text: format!("/{}", names.join("/")),
            names: names.iter().map(|name| name.as_bytes().into()).collect(),
        }
    }

    /// Whether there may be a path of which both are patterns; it is sure only if
    /// both are plain.
    pub fn may_meet(&self, other: &Pattern) -> bool {
        let (a, b) = (self.names(), other.names());
        if self.is_plain() {
            return other.matches(&a);
        }
        if other.is_plain() {
            return self.matches(&b);
        }
        let across = |names: &[&[u8]]| names.contains(&b"**".as_slice());
        let same_length = across(&a) || across(&b) || a.len() == b.len();
        let to_compare = a.iter().zip(&b);
        let mut to_compare = to_compare.take_while(|(a, b)| **a != b"**" && **b != b"**");
        same_length && to_compare.all(|(a, b)| names_may_meet(a, b))
    }
}

/// Whether `name` is one of those that `pattern` stands for: in it `*` is any bytes.
pub fn one(pattern: &[u8], name: &[u8]) -> bool {
    wildcard::matches(pattern, name.iter(), |byte| *byte == b'*', |a, b| a == *b)
}

/// Whether there may be a name of which both are patterns: what comes before their
/// first stars agrees, and what comes after their last ones.
pub fn names_may_meet(a: &[u8], b: &[u8]) -> bool {
    let star = |name: &[u8]| name.contains(&b'*');
    match (star(a), star(b)) {
        (false, false) => a == b,
        (false, true) => one(b, a),
        (true, false) => one(a, b),
        (true, true) => {
            let before = |name: &[u8]| name.split(|byte| *byte == b'*').next().map(<[u8]>::to_vec);
            let after = |name: &[u8]| name.rsplit(|byte| *byte == b'*').next().map(<[u8]>::to_vec);
            let agree = |a: Option<Vec<u8>>, b: Option<Vec<u8>>, ends: bool| {
                let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
                match ends {
                    false => a.starts_with(&b) || b.starts_with(&a),
                    true => a.ends_with(&b) || b.ends_with(&a),
                }
            };
            agree(before(a), before(b), false) && agree(after(a), after(b), true)
        }
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        if !text.starts_with('/') {
            return Err("not a path that begins with / and has no ..".to_owned());
        }
        for name in text.split('/') {
            if name == ".." {
                return Err("not a path that begins with / and has no ..".to_owned());
            }
            if name.contains("**") && name != "**" {
                return Err("** stands for whole names; write it as /a/**/b".to_owned());
            }
        }
        match text.len() <= LONGEST && !text.contains('\0') {
            true => Ok(Pattern::of(text)),
            false => Err(format!("not a path; it has {LONGEST} bytes at most")),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Pattern, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(path: &str) -> Vec<&[u8]> {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.map(str::as_bytes).collect()
    }

    fn matched(pattern: &str, path: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(&names(path))
    }

    #[test]
    fn a_star_stays_within_a_name_and_two_go_across() {
        for (pattern, path, wanted) in [
            ("/a", "/a", true),
            ("/a/", "//a", true),
            ("/a", "/a/b", false),
            ("/", "/", true),
            ("/*", "/", false),
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a/b/b/c", false),
            ("/a/**/c", "/a/b/b/c", true),
            ("/a/**/c", "/a/c", true),
            ("/a/**", "/a", true),
            ("/**/c/*", "/c/c/d", true),
            ("/user-*.slice", "/user-1000.slice", true),
            ("/user-*.slice", "/user-.slice", true),
            ("/*a*b", "/xaybzb", true),
            ("/*a*b", "/xayb/b", false),
            ("/a/./b", "/a/b", true),
            ("//a", "/a", true),
            ("/./*", "/a", true),
            ("/.", "/", true),
            ("/a/...", "/a/...", true),
            // Everything else means itself.
            (r"/a\x2db[0]?", r"/a\x2db[0]?", true),
            (r"/[ab]", "/a", false),
            ("/A", "/a", false),
        ] {
            assert_eq!(matched(pattern, path), wanted, "{pattern} {path}");
        }
        for wrong in ["", "a", "*/a", "/a/../b", "/a**", "/a\0", "/**b/c"] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
        }
    }

    /// 30 stars and a path of 4,000 letters, which a search of all possibilities would not end.
    #[test]
    fn hostile_paths_take_little_time() {
        let pattern = format!("/x/{}b", "*a".repeat(30));
        let path = format!("/x/{}/y", "a".repeat(4000));
        assert!(!matched(&pattern, &path));
        let across = format!("/{}b", "**/a/".repeat(30));
        assert!(!matched(&across, &"/a".repeat(2000)));
        let pattern: Pattern = "/a/*".parse().unwrap();
        assert!(pattern.matches(&[b"a", b"\xff\xfe\n\x1b"]));
    }

    #[test]
    fn a_mount_may_be_left_out() {
        let below = |text: &str, mount| text.parse::<Pattern>().unwrap().below(mount).to_string();
        assert_eq!(below("/sys/fs/cgroup/a/*", "/sys/fs/cgroup"), "/a/*");
        assert_eq!(
            below("/sys/fs/cgroup/unified/a", "/sys/fs/cgroup/unified"),
            "/a"
        );
        assert_eq!(
            below("/sys/fs/cgroups/a", "/sys/fs/cgroup"),
            "/sys/fs/cgroups/a"
        );
        assert_eq!(below("/a", "/sys/fs/cgroup"), "/a");
    }

    #[test]
    fn a_path_is_written_in_one_way() {
        for (text, wanted) in [
            ("//a/.//b/", "/a/b"),
            ("/", "/"),
            ("/./", "/"),
            ("/.a", "/.a"),
        ] {
            let read: Pattern = text.parse().unwrap();
            assert_eq!(read.to_string(), wanted);
            assert_eq!(wanted.parse::<Pattern>().unwrap(), read);
        }
        let below = |text: &str| text.parse::<Pattern>().unwrap().below("/sys/fs/cgroup");
        assert_eq!(below("/sys/./fs//cgroup/a").to_string(), "/a");
    }

    /// What it says by trying everything.
    fn model(pattern: &[u8], path: &[u8]) -> bool {
        match pattern {
            [] => path.is_empty(),
            [b'/', b'*', b'*', rest @ ..] => {
                model(rest, path)
                    || (path.first() == Some(&b'/') && {
                        let end = path[1..].iter().position(|byte| *byte == b'/');
                        let end = end.map_or(path.len(), |end| end + 1);
                        end > 1 && model(pattern, &path[end..])
                    })
            }
            [b'*', rest @ ..] => {
                model(rest, path)
                    || path.first().is_some_and(|byte| *byte != b'/') && model(pattern, &path[1..])
            }
            [byte, rest @ ..] => path.first() == Some(byte) && model(rest, &path[1..]),
        }
    }

    proptest! {
        #[test]
        fn it_is_what_trying_everything_says(
            pattern in "(/([ab*]{1,2}|a\\*b|\\*\\*)){1,5}", path in "(/[ab]{1,3}){1,6}"
        ) {
            // Two stars in a row within a name are no pattern.
            if let Ok(read) = pattern.parse::<Pattern>() {
                let expected = model(pattern.as_bytes(), path.as_bytes());
                prop_assert_eq!(read.matches(&names(&path)), expected);
            }
        }

        /// Of a path on the way to one that fits it is never said that nothing is below.
        #[test]
        fn what_fits_may_be_below_all_above_it(
            pattern in "(/([ab*]|a\\*b|\\*\\*)){1,5}", path in "(/[ab]{1,2}){1,6}"
        ) {
            if let Ok(read) = pattern.parse::<Pattern>() && read.matches(&names(&path)) {
                let path = names(&path);
                for n in 0..path.len() {
                    prop_assert!(read.may_match_below(&path[..n]), "{read} {n}");
                }
            }
        }

        /// Of what two patterns have in common it is never said that there is nothing.
        #[test]
        fn what_both_match_may_meet(
            a in "(/([ab*]|a\\*b|\\*\\*)){1,4}", b in "(/([ab*]|b\\*|\\*\\*)){1,4}", path in "(/[ab]{1,2}){1,5}"
        ) {
            if let (Ok(a), Ok(b)) = (a.parse::<Pattern>(), b.parse::<Pattern>())
                && a.matches(&names(&path)) && b.matches(&names(&path))
            {
                prop_assert!(a.may_meet(&b) && b.may_meet(&a), "{a} {b}");
            }
        }
    }
}
