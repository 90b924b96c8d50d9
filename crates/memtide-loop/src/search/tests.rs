//! The search as a whole: what it asks for, and what it makes of answers.

use super::*;

const ME: OwnerId = OwnerId(1);

fn memory(first: u64, pages: u64) -> Memory {
    Memory {
        run: Run {
            first: VirtualPage(first),
            pages,
        },
        object: None,
    }
}

fn span(owner: OwnerId, first: u64, pages: u64) -> Span {
    Span {
        owner,
        first: VirtualPage(first),
        pages,
    }
}

fn spans(order: &Order) -> &[Span] {
    match order {
        Order::Begin(watch) => &watch.spans,
        order => panic!("{order:?}"),
    }
}

fn findings(search: &mut Search) -> Vec<Finding> {
    let mut all = Vec::new();
    search.findings(|finding| all.push(finding));
    all
}

/// Costs are known: nothing is held back.
fn search() -> Search {
    let mut search = Search::new(Config::default(), Millis(0));
    search.costs.expect(100_000.0);
    search.costs.used(100_000.0, 0.0);
    search
}

#[test]
fn two_passes_on_the_same_pages_make_a_finding() {
    let mut search = search();
    search.set_memory(ME, &[memory(100, 300)]);
    let plan = search.plan(Millis(0));
    assert_eq!(spans(&plan.look), [span(ME, 100, 300)]);
    for page in [110, 111, 200] {
        search.touched(View::Look, span(ME, page, 1));
    }
    assert_eq!(search.plan(Millis(60)).look, Order::Keep);
    // The source is to do nothing more than this pass before it is told anew.
    assert_eq!(search.due_ms(Millis(60)), Some(10));
    assert_eq!(search.plan(Millis(70)).look, Order::Finish);
    assert_eq!(search.plan(Millis(71)).look, Order::Keep);
    search.pass_done(View::Look, Millis(100));
    assert_eq!(findings(&mut search), []);
    // 88 pages lie between 111 and 200, more than the ten that a span costs,
    // but another view costs 200 us and the whole pass 300: 200 + 20 + 3 < 300.
    let plan = search.plan(Millis(100));
    assert_eq!(spans(&plan.look), [span(ME, 110, 2), span(ME, 200, 1)]);
    for page in [111, 200, 300] {
        search.touched(View::Look, span(ME, page, 1));
    }
    search.pass_done(View::Look, Millis(200));
    let hot = findings(&mut search);
    let hot: Vec<_> = hot
        .iter()
        .map(|finding| (finding.span, finding.exact))
        .collect();
    assert_eq!(hot, [(span(ME, 111, 1), true), (span(ME, 200, 1), true)]);
}

/// The source began another pass before anybody could say that it need not.
#[test]
fn a_second_pass_that_has_begun_goes_on() {
    let mut search = search();
    search.set_memory(ME, &[memory(100, 300)]);
    search.plan(Millis(0));
    search.touched(View::Look, span(ME, 110, 1));
    search.pass_done(View::Look, Millis(100));
    assert_eq!(search.plan(Millis(100)).look, Order::Keep);
    search.touched(View::Look, span(ME, 110, 1));
    assert_eq!(search.plan(Millis(180)).look, Order::Finish);
    search.pass_done(View::Look, Millis(200));
    assert_eq!(findings(&mut search)[0].span, span(ME, 110, 1));
}

/// Of a first pass that sees most of its pages in use nobody says that it is the last, once that is known.
#[test]
fn where_first_passes_see_much_the_second_follows_at_once() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 512)]);
    let mut now = 0;
    for finishes in [true, false] {
        assert_eq!(spans(&search.plan(Millis(now)).look), [span(ME, 0, 512)]);
        let order = search.plan(Millis(now + 80)).look;
        assert_eq!(order == Order::Finish, finishes);
        for pass in 1..=2 {
            search.touched(View::Look, span(ME, 0, 512));
            search.pass_done(View::Look, Millis(now + 100 * pass));
            let order = search.plan(Millis(now + 100 * pass)).look;
            if pass == 1 && finishes {
                assert_eq!(spans(&order), [span(ME, 0, 512)]);
            }
        }
        assert_eq!(findings(&mut search)[0].span, span(ME, 0, 512));
        // It goes on once the memory is told anew.
        search.set_memory(ME, &[]);
        search.set_memory(ME, &[memory(0, 512)]);
        now += 60_000;
    }
}

/// 256 blocks are glanced at in each pass, eight times. If nobody says in time which is the last, one more
/// is under way, and is seen.
#[test]
fn the_last_pass_of_a_glance_is_said_to_be_that_or_one_more_is_seen() {
    for in_time in [true, false] {
        let mut search = search();
        search.set_memory(ME, &[memory(0, 256 * 512)]);
        search.looks_wait(true);
        assert!(matches!(search.plan(Millis(0)).glance, Order::Begin(_)));
        let mut finished = 0;
        let mut passes = 0;
        for now in (100..5000).step_by(100) {
            if in_time && search.plan(Millis(now - 10)).glance == Order::Finish {
                finished += 1;
            }
            search.pass_done(View::Glance, Millis(now));
            passes += 1;
            if matches!(search.plan(Millis(now)).glance, Order::Begin(_)) {
                break;
            }
        }
        let expected = if in_time { (1, 8) } else { (0, 9) };
        assert_eq!((finished, passes), expected);
    }
}

#[test]
fn a_last_pass_that_does_not_end_is_given_up() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 256 * 512)]);
    search.looks_wait(true);
    search.plan(Millis(0));
    for now in (100..800).step_by(100) {
        search.pass_done(View::Glance, Millis(now));
        assert_eq!(search.plan(Millis(now)).glance, Order::Keep);
    }
    assert_eq!(search.plan(Millis(790)).glance, Order::Finish);
    assert_eq!(search.plan(Millis(1_500)).glance, Order::Keep);
    assert!(matches!(search.plan(Millis(2_500)).glance, Order::Begin(_)));
}

#[test]
fn where_telling_costs_more_the_second_pass_stays() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 100)]);
    search.plan(Millis(0));
    search.touched(View::Look, span(ME, 3, 1));
    search.pass_done(View::Look, Millis(100));
    // 200 + 10 + 1 us against 100.
    assert_eq!(search.plan(Millis(100)).look, Order::Keep);
    search.touched(View::Look, span(ME, 3, 1));
    search.pass_done(View::Look, Millis(200));
    assert_eq!(findings(&mut search)[0].span, span(ME, 3, 1));
}

#[test]
fn a_block_that_is_hit_every_time_is_found_whole() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 4096)]);
    let mut now = 0;
    let mut found = Vec::new();
    for _ in 0..10 {
        now += 100;
        let plan = search.plan(Millis(now));
        if let Order::Begin(watch) = plan.glance {
            assert_eq!(watch.grain, 512);
        }
        search.touched(View::Glance, span(ME, 1024, 512));
        search.pass_done(View::Glance, Millis(now + 50));
        found.extend(findings(&mut search));
    }
    let whole = Finding {
        span: span(ME, 1024, 512),
        exact: false,
    };
    // Once, not in each pass.
    assert_eq!(found, [whole]);
}

#[test]
fn a_block_of_which_a_part_is_hot_is_looked_at_first() {
    let mut search = search();
    // Much more than a look takes, so that the cover is elsewhere.
    search.set_memory(ME, &[memory(0, 1 << 20)]);
    let mut now = 0;
    let mut looked = Vec::new();
    for pass in 0..40u64 {
        now += 100;
        if let Order::Begin(watch) = search.plan(Millis(now)).look {
            looked.extend(watch.spans);
        }
        if pass % 2 == 0 {
            search.touched(View::Glance, span(ME, 900 * 512, 512));
        }
        search.pass_done(View::Glance, Millis(now + 50));
        search.pass_done(View::Look, Millis(now + 50));
    }
    let first = looked.iter().position(|span| span.first.0 == 900 * 512);
    assert!(first.is_some(), "{looked:?}");
}

/// Pieces of 2 MiB stayed behind half promoted: what was left of them drew no
/// attention, for samples of a block that is home in part say nothing.
#[test]
fn the_rest_of_a_block_that_was_seen_once_has_the_next_turn() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 1 << 20)]);
    search.should_see(&[span(ME, 900 * 512, 512)]);
    let mut now = 0;
    let mut looks = 0;
    while looks < 2 {
        now += 100;
        assert!(now < 20_000, "{looks} looks at the block");
        if let Order::Begin(watch) = search.plan(Millis(now)).look
            && watch.spans.iter().any(|span| span.first.0 == 900 * 512)
        {
            looks += 1;
        }
        // All are in use, and in each second pass a quarter of them hides.
        let first = 900 * 512 + if now % 200 == 0 { 128 } else { 0 };
        search.touched(View::Look, span(ME, first, 900 * 512 + 512 - first));
        search.pass_done(View::Look, Millis(now + 50));
        for found in findings(&mut search) {
            search.left(found.span);
        }
    }
}

/// Samples of many blocks that miss all at once say that nobody ran.
#[test]
fn a_pass_in_which_no_program_ran_is_no_evidence() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 512 * 64)]);
    let hot = [4, 20, 33, 50];
    let mut now = 0;
    let mut found = Vec::new();
    for pass in 0..30 {
        now += 100;
        search.plan(Millis(now));
        if pass % 4 != 3 {
            for block in hot {
                search.touched(View::Glance, span(ME, block * 512, 512));
            }
        }
        search.pass_done(View::Glance, Millis(now + 50));
        found.extend(findings(&mut search).iter().map(|finding| finding.span));
    }
    let wanted = hot.map(|block| span(ME, block * 512, 512));
    found.retain(|span| span.pages == 512);
    found.sort_unstable_by_key(|span| span.first);
    assert_eq!(found, wanted);
}

#[test]
fn what_two_processes_map_is_observed_once() {
    let mut search = search();
    let shared = |first| Memory {
        object: Some((7, 0)),
        ..memory(first, 300)
    };
    let other = OwnerId(2);
    search.set_memory(ME, &[shared(1000)]);
    search.set_memory(other, &[shared(5000)]);
    assert_eq!(search.pages(), 300);
    let mut seen = Vec::new();
    for now in [0, 40_000, 140_000, 300_000] {
        let plan = search.plan(Millis(now));
        let at = spans(&plan.look)[0];
        assert_eq!((spans(&plan.look).len(), at.pages), (1, 300));
        seen.push(at.owner);
        search.pass_done(View::Look, Millis(now + 100));
        search.pass_done(View::Glance, Millis(now + 100));
        search.plan(Millis(now + 100));
    }
    assert!(seen.contains(&ME) && seen.contains(&other), "{seen:?}");
    search.remove(ME);
    assert_eq!(search.pages(), 300);
    search.remove(other);
    assert_eq!(search.pages(), 0);
}

#[test]
fn no_memory_is_no_work() {
    let mut search = search();
    let nothing = Plan {
        look: Order::Keep,
        glance: Order::Keep,
    };
    assert_eq!(search.plan(Millis(0)), nothing);
    search.set_memory(ME, &[memory(0, 512)]);
    assert_ne!(search.plan(Millis(10)), nothing);
    search.remove(ME);
    search.pass_done(View::Look, Millis(20));
    search.pass_done(View::Glance, Millis(20));
    let plan = search.plan(Millis(30));
    assert_eq!(plan.look, Order::Stop);
    assert_eq!(findings(&mut search), []);
}

#[test]
fn passes_become_longer_where_pages_are_touched_now_and_then() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 512)]);
    let mut now = 0;
    let mut longest = 0;
    for turn in 0..40 {
        now += 31_000;
        if let Order::Begin(watch) = search.plan(Millis(now)).look {
            longest = longest.max(watch.interval_ms);
        }
        // Half of the pages, others each time: a quarter in both passes.
        for page in (0..512).filter(|page| page >> (turn % 8) & 1 == 1) {
            search.touched(View::Look, span(ME, page, 1));
        }
        search.pass_done(View::Look, Millis(now + 100));
    }
    assert_eq!(longest, 1_000);
}

/// Pages are touched by chance, a quarter of them in both passes.
#[test]
fn passes_stay_short_where_fast_memory_is_full() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 512)]);
    search.room_is(0, true);
    let mut now = 0;
    for turn in 0..60 {
        now += 3_000;
        if let Order::Begin(watch) = search.plan(Millis(now)).look {
            assert_eq!(watch.interval_ms, 100);
        }
        for page in (0..512).filter(|page| page >> (turn % 8) & 1 == 1) {
            search.touched(View::Look, span(ME, page, 1));
        }
        search.pass_done(View::Look, Millis(now + 100));
    }
}

/// Pages are in use in one pass and not in the next, and so no page is ever seen twice.
#[test]
fn passes_become_longer_where_looks_find_nothing() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 512)]);
    search.room_is(0, true);
    let mut intervals = Vec::new();
    for turn in 0..8 {
        let now = turn * 130_000;
        if let Order::Begin(watch) = search.plan(Millis(now)).look {
            intervals.push(watch.interval_ms);
        }
        (16..256).for_each(|page| search.touched(View::Look, span(ME, page, 1)));
        search.pass_done(View::Look, Millis(now + 100));
        search.plan(Millis(now + 100));
        search.pass_done(View::Look, Millis(now + 200));
    }
    assert_eq!(intervals, [100, 100, 100, 100, 200, 400, 800, 1000]);
}

/// What is asked for while a look at the block is under way has another one.
#[test]
fn what_is_asked_for_during_a_look_is_seen_by_the_next() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 512)]);
    search.plan(Millis(0));
    search.should_see(&[span(ME, 100, 1)]);
    search.pass_done(View::Look, Millis(100));
    assert_eq!(search.seen(), (1, 0));
    let plan = search.plan(Millis(1_000));
    assert_eq!(spans(&plan.look), [span(ME, 0, 512)]);
    search.pass_done(View::Look, Millis(1_100));
    assert_eq!(search.seen(), (1, 1));
}

/// More blocks are in use in part than can wait for a look: those that were asked for stay.
#[test]
fn what_is_asked_for_is_never_dropped() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 20_000 * 512)]);
    search.should_see(&[span(ME, 7 * 512, 1)]);
    for n in 100..20_000 {
        search.be_eager(n, EAGER_SHARE);
    }
    search.tidy_eager();
    let eager = |n| search.blocks.get(n).has(Flag::Eager);
    assert!(eager(7) && !eager(100));
    let waiting = (0..20_000).filter(|n| eager(*n)).count();
    assert_eq!(waiting, 8192);
}

/// Of what waits for a look because a part of it was in use, all may be hot by now.
#[test]
fn a_block_that_waits_for_a_look_is_found_hot_before_that() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 1 << 20)]);
    search.looks_wait(true);
    let (mut now, mut found) = (0, Vec::new());
    for pass in 0..80u64 {
        now += 100;
        search.plan(Millis(now));
        // Every second sample first, and then all.
        if pass % 2 == 0 || pass > 40 {
            search.touched(View::Glance, span(ME, 900 * 512, 512));
        }
        search.pass_done(View::Glance, Millis(now + 50));
        if pass == 40 {
            assert!(search.blocks.get(900).has(Flag::Eager));
        }
        found.extend(findings(&mut search));
    }
    let spans: Vec<Span> = found.iter().map(|finding| finding.span).collect();
    assert_eq!(spans, [span(ME, 900 * 512, 512)]);
}

/// Samples say nothing of a block of which a part is home.
#[test]
fn beside_a_hot_block_those_of_which_pages_have_left_are_looked_at() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 1 << 20)]);
    search.left(span(ME, 901 * 512 + 100, 200));
    let (mut now, mut looked) = (0, Vec::new());
    for _ in 0..20 {
        now += 100;
        let plan = search.plan(Millis(now));
        if let Order::Begin(watch) = plan.look {
            looked.extend(watch.spans);
        }
        search.touched(View::Glance, span(ME, 900 * 512, 512));
        search.pass_done(View::Glance, Millis(now + 50));
        search.pass_done(View::Look, Millis(now + 50));
    }
    let seen = looked.iter().any(|span| span.first.0 == 901 * 512);
    assert!(seen, "{looked:?}");
}

/// At scale 1/64 eight simulated pages are 2 MiB.
#[test]
fn pieces_are_as_large_as_blocks_are() {
    let config = Config {
        block_pages: 8,
        ..Config::default()
    };
    let mut search = Search::new(config, Millis(0));
    search.costs.expect(100_000.0);
    search.costs.used(100_000.0, 0.0);
    search.set_memory(ME, &[memory(0, 64)]);
    let (mut now, mut found) = (0, Vec::new());
    for _ in 0..10 {
        now += 100;
        if let Order::Begin(watch) = search.plan(Millis(now)).glance {
            assert_eq!(watch.grain, 8);
        }
        search.touched(View::Glance, span(ME, 16, 8));
        search.pass_done(View::Glance, Millis(now + 50));
        found.extend(findings(&mut search));
    }
    let whole = span(ME, 16, 8);
    assert_eq!(found.iter().map(|of| of.span).collect::<Vec<_>>(), [whole]);
}

#[test]
fn the_window_follows_what_passes_take() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 512)]);
    assert_eq!(search.window_ms(), 5_000);
    search.plan(Millis(0));
    search.pass_done(View::Look, Millis(4_000));
    // Three passes of 4 s.
    assert_eq!(search.window_ms(), 12_000);
}

#[test]
fn a_promise_is_a_sentence() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 1 << 20)]);
    // 2^20 pages * 1.25 us at 70 % of 50 ms a second: 37.4 s. 2048 blocks fit
    // into each pass of 15 ms a second only in two turns: 2 * 2048 us / 15 ms
    // and ten passes of 0.1 s, 1.3 s.
    assert_eq!(
        search.promise().to_string(),
        "at 5 % of a CPU every page of 4 GiB is seen within 38 s; hot ranges larger than 4 MiB \
         within 2 s"
    );
}

/// Pages that were found are about to move, which takes its time: a third pass that nobody needs would
/// be paid for, and overflow a ring that nobody reads.
#[test]
fn a_look_that_found_something_is_stopped_before_that_moves() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 300)]);
    for (begin, end) in [(0, 100), (100, 200)] {
        search.plan(Millis(begin));
        assert!(
            !search.look_is_spent(),
            "before the pass that ends at {end}"
        );
        search.touched(View::Look, span(ME, 0, 300));
        search.pass_done(View::Look, Millis(end));
    }
    assert!(search.look_is_spent());
    // Whoever asked stops it.
    assert!(!search.look_is_spent());
    assert_eq!(findings(&mut search).len(), 1);
}

#[test]
fn a_look_that_found_nothing_ends_in_its_own_time() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 300)]);
    search.plan(Millis(0));
    search.pass_done(View::Look, Millis(100));
    assert!(!search.look_is_spent());
    assert_eq!(search.plan(Millis(100)).look, Order::Stop);
}

/// As on a machine at scale 1/256: a page of a look stands for 256, a piece of a glance for one. Before,
/// looks made everything seem 256 times as dear, and no glance ever began.
#[test]
fn dear_pages_leave_glances_cheap() {
    let mut search = Search::new(
        Config {
            look_pages: 1024,
            costs: UnitCosts {
                page: 256.0,
                ..UnitCosts::default()
            },
            ..Config::default()
        },
        Millis(0),
    );
    search.set_memory(ME, &[memory(0, 4096)]);
    let mut glances = 0;
    for now in (0..20_000).step_by(100) {
        let plan = search.plan(Millis(now));
        glances += u32::from(matches!(plan.glance, Order::Begin(_)));
        let mut us = 0;
        if search.look.began_before(Millis(now + 1), 0) {
            us += search.look.size().0 * 256;
            search.pass_done(View::Look, Millis(now + 99));
        }
        search.pass_done(View::Glance, Millis(now + 99));
        search.spent(us + 10, 0, Millis(now + 99));
    }
    assert!(glances > 0);
}

/// How many of the next ten looks see block 0 again, of which one saw most pages once and some twice; all of
/// these `leave` or none.
fn looks_at_what_was_ragged(leave: bool) -> usize {
    let mut search = search();
    // Much more than a look takes: the cover is elsewhere.
    search.set_memory(ME, &[memory(0, 1 << 20)]);
    let mut now = 0;
    for pages in [0..320, 192..512] {
        search.plan(Millis(now));
        now += 100;
        let first = span(ME, pages.start, pages.end - pages.start);
        search.touched(View::Look, first);
        search.pass_done(View::Look, Millis(now));
    }
    assert_eq!(findings(&mut search)[0].span, span(ME, 192, 128));
    if leave {
        search.left(span(ME, 192, 128));
    }
    let mut again = 0;
    for _ in 0..20 {
        now += 500;
        if let Order::Begin(watch) = search.plan(Millis(now)).look {
            again += usize::from(watch.spans[0].first.0 < 512);
        }
        search.pass_done(View::Look, Millis(now + 100));
    }
    again
}

#[test]
fn what_is_ragged_is_looked_at_again_once_some_have_left() {
    assert_eq!(looks_at_what_was_ragged(true), 1);
    // There is no room for more of it: another look would say the same.
    assert_eq!(looks_at_what_was_ragged(false), 0);
}

/// How long the passes of glances are asked to be, in order, where fast memory has room for `room` of 512,000
/// pages. In each pass of the first `common` a third of all blocks is in use, others each time, and in each later
/// one one of 100.
fn glances(room: u64, common: usize, passes: usize) -> Vec<u64> {
    let mut search = search();
    search.looks_wait(true);
    search.set_memory(ME, &[memory(0, 512 * 1000)]);
    search.room_is(room, false);
    let (mut now, mut asked, mut spans) = (0, Vec::new(), Vec::new());
    for pass in 0..passes {
        if let Order::Begin(watch) = search.plan(Millis(now)).glance {
            asked.push(watch.interval_ms);
            spans = watch.spans;
        }
        now += match search.glancing.under_way_since(Millis(now)) {
            Some(_) => *asked.last().expect("it was told"),
            // Until there is credit.
            None => 1_000,
        };
        let part = if pass < common { 3 } else { 100 };
        let blocks = spans.iter().flat_map(|span| {
            let end = span.first.0 + span.pages;
            (span.first.0..end).step_by(512)
        });
        for first in blocks.filter(|first| (first / 512 + pass as u64).is_multiple_of(part)) {
            search.touched(View::Glance, span(ME, first, 512));
        }
        search.pass_done(View::Glance, Millis(now));
        search.findings(|_| {});
    }
    asked
}

/// Where a third of the memory is in use in a pass and a quarter fits, passes become so short that less is; where
/// little is in use or all of it fits, they are as long as they were.
#[test]
fn passes_of_glances_become_shorter_where_more_is_in_use_than_fits() {
    let asked = glances(512 * 250, 400, 800);
    let shortest = asked.iter().min();
    assert_eq!(shortest, Some(&50), "{asked:?}");
    assert!(asked.last().is_some_and(|ms| *ms >= 100), "{asked:?}");
    let asked = glances(512 * 1000, 400, 400);
    assert!(asked.iter().all(|ms| *ms >= 100), "{asked:?}");
    let asked = glances(0, 0, 400);
    assert!(asked.iter().all(|ms| *ms >= 100), "{asked:?}");
}

/// When a block that is in use in each pass was found, in ms, if pages elsewhere leave all the time or never,
/// and fast memory has room for so many pages.
fn found(leave: bool, room: u64) -> Vec<u64> {
    let mut search = search();
    search.room_is(room, true);
    search.looks_wait(true);
    search.set_memory(ME, &[memory(0, 4096)]);
    let (mut now, mut found) = (0, Vec::new());
    while now < 30_000 {
        if leave {
            search.left(span(ME, now / 100, 1));
        }
        search.plan(Millis(now));
        now += 100;
        search.touched(View::Glance, span(ME, 3072, 512));
        search.pass_done(View::Glance, Millis(now));
        found.extend(findings(&mut search).iter().map(|_| now));
    }
    found
}

/// The window is 5 s: what was found before that does not count as hot any more.
#[test]
fn what_waits_for_its_turn_is_found_again() {
    for (leave, room) in [(true, 0), (false, 512)] {
        let often = found(leave, room);
        let late = |pair: &[u64]| pair[1] - pair[0] > 7_000;
        assert!(often.len() > 3 && !often.windows(2).any(late), "{often:?}");
    }
    let rarely = found(false, 511);
    let soon = |pair: &[u64]| pair[1] - pair[0] < 20_000;
    assert!(
        rarely.len() == 2 && !rarely.windows(2).any(soon),
        "{rarely:?}"
    );
}

/// 5 % of a CPU are 50,000 us in a second, of which a half is 25,000, in ten passes. A piece costs 1 us, and
/// 10 us to be told, which a glance at all blocks pays for once in eight passes: 2,500 / 2.25.
#[test]
fn what_is_glanced_at_beside_the_search_costs_half_at_most() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 512 * 1000)]);
    search.plan(Millis(0));
    assert_eq!(search.affords_beside(100), 1111);
    let before = search.credit_us();
    search.glances_beside(100);
    assert_eq!(before - search.credit_us(), 1_000);
    search.pass_done(View::Glance, Millis(100));
    assert_eq!(before - search.credit_us(), 1_000 + 1_000 + 100);
    // However dear it is, some of it is.
    search.costs.expect(1_000_000.0);
    search.costs.used(1e9, 0.0);
    assert_eq!(search.affords_beside(100), 8);
}

/// A pass that is under way has used something that it pays for when it is complete: passes are not dearer for it.
#[test]
fn what_a_pass_has_used_that_goes_on_waits_for_its_end() {
    let mut search = search();
    search.set_memory(ME, &[memory(0, 100_000)]);
    let plan = search.plan(Millis(0));
    let pages: u64 = spans(&plan.look).iter().map(|span| span.pages).sum();
    assert!(pages > 20_000);
    search.glancing.abandon();
    let before = search.credit_us();
    search.spent(10_000, 0, Millis(20));
    // Telling cost nothing, of which two views have paid 210 us each.
    assert_eq!(search.credit_us(), before + 420 - 10_000);
    assert_eq!(search.costs.factor(), 1.0);
    search.pass_done(View::Look, Millis(100));
    search.spent(pages - 10_000, 0, Millis(100));
    assert_eq!(search.costs.factor(), 1.0);
}
