//! The kernel's table of interleave weights, written and put back by the service with what the unit leaves it.

use anyhow::{Result, ensure};

use super::super::run::table;
use super::super::serve::weights::reads;
use super::super::serve::{DROP_IN, put};
use super::endings::{GONE_WITHIN, RESTED_WITHIN, rests};
use super::{Context, SERVICE, Unit, done, standing};

const WEIGHTS: &str = "0=3,2=1";
const READS: [(u32, u8); 2] = [(0, 3), (2, 1)];

/// The table is the service's while it runs. It is put back by a stop; by the unit, when the service was
/// killed; and the service that comes again has it again.
pub(super) fn lent(context: &mut Context) -> Result<()> {
    let unit = Unit::at_rest()?;
    let before = table()?;
    let as_before = || {
        let now = table()?;
        ensure!(now == before, "{now:?} instead of {before:?}");
        Ok(())
    };
    put(DROP_IN, &format!("[weights]\ntable = \"{WEIGHTS}\"\n"))?;
    done(&["systemctl", "start", SERVICE])?;
    unit.is("ActiveState", "active")?;
    reads(&READS)?;
    unit.journal_has(&["weights are ", WEIGHTS, " until the service ends"])?;
    let told = standing()?;
    ensure!(told["weights"]["table"] == WEIGHTS, "the status: {told}");
    done(&["systemctl", "stop", SERVICE])?;
    unit.is("Result", "success")?;
    as_before()?;

    rests()?;
    done(&["systemctl", "start", SERVICE])?;
    reads(&READS)?;
    let pid = unit.pid()?;
    done(&["systemctl", "kill", "--signal", "KILL", SERVICE])?;
    let seconds = unit.until("SubState", "auto-restart", GONE_WITHIN)?;
    as_before()?;
    unit.until_again(pid, RESTED_WITHIN)?;
    reads(&READS)?;
    put(DROP_IN, "")?;
    done(&["systemctl", "reload", SERVICE])?;
    as_before()?;
    done(&["systemctl", "stop", SERVICE])?;
    as_before()?;
    context.note(format!(
        "{WEIGHTS} while it ran; {before:?} after a stop, and {seconds:.1} s after a kill"
    ))
}
