//! Moves pages, and says for every page what became of it.
//!
//! # Problem
//!
//! `move_pages(2)` is the only stock way to put exactly these pages on exactly
//! that node, and its answers are not enough to know what it did. A call that
//! fails in part leaves the status of a whole run of pages unwritten although
//! most of them moved; an error in the middle hides which pages were tried; a
//! page that was there already looks like one that moved; one page of an awkward
//! kind cuts the run that the kernel would have moved together. (Measured on
//! Linux 6.12 and 7.2: 8 of 64 pages pinned: returns 8, no status written, 56
//! moved. Target full: `ENOMEM`, no status written, 4,025 of 65,536 moved.)
//!
//! # Approach
//!
//! A *batch* is pages of one target, each once, in order of address. It runs
//! in four steps:
//!
//! 1. *Is it still the process?* The caller's check runs before every call, so
//!    that a pid which was given to another process is not touched.
//! 2. *Ask* where the pages are. This settles pages that are absent, that cannot
//!    move or that are there already. What is left is one unbroken run, and
//!    "moved" means moved. Asking costs about a fortieth of moving.
//! 3. *Move*, with every status set to a sentinel that the kernel never writes.
//! 4. *Settle.* A written status is final. If the call did not return zero, the
//!    pages whose status is still the sentinel are asked again: those on the
//!    target moved. The kernel works in runs, so the rest divides at the first
//!    status that was written after the sentinels began: pages before it were
//!    tried and take the call's error; pages after it were never tried and go
//!    through step 3 again.
//!
//! Shared pages (`EACCES` as a page's status) run once more with
//! `MPOL_MF_MOVE_ALL` if the caller wants that and the kernel permits it.
//!
//! # Properties
//!
//! - Every distinct page of the list gets exactly one [`Outcome`], whatever
//!   call fails in whatever way. (The tests fail each call in turn.)
//! - Each round of steps 3 and 4 settles a page, so a batch ends.
//! - A call names at most [`Config::batch`] base pages, or one huge page (which
//!   counts as all that are in it): the pages of a batch are unmapped together, and a
//!   thread that touches one waits until it is copied.
//! - After the first batch nothing is allocated.
//!
//! What cannot be closed: between the check and the call the process may end and
//! its number be taken. The kernel has no call that takes a pidfd. The window
//! is the length of one system call, and the new process's pages would be moved,
//! not harmed.

mod batch;
mod kernel;
mod locate;
#[cfg(test)]
mod model;
mod outcome;
mod stop;

pub use crate::fs::proc::Process;
pub use kernel::Kernel;
pub use locate::{Located, Locator, Run};
pub use memtide_loop::world::SharedPages;
pub use outcome::{Outcome, Settled, Sums};

use batch::Batch;
use memtide_core::units::{NodeId, PageSize};
use stop::Stop;

/// Pages that shall go to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Address of the first page. Rounded down to a page, for a huge one to a
    /// huge page.
    pub address: usize,
    /// How many base pages. For huge pages a multiple of those in one; what is
    /// over counts as a whole one.
    pub pages: usize,
    /// Whether the page table maps them as huge pages. Then one address names
    /// each, and it moves unsplit. If that is no longer so, only the first base
    /// page of each moves: scan again to see it.
    pub huge: bool,
    /// Where to.
    pub target: NodeId,
}

/// How a [`Mover`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Base pages a call. Measured in the test guest on Linux 6.12 and 7.2, in
    /// thousands of pages a second for 512, 1024, 2048, 4096: idle process 50,
    /// 53, 55, 53 and 39, 50, 52, 53; a process that touches the pages all the
    /// time 29, 33, 24, 25 and 30, 35, 33, 24, and from 2048 on more pages are
    /// found busy. So 1024 is the default.
    pub batch: usize,
    /// The base page.
    pub base: PageSize,
    /// Base pages in a huge page (x86-64: 512).
    pub huge_pages: usize,
    /// What to do with shared pages.
    pub shared: SharedPages,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            batch: 1024,
            base: PageSize::KIB_4,
            huge_pages: 512,
            shared: SharedPages::Leave,
        }
    }
}

/// Moves lists of pages. Keep one: its buffers are what makes it cheap.
#[derive(Debug)]
pub struct Mover<K> {
    kernel: K,
    config: Config,
    batch: Batch,
}

impl<K: Kernel> Mover<K> {
    /// A mover over `kernel`. A batch or huge page of zero pages means one.
    pub fn new(kernel: K, config: Config) -> Mover<K> {
        Mover {
            kernel,
            config: Config {
                batch: config.batch.max(1),
                huge_pages: config.huge_pages.max(1),
                ..config
            },
            batch: Batch::default(),
        }
    }

    /// From now on moves in batches of `batch` base pages, shared ones as said.
    pub fn set_how(&mut self, batch: usize, shared: SharedPages) {
        self.config.batch = batch.max(1);
        self.config.shared = shared;
    }

    /// The kernel that this mover calls.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Moves `moves`, best sorted by target and then by address: a batch ends
    /// where the target changes. Reports every distinct page once; a page named
    /// again in the same batch is only counted in [`Sums::duplicates`], named in
    /// a later batch it is reported for that batch too.
    pub fn run(&mut self, process: Process, moves: &[Move], mut on: impl FnMut(Settled)) -> Sums {
        let mut sums = Sums::default();
        let mut pages = moves
            .iter()
            .flat_map(|m| addresses(*m, self.config))
            .peekable();
        let mut stop = None;
        while let Some(&(_, first)) = pages.peek() {
            if stop.is_some_and(|stop: Stop| !stop.holds_for(first.target)) {
                stop = None;
            }
            self.batch.start(process, first.target, self.config);
            let batch = &mut self.batch;
            let same = |m: &Move| m.target == first.target;
            while pages
                .next_if(|(address, m)| same(m) && batch.push(*address, m.huge))
                .is_some()
            {}
            batch.settle(&mut self.kernel, &mut stop, &mut |settled| {
                sums.count(&settled);
                on(settled);
            });
            sums.duplicates += batch.duplicates();
        }
        sums
    }
}

/// The addresses that name the pages of `m`, one a page or huge page.
fn addresses(m: Move, config: Config) -> impl Iterator<Item = (usize, Move)> {
    let step = page_bytes(m.huge, config);
    let first = m.address / step * step;
    let end = m
        .address
        .saturating_add(m.pages.saturating_mul(page_bytes(false, config)));
    (first..end).step_by(step).map(move |address| (address, m))
}

fn page_bytes(huge: bool, config: Config) -> usize {
    let base = config.base.bytes() as usize;
    if huge { base * config.huge_pages } else { base }
}

#[cfg(test)]
mod tests;
