//! The oracle: what a run would take if every page were where it should be, at no cost.
//!
//! It knows the true rate of each page and which node's CPUs make most of its accesses. Pages are taken
//! hottest first, each to the fastest node from there that has room. It is done again whenever the
//! rates change, but at most every 100 ms. Nothing faults, scans or interrupts; entries in TLBs follow
//! pages; and load counts as if spread over all memory. So no placement that costs anything is faster.
//!
//! A page keeps one frame number for good, so that what is cached of it stays cached.

use super::Source;
use crate::hardware::Hardware;
use crate::kernel::Kernel;
use crate::page::{Flags, HUGE_PAGES, MAX_NODES, Pte, Slot};
use crate::spec::MachineSpec;
use memtide_core::units::NodeId;

/// Time between placements, in nanoseconds.
const INTERVAL_NS: u64 = 100_000_000;

/// The oracle.
pub struct Oracle {
    /// Base pages of each node.
    capacity: Vec<(NodeId, u64)>,
    done: Option<(u64, u64)>,
    /// Folios: rate as bits (rates are not negative, so bits order as they do), node of the accessor,
    /// head.
    folios: Vec<(u32, u16, Slot)>,
    freed: usize,
}

impl Oracle {
    /// An oracle for `machine`; no page is placed yet.
    pub fn new(machine: &MachineSpec, scale: u32, kernel: &mut Kernel) -> Oracle {
        let capacity = machine.nodes.iter().filter(|node| node.capacity_bytes > 0);
        let first_cpu_node = machine.nodes.iter().find(|node| node.cpus > 0);
        let tables = NodeId(first_cpu_node.map_or(0, |node| node.id));
        for index in 0..kernel.regions.len() {
            let region = kernel.regions.get_mut(index);
            region.page_table_node = Some(tables);
            let flags = match region.plan.writable {
                true => Flags::WRITABLE.with(Flags::DIRTY),
                false => Flags(0),
            };
            let (huge, base) = (region.plan.huge, region.base);
            let whole = region.plan.pages / HUGE_PAGES * HUGE_PAGES;
            for slot in region.slots() {
                let huge = huge && slot - base < whole;
                let flags = if huge { flags.with(Flags::HUGE) } else { flags };
                kernel.ptes[slot as usize] = Pte::present(slot, tables, flags);
            }
        }
        Oracle {
            capacity: capacity
                .map(|node| {
                    let pages = node.capacity_bytes / 4096 / u64::from(scale);
                    (NodeId(node.id), pages)
                })
                .collect(),
            done: None,
            folios: Vec::new(),
            freed: 0,
        }
    }

    /// Places all pages by their true rates at `now_ns`, if that is due.
    pub fn place<W: Source>(
        &mut self,
        source: &W,
        kernel: &mut Kernel,
        hw: &mut Hardware,
        now_ns: u64,
    ) {
        let phase = source.phase(now_ns);
        let freed = kernel.regions.iter();
        let gone = |at: Option<u64>| at.is_some_and(|at| at <= now_ns);
        let freed = freed.filter(|r| gone(r.plan.freed_at_ns)).count();
        let due = match self.done {
            None => true,
            Some((last, at)) => {
                freed != self.freed || (phase != last && now_ns >= at + INTERVAL_NS)
            }
        };
        if !due {
            return;
        }
        self.done = Some((phase, now_ns));
        self.freed = freed;
        self.folios.clear();
        for index in 0..kernel.regions.len() {
            // Page tables lie where they are walked from.
            let node = NodeId(source.truth(index, 0, now_ns).node);
            if self.capacity.iter().any(|&(id, _)| id == node) {
                kernel.regions.get_mut(index).page_table_node = Some(node);
            }
        }
        for (index, region) in kernel.regions.iter().enumerate() {
            if gone(region.plan.freed_at_ns) {
                continue;
            }
            let mut slot = region.base;
            while slot < region.slots().end {
                let huge = kernel.ptes[slot as usize].has(Flags::HUGE);
                let pages = if huge { HUGE_PAGES } else { 1 };
                let truths =
                    (slot..slot + pages).map(|s| source.truth(index, s - region.base, now_ns));
                let (mut rate, mut node, mut most) = (0.0f32, 0, -1.0f32);
                for truth in truths {
                    rate += truth.rate;
                    if truth.rate > most {
                        (node, most) = (truth.node, truth.rate);
                    }
                }
                let rate = rate / pages as f32;
                self.folios.push((rate.max(0.0).to_bits(), node, slot));
                slot += pages;
            }
        }
        self.folios
            .sort_unstable_by_key(|&(rate, _, slot)| (std::cmp::Reverse(rate), slot));
        self.fill(kernel, hw);
        hw.memory_moved(&kernel.ptes);
    }

    fn fill(&mut self, kernel: &mut Kernel, hw: &Hardware) {
        let mut room = [0u64; MAX_NODES];
        for &(node, pages) in &self.capacity {
            room[node.index()] = pages;
        }
        let orders: Vec<Vec<NodeId>> = (0..MAX_NODES as u16)
            .map(|from| {
                let mut order: Vec<NodeId> = self.capacity.iter().map(|&(node, _)| node).collect();
                let idle = |to: &NodeId| hw.memory.idle_ns(NodeId(from), *to, false);
                order.sort_by(|a, b| idle(a).total_cmp(&idle(b)));
                order
            })
            .collect();
        for &(_, accessor, head) in &self.folios {
            let huge = kernel.ptes[head as usize].has(Flags::HUGE);
            let pages = if huge { HUGE_PAGES } else { 1 };
            let order = &orders[usize::from(accessor) % MAX_NODES];
            let fits = |node: &&NodeId| room[node.index()] >= u64::from(pages);
            // A machine that is too small for the workload is nothing that the oracle minds.
            let node = order.iter().find(fits).or(order.last());
            let Some(&node) = node else { return };
            room[node.index()] = room[node.index()].saturating_sub(u64::from(pages));
            for slot in head..head + pages {
                kernel.ptes[slot as usize].set_frame(slot, node);
            }
        }
    }
}
