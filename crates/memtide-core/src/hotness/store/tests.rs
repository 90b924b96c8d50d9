use super::*;

const LAYOUTS: [Layout; 2] = [Layout::Compact, Layout::Precise];

fn store(layout: Layout, pages: u64) -> Store {
    Store::new(Config::new(layout), pages)
}

/// Two accesses: ready at the default threshold.
fn heat(store: &Store, page: u64, now: u64) {
    store.record(PageNumber(page), None, Millis(now));
    store.record(PageNumber(page), None, Millis(now));
}

fn drained(store: &Store, now: u64) -> Vec<u64> {
    let mut pages = Vec::new();
    store.drain(0..store.sections(), Millis(now), |page, taken| {
        if matches!(taken, Taken::Hot(_)) {
            pages.push(page.0);
        }
        Disposition::Take
    });
    pages
}

#[test]
fn a_page_becomes_ready_once_and_is_taken_once() {
    for layout in LAYOUTS {
        let store = store(layout, 100);
        let page = PageNumber(7);
        assert_eq!(store.record(page, None, Millis(1)), Recorded::Counted);
        assert!(store.take(page, Millis(1)).is_none());
        assert_eq!(store.record(page, None, Millis(2)), Recorded::BecameReady);
        assert_eq!(store.record(page, None, Millis(3)), Recorded::StillReady);
        assert!(matches!(store.take(page, Millis(3)), Some(Taken::Hot(h)) if h.frequency == 3));
        assert!(store.take(page, Millis(3)).is_none());
        assert!(store.peek(page, Millis(3)).is_none());
        assert_eq!(drained(&store, 3), []);
        assert_eq!(
            store.record(PageNumber(100), None, Millis(3)),
            Recorded::Outside
        );
    }
}

#[test]
fn a_page_that_became_cold_is_taken_as_cold() {
    for layout in LAYOUTS {
        let store = store(layout, 100);
        heat(&store, 7, 0);
        // Compact tells 3072 from its window of 3000, precise 5001 from 5000.
        let late = Millis(u64::from(store.config().window_ms()) + 128);
        assert!(matches!(
            store.take(PageNumber(7), late),
            Some(Taken::Cold(_))
        ));
        assert!(store.peek(PageNumber(7), late).is_none());
        heat(&store, 8, 0);
        let report = store.drain(0..1, late, |_, taken| {
            assert!(matches!(taken, Taken::Cold(_)));
            Disposition::Keep
        });
        assert_eq!((report.visited, report.cold, report.kept), (1, 1, 0));
        assert_eq!(store.drain(0..1, late, |_, _| Disposition::Keep).visited, 0);
    }
}

#[test]
fn a_pass_shows_ready_pages_in_order_across_sections() {
    let section = SECTION_PAGES as u64;
    for layout in LAYOUTS {
        // 130 sections: more than two words of section marks.
        let store = store(layout, 130 * section);
        let pages = [
            0,
            63,
            64,
            section - 1,
            section,
            65 * section + 5,
            130 * section - 1,
        ];
        for &page in pages.iter().rev() {
            heat(&store, page, 10);
        }
        let mut seen = Vec::new();
        store.drain(1..66, Millis(10), |page, _| {
            seen.push(page.0);
            Disposition::Take
        });
        assert_eq!(seen, pages[4..6]);
        assert_eq!(drained(&store, 10), [&pages[..4], &pages[6..]].concat());
    }
}

#[test]
fn kept_pages_stay_ready_and_a_stop_loses_none() {
    let section = SECTION_PAGES as u64;
    for layout in LAYOUTS {
        let store = store(layout, 4 * section);
        let pages = [3, 5, 64, 5000, section + 1, 3 * section];
        for page in pages {
            heat(&store, page, 10);
        }
        for stop_at in 0..pages.len() as u64 {
            let mut shown = 0;
            let report = store.drain(0..4, Millis(10), |_, _| {
                shown += 1;
                if shown > stop_at {
                    Disposition::Stop
                } else {
                    Disposition::Keep
                }
            });
            assert!(report.stopped);
            assert_eq!((report.kept, report.visited), (stop_at + 1, stop_at + 1));
        }
        assert_eq!(drained(&store, 10), pages);
        assert_eq!(drained(&store, 10), []);
    }
}

#[test]
fn a_failed_move_is_put_back_with_its_count() {
    for layout in LAYOUTS {
        let store = store(layout, 10);
        heat(&store, 1, 1000);
        let Some(Taken::Hot(hot)) = store.take(PageNumber(1), Millis(1200)) else {
            panic!("page 1 is hot");
        };
        store.record(PageNumber(1), None, Millis(1300));
        assert!(store.put_back(PageNumber(1), &hot, Millis(1200)));
        let back = store.peek(PageNumber(1), Millis(1300)).unwrap();
        assert_eq!((back.frequency, back.age_ms, back.ready), (3, 0, true));
        assert_eq!(drained(&store, 1300), [1]);
        assert!(!store.put_back(PageNumber(10), &hot, Millis(1200)));
    }
}

#[test]
fn a_run_does_what_its_pages_would() {
    let section = SECTION_PAGES as u64;
    for layout in LAYOUTS {
        let runs = store(layout, 2 * section);
        let singles = store(layout, 2 * section);
        for (first, count) in [(30, 70), (section - 3, 10), (2 * section - 2, 5), (31, 1)] {
            let report = runs.record_run(PageNumber(first), count, Some(NodeId(1)), Millis(50));
            let mut expected = RunRecorded::default();
            for page in first..first + count {
                match singles.record(PageNumber(page), Some(NodeId(1)), Millis(50)) {
                    Recorded::Outside => expected.outside += 1,
                    Recorded::BecameReady => {
                        expected.recorded += 1;
                        expected.became_ready += 1;
                    }
                    _ => expected.recorded += 1,
                }
            }
            assert_eq!(report, expected);
        }
        runs.record_run(PageNumber(40), 3, None, Millis(60));
        let batch = [40, 41, 42].map(|p| (PageNumber(p), None));
        assert_eq!(singles.record_batch(&batch, Millis(60)).became_ready, 3);
        assert_eq!(runs.top(200, Millis(60)), singles.top(200, Millis(60)));
        assert_eq!(drained(&runs, 60), drained(&singles, 60));
    }
}

#[test]
fn the_hottest_come_first_and_ties_go_by_youth_and_number() {
    let store = store(Layout::Precise, 100);
    for (page, times) in [
        (5, vec![10, 20, 30]),
        (6, vec![10, 40]),
        (3, vec![10, 30]),
        (4, vec![10, 30]),
    ] {
        for at in times {
            store.record(PageNumber(page), None, Millis(at));
        }
    }
    store.record(PageNumber(9), None, Millis(90));
    let order = |n| -> Vec<u64> { store.top(n, Millis(100)).iter().map(|t| t.0.0).collect() };
    assert_eq!(order(10), [5, 6, 3, 4, 9]);
    assert_eq!(order(3), [5, 6, 3]);
    assert_eq!(order(0), []);
    // At 5035 page 3 and 4 (last at 30) are beyond 5000 ms; page 6 (40) is not.
    assert_eq!(
        store
            .top(10, Millis(5035))
            .iter()
            .map(|t| t.0.0)
            .collect::<Vec<_>>(),
        [6, 9]
    );
}

#[test]
fn the_histogram_counts_each_reported_page_once() {
    let store = store(Layout::Precise, 100);
    heat(&store, 1, 1000);
    heat(&store, 2, 1600);
    store.record(PageNumber(3), None, Millis(2000));
    let histogram = store.histogram(Millis(2000));
    assert_eq!(histogram.by_frequency(), [0, 1, 2, 0, 0, 0, 0, 0]);
    // Ages 1000, 400 and 0 ms in bins of 512 ms: bins 1, 0, 0.
    assert_eq!(histogram.by_age()[..3], [2, 1, 0]);
    assert_eq!(histogram.pages(), 3);
}

#[test]
fn old_counts_are_emptied_before_the_time_wraps() {
    let store = store(Layout::Precise, 100);
    store.record(PageNumber(1), None, Millis(0));
    store.record(PageNumber(2), None, Millis(6000));
    heat(&store, 3, 0);
    assert_eq!(store.expire(0..1, Millis(6000)), 1);
    assert!(store.peek(PageNumber(1), Millis(6000)).is_none());
    assert_eq!(
        store.peek(PageNumber(2), Millis(6000)).unwrap().frequency,
        1
    );
    // A range later page 1 starts at 1; unexpired it would have been counted on.
    store.record(PageNumber(1), None, Millis(16_384));
    assert_eq!(
        store.peek(PageNumber(1), Millis(16_384)).unwrap().frequency,
        1
    );
    // The ready page is left to the pass.
    assert!(store.peek(PageNumber(3), Millis(6000)).unwrap().ready);
}

#[test]
fn an_unplugged_section_is_gone_and_comes_back_empty() {
    let section = SECTION_PAGES as u64;
    for layout in LAYOUTS {
        let mut store = store(layout, 3 * section);
        for page in [1, section + 1, 2 * section + 1] {
            heat(&store, page, 10);
        }
        let before = store.memory().records;
        assert!(store.remove_section(1));
        assert!(!store.remove_section(1));
        assert!(!store.remove_section(3));
        assert_eq!(store.memory().records, before / 3 * 2);
        assert!(store.peek(PageNumber(section + 1), Millis(10)).is_none());
        assert_eq!(drained(&store, 10), [1, 2 * section + 1]);
        heat(&store, section + 1, 20);
        assert_eq!(drained(&store, 20), [section + 1]);
    }
}

#[test]
fn a_forgotten_page_starts_anew() {
    let store = store(Layout::Precise, 10);
    heat(&store, 1, 10);
    store.forget(PageNumber(1));
    store.forget(PageNumber(99));
    assert_eq!(drained(&store, 10), []);
    assert_eq!(
        store.record(PageNumber(1), None, Millis(11)),
        Recorded::Counted
    );
}

#[test]
fn a_record_costs_one_or_four_bytes_and_at_most_a_hundredth_more() {
    let gib_16 = 16u64 << 30 >> 12;
    for layout in LAYOUTS {
        let store = store(layout, gib_16);
        assert_eq!(store.memory().records, 0);
        store.record(PageNumber(0), None, Millis(0));
        assert_eq!(
            store.memory().records,
            SECTION_PAGES * layout.record_bytes()
        );
        for first in (0..gib_16).step_by(SECTION_PAGES) {
            store.record(PageNumber(first), None, Millis(0));
        }
        let used = store.memory();
        assert_eq!(used.records as u64, gib_16 * layout.record_bytes() as u64);
        assert!(used.index * 100 <= used.records, "{layout:?} {used:?}");
    }
}

#[test]
fn walks_find_what_was_recorded_after_everything_was_empty() {
    let mut store = store(Layout::Precise, 1 << 17);
    let pages = [0, 511, 512, 40_000, 99_999].map(PageNumber);
    for round in 0..3 {
        let now = Millis(round * 20_000);
        for page in pages {
            store.record(page, None, now);
        }
        let found = |store: &Store, now| store.histogram(now).pages();
        assert_eq!(found(&store, now), 5, "round {round}");
        // What is old enough goes; what is young stays, and is found.
        let later = Millis(now.0 + 4_000);
        store.record(PageNumber(600), None, later);
        store.tidy(later);
        assert_eq!(store.top(10, later).len(), 6);
        let old = Millis(now.0 + 10_000);
        assert!(store.tidy(old) > 0);
        assert_eq!(found(&store, old), 0);
    }
}

#[test]
fn an_untouched_tebibyte_costs_less_than_half_a_megabyte() {
    // 8192 sections of which only the directory exists.
    let store = store(Layout::Precise, 1 << 28);
    let used = store.memory();
    assert!(used.records == 0 && used.index < 512 << 10, "{used:?}");
}

#[test]
fn a_window_may_change_and_what_was_counted_stays() {
    let mut store = store(Layout::Precise, 100);
    let touch = |store: &Store, page, now| store.record(PageNumber(page), None, Millis(now));
    touch(&store, 1, 0);
    assert!(store.set_window_ms(16_384).is_err());
    assert_eq!(store.config().window_ms(), 5_000);
    store.set_window_ms(12_000).unwrap();
    assert_eq!(touch(&store, 1, 11_000), Recorded::BecameReady);
    // Ready still, if it is within the window of now.
    store.set_window_ms(5_000).unwrap();
    assert_eq!(drained(&store, 17_000), Vec::<u64>::new());
    touch(&store, 2, 20_000);
    assert_eq!(touch(&store, 2, 26_000), Recorded::Counted);
}
