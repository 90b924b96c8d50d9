//! `--all`: every process of the machine, those that come later among them, but not memtide itself.

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::settings::Settings;
use super::{PATIENCE, SMALL, TABLE, cells, until_home};
use crate::guest::memtide::{Line, Memtide, tier};
use crate::guest::subject::Victim;
use crate::guest::tests::Context;

pub(super) fn comes_home(context: &mut Context) -> Result<()> {
    let before = Settings::now();
    let first = Victim::start(SMALL, 1)?;
    let command = tier(&["--json", "--all"], &[]);
    let mut memtide = Memtide::spawn(command)?;
    let own = memtide.id();
    let dram = context.dram.clone();
    let seconds = until_home(&mut memtide, &first.known_pages(), &dram, PATIENCE)?;
    let later = Victim::start(&format!("{SMALL} --seed 2"), 1)?;
    let later_seconds = until_home(&mut memtide, &later.known_pages(), &dram, PATIENCE)?;
    let lines = memtide.end(Signal::TERM)?.clean()?;
    let managed: Vec<u32> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Process { pid } => Some(*pid),
            _ => None,
        })
        .collect();
    for pid in first.pids().iter().chain(&later.pids()) {
        ensure!(
            managed.contains(pid),
            "process {pid} is not among {managed:?}"
        );
    }
    ensure!(!managed.contains(&own), "memtide manages itself");
    let row = [
        ("s to 99 %", format!("{seconds:.1}")),
        (
            "s to 99 %, one that came later",
            format!("{later_seconds:.1}"),
        ),
        ("processes", managed.len().to_string()),
    ];
    context.row(TABLE, cells("--all", &row))?;
    before.check_unchanged()
}
