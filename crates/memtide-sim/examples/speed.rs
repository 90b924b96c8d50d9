//! Scratch.
use memtide_core::units::NodeId;
use memtide_sim::engine::access::*;
use memtide_sim::hardware::cpu::Cpu;
use memtide_sim::hardware::llc::Llc;
use memtide_sim::hardware::sampler::SamplerSettings;
use memtide_sim::page::*;
use memtide_sim::rng::Rng;
use memtide_sim::spec::CpuSpec;
use memtide_sim::workload::Access;
use std::time::Instant;
fn main() {
    for pages in [2_097_152u32, 42_000_000] {
        let mut ptes: Vec<Pte> = (0..pages)
            .map(|s| Pte::present(s + 512, NodeId((s & 1) as u16), Flags::WRITABLE))
            .collect();
        let spec = CpuSpec {
            l1_tlb_4k: 64,
            l1_tlb_2m: 32,
            l2_tlb: 2048,
            l2_tlb_ways: 16,
            l2_tlb_ns: 3.0,
            walk_ns: 20.0,
            walk_huge_ns: 15.0,
            llc_cpus: 8,
            llc_bytes: 32 << 20,
            llc_ns: 20.0,
            cache_to_cache_ns: 80.0,
            mlp_dependent: 1.0,
            mlp_random: 4.0,
            mlp_sequential: 12.0,
        };
        let mut cpu = Cpu::new(&spec, 1, NodeId(0), 0);
        cpu.sampler.set(SamplerSettings {
            period: 10000,
            misses_only: true,
            loads: true,
            stores: true,
            ring: 100000,
        });
        let mut cache = Llc::new(32 << 20);
        let groups: Vec<Group> = (0..pages.div_ceil(512))
            .map(|g| {
                Group::new(
                    0,
                    (u64::from(g) * 64 / u64::from(pages.div_ceil(512))) as u8,
                    0,
                )
            })
            .collect();
        let mut prices = Prices {
            think: 1000,
            second_tlb: 3000,
            walk: 5000,
            walk_huge: 3000,
            cache: 5000,
            other_cache: 20000,
            interrupt: 1_000_000,
            operations: 10,
            ..Prices::default()
        };
        prices.memory = [[25_000, 30_000]; 16];
        let mut tally = Tally::default();
        let mut rng = Rng::new(1, 1);
        for round in 0..3 {
            // plain
            let n = 40_000_000u64;
            let t = Instant::now();
            let mut tags = vec![[u32::MAX; 4]; 512];
            let mut misses = 0u64;
            let mut sum = 0u64;
            for i in 0..n {
                let slot = rng.below(pages);
                let set = &mut tags[(slot & 511) as usize];
                if !set.contains(&slot) {
                    set[(i & 3) as usize] = slot;
                    misses += 1;
                    let p = &mut ptes[slot as usize];
                    sum += p.node_index() as u64;
                    p.set(Flags::ACCESSED);
                }
            }
            let plain = n as f64 / t.elapsed().as_secs_f64() / 1e6;
            let t = Instant::now();
            let mut batch = [Access(0); BATCH];
            let mut ahead = Ahead::default();
            let mut done = 0;
            let mut faults = 0u64;
            let mut arm = 0usize;
            while done < n {
                for a in &mut batch {
                    let b = rng.bits();
                    *a = Access::new(
                        ((b >> 32) * u64::from(pages) >> 32) as u32,
                        (b & 63) as u32,
                        1,
                        b & 64 != 0,
                    );
                }
                if done % (1 << 16) == 0 {
                    for k in 0..64 {
                        let s = (arm + k) % pages as usize;
                        ptes[s].set(Flags::HINT);
                    }
                    arm = (arm + 64) % pages as usize;
                }
                let mut at = 0;
                ahead.clear();
                loop {
                    let mut path = Path {
                        ptes: &mut ptes,
                        cpu: &mut cpu,
                        cache: &mut cache,
                        groups: &groups,
                        shared: &[],
                        seen: &mut [],
                        prices: &prices,
                        tally: &mut tally,
                        thread: 0,
                        cpu_number: 0,
                    };
                    match path.run(&batch, &mut ahead, &mut at, u64::MAX).0 {
                        Stop::Done | Stop::Time => break,
                        Stop::Fault(_) => {
                            faults += 1;
                            ptes[batch[at].slot() as usize].clear(Flags::HINT);
                        }
                    }
                }
                done += BATCH as u64;
            }
            let ours = n as f64 / t.elapsed().as_secs_f64() / 1e6;
            println!(
                "{pages} round {round}: plain {plain:.1} ours {ours:.1} ratio {:.2} misses {misses} {sum} tlb {} faults {faults} samples {} {}",
                ours / plain,
                tally.tlb_misses,
                tally.samples,
                ahead.sum
            );
        }
    }
}
