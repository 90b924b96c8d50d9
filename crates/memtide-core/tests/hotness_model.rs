//! The hotness store against a map of plain records.
//!
//! The model keeps full times and says in one line each what the rules are:
//! ages are differences modulo the layout's range, whatever the range is. Clocks
//! jump by up to two ranges, also backwards, so the fields wrap all the time.
#![cfg(not(loom))]

use memtide_core::hotness::{Config, Disposition, Hotness, Layout, SECTION_PAGES, Store, Taken};
use memtide_core::units::{Millis, NodeId, PageNumber};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SECTION: u64 = SECTION_PAGES as u64;
/// Neighbours, other groups, other sections, the last page and one beyond it.
const PAGES: [u64; 9] = [
    0,
    1,
    63,
    64,
    SECTION - 1,
    SECTION,
    2 * SECTION,
    3 * SECTION - 1,
    3 * SECTION,
];
const SPACE: u64 = 3 * SECTION;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Plain {
    frequency: u8,
    at: u64,
    node: Option<NodeId>,
    ready: bool,
}

struct Model {
    config: Config,
    pages: BTreeMap<u64, Plain>,
}

impl Model {
    fn age(&self, record: &Plain, now: u64) -> u32 {
        let unit = self.config.layout().time_unit_ms() as i64;
        let range = self.config.layout().max_window_ms() as i64 / unit + 1;
        ((now as i64 / unit - record.at as i64 / unit).rem_euclid(range) * unit) as u32
    }

    fn in_window(&self, record: &Plain, now: u64) -> bool {
        self.age(record, now) <= self.config.window_ms()
    }

    fn record(&mut self, page: u64, node: Option<NodeId>, now: u64) {
        if page >= SPACE {
            return;
        }
        let (layout, threshold) = (self.config.layout(), self.config.threshold());
        let old = self.pages.get(&page).copied();
        let frequency = match old {
            Some(r) if self.in_window(&r, now) => (r.frequency + 1).min(layout.max_threshold()),
            _ => 1,
        };
        let kept = layout == Layout::Compact && old.is_some_and(|r| r.ready);
        let record = Plain {
            frequency,
            at: now,
            node: node.filter(|_| layout == Layout::Precise),
            ready: frequency >= threshold || kept,
        };
        self.pages.insert(page, record);
    }

    fn hotness(&self, page: u64, now: u64) -> Option<Hotness> {
        self.pages.get(&page).map(|r| Hotness {
            frequency: r.frequency,
            age_ms: self.age(r, now),
            node: r.node,
            ready: r.ready,
        })
    }

    fn take(&mut self, page: u64, now: u64) -> Option<Taken> {
        let hotness = self.hotness(page, now).filter(|h| h.ready)?;
        let within = hotness.age_ms <= self.config.window_ms();
        if within && hotness.frequency >= self.config.threshold() {
            self.pages.remove(&page);
            return Some(Taken::Hot(hotness));
        }
        if within {
            self.pages.get_mut(&page).unwrap().ready = false;
        } else {
            self.pages.remove(&page);
        }
        Some(Taken::Cold(hotness))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Record(usize, Option<u16>),
    Run(usize, u64),
    Take(usize),
    TakeAndPutBack(usize),
    /// A pass that keeps every n-th page.
    Pass(usize),
    Forget(usize),
    Expire,
    Unplug(usize),
    Wait(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = 0..PAGES.len();
    let step = prop_oneof![
        8 => (page.clone(), prop::option::of(0u16..1024)).prop_map(|(p, n)| Step::Record(p, n)),
        2 => (page.clone(), 0u64..200).prop_map(|(p, n)| Step::Run(p, n)),
        1 => page.clone().prop_map(Step::Take),
        1 => page.clone().prop_map(Step::TakeAndPutBack),
        2 => (1usize..4).prop_map(Step::Pass),
        1 => page.prop_map(Step::Forget),
        1 => Just(Step::Expire),
        1 => (0usize..4).prop_map(Step::Unplug),
        4 => (-10i64..2000).prop_map(Step::Wait),
        2 => (-40_000i64..40_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..60)
}

fn configs() -> impl Strategy<Value = Config> {
    let layout = prop_oneof![Just(Layout::Compact), Just(Layout::Precise)];
    (layout, 0u8..7, 0u32..16_000).prop_map(|(layout, threshold, window)| {
        Config::new(layout)
            .with_threshold(1 + threshold % layout.max_threshold())
            .and_then(|c| c.with_window_ms(1000 + window % (layout.max_window_ms() - 999)))
            .unwrap()
    })
}

/// One pass on both: the same pages, in order, with the same hotness.
fn pass(store: &Store, model: &mut Model, keep: usize, now: u64) {
    let mut shown = Vec::new();
    let report = store.drain(0..store.sections(), Millis(now), |page, taken| {
        shown.push((page.0, taken));
        if shown.len() % keep == 0 {
            Disposition::Keep
        } else {
            Disposition::Take
        }
    });
    let pages: Vec<u64> = model.pages.keys().copied().collect();
    let mut expected = Vec::new();
    let mut kept = 0;
    for page in pages {
        let before = model.pages[&page];
        if let Some(taken) = model.take(page, now) {
            expected.push((page, taken));
            if expected.len() % keep == 0 && matches!(taken, Taken::Hot(_)) {
                model.pages.insert(page, before);
                kept += 1;
            }
        }
    }
    assert_eq!(shown, expected);
    assert_eq!((report.visited, report.kept), (expected.len() as u64, kept));
}

fn put_back(store: &Store, model: &mut Model, page: u64, now: u64) {
    let before = model.pages.get(&page).copied();
    let taken = store.take(PageNumber(page), Millis(now));
    assert_eq!(taken, model.take(page, now));
    if let (Some(Taken::Hot(hotness)), Some(before)) = (taken, before) {
        assert!(store.put_back(PageNumber(page), &hotness, Millis(now)));
        model.pages.insert(page, before);
    }
}

fn check(store: &Store, model: &Model, now: u64) {
    for page in PAGES {
        let seen = store.peek(PageNumber(page), Millis(now));
        assert_eq!(seen, model.hotness(page, now), "page {page} at {now}");
    }
    let histogram = store.histogram(Millis(now));
    assert_eq!(histogram.pages(), model.pages.len() as u64);
    let mut best: Vec<(PageNumber, Hotness)> = model
        .pages
        .iter()
        .filter(|(_, r)| model.in_window(r, now))
        .map(|(&p, _)| (PageNumber(p), model.hotness(p, now).unwrap()))
        .collect();
    best.sort_by_key(|(p, h)| (std::cmp::Reverse(h.frequency), h.age_ms, *p));
    best.truncate(5);
    assert_eq!(store.top(5, Millis(now)), best);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn the_store_does_what_the_rules_say(config in configs(), steps in steps()) {
        let mut store = Store::new(config, SPACE);
        let mut model = Model { config, pages: BTreeMap::new() };
        let mut now: u64 = 1 << 20;
        for step in steps {
            match step {
                Step::Record(p, node) => {
                    store.record(PageNumber(PAGES[p]), node.map(NodeId), Millis(now));
                    model.record(PAGES[p], node.map(NodeId), now);
                }
                Step::Run(p, count) => {
                    store.record_run(PageNumber(PAGES[p]), count, None, Millis(now));
                    (PAGES[p]..PAGES[p] + count).for_each(|page| model.record(page, None, now));
                }
                Step::Take(p) => prop_assert_eq!(
                    store.take(PageNumber(PAGES[p]), Millis(now)),
                    model.take(PAGES[p], now)
                ),
                Step::TakeAndPutBack(p) => put_back(&store, &mut model, PAGES[p], now),
                Step::Pass(keep) => pass(&store, &mut model, keep, now),
                Step::Forget(p) => {
                    store.forget(PageNumber(PAGES[p]));
                    model.pages.remove(&PAGES[p]);
                }
                Step::Expire => {
                    store.expire(0..store.sections(), Millis(now));
                    let old: Vec<u64> = model
                        .pages
                        .iter()
                        .filter(|(_, r)| !r.ready && !model.in_window(r, now))
                        .map(|(&p, _)| p)
                        .collect();
                    model.pages.retain(|p, _| !old.contains(p));
                }
                Step::Unplug(section) => {
                    store.remove_section(section);
                    model.pages.retain(|p, _| p / SECTION != section as u64);
                }
                Step::Wait(ms) => now = now.saturating_add_signed(ms),
            }
        }
        check(&store, &model, now);
        // Whatever happened: a pass that takes everything leaves nothing ready.
        pass(&store, &mut model, usize::MAX, now);
        prop_assert_eq!(store.drain(0..3, Millis(now), |_, _| Disposition::Take).visited, 0);
    }
}
