//! What balancing has to tell.

pub use crate::live::report::Range;

use memtide_core::units::{Millis, NodeId};
use serde::Serialize;
use std::collections::BTreeSet;
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
        /// Whether it was only planned.
        dry_run: bool,
        /// Where they are.
        range: Range,
        /// Where they were.
        from: NodeId,
        /// Where they are now.
        to: NodeId,
        /// Why, for people.
        why: String,
    },
    /// A run of pages stayed although they are used from elsewhere.
    Stayed {
        /// Where they are.
        range: Range,
        /// On which node.
        node: NodeId,
        /// Where they are used from.
        to: NodeId,
        /// Why, for people.
        why: String,
    },
    /// A thread should run, or runs from now on, on a node's CPUs.
    Task(TaskMove),
    /// Samples of this moment were dropped: some of its kind are missing, so
    /// shares mean nothing.
    WindowInvalid {
        /// Samples that the kernel could not hand over.
        lost: u64,
        /// How often the kernel stopped the event for a while.
        throttled: u64,
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
    /// The process.
    pub pid: u32,
    /// Where they were.
    pub from: NodeId,
    /// Where they are now.
    pub to: NodeId,
    /// How many.
    pub pages: u64,
}

/// What became of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskMove {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The node that it should run on.
    pub node: NodeId,
    /// What was done.
    pub state: TaskState,
    /// The CPUs that it got or would get; none if it was kept.
    #[serde(serialize_with = "as_list")]
    pub cpus: BTreeSet<u32>,
    /// Why, for people.
    pub why: String,
}

/// What was done about a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Only proposed.
    Proposed,
    /// It has the affinity now.
    Set,
    /// It stays as it was.
    Kept,
}

fn as_list<S: serde::Serializer>(cpus: &BTreeSet<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&crate::fs::list::format(cpus.iter().copied()))
}

/// Where balancing's own time went, by cause, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Looking for processes, their mappings and policies.
    pub refresh_ns: u64,
    /// Making pages fault on their next write.
    pub protect_ns: u64,
    /// Taking samples from the rings, and counting them.
    pub samples_ns: u64,
    /// Asking where sampled pages are.
    pub locate_ns: u64,
    /// Deciding.
    pub decide_ns: u64,
    /// Moving pages, and threads.
    pub move_ns: u64,
}

/// Where things stand. Counts of pages are of base pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Milliseconds since the start.
    pub at_ms: u64,
    /// What tells of accesses.
    pub source: &'static str,
    /// Managed processes.
    pub processes: usize,
    /// Their threads that were seen using memory.
    pub tasks: usize,
    /// Accesses that were seen.
    pub samples: u64,
    /// Of those, to pages on the node of the CPU.
    pub local_samples: u64,
    /// The same since the last status, in thousandths; none without samples.
    pub local_permille: Option<u64>,
    /// Samples that the kernel could not hand over.
    pub lost: u64,
    /// Moments whose samples were dropped.
    pub invalid_windows: u64,
    /// Operations between samples, where the source has such a thing.
    pub period: Option<u64>,
    /// Pages that moved, or would have.
    pub moved_pages: u64,
    /// Pages that the kernel would not move.
    pub failed_pages: u64,
    /// Pages that mempolicy or cpuset kept.
    pub forbidden_pages: u64,
    /// Pages that found no room.
    pub no_room_pages: u64,
    /// Threads whose affinity is set at present, or proposed.
    pub placed_tasks: usize,
    /// Processor time of this process.
    #[serde(rename = "cpu_s", serialize_with = "as_seconds")]
    pub cpu: Duration,
    /// The share of one CPU that the loop has taken since it began, in percent.
    pub cpu_percent: f64,
    /// The share that it may take in the long run.
    pub cpu_limit_percent: f64,
    /// How long it rested to keep to that.
    pub rested_ms: u64,
    /// Where the time went.
    pub spent: Spent,
    /// What a page that moved has cost in all; none if none did.
    pub ns_per_moved_page: Option<u64>,
}

fn as_seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1000.0).round() / 1000.0)
}

/// Takes what the loop tells.
pub trait Reporter {
    /// Something happened at `at`.
    fn event(&mut self, at: Millis, event: Event);
}
