//! One policy: what the caller asked for, and what is in force of it.
//!
//! A policy is made in two steps. First the mode is checked against the mask
//! ([`Request::new`]); then the mask is cut down to the nodes that the cpuset
//! allows and that have memory ([`Policy::new`]). `mbind` looks for holes and
//! misplaced pages only after both.

use super::errno::Errno;
use super::machine::{Kernel, Machine};
use super::mode::{Mode, ModeFlags};
use super::rebind::relative;
use crate::nodemask::NodeMask;
use crate::units::NodeId;

/// A mode and a mask that go together; not `DEFAULT`, which is no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    mode: Mode,
    flags: ModeFlags,
    mask: NodeMask,
}

impl Request {
    /// Checks the mode against the mask. `None` is the default policy.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a mask with default or local, no mask with a mode that needs
    /// one, static or relative with local.
    pub fn new(mode: Mode, flags: ModeFlags, mask: NodeMask) -> Result<Option<Request>, Errno> {
        let empty = mask.is_empty();
        let (mode, good) = match mode {
            Mode::Default if empty => return Ok(None),
            Mode::Preferred if empty => (Mode::Local, !flags.names_nodes()),
            Mode::Local => (mode, empty && !flags.names_nodes()),
            Mode::Default => (mode, false),
            _ => (mode, !empty),
        };
        match good {
            true => Ok(Some(Request { mode, flags, mask })),
            false => Err(Errno::EINVAL),
        }
    }
}

/// A policy in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The mode; never [`Mode::Default`].
    pub mode: Mode,
    /// The caller's flags.
    pub flags: ModeFlags,
    /// The nodes in force; empty for [`Mode::Local`].
    pub nodes: NodeMask,
    /// What the policy remembers: the caller's mask if
    /// [`Policy::keeps_user_mask`], else the cpuset's nodes. One field, as in
    /// the kernel, since rebinding may write the one over the other.
    pub remembered: NodeMask,
    /// Where bind and preferred-many start to look; `None`: where the CPU is.
    pub home: Option<NodeId>,
    /// Hint faults act on its pages (`MPOL_F_MOF`).
    pub on_fault: bool,
    /// They move a page to the node that accesses it (`MPOL_F_MORON`).
    pub to_accessor: bool,
}

impl Policy {
    /// Puts a request in force for a task that `cpuset` confines.
    ///
    /// # Errors
    ///
    /// `EINVAL` if none of its nodes is allowed and has memory.
    pub fn new(request: Request, cpuset: &NodeMask, machine: &Machine) -> Result<Policy, Errno> {
        let Request { mode, flags, mask } = request;
        let mut policy = Policy {
            mode,
            flags,
            nodes: NodeMask::EMPTY,
            remembered: NodeMask::EMPTY,
            home: None,
            on_fault: flags.numa_balancing,
            to_accessor: flags.numa_balancing,
        };
        if mode == Mode::Local {
            return Ok(policy);
        }
        let allowed = cpuset.intersection(machine.memory_nodes());
        let effective = match flags.relative_nodes {
            true => relative(&mask, &allowed),
            false => mask.intersection(&allowed),
        };
        let first = effective.iter().next().ok_or(Errno::EINVAL)?;
        policy.nodes = match mode {
            Mode::Preferred => [first].into_iter().collect(),
            _ => effective,
        };
        policy.remembered = match policy.keeps_user_mask(machine.kernel()) {
            true => mask,
            false => *cpuset,
        };
        Ok(policy)
    }

    /// The policy of a task that has none: the node of its CPU, and hint
    /// faults act on it.
    pub fn built_in(node: NodeId) -> Policy {
        Policy {
            mode: Mode::Preferred,
            flags: ModeFlags::default(),
            nodes: [node].into_iter().collect(),
            remembered: NodeMask::EMPTY,
            home: None,
            on_fault: true,
            to_accessor: true,
        }
    }

    /// Whether [`Policy::remembered`] is the caller's mask.
    pub fn keeps_user_mask(&self, kernel: &Kernel) -> bool {
        self.flags.names_nodes() || self.flags.numa_balancing && kernel.balancing_keeps_user_mask
    }

    /// The mask that `get_mempolicy` reports.
    pub fn reported_nodes(&self, kernel: &Kernel) -> NodeMask {
        match self.keeps_user_mask(kernel) {
            true => self.remembered,
            false => self.nodes,
        }
    }

    /// Whether the kernel takes two policies for one: then a mapping keeps the
    /// old one, and neighbours may merge.
    pub fn same(a: Option<&Policy>, b: Option<&Policy>, kernel: &Kernel) -> bool {
        match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                a.mode == b.mode
                    && a.flags == b.flags
                    && a.home == b.home
                    && (!a.keeps_user_mask(kernel) || a.remembered == b.remembered)
                    && a.nodes == b.nodes
            }
            _ => false,
        }
    }
}
