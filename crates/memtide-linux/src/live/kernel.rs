//! The running kernel as movers and surveyors see it.

use crate::fs::Root;
use crate::mover::{self, Process};
use crate::pidfd;
use crate::sys::Errno;
use crate::sys::move_pages::{MoveFlags, move_pages};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// `move_pages(2)`, and what tells a process from a later one with the same
/// id: its start time. Where one process is asked about again and again, a
/// descriptor of it tells the same with one call in place of four. Clones
/// share that one.
#[derive(Clone, Debug)]
pub struct RunningKernel {
    root: Root,
    last: Arc<Mutex<Option<Known>>>,
}

/// Who was there when last asked about; and, if it was asked about twice in a row, a descriptor.
type Known = (Process, Option<OwnedFd>);

impl RunningKernel {
    /// The kernel whose `/proc` is under `root`.
    pub fn new(root: Root) -> RunningKernel {
        RunningKernel {
            root,
            last: Arc::default(),
        }
    }
}

impl mover::Kernel for RunningKernel {
    fn is_same(&mut self, process: Process) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.take().filter(|(known, _)| *known == process);
        if let Some((_, Some(held))) = &known
            && !pidfd::has_ended(held)
        {
            *last = known;
            return true;
        }
        // Opened before the start time is read: if the number changes hands in between, this descriptor
        // has ended already.
        let held = match known.is_some() && self.root.is_live() {
            true => pidfd::open(process.pid).ok(),
            false => None,
        };
        let is_same = process.is_alive(&self.root).unwrap_or(false);
        *last = is_same.then_some((process, held));
        is_same
    }

    fn move_pages(
        &mut self,
        pid: u32,
        pages: &[usize],
        nodes: Option<&[i32]>,
        status: &mut [i32],
        flags: MoveFlags,
    ) -> Result<usize, Errno> {
        move_pages(pid, pages, nodes, status, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mover::Kernel as _;
    use std::process::{Child, Command};

    fn started(root: &Root) -> (Child, Process) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(root, child.id()).unwrap();
        (child, process)
    }

    #[test]
    fn a_process_is_the_same_until_it_is_gone() {
        let root = Root::default();
        let mut kernel = RunningKernel::new(root.clone());
        let [(mut one, first), (mut other, second)] = [started(&root), started(&root)];
        for process in [first, first, second, first, second, second] {
            assert!(kernel.is_same(process) && kernel.clone().is_same(process));
        }
        // The number is the other's, and the time is not.
        let wrong = Process {
            start_ticks: second.start_ticks + 1,
            ..second
        };
        assert!(!kernel.is_same(wrong) && kernel.is_same(second));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!kernel.is_same(second) && kernel.is_same(first));
        one.kill().unwrap();
        one.wait().unwrap();
        assert!(!kernel.is_same(first) && !kernel.is_same(first));
    }
}
