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
//!
//! A walk costs what it sees. So it is made less often than it is asked who is in which class,
//! if it would take more than one part in [`WALK_SHARE`] of a processor. Until the next one, processes that
//! came are asked for their cgroup, too, twice each, and one that is in a cgroup that no walk has seen brings
//! the next walk on; one that was moved to another cgroup later stays in its class.
//!
//! In a container the kernel does not say where processes of others are: their paths lead out of its cgroup
//! namespace. Then what the last walk found holds until the next one, which whoever comes brings on. Who leaves
//! all classes is in none once two walks have missed it.

use super::class_stalls::ClassStalls;
use crate::fs::cgroup::{self, Cgroup, MOST_CGROUPS, own_processes};
use crate::fs::proc::Process;
use crate::fs::{FsError, Root, pods};
use crate::source::from_page_table::thread_time;
use memtide_core::units::NodeId;
use memtide_loop::options::{Fitting, Looks, PodUid, Rules};
use memtide_loop::world::{ClassId, Nesting, ProcessId, ProcessSeen};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// How often a process's user and executable are read: every so many times.
const LOOK_AGAIN: u32 = 8;
/// What the kernel writes behind the path of an executable that was replaced.
const REPLACED: &[u8] = b" (deleted)";

/// Walks take at most one part in so many of a processor.
const WALK_SHARE: u128 = 300;
/// How often it is asked who is in which class, in ns.
const ASKED_EACH: u128 = 1_000_000_000;
/// It is asked so often without a walk, at most, however much that costs.
const MOST_SKIPPED: u32 = 29;
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
    /// Where the processes were that were asked for last.
    placed: HashMap<ProcessId, Placed>,
    /// How often no walk is made before the next one.
    skip: u32,
    /// What that was after the last one, and whether that one left nothing out.
    pause: u32,
    saw_all: bool,
    /// The processor time that this thread has used.
    thread_time: fn() -> Duration,
    stalls: ClassStalls,
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
    /// Its path from the hierarchy's root.
    path: PathBuf,
    /// The one above whose figures contain it.
    above: Option<usize>,
}

/// Where a process was found.
#[derive(Debug)]
struct Placed {
    /// What fits its cgroup.
    fitting: Rc<Fitting>,
    /// It was there the time before, too: who starts a container moves what it begins with.
    settled: bool,
    /// The last walk did not find it, and neither did the kernel say.
    missed: bool,
}

/// What fits each process that a walk found, and whether it left nothing out.
type Members = (BTreeMap<u32, Rc<Fitting>>, bool);

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
            placed: HashMap::new(),
            skip: 0,
            pause: 0,
            saw_all: true,
            thread_time,
            stalls: ClassStalls::default(),
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
        self.look(seen)?;
        let walked = match self.skip.checked_sub(1) {
            None => Some(self.walk_and_pace()?),
            Some(skip) => {
                self.skip = skip;
                None
            }
        };
        let none = Rc::new(Fitting::new());
        let before = std::mem::take(&mut self.placed);
        for seen in seen {
            let old = before.get(&seen.process);
            let found = match &walked {
                Some((members, whole)) => {
                    let member = members.get(&seen.process.pid);
                    // While cgroups are read one after the other a process may move past that.
                    let lost = old.is_some_and(|old| fits_any(&old.fitting));
                    member.or((*whole && !lost).then_some(&none))
                }
                None => old.filter(|old| old.settled).map(|old| &old.fitting),
            };
            let missed = walked.is_none() && old.is_some_and(|old| old.missed);
            let (fitting, missed) = match found {
                Some(fitting) => (Rc::clone(fitting), missed),
                None => match (self.ask(seen.process, walked.is_none()), old) {
                    (Some(fitting), _) => (Rc::new(fitting), false),
                    // Whoever moves during a walk is missed by one, not by two.
                    (None, Some(old)) if walked.is_none() || !old.missed => {
                        (Rc::clone(&old.fitting), missed || walked.is_some())
                    }
                    (None, _) => (Rc::clone(&none), false),
                },
            };
            let known = self.known.get(&seen.process);
            let looks = Looks {
                user: known.and_then(|known| known.user),
                executable: known.and_then(|known| known.executable.as_deref()),
            };
            seen.class = self.rules.class_of(&fitting, looks);
            let settled = old.is_some();
            let placed = Placed {
                fitting,
                settled,
                missed,
            };
            self.placed.insert(seen.process, placed);
        }
        if walked.is_some() {
            let known = &mut self.choices.get_mut().known;
            known.retain(|_, choice| choice.asked == times);
        }
        Ok(())
    }

    /// A walk, and when the next one is made.
    fn walk_and_pace(&mut self) -> Result<Members, FsError> {
        let before = (self.thread_time)();
        let walked = self.walk()?;
        let cost = (self.thread_time)().saturating_sub(before).as_nanos();
        let rounds = u32::try_from(cost * WALK_SHARE / ASKED_EACH).unwrap_or(u32::MAX);
        self.pause = rounds.min(MOST_SKIPPED);
        self.skip = self.pause;
        self.saw_all = walked.1;
        Ok(walked)
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

    /// What fits the cgroup in which a process says that it is; `None` if that is not said. If it is `new` and no
    /// walk has seen that cgroup, the next one comes after a quarter of the pause.
    fn ask(&mut self, id: ProcessId, new: bool) -> Option<Fitting> {
        let path = match process(id).cgroup(&self.root) {
            Ok(Some(path)) => path,
            Ok(None) => {
                if new {
                    self.bring_on();
                }
                return None;
            }
            // It is gone, or its path is longer than what the kernel says.
            Err(_) => return Some(Fitting::new()),
        };
        let names: Vec<&[u8]> = names(&path).take(DEEPEST).collect();
        let fitting = self.along(&names, names.len() + 1);
        if new && let Some(class) = self.rules.class_of_cgroup(&fitting) {
            let inside = path.strip_prefix("/").unwrap_or(&path);
            let contains = |one: &Charged| one.class == class && inside.starts_with(&one.path);
            let charged = self.charged.as_deref().unwrap_or_default();
            if !charged.iter().any(contains) {
                self.bring_on();
            }
        }
        Some(fitting)
    }

    /// The next walk comes after a quarter of the pause. What a walk leaves out the next one does, too.
    fn bring_on(&mut self) {
        if self.saw_all {
            let since = self.pause - self.skip;
            self.skip = self.skip.min((self.pause / 4).saturating_sub(since));
        }
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
    fn walk(&mut self) -> Result<Members, FsError> {
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
            let path = path.unwrap_or(&visit.directory);
            let names: Vec<&[u8]> = names(path).collect();
            let chose = self.chosen(&names);
            let fitting = Rc::new(self.rules.fitting(&visit.above, &names, chose));
            if fits_any(&fitting) {
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
                    path: path.to_owned(),
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
        let read = |one: &Charged| self.with_below(&one.directory, top);
        let with_below: Vec<Option<u64>> = charged.iter().map(read).collect::<Result<_, _>>()?;
        for (one, bytes) in charged.iter().zip(&with_below) {
            if bytes.is_none() {
                used[one.class.0 as usize] = None;
            }
        }
        // The deepest first: each takes its own off that of the next above it, where all that its class
        // uses is known. Else it stays with that one.
        let mut below = vec![0_u64; charged.len()];
        for (n, (one, bytes)) in charged.iter().zip(with_below).enumerate().rev() {
            let (sum, bytes) = (&mut used[one.class.0 as usize], bytes.unwrap_or(0));
            let off = match sum {
                Some(sum) => {
                    *sum += bytes.saturating_sub(below[n]);
                    bytes
                }
                None => below[n],
            };
            if let Some(above) = one.above {
                below[above] += off;
            }
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

    /// For how long tasks of each class have stalled on memory, in µs, by [`ClassId`]; `None` if the kernel
    /// does not say. See [`class_stalls`](super::class_stalls).
    pub fn stalls(&mut self) -> Result<Vec<Option<u64>>, FsError> {
        if self.charged.is_none() {
            self.walk()?;
        }
        let charged = self.charged.as_deref().unwrap_or_default();
        let own = charged.iter().map(|one| (one.class, &*one.directory));
        let charged: Vec<(ClassId, &Path)> = own.collect();
        Ok(self.stalls.read(&self.root, self.rules.len(), &charged))
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

/// Whether any class fits, as far as cgroups go.
fn fits_any(fitting: &Fitting) -> bool {
    fitting.iter().flatten().any(Option::is_some)
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
#[path = "classes_tests.rs"]
mod tests;
