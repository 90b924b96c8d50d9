//! `0=9,2=1`: a value for each of some nodes, as one word on the command line or
//! in a file.
//!
//! Every mistake is named with the part that is wrong; whether the nodes exist
//! is a question to the machine, not to the word.

use memtide_core::numbers;
use memtide_core::units::NodeId;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Weights by node, at least one, each from 1 to 255.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWeights(BTreeMap<NodeId, u8>);

impl NodeWeights {
    /// Each node with its weight, ascending.
    pub fn by_node(&self) -> &BTreeMap<NodeId, u8> {
        &self.0
    }
}

impl FromStr for NodeWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeWeights, String> {
        weights(text).map(NodeWeights)
    }
}

impl fmt::Display for NodeWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_words(&self.0))
    }
}

/// Weights as they are written: `0=9,2=1`.
pub fn in_words(weights: &BTreeMap<NodeId, u8>) -> String {
    let pairs = weights
        .iter()
        .map(|(node, weight)| format!("{node}={weight}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// Reads `NODE=WEIGHT[,...]`, weights from 1 to 255.
///
/// # Errors
///
/// What is wrong, and with which part.
pub fn weights(text: &str) -> Result<BTreeMap<NodeId, u8>, String> {
    pairs(text, "weight", |word| match numbers::decimal(word) {
        Some(weight @ 1..) => Ok(weight),
        _ => Err("no weight from 1 to 255".to_owned()),
    })
}

/// Reads `NODE=VALUE[,...]`; `what` is a value's name in errors. `value` says
/// of a word what it means or what it is not.
///
/// # Errors
///
/// What is wrong, and with which part.
pub fn pairs<T>(
    text: &str,
    what: &str,
    value: impl Fn(&str) -> Result<T, String>,
) -> Result<BTreeMap<NodeId, T>, String> {
    if text.trim().is_empty() {
        return Err(format!(
            "empty; give at least one NODE={}",
            what.to_uppercase()
        ));
    }
    let mut pairs = BTreeMap::new();
    for item in text.split(',') {
        let (node, word) = item
            .split_once('=')
            .ok_or_else(|| format!("{item:?} is not NODE={}", what.to_uppercase()))?;
        let id = numbers::decimal(node).filter(|id| *id < NodeId::LIMIT);
        let id = id.map(NodeId).ok_or_else(|| {
            format!(
                "{node:?} in {item:?} is no node from 0 to {}",
                NodeId::LIMIT - 1
            )
        })?;
        let value = value(word).map_err(|not| format!("{word:?} in {item:?} is {not}"))?;
        if pairs.insert(id, value).is_some() {
            return Err(format!("node {id} is there twice"));
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_by_node() {
        let expected = BTreeMap::from([(NodeId(0), 9), (NodeId(2), 255)]);
        assert_eq!(weights("2=255,0=9"), Ok(expected));
        let weights: NodeWeights = "2=255,0=9".parse().unwrap();
        assert_eq!(weights.to_string(), "0=9,2=255");
    }

    #[test]
    fn every_mistake_is_named() {
        for (text, said) in [
            ("", "empty; give at least one NODE=WEIGHT"),
            ("0=0", "\"0\" in \"0=0\" is no weight from 1 to 255"),
            (
                "0=9,1=256",
                "\"256\" in \"1=256\" is no weight from 1 to 255",
            ),
            ("0=-1", "\"-1\" in \"0=-1\" is no weight from 1 to 255"),
            ("0=3x", "\"3x\" in \"0=3x\" is no weight from 1 to 255"),
            ("0=+3", "\"+3\" in \"0=+3\" is no weight from 1 to 255"),
            ("0=", "\"\" in \"0=\" is no weight from 1 to 255"),
            ("0=9,", "\"\" is not NODE=WEIGHT"),
            ("9", "\"9\" is not NODE=WEIGHT"),
            ("x=9", "\"x\" in \"x=9\" is no node from 0 to 1023"),
            ("-1=9", "\"-1\" in \"-1=9\" is no node from 0 to 1023"),
            ("1024=9", "\"1024\" in \"1024=9\" is no node from 0 to 1023"),
            ("0=9,0=1", "node 0 is there twice"),
        ] {
            assert_eq!(weights(text), Err(said.to_owned()), "{text}");
        }
    }
}
