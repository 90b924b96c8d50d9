//! Abstract distance: one number for how slow a node's memory is.
//!
//! The kernel compares a node's latency sum and bandwidth sum with DRAM's. The
//! order of the integer operations is part of the rule, because each division
//! drops a fraction and the result decides the tier.

use super::input::AccessFigures;

/// DRAM's abstract distance: the middle of tier 4.
pub const ADISTANCE_DRAM: u32 = 4 * TIER_CHUNK + TIER_CHUNK / 2;
/// What attached memory gets when nothing is known of it: tier 22.
pub const ADISTANCE_KMEM: u32 = ADISTANCE_DRAM * 5;
/// Units of abstract distance in one tier.
pub const TIER_CHUNK: u32 = 128;

/// Latency and bandwidth with nothing missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Complete {
    read_latency: u64,
    write_latency: u64,
    read_bandwidth: u64,
    write_bandwidth: u64,
}

impl Complete {
    pub(super) fn of(figures: &AccessFigures) -> Option<Complete> {
        let complete = Complete {
            read_latency: figures.read_latency_ns?.into(),
            write_latency: figures.write_latency_ns?.into(),
            read_bandwidth: figures.read_bandwidth_mbps?.into(),
            write_bandwidth: figures.write_bandwidth_mbps?.into(),
        };
        (complete.latency() > 0 && complete.bandwidth() > 0).then_some(complete)
    }

    fn latency(&self) -> u64 {
        self.read_latency + self.write_latency
    }

    fn bandwidth(&self) -> u64 {
        self.read_bandwidth + self.write_bandwidth
    }

    /// Whether no figure differs from this one's by more than a tenth of it.
    pub(super) fn agrees(&self, other: &Complete) -> bool {
        let close = |a: u64, b: u64| a.abs_diff(b) * 10 <= a;
        close(self.read_latency, other.read_latency)
            && close(self.write_latency, other.write_latency)
            && close(self.read_bandwidth, other.read_bandwidth)
            && close(self.write_bandwidth, other.write_bandwidth)
    }
}

/// The abstract distance of memory with these figures on a machine whose DRAM
/// has those. `None` if a figure is missing or a sum is zero.
pub fn abstract_distance(figures: &AccessFigures, dram: &AccessFigures) -> Option<u32> {
    let (node, dram) = (Complete::of(figures)?, Complete::of(dram)?);
    let scaled = u128::from(ADISTANCE_DRAM) * u128::from(node.latency())
        / u128::from(dram.latency())
        * u128::from(dram.bandwidth())
        / u128::from(node.bandwidth());
    Some(u32::try_from(scaled).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(latency: u32, bandwidth: u32) -> AccessFigures {
        AccessFigures {
            read_latency_ns: Some(latency),
            write_latency_ns: Some(latency),
            read_bandwidth_mbps: Some(bandwidth),
            write_bandwidth_mbps: Some(bandwidth),
        }
    }

    #[test]
    fn dram_is_its_own_measure() {
        // 576 * 160 / 160 * 200000 / 200000 = 576, and 576 / 128 = 4.
        let dram = figures(80, 100_000);
        assert_eq!(abstract_distance(&dram, &dram), Some(576));
        assert_eq!(ADISTANCE_DRAM / TIER_CHUNK, 4);
        assert_eq!(ADISTANCE_KMEM / TIER_CHUNK, 22);
    }

    #[test]
    fn fractions_are_dropped_at_each_step() {
        // 576 * 500 = 288000; / 222 = 1297 (1297.297 dropped);
        // * 200000 = 259400000; / 60000 = 4323 (4323.33 dropped). Tier 33.
        // Dividing last would give 288000 * 200000 / 222 / 60000 = 4324.
        let dram = figures(111, 100_000);
        let cxl = figures(250, 30_000);
        assert_eq!(abstract_distance(&cxl, &dram), Some(4323));
        assert_eq!(4323 / TIER_CHUNK, 33);
    }

    #[test]
    fn a_missing_or_zero_figure_gives_no_distance() {
        let dram = figures(80, 100_000);
        let half = AccessFigures {
            write_bandwidth_mbps: None,
            ..figures(250, 30_000)
        };
        assert_eq!(abstract_distance(&half, &dram), None);
        assert_eq!(abstract_distance(&figures(0, 1), &dram), None);
        assert_eq!(abstract_distance(&dram, &figures(1, 0)), None);
    }

    #[test]
    fn a_tenth_is_close_and_more_is_not() {
        let a = Complete::of(&figures(100, 1000)).unwrap();
        let at = |l, b| Complete::of(&figures(l, b)).unwrap();
        assert!(a.agrees(&at(110, 900)));
        assert!(!a.agrees(&at(111, 1000)));
        assert!(!a.agrees(&at(100, 899)));
    }
}
