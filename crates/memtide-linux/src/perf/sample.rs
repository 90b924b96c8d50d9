//! Cutting a sample record into its fields.
//!
//! A `PERF_RECORD_SAMPLE` holds exactly the fields that the event's
//! `sample_type` asked for, in an order that the kernel fixes and that differs
//! from the order of the bits. Every field here is 8 bytes (some are two
//! 4-byte halves) except the raw payload of a tracepoint and the call chain,
//! which carry their own lengths; a call chain is passed over. Fields of other
//! shapes (branches, registers, stacks) are refused when the layout is built, so that decoding cannot go astray later.
//! (Kernel interface: `perf_event_open(2)`, "PERF_RECORD_SAMPLE".)

use super::ring::{u32_at, u64_at};
use perf_event_open_sys::bindings as b;

/// The fields of `sample_type` that this decoder knows.
const KNOWN: u32 = b::PERF_SAMPLE_IDENTIFIER
    | b::PERF_SAMPLE_IP
    | b::PERF_SAMPLE_TID
    | b::PERF_SAMPLE_TIME
    | b::PERF_SAMPLE_ADDR
    | b::PERF_SAMPLE_ID
    | b::PERF_SAMPLE_STREAM_ID
    | b::PERF_SAMPLE_CPU
    | b::PERF_SAMPLE_PERIOD
    | b::PERF_SAMPLE_CALLCHAIN
    | b::PERF_SAMPLE_RAW
    | b::PERF_SAMPLE_WEIGHT
    | b::PERF_SAMPLE_WEIGHT_STRUCT
    | b::PERF_SAMPLE_DATA_SRC
    | b::PERF_SAMPLE_TRANSACTION
    | b::PERF_SAMPLE_PHYS_ADDR
    | b::PERF_SAMPLE_CGROUP
    | b::PERF_SAMPLE_DATA_PAGE_SIZE
    | b::PERF_SAMPLE_CODE_PAGE_SIZE;

/// A sample type that this decoder does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sample_type {requested:#x}: the fields {unknown:#x} cannot be decoded; ask for others")]
pub struct UnknownFields {
    /// What was asked for.
    pub requested: u64,
    /// The bits of it that are unknown here.
    pub unknown: u64,
}

/// How the samples of one event are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleLayout(u32);

/// The decoded fields. A field that was not asked for is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The instruction pointer.
    pub ip: Option<u64>,
    /// Process and thread, in the reader's pid namespace.
    pub pid_tid: Option<(u32, u32)>,
    /// Nanoseconds on the event's clock.
    pub time: Option<u64>,
    /// The data address.
    pub addr: Option<u64>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// The period after which the sample was taken.
    pub period: Option<u64>,
    /// A tracepoint's payload, or the hardware's own record.
    pub raw: Option<&'a [u8]>,
    /// The weight (a latency in cycles, for hardware memory samples).
    pub weight: Option<u64>,
    /// Where the data came from, as a `perf_mem_data_src`.
    pub data_src: Option<u64>,
    /// The physical address; zero where the kernel could not tell.
    pub phys_addr: Option<u64>,
    /// The data's page size in bytes.
    pub data_page_size: Option<u64>,
}

impl Sample<'_> {
    /// The weight as a number of cycles, `None` if there is none. With
    /// `PERF_SAMPLE_WEIGHT_STRUCT` that is the word's lower half; a plain
    /// weight that large would be an hour of waiting.
    pub fn latency_cycles(&self) -> Option<u32> {
        self.weight.map(|weight| weight as u32).filter(|w| *w != 0)
    }
}

impl SampleLayout {
    /// The layout of samples of an event opened with this `sample_type`.
    ///
    /// # Errors
    ///
    /// [`UnknownFields`] if it asks for a field of a shape unknown here.
    pub fn new(sample_type: u64) -> Result<SampleLayout, UnknownFields> {
        let unknown = sample_type & !u64::from(KNOWN);
        match u32::try_from(sample_type) {
            Ok(bits) if unknown == 0 => Ok(SampleLayout(bits)),
            _ => Err(UnknownFields {
                requested: sample_type,
                unknown,
            }),
        }
    }

    /// The fields of `sample_type` that can be decoded.
    pub fn known() -> u32 {
        KNOWN
    }

    /// The `sample_type` to open the event with.
    pub fn sample_type(self) -> u64 {
        self.0.into()
    }

    /// Decodes a sample record's body, or `None` if it is too short.
    pub fn decode(self, body: &[u8]) -> Option<Sample<'_>> {
        let mut fields = Fields {
            wanted: self.0,
            body,
            at: 0,
        };
        let mut sample = Sample::default();
        fields.next(b::PERF_SAMPLE_IDENTIFIER)?;
        sample.ip = fields.next(b::PERF_SAMPLE_IP)?;
        sample.pid_tid = fields.next_pair(b::PERF_SAMPLE_TID)?;
        sample.time = fields.next(b::PERF_SAMPLE_TIME)?;
        sample.addr = fields.next(b::PERF_SAMPLE_ADDR)?;
        fields.next(b::PERF_SAMPLE_ID)?;
        fields.next(b::PERF_SAMPLE_STREAM_ID)?;
        sample.cpu = fields.next_pair(b::PERF_SAMPLE_CPU)?.map(|(cpu, _)| cpu);
        sample.period = fields.next(b::PERF_SAMPLE_PERIOD)?;
        fields.skip_callchain()?;
        sample.raw = fields.next_raw()?;
        sample.weight = fields.next(b::PERF_SAMPLE_WEIGHT | b::PERF_SAMPLE_WEIGHT_STRUCT)?;
        sample.data_src = fields.next(b::PERF_SAMPLE_DATA_SRC)?;
        fields.next(b::PERF_SAMPLE_TRANSACTION)?;
        sample.phys_addr = fields.next(b::PERF_SAMPLE_PHYS_ADDR)?;
        fields.next(b::PERF_SAMPLE_CGROUP)?;
        sample.data_page_size = fields.next(b::PERF_SAMPLE_DATA_PAGE_SIZE)?;
        fields.next(b::PERF_SAMPLE_CODE_PAGE_SIZE)?;
        Some(sample)
    }
}

/// Walks the fields. The outer `Option` is "there were enough bytes", the
/// inner one "it was asked for".
struct Fields<'a> {
    wanted: u32,
    body: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn next(&mut self, bits: u32) -> Option<Option<u64>> {
        if self.wanted & bits == 0 {
            return Some(None);
        }
        let value = u64_at(self.body, self.at)?;
        self.at += 8;
        Some(Some(value))
    }

    fn next_pair(&mut self, bits: u32) -> Option<Option<(u32, u32)>> {
        if self.wanted & bits == 0 {
            return Some(None);
        }
        let pair = (u32_at(self.body, self.at)?, u32_at(self.body, self.at + 4)?);
        self.at += 8;
        Some(Some(pair))
    }

    /// A count, then as many instruction pointers.
    fn skip_callchain(&mut self) -> Option<()> {
        if let Some(entries) = self.next(b::PERF_SAMPLE_CALLCHAIN)? {
            let bytes = usize::try_from(entries).ok()?.checked_mul(8)?;
            self.at = self
                .at
                .checked_add(bytes)
                .filter(|at| *at <= self.body.len())?;
        }
        Some(())
    }

    fn next_raw(&mut self) -> Option<Option<&'a [u8]>> {
        if self.wanted & b::PERF_SAMPLE_RAW == 0 {
            return Some(None);
        }
        let bytes = u32_at(self.body, self.at)? as usize;
        let start = self.at + 4;
        let raw = self.body.get(start..start.checked_add(bytes)?)?;
        // The kernel sizes the payload so that the next field is aligned.
        self.at = (start + bytes).next_multiple_of(8);
        Some(Some(raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hint_fault_sample_is_forty_bytes() {
        let layout = SampleLayout::new(u64::from(
            b::PERF_SAMPLE_TID
                | b::PERF_SAMPLE_TIME
                | b::PERF_SAMPLE_ADDR
                | b::PERF_SAMPLE_CPU
                | b::PERF_SAMPLE_PHYS_ADDR,
        ))
        .unwrap();
        let mut body = Vec::new();
        body.extend(100u32.to_ne_bytes());
        body.extend(101u32.to_ne_bytes());
        body.extend(5_000u64.to_ne_bytes());
        body.extend(0x7f00_0000_1000u64.to_ne_bytes());
        body.extend(3u32.to_ne_bytes());
        body.extend(0u32.to_ne_bytes());
        body.extend(0x1_2345_6000u64.to_ne_bytes());
        // With the 8 bytes of header these are the 48 bytes a record.
        assert_eq!(body.len(), 40);
        assert_eq!(
            layout.decode(&body),
            Some(Sample {
                pid_tid: Some((100, 101)),
                time: Some(5_000),
                addr: Some(0x7f00_0000_1000),
                cpu: Some(3),
                phys_addr: Some(0x1_2345_6000),
                ..Sample::default()
            })
        );
        assert_eq!(layout.decode(&body[..39]), None);
    }

    #[test]
    fn fields_behind_a_raw_payload_start_at_the_next_multiple_of_eight() {
        let layout =
            SampleLayout::new(u64::from(b::PERF_SAMPLE_RAW | b::PERF_SAMPLE_DATA_SRC)).unwrap();
        // 4 bytes of length + 6 of payload = 10, padded to 16.
        let mut body = 6u32.to_ne_bytes().to_vec();
        body.extend([1, 2, 3, 4, 5, 6]);
        body.extend([0; 6]);
        body.extend(77u64.to_ne_bytes());
        let sample = layout.decode(&body).unwrap();
        assert_eq!(sample.raw, Some(&[1, 2, 3, 4, 5, 6][..]));
        assert_eq!(sample.data_src, Some(77));
    }

    #[test]
    fn a_call_chain_is_passed_over() {
        let layout = SampleLayout::new(u64::from(
            b::PERF_SAMPLE_CALLCHAIN | b::PERF_SAMPLE_DATA_SRC,
        ))
        .unwrap();
        let mut body = Vec::new();
        for word in [2u64, 0x1000, 0x2000, 77] {
            body.extend(word.to_ne_bytes());
        }
        assert_eq!(layout.decode(&body).unwrap().data_src, Some(77));
        // It claims more entries than there are bytes, at last more than any record.
        for entries in [4u64, u64::MAX, u64::MAX / 8] {
            body[..8].copy_from_slice(&entries.to_ne_bytes());
            assert_eq!(layout.decode(&body), None);
        }
    }

    #[test]
    fn a_field_of_another_shape_is_refused() {
        let asked = u64::from(b::PERF_SAMPLE_BRANCH_STACK | b::PERF_SAMPLE_TID);
        let refused = SampleLayout::new(asked).unwrap_err();
        assert_eq!(refused.unknown, u64::from(b::PERF_SAMPLE_BRANCH_STACK));
        assert!(SampleLayout::new(1 << 40).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_do_not(
            bits in any::<u32>(),
            body in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let layout = SampleLayout::new(u64::from(bits & KNOWN)).unwrap();
            let _ = layout.decode(&body);
        }
    }
}
