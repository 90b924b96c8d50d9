//! Where the oracle puts pages for people to look at, and the groups of pages that the census counts by.

use super::super::Source;
use super::Oracle;
use crate::hardware::Hardware;
use crate::kernel::Kernel;
use crate::page::{Flags, HUGE_PAGES, MAX_NODES};
use memtide_core::units::NodeId;
use std::collections::BTreeMap;

impl Oracle {
    /// Takes all pages' true rates at `now_ns`.
    pub(super) fn place<W: Source>(
        &mut self,
        source: &W,
        kernel: &mut Kernel,
        hw: &Hardware,
        now_ns: u64,
    ) {
        let gone = |at: Option<u64>| at.is_some_and(|at| at <= now_ns);
        self.folios.clear();
        let mut groups: BTreeMap<(usize, u32, u16), u32> = BTreeMap::new();
        self.pages.clear();
        for index in 0..kernel.regions.len() {
            // Page tables lie where they are walked from.
            let node = NodeId(source.truth(index, 0, now_ns).node);
            if hw.memory.law(node).is_some() {
                kernel.regions.get_mut(index).page_table_node = Some(node);
            }
        }
        for (index, region) in kernel.regions.iter().enumerate() {
            let held = !gone(region.plan.freed_at_ns);
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
                let rate = (rate / pages as f32).max(0.0).to_bits();
                let next = self.pages.len() as u32;
                let group = *groups.entry((index, rate, node)).or_insert(next);
                if group == next {
                    self.pages.push(0);
                }
                self.group_of[slot as usize..(slot + pages) as usize].fill(group);
                if held {
                    self.pages[group as usize] += u64::from(pages);
                    self.folios.push((rate, node, slot));
                }
                slot += pages;
            }
        }
        self.folios
            .sort_unstable_by_key(|&(rate, _, slot)| (std::cmp::Reverse(rate), slot));
    }

    /// Puts the hottest pages on the nearest nodes.
    pub(super) fn fill(&mut self, kernel: &mut Kernel, hw: &Hardware) {
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
            // What no node has room for is shown on the last; the bound does not ask.
            let node = order.iter().find(fits).or(order.last());
            let Some(&node) = node else { return };
            room[node.index()] = room[node.index()].saturating_sub(u64::from(pages));
            for slot in head..head + pages {
                kernel.ptes[slot as usize].set_frame(slot, node);
            }
        }
    }
}
