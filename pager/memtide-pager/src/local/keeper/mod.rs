//! The thread that makes copies and maps them.
//!
//! It has a table of descriptors of its own, so that the program can neither close nor see what it
//! holds, and all signals blocked. Its work is bounded: a look covers [`LOOK`] granules, a turn
//! copies [`FILL`] bytes of all files together, and nothing is mapped but under the lock that callers take before they
//! unmap.
//!
//! A granule goes this way: the page map shows that the process touched it; the node's turn is
//! taken; the copy has it already, or it is filled, if budget and memory allow; the version is
//! looked at once more; its pages are on the node; it is sealed. Then it is held and mapped, if the file
//! is of that version even now, where the mapping still is what it was ([`show`]). Where there is no room,
//! memory is taken from granules that nobody maps ([`room`]), and who reads the least of what is mapped
//! maps the file again ([`demand`]).

mod demand;
mod room;
mod show;

use super::copy::{Copy, GRANULE, Held, STRETCH, granule_bytes};
use super::folder::{Folder, Turn};
use super::put_back::put_back;
use super::reason::Reason;
use super::region::{Region, Source};
use super::rounds::Rounds;
use super::version::{Identity, Version};
use super::{FAST, SLOW, Shared};
use crate::error::Error;
use crate::kernel::{own_maps, own_pagemap};
use crate::sys::apart::alone;
use crate::sys::known_file::KnownFile;
use demand::Demand;
use memtide_core::units::NodeId;
use memtide_linux::sys::pagemap::{self, PagemapEntry};
use room::{Room, own};
use rustix::fs::{Mode, OFlags};
use rustix::thread::gettid;
use show::{Change, Showing};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Granules that one look covers: 512 MiB, whose page map is 1 MiB.
const LOOK: usize = 256;
/// Bytes that are copied in one turn, of all files: the next one asks whether they changed.
const FILL: u64 = 64 << 20;
/// Runs of copies in all mappings. Each makes two mappings more, and a process may have 65,530.
const MOST_RUNS: i64 = 8192;
/// A share of a node's memory that stays free or page cache when copies are made, and the share
/// below which copies are given up: a sixteenth, a thirty-second.
const LEAVES: u64 = 16;
const SHORT: u64 = 32;
/// How long no copy is made on a node whose memory was short, or which gave none.
const PAUSE: Duration = Duration::from_secs(10);
/// How long a file with a writer is left alone before anybody asks again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A file, as the keeper holds it.
#[derive(Debug)]
struct Tracked {
    file: File,
    path: PathBuf,
    version: Version,
    /// The version has rested and nobody can write to the file unseen.
    fit: bool,
    /// When to ask for that again; never for what stays as it is.
    ask: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    /// The numbers that programs write to, so that nothing of ours gets them.
    _nothing: [File; 3],
    folder: Folder,
    pagemap: KnownFile,
    /// Open all the time: a program may go where there is no procfs (`chroot(2)`).
    maps: KnownFile,
    thread: u32,
    files: BTreeMap<Identity, Tracked>,
    /// Files that cannot be held; known by their identity, so that each is tried once.
    hopeless: BTreeSet<Identity>,
    copies: BTreeMap<(Identity, NodeId), Copy>,
    /// Nodes that give no memory until then.
    paused: BTreeMap<NodeId, Instant>,
    /// Where the next look begins, in granules of all regions.
    cursor: usize,
    /// Who reads what, while there is no room.
    rounds: Rounds,
    demand: Demand,
    room: Room,
}

/// The granules that the process has touched and reads from the file, by file and node.
type Touched = BTreeMap<(Identity, NodeId), BTreeSet<u64>>;

impl Keeper {
    /// On the keeper's own thread.
    pub fn new(shared: Arc<Shared>) -> Result<Keeper, Error> {
        let no = |why: String| Error::NotLocal(why);
        alone().map_err(|errno| no(format!("no table of descriptors of its own: {errno}")))?;
        let null = || File::open("/dev/null").map_err(|why| no(format!("/dev/null: {why}")));
        let _nothing = [null()?, null()?, null()?];
        let path = &shared.settings.folder;
        let folder = Folder::open(path).map_err(|why| no(why.to_string()))?;
        let closed = |path: &str, errno| Error::File {
            path: path.into(),
            what: "open",
            errno,
        };
        let pagemap = own_pagemap().map_err(|errno| closed("/proc/self/pagemap", errno))?;
        let maps = own_maps().map_err(|errno| closed("/proc/self/maps", errno))?;
        Ok(Keeper {
            _nothing,
            folder,
            pagemap,
            maps,
            thread: gettid().as_raw_nonzero().get().cast_unsigned(),
            files: BTreeMap::new(),
            hopeless: BTreeSet::new(),
            copies: BTreeMap::new(),
            paused: BTreeMap::new(),
            cursor: 0,
            rounds: Rounds::default(),
            demand: Demand::default(),
            room: Room::default(),
            shared,
        })
    }

    /// Does `work`; `None` if that panics. Then no mapping shows a copy any more: nobody would see
    /// that its file changes.
    pub fn guarded<T>(&mut self, work: impl FnOnce(&mut Keeper) -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(|| work(self)));
        if done.is_err() {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                // It may have ended between a mapping and its note.
                let note = |region: &mut Region| region.local.fill(true);
                self.shared.state().regions.iter_mut().for_each(note);
                self.end();
                let copies = Path::new("copies on each node");
                self.shared.refuse(copies, Reason::Failed);
            }));
        }
        done.ok()
    }

    /// Until it is told to stop.
    pub fn run(&mut self) {
        let mut delay = FAST;
        loop {
            let heard = self.shared.bell.heard();
            if self.shall_end() {
                return self.end();
            }
            delay = match self.turn(Instant::now()) {
                true => FAST,
                false => (delay * 2).min(SLOW),
            };
            self.shared.bell.wait(heard, delay);
        }
    }

    /// The program waits for the keeper's end, so it is asked for before each granule.
    fn shall_end(&self) -> bool {
        self.shared.stop.load(SeqCst)
    }

    /// Looks, copies and maps once. Whether there is more to do at once.
    pub fn turn(&mut self, now: Instant) -> bool {
        let regions = self.shared.state().regions.clone();
        self.drop_unused(&regions);
        for region in &regions {
            self.track(region.source, now);
        }
        let files: Vec<Identity> = self.files.keys().copied().collect();
        for file in files {
            self.check(file, now);
        }
        self.check_memory(now);
        let touched = self.look(&regions);
        let (mut more, mut left) = (false, FILL);
        for ((file, node), granules) in touched {
            if self.shall_end() {
                break;
            }
            more |= self.serve(file, node, &granules, &mut left, now);
        }
        // Last: what it unmaps is not seen as touched before it is touched again.
        self.make_way(now);
        more
    }

    /// Lets go of files and copies that no region needs.
    fn drop_unused(&mut self, regions: &[Region]) {
        let used: BTreeSet<Identity> = regions.iter().map(|region| region.source.file).collect();
        self.files.retain(|file, _| used.contains(file));
        self.hopeless.retain(|file| used.contains(file));
        let gone = self.copies.keys().filter(|(file, _)| !used.contains(file));
        for (file, node) in gone.copied().collect::<Vec<_>>() {
            self.drop_copy(file, node);
        }
    }

    fn track(&mut self, source: Source, now: Instant) {
        if self.files.contains_key(&source.file) || self.hopeless.contains(&source.file) {
            return;
        }
        let Source { thread, number, .. } = source;
        let own = std::process::id();
        // The thread that gave it may have ended, and the first one, too.
        let places = [
            format!("/proc/{own}/task/{thread}/fd/{number}"),
            format!("/proc/{own}/fd/{number}"),
        ];
        let path = places
            .iter()
            .find_map(|place| std::fs::read_link(place).ok())
            .unwrap_or_else(|| format!("fd {number}").into());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let regular = |place: &&String| std::fs::metadata(place).is_ok_and(|about| about.is_file());
        let opened = places
            .iter()
            .filter(regular)
            .find_map(|place| rustix::fs::open(place, flags, Mode::empty()).ok())
            .map(File::from);
        let seen = opened.and_then(|file| {
            let version = self.shared.machine.version(file.as_fd()).ok()?;
            (version.file == source.file).then_some((file, version))
        });
        match seen {
            Some((file, version)) => {
                let tracked = Tracked {
                    file,
                    path,
                    version,
                    fit: false,
                    ask: Some(now),
                };
                self.files.insert(source.file, tracked);
            }
            None => {
                self.hopeless.insert(source.file);
                self.shared.refuse(&path, Reason::Open);
            }
        }
    }

    /// Whether a file is what it was, and may be copied.
    fn check(&mut self, file: Identity, now: Instant) {
        let machine = self.shared.machine.clone();
        let Some(tracked) = self.files.get(&file) else {
            return;
        };
        match machine.version(tracked.file.as_fd()) {
            Ok(version) if version == tracked.version => {}
            Ok(version) => return self.has_changed(file, version, now),
            Err(_) => return,
        }
        let Some(tracked) = self.files.get_mut(&file) else {
            return;
        };
        let due = tracked.ask.is_some_and(|ask| ask <= now);
        if tracked.fit || !due || !tracked.version.has_rested(machine.now()) {
            return;
        }
        match machine.tells_writes(tracked.file.as_fd()) {
            Ok(()) => tracked.fit = true,
            Err(reason) => {
                let again = reason == Reason::Writer;
                tracked.ask = again.then(|| now + ASK_AGAIN);
                let path = tracked.path.clone();
                self.shared.refuse(&path, reason);
            }
        }
    }

    /// The file's own bytes take the place of the copies of what it was.
    fn has_changed(&mut self, file: Identity, version: Version, now: Instant) {
        // First of all: where a copy stays mapped, no other mapping may get one.
        if let Some(tracked) = self.files.get_mut(&file) {
            tracked.fit = false;
        }
        // Tried again with the next look if a mapping could not be made.
        if !self.put_back(|region| region.source.file == file, Some(version.bytes)) {
            return;
        }
        let copies: Vec<NodeId> = self
            .copies
            .keys()
            .filter(|(of, _)| *of == file)
            .map(|(_, node)| *node)
            .collect();
        let had = !copies.is_empty();
        for node in copies {
            self.drop_copy(file, node);
        }
        let Some(tracked) = self.files.get_mut(&file) else {
            return;
        };
        tracked.version = version;
        tracked.ask = Some(now);
        if had {
            let path = tracked.path.clone();
            self.shared.refuse(&path, Reason::Changed);
        }
    }

    /// Gives up the copies of a node whose memory is short.
    fn check_memory(&mut self, now: Instant) {
        let nodes: BTreeSet<NodeId> = self.copies.keys().map(|(_, node)| *node).collect();
        for node in nodes {
            let room = self.shared.machine.room(node);
            if room.is_none_or(|room| room.available >= room.total / SHORT) {
                if room.is_some_and(|room| room.available < room.total / LEAVES) {
                    self.free_some(node, now);
                }
                continue;
            }
            let own = self.shared.state().figures.node;
            if !self.put_back(|region| region.node.or(own) == Some(node), None) {
                continue;
            }
            let of_node: Vec<_> = self
                .copies
                .keys()
                .filter(|(_, on)| *on == node)
                .copied()
                .collect();
            for (file, node) in of_node {
                if let Some(tracked) = self.files.get(&file) {
                    self.shared.refuse(&tracked.path, Reason::Memory);
                }
                self.drop_copy(file, node);
            }
            self.paused.insert(node, now + PAUSE);
        }
    }

    /// Maps the file again in regions of which `which` is true. Whether that went well; where it
    /// did not, the reason is told.
    fn put_back(&self, which: impl Fn(&Region) -> bool, file_bytes: Option<u64>) -> bool {
        let mut state = self.shared.state();
        let mut failed = None;
        for region in state.regions.iter_mut().filter(|region| which(region)) {
            if let Some(bytes) = file_bytes {
                region.file_bytes = bytes;
            }
            if !region.local.contains(&true) {
                continue;
            }
            let Some(tracked) = self.files.get(&region.source.file) else {
                continue;
            };
            region.ours = true;
            let file = tracked.file.as_fd();
            match put_back(&self.maps, &region.range, file, region.offset, false) {
                Ok(()) => region.local.fill(false),
                Err(_) => failed = Some(&tracked.path),
            }
        }
        drop(state);
        if let Some(path) = failed {
            self.shared.refuse(path, Reason::Kernel);
        }
        failed.is_none()
    }

    fn drop_copy(&mut self, file: Identity, node: NodeId) {
        let Some(copy) = self.copies.remove(&(file, node)) else {
            return;
        };
        // Where another process has the turn, the line stays and leads nowhere.
        if let Ok(Some(mut turn)) = self.folder.turn(node) {
            let _ = turn.remove(Some(copy.memory));
        }
    }

    /// Which granules that are read from the file the process has mapped, [`LOOK`] of them at a
    /// time.
    fn look(&mut self, regions: &[Region]) -> Touched {
        let fit = |region: &Region| {
            let tracked = self.files.get(&region.source.file);
            tracked.is_some_and(|tracked| tracked.fit)
        };
        let open: Vec<(&Region, u64)> = regions
            .iter()
            .filter(|region| fit(region))
            .flat_map(|region| region.granules().map(move |granule| (region, granule)))
            .filter(|(region, granule)| !region.is_local(*granule))
            .collect();
        let mut touched = Touched::new();
        if open.is_empty() {
            return touched;
        }
        let first = self.cursor % open.len();
        let covered = LOOK.min(open.len());
        self.cursor = first + covered;
        for (region, granule) in open.iter().cycle().skip(first).take(covered) {
            let Some((range, _)) = region.addresses(*granule) else {
                continue;
            };
            if !is_present(&self.pagemap, &range) {
                continue;
            }
            if let Some(node) = region.node.or_else(|| self.own_node()) {
                let of_file = touched.entry((region.source.file, node)).or_default();
                of_file.insert(*granule);
            }
        }
        touched
    }

    /// The process's own node: that of most of its threads when it is first asked for.
    fn own_node(&self) -> Option<NodeId> {
        let known = self.shared.state().figures.node;
        known.or_else(|| {
            let node = self.shared.machine.node_of_process();
            self.shared.state().figures.node = node;
            node
        })
    }

    /// Has granules of a file copied to a node, `left` bytes at most, and maps them. Whether there
    /// are more.
    fn serve(
        &mut self,
        file: Identity,
        node: NodeId,
        granules: &BTreeSet<u64>,
        left: &mut u64,
        now: Instant,
    ) -> bool {
        let (ready, more) = self.ready(file, node, granules, left, now);
        let (Some(tracked), Some(copy)) = (self.files.get(&file), self.copies.get(&(file, node)))
        else {
            return false;
        };
        let mut showing = Showing {
            shared: &self.shared,
            maps: &self.maps,
            pagemap: &self.pagemap,
            rounds: &mut self.rounds,
        };
        let mut placed = false;
        // What was found is held until it is mapped.
        let granules = ready.as_ref().map(|held| &held.granules);
        for (stretch, add) in by_stretch(granules.into_iter().flatten().copied()) {
            if showing.shared.stop.load(SeqCst) {
                return false;
            }
            let give_up = &BTreeSet::new();
            let add = &add;
            let change = Change {
                stretch,
                add,
                give_up,
            };
            placed |= showing.change(tracked, copy, change) > 0;
        }
        placed || more
    }

    /// Granules whose copy is whole, held, and whether more could be copied at once.
    fn ready(
        &mut self,
        file: Identity,
        node: NodeId,
        granules: &BTreeSet<u64>,
        left: &mut u64,
        now: Instant,
    ) -> (Option<Held>, bool) {
        let folder = &self.folder;
        let mut turn = match folder.turn(node) {
            Ok(Some(turn)) => turn,
            // Somebody fills, perhaps what is wanted here; or is stopped, and then nobody hurries.
            Ok(None) => return (None, false),
            Err(_) => {
                let path = self.shared.settings.folder.clone();
                self.shared.refuse(&path, Reason::Folder);
                return (None, false);
            }
        };
        let Some(tracked) = self.files.get(&file) else {
            return (None, false);
        };
        let refuse = |reason| self.shared.refuse(&tracked.path, reason);
        if let Entry::Vacant(entry) = self.copies.entry((file, node)) {
            match open_copy(&self.shared, &mut turn, &tracked.version, node, self.thread) {
                Ok(copy) => entry.insert(copy),
                Err(reason) => {
                    refuse(reason);
                    return (None, false);
                }
            };
        }
        let copy = &self.copies[&(file, node)];
        let paused = self.paused.get(&node).is_some_and(|until| *until > now);
        let mut on_node = turn.bytes();
        let (mut ready, mut filled, mut freed) = (BTreeSet::new(), 0, 0);
        let (mut more, mut may_be_room) = (false, true);
        for granule in granules.iter().copied() {
            if copy.holds(granule).unwrap_or(false) {
                ready.insert(granule);
                continue;
            }
            let bytes = granule_bytes(copy.version.bytes, granule);
            if self.shared.stop.load(SeqCst) {
                break;
            } else if *left < bytes {
                more = true;
                continue;
            }
            let is_short = || {
                let room = self.shared.machine.room(node);
                room.is_some_and(|room| room.available < room.total / LEAVES + bytes)
            };
            let budget = self.shared.settings.budget_bytes;
            if may_be_room && (on_node + bytes > budget || (!paused && is_short())) {
                // Not what is wanted here itself.
                let spared = (copy.memory, granules);
                let got = (self.room).free(&turn, own(&self.copies, node), spared, bytes, now);
                freed += got;
                may_be_room = got >= bytes;
                on_node = turn.bytes();
            }
            if on_node + bytes > budget {
                self.demand.unmet(now, (file, node, granule));
                refuse(Reason::Budget);
            } else if paused {
                refuse(Reason::Memory);
            } else if is_short() {
                self.demand.unmet(now, (file, node, granule));
                refuse(Reason::Memory);
            } else {
                *left -= bytes;
                match fill(&self.shared, copy, tracked, granule) {
                    Ok(true) => {
                        filled += bytes;
                        on_node += bytes;
                        ready.insert(granule);
                    }
                    Ok(false) => more = true,
                    Err(reason) => {
                        // Nobody maps it: it is not sealed.
                        let _ = copy.empty(granule);
                        if reason == Reason::Elsewhere {
                            self.paused.insert(node, now + PAUSE);
                        }
                        refuse(reason);
                        break;
                    }
                }
            }
        }
        // Before the turn ends: another process might take what is new and nobody maps yet.
        let held = copy.hold(&ready).map_err(|_| refuse(Reason::Kernel)).ok();
        let mut state = self.shared.state();
        state.figures.filled_bytes += filled;
        state.figures.freed_bytes += freed;
        state.figures.on_node.insert(node, on_node);
        (held, more)
    }

    /// Every mapping shows its file, and no note speaks of this process.
    fn end(&mut self) {
        self.put_back(|_| true, None);
        for node in self.demand.asked() {
            self.folder.no_longer_want(node);
        }
        let nodes: BTreeSet<NodeId> = self.copies.keys().map(|(_, node)| *node).collect();
        self.copies.clear();
        for node in nodes {
            if let Ok(Some(mut turn)) = self.folder.turn(node) {
                let _ = turn.remove(None);
            }
        }
    }
}

/// Granules by the stretch that they are in.
fn by_stretch(granules: impl Iterator<Item = u64>) -> BTreeMap<u64, BTreeSet<u64>> {
    let mut stretches: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for granule in granules {
        stretches
            .entry(granule / STRETCH)
            .or_default()
            .insert(granule);
    }
    stretches
}

/// Whether the process has mapped any page of addresses within a granule.
fn is_present(pagemap: &KnownFile, range: &Range<usize>) -> bool {
    let page = rustix::param::page_size();
    let mut entries = vec![PagemapEntry::default(); range.len().div_ceil(page)];
    let read = pagemap::read(pagemap, (range.start / page) as u64, &mut entries);
    let seen = read.unwrap_or(0);
    entries[..seen].iter().any(|entry| entry.present())
}

/// The copy of another process, or a new one.
fn open_copy(
    shared: &Shared,
    turn: &mut Turn<'_>,
    version: &Version,
    node: NodeId,
    thread: u32,
) -> Result<Copy, Reason> {
    let copy = match turn.find(version) {
        Some(copy) => copy,
        None => {
            let bind =
                |file: std::os::fd::BorrowedFd<'_>, bytes| shared.machine.bind(file, bytes, node);
            Copy::make(*version, node, bind).map_err(|_| Reason::Kernel)?
        }
    };
    turn.add(&copy, thread).map_err(|_| Reason::Folder)?;
    Ok(copy)
}

/// Copies a granule, and seals it if the file is what it was and the memory is where it should be.
/// False if somebody asks for it at this moment.
fn fill(shared: &Shared, copy: &Copy, tracked: &Tracked, granule: u64) -> Result<bool, Reason> {
    match copy.fill(granule, &tracked.file) {
        Ok(()) => {}
        Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(false),
        Err(_) => return Err(Reason::Kernel),
    }
    let now = shared.machine.version(tracked.file.as_fd());
    if now != Ok(copy.version) {
        return Err(Reason::Changed);
    }
    let bytes = granule_bytes(copy.version.bytes, granule) as usize;
    let at = copy.at(granule * GRANULE);
    match shared.machine.is_on(copy.readable(), at, bytes, copy.node) {
        Ok(true) => {}
        Ok(false) => return Err(Reason::Elsewhere),
        Err(_) => return Err(Reason::Kernel),
    }
    copy.seal(granule).map_err(|_| Reason::Kernel)?;
    Ok(true)
}
