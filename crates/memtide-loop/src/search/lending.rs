//! The look, lent to somebody who observes other memory than the search does, at the search's cost.
//!
//! A source has one look. Who borrows it tells the source what to observe, in two passes. The search
//! begins no look until these are over, and ends what goes on after them as it ends its own.

use super::look::Stage;
use super::{Search, View};
use memtide_core::units::Millis;

/// What a look may be that is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// The most pages of each of its two passes.
    pub pages: u64,
    /// For how many a second of what observing may cost pays.
    pub per_second: u64,
    /// How long a pass should be: as the search's own are now.
    pub interval_ms: u64,
}

impl Search {
    /// What can be lent now: nothing while a look is under way or cannot be paid for.
    pub fn lends(&self) -> Option<Lent> {
        let free = self.look.stage == Stage::Resting && self.costs.known();
        let affords = self.purse.all() as f64 - self.costs.tell(1);
        let pays_for = |us: f64| (us.max(0.0) / (2.0 * self.costs.look(1))) as u64;
        let in_time = self.costs.within(View::Look, self.longest_ms());
        let most = |us: f64| pays_for(us).min(self.config.look_pages).min(in_time);
        let pages = most(affords);
        let lends = free && pages >= self.blocks.block_pages();
        lends.then(|| Lent {
            pages,
            per_second: most(self.purse.rate_of_all() as f64),
            interval_ms: self.own_interval_ms(),
        })
    }

    /// The source was told of `spans` with `pages` pages in all by the one who borrows.
    pub fn lend(&mut self, spans: u64, pages: u64, interval_ms: u64, now: Millis) {
        self.charge_for_telling(View::Look, spans);
        self.look.lend(pages, interval_ms, now);
    }

    /// The borrower's look found `pages` hot pages: looks are worth so much.
    pub fn borrower_found(&mut self, pages: u64) {
        self.yields[View::Look as usize].pages += pages as f64;
        self.look.found(pages > 0);
    }

    /// Whether the two passes of the borrower are not over.
    pub fn is_lent(&self) -> bool {
        matches!(self.look.stage, Stage::Lent { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Memory, Order, Plan};
    use super::*;
    use memtide_core::tiering::sample::Run;
    use memtide_core::tiering::space::{OwnerId, VirtualPage};

    /// A search over 64 MiB that knows what a page costs.
    fn search() -> Search {
        let mut search = Search::new(Config::default(), Millis(0));
        search.costs.expect(100_000.0);
        search.costs.used(100_000.0, 0.0);
        let run = Run {
            first: VirtualPage(0),
            pages: 16_384,
        };
        search.set_memory(OwnerId(1), &[Memory { run, object: None }]);
        search
    }

    #[test]
    fn a_look_is_lent_for_two_passes_and_the_search_begins_none() {
        let mut search = search();
        let lent = search.lends().unwrap();
        // 5 s of a twentieth of a processor, at a microsecond a page and pass.
        assert!((100_000..=125_000).contains(&lent.pages), "{lent:?}");
        assert_eq!(lent.per_second, 25_000);
        search.lend(4, 1_000, 50, Millis(0));
        assert!(search.is_lent() && search.lends().is_none());
        for ms in [10, 60] {
            assert_eq!(search.plan(Millis(ms)).look, Order::Keep);
            assert!(search.is_lent());
            search.pass_done(View::Look, Millis(ms + 41));
        }
        assert!(!search.is_lent());
        let tell_us = search.costs.tell(4);
        let look = View::Look as usize;
        assert_eq!(
            [search.charged[0][look], search.charged[1][look]],
            [2_000.0, tell_us]
        );
        // The source goes on until it is told of the search's own look.
        let Plan { look, .. } = search.plan(Millis(102));
        assert!(matches!(look, Order::Begin(_)), "{look:?}");
        assert!(search.lends().is_none());
    }

    #[test]
    fn a_borrower_says_when_its_last_pass_is_nearly_over() {
        let mut search = search();
        search.lend(1, 1_000, 100, Millis(0));
        assert_eq!(search.plan(Millis(95)).look, Order::Keep);
        search.pass_done(View::Look, Millis(102));
        assert_eq!(search.plan(Millis(110)).look, Order::Keep);
        assert_eq!(search.plan(Millis(180)).look, Order::Finish);
    }

    #[test]
    fn what_is_lost_ends_the_loan() {
        let mut search = search();
        search.lend(1, 1_000, 100, Millis(0));
        search.looks_wait(true);
        search.plan(Millis(60_000));
        assert!(!search.is_lent());
    }
}
