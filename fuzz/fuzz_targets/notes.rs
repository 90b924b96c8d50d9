//! What is lent, out of any bytes: a note of memtide's, or an error of one line, and in either case
//! the note is still there. Nothing is put back.
#![no_main]

use memtide_linux::fs::Root;
use memtide_linux::lent::{Journal, Kind};
use memtide_linux::live::affinity::Affinities;
use memtide_linux::source::damon;
use memtide_linux::weight_table::WeightTable;

const TABLE: &str = "sys/kernel/mm/mempolicy/weighted_interleave";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else {
        return;
    };
    let folder = std::env::temp_dir().join(format!("fuzz-notes-{}", std::process::id()));
    let root = Root::new(&folder);
    for node in 0..2 {
        let file = root.path(TABLE).join(format!("node{node}"));
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a temporary folder");
        std::fs::write(file, "3\n").expect("a temporary folder");
    }
    let nodes = root.path("sys/devices/system/node");
    std::fs::create_dir_all(&nodes).expect("a temporary folder");
    for set in ["online", "has_memory", "possible"] {
        std::fs::write(nodes.join(set), "0-1\n").expect("a temporary folder");
    }
    let kinds = [Kind::Damon, Kind::Weights, Kind::RunWeights, Kind::Affinity];
    let kind = kinds[usize::from(*which) % kinds.len()];
    let journal = Journal::new(&root, kind);
    drop(journal.turn().expect("a folder of our own"));
    std::fs::write(journal.path(), bytes).expect("a folder of our own");
    let error = match kind {
        Kind::Damon => {
            let options = damon::Options {
                root: folder,
                ..damon::Options::default()
            };
            damon::left_over(&options).err().map(|error| error.to_string())
        }
        Kind::Affinity => Affinities::is_left(&root).err().map(|error| error.to_string()),
        Kind::Weights | Kind::RunWeights => {
            let table = WeightTable::open(&root).expect("a table of two nodes");
            let noted = table.noting_in(journal.clone()).remembered();
            noted.err().map(|error| error.to_string())
        }
    };
    if let Some(error) = error {
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(journal.path().exists());
});
