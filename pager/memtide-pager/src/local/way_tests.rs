//! Granules that are read less give way to those that are read more.
//!
//! Each test runs in a child: other tests' children inherit mappings, and with them locks.

use super::*;
use crate::local::rounds::ROUND;

/// Granules of a file, and how many of them fit.
const GRANULES: usize = 4;
const FIT: u64 = 2;
const G: usize = GRANULE as usize;

fn alone(test: impl FnOnce()) {
    let status = crate::sys::child::run(|| {
        test();
        0
    });
    assert_eq!(status, Ok(0));
}

/// A file of whole granules.
fn large(place: &Path, name: &str) -> PathBuf {
    let path = place.join(name);
    let bytes: Vec<u8> = (0..GRANULES * G).map(|at| byte(at, 0)).collect();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// With room for [`FIT`] granules of one file, or of two.
fn small(place: &Path, files: u64) -> Process {
    process(place, FIT * GRANULE + files * 4096)
}

/// Reads granules as a program does, and looks at what it reads.
fn touch(region: &LocalRegion, granules: &[usize]) {
    for at in granules
        .iter()
        .flat_map(|granule| (granule * G..(granule + 1) * G).step_by(PAGE))
    {
        assert_eq!(region.as_slice()[at], byte(at, 0), "byte {at}");
    }
}

/// Which granules show their copy.
fn local(process: &Process, region: &LocalRegion) -> Vec<u64> {
    let state = process.replicas.0.shared.state();
    let own = state
        .regions
        .iter()
        .find(|one| one.range.start == region.address());
    let own = own.expect("it is taken care of");
    own.granules()
        .filter(|granule| own.is_local(*granule))
        .collect()
}

/// Rounds in each of which `reads` of its number is read, and then a turn.
fn rounds(process: &Process, start: &mut Instant, many: u32, mut reads: impl FnMut(u32)) {
    for round in 0..many {
        reads(round);
        process.turn_at(*start);
        *start += ROUND;
    }
}

#[test]
fn what_is_read_no_more_gives_way_to_what_is_read() {
    alone(|| {
        let place = place();
        let path = large(place.path(), "a.bin");
        let process = small(place.path(), 1);
        let region = process.open(&path, 0);
        let mut now = Instant::now();
        touch(&region, &[0, 1]);
        process.turn_at(now);
        assert_eq!(local(&process, &region), [0, 1]);
        rounds(&process, &mut now, 2, |_| touch(&region, &[2, 3]));
        assert_eq!(
            local(&process, &region),
            [0, 1],
            "not before two rounds have said so"
        );
        rounds(&process, &mut now, 3, |_| touch(&region, &[2, 3]));
        assert_eq!(local(&process, &region), [2, 3]);
        let statistics = process.replicas.statistics().unwrap();
        assert_eq!(statistics.filled_bytes, 4 * GRANULE);
        assert_eq!(statistics.given_up_bytes, 2 * GRANULE);
        assert_eq!(statistics.freed_bytes, 2 * GRANULE);
        assert_eq!(
            process.copies(),
            [(0, FIT * GRANULE + 4096)],
            "the budget holds"
        );
        // What it asked for ends with it; a keeper that panics ends, too.
        let wish = place.path().join("local/node0.wanted");
        assert!(wish.exists());
        process.set(|answers| answers.panics = true);
        process.turn();
        assert!(!wish.exists());
        touch(&region, &[0, 1, 2, 3]);
    });
}

/// Of granules 0 and 1 only 0 is read on: it stays, within one stretch with the one that leaves.
#[test]
fn what_is_read_stays() {
    alone(|| {
        let place = place();
        let path = large(place.path(), "a.bin");
        let process = small(place.path(), 1);
        let region = process.open(&path, 0);
        let mut now = Instant::now();
        touch(&region, &[0, 1]);
        process.turn_at(now);
        rounds(&process, &mut now, 6, |_| touch(&region, &[0, 2]));
        assert_eq!(local(&process, &region), [0, 2]);
        assert_eq!(
            process.replicas.statistics().unwrap().given_up_bytes,
            GRANULE
        );
        touch(&region, &[0, 1, 2, 3]);
    });
}

/// Sweeps within a round leave nothing idle; of slower ones nothing is busy.
#[test]
fn sweeps_over_more_than_fits_move_nothing() {
    alone(|| {
        for slow in [false, true] {
            let place = place();
            let path = large(place.path(), "a.bin");
            let process = small(place.path(), 1);
            let region = process.open(&path, 0);
            let mut now = Instant::now();
            touch(&region, &[0, 1]);
            process.turn_at(now);
            rounds(&process, &mut now, 12, |round| match slow {
                true => touch(&region, &[round as usize % GRANULES]),
                false => touch(&region, &[0, 1, 2, 3]),
            });
            assert_eq!(local(&process, &region), [0, 1], "slow: {slow}");
            let statistics = process.replicas.statistics().unwrap();
            assert_eq!(
                (statistics.filled_bytes, statistics.given_up_bytes),
                (2 * GRANULE, 0)
            );
        }
    });
}

#[test]
fn another_process_makes_way_and_one_that_is_stopped_keeps_what_it_maps() {
    alone(|| {
        for stopped in [false, true] {
            let place = place();
            let (a, b) = (large(place.path(), "a.bin"), large(place.path(), "b.bin"));
            let (first, second) = (small(place.path(), 2), small(place.path(), 2));
            let of_first = first.open(&a, 0);
            let mut now = Instant::now();
            touch(&of_first, &[0, 1]);
            first.turn_at(now);
            let of_second = second.open(&b, 0);
            for _ in 0..9 {
                if !stopped {
                    first.turn_at(now);
                }
                rounds(&second, &mut now, 1, |_| touch(&of_second, &[0, 3]));
            }
            let expected: (Vec<u64>, Vec<u64>) = match stopped {
                true => (vec![0, 1], vec![]),
                false => (vec![], vec![0, 3]),
            };
            let now = (local(&first, &of_first), local(&second, &of_second));
            assert_eq!(now, expected, "stopped: {stopped}");
            touch(&of_first, &[0, 1, 2, 3]);
            touch(&of_second, &[0, 1, 2, 3]);
        }
    });
}

/// Nobody maps granule 1 of the copy any more, which both processes have open.
#[test]
fn what_nobody_maps_is_taken_at_once() {
    alone(|| {
        let place = place();
        let (a, b) = (large(place.path(), "a.bin"), large(place.path(), "b.bin"));
        let (first, second) = (small(place.path(), 2), small(place.path(), 2));
        let of_first = first.open(&a, 0);
        touch(&of_first, &[0, 1]);
        first.turn();
        let of_second = second.open(&a, 0);
        touch(&of_second, &[0]);
        second.turn();
        let _open = first.open(&a, 0);
        drop(of_first);
        first.turn();
        let wanted = second.open(&b, 0);
        touch(&wanted, &[2, 3]);
        second.turn();
        // One granule's room, and the one that the second process reads stays.
        assert_eq!(local(&second, &wanted), [2]);
        assert_eq!(local(&second, &of_second), [0]);
        assert_eq!(second.replicas.statistics().unwrap().freed_bytes, GRANULE);
        touch(&of_second, &[0, 1, 2, 3]);
    });
}

/// Between a sixteenth and a thirty-second of 1 GiB: what nobody maps goes, what is read stays.
#[test]
fn where_memory_becomes_short_what_nobody_maps_goes_first() {
    alone(|| {
        let place = place();
        let path = large(place.path(), "a.bin");
        let (first, second) = (
            process(place.path(), 1 << 30),
            process(place.path(), 1 << 30),
        );
        let (of_first, of_second) = (first.open(&path, 0), second.open(&path, 0));
        touch(&of_first, &[0, 1, 2, 3]);
        first.turn();
        touch(&of_second, &[3]);
        second.turn();
        drop(of_first);
        first.turn();
        second.set(|answers| answers.room.available = 48 << 20);
        second.turn();
        assert_eq!(
            second.replicas.statistics().unwrap().freed_bytes,
            3 * GRANULE
        );
        assert_eq!(local(&second, &of_second), [3]);
        touch(&of_second, &[0, 1, 2, 3]);
    });
}

/// A wish is for half a minute, and one of another boot is none.
#[test]
fn nobody_makes_way_for_an_old_wish() {
    alone(|| {
        let place = place();
        let path = large(place.path(), "a.bin");
        let process = process(place.path(), 1 << 30);
        let region = process.open(&path, 0);
        touch(&region, &[0, 1]);
        let mut now = Instant::now();
        process.turn_at(now);
        let folder = Folder::open(&place.path().join("local")).unwrap();
        for (said, left) in [(2000, false), (970, false), (999, true)] {
            folder.want(NodeId(0), Duration::from_secs(said)).unwrap();
            rounds(&process, &mut now, 4, |_| {});
            let expected: &[u64] = if left { &[] } else { &[0, 1] };
            assert_eq!(local(&process, &region), expected, "said at {said}");
        }
    });
}

/// In any order of reads, of two processes and with any pauses, every byte is the file's, and the copies
/// have their budget.
#[test]
fn whatever_is_read_the_bytes_are_right_and_the_budget_holds() {
    use proptest::prelude::*;
    alone(|| {
        let config = ProptestConfig {
            cases: 12,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let read = (
            0usize..2,
            prop::collection::btree_set(0..GRANULES, 0..3),
            0u64..25,
        );
        proptest!(config, |(reads in prop::collection::vec(read, 1..40))| {
            let place = place();
            let (a, b) = (large(place.path(), "a.bin"), large(place.path(), "b.bin"));
            let processes = [small(place.path(), 2), small(place.path(), 2)];
            let regions = [processes[0].open(&a, 0), processes[1].open(&b, 0)];
            let shared = processes[1].open(&a, 0);
            let mut now = Instant::now();
            for (who, granules, seconds) in &reads {
                let granules: Vec<usize> = granules.iter().copied().collect();
                touch(&regions[*who], &granules);
                if *seconds > 12 {
                    touch(&shared, &granules);
                }
                now += Duration::from_secs(*seconds);
                processes[*who].turn_at(now);
                let budget = FIT * GRANULE + 2 * 4096;
                for process in &processes {
                    prop_assert!(process.copies().iter().all(|(_, bytes)| *bytes <= budget));
                }
            }
            let all: Vec<usize> = (0..GRANULES).collect();
            for region in regions.iter().chain([&shared]) {
                touch(region, &all);
            }
        });
    });
}
