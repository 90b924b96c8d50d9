//! What a mover asks of a kernel: the call, and whether a pid still means the
//! same process.

use crate::fs::proc::Process;
use crate::sys::Errno;
use crate::sys::move_pages::MoveFlags;

/// The kernel below a mover. The tests have one that fails its nth call.
pub trait Kernel {
    /// Whether `process.pid` is (still) the process that started then.
    fn is_same(&mut self, process: Process) -> bool;

    /// `move_pages(2)`, see [`crate::sys::move_pages::move_pages`].
    fn move_pages(
        &mut self,
        pid: u32,
        pages: &[usize],
        nodes: Option<&[i32]>,
        status: &mut [i32],
        flags: MoveFlags,
    ) -> Result<usize, Errno>;
}

impl<K: Kernel + ?Sized> Kernel for &mut K {
    fn is_same(&mut self, process: Process) -> bool {
        (**self).is_same(process)
    }

    fn move_pages(
        &mut self,
        pid: u32,
        pages: &[usize],
        nodes: Option<&[i32]>,
        status: &mut [i32],
        flags: MoveFlags,
    ) -> Result<usize, Errno> {
        (**self).move_pages(pid, pages, nodes, status, flags)
    }
}
