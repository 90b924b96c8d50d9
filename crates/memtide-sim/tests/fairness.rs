//! What the loop says of how well fast memory serves classes, beside what the machine knows.
//!
//! The programs access their hot pages alike, and no others. So the share of a program's accesses that fast
//! memory serves is the share of its hot pages that is there; caches hold as much of the ones as of the
//! others. Each hot page is accessed more than a hundred times a second, so that next to none is missed in
//! a pass of 50 ms.

use memtide_sim::result::RunResult;
use memtide_sim::scenario::{Options, Quiet, Scenario, run, shipped};

/// The loop's shares are of whole buckets of 5 s, of which six are kept: at 30 s, of the time since 5 s.
const BACK_S: f64 = 25.0;
/// A class goes a hundredth below its bound and up again, and the loop's passes are not spread over time as
/// evenly as the machine's points are: a hundredth for each.
const MOVES: f64 = 0.02;

/// The row `NAME` of two programs, each with a hot set of 768 MiB, of which `left` may have 2/5 of the 2 GiB of
/// fast memory, and `right` 256 MiB: all of the one's hot set fits there, and a third of the other's.
fn result(source: &str, memory: &str, seconds: u32) -> RunResult {
    let mut text =
        "title = \"t\"\nshows = \"s\"\nmachine = \"machines/shared-cxl.toml\"\nscale = 16\n"
            .to_owned();
    for name in ["left", "right"] {
        text += &format!(
            "[[program]]\nname = \"{name}\"\ncgroup = \"/tenants/{name}\"\nend = \"{seconds} s\"\n\
             [program.workload.hot-set]\nthreads = 4\nnode = 0\nmemory = \"{memory}\"\non = 0\n\
             hot = \"768 MiB\"\npiece = \"2 MiB\"\ntime = \"{seconds} s\"\nstores_percent = 30\n\
             ops_per_access = 20\nthink = \"1 us\"\n"
        );
    }
    text += &format!("[[configuration]]\nname = \"row\"\ntier = {{ source = \"{source}\" }}\n");
    for (name, high) in [("left", "40%"), ("right", "256MiB")] {
        text += &format!(
            "[configuration.class.{name}]\ncgroup = \"/tenants/{name}\"\nfast.high = \"{high}\"\n"
        );
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let scenario = Scenario::read(&text, "fairness.toml", &mut |path| {
        std::fs::read_to_string(folder.join(path)).map_err(|error| error.to_string())
    })
    .unwrap();
    let mut rows = run(&scenario, &Options::default(), &Quiet).unwrap().rows;
    rows.remove(0).result
}

/// The share of its accesses that fast memory served of this program, on average.
fn truth(result: &RunResult, name: &str) -> f64 {
    let program = result.programs.iter().find(|one| one.name == name).unwrap();
    let seconds = &result.series.seconds;
    let since = seconds.last().unwrap() - BACK_S;
    let first = seconds.partition_point(|&at| at < since);
    let shares = program.series.fast_share[first..].iter().flatten();
    shares.clone().sum::<f64>() / shares.count() as f64
}

/// The loop's shares of accesses and of touched pages.
fn told(result: &RunResult, name: &str) -> [Option<f64>; 2] {
    let classes = &result.tiering.as_ref().unwrap().classes;
    let class = classes.iter().find(|class| class.name == name).unwrap();
    [class.fast_access_permille, class.fast_touched_permille]
        .map(|permille| Some(f64::from(permille?) / 1000.0))
}

/// Compares the loop's share of this kind with the truth.
fn agree(result: &RunResult, kind: usize, tolerance: f64) {
    for name in ["left", "right"] {
        let (truth, told) = (truth(result, name), told(result, name));
        println!("{name}: {truth:.4} is true, {told:.3?} is told");
        let share = told[kind].unwrap();
        assert!(
            (share - truth).abs() <= tolerance,
            "{name}: {share} is told, {truth} is true"
        );
        assert_eq!(told[1 - kind], None);
    }
}

/// The programs are not alike, so that no constant agrees with both.
fn agree_on_unlike(result: &RunResult, kind: usize, tolerance: f64) {
    agree(result, kind, tolerance);
    assert!(truth(result, "left") > 2.0 * truth(result, "right"));
}

#[test]
fn of_two_tenants_alike_the_loop_tells_the_truth() {
    let scenario = shipped("two-tenants").unwrap().read().unwrap();
    let options = Options {
        only: vec!["page tables, classes".to_owned()],
        ..Options::default()
    };
    let mut rows = run(&scenario, &options, &Quiet).unwrap().rows;
    agree(&rows.remove(0).result, 1, MOVES);
}

#[test]
fn scans_of_page_tables_tell_the_true_share_of_touched_pages() {
    agree_on_unlike(&result("page-table", "2 GiB", 30), 1, MOVES);
}

/// 8 of 16 CPUs are busy, and of each some 1,000 samples a second are wanted; of 10,000 samples of one class the
/// error of a share is at most 0.005, and four times that is allowed.
#[test]
fn samples_tell_the_true_share_of_accesses() {
    agree_on_unlike(&result("ibs", "2 GiB", 30), 0, MOVES + 0.02);
}

/// Less than 1 GiB is slow, so that glances are not the search's. Of 768 MiB of `right` that are slow a glance
/// sees about 200 single pages, of which two thirds are hot: the error of their part is 0.033, that of the
/// share, 1/3, then 0.011. Of 205 MiB of `left` it sees about 54; the error of their part is 0.068 at most, or 14
/// of the 768 MiB that are hot, 0.018. Some three times the one and twice the other is allowed. Glances do not
/// count while looks go on, as they do while hot pages come home: so it is the second half minute that is compared.
#[test]
fn glances_tell_the_true_share_of_touched_pages() {
    agree_on_unlike(&result("damon", "1 GiB", 60), 1, MOVES + 0.033);
}

/// Two programs of 2 GiB have more slow memory than a look takes in, so that it is searched.
#[test]
fn a_search_tells_the_true_share_of_touched_pages() {
    agree_on_unlike(&result("damon", "2 GiB", 60), 1, MOVES + 0.033);
}
