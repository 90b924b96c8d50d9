//! Shootdowns: making every CPU of a space forget translations.
//!
//! The CPU that changes a page table interrupts all others on which the space ran, and waits. It pays
//! for sending and a little for each receiver; a receiver loses the time of its handler, which the
//! engine takes from whatever thread runs there next. More than [`FULL_FLUSH_PAGES`] pages are not
//! flushed one by one: everything of the space goes, as in the kernel. Batches of unmaps, of whatever
//! spaces, end with one flush of everything on the CPUs that run one of them.
//!
//! Only a CPU that runs the space is interrupted. One that ran it before and kept its translations drops
//! them when it comes back.

use super::Hardware;
use crate::page::{MAX_CPUS, Slot};

/// More pages than this are flushed by dropping all translations.
pub const FULL_FLUSH_PAGES: usize = 33;

/// A set of CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet([u64; MAX_CPUS / 64]);

impl CpuSet {
    /// Adds all of another.
    pub fn add(&mut self, other: &CpuSet) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(own, more)| *own |= more);
    }

    /// Takes all of another out.
    pub fn subtract(&mut self, other: &CpuSet) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(own, less)| *own &= !less);
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u32) {
        self.0[cpu as usize / 64] |= 1 << (cpu % 64);
    }

    /// Takes a CPU out.
    pub fn remove(&mut self, cpu: u32) {
        self.0[cpu as usize / 64] &= !(1 << (cpu % 64));
    }

    /// Whether it is in.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0[cpu as usize / 64] >> (cpu % 64) & 1 == 1
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let words = self.0;
        (0..words.len()).flat_map(move |index| {
            let mut word = words[index];
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(index as u32 * 64 + bit)
            })
        })
    }
}

impl Hardware {
    /// Makes every CPU of `space` forget the pages `slots` (the head stands for a huge page), on
    /// behalf of `from_cpu`, or of a kernel thread. Returns the nanoseconds that the caller pays.
    pub fn flush_pages(&mut self, space: u16, slots: &[Slot], from_cpu: Option<u32>) -> u64 {
        if slots.is_empty() {
            return 0;
        }
        let running = self.forget(space, slots);
        self.interrupt(running, from_cpu)
    }

    /// The same without interrupts: for a flush that stands for less than one of the real machine.
    pub fn forget_pages(&mut self, space: u16, slots: &[Slot]) {
        self.forget(space, slots);
    }

    fn forget(&mut self, space: u16, slots: &[Slot]) -> CpuSet {
        let running = self.reach(space);
        for cpu in running.iter() {
            let own = &mut self.cpus[cpu as usize];
            if slots.len() > FULL_FLUSH_PAGES {
                if own.flush_space(space, &self.space_of) {
                    self.emptied.insert(cpu);
                }
            } else {
                slots.iter().for_each(|&slot| own.tlb.flush_page(slot));
            }
        }
        running
    }

    /// Makes every CPU of `space` forget all of it, without interrupts: for a flush whose cost is
    /// charged elsewhere.
    pub fn forget_space(&mut self, space: u16) {
        let running = self.reach(space);
        for cpu in running.iter() {
            if self.cpus[cpu as usize].flush_space(space, &self.space_of) {
                self.emptied.insert(cpu);
            }
        }
    }

    /// Makes every CPU of `space` forget all of it.
    pub fn flush_space(&mut self, space: u16, from_cpu: Option<u32>) -> u64 {
        let running = self.reach(space);
        for cpu in running.iter() {
            if self.cpus[cpu as usize].flush_space(space, &self.space_of) {
                self.emptied.insert(cpu);
            }
        }
        self.interrupt(running, from_cpu)
    }

    /// Makes these CPUs forget everything, in one flush: what ends a batch of unmaps of many spaces.
    pub fn flush_cpus(&mut self, cpus: CpuSet, from_cpu: Option<u32>) -> u64 {
        if cpus.is_empty() {
            return 0;
        }
        self.empty_cpus(cpus);
        self.interrupt(cpus, from_cpu)
    }

    /// The same without interrupts, for a flush whose cost is charged with another one.
    pub fn empty_cpus(&mut self, cpus: CpuSet) {
        for cpu in cpus.iter() {
            self.cpus[cpu as usize].tlb.flush_all();
            self.emptied.insert(cpu);
        }
    }

    /// The CPUs that run `space` now, which must be interrupted for a flush. Those that only kept
    /// translations of it forget them: a CPU compares the space's number of flushes when it comes back
    /// to it, and drops what it has if it missed one. As nothing looks there meanwhile, that is done
    /// here.
    pub fn reach(&mut self, space: u16) -> CpuSet {
        let mut running = self.cpus_of_space(space);
        for cpu in running.iter() {
            let own = &mut self.cpus[cpu as usize];
            if !own.runs(space) {
                if own.forget(space, &self.space_of) {
                    self.emptied.insert(cpu);
                }
                running.remove(cpu);
                self.spaces[usize::from(space)].remove(cpu);
            }
        }
        running
    }

    /// The CPUs that forgot everything, whoever asked for it, since this was asked last.
    pub fn take_emptied(&mut self) -> CpuSet {
        std::mem::take(&mut self.emptied)
    }

    /// Interrupts `cpus` except the caller's.
    fn interrupt(&mut self, mut cpus: CpuSet, from_cpu: Option<u32>) -> u64 {
        self.counters.tlb_flushes += 1;
        self.counters.cpu_flushes += u64::from(cpus.len());
        if let Some(cpu) = from_cpu {
            cpus.remove(cpu);
        }
        let receivers = u64::from(cpus.len());
        if receivers == 0 {
            return 0;
        }
        let receive_ns = self.costs.ipi_receive_ns as u64;
        for cpu in cpus.iter() {
            self.cpus[cpu as usize].stolen_ns += receive_ns;
        }
        let send_ns = (self.costs.ipi_send_ns + receivers as f64 * self.costs.ipi_each_ns) as u64;
        self.counters.tlb_shootdowns += receivers;
        self.counters.shootdown_ns += send_ns + receivers * receive_ns;
        send_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_cpus_lists_what_was_put_in() {
        let mut set = CpuSet::default();
        for cpu in [511, 0, 64, 63] {
            set.insert(cpu);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 511]);
        assert_eq!(set.len(), 4);
        set.remove(64);
        assert!(!set.contains(64) && set.contains(63) && !set.is_empty());
    }
}
