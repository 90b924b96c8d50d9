//! Workloads in huge pages: each kind has them where it says so, and what follows from them is known
//! beforehand.

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "closed_forms/machine.rs"]
mod machine;

use machine::{Node, machine};
use memtide_sim::config::Configuration;
use memtide_sim::engine::{self, Run};
use memtide_sim::page::{Flags, HUGE_PAGES};
use memtide_sim::workload::{Places, TraceRow, Workload, WorkloadSpec};
use std::sync::Arc;

/// What all kinds below have.
const COMMON: &str = "ops_per_access = 1\nthink = \"0 ns\"\n";

/// Every kind that may have them, with 4 MiB and more in each mapping.
const KINDS: [&str; 16] = [
    "[random]\nthreads = 2\nnode = 0\nmemory = '8 MiB'\non = 0\nstores_percent = 0\naccesses = 9000\n",
    "[regions]\nnode = 0\nidle = '4 MiB'\non = 1\nregions = 2\nregion = '4 MiB'\nstores_percent = 0\n\
     accesses_per_region = 3000\n",
    "[two-set]\nnodes = [0, 1]\nthreads_per_set = 1\nmemory_per_set = '4 MiB'\niterations = 2\n\
     stores_percent = 0\n",
    "[sockets]\nthreads = 2\nnodes = [0, 1]\nmemory_per_thread = '4 MiB'\nshared = '8 MiB'\non = 0\n\
     shared_percent = 50\nstores_percent = 0\naccesses = 9000\n",
    "[pmbench]\nprocesses = 2\nnodes = [0, 1]\nmemory_per_process = '4 MiB'\neater = '4 MiB'\n\
     eater_until = '9 ms'\nuntil = '10 ms'\nstores_percent = 0\n",
    "[stream]\nkernel = 'triad'\nthreads = 600\nnode = 0\narray = '4 MiB'\ntimes = 2\nprogram = '4 MiB'\n",
    "[mlc]\nmix = 'W2'\nthreads = 2\nnode = 0\nbuffer = '4 MiB'\nuntil = '5 ms'\n",
    "[xsbench]\nthreads = 2\nnode = 0\nunionised_grid = '8 MiB'\nnuclide_grids = '4 MiB'\nlookups = 500\n",
    "[zipf]\nthreads = 2\nnode = 0\nmemory = '8 MiB'\non = 1\nexponent = 1.0\ndrift_every = '1 ms'\n\
     drift_permille = 9\nstores_percent = 0\naccesses = 9000\n",
    "[phases]\nthreads = 2\nnode = 0\nmemory = '8 MiB'\non = 1\nhot = '2 MiB'\nhot_percent = 90\n\
     phases = 2\naccesses_per_phase = 9000\nstores_percent = 0\n",
    "[hot-set]\nthreads = 2\nnode = 0\nmemory = '8 MiB'\non = 1\nhot = '4 MiB'\npiece = '2 MiB'\n\
     time = '5 ms'\nstores_percent = 0\n",
    "[gups]\nthreads = 2\nnode = 0\nmemory = '8 MiB'\non = 1\nhot = '4 MiB'\nhot_percent = 90\n\
     time = '5 ms'\n",
    "[ranges]\nthreads = 2\nnode = 0\non = 1\ntime = '5 ms'\n\
     range = [{ memory = '4 MiB', weight = 2 }, { memory = '8 MiB', weight = 1 }]\n",
    "[scan-over-hot]\nthreads = 2\nnode = 0\nhot = '4 MiB'\nscanned = '8 MiB'\non = 1\n\
     stores_percent = 0\naccesses = 9000\nscan_interval = '1 us'\n",
    "[pointer-chase]\nthreads = 2\nnode = 0\nmemory = '8 MiB'\non = 1\naccesses = 9000\n",
    "[trace]\nfile = 'rows'\nnode = 0\non = 1\n",
];

fn spec(text: &str, more: &str) -> WorkloadSpec {
    let common = match ["[stream]", "[mlc]"]
        .iter()
        .any(|kind| text.starts_with(kind))
    {
        true => "",
        false => COMMON,
    };
    toml::from_str(&format!("{text}{common}{more}")).unwrap_or_else(|error| panic!("{text}{error}"))
}

/// Rows that begin in the second half of a huge page, and end in the first half of the fourth one.
fn rows() -> Arc<Vec<TraceRow>> {
    let row = |n: u64| TraceRow {
        time_ns: n * 1000,
        thread: 1,
        address: (300 + 2 * n) << 12,
        write: false,
    };
    Arc::new((0..700).map(row).collect())
}

fn built(spec: &WorkloadSpec, scale: u32) -> Workload {
    let machine = machine(&[Node(2, 64, 100.0, 300.0), Node(2, 64, 200.0, 300.0)]);
    let places = Places::new(&machine);
    spec.check(&places).unwrap();
    spec.build(&places, scale, &rows())
}

fn off() -> Configuration {
    Configuration::off("off")
}

#[test]
fn every_kind_has_them_where_it_says_so() {
    let machine = machine(&[Node(2, 64, 100.0, 300.0), Node(2, 64, 200.0, 300.0)]);
    for text in KINDS {
        for (huge, more) in [(true, "huge = true"), (false, "")] {
            let spec = spec(text, more);
            assert_eq!(spec.about().contains("huge pages"), huge, "{text}");
            let mut run = Run::new(&machine, built(&spec, 1), &off(), 1, 1).unwrap();
            // A quantum at least: those that are there at first touch have some by then.
            run.quantum().unwrap();
            let (mut mapped, mut in_huge) = (0, 0);
            for region in run.kernel.regions.iter() {
                // The benchmark's own memory.
                if ["lists", "program"].contains(&region.plan.name.as_str()) {
                    continue;
                }
                for slot in region.slots() {
                    let pte = run.kernel.ptes[slot as usize];
                    mapped += u32::from(pte.has(Flags::PRESENT));
                    in_huge += u32::from(pte.has(Flags::PRESENT.with(Flags::HUGE)));
                }
            }
            assert!(mapped > 512, "{text}");
            let expected = if huge { mapped } else { 0 };
            assert_eq!(in_huge, expected, "{text}");
            assert_eq!(mapped % HUGE_PAGES * u32::from(huge), 0, "{text}");
        }
    }
}

#[test]
fn a_mapping_has_whole_ones_at_any_scale_at_which_it_has_one() {
    for text in KINDS {
        let spec = spec(text, "huge = true");
        // The smallest mapping, or what of it is hot, is of 2 to 8 MiB, one to four huge pages; a recording's are
        // widened.
        let most = spec.max_scale();
        assert!([1, 2, 4, 1 << 16].contains(&most), "{text}: 1/{most}");
        for scale in [1, most] {
            let built = built(&spec, scale);
            for region in &built.plan().regions {
                let whole = region.pages.is_multiple_of(HUGE_PAGES);
                let start = region.start_vpn.is_multiple_of(u64::from(HUGE_PAGES));
                let own = ["lists", "program"].contains(&region.name.as_str());
                assert!(own || whole && start, "{text}: {region:?}");
            }
        }
    }
}

#[test]
fn less_than_one_is_refused_by_its_key() {
    let places = Places::new(&machine(&[
        Node(2, 64, 100.0, 300.0),
        Node(2, 64, 200.0, 300.0),
    ]));
    for text in KINDS {
        if text.starts_with("[trace]") {
            continue;
        }
        let sizes = [
            ("8 MiB", "1020 KiB"),
            ("4 MiB", "512 KiB"),
            ("2 MiB", "256 KiB"),
        ];
        let small = sizes
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        let wrong = spec(&small, "huge = true").check(&places).unwrap_err();
        assert!(small.contains(wrong.key), "{}", wrong.key);
        assert!(wrong.why.contains("less than a huge page"), "{}", wrong.why);
        spec(&small, "").check(&places).unwrap();
    }
}

/// One thread reads 64 MiB at random, 100 ns an access divided by the four that are under way. The first
/// access to a huge page walks, which reads one line more; 32 fit into any TLB. Of base pages 2048 of
/// 16,384 fit, so that seven of eight accesses walk.
#[test]
fn a_tlb_reaches_512_times_as_far() {
    let machine = machine(&[Node(1, 256, 100.0, 300.0)]);
    let text = "[zipf]\nthreads = 1\nnode = 0\nmemory = '64 MiB'\non = 0\nexponent = 0.0\n\
                drift_every = '1 s'\ndrift_permille = 0\nstores_percent = 0\naccesses = 100_000\n";
    let places = Places::new(&machine);
    let seconds = |more: &str| {
        let workload = spec(text, more).build(&places, 1, &Arc::default());
        let run = engine::run(&machine, workload, &off(), 1, 1, &|_| ());
        run.unwrap().seconds
    };
    let huge = seconds("huge = true");
    assert!((huge - 100_032.0 * 25e-9).abs() < 1e-9, "{huge}");
    let walks = seconds("") / 25e-9 - 100_000.0;
    // Seven of eight, give or take five standard deviations of 105; and 2048 first ones.
    assert!((walks - 87_500.0).abs() < 525.0 + 2048.0, "{walks}");
}

/// A scale at which rounding would take more than an eighth, or at which a hot part would share its huge pages with
/// others, makes another experiment.
#[test]
fn a_scale_leaves_a_workload_what_it_is() {
    let scale = |text: &str| spec(text, "huge = true").max_scale();
    let zipf = |memory: &str| {
        scale(&format!(
            "[zipf]\nthreads = 1\nnode = 0\nmemory = '{memory}'\non = 0\nexponent = 1.0\n\
             drift_every = '1 s'\ndrift_permille = 0\nstores_percent = 0\naccesses = 1\n"
        ))
    };
    // 4096 huge pages; 5 of 128 MiB, and 2.5 of 256; 1.125 of 512.
    let sizes = ["8 GiB", "640 MiB", "576 MiB"];
    assert_eq!(sizes.map(zipf), [4096, 64, 256]);
    let hot_set = |piece: &str| {
        scale(&format!(
            "[hot-set]\nthreads = 1\nnode = 0\nmemory = '16 GiB'\non = 0\nhot = '1 GiB'\n{piece}\
             time = '1 s'\nstores_percent = 0\n"
        ))
    };
    // One piece of 512 huge pages; pieces of one; pieces that are a part of one.
    let pieces = ["", "piece = '2 MiB'\n", "piece = '64 KiB'\n"];
    assert_eq!(pieces.map(hot_set), [512, 1, 1]);
}

/// Each huge page has the heat that its pieces say, at full size: pieces lie on whole ones.
#[test]
fn pieces_of_huge_pages_begin_with_one() {
    let text = "[hot-set]\nthreads = 1\nnode = 0\nmemory = '20 MiB'\non = 0\nhot = '6 MiB'\n\
                piece = '2 MiB'\ntime = '1 s'\nstores_percent = 0\n";
    let built = built(&spec(text, "huge = true"), 1);
    let pages = built.plan().regions[0].pages;
    let hot = |page| built.truth(0, page, 0).rate > 0.0;
    let shares: Vec<u32> = (0..pages / HUGE_PAGES)
        .map(|n| {
            (n * HUGE_PAGES..(n + 1) * HUGE_PAGES)
                .filter(|&page| hot(page))
                .count() as u32
        })
        .collect();
    assert_eq!(
        shares.iter().filter(|&&share| share == HUGE_PAGES).count(),
        3
    );
    assert_eq!(shares.iter().filter(|&&share| share == 0).count(), 7);
}
