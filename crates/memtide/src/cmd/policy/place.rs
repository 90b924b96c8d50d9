//! `memtide policy place`: which node a page gets, and why.

use super::judge::judge;
use super::machine::{Description, MachineArgs};
use super::words::{Pages, PolicyArgs, number, page_address, policy_name};
use crate::shared::context::{Context, unless_gone};
use anyhow::{Context as _, bail};
use memtide_core::mempolicy::{Errno, Explanation, Mode, Process};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;
use serde::{Serialize, Serializer};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::process::ExitCode;

/// Say which node each page of a mapping gets when it is first touched, and why.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyArgs,

    /// Which pages, counted from the mapping's first
    #[arg(long, value_name = "FIRST-LAST", value_parser = Pages::parse, default_value = "0-15")]
    pages: Pages,

    /// Where the mapping begins; interleaving goes by address
    #[arg(long, value_name = "ADDRESS", value_parser = number, default_value = "0x200000000000")]
    address: u64,

    /// Home node, where bind and preferred-many begin to look
    #[arg(long, value_name = "NODE", value_parser = number)]
    home: Option<u64>,

    #[command(flatten)]
    machine: MachineArgs,
}

/// What the command says; the document of `--json`. Runs are made while they
/// are written: there may be as many as pages.
#[derive(Serialize)]
struct Report<'a> {
    policy: String,
    effective: NodeMask,
    run_on: NodeId,
    address: String,
    #[serde(serialize_with = "one_by_one")]
    runs: RefCell<Runs<'a>>,
    /// Known when all runs are written.
    #[serde(serialize_with = "in_all")]
    totals: &'a RefCell<BTreeMap<NodeId, u64>>,
}

fn one_by_one<S: Serializer>(runs: &RefCell<Runs<'_>>, to: S) -> Result<S::Ok, S::Error> {
    let mut runs = runs.borrow_mut();
    to.collect_seq(&mut *runs)
}

fn in_all<S: Serializer>(
    totals: &&RefCell<BTreeMap<NodeId, u64>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    totals.borrow().serialize(to)
}

/// Pages one after the other that get the same node for the same reason.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Run {
    first: u64,
    pages: u64,
    node: NodeId,
    preferred: NodeId,
    /// Place of the first page in its round, of an interleave.
    position: Option<u64>,
    /// Pages in a round.
    round: Option<u64>,
    /// Pages of a round that prefer this node.
    weight: Option<u8>,
    why: String,
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let description = args.machine.describe(context)?;
    let page_size = description.machine.page().bytes();
    let start = page_address(args.address, page_size)?;
    let mut process = map(&description, &args.policy, (start, args.pages), args.home)?;
    let judged = judge(
        &description,
        args.policy.mode.0,
        &args.policy.raw_mask(),
        args.policy.maxnode,
        None,
    );
    let Ok(policy) = judged else {
        bail!("the policy was accepted for one call and not for the other");
    };
    let totals = RefCell::new(BTreeMap::new());
    let runs = Runs {
        process: &mut process,
        first: start / page_size,
        pages: args.pages.first..args.pages.first + args.pages.count,
        next: None,
        totals: &totals,
    };
    let report = Report {
        policy: policy_name(policy.mode, policy.flags),
        effective: policy.effective,
        run_on: description.run_on,
        address: format!("{start:#x}"),
        runs: RefCell::new(runs),
        totals: &totals,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let written = match context.json {
        true => serde_json::to_writer_pretty(&mut out, &report)
            .map_err(std::io::Error::from)
            .and_then(|()| out.write_all(b"\n")),
        false => text(&report, &mut out),
    };
    unless_gone(written.and_then(|()| out.flush()))?;
    Ok(ExitCode::SUCCESS)
}

/// A process with the mapping, under the policy.
fn map(
    description: &Description,
    policy: &PolicyArgs,
    (start, pages): (u64, Pages),
    home: Option<u64>,
) -> anyhow::Result<Process> {
    let mut process = description.process();
    let end = pages.first.checked_add(pages.count);
    let bytes = end.and_then(|end| end.checked_mul(description.machine.page().bytes()));
    let bytes = bytes.context("--pages: past the end of the address space")?;
    process.mmap(start, bytes).map_err(|errno| {
        anyhow::anyhow!("{bytes} bytes cannot be mapped at {start:#x}: {errno}; see --address")
    })?;
    let (word, mask, maxnode) = (policy.mode.0, policy.raw_mask(), policy.maxnode);
    if process
        .mbind(start, bytes, word.into(), &mask, maxnode, 0)
        .is_err()
    {
        match judge(description, word, &mask, maxnode, Some(0)) {
            Err(refused) => bail!(
                "the kernel refuses this policy, {}: {}",
                refused.errno,
                refused.why
            ),
            Ok(_) => bail!("the kernel refuses this policy"),
        }
    }
    if let Some(home) = home {
        let set = process.set_mempolicy_home_node(start, bytes, home, 0);
        set.map_err(|errno| anyhow::anyhow!("--home {home}: {errno}: {}", why_no_home(errno)))?;
    }
    Ok(process)
}

fn why_no_home(errno: Errno) -> &'static str {
    match errno {
        Errno::EINVAL => "no such node is online",
        _ => "only bind and preferred-many have a home",
    }
}

/// The runs, one after the other.
struct Runs<'a> {
    process: &'a mut Process,
    /// The mapping's first page.
    first: u64,
    /// Pages of it that are still to come.
    pages: Range<u64>,
    /// The run that the page before belongs to.
    next: Option<Run>,
    totals: &'a RefCell<BTreeMap<NodeId, u64>>,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        for page in self.pages.by_ref() {
            let Some(place) = self.process.place_of(self.first + page) else {
                continue;
            };
            if let Some(run) = &mut self.next
                && goes_on(run, &place)
            {
                run.pages += 1;
                continue;
            }
            let run = Run {
                first: page,
                pages: 1,
                node: place.node,
                preferred: place.preferred,
                position: place.turn.map(|turn| turn.position),
                round: place.turn.map(|turn| turn.round),
                weight: place.turn.map(|turn| turn.weight),
                why: why(&place, self.process.here()),
            };
            if let Some(done) = self.next.replace(run) {
                return Some(self.counted(done));
            }
        }
        let last = self.next.take()?;
        Some(self.counted(last))
    }
}

impl Runs<'_> {
    fn counted(&self, run: Run) -> Run {
        *self.totals.borrow_mut().entry(run.node).or_insert(0) += run.pages;
        run
    }
}

/// Whether a page belongs to the run: it prefers the same node, in the same
/// round.
fn goes_on(run: &Run, place: &Explanation) -> bool {
    let next = run.position.map(|position| position + run.pages);
    let same_round = match (next, place.turn) {
        (Some(next), Some(turn)) => turn.round == 1 || next == turn.position,
        _ => true,
    };
    run.preferred == place.preferred && run.node == place.node && same_round
}

fn why(place: &Explanation, here: NodeId) -> String {
    let Explanation {
        policy,
        preferred,
        node,
        ..
    } = place;
    let wish = match policy.mode {
        Mode::Interleave | Mode::WeightedInterleave => match place.turn {
            Some(turn) => format!(
                "page {} of a round of {}, of which node {preferred} has {}",
                turn.position + 1,
                turn.round,
                turn.weight
            ),
            None => "its turn".to_owned(),
        },
        Mode::Preferred if policy.nodes.contains(*preferred) && !policy.to_accessor => {
            "the preferred node".to_owned()
        }
        Mode::Bind | Mode::PreferredMany => {
            let from = match policy.home {
                Some(home) => format!("its home, node {home}"),
                None => format!("the CPU's node {here}"),
            };
            return match policy.nodes.contains(*node) {
                true => format!("the nearest of {} to {from}", policy.nodes),
                false => format!("none of {} is allowed; the nearest to {from}", policy.nodes),
            };
        }
        _ => format!("the node of the CPU, {here}"),
    };
    match preferred == node {
        true => wish,
        false => {
            format!("{wish}; no memory or not allowed there, {node} is the nearest that is")
        }
    }
}

fn text(report: &Report<'_>, out: &mut impl Write) -> std::io::Result<()> {
    out.write_all(report.policy.as_bytes())?;
    if !report.effective.is_empty() {
        write!(out, " on {}", report.effective)?;
    }
    writeln!(
        out,
        ", mapped at {}, touched from node {}",
        report.address, report.run_on
    )?;
    for run in &mut *report.runs.borrow_mut() {
        match run.pages {
            1 => write!(out, "page {}", run.first)?,
            more => write!(out, "pages {}-{}", run.first, run.first + more - 1)?,
        }
        writeln!(out, ": node {}: {}", run.node, run.why)?;
    }
    let totals = report.totals.borrow();
    let totals = totals.iter();
    let totals: Vec<String> = totals
        .map(|(node, pages)| format!("{pages} on node {node}"))
        .collect();
    writeln!(out, "in all: {}", totals.join(", "))
}
