//! Plain file mappings: the kernel serves faults and reads ahead, the pager
//! watches the page cache and evicts.
//!
//! A granule goes through these states:
//!
//! ```text
//!     absent ─► here ─► pending ─► unmapped ─► absent
//!                ▲         (mapped)    │ touched again: a minor fault
//!                └─────────────────────┘ "rescued"
//! ```
//!
//! *Pending* granules are chosen and still mapped. Their stamp says in which
//! generation of the lazy flush they wait; before the memory of one is taken, all
//! of its generation are unmapped with one call. *Unmapped* ones have their
//! second chance until the next batch is due, and then the page cache drops them:
//! no flush, for no entry is left.
//!
//! What stays true whatever the pager does: the kernel frees no page that
//! somebody maps, so a mistake here costs memory or time, never a wrong byte.
//! Addresses are unmapped only under the lock, so whoever took a range out of the
//! pager's care ([`FileMode::forget`]) may do with it what he likes.

mod ahead;
mod evict;
mod explain;
mod guard;
mod look;

pub(crate) use evict::Round;
pub(crate) use explain::Explained;

use crate::builder::{Policy, Settings, Unmapping};
use crate::error::Error;
use crate::kernel::{FileFacts, Kernel, Range};
use crate::state::{Means, RegionState};
use crate::statistics::Counters;
use crate::sys::known_file::KnownFile;
use crate::unmap::{Ranges, Unmapper, lock};
use memtide_core::eviction::{Config, Eviction, Granule};
use memtide_core::lazy_flush::{LazyFlush, Stamp};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// How a look at the page cache is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// `cachestat` says where something changed, `mincore` what.
    CountedThenSeen,
    /// `mincore` everywhere.
    Seen,
    /// Only what is mapped: the kernel hides the page cache of files that one may
    /// not write to.
    Mapped,
}

/// All file regions of a pager.
#[derive(Debug)]
pub(crate) struct FileMode {
    kernel: Arc<dyn Kernel>,
    unmapper: Unmapper,
    counters: Arc<Counters>,
    settings: Settings,
    page_bytes: usize,
    inner: Mutex<Inner>,
    pub(crate) wanted: ahead::Wanted,
}

#[derive(Debug)]
struct Inner {
    /// By the number that [`Eviction::add_region`] gave.
    regions: Vec<Option<FileRegion>>,
    eviction: Eviction,
    flush: LazyFlush<Ranges>,
    /// Chosen, still mapped.
    pending: Vec<(Granule, Stamp)>,
    /// Chosen, unmapped, in order.
    unmapped: VecDeque<(Granule, Stamp)>,
    resident_pages: u64,
    /// Blocks to count in the next round: region and block.
    warm: VecDeque<(usize, usize)>,
    /// Where the look at the others goes on: region and block.
    hand: (usize, usize),
    sight: Option<Means>,
    rounds: u64,
    /// Pages a second that came into memory, of late.
    pace: f64,
}

#[derive(Debug)]
struct FileRegion {
    name: PathBuf,
    file: KnownFile,
    range: Range,
    /// Of the first byte in the file.
    offset: u64,
    facts: FileFacts,
    sight: Sight,
    /// Pages in memory by block, of which it is known where they are.
    blocks: Vec<u32>,
    /// Pages in memory by block, as last counted.
    counted: Vec<u32>,
    /// Blocks that are in [`Inner::warm`].
    is_warm: Vec<bool>,
    partly_excluded: bool,
    /// Blocks in which a granule could not be dropped alone: it is part of a
    /// larger folio.
    large: Vec<bool>,
    /// Granules that are no longer ours.
    excluded: Vec<bool>,
    trouble: Option<String>,
    streams: ahead::Streams,
}

impl FileRegion {
    fn resident_pages(&self) -> u64 {
        self.counted.iter().map(|pages| u64::from(*pages)).sum()
    }
}

impl FileRegion {
    /// Takes pages out of a block's books; how many were counted.
    fn take_out(&mut self, block: usize, pages: u32) -> u64 {
        self.blocks[block] = self.blocks[block].saturating_sub(pages);
        let counted = self.counted[block].min(pages);
        self.counted[block] -= counted;
        u64::from(counted)
    }
}

/// What is opened.
#[derive(Debug)]
pub(crate) struct Opening {
    pub name: PathBuf,
    pub file: OwnedFd,
    pub range: Range,
    pub offset: u64,
}

impl FileMode {
    pub fn new(settings: Settings, kernel: Arc<dyn Kernel>, counters: Arc<Counters>) -> FileMode {
        let page_bytes = rustix::param::page_size();
        let eager = settings.unmapping != Unmapping::Lazy;
        // Batches that are kept free or on their way out are no room to keep data in.
        let batches = (3 * settings.batch * settings.granule_bytes) as u64;
        let config = Config {
            capacity_pages: (settings.budget_bytes - batches) / page_bytes as u64,
            keep_main: settings.policy == Policy::ScanResistant,
            second_chance: !eager,
        };
        FileMode {
            unmapper: Unmapper::new(kernel.clone()),
            kernel,
            counters,
            page_bytes,
            inner: Mutex::new(Inner {
                regions: Vec::new(),
                eviction: Eviction::new(config),
                flush: LazyFlush::new(),
                pending: Vec::new(),
                unmapped: VecDeque::new(),
                resident_pages: 0,
                warm: VecDeque::new(),
                hand: (0, 0),
                sight: None,
                rounds: 0,
                pace: 0.0,
            }),
            wanted: ahead::Wanted::default(),
            settings,
        }
    }

    /// Takes care of a mapping. Returns its number.
    pub fn add(&self, opening: Opening) -> Result<u32, Error> {
        let Opening {
            name,
            file,
            range,
            offset,
        } = opening;
        let facts = self
            .kernel
            .facts(file.as_fd())
            .map_err(|errno| Error::File {
                path: name.clone(),
                what: "look at it",
                errno,
            })?;
        let granules = range.bytes.div_ceil(self.settings.granule_bytes);
        let (sight, means) = self.sight_of(&file, range, offset);
        self.trim(&file, range, offset);
        let mut inner = lock(&self.inner);
        if inner.sight.as_ref().is_none_or(|before| before.best) {
            inner.sight = Some(means);
        }
        let number = inner.eviction.add_region(granules);
        let region = FileRegion {
            blocks: vec![0; range.bytes.div_ceil(self.block_bytes())],
            counted: vec![0; range.bytes.div_ceil(self.block_bytes())],
            is_warm: vec![false; range.bytes.div_ceil(self.block_bytes())],
            partly_excluded: false,
            large: vec![false; range.bytes.div_ceil(self.block_bytes())],
            excluded: vec![false; granules],
            trouble: None,
            streams: ahead::Streams::default(),
            name,
            file: KnownFile::new(file),
            range,
            offset,
            facts,
            sight,
        };
        let at = number as usize;
        if inner.regions.len() <= at {
            inner.regions.resize_with(at + 1, || None);
        }
        inner.regions[at] = Some(region);
        Ok(number)
    }

    /// A file that was written or read before may be in memory as a whole: what
    /// goes beyond the budget leaves at once. The beginning stays.
    fn trim(&self, file: &OwnedFd, range: Range, offset: u64) {
        let keep = self.settings.budget_bytes / 2;
        let bytes = range.bytes as u64;
        let limit = self.settings.budget_bytes / self.page_bytes as u64;
        let cached = self.kernel.count_cached(file.as_fd(), offset, bytes);
        let all = cached.unwrap_or(bytes / self.page_bytes as u64);
        if all > limit && bytes > keep {
            let dropped = self
                .kernel
                .drop_cached(file.as_fd(), offset + keep, bytes - keep);
            self.counters.failed_calls.add(u64::from(dropped.is_err()));
        }
    }

    /// Ends the care for a region: nothing of it is touched any more.
    pub fn remove(&self, number: u32) {
        let mut inner = lock(&self.inner);
        let Some(region) = inner.regions[number as usize].take() else {
            return;
        };
        inner.resident_pages -= region.resident_pages();
        inner.warm.retain(|(of, _)| *of != number as usize);
        inner.eviction.remove_region(number);
        inner
            .pending
            .retain(|(granule, _)| granule.region != number);
        inner
            .unmapped
            .retain(|(granule, _)| granule.region != number);
        // Whoever ends the mapping flushes what was pending in it.
        let range = region.range;
        inner
            .flush
            .covered(|ranges| ranges.0.retain(|r| !overlap(r, &range)));
        drop(inner);
        self.wanted.forget(number);
    }

    /// Takes what lies in a range out of the pager's care; true if anything did.
    /// `only` restricts it to one region.
    pub fn forget(&self, range: Range, only: Option<u32>) -> bool {
        let granule_bytes = self.settings.granule_bytes;
        let mut guard = lock(&self.inner);
        let inner = &mut *guard;
        let mut found = false;
        for (number, region) in inner.regions.iter_mut().enumerate() {
            let number = number as u32;
            let Some(region) = region else { continue };
            if only.is_some_and(|only| only != number) || !overlap(&region.range, &range) {
                continue;
            }
            found = true;
            let start = range.start.max(region.range.start) - region.range.start;
            let end = range.end().min(region.range.end()) - region.range.start;
            for index in start / granule_bytes..end.div_ceil(granule_bytes) {
                if std::mem::replace(&mut region.excluded[index], true) {
                    continue;
                }
                let index = index as u32;
                let granule = Granule {
                    region: number,
                    index,
                };
                let pages = inner.eviction.pages(granule);
                let block = self.block_of(index);
                inner.resident_pages -= region.take_out(block, pages);
                region.partly_excluded = true;
                inner.eviction.dropped(granule);
            }
        }
        if found {
            let regions = &inner.regions;
            let gone = |granule: &Granule| {
                let region = regions[granule.region as usize].as_ref();
                region.is_none_or(|region| region.excluded[granule.index as usize])
            };
            inner.pending.retain(|(granule, _)| !gone(granule));
            inner.unmapped.retain(|(granule, _)| !gone(granule));
            // Who changes the mapping flushes what was pending in it.
            let spans = inner.pending.iter().map(|(granule, _)| *granule);
            let kept: Vec<Range> = spans.filter_map(|g| self.span_of(regions, g)).collect();
            inner
                .flush
                .covered(|ranges| ranges.0.retain(|range| kept.contains(range)));
        }
        found
    }

    /// Whether the file still is what was opened.
    pub fn check(&self, number: u32) -> Result<(), Error> {
        let inner = lock(&self.inner);
        let Some(region) = inner.regions[number as usize].as_ref() else {
            return Ok(());
        };
        match self.changed(region) {
            None => Ok(()),
            Some(what) => Err(Error::Changed {
                path: region.name.clone(),
                what,
            }),
        }
    }

    /// How a region's file changed since it was opened.
    fn changed(&self, region: &FileRegion) -> Option<String> {
        match self.kernel.facts(region.file.as_fd()) {
            Err(errno) => Some(format!("cannot be looked at any more ({errno})")),
            Ok(now) if now.bytes < region.facts.bytes => Some(format!(
                "cut from {} to {} bytes",
                region.facts.bytes, now.bytes
            )),
            Ok(now) if now != region.facts => Some("written to".to_owned()),
            Ok(_) => None,
        }
    }

    /// How every region stands.
    pub fn regions(&self) -> Vec<RegionState> {
        let inner = lock(&self.inner);
        let of = |region: &FileRegion| RegionState {
            name: region.name.display().to_string(),
            address: region.range.start,
            bytes: region.range.bytes as u64,
            resident_bytes: region.resident_pages() * self.page_bytes as u64,
            trouble: region.trouble.clone(),
        };
        inner.regions.iter().flatten().map(of).collect()
    }

    pub fn unmap_means(&self) -> Means {
        self.unmapper.means()
    }

    /// How the page cache is seen; the worst of all regions.
    pub fn sight_means(&self) -> Means {
        let known = lock(&self.inner).sight.clone();
        known.unwrap_or_else(|| Means::best("cachestat and mincore"))
    }

    /// Bytes that are looked at together.
    fn block_bytes(&self) -> usize {
        self.settings.granule_bytes.max(2 << 20)
    }

    fn block_of(&self, index: u32) -> usize {
        index as usize / (self.block_bytes() / self.settings.granule_bytes)
    }

    /// Addresses of a granule.
    fn span_of(&self, regions: &[Option<FileRegion>], granule: Granule) -> Option<Range> {
        let region = regions.get(granule.region as usize)?.as_ref()?;
        Some(self.span_in(region, granule.index))
    }

    fn span_in(&self, region: &FileRegion, index: u32) -> Range {
        let granule_bytes = self.settings.granule_bytes;
        let from = index as usize * granule_bytes;
        Range {
            start: region.range.start + from,
            bytes: granule_bytes.min(region.range.bytes - from),
        }
    }
}

fn overlap(a: &Range, b: &Range) -> bool {
    a.start < b.end() && b.start < a.end()
}
