//! What caches and TLBs do, against closed forms and against a second model that shares no code.
//!
//! The second model keeps whole line and page numbers in plain lists and knows nothing of tags, lanes or
//! packed words. It is told the geometry in words: which set a number belongs to, how many ways a set
//! has, and what goes. On the same trace it must count the same misses, to the last one.

#[path = "closed_forms/machine.rs"]
#[allow(dead_code)]
mod machine;

use machine::{Node, machine, policy};
use memtide_core::mempolicy::Mode;
use memtide_core::units::NodeId;
use memtide_sim::config::Configuration;
use memtide_sim::engine::{Run, Source};
use memtide_sim::page::Slot;
use memtide_sim::rng::Rng;
use memtide_sim::spec::MachineSpec;
use memtide_sim::workload::{
    Access, Filled, Kind, Pattern, Places, Plan, RegionPlan, ThreadPlan, Truth, WorkloadSpec,
};
use std::collections::HashMap;
use std::sync::Arc;

fn still(name: &str) -> Configuration {
    Configuration {
        demotion: false,
        ..Configuration::off(name)
    }
}

/// The share of accesses that memory served, of `threads` threads with one cache of 32 MiB.
fn missed(workload: &str, scale: u32) -> f64 {
    let mut spec = machine(&[Node(8, 16_384, 100.0, 300.0)]);
    spec.cpu.llc_bytes = 32 << 20;
    let text: WorkloadSpec = toml::from_str(workload).unwrap();
    let places = Places::new(&spec);
    text.check(&places).unwrap();
    let built = text.build(&places, scale, &Arc::default());
    let mut run = Run::new(&spec, built, &still("off"), 1, scale).unwrap();
    // The first half fills the cache.
    while run.done() < 0.5 {
        run.quantum().unwrap();
    }
    let (served, accesses) = (run.tally.served[0], run.tally.accesses);
    while run.quantum().unwrap() {}
    (run.tally.served[0] - served) as f64 / (run.tally.accesses - accesses) as f64
}

#[test]
fn random_pages_and_lines_miss_as_the_cache_is_small() {
    // Lines at random, each as likely: in steady state every set is full, so a hit has what the cache
    // holds of all lines: 32 MiB of 1 GiB are 3.1 %. (Huge pages, so that page tables take none of it.)
    let random = |memory: &str, lines: u32, scale: u32| {
        let accesses = 1_500_000 * scale;
        format!(
            "[random]\nthreads = 4\nnode = 0\nmemory = \"{memory}\"\non = 0\nhuge = true\n\
             lines = {lines}\nstores_percent = 0\naccesses = {accesses}\nops_per_access = 1\n\
             think = \"0 ns\""
        )
    };
    for (memory, lines, scale, expected) in [
        ("1 GiB", 64, 16, 1.0 - 1.0 / 32.0),
        ("2 GiB", 64, 16, 1.0 - 1.0 / 64.0),
        ("128 MiB", 64, 1, 0.75),
        // One line of each page: 32,768 lines of 524,288; half of the lines: as if of half the memory.
        ("128 MiB", 1, 1, 0.0),
        ("1 GiB", 32, 16, 1.0 - 1.0 / 16.0),
    ] {
        let got = missed(&random(memory, lines, scale), scale);
        assert!(
            (got - expected).abs() < 0.01,
            "{memory}, {lines} lines, 1/{scale}: {got} missed, not {expected}"
        );
    }
}

/// Accesses of one thread, recorded for the second model.
struct Recorded {
    plan: Plan,
    base: Slot,
    pages: u32,
    /// Pages below it are as likely as all others together.
    hot: u32,
    left: u64,
    made: Vec<Access>,
}

impl Source for Recorded {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn mapped(&mut self, slots: &[Slot]) {
        self.base = slots[0];
    }

    fn fill(&mut self, _: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let count = (batch.len() as u64).min(self.left) as usize;
        for access in &mut batch[..count] {
            let pages = if rng.chance(32_768) {
                self.hot
            } else {
                self.pages
            };
            let slot = self.base + rng.below(pages);
            *access = Access::new(slot, rng.below(64), 1, rng.chance(20_000));
        }
        self.made.extend_from_slice(&batch[..count]);
        self.left -= count as u64;
        match count {
            0 => Filled::Done,
            _ => Filled::Accesses(count),
        }
    }

    fn done(&self) -> f64 {
        0.0
    }

    fn phase(&self, _: u64) -> u64 {
        0
    }

    fn truth(&self, _: usize, _: u32, _: u64) -> Truth {
        Truth { rate: 1.0, node: 0 }
    }
}

/// Sets of a few entries, the most recent last.
struct LeastRecent {
    ways: usize,
    sets: HashMap<u64, Vec<u64>>,
}

impl LeastRecent {
    /// A line is known by its set and by what is left: a few of 65,536 are taken for others.
    fn knows(&mut self, (set, rest): (u64, u64)) -> bool {
        self.access(set, rest)
    }

    fn access(&mut self, set: u64, number: u64) -> bool {
        let entries = self.sets.entry(set).or_default();
        let found = entries.iter().position(|&entry| entry == number);
        if let Some(at) = found {
            entries.remove(at);
        }
        entries.push(number);
        if entries.len() > self.ways {
            entries.remove(0);
        }
        found.is_some()
    }
}

/// Sets that replace an entry not used since all others of its set were: an entry is marked as it is
/// used, and when the last unmarked one is, all others lose their marks. The first unmarked place goes.
struct NotLately {
    ways: usize,
    sets: HashMap<u64, Vec<Option<(u64, bool)>>>,
}

impl NotLately {
    fn access(&mut self, set: u64, number: u64) -> bool {
        let ways = self.ways;
        let places = self.sets.entry(set).or_insert_with(|| vec![None; ways]);
        let of = |place: &Option<(u64, bool)>| place.map(|(number, _)| number);
        let found = places.iter().position(|place| of(place) == Some(number));
        let unmarked = |place: &Option<(u64, bool)>| !place.is_some_and(|(_, marked)| marked);
        let at = found
            .or_else(|| places.iter().position(unmarked))
            .expect("one place is always unmarked");
        places[at] = Some((number, true));
        if !places.iter().any(unmarked) {
            for (other, place) in places.iter_mut().enumerate() {
                if let (true, Some((_, marked))) = (other != at, place) {
                    *marked = false;
                }
            }
        }
        found.is_some()
    }
}

/// The set of a line: its number is mixed by two odd constants, and the high half of what comes out,
/// over 2^32, says how far into the sets it goes. What is left tells lines of one set apart.
fn set_and_rest(number: u64, sets: u64) -> (u64, u64) {
    let mixed = u128::from(number) * 0x9e37_79b9_7f4a_7c15 % (1 << 64);
    let mixed = (mixed ^ (mixed / (1 << 32))) * 0xd6e8_feb8_6659_fd93 % (1 << 64);
    let (high, low) = (mixed / (1 << 32), mixed % (1 << 32));
    let rest = (low / (1 << 16)) as u64;
    (((high * u128::from(sets)) / (1 << 32)) as u64, rest.max(1))
}

fn recorded(spec: &MachineSpec, pages: u32, hot: u32, accesses: u64) -> Run<Recorded> {
    let region = RegionPlan {
        name: "memory".into(),
        space: 0,
        kind: Kind::Anonymous,
        file: None,
        writable: true,
        huge: false,
        pages,
        start_vpn: 0x1000,
        policy: policy(Mode::Local, &[]),
        policy_after: None,
        populated_from: Some(0),
        bandwidth: true,
        freed_at_ns: None,
        foreign: false,
    };
    let thread = ThreadPlan {
        space: 0,
        nodes: vec![0],
        pattern: Pattern::Random,
        ops_per_access: 1,
        think_ns: 0.0,
        misses_at_once: None,
        group: 0,
    };
    let source = Recorded {
        plan: Plan {
            regions: vec![region],
            threads: vec![thread],
            ends_at_ns: None,
        },
        base: 0,
        pages,
        hot,
        left: accesses,
        made: Vec::new(),
    };
    Run::new(spec, source, &still("off"), 1, 1).unwrap()
}

#[test]
fn a_second_model_of_caches_and_tlbs_counts_the_same_misses() {
    // (pages, hot pages, entries of the TLB, its ways, bytes of the cache)
    for (pages, hot, entries, ways, bytes) in [
        (40, 8, 32, 4, 4 << 10),
        (40, 8, 32, 8, 64 << 10),
        (24, 4, 16, 16, 16 << 10),
        (60, 30, 48, 12, 32 << 10),
        (12, 12, 8, 2, 1 << 10),
    ] {
        let mut spec = machine(&[Node(1, 64, 100.0, 300.0)]);
        spec.cpu.l2_tlb = entries;
        spec.cpu.l2_tlb_ways = ways;
        spec.cpu.llc_bytes = bytes;
        let mut run = recorded(&spec, pages, hot, 300_000);
        while run.quantum().unwrap() {}

        let sets = bytes / 64 / 4;
        let frame = |slot: Slot| u64::from(run.kernel.ptes[slot as usize].frame());
        let data = |access: &Access| frame(access.slot()) * 64 + u64::from(access.line());
        let table = |access: &Access| (1u64 << 40) + u64::from(access.slot()) / 8;
        let made = &run.source().made;

        let tlb_sets = 1u64 << (entries / ways).ilog2();
        let mut tlb = NotLately {
            ways: ways as usize,
            sets: HashMap::new(),
        };
        let mut cache = LeastRecent {
            ways: 4,
            sets: HashMap::new(),
        };
        let (mut walks, mut walk_lines, mut data_lines) = (0u64, 0u64, 0u64);
        for access in made {
            let page = u64::from(access.slot());
            let translated = tlb.access(page % tlb_sets, page);
            if !translated {
                walks += 1;
                let number = table(access);
                walk_lines += u64::from(!cache.knows(set_and_rest(number, sets)));
            }
            let number = data(access);
            data_lines += u64::from(!cache.knows(set_and_rest(number, sets)));
        }
        let got = (
            run.tally.tlb_misses.iter().sum::<u64>(),
            run.tally.served[0],
        );
        assert_eq!(
            got,
            (walks, data_lines),
            "{pages} pages, {entries} entries, {bytes} bytes"
        );
        // What a store misses is read too, and written back later.
        let (read, _) = run.hw.memory.bytes(NodeId(0));
        assert_eq!(read / 64, data_lines + walk_lines);
    }
}
