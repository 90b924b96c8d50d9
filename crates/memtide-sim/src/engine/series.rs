//! Series over time: at most 512 points, however long the run.
//!
//! A point is taken every so many quanta. When there would be more than 512, each two become one, and
//! points come half as often from then on.

use super::access::HEAT_GROUPS;
use super::programs::Part;
use crate::page::MAX_NODES;
use crate::result::{HeatPart, ProgramSeries, Series};
use crate::spec::MachineSpec;

/// Most points.
const POINTS: usize = 512;
/// Quanta between points at first.
const FIRST_INTERVAL: u64 = 10;

/// What adds up during a run; a point holds the difference to the one before.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub seconds: f64,
    pub pages_migrated: u64,
    pub done: f64,
    /// Data lines that memory served.
    pub served: u64,
    /// Of these, by the top tier.
    pub served_fast: u64,
    /// Bytes by node.
    pub bytes: [u64; MAX_NODES],
    /// Latency by node, now.
    pub latency_ns: [f64; MAX_NODES],
    pub heat: Heat,
    /// What each of several programs did.
    pub programs: Vec<Part>,
}

/// Accesses by group of pages.
#[derive(Clone, Copy, Debug)]
pub struct Heat(pub [u64; HEAT_GROUPS]);

impl Default for Heat {
    fn default() -> Heat {
        Heat([0; HEAT_GROUPS])
    }
}

struct Point {
    seconds: f64,
    pages_migrated: u64,
    done: f64,
    span: f64,
    served: u64,
    served_fast: u64,
    bytes: [u64; MAX_NODES],
    latency_ns: [f64; MAX_NODES],
    heat: [u64; HEAT_GROUPS],
    programs: Vec<Part>,
}

/// Takes points.
pub struct Recorder {
    nodes: Vec<usize>,
    points: Vec<Point>,
    interval: u64,
    /// The quanta after which it was last asked.
    asked: u64,
    last: Totals,
}

impl Recorder {
    pub fn new(machine: &MachineSpec) -> Recorder {
        Recorder {
            nodes: machine.nodes.iter().map(|n| usize::from(n.id)).collect(),
            points: Vec::new(),
            interval: FIRST_INTERVAL,
            asked: 0,
            last: Totals::default(),
        }
    }

    /// Whether a point became due since it was last asked; now there were so many quanta. Time jumps
    /// over what is idle, and with it over the moment itself.
    pub fn is_due(&mut self, quanta: u64) -> bool {
        let since = self.asked / self.interval;
        self.asked = quanta;
        quanta / self.interval > since
    }

    /// Takes a point, unless no time has passed since the last one.
    pub fn record(&mut self, now: Totals) {
        let last = &self.last;
        if now.seconds <= last.seconds {
            return;
        }
        self.points.push(Point {
            seconds: now.seconds,
            pages_migrated: now.pages_migrated,
            done: now.done,
            span: now.seconds - last.seconds,
            served: now.served - last.served,
            served_fast: now.served_fast - last.served_fast,
            bytes: std::array::from_fn(|n| now.bytes[n] - last.bytes[n]),
            latency_ns: now.latency_ns,
            heat: std::array::from_fn(|n| now.heat.0[n] - last.heat.0[n]),
            programs: since(&last.programs, &now.programs),
        });
        self.last = now;
        if self.points.len() > POINTS {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.interval *= 2;
        let points = std::mem::take(&mut self.points);
        let mut points = points.into_iter();
        while let Some(first) = points.next() {
            self.points.push(match points.next() {
                Some(second) => joined(&first, second),
                None => first,
            });
        }
    }

    /// The same of each program; accesses and pages times `scale`.
    pub fn program_series(&self, scale: u64) -> Vec<ProgramSeries> {
        let points = &self.points;
        let programs = points.first().map_or(0, |point| point.programs.len());
        let of = |n: usize| {
            let parts = || points.iter().map(move |point| (point, point.programs[n]));
            ProgramSeries {
                accesses_per_s: parts()
                    .map(|(point, part)| (part.accesses * scale) as f64 / point.span)
                    .collect(),
                fast_share: parts()
                    .map(|(_, part)| match part.served {
                        0 => None,
                        served => Some(part.served_fast as f64 / served as f64),
                    })
                    .collect(),
                fast_pages: parts().map(|(_, part)| part.fast_pages * scale).collect(),
            }
        };
        (0..programs).map(of).collect()
    }

    /// The series; page counts times `scale`, heat of the first `groups` groups, whose pages `parts` names.
    pub fn series(&self, scale: u64, groups: usize, parts: Vec<HeatPart>) -> Series {
        let points = &self.points;
        let share = |p: &Point| match p.served {
            0 => 1.0,
            served => p.served_fast as f64 / served as f64,
        };
        let by_node = |of: &dyn Fn(&Point, usize) -> f64| -> Vec<Vec<f64>> {
            let nodes = self.nodes.iter();
            nodes
                .map(|&n| points.iter().map(|p| of(p, n)).collect())
                .collect()
        };
        Series {
            seconds: points.iter().map(|p| p.seconds).collect(),
            pages_migrated: points.iter().map(|p| p.pages_migrated * scale).collect(),
            done: points.iter().map(|p| p.done).collect(),
            fast_share: points.iter().map(share).collect(),
            bytes_per_s: by_node(&|p, n| p.bytes[n] as f64 / p.span),
            latency_ns: by_node(&|p, n| p.latency_ns[n]),
            heat: (0..groups.min(HEAT_GROUPS))
                .map(|group| {
                    let accesses = points.iter().map(move |p| p.heat[group]);
                    accesses.map(|n| n.min(u64::from(u32::MAX)) as u32)
                })
                .map(Iterator::collect)
                .collect(),
            heat_parts: parts,
        }
    }
}

fn joined(first: &Point, second: Point) -> Point {
    let span = first.span + second.span;
    let mean = |a: f64, b: f64| (a * first.span + b * second.span) / span;
    Point {
        span,
        served: first.served + second.served,
        served_fast: first.served_fast + second.served_fast,
        bytes: std::array::from_fn(|n| first.bytes[n] + second.bytes[n]),
        latency_ns: std::array::from_fn(|n| mean(first.latency_ns[n], second.latency_ns[n])),
        heat: std::array::from_fn(|n| first.heat[n] + second.heat[n]),
        programs: (first.programs.iter().zip(&second.programs))
            .map(|(first, second)| Part {
                accesses: first.accesses + second.accesses,
                served: first.served + second.served,
                served_fast: first.served_fast + second.served_fast,
                ..*second
            })
            .collect(),
        ..second
    }
}

/// What programs did since `last`, which holds none at the beginning.
fn since(last: &[Part], now: &[Part]) -> Vec<Part> {
    let last = last
        .iter()
        .copied()
        .chain(std::iter::repeat(Part::default()));
    now.iter()
        .zip(last)
        .map(|(now, last)| Part {
            accesses: now.accesses - last.accesses,
            served: now.served - last.served,
            served_fast: now.served_fast - last.served_fast,
            ..*now
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that ends where a point was taken has no second one there, of no time and so with rates of
    /// 0 / 0, which JSON writes as null.
    #[test]
    fn the_last_point_is_there_once() {
        let scenario = crate::scenario::shipped("zipf-drift").unwrap();
        let mut recorder = Recorder::new(&scenario.read().unwrap().machine);
        let at = |seconds| Totals {
            seconds,
            bytes: [1 << 20; MAX_NODES],
            ..Totals::default()
        };
        for seconds in [0.01, 0.02, 0.02] {
            recorder.record(at(seconds));
        }
        let series = recorder.series(1, 1, Vec::new());
        assert_eq!(series.seconds, [0.01, 0.02]);
        let json = serde_json::to_string(&series).unwrap();
        assert!(!json.contains("null"), "{json}");
    }

    /// Time jumps from 90 quanta to 2,050, so over 20 moments at which points were due, and goes on: one
    /// point is due after the jump, and the next at the next moment.
    #[test]
    fn a_jump_makes_one_point_due() {
        let scenario = crate::scenario::shipped("zipf-drift").unwrap();
        let mut recorder = Recorder::new(&scenario.read().unwrap().machine);
        recorder.interval = 100;
        let mut due = Vec::new();
        for quanta in (1..=90).chain(2050..=2150) {
            if recorder.is_due(quanta) {
                due.push(quanta);
            }
        }
        assert_eq!(due, [2050, 2100]);
    }
}
