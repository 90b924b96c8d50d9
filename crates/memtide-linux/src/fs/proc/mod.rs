//! Processes: who they are, and what `/proc/PID` says about them.
//!
//! Problem: a pid names a process only while it lives. Afterwards the kernel
//! gives the number to another one, and pages of an innocent process would
//! be moved on behalf of a dead one.
//!
//! Approach: a [`Process`] is the pid together with the start time that the
//! kernel recorded for it. Every read of a process's file is followed by a
//! look at the start time: if it is still the same, the process lived through
//! the whole read and the content is its own; if not, the content is dropped
//! and the answer is [`FsError::Gone`].

pub mod maps;
pub mod numa_maps;
pub mod smaps;
pub mod stat;
pub mod status;

use super::{FsError, MOST_BYTES, ParseError, Result, Root, cgroup};
use rustix::io::Errno;
use stat::Stat;
use status::Status;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// A process, proof against its pid being used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// The process id, as seen in the procfs that was read.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

/// One line of the process list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Who it is.
    pub process: Process,
    /// What `stat` said.
    pub stat: Stat,
}

impl Process {
    /// The process that has `pid` now.
    pub fn find(root: &Root, pid: u32) -> Result<Process> {
        let stat = read(root, pid, "stat", "its state", MOST_BYTES, stat::parse)?;
        Ok(Process {
            pid,
            start_ticks: stat.start_ticks,
        })
    }

    /// The calling process, as the procfs under `root` sees it.
    pub fn current(root: &Root) -> Result<Process> {
        Process::find(root, std::process::id())
    }

    /// The calling process's `/proc/self/status`, all of it unknown if there is
    /// none.
    pub fn current_status(root: &Root) -> Result<Status> {
        let status = root.parse("proc/self/status", status::parse)?;
        Ok(status.unwrap_or_default())
    }

    /// `/proc/PID/stat`. [`FsError::Gone`] if the pid is another's by now.
    pub fn stat(&self, root: &Root) -> Result<Stat> {
        let stat = read(root, self.pid, "stat", "its state", MOST_BYTES, stat::parse)?;
        if stat.start_ticks == self.start_ticks {
            Ok(stat)
        } else {
            Err(FsError::Gone { pid: self.pid })
        }
    }

    /// True while the process exists, be it only as a zombie.
    pub fn is_alive(&self, root: &Root) -> Result<bool> {
        match self.stat(root) {
            Ok(_) => Ok(true),
            Err(FsError::Gone { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// `/proc/PID/status`.
    pub fn status(&self, root: &Root) -> Result<Status> {
        self.own(root, "status", "its owner and memory nodes", status::parse)
    }

    /// `/proc/PID/maps`: the mappings in ascending order.
    pub fn maps(&self, root: &Root) -> Result<Vec<maps::Mapping>> {
        self.maps_within(root, MOST_BYTES)
    }

    /// The same from at most `limit` bytes of text: its owner decides how long that is.
    pub fn maps_within(&self, root: &Root, limit: u64) -> Result<Vec<maps::Mapping>> {
        self.own_within(root, "maps", "its mappings", limit, maps::parse)
    }

    /// `/proc/PID/smaps`: the mappings with what the kernel counted in them.
    /// Reading it walks the process's page tables.
    pub fn smaps(&self, root: &Root) -> Result<Vec<smaps::Usage>> {
        self.own(root, "smaps", "its mappings' page counts", smaps::parse)
    }

    /// `/proc/PID/numa_maps`: policy and pages per node of each mapping, or
    /// `None` if the kernel was built without NUMA. Reading it walks the
    /// process's page tables.
    pub fn numa_maps(&self, root: &Root) -> Result<Option<Vec<numa_maps::NumaMapping>>> {
        self.numa_maps_within(root, MOST_BYTES)
    }

    /// The same from at most `limit` bytes of text.
    pub fn numa_maps_within(
        &self,
        root: &Root,
        limit: u64,
    ) -> Result<Option<Vec<numa_maps::NumaMapping>>> {
        let answer = optional(root, self.pid, "numa_maps", limit, numa_maps::parse);
        self.checked(root, answer)
    }

    /// The ids of its threads, ascending.
    pub fn threads(&self, root: &Root) -> Result<Vec<u32>> {
        let path = format!("proc/{}/task", self.pid);
        let answer = match root.names(&path) {
            Ok(Some(names)) => Ok(ids(&names)),
            Ok(None) => Err(FsError::Gone { pid: self.pid }),
            Err(error) => Err(error),
        };
        self.checked(root, answer)
    }

    /// Its cgroup in the version 2 hierarchy, as a path from that
    /// hierarchy's root; `None` if it is in none.
    pub fn cgroup(&self, root: &Root) -> Result<Option<std::path::PathBuf>> {
        self.own(root, "cgroup", "its cgroup", cgroup::parse_membership)
    }

    /// The path of its executable, of which only the owner's mounts know what it
    /// means; `None` if it has none or the kernel does not say.
    pub fn executable(&self, root: &Root) -> Result<Option<Vec<u8>>> {
        let link = root.path(format!("proc/{}/exe", self.pid)).read_link();
        let path = link.ok().map(|path| path.into_os_string().into_vec());
        self.checked(root, Ok(path))
    }

    fn own<T>(
        &self,
        root: &Root,
        file: &str,
        needed_for: &'static str,
        parser: impl FnOnce(&[u8]) -> std::result::Result<T, ParseError>,
    ) -> Result<T> {
        self.own_within(root, file, needed_for, MOST_BYTES, parser)
    }

    fn own_within<T>(
        &self,
        root: &Root,
        file: &str,
        needed_for: &'static str,
        limit: u64,
        parser: impl FnOnce(&[u8]) -> std::result::Result<T, ParseError>,
    ) -> Result<T> {
        let answer = read(root, self.pid, file, needed_for, limit, parser);
        self.checked(root, answer)
    }

    /// `answer`, unless the process ended before or while it was read. A
    /// dying process shows files cut short, so its errors count as gone too.
    fn checked<T>(&self, root: &Root, answer: Result<T>) -> Result<T> {
        self.stat(root)?;
        answer
    }
}

/// All processes in ascending order of pid. Those that end while the list is
/// made are left out.
pub fn list(root: &Root) -> Result<Vec<Listed>> {
    let names = root.names("proc")?.ok_or_else(|| FsError::Missing {
        path: root.path("proc"),
        needed_for: "the list of processes; is procfs mounted?",
    })?;
    let mut processes = Vec::new();
    for pid in ids(&names) {
        match read(root, pid, "stat", "its state", MOST_BYTES, stat::parse) {
            Ok(stat) => processes.push(Listed {
                process: Process {
                    pid,
                    start_ticks: stat.start_ticks,
                },
                stat,
            }),
            Err(FsError::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(processes)
}

/// The names that are ids, as numbers, ascending.
fn ids(names: &[String]) -> Vec<u32> {
    let mut ids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

fn read<T>(
    root: &Root,
    pid: u32,
    file: &str,
    needed_for: &'static str,
    limit: u64,
    parser: impl FnOnce(&[u8]) -> std::result::Result<T, ParseError>,
) -> Result<T> {
    optional(root, pid, file, limit, parser)?.ok_or_else(|| {
        let directory = root.path(format!("proc/{pid}"));
        if directory.exists() {
            let path = directory.join(file);
            FsError::Missing { path, needed_for }
        } else {
            FsError::Gone { pid }
        }
    })
}

/// The kernel says ESRCH if the process ended between opening and reading.
fn optional<T>(
    root: &Root,
    pid: u32,
    file: &str,
    limit: u64,
    parser: impl FnOnce(&[u8]) -> std::result::Result<T, ParseError>,
) -> Result<Option<T>> {
    let relative = Path::new("proc").join(pid.to_string()).join(file);
    match root.parse_within(relative, limit, parser) {
        Err(error) if error.is_errno(Errno::SRCH) => Err(FsError::Gone { pid }),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_stat(root: &Path, pid: u32, start: u64) {
        let dir = root.join(format!("proc/{pid}"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("stat"), stat::tests::line(pid, "a b) c", 0, start)).unwrap();
    }

    #[test]
    fn a_pid_used_again_is_another_process() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        write_stat(dir.path(), 7, 100);
        let first = Process::find(&root, 7).unwrap();
        std::fs::write(dir.path().join("proc/7/cgroup"), "0::/a\n").unwrap();
        assert_eq!(first.cgroup(&root).unwrap().unwrap(), Path::new("/a"));
        write_stat(dir.path(), 7, 200);
        assert!(!first.is_alive(&root).unwrap());
        let error = first.cgroup(&root).unwrap_err();
        assert!(matches!(error, FsError::Gone { pid: 7 }), "{error}");
        assert_eq!(error.to_string(), "process 7 is gone");
        assert_ne!(Process::find(&root, 7).unwrap(), first);
    }

    #[test]
    fn a_file_that_this_kernel_lacks_is_not_a_dead_process() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        write_stat(dir.path(), 7, 100);
        let process = Process::find(&root, 7).unwrap();
        assert_eq!(process.numa_maps(&root).unwrap(), None);
        assert!(matches!(
            process.maps(&root).unwrap_err(),
            FsError::Missing { .. }
        ));
        assert!(matches!(
            Process::find(&root, 8).unwrap_err(),
            FsError::Gone { pid: 8 }
        ));
    }

    #[test]
    fn the_list_is_in_numeric_order() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        for pid in [10, 9, 100] {
            write_stat(dir.path(), pid, pid.into());
        }
        std::fs::create_dir_all(dir.path().join("proc/sys")).unwrap();
        std::fs::create_dir_all(dir.path().join("proc/11")).unwrap();
        // Process 11 has a directory but no stat: not something that is gone.
        assert!(matches!(list(&root), Err(FsError::Missing { .. })));
        std::fs::remove_dir(dir.path().join("proc/11")).unwrap();
        let pids: Vec<u32> = list(&root).unwrap().iter().map(|p| p.process.pid).collect();
        assert_eq!(pids, [9, 10, 100]);
    }

    #[test]
    fn this_very_process_can_be_read() {
        let root = Root::default();
        let me = Process::current(&root).unwrap();
        assert!(me.is_alive(&root).unwrap());
        assert!(me.threads(&root).unwrap().contains(&me.pid));
        assert!(!me.maps(&root).unwrap().is_empty());
        assert_eq!(me.status(&root).unwrap().tgid, Some(me.pid));
        assert!(list(&root).unwrap().iter().any(|p| p.process == me));
        // Threads of the test harness map and unmap stacks in between, so
        // only the file mappings of the program are sure to be in both.
        let maps = me.maps(&root).unwrap();
        let usage = me.smaps(&root).unwrap();
        let program = maps.iter().find(|m| m.path.is_some()).unwrap();
        assert!(usage.iter().any(|u| u.mapping == *program));
        if let Some(numa) = me.numa_maps(&root).unwrap() {
            assert!(numa.iter().any(|n| n.start == program.start));
        }
    }
}
