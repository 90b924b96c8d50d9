//! The calls that set policies: `set_mempolicy`, `mbind`,
//! `set_mempolicy_home_node`. The order of the checks is the kernel's.

use super::super::errno::Errno;
use super::super::mode::{Mode, parse_mode};
use super::super::place::Counter;
use super::super::policy::{Policy, Request};
use super::super::rawmask::RawMask;
use super::pages::Entry;
use super::{Process, common};
use crate::nodemask::NodeMask;
use crate::units::NodeId;
use std::ops::Range;

/// `MPOL_MF_STRICT`: an error if pages lie on other nodes.
pub const MF_STRICT: u32 = 1;
/// `MPOL_MF_MOVE`: move the pages that lie on other nodes.
pub const MF_MOVE: u32 = 2;
/// `MPOL_MF_MOVE_ALL`: move them even if other processes map them too.
pub const MF_MOVE_ALL: u32 = 4;

/// Whether a walk over mappings stops at holes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holes {
    Tolerated,
    Fatal,
}

/// What `mbind` does with pages outside the mask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Ignored,
    Fatal,
    Moved,
    /// Those that no other process has.
    OwnMoved,
}

impl Process {
    /// Sets the task's policy. An interleave starts anew at its lowest node.
    ///
    /// # Errors
    ///
    /// As the mode word, the mask and both together have them.
    pub fn set_mempolicy(&mut self, mode: u32, mask: &RawMask, maxnode: u64) -> Result<(), Errno> {
        let (mode, flags) = parse_mode(mode)?;
        let mask = mask.nodes(maxnode, self.machine.page())?;
        let request = Request::new(mode, flags, mask)?;
        self.policy = request
            .map(|r| Policy::new(r, &self.allowed, &self.machine))
            .transpose()?;
        if self.policy.as_ref().is_some_and(|p| p.mode.interleaves()) {
            self.counter = Counter::START;
        }
        self.see_weights();
        self.landing = self.landing_of(&self.task_policy());
        Ok(())
    }

    /// Sets the policy of a range of addresses. Of the mode word only the low
    /// 32 bits count. In a family, [`Family::mbind`](super::Family::mbind) is
    /// the call.
    ///
    /// # Errors
    ///
    /// `EFAULT` for a hole (with the default policy: for nothing mapped at
    /// all), `EIO` if strict without move meets a page outside the mask,
    /// `EPERM` for move-all without the capability, `EINVAL` for the rest.
    pub fn mbind(
        &mut self,
        start: u64,
        len: u64,
        mode: u64,
        mask: &RawMask,
        maxnode: u64,
        flags: u32,
    ) -> Result<(), Errno> {
        let (mode, mode_flags) = parse_mode(mode as u32)?;
        let mask = mask.nodes(maxnode, self.machine.page())?;
        if flags & !(MF_STRICT | MF_MOVE | MF_MOVE_ALL) != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & MF_MOVE_ALL != 0 && !self.machine.input().capable {
            return Err(Errno::EPERM);
        }
        let range = self.range(start, len)?;
        if range.is_empty() {
            return Ok(());
        }
        let request = Request::new(mode, mode_flags, mask)?;
        let policy = request
            .map(|r| Policy::new(r, &self.allowed, &self.machine))
            .transpose()?;
        let holes = match policy {
            None => Holes::Tolerated,
            Some(_) => Holes::Fatal,
        };
        let wrong = match policy {
            _ if flags & MF_MOVE_ALL != 0 => Wrong::Moved,
            _ if flags & MF_MOVE != 0 => Wrong::OwnMoved,
            Some(_) if flags & MF_STRICT != 0 => Wrong::Fatal,
            _ => Wrong::Ignored,
        };
        let queued = self.walk(&range, &mask, holes, wrong)?;
        self.see_weights();
        for piece in self.pieces(&range) {
            self.mappings.set_policy(piece, policy.as_ref());
        }
        if queued.is_empty() {
            return Ok(());
        }
        // Indices are addresses here, so pages that move go where a fault
        // would have put them: the pattern goes on across what stays.
        let landing = policy.as_ref().map(|policy| self.ready(policy));
        let landing = landing.as_deref().unwrap_or(&self.landing);
        for pages in queued {
            let target = |page, entry: &mut Entry| *entry = entry.moved(landing.node_at(page));
            self.pages.change(pages, target);
        }
        Ok(())
    }

    /// Sets where bind and preferred-many look first, mapping by mapping.
    ///
    /// # Errors
    ///
    /// `ENOENT` if no mapping of the range has a policy, `EOPNOTSUPP` at the
    /// first with another mode (those before it are changed), `EINVAL` for
    /// flags, an address within a page, or a node that is not online.
    pub fn set_mempolicy_home_node(
        &mut self,
        start: u64,
        len: u64,
        node: u64,
        flags: u64,
    ) -> Result<(), Errno> {
        let home = u16::try_from(node).map(NodeId);
        let home = home.ok().filter(|&n| self.machine.is_online(n));
        let home = home.filter(|_| flags == 0).ok_or(Errno::EINVAL)?;
        let range = self.range(start, len)?;
        if range.is_empty() {
            return Ok(());
        }
        self.see_weights();
        let mut result = Err(Errno::ENOENT);
        for piece in self.pieces(&range) {
            let (_, mapping) = self.mappings.at(piece.start).expect("a piece is mapped");
            let Some(policy) = &mapping.policy else {
                continue;
            };
            if !matches!(policy.mode, Mode::Bind | Mode::PreferredMany) {
                return Err(Errno::EOPNOTSUPP);
            }
            let mut policy = policy.clone();
            policy.home = Some(home);
            self.mappings.set_policy(piece, Some(&policy));
            result = Ok(());
        }
        result
    }

    /// The pages of `len` bytes from `start` on, the length rounded up to
    /// whole pages; within a page of 2^64 it rounds to none.
    fn range(&self, start: u64, len: u64) -> Result<Range<u64>, Errno> {
        let page = self.machine.page();
        let len = len.wrapping_add(page.bytes() - 1) & !(page.bytes() - 1);
        let end = start.wrapping_add(len);
        if !start.is_multiple_of(page.bytes()) || end < start {
            return Err(Errno::EINVAL);
        }
        Ok(page.pages(start)..page.pages(end))
    }

    /// The mapped parts of `range`, cut at the borders of mappings.
    fn pieces(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mapped = self.mappings.overlapping(range.clone());
        mapped.map(|(m, _)| common(&m, range)).collect()
    }

    /// Goes over the mappings in `range` and returns the pages to move. Each
    /// mapping is first asked for the hole behind it, then for its pages.
    fn walk(
        &self,
        range: &Range<u64>,
        mask: &NodeMask,
        holes: Holes,
        wrong: Wrong,
    ) -> Result<Vec<Range<u64>>, Errno> {
        let pieces = self.pieces(range);
        let first = pieces.first().ok_or(Errno::EFAULT)?;
        if holes == Holes::Fatal && first.start > range.start {
            return Err(Errno::EFAULT);
        }
        let mut queued: Vec<Range<u64>> = Vec::new();
        for (i, piece) in pieces.iter().enumerate() {
            let next = pieces.get(i + 1).map_or(range.end, |p| p.start);
            if holes == Holes::Fatal && piece.end < next {
                return Err(Errno::EFAULT);
            }
            if wrong == Wrong::Ignored {
                continue;
            }
            let outside = |(_, e): &(u64, Entry)| {
                e.node().is_some_and(|n| !mask.contains(n))
                    && (wrong != Wrong::OwnMoved || e.shared().is_none())
            };
            for (page, _) in self.pages.present(piece.clone()).filter(outside) {
                match queued.last_mut() {
                    _ if wrong == Wrong::Fatal => return Err(Errno::EIO),
                    Some(last) if last.end == page => last.end += 1,
                    _ => queued.push(page..page + 1),
                }
            }
        }
        Ok(queued)
    }
}
