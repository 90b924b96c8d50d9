//! What a pass hands out and reports.

use crate::hotness::Hotness;
use crate::pages::{Folio, Immovable};
use crate::promotion::verdict::Verdict;
use crate::units::{NodeId, PageNumber};
use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// Folios to move together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Batch {
    /// Whereto.
    pub target: NodeId,
    /// Whose they are; see [`crate::pages::Pages::group`].
    pub group: u64,
    /// Which, with what was known of each, so that a failed one can be put back
    /// with [`crate::hotness::Store::put_back`].
    pub folios: Vec<(Folio, Hotness)>,
    /// Base pages in all of them.
    pub pages: u64,
}

/// Why a ready page did not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kept {
    /// It has become cold since it became ready.
    Cold,
    /// It is on another node now; that node's loop looks after it.
    Elsewhere(NodeId),
    /// No memory stands behind it any more.
    Gone,
    /// No top-tier node with memory can take it.
    NoTarget,
    /// It is where it should be.
    AtTarget,
    /// Its folio is in this pass's batches already.
    SameFolio,
    /// Its owner does not let it.
    Immovable(Immovable),
    /// The gate refused it.
    Gate(Verdict),
    /// The destination's rate window was full before this pass began.
    WindowClosed,
    /// The destination has no room above its high watermark: demotion is due there.
    NoRoom(NodeId),
    /// Its owner's share of the fast tiers is used up.
    Share,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kept::Cold => write!(f, "no longer hot"),
            Kept::Elsewhere(node) => write!(f, "on node {node} now"),
            Kept::Gone => write!(f, "no memory behind it"),
            Kept::NoTarget => write!(f, "no top-tier node with memory"),
            Kept::AtTarget => write!(f, "on its target already"),
            Kept::SameFolio => write!(f, "moves with its folio"),
            Kept::Immovable(reason) => write!(f, "{reason}"),
            Kept::Gate(verdict) => write!(f, "{verdict}"),
            Kept::WindowClosed => write!(f, "rate window full since an earlier pass"),
            Kept::NoRoom(node) => write!(f, "node {node} is at its high watermark"),
            Kept::Share => write!(f, "its owner's share of fast memory is used up"),
        }
    }
}

/// Where a pass's results go.
pub trait Sink {
    /// A batch to move, in order.
    fn batch(&mut self, batch: Batch);

    /// A ready page that does not move, and why.
    fn kept(&mut self, page: PageNumber, hotness: &Hotness, reason: Kept) {
        let _ = (page, hotness, reason);
    }
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PassReport {
    /// Ready pages visited.
    pub visited: u64,
    /// Folios batched.
    pub folios: u64,
    /// Base pages batched.
    pub pages: u64,
    /// Batches handed out.
    pub batches: u64,
    /// Pages that had become cold.
    pub cold: u64,
    /// Pages that stay ready for a later pass.
    pub kept_ready: u64,
    /// Pages refused for room: so much should be demoted on their targets.
    pub no_room_pages: u64,
    /// Ready pages refused because a share is used up, and so among those that
    /// stay ready.
    pub over_share: u64,
    /// Whether the pass ended at its limit of pages with ready ones left.
    pub stopped: bool,
}

/// Where and how far a pass goes.
#[derive(Clone, Debug)]
pub struct Stops {
    /// The store's sections that it looks at.
    pub sections: Range<usize>,
    /// The most base pages that it batches.
    pub pages: u64,
}

impl Stops {
    /// Everything, without a limit.
    pub const NONE: Stops = Stops {
        sections: 0..usize::MAX,
        pages: u64::MAX,
    };
}
