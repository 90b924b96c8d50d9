//! Conservation: what must be true of the kernel at any moment between two calls.
//!
//! - Each frame of a node is in use by one folio, or free in its block, or on one CPU's list; together
//!   they are the node's pages, and the node's count of free pages is that of the free frames.
//! - Each present entry shows a frame that its own slot or its file's slot owns, of the node that the
//!   entry says; so no page maps two frames and no anonymous frame is mapped twice.
//! - A huge folio is 512 entries in order on 512 frames in order, both beginning at a multiple of 512.
//! - Each folio is either isolated or on one ring, of its own node and kind; a ring has no folio that is
//!   younger than itself; the lengths by state are right.
//! - Counters that count the same thing in two ways agree.
//!
//! Looking at everything takes time in proportion to the machine, so debug builds do it for small machines
//! only, and so rarely that a background step pays for [`PAGES_A_STEP`]; tests, the swarm and the fuzz
//! target do it always.

use super::Kernel;
use super::lru::{ANONYMOUS, FILE, Lists, ring_end};
use crate::config::Lru;
use crate::page::{Flags, Frame, HUGE_PAGES, MAX_NODES, Slot};
use memtide_core::units::NodeId;
use memtide_core::vmstat::Counter;

/// Pages up to which debug builds look at everything.
const SMALL: usize = 1 << 13;
/// Pages that debug builds look at for each background step, on average.
const PAGES_A_STEP: usize = 512;

/// What does not add up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

macro_rules! hold {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err(Violation(format!($($message)*)));
        }
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Unseen,
    Used,
    Free,
    OnCpuList,
}

impl Kernel {
    /// Looks at everything.
    ///
    /// # Errors
    ///
    /// The first thing that does not add up.
    pub fn check(&self) -> Result<(), Violation> {
        let mut uses = vec![Use::Unseen; self.frames.end() as usize];
        self.check_free(&mut uses)?;
        self.check_owners(&mut uses)?;
        for node in nodes() {
            for frame in self.frames.of_node(node) {
                let seen = uses[frame as usize];
                hold!(
                    seen != Use::Unseen,
                    "frame {frame} is neither free nor owned"
                );
            }
        }
        self.check_entries()?;
        self.check_lists()?;
        self.check_counters()
    }

    /// Panics in debug builds if a small machine does not add up, whenever enough steps have paid for
    /// looking.
    pub(super) fn check_now_and_then(&mut self) {
        let pages = self.ptes.len().max(self.frames.end() as usize);
        if cfg!(debug_assertions) && pages <= SMALL {
            self.pages_to_check += PAGES_A_STEP;
            if self.pages_to_check >= pages {
                self.pages_to_check = 0;
                if let Err(violation) = self.check() {
                    panic!("conservation: {violation}");
                }
            }
        }
    }

    fn check_free(&self, uses: &mut [Use]) -> Result<(), Violation> {
        let mut twice = None;
        let mut note = |frame: Frame, what: Use| {
            if uses[frame as usize] != Use::Unseen {
                twice = Some(frame);
            }
            uses[frame as usize] = what;
        };
        for node in nodes() {
            let mut free = 0;
            self.frames.for_free(node, |frame| {
                free += 1;
                note(frame, Use::Free);
            })?;
            let counted = self.frames.free(node);
            hold!(
                free == counted,
                "node {node}: {free} frames are free, {counted} counted"
            );
            self.frames
                .for_cpu_lists(node, |frame| note(frame, Use::OnCpuList));
        }
        match twice {
            None => Ok(()),
            Some(frame) => Err(Violation(format!("frame {frame} is free twice"))),
        }
    }

    fn check_owners(&self, uses: &mut [Use]) -> Result<(), Violation> {
        for node in nodes() {
            for frame in self.frames.of_node(node) {
                let Some(owner) = self.frames.owner(frame) else {
                    continue;
                };
                let pte = self.ptes[owner as usize];
                let there = pte.has_any(Flags::PRESENT.with(Flags::MIGRATING));
                hold!(there, "frame {frame}: its owner {owner} is absent");
                let own = pte.frame();
                hold!(
                    own == frame,
                    "frame {frame}: its owner {owner} has frame {own}"
                );
                for tail in 0..self.folio_pages(owner) {
                    let at = (frame + tail) as usize;
                    let seen = uses[at];
                    hold!(
                        seen == Use::Unseen,
                        "frame {at} of owner {owner} is {seen:?} as well"
                    );
                    uses[at] = Use::Used;
                }
            }
        }
        Ok(())
    }

    fn check_entries(&self) -> Result<(), Violation> {
        for slot in 0..self.ptes.len() as Slot {
            let pte = self.ptes[slot as usize];
            let (present, moving) = (pte.has(Flags::PRESENT), pte.has(Flags::MIGRATING));
            if !present && !moving {
                let left = Flags::HUGE.with(Flags::ISOLATED);
                hold!(
                    !pte.has_any(left),
                    "slot {slot} is absent and has flags: {pte:?}"
                );
                continue;
            }
            hold!(
                !(present && moving),
                "slot {slot} is present and being moved"
            );
            let (frame, node) = (pte.frame(), self.frames.node_of(pte.frame()));
            hold!(
                pte.node() == node,
                "slot {slot}: frame {frame} is of node {node}, not {}",
                pte.node()
            );
            let head = self.head(slot);
            let first = self.ptes[head as usize];
            if pte.has(Flags::HUGE) {
                let in_order = first.frame() + (slot - head) == frame
                    && first.frame().is_multiple_of(HUGE_PAGES)
                    && first.has(Flags::HUGE)
                    && first.has(Flags::PRESENT) == present;
                hold!(
                    in_order,
                    "slot {slot} is no page of the huge folio at {head}"
                );
            }
            let owner = self.frames.owner(first.frame());
            let right = match owner {
                Some(owner) if owner == head => true,
                Some(owner) => {
                    self.regions.is_file(owner) && self.regions.mappings(owner).any(|m| m == slot)
                }
                None => false,
            };
            hold!(
                right,
                "slot {slot} shows frame {frame}, which {owner:?} owns"
            );
        }
        Ok(())
    }

    fn check_lists(&self) -> Result<(), Violation> {
        let mut listed = 0u64;
        for node in nodes() {
            for kind in [ANONYMOUS, FILE] {
                let mut pages = [0u64; 5];
                for ring in 0..4 {
                    listed += self.check_ring(node, kind, ring, &mut pages)?;
                }
                for (state, &found) in pages.iter().enumerate() {
                    let counted = self.lists.pages(node, kind, state as u8);
                    hold!(
                        found == counted,
                        "node {node}, kind {kind}: {found} pages in state {state}, {counted} counted"
                    );
                }
            }
        }
        let mut owned = 0u64;
        for frame in nodes().flat_map(|node| self.frames.of_node(node)) {
            if let Some(owner) = self.frames.owner(frame) {
                owned += u64::from(!self.ptes[owner as usize].has(Flags::ISOLATED));
            }
        }
        hold!(
            listed == owned,
            "{listed} folios are on lists, {owned} should be"
        );
        Ok(())
    }

    fn check_ring(
        &self,
        node: NodeId,
        kind: usize,
        ring: usize,
        pages: &mut [u64; 5],
    ) -> Result<u64, Violation> {
        let end = ring_end(node.index(), kind, ring);
        let (mut at, mut before, mut length) = (self.frames.next(end), end, 0);
        while at != end {
            let back = self.frames.previous(at);
            hold!(
                back == before,
                "frame {at}: its link back goes to {back}, not {before}"
            );
            let Some(owner) = self.frames.owner(at) else {
                return Err(Violation(format!(
                    "frame {at} is on a list without an owner"
                )));
            };
            let pte = self.ptes[owner as usize];
            let fits = pte.node() == node && self.kind_of(owner) == kind;
            let state = usize::from(pte.list());
            hold!(
                fits && !pte.has(Flags::ISOLATED) && (1..=4).contains(&state),
                "owner {owner}: {pte:?} is on ring {ring} of node {node}"
            );
            let in_time = match self.lists.lru() {
                Lru::Classic => self.lists.ring_of(state as u8) == ring,
                Lru::Multigenerational => {
                    let own = self.lists.sequence_of(node, kind, state as u8);
                    let rings = self.lists.sequence_of(node, kind, ring as u8 + 1);
                    rings <= own && own <= self.lists.youngest(node)
                }
            };
            hold!(
                in_time,
                "owner {owner} in state {state} is on ring {ring} of node {node}"
            );
            pages[state] += u64::from(self.folio_pages(owner));
            length += 1;
            (before, at) = (at, self.frames.next(at));
        }
        if self.lists.lru() == Lru::Multigenerational {
            let sequence = self.lists.sequence_of(node, kind, ring as u8 + 1);
            let there = sequence <= self.lists.youngest(node);
            hold!(
                there || length == 0,
                "node {node}: ring {ring} of no generation has folios"
            );
            debug_assert_eq!(usize::from(Lists::state_of(sequence)), ring + 1);
        }
        Ok(length)
    }

    fn check_counters(&self) -> Result<(), Violation> {
        let sum = |of: &[Counter]| of.iter().map(|&c| self.counters.get(c)).sum::<u64>();
        use Counter::*;
        let (placed, by_cpu) = (sum(&[NumaHit, NumaMiss]), sum(&[NumaLocal, NumaOther]));
        hold!(
            placed == by_cpu,
            "{placed} allocations by policy, {by_cpu} by CPU"
        );
        let (miss, foreign) = (sum(&[NumaMiss]), sum(&[NumaForeign]));
        hold!(miss == foreign, "{miss} misses, {foreign} foreign");
        let demoted = sum(&[PgdemoteKswapd, PgdemoteDirect, PgdemoteProactive]);
        let moves = sum(&[PgpromoteSuccess]) + demoted;
        let moved = sum(&[PgmigrateSuccess]);
        hold!(
            moves <= moved,
            "{moves} pages promoted or demoted, {moved} moved"
        );
        for (scan, steal, demote) in [
            (PgscanKswapd, PgstealKswapd, PgdemoteKswapd),
            (PgscanDirect, PgstealDirect, PgdemoteDirect),
            (PgscanProactive, PgstealProactive, PgdemoteProactive),
        ] {
            let [scan_pages, steal_pages, demoted] = [scan, steal, demote].map(|c| sum(&[c]));
            hold!(
                steal_pages <= scan_pages,
                "{steal} {steal_pages} of {scan} {scan_pages}"
            );
            // What memtide tier demotes is booked here too, and nothing was scanned for it.
            let beside = demote == PgdemoteProactive && self.configuration.tier.is_some();
            hold!(
                beside || demoted <= steal_pages,
                "{demote} {demoted} of {steal} {steal_pages}"
            );
        }
        let (local, all) = (sum(&[NumaHintFaultsLocal]), sum(&[NumaHintFaults]));
        hold!(local <= all, "{local} local hint faults of {all}");
        Ok(())
    }
}

fn nodes() -> impl Iterator<Item = NodeId> {
    (0..MAX_NODES as u16).map(NodeId)
}
