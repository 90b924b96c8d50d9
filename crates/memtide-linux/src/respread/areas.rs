//! The mappings of a process: where their pages are, how those are counted,
//! and which mappings stay as they are.
//!
//! What stays, and why:
//!
//! - a mapping whose memory policy names nodes and not all of the wanted ones:
//!   part of the wanted spread would break the policy;
//! - hugetlbfs, whose pages were reserved node by node;
//! - what the kernel itself maps.
//!
//! A policy that is a wish (`prefer`, `local`, `default`) forbids nothing. The
//! kernel shows the policy in force, a mapping's own or the process's, and both
//! count.

use crate::fs::proc::maps::Mapping;
use crate::fs::proc::numa_maps::{Mode, NumaMapping, Policy};
use crate::fs::{FsError, Root, list, proc::Process};
use memtide_core::nodemask::NodeMask;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::{NodeId, PageSize};
use std::collections::BTreeMap;

/// How the pages of a mapping are counted, as the kernel counts when it places
/// pages by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// The mapping's first page.
    pub first: VirtualPage,
    /// What that page is the how many-th of: of the address space for
    /// anonymous memory, of the file for a file.
    pub offset: u64,
    /// What every process adds: the inode's number for files that are mapped
    /// shared, so that all mappers agree, otherwise 0.
    pub bias: u64,
}

impl Counting {
    /// The index of `page` among pages of `1 << order` base pages.
    pub fn index(&self, page: VirtualPage, order: u32) -> u64 {
        let within = (page.0 - self.first.0) >> order;
        (self.offset >> order)
            .wrapping_add(within)
            .wrapping_add(self.bias)
    }
}

/// A mapping that may hold pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first page.
    pub first: VirtualPage,
    /// Its length in base pages.
    pub pages: u64,
    /// How its pages are counted.
    pub counting: Counting,
    /// The file, a name such as `[heap]`, or `[anonymous]`.
    pub name: String,
    /// Its policy in the kernel's words.
    pub policy: String,
    /// Why it stays as it is, if it does.
    pub stays: Option<String>,
    /// Base pages by node, ascending; nodes without pages are left out.
    pub on: Vec<(NodeId, u64)>,
}

impl Area {
    /// How many of its pages are in memory.
    pub fn present(&self) -> u64 {
        self.on.iter().map(|(_, pages)| pages).sum()
    }
}

/// Reads the areas of `process` that hold pages, in order of address.
/// `wanted` are the nodes that its pages shall be spread over.
pub fn read(
    root: &Root,
    page: PageSize,
    process: Process,
    wanted: &NodeMask,
) -> Result<Vec<Area>, FsError> {
    let maps = process.maps(root)?;
    let numa = process.numa_maps(root)?.unwrap_or_default();
    Ok(join(page, &maps, &numa, wanted))
}

/// Joins the two files by address. A mapping that came between the two reads is
/// left for the next time.
fn join(page: PageSize, maps: &[Mapping], numa: &[NumaMapping], wanted: &NodeMask) -> Vec<Area> {
    let numa: BTreeMap<u64, &NumaMapping> = numa.iter().map(|numa| (numa.start, numa)).collect();
    maps.iter()
        .filter(|mapping| !mapping.is_special())
        .filter_map(|mapping| {
            let numa = numa.get(&mapping.start)?;
            let area = area(page, mapping, numa, wanted);
            (area.present() > 0).then_some(area)
        })
        .collect()
}

fn area(page: PageSize, mapping: &Mapping, numa: &NumaMapping, wanted: &NodeMask) -> Area {
    let first = VirtualPage(mapping.start >> page.shift());
    let offset = match mapping.is_file() {
        true => mapping.offset >> page.shift(),
        false => first.0,
    };
    let shared_file = mapping.is_file() && mapping.shared;
    let base_pages = numa.page_size.unwrap_or(page.bytes()) >> page.shift();
    let path = mapping.path.as_ref();
    Area {
        first,
        pages: page.pages(mapping.len()),
        counting: Counting {
            first,
            offset,
            bias: if shared_file { mapping.inode } else { 0 },
        },
        name: path.map_or("[anonymous]".into(), |path| path.display().to_string()),
        policy: words(&numa.policy),
        stays: match numa.huge {
            true => Some("it belongs to hugetlbfs".to_owned()),
            false => forbids(&numa.policy, wanted),
        },
        on: numa
            .pages
            .iter()
            .map(|(node, pages)| (*node, pages * base_pages))
            .collect(),
    }
}

/// Why `policy` keeps pages from being spread over `wanted`, if it does.
fn forbids(policy: &Policy, wanted: &NodeMask) -> Option<String> {
    match policy.mode {
        Mode::Default | Mode::Local | Mode::Prefer | Mode::PreferMany => None,
        Mode::Bind | Mode::Interleave | Mode::WeightedInterleave => {
            let missing: Vec<NodeId> = wanted
                .iter()
                .filter(|node| !policy.nodes.contains(node))
                .collect();
            (!missing.is_empty()).then(|| {
                let missing = list::format(missing.iter().map(|node| u32::from(node.0)));
                format!("its policy {} leaves out node {missing}", words(policy))
            })
        }
    }
}

/// A policy as `numa_maps` writes it.
fn words(policy: &Policy) -> String {
    let mode = match policy.mode {
        Mode::Default => "default",
        Mode::Local => "local",
        Mode::Prefer => "prefer",
        Mode::PreferMany => "prefer (many)",
        Mode::Bind => "bind",
        Mode::Interleave => "interleave",
        Mode::WeightedInterleave => "weighted interleave",
    };
    let flags: Vec<&str> = [
        (policy.static_nodes, "static"),
        (policy.relative_nodes, "relative"),
        (policy.balancing == Some(true), "balancing"),
    ]
    .into_iter()
    .filter_map(|(set, name)| set.then_some(name))
    .collect();
    let flags = match flags.is_empty() {
        true => String::new(),
        false => format!("={}", flags.join("|")),
    };
    let nodes = list::format(policy.nodes.iter().map(|node| u32::from(node.0)));
    match nodes.is_empty() {
        true => format!("{mode}{flags}"),
        false => format!("{mode}{flags}:{nodes}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::proc::{maps, numa_maps};

    const MAPS: &str = "\
7f0000000000-7f0000004000 rw-p 00000000 00:00 0 \n\
7f0000100000-7f0000102000 rw-p 00000000 00:00 0 \n\
7f0000200000-7f0000201000 rw-p 00000000 00:00 0 \n\
7f0000300000-7f0000304000 rw-s 00002000 00:01 77 /dev/shm/x\n\
7f0000400000-7f0000404000 rw-p 00003000 fe:01 88 /lib/a b.so\n\
7f0000600000-7f0000a00000 rw-s 00000000 00:0f 99 /dev/hugepages/x\n\
7f0000b00000-7f0000b01000 rw-p 00000000 00:00 0 \n\
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0 [vdso]\n";
    const NUMA_MAPS: &str = "\
7f0000000000 default anon=4 dirty=4 N0=1 N2=3 kernelpagesize_kB=4\n\
7f0000100000 bind:1-2 anon=2 dirty=2 N2=2 kernelpagesize_kB=4\n\
7f0000200000 interleave:0,2 anon=1 dirty=1 N2=1 kernelpagesize_kB=4\n\
7f0000300000 prefer:1 mapped=4 N1=4 kernelpagesize_kB=4\n\
7f0000400000 bind=static|balancing:0-2 mapped=4 N1=4 kernelpagesize_kB=4\n\
7f0000600000 default file=/x huge dirty=2 N1=2 kernelpagesize_kB=2048\n\
7f0000b00000 default\n\
7ffd00000000 default N0=1 kernelpagesize_kB=4\n";

    fn areas() -> Vec<Area> {
        let maps = maps::parse(MAPS.as_bytes()).unwrap();
        let numa = numa_maps::parse(NUMA_MAPS.as_bytes()).unwrap();
        let wanted = [0, 2].map(NodeId).into_iter().collect();
        join(PageSize::KIB_4, &maps, &numa, &wanted)
    }

    #[test]
    fn a_policy_that_leaves_out_a_wanted_node_keeps_its_mapping() {
        let stays: Vec<Option<String>> = areas().into_iter().map(|area| area.stays).collect();
        assert_eq!(
            stays,
            [
                None,
                Some("its policy bind:1-2 leaves out node 0".to_owned()),
                None,
                None,
                None,
                Some("it belongs to hugetlbfs".to_owned()),
            ]
        );
    }

    #[test]
    fn names_policies_and_pages_are_the_kernels() {
        let areas = areas();
        let names: Vec<&str> = areas.iter().map(|area| area.name.as_str()).collect();
        assert_eq!(names[..2], ["[anonymous]"; 2]);
        assert_eq!(names[4], "/lib/a b.so");
        assert_eq!(areas[4].policy, "bind=static|balancing:0-2");
        assert_eq!(areas[0].on, [(NodeId(0), 1), (NodeId(2), 3)]);
        // Two huge pages are 1024 base pages.
        assert_eq!(areas[5].on, [(NodeId(1), 1024)]);
    }

    #[test]
    fn pages_are_counted_from_where_the_kernel_counts() {
        let areas = areas();
        let index = |area: usize, page: u64| {
            let area = &areas[area];
            area.counting.index(VirtualPage(area.first.0 + page), 0)
        };
        // Anonymous: the address. Shared: inode and place in the file.
        assert_eq!(index(0, 3), 0x7_f000_0003);
        assert_eq!(index(3, 1), 77 + 2 + 1);
        // Private: the place in the file alone.
        assert_eq!(index(4, 0), 3);
    }

    /// The mapping begins one page after a multiple of 2 MiB, so its first huge
    /// page begins after 511 base pages: (513 >> 9) + (511 >> 9) = 1.
    #[test]
    fn huge_pages_are_counted_in_their_own_size() {
        let counting = Counting {
            first: VirtualPage(513),
            offset: 513,
            bias: 0,
        };
        assert_eq!(counting.index(VirtualPage(1024), 9), 1);
        assert_eq!(counting.index(VirtualPage(1536), 9), 2);
    }
}
