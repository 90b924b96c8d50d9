//! From which nodes the data's memory comes.
//!
//! A page-cache page follows the policy of the thread that reads it in, so in
//! file mode the pager's reading threads carry the policy; anonymous memory has
//! one of its own (`mbind(2)`).

use crate::error::Error;
use memtide_core::mempolicy::Mode;
use memtide_core::nodemask::NodeMask;
use memtide_linux::sys::{Errno, mempolicy};
use std::fmt;
use std::str::FromStr;

/// A memory policy: a mode and its nodes. Written `weighted-interleave:0,2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPolicy {
    mode: Mode,
    nodes: NodeMask,
}

/// Modes with the words that name them.
const NAMES: [(&str, Mode); 6] = [
    ("preferred", Mode::Preferred),
    ("bind", Mode::Bind),
    ("interleave", Mode::Interleave),
    ("local", Mode::Local),
    ("preferred-many", Mode::PreferredMany),
    ("weighted-interleave", Mode::WeightedInterleave),
];

impl MemoryPolicy {
    /// `mode` on `nodes`.
    ///
    /// # Errors
    ///
    /// A mode that needs nodes without any, or `local` with some.
    pub fn new(mode: Mode, nodes: NodeMask) -> Result<MemoryPolicy, ParsePolicyError> {
        let wants = !matches!(mode, Mode::Local | Mode::Default);
        if wants == nodes.is_empty() {
            return Err(ParsePolicyError {
                text: format!("{mode}:{nodes}"),
                reason: if wants {
                    "give nodes"
                } else {
                    "takes no nodes"
                },
            });
        }
        Ok(MemoryPolicy { mode, nodes })
    }

    /// Its mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Its nodes.
    pub fn nodes(&self) -> &NodeMask {
        &self.nodes
    }

    /// Makes it the policy of the calling thread and of those that it starts
    /// then: for programs whose own page faults read a file in.
    ///
    /// # Errors
    ///
    /// [`Error::MemoryPolicy`] if the kernel refuses it.
    pub fn apply_to_thread(&self) -> Result<(), Error> {
        mempolicy::set_policy(self.mode.number(), &self.words()).map_err(|e| refused(self, e))
    }

    /// The nodes as the kernel takes them; empty for a mode without.
    pub(crate) fn words(&self) -> Vec<u64> {
        let mut words = Vec::new();
        for node in self.nodes.iter() {
            let at = node.index() / 64;
            if words.len() <= at {
                words.resize(at + 1, 0u64);
            }
            words[at] |= 1 << (node.index() % 64);
        }
        words
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, mode)| *mode == self.mode);
        f.write_str(name.map_or("default", |(name, _)| name))?;
        if self.nodes.is_empty() {
            return Ok(());
        }
        write!(f, ":{}", self.nodes)
    }
}

/// A text that names no memory policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory policy {text:?}: {reason}")]
pub struct ParsePolicyError {
    text: String,
    reason: &'static str,
}

impl FromStr for MemoryPolicy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<MemoryPolicy, ParsePolicyError> {
        let wrong = |reason| ParsePolicyError {
            text: text.to_owned(),
            reason,
        };
        let (name, list) = text.split_once(':').unwrap_or((text, ""));
        let (_, mode) = NAMES.iter().find(|(known, _)| *known == name).ok_or(wrong(
            "write bind, preferred, preferred-many, interleave or weighted-interleave with nodes \
             (bind:0,2), or local",
        ))?;
        let nodes = match list {
            "" => NodeMask::EMPTY,
            list => list
                .parse()
                .map_err(|_| wrong("its nodes are no node list"))?,
        };
        MemoryPolicy::new(*mode, nodes).map_err(|error| wrong(error.reason))
    }
}

/// Tries whether the kernel accepts the policy, on a thread of its own: a policy
/// belongs to a thread.
pub(crate) fn try_out(policy: &MemoryPolicy) -> Result<(), Error> {
    let wanted = policy.clone();
    let tried = std::thread::Builder::new().spawn(move || wanted.apply_to_thread());
    let tried = tried.map_err(|reason| Error::Thread {
        name: "memory-policy",
        reason,
    })?;
    tried.join().unwrap_or(Ok(()))
}

/// Makes it the policy of a range of addresses.
pub(crate) fn bind(policy: &MemoryPolicy, address: usize, bytes: usize) -> Result<(), Error> {
    mempolicy::mbind(address, bytes, policy.mode.number(), &policy.words(), 0)
        .map_err(|errno| refused(policy, errno))
}

fn refused(policy: &MemoryPolicy, errno: Errno) -> Error {
    let advice = match errno {
        Errno::INVAL if policy.mode == Mode::WeightedInterleave => {
            "give nodes that exist, have memory and are in the cpuset; weighted-interleave needs \
             Linux 6.9"
        }
        Errno::INVAL => "give nodes that exist, have memory and are in the cpuset",
        Errno::NOSYS => "the kernel was built without NUMA",
        Errno::PERM => "a seccomp filter forbids set_mempolicy(2)",
        _ => "give another policy",
    };
    Error::MemoryPolicy {
        policy: policy.to_string(),
        errno,
        advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_written_as_it_is_read() {
        for text in [
            "weighted-interleave:0,2",
            "bind:0-3",
            "local",
            "preferred:1",
        ] {
            assert_eq!(text.parse::<MemoryPolicy>().unwrap().to_string(), text);
        }
        let policy: MemoryPolicy = "bind:1,64".parse().unwrap();
        assert_eq!(policy.words(), [2, 1]);
    }

    #[test]
    fn what_names_none_is_refused() {
        for text in ["", "bind", "bind:", "bind:x", "local:0", "spread:0"] {
            assert!(text.parse::<MemoryPolicy>().is_err(), "{text}");
        }
    }
}
