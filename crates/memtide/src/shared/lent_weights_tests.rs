//! A run that has the table, and the next one, killed at any write: on a copy
//! of a machine, whose files take what is written.

use super::*;
use memtide_linux::files::faults;

const TABLE: &str = "sys/kernel/mm/mempolicy/weighted_interleave";
/// What stood there before memtide came.
const FIRST: [u8; 3] = [4, 4, 1];
/// What `memtide weights` had set for good before the runs.
const SET: [u8; 3] = [5, 4, 2];

struct Machine(tempfile::TempDir);

impl Machine {
    /// Of three nodes; `auto` is off where the kernel has it.
    fn new(has_auto: bool) -> Machine {
        // Each is synced many times: in memory where there is such a place.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let machine = Machine(folder.unwrap());
        machine.put("sys/devices/system/node/online", "0-2\n");
        machine.put("sys/devices/system/node/has_memory", "0-2\n");
        machine.put("proc/sys/kernel/random/boot_id", "this-boot\n");
        for (node, weight) in FIRST.iter().enumerate() {
            machine.put(&format!("{TABLE}/node{node}"), &format!("{weight}\n"));
        }
        if has_auto {
            machine.put(&format!("{TABLE}/auto"), "false\n");
        }
        let mut table = WeightTable::open(&machine.root()).unwrap();
        let turn = table.journal().turn().unwrap().unwrap();
        table.write(&turn, &weights(SET)).unwrap();
        machine
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn root(&self) -> Root {
        Root::new(self.0.path())
    }

    fn reads(&self) -> BTreeMap<NodeId, u8> {
        let table = WeightTable::open(&self.root()).unwrap();
        table.read().unwrap().weights
    }
}

fn weights(of: [u8; 3]) -> BTreeMap<NodeId, u8> {
    (0..).map(NodeId).zip(of).collect()
}

/// A run that ends as it should, unless it is killed.
fn run(machine: &Machine) {
    if let Ok((lent, _)) = Lent::take(&machine.root(), &weights([9, 9, 9]), Holder::Run) {
        let _ = lent.give_back();
    }
}

/// Whatever the run was killed at, and the next start: the one after that puts
/// back what was set for good, and that can be undone as before.
fn mends(next: impl Fn(&Machine)) {
    for has_auto in [false, true] {
        let pairs = faults::mended(
            || Machine::new(has_auto),
            run,
            &next,
            |machine, at| {
                let root = machine.root();
                let said = put_back_left(&root);
                assert!(said.is_none_or(|said| said == PUT_BACK), "{at}");
                assert_eq!(machine.reads(), weights(SET), "{at}");
                assert_eq!(standing(&root).unwrap(), Standing::Free, "{at}");
                assert!(!is_noted(&root), "{at}");
                // Runs come and go as ever.
                let (lent, _) = Lent::take(&root, &weights([9, 1, 9]), Holder::Run).unwrap();
                assert_eq!(machine.reads(), weights([9, 1, 9]), "{at}");
                assert!(lent.give_back().unwrap(), "{at}");
                assert_eq!(machine.reads(), weights(SET), "{at}");
                let mut table = WeightTable::open(&root).unwrap();
                let turn = table.journal().turn().unwrap().unwrap();
                table.restore(&turn).unwrap();
                assert_eq!(machine.reads(), weights(FIRST), "{at}");
            },
        );
        assert!(pairs > 100, "only {pairs}");
    }
}

#[test]
fn whenever_the_mending_is_killed_the_next_start_mends() {
    mends(|machine| drop(put_back_left(&machine.root())));
}

/// As `memtide run --apply-weights` begins and ends.
#[test]
fn whenever_the_next_run_is_killed_too_the_next_start_mends() {
    mends(|machine| {
        let _ = put_back_left(&machine.root());
        if let Ok((lent, _)) = Lent::take(&machine.root(), &weights([3, 9, 2]), Holder::Run) {
            let _ = lent.give_back();
        }
    });
}

/// On its way out because of an error, too.
#[test]
fn a_run_that_is_dropped_puts_back() {
    mends(|machine| {
        drop(Lent::take(
            &machine.root(),
            &weights([9, 2, 1]),
            Holder::Run,
        ))
    });
}

/// A change for good, killed at any write: the next run finds all of it or nothing,
/// and what stood there before memtide can be put back as ever.
#[test]
fn the_next_run_mends_a_change_that_was_cut_short() {
    let wanted = weights([9, 8, 7]);
    let at_table = |machine: &Machine, work: &dyn Fn(&mut WeightTable, &Turn)| {
        let mut table = WeightTable::open(&machine.root()).unwrap();
        let turn = table.journal().turn();
        if let Ok(Some(turn)) = turn {
            work(&mut table, &turn);
        }
    };
    for has_auto in [false, true] {
        let pairs = faults::mended(
            || Machine::new(has_auto),
            |machine| at_table(machine, &|table, turn| drop(table.write(turn, &wanted))),
            |machine| drop(put_back_left(&machine.root())),
            |machine, at| {
                let root = machine.root();
                let said = put_back_left(&root);
                assert!(said.is_none_or(|said| said == PUT_BACK), "{at}");
                let now = machine.reads();
                assert!(now == weights(SET) || now == wanted, "{at}: {now:?}");
                assert_eq!(standing(&root).unwrap(), Standing::Free, "{at}");
                at_table(machine, &|table, turn| {
                    table.restore(turn).unwrap();
                });
                assert_eq!(machine.reads(), weights(FIRST), "{at}");
            },
        );
        assert!(pairs > 30, "only {pairs}");
    }
}

/// As the service does when it is told to, killed at any write: the next start finds what was set for
/// good.
#[test]
fn whenever_a_change_of_what_is_lent_is_killed_the_next_start_mends() {
    for has_auto in [false, true] {
        let pairs = faults::mended(
            || Machine::new(has_auto),
            |machine| {
                let lent = Lent::take(&machine.root(), &weights([9, 9, 9]), Holder::Service);
                if let Ok((mut lent, _)) = lent {
                    let _ = lent.change(&BTreeMap::from([(NodeId(0), 7)]));
                    let _ = lent.give_back();
                }
            },
            |machine| drop(put_back_left(&machine.root())),
            |machine, at| {
                let said = put_back_left(&machine.root());
                assert!(said.is_none_or(|said| said == PUT_BACK), "{at}");
                assert_eq!(machine.reads(), weights(SET), "{at}");
                assert!(!is_noted(&machine.root()), "{at}");
            },
        );
        assert!(pairs > 100, "only {pairs}");
    }
}

#[test]
fn what_only_the_old_weights_name_reads_as_before_both() {
    let machine = Machine::new(false);
    let root = machine.root();
    let (mut lent, _) = Lent::take(&root, &weights([9, 9, 9]), Holder::Service).unwrap();
    assert!(Lent::take(&root, &weights([1, 1, 1]), Holder::Run).is_err());
    let one = BTreeMap::from([(NodeId(0), 7)]);
    assert!(lent.change(&one).unwrap().is_empty());
    assert_eq!(machine.reads(), weights([7, SET[1], SET[2]]));
    // What cannot be leaves what is there.
    let wrong = BTreeMap::from([(NodeId(7), 7)]);
    assert!(lent.change(&wrong).is_err());
    assert_eq!(machine.reads(), weights([7, SET[1], SET[2]]));
    machine.put(&format!("{TABLE}/node1"), "3\n");
    machine.put(&format!("{TABLE}/node0"), "3\n");
    assert_eq!(lent.change(&weights([9, 9, 9])).unwrap(), [THEIRS]);
    assert!(lent.give_back().unwrap());
    assert_eq!(machine.reads(), weights([3, 3, SET[2]]));
}
