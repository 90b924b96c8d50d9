//! What managing a machine's pages has to tell.
//!
//! The loop hands everything to a [`Reporter`]; who prints it, and how, is the
//! reporter's business.

use memtide_core::pages::Immovable;
use memtide_core::units::{Millis, NodeId};
use serde::Serialize;
use std::time::Duration;

/// Something happened, or was found out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A process is managed from now on.
    Process {
        /// Its id.
        pid: u32,
        /// Its program's name.
        name: String,
        /// Its pages on top-tier nodes.
        top_pages: u64,
        /// Its pages on lower tiers.
        lower_pages: u64,
    },
    /// A managed process has ended.
    ProcessGone {
        /// Its id.
        pid: u32,
    },
    /// Pages of a process moved; sums instead of runs, where nobody asked why.
    MovedPages(MovedPages),
    /// A run of pages moved, or would have without `--dry-run`.
    Moved {
        /// Whether up or down.
        direction: Direction,
        /// Whether it was only planned.
        dry_run: bool,
        /// Where they are.
        range: Range,
        /// Where they were.
        from: NodeId,
        /// Where they are now.
        to: NodeId,
        /// Why.
        why: String,
    },
    /// A run of pages stayed where it was.
    Stayed {
        /// Where they are.
        range: Range,
        /// On which node.
        node: NodeId,
        /// Why.
        why: Stay,
    },
    /// Something that an operator should know.
    Notice {
        /// In a sentence.
        text: String,
    },
}

/// How many pages of a process moved whereto.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MovedPages {
    /// Whether up or down.
    pub direction: Direction,
    /// The process.
    pub pid: u32,
    /// Where they were.
    pub from: NodeId,
    /// Where they are now.
    pub to: NodeId,
    /// How many.
    pub pages: u64,
}

/// A run of a process's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Range {
    /// The process.
    pub pid: u32,
    /// Address of the first byte.
    pub address: u64,
    /// Its length in base pages.
    pub pages: u64,
}

/// Up to a faster tier, or down to a slower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To a faster tier.
    Promotion,
    /// To a slower tier.
    Demotion,
}

/// Why a page on a slow node was not promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Stay {
    /// Nobody was seen touching it.
    Untouched,
    /// It was touched, but too rarely.
    TooRarely {
        /// How often within the window.
        touches: u8,
        /// How often it takes.
        threshold: u8,
    },
    /// Its last touch is longer ago than the gate's present threshold allows.
    TooLongAgo {
        /// Since its last touch.
        ms: u64,
        /// The threshold.
        threshold_ms: u64,
    },
    /// The rate limit is used up for now.
    RateLimit,
    /// The target has no room above its watermark.
    NoRoom {
        /// The target.
        target: NodeId,
    },
    /// Mempolicy, cpuset or the kind of page forbids it.
    Forbidden {
        /// What exactly.
        #[serde(serialize_with = "as_text")]
        by: Immovable,
    },
    /// The kernel refused to move it.
    Refused {
        /// Its reason.
        #[serde(rename = "because")]
        why: &'static str,
    },
    /// Hotter pages fill the fast tier.
    Colder,
    /// It moved just now and is not hot enough to move again so soon.
    JustMoved {
        /// Since its last move.
        ms: u64,
    },
    /// The move would cost more than it is expected to save.
    NotWorthIt,
}

fn as_text<S: serde::Serializer>(by: &Immovable, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(by)
}

impl std::fmt::Display for Stay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stay::Untouched => write!(f, "not seen touched"),
            Stay::TooRarely { touches, threshold } => {
                write!(
                    f,
                    "touched {touches} times in the window, hot from {threshold}"
                )
            }
            Stay::TooLongAgo { ms, threshold_ms } => {
                write!(f, "last touched {ms} ms ago, hot below {threshold_ms} ms")
            }
            Stay::RateLimit => write!(f, "hot, but the rate limit is used up for now"),
            Stay::NoRoom { target } => {
                write!(
                    f,
                    "hot, but node {target} has no room above its high watermark"
                )
            }
            Stay::Forbidden { by } => write!(f, "hot, but {by}"),
            Stay::Refused { why } => write!(f, "hot, but the kernel did not move it: {why}"),
            Stay::Colder => write!(f, "hot, but hotter pages fill the fast tier"),
            Stay::JustMoved { ms } => write!(f, "moved {ms} ms ago, too soon to move again"),
            Stay::NotWorthIt => write!(f, "the move would cost more than it saves"),
        }
    }
}

/// Where things stand. Counts of pages are of base pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Milliseconds since the start.
    pub at_ms: u64,
    /// Managed processes.
    pub processes: usize,
    /// Their pages on top-tier nodes.
    pub top_pages: u64,
    /// Their pages on lower tiers.
    pub lower_pages: u64,
    /// Pages that moved up.
    pub pgpromote_success: u64,
    /// Pages that the gate's rate window counted.
    pub pgpromote_candidate: u64,
    /// Pages that went up for there was plenty of free room.
    pub pgpromote_candidate_nrl: u64,
    /// Pages that moved down.
    pub pgdemote_proactive: u64,
    /// Accesses that were recorded.
    pub pghot_recorded_accesses: u64,
    /// Pages that the kernel would not move.
    pub failed_pages: u64,
    /// Complete looks at every page.
    pub passes: u64,
    /// Reports that were lost.
    pub lost: u64,
    /// Free pages by node.
    pub free_pages: Vec<(NodeId, u64)>,
    /// What is being done: "look" or "glance".
    pub observing: &'static str,
    /// Processor time of this process.
    #[serde(rename = "cpu_s", serialize_with = "as_seconds")]
    pub cpu: Duration,
    /// Processor time that the kernel spent observing on our behalf.
    #[serde(rename = "kernel_cpu_s", serialize_with = "as_seconds")]
    pub kernel_cpu: Duration,
}

fn as_seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1000.0).round() / 1000.0)
}

/// Takes what the loop tells.
pub trait Reporter {
    /// Something happened at `at`.
    fn event(&mut self, at: Millis, event: Event);
}
