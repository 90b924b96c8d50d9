//! The device that files are read from.
//!
//! One device serves all: it delivers so many bytes a second, one request after the other, and each
//! request takes its latency besides. Files are read in windows (readahead): who needs a page that is
//! not there waits for the window around it, and the pages behind it in the window come along. A
//! simulated page of a scaled machine may be larger than a window; then it takes several.
//!
//! Times are those of the real machine; what [`Storage::read`] returns is divided by the scale, like all
//! costs that a kernel call returns.

use crate::spec::{MachineSpec, StorageSpec};

/// Bytes of a page.
const PAGE_BYTES: f64 = 4096.0;

/// A storage device, or none.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    spec: Option<StorageSpec>,
    /// When it has delivered all that was asked for.
    idle_at_ns: f64,
}

impl Storage {
    pub(super) fn new(spec: &MachineSpec) -> Storage {
        Storage {
            spec: spec.storage,
            idle_at_ns: 0.0,
        }
    }

    /// Whether there is one.
    pub(super) fn exists(&self) -> bool {
        self.spec.is_some()
    }

    /// Pages of the real machine that are read at once.
    pub(super) fn readahead_pages(&self) -> u32 {
        self.spec
            .map_or(0, |spec| (spec.readahead_bytes / 4096) as u32)
    }

    /// The measured time begins.
    pub(super) fn reset(&mut self) {
        self.idle_at_ns = 0.0;
    }

    /// Reads `pages` simulated pages at `now_ns`; what the reader waits, divided by the scale.
    pub(super) fn read(&mut self, now_ns: u64, pages: u64, scale: u32) -> u64 {
        let Some(spec) = self.spec else { return 0 };
        let (now_ns, scale) = (now_ns as f64, f64::from(scale));
        let bytes = pages as f64 * scale * PAGE_BYTES;
        let windows = (bytes / spec.readahead_bytes.max(4096) as f64).ceil();
        let begin_ns = self.idle_at_ns.max(now_ns);
        self.idle_at_ns = begin_ns + bytes / spec.bytes_per_s * 1e9;
        let wait_ns = self.idle_at_ns - now_ns + windows * spec.latency_ns;
        (wait_ns / scale) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Storage {
        Storage {
            spec: Some(StorageSpec {
                latency_ns: 80_000.0,
                bytes_per_s: 4.096e9,
                readahead_bytes: 32 * 4096,
            }),
            idle_at_ns: 0.0,
        }
    }

    #[test]
    fn readers_wait_for_each_other_and_for_their_own_windows() {
        let mut device = device();
        // 32 pages are one window: 32 us at 1 us a page, and 80 us.
        assert_eq!(device.read(1000, 32, 1), 32_000 + 80_000);
        // Who comes 1 us later waits for the first one's pages too.
        assert_eq!(device.read(2000, 32, 1), 31_000 + 32_000 + 80_000);
        // Idle again.
        assert_eq!(device.read(1_000_000, 1, 1), 1_000 + 80_000);
    }

    #[test]
    fn a_page_that_stands_for_64_takes_two_windows() {
        // 64 us and twice 80 us, a 64th of which is the cost of one page.
        assert_eq!(device().read(0, 1, 64), (64_000 + 160_000) / 64);
    }

    #[test]
    fn without_a_device_nobody_waits() {
        let mut none = Storage {
            spec: None,
            idle_at_ns: 0.0,
        };
        assert_eq!(none.read(5, 100, 64), 0);
        assert!(!none.exists());
    }
}
