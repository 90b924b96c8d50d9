//! What observing costs on this machine now.
//!
//! Passes and telling the source are learned apart: the kernel works for the one, and
//! mostly we do for the other. Within each of them costs stand in fixed ratios; how many
//! times slower than a fast bare machine it is follows from what it cost. A third thing is
//! learned: how much longer than asked for a pass takes, by the page, since a machine
//! without a processor to spare makes passes long and not dear.

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

/// How many times slower than a fast bare machine, for one kind of work.
#[derive(Clone, Copy, Debug)]
struct Factor {
    expected: f64,
    actual: f64,
    factor: f64,
    known: bool,
    /// Expected microseconds after which the past counts half.
    half: f64,
}

impl Factor {
    /// Nothing is known yet.
    const fn unknown(half: f64) -> Factor {
        Factor {
            expected: 0.0,
            actual: 0.0,
            factor: 1.0,
            known: false,
            half,
        }
    }

    fn expect(&mut self, us: f64) {
        self.expected += us / self.factor;
    }

    fn used(&mut self, us: f64) {
        self.actual += us;
        if self.expected >= ENOUGH {
            self.known = true;
            self.factor = (self.actual / self.expected).clamp(0.05, 10_000.0);
        }
        if self.expected >= self.half {
            self.expected /= 2.0;
            self.actual /= 2.0;
        }
    }
}

/// What was learned. See the module's essay.
#[derive(Clone, Debug)]
pub struct Costs {
    units: UnitCosts,
    passing: Factor,
    telling: Factor,
    /// How much longer than asked for a pass takes, in ms a piece, by view; and how much longer
    /// than twice that.
    late_ms: [f64; 2],
    much_too_late_ms: [f64; 2],
    /// The latest passes, in ms, by view.
    pass_ms: [f64; 2],
    /// Of the very last pass by view, how many pieces it had and how late it was, in ms a piece.
    last: [(u64, f64); 2],
}

/// Expected microseconds until what was measured counts.
const ENOUGH: f64 = 500.0;
/// Expected microseconds after which the past counts half. The source is told seldom, and the first times are the
/// dearest: nothing of what they need is in any cache.
const HALF_PASSING: f64 = 200_000.0;
const HALF_TELLING: f64 = 4_000.0;
/// Passes over fewer pieces say less of how late large ones are.
const LARGE: f64 = 4096.0;

impl Costs {
    /// Nothing is known yet but the ratios.
    pub fn new(units: UnitCosts) -> Costs {
        Costs {
            units,
            passing: Factor::unknown(HALF_PASSING),
            telling: Factor::unknown(HALF_TELLING),
            late_ms: [0.0; 2],
            much_too_late_ms: [0.0; 2],
            pass_ms: [0.0; 2],
            last: [(0, 0.0); 2],
        }
    }

    /// The expected cost in microseconds of a pass of a glance over `pieces`.
    pub fn pass(&self, pieces: u64) -> f64 {
        self.passing.factor * self.units.piece * pieces as f64
    }

    /// The expected cost in microseconds of a pass of a look over `pages`.
    pub fn look(&self, pages: u64) -> f64 {
        self.passing.factor * self.units.page * pages as f64
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
        (self.span() / self.look(1)) as u64
    }

    /// Whether enough was observed to know what passes cost. Until then little should be.
    pub fn known(&self) -> bool {
        self.passing.known
    }

    /// How many times slower than a fast bare machine passes are.
    #[cfg(test)]
    pub fn factor(&self) -> f64 {
        self.passing.factor
    }

    /// A pass that was expected to cost `us` is done.
    pub fn expect(&mut self, us: f64) {
        self.passing.expect(us);
    }

    /// The source was told what was expected to cost `us`.
    pub fn expect_to_tell(&mut self, us: f64) {
        self.telling.expect(us);
    }

    /// Passes cost `pass_us`, and telling cost `tell_us`. All are sums: it does not matter
    /// whether what was used is told pass by pass or now and then.
    pub fn used(&mut self, pass_us: f64, tell_us: f64) {
        self.passing.used(pass_us);
        self.telling.used(tell_us);
    }

    /// A pass of `view` over `pieces` that should have taken `wanted_ms` took
    /// `ms`.
    pub fn took(&mut self, view: View, pieces: u64, wanted_ms: u64, ms: u64) {
        let weight = (pieces as f64 / LARGE).min(1.0) / 4.0;
        let view = view as usize;
        let late = |wanted_ms| ms.saturating_sub(wanted_ms) as f64 / pieces.max(1) as f64;
        let learn = |known: &mut f64, late: f64| *known += (late - *known) * weight;
        learn(&mut self.late_ms[view], late(wanted_ms));
        learn(&mut self.much_too_late_ms[view], late(2 * wanted_ms));
        self.last[view] = (pieces, late(wanted_ms));
        self.pass_ms[view] = (self.pass_ms[view] * 0.75).max(ms as f64);
    }

    /// The most pieces of `view` of which a pass takes `ms` more than twice what was asked
    /// for.
    pub fn within(&self, view: View, ms: u64) -> u64 {
        let late = self.much_too_late_ms[view as usize];
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

    /// How much later than asked for it ends at least: as on the average, or as the very last did if that says
    /// something of so many pieces.
    pub fn least_late(&self, view: View, pieces: u64) -> u64 {
        let (of, late_ms) = self.last[view as usize];
        let last = (pieces <= 4 * of).then_some((late_ms * pieces as f64) as u64);
        self.late(view, pieces).min(last.unwrap_or(u64::MAX))
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
        costs.used(500_000.0, 0.0);
        assert_eq!(costs.factor(), 50.0);
        assert_eq!(costs.pass(1000), 50_000.0);
        // What telling costs is known only when something was told.
        assert_eq!((costs.tell(3), costs.gap()), (230.0, 0));
        costs.expect_to_tell(costs.tell(180));
        costs.used(0.0, 4_000.0);
        assert_eq!((costs.factor(), costs.tell(3)), (50.0, 2.0 * 230.0));
    }

    /// One pass that something else held up makes those after it late for long on the average only.
    #[test]
    fn a_pass_in_time_ends_what_one_late_pass_made_of_the_average() {
        let mut costs = Costs::new(UnitCosts::default());
        costs.took(View::Look, 4_096, 100, 500);
        assert_eq!(costs.late(View::Look, 1_024), 25);
        assert_eq!(costs.least_late(View::Look, 1_024), 25);
        costs.took(View::Look, 1_024, 100, 100);
        assert_eq!(costs.late(View::Look, 1_024), 23);
        assert_eq!(costs.least_late(View::Look, 1_024), 0);
        // Of so many more pages it says nothing.
        assert_eq!(
            costs.least_late(View::Look, 8_192),
            costs.late(View::Look, 8_192)
        );
    }

    /// What is dear to tell is joined over gaps that cost less.
    #[test]
    fn gaps_follow_from_what_spans_and_pages_cost() {
        let mut costs = Costs::new(UnitCosts::default());
        assert_eq!(costs.gap(), 10);
        costs.expect_to_tell(costs.tell(180));
        costs.used(0.0, 4_000.0);
        assert_eq!(costs.gap(), 20);
    }

    /// A page that stands for 256 costs as much, and makes neither glances dearer nor the machine slower.
    #[test]
    fn pages_and_pieces_may_differ() {
        let mut costs = Costs::new(UnitCosts {
            page: 256.0,
            ..UnitCosts::default()
        });
        costs.expect(costs.look(512));
        costs.used(512.0 * 256.0, 0.0);
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
            costs.used(20_000.0, 0.0);
        }
        for _ in 0..40 {
            costs.expect(costs.pass(20_000));
            costs.used(100_000.0, 0.0);
        }
        assert!((4.5..=5.0).contains(&costs.factor()), "{}", costs.factor());
    }

    #[test]
    fn late_passes_limit_how_many_pieces_one_takes() {
        let mut costs = Costs::new(UnitCosts::default());
        assert_eq!(costs.within(View::Look, 1000), u64::MAX);
        for _ in 0..40 {
            // 10,000 pages, 1800 ms more than 200: 0.18 ms a page.
            costs.took(View::Look, 10_000, 100, 2_000);
        }
        let most = costs.within(View::Look, 1000);
        assert!((5_555..5_700).contains(&most), "{most}");
        assert_eq!(costs.longest_pass_ms(), 2_000);
    }

    /// One page that was late by chance says nothing of ten thousand.
    #[test]
    fn small_passes_say_little_of_large_ones() {
        let mut costs = Costs::new(UnitCosts::default());
        costs.took(View::Look, 1, 100, 400);
        assert!(costs.late(View::Look, 10_000) < 200);
        assert_eq!(costs.late(View::Glance, 10_000), 0);
    }
}
