//! Shares, with every figure by hand.

use super::*;
use crate::tier::losses::Losses;

/// What a class has: `low`, `high`, the class that contains it, and what it uses.
type Given = (Option<u64>, Option<u64>, Option<u32>, u64);

fn nested(classes: &[Given]) -> Budgets {
    let budget = |(low, high, within, used): &Given| Budget {
        used: Some(*used),
        within: within.map(ClassId),
        ..Budget::new(&Class {
            name: "db".into(),
            low: *low,
            high: *high,
            leave_alone: false,
            tiered: Tiered::default(),
            heed_pressure: true,
        })
    };
    let mut budgets = Budgets {
        all: classes.iter().map(budget).collect(),
        others: Tiered::default(),
        read_again: None,
        exchanging: false,
        used: Vec::new(),
        order: Vec::new(),
    };
    budgets.put_in_order();
    budgets.add_up(Millis(0), false);
    budgets.all.iter_mut().for_each(|budget| {
        budget.judge(Millis(0));
    });
    budgets
}

fn budgets(low: u64, high: Option<u64>, used: u64) -> Budgets {
    nested(&[(Some(low), high, None, used)])
}

const DB: ClassId = ClassId(0);

#[test]
fn between_mark_and_bound_nothing_begins() {
    // The mark of 1000 is 990.
    let mut db = budgets(0, Some(1000), 1000);
    assert_eq!((db.excess(DB, Millis(0)), db.left(DB)), (0, Some(0)));
    db.moved(DB, Direction::Promotion, 1, Millis(10));
    assert_eq!(db.excess(DB, Millis(10)), 11);
    assert!(!db.patience_is_over(DB, Millis(1509)));
    assert!(db.patience_is_over(DB, Millis(1510)));
    // It goes on to the mark, and not only to the bound.
    db.moved(DB, Direction::Demotion, 5, Millis(20));
    assert_eq!(db.excess(DB, Millis(20)), 6);
    db.moved(DB, Direction::Demotion, 6, Millis(30));
    assert_eq!((db.excess(DB, Millis(30)), db.left(DB)), (0, Some(0)));
    db.moved(DB, Direction::Demotion, 40, Millis(40));
    assert_eq!(db.left(DB), Some(40));
}

#[test]
fn the_mark_is_not_in_what_is_protected() {
    let db = budgets(1000, Some(1000), 999);
    assert_eq!((db.left(DB), db.below_low(Some(DB))), (Some(1), 1));
    assert_eq!(db.may_lose(Some(DB)), 0);
    let small = budgets(0, Some(50), 10);
    assert_eq!(small.left(DB), Some(39));
    assert_eq!(budgets(0, Some(0), 0).left(DB), Some(0));
}

#[test]
fn who_is_in_no_class_or_has_no_figures_may_do_anything() {
    let mut db = budgets(1000, Some(2000), 500);
    assert_eq!((db.may_lose(None), db.below_low(None)), (u64::MAX, 0));
    assert_eq!(db.may_lose(Some(ClassId(7))), u64::MAX);
    db.all[0].used = None;
    db.add_up(Millis(0), false);
    db.all[0].judge(Millis(0));
    assert_eq!((db.left(DB), db.may_lose(Some(DB))), (None, u64::MAX));
    assert_eq!((db.below_low(Some(DB)), db.excess(DB, Millis(0))), (0, 0));
}

#[test]
fn where_nothing_leaves_it_is_not_asked_again_at_once() {
    let mut db = budgets(0, Some(100), 200);
    assert_eq!(db.excess(DB, Millis(0)), 101);
    db.rest(DB, Millis(0));
    assert_eq!(db.excess(DB, Millis(1999)), 0);
    assert_eq!(db.excess(DB, Millis(2000)), 101);
}

fn shares(budgets: &Budgets, class: u32) -> Vec<(u64, u64)> {
    let mut shares = Vec::new();
    budgets.shares(ClassId(class), &mut |share| {
        shares.push((share.number, share.left))
    });
    shares
}

/// The second and third class lie in the first, which may have 1,000, the fourth in the third.
#[test]
fn bounds_hold_for_all_that_lies_within() {
    let mut all = nested(&[
        (None, Some(1000), None, 100),
        (None, Some(300), Some(0), 200),
        (None, None, Some(0), 300),
        (None, None, Some(2), 350),
    ]);
    let totals: Vec<Option<u64>> = all.status().iter().map(|of| of.fast_pages).collect();
    assert_eq!(totals, [950, 200, 650, 350].map(Some));
    // 990 and 297 are the marks.
    assert_eq!(shares(&all, 0), [(0, 40)]);
    assert_eq!(shares(&all, 1), [(2, 97), (0, 40)]);
    assert_eq!(shares(&all, 3), [(0, 40)]);
    assert_eq!([0, 1, 2, 3].map(|n| all.left(ClassId(n))), [Some(40); 4]);
    all.moved(ClassId(3), Direction::Promotion, 60, Millis(10));
    assert_eq!(
        [0, 1, 2, 3].map(|n| all.excess(ClassId(n), Millis(10))),
        [20, 0, 0, 0]
    );
    all.moved(ClassId(1), Direction::Demotion, 21, Millis(20));
    assert_eq!(all.excess(ClassId(0), Millis(20)), 0);
    assert_eq!(all.left(ClassId(3)), Some(1));
    // Who lies within others is first.
    let order: Vec<u32> = (0..)
        .map_while(|n| all.nth_from_within(n))
        .map(|of| of.0)
        .collect();
    assert_eq!(order, [3, 1, 2, 0]);
}

#[test]
fn a_hot_page_waits_for_the_bound_that_keeps_it_down() {
    let mut all = nested(&[
        (None, Some(1000), None, 100),
        (None, Some(300), Some(0), 290),
        (None, None, Some(0), 600),
    ]);
    all.set_waiting(|class| [1, 50, 20][class.0 as usize]);
    // Of the second class's 50 only seven would fit its own bound.
    assert_eq!(
        [0, 1, 2].map(|n| all.waiting(ClassId(n))),
        [1 + 7 + 20, 50, 20]
    );
}

/// As the kernel divides `memory.low`.
#[test]
fn what_is_protected_is_divided_among_those_within() {
    let floors =
        |classes: &[Given]| -> Vec<u64> { nested(classes).all.iter().map(|of| of.floor).collect() };
    // Both claim 400 in all, of which 300 are had.
    let first = (Some(300), None, None, 0);
    let all = [
        first,
        (Some(300), None, Some(0), 500),
        (Some(200), None, Some(0), 100),
    ];
    assert_eq!(floors(&all), [300, 225, 75]);
    // Who uses less than it may claims no more; what is left goes to who grows.
    let all = [
        first,
        (Some(300), None, Some(0), 150),
        (Some(200), None, Some(0), 100),
    ];
    assert_eq!(floors(&all), [300, 200, 150]);
    // A class without a low takes nothing from those within it; one with none to give does.
    let of = |low| [(low, None, None, 0), (Some(300), None, Some(0), 500)];
    assert_eq!(floors(&of(None)), [0, 300]);
    assert_eq!(floors(&of(Some(0))), [0, 0]);
    // So is what is protected within a bound: 990 is its mark.
    let of = |used| {
        [
            (None, Some(1000), None, 0),
            (Some(900), None, Some(0), used),
            (Some(1100), None, Some(0), 1100),
        ]
    };
    assert_eq!(floors(&of(900)), [0, 445, 544]);
    assert_eq!(floors(&of(0)), [0, 0, 990]);
    // Over it, too.
    let all = [
        (Some(100), None, None, 0),
        (None, None, Some(0), 0),
        (Some(300), None, Some(1), 500),
    ];
    assert_eq!(floors(&all), [100, 0, 100]);
}

#[test]
fn what_is_protected_of_a_class_is_of_all_within_it() {
    let all = nested(&[
        (Some(500), None, None, 50),
        (None, None, Some(0), 400),
        (Some(100), None, Some(0), 90),
    ]);
    // The first has 40 more than is protected; the third none.
    let lose = [0, 1, 2].map(|n| all.may_lose(Some(ClassId(n))));
    assert_eq!(lose, [40, 40, 0]);
    // For others in the first class more may go.
    let within = [0, 1, 2].map(|n| all.may_lose_within(Some(ClassId(n)), Some(DB)));
    assert_eq!(within, [u64::MAX, 400, 0]);
    assert_eq!(
        [0, 1, 2].map(|n| all.below_low(Some(ClassId(n)))),
        [0, 0, 10]
    );
    let share = |n| {
        let share = all.protected_share(ClassId(n));
        (share.number, share.left)
    };
    assert_eq!((share(1).1, share(2)), (0, (5, 10)));
    let mut losses = Losses::new(&all, None);
    assert!(losses.spares(Some(ClassId(1)), 30));
    assert!(!losses.spares(Some(ClassId(0)), 11));
    assert!(losses.spares(Some(ClassId(0)), 10));
    assert!(!losses.spares(Some(ClassId(1)), 1));
}

/// Whoever is short of what is protected, those within come first; each but once.
#[test]
fn those_within_a_class_that_is_short_share_what_it_lacks() {
    let all = nested(&[
        (Some(500), None, None, 0),
        (None, None, Some(0), 200),
        (None, None, Some(0), 100),
    ]);
    assert_eq!([1, 2].map(|n| all.below_low(Some(ClassId(n)))), [200, 200]);
    let of = [1, 2].map(|n| all.protected_share(ClassId(n)));
    assert_eq!(
        of,
        [Share {
            number: 1,
            left: 200
        }; 2]
    );
}

#[test]
fn what_is_not_known_of_a_class_within_is_known_of_the_one_around_it() {
    let mut all = nested(&[(None, Some(1000), None, 400), (None, Some(100), Some(0), 0)]);
    all.all[1].used = None;
    all.add_up(Millis(0), false);
    assert_eq!(
        (all.left(ClassId(0)), all.left(ClassId(1))),
        (Some(590), Some(590))
    );
    assert_eq!(
        (all.spare(ClassId(0)), all.spare(ClassId(1))),
        (Some(400), None)
    );
}

#[test]
fn classes_that_contain_each_other_are_taken_apart() {
    let all = nested(&[(None, Some(100), Some(1), 10), (None, None, Some(0), 10)]);
    let paths = [0, 1].map(|n| all.path(Some(ClassId(n))).count());
    assert_eq!(paths, [1, 2]);
    let none = nested(&[(None, Some(100), Some(7), 10)]);
    assert_eq!(none.left(DB), Some(89));
}

/// Ten seconds after nothing left for the first time.
#[test]
fn a_bound_takes_what_is_protected_only_where_nothing_else_leaves_for_long() {
    let mut db = budgets(0, Some(100), 200);
    let takes = |db: &Budgets, ms| db.bound_takes_all(DB, Millis(ms));
    assert!(!takes(&db, 60_000));
    db.rest(DB, Millis(1000));
    db.rest(DB, Millis(3000));
    assert_eq!((takes(&db, 10_999), takes(&db, 11_000)), (false, true));
    db.goes_down(DB);
    assert!(!takes(&db, 11_000));
    db.rest(DB, Millis(11_000));
    db.pause(DB, true);
    db.pause(DB, false);
    assert!(!takes(&db, 60_000));
    db.rest(DB, Millis(12_000));
    db.moved(DB, Direction::Demotion, 101, Millis(13_000));
    db.moved(DB, Direction::Promotion, 101, Millis(14_000));
    assert!(!takes(&db, 60_000));
}

/// The kernel tells of a class that pages left it, and not yet of the one around it.
#[test]
fn what_is_counted_late_of_a_class_leaves_once_of_the_one_around_it() {
    let mut all = nested(&[(None, Some(1000), None, 0), (None, None, Some(0), 2000)]);
    all.moved(ClassId(1), Direction::Demotion, 700, Millis(100));
    assert_eq!(all.excess(ClassId(0), Millis(100)), 310);
    // 500 of these seem to be its own.
    (all.all[0].used, all.all[1].used) = (Some(500), Some(1300));
    all.add_up(Millis(500), false);
    assert_eq!(all.excess(ClassId(0), Millis(500)), 310);
    all.add_up(Millis(2600), false);
    assert_eq!(all.excess(ClassId(0), Millis(2600)), 810);
}
