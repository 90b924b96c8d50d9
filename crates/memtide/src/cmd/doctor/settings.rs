//! The kernel's settings that a proof could leave changed.

use super::check::{Finding, State};
use memtide_linux::fs::Root;

/// What DAMON is taken by, and what decides about hint faults and demotion.
const FILES: [&str; 5] = [
    "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
    "sys/module/damon_stat/parameters/enabled",
    "proc/sys/kernel/numa_balancing",
    "sys/kernel/mm/numa/demotion_enabled",
    // Not the kernel's but ours: here a holder of DAMON is noted.
    "run/memtide/damon.json",
];

/// What each file holds; `None` where it is absent or cannot be read.
pub type Settings = [Option<Vec<u8>>; FILES.len()];

/// Reads them.
pub fn read(root: &Root) -> Settings {
    FILES.map(|file| root.read(file).ok().flatten())
}

/// Whether they are as they were.
pub fn compare(before: &Settings, after: &Settings) -> Finding {
    let there = before.iter().flatten().count();
    let show = |value: &Option<Vec<u8>>| match value {
        Some(value) => String::from_utf8_lossy(value.trim_ascii()).into_owned(),
        None => "absent".to_owned(),
    };
    let changed: Vec<String> = (FILES.iter().zip(before).zip(after))
        .filter(|((_, before), after)| before != after)
        .map(|((file, before), after)| {
            format!("/{file} was {} and is {}", show(before), show(after))
        })
        .collect();
    match changed.is_empty() {
        true => Finding::new(State::Works, format!("{there} settings are as they were")),
        false => Finding::new(
            State::Broken,
            format!(
                "{}; set it back unless somebody else changed it",
                changed.join(", ")
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_named_with_both_values() {
        let value = |text: &str| Some(text.as_bytes().to_vec());
        let before = [value("0\n"), None, value("2\n"), value("true\n"), None];
        let same = compare(&before, &before);
        assert_eq!(
            same,
            Finding::new(State::Works, "3 settings are as they were")
        );
        let mut after = before.clone();
        after[0] = value("2\n");
        after[4] = value("{}");
        let changed = compare(&before, &after);
        assert_eq!(changed.state, State::Broken);
        assert_eq!(
            changed.detail,
            "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds was 0 and is 2, \
             /run/memtide/damon.json was absent and is {}; set it back unless somebody else changed it"
        );
    }
}
