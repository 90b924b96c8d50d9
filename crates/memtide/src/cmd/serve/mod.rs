//! `memtide serve`: what `memtide tier` does, as a service, and what `memtide balance` does for whom that
//! is wanted.
//!
//! One process in the foreground, meant for systemd, over the same loop. SIGHUP has it read its
//! configuration again, SIGINT and SIGTERM end it; whatever way it ends, what was lent is put back. So is
//! the kernel's table of interleave weights, which the service holds over all its runs ([`table`]).

mod args;
mod both;
mod fitting;
mod manager;
mod reload;
mod table;
#[cfg(test)]
mod tests;
mod watchers;

pub use args::ServeArgs as Args;

use crate::shared::configuration::{Configuration, Files, Settings};
use crate::shared::context::{BadUsage, Context};
use crate::shared::control::Control;
use crate::shared::control::standing::Setup;
use crate::shared::foreground::{Ended, Foreground};
use crate::shared::lent_weights;
use crate::shared::metrics::{Loaded, Metrics, MetricsArgs};
use crate::shared::nodes_watch::{self, NodesWatch};
use crate::shared::outside::causes;
use crate::shared::pagers::Pagers;
use crate::shared::pagers_options::Show;
use crate::shared::report::Printer;
use crate::shared::signals;
use crate::shared::spread::page_size;
use anyhow::Context as _;
use both::Both;
use fitting::{fits, folders_are_there, group_is_there, names, nodes};
use manager::Manager;
use memtide_core::units::PageSize;
use memtide_linux::live::LiveWorld;
use memtide_linux::open_files;
use memtide_linux::priority::{self, Usual};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use table::Table;
use watchers::Watchers;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let source = Source {
        files: Files::new(args.config.as_deref(), &context.root),
        dry_run: args.dry_run,
    };
    if args.check {
        if context.json {
            let why = "--check answers by its exit status and one line of text; leave --json out";
            return Err(BadUsage(why.to_owned()).into());
        }
        let (configuration, files) = lasting(source.files.read())?;
        let Settings { tier, class, .. } = &configuration.settings;
        lasting(group_is_there(context, &configuration))?;
        lasting(folders_are_there(context, &configuration))?;
        lasting(table::wanted(context, &configuration))?;
        if tier.tiers.is_some() || !class.is_empty() {
            let nodes = nodes(context, &configuration);
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
    lasting(group_is_there(context, &configuration))?;
    // Before the nodes: what comes from now on is seen.
    let nodes_watch = NodesWatch::new(&context.root);
    // Nodes may be late, so that what is said of them fits at the next start.
    let nodes = nodes(context, &configuration)?;
    lasting(both::check(context, &nodes, &configuration.settings))?;
    let fit = fits(context, &configuration, &nodes)
        .and_then(|()| table::wanted(context, &configuration).map(drop));
    match nodes_watch::may_come(&context.root) {
        true => fit?,
        false => lasting(fit)?,
    }
    let page = page_size()?;
    // Before what only one service can have: a second one is told that it is the second.
    LiveWorld::stay_off_fast_memory(&nodes);
    let control = &configuration.settings.control;
    let control = Control::begin(control, &context.root, Arc::clone(&reload))?;
    let opened = both::open(context, nodes, &configuration.settings)?;
    // Before the priority: who asks for metrics has none.
    let figures = configuration.settings.metrics.clone();
    let metrics = Metrics::begin(&figures, &names(&configuration), "tier", page)?;
    let mut service = Service {
        source,
        context,
        manager,
        signal,
        reload,
        page,
        // Its thread is not the loop's either.
        printer: Printer::new(context.json, page),
        usual: priority::ask(),
        metrics: Some(metrics),
        figures: Some(figures),
        table: Table::default(),
        pagers: Pagers::default(),
        control,
        loaded: loaded(SystemTime::now()),
        in_force: configuration,
    };
    service.announce();
    service.begin_table()?;
    service.look_at_pagers();
    let settings = &service.in_force.settings;
    let both = opened.begin(context, settings, &mut service.printer)?;
    service.run(both, nodes_watch)?;
    Ok(ExitCode::SUCCESS)
}

/// Where the configuration comes from: files, and the command line over them.
struct Source {
    files: Files,
    dry_run: bool,
}

impl Source {
    fn read(&self) -> anyhow::Result<Configuration> {
        let (mut configuration, _) = self.files.read()?;
        if self.dry_run {
            configuration.settings.tier.dry_run = true;
            configuration.settings.balance.dry_run = true;
            configuration.settings.weights.dry_run = true;
            // A look at what the service would do, perhaps beside it: it keeps its socket and the
            // places of its figures, and nobody could ask this one what pagers do.
            configuration.settings.control.enabled = false;
            configuration.settings.metrics = MetricsArgs::default();
            configuration.settings.pagers.show = Show::Nothing;
        }
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
    /// None at the end.
    metrics: Option<Metrics>,
    /// Where they are, unless they could not be had there.
    figures: Option<MetricsArgs>,
    table: Table,
    /// Over all runs, as the table is.
    pagers: Pagers,
    control: Control,
    loaded: Loaded,
    in_force: Configuration,
}

/// What is in force was taken at that time.
fn loaded(at: SystemTime) -> Loaded {
    Loaded {
        taken: at.duration_since(UNIX_EPOCH).unwrap_or_default(),
        successful: true,
    }
}

impl<'a> Service<'a> {
    /// Turns until a signal wants the end, over all reloads.
    fn run(&mut self, mut both: Both, mut nodes_watch: NodesWatch<'a>) -> anyhow::Result<()> {
        let root = &self.context.root;
        open_files::ask();
        loop {
            let Both {
                tiering,
                balancing,
                spreading,
            } = &mut both;
            tiering.tell_while_surveying(manager::still_alive);
            let status = tiering.status();
            let rests = tiering.rests().map(str::to_owned);
            let metrics = self.metrics.as_ref().context("no metrics")?;
            metrics.tell_of_configuration(self.loaded);
            metrics.tell(&mut self.printer, &status);
            let Settings { select, tier, .. } = &self.in_force.settings;
            let watchers = Watchers {
                manager: self.manager,
                control: &self.control,
                metrics,
                balancing,
                spreading,
                pagers: &self.pagers,
                table: self.table.weights(),
                setup: Setup::of(&tiering.source(), tier, select.cgroup.as_deref()),
                rests: rests.as_deref(),
                nodes: tiering.nodes().clone(),
                nodes_watch: &nodes_watch,
                reload: &self.reload,
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
                return self.end(both, end);
            }
            let others = nodes_watch.are_others() || nodes_watch.waits();
            // What comes from now on is seen.
            nodes_watch = NodesWatch::new(root);
            both = self.reload(both)?;
            if others && !self.loaded.successful {
                nodes_watch = nodes_watch.again_at(Instant::now() + nodes_watch::AGAIN);
            }
        }
    }

    /// Puts everything back.
    fn end(&mut self, both: Both, end: anyhow::Result<Ended>) -> anyhow::Result<()> {
        self.manager.stopping();
        self.pagers.ends();
        let why = end.as_ref().map_or("failed".to_owned(), Ended::to_string);
        let (status, put_back) = both.finish(&mut self.printer, &why);
        if let Some(metrics) = self.metrics.take() {
            metrics.end(&mut self.printer, &status);
        }
        let table = self.table.give_back();
        if let Ok(Some(text)) = &table {
            self.printer.notice(text);
        }
        put_back?;
        table?;
        end.map(|_| ())
    }

    /// A run by the configuration in force.
    fn begin(&mut self) -> anyhow::Result<Both> {
        let nodes = self.nodes_for(&self.in_force)?;
        let settings = &self.in_force.settings;
        let opened = both::open(self.context, nodes, settings)?;
        opened.begin(self.context, settings, &mut self.printer)
    }

    /// Has the kernel's table as the configuration in force wants it, after what a killed memtide left.
    fn begin_table(&mut self) -> anyhow::Result<()> {
        let options = &self.in_force.settings.weights;
        if options.table.is_none() && !options.dry_run {
            let left = lent_weights::put_back_left(&self.context.root);
            left.iter().for_each(|text| self.printer.notice(text));
        }
        self.table_by(&self.in_force.clone())
    }

    /// Has it as `configuration` wants it.
    fn table_by(&mut self, configuration: &Configuration) -> anyhow::Result<()> {
        let said = self.table.follow(self.context, configuration)?;
        said.iter().for_each(|text| self.printer.notice(text));
        Ok(())
    }

    /// Looks at the pagers of running programs as the configuration in force wants it, at the usual
    /// priority: nobody waits for it.
    fn look_at_pagers(&mut self) {
        let (root, options) = (&self.context.root, self.in_force.settings.pagers);
        let (pagers, printer) = (&mut self.pagers, &mut self.printer);
        self.usual.during(|| pagers.follow(root, options, printer));
    }

    fn announce(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.announce(&mut self.printer);
        }
    }
}
