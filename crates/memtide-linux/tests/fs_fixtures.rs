//! Every reader over whole machines; see `fixtures/README.md`.

use memtide_core::topology::AccessFigures;
use memtide_core::units::NodeId;
use memtide_linux::fs::proc::numa_maps::Mode;
use memtide_linux::fs::proc::{self, Process};
use memtide_linux::fs::{Root, cgroup, meminfo, node, numa, topology, vmstat, zoneinfo};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const MACHINES: [&str; 7] = [
    "one-node",
    "two-sockets",
    "two-sockets-cxl-hmat",
    "cxl-no-hmat",
    "hbm",
    "node-offline",
    "holes",
];

const WEIGHTS_CAME_IN: numa::Release = numa::Release { major: 6, minor: 9 };

fn machine(name: &str) -> Root {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    Root::new(fixtures.join(name))
}

fn ids(ids: &[u16]) -> BTreeSet<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

#[test]
fn every_file_of_every_machine_is_understood() {
    for name in MACHINES {
        let root = machine(name);
        let sets = node::sets(&root).unwrap();
        for id in &sets.online {
            let node = node::node(&root, *id).unwrap().unwrap();
            assert_eq!(
                node.distances.unwrap().len(),
                sets.online.len(),
                "{name} node {id}"
            );
            assert!(vmstat::node(&root, *id).unwrap().is_some());
        }
        vmstat::system(&root).unwrap();
        meminfo::system(&root).unwrap();
        assert!(!zoneinfo::read(&root).unwrap().zones.is_empty());
        assert!(node::tiers(&root).unwrap().is_some());
        let has_weights = numa::release(&root).unwrap() >= Some(WEIGHTS_CAME_IN);
        assert_eq!(node::weights(&root).unwrap().is_some(), has_weights);
        assert!(numa::balancing(&root).unwrap().is_some());
        assert!(numa::lockdown(&root).unwrap().is_some());
        assert_eq!(numa::perf_event_paranoid(&root).unwrap(), Some(3));
        assert!(numa::promote_rate_limit(&root).unwrap().is_some());
        assert!(numa::demotion_enabled(&root).unwrap().is_some());
        assert_eq!(
            cgroup::mount(&root).unwrap(),
            Some(PathBuf::from("/sys/fs/cgroup"))
        );
        let capabilities = numa::capabilities(&root).unwrap().unwrap();
        assert!(capabilities.has(numa::Capability::SysNice));
    }
}

#[test]
fn an_empty_root_is_unknown_and_not_zero() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    assert_eq!(node::tiers(&root).unwrap(), None);
    assert_eq!(node::weights(&root).unwrap(), None);
    assert_eq!(node::node(&root, NodeId(0)).unwrap(), None);
    assert_eq!(vmstat::node(&root, NodeId(0)).unwrap(), None);
    assert_eq!(numa::balancing(&root).unwrap(), None);
    assert_eq!(numa::lockdown(&root).unwrap(), None);
    assert_eq!(numa::demotion_enabled(&root).unwrap(), None);
    let says = node::sets(&root).unwrap_err().to_string();
    assert!(
        says.ends_with(
            "node/online: missing: the list of memory nodes; \
             the kernel needs CONFIG_NUMA and sysfs mounted"
        ),
        "{says}"
    );
}

#[test]
fn holes_leave_ranks_and_ids_apart() {
    let root = machine("holes");
    assert_eq!(node::sets(&root).unwrap().online, ids(&[0, 2, 5]));
    let last = node::node(&root, NodeId(5)).unwrap().unwrap();
    assert!(last.cpus.is_empty());
    assert_eq!(last.distances, Some(vec![30, 40, 10]));
    assert_eq!(node::node(&root, NodeId(1)).unwrap(), None);
    let tiers = node::tiers(&root).unwrap().unwrap();
    assert_eq!(tiers[&4], ids(&[0, 2]));
    assert_eq!(tiers[&54], ids(&[5]));
}

#[test]
fn performance_is_what_a_cpu_sees() {
    let cxl = node::node(&machine("two-sockets-cxl-hmat"), NodeId(2))
        .unwrap()
        .unwrap();
    assert_eq!(cxl.access0.unwrap().read_latency_ns, Some(180));
    assert_eq!(cxl.figures().read_latency_ns, Some(250));
    assert_eq!(cxl.figures().write_bandwidth_mbps, Some(40_000));
    let plain = node::node(&machine("cxl-no-hmat"), NodeId(1))
        .unwrap()
        .unwrap();
    assert_eq!(plain.figures(), AccessFigures::default());
}

#[test]
fn a_node_without_memory_and_one_that_is_away() {
    let root = machine("node-offline");
    let sets = node::sets(&root).unwrap();
    assert_eq!(sets.possible, Some(ids(&[0, 1, 2])));
    assert_eq!(sets.has_memory, Some(ids(&[0])));
    let bare = node::node(&root, NodeId(1)).unwrap().unwrap();
    assert_eq!(bare.memory.total(), Some(0));
    assert_eq!(zoneinfo::read(&root).unwrap().sum(NodeId(1)), None);
    assert_eq!(
        numa::lockdown(&root).unwrap(),
        Some(numa::Lockdown::Integrity)
    );
}

#[test]
fn watermarks_with_and_without_promo() {
    let newer = zoneinfo::read(&machine("hbm")).unwrap();
    let hbm = newer.sum(NodeId(2)).unwrap();
    // 64 GiB in 4 KiB pages, one in 1024 of them the min watermark.
    assert_eq!(hbm.present, Some(64 << 18));
    assert_eq!(hbm.min, Some(16_384));
    assert_eq!(hbm.promo, Some(16_384 * 7 / 4));
    let older = zoneinfo::read(&machine("cxl-no-hmat")).unwrap();
    assert_eq!(older.sum(NodeId(1)).unwrap().promo, None);
}

#[test]
fn counters_that_only_newer_kernels_have() {
    let counter = |name| {
        let stat = vmstat::system(&machine(name)).unwrap();
        stat.get("pgdemote_proactive")
    };
    assert_eq!(counter("two-sockets"), None);
    assert_eq!(counter("hbm"), Some(0));
}

#[test]
fn a_process_on_two_tiers() {
    let root = machine("two-sockets-cxl-hmat");
    let listed = proc::list(&root).unwrap();
    let pids: Vec<u32> = listed.iter().map(|listed| listed.process.pid).collect();
    assert_eq!(pids, [2, 1200]);
    assert!(listed[0].stat.kernel_thread && !listed[0].stat.has_address_space());

    let db = Process::find(&root, 1200).unwrap();
    let stat = db.stat(&root).unwrap();
    assert_eq!(stat.name, "db (main) w");
    assert_eq!((stat.user_ticks, stat.system_ticks), (1234, 567));
    assert_eq!(db.threads(&root).unwrap(), [1200, 1201, 1210]);
    let status = db.status(&root).unwrap();
    assert_eq!(status.namespace_pids, Some(vec![1200, 7]));
    assert_eq!(status.kernel_thread, Some(false));

    let maps = db.maps(&root).unwrap();
    let usage = db.smaps(&root).unwrap();
    let numa = db.numa_maps(&root).unwrap().unwrap();
    assert_eq!(maps.len(), 6);
    for ((mapping, usage), numa) in maps.iter().zip(&usage).zip(&numa) {
        assert_eq!(*mapping, usage.mapping);
        assert_eq!(mapping.start, numa.start);
    }
    assert_eq!(numa[2].policy.mode, Mode::Bind);
    assert_eq!(numa[2].policy.balancing, Some(true));
    assert_eq!(numa[2].bytes_on(NodeId(2)), Some(maps[2].len()));
    assert_eq!(usage[2].anon_huge, Some(maps[2].len()));
    assert!(maps[5].is_special());

    let path = db.cgroup(&root).unwrap().unwrap();
    let group = cgroup::Cgroup::open(&root, path).unwrap();
    assert_eq!(group.processes(&root).unwrap(), BTreeSet::from([1200]));
    let slice = cgroup::Cgroup::open(&root, "/system.slice").unwrap();
    assert_eq!(slice.processes(&root).unwrap(), BTreeSet::from([1200]));
    assert_eq!(slice.effective_mems(&root).unwrap(), Some(ids(&[0, 1, 2])));
}

#[test]
fn an_older_kernel_hides_the_balancing_flag() {
    let root = machine("cxl-no-hmat");
    let db = Process::find(&root, 1200).unwrap();
    assert_eq!(db.status(&root).unwrap().kernel_thread, None);
    let numa = db.numa_maps(&root).unwrap().unwrap();
    assert_eq!(numa[2].policy.balancing, Some(true));
    assert_eq!(numa[3].policy.mode, Mode::PreferMany);
    assert_eq!(numa[3].policy.balancing, None);
}

#[test]
fn the_core_draws_the_conclusions() {
    let read = |name| topology::read(&machine(name)).unwrap();
    let tier = |machine: &topology::Machine, id| {
        machine
            .topology
            .node(NodeId(id))
            .and_then(|node| node.tier)
            .map(|tier| tier.0)
    };

    let cxl = read("two-sockets-cxl-hmat");
    assert_eq!((tier(&cxl, 0), tier(&cxl, 2)), (Some(4), Some(56)));
    assert_eq!(cxl.topology.promotion_target(NodeId(2)), Some(NodeId(0)));
    assert_eq!(cxl.weights.as_ref().unwrap().weights[&NodeId(0)], 7);
    assert_eq!(cxl.weights.as_ref().unwrap().auto, Some(true));
    assert_eq!(cxl.demotion_enabled, Some(true));

    // HBM stands above DRAM: each DRAM node is where its HBM demotes to.
    let hbm = read("hbm");
    let targets = hbm.topology.demotion_targets(NodeId(2));
    assert_eq!(targets.preferred.iter().collect::<Vec<_>>(), [NodeId(0)]);
    assert!(hbm.topology.is_top_tier(NodeId(0)) && hbm.topology.is_top_tier(NodeId(2)));

    // A distance row counts online nodes: node 5's is the third.
    let holes = read("holes");
    assert_eq!(holes.topology.distance(NodeId(2), NodeId(5)), Some(40));
    assert_eq!(holes.weights.as_ref().unwrap().auto, Some(false));

    let away = read("node-offline");
    assert_eq!(away.node(NodeId(2)), None);
    assert_eq!(tier(&away, 1), None);
}

#[test]
fn the_kernels_tiers_are_what_its_figures_give() {
    use memtide_core::topology::abstract_distance;
    for name in ["two-sockets-cxl-hmat", "hbm", "holes"] {
        let machine = topology::read(&machine(name)).unwrap();
        let dram = machine.nodes[0].figures();
        for node in machine.topology.nodes() {
            let adistance = abstract_distance(&node.figures, &dram).unwrap();
            let tier = node.tier.unwrap().0;
            assert_eq!(adistance / 128, tier, "{name} node {}", node.id);
        }
    }
}
