//! Memory of granules that nobody maps.
//!
//! A copy lives as long as any process has it open. A granule of it may be mapped by nobody: its readers
//! have ended, or have mapped the file again to make way. Its memory is the first that is taken when there
//! is no room. Whose copy it is does not matter: a lock tells whether anybody maps it.

use super::super::copy::{Copy, MemoryFile};
use super::super::folder::Turn;
use super::super::rounds::ROUND;
use super::super::version::Identity;
use super::Keeper;
use memtide_core::units::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Granules that are tried at a time: two or three calls of the kernel each.
const TRIES: u64 = 1024;
/// Bytes that are taken at a time while memory is short: as much as a turn copies.
const SOME: u64 = 64 << 20;

/// Where to look next.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// In granules of all copies of the node.
    at: u64,
    /// Tries in a row that took nothing.
    fruitless: u64,
    /// Everything is mapped, as of late: not before this.
    rests: Option<Instant>,
}

/// The copies that a keeper has open on a node.
pub(super) fn own(
    copies: &BTreeMap<(Identity, NodeId), Copy>,
    node: NodeId,
) -> impl Iterator<Item = &Copy> {
    let all = copies.iter().filter(move |((_, on), _)| *on == node);
    all.map(|(_, copy)| copy)
}

impl Room {
    /// Takes memory from granules that nobody maps, `wanted` bytes or a little more; how much it was.
    /// `spared` are granules of one copy that are not to be taken.
    pub fn free<'a>(
        &mut self,
        turn: &Turn<'_>,
        own: impl Iterator<Item = &'a Copy>,
        spared: (MemoryFile, &BTreeSet<u64>),
        wanted: u64,
        now: Instant,
    ) -> u64 {
        if self.rests.is_some_and(|until| now < until) {
            return 0;
        }
        let own: Vec<&Copy> = own.collect();
        let others = turn.others(&own.iter().map(|copy| copy.memory).collect());
        let copies: Vec<&Copy> = own.into_iter().chain(&others).collect();
        let total: u64 = copies.iter().map(|copy| copy.granules()).sum();
        let mut freed = 0;
        for _ in 0..TRIES.min(total) {
            if freed >= wanted {
                break;
            }
            self.at = (self.at + 1) % total;
            let taken = nth(&copies, self.at)
                .filter(|(copy, granule)| copy.memory != spared.0 || !spared.1.contains(granule))
                .and_then(|(copy, granule)| copy.take(granule).ok().flatten());
            freed += taken.unwrap_or(0);
            self.fruitless = match taken {
                Some(_) => 0,
                None => self.fruitless + 1,
            };
        }
        if self.fruitless >= total {
            self.fruitless = 0;
            self.rests = Some(now + ROUND);
        }
        freed
    }

    /// There is more that nobody maps.
    pub fn has_more(&mut self) {
        self.rests = None;
    }
}

/// The granule of this number, of the granules of all copies.
fn nth<'a>(copies: &[&'a Copy], mut at: u64) -> Option<(&'a Copy, u64)> {
    for copy in copies {
        match at.checked_sub(copy.granules()) {
            None => return Some((copy, at)),
            Some(behind) => at = behind,
        }
    }
    None
}

impl Keeper {
    /// Takes what nobody maps on a node whose memory becomes short, and asks others to make way.
    pub(super) fn free_some(&mut self, node: NodeId, now: Instant) {
        self.demand.short(now, node);
        let Ok(Some(turn)) = self.folder.turn(node) else {
            return;
        };
        let spared = ((0, 0), &BTreeSet::new());
        let own = own(&self.copies, node);
        let freed = self.room.free(&turn, own, spared, SOME, now);
        self.shared.state().figures.freed_bytes += freed;
    }
}
