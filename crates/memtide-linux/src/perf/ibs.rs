//! AMD's IBS op record, as perf hands it out raw.
//!
//! When an operation was sampled, the processor fills a row of registers, and
//! perf passes them on as they are: a word of capability bits (what this
//! processor fills), then eight bytes a register, in this order:
//!
//! | word | register | used here |
//! |---|---|---|
//! | 0 | op control | |
//! | 1 | instruction pointer | |
//! | 2 | op data | |
//! | 3 | op data 2 | where the data came from |
//! | 4 | op data 3 | what was done, what missed, what is valid |
//! | 5 | linear address | |
//! | 6 | physical address | |
//! | 7 | branch target, only with capability 5 | |
//! | next | op data 4, only with capability 10 | |
//!
//! Every other field means something only if a bit says so. The linear and the
//! physical address have a validity bit each. Where data came from is told for
//! loads that left the core's own caches and not for stores, and its numbers
//! mean more from Zen 4 on (capability 11). A latency belongs to a load that
//! missed. On early family 19h processors the second-level miss bit and the data
//! source cannot be trusted for prefetches and for misses that found no buffer
//! (erratum 1293).
//!
//! (Facts: AMD64 Architecture Programmer's Manual, volume 2, instruction-based
//! sampling. Source: *Memory access profiler(IBS) driven NUMA balancing*, whose filter [`Level::is_cache`]
//! follows.)

use super::access::{Level, Operation};
use super::ring::{u32_at, u64_at};

/// The capability bits that matter here (`cpuid` 8000_001B, `eax`).
pub mod caps {
    /// A branch target follows the seven registers.
    pub const BRANCH_TARGET: u32 = 1 << 5;
    /// Op data 4 follows those.
    pub const OP_DATA_4: u32 = 1 << 10;
    /// The longer table of data sources, and the filter for L3 misses.
    pub const ZEN4: u32 = 1 << 11;
}

/// Registers that every processor fills.
const REGISTERS: usize = 7;

/// Op data 3, bit by bit.
mod data3 {
    pub const LOAD: u64 = 1;
    pub const STORE: u64 = 1 << 1;
    pub const DC_MISS: u64 = 1 << 7;
    pub const WRITE_COMBINING: u64 = 1 << 13;
    pub const UNCACHEABLE: u64 = 1 << 14;
    pub const NO_MISS_BUFFER: u64 = 1 << 16;
    pub const LINEAR_VALID: u64 = 1 << 17;
    pub const PHYSICAL_VALID: u64 = 1 << 18;
    pub const L2_MISS: u64 = 1 << 20;
    pub const SOFTWARE_PREFETCH: u64 = 1 << 21;
    pub const LATENCY_SHIFT: u32 = 32;
}

/// The registers of one sampled operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRecord {
    caps: u32,
    data2: u64,
    data3: u64,
    linear: u64,
    physical: u64,
}

impl OpRecord {
    /// Cuts perf's raw bytes apart, or `None` if they are not as long as their
    /// own capability bits say.
    pub fn parse(raw: &[u8]) -> Option<OpRecord> {
        let caps = u32_at(raw, 0)?;
        let optional = [caps::BRANCH_TARGET, caps::OP_DATA_4];
        let more = optional.iter().filter(|bit| caps & **bit != 0).count();
        if raw.len() != 4 + 8 * (REGISTERS + more) {
            return None;
        }
        let register = |number: usize| u64_at(raw, 4 + 8 * number);
        Some(OpRecord {
            caps,
            data2: register(3)?,
            data3: register(4)?,
            linear: register(5)?,
            physical: register(6)?,
        })
    }

    fn has(&self, bit: u64) -> bool {
        self.data3 & bit != 0
    }

    /// What was done; `None` if the operation was no load and no store.
    pub fn operation(&self) -> Option<Operation> {
        Operation::of(self.has(data3::LOAD), self.has(data3::STORE))
    }

    /// The virtual address, if the processor vouches for it.
    pub fn linear(&self) -> Option<u64> {
        self.has(data3::LINEAR_VALID).then_some(self.linear)
    }

    /// The physical address, if the processor vouches for it.
    pub fn physical(&self) -> Option<u64> {
        self.has(data3::PHYSICAL_VALID).then_some(self.physical)
    }

    /// Cycles that a load waited for its miss; `None` of everything else.
    pub fn latency_cycles(&self) -> Option<u32> {
        let missed = self.has(data3::LOAD) && self.has(data3::DC_MISS);
        let cycles = (self.data3 >> data3::LATENCY_SHIFT) as u16;
        (missed && cycles != 0).then_some(cycles.into())
    }

    /// Whether erratum 1293, on a processor that has it, spoils this record.
    pub fn is_unreliable(&self) -> bool {
        self.has(data3::SOFTWARE_PREFETCH) || self.has(data3::NO_MISS_BUFFER)
    }

    /// Who answered, and whether from another node.
    pub fn level(&self) -> (Level, Option<bool>) {
        if self.has(data3::UNCACHEABLE) || self.has(data3::WRITE_COMBINING) {
            return (Level::Device, None);
        }
        if !self.has(data3::DC_MISS) {
            return (Level::L1, Some(false));
        }
        if !self.has(data3::L2_MISS) {
            return (Level::L2, Some(false));
        }
        if self.has(data3::LOAD) {
            let told = self.data_source();
            if told.0 != Level::Unknown {
                return told;
            }
        }
        match self.has(data3::NO_MISS_BUFFER) {
            true => (Level::FillBuffer, None),
            false => (Level::Unknown, None),
        }
    }

    /// Op data 2 in the words of its table.
    fn data_source(&self) -> (Level, Option<bool>) {
        let low = self.data2 & 7;
        let high = (self.data2 >> 6) & 3;
        let remote = Some(self.data2 & 1 << 4 != 0);
        let zen4 = self.caps & caps::ZEN4 != 0;
        let number = if zen4 { high << 3 | low } else { low };
        match (zen4, number) {
            (false, 2) | (true, 1) => (Level::L3, Some(false)),
            // Another core's cache in the same socket, by the Zen 4 table.
            (true, 2) => (Level::Peer, Some(false)),
            (false, 4) => (Level::Peer, remote),
            (true, 5) => (Level::Peer, remote),
            (_, 3) => (Level::Dram, remote),
            (_, 7) => (Level::Device, None),
            (true, 6) => (Level::Persistent, remote),
            // 12: memory of a peer agent, behind a link as well.
            (true, 8 | 12) => (Level::Extension, remote),
            _ => (Level::Unknown, None),
        }
    }
}

#[cfg(test)]
#[path = "ibs_tests.rs"]
mod tests;
