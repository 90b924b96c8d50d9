//! The table against a kernel made of a map, in both generations.

use super::*;
use crate::fs::node::AUTO_NAMES;

/// A kernel's table: what it accepts, what a write of it does to the rest.
#[derive(Debug)]
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

impl Knobs for FakeTable {
    fn read(&self, file: &str) -> Result<String, KnobError> {
        if file == path("auto") {
            return Ok(self.auto.unwrap().to_string());
        }
        Ok(self.weights[file].to_string())
    }

    fn write(&mut self, file: &str, value: &str) -> Result<(), KnobError> {
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
    let nodes: BTreeSet<NodeId> = (0..fake.weights.len() as u16).map(NodeId).collect();
    WeightTable {
        auto_name: fake.auto.map(|_| AUTO_NAMES[0]),
        files: fake,
        nodes: nodes.clone(),
        online: nodes.clone(),
        with_memory: nodes,
        state_file: folder.path().join("weights.json"),
        boot_id: "this-boot".to_owned(),
    }
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
        let before = table.read().unwrap();
        let change = table.write(&weights(&[(0, 9), (2, 3)])).unwrap();
        assert_eq!(change.before, before);
        assert_eq!(change.after.weights[&NodeId(0)], 9);
        assert_eq!(change.after.weights[&NodeId(1)], before.weights[&NodeId(1)]);
        assert_eq!(change.after.weights[&NodeId(2)], 3);
        assert_eq!(change.auto_went_off(), before.auto == Some(true));
        // A second change keeps what stood there before the first.
        table.write(&weights(&[(1, 7)])).unwrap();
        let noted = table.remembered().unwrap().unwrap();
        assert_eq!(
            (noted.weights, noted.auto),
            (before.weights.clone(), before.auto)
        );
        // FakeTable of the third kind knows no bandwidths and needs none.
        assert_eq!(table.restore().unwrap().after, before);
        assert_eq!(table.remembered().unwrap(), None);
        assert!(matches!(
            table.restore(),
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
            let before = table.read().unwrap();
            table.files.fail_after = Some(nth);
            let error = table
                .write(&weights(&[(0, 9), (1, 8), (2, 7)]))
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
    let first = table.read().unwrap();
    table.write(&weights(&[(0, 9)])).unwrap();
    table.files.fail_after = Some(1);
    table.write(&weights(&[(0, 5), (1, 5)])).unwrap_err();
    assert_eq!(
        table.read().unwrap().weights,
        weights(&[(0, 9), (1, 15), (2, 1)])
    );
    assert_eq!(table.restore().unwrap().after, first);
}

#[test]
fn what_somebody_else_wrote_is_not_ours_to_undo() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table(&folder, FakeTable::new(&[1, 1], None));
    table.write(&weights(&[(0, 9)])).unwrap();
    table.files.write(&node_path(NodeId(1)), "4").unwrap();
    assert_eq!(table.remembered().unwrap(), None);
    // The next change notes what they left.
    table.write(&weights(&[(0, 2)])).unwrap();
    let noted = table.remembered().unwrap().unwrap();
    assert_eq!(noted.weights, weights(&[(0, 9), (1, 4)]));
    // Another boot began with the kernel's defaults.
    table.boot_id = "the-next".to_owned();
    assert_eq!(table.remembered().unwrap(), None);
}

#[test]
fn the_default_comes_back_in_each_generation() {
    let reset = |fake, hand: &[(u16, u8)]| {
        let folder = tempfile::tempdir().unwrap();
        let mut table = table(&folder, fake);
        table.write(&weights(hand)).unwrap();
        let (change, way) = table.reset().unwrap();
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
    let error = table.write(&weights(&[(0, 2), (1, 3)])).unwrap_err();
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
    let change = table.write(&weights(&[(0, 15), (2, 1)])).unwrap();
    assert_eq!(change.written, []);
    assert_eq!(change.after.auto, Some(true));
    assert_eq!(table.files.writes, 0);
}

#[test]
fn nodes_without_memory_and_zero_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table(&folder, FakeTable::new(&[1, 1, 1], None));
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
        assert_eq!(table.write(&weights(wanted)).unwrap_err().to_string(), said);
    }
    assert_eq!(table.files.writes, 0);
    assert!(!table.state_file.exists());
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
