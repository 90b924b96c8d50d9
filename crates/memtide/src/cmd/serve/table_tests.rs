//! The table of a machine that is a folder.

use super::*;
use crate::shared::configuration::Files;
use memtide_linux::fs::{Root, node};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const NODES: &str = "sys/devices/system/node";
const KERNELS: &str = "sys/kernel/mm/mempolicy/weighted_interleave";

/// Of two nodes, with a table that reads 4 and 1.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        machine.put(&format!("{NODES}/online"), "0-1\n");
        machine.put(&format!("{NODES}/has_memory"), "0-1\n");
        machine.put("proc/sys/kernel/random/boot_id", "this-boot\n");
        for (node, weight) in [(0, 4), (1, 1)] {
            machine.put(&format!("{KERNELS}/node{node}"), &format!("{weight}\n"));
        }
        machine
    }

    /// Only its owner may change it, as it is with the files of the configuration.
    fn put(&self, path: &str, text: &str) {
        let mut folder = self.0.path().to_owned();
        for part in Path::new(path).parent().unwrap() {
            folder.push(part);
            let _ = std::fs::create_dir(&folder);
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let path = self.0.path().join(path);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    }

    fn context(&self) -> Context {
        Context {
            root: Root::new(self.0.path()),
            json: false,
            styled: false,
        }
    }

    fn reads(&self) -> String {
        in_words(
            &node::weights(&self.context().root)
                .unwrap()
                .unwrap()
                .weights,
        )
    }

    fn configured(&self, text: &str) -> Configuration {
        self.put("etc/memtide/memtide.toml", text);
        let files = Files::new(None, &self.context().root);
        files.read().unwrap().0
    }

    fn follow(&self, table: &mut Table, text: &str) -> Result<Vec<String>, String> {
        let done = table.follow(&self.context(), &self.configured(text));
        done.map_err(|why| causes(&why))
    }
}

#[test]
fn the_table_follows_the_configuration_and_is_put_back() {
    let machine = Machine::new();
    let mut table = Table::default();
    assert!(machine.follow(&mut table, "").unwrap().is_empty());
    assert_eq!(machine.reads(), "0=4,1=1");
    let said = machine.follow(&mut table, "weights.table = '0=3,1=2'");
    let until = |weights| {
        vec![format!(
            "the kernel's interleave weights are {weights} until the service ends"
        )]
    };
    assert_eq!(said.unwrap(), until("0=3,1=2"));
    assert_eq!(machine.reads(), "0=3,1=2");
    assert_eq!(table.weights().as_deref(), Some("0=3,1=2"));
    // What the new one does not name is as it was found.
    let said = machine.follow(&mut table, "weights.table = '0=9'");
    assert_eq!(said.unwrap(), until("0=9"));
    assert_eq!(machine.reads(), "0=9,1=1");
    assert!(
        machine
            .follow(&mut table, "weights.table = '0=9'")
            .unwrap()
            .is_empty()
    );
    machine.follow(&mut table, "").unwrap();
    assert_eq!(
        (machine.reads().as_str(), table.weights()),
        ("0=4,1=1", None)
    );
    machine.follow(&mut table, "weights.table = '1=7'").unwrap();
    assert_eq!(table.give_back().unwrap(), None);
    assert_eq!(machine.reads(), "0=4,1=1");
    // On any other way out, too.
    machine.follow(&mut table, "weights.table = '1=7'").unwrap();
    drop(table);
    assert_eq!(machine.reads(), "0=4,1=1");
}

#[test]
fn a_dry_run_writes_nothing_and_gives_back_what_it_had() {
    let machine = Machine::new();
    let mut table = Table::default();
    let dry = "weights = { table = '0=3', dry_run = true }";
    let said = machine.follow(&mut table, dry).unwrap();
    assert_eq!(said, ["would have the kernel's interleave weights be 0=3"]);
    assert_eq!(machine.reads(), "0=4,1=1");
    machine.follow(&mut table, "weights.table = '0=3'").unwrap();
    assert_eq!(machine.reads(), "0=3,1=1");
    machine.follow(&mut table, dry).unwrap();
    assert_eq!(machine.reads(), "0=4,1=1");
}

#[test]
fn what_this_machine_cannot_have_is_refused_with_its_place() {
    let machine = Machine::new();
    let mut table = Table::default();
    machine.follow(&mut table, "weights.table = '0=3'").unwrap();
    let refused = |table: &mut Table, text: &str| {
        let why = machine.follow(table, text).unwrap_err();
        let (place, why) = why.split_once(": table: ").unwrap();
        assert!(place.ends_with("memtide.toml:1:17"), "{place}");
        why.to_owned()
    };
    let why = refused(&mut table, "weights.table = '0=3,7=1'");
    assert_eq!(why, "node 7 does not exist; nodes with memory: 0-1");
    // What was in force is.
    assert_eq!(machine.reads(), "0=3,1=1");
    drop(table);
    std::fs::remove_dir_all(machine.0.path().join(KERNELS)).unwrap();
    let why = refused(&mut Table::default(), "weights.table = '0=3'");
    assert!(
        why.contains("has no table of interleave weights; Linux has it since 6.9"),
        "{why}"
    );
    assert!(machine.follow(&mut Table::default(), "").is_ok());
}

#[test]
fn somebody_else_may_have_the_table_or_have_changed_it() {
    let machine = Machine::new();
    let (mut one, mut other) = (Table::default(), Table::default());
    machine.follow(&mut one, "weights.table = '0=3'").unwrap();
    let why = machine
        .follow(&mut other, "weights.table = '0=5'")
        .unwrap_err();
    assert!(
        why.starts_with("another memtide run or service has written"),
        "{why}"
    );
    machine.put(&format!("{KERNELS}/node0"), "8\n");
    assert_eq!(one.give_back().unwrap().as_deref(), Some(THEIRS));
    assert_eq!(machine.reads(), "0=8,1=1");
}

/// As after kill -9: nothing of the killed service runs to put it back.
#[test]
fn what_a_killed_service_left_is_put_back_before_anything_else() {
    let machine = Machine::new();
    let mut killed = Table::default();
    machine
        .follow(&mut killed, "weights.table = '0=3'")
        .unwrap();
    let note = "run/memtide/run-weights.json";
    let left = std::fs::read_to_string(machine.0.path().join(note)).unwrap();
    drop(killed);
    machine.put(note, &left);
    machine.put(&format!("{KERNELS}/node0"), "3\n");
    let mut table = Table::default();
    let said = machine.follow(&mut table, "weights.table = '1=7'").unwrap();
    assert!(
        said[0].starts_with("put back the interleave weights that a killed"),
        "{said:?}"
    );
    assert_eq!(machine.reads(), "0=4,1=7");
    table.give_back().unwrap();
    assert_eq!(machine.reads(), "0=4,1=1");
}
