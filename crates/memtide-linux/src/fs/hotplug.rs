//! Memory that is there and that the kernel was not given, or not all of it.
//!
//! CXL memory reaches programs in steps: a *region* of the device is made, it
//! appears as a DAX device, the driver `kmem` takes that as memory, and its
//! *blocks* are set online in some zone. Each step may be left to the
//! administrator, and memory on which one is missing is silently not there.
//!
//! Files as the kernel documents them: `Documentation/admin-guide/mm/memory-hotplug`,
//! `Documentation/ABI/testing/sysfs-bus-dax` and `sysfs-bus-cxl`.

use super::numa::parse_bool;
use super::parse::{Parsed, hex, lines, text};
use super::{Result, Root};
use memtide_core::units::NodeId;
use std::collections::BTreeMap;

const BLOCKS: &str = "sys/devices/system/memory";
const DAX: &str = "sys/bus/dax/devices";
const KMEM: &str = "sys/bus/dax/drivers/kmem";
const CXL: &str = "sys/bus/cxl/devices";

/// The blocks in which memory is set online and offline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Bytes of a block.
    pub bytes: u64,
    /// Blocks in use.
    pub online: u64,
    /// Blocks that are not, by node; `None`: the kernel does not say where.
    pub offline: BTreeMap<Option<NodeId>, u64>,
}

/// Memory that the kernel has as a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dax {
    /// As `dax0.0`.
    pub name: String,
    /// In bytes, where the kernel says.
    pub bytes: Option<u64>,
    /// The node that it is on, or would be, where the kernel says.
    pub node: Option<NodeId>,
    /// Whether it was given to the kernel as memory.
    pub is_memory: bool,
}

/// The CXL bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cxl {
    /// Devices with volatile memory, and its bytes.
    pub memory: Vec<(String, u64)>,
    /// How many regions there are.
    pub regions: usize,
}

/// All blocks, or `None` where memory cannot be plugged.
///
/// # Errors
///
/// A file that cannot be read or makes no sense.
pub fn blocks(root: &Root) -> Result<Option<Blocks>> {
    let size = format!("{BLOCKS}/block_size_bytes");
    let Some(bytes) = root.parse(size, |bytes| hex(bytes.trim_ascii(), 1, "size"))? else {
        return Ok(None);
    };
    let mut blocks = Blocks {
        bytes,
        ..Blocks::default()
    };
    for name in root.names(BLOCKS)?.unwrap_or_default() {
        let number = name.strip_prefix("memory").map(str::parse::<u64>);
        let Some(Ok(_)) = number else {
            continue;
        };
        // One that is taken away just now has no state.
        match root.read(format!("{BLOCKS}/{name}/state"))?.as_deref() {
            Some(b"offline\n") => {
                let node = node_of(&root.names(format!("{BLOCKS}/{name}"))?.unwrap_or_default());
                *blocks.offline.entry(node).or_default() += 1;
            }
            Some(_) => blocks.online += 1,
            None => {}
        }
    }
    Ok(Some(blocks))
}

/// A block has a link with the name of its node.
fn node_of(names: &[String]) -> Option<NodeId> {
    let number = |name: &String| name.strip_prefix("node")?.parse().ok();
    names.iter().find_map(number).map(NodeId)
}

/// What becomes of new blocks: `offline`, `online`, `online_kernel` or
/// `online_movable`; `None` where memory cannot be plugged.
///
/// # Errors
///
/// As for [`blocks`].
pub fn auto_online(root: &Root) -> Result<Option<String>> {
    root.parse(format!("{BLOCKS}/auto_online_blocks"), |bytes| {
        Ok(text(bytes.trim_ascii(), 1, "policy")?.to_owned())
    })
}

/// Whether the metadata of new memory may lie in that memory, which is so for devices
/// that ask for it as well; `None` where the kernel has no such option.
///
/// # Errors
///
/// As for [`blocks`].
pub fn memmap_on_memory(root: &Root) -> Result<Option<bool>> {
    let file = "sys/module/memory_hotplug/parameters/memmap_on_memory";
    root.parse(file, |bytes| match bytes.trim_ascii() {
        b"force" => Ok(true),
        _ => parse_bool(bytes),
    })
}

/// Whether zswap is on; `None` where there is none.
///
/// # Errors
///
/// As for [`blocks`].
pub fn zswap(root: &Root) -> Result<Option<bool>> {
    root.parse("sys/module/zswap/parameters/enabled", parse_bool)
}

/// Whether there is a swap area; `None` where the kernel has no swap.
///
/// # Errors
///
/// As for [`blocks`].
pub fn has_swap(root: &Root) -> Result<Option<bool>> {
    // A header, and a line for each area.
    root.parse("proc/swaps", |bytes| Ok(lines(bytes).count() > 1))
}

/// Memory that the kernel has as devices, in the order of their names.
///
/// # Errors
///
/// As for [`blocks`].
pub fn dax(root: &Root) -> Result<Vec<Dax>> {
    let memory = root.names(KMEM)?.unwrap_or_default();
    let names = root.names(DAX)?.unwrap_or_default();
    let read = |name: String| {
        let node = root.read(format!("{DAX}/{name}/target_node"))?;
        // -1: on no node.
        let node = node.and_then(|node| str::from_utf8(&node).ok()?.trim().parse().ok());
        Ok(Dax {
            bytes: root.number(format!("{DAX}/{name}/size"))?,
            node: node.map(NodeId),
            is_memory: memory.contains(&name),
            name,
        })
    };
    names.into_iter().map(read).collect()
}

/// What is on the CXL bus.
///
/// # Errors
///
/// As for [`blocks`].
pub fn cxl(root: &Root) -> Result<Cxl> {
    let mut cxl = Cxl::default();
    for name in root.names(CXL)?.unwrap_or_default() {
        cxl.regions += usize::from(name.starts_with("region"));
        let size = root.parse(format!("{CXL}/{name}/ram/size"), prefixed)?;
        if let Some(bytes) = size.filter(|bytes| *bytes > 0) {
            cxl.memory.push((name, bytes));
        }
    }
    Ok(cxl)
}

/// `0x40000000`.
fn prefixed(bytes: &[u8]) -> Parsed<u64> {
    let bytes = bytes.trim_ascii();
    hex(bytes.strip_prefix(b"0x").unwrap_or(bytes), 1, "size")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let root = Root::new(folder.path());
        (folder, root)
    }

    #[test]
    fn offline_blocks_are_counted_by_node() {
        let (_folder, root) = machine(&[
            ("sys/devices/system/memory/block_size_bytes", "8000000\n"),
            ("sys/devices/system/memory/auto_online_blocks", "offline\n"),
            ("sys/devices/system/memory/memory0/state", "online\n"),
            ("sys/devices/system/memory/memory1/state", "going-offline\n"),
            ("sys/devices/system/memory/memory64/state", "offline\n"),
            ("sys/devices/system/memory/memory64/node2/x", ""),
            ("sys/devices/system/memory/memory65/state", "offline\n"),
            ("sys/devices/system/memory/power/state", "offline\n"),
        ]);
        let blocks = blocks(&root).unwrap().unwrap();
        assert_eq!((blocks.bytes, blocks.online), (128 << 20, 2));
        assert_eq!(
            blocks.offline,
            [(None, 1), (Some(NodeId(2)), 1)].into_iter().collect()
        );
        assert_eq!(auto_online(&root).unwrap().as_deref(), Some("offline"));
    }

    #[test]
    fn devices_are_told_from_memory() {
        let (_folder, root) = machine(&[
            ("sys/bus/dax/devices/dax0.0/size", "17179869184\n"),
            ("sys/bus/dax/devices/dax0.0/target_node", "2\n"),
            ("sys/bus/dax/devices/dax1.0/size", "4096\n"),
            ("sys/bus/dax/devices/dax1.0/target_node", "3\n"),
            ("sys/bus/dax/drivers/kmem/dax1.0/x", ""),
            ("sys/bus/dax/devices/dax2.0/target_node", "-1\n"),
            ("sys/bus/cxl/devices/mem0/ram/size", "0x40000000\n"),
            ("sys/bus/cxl/devices/mem1/ram/size", "0x0\n"),
            ("sys/bus/cxl/devices/region0/size", "0x40000000\n"),
        ]);
        let of = |name: &str, bytes, node, is_memory| Dax {
            name: name.to_owned(),
            bytes: Some(bytes),
            node,
            is_memory,
        };
        assert_eq!(
            dax(&root).unwrap(),
            [
                of("dax0.0", 16 << 30, Some(NodeId(2)), false),
                of("dax1.0", 4096, Some(NodeId(3)), true),
                Dax {
                    bytes: None,
                    ..of("dax2.0", 0, None, false)
                }
            ]
        );
        let cxl = cxl(&root).unwrap();
        assert_eq!(cxl.memory, [("mem0".to_owned(), 1 << 30)]);
        assert_eq!(cxl.regions, 1);
    }

    #[test]
    fn a_machine_without_any_of_it_has_none() {
        let (_folder, root) = machine(&[]);
        assert_eq!(blocks(&root).unwrap(), None);
        assert_eq!(auto_online(&root).unwrap(), None);
        assert_eq!(memmap_on_memory(&root).unwrap(), None);
        assert_eq!(zswap(&root).unwrap(), None);
        assert_eq!(has_swap(&root).unwrap(), None);
        assert_eq!(dax(&root).unwrap(), []);
        assert_eq!(cxl(&root).unwrap(), Cxl::default());
    }

    #[test]
    fn swap_is_a_line_below_the_header() {
        let header = "Filename\tType\tSize\tUsed\tPriority\n";
        let (_folder, root) = machine(&[("proc/swaps", header)]);
        assert_eq!(has_swap(&root).unwrap(), Some(false));
        let area = format!("{header}/dev/zram0 partition 1048572 0 100\n");
        let (_folder, root) = machine(&[("proc/swaps", &area)]);
        assert_eq!(has_swap(&root).unwrap(), Some(true));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let (_folder, root) = machine(&[
            ("sys/devices/system/memory/block_size_bytes", "large\n"),
            ("sys/module/zswap/parameters/enabled", "perhaps\n"),
            (
                "sys/module/memory_hotplug/parameters/memmap_on_memory",
                "force\n",
            ),
        ]);
        assert!(blocks(&root).is_err());
        assert!(zswap(&root).is_err());
        assert_eq!(memmap_on_memory(&root).unwrap(), Some(true));
    }
}
