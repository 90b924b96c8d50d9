//! Which pages move, and in what portions.
//!
//! Only pages that are not on their node move. They are sorted by target, then
//! by address, because that is how the mover makes the longest batches, and
//! handed out in portions, because the budget is spent page by page.

use super::areas::Counting;
use super::spread::Spread;
use crate::live::survey::{Found, HUGE_PAGES};
use crate::mover::Move;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::{NodeId, PageSize};

/// A move, and where its pages are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// What the mover is told.
    pub move_: Move,
    /// The node that the pages are on.
    pub from: NodeId,
}

/// Planned moves that wait for their turn.
#[derive(Debug, Default)]
pub struct Queue {
    moves: Vec<Planned>,
    next: usize,
}

impl Queue {
    /// Plans the moves of `found`, a run of present pages. Returns how many
    /// base pages are where they belong.
    pub fn plan(
        &mut self,
        found: Found,
        counting: &Counting,
        spread: &Spread,
        page: PageSize,
    ) -> u64 {
        let (step, order) = match found.huge {
            true => (HUGE_PAGES, HUGE_PAGES.trailing_zeros()),
            false => (1, 0),
        };
        let mut in_place = 0;
        for first in (found.first.0..found.first.0 + found.pages).step_by(step as usize) {
            let target = spread.node_at(counting.index(VirtualPage(first), order));
            if target == found.node {
                in_place += step;
                continue;
            }
            self.push(
                Planned {
                    move_: Move {
                        address: (first << page.shift()) as usize,
                        pages: step as usize,
                        huge: found.huge,
                        target,
                    },
                    from: found.node,
                },
                page,
            );
        }
        in_place
    }

    /// Adds a move, grown onto the last one where it continues it.
    fn push(&mut self, planned: Planned, page: PageSize) {
        if let Some(last) = self.moves.last_mut() {
            let bytes = last.move_.pages << page.shift();
            let continued = Planned {
                move_: Move {
                    address: last.move_.address + bytes,
                    pages: planned.move_.pages,
                    ..last.move_
                },
                ..*last
            };
            if continued == planned {
                last.move_.pages += planned.move_.pages;
                return;
            }
        }
        self.moves.push(planned);
    }

    /// Puts what was planned into the order in which it is handed out.
    pub fn sort(&mut self) {
        self.moves
            .sort_by_key(|planned| (planned.move_.target, planned.move_.address));
    }

    /// Whether everything was handed out.
    pub fn is_empty(&self) -> bool {
        self.next == self.moves.len()
    }

    /// The next moves, of at most `pages` base pages together, but at least one
    /// page or huge page if any is left.
    pub fn take(&mut self, pages: u64, page: PageSize) -> Vec<Planned> {
        let mut portion = Vec::new();
        let mut left = pages as usize;
        while let Some(planned) = self.moves.get_mut(self.next) {
            let unit = if planned.move_.huge {
                HUGE_PAGES as usize
            } else {
                1
            };
            let wanted = planned.move_.pages;
            let mut some = left.min(wanted) / unit * unit;
            if some == 0 && portion.is_empty() {
                some = unit.min(wanted);
            }
            if some == 0 {
                break;
            }
            portion.push(Planned {
                move_: Move {
                    pages: some,
                    ..planned.move_
                },
                ..*planned
            });
            left = left.saturating_sub(some);
            if some == wanted {
                self.next += 1;
            } else {
                planned.move_.pages -= some;
                planned.move_.address += some << page.shift();
            }
        }
        if self.is_empty() {
            self.moves.clear();
            self.next = 0;
        }
        portion
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const PAGE: PageSize = PageSize::KIB_4;
    const DRAM: NodeId = NodeId(0);
    const CXL: NodeId = NodeId(2);

    fn counting() -> Counting {
        Counting {
            first: VirtualPage(0),
            offset: 0,
            bias: 0,
        }
    }

    fn found(first: u64, pages: u64, node: NodeId, huge: bool) -> Found {
        Found {
            first: VirtualPage(first),
            pages,
            node,
            huge,
        }
    }

    fn spread(dram: u8, cxl: u8) -> Spread {
        Spread::new([(DRAM, dram), (CXL, cxl)]).unwrap()
    }

    /// Where every page ends up when the queue is handed out `portion` pages at
    /// a time; every portion but one of a single huge page keeps the limit.
    fn carried_out(mut queue: Queue, portion: u64) -> BTreeMap<u64, NodeId> {
        let mut places = BTreeMap::new();
        queue.sort();
        while !queue.is_empty() {
            let moves = queue.take(portion, PAGE);
            let pages: usize = moves.iter().map(|planned| planned.move_.pages).sum();
            assert!(pages > 0);
            assert!(pages as u64 <= portion || pages as u64 == HUGE_PAGES && moves.len() == 1);
            for Planned { move_, from } in moves {
                assert_ne!(move_.target, from);
                let first = (move_.address >> 12) as u64;
                for page in first..first + move_.pages as u64 {
                    assert_eq!(places.insert(page, move_.target), None, "{page} twice");
                }
            }
        }
        places
    }

    #[test]
    fn only_pages_that_are_elsewhere_move() {
        let mut queue = Queue::default();
        // Indices 5 to 24, all on node 0; 9 and 19 belong to node 2.
        assert_eq!(
            queue.plan(found(5, 20, DRAM, false), &counting(), &spread(9, 1), PAGE),
            18
        );
        // Index 29 is there, the nine before it are not.
        assert_eq!(
            queue.plan(found(20, 10, CXL, false), &counting(), &spread(9, 1), PAGE),
            1
        );
        for portion in [1, 2, 3, 100] {
            let mut again = Queue {
                moves: queue.moves.clone(),
                next: 0,
            };
            again.sort();
            let places = carried_out(again, portion);
            let to_cxl: Vec<u64> = places
                .iter()
                .filter(|(_, n)| **n == CXL)
                .map(|(p, _)| *p)
                .collect();
            assert_eq!(to_cxl, [9, 19]);
            assert_eq!(places.len(), 2 + 9);
        }
    }

    #[test]
    fn whatever_lay_where_every_page_ends_on_its_node() {
        let spread = spread(5, 1);
        let mut queue = Queue::default();
        let mut places = BTreeMap::new();
        for (first, pages, node) in [
            (0, 7, DRAM),
            (7, 1, NodeId(1)),
            (8, 90, CXL),
            (200, 33, NodeId(1)),
        ] {
            places.extend((first..first + pages).map(|page| (page, node)));
            queue.plan(found(first, pages, node, false), &counting(), &spread, PAGE);
        }
        places.extend(carried_out(queue, 16));
        assert!(
            places
                .iter()
                .all(|(page, node)| *node == spread.node_at(*page))
        );
    }

    #[test]
    fn huge_pages_stay_whole() {
        let spread = spread(1, 1);
        let mut queue = Queue::default();
        // Four huge pages, numbers 1 to 4: the odd ones belong to node 2.
        assert_eq!(
            queue.plan(found(512, 2048, DRAM, true), &counting(), &spread, PAGE),
            1024
        );
        for portion in [1, 600, 5000] {
            let again = Queue {
                moves: queue.moves.clone(),
                next: 0,
            };
            let places = carried_out(again, portion);
            assert_eq!(places.len(), 1024);
            assert!(places.keys().all(|page| (page >> 9) % 2 == 1));
        }
        // Neighbours that move the same way are one move, handed out in whole pages.
        let alone = Spread::new([(CXL, 1)]).unwrap();
        let mut queue = Queue::default();
        queue.plan(found(512, 2048, DRAM, true), &counting(), &alone, PAGE);
        assert_eq!(queue.moves.len(), 1);
        assert_eq!(queue.take(1100, PAGE)[0].move_.pages, 1024);
        assert_eq!(queue.take(1100, PAGE)[0].move_.address, (512 + 1024) << 12);
    }
}
