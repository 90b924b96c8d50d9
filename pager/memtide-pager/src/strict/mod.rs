//! Anonymous memory that holds exactly what the budget allows.
//!
//! A read of an absent page raises SIGBUS on the reader's own thread
//! (userfaultfd), which takes a credit, reads the page and puts it in place. How
//! much comes along is chosen by need ([`need`]). The evictor keeps credits ready:
//! it chooses a batch of granules ahead of need, leaves it readable, and when
//! credits run low unmaps all of it with one call. What is unmapped is gone; there
//! is no second chance, and use is seen only when a granule is read again. So some
//! of what is kept is evicted now and then as a sample.
//!
//! What stays true: pages in memory or on their way never exceed the credits;
//! a granule is unmapped only by who owns it (stage *leaving*), filled only by who
//! owns it (*loading*), and everybody else waits meanwhile.

mod gate;
mod need;
mod pages;
mod region;

pub(crate) use region::StrictRegion;

use crate::bell::Bell;
use crate::builder::{MOST_RANGES, Policy, Settings, Unmapping};
use crate::error::Error;
use crate::kernel::{FileFacts, Kernel, Range};
use crate::round::Round;
use crate::source::Source;
use crate::state::{Means, RegionState};
use crate::statistics::Counters;
use crate::sys::known_file::KnownFile;
use crate::sys::userfault::Held;
use crate::sys::{self, Errno, mapping::Mapping, sigbus};
use crate::unmap::{Ranges, Unmapper, lock};
use gate::Gate;
use memtide_core::eviction::{Config, Eviction, Granule};
use memtide_core::lazy_flush::{LazyFlush, Stamp};
use memtide_core::residency::Stage;
use memtide_linux::sys::descriptors;
use region::Parts;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const IDLE: Duration = Duration::from_millis(100);
/// The evictor keeps one such part of a batch free: what readers bring in until it
/// has unmapped the next batch. More would be memory that nobody has.
const FREE_PART: u32 = 2;

/// All strict regions of a pager.
#[derive(Debug)]
pub(crate) struct StrictMode {
    settings: Settings,
    kernel: Arc<dyn Kernel>,
    counters: Arc<Counters>,
    unmapper: Unmapper,
    faults: Arc<Held>,
    gate: Arc<Gate>,
    readers: Arc<Bell>,
    page_bytes: usize,
    inner: Mutex<Inner>,
}

/// Rounds between two looks at whether files that wait may be closed.
const CLOSES_EACH: u64 = 64;

#[derive(Debug)]
struct Inner {
    regions: Vec<Option<Arc<StrictRegion>>>,
    eviction: Eviction,
    flush: LazyFlush<Ranges>,
    /// Chosen, still readable.
    pending: Vec<(Granule, Stamp)>,
    rounds: u64,
}

/// An open region, and who serves its faults.
#[derive(Debug)]
pub(crate) struct Open {
    // Fields drop in this order: no fault is served once the mapping may go.
    pub registration: Option<sigbus::Registration>,
    pub region: Arc<StrictRegion>,
    /// Of a file when it was opened.
    facts: Option<FileFacts>,
    kernel: Arc<dyn Kernel>,
}

impl Open {
    /// Whether a file still is what was opened. Other sources promise it.
    pub fn check(&self) -> Result<(), Error> {
        let (Some(before), Some(file)) = (self.facts, self.region.source_file()) else {
            return Ok(());
        };
        let what = match self.kernel.facts(file) {
            Ok(now) if now == before => return Ok(()),
            Ok(now) if now.bytes < before.bytes => {
                format!("cut from {} to {} bytes", before.bytes, now.bytes)
            }
            Ok(_) => "written to".to_owned(),
            Err(errno) => format!("cannot be looked at any more ({errno})"),
        };
        Err(Error::Changed {
            path: self.region.name.clone().into(),
            what,
        })
    }
}

/// A file as a source.
#[derive(Debug)]
struct FileSource {
    path: PathBuf,
    file: KnownFile,
    bytes: u64,
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        match self.file() {
            Some(file) => Ok(rustix::io::pread(file, buffer, offset)?),
            None => Err(Errno::BADF.into()),
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        // A program may close what it did not open, and the number be another file's by now.
        self.file.is_ours().then(|| self.file.as_fd())
    }
}

impl StrictMode {
    pub fn new(
        settings: Settings,
        kernel: Arc<dyn Kernel>,
        counters: Arc<Counters>,
        bell: Arc<Bell>,
    ) -> Result<StrictMode, Error> {
        let faults = Held::new().map_err(|errno| Error::Userfaultfd {
            errno,
            advice: advice(errno),
        })?;
        let page_bytes = rustix::param::page_size();
        let total = u32::try_from(settings.budget_bytes / page_bytes as u64).map_err(|_| {
            Error::setting("budget", settings.budget_bytes, "give less than 16 TiB")
        })?;
        let granule_pages = settings.granule_bytes / page_bytes;
        let low = (settings.batch * granule_pages) as u32 / FREE_PART;
        let gate = Gate::new(total, low, settings.granule_bytes, bell, counters.clone());
        let config = Config {
            capacity_pages: settings.budget_bytes / page_bytes as u64,
            keep_main: settings.policy == Policy::ScanResistant,
            second_chance: false,
        };
        Ok(StrictMode {
            unmapper: Unmapper::new(kernel.clone()),
            kernel,
            counters,
            faults: Arc::new(faults),
            gate: Arc::new(gate),
            readers: Arc::default(),
            page_bytes,
            inner: Mutex::new(Inner {
                regions: Vec::new(),
                eviction: Eviction::new(config),
                flush: LazyFlush::new(),
                pending: Vec::new(),
                rounds: 0,
            }),
            settings,
        })
    }

    pub fn open_file(
        &self,
        path: PathBuf,
        file: KnownFile,
        facts: FileFacts,
    ) -> Result<Open, Error> {
        self.kernel.read_exactly(file.as_fd());
        let source = FileSource {
            path,
            file: file.high(),
            bytes: facts.bytes,
        };
        let mut open = self.open(Box::new(source))?;
        open.facts = Some(facts);
        Ok(open)
    }

    pub fn open(&self, source: Box<dyn Source>) -> Result<Open, Error> {
        let name = source.name();
        let bytes = usize::try_from(source.len()).unwrap_or(usize::MAX);
        if bytes == 0 {
            return Err(Error::Empty(name.into()));
        }
        let space = |errno| Error::Limit {
            what: "address space for the data",
            errno,
            advice: match errno {
                Errno::AGAIN => "raise RLIMIT_MEMLOCK: mlockall has all memory to come counted",
                _ => "raise RLIMIT_AS or vm.max_map_count",
            },
        };
        let whole = bytes.checked_next_multiple_of(self.page_bytes);
        let whole = whole.ok_or_else(|| space(Errno::NOMEM))?;
        let mapping = Mapping::anonymous(whole, self.settings.granule_bytes).map_err(space)?;
        if let Some(policy) = &self.settings.memory_policy {
            crate::placement::bind(policy, mapping.address(), mapping.bytes())?;
        }
        sys::userfault::register(self.faults.as_fd(), mapping.address(), mapping.bytes()).map_err(
            |errno| Error::Userfaultfd {
                errno,
                advice: advice(errno),
            },
        )?;
        mapping.allow_reading().map_err(space)?;
        let mut inner = lock(&self.inner);
        let number = inner.eviction.add_region();
        let region = Arc::new(StrictRegion::new(Parts {
            source,
            mapping,
            bytes,
            granule_bytes: self.settings.granule_bytes,
            ahead_bytes: self.settings.read_ahead.bytes,
            number,
            faults: self.faults.clone(),
            gate: self.gate.clone(),
            readers: self.readers.clone(),
            kernel: self.kernel.clone(),
            counters: self.counters.clone(),
            explain: self.settings.explain_faults,
        }));
        let registration = match sigbus::serve(region.clone()) {
            Ok(registration) => registration,
            Err(errno) => {
                inner.eviction.remove_region(number);
                return Err(Error::Limit {
                    what: "a SIGBUS handler for the region",
                    errno,
                    advice: "at most 256 regions of a process are served at a time",
                });
            }
        };
        let at = number as usize;
        if inner.regions.len() <= at {
            inner.regions.resize_with(at + 1, || None);
        }
        inner.regions[at] = Some(region.clone());
        Ok(Open {
            registration: Some(registration),
            region,
            facts: None,
            kernel: self.kernel.clone(),
        })
    }

    /// Ends a region: nobody reads it any more.
    pub fn close(&self, region: &StrictRegion) {
        region.closed.store(true, SeqCst);
        let mut inner = lock(&self.inner);
        let mut held = 0;
        for (index, word) in region.words.iter().enumerate() {
            // A reader thread may still be loading ahead.
            while matches!(word.stage(), Stage::Loading | Stage::Leaving) {
                if self.gate.is_given_up() {
                    break;
                }
                region.wait(index);
            }
            if word.step(Stage::Here, Stage::Leaving) {
                held += region.gone(index);
                region.settle(index, Stage::Absent);
            }
        }
        let number = region.number;
        inner.regions[number as usize] = None;
        inner.eviction.remove_region(number);
        inner
            .pending
            .retain(|(granule, _)| granule.region != number);
        let (start, end) = sigbus::Served::span(region);
        inner.flush.covered(|ranges| {
            ranges
                .0
                .retain(|range| range.start < start || range.start >= end)
        });
        // Unmapped now, so that the credits stand for memory that is free.
        let whole = Range {
            start,
            bytes: end - start,
        };
        let _ = self.kernel.zap_one(whole);
        self.gate.give(held);
    }

    /// One turn of the evictor.
    pub fn round(&self) -> Round {
        let mut guard = lock(&self.inner);
        let inner = &mut *guard;
        inner.rounds += 1;
        if inner.rounds.is_multiple_of(CLOSES_EACH) {
            descriptors::close_waiting();
        }
        self.note_arrivals(inner);
        let resident = u64::from(self.gate.in_use()) * self.page_bytes as u64;
        self.counters.resident_bytes.set(resident);
        self.counters.peak_resident_bytes.raise_to(resident);
        let batch = self.batch_pages();
        let low = self.gate.low();
        let mut stuck = false;
        for _ in 0..16 {
            let free = self.gate.free();
            if free <= low + batch && inner.pending.is_empty() {
                self.choose(inner);
            }
            if free > low && !self.gate.is_awaited() {
                break;
            }
            stuck = inner.pending.is_empty() || self.evict(inner) == 0;
            if stuck {
                break;
            }
            self.note_arrivals(inner);
        }
        // Who waits may not have had a processor yet since there are credits again.
        let granule = (self.settings.granule_bytes / self.page_bytes) as u32;
        let short = self.gate.free() <= low.max(granule);
        self.gate.set_stuck(stuck && short);
        let pages = |(granule, _): &(Granule, Stamp)| u64::from(inner.eviction.pages(*granule));
        self.counters
            .pending_pages
            .set(inner.pending.iter().map(pages).sum());
        let resident = u64::from(self.gate.in_use()) * self.page_bytes as u64;
        self.counters.resident_bytes.set(resident);
        let within = resident <= self.settings.budget_bytes;
        let wait = match self.gate.is_awaited() || !within {
            true => Duration::from_millis(1),
            false => IDLE,
        };
        Round {
            wait,
            within,
            settled: within,
            idle: false,
        }
    }

    fn note_arrivals(&self, inner: &mut Inner) {
        let Inner {
            regions, eviction, ..
        } = inner;
        for region in regions.iter().flatten() {
            region.arrived.take_each(|index| {
                let granule = Granule {
                    region: region.number,
                    index: index as u32,
                };
                // It may have left again before we looked.
                if region.words[index].stage() != Stage::Here {
                    return;
                }
                let (before, now) = (eviction.pages(granule), region.held(index));
                eviction.appeared(granule, now, |_| false);
                if eviction.is_chosen(granule) {
                    let late = now.saturating_sub(before);
                    self.counters.evicted_pages.add(u64::from(late));
                }
            });
        }
    }

    /// Pages of a batch.
    fn batch_pages(&self) -> u32 {
        (self.settings.batch * (self.settings.granule_bytes / self.page_bytes)) as u32
    }

    /// Chooses a batch; it stays readable.
    fn choose(&self, inner: &mut Inner) {
        let mut chosen = Vec::new();
        let pages = u64::from(self.batch_pages());
        inner
            .eviction
            .choose(pages, MOST_RANGES, &mut chosen, |_| false);
        for granule in chosen {
            let Some(region) = &inner.regions[granule.region as usize] else {
                continue;
            };
            let span = region.span_of(granule.index as usize);
            self.counters
                .evicted_pages
                .add(u64::from(inner.eviction.pages(granule)));
            let stamp = inner.flush.defer(Ranges(vec![span])).unwrap_or(Stamp::NONE);
            inner.pending.push((granule, stamp));
        }
    }

    /// Unmaps all that is pending and gives the credits back. Returns how many.
    fn evict(&self, inner: &mut Inner) -> u32 {
        let (mut leaving, mut spans, mut last) = (Vec::new(), Vec::new(), Stamp::NONE);
        for (granule, stamp) in std::mem::take(&mut inner.pending) {
            last = stamp;
            let Some(region) = inner.regions[granule.region as usize].clone() else {
                continue;
            };
            let word = &region.words[granule.index as usize];
            if word.step(Stage::Here, Stage::Leaving) {
                spans.push(region.span_of(granule.index as usize));
                leaving.push((region, granule));
            } else if matches!(word.stage(), Stage::Absent | Stage::Failed) {
                // Mended or failed meanwhile: it is not in memory.
                inner.eviction.dropped(granule);
            } else {
                inner.eviction.put_back(granule);
            }
        }
        spans.sort_unstable_by_key(|range| range.start);
        let leaves = |range: &Range| {
            let found = spans.binary_search_by_key(&range.start, |span| span.start);
            found.is_ok()
        };
        inner
            .flush
            .covered(|ranges| ranges.0.retain(|range| leaves(range)));
        let mut refused = Vec::new();
        let unmapper = &self.unmapper;
        let counters = &self.counters;
        inner.flush.take(last, |mut ranges| {
            refused = match self.settings.unmapping {
                Unmapping::Lazy => unmapper.unmap(&mut ranges.0, counters, Some),
                // Nobody else maps anything there.
                Unmapping::EagerPages => {
                    let held = |(region, granule): &(Arc<StrictRegion>, Granule)| {
                        region.held_spans(granule.index as usize)
                    };
                    let pages: Vec<Range> = leaving.iter().flat_map(held).collect();
                    unmapper.unmap_each(&pages, self.page_bytes, counters, |_| true)
                }
                Unmapping::EagerGranules => {
                    let bytes = self.settings.granule_bytes;
                    unmapper.unmap_each(&ranges.0, bytes, counters, |_| true)
                }
            };
        });
        let mut given = 0;
        for (region, granule) in leaving {
            let index = granule.index as usize;
            let span = region.span_of(index);
            let within = |part: &Range| span.start <= part.start && part.end() <= span.end();
            if refused.iter().any(within) {
                counters.stuck_pages.add(u64::from(region.held(index)));
                region.settle(index, Stage::Here);
                inner.eviction.put_back(granule);
                continue;
            }
            // What came after the choice goes along.
            let chosen = inner.eviction.pages(granule);
            inner.eviction.dropped(granule);
            let pages = region.gone(index);
            region.drop_copy(index);
            region.settle(index, Stage::Absent);
            let late = pages.saturating_sub(chosen);
            counters.evicted_pages.add(u64::from(late));
            counters.zapped_pages.add(u64::from(pages));
            counters.dropped_pages.add(u64::from(pages));
            given += pages;
        }
        self.gate.give(given);
        given
    }

    /// A reader thread: what is wanted, then what would be good to have.
    pub fn read(&self, stopped: impl Fn() -> bool) {
        while !stopped() {
            let heard = self.readers.heard();
            let regions: Vec<_> = lock(&self.inner)
                .regions
                .iter()
                .flatten()
                .cloned()
                .collect();
            let mut any = false;
            for region in &regions {
                any |= region.serve_readers(&stopped);
            }
            drop(regions);
            if !any {
                self.readers.wait(heard, Duration::from_secs(1));
            }
        }
    }

    /// Nobody evicts any more: who waits gets an error.
    pub fn give_up(&self) {
        self.gate.give_up();
        self.readers.ring();
    }

    pub fn unmap_means(&self) -> Means {
        self.unmapper.means()
    }

    pub fn fault_means(&self) -> Means {
        match sigbus::is_ours() {
            true => Means::best("userfaultfd, SIGBUS"),
            false => Means::instead(
                "userfaultfd, SIGBUS",
                "the program installed a SIGBUS handler after the pager's: it must pass on what it \
                 does not know",
            ),
        }
    }

    pub fn regions(&self) -> Vec<RegionState> {
        let inner = lock(&self.inner);
        let of = |region: &Arc<StrictRegion>| RegionState {
            name: region.name.clone(),
            address: region.mapping.address(),
            bytes: region.bytes as u64,
            resident_bytes: u64::from(region.held_in_all()) * region.page_bytes as u64,
            trouble: region.trouble(),
        };
        inner.regions.iter().flatten().map(of).collect()
    }
}

/// What grants a userfaultfd that the kernel refused.
fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            "a seccomp filter or security module forbids userfaultfd(2) with UFFD_USER_MODE_ONLY; \
             allow it, grant CAP_SYS_PTRACE or set vm.unprivileged_userfaultfd=1, or use Mode::File"
        }
        Errno::NOSYS => {
            "the kernel has no userfaultfd (CONFIG_USERFAULTFD) or a seccomp filter hides it; use \
             Mode::File"
        }
        Errno::INVAL => {
            "the kernel knows no UFFD_USER_MODE_ONLY or no UFFD_FEATURE_SIGBUS; use Linux 5.11 or \
             later, or Mode::File"
        }
        Errno::MFILE | Errno::NFILE => "no descriptor is free; raise RLIMIT_NOFILE",
        _ => "use Mode::File",
    }
}
