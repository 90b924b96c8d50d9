//! Who pays for what: each view for its own passes, and for what the source was told for it.
//!
//! Work is charged as it should cost, since what it cost is known later and in one sum. What the sum
//! differs by is then paid by the views whose work it was.

use super::{Search, View};
use memtide_core::units::Millis;

impl Search {
    /// Since the last call passes used `pass_us` microseconds of processor time, and telling
    /// the source `tell_us`, the kernel's side and ours. To be told in each turn, after the
    /// passes that were complete and before the next plan, even if it is nothing: until then
    /// work is charged as it should have cost.
    pub fn spent(&mut self, pass_us: u64, tell_us: u64, now: Millis) {
        // What a pass has used that goes on is paid for when it is complete.
        let fresh = pass_us as f64 + self.held;
        let under_way = self.under_way(now);
        self.held = (under_way[0] + under_way[1]).min(fresh);
        let fresh = fresh - self.held;
        let [passes, tells] = std::mem::take(&mut self.charged);
        // Planning between two tells is paid for, and says nothing of what telling costs.
        let is_told = tells[0] + tells[1] > 0.0;
        self.costs
            .used(fresh, if is_told { tell_us as f64 } else { 0.0 });
        // Each view has paid what its work should have cost, and pays what that was wrong by; of passes
        // those that go on may be the dear ones.
        let works = [passes[0] + under_way[0], passes[1] + under_way[1]];
        for (us, charged, works) in [(fresh, passes, works), (tell_us as f64, tells, tells)] {
            let all = works[0] + works[1];
            let glance = match all > 0.0 {
                true => works[View::Glance as usize] / all,
                false => self.purse.share_of(View::Glance) as f64 / 1000.0,
            };
            let wrong = us - charged[0] - charged[1];
            self.purse.spend(View::Glance, (wrong * glance) as i64);
            self.purse
                .spend(View::Look, (wrong - wrong * glance) as i64);
        }
    }

    /// What the passes that go on may have used by `now`, in microseconds, by view. A pass goes over all
    /// of its pages before its interval and once more after it.
    fn under_way(&self, now: Millis) -> [f64; 2] {
        let used = |all_us: f64, since_ms: u64, interval_ms: u64| {
            let since_us = since_ms as f64 * 1000.0;
            let slept_us = since_us - all_us / 2.0;
            let walks = if slept_us > interval_ms as f64 * 1000.0 {
                1.0
            } else {
                0.5
            };
            (all_us * walks).min(since_us)
        };
        let look = match self.look.under_way_since(now) {
            Some((pages, ms)) => used(self.costs.look(pages), ms, self.look.size().1),
            None => 0.0,
        };
        let glance = match self.glancing.under_way_since(now) {
            Some((pieces, ms)) => used(self.costs.pass(pieces), ms, self.glancing.interval_ms()),
            None => 0.0,
        };
        [look, glance]
    }

    /// A pass of `view` is done that should have cost `us`.
    pub(super) fn charge(&mut self, view: View, us: f64) {
        self.costs.expect(us);
        self.charged[0][view as usize] += us;
        self.pay(view, us);
    }

    /// The source was told of `spans` for `view`.
    pub(super) fn charge_for_telling(&mut self, view: View, spans: u64) {
        self.charge_to_tell(view, self.costs.tell(spans));
    }

    /// It was told of these, too.
    pub(super) fn charge_for_spans(&mut self, view: View, spans: u64) {
        self.charge_to_tell(view, spans as f64 * self.costs.span());
    }

    fn charge_to_tell(&mut self, view: View, us: f64) {
        self.costs.expect_to_tell(us);
        self.charged[1][view as usize] += us;
        self.pay(view, us);
    }

    fn pay(&mut self, view: View, us: f64) {
        self.yields[view as usize].us += us;
        self.purse.spend(view, us as i64);
    }
}
