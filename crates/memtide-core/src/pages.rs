//! What the decisions ask about pages: the backend's side of the core.
//!
//! The simulated machine answers from its frame table, the live one from
//! `move_pages` queries and `/proc`. Everything has an answer that commits to
//! nothing (a folio of one page, one group, free to move, room unknown), so a
//! backend writes only what it knows.

use crate::units::{NodeId, PageNumber};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The pages of a machine or of the watched processes.
pub trait Pages {
    /// The node that holds the page now; `None` if no memory stands behind it.
    fn node_of(&self, page: PageNumber) -> Option<NodeId>;

    /// The folio around the page. One base page unless the backend knows better.
    fn folio(&self, page: PageNumber) -> Folio {
        Folio {
            first: page,
            pages: 1,
        }
    }

    /// The process or memory cgroup that the page belongs to. A batch holds
    /// pages of one group, so that its move is charged to one owner.
    fn group(&self, page: PageNumber) -> u64 {
        let _ = page;
        0
    }

    /// Whether the page's owner lets it move to `target` (mempolicy, cpuset,
    /// pins). Must be right: the core never moves against it.
    fn may_move(&self, page: PageNumber, target: NodeId) -> Result<(), Immovable> {
        let _ = (page, target);
        Ok(())
    }

    /// Whether the page's owner lets it leave its node for a slower one at all.
    /// A cheap first look for demotion; [`Pages::may_move`] has the last word
    /// once the target is known.
    fn may_leave(&self, page: PageNumber) -> Result<(), Immovable> {
        let _ = page;
        Ok(())
    }

    /// Tells `each` of the shares of the fast tiers that the page counts against when it
    /// comes up: every one of them must have room for it. None if there is no bound.
    fn shares(&self, page: PageNumber, each: &mut dyn FnMut(Share)) {
        let _ = (page, each);
    }

    /// The node's room; `None` if unknown, which never counts as plenty.
    fn space(&self, node: NodeId) -> Option<NodeSpace> {
        let _ = node;
        None
    }
}

/// A folio: pages that live and move together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Folio {
    /// Its first page; the folio's record is this page's.
    pub first: PageNumber,
    /// Its length in base pages, at least 1.
    pub pages: u32,
}

/// What is left of a bounded share of the fast tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which: pages with the same number count against the same share.
    pub number: u64,
    /// Base pages that may still come up.
    pub left: u64,
}

/// A node's room, in pages. Where a node has several zones, these are the
/// figures of the one with most headroom; `present` is always the whole node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpace {
    /// Free pages.
    pub free: u64,
    /// The high watermark: a promotion needs free pages beyond it.
    pub high: u64,
    /// The promotion watermark, above high.
    pub promo: u64,
    /// Pages that the node has.
    pub present: u64,
}

impl NodeSpace {
    /// The node's figures out of its populated zones' `(free, high, promo)`:
    /// those of the zone furthest above its promotion watermark. `None` if no
    /// zone is populated.
    pub fn of_zones(
        zones: impl IntoIterator<Item = (u64, u64, u64)>,
        present: u64,
    ) -> Option<NodeSpace> {
        zones
            .into_iter()
            .max_by_key(|&(free, _, promo)| i128::from(free) - i128::from(promo))
            .map(|(free, high, promo)| NodeSpace {
                free,
                high,
                promo,
                present,
            })
    }

    /// Whether a folio of `pages` can be taken in without eating into the high
    /// watermark. The kernel's test before each promotion, not the gate's.
    pub fn takes(&self, pages: u64) -> bool {
        self.free > self.high.saturating_add(pages)
    }

    /// The room that is left after `pages` more have arrived.
    pub fn less(self, pages: u64) -> NodeSpace {
        NodeSpace {
            free: self.free.saturating_sub(pages),
            ..self
        }
    }
}

/// Why a page may not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Immovable {
    /// Its memory policy does not allow the target.
    Mempolicy,
    /// Its cpuset does not allow the target.
    Cpuset,
    /// Somebody holds it pinned or locked.
    Pinned,
    /// Several processes map it, and moving those takes a privilege.
    Shared,
    /// It is no page that lives on the LRU lists.
    NotLru,
    /// The backend's own reason.
    Other(&'static str),
}

impl fmt::Display for Immovable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Immovable::Mempolicy => "its mempolicy does not allow the target",
            Immovable::Cpuset => "its cpuset does not allow the target",
            Immovable::Pinned => "it is pinned",
            Immovable::Shared => "several processes map it",
            Immovable::NotLru => "it is not on an LRU list",
            Immovable::Other(reason) => reason,
        })
    }
}
