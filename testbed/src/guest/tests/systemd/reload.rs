//! `systemctl reload`: a configuration that is wrong changes nothing and is told of, one that is right is
//! in force.

use anyhow::{Result, ensure};

use super::super::manners::SMALL;
use super::super::serve::{DROP_IN, put};
use super::{Context, SERVICE, Unit, done, until_home};
use crate::guest::subject::Victim;

pub(super) fn takes_and_refuses(context: &mut Context) -> Result<()> {
    let unit = Unit::started()?;
    let pid = unit.pid()?;
    let mut victim = Victim::start(SMALL, 1)?;
    until_home(&unit, &victim, context)?;

    put(DROP_IN, "[tier]\nwindow = 6\n")?;
    // systemd cannot be told that a reload failed, so the command succeeds.
    done(&["systemctl", "reload", SERVICE])?;
    let why = format!("{DROP_IN}:2:10: window: not a time");
    unit.journal_has(&["the old configuration is in force", &why])?;
    let status = done(&["memtide", "status"])?;
    ensure!(status.contains(&why), "memtide status: {status}");
    unit.is("ActiveState", "active")?;
    ensure!(unit.pid()? == pid, "another process after a refused reload");

    put(DROP_IN, "[tier]\nwindow = \"6s\"\n")?;
    done(&["systemctl", "reload", SERVICE])?;
    unit.journal_has(&["tier.window was \"5s\", is \"6s\"", DROP_IN])?;
    let status = done(&["memtide", "status"])?;
    ensure!(!status.contains(&why), "memtide status: {status}");
    unit.is("ActiveState", "active")?;
    ensure!(unit.pid()? == pid, "another process after a reload");
    victim.change_hot_set()?;
    let seconds = until_home(&unit, &victim, context)?;
    done(&["systemctl", "stop", SERVICE])?;
    context.note(format!(
        "other hot pages home after {seconds:.1} s by the new configuration"
    ))
}
