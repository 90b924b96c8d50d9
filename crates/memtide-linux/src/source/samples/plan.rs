//! Which events to open, from what the kernel describes.
//!
//! # Approach
//!
//! IBS is the unit `ibs_op`. It counts operations rather than cycles where it
//! can (`cnt_ctl`), keeps only operations that missed the last-level cache
//! where it can (`l3missonly`), and leaves the kernel out where the kernel
//! offers to filter (`swfilt`); elsewhere the decoder does. Its period has the
//! lowest four bits clear.
//!
//! PEBS is any unit with an event named `mem-loads`; on hybrid processors there
//! are two, each on its own CPUs. The event's description comes from the unit's
//! folder, with its latency threshold (`ldlat`) raised so that most answers of
//! caches are not sampled. Where the folder has `mem-loads-aux`, that event has
//! to lead the group. `mem-stores` is a second stream: a thread that only
//! writes has no loads.
//!
//! Page faults are a software event of every kernel. The minor ones carry the
//! physical address, and all hint faults are minor.
//!
//! Source: *Memory access profiler(IBS) driven NUMA balancing* (filters and the period of IBS).

use super::{Kind, Lack, Options};
use crate::fs::{FsError, Root};
use crate::perf::decoder::Processor;
use crate::perf::event::RUN_TIMES;
use crate::perf::pmu::{Config, Pmu, PmuError};
use crate::perf::{Decoder, Origin, SampleLayout};
use perf_event_open_sys::bindings as b;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Cycles below which a load was most likely answered by a cache.
const LOAD_LATENCY: u64 = 30;
/// The same where every load is wanted: the least that the unit takes.
const ANY_LATENCY: u64 = 3;
/// The steps of IBS's own latency threshold.
const IBS_LATENCY_STEP: u64 = 128;

/// Between which bounds a period may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
    /// It is a multiple of this.
    pub step: u64,
}

impl Bounds {
    /// The allowed period nearest below `period`, or the shortest.
    pub fn clamp(&self, period: u64) -> u64 {
        let within = period.clamp(self.min, self.max);
        (within - within % self.step).max(self.min)
    }
}

/// An event and how it is read.
#[derive(Clone, Debug)]
pub struct Stream {
    /// For people: the unit and the event.
    pub name: String,
    /// What is opened.
    pub attr: b::perf_event_attr,
    /// What has to lead its group.
    pub leader: Option<b::perf_event_attr>,
    /// How its records are decoded.
    pub decoder: Decoder,
    /// The CPUs that have its unit; `None` if all do.
    pub cpus: Option<BTreeSet<u32>>,
    /// Of its period.
    pub bounds: Bounds,
}

impl Stream {
    /// Its period at present.
    pub fn period(&self) -> u64 {
        self.attr.sample_period
    }

    /// What can be had with fewer rights: without physical addresses, and of page
    /// faults only those in user mode. `None` if it is that already.
    pub(super) fn with_fewer_rights(&self) -> Option<Stream> {
        let fields = self.attr.sample_type & !u64::from(b::PERF_SAMPLE_PHYS_ADDR);
        if fields == self.attr.sample_type {
            return None;
        }
        let mut stream = self.clone();
        stream.attr.sample_type = fields;
        stream.decoder = self.decoder.with_layout(SampleLayout::new(fields).ok()?);
        if self.decoder.origin() == Origin::Faults {
            stream.attr.set_exclude_kernel(1);
        }
        Some(stream)
    }
}

/// Why this machine cannot sample so.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// There is no such unit.
    #[error("{}: absent; {why}", path.display())]
    NoUnit {
        /// Where it would be.
        path: PathBuf,
        /// What that means.
        why: &'static str,
    },
    /// The unit samples, but not precisely.
    #[error("{}: 0; this unit cannot tell which instruction it sampled, as in most virtual machines", path.display())]
    NotPrecise {
        /// The capability's file.
        path: PathBuf,
    },
    /// The unit's description is of no use.
    #[error(transparent)]
    Unit(#[from] PmuError),
    /// A file could not be read.
    #[error(transparent)]
    Read(#[from] FsError),
}

impl Unavailable {
    pub(super) fn lack(&self) -> Lack {
        match self {
            Unavailable::NoUnit { .. } | Unavailable::NotPrecise { .. } => Lack::Absent,
            Unavailable::Unit(_) | Unavailable::Read(_) => Lack::Broken,
        }
    }
}

/// The streams of `kind` under the root of `options`; at least one.
///
/// # Errors
///
/// Why this machine has none.
pub fn streams(kind: Kind, options: &Options) -> Result<Vec<Stream>, Unavailable> {
    match kind {
        Kind::Ibs => ibs(options).map(|stream| vec![stream]),
        Kind::Pebs => pebs(options),
        Kind::Faults => Ok(vec![faults(options)]),
    }
}

/// Who, when, where and at what: in every stream's samples.
const COMMON: u32 = b::PERF_SAMPLE_TID
    | b::PERF_SAMPLE_TIME
    | b::PERF_SAMPLE_ADDR
    | b::PERF_SAMPLE_CPU
    | b::PERF_SAMPLE_PHYS_ADDR;
/// What hardware adds.
const HARDWARE: u32 = b::PERF_SAMPLE_PERIOD | b::PERF_SAMPLE_WEIGHT | b::PERF_SAMPLE_DATA_SRC;

fn attr(kind: u32, config: Config, fields: u32, period: u64) -> b::perf_event_attr {
    let mut attr = b::perf_event_attr::default();
    let [word, word1, word2, word3] = config.words;
    attr.type_ = kind;
    attr.config = word;
    attr.config1 = word1;
    attr.config2 = word2;
    attr.config3 = word3;
    attr.sample_type = fields.into();
    attr.sample_period = period;
    attr.read_format = RUN_TIMES;
    attr
}

fn decoder(fields: u32, origin: Origin, options: &Options) -> Result<Decoder, FsError> {
    let layout = SampleLayout::new(fields.into()).expect("only known fields are asked for");
    let cpuinfo = match origin {
        Origin::Ibs => options.root.read("proc/cpuinfo")?,
        _ => None,
    };
    let cpuinfo = String::from_utf8_lossy(cpuinfo.as_deref().unwrap_or_default());
    let decoder = Decoder::new(layout, origin, Processor::of_cpuinfo(&cpuinfo));
    Ok(match options.cached_too {
        true => decoder.with_cached(),
        false => decoder,
    })
}

fn ibs(options: &Options) -> Result<Stream, Unavailable> {
    let root = &options.root;
    let pmu = Pmu::read(root, "ibs_op")?.ok_or_else(|| Unavailable::NoUnit {
        path: root.path("sys/bus/event_source/devices/ibs_op"),
        why: "this processor is not AMD's, or this is a virtual machine without IBS",
    })?;
    let mut terms = Vec::new();
    if pmu.has_term("cnt_ctl") {
        terms.push("cnt_ctl=1".to_owned());
    }
    if pmu.has_term("l3missonly") && !options.cached_too {
        terms.push("l3missonly=1".to_owned());
    }
    if let (Some(cycles), Some(max)) = (options.latency_cycles, pmu.term_max("ldlat")) {
        let steps = u64::from(cycles).div_ceil(IBS_LATENCY_STEP).max(1);
        terms.push(format!("ldlat={}", (steps * IBS_LATENCY_STEP).min(max)));
    }
    let filters = pmu.has_term("swfilt");
    if filters {
        terms.push("swfilt=1".to_owned());
    }
    let bounds = Bounds {
        min: 0x90,
        // 16 bits of a counter that counts in sixteens: what every IBS has.
        max: 0xffff << 4,
        step: 16,
    };
    let fields = COMMON | HARDWARE | b::PERF_SAMPLE_RAW;
    let period = bounds.clamp(options.first_period.unwrap_or(10_000));
    let mut attr = attr(pmu.kind, pmu.config(&terms.join(","))?, fields, period);
    attr.set_exclude_kernel(filters.into());
    Ok(Stream {
        name: pmu.name.clone(),
        attr,
        leader: None,
        decoder: decoder(fields, Origin::Ibs, options)?,
        cpus: pmu.cpus,
        bounds,
    })
}

fn pebs(options: &Options) -> Result<Vec<Stream>, Unavailable> {
    let root = &options.root;
    let mut streams = Vec::new();
    for name in Pmu::names(root)? {
        let Some(pmu) = Pmu::read(root, &name)? else {
            continue;
        };
        let Some(loads) = pmu.event("mem-loads") else {
            continue;
        };
        let precise = match pmu.cap("max_precise").map(str::parse::<u64>) {
            Some(Ok(0)) => {
                let path = pmu.folder().join("caps/max_precise");
                return Err(Unavailable::NotPrecise { path });
            }
            Some(Ok(most)) => most.min(2),
            _ => 2,
        };
        let least = match options.cached_too {
            true => ANY_LATENCY,
            false => LOAD_LATENCY,
        };
        let latency = options.latency_cycles.map_or(least, u64::from);
        let loads = match pmu.term_max("ldlat") {
            Some(max) => format!("{loads},ldlat={}", latency.min(max)),
            None => loads.to_owned(),
        };
        let leader = (pmu.event("mem-loads-aux"))
            .map(|aux| -> Result<_, PmuError> {
                let mut leader = attr(pmu.kind, pmu.config(aux)?, 0, 0);
                leader.set_disabled(1);
                leader.set_exclude_kernel(1);
                leader.set_exclude_hv(1);
                Ok(leader)
            })
            .transpose()?;
        let fields = COMMON | HARDWARE;
        let stream = |event: &str, words: &str, leader, first| -> Result<Stream, Unavailable> {
            let bounds = Bounds {
                min: 100,
                max: (1 << 31) - 1,
                step: 1,
            };
            let period = bounds.clamp(options.first_period.unwrap_or(first));
            let mut attr = attr(pmu.kind, pmu.config(words)?, fields, period);
            attr.set_precise_ip(precise);
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
            Ok(Stream {
                name: format!("{}/{event}/", pmu.name),
                attr,
                leader,
                decoder: decoder(fields, Origin::Pebs, options)?,
                cpus: pmu.cpus.clone(),
                bounds,
            })
        };
        streams.push(stream("mem-loads", &loads, leader, 2000)?);
        if let Some(stores) = pmu.event("mem-stores") {
            streams.push(stream("mem-stores", stores, None, 20_000)?);
        }
    }
    match streams.is_empty() {
        false => Ok(streams),
        true => Err(Unavailable::NoUnit {
            path: root.path("sys/bus/event_source/devices/cpu/events/mem-loads"),
            why: "this processor does not sample loads, or this is a virtual machine without a \
                  performance monitoring unit",
        }),
    }
}

fn faults(options: &Options) -> Stream {
    let config = Config {
        words: [b::PERF_COUNT_SW_PAGE_FAULTS_MIN.into(), 0, 0, 0],
    };
    let bounds = Bounds {
        min: 1,
        max: 1 << 20,
        step: 1,
    };
    let fields = COMMON;
    let layout = SampleLayout::new(fields.into()).expect("only known fields are asked for");
    let period = bounds.clamp(options.first_period.unwrap_or(1));
    Stream {
        name: "minor-faults".to_owned(),
        attr: attr(b::PERF_TYPE_SOFTWARE, config, fields, period),
        leader: None,
        decoder: Decoder::new(layout, Origin::Faults, Processor::default()),
        cpus: None,
        bounds,
    }
}

/// Whether this root has a unit for `kind` at all, without opening anything.
///
/// # Errors
///
/// Why not.
pub fn available(kind: Kind, root: &Root) -> Result<(), Unavailable> {
    let options = Options {
        root: root.clone(),
        ..Options::default()
    };
    streams(kind, &options).map(|_| ())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
