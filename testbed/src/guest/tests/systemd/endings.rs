//! Ends that nobody asked for: a service that hangs, and one that is killed.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::super::manners::SMALL;
use super::super::manners::settings::Settings;
use super::super::serve::put;
use super::{Context, DROP_INS, SERVICE, Unit, done, until_home};
use crate::guest::late::in_time;
use crate::guest::subject::Victim;

/// The watchdog of this test, in seconds; the unit's is as long as a test should take.
const WATCHDOG: u64 = 8;
/// Until it is back: the watchdog, the unit's five seconds before a restart, and what goes on around them.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// The seconds before a restart where a test looks at what there is until then; the unit's five may be over
/// before a slow machine has looked at all of it.
const REST: u64 = 30;
/// Until it is back after that.
pub(super) const RESTED_WITHIN: Duration = Duration::from_secs(55);
/// Until systemd has seen that it is gone and has run what the unit has it run then.
pub(super) const GONE_WITHIN: Duration = Duration::from_secs(5);

/// A service that stands still is ended and started again.
pub(super) fn watchdog(context: &mut Context) -> Result<()> {
    let unit = Unit::at_rest()?;
    let before = Settings::now();
    let drop_in = format!("[Service]\nWatchdogSec={WATCHDOG}\n");
    put(&format!("{DROP_INS}/watchdog.conf"), &drop_in)?;
    done(&["systemctl", "daemon-reload"])?;
    done(&["systemctl", "start", SERVICE])?;
    let mut victim = Victim::start(SMALL, 1)?;
    until_home(&unit, &victim, context)?;
    let pid = unit.pid()?;
    let process = Pid::from_raw(pid.cast_signed()).context("no process")?;
    // One that pings is left alone, if the machine lets it ping in time.
    std::thread::sleep(Duration::from_secs(WATCHDOG));
    let restarts = unit.get("NRestarts")?;
    in_time(restarts == "0", || {
        format!("{restarts} restarts before it was stopped")
    })?;
    kill_process(process, Signal::STOP)?;
    let seconds = unit.until_again(pid, BACK_WITHIN)?;
    unit.journal_has(&["Watchdog timeout"])?;
    let restarts: u32 = unit.get("NRestarts")?.parse()?;
    ensure!(restarts > 0, "systemd counts no restart");
    in_time(restarts == 1, || {
        format!("{restarts} restarts: it did not ping in time")
    })?;
    victim.change_hot_set()?;
    until_home(&unit, &victim, context)?;
    done(&["systemctl", "stop", SERVICE])?;
    before.check_unchanged()?;
    context.note(format!(
        "stopped with a watchdog of {WATCHDOG} s: active again after {seconds:.1} s"
    ))
}

/// The service rests for [`REST`] before a restart.
pub(super) fn rests() -> Result<()> {
    let drop_in = format!("[Service]\nRestartSec={REST}\n");
    put(&format!("{DROP_INS}/rest.conf"), &drop_in)?;
    done(&["systemctl", "daemon-reload"]).map(drop)
}

/// What a killed service had lent goes back before another one begins, which brings pages home; and when
/// that one is stopped, every setting is as before the first.
pub(super) fn killed(context: &mut Context) -> Result<()> {
    let unit = Unit::at_rest()?;
    let before = Settings::now();
    rests()?;
    done(&["systemctl", "start", SERVICE])?;
    let mut victim = Victim::start(SMALL, 1)?;
    until_home(&unit, &victim, context)?;
    ensure!(
        Settings::now().has_notes(),
        "it lends nothing of the kernel's"
    );
    let pid = unit.pid()?;
    done(&["systemctl", "kill", "--signal", "KILL", SERVICE])?;
    let seconds = unit.until("SubState", "auto-restart", GONE_WITHIN)?;
    before.check_unchanged()?;
    unit.is("Result", "signal")?;
    let again = seconds + unit.until_again(pid, RESTED_WITHIN)?;
    victim.change_hot_set()?;
    until_home(&unit, &victim, context)?;
    done(&["systemctl", "stop", SERVICE])?;
    unit.is("Result", "success")?;
    before.check_unchanged()?;
    context.note(format!(
        "killed: settings back after {seconds:.1} s, active again after {again:.1} s"
    ))
}
