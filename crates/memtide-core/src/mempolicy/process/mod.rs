//! A process with one thread: its policy, its mappings, its pages.
//!
//! The system calls are methods; they return what the kernel would, and leave
//! the pages where the kernel would. A page is named by its virtual page
//! number, the address over the page size, which is also its interleave index.
//!
//! Lookup order: the mapping's policy, else the task's, else the built-in one,
//! which prefers the node of the CPU. A policy is made ready for placing
//! ([`Landing`]) when it is used, so a touched page costs one look-up. The last
//! few that were used are kept until the CPU, the cpuset or the weights change:
//! one takes up to half a megabyte, and a process may have a policy a page.
//!
//! Processes that descend from one by fork(2) are a [`Family`].
//!
//! Left out: huge pages, files and shared memory, swap, other threads,
//! full nodes, `mremap` (indices stay tied to addresses), `mprotect`, the limit
//! on the number of mappings (`vm.max_map_count`) and every page that the kernel
//! takes through the counter for other ends than page tables (slab, page
//! cache). Page tables have four levels.

mod calls;
mod cpuset;
mod explain;
mod family;
mod mappings;
mod pages;
mod query;
#[cfg(test)]
mod tests;

pub use calls::{MF_MOVE, MF_MOVE_ALL, MF_STRICT};
pub use explain::{Explanation, PolicySource, Turn};
pub use family::{Family, Member};
pub use query::{F_ADDR, F_MEMS_ALLOWED, F_NODE, Query, Reply};

use super::errno::Errno;
use super::machine::Machine;
use super::place::Counter;
use super::policy::Policy;
use super::resolve::Landing;
use super::weight_rules::WeightFiles;
use super::weights::{TableState, WeightReader, Weights};
use crate::nodemask::NodeMask;
use crate::units::NodeId;
use mappings::Mappings;
use pages::{Entry, Pages};
use std::ops::Range;
use std::sync::Arc;

/// The end of what a process can map, before its last page: 128 TiB.
const TASK_SIZE: u64 = 1 << 47;

/// One task and its address space.
#[derive(Clone, Debug)]
pub struct Process {
    machine: Arc<Machine>,
    files: WeightFiles,
    reader: WeightReader,
    /// The weights that the landings were made with.
    seen: Arc<TableState>,
    /// The cpuset's nodes that have memory (`mems_allowed`).
    allowed: NodeMask,
    /// The node of the CPU (`numa_node_id`).
    here: NodeId,
    policy: Option<Policy>,
    counter: Counter,
    /// The task's policy, or the built-in one, made ready.
    landing: Landing,
    mappings: Mappings,
    pages: Pages,
    /// Policies of mappings that were used last, made ready; the newest last.
    recent: Vec<(Policy, Arc<Landing>)>,
}

/// How many policies of mappings are kept ready.
const RECENT: usize = 16;

impl Process {
    /// A process without mappings or policy, on a CPU of the first node that
    /// has one, in a cpuset with these memory nodes.
    pub fn new(machine: Arc<Machine>, cpuset: &NodeMask, files: WeightFiles) -> Process {
        let allowed = cpuset::effective(cpuset, &machine);
        let here = machine.input().cpu_nodes.iter().next();
        let here = here.unwrap_or(NodeId(0));
        let mut reader = files.table().reader();
        let seen = Arc::clone(reader.load());
        let built_in = Policy::built_in(here);
        let landing = Landing::new(&built_in, &machine, &allowed, here, &seen.weights);
        Process {
            mappings: Mappings::new(*machine.kernel()),
            pages: Pages::new(machine.page()),
            machine,
            files,
            reader,
            seen,
            allowed,
            here,
            policy: None,
            counter: Counter::START,
            landing,
            recent: Vec::new(),
        }
    }

    /// Pages that the page tables have room for, present or not: what the
    /// process takes in memory here goes by them.
    pub fn table_pages(&self) -> u64 {
        self.pages.room()
    }

    /// How many mappings there are.
    pub fn mappings(&self) -> usize {
        self.mappings.len()
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The files of the weight table.
    pub fn files(&self) -> &WeightFiles {
        &self.files
    }

    /// The task's policy.
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// The cpuset's nodes that have memory.
    pub fn allowed(&self) -> &NodeMask {
        &self.allowed
    }

    /// The node of the CPU that the process runs on.
    pub fn here(&self) -> NodeId {
        self.here
    }

    /// Runs on a CPU of `node` from now on.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the node has no CPU.
    pub fn run_on(&mut self, node: NodeId) -> Result<(), Errno> {
        if !self.machine.input().cpu_nodes.contains(node) {
            return Err(Errno::EINVAL);
        }
        self.here = node;
        self.make_landings();
        Ok(())
    }

    /// Maps private anonymous memory at exactly `start`, where nothing is.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no length or an address within a page, `ENOMEM` past the
    /// end of the address space, `EEXIST` where something is mapped.
    pub fn mmap(&mut self, start: u64, len: u64) -> Result<(), Errno> {
        let page = self.machine.page();
        if len == 0 || !start.is_multiple_of(page.bytes()) {
            return Err(Errno::EINVAL);
        }
        let end = start.checked_add(len).ok_or(Errno::ENOMEM)?;
        if end > TASK_SIZE - page.bytes() {
            return Err(Errno::ENOMEM);
        }
        let pages = page.pages(start)..end.div_ceil(page.bytes());
        if self.mappings.overlapping(pages.clone()).next().is_some() {
            return Err(Errno::EEXIST);
        }
        self.mappings.add(pages);
        Ok(())
    }

    /// Unmaps a range; what is not mapped there is ignored.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no length, an address within a page, or a range past the
    /// end of the address space.
    pub fn munmap(&mut self, start: u64, len: u64) -> Result<(), Errno> {
        let page = self.machine.page();
        let limit = TASK_SIZE - page.bytes();
        if !start.is_multiple_of(page.bytes()) || len == 0 || start > limit || len > limit - start {
            return Err(Errno::EINVAL);
        }
        let pages = page.pages(start)..(start + len).div_ceil(page.bytes());
        if self.mappings.remove(pages.clone()) {
            let mappings = &self.mappings;
            let mapped = |span| mappings.overlapping(span).next().is_some();
            self.pages.unmap(pages, mapped);
        }
        Ok(())
    }

    /// Writes to each of `pages` pages from page `first` on. In a family,
    /// [`Family::touch`] is the call.
    ///
    /// # Errors
    ///
    /// `EFAULT` at the first page that is not mapped; those before it have
    /// been placed.
    pub fn touch(&mut self, first: u64, pages: u64) -> Result<(), Errno> {
        self.see_weights();
        let mut at = first;
        let end = first.checked_add(pages).ok_or(Errno::EFAULT)?;
        while at < end {
            let (range, _) = self.mappings.at(at).ok_or(Errno::EFAULT)?;
            let stop = range.end.min(end);
            self.mappings.own(at);
            let (_, mapping) = self.mappings.at(at).expect("found above");
            let landing = mapping.policy.clone().map(|policy| self.ready(&policy));
            let landing = landing.as_deref().unwrap_or(&self.landing);
            for piece in self.pages.pieces(at..stop) {
                let (entries, made) = self.pages.populate(piece.clone());
                count_tables(&mut self.counter, &self.landing, made);
                for (page, entry) in piece.zip(entries) {
                    // What others have, too, is copied before it is written.
                    if entry.node().is_none() || entry.shared().is_some() {
                        *entry = Entry::on(landing.node_at(page));
                    }
                }
            }
            at = stop;
        }
        Ok(())
    }

    /// Reads a page that is mapped: where nothing was written, the kernel's
    /// page of zeros comes in. Returns the node of what is there.
    fn read(&mut self, page: u64) -> NodeId {
        self.see_weights();
        let (entries, made) = self.pages.populate(page..page + 1);
        let zeros = self.machine.input().zero_page_node;
        count_tables(&mut self.counter, &self.landing, made);
        if entries[0] == Entry::NONE {
            entries[0] = Entry::ZERO_PAGE;
        }
        entries[0].node().unwrap_or(zeros)
    }

    /// The node of a page that the process has; `None` if it has none there, or
    /// only read zeros.
    pub fn node_of(&self, page: u64) -> Option<NodeId> {
        self.pages.get(page).node()
    }

    /// The weights as they are now; landings made with older ones are renewed.
    fn see_weights(&mut self) {
        if !Arc::ptr_eq(self.reader.load(), &self.seen) {
            self.seen = Arc::clone(self.reader.load());
            self.make_landings();
        }
    }

    fn make_landings(&mut self) {
        let task = self.task_policy();
        self.landing = self.landing_of(&task);
        self.recent.clear();
    }

    /// The policy of a mapping, made ready.
    fn ready(&mut self, policy: &Policy) -> Arc<Landing> {
        if let Some(at) = self.recent.iter().rposition(|(known, _)| known == policy) {
            return Arc::clone(&self.recent[at].1);
        }
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        let landing = Arc::new(self.landing_of(policy));
        self.recent.push((policy.clone(), Arc::clone(&landing)));
        landing
    }

    fn landing_of(&self, policy: &Policy) -> Landing {
        let weights: &Weights = &self.seen.weights;
        Landing::new(policy, &self.machine, &self.allowed, self.here, weights)
    }

    /// The task's policy, or the built-in one.
    fn task_policy(&self) -> Policy {
        let built_in = || Policy::built_in(self.here);
        self.policy.clone().unwrap_or_else(built_in)
    }
}

/// Page tables are pages too: each advances the interleave of the task.
fn count_tables(counter: &mut Counter, task: &Landing, made: u32) {
    if let Some(spread) = task.spread() {
        for _ in 0..made {
            counter.next_node(spread);
        }
    }
}

/// The part that two ranges share.
fn common(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.max(b.start)..a.end.min(b.end)
}
