//! Copies on nodes that this machine need not have: the table of operations has them.

use super::copy::GRANULE;
use super::folder::Folder;
use super::keeper::Keeper;
use super::machine::{Machine, Room};
use super::reason::Reason;
use super::version::{Moment, Version};
use super::{Handle, LocalRegion, Replicas, Settings, Shared, State, put_file_back};
use crate::bell::Bell;
use crate::error::Error;
use crate::kernel::Range;
use crate::sys::{Errno, place};
use memtide_core::units::NodeId;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

#[path = "way_tests.rs"]
mod way;

const PAGE: usize = 4096;
/// Two whole granules, and one page and a byte of a third.
const BYTES: usize = 2 * GRANULE as usize + PAGE + 1;

/// What the machine answers.
#[derive(Clone, Debug)]
struct Answers {
    nodes: u16,
    own: NodeId,
    room: Room,
    /// Nodes whose memory comes from elsewhere.
    full: BTreeSet<NodeId>,
    writer: bool,
    now: Moment,
    since_boot: Duration,
    /// Whoever asks for a node's memory panics.
    panics: bool,
    /// The program ends once so many granules were filled.
    fills: u32,
    /// How often a file still has the version that it has.
    same_for: Option<u32>,
    /// Whoever maps next loses the mapping that was there, and gets none.
    loses: bool,
}

#[derive(Debug)]
struct Pretended(Mutex<Answers>, OnceLock<Weak<Shared>>);

impl Pretended {
    fn get(&self) -> Answers {
        self.0.lock().unwrap().clone()
    }
}

impl Machine for Pretended {
    fn nodes(&self) -> Vec<NodeId> {
        (0..self.get().nodes).map(NodeId).collect()
    }

    fn node_of_process(&self) -> Option<NodeId> {
        Some(self.get().own)
    }

    fn room(&self, _node: NodeId) -> Option<Room> {
        let answers = self.get();
        assert!(!answers.panics, "as a test wants it");
        Some(answers.room)
    }

    fn bind(&self, _file: BorrowedFd<'_>, _bytes: usize, _node: NodeId) -> Result<(), Errno> {
        Ok(())
    }

    fn is_on(
        &self,
        _file: BorrowedFd<'_>,
        _offset: u64,
        _bytes: usize,
        node: NodeId,
    ) -> Result<bool, Errno> {
        let mut answers = self.0.lock().unwrap();
        answers.fills = answers.fills.saturating_sub(1);
        if let Some(shared) = self.1.get().and_then(Weak::upgrade) {
            shared.stop.fetch_or(answers.fills == 0, SeqCst);
        }
        Ok(!answers.full.contains(&node))
    }

    fn tells_writes(&self, _file: BorrowedFd<'_>) -> Result<(), Reason> {
        match self.get().writer {
            true => Err(Reason::Writer),
            false => Ok(()),
        }
    }

    fn version(&self, file: BorrowedFd<'_>) -> Result<Version, Errno> {
        let version = Version::of(file)?;
        let left = &mut self.0.lock().unwrap().same_for;
        if *left == Some(0) {
            let changed = (version.changed.0 + 1, version.changed.1);
            return Ok(Version { changed, ..version });
        }
        *left = left.map(|left| left - 1);
        Ok(version)
    }

    fn now(&self) -> Moment {
        self.get().now
    }

    fn since_boot(&self) -> Duration {
        self.get().since_boot
    }

    fn show(&self, range: Range, file: BorrowedFd<'_>, offset: u64) -> Result<(), Errno> {
        if !std::mem::take(&mut self.0.lock().unwrap().loses) {
            return place::over(range, file, offset);
        }
        // Other bytes stand for none: a hole would end this process.
        let nothing = tempfile::tempfile().unwrap();
        nothing.set_len(range.bytes as u64).unwrap();
        place::over(range, nothing.as_fd(), 0).unwrap();
        Err(Errno::NOMEM)
    }
}

/// A process with a keeper that looks when it is told to.
struct Process {
    replicas: Replicas,
    machine: Arc<Pretended>,
    look: Sender<Instant>,
    looked: Receiver<bool>,
}

/// A folder of notes and files.
fn place() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn process(place: &Path, budget_bytes: u64) -> Process {
    let answers = Mutex::new(Answers {
        nodes: 2,
        own: NodeId(0),
        room: Room {
            total: 1 << 30,
            available: 1 << 29,
        },
        full: BTreeSet::new(),
        writer: false,
        // So that every file has rested.
        now: (i64::MAX, 0),
        since_boot: Duration::from_secs(1000),
        panics: false,
        fills: u32::MAX,
        same_for: None,
        loses: false,
    });
    let machine = Arc::new(Pretended(answers, OnceLock::new()));
    let shared = Arc::new(Shared {
        state: Mutex::<State>::default(),
        bell: Bell::default(),
        stop: AtomicBool::new(false),
        machine: machine.clone(),
        settings: Settings {
            budget_bytes,
            folder: place.join("local"),
            tell: None,
        },
    });
    machine.1.set(Arc::downgrade(&shared)).unwrap();
    let (look, asked) = channel::<Instant>();
    let (tell, looked) = channel();
    let keepers = shared.clone();
    std::thread::spawn(move || {
        let mut keeper = Keeper::new(keepers).unwrap();
        while let Ok(now) = asked.recv() {
            let _ = tell.send(keeper.guarded(|keeper| keeper.turn(now)) == Some(true));
        }
    });
    Process {
        replicas: Replicas(Arc::new(Handle {
            shared,
            thread: Mutex::new(None),
            process: std::process::id(),
        })),
        machine,
        look,
        looked,
    }
}

impl Process {
    fn turn_at(&self, now: Instant) {
        self.look.send(now).unwrap();
        self.looked.recv().unwrap();
    }

    fn turn(&self) {
        self.turn_at(Instant::now());
    }

    fn set(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.machine.0.lock().unwrap());
    }

    fn open(&self, path: &Path, node: u16) -> LocalRegion {
        self.replicas.open(path, Some(NodeId(node))).unwrap()
    }

    fn reasons(&self) -> Vec<Reason> {
        self.replicas.statistics().unwrap().without_because
    }

    fn copies(&self) -> Vec<(u16, u64)> {
        let nodes = self.replicas.statistics().unwrap().nodes;
        nodes
            .iter()
            .map(|on| (on.node.0, on.copies_bytes))
            .collect()
    }
}

/// Byte n of a file of generation g is n / 4096 + n + g.
fn byte(at: usize, generation: u8) -> u8 {
    ((at / PAGE + at) as u8).wrapping_add(generation)
}

fn content(generation: u8) -> Vec<u8> {
    (0..BYTES).map(|at| byte(at, generation)).collect()
}

fn file(place: &Path) -> PathBuf {
    let path = place.join("data.bin");
    File::create(&path).unwrap().write_all(&content(0)).unwrap();
    path
}

/// Reads a byte of each page, as a program does; all must be of `generation`.
fn read(region: &LocalRegion, generation: u8) {
    for at in (0..region.len()).step_by(PAGE) {
        assert_eq!(region.as_slice()[at], byte(at, generation), "byte {at}");
    }
}

/// Whole pages of the file.
const ALL: u64 = (2 * GRANULE as usize + 2 * PAGE) as u64;

#[test]
fn after_the_first_pass_every_read_is_of_the_nodes_own_copy() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let regions = [process.open(&path, 0), process.open(&path, 1)];
    process.turn();
    assert_eq!(regions[0].local_bytes(), 0, "nothing was touched yet");
    regions.iter().for_each(|region| read(region, 0));
    process.turn();
    for region in &regions {
        assert_eq!(region.local_bytes(), ALL);
        assert_eq!(region.as_slice(), content(0));
    }
    // A copy on each node: the data's pages and the header's.
    assert_eq!(process.copies(), [(0, ALL + 4096), (1, ALL + 4096)]);
    assert_eq!(process.reasons(), []);
}

#[test]
fn only_what_is_touched_is_copied() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let region = process.open(&path, 1);
    assert_eq!(
        region.as_slice()[GRANULE as usize],
        byte(GRANULE as usize, 0)
    );
    process.turn();
    assert_eq!(region.local_bytes(), GRANULE);
    assert_eq!(process.copies(), [(1, GRANULE + 4096)]);
    assert_eq!(region.as_slice(), content(0));
}

#[test]
fn processes_share_one_copy_and_the_last_one_ends_it() {
    let place = place();
    let path = file(place.path());
    let (first, second) = (
        process(place.path(), 1 << 30),
        process(place.path(), 1 << 30),
    );
    let of_first = first.open(&path, 1);
    read(&of_first, 0);
    first.turn();
    let of_second = second.open(&path, 1);
    read(&of_second, 0);
    second.turn();
    assert_eq!(of_second.local_bytes(), ALL);
    assert_eq!(second.replicas.statistics().unwrap().filled_bytes, 0);
    assert_eq!(second.copies(), [(1, ALL + 4096)], "one copy");
    // The one who made it goes; the other reads on.
    drop(of_first);
    first.turn();
    read(&of_second, 0);
    drop(of_second);
    second.turn();
    assert!(!place.path().join("local/node1.copies").exists());
}

#[test]
fn a_copy_of_the_former_content_is_never_used() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let region = process.open(&path, 0);
    read(&region, 0);
    process.turn();
    let writer = File::options().write(true).open(&path).unwrap();
    writer.write_all_at(&content(7), 0).unwrap();
    // Until the keeper looks, the mapping shows what it showed; whoever maps now sees the new.
    let later = process.open(&path, 0);
    read(&later, 7);
    process.turn();
    assert_eq!(region.local_bytes() + later.local_bytes(), 0);
    read(&region, 7);
    read(&later, 7);
    process.turn();
    for region in [&region, &later] {
        assert_eq!(region.local_bytes(), ALL, "a copy of the new content");
        assert_eq!(region.as_slice(), content(7));
    }
    assert_eq!(process.copies(), [(0, ALL + 4096)], "the old one is gone");
    assert_eq!(process.reasons(), [Reason::Changed]);
}

/// A whole copy of another process's is mapped without anything being filled. The file is asked
/// when it is tracked, when it is checked, and before each of its three granules is mapped: from
/// the second of these on, the answer is that it has changed.
#[test]
fn a_file_that_changes_within_a_turn_gets_no_old_copy() {
    let place = place();
    let path = file(place.path());
    let (first, second) = (
        process(place.path(), 1 << 30),
        process(place.path(), 1 << 30),
    );
    let of_first = first.open(&path, 0);
    read(&of_first, 0);
    first.turn();
    let of_second = second.open(&path, 0);
    read(&of_second, 0);
    second.set(|answers| answers.same_for = Some(3));
    second.turn();
    assert_eq!(of_second.local_bytes(), GRANULE);
    second.turn();
    assert_eq!(of_second.local_bytes(), 0);
}

/// A byte that is no page's first stands for a call that the kernel refuses.
#[test]
fn an_old_copy_is_not_mapped_while_another_cannot_be_put_back() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let region = process.open(&path, 0);
    read(&region, 0);
    process.turn();
    let writer = File::options().write(true).open(&path).unwrap();
    writer.write_all_at(&content(7), 0).unwrap();
    let later = process.open(&path, 0);
    read(&later, 7);
    let shift = |by: i64| {
        let mut state = process.replicas.0.shared.state();
        let offset = &mut state.regions[0].offset;
        *offset = offset.checked_add_signed(by).unwrap();
    };
    shift(1);
    process.turn();
    assert_eq!(later.local_bytes(), 0);
    assert_eq!(process.reasons(), [Reason::Kernel]);
    read(&later, 7);
    shift(-1);
    process.turn();
    read(&region, 7);
}

#[test]
fn a_keeper_that_panics_leaves_no_copy_mapped() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let region = process.open(&path, 0);
    read(&region, 0);
    process.turn();
    assert_eq!(region.local_bytes(), ALL);
    process.set(|answers| answers.panics = true);
    process.turn();
    assert_eq!(region.local_bytes(), 0);
    assert_eq!(process.reasons(), [Reason::Failed]);
    let writer = File::options().write(true).open(&path).unwrap();
    writer.write_all_at(&content(7), 0).unwrap();
    read(&region, 7);
    assert!(!place.path().join("local/node0.copies").exists());
}

/// The child is made while the lock is held, by a thread that it does not have.
#[test]
fn a_forked_child_is_told_so_and_waits_for_nothing() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let region = process.open(&path, 0);
    let range = region.address()..region.address() + PAGE;
    let others = Cell::new(Some(process.open(&path, 0)));
    let again = File::open(&path).unwrap();
    let held = process.replicas.0.shared.state();
    let status = crate::sys::child::run(|| {
        let replicas = &process.replicas;
        let forked = [
            replicas.open(&path, None).err(),
            replicas.statistics().err(),
            replicas
                .adopt(range.start, PAGE, again.as_fd(), 0, None)
                .err(),
            replicas.forget(range.clone(), Some(again.as_fd())).err(),
        ];
        let told = |why: &Option<Error>| matches!(why, Some(Error::Forked));
        let nothing = replicas.forget(range.clone(), None).is_ok() && region.local_bytes() == 0;
        let fine = forked.iter().all(told) && nothing;
        drop(others.take());
        i32::from(!fine)
    });
    drop(held);
    assert_eq!(status, Ok(0));
}

/// What remains of the turn is two granules to fill, three to map, and another node.
#[test]
fn a_program_that_ends_waits_for_one_granule_at_most() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let regions = [process.open(&path, 0), process.open(&path, 1)];
    regions.iter().for_each(|region| read(region, 0));
    process.set(|answers| answers.fills = 1);
    process.turn();
    let filled = process.replicas.statistics().unwrap().filled_bytes;
    assert_eq!(filled, GRANULE);
    assert_eq!(regions.each_ref().map(LocalRegion::local_bytes), [0, 0]);
}

/// 66 MiB in two files, of which a turn copies 64 MiB.
#[test]
fn a_turn_copies_so_much_whatever_the_number_of_files() {
    let place = place();
    let process = process(place.path(), 1 << 30);
    let regions = [40u64, 26].map(|mib| {
        let path = place.path().join(format!("{mib}.bin"));
        File::create(&path).unwrap().set_len(mib << 20).unwrap();
        let region = process.open(&path, 0);
        let pages = region.as_slice().iter().step_by(PAGE);
        assert!({ pages }.all(|byte| *byte == 0));
        region
    });
    let local = || regions.iter().map(LocalRegion::local_bytes).sum::<u64>();
    process.turn();
    assert_eq!(local(), 64 << 20);
    process.turn();
    assert_eq!(local(), 66 << 20);
}

#[test]
fn another_process_does_not_get_the_former_copy() {
    let place = place();
    let path = file(place.path());
    let (first, second) = (
        process(place.path(), 1 << 30),
        process(place.path(), 1 << 30),
    );
    let of_first = first.open(&path, 0);
    read(&of_first, 0);
    first.turn();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(&content(9), 0)
        .unwrap();
    let of_second = second.open(&path, 0);
    read(&of_second, 9);
    second.turn();
    assert_eq!(of_second.local_bytes(), ALL);
    assert_eq!(of_second.as_slice(), content(9));
    // Two versions, while the first process has not looked.
    assert_eq!(second.copies(), [(0, 2 * (ALL + 4096))]);
}

#[test]
fn a_file_that_was_just_written_waits() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let written = Version::of(File::open(&path).unwrap().as_fd()).unwrap();
    process.set(|answers| answers.now = (written.changed.0 + 1, written.changed.1));
    let region = process.open(&path, 0);
    read(&region, 0);
    process.turn();
    assert_eq!(region.local_bytes(), 0);
    process.set(|answers| answers.now.0 += 2);
    process.turn();
    assert_eq!(region.local_bytes(), ALL);
}

#[test]
fn a_file_with_a_writer_is_read_where_it_is_until_the_writer_is_gone() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    process.set(|answers| answers.writer = true);
    let region = process.open(&path, 0);
    read(&region, 0);
    let start = Instant::now();
    process.turn_at(start + Duration::from_secs(1));
    assert_eq!(
        (region.local_bytes(), process.reasons()),
        (0, vec![Reason::Writer])
    );
    process.set(|answers| answers.writer = false);
    process.turn_at(start + Duration::from_secs(3));
    assert_eq!(region.local_bytes(), ALL);
}

/// Two granules and the header fit; the third granule of two pages does not.
#[test]
fn what_exceeds_the_budget_is_read_from_the_file() {
    let place = place();
    let path = file(place.path());
    let budget = 2 * GRANULE + 4096;
    let (first, second) = (process(place.path(), budget), process(place.path(), budget));
    let of_first = first.open(&path, 0);
    read(&of_first, 0);
    first.turn();
    assert_eq!(of_first.local_bytes(), 2 * GRANULE);
    assert_eq!(first.reasons(), [Reason::Budget]);
    assert_eq!(of_first.as_slice(), content(0));
    // The budget is the node's: another process adds nothing, whatever it maps.
    let other = place.path().join("other.bin");
    std::fs::copy(&path, &other).unwrap();
    let of_second = second.open(&other, 0);
    read(&of_second, 0);
    second.turn();
    assert_eq!(of_second.local_bytes(), 0);
    assert_eq!(second.reasons(), [Reason::Budget]);
    // On the other node there is room.
    let elsewhere = second.open(&other, 1);
    read(&elsewhere, 0);
    second.turn();
    assert_eq!(elsewhere.local_bytes(), 2 * GRANULE);
}

#[test]
fn copies_are_given_up_when_memory_is_short() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let region = process.open(&path, 0);
    read(&region, 0);
    let start = Instant::now();
    process.turn_at(start);
    assert_eq!(region.local_bytes(), ALL);
    // A thirty-second part of 1 GiB is 32 MiB.
    process.set(|answers| answers.room.available = (32 << 20) - 1);
    process.turn_at(start);
    assert_eq!(
        (region.local_bytes(), process.reasons()),
        (0, vec![Reason::Memory])
    );
    assert!(!place.path().join("local/node0.copies").exists());
    read(&region, 0);
    // There is memory again, but not for ten seconds long.
    process.set(|answers| answers.room.available = 1 << 29);
    process.turn_at(start + Duration::from_secs(9));
    assert_eq!(region.local_bytes(), 0);
    process.turn_at(start + Duration::from_secs(11));
    assert_eq!(region.local_bytes(), ALL);
}

#[test]
fn a_copy_whose_memory_is_elsewhere_is_not_used() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    process.set(|answers| {
        answers.full.insert(NodeId(0));
    });
    let regions = [process.open(&path, 0), process.open(&path, 1)];
    regions.iter().for_each(|region| read(region, 0));
    process.turn();
    assert_eq!(regions[0].local_bytes(), 0);
    assert_eq!(regions[1].local_bytes(), ALL);
    assert_eq!(process.copies()[0], (0, 4096), "its memory was given back");
    assert_eq!(process.reasons(), [Reason::Elsewhere]);
}

#[test]
fn what_is_forgotten_shows_the_file_and_stays_so() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let region = process.open(&path, 0);
    read(&region, 0);
    process.turn();
    let start = region.address();
    let middle = start + GRANULE as usize / 2..start + 3 * GRANULE as usize / 2;
    let again = File::open(&path).unwrap();
    process
        .replicas
        .forget(middle.clone(), Some(again.as_fd()))
        .unwrap();
    assert_eq!(region.local_bytes(), ALL - GRANULE);
    let shown = |range: std::ops::Range<usize>, offset| {
        let parts = crate::shown(range, again.as_fd(), offset).unwrap();
        parts.iter().map(|part| part.range.len()).sum::<usize>()
    };
    assert_eq!(shown(middle.clone(), GRANULE / 2), GRANULE as usize);
    read(&region, 0);
    process.turn();
    assert_eq!(shown(middle, GRANULE / 2), GRANULE as usize);
    assert_eq!(
        shown(start..start + PAGE, 0),
        0,
        "the rest still shows the copy"
    );
    // As a child does that was forked.
    let whole = start..start + BYTES.next_multiple_of(PAGE);
    put_file_back(whole.clone(), again.as_fd(), 0).unwrap();
    assert_eq!(shown(whole, 0), BYTES.next_multiple_of(PAGE));
    assert_eq!(region.as_slice(), content(0));
}

/// Before Linux 6.12, a mapping is gone when the kernel finds that it cannot make the one that was
/// to take its place.
#[test]
fn a_mapping_that_is_lost_shows_the_file_again() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let region = process.open(&path, 0);
    read(&region, 0);
    process.set(|answers| answers.loses = true);
    process.turn();
    assert_eq!(region.as_slice(), content(0));
    assert_eq!(process.reasons(), [Reason::Kernel]);
    // The kernel has memory again.
    read(&region, 0);
    process.turn();
    assert_eq!(region.local_bytes(), ALL);
    assert_eq!(region.as_slice(), content(0));
    process
        .replicas
        .forget(0..usize::MAX, Some(File::open(&path).unwrap().as_fd()))
        .unwrap();
    assert_eq!(region.as_slice(), content(0));
}

#[test]
fn memory_in_a_mappings_place_is_left_alone() {
    let place = place();
    let path = file(place.path());
    let process = process(place.path(), 1 << 30);
    let region = process.open(&path, 0);
    read(&region, 0);
    // Granule 1 is another file's now, unseen, as by a raw system call.
    let other = place.path().join("other.bin");
    std::fs::write(&other, content(3)).unwrap();
    let other = File::open(&other).unwrap();
    let at = Range {
        start: region.address() + GRANULE as usize,
        bytes: GRANULE as usize,
    };
    place::over(at, other.as_fd(), GRANULE).unwrap();
    process.turn();
    assert_eq!(region.local_bytes(), ALL - GRANULE);
    assert_eq!(
        region.as_slice()[GRANULE as usize],
        byte(GRANULE as usize, 3)
    );
}

#[test]
fn one_node_needs_no_copies() {
    let place = place();
    let process = process(place.path(), 1 << 30);
    process.set(|answers| answers.nodes = 1);
    let settings = process.replicas.0.shared.settings.clone();
    let refused = Replicas::start_on(settings.clone(), process.machine.clone());
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("one node with memory")
    );
    process.set(|answers| answers.nodes = 2);
    let small = Settings {
        budget_bytes: GRANULE - 1,
        ..settings.clone()
    };
    assert!(Replicas::start_on(small, process.machine.clone()).is_err());
    let path = file(place.path());
    let none = process.replicas.open(&path, Some(NodeId(2))).unwrap_err();
    assert!(none.to_string().starts_with("node 2: "), "{none}");
    // With the thread that it has in earnest.
    let started = Replicas::start_on(settings, process.machine.clone()).unwrap();
    let region = started.open(&path, None).unwrap();
    read(&region, 0);
    started.end();
    assert_eq!(region.local_bytes(), 0);
    read(&region, 0);
}
