//! What the command says; the document of `--json`.

use super::change::{Action, Changed};
use super::compute::{Computed, Origin, in_force};
use crate::shared::lent_weights::{By, Standing};
use memtide_core::mempolicy::measured::{Measurement, Mix};
use memtide_core::mempolicy::tune_law::{Advice, Expected};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;
use memtide_linux::fs::node::Weights;
use memtide_linux::fs::topology::Machine;
use memtide_linux::measure::plan::is_near;
use memtide_linux::weight_table::ResetWay;
use serde::Serialize;

/// The document.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Why there is no table, if so.
    pub no_table: Option<String>,
    /// Whether the kernel computes the weights, now.
    pub auto: Option<bool>,
    /// Whose weights these are, if they are not for good.
    pub lent: Option<Lent>,
    /// The nodes with memory, ascending.
    pub nodes: Vec<NodeReport>,
    /// What was computed, if anything.
    pub computed: Option<ComputedReport>,
    /// What was changed, if anything.
    pub change: Option<ChangeReport>,
    /// The measurement, if there is one.
    pub measurement: Option<Measurement>,
}

/// A `memtide run --apply-weights` or a service that has written the table, or a change of it that was cut
/// short.
#[derive(Debug, Serialize)]
pub struct Lent {
    /// It was killed, and what it wrote is left.
    pub killed: bool,
    /// For people.
    pub detail: String,
}

impl Lent {
    /// Of a table that stands so.
    pub fn of(standing: &Standing) -> Option<Lent> {
        let detail = match standing {
            Standing::Free | Standing::Hidden => return None,
            Standing::Lent => "a memtide run or service goes on that has written the weights and \
                               puts them back when it ends"
                .to_owned(),
            Standing::Left(left) => format!(
                "{}{left}; the next run or service, memtide doctor --restore, or any change \
                 here puts it back",
                match left.by {
                    By::Run => "a killed ",
                    By::Change => "",
                }
            ),
        };
        Some(Lent {
            killed: *standing != Standing::Lent,
            detail,
        })
    }
}

#[derive(Debug, Serialize)]
pub struct NodeReport {
    pub id: NodeId,
    pub near: bool,
    /// In force before this call changed anything.
    pub weight_before: Option<u8>,
    /// In force now.
    pub weight: Option<u8>,
    pub computed_weight: Option<u8>,
    pub peak_mbps: Option<u64>,
    pub usable_mbps: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct ComputedReport {
    pub origin: Origin,
    pub mix: Option<Mix>,
    pub advice: AdviceReport,
    /// Nodes to interleave over.
    pub advised_nodes: NodeMask,
    /// Gains up to this are noise.
    pub noise: f64,
    pub expected: ExpectedReport,
    pub near_alone: Option<ExpectedReport>,
    pub one_to_one: ExpectedReport,
    /// Relative to the near nodes alone: 0.38 is 38 % more.
    pub gain_over_near_alone: Option<f64>,
    pub gain_over_one_to_one: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AdviceReport {
    Interleave,
    NearAlone,
    OneKind,
}

#[derive(Debug, Serialize)]
pub struct ExpectedReport {
    pub bandwidth_mbps: u64,
    pub latency_ns: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct ChangeReport {
    pub action: Action,
    pub dry_run: bool,
    pub written: NodeMask,
    pub auto_before: Option<bool>,
    pub auto_after: Option<bool>,
    pub reset_way: Option<ResetWay>,
    /// What a killed memtide had left was put back before.
    pub put_back_first: bool,
}

impl Report {
    /// Puts together what was read, computed and changed.
    pub fn new(
        machine: &Machine,
        before: Option<Weights>,
        computed: Option<&Computed>,
        change: Option<Changed>,
        no_table: Option<String>,
    ) -> Report {
        let after = match &change {
            Some(change) => Some(&change.change.after),
            None => before.as_ref(),
        };
        let topology = &machine.topology;
        let node = |id: NodeId| {
            let of_node =
                |computed: &&Computed| computed.curves.iter().find(|c| c.node == id).cloned();
            let curve = computed.as_ref().and_then(of_node);
            NodeReport {
                id,
                near: topology
                    .node(id)
                    .is_some_and(|node| is_near(node, topology)),
                weight_before: in_force(before.as_ref(), id),
                weight: in_force(after, id),
                computed_weight: computed.and_then(|c| c.weights.get(&id).copied()),
                peak_mbps: curve.as_ref().map(|curve| curve.curve.peak_mbps()),
                usable_mbps: curve.as_ref().map(|curve| curve.curve.usable_mbps()),
            }
        };
        let mut ids = topology.memory_nodes();
        for curve in computed.iter().flat_map(|computed| &computed.curves) {
            ids.insert(curve.node);
        }
        Report {
            no_table,
            lent: None,
            auto: after.and_then(|weights| weights.auto),
            nodes: ids.iter().map(node).collect(),
            computed: computed.map(computed_report),
            change: change.map(change_report),
            measurement: computed.and_then(|computed| computed.measurement.clone()),
        }
    }
}

fn computed_report(computed: &Computed) -> ComputedReport {
    let choice = &computed.choice;
    let expected = &computed.expected;
    let gain = |over: &Expected| {
        let over = over.bandwidth_mbps;
        let gain = expected.bandwidth_mbps as f64 / over as f64 - 1.0;
        (over > 0).then(|| (gain * 1000.0).round() / 1000.0)
    };
    // The kernel's rule does not know better than the law whether far nodes
    // pay, and may itself hold them up.
    let near = choice.near_alone.as_ref();
    let pays = near.is_none_or(|near| {
        expected.bandwidth_mbps as f64 > near.bandwidth_mbps as f64 * (1.0 + computed.noise)
    });
    let advice = match choice.advice {
        Advice::OneKind => AdviceReport::OneKind,
        Advice::Interleave if pays => AdviceReport::Interleave,
        _ => AdviceReport::NearAlone,
    };
    let advised = match (advice, near) {
        (AdviceReport::NearAlone, Some(near)) => near,
        _ => expected,
    };
    ComputedReport {
        origin: computed.origin,
        mix: computed.mix,
        advice,
        advised_nodes: advised.weights.keys().copied().collect(),
        noise: computed.noise,
        gain_over_near_alone: near.and_then(gain),
        gain_over_one_to_one: gain(&choice.one_to_one),
        expected: expected_report(expected),
        near_alone: near.map(expected_report),
        one_to_one: expected_report(&choice.one_to_one),
    }
}

fn expected_report(expected: &Expected) -> ExpectedReport {
    ExpectedReport {
        bandwidth_mbps: expected.bandwidth_mbps,
        latency_ns: expected.latency_ns.map(|ns| (ns * 10.0).round() / 10.0),
    }
}

fn change_report(changed: Changed) -> ChangeReport {
    let change = changed.change;
    ChangeReport {
        action: changed.action,
        dry_run: changed.dry_run,
        written: change.written.into_iter().collect(),
        auto_before: change.before.auto,
        auto_after: change.after.auto,
        reset_way: changed.way,
        put_back_first: changed.put_back_first,
    }
}
