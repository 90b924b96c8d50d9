//! A policy in words: `bind+static 0,2`, or the raw arguments of the call.

use crate::shared::outside::quoted;
use anyhow::ensure;
use memtide_core::mempolicy::{
    Mode, ModeFlags, NUMA_BALANCING, RELATIVE_NODES, RawMask, STATIC_NODES,
};
use memtide_core::nodemask::NodeMask;
use memtide_core::numbers::{self, hexadecimal};
use memtide_core::units::NodeId;

/// The modes under the names of memtide run's options.
const MODES: [(&str, Mode); 7] = [
    ("default", Mode::Default),
    ("preferred", Mode::Preferred),
    ("bind", Mode::Bind),
    ("interleave", Mode::Interleave),
    ("local", Mode::Local),
    ("preferred-many", Mode::PreferredMany),
    ("weighted-interleave", Mode::WeightedInterleave),
];

const FLAGS: [(&str, u32); 3] = [
    ("static", STATIC_NODES),
    ("relative", RELATIVE_NODES),
    ("balancing", NUMA_BALANCING),
];

/// A mode word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeWord(pub u32);

/// The name of a mode.
pub fn mode_name(mode: Mode) -> &'static str {
    MODES[mode.number() as usize].0
}

/// A mode with its flags, as [`PolicyArgs`] reads it.
pub fn policy_name(mode: Mode, flags: ModeFlags) -> String {
    let set = FLAGS.iter().filter(|(_, bit)| flags.bits() & bit != 0);
    let names: Vec<&str> = std::iter::once(mode_name(mode))
        .chain(set.map(|(name, _)| *name))
        .collect();
    names.join("+")
}

/// A policy as a caller passes it.
#[derive(clap::Args, Debug)]
pub struct PolicyArgs {
    /// default, preferred, bind, interleave, local, preferred-many or weighted-interleave, with
    /// +static, +relative or +balancing; or the raw mode word
    #[arg(value_name = "POLICY", value_parser = mode_word, allow_negative_numbers = true)]
    pub mode: ModeWord,

    /// The nodes, such as 0,2-3
    #[arg(value_name = "NODES", value_parser = node_list)]
    pub on: Option<NodeMask>,

    /// The raw mask instead, least significant word first; null or unreadable
    #[arg(long, value_name = "WORD,...", value_parser = raw_mask, conflicts_with = "on")]
    pub mask: Option<RawMask>,

    /// Bits of the mask, plus one
    #[arg(long, value_name = "N", value_parser = number, default_value_t = u64::from(NodeId::LIMIT) + 1)]
    pub maxnode: u64,
}

impl PolicyArgs {
    /// The mask as the system call gets it.
    pub fn raw_mask(&self) -> RawMask {
        match (&self.mask, &self.on) {
            (Some(mask), _) => mask.clone(),
            (None, Some(nodes)) => RawMask::of(nodes),
            (None, None) => RawMask::Null,
        }
    }
}

fn mode_word(text: &str) -> Result<ModeWord, String> {
    if text.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        let word = match text.strip_prefix("0x") {
            Some(digits) => hexadecimal(digits).and_then(|word| i64::try_from(word).ok()),
            None => match text.strip_prefix('-') {
                Some(digits) => numbers::decimal(digits).map(|word: i64| -word),
                None => numbers::decimal(text),
            },
        };
        let fits = |word: &i64| (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(word);
        return match word.filter(fits) {
            Some(word) => Ok(ModeWord(word as u32)),
            None => Err("not a mode word of 32 bits".to_owned()),
        };
    }
    let mut parts = text.split('+');
    let name = parts.next().unwrap_or_default();
    let find = |(known, _): &&(&str, Mode)| *known == name;
    let Some((_, mode)) = MODES.iter().find(find) else {
        let names: Vec<&str> = MODES.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "no policy {}; there are {}",
            quoted(name),
            names.join(", ")
        ));
    };
    let mut word = mode.number();
    for part in parts {
        match FLAGS.iter().find(|(known, _)| *known == part) {
            Some((_, bit)) => word |= bit,
            None => {
                return Err(format!(
                    "no flag {}; there are static, relative, balancing",
                    quoted(part)
                ));
            }
        }
    }
    Ok(ModeWord(word))
}

fn node_list(text: &str) -> Result<NodeMask, String> {
    let list = "not a list of nodes below 1024 such as 0,2-3";
    text.parse().map_err(|_| list.to_owned())
}

fn raw_mask(text: &str) -> Result<RawMask, String> {
    let word = |word: &str| {
        let digits = word.strip_prefix("0x");
        let value = digits.and_then(hexadecimal);
        value.ok_or_else(|| format!("{} is not a word such as 0x5", quoted(word)))
    };
    match text {
        "null" => Ok(RawMask::Null),
        "unreadable" => Ok(RawMask::Unreadable),
        words => Ok(RawMask::Words(
            words.split(',').map(word).collect::<Result<_, _>>()?,
        )),
    }
}

/// A number, also in hexadecimal.
pub fn number(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => hexadecimal(digits),
        None => numbers::decimal(text),
    };
    number.ok_or_else(|| "not a number".to_owned())
}

/// Pages such as `0-15` or `7`, counted from the mapping's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl Pages {
    /// Pages that one call may ask for; bounds its work.
    const MOST: u64 = 1 << 24;

    /// Reads them.
    pub fn parse(text: &str) -> Result<Pages, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (Ok(first), Ok(last)) = (number(first), number(last)) else {
            return Err("not pages such as 0-15".to_owned());
        };
        match last.checked_sub(first) {
            Some(more) if more < Pages::MOST => Ok(Pages {
                first,
                count: more + 1,
            }),
            Some(_) => Err(format!("more than {} pages", Pages::MOST)),
            None => Err(format!("{last} is before {first}")),
        }
    }
}

/// An address of a page.
pub fn page_address(address: u64, page_size: u64) -> anyhow::Result<u64> {
    ensure!(
        address.is_multiple_of(page_size),
        "--address {address:#x} is not a multiple of the page size of {page_size}"
    );
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_a_name_with_flags_or_a_word() {
        assert_eq!(mode_word("bind"), Ok(ModeWord(2)));
        assert_eq!(mode_word("bind+static+balancing"), Ok(ModeWord(0xa002)));
        assert_eq!(mode_word("0x2002"), Ok(ModeWord(0x2002)));
        assert_eq!(mode_word("-1"), Ok(ModeWord(u32::MAX)));
        for text in [
            "",
            "bound",
            "bind+",
            "bind+fast",
            "0x1ffffffff",
            "2x",
            "0x+1",
        ] {
            assert!(mode_word(text).is_err(), "{text}");
        }
        for (name, mode) in MODES {
            assert_eq!(mode_word(name), Ok(ModeWord(mode.number())));
            assert_eq!(mode_name(mode), name);
        }
    }

    #[test]
    fn pages_are_one_or_a_range() {
        let pages = |first, count| Ok(Pages { first, count });
        assert_eq!(Pages::parse("7"), pages(7, 1));
        assert_eq!(Pages::parse("0-15"), pages(0, 16));
        for text in ["", "3-1", "x", "0-", "0-99999999999", "+1", "0x+1"] {
            assert!(Pages::parse(text).is_err(), "{text}");
        }
    }
}
