//! Control groups, version 2.
//!
//! Problem: an operator names a cgroup, memtide needs its processes, the
//! nodes that they may use and what they cost. Where the hierarchy is
//! mounted differs (`/sys/fs/cgroup`, or `unified` below it beside version
//! 1), and a path that is no cgroup must not pass for one without processes.
//!
//! Approach: the mount is looked up in `/proc/self/mountinfo` by its type. A
//! [`Cgroup`] exists only for a directory in which the kernel put
//! `cgroup.controllers`. A version 1 hierarchy is not read at all.

use super::list::parse_nodes;
use super::parse::{ParseError, lines, number, quoted, text, unescape, words};
use super::{FsError, Result, Root};
use memtide_core::units::NodeId;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A directory of the version 2 hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Absolute path as processes on the machine see it, without the root.
    directory: PathBuf,
}

/// Cgroups that are looked at in and below one, at most: users can make many.
pub const MOST_CGROUPS: usize = 20_000;

/// CPU time used by a cgroup and all below it, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUsage {
    /// All of it.
    pub total_us: Option<u64>,
    /// In user space.
    pub user_us: Option<u64>,
    /// In the kernel.
    pub system_us: Option<u64>,
}

impl Cgroup {
    /// Opens the cgroup that `path` names: either a path from the
    /// hierarchy's root, as `/proc/PID/cgroup` prints it, or the full path
    /// of its directory.
    ///
    /// # Errors
    ///
    /// [`FsError::NotCgroup`] if there is no such directory, it is not in a
    /// version 2 hierarchy, or the machine has none mounted.
    pub fn open(root: &Root, path: impl AsRef<Path>) -> Result<Cgroup> {
        let path = path.as_ref();
        let not = |path: PathBuf, why| FsError::NotCgroup { path, why };
        let Some(directory) = directory(root, path)? else {
            let why = "no cgroup2 file system is mounted; mount one or use another selection";
            return Err(not(root.path(path), why));
        };
        let under = root.path(&directory);
        if !is_cgroup(root, &directory) {
            let why = if under.is_dir() {
                "it has no file cgroup.controllers"
            } else {
                "there is no such directory"
            };
            return Err(not(under, why));
        }
        Ok(Cgroup { directory })
    }

    /// The same of one that may come and go: `None` while it is not there.
    ///
    /// # Errors
    ///
    /// [`FsError::NotCgroup`] if no cgroup can have this path.
    pub fn find(root: &Root, path: impl AsRef<Path>) -> Result<Option<Cgroup>> {
        let directory = directory(root, path.as_ref())?;
        Ok(directory.and_then(|directory| Cgroup::at(root, directory)))
    }

    /// The cgroup of this directory, which is below where they are mounted; `None` if
    /// it is none, or no more.
    pub(crate) fn at(root: &Root, directory: PathBuf) -> Option<Cgroup> {
        is_cgroup(root, &directory).then_some(Cgroup { directory })
    }

    /// The directory, as processes on the machine see it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The processes in it and in every cgroup below it.
    ///
    /// A threaded cgroup lists no processes (the kernel refuses); those are
    /// listed by the cgroup above it that owns their memory. Of more than
    /// [`MOST_CGROUPS`] those are left out that are further down.
    pub fn processes(&self, root: &Root) -> Result<BTreeSet<u32>> {
        let mut pids = BTreeSet::new();
        let mut pending = VecDeque::from([self.directory.clone()]);
        for _ in 0..MOST_CGROUPS {
            let Some(directory) = pending.pop_front() else {
                break;
            };
            match own_processes(root, &directory)? {
                Some(own) => pids.extend(own),
                None => continue,
            }
            // Not through links: a copied tree may hold any.
            let below = root.folders(&directory, MOST_CGROUPS)?.unwrap_or_default();
            pending.extend(below.into_iter().map(|name| directory.join(name)));
        }
        Ok(pids)
    }

    /// The nodes that its processes may use; `None` if no cpuset is in force.
    pub fn effective_mems(&self, root: &Root) -> Result<Option<BTreeSet<NodeId>>> {
        root.parse(self.directory.join("cpuset.mems.effective"), parse_nodes)
    }

    /// Memory charged to it and all below it, in bytes; `None` without the
    /// memory controller and in the root cgroup.
    pub fn memory_current(&self, root: &Root) -> Result<Option<u64>> {
        root.number(self.directory.join("memory.current"))
    }

    /// Memory charged to it and all below it that may move, by the node that it is
    /// on, in bytes: what is on lists of pages that reclaim knows. `None` without
    /// the memory controller.
    pub fn memory_by_node(&self, root: &Root) -> Result<Option<BTreeMap<NodeId, u64>>> {
        match root.parse(self.directory.join("memory.numa_stat"), parse_numa_stat) {
            // Removed between opening and reading.
            Err(error) if error.is_errno(Errno::NODEV) => Ok(None),
            read => read,
        }
    }

    /// CPU time used, `None` if the kernel does not say.
    pub fn cpu_usage(&self, root: &Root) -> Result<Option<CpuUsage>> {
        root.parse(self.directory.join("cpu.stat"), parse_cpu_stat)
    }
}

/// The directory of the cgroup that `path` names, there or not; `None` if none are mounted.
fn directory(root: &Root, path: &Path) -> Result<Option<PathBuf>> {
    let not = |why| FsError::NotCgroup {
        path: path.to_owned(),
        why,
    };
    if path.as_os_str().is_empty() {
        return Err(not("it is empty; the root of the hierarchy is /"));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        let why = "it leads out of the hierarchy with \"..\"; give a path below its root";
        return Err(not(why));
    }
    let Some(mount) = mount(root)? else {
        return Ok(None);
    };
    Ok(Some(match path.starts_with(&mount) {
        true => path.to_owned(),
        false => mount.join(path.strip_prefix("/").unwrap_or(path)),
    }))
}

/// Whether the kernel made this directory one.
pub(crate) fn is_cgroup(root: &Root, directory: &Path) -> bool {
    let file = directory.join("cgroup.controllers");
    root.path(file).is_file()
}

/// The processes in the cgroup of this directory itself; `None` if it was removed
/// or is threaded, as are those below it then.
pub fn own_processes(root: &Root, directory: &Path) -> Result<Option<BTreeSet<u32>>> {
    match root.parse(directory.join("cgroup.procs"), parse_procs) {
        // The second one comes between opening and reading.
        Err(error) if error.is_errno(Errno::OPNOTSUPP) || error.is_errno(Errno::NODEV) => Ok(None),
        read => read,
    }
}

/// Where the version 2 hierarchy is mounted, or `None`.
pub fn mount(root: &Root) -> Result<Option<PathBuf>> {
    const FILE: &str = "proc/self/mountinfo";
    root.parse(FILE, parse_mounts)?
        .ok_or_else(|| FsError::Missing {
            path: root.path(FILE),
            needed_for: "where cgroups are mounted; is procfs mounted?",
        })
}

/// Finds the first cgroup2 mount in `mountinfo`.
///
/// A line is `id parent major:minor root mountpoint options [tags] - type
/// source options`; the number of tags varies, hence the dash.
pub fn parse_mounts(bytes: &[u8]) -> std::result::Result<Option<PathBuf>, ParseError> {
    for (line, content) in lines(bytes) {
        let mut fields = words(content);
        let point = fields.nth(4);
        let kind = fields.skip_while(|word| *word != b"-").nth(1);
        match (point, kind) {
            (Some(point), Some(b"cgroup2")) => return Ok(Some(unescape(point))),
            (Some(_), Some(_)) => {}
            _ => {
                let problem = format!("{} has no mount point and type", quoted(content));
                return Err(ParseError::new(line, "mount", problem));
            }
        }
    }
    Ok(None)
}

/// Parses `/proc/PID/cgroup`: the path on the line of hierarchy 0, which is
/// version 2, or `None` if there is no such line. Also `None` if the path leads up:
/// then it is outside of the cgroup namespace of who reads, as in a container, and
/// counts from there and not from the hierarchy's root.
pub fn parse_membership(bytes: &[u8]) -> std::result::Result<Option<PathBuf>, ParseError> {
    for (line, content) in lines(bytes) {
        let mut fields = content.splitn(3, |byte| *byte == b':');
        let (Some(hierarchy), Some(_), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            let problem = format!("{} is not \"id:controllers:path\"", quoted(content));
            return Err(ParseError::new(line, "cgroup", problem));
        };
        if number(hierarchy, line, "hierarchy")? == 0 {
            // The kernel escapes nothing here: a name cannot have a line's end in it.
            let path = PathBuf::from(OsStr::from_bytes(path));
            let leads_up = path.components().any(|part| part == Component::ParentDir);
            return Ok((!leads_up).then_some(path));
        }
    }
    Ok(None)
}

/// Parses `cgroup.procs`. The kernel prints 0 for a process that the
/// reader's pid namespace cannot see; those are left out.
pub fn parse_procs(bytes: &[u8]) -> std::result::Result<BTreeSet<u32>, ParseError> {
    lines(bytes)
        .map(|(line, content)| super::parse::small(content.trim_ascii(), line, "pid"))
        .filter(|pid| *pid != Ok(0))
        .collect()
}

/// Parses `memory.numa_stat`: the sums of the lists by node. `file` and `shmem`
/// would not do: one contains the other, and both contain what is swapped out.
pub fn parse_numa_stat(bytes: &[u8]) -> std::result::Result<BTreeMap<NodeId, u64>, ParseError> {
    const LISTS: [&[u8]; 5] = [
        b"inactive_anon",
        b"active_anon",
        b"inactive_file",
        b"active_file",
        b"unevictable",
    ];
    let mut nodes = BTreeMap::new();
    for (line, content) in lines(bytes) {
        let mut fields = words(content);
        if !fields.next().is_some_and(|name| LISTS.contains(&name)) {
            continue;
        }
        for field in fields {
            let parts = field.strip_prefix(b"N").map(|rest| {
                let at = rest.iter().position(|byte| *byte == b'=');
                at.map(|at| (&rest[..at], &rest[at + 1..]))
            });
            let Some(Some((node, bytes))) = parts else {
                let problem = format!("{} is not \"N<node>=<bytes>\"", quoted(field));
                return Err(ParseError::new(line, "memory.numa_stat", problem));
            };
            let node: u16 = super::parse::small(node, line, "node")?;
            let sum: &mut u64 = nodes.entry(NodeId(node)).or_default();
            *sum = sum.saturating_add(number(bytes, line, "bytes")?);
        }
    }
    Ok(nodes)
}

/// Parses `cpu.stat`.
pub fn parse_cpu_stat(bytes: &[u8]) -> std::result::Result<CpuUsage, ParseError> {
    let mut usage = CpuUsage::default();
    for (line, content) in lines(bytes) {
        let mut fields = words(content);
        let slot = match fields.next() {
            Some(b"usage_usec") => &mut usage.total_us,
            Some(b"user_usec") => &mut usage.user_us,
            Some(b"system_usec") => &mut usage.system_us,
            _ => continue,
        };
        let name = text(words(content).next().unwrap_or_default(), line, "field")?;
        *slot = Some(number(fields.next().unwrap_or_default(), line, name)?);
    }
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "proc/self/mountinfo",
            "31 23 0:28 / /sys/fs/cgroup ro shared:4 master:1 - tmpfs tmpfs rw\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw\n",
        );
        let top = "sys/fs/cgroup/unified";
        for (group, pids) in [("", "1\n"), ("/a", "20\n10\n0\n"), ("/a/b", "30\n")] {
            write(
                &format!("{top}{group}/cgroup.controllers"),
                "cpuset memory\n",
            );
            write(&format!("{top}{group}/cgroup.procs"), pids);
        }
        write(&format!("{top}/a/cpuset.mems.effective"), "0,2\n");
        write(&format!("{top}/a/memory.current"), "4096\n");
        write(
            &format!("{top}/a/cpu.stat"),
            "usage_usec 30\nuser_usec 20\nnr_periods 0\n",
        );
        write("sys/fs/cgroup/unified/plain/file", "");
        let root = Root::new(dir.path());
        (dir, root)
    }

    #[test]
    fn both_ways_to_name_a_cgroup() {
        let (_dir, root) = machine();
        let full = Cgroup::open(&root, "/sys/fs/cgroup/unified/a").unwrap();
        assert_eq!(Cgroup::open(&root, "/a").unwrap(), full);
        assert_eq!(Cgroup::open(&root, "a").unwrap(), full);
        assert_eq!(full.processes(&root).unwrap(), BTreeSet::from([10, 20, 30]));
        let mems = full.effective_mems(&root).unwrap();
        assert_eq!(mems, Some(BTreeSet::from([NodeId(0), NodeId(2)])));
        assert_eq!(full.memory_current(&root).unwrap(), Some(4096));
        let usage = full.cpu_usage(&root).unwrap().unwrap();
        assert_eq!((usage.total_us, usage.system_us), (Some(30), None));
        let inner = Cgroup::open(&root, "/a/b").unwrap();
        assert_eq!(inner.effective_mems(&root).unwrap(), None);
        assert_eq!(inner.cpu_usage(&root).unwrap(), None);
    }

    #[test]
    fn what_is_no_cgroup_is_refused() {
        let (dir, root) = machine();
        let says = |path: &str| Cgroup::open(&root, path).unwrap_err().to_string();
        assert!(says("/gone").ends_with("unified/gone: not a cgroup: there is no such directory"));
        assert!(says("/plain").ends_with("it has no file cgroup.controllers"));
        assert!(says("/a/../../x").contains("leads out of the hierarchy"));
        std::fs::write(dir.path().join("proc/self/mountinfo"), "").unwrap();
        assert!(says("/a").contains("no cgroup2 file system is mounted"));
    }

    #[test]
    fn memory_is_summed_over_the_lists() {
        let text = "anon N0=900 N2=90\nfile N0=5000 N2=0\nshmem N0=4000 N2=0\n\
                    inactive_anon N0=4096 N2=8192\nactive_anon N0=1 N2=0\n\
                    inactive_file N0=10 N2=0\nactive_file N0=100 N2=0\nunevictable N0=1000 N2=7\n\
                    workingset_refault_anon N0=7 N2=7\n";
        let nodes = parse_numa_stat(text.as_bytes()).unwrap();
        assert_eq!(nodes, [(NodeId(0), 5207), (NodeId(2), 8199)].into());
        for wrong in [
            "unevictable N0",
            "unevictable 0=1",
            "active_anon N0=x",
            "active_file Nx=1",
        ] {
            assert!(parse_numa_stat(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn membership_takes_hierarchy_zero() {
        let parse = |text: &str| parse_membership(text.as_bytes());
        assert_eq!(
            parse("4:memory:/x\n0::/user.slice/a:b\n").unwrap(),
            Some(PathBuf::from("/user.slice/a:b"))
        );
        // Names are told as they are.
        assert_eq!(
            parse("0::/a\\x2db/\\056\\056\n").unwrap(),
            Some(PathBuf::from("/a\\x2db/\\056\\056"))
        );
        assert_eq!(parse("4:memory:/x\n").unwrap(), None);
        assert_eq!(parse("0::/../../system.slice/a\n").unwrap(), None);
        assert_eq!(
            parse("0:/x\n").unwrap_err().to_string(),
            "1: cgroup: \"0:/x\" is not \"id:controllers:path\""
        );
    }

    #[test]
    fn errors_name_line_and_item() {
        assert_eq!(
            parse_procs(b"1\nx\n").unwrap_err().to_string(),
            "2: pid: \"x\" is not an unsigned number"
        );
        assert_eq!(
            parse_cpu_stat(b"usage_usec\n").unwrap_err().to_string(),
            "1: usage_usec: \"\" is not an unsigned number"
        );
        assert_eq!(
            parse_mounts(b"1 2 3 4 5 6\n").unwrap_err().to_string(),
            "1: mount: \"1 2 3 4 5 6\" has no mount point and type"
        );
    }
}
