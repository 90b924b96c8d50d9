//! What commonly keeps slow memory from being used, or used well: memory that the
//! kernel was not given, the zones that it is in, and settings that work against it.
//!
//! All of it is read. What is found is advice: it may be meant to be so.

use super::check::{Check, Finding, State};
use super::machine::unreadable;
use crate::shared::outside::outside;
use crate::shared::words::amount;
use memtide_core::topology::Topology;
use memtide_core::units::NodeId;
use memtide_linux::fs::hotplug::{self, Blocks, Cxl, Dax};
use memtide_linux::fs::zoneinfo::{self, ZoneInfo};
use memtide_linux::fs::{self, Root};

/// So many times as much memory that only programs can use as other memory, and the
/// kernel may run short of room for its own: four times is the most that its
/// documentation calls fine (`Documentation/admin-guide/mm/memory-hotplug`).
const MOST_MOVABLE: u64 = 4;

/// The checks, in the order in which memory comes to be used.
pub fn checks(root: &Root, topology: Option<&Topology>) -> Vec<Check> {
    let lower: Vec<NodeId> = topology
        .iter()
        .flat_map(|topology| topology.nodes())
        .filter(|node| !node.top_tier && node.has_memory())
        .map(|node| node.id)
        .collect();
    let check = |name, found: fs::Result<Finding>| {
        Check::named(name, found.unwrap_or_else(|error| unreadable(&error)))
    };
    let devices = || Ok(devices(&hotplug::dax(root)?, &hotplug::cxl(root)?));
    let blocks = || {
        let policy = hotplug::auto_online(root)?;
        Ok(match hotplug::blocks(root)? {
            Some(all) => blocks(&all, policy.as_deref()),
            None => Finding::new(State::Unavailable, "this kernel cannot plug memory"),
        })
    };
    vec![
        check("memory_devices", devices()),
        check("memory_blocks", blocks()),
        check("zones", zoneinfo::read(root).map(|all| zones(&all, &lower))),
        check(
            "memmap_on_memory",
            hotplug::memmap_on_memory(root).map(memmap),
        ),
        check(
            "zswap",
            hotplug::zswap(root).map(|on| zswap(on, !lower.is_empty())),
        ),
    ]
}

/// Memory that is a device still.
fn devices(dax: &[Dax], cxl: &Cxl) -> Finding {
    let mut advice = Vec::new();
    if cxl.regions == 0 && !cxl.memory.is_empty() {
        let bytes = cxl
            .memory
            .iter()
            .fold(0, |all, one| one.1.saturating_add(all));
        let names: Vec<_> = cxl.memory.iter().map(|(name, _)| outside(name)).collect();
        advice.push(format!(
            "{} of CXL memory ({}) in no region; make one with cxl create-region",
            amount(bytes),
            names.join(", ")
        ));
    }
    for device in dax.iter().filter(|device| !device.is_memory) {
        let name = outside(&device.name);
        let bytes = device.bytes.map_or("memory".to_owned(), amount);
        let node = device
            .node
            .map_or(String::new(), |node| format!(" of node {node}"));
        advice.push(format!(
            "{name} holds {bytes}{node} as a device; make it memory with \
             daxctl reconfigure-device --mode=system-ram {name}"
        ));
    }
    if !advice.is_empty() {
        return Finding::new(State::Advice, advice.join("; "));
    }
    match dax.len() {
        0 => Finding::new(State::Set, "no memory is a device"),
        1 => Finding::new(State::Works, format!("{} is memory", outside(&dax[0].name))),
        all => Finding::new(State::Works, format!("all {all} DAX devices are memory")),
    }
}

/// Blocks that are offline, and what becomes of new ones.
fn blocks(blocks: &Blocks, policy: Option<&str>) -> Finding {
    let new = match policy {
        Some("offline") => "new ones stay offline until somebody sets them online",
        Some("online_movable") => "new ones come online for programs only",
        Some("online" | "online_kernel") => "new ones come online",
        _ => "what becomes of new ones is not said",
    };
    let size = amount(blocks.bytes);
    let offline: u64 = blocks.offline.values().sum();
    if offline == 0 {
        let text = format!("all {} blocks of {size} are online; {new}", blocks.online);
        return Finding::new(State::Set, text);
    }
    let of = if offline == 1 {
        "block of"
    } else {
        "blocks of"
    };
    let places: Vec<String> = blocks
        .offline
        .iter()
        .map(|(node, count)| {
            let bytes = amount(count.saturating_mul(blocks.bytes));
            let node = node.map_or("a node that is not told".to_owned(), |node| {
                format!("node {node}")
            });
            format!("{bytes} of {node}")
        })
        .collect();
    Finding::new(
        State::Advice,
        format!(
            "{} offline ({offline} {of} {size}); set them online with daxctl online-memory, \
             or write online_movable to each block's state; {new}",
            places.join(", ")
        ),
    )
}

/// Whether the kernel's own data can come to lie on slow memory, and whether there
/// is enough other memory for it.
fn zones(all: &ZoneInfo, lower: &[NodeId]) -> Finding {
    let pages = |node: Option<NodeId>, movable: bool| -> u64 {
        let of = all.zones.iter().filter(|zone| {
            node.is_none_or(|node| zone.node == node)
                && zone.name != "Device"
                && (zone.name == "Movable") == movable
        });
        of.filter_map(|zone| zone.managed).sum()
    };
    let mut advice: Vec<String> = lower
        .iter()
        .filter(|node| pages(Some(**node), false) > 0)
        .map(|node| {
            let (kernel, movable) = (pages(Some(*node), false), pages(Some(*node), true));
            let percent = kernel.saturating_mul(100).div_ceil(kernel + movable);
            format!(
                "{percent} % of node {node} may hold the kernel's own data, which is slow there \
                 and does not move; set its blocks online as online_movable"
            )
        })
        .collect();
    let (kernel, movable) = (pages(None, false), pages(None, true));
    if movable > kernel.saturating_mul(MOST_MOVABLE) {
        advice.push(format!(
            "{} times as much memory is for programs only (zone Movable) as for the kernel as well; \
             it may run short of room for page tables",
            movable / kernel.max(1)
        ));
    }
    match (advice.is_empty(), lower.is_empty()) {
        (false, _) => Finding::new(State::Advice, advice.join("; ")),
        (true, true) => Finding::new(State::Set, "no slow memory"),
        (true, false) => Finding::new(State::Works, "slow memory is for programs only"),
    }
}

fn memmap(on: Option<bool>) -> Finding {
    match on {
        Some(true) => Finding::new(
            State::Set,
            "on: the metadata of plugged memory (1.6 %) lies in that memory, and is as slow",
        ),
        Some(false) => Finding::new(
            State::Set,
            "off: the metadata of plugged memory (1.6 %) takes fast memory",
        ),
        None => Finding::new(State::Unavailable, "this kernel cannot plug memory"),
    }
}

fn zswap(on: Option<bool>, two_tiers: bool) -> Finding {
    match (on, two_tiers) {
        (None, _) => Finding::new(State::Set, "not in this kernel"),
        (Some(false), _) => Finding::new(State::Set, "off"),
        (Some(true), false) => Finding::new(State::Set, "on"),
        (Some(true), true) => Finding::new(
            State::Advice,
            "on: pages that reclaim takes from slow memory come back onto fast memory at their first \
             use, however cold they are; turn it off unless slow memory is scarce",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_linux::fs::zoneinfo::Zone;

    fn zone(node: u16, name: &str, managed: u64) -> Zone {
        Zone {
            node: NodeId(node),
            name: name.to_owned(),
            free: None,
            min: None,
            low: None,
            high: None,
            promo: None,
            present: None,
            managed: Some(managed),
        }
    }

    #[test]
    fn memory_that_is_a_device_is_named_with_its_remedy() {
        assert_eq!(devices(&[], &Cxl::default()).state, State::Set);
        let mut dax = Dax {
            name: "dax0.0".to_owned(),
            bytes: Some(16 << 30),
            node: Some(NodeId(2)),
            is_memory: false,
        };
        let found = devices(std::slice::from_ref(&dax), &Cxl::default());
        assert_eq!(found.state, State::Advice);
        assert_eq!(
            found.detail,
            "dax0.0 holds 16.0 GiB of node 2 as a device; make it memory with \
             daxctl reconfigure-device --mode=system-ram dax0.0"
        );
        dax.is_memory = true;
        let cxl = Cxl {
            memory: vec![("mem0".to_owned(), 1 << 30)],
            regions: 1,
        };
        assert_eq!(devices(&[dax], &cxl).state, State::Works);
        let found = devices(&[], &Cxl { regions: 0, ..cxl });
        assert_eq!(
            found.detail,
            "1.0 GiB of CXL memory (mem0) in no region; make one with cxl create-region"
        );
    }

    #[test]
    fn offline_blocks_are_advice_and_the_policy_alone_is_not() {
        let mut all = Blocks {
            bytes: 128 << 20,
            online: 8,
            offline: Default::default(),
        };
        let found = blocks(&all, Some("offline"));
        assert_eq!(found.state, State::Set);
        assert_eq!(
            found.detail,
            "all 8 blocks of 128.0 MiB are online; new ones stay offline until somebody sets them online"
        );
        all.offline = [(Some(NodeId(2)), 16)].into_iter().collect();
        let found = blocks(&all, None);
        assert_eq!(found.state, State::Advice);
        assert!(
            found
                .detail
                .starts_with("2.0 GiB of node 2 offline (16 blocks of 128.0 MiB); "),
            "{}",
            found.detail
        );
    }

    #[test]
    fn slow_memory_for_the_kernel_and_too_little_other_memory_are_told() {
        let lower = [NodeId(2)];
        let all = |zones: Vec<Zone>| ZoneInfo { zones };
        let good = all(vec![
            zone(0, "Normal", 100),
            zone(2, "Normal", 0),
            zone(2, "Movable", 400),
            zone(2, "Device", 1000),
        ]);
        assert_eq!(zones(&good, &lower).state, State::Works);
        assert_eq!(zones(&good, &[]).state, State::Set);
        let mixed = all(vec![
            zone(0, "Normal", 100),
            zone(2, "Normal", 1),
            zone(2, "Movable", 999),
        ]);
        let found = zones(&mixed, &lower);
        assert_eq!(found.state, State::Advice);
        assert!(
            found.detail.starts_with("1 % of node 2 may hold"),
            "{}",
            found.detail
        );
        assert!(
            found.detail.contains("9 times as much memory"),
            "{}",
            found.detail
        );
    }

    #[test]
    fn zswap_matters_where_there_is_slow_memory() {
        assert_eq!(zswap(Some(true), false).state, State::Set);
        assert_eq!(zswap(Some(true), true).state, State::Advice);
        assert_eq!(zswap(None, true).state, State::Set);
    }
}
