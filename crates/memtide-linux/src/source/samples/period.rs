//! Sets each stream's period so that samples come at the wanted rate.
//!
//! The rule is the core's ([`sample_rate`](memtide_core::balancing::sample_rate)); here is what it is fed with. Each
//! stream has a pace of its own, because loads that missed and stores of any
//! kind come at very different rates. The wanted rate is per CPU that may be
//! busy with what is watched, shared evenly among the streams. A turn with lost
//! or throttled records counts as invalid for the stream they befell.

use super::plan::Stream;
use memtide_core::balancing::sample_rate::{Came, next_period};
use std::time::Duration;

/// How many samples are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateTarget {
    /// A second, of each CPU.
    pub per_cpu_second: u32,
}

impl Default for RateTarget {
    /// A thousand: at about a microsecond each in the kernel and less than a
    /// tenth of that here, a tenth of a percent of a CPU.
    fn default() -> RateTarget {
        RateTarget {
            per_cpu_second: 1000,
        }
    }
}

/// What came of each stream since the last turn.
#[derive(Clone, Debug)]
pub(super) struct Paces {
    target: RateTarget,
    came: Vec<Came>,
}

const NOTHING: Came = Came {
    samples: 0,
    wanted: 0,
    invalid: false,
};

impl Paces {
    pub(super) fn new(target: RateTarget, streams: usize) -> Paces {
        Paces {
            target,
            came: vec![NOTHING; streams],
        }
    }

    /// Notes what one ring brought.
    pub(super) fn note(&mut self, stream: usize, samples: u64, invalid: bool) {
        let came = &mut self.came[stream];
        came.samples += samples;
        came.invalid |= invalid;
    }

    /// Ends a turn of `elapsed` on `cpus` CPUs: new periods into the streams and
    /// through `set` into the kernel. True if any changed.
    pub(super) fn adapt(
        &mut self,
        streams: &mut [Stream],
        cpus: usize,
        elapsed: Duration,
        percent: u32,
        mut set: impl FnMut(usize, u64),
    ) -> bool {
        let each = u128::from(self.target.per_cpu_second) * u128::from(percent) / 100;
        let all = each * cpus as u128 * elapsed.as_micros() / 1_000_000;
        let wanted = u64::try_from(all / streams.len().max(1) as u128).unwrap_or(u64::MAX);
        let mut changed = false;
        for (number, stream) in streams.iter_mut().enumerate() {
            let came = std::mem::replace(&mut self.came[number], NOTHING);
            let came = Came { wanted, ..came };
            let bounds = stream.bounds;
            let next = next_period(stream.period(), came, bounds.min, bounds.max);
            let next = bounds.clamp(next);
            if next != stream.period() {
                stream.attr.sample_period = next;
                set(number, next);
                changed = true;
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Options, plan};
    use super::*;

    fn streams() -> Vec<Stream> {
        plan::streams(Kind::Faults, &Options::default()).unwrap()
    }

    #[test]
    fn the_wanted_rate_is_per_cpu_and_second() {
        let mut streams = streams();
        let mut paces = Paces::new(RateTarget::default(), 1);
        // 4 CPUs, half a second: 2,000 wanted; 8,000 came: four times the period.
        paces.note(0, 8000, false);
        let mut set = Vec::new();
        let half = Duration::from_millis(500);
        assert!(paces.adapt(&mut streams, 4, half, 100, |s, p| set.push((s, p))));
        assert_eq!(set, [(0, 4)]);
        assert_eq!(streams[0].period(), 4);
        // The turn is over: 2,000 are what is wanted, and nothing changes.
        paces.note(0, 2000, false);
        assert!(!paces.adapt(&mut streams, 4, half, 100, |_, _| unreachable!()));
        // Feedback asks for half as many, and twice too many came.
        paces.note(0, 2000, false);
        assert!(paces.adapt(&mut streams, 4, half, 50, |_, _| {}));
        assert_eq!(streams[0].period(), 8);
        // A loss doubles.
        paces.note(0, 10, true);
        assert!(paces.adapt(&mut streams, 4, half, 100, |_, _| {}));
        assert_eq!(streams[0].period(), 16);
    }
}
