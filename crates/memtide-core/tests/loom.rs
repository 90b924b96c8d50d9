//! Every interleaving of recorders, takers and passes on a small store.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p memtide-core --release --test loom`
//!
//! Promised: no report is lost, no ready page is lost, and a readiness is
//! consumed exactly once. Each holds for every order of atomic operations that
//! the memory model allows, so not only for the order of this machine.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use memtide_core::hotness::{Config, Disposition, Layout, Recorded, Store, Taken};
use memtide_core::units::{Millis, PageNumber};

const PAGE: PageNumber = PageNumber(1);
/// In the page's group.
const NEIGHBOUR: PageNumber = PageNumber(2);
/// In the page's section, in another group.
const COUSIN: PageNumber = PageNumber(6);
const NOW: Millis = Millis(1000);

/// A store of one section, which exists: its first touch is not what is tested.
fn store(layout: Layout) -> Arc<Store> {
    let store = Store::new(Config::new(layout), 8);
    store.record(PageNumber(7), None, NOW);
    Arc::new(store)
}

fn model(check: impl Fn(Layout) + Sync + Send + Copy + 'static) {
    for layout in [Layout::Compact, Layout::Precise] {
        loom::model(move || check(layout));
    }
}

fn record(store: &Store, page: PageNumber) -> Recorded {
    store.record(page, None, NOW)
}

/// The hot pages that a pass shows, all taken.
fn pass(store: &Store) -> Vec<PageNumber> {
    let mut shown = Vec::new();
    store.drain(0..1, NOW, |page, taken| {
        assert!(matches!(taken, Taken::Hot(_)));
        shown.push(page);
        Disposition::Take
    });
    shown
}

#[test]
fn two_reports_at_once_both_count() {
    model(|layout| {
        let store = store(layout);
        let other = store.clone();
        let thread = thread::spawn(move || record(&other, PAGE));
        let became = [record(&store, PAGE), thread.join().unwrap()];
        assert_eq!(store.peek(PAGE, NOW).unwrap().frequency, 2);
        let ready = became.iter().filter(|&&r| r == Recorded::BecameReady);
        assert_eq!(ready.count(), 1);
        assert_eq!(pass(&store), [PAGE]);
    });
}

#[test]
fn a_page_that_becomes_ready_during_a_pass_is_shown_by_it_or_the_next() {
    model(|layout| {
        let store = store(layout);
        record(&store, PAGE);
        // The neighbour is ready already, so that the pass has marks to clear.
        record(&store, NEIGHBOUR);
        record(&store, NEIGHBOUR);
        let other = store.clone();
        let thread = thread::spawn(move || record(&other, PAGE));
        let mut shown = pass(&store);
        thread.join().unwrap();
        shown.extend(pass(&store));
        shown.sort();
        assert_eq!(shown, [PAGE, NEIGHBOUR]);
    });
}

#[test]
fn the_same_with_the_mark_in_another_group() {
    model(|layout| {
        let store = store(layout);
        record(&store, COUSIN);
        record(&store, PAGE);
        record(&store, PAGE);
        let other = store.clone();
        let thread = thread::spawn(move || record(&other, COUSIN));
        let mut shown = pass(&store);
        thread.join().unwrap();
        shown.extend(pass(&store));
        assert_eq!(shown, [PAGE, COUSIN]);
    });
}

#[test]
fn of_two_takers_one_gets_the_page() {
    model(|layout| {
        let store = store(layout);
        record(&store, PAGE);
        record(&store, PAGE);
        let other = store.clone();
        let thread = thread::spawn(move || other.take(PAGE, NOW).is_some());
        let mine = store.take(PAGE, NOW).is_some();
        assert!(mine != thread.join().unwrap());
        assert!(store.peek(PAGE, NOW).is_none());
    });
}

#[test]
fn two_passes_at_once_show_each_page_once() {
    model(|layout| {
        let store = store(layout);
        record(&store, PAGE);
        record(&store, PAGE);
        let other = store.clone();
        let thread = thread::spawn(move || pass(&other));
        let mut shown = pass(&store);
        shown.extend(thread.join().unwrap());
        shown.extend(pass(&store));
        assert_eq!(shown, [PAGE]);
    });
}

#[test]
fn a_kept_page_loses_neither_its_readiness_nor_a_report() {
    model(|layout| {
        let store = store(layout);
        record(&store, PAGE);
        record(&store, PAGE);
        let other = store.clone();
        let thread = thread::spawn(move || record(&other, PAGE));
        store.drain(0..1, NOW, |_, _| Disposition::Keep);
        thread.join().unwrap();
        let hot = store.peek(PAGE, NOW).unwrap();
        assert_eq!((hot.frequency, hot.ready), (3, true));
        assert_eq!(pass(&store), [PAGE]);
    });
}

#[test]
fn a_report_while_the_page_is_taken_is_counted_before_or_after() {
    model(|layout| {
        let store = store(layout);
        record(&store, PAGE);
        record(&store, PAGE);
        let other = store.clone();
        let thread = thread::spawn(move || record(&other, PAGE));
        let Some(Taken::Hot(taken)) = store.take(PAGE, NOW) else {
            panic!("the page is ready and hot");
        };
        thread.join().unwrap();
        let left = store.peek(PAGE, NOW).map_or(0, |h| h.frequency);
        assert_eq!(taken.frequency + left, 3);
    });
}
