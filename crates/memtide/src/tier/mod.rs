//! `memtide tier`: promote hot pages, demote cold ones to make room.
//!
//! In the foreground until SIGINT, SIGTERM, the given duration, or the end of
//! the last managed process. Whatever way it ends, it says what it did, and the
//! kernel's settings are as they were before.

mod args;
mod print;

pub use args::{SelectionArgs, SourceArg, TierArgs as Args, pid, size};

use crate::cli::Context;
use crate::source;
use anyhow::{Context as _, bail};
use args::GateArg;
use memtide_core::hotness::{Config, Layout};
use memtide_core::promotion::{Benefit, GateConfig, ThresholdFree};
use memtide_core::tiering::cadence::CadenceConfig;
use memtide_core::topology::Topology;
use memtide_core::units::PageSize;
use memtide_linux::fs::numa::{self, Capability};
use memtide_linux::fs::{Root, topology};
use memtide_linux::live::processes::Selection;
use memtide_linux::live::{Options, Tierer};
use print::Printer;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Processes below this much address space are left alone by `--all`: they have
/// less to move than looking at them costs.
const LEAST_ADDRESS_SPACE: u64 = 8 << 20;
/// How often the status is printed.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let machine = topology::read(&context.root)?;
    let page = PageSize::new(rustix::param::page_size() as u32).context("unknown page size")?;
    check_tiers(&machine.topology)?;
    check_privileges(&context.root, args.dry_run)?;
    let signal = hear_signals()?;
    Tierer::stay_off_fast_memory(&machine.topology);
    let opened = source::open(args.source, &context.root, page)?;
    if !context.root.is_live() {
        bail!(
            "{}: only the running machine's pages can be moved",
            context.root.path("/").display()
        );
    }
    let options = options(&args, &machine.topology, page)?;
    let mut printer = Printer::new(context.json, page);
    for notice in &opened.notices {
        printer.notice(notice);
    }
    let mut tierer = Tierer::new(
        context.root.clone(),
        machine.topology,
        page,
        opened.source,
        options,
    );
    let started = Instant::now();
    let mut printed = started;
    let why = loop {
        match signal.load(Ordering::Relaxed) {
            0 => {}
            number => break format!("stopped by {}", signal_name(number)),
        }
        if args
            .duration
            .is_some_and(|duration| started.elapsed() >= duration)
        {
            break "done".to_owned();
        }
        let any_left = match tierer.step(&mut printer) {
            Ok(any_left) => any_left,
            Err(error) => {
                // What was done until now must not be lost over the error.
                let put_back = tierer.finish();
                printer.summary(&tierer.status(), "failed");
                put_back?;
                return Err(error.into());
            }
        };
        if !any_left && !args.selection.pid.is_empty() {
            break "all processes have ended".to_owned();
        }
        if printed.elapsed() >= STATUS_EVERY {
            printed = Instant::now();
            printer.status(&tierer.status());
        }
    };
    tierer.finish()?;
    printer.summary(&tierer.status(), &why);
    Ok(ExitCode::SUCCESS)
}

/// There must be a tier to promote from and one to promote to.
fn check_tiers(topology: &Topology) -> anyhow::Result<()> {
    let lower = topology
        .nodes()
        .iter()
        .find(|node| !node.top_tier && node.has_memory());
    match lower {
        None => bail!(
            "this machine has one tier of memory, so there is nothing to promote; memtide topology shows its nodes"
        ),
        Some(node) if node.promotion_target.is_none() => bail!(
            "node {}: no faster node has memory; memtide topology shows the nodes",
            node.id
        ),
        Some(_) => Ok(()),
    }
}

/// Names the capability that is missing, before anything is tried.
pub fn check_privileges(root: &Root, dry_run: bool) -> anyhow::Result<()> {
    let Some(held) = numa::capabilities(root)? else {
        return Ok(());
    };
    let needed = match dry_run {
        true => &[Capability::SysPtrace, Capability::SysAdmin][..],
        false => &[
            Capability::SysPtrace,
            Capability::SysAdmin,
            Capability::SysNice,
        ][..],
    };
    let missing: Vec<&str> = needed
        .iter()
        .filter(|capability| !held.has(**capability))
        .map(|capability| capability.name())
        .collect();
    if !missing.is_empty() {
        bail!(
            "not permitted: {} is missing; run as root",
            missing.join(", ")
        );
    }
    Ok(())
}

/// The processes that were named.
pub fn selection(args: &SelectionArgs) -> Selection {
    match (&args.cgroup, args.all) {
        (Some(path), _) => Selection::Cgroup(path.clone()),
        (None, true) => Selection::All {
            at_least: LEAST_ADDRESS_SPACE,
        },
        (None, false) => Selection::Pids(args.pid.clone()),
    }
}

fn options(args: &Args, topology: &Topology, page: PageSize) -> anyhow::Result<Options> {
    let window_ms = u32::try_from(args.window.as_millis()).unwrap_or(u32::MAX);
    let hotness = Config::new(Layout::Precise)
        .with_threshold(args.threshold)
        .context("--threshold")?
        .with_window_ms(window_ms)
        .context("--window")?;
    let gate = GateConfig {
        rate_limit_mbps: args.rate_limit >> 20,
        page_size: page,
        ..GateConfig::new(window_ms)
    };
    Ok(Options {
        selection: selection(&args.selection),
        hotness,
        gate,
        threshold_free: (args.gate == GateArg::ThresholdFree).then(|| ThresholdFree {
            benefit: benefit(topology, page),
            damping_ms: 10_000,
            margin: 32,
        }),
        headroom: page.pages(args.headroom),
        cadence: CadenceConfig {
            share_permille: u32::from(args.observe_cpu) * 10,
            ..CadenceConfig::default()
        },
        look_every: Duration::from_millis(50),
        glance_every: Duration::from_millis(250),
        samples: 256,
        stretches: 256,
        idle_passes: 4,
        idle_ms: 1000,
        settle_ms: 60_000,
        look_pages: 262_144,
        dry_run: args.dry_run,
        explain: args.explain,
        seed: u64::from(std::process::id()),
    })
}

/// What moving costs and saves, from the figures of the firmware where there
/// are any.
fn benefit(topology: &Topology, page: PageSize) -> Benefit {
    let latency = |top: bool| {
        let nodes = topology.nodes().iter().filter(|node| node.top_tier == top);
        nodes.filter_map(|node| node.figures.read_latency_ns).min()
    };
    Benefit {
        slow_ns: u64::from(latency(false).unwrap_or(250)),
        fast_ns: u64::from(latency(true).unwrap_or(100)),
        // A page is copied at some gigabytes a second, after an unmap and a
        // flush of a few microseconds.
        move_ns: 4_000 + page.bytes() / 4,
        // An accessed bit stands for all accesses of its interval; a page that
        // is touched at all by a running program is touched some hundred times.
        accesses_per_record: 100,
        horizon_ms: 60_000,
    }
}

/// The number of the signal that wants an end, or 0.
pub fn hear_signals() -> anyhow::Result<Arc<AtomicUsize>> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)
            .context("cannot handle signals")?;
    }
    Ok(signal)
}

/// A signal's name.
pub fn signal_name(number: usize) -> &'static str {
    match number as i32 {
        SIGINT => "SIGINT",
        SIGTERM => "SIGTERM",
        _ => "SIGHUP",
    }
}
