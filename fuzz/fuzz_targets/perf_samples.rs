//! The decoders of sampled accesses on any bytes, as a ring would hold them: the first two bytes say
//! where the ring's seam is and which fields samples have, the rest is records. A decoder gives user
//! addresses or a reason, and the seam changes nothing.
#![no_main]

use memtide_linux::perf::decoder::{Decoder, Origin, Processor};
use memtide_linux::perf::{MemoryAccess, Refusal, SampleLayout, Scratch, ring};

/// Fields as the live source asks for them (IBS, PEBS, faults), and whatever the byte says.
fn layouts(choice: u8) -> Vec<(u32, Origin)> {
    const COMMON: u32 = 0x8_008e;
    const HARDWARE: u32 = 0xc100;
    let any = (u32::from(choice) << 16 | u32::from(choice) * 37) & SampleLayout::known();
    vec![
        (COMMON | HARDWARE | 0x400, Origin::Ibs),
        (COMMON | HARDWARE, Origin::Pebs),
        (COMMON, Origin::Faults),
        (any, Origin::Ibs),
        (any, Origin::Pebs),
    ]
}

type Decoded = Vec<Result<MemoryAccess, Refusal>>;

fn decoded(decoder: Decoder, older: &[u8], newer: &[u8]) -> (Decoded, ring::Walk) {
    let mut all = Vec::new();
    let walk = ring::walk(older, newer, &mut Scratch::new(), |record| {
        if record.is_sample() {
            all.push(decoder.decode(record));
        }
    });
    (all, walk)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [seam, choice, ring @ ..] = bytes else {
        return;
    };
    let seam = usize::from(*seam).min(ring.len());
    let processor = Processor {
        erratum_1293: choice & 1 == 1,
    };
    for (fields, origin) in layouts(*choice) {
        let layout = SampleLayout::new(fields.into()).unwrap();
        let decoder = Decoder::new(layout, origin, processor);
        let whole = decoded(decoder, ring, &[]);
        assert_eq!(decoded(decoder, &ring[..seam], &ring[seam..]), whole);
        for access in whole.0.iter().flatten() {
            assert!(access.address != 0 && access.address >> 56 == 0);
            assert!(access.pid != 0 && access.tid != 0);
            assert!(access.physical.is_none_or(|at| at >> 52 == 0));
            assert!(!access.level.is_cache());
        }
        let all = decoded(decoder.with_cached(), ring, &[]);
        let accesses = |decoded: &Decoded| decoded.iter().flatten().count();
        assert!(accesses(&all.0) >= accesses(&whole.0));
    }
});
