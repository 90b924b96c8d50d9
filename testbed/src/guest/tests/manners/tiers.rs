//! `--tiers`: tiers by hand, on two sockets that the kernel has in one tier.

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::settings::Settings;
use super::{PATIENCE, TABLE, cells, until_home};
use crate::guest::memtide::{Memtide, tier};
use crate::guest::subject::{Victim, census_cold};
use crate::guest::tests::Context;

pub(super) fn by_hand(context: &mut Context) -> Result<()> {
    let before = Settings::now();
    let victim = Victim::start("--size 64 --hot 8 --scattered --node 1", 1)?;
    let known = victim.known_pages();
    let mut row = Vec::new();
    for (tiers, fast) in [("0/1", 0), ("1/0", 1)] {
        let command = tier(&["--json", "--tiers", tiers], &victim.pids());
        let mut memtide = Memtide::spawn(command)?;
        let seconds = until_home(&mut memtide, &known, &[fast], PATIENCE)?;
        memtide.end(Signal::TERM)?.clean()?;
        row.push((tiers, format!("{seconds:.1}")));
    }
    let came = census_cold(&known, &[0])?;
    ensure!(
        came.there * 100 <= came.asked,
        "{} of {} cold pages came along",
        came.there,
        came.asked
    );
    context.row(TABLE, cells("--tiers, s to 99 %", &row))?;
    before.check_unchanged()
}
