//! What every source of accesses offers, whatever it is made of.
//!
//! Hint faults, DAMON, the accessed bits of the page tables and hardware that
//! samples differ in all that matters: some see single accesses, some whole
//! intervals; some can say that a page was *not* touched; some know the thread;
//! some cost time in proportion to what they watch. [`Abilities`] says what a
//! source can; the code that decides asks for nothing else of it.
//!
//! A source is asked for *views*, each of which may be on or off. A **look**
//! reports every touched page of the spans that it was given, page by page. A
//! **glance** reports of each given span, as a whole, whether it was touched: in
//! each pass one page of it, drawn anew, answers for all.
//! A view reports in *passes*: when a pass is complete, what it did not report
//! was not touched. A source that sees only single accesses never completes a
//! pass. **Sampling** reports single accesses with the thread that made them.

use super::{ProcessId, Span};
use memtide_core::access;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A source's place in [`super::World::sources`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SourceId(pub u8);

/// A source and what it can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceInfo {
    /// What it is called in reports, as in "DAMON" or "ibs".
    pub name: String,
    /// Under which name its accesses are counted.
    pub kind: access::Source,
    /// What it can do.
    pub abilities: Abilities,
}

/// What a source can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// Its looks complete passes: silence about a page means that it was not
    /// touched.
    pub passes: bool,
    /// It offers glances.
    pub glances: bool,
    /// It samples single accesses, and knows who made them.
    pub samples: bool,
    /// Reports of a look's pass that it keeps while nobody reads them. Those beyond are
    /// lost, and the end of the pass with them. All are kept if `None`.
    #[serde(default)]
    pub keeps: Option<u64>,
}

/// What a source has cost and lost since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Processor time that the kernel spent on its behalf outside this process,
    /// in nanoseconds. Of samples, what their interrupts took; where that cannot
    /// be measured, it is reckoned by their number.
    pub kernel_cpu_ns: u64,
    /// Reports that are known to be lost.
    pub lost: u64,
    /// Operations between two samples, where it has such a thing.
    pub period: Option<u64>,
    /// Samples that were taken for it, whatever became of them.
    #[serde(default)]
    pub records: u64,
    /// Of this process's own processor time, what observing took, in nanoseconds: reading
    /// samples, or scans that others leave to the kernel.
    #[serde(default)]
    pub own_cpu_ns: u64,
}

/// The spans of one process that are to be observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// What reports will call the process.
    pub owner: OwnerId,
    /// The process.
    pub process: ProcessId,
    /// In order of address, none overlapping another.
    pub spans: Vec<Span>,
}

impl Subject {
    /// All pages of its spans.
    pub fn pages(&self) -> u64 {
        self.spans.iter().map(|span| span.pages).sum()
    }

    /// Whether its spans are in order, and none overlaps another: sources may refuse others.
    pub fn is_in_order(&self) -> bool {
        let apart = |pair: &[Span]| pair[0].first.0 + pair[0].pages <= pair[1].first.0;
        self.spans.windows(2).all(apart)
    }
}

/// Which of the two views a report belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Every page, one by one.
    Look,
    /// Given spans, each as a whole.
    Glance,
}

/// What a look or a glance reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// Pages were touched: as a look sees it, each of them; as a glance sees
    /// it, at least one.
    Touched {
        /// Who says so.
        source: SourceId,
        /// In which view.
        view: View,
        /// Whose pages.
        owner: OwnerId,
        /// The first.
        first: VirtualPage,
        /// How many.
        pages: u64,
    },
    /// Pages were seen not touched in this pass. Only a source that looks at
    /// each page says so; from others a complete pass says it by silence.
    Untouched {
        /// Who says so.
        source: SourceId,
        /// Whose pages.
        owner: OwnerId,
        /// The first.
        first: VirtualPage,
        /// How many.
        pages: u64,
    },
    /// A pass is complete, and nothing of it was lost.
    Pass {
        /// Whose.
        source: SourceId,
        /// Of which view.
        view: View,
    },
}

/// A single access, and who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Who says so.
    pub source: SourceId,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU that it ran on.
    pub cpu: u32,
    /// The address, to the byte.
    pub address: u64,
}

/// Samples of a source that were withheld, since some of the same time are
/// missing: what is missing may all be of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invalid {
    /// Whose.
    pub source: SourceId,
    /// Samples that the kernel could not hand over.
    pub lost: u64,
    /// How often the kernel stopped an event for a while.
    pub throttled: u64,
}

/// Something that people should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// A source leaves a process out, or it cannot be read.
    LeftOut {
        /// The process.
        pid: u32,
        /// Why, in a sentence.
        why: String,
    },
    /// The cgroup whose processes are managed has gone, or is back.
    Cgroup {
        /// As the user named it.
        path: String,
        /// Whether it is there now.
        there: bool,
    },
    /// What a pod chose as its class does not count.
    Choice {
        /// Its uid.
        pod: String,
        /// Why, in a sentence.
        why: String,
    },
    /// Nobody says for how long programs wait for memory.
    NoPressure {
        /// Why, in a sentence.
        why: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::LeftOut { pid, why } => {
                write!(formatter, "process {pid} is left out: {why}")
            }
            Notice::Cgroup { path, there: true } => {
                write!(
                    formatter,
                    "cgroup {path} is back: its processes are managed"
                )
            }
            Notice::Cgroup { path, there: false } => write!(
                formatter,
                "cgroup {path} is not there: no process is managed until it is"
            ),
            Notice::Choice { pod, why } => write!(formatter, "pod {pod} chooses no class: {why}"),
            Notice::NoPressure { why } => {
                write!(formatter, "memory pressure is not heeded: {why}")
            }
        }
    }
}

/// All that came since the last time. Keep one: it reuses its buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Came {
    /// Of looks and glances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<Report>,
    /// Of sampling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// Sampling in which something is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid: Vec<Invalid>,
    /// What people should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

impl Came {
    /// Empties it.
    pub fn clear(&mut self) {
        self.reports.clear();
        self.samples.clear();
        self.invalid.clear();
        self.notices.clear();
    }
}
