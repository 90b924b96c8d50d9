//! Outputs that would replace what they come from.
//!
//! One file has many names: relative ones, links, hard links. So files are compared,
//! not their names. A terminal or a pipe may be input and output in one, and
//! nothing of it is replaced.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether writing to `output` would replace the file `input`.
pub fn replaces(output: &Path, input: &Path) -> bool {
    let file = |path: &Path| {
        let there = path.metadata().ok()?;
        there.is_file().then(|| (there.dev(), there.ino()))
    };
    file(input).is_some_and(|input| file(output) == Some(input))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_many_names() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a"), "same").unwrap();
        std::fs::write(at("b"), "same").unwrap();
        std::fs::hard_link(at("a"), at("hard")).unwrap();
        std::os::unix::fs::symlink("a", at("soft")).unwrap();
        for name in ["a", "./a", "hard", "soft"] {
            assert!(replaces(&at(name), &at("a")), "{name}");
            assert!(replaces(&at("a"), &at(name)), "{name}");
        }
        assert!(!replaces(&at("b"), &at("a")));
        assert!(!replaces(&at("none"), &at("none")));
        let null = Path::new("/dev/null");
        assert!(!replaces(null, null));
    }
}
