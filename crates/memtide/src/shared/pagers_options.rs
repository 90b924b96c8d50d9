//! `[pagers]` of the service's configuration.

use serde::{Deserialize, Serialize};

/// What the service tells of the pagers of running programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PagersOptions {
    /// How much of it.
    pub show: Show,
}

/// How much is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// Sums of all processes, and figures by the name of each file.
    #[default]
    Files,
    /// Sums only: no name of a file.
    Sums,
    /// Nothing; no process is looked at.
    Nothing,
}
