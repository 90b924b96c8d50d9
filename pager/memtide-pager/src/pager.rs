//! The pager: one budget, one evictor thread, many regions.

use crate::adopt::Layout;
use crate::bell::Bell;
use crate::board::{Board, Counts};
use crate::builder::{Builder, Mode, Settings};
use crate::error::Error;
use crate::file_mode::{Explained, FileMode, Gone, Opening, name_of};
use crate::kernel::{Kernel, Linux, Range};
use crate::order::ReadOrder;
use crate::region::{Adopted, Held, Region};
use crate::shared::{Core, Shared, core_readers, evictor, reader};
use crate::source::Source;
use crate::state::{Means, State};
use crate::statistics::{Counters, Statistics};
use crate::strict::StrictMode;
use crate::sys;
use crate::sys::known_file::KnownFile;
use crate::sys::mapping::Mapping;
use crate::unmap::lock;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Serves read-only data in a bounded amount of memory.
///
/// Clones are the same pager. The evictor thread ends when the last clone and
/// the last region are gone, or with [`Pager::shutdown`].
#[derive(Clone, Debug)]
pub struct Pager {
    pub(crate) shared: Arc<Shared>,
}

impl Builder {
    /// Checks the settings, looks what the kernel grants, and starts the
    /// evictor thread.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a value that cannot be, [`Error::Userfaultfd`]
    /// where the strict mode is forbidden, [`Error::MemoryPolicy`] for a policy
    /// that the kernel refuses, [`Error::Thread`].
    pub fn start(self) -> Result<Pager, Error> {
        Pager::start(self.check()?)
    }
}

impl Pager {
    /// Starts with the defaults; a budget has to be given.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn start(settings: Settings) -> Result<Pager, Error> {
        let kernel = Arc::new(Linux::new()?);
        Pager::start_on(settings, kernel)
    }

    /// Starts on a kernel of the caller's.
    pub(crate) fn start_on(settings: Settings, kernel: Arc<dyn Kernel>) -> Result<Pager, Error> {
        let limit = crate::limit::of_process(Path::new("/"));
        Pager::start_within(settings, kernel, limit)
    }

    /// The same, in a memory cgroup with this limit.
    pub(crate) fn start_within(
        mut settings: Settings,
        kernel: Arc<dyn Kernel>,
        limit: Option<u64>,
    ) -> Result<Pager, Error> {
        let mut memory = Means::best("the budget");
        if let Some(limit) = limit
            && settings.budget_bytes > crate::limit::for_data(limit)
        {
            let most = crate::limit::for_data(limit);
            let least = crate::builder::LEAST_GRANULES * settings.granule_bytes as u64;
            if settings.mode == Mode::Strict || most < least {
                let advice = format!("the memory cgroup allows {limit}; give at most {most}");
                return Err(Error::setting("budget", settings.budget_bytes, advice));
            }
            let granule = settings.granule_bytes as u64;
            settings.budget_bytes = most / granule * granule;
            let granules = (settings.budget_bytes / granule) as usize;
            settings.batch = settings.batch.min((granules / 4).max(1));
            let reason = format!("the memory cgroup allows {limit} bytes, the process included");
            memory = Means::instead("a lower budget", reason);
        }
        if let Some(policy) = &settings.memory_policy {
            crate::placement::try_out(policy)?;
        }
        let counters = Arc::new(Counters::default());
        counters.budget_bytes.set(settings.budget_bytes);
        let bell = Arc::new(Bell::default());
        let strict = match settings.mode {
            Mode::File => None,
            Mode::Strict => Some(StrictMode::new(
                settings.clone(),
                kernel.clone(),
                counters.clone(),
                bell.clone(),
            )?),
        };
        let core = Arc::new(Core {
            file: FileMode::new(settings.clone(), kernel.clone(), counters.clone()),
            kernel,
            counters,
            strict,
            bell,
            stop: AtomicBool::new(false),
            priority: Mutex::new(Means::best("as asked for")),
            memory,
            within: Mutex::new((0, true)),
            process: std::process::id(),
            board: OnceLock::new(),
            settings,
        });
        let shared = Arc::new(Shared {
            core,
            threads: Mutex::new(Vec::new()),
            regions: AtomicUsize::new(0),
        });
        shared.spawn(c"pager-evictor", evictor)?;
        let readers = core_readers(&shared.core);
        for _ in 0..readers {
            shared.spawn(c"pager-reader", reader)?;
        }
        Ok(Pager { shared })
    }

    /// Opens a file and serves all of it.
    ///
    /// # Errors
    ///
    /// [`Error::File`], [`Error::Empty`], [`Error::Limit`], [`Error::ShutDown`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Region, Error> {
        let core = &self.shared.core;
        core.usable()?;
        let path = path.as_ref();
        let wrong = |what| {
            move |errno| Error::File {
                path: path.to_owned(),
                what,
                errno,
            }
        };
        let file = KnownFile::open(path).map_err(wrong("open"))?;
        let facts = core
            .kernel
            .facts(file.as_fd())
            .map_err(wrong("look at it"))?;
        if facts.bytes == 0 {
            return Err(Error::Empty(path.to_owned()));
        }
        if let Some(strict) = &core.strict {
            let region = strict.open_file(path.to_owned(), file, facts)?;
            return Ok(Region::new(&self.shared, Held::Strict(region)));
        }
        let bytes = usize::try_from(facts.bytes)
            .map_err(|_| wrong("map all of it")(sys::Errno::OVERFLOW))?;
        let mapping = Mapping::of_file(file.as_fd(), 0, bytes).map_err(|errno| match errno {
            sys::Errno::NOMEM => Error::Limit {
                what: "address space for the file",
                errno,
                advice: "raise RLIMIT_AS or vm.max_map_count",
            },
            errno => wrong("map")(errno),
        })?;
        let number = core.file.add(Opening {
            name: Some(path.to_owned()),
            file: file.as_fd(),
            facts,
            range: Range {
                start: mapping.address(),
                bytes: bytes.next_multiple_of(rustix::param::page_size()),
            },
            offset: 0,
        })?;
        core.bell.ring();
        let explained = match core.settings.explain_faults {
            false => None,
            true => sys::sigbus::serve(Arc::new(Explained {
                name: path.display().to_string(),
                range: Range {
                    start: mapping.address(),
                    bytes: mapping.bytes(),
                },
            }))
            .ok(),
        };
        let held = Held::File {
            explained,
            number,
            path: path.to_owned(),
            file,
            mapping,
            bytes,
        };
        Ok(Region::new(&self.shared, held))
    }

    /// Serves data that need not be a file. Strict mode only.
    ///
    /// # Errors
    ///
    /// [`Error::StrictOnly`], and as [`Pager::open`].
    pub fn open_source(&self, source: impl Source + 'static) -> Result<Region, Error> {
        let core = &self.shared.core;
        core.usable()?;
        let Some(strict) = &core.strict else {
            return Err(Error::StrictOnly {
                what: "data that is not a file",
            });
        };
        let region = strict.open(Box::new(source))?;
        Ok(Region::new(&self.shared, Held::Strict(region)))
    }

    /// Takes care of a mapping that somebody else made: `bytes` bytes at
    /// `address` (both of whole pages; the last page may be cut by the file's
    /// end), which map `file` from `offset` on. The mapping must be readable and
    /// not writable. File mode only; the descriptor is duplicated.
    ///
    /// # Errors
    ///
    /// [`Error::NotAdoptable`] with what speaks against it (writable, another
    /// file, not a mapping at all), [`Error::File`], [`Error::ShutDown`].
    pub fn adopt(
        &self,
        address: usize,
        bytes: usize,
        file: impl AsFd,
        offset: u64,
    ) -> Result<Adopted, Error> {
        let one = [(address, bytes, file.as_fd(), offset)];
        self.adopt_many(one).remove(0)
    }

    /// [`Pager::adopt`] for many mappings at once, each an address, a length, a file
    /// and an offset, in less time than one after the other takes.
    pub fn adopt_many<'a>(
        &self,
        mappings: impl IntoIterator<Item = (usize, usize, BorrowedFd<'a>, u64)>,
    ) -> Vec<Result<Adopted, Error>> {
        let core = &self.shared.core;
        // A kernel that has to list all mappings of the process lists them once.
        let layout = &mut Layout::of(&*core.kernel);
        let mut ranges = Vec::new();
        let openings: Vec<_> = mappings
            .into_iter()
            .map(|(address, bytes, file, offset)| {
                let opening = self.adoptable(layout, address, bytes, file, offset);
                let nothing = Range {
                    start: address,
                    bytes: 0,
                };
                ranges.push(opening.as_ref().map_or(nothing, |opening| opening.range));
                opening
            })
            .collect();
        // In a forked child nobody may wait for a lock of the parent's.
        if openings.iter().all(Result::is_err) {
            let errors = openings.into_iter().filter_map(Result::err);
            return errors.map(Err).collect();
        }
        let numbers = core.file.add_many(openings);
        core.bell.ring();
        let adopted = |(number, range): (Result<u32, Error>, Range)| {
            Ok(Adopted::new(&self.shared, number?, range))
        };
        numbers.into_iter().zip(ranges).map(adopted).collect()
    }

    fn adoptable<'a>(
        &self,
        layout: &mut Layout<'_>,
        address: usize,
        bytes: usize,
        file: BorrowedFd<'a>,
        offset: u64,
    ) -> Result<Opening<'a>, Error> {
        let core = &self.shared.core;
        core.usable()?;
        if core.settings.mode != Mode::File {
            return Err(Error::NotAdoptable {
                address,
                bytes,
                reason: "a strict pager makes its own mappings; use Mode::File".to_owned(),
            });
        }
        let wrong = |what| {
            move |errno| Error::File {
                path: name_of(file),
                what,
                errno,
            }
        };
        let facts = core.kernel.facts(file).map_err(wrong("look at it"))?;
        let range = crate::adopt::pages(address, bytes, offset)?;
        crate::adopt::judge(layout, range, offset, &facts)?;
        Ok(Opening {
            name: None,
            file,
            facts,
            range,
            offset,
        })
    }

    /// Takes every part of every adopted mapping that lies in the range out of
    /// the pager's care; for who intercepts munmap, mremap, mprotect and mmap
    /// over something and does not know what was there. Once it has returned,
    /// the pager touches the range no more. True if there was such a part.
    pub fn forget(&self, address: usize, bytes: usize) -> bool {
        let range = Range {
            start: address,
            bytes,
        };
        let core = &self.shared.core;
        core.at_home() && core.file.cut(range, None, Gone::HandedOver)
    }

    /// [`Pager::forget`] for pages that the caller unmaps now. What the page cache
    /// has of them is there through the program's reading of the mapping: it goes on
    /// counting, and is dropped in its turn.
    pub fn forget_unmapped(&self, address: usize, bytes: usize) -> bool {
        let range = Range {
            start: address,
            bytes,
        };
        let core = &self.shared.core;
        core.at_home() && core.file.cut(range, None, Gone::Unmapped)
    }

    /// Has bytes of adopted mappings read in ahead of use, wherever they are adopted;
    /// returns at once. No more is read than half the budget, and no more than is free.
    pub fn read_ahead(&self, address: usize, bytes: usize) {
        let core = &self.shared.core;
        if core.usable().is_ok() {
            core.file
                .read_ahead_at(address..address.saturating_add(bytes));
        }
    }

    /// Says in which order the program reads adopted mappings in a range, as the
    /// kernel was just told; for who intercepts `madvise(2)`. What the kernel was told
    /// before a mapping was adopted the pager does not know, and may undo.
    pub fn advise(&self, address: usize, bytes: usize, order: ReadOrder) {
        let range = Range {
            start: address,
            bytes,
        };
        let core = &self.shared.core;
        if core.usable().is_ok() {
            core.file.advise(range, order);
        }
    }

    /// From now on, has the evictor show after each of its turns what was done, where other
    /// processes can read it ([`board`](crate::board)): beside the pager's own numbers what
    /// `beside` says, and the machine's count of shootdowns when the program began. A second
    /// time changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] where no memory file can be made, as by a filter of system calls;
    /// [`Error::Forked`], [`Error::ShutDown`].
    pub fn show_statistics(
        &self,
        beside: fn() -> Counts,
        shootdowns_before: Option<u64>,
    ) -> Result<(), Error> {
        let core = &self.shared.core;
        core.usable()?;
        if core.board.get().is_some() {
            return Ok(());
        }
        let board = Board::new(beside, shootdowns_before).map_err(|errno| Error::Limit {
            what: "a memory file that shows statistics",
            errno,
            advice: "all else is as usual, but memtide pager status sees none of this process",
        })?;
        // The evictor does not have it yet. If another thread was faster, this one ends.
        core.file.post(&board);
        let _ = core.board.set(board);
        Ok(())
    }

    /// What is returned has pagers of other processes that keep the same files choose without
    /// this one from then on, because its process ends. It is to be called without a lock that
    /// the start of a thread might need.
    pub fn part(&self) -> impl FnOnce() + 'static {
        let core = self.shared.core.clone();
        move || {
            if core.usable().is_ok() {
                core.file.part();
            }
        }
    }

    /// What it did so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.core.counters.snapshot()
    }

    /// What the kernel grants, and how the regions stand.
    pub fn state(&self) -> State {
        let core = &self.shared.core;
        if !core.at_home() {
            let gone = || Means::instead("nothing", "a forked child has no pager".to_owned());
            return State {
                unmap: gone(),
                sight: gone(),
                faults: gone(),
                priority: gone(),
                memory: gone(),
                regions: Vec::new(),
            };
        }
        let priority = lock(&core.priority).clone();
        let overrun = core.file.budget_means();
        let memory = overrun.unwrap_or_else(|| core.memory.clone());
        match &core.strict {
            None => State {
                unmap: core.file.unmap_means(),
                sight: core.file.sight_means(),
                faults: Means::best("the kernel"),
                priority,
                memory,
                regions: core.file.regions(),
            },
            Some(strict) => State {
                unmap: strict.unmap_means(),
                sight: Means::best("own books"),
                faults: strict.fault_means(),
                priority,
                memory,
                regions: strict.regions(),
            },
        }
    }

    /// Looks at everything, brings memory down to the budget now, and waits for that
    /// (5 s at most). True if it came.
    pub fn settle(&self) -> bool {
        let core = &self.shared.core;
        if core.usable().is_err() {
            return false;
        }
        core.file.look_at_all();
        let until = Instant::now() + Duration::from_secs(5);
        let start = lock(&core.within).0;
        while core.usable().is_ok() && Instant::now() < until {
            core.bell.ring();
            std::thread::sleep(Duration::from_millis(1));
            // The first look may have begun before the call.
            let (looks, within) = *lock(&core.within);
            if looks >= start + 2 && within {
                return true;
            }
        }
        false
    }

    /// Ends the evictor and returns what it did. File regions that are still
    /// open stay readable, bounded by nobody.
    ///
    /// # Errors
    ///
    /// [`Error::RegionsOpen`] in strict mode, whose regions need the evictor.
    pub fn shutdown(self) -> Result<Statistics, Error> {
        let open = self.shared.regions.load(SeqCst);
        if self.shared.core.strict.is_some() && open > 0 {
            return Err(Error::RegionsOpen(open));
        }
        self.shared.stop();
        Ok(self.statistics())
    }
}
