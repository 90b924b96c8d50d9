//! What a gate is asked and what it answers.
//!
//! The loop over the ready pages does not know which gate it asks. The answer
//! carries the numbers that decided, because somebody will want to know why a
//! page stayed.

use crate::hotness::{Heat, Hotness};
use crate::pages::{Folio, NodeSpace};
use crate::units::{Millis, NodeId};
use crate::vmstat::Counter;
use serde::Serialize;

/// A folio that wants to move up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub folio: Folio,
    /// Its record.
    pub hotness: Hotness,
    /// Whereto.
    pub target: NodeId,
    /// The target's room; unknown room is never plenty.
    pub space: Option<NodeSpace>,
}

/// A gate that candidates pass.
pub trait Admit {
    /// Whether the folio may move at `now`. May count it.
    fn admit(&self, candidate: &Candidate, now: Millis) -> Verdict;

    /// Whether whoever asks for `target` now would be refused for want of
    /// budget. Counts nothing.
    fn is_closed(&self, target: NodeId, space: Option<NodeSpace>, now: Millis) -> bool {
        let _ = (target, space, now);
        false
    }

    /// The counter that counts the folio after this verdict.
    fn counter(&self, verdict: Verdict) -> Option<Counter> {
        let _ = verdict;
        None
    }
}

/// Two gates, one behind the other: the second is asked only about what the
/// first lets in, and only its budget can be used up.
#[derive(Clone, Copy, Debug)]
pub struct Then<'a, A, B> {
    /// Asked first.
    pub first: &'a A,
    /// Asked about what the first lets in.
    pub second: &'a B,
}

impl<A: Admit, B: Admit> Admit for Then<'_, A, B> {
    fn admit(&self, candidate: &Candidate, now: Millis) -> Verdict {
        match self.first.admit(candidate, now) {
            verdict if verdict.admitted() => self.second.admit(candidate, now),
            refused => refused,
        }
    }

    fn is_closed(&self, target: NodeId, space: Option<NodeSpace>, now: Millis) -> bool {
        self.second.is_closed(target, space, now)
    }

    fn counter(&self, verdict: Verdict) -> Option<Counter> {
        self.second.counter(verdict)
    }
}

/// A gate's answer, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Let in: the destination has plenty of room.
    Space,
    /// Let in: recent enough and within the rate.
    WithinRate,
    /// Let in: among the hottest that the fast tier holds, and it pays.
    HotSet,
    /// Refused: its last access is too long ago.
    Latency {
        /// How long.
        latency_ms: u32,
        /// The threshold, which it had to be below.
        threshold_ms: u32,
    },
    /// Refused: the rate window is full.
    Rate {
        /// Pages in the window, this folio's among them.
        pages: u64,
        /// The budget of a window.
        limit: u64,
    },
    /// Refused: the fast tier is filled by pages that are hotter, or as hot.
    BelowCut {
        /// The page's heat.
        heat: Heat,
        /// The heat of the coldest that fit. Of those just as hot some do not.
        cut: Heat,
    },
    /// Refused: it moved a while ago and does not beat the cut by the margin.
    Damped {
        /// Since its last move, in ms.
        moved_ms_ago: u64,
    },
    /// Refused: the move costs more than it saves.
    NoBenefit {
        /// Expected saving in nanoseconds.
        saving_ns: u64,
        /// Cost in nanoseconds.
        cost_ns: u64,
    },
}

impl Verdict {
    /// Whether the folio may move.
    pub fn admitted(self) -> bool {
        matches!(self, Verdict::Space | Verdict::WithinRate | Verdict::HotSet)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Space => write!(f, "let in: the target has plenty of room"),
            Verdict::WithinRate => write!(f, "let in: recent, and within the rate"),
            Verdict::HotSet => write!(f, "let in: in the hot set, and the move pays"),
            Verdict::Latency {
                latency_ms,
                threshold_ms,
            } => write!(
                f,
                "last access {latency_ms} ms ago, threshold {threshold_ms} ms"
            ),
            Verdict::Rate { pages, limit } => {
                write!(f, "rate window full: {pages} pages, limit {limit}")
            }
            Verdict::BelowCut { heat, cut } => {
                write!(f, "not among the hottest that fit: heat {heat}, cut {cut}")
            }
            Verdict::Damped { moved_ms_ago } => {
                write!(
                    f,
                    "moved {moved_ms_ago} ms ago, and not hot enough to move again"
                )
            }
            Verdict::NoBenefit { saving_ns, cost_ns } => {
                write!(f, "would save {saving_ns} ns and cost {cost_ns} ns")
            }
        }
    }
}
