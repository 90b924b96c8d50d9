//! When the pages of a process are write-protected anew, so that its writes fault.
//!
//! # Problem
//!
//! Where neither hardware nor the kernel's scans tell who uses which page, write faults do: all pages of a
//! process are protected, and the next write to each takes a fault. Such a *round* costs the process a
//! fault for every page that it writes, and nobody knows beforehand how many those are.
//!
//! # Approach
//!
//! The next round begins as far after the last one as its faults were worth at a target rate, and never
//! sooner than after a shortest pause.
//!
//! # Properties
//!
//! - In the long run a process has as many faults a second as the rate says, or fewer.
//! - A process that does not write is protected still, and is looked at each [`QUIET_MS`].

use crate::options::Rate;

/// Faults a second of a process if nobody says.
const PER_SECOND: u64 = 5_000;
/// Between rounds that provoke nothing, in ms.
const QUIET_MS: u64 = 5_000;

/// How write faults are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFaultRate {
    /// Faults a second of a process that are worth their price.
    pub per_second: u64,
    /// The shortest time between two rounds of a process, in ms.
    pub shortest_ms: u64,
    /// Processes with more resident bytes are left out: a round faults on all
    /// that they write, at once.
    pub most_bytes: u64,
}

impl WriteFaultRate {
    /// What the option says, or else 5,000 faults a second; each is worth some microseconds.
    #[must_use]
    pub fn of(rate: Option<Rate>) -> WriteFaultRate {
        WriteFaultRate::new(rate.map_or(PER_SECOND, |rate| u64::from(rate.get())))
    }

    /// So many faults a second. Rounds are half a second apart at least; what holds more than 16 GiB is
    /// left out, as a round would then cost it some seconds of CPU time, once in a quarter of an hour.
    fn new(per_second: u64) -> WriteFaultRate {
        WriteFaultRate {
            per_second,
            shortest_ms: 500,
            most_bytes: 16 << 30,
        }
    }
}

/// When the next round of one process is due. See the module's essay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    began_ms: Option<u64>,
    faults: u64,
}

impl Rounds {
    /// Before the first round.
    pub const NEW: Rounds = Rounds {
        began_ms: None,
        faults: 0,
    };

    /// So many faults of this round came.
    pub fn saw(&mut self, faults: u64) {
        self.faults += faults;
    }

    /// Whether a round shall begin at `now_ms`; notes that it does. Where nobody
    /// wrote, all pages are protected still, and there is time.
    pub fn is_due(&mut self, now_ms: u64, rate: &WriteFaultRate) -> bool {
        let pause = match self.faults {
            0 => QUIET_MS,
            faults => (faults * 1000).div_ceil(rate.per_second.max(1)),
        };
        let due = self
            .began_ms
            .is_none_or(|began| now_ms >= began + pause.max(rate.shortest_ms));
        if due {
            *self = Rounds {
                began_ms: Some(now_ms),
                faults: 0,
            };
        }
        due
    }
}

/// Why a process that holds `bytes` is left out, in words.
#[must_use]
pub fn too_large(bytes: u64) -> String {
    let gib = bytes >> 30;
    format!("it holds {gib} GiB, and all that it writes would fault at once")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_keep_to_the_target_rate() {
        let rate = WriteFaultRate {
            shortest_ms: 100,
            ..WriteFaultRate::new(1000)
        };
        let mut rounds = Rounds::NEW;
        assert!(rounds.is_due(0, &rate));
        rounds.saw(250);
        // 250 faults at 1,000 a second are worth 250 ms.
        assert!(!rounds.is_due(249, &rate));
        assert!(rounds.is_due(250, &rate));
        // Few faults: the shortest pause.
        rounds.saw(3);
        assert!(!rounds.is_due(349, &rate));
        assert!(rounds.is_due(350, &rate));
        // None: everything is protected still.
        assert!(!rounds.is_due(350 + QUIET_MS - 1, &rate));
        assert!(rounds.is_due(350 + QUIET_MS, &rate));
    }
}
