//! Cutting the bytes of a perf ring into records.
//!
//! Problem. The kernel appends records of varying length to a ring. The bytes
//! that are ready arrive as two slices, because they may wrap around the
//! ring's end, and a single record may straddle that seam.
//!
//! Approach. A record is lent to the caller straight from the ring. Only the
//! one record that straddles the seam is first copied together, into a
//! [`Scratch`] that is allocated once. Records that say that something is
//! missing (lost, throttled) are counted here, so that no caller can overlook
//! them.
//!
//! Record header, 8 bytes: kind `u32`, misc `u16`, size `u16` including the
//! header, all in the machine's byte order. Records are padded to 8 bytes.
//!
//! Properties. Total: arbitrary bytes never panic and never loop. A size below
//! 8 or beyond the end leaves no way to find the next record; the rest is
//! dropped and counted as malformed. (Kernel interface: `perf_event_open(2)`,
//! "MMAP layout".)

use perf_event_open_sys::bindings;

/// Bytes of a record's header.
const HEADER: usize = 8;

/// Room for the one record of a walk that straddles the ring's end.
#[derive(Debug)]
pub struct Scratch(Vec<u8>);

impl Scratch {
    /// Room for the largest record that a 16-bit size can express.
    pub fn new() -> Scratch {
        Scratch(vec![0; usize::from(u16::MAX) + 1])
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

/// One record, without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// `PERF_RECORD_*`.
    pub kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// What follows the header.
    pub body: &'a [u8],
}

impl Record<'_> {
    /// Whether this is a sample.
    pub fn is_sample(&self) -> bool {
        self.kind == bindings::PERF_RECORD_SAMPLE
    }
}

/// What a walk saw. Walks add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Whole records, of any kind.
    pub records: u64,
    /// Those of them that are samples.
    pub samples: u64,
    /// Records that the kernel dropped because the ring was full, by its own count.
    pub lost: u64,
    /// How often the kernel throttled the event.
    pub throttled: u64,
    /// Bytes that did not parse and were dropped.
    pub malformed_bytes: u64,
}

impl Walk {
    /// One more record, and what it says is missing.
    pub(crate) fn count(&mut self, record: &Record<'_>) {
        self.records += 1;
        let number = |at| u64_at(record.body, at).unwrap_or(0);
        match record.kind {
            bindings::PERF_RECORD_SAMPLE => self.samples += 1,
            // id, lost
            bindings::PERF_RECORD_LOST => self.lost = self.lost.saturating_add(number(8)),
            bindings::PERF_RECORD_LOST_SAMPLES => {
                self.lost = self.lost.saturating_add(number(0));
            }
            bindings::PERF_RECORD_THROTTLE => self.throttled += 1,
            _ => {}
        }
    }
}

impl std::ops::AddAssign for Walk {
    fn add_assign(&mut self, other: Walk) {
        self.records += other.records;
        self.samples += other.samples;
        self.lost = self.lost.saturating_add(other.lost);
        self.throttled += other.throttled;
        self.malformed_bytes += other.malformed_bytes;
    }
}

/// Hands every record of `older` followed by `newer` to `each`, in order.
pub fn walk(
    older: &[u8],
    newer: &[u8],
    scratch: &mut Scratch,
    mut each: impl FnMut(Record<'_>),
) -> Walk {
    let total = older.len() + newer.len();
    let mut seen = Walk::default();
    let mut at = 0;
    while at < total {
        let mut header = [0; HEADER];
        if total - at < HEADER {
            seen.malformed_bytes += (total - at) as u64;
            break;
        }
        copy(older, newer, at, &mut header);
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let misc = u16::from_ne_bytes([header[4], header[5]]);
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        if size < HEADER || size > total - at {
            seen.malformed_bytes += (total - at) as u64;
            break;
        }
        let (start, end) = (at + HEADER, at + size);
        let body = if end <= older.len() {
            &older[start..end]
        } else if start >= older.len() {
            &newer[start - older.len()..end - older.len()]
        } else {
            let joined = &mut scratch.0[..end - start];
            copy(older, newer, start, joined);
            joined
        };
        let record = Record { kind, misc, body };
        seen.count(&record);
        each(record);
        at = end;
    }
    seen
}

/// Fills `out` from `older` followed by `newer`, starting at `at`. The caller
/// has checked that there is enough.
fn copy(older: &[u8], newer: &[u8], at: usize, out: &mut [u8]) {
    let first = older.get(at..).unwrap_or(&[]);
    let cut = first.len().min(out.len());
    out[..cut].copy_from_slice(&first[..cut]);
    let rest = out.len() - cut;
    let from = (at + cut) - older.len().min(at + cut);
    if rest > 0 {
        out[cut..].copy_from_slice(&newer[from..from + rest]);
    }
}

/// The 64-bit value at byte `at`, or `None` if it does not fit.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(field.try_into().ok()?))
}

/// The 32-bit value at byte `at`, or `None` if it does not fit.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(7u16.to_ne_bytes());
        bytes.extend((8 + body.len() as u16).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn collect(older: &[u8], newer: &[u8]) -> (Vec<(u32, Vec<u8>)>, Walk) {
        let mut out = Vec::new();
        let seen = walk(older, newer, &mut Scratch::new(), |r| {
            assert_eq!(r.misc, 7);
            out.push((r.kind, r.body.to_vec()));
        });
        (out, seen)
    }

    #[test]
    fn a_seam_anywhere_changes_nothing() {
        let mut bytes = record(9, &[1; 16]);
        bytes.extend(record(3, &[]));
        bytes.extend(record(9, &[2; 24]));
        let whole = collect(&bytes, &[]);
        assert_eq!(whole.0, [(9, vec![1; 16]), (3, vec![]), (9, vec![2; 24])]);
        assert_eq!(
            whole.1,
            Walk {
                records: 3,
                samples: 2,
                ..Walk::default()
            }
        );
        for seam in 0..=bytes.len() {
            assert_eq!(
                collect(&bytes[..seam], &bytes[seam..]),
                whole,
                "seam at {seam}"
            );
        }
    }

    #[test]
    fn losses_and_throttling_are_counted_and_still_handed_on() {
        let mut lost = 5u64.to_ne_bytes().to_vec();
        lost.extend(40u64.to_ne_bytes());
        let mut bytes = record(bindings::PERF_RECORD_LOST, &lost);
        bytes.extend(record(
            bindings::PERF_RECORD_LOST_SAMPLES,
            &2u64.to_ne_bytes(),
        ));
        bytes.extend(record(bindings::PERF_RECORD_THROTTLE, &[0; 24]));
        bytes.extend(record(bindings::PERF_RECORD_UNTHROTTLE, &[0; 24]));
        let (records, seen) = collect(&bytes, &[]);
        assert_eq!(records.len(), 4);
        assert_eq!(
            seen,
            Walk {
                records: 4,
                samples: 0,
                lost: 42,
                throttled: 1,
                malformed_bytes: 0
            }
        );
    }

    #[test]
    fn what_cannot_be_a_record_ends_the_walk_and_is_counted() {
        // size 0 would never advance
        let mut bytes = record(9, &[1; 8]);
        bytes.extend([0; 32]);
        assert_eq!(
            collect(&bytes, &[]).1,
            Walk {
                records: 1,
                samples: 1,
                malformed_bytes: 32,
                ..Walk::default()
            }
        );
        // a record that claims 24 bytes of which 20 are there
        let short = record(9, &[1; 16]);
        assert_eq!(
            collect(&short[..20], &[]).1,
            Walk {
                malformed_bytes: 20,
                ..Walk::default()
            }
        );
        // not even a header
        assert_eq!(
            collect(&[1, 2], &[3]).1,
            Walk {
                malformed_bytes: 3,
                ..Walk::default()
            }
        );
    }

    #[test]
    fn a_lost_record_too_short_for_its_count_counts_nothing() {
        let (_, seen) = collect(&record(bindings::PERF_RECORD_LOST, &[1; 8]), &[]);
        assert_eq!(
            seen,
            Walk {
                records: 1,
                ..Walk::default()
            }
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_to_the_end(
            older in proptest::collection::vec(any::<u8>(), 0..200),
            newer in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = 0u64;
            let seen = walk(&older, &newer, &mut Scratch::new(), |r| bytes += 8 + r.body.len() as u64);
            prop_assert_eq!(bytes + seen.malformed_bytes, (older.len() + newer.len()) as u64);
        }

        #[test]
        fn records_survive_any_seam(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..10),
            seam in any::<prop::sample::Index>(),
        ) {
            let bytes: Vec<u8> = bodies.iter().flat_map(|b| record(9, b)).collect();
            let seam = seam.index(bytes.len() + 1);
            let (records, _) = collect(&bytes[..seam], &bytes[seam..]);
            prop_assert_eq!(records.into_iter().map(|r| r.1).collect::<Vec<_>>(), bodies);
        }
    }
}
