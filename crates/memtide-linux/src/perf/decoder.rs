//! From a sample record to an access, in one place for every origin.
//!
//! Problem. A sample is evidence of an access only if each of its fields is
//! valid: processors sample prefetches, kernel code, guests; addresses come
//! without being known; early processors err. A page moved on a wrong sample
//! is moved wrongly.
//!
//! Approach. A [`Decoder`] knows how an event's samples are laid out and who
//! made them. It checks one field after the other and gives either a
//! [`MemoryAccess`] or the [`Refusal`] that says which check failed. Nothing is
//! copied from the ring but the fields themselves, and nothing is allocated.
//!
//! What is checked, in this order:
//!
//! 1. The record has the bytes that its layout says, IBS's raw part included.
//! 2. It was not taken in a guest or in the hypervisor.
//! 3. It names a process (the idle task has number 0, one outside the pid
//!    namespace the highest).
//! 4. It is a load or a store. Page faults do not say, and count.
//! 5. It has an address that the hardware vouches for, and that is the same
//!    wherever it stands.
//! 6. The address is a user address: below half of the address space, and
//!    canonical. *Who* touched it does not matter: the kernel touches a
//!    program's buffers on its behalf.
//! 7. Memory answered, not a cache: then the page's place mattered. Accesses of
//!    which nobody says who answered count, too.

use super::access::{Level, MemoryAccess, Operation, Refusal};
use super::data_src;
use super::ibs::OpRecord;
use super::ring::Record;
use super::sample::{Sample, SampleLayout};
use perf_event_open_sys::bindings as b;

/// Who makes the samples, and with it what their fields mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// AMD's instruction-based sampling of operations.
    Ibs,
    /// Intel's precise sampling of loads and stores, or whatever else tells a
    /// data source.
    Pebs,
    /// Page faults.
    Faults,
}

/// Which processor family a recording comes from, as far as it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// Erratum 1293: AMD family 19h, models 0 to 0xf.
    pub erratum_1293: bool,
}

impl Processor {
    /// From vendor, family and model, all as `/proc/cpuinfo` has them.
    pub fn new(vendor: &str, family: u32, model: u32) -> Processor {
        Processor {
            erratum_1293: vendor == "AuthenticAMD" && family == 0x19 && model <= 0xf,
        }
    }

    /// From the text of `/proc/cpuinfo`, by the first processor in it. An
    /// unknown processor has no known errata.
    pub fn of_cpuinfo(text: &str) -> Processor {
        let field = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim())
            })
        };
        let number = |name| field(name)?.parse().ok();
        match (field("vendor_id"), number("cpu family"), number("model")) {
            (Some(vendor), Some(family), Some(model)) => Processor::new(vendor, family, model),
            _ => Processor::default(),
        }
    }
}

/// Bits of a user address: one less than half of a five-level address space.
/// On processors with four levels the kernel hands out nothing above 47.
const USER_BITS: u32 = 56;
/// Bits that a physical address can have.
const PHYSICAL_BITS: u32 = 52;

/// Decodes the samples of one event.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    layout: SampleLayout,
    origin: Origin,
    processor: Processor,
    /// Whether accesses that a cache answered are handed on.
    cached_too: bool,
}

impl Decoder {
    /// A decoder of samples that are laid out so.
    pub fn new(layout: SampleLayout, origin: Origin, processor: Processor) -> Decoder {
        Decoder {
            layout,
            origin,
            processor,
            cached_too: false,
        }
    }

    /// Hands on what caches answered as well: for recordings, where every
    /// access counts.
    pub fn with_cached(self) -> Decoder {
        Decoder {
            cached_too: true,
            ..self
        }
    }

    /// The same for samples that are laid out so.
    pub fn with_layout(self, layout: SampleLayout) -> Decoder {
        Decoder { layout, ..self }
    }

    /// How samples are laid out.
    pub fn layout(&self) -> SampleLayout {
        self.layout
    }

    /// Who makes them.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The access that a sample record is evidence of.
    ///
    /// # Errors
    ///
    /// The first check that fails.
    #[inline]
    pub fn decode(&self, record: Record<'_>) -> Result<MemoryAccess, Refusal> {
        let sample = self.layout.decode(record.body).ok_or(Refusal::Malformed)?;
        let mode = u32::from(record.misc) & b::PERF_RECORD_MISC_CPUMODE_MASK;
        if mode > b::PERF_RECORD_MISC_USER {
            return Err(Refusal::Foreign);
        }
        let (pid, tid) = sample.pid_tid.ok_or(Refusal::NoTask)?;
        let is_task = |id: u32| id != 0 && i32::try_from(id).is_ok();
        if !is_task(pid) || !is_task(tid) {
            return Err(Refusal::NoTask);
        }
        let access = MemoryAccess {
            pid,
            tid,
            cpu: sample.cpu,
            time_ns: sample.time.unwrap_or(0),
            address: 0,
            physical: None,
            operation: Operation::Unknown,
            level: Level::Unknown,
            remote: None,
            latency_cycles: None,
            period: sample.period,
        };
        let access = match self.origin {
            Origin::Ibs => self.ibs(access, &sample)?,
            Origin::Pebs => told(access, &sample)?,
            Origin::Faults => MemoryAccess {
                address: sample.addr.unwrap_or(0),
                physical: sample.phys_addr.filter(|at| *at != 0),
                ..access
            },
        };
        check_address(access.address)?;
        if access.physical.is_some_and(|at| at >> PHYSICAL_BITS != 0) {
            return Err(Refusal::Inconsistent);
        }
        if access.level.is_cache() && !self.cached_too {
            return Err(Refusal::Cached);
        }
        Ok(access)
    }

    /// IBS: the raw registers where they are, else what the kernel made of them.
    fn ibs(&self, access: MemoryAccess, sample: &Sample<'_>) -> Result<MemoryAccess, Refusal> {
        let Some(raw) = sample.raw else {
            return told(access, sample);
        };
        let op = OpRecord::parse(raw).ok_or(Refusal::Malformed)?;
        let operation = op.operation().ok_or(Refusal::NotMemory)?;
        let address = op.linear().ok_or(Refusal::NoAddress)?;
        if sample.addr.is_some_and(|also| also != 0 && also != address) {
            return Err(Refusal::Inconsistent);
        }
        if self.processor.erratum_1293 && op.is_unreliable() {
            return Err(Refusal::Erratum);
        }
        let (level, remote) = op.level();
        Ok(MemoryAccess {
            address,
            physical: op.physical(),
            operation,
            level,
            remote,
            latency_cycles: op.latency_cycles(),
            ..access
        })
    }
}

/// What the kernel says of a sample: address, data source, weight.
fn told(access: MemoryAccess, sample: &Sample<'_>) -> Result<MemoryAccess, Refusal> {
    let source = data_src::decode(sample.data_src.unwrap_or(0));
    Ok(MemoryAccess {
        address: sample.addr.unwrap_or(0),
        physical: sample.phys_addr.filter(|at| *at != 0),
        operation: source.operation.ok_or(Refusal::NotMemory)?,
        level: source.level,
        remote: source.remote,
        latency_cycles: sample.latency_cycles(),
        ..access
    })
}

fn check_address(address: u64) -> Result<(), Refusal> {
    match address {
        0 => Err(Refusal::NoAddress),
        _ if address >> 63 != 0 => Err(Refusal::Kernel),
        _ if address >> USER_BITS != 0 => Err(Refusal::NotCanonical),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
