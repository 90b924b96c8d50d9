//! One batch: ask, move, settle (the steps are explained in [`super`]).

use super::Process;
use super::kernel::Kernel;
use super::outcome::{self, Outcome, Settled};
use super::stop::{Scope, Stop};
use super::{Config, SharedPages};
use crate::sys::Errno;
use crate::sys::move_pages::MoveFlags;
use memtide_core::units::NodeId;

/// A status that the kernel never writes: neither a node nor an errno.
pub(super) const SENTINEL: i32 = i32::MIN;

/// A page or huge page of the batch.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: usize,
    /// Base pages in it; more than one means huge.
    pages: usize,
    /// Its node before the move, once known.
    from: NodeId,
}

impl Entry {
    fn huge(&self) -> bool {
        self.pages > 1
    }
}

/// Buffers of a batch, reused for the next.
#[derive(Debug)]
pub(super) struct Batch {
    process: Process,
    target: NodeId,
    config: Config,
    entries: Vec<Entry>,
    weight: usize,
    duplicates: usize,
    /// Entries that have one.
    settled: usize,
    /// Entries that have no outcome yet and take part in the next call.
    todo: Vec<u32>,
    /// What `todo` was in the last call.
    tried: Vec<u32>,
    /// Entries that wait for the round with `MoveFlags::All`.
    shared: Vec<u32>,
    /// The kernel refused `MoveFlags::All` once; a capability does not return.
    all_refused: bool,
    pages: Vec<usize>,
    nodes: Vec<i32>,
    status: Vec<i32>,
    again: Vec<i32>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            process: Process {
                pid: u32::MAX,
                start_ticks: 0,
            },
            target: NodeId(0),
            config: Config::default(),
            entries: Vec::new(),
            weight: 0,
            duplicates: 0,
            settled: 0,
            todo: Vec::new(),
            tried: Vec::new(),
            shared: Vec::new(),
            all_refused: false,
            pages: Vec::new(),
            nodes: Vec::new(),
            status: Vec::new(),
            again: Vec::new(),
        }
    }
}

impl Batch {
    /// Empties the batch for pages of `process` that go to `target`.
    pub(super) fn start(&mut self, process: Process, target: NodeId, config: Config) {
        self.process = process;
        self.target = target;
        self.config = config;
        self.entries.clear();
        self.weight = 0;
        self.duplicates = 0;
        self.settled = 0;
    }

    /// Adds a page unless the batch is full. An empty batch takes anything.
    pub(super) fn push(&mut self, address: usize, huge: bool) -> bool {
        let pages = if huge { self.config.huge_pages } else { 1 };
        if !self.entries.is_empty() && self.weight + pages > self.config.batch {
            return false;
        }
        self.weight += pages;
        self.entries.push(Entry {
            address,
            pages,
            from: NodeId(0),
        });
        true
    }

    /// Requests that the last batch dropped because it had the page already.
    pub(super) fn duplicates(&self) -> usize {
        self.duplicates
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let indices = self.todo.capacity() + self.tried.capacity() + self.shared.capacity();
        let numbers = self.nodes.capacity() + self.status.capacity() + self.again.capacity();
        self.entries.capacity() + self.pages.capacity() + indices + numbers
    }

    /// Gives every page its outcome.
    pub(super) fn settle(
        &mut self,
        kernel: &mut impl Kernel,
        stop: &mut Option<Stop>,
        on: &mut dyn FnMut(Settled),
    ) {
        self.ask_and_move(kernel, stop, on);
        self.all_settled();
    }

    /// Whoever decides next takes a page without an outcome for one that stayed.
    fn all_settled(&self) {
        let (settled, entries) = (self.settled, self.entries.len());
        assert_eq!(settled, entries, "each page of a batch has one outcome");
    }

    fn ask_and_move(
        &mut self,
        kernel: &mut impl Kernel,
        stop: &mut Option<Stop>,
        on: &mut dyn FnMut(Settled),
    ) {
        self.remove_duplicates();
        self.shared.clear();
        self.todo.clear();
        self.todo.extend(0..self.entries.len() as u32);
        if let Some(Stop {
            outcome,
            scope: Scope::Process,
        }) = *stop
        {
            self.settle_all(outcome, on);
            return;
        }
        self.find_origins(kernel, stop, on);
        while !self.todo.is_empty() {
            self.attempt(kernel, MoveFlags::Exclusive, stop, on);
        }
        std::mem::swap(&mut self.todo, &mut self.shared);
        while !self.todo.is_empty() {
            self.attempt(kernel, MoveFlags::All, stop, on);
        }
    }

    /// Sorts by address and drops pages that are named twice, those inside of a
    /// huge page of the batch included: the kernel would answer `EBUSY`.
    fn remove_duplicates(&mut self) {
        let by_address = |e: &Entry| (e.address, !e.huge());
        if !self.entries.is_sorted_by_key(by_address) {
            self.entries.sort_unstable_by_key(by_address);
        }
        let bytes = self.config.base.bytes() as usize;
        let before = self.entries.len();
        self.entries
            .dedup_by(|next, kept| next.address - kept.address < kept.pages * bytes);
        self.duplicates = before - self.entries.len();
    }

    /// Step 2: settles what is there already and what is nowhere.
    fn find_origins(
        &mut self,
        kernel: &mut impl Kernel,
        stop: &mut Option<Stop>,
        on: &mut dyn FnMut(Settled),
    ) {
        if self.todo.is_empty() {
            return;
        }
        self.fill_pages();
        let answer = query(kernel, self.process, &self.pages, &mut self.status);
        if let Err(errno) = answer {
            self.abandon(outcome::of_query(errno), stop, on);
            return;
        }
        let mut todo = std::mem::take(&mut self.todo);
        let mut position = 0;
        todo.retain(|&index| {
            let status = self.status[position];
            position += 1;
            match node(status) {
                Some(node) if node == self.target => self.report(index, Outcome::AlreadyThere, on),
                Some(node) => {
                    self.entries[index as usize].from = node;
                    return true;
                }
                None => self.report(index, outcome::of_status(status), on),
            }
            false
        });
        self.todo = todo;
        self.heed(*stop, on);
    }

    /// Steps 3 and 4, once: settles at least one page of `todo`.
    fn attempt(
        &mut self,
        kernel: &mut impl Kernel,
        flags: MoveFlags,
        stop: &mut Option<Stop>,
        on: &mut dyn FnMut(Settled),
    ) {
        self.fill_pages();
        self.nodes.clear();
        self.nodes
            .resize(self.pages.len(), i32::from(self.target.0));
        self.status.clear();
        self.status.resize(self.pages.len(), SENTINEL);
        let result = if kernel.is_same(self.process) {
            let (pages, nodes) = (&self.pages, &self.nodes);
            kernel.move_pages(
                self.process.pid,
                pages,
                Some(nodes),
                &mut self.status,
                flags,
            )
        } else {
            Err(Errno::SRCH)
        };
        if flags == MoveFlags::All && result == Err(Errno::PERM) {
            self.all_refused = true;
            self.settle_all(Outcome::Shared, on);
            return;
        }
        let failure = match result {
            // A zero with unwritten statuses would be a kernel that we do not know.
            Ok(0) => Outcome::Failed(Errno::IO.raw_os_error()),
            Ok(_) => Outcome::Busy,
            Err(errno) => outcome::of_call(errno),
        };
        if matches!(failure, Outcome::ProcessGone | Outcome::NotPermitted) {
            self.abandon(failure, stop, on);
            return;
        }
        let run = tried_in_vain(&self.status);
        std::mem::swap(&mut self.todo, &mut self.tried);
        self.todo.clear();
        let tried = std::mem::take(&mut self.tried);
        for (position, &index) in tried.iter().enumerate() {
            if self.status[position] != SENTINEL {
                self.settle_written(index, self.status[position], flags, on);
            } else if !run.contains(&position) {
                self.todo.push(index);
            }
        }
        if !run.is_empty() {
            self.again.clear();
            self.again.resize(run.len(), SENTINEL);
            let answer = query(
                kernel,
                self.process,
                &self.pages[run.clone()],
                &mut self.again,
            );
            self.settle_run(&tried[run], answer, failure, stop, on);
        }
        self.tried = tried;
        self.heed(*stop, on);
    }

    /// A status that the kernel wrote while moving is final, except that shared
    /// pages may get another round.
    fn settle_written(
        &mut self,
        index: u32,
        status: i32,
        flags: MoveFlags,
        on: &mut dyn FnMut(Settled),
    ) {
        let outcome = match node(status) {
            Some(node) if node == self.target => Outcome::Moved {
                from: self.entries[index as usize].from,
            },
            Some(_) => Outcome::Busy,
            None => outcome::of_status(status),
        };
        let once_more = self.config.shared == SharedPages::Move && !self.all_refused;
        if outcome == Outcome::Shared && flags == MoveFlags::Exclusive && once_more {
            self.shared.push(index);
        } else {
            self.report(index, outcome, on);
        }
    }

    /// Settles a run whose statuses the kernel did not write, from the answer
    /// in `again`: what did not move takes the call's `failure`.
    fn settle_run(
        &mut self,
        run: &[u32],
        answer: Result<(), Errno>,
        failure: Outcome,
        stop: &mut Option<Stop>,
        on: &mut dyn FnMut(Settled),
    ) {
        if let Err(errno) = answer {
            self.todo.extend(run);
            self.abandon(outcome::of_query(errno), stop, on);
            return;
        }
        // A full node refuses huge pages first, and then nobody knows whether
        // the base pages of the same run were tried.
        let elsewhere = |status: i32| node(status).is_some_and(|node| node != self.target);
        let huge_failed = run
            .iter()
            .zip(&self.again)
            .any(|(&index, &status)| self.entries[index as usize].huge() && elsewhere(status));
        let spare_base = failure == Outcome::NoMemory && huge_failed;
        for (position, &index) in run.iter().enumerate() {
            let status = self.again[position];
            let entry = self.entries[index as usize];
            match node(status) {
                Some(node) if node == self.target => {
                    self.report(index, Outcome::Moved { from: entry.from }, on);
                }
                Some(_) if spare_base && !entry.huge() => self.todo.push(index),
                Some(_) => {
                    self.report(index, failure, on);
                    let scope = match failure {
                        Outcome::NoMemory if spare_base => Scope::HugeOn(self.target),
                        Outcome::NoMemory | Outcome::NotAllowed | Outcome::NoSuchNode => {
                            Scope::Target(self.target)
                        }
                        _ => continue,
                    };
                    *stop = Some(Stop {
                        outcome: failure,
                        scope,
                    });
                }
                None => self.report(index, outcome::of_status(status), on),
            }
        }
    }

    /// Ends the batch with one outcome for all that is open, and the list if
    /// the outcome is the process's.
    fn abandon(&mut self, outcome: Outcome, stop: &mut Option<Stop>, on: &mut dyn FnMut(Settled)) {
        let mut shared = std::mem::take(&mut self.shared);
        self.todo.append(&mut shared);
        self.shared = shared;
        self.settle_all(outcome, on);
        if matches!(outcome, Outcome::ProcessGone | Outcome::NotPermitted) {
            *stop = Some(Stop {
                outcome,
                scope: Scope::Process,
            });
        }
    }

    /// Settles those of `todo` that `stop` says are not worth trying. (Only
    /// after their origins are known: a page may be on a full node already.)
    fn heed(&mut self, stop: Option<Stop>, on: &mut dyn FnMut(Settled)) {
        let Some(stop) = stop else { return };
        let mut todo = std::mem::take(&mut self.todo);
        todo.retain(|&index| {
            let stopped = match stop.scope {
                Scope::Process | Scope::Target(_) => true,
                Scope::HugeOn(_) => self.entries[index as usize].huge(),
            };
            if stopped {
                self.report(index, stop.outcome, on);
            }
            !stopped
        });
        self.todo = todo;
    }

    fn settle_all(&mut self, outcome: Outcome, on: &mut dyn FnMut(Settled)) {
        let mut todo = std::mem::take(&mut self.todo);
        for index in todo.drain(..) {
            self.report(index, outcome, on);
        }
        self.todo = todo;
    }

    fn report(&mut self, index: u32, outcome: Outcome, on: &mut dyn FnMut(Settled)) {
        self.settled += 1;
        let entry = self.entries[index as usize];
        on(Settled {
            address: entry.address,
            pages: entry.pages,
            target: self.target,
            outcome,
        });
    }

    fn fill_pages(&mut self) {
        self.pages.clear();
        let entries = &self.entries;
        self.pages.extend(
            self.todo
                .iter()
                .map(|&index| entries[index as usize].address),
        );
        self.status.clear();
        self.status.resize(self.pages.len(), SENTINEL);
    }
}

/// Asks where `pages` are. `status` must hold sentinels.
pub(super) fn query(
    kernel: &mut impl Kernel,
    process: Process,
    pages: &[usize],
    status: &mut [i32],
) -> Result<(), Errno> {
    if !kernel.is_same(process) {
        return Err(Errno::SRCH);
    }
    kernel
        .move_pages(process.pid, pages, None, status, MoveFlags::Exclusive)
        .map(drop)
}

/// The node that a status names, if it names one.
pub(super) fn node(status: i32) -> Option<NodeId> {
    u16::try_from(status).ok().map(NodeId)
}

/// The positions that one failed run covered: from the first unwritten status
/// to the next written one.
fn tried_in_vain(status: &[i32]) -> std::ops::Range<usize> {
    let start = status
        .iter()
        .position(|&s| s == SENTINEL)
        .unwrap_or(status.len());
    let run = status[start..]
        .iter()
        .take_while(|&&s| s == SENTINEL)
        .count();
    start..start + run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "each page of a batch has one outcome")]
    fn a_page_without_an_outcome_is_noticed() {
        let process = Batch::default().process;
        let mut batch = Batch::default();
        batch.start(process, NodeId(1), Config::default());
        batch.push(4096, false);
        batch.all_settled();
    }

    #[test]
    fn a_failed_run_ends_where_the_kernel_wrote_again() {
        let s = SENTINEL;
        assert_eq!(tried_in_vain(&[2, 2, s, s, -13, s]), 2..4);
        assert_eq!(tried_in_vain(&[s, s]), 0..2);
        assert_eq!(tried_in_vain(&[2, -13]), 2..2);
    }
}
