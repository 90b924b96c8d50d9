//! What the keeper asks of the machine, as one table of operations: tests have nodes that the
//! machine under them lacks.

use super::reason::Reason;
use super::version::{Moment, Version};
use crate::kernel::Range as Addresses;
use crate::sys::mapping::Mapping;
use crate::sys::{Errno, lease, place};
use memtide_core::units::NodeId;
use memtide_linux::fs::{Root, meminfo, node, proc};
use memtide_linux::sys::mempolicy;
use memtide_linux::sys::move_pages::{MoveFlags, move_pages};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Memory of a node, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub total: u64,
    /// Free, or the page cache's.
    pub available: u64,
}

/// The operations.
pub(crate) trait Machine: Send + Sync + Debug {
    /// Nodes with memory, ascending.
    fn nodes(&self) -> Vec<NodeId>;
    /// The node with memory that is nearest to where most threads of this process ran last.
    fn node_of_process(&self) -> Option<NodeId>;
    fn room(&self, node: NodeId) -> Option<Room>;
    /// Has the memory of a shared file come from `node` first.
    fn bind(&self, file: BorrowedFd<'_>, bytes: usize, node: NodeId) -> Result<(), Errno>;
    /// Whether every page of a part of a shared file, whole pages, lies on `node`.
    fn is_on(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        node: NodeId,
    ) -> Result<bool, Errno>;
    /// Whether the times of a file tell of every write from now on.
    fn tells_writes(&self, file: BorrowedFd<'_>) -> Result<(), Reason>;
    fn version(&self, file: BorrowedFd<'_>) -> Result<Version, Errno>;
    /// The clock of files' times.
    fn now(&self) -> Moment;
    /// The clock that all processes have.
    fn since_boot(&self) -> Duration;
    /// Shows `file` from `offset` at `range`, as [`place::over`] does.
    fn show(&self, range: Addresses, file: BorrowedFd<'_>, offset: u64) -> Result<(), Errno> {
        place::over(range, file, offset)
    }
}

/// The running machine.
#[derive(Debug)]
pub(crate) struct Live {
    root: Root,
}

impl Live {
    pub fn new() -> Live {
        Live {
            root: Root::default(),
        }
    }

    /// The node of each CPU.
    fn nodes_of_cpus(&self) -> BTreeMap<u32, NodeId> {
        let sets = node::sets(&self.root).ok();
        let online = sets.into_iter().flat_map(|sets| sets.online);
        let with_cpus = online.flat_map(|id| {
            let found = node::node(&self.root, id).ok().flatten();
            let cpus = found.into_iter().flat_map(|node| node.cpus);
            cpus.map(move |cpu| (cpu, id))
        });
        with_cpus.collect()
    }

    /// `node` itself, or the nearest node with memory.
    fn nearest_with_memory(&self, id: NodeId) -> Option<NodeId> {
        let sets = node::sets(&self.root).ok()?;
        let with_memory = sets.has_memory?;
        if with_memory.contains(&id) {
            return Some(id);
        }
        let distances = node::node(&self.root, id).ok()??.distances?;
        let far = sets.online.iter().zip(distances);
        far.filter(|(to, _)| with_memory.contains(to))
            .min_by_key(|(_, far)| *far)
            .map(|(to, _)| *to)
    }
}

/// Modes of memory policies, as the kernel numbers them.
const PREFERRED: u32 = 1;

/// File systems by their magic numbers (`linux/magic.h`) whose files' times tell of every write
/// that begins after a moment without writers. Network file systems tell of other machines'
/// writes late; tmpfs does not tell of what a mapping wrote; overlayfs hides the writers below.
const TELLING: [i64; 6] = [EXT4, XFS, BTRFS, F2FS, EROFS, SQUASHFS];
/// Those that nobody can write to, whatever way they are mounted.
const NEVER_WRITTEN: [i64; 2] = [EROFS, SQUASHFS];
/// And ext2 and ext3.
const EXT4: i64 = 0xef53;
const XFS: i64 = 0x5846_5342;
const BTRFS: i64 = 0x9123_683e;
const F2FS: i64 = 0xf2f5_2010;
const EROFS: i64 = 0xe0f5_e1e2;
const SQUASHFS: i64 = 0x7371_7368;

impl Machine for Live {
    fn nodes(&self) -> Vec<NodeId> {
        let sets = node::sets(&self.root).ok();
        let with_memory = sets.and_then(|sets| sets.has_memory);
        with_memory.into_iter().flatten().collect()
    }

    fn node_of_process(&self) -> Option<NodeId> {
        let nodes = self.nodes_of_cpus();
        let own = proc::Process::find(&self.root, std::process::id()).ok()?;
        let mut threads: BTreeMap<NodeId, u32> = BTreeMap::new();
        for thread in own.threads(&self.root).ok()? {
            let path = format!("/proc/{}/task/{thread}/stat", own.pid);
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if let Some(node) = last_cpu(&text).and_then(|cpu| nodes.get(&cpu)) {
                *threads.entry(*node).or_default() += 1;
            }
        }
        // Of equals the first: a lower node.
        let most = threads.iter().rev().max_by_key(|(_, count)| **count)?;
        self.nearest_with_memory(*most.0)
    }

    fn room(&self, node: NodeId) -> Option<Room> {
        let memory = meminfo::node(&self.root, node).ok()??;
        let cached = ["Active(file)", "Inactive(file)"].map(|name| memory.bytes(name).unwrap_or(0));
        Some(Room {
            total: memory.total()?,
            available: memory.free()? + cached[0] + cached[1],
        })
    }

    fn bind(&self, file: BorrowedFd<'_>, bytes: usize, node: NodeId) -> Result<(), Errno> {
        // The policy of shared memory is the file's, and stays when this mapping ends.
        let mapping = Mapping::of_file(file, 0, bytes)?;
        let mut words = vec![0; node.index() / 64 + 1];
        words[node.index() / 64] = 1 << (node.index() % 64);
        // Not bound: where a bound node is full, the kernel ends a process.
        mempolicy::mbind(mapping.address(), bytes, PREFERRED, &words, 0)
    }

    fn is_on(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        node: NodeId,
    ) -> Result<bool, Errno> {
        let page = rustix::param::page_size();
        let mapping = Mapping::of_file(file, offset, bytes)?;
        for byte in mapping.as_slice(bytes).iter().step_by(page) {
            std::hint::black_box(*byte);
        }
        let pages: Vec<usize> = (0..bytes / page)
            .map(|at| mapping.address() + at * page)
            .collect();
        let mut nodes = vec![-1; pages.len()];
        move_pages(0, &pages, None, &mut nodes, MoveFlags::Exclusive)?;
        Ok(nodes.iter().all(|on| *on == i32::from(node.0)))
    }

    fn tells_writes(&self, file: BorrowedFd<'_>) -> Result<(), Reason> {
        let about = rustix::fs::fstatfs(file).map_err(|_| Reason::Kernel)?;
        #[allow(clippy::unnecessary_cast, reason = "another width on other processors")]
        let magic = about.f_type as i64 & 0xffff_ffff;
        if !TELLING.contains(&magic) {
            return Err(Reason::FileSystem);
        }
        verdict(magic, lease::is_open_for_writing(file))
    }

    fn version(&self, file: BorrowedFd<'_>) -> Result<Version, Errno> {
        Version::of(file)
    }

    fn now(&self) -> Moment {
        let now = clock_gettime(ClockId::Realtime);
        (now.tv_sec, now.tv_nsec)
    }

    fn since_boot(&self) -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
    }
}

/// What follows from whether a file has a writer, as far as the kernel says.
///
/// Where it does not (another user's file, no leases), a writer may have a page mapped and dirty
/// already: what he writes to it changes no time before the page is written back. A mount that is
/// only readable says nothing: the same file system may be mounted elsewhere for writing.
fn verdict(magic: i64, has_writer: Result<bool, Errno>) -> Result<(), Reason> {
    match has_writer {
        _ if NEVER_WRITTEN.contains(&magic) => Ok(()),
        Ok(false) => Ok(()),
        Ok(true) | Err(Errno::ACCESS | Errno::PERM | Errno::INVAL) => Err(Reason::Writer),
        Err(_) => Err(Reason::Kernel),
    }
}

/// The CPU on which a thread ran last, the 39th field of its `stat` (proc_pid_stat(5)).
fn last_cpu(stat: &str) -> Option<u32> {
    // The name, which is the second, may hold anything.
    let behind_name = stat.rsplit_once(')')?.1;
    behind_name.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_is_the_39th_field() {
        let after_name: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("1 (a ) b) {}", after_name.join(" "));
        assert_eq!(last_cpu(&stat), Some(39));
        assert_eq!(last_cpu("1 (a) S 2"), None);
    }

    /// A refused lease is no answer, so that a writer is as likely as not.
    #[test]
    fn a_file_whose_writers_the_kernel_does_not_tell_of_counts_as_written_to() {
        assert_eq!(verdict(EXT4, Ok(false)), Ok(()));
        assert_eq!(verdict(EXT4, Ok(true)), Err(Reason::Writer));
        for refused in [Errno::ACCESS, Errno::PERM, Errno::INVAL] {
            assert_eq!(verdict(EXT4, Err(refused)), Err(Reason::Writer));
            assert_eq!(verdict(SQUASHFS, Err(refused)), Ok(()), "nobody can write");
        }
        assert_eq!(verdict(EXT4, Err(Errno::IO)), Err(Reason::Kernel));
    }

    #[test]
    fn this_process_runs_on_a_node_with_memory() {
        let live = Live::new();
        let nodes = live.nodes();
        if nodes.is_empty() {
            println!("skipped: this kernel tells no nodes");
            return;
        }
        let node = live.node_of_process().expect("it runs");
        assert!(nodes.contains(&node));
        let room = live.room(node).expect("it has memory");
        assert!(0 < room.available && room.available <= room.total);
    }
}
