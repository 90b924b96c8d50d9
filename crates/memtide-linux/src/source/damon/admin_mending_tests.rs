//! Claims that meet another memtide, or what it left.

use super::*;
use std::cell::Cell;

/// A kernel at which another memtide tries to take the tree whenever somebody
/// asks how many kdamonds there are.
struct Contested<'a> {
    kernel: Shared,
    root: &'a Path,
    tried: &'a Cell<usize>,
}

impl Knobs for Contested<'_> {
    fn read(&self, path: &str) -> Result<String, KnobError> {
        let answer = self.kernel.read(path);
        if path.ends_with("/nr_kdamonds") {
            self.tried.set(self.tried.get() + 1);
            if let Ok(mut other) = claim(Rc::clone(&self.kernel), self.root, false) {
                start(&mut other, 0, config(&[0..4096])).unwrap();
                // Killed: the answer is no longer true.
                faults::with(0, Fault::Die, || drop(other));
            }
        }
        answer
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), KnobError> {
        self.kernel.write(path, value)
    }

    fn exists(&self, path: &str) -> bool {
        self.kernel.exists(path)
    }

    fn shown(&self, path: &str) -> PathBuf {
        path.into()
    }
}

#[test]
fn nobody_takes_the_tree_while_it_is_looked_at() {
    let (root, tried) = (root(), Cell::new(0));
    let kernel = Rc::new(RefCell::new(FakeKernel::new()));
    let contested = Contested {
        kernel: Rc::clone(&kernel),
        root: root.path(),
        tried: &tried,
    };
    let mut admin = claim(contested, root.path(), false).unwrap();
    assert!(tried.get() > 0);
    assert!(!admin.running(0).unwrap(), "another one's still runs");
    admin.restore().unwrap();
    assert_eq!(kernel.borrow().files[&format!("{ADMIN}/nr_kdamonds")], "0");
}

/// Killed at any write, and the next start, which clears that away, at any of
/// its own: the one after that gives everything back.
#[test]
fn whenever_the_mending_is_killed_the_next_start_mends() {
    fn work((root, kernel): &(tempfile::TempDir, Shared)) {
        let Ok(mut admin) = claim(Rc::clone(kernel), root.path(), true) else {
            return;
        };
        let _ = start(&mut admin, 0, config(&[0..4096, 8192..12288]));
        let _ = admin.stop(0);
        let _ = start(&mut admin, 1, config(&[4096..8192]));
        let _ = admin.restore();
    }
    let pairs = faults::mended(
        || {
            let mut kernel = FakeKernel::new();
            kernel.files.insert(switch("damon_stat"), "Y".into());
            (faults::folder(), Rc::new(RefCell::new(kernel)))
        },
        work,
        work,
        |(root, kernel), at| {
            let next = claim(Rc::clone(kernel), root.path(), true);
            next.unwrap_or_else(|error| panic!("{at}: {error}"))
                .restore()
                .unwrap_or_else(|error| panic!("{at}: {error}"));
            let files = &kernel.borrow().files;
            assert_eq!(files[&format!("{ADMIN}/nr_kdamonds")], "0", "{at}");
            assert_eq!(files[&switch("damon_stat")], "Y", "{at}");
            assert_eq!(left_over(root.path()).unwrap(), None, "{at}");
        },
    );
    assert!(pairs > 40 * 40, "only {pairs}");
}
