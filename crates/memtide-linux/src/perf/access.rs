//! One access to memory, as a sample told it.
//!
//! Whatever noticed the access (AMD's IBS, Intel's PEBS, a page fault), what is
//! left of it after decoding is a [`MemoryAccess`]: who touched which address
//! when, how, and where the data came from. It is small, has no pointers, and
//! holds only what was checked; what a sample could not tell is `None` or
//! [`Level::Unknown`], never zero. Why a record gave no access is a
//! [`Refusal`], and refusals are counted by reason.

/// What was done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The sample does not say. (A page fault's does not.)
    Unknown,
    /// It was read.
    Load,
    /// It was written.
    Store,
    /// It was read and written by one operation.
    Update,
}

impl Operation {
    /// The operation that reads, writes, or does both; `None` if neither.
    pub fn of(load: bool, store: bool) -> Option<Operation> {
        match (load, store) {
            (true, true) => Some(Operation::Update),
            (true, false) => Some(Operation::Load),
            (false, true) => Some(Operation::Store),
            (false, false) => None,
        }
    }

    /// Whether memory was written, as far as is known.
    pub fn writes(self) -> bool {
        matches!(self, Operation::Store | Operation::Update)
    }
}

/// Which part of the memory hierarchy answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The sample does not say, or it is not valid there.
    Unknown,
    /// The core's own caches: first level.
    L1,
    /// The core's own caches: second level.
    L2,
    /// A miss that was already under way for the same line.
    FillBuffer,
    /// The last-level cache near the core.
    L3,
    /// Another core's cache, or a last-level cache further away.
    Peer,
    /// A cache in front of memory, on memory's side.
    MemorySide,
    /// DRAM.
    Dram,
    /// Memory behind an extension link (CXL).
    Extension,
    /// Persistent memory.
    Persistent,
    /// A device, or an uncached access.
    Device,
}

impl Level {
    /// Whether a cache answered and the page's place made no difference.
    /// A miss under way does not count as a cache: somebody waits for memory.
    pub fn is_cache(self) -> bool {
        matches!(self, Level::L1 | Level::L2 | Level::L3 | Level::Peer)
    }
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// The process, in the reader's pid namespace.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU that the thread ran on, if the sample says so.
    pub cpu: Option<u32>,
    /// Nanoseconds on the event's clock; zero if the sample has no time.
    pub time_ns: u64,
    /// The virtual address, a user address.
    pub address: u64,
    /// The physical address, if it was told. Needs `CAP_PERFMON`.
    pub physical: Option<u64>,
    /// What was done.
    pub operation: Operation,
    /// Who answered.
    pub level: Level,
    /// Whether what answered sits on another socket or node than the core, if
    /// the sample says so. The page's node is better asked of the kernel.
    pub remote: Option<bool>,
    /// Cycles until the data came, of a load that missed.
    pub latency_cycles: Option<u32>,
    /// How many events this sample stands for, if it says so.
    pub period: Option<u64>,
}

/// Why a sample gave no access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Refusal {
    /// Shorter or longer than its layout says.
    Malformed,
    /// Taken in a virtual machine's guest or in the hypervisor: its addresses
    /// mean nothing here.
    Foreign,
    /// No process: the idle task, or one outside this pid namespace.
    NoTask,
    /// Neither a load nor a store.
    NotMemory,
    /// No address, or one that the hardware marked invalid.
    NoAddress,
    /// The address is the kernel's.
    Kernel,
    /// The address has bits that no address has.
    NotCanonical,
    /// A cache answered; the page's place made no difference.
    Cached,
    /// A known erratum makes the sample unreliable.
    Erratum,
    /// Two fields contradict each other.
    Inconsistent,
}

impl Refusal {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Refusal; 10] = [
        Refusal::Malformed,
        Refusal::Foreign,
        Refusal::NoTask,
        Refusal::NotMemory,
        Refusal::NoAddress,
        Refusal::Kernel,
        Refusal::NotCanonical,
        Refusal::Cached,
        Refusal::Erratum,
        Refusal::Inconsistent,
    ];

    /// The reason in words.
    pub fn words(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::Foreign => "of a guest or hypervisor",
            Refusal::NoTask => "of no process",
            Refusal::NotMemory => "neither load nor store",
            Refusal::NoAddress => "without a valid address",
            Refusal::Kernel => "of kernel addresses",
            Refusal::NotCanonical => "of addresses that cannot be",
            Refusal::Cached => "answered by a cache",
            Refusal::Erratum => "unreliable by an erratum",
            Refusal::Inconsistent => "inconsistent",
        }
    }
}

/// How many samples were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    /// One more for this reason.
    pub fn count(&mut self, why: Refusal) {
        self.0[why as usize] += 1;
    }

    /// How many for this reason.
    pub fn of(&self, why: Refusal) -> u64 {
        self.0[why as usize]
    }

    /// How many in all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each reason that occurred, with its number.
    pub fn iter(&self) -> impl Iterator<Item = (Refusal, u64)> {
        (Refusal::ALL.into_iter().zip(self.0)).filter(|(_, times)| *times > 0)
    }
}

impl std::ops::AddAssign for Refusals {
    fn add_assign(&mut self, other: Refusals) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_as_they_are_listed() {
        for (number, why) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, number);
        }
        let mut counts = Refusals::default();
        counts.count(Refusal::Kernel);
        counts.count(Refusal::Kernel);
        counts += counts;
        assert_eq!(counts.iter().collect::<Vec<_>>(), [(Refusal::Kernel, 4)]);
        assert_eq!(counts.total(), 4);
    }
}
