//! What a simulated machine is made of, as plain validated data.
//!
//! All figures are those of the real machine; the engine divides by the scale where it builds on them.
//! Units: bytes, nanoseconds, bytes a second.

mod read;

pub use read::ReadFile;

use memtide_core::mempolicy::curve::Curve;
use memtide_core::topology::Topology;

/// A machine.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// Its name.
    pub name: String,
    /// What it is, in a sentence or two.
    pub about: String,
    /// Nodes, ids ascending, at most [`crate::page::MAX_NODES`].
    pub nodes: Vec<NodeSpec>,
    /// Nodes, tiers and distances as the decisions see them.
    pub topology: Topology,
    /// Processors, all alike.
    pub cpu: CpuSpec,
    /// What the kernel's work costs.
    pub costs: Costs,
    /// Kernel settings that depend on the machine.
    pub min_free_bytes: u64,
    /// `vm.watermark_scale_factor`.
    pub watermark_scale_factor: u64,
    /// What files are read from; `None`: reading takes no longer than filling a page.
    pub storage: Option<StorageSpec>,
    /// Links between nodes that carry less than the memory behind them. No two carry the same pair.
    pub links: Vec<LinkSpec>,
}

/// A link: what CPUs of one side want of memory of the other goes over it.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Ids of the nodes on either side.
    pub sides: [Vec<u16>; 2],
    /// What goes towards the first side, and what towards the second; of a link that is one pipe, the
    /// same figure for both together.
    pub bytes_per_s: [f64; 2],
    /// Whether each direction has its own.
    pub duplex: bool,
    /// How latency of what goes over it grows with its load.
    pub loaded: LoadedLatency,
}

/// A storage device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StorageSpec {
    /// From a request to its first byte.
    pub latency_ns: f64,
    /// What it delivers to all readers together.
    pub bytes_per_s: f64,
    /// Bytes that are read at once, of a file that is read in order.
    pub readahead_bytes: u64,
}

/// A node.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Its id.
    pub id: u16,
    /// Its memory.
    pub capacity_bytes: u64,
    /// How many CPUs it has.
    pub cpus: u32,
    /// Its memory; what a CPU of another node sees is multiplied by `seen_from`.
    pub memory: MemorySpec,
    /// Latency factor seen from node n, by position in [`MachineSpec::nodes`]; 1.0 on itself.
    pub seen_from: Vec<f64>,
}

/// A node's memory.
#[derive(Clone, Debug)]
pub struct MemorySpec {
    /// Latency of a read on an idle machine.
    pub read_ns: f64,
    /// Latency of a write (or of the line that it needs) on an idle machine.
    pub write_ns: f64,
    /// Highest sustained reads.
    pub read_bytes_per_s: f64,
    /// Highest sustained writes.
    pub write_bytes_per_s: f64,
    /// Whether reads and writes have a channel each, as over CXL; else they share one in time.
    pub duplex: bool,
    /// How latency grows with load.
    pub loaded: LoadedLatency,
}

/// How latency grows with the share of bandwidth in use.
#[derive(Clone, Debug)]
pub enum LoadedLatency {
    /// The three regions: constant, linear, steep.
    Regions {
        /// End of the constant region, as a share of bandwidth.
        flat_until: f64,
        /// End of the linear region.
        linear_until: f64,
        /// Latency factor there.
        linear_factor: f64,
        /// Latency factor at full bandwidth.
        peak_factor: f64,
    },
    /// A measured curve.
    Measured(Curve),
}

/// Processors.
#[derive(Clone, Debug)]
pub struct CpuSpec {
    /// L1 TLB entries for 4 KiB and 2 MiB pages.
    pub l1_tlb_4k: u32,
    /// See `l1_tlb_4k`.
    pub l1_tlb_2m: u32,
    /// Second-level entries, both sizes.
    pub l2_tlb: u32,
    /// Ways of the second level.
    pub l2_tlb_ways: u32,
    /// A hit in the second level.
    pub l2_tlb_ns: f64,
    /// A page walk without the access to the entry itself.
    pub walk_ns: f64,
    /// A walk that ends at a 2 MiB entry.
    pub walk_huge_ns: f64,
    /// CPUs that share a last-level cache.
    pub llc_cpus: u32,
    /// Bytes of one last-level cache; 0: none.
    pub llc_bytes: u64,
    /// A hit in it.
    pub llc_ns: f64,
    /// A line from another CPU's cache.
    pub cache_to_cache_ns: f64,
    /// Misses of one CPU under way at once, by kind of access; at least 1.
    pub mlp_dependent: f64,
    /// Independent addresses, not in order.
    pub mlp_random: f64,
    /// In order, with hardware prefetching.
    pub mlp_sequential: f64,
}

/// What the kernel's work costs, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Costs {
    /// A page fault: entry, exit, bookkeeping.
    pub fault_ns: f64,
    /// Clearing a new page, besides its memory traffic.
    pub clear_page_ns: f64,
    /// Handling a hint fault without a move.
    pub hint_fault_ns: f64,
    /// Telling of a page fault, where perf listens to it.
    pub fault_record_ns: f64,
    /// Arming one entry in a hint scan.
    pub scan_pte_ns: f64,
    /// Looking at one entry in an accessed-bit scan.
    pub age_pte_ns: f64,
    /// Moving one page: unmap, copy set-up, remap, besides copy traffic.
    pub migrate_page_ns: f64,
    /// Per batch of moves.
    pub migrate_batch_ns: f64,
    /// Sending a shootdown to anybody.
    pub ipi_send_ns: f64,
    /// For each CPU that gets it.
    pub ipi_each_ns: f64,
    /// What a CPU that gets it loses.
    pub ipi_receive_ns: f64,
    /// A sampler's interrupt.
    pub sample_interrupt_ns: f64,
    /// Recording one sample later.
    pub sample_work_ns: f64,
    /// Setting a sampler anew for another thread.
    pub sampler_switch_ns: f64,
    /// Putting a thread to sleep that waits for a page, and waking it.
    pub sleep_ns: f64,
    /// Recording one access in the hotness store.
    pub record_ns: f64,
    /// Reclaim's work per page looked at.
    pub reclaim_page_ns: f64,
}

impl Default for Costs {
    /// Values that the documents report where they do, else common ones for current servers.
    fn default() -> Self {
        Costs {
            fault_ns: 500.0,
            clear_page_ns: 150.0,
            hint_fault_ns: 1000.0,
            // 790 to 920 ns on the development machine, a virtual one; half of that here.
            fault_record_ns: 400.0,
            scan_pte_ns: 15.0,
            age_pte_ns: 4.0,
            migrate_page_ns: 1500.0,
            migrate_batch_ns: 1000.0,
            ipi_send_ns: 300.0,
            ipi_each_ns: 30.0,
            ipi_receive_ns: 700.0,
            sample_interrupt_ns: 1260.0,
            sample_work_ns: 400.0,
            sampler_switch_ns: 1350.0,
            sleep_ns: 2000.0,
            record_ns: 60.0,
            reclaim_page_ns: 250.0,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
