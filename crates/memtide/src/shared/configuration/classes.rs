//! Classes: the tables `[class.NAME]`, and what they say together.

use super::{Place, Settings};
use anyhow::bail;
use memtide_loop::options::Amount;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The longest name.
const LONGEST: usize = 32;

/// The table of a class.
pub fn table(name: &str) -> String {
    format!("class.{name}")
}

/// Names are labels of metrics, and TOML's keys without quotes.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match name.chars().all(fits) && (1..=LONGEST).contains(&name.len()) {
        true => Ok(()),
        false => Err(format!(
            "no name of a class; it takes letters, digits, _ and -, {LONGEST} at most"
        )),
    }
}

/// The cgroup without the place where cgroups are usually mounted, which may be left out.
fn below(path: &Path) -> &Path {
    let path = path.strip_prefix("/sys/fs/cgroup").unwrap_or(path);
    path.strip_prefix("/").unwrap_or(path)
}

/// What the classes' keys say together; of amounts only what can be said on any machine.
pub fn agree(
    settings: &Settings,
    place: &dyn Fn(&str, &str) -> Option<Place>,
) -> anyhow::Result<()> {
    let mut cgroups: BTreeMap<PathBuf, Place> = BTreeMap::new();
    for (name, class) in &settings.class {
        let table = table(name);
        let Some(path) = &class.cgroup else {
            let head = place(&table, "").map_or(String::new(), |place| format!("{place}: "));
            bail!("{head}class {name}: names no cgroup; set cgroup, too");
        };
        let Some(at) = place(&table, "cgroup") else {
            continue;
        };
        if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
            bail!("{at}: cgroup: not a path that begins with / and has no ..");
        }
        if path
            .as_os_str()
            .as_encoded_bytes()
            .iter()
            .any(|byte| b"*?[".contains(byte))
        {
            bail!("{at}: cgroup: patterns are not understood; name one cgroup");
        }
        if let Some(other) = cgroups.insert(below(path).to_owned(), at.clone()) {
            bail!("{at}: cgroup: the class at {other} has the same; leave one of both out");
        }
    }
    fit(settings, place, None)
}

/// Whether the amounts fit together, on a machine with so many bytes of fast memory if that is known.
pub fn fit(
    settings: &Settings,
    place: &dyn Fn(&str, &str) -> Option<Place>,
    fast: Option<u64>,
) -> anyhow::Result<()> {
    // Percent alone can be compared on any machine: as if it had so much.
    const ANY: u64 = 100 << 40;
    let comparable = |one: Amount, other: Amount| {
        let share = |amount| matches!(amount, Amount::Share(_));
        fast.is_some() || share(one) == share(other)
    };
    let bytes = |amount: Amount| amount.of(fast.unwrap_or(ANY));
    let mut lows = 0_u64;
    for (name, class) in &settings.class {
        let at = |key: &str| place(&table(name), key).map_or(String::new(), |at| format!("{at}: "));
        let Some(low) = class.fast.low else { continue };
        if let Some(high) = class.fast.high
            && comparable(low, high)
            && bytes(low) > bytes(high)
        {
            let (at, high_at) = (at("fast.low"), at("fast.high"));
            bail!(
                "{at}fast.low: {low} is more than fast.high, {high} ({})",
                high_at.trim_end_matches(": ")
            );
        }
        if fast.is_none() && matches!(low, Amount::Bytes(_)) {
            continue;
        }
        lows = lows.saturating_add(bytes(low));
        if lows > fast.unwrap_or(ANY) {
            let what = match fast {
                Some(fast) => format!("the machine's fast memory, {} MiB", fast >> 20),
                None => "100% of fast memory".to_owned(),
            };
            bail!(
                "{}fast.low: all classes up to {name} together protect more than {what}",
                at("fast.low")
            );
        }
    }
    Ok(())
}
