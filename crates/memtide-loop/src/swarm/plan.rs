//! What a seed draws: a machine, programs, options, and faults at their times.
//!
//! All of it is drawn before the run begins, as a list. So parts of it can be left
//! out, and what remains happens as before: that is how a failing seed is made
//! smaller.

use crate::options::{
    BalanceOptions, BalanceTasks, CpuLimit, IdleOnly, Percent, Size, TierGate, TierOptions, Window,
};
use crate::random::Random;
use crate::world::{Allowed, Area, ClassId, Fixed, MemoryKind, Outcome};
use memtide_core::nodemask::NodeMask;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::NodeId;
use std::collections::BTreeSet;

/// The outcomes with which a move fails.
pub(super) const FAILURES: [Outcome; 10] = [
    Outcome::NotPresent,
    Outcome::ZeroOrUnmapped,
    Outcome::Shared,
    Outcome::Busy,
    Outcome::NoMemory,
    Outcome::NotAllowed,
    Outcome::NoSuchNode,
    Outcome::NotPermitted,
    Outcome::ProcessGone,
    Outcome::Failed(5),
];

/// Mappings of the program that has many.
const MANY: u64 = 100_000;

/// A node of the machine.
#[derive(Clone, Debug)]
pub(super) struct NodePlan {
    pub id: NodeId,
    /// Pages beyond its watermark.
    pub pages: u64,
    /// Whether it has CPUs, and so is of the top tier.
    pub cpus: bool,
}

/// A program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub pid: u32,
    pub born_ms: u64,
    pub areas: Vec<Area>,
    pub cpuset: NodeMask,
    /// One page in so many of its memory begins on a top-tier node.
    pub fast_one_in: u64,
    /// Which pages it uses all the time: each so-manieth from an offset on, so many.
    pub hot: (u64, u64, u64),
    /// One page in so many is touched in a quarter of the passes; none if 0.
    pub warm_one_in: u64,
    /// Threads, by the node on which they run: each uses its part of the hot pages.
    pub threads: Vec<NodeId>,
}

/// Something that goes wrong, or changes, at its time.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// One move in so many fails with an outcome of [`FAILURES`], for a while.
    Moves {
        outcome: usize,
        one_in: u64,
        for_ms: u64,
    },
    /// Others take this share of a node's free pages, in percent, for a while.
    Full {
        node: usize,
        percent: u64,
        for_ms: u64,
    },
    /// A program ends.
    Dies { pid: u32 },
    /// A program ends, and another one has its pid at once.
    Replaced { pid: u32 },
    /// Whichever process the n-th call from now on names ends in it.
    DiesWithin { calls: u64, replaced: bool },
    /// One report in so many is lost, for a while.
    Lost { one_in: u64, for_ms: u64 },
    /// The source that is listened to breaks.
    Breaks,
    /// Passes take fifty times as long as planned, and cost as much more.
    Slow { for_ms: u64 },
    /// A node goes offline for a while, if its pages fit elsewhere.
    Offline { node: usize, for_ms: u64 },
    /// The clock stands still for so many turns.
    Still { turns: u64 },
    /// The clock leaps.
    Leap { ms: u64 },
    /// A program uses other pages.
    OtherHot { pid: u32, hot: (u64, u64, u64) },
    /// One page in so many of a program is swapped out, until faults end.
    Swapped { pid: u32, one_in: u64 },
}

/// A time in which programs wait for memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub from_ms: u64,
    pub to_ms: u64,
    /// In such a part of it some task of the machine waits, in thousandths.
    pub machine_permille: u64,
    /// Likewise of the first class; of others more.
    pub class_permille: u64,
}

/// All that a seed draws.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub seed: u64,
    /// Balancing instead of tiering.
    pub balance: bool,
    pub nodes: Vec<NodePlan>,
    pub programs: Vec<Program>,
    pub tier: TierOptions,
    pub balancing: BalanceOptions,
    /// Pages that a look takes in.
    pub look_pages: u64,
    /// What a page costs in a pass of a look, in ns.
    pub page_ns: u64,
    /// Whether sources cut spans into pieces, and which of them offer glances.
    pub cuts: bool,
    pub glances: [bool; 3],
    /// Until when faults happen, in ms.
    pub faulty_ms: u64,
    pub faults: Vec<(u64, Fault)>,
    /// Whether a program has very many mappings.
    pub many_mappings: bool,
    /// Classes with shares of fast memory: what is protected, and the bound, in
    /// pages. A program belongs to the class that its pid says.
    pub classes: Vec<(u64, Option<u64>)>,
    /// Whether the second class lies within the first.
    pub nested: bool,
    /// When programs wait for memory; where they never do nobody can tell.
    pub waits: Vec<Waits>,
}

impl Plan {
    /// What `seed` draws.
    pub fn draw(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let balance = random.below(4) == 0;
        let many_mappings = random.below(100) == 0;
        let nodes = nodes(&mut random, balance);
        let faulty_ms = if many_mappings { 10_000 } else { 40_000 };
        let programs: Vec<Program> = (0..1 + random.below(5) as u32)
            .map(|n| program(&mut random, 7 + n, &nodes, balance, faulty_ms))
            .collect();
        let mut plan = Plan {
            seed,
            balance,
            tier: idle_options(seed, tier_options(&mut random)),
            balancing: balance_options(&mut random),
            look_pages: match random.below(2) {
                0 => 1 << 18,
                // A search looks at whole blocks.
                _ => 512 + random.below(1500),
            },
            page_ns: [500, 2_000, 20_000][random.below(3) as usize],
            cuts: random.below(2) == 0,
            glances: [random.below(4) > 0, random.below(4) > 0, true],
            faulty_ms,
            faults: Vec::new(),
            many_mappings,
            classes: classes(seed, &nodes),
            nested: (seed / 2).is_multiple_of(2),
            waits: waits(seed, faulty_ms),
            nodes,
            programs,
        };
        if plan.balance || many_mappings {
            plan.classes.clear();
            plan.waits.clear();
        }
        if many_mappings {
            let all = &plan.nodes;
            let policies = [Allowed::Anywhere, Allowed::Never(Fixed::Interleaved)];
            let program = &mut plan.programs[0];
            program.cpuset = all.iter().map(|node| node.id).collect();
            program.areas = (0..MANY)
                .map(|n| area((1 << 20) + n * 2, 1, policies[(n % 2) as usize].clone()))
                .collect();
            plan.nodes.iter_mut().for_each(|node| node.pages += MANY);
        }
        let most = if many_mappings { 5 } else { 25 };
        for _ in 0..random.below(most) {
            let at = random.below(faulty_ms);
            let fault = fault(&mut random, &plan);
            plan.faults.push((at, fault));
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    /// The class of the programs with this pid.
    pub fn class(&self, pid: u32) -> Option<ClassId> {
        // One place more than there are classes: some are in none.
        let class = pid % (self.classes.len() as u32 + 1);
        (class < self.classes.len() as u32).then_some(ClassId(class))
    }

    /// The class that contains `class`.
    pub fn within(&self, class: ClassId) -> Option<ClassId> {
        (self.nested && class == ClassId(1)).then_some(ClassId(0))
    }

    /// `class` and those that contain it.
    pub fn path(&self, class: ClassId) -> impl Iterator<Item = ClassId> {
        std::iter::successors(Some(class), |class| self.within(*class))
    }

    /// How many things can be left out.
    pub fn items(&self) -> usize {
        self.faults.len() + self.programs.len()
    }

    /// What it is, for people.
    pub fn things(&self) -> Vec<String> {
        let nodes = self.nodes.iter().map(|node| {
            let cpus = if node.cpus { "with" } else { "without" };
            format!("node {}: {} pages, {cpus} CPUs", node.id, node.pages)
        });
        let options = match self.balance {
            true => format!("{:?}", self.balancing),
            false => format!(
                "{:?}, looks take {}, classes {:?} (nested: {}), {:?}",
                self.tier, self.look_pages, self.classes, self.nested, self.waits
            ),
        };
        let faults = self.faults.iter();
        let faults = faults.map(|(at, fault)| format!("at {at} ms: {fault:?}"));
        let programs = self.programs.iter().map(|program| {
            let pages: u64 = program.areas.iter().map(|area| area.pages).sum();
            format!(
                "program {} from {} ms on: {} areas, {pages} pages, hot {:?}, threads {:?}",
                program.pid,
                program.born_ms,
                program.areas.len(),
                program.hot,
                program.threads,
            )
        });
        nodes
            .chain([options])
            .chain(faults)
            .chain(programs)
            .collect()
    }

    /// Only the things with these numbers: faults first, then programs.
    pub fn only(&mut self, keep: &BTreeSet<usize>) {
        let faults = self.faults.len();
        let mut n = 0;
        self.faults.retain(|_| {
            n += 1;
            keep.contains(&(n - 1))
        });
        let mut n = faults;
        self.programs.retain(|_| {
            n += 1;
            keep.contains(&(n - 1))
        });
    }
}

fn nodes(random: &mut Random, balance: bool) -> Vec<NodePlan> {
    let (top, lower) = match balance {
        true => (2 + random.below(2), 0),
        false => (1 + random.below(4) / 3, 1 + random.below(4) / 3),
    };
    (0..top + lower)
        .map(|n| NodePlan {
            id: NodeId(n as u16),
            pages: match n < top {
                true => 100 + random.below(1500),
                false => 600 + random.below(2500),
            },
            cpus: n < top,
        })
        .collect()
}

/// From another source of numbers, so that what else a seed draws does not hang on it.
fn classes(seed: u64, nodes: &[NodePlan]) -> Vec<(u64, Option<u64>)> {
    let mut random = Random::new(seed ^ 0x5368_6172_6573);
    let top: u64 = nodes
        .iter()
        .filter(|node| node.cpus)
        .map(|node| node.pages)
        .sum();
    let count = [1, 2, 0, 0, 0, 0][random.below(6) as usize];
    let class = |_| {
        let high = 20 + random.below(top.min(400));
        match random.below(3) {
            0 => (random.below(top), None),
            1 => (0, Some(high)),
            _ => (random.below(high / 2), Some(high)),
        }
    };
    (0..count).map(class).collect()
}

/// In one of four seeds, likewise.
fn waits(seed: u64, faulty_ms: u64) -> Vec<Waits> {
    let mut random = Random::new(seed ^ 0x7374_616c_6c73);
    if random.below(4) > 0 {
        return Vec::new();
    }
    let parts = [0, 20, 80, 300, 900];
    let mut part = || parts[random.below(parts.len() as u64) as usize];
    let parts: Vec<(u64, u64)> = (0..3).map(|_| (part(), part() / 2)).collect();
    let waits = |(n, (machine_permille, class_permille)): (u64, (u64, u64))| {
        let from_ms = n * faulty_ms / 3 + random.below(faulty_ms / 6);
        Waits {
            from_ms,
            to_ms: from_ms + 1 + random.below(faulty_ms / 3),
            machine_permille,
            class_permille,
        }
    };
    (0..).zip(parts).map(waits).collect()
}

fn area(first: u64, pages: u64, allowed: Allowed) -> Area {
    Area {
        first: VirtualPage(first),
        pages,
        allowed,
        kind: MemoryKind::Anonymous,
        backing: None,
        counted: None,
    }
}

fn allowed(random: &mut Random, nodes: &[NodePlan]) -> Allowed {
    match random.below(6) {
        0 => {
            let one = nodes[random.below(nodes.len() as u64) as usize].id;
            Allowed::Nodes(Box::new([one].into_iter().collect()))
        }
        1 => Allowed::Never(Fixed::Interleaved),
        _ => Allowed::Anywhere,
    }
}

fn program(
    random: &mut Random,
    pid: u32,
    nodes: &[NodePlan],
    balance: bool,
    faulty_ms: u64,
) -> Program {
    let pages = 20 + random.below(500);
    let first = 512 * (1 + random.below(200));
    let areas = match random.below(3) {
        0 => {
            let length = 1 + random.below(32);
            (first..first + pages)
                .step_by(length as usize)
                .map(|at| area(at, length.min(first + pages - at), allowed(random, nodes)))
                .collect()
        }
        1 => vec![area(first, pages, allowed(random, nodes))],
        _ => vec![area(first, pages, Allowed::Anywhere)],
    };
    let all = nodes.iter().map(|node| node.id);
    let cpuset = match random.below(6) {
        0 => {
            let out = random.below(nodes.len() as u64) as usize;
            all.filter(|node| *node != nodes[out].id).collect()
        }
        _ => all.collect(),
    };
    let born_ms = match random.below(3) {
        0 => random.below(faulty_ms),
        _ => 0,
    };
    let threads = 1 + random.below(3);
    let threads: Vec<NodeId> = (0..threads)
        .map(|_| NodeId(random.below(2) as u16))
        .collect();
    Program {
        pid,
        born_ms,
        areas,
        cpuset,
        fast_one_in: 2 + random.below(10),
        hot: hot(random, pages),
        warm_one_in: random.below(3) * 7,
        threads: match balance {
            true => threads,
            false => Vec::new(),
        },
    }
}

fn hot(random: &mut Random, pages: u64) -> (u64, u64, u64) {
    let offset = random.below(pages.max(1));
    match random.below(4) {
        0 => (1, offset, 0),
        1 => (7, offset % 7, pages),
        2 => (1, offset / 2, pages / 3),
        _ => (1, offset, 30),
    }
}

fn tier_options(random: &mut Random) -> TierOptions {
    TierOptions {
        gate: match random.below(4) {
            0 => TierGate::ThresholdFree,
            _ => TierGate::Pghot,
        },
        rate_limit: Size([1 << 20, 2 << 20, 4 << 30][random.below(3) as usize]),
        headroom: Size(random.below(60) << 12),
        threshold: ["1", "2", "3"][random.below(3) as usize]
            .parse()
            .expect("a threshold"),
        window: Window::new([3000, 5000][random.below(2) as usize]),
        observe_cpu: Percent::new([1, 2, 5, 20][random.below(4) as usize]),
        dry_run: random.below(10) == 0,
        explain: random.below(4) == 0,
        ..TierOptions::DEFAULT
    }
}

/// In one of four seeds, idle pages leave. Drawn apart, so that seeds that drew no such
/// thing do what they always did.
fn idle_options(seed: u64, options: TierOptions) -> TierOptions {
    let mut random = Random::new(seed ^ 0x6964_6c65);
    if random.below(4) > 0 {
        return options;
    }
    let times = ["10s", "15s", "30s"];
    let time = times[random.below(times.len() as u64) as usize];
    TierOptions {
        demote_idle: Some(time.parse().expect("a time")),
        demote_idle_rate: Size([16 << 10, 1 << 20, 64 << 20][random.below(3) as usize]),
        demote_idle_only: [None, None, Some(IdleOnly::Anon)][random.below(3) as usize],
        // What left is judged by what is said of it.
        explain: true,
        ..options
    }
}

fn balance_options(random: &mut Random) -> BalanceOptions {
    BalanceOptions {
        headroom: Size(random.below(60) << 12),
        cpu_limit: CpuLimit::new([10, 20, 50][random.below(3) as usize]),
        tasks: match random.below(3) {
            0 => Some(BalanceTasks::Set),
            _ => None,
        },
        dry_run: random.below(10) == 0,
        explain: random.below(4) == 0,
        ..BalanceOptions::DEFAULT
    }
}

fn fault(random: &mut Random, plan: &Plan) -> Fault {
    let for_ms = 100 + random.below(20_000);
    let node = random.below(plan.nodes.len() as u64) as usize;
    let pid = 7 + random.below(plan.programs.len() as u64) as u32;
    match random.below(16) {
        0..=2 => Fault::Moves {
            outcome: random.below(FAILURES.len() as u64) as usize,
            one_in: 1 + random.below(20),
            for_ms,
        },
        3 => Fault::Full {
            node,
            percent: 50 + random.below(51),
            for_ms,
        },
        4 => Fault::Dies { pid },
        5 => Fault::Replaced { pid },
        6 | 7 => Fault::DiesWithin {
            calls: random.below(20),
            replaced: random.below(2) == 0,
        },
        8 => Fault::Lost {
            one_in: 1 + random.below(10),
            for_ms,
        },
        9 => Fault::Breaks,
        10 => Fault::Slow { for_ms },
        11 => Fault::Offline { node, for_ms },
        12 => Fault::Still {
            turns: 1 + random.below(50),
        },
        13 => Fault::Leap {
            ms: random.below(100_000),
        },
        14 => Fault::OtherHot {
            pid,
            hot: hot(random, 200),
        },
        _ => Fault::Swapped {
            pid,
            one_in: 1 + random.below(8),
        },
    }
}
