//! Who finds no room, and who makes way.
//!
//! As long as a process finds no room for a granule, it watches in rounds what it reads ([`Rounds`]). A
//! granule that proves busy and has no copy is a reason to ask: a file in the folder says when somebody
//! asked last for room on the node, and every process that reads copies there sees it. Each then watches
//! in rounds, too, and maps the file again in the place of granules that prove idle. Nobody maps those
//! any more, or others do who read them; what nobody maps is free for who asks ([`room`](super::room)).
//!
//! Nobody takes anything from anybody, and who does not answer (stopped, or another version) keeps what
//! it has.

use super::super::put_back::is_copy;
use super::super::region::Region;
use super::super::rounds::{Key, MOST, Rounds};
use super::show::{Change, Showing};
use super::{Keeper, by_stretch, is_present};
use crate::kernel::Range as Addresses;
use crate::sys::zap;
use memtide_core::units::NodeId;
use memtide_linux::fs::proc::maps;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long a wish for room counts.
const WANTED: Duration = Duration::from_secs(30);
/// How often it is said again.
const AGAIN: Duration = Duration::from_secs(5);

/// What this process has found no room for.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// Granules since the last round.
    unmet: BTreeSet<Key>,
    /// By node, when that was last.
    last: BTreeMap<NodeId, Instant>,
    /// Nodes whose memory is short.
    short: BTreeMap<NodeId, Instant>,
    /// By node, when others were asked last.
    asked: BTreeMap<NodeId, Instant>,
}

impl Demand {
    /// Notes that there was no room for a granule.
    pub fn unmet(&mut self, now: Instant, granule: Key) {
        self.last.insert(granule.1, now);
        if self.unmet.len() < MOST {
            self.unmet.insert(granule);
        }
    }

    /// Notes that a node's memory is short.
    pub fn short(&mut self, now: Instant, node: NodeId) {
        self.short.insert(node, now);
    }

    /// Nodes on which others were asked for room.
    pub fn asked(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.asked.keys().copied()
    }

    fn is_recent(times: &BTreeMap<NodeId, Instant>, node: NodeId, now: Instant) -> bool {
        let within = |then: &Instant| now.saturating_duration_since(*then) < WANTED;
        times.get(&node).is_some_and(within)
    }
}

impl Keeper {
    /// Watches what is read while somebody finds no room, asks for room, and makes way.
    pub(super) fn make_way(&mut self, now: Instant) {
        let (regions, own) = {
            let state = self.shared.state();
            (state.regions.clone(), state.figures.node)
        };
        let regions = &regions[..];
        let nodes: BTreeSet<NodeId> = regions
            .iter()
            .filter_map(|region| region.node.or(own))
            .collect();
        let wished = |node: &NodeId| self.is_wished(*node);
        let wished: BTreeSet<NodeId> = nodes.iter().copied().filter(wished).collect();
        let watched = |node: &NodeId| {
            let demand = &self.demand;
            let recent = |times| Demand::is_recent(times, *node, now);
            wished.contains(node) || recent(&demand.last) || recent(&demand.short)
        };
        let watched: BTreeSet<NodeId> = nodes.iter().copied().filter(watched).collect();
        if watched.is_empty() {
            self.rounds.stop();
            return;
        }
        if !self.rounds.is_due(now) {
            return;
        }
        let mut rounds = std::mem::take(&mut self.rounds);
        rounds.end(|granule| self.is_mapped(regions, own, granule));
        self.ask(&rounds, regions, own, now);
        self.rounds = rounds;
        let wished: BTreeSet<NodeId> = wished
            .into_iter()
            .chain(nodes.into_iter().filter(|node| self.is_wished(*node)))
            .collect();
        self.give_way(regions, own, &wished);
        // What shows a copy, and what would.
        let mut granules: BTreeSet<Key> = std::mem::take(&mut self.demand.unmet);
        let busy = self
            .rounds
            .busy()
            .filter(|granule| !is_shown(regions, own, granule));
        granules.extend(busy);
        for region in self.shared.state().regions.iter() {
            let local = region
                .granules()
                .filter(|granule| region.is_local(*granule));
            let node = region.node.or(own);
            granules.extend(local.filter_map(|granule| Some((region.source.file, node?, granule))));
        }
        granules.retain(|(_, node, _)| watched.contains(node));
        let asked = self.rounds.begin(now, &granules);
        self.unmap(own, &asked);
    }

    fn is_wished(&self, node: NodeId) -> bool {
        let now = self.shared.machine.since_boot();
        let said = self.folder.wanted(node);
        said.is_some_and(|said| now.checked_sub(said).is_some_and(|age| age < WANTED))
    }

    /// Asks all for room on the nodes where a busy granule has no copy, or memory is short.
    fn ask(&mut self, rounds: &Rounds, regions: &[Region], own: Option<NodeId>, now: Instant) {
        let busy = rounds
            .busy()
            .filter(|granule| !is_shown(regions, own, granule));
        let mut nodes: BTreeSet<NodeId> = busy.map(|(_, node, _)| node).collect();
        let short = self.demand.short.keys().copied();
        nodes.extend(short.filter(|node| Demand::is_recent(&self.demand.short, *node, now)));
        for node in nodes {
            let asked = self.demand.asked.get(&node);
            if asked.is_some_and(|asked| now.saturating_duration_since(*asked) < AGAIN) {
                continue;
            }
            self.demand.asked.insert(node, now);
            // Where it cannot be said, nobody makes way.
            let _ = self.folder.want(node, self.shared.machine.since_boot());
        }
    }

    /// Maps the file again in the place of granules that are idle on the nodes that are wished for.
    fn give_way(&mut self, regions: &[Region], own: Option<NodeId>, wished: &BTreeSet<NodeId>) {
        let mut idle: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for granule in self.rounds.idle() {
            if wished.contains(&granule.1) && is_shown(regions, own, &granule) {
                let of_file = idle.entry((granule.0, granule.1)).or_default();
                of_file.push(granule.2);
            }
        }
        let mut showing = Showing {
            shared: &self.shared,
            maps: &self.maps,
            pagemap: &self.pagemap,
            rounds: &mut self.rounds,
        };
        let mut left = 0;
        for ((file, node), granules) in idle {
            let (Some(tracked), Some(copy)) =
                (self.files.get(&file), self.copies.get(&(file, node)))
            else {
                continue;
            };
            for (stretch, give_up) in by_stretch(granules.into_iter()) {
                let change = Change {
                    stretch,
                    add: &BTreeSet::new(),
                    give_up: &give_up,
                };
                left += showing.change(tracked, copy, change) as u64 * super::GRANULE;
            }
        }
        if left > 0 {
            self.shared.state().figures.given_up_bytes += left;
            self.room.has_more();
        }
    }

    /// Whether the process has mapped any page of a granule.
    fn is_mapped(&self, regions: &[Region], own: Option<NodeId>, granule: &Key) -> bool {
        let mut ranges = addresses(regions, own, granule);
        ranges.any(|(range, _)| is_present(&self.pagemap, &range))
    }

    /// Unmaps pages of granules, of which the memory stays: who reads one has it mapped again.
    fn unmap(&self, own: Option<NodeId>, granules: &BTreeSet<Key>) {
        // Nobody puts anything else there meanwhile, unless by a raw system call.
        let state = self.shared.state();
        let Ok(text) = self.maps.contents() else {
            return;
        };
        let Ok(mappings) = maps::parse(&text) else {
            return;
        };
        for granule in granules {
            let Some(tracked) = self.files.get(&granule.0) else {
                continue;
            };
            let inode = rustix::fs::fstat(tracked.file.as_fd()).map(|about| about.st_ino);
            for (range, offset) in addresses(&state.regions, own, granule) {
                let first = mappings.partition_point(|one| one.end as usize <= range.start);
                let within = mappings[first..].iter();
                for mapping in within.take_while(|one| (one.start as usize) < range.end) {
                    let start = range.start.max(mapping.start as usize);
                    let end = range.end.min(mapping.end as usize);
                    let shows = mapping.offset + (start as u64 - mapping.start);
                    let is_file = Ok(mapping.inode) == inode
                        && shows == offset + (start - range.start) as u64;
                    let is_ours = mapping.shared && !mapping.write;
                    if is_ours && (is_copy(mapping) || is_file) {
                        let bytes = end - start;
                        // Locked pages stay mapped, and count as touched.
                        let _ = zap::one(Addresses { start, bytes });
                    }
                }
            }
        }
    }
}

/// Where a granule is in regions that read it on its node, and the byte of the file there.
fn addresses<'a>(
    regions: &'a [Region],
    own: Option<NodeId>,
    granule: &'a Key,
) -> impl Iterator<Item = (Range<usize>, u64)> + 'a {
    let (file, node, granule) = *granule;
    let of_it = regions
        .iter()
        .filter(move |region| region.source.file == file && region.node.or(own) == Some(node));
    of_it.filter_map(move |region| region.addresses(granule))
}

/// Whether any region shows its copy.
fn is_shown(regions: &[Region], own: Option<NodeId>, granule: &Key) -> bool {
    let (file, node, granule) = *granule;
    regions.iter().any(|region| {
        region.source.file == file && region.node.or(own) == Some(node) && region.is_local(granule)
    })
}
