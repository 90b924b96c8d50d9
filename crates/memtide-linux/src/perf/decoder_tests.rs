use super::*;
use crate::perf::forge::{Fields, IbsOp, record};
use crate::perf::ring::{self, Scratch, Walk};
use proptest::prelude::*;

const IBS: u32 = b::PERF_SAMPLE_TID
    | b::PERF_SAMPLE_TIME
    | b::PERF_SAMPLE_ADDR
    | b::PERF_SAMPLE_CPU
    | b::PERF_SAMPLE_PERIOD
    | b::PERF_SAMPLE_RAW
    | b::PERF_SAMPLE_WEIGHT
    | b::PERF_SAMPLE_DATA_SRC
    | b::PERF_SAMPLE_PHYS_ADDR;
const PEBS: u32 = IBS & !b::PERF_SAMPLE_RAW;
const FAULTS: u32 =
    PEBS & !(b::PERF_SAMPLE_PERIOD | b::PERF_SAMPLE_WEIGHT | b::PERF_SAMPLE_DATA_SRC);

/// A load that DRAM answered: load, hit, local RAM, number 13.
const LOCAL_LOAD: u64 = 2 | (2 | 0x80) << 5 | 0xd << 33;

fn decoder(fields: u32, origin: Origin) -> Decoder {
    let layout = SampleLayout::new(fields.into()).unwrap();
    Decoder::new(layout, origin, Processor::default())
}

fn through_ring(decoder: Decoder, bytes: &[u8]) -> Vec<Result<MemoryAccess, Refusal>> {
    let mut out = Vec::new();
    ring::walk(bytes, &[], &mut Scratch::new(), |record| {
        out.push(decoder.decode(record));
    });
    out
}

fn ibs(op: IbsOp) -> Result<MemoryAccess, Refusal> {
    let fields = Fields {
        raw: op.raw(),
        addr: op.linear,
        ..Fields::default()
    };
    through_ring(decoder(IBS, Origin::Ibs), &fields.record(IBS.into()))[0]
}

fn pebs(fields: Fields) -> Result<MemoryAccess, Refusal> {
    through_ring(decoder(PEBS, Origin::Pebs), &fields.record(PEBS.into()))[0]
}

#[test]
fn a_whole_ibs_record() {
    assert_eq!(
        ibs(IbsOp::default()),
        Ok(MemoryAccess {
            pid: 100,
            tid: 101,
            cpu: Some(3),
            time_ns: 5_000,
            address: 0x7f00_1234_5678,
            physical: Some(0x1_2345_6678),
            operation: Operation::Load,
            level: Level::Dram,
            remote: Some(false),
            latency_cycles: Some(300),
            period: Some(10_000),
        })
    );
}

#[test]
fn each_check_of_ibs_has_its_reason() {
    let whole = IbsOp::default();
    let without = |bit: u32| IbsOp {
        data3: whole.data3 & !(1 << bit),
        ..whole
    };
    assert_eq!(ibs(without(0)), Err(Refusal::NotMemory));
    assert_eq!(ibs(without(17)), Err(Refusal::NoAddress));
    assert_eq!(ibs(without(18)).unwrap().physical, None);
    assert_eq!(ibs(without(7)), Err(Refusal::Cached));
    assert_eq!(ibs(without(20)), Err(Refusal::Cached));
    // Data source 1: the own last-level cache.
    assert_eq!(ibs(IbsOp { data2: 1, ..whole }), Err(Refusal::Cached));
    let linear = |linear| ibs(IbsOp { linear, ..whole }).map(|access| access.address);
    assert_eq!(linear(0xffff_8880_0000_1000), Err(Refusal::Kernel));
    assert_eq!(linear(1 << 60), Err(Refusal::NotCanonical));
    assert_eq!(linear(1 << 56), Err(Refusal::NotCanonical));
    assert_eq!(linear((1 << 56) - 8), Ok((1 << 56) - 8));
    assert_eq!(linear(0), Err(Refusal::NoAddress));
    let beyond = IbsOp {
        physical: 1 << 52,
        ..whole
    };
    assert_eq!(ibs(beyond), Err(Refusal::Inconsistent));
    // The field beside the registers says another address.
    let mut fields = Fields {
        raw: whole.raw(),
        addr: 0x7f00_0000_0000,
        ..Fields::default()
    };
    let decoder = decoder(IBS, Origin::Ibs);
    let got = |fields: &Fields| through_ring(decoder, &fields.record(IBS.into()))[0];
    assert_eq!(got(&fields), Err(Refusal::Inconsistent));
    // It says none: the registers count.
    fields.addr = 0;
    assert!(got(&fields).is_ok());
    fields.raw.truncate(52);
    assert_eq!(got(&fields), Err(Refusal::Malformed));
}

#[test]
fn the_erratum_spoils_prefetches_on_its_processors_only() {
    for bit in [16, 21] {
        let op = IbsOp {
            data3: IbsOp::default().data3 | 1 << bit,
            ..IbsOp::default()
        };
        assert!(ibs(op).is_ok(), "bit {bit}");
        let fields = Fields {
            raw: op.raw(),
            ..Fields::default()
        };
        let layout = SampleLayout::new(IBS.into()).unwrap();
        let ill = Decoder::new(layout, Origin::Ibs, Processor::new("AuthenticAMD", 0x19, 1));
        let got = through_ring(ill, &fields.record(IBS.into()))[0];
        assert_eq!(got, Err(Refusal::Erratum), "bit {bit}");
    }
    let ill = |family, model| Processor::new("AuthenticAMD", family, model).erratum_1293;
    assert!(ill(0x19, 0xf) && !ill(0x19, 0x10) && !ill(0x1a, 1));
    assert!(!Processor::new("GenuineIntel", 0x19, 1).erratum_1293);
    let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n\
                model name\t: x\n\nprocessor\t: 1\nmodel\t\t: 97\n";
    assert!(Processor::of_cpuinfo(text).erratum_1293);
    assert_eq!(
        Processor::of_cpuinfo("CPU part : 0xd0c\n"),
        Processor::default()
    );
}

#[test]
fn a_whole_pebs_record() {
    let remote = LOCAL_LOAD & !(0x80 << 5) | 0x100 << 5 | 1 << 37 | 2 << 43;
    let access = pebs(Fields {
        data_src: remote,
        weight: 420,
        ..Fields::default()
    })
    .unwrap();
    assert_eq!(access.operation, Operation::Load);
    assert_eq!((access.level, access.remote), (Level::Dram, Some(true)));
    assert_eq!(access.latency_cycles, Some(420));
    assert_eq!(access.physical, Some(0x1_2345_6678));
}

#[test]
fn each_check_of_pebs_has_its_reason() {
    let whole = Fields {
        data_src: LOCAL_LOAD,
        ..Fields::default()
    };
    let with = |change: fn(&mut Fields)| {
        let mut fields = whole.clone();
        change(&mut fields);
        pebs(fields)
    };
    assert!(with(|_| ()).is_ok());
    // Prefetch (8) and instruction fetch (16).
    assert_eq!(with(|f| f.data_src = 8), Err(Refusal::NotMemory));
    assert_eq!(with(|f| f.data_src = 16), Err(Refusal::NotMemory));
    assert_eq!(with(|f| f.addr = 0), Err(Refusal::NoAddress));
    assert_eq!(with(|f| f.addr = 1 << 63), Err(Refusal::Kernel));
    assert_eq!(with(|f| f.addr = 1 << 57), Err(Refusal::NotCanonical));
    assert_eq!(with(|f| f.pid = 0), Err(Refusal::NoTask));
    assert_eq!(with(|f| f.tid = u32::MAX), Err(Refusal::NoTask));
    // An L2 hit.
    let l2 = |f: &mut Fields| f.data_src = 2 | (2 | 0x20) << 5 | 2 << 33;
    assert_eq!(with(l2), Err(Refusal::Cached));
    assert_eq!(with(|f| f.phys_addr = 0).unwrap().physical, None);
    assert_eq!(with(|f| f.phys_addr = 1 << 60), Err(Refusal::Inconsistent));
    let all = Decoder::with_cached(decoder(PEBS, Origin::Pebs));
    let mut fields = whole.clone();
    l2(&mut fields);
    let got = through_ring(all, &fields.record(PEBS.into()))[0];
    assert_eq!(got.unwrap().level, Level::L2);
}

#[test]
fn weights_of_both_shapes_are_cycles() {
    let shape = PEBS & !b::PERF_SAMPLE_WEIGHT | b::PERF_SAMPLE_WEIGHT_STRUCT;
    let fields = Fields {
        data_src: LOCAL_LOAD,
        // Lower half the latency, upper halves other cycles.
        weight: 77 | 12 << 32 | 5 << 48,
        ..Fields::default()
    };
    let got = through_ring(decoder(shape, Origin::Pebs), &fields.record(shape.into()))[0];
    assert_eq!(got.unwrap().latency_cycles, Some(77));
}

#[test]
fn a_guests_samples_are_not_ours() {
    let body = Fields::default().body(FAULTS.into());
    let decoder = decoder(FAULTS, Origin::Faults);
    let got = |misc: u16| through_ring(decoder, &record(b::PERF_RECORD_SAMPLE, misc, &body))[0];
    for (misc, taken) in [
        (0, true),
        (1, true),
        (2, true),
        (3, false),
        (4, false),
        (5, false),
    ] {
        assert_eq!(got(misc).is_ok(), taken, "cpu mode {misc}");
        // Other bits of the same field do not matter: 0x4000 is an exact ip.
        assert_eq!(got(misc | 0x4000).is_ok(), taken, "cpu mode {misc}");
    }
}

#[test]
fn a_fault_says_where_and_not_what() {
    let fields = Fields::default();
    let decoder = decoder(FAULTS, Origin::Faults);
    let access = through_ring(decoder, &fields.record(FAULTS.into()))[0].unwrap();
    assert_eq!(access.address, 0x7f00_1234_5678);
    assert_eq!(access.operation, Operation::Unknown);
    assert_eq!((access.level, access.period), (Level::Unknown, None));
}

#[test]
fn every_truncation_is_refused() {
    let whole = Fields {
        raw: IbsOp::default().raw(),
        ..Fields::default()
    };
    let body = whole.body(IBS.into());
    let decoder = decoder(IBS, Origin::Ibs);
    for bytes in 0..body.len() {
        let cut = record(b::PERF_RECORD_SAMPLE, 2, &body[..bytes]);
        let got = through_ring(decoder, &cut);
        assert_eq!(got, [Err(Refusal::Malformed)], "{bytes} of {}", body.len());
    }
}

#[test]
fn records_of_all_kinds_around_every_seam_of_the_ring() {
    let sample = Fields {
        raw: IbsOp::default().raw(),
        ..Fields::default()
    };
    let mut bytes = sample.record(IBS.into());
    bytes.extend(record(200, 0, &[1; 24])); // no such kind
    bytes.extend(record(b::PERF_RECORD_THROTTLE, 0, &[0; 24]));
    let mut lost = 1u64.to_ne_bytes().to_vec();
    lost.extend(9u64.to_ne_bytes());
    bytes.extend(record(b::PERF_RECORD_LOST, 0, &lost));
    bytes.extend(sample.record(IBS.into()));
    let decoder = decoder(IBS, Origin::Ibs);
    let mut scratch = Scratch::new();
    for seam in 0..=bytes.len() {
        let mut accesses = 0;
        let walk = ring::walk(&bytes[..seam], &bytes[seam..], &mut scratch, |record| {
            if record.is_sample() {
                assert_eq!(decoder.decode(record).unwrap().level, Level::Dram);
                accesses += 1;
            }
        });
        let expected = Walk {
            records: 5,
            samples: 2,
            lost: 9,
            throttled: 1,
            malformed_bytes: 0,
        };
        assert_eq!((accesses, walk), (2, expected), "seam at {seam}");
    }
}

proptest! {
    #[test]
    fn an_ibs_record_means_what_was_put_into_it(
        caps: u32, data2: u64, data3: u64, linear: u64, physical: u64, pid in 1u32..1 << 22,
    ) {
        let op = IbsOp { caps, data2, data3, linear, physical };
        let fields = Fields { pid, raw: op.raw(), addr: linear, ..Fields::default() };
        let all = decoder(IBS, Origin::Ibs).with_cached();
        let got = through_ring(all, &fields.record(IBS.into()))[0];
        let bit = |n: u32| data3 >> n & 1 == 1;
        // The same in other words: what must hold for there to be an access.
        let valid = (bit(0) || bit(1)) && bit(17) && linear != 0 && linear >> 56 == 0
            && (!bit(18) || physical >> 52 == 0);
        prop_assert_eq!(got.is_ok(), valid);
        if let Ok(access) = got {
            prop_assert_eq!((access.pid, access.address), (pid, linear));
            prop_assert_eq!(access.physical, bit(18).then_some(physical));
            prop_assert_eq!(access.operation.writes(), bit(1));
            prop_assert_eq!(access.level == Level::L1, !bit(7) && !bit(13) && !bit(14));
        }
    }

    #[test]
    fn a_pebs_record_means_what_was_put_into_it(addr: u64, data_src: u64, weight: u64) {
        let fields = Fields { addr, data_src, weight, ..Fields::default() };
        let all = decoder(PEBS, Origin::Pebs).with_cached();
        let got = through_ring(all, &fields.record(PEBS.into()))[0];
        let op = data_src & 31;
        let valid = (op & 6 != 0 || op <= 1) && addr != 0 && addr >> 56 == 0;
        prop_assert_eq!(got.is_ok(), valid);
        if let Ok(access) = got {
            prop_assert_eq!(access.address, addr);
            prop_assert_eq!(access.operation.writes(), op & 4 != 0);
            prop_assert_eq!(access.latency_cycles.unwrap_or(0), weight as u32);
        }
    }

    #[test]
    fn any_bytes_decode_or_do_not(
        bytes in proptest::collection::vec(any::<u8>(), 0..400), seam in 0usize..400, fields: u32,
    ) {
        let known = SampleLayout::known();
        let seam = seam.min(bytes.len());
        for origin in [Origin::Ibs, Origin::Pebs, Origin::Faults] {
            let decoder = decoder(fields & known, origin);
            ring::walk(&bytes[..seam], &bytes[seam..], &mut Scratch::new(), |record| {
                if let Ok(access) = decoder.decode(record) {
                    assert!(access.address != 0 && access.address >> 56 == 0);
                }
            });
        }
    }
}
