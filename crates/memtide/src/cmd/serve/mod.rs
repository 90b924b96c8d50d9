//! `memtide serve`: what `memtide tier` does, as a service.
//!
//! One process in the foreground, meant for systemd, over the same loop. SIGHUP has it read its
//! configuration again, SIGINT and SIGTERM end it; whatever way it ends, what was lent is put back.
//!
//! # A reload
//!
//! The new configuration is taken whole or not at all. One that is wrong, or that this machine cannot
//! follow, leaves the old one in force. Where what is tiered or how changes, or nodes came or went, the
//! run ends in order, everything that was lent is put back, and another run begins: what the loop has
//! learned is lost then, and only then. What can be tried of the next run is tried before the old one
//! ends. Classes that are paused stay so.

mod args;
mod fitting;
mod manager;
mod watchers;

pub use args::ServeArgs as Args;

use crate::shared::configuration::{Configuration, Files, Settings};
use crate::shared::context::{BadUsage, Context};
use crate::shared::control::standing::Setup;
use crate::shared::control::{Asked, Control, Outcome};
use crate::shared::control_args::ControlArgs;
use crate::shared::foreground::{Ended, Foreground};
use crate::shared::metrics::{Loaded, Metrics, MetricsArgs, Names};
use crate::shared::outside::causes;
use crate::shared::report::Printer;
use crate::shared::selection::of_cgroup_or_all;
use crate::shared::signals;
use crate::shared::spread::page_size;
use crate::shared::tiering::{self, Tiering, print};
use anyhow::Context as _;
use fitting::{fits, folder_is_there, group_is_there, names, nodes};
use manager::Manager;
use memtide_core::access;
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, PageSize};
use memtide_linux::live::LiveWorld;
use memtide_linux::priority::{self, Usual};
use memtide_loop::report::{Event, Reporter};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{SystemTime, UNIX_EPOCH};
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
        lasting(folder_is_there(context, &configuration))?;
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
    // Nodes may be late, so that tiers by hand fit at the next start.
    let nodes = nodes(context, &configuration)?;
    lasting(tiering::check(
        context,
        &nodes,
        &configuration.settings.tier,
    ))?;
    lasting(fits(context, &configuration, &nodes))?;
    let page = page_size()?;
    // Before what only one service can have: a second one is told that it is the second.
    LiveWorld::stay_off_fast_memory(&nodes);
    let control = &configuration.settings.control;
    let control = Control::begin(control, &context.root, Arc::clone(&reload))?;
    let Settings { tier, class, .. } = &configuration.settings;
    let opened = tiering::open(context, nodes, tier, class)?;
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
        usual: priority::ask(),
        printer: Printer::new(context.json, page),
        metrics: Some(metrics),
        figures,
        control,
        loaded: loaded(SystemTime::now()),
        in_force: configuration,
    };
    service.announce();
    let selection = service.selection();
    let tiering = opened.begin(context, selection, None, &mut service.printer)?;
    service.run(tiering)?;
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
            // A look at what the service would do, perhaps beside it: it keeps its socket and the
            // places of its figures.
            configuration.settings.control.enabled = false;
            configuration.settings.metrics = MetricsArgs::default();
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
    /// Where they are.
    figures: MetricsArgs,
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

/// A run that may have to end for a reload.
struct Running {
    /// The time since its start.
    now: Millis,
    /// What it listens to.
    held: access::Source,
    /// The machine's nodes as it knows them.
    tiers: String,
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

/// Said when a run ended for a reload.
const ANOTHER_RUN: &str = "another run has begun, and its counters begin at zero";

/// Pauses the classes of these names that there still are, and says so.
fn pause_again(tiering: &mut Tiering, paused: &[String]) -> Vec<String> {
    let still = paused.iter().filter(|class| tiering.pause(class));
    still
        .map(|class| format!("class {class} is still paused"))
        .collect()
}

impl Service<'_> {
    /// Turns until a signal wants the end, over all reloads.
    fn run(&mut self, mut tiering: Tiering) -> anyhow::Result<()> {
        loop {
            let status = tiering.status();
            let metrics = self.metrics.as_ref().context("no metrics")?;
            metrics.tell_of_configuration(self.loaded);
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
            let running = Running {
                now: tiering.now(),
                held: tiering.held(),
                tiers: tiering::tiers(tiering.nodes()),
            };
            let outcome = match self.look_again(&running) {
                Looked::Refused(why) => Err(why),
                Looked::Taken(changes) => Ok(changes),
                Looked::Another(next, changes) => match self.begin_again(tiering, *next, changes) {
                    Ok((begun, outcome)) => {
                        tiering = begun;
                        outcome
                    }
                    Err(error) => {
                        self.control.fails(&causes(&error));
                        return Err(error);
                    }
                },
            };
            self.reloaded(asked, outcome);
        }
    }

    /// Notes what came of a reload just now, for all who are told.
    fn reloaded(&mut self, asked: Asked, outcome: Outcome) {
        let now = SystemTime::now();
        match outcome.is_ok() {
            true => self.loaded = loaded(now),
            false => self.loaded.successful = false,
        }
        self.control.reloaded(asked, outcome, now);
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
    fn look_again(&mut self, running: &Running) -> Looked {
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
            changes.push(format!(
                "the nodes were {was}, are {is}, fastest tier first"
            ));
        }
        let same_run = same_nodes
            && (&old.select, &old.tier, &old.class) == (&new.select, &new.tier, &new.class);
        if !same_run && let Err(error) = self.ready_for(&next, &nodes, running.held) {
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
        if let Err(error) = self.tell_elsewhere(&next) {
            self.tell_as_before();
            return Looked::Refused(self.refused(now, &error));
        }
        if !same_run {
            return Looked::Another(Box::new(next), changes);
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

    /// Whether a run by `next` can begin when one that listens to `held` has ended.
    fn ready_for(
        &self,
        next: &Configuration,
        nodes: &Topology,
        held: access::Source,
    ) -> anyhow::Result<()> {
        let tier = &next.settings.tier;
        tiering::check(self.context, nodes, tier)?;
        fits(self.context, next, nodes)?;
        tiering::can_open(self.context, nodes, tier, held)
    }

    /// Ends the run and begins one of `next`, with these changes; of the old configuration if that
    /// fails, and why it did. Classes that were paused are paused in the new run.
    fn begin_again(
        &mut self,
        tiering: Tiering,
        next: Configuration,
        mut changes: Vec<String>,
    ) -> anyhow::Result<(Tiering, Outcome)> {
        let (status, put_back) = tiering.finish(&mut self.printer);
        let why = Ended::Reload.to_string();
        print::summary(&mut self.printer, &status, &why);
        put_back?;
        let paused = tiering::paused(&status);
        let old = std::mem::replace(&mut self.in_force, next);
        let error = match self.begin() {
            Ok(mut tiering) => {
                changes.push(ANOTHER_RUN.to_owned());
                changes.extend(pause_again(&mut tiering, &paused));
                self.taken(Millis(0), &changes);
                return Ok((tiering, Ok(changes)));
            }
            Err(error) => error,
        };
        self.in_force = old;
        self.tell_as_before();
        let mut tiering = self.begin()?;
        let error = error.context(format!("by the old configuration {ANOTHER_RUN}"));
        let why = self.refused(Millis(0), &error);
        let paused = pause_again(&mut tiering, &paused);
        self.taken(Millis(0), &paused);
        Ok((tiering, Err(why)))
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
        let nodes = nodes(self.context, configuration)?;
        tiering::check(self.context, &nodes, &configuration.settings.tier)?;
        fits(self.context, configuration, &nodes)?;
        Ok(nodes)
    }

    fn selection(&self) -> memtide_linux::live::processes::Selection {
        of_cgroup_or_all(self.in_force.settings.select.cgroup.as_deref())
    }

    /// Has the figures, and the socket, where `next` wants them.
    ///
    /// # Errors
    /// One of both cannot be there.
    fn tell_elsewhere(&mut self, next: &Configuration) -> anyhow::Result<()> {
        self.figures_at(&next.settings.metrics, &names(next))?;
        self.socket_at(&next.settings.control)
    }

    /// The same where the configuration in force wants them. What cannot be had again is said and left
    /// out: the loop goes on without it.
    fn tell_as_before(&mut self) {
        let Settings {
            metrics, control, ..
        } = self.in_force.settings.clone();
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
        if self.figures == *args {
            return Ok(());
        }
        // Where this fails, one of both places may be the new one.
        self.figures = MetricsArgs::default();
        let metrics = self.metrics.as_mut().context("no metrics")?;
        self.usual.during(|| metrics.follow(args, names))?;
        self.figures = args.clone();
        self.announce();
        Ok(())
    }

    fn socket_at(&mut self, args: &ControlArgs) -> anyhow::Result<()> {
        let control = &mut self.control;
        self.usual.during(|| control.follow(args))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::control::client::Client;
    use memtide_core::topology::{AccessFigures, NodeInput, TopologyInput};
    use memtide_core::units::NodeId;
    use memtide_linux::fs::Root;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    /// A machine with this configuration, and a group `watch` that is ours.
    fn machine(configuration: &str) -> (tempfile::TempDir, Context) {
        let folder = tempfile::tempdir().unwrap();
        let context = Context {
            root: Root::new(folder.path()),
            json: false,
            styled: false,
        };
        for made in ["etc", "etc/memtide"] {
            let path = folder.path().join(made);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let own = rustix::process::getegid().as_raw();
        write(folder.path(), "etc/group", &format!("watch:x:{own}:\n"));
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../memtide-linux/tests/fixtures/two-sockets-cxl-hmat");
        std::os::unix::fs::symlink(fixture.join("sys"), folder.path().join("sys")).unwrap();
        configure(folder.path(), configuration);
        (folder, context)
    }

    /// A run by hint faults on the nodes that there are.
    fn running(service: &Service<'_>) -> Running {
        let tier = &service.in_force.settings.tier;
        let nodes = tiering::nodes(service.context, tier, "").unwrap();
        Running {
            now: Millis(0),
            held: access::Source::HintFault,
            tiers: tiering::tiers(&nodes),
        }
    }

    fn look_again(service: &mut Service<'_>) -> Looked {
        let running = running(service);
        service.look_again(&running)
    }

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    }

    fn configure(root: &Path, text: &str) {
        write(root, "etc/memtide/memtide.toml", text);
    }

    fn source(context: &Context, dry_run: bool) -> Source {
        Source {
            files: Files::new(None, &context.root),
            dry_run,
        }
    }

    /// A service without a run, which what it looks at here does not need.
    fn with_service(configuration: &str, test: impl FnOnce(&Path, &mut Service<'_>)) {
        let (folder, context) = machine(configuration);
        let manager = Manager::new();
        let source = source(&context, false);
        let in_force = source.read().unwrap();
        let settings = &in_force.settings;
        let page = page_size().unwrap();
        let control = Control::begin(&settings.control, &context.root, Arc::default()).unwrap();
        let mut service = Service {
            source,
            context: &context,
            manager: &manager,
            signal: Arc::default(),
            reload: Arc::default(),
            page,
            usual: priority::ask(),
            printer: Printer::new(false, page),
            metrics: Some(
                Metrics::begin(&settings.metrics, &names(&in_force), "tier", page).unwrap(),
            ),
            figures: settings.metrics.clone(),
            control,
            loaded: loaded(UNIX_EPOCH),
            in_force,
        };
        test(folder.path(), &mut service);
    }

    /// A client of the service's stream, which has had the first status.
    fn watching(service: &Service<'_>) -> Client {
        service.control.tell(Default::default);
        let mut client = Client::connect(&service.context.root).unwrap();
        client.watch().unwrap();
        client.next().unwrap();
        client
    }

    fn refused(looked: Looked) -> String {
        match looked {
            Looked::Refused(why) => why,
            _ => panic!("taken"),
        }
    }

    /// A client is connected all the while: the socket is not touched.
    #[test]
    fn a_group_that_has_gone_disturbs_no_reload_of_something_else() {
        with_service("control.group = \"watch\"", |root, service| {
            let mut client = watching(service);
            write(root, "etc/group", "");
            configure(
                root,
                "control.group = \"watch\"\nmetrics.listen = \"127.0.0.1:0\"",
            );
            let looked = look_again(service);
            assert!(matches!(looked, Looked::Taken(changes) if changes.len() == 1));
            assert_eq!(service.figures, service.in_force.settings.metrics);
            service.control.tell(Default::default);
            client.next().unwrap();
        });
    }

    #[test]
    fn a_group_that_is_not_there_is_refused_and_the_old_socket_answers() {
        with_service("metrics.listen = \"127.0.0.1:0\"", |root, service| {
            let mut client = watching(service);
            configure(root, "control.group = \"wacht\"");
            let why = refused(look_again(service));
            assert!(
                why.contains("memtide.toml:1:17: group wacht: not in "),
                "{why}"
            );
            // The figures are back, too.
            assert_eq!(service.figures, service.in_force.settings.metrics);
            service.control.tell(Default::default);
            client.next().unwrap();
        });
    }

    #[test]
    fn a_refused_reload_leaves_the_time_of_the_one_in_force() {
        with_service("", |_, service| {
            let asked = service.control.reloading();
            service.reloaded(asked, Err("wrong".to_owned()));
            let refused = Loaded {
                successful: false,
                ..loaded(UNIX_EPOCH)
            };
            assert_eq!(service.loaded, refused);
            let asked = service.control.reloading();
            service.reloaded(asked, Ok(Vec::new()));
            assert!(service.loaded.successful && service.loaded.taken > refused.taken);
        });
    }

    /// Before the run ends that is there.
    #[test]
    fn a_source_that_is_not_there_is_refused_and_nothing_is_said_to_be_taken() {
        with_service("", |root, service| {
            configure(root, "tier.source = \"page-table\"");
            let why = refused(look_again(service));
            assert!(why.starts_with("page-table scan: "), "{why}");
            // What is held by the run itself is had again.
            configure(root, "tier.source = \"hint-faults\"");
            let looked = look_again(service);
            assert!(matches!(looked, Looked::Another(..)));
        });
    }

    /// Neither is the address nor the file an option of the service.
    #[test]
    fn metrics_that_cannot_be_had_are_named_as_in_the_file() {
        with_service("", |root, service| {
            let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = taken.local_addr().unwrap();
            configure(root, &format!("[metrics]\nlisten = '{address}'"));
            let why = refused(look_again(service));
            let place = format!("memtide.toml:2:10: listen {address}: ");
            assert!(why.contains(&place), "{why}");
            configure(root, "[metrics]\nfile = '/nowhere/memtide.prom'");
            let why = refused(look_again(service));
            let place = "memtide.toml:2:8: file: cannot write /nowhere/memtide.prom: ";
            assert!(why.contains(place), "{why}");
            assert_eq!(service.figures, MetricsArgs::default());
        });
    }

    #[test]
    fn a_node_that_came_needs_another_run() {
        with_service("tier.source = \"hint-faults\"", |_, service| {
            assert!(matches!(look_again(service), Looked::Taken(changes) if changes.is_empty()));
            let less = Running {
                tiers: "0-1".to_owned(),
                ..running(service)
            };
            let Looked::Another(_, changes) = service.look_again(&less) else {
                panic!("the same run");
            };
            let [change] = &changes[..] else {
                panic!("{changes:?}");
            };
            assert!(
                change.starts_with("the nodes were 0-1, are 0-1/2"),
                "{change}"
            );
        });
    }

    /// The old place cannot be had again when the run by the new configuration did not begin.
    #[test]
    fn what_cannot_be_had_again_is_left_out() {
        with_service("control.group = \"watch\"", |root, service| {
            let old = service.in_force.clone();
            configure(root, "");
            assert!(matches!(look_again(service), Looked::Taken(_)));
            write(root, "etc/group", "");
            service.in_force = old;
            service.tell_as_before();
            assert!(Client::connect(&service.context.root).is_err());
            // The next reload tries again.
            let own = rustix::process::getegid().as_raw();
            write(root, "etc/group", &format!("watch:x:{own}:\n"));
            configure(root, "control.group = \"watch\"");
            assert!(matches!(look_again(service), Looked::Taken(_)));
            Client::connect(&service.context.root).unwrap();
        });
    }

    #[test]
    fn two_names_of_one_user_tie() {
        let configuration = "[class.a]\nuser = 'x'\n[class.b]\nuser = 'y'\n";
        let (folder, context) = machine(configuration);
        let configuration = source(&context, false).read().unwrap();
        let node = NodeInput {
            id: NodeId(0),
            online: true,
            memory_bytes: 1 << 30,
            cpus: vec![0],
            distances: None,
            figures: AccessFigures::default(),
            tier: None,
        };
        let nodes = Topology::try_from(TopologyInput::new(vec![node])).unwrap();
        let fits = || fits(&context, &configuration, &nodes);
        write(folder.path(), "etc/passwd", "x:x:7:7::/:/\ny:x:8:8::/:/\n");
        fits().unwrap();
        write(folder.path(), "etc/passwd", "x:x:7:7::/:/\ny:x:7:8::/:/\n");
        let said = fits().unwrap_err().to_string();
        assert!(said.contains("memtide.toml:4:"), "{said}");
        assert!(said.contains("this class and a equally well"), "{said}");
    }

    /// Beside a service that runs: a dry run wants neither its socket nor its lock, nor its metrics.
    #[test]
    fn a_dry_run_takes_nothing_from_the_service() {
        let metrics = "[metrics]\nlisten = '127.0.0.1:0'\nfile = '/dev/null'\n";
        with_service("", |root, service| {
            configure(root, metrics);
            let dry = source(service.context, true).read().unwrap().settings;
            assert!(dry.tier.dry_run);
            assert_eq!(dry.metrics, MetricsArgs::default());
            Control::begin(&dry.control, &service.context.root, Arc::default()).unwrap();
            Client::connect(&service.context.root).unwrap();
        });
    }
}
