//! What must hold at every moment, held against what the world sees.

use memtide_core::units::NodeId;
use std::collections::BTreeMap;

/// An allowance that fills with time: what is used over any stretch of time is at
/// most what the stretch is worth, and what is in hand.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    /// What a millisecond is worth.
    per_ms: u64,
    in_hand: u64,
    left: i64,
    at_ms: u64,
}

impl Allowance {
    pub fn new(per_ms: u64, in_hand: u64) -> Allowance {
        Allowance {
            per_ms,
            in_hand,
            left: in_hand as i64,
            at_ms: 0,
        }
    }

    /// Uses so much at a time; by how much that is too much, if by more than
    /// `slack`.
    pub fn used(&mut self, now_ms: u64, amount: u64, slack: u64) -> Option<u64> {
        let earned = (now_ms - self.at_ms).saturating_mul(self.per_ms) as i64;
        self.at_ms = now_ms;
        self.left = (self.left.saturating_add(earned)).min(self.in_hand as i64) - amount as i64;
        let over = self.left.saturating_add_unsigned(slack);
        (over < 0).then_some(over.unsigned_abs())
    }
}

/// What a run broke.
#[derive(Clone, Debug, Default)]
pub(super) struct Violations(pub Vec<String>);

impl Violations {
    /// The first few say enough.
    pub fn add(&mut self, text: impl FnOnce() -> String) {
        if self.0.len() < 5 {
            self.0.push(text());
        }
    }
}

/// Pages that came to nodes without room, in one turn.
pub(super) type Pressed = BTreeMap<NodeId, u64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_hand_may_be_used_at_once_and_no_more() {
        let mut allowance = Allowance::new(5, 100);
        assert_eq!(allowance.used(0, 100, 0), None);
        assert_eq!(allowance.used(0, 1, 0), Some(1));
        assert_eq!(allowance.used(0, 0, 1), None);
        // 21 ms are worth 105: one was owed, so 104 are there, of which 100 are kept.
        assert_eq!(allowance.used(21, 100, 0), None);
        assert_eq!(allowance.used(21, 3, 0), Some(3));
    }
}
