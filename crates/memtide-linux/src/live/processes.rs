//! The processes under management: who they are, what they map, what their
//! owners allow.
//!
//! A process is told from a later one with the same id by its start time. Its
//! mappings and their memory policies are read together and joined by address;
//! what may be moved where follows from policy and cpuset, and is answered
//! here in one place:
//!
//! - a bound mapping's pages stay within the nodes that it is bound to;
//! - an interleaved mapping's pages stay where they are: somebody spread them
//!   on purpose, and moving one breaks the spread;
//! - every other page may go to any node that the cpuset allows. A preferred
//!   node is a wish for new pages, not a rule for old ones.

use crate::fs::proc::maps::Mapping;
use crate::fs::proc::numa_maps::{Mode, NumaMapping, Policy};
use crate::fs::proc::{self, Process};
use crate::fs::{FsError, Root, cgroup::Cgroup};
use memtide_core::nodemask::NodeMask;
use memtide_core::pages::Immovable;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::{NodeId, PageSize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Which processes to manage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// These, and it is an error if one does not exist at the start.
    Pids(Vec<u32>),
    /// All members of a cgroup and of the cgroups below it.
    Cgroup(PathBuf),
    /// Every process with at least this much address space, but never this
    /// one itself.
    All {
        /// In bytes.
        at_least: u64,
    },
}

/// A mapping that holds pages which may be managed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first page.
    pub first: VirtualPage,
    /// Its length in base pages.
    pub pages: u64,
    /// Where its pages may be, or why they may not move at all.
    pub allowed: Result<NodeMask, Immovable>,
}

/// One managed process.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Who it is.
    pub process: Process,
    /// Its program's name, for people.
    pub name: String,
    /// Its slot in the space of pages.
    pub owner: OwnerId,
    /// Its mappings, in order of address.
    pub areas: Vec<Area>,
    /// The nodes of its cpuset; all if the kernel does not say.
    pub cpuset: NodeMask,
    /// Processor time that it has used, in clock ticks.
    pub ticks: u64,
    /// Page faults that it took: none means that its memory is as it was.
    pub faults: u64,
}

impl Watched {
    /// Whether `page` may go to `target`.
    pub fn may_move(&self, page: VirtualPage, target: NodeId) -> Result<(), Immovable> {
        let after = self.areas.partition_point(|area| area.first <= page);
        let area = after.checked_sub(1).map(|at| &self.areas[at]);
        match area.filter(|area| page.0 - area.first.0 < area.pages) {
            None => Err(Immovable::Other("its mapping is gone")),
            Some(area) => match area.allowed {
                Err(reason) => Err(reason),
                Ok(allowed) if !allowed.contains(target) => Err(Immovable::Mempolicy),
                Ok(_) if !self.cpuset.contains(target) => Err(Immovable::Cpuset),
                Ok(_) => Ok(()),
            },
        }
    }
}

/// What a refresh found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Slots of processes that are new.
    pub came: Vec<OwnerId>,
    /// Slots of processes that are gone; they may be used again from now on.
    pub went: Vec<OwnerId>,
}

/// All managed processes.
#[derive(Debug)]
pub struct Processes {
    root: Root,
    page: PageSize,
    selection: Selection,
    slots: Vec<Option<Watched>>,
}

impl Processes {
    /// None yet; [`Processes::refresh`] finds them.
    pub fn new(root: Root, page: PageSize, selection: Selection) -> Processes {
        Processes {
            root,
            page,
            selection,
            slots: Vec::new(),
        }
    }

    /// The managed processes, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &Watched> {
        self.slots.iter().flatten()
    }

    /// The process in `owner`'s slot.
    pub fn get(&self, owner: OwnerId) -> Option<&Watched> {
        self.slots.get(owner.0 as usize)?.as_ref()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Looks for processes that came or went. The named processes of
    /// [`Selection::Pids`] are looked for only while none was ever found: a
    /// process that later has the same id is somebody else.
    pub fn refresh(&mut self) -> Result<Changes, FsError> {
        let mut changes = Changes::default();
        for slot in &mut self.slots {
            let Some(watched) = slot else { continue };
            match watched.process.stat(&self.root) {
                Ok(stat) if stat.has_address_space() => {
                    watched.ticks = stat.user_ticks + stat.system_ticks;
                    watched.faults = stat.faults;
                }
                Ok(_) | Err(FsError::Gone { .. }) => {
                    changes.went.push(watched.owner);
                    *slot = None;
                }
                Err(error) => return Err(error),
            }
        }
        for process in self.candidates()? {
            if self.iter().any(|watched| watched.process == process) {
                continue;
            }
            match self.admit(process) {
                Ok(owner) => changes.came.push(owner),
                // It ended while it was read. Named ones are checked below.
                Err(FsError::Gone { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(changes)
    }

    /// Reads the mappings and policies of a process anew.
    pub fn reread(&mut self, owner: OwnerId) -> Result<(), FsError> {
        let Some(watched) = self.get(owner) else {
            return Ok(());
        };
        let (areas, cpuset) = read_areas(&self.root, self.page, watched.process)?;
        if let Some(Some(watched)) = self.slots.get_mut(owner.0 as usize) {
            watched.areas = areas;
            watched.cpuset = cpuset;
        }
        Ok(())
    }

    fn candidates(&self) -> Result<Vec<Process>, FsError> {
        match &self.selection {
            Selection::Pids(pids) if self.slots.is_empty() => pids
                .iter()
                .map(|pid| Process::find(&self.root, *pid))
                .collect(),
            Selection::Pids(_) => Ok(Vec::new()),
            Selection::Cgroup(path) => {
                let members = Cgroup::open(&self.root, path)?.processes(&self.root)?;
                let found = members
                    .into_iter()
                    .map(|pid| Process::find(&self.root, pid));
                found
                    .filter(|found| !matches!(found, Err(FsError::Gone { .. })))
                    .collect()
            }
            Selection::All { at_least } => {
                let own = std::process::id();
                let listed = proc::list(&self.root)?.into_iter();
                Ok(listed
                    .filter(|listed| listed.process.pid != own)
                    .filter(|listed| listed.stat.has_address_space())
                    .filter(|listed| listed.stat.address_space >= *at_least)
                    .map(|listed| listed.process)
                    .collect())
            }
        }
    }

    fn admit(&mut self, process: Process) -> Result<OwnerId, FsError> {
        let stat = process.stat(&self.root)?;
        let (areas, cpuset) = read_areas(&self.root, self.page, process)?;
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let owner = OwnerId(slot as u32);
        self.slots[slot] = Some(Watched {
            process,
            name: stat.name,
            owner,
            areas,
            cpuset,
            ticks: stat.user_ticks + stat.system_ticks,
            faults: stat.faults,
        });
        Ok(owner)
    }
}

/// A process's areas and the nodes of its cpuset.
fn read_areas(
    root: &Root,
    page: PageSize,
    process: Process,
) -> Result<(Vec<Area>, NodeMask), FsError> {
    let maps = process.maps(root)?;
    let policies = process.numa_maps(root)?.unwrap_or_default();
    let cpuset = process.status(root)?.mems_allowed;
    let cpuset = cpuset.map_or(NodeMask::ALL, |nodes| nodes.into_iter().collect());
    Ok((join(page, &maps, &policies), cpuset))
}

/// Joins mappings and their policies. A mapping that appeared between the two
/// reads has no policy yet and is left for the next time.
fn join(page: PageSize, maps: &[Mapping], policies: &[NumaMapping]) -> Vec<Area> {
    let policies: BTreeMap<u64, &NumaMapping> =
        policies.iter().map(|numa| (numa.start, numa)).collect();
    maps.iter()
        .filter(|mapping| !mapping.is_special())
        .filter_map(|mapping| {
            let numa = policies.get(&mapping.start)?;
            Some(Area {
                first: VirtualPage(mapping.start >> page.shift()),
                pages: page.pages(mapping.len()),
                allowed: if numa.huge {
                    Err(Immovable::Other("it belongs to hugetlbfs"))
                } else {
                    allowed(&numa.policy)
                },
            })
        })
        .collect()
}

fn allowed(policy: &Policy) -> Result<NodeMask, Immovable> {
    match policy.mode {
        Mode::Default | Mode::Local | Mode::Prefer | Mode::PreferMany => Ok(NodeMask::ALL),
        Mode::Bind => Ok(policy.nodes.iter().copied().collect()),
        Mode::Interleave | Mode::WeightedInterleave => {
            Err(Immovable::Other("its mapping is interleaved on purpose"))
        }
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
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0 [vdso]\n";
    const NUMA_MAPS: &str = "\
7f0000000000 default anon=4 dirty=4 N2=4 kernelpagesize_kB=4\n\
7f0000100000 bind:1-2 anon=2 dirty=2 N2=2 kernelpagesize_kB=4\n\
7f0000200000 interleave:0,2 anon=1 dirty=1 N2=1 kernelpagesize_kB=4\n";

    fn watched(cpuset: &[u16]) -> Watched {
        let maps = maps::parse(MAPS.as_bytes()).unwrap();
        let policies = numa_maps::parse(NUMA_MAPS.as_bytes()).unwrap();
        Watched {
            process: Process {
                pid: 1,
                start_ticks: 1,
            },
            name: "test".into(),
            owner: OwnerId(0),
            areas: join(PageSize::KIB_4, &maps, &policies),
            cpuset: cpuset.iter().map(|node| NodeId(*node)).collect(),
            ticks: 0,
            faults: 0,
        }
    }

    fn page(address: u64) -> VirtualPage {
        VirtualPage(address >> 12)
    }

    #[test]
    fn policy_and_cpuset_decide_where_a_page_may_go() {
        let all = watched(&[0, 1, 2]);
        let (free, bound, spread) = (
            page(0x7f0000003000),
            page(0x7f0000101000),
            page(0x7f0000200000),
        );
        assert_eq!(all.may_move(free, NodeId(0)), Ok(()));
        assert_eq!(all.may_move(bound, NodeId(0)), Err(Immovable::Mempolicy));
        assert_eq!(all.may_move(bound, NodeId(1)), Ok(()));
        assert!(matches!(
            all.may_move(spread, NodeId(0)),
            Err(Immovable::Other(_))
        ));
        let narrow = watched(&[1, 2]);
        assert_eq!(narrow.may_move(free, NodeId(0)), Err(Immovable::Cpuset));
        assert_eq!(narrow.may_move(bound, NodeId(1)), Ok(()));
    }

    #[test]
    fn pages_outside_of_every_mapping_never_move() {
        let watched = watched(&[0]);
        for address in [0x1000, 0x7f0000004000, 0x7ffd00000000] {
            let answer = watched.may_move(page(address), NodeId(0));
            assert_eq!(
                answer,
                Err(Immovable::Other("its mapping is gone")),
                "{address:x}"
            );
        }
    }
}
