//! What observing costs on this machine now.
//!
//! The costs of a page, a piece and a span stand in fixed ratios; how much
//! slower than a fast bare machine all of them are is learned from what passes
//! cost. A second thing is learned: how much longer than asked for a pass
//! takes, by the page, since a machine without a processor to spare makes
//! passes long and not dear.

use super::View;

/// Costs on a fast bare machine, in microseconds of CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitCosts {
    /// A page of a look, in one pass. Where a page stands for many, it costs as much as they do.
    pub page: f64,
    /// A piece of a glance, in one pass.
    pub piece: f64,
    /// Telling the source of one span.
    pub span: f64,
    /// Beginning a view.
    pub begin: f64,
}

impl Default for UnitCosts {
    fn default() -> Self {
        UnitCosts {
            page: 1.0,
            piece: 1.0,
            span: 10.0,
            begin: 200.0,
        }
    }
}

/// What was learned. See the module's essay.
#[derive(Clone, Debug)]
pub struct Costs {
    units: UnitCosts,
    expected: f64,
    actual: f64,
    factor: f64,
    known: bool,
    /// How much longer than asked for a pass takes, in ms a piece, by view.
    late_ms: [f64; 2],
    /// The latest passes, in ms, by view.
    pass_ms: [f64; 2],
}

/// Expected microseconds until what was measured counts.
const ENOUGH: f64 = 500.0;
/// Expected microseconds after which the past counts half.
const HALF: f64 = 200_000.0;

impl Costs {
    /// Nothing is known yet but the ratios.
    pub fn new(units: UnitCosts) -> Costs {
        Costs {
            units,
            expected: 0.0,
            actual: 0.0,
            factor: 1.0,
            known: false,
            late_ms: [0.0; 2],
            pass_ms: [0.0; 2],
        }
    }

    /// The expected cost in microseconds of a pass of a glance over `pieces`.
    pub fn pass(&self, pieces: u64) -> f64 {
        self.factor * self.units.piece * pieces as f64
    }

    /// The expected cost in microseconds of a pass of a look over `pages`.
    pub fn look(&self, pages: u64) -> f64 {
        self.factor * self.units.page * pages as f64
    }

    /// The expected cost in microseconds of telling the source of `spans`.
    pub fn tell(&self, spans: u64) -> f64 {
        self.factor * (self.units.begin + self.units.span * spans as f64)
    }

    /// The expected cost in microseconds of one span, told.
    pub fn span(&self) -> f64 {
        self.factor * self.units.span
    }

    /// How many pages in a gap cost less than another span.
    pub fn gap(&self) -> u64 {
        (self.units.span / self.units.page) as u64
    }

    /// Whether enough was observed to know. Until then little should be.
    pub fn known(&self) -> bool {
        self.known
    }

    /// How many times slower than a fast bare machine.
    #[cfg(test)]
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Work that was expected to cost `us` is done.
    pub fn expect(&mut self, us: f64) {
        self.expected += us / self.factor;
    }

    /// It cost `us`. Both are sums: it does not matter whether what was used is
    /// told pass by pass or now and then.
    pub fn used(&mut self, us: u64) {
        self.actual += us as f64;
        if self.expected >= ENOUGH {
            self.known = true;
            self.factor = (self.actual / self.expected).clamp(0.05, 10_000.0);
        }
        if self.expected >= HALF {
            self.expected /= 2.0;
            self.actual /= 2.0;
        }
    }

    /// A pass of `view` over `pieces` that should have taken `wanted_ms` took
    /// `ms`.
    pub fn took(&mut self, view: View, pieces: u64, wanted_ms: u64, ms: u64) {
        let late = ms.saturating_sub(wanted_ms) as f64 / pieces.max(1) as f64;
        let view = view as usize;
        self.late_ms[view] += (late - self.late_ms[view]) / 4.0;
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
    fn the_factor_is_what_passes_cost_by_what_they_should() {
        let mut costs = Costs::new(UnitCosts::default());
        assert_eq!(costs.pass(1000), 1000.0);
        // 10,000 pages at 50 us each.
        costs.expect(costs.pass(10_000));
        costs.used(500_000);
        assert_eq!(costs.factor(), 50.0);
        assert_eq!(costs.pass(1000), 50_000.0);
        assert_eq!(costs.tell(3), 50.0 * 230.0);
        assert_eq!(costs.gap(), 10);
    }

    /// A page that stands for 256 costs as much, and makes neither glances dearer nor the machine slower.
    #[test]
    fn pages_and_pieces_may_differ() {
        let mut costs = Costs::new(UnitCosts {
            page: 256.0,
            ..UnitCosts::default()
        });
        costs.expect(costs.look(512));
        costs.used(512 * 256);
        assert_eq!(costs.factor(), 1.0);
        assert_eq!((costs.look(2), costs.pass(2)), (512.0, 2.0));
        assert_eq!(costs.tell(0), 200.0);
        // A gap of one page costs more than another span.
        assert_eq!(costs.gap(), 0);
    }

    #[test]
    fn a_factor_that_changes_is_followed() {
        let mut costs = Costs::new(UnitCosts::default());
        for _ in 0..40 {
            costs.expect(costs.pass(20_000));
            costs.used(20_000);
        }
        for _ in 0..40 {
            costs.expect(costs.pass(20_000));
            costs.used(100_000);
        }
        assert!((4.5..=5.0).contains(&costs.factor()), "{}", costs.factor());
    }

    #[test]
    fn late_passes_limit_how_many_pieces_one_takes() {
        let mut costs = Costs::new(UnitCosts::default());
        assert_eq!(costs.within(View::Look, 1000), u64::MAX);
        for _ in 0..40 {
            // 10,000 pages 1900 ms late: 0.19 ms a page.
            costs.took(View::Look, 10_000, 100, 2_000);
        }
        let most = costs.within(View::Look, 1000);
        assert!((5_262..5_400).contains(&most), "{most}");
        assert_eq!(costs.longest_pass_ms(), 2_000);
    }
}
