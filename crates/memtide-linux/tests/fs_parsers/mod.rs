//! All parsers by one entry, for the property tests and for `fuzz/`.

use memtide_linux::fs::proc::{maps, numa_maps, smaps, stat, status};
use memtide_linux::fs::{cgroup, list, meminfo, node, numa, pods, pressure, vmstat, zoneinfo};

/// Parses `bytes` as every format and uses what comes out. Must not panic.
pub fn every_parser(bytes: &[u8]) {
    let _ = list::parse(bytes);
    let _ = list::parse_nodes(bytes);
    let _ = list::parse_mask(bytes);
    let _ = vmstat::parse(bytes);
    let _ = meminfo::parse(bytes);
    if let Ok(info) = zoneinfo::parse(bytes) {
        for zone in &info.zones {
            let _ = info.sum(zone.node);
        }
    }
    let _ = node::parse_weight(bytes);
    let _ = node::parse_distances(bytes);
    let _ = numa::parse_balancing(bytes);
    let _ = numa::parse_bool(bytes);
    let _ = numa::parse_release(bytes);
    let _ = numa::parse_lockdown(bytes);
    let _ = cgroup::parse_mounts(bytes);
    let _ = cgroup::parse_membership(bytes);
    let _ = cgroup::parse_procs(bytes);
    let _ = cgroup::parse_cpu_stat(bytes);
    let _ = cgroup::parse_numa_stat(bytes);
    let _ = pressure::parse(bytes);
    let _ = pods::parse(bytes);
    let _ = stat::parse(bytes);
    let _ = status::parse(bytes);
    for mapping in maps::parse(bytes).unwrap_or_default() {
        let _ = (mapping.len(), mapping.is_special());
    }
    let _ = smaps::parse(bytes);
    for mapping in numa_maps::parse(bytes).unwrap_or_default() {
        for (node, _) in &mapping.pages {
            let _ = mapping.bytes_on(*node);
        }
    }
}
