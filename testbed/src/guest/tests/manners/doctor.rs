//! `memtide doctor` with all its proofs: it ends, its exit status is what it found, and everything is
//! afterwards as it was.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::endings::until_observing;
use super::settings::Settings;
use super::{PATIENCE, TABLE, cells};
use crate::guest::late::in_time;
use crate::guest::memtide::Memtide;
use crate::guest::pace::Stretch;
use crate::guest::tests::Context;

fn doctor() -> Result<Memtide> {
    let mut command = Command::new("memtide");
    command.args(["doctor", "--json"]);
    Memtide::spawn(command)
}

/// On a machine with slow memory and DAMON: ready, and what says so was tried.
pub(super) fn proves(context: &mut Context) -> Result<()> {
    let before = Settings::now();
    let stretch = Stretch::begin();
    let ended = doctor()?.wait(2 * PATIENCE)?;
    let seconds = stretch.elapsed().as_secs_f64();
    before.check_unchanged()?;
    let text = ended.lines.join("\n");
    let report: Value = serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))?;
    let checks = report["checks"].as_array().context("no checks")?;
    let state = |name: &str| -> Result<&str> {
        let check = checks.iter().find(|check| check["name"] == name);
        let state = check.and_then(|check| check["state"].as_str());
        state.with_context(|| format!("no check {name}: {text}"))
    };
    for name in ["damon", "mover", "settings_kept"] {
        ensure!(state(name)? == "works", "{name}: {text}");
    }
    ensure!(
        report["verdict"] == "ready" && report["probed"] == true,
        "{text}"
    );
    ensure!(
        ended.status.code() == Some(0) && ended.errors.is_empty(),
        "ready, and it ended with {}: {:?}",
        ended.status,
        ended.errors
    );
    let row = [
        ("s", format!("{seconds:.1}")),
        ("checks", checks.len().to_string()),
    ];
    context.row(TABLE, cells("doctor", &row))
}

/// The slow node of the machine "cxl".
const SLOW: u32 = 2;
const BLOCKS: &str = "/sys/devices/system/memory";

/// A block of slow memory that is offline is told, with its node; and no longer when it is back.
pub(super) fn offline_block(context: &mut Context) -> Result<()> {
    let find = || -> Result<(&'static str, String)> {
        let mut command = Command::new("memtide");
        command.args(["doctor", "--no-probe", "--json"]);
        let ended = Memtide::spawn(command)?.wait(PATIENCE)?;
        let report: Value = serde_json::from_str(&ended.lines.join("\n"))?;
        let mut checks = report["checks"].as_array().into_iter().flatten();
        let check = checks.find(|check| check["name"] == "memory_blocks");
        let detail = check.and_then(|check| check["detail"].as_str());
        let state = match check.map(|check| &check["state"]) {
            Some(state) if state == "advice" => "advice",
            Some(state) if state == "set" => "set",
            other => anyhow::bail!("memory_blocks: {other:?}"),
        };
        Ok((state, detail.unwrap_or_default().to_owned()))
    };
    ensure!(find()?.0 == "set", "before: {:?}", find()?);
    // The highest block that lets itself be taken: some hold the kernel's own data.
    let mut blocks = Vec::new();
    for entry in std::fs::read_dir(format!("/sys/devices/system/node/node{SLOW}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix("memory").map(str::parse::<u64>);
        blocks.extend(number.and_then(Result::ok));
    }
    blocks.sort_unstable();
    let state = |block: u64| format!("{BLOCKS}/memory{block}/state");
    let taken = blocks
        .into_iter()
        .rev()
        .find(|block| std::fs::write(state(*block), "offline").is_ok());
    let taken = taken.context("no block of slow memory can be set offline")?;
    let found = find();
    std::fs::write(state(taken), "online")?;
    let (advice, detail) = found?;
    context.note(detail.clone())?;
    ensure!(
        advice == "advice" && detail.contains(&format!(" of node {SLOW} (1 block of ")),
        "block {taken} of node {SLOW} is offline: {advice}: {detail}"
    );
    ensure!(find()?.0 == "set", "after: {:?}", find()?);
    Ok(())
}

/// A person's Ctrl-C while DAMON is tried.
pub(super) fn interrupted(context: &mut Context) -> Result<()> {
    let before = Settings::now();
    let mut memtide = doctor()?;
    until_observing()?;
    in_time(!memtide.has_ended()?, || {
        "doctor was done before the signal".to_owned()
    })?;
    let ended = memtide.end(Signal::INT)?;
    before.check_unchanged()?;
    in_time(!ended.status.success(), || {
        "the signal came when all was proved".to_owned()
    })?;
    let [line] = &ended.errors[..] else {
        anyhow::bail!("not one line but {:?}", ended.errors);
    };
    context.note(line.clone())?;
    ensure!(
        ended.status.code() == Some(1) && ended.lines.is_empty(),
        "interrupted, and it ended with {}: {:?}",
        ended.status,
        ended.lines
    );
    ensure!(
        line == "memtide: interrupted; nothing is left changed",
        "it does not say so: {line}"
    );
    Ok(())
}
