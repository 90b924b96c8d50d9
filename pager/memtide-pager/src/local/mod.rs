//! Copies of read-only files on the node where they are read.
//!
//! Problem. The page cache holds a file's page once, on the node of the thread that read it in.
//! Threads on other nodes read it from there, for ever: model weights, indexes and tables that
//! every process of a machine maps are remote for most of them.
//!
//! Approach. Each node gets a copy of its own, made by need, a granule of 2 MiB at a time, and
//! shared by all processes of one user that run there. A program maps the file as ever. A thread
//! beside it, the *keeper*, sees which granules the process has touched, has them copied, and
//! maps the copy in the file's place, in one step. Terms:
//!
//! - A *version* is a file's content as its times tell it ([`version`]). A copy belongs to one.
//! - A *copy* is a memory file on one node ([`copy`]). The kernel frees it with its last user.
//! - A *turn* is a node's lock and note, by which processes find each other's copies ([`folder`]).
//! - A *region* is a mapping that may show copies ([`region`]).
//! - A *round* tells which granules the process reads while there is no room for more ([`rounds`]).
//!
//! What stays true:
//!
//! - What is not copied yet, or not any more, is read from the file. No fault waits for us, and a
//!   reader never sees a byte that is not the version's: only whole granules are mapped, and what is
//!   mapped is neither written to nor taken away. Each granule is mapped through a file description
//!   that has a lock on it, and the kernel keeps this lock for as long as any process maps anything
//!   through that description. Memory is taken only under a lock that excludes all of these.
//! - A copy is used only for the version that it is of. When the file changes, its copies are
//!   dropped at the keeper's next look. That is within a quarter of a second ([`SLOW`]), or once
//!   the keeper has copied what one look lets it copy, 64 MiB, if that takes longer.
//! - The copies on a node have the budget together, whoever made them. What exceeds it is read
//!   from the file, and granules that are read less give way to it.
//! - Where the keeper ends, also by a panic, every mapping shows its file again.
//! - Who must stop using copies, because memory is short, maps the file again and closes them. No
//!   process takes memory away that another one maps.
//!
//! A process takes one node, that of most of its threads when its first granule is copied, unless
//! the caller names one ([`Replicas::open`]).

mod copy;
mod folder;
mod keeper;
mod machine;
mod put_back;
mod reason;
mod region;
mod rounds;
#[cfg(test)]
mod tests;
mod version;

pub use reason::Reason;

use crate::bell::Bell;
use crate::error::Error;
use crate::kernel::own_maps;
use crate::sys::apart::spawn_deaf;
use crate::sys::known_file::KnownFile;
use crate::sys::mapping::Mapping;
use crate::sys::thread::Thread;
pub(crate) use folder::path_of_user;
use keeper::Keeper;
use machine::{Live, Machine};
use memtide_core::units::NodeId;
use region::{Region, Source};
use rustix::thread::gettid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use version::Version;

/// Between two looks while there is something to copy.
const FAST: Duration = Duration::from_millis(10);
/// Between two looks at most.
const SLOW: Duration = Duration::from_millis(250);

/// A function that a sentence for people is given to.
pub type Tell = fn(&str);

/// Whom, and how much.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub budget_bytes: u64,
    pub folder: PathBuf,
    pub tell: Option<Tell>,
}

/// Keeps copies of files on the nodes where this process reads them.
///
/// Clones are the same. The keeper's thread ends with the last of them and the last region.
#[derive(Clone, Debug)]
pub struct Replicas(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
    /// A child that was forked does not have the thread.
    process: u32,
}

/// What callers and the keeper share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub state: Mutex<State>,
    pub bell: Bell,
    pub stop: AtomicBool,
    pub machine: Arc<dyn Machine>,
    pub settings: Settings,
}

/// What the lock protects: while it is held, nothing is mapped.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub regions: Vec<Region>,
    pub figures: Figures,
}

#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// The process's own node, once it is known.
    pub node: Option<NodeId>,
    pub filled_bytes: u64,
    pub given_up_bytes: u64,
    pub freed_bytes: u64,
    /// All copies on a node, whoever made them, as last seen.
    pub on_node: BTreeMap<NodeId, u64>,
    pub reasons: Vec<Reason>,
}

/// What copies do for this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocalStatistics {
    /// Of each node, for the copies of all processes of this user.
    pub budget_bytes: u64,
    /// The node whose copies this process reads; `None` before anything was copied.
    pub node: Option<NodeId>,
    /// Bytes of this process's mappings that show copies.
    pub mapped_bytes: u64,
    /// Bytes that this process has copied.
    pub filled_bytes: u64,
    /// Bytes of copies that it left, because others found no room and it did not read them.
    pub given_up_bytes: u64,
    /// Bytes of copies whose memory it took, because nobody mapped them and there was no room.
    pub freed_bytes: u64,
    /// Memory of all copies, by node, as this process last saw it.
    pub nodes: Vec<NodeCopies>,
    /// Why something is read without a copy.
    pub without_because: Vec<Reason>,
}

/// Memory of copies on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeCopies {
    /// Its id.
    pub node: NodeId,
    /// Memory of all copies there.
    pub copies_bytes: u64,
}

impl Shared {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a reason; a sentence for people is told once for each. On the keeper's thread.
    pub fn refuse(&self, file: &Path, reason: Reason) {
        let first = {
            let reasons = &mut self.state().figures.reasons;
            let first = !reasons.contains(&reason);
            if first {
                reasons.push(reason);
            }
            first
        };
        if let Some(tell) = self.settings.tell.filter(|_| first) {
            let words = format!("{}: {}", file.display(), reason.words());
            // The keeper, who calls this, has no standard error of its own.
            crate::sys::stderr::with_programs(|| tell(&words));
        }
    }
}

impl Replicas {
    /// Starts the keeper. `budget_bytes` is what all copies on one node may have together; `tell`
    /// is given each reason for which something is read without a copy, once.
    ///
    /// # Errors
    ///
    /// [`Error::NotLocal`] where there is one node with memory only, or where processes cannot
    /// find each other's copies; [`Error::Setting`] for a budget below a granule;
    /// [`Error::Thread`].
    pub fn start(budget_bytes: u64, tell: Option<Tell>) -> Result<Replicas, Error> {
        let limit = crate::limit::of_process(Path::new("/"));
        // Copies are charged to who fills them and are not reclaimed: the rest is the program's.
        let most = limit.map_or(u64::MAX, |limit| limit / 4);
        let settings = Settings {
            budget_bytes: budget_bytes.min(most),
            folder: path_of_user("local"),
            tell,
        };
        Replicas::start_on(settings, Arc::new(Live::new()))
    }

    pub(crate) fn start_on(
        settings: Settings,
        machine: Arc<dyn Machine>,
    ) -> Result<Replicas, Error> {
        if settings.budget_bytes < copy::GRANULE {
            return Err(Error::setting(
                "budget",
                settings.budget_bytes,
                "give at least 2 MiB for a node; in a memory cgroup, a quarter of its limit counts",
            ));
        }
        if machine.nodes().len() < 2 {
            return Err(Error::NotLocal(
                "this machine has one node with memory: every read is local".to_owned(),
            ));
        }
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            bell: Bell::default(),
            stop: AtomicBool::new(false),
            machine,
            settings,
        });
        let (ready, started) = sync_channel(1);
        let keepers = shared.clone();
        let body = move || match catch_unwind(AssertUnwindSafe(|| Keeper::new(keepers))) {
            Ok(Ok(mut keeper)) => {
                let _ = ready.send(Ok(()));
                keeper.guarded(Keeper::run);
            }
            Ok(Err(why)) => {
                let _ = ready.send(Err(why));
            }
            // `ready` ends, which says that it failed.
            Err(_) => {}
        };
        let thread = spawn_deaf(c"memtide-local", body).map_err(|reason| Error::Thread {
            name: "memtide-local",
            reason,
        })?;
        match started.recv() {
            Ok(Ok(())) => Ok(Replicas(Arc::new(Handle {
                shared,
                thread: Mutex::new(Some(thread)),
                process: std::process::id(),
            }))),
            Ok(Err(why)) => {
                thread.join();
                Err(why)
            }
            Err(_) => {
                thread.join();
                Err(Error::NotLocal("the keeper failed".to_owned()))
            }
        }
    }

    /// Opens a file whose reads are to be local on `node`, or on the process's own.
    ///
    /// Nobody may write to the file while it is open: a reader would see the former content until
    /// the keeper's next look, and a slice must not change.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a node without memory, [`Error::File`], [`Error::Empty`],
    /// [`Error::Forked`].
    pub fn open(&self, path: impl AsRef<Path>, node: Option<NodeId>) -> Result<LocalRegion, Error> {
        self.0.usable()?;
        let path = path.as_ref();
        let nodes = self.0.shared.machine.nodes();
        if let Some(node) = node.filter(|node| !nodes.contains(node)) {
            let advice = "give a node with memory, or none for the process's own";
            return Err(Error::setting("node", node, advice));
        }
        let failed = |what, errno| Error::File {
            path: path.to_owned(),
            what,
            errno,
        };
        let file = KnownFile::open(path)
            .map_err(|errno| failed("open", errno))?
            .high();
        let about = rustix::fs::fstat(&file).map_err(|errno| failed("look at", errno))?;
        let bytes = usize::try_from(about.st_size).unwrap_or(0);
        if bytes == 0 {
            return Err(Error::Empty(path.to_owned()));
        }
        let mapping =
            Mapping::of_file(file.as_fd(), 0, bytes).map_err(|errno| failed("map", errno))?;
        self.adopt(mapping.address(), bytes, file.as_fd(), 0, node)?;
        Ok(LocalRegion {
            replicas: self.clone(),
            mapping,
            bytes,
            _file: file,
        })
    }

    /// Takes care of a mapping that the caller made, shared and readable only, of `file` from
    /// `offset`. `file` must stay open, under its number, until [`forget`](Self::forget).
    ///
    /// # Errors
    ///
    /// [`Error::NotAdoptable`] for what is no whole page, [`Error::File`], [`Error::Forked`].
    pub fn adopt(
        &self,
        address: usize,
        bytes: usize,
        file: BorrowedFd<'_>,
        offset: u64,
        node: Option<NodeId>,
    ) -> Result<(), Error> {
        self.0.usable()?;
        let pages = crate::adopt::pages(address, bytes, offset)?;
        let version = Version::of(file).map_err(|errno| Error::File {
            path: format!("fd {}", file.as_raw_fd()).into(),
            what: "look at",
            errno,
        })?;
        let source = Source {
            thread: gettid().as_raw_nonzero().get().cast_unsigned(),
            number: file.as_raw_fd(),
            file: version.file,
        };
        let range = pages.start..pages.end();
        let region = Region::new(range, offset, source, version.bytes, node);
        let shared = &self.0.shared;
        let mut state = shared.state();
        // What was there was unmapped unseen, or nothing could be put there.
        let mut regions: Vec<Region> = std::mem::take(&mut state.regions)
            .iter()
            .flat_map(|before| before.without(&region.range))
            .collect();
        regions.push(region);
        state.regions = regions;
        drop(state);
        shared.bell.ring();
        Ok(())
    }

    /// Ends the care for addresses: after it, nothing of ours changes what is mapped there. With
    /// `file`, the file's own mapping is put where copies are shown; without it they stay, for a
    /// caller who unmaps them now.
    ///
    /// # Errors
    ///
    /// [`Error::NotAdoptable`] if the kernel refused that; copies of the right bytes may stay.
    /// [`Error::Forked`] in a forked child, which has [`put_file_back`] for that; without a file
    /// there is nothing to do there.
    pub fn forget(&self, range: Range<usize>, file: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        if !self.0.at_home() {
            return file.map_or(Ok(()), |_| Err(Error::Forked));
        }
        let mut state = self.0.shared.state();
        let (mut left, mut result) = (Vec::new(), Ok(()));
        for region in std::mem::take(&mut state.regions) {
            let start = region.range.start.max(range.start);
            let end = region.range.end.min(range.end);
            if start >= end {
                left.push(region);
                continue;
            }
            left.extend(region.without(&range));
            let part = region.part(start..end);
            let touched = part.ours || part.local.contains(&true);
            if let Some(file) = file.filter(|_| touched)
                && let Err(errno) = own_maps().and_then(|maps| {
                    put_back::put_back(&maps, &part.range, file, part.offset, part.ours)
                })
            {
                result = Err(Error::NotAdoptable {
                    address: start,
                    bytes: end - start,
                    reason: format!("the file cannot be mapped in the place of a copy: {errno}"),
                });
            }
        }
        state.regions = left;
        result
    }

    /// What was done.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn statistics(&self) -> Result<LocalStatistics, Error> {
        self.0.usable()?;
        let shared = &self.0.shared;
        let state = shared.state();
        let on_node = state.figures.on_node.iter();
        Ok(LocalStatistics {
            budget_bytes: shared.settings.budget_bytes,
            node: state.figures.node,
            mapped_bytes: state.regions.iter().map(Region::local_bytes).sum(),
            filled_bytes: state.figures.filled_bytes,
            given_up_bytes: state.figures.given_up_bytes,
            freed_bytes: state.figures.freed_bytes,
            nodes: on_node
                .map(|(node, bytes)| NodeCopies {
                    node: *node,
                    copies_bytes: *bytes,
                })
                .collect(),
            without_because: state.figures.reasons.clone(),
        })
    }

    /// Ends the keeper: every mapping shows its file again, and nothing of this process stays in
    /// the notes.
    pub fn end(&self) {
        self.0.end();
    }
}

impl Handle {
    /// Whether this is the process in which the keeper runs. In a forked child the lock may be
    /// held by a thread that is not there.
    fn at_home(&self) -> bool {
        std::process::id() == self.process
    }

    fn usable(&self) -> Result<(), Error> {
        self.at_home().then_some(()).ok_or(Error::Forked)
    }

    fn end(&self) {
        if !self.at_home() {
            return;
        }
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            self.shared.stop.store(true, SeqCst);
            self.shared.bell.ring();
            thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

/// Shows the file itself wherever a mapping that this process inherited shows copies: in a child
/// that was forked nobody takes care of them.
///
/// # Errors
///
/// [`Error::NotAdoptable`] if the kernel refused; copies stay, of the version that they were.
pub fn put_file_back(range: Range<usize>, file: BorrowedFd<'_>, offset: u64) -> Result<(), Error> {
    let done = own_maps().and_then(|maps| put_back::put_back(&maps, &range, file, offset, false));
    done.map_err(|errno| Error::NotAdoptable {
        address: range.start,
        bytes: range.len(),
        reason: format!("the file cannot be mapped in the place of a copy: {errno}"),
    })
}

/// A file that is mapped by [`Replicas::open`], until it is dropped.
#[derive(Debug)]
pub struct LocalRegion {
    replicas: Replicas,
    mapping: Mapping,
    bytes: usize,
    _file: KnownFile,
}

impl LocalRegion {
    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.mapping.as_slice(self.bytes)
    }

    /// The address of the first.
    pub fn address(&self) -> usize {
        self.mapping.address()
    }

    /// How many there are; never 0.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none, which is never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// How many of them are read from a copy; in a forked child nobody knows, and it is 0.
    pub fn local_bytes(&self) -> u64 {
        if !self.replicas.0.at_home() {
            return 0;
        }
        let range = self.address()..self.address() + self.bytes;
        let state = self.replicas.0.shared.state();
        let own = state
            .regions
            .iter()
            .filter(|region| range.contains(&region.range.start));
        own.map(Region::local_bytes).sum()
    }
}

impl Drop for LocalRegion {
    fn drop(&mut self) {
        let pages = self.bytes.next_multiple_of(rustix::param::page_size());
        let range = self.address()..self.address() + pages;
        // Without a file nothing is mapped, and nothing can fail.
        let _ = self.replicas.forget(range, None);
    }
}
