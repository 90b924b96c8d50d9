//! What can go wrong in a world, put there on purpose.
//!
//! A world as it is made has no faults but those of its machine: a full node, a
//! page on the move, a process that ends. Tests and swarms add the rest.

use memtide_core::tiering::space::VirtualPage;
use memtide_loop::world::{Outcome, ProcessId};

/// Says of a page that is to move what becomes of it, if not what the machine does.
pub type MoveFault = Box<dyn FnMut(ProcessId, VirtualPage) -> Option<Outcome> + Send>;

/// See the module's essay. The default is none.
#[derive(Default)]
pub struct Faults {
    /// By how much passes of sources take longer than they should; 0 and 1: not at all.
    pub pass_slowdown: u64,
    /// Whatever sources tell is lost.
    pub lose_reports: bool,
    /// All sources are broken: whoever waits or begins a view is told this.
    pub broken: Option<String>,
    /// Nobody may be looked at: surveys and mappings fail so.
    pub forbidden: bool,
    /// Moves that end in another way.
    pub moves: Option<MoveFault>,
    /// The clock stands still at this time.
    pub clock_stands_at_ns: Option<u64>,
    /// Nobody can tell how late nodes answer.
    pub no_canary: bool,
    /// By how much the clock is ahead.
    pub clock_leaps_ns: u64,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults")
            .field("pass_slowdown", &self.pass_slowdown)
            .field("lose_reports", &self.lose_reports)
            .field("broken", &self.broken)
            .field("forbidden", &self.forbidden)
            .field("moves", &self.moves.is_some())
            .field("clock_stands_at_ns", &self.clock_stands_at_ns)
            .field("no_canary", &self.no_canary)
            .field("clock_leaps_ns", &self.clock_leaps_ns)
            .finish()
    }
}
