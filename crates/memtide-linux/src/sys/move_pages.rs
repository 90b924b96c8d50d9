//! `move_pages(2)`: where pages are, and moving them.
//!
//! The call is safe in Rust's sense for any process and any addresses: it
//! changes where memory lies, never what is in it, and an address that is
//! mapped nowhere is an error of that page. Its many traps in *meaning* are
//! the business of [`crate::mover`].

use super::{Errno, check};

/// Which pages the call may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveFlags {
    /// Pages that only this process maps (`MPOL_MF_MOVE`).
    Exclusive,
    /// Shared pages too (`MPOL_MF_MOVE_ALL`); needs `CAP_SYS_NICE`.
    All,
}

impl MoveFlags {
    fn bits(self) -> u32 {
        match self {
            MoveFlags::Exclusive => super::mempolicy::MF_MOVE,
            MoveFlags::All => super::mempolicy::MF_MOVE_ALL,
        }
    }
}

/// Moves each of `pages` (addresses in process `pid`) to the node in `nodes`,
/// or with `None` only asks where they are. Process 0 is the caller itself.
///
/// `status[i]` becomes a node, or a negated errno for that page, or stays as it
/// was: the kernel leaves it unwritten for a batch that failed in part.
/// Returns how many pages did *not* move, those never attempted included.
///
/// # Panics
///
/// If the slices differ in length.
pub fn move_pages(
    pid: u32,
    pages: &[usize],
    nodes: Option<&[i32]>,
    status: &mut [i32],
    flags: MoveFlags,
) -> Result<usize, Errno> {
    assert_eq!(pages.len(), status.len(), "one status a page");
    if let Some(nodes) = nodes {
        assert_eq!(pages.len(), nodes.len(), "one node a page");
    }
    // SAFETY: the three arrays live through the call and hold `pages.len()`
    // entries each (asserted above; `nodes` may be null). The kernel reads
    // `pages` as numbers and never writes through them, and migration keeps
    // the contents and the addresses of memory.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            libc::c_long::from(pid),
            pages.len(),
            pages.as_ptr(),
            nodes.map_or(std::ptr::null(), <[i32]>::as_ptr),
            status.as_mut_ptr(),
            libc::c_long::from(flags.bits()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel without NUMA (or a sandbox) has no such call. The test then
    /// says so and proves nothing.
    fn query(pages: &[usize]) -> Option<Vec<i32>> {
        let mut status = vec![i32::MIN; pages.len()];
        match move_pages(0, pages, None, &mut status, MoveFlags::Exclusive) {
            Ok(0) => Some(status),
            other => {
                eprintln!("not tested: move_pages is unusable here: {other:?}");
                None
            }
        }
    }

    #[test]
    fn a_touched_page_is_on_a_node_and_an_unmapped_one_is_nowhere() {
        let touched = Box::new(7u64);
        let address = std::ptr::from_ref(&*touched) as usize & !4095;
        let Some(status) = query(&[address, 0]) else {
            return;
        };
        assert!((0..1024).contains(&status[0]), "status {}", status[0]);
        assert_eq!(status[1], -libc::EFAULT);
    }

    #[test]
    fn an_unknown_process_is_esrch() {
        let mut status = [0];
        // Pids are below 2^22.
        let result = move_pages(1 << 23, &[0], None, &mut status, MoveFlags::Exclusive);
        if result == Err(Errno::NOSYS) {
            eprintln!("not tested: this kernel has no move_pages");
            return;
        }
        assert_eq!(result, Err(Errno::SRCH));
    }

    #[test]
    #[should_panic(expected = "one status a page")]
    fn arrays_of_unequal_length_never_reach_the_kernel() {
        let _ = move_pages(0, &[0, 0], None, &mut [0], MoveFlags::Exclusive);
    }
}
