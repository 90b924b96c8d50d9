//! The service killed at one random moment after the other, most of them while it begins.
//!
//! What a killed one lent is put back by the next start, or by `memtide doctor --restore`; no page goes
//! where its owner forbids it, and the last one works as the first one would have.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::{FOLDER, MAIN, Manager, PATIENCE, SOCKET, put, socket, start, until_home};
use crate::guest::random::SplitMix;
use crate::guest::subject::{Victim, census_cold, census_hot};
use crate::guest::tests::Context;
use crate::guest::tests::manners::SMALL;
use crate::guest::tests::manners::settings::Settings;

/// After so many it is doctor that puts back.
const DOCTOR_EVERY: u64 = 10;

/// As many as fit into a run of everything.
pub(super) fn some(context: &mut Context) -> Result<()> {
    kills(context, 50)
}

/// As many as the service must bear.
pub(super) fn many(context: &mut Context) -> Result<()> {
    kills(context, 1_000)
}

fn kills(context: &mut Context, times: u64) -> Result<()> {
    // A try that failed leaves its own.
    let _ = std::fs::remove_dir_all(FOLDER);
    let before = Settings::now();
    let mut victim = Victim::start(SMALL, 1)?;
    let bound = Victim::start(&format!("{SMALL} --keep-policy"), 1)?;
    put(MAIN, "[tier]\ndemote_idle = \"10m\"\n")?;
    let manager = Manager::listen()?;
    // How long a start takes here: half of the kills come while it begins.
    let began = Instant::now();
    let service = start()?;
    manager.wait_for("READY=1", 1)?;
    let latest_us = 2 * began.elapsed().as_micros() as u64;
    service.end(Signal::TERM)?.clean()?;
    let mut random = SplitMix::new(12);
    let mut left = 0;
    for n in 0..times {
        let clean = !Settings::now().has_notes();
        let service = start().with_context(|| format!("start {n} of {times}"))?;
        std::thread::sleep(Duration::from_micros(random.below(latest_us)));
        service.end(Signal::KILL)?;
        left += u64::from(clean && Settings::now().has_notes());
        if n % DOCTOR_EVERY == DOCTOR_EVERY - 1 {
            let output = Command::new("memtide")
                .args(["doctor", "--restore"])
                .output()?;
            ensure!(output.status.success(), "{output:?}");
            before
                .check_unchanged()
                .with_context(|| format!("kill {n} of {times}"))?;
        }
        if n % 100 == 99 {
            context.note(format!("{} kills", n + 1))?;
            victim.change_hot_set()?;
        }
    }
    // Each time after doctor has put everything back it begins without notes.
    ensure!(left > 0, "none of {times} left anything");
    let ready = manager.count("READY=1");
    let mut service = start()?;
    manager.wait_for("READY=1", ready + 1)?;
    let dram = context.dram.clone();
    let known = victim.known_pages();
    let seconds = until_home(&mut service, &known, &dram, PATIENCE).with_context(socket::status)?;
    service.end(Signal::TERM)?.clean()?;
    before.check_unchanged()?;
    let known = bound.known_pages();
    let strays = census_hot(&known, &dram)?.there + census_cold(&known, &dram)?.there;
    ensure!(strays == 0, "{strays} pages went where they may not be");
    std::fs::remove_dir_all(FOLDER)?;
    std::fs::remove_file(SOCKET)?;
    drop((victim, bound));
    context.note(format!(
        "{times} kills, {left} of those that found all as it was left something; home {seconds:.1} s after the last start"
    ))
}
