//! Lazy unmap flush under load: every access finds the page's own newest content, a kernel that leaves a
//! flush out is found out, and a kernel that flushes at each unmap shows every reader the same.

#[path = "luf/machine.rs"]
#[allow(dead_code)] // Each of the two tests uses a part of it.
mod machine;

use machine::{Bench, anonymous, file, machine, thread};
use memtide_sim::config::{Configuration, Lru, Luf};
use memtide_sim::engine::{Run, Source};
use memtide_sim::kernel::Omit;
use memtide_sim::page::Slot;
use memtide_sim::rng::Rng;
use memtide_sim::workload::{Access, Filled, Kind, Plan, Truth};

/// Pages of each space's own file; four of them are five times what the machine's 5,000 pages hold.
const OWN: u32 = 6000;
/// Pages of a file that all map, and the first writes.
const COMMON: u32 = 300;
/// Pages of private, writable mappings of a file.
const PRIVATE: u32 = 300;
/// Pages of anonymous memory.
const MEMORY: u32 = 300;
const SPACES: u16 = 4;
/// Regions of a space.
const REGIONS: usize = 4;

/// Eight threads of four programs on four CPUs: each CPU has translations of two of them.
fn plan() -> Plan {
    let regions = (0..SPACES).flat_map(|space| {
        [
            file(space, space, Kind::SharedFile, false, OWN),
            file(space, 100, Kind::SharedFile, space == 0, COMMON),
            file(space, 101, Kind::PrivateFile, true, PRIVATE),
            anonymous(space, MEMORY),
        ]
    });
    Plan {
        regions: regions.collect(),
        threads: (0..2 * SPACES).map(|n| thread(n % SPACES)).collect(),
        ends_at_ns: None,
    }
}

/// Mostly a window of 48 pages of the program's own file, which moves; now and then everything else.
struct Mixed {
    plan: Plan,
    bases: Vec<Slot>,
    left: Vec<u64>,
    each: u64,
}

impl Mixed {
    fn new(accesses: u64) -> Mixed {
        let plan = plan();
        let each = accesses.div_ceil(plan.threads.len() as u64);
        Mixed {
            bases: Vec::new(),
            left: vec![each; plan.threads.len()],
            each,
            plan,
        }
    }

    fn page(&self, thread: usize, rng: &mut Rng) -> (usize, u32, bool) {
        let space = usize::from(self.plan.threads[thread].space);
        let dice = rng.below(4096);
        let (region, page, write) = match dice {
            0..8 => (0, rng.below(OWN), false),
            8..12 => (1, rng.below(COMMON), space == 0 && rng.below(50) == 0),
            12..16 => (2, rng.below(PRIVATE), rng.below(100) == 0),
            16..300 => (3, rng.below(MEMORY), dice < 100),
            _ => {
                let step = (self.each - self.left[thread]) / 20_000;
                let window = (step * 7 % u64::from(OWN - 48)) as u32;
                (0, window + rng.below(48), false)
            }
        };
        (space * REGIONS + region, page, write)
    }
}

impl Source for Mixed {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn mapped(&mut self, slots: &[Slot]) {
        self.bases = slots.to_vec();
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let count = (batch.len() as u64).min(self.left[thread]) as usize;
        for access in &mut batch[..count] {
            let (region, page, write) = self.page(thread, rng);
            *access = Access::new(self.bases[region] + page, 0, 1, write);
        }
        self.left[thread] -= count as u64;
        match count {
            0 => Filled::Done,
            _ => Filled::Accesses(count),
        }
    }

    fn done(&self) -> f64 {
        1.0 - self.left[0] as f64 / self.each as f64
    }

    fn phase(&self, _: u64) -> u64 {
        0
    }

    fn truth(&self, _: usize, _: u32, _: u64) -> Truth {
        Truth { rate: 1.0, node: 0 }
    }
}

/// Runs so many accesses at a scale: how many found what they should not, and what lazy flushing did.
fn run(
    luf: Luf,
    lru: Lru,
    accesses: u64,
    omit: Option<Omit>,
    scale: u32,
) -> (u64, memtide_core::lazy_flush::Tally) {
    let configuration = Configuration {
        numa_balancing: 2,
        scan_delay_ms: 5,
        scan_period_min_ms: 10,
        lru,
        luf: Some(luf),
        check: true,
        ..Configuration::off("mixed")
    };
    let real = |pages: u64| pages * u64::from(scale);
    let spec = machine([real(2000), real(3000)], 4, 500);
    let source = Mixed::new(accesses);
    let mut run = Run::new(&spec, source, &configuration, 1, scale).expect("a machine");
    if let Some(omit) = omit {
        run.kernel.omit_flushes(omit);
    }
    // The generations come round in the middle of the run.
    run.kernel.wear_generations(50);
    while run.quantum().unwrap_or_else(|error| panic!("{error}")) {}
    let contents = run.kernel.contents.as_ref().expect("checked");
    assert_eq!(contents.checked(), accesses);
    if omit.is_none()
        && let Some(stale) = contents.first()
    {
        panic!("{luf:?}: {stale}");
    }
    (
        contents.wrong(),
        run.kernel.lazy.as_ref().expect("on").tally(),
    )
}

#[test]
fn a_hundred_million_accesses_find_what_they_should() {
    for (luf, lru) in [
        (Luf::Machine, Lru::Classic),
        (Luf::Zones, Lru::Multigenerational),
    ] {
        let (wrong, tally) = run(luf, lru, 50_000_000, None, 1);
        println!("{luf:?}: {tally:?}");
        assert_eq!(wrong, 0);
        // It is no empty promise: pages were deferred, used again, and flushed for each reason.
        assert!(tally.deferred > 10_000 && tally.at_use > 100, "{tally:?}");
        assert!(tally.forced.iter().sum::<u64>() > 20, "{tally:?}");
    }
}

#[test]
fn a_kernel_that_leaves_a_flush_out_is_found_out() {
    for luf in [Luf::Machine, Luf::Zones] {
        for omit in [Omit::AtUse, Omit::Forced] {
            let (wrong, tally) = run(luf, Lru::Classic, 8_000_000, Some(omit), 1);
            assert!(wrong > 0, "{luf:?}, {omit:?}: {tally:?}");
        }
    }
}

/// At a scale most flushes interrupt nobody, as one in so many is charged; they are made nevertheless. TLBs are
/// as many times smaller, so that it takes longer until somebody finds what is stale.
#[test]
fn flushes_that_are_not_charged_are_made() {
    let at_scale = |omit| run(Luf::Zones, Lru::Classic, 30_000_000, omit, 4);
    let (wrong, tally) = at_scale(None);
    assert_eq!(wrong, 0, "{tally:?}");
    for omit in [Omit::AtUse, Omit::Forced] {
        let (wrong, tally) = at_scale(Some(omit));
        assert!(wrong > 0, "{omit:?}: {tally:?}");
    }
}

/// What each of `accesses` random accesses found, with events between them.
fn story(luf: Option<Luf>, seed: u64, accesses: u32) -> Vec<(Slot, u32)> {
    let mut bench = Bench::new(&machine([1500, 2500], 4, 200), plan(), luf);
    let mut rng = Rng::new(seed, 0);
    let threads = bench.plan.threads.len() as u32;
    let mut found = Vec::new();
    for n in 0..accesses {
        let thread = rng.below(threads);
        let first = usize::from(bench.plan.threads[thread as usize].space) * REGIONS;
        let (region, pages) = [(0, 400), (1, COMMON), (2, PRIVATE), (3, MEMORY)]
            [(rng.below(8) as usize).saturating_sub(4)];
        let writable = bench.kernel.regions.get(first + region).plan.writable;
        let write = writable && rng.chance(6_000);
        let page = rng.below(pages);
        found.push(bench.access(thread, first + region, page, write));
        match rng.below(2_000) {
            0..20 => bench.pass(),
            20..40 => bench.reclaim(u64::from(rng.below(200))),
            40 => {
                let who = bench.who(thread);
                let page = rng.below(COMMON);
                bench.kernel.write_file(&mut bench.hw, &who, 1, page);
            }
            41 => {
                let who = bench.who(thread);
                let page = rng.below(400);
                bench
                    .kernel
                    .poison_file_page(&mut bench.hw, &who, first, page);
            }
            42 if n > accesses / 2 => {
                let who = bench.who(thread);
                let to = rng.below(u32::from(SPACES)) as usize * REGIONS;
                bench.kernel.remap(&mut bench.hw, &who, first, Some(to));
            }
            _ => {}
        }
    }
    assert_eq!(bench.wrong(), 0);
    found
}

#[test]
fn a_kernel_that_flushes_at_each_unmap_shows_every_reader_the_same() {
    for seed in 0..4 {
        let naive = story(None, seed, 100_000);
        for luf in [Luf::Machine, Luf::Zones] {
            let lazy = story(Some(luf), seed, 100_000);
            let first = naive.iter().zip(&lazy).position(|(a, b)| a != b);
            assert_eq!(first, None, "seed {seed}, {luf:?}: the access that differs");
        }
    }
}
