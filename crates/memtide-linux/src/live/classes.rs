//! Classes of processes: who is in which, and the fast memory that they use.
//!
//! [`Rules`] say what classes ask for; here is what the machine says. The tree of
//! cgroups is walked where classes ask for cgroups or units, and each cgroup's
//! processes are read where any class fits. Users and executables are read of each
//! process when it comes and then every [`LOOK_AGAIN`]th time, for they rarely change.
//!
//! The kernel's figures of a cgroup contain those of the cgroups below it, so what
//! other classes use there is taken off. What a class uses is what is charged to
//! its cgroups: membership is by process and use is by charge, and memory that came
//! with a process from another cgroup is charged to that one. What a class uses that
//! asks for users or executables is not known.
//!
//! A cgroup that is not there has no processes and uses nothing; it may come.

use crate::fs::cgroup::{self, Cgroup, own_processes};
use crate::fs::proc::Process;
use crate::fs::{FsError, Root};
use memtide_core::units::NodeId;
use memtide_loop::options::{Fitting, Looks, Rules};
use memtide_loop::world::{ClassId, ProcessId, ProcessSeen};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How often a process's user and executable are read: every so many times.
const LOOK_AGAIN: u32 = 8;
/// What the kernel writes behind the path of an executable that was replaced.
const REPLACED: &[u8] = b" (deleted)";

/// All classes, by [`ClassId`].
#[derive(Debug)]
pub struct Classes {
    root: Root,
    rules: Rules,
    /// What was read of processes.
    known: BTreeMap<ProcessId, Known>,
    times: u32,
    /// What is charged to which class, as of the last walk.
    charged: Option<Vec<Charged>>,
}

#[derive(Debug, Default)]
struct Known {
    user: Option<u32>,
    executable: Option<Vec<u8>>,
}

/// A cgroup whose charge is a class's, but for that of others below it.
#[derive(Debug)]
struct Charged {
    class: ClassId,
    directory: PathBuf,
    /// The one above whose figures contain it.
    above: Option<usize>,
}

/// A cgroup on the way.
struct Visit {
    directory: PathBuf,
    names: Vec<OsString>,
    above: Rc<Fitting>,
    charged: Option<usize>,
}

impl Classes {
    /// The classes that ask for this.
    pub fn new(root: Root, rules: Rules) -> Classes {
        Classes {
            root,
            rules,
            known: BTreeMap::new(),
            times: 0,
            charged: None,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Says of each process in which class it is.
    pub fn assign(&mut self, seen: &mut [ProcessSeen]) -> Result<(), FsError> {
        let fitting = self.walk()?;
        self.look(seen)?;
        let none = Rc::new(Fitting::new());
        for seen in seen {
            let known = self.known.get(&seen.process);
            let looks = Looks {
                user: known.and_then(|known| known.user),
                executable: known.and_then(|known| known.executable.as_deref()),
            };
            let fitting = fitting.get(&seen.process.pid).unwrap_or(&none);
            seen.class = self.rules.class_of(fitting, looks);
        }
        Ok(())
    }

    /// Walks the cgroups that classes ask for. What fits each process in them.
    fn walk(&mut self) -> Result<BTreeMap<u32, Rc<Fitting>>, FsError> {
        let mut members = BTreeMap::new();
        let mut charged: Vec<Charged> = Vec::new();
        let mount = match self.rules.ask_for_cgroups() {
            true => cgroup::mount(&self.root)?,
            false => None,
        };
        let Some(mount) = mount else {
            self.charged = Some(charged);
            return Ok(members);
        };
        for root in self.rules.roots() {
            let names: Vec<OsString> = (root.iter())
                .map(|name| std::ffi::OsStr::from_bytes(name).to_owned())
                .collect();
            let directory = names
                .iter()
                .fold(mount.clone(), |path, name| path.join(name));
            if !self
                .root
                .path(&directory)
                .join("cgroup.controllers")
                .is_file()
            {
                continue;
            }
            let first = Visit {
                directory,
                names,
                above: Rc::default(),
                charged: None,
            };
            let mut pending = vec![first];
            while let Some(visit) = pending.pop() {
                let names: Vec<&[u8]> = visit.names.iter().map(|name| name.as_bytes()).collect();
                let fitting = Rc::new(self.rules.fitting(&visit.above, &names));
                if fitting.iter().flatten().any(Option::is_some) {
                    match own_processes(&self.root, &visit.directory)? {
                        Some(own) => {
                            members.extend(own.into_iter().map(|pid| (pid, Rc::clone(&fitting))));
                        }
                        None => continue,
                    }
                }
                let mut at = visit.charged;
                let class = self.rules.class_of_cgroup(&fitting);
                if let Some(class) = class
                    && at.is_none_or(|at| charged[at].class != class)
                {
                    charged.push(Charged {
                        class,
                        directory: visit.directory.clone(),
                        above: at,
                    });
                    at = Some(charged.len() - 1);
                }
                for name in self.root.folders(&visit.directory)?.unwrap_or_default() {
                    let mut names = visit.names.clone();
                    names.push(name.clone());
                    pending.push(Visit {
                        directory: visit.directory.join(name),
                        names,
                        above: Rc::clone(&fitting),
                        charged: at,
                    });
                }
            }
        }
        self.charged = Some(charged);
        Ok(members)
    }

    /// Reads users and executables, if classes ask for them.
    fn look(&mut self, seen: &[ProcessSeen]) -> Result<(), FsError> {
        let (users, executables) = self.rules.ask_for_looks();
        if !users && !executables {
            return Ok(());
        }
        self.times = self.times.wrapping_add(1);
        let mut before = std::mem::take(&mut self.known);
        for id in seen.iter().map(|seen| seen.process) {
            let due = id.pid.wrapping_add(self.times) % LOOK_AGAIN == 0;
            let known = match before.remove(&id).filter(|_| !due) {
                Some(known) => known,
                None => match look(&self.root, id, users, executables) {
                    Ok(known) => known,
                    // The next list has it no more.
                    Err(FsError::Gone { .. }) => continue,
                    Err(error) => return Err(error),
                },
            };
            self.known.insert(id, known);
        }
        Ok(())
    }

    /// The bytes that each class uses on the nodes `top`, by [`ClassId`]; `None` if
    /// the kernel does not say. Replaces what `used` held.
    pub fn used(&mut self, top: &[NodeId], used: &mut Vec<Option<u64>>) -> Result<(), FsError> {
        if self.charged.is_none() {
            self.walk()?;
        }
        let charged = self.charged.as_deref().unwrap_or_default();
        used.clear();
        let ids = (0..self.rules.len() as u32).map(ClassId);
        used.extend(ids.map(|class| self.rules.is_charged(class).then_some(0)));
        // The deepest first: each takes its own off that of the next above it.
        let mut below = vec![0_u64; charged.len()];
        for (n, one) in charged.iter().enumerate().rev() {
            let with_below = self.with_below(&one.directory, top)?;
            if let (Some(bytes), Some(above)) = (with_below, one.above) {
                below[above] += bytes;
            }
            let own = with_below.map(|bytes| bytes.saturating_sub(below[n]));
            let slot = &mut used[one.class.0 as usize];
            *slot = slot.zip(own).map(|(others, own)| others + own);
        }
        Ok(())
    }

    fn with_below(&self, directory: &Path, top: &[NodeId]) -> Result<Option<u64>, FsError> {
        let cgroup = match Cgroup::open(&self.root, directory) {
            Ok(cgroup) => cgroup,
            // It went.
            Err(FsError::NotCgroup { .. }) => return Ok(Some(0)),
            Err(error) => return Err(error),
        };
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

fn look(root: &Root, id: ProcessId, user: bool, executable: bool) -> Result<Known, FsError> {
    let process = Process {
        pid: id.pid,
        start_ticks: id.start_ticks,
    };
    let mut known = Known::default();
    if user {
        known.user = process.status(root)?.uid;
    }
    if executable {
        known.executable = process.executable(root)?.map(|mut path| {
            if path.ends_with(REPLACED) {
                path.truncate(path.len() - REPLACED.len());
            }
            path
        });
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::units::Millis;
    use memtide_loop::options::{ClassOptions, User};

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

        fn classes(&self, classes: &[&str]) -> Classes {
            let class = |(n, text): (usize, &&str)| {
                (
                    format!("{n}"),
                    toml::from_str::<ClassOptions>(text).unwrap(),
                )
            };
            let classes = classes.iter().enumerate().map(class).collect();
            let user = |user: &User| user.number();
            let rules = Rules::new(&classes, "/sys/fs/cgroup", user);
            Classes::new(self.root.clone(), rules)
        }

        fn used(&self, classes: &[&str]) -> Vec<Option<u64>> {
            let mut used = vec![Some(77)];
            let mut classes = self.classes(classes);
            classes.used(&[NodeId(0)], &mut used).unwrap();
            used
        }

        /// A process of this user that runs this program.
        fn process(&self, pid: u32, user: u32, executable: &str) {
            let folder = format!("proc/{pid}");
            let zeros = "0 ".repeat(17);
            let stat = format!("{pid} (x) S 1 {zeros}5 4096 {zeros}{zeros}\n");
            self.write(&format!("{folder}/stat"), &stat);
            self.write(
                &format!("{folder}/status"),
                &format!("Name:\tx\nUid:\t{user}\t0\t0\t0\n"),
            );
            let link = self.root.path(format!("{folder}/exe"));
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(executable, link).unwrap();
        }
    }

    /// The classes of processes of these pids.
    fn assigned<const N: usize>(classes: &mut Classes, pids: [u32; N]) -> [Option<u32>; N] {
        let mut seen = pids.map(|pid| ProcessSeen {
            process: ProcessId {
                pid,
                start_ticks: 5,
            },
            parent: 1,
            born: Millis(0),
            ticks: 0,
            faults: 0,
            class: Some(ClassId(99)),
        });
        classes.assign(&mut seen).unwrap();
        seen.map(|seen| seen.class.map(|class| class.0))
    }

    #[test]
    fn a_process_belongs_to_the_deepest_class() {
        let machine = Machine::new();
        machine.group("/a", "10\n", None);
        machine.group("/a/b", "20\n", None);
        machine.group("/a/b/c", "30\n", None);
        machine.group("/ab", "40\n", None);
        let mut classes = machine.classes(&[
            "cgroup = '/sys/fs/cgroup/a/b'",
            "cgroup = '/a'",
            "cgroup = '/gone'",
        ]);
        assert_eq!(
            assigned(&mut classes, [10, 20, 30, 40]),
            [Some(1), Some(0), Some(0), None]
        );
        // It moves.
        machine.group("/ab", "", None);
        machine.group("/a", "10\n40\n", None);
        assert_eq!(assigned(&mut classes, [40, 10]), [Some(1), Some(1)]);
    }

    #[test]
    fn patterns_and_units_are_found_in_the_tree() {
        let machine = Machine::new();
        machine.group("/kube/pod1", "10\n", None);
        machine.group("/kube/pod1/box", "11\n", None);
        machine.group("/kube/other", "12\n", None);
        machine.group("/system.slice", "13\n", None);
        machine.group("/system.slice/r.service", "14\n", None);
        let mut classes = machine.classes(&["cgroup = '/kube/pod*'", "unit = 'r.service'"]);
        assert_eq!(
            assigned(&mut classes, [1, 10, 11, 12, 13, 14]),
            [None, Some(0), Some(0), None, None, Some(1)]
        );
    }

    #[test]
    fn users_and_programs_are_read_again_after_a_while() {
        let machine = Machine::new();
        machine.process(10, 7, "/usr/bin/redis (deleted)");
        machine.process(11, 7, "/usr/bin/sh");
        machine.process(12, 8, "/usr/bin/redis");
        let mut classes = machine.classes(&["user = '7'\nexecutable = '/usr/bin/*'", "user = '8'"]);
        let of = |classes: &mut Classes| assigned(classes, [10, 11, 12, 13]);
        assert_eq!(of(&mut classes), [Some(0), Some(0), Some(1), None]);
        machine.process(11, 7, "/opt/sh");
        machine.process(12, 9, "/usr/bin/redis");
        let times = (1..=LOOK_AGAIN).map(|_| of(&mut classes));
        assert_eq!(times.last(), Some([Some(0), None, None, None]));
    }

    #[test]
    fn what_classes_below_use_is_taken_off() {
        let machine = Machine::new();
        machine.group("/a", "", Some(1000));
        machine.group("/a/b", "", Some(600));
        machine.group("/a/b/c", "", Some(100));
        machine.group("/a/d", "", Some(50));
        assert_eq!(machine.used(&["cgroup = '/a'"]), [Some(1000)]);
        let all = ["/a/b/c", "/a", "/a/d", "/gone"].map(|path| format!("cgroup = '{path}'"));
        assert_eq!(
            machine.used(&all.each_ref().map(String::as_str)),
            [Some(100), Some(850), Some(50), Some(0)]
        );
        let all = ["/a/b", "/a/b/c", "/a"].map(|path| format!("cgroup = '{path}'"));
        assert_eq!(
            machine.used(&all.each_ref().map(String::as_str)),
            [Some(500), Some(100), Some(400)]
        );
        // Both below; a user's class has what is not known, and takes nothing off.
        assert_eq!(
            machine.used(&[
                "cgroup = '/a/*'",
                "cgroup = '/a'",
                "cgroup = '/a/b'\nuser = '7'"
            ]),
            [Some(650), Some(350), None]
        );
        // Who has the priority has all that is below.
        assert_eq!(
            machine.used(&["cgroup = '/a/b'", "cgroup = '/a'\npriority = 1"]),
            [Some(0), Some(1000)]
        );
    }

    #[test]
    fn without_the_memory_controller_nothing_is_known() {
        let machine = Machine::new();
        machine.group("/a", "", None);
        machine.group("/b", "", Some(8));
        assert_eq!(
            machine.used(&["cgroup = '/a'", "cgroup = '/b'"]),
            [None, Some(8)]
        );
    }
}
