//! One run after the other, as nodes of memory come and go.
//!
//! A run knows the machine as it was when it began. When other nodes have memory it ends as any other does, and the
//! next one learns anew what is hot. While fewer than two tiers are left, or no other run can begin, it is waited for
//! nodes, a signal, the end of the time or of the processes. A node that came and is in none of the tiers given by
//! hand changes nothing. A journal is of one machine, so who writes one has one run.

use super::Args;
use crate::shared::context::Context;
use crate::shared::foreground::{Ended, Foreground};
use crate::shared::metrics::Metrics;
use crate::shared::nodes_watch::{self, NodesWatch};
use crate::shared::outside::causes;
use crate::shared::report::Printer;
use crate::shared::tiering::{self, Opened, Watch, print};
use memtide_core::topology::Topology;
use memtide_core::units::NodeId;
use memtide_linux::fs::node;
use memtide_linux::live::processes::Selection;
use memtide_loop::options::{Classes, TierOptions, Tiered};
use memtide_loop::report::Status;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_secs(1);
/// Why a run ends that another one follows.
const NODES: &str = "nodes of memory came or went";

/// Opens the sources for everybody who is selected.
pub fn open(context: &Context, nodes: Topology, options: &TierOptions) -> anyhow::Result<Opened> {
    let whom = (&Classes::new(), Tiered::default());
    tiering::open(context, nodes, options, whom, None, None)
}

/// Raises a flag when nodes of memory came or went, and this run cannot go on or another one could begin.
struct Nodes<'a> {
    watch: &'a NodesWatch<'a>,
    others: &'a AtomicBool,
    context: &'a Context,
    options: &'a TierOptions,
    of_run: Vec<NodeId>,
}

impl Nodes<'_> {
    /// Whether all nodes of the run have memory still.
    fn are_there(&self) -> bool {
        let now = node::sets(&self.context.root).map(|sets| sets.has_memory.unwrap_or(sets.online));
        now.is_ok_and(|now| self.of_run.iter().all(|node| now.contains(node)))
    }
}

impl Watch for Nodes<'_> {
    fn stands(&self, _: &Status, _: &Printer) {
        let fit = || tiering::nodes(self.context, self.options, "").is_ok();
        if self.watch.are_others() && (fit() || !self.are_there()) {
            self.others.store(true, Ordering::Relaxed);
        }
    }
}

/// The nodes that hold memory.
fn with_memory(nodes: &Topology) -> Vec<NodeId> {
    let nodes = nodes.nodes().iter().filter(|node| node.has_memory());
    nodes.map(|node| node.id).collect()
}

/// What all runs have in common.
pub struct Runs<'a> {
    context: &'a Context,
    args: &'a Args,
    signal: &'a AtomicUsize,
    began: Instant,
    selection: Selection,
    printer: Printer,
    /// How the last run ended.
    status: Option<Status>,
}

impl<'a> Runs<'a> {
    /// None has begun.
    pub fn new(
        context: &'a Context,
        args: &'a Args,
        signal: &'a AtomicUsize,
        selection: Selection,
        printer: Printer,
    ) -> Runs<'a> {
        Runs {
            context,
            args,
            signal,
            began: Instant::now(),
            selection,
            printer,
            status: None,
        }
    }

    /// Runs until something other than nodes ends it.
    pub fn all(
        &mut self,
        mut opened: Opened,
        mut watch: NodesWatch<'a>,
        metrics: &Metrics,
    ) -> anyhow::Result<()> {
        loop {
            let was = tiering::tiers(opened.nodes());
            let ended = self.one(opened, &watch, metrics)?;
            if ended != Ended::Reload || self.args.journal.is_some() {
                return Ok(());
            }
            let Some(next) = self.next(&mut watch) else {
                return Ok(());
            };
            opened = next;
            let is = tiering::tiers(opened.nodes());
            self.printer.notice(&match was == is {
                true => format!("the nodes are {is} again"),
                false => nodes_watch::changed(&was, &is),
            });
        }
    }

    /// Tells metrics how it ended.
    pub fn finish(mut self, metrics: Metrics) {
        if let Some(status) = &self.status {
            metrics.end(&mut self.printer, status);
        }
    }

    /// What is left of the time, if there is an end to it.
    fn left(&self) -> Option<Duration> {
        let limit = self.args.duration?;
        Some(limit.saturating_sub(self.began.elapsed()))
    }

    /// Runs, until others have memory than those of `watch` or anything else ends it.
    fn one(
        &mut self,
        opened: Opened,
        watch: &NodesWatch<'_>,
        metrics: &Metrics,
    ) -> anyhow::Result<Ended> {
        let limit = self.left();
        let journal = self.args.journal.as_deref();
        let printer = &mut self.printer;
        let mut tiering = opened.begin(self.context, self.selection.clone(), journal, printer)?;
        metrics.tell(printer, &tiering.status());
        let others = AtomicBool::new(false);
        let foreground = Foreground {
            signal: self.signal,
            reload: Some(&others),
            limit,
            ends_with_processes: !self.args.selection.pid.is_empty(),
        };
        let nodes = Nodes {
            watch,
            others: &others,
            context: self.context,
            options: &self.args.options,
            of_run: with_memory(tiering.nodes()),
        };
        let end = tiering.work(&foreground, printer, metrics, &nodes);
        self.selection = tiering.selection();
        // What was done until now must not be lost over an error.
        let (status, put_back) = tiering.finish(printer);
        let why = match &end {
            Ok(Ended::Reload) => NODES.to_owned(),
            Ok(ended) => ended.to_string(),
            Err(_) => "failed".to_owned(),
        };
        print::summary(printer, &status, &why);
        self.status = Some(status);
        put_back?;
        end
    }

    /// What the next run needs, of whose nodes `watch` is the watch then; none where something else came first.
    fn next(&mut self, watch: &mut NodesWatch<'a>) -> Option<Opened> {
        let mut said = None;
        loop {
            // A minute later something other than nodes may be different.
            let again = Instant::now() + nodes_watch::AGAIN;
            let (context, options) = (self.context, &self.args.options);
            *watch = NodesWatch::new(&context.root);
            let nodes = tiering::nodes(context, options, "");
            let fit = nodes.and_then(|nodes| tiering::has_tiers(&nodes).map(|()| nodes));
            let why = match fit.and_then(|nodes| open(context, nodes, options)) {
                Ok(opened) => return Some(opened),
                Err(why) => causes(&why),
            };
            if said.as_ref() != Some(&why) {
                let text = format!("nothing is tiered: {why}; {}", nodes_watch::LATER);
                self.printer.notice(&text);
                said = Some(why);
            }
            if let Some(ended) = self.wait(&watch.clone().again_at(again)) {
                self.printer.notice(&ended.to_string());
                return None;
            }
        }
    }

    /// Waits until others have memory than those of `watch`; what came first otherwise.
    fn wait(&self, watch: &NodesWatch<'_>) -> Option<Ended> {
        while !watch.are_others() {
            match self.signal.load(Ordering::Relaxed) {
                0 => {}
                number => return Some(Ended::Signal(number)),
            }
            if self.left().is_some_and(|left| left.is_zero()) {
                return Some(Ended::Time);
            }
            if !self.selection.lives(&self.context.root) {
                return Some(Ended::Processes);
            }
            std::thread::sleep(PAUSE);
        }
        None
    }
}
