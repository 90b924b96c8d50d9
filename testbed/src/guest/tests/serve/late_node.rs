//! Slow memory that is set online while memtide runs, taken away, and set online again: nobody has to start
//! memtide again.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::{FOLDER, Manager, PATIENCE, SOCKET, says, select, start, until_home};
use crate::guest::late::within;
use crate::guest::memtide::{Line, Memtide};
use crate::guest::pace::Stretch;
use crate::guest::subject::Victim;
use crate::guest::tests::Context;
use crate::guest::tests::manners::group::Group;
use crate::guest::tests::manners::settings::Settings;
use crate::guest::tests::manners::{SLOW, SMALL};

/// As memtide writes the tiers.
const WITH: &str = "0-1/2";
const WITHOUT: &str = "0-1";

/// The service begins before there is slow memory, and waits for it.
pub(super) fn serve(context: &mut Context) -> Result<()> {
    // A try that failed leaves its own.
    let _ = fs::remove_dir_all(FOLDER);
    let before = settings()?;
    set(false)?;
    let group = Group::create()?;
    select(&group)?;
    let manager = Manager::listen()?;
    let mut service = start()?;
    manager.wait_for("READY=1", 1)?;
    manager.wait_for("STATUS=nothing is tiered: ", 1)?;

    set(true)?;
    changed(&mut service, WITHOUT, WITH)?;
    manager.wait_for("READY=1", 2)?;
    let first = comes_home(&mut service, &group, context)?;

    set(false)?;
    changed(&mut service, WITH, WITHOUT)?;
    manager.wait_for("READY=1", 3)?;
    set(true)?;
    said(&mut service, WITHOUT, WITH, 2)?;
    manager.wait_for("READY=1", 4)?;
    let second = comes_home(&mut service, &group, context)?;

    let lines = service.end(Signal::TERM)?.clean()?;
    before.check_unchanged()?;
    let summaries = lines.iter().filter(|line| matches!(line, Line::Summary(_)));
    let summaries = summaries.count();
    ensure!(summaries == 4, "{summaries} summaries of four runs");
    fs::remove_dir_all(FOLDER)?;
    fs::remove_file(SOCKET)?;
    context.note(format!(
        "home after {first:.1} s and, set online again, {second:.1} s"
    ))
}

/// So does a run in the foreground that has begun with it, of a process that lives longer.
pub(super) fn tier(context: &mut Context) -> Result<()> {
    let before = settings()?;
    let known = Victim::start("--node 0 --size 16 --hot 1", 1)?;
    let mut memtide = Memtide::start(&[], &known.pids())?;
    let managed = |line: &Line| matches!(line, Line::Process { .. });
    times(&mut memtide, "the process", 1, managed)?;
    set(false)?;
    says(&mut memtide, "nothing is tiered: ", "one tier")?;
    set(true)?;
    says(&mut memtide, "the nodes are 0-1/2 again", "")?;
    times(&mut memtide, "the process again", 2, managed)?;
    let lines = memtide.end(Signal::INT)?.clean()?;
    before.check_unchanged()?;
    let count = |is: fn(&&Line) -> bool| lines.iter().filter(is).count();
    let summaries = count(|line| matches!(line, Line::Summary(_)));
    ensure!(summaries == 2, "{summaries} summaries of two runs");
    let processes = count(|line| matches!(line, Line::Process { .. }));
    ensure!(processes == 2, "{processes} times the process of two runs");
    context.note("one run ended, the other began".to_owned())
}

/// The settings as they are with the slow node's memory online. The kernel reserves a part of free memory for who
/// logs in, by how much there is, unless somebody has said how much.
fn settings() -> Result<Settings> {
    set(true)?;
    fs::write("/proc/sys/vm/user_reserve_kbytes", "131072")?;
    Ok(Settings::now())
}

fn changed(memtide: &mut Memtide, was: &str, is: &str) -> Result<()> {
    said(memtide, was, is, 1)
}

/// Waits until it was said so often what the nodes were, and what they are.
fn said(memtide: &mut Memtide, was: &str, is: &str, often: u32) -> Result<()> {
    let words = format!("the nodes were {was}, are {is}, fastest tier first");
    times(
        memtide,
        &words,
        often,
        |line| matches!(line, Line::Notice { text } if text.contains(&words)),
    )
}

/// Waits for so many lines that `wanted` likes, from the first line on.
fn times(
    memtide: &mut Memtide,
    what: &str,
    often: u32,
    wanted: impl Fn(&Line) -> bool,
) -> Result<()> {
    let count = Cell::new(0);
    memtide.wait_for(what, PATIENCE, |line| {
        count.set(count.get() + u32::from(wanted(line)));
        count.get() >= often
    })
}

/// Seconds until the hot pages of a program are on DRAM; then it ends.
fn comes_home(memtide: &mut Memtide, group: &Group, context: &Context) -> Result<f64> {
    let victim = Victim::start(SMALL, 1)?;
    let pids = victim.pids();
    pids.iter().try_for_each(|&pid| group.take_in(pid))?;
    until_home(memtide, &victim.known_pages(), &context.dram, PATIENCE)
}

/// Sets all memory of the slow node online, or offline: while memory is in use the kernel may refuse that for a
/// moment.
fn set(online: bool) -> Result<()> {
    let (word, other) = match online {
        true => ("online_movable", "offline"),
        false => ("offline", "online"),
    };
    let stretch = Stretch::begin();
    for entry in fs::read_dir(format!("/sys/devices/system/node/node{SLOW}"))? {
        let path = entry?.path();
        let is_block = path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            (name.strip_prefix("memory")).is_some_and(|number| number.parse::<u64>().is_ok())
        });
        if is_block && read(&path)? == other {
            while let Err(error) = fs::write(path.join("state"), word) {
                within(&stretch, PATIENCE, || {
                    format!("{}: {word}: {error}", path.display())
                })?;
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
    Ok(())
}

fn read(block: &Path) -> Result<String> {
    let state = block.join("state");
    let text = fs::read_to_string(&state).with_context(|| state.display().to_string())?;
    Ok(text.trim_end().to_owned())
}
