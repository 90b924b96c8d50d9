//! What a killed change left, mended by one that is killed, too.

use super::*;

type World = (tempfile::TempDir, Shared);

/// Works at the table of a world, as a process of its own. Whether it had the turn.
fn process(world: &World, work: impl FnOnce(&mut WeightTable<Shared>, &Turn)) -> bool {
    let (folder, kernel) = world;
    let auto = kernel.borrow().auto;
    let mut table = table_of(folder, Rc::clone(kernel), 3, auto);
    let turn = table.journal.turn();
    let turn = turn.ok().flatten();
    turn.inspect(|turn| work(&mut table, turn)).is_some()
}

/// Two changes, put back in the end.
fn changes(world: &World) {
    process(world, |table, turn| {
        let done = table.write(turn, &weights(&[(0, 9), (1, 9), (2, 9)]));
        let done = done.and_then(|_| table.write(turn, &weights(&[(0, 5), (2, 4)])));
        if done.is_ok() {
            let _ = table.restore(turn);
        }
    });
}

/// Whatever the first was killed at, and the next start: the table is put back,
/// and nothing is noted any more.
fn mends(next: impl Fn(&World)) {
    for fake in generations() {
        let start = (fake.weights.clone(), fake.auto);
        let pairs = faults::mended(
            || (faults::folder(), Rc::new(RefCell::new(fake.clone()))),
            changes,
            &next,
            |world, at| {
                let begun = process(world, |table, turn| {
                    match table.restore(turn) {
                        Ok(_) | Err(WeightError::NothingRemembered) => {}
                        Err(error) => panic!("{at}: {error}"),
                    }
                    assert!(!table.journal.path().exists(), "{at}");
                });
                assert!(begun, "{at}");
                let now = (world.1.borrow().weights.clone(), world.1.borrow().auto);
                assert_eq!(now, start, "{at}");
            },
        );
        assert!(pairs > 200, "only {pairs}");
    }
}

#[test]
fn whenever_the_mending_is_killed_the_next_start_mends() {
    mends(|world| {
        process(world, |table, turn| {
            let _ = table.restore(turn);
        });
    });
}

/// As the next `memtide run` does, and is killed or not.
#[test]
fn what_is_put_back_and_changed_again_can_be_put_back() {
    mends(|world| {
        process(world, |table, turn| match table.restore(turn) {
            Ok(_) | Err(WeightError::NothingRemembered) => {
                let _ = table.write(turn, &weights(&[(0, 9), (1, 7)]));
            }
            Err(_) => {}
        });
    });
}

/// As `memtide weights --set` does over what another one left half-way: what
/// stood there before both is put back.
#[test]
fn a_change_over_what_was_left_can_be_put_back() {
    mends(|world| {
        process(world, |table, turn| {
            let _ = table.write(turn, &weights(&[(1, 7), (2, 9)]));
        });
    });
}

/// A note that outlived its change must not undo by chance what somebody else
/// writes later.
#[test]
fn a_note_of_what_was_put_back_is_forgotten() {
    let folder = faults::folder();
    let kernel = Rc::new(RefCell::new(FakeTable::new(&[3, 2, 1], None)));
    let world = (folder, kernel);
    process(&world, |table, turn| {
        table.write(turn, &weights(&[(0, 9)])).unwrap();
        let writes = faults::trail(|| table.restore(turn).unwrap()).1;
        let forgets = writes.iter().position(|what| what == "remove the note");
        table.write(turn, &weights(&[(0, 9)])).unwrap();
        let died = faults::with(forgets.unwrap(), Fault::Die, || table.restore(turn));
        died.unwrap_err();
    });
    process(&world, |table, turn| {
        let again = table.restore(turn);
        assert!(matches!(again, Err(WeightError::NothingRemembered)));
        table.files.write(&node_path(NodeId(0)), "9").unwrap();
        let theirs = table.restore(turn);
        assert!(matches!(theirs, Err(WeightError::NothingRemembered)));
        assert_eq!(table.read().unwrap().weights[&NodeId(0)], 9);
    });
}

/// A change for good that was killed half-way, over an earlier one or none: that
/// one is undone, and no earlier one.
#[test]
fn a_change_that_was_cut_short_is_undone_alone() {
    let wanted = weights(&[(0, 9), (1, 8), (2, 7)]);
    let both = |fake: FakeTable| [(fake.clone(), false), (fake, true)];
    for (fake, earlier) in generations().into_iter().flat_map(both) {
        let start = fake.weights.clone();
        let make = || {
            let world = (faults::folder(), Rc::new(RefCell::new(fake.clone())));
            if earlier {
                process(&world, |table, turn| {
                    drop(table.write(turn, &weights(&[(0, 5), (2, 4)])).unwrap());
                });
            }
            world
        };
        let state = |world: &World| (world.1.borrow().weights.clone(), world.1.borrow().auto);
        let before = state(&make());
        let pairs = faults::mended(
            make,
            |world| {
                process(world, |table, turn| drop(table.write(turn, &wanted)));
            },
            |world| {
                process(world, |table, turn| drop(table.mend(turn)));
            },
            |world, at| {
                process(world, |table, turn| {
                    table.mend(turn).unwrap();
                    assert_eq!(table.cut_short().unwrap(), None, "{at}");
                    let done = table.read().unwrap().weights == wanted;
                    assert!(done || state(world) == before, "{at}");
                    match table.restore(turn) {
                        Ok(_) => {}
                        Err(WeightError::NothingRemembered) => assert!(!earlier && !done, "{at}"),
                        Err(error) => panic!("{at}: {error}"),
                    }
                    assert_eq!(state(world).0, start, "{at}");
                });
            },
        );
        assert!(pairs > 30, "only {pairs}");
    }
}

#[test]
fn a_table_between_two_states_was_cut_short() {
    let world = (
        faults::folder(),
        Rc::new(RefCell::new(FakeTable::new(&[3, 2, 1], None))),
    );
    process(&world, |table, turn| {
        let wanted = weights(&[(0, 9), (1, 9), (2, 9)]);
        let (_, trail) = faults::trail(|| table.write(turn, &wanted).unwrap());
        table.restore(turn).unwrap();
        let second = trail
            .iter()
            .position(|what| what.ends_with("node1"))
            .unwrap();
        faults::with(second, Fault::Die, || table.write(turn, &wanted)).unwrap_err();
    });
    process(&world, |table, turn| {
        let before = table.cut_short().unwrap().unwrap();
        assert_eq!(before.weights, weights(&[(0, 3), (1, 2), (2, 1)]));
        // What somebody else has written since is theirs.
        table.files.write(&node_path(NodeId(2)), "4").unwrap();
        assert_eq!(table.cut_short().unwrap(), None);
        table.files.write(&node_path(NodeId(2)), "1").unwrap();
        assert!(table.mend(turn).unwrap().is_some());
        assert_eq!(table.read().unwrap().weights, before.weights);
        assert!(!table.journal.path().exists());
    });
    // A change that ended is no such one, whatever is written by hand later.
    process(&world, |table, turn| {
        table.write(turn, &weights(&[(0, 9), (1, 9)])).unwrap();
        table.files.write(&node_path(NodeId(1)), "2").unwrap();
        assert_eq!(table.cut_short().unwrap(), None);
        assert!(table.mend(turn).unwrap().is_none());
    });
}
