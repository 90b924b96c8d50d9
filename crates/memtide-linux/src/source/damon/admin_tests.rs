#![allow(clippy::single_range_in_vec_init)]
use super::super::knobs::fake::{ADMIN, FakeKernel, Shared};
use super::*;
use crate::files::faults::{self, Fault};
use crate::files::refusals;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

#[path = "admin_mending_tests.rs"]
mod mending;

/// A root with nothing in it.
fn root() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn holder(pid: u32) -> Holder {
    Holder {
        pid,
        kdamonds: 2,
        paused_modules: vec![],
    }
}

fn claim<K: Knobs>(kernel: K, root: &Path, pause: bool) -> Result<Admin<K>, Unavailable> {
    Admin::claim(kernel, root, holder(200), pause)
}

/// Ends as a kill does: nothing is put back, the lock is gone.
fn killed(admin: Admin<FakeKernel>) -> FakeKernel {
    faults::with(0, Fault::Die, || {
        let mut admin = admin;
        admin.knobs().clone()
    })
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

fn start<K: Knobs>(admin: &mut Admin<K>, slot: usize, config: Config) -> Result<u32, KnobError> {
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
    assert!(root.path().join("run/memtide/damon.json").exists());
    admin.restore().unwrap();
    assert_eq!(value(&mut admin, "nr_kdamonds"), "0");
    assert!(!root.path().join("run/memtide/damon.json").exists());
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
    assert!(!root.path().join("run/memtide/damon.json").exists());
}

#[test]
fn a_living_memtide_is_named() {
    let root = root();
    let first = claim(FakeKernel::new(), root.path(), false).unwrap();
    let error = claim(FakeKernel::new(), root.path(), false).unwrap_err();
    assert!(
        matches!(error, Unavailable::HeldByMemtide { pid: Some(200), .. }),
        "{error}"
    );
    drop(first);
    claim(FakeKernel::new(), root.path(), false).unwrap();
}

#[test]
fn a_note_that_names_another_module_is_not_followed() {
    let root = root();
    let note = Holder {
        paused_modules: vec!["../../../../etc".into()],
        ..holder(9)
    };
    holder::journal(root.path()).note(&note).unwrap();
    let mut kernel = FakeKernel::new();
    kernel.files.insert(switch("../../../../etc"), "N".into());
    let kernel = Rc::new(RefCell::new(kernel));
    let error = claim(Rc::clone(&kernel), root.path(), true).unwrap_err();
    assert!(error.to_string().contains("never turns off"), "{error}");
    assert!(left_over(root.path()).is_err());
    assert_eq!(kernel.borrow().writes, []);
}

#[test]
fn what_a_crash_left_is_cleared_away() {
    let root = root();
    let mut first = claim(FakeKernel::new(), root.path(), false).unwrap();
    start(&mut first, 0, config(&[0..4096, 8192..12288])).unwrap();
    let left = killed(first);
    let mut second = claim(left.clone(), root.path(), false).unwrap();
    assert_eq!(value(&mut second, "0/state"), "off");
    drop(second);

    // The same tree after another program has put its own context there.
    let mut taken = left;
    let update = format!("{ADMIN}/0/contexts/0/monitoring_attrs/intervals/update_us");
    taken.files.insert(update, "60000000".into());
    holder::journal(root.path()).note(&holder(200)).unwrap();
    let error = claim(taken, root.path(), false).unwrap_err();
    assert!(matches!(error, Unavailable::Busy { .. }), "{error}");
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
    let crashed = claim(kernel, root.path(), true).unwrap();
    let left = killed(crashed);
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
        assert!(
            !root.path().join("run/memtide/damon.json").exists(),
            "write {n}"
        );
    }
}

/// Killed before and after each single write, of a setting or of the note: the
/// next start gives everything back. A write that only fails, too.
#[test]
fn whenever_it_is_killed_the_next_start_gives_everything_back() {
    fn kernel() -> Shared {
        let mut kernel = FakeKernel::new();
        kernel.files.insert(switch("damon_stat"), "Y".into());
        Rc::new(RefCell::new(kernel))
    }
    fn work(kernel: &Shared, root: &Path) {
        let Ok(mut admin) = claim(Rc::clone(kernel), root, true) else {
            return;
        };
        let _ = start(&mut admin, 0, config(&[0..4096, 8192..12288]));
        let _ = admin.stop(0);
        let _ = start(&mut admin, 1, config(&[4096..8192]));
        let _ = admin.restore();
    }
    let (_, trail) = faults::trail(|| work(&kernel(), root().path()));
    assert!(trail.len() > 40, "{trail:?}");
    for (nth, what) in trail.iter().enumerate() {
        for fault in [Fault::Die, Fault::Fail(libc::ENOMEM)] {
            let (root, kernel) = (root(), kernel());
            faults::with(nth, fault, || work(&kernel, root.path()));
            let at = format!("{fault:?} at {nth}, {what}");
            let next = claim(Rc::clone(&kernel), root.path(), true);
            next.unwrap_or_else(|error| panic!("{at}: {error}"))
                .restore()
                .unwrap();
            let files = &kernel.borrow().files;
            assert_eq!(files[&format!("{ADMIN}/nr_kdamonds")], "0", "{at}");
            assert_eq!(files[&switch("damon_stat")], "Y", "{at}");
            assert_eq!(left_over(root.path()).unwrap(), None, "{at}");
        }
    }
}

/// A kernel in a file: it outlives a process that is aborted. A write has happened once it is in
/// the file.
struct Kept(PathBuf);

impl Kept {
    /// In the folder of `root`, with `damon_stat` on.
    fn new(root: &Path) -> Kept {
        let kept = Kept(root.join("kernel.json"));
        let mut kernel = FakeKernel::new();
        kernel.files.insert(switch("damon_stat"), "Y".into());
        kept.keep(&kernel);
        kept
    }

    fn kernel(&self) -> FakeKernel {
        let text = or_no_memory(std::fs::read(&self.0));
        FakeKernel {
            files: serde_json::from_slice(&text).unwrap(),
            ..FakeKernel::default()
        }
    }

    fn keep(&self, kernel: &FakeKernel) {
        let beside = self.0.with_extension("new");
        std::fs::write(&beside, serde_json::to_vec(&kernel.files).unwrap()).unwrap();
        std::fs::rename(&beside, &self.0).unwrap();
    }
}

/// The kernel itself has all the memory that it needs, so this is no error of its: the process ends.
fn or_no_memory<T>(result: io::Result<T>) -> T {
    match result {
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<Kept>())
        }
        result => result.unwrap(),
    }
}

impl Knobs for Kept {
    fn read(&self, path: &str) -> Result<String, KnobError> {
        self.kernel().read(path)
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), KnobError> {
        let mut kernel = self.kernel();
        kernel.write(path, value)?;
        self.keep(&kernel);
        Ok(())
    }

    fn exists(&self, path: &str) -> bool {
        self.kernel().exists(path)
    }

    fn shown(&self, path: &str) -> PathBuf {
        path.into()
    }
}

/// Ended by an allocation that is refused, alone or while it takes over what another left: the next
/// start gives everything back.
#[test]
fn whichever_allocation_is_refused_the_next_start_gives_everything_back() {
    const NAME: &str = "source::damon::admin::tests::whichever_allocation_is_refused_the_next_start_gives_everything_back";
    if let Some(place) = refusals::place() {
        let kernel = Kept(place.join("kernel.json"));
        refusals::begin();
        if let Ok(mut admin) = claim(kernel, &place, true) {
            let _ = start(&mut admin, 0, config(&[0..4096, 8192..12288]));
            let _ = admin.restore();
        }
        std::process::exit(0);
    }
    let library = tempfile::tempdir().unwrap();
    let library = refusals::Library::build(library.path());
    for taken_over in [false, true] {
        let ended = library.each(
            || {
                let root = root();
                let kernel = Kept::new(root.path());
                if taken_over {
                    let mut admin = claim(kernel, root.path(), true).unwrap();
                    start(&mut admin, 0, config(&[0..4096])).unwrap();
                    faults::with(0, Fault::Die, || drop(admin));
                }
                root
            },
            |root| refusals::itself(NAME, root.path()),
            |root, ended, at| {
                let kept = || Kept(root.path().join("kernel.json"));
                let next = claim(kept(), root.path(), true);
                next.unwrap_or_else(|error| panic!("{at}, {ended:?}: {error}"))
                    .restore()
                    .unwrap();
                let files = kept().kernel().files;
                assert_eq!(files[&format!("{ADMIN}/nr_kdamonds")], "0", "{at}");
                assert_eq!(files[&switch("damon_stat")], "Y", "{at}");
                assert_eq!(left_over(root.path()).unwrap(), None, "{at}");
            },
        );
        assert!(ended > 50, "only {ended}");
    }
}
