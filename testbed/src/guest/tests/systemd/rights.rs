//! What the unit leaves the service: which capabilities, no way to others, a filter of system calls; and
//! what systemd's own analysis makes of it.

use anyhow::{Context as _, Result, ensure};
use rustix::thread::CapabilitySet;

use super::super::manners::SMALL;
use super::super::serve::bounding_set;
use super::{Context, SERVICE, Unit, done, until_home};
use crate::guest::subject::Victim;

/// Seccomp's state with a filter, in /proc/PID/status.
const FILTERED: &str = "2";

pub(super) fn as_the_unit_says(context: &mut Context) -> Result<()> {
    let unit = Unit::started()?;
    let expected = bounding_set()?;
    has(unit.pid()?, expected)?;

    // With these, it works.
    let victim = Victim::start(SMALL, 1)?;
    until_home(&unit, &victim, context)?;

    let complaints = done(&["systemd-analyze", "verify", "--man=no", SERVICE])?;
    ensure!(complaints.is_empty(), "{complaints}");
    let security = done(&["systemd-analyze", "security", "--no-pager", SERVICE])?;
    let exposure = security
        .lines()
        .rev()
        .find(|line| line.contains("exposure level"));
    let exposure = exposure.with_context(|| security.clone())?.trim();
    done(&["systemctl", "stop", SERVICE])?;
    context.note(format!("capabilities {:#x}; {exposure}", expected.bits()))
}

/// That a process has these capabilities and no way to others, and a filter of system calls.
pub(super) fn has(pid: u32, capabilities: CapabilitySet) -> Result<()> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let mut fields = status.lines().filter_map(|line| line.split_once(":\t"));
        let found = fields.find(|(field, _)| *field == name);
        found
            .map(|(_, value)| value.trim().to_owned())
            .with_context(|| format!("no {name}: {status}"))
    };
    let expected = capabilities.bits();
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        let value = field(set)?;
        let bits = u64::from_str_radix(&value, 16).context(value)?;
        ensure!(bits == expected, "{set} is {bits:#x} and not {expected:#x}");
    }
    ensure!(field("NoNewPrivs")? == "1", "it may get new privileges");
    ensure!(
        field("Seccomp")? == FILTERED,
        "its system calls are not filtered"
    );
    Ok(())
}
