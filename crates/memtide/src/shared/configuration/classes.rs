//! Classes: the tables `[class.NAME]`, and what they say together.

use super::{Place, Settings};
use anyhow::bail;
use memtide_loop::options::Amount;

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

/// What the classes' keys say together; of amounts only what can be said on any machine.
pub fn agree(
    settings: &Settings,
    place: &dyn Fn(&str, &str) -> Option<Place>,
) -> anyhow::Result<()> {
    for (n, (name, class)) in settings.class.iter().enumerate() {
        let table = table(name);
        let at = |key: &str| place(&table, key).map_or(String::new(), |place| format!("{place}: "));
        if class.kinds() == 0 {
            let head = at("");
            bail!("{head}class {name}: names no processes; set cgroup, unit, user or executable");
        }
        for (key, amount) in [("fast.low", class.fast.low), ("fast.high", class.fast.high)] {
            if amount.is_none() {
                continue;
            }
            let at = at(key);
            if class.leave_alone {
                bail!(
                    "{at}{key}: nothing moves of a class with leave_alone; leave one of both out"
                );
            }
            if class.user.is_some() || class.executable.is_some() {
                bail!(
                    "{at}{key}: what a class uses is known of whole cgroups only; leave this out, or user and executable"
                );
            }
        }
        for (other_name, other) in settings.class.iter().take(n) {
            if class.may_tie(other) {
                let other_at = place(&self::table(other_name), "");
                let other_at = other_at.map_or(String::new(), |place| format!(" ({place})"));
                let at = at("");
                bail!(
                    "{at}class {name}: a process may fit this class and {other_name}{other_at} equally well; give one of both a higher priority"
                );
            }
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
