//! What the budget buys.

use super::{Search, View};
use std::fmt;

/// How soon what is hot is found on this machine, with what is known of its
/// costs now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// The part of one CPU that may be used, in thousandths.
    pub permille: u32,
    /// Pages to be searched.
    pub pages: u64,
    /// What a page costs in a pass, in microseconds of CPU time.
    pub page_us: f64,
    /// Seconds until every page was looked at, its first time.
    pub cover_s: f64,
    /// Seconds until two passes over every page are paid for: nobody who must
    /// see each page twice is faster.
    pub bound_s: f64,
    /// The smallest range, in pages, that is found sooner than that.
    pub range_pages: u64,
    /// Seconds until such a range is found.
    pub range_s: f64,
}

/// What a second pass over what was touched adds to the first, at most, if most
/// pages are cold.
const SECOND: f64 = 1.25;
/// Passes from the first touch of a block until it is found.
const PASSES: f64 = 10.0;

impl Search {
    /// What the budget buys, as far as costs are known.
    pub fn promise(&self) -> Promise {
        let per_s = |view| self.purse.rate(view) as f64;
        let (page, piece) = (self.costs.look(1), self.costs.pass(1));
        let pages = self.blocks.pages() as f64;
        let coarse = self.coarse();
        let both = per_s(View::Look) + per_s(View::Glance);
        // Where there are two sweeps, they take turns, and those with attention.
        let turns = match (self.sees_all(), coarse) {
            (true, _) => 1.0,
            (false, 1) => 2.0,
            (false, _) => 4.0,
        };
        let sweep = self.blocks.in_use() as f64 / f64::from(coarse) * piece * turns;
        let pass_s = self.interval_ms.max(self.costs.longest_pass_ms()) as f64 / 1000.0;
        Promise {
            permille: self.config.permille,
            pages: self.blocks.pages(),
            page_us: page,
            cover_s: pages * page * SECOND / per_s(View::Look),
            bound_s: pages * page * 2.0 / both,
            range_pages: 2 * u64::from(coarse) * self.blocks.block_pages(),
            range_s: sweep / per_s(View::Glance) + PASSES * pass_s,
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Promise {
            permille, pages, ..
        } = *self;
        let percent = f64::from(permille) / 10.0;
        write!(
            f,
            "at {percent} % of a CPU every page of {} is seen within {}; hot ranges larger than {} within {}",
            Size(pages),
            Time(self.cover_s),
            Size(self.range_pages),
            Time(self.range_s)
        )
    }
}

/// Pages of 4 KiB, for people.
pub(crate) struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = self.0 as f64 * 4.0;
        let units = ["KiB", "MiB", "GiB", "TiB"];
        let mut n = 0;
        let mut size = kib;
        while size >= 1024.0 && n + 1 < units.len() {
            size /= 1024.0;
            n += 1;
        }
        let places = usize::from(size < 10.0 && size.fract() >= 0.05);
        write!(f, "{size:.places$} {}", units[n])
    }
}

/// Seconds, for people: rounded up, since it is a promise.
pub(crate) struct Time(pub f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.ceil();
        if seconds < 120.0 {
            write!(f, "{seconds} s")
        } else if seconds < 7200.0 {
            write!(f, "{} min", (seconds / 60.0).ceil())
        } else {
            write!(f, "{} h", (seconds / 3600.0).ceil())
        }
    }
}
