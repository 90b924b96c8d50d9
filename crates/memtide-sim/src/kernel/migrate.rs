//! Moving folios to another node, a batch at a time.

/// Why folios move; decides which counters count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReason {
    /// NUMA balancing or hot-page tracking put them where they are used: `numa_pages_migrated`,
    /// and `pgpromote_success` if they leave a slow node for a top-tier one.
    Balancing,
    /// Background reclaim sends them down: `pgdemote_kswapd`.
    DemotionKswapd,
    /// An allocation that waits sends them down: `pgdemote_direct`.
    DemotionDirect,
    /// Proactive reclaim sends them down: `pgdemote_proactive`.
    DemotionProactive,
}

/// Who moves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initiator {
    /// The CPU of the thread that pays for it; `None` for a kernel thread.
    pub cpu: Option<u32>,
    /// When.
    pub now_ns: u64,
}

/// What became of a batch, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// On the target now.
    pub moved: u64,
    /// In somebody else's hands: absent, isolated or being moved.
    pub busy: u64,
    /// The target had no frame for them.
    pub no_memory: u64,
    /// What it took whoever moved them, in nanoseconds, unscaled.
    pub ns: u64,
}
