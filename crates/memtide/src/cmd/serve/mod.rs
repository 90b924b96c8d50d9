//! `memtide serve`: what `memtide tier` does, as a service.
//!
//! One process in the foreground, meant for systemd, over the same loop. SIGHUP has it read its
//! configuration again, SIGINT and SIGTERM end it; whatever way it ends, what was lent is put back.
//!
//! # A reload
//!
//! The new configuration is taken whole or not at all. One that is wrong, or that this machine cannot
//! follow, leaves the old one in force. Where what is tiered or how changes, the run ends in order,
//! everything that was lent is put back, and another run begins: what the loop has learned is lost then,
//! and only then.

mod args;
mod manager;
mod watchers;

pub use args::ServeArgs as Args;

use crate::shared::configuration::{Configuration, Files, Settings};
use crate::shared::context::{BadUsage, Context};
use crate::shared::control::Control;
use crate::shared::control::standing::Setup;
use crate::shared::control_args::ControlArgs;
use crate::shared::foreground::{Ended, Foreground};
use crate::shared::metrics::{Metrics, MetricsArgs};
use crate::shared::outside::causes;
use crate::shared::report::Printer;
use crate::shared::selection::of_cgroup_or_all;
use crate::shared::signals;
use crate::shared::spread::page_size;
use crate::shared::tiering::{self, Tiering, print};
use anyhow::{Context as _, bail};
use manager::Manager;
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, PageSize};
use memtide_linux::priority::{self, Usual};
use memtide_loop::options::fast_bytes;
use memtide_loop::report::{Event, Reporter};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use watchers::Watchers;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let source = Source {
        files: Files::new(args.config.as_deref(), &context.root),
        dry_run: args.dry_run,
    };
    if args.check {
        let (configuration, files) = lasting(source.files.read())?;
        let Settings { tier, class, .. } = &configuration.settings;
        if tier.tiers.is_some() || !class.is_empty() {
            let nodes = tiering::nodes(context, tier);
            lasting(fits(context, &configuration, &lasting(nodes)?))?;
        }
        context.print(&match files {
            0 => format!(
                "{}: not there, the defaults are valid\n",
                source.files.name()
            ),
            1 => format!("{}: valid\n", source.files.name()),
            more => format!("{}: valid, {more} files in all\n", source.files.name()),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let manager = Manager::new();
    let served = serve(source, context, &manager);
    if let Err(error) = &served {
        manager.says(&causes(error));
    }
    served
}

/// What a second start cannot change is bad usage, whose status the unit does not answer with a restart.
fn lasting<T>(result: anyhow::Result<T>) -> anyhow::Result<T> {
    result.map_err(|error| BadUsage(causes(&error)).into())
}

fn serve(source: Source, context: &Context, manager: &Manager) -> anyhow::Result<ExitCode> {
    // Before the rest: a wish for a reload must not end what only begins.
    let (signal, reload) = signals::hear_and_reload()?;
    let configuration = lasting(source.read())?;
    // Nodes may be late, so that tiers by hand fit at the next start.
    let nodes = tiering::nodes(context, &configuration.settings.tier)?;
    lasting(tiering::check(
        context,
        &nodes,
        &configuration.settings.tier,
    ))?;
    lasting(fits(context, &configuration, &nodes))?;
    let page = page_size()?;
    let Settings { tier, class, .. } = &configuration.settings;
    let opened = tiering::open(context, nodes, tier, class)?;
    // Before the priority: who asks for metrics has none.
    let metrics = Metrics::begin(&configuration.settings.metrics, "tier", page)?;
    let control = &configuration.settings.control;
    let control = Control::begin(control, &context.root, Arc::clone(&reload))?;
    let mut service = Service {
        source,
        context,
        manager,
        signal,
        reload,
        page,
        usual: priority::ask(),
        printer: Printer::new(context.json, page),
        metrics: Some(metrics),
        control,
        in_force: configuration,
    };
    service.announce();
    let selection = service.selection();
    let tiering = opened.begin(context, selection, None, &mut service.printer)?;
    service.run(tiering)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the shares of classes are ones that this machine can give.
fn fits(context: &Context, configuration: &Configuration, nodes: &Topology) -> anyhow::Result<()> {
    if configuration.settings.class.is_empty() {
        return Ok(());
    }
    if memtide_linux::fs::cgroup::mount(&context.root)?.is_none() {
        bail!("classes need cgroups, and no cgroup2 file system is mounted; mount one");
    }
    configuration.fits(fast_bytes(nodes))
}

/// Where the configuration comes from: files, and the command line over them.
struct Source {
    files: Files,
    dry_run: bool,
}

impl Source {
    fn read(&self) -> anyhow::Result<Configuration> {
        let (mut configuration, _) = self.files.read()?;
        configuration.settings.tier.dry_run |= self.dry_run;
        Ok(configuration)
    }
}

/// The service as it runs.
struct Service<'a> {
    source: Source,
    context: &'a Context,
    manager: &'a Manager,
    signal: Arc<AtomicUsize>,
    reload: Arc<AtomicBool>,
    page: PageSize,
    /// The priority of what is not the loop.
    usual: Usual,
    printer: Printer,
    /// None while they are changed.
    metrics: Option<Metrics>,
    control: Control,
    in_force: Configuration,
}

/// What came of looking at the configuration again.
enum Looked {
    /// Nothing was taken, for this reason.
    Refused(String),
    /// It is in force.
    Taken(Vec<String>),
    /// It needs another run.
    Another(Box<Configuration>, Vec<String>),
}

impl Service<'_> {
    /// Turns until a signal wants the end, over all reloads.
    fn run(&mut self, mut tiering: Tiering) -> anyhow::Result<()> {
        loop {
            let status = tiering.status();
            let metrics = self.metrics.as_ref().context("no metrics")?;
            metrics.tell(&mut self.printer, &status);
            let Settings { select, tier, .. } = &self.in_force.settings;
            let watchers = Watchers {
                manager: self.manager,
                control: &self.control,
                setup: Setup::of(tiering.source(), tier, select.cgroup.as_deref()),
                nodes: tiering.nodes().clone(),
                page: self.page,
            };
            watchers.tell_control(&status);
            self.manager.ready();
            let foreground = Foreground {
                signal: &self.signal,
                reload: Some(&self.reload),
                limit: None,
                ends_with_processes: false,
            };
            let end = tiering.work(&foreground, &mut self.printer, metrics, &watchers);
            if !matches!(end, Ok(Ended::Reload)) {
                return self.end(tiering, end);
            }
            self.manager.reloading();
            let asked = self.control.reloading();
            let outcome = match self.look_again(tiering.now())? {
                Looked::Refused(why) => Err(why),
                Looked::Taken(changes) => Ok(changes),
                Looked::Another(next, changes) => {
                    let began = self.begin_again(tiering, *next)?;
                    tiering = began.0;
                    began.1.map(|()| changes)
                }
            };
            self.control.reloaded(asked, outcome);
        }
    }

    /// Puts everything back.
    fn end(&mut self, tiering: Tiering, end: anyhow::Result<Ended>) -> anyhow::Result<()> {
        self.manager.stopping();
        let (status, put_back) = tiering.finish(&mut self.printer);
        if let Some(metrics) = self.metrics.take() {
            metrics.end(&mut self.printer, &status);
        }
        let why = end.as_ref().map_or("failed".to_owned(), Ended::to_string);
        print::summary(&mut self.printer, &status, &why);
        put_back?;
        end.map(|_| ())
    }

    /// Reads the configuration again, says what changed, and follows what the run goes on with. The
    /// rest is returned.
    fn look_again(&mut self, now: Millis) -> anyhow::Result<Looked> {
        let next = match self.source.read() {
            Ok(next) => next,
            Err(error) => return Ok(Looked::Refused(self.refused(now, &error))),
        };
        let changes = self.in_force.changes(&next);
        if changes.is_empty() {
            self.say(now, "reload: nothing has changed");
        }
        let (old, new) = (&self.in_force.settings, &next.settings);
        let same_run = (&old.select, &old.tier, &old.class) == (&new.select, &new.tier, &new.class);
        if !same_run && let Err(error) = self.nodes_for(&next) {
            return Ok(Looked::Refused(self.refused(now, &error)));
        }
        if places(old) != places(new)
            && let Err(error) = self.tell_elsewhere(&next.settings)
        {
            let old = self.in_force.settings.clone();
            self.tell_elsewhere(&old)?;
            return Ok(Looked::Refused(self.refused(now, &error)));
        }
        for change in &changes {
            self.say(now, &format!("reload: {change}"));
        }
        if !same_run {
            return Ok(Looked::Another(Box::new(next), changes));
        }
        self.in_force = next;
        Ok(Looked::Taken(changes))
    }

    /// Ends the run and begins one of `next`; of the old configuration if that fails, and why it did.
    fn begin_again(
        &mut self,
        tiering: Tiering,
        next: Configuration,
    ) -> anyhow::Result<(Tiering, Result<(), String>)> {
        let (status, put_back) = tiering.finish(&mut self.printer);
        let why = Ended::Reload.to_string();
        print::summary(&mut self.printer, &status, &why);
        put_back?;
        let old = std::mem::replace(&mut self.in_force, next);
        let error = match self.begin() {
            Ok(tiering) => return Ok((tiering, Ok(()))),
            Err(error) => error,
        };
        let places_differ = places(&old.settings) != places(&self.in_force.settings);
        self.in_force = old;
        if places_differ {
            let settings = self.in_force.settings.clone();
            self.tell_elsewhere(&settings)?;
        }
        let why = self.refused(Millis(0), &error);
        Ok((self.begin()?, Err(why)))
    }

    /// A run by the configuration in force.
    fn begin(&mut self) -> anyhow::Result<Tiering> {
        let nodes = self.nodes_for(&self.in_force)?;
        let Settings { tier, class, .. } = &self.in_force.settings;
        let opened = tiering::open(self.context, nodes, tier, class)?;
        let selection = self.selection();
        opened.begin(self.context, selection, None, &mut self.printer)
    }

    /// The machine's nodes, if a run by `configuration` can begin on them.
    fn nodes_for(&self, configuration: &Configuration) -> anyhow::Result<Topology> {
        let tier = &configuration.settings.tier;
        let nodes = tiering::nodes(self.context, tier)?;
        tiering::check(self.context, &nodes, tier)?;
        fits(self.context, configuration, &nodes)?;
        Ok(nodes)
    }

    fn selection(&self) -> memtide_linux::live::processes::Selection {
        of_cgroup_or_all(self.in_force.settings.select.cgroup.as_deref())
    }

    /// Has the figures, and the socket, where `settings` want them. The old places are left first: they
    /// may be the new ones.
    fn tell_elsewhere(&mut self, settings: &Settings) -> anyhow::Result<()> {
        self.metrics = None;
        let begin = || Metrics::begin(&settings.metrics, "tier", self.page);
        self.metrics = Some(self.usual.during(begin)?);
        self.announce();
        let control = &mut self.control;
        self.usual.during(|| control.follow(&settings.control))
    }

    fn announce(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.announce(&mut self.printer);
        }
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

/// Where those are who watch and ask.
fn places(settings: &Settings) -> (&MetricsArgs, &ControlArgs) {
    (&settings.metrics, &settings.control)
}
