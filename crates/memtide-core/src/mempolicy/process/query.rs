//! `get_mempolicy`, with what it writes before it fails.

use super::super::errno::Errno;
use super::super::mode::Mode;
use super::super::policy::Policy;
use super::Process;
use crate::nodemask::NodeMask;

/// `MPOL_F_NODE`: a node instead of a mode.
pub const F_NODE: u64 = 1;
/// `MPOL_F_ADDR`: of the mapping at an address instead of the task.
pub const F_ADDR: u64 = 2;
/// `MPOL_F_MEMS_ALLOWED`: the cpuset's nodes.
pub const F_MEMS_ALLOWED: u64 = 4;

/// The arguments of `get_mempolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Whether there is a place for the mode.
    pub mode: bool,
    /// Whether there is a place for the mask.
    pub mask: bool,
    /// The bits of that place, plus one.
    pub maxnode: u64,
    /// The address.
    pub addr: u64,
    /// The flags.
    pub flags: u64,
}

/// What `get_mempolicy` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it returned.
    pub result: Result<(), Errno>,
    /// What it wrote as the mode, even if it then failed.
    pub mode: Option<i32>,
    /// The words that it wrote as the mask; none if it wrote nothing.
    pub mask: Vec<u64>,
}

impl Process {
    /// Asks for a policy, a node or the cpuset. With node and address the page
    /// there is read, so it may come into being as a page of zeros.
    pub fn get_mempolicy(&mut self, query: Query) -> Reply {
        let mut reply = Reply {
            result: Ok(()),
            mode: None,
            mask: Vec::new(),
        };
        let short = query.maxnode < self.machine.input().possible_nodes.into();
        if query.mask && short {
            reply.result = Err(Errno::EINVAL);
            return reply;
        }
        match self.ask(query.addr, query.flags) {
            Err(error) => reply.result = Err(error),
            Ok((mode, nodes)) => {
                reply.mode = query.mode.then_some(mode as i32);
                if query.mask {
                    reply.result = self.write_mask(query.maxnode, &nodes, &mut reply.mask);
                }
            }
        }
        reply
    }

    fn ask(&mut self, addr: u64, flags: u64) -> Result<(u32, NodeMask), Errno> {
        if flags & !(F_NODE | F_ADDR | F_MEMS_ALLOWED) != 0 {
            return Err(Errno::EINVAL);
        }
        let (node, by_addr) = (flags & F_NODE != 0, flags & F_ADDR != 0);
        if flags & F_MEMS_ALLOWED != 0 {
            return match node || by_addr {
                true => Err(Errno::EINVAL),
                false => Ok((0, self.allowed)),
            };
        }
        let page = self.machine.page().pages(addr);
        let policy = if by_addr {
            let (_, mapping) = self.mappings.at(page).ok_or(Errno::EFAULT)?;
            mapping.policy.clone()
        } else if addr != 0 {
            return Err(Errno::EINVAL);
        } else {
            self.policy.clone()
        };
        let kernel = *self.machine.kernel();
        let nodes = |p: &Policy| p.reported_nodes(&kernel);
        let nodes = policy.as_ref().map_or(NodeMask::EMPTY, nodes);
        let word = match (node, by_addr) {
            (true, true) => self.read(page).0.into(),
            (true, false) => self.next_interleaved()?,
            (false, _) => {
                policy.map_or(Mode::Default.number(), |p| p.mode.number() | p.flags.bits())
            }
        };
        Ok((word, nodes))
    }

    /// The node that the counter would pick next for the task.
    fn next_interleaved(&mut self) -> Result<u32, Errno> {
        self.see_weights();
        let spread = self.landing.spread().ok_or(Errno::EINVAL)?;
        Ok(self.counter.peek(spread).0.into())
    }

    /// Copies whole words, as many as the possible nodes take. What the caller
    /// has beyond those is cleared, up to a page in all, also where the mask has
    /// impossible nodes; a length near 2^64 rounds to nothing.
    fn write_mask(
        &self,
        maxnode: u64,
        nodes: &NodeMask,
        written: &mut Vec<u64>,
    ) -> Result<(), Errno> {
        let bytes = (maxnode.wrapping_sub(1).wrapping_add(63) & !63) / 8;
        let possible = u64::from(self.machine.input().possible_nodes).div_ceil(64) * 8;
        if bytes > possible && bytes > self.machine.page().bytes() {
            return Err(Errno::EINVAL);
        }
        written.resize(bytes as usize / 8, 0);
        for node in nodes.iter() {
            let kept = node.index() / 64 < possible as usize / 8;
            if let Some(word) = written.get_mut(node.index() / 64).filter(|_| kept) {
                *word |= 1 << (node.index() % 64);
            }
        }
        Ok(())
    }
}
