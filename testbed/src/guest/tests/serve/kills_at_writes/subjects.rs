//! What the service lends while it is killed, and for whom.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::super::PATIENCE;
use super::super::shares::Slice;
use crate::guest::late::within;
use crate::guest::measure::GOAL;
use crate::guest::pace::Stretch;
use crate::guest::procfs::{node_cpus, online_cpus};
use crate::guest::subject::{Victim, census_cold, census_hot};
use crate::guest::sys::move_pages_to;
use crate::guest::tests::balance::sets;
use crate::guest::tests::balance::tasks::affinities;
use crate::guest::tests::manners::{SLOW, SMALL};

/// DAMON's user inside the kernel, which tiering turns off meanwhile.
const STATISTICS: &str = "/sys/module/damon_stat/parameters/enabled";

/// Whom the service is for.
pub(super) trait Subject {
    /// What it is to do for them.
    fn configuration(&self) -> String;

    /// Makes everything be to do again.
    fn undo(&mut self) -> Result<()>;

    /// Whether all is done, and so all is lent.
    fn is_done(&self) -> Result<bool>;

    /// That what no setting shows is as before.
    fn check_unchanged(&self) -> Result<()>;

    /// The same at the end, and leaves the machine as it was.
    fn end(self: Box<Self>) -> Result<()>;
}

/// Hot pages on the slow node, and a program that may not leave it: DAMON's tree, its user inside the
/// kernel, and the table of interleave weights are lent.
pub(super) struct Tiered {
    victim: Victim,
    bound: Victim,
    dram: Vec<u32>,
    had_statistics: Option<String>,
}

impl Tiered {
    pub(super) fn start(dram: &[u32]) -> Result<Self> {
        let had_statistics = std::fs::read_to_string(STATISTICS).ok();
        if had_statistics.is_some() {
            std::fs::write(STATISTICS, "Y").context(STATISTICS)?;
        }
        Ok(Self {
            victim: Victim::start(SMALL, 1)?,
            bound: Victim::start(&format!("{SMALL} --keep-policy"), 1)?,
            dram: dram.to_owned(),
            had_statistics,
        })
    }
}

impl Subject for Tiered {
    fn configuration(&self) -> String {
        "[tier]\ndemote_idle = \"10m\"\n[weights]\ntable = \"0=5,2=2\"\n".to_owned()
    }

    fn undo(&mut self) -> Result<()> {
        for known in self.victim.known_pages() {
            move_pages_to(known.pid, &known.hot, SLOW)?;
        }
        Ok(())
    }

    fn is_done(&self) -> Result<bool> {
        Ok(census_hot(&self.victim.known_pages(), &self.dram)?.share() >= GOAL)
    }

    fn check_unchanged(&self) -> Result<()> {
        let known = self.bound.known_pages();
        let strays = census_hot(&known, &self.dram)?.there + census_cold(&known, &self.dram)?.there;
        ensure!(strays == 0, "{strays} pages went where they may not be");
        Ok(())
    }

    fn end(self: Box<Self>) -> Result<()> {
        self.check_unchanged()?;
        if let Some(before) = &self.had_statistics {
            std::fs::write(STATISTICS, before.trim()).context(STATISTICS)?;
        }
        Ok(())
    }
}

/// Threads that may run anywhere and run far from their memory: affinities are lent.
pub(super) struct Balanced {
    sets: Victim,
    before: BTreeMap<u32, String>,
    // Last: it goes when nobody is in it.
    slice: Slice,
}

impl Balanced {
    pub(super) fn start() -> Result<Self> {
        // Of the second the threads pin themselves, which leaves the first little room on that node.
        let slice = Slice::create("balanced")?;
        let sets = slice.start(|| sets("--size 8 --set any:1 --set 1:1"))?;
        let stretch = Stretch::begin();
        loop {
            let pid = sets.truth().pid;
            let before = affinities(pid)?;
            let pinned = before.values().filter(|cpus| **cpus != before[&pid]);
            if pinned.count() == 2 {
                return Ok(Self {
                    sets,
                    before,
                    slice,
                });
            }
            within(&stretch, PATIENCE, || {
                format!("a set is not pinned: {before:?}")
            })?;
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The threads that may run anywhere, but for the first, which does nothing.
    fn free(&self) -> impl Iterator<Item = u32> {
        let pid = self.sets.truth().pid;
        let all = self.before[&pid].clone();
        let free = self.before.iter();
        let free = free.filter(move |(tid, cpus)| **cpus == all && **tid != pid);
        free.map(|(tid, _)| *tid)
    }
}

impl Subject for Balanced {
    fn configuration(&self) -> String {
        let source = "[balance]\nsource = \"writes\"\ntasks = \"set\"\nrate = 20000\n";
        self.slice.class("balanced", "balance = true") + source
    }

    fn undo(&mut self) -> Result<()> {
        let Some(first) = self.sets.known_pages().into_iter().next() else {
            bail!("no set");
        };
        move_pages_to(first.pid, &first.hot, 1)?;
        let cpus = |numbers: Vec<u32>| {
            let mut set = CpuSet::new();
            numbers.iter().for_each(|cpu| set.set(*cpu as usize));
            set
        };
        let far = cpus(node_cpus(0)?);
        let all = cpus(online_cpus()?);
        for tid in self.free() {
            let thread = Pid::from_raw(tid.cast_signed());
            // A thread that works stays where it is for a while.
            sched_setaffinity(thread, &far)?;
            sched_setaffinity(thread, &all)?;
        }
        Ok(())
    }

    fn is_done(&self) -> Result<bool> {
        Ok(affinities(self.sets.truth().pid)? != self.before)
    }

    fn check_unchanged(&self) -> Result<()> {
        let now = affinities(self.sets.truth().pid)?;
        ensure!(now == self.before, "{now:?} instead of {:?}", self.before);
        Ok(())
    }

    fn end(self: Box<Self>) -> Result<()> {
        self.check_unchanged()
    }
}
