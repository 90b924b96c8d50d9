//! What a workload does, in plain words, from its figures.

use super::random::Mapping;
use super::streams::{MlcMix, StreamKernel};
use super::{ProgramSpec, ProgramsSpec, WorkloadSpec, trace::TraceSpec};
use crate::units::{Bytes, Nanos};

impl WorkloadSpec {
    /// One to three sentences for people who do not know the program.
    #[must_use]
    pub fn about(&self) -> String {
        let huge = match self.huge() {
            true => " Its memory has huge pages.",
            false => "",
        };
        self.about_accesses() + huge
    }

    fn about_accesses(&self) -> String {
        match self {
            WorkloadSpec::Random(spec) => format!(
                "{} on node {} make {} accesses each to random pages of {} that they share{}. The \
                 memory begins on node {}. {}",
                threads(spec.threads),
                spec.node,
                count(spec.accesses),
                size(spec.memory),
                match spec.mapping {
                    Mapping::Anonymous => "",
                    Mapping::SharedFile => ", a file mapped shared",
                    Mapping::PrivateFile => ", a file mapped private",
                },
                spec.on,
                stores(spec.stores_percent) + &spec.lines.about(),
            ),
            WorkloadSpec::Regions(spec) => format!(
                "One thread on node {} works through {} regions of {} on node {}, one after the other, \
                 with {} accesses at random to each. {} of idle memory fill node {} beforehand, so that \
                 promoting a region means demoting something else. {}",
                spec.node,
                spec.regions,
                size(spec.region),
                spec.on,
                count(spec.accesses_per_region),
                size(spec.idle),
                spec.node,
                stores(spec.stores_percent) + &spec.lines.about(),
            ),
            WorkloadSpec::TwoSet(spec) => format!(
                "Two sets of {} threads, one on node {} and one on node {}, each with {} of its own. \
                 All memory begins on node {}, so that the second set is far from its pages until they \
                 move. Each thread goes over its set's memory {} times. {}",
                spec.threads_per_set,
                spec.nodes[0],
                spec.nodes[1],
                size(spec.memory_per_set),
                spec.nodes[0],
                spec.iterations,
                stores(spec.stores_percent) + &spec.lines.about(),
            ),
            WorkloadSpec::Sockets(spec) => format!(
                "{} threads of one program, spread over nodes {}, access {} each of their own and {} \
                 that all share, {} of 100 times the shared, at random. All memory begins on node {}. {}",
                spec.threads,
                spec.nodes
                    .iter()
                    .map(u16::to_string)
                    .collect::<Vec<_>>()
                    .join(" and "),
                size(spec.memory_per_thread),
                size(spec.shared),
                spec.shared_percent,
                spec.on,
                stores(spec.stores_percent) + &spec.lines.about(),
            ),
            WorkloadSpec::Pmbench(spec) => format!(
                "{} processes, half on node {} and half on node {}, access {} each at random; their \
                 memory is bound to both nodes. A program that eats {} of node {} pushes pages to the \
                 other node and is killed after {}; the run ends after {}. The score is the rate of \
                 accesses. {}",
                spec.processes,
                spec.nodes[0],
                spec.nodes[1],
                size(spec.memory_per_process),
                size(spec.eater),
                spec.nodes[1],
                time(spec.eater_until),
                time(spec.until),
                stores(spec.stores_percent) + &spec.lines.about(),
            ),
            WorkloadSpec::Stream(spec) => format!(
                "STREAM's kernel {} over arrays of {}, {} times, by {} on node {}. The score is the \
                 bandwidth that the program itself counts: bytes of arrays read and written.",
                match spec.kernel {
                    StreamKernel::Copy => "copy (c = a)",
                    StreamKernel::Scale => "scale (b = s c)",
                    StreamKernel::Add => "add (c = a + b)",
                    StreamKernel::Triad => "triad (a = b + s c)",
                },
                size(spec.array),
                spec.times,
                threads(spec.threads),
                spec.node,
            ),
            WorkloadSpec::Mlc(spec) => format!(
                "{} on node {} stream through {} each with {}, for {}. The score is the traffic of \
                 memory.",
                threads(spec.threads),
                spec.node,
                size(spec.buffer),
                match spec.mix {
                    MlcMix::R => "reads only (R)",
                    MlcMix::W2 => "two reads for each write (W2)",
                    MlcMix::W5 => "as many reads as writes (W5)",
                },
                time(spec.until),
            ),
            WorkloadSpec::Xsbench(spec) => format!(
                "{} lookups of cross-sections by {} on node {}: a search in a grid of {}, then a row of \
                 it and places all over {} of nuclide data. It is short of latency and of bandwidth.",
                count(spec.lookups),
                threads(spec.threads),
                spec.node,
                size(spec.unionised_grid),
                size(spec.nuclide_grids),
            ),
            WorkloadSpec::PageCount(spec) => {
                let mappings: Vec<String> = spec
                    .mappings
                    .iter()
                    .map(|mapping| format!("{} ({} pages)", mapping.name, mapping.pages))
                    .collect();
                format!(
                    "A program on node {} touches each page of its mappings once: {}. Where they lie \
                     afterwards is the result.",
                    spec.node,
                    mappings.join(", ")
                )
            }
            WorkloadSpec::Zipf(spec) => format!(
                "{} on node {} make {} accesses each to {}, which begins on node {}: few pages get most \
                 of them (Zipf's law, exponent {}). Every {} another {} of 1000 pages become the \
                 favourites. {}",
                threads(spec.threads),
                spec.node,
                count(spec.accesses),
                size(spec.memory),
                spec.on,
                spec.exponent,
                time(spec.drift_every),
                spec.drift_permille,
                stores(spec.stores_percent) + &spec.lines.about(),
            ),
            WorkloadSpec::Phases(spec) => format!(
                "{} on node {} share {}, which begins on node {}. {} of 100 accesses go to a hot set of \
                 {}, which is another one in each of {} phases. {}",
                threads(spec.threads),
                spec.node,
                size(spec.memory),
                spec.on,
                spec.hot_percent,
                size(spec.hot),
                spec.phases,
                stores(spec.stores_percent) + &spec.lines.about(),
            ),
            WorkloadSpec::HotSet(spec) => format!(
                "{} of {}, {}, is in use for {} without a pause, by {} on node {}. All of it begins on node {}. {}",
                size(spec.hot),
                size(spec.memory),
                match spec.piece {
                    Some(piece) => format!("in pieces of {}", size(piece)),
                    None => "in one piece".to_owned(),
                },
                time(spec.time),
                threads(spec.threads),
                spec.node,
                spec.on,
                stores(spec.stores_percent),
            ),
            WorkloadSpec::Gups(spec) => format!(
                "{} on node {} update {}, which begins on node {}, at random for {}: {} of 100 updates go \
                 to a hot part of {}. Each reads a line and writes it back. The score is updates a second.",
                threads(spec.threads),
                spec.node,
                size(spec.memory),
                spec.on,
                time(spec.time),
                spec.hot_percent,
                size(spec.hot),
            ),
            WorkloadSpec::Ranges(spec) => format!(
                "{} on node {} access {} of {} at random for {}, each by its weight{}. What is there from \
                 the start begins on node {}. The score is accesses a second.{}",
                threads(spec.threads),
                spec.node,
                match spec.range.len() {
                    1 => "a range".to_owned(),
                    many => format!("{many} ranges"),
                },
                size(spec.memory()),
                time(spec.time),
                if spec.scattered {
                    "; their pages lie mixed"
                } else {
                    ""
                },
                spec.on,
                spec.lines.about(),
            ),
            WorkloadSpec::ScanOverHot(spec) => format!(
                "{} on node {} keep using {}, while another thread reads {} once from end to end. Both \
                 begin on node {}. Whoever promotes what was just touched moves the wrong pages. {}",
                threads(spec.threads),
                spec.node,
                size(spec.hot),
                size(spec.scanned),
                spec.on,
                stores(spec.stores_percent) + &spec.lines.about(),
            ),
            WorkloadSpec::PointerChase(spec) => format!(
                "{} on node {} follow a chain of addresses through {}, which begins on node {}: each \
                 access waits for the one before, so latency is all that counts.",
                threads(spec.threads),
                spec.node,
                size(spec.memory),
                spec.on,
            ),
            WorkloadSpec::Inference(spec) => format!(
                "{} processes of {} each on node {} read their language models, {} each, from files: all \
                 of it once for each of {} tokens, matrix after matrix of {} layers.",
                spec.processes,
                threads(spec.threads),
                spec.node,
                size(spec.model),
                spec.tokens,
                spec.layers,
            ),
            WorkloadSpec::Trace(spec) => spec.about(),
            WorkloadSpec::Programs(ProgramsSpec(all)) => {
                let each: Vec<String> = all.iter().map(ProgramSpec::about).collect();
                format!("{} programs at once. {}", all.len(), each.join(" "))
            }
        }
    }
}

impl ProgramSpec {
    /// Who it is and when it runs, and what it does.
    #[must_use]
    pub fn about(&self) -> String {
        let cgroup = match &self.cgroup {
            Some(cgroup) => format!(" (cgroup {cgroup})"),
            None => String::new(),
        };
        let start = match self.start.0 > 0.0 {
            true => format!(", from {} on", time(self.start)),
            false => String::new(),
        };
        let end = match self.end {
            Some(end) => format!(", until {}", time(end)),
            None => String::new(),
        };
        let background = match self.background {
            true => ", for its load only",
            false => "",
        };
        format!(
            "{}{cgroup}{start}{end}{background}: {}",
            self.name,
            self.workload.about()
        )
    }
}

impl TraceSpec {
    fn about(&self) -> String {
        format!(
            "The accesses of {} again, with what each thread did between them, by threads on node {}; their \
             memory begins on node {}.",
            self.file, self.node, self.on
        )
    }
}

fn threads(threads: u32) -> String {
    match threads {
        1 => "one thread".to_owned(),
        threads => format!("{threads} threads"),
    }
}

fn stores(percent: u32) -> String {
    match percent {
        0 => "All accesses read.".to_owned(),
        100 => "All accesses store.".to_owned(),
        percent => format!("{percent} of 100 accesses store."),
    }
}

/// A count with a word: `4 million`.
fn count(count: u64) -> String {
    for (unit, name) in [
        (1_000_000_000, "billion"),
        (1_000_000, "million"),
        (1_000, "thousand"),
    ] {
        if count >= 10 * unit || (count >= unit && count.is_multiple_of(unit)) {
            let value = (count as f64 / unit as f64 * 10.0).round() / 10.0;
            return format!("{value} {name}");
        }
    }
    count.to_string()
}

/// A size with its unit.
pub(super) fn size(bytes: Bytes) -> String {
    for (unit, name) in [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")] {
        if bytes.0 >= unit {
            let value = (bytes.0 as f64 / unit as f64 * 10.0).round() / 10.0;
            return format!("{value} {name}");
        }
    }
    format!("{} KiB", bytes.0 / 1024)
}

/// A time with its unit.
pub(crate) fn time(time: Nanos) -> String {
    let ns = time.0;
    for (unit, name) in [(6e10, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "us")] {
        if ns >= unit {
            return format!("{} {name}", (ns / unit * 10.0).round() / 10.0);
        }
    }
    format!("{ns} ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_in_words() {
        assert_eq!(count(42_949_672_960), "42.9 billion");
        assert_eq!(count(5_000_000), "5 million");
        assert_eq!(count(1_500), "1500");
        assert_eq!(size(Bytes(40 << 30)), "40 GiB");
        assert_eq!(size(Bytes(3 << 29)), "1.5 GiB");
        assert_eq!(time(Nanos(6e10)), "1 min");
        assert_eq!(time(Nanos(5e7)), "50 ms");
    }
}
