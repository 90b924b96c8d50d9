//! What samples say about a block.
//!
//! A glance touches one random page of a block in each pass. *Hits* are passes
//! in which it was in use, *misses* are the others. Of a block all of whose
//! pages are in steady use nearly every sample is a hit; of one that is half
//! hot, every second one.
//!
//! A miss weighs four hits: it is `ln(0.05/0.5) = -2.3` for a block that is hot
//! throughout against one that is half hot, a hit `ln(0.95/0.5) = 0.64`. Six
//! hits above that make it 47 times as likely that the block is hot throughout.
//! Ranges are larger than blocks, so what neighbours without a miss say counts,
//! too, up to three hits of each; two hits must be the block's own.

/// Hits and misses of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passes in which the sampled page was touched.
    pub hits: u8,
    /// Passes in which it was not.
    pub misses: u8,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of it is hot, as far as samples can tell.
    Hot,
    /// Some of it is: which pages only a look can say.
    Mixed,
    /// Nothing is, or next to nothing.
    Barren,
    /// More samples are needed.
    Open,
}

/// Hits in excess that make a block hot.
const HOT: i32 = 6;
/// From this score on downwards a block that is in use is hot in part only. Two misses
/// among few hits are not enough: a processor may have kept translations, or the
/// program none. More samples are cheap, and a look costs as much as hundreds.
const MIXED: i32 = -8;
/// The most hits that a neighbour vouches for.
const VOUCH: i32 = 3;

/// What `own` samples say, with those of both neighbours; a neighbour that was
/// found hot has [`Tally::FOUND`].
pub fn judge(own: Tally, left: Tally, right: Tally) -> Verdict {
    let (hits, misses) = (i32::from(own.hits), i32::from(own.misses));
    let score = hits - 4 * misses;
    let vouch = |t: Tally| {
        if t.misses == 0 {
            i32::from(t.hits).min(VOUCH)
        } else {
            0
        }
    };
    let pooled = score + vouch(left) + vouch(right);
    if hits >= 2 && score >= 1 && pooled >= HOT {
        Verdict::Hot
    } else if (hits == 0 && misses >= 2) || (hits == 1 && misses >= 6) {
        Verdict::Barren
    } else if hits >= 2 && score <= MIXED {
        Verdict::Mixed
    } else {
        Verdict::Open
    }
}

impl Tally {
    /// What a block found hot before says as a neighbour.
    pub const FOUND: Tally = Tally { hits: 3, misses: 0 };

    /// Adds one sample.
    pub fn add(&mut self, hit: bool) {
        let count = if hit {
            &mut self.hits
        } else {
            &mut self.misses
        };
        *count = count.saturating_add(1);
    }

    /// Hits by samples, in 256ths.
    pub fn share(self) -> u32 {
        u32::from(self.hits) * 256 / (u32::from(self.hits) + u32::from(self.misses)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(hits: u8, misses: u8) -> Tally {
        Tally { hits, misses }
    }

    #[test]
    fn alone_it_takes_six_hits_or_ten_with_a_miss() {
        let none = t(0, 0);
        assert_eq!(judge(t(5, 0), none, none), Verdict::Open);
        assert_eq!(judge(t(6, 0), none, none), Verdict::Hot);
        assert_eq!(judge(t(9, 1), none, none), Verdict::Open);
        assert_eq!(judge(t(10, 1), none, none), Verdict::Hot);
    }

    #[test]
    fn in_company_two_of_its_own_are_enough() {
        assert_eq!(judge(t(2, 0), t(2, 0), t(2, 0)), Verdict::Hot);
        assert_eq!(judge(t(2, 0), t(2, 0), t(9, 1)), Verdict::Open);
        assert_eq!(judge(t(1, 0), Tally::FOUND, Tally::FOUND), Verdict::Open);
        assert_eq!(judge(t(3, 0), Tally::FOUND, t(0, 4)), Verdict::Hot);
        // 5 - 4 + 3 + 3 = 7.
        assert_eq!(judge(t(5, 1), Tally::FOUND, Tally::FOUND), Verdict::Hot);
    }

    #[test]
    fn some_hot_pages_want_a_look_and_one_touch_wants_nothing() {
        let none = t(0, 0);
        // 2 - 8 = -6 is not enough, 4 - 12 = -8 is.
        assert_eq!(judge(t(2, 2), none, none), Verdict::Open);
        assert_eq!(judge(t(4, 3), none, none), Verdict::Mixed);
        assert_eq!(judge(t(1, 5), none, none), Verdict::Open);
        assert_eq!(judge(t(1, 6), none, none), Verdict::Barren);
        assert_eq!(judge(t(0, 2), Tally::FOUND, none), Verdict::Barren);
    }

    /// The promise behind "47 times": of blocks half of whose pages are hot,
    /// hardly any is taken for hot throughout, and of hot ones hardly any is
    /// not. All sequences of samples, with their probabilities.
    #[test]
    fn half_hot_is_rarely_taken_for_hot() {
        fn walk(own: Tally, hit: f64, hot: &mut f64, chance: f64) {
            if chance < 1e-9 {
                return;
            }
            match judge(own, Tally::default(), Tally::default()) {
                Verdict::Hot => *hot += chance,
                Verdict::Open => {
                    for (is_hit, p) in [(true, hit), (false, 1.0 - hit)] {
                        let mut next = own;
                        next.add(is_hit);
                        walk(next, hit, hot, chance * p);
                    }
                }
                Verdict::Mixed | Verdict::Barren => {}
            }
        }
        let chance = |hit| {
            let mut hot = 0.0;
            walk(Tally::default(), hit, &mut hot, 1.0);
            hot
        };
        assert!(chance(0.5) < 0.03, "{}", chance(0.5));
        assert!(chance(1.0 / 64.0) < 1e-9);
        assert!(chance(0.97) > 0.93, "{}", chance(0.97));
    }
}
