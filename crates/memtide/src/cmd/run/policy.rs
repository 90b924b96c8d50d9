//! The memory policy of a program that is started, and what older kernels get
//! instead.

use super::args::RunArgs;
use crate::shared::context::BadUsage;
use crate::shared::nodes::{List, Machine};
use memtide_core::mempolicy::{Mode, NUMA_BALANCING};
use memtide_core::units::NodeId;
use memtide_linux::sys::Errno;
use memtide_linux::sys::mempolicy::{self, Mask};
use std::collections::BTreeSet;

/// A policy, before it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The option that asked for it.
    pub option: &'static str,
    /// Its mode.
    pub mode: Mode,
    /// Empty for local allocation.
    pub nodes: BTreeSet<NodeId>,
    /// With `MPOL_F_NUMA_BALANCING`.
    pub balancing: bool,
}

/// What sets policies: the kernel, or in tests one that refuses.
pub trait Setter {
    /// `set_mempolicy(2)` of the calling thread.
    fn set(&mut self, mode: u32, mask: &[u64]) -> Result<(), Errno>;
}

/// The running kernel.
pub struct RunningKernel;

impl Setter for RunningKernel {
    fn set(&mut self, mode: u32, mask: &[u64]) -> Result<(), Errno> {
        mempolicy::set_policy(mode, mask)
    }
}

/// The policy that `args` ask for, if any. At most one is given.
pub fn wanted(args: &RunArgs, machine: &Machine) -> Result<Option<Policy>, BadUsage> {
    let lists = [
        ("--interleave", Mode::Interleave, &args.interleave),
        (
            "--weighted-interleave",
            Mode::WeightedInterleave,
            &args.weighted_interleave,
        ),
        ("--membind", Mode::Bind, &args.membind),
        ("--preferred", Mode::Preferred, &args.preferred),
        (
            "--preferred-many",
            Mode::PreferredMany,
            &args.preferred_many,
        ),
    ];
    let given = |(option, mode, list): (_, _, &'_ Option<List>)| {
        list.clone().map(|list| (option, mode, list))
    };
    let Some((option, mode, list)) = lists.into_iter().find_map(given) else {
        return Ok(args.localalloc.then(|| Policy {
            option: "--localalloc",
            mode: Mode::Local,
            nodes: BTreeSet::new(),
            balancing: false,
        }));
    };
    let blame = |why| BadUsage(format!("{option}: {why}"));
    let nodes = list.nodes_among(&machine.memory_nodes).map_err(blame)?;
    if mode == Mode::Preferred && nodes.len() > 1 {
        let many = format!("{list} is more than one node; --preferred-many takes several");
        return Err(blame(many));
    }
    Ok(Some(Policy {
        option,
        mode,
        nodes,
        balancing: args.balancing,
    }))
}

impl Policy {
    /// Sets the policy of the calling thread, which its children inherit, and
    /// says what had to be left out.
    pub fn set(&self, kernel: &mut impl Setter) -> anyhow::Result<Vec<String>> {
        let mask = mask(&self.nodes);
        let mask = if self.nodes.is_empty() {
            &[]
        } else {
            &mask[..]
        };
        let flag = if self.balancing { NUMA_BALANCING } else { 0 };
        let mut notices = Vec::new();
        let mut result = kernel.set(self.mode.number() | flag, mask);
        if result == Err(Errno::INVAL) && self.balancing {
            result = kernel.set(self.mode.number(), mask);
            notices.push(format!(
                "this kernel refuses --balancing with {} (Linux has it since 5.12): pages are \
                 placed as asked, and stay where they are placed",
                self.option
            ));
        } else if result == Err(Errno::INVAL) && self.mode == Mode::WeightedInterleave {
            result = kernel.set(Mode::Interleave.number(), mask);
            notices.push(
                "this kernel has no weighted interleave (Linux has it since 6.9): pages are \
                 placed on the nodes in turn, without weights"
                    .to_owned(),
            );
        }
        match result {
            Ok(()) => Ok(notices),
            Err(errno) => Err(self.refused(errno)),
        }
    }

    fn refused(&self, errno: Errno) -> anyhow::Error {
        let why = match errno {
            Errno::PERM => "a sandbox forbids it, such as a container's seccomp filter",
            Errno::NOSYS => "it was built without CONFIG_NUMA",
            Errno::INVAL if self.mode == Mode::PreferredMany => "Linux has it since 5.15",
            _ => "the nodes may have gone meanwhile",
        };
        anyhow::anyhow!("{}: the kernel refuses it: {errno}; {why}", self.option)
    }
}

fn mask(nodes: &BTreeSet<NodeId>) -> Mask {
    let mut mask: Mask = [0; mempolicy::MASK_WORDS];
    for node in nodes {
        mask[node.index() / 64] |= 1 << (node.index() % 64);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that knows only some mode words.
    struct Old {
        known: Vec<u32>,
        errno: Errno,
        asked: Vec<(u32, u64)>,
    }

    impl Old {
        fn knowing(known: &[u32]) -> Old {
            Old {
                known: known.to_vec(),
                errno: Errno::INVAL,
                asked: Vec::new(),
            }
        }
    }

    impl Setter for Old {
        fn set(&mut self, mode: u32, mask: &[u64]) -> Result<(), Errno> {
            self.asked.push((mode, mask.first().copied().unwrap_or(0)));
            match self.known.contains(&mode) {
                true => Ok(()),
                false => Err(self.errno),
            }
        }
    }

    fn policy(mode: Mode, balancing: bool) -> Policy {
        Policy {
            option: "--membind",
            mode,
            nodes: BTreeSet::from([NodeId(1), NodeId(3)]),
            balancing,
        }
    }

    #[test]
    fn balancing_is_asked_for_first() {
        let mut kernel = Old::knowing(&[0x2002]);
        assert!(
            policy(Mode::Bind, true)
                .set(&mut kernel)
                .unwrap()
                .is_empty()
        );
        assert_eq!(kernel.asked, [(0x2002, 0b1010)]);
    }

    #[test]
    fn a_kernel_that_refuses_balancing_binds_and_it_is_said() {
        let mut kernel = Old::knowing(&[2]);
        let notices = policy(Mode::Bind, true).set(&mut kernel).unwrap();
        assert_eq!(kernel.asked, [(0x2002, 0b1010), (2, 0b1010)]);
        assert!(
            notices[0].contains("--balancing with --membind"),
            "{notices:?}"
        );
        assert_eq!(notices.len(), 1);
    }

    #[test]
    fn a_kernel_without_weights_interleaves_and_it_is_said() {
        let mut kernel = Old::knowing(&[3]);
        let notices = policy(Mode::WeightedInterleave, false)
            .set(&mut kernel)
            .unwrap();
        assert_eq!(kernel.asked, [(6, 0b1010), (3, 0b1010)]);
        assert!(notices[0].contains("since 6.9"), "{notices:?}");
    }

    #[test]
    fn other_refusals_are_errors_and_are_not_tried_around() {
        let mut kernel = Old {
            errno: Errno::PERM,
            ..Old::knowing(&[])
        };
        let error = policy(Mode::Bind, true)
            .set(&mut kernel)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("--membind: the kernel refuses it"),
            "{error}"
        );
        assert!(error.contains("seccomp"), "{error}");
        assert_eq!(kernel.asked.len(), 1);
        let mut kernel = Old::knowing(&[]);
        assert!(policy(Mode::Bind, true).set(&mut kernel).is_err());
        assert!(policy(Mode::Bind, false).set(&mut kernel).is_err());
    }
}
