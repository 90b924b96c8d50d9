//! What the loop has to tell.
//!
//! Everything is handed to a [`Reporter`]; who prints it, and how, is the
//! reporter's business. Tiering and balancing tell of the same things in the
//! same words; what only one of them knows is absent with the other.

use crate::options::Tiered;
use crate::world::MemoryKind;
use memtide_core::pages::Immovable;
use memtide_core::units::{Millis, NodeId};
use serde::{Deserialize, Serialize};
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
        /// Its pages on top-tier nodes, if it is tiered.
        #[serde(skip_serializing_if = "Option::is_none")]
        top_pages: Option<u64>,
        /// Its pages on lower tiers, if it is tiered.
        #[serde(skip_serializing_if = "Option::is_none")]
        lower_pages: Option<u64>,
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
        /// Whether up or down; none between nodes of one tier.
        #[serde(skip_serializing_if = "Option::is_none")]
        direction: Option<Direction>,
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
        /// Where they are used from, if that is what matters.
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<NodeId>,
        /// Why.
        why: WhyStayed,
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
    /// Whether up or down; none between nodes of one tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
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

/// What the loop knows of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageReport {
    /// Its process.
    pub pid: u32,
    /// The program's name.
    pub name: String,
    /// The class of its process, if it is in one.
    pub class: Option<String>,
    /// Address of its first byte.
    pub address: u64,
    /// What kind of memory its mapping is.
    pub mapping: MemoryKind,
    /// The mapping's first address.
    pub mapping_start: u64,
    /// And the first behind it.
    pub mapping_end: u64,
    /// What the mapping's memory policy lets it do, in words.
    pub policy: String,
    /// The node on which it is; none if no memory is there.
    pub node: Option<NodeId>,
    /// Whether that is of the top tier.
    pub fast: Option<bool>,
    /// Whether it is part of a huge page.
    pub huge: bool,
    /// Passes in which it was touched, none further than a window from the next.
    pub touches: Option<u8>,
    /// Since it was last seen touched, in ms.
    pub touched_ms_ago: Option<u64>,
    /// Complete looks in a row that found it untouched.
    pub untouched_looks: u8,
    /// Its last move, if that is known.
    pub last_move: Option<LastMove>,
    /// Why it is where it is, and what it waits for: a sentence.
    pub why: String,
}

/// A page's last move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LastMove {
    /// Up or down.
    pub direction: Direction,
    /// Since then, in ms.
    pub ms_ago: u64,
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

/// Why a page stayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum WhyStayed {
    /// For a reason of tiering's.
    Tier(Stay),
    /// In words.
    Words(String),
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
    /// Its class has all the fast memory that it may have.
    Share,
    /// Programs wait for memory, and no more is admitted for now.
    Pressure,
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
    /// Promoting its process's pages cost more than it saved: it rests, and is tried
    /// again later.
    Rests {
        /// What its promoted pages saved, in nanoseconds a second.
        won_ns_per_s: u64,
        /// What moving its pages cost, likewise.
        spent_ns_per_s: u64,
    },
    /// Under its load the target answers no earlier than the node that the page is on.
    NoFaster {
        /// The target.
        target: NodeId,
        /// Its latency, in nanoseconds.
        fast_ns: u64,
        /// That of the page's node.
        slow_ns: u64,
    },
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
            Stay::Share => write!(f, "hot, but its class is at its fast.high"),
            Stay::Pressure => write!(
                f,
                "hot, but programs wait for memory, so that little is promoted"
            ),
            Stay::Refused { why } => write!(f, "hot, but the kernel did not move it: {why}"),
            Stay::Colder => write!(f, "hot, but pages as hot or hotter fill the fast tier"),
            Stay::JustMoved { ms } => write!(f, "moved {ms} ms ago, too soon to move again"),
            Stay::NotWorthIt => write!(f, "the move would cost more than it saves"),
            Stay::Rests {
                won_ns_per_s,
                spent_ns_per_s,
            } => write!(
                f,
                "rests: promotion of its process cost {:.1} ms a second and won {:.1}",
                *spent_ns_per_s as f64 / 1e6,
                *won_ns_per_s as f64 / 1e6
            ),
            Stay::NoFaster {
                target,
                fast_ns,
                slow_ns,
            } => write!(
                f,
                "rests: under its load node {target} answers after {fast_ns} ns, and its own node after {slow_ns}"
            ),
        }
    }
}

impl std::fmt::Display for WhyStayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WhyStayed::Tier(stay) => stay.fmt(f),
            WhyStayed::Words(words) => words.fmt(f),
        }
    }
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

/// `0-3,8`, as the kernel writes lists.
fn as_list<S: serde::Serializer>(cpus: &BTreeSet<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&cpu_list(cpus))
}

/// CPUs as the kernel writes lists of them: `0-3,8`.
pub fn cpu_list(cpus: &BTreeSet<u32>) -> String {
    let mut list = String::new();
    let mut cpus = cpus.iter().copied().peekable();
    while let Some(first) = cpus.next() {
        let mut last = first;
        while cpus.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(&first.to_string());
        if last > first {
            list.push('-');
            list.push_str(&last.to_string());
        }
    }
    list
}

/// Where things stand. Counts of pages are of base pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Milliseconds since the start.
    pub at_ms: u64,
    /// Managed processes.
    pub processes: usize,
    /// Pages that the kernel would not move.
    pub failed_pages: u64,
    /// Reports or samples that were lost.
    pub lost: u64,
    /// Processor time of this process since the run began.
    #[serde(rename = "cpu_s", serialize_with = "as_seconds")]
    pub cpu: Duration,
    /// What tiering has to tell.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub tiering: Option<TierStatus>,
    /// What balancing has to tell.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub balancing: Option<BalanceStatus>,
}

/// Where tiering stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TierStatus {
    /// Managed pages on top-tier nodes.
    pub top_pages: u64,
    /// Managed pages on lower tiers.
    pub lower_pages: u64,
    /// Pages that moved up.
    pub pgpromote_success: u64,
    /// Pages that the gate's rate window counted.
    pub pgpromote_candidate: u64,
    /// Pages that went up for there was plenty of free room.
    pub pgpromote_candidate_nrl: u64,
    /// Pages that moved down.
    pub pgdemote_proactive: u64,
    /// Of those, pages that left because nobody had touched them for long; none where
    /// that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demoted_idle_pages: Option<u64>,
    /// Of those that moved, up or down, pages that were back within
    /// [`RETURN_MS`](crate::tier::RETURN_MS). Of more moves than the loop remembers it
    /// counts fewer than there are, and never more; none in a dry run.
    pub returned_pages: u64,
    /// Accesses that were recorded.
    pub pghot_recorded_accesses: u64,
    /// Complete looks at every page.
    pub passes: u64,
    /// Free pages by node.
    pub free_pages: Vec<(NodeId, u64)>,
    /// What is being done: "look" or "glance", "samples" where nothing is looked at, or
    /// "start".
    pub observing: &'static str,
    /// Processor time that the kernel spent observing on our behalf.
    #[serde(rename = "kernel_cpu_s", serialize_with = "as_seconds")]
    pub kernel_cpu: Duration,
    /// Classes with a share of fast memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassStatus>,
    /// How equal their [`ClassStatus::fast_access_permille`] are: Jain's index, in
    /// thousandths, of classes that are tiered and not paused; none where fewer than two of
    /// these have one.
    pub access_fairness_permille: Option<u32>,
    /// The same of their [`ClassStatus::fast_touched_permille`].
    pub touched_fairness_permille: Option<u32>,
    /// What promotion won and cost; none where nobody can tell how late nodes answer.
    pub account: Option<AccountStatus>,
    /// Whether programs wait for memory; none where that is not heeded or not told.
    pub pressure: Option<PressureStatus>,
}

/// That programs wait for memory, and what becomes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PressureStatus {
    /// The time in which some task waited, since the run began, in ms.
    pub stalled_ms: u64,
    /// Pages that may be promoted a second at present.
    pub limit_pages: u64,
    /// Whether that is less than without pressure.
    pub slowed: bool,
}

/// What promotion won and cost, of all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AccountStatus {
    /// Time that promoted pages save programs, in nanoseconds a second: an estimate.
    pub won_ns_per_s: u64,
    /// Time that tiering takes, from whomever, likewise.
    pub spent_ns_per_s: u64,
    /// The first since the run began, in nanoseconds.
    pub won_ns: u64,
    /// The second, by cause.
    pub spent: TierSpent,
    /// How late each node answers under its present load, as far as it was measured.
    pub latencies_ns: Vec<(NodeId, u32)>,
    /// Processes whose pages are not promoted because it did not pay.
    pub resting_processes: usize,
}

/// Where the time of tiering went, by cause, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TierSpent {
    /// Unmapping, copying and flushing pages that moved: an estimate.
    pub moves_ns: u64,
    /// Hint faults that programs took: an estimate.
    pub faults_ns: u64,
    /// Our own processor time, beyond the moves.
    pub own_ns: u64,
    /// The kernel's that observes for us.
    pub observing_ns: u64,
}

/// Where a class of processes stands with its share of fast memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassStatus {
    /// Its name.
    pub name: String,
    /// The name of the class that contains it; none if no class does.
    pub within: Option<String>,
    /// Pages of fast memory that it and the classes within it use; none if that is not known.
    pub fast_pages: Option<u64>,
    /// Pages that are not taken from it for others.
    pub low_pages: u64,
    /// The most that it may have; none without a bound.
    pub high_pages: Option<u64>,
    /// Pages of it that moved up.
    pub promoted_pages: u64,
    /// Pages of it that moved down.
    pub demoted_pages: u64,
    /// Of both, pages that were back soon.
    pub returned_pages: u64,
    /// Hot pages of its own that a bound keeps down: its own or one of a class that contains it.
    pub waiting_pages: u64,
    /// Whether its processes are not managed.
    pub left_alone: bool,
    /// Whether its pages are observed and move between tiers.
    pub tiered: bool,
    /// Whether they leave fast memory.
    pub demotes: bool,
    /// Whether they leave, too, because nobody touched them for long.
    pub demotes_idle: bool,
    /// Whether its pages stay where they are until it is resumed.
    pub paused: bool,
    /// Whether its processes wait for memory; none where that is not heeded or not told.
    pub pressure: Option<PressureStatus>,
    /// Of its accesses that were sampled in the last half minute, those to fast memory, in
    /// thousandths; none where fewer than 100 were.
    pub fast_access_permille: Option<u32>,
    /// Of its pages that passes of the last half minute saw touched, those on fast memory, in
    /// thousandths; none where not both kinds of memory were looked at alike, or where too
    /// little was touched.
    pub fast_touched_permille: Option<u32>,
}

impl ClassStatus {
    /// What tiering does for its processes.
    pub fn done(&self) -> Tiered {
        Tiered {
            tier: self.tiered,
            demote: self.demotes,
            demote_idle: self.demotes_idle,
        }
    }
}

/// By what processes are put into order, most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessOrder {
    /// Memory on slow nodes.
    Slow,
    /// Memory on fast nodes.
    #[default]
    Fast,
    /// What moved up.
    Promoted,
    /// What moved down.
    Demoted,
    /// What was back soon.
    Returned,
}

/// Where a managed process stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessStatus {
    /// Its number.
    pub pid: u32,
    /// The program's name.
    pub name: String,
    /// The class that it is in, if any.
    pub class: Option<String>,
    /// Pages of it on top-tier nodes, as of the last survey and all moves since.
    pub top_pages: u64,
    /// Pages of it on lower tiers.
    pub lower_pages: u64,
    /// Pages of it that moved up.
    pub promoted_pages: u64,
    /// Pages of it that moved down.
    pub demoted_pages: u64,
    /// Of both, pages that were back soon.
    pub returned_pages: u64,
    /// What its promotion won and cost, if that is known.
    pub account: Option<ProcessAccount>,
}

/// What the promotion of a process's pages won and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessAccount {
    /// Time that its promoted pages save it, in nanoseconds a second: an estimate.
    pub won_ns_per_s: u64,
    /// Time that moving its pages takes, likewise.
    pub spent_ns_per_s: u64,
    /// Whether none of its pages is promoted because it did not pay.
    pub rests: bool,
}

/// Where balancing stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BalanceStatus {
    /// What tells of accesses.
    pub source: String,
    /// Threads that were seen using memory.
    pub tasks: usize,
    /// Accesses that were seen.
    pub samples: u64,
    /// Of those, to pages on the node of the CPU.
    pub local_samples: u64,
    /// The same since the last status, in thousandths; none without samples.
    pub local_permille: Option<u64>,
    /// Moments whose samples were dropped.
    pub invalid_windows: u64,
    /// Operations between samples, where the source has such a thing.
    pub period: Option<u64>,
    /// Pages that moved, or would have.
    pub moved_pages: u64,
    /// Pages that mempolicy or cpuset kept.
    pub forbidden_pages: u64,
    /// Pages that found no room.
    pub no_room_pages: u64,
    /// Threads whose affinity is set at present, or proposed.
    pub placed_tasks: usize,
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

fn as_seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1000.0).round() / 1000.0)
}

/// Takes what the loop tells.
pub trait Reporter {
    /// Something happened at `at`.
    fn event(&mut self, at: Millis, event: Event);
}

/// Throws everything away.
impl Reporter for () {
    fn event(&mut self, _at: Millis, _event: Event) {}
}

/// Keeps everything.
impl Reporter for Vec<(Millis, Event)> {
    fn event(&mut self, at: Millis, event: Event) {
        self.push((at, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_lists() {
        let list = |cpus: &[u32]| cpu_list(&cpus.iter().copied().collect());
        assert_eq!(list(&[]), "");
        assert_eq!(list(&[3]), "3");
        assert_eq!(list(&[0, 1, 2, 8, 10, 11]), "0-2,8,10-11");
    }
}
