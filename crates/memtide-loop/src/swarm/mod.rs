//! The swarm: a seed draws a machine, programs, options and faults, and the
//! loop has to keep its promises.
//!
//! # Approach
//!
//! A run has two parts. In the first everything may go wrong, at times that the
//! seed drew. In the second nothing does. All the time the world watches what the
//! loop does: no page goes where its mempolicy or cpuset forbids it, none to a
//! node without room, none of a process that is gone, none that was in use leaves for
//! idleness; rate and processor time stay
//! within their limits over every stretch of time. At the end what was lent is
//! back, and hot pages that fit have come home and stay.
//!
//! # Terms
//!
//! What a seed draws is a list of things. A failing seed is made *smaller* by
//! leaving out things as long as it fails; [`Failure`] names those that it takes.
//! A [`Mistake`] is deliberate, and some seed has to find it. [`Coverage`] says
//! which kind of fault met which part of the loop.
//!
//! # Properties
//!
//! The same seed does the same. Nothing of this is in production code.

mod coverage;
mod machine;
mod mistake;
mod plan;
mod watch;
mod world;

#[cfg(test)]
mod tests;

pub use coverage::Coverage;
pub use mistake::Mistake;

use crate::balance::{BalanceConfig, Balancer};
use crate::options::{TierGate, Tiered};
use crate::report::{Direction, Event, Reporter};
use crate::tier::{Class, TierConfig, Tierer};
use crate::world::{World, WorldError};
use machine::Process;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::{Millis, NodeId};
use plan::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use watch::{Allowance, Violations};
use world::SwarmWorld;

/// How long hot pages have to come home after faults ended, in ms: stuck pages get
/// another chance every minute, what was promoted stays for one, and any process
/// is surveyed every two.
const HOME_MS: u64 = 200_000;
/// How often it is seen whether they are home, in ms.
const STEP_MS: u64 = 5_000;
/// How long they have to stay, in ms.
const STAY_MS: u64 = 20_000;
/// The same of balancing, which asks again where pages are every 10 s.
const BALANCED_MS: u64 = 90_000;
/// Of so many seeds one has its loop follow its options again, and after so many turns each time.
const RELOADED: u64 = 8;
const RELOAD_TURNS: u64 = 50;
/// Turns after which a run has failed to let time pass.
const TURNS: u64 = 100_000;

/// A seed that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The things of its plan that it takes; all if `None`.
    pub only: Option<BTreeSet<usize>>,
    /// What these are, a line each.
    pub things: Vec<String>,
    /// What was wrong, a line each.
    pub violations: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "cargo xtask swarm --first {} --seeds 1", self.seed)?;
        if let Some(only) = &self.only {
            let only: Vec<String> = only.iter().map(usize::to_string).collect();
            write!(to, " --only {}", only.join(","))?;
        }
        for text in &self.violations {
            write!(to, "\n    {text}")?;
        }
        for text in &self.things {
            write!(to, "\n        {text}")?;
        }
        Ok(())
    }
}

/// Runs `seed`, of whose plan only some things happen if `only` says which.
///
/// # Errors
///
/// What was wrong.
pub fn run(
    seed: u64,
    only: Option<&BTreeSet<usize>>,
    mistake: Option<Mistake>,
) -> Result<Coverage, Failure> {
    let failure = |violations| Failure {
        seed,
        only: only.cloned(),
        things: plan(seed, only).things(),
        violations,
    };
    let one = once(seed, only, mistake, 0);
    if !one.violations.is_empty() {
        return Err(failure(one.violations));
    }
    // Two runs of each would take twice the time; some are enough.
    if seed.is_multiple_of(16) {
        let salt = u64::from(mistake == Some(Mistake::OtherChoices));
        if once(seed, only, mistake, salt).events != one.events {
            return Err(failure(vec!["the same seed did something else".into()]));
        }
    }
    Ok(one.coverage)
}

/// Leaves out things of a failing seed's plan as long as it fails.
pub fn smaller(failure: Failure, mistake: Option<Mistake>) -> Failure {
    let items = Plan::draw(failure.seed).items();
    let mut least = failure;
    let mut only: BTreeSet<usize> = least.only.clone().unwrap_or_else(|| (0..items).collect());
    for item in 0..items {
        if !only.remove(&item) {
            continue;
        }
        match run(least.seed, Some(&only), mistake) {
            Err(failure) => least = failure,
            Ok(_) => {
                only.insert(item);
            }
        }
    }
    least
}

/// What one run did.
struct Ran {
    events: Vec<(Millis, Event)>,
    violations: Vec<String>,
    coverage: Coverage,
}

/// One of the loops.
enum Loop {
    Tier(Box<Tierer>, Box<TierConfig>),
    Balance(Box<Balancer>),
}

impl Loop {
    fn new(plan: &Plan, world: &mut SwarmWorld, seed: u64) -> Loop {
        let page = world.page();
        if plan.balance {
            let config = BalanceConfig::new(&plan.balancing, page, false).expect("good options");
            let balancer = Balancer::new(world, config).expect("good options");
            return Loop::Balance(Box::new(balancer));
        }
        let topology = world.topology().clone();
        let mut config = TierConfig::new(&plan.tier, &topology, page, seed).expect("good options");
        config.look_pages = plan.look_pages;
        let class = |(n, (low, high)): (usize, &(u64, Option<u64>))| Class {
            name: format!("class{n}"),
            low: (*low > 0).then_some(*low),
            high: *high,
            ..nobody()
        };
        config.classes = plan.classes.iter().enumerate().map(class).collect();
        match world.mistake {
            Some(Mistake::IgnoreHeadroom) => config.headroom = 0,
            Some(Mistake::DryRunMoves) => config.dry_run = false,
            Some(Mistake::NoRateLimit) => config.gate.rate_limit_mbps = 1 << 12,
            Some(Mistake::IgnoreHigh) => config.classes.iter_mut().for_each(|of| of.high = None),
            Some(Mistake::IgnoreLow) => config.classes.iter_mut().for_each(|of| of.low = None),
            Some(Mistake::IgnorePressure) => config.heed_pressure = false,
            Some(Mistake::NoCpuBudget) => config.cadence.share_permille = 1000,
            _ => {}
        }
        let tierer = Tierer::new(world, config.clone());
        Loop::Tier(Box::new(tierer), Box::new(config))
    }

    /// The same options come again, as by a reload, and a class that nobody is in comes or goes, so that the
    /// others have other numbers: nobody may notice.
    fn reload(&mut self, world: &mut SwarmWorld) {
        if let Loop::Tier(tierer, config) = self {
            world.first_class ^= 1;
            let mut config = TierConfig::clone(config);
            if world.first_class == 1 {
                config.classes.insert(0, nobody());
            }
            tierer.follow(world, config);
        }
    }

    fn step(
        &mut self,
        world: &mut SwarmWorld,
        reporter: &mut dyn Reporter,
    ) -> Result<bool, WorldError> {
        match self {
            Loop::Tier(tierer, _) => tierer.step(world, reporter),
            Loop::Balance(balancer) => balancer.step(world, reporter),
        }
    }

    /// Pages that are elsewhere for a moment, by pid, and where they belong.
    fn visitors(&self) -> Visitors {
        match self {
            Loop::Tier(tierer, _) => {
                let all = tierer.visitors();
                all.map(|(process, page, home)| ((process.pid, page), home))
                    .collect()
            }
            Loop::Balance(_) => Visitors::new(),
        }
    }

    fn finish(&mut self, world: &mut SwarmWorld) -> Result<(), WorldError> {
        match self {
            Loop::Tier(tierer, _) => tierer.finish(world),
            Loop::Balance(balancer) => balancer.finish(world).map(|_| ()),
        }
    }
}

/// A class without a share.
fn nobody() -> Class {
    Class {
        name: "nobody".to_owned(),
        low: None,
        high: None,
        leave_alone: false,
        tiered: Tiered::default(),
        heed_pressure: true,
    }
}

/// What `seed` draws, or only some of it.
fn plan(seed: u64, only: Option<&BTreeSet<usize>>) -> Plan {
    let mut plan = Plan::draw(seed);
    if let Some(only) = only {
        plan.only(only);
    }
    plan
}

fn once(seed: u64, only: Option<&BTreeSet<usize>>, mistake: Option<Mistake>, salt: u64) -> Ran {
    let plan = plan(seed, only);
    let mut world = SwarmWorld::new(&plan, mistake);
    let mut looping = Loop::new(&plan, &mut world, seed ^ salt);
    let mut events = Vec::new();
    let mut ended = false;
    let mut turns = 0;
    let mut until = |world: &mut SwarmWorld, looping: &mut Loop, end_ms: u64| {
        while world.now_ns < end_ms * 1_000_000 && turns < TURNS && !ended {
            turns += 1;
            if seed.is_multiple_of(RELOADED) && turns.is_multiple_of(RELOAD_TURNS) {
                looping.reload(world);
            }
            let before = events.len();
            if let Err(error) = looping.step(world, &mut events) {
                world.violations.add(|| format!("it ended: {error}"));
                ended = true;
            }
            world.judge_idle(&events[before..]);
        }
        if turns >= TURNS {
            world.violations.add(|| "time does not pass".into());
        }
    };
    until(&mut world, &mut looping, plan.faulty_ms);
    world.end_faults();
    let began_ms = world.now_ns / 1_000_000;
    if !plan.classes.is_empty() {
        let judged_ms = world.judge_shares_from();
        until(&mut world, &mut looping, judged_ms);
        world.check_shares(false);
    }
    if !plan.many_mappings {
        let fit = fits(&world, &plan, &looping.visitors());
        let home_ms = match plan.balance {
            true => BALANCED_MS,
            false => HOME_MS + world.pays_back_ms(),
        };
        let mut now_ms = began_ms;
        while fit && promised(&plan) && now_ms < began_ms + home_ms {
            now_ms += STEP_MS;
            until(&mut world, &mut looping, now_ms);
            if at_home(&world, &plan, &looping.visitors()).1.is_empty() {
                break;
            }
        }
        let there = check_home(&mut world, &plan, &looping.visitors(), fit);
        until(&mut world, &mut looping, now_ms + STAY_MS);
        if fit && promised(&plan) {
            check_stay(&mut world, &plan, &looping.visitors(), &there);
        }
    }
    if !plan.classes.is_empty() {
        world.check_shares(true);
    }
    check_rate(&mut world.violations, &plan, &events);
    if let Err(error) = looping.finish(&mut world) {
        world.violations.add(|| format!("it does not end: {error}"));
    }
    world.check_given_back();
    for ((pid, page), home) in looping.visitors() {
        world.check_came_home(pid, page, home);
    }
    Ran {
        events,
        violations: world.violations.0,
        coverage: world.coverage,
    }
}

type Visitors = BTreeMap<(u32, VirtualPage), NodeId>;

/// Where each hot page of `process` is that may be where it should be, and where that is: with
/// tiering any node of the top tier, with balancing the node of its thread. A page that commutes
/// is where it belongs, wherever it is at the moment: a hot one of slow memory visits fast memory
/// without being home.
fn homes<'a>(
    world: &'a SwarmWorld,
    plan: &'a Plan,
    process: &'a Process,
    visitors: &'a Visitors,
) -> impl Iterator<Item = (VirtualPage, NodeId, Vec<NodeId>)> + 'a {
    let top = world.machine.nodes.iter().filter(|node| node.top);
    let top: Vec<NodeId> = top.map(|node| node.id).collect();
    let threads = process.threads.len();
    let part = process.hot.len().div_ceil(threads.max(1)).max(1);
    let pages = process
        .hot
        .iter()
        .enumerate()
        .map(|(n, page)| (n, VirtualPage(*page)));
    pages.filter_map(move |(n, page)| {
        let at = process.node(page)?;
        let at = *visitors.get(&(process.id.pid, page)).unwrap_or(&at);
        // A bound keeps hot pages away, and those of others may have to leave for who is
        // protected.
        if !plan.classes.is_empty() && !plan.balance {
            return None;
        }
        let wanted = match plan.balance {
            true => vec![process.threads[n / part].node],
            false => top.clone(),
        };
        let may = |node: &NodeId| process.memory.may_move(page, *node).is_ok();
        wanted.iter().all(may).then_some((page, at, wanted))
    })
}

/// Whether hot pages that are away fit where they should be, and nobody else's
/// pages must leave for them. Pages in use now and then may be hot enough for the
/// gate, too, so that room for them is asked for as well.
fn fits(world: &SwarmWorld, plan: &Plan, visitors: &Visitors) -> bool {
    let mut away: BTreeMap<NodeId, u64> = BTreeMap::new();
    for process in &world.machine.processes {
        for (_, at, wanted) in homes(world, plan, process, visitors) {
            if !wanted.contains(&at) {
                for node in wanted {
                    *away.entry(node).or_default() += 1;
                }
            }
        }
    }
    if !plan.balance {
        let warm = world.machine.processes.iter().flat_map(|process| {
            let nodes = process
                .warm
                .iter()
                .filter_map(|page| process.node(VirtualPage(*page)));
            nodes.filter(|node| !world.machine.node(*node).top)
        });
        let warm = warm.count() as u64;
        away.values_mut().for_each(|pages| *pages += warm);
    }
    let headroom = match plan.balance {
        true => plan.balancing.headroom.0 >> 12,
        false => plan.tier.headroom.0 >> 12,
    };
    let commuting = 2 * world.machine.processes.len() as u64;
    let fits = |(node, pages): (&NodeId, &u64)| {
        world.machine.node(*node).room() > pages + headroom + commuting
    };
    !away.is_empty() && away.iter().all(fits)
}

/// Whether the options promise that hot pages come home at all.
fn promised(plan: &Plan) -> bool {
    match plan.balance {
        // Where threads are moved, pages need not be.
        true => !plan.balancing.dry_run && plan.balancing.tasks.is_none(),
        // The other gate promises only what pays.
        false => !plan.tier.dry_run && plan.tier.gate == TierGate::Pghot,
    }
}

type Home = BTreeSet<(u32, VirtualPage)>;

/// The hot pages that are home, and those that should be.
fn at_home(world: &SwarmWorld, plan: &Plan, visitors: &Visitors) -> (Home, Home) {
    let (mut there, mut away) = (Home::new(), Home::new());
    for process in &world.machine.processes {
        for (page, at, wanted) in homes(world, plan, process, visitors) {
            let side = match wanted.contains(&at) {
                true => &mut there,
                false => &mut away,
            };
            side.insert((process.id.pid, page));
        }
    }
    (there, away)
}

fn check_home(world: &mut SwarmWorld, plan: &Plan, visitors: &Visitors, fit: bool) -> Home {
    let (there, away) = at_home(world, plan, visitors);
    if fit && promised(plan) {
        world.coverage.came_home += 1;
        if let Some((pid, page)) = away.first() {
            let (away, home) = (away.len(), there.len());
            let text = || {
                format!(
                    "{away} hot pages that fit did not come home, {home} are; the first is page {} of {pid}",
                    page.0
                )
            };
            world.violations.add(text);
        }
    }
    there
}

/// What is home and in use all the time stays.
fn check_stay(world: &mut SwarmWorld, plan: &Plan, visitors: &Visitors, before: &Home) {
    let (there, _) = at_home(world, plan, visitors);
    let left = before.difference(&there).count();
    if left > 0 {
        world
            .violations
            .add(|| format!("{left} hot pages were home and left again"));
    }
}

/// The gate's seconds begin when they like: two of them may touch one of ours.
fn check_rate(violations: &mut Violations, plan: &Plan, events: &[(Millis, Event)]) {
    if plan.balance {
        return;
    }
    let limit = plan.tier.rate_limit.0 >> 12;
    let mut rates: BTreeMap<NodeId, Allowance> = BTreeMap::new();
    for (at, event) in events {
        let (to, pages) = match event {
            Event::MovedPages(moved) if moved.direction == Some(Direction::Promotion) => {
                (moved.to, moved.pages)
            }
            Event::Moved {
                direction: Some(Direction::Promotion),
                dry_run: false,
                range,
                to,
                ..
            } => (*to, range.pages),
            _ => continue,
        };
        let rate = rates
            .entry(to)
            .or_insert_with(|| Allowance::new(limit.div_ceil(1000), 2 * limit));
        if let Some(over) = rate.used(at.0, pages, 0) {
            violations.add(|| format!("at {} ms {over} pages too many went up", at.0));
        }
    }
}
