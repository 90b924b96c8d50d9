//! `[weights]` of the service's configuration.

use memtide_loop::options::{NodeWeights, Size};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The most that is moved a second to reach weights: 4 GiB, as elsewhere.
pub const RATE_LIMIT: Size = Size(4 << 30);

/// The kernel's table of interleave weights, and how memory is moved to the weights of classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WeightsOptions {
    /// What the kernel's table reads while the service runs; left alone if none.
    pub table: Option<TableWeights>,
    /// The most that is moved a second, of all classes together.
    pub rate_limit: Size,
    /// Say what would be written and moved, and do neither.
    pub dry_run: bool,
}

impl Default for WeightsOptions {
    fn default() -> WeightsOptions {
        WeightsOptions {
            table: None,
            rate_limit: RATE_LIMIT,
            dry_run: false,
        }
    }
}

/// What the table is to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableWeights {
    /// What the kernel's rule makes of the bandwidths that the firmware tells.
    Compute,
    /// These.
    Given(NodeWeights),
}

const COMPUTE: &str = "compute";

impl FromStr for TableWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<TableWeights, String> {
        match text {
            COMPUTE => Ok(TableWeights::Compute),
            text if !text.contains('=') => Err(format!(
                "neither \"{COMPUTE}\" nor weights by node; write these as \"0=9,2=1\""
            )),
            text => text.parse().map(TableWeights::Given),
        }
    }
}

impl fmt::Display for TableWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableWeights::Compute => f.write_str(COMPUTE),
            TableWeights::Given(weights) => weights.fmt(f),
        }
    }
}

impl Serialize for TableWeights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TableWeights {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TableWeights, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_computed_or_given() {
        let read = |text: &str| text.parse::<TableWeights>();
        assert_eq!(read("compute"), Ok(TableWeights::Compute));
        assert_eq!(read("2=1,0=9").unwrap().to_string(), "0=9,2=1");
        for (text, said) in [
            ("auto", "neither \"compute\" nor weights by node; "),
            ("", "neither \"compute\" nor weights by node; "),
            ("0=0", "\"0\" in \"0=0\" is no weight from 1 to 255"),
        ] {
            assert!(read(text).unwrap_err().starts_with(said), "{text}");
        }
    }
}
