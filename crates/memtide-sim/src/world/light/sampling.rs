//! Hardware that samples, on the machine of rates: one of so many accesses.
//!
//! How many accesses there were in a step follows from the rates; which of them are
//! sampled is drawn. What is left of a period goes to the next step, so that as many
//! are sampled however long the steps are. No sample is lost.

use super::{Life, Light};
use crate::rng::Rng;
use memtide_loop::world::{Sample, SourceId};

/// What a sample's interrupt costs whoever is sampled, in nanoseconds: the engine's figure, where a machine names none.
pub(super) const INTERRUPT_NS: u64 = 1_260;
/// The stream of chance that samples are drawn from.
const STREAM: u64 = 0x7361_6d70;

/// The samplers of all CPUs.
#[derive(Clone, Debug)]
pub(super) struct Sampling {
    rng: Rng,
    /// Accesses between two samples; 0: it is off.
    period: u32,
    /// Accesses since the last sample.
    accesses: f64,
    samples: Vec<Sample>,
}

impl Sampling {
    pub(super) fn set(&mut self, period: u32) {
        self.period = period;
        if period == 0 {
            self.samples.clear();
        }
    }

    /// The samples since the last look.
    pub(super) fn taken(&mut self) -> impl Iterator<Item = Sample> + '_ {
        self.samples.drain(..)
    }
}

impl Light {
    /// The same machine with hardware that samples.
    #[must_use]
    pub fn with_sampler(mut self, seed: u64) -> Light {
        self.sampling = Some(Sampling {
            rng: Rng::new(seed, STREAM),
            period: 0,
            accesses: 0.0,
            samples: Vec::new(),
        });
        self
    }

    /// Samples what was accessed since `from_ns`.
    pub(super) fn sample(&mut self, from_ns: u64) {
        let now_ns = self.now_ns;
        let Some(sampling) = self.sampling.as_mut().filter(|on| on.period > 0) else {
            return;
        };
        // Pages that may be accessed, and how often each of them was.
        let here = self.programs.iter().filter(|p| p.life == Life::Here);
        let heats = here.flat_map(|program| {
            let areas = program.spec.areas.iter().zip(&program.objects);
            areas.flat_map(move |(area, &at)| {
                area.heat.iter().filter_map(move |heat| {
                    let pages = heat.before(area.pages);
                    let each = heat.per_s * heat.seconds(from_ns, now_ns);
                    (pages > 0 && each > 0.0).then_some((
                        program.spec.pid,
                        area,
                        at,
                        heat,
                        pages,
                        each,
                    ))
                })
            })
        });
        for (pid, area, (object, first), heat, pages, each) in heats {
            sampling.accesses += pages as f64 * each;
            while sampling.accesses >= f64::from(sampling.period) {
                sampling.accesses -= f64::from(sampling.period);
                let drawn = u128::from(sampling.rng.bits()) * u128::from(pages);
                let page = heat.nth((drawn >> 64) as u64);
                let mut present = self.objects[object].within(first + page, first + page + 1);
                if present.next().is_some() {
                    sampling.samples.push(Sample {
                        source: SourceId(0),
                        pid,
                        tid: pid,
                        cpu: 0,
                        address: (area.first + page) << 12,
                    });
                }
            }
        }
    }
}
