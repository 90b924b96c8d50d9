//! Classes of processes, and their shares of fast memory.

use memtide_core::topology::Topology;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::{
    AnyOf, NodeWeights, Pattern, Percent, PodFolder, PodQos, PodUid, Pressure, Size, Unit, User,
};

/// All classes, by their names.
pub type Classes = BTreeMap<String, ClassOptions>;

/// Some processes, and what they may have. A process belongs to the class if all
/// that is named here fits it; [`Rules`](super::Rules) says which class wins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassOptions {
    /// Those of these cgroups and of those below them.
    pub cgroup: Option<AnyOf<Pattern>>,
    /// Those of Kubernetes' pods of these qualities of service.
    pub pod_qos: Option<AnyOf<PodQos>>,
    /// Those of these pods.
    pub pod_uid: Option<AnyOf<PodUid>>,
    /// Of these pods, or of all, those that choose this class, by a file in this folder.
    pub pod_choice: Option<PodFolder>,
    /// Those of these systemd units, slices too.
    pub unit: Option<AnyOf<Unit>>,
    /// Those of these users.
    pub user: Option<AnyOf<User>>,
    /// Those that run these programs.
    pub executable: Option<AnyOf<Pattern>>,
    /// Which class wins where several fit: the highest.
    pub priority: i32,
    /// They are not managed at all.
    pub leave_alone: bool,
    /// What becomes of it that they wait for memory.
    pub pressure: Pressure,
    /// Whether they are tiered; as all others if it is not said, and so with the two below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<bool>,
    /// Whether their pages leave fast memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demote: Option<bool>,
    /// Whether those leave, too, that nobody touched for long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demote_idle: Option<bool>,
    /// Whether they are balanced between fast nodes; as all others if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<bool>,
    /// Their memory is kept spread over these nodes with these weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<NodeWeights>,
    /// Their share of fast memory.
    pub fast: FastOptions,
}

impl ClassOptions {
    /// What tiering does for its processes, if it does so much for those of classes that do not
    /// say (`others`). What needs another thing is off without it.
    pub fn tiered(&self, others: Tiered) -> Tiered {
        let tier = !self.leave_alone && self.tier.unwrap_or(others.tier);
        let demote = tier && self.demote.unwrap_or(others.demote);
        Tiered {
            tier,
            demote,
            demote_idle: demote && self.demote_idle.unwrap_or(others.demote_idle),
        }
    }

    /// The same as far as it says who is in the class, and what is done for them beside tiering.
    #[must_use]
    pub fn without_tiering(&self) -> ClassOptions {
        ClassOptions {
            fast: FastOptions::default(),
            pressure: Pressure::default(),
            tier: None,
            demote: None,
            demote_idle: None,
            ..self.clone()
        }
    }

    /// Whether its processes are balanced, if those of classes that do not say are
    /// (`others`). Nobody who is left alone is.
    pub fn is_balanced(&self, others: bool) -> bool {
        !self.leave_alone && self.balance.unwrap_or(others)
    }
}

/// What tiering does for some processes. By default all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiered {
    /// Their pages are observed, and move between tiers.
    pub tier: bool,
    /// They leave fast memory, and do not only come to it.
    pub demote: bool,
    /// They leave, too, because nobody touched them for long, where the options say how long.
    pub demote_idle: bool,
}

impl Tiered {
    /// What is not done, in few words; nothing if all is.
    pub fn words(self) -> &'static str {
        match self {
            Tiered { tier: false, .. } => "not tiered",
            Tiered { demote: false, .. } => "not demoted",
            Tiered {
                demote_idle: false, ..
            } => "keeps idle pages",
            _ => "",
        }
    }
}

impl Default for Tiered {
    fn default() -> Tiered {
        Tiered {
            tier: true,
            demote: true,
            demote_idle: true,
        }
    }
}

/// A share of fast memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FastOptions {
    /// Up to here nothing is demoted to make room for others.
    pub low: Option<Amount>,
    /// Above it nothing is promoted, and the coldest is demoted.
    pub high: Option<Amount>,
}

/// An amount of fast memory: `8GiB`, or `50%` of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// In bytes.
    Bytes(Size),
    /// Of the memory of all top-tier nodes.
    Share(Percent),
}

impl Amount {
    /// In bytes, of `fast` bytes in all.
    pub fn of(self, fast: u64) -> u64 {
        match self {
            Amount::Bytes(size) => size.0,
            Amount::Share(percent) => {
                (u128::from(fast) * u128::from(percent.permille()) / 1000) as u64
            }
        }
    }
}

/// Bytes of fast memory: of all top-tier nodes.
pub fn fast_bytes(topology: &Topology) -> u64 {
    let top = topology.nodes().iter().filter(|node| node.top_tier);
    top.map(|node| node.memory_bytes).sum()
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Amount, String> {
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.trim_end().parse();
            return match percent {
                Ok(percent) => Ok(Amount::Share(percent)),
                Err(_) => Err("not a percentage from 1% to 100%".to_owned()),
            };
        }
        let bare = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            // Who writes 50 means percent or gigabytes, but not bytes.
            Ok(Size(bytes)) if bare && bytes > 0 => Err(UNIT.to_owned()),
            Ok(size) => Ok(Amount::Bytes(size)),
            Err(_) => Err(UNIT.to_owned()),
        }
    }
}

const UNIT: &str = "not an amount with its unit; write it as 8GiB or \"50%\"";

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Bytes(size) => size.fmt(f),
            Amount::Share(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_has_a_unit_or_is_a_share() {
        let amount = |text: &str| text.parse::<Amount>();
        assert_eq!(amount("8GiB").map(|a| a.of(1)), Ok(8 << 30));
        assert_eq!(amount("50%").map(|a| a.of(1000)), Ok(500));
        assert_eq!(amount("100 %").map(|a| a.of(u64::MAX)), Ok(u64::MAX));
        assert_eq!(amount("0").map(|a| a.of(1000)), Ok(0));
        for wrong in ["50", "101%", "0%", "-1%", "1.5%", "%", "", "lots"] {
            assert!(amount(wrong).is_err(), "{wrong}");
        }
        for text in ["8GiB", "1536MiB", "33%"] {
            assert_eq!(amount(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_needs_another_thing_is_off_without_it() {
        let tiered = |text: &str, others| {
            let class: ClassOptions = toml::from_str(text).unwrap();
            let Tiered {
                tier,
                demote,
                demote_idle,
            } = class.tiered(others);
            [tier, demote, demote_idle]
        };
        let all = Tiered::default();
        assert_eq!(tiered("", all), [true; 3]);
        assert_eq!(tiered("demote_idle = false", all), [true, true, false]);
        assert_eq!(tiered("demote = false", all), [true, false, false]);
        assert_eq!(tiered("tier = false", all), [false; 3]);
        assert_eq!(tiered("leave_alone = true", all), [false; 3]);
        let others = Tiered { tier: false, ..all };
        assert_eq!(tiered("", others), [false; 3]);
        assert_eq!(tiered("tier = true", others), [true; 3]);
    }

    #[test]
    fn a_class_is_read_as_it_is_written() {
        let class: ClassOptions =
            toml::from_str("cgroup = '/a'\nfast.low = '1GiB'\nfast.high = '50%'").unwrap();
        let low = Some(Amount::Bytes(Size(1 << 30)));
        let high = Some(Amount::Share(Percent::new(50)));
        assert_eq!(class.fast, FastOptions { low, high });
        let again: ClassOptions = toml::from_str(&toml::to_string(&class).unwrap()).unwrap();
        assert_eq!(again, class);
        assert!(toml::from_str::<ClassOptions>("fast.middle = '1GiB'").is_err());
        assert!(toml::from_str::<ClassOptions>("fast.high = 50").is_err());
    }
}
