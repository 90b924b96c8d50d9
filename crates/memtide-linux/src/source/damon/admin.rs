//! Taking DAMON's tree, filling it in, and giving it back.
//!
//! Problem. DAMON's sysfs tree has one owner: whoever writes `nr_kdamonds`
//! destroys what was there. Another program may be using it, and a crash of
//! ours may have left it filled in.
//!
//! Approach. One memtide at a time has the tree: it holds DAMON's lock in the
//! journal ([`crate::lent`]) from before it first looks at the tree until the
//! tree is empty again. Before the tree is filled, a note says what will be
//! there. A tree that is not empty is ours to clear if there is such a note of
//! this boot (we hold the lock, so its writer is gone), if it has as many
//! kdamonds as the note says, and if every context in it bears our mark, an
//! update interval that no person would choose. Anything else is somebody
//! else's and stays untouched.
//!
//! `nr_kdamonds` cannot be written while any kdamond runs. So both of ours are
//! made at once, at the start, and each is turned on and off by itself.
//! Folders cost most of the set-up, so what is already in a kdamond's folder
//! is remembered and only differences are written.

use super::Unavailable;
use super::error::DamonError;
use super::holder::{self, Holder, PAUSABLE};
use super::knobs::{KnobError, Knobs};
use crate::lent::{Journal, LentError, Turn};
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// How many kdamonds we make.
pub const SLOTS: usize = 2;

/// The update interval that marks a context as ours: three hours and a bit.
/// Long, because updating would replace the regions.
pub const MARK_US: u64 = 10_800_018_731;

const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds";

/// DAMON's own users inside the kernel; they do not tolerate others.
pub const MODULES: [&str; 3] = ["damon_stat", "damon_reclaim", "damon_lru_sort"];

/// How DAMON looks at memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// Virtual addresses; without regions, the whole of an address space.
    Vaddr,
    /// Virtual addresses, only the regions given.
    Fvaddr,
}

impl Operations {
    fn name(self) -> &'static str {
        match self {
            Operations::Vaddr => "vaddr",
            Operations::Fvaddr => "fvaddr",
        }
    }
}

/// One monitored process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetConfig {
    /// The process.
    pub pid: u32,
    /// Sorted, disjoint byte ranges; empty leaves the choice to the kernel.
    pub regions: Vec<Range<u64>>,
}

/// All of one kdamond's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How to look.
    pub operations: Operations,
    /// Sampling interval in microseconds.
    pub sample_us: u64,
    /// Aggregation interval in microseconds.
    pub aggregate_us: u64,
    /// Fewest regions, at least 3.
    pub min_regions: u64,
    /// Most regions.
    pub max_regions: u64,
    /// What to look at.
    pub targets: Vec<TargetConfig>,
}

/// DAMON's tree, held by us.
#[derive(Debug)]
pub struct Admin<K: Knobs> {
    knobs: K,
    root: PathBuf,
    journal: Journal,
    holder: Holder,
    applied: [Option<Config>; SLOTS],
    held: bool,
    /// Nobody else may take the tree while this is here.
    turn: Option<Turn>,
}

impl<K: Knobs> Admin<K> {
    /// Takes the tree. With `pause_damon_stat`, the module `damon_stat` is
    /// turned off until [`restore`](Self::restore) if it runs.
    ///
    /// # Errors
    ///
    /// Why DAMON cannot be had here or now.
    pub fn claim(
        mut knobs: K,
        root: &Path,
        mut holder: Holder,
        pause_damon_stat: bool,
    ) -> Result<Admin<K>, Unavailable> {
        let count = format!("{KDAMONDS}/nr_kdamonds");
        if !knobs.exists(&count) {
            return Err(Unavailable::NoDamon {
                path: knobs.shown(&count),
            });
        }
        let journal = holder::journal(root);
        let Some(turn) = journal.turn()? else {
            // It may not have come to its note yet, or have gone from it.
            let noted = holder::noted(&journal).ok().flatten();
            return Err(Unavailable::HeldByMemtide {
                pid: noted.map(|noted| noted.pid),
                note: journal.path(),
            });
        };
        // Not before: another memtide may have come and gone until then.
        let there = knobs.read_number(&count)?;
        let leftover = holder::noted(&journal)?;
        if there > 0 {
            let ours = leftover
                .as_ref()
                .is_some_and(|previous| previous.kdamonds == there)
                && (0..there).all(|n| bears_our_mark(&knobs, n));
            if !ours {
                return Err(Unavailable::Busy {
                    kdamonds: there,
                    path: knobs.shown(&count),
                });
            }
            for n in 0..there {
                turn_off(&mut knobs, n)?;
            }
            knobs.write(&count, "0")?;
        }
        holder.paused_modules = leftover
            .map(|previous| previous.paused_modules)
            .unwrap_or_default();
        let running: Vec<&str> = MODULES
            .into_iter()
            .filter(|name| runs(&knobs, name))
            .collect();
        for name in running {
            if name != PAUSABLE || !pause_damon_stat {
                return Err(Unavailable::Module {
                    name,
                    path: knobs.shown(&switch(name)),
                });
            }
            if !holder.paused_modules.iter().any(|paused| paused == name) {
                holder.paused_modules.push(name.to_owned());
            }
        }
        journal.note(&holder)?;
        let mut admin = Admin {
            knobs,
            root: root.to_owned(),
            journal,
            holder,
            applied: [const { None }; SLOTS],
            held: true,
            turn: Some(turn),
        };
        admin.fill().inspect_err(|_| {
            // The first error is the one to tell; what is left to undo stays
            // noted.
            let _ = admin.restore();
        })?;
        Ok(admin)
    }

    fn fill(&mut self) -> Result<(), Unavailable> {
        for name in &self.holder.paused_modules {
            if runs(&self.knobs, name) {
                self.knobs.write(&switch(name), "N")?;
            }
        }
        self.knobs
            .write(&format!("{KDAMONDS}/nr_kdamonds"), &SLOTS.to_string())?;
        for n in 0..SLOTS {
            self.knobs
                .write(&format!("{KDAMONDS}/{n}/contexts/nr_contexts"), "1")?;
            let context = context(n);
            // First of all, so that whatever a crash leaves bears it.
            let update = format!("{context}/monitoring_attrs/intervals/update_us");
            self.knobs.write(&update, &MARK_US.to_string())?;
            let list = format!("{context}/avail_operations");
            let available = self.knobs.read(&list)?;
            for wanted in [Operations::Vaddr, Operations::Fvaddr] {
                if !available
                    .split_ascii_whitespace()
                    .any(|name| name == wanted.name())
                {
                    return Err(Unavailable::NoOperations {
                        path: self.knobs.shown(&list),
                        wanted: wanted.name(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Fills in a kdamond that is off.
    ///
    /// # Errors
    ///
    /// The kernel refused a value.
    pub fn prepare(&mut self, slot: usize, config: Config) -> Result<(), KnobError> {
        let known = self.applied[slot].take();
        self.apply(slot, known.as_ref(), &config)?;
        self.applied[slot] = Some(config);
        Ok(())
    }

    /// Turns a kdamond on as it was prepared. Returns its thread id.
    ///
    /// # Errors
    ///
    /// The kernel refused, for instance because a target is gone.
    pub fn turn_on(&mut self, slot: usize) -> Result<u32, KnobError> {
        self.knobs
            .write(&format!("{KDAMONDS}/{slot}/state"), "on")?;
        let path = format!("{KDAMONDS}/{slot}/pid");
        let pid = self.knobs.read(&path)?;
        pid.parse().map_err(|_| KnobError::Malformed {
            path: self.knobs.shown(&path),
            value: pid,
            expected: "a running kdamond's thread id",
        })
    }

    fn apply(
        &mut self,
        slot: usize,
        known: Option<&Config>,
        config: &Config,
    ) -> Result<(), KnobError> {
        let context = context(slot);
        let mut settings = vec![
            ("operations", config.operations.name().to_owned()),
            (
                "monitoring_attrs/intervals/sample_us",
                config.sample_us.to_string(),
            ),
            (
                "monitoring_attrs/intervals/aggr_us",
                config.aggregate_us.to_string(),
            ),
            (
                "monitoring_attrs/nr_regions/max",
                config.max_regions.to_string(),
            ),
            (
                "monitoring_attrs/nr_regions/min",
                config.min_regions.to_string(),
            ),
        ];
        let same_number = known.is_some_and(|known| known.targets.len() == config.targets.len());
        if !same_number {
            settings.push(("targets/nr_targets", config.targets.len().to_string()));
        }
        for (name, value) in settings {
            self.knobs.write(&format!("{context}/{name}"), &value)?;
        }
        for (n, target) in config.targets.iter().enumerate() {
            let known = known.filter(|_| same_number).map(|known| &known.targets[n]);
            let folder = format!("{context}/targets/{n}");
            self.knobs
                .write(&format!("{folder}/pid_target"), &target.pid.to_string())?;
            let regions = format!("{folder}/regions");
            let before = known.map_or(&[][..], |known| &known.regions);
            let keep = before.len() == target.regions.len();
            if !keep {
                self.knobs.write(
                    &format!("{regions}/nr_regions"),
                    &target.regions.len().to_string(),
                )?;
            }
            self.write_regions(&regions, if keep { before } else { &[] }, &target.regions)?;
        }
        Ok(())
    }

    /// Writes the bounds that differ from what is there.
    fn write_regions(
        &mut self,
        folder: &str,
        before: &[Range<u64>],
        regions: &[Range<u64>],
    ) -> Result<(), KnobError> {
        let mut bounds = regions.iter().enumerate().flat_map(|(n, region)| {
            let old = before.get(n);
            let start = (old.map(|old| old.start) != Some(region.start)).then_some((
                n,
                "start",
                region.start,
            ));
            let end =
                (old.map(|old| old.end) != Some(region.end)).then_some((n, "end", region.end));
            start.into_iter().chain(end)
        });
        let mut next = bounds.next();
        if next.is_none() {
            return Ok(());
        }
        self.knobs.write_each(folder, &mut |name, value| {
            let Some((n, bound, address)) = next else {
                return false;
            };
            write!(name, "{n}/{bound}").expect("a string takes everything");
            write!(value, "{address}").expect("a string takes everything");
            next = bounds.next();
            true
        })
    }

    /// Turns a kdamond off if it is on.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn stop(&mut self, slot: usize) -> Result<(), KnobError> {
        if self.held {
            turn_off(&mut self.knobs, slot as u64)
        } else {
            Ok(())
        }
    }

    /// Whether a kdamond is on.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn running(&self, slot: usize) -> Result<bool, KnobError> {
        Ok(self.held && self.knobs.read(&format!("{KDAMONDS}/{slot}/state"))? == "on")
    }

    /// Gives everything back: kdamonds off, tree empty, modules as they were,
    /// no note. Does nothing the second time.
    ///
    /// # Errors
    ///
    /// The first thing that could not be undone. The rest is undone as far as
    /// it goes, and the note stays, so that the next start tries again.
    pub fn restore(&mut self) -> Result<(), DamonError> {
        if !self.held {
            return Ok(());
        }
        let mut first = Ok(());
        let mut keep = |result: Result<(), KnobError>| {
            if first.is_ok() {
                first = result;
            }
        };
        for n in 0..SLOTS as u64 {
            if self.knobs.exists(&format!("{KDAMONDS}/{n}/state")) {
                keep(turn_off(&mut self.knobs, n));
            }
        }
        keep(self.knobs.write(&format!("{KDAMONDS}/nr_kdamonds"), "0"));
        for name in &self.holder.paused_modules {
            keep(self.knobs.write(&switch(name), "Y"));
        }
        first?;
        self.journal.forget()?;
        self.held = false;
        self.turn = None;
        Ok(())
    }

    /// Modules that are off as long as the tree is held.
    pub fn paused_modules(&self) -> &[String] {
        &self.holder.paused_modules
    }

    /// The root under which `/proc` is read.
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[cfg(test)]
    pub(crate) fn knobs(&mut self) -> &mut K {
        &mut self.knobs
    }
}

impl<K: Knobs> Drop for Admin<K> {
    fn drop(&mut self) {
        // Nobody is left to tell; the note stays and tells the next one.
        let _ = self.restore();
    }
}

/// What a holder that is gone left, in a sentence, if this is the same boot.
pub(super) fn left_over(root: &Path) -> Result<Option<String>, LentError> {
    let journal = holder::journal(root);
    if journal.is_held()? {
        return Ok(None);
    }
    let Some(previous) = holder::noted(&journal)? else {
        return Ok(None);
    };
    let mut left = format!(
        "process {} held {} kdamonds",
        previous.pid, previous.kdamonds
    );
    for module in &previous.paused_modules {
        left.push_str(&format!(" and had turned {module} off"));
    }
    Ok(Some(left))
}

fn context(slot: usize) -> String {
    format!("{KDAMONDS}/{slot}/contexts/0")
}

fn switch(module: &str) -> String {
    format!("sys/module/{module}/parameters/enabled")
}

fn runs<K: Knobs>(knobs: &K, module: &str) -> bool {
    knobs.read(&switch(module)).is_ok_and(|value| value == "Y")
}

fn turn_off<K: Knobs>(knobs: &mut K, n: u64) -> Result<(), KnobError> {
    let state = format!("{KDAMONDS}/{n}/state");
    if knobs.read(&state)? != "on" {
        return Ok(());
    }
    match knobs.write(&state, "off") {
        // It ended by itself meanwhile, because its targets did.
        Err(_) if knobs.read(&state)? == "off" => Ok(()),
        result => result,
    }
}

/// A context of ours, or one that a crash left before it held anything.
fn bears_our_mark<K: Knobs>(knobs: &K, n: u64) -> bool {
    match knobs.read_number(&format!("{KDAMONDS}/{n}/contexts/nr_contexts")) {
        Ok(0) => true,
        Ok(1) => {
            let context = format!("{KDAMONDS}/{n}/contexts/0");
            let is = |name: &str, wanted| {
                knobs
                    .read_number(&format!("{context}/{name}"))
                    .is_ok_and(|value| value == wanted)
            };
            is("monitoring_attrs/intervals/update_us", MARK_US) || is("targets/nr_targets", 0)
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "admin_tests.rs"]
mod tests;
