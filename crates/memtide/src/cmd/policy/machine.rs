//! The machine that the model is asked about: the first line of a replay, or
//! options, or the running system with options in place of what it has.

use super::call::{node_list, nodes};
use super::fields::{Fields, Result as LineResult};
use crate::shared::context::Context;
use anyhow::{Context as _, bail, ensure};
use memtide_core::mempolicy::{
    Kernel, Machine, MachineInput, Process, TableState, WeightFiles, WeightRules, Weights,
};
use memtide_core::nodemask::NodeMask;
use memtide_core::numbers;
use memtide_core::units::{NodeId, PageSize};
use memtide_linux::fs::numa::{self, Capability, Release};
use memtide_linux::fs::proc::status;
use memtide_linux::fs::topology;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first kernel with weighted interleave.
const FIRST: (u32, u32) = (6, 9);
/// The kernel of a described machine.
const DESCRIBED: Release = Release {
    major: 6,
    minor: 12,
};

/// Reads `6.12`, which may go on as a release does.
fn version(text: &str) -> Result<Release, String> {
    let mut parts = text.splitn(3, '.');
    let mut number = || numbers::decimal(parts.next()?);
    match (number(), number()) {
        (Some(major), Some(minor)) => modelled(Release { major, minor }),
        _ => Err("not a kernel version such as 6.12".to_owned()),
    }
}

fn modelled(release: Release) -> Result<Release, String> {
    let Release { major, minor } = release;
    match (major, minor) < FIRST {
        true => Err(format!(
            "kernel {major}.{minor} has no weighted interleave, which came with 6.9, and is not modelled"
        )),
        false => Ok(release),
    }
}

fn kernel(release: Release) -> Kernel {
    Kernel::of_version(release.major, release.minor)
}

/// A machine, and how a process stands on it.
#[derive(Clone, Debug)]
pub struct Description {
    /// What the model wants to know.
    pub machine: Arc<Machine>,
    /// The process's cpuset.mems.
    pub cpuset: NodeMask,
    /// The node of its CPU.
    pub run_on: NodeId,
    /// The weight table.
    pub weights: WeightFiles,
}

/// The table as somebody describes it.
#[derive(Debug, Default)]
struct Table {
    weights: Option<BTreeMap<NodeId, u8>>,
    auto: Option<bool>,
    /// What the kernel computes.
    auto_weights: Option<BTreeMap<NodeId, u8>>,
}

impl Table {
    fn files(self, machine: &Machine) -> Result<WeightFiles, String> {
        let has_auto = machine.kernel().weight_rules == WeightRules::WithAuto;
        if self.auto.is_some() && !has_auto {
            return Err("auto: this kernel has none, it came with 6.16".to_owned());
        }
        let table = |by_node: &BTreeMap<NodeId, u8>| {
            let mut table = Weights::ONES;
            for (node, weight) in by_node {
                table.set(*node, *weight);
            }
            table
        };
        let auto = self.auto.unwrap_or(has_auto && self.weights.is_none());
        let known = if auto { self.weights.as_ref() } else { None };
        let computed = self.auto_weights.as_ref().or(known).map(table);
        let files = WeightFiles::new(machine, computed);
        if let Some(weights) = &self.weights {
            let weights = table(weights);
            files.table().store(TableState { weights, auto });
        }
        Ok(files)
    }
}

impl Description {
    /// A process without mappings and policy.
    pub fn process(&self) -> Process {
        let machine = Arc::clone(&self.machine);
        let mut process = Process::new(machine, &self.cpuset, self.weights.clone());
        // The description was checked: the node has CPUs.
        let _ = process.run_on(self.run_on);
        process
    }

    /// Reads the first line of a replay.
    pub fn read(line: &str) -> LineResult<Description> {
        let mut line = Fields::parse(line)?;
        let object = |value: &Value| value.as_object().cloned();
        let fields = line.must("machine", "an object", object)?;
        line.end()?;
        let mut fields = Fields::new("machine", fields);
        let words = fields.text("kernel")?;
        let release = match version(&words) {
            Ok(release) => release,
            Err(error) => return fields.wrong("kernel", &format!("{words:?}: {error}")),
        };
        let memory = nodes(&mut fields, "memory_nodes")?;
        let cpus = nodes(&mut fields, "cpu_nodes")?;
        let mut input = MachineInput::new(memory, cpus, kernel(release));
        let list = "a node list such as \"0-3\"";
        if let Some(possible) = fields.may("possible_nodes", list, node_list)? {
            input.possible_nodes = possible.iter().last().map_or(1, |node| node.0 + 1);
        }
        if let Some(page) = fields.may("page_size", "a page size such as 4096", page_size)? {
            input.page = page;
        }
        let matrix = "rows of distances";
        input.distances = fields
            .may("distances", matrix, or_null(distances))?
            .flatten();
        let flag = "true or false";
        input.capable = fields.may("capable", flag, Value::as_bool)?.unwrap_or(true);
        let id = "a node from 0 to 1023";
        let zeros = fields.may("zero_page_node", id, node_id)?;
        input.zero_page_node = zeros.unwrap_or(NodeId(0));
        let cpuset = fields.may("cpuset", list, node_list)?;
        let run_on = fields.may("run_on", id, node_id)?;
        let what = "weights by node, each once, such as {\"0\":5}";
        let table = Table {
            weights: fields.may("weights", what, or_null(weights))?.flatten(),
            auto: fields.may("auto", flag, or_null(Value::as_bool))?.flatten(),
            auto_weights: fields
                .may("auto_weights", what, or_null(weights))?
                .flatten(),
        };
        let made = Description::new(input, cpuset, run_on, table);
        let description = match made {
            Ok(description) => description,
            Err(error) => return super::fields::wrong(format!("machine: {error}")),
        };
        fields.end()?;
        Ok(description)
    }

    fn new(
        input: MachineInput,
        cpuset: Option<NodeMask>,
        run_on: Option<NodeId>,
        table: Table,
    ) -> Result<Description, String> {
        let machine = Machine::new(input).map_err(|error| error.to_string())?;
        let (memory, cpus) = (machine.memory_nodes(), &machine.input().cpu_nodes);
        let cpuset = cpuset.unwrap_or(*memory);
        if cpuset.intersection(memory).is_empty() {
            return Err(format!(
                "cpuset: none of the nodes {cpuset} has memory; {memory} have"
            ));
        }
        let run_on = match run_on.or_else(|| cpus.iter().next()) {
            Some(node) if cpus.contains(node) => node,
            Some(node) => {
                return Err(format!(
                    "cannot run on node {node}, which has no CPU; {cpus} have"
                ));
            }
            None => return Err("no node has CPUs; name at least one".to_owned()),
        };
        Ok(Description {
            weights: table.files(&machine)?,
            machine: Arc::new(machine),
            cpuset,
            run_on,
        })
    }
}

/// Null is a value.
fn or_null<T>(make: impl Fn(&Value) -> Option<T>) -> impl Fn(&Value) -> Option<Option<T>> {
    move |value| match value {
        Value::Null => Some(None),
        value => make(value).map(Some),
    }
}

fn page_size(value: &Value) -> Option<PageSize> {
    PageSize::new(value.as_u64()?.try_into().ok()?)
}

fn node_id(value: &Value) -> Option<NodeId> {
    let id = u16::try_from(value.as_u64()?).ok()?;
    (id < NodeId::LIMIT).then_some(NodeId(id))
}

fn distances(value: &Value) -> Option<Vec<Vec<u32>>> {
    serde_json::from_value(value.clone()).ok()
}

/// Each node once: `0` and `00` are two keys to JSON.
fn weights(value: &Value) -> Option<BTreeMap<NodeId, u8>> {
    let mut weights = BTreeMap::new();
    for (node, weight) in value.as_object()? {
        let node: u16 = numbers::decimal(node)?;
        let weight = u8::try_from(weight.as_u64()?).ok()?;
        let once = weights.insert(NodeId(node), weight).is_none();
        if node >= NodeId::LIMIT || weight == 0 || !once {
            return None;
        }
    }
    Some(weights)
}

/// The machine that is asked about; what is not given is this machine's.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Machine (default: this one)")]
pub struct MachineArgs {
    /// Nodes with memory; describes another machine than this one
    #[arg(long, value_name = "LIST", value_parser = list)]
    pub nodes: Option<NodeMask>,

    /// Nodes with CPUs [default of a described machine: those with memory]
    #[arg(long, value_name = "LIST", value_parser = list)]
    pub cpu_nodes: Option<NodeMask>,

    /// Version of the kernel, 6.9 or later [default of a described machine: 6.12]
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub kernel: Option<Release>,

    /// Nodes of the process's cpuset
    #[arg(long, value_name = "LIST", value_parser = list)]
    pub cpuset: Option<NodeMask>,

    /// Interleave weights, 1 to 255 each
    #[arg(long, value_name = "NODE=WEIGHT,...", value_parser = memtide_loop::options::weights)]
    pub weights: Option<BTreeMap<NodeId, u8>>,

    /// Node of the CPU that the process runs on [default: the lowest with CPUs]
    #[arg(long, value_name = "NODE", value_parser = node_word)]
    pub run_on: Option<NodeId>,
}

fn list(text: &str) -> Result<NodeMask, String> {
    let nodes: NodeMask = text.parse().map_err(|_| "not a list such as 0,2-3")?;
    match nodes.is_empty() {
        true => Err("no node in it".to_owned()),
        false => Ok(nodes),
    }
}

fn node_word(text: &str) -> Result<NodeId, String> {
    match numbers::decimal(text) {
        Some(node) if node < NodeId::LIMIT => Ok(NodeId(node)),
        _ => Err("not a node from 0 to 1023".to_owned()),
    }
}

impl MachineArgs {
    /// The machine that these words describe.
    pub fn describe(self, context: &Context) -> anyhow::Result<Description> {
        let (mut input, cpuset, table) = match self.nodes {
            Some(memory) => {
                let release = self.kernel.unwrap_or(DESCRIBED);
                let input = MachineInput::new(memory, memory, kernel(release));
                (input, None, Table::default())
            }
            None => running(context, self.kernel)?,
        };
        if let Some(cpus) = self.cpu_nodes {
            input.cpu_nodes = cpus;
            let last = cpus.iter().last().map_or(0, |node| node.0 + 1);
            input.possible_nodes = input.possible_nodes.max(last);
        }
        let table = match self.weights {
            None => table,
            Some(weights) => {
                let strange = weights
                    .keys()
                    .find(|node| !input.memory_nodes.contains(**node));
                if let Some(node) = strange {
                    bail!("--weights: node {node} has no memory here");
                }
                Table {
                    weights: Some(weights),
                    ..Table::default()
                }
            }
        };
        let cpuset = self.cpuset.or(cpuset);
        Description::new(input, cpuset, self.run_on, table).map_err(anyhow::Error::msg)
    }
}

/// The running system, and the process that asks.
fn running(
    context: &Context,
    asked: Option<Release>,
) -> anyhow::Result<(MachineInput, Option<NodeMask>, Table)> {
    let root = &context.root;
    let release = match asked {
        Some(release) => release,
        None => {
            let release = numa::release(root)?;
            let path = root.path("proc/sys/kernel/osrelease");
            let missing = || format!("{}: missing; mount procfs or give --kernel", path.display());
            let release = release.with_context(missing)?;
            let hint = |error| anyhow::anyhow!("{error}; give --kernel to ask about another");
            modelled(release).map_err(hint)?
        }
    };
    let machine = topology::read(root)?;
    let nodes = || machine.topology.nodes().iter();
    let memory = nodes().filter(|node| node.has_memory()).map(|node| node.id);
    let cpus = nodes().filter(|node| node.has_cpus()).map(|node| node.id);
    let mut input = MachineInput::new(memory.collect(), cpus.collect(), kernel(release));
    ensure!(!input.memory_nodes.is_empty(), "no node has memory");
    if let Some(possible) = &machine.sets.possible {
        let last = possible.iter().last().map_or(0, |node| node.0 + 1);
        input.possible_nodes = input.possible_nodes.max(last);
    }
    let distance = |from, to| {
        let known = machine.topology.distance(NodeId(from), NodeId(to));
        known.unwrap_or(if from == to { 10 } else { 20 })
    };
    let ids = 0..input.possible_nodes;
    let row = |from| ids.clone().map(|to| distance(from, to)).collect();
    input.distances = Some(ids.clone().map(row).collect());
    let rights = numa::capabilities(root)?;
    input.capable = rights.is_none_or(|rights| rights.has(Capability::SysNice));
    let status = root.parse("proc/self/status", status::parse)?;
    let mems = status.and_then(|status| status.mems_allowed);
    let table = machine.weights.map(|table| Table {
        weights: Some(table.weights),
        auto: table.auto,
        auto_weights: None,
    });
    let mems = mems.map(|mems| mems.into_iter().collect());
    Ok((input, mems, table.unwrap_or_default()))
}
