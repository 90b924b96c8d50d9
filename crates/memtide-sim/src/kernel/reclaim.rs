//! Making room: background reclaim, threads that reclaim for themselves, and reclaim on demand.
//!
//! Each node has a kswapd. An allocation or a refused promotion wakes it while the node is below its
//! *high* watermark (*promo* where room is made for promotions), and it works until the node is above.
//! memtide's own gate wakes it above as well, to free idle pages for those that were let in and found no
//! room, and where its cut lets nothing in. It works in batches, never longer than the time that passed.
//! Sixteen fruitless rounds over the node's lists and it gives up until somebody else frees memory there.
//!
//! A batch looks at the oldest folios. Those that were accessed since are kept and made younger, each
//! other one is demoted if the node has a slower one below it and demotion is on, else dropped if it is
//! a clean page of a file. There is no swap: anonymous memory of the slowest tier stays.
//!
//! The batch itself is `shrink.rs`; who calls it, how long, and who pays is here.

use super::balance::Portion;
use super::migrate::{Initiator, MoveReason};
use super::{Kernel, Who};
use crate::config::Lru;
use crate::hardware::Hardware;
use crate::page::{MAX_NODES, Slot};
use memtide_core::units::NodeId;
use memtide_core::vmstat::Counter;

/// Fruitless rounds after which kswapd gives up.
const FAILURES: u32 = 16;
/// Base pages that a batch looks at, classic; see [`Kernel::shrink`] for those at a scale.
const BATCH: u64 = 32;
/// The same, multigenerational.
const GENERATION_BATCH: u64 = 64;

/// Reclaim's state.
pub(super) struct Reclaim {
    nodes: [Kswapd; MAX_NODES],
    /// Room for a batch, kept.
    pub(super) victims: Vec<Slot>,
    pub(super) unmapped: Vec<(u16, Slot)>,
}

#[derive(Clone, Copy, Default)]
struct Kswapd {
    awake: bool,
    /// Pages that it frees whatever its watermarks say; only while it is awake.
    wanted: u64,
    failures: u32,
    /// Pages looked at since the last that was freed.
    fruitless: u64,
    /// Time that is left of what passed; negative: a batch took longer.
    credit_ns: i64,
    /// Of the flushes that end batches of dropped files' pages there, those to charge.
    drop_flushes: Portion,
}

/// On whose behalf a batch runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reclaimer {
    pub why: MoveReason,
    pub by: Initiator,
    /// Time that aging may take in one call; what is left of a walk is done the next time.
    pub walk_ns: u64,
}

/// What a batch did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shrunk {
    /// Base pages looked at.
    pub scanned: u64,
    /// Base pages freed or demoted.
    pub freed: u64,
    /// What it took, before multiplication by S.
    pub ns: u64,
    /// Nothing can be looked at: no list that may be reclaimed has a folio.
    pub empty: bool,
}

impl Reclaim {
    pub(super) fn new() -> Reclaim {
        Reclaim {
            nodes: [Kswapd::default(); MAX_NODES],
            victims: Vec::new(),
            unmapped: Vec::new(),
        }
    }
}

impl Kernel {
    /// Wakes a node's kswapd: somebody found too little room there (an allocation, or a promotion
    /// that was refused).
    pub fn wake_kswapd(&mut self, node: NodeId) {
        if self.may_reclaim(node) && !self.is_balanced(node) {
            self.reclaim.nodes[node.index()].awake = true;
        }
    }

    /// The same, and it frees so many pages from now on, whatever was wanted of it before.
    pub(super) fn wake_kswapd_for(&mut self, node: NodeId, pages: u64) {
        if self.may_reclaim(node) {
            self.reclaim.nodes[node.index()].wanted = pages;
        }
        self.wake_kswapd(node);
    }

    /// Whether a node has memory, of which its kswapd has not given up to free any.
    fn may_reclaim(&self, node: NodeId) -> bool {
        self.reclaim.nodes[node.index()].failures < FAILURES && self.frames.present(node) > 0
    }

    /// Whether the flush is to be charged after a batch in which so many folios of files were unmapped or
    /// write-protected: what they stand for goes in as few full batches as it can.
    pub(super) fn drop_flush_is_due(&mut self, node: NodeId, folios: u64) -> bool {
        let real = (folios * u64::from(self.scale)).div_ceil(self.batch());
        let batches = real.min(u64::from(self.scale)) as u32;
        let flushes = &mut self.reclaim.nodes[node.index()].drop_flushes;
        flushes.due(batches, self.scale)
    }

    /// Folios that reclaim looks at, and takes away with one flush, at a time.
    pub(super) fn batch(&self) -> u64 {
        match self.lists.lru() {
            Lru::Classic => BATCH,
            Lru::Multigenerational => GENERATION_BATCH,
        }
    }

    /// Whether a node's kswapd is at work.
    #[must_use]
    pub fn kswapd_is_awake(&self, node: NodeId) -> bool {
        self.reclaim.nodes[node.index()].awake
    }

    /// Whether kswapd leaves the node alone.
    fn is_balanced(&self, node: NodeId) -> bool {
        let marks = self.frames.marks(node);
        let mark = match self.balance.makes_room {
            true => marks.promo(),
            false => marks.high(),
        };
        self.frames.free(node) > mark && self.reclaim.nodes[node.index()].wanted == 0
    }

    /// Somebody freed memory of the node: its kswapd may try again.
    pub(super) fn had_progress(&mut self, node: NodeId) {
        let kswapd = &mut self.reclaim.nodes[node.index()];
        kswapd.failures = 0;
        kswapd.fruitless = 0;
    }

    /// What kswapds did in `dt_ns`.
    pub(super) fn background_reclaim(&mut self, hw: &mut Hardware, now_ns: u64, dt_ns: u64) {
        for node in (0..MAX_NODES as u16).map(NodeId) {
            let kswapd = &mut self.reclaim.nodes[node.index()];
            if kswapd.awake {
                kswapd.credit_ns += (dt_ns / u64::from(self.scale)) as i64;
                self.run_kswapd(hw, node, now_ns);
            }
        }
        self.resume_lazy_flushes();
    }

    fn run_kswapd(&mut self, hw: &mut Hardware, node: NodeId, now_ns: u64) {
        while self.reclaim.nodes[node.index()].credit_ns > 0 {
            if self.is_balanced(node) || self.reclaim.nodes[node.index()].failures >= FAILURES {
                let kswapd = &mut self.reclaim.nodes[node.index()];
                kswapd.awake = false;
                kswapd.wanted = 0;
                kswapd.credit_ns = 0;
                return;
            }
            let reclaimer = Reclaimer {
                why: MoveReason::DemotionKswapd,
                by: Initiator { cpu: None, now_ns },
                walk_ns: self.reclaim.nodes[node.index()].credit_ns as u64,
            };
            let shrunk = self.shrink(hw, node, self.batch(), reclaimer);
            self.count(Counter::PgscanKswapd, shrunk.scanned);
            self.count(Counter::PgstealKswapd, shrunk.freed);
            self.overhead.kswapd_ns += shrunk.ns;
            let round = 2 * (self.lists.all_pages(node, 0) + self.lists.all_pages(node, 1));
            let wanted = match self.reclaim.nodes[node.index()]
                .wanted
                .saturating_sub(shrunk.freed)
            {
                0 => 0,
                // Idle ones: where none is left nobody else has to go for it.
                left => left.min(self.idle_pages(node)),
            };
            let kswapd = &mut self.reclaim.nodes[node.index()];
            kswapd.credit_ns -= shrunk.ns as i64;
            kswapd.wanted = wanted;
            kswapd.fruitless += shrunk.scanned;
            if shrunk.freed > 0 {
                kswapd.failures = 0;
                kswapd.fruitless = 0;
            } else if shrunk.empty || kswapd.fruitless > round {
                kswapd.failures += 1;
                kswapd.fruitless = 0;
            }
        }
    }

    /// A thread reclaims for its own allocation: pages freed or demoted, and its time.
    pub(super) fn reclaim_directly(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        node: NodeId,
        pages: u64,
    ) -> (u64, u64) {
        let by = Initiator {
            cpu: Some(who.cpu),
            now_ns: who.now_ns,
        };
        let done = self.reclaim_now(hw, node, pages, MoveReason::DemotionDirect, by);
        self.count(Counter::PgscanDirect, done.scanned);
        self.count(Counter::PgstealDirect, done.freed);
        (done.freed, done.ns)
    }

    /// Frees or demotes `pages` of a node because user space asks (`memory.reclaim`): what was done.
    pub fn reclaim_proactively(
        &mut self,
        hw: &mut Hardware,
        node: NodeId,
        pages: u64,
        now_ns: u64,
    ) -> u64 {
        let by = Initiator { cpu: None, now_ns };
        let done = self.reclaim_now(hw, node, pages, MoveReason::DemotionProactive, by);
        self.count(Counter::PgscanProactive, done.scanned);
        self.count(Counter::PgstealProactive, done.freed);
        done.freed
    }

    /// Batches until `pages` are free or each folio had its chance twice.
    fn reclaim_now(
        &mut self,
        hw: &mut Hardware,
        node: NodeId,
        pages: u64,
        why: MoveReason,
        by: Initiator,
    ) -> Shrunk {
        let round = 2 * (self.lists.all_pages(node, 0) + self.lists.all_pages(node, 1));
        let reclaimer = Reclaimer {
            why,
            by,
            walk_ns: u64::MAX,
        };
        let mut done = Shrunk::default();
        while done.freed < pages && done.scanned <= round && !done.empty {
            let batch = self.shrink(hw, node, self.batch().min(pages - done.freed), reclaimer);
            done.scanned += batch.scanned;
            done.freed += batch.freed;
            done.ns += batch.ns;
            done.empty = batch.empty;
        }
        if done.freed > 0 {
            self.had_progress(node);
        }
        done
    }

    /// Bytes of reclaim's heap.
    pub(super) fn reclaim_heap_bytes(&self) -> usize {
        self.reclaim.victims.capacity() * size_of::<Slot>()
            + self.reclaim.unmapped.capacity() * size_of::<(u16, Slot)>()
    }
}
