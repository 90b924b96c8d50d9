//! Each operation on an output fails in turn, for tests of who writes one.

use super::outside;
use memtide_linux::files::faults::{self, Fault};
use std::path::Path;

/// Whatever fails in `work`, which writes the file at the path that it gets: the file has the old
/// content or the new, nothing is beside it (unless the process died), and the error is one line with
/// the file's name.
pub fn leaves_the_old_or_the_new(name: &str, work: impl Fn(&Path) -> anyhow::Result<()>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let (_, trail) = faults::trail(|| work(&path).unwrap());
    assert!(trail.len() >= 5, "{trail:?}");
    let new = std::fs::read(&path).unwrap();
    for (nth, what) in trail.iter().enumerate() {
        for fault in [Fault::Fail(libc::ENOSPC), Fault::Die] {
            let at = format!("{fault:?} at {nth}, {what}");
            std::fs::write(&path, "old").unwrap();
            let error = faults::with(nth, fault, || work(&path)).expect_err(&at);
            let renamed = trail[..nth].iter().any(|what| what == "rename the output");
            let wanted = if renamed { &new[..] } else { b"old" };
            assert!(std::fs::read(&path).unwrap() == wanted, "{at}");
            let said = outside::causes(&error);
            assert!(
                said.contains(name) && said.lines().count() == 1,
                "{at}: {said}"
            );
            for left in std::fs::read_dir(dir.path()).unwrap() {
                let left = left.unwrap();
                if left.file_name() != name {
                    assert_eq!(fault, Fault::Die, "{at}: {left:?} is left");
                    std::fs::remove_file(left.path()).unwrap();
                }
            }
        }
    }
}
