//! Balancing by write faults, which needs more than the unit gives where other users' processes are balanced:
//! the drop-in of `docs/operate.md`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Result, ensure};
use rustix::thread::CapabilitySet;

use super::super::balance::{PROMISED, are_home, shares, until_home};
use super::super::manners::PATIENCE;
use super::super::serve::{DROP_IN, bounding_set, put};
use super::rights::has;
use super::{Context, DROP_INS, GLANCE, SERVICE, Unit, done, standing};
use crate::guest::late::within;
use crate::guest::pace::Stretch;
use crate::guest::subject::Victim;

/// The user and group without any rights.
const NOBODY: u32 = 65534;
const CONFIGURATION: &str =
    "[class.sets]\nuser = \"65534\"\nbalance = true\n[balance]\nsource = \"writes\"\n";
/// What docs/operate.md says.
const RIGHT: &str = "CapabilityBoundingSet=CAP_DAC_OVERRIDE";

/// Without the drop-in balancing ends, tells why, and nothing of it moves; with it pages come to their threads.
pub(super) fn with_a_right_more(context: &mut Context) -> Result<()> {
    let unit = Unit::at_rest()?;
    let swapped = sets()?;
    let known = swapped.known_pages();
    put(DROP_IN, CONFIGURATION)?;
    done(&["systemctl", "start", SERVICE])?;
    let stretch = Stretch::begin();
    let why = loop {
        let told = standing()?;
        if let Some(why) = told["balancing"]["rests"].as_str() {
            break why.to_owned();
        }
        within(&stretch, PATIENCE, || format!("it balances: {told}"))?;
        std::thread::sleep(GLANCE);
    };
    ensure!(
        why.contains("clear_refs") && why.contains("CAP_DAC_OVERRIDE"),
        "it does not say what it needs: {why}"
    );
    unit.journal_has(&[
        "nothing is balanced: ",
        "CAP_DAC_OVERRIDE",
        "; tiering goes on",
    ])?;
    unit.is("ActiveState", "active")?;
    let there = shares(&known, &[1, 0])?;
    ensure!(
        there.iter().all(|share| *share >= 0.99),
        "it has moved pages: {there:?}"
    );

    let drop_in = format!("[Service]\n{RIGHT}\n");
    put(&format!("{DROP_INS}/writes.conf"), &drop_in)?;
    done(&["systemctl", "daemon-reload"])?;
    done(&["systemctl", "restart", SERVICE])?;
    has(unit.pid()?, bounding_set()? | CapabilitySet::DAC_OVERRIDE)?;
    let found = until_home(&known, &[0, 1], PROMISED, || {
        unit.is("ActiveState", "active")
    })?;
    are_home(found)?;
    let told = standing()?;
    ensure!(
        told["balancing"]["rests"].is_null() && told["balancing"]["source"] == "write faults",
        "the status: {told}"
    );
    done(&["systemctl", "stop", SERVICE])?;
    unit.is("Result", "success")?;
    drop(swapped);
    let seconds = found.0.unwrap_or_default();
    context.note(format!(
        "without the right: {why}; with it home after {seconds:.1} s"
    ))
}

/// Threads of a user without rights on each node, with their memory on the other one.
fn sets() -> Result<Victim> {
    let mut command = Command::new("/init");
    command.args(["sets", "--set", "0:1", "--set", "1:0"]);
    command.uid(NOBODY).gid(NOBODY);
    Victim::spawn(command, 2)
}
