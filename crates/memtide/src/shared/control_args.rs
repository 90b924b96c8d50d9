//! Who may ask the service, as keys of its configuration.

use serde::{Deserialize, Deserializer, Serialize};

/// The longest name of a group.
const LONGEST: usize = 32;

/// The control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControlArgs {
    /// Whether there is one.
    pub enabled: bool,
    /// A group, by name or number, whose members may read the status and the list of processes; root alone otherwise.
    #[serde(deserialize_with = "group")]
    pub group: Option<String>,
}

impl Default for ControlArgs {
    fn default() -> ControlArgs {
        ControlArgs {
            enabled: true,
            group: None,
        }
    }
}

fn group<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(from)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.$".contains(c);
    match name.chars().all(fits) && (1..=LONGEST).contains(&name.len()) {
        true => Ok(Some(name)),
        false => Err(serde::de::Error::custom(
            "not the name or the number of a group",
        )),
    }
}
