//! The running kernel as movers and surveyors see it.

use crate::fs::Root;
use crate::mover;
use crate::sys::Errno;
use crate::sys::move_pages::{MoveFlags, move_pages};

/// `move_pages(2)`, and a look at the start time that tells a process from a
/// later one with the same id.
#[derive(Clone, Debug)]
pub struct RunningKernel {
    root: Root,
}

impl RunningKernel {
    /// The kernel whose `/proc` is under `root`.
    pub fn new(root: Root) -> RunningKernel {
        RunningKernel { root }
    }
}

impl mover::Kernel for RunningKernel {
    fn is_same(&mut self, process: mover::Process) -> bool {
        process.is_alive(&self.root).unwrap_or(false)
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
