//! What classes may not say together: names, selectors, amounts.
//!
//! The service's file and a scenario's file have the same classes, so both are held to the same. Who
//! reads a file knows where each key stands, and puts that before what is said here.

use super::{Amount, AnyOf, ClassOptions, Classes, Pattern, Tiered, Unit};

/// Where cgroups are mounted, as a rule.
const CGROUPS: &str = "/sys/fs/cgroup";
/// The longest name.
const LONGEST: usize = 32;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The class.
    pub class: String,
    /// The key in its table; empty if it is the table.
    pub key: &'static str,
    /// What is wrong with it and what to do.
    pub what: String,
}

/// Where the key of a class stands, in words; an empty key is its table.
pub type Place<'a> = &'a dyn Fn(&str, &str) -> Option<String>;

/// That `name` can be a class's: names are labels of metrics, and TOML's keys without quotes.
///
/// # Errors
///
/// What it may have.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match name.chars().all(fits) && (1..=LONGEST).contains(&name.len()) {
        true => Ok(()),
        false => Err(format!(
            "no name of a class; it takes letters, digits, _ and -, {LONGEST} at most"
        )),
    }
}

/// What the classes' keys say together; of amounts only what can be said on any machine. So much is
/// done for processes of classes that do not say: tiering does this, and they are balanced or not.
///
/// # Errors
///
/// The first key that cannot be. `place` is asked where another one stands.
pub fn agree(
    classes: &Classes,
    (others, balanced): (Tiered, bool),
    place: Place<'_>,
) -> Result<(), Objection> {
    for (n, (name, class)) in classes.iter().enumerate() {
        let wrong = |key: &'static str, what: String| Objection {
            class: name.clone(),
            key,
            what,
        };
        if class.kinds() == 0 {
            let what = "names no processes; set cgroup, unit, user, executable or a pod_ key";
            return Err(wrong("", format!("class {name}: {what}")));
        }
        if class.is_of_pods() && class.cgroup.is_some() {
            let what = "pods have cgroups of their own; leave this out, or the pod_ keys";
            return Err(wrong("cgroup", format!("cgroup: {what}")));
        }
        let mut before = classes.iter().take(n);
        if let Some(folder) = &class.pod_choice
            && let Some((other, of_other)) = before.find_map(|(other, class)| {
                let of_other = class.pod_choice.as_ref()?;
                (of_other != folder).then_some((other, of_other))
            })
        {
            let at = place(other, "pod_choice").map_or(String::new(), |at| format!(" ({at})"));
            let what = format!(
                "pod_choice: pods choose in one folder, and class {other} has {of_other}{at}; name the same one"
            );
            return Err(wrong("pod_choice", what));
        }
        if class.leave_alone && class.balance == Some(true) {
            let what = "nothing moves of a class with leave_alone; leave one of both out";
            return Err(wrong("balance", format!("balance: {what}")));
        }
        if let Some((key, what)) = wanted_in_vain(class, others) {
            return Err(wrong(key, format!("{key}: {what}")));
        }
        if class.weights.is_some()
            && let Some(what) = unspread(class, others, balanced)
        {
            return Err(wrong("weights", format!("weights: {what}")));
        }
        for (key, amount) in amounts(class) {
            if amount.is_none() {
                continue;
            }
            if class.user.is_some() || class.executable.is_some() {
                let what = "what a class uses is known of whole cgroups only; leave this out, or user and executable";
                return Err(wrong(key, format!("{key}: {what}")));
            }
        }
        for (other_name, other) in classes.iter().take(n) {
            if class.may_tie(other) {
                let at = place(other_name, "").map_or(String::new(), |at| format!(" ({at})"));
                let what = format!(
                    "class {name}: a process may fit this class and {other_name}{at} equally well; give one of both a higher priority"
                );
                return Err(wrong("", what));
            }
        }
    }
    fit(classes, place, None)
}

/// What a class wants of tiering that it has not, and why.
fn wanted_in_vain(class: &ClassOptions, others: Tiered) -> Option<(&'static str, &'static str)> {
    let done = class.tiered(others);
    let wants = |wish: Option<bool>| wish == Some(true);
    let wishes = [
        ("tier", wants(class.tier), done.tier),
        ("demote", wants(class.demote), done.demote),
        ("demote_idle", wants(class.demote_idle), done.demote_idle),
        ("fast.low", class.fast.low.is_some(), done.tier),
        ("fast.high", class.fast.high.is_some(), done.demote),
    ];
    let (key, ..) = wishes.into_iter().find(|(_, wish, done)| *wish && !done)?;
    let what = match (class.leave_alone, done.tier) {
        (true, _) => "nothing moves of a class with leave_alone; leave one of both out",
        (_, false) => "the class is not tiered; set tier = true in it, or leave this out",
        _ => "nothing of the class is demoted; set demote = true in it, or leave this out",
    };
    Some((key, what))
}

/// What else moves the pages of a class, or keeps them, that has weights.
fn unspread(class: &ClassOptions, others: Tiered, balanced: bool) -> Option<&'static str> {
    if class.leave_alone {
        return Some("nothing moves of a class with leave_alone; leave one of both out");
    }
    if class.tiered(others).tier {
        return Some(
            "the class is tiered, and tiering would move its pages elsewhere; set tier = false in it, or leave this out",
        );
    }
    class.is_balanced(balanced).then_some(
        "the class is balanced, and balancing would move its pages elsewhere; set balance = false in it, or leave this out",
    )
}

fn amounts(class: &ClassOptions) -> [(&'static str, Option<Amount>); 2] {
    [("fast.low", class.fast.low), ("fast.high", class.fast.high)]
}

/// Whether the amounts fit together, on a machine with so many bytes of fast memory if that is known.
///
/// # Errors
///
/// As [`agree`].
pub fn fit(classes: &Classes, place: Place<'_>, fast: Option<u64>) -> Result<(), Objection> {
    // Percent alone can be compared on any machine: as if it had so much.
    const ANY: u64 = 100 << 40;
    let comparable = |one: Amount, other: Amount| {
        let share = |amount| matches!(amount, Amount::Share(_));
        fast.is_some() || share(one) == share(other)
    };
    let bytes = |amount: Amount| amount.of(fast.unwrap_or(ANY));
    let mut lows = 0_u64;
    for (name, class) in classes {
        let wrong = |what| Objection {
            class: name.clone(),
            key: "fast.low",
            what,
        };
        let Some(low) = class.fast.low else { continue };
        if let Some(high) = class.fast.high
            && comparable(low, high)
            && bytes(low) > bytes(high)
        {
            let at = place(name, "fast.high").map_or(String::new(), |at| format!(" ({at})"));
            return Err(wrong(format!(
                "fast.low: {low} is more than fast.high, {high}{at}"
            )));
        }
        if fast.is_none() && matches!(low, Amount::Bytes(_)) {
            continue;
        }
        let guards = |other: &ClassOptions| other.fast.low.is_some() && lies_within(class, other);
        if classes.values().any(guards) {
            // It has a part of what is protected around it.
            continue;
        }
        lows = lows.saturating_add(bytes(low));
        if lows > fast.unwrap_or(ANY) {
            let what = match fast {
                Some(fast) => format!("the machine's fast memory, {} MiB", fast >> 20),
                None => "100% of fast memory".to_owned(),
            };
            return Err(wrong(format!(
                "fast.low: all classes up to {name} together protect more than {what}"
            )));
        }
    }
    Ok(())
}

/// Whether `class` surely lies within `other`, by what both name: each cgroup below one of the other's,
/// or each slice below one of its slices.
fn lies_within(class: &ClassOptions, other: &ClassOptions) -> bool {
    if other.kinds() > 1 {
        return false;
    }
    let below_path = |pattern: &Pattern, other: &Pattern| {
        let (pattern, other) = (pattern.below(CGROUPS), other.below(CGROUPS));
        let (fixed, above) = (pattern.fixed(), other.names());
        let deeper = pattern
            .names()
            .iter()
            .filter(|name| **name != b"**")
            .count();
        other.is_plain() && deeper > above.len() && fixed.starts_with(&above)
    };
    let below_slice = |unit: &Unit, other: &Unit| {
        let stem = |unit: &Unit| unit.to_string().strip_suffix(".slice").map(str::to_owned);
        let stems = stem(unit).zip(stem(other));
        let plain = unit.is_plain() && other.is_plain();
        plain && stems.is_some_and(|(of, above)| of.starts_with(&format!("{above}-")))
    };
    let all_below = |all: AnyOf<Pattern>| {
        let above = other.cgroup.as_ref();
        all.all().iter().all(|pattern| {
            above.is_some_and(|above| above.all().iter().any(|other| below_path(pattern, other)))
        })
    };
    let slices_below = |all: &AnyOf<Unit>| {
        let above = other.unit.as_ref();
        all.all().iter().all(|unit| {
            above.is_some_and(|above| above.all().iter().any(|other| below_slice(unit, other)))
        })
    };
    class.cgroups().is_some_and(all_below) || class.unit.as_ref().is_some_and(slices_below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objection(text: &str, fast: Option<u64>) -> Option<(String, &'static str, String)> {
        let classes: Classes = toml::from_str(text).unwrap();
        let place = |class: &str, key: &str| Some(format!("{class}/{key}"));
        let wrong = agree(&classes, (Tiered::default(), false), &place)
            .and_then(|()| fit(&classes, &place, fast));
        let wrong = wrong.err()?;
        Some((wrong.class, wrong.key, wrong.what))
    }

    #[test]
    fn what_contradicts_itself_is_named_with_its_key_and_the_others_place() {
        let text = "[a]\ncgroup = '/a'\n[b]\ncgroup = '/a'";
        let (class, key, what) = objection(text, None).unwrap();
        assert_eq!((class.as_str(), key), ("b", ""));
        assert!(
            what.contains("this class and a (a/) equally well"),
            "{what}"
        );
        let text = "[a]\ncgroup = '/a'\nfast.low = '3GiB'\nfast.high = '2GiB'";
        let (_, key, what) = objection(text, None).unwrap();
        assert_eq!(key, "fast.low");
        assert_eq!(
            what,
            "fast.low: 3GiB is more than fast.high, 2GiB (a/fast.high)"
        );
        // 60 % and 60 % are more than there is; 3 GiB and 2 GiB only where there are 4.
        let two = |one: &str, other: &str| {
            format!(
                "[a]\ncgroup = '/a'\nfast.low = '{one}'\n[b]\ncgroup = '/b'\nfast.low = '{other}'"
            )
        };
        assert!(objection(&two("60%", "60%"), None).is_some());
        assert_eq!(objection(&two("3GiB", "2GiB"), None), None);
        assert_eq!(objection(&two("3GiB", "2GiB"), Some(5 << 30)), None);
        assert!(objection(&two("3GiB", "2GiB"), Some(4 << 30)).is_some());
    }

    /// What lies within a class has a part of its protection.
    #[test]
    fn what_is_protected_within_a_class_counts_once() {
        let two = |one: &str, other: &str| {
            let text = format!("[a]\n{one}\nfast.low = '60%'\n[b]\n{other}\nfast.low = '50%'");
            objection(&text, None).is_none()
        };
        assert!(two("cgroup = '/a'", "cgroup = '/a/b'"));
        assert!(two(
            "cgroup = '/sys/fs/cgroup/a'",
            "cgroup = ['/a/b', '/a/*/c']"
        ));
        assert!(two(
            "unit = 'app.slice'",
            "unit = ['app-db.slice', 'app-web-x.slice']"
        ));
        // Not all of it, or not for sure.
        assert!(!two("cgroup = '/a'", "cgroup = ['/a/b', '/c']"));
        assert!(!two("cgroup = '/a'", "cgroup = '/*/b'"));
        assert!(!two("cgroup = '/a*'", "cgroup = '/a/b'"));
        assert!(!two("unit = 'app.slice'", "unit = 'apple-db.slice'"));
        assert!(!two("unit = 'app.slice'", "unit = 'db.service'"));
    }

    #[test]
    fn pods_choose_in_one_folder_and_have_no_other_cgroup() {
        let text = "[a]\npod_choice = '/a'\n[b]\npod_choice = '/b'";
        let (class, key, what) = objection(text, None).unwrap();
        assert_eq!((class.as_str(), key), ("b", "pod_choice"));
        assert!(
            what.ends_with("class a has /a (a/pod_choice); name the same one"),
            "{what}"
        );
        assert_eq!(objection(&text.replace("/b", "/a"), None), None);
        let (_, key, _) = objection("[a]\npod_qos = 'burstable'\ncgroup = '/a'", None).unwrap();
        assert_eq!(key, "cgroup");
    }

    #[test]
    fn who_is_left_alone_is_not_balanced() {
        let text = "[a]\ncgroup = '/a'\nleave_alone = true\nbalance = ";
        let (_, key, what) = objection(&format!("{text}true"), None).unwrap();
        assert_eq!(key, "balance");
        assert!(what.starts_with("balance: nothing moves of a class with leave_alone"));
        assert_eq!(objection(&format!("{text}false"), None), None);
        let classes: Classes = toml::from_str(
            "[a]\nleave_alone = true\n[b]\nbalance = true\n[c]\nbalance = false\n[d]\n",
        )
        .unwrap();
        let of = |others| classes.values().map(move |class| class.is_balanced(others));
        assert!(of(true).eq([false, true, false, true]));
        assert!(of(false).eq([false, true, false, false]));
    }

    #[test]
    fn what_is_wanted_in_vain_is_named_with_the_reason() {
        let wrong = |keys: &str, tier| {
            let text = format!("[a]\ncgroup = '/a'\n{keys}");
            let classes: Classes = toml::from_str(&text).unwrap();
            let others = Tiered {
                tier,
                ..Tiered::default()
            };
            let wrong = agree(&classes, (others, false), &|_, _| None).err()?;
            let (_, what) = wrong.what.split_once(": ").unwrap();
            Some((wrong.key, what.split_once(';').unwrap().0.to_owned()))
        };
        let alone = "nothing moves of a class with leave_alone";
        let not_tiered = "the class is not tiered";
        for (keys, tier, key, what) in [
            ("leave_alone = true\ntier = true", true, "tier", alone),
            (
                "leave_alone = true\nfast.low = '1GiB'",
                true,
                "fast.low",
                alone,
            ),
            ("tier = false\ndemote = true", true, "demote", not_tiered),
            ("demote_idle = true", false, "demote_idle", not_tiered),
            ("fast.low = '1GiB'", false, "fast.low", not_tiered),
            (
                "demote = false\nfast.high = '1GiB'",
                true,
                "fast.high",
                "nothing of the class is demoted",
            ),
        ] {
            assert_eq!(wrong(keys, tier), Some((key, what.to_owned())), "{keys}");
        }
        for right in [
            "demote = false\nfast.low = '1GiB'",
            "tier = false\nbalance = true",
            "tier = false\ndemote = false",
        ] {
            assert_eq!(wrong(right, true), None, "{right}");
        }
        assert_eq!(wrong("tier = true\nfast.high = '1GiB'", false), None);
    }

    #[test]
    fn who_has_weights_is_moved_by_nothing_else() {
        let what = |keys: &str, balanced| {
            let text = format!("[a]\ncgroup = '/a'\nweights = '0=3,1=1'\n{keys}");
            let classes: Classes = toml::from_str(&text).unwrap();
            let others = (Tiered::default(), balanced);
            let wrong = agree(&classes, others, &|_, _| None).err()?;
            assert_eq!(wrong.key, "weights", "{keys}");
            Some(wrong.what)
        };
        for (keys, balanced, wanted) in [
            ("", false, "weights: the class is tiered, "),
            ("tier = true", false, "weights: the class is tiered, "),
            (
                "tier = false\nbalance = true",
                false,
                "weights: the class is balanced, ",
            ),
            ("tier = false", true, "weights: the class is balanced, "),
            (
                "leave_alone = true",
                false,
                "weights: nothing moves of a class with leave_alone",
            ),
        ] {
            let said = what(keys, balanced).unwrap();
            assert!(said.starts_with(wanted), "{keys}: {said}");
        }
        assert_eq!(what("tier = false", false), None);
        assert_eq!(what("tier = false\nbalance = false", true), None);
    }

    #[test]
    fn names_are_those_of_labels() {
        assert!(check_name("db-1_x").is_ok());
        for wrong in ["", "a b", "a.b", "\u{e9}", &"x".repeat(33)] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
    }
}
