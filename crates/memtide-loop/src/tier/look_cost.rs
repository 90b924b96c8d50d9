//! What a look at every page costs on this machine now, and so what a pass over all of them would.

/// What a look at one part in so many of the pages costs says what all of them would.
const TELLING_PART: u64 = 4;

/// What a look costs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LookCost {
    /// So many pages are looked at.
    pages: u64,
    /// Until now, in us of processor time; and until the last complete pass.
    pub us: u64,
    until_pass_us: u64,
    passes: u32,
}

impl LookCost {
    /// One at so many pages begins.
    pub fn over(pages: u64) -> LookCost {
        LookCost {
            pages,
            ..LookCost::default()
        }
    }

    /// A pass is complete.
    pub fn pass_done(&mut self) {
        (self.passes, self.until_pass_us) = (self.passes + 1, self.us);
    }

    /// What a pass over `pages` costs, in us; if none is complete, what it costs at least. Nothing where too few
    /// were looked at to tell.
    pub fn of(&self, pages: u64) -> f64 {
        if self.pages.saturating_mul(TELLING_PART) < pages.max(1) {
            return 0.0;
        }
        let us = match self.passes {
            0 => self.us as f64,
            passes => self.until_pass_us as f64 / f64::from(passes),
        };
        us * pages as f64 / self.pages as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_that_ended_tell_what_one_costs_and_before_that_what_it_costs_at_least() {
        let mut cost = LookCost::over(1_000);
        cost.us = 300;
        assert_eq!(cost.of(1_000), 300.0);
        cost.us = 800;
        cost.pass_done();
        cost.us = 1_200;
        assert_eq!(cost.of(2_000), 1_600.0);
        cost.us = 1_500;
        // Two were told of at once.
        cost.pass_done();
        cost.pass_done();
        assert_eq!(cost.of(2_000), 1_000.0);
    }

    #[test]
    fn a_look_at_little_tells_nothing() {
        assert_eq!(LookCost::default().of(0), 0.0);
        let mut cost = LookCost::over(1_000);
        cost.us = 300;
        assert_eq!((cost.of(4_000), cost.of(4_001)), (1_200.0, 0.0));
    }
}
