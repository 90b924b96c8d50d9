//! How fast a node of memory is: bandwidth by mix of reads and writes, and
//! latency without and under load.
//!
//! Problem. Weights follow from bandwidths, and firmware, where it tells any,
//! tells peaks. What a node carries before its latency grows steep has to be
//! measured: with enough threads to fill it, with memory that no cache holds,
//! and without help from what makes ordinary programs look faster than their
//! memory (prefetching of what comes next, stores that wait in caches).
//!
//! Approach, for each node in turn:
//!
//! 1. Memory is taken on it ([`crate::sys::node_memory`]), a *stream* for each
//!    thread and one *chain* ([`chain`]). Threads run on the CPUs nearest to
//!    the node ([`mod@plan`]).
//! 2. The chain alone gives the idle latency.
//! 3. For each mix all threads stream as fast as they can, several turns; the
//!    median is the *peak*, and how far the turns lie apart the *spread*.
//! 4. For each mix one thread follows the chain while the others stream, as
//!    fast as they can and then at parts of that: the points of the *curve*.
//!
//! Bandwidth counts the bytes that the loops read and write. That is what goes
//! over the memory's wires too, because stores go around the cache
//! ([`crate::sys::traffic`]).
//!
//! What stays true:
//!
//! - A node takes about the given time, the setting up of its memory included,
//!   as long as that alone does not take longer: turns that are left are made
//!   shorter when others took longer.
//! - No more memory than the given is used at a time, all of it on the node,
//!   and it is given back before the next node's turn.
//! - No setting of the kernel is changed, and no other process's memory moved.

pub mod chain;
pub mod plan;
pub mod turn;

use crate::fs::proc::smaps;
use crate::fs::{FsError, Root, cache, list, topology};
use crate::sys::Errno;
use crate::sys::move_pages::{MoveFlags, move_pages};
use crate::sys::node_memory::NodeMemory;
use crate::sys::traffic;
use memtide_core::mempolicy::curve::LoadPoint;
use memtide_core::mempolicy::measured::{MeasuredMix, MeasuredNode, Measurement, Mix};
use memtide_core::units::NodeId;
use plan::{NodePlan, Options, PIECE_BYTES};
use rustix::thread::CpuSet;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use turn::{Chaser, Found, Loader};

/// Turns at full load for each mix.
const PEAK_TURNS: usize = 3;

/// Loads of a curve, as parts of the most that is reached beside the chain.
pub const PARTS: [f64; 7] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9];

/// Turns for the idle latency.
const IDLE_TURNS: usize = 2;

/// Turns of a node, each equally long.
pub fn turns(plan: &NodePlan) -> usize {
    let loaded = match plan.cpus.len() {
        0 | 1 => 0,
        _ => 1 + PARTS.len(),
    };
    IDLE_TURNS + Mix::ALL.len() * (PEAK_TURNS + loaded)
}

/// The shortest turn; a shorter one would measure the threads' start.
const SHORTEST_TURN: Duration = Duration::from_millis(2);

/// Why memory could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The root is a copy of a machine.
    #[error("only the running machine can be measured, not a copy of its files")]
    NotLive,
    /// There is no such node.
    #[error("node {node} does not exist; nodes with memory: {with_memory}")]
    NoNode {
        /// The node that was asked for.
        node: NodeId,
        /// Nodes that can be measured, as a list.
        with_memory: String,
    },
    /// There is nothing to measure on it.
    #[error("node {node} has no memory; nodes with memory: {with_memory}")]
    NoMemory {
        /// The node that was asked for.
        node: NodeId,
        /// Nodes that can be measured, as a list.
        with_memory: String,
    },
    /// A CPU that was given cannot be used.
    #[error("CPU {cpu} is not online or not allowed here; there are {usable}")]
    Cpu {
        /// The CPU.
        cpu: u32,
        /// Those that can be used, as a list.
        usable: String,
    },
    /// No node has a CPU that can be used.
    #[error("no CPU to measure from: none of this process's belongs to a node")]
    NoCpus,
    /// The memory would not hold a chain and a stream.
    #[error("node {node}: {} MiB are too little to measure with, it takes {} MiB at least",
        bytes >> 20, (2 * PIECE_BYTES) >> 20)]
    TooLittle {
        /// The node.
        node: NodeId,
        /// What there would be.
        bytes: u64,
    },
    /// The memory could not be had.
    #[error("node {node}: cannot take {} MiB there: {cause}{}", bytes >> 20, hint(*cause))]
    Map {
        /// The node.
        node: NodeId,
        /// How much was to be taken.
        bytes: u64,
        /// What the kernel said.
        cause: Errno,
    },
    /// A thread could not be put where it should run.
    #[error("CPU {cpu}: cannot run there: {cause}")]
    Pin {
        /// The CPU.
        cpu: u32,
        /// What the kernel said.
        cause: Errno,
    },
    /// Memory is not where it was asked for.
    #[error("node {node}: memory that was bound to it is elsewhere, so it cannot be measured")]
    Misplaced {
        /// The node.
        node: NodeId,
    },
    /// The machine could not be read.
    #[error(transparent)]
    Fs(#[from] FsError),
}

fn hint(cause: Errno) -> &'static str {
    match cause {
        Errno::NOMEM => "; give less --memory",
        Errno::INVAL => "; this process's cpuset may not allow the node",
        _ => "",
    }
}

/// Is told how far a measurement is.
pub trait Progress {
    /// One of the [`turns`] of a node begins.
    fn turn(&mut self, node: NodeId, what: &str);
}

/// The plan for the running machine.
///
/// # Errors
///
/// [`MeasureError`], of what was asked for and cannot be had.
pub fn plan(root: &Root, options: &Options) -> Result<Vec<NodePlan>, MeasureError> {
    if !root.is_live() {
        return Err(MeasureError::NotLive);
    }
    let machine = topology::read(root)?;
    let allowed = rustix::thread::sched_getaffinity(None);
    let allowed = allowed.map_err(|cause| MeasureError::Pin { cpu: 0, cause })?;
    let usable: BTreeSet<u32> = (0..CpuSet::MAX_CPU as u32)
        .filter(|cpu| allowed.is_set(*cpu as usize))
        .collect();
    plan::plan(&machine, &usable, options, |cpus| {
        Ok(cache::last_level(root, cpus)?)
    })
}

/// Measures the nodes one after another, each for `time`.
///
/// # Errors
///
/// [`MeasureError`].
pub fn measure(
    plans: &[NodePlan],
    time: Duration,
    progress: &mut dyn Progress,
) -> Result<Measurement, MeasureError> {
    let nodes = plans.iter().map(|plan| measure_node(plan, time, progress));
    Ok(Measurement {
        nodes: nodes.collect::<Result<_, _>>()?,
    })
}

fn measure_node(
    plan: &NodePlan,
    time: Duration,
    progress: &mut dyn Progress,
) -> Result<MeasuredNode, MeasureError> {
    let began = Instant::now();
    let mut node = Taken::new(plan)?;
    node.end = began + time;
    let mut idle = Vec::new();
    for _ in 0..IDLE_TURNS {
        progress.turn(plan.node, "latency");
        let found = node.turn(Mix::Read, Who::ChaserAlone, None)?;
        idle.extend(found.step_ns);
    }
    let mut mixes = Vec::new();
    for mix in Mix::ALL {
        mixes.push(node.mix(mix, progress)?);
    }
    Ok(MeasuredNode {
        node: plan.node,
        near: plan.near,
        cpus: list::format(plan.cpus.iter().copied()),
        memory_bytes: plan.memory_bytes(),
        huge_bytes: node.huge_bytes,
        seconds: (began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
        idle_latency_ns: tenth(idle.into_iter().fold(f64::INFINITY, f64::min)),
        mixes,
        notes: plan.notes.iter().cloned().chain(node.note()).collect(),
    })
}

/// Who takes part in a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    ChaserAlone,
    LoadersAlone,
    /// The chaser on the first CPU, loaders on the others.
    Both,
}

/// A node's memory, taken and ready.
struct Taken<'a> {
    plan: &'a NodePlan,
    chain: NodeMemory,
    streams: Vec<NodeMemory>,
    huge_bytes: Option<u64>,
    /// When all turns should be over, and how many there are still.
    end: Instant,
    turns_left: usize,
    /// The least share of its processor that a thread got in any turn.
    cpu_share: f64,
}

impl Taken<'_> {
    fn new(plan: &NodePlan) -> Result<Taken<'_>, MeasureError> {
        let take = |bytes: u64| {
            let map = NodeMemory::map(bytes as usize, plan.node);
            let memory = map.map_err(|cause| MeasureError::Map {
                node: plan.node,
                bytes,
                cause,
            })?;
            check_place(&memory, plan.node)?;
            Ok(memory)
        };
        let mut chain = take(plan.chain_bytes)?;
        chain::link(chain.lines_mut());
        let streams = plan.cpus.iter().map(|_| take(plan.stream_bytes));
        let mut streams = streams.collect::<Result<Vec<_>, MeasureError>>()?;
        for stream in &mut streams {
            // New pages are zeros, and what is read of them would be written.
            traffic::write(stream.lines_mut());
        }
        let huge_bytes = huge_bytes(streams.iter().chain([&chain]));
        Ok(Taken {
            plan,
            chain,
            streams,
            huge_bytes,
            end: Instant::now(),
            turns_left: turns(plan),
            cpu_share: 1.0,
        })
    }

    fn turn(&mut self, mix: Mix, who: Who, rate: Option<f64>) -> Result<Found, MeasureError> {
        let cpus = &self.plan.cpus;
        let skipped = match who {
            Who::ChaserAlone => cpus.len(),
            Who::LoadersAlone => 0,
            Who::Both => 1,
        };
        let loaders = self.streams.iter_mut().zip(cpus).skip(skipped);
        let loaders = loaders.map(|(memory, cpu)| Loader { cpu: *cpu, memory });
        let chaser = (who != Who::LoadersAlone).then_some(Chaser {
            cpu: cpus[0],
            memory: &self.chain,
        });
        // A turn runs for a fifth longer than it counts, and then a little.
        let left = self.end.saturating_duration_since(Instant::now());
        let time = left / (self.turns_left.max(1) as u32) * 5 / 6;
        self.turns_left = self.turns_left.saturating_sub(1);
        let time = time.max(SHORTEST_TURN);
        let found = turn::run(mix, loaders.collect(), chaser, rate, time)?;
        self.cpu_share = self.cpu_share.min(found.cpu_share);
        Ok(found)
    }

    /// Whether others were using the CPUs.
    fn note(&self) -> Option<String> {
        let percent = self.cpu_share * 100.0;
        (percent < 90.0).then(|| {
            format!(
                "the machine was busy: a thread had its CPU for {percent:.0} % of a turn, and these \
                 bandwidths may be too low"
            )
        })
    }

    fn mix(&mut self, mix: Mix, progress: &mut dyn Progress) -> Result<MeasuredMix, MeasureError> {
        let mut peaks = Vec::new();
        for _ in 0..PEAK_TURNS {
            progress.turn(self.plan.node, &format!("{} bandwidth", mix.name()));
            peaks.push(self.turn(mix, Who::LoadersAlone, None)?.bytes_a_ns);
        }
        peaks.sort_by(f64::total_cmp);
        let median = peaks[PEAK_TURNS / 2];
        let spread = match median > 0.0 {
            true => (peaks[PEAK_TURNS - 1] - peaks[0]) / median,
            false => 0.0,
        };
        let what = format!("{} latency under load", mix.name());
        let mut points = Vec::new();
        if self.plan.cpus.len() > 1 {
            progress.turn(self.plan.node, &what);
            let most = self.turn(mix, Who::Both, None)?;
            for part in PARTS {
                progress.turn(self.plan.node, &what);
                points.push(self.turn(mix, Who::Both, Some(part * most.bytes_a_ns))?);
            }
            points.push(most);
        }
        let point = |found: &Found| {
            Some(LoadPoint {
                bandwidth_mbps: (found.bytes_a_ns * 1000.0).round() as u64,
                latency_ns: tenth(found.step_ns?),
            })
        };
        Ok(MeasuredMix {
            mix,
            peak_mbps: (median * 1000.0).round() as u64,
            spread: (spread * 10_000.0).round() / 10_000.0,
            points: points.iter().filter_map(point).collect(),
        })
    }
}

/// To a tenth of a nanosecond; more would be noise.
fn tenth(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}

/// Asks the kernel for the first page of every piece. Where it cannot say, the
/// binding has to do.
fn check_place(memory: &NodeMemory, node: NodeId) -> Result<(), MeasureError> {
    let end = memory.address() + memory.bytes();
    let pages: Vec<usize> = (memory.address()..end)
        .step_by(PIECE_BYTES as usize)
        .collect();
    let mut status = vec![i32::from(node.0); pages.len()];
    let asked = move_pages(0, &pages, None, &mut status, MoveFlags::Exclusive);
    match asked.is_ok() && status.iter().any(|status| *status != i32::from(node.0)) {
        true => Err(MeasureError::Misplaced { node }),
        false => Ok(()),
    }
}

/// How much of the memories is in huge pages, if the kernel tells.
fn huge_bytes<'a>(memories: impl Iterator<Item = &'a NodeMemory>) -> Option<u64> {
    let bytes = Root::default().read("proc/self/smaps").ok()??;
    let usages = smaps::parse(&bytes).ok()?;
    let ours: Vec<_> = memories
        .map(|memory| memory.address() as u64..(memory.address() + memory.bytes()) as u64)
        .collect();
    // Neighbours may be one mapping to the kernel, and none of ours shares one
    // with anything else: nothing else is bound to the node.
    let holds = |usage: &&smaps::Usage| {
        let mapping = &usage.mapping;
        ours.iter()
            .any(|our| our.start < mapping.end && mapping.start < our.end)
    };
    usages
        .iter()
        .filter(holds)
        .map(|usage| usage.anon_huge)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Seen(usize);

    impl Progress for Seen {
        fn turn(&mut self, _: NodeId, _: &str) {
            self.0 += 1;
        }
    }

    #[test]
    fn this_machine_within_the_bounds() {
        let root = Root::default();
        let options = Options {
            memory_bytes: Some(16 << 20),
            ..Options::default()
        };
        let plans = match plan(&root, &options) {
            Ok(plans) => plans,
            Err(MeasureError::Fs(FsError::Missing { .. })) => {
                return eprintln!("not tested: this kernel has no NUMA");
            }
            Err(error) => panic!("{error}"),
        };
        let mut seen = Seen(0);
        let time = Duration::from_millis(400);
        let measured = measure(&plans[..1], time, &mut seen).unwrap();
        let node = &measured.nodes[0];
        assert!(node.memory_bytes <= 16 << 20);
        assert!(node.idle_latency_ns > 0.0 && node.idle_latency_ns.is_finite());
        assert_eq!(node.mixes.len(), 4);
        let alone = plans[0].cpus.len() == 1;
        assert_eq!(seen.0, turns(&plans[0]));
        for mix in &node.mixes {
            assert!(mix.peak_mbps > 0, "{mix:?}");
            assert_eq!(mix.points.len(), if alone { 0 } else { PARTS.len() + 1 });
        }
        let text = serde_json::to_string(&measured).unwrap();
        assert_eq!(
            serde_json::from_str::<Measurement>(&text).unwrap(),
            measured
        );
    }

    #[test]
    fn a_copy_of_a_machine_cannot_be_measured() {
        let error = plan(&Root::new("fixture"), &Options::default()).unwrap_err();
        assert!(matches!(error, MeasureError::NotLive), "{error}");
    }
}
