//! Everything that memtide might leave changed, read before and after.
//!
//! Not only the files that it is known to write: every setting of memory management that the kernel
//! shows, so that a change nobody thought of is noticed too. Files that count or measure are left
//! out, since they change by themselves.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::PATIENCE;
use crate::guest::pace::Stretch;
use crate::guest::procfs::{is_exiting, threads_named};

/// Where settings are: a folder is read with all that is in it.
const PLACES: [&str; 9] = [
    "/sys/kernel/mm",
    "/proc/sys/vm",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
    "/proc/sys/kernel/perf_event_paranoid",
    "/sys/module/damon_stat/parameters/enabled",
    "/sys/module/damon_reclaim/parameters/enabled",
    "/sys/module/damon_lru_sort/parameters/enabled",
    "/sys/kernel/debug/sched/numa_balancing",
];
/// Names that mean a count, a measurement, or an action when read.
const CHANGING: [&str; 7] = [
    "stats",
    "pages_collapsed",
    "full_scans",
    "stat_refresh",
    "page_idle",
    "free_hugepages",
    "surplus_hugepages",
];
/// Where memtide notes what it changed.
const NOTES: &str = "/run/memtide";

/// What is counted beside files.
const KDAMONDS: &str = "number of kdamond threads";

/// Settings by path, as the kernel prints them.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::guest::tests) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// As they are now.
    pub(in crate::guest::tests) fn now() -> Self {
        let mut found = BTreeMap::new();
        for place in PLACES {
            collect(Path::new(place), &mut found);
        }
        collect(Path::new(NOTES), &mut found);
        let mut settings = Self(found);
        settings.count_kdamonds();
        settings
    }

    fn count_kdamonds(&mut self) {
        let kdamonds = threads_named(&["kdamond"]).into_iter();
        let running = kdamonds.filter(|&pid| !is_exiting(pid)).count();
        self.0.insert(KDAMONDS.to_owned(), running.to_string());
    }

    /// The setting of one file, if it is there.
    pub(in crate::guest::tests) fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Whether memtide has a note of its own lying around.
    pub(in crate::guest::tests) fn has_notes(&self) -> bool {
        self.0.keys().any(|path| path.starts_with(NOTES))
    }

    fn changes(&self, later: &Self) -> Vec<String> {
        let paths = self.0.keys().chain(later.0.keys());
        let paths: std::collections::BTreeSet<&String> = paths.collect();
        let shown = |text: Option<&String>| text.map_or("absent".to_owned(), |text| text.clone());
        paths
            .into_iter()
            .filter(|path| self.0.get(*path) != later.0.get(*path))
            .map(|path| {
                let (old, new) = (self.0.get(path), later.0.get(path));
                format!("{path} was {}, is {}", shown(old), shown(new))
            })
            .collect()
    }

    /// That nothing has changed since `self` was read.
    ///
    /// # Errors
    /// With all that has.
    pub(in crate::guest::tests) fn check_unchanged(&self) -> Result<()> {
        let mut later = Self::now();
        let mut changes = self.changes(&later);
        // All else is judged at once. A thread that was stopped may need a moment to end.
        let stretch = Stretch::begin();
        while let [change] = &changes[..]
            && change.starts_with(KDAMONDS)
            && !stretch.is_over(PATIENCE)
        {
            std::thread::sleep(Duration::from_millis(50));
            later.count_kdamonds();
            changes = self.changes(&later);
        }
        ensure!(
            changes.is_empty(),
            "the kernel is not as before: {}",
            changes.join("; ")
        );
        Ok(())
    }
}

fn collect(place: &Path, found: &mut BTreeMap<String, String>) {
    let name = place.file_name().and_then(|name| name.to_str());
    // A lock file that nobody holds says nothing, nor does a note that was never finished.
    let idle = |name: &str| name.ends_with(".lock") || name.ends_with(".new");
    let idle = place.starts_with(NOTES) && name.is_some_and(idle);
    if idle || name.is_some_and(|name| CHANGING.contains(&name)) {
        return;
    }
    let Ok(about) = std::fs::symlink_metadata(place) else {
        return;
    };
    if about.is_dir() {
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        for entry in entries {
            collect(&entry.path(), found);
        }
    } else if about.is_file() {
        // What can only be written has no value to compare.
        if let Ok(text) = std::fs::read_to_string(place) {
            found.insert(place.display().to_string(), text.trim().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_with_both_values() {
        let settings = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
            Settings(owned.collect())
        };
        let before = settings(&[("a", "1"), ("b", "2")]);
        let after = settings(&[("a", "1"), ("b", "3"), ("/run/memtide/x", "")]);
        assert_eq!(
            before.changes(&after),
            ["/run/memtide/x was absent, is ", "b was 2, is 3"]
        );
        assert!(after.has_notes() && !before.has_notes());
    }
}
