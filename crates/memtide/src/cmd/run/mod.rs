//! `memtide run`: starts a program with a memory policy, as numactl does.
//!
//! Where nothing has to happen afterwards the program takes this process's
//! place. With weights that the kernel's table does not have, memtide stays
//! beside the program: with `--apply-weights` it has written the table and puts
//! it back at the end; otherwise the program's pages are placed by the table
//! that stands (or in turn, on kernels without one) and moved to the wanted
//! spread while it runs.
//!
//! The exit status is the program's own. Standard output is the program's too:
//! what memtide has to say goes to standard error, with `--json` as one object
//! a line.

mod args;
mod policy;
mod tend;

pub use args::RunArgs as Args;

use crate::shared::context::{BadUsage, Context, complain};
use crate::shared::lent_weights::{self, Holder, Lent, THEIRS};
use crate::shared::nodes::{List, Machine};
use crate::shared::outside;
use crate::shared::program::{self, Program, not_started};
use crate::shared::spread::{WeightsArg, as_the_kernel_counts, page_size, wanted};
use crate::shared::weights_options::RATE_LIMIT;
use anyhow::{Context as _, bail};
use memtide_core::mempolicy::Mode;
use memtide_core::units::NodeId;
use memtide_linux::fs::{Root, list, node, numa};
use memtide_linux::mover::SharedPages;
use memtide_linux::respread::{Options, Spread};
use memtide_linux::sys::mempolicy;
use memtide_linux::sys::signals::Blocked;
use policy::{Policy, RunningKernel};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;
use tend::tend;

/// What memtide says besides the program.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// Something to know.
    Notice { text: &'a str },
    /// The program ended whose pages were moved.
    Respread { weights: String, moved: u64 },
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let root = &context.root;
    let machine = Machine::read(root, args.all)?;
    let plan = Plan {
        policy: policy::wanted(&args, &machine)?,
        cpus: cpus(&args, &machine)?,
    };
    let weights = match (&args.weights, &plan.policy) {
        (None, _) => None,
        (Some(weights), Some(policy)) if policy.mode == Mode::WeightedInterleave => {
            Some(checked(weights, policy, &machine)?)
        }
        (Some(_), _) => {
            return Err(BadUsage("--weights goes with --weighted-interleave".into()).into());
        }
    };
    if plan.policy.is_none() && plan.cpus.is_none() {
        return Err(BadUsage(format!(
            "nothing to set for {}; give a policy such as --membind 0, or CPUs",
            args.command[0].display()
        ))
        .into());
    }
    if !root.is_live() {
        bail!(
            "{}: programs run on the running machine only",
            root.path("/").display()
        );
    }
    if let Some(text) = lent_weights::put_back_left(root) {
        say(context, &Event::Notice { text: &text });
    }
    if args.balancing && numa::balancing(root)?.is_none_or(|mode| !mode.normal) {
        let text = "--balancing: pages are not balanced while kernel.numa_balancing is not 1";
        say(context, &Event::Notice { text });
    }
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    let Some(wanted) = weights else {
        return take_our_place(command, &plan, context);
    };
    let table = node::weights(root)?.map(|table| table.weights);
    let weight = |node: NodeId| table.as_ref()?.get(&node).copied();
    // What only root can tell may be so.
    let may_be_lent = lent_weights::is_lent(root)?.unwrap_or(true);
    if wanted.as_in_table(weight).is_some() && !may_be_lent {
        return take_our_place(command, &plan, context);
    }
    let signals = program::block()?;
    match args.apply_weights {
        true => with_table(command, &plan, &wanted, &signals, context),
        false => with_moves(command, &plan, wanted, &signals, context),
    }
}

/// What is set for the program.
#[derive(Debug)]
struct Plan {
    policy: Option<Policy>,
    cpus: Option<BTreeSet<u32>>,
}

impl Plan {
    /// Sets it for the calling thread and says what had to be left out.
    fn set(&self) -> anyhow::Result<Vec<String>> {
        if let Some(cpus) = &self.cpus {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|cpu| set.set(*cpu as usize));
            sched_setaffinity(None, &set).map_err(|errno| {
                let cpus = list::format(cpus.iter().copied());
                anyhow::anyhow!("CPUs {cpus}: the kernel refuses them: {errno}")
            })?;
        }
        match &self.policy {
            Some(policy) => policy.set(&mut RunningKernel),
            None => Ok(Vec::new()),
        }
    }
}

/// The CPUs to run on, if any were asked for.
fn cpus(args: &Args, machine: &Machine) -> Result<Option<BTreeSet<u32>>, BadUsage> {
    let blame = |option: &'static str| move |why| BadUsage(format!("{option}: {why}"));
    let among = |list: &List, known, option| list.among(known).map_err(blame(option));
    let cpus: BTreeSet<u32> = match (&args.cpunodebind, &args.physcpubind) {
        (Some(nodes), _) => {
            let nodes = among(nodes, &machine.cpu_nodes, "--cpunodebind")?;
            let cpus = nodes.iter().flat_map(|node| &machine.cpus_of[node]);
            cpus.filter(|cpu| machine.cpus.allowed.contains(cpu))
                .copied()
                .collect()
        }
        (None, Some(cpus)) => among(cpus, &machine.cpus, "--physcpubind")?,
        (None, None) => return Ok(None),
    };
    match cpus.last().filter(|cpu| **cpu as usize >= CpuSet::MAX_CPU) {
        Some(cpu) => Err(BadUsage(format!(
            "CPU {cpu}: only CPUs below {} can be chosen",
            CpuSet::MAX_CPU
        ))),
        None => Ok(Some(cpus)),
    }
}

/// The weights as a spread over just the nodes of the policy.
fn checked(weights: &WeightsArg, policy: &Policy, machine: &Machine) -> anyhow::Result<Spread> {
    let spread = wanted(weights, &machine.memory_nodes, "--weights")?;
    let nodes = list::format(policy.nodes.iter().map(|node| u32::from(node.0)));
    if let Some(node) = policy.nodes.iter().find(|node| !weights.contains_key(node)) {
        return Err(BadUsage(format!(
            "--weights: node {node} of {} {nodes} has no weight",
            policy.option
        ))
        .into());
    }
    if let Some(node) = weights.keys().find(|node| !policy.nodes.contains(node)) {
        return Err(BadUsage(format!(
            "--weights: node {node} is not among {} {nodes}",
            policy.option
        ))
        .into());
    }
    Ok(spread)
}

/// Exec in place: returns only if that fails.
fn take_our_place(
    mut command: Command,
    plan: &Plan,
    context: &Context,
) -> anyhow::Result<ExitCode> {
    for text in plan.set()? {
        say(context, &Event::Notice { text: &text });
    }
    let error = command.exec();
    cannot_start(&command, &error)
}

fn cannot_start(command: &Command, error: &io::Error) -> anyhow::Result<ExitCode> {
    let (code, why) = not_started(&command.get_program().to_string_lossy(), error);
    complain(&why);
    Ok(ExitCode::from(code))
}

/// Starts the program and stays. The inner error is the exit status of a
/// program that cannot be started.
fn start<'a>(
    mut command: Command,
    plan: &Plan,
    signals: &'a Blocked,
    context: &Context,
) -> anyhow::Result<Result<Program<'a>, ExitCode>> {
    // What the program inherits is for it alone.
    let cpus = sched_getaffinity(None).context("cannot read the own CPUs")?;
    let (mode, mask) = mempolicy::get_policy().context("cannot read the own memory policy")?;
    let notices = plan.set()?;
    let program = Program::start(&mut command, signals);
    let mask = if mask.iter().any(|word| *word != 0) {
        &mask[..]
    } else {
        &[]
    };
    sched_setaffinity(None, &cpus).context("cannot put back the own CPUs")?;
    mempolicy::set_policy(mode, mask).context("cannot put back the own memory policy")?;
    for text in notices {
        say(context, &Event::Notice { text: &text });
    }
    match program {
        Ok(program) => Ok(Ok(program)),
        Err(error) => cannot_start(&command, &error).map(Err),
    }
}

/// With the kernel's table changed for as long as the program runs.
fn with_table(
    command: Command,
    plan: &Plan,
    wanted: &Spread,
    signals: &Blocked,
    context: &Context,
) -> anyhow::Result<ExitCode> {
    let weights = wanted.weights().iter().copied().collect();
    let (lent, notices) = Lent::take(&context.root, &weights, Holder::Run)?;
    for text in notices {
        say(context, &Event::Notice { text: &text });
    }
    let mut program = match start(command, plan, signals, context)? {
        Ok(program) => program,
        Err(code) => return give_back(lent).map(|()| code),
    };
    while !program.wait(Duration::from_secs(3600)) {}
    give_back(lent)?;
    Ok(ExitCode::from(program.ended().unwrap_or(1)))
}

fn give_back(lent: Lent) -> anyhow::Result<()> {
    match lent.give_back()? {
        true => Ok(()),
        false => bail!(THEIRS),
    }
}

/// With the pages moved while the program runs.
fn with_moves(
    command: Command,
    plan: &Plan,
    wanted: Spread,
    signals: &Blocked,
    context: &Context,
) -> anyhow::Result<ExitCode> {
    let page = page_size()?;
    let options = Options {
        spread: as_the_kernel_counts(&context.root, wanted)?,
        shared: SharedPages::Leave,
        dry_run: false,
        page,
    };
    let text = placed(&context.root, &options.spread)?;
    let mut program = match start(command, plan, signals, context)? {
        Ok(program) => program,
        Err(code) => return Ok(code),
    };
    say(context, &Event::Notice { text: &text });
    let weights = options.spread.to_string();
    let tending = tend(
        &context.root,
        &options,
        page.pages(RATE_LIMIT.0),
        &mut program,
    );
    for text in &tending.notices {
        say(context, &Event::Notice { text });
    }
    let moved = tending.moved;
    say(context, &Event::Respread { weights, moved });
    Ok(ExitCode::from(program.ended().unwrap_or(1)))
}

/// How pages are placed before they are moved.
fn placed(root: &Root, wanted: &Spread) -> anyhow::Result<String> {
    let Some(table) = node::weights(root)? else {
        return Ok(format!(
            "this kernel has no interleave weights (Linux has them since 6.9): pages are moved to \
             {wanted} while the program runs"
        ));
    };
    let stands = wanted
        .weights()
        .iter()
        .filter_map(|(node, _)| Some(format!("{node}={}", table.weights.get(node)?)));
    let stands = stands.collect::<Vec<_>>().join(",");
    Ok(format!(
        "the kernel's weights are {stands}: pages are moved to {wanted} while the program runs; \
         --apply-weights writes the kernel's instead"
    ))
}

fn say(context: &Context, event: &Event<'_>) {
    if context.json {
        let line = serde_json::to_string(event).expect("plain data");
        crate::shared::context::say(&outside::json(&line));
        return;
    }
    match event {
        Event::Notice { text } => complain(text),
        Event::Respread { weights, moved } => {
            complain(&format!("moved {moved} pages to {weights}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// As docs/json.md writes them: `event` once, others behind its value.
    #[test]
    fn the_schema_is_documented() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let section = guide.split("\n## ").find(|s| s.starts_with("run\n"));
        let section = section.expect("docs/json.md has a section run");
        let documented: BTreeSet<String> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .map(str::to_owned)
            .collect();
        let events = [
            Event::Notice { text: "x" },
            Event::Respread {
                weights: "0=9,2=1".into(),
                moved: 3,
            },
        ];
        let mut printed = BTreeSet::from(["event".to_owned()]);
        for event in &events {
            match event {
                Event::Notice { .. } | Event::Respread { .. } => {}
            }
            let Value::Object(fields) = serde_json::to_value(event).unwrap() else {
                panic!("an event is an object");
            };
            let name = fields["event"].as_str().unwrap();
            assert!(section.contains(&format!("`{name}`")), "{name}");
            let others = fields.keys().filter(|key| *key != "event");
            printed.extend(others.map(|key| format!("{name}.{key}")));
        }
        assert_eq!(
            documented, printed,
            "documented on the left, printed on the right"
        );
    }
}
