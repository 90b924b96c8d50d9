//! Where memtide cannot work it says so: exit status 1 and one line that says what to do.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::SMALL;
use super::settings::Settings;
use crate::guest::memtide::{Memtide, tier};
use crate::guest::subject::Victim;
use crate::guest::tests::Context;

const NR_KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
/// The user and group without any rights.
const NOBODY: u32 = 65534;
/// How long it may take to find out.
const SOON: Duration = Duration::from_secs(5);

/// Runs `command`, which must refuse in one line with all of `words`, and change nothing.
fn refuses(context: &mut Context, command: Command, words: &[&str]) -> Result<()> {
    let before = Settings::now();
    let ended = Memtide::spawn(command)?.wait(SOON)?;
    ensure!(
        ended.status.code() == Some(1),
        "{} instead of exit status 1; {:?} {:?}",
        ended.status,
        ended.errors,
        ended.lines
    );
    let [line] = &ended.errors[..] else {
        anyhow::bail!("not one line but {:?}", ended.errors);
    };
    context.note(line.clone())?;
    ensure!(line.starts_with("memtide: "), "who says this? {line:?}");
    for word in words {
        ensure!(line.contains(word), "{line:?} does not name {word:?}");
    }
    before.check_unchanged()
}

/// A process that has ended, so that no other has its number yet.
pub(super) fn unknown_pid(context: &mut Context) -> Result<()> {
    let mut child = Command::new("/bin/true").stdin(Stdio::null()).spawn()?;
    child.wait()?;
    let pid = child.id();
    refuses(context, tier(&[], &[pid]), &[&pid.to_string()])
}

/// Without root's capabilities; one that is missing is named.
pub(super) fn not_root(context: &mut Context) -> Result<()> {
    let victim = Victim::start(SMALL, 1)?;
    let mut command = tier(&[], &victim.pids());
    command.uid(NOBODY).gid(NOBODY);
    refuses(context, command, &["CAP_SYS_"])
}

/// All memory is equally fast.
pub(super) fn one_tier(context: &mut Context) -> Result<()> {
    let victim = Victim::start("--size 64 --hot 8 --node 1", 1)?;
    refuses(
        context,
        tier(&[], &victim.pids()),
        &["tier", "option tiers"],
    )
}

/// Somebody else uses DAMON: it is left to them, and the only other source is off here.
pub(super) fn other_damon_user(context: &mut Context) -> Result<()> {
    let victim = Victim::start(SMALL, 1)?;
    let before = Settings::now();
    let other = OtherUser::take()?;
    let alone = tier(&["--source", "damon"], &victim.pids());
    refuses(
        context,
        alone,
        &["nr_kdamonds", "another program", "stop it"],
    )?;
    let either = tier(&["--source", "auto"], &victim.pids());
    refuses(context, either, &["nr_kdamonds", "numa_balancing"])?;
    drop(other);
    before.check_unchanged()
}

/// Holds DAMON as another program would, until dropped.
struct OtherUser;

impl OtherUser {
    fn take() -> Result<Self> {
        std::fs::write(NR_KDAMONDS, "1").with_context(|| format!("cannot write {NR_KDAMONDS}"))?;
        Ok(Self)
    }
}

impl Drop for OtherUser {
    fn drop(&mut self) {
        let _ = std::fs::write(NR_KDAMONDS, "0");
    }
}
