//! One run after the other, as nodes of memory come and go.
//!
//! A run knows the machine as it was when it began. When other nodes have memory it ends as any other does, and the
//! next one learns anew what is hot. While fewer than two tiers are left, there is nothing to run: it is waited for
//! nodes, a signal, the end of the time or of the processes. A journal is of one machine, so who writes one has one
//! run.

use super::Args;
use crate::shared::context::Context;
use crate::shared::foreground::{Ended, Foreground};
use crate::shared::metrics::Metrics;
use crate::shared::nodes_watch::{self, NodesWatch};
use crate::shared::outside::causes;
use crate::shared::report::Printer;
use crate::shared::tiering::{self, Opened, Watch, print};
use memtide_core::topology::Topology;
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

/// Raises a flag when nodes of memory came or went.
struct Nodes<'a> {
    watch: &'a NodesWatch<'a>,
    others: &'a AtomicBool,
}

impl Watch for Nodes<'_> {
    fn stands(&self, _: &Status, _: &Printer) {
        self.watch.tell(self.others);
    }
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
            let Some(nodes) = self.next(&mut watch) else {
                return Ok(());
            };
            let is = tiering::tiers(&nodes);
            self.printer.notice(&match was == is {
                true => format!("the nodes are {is} again"),
                false => nodes_watch::changed(&was, &is),
            });
            opened = open(self.context, nodes, &self.args.options)?;
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

    /// The nodes of the next run, of which `watch` is the watch then; none where something else came first.
    fn next(&mut self, watch: &mut NodesWatch<'a>) -> Option<Topology> {
        let mut said = None;
        loop {
            *watch = NodesWatch::new(&self.context.root);
            let nodes = tiering::nodes(self.context, &self.args.options, "");
            let fit = nodes.and_then(|nodes| tiering::has_tiers(&nodes).map(|()| nodes));
            let why = match fit {
                Ok(nodes) => return Some(nodes),
                Err(why) => causes(&why),
            };
            if said.as_ref() != Some(&why) {
                let text = format!("nothing is tiered: {why}; {}", nodes_watch::LATER);
                self.printer.notice(&text);
                said = Some(why);
            }
            if let Some(ended) = self.wait(watch) {
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
