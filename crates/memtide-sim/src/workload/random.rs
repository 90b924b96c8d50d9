//! Threads that access random pages of one mapping: the pghot series' benchmark in its three modes, and
//! the plainest of workloads.
//!
//! "Multi-threaded application with 64 threads that access memory at 4K granularity repetitively and
//! randomly": each access goes to a line of a random page: in the document's benchmark to its first, which its
//! scenarios say. A store is a read-modify-write of that line. The memory is populated on one node before the threads start on another. Which page is
//! next a thread reads from its list (`list.rs`).

use super::checks::{some_accesses, some_operations, some_threads, stores_of_100};
use super::lines::Lines;
use super::list::Lists;
use super::pace::Pace;
use super::{
    Access, Acts, Filled, Kind, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages, want,
};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// The benchmark's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSpec {
    /// How many threads.
    pub threads: u32,
    /// The node on whose CPUs they run.
    pub node: u16,
    /// The memory they share.
    pub memory: Bytes,
    /// The node it is populated on.
    pub on: u16,
    /// What memory it is.
    #[serde(default)]
    pub mapping: Mapping,
    /// Whether it has huge pages.
    #[serde(default)]
    pub huge: bool,
    /// Which lines of a page they go to: the first so many of 64.
    #[serde(default)]
    pub lines: Lines,
    /// How many of 100 accesses store.
    pub stores_percent: u32,
    /// Accesses of each thread.
    pub accesses: u64,
    /// Operations that retire per access.
    pub ops_per_access: u32,
    /// Time per access that needs no memory.
    pub think: Nanos,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
}

/// What memory a mapping has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// Anonymous.
    #[default]
    Anonymous,
    /// A file, shared.
    SharedFile,
    /// A file, private.
    PrivateFile,
}

impl Mapping {
    /// As the kernel model names it.
    pub(super) fn kind(self) -> Kind {
        match self {
            Mapping::Anonymous => Kind::Anonymous,
            Mapping::SharedFile => Kind::SharedFile,
            Mapping::PrivateFile => Kind::PrivateFile,
        }
    }
}

impl RandomSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("on", self.on)?;
        places.fit("memory", self.memory.0)?;
        some_threads(self.threads)?;
        some_accesses(self.accesses)?;
        some_operations(self.ops_per_access)?;
        stores_of_100(self.stores_percent)?;
        self.lines.check()?;
        want(
            !self.huge || self.mapping == Mapping::Anonymous,
            "huge",
            "only anonymous memory has huge pages here; leave it out",
        )
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Random) {
        let count = pages(self.memory, scale, self.huge);
        let region = places.region("memory", count, self.node, self.on);
        let mut region = region.in_huge_pages(self.huge);
        region.kind = self.mapping.kind();
        region.file = (self.mapping != Mapping::Anonymous).then_some(0);
        let thread = ThreadPlan::on(self.node, Pattern::Random, self.ops_per_access, self.think);
        let lists = Lists::new(self.threads as usize, count);
        let list = lists.region(places, self.node, &region);
        let plan = Plan {
            regions: vec![region, list],
            threads: vec![thread; self.threads as usize],
            ends_at_ns: None,
        };
        let random = Random {
            base: 0,
            lists,
            pages: count,
            lines: self.lines,
            stores: share_of_65536(self.stores_percent),
            node: self.node,
            pace: Pace::new(self.threads as usize, self.accesses / u64::from(scale)),
        };
        (plan, random)
    }
}

/// `percent` as [`Rng::chance`] takes it.
pub(super) fn share_of_65536(percent: u32) -> u32 {
    percent * 65_536 / 100
}

/// An access to a random one of `lines` of a random one of `pages` pages, by one random number: its high
/// half says which page, bits 16 to 31 which line, its low 16 bits whether it stores.
#[inline]
pub(super) fn random_access(
    rng: &mut Rng,
    base: Slot,
    pages: u32,
    lines: Lines,
    stores: u32,
) -> Access {
    let bits = rng.bits();
    access_by(bits, base, pages, lines.pick(bits >> 16), stores)
}

/// The same by a number that was drawn already, to a line that was; its bits 16 to 31 are free.
#[inline]
pub(super) fn access_by(bits: u64, base: Slot, pages: u32, line: u32, stores: u32) -> Access {
    let page = ((bits >> 32) * u64::from(pages)) >> 32;
    Access::new(
        base + page as u32,
        line,
        1,
        (bits & 0xffff) < u64::from(stores),
    )
}

/// The benchmark, running.
#[derive(Clone, Debug)]
pub(super) struct Random {
    base: Slot,
    lists: Lists,
    pages: u32,
    lines: Lines,
    stores: u32,
    node: u16,
    pace: Pace,
}

impl Acts for Random {
    fn mapped(&mut self, slots: &[Slot]) {
        self.base = slots[0];
        self.lists.mapped(slots[1]);
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        if self.pace.is_over(thread) {
            return Filled::Done;
        }
        let made = self.pace.made(thread);
        let mut batch = batch;
        let turned = self.lists.turn(thread, made);
        if let Some(page) = turned {
            batch[0] = page;
            batch = &mut batch[1..];
        }
        let room = batch.len().min(Lists::until_next(made) as usize);
        let count = self.pace.take(thread, room);
        for access in &mut batch[..count] {
            *access = random_access(rng, self.base, self.pages, self.lines, self.stores);
        }
        Filled::Accesses(count + usize::from(turned.is_some()))
    }

    fn done(&self) -> f64 {
        self.pace.done()
    }

    fn truth(&self, region: usize, _: u32, _: u64) -> Truth {
        // One thread reads a list; all use the memory, of whose pages a list has one entry each.
        let readers = self.lists.threads() as f32;
        Truth {
            rate: if region == 0 { 1.0 } else { 1.0 / readers },
            node: self.node,
        }
    }
}
