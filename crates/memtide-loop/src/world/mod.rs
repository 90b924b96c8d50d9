//! The machine as the loop sees it: live, simulated, or read from a journal.
//!
//! # Problem
//!
//! What memtide does has to be the same code on a running kernel and on a
//! machine made of numbers. Then a terabyte, a busy machine, a move that fails
//! or a process that dies in the middle can be tried in milliseconds, and a
//! live run can be written down and run again.
//!
//! # Approach
//!
//! [`World`] is all that the loop asks and all that it does. It is in five
//! groups: time, processes, memory, sources of accesses, and threads. A world
//! has no opinion: it never chooses a page, a moment or a source.
//!
//! The loop waits in one place only, [`World::wait`]. A live world sleeps
//! there until a source has something; a simulated one runs its machine on.
//! Every other call takes as long as it takes, and [`World::now_ns`] tells.
//!
//! # Properties that a world must have
//!
//! - *Identity.* A pid may be used again. [`ProcessId`] and [`ThreadId`] hold
//!   the start time, and a world compares it before it does anything to a
//!   process. For one that is gone it answers [`Presence::Gone`] or
//!   [`Outcome::ProcessGone`], never with its successor's pages.
//! - *Order.* What [`World::survey`] finds is in order of address. What came of
//!   one source is in the order in which that source saw it.
//! - *Truth.* A pass that lost a report is not complete. A window in which
//!   samples were lost is in [`Came::invalid`], and its samples are withheld.
//! - *Cost.* Calls are for batches. Buffers are the caller's and used again;
//!   nothing is allocated for a page.
//! - *Restitution.* After [`World::close`] everything that a source changed is
//!   as it was; after [`World::put_back`] every affinity that was lent.
//!
//! The trait can be used as an object. All that it speaks is plain data with
//! `serde`, so that a journal can hold each call and its answer.

mod class_use;
mod error;
mod memory;
mod process;
mod sources;

pub use class_use::{ClassUse, Nesting};
pub use error::WorldError;
pub use memory::{
    Counted, Found, HUGE_PAGES, MoveHow, Outcome, PageRun, Settled, SharedPages, Sought, Span,
    Stalls,
};
pub use process::{
    AddressSpace, Affinity, Allowed, Area, Backing, ClassId, Fixed, Kept, Lend, MemoryKind,
    Presence, ProcessId, ProcessSeen, ThreadId, ThreadSeen,
};
pub use sources::{
    Abilities, Came, Invalid, Notice, Report, Sample, SourceId, SourceInfo, SourceStatus, Subject,
    View,
};

use memtide_core::pages::NodeSpace;
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, NodeId, PageSize};

/// A machine. See the module's essay for what it must hold to.
pub trait World {
    // Time.

    /// Nanoseconds since the world began; never less than before, but it may
    /// stand still or leap.
    fn now_ns(&mut self) -> u64;

    /// [`World::now_ns`] in milliseconds.
    fn now(&mut self) -> Millis {
        Millis(self.now_ns() / 1_000_000)
    }

    /// Milliseconds from the machine's boot to the world's beginning.
    fn boot_ms(&self) -> u64;

    /// Processor time that this process has used since the world began, in
    /// nanoseconds.
    fn own_cpu_ns(&mut self) -> u64;

    /// Lets `ms` milliseconds pass, or fewer, without looking at any source.
    fn rest(&mut self, ms: u64);

    // The machine.

    /// The base page.
    fn page(&self) -> PageSize;

    /// The nodes and their tiers, as of the beginning. Where nodes come or go, a
    /// run ends and another one begins.
    fn topology(&self) -> &Topology;

    /// The room on every node that holds memory, ascending; replaces what
    /// `rooms` held. Watermarks are the kernel's own. A node that does not say
    /// how much is free is left out.
    fn rooms(&mut self, rooms: &mut Vec<(NodeId, NodeSpace)>) -> Result<(), WorldError>;

    /// Whether the world can tell how late its nodes answer. It does not change.
    fn has_canary(&self) -> bool {
        false
    }

    /// The latency of a dependent load from memory on `node` under the present
    /// load, in nanoseconds, from a few loads in memory of our own: some ten
    /// microseconds of ours. `None` where the world cannot measure it, or cannot
    /// now. Asked only of a world that [has canaries](World::has_canary).
    fn canary(&mut self, node: NodeId) -> Result<Option<u32>, WorldError> {
        let _ = node;
        Ok(None)
    }

    /// Whether the world can tell for how long programs wait for memory. It does not
    /// change.
    fn has_pressure(&self) -> bool {
        false
    }

    /// For how long programs have waited for memory; replaces what `stalls` held. Asked
    /// only of a world that [tells of pressure](World::has_pressure).
    fn pressure(&mut self, stalls: &mut Stalls) -> Result<(), WorldError> {
        *stalls = Stalls::default();
        Ok(())
    }

    // Processes.

    /// All processes that the world was told to manage and that have memory of
    /// their own, ascending by pid; replaces what `seen` held. A process that
    /// was named by its pid is listed only as long as it is that process.
    fn processes(&mut self, seen: &mut Vec<ProcessSeen>) -> Result<(), WorldError>;

    /// What each class uses of fast memory, by [`ClassId`]: all that is charged to it,
    /// whoever maps it; and which of them contains it. No class contains one that
    /// contains it. Replaces what `used` held. Called only if there are classes.
    fn class_use(&mut self, used: &mut Vec<ClassUse>) -> Result<(), WorldError> {
        used.clear();
        Ok(())
    }

    /// Reads the mappings of `process` and what its owner allows; replaces what
    /// `into` held, unless the process is gone.
    fn address_space(
        &mut self,
        process: ProcessId,
        into: &mut AddressSpace,
    ) -> Result<Presence, WorldError>;

    // Memory.

    /// Where the present pages of `spans` are, in order of address, as runs;
    /// pages that belong to no node are left out. `spans` are ascending and do
    /// not overlap. It costs time in proportion to the present pages: much for a
    /// page of a span whose node is not known, little for other pages, and next
    /// to nothing for huge ones.
    fn survey(
        &mut self,
        process: ProcessId,
        spans: &[Sought],
        found: &mut dyn FnMut(Found),
    ) -> Result<Presence, WorldError>;

    /// Moves `runs` of `process`, ascending, to `target`; adds what became of
    /// them to `settled` as runs of one outcome, every page exactly once. A
    /// page of a run that is marked huge moves with the 2 MiB around it.
    ///
    /// The kernel forgets all translations of a process when it moves any page
    /// of it. The loop makes use of that (see `tier::flusher`), so a simulated
    /// world has to do so, too.
    fn move_pages(
        &mut self,
        process: ProcessId,
        target: NodeId,
        runs: &[PageRun],
        how: MoveHow,
        settled: &mut Vec<Settled>,
    );

    // Sources of accesses.

    /// The sources at hand, by their ids. The list never changes; a source that
    /// broke stays in it.
    fn sources(&self) -> &[SourceInfo];

    /// What `source` has cost and lost by now.
    fn source_status(&mut self, source: SourceId) -> SourceStatus;

    /// Has `source` look at every page of `subjects` in passes of about
    /// `interval_ms`, until told otherwise; an empty list ends the look.
    /// Returns how many of the pages it takes in: it may be that it cannot take
    /// all at once.
    fn look(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<u64, WorldError>;

    /// Has `source` glance at the spans of `subjects`, each as a whole, in
    /// passes of about `interval_ms`, until told otherwise; an empty list ends
    /// it. A source without glances does nothing.
    fn glance(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<(), WorldError>;

    /// Has `view` of `source` end with the pass that is under way, whose reports come as
    /// ever. A kernel's thread that is turned off makes its pass anyway: it costs the same, and
    /// whoever begins another view waits for it. Nothing if there is none. A source that ends
    /// at once when it is told to need not do anything.
    fn finish_view(&mut self, source: SourceId, view: View) -> Result<(), WorldError> {
        let _ = (source, view);
        Ok(())
    }

    /// Whether `source` cuts what it is to glance at into pieces by itself.
    fn cuts(&mut self, source: SourceId) -> bool {
        let _ = source;
        false
    }

    /// As [`World::glance`], of a source that cuts: each span is cut into pieces
    /// of `piece` pages from its beginning on, and each piece is glanced at as a
    /// whole. Reports name pieces.
    fn glance_in_pieces(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        piece: u64,
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        let _ = piece;
        self.glance(source, subjects, interval_ms)
    }

    /// Has `source` sample the accesses of `processes`, and of nobody else,
    /// until told otherwise. Only of a source with [`Abilities::samples`].
    fn sample(&mut self, source: SourceId, processes: &[ProcessId]) -> Result<(), WorldError> {
        let _ = (source, processes);
        Ok(())
    }

    /// Looks for threads and CPUs that came or went, for a source that attaches
    /// to each. True if it never had its unit although it was on for a while:
    /// somebody else keeps it.
    fn attend(&mut self, source: SourceId) -> Result<bool, WorldError> {
        let _ = source;
        Ok(false)
    }

    /// Sets the source's periods by what came during the last `elapsed_ms`, so
    /// that samples come at `percent` of the rate that it was opened with.
    fn adapt(&mut self, source: SourceId, elapsed_ms: u64, percent: u32) {
        let _ = (source, elapsed_ms, percent);
    }

    /// Does what provokes accesses of a source that sees nothing otherwise,
    /// where that is due.
    fn provoke(&mut self, source: SourceId) -> Result<(), WorldError> {
        let _ = source;
        Ok(())
    }

    /// Lets time pass until a source has something to tell, `at_most_ms` at
    /// most, and adds what came from all sources to `came`. It may return early,
    /// and with nothing.
    fn wait(&mut self, at_most_ms: u64, came: &mut Came) -> Result<(), WorldError>;

    /// Ends all looks, glances and sampling, and puts back what sources changed
    /// to observe.
    fn close(&mut self) -> Result<(), WorldError>;

    // Threads.

    /// The thread that has number `tid` in process `pid` now; `None` if it has
    /// ended.
    fn thread(&mut self, pid: u32, tid: u32) -> Result<Option<ThreadSeen>, WorldError> {
        let _ = (pid, tid);
        Ok(None)
    }

    /// Has `thread` run on the CPUs of `node`, or says what it would get. What
    /// is lent is noted before it changes.
    fn lend_affinity(&mut self, thread: ThreadId, node: NodeId, how: Lend) -> Affinity {
        let _ = (thread, node, how);
        Affinity::Kept(Kept::Unsupported)
    }

    /// How many threads have an affinity from us at present.
    fn lent(&self) -> usize {
        0
    }

    /// Gives the threads of `process`, and those that have it from them, back the CPUs that they
    /// had. How many were freed. It may be gone.
    fn put_back_of(&mut self, process: ProcessId) -> Result<usize, WorldError> {
        let _ = process;
        Ok(0)
    }

    /// Gives every thread back the CPUs that it had. How many were freed.
    fn put_back(&mut self) -> Result<usize, WorldError> {
        Ok(0)
    }
}
