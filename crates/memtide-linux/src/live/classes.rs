//! Classes of processes: who is in which, and the fast memory that they use.
//!
//! [`Rules`] say what classes ask for; here is what the machine says. The tree of
//! cgroups is walked where classes ask for cgroups or units, and each cgroup's
//! processes are read where any class fits. Users and executables are read of each
//! process when it comes and then every [`LOOK_AGAIN`]th time, for they rarely change; and
//! so is what a pod chose, where pods may choose.
//!
//! The kernel's figures of a cgroup contain those of the cgroups below it, so what
//! other classes use there is taken off. What a class uses is what is charged to
//! its cgroups: membership is by process and use is by charge, and memory that came
//! with a process from another cgroup is charged to that one. What a class uses that
//! asks for users or executables is not known.
//!
//! A cgroup that is not there has no processes and uses nothing; it may come.
//!
//! Users make cgroups below those that were given to them, as many and with such names
//! as they like. So a walk has bounds, the shallow ones come first, and a cgroup that
//! cannot be read is left out with all below it. Where a walk left something out,
//! processes that it did not find are asked for their cgroup one by one.

use crate::fs::cgroup::{self, Cgroup, own_processes};
use crate::fs::proc::Process;
use crate::fs::{FsError, Root, pods, pressure};
use memtide_core::units::NodeId;
use memtide_loop::options::{Fitting, Looks, PodUid, Rules};
use memtide_loop::world::{ClassId, Nesting, ProcessId, ProcessSeen};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How often a process's user and executable are read: every so many times.
const LOOK_AGAIN: u32 = 8;
/// What the kernel writes behind the path of an executable that was replaced.
const REPLACED: &[u8] = b" (deleted)";

/// The most cgroups that one walk goes to.
const MOST_CGROUPS: usize = 20_000;
/// The names of the deepest cgroup that a walk goes to.
const DEEPEST: usize = 64;
/// The longest path of a cgroup's directory that a walk goes to, in bytes. The kernel
/// takes twice that, and the names of files come behind it.
const LONGEST_PATH: usize = 2048;

/// All classes, by [`ClassId`].
#[derive(Debug)]
pub struct Classes {
    root: Root,
    rules: Rules,
    most_cgroups: usize,
    /// What was read of processes.
    known: BTreeMap<ProcessId, Known>,
    times: u32,
    choices: RefCell<Choices>,
    /// What is charged to which class, as of the last walk.
    charged: Option<Vec<Charged>>,
    /// For how long tasks of each cgroup had stalled when that was read last, in µs.
    stalled: BTreeMap<PathBuf, u64>,
    /// For how long those of each class have since the beginning, by [`ClassId`].
    waited: Vec<u64>,
}

/// What pods chose.
#[derive(Debug, Default)]
struct Choices {
    times: u32,
    known: BTreeMap<PodUid, Choice>,
    /// Pods whose choice does not count, and why, which nobody was told.
    refused: Vec<(PodUid, String)>,
}

#[derive(Debug, Default)]
struct Choice {
    class: Option<ClassId>,
    /// When it was read last, and when it was asked for.
    read: u32,
    asked: u32,
    /// Whether it was said that it does not count.
    told: bool,
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
    above: Rc<Fitting>,
    charged: Option<usize>,
}

impl Classes {
    /// The classes that ask for this.
    pub fn new(root: Root, rules: Rules) -> Classes {
        Classes {
            root,
            rules,
            most_cgroups: MOST_CGROUPS,
            known: BTreeMap::new(),
            times: 0,
            choices: RefCell::default(),
            charged: None,
            stalled: BTreeMap::new(),
            waited: Vec::new(),
        }
    }

    /// Goes on by other rules. Of pods whose choice did not count nobody is told again.
    pub fn follow(&mut self, rules: Rules) {
        let known = std::mem::take(&mut self.choices.get_mut().known).into_iter();
        let told = known.filter(|(_, choice)| choice.told);
        let told = told.map(|(uid, _)| {
            let choice = Choice {
                // It is read at once.
                read: 0u32.wrapping_sub(LOOK_AGAIN),
                told: true,
                ..Choice::default()
            };
            (uid, choice)
        });
        let known = told.collect();
        *self = Classes::new(self.root.clone(), rules);
        self.choices.get_mut().known = known;
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Says of each process in which class it is.
    pub fn assign(&mut self, seen: &mut [ProcessSeen]) -> Result<(), FsError> {
        let times = {
            let choices = self.choices.get_mut();
            choices.times = choices.times.wrapping_add(1);
            choices.times
        };
        let (members, whole) = self.walk()?;
        self.look(seen)?;
        let none = Rc::new(Fitting::new());
        for seen in seen {
            let known = self.known.get(&seen.process);
            let looks = Looks {
                user: known.and_then(|known| known.user),
                executable: known.and_then(|known| known.executable.as_deref()),
            };
            let fitting = match members.get(&seen.process.pid) {
                Some(fitting) => Rc::clone(fitting),
                None if whole => Rc::clone(&none),
                None => Rc::new(self.ask(seen.process)),
            };
            seen.class = self.rules.class_of(&fitting, looks);
        }
        let known = &mut self.choices.get_mut().known;
        known.retain(|_, choice| choice.asked == times);
        Ok(())
    }

    /// Pods whose choice does not count, and why; each once.
    pub fn refused_choices(&mut self) -> Vec<(PodUid, String)> {
        std::mem::take(&mut self.choices.get_mut().refused)
    }

    /// The class that the pod chose whose own cgroup this is.
    fn chosen(&self, names: &[&[u8]]) -> Option<ClassId> {
        let folder = self.rules.pod_folder()?;
        let uid = PodUid::of_cgroup(names)?;
        let mut choices = self.choices.borrow_mut();
        let times = choices.times;
        let new = !choices.known.contains_key(&uid);
        let choice = choices.known.entry(uid.clone()).or_default();
        choice.asked = times;
        if !new && times.wrapping_sub(choice.read) < LOOK_AGAIN {
            return choice.class;
        }
        choice.read = times;
        let named = pods::choice(&self.root, Path::new(folder), &uid);
        let class = named.and_then(|name| match name {
            None => Ok(None),
            Some(name) => match self.rules.choice(&name, names) {
                Some(class) => Ok(Some(class)),
                None => Err(format!("it may not choose {name}")),
            },
        });
        choice.class = class.as_ref().ok().copied().flatten();
        let chosen = choice.class;
        if let Err(why) = class
            && !std::mem::replace(&mut choice.told, true)
        {
            choices.refused.push((uid, why));
        }
        chosen
    }

    /// What fits the cgroup in which a process says that it is.
    fn ask(&self, id: ProcessId) -> Fitting {
        // Otherwise it is gone, or its path is longer than what the kernel says.
        let Ok(Some(path)) = process(id).cgroup(&self.root) else {
            return Fitting::new();
        };
        let names: Vec<&[u8]> = names(&path).take(DEEPEST).collect();
        self.along(&names, names.len() + 1)
    }

    /// What fits the first cgroups, so many, from the root to that of these names.
    fn along(&self, names: &[&[u8]], cgroups: usize) -> Fitting {
        let fitting = |above, n| {
            let chose = self.chosen(&names[..n]);
            self.rules.fitting(&above, &names[..n], chose)
        };
        (0..cgroups).fold(Fitting::new(), fitting)
    }

    /// Walks the cgroups that classes ask for. What fits each process in them, and
    /// whether nothing was left out.
    fn walk(&mut self) -> Result<(BTreeMap<u32, Rc<Fitting>>, bool), FsError> {
        let mut members = BTreeMap::new();
        let mut charged: Vec<Charged> = Vec::new();
        let mut whole = true;
        let mount = match self.rules.ask_for_cgroups() {
            true => cgroup::mount(&self.root)?,
            false => None,
        };
        let Some(mount) = mount else {
            self.charged = Some(charged);
            return Ok((members, whole));
        };
        let mut pending = VecDeque::new();
        for root in self.rules.roots() {
            let directory = root.iter().fold(mount.clone(), |path, name| {
                path.join(OsStr::from_bytes(name))
            });
            if cgroup::is_cgroup(&self.root, &directory) {
                pending.push_back(Visit {
                    directory,
                    above: Rc::new(self.along(&root, root.len())),
                    charged: None,
                });
            }
        }
        let roots = pending.len();
        let mut room = self.most_cgroups.saturating_sub(roots);
        let mut visits = 0;
        while let Some(visit) = pending.pop_front() {
            visits += 1;
            let path = visit.directory.strip_prefix(&mount);
            let names: Vec<&[u8]> = names(path.unwrap_or(&visit.directory)).collect();
            let chose = self.chosen(&names);
            let fitting = Rc::new(self.rules.fitting(&visit.above, &names, chose));
            if fitting.iter().flatten().any(Option::is_some) {
                match own_processes(&self.root, &visit.directory) {
                    Ok(Some(own)) => {
                        members.extend(own.into_iter().map(|pid| (pid, Rc::clone(&fitting))));
                    }
                    Ok(None) => continue,
                    Err(error) if visits <= roots => return Err(error),
                    Err(_) => {
                        whole = false;
                        continue;
                    }
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
            if !self.rules.may_fit_below(&fitting, &names) {
                continue;
            }
            let folders = match self.root.folders(&visit.directory, room + 1) {
                Ok(folders) => folders.unwrap_or_default(),
                Err(error) if visits <= roots => return Err(error),
                Err(_) => {
                    whole = false;
                    continue;
                }
            };
            for name in folders {
                let directory = visit.directory.join(name);
                let long = directory.as_os_str().len() > LONGEST_PATH;
                if room == 0 || long || names.len() >= DEEPEST {
                    whole = false;
                    continue;
                }
                room -= 1;
                pending.push_back(Visit {
                    directory,
                    above: Rc::clone(&fitting),
                    charged: at,
                });
            }
        }
        self.charged = Some(charged);
        Ok((members, whole))
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

    /// The class that contains each class, by [`ClassId`]; as of the last walk.
    pub fn nesting(&self) -> Nesting {
        let charged = self.charged.as_deref().unwrap_or_default();
        let mut nesting = Nesting::default();
        for one in charged {
            let above = std::iter::successors(one.above, |above| charged[*above].above);
            nesting.note(one.class, above.map(|above| charged[above].class));
        }
        nesting
    }

    /// For how long tasks of each class have stalled on memory, in µs, by [`ClassId`];
    /// `None` if the kernel does not say. Of several cgroups the one that stalled longest
    /// between two readings counts. What stalls in classes below is contained, for the
    /// kernel does not tell it apart.
    pub fn stalls(&mut self) -> Result<Vec<Option<u64>>, FsError> {
        if self.charged.is_none() {
            self.walk()?;
        }
        let before = std::mem::take(&mut self.stalled);
        self.waited.resize(self.rules.len(), 0);
        let mut longest: Vec<Option<u64>> = vec![None; self.rules.len()];
        for one in self.charged.as_deref().unwrap_or_default() {
            // Of one that cannot be read no more is known than of one that is not there.
            let Ok(Some(total)) = pressure::of_cgroup(&self.root, &one.directory) else {
                continue;
            };
            let since = before.get(&one.directory).copied().unwrap_or(total);
            let came = total.saturating_sub(since);
            let longest = &mut longest[one.class.0 as usize];
            *longest = Some(longest.unwrap_or(0).max(came));
            self.stalled.insert(one.directory.clone(), total);
        }
        let all = longest.into_iter().zip(&mut self.waited);
        let all = all.map(|(came, waited)| {
            *waited = waited.saturating_add(came?);
            Some(*waited)
        });
        Ok(all.collect())
    }

    fn with_below(&self, directory: &Path, top: &[NodeId]) -> Result<Option<u64>, FsError> {
        // `None` if it went.
        let open = || Cgroup::at(&self.root, directory.to_owned());
        let Some(cgroup) = open() else {
            return Ok(Some(0));
        };
        match cgroup.memory_by_node(&self.root)? {
            Some(nodes) => {
                let on_top = top.iter().filter_map(|node| nodes.get(node));
                Ok(Some(on_top.sum()))
            }
            // It went since it was opened, or the kernel does not say.
            None => Ok(open().is_none().then_some(0)),
        }
    }
}

/// The names of a path.
fn names(path: &Path) -> impl Iterator<Item = &[u8]> {
    let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    names.filter(|name| !name.is_empty())
}

fn process(id: ProcessId) -> Process {
    Process {
        pid: id.pid,
        start_ticks: id.start_ticks,
    }
}

fn look(root: &Root, id: ProcessId, user: bool, executable: bool) -> Result<Known, FsError> {
    let process = process(id);
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

    /// As users may make them: with a path that the kernel takes from nobody.
    #[test]
    fn a_cgroup_that_cannot_be_read_ends_nothing() {
        use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
        let machine = Machine::new();
        machine.group("/a.slice", "10\n", None);
        machine.group("/a.slice/wrong", "x\n", None);
        machine.group("/a.slice/wrong/below", "11\n", None);
        machine.group("/a.slice/z", "12\n", Some(8));
        let folder = OFlags::DIRECTORY | OFlags::RDONLY;
        let top = machine.root.path("sys/fs/cgroup/a.slice");
        let mut at = openat(CWD, &top, folder, Mode::empty()).unwrap();
        for _ in 0..20 {
            let name = "n".repeat(250);
            mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = openat(&at, &name, folder, Mode::empty()).unwrap();
        }
        for class in ["unit = 'a.slice'", "cgroup = '/**'"] {
            let mut classes = machine.classes(&[class]);
            assert_eq!(
                assigned(&mut classes, [10, 11, 12]),
                [Some(0), None, Some(0)],
                "{class}"
            );
        }
    }

    #[test]
    fn what_a_walk_leaves_out_is_asked_for() {
        let machine = Machine::new();
        machine.group("/s.slice/a.service", "10\n", None);
        for n in 0..20 {
            machine.group(&format!("/s.slice/a.service/{n}"), "", None);
        }
        machine.group("/s.slice/b.service", "11\n", None);
        machine.group("/s.slice/b.service/deep", "12\n", None);
        machine.process(12, 7, "/x");
        machine.write("proc/12/cgroup", "0::/s.slice/b.service/deep\n");
        let mut classes = machine.classes(&["unit = 'b.service'", "unit = 'a.service'"]);
        assert!(classes.walk().unwrap().1);
        // The root, a slice, two services, and some of what is below.
        classes.most_cgroups = 10;
        let (members, whole) = classes.walk().unwrap();
        assert!(!whole && members.contains_key(&10) && members.contains_key(&11));
        classes.most_cgroups = 4;
        assert!(!classes.walk().unwrap().0.contains_key(&12));
        assert_eq!(
            assigned(&mut classes, [10, 11, 12, 13]),
            [Some(1), Some(0), Some(0), None]
        );
    }

    #[test]
    fn a_unit_may_be_above_the_cgroup() {
        let machine = Machine::new();
        machine.group("/system.slice/r.service", "10\n", None);
        machine.group("/system.slice/r.service/workers", "11\n", Some(8));
        machine.group("/system.slice/r.service/workers/x", "12\n", None);
        let both = "unit = 'r.service'\ncgroup = '/system.slice/r.service/workers'";
        let mut classes = machine.classes(&[both]);
        assert_eq!(
            assigned(&mut classes, [10, 11, 12]),
            [None, Some(0), Some(0)]
        );
        assert_eq!(machine.used(&[both]), [Some(8)]);
    }

    #[test]
    fn a_class_lies_within_those_above_all_its_cgroups() {
        let machine = Machine::new();
        for path in ["/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/b"] {
            machine.group(path, "", Some(10));
        }
        let within = |classes: &[&str]| {
            let mut classes = machine.classes(classes);
            classes.used(&[NodeId(0)], &mut Vec::new()).unwrap();
            let nesting = classes.nesting();
            let ids = (0..classes.rules.len() as u32).map(ClassId);
            let within = ids.map(|class| nesting.within(class).map(|class| class.0));
            within.collect::<Vec<Option<u32>>>()
        };
        let all =
            ["/a/b/c", "/a", "/a/d", "/gone", "/a/b"].map(|path| format!("cgroup = '{path}'"));
        assert_eq!(
            within(&all.each_ref().map(String::as_str)),
            [Some(4), None, Some(1), None, Some(1)]
        );
        // One of its cgroups is not below the other class.
        assert_eq!(within(&["cgroup = '/a'", "cgroup = '/*/b'"]), [None, None]);
        assert_eq!(
            within(&["cgroup = '/'", "cgroup = '/*/b'"]),
            [None, Some(0)]
        );
        assert_eq!(
            within(&["cgroup = ['/a', '/e']", "cgroup = '/*/b'"]),
            [None, Some(0)]
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

    /// As both drivers of a kubelet make them.
    #[test]
    fn pods_are_in_classes_by_their_quality_and_what_they_dropped() {
        let machine = Machine::new();
        let slice = "/kubepods.slice/kubepods-burstable.slice";
        machine.group("/kubepods.slice", "", None);
        machine.group(slice, "", None);
        let pod = format!("{slice}/kubepods-burstable-pod1_a.slice");
        machine.group(&pod, "", Some(100));
        machine.group(&format!("{pod}/cri-containerd-0.scope"), "10\n", Some(90));
        machine.group("/kubepods", "", None);
        machine.group("/kubepods/besteffort", "", None);
        machine.group("/kubepods/besteffort/pod2-b", "", None);
        machine.group("/kubepods/besteffort/pod2-b/0123", "11\n", None);
        machine.group("/kubepods/pod3-c", "12\n", None);
        let mut classes = machine.classes(&[
            "pod_qos = 'burstable'",
            "pod_qos = ['besteffort', 'guaranteed']",
            "pod_choice = '/pods'",
            "pod_choice = '/pods'\npod_qos = 'guaranteed'",
        ]);
        let of = |classes: &mut Classes| assigned(classes, [10, 11, 12, 13]);
        assert_eq!(of(&mut classes), [Some(0), Some(1), Some(1), None]);
        let way = "volumes/kubernetes.io~empty-dir/memtide/class";
        machine.write(&format!("pods/1-a/{way}"), "2\n");
        // Only the best may choose this one, and nobody that one.
        machine.write("pods/2-b", "3");
        machine.write("pods/3-c", "1\n");
        let times = (1..=LOOK_AGAIN).map(|_| of(&mut classes));
        assert_eq!(times.last(), Some([Some(2), Some(1), Some(1), None]));
        let refused = classes.refused_choices();
        let why: Vec<_> = refused
            .iter()
            .map(|(pod, why)| format!("{pod}: {why}"))
            .collect();
        let why: std::collections::BTreeSet<_> = why.iter().map(String::as_str).collect();
        assert_eq!(
            why,
            ["2-b: it may not choose 3", "3-c: it may not choose 1"].into()
        );
        machine.write("pods/3-c", "3\n");
        let times = (1..=LOOK_AGAIN).map(|_| of(&mut classes));
        assert_eq!(times.last(), Some([Some(2), Some(1), Some(3), None]));
        // What the pod uses is the class's that it chose; each is told once.
        let mut used = Vec::new();
        classes.used(&[NodeId(0)], &mut used).unwrap();
        assert_eq!(used[..3], [Some(0), None, Some(100)]);
        machine.write("pods/3-c", "..");
        let times = (1..=LOOK_AGAIN).map(|_| of(&mut classes));
        assert_eq!(times.last(), Some([Some(2), Some(1), Some(1), None]));
        assert_eq!(classes.refused_choices(), []);
    }

    #[test]
    fn the_cgroup_that_stalls_longest_counts() {
        let machine = Machine::new();
        let stall = |path: &str, total: u64| {
            let text = format!("some avg10=0.00 total={total}\nfull avg10=0.00 total=7\n");
            machine.write(&format!("sys/fs/cgroup{path}/memory.pressure"), &text);
        };
        for path in ["/a", "/a/b", "/c", "/c/1", "/c/2", "/d"] {
            machine.group(path, "", None);
        }
        stall("/a", 1000);
        stall("/a/b", 500);
        stall("/c/1", 10);
        let mut classes = machine.classes(&[
            "cgroup = '/a'",
            "cgroup = '/c/*'",
            "cgroup = '/d'",
            "cgroup = '/a/b'\nuser = '7'",
        ]);
        let stalls = |classes: &mut Classes| classes.stalls().unwrap();
        assert_eq!(stalls(&mut classes), [Some(0), Some(0), None, None]);
        stall("/a", 1600);
        stall("/c/1", 40);
        // It began just now, and tells from now on.
        stall("/c/2", 9000);
        assert_eq!(stalls(&mut classes), [Some(600), Some(30), None, None]);
        stall("/c/1", 50);
        stall("/c/2", 9100);
        assert_eq!(stalls(&mut classes), [Some(600), Some(130), None, None]);
        // A cgroup of that name began anew; another cannot be read.
        stall("/c/2", 3);
        machine.write("sys/fs/cgroup/a/memory.pressure", "nothing\n");
        assert_eq!(stalls(&mut classes), [None, Some(130), None, None]);
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
