//! How often which pages are accessed, and drawing accessed bits from that.

use super::MS;
use crate::rng::Rng;

/// Above this all pages count as accessed.
const CERTAIN: f64 = 1.0 - 1e-9;

/// Pages that are accessed at random, all equally often: of each `every` pages
/// from `first` on, the first `run`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heat {
    /// Where in the area it begins.
    pub first: u64,
    /// How far it reaches.
    pub pages: u64,
    /// Pages of a piece.
    pub run: u64,
    /// Pages from one piece's first to the next one's.
    pub every: u64,
    /// Accesses a second, of each.
    pub per_s: f64,
    /// From when.
    pub from_ms: u64,
    /// Until when, if it ends.
    pub until_ms: Option<u64>,
}

impl Heat {
    /// A range, for good.
    #[must_use]
    pub fn range(first: u64, pages: u64, per_s: f64) -> Heat {
        Heat {
            first,
            pages,
            run: pages.max(1),
            every: pages.max(1),
            per_s,
            from_ms: 0,
            until_ms: None,
        }
    }

    /// Pieces of `run` pages, one in `every`, for good.
    #[must_use]
    pub fn pieces(pages: u64, run: u64, every: u64, per_s: f64) -> Heat {
        Heat {
            run,
            every,
            ..Heat::range(0, pages, per_s)
        }
    }

    /// How long it was on within `from_ns..to_ns`.
    pub(super) fn seconds(&self, from_ns: u64, to_ns: u64) -> f64 {
        let from_ns = from_ns.max(self.from_ms * MS);
        let to_ns = to_ns.min(self.until_ms.map_or(u64::MAX, |ms| ms * MS));
        to_ns.saturating_sub(from_ns) as f64 * 1e-9
    }

    /// Its pages before `page` of the area.
    pub(super) fn before(&self, page: u64) -> u64 {
        let at = page.clamp(self.first, self.first + self.pages) - self.first;
        at / self.every * self.run + (at % self.every).min(self.run)
    }

    /// The `n`th of its pages.
    pub(super) fn nth(&self, n: u64) -> u64 {
        self.first + n / self.run * self.every + n % self.run
    }

    /// Draws which of its pages in `from..to` of its area were accessed in
    /// `seconds`; adds runs in order.
    pub(super) fn draw(
        &self,
        rng: &mut Rng,
        from: u64,
        to: u64,
        seconds: f64,
        runs: &mut Vec<(u64, u64)>,
    ) {
        let chance = -(-self.per_s * seconds).exp_m1();
        let (mut n, end) = (self.before(from), self.before(to));
        if chance >= CERTAIN {
            while n < end {
                let piece = (self.run - n % self.run).min(end - n);
                runs.push((self.nth(n), piece));
                n += piece;
            }
            return;
        }
        if chance <= 0.0 {
            return;
        }
        // How many pages are passed over before the next that was accessed.
        let rate = (-chance).ln_1p();
        loop {
            let drawn = ((rng.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64);
            let skip = drawn.ln() / rate;
            if skip >= (end - n) as f64 {
                return;
            }
            n += skip as u64;
            if n >= end {
                return;
            }
            runs.push((self.nth(n), 1));
            n += 1;
        }
    }
}

/// Sorts runs and joins those that overlap or touch.
pub(super) fn join(runs: &mut Vec<(u64, u64)>) {
    runs.sort_unstable();
    runs.dedup_by(|next, last| {
        let touch = next.0 <= last.0 + last.1;
        if touch {
            last.1 = last.1.max(next.0 + next.1 - last.0);
        }
        touch
    });
}
