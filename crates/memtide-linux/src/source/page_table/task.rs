//! Finds a process among the kernel's tasks.
//!
//! Tasks stand in a ring that begins and ends at `init_task`; each holds the
//! address of the next one's link. The ring changes while it is read and nobody
//! stops it for us, so a step may lead to a task that has just ended. Its memory
//! keeps its links for a while, so that reading on is nearly always right; when
//! it is not, the next read shows a task with an impossible pid and the search
//! begins anew.
//!
//! A found task's address is remembered by the caller. It is checked at every
//! use by pid and start: a task that ended has no memory (`mm` is null from
//! then on), and one in its place has another start.

use super::btf::{Btf, BtfError};
use super::kcore::Kcore;
use crate::mover::Process;

/// Pids are below this on every Linux.
const PID_LIMIT: i32 = 1 << 22;

/// How often a search begins anew.
const SEARCHES: usize = 4;

/// Nanoseconds in a clock tick of `/proc` (USER_HZ is 100 on x86).
const TICK: u64 = 10_000_000;

/// Byte offsets in the kernel's structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `task_struct.tasks`, the link to the next task.
    pub tasks: u64,
    /// `task_struct.tgid`, the pid that user space sees.
    pub tgid: u64,
    /// `task_struct.start_boottime`, nanoseconds since boot.
    pub start_boottime: u64,
    /// `task_struct.mm`.
    pub mm: u64,
    /// `mm_struct.pgd`.
    pub pgd: u64,
}

impl Layout {
    /// Takes the offsets from the kernel's types.
    pub fn from_btf(btf: &Btf<'_>) -> Result<Layout, BtfError> {
        let at = |path: &str, size| match btf.member(path) {
            Ok(member) if member.size == Some(size) => Ok(member.offset),
            Ok(_) => Err(BtfError::Missing {
                path: format!("{path} of {size} bytes"),
            }),
            Err(error) => Err(error),
        };
        Ok(Layout {
            tasks: at("task_struct.tasks", 16)?,
            tgid: at("task_struct.tgid", 4)?,
            start_boottime: at("task_struct.start_boottime", 8)?,
            mm: at("task_struct.mm", 8)?,
            pgd: at("mm_struct.pgd", 8)?,
        })
    }

    /// The part of a task that holds all the members: start and length.
    fn span(&self) -> (u64, usize) {
        let members = [self.tasks, self.tgid, self.start_boottime, self.mm];
        let start = members.into_iter().min().unwrap_or(0);
        let end = members.into_iter().max().unwrap_or(0) + 8;
        (start, (end - start) as usize)
    }
}

/// A process's task and memory. Equal if it is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Address of its `task_struct`.
    pub task: u64,
    /// Address of its `mm_struct`; 0 if it has none.
    pub mm: u64,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    next: u64,
    tgid: i32,
    start_boottime: u64,
    mm: u64,
}

/// The kernel's list of tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    layout: Layout,
    init_task: u64,
    buffer: Vec<u8>,
}

impl Tasks {
    pub fn new(layout: Layout, init_task: u64) -> Tasks {
        let buffer = vec![0; layout.span().1];
        Tasks {
            layout,
            init_task,
            buffer,
        }
    }

    /// Searches the list.
    pub fn find(&mut self, kcore: &Kcore, process: Process) -> Option<Found> {
        (0..SEARCHES).find_map(|_| self.search(kcore, process))
    }

    /// The task at `task`, if it is still that process.
    pub fn read(&mut self, kcore: &Kcore, task: u64, process: Process) -> Option<Found> {
        let now = self.task(kcore, task)?;
        is(now, process).then_some(Found { task, mm: now.mm })
    }

    /// The kernel address of an address space's topmost table.
    pub fn page_table(&self, kcore: &Kcore, mm: u64) -> Option<u64> {
        let mut pgd = [0; 8];
        let read = kcore.read_virtual(mm.checked_add(self.layout.pgd)?, &mut pgd);
        read.then(|| u64::from_le_bytes(pgd))
    }

    fn search(&mut self, kcore: &Kcore, process: Process) -> Option<Found> {
        let mut task = self.init_task;
        for _ in 0..PID_LIMIT {
            let now = self.task(kcore, task)?;
            if is(now, process) {
                return Some(Found { task, mm: now.mm });
            }
            if !(0..PID_LIMIT).contains(&now.tgid) {
                return None;
            }
            task = now.next;
            if task == self.init_task {
                return None;
            }
        }
        None
    }

    /// Reads one task with one call.
    fn task(&mut self, kcore: &Kcore, task: u64) -> Option<Task> {
        let (start, _) = self.layout.span();
        if !kcore.read_virtual(task.checked_add(start)?, &mut self.buffer) {
            return None;
        }
        let word = |offset: u64| {
            let at = (offset - start) as usize;
            u64::from_le_bytes(self.buffer[at..at + 8].try_into().expect("eight bytes"))
        };
        Some(Task {
            next: word(self.layout.tasks).checked_sub(self.layout.tasks)?,
            tgid: word(self.layout.tgid) as u32 as i32,
            start_boottime: word(self.layout.start_boottime),
            mm: word(self.layout.mm),
        })
    }
}

fn is(task: Task, process: Process) -> bool {
    task.tgid.cast_unsigned() == process.pid && task.start_boottime / TICK == process.start_ticks
}
