use super::*;
use crate::hotness::{Config, Layout};
use crate::pages::Immovable;

const FAST: NodeId = NodeId(0);
const NOW: Millis = Millis(100_000);

/// Pages 0 to 99, all on the fast node but for those listed.
#[derive(Default)]
struct Machine {
    elsewhere: Vec<u64>,
    folio_pages: u32,
}

impl Pages for Machine {
    fn node_of(&self, page: PageNumber) -> Option<NodeId> {
        Some(if self.elsewhere.contains(&page.0) {
            NodeId(1)
        } else {
            FAST
        })
    }
    fn folio(&self, page: PageNumber) -> Folio {
        let pages = self.folio_pages.max(1);
        Folio {
            first: PageNumber(page.0 / u64::from(pages) * u64::from(pages)),
            pages,
        }
    }
}

struct Setup {
    idle: IdleStore,
    hotness: Store,
    recent: RecentMoves,
    machine: Machine,
    cursor: Cursor,
}

fn setup() -> Setup {
    Setup {
        idle: IdleStore::new(100),
        hotness: Store::new(Config::new(Layout::Compact), 100),
        recent: RecentMoves::new(64),
        machine: Machine::default(),
        cursor: Cursor::default(),
    }
}

fn base(page: u64) -> Folio {
    let first = PageNumber(page);
    Folio { first, pages: 1 }
}

impl Setup {
    /// Pages with their idle ages.
    fn age(&self, ages: &[(u64, u8)]) {
        for &(page, age) in ages {
            for _ in 0..age {
                self.idle.untouched(PageNumber(page), 1);
            }
        }
    }

    fn choose(&mut self, pages: u64, scan: u64) -> Vec<(u64, u8)> {
        let limits = Limits {
            pages,
            scan,
            min_age: 2,
            settle_ms: 10_000,
        };
        let evidence = Evidence {
            idle: &self.idle,
            hotness: &self.hotness,
            recent: &self.recent,
        };
        let victims = evidence.choose(FAST, &limits, &mut self.cursor, &self.machine, NOW);
        assert_eq!(victims.scanned, scan.min(100));
        let sum: u64 = victims
            .folios
            .iter()
            .map(|v| u64::from(v.folio.pages))
            .sum();
        assert_eq!(victims.pages, sum);
        victims
            .folios
            .iter()
            .map(|v| (v.folio.first.0, v.age))
            .collect()
    }
}

#[test]
fn the_coldest_go_first_and_ties_by_number() {
    let mut s = setup();
    s.age(&[(10, 3), (20, 9), (30, 5), (40, 9), (50, 2)]);
    assert_eq!(s.choose(3, 100), [(20, 9), (40, 9), (30, 5)]);
    assert_eq!(s.choose(1, 100), [(20, 9)]);
    assert_eq!(s.choose(9, 100).len(), 5);
    assert_eq!(s.choose(0, 100), []);
}

#[test]
fn a_page_that_is_young_warm_new_or_elsewhere_stays() {
    let mut s = setup();
    s.age(&[(1, 1), (2, 9), (3, 9), (4, 9), (5, 9), (6, 9), (7, 9)]);
    // 2 was accessed 100 ms ago; 3 more than the window of 3000 ms ago.
    s.hotness.record(PageNumber(2), None, Millis(99_900));
    s.hotness.record(PageNumber(3), None, Millis(96_500));
    // 4 was promoted 10 s ago, 5 longer ago, 6 was demoted.
    s.recent.note(base(4), Moved::Up, Millis(90_000));
    s.recent.note(base(5), Moved::Up, Millis(89_999));
    s.recent.note(base(6), Moved::Down, Millis(99_999));
    s.machine.elsewhere = vec![7];
    assert_eq!(s.choose(100, 100), [(3, 9), (5, 9), (6, 9)]);
}

#[test]
fn what_nobody_observed_is_never_chosen() {
    let mut s = setup();
    assert_eq!(s.choose(100, 100), []);
    s.age(&[(1, 9)]);
    s.idle.unknown(PageNumber(1), 1);
    assert_eq!(s.choose(100, 100), []);
}

#[test]
fn a_folio_is_as_idle_as_its_youngest_page() {
    let mut s = setup();
    s.machine.folio_pages = 4;
    s.age(&[(0, 9), (1, 9), (2, 3), (3, 9)]);
    s.age(&[(4, 9), (5, 9), (6, 9)]);
    s.age(&[(8, 2), (9, 2), (10, 2), (11, 2)]);
    // 7 was never seen idle, so its folio stays. 0's folio is 3 old, 8's is 2:
    // three pages wanted are one folio.
    assert_eq!(s.choose(3, 100), [(0, 3)]);
    assert_eq!(s.choose(5, 100), [(0, 3), (8, 2)]);
    s.hotness.record(PageNumber(3), None, NOW);
    assert_eq!(s.choose(5, 100), [(8, 2)]);
}

#[test]
fn the_work_is_bounded_and_goes_on_where_it_stopped() {
    let mut s = setup();
    s.age(&[(5, 2), (35, 9), (65, 4), (95, 3)]);
    let chosen: Vec<_> = (0..5).map(|_| s.choose(1, 30)).collect();
    // 0-29, 30-59, 60-89, 90-99 and 0-19, 20-49.
    let expected: [&[(u64, u8)]; 5] = [&[(5, 2)], &[(35, 9)], &[(65, 4)], &[(95, 3)], &[(35, 9)]];
    assert_eq!(chosen, expected);
}

#[test]
fn a_folio_met_at_both_ends_of_the_round_is_chosen_once() {
    let mut s = setup();
    s.machine.folio_pages = 4;
    s.age(&[(8, 3), (9, 3), (10, 3), (11, 3)]);
    s.cursor = Cursor(10);
    assert_eq!(s.choose(100, 100), [(8, 3)]);
}

#[test]
fn pages_that_may_not_leave_stay() {
    struct Bound(Machine);
    impl Pages for Bound {
        fn node_of(&self, page: PageNumber) -> Option<NodeId> {
            self.0.node_of(page)
        }
        fn may_leave(&self, page: PageNumber) -> Result<(), Immovable> {
            if page.0 == 1 {
                Err(Immovable::Mempolicy)
            } else {
                Ok(())
            }
        }
    }
    let s = setup();
    s.age(&[(1, 9), (2, 8)]);
    let evidence = Evidence {
        idle: &s.idle,
        hotness: &s.hotness,
        recent: &s.recent,
    };
    let limits = Limits {
        pages: 9,
        scan: 100,
        min_age: 1,
        settle_ms: 0,
    };
    let victims = evidence.choose(
        FAST,
        &limits,
        &mut Cursor::default(),
        &Bound(s.machine),
        NOW,
    );
    assert_eq!(
        victims
            .folios
            .iter()
            .map(|v| v.folio.first.0)
            .collect::<Vec<_>>(),
        [2]
    );
}

#[test]
fn what_has_to_leave_leaves_by_coldness() {
    let mut s = setup();
    // 1 is idle for longer than 2; 3 and 4 were never seen idle, and 4 came lately;
    // 5 is idle by its age, and was recorded just now.
    s.age(&[(1, 9), (2, 3), (5, 9)]);
    s.recent.note(base(4), Moved::Up, Millis(99_000));
    s.hotness.record(PageNumber(5), None, NOW);
    let evidence = Evidence {
        idle: &s.idle,
        hotness: &s.hotness,
        recent: &s.recent,
    };
    let mut coldest = Coldest::new(4);
    for first in [4, 3, 5, 2, 1].map(PageNumber) {
        let folio = Folio { first, pages: 1 };
        coldest.offer(folio, evidence.coldness(folio, 10_000, NOW));
    }
    assert_eq!(coldest.pages(), 4);
    let order: Vec<u64> = coldest.into_folios().map(|(f, _)| f.first.0).collect();
    assert_eq!(order, [1, 2, 3, 4]);
}
