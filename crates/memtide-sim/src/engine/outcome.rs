//! What a run leaves: everything that was counted, in figures of the real machine.

use super::series::{Heat, Totals};
use super::{PS, Run, Source};
use crate::kernel::{Lazy, counts_once};
use crate::page::MAX_NODES;
use crate::result::{Balancing, BalancingCause, Checked, LufCounts, Overhead, Placed, RunResult};
use memtide_core::balancing::sampled::Cause;
use memtide_core::lazy_flush;
use memtide_core::units::NodeId;
use memtide_core::vmstat::{Counter, Counters};
use memtide_loop::options::BalanceOptions;

impl<W: Source> Run<W> {
    fn totals(&self) -> Totals {
        let nodes = 0..MAX_NODES as u16;
        let bytes = |node| {
            let (read, written) = self.hw.memory.bytes(NodeId(node));
            read + written
        };
        let mut totals = Totals {
            seconds: self.now_ps as f64 * 1e-12,
            pages_migrated: self.pages_migrated(),
            done: self.done(),
            served: self.tally.served.iter().sum(),
            heat: Heat(self.tally.heat),
            programs: self.parts(),
            ..Totals::default()
        };
        for node in nodes {
            let id = NodeId(node);
            totals.bytes[id.index()] = bytes(node);
            totals.latency_ns[id.index()] = self.hw.memory.nearest_ns(id, false);
            if self.kernel.topology.is_top_tier(id) {
                totals.served_fast += self.tally.served[id.index()];
            }
        }
        totals
    }

    /// Pages that balancing or promotion moved. What the kernel counts as promoted it also counts as
    /// moved by balancing where hint faults led to it.
    fn pages_migrated(&self) -> u64 {
        let counters = &self.kernel.counters;
        counters
            .get(Counter::NumaPagesMigrated)
            .max(counters.get(Counter::PgpromoteSuccess))
    }

    pub(super) fn record(&mut self) {
        let totals = self.totals();
        self.recorder.record(totals);
    }

    /// The result so far.
    pub fn result(mut self) -> RunResult {
        let s = self.scale;
        if self.ends_at_ps.is_none() {
            // The last point is that of the end, when all has been carried.
            let last_ps = self.threads.iter().map(|thread| thread.clock_ps).max();
            self.now_ps = self.now_ps.max(last_ps.unwrap_or(0));
            self.hw.memory.finish();
        }
        self.record();
        let totals = self.totals();
        let finished_ps = match self.ends_at_ps {
            Some(end) => end,
            None => self.threads.iter().map(|t| t.clock_ps).max().unwrap_or(0),
        };
        let seconds = finished_ps as f64 * 1e-12;
        let mut counters = Counters::ZERO;
        for (counter, value) in self.kernel.counters.iter() {
            counters.add(counter, value * s);
        }
        let nodes = self.kernel.topology.nodes();
        let nodes: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        let regions = 0..self.kernel.regions.len();
        let mut at_end = [0; MAX_NODES];
        for region in regions {
            for (sum, pages) in at_end.iter_mut().zip(self.kernel.pages_by_node(region)) {
                *sum += pages;
            }
        }
        let by_node = |pages: &[u64; MAX_NODES]| -> Vec<u64> {
            nodes.iter().map(|node| pages[node.index()] * s).collect()
        };
        // Memory that the run itself touched first was placed during the run.
        let placed = (0..self.kernel.regions.len()).map(|region| {
            let touched_first = self
                .kernel
                .regions
                .get(region)
                .plan
                .populated_from
                .is_none();
            match touched_first {
                true => self.kernel.pages_by_node(region),
                false => self.placed[region],
            }
        });
        let placed = self.kernel.regions.iter().zip(placed);
        let (programs, fairness) = self.program_results(finished_ps);
        let mut result = RunResult {
            configuration: self.configuration.name.clone(),
            seconds,
            // What counts as a score is for who knows the workload to say.
            score: None,
            counters,
            tlb_shootdowns: self.hw.counters.tlb_shootdowns * s,
            tlb_flushes: self.hw.counters.cpu_flushes * s,
            tlb_misses: self.tally.tlb_misses.iter().sum::<u64>() * s,
            dtlb_load_misses: self.tally.tlb_misses[0] * s,
            dtlb_store_misses: self.tally.tlb_misses[1] * s,
            itlb_misses: self.tally.tlb_misses[2] * s,
            luf: self.kernel.lazy.as_ref().map(|lazy| luf_counts(lazy, s)),
            checked: self.kernel.contents.as_ref().map(|contents| Checked {
                accesses: contents.checked(),
                wrong: contents.wrong(),
                first: contents.first().map(|stale| stale.to_string()),
            }),
            home: None,
            overhead: self.overhead(),
            balancing: self.balancing(seconds),
            tiering: None,
            memtide_balance: None,
            estimate: None,
            accesses: self.tally.accesses,
            fast_share: match totals.served {
                0 => 1.0,
                served => totals.served_fast as f64 / served as f64,
            },
            pages_by_node: by_node(&at_end),
            placed: placed
                .map(|(region, pages)| Placed {
                    region: region.plan.name.clone(),
                    pages: by_node(&pages),
                })
                .collect(),
            bytes_per_s: nodes
                .iter()
                .map(|node| totals.bytes[node.index()] as f64 / seconds.max(1e-12))
                .collect(),
            series: (self.recorder).series(s, self.heat_groups(), self.heat_parts()),
            group_seconds: self.group_seconds(),
            programs,
            fairness,
        };
        if let Some(oracle) = &mut self.oracle {
            oracle.conclude(&self.hw, finished_ps as f64 / PS as f64, &mut result);
        }
        result
    }

    fn group_seconds(&self) -> Vec<f64> {
        let mut seconds = Vec::new();
        for thread in &self.threads {
            let group = usize::from(thread.plan.group);
            if seconds.len() <= group {
                seconds.resize(group + 1, 0.0);
            }
            seconds[group] = f64::max(seconds[group], (thread.clock_ps / PS) as f64 * 1e-9);
        }
        seconds
    }

    /// What balancing cost. Where samples feed promotion instead, they are none of its causes.
    fn balancing(&self, seconds: f64) -> Balancing {
        let s = self.scale;
        let mut account = self.kernel.balance.account().times(s);
        let sampled = |options: &BalanceOptions| !options.source.is_of_faults();
        let by_loop = self.configuration.balance.as_ref().is_some_and(sampled);
        if self.configuration.samples.is_some() || by_loop {
            let interrupt_ns = self.hw.costs.sample_interrupt_ns as u64;
            let taken = self.tally.samples * s;
            account.add(Cause::Interrupt, taken, taken * interrupt_ns);
        }
        let causes = Cause::ALL
            .into_iter()
            .map(|cause| (cause, account.of(cause)));
        Balancing {
            causes: causes
                .map(|(cause, entry)| BalancingCause {
                    cause,
                    events: entry.events,
                    ns: entry.ns,
                })
                .collect(),
            pages_moved: account.pages_moved,
            pages_failed: account.pages_failed,
            ns_a_page: account.ns_a_page(),
            pages_a_second: account.pages_a_second((seconds * 1e9) as u64),
        }
    }

    fn overhead(&self) -> Overhead {
        let o = &self.kernel.overhead;
        let s = self.scale;
        let interrupt_ns = self.hw.costs.sample_interrupt_ns as u64;
        Overhead {
            hint_fault_ns: o.hint_fault_ns * s,
            fault_migration_ns: o.fault_migration_ns * s,
            sample_migration_ns: o.sample_migration_ns * s,
            numa_scan_ns: o.numa_scan_ns * s,
            page_fault_ns: o.page_fault_ns * s,
            shootdown_ns: (o.shootdown_ns + self.hw.counters.shootdown_ns) * s,
            migration_wait_ns: o.migration_wait_ns * s,
            direct_reclaim_ns: o.direct_reclaim_ns * s,
            lazy_flush_ns: o.lazy_flush_ns * s,
            storage_ns: o.storage_ns * s,
            sampler_ns: (o.sampler_ns + self.tally.samples * interrupt_ns) * s,
            sample_work_ns: o.sample_work_ns * s,
            kmigrated_ns: o.kmigrated_ns * s,
            kswapd_ns: o.kswapd_ns * s,
            page_table_scan_ns: o.page_table_scan_ns * s,
        }
    }
}

/// Lazy flushing's counts, those of pages times `s`; causes and reasons that never occurred are left out.
fn luf_counts(lazy: &Lazy, s: u64) -> LufCounts {
    let tally = lazy.tally();
    let counted = |(_, count): &(String, u64)| *count > 0;
    let forced = lazy_flush::Cause::ALL.iter().zip(tally.forced);
    let refused = lazy.refusals();
    LufCounts {
        deferred: tally.deferred * s,
        paused: tally.refused * s,
        refused: refused
            .map(|(why, count)| (why.to_string(), count * s))
            .filter(counted)
            .collect(),
        at_use: tally.at_use,
        // A page that needs a flush stands for S pages: the others find it done.
        satisfied: tally.satisfied * s + tally.at_use * (s - 1),
        covered: tally.covered,
        forced: forced
            .map(|(&cause, count)| {
                let times = if counts_once(cause) { 1 } else { s };
                (cause.name().to_owned(), count * times)
            })
            .filter(counted)
            .collect(),
    }
}
