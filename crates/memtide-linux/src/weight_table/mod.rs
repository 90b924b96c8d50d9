//! The kernel's table of interleave weights: reading it, writing it whole or
//! not at all, and putting back what stood there.
//!
//! Problem. The table is one file a node, and writing it has side effects. On
//! kernels that compute weights (6.16 and later) any write turns that off for
//! all nodes; on those before, `0` means the default. A change that stops
//! half-way leaves weights that nobody chose.
//!
//! Approach. What stood there is noted in the journal ([`crate::lent`]) before
//! the first write of a boot, with what we mean to write. The note is an
//! intention: it holds while every node reads as before or as we wanted it, so
//! that a change that was killed half-way can be undone, and several changes
//! are undone at once. If the n-th write fails, what was written before is put
//! back, and the error says how the table stands then. Whoever writes holds the
//! journal's turn. The note of a change for good outlives it, so it also says
//! whether one was begun and did not end: a table between the two states was cut
//! short, and goes back to the first ([`WeightTable::mend`]).
//!
//! Generations (facts of Linux 6.12 and 7.2):
//!
//! | kernel | files | default of a node | how it comes back |
//! |---|---|---|---|
//! | before 6.9 | none | 1, cannot be changed | |
//! | 6.9 to 6.15 | one a possible node | 1 | `0` into each |
//! | 6.16 and later | one a node with memory, and `auto` | computed from bandwidths, 1 without them | `true` into `auto`, `ENODEV` without bandwidths |

mod mending;
mod remembered;

use crate::fs::node::{self, AUTO_NAMES, WEIGHTS, Weights};
use crate::fs::numa::{self, Release};
use crate::fs::{FsError, Root, list};
use crate::lent::{Journal, Kind, LentError, Turn};
use crate::source::damon::knobs::{KnobError, Knobs, Sysfs};
use memtide_core::units::NodeId;
pub use remembered::Remembered;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Why the table could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// The kernel has no such table.
    #[error("{}", no_table(*release))]
    NoTable {
        /// The kernel's version, if that was readable.
        release: Option<Release>,
    },
    /// No weights were given.
    #[error("no weights to write; give at least one, as 0=9,2=1")]
    Empty,
    /// 0 stands for the default on some kernels and is refused by others.
    #[error("node {0}: 0 is no weight, they go from 1 to 255")]
    Zero(NodeId),
    /// The machine has no such node.
    #[error("node {node} does not exist; nodes with memory: {with_memory}")]
    NoNode {
        /// The node that was asked for.
        node: NodeId,
        /// Nodes that can have a weight, as a list.
        with_memory: String,
    },
    /// The node is there and has no memory, so no page can go to it.
    #[error("node {node} has no memory; nodes with memory: {with_memory}")]
    NoMemory {
        /// The node that was asked for.
        node: NodeId,
        /// Nodes that can have a weight, as a list.
        with_memory: String,
    },
    /// Nothing was noted in this boot.
    #[error("nothing to put back: memtide has not changed the weights since this boot")]
    NothingRemembered,
    /// A file of the kernel makes no sense.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A file could not be read.
    #[error("{}{}; nothing was changed", not_root(.0), .0)]
    Before(KnobError),
    /// What stood there could not be noted, so nothing was changed; or the note
    /// could not be read or removed.
    #[error(transparent)]
    Lent(#[from] LentError),
    /// A write failed on the way.
    #[error("{}{cause}; {undone}", not_root(cause))]
    Write {
        /// The write that failed.
        cause: KnobError,
        /// What became of those before it.
        undone: Undone,
    },
}

/// How the table stands after a write failed.
#[derive(Debug)]
pub enum Undone {
    /// The first write failed already.
    NothingWritten,
    /// All is as it was.
    PutBack,
    /// The weights are as they were, but the kernel does not compute them any
    /// more: it refuses to without bandwidths.
    WithoutAuto,
    /// Putting back failed too.
    Failed(Box<KnobError>),
}

impl WeightError {
    /// Whether it takes more rights.
    pub fn is_denied(&self) -> bool {
        match self {
            WeightError::Lent(error) => error.is_denied(),
            WeightError::Before(cause) | WeightError::Write { cause, .. } => {
                !not_root(cause).is_empty()
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Undone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Undone::NothingWritten => f.write_str("nothing was changed"),
            Undone::PutBack => f.write_str("what was written before it was put back"),
            Undone::WithoutAuto => {
                f.write_str("the weights were put back, but auto stays off without bandwidths")
            }
            Undone::Failed(error) => {
                write!(
                    f,
                    "and what was written before it is still there, and noted: {error}"
                )
            }
        }
    }
}

fn no_table(release: Option<Release>) -> String {
    let kernel = release.map_or_else(
        || "this kernel".to_owned(),
        |release| format!("this kernel ({}.{})", release.major, release.minor),
    );
    format!("{kernel} has no table of interleave weights; Linux has it since 6.9, with CONFIG_NUMA")
}

fn not_root(cause: &KnobError) -> &'static str {
    match cause.errno() {
        Some(libc::EACCES | libc::EPERM) => "not permitted, run as root: ",
        _ => "",
    }
}

/// What a change did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The table before.
    pub before: Weights,
    /// The table as it reads now.
    pub after: Weights,
    /// Nodes that were written, ascending; empty if all was so already.
    pub written: Vec<NodeId>,
}

impl Change {
    /// Whether the kernel computed the weights before and does not any more.
    pub fn auto_went_off(&self) -> bool {
        self.before.auto == Some(true) && self.after.auto == Some(false)
    }
}

/// How the default came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetWay {
    /// Each node's own default, which is 1 (6.9 to 6.15).
    EachNode,
    /// The kernel computes the weights again.
    Auto,
    /// The kernel would compute them and knows no bandwidths: all are 1, and
    /// `auto` is off.
    OnesWithoutBandwidths,
}

/// The table of the kernel under a root.
#[derive(Debug)]
pub struct WeightTable<K = Sysfs> {
    files: K,
    /// Nodes that have a file.
    nodes: BTreeSet<NodeId>,
    /// Nodes that are in use.
    online: BTreeSet<NodeId>,
    /// Those of them with memory.
    with_memory: BTreeSet<NodeId>,
    auto_name: Option<&'static str>,
    journal: Journal,
}

impl WeightTable {
    /// The table under `root`; what stood there is noted for good
    /// ([`Kind::Weights`]) in the journal under the same root.
    ///
    /// # Errors
    ///
    /// [`WeightError::NoTable`] on kernels before 6.9, [`WeightError::Fs`].
    pub fn open(root: &Root) -> Result<WeightTable, WeightError> {
        let Some(weights) = node::weights(root)? else {
            let release = numa::release(root)?;
            return Err(WeightError::NoTable { release });
        };
        let sets = node::sets(root)?;
        Ok(WeightTable {
            files: Sysfs::new(&root.path("")),
            nodes: weights.weights.keys().copied().collect(),
            with_memory: sets.has_memory.unwrap_or_else(|| sets.online.clone()),
            online: sets.online,
            auto_name: AUTO_NAMES
                .into_iter()
                .find(|name| root.path(WEIGHTS).join(name).exists()),
            journal: Journal::new(root, Kind::Weights),
        })
    }
}

impl<K: Knobs> WeightTable<K> {
    /// The same table, with what stood there noted in `journal`: a change for a
    /// while is undone by itself and leaves the lasting note alone.
    #[must_use]
    pub fn noting_in(self, journal: Journal) -> Self {
        WeightTable { journal, ..self }
    }

    /// Where what stood there is noted, and who may write the table.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Nodes that pages can go to and that have a weight.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.nodes
            .intersection(&self.with_memory)
            .copied()
            .collect()
    }

    /// Whether the kernel can compute weights by itself (6.16 and later).
    pub fn has_auto(&self) -> bool {
        self.auto_name.is_some()
    }

    /// The table as it reads now, nodes without memory included where the
    /// kernel has files for them.
    ///
    /// # Errors
    ///
    /// [`WeightError::Before`].
    pub fn read(&self) -> Result<Weights, WeightError> {
        self.read_now().map_err(WeightError::Before)
    }

    /// Whether every one of `wanted` could be written on this machine.
    ///
    /// # Errors
    ///
    /// The first that could not: [`WeightError::Empty`], [`WeightError::Zero`],
    /// [`WeightError::NoNode`], [`WeightError::NoMemory`].
    pub fn check(&self, wanted: &BTreeMap<NodeId, u8>) -> Result<(), WeightError> {
        if wanted.is_empty() {
            return Err(WeightError::Empty);
        }
        let with_memory = || list::format(self.nodes().iter().map(|node| node.0.into()));
        for (&node, &weight) in wanted {
            if !self.nodes().contains(&node) {
                let with_memory = with_memory();
                return Err(match self.online.contains(&node) {
                    true => WeightError::NoMemory { node, with_memory },
                    false => WeightError::NoNode { node, with_memory },
                });
            }
            if weight == 0 {
                return Err(WeightError::Zero(node));
            }
        }
        Ok(())
    }

    /// Writes `wanted`, all of it or nothing; nodes that are not in it keep
    /// their weights. If the table reads like that already, nothing is written
    /// and `auto` stays as it is. What stood there is noted first.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check); [`WeightError::Before`] if reading failed,
    /// [`WeightError::Lent`] if noting did; [`WeightError::Write`].
    pub fn write(
        &mut self,
        _turn: &Turn,
        wanted: &BTreeMap<NodeId, u8>,
    ) -> Result<Change, WeightError> {
        self.check(wanted)?;
        let before = self.read()?;
        if wanted
            .iter()
            .all(|(node, weight)| before.weights.get(node) == Some(weight))
        {
            return Ok(Change {
                after: before.clone(),
                before,
                written: Vec::new(),
            });
        }
        let (earlier, note) = self.remember(&before, wanted)?;
        let mut written = Vec::new();
        for (&node, weight) in wanted {
            if let Err(cause) = self.put(node, &weight.to_string()) {
                let undone = self.undo(&before, &written);
                if !matches!(undone, Undone::Failed(_)) {
                    // The write's error is the one to tell of.
                    let _ = self.note(earlier.as_ref());
                }
                return Err(WeightError::Write { cause, undone });
            }
            written.push(node);
        }
        // All is as wanted, which tells the same as this note.
        let _ = self.note(Some(&note.ended()));
        let after = self.read()?;
        Ok(Change {
            before,
            after,
            written,
        })
    }

    /// Puts the kernel's default back.
    ///
    /// # Errors
    ///
    /// [`WeightError::Before`], [`WeightError::Write`].
    pub fn reset(&mut self, _turn: &Turn) -> Result<(Change, ResetWay), WeightError> {
        let before = self.read()?;
        let nodes: Vec<NodeId> = self.nodes.iter().copied().collect();
        // Killed half-way, it can be undone as any other change.
        let ones = nodes.iter().map(|node| (*node, 1)).collect();
        let (earlier, _) = self.remember(&before, &ones)?;
        let mut way = ResetWay::EachNode;
        if let Some(name) = self.auto_name {
            match self.files.write(&path(name), "true") {
                Ok(()) => way = ResetWay::Auto,
                Err(error) if error.errno() == Some(libc::ENODEV) => {
                    way = ResetWay::OnesWithoutBandwidths;
                }
                Err(cause) => {
                    let undone = Undone::NothingWritten;
                    let _ = self.note(earlier.as_ref());
                    return Err(WeightError::Write { cause, undone });
                }
            }
        }
        let value = match way {
            ResetWay::Auto => None,
            ResetWay::EachNode => Some("0"),
            ResetWay::OnesWithoutBandwidths => Some("1"),
        };
        let mut written = Vec::new();
        for &node in value.iter().flat_map(|_| &nodes) {
            if let Err(cause) = self.put(node, value.unwrap_or_default()) {
                let undone = self.undo(&before, &written);
                if !matches!(undone, Undone::Failed(_)) {
                    let _ = self.note(earlier.as_ref());
                }
                return Err(WeightError::Write { cause, undone });
            }
            written.push(node);
        }
        self.note(None)?;
        let after = self.read()?;
        let change = Change {
            before,
            after,
            written,
        };
        Ok((change, way))
    }

    fn read_now(&self) -> Result<Weights, KnobError> {
        let mut weights = BTreeMap::new();
        for &node in &self.nodes {
            let file = node_path(node);
            let value = self.files.read(&file)?;
            let weight = value.parse().ok().filter(|weight| *weight > 0);
            let weight = weight.ok_or_else(|| KnobError::Malformed {
                path: self.files.shown(&file),
                value,
                expected: "a weight from 1 to 255",
            })?;
            weights.insert(node, weight);
        }
        let mut auto = None;
        if let Some(name) = self.auto_name {
            let value = self.files.read(&path(name))?;
            auto = Some(
                numa::parse_bool(value.as_bytes()).map_err(|_| KnobError::Malformed {
                    path: self.files.shown(&path(name)),
                    value,
                    expected: "true or false",
                })?,
            );
        }
        Ok(Weights { weights, auto })
    }

    fn put(&mut self, node: NodeId, value: &str) -> Result<(), KnobError> {
        self.files.write(&node_path(node), value)
    }

    /// Puts back `before` after `written` was written. Turning `auto` on makes
    /// the kernel compute the weights that stood there; where it refuses, they
    /// are written.
    fn undo(&mut self, before: &Weights, written: &[NodeId]) -> Undone {
        if written.is_empty() {
            return Undone::NothingWritten;
        }
        let mut without_auto = false;
        if let (Some(true), Some(name)) = (before.auto, self.auto_name) {
            match self.files.write(&path(name), "true") {
                Ok(()) => return Undone::PutBack,
                Err(error) if error.errno() == Some(libc::ENODEV) => without_auto = true,
                Err(error) => return Undone::Failed(Box::new(error)),
            }
        }
        for node in written {
            let Some(weight) = before.weights.get(node) else {
                continue;
            };
            if let Err(error) = self.put(*node, &weight.to_string()) {
                return Undone::Failed(Box::new(error));
            }
        }
        match without_auto {
            true => Undone::WithoutAuto,
            false => Undone::PutBack,
        }
    }
}

fn path(name: &str) -> String {
    format!("{WEIGHTS}/{name}")
}

fn node_path(node: NodeId) -> String {
    path(&format!("node{node}"))
}

#[cfg(test)]
mod tests;
