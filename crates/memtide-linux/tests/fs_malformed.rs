//! One broken file in an otherwise good machine, and the sentence it earns.
//!
//! The whole sentence is asserted: path, line, item and what was wrong.

use memtide_core::units::NodeId;
use memtide_linux::fs::proc::{self, Process};
use memtide_linux::fs::{FsError, Root, cgroup, meminfo, node, numa, topology, vmstat, zoneinfo};
use std::fs;
use std::path::Path;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A copied machine in which files can be broken.
struct Broken(tempfile::TempDir);

impl Broken {
    fn new() -> Broken {
        let dir = tempfile::tempdir().unwrap();
        let good =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/two-sockets-cxl-hmat");
        copy(&good, dir.path());
        Broken(dir)
    }

    /// Puts `content` into `file`, and checks that `read` says `sentence`
    /// behind the file's path.
    fn says<T: std::fmt::Debug>(
        &self,
        file: &str,
        content: impl AsRef<[u8]>,
        read: impl Fn(&Root) -> Result<T, FsError>,
        sentence: &str,
    ) {
        let root = Root::new(self.0.path());
        let path = root.path(file);
        read(&root).unwrap_or_else(|error| panic!("good {file}: {error}"));
        let good = fs::read(&path).unwrap();
        fs::write(&path, content).unwrap();
        let error = read(&root).expect_err(file).to_string();
        fs::write(&path, good).unwrap();
        assert_eq!(error, format!("{}:{sentence}", path.display()));
    }
}

#[test]
fn nodes() {
    let broken = Broken::new();
    let node2 = |root: &Root| node::node(root, NodeId(2));
    broken.says(
        "sys/devices/system/node/online",
        "0-2,x\n",
        node::sets,
        "1: node list: \"x\" is not an unsigned number",
    );
    broken.says(
        "sys/devices/system/node/has_cpu",
        "9000\n",
        node::sets,
        "1: node list: node 9000 is not below 1024",
    );
    broken.says(
        "sys/devices/system/node/node2/distance",
        "24 34 3\n",
        node2,
        "1: distance: 3 is not in 10-255",
    );
    broken.says(
        "sys/devices/system/node/node2/cpulist",
        "7-3\n",
        node2,
        "1: list: range \"7-3\" is backwards or too large",
    );
    broken.says(
        "sys/devices/system/node/node2/meminfo",
        "Node 2 MemTotal: 5 kB\nNode 2 MemFree: lots kB\n",
        node2,
        "2: MemFree: \"lots\" is not an unsigned number",
    );
    broken.says(
        "sys/devices/system/node/node2/access1/initiators/read_latency",
        "fast\n",
        node2,
        "1: read_latency: \"fast\" is not an unsigned number",
    );
    broken.says(
        "sys/devices/virtual/memory_tiering/memory_tier56/nodelist",
        "2-\n",
        node::tiers,
        "1: node list: \"\" is not an unsigned number",
    );
    broken.says(
        "sys/kernel/mm/mempolicy/weighted_interleave/node2",
        "300\n",
        node::weights,
        "1: weight: 300 is too large",
    );
    broken.says(
        "sys/kernel/mm/mempolicy/weighted_interleave/auto",
        "perhaps\n",
        node::weights,
        "1: switch: \"perhaps\" is neither true nor false",
    );
}

#[test]
fn nodes_that_contradict_each_other() {
    let broken = Broken::new();
    broken.says(
        "sys/devices/system/node/node2/meminfo",
        "Node 2 MemFree: 5 kB\n",
        topology::read,
        "1: MemTotal: missing",
    );
    let root = Root::new(broken.0.path());
    let row = root.path("sys/devices/system/node/node2/distance");
    fs::write(&row, "24 34\n").unwrap();
    let nodes = root.path("sys/devices/system/node");
    assert_eq!(
        topology::read(&root).unwrap_err().to_string(),
        format!(
            "{}: node 2: its distance row has 2 entries for 3 online nodes; \
             give one distance per online node in ascending order of id",
            nodes.display()
        )
    );
}

#[test]
fn whole_system() {
    let broken = Broken::new();
    broken.says(
        "proc/vmstat",
        "numa_hit 5\nnuma_miss\n",
        vmstat::system,
        "2: counter: \"numa_miss\" is not \"name value\"",
    );
    broken.says(
        "proc/meminfo",
        "MemTotal: 5 MB\n",
        meminfo::system,
        "1: MemTotal: \"MemTotal: 5 MB\" is not in kB",
    );
    broken.says(
        "proc/zoneinfo",
        "Node 0, zone Normal\n  pages free some\n",
        zoneinfo::read,
        "2: free: \"some\" is not an unsigned number",
    );
    broken.says(
        "proc/sys/kernel/numa_balancing",
        "8\n",
        numa::balancing,
        "1: numa_balancing: 8 is no mode known here",
    );
    broken.says(
        "proc/sys/kernel/osrelease",
        "unknown\n",
        numa::release,
        "1: release: \"unknown\" does not begin with \"major.minor\"",
    );
    broken.says(
        "sys/kernel/mm/numa/demotion_enabled",
        "",
        numa::demotion_enabled,
        "1: switch: \"\" is neither true nor false",
    );
    broken.says(
        "sys/kernel/security/lockdown",
        "none\n",
        numa::lockdown,
        "1: lockdown: \"none\\n\" has no state known here in brackets",
    );
    broken.says(
        "proc/self/status",
        "Name:\tx\nCapEff:\tall\n",
        numa::capabilities,
        "2: CapEff: \"all\" is not a hexadecimal number",
    );
    broken.says(
        "proc/self/mountinfo",
        "23 29 0:21 /\n",
        cgroup::mount,
        "1: mount: \"23 29 0:21 /\" has no mount point and type",
    );
}

#[test]
fn processes() {
    let broken = Broken::new();
    let db = Process::find(&Root::new(broken.0.path()), 1200).unwrap();
    broken.says(
        "proc/1200/stat",
        "1200 (db",
        proc::list,
        "1: comm: no name in parentheses in \"1200 (db\"",
    );
    broken.says(
        "proc/1200/status",
        "Tgid:\t1200\nMems_allowed_list:\t0-2-4\n",
        |root| db.status(root),
        "2: Mems_allowed_list: \"2-4\" is not an unsigned number",
    );
    broken.says(
        "proc/1200/maps",
        "1000-2000 rw-p 00000000 00:00 0\n1800-3000 rw-p 00000000 00:00 0\n",
        |root| db.maps(root),
        "2: address range: 1800 begins inside or before the mapping above",
    );
    broken.says(
        "proc/1200/smaps",
        "Rss: 4 kB\n",
        |root| db.smaps(root),
        "1: Rss: stands before any mapping",
    );
    broken.says(
        "proc/1200/numa_maps",
        b"1000 default\n2000 bind=\xff:0 anon=1\n",
        |root| db.numa_maps(root),
        "2: policy: \"\\xff\" is no policy flag known here",
    );
    broken.says(
        "proc/1200/cgroup",
        "0\n",
        |root| db.cgroup(root),
        "1: cgroup: \"0\" is not \"id:controllers:path\"",
    );
    broken.says(
        "sys/fs/cgroup/system.slice/db.service/cgroup.procs",
        "1200\nmany\n",
        |root| cgroup::Cgroup::open(root, "/system.slice")?.processes(root),
        "2: pid: \"many\" is not an unsigned number",
    );
}
