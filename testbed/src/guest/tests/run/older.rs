//! `memtide run` on a kernel without weighted interleave, as they were before 6.9.
//!
//! No such kernel is booted. This one plays it: an empty directory lies over the one with the table of
//! weights, and a filter answers `EINVAL` to whoever sets the policy `MPOL_WEIGHTED_INTERLEAVE`, as a
//! kernel does that does not know the mode. The rest of the kernel stays the newer one's.

use std::fs::File;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::process::Signal;

use super::{MIB, PAGES, PATIENCE, PROGRAM, belongs, end, memtide_run};
use crate::guest::late::within;
use crate::guest::pace::Stretch;
use crate::guest::procfs::numa_line;
use crate::guest::subject::Victim;
use crate::guest::sys::without_weighted_interleave;
use crate::guest::tests::Context;

/// What such a kernel has not got.
const FOLDER: &str = "/sys/kernel/mm/mempolicy";
const EMPTY: &str = "/tmp/no-mempolicy";
const SAID: &str = "/tmp/said-before-6.9";

/// The table is hidden until this is dropped.
struct Hidden;

impl Hidden {
    fn new() -> Result<Self> {
        std::fs::create_dir_all(EMPTY)?;
        mount_bind(EMPTY, FOLDER)?;
        Ok(Self)
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = unmount(FOLDER, UnmountFlags::empty());
    }
}

/// Placed in turn and moved to 9:1, and each said; the table cannot be written, and that is said.
pub(super) fn before_6_9(context: &mut Context) -> Result<()> {
    let before = super::table()?;
    let hidden = Hidden::new()?;
    let mut command = memtide_run(&["--weighted-interleave", "0,2", "--weights", "0=9,2=1"]);
    command.args(PROGRAM).arg(MIB).stderr(File::create(SAID)?);
    without_weighted_interleave(&mut command);
    let stretch = Stretch::begin();
    let mut victim = Victim::spawn(command, 1)?;
    let wanted = belongs(victim.truth().start, PAGES, &[(0, 9), (2, 1)]);
    let line = loop {
        let line = numa_line(victim.truth().pid, victim.truth().start)?;
        let near = |node, wanted: u64| line.on(node).abs_diff(wanted) * 100 <= PAGES;
        if near(0, wanted[0]) && near(2, wanted[1]) {
            break line;
        }
        within(&stretch, PATIENCE, || {
            format!("{line:?} instead of {wanted:?}")
        })?;
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    ensure!(line.policy == "interleave:0,2", "policy {:?}", line.policy);
    context.note(format!(
        "{} and {} pages after {:.1} s",
        line.on(0),
        line.on(2),
        stretch.elapsed().as_secs_f64()
    ))?;
    let code = end(&mut victim, Signal::TERM)?;
    ensure!(code == Some(128 + 15), "exit status {code:?}");
    let said = std::fs::read_to_string(SAID)?;
    let lines: Vec<&str> = said.lines().collect();
    ensure!(
        lines.len() == 3
            && lines[0].contains("no weighted interleave (Linux has it since 6.9)")
            && lines[1].contains("no interleave weights (Linux has them since 6.9)")
            && lines[2].starts_with("memtide: moved ")
            && lines[2].ends_with(" pages to 0=9,2=1"),
        "{said}"
    );
    context.note(lines[2].to_owned())?;

    // Weights that cannot be written are not passed over.
    let run = [
        "-w",
        "0,2",
        "--weights",
        "0=9,2=1",
        "--apply-weights",
        "true",
    ];
    let mut weights = Command::new("memtide");
    weights.args(["weights", "--apply"]);
    for mut command in [memtide_run(&run), weights] {
        without_weighted_interleave(&mut command);
        let Output {
            status,
            stdout,
            stderr,
        } = command.output()?;
        let said = String::from_utf8_lossy(&stderr);
        ensure!(
            status.code() == Some(1)
                && stdout.is_empty()
                && said.lines().count() == 1
                && said.contains("has no table of interleave weights; Linux has it since 6.9"),
            "{status}: {said}"
        );
    }
    drop(hidden);
    ensure!(super::table()? == before, "the table changed");
    Ok(())
}
