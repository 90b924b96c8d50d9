//! The swarm: a seed draws a machine, programs, options and faults, and the
//! loop has to keep its promises.
//!
//! A run has two parts. In the first everything may fail. In the second nothing
//! does, and hot pages that fit must come home. [`run`] does one seed twice and
//! says what was wrong; [`Coverage`] says which faults were met.

mod world;

use crate::options::{Size, TierGate, TierOptions};
use crate::random::Random;
use crate::report::{Direction, Event};
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::tier::{TierConfig, Tierer};
use crate::world::{Allowed, Area, Fixed, MemoryKind, SourceId, World};
use memtide_core::nodemask::NodeMask;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::Millis;
use std::collections::BTreeMap;
use world::SwarmWorld;

/// How often each thing happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(pub BTreeMap<&'static str, u64>);

impl Coverage {
    /// Adds what another run met.
    pub fn add(&mut self, other: &Coverage) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }
}

/// A deliberate mistake, which the swarm has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Mempolicies are not read.
    IgnorePolicy,
    /// Cpusets are not read.
    IgnoreCpuset,
    /// Every node is taken to have room.
    IgnoreRoom,
    /// The headroom that was asked for is not kept.
    IgnoreHeadroom,
    /// Processes that are gone are kept.
    KeepGone,
    /// A dry run moves.
    DryRunMoves,
    /// The rate limit is not kept.
    NoRateLimit,
    /// Observing takes what it likes.
    NoCpuBudget,
    /// Choices do not come from the seed.
    OtherChoices,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Mistake; 9] = [
        Mistake::IgnorePolicy,
        Mistake::IgnoreCpuset,
        Mistake::IgnoreRoom,
        Mistake::IgnoreHeadroom,
        Mistake::KeepGone,
        Mistake::DryRunMoves,
        Mistake::NoRateLimit,
        Mistake::NoCpuBudget,
        Mistake::OtherChoices,
    ];
}

/// How long faults happen, in ms.
const FAULTY_MS: u64 = 60_000;
/// How long hot pages have to come home after that, in ms: stuck pages get
/// another chance every minute, and any process is surveyed every two.
const HOME_MS: u64 = 200_000;
/// Windows over which the rate limit is judged, in s.
const RATE_S: u64 = 10;
/// What observing has in hand at the beginning, in ns.
const IN_HAND_NS: u64 = 3_000_000_000;
/// Turns after which a run has failed to let time pass.
const TURNS: u64 = 200_000;

/// What one run did.
struct Ran {
    events: Vec<(Millis, Event)>,
    violations: Vec<String>,
    coverage: Coverage,
}

/// Runs `seed` twice.
///
/// # Errors
///
/// What was wrong, a line each.
pub fn run(seed: u64, mistake: Option<Mistake>) -> Result<Coverage, Vec<String>> {
    let one = once(seed, mistake, 0);
    if !one.violations.is_empty() {
        return Err(one.violations);
    }
    let salt = u64::from(mistake == Some(Mistake::OtherChoices));
    let other = once(seed, mistake, salt);
    if one.events != other.events {
        return Err(vec!["the same seed did something else".into()]);
    }
    Ok(one.coverage)
}

fn draw_process(random: &mut Random, pid: u32, room: &mut [u64; 2]) -> FakeProcess {
    let first = 512 * (1 + random.below(50));
    let most = (room[0] + room[1]).min(400);
    let pages = (20 + random.below(most.max(1))).min(room[1]);
    let mut process = FakeProcess::new(pid, first, pages, SLOW);
    room[1] -= pages;
    let fast = random.below(pages / 2 + 1).min(room[0] / 2);
    for node in process.pages.values_mut().take(fast as usize) {
        *node = FAST;
    }
    room[0] -= fast;
    room[1] += fast;
    process.hot = match random.below(4) {
        0 => Default::default(),
        1 => process.pages.keys().step_by(7).copied().collect(),
        2 => process
            .pages
            .keys()
            .rev()
            .take(pages as usize / 3)
            .copied()
            .collect(),
        _ => process
            .pages
            .keys()
            .skip(pages as usize / 4)
            .take(30)
            .copied()
            .collect(),
    };
    let bound = |node| Allowed::Nodes(Box::new([node].into_iter().collect::<NodeMask>()));
    let allowed = |random: &mut Random| match random.below(6) {
        0 => bound(SLOW),
        1 => bound(FAST),
        2 => Allowed::Never(Fixed::Interleaved),
        _ => Allowed::Anywhere,
    };
    // Many mappings, each with a policy of its own.
    if random.below(3) == 0 {
        let length = 1 + random.below(16);
        let starts = (first..first + pages).step_by(length as usize);
        process.memory.areas = starts
            .map(|start| Area {
                first: VirtualPage(start),
                pages: length.min(first + pages - start),
                allowed: allowed(random),
                kind: MemoryKind::Anonymous,
                backing: None,
            })
            .collect();
    } else if random.below(3) == 0 {
        process.memory.areas[0].allowed = allowed(random);
    }
    if random.below(6) == 0 {
        let node = if random.below(2) == 0 { FAST } else { SLOW };
        process.memory.cpuset = [node].into_iter().collect();
    }
    process
}

fn draw_options(random: &mut Random) -> TierOptions {
    TierOptions {
        gate: match random.below(4) {
            0 => TierGate::ThresholdFree,
            _ => TierGate::Pghot,
        },
        rate_limit: Size(match random.below(3) {
            0 => 1 << 20,
            1 => 2 << 20,
            _ => 4 << 30,
        }),
        headroom: Size(random.below(60) << 12),
        threshold: ["1", "2", "3"][random.below(3) as usize]
            .parse()
            .expect("a threshold"),
        dry_run: random.below(8) == 0,
        explain: random.below(2) == 0,
        ..TierOptions::DEFAULT
    }
}

fn once(seed: u64, mistake: Option<Mistake>, salt: u64) -> Ran {
    let mut random = Random::new(seed);
    let capacity = [100 + random.below(2000), 500 + random.below(3000)];
    let mut inner = FakeWorld::two_tiers(capacity[0], capacity[1]);
    // A pass takes the kernel up to a tenth of a millisecond a page.
    inner.page_ns = 1000 + random.below(100_000);
    let mut room = [capacity[0], capacity[1] * 3 / 4];
    for pid in 0..1 + random.below(5) as u32 {
        if room[1] > 40 {
            let process = draw_process(&mut random, 7 + pid, &mut room);
            inner.processes.push(process);
        }
    }
    let options = draw_options(&mut random);
    let failing = 2 + random.below(40);
    let mut world = SwarmWorld::new(inner, seed, failing);
    let (topology, page) = (world.topology().clone(), world.page());
    let mut config = TierConfig::new(&options, &topology, page, seed ^ salt).expect("good options");
    world.headroom = config.headroom;
    world.dry_run = options.dry_run;
    world.mistake = mistake;
    let limit = config.gate.rate_limit_mbps << 8;
    match mistake {
        Some(Mistake::IgnoreHeadroom) => config.headroom = 0,
        Some(Mistake::DryRunMoves) => config.dry_run = false,
        Some(Mistake::NoRateLimit) => config.gate.rate_limit_mbps = 1 << 12,
        Some(Mistake::NoCpuBudget) => config.cadence.share_permille = 1000,
        _ => {}
    }
    let mut tierer = Tierer::new(&mut world, config);
    let mut events = Vec::new();
    let mut turns = 0;
    let mut until = |world: &mut SwarmWorld, tierer: &mut Tierer, end_ms: u64| {
        while world.inner.now_ns < end_ms * 1_000_000 && turns < TURNS {
            turns += 1;
            if let Err(error) = tierer.step(world, &mut events) {
                world.violations.push(format!("it ended: {error}"));
                return;
            }
        }
        if turns >= TURNS {
            world.violations.push("time does not pass".into());
        }
    };
    until(&mut world, &mut tierer, FAULTY_MS);
    world.end_faults();
    let began_ms = world.inner.now_ns / 1_000_000;
    let missing = missing(&world);
    let free = world.inner.capacity[&FAST].saturating_sub(world.inner.used(FAST));
    let fit = free > missing + world.headroom + 2 * world.inner.processes.len() as u64;
    until(&mut world, &mut tierer, began_ms + HOME_MS);
    check_home(&mut world, &options, missing, fit);
    check_cpu(&mut world, &options);
    check_rate(&mut world, &events, limit);
    if let Err(error) = tierer.finish(&mut world) {
        world.violations.push(format!("it does not end: {error}"));
    }
    if !world.inner.closed {
        world.violations.push("sources were not closed".into());
    }
    Ran {
        events,
        violations: world.violations,
        coverage: world.coverage,
    }
}

/// Hot pages that may be on the fast node and are not.
fn missing(world: &SwarmWorld) -> u64 {
    let of = |process: &FakeProcess| {
        let away = |page: &&VirtualPage| {
            process.pages.get(page) == Some(&SLOW) && process.memory.may_move(**page, FAST).is_ok()
        };
        process.hot.iter().filter(away).count() as u64
    };
    world.inner.processes.iter().map(of).sum()
}

fn check_home(world: &mut SwarmWorld, options: &TierOptions, before: u64, fit: bool) {
    // The other gate promises only what pays.
    if options.dry_run || options.gate != TierGate::Pghot || before == 0 || !fit {
        return;
    }
    *world.coverage.0.entry("home was judged").or_default() += 1;
    let away = missing(world);
    if away > 0 {
        let text = format!("{away} of {before} hot pages that fit did not come home");
        world.violations.push(text);
    }
}

fn check_cpu(world: &mut SwarmWorld, options: &TierOptions) {
    let now_ns = world.inner.now_ns;
    let share = u64::from(options.observe_cpu.permille());
    let spent: u64 = (0..2)
        .map(|source| world.inner.source_status(SourceId(source)).kernel_cpu_ns)
        .sum();
    // A pass that was begun is paid for whatever it costs, by each source.
    let capacity: u64 = world.inner.capacity.values().sum();
    let pass_ns = capacity * world.inner.page_ns * 50;
    let most = now_ns / 1000 * share + IN_HAND_NS + 2 * pass_ns;
    if spent > most {
        let text = format!("observing took {spent} ns, where {most} ns are the most");
        world.violations.push(text);
    }
}

fn check_rate(world: &mut SwarmWorld, events: &[(Millis, Event)], limit: u64) {
    let mut windows: BTreeMap<u64, u64> = BTreeMap::new();
    for (at, event) in events {
        let pages = match event {
            Event::MovedPages(moved) if moved.direction == Some(Direction::Promotion) => {
                moved.pages
            }
            Event::Moved {
                direction: Some(Direction::Promotion),
                range,
                ..
            } => range.pages,
            _ => continue,
        };
        *windows.entry(at.0 / 1000 / RATE_S).or_default() += pages;
    }
    // The gate's seconds begin when they like: two more touch a window.
    let most = limit.saturating_mul(RATE_S + 2);
    if let Some((at, pages)) = windows.into_iter().find(|(_, pages)| *pages > most) {
        let text = format!(
            "{pages} pages went up in the {RATE_S} s from {} s",
            at * RATE_S
        );
        world.violations.push(text);
    }
}
