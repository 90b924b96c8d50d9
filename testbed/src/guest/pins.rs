//! Kernel code that would be patched while tests run, patched once before them and held.
//!
//! The kernel keeps rarely used paths behind jumps that it writes into its own code when the first
//! user comes (a *static key*, a *static call*) and takes out when the last one goes. On an emulated
//! machine that is dangerous: the kernel writes a breakpoint first and then the code, and an emulated
//! processor now and then keeps executing its translation of the breakpoint when memory has long held
//! the code. The kernel knows of no breakpoint there and dies: `Oops: int3`, with the finished code in
//! its dump. Some 6,000 switches of the cpuset keys, while both processors allocate pages, kill a
//! guest in two of three runs. memtide opens and closes perf events all the time, so a guest's kernel
//! was patched some 300 times in a group of 19 tests, and a run of all tests now and then died.
//! QEMU with one thread for all processors takes turns and should be safe, but takes 1.7 times as long
//! where both processors are busy.
//!
//! So process 1 is a first user of everything that the tests use, before the work starts, and stays
//! it until the machine ends; all that is held is disabled or empty, and costs nothing:
//!
//! - a disabled event on `damon:damon_aggregated`: the tracepoint's key and call;
//! - a disabled event on minor faults: the key of that count (`perf_swevent_enabled`); and, like
//!   every event of one task, the scheduler's (`perf_sched_events`);
//! - an empty cgroup with a cpuset: the page allocator's (`cpusets_enabled_key`). A test may switch
//!   the controller on, and must not switch it off.
//!
//! `cargo xtask guest --trace-patches` tells what is still patched, test by test
//! ([`super::patches`]).

use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, Result};

use super::sys::{PerfKind, hold_perf_event};

const TRACEPOINT: &str = "/sys/kernel/tracing/events/damon/damon_aggregated/id";
const CGROUPS: &str = "/sys/fs/cgroup";
/// PERF_COUNT_SW_PAGE_FAULTS_MIN.
const MINOR_FAULTS: u64 = 5;

/// What is held until it is dropped.
#[derive(Debug)]
pub struct Pins(#[expect(dead_code, reason = "held for their drop")] Vec<OwnedFd>);

/// Holds all that this kernel has; what it lacks is told on the console, and no reason not to go on.
#[must_use]
pub fn hold() -> Pins {
    if let Err(error) = cpuset() {
        println!("init: no cpuset held: {error:#}");
    }
    hold_events()
}

/// The same without the cpuset: where systemd is process 1, cgroups are its own, and a slice holds one.
#[must_use]
pub fn hold_events() -> Pins {
    let mut held = Vec::new();
    for (what, event) in [
        ("minor faults", open(PerfKind::Software, MINOR_FAULTS)),
        ("damon_aggregated", aggregated()),
    ] {
        match event {
            Ok(fd) => held.push(fd),
            Err(error) => println!("init: {what} not held: {error:#}"),
        }
    }
    Pins(held)
}

fn open(kind: PerfKind, config: u64) -> Result<OwnedFd> {
    hold_perf_event(kind, config).context("cannot open a perf event")
}

fn aggregated() -> Result<OwnedFd> {
    let id =
        std::fs::read_to_string(TRACEPOINT).with_context(|| format!("cannot read {TRACEPOINT}"))?;
    let id = id
        .trim()
        .parse()
        .with_context(|| format!("{TRACEPOINT} is no number"))?;
    open(PerfKind::Tracepoint, id)
}

fn cpuset() -> Result<()> {
    let control = Path::new(CGROUPS).join("cgroup.subtree_control");
    std::fs::write(&control, "+cpuset")
        .with_context(|| format!("cannot write {}", control.display()))?;
    let folder = Path::new(CGROUPS).join("held");
    std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))
}
