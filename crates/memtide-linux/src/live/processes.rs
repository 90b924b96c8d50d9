//! The processes that may be managed: who they are, what they map, what their
//! owners allow.
//!
//! A process is told from a later one with the same id by its start time. Its
//! mappings and their memory policies are read together and joined by address;
//! what may be moved where follows from policy and cpuset:
//!
//! - a bound mapping's pages stay within the nodes that it is bound to;
//! - an interleaved mapping's pages stay where they are: somebody spread them
//!   on purpose, and moving one breaks the spread;
//! - every other page may go to any node that the cpuset allows. A preferred
//!   node is a wish for new pages, not a rule for old ones.
//!
//! What the files of a process say, and how long they are, is its owner's choice. So
//! no more than [`MOST_BYTES`] are read, and one process that cannot be read is left
//! out, for a minute at first and twice as long each time after; the others go on.
//! Only what the user named by pid ends the run.

use super::classes::Classes;
use crate::fs::proc::maps::Mapping;
use crate::fs::proc::numa_maps::{Mode, NumaMapping, Policy};
use crate::fs::proc::stat::Stat;
use crate::fs::proc::{self, Process};
use crate::fs::{FsError, Root, cgroup::Cgroup};
use memtide_core::nodemask::NodeMask;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::{Millis, NodeId, PageSize};
use memtide_loop::options::Rules;
use memtide_loop::world::{
    AddressSpace, Allowed, Area, Backing, Counted, Fixed, MemoryKind, Nesting, Notice, ProcessId,
    ProcessSeen,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Which processes to manage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// These, and it is an error if one does not exist at the start.
    Pids(Vec<u32>),
    /// These, as far as they live.
    Processes(Vec<Process>),
    /// All members of a cgroup and of the cgroups below it, but never this
    /// process itself. While there is no such cgroup, nobody.
    Cgroup(PathBuf),
    /// Every process with at least this much address space, but never this
    /// one itself.
    All {
        /// In bytes.
        at_least: u64,
    },
}

/// What is read of the mappings of one process, and of their policies: half a million
/// mappings without a name, whose policies take some 60 bytes each.
const MOST_BYTES: u64 = 32 << 20;

/// How long a process is left out at first, and how often that doubles: to 17 hours.
const LEFT_OUT: Duration = Duration::from_secs(60);
const DOUBLINGS: u32 = 10;
/// How long a process that was left out has to be readable before that is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// How often a file is read whose content contradicts itself.
const MOST_TRIES: u32 = 3;

/// A process that could not be read.
#[derive(Clone, Copy, Debug)]
struct LeftOut {
    times: u32,
    until: Instant,
}

/// The processes of a selection, as they come and go.
#[derive(Debug)]
pub struct Selected {
    root: Root,
    page: PageSize,
    selection: Selection,
    /// Of [`Selection::Pids`], who had these ids at first: whoever has one of
    /// them later is somebody else.
    named: Option<Vec<Process>>,
    /// Whether the cgroup was there the last time.
    there: bool,
    classes: Classes,
    left_out: BTreeMap<ProcessId, LeftOut>,
}

impl Selection {
    /// Whether anybody can be of it: false where those are named who are, and all of them have ended.
    pub fn lives(&self, root: &Root) -> bool {
        let lives = |process: &Process| match process.stat(root) {
            Ok(stat) => stat.has_address_space(),
            Err(FsError::Gone { .. }) => false,
            // Nobody knows; the next run says what is wrong.
            Err(_) => true,
        };
        match self {
            Selection::Processes(all) => all.iter().any(lives),
            _ => true,
        }
    }
}

impl Selected {
    /// The processes of `selection` under `root`; no class is known.
    pub fn new(root: Root, page: PageSize, selection: Selection) -> Selected {
        Selected {
            classes: Classes::new(root.clone(), Rules::default()),
            root,
            page,
            selection,
            named: None,
            left_out: BTreeMap::new(),
            there: true,
        }
    }

    /// The selection, for another list: who had the ids at first is known.
    pub fn selection(&self) -> Selection {
        match &self.named {
            Some(named) => Selection::Processes(named.clone()),
            None => self.selection.clone(),
        }
    }

    /// Says of each process which of these classes it belongs to.
    pub fn set_classes(&mut self, rules: Rules) {
        self.classes.follow(rules);
    }

    /// The bytes that each class uses on the nodes `top`; see [`Classes::used`].
    pub fn class_use(
        &mut self,
        top: &[NodeId],
        used: &mut Vec<Option<u64>>,
    ) -> Result<(), FsError> {
        self.classes.used(top, used)
    }

    /// Which classes contain others; see [`Classes::nesting`].
    pub fn nesting(&self) -> Nesting {
        self.classes.nesting()
    }

    /// For how long tasks of each class have stalled on memory; see [`Classes::stalls`].
    pub fn stalls(&mut self) -> Result<Vec<Option<u64>>, FsError> {
        self.classes.stalls()
    }

    /// Lists those that live and have memory of their own, ascending by pid. `notices` takes
    /// that the selection's cgroup has gone or is back; it is taken to be there before the first
    /// list.
    pub fn list(
        &mut self,
        seen: &mut Vec<ProcessSeen>,
        notices: &mut Vec<Notice>,
    ) -> Result<(), FsError> {
        seen.clear();
        let own = std::process::id();
        match &self.selection {
            Selection::Pids(pids) => {
                let named = match &self.named {
                    Some(named) => named,
                    None => {
                        let find = |pid: &u32| Process::find(&self.root, *pid);
                        self.named
                            .insert(pids.iter().map(find).collect::<Result<_, _>>()?)
                    }
                };
                for process in named {
                    add(seen, *process, process.stat(&self.root))?;
                }
            }
            Selection::Processes(all) => {
                for process in all {
                    add(seen, *process, process.stat(&self.root))?;
                }
            }
            Selection::Cgroup(path) => {
                let found = Cgroup::find(&self.root, path)?;
                let there = found.is_some();
                if std::mem::replace(&mut self.there, there) != there {
                    let path = path.to_string_lossy().into_owned();
                    notices.push(Notice::Cgroup { path, there });
                }
                let members = found.map(|cgroup| cgroup.processes(&self.root));
                let members = members.transpose()?.unwrap_or_default();
                for pid in members.into_iter().filter(|pid| *pid != own) {
                    match Process::find(&self.root, pid) {
                        Ok(process) => add(seen, process, process.stat(&self.root))?,
                        Err(FsError::Gone { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Selection::All { at_least } => {
                for listed in proc::list(&self.root)? {
                    let large = listed.stat.address_space >= *at_least;
                    if large && listed.process.pid != own {
                        add(seen, listed.process, Ok(listed.stat))?;
                    }
                }
            }
        }
        seen.sort_unstable_by_key(|seen| seen.process.pid);
        seen.dedup_by_key(|seen| seen.process);
        self.keep_out(seen, Instant::now());
        if !self.classes.is_empty() {
            self.classes.assign(seen)?;
            let refused = self.classes.refused_choices().into_iter();
            notices.extend(refused.map(|(pod, why)| Notice::Choice {
                pod: pod.to_string(),
                why,
            }));
        }
        Ok(())
    }

    /// Takes away those that are left out, and forgets those of them that have ended.
    fn keep_out(&mut self, seen: &mut Vec<ProcessSeen>, now: Instant) {
        if self.left_out.is_empty() {
            return;
        }
        let lives = |id: &ProcessId| seen.binary_search_by_key(&id.pid, |seen| seen.process.pid);
        self.left_out.retain(|id, out| {
            let lives = lives(id).is_ok_and(|at| seen[at].process == *id);
            lives && now < out.until + FORGOTTEN
        });
        let stays_out = |id| self.left_out.get(&id).is_some_and(|out| out.until > now);
        seen.retain(|seen| !stays_out(seen.process));
    }

    /// Leaves a process out that could not be read for `error`, for a while; whether that is
    /// the first time. Those that the user named are not left out, and neither are those that
    /// this process may not read: that is for the user to mend.
    ///
    /// # Errors
    ///
    /// `error`, if it is not left out.
    pub fn leave_out(
        &mut self,
        id: ProcessId,
        error: FsError,
        now: Instant,
    ) -> Result<Option<FsError>, FsError> {
        let forbidden = [Errno::ACCESS, Errno::PERM];
        let forbidden = forbidden.iter().any(|errno| error.is_errno(*errno));
        let named = matches!(self.selection, Selection::Pids(_) | Selection::Processes(_));
        if forbidden || named {
            return Err(error);
        }
        // No descriptor was free: that says nothing of this process.
        let full = [Errno::MFILE, Errno::NFILE];
        if full.iter().any(|errno| error.is_errno(*errno)) {
            let until = now + LEFT_OUT;
            self.left_out.insert(id, LeftOut { times: 0, until });
            return Ok(Some(error));
        }
        let times = self.left_out.get(&id).map_or(0, |out| out.times);
        let until = now + LEFT_OUT * 2u32.pow(times.min(DOUBLINGS));
        let out = LeftOut {
            times: times + 1,
            until,
        };
        self.left_out.insert(id, out);
        Ok((times == 0).then_some(error))
    }

    /// Reads what `process` maps and what its owner allows. `into` stays as it
    /// was if that fails.
    pub fn read(&self, id: ProcessId, into: &mut AddressSpace) -> Result<(), FsError> {
        let process = Process {
            pid: id.pid,
            start_ticks: id.start_ticks,
        };
        let name = process.stat(&self.root)?.name;
        let maps = untorn(|| process.maps_within(&self.root, MOST_BYTES))?;
        let policies = untorn(|| process.numa_maps_within(&self.root, MOST_BYTES))?;
        let policies = policies.unwrap_or_default();
        let cpuset = process.status(&self.root)?.mems_allowed;
        *into = AddressSpace {
            name,
            cpuset: cpuset.map_or(NodeMask::ALL, |nodes| nodes.into_iter().collect()),
            areas: join(self.page, &maps, &policies),
        };
        Ok(())
    }
}

/// What `read` gives. The kernel writes these files a page at a time, and what is mapped may change between
/// two pages, so that an answer may contradict itself: then it is asked again.
fn untorn<T>(read: impl Fn() -> Result<T, FsError>) -> Result<T, FsError> {
    let mut tries = 1;
    loop {
        match read() {
            Err(FsError::Malformed { .. }) if tries < MOST_TRIES => tries += 1,
            answer => return answer,
        }
    }
}

fn add(
    seen: &mut Vec<ProcessSeen>,
    process: Process,
    stat: Result<Stat, FsError>,
) -> Result<(), FsError> {
    let stat = match stat {
        Ok(stat) => stat,
        Err(FsError::Gone { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    if stat.has_address_space() {
        let ticks_a_second = rustix::param::clock_ticks_per_second().max(1);
        seen.push(ProcessSeen {
            process: ProcessId {
                pid: process.pid,
                start_ticks: process.start_ticks,
            },
            parent: stat.parent,
            born: Millis(process.start_ticks.saturating_mul(1000) / ticks_a_second),
            ticks: stat.user_ticks + stat.system_ticks,
            faults: stat.faults,
            class: None,
        });
    }
    Ok(())
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
                    Allowed::Never(Fixed::Hugetlb)
                } else {
                    allowed(&numa.policy)
                },
                kind: kind(mapping),
                backing: backing(page, mapping),
                counted: counted(page, numa),
            })
        })
        .collect()
}

fn counted(page: PageSize, numa: &NumaMapping) -> Option<Counted> {
    let nodes = numa.pages.iter().map(|(node, _)| *node);
    let by_node = nodes.map(|node| Some((node, page.pages(numa.bytes_on(node)?))));
    Counted::of(by_node.collect::<Option<Vec<_>>>()?)
}

fn allowed(policy: &Policy) -> Allowed {
    match policy.mode {
        Mode::Default | Mode::Local | Mode::Prefer | Mode::PreferMany => Allowed::Anywhere,
        Mode::Bind => Allowed::Nodes(Box::new(policy.nodes.iter().copied().collect())),
        Mode::Interleave | Mode::WeightedInterleave => Allowed::Never(Fixed::Interleaved),
    }
}

fn kind(mapping: &Mapping) -> MemoryKind {
    let in_memory = |path: &Path| {
        ["/memfd:", "/dev/shm/", "/dev/zero", "/SYSV"]
            .iter()
            .any(|start| {
                path.as_os_str()
                    .as_encoded_bytes()
                    .starts_with(start.as_bytes())
            })
    };
    match &mapping.path {
        _ if !mapping.is_file() => MemoryKind::Anonymous,
        Some(path) if in_memory(path) => MemoryKind::Shared,
        _ => MemoryKind::File,
    }
}

/// A private mapping's pages may be copies: only shared ones are the same
/// memory for sure.
fn backing(page: PageSize, mapping: &Mapping) -> Option<Backing> {
    let (major, minor) = mapping.device;
    let device = u64::from(major) << 32 | u64::from(minor);
    (mapping.shared && mapping.is_file()).then_some(Backing {
        object: (device, mapping.inode),
        first: mapping.offset >> page.shift(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::proc::{maps, numa_maps};
    use memtide_core::pages::Immovable;

    const MAPS: &str = "\
7f0000000000-7f0000004000 rw-p 00000000 00:00 0 \n\
7f0000100000-7f0000102000 rw-p 00000000 00:00 0 \n\
7f0000200000-7f0000201000 rw-p 00000000 00:00 0 \n\
7f0000300000-7f0000302000 rw-s 00003000 00:01 77 /memfd:x (deleted)\n\
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0 [vdso]\n";
    const NUMA_MAPS: &str = "\
7f0000000000 default anon=4 dirty=4 N2=4 kernelpagesize_kB=4\n\
7f0000100000 bind:1-2 anon=2 dirty=2 N2=2 kernelpagesize_kB=4\n\
7f0000200000 interleave:0,2 anon=1 dirty=1 N2=1 kernelpagesize_kB=4\n\
7f0000300000 default dirty=2 N2=2 kernelpagesize_kB=4\n";

    fn memory() -> AddressSpace {
        let maps = maps::parse(MAPS.as_bytes()).unwrap();
        let policies = numa_maps::parse(NUMA_MAPS.as_bytes()).unwrap();
        AddressSpace {
            areas: join(PageSize::KIB_4, &maps, &policies),
            ..AddressSpace::default()
        }
    }

    #[test]
    fn policies_decide_where_a_page_may_go() {
        let memory = memory();
        let may_move =
            |address: u64, node| memory.may_move(VirtualPage(address >> 12), NodeId(node));
        assert_eq!(may_move(0x7f0000003000, 0), Ok(()));
        assert_eq!(may_move(0x7f0000101000, 0), Err(Immovable::Mempolicy));
        assert_eq!(may_move(0x7f0000101000, 1), Ok(()));
        assert!(may_move(0x7f0000200000, 0).is_err());
        for outside in [0x1000, 0x7f0000004000, 0x7ffd00000000] {
            assert!(may_move(outside, 0).is_err(), "{outside:x}");
        }
    }

    /// A process `pid` of one page, with `more` behind its mappings.
    fn write_process(root: &Path, pid: u32, more: &str) {
        let dir = root.join(format!("proc/{pid}"));
        std::fs::create_dir_all(&dir).unwrap();
        let stat = crate::fs::proc::stat::tests::line(pid, "x", 0, 5);
        let maps = format!("1000-2000 rw-p 00000000 00:00 0 \n{more}");
        let files = [
            ("stat", stat.as_str()),
            ("maps", &maps),
            (
                "numa_maps",
                "1000 default anon=1 N0=1 kernelpagesize_kB=4\n",
            ),
            ("status", "Name:\tx\nMems_allowed:\t1\n"),
        ];
        for (name, text) in files {
            std::fs::write(dir.join(name), text).unwrap();
        }
    }

    /// Of three processes one has mappings that contradict each other, and one has paths of
    /// more than is read. Both are left out, longer each time; the third goes on.
    #[test]
    fn a_process_that_cannot_be_read_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let line = |n: u64| {
            let start = 0x10000 + n * 0x2000;
            let path = "x".repeat(4000);
            format!(
                "{start:x}-{:x} rw-p 00000000 00:01 7 /{path}\n",
                start + 0x1000
            )
        };
        let long: String = (0..MOST_BYTES / 4000).map(line).collect();
        write_process(dir.path(), 7, "");
        write_process(dir.path(), 8, "1800-3000 rw-p 00000000 00:00 0 \n");
        write_process(dir.path(), 9, &long);
        let selection = Selection::All { at_least: 1 };
        let mut selected = Selected::new(Root::new(dir.path()), PageSize::KIB_4, selection);
        let mut now = Instant::now();
        let mut seen = Vec::new();
        selected.list(&mut seen, &mut Vec::new()).unwrap();
        let all: Vec<ProcessId> = seen.iter().map(|seen| seen.process).collect();
        assert_eq!(all.len(), 3);
        let mut into = AddressSpace::default();
        selected.read(all[0], &mut into).unwrap();
        assert_eq!(into.areas.len(), 1);
        let mut told = Vec::new();
        for minutes in [1, 2, 4] {
            for id in &all[1..] {
                let error = selected.read(*id, &mut into).unwrap_err();
                told.extend(selected.leave_out(*id, error, now).unwrap());
            }
            for (ms, left) in [(0, 1), (minutes * 60_000 - 1, 1), (minutes * 60_000, 3)] {
                let mut seen = seen.clone();
                selected.keep_out(&mut seen, now + Duration::from_millis(ms));
                assert_eq!(seen.len(), left, "{minutes} min, {ms} ms");
            }
            now += Duration::from_secs(minutes * 60);
        }
        let told: Vec<String> = told.iter().map(FsError::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("8/maps:2: address range"), "{told:?}");
        assert!(
            told[1].contains("9/maps: cannot read: larger than 32 MiB"),
            "{told:?}"
        );
        // The pid is somebody else's by now.
        seen[1].process.start_ticks += 1;
        selected.keep_out(&mut seen, now - Duration::from_secs(1));
        assert_eq!((seen.len(), selected.left_out.len()), (2, 1));
    }

    /// It has nobody then, and those who are in it when it is back, but for us.
    #[test]
    fn a_cgroup_may_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "proc/self/mountinfo",
            "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        );
        let own = std::process::id();
        for pid in [7, own] {
            let zeros = "0 ".repeat(17);
            let stat = format!("{pid} (x) S 1 {zeros}5 4096 {zeros}{zeros}\n");
            write(&format!("proc/{pid}/stat"), &stat);
        }
        let selection = Selection::Cgroup("/sys/fs/cgroup/db".into());
        let root = Root::new(folder.path());
        let mut selected = Selected::new(root.clone(), PageSize::KIB_4, selection);
        let mut listed = || {
            let mut seen = Vec::new();
            let mut notices = Vec::new();
            selected.list(&mut seen, &mut notices).unwrap();
            let pids: Vec<u32> = seen.iter().map(|seen| seen.process.pid).collect();
            let notices: Vec<String> = notices.iter().map(ToString::to_string).collect();
            (notices.join("; "), pids)
        };
        let gone = "cgroup /sys/fs/cgroup/db is not there: no process is managed until it is";
        let back = "cgroup /sys/fs/cgroup/db is back: its processes are managed";
        assert_eq!(listed(), (gone.to_owned(), vec![]));
        assert_eq!(listed(), (String::new(), vec![]));
        write("sys/fs/cgroup/db/cgroup.controllers", "memory\n");
        write("sys/fs/cgroup/db/cgroup.procs", &format!("7\n{own}\n"));
        assert_eq!(listed(), (back.to_owned(), vec![7]));
        assert_eq!(listed(), (String::new(), vec![7]));
        std::fs::remove_dir_all(folder.path().join("sys/fs/cgroup/db")).unwrap();
        assert_eq!(listed(), (gone.to_owned(), vec![]));
        write("sys/fs/cgroup/db/cgroup.controllers", "memory\n");
        write("sys/fs/cgroup/db/cgroup.procs", "7\n");
        assert_eq!(listed(), (back.to_owned(), vec![7]));
        for nonsense in ["", "/../x"] {
            let selection = Selection::Cgroup(nonsense.into());
            let mut selected = Selected::new(root.clone(), PageSize::KIB_4, selection);
            assert!(
                selected.list(&mut Vec::new(), &mut Vec::new()).is_err(),
                "{nonsense:?}"
            );
        }
    }

    #[test]
    fn shared_memory_is_known_by_its_object() {
        let memory = memory();
        let area = memory.area(VirtualPage(0x7f0000301)).unwrap();
        assert_eq!(area.kind, MemoryKind::Shared);
        let backing = Backing {
            object: (1, 77),
            first: 3,
        };
        assert_eq!(area.backing, Some(backing));
        let own = memory.area(VirtualPage(0x7f0000000)).unwrap();
        assert_eq!((own.kind, own.backing), (MemoryKind::Anonymous, None));
    }
}
