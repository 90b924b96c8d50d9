//! Which memory the next scan arms.
//!
//! A scan goes through the mappings of an address space from where the last one
//! stopped and arms pages for hint faults until its budget is used up. Wrapping
//! around ends a *sequence*, and the sequence's number is the clock of all
//! placement. Two budgets: pages armed, charged only where something was armed,
//! and eight times as much address space, so that holes are crossed quickly but
//! not for ever.
//!
//! Threads pay for scans themselves, so a thread scans what it touched. A
//! mapping keeps the threads that faulted in it as a set of 64 bits, hashed, in
//! two windows of time. It is scanned if the scanning thread's bit is set, or in
//! the first two sequences of its life, or if a scan stopped inside it, or if it
//! has been left out for more sequences than the process has threads. If a scan
//! finds only mappings that it may not touch, it takes one of them all the same.
//!
//! Decisions only: the caller arms ([`pass`] calls it for each chunk) and says
//! how many entries changed.

use super::timing::Settings;
use serde::Serialize;
use std::ops::Range;

/// Address space that a scan may cross for each page that it may arm.
pub const VIRTUAL_FACTOR: i64 = 8;
/// A window of the thread history lasts this many scan delays.
pub const HISTORY_DELAYS: u64 = 4;
/// A new mapping is scanned by anybody in so many sequences.
pub const OPEN_SEQUENCES: i64 = 2;

/// What a mapping is, as far as scanning asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Its pages can move at all.
    pub migratable: bool,
    /// Hint faults act on its policy (`MPOL_F_MOF`).
    pub on_fault: bool,
    /// Reserved huge pages.
    pub hugetlb: bool,
    /// Page frames that are no pages among its entries.
    pub mixed: bool,
    /// A file stands behind it.
    pub file: bool,
    /// It may be read.
    pub readable: bool,
    /// It may be written.
    pub writable: bool,
    /// It may be executed.
    pub executable: bool,
}

impl Traits {
    /// Anonymous memory that is read and written.
    pub const PLAIN: Traits = Traits {
        migratable: true,
        on_fault: true,
        hugetlb: false,
        mixed: false,
        file: false,
        readable: true,
        writable: true,
        executable: false,
    };

    /// Whether scans look at it at all.
    #[must_use]
    pub fn scanned(&self) -> bool {
        let possible = self.migratable && self.on_fault && !self.hugetlb && !self.mixed;
        let read_only_file = self.file && self.readable && !self.writable;
        let accessible = self.readable || self.writable || self.executable;
        possible && !read_only_file && accessible
    }
}

/// What is remembered of a mapping from scan to scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct History {
    first_seq: i64,
    done_seq: i64,
    not_before_ms: u64,
    shift_at_ms: u64,
    /// Threads that faulted: the window before, the window now.
    threads: [u64; 2],
}

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first page.
    pub start: u64,
    /// The page after its last.
    pub end: u64,
    /// What it is.
    pub traits: Traits,
    history: Option<History>,
}

impl Mapping {
    /// A mapping that no scan has seen.
    #[must_use]
    pub fn new(pages: Range<u64>, traits: Traits) -> Mapping {
        Mapping {
            start: pages.start,
            end: pages.end,
            traits,
            history: None,
        }
    }

    /// Thread `pid` had a hint fault here.
    pub fn touched(&mut self, pid: u32) {
        if let Some(history) = &mut self.history {
            history.threads[1] |= thread_bit(pid);
        }
    }
}

/// The bit of a thread in a mapping's history: six bits of a multiplicative hash.
#[must_use]
pub fn thread_bit(pid: u32) -> u64 {
    1 << (pid.wrapping_mul(0x61c8_8647) >> 26)
}

/// How far the scans of an address space have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    seq: i64,
    offset: u64,
}

impl Progress {
    /// Completed sequences.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq as u64
    }

    /// The page at which the next scan begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn wrap(&mut self) {
        self.seq += 1;
        self.offset = 0;
    }
}

/// Who scans, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanner {
    /// The scanning thread.
    pub pid: u32,
    /// Threads of its process.
    pub threads: u64,
    /// When.
    pub now_ms: u64,
    /// Pages to arm.
    pub pages: u64,
    /// A chunk ends at a multiple of so many pages (a huge page) or at the mapping's end.
    pub chunk_pages: u64,
}

/// What a scan did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Scanned {
    /// Entries that changed.
    pub updates: u64,
    /// Pages of address space gone through.
    pub virtual_pages: u64,
    /// Whether a mapping that the thread did not touch was taken for want of others.
    pub forced: bool,
    /// Whether the end of the address space was reached.
    pub wrapped: bool,
}

/// Why a mapping is not scanned now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skip {
    Never,
    TooNew,
    Done,
    Untouched,
}

/// One scan. `mappings` ascend by address and do not overlap; `arm` gets a
/// mapping's position and a range of its pages and returns how many entries it
/// changed.
pub fn pass(
    progress: &mut Progress,
    mappings: &mut [Mapping],
    scanner: &Scanner,
    settings: &Settings,
    mut arm: impl FnMut(usize, Range<u64>) -> u64,
) -> Scanned {
    let mut report = Scanned::default();
    let budget = i64::try_from(scanner.pages).unwrap_or(i64::MAX / VIRTUAL_FACTOR);
    let mut left = Left {
        pages: budget,
        virtual_pages: budget.saturating_mul(VIRTUAL_FACTOR),
    };
    if left.pages == 0 {
        return report;
    }
    for forced in [false, true] {
        let mut skipped_untouched = false;
        let mut start = progress.offset;
        let mut at = mappings.partition_point(|m| m.end <= start);
        if at == mappings.len() {
            progress.wrap();
            report.wrapped = true;
            (start, at) = (0, 0);
        }
        while at < mappings.len() {
            let mapping = &mut mappings[at];
            match skip(mapping, progress, scanner, settings, forced) {
                Some(Skip::Done) => progress.offset = mapping.end,
                Some(Skip::Untouched) => skipped_untouched = true,
                Some(_) => {}
                None => {
                    report.forced |= forced;
                    start = start.max(mapping.start);
                    let pages = start..mapping.end;
                    let stop = left.go_through(pages, scanner, &mut report, |r| arm(at, r));
                    if let Some(next) = stop {
                        progress.offset = next;
                        return report;
                    }
                    start = mapping.end;
                    if let Some(history) = &mut mapping.history {
                        history.done_seq = progress.seq;
                    }
                    if forced {
                        progress.offset = start;
                        return report;
                    }
                }
            }
            at += 1;
        }
        if !skipped_untouched {
            break;
        }
    }
    progress.wrap();
    report.wrapped = true;
    report
}

struct Left {
    pages: i64,
    virtual_pages: i64,
}

impl Left {
    /// Arms `pages` chunk by chunk; where the budget ended, if it did.
    fn go_through(
        &mut self,
        pages: Range<u64>,
        scanner: &Scanner,
        report: &mut Scanned,
        mut arm: impl FnMut(Range<u64>) -> u64,
    ) -> Option<u64> {
        let mut start = pages.start;
        loop {
            let end = (start + self.pages as u64).next_multiple_of(scanner.chunk_pages.max(1));
            let end = end.min(pages.end);
            let updates = arm(start..end);
            let length = (end - start) as i64;
            if updates > 0 {
                self.pages -= length;
            }
            self.virtual_pages -= length;
            report.updates += updates;
            report.virtual_pages += length as u64;
            start = end;
            if self.pages <= 0 || self.virtual_pages <= 0 {
                return Some(start);
            }
            if start == pages.end {
                return None;
            }
        }
    }
}

fn skip(
    mapping: &mut Mapping,
    progress: &Progress,
    scanner: &Scanner,
    settings: &Settings,
    forced: bool,
) -> Option<Skip> {
    if !mapping.traits.scanned() {
        return Some(Skip::Never);
    }
    let (seq, now) = (progress.seq, scanner.now_ms);
    let delay = u64::from(settings.scan_delay_ms);
    let history = mapping.history.get_or_insert(History {
        first_seq: seq,
        done_seq: seq - 1,
        not_before_ms: now + delay,
        shift_at_ms: now + delay + HISTORY_DELAYS * delay,
        threads: [0; 2],
    });
    if seq != 0 && now < history.not_before_ms {
        return Some(Skip::TooNew);
    }
    if seq != 0 && now > history.shift_at_ms {
        history.shift_at_ms += HISTORY_DELAYS * delay;
        history.threads = [history.threads[1], 0];
    }
    if history.done_seq == seq {
        return Some(Skip::Done);
    }
    let touched = seq - history.first_seq < OPEN_SEQUENCES
        || (history.threads[0] | history.threads[1]) & thread_bit(scanner.pid) != 0
        || progress.offset > mapping.start
        || seq > history.done_seq.saturating_add_unsigned(scanner.threads);
    (!forced && !touched).then_some(Skip::Untouched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SETTINGS: Settings = Settings {
        scan_delay_ms: 1000,
        scan_period_min_ms: 1000,
        scan_period_max_ms: 60_000,
        scan_size_mb: 256,
    };

    fn plain(start: u64, end: u64) -> Mapping {
        Mapping::new(start..end, Traits::PLAIN)
    }

    fn scanner(now_ms: u64, pages: u64) -> Scanner {
        Scanner {
            pid: 1,
            threads: 2,
            now_ms,
            pages,
            chunk_pages: 512,
        }
    }

    /// One pass in which every page is armed; the ranges.
    fn run(progress: &mut Progress, maps: &mut [Mapping], by: Scanner) -> Vec<(usize, u64, u64)> {
        let mut ranges = Vec::new();
        pass(progress, maps, &by, &SETTINGS, |at, r| {
            ranges.push((at, r.start, r.end));
            r.end - r.start
        });
        ranges
    }

    #[test]
    fn a_budget_is_cut_at_huge_pages_and_goes_on_where_it_stopped() {
        let mut maps = [plain(100, 2000), plain(5000, 6000)];
        let mut progress = Progress::default();
        // 100 + 600 = 700, up to 1024.
        assert_eq!(
            run(&mut progress, &mut maps, scanner(0, 600)),
            [(0, 100, 1024)]
        );
        assert_eq!(progress.offset(), 1024);
        // 1024 + 600 = 1624, up to 2048, capped at 2000: exactly 976 pages, over.
        assert_eq!(
            run(&mut progress, &mut maps, scanner(10, 600)),
            [(0, 1024, 2000)]
        );
        // 5000 + 600 = 5600, up to 5632; then its end, and nothing is left.
        let by = scanner(20, 600);
        assert_eq!(run(&mut progress, &mut maps, by), [(1, 5000, 5632)]);
        assert_eq!(run(&mut progress, &mut maps, by), [(1, 5632, 6000)]);
        // 368 < 600 pages were charged, so this pass came to the end and wrapped.
        assert_eq!((progress.seq(), progress.offset()), (1, 0));
    }

    #[test]
    fn memory_where_nothing_changes_is_crossed_at_eight_times_the_budget() {
        let mut maps = [plain(0, 1 << 20)];
        let mut progress = Progress::default();
        let mut chunks = 0;
        let report = pass(
            &mut progress,
            &mut maps,
            &scanner(0, 512),
            &SETTINGS,
            |_, _| {
                chunks += 1;
                0
            },
        );
        // 8 chunks of 512 pages, none of them charged as armed.
        assert_eq!((chunks, report.virtual_pages, report.updates), (8, 4096, 0));
        assert_eq!(progress.offset(), 4096);
    }

    #[test]
    fn what_is_never_scanned() {
        let cases = [
            ("plain", Traits::PLAIN, true),
            (
                "policy without balancing",
                Traits {
                    on_fault: false,
                    ..Traits::PLAIN
                },
                false,
            ),
            (
                "pinned",
                Traits {
                    migratable: false,
                    ..Traits::PLAIN
                },
                false,
            ),
            (
                "hugetlb",
                Traits {
                    hugetlb: true,
                    ..Traits::PLAIN
                },
                false,
            ),
            (
                "mixed",
                Traits {
                    mixed: true,
                    ..Traits::PLAIN
                },
                false,
            ),
            (
                "file",
                Traits {
                    file: true,
                    ..Traits::PLAIN
                },
                true,
            ),
            (
                "file, read only",
                Traits {
                    file: true,
                    writable: false,
                    ..Traits::PLAIN
                },
                false,
            ),
            (
                "anonymous, read only",
                Traits {
                    writable: false,
                    ..Traits::PLAIN
                },
                true,
            ),
            (
                "no access",
                Traits {
                    readable: false,
                    writable: false,
                    ..Traits::PLAIN
                },
                false,
            ),
        ];
        for (name, traits, scanned) in cases {
            assert_eq!(traits.scanned(), scanned, "{name}");
        }
    }

    #[test]
    fn a_mapping_is_left_alone_for_the_scan_delay_but_not_in_the_first_sequence() {
        let mut maps = [plain(0, 512)];
        let mut progress = Progress::default();
        assert_eq!(run(&mut progress, &mut maps, scanner(0, 600)).len(), 1);
        assert_eq!(progress.seq(), 1);
        let mut maps = [maps[0], plain(1024, 1536)];
        // The first was seen at 0: not before 1000 ms; the second at 500 ms: not
        // before 1500 ms. Nothing to scan is the end of a sequence as well.
        assert_eq!(run(&mut progress, &mut maps, scanner(500, 600)), []);
        assert_eq!(progress.seq(), 2);
        // Sequence 2: the first, open in 0 and 1 only, is taken for want of others.
        let ranges = run(&mut progress, &mut maps, scanner(1499, 600));
        assert_eq!(ranges, [(0, 0, 512)]);
        // And the second, which is still open, from there.
        let ranges = run(&mut progress, &mut maps, scanner(1500, 600));
        assert_eq!(ranges, [(1, 1024, 1536)]);
    }

    /// Two mappings of 512 pages, long known, done in sequence 2 of now 3.
    fn old_pair() -> (Progress, [Mapping; 2]) {
        let history = Some(History {
            first_seq: 0,
            done_seq: 2,
            not_before_ms: 0,
            shift_at_ms: 1 << 40,
            threads: [0; 2],
        });
        let maps = [plain(0, 512), plain(1024, 1536)].map(|m| Mapping { history, ..m });
        (Progress { seq: 3, offset: 0 }, maps)
    }

    #[test]
    fn a_thread_scans_what_it_touched_or_one_of_the_others() {
        let (mut progress, mut maps) = old_pair();
        maps[1].touched(1);
        let ranges = run(&mut progress, &mut maps, scanner(2000, 512));
        assert_eq!(ranges, [(1, 1024, 1536)]);
    }

    #[test]
    fn history_shifts_and_is_forgotten() {
        let mut history = plain(0, 512);
        let mut progress = Progress { seq: 1, offset: 0 };
        run(
            &mut progress,
            std::slice::from_mut(&mut history),
            scanner(0, 1),
        );
        history.touched(1);
        let touched = |m: &Mapping| {
            let h = m.history.unwrap();
            [h.threads[0] != 0, h.threads[1] != 0]
        };
        assert_eq!(touched(&history), [false, true]);
        // Seen at 0: shifts after 1000 + 4000 ms, then after 9000.
        let mut at = |now| {
            let progress = Progress { seq: 5, offset: 0 };
            skip(&mut history, &progress, &scanner(now, 1), &SETTINGS, false);
            touched(&history)
        };
        assert_eq!(at(5000), [false, true]);
        assert_eq!(at(5001), [true, false]);
        assert_eq!(at(9000), [true, false]);
        assert_eq!(at(9001), [false, false]);
    }

    #[test]
    fn the_four_ways_to_count_as_touched() {
        let state = |seq, first_seq, done_seq, threads| {
            let mut mapping = plain(1024, 1536);
            mapping.history = Some(History {
                first_seq,
                done_seq,
                not_before_ms: 0,
                shift_at_ms: 1 << 40,
                threads: [0, threads],
            });
            (mapping, Progress { seq, offset: 0 })
        };
        let asked = |(mut mapping, progress): (Mapping, Progress)| {
            skip(&mut mapping, &progress, &scanner(0, 1), &SETTINGS, false)
        };
        // Open in its first two sequences, closed in the third.
        assert_eq!(asked(state(6, 5, 5, 0)), None);
        assert_eq!(asked(state(7, 5, 6, 0)), Some(Skip::Untouched));
        // The thread's own bit, not another's.
        assert_ne!(thread_bit(1), thread_bit(2));
        assert_eq!(asked(state(7, 5, 6, thread_bit(1))), None);
        assert_eq!(asked(state(7, 5, 6, thread_bit(2))), Some(Skip::Untouched));
        // A scan stopped inside.
        let (mapping, progress) = state(7, 5, 6, 0);
        let inside = Progress {
            offset: 1025,
            ..progress
        };
        assert_eq!(asked((mapping, inside)), None);
        // Left out for more sequences than two threads: 7 > 4 + 2.
        assert_eq!(asked(state(7, 1, 5, 0)), Some(Skip::Untouched));
        assert_eq!(asked(state(7, 1, 4, 0)), None);
        // Done in this sequence goes before all.
        assert_eq!(asked(state(7, 7, 7, !0)), Some(Skip::Done));
    }

    #[test]
    fn exactly_one_untouched_mapping_is_forced() {
        let (mut progress, mut maps) = old_pair();
        let mut report = Scanned::default();
        let mut ranges = Vec::new();
        for _ in 0..2 {
            report = pass(
                &mut progress,
                &mut maps,
                &scanner(2000, 4000),
                &SETTINGS,
                |at, r| {
                    ranges.push(at);
                    r.end - r.start
                },
            );
        }
        assert!(report.forced);
        // One a pass, the second where the first stopped.
        assert_eq!(ranges, [0, 1]);
        assert_eq!((progress.seq(), progress.offset()), (3, 1536));
    }

    proptest! {
        #[test]
        fn every_page_is_armed_once_in_a_sequence_of_a_young_space(
            sizes in proptest::collection::vec((1u64..3000, 0u64..600), 1..6), budget in 1u64..2000,
        ) {
            let mut next = 0;
            let mut maps: Vec<Mapping> = sizes.iter().map(|&(size, gap)| {
                next += gap;
                let map = plain(next, next + size);
                next += size;
                map
            }).collect();
            let pages: u64 = sizes.iter().map(|s| s.0).sum();
            let mut progress = Progress::default();
            let mut armed = vec![0u8; next as usize];
            let mut passes = 0;
            while progress.seq() == 0 {
                let mut updates = 0;
                let report = pass(&mut progress, &mut maps, &scanner(0, budget), &SETTINGS, |_, r| {
                    r.clone().for_each(|p| armed[p as usize] += 1);
                    updates += r.end - r.start;
                    r.end - r.start
                });
                // At most the budget and what rounding to a huge page adds.
                prop_assert!(updates < budget + 512 && report.updates == updates);
                passes += 1;
                prop_assert!(passes <= pages / budget + maps.len() as u64 + 2);
            }
            prop_assert_eq!(armed.iter().map(|&a| u64::from(a)).sum::<u64>(), pages);
            prop_assert!(armed.iter().all(|&a| a <= 1));
        }
    }
}
