//! What balancing costs, by cause, and by page moved.
//!
//! The document's table has three causes for samples (the interrupt, the work
//! that it leaves for the task, the context switch that sets the sampler anew)
//! and two for hint faults. Here are those, what batches add, and what the document
//! leaves out: waiting for pages on the move, and the interrupts of other CPUs.

use serde::Serialize;

/// What time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Hint faults and write faults, without moves.
    Fault,
    /// Arming pages for hint faults, or protecting them for write faults.
    Scan,
    /// Samples' interrupts.
    Interrupt,
    /// Reading and counting samples.
    Sample,
    /// Setting the sampler anew for another task.
    Switch,
    /// Deciding what a batch does.
    Decide,
    /// Moving pages.
    Move,
    /// Tasks' waiting for pages on the move.
    Wait,
    /// Other CPUs' interrupts, to forget where pages were.
    Shootdown,
}

impl Cause {
    /// All, in the table's order.
    pub const ALL: [Cause; 9] = [
        Cause::Fault,
        Cause::Scan,
        Cause::Interrupt,
        Cause::Sample,
        Cause::Switch,
        Cause::Decide,
        Cause::Move,
        Cause::Wait,
        Cause::Shootdown,
    ];
}

/// What one cause came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// How often.
    pub events: u64,
    /// How long in all, in ns.
    pub ns: u64,
}

/// All causes, and the pages that moved for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    entries: [Entry; Cause::ALL.len()],
    /// Base pages moved.
    pub pages_moved: u64,
    /// Base pages that could not be moved.
    pub pages_failed: u64,
}

impl Account {
    /// Books `events` that took `ns` together.
    #[inline]
    pub fn add(&mut self, cause: Cause, events: u64, ns: u64) {
        let entry = &mut self.entries[cause as usize];
        entry.events += events;
        entry.ns += ns;
    }

    /// Everything `times` as often.
    #[must_use]
    pub fn times(&self, times: u64) -> Account {
        Account {
            entries: self.entries.map(|entry| Entry {
                events: entry.events * times,
                ns: entry.ns * times,
            }),
            pages_moved: self.pages_moved * times,
            pages_failed: self.pages_failed * times,
        }
    }

    /// What a cause came to.
    #[must_use]
    pub fn of(&self, cause: Cause) -> Entry {
        self.entries[cause as usize]
    }

    /// Everything, in ns.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.entries.iter().map(|entry| entry.ns).sum()
    }

    /// The cost of a page that moved, in ns; `None` if none did.
    #[must_use]
    pub fn ns_a_page(&self) -> Option<u64> {
        self.total_ns().checked_div(self.pages_moved)
    }

    /// Of a cause alone.
    #[must_use]
    pub fn ns_a_page_of(&self, cause: Cause) -> Option<u64> {
        self.of(cause).ns.checked_div(self.pages_moved)
    }

    /// Pages moved a second over `elapsed_ns`.
    #[must_use]
    pub fn pages_a_second(&self, elapsed_ns: u64) -> u64 {
        let pages = u128::from(self.pages_moved) * 1_000_000_000;
        pages
            .checked_div(u128::from(elapsed_ns))
            .map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn document_004s_table_comes_out_of_its_sums() {
        // Its figures for samples, in us: 2,602,455 in interrupts, 24,008,121 in
        // task work, 37,712 at context switches; 511,791 pages in 40.323293 s.
        let mut account = Account {
            pages_moved: 511_791,
            ..Account::default()
        };
        account.add(Cause::Interrupt, 1, 2_602_455_000);
        account.add(Cause::Move, 1, 24_008_121_000);
        account.add(Cause::Switch, 1, 37_712_000);
        assert_eq!(account.total_ns() / 1000, 26_648_288);
        assert_eq!(account.ns_a_page().unwrap() / 1000, 52);
        assert_eq!(account.pages_a_second(40_323_293_000), 12_692);
        // And for hint faults: 1371 us a page.
        let mut account = Account {
            pages_moved: 2_097_220,
            ..Account::default()
        };
        account.add(Cause::Fault, 38_589_520, 2_875_354_862_000);
        account.add(Cause::Scan, 1, 139_023_000);
        assert_eq!(account.ns_a_page().unwrap() / 1000, 1371);
        assert_eq!(account.pages_a_second(160_171_762_000), 13_093);
        assert_eq!(Account::default().ns_a_page(), None);
    }
}
