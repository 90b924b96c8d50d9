use super::*;
use crate::perf::forge::IbsOp;

fn parse(op: IbsOp) -> OpRecord {
    OpRecord::parse(&op.raw()).unwrap()
}

/// The level with these op data 2 and 3 on a processor with these capabilities.
fn level(caps: u32, data2: u64, data3: u64) -> (Level, Option<bool>) {
    parse(IbsOp {
        caps,
        data2,
        data3,
        ..IbsOp::default()
    })
    .level()
}

const LOAD: u64 = 1;
const STORE: u64 = 1 << 1;
const DC_MISS: u64 = 1 << 7;
const L2_MISS: u64 = 1 << 20;
const MISSED: u64 = DC_MISS | L2_MISS;
const OLD: u32 = 0xff;
const ZEN4: u32 = 0xff | 1 << 11;

#[test]
fn the_length_follows_the_capabilities() {
    // 4 + 7 * 8 = 60 bytes; a branch target and op data 4 add 8 each.
    for (caps, bytes) in [(0, 60), (1 << 5, 68), (1 << 10, 68), (1 << 5 | 1 << 10, 76)] {
        let op = IbsOp {
            caps,
            ..IbsOp::default()
        };
        let raw = op.raw();
        assert_eq!(raw.len(), bytes);
        assert!(OpRecord::parse(&raw).is_some());
        for wrong in [0, 3, 4, 59, bytes - 8, bytes - 1] {
            assert_eq!(OpRecord::parse(&raw[..wrong]), None, "{wrong} of {bytes}");
        }
        let mut longer = raw.clone();
        longer.extend([0; 8]);
        assert_eq!(OpRecord::parse(&longer), None);
    }
}

#[test]
fn addresses_count_only_with_their_own_bit() {
    let whole = parse(IbsOp::default());
    assert_eq!(whole.linear(), Some(0x7f00_1234_5678));
    assert_eq!(whole.physical(), Some(0x1_2345_6678));
    let with = |data3| {
        parse(IbsOp {
            data3,
            ..IbsOp::default()
        })
    };
    assert_eq!(with(LOAD | 1 << 18).linear(), None);
    assert_eq!(with(LOAD | 1 << 17).physical(), None);
}

#[test]
fn loads_and_stores_are_bits_of_their_own() {
    let operation = |data3| {
        let op = IbsOp {
            data3,
            ..IbsOp::default()
        };
        parse(op).operation()
    };
    assert_eq!(operation(LOAD), Some(Operation::Load));
    assert_eq!(operation(STORE), Some(Operation::Store));
    assert_eq!(operation(LOAD | STORE), Some(Operation::Update));
    assert_eq!(operation(MISSED), None);
}

#[test]
fn what_did_not_miss_was_answered_by_the_cores_caches() {
    // The data source says DRAM; it means nothing without a miss.
    assert_eq!(level(ZEN4, 3, LOAD), (Level::L1, Some(false)));
    assert_eq!(level(ZEN4, 3, LOAD | L2_MISS), (Level::L1, Some(false)));
    assert_eq!(level(ZEN4, 3, LOAD | DC_MISS), (Level::L2, Some(false)));
}

#[test]
fn uncacheable_accesses_have_no_data_source() {
    for bit in [13, 14] {
        let found = level(ZEN4, 3, LOAD | MISSED | 1 << bit);
        assert_eq!(found, (Level::Device, None));
    }
}

#[test]
fn the_old_table_has_three_bits() {
    let of = |source| level(OLD, source, LOAD | MISSED);
    let remote = 1 << 4;
    assert_eq!(of(0), (Level::Unknown, None));
    assert_eq!(of(1), (Level::Unknown, None));
    assert_eq!(of(2), (Level::L3, Some(false)));
    assert_eq!(of(3), (Level::Dram, Some(false)));
    assert_eq!(of(3 | remote), (Level::Dram, Some(true)));
    assert_eq!(of(4 | remote), (Level::Peer, Some(true)));
    assert_eq!(of(5), (Level::Unknown, None));
    assert_eq!(of(6), (Level::Unknown, None));
    assert_eq!(of(7), (Level::Device, None));
    // Bits 6 and 7 are not part of it.
    assert_eq!(of(3 | 3 << 6), (Level::Dram, Some(false)));
}

#[test]
fn the_zen4_table_has_two_bits_more() {
    // Low three bits in 0-2, two high ones in 6-7: 8 is 1 << 6, 12 is 1 << 6 | 4.
    let of = |number: u64| level(ZEN4, number & 7 | (number >> 3) << 6, LOAD | MISSED);
    assert_eq!(of(0), (Level::Unknown, None));
    assert_eq!(of(1), (Level::L3, Some(false)));
    assert_eq!(of(2), (Level::Peer, Some(false)));
    assert_eq!(of(3), (Level::Dram, Some(false)));
    assert_eq!(of(4), (Level::Unknown, None));
    assert_eq!(of(5), (Level::Peer, Some(false)));
    assert_eq!(of(6), (Level::Persistent, Some(false)));
    assert_eq!(of(7), (Level::Device, None));
    assert_eq!(of(8), (Level::Extension, Some(false)));
    assert_eq!(of(12), (Level::Extension, Some(false)));
    for unknown in (9..12).chain(13..32) {
        assert_eq!(of(unknown), (Level::Unknown, None), "{unknown}");
    }
    let far = level(ZEN4, 1 << 6 | 1 << 4, LOAD | MISSED);
    assert_eq!(far, (Level::Extension, Some(true)));
}

#[test]
fn stores_carry_no_data_source() {
    // Leftovers in op data 2 must not be believed.
    assert_eq!(level(ZEN4, 3, STORE | MISSED), (Level::Unknown, None));
    assert_eq!(level(ZEN4, 1, STORE | MISSED), (Level::Unknown, None));
    let no_buffer = 1 << 16;
    assert_eq!(
        level(ZEN4, 3, STORE | MISSED | no_buffer),
        (Level::FillBuffer, None)
    );
    // A load without a source falls back to it as well.
    assert_eq!(
        level(ZEN4, 0, LOAD | MISSED | no_buffer),
        (Level::FillBuffer, None)
    );
}

#[test]
fn a_latency_belongs_to_a_load_that_missed() {
    let latency = |data3| {
        let op = IbsOp {
            data3,
            ..IbsOp::default()
        };
        parse(op).latency_cycles()
    };
    // 300 in bits 32-47; bits 48-63 are the TLB's.
    let waited = 300 << 32 | 0xffff << 48;
    assert_eq!(latency(LOAD | MISSED | waited), Some(300));
    assert_eq!(latency(LOAD | waited), None);
    assert_eq!(latency(STORE | MISSED | waited), None);
    assert_eq!(latency(LOAD | MISSED), None);
}
