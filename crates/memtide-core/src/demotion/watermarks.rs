//! The marks of free memory between which a node is kept.
//!
//! `min` is for those who cannot wait, below `low` reclaim starts, at `high` it
//! stops. A machine with tiers goes on to `promo`, so that promotions find room:
//!
//! ```text
//! d = max(min / 4, managed * watermark_scale_factor / 10000)
//! low = min + d, high = low + d, promo = high + d
//! ```

use crate::pages::NodeSpace;
use serde::Serialize;

/// The kernel's default `vm.watermark_scale_factor`, in ten-thousandths.
pub const SCALE_FACTOR: u64 = 10;

/// A node's marks in pages: `min <= low <= high <= promo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Watermarks {
    min: u64,
    low: u64,
    high: u64,
    promo: u64,
}

/// Marks out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "watermarks min {min}, low {low}, high {high}, promo {promo}: each must be at least the one before"
)]
pub struct WatermarkError {
    min: u64,
    low: u64,
    high: u64,
    promo: u64,
}

impl Watermarks {
    /// The kernel's marks for a node of `managed` pages whose minimum is `min`.
    pub fn new(min: u64, managed: u64, scale_factor: u64) -> Watermarks {
        let scaled = u128::from(managed) * u128::from(scale_factor) / 10_000;
        let step = (min / 4).max(u64::try_from(scaled).unwrap_or(u64::MAX));
        let low = min.saturating_add(step);
        let high = low.saturating_add(step);
        Watermarks {
            min,
            low,
            high,
            promo: high.saturating_add(step),
        }
    }

    /// Marks as read from `/proc/zoneinfo`. A kernel that does not print `promo`
    /// has it as far above high as high is above low.
    pub fn read(
        min: u64,
        low: u64,
        high: u64,
        promo: Option<u64>,
    ) -> Result<Watermarks, WatermarkError> {
        let promo = promo.unwrap_or_else(|| high.saturating_add(high.saturating_sub(low)));
        if min <= low && low <= high && high <= promo {
            Ok(Watermarks {
                min,
                low,
                high,
                promo,
            })
        } else {
            Err(WatermarkError {
                min,
                low,
                high,
                promo,
            })
        }
    }

    /// Below this only those who cannot wait get memory.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Below this reclaim starts.
    pub fn low(&self) -> u64 {
        self.low
    }

    /// A promotion must leave this much free.
    pub fn high(&self) -> u64 {
        self.high
    }

    /// Tiering keeps this much free.
    pub fn promo(&self) -> u64 {
        self.promo
    }

    /// The node's room with these marks.
    pub fn space(&self, free: u64, present: u64) -> NodeSpace {
        NodeSpace {
            free,
            high: self.high,
            promo: self.promo,
            present,
        }
    }

    /// Whether background demotion should start.
    pub fn is_low(&self, free: u64) -> bool {
        free < self.low
    }

    /// Pages to demote so that `incoming` promoted pages fit and the node still
    /// has its promotion headroom.
    pub fn to_demote(&self, free: u64, incoming: u64) -> u64 {
        self.promo.saturating_add(incoming).saturating_sub(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_is_a_quarter_of_min_or_a_thousandth_of_the_node() {
        // 1 GiB: 262144 * 10 / 10000 = 262 pages; min 11584 / 4 = 2896 is more.
        let small = Watermarks::new(11_584, 262_144, SCALE_FACTOR);
        assert_eq!(
            (small.min(), small.low(), small.high(), small.promo()),
            (11_584, 14_480, 17_376, 20_272)
        );
        // 64 GiB: 16777216 * 10 / 10000 = 16777 pages; 16896 / 4 = 4224 is less.
        let large = Watermarks::new(16_896, 16_777_216, SCALE_FACTOR);
        assert_eq!(large.promo(), 16_896 + 3 * 16_777);
    }

    #[test]
    fn headroom_counts_what_is_about_to_come() {
        let marks = Watermarks::read(10, 20, 30, None).unwrap();
        assert_eq!(marks.promo(), 40);
        assert_eq!(marks.to_demote(40, 0), 0);
        assert_eq!(marks.to_demote(40, 512), 512);
        assert_eq!(marks.to_demote(1000, 512), 0);
        assert!(marks.is_low(19) && !marks.is_low(20));
        // A promotion of 5 needs more than 35 free.
        assert!(!marks.space(35, 100).takes(5));
        assert!(marks.space(36, 100).takes(5));
    }

    #[test]
    fn marks_out_of_order_are_refused() {
        let error = Watermarks::read(10, 9, 30, None).unwrap_err();
        assert!(error.to_string().starts_with("watermarks min 10, low 9,"));
        assert!(Watermarks::read(10, 20, 30, Some(29)).is_err());
    }
}
