//! Classes of processes: cgroups, who is in them, and the fast memory that they
//! use.
//!
//! A process belongs to the class of the deepest cgroup that it is in or below.
//! The kernel's figures of a cgroup contain those of the cgroups below it, so what
//! other classes use there is taken off. What a class uses is what is charged to
//! its cgroup: membership is by process and use is by charge, and memory that came
//! with a process from another cgroup is charged to that one.
//!
//! A cgroup that is not there has no processes and uses nothing; it may come.

use crate::fs::cgroup::Cgroup;
use crate::fs::{FsError, Root};
use memtide_core::units::NodeId;
use memtide_loop::world::ClassId;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The cgroups of all classes, by [`ClassId`].
#[derive(Debug)]
pub struct Classes {
    root: Root,
    cgroups: Vec<PathBuf>,
}

impl Classes {
    /// The classes with these cgroups, by their numbers.
    pub fn new(root: Root, cgroups: Vec<PathBuf>) -> Classes {
        Classes { root, cgroups }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cgroups.is_empty()
    }

    /// The cgroups that are there, the deepest last.
    fn present(&self) -> Result<Vec<(ClassId, Cgroup)>, FsError> {
        let mut present = Vec::new();
        for (class, path) in (0..).map(ClassId).zip(&self.cgroups) {
            match Cgroup::open(&self.root, path) {
                Ok(cgroup) => present.push((class, cgroup)),
                Err(FsError::NotCgroup { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        present.sort_by_key(|(_, cgroup)| cgroup.directory().components().count());
        Ok(present)
    }

    /// Which process is in which class.
    pub fn members(&self) -> Result<BTreeMap<u32, ClassId>, FsError> {
        let mut members = BTreeMap::new();
        for (class, cgroup) in self.present()? {
            let pids = cgroup.processes(&self.root)?;
            members.extend(pids.into_iter().map(|pid| (pid, class)));
        }
        Ok(members)
    }

    /// The bytes that each class uses on the nodes `top`, by [`ClassId`]; `None` if
    /// the kernel does not say. Replaces what `used` held.
    pub fn used(&self, top: &[NodeId], used: &mut Vec<Option<u64>>) -> Result<(), FsError> {
        used.clear();
        used.resize(self.cgroups.len(), Some(0));
        let present = self.present()?;
        // The deepest first: each takes its own off that of the next above it.
        for (n, (class, cgroup)) in present.iter().enumerate().rev() {
            let with_below = self.with_below(cgroup, top)?;
            let slot = &mut used[class.0 as usize];
            let below = slot.unwrap_or(0);
            *slot = with_below.map(|bytes| bytes.saturating_sub(below));
            let above = present[..n].iter().rev();
            let mut above =
                above.filter(|(_, above)| cgroup.directory().starts_with(above.directory()));
            if let (Some((above, _)), Some(bytes)) = (above.next(), with_below) {
                let below = &mut used[above.0 as usize];
                *below = Some(below.unwrap_or(0) + bytes);
            }
        }
        Ok(())
    }

    fn with_below(&self, cgroup: &Cgroup, top: &[NodeId]) -> Result<Option<u64>, FsError> {
        match cgroup.memory_by_node(&self.root)? {
            Some(nodes) => {
                let on_top = top.iter().filter_map(|node| nodes.get(node));
                Ok(Some(on_top.sum()))
            }
            // It went since it was opened, or the kernel does not say.
            None => match Cgroup::open(&self.root, cgroup.directory()) {
                Err(FsError::NotCgroup { .. }) => Ok(Some(0)),
                _ => Ok(None),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine {
        _folder: tempfile::TempDir,
        root: Root,
    }

    impl Machine {
        fn new() -> Machine {
            let folder = tempfile::tempdir().unwrap();
            let root = Root::new(folder.path());
            let machine = Machine {
                _folder: folder,
                root,
            };
            let mounts = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
            machine.write("proc/self/mountinfo", mounts);
            machine.group("", "1\n", None);
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.root.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        /// A cgroup with these processes and so many anonymous bytes on node 0.
        fn group(&self, path: &str, pids: &str, bytes: Option<u64>) {
            let folder = format!("sys/fs/cgroup{path}");
            self.write(&format!("{folder}/cgroup.controllers"), "memory\n");
            self.write(&format!("{folder}/cgroup.procs"), pids);
            if let Some(bytes) = bytes {
                let stat = format!(
                    "anon N0={bytes} N1=7\nfile N0=999 N1=0\nslab_reclaimable N0=5 N1=5\n\
                     inactive_anon N0=0 N1=7\nactive_anon N0={bytes} N1=0\n"
                );
                self.write(&format!("{folder}/memory.numa_stat"), &stat);
            }
        }

        fn classes(&self, cgroups: &[&str]) -> Classes {
            let cgroups = cgroups.iter().map(PathBuf::from).collect();
            Classes::new(self.root.clone(), cgroups)
        }

        fn used(&self, cgroups: &[&str]) -> Vec<Option<u64>> {
            let mut used = vec![Some(77)];
            let classes = self.classes(cgroups);
            classes.used(&[NodeId(0)], &mut used).unwrap();
            used
        }
    }

    #[test]
    fn a_process_belongs_to_the_deepest_class() {
        let machine = Machine::new();
        machine.group("/a", "10\n", None);
        machine.group("/a/b", "20\n", None);
        machine.group("/a/b/c", "30\n", None);
        machine.group("/ab", "40\n", None);
        let classes = machine.classes(&["/sys/fs/cgroup/a/b", "/a", "/gone"]);
        let members = classes.members().unwrap();
        let expected = [(10, ClassId(1)), (20, ClassId(0)), (30, ClassId(0))];
        assert_eq!(members, expected.into());
    }

    #[test]
    fn what_classes_below_use_is_taken_off() {
        let machine = Machine::new();
        machine.group("/a", "", Some(1000));
        machine.group("/a/b", "", Some(600));
        machine.group("/a/b/c", "", Some(100));
        machine.group("/a/d", "", Some(50));
        assert_eq!(machine.used(&["/a"]), [Some(1000)]);
        assert_eq!(
            machine.used(&["/a/b/c", "/a", "/a/d", "/gone"]),
            [Some(100), Some(850), Some(50), Some(0)]
        );
        assert_eq!(
            machine.used(&["/a/b", "/a/b/c", "/a"]),
            [Some(500), Some(100), Some(400)]
        );
    }

    #[test]
    fn without_the_memory_controller_nothing_is_known() {
        let machine = Machine::new();
        machine.group("/a", "", None);
        machine.group("/b", "", Some(8));
        assert_eq!(machine.used(&["/a", "/b"]), [None, Some(8)]);
    }
}
