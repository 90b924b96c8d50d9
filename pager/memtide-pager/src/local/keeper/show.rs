//! Which granules of a stretch show their copy.
//!
//! What is mapped through a file description holds that description's locks ([`Copy::hold`]), and a lock
//! is never given up while something is mapped. So a granule cannot leave a description by itself. The
//! whole stretch gets a new description, which holds what shows its copy from now on; everything of it is
//! mapped anew through that one, a granule at a time and each in one step. The old description, and its
//! locks, end with their last mapping: here, or in a child that inherited it.
//!
//! At every moment each granule shows its file or a copy that is held, whatever fails and wherever this
//! ends.

use super::super::copy::{Copy, STRETCH};
use super::super::put_back::{put_back, shows};
use super::super::reason::Reason;
use super::super::region::Region;
use super::super::rounds::{Key, Rounds};
use super::super::{Shared, State};
use super::{MOST_RUNS, Tracked, is_present};
use crate::kernel::Range as Addresses;
use crate::shown::{guards, shown};
use crate::sys::Errno;
use crate::sys::advice;
use crate::sys::known_file::KnownFile;
use memtide_linux::fs::proc::maps::{self, Mapping};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;

/// What is used of a keeper.
pub(super) struct Showing<'a> {
    pub shared: &'a Shared,
    pub maps: &'a KnownFile,
    pub pagemap: &'a KnownFile,
    pub rounds: &'a mut Rounds,
}

/// What is to change in a stretch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub stretch: u64,
    /// Granules to show their copy, in every region that reads them from the file, where that is still
    /// mapped.
    pub add: &'a BTreeSet<u64>,
    /// Granules to show their file.
    pub give_up: &'a BTreeSet<u64>,
}

impl Showing<'_> {
    /// Does so. How many granules show something else now, in all regions.
    pub fn change(&mut self, tracked: &Tracked, copy: &Copy, change: Change<'_>) -> usize {
        let shared = self.shared;
        let mut state = shared.state();
        let mut reasons = BTreeSet::new();
        let changed = self.in_state(&mut state, tracked, copy, change, &mut reasons);
        drop(state);
        for reason in reasons {
            shared.refuse(&tracked.path, reason);
        }
        changed
    }

    fn in_state(
        &mut self,
        state: &mut State,
        tracked: &Tracked,
        copy: &Copy,
        change: Change<'_>,
        reasons: &mut BTreeSet<Reason>,
    ) -> usize {
        let own = state.figures.node;
        let of_it = |region: &Region| {
            region.source.file == copy.version.file
                && region.node.or(own) == Some(copy.node)
                && region.file_bytes == copy.version.bytes
        };
        let stretch = change.stretch * STRETCH..(change.stretch + 1) * STRETCH;
        let regions = state.regions.iter().filter(|region| of_it(region));
        let shown_now: BTreeSet<u64> = regions
            .flat_map(|region| stretch.clone().filter(|granule| region.is_local(*granule)))
            .collect();
        let keep: BTreeSet<u64> = shown_now.difference(change.give_up).copied().collect();
        let wanted: BTreeSet<u64> = keep.union(change.add).copied().collect();
        let held = match copy.hold(&wanted) {
            Ok(held) => held,
            Err(_) => {
                reasons.insert(Reason::Kernel);
                return 0;
            }
        };
        let Ok(mappings) = self.mappings(!shown_now.is_empty()) else {
            reasons.insert(Reason::Kernel);
            return 0;
        };
        let mut runs: i64 = state.regions.iter().map(Region::runs).sum();
        let mut changed = 0;
        for region in state.regions.iter_mut().filter(|region| of_it(region)) {
            for granule in stretch.clone() {
                let Some((range, offset)) = region.addresses(granule) else {
                    continue;
                };
                let at = Addresses {
                    start: range.start,
                    bytes: range.len(),
                };
                if region.is_local(granule) {
                    // What is not held is not mapped either: the program has put something else there.
                    let stays = keep.contains(&granule)
                        && held.granules.contains(&granule)
                        && shows(&mappings, &range, copy.memory.1, copy.at(offset));
                    if stays {
                        // Its use is not seen any more once it is mapped anew.
                        let key: Key = (copy.version.file, copy.node, granule);
                        if is_present(self.pagemap, &range) {
                            self.rounds.touched(key);
                        }
                        if self.map(at, &held.file, copy.at(offset)).is_ok() {
                            continue;
                        }
                        self.map_file(region, granule, at, tracked, offset);
                        reasons.insert(Reason::Kernel);
                    } else if self.leave(region, granule, &range, tracked, offset) {
                        changed += 1;
                    } else {
                        reasons.insert(Reason::Kernel);
                    }
                } else if change.add.contains(&granule) && held.granules.contains(&granule) {
                    // The others' copies, and what was copied before, were whole long ago.
                    if self.shared.machine.version(tracked.file.as_fd()) != Ok(copy.version) {
                        return changed;
                    }
                    let more = region.more_runs(granule);
                    if more > 0 && runs + more > MOST_RUNS {
                        reasons.insert(Reason::Mappings);
                        return changed;
                    }
                    if !is_files(&range, tracked, offset) {
                        continue;
                    }
                    match self.map(at, &held.file, copy.at(offset)) {
                        Ok(()) => {
                            region.set_local(granule);
                            runs += more;
                            changed += 1;
                        }
                        Err(_) => {
                            // Kernels before 6.12 take the old mapping away before they find that there
                            // is no memory for the new one. Where they did not, the bytes are the same.
                            self.map_file(region, granule, at, tracked, offset);
                            reasons.insert(Reason::Kernel);
                        }
                    }
                }
            }
        }
        changed
    }

    /// This process's mappings, if they are needed.
    fn mappings(&self, needed: bool) -> Result<Vec<Mapping>, Errno> {
        match needed {
            true => maps::parse(&self.maps.contents()?).map_err(|_| Errno::IO),
            false => Ok(Vec::new()),
        }
    }

    fn map(&self, at: Addresses, file: &File, offset: u64) -> Result<(), Errno> {
        self.shared.machine.show(at, file.as_fd(), offset)?;
        advice::not_dumped(at);
        Ok(())
    }

    fn map_file(
        &self,
        region: &mut Region,
        granule: u64,
        at: Addresses,
        tracked: &Tracked,
        offset: u64,
    ) {
        region.ours = true;
        if (self.shared.machine)
            .show(at, tracked.file.as_fd(), offset)
            .is_ok()
        {
            region.set_file(granule);
        }
    }

    /// Shows the file where a granule shows a copy. Whether that is so now.
    fn leave(
        &self,
        region: &mut Region,
        granule: u64,
        range: &std::ops::Range<usize>,
        tracked: &Tracked,
        offset: u64,
    ) -> bool {
        region.ours = true;
        let done = put_back(self.maps, range, tracked.file.as_fd(), offset, false).is_ok();
        if done {
            region.set_file(granule);
        }
        done
    }
}

/// Whether the file is mapped there, all of it, as we may replace it.
fn is_files(range: &std::ops::Range<usize>, tracked: &Tracked, offset: u64) -> bool {
    let parts = shown(range.clone(), tracked.file.as_fd(), offset);
    let is_files = parts.is_ok_and(|parts| {
        matches!(&parts[..], [one] if one.range == *range && one.readable && !one.executable)
    });
    is_files && guards(range.clone()).is_ok_and(|guards| guards.is_empty())
}
