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

/// A share of a slow node in which the kernel may keep its own data that is not worth
/// a word, in percent.
const FEW_PERCENT: u64 = 5;

/// The nodes that matter here.
struct Nodes {
    /// Slow ones with memory.
    lower: Vec<NodeId>,
    /// Those with processors: what is offline there is no slow memory.
    with_cpus: Vec<NodeId>,
    /// Whether there is memory without processors, slow or not.
    bare: bool,
}

/// The checks, in the order in which memory comes to be used.
pub fn checks(root: &Root, topology: Option<&Topology>) -> Vec<Check> {
    let all = || topology.iter().flat_map(|topology| topology.nodes());
    let nodes = &Nodes {
        lower: all()
            .filter(|node| !node.top_tier && node.has_memory())
            .map(|node| node.id)
            .collect(),
        with_cpus: all()
            .filter(|node| !node.cpus.is_empty())
            .map(|node| node.id)
            .collect(),
        bare: all().any(|node| node.has_memory() && node.cpus.is_empty()),
    };
    let plugged = || {
        let policy = hotplug::auto_online(root)?;
        Ok(match hotplug::blocks(root)? {
            Some(all) => blocks(&all, policy.as_deref(), nodes),
            None => Finding::new(State::Unavailable, "this kernel cannot plug memory"),
        })
    };
    let on_buses = || Ok(devices(&hotplug::dax(root)?, &hotplug::cxl(root)?, nodes));
    let swap = || {
        let swap = hotplug::has_swap(root)?.unwrap_or(false);
        Ok(zswap(hotplug::zswap(root)?, swap, nodes))
    };
    vec![
        check("memory_devices", on_buses()),
        check("memory_blocks", plugged()),
        check("zones", zoneinfo::read(root).map(|all| zones(&all, nodes))),
        check(
            "memmap_on_memory",
            hotplug::memmap_on_memory(root).map(memmap),
        ),
        check("zswap", swap()),
    ]
}

/// What cannot be read is not known. Nothing that memtide needs is broken by that.
fn check(name: &'static str, found: fs::Result<Finding>) -> Check {
    let finding = found.unwrap_or_else(|error| match unreadable(&error) {
        Finding {
            state: State::Broken,
            detail,
            ..
        } => Finding::new(State::Unavailable, detail),
        other => other,
    });
    Check::named(name, finding)
}

/// Memory that is a device still.
fn devices(dax: &[Dax], cxl: &Cxl, nodes: &Nodes) -> Finding {
    let mut advice = Vec::new();
    // Firmware may have mapped the memory, and Linux has no regions before 6.3: then it is
    // a node already.
    let in_use = nodes.bare || dax.iter().any(|device| device.is_memory);
    if cxl.regions == 0 && !cxl.memory.is_empty() && !in_use {
        let bytes = cxl
            .memory
            .iter()
            .fold(0, |all: u64, (_, bytes)| all.saturating_add(*bytes));
        let names: Vec<_> = cxl.memory.iter().map(|(name, _)| outside(name)).collect();
        advice.push(format!(
            "{} of CXL memory ({names}) in no region; on Linux 6.3 and later make one with \
             cxl create-region -m -t ram -d DECODER {}",
            amount(bytes),
            names[0],
            names = names.join(", "),
        ));
    }
    let held = dax
        .iter()
        .filter(|device| !device.is_memory && device.bytes != Some(0));
    for device in held {
        let name = outside(&device.name);
        let bytes = device.bytes.map_or("memory".to_owned(), amount);
        advice.push(match device.node {
            Some(node) => format!(
                "{name} holds {bytes} of node {node} as a device; unless somebody keeps data in it, \
                 make it memory with daxctl reconfigure-device --mode=system-ram {name}"
            ),
            None => {
                format!("{name} holds {bytes} as a device of no node, and cannot become memory")
            }
        });
    }
    if !advice.is_empty() {
        return Finding::new(State::Advice, advice.join("; "));
    }
    let memory = dax.iter().filter(|device| device.is_memory).count();
    match memory {
        0 => Finding::new(State::Set, "no memory is a device"),
        1 => Finding::new(State::Works, "one DAX device is memory"),
        all => Finding::new(State::Works, format!("{all} DAX devices are memory")),
    }
}

/// Blocks that are offline, and what becomes of new ones.
fn blocks(blocks: &Blocks, policy: Option<&str>, nodes: &Nodes) -> Finding {
    let new = match policy {
        Some("offline") => "new ones stay offline until somebody sets them online",
        Some("online_movable") => "new ones come online for programs only",
        Some("online" | "online_kernel") => "new ones come online",
        _ => "what becomes of new ones is not said",
    };
    let size = amount(blocks.bytes);
    if blocks.offline.is_empty() {
        let text = format!("all {} blocks of {size} are online; {new}", blocks.online);
        return Finding::new(State::Set, text);
    }
    // Of nodes with processors it may be memory that failed, or that a host took back.
    let is_slow = |node: &Option<NodeId>| node.is_none_or(|node| !nodes.with_cpus.contains(&node));
    let place = |(node, count): (&Option<NodeId>, &u64)| {
        let bytes = amount(count.saturating_mul(blocks.bytes));
        let blocks = if *count == 1 { "block" } else { "blocks" };
        let node = node.map_or("a node that is not told".to_owned(), |node| {
            format!("node {node}")
        });
        format!("{bytes} of {node} ({count} {blocks} of {size})")
    };
    let places: Vec<String> = blocks.offline.iter().map(place).collect();
    let places = places.join(", ");
    match blocks.offline.keys().any(is_slow) {
        true => Finding::new(
            State::Advice,
            format!(
                "{places} offline; set slow memory online with daxctl online-memory DEVICE, or \
                 write online_movable to the state of its blocks; {new}"
            ),
        ),
        false => Finding::new(State::Set, format!("{places} offline; {new}")),
    }
}

/// Whether the kernel's own data can come to lie on slow memory, and whether there
/// is enough other memory for it.
fn zones(all: &ZoneInfo, nodes: &Nodes) -> Finding {
    let pages = |node: Option<NodeId>, movable: bool| -> u64 {
        let of = all.zones.iter().filter(|zone| {
            node.is_none_or(|node| zone.node == node)
                && zone.name != "Device"
                && (zone.name == "Movable") == movable
        });
        of.filter_map(|zone| zone.managed)
            .fold(0, u64::saturating_add)
    };
    if all.zones.iter().any(|zone| zone.managed.is_none()) {
        return Finding::new(
            State::Unavailable,
            "the kernel does not tell sizes of zones",
        );
    }
    let share = |node: NodeId| {
        let (kernel, movable) = (pages(Some(node), false), pages(Some(node), true));
        let all = u128::from(kernel) + u128::from(movable);
        let percent = (u128::from(kernel) * 100).checked_div(all).unwrap_or(0) as u64;
        (percent >= FEW_PERCENT).then_some((node, percent))
    };
    let mut advice: Vec<String> = nodes
        .lower
        .iter()
        .copied()
        .filter_map(share)
        .map(|(node, percent)| {
            format!(
                "{percent} % of node {node} may hold the kernel's own data, which is slow there and \
                 does not move; new blocks are for programs only with auto_online_blocks=online_movable"
            )
        })
        .collect();
    let (kernel, movable) = (pages(None, false), pages(None, true));
    if movable > kernel.saturating_mul(MOST_MOVABLE) {
        advice.push(format!(
            "{:.1} times as much memory is for programs only (zone Movable) as for the kernel as well; \
             it may run short of room for page tables",
            movable as f64 / kernel.max(1) as f64
        ));
    }
    match (advice.is_empty(), nodes.lower.is_empty()) {
        (false, _) => Finding::new(State::Advice, advice.join("; ")),
        (true, true) => Finding::new(State::Set, "no slow memory"),
        (true, false) => Finding::new(State::Works, "slow memory is for programs"),
    }
}

fn memmap(on: Option<bool>) -> Finding {
    match on {
        Some(true) => Finding::new(
            State::Set,
            "on: the metadata of memory whose device asks for it (memmap_on_memory) lies in that \
             memory, and is as slow",
        ),
        Some(false) => Finding::new(
            State::Set,
            "off: the metadata of new memory, 1.6 % of it with pages of 4 KiB, takes memory that \
             was there before",
        ),
        None => Finding::new(State::Unavailable, "this kernel has no such option"),
    }
}

fn zswap(on: Option<bool>, swap: bool, nodes: &Nodes) -> Finding {
    match (on, swap) {
        (None, _) => Finding::new(State::Set, "not in this kernel"),
        (Some(false), _) => Finding::new(State::Set, "off"),
        (Some(true), false) => Finding::new(State::Set, "on, and without swap it does nothing"),
        (Some(true), true) if nodes.lower.is_empty() => Finding::new(State::Set, "on"),
        (Some(true), true) => Finding::new(
            State::Advice,
            "on: what is swapped out comes back onto fast memory at its first use, however cold it \
             is; memory.swap.max=0 keeps a cgroup's pages on slow memory instead",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_linux::fs::zoneinfo::Zone;

    fn nodes(lower: &[u16]) -> Nodes {
        Nodes {
            lower: lower.iter().copied().map(NodeId).collect(),
            with_cpus: vec![NodeId(0)],
            bare: false,
        }
    }

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

    fn dax(node: Option<u16>, bytes: u64, is_memory: bool) -> Dax {
        Dax {
            name: "dax0.0".to_owned(),
            bytes: Some(bytes),
            node: node.map(NodeId),
            is_memory,
        }
    }

    #[test]
    fn memory_that_is_a_device_is_named_with_its_remedy() {
        let none = &nodes(&[]);
        let find = |dax: &[Dax]| devices(dax, &Cxl::default(), none);
        assert_eq!(find(&[]).state, State::Set);
        let found = find(&[dax(Some(2), 16 << 30, false)]);
        assert_eq!(found.state, State::Advice);
        assert_eq!(
            found.detail,
            "dax0.0 holds 16.0 GiB of node 2 as a device; unless somebody keeps data in it, \
             make it memory with daxctl reconfigure-device --mode=system-ram dax0.0"
        );
        assert_eq!(find(&[dax(Some(2), 16 << 30, true)]).state, State::Works);
        // What holds nothing is no memory that lacks.
        assert_eq!(find(&[dax(Some(2), 0, false)]).state, State::Set);
        let found = find(&[dax(None, 1 << 30, false)]);
        assert!(
            found.detail.ends_with("cannot become memory"),
            "{}",
            found.detail
        );
    }

    #[test]
    fn cxl_memory_in_no_region_is_told_unless_it_is_in_use() {
        let cxl = Cxl {
            memory: vec![("mem0".to_owned(), 1 << 30)],
            regions: 0,
        };
        let found = devices(&[], &cxl, &nodes(&[]));
        assert_eq!(
            found.detail,
            "1.0 GiB of CXL memory (mem0) in no region; on Linux 6.3 and later make one with \
             cxl create-region -m -t ram -d DECODER mem0"
        );
        let firmware = Nodes {
            bare: true,
            ..nodes(&[2])
        };
        assert_eq!(devices(&[], &cxl, &firmware).state, State::Set);
        let taken = [dax(Some(2), 1 << 30, true)];
        assert_eq!(devices(&taken, &cxl, &nodes(&[])).state, State::Works);
        let regions = Cxl { regions: 1, ..cxl };
        assert_eq!(devices(&[], &regions, &nodes(&[])).state, State::Set);
    }

    #[test]
    fn offline_blocks_of_slow_memory_are_advice_and_others_are_not() {
        let mut all = Blocks {
            bytes: 128 << 20,
            online: 8,
            offline: Default::default(),
        };
        let find = |all: &Blocks, policy| blocks(all, policy, &nodes(&[]));
        let found = find(&all, Some("offline"));
        assert_eq!(found.state, State::Set);
        assert_eq!(
            found.detail,
            "all 8 blocks of 128.0 MiB are online; new ones stay offline until somebody sets them online"
        );
        all.offline = [(Some(NodeId(0)), 1)].into_iter().collect();
        let found = find(&all, None);
        assert_eq!(found.state, State::Set);
        assert!(
            (found.detail).starts_with("128.0 MiB of node 0 (1 block of 128.0 MiB) offline; "),
            "{}",
            found.detail
        );
        all.offline = [(Some(NodeId(2)), 16)].into_iter().collect();
        let found = find(&all, None);
        assert_eq!(found.state, State::Advice);
        assert!(
            (found.detail).starts_with("2.0 GiB of node 2 (16 blocks of 128.0 MiB) offline; "),
            "{}",
            found.detail
        );
    }

    #[test]
    fn slow_memory_for_the_kernel_and_too_little_other_memory_are_told() {
        let lower = &nodes(&[2]);
        let all = |zones: Vec<Zone>| ZoneInfo { zones };
        let good = all(vec![
            zone(0, "Normal", 100),
            zone(2, "Normal", 4),
            zone(2, "Movable", 396),
            zone(2, "Device", 1000),
        ]);
        assert_eq!(zones(&good, lower).state, State::Works);
        assert_eq!(zones(&good, &nodes(&[])).state, State::Set);
        let mixed = all(vec![
            zone(0, "Normal", 50),
            zone(2, "Normal", 50),
            zone(2, "Movable", 950),
        ]);
        let found = zones(&mixed, lower);
        assert_eq!(found.state, State::Advice);
        assert!(
            found.detail.starts_with("5 % of node 2 may hold"),
            "{}",
            found.detail
        );
        assert!(
            found.detail.contains("9.5 times as much memory"),
            "{}",
            found.detail
        );
    }

    #[test]
    fn sizes_that_no_machine_has_and_missing_ones_are_no_panic() {
        let mut all = ZoneInfo {
            zones: vec![
                zone(2, "Normal", u64::MAX),
                zone(2, "Normal", u64::MAX),
                zone(2, "Movable", u64::MAX),
            ],
        };
        assert_eq!(zones(&all, &nodes(&[2])).state, State::Advice);
        all.zones[0].managed = None;
        assert_eq!(zones(&all, &nodes(&[2])).state, State::Unavailable);
    }

    #[test]
    fn zswap_matters_where_there_are_slow_memory_and_swap() {
        assert_eq!(zswap(Some(true), true, &nodes(&[])).state, State::Set);
        assert_eq!(zswap(Some(true), false, &nodes(&[2])).state, State::Set);
        assert_eq!(zswap(Some(true), true, &nodes(&[2])).state, State::Advice);
        assert_eq!(zswap(None, true, &nodes(&[2])).state, State::Set);
    }
}
