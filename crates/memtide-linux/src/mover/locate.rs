//! Asks on which nodes a process's pages are, in batches.

use super::Process;
use super::batch::{SENTINEL, node, query};
use super::kernel::Kernel;
use super::outcome::{self, Outcome};
use crate::sys::Errno;
use memtide_core::units::{NodeId, PageSize};

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// On this node.
    Node(NodeId),
    /// Never touched, or swapped out.
    NotPresent,
    /// The page of zeros, or nothing is mapped there.
    ZeroOrUnmapped,
    /// The kernel's error, of a kind that is not expected here.
    Failed(Errno),
}

impl Located {
    fn of_status(status: i32) -> Located {
        if let Some(node) = node(status) {
            return Located::Node(node);
        }
        match outcome::of_status(status) {
            Outcome::NotPresent => Located::NotPresent,
            Outcome::ZeroOrUnmapped => Located::ZeroOrUnmapped,
            Outcome::Failed(errno) => Located::Failed(Errno::from_raw_os_error(errno)),
            Outcome::Busy => Located::Failed(Errno::BUSY),
            Outcome::NoMemory => Located::Failed(Errno::NOMEM),
            _ => Located::Failed(Errno::IO),
        }
    }
}

/// Neighbouring pages in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first page's address.
    pub address: usize,
    /// How many base pages.
    pub pages: usize,
    /// Where they are.
    pub at: Located,
}

/// Locates pages. Keep one: it reuses its buffers.
#[derive(Debug)]
pub struct Locator<K> {
    kernel: K,
    base: PageSize,
    batch: usize,
    pages: Vec<usize>,
    status: Vec<i32>,
}

impl<K: Kernel> Locator<K> {
    /// A locator that asks for `batch` pages a call (at least one). Asking is
    /// cheap and blocks nobody: 4096 or more.
    pub fn new(kernel: K, base: PageSize, batch: usize) -> Locator<K> {
        Locator {
            kernel,
            base,
            batch: batch.max(1),
            pages: Vec::new(),
            status: Vec::new(),
        }
    }

    /// Whether `process` is there and the one that is meant.
    pub fn is_same(&mut self, process: Process) -> bool {
        self.kernel.is_same(process)
    }

    /// Reports the pages of `ranges` (address, number of base pages) as runs, in
    /// order. A run ends where neighbouring addresses or the call end, too.
    ///
    /// # Errors
    ///
    /// `ESRCH` if the process is gone or not the same, `EINVAL` if it has no
    /// memory, `EPERM` if we may not look. What was reported before holds.
    pub fn locate(
        &mut self,
        process: Process,
        ranges: &[(usize, usize)],
        mut on: impl FnMut(Run),
    ) -> Result<(), Errno> {
        let bytes = self.base.bytes() as usize;
        let mut left = ranges.iter().copied().filter(|(_, pages)| *pages > 0);
        let mut open = left.next();
        // Ranges may be many and short: a call takes as many as fit.
        while open.is_some() {
            self.pages.clear();
            while let Some((address, pages)) = &mut open
                && self.pages.len() < self.batch
            {
                let count = (self.batch - self.pages.len()).min(*pages);
                self.pages.extend((0..count).map(|n| *address + n * bytes));
                *address += count * bytes;
                *pages -= count;
                if *pages == 0 {
                    open = left.next();
                }
            }
            self.status.clear();
            self.status.resize(self.pages.len(), SENTINEL);
            query(&mut self.kernel, process, &self.pages, &mut self.status)?;
            let neighbours = |n: usize| {
                self.status[n] == self.status[n - 1] && self.pages[n] == self.pages[n - 1] + bytes
            };
            let mut first = 0;
            for end in 1..=self.pages.len() {
                if end == self.pages.len() || !neighbours(end) {
                    on(Run {
                        address: self.pages[first],
                        pages: end - first,
                        at: Located::of_status(self.status[first]),
                    });
                    first = end;
                }
            }
        }
        Ok(())
    }
}
