//! Every kind on one small machine: what it plans, what it does, and when it is done.

use super::*;
use crate::spec::tests::small_machine;

fn places() -> Places {
    Places::new(&small_machine())
}

fn spec(text: &str) -> WorkloadSpec {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}"))
}

fn built(text: &str, scale: u32) -> Workload {
    let spec = spec(text);
    spec.check(&places()).unwrap();
    let mut workload = spec.build(&places(), scale, &Arc::default());
    let mut first = 0;
    let slots: Vec<Slot> = workload
        .plan()
        .regions
        .iter()
        .map(|region| {
            first += region.pages;
            first - region.pages
        })
        .collect();
    workload.mapped(&slots);
    workload
}

/// All accesses of every thread, at time 0 or at the time that makes it go on.
fn run(workload: &mut Workload, most: usize) -> Vec<Vec<Access>> {
    let threads = workload.plan().threads.len();
    let end = workload.plan().ends_at_ns.unwrap_or(u64::MAX);
    let mut all = vec![Vec::new(); threads];
    let mut going = true;
    let mut now = 0;
    while going {
        going = false;
        for (thread, made) in all.iter_mut().enumerate() {
            let mut rng = Rng::new(made.len() as u64, thread as u64);
            let mut batch = [Access(0); 256];
            match workload.fill(thread, now, &mut rng, &mut batch) {
                Filled::Accesses(count) => {
                    made.extend_from_slice(&batch[..count]);
                    going |= made.len() < most;
                }
                Filled::Waits | Filled::Thinks(_) => going = true,
                Filled::Done => {}
            }
        }
        now = (now + 1_000_000).min(end);
    }
    all
}

const RANDOM: &str = r#"
[random]
threads = 4
node = 0
memory = "8 MiB"
on = 2
stores_percent = 50
accesses = 64_000
ops_per_access = 10
think = "0 ns"
"#;

#[test]
fn random_makes_its_accesses_and_stores_as_many_as_it_says() {
    let mut workload = built(RANDOM, 2);
    // 8 MiB / 4 KiB / 2 = 1024 pages; 64,000 / 2 accesses a thread; lists of 1024 entries are 2 pages.
    let pages = |region: usize| workload.plan().regions[region].pages;
    assert_eq!((pages(0), pages(1)), (1024, 4 * 2));
    let mut all = run(&mut workload, usize::MAX);
    for (thread, made) in all.iter_mut().enumerate() {
        let before = made.len();
        let own = 1024 + 2 * thread as u32..1026 + 2 * thread as u32;
        made.retain(|access| !own.contains(&access.slot()));
        // A page of the list for each 512 accesses: 62.5.
        assert_eq!((made.len(), before - made.len()), (32_000, 63));
    }
    assert_eq!(workload.done(), 1.0);
    let stores = all
        .iter()
        .flatten()
        .filter(|access| access.is_write())
        .count();
    // 128,000 draws at one half: standard deviation 179; five of them.
    assert!(stores.abs_diff(64_000) < 895, "{stores}");
    assert!(all.iter().flatten().all(|access| access.slot() < 1024));
}

/// How often each line of a page was accessed.
fn lines_of(all: &[Vec<Access>]) -> [u32; 64] {
    let mut counts = [0; 64];
    for access in all.iter().flatten().filter(|access| access.lines() == 1) {
        counts[access.line() as usize] += 1;
    }
    counts
}

/// Every kind whose accesses go to single lines, without what says which.
const SPREAD: [&str; 8] = [
    RANDOM,
    r#"
    [regions]
    node = 0
    idle = "4 MiB"
    on = 2
    regions = 3
    region = "1 MiB"
    stores_percent = 20
    accesses_per_region = 40_000
    ops_per_access = 1
    think = "0 ns"
    "#,
    r#"
    [two-set]
    nodes = [0, 1]
    threads_per_set = 2
    memory_per_set = "4 MiB"
    iterations = 30
    stores_percent = 20
    ops_per_access = 1
    think = "0 ns"
    "#,
    r#"
    [sockets]
    threads = 4
    nodes = [0, 1]
    memory_per_thread = "1 MiB"
    shared = "4 MiB"
    on = 0
    shared_percent = 50
    stores_percent = 20
    accesses = 30_000
    ops_per_access = 1
    think = "0 ns"
    "#,
    r#"
    [zipf]
    threads = 4
    node = 0
    memory = "8 MiB"
    on = 2
    exponent = 1.0
    drift_every = "1 s"
    drift_permille = 1
    stores_percent = 20
    accesses = 30_000
    ops_per_access = 1
    think = "0 ns"
    "#,
    r#"
    [phases]
    threads = 4
    node = 0
    memory = "8 MiB"
    on = 2
    hot = "1 MiB"
    hot_percent = 90
    phases = 3
    accesses_per_phase = 10_000
    stores_percent = 20
    ops_per_access = 1
    think = "0 ns"
    "#,
    r#"
    [scan-over-hot]
    threads = 4
    node = 0
    hot = "1 MiB"
    scanned = "4 MiB"
    on = 2
    stores_percent = 20
    accesses = 30_000
    ops_per_access = 1
    think = "0 ns"
    scan_interval = "1 ms"
    "#,
    r#"
    [pointer-chase]
    threads = 4
    node = 0
    memory = "1 MiB"
    on = 2
    accesses = 32_768
    ops_per_access = 1
    think = "0 ns"
    "#,
];

#[test]
fn accesses_spread_over_all_lines_of_a_page_unless_told_otherwise() {
    for text in SPREAD {
        // The lists of the benchmark are read in order: their accesses are to line 0.
        let lists = if text == RANDOM { 4 * 126 } else { 0 };
        let all = run(&mut built(text, 1), usize::MAX);
        let counts = lines_of(&all);
        let sum: u32 = counts.iter().sum::<u32>() - lists;
        let mean = f64::from(sum) / 64.0;
        for (line, &count) in counts.iter().enumerate() {
            let count = f64::from(count - if line == 0 { lists } else { 0 });
            // Five standard deviations of a count that is drawn.
            let slack = 5.0 * mean.sqrt();
            assert!(
                (count - mean).abs() < slack,
                "line {line}: {count} of {mean}: {text}"
            );
        }
        let few = text.replacen("ops_per_access", "lines = 4\nops_per_access", 1);
        let counts = lines_of(&run(&mut built(&few, 1), usize::MAX));
        assert!(counts[..4].iter().all(|&count| count > 0), "{text}");
        assert!(counts[4..].iter().all(|&count| count == 0), "{text}");
        let wrong = spec(&few.replacen("lines = 4", "lines = 65", 1));
        assert_eq!(wrong.check(&places()).unwrap_err().key, "lines");
    }
}

#[test]
fn huge_pages_stay_whole_at_any_scale() {
    let huge = RANDOM.replace("stores_percent", "huge = true\nstores_percent");
    for (scale, pages) in [(1, 2048), (2, 1024), (4, 512)] {
        assert_eq!(built(&huge, scale).plan().regions[0].pages, pages);
    }
}

#[test]
fn regions_are_hot_one_after_another() {
    let mut workload = built(
        r#"
        [regions]
        node = 0
        idle = "4 MiB"
        on = 2
        regions = 3
        region = "1 MiB"
        stores_percent = 0
        accesses_per_region = 1000
        ops_per_access = 1
        think = "0 ns"
        "#,
        1,
    );
    let all = run(&mut workload, usize::MAX).remove(0);
    assert_eq!(all.len(), 3000);
    for (region, made) in all.chunks(1000).enumerate() {
        // Slots 0-1023 are the idle ones; a hot region has 256 pages.
        let first = 1024 + region as u32 * 256;
        assert!(
            made.iter()
                .all(|access| (first..first + 256).contains(&access.slot()))
        );
    }
}

#[test]
fn two_sets_touch_every_page_once_an_iteration() {
    let mut workload = built(
        r#"
        [two-set]
        nodes = [0, 1]
        threads_per_set = 2
        memory_per_set = "4 MiB"
        iterations = 3
        stores_percent = 0
        ops_per_access = 1
        think = "0 ns"
        "#,
        4,
    );
    let all = run(&mut workload, usize::MAX);
    // 1024 pages / 4 = 256 a set; 3 iterations of each of the 4 threads.
    for (thread, made) in all.iter().enumerate() {
        let mut counts = [0; 512];
        made.iter()
            .for_each(|access| counts[access.slot() as usize] += 1);
        let own = if thread < 2 { 0..256 } else { 256..512 };
        for (slot, &count) in counts.iter().enumerate() {
            assert_eq!(count, if own.contains(&slot) { 3 } else { 0 });
        }
    }
    assert_eq!(workload.truth(1, 0, 0).node, 1);
}

#[test]
fn stream_reads_and_streams_each_page_of_its_arrays() {
    let text = |kernel: &str| {
        format!(
            "[stream]\nkernel = \"{kernel}\"\nthreads = 4\nnode = 0\narray = \"1 MiB\"\n\
             times = 3\nprogram = \"64 KiB\"\n"
        )
    };
    for (kernel, read, streamed) in [
        ("copy", vec![0], 2),
        ("scale", vec![2], 1),
        ("add", vec![0, 1], 2),
        ("triad", vec![1, 2], 0),
    ] {
        let mut workload = built(&text(kernel), 1);
        let all = run(&mut workload, usize::MAX);
        // 256 pages an array; three rounds. Accesses to the program's own are none of these.
        for array in 0..3 {
            let of = |access: &&Access| access.slot() / 256 == array && access.lines() == 64;
            let made: Vec<&Access> = all.iter().flatten().filter(of).collect();
            let expected = if read.contains(&array) || array == streamed {
                768
            } else {
                0
            };
            assert_eq!(made.len(), expected, "{kernel} {array}");
            assert!(
                made.iter()
                    .all(|access| access.is_streaming() == (array == streamed))
            );
        }
    }
}

#[test]
fn stream_counts_what_it_streams_at_any_scale() {
    // 256 pages an array. At 1/16 they are 16, and 48 threads take one each: 48 pages of 64 KiB, three times
    // as much as there is. At 1/1 each thread has six at most: 288.
    let keys = "kernel = \"add\"\nthreads = 48\nnode = 0\narray = \"1 MiB\"\ntimes = 3\n\
                program = \"64 KiB\"\n";
    let spec: StreamSpec = toml::from_str(keys).unwrap();
    for (scale, pages) in [(16, 48), (1, 288), (4, 96)] {
        let mut workload = built(&format!("[stream]\n{keys}"), scale);
        let all = run(&mut workload, usize::MAX);
        let arrays = all.iter().flatten().filter(|access| access.lines() == 64);
        let bytes = arrays.count() as u64 * u64::from(scale) * 4096;
        assert_eq!(bytes, 3 * 3 * pages * u64::from(scale) * 4096);
        assert_eq!(spec.counted_bytes(scale), bytes);
    }
}

#[test]
fn mlc_keeps_its_mix_until_its_time_is_over() {
    for (mix, stores_of_6) in [("R", 0), ("W2", 3), ("W5", 6)] {
        let text = format!(
            "[mlc]\nmix = \"{mix}\"\nthreads = 2\nnode = 0\nbuffer = \"1 MiB\"\nuntil = \"5 ms\"\n"
        );
        let mut workload = built(&text, 1);
        assert_eq!(workload.plan().ends_at_ns, Some(5_000_000));
        let all = run(&mut workload, usize::MAX);
        assert_eq!(workload.done(), 1.0);
        let made = &all[1];
        let stores = made.iter().filter(|access| access.is_write()).count();
        assert_eq!(stores * 6, made.len() * stores_of_6);
        assert!(
            made.iter()
                .all(|access| (256..512).contains(&access.slot()))
        );
    }
}

#[test]
fn a_lookup_makes_sixty_five_accesses_on_average() {
    let mut workload = built(
        r#"
        [xsbench]
        threads = 2
        node = 0
        unionised_grid = "16 MiB"
        nuclide_grids = "4 MiB"
        lookups = 20_000
        ops_per_access = 1
        think = "0 ns"
        "#,
        1,
    );
    let all = run(&mut workload, usize::MAX);
    assert_eq!(all[0].len(), 20_000 * 6470 / 100 / 2);
    // Gathers are 55.7 of 64.7 accesses: 86 %.
    let gathers = all[0].iter().filter(|access| access.slot() >= 4096).count();
    let percent = gathers * 100 / all[0].len();
    assert!((84..=88).contains(&percent), "{percent}");
}

#[test]
fn page_count_touches_each_page_once_in_order() {
    let mut workload = built(
        r#"
        [page-count]
        node = 0
        mappings = [
            { name = "block", address = 0x7fceeb9ff000, pages = 300 },
            { name = "heap", address = 0x176a000, pages = 100 },
        ]
        "#,
        1,
    );
    assert_eq!(workload.plan().regions[0].start_vpn, 0x7_fcee_b9ff);
    let all = run(&mut workload, usize::MAX).remove(0);
    let slots: Vec<u32> = all.iter().map(|access| access.slot()).collect();
    assert_eq!(slots, (0..400).collect::<Vec<u32>>());
}

#[test]
fn zipf_draws_as_often_as_its_truth_says() {
    let mut workload = built(
        r#"
        [zipf]
        threads = 1
        node = 0
        memory = "4_000 KiB"
        on = 2
        exponent = 0.9
        drift_every = "1 s"
        drift_permille = 100
        stores_percent = 25
        accesses = 2_000_000
        ops_per_access = 1
        think = "0 ns"
        "#,
        1,
    );
    for now in [0, 1_000_000_000] {
        let mut counts = vec![0u32; 1000];
        let mut rng = Rng::new(5, 0);
        let mut batch = [Access(0); 256];
        let mut made = 0;
        while made < 900_000 {
            let Filled::Accesses(count) = workload.fill(0, now, &mut rng, &mut batch) else {
                unreachable!()
            };
            batch[..count]
                .iter()
                .for_each(|access| counts[access.slot() as usize] += 1);
            made += count;
        }
        let mut sum = 0.0;
        for (page, &count) in counts.iter().enumerate() {
            let rate = f64::from(workload.truth(0, page as u32, now).rate);
            sum += rate;
            // Six standard deviations of a Poisson count.
            let expected = rate * made as f64;
            let off = (f64::from(count) - expected).abs();
            assert!(
                off < 6.0 * expected.sqrt() + 1.0,
                "{page}: {count} for {expected}"
            );
        }
        assert!((sum - 1.0).abs() < 1e-3, "{sum}");
    }
    assert_ne!(workload.phase(0), workload.phase(1_000_000_000));
}

#[test]
fn phases_change_the_hot_set() {
    let mut workload = built(
        r#"
        [phases]
        threads = 2
        node = 0
        memory = "8 MiB"
        on = 2
        hot = "1 MiB"
        hot_percent = 90
        phases = 3
        accesses_per_phase = 10_000
        stores_percent = 0
        ops_per_access = 1
        think = "0 ns"
        "#,
        1,
    );
    let all = run(&mut workload, usize::MAX);
    for (phase, made) in all[1].chunks(10_000).enumerate() {
        let hot = phase as u32 * 256..(phase as u32 + 1) * 256;
        let hits = made
            .iter()
            .filter(|access| hot.contains(&access.slot()))
            .count();
        // 0.9 + 0.1 / 8 = 91.25 %; standard deviation 28.
        assert!(hits.abs_diff(9125) < 140, "{hits}");
    }
}

#[test]
fn the_scanner_reads_each_page_once_a_round_and_ends_with_the_others() {
    let mut workload = built(
        r#"
        [scan-over-hot]
        threads = 2
        node = 0
        hot = "1 MiB"
        scanned = "4 MiB"
        on = 2
        stores_percent = 0
        accesses = 5_120
        ops_per_access = 1
        think = "0 ns"
        scan_interval = "10 us"
        "#,
        1,
    );
    let all = run(&mut workload, usize::MAX);
    assert_eq!(all[0].len(), 5120);
    let scanned = &all[2];
    // 100 pages a millisecond, the test's step; the others take 5,120 / 256 = 20 of them, from time 0 on.
    assert!((1700..=2100).contains(&scanned.len()), "{}", scanned.len());
    assert!(
        scanned
            .windows(2)
            .all(|w| w[1].slot() == (w[0].slot() - 256 + 1) % 1024 + 256)
    );
}

#[test]
fn the_chain_is_one_cycle_through_all_pages() {
    let mut workload = built(
        r#"
        [pointer-chase]
        threads = 3
        node = 0
        memory = "1000 KiB"
        on = 2
        accesses = 250
        ops_per_access = 1
        think = "0 ns"
        "#,
        1,
    );
    for made in run(&mut workload, usize::MAX) {
        let mut slots: Vec<u32> = made.iter().map(|access| access.slot()).collect();
        slots.sort_unstable();
        assert_eq!(slots, (0..250).collect::<Vec<u32>>());
    }
}

const TRACE: &str =
    "[trace]\nfile = \"x\"\nnode = 0\non = 2\nops_per_access = 1\nthink = \"0 ns\"\n";

fn row(time_ns: u64, thread: u32, address: u64) -> TraceRow {
    TraceRow {
        time_ns,
        thread,
        address,
        write: thread == 7,
    }
}

#[test]
fn a_trace_comes_again_with_what_its_threads_did_between() {
    let rows = vec![
        row(5_000, 7, 0x10_0000),
        row(6_000, 3, 0x10_2040),
        row(2_005_000, 7, 0x7000_0000),
    ];
    let mut workload = spec(TRACE).build(&places(), 1, &Arc::new(rows));
    // Pages 0x100 to 0x102 are one mapping, 0x70000 another; threads 3 and 7.
    let pages: Vec<u32> = workload.plan().regions.iter().map(|r| r.pages).collect();
    assert_eq!(pages, [3, 1]);
    workload.mapped(&[0, 3]);
    let mut rng = Rng::new(0, 0);
    let mut batch = [Access(0); 8];
    // What the clock says is no matter: it is the time between that counts.
    let mut fill = |thread, batch: &mut [Access]| workload.fill(thread, 77, &mut rng, batch);
    assert_eq!(fill(1, &mut batch), Filled::Accesses(1));
    assert_eq!(batch[0], Access::new(0, 0, 1, true));
    assert_eq!(fill(1, &mut batch), Filled::Thinks(2_000_000));
    assert_eq!(fill(1, &mut batch), Filled::Accesses(1));
    assert_eq!(fill(1, &mut batch), Filled::Done);
    // The other thread began 1 us later.
    assert_eq!(fill(0, &mut batch), Filled::Thinks(1_000));
    assert_eq!(fill(0, &mut batch), Filled::Accesses(1));
    assert_eq!(batch[0], Access::new(2, 1, 1, false));
    assert_eq!(fill(0, &mut batch), Filled::Done);
    assert_eq!(workload.done(), 1.0);
    assert_eq!(workload.truth(0, 1, 0).rate, 0.0);
}

#[test]
fn a_scaled_trace_keeps_every_thread_and_page_with_its_share() {
    // Four threads in turn, on 64 pages in turn: 64,000 rows.
    let rows: Vec<TraceRow> = (0..64_000u64)
        .map(|n| row(n * 100, (n % 4) as u32, (n / 4 % 64) * 4096))
        .collect();
    for scale in [4, 16] {
        let mut workload = spec(TRACE).build(&places(), scale, &Arc::new(rows.clone()));
        let plan = workload.plan().clone();
        assert_eq!(plan.threads.len(), 4, "1/{scale}");
        assert_eq!(plan.regions[0].pages, 64 / scale);
        workload.mapped(&[0]);
        let all = run(&mut workload, usize::MAX);
        let kept: usize = all.iter().map(Vec::len).sum();
        assert_eq!(kept, 64_000 / scale as usize);
        for made in &all {
            // A quarter, by lot: five standard deviations of a count.
            let quarter = kept as f64 / 4.0;
            let slack = 5.0 * (kept as f64 * 3.0 / 16.0).sqrt();
            assert!(
                (made.len() as f64 - quarter).abs() < slack,
                "1/{scale}: {}",
                made.len()
            );
        }
        for page in 0..64 / scale {
            let made = all.iter().flatten().filter(|access| access.slot() == page);
            assert_eq!(made.count(), 1000);
        }
    }
}

#[test]
fn what_cannot_be_names_its_key() {
    let wrong = |from: &str, to: &str| {
        let wrong = spec(&RANDOM.replace(from, to))
            .check(&places())
            .unwrap_err();
        (wrong.key, wrong.why)
    };
    assert_eq!(wrong("on = 2", "on = 5").0, "on");
    assert_eq!(
        wrong("node = 0", "node = 2").1,
        "node 2 has no CPUs; choose one of 0-1"
    );
    assert_eq!(wrong("8 MiB", "80 GiB").0, "memory");
    assert_eq!(wrong("= 50", "= 101").0, "stores_percent");
    assert_eq!(wrong("threads = 4", "threads = 0").0, "threads");
}

#[test]
fn a_model_is_read_once_for_each_token_in_order() {
    let text = r#"
        [inference]
        processes = 2
        threads = 3
        node = 0
        model = "1 MiB"
        layers = 4
        matrices = 2
        tokens = 5
        vectors = "8 KiB"
        program = "4 KiB"
        think = "1 us"
    "#;
    let mut workload = built(text, 1);
    let regions = workload.plan().regions.clone();
    // A model of 256 pages, vectors and results of 2, a program of 1.
    assert_eq!(
        regions.iter().map(|r| r.pages).sum::<u32>(),
        2 * (256 + 2 + 2 + 1)
    );
    assert_eq!(regions[3].file, regions[7].file, "one program");
    assert_ne!(regions[0].file, regions[4].file, "two models");
    let all = run(&mut workload, usize::MAX);
    for process in 0..2 {
        let base = process as u32 * 261;
        let mut reads = vec![0; 256];
        for thread in &all[process * 3..process * 3 + 3] {
            let own: Vec<u32> = thread
                .iter()
                .filter(|access| access.lines() == 64)
                .map(|access| access.slot() - base)
                .collect();
            own.iter().for_each(|&page| reads[page as usize] += 1);
            // A third of each of 8 matrices of 32 pages, in order, five times.
            let falls = own.windows(2).filter(|pair| pair[1] < pair[0]).count();
            assert_eq!(falls, 4);
            let stores = thread.iter().filter(|access| access.is_write()).count();
            let fetches = thread
                .iter()
                .filter(|access| Access::translation_of(access.kind_bits()) == 2);
            assert_eq!((stores, fetches.count()), (own.len(), own.len()));
        }
        assert_eq!(reads, [5; 256]);
    }
    assert_eq!(workload.done(), 1.0);
}
