//! Measurements that were published elsewhere than in the five series, ours beside theirs.
//!
//! `docs/validation.md` has the table; it is made here and held to be what comes out. The other tests hold
//! what is promised of it: direction, and distance. Machines come from public data (`published/`), and none
//! of their figures was chosen by what came out.
//!
//! The table, printed: `cargo test -p memtide-sim --test published -- --nocapture`.

use memtide_sim::scenario::{Options, Quiet, Row, Scenario, run};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// Latencies of Colloid's slow tier, in ns, and what its authors measured there: throughput of GUPS on HeMem
/// with Colloid over that without, by the antagonist's intensity 0 to 3.
const COLLOID: [(u32, [f64; 4]); 4] = [
    (135, [1.008, 1.173, 1.652, 2.361]),
    (148, [0.996, 1.090, 1.536, 2.191]),
    (168, [0.993, 1.023, 1.373, 1.973]),
    (192, [0.992, 1.014, 1.254, 1.765]),
];
/// A ratio below is no gain.
const GAIN: f64 = 1.05;
/// Distance that is near, of ratios: 15 points.
const NEAR: f64 = 0.15;

/// A row: what it is, theirs, ours.
struct Line {
    what: String,
    theirs: Option<f64>,
    ours: f64,
}

/// All that was simulated, once.
struct Validation {
    colloid: Vec<Line>,
    hemem: Vec<Line>,
    tpp: Vec<Line>,
    xeon6: Vec<Line>,
}

static VALIDATION: LazyLock<Validation> = LazyLock::new(|| Validation {
    colloid: colloid(),
    hemem: hemem(),
    tpp: tpp(),
    xeon6: xeon6(),
});

/// The rows of `scenario`. `machine` is a file of `published/`, in which each of `changed` is written
/// differently.
fn rows(scenario: &str, machine: &str, changed: &[(&str, &str)]) -> Vec<Row> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published");
    let mut text = std::fs::read_to_string(folder.join(machine)).unwrap();
    for (from, to) in changed {
        assert!(text.contains(from), "{machine}: no {from}");
        text = text.replace(from, to);
    }
    let head = format!("title = \"t\"\nshows = \"s\"\nmachine = \"{machine}\"\n");
    let scenario = Scenario::read(&(head + scenario), "published.toml", &mut |_| {
        Ok(text.clone())
    });
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
    let only = (scenario.configurations.iter()).map(|one| one.name.clone());
    let options = Options {
        only: only.collect(),
        jobs: 2,
        ..Options::default()
    };
    run(&scenario, &options, &Quiet).unwrap().rows
}

/// How many times as good as the first one each configuration is.
fn ratios(scenario: &str, machine: &str, changed: &[(&str, &str)]) -> BTreeMap<String, f64> {
    let ratio = |row: &Row| match row.unit.more_is_better() {
        true => row.ratio.unwrap(),
        false => 1.0 / row.ratio.unwrap(),
    };
    rows(scenario, machine, changed)
        .iter()
        .map(|row| (row.configuration.clone(), ratio(row)))
        .collect()
}

/// Rows of the hot part in so many tenths on DRAM, the last first: packing.
fn splits(tenths: &[u32]) -> String {
    let mut rows = String::new();
    for &fast in tenths {
        let nodes = match fast {
            10 => "nodes = [0]".to_owned(),
            0 => "nodes = [1]".to_owned(),
            _ => format!("nodes = [0, 1], weights = [{fast}, {}]", 10 - fast),
        };
        let _ = write!(
            rows,
            "[[configuration]]\nname = \"{fast}\"\ninterleave = {{ {nodes}, targeted = true }}\n"
        );
    }
    rows
}

fn best(ratios: &BTreeMap<String, f64>) -> f64 {
    ratios.values().copied().fold(0.0, f64::max)
}

/// Colloid's figure 6: the best of eleven splits of the hot set over packing it into DRAM.
fn colloid() -> Vec<Line> {
    let mut lines = Vec::new();
    for (ns, theirs) in COLLOID {
        for (intensity, theirs) in (0..).zip(theirs) {
            let mut text = "scale = 512\n[[program]]\nname = \"gups\"\n[program.workload.gups]\nthreads = 15\n\
                node = 0\nmemory = \"72 GiB\"\non = 1\nhuge = true\nhot = \"20 GiB\"\nhot_percent = 90\n\
                time = \"500 ms\"\nops_per_access = 20\nthink = \"0 ns\"\n"
                .to_owned();
            if intensity > 0 {
                let _ = write!(
                    text,
                    "[[program]]\nname = \"load\"\nbackground = true\n[program.workload.mlc]\n\
                     mix = \"W5\"\nthreads = {}\nnode = 0\nbuffer = \"512 MiB\"\nuntil = \"500 ms\"\n",
                    5 * intensity
                );
            }
            text += &splits(&[10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
            let slow = format!("\"{ns} ns\"");
            lines.push(Line {
                what: format!("slow tier of {ns} ns, load {intensity} times"),
                theirs: Some(theirs),
                ours: best(&ratios(&text, "icx-numa.toml", &[("\"135 ns\"", &slow)])),
            });
        }
    }
    lines
}

/// HeMem's GUPS, 512 GiB with a hot part of 16: in DRAM, over where its pages first were: the hot part lies at
/// the end, so that DRAM is full before.
fn hemem() -> Vec<Line> {
    let mut text = "scale = 4096\n[workload.gups]\nthreads = 16\nnode = 0\nmemory = \"512 GiB\"\non = 1\n\
        huge = true\nhot = \"16 GiB\"\nhot_percent = 90\ntime = \"500 ms\"\nops_per_access = 20\nthink = \"0 ns\"\n"
        .to_owned();
    text += &splits(&[0, 2, 4, 6, 8, 10]);
    let rows = ratios(&text, "optane.toml", &[]);
    vec![
        Line {
            what: "hot part in DRAM, over all of it on Optane".to_owned(),
            theirs: None,
            ours: rows["10"],
        },
        Line {
            what: "best split of the hot part over all of it in DRAM".to_owned(),
            theirs: None,
            ours: best(&rows) / rows["10"],
        },
    ]
}

/// TPP's cache application at 1:4. What is published of it is its speed by where its pages are. The time that
/// it spends without memory is so long that the default has the published 0.82 of the speed with all memory local:
/// a default access takes 10 ns longer here than a local one, so a local one has to take 46 ns, of which memory is
/// 18. Everything else follows.
fn tpp() -> Vec<Line> {
    let workload = "scale = 256\n[workload.zipf]\nthreads = 16\nnode = 0\nmemory = \"10 GiB\"\non = 0\n\
        exponent = 0.99\ndrift_every = \"100 s\"\ndrift_permille = 0\nstores_percent = 10\n\
        accesses = 1_200_000_000\nops_per_access = 20\nthink = \"28 ns\"\n";
    let default = "[[configuration]]\nname = \"default\"\n";
    let others = "[[configuration]]\nname = \"NUMAB2\"\nnuma_balancing = 2\n\
        [[configuration]]\nname = \"memtide tier\"\ntier = {}\n";
    let tiers = rows(
        &format!("{workload}{default}{others}"),
        "one-to-four.toml",
        &[],
    );
    let enough = ("memory = \"2 GiB\"", "memory = \"12 GiB\"");
    let local = rows(
        &format!("{workload}{default}"),
        "one-to-four.toml",
        &[enough],
    );
    let speed = |row: &Row| 1.0 / row.value;
    let default = speed(&tiers[0]);
    let line = |what: &str, theirs, ours| Line {
        what: what.to_owned(),
        theirs,
        ours,
    };
    vec![
        line(
            "default over all local",
            Some(0.82),
            default / speed(&local[0]),
        ),
        line(
            "NUMAB2 over the default",
            Some(0.95 / 0.82),
            speed(&tiers[1]) / default,
        ),
        line(
            "memtide tier over the default",
            None,
            speed(&tiers[2]) / default,
        ),
    ]
}

/// Micron's and Intel's weighted interleave: the best of weights over DRAM only. At coarser scales an access,
/// of a whole page, lasts longer than a quantum.
fn xeon6() -> Vec<Line> {
    [("R", "reads only", 1.24), ("W2", "two reads and a write", 1.39)]
        .map(|(mix, what, theirs)| {
            let mut text = format!(
                "scale = 512\n[workload.mlc]\nmix = \"{mix}\"\nthreads = 128\nnode = 0\nbuffer = \"2 GiB\"\n\
                 until = \"500 ms\"\n"
            );
            for weights in ["1, 0", "5, 1", "4, 1", "3, 1", "5, 2", "2, 1", "3, 2", "1, 1"] {
                let interleave = match weights {
                    "1, 0" => "nodes = [0]".to_owned(),
                    _ => format!("nodes = [0, 1], weights = [{weights}]"),
                };
                let _ = write!(
                    text,
                    "[[configuration]]\nname = \"{weights}\"\ninterleave = {{ {interleave} }}\n"
                );
            }
            Line {
                what: format!("{what}, over DRAM only"),
                theirs: Some(theirs),
                ours: best(&ratios(&text, "xeon6-cxl.toml", &[])),
            }
        })
        .into()
}

/// The table of `docs/validation.md`.
fn table() -> String {
    let all = &*VALIDATION;
    let mut table = "| what | theirs | ours |\n|---|---|---|\n".to_owned();
    for (name, lines) in [
        ("Colloid, figure 6", &all.colloid),
        ("HeMem, GUPS 90/10", &all.hemem),
        ("TPP, 1:4", &all.tpp),
        ("weighted interleave, Xeon 6", &all.xeon6),
    ] {
        for line in lines {
            let theirs = line
                .theirs
                .map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            let _ = writeln!(
                table,
                "| {name}: {} | {theirs} | {:.2} |",
                line.what, line.ours
            );
        }
    }
    table
}

#[test]
fn the_document_has_what_comes_out() {
    let table = table();
    println!("{table}");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/validation.md");
    let document = std::fs::read_to_string(path).unwrap();
    assert!(
        document.contains(&table),
        "docs/validation.md has another table; this is what came out:\n{table}"
    );
}

#[test]
fn colloids_figure_has_its_direction_in_every_cell() {
    for line in &VALIDATION.colloid {
        let (theirs, ours) = (line.theirs.unwrap(), line.ours);
        // The best split is never worse than packing, which is one of them.
        let same = match theirs > 1.0 {
            true => ours > 1.0,
            false => ours < GAIN,
        };
        assert!(same, "{}: {theirs} and {ours}", line.what);
    }
    // More load, more gain; a slower slow tier, less.
    let ours: Vec<f64> = VALIDATION.colloid.iter().map(|line| line.ours).collect();
    for row in ours.chunks(4) {
        assert!(row.is_sorted(), "{row:?}");
    }
    for n in 4..16 {
        assert!(ours[n] <= ours[n - 4] + 0.01, "{ours:?}");
    }
}

#[test]
fn colloids_figure_is_near_in_three_of_four_cells() {
    let near = |line: &&Line| (line.ours - line.theirs.unwrap()).abs() <= NEAR;
    let count = VALIDATION.colloid.iter().filter(near).count();
    assert!(4 * count >= 3 * 16, "{count} of 16");
}

#[test]
fn a_hot_set_in_dram_is_the_best_for_hemems_gups() {
    let [packed, best] = &*VALIDATION.hemem else {
        panic!("two rows")
    };
    assert!(packed.ours > GAIN, "{}", packed.ours);
    // As in the column without load of Colloid's figure.
    assert!(best.ours < GAIN, "{}", best.ours);
}

#[test]
fn tiering_gains_at_one_to_four() {
    let [default, numab2, _] = &*VALIDATION.tpp else {
        panic!("three rows")
    };
    assert!((default.ours - 0.82).abs() < 0.01, "{}", default.ours);
    assert!(numab2.ours > 1.0, "{}", numab2.ours);
    let distance = (numab2.ours - numab2.theirs.unwrap()).abs();
    assert!(distance <= NEAR, "{}", numab2.ours);
}

#[test]
fn eight_expanders_add_bandwidth_and_more_to_a_mix() {
    let [reads, mix] = &*VALIDATION.xeon6 else {
        panic!("two rows")
    };
    assert!(GAIN < reads.ours && reads.ours < mix.ours);
}
