//! What observing costs on this machine now.
//!
//! Two kinds of work have a factor each, by which this machine is slower than a
//! fast bare one: *passes*, which the kernel makes, and *telling* the source
//! what to observe, which is ours. They differ: in an emulated machine a pass
//! costs six times as much and telling ten times, and where one factor was made
//! of both, small looks seemed so dear that ever smaller ones were begun. Both
//! are learned from what was used. Another thing is learned: how much longer
//! than asked for a pass takes, by the page, since a machine without a processor
//! to spare makes passes long and not dear.

use super::View;

/// Costs on a fast bare machine, in microseconds of CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitCosts {
    /// A page of a look, or a piece of a glance, in one pass.
    pub piece: f64,
    /// Telling the source of one span.
    pub span: f64,
    /// Beginning a view.
    pub begin: f64,
}

impl Default for UnitCosts {
    fn default() -> Self {
        UnitCosts {
            piece: 1.0,
            span: 10.0,
            begin: 200.0,
        }
    }
}

/// A factor that is learned.
#[derive(Clone, Copy, Debug)]
struct Learned {
    expected: f64,
    actual: f64,
    factor: f64,
    known: bool,
}

impl Learned {
    fn new() -> Learned {
        Learned {
            expected: 0.0,
            actual: 0.0,
            factor: 1.0,
            known: false,
        }
    }

    /// Work that was expected to cost `us` is done.
    fn expect(&mut self, us: f64) {
        self.expected += us / self.factor;
    }

    /// It cost `us`, with work that should have cost `under_way` by now and is not
    /// done.
    fn used(&mut self, us: u64, under_way: f64) {
        self.actual += us as f64;
        if self.expected >= ENOUGH {
            let expected = self.expected + under_way / self.factor;
            self.known = true;
            self.factor = (self.actual / expected).clamp(0.05, 10_000.0);
        }
        if self.expected >= HALF {
            self.expected /= 2.0;
            self.actual /= 2.0;
        }
    }
}

/// What was learned. See the module's essay.
#[derive(Clone, Debug)]
pub struct Costs {
    units: UnitCosts,
    passing: Learned,
    telling: Learned,
    /// How much longer than asked for a pass takes, in ms a piece, by view.
    late_ms: [f64; 2],
    /// The latest passes, in ms, by view.
    pass_ms: [f64; 2],
}

/// How late a turn may be, in ms.
const TURN_MS: u64 = 30;
/// A pass over fewer pieces than this says less about how late passes are.
const SURELY: f64 = 4_096.0;
/// Expected microseconds until what was measured counts.
const ENOUGH: f64 = 500.0;
/// Expected microseconds after which the past counts half.
const HALF: f64 = 200_000.0;

impl Costs {
    /// Nothing is known yet but the ratios.
    pub fn new(units: UnitCosts) -> Costs {
        Costs {
            units,
            passing: Learned::new(),
            telling: Learned::new(),
            late_ms: [0.0; 2],
            pass_ms: [0.0; 2],
        }
    }

    /// The expected cost in microseconds of a pass over `pieces`.
    pub fn pass(&self, pieces: u64) -> f64 {
        self.passing.factor * self.units.piece * pieces as f64
    }

    /// The expected cost in microseconds of telling the source of `spans`.
    pub fn tell(&self, spans: u64) -> f64 {
        self.telling.factor * (self.units.begin + self.units.span * spans as f64)
    }

    /// The expected cost in microseconds of one span, told.
    pub fn span(&self) -> f64 {
        self.telling.factor * self.units.span
    }

    /// How many pages in a gap cost less than another span.
    pub fn gap(&self) -> u64 {
        (self.span() / self.pass(1)) as u64
    }

    /// Whether enough was observed to know. Until then little should be.
    pub fn known(&self) -> bool {
        self.passing.known
    }

    /// How many times slower than a fast bare machine passes are, and telling.
    #[cfg(test)]
    pub fn factors(&self) -> [f64; 2] {
        [self.passing.factor, self.telling.factor]
    }

    /// Passes that were expected to cost `us` were made.
    pub fn expect_pass(&mut self, us: f64) {
        self.passing.expect(us);
    }

    /// The source was told what was expected to cost `us`.
    pub fn expect_tell(&mut self, us: f64) {
        self.telling.expect(us);
    }

    /// Passes cost `pass_us`, telling `tell_us`. They are sums: it does not
    /// matter whether what was used is told pass by pass or now and then. Passes
    /// under way should have cost `under_way` of it.
    pub fn used(&mut self, pass_us: u64, tell_us: u64, under_way: f64) {
        self.passing.used(pass_us, under_way);
        self.telling.used(tell_us, 0.0);
    }

    /// A pass of `view` over `pieces` that should have taken `wanted_ms` took
    /// `ms`.
    pub fn took(&mut self, view: View, pieces: u64, wanted_ms: u64, ms: u64) {
        // Whoever reads comes late, too, however little there was to do.
        let late = ms.saturating_sub(wanted_ms + TURN_MS) as f64 / pieces.max(1) as f64;
        let weight = (pieces as f64 / SURELY).min(1.0) / 4.0;
        let view = view as usize;
        self.late_ms[view] += (late - self.late_ms[view]) * weight;
        self.pass_ms[view] = (self.pass_ms[view] * 0.75).max(ms as f64);
    }

    /// The most pieces of `view` of which a pass is done `ms` later than asked
    /// for.
    pub fn within(&self, view: View, ms: u64) -> u64 {
        let late = self.late_ms[view as usize];
        if late <= 0.0 {
            u64::MAX
        } else {
            ((ms as f64 / late) as u64).max(1)
        }
    }

    /// How much later than asked for a pass of `view` over `pieces` ends, in ms.
    pub fn late(&self, view: View, pieces: u64) -> u64 {
        (self.late_ms[view as usize] * pieces as f64) as u64
    }

    /// How long the longest of the latest passes took, in ms.
    pub fn longest_pass_ms(&self) -> u64 {
        self.pass_ms[0].max(self.pass_ms[1]) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_what_work_cost_by_what_it_should() {
        let mut costs = Costs::new(UnitCosts::default());
        assert_eq!(costs.pass(1000), 1000.0);
        // 10,000 pages at 50 us each; three times begun, at 1 ms instead of 200 us.
        costs.expect_pass(costs.pass(10_000));
        for _ in 0..3 {
            costs.expect_tell(costs.tell(0));
        }
        costs.used(500_000, 3_000, 0.0);
        assert_eq!(costs.factors(), [50.0, 5.0]);
        assert_eq!(costs.pass(1000), 50_000.0);
        // 5 * (200 + 3 * 10); a span costs as much as one page.
        assert_eq!(costs.tell(3), 1_150.0);
        assert_eq!(costs.gap(), 1);
    }

    /// Half of a pass over 100,000 pages is over: what it used is not what the
    /// 1,000 before it did.
    #[test]
    fn passes_under_way_make_nothing_dearer() {
        let mut costs = Costs::new(UnitCosts::default());
        costs.expect_pass(costs.pass(1_000));
        costs.used(1_000, 0, 0.0);
        costs.used(50_000, 0, costs.pass(50_000));
        assert_eq!(costs.pass(1), 1.0);
    }

    #[test]
    fn a_factor_that_changes_is_followed() {
        let mut costs = Costs::new(UnitCosts::default());
        for _ in 0..40 {
            costs.expect_pass(costs.pass(20_000));
            costs.used(20_000, 0, 0.0);
        }
        for _ in 0..40 {
            costs.expect_pass(costs.pass(20_000));
            costs.used(100_000, 0, 0.0);
        }
        let [passing, _] = costs.factors();
        assert!((4.5..=5.0).contains(&passing), "{passing}");
    }

    #[test]
    fn late_passes_limit_how_many_pieces_one_takes() {
        let mut costs = Costs::new(UnitCosts::default());
        assert_eq!(costs.within(View::Look, 1000), u64::MAX);
        for _ in 0..40 {
            // 10,000 pages 1900 ms late, and a turn: 0.19 ms a page.
            costs.took(View::Look, 10_000, 100, 2_030);
            // Four pages say nothing.
            costs.took(View::Look, 4, 100, 130);
        }
        let most = costs.within(View::Look, 1000);
        assert!((5_262..5_400).contains(&most), "{most}");
        assert!((1_500..2_030).contains(&costs.longest_pass_ms()));
    }
}
