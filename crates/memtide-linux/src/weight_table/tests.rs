//! The table against a kernel made of a map, in both generations.

use super::*;
use crate::files::faults::{self, Fault};
use crate::fs::node::AUTO_NAMES;
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

#[path = "mending_tests.rs"]
mod mending;

/// A kernel's table: what it accepts, what a write of it does to the rest.
#[derive(Clone, Debug)]
struct FakeTable {
    weights: BTreeMap<String, u8>,
    auto: Option<bool>,
    /// What the kernel computes; `None` if it knows no bandwidths.
    computed: Option<BTreeMap<String, u8>>,
    /// Writes left until one fails; `None` never fails.
    fail_after: Option<usize>,
    writes: usize,
}

impl FakeTable {
    fn new(weights: &[u8], auto: Option<bool>) -> FakeTable {
        let names = (0..).map(|node| node_path(NodeId(node)));
        let weights: BTreeMap<String, u8> = names.zip(weights.iter().copied()).collect();
        FakeTable {
            computed: (auto == Some(true)).then(|| weights.clone()),
            weights,
            auto,
            fail_after: None,
            writes: 0,
        }
    }

    fn refuse(path: &str, value: &str, errno: i32) -> Result<(), KnobError> {
        Err(KnobError::Write {
            path: path.into(),
            value: value.into(),
            source: io::Error::from_raw_os_error(errno),
        })
    }
}

/// A kernel that outlives the process that writes to it.
type Shared = Rc<RefCell<FakeTable>>;

impl Knobs for Shared {
    fn read(&self, file: &str) -> Result<String, KnobError> {
        self.borrow().read(file)
    }

    fn write(&mut self, file: &str, value: &str) -> Result<(), KnobError> {
        self.borrow_mut().write(file, value)
    }

    fn exists(&self, _: &str) -> bool {
        true
    }

    fn shown(&self, path: &str) -> PathBuf {
        path.into()
    }
}

impl Knobs for FakeTable {
    fn read(&self, file: &str) -> Result<String, KnobError> {
        if file == path("auto") {
            return Ok(self.auto.unwrap().to_string());
        }
        Ok(self.weights[file].to_string())
    }

    fn write(&mut self, file: &str, value: &str) -> Result<(), KnobError> {
        faults::ask(&format!("write {file}")).map_err(|source| KnobError::Write {
            path: file.into(),
            value: value.into(),
            source,
        })?;
        match &mut self.fail_after {
            Some(0) => {
                self.fail_after = None;
                return FakeTable::refuse(file, value, libc::ENOMEM);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.writes += 1;
        if file == path("auto") {
            assert_eq!(value, "true", "memtide freezes nothing by itself");
            match (self.auto, &self.computed) {
                (Some(true), _) => {}
                (Some(false), Some(computed)) => {
                    self.weights = computed.clone();
                    self.auto = Some(true);
                }
                _ => return FakeTable::refuse(file, value, libc::ENODEV),
            }
            return Ok(());
        }
        let weight = match (value.parse(), self.auto) {
            (Ok(0), None) => 1,
            (Ok(0), Some(_)) | (Err(_), _) => {
                return FakeTable::refuse(file, value, libc::EINVAL);
            }
            (Ok(weight), _) => weight,
        };
        self.auto = self.auto.map(|_| false);
        self.weights.insert(file.to_owned(), weight);
        Ok(())
    }

    fn exists(&self, _: &str) -> bool {
        true
    }

    fn shown(&self, path: &str) -> PathBuf {
        path.into()
    }
}

/// A table with a file for each weight, of nodes that all have memory.
fn table(folder: &tempfile::TempDir, fake: FakeTable) -> WeightTable<FakeTable> {
    let (nodes, auto) = (fake.weights.len(), fake.auto);
    table_of(folder, fake, nodes, auto)
}

fn table_of<K>(
    folder: &tempfile::TempDir,
    files: K,
    nodes: usize,
    auto: Option<bool>,
) -> WeightTable<K> {
    let nodes: BTreeSet<NodeId> = (0..nodes as u16).map(NodeId).collect();
    boot(folder, "this-boot");
    WeightTable {
        auto_name: auto.map(|_| AUTO_NAMES[0]),
        files,
        nodes: nodes.clone(),
        online: nodes.clone(),
        with_memory: nodes,
        journal: Journal::new(&Root::new(folder.path()), Kind::Weights),
    }
}

fn boot(folder: &tempfile::TempDir, id: &str) {
    let path = folder.path().join("proc/sys/kernel/random");
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("boot_id"), id).unwrap();
}

fn turn<K: Knobs>(table: &WeightTable<K>) -> Turn {
    let turn = table.journal.turn().unwrap();
    turn.expect("nobody else is here")
}

fn weights(pairs: &[(u16, u8)]) -> BTreeMap<NodeId, u8> {
    pairs.iter().map(|&(node, w)| (NodeId(node), w)).collect()
}

fn generations() -> [FakeTable; 3] {
    [
        FakeTable::new(&[1, 1, 1], None),
        FakeTable::new(&[15, 15, 1], Some(true)),
        FakeTable::new(&[4, 2, 1], Some(false)),
    ]
}

#[test]
fn what_is_written_is_read_and_can_be_put_back() {
    for fake in generations() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = table(&folder, fake);
        let turn = turn(&table);
        let before = table.read().unwrap();
        let change = table.write(&turn, &weights(&[(0, 9), (2, 3)])).unwrap();
        assert_eq!(change.before, before);
        assert_eq!(change.after.weights[&NodeId(0)], 9);
        assert_eq!(change.after.weights[&NodeId(1)], before.weights[&NodeId(1)]);
        assert_eq!(change.after.weights[&NodeId(2)], 3);
        assert_eq!(change.auto_went_off(), before.auto == Some(true));
        // A second change keeps what stood there before the first.
        table.write(&turn, &weights(&[(1, 7)])).unwrap();
        let noted = table.remembered().unwrap().unwrap();
        assert_eq!(
            (noted.weights, noted.auto),
            (before.weights.clone(), before.auto)
        );
        // FakeTable of the third kind knows no bandwidths and needs none.
        assert_eq!(table.restore(&turn).unwrap().after, before);
        assert_eq!(table.remembered().unwrap(), None);
        assert!(matches!(
            table.restore(&turn),
            Err(WeightError::NothingRemembered)
        ));
    }
}

#[test]
fn the_nth_failure_leaves_what_was_there() {
    for nth in 0..3 {
        for fake in generations() {
            let folder = tempfile::tempdir().unwrap();
            let mut table = table(&folder, fake);
            let turn = turn(&table);
            let before = table.read().unwrap();
            table.files.fail_after = Some(nth);
            let error = table
                .write(&turn, &weights(&[(0, 9), (1, 8), (2, 7)]))
                .unwrap_err()
                .to_string();
            assert_eq!(table.read().unwrap(), before, "{nth}");
            assert!(error.contains(&format!("node{nth}: writing ")), "{error}");
            let said = match nth {
                0 => "; nothing was changed",
                _ => "; what was written before it was put back",
            };
            assert!(error.ends_with(said), "{error}");
            assert_eq!(table.remembered().unwrap(), None);
        }
    }
}

#[test]
fn a_failed_change_does_not_forget_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table(&folder, FakeTable::new(&[15, 15, 1], Some(true)));
    let turn = turn(&table);
    let first = table.read().unwrap();
    table.write(&turn, &weights(&[(0, 9)])).unwrap();
    table.files.fail_after = Some(1);
    table.write(&turn, &weights(&[(0, 5), (1, 5)])).unwrap_err();
    assert_eq!(
        table.read().unwrap().weights,
        weights(&[(0, 9), (1, 15), (2, 1)])
    );
    assert_eq!(table.restore(&turn).unwrap().after, first);
}

#[test]
fn what_somebody_else_wrote_is_not_ours_to_undo() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table(&folder, FakeTable::new(&[1, 1], None));
    let turn = turn(&table);
    table.write(&turn, &weights(&[(0, 9)])).unwrap();
    table.files.write(&node_path(NodeId(1)), "4").unwrap();
    assert_eq!(table.remembered().unwrap(), None);
    // The next change notes what they left.
    table.write(&turn, &weights(&[(0, 2)])).unwrap();
    let noted = table.remembered().unwrap().unwrap();
    assert_eq!(noted.weights, weights(&[(0, 9), (1, 4)]));
    // Another boot began with the kernel's defaults.
    boot(&folder, "the-next");
    assert_eq!(table.remembered().unwrap(), None);
}

#[test]
fn the_default_comes_back_in_each_generation() {
    let reset = |fake, hand: &[(u16, u8)]| {
        let folder = tempfile::tempdir().unwrap();
        let mut table = table(&folder, fake);
        let turn = turn(&table);
        table.write(&turn, &weights(hand)).unwrap();
        let (change, way) = table.reset(&turn).unwrap();
        assert_eq!(table.remembered().unwrap(), None);
        (change.after, way)
    };
    let hand = &[(0, 9), (1, 8), (2, 7)];
    let ones = weights(&[(0, 1), (1, 1), (2, 1)]);
    let (after, way) = reset(FakeTable::new(&[1, 1, 1], None), hand);
    assert_eq!((after.weights, after.auto), (ones.clone(), None));
    assert_eq!(way, ResetWay::EachNode);

    let (after, way) = reset(FakeTable::new(&[15, 15, 1], Some(true)), hand);
    assert_eq!(after.weights, weights(&[(0, 15), (1, 15), (2, 1)]));
    assert_eq!((after.auto, way), (Some(true), ResetWay::Auto));

    let (after, way) = reset(FakeTable::new(&[4, 2, 1], Some(false)), hand);
    assert_eq!((after.weights, after.auto), (ones, Some(false)));
    assert_eq!(way, ResetWay::OnesWithoutBandwidths);
}

#[test]
fn without_bandwidths_auto_does_not_come_back_and_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    // As at boot, before any bandwidths arrive: auto, and all ones.
    let mut fake = FakeTable::new(&[1, 1], Some(true));
    fake.computed = None;
    fake.fail_after = Some(1);
    let mut table = table(&folder, fake);
    let turn = turn(&table);
    let error = table.write(&turn, &weights(&[(0, 2), (1, 3)])).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("; the weights were put back, but auto stays off without bandwidths"),
        "{error}"
    );
    let now = table.read().unwrap();
    assert_eq!(
        (now.weights, now.auto),
        (weights(&[(0, 1), (1, 1)]), Some(false))
    );
}

#[test]
fn what_is_so_already_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table(&folder, FakeTable::new(&[15, 15, 1], Some(true)));
    let turn = turn(&table);
    let change = table.write(&turn, &weights(&[(0, 15), (2, 1)])).unwrap();
    assert_eq!(change.written, []);
    assert_eq!(change.after.auto, Some(true));
    assert_eq!(table.files.writes, 0);
}

#[test]
fn nodes_without_memory_and_zero_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table(&folder, FakeTable::new(&[1, 1, 1], None));
    let turn = turn(&table);
    // Before 6.16 a node without memory has a file too.
    table.with_memory.remove(&NodeId(1));
    for (wanted, said) in [
        (
            &[][..],
            "no weights to write; give at least one, as 0=9,2=1",
        ),
        (
            &[(0, 2), (1, 2)],
            "node 1 has no memory; nodes with memory: 0,2",
        ),
        (
            &[(0, 2), (7, 2)],
            "node 7 does not exist; nodes with memory: 0,2",
        ),
        (
            &[(0, 2), (2, 0)],
            "node 2: 0 is no weight, they go from 1 to 255",
        ),
    ] {
        assert_eq!(
            table
                .write(&turn, &weights(wanted))
                .unwrap_err()
                .to_string(),
            said
        );
    }
    assert_eq!(table.files.writes, 0);
    assert!(!table.journal.path().exists());
}

/// A change for a while, as `memtide run --apply-weights` makes it, or for good
/// and undone: killed before and after each single write, the next start mends
/// the table. A write that only fails leaves it as it was.
#[test]
fn whenever_it_is_killed_the_next_start_puts_the_table_back() {
    fn changes(kernel: &Shared, folder: &tempfile::TempDir) {
        let auto = kernel.borrow().auto;
        let mut table = table_of(folder, Rc::clone(kernel), 3, auto);
        let Ok(Some(turn)) = table.journal.turn() else {
            return;
        };
        let done = table.write(&turn, &weights(&[(0, 9), (1, 9), (2, 9)]));
        let done = done.and_then(|_| table.write(&turn, &weights(&[(0, 5), (2, 4)])));
        if done.is_ok() {
            let _ = table.restore(&turn);
        }
    }
    for fake in generations() {
        let start = (fake.weights.clone(), fake.auto);
        let folder = tempfile::tempdir().unwrap();
        let kernel = Rc::new(RefCell::new(fake.clone()));
        let (_, trail) = faults::trail(|| changes(&kernel, &folder));
        assert_eq!(kernel.borrow().weights, start.0);
        assert!(trail.len() > 20, "{trail:?}");
        for (nth, what) in trail.iter().enumerate() {
            for fault in [Fault::Die, Fault::Fail(libc::ENOSPC)] {
                let folder = tempfile::tempdir().unwrap();
                let kernel = Rc::new(RefCell::new(fake.clone()));
                faults::with(nth, fault, || changes(&kernel, &folder));
                let mut next = table_of(&folder, Rc::clone(&kernel), 3, fake.auto);
                let turn = turn(&next);
                match next.restore(&turn) {
                    Ok(_) | Err(WeightError::NothingRemembered) => {}
                    Err(error) => panic!("{fault:?} at {nth}, {what}: {error}"),
                }
                let now = (kernel.borrow().weights.clone(), kernel.borrow().auto);
                assert_eq!(now, start, "{fault:?} at {nth}, {what}");
            }
        }
    }
}

/// A reset is for good, so after a kill it is undone or done, as is asked for.
#[test]
fn a_reset_that_was_killed_is_undone_or_done() {
    for fake in generations() {
        let begin = |folder: &tempfile::TempDir| {
            let kernel = Rc::new(RefCell::new(fake.clone()));
            let mut table = table_of(folder, Rc::clone(&kernel), 3, fake.auto);
            let turn = turn(&table);
            table
                .write(&turn, &weights(&[(0, 9), (1, 9), (2, 9)]))
                .unwrap();
            (kernel, table, turn)
        };
        let folder = tempfile::tempdir().unwrap();
        let (_, mut table, turn) = begin(&folder);
        let (_, trail) = faults::trail(|| table.reset(&turn).unwrap());
        for (nth, what) in trail.iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let (kernel, mut table, turn) = begin(&folder);
            let _ = faults::with(nth, Fault::Die, || table.reset(&turn));
            let undone = table.restore(&turn);
            if let Err(WeightError::NothingRemembered) = undone {
                // It had come to its end: the kernel computes, or all are 1.
                let now = table.read().unwrap();
                let ones = now.weights.values().all(|weight| *weight == 1);
                assert!(ones || now.auto == Some(true), "{nth}, {what}: {now:?}");
                continue;
            }
            undone.unwrap();
            assert_eq!(kernel.borrow().weights, fake.weights, "{nth}, {what}");
        }
    }
}

/// A kill between two writes: what was wanted is there in part.
#[test]
fn a_note_is_an_intention() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table(&folder, FakeTable::new(&[3, 2, 1], None));
    let turn = turn(&table);
    let wanted = weights(&[(0, 9), (1, 9), (2, 9)]);
    let before = table.read().unwrap();
    table.remember(&before, &wanted).unwrap();
    table.files.write(&node_path(NodeId(0)), "9").unwrap();
    assert_eq!(
        table.read().unwrap().weights,
        weights(&[(0, 9), (1, 2), (2, 1)])
    );
    assert_eq!(table.restore(&turn).unwrap().after, before);
}

#[test]
fn tables_of_real_machines() {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let open = |machine: &str| WeightTable::open(&Root::new(fixtures.join(machine)));
    assert_eq!(
        open("cxl-no-hmat").unwrap_err().to_string(),
        "this kernel (6.6) has no table of interleave weights; \
         Linux has it since 6.9, with CONFIG_NUMA"
    );
    let table = open("two-sockets-cxl-hmat").unwrap();
    assert!(table.has_auto());
    assert_eq!(
        table.read().unwrap().weights,
        weights(&[(0, 7), (1, 7), (2, 1)])
    );
    assert_eq!(table.read().unwrap().auto, Some(true));
    assert!(!open("two-sockets").unwrap().has_auto());
}
