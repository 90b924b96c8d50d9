//! `memtide weights` on running kernels: the table before 6.16, where `0` is the default, and after,
//! where the kernel computes.
//!
//! The kernel's files are read here by themselves, not through memtide.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use serde_json::Value;

use super::{BootClass, Context, Test};
use crate::guest::late::in_time;
use crate::guest::pace::Stretch;

const TABLE: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";
/// The expander's node, and its kernel-computed share beside two nodes of 200 GiB/s.
const FAR: u32 = 2;
const COMPUTED: [u8; 3] = [15, 15, 1];

type Check = fn(&mut Context) -> Result<()>;

/// Name, topology, check.
const CASES: [(&str, &str, Check); 7] = [
    ("kernels-rule", "cxl", kernels_rule),
    ("set-restore-reset", "cxl", set_restore_reset),
    ("nth-write-fails", "cxl", nth_write_fails),
    ("bad-input", "cxl", bad_input),
    ("not-root", "cxl", not_root),
    ("measure", "cxl", measure),
    ("no-bandwidths", "no-hmat", no_bandwidths),
];

pub(super) fn tests() -> Vec<Test> {
    CASES
        .into_iter()
        .map(|(name, topology, check)| {
            Test::promise(format!("weights/{name}"), topology, BootClass::Quiet, check)
        })
        .collect()
}

/// The table as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    weights: BTreeMap<u32, u8>,
    auto: Option<bool>,
}

impl Table {
    fn read() -> Result<Self> {
        let mut weights = BTreeMap::new();
        let mut auto = None;
        for entry in std::fs::read_dir(TABLE).context(TABLE)? {
            let entry = entry?;
            let text = std::fs::read_to_string(entry.path())?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            match name.strip_prefix("node") {
                Some(node) => drop(weights.insert(node.parse()?, text.trim().parse()?)),
                None => auto = Some(text.trim() == "true"),
            }
        }
        Ok(Self { weights, auto })
    }

    fn of(weights: [u8; 3], auto: Option<bool>) -> Self {
        Self {
            weights: (0..).zip(weights).collect(),
            auto,
        }
    }

    /// What the kernel has without anybody's doing.
    fn default_of(&self) -> Self {
        match self.auto {
            Some(_) => Self::of(COMPUTED, Some(true)),
            None => Self::of([1; 3], None),
        }
    }
}

fn weights(words: &[&str]) -> Command {
    let mut command = Command::new("memtide");
    command.arg("weights").args(words).stdin(Stdio::null());
    command
}

fn document(words: &[&str]) -> Result<Value> {
    let output = weights(words).arg("--json").output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && errors.is_empty(),
        "{words:?}: {errors}"
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The one line of a refusal.
fn refusal(output: &Output, status: i32) -> Result<String> {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(status) && output.stdout.is_empty(),
        "{} and not exit status {status}: {errors}",
        output.status
    );
    ensure!(errors.lines().count() == 1, "not one line: {errors:?}");
    Ok(errors.trim_end().to_owned())
}

/// Ours are the kernel's, to the last digit, and on a kernel that computes none they can be applied.
fn kernels_rule(context: &mut Context) -> Result<()> {
    let before = Table::read()?;
    ensure!(before == before.default_of(), "not the default: {before:?}");
    let shown = document(&[])?;
    let nodes = shown["nodes"].as_array().context("nodes")?;
    let computed: Vec<u64> = nodes
        .iter()
        .filter_map(|node| node["computed_weight"].as_u64())
        .collect();
    ensure!(computed == COMPUTED.map(u64::from), "computed {computed:?}");
    ensure!(
        shown["computed"]["advice"] == "interleave",
        "{}",
        shown["computed"]
    );
    ensure!(Table::read()? == before, "showing changed the table");

    let applied = document(&["--apply"])?;
    let auto = before.auto.map(|_| true);
    ensure!(
        Table::read()? == Table::of(COMPUTED, auto),
        "{:?}",
        Table::read()?
    );
    let written = applied["change"]["written"].as_str();
    let wanted = if before.auto.is_some() { "" } else { "0-2" };
    ensure!(written == Some(wanted), "{applied}");
    document(&["--reset"])?;
    ensure!(Table::read()? == before, "{:?}", Table::read()?);
    context.note(format!("{computed:?} computed, {before:?} before"))
}

fn set_restore_reset(_: &mut Context) -> Result<()> {
    let before = Table::read()?;
    let default = before.default_of();
    ensure!(before == default, "not the default: {before:?}");
    let manual = before.auto.map(|_| false);
    let set = |words: &str, weights: [u8; 3]| -> Result<Value> {
        let said = document(&["--set", words])?;
        let now = Table::read()?;
        ensure!(now == Table::of(weights, manual), "{words}: {now:?}");
        Ok(said)
    };
    let said = set("0=9,2=1", [9, default.weights[&1], 1])?;
    ensure!(
        said["change"]["auto_before"] == Value::from(default.auto),
        "{said}"
    );
    ensure!(
        said["change"]["auto_after"] == Value::from(manual),
        "{said}"
    );
    // What stood there before the first change comes back.
    set("1=7", [9, 7, 1])?;
    document(&["--restore"])?;
    ensure!(Table::read()? == default, "restored: {:?}", Table::read()?);
    refusal(&weights(&["--restore"]).output()?, 1)?;

    set("0=255,1=1,2=128", [255, 1, 128])?;
    let said = document(&["--reset", "--dry-run"])?;
    ensure!(said["change"]["dry_run"] == true, "{said}");
    ensure!(
        Table::read()? == Table::of([255, 1, 128], manual),
        "a dry run wrote"
    );
    let said = document(&["--reset"])?;
    ensure!(Table::read()? == default, "reset: {:?}", Table::read()?);
    let way = if default.auto.is_some() {
        "auto"
    } else {
        "each_node"
    };
    ensure!(said["change"]["reset_way"] == way, "{said}");
    ensure!(
        !std::path::Path::new("/run/memtide/weights.json").exists(),
        "a note is left"
    );
    Ok(())
}

/// Node 1's file is made read-only, so that the kernel refuses the second of three writes.
fn nth_write_fails(context: &mut Context) -> Result<()> {
    let before = Table::read()?;
    let file = format!("{TABLE}/node1");
    mount_bind(&file, &file)?;
    let read_only = mount_remount(&file, MountFlags::BIND | MountFlags::RDONLY, "");
    let output = weights(&["--set", "0=9,1=8,2=7"]).output();
    let now = Table::read();
    unmount(&file, UnmountFlags::empty())?;
    read_only?;
    let line = refusal(&output?, 1)?;
    context.note(line.clone())?;
    ensure!(line.contains("node1: writing \"8\""), "{line}");
    ensure!(
        line.ends_with("what was written before it was put back"),
        "{line}"
    );
    ensure!(now? == before, "after the failure: {:?}", Table::read()?);
    refusal(&weights(&["--restore"]).output()?, 1)?;
    Ok(())
}

fn bad_input(_: &mut Context) -> Result<()> {
    let before = Table::read()?;
    for (words, status, names) in [
        (&["--set", "0=0"][..], 2, "\"0=0\""),
        (&["--set", "0=9,1=256"], 2, "\"256\""),
        (&["--set", "0=-1"], 2, "\"-1\""),
        (&["--set", "0=3x"], 2, "\"3x\""),
        (&["--set", ""], 2, "empty"),
        (&["--set", "0=9,7=1"], 2, "node 7 does not exist"),
        (
            &["--bandwidth", "0=200,5=1", "--apply"],
            2,
            "node 5 does not exist",
        ),
        (&["--measure", "--nodes", "9"], 2, "node 9 does not exist"),
        (&["--measure", "--cpus", "77"], 2, "CPU 77"),
        (
            &["--measure", "--memory", "1MiB"],
            1,
            "1 MiB are too little",
        ),
        (&["--from", "/proc/version"], 1, "/proc/version"),
    ] {
        let line = refusal(&weights(words).output()?, status)?;
        ensure!(
            line.contains(names),
            "{words:?}: {line:?} does not name {names:?}"
        );
        let now = Table::read()?;
        ensure!(now == before, "{words:?}: {now:?}");
    }
    Ok(())
}

fn not_root(context: &mut Context) -> Result<()> {
    const NOBODY: u32 = 65534;
    let before = Table::read()?;
    for words in [&["--set", "0=9"][..], &["--reset"]] {
        let mut command = weights(words);
        command.uid(NOBODY).gid(NOBODY);
        let line = refusal(&command.output()?, 1)?;
        ensure!(line.contains("run as root"), "{words:?}: {line}");
        context.note(line)?;
        ensure!(Table::read()? == before, "{words:?}: {:?}", Table::read()?);
    }
    Ok(())
}

/// Pages of `bind:FAR` mappings of a process by node.
fn bound_pages(pid: u32) -> BTreeMap<u32, u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap_or_default();
    let bound = format!("bind:{FAR}");
    let mut pages = BTreeMap::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace().skip(1);
        if words.next() != Some(&bound) {
            continue;
        }
        for word in words {
            let count = word.strip_prefix('N').and_then(|word| word.split_once('='));
            if let Some((node, count)) = count
                && let (Ok(node), Ok(count)) = (node.parse(), count.parse::<u64>())
            {
                *pages.entry(node).or_default() += count;
            }
        }
    }
    pages
}

/// Two seconds of measuring one node: in time, in bounds, and nowhere else.
fn measure(context: &mut Context) -> Result<()> {
    const MEMORY_PAGES: u64 = (64 << 20) / 4096;
    const TIME: Duration = Duration::from_secs(2);
    let table = Table::read()?;
    let words = [
        "--measure",
        "--nodes",
        "!0-1",
        // One CPU beside the node measures no loaded latency: one loads, one asks.
        "--cpus",
        "all",
        "--time",
        "2s",
        "--memory",
        "64MiB",
        "--json",
    ];
    let stretch = Stretch::begin();
    let mut child = weights(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut most = 0;
    while child.try_wait()?.is_none() {
        let pages = bound_pages(child.id());
        if let Some(elsewhere) = pages.keys().find(|node| **node != FAR) {
            child.kill()?;
            bail!("{pages:?}: pages on node {elsewhere}");
        }
        most = most.max(pages.get(&FAR).copied().unwrap_or(0));
        // An emulated machine shall measure and not be watched.
        std::thread::sleep(Duration::from_millis(100));
    }
    let (took, quiet) = (stretch.elapsed(), stretch.quiet());
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && errors.is_empty(), "{errors}");
    ensure!(
        most == MEMORY_PAGES,
        "{most} of {MEMORY_PAGES} pages were used at most"
    );
    in_time(quiet < TIME * 2, || {
        format!("{took:?} ({quiet:?} of a quiet machine's) for {TIME:?}")
    })?;
    ensure!(Table::read()? == table, "measuring changed the table");

    let document: Value = serde_json::from_slice(&output.stdout)?;
    let node = &document["measurement"]["nodes"][0];
    ensure!(node["node"] == FAR && node["near"] == false, "{node}");
    let positive = |value: &Value| value.as_f64().is_some_and(|value| value > 0.0);
    ensure!(positive(&node["idle_latency_ns"]), "{node}");
    let mixes = node["mixes"].as_array().context("mixes")?;
    ensure!(mixes.len() == 4, "{node}");
    for mix in mixes {
        let points = mix["points"].as_array().context("points")?;
        ensure!(points.len() == 8 && positive(&mix["peak_mbps"]), "{mix}");
        ensure!(
            points.iter().all(|point| positive(&point["latency_ns"])),
            "{mix}"
        );
    }
    let seconds = node["seconds"].as_f64().unwrap_or(0.0);
    let idle = &node["idle_latency_ns"];
    let read = &mixes[0]["peak_mbps"];
    context.note(format!(
        "{seconds:.1} s, idle {idle} ns, read {read} MB/s, emulated"
    ))
}

/// Firmware without bandwidths: nothing to compute from, and a table that cannot go back to auto.
fn no_bandwidths(context: &mut Context) -> Result<()> {
    let ones = [1; 3];
    let line = refusal(&weights(&["--apply"]).output()?, 1)?;
    ensure!(line.contains("the firmware tells no bandwidths"), "{line}");
    let before = Table::read()?;
    document(&["--bandwidth", "0=200,2=22", "--apply"])?;
    let manual = before.auto.map(|_| false);
    let now = Table::read()?;
    ensure!(now == Table::of([19, 1, 2], manual), "applied: {now:?}");
    let said = document(&["--reset"])?;
    let way = match before.auto {
        Some(_) => "ones_without_bandwidths",
        None => "each_node",
    };
    ensure!(said["change"]["reset_way"] == way, "{said}");
    let now = Table::read()?;
    ensure!(now == Table::of(ones, manual), "reset: {now:?}");
    context.note(format!("{way}: {now:?}"))
}
