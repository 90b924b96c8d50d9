//! Deliberate mistakes, which the swarm has to find.
//!
//! Each is made where the loop and the world meet: what the loop would do wrong if
//! it did not read, heed or remember something is what it does when it is told
//! something else. So no production code has a switch for it.

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Mempolicies are not read.
    IgnorePolicy,
    /// Cpusets are not read.
    IgnoreCpuset,
    /// Watermarks are not read: every free page is room.
    IgnoreWatermark,
    /// Room is read once and believed for ever.
    StaleRoom,
    /// The headroom that was asked for is not kept.
    IgnoreHeadroom,
    /// Processes that are gone are kept.
    KeepGone,
    /// Whoever has a pid is taken for the process that had it.
    PidIsEnough,
    /// Who comes after the beginning is not noticed.
    ForgetNewcomers,
    /// A dry run moves.
    DryRunMoves,
    /// The rate limit is not kept.
    NoRateLimit,
    /// Observing takes what it likes.
    NoCpuBudget,
    /// What observing costs is not counted.
    CostUncounted,
    /// Choices do not come from the seed.
    OtherChoices,
    /// The end closes no source.
    LeaveSourcesOn,
    /// A broken source ends the run although there is another.
    NoTakeOver,
    /// A page that did not move once is never tried again.
    StuckForEver,
    /// Bounds of classes are not kept.
    IgnoreHigh,
    /// What is protected of a class is taken all the same.
    IgnoreLow,
    /// What classes use is not read.
    ClassUseUncounted,
    /// That one class lies within another is not read.
    NestingUnread,
    /// Pages of the top tier that are in use are taken for idle ones, where these leave.
    ForgetUse,
    /// It is not heeded that programs wait for memory.
    IgnorePressure,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Mistake; 22] = [
        Mistake::IgnorePolicy,
        Mistake::IgnoreCpuset,
        Mistake::IgnoreWatermark,
        Mistake::StaleRoom,
        Mistake::IgnoreHeadroom,
        Mistake::KeepGone,
        Mistake::PidIsEnough,
        Mistake::ForgetNewcomers,
        Mistake::DryRunMoves,
        Mistake::NoRateLimit,
        Mistake::NoCpuBudget,
        Mistake::CostUncounted,
        Mistake::OtherChoices,
        Mistake::LeaveSourcesOn,
        Mistake::NoTakeOver,
        Mistake::StuckForEver,
        Mistake::IgnoreHigh,
        Mistake::IgnoreLow,
        Mistake::ClassUseUncounted,
        Mistake::NestingUnread,
        Mistake::ForgetUse,
        Mistake::IgnorePressure,
    ];
}
