//! The package comes, and starts nothing; the service is enabled and tiers; the package goes, and so does
//! all that it brought.

use std::path::Path;

use anyhow::{Result, ensure};

use super::super::manners::settings::Settings;
use super::super::manners::{PATIENCE, SMALL};
use super::super::serve::FOLDER;
use super::{Context, MEMTIDE, SERVICE, Unit, done, entries, first_entries, install, until_home};
use crate::guest::subject::Victim;

/// What `systemctl enable` makes.
const WANTED: &str = "/etc/systemd/system/multi-user.target.wants/memtide.service";

/// Installed from its file with apt it is neither enabled nor started. Enabled and started it is ready,
/// and brings pages home; stopped it leaves every setting as it was.
pub(super) fn comes(context: &mut Context) -> Result<()> {
    // A try that failed leaves its own.
    if Path::new(MEMTIDE).exists() {
        Unit::at_rest()?;
        done(&["systemctl", "disable", SERVICE])?;
    }
    let before = Settings::now();
    install()?;
    let unit = Unit;
    unit.is("UnitFileState", "disabled")?;
    unit.is("ActiveState", "inactive")?;
    ensure!(!Path::new(WANTED).exists(), "the package made {WANTED}");
    let unit = Unit::at_rest()?;
    before.check_unchanged()?;
    let victim = Victim::start(SMALL, 1)?;

    done(&["systemctl", "enable", "--now", SERVICE])?;
    unit.is("ActiveState", "active")?;
    unit.is("UnitFileState", "enabled")?;
    ensure!(Path::new(WANTED).exists(), "no {WANTED}");
    let seconds = until_home(&unit, &victim, context)?;
    // Pages may be home before the service has said anything.
    unit.until("StatusText", "tiering ", PATIENCE)?;
    let process = format!("MEMTIDE_PID={}", victim.known_pages()[0].pid);
    let promoted = ["MEMTIDE_EVENT=moved_pages", "MEMTIDE_DIRECTION=promotion"];
    let told = first_entries(&[&process, promoted[0], promoted[1]])?;
    ensure!(
        told.lines().all(|line| line.contains(" promoted, node ")),
        "the journal has of its promotions: {told:?}"
    );
    ensure!(
        entries(&["MEMTIDE_PID=1", promoted[0]])?.is_empty(),
        "its fields do not tell processes apart"
    );
    ensure!(
        before.check_unchanged().is_err(),
        "it lends nothing of the kernel's"
    );
    done(&["systemctl", "stop", SERVICE])?;
    unit.is("Result", "success")?;
    before.check_unchanged()?;
    let version = done(&["systemctl", "--version"])?;
    let version = version.lines().next().unwrap_or_default().to_owned();
    context.note(format!(
        "{version}: pages home {seconds:.1} s after it was ready"
    ))
}

/// Purged while its service runs: the service ends in order, and no file is left.
pub(super) fn goes(context: &mut Context) -> Result<()> {
    Unit::at_rest()?;
    let before = Settings::now();
    done(&["systemctl", "enable", "--now", SERVICE])?;
    done(&["apt-get", "purge", "--yes", "memtide"])?;
    before.check_unchanged()?;
    for path in [
        MEMTIDE,
        FOLDER,
        WANTED,
        "/usr/lib/systemd/system/memtide.service",
    ] {
        ensure!(!Path::new(path).exists(), "{path} is left");
    }
    Unit.is("ActiveState", "inactive")?;
    context.note("purged while it ran".to_owned())
}
