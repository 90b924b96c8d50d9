use super::*;
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::world::World as _;
use memtide_core::hotness::{Config, Layout};
use memtide_core::tiering::space::VirtualPage;

const BENEFIT: Benefit = Benefit {
    slow_ns: 250,
    fast_ns: 100,
    move_ns: 5_000,
    accesses_per_record: 100,
    horizon_ms: 60_000,
};
const OWNER: OwnerId = OwnerId(0);
/// Looks in a row that make a page idle.
const IDLE: u8 = 4;

/// A process of 1,000 pages, as the loop knows it.
struct Case {
    world: FakeWorld,
    ledger: Ledger,
    records: Records,
    latencies: Latencies,
    account: Account,
}

impl Case {
    /// The first `fast` of its pages are on fast memory; a canary tells `latencies`.
    fn new(fast: u64, latencies: (u32, u32)) -> Case {
        let mut world = FakeWorld::two_tiers(2000, 2000);
        let mut process = FakeProcess::new(7, 0, 1000, SLOW);
        for (page, node) in &mut process.pages {
            if page.0 < fast {
                *node = FAST;
            }
        }
        world.processes.push(process);
        world.latencies = [(FAST, latencies.0), (SLOW, latencies.1)].into();
        let mut ledger = Ledger::new(&world, 0);
        ledger.processes.refresh(&mut world, Millis(0)).unwrap();
        ledger.survey(&mut world, OWNER).unwrap();
        let mut case = Case {
            world,
            ledger,
            records: Records::new(Config::new(Layout::Precise), 1 << 16),
            latencies: Latencies::new(true),
            account: Account::new(BENEFIT, 5_000, 1, 1),
        };
        case.audit(0);
        case
    }

    /// `ms` later, of which the process ran half; who began to rest.
    fn audit(&mut self, ms: u64) -> usize {
        self.world.now_ns += ms * 1_000_000;
        self.world.process(7).ticks += ms / 20;
        let now = self.world.now();
        let Case {
            world,
            ledger,
            records,
            latencies,
            account,
        } = self;
        ledger.processes.refresh(world, now).unwrap();
        latencies.read(world, &ledger.topology, 0, now).unwrap();
        let used = Used::default();
        let rested = account.audit((ledger, records), latencies, (IDLE, true), used, now);
        rested.len()
    }

    fn page(&self, page: u64) -> PageNumber {
        self.ledger.space.find(OWNER, VirtualPage(page)).unwrap()
    }

    /// Pages that took two accesses in the window went up.
    fn raise(&mut self, pages: std::ops::Range<u64>) {
        let hotness = Hotness {
            frequency: 2,
            age_ms: 0,
            node: None,
            ready: true,
        };
        for page in pages {
            let folio = Folio {
                first: self.page(page),
                pages: 1,
            };
            self.account.moved(OWNER, 1, true);
            self.account.raised(OWNER, folio, SLOW, &hotness);
        }
    }

    /// Where the pages from `from` on are now.
    fn lie(&mut self, from: u64, pages: u64, node: NodeId) {
        let first = self.page(from);
        self.ledger.placement.set_run(first, pages, node, false);
    }

    fn flow(&self) -> Flow {
        self.account.flow_of(OWNER)
    }
}

/// Two accesses in 5 s stand for 200, 40 a second, of which each saves 150 ns: 6 us a
/// second for a page, and 300 us for 50. They moved for 5 us each, 250 us.
#[test]
fn what_goes_up_wins_from_then_on() {
    let mut case = Case::new(50, (100, 250));
    case.raise(0..50);
    case.audit(1000);
    let Flow {
        won_ns, spent_ns, ..
    } = case.flow();
    assert_eq!((won_ns, spent_ns), (300_000, 250_000));
    case.audit(2000);
    assert_eq!(case.flow().won_ns, 900_000);
    assert_eq!(case.flow().spent_ns, 250_000);
    assert_eq!(case.account.flow.won_ns, 900_000);
}

/// A huge page is unmapped once, for 4 us, and copied for 512 times 1 us. 512 pages win 6 us
/// a second each.
#[test]
fn a_huge_page_moves_and_wins_as_a_whole() {
    let mut case = Case::new(600, (100, 250));
    case.ledger
        .placement
        .set_run(PageNumber(case.page(0).0), 512, FAST, true);
    let folio = case.ledger.folio(case.page(0));
    assert_eq!(folio.pages, 512);
    let hotness = Hotness {
        frequency: 2,
        age_ms: 0,
        node: None,
        ready: true,
    };
    case.account.moved(OWNER, 512, true);
    case.account.raised(OWNER, folio, SLOW, &hotness);
    case.audit(1000);
    assert_eq!(case.flow().spent_ns, 516_000);
    assert_eq!(case.flow().won_ns, 512 * 6_000);
}

/// A sixteenth of what the first of sixteen seconds brought, and 15/16 of that with the
/// second one.
#[test]
fn rates_are_averages() {
    let mut flow = Flow::default();
    flow.book(1_600, 16_000, 1_000);
    assert_eq!((flow.won_per_s, flow.spent_per_s), (100, 1_000));
    flow.book(1_600, 0, 1_000);
    // 100 * 15 / 16 = 93.75, and 100.
    assert_eq!((flow.won_per_s, flow.spent_per_s), (193, 937));
    // 3,200 in half a second are 6,400 a second, of which a 32nd counts.
    let mut short = Flow::default();
    short.book(3_200, 0, 500);
    assert_eq!(short.won_per_s, 200);
    // What is longer than the average reaches is all of it.
    flow.book(64_000, 0, 32_000);
    assert_eq!(flow.won_per_s, 2_000);
}

/// Of 1,000 that went up, 64 are looked at. All leave; then all are back and 500 leave.
#[test]
fn what_leaves_wins_no_more() {
    let mut case = Case::new(1000, (100, 250));
    case.raise(0..1000);
    case.audit(1000);
    assert_eq!(case.flow().won_ns, 6_000_000);
    case.lie(0, 500, SLOW);
    case.audit(1000);
    // By the sample it is about half: four times the deviation of 64 draws are a quarter.
    let half = case.flow().won_ns - 6_000_000;
    assert!((1_500_000..4_500_000).contains(&half), "{half}");
    case.lie(500, 500, SLOW);
    let before = case.flow().won_ns;
    case.audit(1000);
    assert_eq!(case.flow().won_ns, before);
    // Those that left are not there again because others go up.
    case.lie(0, 10, FAST);
    case.raise(0..10);
    case.audit(1000);
    assert_eq!(case.flow().won_ns, before + 60_000);
}

#[test]
fn idle_pages_win_nothing_until_they_are_used() {
    let mut case = Case::new(50, (100, 250));
    case.raise(0..50);
    let first = case.page(0);
    for _ in 0..IDLE {
        case.records.idle.untouched(first, 25);
    }
    case.audit(1000);
    assert_eq!(case.flow().won_ns, 150_000);
    case.records.idle.touched(first, 25);
    case.audit(1000);
    assert_eq!(case.flow().won_ns, 450_000);
}

/// It ran for half of the time. Had all of that waited for memory, it would have been
/// 150 % longer: 750 ms a second. 1,000 pages of 7 accesses in 10 ms would win 10.5 s.
#[test]
fn nobody_wins_more_than_the_time_it_runs() {
    let mut case = Case::new(1000, (100, 250));
    case.account.window_ms = 10;
    case.raise(0..1000);
    case.audit(1000);
    assert_eq!(case.flow().won_ns, 750_000_000);
    // It does not run: its time is as it was.
    case.world.process(7).ticks -= 50;
    case.audit(1000);
    assert_eq!(case.flow().won_ns, 750_000_000);
}

/// The canary's latencies replace those of firmware after five readings.
#[test]
fn loaded_latencies_count() {
    let mut case = Case::new(50, (100, 150));
    for _ in 0..3 {
        case.audit(1000);
    }
    case.raise(0..50);
    // 40 accesses a second, 50 pages, 50 ns.
    case.audit(1000);
    assert_eq!(case.flow().won_ns, 100_000);
}

/// 1,000 pages a second go up and at once down again: 10 ms a second for nothing. Such a process
/// rests after its first try, and ever longer.
#[test]
fn who_spends_more_than_it_wins_rests_ever_longer() {
    let mut case = Case::new(0, (100, 250));
    let (mut rests, mut began) = (Vec::new(), None);
    for second in 1..=900_u64 {
        if case.account.may_promote(OWNER) {
            case.raise(0..1000);
            (0..1000).for_each(|_| case.account.moved(OWNER, 1, true));
        }
        let rested = case.audit(1000);
        let resting = case.account.rests(OWNER);
        match (began, &resting) {
            (None, Some(rests)) => {
                assert_eq!((rested, case.account.resting()), (1, 1));
                assert!(rests.spent_per_s > rests.won_per_s);
                began = Some(second);
            }
            (Some(at), None) => {
                rests.push(second - at);
                began = None;
            }
            _ => assert_eq!(rested, 0),
        }
    }
    assert_eq!(rests, [10, 20, 40, 80, 160, 320]);
}

/// 100 pages go up once and stay: 0.5 ms, and 0.6 ms a second.
#[test]
fn who_wins_goes_on() {
    let mut case = Case::new(100, (100, 250));
    case.raise(0..100);
    for _ in 0..100 {
        assert_eq!(case.audit(1000), 0);
        assert!(case.account.may_promote(OWNER));
    }
}

/// 100 pages win 0.6 ms a second, and 90 moves a second take 0.45: more than half of it.
#[test]
fn in_between_every_second_second_is_left_out() {
    let mut case = Case::new(100, (100, 250));
    case.raise(0..100);
    let mut turns = 0;
    for second in 0..200 {
        (0..90).for_each(|_| case.account.moved(OWNER, 1, true));
        assert_eq!(case.audit(1000), 0);
        turns += u64::from(second >= 100 && case.account.may_promote(OWNER));
    }
    assert_eq!(turns, 50);
}

/// On a machine whose nodes are alike nobody can tell what promotion wins.
#[test]
fn nobody_rests_where_latencies_are_not_believed() {
    let mut case = Case::new(0, (100, 110));
    for _ in 0..100 {
        case.raise(0..1000);
        assert_eq!(case.audit(1000), 0);
        assert!(case.account.may_promote(OWNER));
    }
}
