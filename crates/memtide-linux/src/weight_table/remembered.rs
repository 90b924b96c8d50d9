//! What stood in the table, and whether what it reads now is our doing.

use crate::fs::node::Weights;
use memtide_core::units::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What stood in the table before memtide changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remembered {
    /// The weights before.
    pub weights: BTreeMap<NodeId, u8>,
    /// The switch before.
    pub auto: Option<bool>,
    /// What each node may read by our doing, besides its weight before: what it
    /// read when we last began to write, and what we meant to write. If it reads
    /// otherwise, somebody else has written it since.
    ours: BTreeMap<NodeId, BTreeSet<u8>>,
    /// The change that was begun last, until it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begun: Option<Begun>,
}

/// A change of the table from one state towards another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begun {
    weights: BTreeMap<NodeId, u8>,
    auto: Option<bool>,
    wanted: BTreeMap<NodeId, u8>,
}

impl Remembered {
    /// What is noted before the table, which reads as `now`, is written as `wanted`: what stood there
    /// before, which is what `earlier` says if the table reads so by our own doing.
    pub fn intending(
        earlier: Option<Remembered>,
        now: &Weights,
        wanted: &BTreeMap<NodeId, u8>,
    ) -> Remembered {
        let mut ours: BTreeMap<NodeId, BTreeSet<u8>> = BTreeMap::new();
        for (node, weight) in now.weights.iter().chain(wanted) {
            ours.entry(*node).or_default().insert(*weight);
        }
        let begun = Some(Begun {
            weights: now.weights.clone(),
            auto: now.auto,
            wanted: wanted.clone(),
        });
        match earlier {
            Some(earlier) => Remembered {
                ours,
                begun,
                ..earlier
            },
            None => Remembered {
                weights: now.weights.clone(),
                auto: now.auto,
                ours,
                begun,
            },
        }
    }

    /// Whether a change was begun and has not ended.
    pub fn is_under_way(&self) -> bool {
        self.begun.is_some()
    }

    /// The same, when the change that was begun last has ended.
    #[must_use]
    pub fn ended(self) -> Remembered {
        Remembered {
            begun: None,
            ..self
        }
    }

    /// The table before.
    pub fn before(self) -> Weights {
        Weights {
            weights: self.weights,
            auto: self.auto,
        }
    }

    /// Every weight that may be put back.
    pub fn writes(&self) -> impl Iterator<Item = &u8> {
        let begun = self.begun.iter().flat_map(|begun| begun.weights.values());
        self.weights.values().chain(begun)
    }

    /// How the table stood before the change that was begun last, if it reads
    /// neither so nor as wanted, and every node one of both.
    pub fn cut_short(&self, now: &Weights) -> Option<Weights> {
        let Begun {
            weights,
            auto,
            wanted,
        } = self.begun.as_ref()?;
        let one_of_both = |(node, weight): (&NodeId, &u8)| {
            weights.get(node) == Some(weight) || wanted.get(node) == Some(weight)
        };
        let still_before = now.weights == *weights && now.auto == *auto;
        let done = (wanted.iter()).all(|(node, weight)| now.weights.get(node) == Some(weight));
        let between = weights.keys().eq(now.weights.keys())
            && now.auto != Some(true)
            && now.weights.iter().all(one_of_both);
        (between && !still_before && !done).then(|| Weights {
            weights: weights.clone(),
            auto: *auto,
        })
    }

    /// Whether the table reads as before, so that nothing is to be put back.
    pub fn is_as_before(&self, now: &Weights) -> bool {
        self.weights == now.weights && self.auto == now.auto
    }

    /// Whether the table reads by our doing and not as before. Once the kernel
    /// computes the weights again, nothing of ours is left.
    pub fn still_holds(&self, now: &Weights) -> bool {
        let ours = |(node, weight): (&NodeId, &u8)| {
            self.weights.get(node) == Some(weight)
                || self
                    .ours
                    .get(node)
                    .is_some_and(|ours| ours.contains(weight))
        };
        let same_nodes = self.weights.keys().eq(now.weights.keys());
        !self.is_as_before(now)
            && now.auto != Some(true)
            && same_nodes
            && now.weights.iter().all(ours)
    }
}
