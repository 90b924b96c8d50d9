//! The loop in virtual time.

use super::*;
use crate::options::{BalanceOptions, BalanceTasks};
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::world::{Outcome, ThreadId, ThreadSeen};
use memtide_core::balancing::TaskId;
use memtide_core::balancing::sampled::TaskMove;
use memtide_core::units::NodeId;

const FIRST: u64 = 0x10;

/// Process 7 has 64 pages on node 1, and a thread that runs on CPU 0 of node 0.
fn world() -> FakeWorld {
    let mut world = FakeWorld::two_nodes(1000, 1000);
    world.processes.push(FakeProcess::new(7, FIRST, 64, SLOW));
    let thread = ThreadId {
        pid: 7,
        tid: 8,
        start_ticks: 700,
    };
    let runtime_ns = 60_000_000_000;
    world.threads.push(ThreadSeen { thread, runtime_ns });
    world
}

fn balancer(world: &mut FakeWorld, options: &BalanceOptions) -> Balancer {
    let config = BalanceConfig::new(options, world.page(), false).unwrap();
    Balancer::new(world, config).unwrap()
}

fn options() -> BalanceOptions {
    BalanceOptions {
        headroom: "0".parse().unwrap(),
        ..BalanceOptions::DEFAULT
    }
}

/// The thread touches all pages every 50 ms, for so long.
fn run(balancer: &mut Balancer, world: &mut FakeWorld, ms: u64) -> Vec<(Millis, Event)> {
    let mut events = Vec::new();
    let end = world.now().0 + ms;
    while world.now().0 < end {
        world.samples = (0..64)
            .map(|page| Sample {
                source: SourceId(0),
                pid: 7,
                tid: 8,
                cpu: 0,
                address: (FIRST + page) << 12,
            })
            .collect();
        world.threads[0].runtime_ns += 50_000_000;
        balancer.step(world, &mut events).unwrap();
    }
    events
}

/// The thread is to run on node 1, whatever the core thinks of it.
fn place(balancer: &mut Balancer, world: &mut FakeWorld) {
    let mut tasks = (0..9).map(TaskId);
    let known = tasks.find(|task| balancer.tasks.threads.of_task(*task).is_some());
    let wanted = TaskMove {
        task: known.unwrap(),
        to: SLOW,
        group: None,
        there: 9,
        all: 10,
    };
    let Balancer { tasks, shared, .. } = balancer;
    tasks.place(world, shared, &[wanted], &mut Vec::new());
}

#[test]
fn pages_come_to_the_node_that_uses_them() {
    let mut world = world();
    let mut balancer = balancer(&mut world, &options());
    let events = run(&mut balancer, &mut world, 20_000);
    assert_eq!(world.process(7).on(FAST), 64);
    let status = balancer.status(&mut world).balancing.unwrap();
    assert_eq!(status.moved_pages, 64);
    assert_eq!(status.tasks, 1);
    let moved = events.iter().filter_map(|(_, event)| match event {
        Event::MovedPages(moved) => Some((moved.from, moved.to, moved.pages, moved.direction)),
        _ => None,
    });
    assert!(
        moved
            .clone()
            .all(|(from, to, _, way)| (from, to, way) == (SLOW, FAST, None))
    );
    assert_eq!(moved.map(|(_, _, pages, _)| pages).sum::<u64>(), 64);
}

#[test]
fn what_its_owner_forbids_stays() {
    let mut world = world();
    world.process(7).memory.cpuset = [SLOW].into_iter().collect();
    let mut balancer = balancer(&mut world, &options());
    run(&mut balancer, &mut world, 20_000);
    assert!(world.tried.is_empty());
    assert!(
        balancer
            .status(&mut world)
            .balancing
            .unwrap()
            .forbidden_pages
            > 0
    );
}

#[test]
fn refusals_are_counted_and_told_of() {
    let mut world = world();
    let page = memtide_core::tiering::space::VirtualPage(FIRST + 3);
    world.refuse.insert((7, page), Outcome::Shared);
    let explain = BalanceOptions {
        explain: true,
        ..options()
    };
    let mut balancer = balancer(&mut world, &explain);
    let events = run(&mut balancer, &mut world, 20_000);
    assert_eq!(world.process(7).on(FAST), 63);
    let stayed = events.iter().find_map(|(_, event)| match event {
        Event::Stayed {
            range, node, to, ..
        } => Some((range.address, *node, *to)),
        _ => None,
    });
    assert_eq!(stayed, Some((page.0 << 12, SLOW, Some(FAST))));
    assert_eq!(balancer.status(&mut world).failed_pages, 1);
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut world = world();
    let dry = BalanceOptions {
        dry_run: true,
        tasks: Some(BalanceTasks::Set),
        ..options()
    };
    let mut balancer = balancer(&mut world, &dry);
    run(&mut balancer, &mut world, 30_000);
    assert!(world.tried.is_empty() && world.lent.is_empty());
    assert!(balancer.status(&mut world).balancing.unwrap().moved_pages > 0);
}

#[test]
fn what_was_lent_is_given_back() {
    let mut world = world();
    let set = BalanceOptions {
        tasks: Some(BalanceTasks::Set),
        ..options()
    };
    let mut balancer = balancer(&mut world, &set);
    run(&mut balancer, &mut world, 1_000);
    place(&mut balancer, &mut world);
    assert_eq!(world.lent(), 1);
    assert_eq!(balancer.finish(&mut world).unwrap(), 1);
    assert!(world.lent.is_empty() && world.closed);
}

#[test]
fn turns_that_cost_more_than_a_rest_repays_stay_within_the_limit() {
    let mut world = world();
    // 20 ms a turn at 1 % of a CPU: 2 s of rest each, in pieces of 250 ms.
    world.wait_cpu_ns = 20_000_000;
    let one_percent = BalanceOptions {
        cpu_limit: "1".parse().unwrap(),
        ..options()
    };
    let mut balancer = balancer(&mut world, &one_percent);
    run(&mut balancer, &mut world, 600_000);
    // 1 % of 600 s, what 20 s save up, and one turn.
    let most_ns = 6_000_000_000 + 200_000_000 + 20_000_000;
    let used_ns = world.cpu_ns;
    assert!(used_ns <= most_ns + 10_000_000, "{used_ns}");
    assert!(used_ns >= 5_500_000_000, "{used_ns}");
}

/// All of a process's memory is out of place, and all of it is used all the time.
fn everything_away(pages: u64) -> FakeWorld {
    let mut world = FakeWorld::two_nodes(2 * pages, 2 * pages);
    world
        .processes
        .push(FakeProcess::new(7, FIRST, pages, SLOW));
    let thread = ThreadId {
        pid: 7,
        tid: 8,
        start_ticks: 700,
    };
    let runtime_ns = 60_000_000_000;
    world.threads.push(ThreadSeen { thread, runtime_ns });
    world
}

/// When all of it was at home, by turns after each of which `check` is asked.
fn home_at(world: &mut FakeWorld, pages: u64, check: impl Fn(&FakeWorld)) -> Millis {
    let two_percent = BalanceOptions {
        cpu_limit: "2".parse().unwrap(),
        ..options()
    };
    let mut balancer = balancer(world, &two_percent);
    let mut events = Vec::new();
    while world.process(7).on(FAST) < pages {
        let accessed = (0..pages).map(|page| Sample {
            source: SourceId(0),
            pid: 7,
            tid: 8,
            cpu: 0,
            address: (FIRST + page) << 12,
        });
        world.samples = accessed.collect();
        world.threads[0].runtime_ns += 50_000_000;
        balancer.step(world, &mut events).unwrap();
        check(world);
        assert!(world.now().0 < 1_000_000, "{}", world.process(7).on(FAST));
    }
    world.now()
}

#[test]
fn a_turn_moves_no_more_than_it_can_pay_for() {
    let mut world = everything_away(16_384);
    // All of it costs 1.6 s of CPU time; 2 % of a CPU have 0.4 s in hand.
    world.move_cpu_ns = 100_000;
    home_at(&mut world, 16_384, |world| {
        // 2 % of the time and of 20 s, and the least that a turn moves.
        let may_ns = (world.now_ns + 20_000_000_000) / 50 + 512 * world.move_cpu_ns;
        assert!(world.cpu_ns <= may_ns, "{} of {may_ns} ns", world.cpu_ns);
    });
}

#[test]
fn moves_get_as_much_as_hearing_of_pages() {
    let mut world = everything_away(16_384);
    world.move_cpu_ns = 100_000;
    world.wait_cpu_ns = 200_000_000;
    let at = home_at(&mut world, 16_384, |_| {});
    // Moving takes 1.6 s, hearing as much beside it: 164 s at 2 %, less what was in
    // hand, and a turn that came to little.
    assert!(at.0 <= 190_000, "{at:?}");
}

#[test]
fn what_prepares_the_work_leaves_something_for_it() {
    let mut world = world();
    // Each turn would use up what the rest before it earned, and come to nothing.
    world.provoke_cpu_ns = 30_000_000;
    world.wait_cpu_ns = 1_000_000;
    let one_percent = BalanceOptions {
        cpu_limit: "1".parse().unwrap(),
        ..options()
    };
    let mut balancer = balancer(&mut world, &one_percent);
    run(&mut balancer, &mut world, 600_000);
    let spent = balancer.status(&mut world).balancing.unwrap().spent;
    // A quarter of what is earned in 600 s, and half of the savings without a pause.
    let most_ns = 6_000_000_000 / 4 + 100_000_000 + 2 * 30_000_000;
    assert!(spent.protect_ns <= most_ns, "{spent:?}");
    assert!(spent.samples_ns >= 6_000_000_000 / 2, "{spent:?}");
}

/// The node behind both.
const BEHIND: NodeId = NodeId(2);

/// As [`world`], with a slow node. What process 7 has is of no class.
fn tiered_world() -> FakeWorld {
    let (like, mut world) = (world(), FakeWorld::two_nodes_and_slow(1000));
    world.processes = like.processes;
    world.threads = like.threads;
    world
}

/// One beside tiering, for these classes and for all others or not.
fn beside_tiering(world: &mut FakeWorld, classes: &str, others: bool) -> Balancer {
    let config = BalanceConfig::new(&options(), world.page(), false).unwrap();
    let classes = toml::from_str(classes).unwrap();
    let config = config.beside_tiering(&classes, others, 0);
    Balancer::new(world, config).unwrap()
}

#[test]
fn beside_tiering_what_is_slow_stays() {
    let mut world = tiered_world();
    let pages = world.process(7).pages.values_mut();
    pages.skip(32).for_each(|node| *node = BEHIND);
    let mut balancer = beside_tiering(&mut world, "", true);
    run(&mut balancer, &mut world, 20_000);
    assert_eq!(
        (world.process(7).on(FAST), world.process(7).on(BEHIND)),
        (32, 32)
    );
    // Accesses to slow memory say nothing of where a thread should run.
    let status = balancer.status(&mut world).balancing.unwrap();
    assert_eq!((status.moved_pages, status.forbidden_pages), (32, 0));
}

/// It was located on a fast node, and tiering demoted it before it was its turn.
#[test]
fn what_tiering_has_demoted_stays_down() {
    let tried = |beside: bool| {
        let mut world = tiered_world();
        let mut balancer = match beside {
            true => beside_tiering(&mut world, "", true),
            false => balancer(&mut world, &options()),
        };
        // Where they are wanted there is no room yet.
        world.capacity.insert(FAST, 0);
        run(&mut balancer, &mut world, 50);
        let pages = world.process(7).pages.values_mut();
        pages.for_each(|node| *node = BEHIND);
        world.capacity.insert(FAST, 1000);
        run(&mut balancer, &mut world, 5_000);
        world.tried.len()
    };
    assert_eq!(tried(true), 0);
    assert!(tried(false) > 0);
}

#[test]
fn only_processes_of_classes_that_say_so_are_balanced() {
    const CLASSES: &str =
        "[a]\nbalance = true\n[b]\n[c]\nbalance = false\n[d]\nleave_alone = true\n";
    let home = |class: Option<u32>, others: bool| {
        let mut world = tiered_world();
        world.process(7).class = class.map(ClassId);
        let mut balancer = beside_tiering(&mut world, CLASSES, others);
        run(&mut balancer, &mut world, 20_000);
        let processes = balancer.status(&mut world).processes;
        assert_eq!(processes == 1, world.process(7).on(FAST) == 64);
        processes == 1
    };
    let classes = [None, Some(0), Some(1), Some(2), Some(3)];
    assert_eq!(
        classes.map(|class| home(class, false)),
        [false, true, false, false, false]
    );
    assert_eq!(
        classes.map(|class| home(class, true)),
        [true, true, true, false, false]
    );
}

#[test]
fn a_process_that_comes_into_another_class_is_balanced_no_more() {
    let mut world = tiered_world();
    world.process(7).class = Some(ClassId(0));
    let mut balancer = beside_tiering(&mut world, "[a]\nbalance = true\n", false);
    world.capacity.insert(FAST, 0);
    run(&mut balancer, &mut world, 50);
    world.process(7).class = None;
    world.capacity.insert(FAST, 1000);
    run(&mut balancer, &mut world, 20_000);
    assert_eq!(
        (
            balancer.status(&mut world).processes,
            world.process(7).on(FAST)
        ),
        (0, 0)
    );
}

/// Its thread is placed, and then the process leaves its class.
#[test]
fn a_process_that_leaves_its_class_has_its_cpus_back_at_once() {
    let mut world = tiered_world();
    world.process(7).class = Some(ClassId(0));
    let classes = toml::from_str("[a]\nbalance = true\n").unwrap();
    let config = BalanceConfig::new(&options(), world.page(), false).unwrap();
    let config = BalanceConfig {
        tasks: Tasks::Set,
        ..config.beside_tiering(&classes, false, 0)
    };
    let mut balancer = Balancer::new(&mut world, config).unwrap();
    run(&mut balancer, &mut world, 1_000);
    place(&mut balancer, &mut world);
    assert_eq!(world.lent(), 1);
    world.process(7).class = None;
    run(&mut balancer, &mut world, 5_000);
    assert_eq!(world.lent(), 0);
}

#[test]
fn what_is_paused_stays_until_it_is_resumed() {
    let mut world = tiered_world();
    world.process(7).class = Some(ClassId(0));
    let mut balancer = beside_tiering(&mut world, "[a]\nbalance = true\n", false);
    balancer.pause(ClassId(0), true);
    run(&mut balancer, &mut world, 20_000);
    assert!(world.tried.is_empty());
    balancer.pause(ClassId(0), false);
    run(&mut balancer, &mut world, 20_000);
    assert_eq!(world.process(7).on(FAST), 64);
}

/// What is filled beyond tiering's headroom would be demoted.
#[test]
fn beside_tiering_its_headroom_stays_free() {
    let config = BalanceConfig::new(&options(), FakeWorld::two_nodes(1, 1).page(), false).unwrap();
    let headroom = |own, of_tiering| {
        let config = BalanceConfig {
            headroom: own,
            ..config.clone()
        };
        config
            .beside_tiering(&Default::default(), true, of_tiering)
            .headroom
    };
    assert_eq!((headroom(5, 7), headroom(7, 5)), (7, 7));
}
