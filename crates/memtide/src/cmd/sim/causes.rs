//! The causes of overhead, in the order in which tables and charts show them.

use memtide_sim::result::Overhead;

/// A cause: what it is called, what it is, and whether the application waits for it.
pub struct Cause {
    /// For column heads and legends.
    pub name: &'static str,
    /// For newcomers.
    pub about: &'static str,
    /// Whether it runs beside the application, in a kernel thread.
    pub beside: bool,
    get: fn(&Overhead) -> u64,
}

impl Cause {
    /// CPU time of it.
    pub fn ns(&self, overhead: &Overhead) -> u64 {
        (self.get)(overhead)
    }
}

macro_rules! causes {
    ($($field:ident $name:literal $beside:literal $about:literal,)*) => {
        /// All of them.
        pub const CAUSES: &[Cause] = &[$(Cause {
            name: $name,
            about: $about,
            beside: $beside,
            get: |overhead| overhead.$field,
        },)*];

        /// The sum.
        #[cfg(test)]
        fn every_field(overhead: &Overhead) -> u64 {
            let Overhead { $($field,)* } = overhead;
            0 $(+ $field)*
        }
    };
}

causes! {
    hint_fault_ns "hint faults" false "faults that are made on purpose, to see who accesses a page",
    fault_migration_ns "moves in faults" false "moving a page inside such a fault",
    sample_migration_ns "moves by samples" false "moving a page that a hardware sample found, in its task's time",
    numa_scan_ns "hint scan" false "making page-table entries fault next time",
    page_fault_ns "page faults" false "other faults: a page's first touch, a store to a write-protected one",
    shootdown_ns "shootdowns" false "telling other CPUs to forget a translation, and being told",
    migration_wait_ns "waits for moves" false "waiting for a page that is being moved",
    lazy_flush_ns "late flushes" false "of the shootdowns, those that lazy unmap flush made at last; for the sender",
    storage_ns "storage" false "waiting for a file to be read",
    direct_reclaim_ns "direct reclaim" false "making room before memory can be had",
    sampler_ns "sampler" false "interrupts of the hardware sampler",
    sample_work_ns "sample work" false "looking up and recording its samples",
    kmigrated_ns "kmigrated" true "threads that move hot pages",
    kswapd_ns "kswapd" true "threads that make room",
    page_table_scan_ns "page-table scan" true "reading and clearing accessed bits",
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pattern in `every_field` names every field, so a new cause does not compile without a row.
    #[test]
    fn every_cause_is_shown_once() {
        let overhead = Overhead {
            hint_fault_ns: 1,
            kswapd_ns: 20,
            page_table_scan_ns: 300,
            ..Overhead::default()
        };
        let sum: u64 = CAUSES.iter().map(|cause| cause.ns(&overhead)).sum();
        assert_eq!((sum, every_field(&overhead)), (321, 321));
    }
}
