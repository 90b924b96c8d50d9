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
