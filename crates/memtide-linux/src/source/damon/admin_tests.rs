#![allow(clippy::single_range_in_vec_init)]
use super::super::knobs::fake::{ADMIN, FakeKernel};
use super::*;

const BOOT: &str = "boot-1";

/// A root with the state of one living process, pid 100, started at tick 77.
fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let proc = root.path().join("proc/100");
    std::fs::create_dir_all(&proc).unwrap();
    let stat = format!("100 (a) b) S {}77 0", "0 ".repeat(18));
    std::fs::write(proc.join("stat"), stat).unwrap();
    root
}

fn holder(pid: u32, start_time: u64) -> Holder {
    Holder {
        boot_id: BOOT.into(),
        pid,
        start_time,
        kdamonds: 2,
        paused_modules: vec![],
    }
}

fn claim(kernel: FakeKernel, root: &Path, pause: bool) -> Result<Admin<FakeKernel>, Unavailable> {
    let file = root.join("run/damon.json");
    Admin::claim(kernel, root, &file, holder(200, 5), pause)
}

fn config(regions: &[Range<u64>]) -> Config {
    Config {
        operations: Operations::Fvaddr,
        sample_us: 100_000,
        aggregate_us: 100_000,
        min_regions: 16,
        max_regions: 24,
        targets: vec![TargetConfig {
            pid: 31,
            regions: regions.to_vec(),
        }],
    }
}

fn start(admin: &mut Admin<FakeKernel>, slot: usize, config: Config) -> Result<u32, KnobError> {
    admin.prepare(slot, config)?;
    admin.turn_on(slot)
}

fn value(admin: &mut Admin<FakeKernel>, path: &str) -> String {
    admin.knobs().files[&format!("{ADMIN}/{path}")].clone()
}

#[test]
fn both_kdamonds_are_made_at_once_and_marked() {
    let root = root();
    let mut admin = claim(FakeKernel::new(), root.path(), false).unwrap();
    assert_eq!(value(&mut admin, "nr_kdamonds"), "2");
    for n in 0..2 {
        let update = format!("{n}/contexts/0/monitoring_attrs/intervals/update_us");
        assert_eq!(value(&mut admin, &update), MARK_US.to_string());
    }
    assert!(root.path().join("run/damon.json").exists());
    admin.restore().unwrap();
    assert_eq!(value(&mut admin, "nr_kdamonds"), "0");
    assert!(!root.path().join("run/damon.json").exists());
}

#[test]
fn a_kdamond_is_filled_in_before_it_is_turned_on() {
    let root = root();
    let mut admin = claim(FakeKernel::new(), root.path(), false).unwrap();
    assert_eq!(
        start(&mut admin, 1, config(&[4096..8192, 12288..20480])).unwrap(),
        4242
    );
    let context = "1/contexts/0";
    for (path, wanted) in [
        ("operations", "fvaddr"),
        ("monitoring_attrs/intervals/sample_us", "100000"),
        ("monitoring_attrs/intervals/aggr_us", "100000"),
        ("monitoring_attrs/nr_regions/min", "16"),
        ("monitoring_attrs/nr_regions/max", "24"),
        ("targets/0/pid_target", "31"),
        ("targets/0/regions/0/start", "4096"),
        ("targets/0/regions/1/end", "20480"),
    ] {
        assert_eq!(
            value(&mut admin, &format!("{context}/{path}")),
            wanted,
            "{path}"
        );
    }
    let last = admin.knobs().writes.last().unwrap().clone();
    assert_eq!(last, (format!("{ADMIN}/1/state"), "on".to_owned()));
    assert!(admin.running(1).unwrap() && !admin.running(0).unwrap());
}

#[test]
fn starting_again_writes_only_what_differs() {
    let root = root();
    let mut admin = claim(FakeKernel::new(), root.path(), false).unwrap();
    start(&mut admin, 0, config(&[0..4096, 8192..12288])).unwrap();
    admin.stop(0).unwrap();
    admin.stop(0).unwrap();
    admin.knobs().writes.clear();
    start(&mut admin, 0, config(&[0..4096, 16384..20480])).unwrap();
    let regions: Vec<_> = admin
        .knobs()
        .writes
        .iter()
        .filter(|(path, _)| path.contains("/regions/") || path.contains("nr_targets"))
        .map(|(path, value)| {
            (
                path.rsplit_once("regions/").unwrap().1.to_owned(),
                value.clone(),
            )
        })
        .collect();
    assert_eq!(
        regions,
        [
            ("1/start".into(), "16384".into()),
            ("1/end".into(), "20480".to_owned())
        ]
    );
}

#[test]
fn somebody_elses_tree_is_not_touched() {
    let root = root();
    let mut kernel = FakeKernel::new();
    kernel.write(&format!("{ADMIN}/nr_kdamonds"), "1").unwrap();
    kernel
        .write(&format!("{ADMIN}/0/contexts/nr_contexts"), "1")
        .unwrap();
    let error = claim(kernel.clone(), root.path(), false).unwrap_err();
    assert!(
        matches!(error, Unavailable::Busy { kdamonds: 1, .. }),
        "{error}"
    );
    assert!(!root.path().join("run/damon.json").exists());
}

#[test]
fn a_living_memtide_is_named() {
    let root = root();
    write_note(&root.path().join("run/damon.json"), &holder(100, 77)).unwrap();
    let error = claim(FakeKernel::new(), root.path(), false).unwrap_err();
    assert!(
        matches!(error, Unavailable::HeldByMemtide { pid: 100, .. }),
        "{error}"
    );
}

#[test]
fn what_a_crash_left_is_cleared_away() {
    let root = root();
    let mut first = claim(FakeKernel::new(), root.path(), false).unwrap();
    start(&mut first, 0, config(&[0..4096, 8192..12288])).unwrap();
    let left = first.knobs().clone();
    std::mem::forget(first);
    // Process 200 does not exist under this root, so the file's holder is dead.
    let mut second = claim(left.clone(), root.path(), false).unwrap();
    assert_eq!(value(&mut second, "0/state"), "off");
    drop(second);

    // The same tree after another program has put its own context there.
    let mut taken = left;
    let update = format!("{ADMIN}/0/contexts/0/monitoring_attrs/intervals/update_us");
    taken.files.insert(update, "60000000".into());
    write_note(&root.path().join("run/damon.json"), &holder(200, 5)).unwrap();
    let error = claim(taken, root.path(), false).unwrap_err();
    assert!(matches!(error, Unavailable::Busy { .. }), "{error}");
}

#[test]
fn a_reused_process_id_is_not_the_holder() {
    let root = root();
    write_note(&root.path().join("run/damon.json"), &holder(100, 76)).unwrap();
    claim(FakeKernel::new(), root.path(), false).unwrap();
}

#[test]
fn damon_stat_is_paused_only_on_request_and_comes_back() {
    let root = root();
    let switch = switch("damon_stat");
    let mut kernel = FakeKernel::new();
    kernel.files.insert(switch.clone(), "Y".into());
    let error = claim(kernel.clone(), root.path(), false).unwrap_err();
    assert!(
        matches!(
            error,
            Unavailable::Module {
                name: "damon_stat",
                ..
            }
        ),
        "{error}"
    );
    let mut admin = claim(kernel.clone(), root.path(), true).unwrap();
    assert_eq!(admin.knobs().files[&switch], "N");
    admin.restore().unwrap();
    assert_eq!(admin.knobs().files[&switch], "Y");

    // After a crash the next holder turns it on again when it is done.
    let mut crashed = claim(kernel, root.path(), true).unwrap();
    let left = crashed.knobs().clone();
    std::mem::forget(crashed);
    let mut next = claim(left, root.path(), false).unwrap();
    next.restore().unwrap();
    assert_eq!(next.knobs().files[&switch], "Y");
}

#[test]
fn modules_that_act_on_memory_are_never_paused() {
    let root = root();
    let mut kernel = FakeKernel::new();
    kernel.files.insert(switch("damon_reclaim"), "Y".into());
    let error = claim(kernel, root.path(), true).unwrap_err();
    assert!(
        matches!(
            error,
            Unavailable::Module {
                name: "damon_reclaim",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn whichever_write_fails_it_is_named_and_everything_is_given_back() {
    let writes = {
        let root = root();
        let mut admin = claim(FakeKernel::new(), root.path(), false).unwrap();
        start(&mut admin, 0, config(&[0..4096, 8192..12288])).unwrap();
        admin.knobs().writes.len()
    };
    for n in 0..writes {
        let root = root();
        let kernel = FakeKernel {
            fail_after: Some(n),
            ..FakeKernel::new()
        };
        let message = match claim(kernel, root.path(), false) {
            Err(error) => error.to_string(),
            Ok(mut admin) => {
                let message = start(&mut admin, 0, config(&[0..4096, 8192..12288]))
                    .unwrap_err()
                    .to_string();
                // The next attempt must not rely on what the failed one left.
                start(&mut admin, 0, config(&[0..4096, 8192..12288])).unwrap();
                assert_eq!(
                    value(&mut admin, "0/contexts/0/targets/0/regions/1/start"),
                    "8192"
                );
                admin.restore().unwrap();
                assert_eq!(value(&mut admin, "nr_kdamonds"), "0");
                message
            }
        };
        assert!(
            message.contains(ADMIN) && message.contains("writing"),
            "write {n}: {message}"
        );
        assert!(!root.path().join("run/damon.json").exists(), "write {n}");
    }
}
