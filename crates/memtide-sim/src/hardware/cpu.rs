//! A CPU: its TLB, its sampler, and the time that interrupts took from it.

use super::sampler::Sampler;
use super::tlb::Tlb;
use crate::spec::CpuSpec;
use memtide_core::units::NodeId;

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
    space: Option<u16>,
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
            space: None,
        }
    }

    /// A thread of `space` runs next. Translations are kept for one space only.
    pub fn enter(&mut self, space: u16) {
        if self.space != Some(space) {
            self.tlb.flush_all();
            self.space = Some(space);
        }
    }

    /// Nothing runs any more.
    pub fn leave(&mut self) {
        self.tlb.flush_all();
        self.space = None;
    }

    /// Forgets all translations of `space`.
    pub fn flush_space(&mut self, space: u16) {
        if self.space == Some(space) {
            self.tlb.flush_all();
        }
    }
}
