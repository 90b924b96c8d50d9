//! Sums of boards that were made up.

use super::super::find::Seen;
use super::*;
use memtide_pager::board::{Counts, File};

/// Process `pid`, which has evicted so many pages and maps these files: path, bytes mapped and in
/// memory, pages evicted.
pub fn shown(pid: u32, evicted: u64, files: &[(&str, u64, u64, u64)]) -> Shown {
    let mut statistics = memtide_pager::Statistics::default();
    statistics.evicted_pages = evicted;
    statistics.budget_bytes = 1 << 20;
    let file = |(name, mapped, resident, evicted): &(&str, u64, u64, u64)| File {
        name: (*name).to_owned(),
        figures: Figures {
            mapped_bytes: *mapped,
            resident_bytes: *resident,
            evicted_pages: *evicted,
            refilled_pages: evicted / 2,
        },
    };
    let posted = Posted {
        pid,
        shootdowns_before: None,
        written_ms: 0,
        ended: false,
        counts: Counts::default(),
        statistics,
        files: files.iter().map(file).collect(),
        more_files: 0,
        rest: Figures::default(),
    };
    Shown {
        process: process(pid),
        program: "reader".to_owned(),
        seen: Seen {
            posted,
            torn: false,
            last_turn_ms: None,
        },
    }
}

fn process(pid: u32) -> Process {
    Process {
        pid,
        start_ticks: 1,
    }
}

/// Takes a round of these processes at a second.
fn round(sums: &mut Sums, second: u64, shown: &[Shown]) {
    let there = shown.iter().map(|one| one.process).collect();
    sums.round(Duration::from_secs(second), &there, shown, None);
}

fn told(sums: &Sums) -> PagerFigures {
    sums.figures(true, 0, None, Duration::ZERO)
}

/// The name, bytes mapped and in memory, and pages evicted, of each file.
fn files(sums: &Sums) -> Vec<(String, u64, u64, u64)> {
    let files = told(sums).files.into_iter();
    files
        .map(|file| {
            let all = file.figures;
            (
                file.name,
                all.mapped_bytes,
                all.resident_bytes,
                all.evicted_pages,
            )
        })
        .collect()
}

/// Process 1 had evicted 100 pages before, and evicts 5 more. Process 2 comes later and evicts 7; then
/// it ends, and 12 stay.
#[test]
fn counts_grow_with_what_is_seen_and_never_fall() {
    let mut sums = Sums::default();
    round(&mut sums, 0, &[shown(1, 100, &[("/a/x", 8, 4, 100)])]);
    assert_eq!(told(&sums).counts.evicted_pages, 0);
    let (one, two) = (
        shown(1, 105, &[("/a/x", 8, 4, 105)]),
        shown(2, 7, &[("/b/x", 80, 40, 7)]),
    );
    round(&mut sums, 10, &[one.clone(), two]);
    let now = told(&sums);
    assert_eq!((now.counts.evicted_pages, now.processes), (12, 2));
    assert_eq!(now.budget_bytes, 2 << 20);
    assert_eq!(files(&sums), [("x".to_owned(), 88, 44, 12)]);
    round(&mut sums, 20, &[one]);
    assert_eq!(told(&sums).counts.evicted_pages, 12);
    assert_eq!(files(&sums), [("x".to_owned(), 8, 4, 12)]);
    // A process that lies counts for nothing until it tells more than it told before.
    round(&mut sums, 30, &[shown(1, 3, &[("/a/x", 8, 4, 3)])]);
    assert_eq!(files(&sums)[0].3, 12);
}

#[test]
fn a_file_that_two_processes_map_is_in_memory_once() {
    let mut sums = Sums::default();
    let both = [
        shown(1, 0, &[("/a/x", 8, 4, 0), ("/c/x", 1, 1, 0)]),
        shown(2, 0, &[("/a/x", 8, 3, 0)]),
    ];
    round(&mut sums, 0, &both);
    assert_eq!(files(&sums), [("x".to_owned(), 17, 5, 0)]);
}

/// 70 files, of which the largest 64 have a place: those of 7 bytes and more. The others evict a page
/// each in the second round.
#[test]
fn names_without_a_place_are_summed_and_counted() {
    let names: Vec<String> = (1..=70).map(|n| format!("/m/{n:02}")).collect();
    let all = |evicted| {
        let files: Vec<_> = (1u64..)
            .zip(&names)
            .map(|(n, name)| (&**name, n, n, evicted))
            .collect();
        shown(1, 0, &files)
    };
    let mut sums = Sums::default();
    round(&mut sums, 0, &[all(0)]);
    round(&mut sums, 10, &[all(1)]);
    let figures = told(&sums);
    assert_eq!((figures.files.len(), figures.other_files), (MOST_FILES, 6));
    assert_eq!(figures.files[0].name, "07");
    assert_eq!(figures.others.mapped_bytes, 1 + 2 + 3 + 4 + 5 + 6);
    assert_eq!(figures.others.evicted_pages, 6);
    // Larger ones that come later find no place.
    round(
        &mut sums,
        20,
        &[all(1), shown(2, 0, &[("/m/big", 1000, 0, 9)])],
    );
    assert_eq!(told(&sums).other_files, 7);
    assert_eq!(told(&sums).others.evicted_pages, 6 + 9);
    // Process 1 ends: an hour later its places are free.
    let big = [shown(2, 0, &[("/m/big", 1000, 0, 11)])];
    round(&mut sums, 30, &big);
    assert_eq!(told(&sums).files.len(), MOST_FILES);
    round(&mut sums, 20 + 3600, &big);
    let figures = told(&sums);
    assert_eq!((figures.files.len(), figures.other_files), (1, 0));
    assert_eq!(files(&sums), [("big".to_owned(), 1000, 0, 0)]);
    assert_eq!(figures.others.evicted_pages, 6 + 11, "they only grow");
}

#[test]
fn without_names_the_sums_are_the_same() {
    let mut sums = Sums::default();
    round(&mut sums, 0, &[]);
    round(
        &mut sums,
        10,
        &[shown(1, 9, &[("/a/x", 8, 4, 9), ("y", 2, 1, 0)])],
    );
    let figures = sums.figures(false, 0, None, Duration::ZERO);
    assert_eq!((figures.files.len(), figures.other_files), (0, 2));
    let others = figures.others;
    assert_eq!(
        (
            others.mapped_bytes,
            others.resident_bytes,
            others.evicted_pages
        ),
        (10, 5, 9)
    );
}

/// One that is not looked at in a round keeps its figures, and grows by all that it did meanwhile.
#[test]
fn who_is_there_and_was_not_read_keeps_its_figures() {
    let mut sums = Sums::default();
    let (before, after) = (shown(1, 5, &[]), shown(1, 9, &[]));
    let mut torn = shown(1, 7, &[]);
    torn.seen.torn = true;
    let there: BTreeSet<Process> = [process(1)].into();
    let mut round = |second, shown: &[Shown]| {
        sums.round(Duration::from_secs(second), &there, shown, Some(second));
        sums.figures(true, 2, Some(second), Duration::ZERO)
    };
    round(0, &[]);
    assert_eq!(round(1, &[before]).counts.evicted_pages, 5);
    assert_eq!(round(2, &[]).processes, 1);
    assert_eq!(round(3, &[torn]).counts.evicted_pages, 5);
    let told = round(4, &[after]);
    assert_eq!((told.counts.evicted_pages, told.not_read), (9, 2));
    assert_eq!(told.shootdowns, Some(4));
}

/// Whatever processes show, nothing runs over and no more names are told.
#[test]
fn hostile_numbers_and_names_have_their_end() {
    let mut sums = Sums::default();
    let most = u64::MAX;
    round(&mut sums, 0, &[]);
    for turn in 1..200u64 {
        let name = format!("/\u{1b}[2J\n{turn}\"");
        let mut one = shown(1, most, &[(&name, most, most, most)]);
        one.process.start_ticks = turn;
        one.seen.posted.more_files = most;
        one.seen.posted.rest.evicted_pages = most;
        round(
            &mut sums,
            turn,
            &[one.clone(), shown(2, most, &[(&name, most, most, most)])],
        );
    }
    let figures = told(&sums);
    assert_eq!(figures.files.len(), MOST_FILES);
    assert_eq!(figures.counts.evicted_pages, most);
    assert_eq!(figures.others.evicted_pages, most);
}
