//! The tracepoint `damon:damon_aggregated`: what to let through and how to
//! read it.
//!
//! DAMON calls the tracepoint once for each region at the end of each
//! aggregation, in the order of targets and addresses. Two events share one
//! ring: the *access* event lets regions with accesses through and lets the
//! ring fill; the *marker* event lets only the last region of a pass through
//! and wakes the reader. Their filters exclude each other, so each region is
//! recorded once. The filters run inside the kernel, so an untouched region
//! costs no record.

use super::plan::Marker;
use crate::perf::tracepoint::{Field, Tracepoint};
use std::ops::Range;

/// A region as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregated {
    /// The kernel's index of the target.
    pub target: u64,
    /// How many regions the target has.
    pub regions: u64,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Samples in which the region was accessed.
    pub nr_accesses: u32,
    /// Aggregations since the region last changed.
    pub age: u32,
}

/// Where the fields stand on this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    target: Field,
    regions: Field,
    start: Field,
    end: Field,
    nr_accesses: Field,
    age: Field,
}

impl Layout {
    /// The layout of `tracepoint`, or the name of the field that it lacks.
    ///
    /// # Errors
    ///
    /// The missing field's name.
    pub fn of(tracepoint: &Tracepoint) -> Result<Layout, &'static str> {
        let field = |name: &'static str| tracepoint.field(name).ok_or(name);
        Ok(Layout {
            target: field("target_id")?,
            regions: field("nr_regions")?,
            start: field("start")?,
            end: field("end")?,
            nr_accesses: field("nr_accesses")?,
            age: field("age")?,
        })
    }

    /// Reads a payload, or `None` if it is too short.
    pub fn read(&self, payload: &[u8]) -> Option<Aggregated> {
        Some(Aggregated {
            target: self.target.read(payload)?,
            regions: self.regions.read(payload)?,
            start: self.start.read(payload)?,
            end: self.end.read(payload)?,
            nr_accesses: self.nr_accesses.read(payload)? as u32,
            age: self.age.read(payload)? as u32,
        })
    }
}

/// Lets the marker through.
pub fn marker_filter(marker: &Marker) -> String {
    format!("target_id == {} && end == {:#x}", marker.target, marker.end)
}

/// Lets accessed regions within `bounds` through, but not the marker.
pub fn access_filter(marker: &Marker, bounds: Option<&Range<u64>>) -> String {
    let mut filter = format!(
        "nr_accesses > 0 && (target_id != {} || end != {:#x})",
        marker.target, marker.end
    );
    if let Some(bounds) = bounds {
        filter += &format!(
            " && start >= {:#x} && start < {:#x}",
            bounds.start, bounds.end
        );
    }
    filter
}

/// Whether `address` lies in one of the sorted, disjoint `ranges`.
pub fn within(ranges: &[Range<u64>], address: u64) -> bool {
    let after = ranges.partition_point(|range| range.start <= address);
    after > 0 && address < ranges[after - 1].end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracepoint() -> Tracepoint {
        let field = |name: &str, offset, size| (name.to_owned(), Field { offset, size });
        Tracepoint {
            id: 1,
            fields: [
                field("target_id", 8, 8),
                field("nr_regions", 16, 4),
                field("start", 24, 8),
                field("end", 32, 8),
                field("nr_accesses", 40, 4),
                field("age", 44, 4),
            ]
            .into(),
        }
    }

    #[test]
    fn a_payload_is_read_field_by_field() {
        let layout = Layout::of(&tracepoint()).unwrap();
        let mut payload = [0u8; 48];
        for (at, value) in [(8, 1u64), (16, 16_384), (24, 0x1000), (32, 0x2000)] {
            payload[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        payload[40..44].copy_from_slice(&3u32.to_ne_bytes());
        payload[44..].copy_from_slice(&9u32.to_ne_bytes());
        assert_eq!(
            layout.read(&payload),
            Some(Aggregated {
                target: 1,
                regions: 16_384,
                start: 0x1000,
                end: 0x2000,
                nr_accesses: 3,
                age: 9
            })
        );
        assert_eq!(layout.read(&payload[..47]), None);
    }

    #[test]
    fn a_tracepoint_without_a_field_is_refused_by_its_name() {
        let mut lacking = tracepoint();
        lacking.fields.remove("age");
        assert_eq!(Layout::of(&lacking), Err("age"));
    }

    #[test]
    fn the_two_filters_exclude_each_other() {
        let marker = Marker {
            target: 2,
            end: 0x5000,
            fewest: 4,
            most: 4,
        };
        assert_eq!(marker_filter(&marker), "target_id == 2 && end == 0x5000");
        assert_eq!(
            access_filter(&marker, Some(&(0x1000..0x5000))),
            "nr_accesses > 0 && (target_id != 2 || end != 0x5000) && start >= 0x1000 && start < 0x5000"
        );
    }

    #[test]
    fn ends_are_outside() {
        let ranges = [10..20, 30..40];
        let inside: Vec<u64> = (0..50).filter(|&a| within(&ranges, a)).collect();
        assert_eq!(inside, (10..20).chain(30..40).collect::<Vec<_>>());
    }
}
