//! A reload: the configuration is read again, and followed.
//!
//! The new configuration is taken whole or not at all. One that is wrong, or that this machine cannot
//! follow, leaves the old one in force. The run goes on with other classes, shares, rates and the like, and
//! has forgotten nothing. Where sources change, or what is hot, or who is balanced, or nodes came or went,
//! the run ends in order, everything that was lent is put back, and another run begins: what the loop has
//! learned is lost then, and only then. What can be tried of the next run is tried before the old one
//! ends. Classes that are paused stay so.

use super::both::{self, Both};
use super::fitting::{fits, group_is_there, names, nodes};
use super::{Service, loaded};
use crate::shared::configuration::{Configuration, Settings};
use crate::shared::control::{Asked, Outcome};
use crate::shared::control_args::ControlArgs;
use crate::shared::foreground::Ended;
use crate::shared::metrics::{MetricsArgs, Names};
use crate::shared::nodes_watch;
use crate::shared::outside::causes;
use crate::shared::tiering;
use anyhow::Context as _;
use memtide_core::access;
use memtide_core::topology::Topology;
use memtide_core::units::Millis;
use memtide_loop::report::{Event, Reporter};
use std::time::SystemTime;

/// A run that may have to end for a reload.
pub struct Running {
    /// The time since its start.
    pub now: Millis,
    /// What it listens to.
    pub held: Vec<access::Source>,
    /// The machine's nodes as it knows them.
    pub tiers: String,
}

/// What came of looking at the configuration again.
pub enum Looked {
    /// Nothing was taken, for this reason.
    Refused(String),
    /// It is in force.
    Taken(Vec<String>),
    /// The run can go on by it.
    GoesOn(Box<Configuration>, Vec<String>),
    /// It needs another run.
    Another(Box<Configuration>, Vec<String>),
}

/// Said when a run ended for a reload.
const ANOTHER_RUN: &str = "another run has begun, and its counters begin at zero";

/// Pauses the classes of these names that there still are, and says so.
fn pause_again(both: &mut Both, paused: &[String]) -> Vec<String> {
    let still = paused.iter().filter(|class| both.pause(class));
    still
        .map(|class| format!("class {class} is still paused"))
        .collect()
}

impl Service<'_> {
    /// Follows the files as they are now; the run that goes on, or the one that has begun instead.
    ///
    /// # Errors
    /// The old run has ended, and none can begin.
    pub fn reload(&mut self, mut both: Both) -> anyhow::Result<Both> {
        self.manager.reloading();
        let asked = self.control.reloading();
        let tiering = &mut both.tiering;
        let running = Running {
            now: tiering.now(),
            held: tiering.held(),
            tiers: tiering::tiers(tiering.nodes()),
        };
        let outcome = match self.look_again(&running) {
            Looked::Refused(why) => Err(why),
            Looked::Taken(changes) => Ok(changes),
            Looked::GoesOn(next, changes) => self.go_on(&mut both, *next, changes),
            Looked::Another(next, changes) => match self.begin_again(both, *next, changes) {
                Ok((begun, outcome)) => {
                    both = begun;
                    outcome
                }
                Err(error) => {
                    self.control.fails(&causes(&error));
                    return Err(error);
                }
            },
        };
        self.reloaded(asked, outcome);
        self.look_at_pagers();
        Ok(both)
    }

    /// Notes what came of a reload just now, for all who are told.
    pub fn reloaded(&mut self, asked: Asked, outcome: Outcome) {
        let now = SystemTime::now();
        match outcome.is_ok() {
            true => self.loaded = loaded(now),
            false => self.loaded.successful = false,
        }
        self.control.reloaded(asked, outcome, now);
    }

    /// Reads the configuration again, says what changed, and follows what the run goes on with. The
    /// rest is returned.
    pub fn look_again(&mut self, running: &Running) -> Looked {
        let now = running.now;
        let next = match self.source.read() {
            Ok(next) => next,
            Err(error) => return Looked::Refused(self.refused(now, &error)),
        };
        let mut changes = self.in_force.changes(&next);
        let (old, new) = (&self.in_force.settings, &next.settings);
        let nodes = match nodes(self.context, &next) {
            Ok(nodes) => nodes,
            Err(error) => return Looked::Refused(self.refused(now, &error)),
        };
        let (was, is) = (&running.tiers, tiering::tiers(&nodes));
        let same_nodes = *was == is;
        if !same_nodes && old.tier.tiers == new.tier.tiers {
            changes.push(nodes_watch::changed(was, &is));
        }
        let same_run = same_nodes
            && (&old.select, &old.tier, &old.class) == (&new.select, &new.tier, &new.class)
            && old.balance == new.balance
            && both::same_spreading(old, new);
        let goes_on = same_nodes && both::goes_on(&nodes, old, new);
        let opened = (!goes_on).then_some(&running.held[..]);
        let same_work = same_run && old.weights == new.weights;
        if !same_work && let Err(error) = self.ready_for(&next, &nodes, opened) {
            return Looked::Refused(self.refused(now, &error));
        }
        if old.control != new.control
            && let Err(error) = group_is_there(self.context, &next)
        {
            return Looked::Refused(self.refused(now, &error));
        }
        if changes.is_empty() {
            self.say(now, "reload: nothing has changed");
        }
        if let Err(error) = self.have_as_wanted(&next) {
            self.have_as_before();
            return Looked::Refused(self.refused(now, &error));
        }
        match (same_run, goes_on) {
            (true, _) => {}
            (false, true) => return Looked::GoesOn(Box::new(next), changes),
            (false, false) => return Looked::Another(Box::new(next), changes),
        }
        self.taken(now, &changes);
        self.in_force = next;
        Looked::Taken(changes)
    }

    fn taken(&mut self, now: Millis, changes: &[String]) {
        for change in changes {
            self.say(now, &format!("reload: {change}"));
        }
    }

    /// Has the run go on by `next`, with these changes.
    fn go_on(&mut self, both: &mut Both, next: Configuration, changes: Vec<String>) -> Outcome {
        let now = both.tiering.now();
        let Settings {
            tier,
            class,
            select,
            ..
        } = &next.settings;
        let whom = (class, select.tiered());
        // Read anew: a part of a class's share may be of more memory than there was.
        let followed = nodes(self.context, &next)
            .and_then(|nodes| both.tiering.follow(self.context, &nodes, tier, whom));
        if let Err(error) = followed {
            self.have_as_before();
            return Err(self.refused(now, &error));
        }
        self.taken(now, &changes);
        self.in_force = next;
        Ok(changes)
    }

    /// Whether a run can go on by `next`, or begin when one that listens to `held` has ended.
    fn ready_for(
        &self,
        next: &Configuration,
        nodes: &Topology,
        held: Option<&[access::Source]>,
    ) -> anyhow::Result<()> {
        let settings = &next.settings;
        both::check(self.context, nodes, settings)?;
        fits(self.context, next, nodes)?;
        match held.filter(|_| both::rests(nodes, settings).is_none()) {
            Some(held) => tiering::can_open(self.context, nodes, &settings.tier, held),
            None => Ok(()),
        }
    }

    /// Ends the run and begins one of `next`, with these changes; of the old configuration if that
    /// fails, and why it did. Classes that were paused are paused in the new run.
    fn begin_again(
        &mut self,
        both: Both,
        next: Configuration,
        mut changes: Vec<String>,
    ) -> anyhow::Result<(Both, Outcome)> {
        let why = Ended::Reload.to_string();
        let (status, put_back) = both.finish(&mut self.printer, &why);
        put_back?;
        let paused = tiering::paused(&status);
        let old = std::mem::replace(&mut self.in_force, next);
        let error = match self.begin() {
            Ok(mut both) => {
                changes.push(ANOTHER_RUN.to_owned());
                changes.extend(pause_again(&mut both, &paused));
                self.taken(Millis(0), &changes);
                return Ok((both, Ok(changes)));
            }
            Err(error) => error,
        };
        self.in_force = old;
        self.have_as_before();
        let mut both = self.begin()?;
        let error = error.context(format!("by the old configuration {ANOTHER_RUN}"));
        let why = self.refused(Millis(0), &error);
        let paused = pause_again(&mut both, &paused);
        self.taken(Millis(0), &paused);
        Ok((both, Err(why)))
    }

    /// The machine's nodes, if a run by `configuration` can begin on them.
    pub fn nodes_for(&self, configuration: &Configuration) -> anyhow::Result<Topology> {
        let nodes = nodes(self.context, configuration)?;
        both::check(self.context, &nodes, &configuration.settings)?;
        fits(self.context, configuration, &nodes)?;
        Ok(nodes)
    }

    /// Has the figures and the socket where `next` wants them, and the kernel's table as it does.
    ///
    /// # Errors
    /// One of them cannot be had.
    fn have_as_wanted(&mut self, next: &Configuration) -> anyhow::Result<()> {
        self.table_by(next)?;
        self.figures_at(&next.settings.metrics, &names(next))?;
        self.socket_at(&next.settings.control)
    }

    /// The same where the configuration in force wants them. What cannot be had again is said and left
    /// out: the loop goes on without it.
    pub fn have_as_before(&mut self) {
        let Settings {
            metrics, control, ..
        } = self.in_force.settings.clone();
        if let Err(error) = self.table_by(&self.in_force.clone())
            && self.table.weights().is_none()
        {
            let what = format!("goes on without its interleave weights: {}", causes(&error));
            self.printer.notice(&what);
        }
        let names = names(&self.in_force);
        if let Err(error) = self.figures_at(&metrics, &names) {
            let what = format!("goes on without metrics: {}", causes(&error));
            self.printer.notice(&what);
        }
        if let Err(error) = self.socket_at(&control) {
            self.control.leave();
            let what = format!("goes on without a control socket: {}", causes(&error));
            self.printer.notice(&what);
        }
    }

    fn figures_at(&mut self, args: &MetricsArgs, names: &Names) -> anyhow::Result<()> {
        if self.figures.as_ref() == Some(args) {
            return Ok(());
        }
        // Where this fails, some places may be the new ones.
        self.figures = None;
        let metrics = self.metrics.as_mut().context("no metrics")?;
        self.usual.during(|| metrics.follow(args, names))?;
        self.figures = Some(args.clone());
        self.announce();
        Ok(())
    }

    fn socket_at(&mut self, args: &ControlArgs) -> anyhow::Result<()> {
        let control = &mut self.control;
        self.usual.during(|| control.follow(args))
    }

    fn say(&mut self, now: Millis, text: &str) {
        let text = text.to_owned();
        self.printer.event(now, Event::Notice { text });
    }

    /// Says that nothing was taken, and returns why.
    fn refused(&mut self, now: Millis, error: &anyhow::Error) -> String {
        let why = causes(error);
        let text = format!("reload refused, the old configuration is in force: {why}");
        self.manager.says(&text);
        self.say(now, &text);
        why
    }
}
