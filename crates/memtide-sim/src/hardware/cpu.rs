//! A CPU: its TLB, its sampler, and the time that interrupts took from it.
//!
//! A CPU keeps translations of several address spaces, as one with process-context identifiers does: a
//! switch between programs flushes nothing. It has [`SPACES`] identifiers; the space that was not used
//! for longest gives its own to a new one. Tags are slots, which belong to one space each, so entries
//! of different spaces never meet.

use super::sampler::Sampler;
use super::tlb::Tlb;
use crate::spec::CpuSpec;
use memtide_core::units::NodeId;

/// Address spaces of which a CPU keeps translations at the same time.
pub const SPACES: usize = 6;

/// A CPU.
pub struct Cpu {
    /// Its node.
    pub node: NodeId,
    /// Its last-level cache's number.
    pub domain: u32,
    /// Its translations.
    pub tlb: Tlb,
    /// Its sampler.
    pub sampler: Sampler,
    /// What interrupts took since the engine last charged it to a thread; not times the scale.
    pub stolen_ns: u64,
    /// The spaces of its translations, the one that runs last.
    spaces: Vec<u16>,
}

impl Cpu {
    /// A CPU of `node` in cache domain `domain`, with a TLB scaled down by `scale`.
    #[must_use]
    pub fn new(spec: &CpuSpec, scale: u32, node: NodeId, domain: u32) -> Cpu {
        Cpu {
            node,
            domain,
            tlb: Tlb::new(spec, scale),
            sampler: Sampler::default(),
            stolen_ns: 0,
            spaces: Vec::with_capacity(SPACES),
        }
    }

    /// Whether `space` is the one that runs, or ran last.
    #[must_use]
    pub fn runs(&self, space: u16) -> bool {
        self.spaces.last() == Some(&space)
    }

    /// The spaces of which it may have translations.
    #[must_use]
    pub fn spaces(&self) -> &[u16] {
        &self.spaces
    }

    /// A thread of `space` runs next. Returns the space that lost its identifier, whose translations
    /// are gone.
    pub fn enter(&mut self, space: u16, space_of: &SpaceOf) -> Option<u16> {
        if self.runs(space) {
            return None;
        }
        let known = self.spaces.iter().position(|&other| other == space);
        let lost = match known {
            Some(at) => {
                self.spaces.remove(at);
                None
            }
            None => (self.spaces.len() == SPACES).then(|| self.spaces[0]),
        };
        if let Some(lost) = lost {
            self.forget(lost, space_of);
        }
        self.spaces.push(space);
        lost
    }

    /// Nothing runs any more, and nothing is left behind.
    pub fn leave(&mut self) {
        self.tlb.flush_all();
        self.spaces.clear();
    }

    /// Forgets all translations of `space`, and that it had any. Whether none at all is left.
    pub fn forget(&mut self, space: u16, space_of: &SpaceOf) -> bool {
        let empty = self.flush_space(space, space_of);
        self.spaces.retain(|&other| other != space);
        empty
    }

    /// Forgets all translations of `space`. Whether none at all is left.
    pub fn flush_space(&mut self, space: u16, space_of: &SpaceOf) -> bool {
        match self.spaces.as_slice() {
            [only] if *only == space => {
                self.tlb.flush_all();
                true
            }
            several if several.contains(&space) => {
                self.tlb.flush_where(|slot| space_of.of(slot) == space);
                false
            }
            _ => false,
        }
    }
}

/// The space of each mapping's slots. Regions begin at multiples of 512 slots, so one entry for as many
/// is enough.
#[derive(Clone, Debug, Default)]
pub struct SpaceOf(Vec<u16>);

impl SpaceOf {
    const SHIFT: u32 = 9;

    /// Of mappings in the order of their slots: their spaces and pages.
    #[must_use]
    pub fn new(mappings: impl Iterator<Item = (u16, u32)>) -> SpaceOf {
        let blocks = mappings.flat_map(|(space, pages)| {
            let blocks = pages.div_ceil(1 << SpaceOf::SHIFT);
            std::iter::repeat_n(space, blocks as usize)
        });
        SpaceOf(blocks.collect())
    }

    fn of(&self, slot: crate::page::Slot) -> u16 {
        let block = (slot >> SpaceOf::SHIFT) as usize;
        self.0.get(block).copied().unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::tlb::{Found, Translation};
    use crate::kernel::testing::machine;

    fn cpu() -> Cpu {
        let spec = machine(&[(4096, 1)], 0);
        Cpu::new(&spec.cpu, 1, NodeId(0), 0)
    }

    #[test]
    fn translations_outlive_a_switch_to_another_space() {
        // 600 pages are two blocks: space 1 begins at slot 1024.
        let space_of = SpaceOf::new([(0, 600), (1, 10)].into_iter());
        let mut cpu = cpu();
        let to = |frame| Translation::new(frame, 0, false);
        cpu.enter(0, &space_of);
        cpu.tlb.insert(599, false, to(7));
        cpu.enter(1, &space_of);
        cpu.tlb.insert(1024, false, to(8));
        cpu.enter(0, &space_of);
        assert_eq!(cpu.tlb.find(599, false), Found::First(to(7)));
        // One space forgets, the other keeps what it has.
        assert!(!cpu.flush_space(0, &space_of));
        assert_eq!(cpu.tlb.find(599, false), Found::Nothing);
        assert_eq!(cpu.tlb.find(1024, false), Found::First(to(8)));
    }

    #[test]
    fn the_seventh_space_takes_the_place_of_the_oldest() {
        let space_of = SpaceOf::new((0..8).map(|space| (space, 1)));
        let mut cpu = cpu();
        for space in 0..6 {
            assert_eq!(cpu.enter(space, &space_of), None);
            cpu.tlb
                .insert(u32::from(space) * 512, false, Translation::new(1, 0, false));
        }
        cpu.enter(0, &space_of);
        assert_eq!(cpu.enter(6, &space_of), Some(1));
        assert_eq!(cpu.tlb.find(512, false), Found::Nothing);
        assert_ne!(cpu.tlb.find(0, false), Found::Nothing);
        assert_eq!(cpu.spaces(), [2, 3, 4, 5, 0, 6]);
    }
}
