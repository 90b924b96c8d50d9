//! The promotion gate: the kernel's rate limit, arithmetic included.
//!
//! It is the same in NUMA balancing's tiering mode and in pghot (seed
//! *mm: Hot page tracking and promotion infrastructure*). A destination node has a budget of pages a second.
//! Choosing the first pages that come would waste it on lukewarm ones, so the
//! gate asks how long the page's last access is ago (its *latency*) and lets in
//! those below a *threshold* that it adjusts by itself: once a minute it compares
//! how many candidates passed with how many the budget could carry, and moves the
//! threshold by a sixteenth of twice its reference.
//!
//! In this order, `R` being the budget in pages a second:
//!
//! - **A, space.** A destination with room to spare takes everything and the
//!   threshold starts afresh. Counted apart if asked to ("not rate limited").
//! - **B, adjust.** After more than 60 s: candidates above 110 % of the budget
//!   lower the threshold by a unit, not below one; below 90 % they raise it, not
//!   above twice the reference.
//! - **C, latency.** At or above the threshold: refused, not counted.
//! - **D, rate.** The page is counted as a candidate. After more than 1 s a new
//!   rate window begins, the page itself not counted into it. The page is refused
//!   if the window holds `R` or more. Refused pages stay counted: they are demand.
//!
//! A consequence of D: the page that opens a window is always let in, even a huge
//! page into a budget smaller than itself.
//!
//! Each destination has its own state. All of it is atomic: of several threads
//! that find a period over, one closes it; the others go on with what they saw.

use super::verdict::{Admit, Candidate, Verdict};
use crate::pages::NodeSpace;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Millis, NodeId, PageSize};
use crate::vmstat::Counter;
use serde::{Deserialize, Serialize};

/// The threshold is adjusted once in this time, in ms.
pub const ADJUST_PERIOD_MS: u64 = 60_000;
/// The rate is limited over this time, in ms.
pub const RATE_WINDOW_MS: u64 = 1000;
/// Twice the reference is cut into this many units of adjustment.
pub const ADJUST_STEPS: u64 = 16;
/// Room beyond the promotion watermark that counts as plenty, at least, in bytes.
pub const PLENTY_BYTES: u64 = 1 << 30;

/// What the clock had on it when the gate's all-zero state was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartState {
    /// The kernel's: its clock starts five minutes before its 32-bit wrap, so
    /// the first page that is not let in by space finds the adjustment period
    /// over, with few candidates, and the threshold becomes the reference and a
    /// unit. The default, because it is what a real machine does.
    #[default]
    KernelBoot,
    /// The clock read zero: nothing is adjusted in the first minute, and the
    /// first rate window began at zero.
    Zero,
}

/// The gate's settings. Every combination means something: a budget of zero
/// refuses all but what space lets in.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GateConfig {
    /// Budget in megabytes a second (`vm.pghot_promote_rate_limit_MBps`).
    pub rate_limit_mbps: u64,
    /// The base page size, by which the budget becomes pages.
    pub page_size: PageSize,
    /// The reference threshold in ms: 1000 in tiering mode, the window in pghot.
    pub reference_ms: u32,
    /// Whether pages that space lets in are counted (`pgpromote_candidate_nrl`).
    pub count_bypassed: bool,
    /// What the first call finds.
    pub start: StartState,
    /// Room beyond the promotion watermark that counts as plenty, at least, in
    /// bytes: [`PLENTY_BYTES`], or less on a machine that is simulated smaller.
    pub plenty_bytes: u64,
    /// The budget is divided by this: 1, or more on a machine that is simulated
    /// smaller.
    pub budget_divisor: u64,
}

impl GateConfig {
    /// The kernel's defaults with this reference threshold.
    pub fn new(reference_ms: u32) -> GateConfig {
        GateConfig {
            rate_limit_mbps: 65536,
            page_size: PageSize::KIB_4,
            reference_ms,
            count_bypassed: true,
            start: StartState::default(),
            plenty_bytes: PLENTY_BYTES,
            budget_divisor: 1,
        }
    }

    /// The same on a machine whose every quantity is divided by `scale`.
    pub fn scaled(self, scale: u64) -> GateConfig {
        let scale = scale.max(1);
        GateConfig {
            plenty_bytes: self.plenty_bytes / scale,
            budget_divisor: self.budget_divisor.saturating_mul(scale),
            ..self
        }
    }

    /// The budget in pages a second.
    pub fn pages_per_second(&self) -> u64 {
        let shift = 20u32.saturating_sub(self.page_size.shift());
        self.rate_limit_mbps.saturating_mul(1 << shift) / self.budget_divisor.max(1)
    }

    fn unit_ms(&self) -> u64 {
        u64::from(self.reference_ms) * 2 / ADJUST_STEPS
    }
}

/// One folio that wants in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Milliseconds between the page's being watched or accessed and now.
    pub latency_ms: u32,
    /// Its base pages.
    pub pages: u64,
    /// The destination's room; unknown room is never plenty.
    pub space: Option<NodeSpace>,
}

#[derive(Debug)]
struct NodeGate {
    /// 0: not set, the reference holds.
    threshold_ms: AtomicU64,
    threshold_start: AtomicU64,
    threshold_candidates: AtomicU64,
    rate_start: AtomicU64,
    rate_candidates: AtomicU64,
    candidates: AtomicU64,
    bypassed: AtomicU64,
}

/// The gate of all destination nodes.
#[derive(Debug)]
pub struct Gate {
    config: GateConfig,
    nodes: Box<[NodeGate]>,
}

impl Gate {
    /// A gate for destinations with ids below `nodes`.
    pub fn new(config: GateConfig, nodes: usize) -> Gate {
        let zero = || AtomicU64::new(0);
        Gate {
            config,
            nodes: (0..nodes)
                .map(|_| NodeGate {
                    threshold_ms: zero(),
                    threshold_start: zero(),
                    threshold_candidates: zero(),
                    rate_start: zero(),
                    rate_candidates: zero(),
                    candidates: zero(),
                    bypassed: zero(),
                })
                .collect(),
        }
    }

    /// The settings.
    pub fn config(&self) -> &GateConfig {
        &self.config
    }

    /// From now on the budget is so many megabytes a second. What was admitted counts on.
    pub fn set_rate_limit(&mut self, mbps: u64) {
        self.config.rate_limit_mbps = mbps;
    }

    /// Whether the folio may move to `target`. A target beyond the gate's nodes
    /// has no budget and is refused.
    pub fn ask(&self, target: NodeId, now: Millis, request: &Request) -> Verdict {
        let limit = self.config.pages_per_second();
        let Some(node) = self.nodes.get(target.index()) else {
            return Verdict::Rate {
                pages: request.pages,
                limit: 0,
            };
        };
        if request.space.is_some_and(|s| self.is_plenty(&s)) {
            node.threshold_ms.store(0, Ordering::Relaxed);
            if self.config.count_bypassed {
                node.bypassed.fetch_add(request.pages, Ordering::Relaxed);
            }
            return Verdict::Space;
        }
        let clock = self.clock(now);
        self.adjust(node, clock, limit);
        let threshold = self.threshold(node);
        if u64::from(request.latency_ms) >= threshold {
            return Verdict::Latency {
                latency_ms: request.latency_ms,
                threshold_ms: threshold as u32,
            };
        }
        let pages = rate_window(node, clock, request.pages);
        if pages >= limit {
            Verdict::Rate { pages, limit }
        } else {
            Verdict::WithinRate
        }
    }

    /// Whether a destination has so much room that nothing is limited.
    pub fn is_plenty(&self, space: &NodeSpace) -> bool {
        let plenty = self
            .config
            .page_size
            .pages(self.config.plenty_bytes)
            .max(space.present / 16);
        space.free > space.promo.saturating_add(plenty)
    }

    /// Whether `target`'s rate window is full and still runs at `now`: whoever
    /// asks next is refused unless space lets it in. Counts nothing.
    pub fn is_window_full(&self, target: NodeId, now: Millis) -> bool {
        let Some(node) = self.nodes.get(target.index()) else {
            return true;
        };
        let start = node.rate_start.load(Ordering::Relaxed);
        let used = node
            .candidates
            .load(Ordering::Relaxed)
            .saturating_sub(node.rate_candidates.load(Ordering::Relaxed));
        self.clock(now).saturating_sub(start) <= RATE_WINDOW_MS
            && used >= self.config.pages_per_second()
    }

    /// The threshold in force, in ms.
    pub fn threshold_ms(&self, target: NodeId) -> Option<u32> {
        Some(self.threshold(self.nodes.get(target.index())?) as u32)
    }

    /// `pgpromote_candidate` of the node: pages past the latency test.
    pub fn candidates(&self, target: NodeId) -> u64 {
        self.nodes
            .get(target.index())
            .map_or(0, |n| n.candidates.load(Ordering::Relaxed))
    }

    /// `pgpromote_candidate_nrl` of the node: pages let in by space.
    pub fn bypassed(&self, target: NodeId) -> u64 {
        self.nodes
            .get(target.index())
            .map_or(0, |n| n.bypassed.load(Ordering::Relaxed))
    }

    /// The clock that the all-zero state was made under. Only differences of it
    /// are used, so an offset that makes the first one long is all it takes.
    fn clock(&self, now: Millis) -> u64 {
        now.0.saturating_add(match self.config.start {
            StartState::KernelBoot => (1 << 32) - 300_000,
            StartState::Zero => 0,
        })
    }

    fn threshold(&self, node: &NodeGate) -> u64 {
        match node.threshold_ms.load(Ordering::Relaxed) {
            0 => u64::from(self.config.reference_ms),
            set => set,
        }
    }

    fn adjust(&self, node: &NodeGate, clock: u64, limit: u64) {
        if !won(&node.threshold_start, clock, ADJUST_PERIOD_MS) {
            return;
        }
        let candidates = node.candidates.load(Ordering::Relaxed);
        let passed = candidates
            - node
                .threshold_candidates
                .swap(candidates, Ordering::Relaxed);
        let wanted = u128::from(limit) * u128::from(ADJUST_PERIOD_MS) / 1000;
        let unit = self.config.unit_ms();
        let old = self.threshold(node);
        let new = if u128::from(passed) > wanted * 11 / 10 {
            old.saturating_sub(unit).max(unit)
        } else if u128::from(passed) < wanted * 9 / 10 {
            (old + unit).min(u64::from(self.config.reference_ms) * 2)
        } else {
            old
        };
        assert!(
            new <= u64::from(self.config.reference_ms) * 2,
            "the promotion threshold is {new} ms, more than twice its reference"
        );
        node.threshold_ms.store(new, Ordering::Relaxed);
    }
}

impl Admit for Gate {
    fn admit(&self, candidate: &Candidate, now: Millis) -> Verdict {
        let request = Request {
            latency_ms: candidate.hotness.age_ms,
            pages: u64::from(candidate.folio.pages),
            space: candidate.space,
        };
        self.ask(candidate.target, now, &request)
    }

    fn is_closed(&self, target: NodeId, space: Option<NodeSpace>, now: Millis) -> bool {
        !space.is_some_and(|s| self.is_plenty(&s)) && self.is_window_full(target, now)
    }

    fn counter(&self, verdict: Verdict) -> Option<Counter> {
        match verdict {
            Verdict::Space => self
                .config
                .count_bypassed
                .then_some(Counter::PgpromoteCandidateNrl),
            Verdict::WithinRate | Verdict::Rate { .. } => Some(Counter::PgpromoteCandidate),
            _ => None,
        }
    }
}

/// Counts a candidate; the pages in the rate window after it.
fn rate_window(node: &NodeGate, clock: u64, pages: u64) -> u64 {
    let candidates = node.candidates.fetch_add(pages, Ordering::Relaxed) + pages;
    if won(&node.rate_start, clock, RATE_WINDOW_MS) {
        node.rate_candidates.store(candidates, Ordering::Relaxed);
    }
    // Another thread may just have opened a window with a later count.
    candidates.saturating_sub(node.rate_candidates.load(Ordering::Relaxed))
}

/// Whether more than `period` passed since `start` and this caller is the one
/// that gets to begin the next.
fn won(start: &AtomicU64, clock: u64, period: u64) -> bool {
    let began = start.load(Ordering::Relaxed);
    clock.saturating_sub(began) > period
        && start
            .compare_exchange(began, clock, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
}

#[cfg(all(test, not(loom)))]
mod tests;
