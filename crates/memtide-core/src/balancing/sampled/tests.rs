//! Two nodes with two CPUs each; pages lie where the tests say.

use super::super::balancer::{BalancerConfig, Modes};
use super::super::cpupid::CpupidFormat;
use super::super::machine::tests::pair;
use super::super::pacing::{Counting, SampleSettings};
use super::super::timing::Settings;
use super::*;
use crate::pages::{Immovable, NodeSpace, Pages};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const PAGES: u64 = 1 << 16;

/// Where pages lie, which are pinned, and how many each node still takes.
struct Machine {
    nodes: Vec<u16>,
    pinned: Vec<u64>,
    free: [u64; 2],
}

impl Machine {
    fn all_on(node: u16) -> Machine {
        Machine {
            nodes: vec![node; PAGES as usize],
            pinned: Vec::new(),
            free: [PAGES; 2],
        }
    }
}

impl Pages for Machine {
    fn node_of(&self, page: PageNumber) -> Option<NodeId> {
        self.nodes.get(page.0 as usize).map(|&n| NodeId(n))
    }
    fn may_move(&self, page: PageNumber, _: NodeId) -> Result<(), Immovable> {
        match self.pinned.contains(&page.0) {
            true => Err(Immovable::Pinned),
            false => Ok(()),
        }
    }
    fn space(&self, node: NodeId) -> Option<NodeSpace> {
        Some(NodeSpace {
            free: self.free[node.index()],
            high: 0,
            promo: 0,
            present: PAGES,
        })
    }
}

fn config(samples: SampleSettings) -> SampledConfig {
    let balancer = BalancerConfig {
        settings: Settings::default(),
        scan_pages: 1,
        chunk_pages: 1,
        modes: Modes::from_bits(1),
        format: CpupidFormat::new(9, 20, 4).unwrap(),
        machine: pair(),
        node_of_cpu: [0, 0, 1, 1].map(NodeId).to_vec(),
        pacing: Pacing::Samples(samples),
    };
    SampledConfig::new(balancer, PAGES)
}

fn at(ms: u64) -> Clock {
    Clock {
        now_ns: ms * MS,
        runtime_ns: ms * MS,
    }
}

fn access(task: TaskId, cpu: u32, page: u64, node: Option<u16>) -> SampledAccess {
    SampledAccess {
        task,
        cpu,
        page: PageNumber(page),
        pages: 1,
        node: node.map(NodeId),
        writable: true,
        shared: false,
    }
}

/// Two tasks of one space, pids 100 and 101; the first runs on CPU 0, the second on CPU 2.
fn two_tasks(config: SampledConfig) -> (Sampled, TaskId, TaskId) {
    let mut sampled = Sampled::new(config).unwrap();
    let space = sampled.add_space(0);
    let first = sampled.add_task(space, 100, None);
    let second = sampled.add_task(space, 101, Some(first));
    sampled.runs(first, 0);
    sampled.runs(second, 2);
    (sampled, first, second)
}

#[test]
fn nothing_counts_before_the_start_delay_is_over() {
    let (mut sampled, first, _) = two_tasks(config(SampleSettings::default()));
    let access = access(first, 0, 5, Some(1));
    assert_eq!(sampled.sample(&access, &at(999)), Sighted::default());
    assert_eq!(sampled.task_period(first, 999), None);
    assert!(sampled.sample(&access, &at(1000)).counted);
    assert_eq!(sampled.task_period(first, 1000), Some(10_000));
    assert_eq!(sampled.period(), 10_000);
    // A CPU, a page, a task that nobody knows.
    for wrong in [
        SampledAccess { cpu: 4, ..access },
        SampledAccess {
            page: PageNumber(PAGES),
            ..access
        },
        SampledAccess {
            task: TaskId(9),
            ..access
        },
    ] {
        assert_eq!(sampled.sample(&wrong, &at(1000)), Sighted::default());
    }
}

#[test]
fn a_young_tasks_page_moves_at_once_or_at_the_second_sight() {
    for (at_once, expected) in [(true, [1, 0]), (false, [0, 1])] {
        let settings = SampledConfig {
            young_at_once: at_once,
            ..config(SampleSettings::default())
        };
        let (mut sampled, first, _) = two_tasks(settings);
        let mut machine = Machine::all_on(1);
        let mut plan = Plan::default();
        for (round, moves) in expected.into_iter().enumerate() {
            let ms = 1000 + 100 * round as u64;
            let node = machine.nodes[5];
            let sighted = sampled.sample(&access(first, 0, 5, Some(node)), &at(ms));
            assert_eq!(sighted.verdict, Some(Verdict::Young));
            sampled.act(Millis(ms), &machine, &mut plan);
            assert_eq!(plan.moves.len(), moves, "round {round}, at once: {at_once}");
            for done in plan.moves.clone() {
                assert_eq!((done.from, done.to), (NodeId(1), NodeId(0)));
                machine.nodes[done.page.0 as usize] = 0;
                sampled.outcome(&done, true, Millis(ms));
            }
        }
        assert_eq!(machine.nodes[5], 0);
        assert_eq!(sampled.account().pages_moved, 1);
    }
}

#[test]
fn a_page_is_queued_once_and_what_does_not_fit_is_counted() {
    let settings = SampledConfig {
        queue: 2,
        ..config(SampleSettings::default())
    };
    let (mut sampled, first, second) = two_tasks(settings);
    assert!(
        sampled
            .sample(&access(first, 0, 5, Some(1)), &at(1000))
            .queued
    );
    assert!(
        !sampled
            .sample(&access(first, 0, 5, Some(1)), &at(1001))
            .queued
    );
    assert!(
        sampled
            .sample(&access(second, 2, 6, Some(0)), &at(1002))
            .queued
    );
    assert!(
        !sampled
            .sample(&access(first, 0, 7, Some(1)), &at(1003))
            .queued
    );
    assert_eq!((sampled.pending().len(), sampled.dropped()), (2, 1));
    // A local page never is.
    assert!(
        !sampled
            .sample(&access(first, 0, 8, Some(0)), &at(1004))
            .queued
    );
    // A task that ends takes its requests along; the page may be queued again, once
    // two touches in a row came from one node.
    sampled.remove_task(first);
    assert_eq!(sampled.pending().len(), 1);
    assert!(
        !sampled
            .sample(&access(second, 2, 5, Some(0)), &at(1005))
            .queued
    );
    assert!(
        sampled
            .sample(&access(second, 2, 5, Some(0)), &at(1005))
            .queued
    );
}

#[test]
fn a_batch_names_why_pages_stay() {
    let (mut sampled, first, second) = two_tasks(SampledConfig {
        young_at_once: false,
        ..config(SampleSettings::default())
    });
    let mut machine = Machine::all_on(1);
    machine.pinned.push(10);
    machine.nodes[13] = 0;
    for page in [10, 11, 12, 13, 14] {
        for ms in [1000, 1001] {
            sampled.sample(&access(first, 0, page, Some(1)), &at(ms));
        }
    }
    // 12 was touched from node 1 since; 14 only once by the window's end.
    sampled.sample(&access(second, 2, 12, Some(1)), &at(1002));
    sampled.sample(&access(first, 0, 15, Some(1)), &at(1003));
    sampled.sample(&access(first, 0, PAGES - 1, None), &at(1003));
    machine.nodes.truncate(PAGES as usize - 1);
    let mut plan = Plan::default();
    machine.free[0] = 1;
    sampled.act(Millis(1004), &machine, &mut plan);
    // Room for less than two: `free > high + pages` holds for none at 1.
    assert!(plan.moves.is_empty());
    let expected = Stays {
        gone: 1,
        at_target: 1,
        seldom: 1,
        contested: 1,
        immovable: 1,
        no_room: 2,
        ..Stays::default()
    };
    assert_eq!(plan.stays, expected);
    assert!(sampled.pending().is_empty());
}

#[test]
fn pages_without_a_node_are_judged_when_the_batch_acts() {
    let (mut sampled, first, _) = two_tasks(config(SampleSettings::default()));
    let machine = Machine::all_on(1);
    let sighted = sampled.sample(&access(first, 0, 5, None), &at(1000));
    assert!(sighted.queued && sighted.verdict.is_none());
    assert_eq!(sampled.pending()[0].verdict, None);
    let mut plan = Plan::default();
    sampled.act(Millis(1001), &machine, &mut plan);
    assert_eq!(plan.moves.len(), 1);
    assert_eq!(plan.moves[0].why, Verdict::Young);
    // Its statistics were counted then: one fault, where the page goes.
    assert_eq!(sampled.balancer().task(first).unwrap().samples(), 1);
}

#[test]
fn a_full_batch_takes_the_most_frequent_and_keeps_the_others() {
    let (mut sampled, first, _) = two_tasks(SampledConfig {
        batch_pages: 2,
        ..config(SampleSettings::default())
    });
    let machine = Machine::all_on(1);
    for (page, times) in [(1, 1), (2, 3), (3, 2)] {
        for n in 0..times {
            sampled.sample(&access(first, 0, page, Some(1)), &at(1000 + n));
        }
    }
    let mut plan = Plan::default();
    let pages = |plan: &Plan| plan.moves.iter().map(|m| m.page.0).collect::<Vec<_>>();
    sampled.act(Millis(1005), &machine, &mut plan);
    assert_eq!((pages(&plan), plan.stays.waiting), (vec![2, 3], 1));
    sampled.act(Millis(1006), &machine, &mut plan);
    assert_eq!((pages(&plan), plan.stays.waiting), (vec![1], 0));
}

#[test]
fn a_rate_holds_over_time() {
    // 1000 pages a second, of which a second is saved at the beginning: 1000 at
    // once, then 100 each 100 ms.
    let (mut sampled, first, _) = two_tasks(SampledConfig {
        pages_per_s: 1000,
        ..config(SampleSettings {
            placement_samples: 1000,
            ..SampleSettings::default()
        })
    });
    let machine = Machine::all_on(1);
    let mut plan = Plan::default();
    for page in 0..2000 {
        sampled.sample(&access(first, 0, page, Some(1)), &at(1000));
    }
    let mut moved = Vec::new();
    for ms in [1000, 1100, 1200, 1250] {
        sampled.act(Millis(ms), &machine, &mut plan);
        moved.push(plan.moves.len());
    }
    assert_eq!(moved, [1000, 100, 100, 50]);
}

#[test]
fn tasks_are_told_to_run_where_their_memory_is_and_then_rest() {
    let settings = SampledConfig {
        tasks: true,
        ..config(SampleSettings {
            placement_samples: 4,
            ..SampleSettings::default()
        })
    };
    let (mut sampled, first, _) = two_tasks(settings);
    let machine = Machine::all_on(1);
    // Pages that the second task touched last stay where they are and count there.
    let mut plan = Plan::default();
    let mut told = Vec::new();
    for n in 0..60 {
        let page = 100 + n;
        sampled.notes.touch(
            PageNumber(page),
            sampled.config.balancer.format.pack(2, 101),
        );
        let ms = 1000 + 100 * n;
        sampled.sample(&access(first, 0, page, Some(1)), &at(ms));
        sampled.act(Millis(ms), &machine, &mut plan);
        told.extend(plan.tasks.iter().map(|t| (ms, t.task, t.to)));
    }
    // Placed at the fifth sample (four are counted by then), and again 4 s later.
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!((told[0].1, told[0].2), (first, NodeId(1)));
    assert!(told[1].0 >= told[0].0 + 4000);
}

#[test]
fn as_in_the_document_a_task_stays_young_for_minutes() {
    let count = |counting| {
        let settings = SampleSettings {
            counting,
            ..SampleSettings::default()
        };
        let (mut sampled, first, _) = two_tasks(config(settings));
        // 100 samples a second of local pages for 60 s, 6000 in all.
        for n in 0..6000u64 {
            sampled.sample(&access(first, 0, n % 64, Some(0)), &at(1000 + 10 * n));
        }
        sampled.balancer().task(first).unwrap().samples()
    };
    assert_eq!(count(Counting::Every), 6000);
    // 250 until the first placement, at 3.5 s. All local and private, so the period
    // is 13000 and a retry comes after min(1000, 13000 / 16) = 812 ms, the next
    // sample after that at 820 ms: 57.5 s hold 70 of them.
    assert_eq!(count(Counting::BetweenRetries), 250 + 70);
}

#[test]
fn a_failed_move_makes_samples_rarer() {
    let (mut sampled, first, _) = two_tasks(config(SampleSettings {
        placement_samples: 4,
        ..SampleSettings::default()
    }));
    let machine = Machine::all_on(1);
    let mut plan = Plan::default();
    sampled.sample(&access(first, 0, 1, Some(1)), &at(1000));
    sampled.act(Millis(1000), &machine, &mut plan);
    sampled.outcome(&plan.moves[0].clone(), false, Millis(1000));
    for n in 0..8 {
        sampled.sample(&access(first, 0, 10 + n, Some(0)), &at(3000 + 2000 * n));
    }
    // Doubled at the first placement, and at the second, up to the most.
    assert_eq!(sampled.task_period(first, 30_000), Some(20_000));
    assert_eq!(sampled.account().pages_failed, 1);
}

/// The rules of a batch, kept as plainly as possible: a list of all sightings.
#[derive(Default)]
struct Plainly {
    /// Time, page, node of the CPU.
    seen: Vec<(u64, u64, u16)>,
    moved: Vec<(u64, u64)>,
}

impl Plainly {
    fn may(&self, page: u64, to: u16, now: u64, threshold: usize) -> bool {
        let own: Vec<_> = self.seen.iter().filter(|s| s.1 == page).collect();
        let last_from = own.last().is_some_and(|s| s.2 == to);
        let rests = self
            .moved
            .iter()
            .any(|&(at, p)| p == page && now < at + 1000 - 16);
        last_from && own.len() >= threshold && !rests
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is sampled: what moves was seen often enough, last from where it
    /// goes, did not just move, is queued once, and lies elsewhere; and two nodes
    /// that fight over pages move each at most so often.
    #[test]
    fn plans_keep_the_rules(
        samples in proptest::collection::vec((0u32..4, 0u64..6, 1u64..200), 1..400),
        at_once in any::<bool>(), known in any::<bool>(), batch in 1u64..8,
    ) {
        let (mut sampled, first, second) = two_tasks(SampledConfig {
            young_at_once: at_once,
            batch_pages: batch,
            ..config(SampleSettings { placement_samples: 8, ..SampleSettings::default() })
        });
        let mut machine = Machine::all_on(0);
        machine.pinned.push(5);
        let mut plain = Plainly::default();
        let mut plan = Plan::default();
        let mut now = 1000;
        for (n, &(cpu, page, pause)) in samples.iter().enumerate() {
            now += pause;
            let task = if cpu < 2 { first } else { second };
            let node = known.then_some(machine.nodes[page as usize]);
            sampled.sample(&access(task, cpu, page, node), &at(now));
            plain.seen.push((now, page, (cpu / 2) as u16));
            let mut queued: Vec<_> = sampled.pending().iter().map(|p| p.page).collect();
            queued.sort_unstable();
            let before = queued.len();
            queued.dedup();
            prop_assert_eq!(queued.len(), before);
            if n % 3 != 0 {
                continue;
            }
            sampled.act(Millis(now), &machine, &mut plan);
            prop_assert!(plan.moves.iter().map(|m| u64::from(m.pages)).sum::<u64>() <= batch);
            for done in &plan.moves {
                let page = done.page.0;
                prop_assert!(page != 5);
                prop_assert_eq!(machine.nodes[page as usize], done.from.0);
                prop_assert!(done.from != done.to);
                let threshold = if at_once && done.why == Verdict::Young { 1 } else { 2 };
                prop_assert!(plain.may(page, done.to.0, now, threshold));
                machine.nodes[page as usize] = done.to.0;
                plain.moved.push((now, page));
            }
            for done in plan.moves.clone() {
                sampled.outcome(&done, true, Millis(now));
            }
        }
        // 1 + 2 + 4 + ... s between moves in a row: in T seconds at most log2(T) + 2.
        // A row of n ends after a pause of 16 * 2^(n-1) s, which allows at most one
        // more for each 16 s.
        let seconds = (now - 1000) / 1000 + 1;
        let most = u64::from(seconds.ilog2()) + 2 + seconds / 16;
        for page in 0..6 {
            let moves = plain.moved.iter().filter(|m| m.1 == page).count() as u64;
            prop_assert!(moves <= most, "{moves} moves of page {page} in {seconds} s");
        }
    }
}
