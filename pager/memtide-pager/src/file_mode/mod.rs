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
//! Everything is kept by *file*, at offsets in the file: a program maps one file as
//! often as it likes, cuts pieces out, moves them and maps beyond the end, and its
//! pages are in memory once. Where the file is mapped just now says a list of
//! [`views`].
//!
//! What stays true whatever the pager does: the kernel frees no page that
//! somebody maps, so a mistake here costs memory or time, never a wrong byte.
//! Addresses are unmapped only under the lock, so whoever took a range out of the
//! pager's care ([`FileMode::cut`]) may do with it what he likes.

mod ahead;
mod around;
mod evict;
mod explain;
mod group;
mod guard;
mod look;
mod overrun;
mod together;
mod unseen;
mod views;

pub(crate) use explain::Explained;
pub(crate) use views::Gone;
use views::View;

use crate::board::{Board, Figures};
use crate::builder::{Policy, Settings, Unmapping};
use crate::error::Error;
use crate::kernel::{FileFacts, Kernel, Range};
use crate::order::ReadOrder;
use crate::state::{Means, RegionState};
use crate::statistics::Counters;
use crate::sys::Errno;
use crate::sys::known_file::KnownFile;
use crate::unmap::{Unmapper, lock};
use memtide_core::eviction::{Config, Eviction, Granule};
use memtide_core::lazy_flush::{LazyFlush, Pending, Stamp};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

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

/// Granules that wait for their unmapping. Where they are mapped is looked up when
/// it is done: views come and go meanwhile.
#[derive(Clone, Debug, Default)]
struct Granules(Vec<Granule>);

impl Pending for Granules {
    fn fold(&mut self, mut other: Granules) {
        self.0.append(&mut other.0);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// All file regions of a pager.
#[derive(Debug)]
pub(crate) struct FileMode {
    kernel: Arc<dyn Kernel>,
    unmapper: Unmapper,
    counters: Arc<Counters>,
    settings: Settings,
    page_bytes: usize,
    /// For what it keeps together with others, if it does.
    rooms: Option<group::Rooms>,
    inner: Mutex<Inner>,
    /// Threads of the program that want `inner`.
    waiting: AtomicU32,
    pub(crate) wanted: ahead::Wanted,
}

#[derive(Debug)]
struct Inner {
    /// Files, by the number that [`Eviction::add_region`] gave.
    regions: Vec<Option<FileRegion>>,
    /// What was taken care of, by the number that it was given.
    cares: Vec<Option<Care>>,
    /// Files that nobody maps any more and of which something is still in memory,
    /// the oldest first.
    orphans: VecDeque<usize>,
    eviction: Eviction,
    flush: LazyFlush<Granules>,
    /// Chosen, still mapped.
    pending: Vec<(Granule, Stamp)>,
    /// Chosen, unmapped, in order.
    unmapped: VecDeque<(Granule, Stamp)>,
    resident_pages: u64,
    /// Of files that other processes lead, as they say.
    followed_pages: u64,
    /// Blocks to count in the next round: region and block.
    warm: VecDeque<(usize, usize)>,
    /// Where the look at the others goes on: region and block.
    hand: (usize, usize),
    sight: Option<Means>,
    rounds: u64,
    /// Pages a second that came into memory, of late.
    pace: f64,
    overrun: overrun::Overrun,
    unseen: unseen::Unseen,
    /// Nobody reads around a fault just now: the budget is overrun.
    held_back: bool,
    /// Groups to leave, which takes what is not to be done under the lock of this.
    left: Vec<group::Group>,
    /// The process ends, and joins no group any more.
    parted: bool,
}

impl Inner {
    /// Pages in memory of everything that is kept.
    fn in_memory(&self) -> u64 {
        self.resident_pages + self.followed_pages
    }

    /// Whether a file that this pager followed so far may have no leader any more.
    fn wants_a_lead(&self) -> bool {
        let groups = self.regions.iter().flatten();
        let mut groups = groups.filter_map(|region| region.group.as_ref());
        groups.any(group::Group::wants_the_lead)
    }

    /// Whether nothing of what is in memory is this pager's to evict.
    fn leads_nothing(&self) -> bool {
        self.resident_pages == 0 && self.pending.is_empty() && self.unmapped.is_empty()
    }

    /// The sum by which it is decided what leaves is that of the blocks: otherwise the
    /// budget means nothing.
    fn hold(&self) {
        let mut all = 0;
        for region in self.regions.iter().flatten() {
            let blocks = region.blocks.iter();
            let counted: u64 = blocks.map(|block| u64::from(block.counted)).sum();
            assert_eq!(
                region.resident_pages, counted,
                "a file's pages in memory are the sum of its blocks'"
            );
            all += counted;
        }
        assert_eq!(
            self.resident_pages, all,
            "the pages in memory are the sum of the blocks'"
        );
    }
}

/// A mapping that somebody put into the pager's care.
#[derive(Clone, Copy, Debug)]
struct Care {
    region: usize,
    /// Of its first byte in the file.
    offset: u64,
    bytes: u64,
}

/// A file.
#[derive(Debug)]
struct FileRegion {
    name: PathBuf,
    file: KnownFile,
    facts: FileFacts,
    sight: Sight,
    /// By their addresses, which are each in one of them at most.
    views: Vec<View>,
    /// From the file's first byte on.
    blocks: Vec<Block>,
    /// Bytes of the file that the blocks reach to.
    seen_bytes: u64,
    /// The sum of the blocks' counted pages.
    resident_pages: u64,
    evicted_pages: u64,
    refilled_pages: u64,
    trouble: Option<String>,
    streams: ahead::Streams,
    around: around::Around,
    /// With others who keep the file, once the evictor joined them.
    group: Option<group::Group>,
    joins: bool,
    /// As long as others follow, all of the file is looked at.
    reaches_all: bool,
    /// Stretches were posted to followers, and nobody waited for their unmapping yet.
    posted: bool,
    /// As the leader says: nothing is to be read around a fault.
    told_by_need: bool,
}

/// A stretch of a file that is looked at together.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// Somebody maps it or what lies beside it, or did and left it in memory: its
    /// pages are our business.
    ours: bool,
    /// Pages in memory of which it is known where they are.
    known: u32,
    /// Pages in memory as last counted.
    counted: u32,
    /// It is in [`Inner::warm`].
    warm: bool,
    /// A granule of it could not be dropped alone: it is part of a larger folio.
    large: bool,
}

impl FileRegion {
    /// Whether another process decides what of it leaves memory.
    fn follows(&self) -> bool {
        self.group.as_ref().is_some_and(|group| !group.leads())
    }

    /// Pages in memory, by whoever counts them.
    fn pages_in_memory(&self) -> u64 {
        match &self.group {
            Some(group) if !group.leads() => group.resident(),
            _ => self.resident_pages,
        }
    }

    /// Enters how many of a block's pages are in memory; how many there were before.
    fn enter(&mut self, block: usize, pages: u32) -> u64 {
        let before = u64::from(std::mem::replace(&mut self.blocks[block].counted, pages));
        self.resident_pages = self.resident_pages + u64::from(pages) - before;
        before
    }

    /// Takes pages out of a block's books; how many were counted.
    fn take_out(&mut self, block: usize, pages: u32) -> u64 {
        let of = &mut self.blocks[block];
        of.known = of.known.saturating_sub(pages);
        let left = of.counted.saturating_sub(pages);
        self.enter(block, left) - u64::from(left)
    }
}

/// What is opened.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    /// What the file is called, if not as its descriptor says.
    pub name: Option<PathBuf>,
    pub file: BorrowedFd<'a>,
    pub facts: FileFacts,
    pub range: Range,
    pub offset: u64,
}

/// As the kernel calls what a descriptor is open for.
pub(crate) fn name_of(file: BorrowedFd<'_>) -> PathBuf {
    let link = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    std::fs::read_link(&link).unwrap_or_else(|_| link.into())
}

impl FileMode {
    /// Puts a page into the books that is in no block. The next round looks at the sum.
    #[cfg(test)]
    pub fn lose_count(&self) {
        let mut inner = self.inner();
        inner.resident_pages += 1;
        inner.rounds = evict::CHECK_FILES - 1;
    }

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
            rooms: together::rooms(&settings),
            inner: Mutex::new(Inner {
                regions: Vec::new(),
                cares: Vec::new(),
                orphans: VecDeque::new(),
                eviction: Eviction::new(config),
                flush: LazyFlush::new(),
                pending: Vec::new(),
                unmapped: VecDeque::new(),
                resident_pages: 0,
                followed_pages: 0,
                warm: VecDeque::new(),
                hand: (0, 0),
                sight: None,
                rounds: 0,
                pace: 0.0,
                overrun: overrun::Overrun::default(),
                unseen: unseen::Unseen::default(),
                held_back: false,
                left: Vec::new(),
                parted: false,
            }),
            waiting: AtomicU32::new(0),
            wanted: ahead::Wanted::default(),
            settings,
        }
    }

    /// For everybody but the evictor, who ends its round for it and lets it go first.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.waiting.fetch_add(1, Relaxed);
        let inner = lock(&self.inner);
        self.waiting.fetch_sub(1, Relaxed);
        inner
    }

    fn is_waited_for(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Takes care of a mapping. Returns its number.
    pub fn add(&self, opening: Opening<'_>) -> Result<u32, Error> {
        let mut inner = self.inner();
        let number = self.add_in(&mut inner, opening);
        self.tell_orders(&mut inner);
        number
    }

    /// The same for many, in the time that they take together.
    pub fn add_many<'a>(
        &self,
        openings: impl IntoIterator<Item = Result<Opening<'a>, Error>>,
    ) -> Vec<Result<u32, Error>> {
        let mut inner = self.inner();
        let add = |opening: Result<_, _>| self.add_in(&mut inner, opening?);
        let numbers = openings.into_iter().map(add).collect();
        self.tell_orders(&mut inner);
        numbers
    }

    fn add_in(&self, inner: &mut Inner, opening: Opening<'_>) -> Result<u32, Error> {
        let Opening {
            name,
            file,
            facts,
            range,
            offset,
        } = opening;
        let wrong = |what| {
            let name = name.clone();
            move |errno| Error::File {
                path: name.unwrap_or_else(|| name_of(file)),
                what,
                errno,
            }
        };
        // Granules of a file are counted with 32 bits.
        let last =
            (offset + range.bytes as u64).min(facts.bytes) / self.settings.granule_bytes as u64;
        if u32::try_from(last).is_err() {
            return Err(wrong("keep so much of it; give a larger granule")(
                Errno::FBIG,
            ));
        }
        let same = |region: &FileRegion| {
            (region.facts.device, region.facts.inode) == (facts.device, facts.inode)
        };
        // What lay there before is there no more.
        self.cut_in(inner, range, None, Gone::Unmapped);
        self.kernel.keep_small(range);
        let known = |region: &Option<FileRegion>| region.as_ref().is_some_and(same);
        let known = inner.regions.iter().position(known);
        let region = match known {
            Some(at) => at,
            None => {
                // Held from here on; mappings of a known file need no descriptor more.
                let file = KnownFile::of(file)
                    .map_err(|_| wrong("duplicate its descriptor")(Errno::MFILE))?;
                let (sight, means) = self.sight_of(&file, range, offset);
                self.trim((&file, sight), range, offset);
                let around = self.kernel.read_around(facts.device);
                if inner.sight.as_ref().is_none_or(|before| before.best) {
                    inner.sight = Some(means);
                }
                let at = inner.eviction.add_region() as usize;
                if inner.regions.len() <= at {
                    inner.regions.resize_with(at + 1, || None);
                }
                inner.regions[at] = Some(FileRegion {
                    name: name.unwrap_or_else(|| name_of(file.as_fd())),
                    file,
                    facts,
                    sight,
                    views: Vec::new(),
                    blocks: Vec::new(),
                    seen_bytes: 0,
                    resident_pages: 0,
                    evicted_pages: 0,
                    refilled_pages: 0,
                    trouble: None,
                    streams: ahead::Streams::default(),
                    around: around::Around::new(around, self.settings.budget_bytes),
                    group: None,
                    joins: true,
                    reaches_all: false,
                    posted: false,
                    told_by_need: false,
                });
                at
            }
        };
        inner.orphans.retain(|orphan| *orphan != region);
        let care = Care {
            region,
            offset,
            bytes: range.bytes as u64,
        };
        let free = inner.cares.iter().position(Option::is_none);
        let number = free.unwrap_or(inner.cares.len());
        match free {
            Some(at) => inner.cares[at] = Some(care),
            None => inner.cares.push(Some(care)),
        }
        if let Some(of) = inner.regions[region].as_mut() {
            let view = View {
                care: number as u32,
                range,
                offset,
                order: ReadOrder::Normal,
                told: ReadOrder::Normal,
            };
            // Older views may show what the file has grown by.
            self.follow_to(of, facts.bytes);
            of.insert(view);
            // Who was on his own has books of the file, and stays so.
            of.joins |= of.group.is_none() && of.resident_pages == 0;
            self.reach(of, &view, facts.bytes);
        }
        Ok(number as u32)
    }

    /// A file that was written or read before may be in memory as a whole: what
    /// goes beyond the budget leaves at once. The beginning stays.
    fn trim(&self, (file, sight): (&KnownFile, Sight), range: Range, offset: u64) {
        let keep = self.settings.budget_bytes / 2;
        let bytes = range.bytes as u64;
        let limit = self.settings.budget_bytes / self.page_bytes as u64;
        let cached = match sight {
            Sight::CountedThenSeen => self.kernel.count_cached(file.as_fd(), offset, bytes).ok(),
            Sight::Seen | Sight::Mapped => None,
        };
        let all = cached.unwrap_or(bytes / self.page_bytes as u64);
        if all > limit && bytes > keep {
            let dropped = self
                .kernel
                .drop_cached(file.as_fd(), offset + keep, bytes - keep);
            self.counters.failed_calls.add(u64::from(dropped.is_err()));
        }
    }

    /// Whether the file still is what was opened.
    pub fn check(&self, number: u32) -> Result<(), Error> {
        let inner = self.inner();
        let care = inner.cares[number as usize];
        let Some(region) = care.and_then(|care| inner.regions[care.region].as_ref()) else {
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
        let inner = self.inner();
        let of = |region: &FileRegion| RegionState {
            name: region.name.display().to_string(),
            address: region.views.first().map_or(0, |view| view.range.start),
            bytes: region
                .views
                .iter()
                .map(|view| view.range.bytes as u64)
                .sum(),
            resident_bytes: region.pages_in_memory() * self.page_bytes as u64,
            trouble: region.trouble.clone(),
        };
        inner.regions.iter().flatten().map(of).collect()
    }

    /// Writes on a board how everything is now.
    pub fn post(&self, board: &Board) {
        self.post_in(&self.inner(), board);
    }

    fn post_in(&self, inner: &Inner, board: &Board) {
        board.post(&self.counters.snapshot(), |files| {
            for region in inner.regions.iter().flatten() {
                let views = region.views.iter();
                let figures = Figures {
                    mapped_bytes: views.map(|view| view.range.bytes as u64).sum(),
                    resident_bytes: region.pages_in_memory() * self.page_bytes as u64,
                    evicted_pages: region.evicted_pages,
                    refilled_pages: region.refilled_pages,
                };
                files.add(&region.name, &figures);
            }
        });
    }

    /// Says that the budget is not kept, to whom it may concern.
    fn say_overrun(&self, resident_pages: u64) {
        if let Some(tell) = self.settings.tell {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            tell(&format!(
                "the budget of {:.1} MiB is overrun by more than a tenth for a second: {:.1} MiB in \
                 memory; the evictor gets too little processor time, or pages are locked or mapped \
                 by others",
                mib(self.settings.budget_bytes),
                mib(resident_pages * self.page_bytes as u64),
            ));
        }
    }

    /// How the budget was kept, if it was overrun for too long.
    pub fn budget_means(&self) -> Option<Means> {
        let (longest, pages) = self.inner().overrun.worst()?;
        let bytes = pages * self.page_bytes as u64;
        let reason = format!(
            "overrun by more than a tenth for {:.1} s at worst, {} MiB then",
            longest.as_secs_f64(),
            bytes >> 20
        );
        Some(Means::instead("the budget", reason))
    }

    pub fn unmap_means(&self) -> Means {
        self.unmapper.means()
    }

    /// How the page cache is seen; the worst of all regions.
    pub fn sight_means(&self) -> Means {
        let known = self.inner().sight.clone();
        known.unwrap_or_else(|| Means::best("cachestat and mincore"))
    }

    /// Bytes that are looked at together.
    fn block_bytes(&self) -> usize {
        self.settings.granule_bytes.max(2 << 20)
    }

    fn block_of(&self, index: u32) -> usize {
        index as usize / (self.block_bytes() / self.settings.granule_bytes)
    }
}
