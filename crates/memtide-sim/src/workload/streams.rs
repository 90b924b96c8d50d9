//! Threads that stream through arrays: STREAM's four kernels and MLC's mixes (the weighted interleave series).
//!
//! STREAM: each thread has an equal part of every array and takes it page by page: reads the page of
//! each source, then stores the page of the destination with streaming stores, which do not read what
//! they overwrite. The program counts the bytes of the arrays. Beside the arrays a program has memory
//! that is not driven for bandwidth (code, stack, buffers): it is touched now and then, and a targeted
//! interleave leaves it alone. After each pass over the arrays the threads wait for the last of them.
//!
//! MLC counts what memory carries: R is reads only, W2 two reads for each write, W5 one. A plain store is both a
//! read of the line and a write of it, so W5 stores everywhere and W2 reads one page for each that it
//! stores.

use super::checks::some_threads;
use super::pace::Pace;
use super::places::START_VPN;
use super::{
    Access, Acts, Filled, Pattern, Places, Plan, RegionPlan, ThreadPlan, Truth, Wrong, pages, want,
    whole,
};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// STREAM's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// Which kernel.
    pub kernel: StreamKernel,
    /// How many threads.
    pub threads: u32,
    /// The node on whose CPUs they run, and where memory comes from first.
    pub node: u16,
    /// The size of one array.
    pub array: Bytes,
    /// How often the kernel runs over them.
    pub times: u32,
    /// Memory of the program beside the arrays.
    pub program: Bytes,
    /// Whether its memory has huge pages.
    #[serde(default)]
    pub huge: bool,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
}

/// What is done with the arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamKernel {
    /// c = a
    Copy,
    /// b = s c
    Scale,
    /// c = a + b
    Add,
    /// a = b + s c
    Triad,
}

impl StreamKernel {
    /// Regions read, then the one written.
    fn steps(self) -> &'static [Step] {
        use Step::{Read, Stream};
        match self {
            StreamKernel::Copy => &[Read(0), Stream(2)],
            StreamKernel::Scale => &[Read(2), Stream(1)],
            StreamKernel::Add => &[Read(0), Read(1), Stream(2)],
            StreamKernel::Triad => &[Read(1), Read(2), Stream(0)],
        }
    }
}

/// MLC's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MlcSpec {
    /// Which mix.
    pub mix: MlcMix,
    /// How many threads.
    pub threads: u32,
    /// The node on whose CPUs they run, and where memory comes from first.
    pub node: u16,
    /// The buffer of each thread.
    pub buffer: Bytes,
    /// When the run ends.
    pub until: Nanos,
    /// Whether its memory has huge pages.
    #[serde(default)]
    pub huge: bool,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
}

/// Reads to writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum MlcMix {
    /// Reads only
    R,
    /// 2:1
    W2,
    /// 1:1
    W5,
}

/// What a thread does with one page.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u8),
    Store(u8),
    Stream(u8),
}

/// One line of the program's own memory is touched for so many pages of arrays.
const PAGES_PER_OWN: u32 = 64;

impl StreamSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("node", self.node)?;
        some_threads(self.threads)?;
        want(self.times > 0, "times", "give at least 1")?;
        places.fit("array", self.array.0.saturating_mul(3))?;
        places.fit("program", self.program.0)
    }

    /// Bytes that the program counts, in all, on a machine of scale 1/`scale`. Each thread has whole pages
    /// there, one at least, and as many as the one with most: that is what is streamed, and what counts.
    #[must_use]
    pub fn counted_bytes(&self, scale: u32) -> u64 {
        let threads = u64::from(self.threads);
        let streamed = u64::from(self.pages(scale)).div_ceil(threads) * threads;
        let bytes = streamed * u64::from(scale) * (4 << 10);
        self.kernel.steps().len() as u64 * bytes * u64::from(self.times)
    }

    /// Pages of an array.
    fn pages(&self, scale: u32) -> u32 {
        whole(
            pages(self.array, scale, self.huge).max(self.threads),
            self.huge,
        )
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Streams) {
        let count = self.pages(scale);
        let own = pages(self.program, scale, false);
        let mut at = START_VPN;
        let mut region = |name: &str, pages: u32, bandwidth| {
            let region = streamed(places, name, pages, self.node, at, bandwidth);
            let region = region.in_huge_pages(self.huge && bandwidth);
            at += u64::from(pages).next_multiple_of(512);
            region
        };
        let regions = vec![
            region("a", count, true),
            region("b", count, true),
            region("c", count, true),
            region("program", own, false),
        ];
        let steps = self.kernel.steps().to_vec();
        let threads = self.threads as usize;
        let begin = |n: usize| (n as u64 * u64::from(count) / threads as u64) as u32;
        let parts = (0..threads).map(|n| begin(n)..begin(n + 1)).collect();
        streams(
            regions,
            steps,
            parts,
            self.node,
            Some(self.times),
            Some(own),
        )
    }
}

impl MlcSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("node", self.node)?;
        some_threads(self.threads)?;
        want(self.until.0 > 0.0, "until", "a run of no time; give some")?;
        places.fit(
            "buffer",
            self.buffer.0.saturating_mul(u64::from(self.threads)),
        )
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Streams) {
        let count = pages(self.buffer, scale, false);
        let all = whole(count * self.threads, self.huge);
        let buffers = streamed(places, "buffers", all, self.node, START_VPN, true);
        let regions = vec![buffers.in_huge_pages(self.huge)];
        let steps = match self.mix {
            MlcMix::R => vec![Step::Read(0)],
            MlcMix::W2 => vec![Step::Read(0), Step::Store(0)],
            MlcMix::W5 => vec![Step::Store(0)],
        };
        let parts = (0..self.threads)
            .map(|n| n * count..(n + 1) * count)
            .collect();
        let (mut plan, mut streams) = streams(regions, steps, parts, self.node, None, None);
        plan.ends_at_ns = Some(self.until.0 as u64);
        streams.until_ns = Some(self.until.0 as u64);
        (plan, streams)
    }
}

fn streamed(
    places: &Places,
    name: &str,
    pages: u32,
    node: u16,
    start_vpn: u64,
    bandwidth: bool,
) -> RegionPlan {
    RegionPlan {
        start_vpn,
        bandwidth,
        policy: places.default_policy(),
        policy_after: None,
        ..places.region(name, pages, node, node)
    }
}

fn streams(
    regions: Vec<RegionPlan>,
    steps: Vec<Step>,
    parts: Vec<std::ops::Range<u32>>,
    node: u16,
    times: Option<u32>,
    own_pages: Option<u32>,
) -> (Plan, Streams) {
    let thread = ThreadPlan {
        space: 0,
        nodes: vec![node],
        pattern: Pattern::Sequential,
        // 64 lines of 8 words, a load or store each.
        ops_per_access: 512,
        think_ns: 0.0,
        misses_at_once: None,
        group: 0,
    };
    let longest = parts
        .iter()
        .map(|part| part.end - part.start)
        .max()
        .unwrap_or(1);
    let pass = times.map(|_| u64::from(longest) * steps.len() as u64);
    let each = match (times, pass) {
        (Some(times), Some(pass)) => pass * u64::from(times),
        _ => u64::MAX,
    };
    let plan = Plan {
        regions,
        threads: vec![thread; parts.len()],
        ends_at_ns: None,
    };
    let streams = Streams {
        slots: Vec::new(),
        at: parts.iter().map(|part| (part.start, 0)).collect(),
        pace: Pace::new(parts.len(), each),
        owed: vec![true; parts.len()],
        parts,
        steps,
        own_pages,
        pass,
        node,
        until_ns: None,
        now_ns: 0,
    };
    (plan, streams)
}

/// A kernel or a mix, running.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    slots: Vec<Slot>,
    parts: Vec<std::ops::Range<u32>>,
    /// Page and step of each thread.
    at: Vec<(u32, usize)>,
    steps: Vec<Step>,
    own_pages: Option<u32>,
    /// Accesses of a thread in one pass, after which the threads wait for each other.
    pass: Option<u64>,
    /// Whether the thread's next touch of the program's own memory is still to come.
    owed: Vec<bool>,
    node: u16,
    pace: Pace,
    until_ns: Option<u64>,
    now_ns: u64,
}

impl Acts for Streams {
    fn mapped(&mut self, slots: &[Slot]) {
        self.slots = slots.to_vec();
    }

    fn fill(&mut self, thread: usize, now_ns: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        self.now_ns = self.now_ns.max(now_ns);
        if self.until_ns.is_some_and(|until| now_ns >= until) {
            return Filled::Done;
        }
        let mut room = batch.len() as u64;
        if let Some(pass) = self.pass {
            let made = self.pace.made(thread);
            if made > 0 && made.is_multiple_of(pass) && !self.pace.all_made(made) {
                return Filled::Waits;
            }
            room = room.min(pass - made % pass);
        }
        let (mut page, mut step) = self.at[thread];
        let part = &self.parts[thread];
        let mut count = 0;
        for access in &mut *batch {
            if room == 0 || self.pace.is_over(thread) {
                break;
            }
            count += 1;
            if let Some(own) = self.own_pages
                && step == 0
                && page % PAGES_PER_OWN == 0
                && self.owed[thread]
            {
                // Before this page, one line of the program's own memory, beside what it counts.
                self.owed[thread] = false;
                let slot = self.slots[3] + rng.below(own);
                *access = Access::new(slot, rng.below(64), 1, false);
                continue;
            }
            room -= self.pace.take(thread, 1) as u64;
            self.owed[thread] = true;
            let slot = |region: u8| self.slots[usize::from(region)] + page;
            *access = match self.steps[step] {
                Step::Read(region) => Access::new(slot(region), 0, 64, false),
                Step::Store(region) => Access::new(slot(region), 0, 64, true),
                Step::Stream(region) => Access::streaming(slot(region), 0, 64),
            };
            step += 1;
            if step == self.steps.len() || self.own_pages.is_none() {
                // Mixes on one buffer take the next page for the next step.
                step = if step == self.steps.len() { 0 } else { step };
                page = if page + 1 == part.end {
                    part.start
                } else {
                    page + 1
                };
            }
        }
        self.at[thread] = (page, step);
        Filled::of(count)
    }

    fn done(&self) -> f64 {
        match self.until_ns {
            Some(until) => (self.now_ns as f64 / until as f64).min(1.0),
            None => self.pace.done(),
        }
    }

    fn truth(&self, region: usize, _: u32, _: u64) -> Truth {
        let used = region < 3
            && self.steps.iter().any(|step| match *step {
                Step::Read(r) | Step::Store(r) | Step::Stream(r) => usize::from(r) == region,
            });
        Truth {
            rate: if used { 1.0 } else { 0.001 },
            node: self.node,
        }
    }
}
