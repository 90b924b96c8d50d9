//! The store's settings, checked once.

use serde::{Deserialize, Serialize};

/// How a page's record is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One byte a page: frequency to 3, time in buckets of 128 ms, no node.
    Compact,
    /// Four bytes a page: frequency to 7, time in milliseconds, accessing node.
    Precise,
}

impl Layout {
    /// The largest threshold, which is the largest frequency it can hold.
    pub const fn max_threshold(self) -> u8 {
        match self {
            Layout::Compact => 3,
            Layout::Precise => 7,
        }
    }

    /// The longest window in milliseconds: the oldest age that it can tell.
    pub const fn max_window_ms(self) -> u32 {
        match self {
            Layout::Compact => 31 * 128,
            Layout::Precise => 16383,
        }
    }

    /// The unit of a record's time, in milliseconds.
    pub const fn time_unit_ms(self) -> u32 {
        match self {
            Layout::Compact => 128,
            Layout::Precise => 1,
        }
    }

    /// Bytes of one record.
    pub const fn record_bytes(self) -> usize {
        match self {
            Layout::Compact => 1,
            Layout::Precise => 4,
        }
    }
}

/// The shortest window in milliseconds.
pub const MIN_WINDOW_MS: u32 = 1000;

/// Settings that fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Config {
    layout: Layout,
    threshold: u8,
    window_ms: u32,
    reorder_ms: u32,
}

/// What is wrong with a store's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A threshold that the frequency can never reach, or zero.
    #[error("threshold {threshold}: {layout:?} records count 1 to {max}; choose one of these")]
    Threshold {
        /// As given.
        threshold: u8,
        /// For which layout.
        layout: Layout,
        /// Its limit.
        max: u8,
    },
    /// A window that the time bits cannot tell, or too short.
    #[error(
        "window {window_ms} ms: {layout:?} records can tell 1000 to {max} ms; choose from these"
    )]
    Window {
        /// As given.
        window_ms: u32,
        /// For which layout.
        layout: Layout,
        /// Its limit.
        max: u32,
    },
    /// No room in the time range for late reports.
    #[error(
        "reordering {reorder_ms} ms: with a window of {window_ms} ms {layout:?} records have room \
         for {max} ms; shorten either"
    )]
    Reorder {
        /// As given.
        reorder_ms: u32,
        /// The window.
        window_ms: u32,
        /// For which layout.
        layout: Layout,
        /// What is left.
        max: u32,
    },
}

impl Config {
    /// The series' defaults: threshold 2; a window of 3 s compact, 5 s precise.
    pub const fn new(layout: Layout) -> Config {
        Config {
            layout,
            threshold: 2,
            window_ms: match layout {
                Layout::Compact => 3000,
                Layout::Precise => 5000,
            },
            reorder_ms: 0,
        }
    }

    /// How many accesses make a page hot. Sources that see a page less than twice
    /// in a window need 1: hint faults at the usual scan rates do.
    pub fn with_threshold(self, threshold: u8) -> Result<Config, ConfigError> {
        let (layout, max) = (self.layout, self.layout.max_threshold());
        if (1..=max).contains(&threshold) {
            Ok(Config { threshold, ..self })
        } else {
            Err(ConfigError::Threshold {
                threshold,
                layout,
                max,
            })
        }
    }

    /// The longest pause between two accesses that count together, in ms.
    pub fn with_window_ms(self, window_ms: u32) -> Result<Config, ConfigError> {
        let (layout, max) = (self.layout, self.layout.max_window_ms());
        if (MIN_WINDOW_MS..=max).contains(&window_ms) {
            Config { window_ms, ..self }.with_reorder_ms(self.reorder_ms)
        } else {
            Err(ConfigError::Window {
                window_ms,
                layout,
                max,
            })
        }
    }

    /// How far behind the record's time a report may come and still count as
    /// now, in ms. Zero, as in the kernel, lets a report that is one tick late
    /// look like one from a whole time range ago, and the count starts over.
    /// Samples from several CPUs need some tens of milliseconds here.
    pub fn with_reorder_ms(self, reorder_ms: u32) -> Result<Config, ConfigError> {
        let (layout, window_ms) = (self.layout, self.window_ms);
        let unit = layout.time_unit_ms();
        let max = layout.max_window_ms() - window_ms / unit * unit;
        if reorder_ms <= max {
            Ok(Config { reorder_ms, ..self })
        } else {
            Err(ConfigError::Reorder {
                reorder_ms,
                window_ms,
                layout,
                max,
            })
        }
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Accesses that make a page hot.
    pub fn threshold(&self) -> u8 {
        self.threshold
    }

    /// The window in milliseconds.
    pub fn window_ms(&self) -> u32 {
        self.window_ms
    }

    /// How late a report may come, in milliseconds.
    pub fn reorder_ms(&self) -> u32 {
        self.reorder_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_record_cannot_tell_is_refused() {
        let compact = Config::new(Layout::Compact);
        let precise = Config::new(Layout::Precise);
        assert!(compact.with_threshold(3).is_ok());
        assert!(compact.with_threshold(4).is_err());
        assert!(precise.with_threshold(7).is_ok());
        assert!(precise.with_threshold(8).is_err());
        assert!(precise.with_threshold(0).is_err());
        assert!(compact.with_window_ms(3968).is_ok());
        assert!(compact.with_window_ms(3969).is_err());
        assert!(precise.with_window_ms(16383).is_ok());
        assert!(precise.with_window_ms(16384).is_err());
        assert!(precise.with_window_ms(999).is_err());
    }

    #[test]
    fn window_and_reordering_share_the_time_range() {
        // 16383 - 5000 = 11383 ms are left.
        let precise = Config::new(Layout::Precise);
        let late = precise.with_reorder_ms(11383).unwrap();
        assert!(precise.with_reorder_ms(11384).is_err());
        assert!(late.with_window_ms(5001).is_err());
        // Compact ages are whole buckets: 3000 ms are 23 of them, and 31 - 23 = 8
        // buckets are 1024 ms.
        let compact = Config::new(Layout::Compact);
        assert!(compact.with_reorder_ms(1024).is_ok());
        assert!(compact.with_reorder_ms(1025).is_err());
        let message = precise.with_reorder_ms(11384).unwrap_err().to_string();
        assert!(message.contains("11383 ms"), "{message}");
    }
}
