//! The promises of the mover, against the model kernel.

use super::model::{Fault, HUGE, Kind, Model, PAGE};
use super::*;
use crate::sys::Errno;
use proptest::prelude::*;
use std::collections::BTreeMap;

const BASE: usize = 0x1000_0000;

fn at(page: usize) -> usize {
    BASE + page * PAGE
}

fn config(batch: usize, shared: SharedPages) -> Config {
    Config {
        batch,
        huge_pages: HUGE / PAGE,
        shared,
        ..Config::default()
    }
}

fn to(target: u16, page: usize, pages: usize) -> Move {
    Move {
        address: at(page),
        pages,
        huge: false,
        target: NodeId(target),
    }
}

fn plain(pages: std::ops::Range<usize>, node: i32) -> impl Iterator<Item = (usize, (i32, Kind))> {
    pages.map(move |page| (at(page), (node, Kind::Plain)))
}

fn run(model: &mut Model, config: Config, moves: &[Move]) -> (Sums, BTreeMap<usize, Outcome>) {
    let process = model.process;
    let mut outcomes = BTreeMap::new();
    let sums = Mover::new(&mut *model, config).run(process, moves, |settled| {
        outcomes.insert(settled.address, settled.outcome);
    });
    (sums, outcomes)
}

#[test]
fn pages_move_or_are_there_or_are_nowhere() {
    // Pages 0..4 on node 2, 4..6 on node 0, 6 is a hole, 7 the page of zeros.
    let mut model = Model::new(plain(0..4, 2).chain(plain(4..6, 0)));
    model.pages.insert(at(7), (0, Kind::Zero));
    let (sums, outcomes) = run(&mut model, Config::default(), &[to(0, 0, 8)]);
    assert_eq!(sums.moved, 4);
    assert_eq!(sums.already_there, 2);
    assert_eq!(sums.not_present, 1);
    assert_eq!(sums.zero_or_unmapped, 1);
    assert_eq!(outcomes[&at(0)], Outcome::Moved { from: NodeId(2) });
    // One question and one move: the awkward pages never reached the move.
    assert_eq!(model.calls, 2);
}

#[test]
fn pinned_pages_do_not_hide_that_the_others_moved() {
    // The measured case: 8 of 64 pinned, the call returns 8 and writes nothing.
    let mut model = Model::new(plain(0..64, 2));
    for page in 20..28 {
        model.pages.insert(at(page), (2, Kind::Pinned));
    }
    let (sums, outcomes) = run(&mut model, Config::default(), &[to(0, 0, 64)]);
    assert_eq!((sums.moved, sums.busy), (56, 8));
    assert!((20..28).all(|page| outcomes[&at(page)] == Outcome::Busy));
}

#[test]
fn a_full_target_keeps_what_fitted_and_is_not_asked_again() {
    let mut model = Model::new(
        plain(0..100, 2)
            .chain(plain(100..110, 0))
            .chain(plain(110..120, 2)),
    );
    model.free.insert(0, 25);
    let moves = [to(0, 0, 120), to(1, 0, 5)];
    let (sums, outcomes) = run(&mut model, config(10, SharedPages::Leave), &moves);
    // 25 of 110 fit; 5 of the 85 others then go to node 1 ... but pages 0..5
    // were among the 25, so they leave node 0 for it.
    assert_eq!(sums.no_memory, 85);
    assert_eq!(sums.already_there, 10);
    assert_eq!(sums.moved, 25 + 5);
    assert_eq!(outcomes[&at(0)], Outcome::Moved { from: NodeId(0) });
    // 12 batches ask; 3 of them move, and the third asks again; node 1 takes 2.
    assert_eq!(model.calls, 12 + 3 + 1 + 2);
}

#[test]
fn a_node_too_full_for_a_huge_page_may_take_base_pages() {
    // Node 0 has 4 free pages: no huge page of 8, but four base pages.
    let mut model = Model::new(plain(8..10, 2));
    model.pages.insert(at(0), (2, Kind::HugeHead));
    model.free.insert(0, 4);
    let huge = Move {
        huge: true,
        ..to(0, 0, 8)
    };
    let (sums, _) = run(
        &mut model,
        config(64, SharedPages::Leave),
        &[huge, to(0, 8, 2)],
    );
    assert_eq!((sums.moved, sums.no_memory), (2, 8));
}

#[test]
fn one_address_moves_a_huge_page_and_its_parts_are_duplicates() {
    let mut model = Model::new([(at(0), (2, Kind::HugeHead))]);
    let moves = [
        to(0, 3, 2),
        Move {
            huge: true,
            ..to(0, 0, 8)
        },
        to(0, 0, 1),
    ];
    let (sums, outcomes) = run(&mut model, config(64, SharedPages::Leave), &moves);
    assert_eq!((sums.moved, sums.busy, sums.duplicates), (8, 0, 3));
    assert_eq!(outcomes.len(), 1);
}

#[test]
fn a_huge_page_named_as_base_pages_moves_and_says_so() {
    let mut model = Model::new([(at(0), (2, Kind::HugeHead))]);
    let (sums, _) = run(&mut model, config(64, SharedPages::Leave), &[to(0, 0, 8)]);
    // The kernel answers EBUSY for seven of them: they were on their way.
    assert_eq!(sums.moved + sums.busy, 8);
    assert_eq!(model.pages[&at(0)].0, 0);
}

#[test]
fn shared_pages_move_only_if_wanted_and_permitted() {
    let pages = || {
        plain(0..6, 2)
            .map(|(a, (n, _))| (a, (n, Kind::Shared)))
            .chain(plain(6..9, 2))
    };
    for (shared, sys_nice, moved) in [
        (SharedPages::Leave, true, 3),
        (SharedPages::Move, false, 3),
        (SharedPages::Move, true, 9),
    ] {
        let mut model = Model::new(pages());
        model.sys_nice = sys_nice;
        let (sums, _) = run(&mut model, config(4, shared), &[to(0, 0, 9)]);
        assert_eq!(
            (sums.moved, sums.shared),
            (moved, 9 - moved),
            "{shared:?} {sys_nice}"
        );
    }
}

#[test]
fn a_node_that_is_missing_or_forbidden_is_named() {
    let mut model = Model::new(plain(0..4, 2));
    model.forbidden.insert(1);
    let (sums, _) = run(&mut model, Config::default(), &[to(1, 0, 2), to(9, 2, 2)]);
    assert_eq!((sums.not_allowed, sums.no_such_node), (2, 2));
}

#[test]
fn a_process_that_ends_half_way_is_left_alone() {
    let mut model = Model::new(plain(0..40, 2));
    // Calls: ask, move, ask, move (gone).
    model.fault = Some((4, Fault::Gone));
    let (sums, _) = run(&mut model, config(10, SharedPages::Leave), &[to(0, 0, 40)]);
    assert_eq!((sums.moved, sums.process_gone), (10, 30));
    assert_eq!(model.calls, 4);
}

#[test]
fn a_pid_that_changes_hands_is_not_moved() {
    let mut model = Model::new(plain(0..40, 2));
    // The third call is the second batch's question.
    model.fault = Some((3, Fault::Reused));
    let (sums, _) = run(&mut model, config(10, SharedPages::Leave), &[to(0, 0, 40)]);
    assert_eq!((sums.moved, sums.process_gone), (10, 30));
    assert_eq!((model.calls, model.moves_of_stranger), (3, 0));
}

#[test]
fn later_batches_reuse_the_buffers_of_earlier_ones() {
    // Every step occurs: pinned pages, shared ones that move, holes.
    let mixed = (0..90).map(|page| {
        let kind = [Kind::Plain, Kind::Shared, Kind::Pinned][page % 3];
        (at(page), (2, kind))
    });
    let mut model = Model::new(mixed);
    let process = model.process;
    let mut mover = Mover::new(&mut model, config(30, SharedPages::Move));
    let there = [to(0, 0, 90)];
    let back = [to(2, 0, 90)];
    for list in [&there, &back] {
        mover.run(process, list, |_| ());
    }
    let capacity = mover.batch.capacity();
    for list in [&there, &back, &there, &back] {
        assert_eq!(mover.run(process, list, |_| ()).moved, 60);
        assert_eq!(mover.batch.capacity(), capacity);
    }
}

#[test]
fn pages_are_located_in_runs() {
    let mut model = Model::new(plain(0..3, 2).chain(plain(3..5, 0)).chain(plain(6..7, 0)));
    let process = model.process;
    let mut runs = Vec::new();
    Locator::new(&mut model, PageSize::KIB_4, 4)
        .locate(process, &[(at(0), 7), (at(2), 1)], |run| {
            runs.push(((run.address - BASE) / PAGE, run.pages, run.at));
        })
        .unwrap();
    let on = |node| Located::Node(NodeId(node));
    assert_eq!(
        runs,
        [
            (0, 3, on(2)),
            (3, 1, on(0)),
            (4, 1, on(0)), // the second call begins
            (5, 1, Located::NotPresent),
            (6, 1, on(0)),
            (2, 1, on(2)), // the second range
        ]
    );
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        6 => Just(Kind::Plain),
        2 => Just(Kind::Shared),
        2 => Just(Kind::Pinned),
        1 => Just(Kind::Zero),
        1 => Just(Kind::HugeHead),
    ]
}

fn faults() -> impl Strategy<Value = Fault> {
    let errno = prop_oneof![
        Just(Errno::NOMEM),
        Just(Errno::FAULT),
        Just(Errno::NODEV),
        Just(Errno::ACCESS),
        Just(Errno::PERM),
        Just(Errno::INVAL),
        Just(Errno::INTR),
    ];
    prop_oneof![
        Just(Fault::Gone),
        Just(Fault::Reused),
        errno.clone().prop_map(Fault::Error),
        errno.prop_map(Fault::ErrorAfterwards),
    ]
}

proptest! {
    #[test]
    fn every_page_gets_one_true_outcome_whatever_fails(
        pages in prop::collection::vec(prop::option::of((0i32..3, kinds())), 40),
        mut moves in prop::collection::vec((0usize..40, 1usize..20, 0u16..4), 1..8),
        free in prop::collection::vec(0usize..60, 3),
        forbidden in prop::option::of(0i32..3),
        batch in 1usize..24,
        sys_nice in any::<bool>(),
        move_shared in any::<bool>(),
        fault in prop::option::of((1usize..20, faults())),
    ) {
        // Every slot is as wide as a huge page, so that kinds do not overlap.
        let slot = |n: usize| BASE + n * HUGE;
        let mut model = Model::new(
            pages.iter().enumerate().filter_map(|(n, page)| page.map(|page| (slot(n), page))),
        );
        model.free = (0..).zip(free).collect();
        model.forbidden = forbidden.into_iter().collect();
        model.sys_nice = sys_nice;
        model.fault = fault;
        moves.sort_by_key(|&(first, _, target)| (target, first));
        // Each slot goes to the first target that names it.
        let mut named = [false; 40];
        let list: Vec<Move> = moves
            .iter()
            .flat_map(|&(first, count, target)| (first..40.min(first + count)).map(move |n| (n, target)))
            .filter(|&(n, _)| !std::mem::replace(&mut named[n], true))
            .map(|(n, target)| {
                let huge = matches!(pages[n], Some((_, Kind::HugeHead)));
                let pages = if huge { HUGE / PAGE } else { 1 };
                Move { address: slot(n), pages, huge, target: NodeId(target) }
            })
            .collect();
        let shared = if move_shared { SharedPages::Move } else { SharedPages::Leave };
        let before = model.clone();
        let process = model.process;
        let mut seen = BTreeMap::new();
        let mut counted = Sums::default();
        let sums = Mover::new(&mut model, config(batch, shared)).run(process, &list, |settled| {
            assert!(seen.insert(settled.address, settled).is_none(), "settled twice");
            counted.count(&settled);
        });
        prop_assert_eq!(sums, counted);
        prop_assert_eq!(seen.len(), list.len());
        prop_assert_eq!(sums.settled(), list.iter().map(|m| m.pages).sum::<usize>());
        prop_assert_eq!(model.moves_of_stranger, 0);
        prop_assert!(model.largest_call <= batch.max(HUGE / PAGE));
        let faulty = fault.is_some();
        for m in &list {
            let (was, is) = (before.pages.get(&m.address), model.pages.get(&m.address));
            let target = i32::from(m.target.0);
            match seen[&m.address].outcome {
                Outcome::Moved { from } => {
                    prop_assert_eq!(was.unwrap().0, i32::from(from.0));
                    prop_assert_ne!(was.unwrap().0, target);
                    prop_assert_eq!(is.unwrap().0, target);
                    let kind = was.unwrap().1;
                    prop_assert!(kind != Kind::Shared || (move_shared && sys_nice));
                }
                Outcome::AlreadyThere => {
                    prop_assert_eq!(was.unwrap().0, target);
                    prop_assert_eq!(was, is);
                }
                Outcome::NotPresent => prop_assert!(was.is_none()),
                Outcome::ZeroOrUnmapped => prop_assert_eq!(was.unwrap().1, Kind::Zero),
                // After these nobody can be asked any more.
                Outcome::ProcessGone | Outcome::NotPermitted if faulty => {}
                Outcome::Failed(_) => prop_assert!(faulty),
                Outcome::Shared if faulty && move_shared => {}
                _ => prop_assert_eq!(was, is),
            }
        }
    }
}
