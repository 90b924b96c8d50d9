//! Counters under the names that the kernel prints in `/proc/vmstat`.
//!
//! [`Counters`] is what memtide counts itself: dense, and zero means zero.
//! [`Snapshot`] is what a kernel printed: a counter that it lacks is `None`,
//! because an old kernel's silence is not a zero.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::fmt;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A counter. Units are base pages unless its text says events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Counter { $($(#[$doc])* $variant,)* }

        impl Counter {
            /// Every counter, in the order in which they print.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)*];

            /// The kernel's name of it.
            pub fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)* }
            }

            /// The counter of that name.
            pub fn from_name(name: &str) -> Option<Counter> {
                match name { $($name => Some(Counter::$variant),)* _ => None }
            }
        }
    };
}

counters! {
    /// Allocations that landed on the intended node.
    NumaHit = "numa_hit",
    /// Allocations that landed here although another node was intended.
    NumaMiss = "numa_miss",
    /// Allocations intended for here that landed elsewhere.
    NumaForeign = "numa_foreign",
    /// Interleaved allocations that landed as intended.
    NumaInterleave = "numa_interleave",
    /// Allocations on the allocating CPU's node.
    NumaLocal = "numa_local",
    /// Allocations on another node than the allocating CPU's.
    NumaOther = "numa_other",
    /// Page faults of any kind (events).
    Pgfault = "pgfault",
    /// Page faults that had to read a file (events).
    Pgmajfault = "pgmajfault",
    /// Pages that were freed.
    Pgfree = "pgfree",
    /// Pages that background reclaim looked at.
    PgscanKswapd = "pgscan_kswapd",
    /// Pages that a waiting allocation's reclaim looked at.
    PgscanDirect = "pgscan_direct",
    /// Pages that proactive reclaim looked at.
    PgscanProactive = "pgscan_proactive",
    /// Pages that background reclaim freed or demoted.
    PgstealKswapd = "pgsteal_kswapd",
    /// Pages that a waiting allocation's reclaim freed or demoted.
    PgstealDirect = "pgsteal_direct",
    /// Pages that proactive reclaim freed or demoted.
    PgstealProactive = "pgsteal_proactive",
    /// Pages that became active.
    Pgactivate = "pgactivate",
    /// Pages that became inactive.
    Pgdeactivate = "pgdeactivate",
    /// Allocations that had to reclaim for themselves (events). The kernel has one counter a zone,
    /// `allocstall_normal` among them.
    Allocstall = "allocstall_normal",
    /// Huge pages that faults mapped (events).
    ThpFaultAlloc = "thp_fault_alloc",
    /// Faults that found no huge page and mapped base pages (events).
    ThpFaultFallback = "thp_fault_fallback",
    /// Page-table entries armed for hint faults.
    NumaPteUpdates = "numa_pte_updates",
    /// Huge entries armed for hint faults (events).
    NumaHugePteUpdates = "numa_huge_pte_updates",
    /// Hint faults (events).
    NumaHintFaults = "numa_hint_faults",
    /// Hint faults on the page's own node (events).
    NumaHintFaultsLocal = "numa_hint_faults_local",
    /// Pages that NUMA balancing moved.
    NumaPagesMigrated = "numa_pages_migrated",
    /// Pages moved for any reason.
    PgmigrateSuccess = "pgmigrate_success",
    /// Pages that could not be moved.
    PgmigrateFail = "pgmigrate_fail",
    /// Pages promoted.
    PgpromoteSuccess = "pgpromote_success",
    /// Pages past the gate's latency test, admitted or not.
    PgpromoteCandidate = "pgpromote_candidate",
    /// Pages that the gate let in because there was room ("not rate limited").
    PgpromoteCandidateNrl = "pgpromote_candidate_nrl",
    /// Pages demoted in the background.
    PgdemoteKswapd = "pgdemote_kswapd",
    /// Pages demoted by an allocation that had to wait.
    PgdemoteDirect = "pgdemote_direct",
    /// Pages demoted on behalf of huge-page collapse.
    PgdemoteKhugepaged = "pgdemote_khugepaged",
    /// Pages demoted because user space asked.
    PgdemoteProactive = "pgdemote_proactive",
    /// Accesses that reached the hotness store, all sources (events).
    PghotRecordedAccesses = "pghot_recorded_accesses",
    /// Hardware samples reported (events).
    PghotRecordedHwhints = "pghot_recorded_hwhints",
    /// Accessed bits reported (events).
    PghotRecordedPgtscans = "pghot_recorded_pgtscans",
    /// Hint faults reported (events).
    PghotRecordedHintfaults = "pghot_recorded_hintfaults",
    /// DAMON region accesses reported (events). Ours: the kernel has no such source.
    PghotRecordedDamon = "pghot_recorded_damon",
    /// Hardware samples taken (events).
    HwhintTotalEvents = "hwhint_total_events",
    /// Hardware samples that found their buffer full (events).
    HwhintDroppedEvents = "hwhint_dropped_events",
    /// Hardware samples that DRAM served (events).
    HwhintDramAccesses = "hwhint_dram_accesses",
    /// Hardware samples that extension memory served (events).
    HwhintExtmemAccesses = "hwhint_extmem_accesses",
    /// Hardware samples that named a page worth recording (events).
    HwhintUsefulEvents = "hwhint_useful_events",
}

const COUNT: usize = Counter::ALL.len();

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Counter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for Counter {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Counter, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Counter::from_name(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("no counter is called {name:?}")))
    }
}

/// One value a counter. Serialises as a map from name to value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters([u64; COUNT]);

impl Counters {
    /// All zero.
    pub const ZERO: Counters = Counters([0; COUNT]);

    /// The counter's value.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Adds `amount` to the counter.
    pub fn add(&mut self, counter: Counter, amount: u64) {
        self.0[counter as usize] += amount;
    }

    /// Adds everything that another set counted, such as another thread's.
    pub fn merge(&mut self, other: &Counters) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters(std::array::from_fn(|i| {
            self.0[i].saturating_sub(earlier.0[i])
        }))
    }

    /// Every counter with its value, in printing order.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().map(|&c| (c, self.get(c)))
    }
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::ZERO
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// What a kernel printed. Serialises as a map of the counters that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot([Option<u64>; COUNT]);

impl Snapshot {
    /// Reads `/proc/vmstat`'s text: a name and a number on each line. Names
    /// that memtide has no use for are passed over, and so is a line whose
    /// number cannot be read: its counter stays unknown.
    pub fn parse(text: &str) -> Snapshot {
        let mut values = [None; COUNT];
        for line in text.lines() {
            if let Some((name, value)) = line.split_once(' ')
                && let Some(counter) = Counter::from_name(name)
            {
                values[counter as usize] = value.trim().parse().ok();
            }
        }
        Snapshot(values)
    }

    /// The counter's value, `None` if this kernel does not print it.
    pub fn get(&self, counter: Counter) -> Option<u64> {
        self.0[counter as usize]
    }

    /// How much the counter grew since `earlier`, if both have it.
    pub fn grown(&self, earlier: &Snapshot, counter: Counter) -> Option<u64> {
        Some(self.get(counter)?.saturating_sub(earlier.get(counter)?))
    }
}

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for &counter in Counter::ALL {
            if let Some(value) = self.get(counter) {
                map.serialize_entry(&counter, &value)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_found_by_the_name_it_prints() {
        for (i, &counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(counter as usize, i);
            assert_eq!(Counter::from_name(&counter.to_string()), Some(counter));
        }
    }

    #[test]
    fn a_counter_that_the_kernel_lacks_is_unknown_and_not_zero() {
        let old = Snapshot::parse("nr_free_pages 12\nnuma_hit 5\npgpromote_success 0\n");
        let new = Snapshot::parse("numa_hit 9\npgpromote_success x\n");
        assert_eq!(old.get(Counter::PgpromoteSuccess), Some(0));
        assert_eq!(old.get(Counter::PgpromoteCandidateNrl), None);
        assert_eq!(new.get(Counter::PgpromoteSuccess), None);
        assert_eq!(new.grown(&old, Counter::NumaHit), Some(4));
        assert_eq!(new.grown(&old, Counter::PgpromoteSuccess), None);
    }

    #[test]
    fn threads_count_apart_and_add_up() {
        let mut a = Counters::ZERO;
        let mut b = Counters::ZERO;
        a.add(Counter::NumaHintFaults, 2);
        b.add(Counter::NumaHintFaults, 3);
        let before = a.clone();
        a.merge(&b);
        assert_eq!(a.get(Counter::NumaHintFaults), 5);
        assert_eq!(a.since(&before).get(Counter::NumaHintFaults), 3);
    }
}
