//! Balancing of the running machine: what `memtide balance` and the service have in common, and
//! balancing beside tiering.
//!
//! # Beside tiering
//!
//! The service's loop tiers. Balancing runs on a thread of its own over a world of its own: its turns
//! wait for samples, up to a second, and tiering's passes must not wait for them. [`open`] finds out
//! whether there is anything to balance and what tells of it, [`Opening::begin`] starts the thread, and
//! [`Balancing`] is what the service knows of it.
//!
//! # Properties
//!
//! - Where nothing can be balanced, or no more, that is said once, and tiering goes on.
//! - The thread prints nothing. What it tells waits, [`MOST_EVENTS`] at most, and the loop prints it.
//! - However the thread's loop ends, threads of others get their CPUs back before it does.

pub mod print;
pub mod source;

use super::context::Context;
use super::control::standing::{self, Standing};
use super::metrics::Metrics;
use super::outside::causes;
use super::report::Printer;
use super::spread::page_size;
use super::tiering;
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, PageSize};
use memtide_linux::fs::Root;
use memtide_linux::lent::Turn;
use memtide_linux::live::affinity::{self, Affinities};
use memtide_linux::live::processes::Selection;
use memtide_linux::live::{LiveSource, LiveWorld};
use memtide_loop::World;
use memtide_loop::balance::{BalanceConfig, Balancer, Tasks, has_fast_choice, tasks};
use memtide_loop::options::{BalanceOptions, Classes, Rules, TierOptions, TierSource};
use memtide_loop::report::{Event, Reporter, Status};
use memtide_loop::world::ClassId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// From one status to the next.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// Events that wait to be printed; the loop takes them once a second.
const MOST_EVENTS: usize = 100_000;

/// Takes the turn to set affinities, and puts back what was left. The second is what to say.
///
/// # Errors
/// What was left cannot be put back.
pub fn take_turn(root: &Root) -> anyhow::Result<(Option<Turn>, Option<String>)> {
    let turn = affinity::journal(root).turn()?;
    let freed = match &turn {
        // Nobody else is at it: what is noted was left.
        Some(turn) => Affinities::put_back_left(root, turn)?,
        None => None,
    };
    let what =
        |freed| format!("put back what a killed memtide left: the affinity of {freed} threads");
    Ok((turn, freed.map(what)))
}

/// What the service is to balance, and how.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// How.
    pub options: &'a BalanceOptions,
    /// Which classes say whether they are balanced.
    pub classes: &'a Classes,
    /// Whether those are whose class does not say.
    pub others: bool,
    /// How the rest is tiered.
    pub tier: &'a TierOptions,
    /// Whether the rest is not tiered at all.
    pub alone: bool,
}

impl Wanted<'_> {
    /// Whether there is anybody to balance.
    pub fn anybody(&self) -> bool {
        let mut classes = self.classes.values();
        self.others || classes.any(|class| class.is_balanced(self.others))
    }

    /// By class, whether it is balanced.
    fn by_class(&self) -> BTreeMap<String, (ClassId, bool)> {
        let classes = (0..).map(ClassId).zip(self.classes);
        let of =
            |(id, (name, class)): (ClassId, (&String, &memtide_loop::options::ClassOptions))| {
                (name.clone(), (id, class.is_balanced(self.others)))
            };
        classes.map(of).collect()
    }
}

/// Balancing before it begins.
pub enum Opening {
    /// Nobody wants it.
    Off,
    /// It is wanted and cannot be, for this reason.
    Rests(String),
    /// It can begin.
    Ready(Box<Opened>),
}

/// What is needed to begin.
pub struct Opened {
    source: source::Opened,
    config: BalanceConfig,
    turn: Option<Turn>,
    left: Option<String>,
    page: PageSize,
}

/// Finds out whether anything can be balanced on these nodes, and opens what tells of it.
pub fn open(context: &Context, nodes: &Topology, wanted: Wanted<'_>) -> Opening {
    if !wanted.anybody() {
        return Opening::Off;
    }
    match ready(context, nodes, wanted) {
        Ok(opened) => Opening::Ready(Box::new(opened)),
        Err(why) => Opening::Rests(causes(&why)),
    }
}

fn ready(context: &Context, nodes: &Topology, wanted: Wanted<'_>) -> anyhow::Result<Opened> {
    let Wanted {
        options,
        classes,
        others,
        tier,
        alone: _,
    } = wanted;
    if !has_fast_choice(nodes) {
        anyhow::bail!(
            "fewer than two fast nodes have both CPUs and memory, so every page on fast memory is where it should be"
        );
    }
    let page = page_size()?;
    let taken = match tier.source.is_auto() {
        true => &[][..],
        false => tier.source.named(),
    };
    let source = source::open(options.source, &context.root, options.rate, taken)?;
    // Who changes nothing has nothing to note, and leaves the turn to who does.
    let (turn, left) = match options.dry_run {
        true => (None, None),
        false => take_turn(&context.root)?,
    };
    if turn.is_none() && tasks(options) == Tasks::Set {
        anyhow::bail!(
            "another memtide sets affinities; end it, or set tasks = \"propose\" in [balance]"
        );
    }
    let config = BalanceConfig::new(options, page, source.by_rounds)?;
    let headroom = page.pages(tier.headroom.0);
    Ok(Opened {
        config: config.beside_tiering(classes, others, headroom),
        source,
        turn,
        left,
        page,
    })
}

impl Opening {
    /// The unit of hardware that it listens to.
    pub fn hardware(&self) -> Option<TierSource> {
        match self {
            Opening::Ready(opened) => opened.source.hardware,
            _ => None,
        }
    }

    /// Whether it will run.
    pub fn is_ready(&self) -> bool {
        matches!(self, Opening::Ready(_))
    }

    /// Begins, beside a run of tiering of the same processes on these nodes. Where it cannot, that is
    /// said.
    pub fn begin(
        self,
        context: &Context,
        nodes: &Topology,
        selection: Selection,
        wanted: Wanted<'_>,
        printer: &mut Printer,
    ) -> Balancing {
        let begun = match self {
            Opening::Off => return Balancing::default(),
            Opening::Rests(why) => Err(why),
            Opening::Ready(opened) => {
                let notices = opened.source.notices.iter().chain(&opened.left);
                for notice in notices {
                    printer.notice(&format!("balancing: {notice}"));
                }
                let rules = tiering::rules(context, wanted.classes);
                let begun = rules.and_then(|rules| {
                    let machine = (context.root.clone(), nodes.clone());
                    opened.begin(machine, selection, rules, wanted.alone)
                });
                begun.map_err(|why| causes(&why))
            }
        };
        let classes = wanted.by_class();
        match begun {
            Ok(running) => Balancing {
                running: Some(running),
                rests: None,
                classes,
            },
            Err(why) => {
                printer.notice(&rests(&why, wanted.alone));
                Balancing {
                    running: None,
                    rests: Some(why),
                    classes,
                }
            }
        }
    }
}

/// As it is said.
fn rests(why: &str, alone: bool) -> String {
    let rest = if alone { "" } else { "; tiering goes on" };
    format!("nothing is balanced: {why}{rest}")
}

impl Opened {
    fn begin(
        self,
        (root, nodes): (Root, Topology),
        selection: Selection,
        rules: Rules,
        alone: bool,
    ) -> anyhow::Result<Running> {
        let shared = Arc::new(Shared {
            alone,
            ..Shared::default()
        });
        let of_thread = Arc::clone(&shared);
        let named = std::thread::Builder::new().name("balance".to_owned());
        let thread = named.spawn(move || {
            let sources = vec![LiveSource::Samples(Box::new(self.source.sampling))];
            let world = LiveWorld::new(root, nodes, self.page, selection, sources);
            let mut world = world.with_classes(rules).of_this_thread();
            let done = run(&mut world, self.config, &of_thread);
            drop(self.turn);
            done
        })?;
        Ok(Running { shared, thread })
    }
}

/// What the thread and the service share.
#[derive(Default)]
struct Shared {
    /// Whether it is to end.
    ends: AtomicBool,
    /// Whether nothing else goes on.
    alone: bool,
    latest: Mutex<Latest>,
}

#[derive(Default)]
struct Latest {
    status: Option<Status>,
    /// What it has told since somebody listened.
    events: Vec<(Millis, Event)>,
    /// Events for which there was no place.
    lost: u64,
    /// Classes that are to stop, or to go on.
    pauses: Vec<(ClassId, bool)>,
    /// Why it has ended by itself.
    failed: Option<String>,
}

impl Shared {
    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints what waits.
    fn tell(&self, printer: &mut Printer) {
        let (events, lost) = {
            let mut latest = self.latest();
            let lost = std::mem::take(&mut latest.lost);
            (std::mem::take(&mut latest.events), lost)
        };
        for (at, event) in events {
            printer.event(at, event);
        }
        if lost > 0 {
            printer.notice(&format!(
                "balancing: {lost} lines were too many at once and are lost"
            ));
        }
    }

    /// It ends by itself, which is said once.
    fn fails(&self, at: Millis, why: String) {
        let text = rests(&why, self.alone);
        let mut latest = self.latest();
        latest.events.push((at, Event::Notice { text }));
        latest.failed = Some(why);
    }
}

/// Leaves events for the loop to print.
struct Teller<'a>(&'a Shared);

impl Reporter for Teller<'_> {
    fn event(&mut self, at: Millis, event: Event) {
        let event = match event {
            // Tiering tells of them.
            Event::Process { .. } | Event::ProcessGone { .. } => return,
            Event::Notice { text } => Event::Notice {
                text: format!("balancing: {text}"),
            },
            event => event,
        };
        let mut latest = self.0.latest();
        match latest.events.len() < MOST_EVENTS {
            true => latest.events.push((at, event)),
            false => latest.lost += 1,
        }
    }
}

/// Turns until it is to end, and puts back what was lent. How many threads were freed, and how it
/// stood then.
fn run(world: &mut dyn World, config: BalanceConfig, shared: &Shared) -> Finished {
    let mut balancer = match Balancer::new(world, config) {
        Ok(balancer) => balancer,
        Err(why) => {
            shared.fails(world.now(), why.to_string());
            return Finished::default();
        }
    };
    shared.latest().status = Some(balancer.status(world));
    let ran = turns(&mut balancer, world, shared);
    if let Err(why) = ran {
        shared.fails(world.now(), why);
    }
    let freed = balancer.finish(world);
    Finished {
        freed: *freed.as_ref().unwrap_or(&0),
        put_back: freed.map(|_| ()).map_err(|why| why.to_string()),
        status: Some(balancer.status(world)),
    }
}

fn turns(balancer: &mut Balancer, world: &mut dyn World, shared: &Shared) -> Result<(), String> {
    let mut told = Instant::now();
    while !shared.ends.load(Ordering::Relaxed) {
        for (class, paused) in std::mem::take(&mut shared.latest().pauses) {
            balancer.pause(class, paused);
        }
        let turn = balancer.step(world, &mut Teller(shared));
        turn.map_err(|why| why.to_string())?;
        if told.elapsed() >= STATUS_EVERY {
            told = Instant::now();
            let status = balancer.status(world);
            shared.latest().status = Some(status);
        }
    }
    Ok(())
}

/// How the thread ended.
struct Finished {
    freed: usize,
    put_back: Result<(), String>,
    status: Option<Status>,
}

impl Default for Finished {
    fn default() -> Finished {
        Finished {
            freed: 0,
            put_back: Ok(()),
            status: None,
        }
    }
}

/// Balancing beside a run of tiering. By default nobody wants it.
#[derive(Default)]
pub struct Balancing {
    running: Option<Running>,
    /// Why it could not begin.
    rests: Option<String>,
    /// Whether a class is balanced, and its number.
    classes: BTreeMap<String, (ClassId, bool)>,
}

struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<Finished>,
}

impl Running {
    fn fails(&self) -> Option<String> {
        let failed = self.shared.latest().failed.clone();
        let ends = self.shared.ends.load(Ordering::Relaxed);
        let gone =
            || (self.thread.is_finished() && !ends).then(|| "its thread has ended".to_owned());
        failed.or_else(gone)
    }
}

impl Balancing {
    /// Has pages and threads of the class of this name stay where they are, or no more.
    pub fn pause(&self, class: &str, paused: bool) {
        if let (Some(running), Some((id, _))) = (&self.running, self.classes.get(class)) {
            running.shared.latest().pauses.push((*id, paused));
        }
    }

    /// Why nothing is balanced although that is wanted.
    fn rests(&self) -> Option<String> {
        let failed = self.running.as_ref().and_then(Running::fails);
        self.rests.clone().or(failed)
    }

    /// Where it stands: its status, or why it rests. None if nobody wants it.
    pub fn stands(&self) -> Option<Result<Status, String>> {
        if let Some(why) = self.rests() {
            return Some(Err(why));
        }
        let running = self.running.as_ref()?;
        let status = running.shared.latest().status.clone();
        Some(Ok(status.unwrap_or_default()))
    }

    /// Prints what it has told, and where it stands; tells metrics, too.
    pub fn tells(&self, printer: &mut Printer, metrics: &Metrics) {
        if let Some(running) = &self.running {
            running.shared.tell(printer);
        }
        let stands = self.stands();
        if let Some(Ok(status)) = &stands {
            print::beside(printer, status);
        }
        let status = stands.as_ref().map(|stands| stands.as_ref().ok());
        metrics.tell_of_balancing(status);
    }

    /// Writes where it stands into what is told of the service.
    pub fn complete(&self, standing: &mut Standing, page: PageSize) {
        let stands = self.stands();
        let runs = matches!(stands, Some(Ok(_)));
        for class in &mut standing.classes {
            let known = self.classes.get(&class.name);
            class.balanced = runs && known.is_some_and(|(_, balanced)| *balanced);
        }
        standing.balancing = stands.map(|stands| match stands {
            Ok(status) => standing::Balancing::of(&status, page),
            Err(why) => standing::Balancing {
                rests: Some(why),
                ..standing::Balancing::default()
            },
        });
        let cpu_ms = standing
            .balancing
            .as_ref()
            .map_or(0, |stands| stands.cpu_ms);
        standing.cpu_ms += cpu_ms;
    }

    /// The same in few words, for who manages services.
    pub fn short(&self, printer: &Printer) -> Option<String> {
        Some(match self.stands()? {
            Ok(status) => print::short(printer, &status),
            Err(why) => format!("nothing is balanced: {why}"),
        })
    }

    /// Asks it to end. That takes up to a second, in which other things can be ended.
    pub fn ends(&self) {
        if let Some(running) = &self.running {
            running.shared.ends.store(true, Ordering::Relaxed);
        }
    }

    /// Ends it, and says what it did.
    ///
    /// # Errors
    /// What was lent could not be put back.
    pub fn finish(self, printer: &mut Printer, why: &str) -> anyhow::Result<()> {
        self.ends();
        let Some(Running { shared, thread }) = self.running else {
            return Ok(());
        };
        let finished = thread.join();
        shared.tell(printer);
        let Ok(finished) = finished else {
            anyhow::bail!(
                "balancing ended by a mistake of memtide's; memtide doctor --restore frees the threads that it placed"
            );
        };
        if let Some(status) = &finished.status {
            let failed = shared.latest().failed.clone();
            let why = failed.as_deref().unwrap_or(why);
            print::summary_beside(printer, status, why, finished.freed);
        }
        let put_back = finished.put_back;
        put_back.map_err(|why| anyhow::anyhow!("balancing: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_linux::fs::topology;
    use memtide_loop::report::MovedPages;
    use memtide_loop::testing::{FAST, FakeProcess, FakeWorld, SLOW};
    use memtide_loop::world::{Sample, SourceId, ThreadId, ThreadSeen};

    fn context(fixture: &str) -> Context {
        let fixtures = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../memtide-linux/tests/fixtures/"
        );
        Context {
            root: Root::new(format!("{fixtures}{fixture}")),
            json: false,
            styled: false,
        }
    }

    /// What comes of these classes on a copy of a machine.
    fn opened(fixture: &str, classes: &str, others: bool) -> Opening {
        let context = context(fixture);
        let nodes = topology::read(&context.root).unwrap().topology;
        let wanted = Wanted {
            options: &BalanceOptions::DEFAULT,
            classes: &toml::from_str(classes).unwrap(),
            others,
            tier: &TierOptions::DEFAULT,
            alone: false,
        };
        open(&context, &nodes, wanted)
    }

    #[test]
    fn where_nobody_wants_it_nothing_is_opened_and_where_nothing_can_be_it_rests() {
        let off = |classes, others| {
            let opened = opened("two-sockets-cxl-hmat", classes, others);
            matches!(opened, Opening::Off)
        };
        assert!(off("", false) && off("[a]\nbalance = false\n", false));
        assert!(!off("", true) && !off("[a]\nbalance = true\n", false));
        let rests = |fixture| match opened(fixture, "", true) {
            Opening::Rests(why) => why,
            _ => panic!("it does not rest"),
        };
        let why = rests("cxl-no-hmat");
        assert!(
            why.starts_with("fewer than two fast nodes have both CPUs"),
            "{why}"
        );
        // A copy has no hardware and no tracepoints.
        let why = rests("two-sockets-cxl-hmat");
        assert!(
            why.starts_with("nothing here tells who uses which page: "),
            "{why}"
        );
    }

    /// Process 7, of class 0, has memory on the other node than its thread.
    fn world() -> FakeWorld {
        let mut world = FakeWorld::two_nodes_and_slow(10_000);
        let process = FakeProcess::new(7, 16, 64, SLOW);
        world.processes.push(FakeProcess {
            class: Some(ClassId(0)),
            ..process
        });
        let thread = ThreadId {
            pid: 7,
            tid: 8,
            start_ticks: 700,
        };
        let runtime_ns = 60_000_000_000;
        world.threads.push(ThreadSeen { thread, runtime_ns });
        world.samples = (16..80)
            .map(|page| Sample {
                source: SourceId(0),
                pid: 7,
                tid: 8,
                cpu: 0,
                address: page << 12,
            })
            .collect();
        world
    }

    fn config(world: &FakeWorld) -> BalanceConfig {
        let config = BalanceConfig::new(&BalanceOptions::DEFAULT, world.page(), false).unwrap();
        config.beside_tiering(&toml::from_str("[a]\nbalance = true\n").unwrap(), false, 0)
    }

    #[test]
    fn what_it_tells_waits_without_what_tiering_tells_of() {
        let mut world = world();
        let shared = Shared::default();
        let config = config(&world);
        let mut balancer = Balancer::new(&mut world, config).unwrap();
        balancer.step(&mut world, &mut Teller(&shared)).unwrap();
        assert_eq!(world.process(7).on(FAST), 64);
        let events = std::mem::take(&mut shared.latest().events);
        let [(_, Event::MovedPages(MovedPages { pages: 64, .. }))] = events[..] else {
            panic!("{events:?}");
        };
        let notice = || Event::Notice { text: "x".into() };
        for _ in 0..MOST_EVENTS + 2 {
            Teller(&shared).event(Millis(0), notice());
        }
        let latest = shared.latest();
        assert_eq!((latest.events.len(), latest.lost), (MOST_EVENTS, 2));
        let Event::Notice { text } = &latest.events[0].1 else {
            panic!("no notice");
        };
        assert_eq!(text, "balancing: x");
    }

    #[test]
    fn who_is_asked_to_end_puts_back_and_says_how_it_stood() {
        let mut world = world();
        let shared = Shared::default();
        shared.ends.store(true, Ordering::Relaxed);
        let config = config(&world);
        let finished = run(&mut world, config, &shared);
        assert!(world.closed && finished.put_back.is_ok());
        assert!(finished.status.is_some() && shared.latest().failed.is_none());
    }

    #[test]
    fn a_source_that_breaks_ends_it_which_is_said_once() {
        let mut world = world();
        world.breaks = Some(SourceId(0));
        let shared = Shared::default();
        let config = config(&world);
        let finished = run(&mut world, config, &shared);
        assert!(world.closed && finished.put_back.is_ok());
        let said = shared.latest().failed.clone().unwrap();
        let latest = shared.latest();
        let notices = latest.events.iter().filter_map(|(_, event)| match event {
            Event::Notice { text } => Some(text.as_str()),
            _ => None,
        });
        let wanted = format!("nothing is balanced: {said}; tiering goes on");
        assert_eq!(notices.collect::<Vec<_>>(), [wanted]);
    }

    #[test]
    fn where_it_rests_the_status_says_why() {
        let balancing = Balancing {
            rests: Some("why".to_owned()),
            classes: [("a".to_owned(), (ClassId(0), true))].into(),
            ..Balancing::default()
        };
        let class = |name: &str| standing::Class {
            name: name.to_owned(),
            ..standing::Class::default()
        };
        let mut standing = Standing {
            cpu_ms: 5,
            classes: vec![class("a"), class("b")],
            ..Standing::default()
        };
        balancing.complete(&mut standing, PageSize::KIB_4);
        let told = standing.balancing.unwrap();
        assert_eq!((told.rests.as_deref(), told.source), (Some("why"), None));
        assert_eq!(standing.cpu_ms, 5);
        let balanced: Vec<bool> = standing
            .classes
            .iter()
            .map(|class| class.balanced)
            .collect();
        assert_eq!(balanced, [false, false]);
        assert!(Balancing::default().stands().is_none());
        let status = Status {
            processes: 3,
            cpu: Duration::from_millis(7),
            balancing: Some(memtide_loop::report::BalanceStatus {
                moved_pages: 2,
                ..Default::default()
            }),
            ..Status::default()
        };
        let told = standing::Balancing::of(&status, PageSize::KIB_4);
        assert_eq!(
            (told.processes, told.moved_bytes, told.cpu_ms),
            (3, 8192, 7)
        );
    }
}
