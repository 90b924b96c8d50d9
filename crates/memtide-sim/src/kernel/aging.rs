//! Accessed bits: the hardware sets them in a walk of the page table, and whoever clears them learns
//! what was used in between. No TLB is flushed for it, so a page whose translation stays in a TLB looks
//! idle; real kernels accept that for the same reason.
//!
//! Two readers: generational aging ([`Kernel::age_if_due`]) walks all entries of a node's pages before
//! it begins a new generation, so that what was accessed is young; and hot-page tracking walks at
//! intervals ([`Kernel::harvest_accessed`]). They take each other's bits, as in the kernel.
//!
//! A walk costs time for each entry. Background reclaim has only the time that passed, so its walk goes
//! on the next time where it stopped; a thread that reclaims for itself walks to the end.

use super::Kernel;
use super::lru::{ANONYMOUS, FILE, GENERATIONS, Lists, YOUNG_GENERATIONS, ring_end};
use crate::page::{Flags, HUGE_PAGES, MAX_NODES, Slot};
use memtide_core::units::NodeId;

/// Entries around an accessed page that reclaim looks at too.
const NEIGHBOURS: u32 = 64;

/// Aging's state: where each node's walk stands.
pub(super) struct Aging {
    walks: [Option<Walk>; MAX_NODES],
}

#[derive(Clone, Copy)]
struct Walk {
    region: usize,
    slot: Slot,
}

impl Aging {
    pub(super) fn new() -> Aging {
        Aging {
            walks: [None; MAX_NODES],
        }
    }
}

impl Kernel {
    /// Looks at the entries of `slots` (a range within one region), clears the accessed bits of those
    /// whose pages lie on slow nodes without a flush, tells `found` each such head slot that was
    /// accessed, and returns how many entries it looked at. A huge page is one entry.
    pub fn harvest_accessed(
        &mut self,
        slots: std::ops::Range<Slot>,
        mut found: impl FnMut(Slot),
    ) -> u64 {
        let slow = self.slow_nodes();
        let (mut slot, mut entries) = (slots.start, 0);
        while slot < slots.end {
            let pte = &mut self.ptes[slot as usize];
            entries += 1;
            if pte.has(Flags::PRESENT.with(Flags::ACCESSED)) && slow >> pte.node().0 & 1 == 1 {
                pte.clear(Flags::ACCESSED);
                found(slot);
            }
            slot = match pte.has(Flags::HUGE) {
                true => (slot & !(HUGE_PAGES - 1)) + HUGE_PAGES,
                false => slot + 1,
            };
        }
        entries
    }

    /// Nodes below the top tier, by bit.
    fn slow_nodes(&self) -> u16 {
        let nodes = self.topology.nodes().iter();
        let slow = nodes.filter(|node| !node.top_tier).map(|node| node.id);
        slow.fold(0, |bits, node| bits | 1 << node.0)
    }

    /// Begins a new generation on a node if it is time, within `walk_ns`; what it took.
    pub(super) fn age_if_due(&mut self, node: NodeId, kind: usize, walk_ns: u64) -> u64 {
        let under_way = self.aging.walks[node.index()];
        if under_way.is_none() && !self.aging_is_due(node, kind) {
            return 0;
        }
        let walk = under_way.unwrap_or(Walk { region: 0, slot: 0 });
        let entry_ns = self.costs.age_pte_ns.max(0.01);
        let most = ((walk_ns as f64 / entry_ns) as u64).max(1);
        let (walked, rest) = self.walk(node, walk, most);
        self.aging.walks[node.index()] = rest;
        let mut ns = (walked as f64 * entry_ns) as u64;
        if rest.is_none() {
            for kind in [ANONYMOUS, FILE] {
                if self.lists.generations(node, kind) == GENERATIONS {
                    ns += self.merge_oldest(node, kind);
                }
            }
            self.lists.begin_generation(node);
        }
        ns
    }

    /// With two generations there is nothing to reclaim; with three a new one keeps them even, so that
    /// none has more than its share.
    fn aging_is_due(&mut self, node: NodeId, kind: usize) -> bool {
        self.end_empty_generations(node);
        match self.lists.generations(node, kind) {
            0..=YOUNG_GENERATIONS => true,
            GENERATIONS.. => false,
            _ => {
                let youngest = Lists::state_of(self.lists.youngest(node));
                let oldest = Lists::state_of(self.lists.oldest(node, kind));
                let total = self.lists.all_pages(node, kind);
                self.lists.pages(node, kind, youngest) * YOUNG_GENERATIONS > total
                    || self.lists.pages(node, kind, oldest) * (YOUNG_GENERATIONS + 2) < total
            }
        }
    }

    /// Walks up to `most` entries from where a walk stands; the rest of the walk, if any.
    fn walk(&mut self, node: NodeId, from: Walk, most: u64) -> (u64, Option<Walk>) {
        let Walk {
            mut region,
            mut slot,
        } = from;
        let youngest = Lists::state_of(self.lists.youngest(node));
        let mut walked = 0;
        while region < self.regions.len() {
            let slots = self.regions.get(region).slots();
            slot = slot.max(slots.start);
            while slot < slots.end {
                if walked == most {
                    return (walked, Some(Walk { region, slot }));
                }
                walked += 1;
                slot = self.walk_entry(node, slot, youngest);
            }
            region += 1;
            slot = 0;
        }
        (walked, None)
    }

    /// Looks at one entry; the next one's slot.
    #[inline]
    fn walk_entry(&mut self, node: NodeId, slot: Slot, youngest: u8) -> Slot {
        let pte = &mut self.ptes[slot as usize];
        let next = match pte.has(Flags::HUGE) {
            true => (slot & !(HUGE_PAGES - 1)) + HUGE_PAGES,
            false => slot + 1,
        };
        if pte.has(Flags::PRESENT.with(Flags::ACCESSED)) && pte.node() == node {
            pte.clear(Flags::ACCESSED);
            self.make_young(slot, youngest);
        }
        next
    }

    /// Notes that the folio behind a mapping's entry belongs to the youngest generation.
    #[inline]
    fn make_young(&mut self, slot: Slot, youngest: u8) {
        let Some(owner) = self.owner(slot) else {
            return;
        };
        let pte = self.ptes[owner as usize];
        if !pte.has(Flags::ISOLATED) && pte.list() != youngest {
            self.restate(owner, youngest);
        }
    }

    /// Reclaim found a folio accessed: its neighbours often are too.
    pub(super) fn look_around(&mut self, node: NodeId, owner: Slot) -> u64 {
        let youngest = Lists::state_of(self.lists.youngest(node));
        let Some(slot) = self.mappers(owner).next() else {
            return 0;
        };
        let slots = self.regions.get(self.regions.index_of(slot)).slots();
        let first = (slot & !(NEIGHBOURS - 1)).max(slots.start);
        let end = (first + NEIGHBOURS).min(slots.end);
        let (mut at, mut entries) = (first, 0u32);
        while at < end {
            at = self.walk_entry(node, at, youngest);
            entries += 1;
        }
        (f64::from(entries) * self.costs.age_pte_ns) as u64
    }

    /// A kind that nobody reclaims has its oldest two generations made one, so that a new one can
    /// begin: what it took.
    fn merge_oldest(&mut self, node: NodeId, kind: usize) -> u64 {
        let oldest = self.lists.oldest(node, kind);
        let (state, next) = (Lists::state_of(oldest), Lists::state_of(oldest + 1));
        let ring = self.lists.ring_of(state);
        let into = ring_end(node.index(), kind, self.lists.ring_of(next));
        let mut ns = 0.0;
        while let Some(owner) = self.newest_of_ring(node, kind, ring) {
            let now = self.ptes[owner as usize].list();
            ns += self.costs.age_pte_ns;
            if now != state {
                self.relist(owner, now);
                continue;
            }
            // To the old side of the next ring, so that their order stays.
            let frame = self.ptes[owner as usize].frame();
            self.restate(owner, next);
            self.frames.unlink(frame);
            let before = self.frames.previous(into);
            self.frames.link_after(before, frame);
        }
        self.lists.end_oldest(node, kind);
        ns as u64
    }

    fn newest_of_ring(&self, node: NodeId, kind: usize, ring: usize) -> Option<Slot> {
        let end = ring_end(node.index(), kind, ring);
        let frame = self.frames.next(end);
        (frame != end).then(|| {
            self.frames
                .owner(frame)
                .expect("a listed folio has an owner")
        })
    }
}
