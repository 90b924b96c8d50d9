//! What can go wrong for a workload, in one line each.

use memtide_core::units::NodeId;

/// Why a run cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum KernelError {
    #[error(
        "out of memory: region {region:?} ({region_pages} pages of 4 KiB, simulated) needs a page on \
         node {node}, which has {free} of {present} pages free, and nothing can be reclaimed; make the \
         region smaller, the node larger, or allow the region more nodes"
    )]
    OutOfMemory {
        region: String,
        region_pages: u32,
        node: NodeId,
        free: u64,
        present: u64,
    },
    #[error("region {region:?}: the workload stores to it, but it is read-only; make it writable")]
    ReadOnly { region: String },
    #[error(
        "region {region:?}: huge pages of files are not simulated; make it anonymous or not huge"
    )]
    HugeFile { region: String },
    #[error(
        "region {region:?}: a huge mapping starts at a multiple of 512 pages; move its start_vpn {start}"
    )]
    HugeStart { region: String, start: u64 },
    #[error(
        "{what}: {pages} pages are more than the {limit} that can be simulated; scale further down"
    )]
    TooManyPages {
        what: &'static str,
        pages: u64,
        limit: u64,
    },
    #[error("node {0}: simulated nodes have ids 0 to 15; number them anew")]
    NodeId(NodeId),
    #[error("node {node}: {pages} pages at this scale are less than {least}; scale down less")]
    SmallNode {
        node: NodeId,
        pages: u64,
        least: u64,
    },
    #[error("hot-page tracking: {0}")]
    Tracking(#[from] memtide_core::hotness::ConfigError),
    #[error("machine: {0}")]
    Machine(String),
}
