//! The kernel's word for where data came from, `perf_mem_data_src`.
//!
//! The word has two generations of the same statement. The older one is a set
//! of bits (`lvl`): hit or miss, and at which levels. The newer one is a number
//! (`lvl_num`) with a remote bit and a distance (`hops`) beside it. Kernels fill
//! the new one where they can and leave it at "not available" (15), or at zero
//! if they do not know it, where they cannot; then the old one counts.
//!
//! Two traps. "Missed L3" is written as the number of L3 together with the old
//! word's miss bit: not a cache's answer, on the contrary. And the remote bit is
//! also set for a neighbouring core's cache, so it says nothing about the socket
//! unless memory answered.
//!
//! | field | bits |
//! |---|---|
//! | operation | 0-4 |
//! | `lvl` | 5-18 |
//! | `lvl_num` | 33-36 |
//! | remote | 37 |
//! | `hops` | 43-45 |
//!
//! (Kernel interface: `perf_event_open(2)`, `PERF_SAMPLE_DATA_SRC`.)

use super::access::{Level, Operation};
use perf_event_open_sys::bindings as b;

/// What a data-source word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSource {
    /// What was done; `None` if it was neither load nor store (a prefetch, an
    /// instruction).
    pub operation: Option<Operation>,
    /// Who answered.
    pub level: Level,
    /// Whether on another node, where that is told.
    pub remote: Option<bool>,
}

const ANY_REMOTE_RAM: u64 = (b::PERF_MEM_LVL_REM_RAM1 | b::PERF_MEM_LVL_REM_RAM2) as u64;
const ANY_REMOTE_CACHE: u64 = (b::PERF_MEM_LVL_REM_CCE1 | b::PERF_MEM_LVL_REM_CCE2) as u64;
/// Level numbers that the bindings do not have yet.
const L2_MISS_BUFFER: u32 = 5;
const MEMORY_SIDE_CACHE: u32 = 6;

/// Takes the word apart. Total: every word means something.
pub fn decode(word: u64) -> DataSource {
    let bits = |shift: u32, width: u32| (word >> shift) & ((1 << width) - 1);
    let op = bits(b::PERF_MEM_OP_SHIFT, 5);
    let lvl = bits(b::PERF_MEM_LVL_SHIFT, 14);
    let number = bits(b::PERF_MEM_LVLNUM_SHIFT, 4) as u32;
    let remote = bits(b::PERF_MEM_REMOTE_SHIFT, 1) == 1;
    let hops = bits(b::PERF_MEM_HOPS_SHIFT, 3) as u32;

    let has = |set: u64, bit: u32| set & u64::from(bit) != 0;
    let load = has(op, b::PERF_MEM_OP_LOAD);
    let store = has(op, b::PERF_MEM_OP_STORE);
    let operation = match Operation::of(load, store) {
        None if op == 0 || op == u64::from(b::PERF_MEM_OP_NA) => Some(Operation::Unknown),
        known => known,
    };

    let only_missed = has(lvl, b::PERF_MEM_LVL_MISS) && !has(lvl, b::PERF_MEM_LVL_HIT);
    // A distance of 1 is another core of the same node.
    let far = remote && hops != b::PERF_MEM_HOPS_0;
    let (level, remote) = match number {
        0 | b::PERF_MEM_LVLNUM_NA => from_old(lvl, only_missed),
        b::PERF_MEM_LVLNUM_RAM => (Level::Dram, Some(far)),
        b::PERF_MEM_LVLNUM_CXL => (Level::Extension, Some(far)),
        b::PERF_MEM_LVLNUM_PMEM => (Level::Persistent, Some(far)),
        MEMORY_SIDE_CACHE | b::PERF_MEM_LVLNUM_L4 => (Level::MemorySide, Some(far)),
        b::PERF_MEM_LVLNUM_LFB | L2_MISS_BUFFER => (Level::FillBuffer, None),
        b::PERF_MEM_LVLNUM_UNC | b::PERF_MEM_LVLNUM_IO => (Level::Device, None),
        b::PERF_MEM_LVLNUM_ANY_CACHE => (Level::Peer, Some(far)),
        _ if only_missed => (Level::Unknown, None),
        b::PERF_MEM_LVLNUM_L1 => (Level::L1, Some(false)),
        b::PERF_MEM_LVLNUM_L2 => (Level::L2, Some(false)),
        b::PERF_MEM_LVLNUM_L3 if remote => (Level::Peer, Some(far)),
        b::PERF_MEM_LVLNUM_L3 => (Level::L3, Some(false)),
        _ => (Level::Unknown, None),
    };
    DataSource {
        operation,
        level,
        remote,
    }
}

/// The old word alone. Memory first: a load that memory answered also missed.
fn from_old(lvl: u64, only_missed: bool) -> (Level, Option<bool>) {
    let has = |bit: u32| lvl & u64::from(bit) != 0;
    if has(b::PERF_MEM_LVL_UNC) || has(b::PERF_MEM_LVL_IO) {
        (Level::Device, None)
    } else if only_missed {
        (Level::Unknown, None)
    } else if lvl & ANY_REMOTE_RAM != 0 {
        (Level::Dram, Some(true))
    } else if has(b::PERF_MEM_LVL_LOC_RAM) {
        (Level::Dram, Some(false))
    } else if lvl & ANY_REMOTE_CACHE != 0 {
        (Level::Peer, Some(true))
    } else if has(b::PERF_MEM_LVL_LFB) {
        (Level::FillBuffer, None)
    } else if has(b::PERF_MEM_LVL_L3) {
        (Level::L3, Some(false))
    } else if has(b::PERF_MEM_LVL_L2) {
        (Level::L2, Some(false))
    } else if has(b::PERF_MEM_LVL_L1) {
        (Level::L1, Some(false))
    } else {
        (Level::Unknown, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: u64 = 2;
    const HIT: u64 = 2 << 5;
    const MISS: u64 = 4 << 5;

    fn level(word: u64) -> (Level, Option<bool>) {
        let source = decode(word);
        assert_eq!(source.operation, Some(Operation::Load));
        (source.level, source.remote)
    }

    #[test]
    fn the_operation_is_the_lowest_five_bits() {
        let operation = |word| decode(word).operation;
        assert_eq!(operation(1), Some(Operation::Unknown));
        assert_eq!(operation(0), Some(Operation::Unknown));
        assert_eq!(operation(2), Some(Operation::Load));
        assert_eq!(operation(4), Some(Operation::Store));
        assert_eq!(operation(6), Some(Operation::Update));
        // 8 is a prefetch, 16 an instruction fetch.
        assert_eq!(operation(8), None);
        assert_eq!(operation(16), None);
    }

    #[test]
    fn the_new_number_decides_where_it_is_given() {
        let number = |n: u64| LOAD | n << 33;
        let remote = 1 << 37;
        let hops = |n: u64| n << 43;
        assert_eq!(level(number(0xd)), (Level::Dram, Some(false)));
        // Two hops: another node.
        assert_eq!(
            level(number(0xd) | remote | hops(2)),
            (Level::Dram, Some(true))
        );
        // No distance told: the remote bit alone.
        assert_eq!(level(number(0xd) | remote), (Level::Dram, Some(true)));
        assert_eq!(level(number(9) | remote), (Level::Extension, Some(true)));
        assert_eq!(level(number(0xe)), (Level::Persistent, Some(false)));
        assert_eq!(level(number(1) | HIT), (Level::L1, Some(false)));
        assert_eq!(level(number(2) | HIT), (Level::L2, Some(false)));
        assert_eq!(level(number(3) | HIT), (Level::L3, Some(false)));
        assert_eq!(level(number(4)), (Level::MemorySide, Some(false)));
        assert_eq!(level(number(6)), (Level::MemorySide, Some(false)));
        assert_eq!(level(number(5)), (Level::FillBuffer, None));
        assert_eq!(level(number(0xc)), (Level::FillBuffer, None));
        assert_eq!(level(number(8)), (Level::Device, None));
        assert_eq!(level(number(0xa)), (Level::Device, None));
        assert_eq!(level(number(7)), (Level::Unknown, None));
    }

    #[test]
    fn a_neighbours_cache_is_remote_and_on_the_same_node() {
        // L3, remote, one hop: another core of this node.
        let near = LOAD | 3 << 33 | 1 << 37 | 1 << 43;
        assert_eq!(level(near | HIT), (Level::Peer, Some(false)));
        let far = LOAD | 0xb << 33 | 1 << 37 | 2 << 43;
        assert_eq!(level(far | HIT), (Level::Peer, Some(true)));
    }

    #[test]
    fn missing_l3_is_not_an_answer_of_l3() {
        // Old word: miss and L3 (0x40); new number: 3.
        let missed = LOAD | MISS | 0x40 << 5 | 3 << 33;
        assert_eq!(level(missed), (Level::Unknown, None));
        assert!(!decode(missed).level.is_cache());
        // The same without the new number.
        assert_eq!(level(LOAD | MISS | 0x40 << 5), (Level::Unknown, None));
    }

    #[test]
    fn without_the_number_the_old_bits_decide() {
        let na = LOAD | 15 << 33;
        for base in [LOAD, na] {
            assert_eq!(level(base | HIT | 0x8 << 5), (Level::L1, Some(false)));
            assert_eq!(level(base | HIT | 0x10 << 5), (Level::FillBuffer, None));
            assert_eq!(level(base | HIT | 0x20 << 5), (Level::L2, Some(false)));
            assert_eq!(level(base | HIT | 0x40 << 5), (Level::L3, Some(false)));
            assert_eq!(level(base | HIT | 0x80 << 5), (Level::Dram, Some(false)));
            assert_eq!(level(base | HIT | 0x100 << 5), (Level::Dram, Some(true)));
            assert_eq!(level(base | HIT | 0x200 << 5), (Level::Dram, Some(true)));
            assert_eq!(level(base | HIT | 0x400 << 5), (Level::Peer, Some(true)));
            assert_eq!(level(base | HIT | 0x800 << 5), (Level::Peer, Some(true)));
            assert_eq!(level(base | HIT | 0x1000 << 5), (Level::Device, None));
            assert_eq!(level(base | HIT | 0x2000 << 5), (Level::Device, None));
            assert_eq!(level(base | 1 << 5), (Level::Unknown, None));
        }
    }
}
