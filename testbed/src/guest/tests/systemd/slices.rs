//! Slices of systemd's as classes: what is started in a slice is in its class, and the class keeps its share.
//!
//! A *scope* is a program that `systemd-run --scope` becomes, so it stays a child of the test. A service is a
//! child of systemd's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::manners::settings::Settings;
use super::super::manners::{PATIENCE, SMALL};
use super::super::serve::shares::{BOUND_AFTER, EXCHANGED_WITHIN, on_node};
use super::super::serve::{DROP_IN, put};
use super::{Context, GLANCE, SERVICE, Unit, done, standing, until_home_within};
use crate::guest::late::within;
use crate::guest::pace::Stretch;
use crate::guest::subject::Victim;

/// The slices of the two classes, and the service in the second.
const BATCH: &str = "batch.slice";
const DB: &str = "db.slice";
const RESIDENT: &str = "resident.service";
/// More than the bounds on a fast node. What is in use lies together, so that the rest is known to be idle.
const LARGE: &str = "--node 0 --size 160 --hot 16";
const LARGE_MIB: u64 = 160;
/// What the service runs.
const IDLE: [&str; 8] = [
    "/init", "victim", "--node", "0", "--size", "16", "--hot", "0",
];
/// The bound, and the lower one of a reload.
const HIGHS_MIB: [u64; 2] = [96, 48];
const LOW_MIB: u64 = 256;
/// How far the kernel's figures of a cgroup may be from those that the service read up to a second ago.
const OFF: u64 = 4 << 20;
/// Until hot pages are home beside a class that comes to its bound.
const HOME_WITHIN: Duration = Duration::from_secs(30);
/// Between two questions to the service.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a class is watched at its bound, in quiet time.
const WATCH: Duration = Duration::from_secs(10);

/// Processes are in the classes of their slices, be they scopes or services, of before the reload or of after
/// it; the bound is kept, and so is a lower one; and the status has the figures of each class.
pub(super) fn are_classes(context: &mut Context) -> Result<()> {
    let unit = Unit::at_rest()?;
    // A try that failed leaves its own.
    let _ = done(&["systemctl", "stop", RESIDENT]);
    let before = Settings::now();
    done(&["systemctl", "start", SERVICE])?;
    let pid = unit.pid()?;
    let batch = scope(BATCH, LARGE)?;
    until_charged(context)?;
    let nobodys = Victim::start(SMALL, 1)?;
    configure(HIGHS_MIB[0])?;
    let first = until_kept(HIGHS_MIB[0], context)?;
    context.note(format!(
        "{first:.1} s from the reload until {BATCH} kept its bound of {} MiB",
        HIGHS_MIB[0]
    ))?;

    let db = scope(DB, SMALL)?;
    let resident = service(DB, RESIDENT, &IDLE)?;
    let of_batch = batch.pids()[0];
    let of_db = db.pids()[0];
    let wanted = [
        (of_batch, "batch"),
        (of_db, "db"),
        (resident, "db"),
        (nobodys.pids()[0], "-"),
    ];
    until_in_classes(&wanted)?;
    let home = until_home_within(HOME_WITHIN, &unit, &db, context)?;
    until_home_within(HOME_WITHIN, &unit, &nobodys, context)?;
    // On a slow machine some may have left before it was seen what is idle: they come back.
    until_home_within(EXCHANGED_WITHIN, &unit, &batch, context)?;
    let most = watch(HIGHS_MIB[0], context)?;
    let [of_batch, of_db] = until_figures(HIGHS_MIB[0], context)?;

    configure(HIGHS_MIB[1])?;
    let second = until_kept(HIGHS_MIB[1], context)?;
    until_figures(HIGHS_MIB[1], context)?;
    ensure!(unit.pid()? == pid, "another process after the reloads");
    done(&["systemctl", "stop", RESIDENT])?;
    done(&["systemctl", "stop", SERVICE])?;
    unit.is("Result", "success")?;
    before.check_unchanged()?;
    drop((batch, db, nobodys));
    context.note(format!(
        "at most {most:.2} MiB then, with its hot pages home; {second:.1} s to a bound of {} MiB; hot pages of {DB} home after {home:.1} s; {of_batch}; {of_db}",
        HIGHS_MIB[1]
    ))
}

/// The two classes, and a reload by systemctl that takes them.
fn configure(high_mib: u64) -> Result<()> {
    let text = format!(
        "[class.batch]\nunit = \"{BATCH}\"\nfast.high = \"{high_mib}MiB\"\n\
         [class.db]\nunit = \"{DB}\"\nfast.low = \"{LOW_MIB}MiB\"\n"
    );
    put(DROP_IN, &text)?;
    done(&["systemctl", "reload", SERVICE])?;
    let refused = &standing()?["refused"];
    ensure!(refused.is_null(), "the reload was refused: {refused}");
    Ok(())
}

/// A victim as a scope in a slice.
fn scope(slice: &str, words: &str) -> Result<Victim> {
    let mut command = Command::new("systemd-run");
    command.args(["--scope", "--quiet", "--collect"]);
    command.arg(format!("--slice={slice}"));
    command.args(["/init", "victim"]);
    command.args(words.split_whitespace());
    Victim::spawn(command, 1)
}

/// Starts a service in a slice; its process.
fn service(slice: &str, name: &str, words: &[&str]) -> Result<u32> {
    let (slice, unit) = (format!("--slice={slice}"), format!("--unit={name}"));
    let mut run = vec!["systemd-run", "--quiet", "--collect"];
    run.extend(["--property=Type=exec", &slice, &unit]);
    run.extend(words);
    done(&run)?;
    let pid = done(&[
        "systemctl",
        "show",
        "--value",
        "--property",
        "MainPID",
        name,
    ])?;
    pid.trim().parse().with_context(|| format!("MainPID {pid}"))
}

/// Bytes that a slice has on fast nodes, as the kernel counts them.
fn used(slice: &str, context: &Context) -> Result<u64> {
    let group: PathBuf = Path::new("/sys/fs/cgroup").join(slice);
    let nodes = context.dram.iter();
    nodes.map(|&node| on_node(&group, node)).sum()
}

/// Waits until the batch slice has all of its memory: the kernel's figures may be some seconds old.
fn until_charged(context: &Context) -> Result<()> {
    let stretch = Stretch::begin();
    loop {
        let charged = used(BATCH, context)?;
        if charged >= LARGE_MIB << 20 {
            return Ok(());
        }
        within(&stretch, PATIENCE, || {
            format!("{charged} bytes are charged to {BATCH}, and {LARGE_MIB} MiB are its own")
        })?;
        std::thread::sleep(GLANCE);
    }
}

/// The bound and two of a hundred of it.
fn most(high_mib: u64) -> u64 {
    (high_mib << 20) / 100 * 102
}

/// Waits until the batch slice is at its bound; the seconds that it took.
fn until_kept(high_mib: u64, context: &Context) -> Result<f64> {
    let stretch = Stretch::begin();
    loop {
        let used = used(BATCH, context)?;
        if used <= most(high_mib) {
            return Ok(stretch.elapsed().as_secs_f64());
        }
        within(&stretch, BOUND_AFTER, || {
            format!("{BATCH} uses {used} bytes of fast memory above a bound of {high_mib} MiB")
        })?;
        std::thread::sleep(GLANCE);
    }
}

/// The most that the batch slice uses for a while, in MiB: not more than the bound.
fn watch(high_mib: u64, context: &Context) -> Result<f64> {
    let stretch = Stretch::begin();
    let mut highest = 0;
    while !stretch.is_over(WATCH) {
        highest = highest.max(used(BATCH, context)?);
        ensure!(
            highest <= most(high_mib),
            "{BATCH} uses {highest} bytes of fast memory above a bound of {high_mib} MiB"
        );
        std::thread::sleep(GLANCE);
    }
    Ok(highest as f64 / f64::from(1 << 20))
}

/// Waits until these processes are shown with these classes; `-` is none.
fn until_in_classes(wanted: &[(u32, &str)]) -> Result<()> {
    let stretch = Stretch::begin();
    loop {
        let text = done(&["memtide", "top", "--once", "--processes"])?;
        let rows = text.lines().map(str::split_whitespace);
        let rows = rows.filter_map(|mut row| Some((row.next()?, row.nth(1)?)));
        let rows: Vec<_> = rows.collect();
        let is_there = |(pid, class): &(u32, &str)| rows.contains(&(&pid.to_string(), class));
        if wanted.iter().all(is_there) {
            return Ok(());
        }
        within(&stretch, PATIENCE, || {
            let text = text.replace('\n', " | ");
            format!("{wanted:?} are not in these classes: {text}")
        })?;
        std::thread::sleep(PAUSE);
    }
}

/// Waits until the status has both classes with their shares, what the kernel says that they use, and what was
/// moved: from the one, to the other. Both in words.
fn until_figures(high_mib: u64, context: &Context) -> Result<[String; 2]> {
    let stretch = Stretch::begin();
    loop {
        let standing = standing()?;
        let classes = standing["classes"].as_array().context("no classes")?;
        let class = |name: &str| classes.iter().find(|class| class["name"] == name);
        let (Some(batch), Some(db)) = (class("batch"), class("db")) else {
            anyhow::bail!("a class is not there: {standing}");
        };
        ensure!(
            batch["high_bytes"] == high_mib << 20
                && batch["low_bytes"] == 0
                && db["low_bytes"] == LOW_MIB << 20
                && db["high_bytes"].is_null(),
            "other shares than configured: {standing}"
        );
        let bytes = |class: &Value, key: &str| class[key].as_u64().unwrap_or_default();
        let near = |class: &Value, slice: &str| -> Result<bool> {
            let used = used(slice, context)?;
            Ok(bytes(class, "fast_bytes").abs_diff(used) <= OFF)
        };
        let moved = bytes(batch, "demoted_bytes") > 0 && bytes(db, "promoted_bytes") > 0;
        if moved && near(batch, BATCH)? && near(db, DB)? {
            let words = |class: &Value, key: &str| {
                format!("{}: {key} {} MiB", class["name"], bytes(class, key) >> 20)
            };
            return Ok([words(batch, "demoted_bytes"), words(db, "promoted_bytes")]);
        }
        within(&stretch, PATIENCE, || {
            format!("other figures than the kernel's: {standing}")
        })?;
        std::thread::sleep(PAUSE);
    }
}
