//! Whether pages can be moved, and arrive.
//!
//! Pages of this process are moved to another node, asked for, and moved back
//! to where they were; each keeps a mark of its own through both moves.

use crate::mover::{Config, Kernel, Located, Locator, Move, Mover, Process, Sums};
use crate::sys::Errno;
use crate::sys::own_memory::OwnPages;
use memtide_core::units::{NodeId, PageSize};
use std::time::{Duration, Instant};

/// How many pages are moved.
pub const PAGES: usize = 64;

/// What was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Pages that went to the target and back.
    pub pages: usize,
    /// Where they were.
    pub from: NodeId,
    /// Where they were meanwhile.
    pub to: NodeId,
    /// Both ways, questions included.
    pub elapsed: Duration,
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum Unproved {
    /// Memory to try it on could not be had, or nobody can say where it is.
    #[error("no pages to try it on: {0}")]
    Pages(Errno),
    /// The target has no room.
    #[error("node {to} is full: {} of {pages} pages moved there; free some memory on it", sums.moved)]
    Full {
        /// The target.
        to: NodeId,
        /// How many should move.
        pages: usize,
        /// What became of them.
        sums: Sums,
    },
    /// The process may not have memory there.
    #[error("this process may not use node {to}; its cpuset or seccomp filter forbids it")]
    NotAllowed {
        /// The target.
        to: NodeId,
    },
    /// They are not where they should be.
    #[error("{there} of {pages} pages are on node {to} after they were moved there ({outcomes})")]
    Elsewhere {
        /// Where they should be.
        to: NodeId,
        /// Pages that are there.
        there: usize,
        /// All pages.
        pages: usize,
        /// What the mover said of the others.
        outcomes: String,
    },
    /// What was in them is not in them any more.
    #[error("{0} pages lost their content while they were moved")]
    Content(usize),
}

/// Moves [`PAGES`] pages of this process, which is `process`, to a node of
/// `others` that they are not on, and back.
///
/// # Errors
///
/// Why that did not come out.
pub fn prove<K: Kernel + Clone>(
    kernel: K,
    page: PageSize,
    process: Process,
    others: &[NodeId],
) -> Result<Proof, Unproved> {
    let pages = OwnPages::map(PAGES).map_err(Unproved::Pages)?;
    (0..PAGES).for_each(|n| pages.write(n, mark(n)));
    let before = nodes(kernel.clone(), page, process, &pages).map_err(Unproved::Pages)?;
    let from = *before.first().ok_or(Unproved::Pages(Errno::NODATA))?;
    let to = *others
        .iter()
        .find(|node| !before.contains(node))
        .ok_or(Unproved::Pages(Errno::NODEV))?;
    let began = Instant::now();
    go(kernel.clone(), page, process, &pages, to)?;
    go(kernel, page, process, &pages, from)?;
    let elapsed = began.elapsed();
    match (0..PAGES).filter(|&n| pages.read(n) != mark(n)).count() {
        0 => Ok(Proof {
            pages: PAGES,
            from,
            to,
            elapsed,
        }),
        changed => Err(Unproved::Content(changed)),
    }
}

/// Moves all of `pages` to `node`; how many are there afterwards.
pub fn place<K: Kernel + Clone>(
    kernel: K,
    page: PageSize,
    process: Process,
    pages: &OwnPages,
    node: NodeId,
) -> usize {
    mover(kernel.clone(), page).run(process, &[all(pages, node)], |_| {});
    let there = nodes(kernel, page, process, pages).unwrap_or_default();
    there.iter().filter(|at| **at == node).count()
}

fn go<K: Kernel + Clone>(
    kernel: K,
    page: PageSize,
    process: Process,
    pages: &OwnPages,
    to: NodeId,
) -> Result<(), Unproved> {
    let sums = mover(kernel.clone(), page).run(process, &[all(pages, to)], |_| {});
    let at = nodes(kernel, page, process, pages).map_err(Unproved::Pages)?;
    let there = at.iter().filter(|node| **node == to).count();
    match there == pages.pages() {
        true => Ok(()),
        false if sums.not_allowed > 0 => Err(Unproved::NotAllowed { to }),
        false if sums.no_memory > 0 => Err(Unproved::Full {
            to,
            pages: pages.pages(),
            sums,
        }),
        false => Err(Unproved::Elsewhere {
            to,
            there,
            pages: pages.pages(),
            outcomes: format!(
                "moved {}, busy {}, shared {}, not permitted {}, failed {}",
                sums.moved, sums.busy, sums.shared, sums.not_permitted, sums.failed
            ),
        }),
    }
}

fn mover<K: Kernel>(kernel: K, page: PageSize) -> Mover<K> {
    let config = Config {
        base: page,
        ..Config::default()
    };
    Mover::new(kernel, config)
}

fn all(pages: &OwnPages, target: NodeId) -> Move {
    Move {
        address: pages.address(),
        pages: pages.pages(),
        huge: false,
        target,
    }
}

/// The node of each page that is on one.
fn nodes<K: Kernel>(
    kernel: K,
    page: PageSize,
    process: Process,
    pages: &OwnPages,
) -> Result<Vec<NodeId>, Errno> {
    let mut at = Vec::new();
    let range = (pages.address(), pages.pages());
    Locator::new(kernel, page, pages.pages()).locate(process, &[range], |run| {
        if let Located::Node(node) = run.at {
            at.extend(std::iter::repeat_n(node, run.pages));
        }
    })?;
    Ok(at)
}

fn mark(n: usize) -> u8 {
    (n * 3 + 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::move_pages::MoveFlags;
    use std::cell::Cell;
    use std::rc::Rc;

    const ME: Process = Process {
        pid: 1,
        start_ticks: 2,
    };

    /// All pages on one node; moves as `obeys` says.
    #[derive(Clone)]
    struct Nodes {
        at: Rc<Cell<i32>>,
        refuses: Option<(i32, Errno)>,
        lies: bool,
    }

    impl Kernel for Nodes {
        fn is_same(&mut self, process: Process) -> bool {
            process == ME
        }
        fn move_pages(
            &mut self,
            _: u32,
            _: &[usize],
            nodes: Option<&[i32]>,
            status: &mut [i32],
            _: MoveFlags,
        ) -> Result<usize, Errno> {
            if let Some(nodes) = nodes {
                match self.refuses {
                    Some((node, errno)) if node == nodes[0] => return Err(errno),
                    _ if self.lies => {
                        status.fill(nodes[0]);
                        return Ok(0);
                    }
                    _ => self.at.set(nodes[0]),
                }
            }
            status.fill(self.at.get());
            Ok(0)
        }
    }

    fn kernel() -> Nodes {
        Nodes {
            at: Rc::new(Cell::new(0)),
            refuses: None,
            lies: false,
        }
    }

    fn run(kernel: &Nodes) -> Result<Proof, Unproved> {
        prove(kernel.clone(), PageSize::KIB_4, ME, &[NodeId(0), NodeId(2)])
    }

    #[test]
    fn pages_go_there_and_come_back() {
        let kernel = kernel();
        let proof = run(&kernel).unwrap();
        assert_eq!(
            (proof.pages, proof.from, proof.to),
            (64, NodeId(0), NodeId(2))
        );
        assert_eq!(kernel.at.get(), 0);
    }

    #[test]
    fn a_kernel_that_only_says_so_is_found_out() {
        let mut kernel = kernel();
        kernel.lies = true;
        let error = run(&kernel).unwrap_err();
        assert!(
            matches!(error, Unproved::Elsewhere { there: 0, .. }),
            "{error}"
        );
    }

    #[test]
    fn refusals_have_their_reasons() {
        for (errno, words) in [
            (Errno::NOMEM, "node 2 is full: 0 of 64 pages moved there"),
            (Errno::ACCESS, "may not use node 2"),
        ] {
            let mut kernel = kernel();
            kernel.refuses = Some((2, errno));
            let error = run(&kernel).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
