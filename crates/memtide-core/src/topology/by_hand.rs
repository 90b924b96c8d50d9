//! Tiers that a user gives, where firmware tells none, or wrong ones.

use super::TierId;
use crate::nodemask::{NodeListError, NodeMask};
use crate::units::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Tiers of nodes, the fastest first: at least two, none empty, no node in two of them.
///
/// Written with slashes between the tiers and lists of nodes as the kernel writes them:
/// `0,1/2/3` or `0-3/4-7`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HandTiers(Vec<NodeMask>);

/// What is wrong with tiers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandTiersError {
    /// A list of nodes that is none.
    #[error(transparent)]
    Nodes(#[from] NodeListError),
    /// Nothing between two slashes, or at an end.
    #[error("a tier without a node; write the tiers from fast to slow as in 0,1/2/3")]
    Empty,
    /// One tier is no choice.
    #[error("one tier only; write the tiers from fast to slow as in 0,1/2/3")]
    One,
    /// A node in two tiers.
    #[error("node {0} is in two tiers; give it once")]
    Twice(NodeId),
}

impl HandTiers {
    /// The tier of a node: 0 is the fastest.
    pub fn tier_of(&self, node: NodeId) -> Option<TierId> {
        let at = self.0.iter().position(|nodes| nodes.contains(node))?;
        Some(TierId(at as u32))
    }

    /// All nodes that are in a tier.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().flat_map(NodeMask::iter)
    }
}

impl FromStr for HandTiers {
    type Err = HandTiersError;

    fn from_str(text: &str) -> Result<HandTiers, HandTiersError> {
        let mut tiers = Vec::new();
        let mut seen = NodeMask::EMPTY;
        for list in text.split('/') {
            let nodes: NodeMask = list.parse()?;
            if nodes == NodeMask::EMPTY {
                return Err(HandTiersError::Empty);
            }
            if let Some(node) = nodes.iter().find(|node| seen.contains(*node)) {
                return Err(HandTiersError::Twice(node));
            }
            seen = seen.union(&nodes);
            tiers.push(nodes);
        }
        match tiers.len() {
            1 => Err(HandTiersError::One),
            _ => Ok(HandTiers(tiers)),
        }
    }
}

impl fmt::Display for HandTiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, nodes) in self.0.iter().enumerate() {
            let slash = if at == 0 { "" } else { "/" };
            write!(f, "{slash}{nodes}")?;
        }
        Ok(())
    }
}

impl TryFrom<String> for HandTiers {
    type Error = HandTiersError;

    fn try_from(text: String) -> Result<HandTiers, HandTiersError> {
        text.parse()
    }
}

impl From<HandTiers> for String {
    fn from(tiers: HandTiers) -> String {
        tiers.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_read_as_they_are_written() {
        for text in ["0/1", "0-1/2/3", "4/0-3,8"] {
            assert_eq!(text.parse::<HandTiers>().unwrap().to_string(), text);
        }
        let tiers: HandTiers = "0,1/2/3".parse().unwrap();
        let of = |node| tiers.tier_of(NodeId(node)).map(|tier| tier.0);
        assert_eq!(
            [0, 1, 2, 3, 4].map(of),
            [Some(0), Some(0), Some(1), Some(2), None]
        );
    }

    #[test]
    fn what_is_no_order_of_tiers_is_refused() {
        let refused = |text: &str| text.parse::<HandTiers>().unwrap_err();
        for text in ["/1", "0/", "0//1", "/"] {
            assert_eq!(refused(text), HandTiersError::Empty, "{text}");
        }
        assert_eq!(refused("0,1"), HandTiersError::One);
        assert_eq!(refused("0-2/2"), HandTiersError::Twice(NodeId(2)));
        for text in ["0/x", "0/1024", "0/2-1", "0/1,"] {
            assert!(matches!(refused(text), HandTiersError::Nodes(_)), "{text}");
        }
    }
}
