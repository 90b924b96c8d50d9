//! Which memory of a workload has huge pages, and at which scales that leaves the workload what it is.
//!
//! A simulated huge page has 512 simulated pages at any scale, so at scale 1/S it stands for S huge pages. A
//! mapping of fewer would have none, and a hot part of fewer would share its huge page with what is cold.

use super::limits::MAX_SCALE;
use super::{ProgramsSpec, WorkloadSpec, Wrong, want};
use crate::page::HUGE_PAGES;
use crate::units::Bytes;

/// Size of a huge page.
const HUGE_BYTES: u64 = HUGE_PAGES as u64 * 4096;

impl WorkloadSpec {
    /// Whether its memory has huge pages.
    pub(super) fn huge(&self) -> bool {
        match self {
            WorkloadSpec::Random(spec) => spec.huge,
            WorkloadSpec::Regions(spec) => spec.huge,
            WorkloadSpec::TwoSet(spec) => spec.huge,
            WorkloadSpec::Sockets(spec) => spec.huge,
            WorkloadSpec::Pmbench(spec) => spec.huge,
            WorkloadSpec::Stream(spec) => spec.huge,
            WorkloadSpec::Mlc(spec) => spec.huge,
            WorkloadSpec::Xsbench(spec) => spec.huge,
            WorkloadSpec::Zipf(spec) => spec.huge,
            WorkloadSpec::Phases(spec) => spec.huge,
            WorkloadSpec::HotSet(spec) => spec.huge,
            WorkloadSpec::Gups(spec) => spec.huge,
            WorkloadSpec::Ranges(spec) => spec.huge,
            WorkloadSpec::ScanOverHot(spec) => spec.huge,
            WorkloadSpec::PointerChase(spec) => spec.huge,
            WorkloadSpec::Trace(spec) => spec.huge,
            // Each program's are its own.
            WorkloadSpec::PageCount(_) | WorkloadSpec::Inference(_) | WorkloadSpec::Programs(_) => {
                false
            }
        }
    }

    /// Whether it, or one of its programs, has huge pages.
    pub(crate) fn any_huge(&self) -> bool {
        match self {
            WorkloadSpec::Programs(ProgramsSpec(all)) => {
                all.iter().any(|one| one.workload.any_huge())
            }
            _ => self.huge(),
        }
    }

    /// Its mappings that may have huge pages, by the keys of their sizes.
    fn mappings(&self) -> Vec<(&'static str, u64)> {
        let many = |bytes: Bytes, count: u32| bytes.0.saturating_mul(u64::from(count));
        match self {
            WorkloadSpec::Random(spec) => vec![("memory", spec.memory.0)],
            WorkloadSpec::Regions(spec) => {
                let hot = many(spec.region, spec.regions);
                vec![("idle", spec.idle.0), ("region", hot)]
            }
            WorkloadSpec::TwoSet(spec) => vec![("memory_per_set", spec.memory_per_set.0)],
            WorkloadSpec::Sockets(spec) => vec![
                ("memory_per_thread", spec.memory_per_thread.0),
                ("shared", spec.shared.0),
            ],
            WorkloadSpec::Pmbench(spec) => vec![
                ("memory_per_process", spec.memory_per_process.0),
                ("eater", spec.eater.0),
            ],
            WorkloadSpec::Stream(spec) => vec![("array", spec.array.0)],
            WorkloadSpec::Mlc(spec) => vec![("buffer", many(spec.buffer, spec.threads))],
            WorkloadSpec::Xsbench(spec) => vec![
                ("unionised_grid", spec.unionised_grid.0),
                ("nuclide_grids", spec.nuclide_grids.0),
            ],
            WorkloadSpec::Zipf(spec) => vec![("memory", spec.memory.0)],
            WorkloadSpec::Phases(spec) => vec![("memory", spec.memory.0)],
            WorkloadSpec::HotSet(spec) => vec![("memory", spec.memory.0)],
            WorkloadSpec::Gups(spec) => {
                let rest = spec.memory.0.saturating_sub(spec.hot.0);
                vec![("hot", spec.hot.0), ("memory less `hot`", rest)]
            }
            WorkloadSpec::Ranges(spec) => {
                let ranges = spec.range.iter();
                ranges.map(|range| ("range", range.memory.0)).collect()
            }
            WorkloadSpec::ScanOverHot(spec) => {
                vec![("hot", spec.hot.0), ("scanned", spec.scanned.0)]
            }
            WorkloadSpec::PointerChase(spec) => vec![("memory", spec.memory.0)],
            // Each program's are its own. A recording's mappings are widened to whole huge pages.
            WorkloadSpec::Programs(_)
            | WorkloadSpec::PageCount(_)
            | WorkloadSpec::Inference(_)
            | WorkloadSpec::Trace(_) => vec![],
        }
    }

    /// The largest S at which huge pages leave it what it is: each mapping, and each part of one that is hot by
    /// itself, has one at least, and rounding changes none by more than an eighth. 1 if that is so at none, for
    /// rounding is the least there. Nothing if it has none.
    pub(super) fn max_huge_scale(&self) -> Option<u32> {
        let hot = match self {
            _ if !self.huge() => return None,
            WorkloadSpec::HotSet(spec) => Some(spec.piece.unwrap_or(spec.hot)),
            WorkloadSpec::Phases(spec) => Some(spec.hot),
            WorkloadSpec::Regions(spec) => Some(spec.region),
            _ => None,
        };
        let sizes = self.mappings().into_iter().map(|(_, size)| size);
        let sizes: Vec<u64> = sizes
            .chain(hot.map(|hot| hot.0))
            .filter(|&size| size > 0)
            .collect();
        // Buffers lie together, and threads go to the end of theirs.
        let rounds_up = matches!(self, WorkloadSpec::Mlc(_));
        let stays = |scale: u32| {
            let huge = HUGE_BYTES * u64::from(scale);
            let rest = |size: u64| match rounds_up {
                true => (huge - size % huge) % huge,
                false => size % huge,
            };
            sizes
                .iter()
                .all(|&size| size >= huge && rest(size) <= size / 8)
        };
        let mut scale = MAX_SCALE;
        while scale > 1 && !stays(scale) {
            scale /= 2;
        }
        Some(scale)
    }

    /// That each mapping has a huge page if it is to have any.
    pub(super) fn has_huge_pages(&self) -> Result<(), Wrong> {
        let mappings = self.mappings().into_iter().filter(|_| self.huge());
        let small = |&(_, size): &(&str, u64)| (1..HUGE_BYTES).contains(&size);
        match mappings.filter(small).min_by_key(|&(_, size)| size) {
            None => Ok(()),
            Some((key, _)) => {
                let why = "less than a huge page of 2 MiB; make it larger, or leave out `huge`";
                match key.split_once(' ') {
                    Some((key, less)) => want(false, key, format!("{less} it is {why}")),
                    None => want(false, key, why),
                }
            }
        }
    }
}
