//! When to look closely, when to glance, when to rest.
//!
//! # Problem
//!
//! An exact look at every page of the slow tier says at once which pages are
//! hot, but it costs processor time in proportion to the memory. Done all the
//! time it would cost more than it saves; done rarely it would find a hot set
//! that has moved seconds too late.
//!
//! # Approach
//!
//! Two ways of observing take turns. A *look* observes every page of interest
//! in complete passes. A *glance* observes a few hundred randomly chosen pages
//! of the slow tier; it costs next to nothing, and by its nature sees any hot
//! set that is a noticeable share of the slow tier. Looking goes on while it
//! brings news. When a pass brings none, glancing takes over, until a sampled
//! page is touched often enough to count as hot: then some unsampled ones are
//! hot too, and a look is due.
//!
//! # Terms
//!
//! *Credit* is processor time that observation may still spend. It grows by a
//! fixed share of elapsed time up to a cap, so a long quiet period pays for a
//! burst of looks, and the long-run share is bounded whatever happens. *News*
//! are pages that a pass made ready for promotion, or touched for the first
//! time: those may become ready in the next pass. A *barren* look is one that
//! was triggered and promoted nothing; each one doubles the wait before the
//! next trigger counts.
//!
//! # Properties
//!
//! Looking starts only with credit in hand; at most [`CadenceConfig::passes_max`]
//! passes follow one another, and [`CadenceConfig::passes_min`] are taken on credit, for
//! fewer decide nothing; a look that owes as much as can be saved up, and what the passes
//! cost that it still has to take, ends; the time is an argument.

use crate::units::Millis;

/// How much observation may cost and how eager it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CadenceConfig {
    /// Long-run share of one CPU that observation may use, in thousandths.
    pub share_permille: u32,
    /// The most credit that can be saved up, in microseconds of CPU time.
    pub burst_us: u64,
    /// Passes that say which pages are hot: as many as a page must be seen in, and two
    /// at least.
    pub passes_min: u32,
    /// Passes that one look may take.
    pub passes_max: u32,
    /// A look is due after this long even if no glance asks for one.
    pub look_every_ms: u64,
    /// The wait after a look that was cut short while it still brought news, or
    /// that could not take in all pages.
    pub go_on_after_ms: u64,
    /// The wait after the first barren look; doubles with each further one,
    /// up to `look_every_ms`.
    pub barren_wait_ms: u64,
}

impl Default for CadenceConfig {
    fn default() -> Self {
        CadenceConfig {
            share_permille: 50,
            burst_us: 3_000_000,
            passes_min: 2,
            passes_max: 5,
            look_every_ms: 30_000,
            go_on_after_ms: 1_000,
            barren_wait_ms: 1_000,
        }
    }
}

/// What one complete pass over the pages of interest brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassNews {
    /// Pages on a lower tier that were touched.
    pub touched: u64,
    /// Of those, how many this pass made ready for promotion.
    pub became_ready: u64,
    /// Of those, how many were seen touched for the first time in the window.
    pub first_touch: u64,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observe {
    /// Observe every page of interest.
    Look,
    /// Observe a sample.
    Glance,
}

/// The state machine. See the module's essay.
#[derive(Clone, Debug)]
pub struct Cadence {
    config: CadenceConfig,
    credit_us: i64,
    /// When credit was last added. Fractions of a microsecond are not lost:
    /// one millisecond always yields a whole number of them.
    credited_at: Millis,
    looking: bool,
    passes: u32,
    /// What the running pass has cost so far, and what the one before it did.
    pass_us: u64,
    last_pass_us: u64,
    promoted: u64,
    triggered: bool,
    partial: bool,
    look_ended: Millis,
    /// When the next look is due if no glance asks for one.
    look_due: Millis,
    barren: u32,
}

impl Cadence {
    /// A cadence that starts at `now` with full credit and a look.
    pub fn new(config: CadenceConfig, now: Millis) -> Cadence {
        Cadence {
            config,
            credit_us: config.burst_us as i64,
            credited_at: now,
            looking: true,
            passes: 0,
            pass_us: 0,
            last_pass_us: 0,
            promoted: 0,
            triggered: false,
            partial: false,
            look_ended: now,
            look_due: now,
            barren: 0,
        }
    }

    /// What to do at `now`.
    pub fn observe(&mut self, now: Millis) -> Observe {
        self.add_credit(now);
        // A pass that was begun is paid for; one that loses its reports does not end.
        if self.looking && self.credit_us < -self.most_owed_us() {
            self.looking = false;
            self.look_ended = now;
            self.look_due = Millis(now.0 + self.config.look_every_ms);
        }
        if !self.looking && self.credit_us > 0 && now >= self.look_due {
            self.begin_look(false);
        }
        if self.looking {
            Observe::Look
        } else {
            Observe::Glance
        }
    }

    /// What a look may owe: as much as can be saved up, and for the passes without which
    /// it decides nothing what the last one cost.
    fn most_owed_us(&self) -> i64 {
        let missing = self.config.passes_min.saturating_sub(self.passes);
        let missing_us = u64::from(missing).saturating_mul(self.last_pass_us);
        let most = self.config.burst_us.saturating_add(missing_us);
        i64::try_from(most).unwrap_or(i64::MAX)
    }

    /// From now on observation may use `permille` thousandths of one CPU.
    pub fn set_share(&mut self, now: Millis, permille: u32) {
        self.add_credit(now);
        self.config.share_permille = permille;
    }

    /// No more than `us` microseconds are in hand; fewer than none are owed. Who observed
    /// meanwhile has used the rest.
    pub fn hold_at_most(&mut self, now: Millis, us: i64) {
        self.add_credit(now);
        self.credit_us = self.credit_us.min(us);
    }

    /// Observation used `cpu_us` microseconds of processor time.
    pub fn spent(&mut self, cpu_us: u64) {
        self.pass_us = self.pass_us.saturating_add(cpu_us);
        self.credit_us -= i64::try_from(cpu_us).unwrap_or(i64::MAX / 2);
    }

    /// A pass of the current look is complete. Ends the look when it brought
    /// no news, when its passes are used up or its credit is.
    pub fn pass_done(&mut self, now: Millis, news: PassNews) {
        if !self.looking {
            return;
        }
        self.add_credit(now);
        self.passes += 1;
        self.last_pass_us = std::mem::take(&mut self.pass_us);
        self.promoted += news.became_ready;
        let enough = self.config.passes_min;
        // A few stragglers, one in a hundred of what was touched, are left to
        // a later look: another pass for them alone does not pay.
        let straggling = news.first_touch.saturating_mul(100) <= news.touched;
        let settled = if news.touched == 0 {
            true
        } else {
            self.passes >= enough && straggling
        };
        let one_touch_only = self.passes > enough && news.became_ready == 0;
        // Fewer passes say what was touched and not what is hot. Where passes are dear, a
        // look that ends with them would find nothing, however often it is taken.
        let overdrawn = self.credit_us <= 0 && self.passes >= enough;
        if settled || one_touch_only || self.passes >= self.config.passes_max || overdrawn {
            self.looking = false;
            self.look_ended = now;
            let cut_short = !settled && !one_touch_only && news.became_ready > 0;
            let wait = if cut_short || self.partial {
                self.config.go_on_after_ms
            } else {
                self.config.look_every_ms
            };
            self.look_due = Millis(now.0 + wait);
            if self.triggered && self.promoted == 0 {
                self.barren = (self.barren + 1).min(16);
            } else {
                self.barren = 0;
            }
        }
    }

    /// A glance found `hot` sampled pages on the lower tier hot. Begins a look
    /// if credit allows and the last ones were not barren just now.
    pub fn glance_found(&mut self, now: Millis, hot: u64) {
        self.add_credit(now);
        if self.looking || hot == 0 || self.credit_us <= 0 {
            return;
        }
        if now.since(self.look_ended) >= self.barren_wait() {
            self.begin_look(true);
        }
    }

    /// Something changed that only a look can judge: new processes, new
    /// mappings, or hotness that an earlier pass could not act on.
    ///
    /// The look begins as soon as there is credit for it: processes that come and
    /// go all the time would otherwise cost whatever looking at them costs.
    pub fn look_due(&mut self) {
        self.look_due = Millis(0);
    }

    /// Others have driven the source up to now: a look begins as soon as there is credit for it, and none is
    /// under way.
    pub fn begin_anew(&mut self) {
        self.looking = false;
        self.barren = 0;
        self.look_due();
    }

    /// The present look takes in only a part of the pages: the others should
    /// have their turn soon.
    pub fn look_is_partial(&mut self) {
        self.partial = self.looking;
    }

    /// How many times longer than at first the passes of this look should be.
    /// Short passes find what is in steady use at once. When as many as say what is hot
    /// leave it open, pages are touched now and then, and longer ones see that for
    /// the same price.
    pub fn stretch(&self) -> u32 {
        match self.passes.checked_sub(self.config.passes_min) {
            None => 1,
            Some(0) => 6,
            Some(_) => 20,
        }
    }

    /// How much it may cost.
    pub fn config(&self) -> &CadenceConfig {
        &self.config
    }

    /// Credit in microseconds; negative when overdrawn.
    pub fn credit_us(&self) -> i64 {
        self.credit_us
    }

    fn begin_look(&mut self, triggered: bool) {
        self.looking = true;
        self.passes = 0;
        self.pass_us = 0;
        self.last_pass_us = 0;
        self.promoted = 0;
        self.triggered = triggered;
        self.partial = false;
    }

    fn barren_wait(&self) -> u64 {
        match self.barren {
            0 => 0,
            n => (self.config.barren_wait_ms << (n - 1)).min(self.config.look_every_ms),
        }
    }

    fn add_credit(&mut self, now: Millis) {
        let elapsed = now.since(self.credited_at);
        self.credited_at = self.credited_at.max(now);
        let earned = elapsed.saturating_mul(u64::from(self.config.share_permille));
        let cap = self.config.burst_us as i64;
        self.credit_us = self
            .credit_us
            .saturating_add(i64::try_from(earned).unwrap_or(cap))
            .min(cap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(touched: u64, became_ready: u64, first_touch: u64) -> PassNews {
        PassNews {
            touched,
            became_ready,
            first_touch,
        }
    }

    #[test]
    fn a_hot_set_takes_two_passes() {
        let mut c = Cadence::new(CadenceConfig::default(), Millis(0));
        assert_eq!(c.observe(Millis(0)), Observe::Look);
        // All 8192 are touched for the first time: the next pass decides.
        c.pass_done(Millis(500), news(8192, 0, 8192));
        assert_eq!(c.observe(Millis(500)), Observe::Look);
        // 81 of 8192 are new, less than one in a hundred: settled.
        c.pass_done(Millis(1000), news(8192, 8111, 81));
        assert_eq!(c.observe(Millis(1000)), Observe::Glance);
    }

    #[test]
    fn stragglers_of_more_than_a_hundredth_are_waited_for() {
        let mut c = Cadence::new(CadenceConfig::default(), Millis(0));
        c.pass_done(Millis(500), news(8000, 0, 8000));
        assert_eq!(c.stretch(), 1);
        c.pass_done(Millis(1000), news(8192, 8000, 192));
        assert_eq!(c.observe(Millis(1000)), Observe::Look);
        assert_eq!(c.stretch(), 6);
        c.pass_done(Millis(1500), news(192, 192, 0));
        assert_eq!(c.observe(Millis(1500)), Observe::Glance);
    }

    #[test]
    fn a_look_cut_short_goes_on_soon() {
        let mut c = Cadence::new(CadenceConfig::default(), Millis(0));
        for pass in 1..=5 {
            assert_eq!(c.observe(Millis(pass * 100)), Observe::Look);
            c.pass_done(Millis(pass * 100), news(100, 50, 50));
        }
        // Five passes are the most; the next look is due 1000 ms later.
        assert_eq!(c.observe(Millis(1_499)), Observe::Glance);
        assert_eq!(c.observe(Millis(1_500)), Observe::Look);
    }

    #[test]
    fn a_look_at_a_part_goes_on_soon_with_the_rest() {
        let mut c = Cadence::new(CadenceConfig::default(), Millis(0));
        c.look_is_partial();
        c.pass_done(Millis(500), news(0, 0, 0));
        // 1000 ms later instead of 30 000 ms; that look takes in all there is.
        assert_eq!(c.observe(Millis(1_499)), Observe::Glance);
        assert_eq!(c.observe(Millis(1_500)), Observe::Look);
        c.pass_done(Millis(2_000), news(0, 0, 0));
        assert_eq!(c.observe(Millis(31_999)), Observe::Glance);
    }

    #[test]
    fn untouched_memory_is_looked_at_once() {
        let mut c = Cadence::new(CadenceConfig::default(), Millis(0));
        c.pass_done(Millis(500), news(0, 0, 0));
        assert_eq!(c.observe(Millis(500)), Observe::Glance);
        // ... and again when the period is over.
        assert_eq!(c.observe(Millis(30_499)), Observe::Glance);
        assert_eq!(c.observe(Millis(30_500)), Observe::Look);
    }

    #[test]
    fn a_slow_scan_over_everything_is_given_up_after_three_passes() {
        let mut c = Cadence::new(CadenceConfig::default(), Millis(0));
        for pass in 1..=3 {
            assert_eq!(c.observe(Millis(pass * 100)), Observe::Look);
            c.pass_done(Millis(pass * 100), news(600, 0, 600));
        }
        assert_eq!(c.observe(Millis(400)), Observe::Glance);
    }

    /// Passes of a look that others began do not count for the next.
    #[test]
    fn who_begins_anew_begins_with_the_first_pass() {
        let mut cadence = Cadence::new(CadenceConfig::default(), Millis(0));
        assert_eq!(cadence.observe(Millis(0)), Observe::Look);
        for pass in 1..4 {
            let news = PassNews {
                touched: 10,
                became_ready: 10,
                first_touch: 10,
            };
            cadence.pass_done(Millis(50 * pass), news);
        }
        assert!(cadence.stretch() > 1);
        cadence.begin_anew();
        assert_eq!(cadence.observe(Millis(200)), Observe::Look);
        assert_eq!(cadence.stretch(), 1);
    }

    #[test]
    fn barren_looks_are_repeated_ever_more_rarely() {
        let mut c = Cadence::new(CadenceConfig::default(), Millis(0));
        c.pass_done(Millis(0), news(0, 0, 0));
        // First trigger counts at once.
        c.glance_found(Millis(100), 1);
        assert_eq!(c.observe(Millis(100)), Observe::Look);
        c.pass_done(Millis(100), news(0, 0, 0));
        // After one barren look: 1000 ms.
        c.glance_found(Millis(1_099), 1);
        assert_eq!(c.observe(Millis(1_099)), Observe::Glance);
        c.glance_found(Millis(1_100), 1);
        assert_eq!(c.observe(Millis(1_100)), Observe::Look);
        c.pass_done(Millis(1_100), news(0, 0, 0));
        // After two: 2000 ms.
        c.glance_found(Millis(3_099), 1);
        assert_eq!(c.observe(Millis(3_099)), Observe::Glance);
        c.glance_found(Millis(3_100), 1);
        assert_eq!(c.observe(Millis(3_100)), Observe::Look);
        // A look that promotes clears the slate.
        c.pass_done(Millis(3_200), news(10, 0, 10));
        c.pass_done(Millis(3_300), news(10, 10, 0));
        c.glance_found(Millis(3_301), 1);
        assert_eq!(c.observe(Millis(3_301)), Observe::Look);
    }

    #[test]
    fn a_look_that_is_called_for_waits_for_credit() {
        let mut c = Cadence::new(CadenceConfig::default(), Millis(0));
        // 3 s are in hand, and the look takes 4: 1 s is owed, which 20 s earn.
        c.spent(4_000_000);
        c.pass_done(Millis(0), news(0, 0, 0));
        for now in (0..20_000).step_by(1000) {
            c.look_due();
            assert_eq!(c.observe(Millis(now)), Observe::Glance, "{now}");
        }
        assert_eq!(c.observe(Millis(20_001)), Observe::Look);
        // With credit in hand it begins at once.
        c.pass_done(Millis(20_100), news(0, 0, 0));
        assert_eq!(c.observe(Millis(20_100)), Observe::Glance);
        c.look_due();
        assert_eq!(c.observe(Millis(20_200)), Observe::Look);
    }

    #[test]
    fn where_passes_are_dear_a_look_takes_two_of_them() {
        let mut c = Cadence::new(CadenceConfig::default(), Millis(0));
        c.pass_done(Millis(0), news(0, 0, 0));
        // Nothing is in hand; a pass costs 2.5 s, little by little.
        c.spent(3_000_000);
        c.look_due();
        let mut now = 20;
        for pass in 1..=2 {
            for _ in 0..50 {
                assert_eq!(c.observe(Millis(now)), Observe::Look, "{pass} {now}");
                c.spent(50_000);
                now += 50;
            }
            let (ready, first) = if pass == 1 { (0, 100) } else { (100, 0) };
            c.pass_done(Millis(now), news(100, ready, first));
        }
        assert_eq!(c.observe(Millis(now)), Observe::Glance);
        // All of it is owed, but for 5 % of the time.
        assert_eq!(c.credit_us(), -5_000_000 + now as i64 * 50);
    }

    #[test]
    fn where_three_touches_are_asked_for_a_look_takes_three_passes() {
        let config = CadenceConfig {
            passes_min: 3,
            ..CadenceConfig::default()
        };
        let mut c = Cadence::new(config, Millis(0));
        // 2.5 s a pass, of 3 s that are in hand: the other two are owed.
        for pass in 1..=3 {
            assert_eq!(c.observe(Millis(pass * 100)), Observe::Look);
            assert_eq!(c.stretch(), 1);
            c.spent(2_500_000);
            let (ready, first) = [(0, 100), (0, 0), (100, 0)][pass as usize - 1];
            c.pass_done(Millis(pass * 100), news(100, ready, first));
        }
        assert_eq!(c.observe(Millis(400)), Observe::Glance);
    }

    #[test]
    fn a_look_of_which_no_pass_is_complete_is_given_up() {
        let mut c = Cadence::new(CadenceConfig::default(), Millis(0));
        let (mut now, mut spent_us) = (0, 0);
        // A pass of 450 ms each 500 ms, of which reports are lost every time.
        while now < 600_000 {
            if c.observe(Millis(now)) == Observe::Look {
                c.spent(450_000);
                spent_us += 450_000;
            }
            now += 500;
        }
        // 50/1000 of 600 s, what was in hand, and as much again.
        assert!(spent_us <= 30_000_000 + 6_000_000 + 450_000, "{spent_us}");
        assert!(spent_us >= 28_000_000, "{spent_us}");
    }

    #[test]
    fn what_another_observer_owes_is_paid_back_first() {
        let mut c = Cadence::new(CadenceConfig::default(), Millis(0));
        c.pass_done(Millis(0), news(0, 0, 0));
        c.hold_at_most(Millis(0), 5_000_000);
        assert_eq!(c.credit_us(), 3_000_000);
        // 500 ms are owed, which 10 s earn; what was earned before is gone.
        c.hold_at_most(Millis(50_000), -500_000);
        c.look_due();
        assert_eq!(c.observe(Millis(60_000)), Observe::Glance);
        assert_eq!(c.observe(Millis(60_001)), Observe::Look);
    }

    #[test]
    fn credit_bounds_the_long_run_share() {
        let config = CadenceConfig::default();
        let mut c = Cadence::new(config, Millis(0));
        let mut spent_us = 0u64;
        let pass_us = 450_000;
        // A workload that is always news, for ten minutes.
        for now in (0..600_000).step_by(500) {
            let now = Millis(now);
            if c.observe(now) == Observe::Look {
                c.spent(pass_us);
                spent_us += pass_us;
                c.pass_done(now, news(1000, 500, 500));
            } else {
                c.glance_found(now, 10);
            }
        }
        // 50/1000 of 600 s is 30 s, and the burst of 3 s, and one pass over.
        assert!(
            spent_us <= 30_000_000 + 3_000_000 + 2 * pass_us,
            "{spent_us}"
        );
        assert!(spent_us >= 28_000_000, "{spent_us}");
    }
}
