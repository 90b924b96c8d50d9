//! One batch of reclaim on one node: which folios, and what becomes of them.
//!
//! *Classic*: while the inactive list is short against the active one, the oldest active folios become
//! inactive. The oldest inactive ones that were accessed get a second chance at its new side, active
//! the second time; the others are victims. How short is short grows with memory: a list of g GiB wants
//! one inactive page for the square root of ten g active ones.
//!
//! *Multigenerational*: the oldest generation's folios that were accessed go to the youngest one, and so
//! do their accessed neighbours; the others are victims. When only two generations are left, or three
//! with most pages in the youngest, entries are walked and a new generation begins (`aging.rs`).

use super::Kernel;
use super::lazy::Unmapped;
use super::lru::{
    ACTIVE, ANONYMOUS, FILE, INACTIVE, INACTIVE_ACCESSED, Lists, YOUNG_GENERATIONS, ring_end,
};
use super::reclaim::{Reclaimer, Shrunk};
use crate::config::Lru;
use crate::hardware::Hardware;
use crate::hardware::shootdown::CpuSet;
use crate::page::{Flags, Pte, Slot};
use memtide_core::demotion::choose_target;
use memtide_core::nodemask::NodeMask;
use memtide_core::promotion::Moved as Way;
use memtide_core::units::NodeId;
use memtide_core::vmstat::Counter;

/// `vm.swappiness`, of 200: what anonymous pages weigh against file pages, classic.
const SWAPPINESS: u64 = 60;

impl Kernel {
    /// Whether a node's pages may go to a slower one.
    fn can_demote(&self, node: NodeId) -> bool {
        self.configuration.demotion && !self.topology.demotion_targets(node).fallback.is_empty()
    }

    /// Looks at some `pages` of a node's oldest pages.
    pub(super) fn shrink(
        &mut self,
        hw: &mut Hardware,
        node: NodeId,
        pages: u64,
        reclaimer: Reclaimer,
    ) -> Shrunk {
        let mut done = Shrunk::default();
        let demotes = self.can_demote(node);
        let Some(kind) = self.kind_to_shrink(node, demotes) else {
            done.empty = true;
            return done;
        };
        // A simulated page stands for many: kswapd would free as many times more than it needs, look at hot
        // pages as many times sooner, and flush for as many times more spaces at once.
        let pages = (pages / u64::from(self.scale)).max(1);
        let mut victims = std::mem::take(&mut self.reclaim.victims);
        victims.clear();
        match self.lists.lru() {
            Lru::Classic => self.pick_classic(node, kind, pages, &mut victims, &mut done),
            Lru::Multigenerational => {
                done.ns += self.age_if_due(node, kind, reclaimer.walk_ns);
                self.pick_oldest(node, kind, pages, &mut victims, &mut done);
            }
        }
        if demotes {
            self.demote(hw, node, &mut victims, reclaimer, &mut done);
        }
        self.drop_files(hw, node, &mut victims, reclaimer, &mut done);
        self.reclaim.victims = victims;
        done
    }

    /// Anonymous or file; `None` if neither has a folio that may go.
    fn kind_to_shrink(&mut self, node: NodeId, demotes: bool) -> Option<usize> {
        let anonymous = match demotes {
            true => self.lists.all_pages(node, ANONYMOUS),
            false => 0,
        };
        let file = self.lists.all_pages(node, FILE);
        match (anonymous, file, self.lists.lru()) {
            (0, 0, _) => None,
            (_, 0, _) => Some(ANONYMOUS),
            (0, _, _) => Some(FILE),
            (_, _, Lru::Multigenerational) => {
                let older = self.lists.oldest(node, ANONYMOUS) < self.lists.oldest(node, FILE);
                Some(if older { ANONYMOUS } else { FILE })
            }
            (_, _, Lru::Classic) => {
                let (a, f) = (anonymous * SWAPPINESS, file * (200 - SWAPPINESS));
                let share = (a * 65_536 / (a + f)) as u32;
                Some(if self.rng.chance(share) {
                    ANONYMOUS
                } else {
                    FILE
                })
            }
        }
    }

    fn pick_classic(
        &mut self,
        node: NodeId,
        kind: usize,
        pages: u64,
        victims: &mut Vec<Slot>,
        done: &mut Shrunk,
    ) {
        if self.inactive_is_short(node, kind) {
            self.deactivate(node, kind, pages, done);
        }
        // Each folio once: those that stay go to the new side of the same list.
        let inactive = self.lists.all_pages(node, kind) - self.lists.pages(node, kind, ACTIVE);
        let mut seen = 0;
        while seen < pages.min(inactive) {
            let Some(owner) = self.oldest_of_ring(node, kind, 0) else {
                break;
            };
            let folio = u64::from(self.folio_pages(owner));
            seen += folio;
            self.look(folio, done);
            let was_accessed = self.ptes[owner as usize].list() == INACTIVE_ACCESSED;
            match (self.take_accessed(owner), was_accessed) {
                (true, true) => {
                    self.relist(owner, ACTIVE);
                    self.count(Counter::Pgactivate, folio);
                }
                (true, false) => self.relist(owner, INACTIVE_ACCESSED),
                (false, _) => {
                    // Off its ring's old end, so that the batch goes on to the next.
                    self.relist(owner, INACTIVE);
                    victims.push(owner);
                }
            }
        }
    }

    fn inactive_is_short(&self, node: NodeId, kind: usize) -> bool {
        let active = self.lists.pages(node, kind, ACTIVE);
        let inactive = self.lists.all_pages(node, kind) - active;
        let gigabytes = ((active + inactive) * u64::from(self.scale)) >> 18;
        let ratio = (gigabytes * 10).isqrt().max(1);
        inactive * ratio < active
    }

    fn deactivate(&mut self, node: NodeId, kind: usize, pages: u64, done: &mut Shrunk) {
        let mut seen = 0;
        while seen < pages {
            let Some(owner) = self.oldest_of_ring(node, kind, 1) else {
                break;
            };
            let folio = u64::from(self.folio_pages(owner));
            seen += folio;
            done.ns += self.costs.reclaim_page_ns as u64;
            self.take_accessed(owner);
            self.relist(owner, INACTIVE);
            self.count(Counter::Pgdeactivate, folio);
        }
    }

    fn pick_oldest(
        &mut self,
        node: NodeId,
        kind: usize,
        pages: u64,
        victims: &mut Vec<Slot>,
        done: &mut Shrunk,
    ) {
        let mut seen = 0;
        while seen < pages {
            self.end_empty_generations(node);
            if self.lists.generations(node, kind) <= YOUNG_GENERATIONS {
                break;
            }
            let oldest = self.lists.oldest(node, kind);
            let state = Lists::state_of(oldest);
            let Some(owner) = self.oldest_of_ring(node, kind, self.lists.ring_of(state)) else {
                break;
            };
            let now = self.ptes[owner as usize].list();
            if now != state {
                // A walk found it accessed; it changes rings only here.
                self.relist(owner, now);
                done.ns += self.costs.age_pte_ns as u64;
                continue;
            }
            let folio = u64::from(self.folio_pages(owner));
            seen += folio;
            self.look(folio, done);
            if self.take_accessed(owner) {
                let youngest = self.lists.youngest(node);
                self.relist(owner, Lists::state_of(youngest));
                self.count(Counter::Pgactivate, folio);
                done.ns += self.look_around(node, owner);
            } else {
                let second = self.lists.youngest(node) - 1;
                self.relist(owner, Lists::state_of(second));
                victims.push(owner);
            }
        }
    }

    /// The oldest generation ends when it has no folio left.
    pub(super) fn end_empty_generations(&mut self, node: NodeId) {
        for kind in [ANONYMOUS, FILE] {
            while self.lists.generations(node, kind) > YOUNG_GENERATIONS {
                let state = Lists::state_of(self.lists.oldest(node, kind));
                if self
                    .oldest_of_ring(node, kind, self.lists.ring_of(state))
                    .is_some()
                {
                    break;
                }
                self.lists.end_oldest(node, kind);
            }
        }
    }

    /// The owner of the oldest folio of a ring.
    pub(super) fn oldest_of_ring(&self, node: NodeId, kind: usize, ring: usize) -> Option<Slot> {
        let end = ring_end(node.index(), kind, ring);
        let frame = self.frames.previous(end);
        (frame != end).then(|| {
            self.frames
                .owner(frame)
                .expect("a listed folio has an owner")
        })
    }

    fn look(&self, pages: u64, done: &mut Shrunk) {
        done.scanned += pages;
        done.ns += self.costs.reclaim_page_ns as u64;
    }

    /// Whether any mapping of the folio was accessed; clears what says so, without a flush.
    pub(super) fn take_accessed(&mut self, owner: Slot) -> bool {
        if !self.regions.is_file(owner) {
            let pte = &mut self.ptes[owner as usize];
            let accessed = pte.has(Flags::ACCESSED);
            pte.clear(Flags::ACCESSED);
            return accessed;
        }
        let frame = self.ptes[owner as usize].frame();
        let mut accessed = false;
        for slot in self.regions.mappings(owner) {
            let pte = &mut self.ptes[slot as usize];
            if pte.frame() == frame && pte.has(Flags::PRESENT.with(Flags::ACCESSED)) {
                accessed = true;
                pte.clear(Flags::ACCESSED);
            }
        }
        accessed
    }

    /// Sends victims down; those that went leave the list of victims.
    fn demote(
        &mut self,
        hw: &mut Hardware,
        node: NodeId,
        victims: &mut Vec<Slot>,
        reclaimer: Reclaimer,
        done: &mut Shrunk,
    ) {
        if victims.is_empty() {
            return;
        }
        let pages = victims
            .iter()
            .map(|&v| u64::from(self.folio_pages(v)))
            .sum();
        let space = |node| Some(self.frames.space(node));
        let random = self.rng.bits();
        let chosen = choose_target(&self.topology, node, pages, &NodeMask::ALL, space, random);
        let preferred = self.topology.demotion_targets(node).preferred;
        if !chosen.is_some_and(|c| c.preferred) {
            for target in preferred.iter() {
                self.wake_kswapd(target);
            }
        }
        if let Some(chosen) = chosen {
            let moved = self.migrate(hw, victims, chosen.node, reclaimer.why, reclaimer.by);
            done.freed += moved.moved;
            done.ns += moved.ns;
            victims.retain(|&owner| {
                let pte = self.ptes[owner as usize];
                let stays = pte.node() == node && !pte.has(Flags::ISOLATED);
                if !stays {
                    self.note_move(owner, Way::Down, reclaimer.by.now_ns);
                }
                stays
            });
        }
    }

    /// Drops clean pages of files; dirty ones are written and go the next time.
    fn drop_files(
        &mut self,
        hw: &mut Hardware,
        node: NodeId,
        victims: &mut Vec<Slot>,
        reclaimer: Reclaimer,
        done: &mut Shrunk,
    ) {
        let mut flushed = 0;
        let mut unmapped = std::mem::take(&mut self.reclaim.unmapped);
        victims.retain(|&owner| {
            if !self.regions.is_file(owner) {
                return true;
            }
            if self.ptes[owner as usize].has(Flags::DIRTY) {
                self.ptes[owner as usize].clear(Flags::DIRTY);
                let before = unmapped.len();
                self.write_protect(owner, &mut unmapped);
                flushed += u64::from(unmapped.len() > before);
                return true;
            }
            let before = unmapped.len();
            unmapped.extend(self.mappers(owner).map(|slot| {
                (
                    self.regions.get(self.regions.index_of(slot)).plan.space,
                    slot,
                )
            }));
            let spaces = unmapped[before..].iter().map(|&(space, _)| space);
            let mapped = unmapped.len() > before;
            let flush = match mapped {
                true => self.defer_flush(hw, owner, spaces),
                false => Unmapped::Now,
            };
            for &(_, slot) in &unmapped[before..] {
                self.ptes[slot as usize] = Pte::default();
            }
            self.free_folio_as(owner, flush);
            match flush {
                Unmapped::Now => flushed += u64::from(mapped),
                Unmapped::Later(_) => unmapped.truncate(before),
            }
            done.freed += 1;
            false
        });
        let charged = flushed > 0 && self.drop_flush_is_due(node, flushed);
        done.ns += self.flush_unmapped(hw, &mut unmapped, reclaimer.by.cpu, charged);
        self.reclaim.unmapped = unmapped;
    }

    /// Ends a batch of unmaps: one flush on all CPUs that run one of the spaces. What it costs the caller;
    /// it interrupts nobody unless it is `charged`.
    pub(super) fn flush_unmapped(
        &mut self,
        hw: &mut Hardware,
        unmapped: &mut Vec<(u16, Slot)>,
        cpu: Option<u32>,
        charged: bool,
    ) -> u64 {
        unmapped.sort_unstable();
        let mut cpus = CpuSet::default();
        for of_space in unmapped.chunk_by(|a, b| a.0 == b.0) {
            cpus.add(&hw.reach(of_space[0].0));
        }
        unmapped.clear();
        if !charged {
            hw.empty_cpus(cpus);
            return 0;
        }
        hw.flush_cpus(cpus, cpu)
    }

    /// So that the next store says that the page is dirty again.
    fn write_protect(&mut self, owner: Slot, flush: &mut Vec<(u16, Slot)>) {
        let frame = self.ptes[owner as usize].frame();
        if let Some(contents) = &mut self.contents {
            contents.written_back(owner);
        }
        for slot in self.regions.mappings(owner) {
            let pte = &mut self.ptes[slot as usize];
            if pte.frame() == frame && pte.has(Flags::PRESENT.with(Flags::WRITABLE)) {
                pte.clear(Flags::WRITABLE.with(Flags::DIRTY));
                let region = self.regions.get(self.regions.index_of(slot));
                flush.push((region.plan.space, slot));
            }
        }
    }
}
