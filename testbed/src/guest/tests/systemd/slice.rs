//! A slice of systemd's as a class with a share of fast memory.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::super::serve::shares::{BOUND_AFTER, used_on};
use super::super::serve::{DROP_IN, put};
use super::{Context, SERVICE, Unit, done};
use crate::guest::late::within;
use crate::guest::pace::Stretch;
use crate::guest::subject::Victim;

const SLICE: &str = "batch.slice";
/// Its bound, in MiB, and what of it may be exceeded.
const BOUND_MIB: u64 = 80;
const MOST: u64 = (BOUND_MIB << 20) / 100 * 102;
/// How long it is watched that it stays within.
const WATCH: Duration = Duration::from_secs(5);
/// A user other than root.
const USER: &str = "somebody";

/// What `systemd-run` starts in a slice, as another user, is in the class that names the slice as its unit,
/// and is kept within the class's bound.
pub(super) fn is_a_class(context: &mut Context) -> Result<()> {
    let unit = Unit::at_rest()?;
    let mut command = Command::new("systemd-run");
    command.args(["--quiet", "--collect", "--scope"]);
    command.args([&format!("--slice={SLICE}"), &format!("--uid={USER}")]);
    command.args([
        "/init", "victim", "--node", "0", "--size", "160", "--hot", "16",
    ]);
    let victim = Victim::spawn(command, 1)?;
    let dram = context.dram.clone();
    let used = || used_on(&Path::new("/sys/fs/cgroup").join(SLICE), &dram);
    ensure!(used()? > 150 << 20, "{} bytes charged to {SLICE}", used()?);
    let class = format!("[class.batch]\nunit = {SLICE:?}\nfast.high = \"{BOUND_MIB}MiB\"\n");
    put(DROP_IN, &class)?;
    done(&["systemctl", "start", SERVICE])?;
    let stretch = Stretch::begin();
    while used()? > MOST {
        within(&stretch, BOUND_AFTER, || {
            "the slice was above its bound".to_owned()
        })?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let seconds = stretch.elapsed().as_secs_f64();
    let (stretch, mut most) = (Stretch::begin(), 0);
    while !stretch.is_over(WATCH) {
        most = most.max(used()?);
        ensure!(
            most <= MOST,
            "the slice uses {most} bytes of fast memory, and {MOST} are its bound and 2 %"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    for words in [&["memtide", "status"][..], &["memtide", "top", "--once"]] {
        let said = done(words)?;
        ensure!(said.contains("batch"), "{words:?}: {said}");
    }
    let said = done(&["memtide", "top", "--once", "--processes"])?;
    let pid = victim.pids()[0].to_string();
    let row = said
        .lines()
        .find(|line| line.split_whitespace().next() == Some(&pid));
    ensure!(row.is_some_and(|row| row.contains("batch")), "{said}");
    unit.is("ActiveState", "active")?;
    done(&["systemctl", "stop", SERVICE])?;
    drop(victim);
    context.note(format!(
        "{seconds:.1} s down to the bound of {BOUND_MIB} MiB, then at most {:.2} MiB",
        most as f64 / f64::from(1 << 20)
    ))
}
