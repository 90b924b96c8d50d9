//! What the simulated threads do: regions to map, threads that access them, and when they are done.
//!
//! A workload is an enum of the kinds in this folder, so that the engine's inner loop makes no
//! indirect call per access: it asks for a batch ([`Workload::fill`]) and goes through it.

use crate::page::Slot;
use crate::rng::Rng;

/// One access, packed: slot, first line of 64 bytes in the page, how many lines in order, store or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub u64);

impl Access {
    /// An access to `lines` (1 to 64) lines from `line` of `slot`.
    #[inline]
    #[must_use]
    pub fn new(slot: Slot, line: u32, lines: u32, write: bool) -> Access {
        Access(
            u64::from(slot)
                | (u64::from(line) << 32)
                | (u64::from(lines) << 38)
                | (u64::from(write) << 45),
        )
    }

    /// The page.
    #[inline]
    #[must_use]
    pub fn slot(self) -> Slot {
        self.0 as u32
    }

    /// The first line.
    #[inline]
    #[must_use]
    pub fn line(self) -> u32 {
        (self.0 >> 32) as u32 & 63
    }

    /// The same as a streaming store: it writes whole lines without reading them first, and leaves
    /// none in a cache.
    #[inline]
    #[must_use]
    pub fn streaming(slot: Slot, line: u32, lines: u32) -> Access {
        Access(Access::new(slot, line, lines, true).0 | 1 << 46)
    }

    /// Whether it is a streaming store.
    #[inline]
    #[must_use]
    pub fn is_streaming(self) -> bool {
        self.0 >> 46 & 1 == 1
    }

    /// How many lines.
    #[inline]
    #[must_use]
    pub fn lines(self) -> u32 {
        (self.0 >> 38) as u32 & 127
    }

    /// Whether it stores.
    #[inline]
    #[must_use]
    pub fn is_write(self) -> bool {
        self.0 >> 45 & 1 == 1
    }
}

/// How accesses of a thread follow one another; decides how many misses overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Each address comes from the one before.
    Dependent,
    /// Independent addresses.
    Random,
    /// In order.
    Sequential,
}

/// What memory a mapping has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anonymous.
    Anonymous,
    /// A file, private.
    PrivateFile,
    /// A file, shared.
    SharedFile,
}

/// A mapping that the workload asks for.
#[derive(Clone, Debug)]
pub struct RegionPlan {
    /// Its name, for reports.
    pub name: String,
    /// The address space, 0 to spaces - 1.
    pub space: u16,
    /// What memory.
    pub kind: Kind,
    /// The file that stands behind it, if any; equal numbers share pages.
    pub file: Option<u16>,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it has huge pages.
    pub huge: bool,
    /// Base pages, scaled already.
    pub pages: u32,
    /// First virtual page number (decides interleaving).
    pub start_vpn: u64,
    /// The policy under which it is populated: mode and nodes, as in the mempolicy model.
    pub policy: memtide_core::mempolicy::Policy,
    /// The policy in force once it is populated, which hint faults ask; `None`: the same.
    pub policy_after: Option<memtide_core::mempolicy::Policy>,
    /// Populated before the measured time starts (by a CPU of this node), or by first touch (`None`).
    pub populated_from: Option<u16>,
    /// Driven for bandwidth: a targeted interleave takes it.
    pub bandwidth: bool,
    /// Given back at this time of the measured run (the memory eater's end).
    pub freed_at_ns: Option<u64>,
}

/// A thread.
#[derive(Clone, Debug)]
pub struct ThreadPlan {
    /// Its address space.
    pub space: u16,
    /// The node whose CPUs it may use, by preference; the engine gives each a CPU of one of them.
    pub nodes: Vec<u16>,
    /// How its accesses follow one another.
    pub pattern: Pattern,
    /// Operations that retire per access (for samplers).
    pub ops_per_access: u32,
    /// Time per access that no memory is needed for.
    pub think_ns: f64,
    /// Threads of one group do the same; series and scores go by group.
    pub group: u16,
}

/// What a workload needs of the machine.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Mappings in order; region n's slots begin where those of n-1 end.
    pub regions: Vec<RegionPlan>,
    /// Threads in order.
    pub threads: Vec<ThreadPlan>,
    /// Stop at this time even if threads have accesses left (workloads measured by rate).
    pub ends_at_ns: Option<u64>,
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// So many accesses were written.
    Accesses(usize),
    /// It waits for the others (barrier); ask again next quantum.
    Waits,
    /// It is done.
    Done,
}

/// The true rate of a page, for the oracle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// Relative rate of accesses.
    pub rate: f32,
    /// The node of the CPUs that make most of them.
    pub node: u16,
}

/// A workload. Each kind is a variant with its own file.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Nothing: a machine at rest. (Owner scen adds the kinds.)
    Idle,
}

impl Workload {
    /// What it needs; `slots[n]` will be the first slot of region n.
    #[must_use]
    pub fn plan(&self) -> Plan {
        match self {
            Workload::Idle => Plan {
                regions: Vec::new(),
                threads: Vec::new(),
                ends_at_ns: None,
            },
        }
    }

    /// Told once, after mapping: the first slot of each region.
    pub fn mapped(&mut self, slots: &[Slot]) {
        let _ = slots;
    }

    /// The next accesses of `thread`, at `now_ns` of its clock since the measured start.
    pub fn fill(
        &mut self,
        thread: usize,
        now_ns: u64,
        rng: &mut Rng,
        batch: &mut [Access],
    ) -> Filled {
        let _ = (thread, now_ns, rng, batch);
        Filled::Done
    }

    /// The share that the slowest group of threads has done, 0 to 1.
    #[must_use]
    pub fn done(&self) -> f64 {
        1.0
    }

    /// A number that changes whenever the true rates do.
    #[must_use]
    pub fn phase(&self, now_ns: u64) -> u64 {
        let _ = now_ns;
        0
    }

    /// The true rate of page `page` of region `region` at `now_ns`.
    #[must_use]
    pub fn truth(&self, region: usize, page: u32, now_ns: u64) -> Truth {
        let _ = (region, page, now_ns);
        Truth { rate: 0.0, node: 0 }
    }
}
