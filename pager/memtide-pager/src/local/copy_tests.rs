//! The layout of a copy, and its granules.

use super::*;
use crate::sys::mapping::Mapping;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

fn version(bytes: u64) -> Version {
    Version {
        file: (1, 2),
        bytes,
        written: (3, 4),
        changed: (5, 6),
    }
}

/// 5 MiB and a byte: three granules, the last of 1 MiB and a page. States from 128 on, so the
/// data begins at 2 MiB.
#[test]
fn the_layout() {
    let bytes = (5 << 20) + 1;
    assert_eq!(granules(bytes), 3);
    assert_eq!(data_at(bytes), 2 << 20);
    assert_eq!(granule_bytes(bytes, 0), 2 << 20);
    assert_eq!(granule_bytes(bytes, 2), (1 << 20) + page());
    assert_eq!(granule_bytes(bytes, 3), 0);
    assert_eq!(whole_bytes(bytes), (7 << 20) + page());
    // 4 TiB have 2 Mi granules: their bytes reach beyond 2 MiB.
    assert_eq!(data_at(4 << 40), 4 << 20);
}

fn made(bytes: u64) -> Copy {
    Copy::make(version(bytes), NodeId(1), |_, _| Ok(())).unwrap()
}

fn link(copy: &Copy) -> std::path::PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), copy.number()).into()
}

#[test]
fn what_is_filled_is_the_files_and_found_by_another() {
    let bytes = GRANULE + 777;
    let file = tempfile::tempfile().unwrap();
    let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    file.write_all_at(&content, 0).unwrap();
    let copy = made(bytes);
    copy.fill(1, &file).unwrap();
    assert!(
        !copy.holds(1).unwrap(),
        "nobody maps it before it is sealed"
    );
    copy.seal(1).unwrap();
    let other = Copy::open(&link(&copy), copy.memory, version(bytes), NodeId(1)).unwrap();
    assert!(other.holds(1).unwrap() && !other.holds(0).unwrap());
    let mut read = vec![0; 777];
    other
        .file
        .read_exact_at(&mut read, other.at(GRANULE))
        .unwrap();
    assert_eq!(read, content[GRANULE as usize..]);
}

#[test]
fn a_copy_of_something_else_is_not_opened() {
    let copy = made(GRANULE);
    let open = |memory, version, node| Copy::open(&link(&copy), memory, version, node).is_ok();
    assert!(open(copy.memory, version(GRANULE), NodeId(1)));
    assert!(!open(copy.memory, version(GRANULE), NodeId(0)));
    assert!(!open(copy.memory, version(GRANULE + 1), NodeId(1)));
    assert!(!open((0, 0), version(GRANULE), NodeId(1)));
    let rewritten = Version {
        changed: (5, 7),
        ..version(GRANULE)
    };
    assert!(!open(copy.memory, rewritten, NodeId(1)));
}

#[test]
fn nobody_can_cut_it_or_write_through_a_mapping() {
    let copy = made(GRANULE);
    assert!(copy.file.set_len(4096).is_err());
    let readable = copy.readable.try_clone().unwrap();
    assert!(readable.write_at(b"x", 0).is_err());
    assert_ne!(readable.as_raw_fd(), copy.number());
}

#[test]
fn an_emptied_granule_takes_no_memory() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(GRANULE).unwrap();
    let copy = made(GRANULE);
    let memory_bytes = |copy| seen(&link(copy)).unwrap().unwrap().bytes;
    let before = memory_bytes(&copy);
    copy.fill(0, &file).unwrap();
    let filled = memory_bytes(&copy);
    assert!(filled >= before + GRANULE, "{before} {filled}");
    copy.empty(0).unwrap();
    assert_eq!(memory_bytes(&copy), before);
}

#[test]
fn what_is_no_more_is_known_from_what_the_kernel_does_not_tell() {
    let place = tempfile::tempdir().unwrap();
    let [gone, round, folder] = ["gone", "round", "."].map(|name| place.path().join(name));
    // A process that has ended, and one of which nobody is told, answer like these.
    std::os::unix::fs::symlink(&round, &round).unwrap();
    assert_eq!(seen(&gone).unwrap(), None);
    assert_eq!(seen(&folder).unwrap(), None, "no file");
    assert!(seen(&round).is_err());
    for (error, ended) in [
        (libc::ENOENT, true),
        (libc::ESRCH, true),
        (libc::EACCES, false),
    ] {
        assert_eq!(has_ended(&io::Error::from_raw_os_error(error)), ended);
    }
}

#[test]
#[should_panic(expected = "what is mapped is not written to")]
fn a_whole_granule_is_never_written_again() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(GRANULE).unwrap();
    let copy = made(GRANULE);
    copy.seal(0).unwrap();
    let _ = copy.fill(0, &file);
}

#[test]
fn what_is_mapped_is_held_and_what_is_not_is_taken() {
    alone(|| {
        let file = numbered(2);
        let copy = made(2 * GRANULE);
        (0..2).for_each(|granule| fill_and_seal(&copy, granule, &file));
        let held = copy.hold(&[0, 1].into()).unwrap();
        assert_eq!(held.granules, [0, 1].into());
        assert_eq!(copy.take(0).unwrap(), None);
        let mapped = mapped(&copy, &held, 1);
        drop(held);
        assert_eq!(copy.take(0).unwrap(), None, "one description holds both");
        drop(mapped);
        assert_eq!(copy.take(0).unwrap(), Some(GRANULE));
        assert_eq!(copy.take(0).unwrap(), None, "it has no memory");
        assert!(copy.hold(&[0].into()).unwrap().granules.is_empty());
        assert!(copy.holds(1).unwrap());
    });
}

/// A killed process leaves data that is not whole, or a granule that was about to be taken. Either has
/// memory and is not mapped, and the next one takes it or fills it again.
#[test]
fn what_a_killed_process_left_is_filled_again_or_taken() {
    alone(|| {
        let file = numbered(1);
        let copy = made(GRANULE);
        copy.fill(0, &file).unwrap();
        assert_eq!(copy.take(0).unwrap(), Some(GRANULE));
        fill_and_seal(&copy, 0, &file);
        copy.file.write_all_at(&[0], STATES).unwrap();
        assert!(copy.hold(&[0].into()).unwrap().granules.is_empty());
        fill_and_seal(&copy, 0, &file);
        let held = copy.hold(&[0].into()).unwrap();
        assert_eq!(mapped(&copy, &held, 0).as_slice(1)[0], number(0, 0));
    });
}

/// A lock that another process has for the moment of its question.
#[test]
fn a_granule_that_somebody_asks_for_is_not_written() {
    let file = numbered(1);
    let copy = made(GRANULE);
    let asks = copy.again().unwrap();
    assert!(lock(&asks, Lock::Read, 0..1).unwrap());
    let refused = copy.fill(0, &file).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
}

/// Other tests' children inherit mappings, and with them locks: here are none.
fn alone(test: impl FnOnce()) {
    let status = crate::sys::child::run(|| {
        test();
        0
    });
    assert_eq!(status, Ok(0));
}

/// The byte at the beginning of a page.
fn number(granule: u64, page: u64) -> u8 {
    (granule * 31 + page * 7 + 1) as u8
}

/// A file of so many granules whose every page has its number; no number is 0 for the first page.
fn numbered(granules: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(granules * GRANULE).unwrap();
    for granule in 0..granules {
        for at in (0..GRANULE / page()).step_by(64) {
            let offset = granule * GRANULE + at * page();
            file.write_all_at(&[number(granule, at)], offset).unwrap();
        }
    }
    file
}

fn fill_and_seal(copy: &Copy, granule: u64, file: &File) {
    copy.fill(granule, file).unwrap();
    copy.seal(granule).unwrap();
}

fn mapped(copy: &Copy, held: &Held, granule: u64) -> Mapping {
    let at = copy.at(granule * GRANULE);
    Mapping::of_file(held.file.as_fd(), at, GRANULE as usize).unwrap()
}

const GRANULES: u64 = 4;

/// What processes may do with a copy, in any order.
#[derive(Clone, Debug)]
enum Step {
    Fill(u64),
    /// Killed between the last byte of data and its word that it is whole.
    KilledFilling(u64),
    /// A process maps these granules, where they are whole.
    Map(BTreeSet<u64>),
    /// The nth mapping ends, as by `munmap` or with its process.
    Unmap(usize),
    Take(u64),
    /// Killed between the word that it is not whole any more and the memory.
    KilledTaking(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let granule = || 0..GRANULES;
    prop_oneof![
        4 => granule().prop_map(Step::Fill),
        1 => granule().prop_map(Step::KilledFilling),
        4 => prop::collection::btree_set(granule(), 1..4).prop_map(Step::Map),
        4 => (0usize..8).prop_map(Step::Unmap),
        4 => granule().prop_map(Step::Take),
        1 => granule().prop_map(Step::KilledTaking),
    ]
}

type Mappings = Vec<(u64, Mapping)>;

/// The model: which granules are whole, and for each description that is still mapped which granules
/// it holds and which of them are mapped through it.
#[derive(Default)]
struct Model {
    whole: BTreeSet<u64>,
    mapped: Vec<(BTreeSet<u64>, Mappings)>,
}

impl Model {
    fn is_held(&self, granule: u64) -> bool {
        self.mapped.iter().any(|(held, _)| held.contains(&granule))
    }

    fn run(&mut self, copy: &Copy, file: &File, step: &Step) {
        match step {
            Step::Fill(granule) if !self.whole.contains(granule) => {
                fill_and_seal(copy, *granule, file);
                self.whole.insert(*granule);
            }
            Step::KilledFilling(granule) if !self.whole.contains(granule) => {
                copy.fill(*granule, file).unwrap();
            }
            Step::Map(wanted) => {
                let held = copy.hold(wanted).unwrap();
                let whole: BTreeSet<u64> = wanted & &self.whole;
                assert_eq!(held.granules, whole, "whole granules and no other are held");
                let mappings: Vec<_> = whole
                    .iter()
                    .map(|granule| (*granule, mapped(copy, &held, *granule)))
                    .collect();
                if !mappings.is_empty() {
                    self.mapped.push((whole, mappings));
                }
            }
            Step::Unmap(nth) if !self.mapped.is_empty() => {
                let nth = nth % self.mapped.len();
                self.mapped[nth].1.pop();
                self.mapped.retain(|(_, mappings)| !mappings.is_empty());
            }
            Step::Take(granule) => {
                let taken = copy.take(*granule).unwrap().is_some();
                assert!(!(taken && self.is_held(*granule)), "nothing that is mapped");
                if self.whole.contains(granule) {
                    assert_eq!(taken, !self.is_held(*granule), "all that is not");
                }
                if taken {
                    self.whole.remove(granule);
                }
            }
            Step::KilledTaking(granule) if self.whole.contains(granule) => {
                let states = STATES + granule;
                let killed = || copy.file.write_all_at(&[0], states);
                if copy.alone(*granule, killed).unwrap().is_some() {
                    assert!(!self.is_held(*granule));
                    self.whole.remove(granule);
                }
            }
            _ => {}
        }
        for (granule, mapping) in self.mapped.iter().flat_map(|(_, mappings)| mappings) {
            let bytes = mapping.as_slice(GRANULE as usize);
            for at in (0..GRANULE / page()).step_by(64) {
                assert_eq!(
                    bytes[(at * page()) as usize],
                    number(*granule, at),
                    "{granule}"
                );
            }
        }
        let memory = seen(&link(copy)).unwrap().unwrap().bytes;
        assert!(memory >= self.whole.len() as u64 * GRANULE, "{memory}");
    }
}

#[test]
fn in_any_order_a_reader_reads_the_file_and_what_nobody_maps_is_free() {
    alone(|| {
        let config = ProptestConfig {
            cases: 40,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let file = numbered(GRANULES);
        proptest!(config, |(steps in prop::collection::vec(step(), 1..40))| {
            let copy = made(GRANULES * GRANULE);
            let mut model = Model::default();
            for step in &steps {
                model.run(&copy, &file, step);
            }
            // All of it is free once nobody maps any of it.
            model.mapped.clear();
            (0..GRANULES).for_each(|granule| { copy.take(granule).unwrap(); });
            let left = seen(&link(&copy)).unwrap().unwrap().bytes;
            assert_eq!(left, page(), "the header's page");
        });
    });
}

/// What a process does with the copy until it is killed: it fills and takes under the turn's lock, and maps
/// and reads without it. It tells of each step by a byte.
fn works(
    path: &Path,
    copy: (MemoryFile, u64),
    turn: &Path,
    file: &File,
    mut told: impl Write,
) -> ! {
    let (memory, seed) = copy;
    let copy = Copy::open(path, memory, version(GRANULES * GRANULE), NodeId(1)).unwrap();
    let turn = File::options().write(true).open(turn).unwrap();
    let mut random = seed;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (random >> 33) % below
    };
    loop {
        let granule = next(GRANULES);
        match next(3) {
            // While somebody else has the turn, it is not ours.
            0 if lock(&turn, Lock::Write, 0..1).unwrap() => {
                if !copy.holds(granule).unwrap() && copy.fill(granule, file).is_ok() {
                    copy.seal(granule).unwrap();
                }
                lock(&turn, Lock::None, 0..1).unwrap();
            }
            1 if lock(&turn, Lock::Write, 0..1).unwrap() => {
                copy.take(granule).unwrap();
                lock(&turn, Lock::None, 0..1).unwrap();
            }
            _ => {
                let held = copy.hold(&[granule, next(GRANULES)].into()).unwrap();
                for granule in held.granules.clone() {
                    let mapping = mapped(&copy, &held, granule);
                    let bytes = mapping.as_slice(GRANULE as usize);
                    for at in (0..GRANULE / page()).step_by(64) {
                        assert_eq!(bytes[(at * page()) as usize], number(granule, at));
                    }
                }
            }
        }
        told.write_all(&[1]).unwrap();
    }
}

/// Three processes at a time, each of which is killed after some steps, in the middle of whatever it does.
#[test]
fn processes_that_are_killed_at_any_moment_leave_a_copy_that_others_read() {
    alone(|| {
        let file = numbered(GRANULES);
        let copy = made(GRANULES * GRANULE);
        let turn = tempfile::NamedTempFile::new().unwrap();
        let path = link(&copy);
        let worker = |seed: u64| {
            let (mut tells, told) = std::io::pipe().unwrap();
            let (file, path) = (file.try_clone().unwrap(), path.clone());
            let (memory, turn) = (copy.memory, turn.path().to_owned());
            let ends = std::thread::spawn(move || {
                crate::sys::child::run(|| {
                    // Whoever hangs ends.
                    crate::sys::child::alarm(100);
                    (&told)
                        .write_all(&std::process::id().to_ne_bytes())
                        .unwrap();
                    works(&path, (memory, seed), &turn, &file, &told)
                })
            });
            let mut pid = [0; 4];
            tells.read_exact(&mut pid).unwrap();
            (u32::from_ne_bytes(pid), tells, ends)
        };
        let mut workers: Vec<_> = (0..3).map(worker).collect();
        let kill = |(pid, ends): (u32, std::thread::JoinHandle<_>)| {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            let ended = ends.join().unwrap();
            assert_eq!(ended, Err(9), "it read wrong bytes, or failed");
        };
        for seed in 3..60 {
            let (pid, mut tells, ends) = workers.remove(0);
            let steps = 1 + seed % 13;
            tells.read_exact(&mut vec![0; steps as usize]).unwrap();
            kill((pid, ends));
            workers.push(worker(seed));
        }
        for (pid, _, ends) in workers {
            kill((pid, ends));
        }
        // Nothing is held any more, and nothing is left.
        for granule in 0..GRANULES {
            copy.take(granule).unwrap();
            assert!(!copy.holds(granule).unwrap());
        }
        assert_eq!(seen(&path).unwrap().unwrap().bytes, page());
    });
}

/// One thread fills and takes a granule of a page, as fast as it can. Whatever the other one holds is
/// whole, and stays so while it is held. Who asks first and holds then is found out, most times.
#[test]
fn what_is_held_is_whole_however_fast_it_comes_and_goes() {
    alone(|| {
        let file = numbered(1);
        let copy = made(page());
        let other = Copy::open(&link(&copy), copy.memory, version(page()), NodeId(1)).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut held_once = 0;
                for _ in 0..60_000 {
                    let held = other.hold(&[0].into()).unwrap();
                    if held.granules.contains(&0) {
                        held_once += 1;
                        assert!(other.holds(0).unwrap(), "held, and not whole");
                    }
                }
                assert!(held_once > 0);
            });
            for _ in 0..60_000 {
                if !copy.holds(0).unwrap() && copy.fill(0, &file).is_ok() {
                    copy.seal(0).unwrap();
                }
                copy.take(0).unwrap();
            }
        });
    });
}
