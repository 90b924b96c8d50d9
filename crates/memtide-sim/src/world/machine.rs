//! What a world needs of a simulated machine.
//!
//! Two machines offer it: the engine's ([`super::Simulated`]), access by
//! access, and one made of rates ([`super::Light`]), for memory too large to
//! be simulated so. Everything else of a world is the same for both: sources,
//! what calls cost, time.
//!
//! Times are of the real machine. Costs that a machine is asked to charge are
//! those of its own pages; where a page stands for S, it multiplies itself.

use memtide_core::pages::NodeSpace;
use memtide_core::topology::Topology;
use memtide_core::units::NodeId;
use memtide_loop::world::{
    AddressSpace, Affinity, Found, Kept, Lend, MoveHow, PageRun, Presence, ProcessId, ProcessSeen,
    Sample, Settled, Span, ThreadId, ThreadSeen, WorldError,
};

/// What is missing of the samples of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Samples that found no room.
    pub lost: u64,
    /// How often a sampler was stopped for a while.
    pub throttled: u64,
}

/// A machine that runs programs, in steps.
pub trait Machine {
    /// Its time, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Runs on for a step at most, to `until_ns` if that comes first; a machine
    /// that goes in quanta may pass it by less than one.
    ///
    /// # Errors
    ///
    /// What the simulated kernel could not do for its programs.
    fn step(&mut self, until_ns: u64) -> Result<(), WorldError>;

    /// Whether its programs are done. Time goes on all the same.
    fn is_over(&self) -> bool;

    /// How many real pages one of its pages stands for.
    fn scale(&self) -> u64;

    /// Nodes and tiers.
    fn topology(&self) -> &Topology;

    /// The room on a node; `None` if it has no memory.
    fn room(&self, node: NodeId) -> Option<NodeSpace>;

    /// A dependent load from `node` under the present load, in nanoseconds.
    fn latency_ns(&self, node: NodeId) -> Option<u32>;

    /// All processes, ascending by pid; adds them to `seen`.
    fn processes(&self, seen: &mut Vec<ProcessSeen>);

    /// The path of a process's cgroup; `None` if it is in the root.
    fn cgroup(&self, process: ProcessId) -> Option<&str> {
        let _ = process;
        None
    }

    /// Tells of each cgroup that programs are in how many pages on each node are charged to it; one
    /// may be told in several parts.
    fn charged(&self, charged: &mut dyn FnMut(&str, NodeId, u64)) {
        let _ = charged;
    }

    /// What a process maps; `into` is untouched if it is gone.
    fn address_space(&self, process: ProcessId, into: &mut AddressSpace) -> Presence;

    /// Where the present pages of a span are, in order; how many there are.
    fn present(&self, process: ProcessId, span: Span, found: &mut dyn FnMut(Found)) -> u64;

    /// Clears the accessed bits of a span, without a flush.
    fn clear_accessed(&mut self, process: ProcessId, span: Span);

    /// Tells of each run of a span's pages whose accessed bit is set. The bits
    /// were cleared `exposed_ns` ago.
    fn accessed(
        &mut self,
        process: ProcessId,
        span: Span,
        exposed_ns: u64,
        touched: &mut dyn FnMut(Span),
    );

    /// Moves the pages of `runs`, one batch; adds what became of each to
    /// `settled`. What that took whoever asked for it, in nanoseconds of the
    /// real machine.
    fn migrate(
        &mut self,
        process: ProcessId,
        target: NodeId,
        runs: &[PageRun],
        how: MoveHow,
        settled: &mut Vec<Settled>,
    ) -> u64;

    /// Somebody beside the programs used a CPU for `ns` of the real machine.
    fn charge(&mut self, ns: u64);

    /// Has the hardware take a sample every `period` operations; 0 ends that.
    fn set_sampling(&mut self, period: u32) {
        let _ = period;
    }

    /// Hands over the samples of the last step: who, on which CPU, and what. What else there was.
    fn take_samples(&mut self, sampled: &mut dyn FnMut(Sample)) -> Missing {
        let _ = sampled;
        Missing::default()
    }

    /// Has perf tell of the minor page faults of the processes with these pids, which ascend, and of no
    /// others. Whether this machine has page faults.
    fn hear_faults(&mut self, pids: &[u32]) -> bool {
        let _ = pids;
        false
    }

    /// Hands over the faults of the last step.
    fn take_faults(&mut self, heard: &mut dyn FnMut(Sample)) {
        let _ = heard;
    }

    /// Write-protects all pages of a process. What that took whoever asked for it, in nanoseconds of the
    /// real machine.
    fn protect(&mut self, process: ProcessId) -> u64 {
        let _ = process;
        0
    }

    /// What the interrupt of a sample costs, in nanoseconds.
    fn sample_ns(&self) -> u64 {
        0
    }

    /// The thread that has number `tid` in process `pid`; `None` if it has ended.
    fn thread(&self, pid: u32, tid: u32) -> Option<ThreadSeen> {
        let _ = (pid, tid);
        None
    }

    /// Has `thread` run on the CPUs of `node`, or says what it would get.
    fn lend_affinity(&mut self, thread: ThreadId, node: NodeId, how: Lend) -> Affinity {
        let _ = (thread, node, how);
        Affinity::Kept(Kept::Unsupported)
    }

    /// Threads that have an affinity that was lent.
    fn lent(&self) -> usize {
        0
    }

    /// Gives every thread back the CPUs that it had. How many were freed.
    fn put_back(&mut self) -> usize {
        0
    }
}
