//! What the environment asks for.
//!
//! `memtide pager run` sets these variables; a program's own start script may
//! as well. Without `MEMTIDE_PAGER_FILES` nothing is kept and nothing is said:
//! the library may then be loaded everywhere. A value that makes no sense also
//! keeps nothing, since the program must run, but is said once.

use crate::pattern::Pattern;
use memtide_core::numbers;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Patterns of files to keep, separated by `:`. One with a `/` stands for the
/// whole path, one without for the name.
pub const FILES: &str = "MEMTIDE_PAGER_FILES";
/// Memory that all kept files together may have, such as `2GiB`.
pub const BUDGET: &str = "MEMTIDE_PAGER_BUDGET";
/// How memory is taken back: `lazy`, which is the default, or `eager` to
/// compare with.
pub const EVICTION: &str = "MEMTIDE_PAGER_EVICTION";
/// Where to report at the end: `stderr`, `stderr-json`, or a file that a line
/// of JSON is added to.
pub const STATS: &str = "MEMTIDE_PAGER_STATS";
/// What the budget is for: `on` for copies on each node where files are read, `off`, which is the
/// default, for what is in memory of the files themselves.
pub const LOCAL: &str = "MEMTIDE_PAGER_LOCAL";
/// Whether other processes are shown what is done: `on`, which is the default, or `off` for
/// programs whose filter of system calls (seccomp) ends who makes a memory file.
pub const STATUS: &str = "MEMTIDE_PAGER_STATUS";

/// The process that reports even if it kept nothing; set by `memtide pager run`.
pub const FIRST: &str = "MEMTIDE_PAGER_PID";

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// At least one.
    pub files: Vec<Pattern>,
    /// Bytes.
    pub budget_bytes: u64,
    /// Unmap every piece by a call of its own, at once.
    pub eager: bool,
    /// Keep copies on the node where files are read, and no pager.
    pub local: bool,
    /// Where to report.
    pub stats: Option<Stats>,
    /// Show other processes what is done.
    pub status: bool,
}

/// Where to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stats {
    /// A sentence on standard error.
    Stderr,
    /// A line of JSON on standard error.
    StderrJson,
    /// A line of JSON at the end of this file.
    File(PathBuf),
}

impl Settings {
    /// Reads them with `variable`. `None` if nothing is asked for.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Settings>, String> {
        let text = |name: &str| -> Result<Option<String>, String> {
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
                return Ok(None);
            };
            let value = value.into_string();
            value
                .map(Some)
                .map_err(|value| format!("{name}: {} is not text", value.display()))
        };
        let Some(files) = text(FILES)? else {
            return Ok(None);
        };
        let patterns = files.split(':').filter(|word| !word.is_empty());
        let patterns = patterns.map(|word| {
            Pattern::new(word).map_err(|why| format!("{FILES}: {word:?} is no pattern: {why}"))
        });
        let files = patterns.collect::<Result<Vec<Pattern>, String>>()?;
        if files.is_empty() {
            return Err(format!("{FILES}: no pattern in it; write it as *.gguf"));
        }
        let Some(budget) = text(BUDGET)? else {
            return Err(format!("{BUDGET} is missing; write it as 2GiB"));
        };
        let read = |text: &String| {
            parse_size::Config::new()
                .with_binary()
                .parse_size(text)
                .ok()
        };
        let quantity = Some(&budget).filter(|budget| numbers::is_quantity(budget));
        let Some(budget_bytes) = quantity.and_then(read) else {
            return Err(format!(
                "{BUDGET}: {budget:?} is not a size; write it as 2GiB"
            ));
        };
        let eager = match text(EVICTION)?.as_deref() {
            None | Some("lazy") => false,
            Some("eager") => true,
            Some(other) => return Err(format!("{EVICTION}: {other:?} is neither lazy nor eager")),
        };
        let switch = |name: &str, otherwise| match text(name)?.as_deref() {
            None => Ok(otherwise),
            Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(other) => Err(format!("{name}: {other:?} is neither on nor off")),
        };
        let (status, local) = (switch(STATUS, true)?, switch(LOCAL, false)?);
        let stats = text(STATS)?.map(|value| match value.as_str() {
            "stderr" => Stats::Stderr,
            "stderr-json" => Stats::StderrJson,
            path => Stats::File(path.into()),
        });
        Ok(Some(Settings {
            files,
            budget_bytes,
            eager,
            local,
            stats,
            status,
        }))
    }

    /// Whether the file at `path` is to be kept.
    pub fn wants(&self, path: &Path) -> bool {
        self.files.iter().any(|pattern| pattern.matches(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::read(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name)?;
            Some(found.1.into())
        })
    }

    #[test]
    fn nothing_asked_for_is_no_mistake() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[(FILES, ""), (BUDGET, "x")]), Ok(None));
    }

    #[test]
    fn all_of_it() {
        let settings = read(&[
            (FILES, "*.gguf:/models/**/*.bin"),
            (BUDGET, "2GiB"),
            (EVICTION, "eager"),
            (STATS, "/tmp/stats"),
            (STATUS, "off"),
            (LOCAL, "on"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert!(!settings.status && settings.local);
        assert_eq!(settings.budget_bytes, 2 << 30);
        assert!(settings.eager);
        assert_eq!(settings.stats, Some(Stats::File("/tmp/stats".into())));
        for (path, wanted) in [
            ("/a/llama.gguf", true),
            ("/a/.hidden.gguf", true),
            ("/a/x.gguf/config", false),
            ("/models/x.bin", true),
            ("/models/a/b/x.bin", true),
            ("/other/x.bin", false),
        ] {
            assert_eq!(settings.wants(Path::new(path)), wanted, "{path}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let size = (BUDGET, "1GiB");
        for (pairs, words) in [
            (&[(FILES, "*")][..], "MEMTIDE_PAGER_BUDGET is missing"),
            (&[(FILES, "*"), (BUDGET, "much")], "\"much\" is not a size"),
            (
                &[(FILES, "*"), (BUDGET, "1e+6MiB")],
                "\"1e+6MiB\" is not a size",
            ),
            (&[(FILES, ":"), size], "no pattern in it"),
            (&[(FILES, "a***"), size], "\"a***\" is no pattern"),
            (
                &[(FILES, "*"), size, (EVICTION, "soon")],
                "\"soon\" is neither",
            ),
            (&[(FILES, "*"), size, (STATUS, "no")], "\"no\" is neither"),
            (
                &[(FILES, "*"), size, (LOCAL, "yes")],
                "MEMTIDE_PAGER_LOCAL: \"yes\" is neither",
            ),
        ] {
            let error = read(pairs).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
