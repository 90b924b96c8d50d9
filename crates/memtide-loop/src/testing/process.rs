//! A process of the fake world.

use crate::world::{AddressSpace, Allowed, Area, ClassId, MemoryKind, ProcessId};
use memtide_core::nodemask::NodeMask;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// A process of the fake world.
#[derive(Clone, Debug)]
pub struct FakeProcess {
    /// Who it is.
    pub process: ProcessId,
    /// What it maps.
    pub memory: AddressSpace,
    /// Where its present pages are.
    pub pages: BTreeMap<VirtualPage, NodeId>,
    /// Pages that it touches all the time.
    pub hot: BTreeSet<VirtualPage>,
    /// Processor time that it has used, in clock ticks.
    pub ticks: u64,
    /// Page faults that it took.
    pub faults: u64,
    /// The class that it belongs to.
    pub class: Option<ClassId>,
    /// Whether its memory is mapped as huge pages: whole ones, which a test gives it.
    pub huge: bool,
}

impl FakeProcess {
    /// A process whose memory is `pages` pages from page `first` on, all on
    /// `node`. It touches none.
    pub fn new(pid: u32, first: u64, pages: u64, node: NodeId) -> FakeProcess {
        let area = Area {
            first: VirtualPage(first),
            pages,
            allowed: Allowed::Anywhere,
            kind: MemoryKind::Anonymous,
            backing: None,
            counted: None,
        };
        FakeProcess {
            process: ProcessId {
                pid,
                start_ticks: u64::from(pid) * 100,
            },
            memory: AddressSpace {
                name: format!("fake{pid}"),
                cpuset: NodeMask::ALL,
                areas: vec![area],
            },
            pages: (first..first + pages)
                .map(|page| (VirtualPage(page), node))
                .collect(),
            hot: BTreeSet::new(),
            ticks: 0,
            faults: 0,
            class: None,
            huge: false,
        }
    }

    /// How many of its pages are on `node`.
    pub fn on(&self, node: NodeId) -> u64 {
        self.pages.values().filter(|at| **at == node).count() as u64
    }

    /// How many of its hot pages are on `node`.
    pub fn hot_on(&self, node: NodeId) -> u64 {
        let at = |page| self.pages.get(page) == Some(&node);
        self.hot.iter().filter(|page| at(page)).count() as u64
    }
}
