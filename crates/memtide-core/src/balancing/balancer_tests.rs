//! Two sockets and slow node 2; CPUs 0 and 1 on node 0, 2 and 3 on node 1.

use super::super::machine::tests::machine;
use super::super::scan::Traits;
use super::*;

const MS: u64 = 1_000_000;

fn balancer(modes: u8) -> Balancer {
    let machine = machine(&[&[10, 20, 30], &[20, 10, 30], &[30, 30, 10]], &[2]);
    Balancer::new(BalancerConfig {
        settings: Settings::default(),
        scan_pages: 256 << 8,
        chunk_pages: 512,
        modes: Modes::from_bits(modes),
        format: CpupidFormat::new(9, 8, 4).unwrap(),
        machine,
        node_of_cpu: [0, 0, 1, 1].map(NodeId).to_vec(),
        pacing: Pacing::Scans,
    })
}

/// A space of 1 GiB with one task (pid 100) and a thread (101).
fn with_tasks(modes: u8) -> (Balancer, TaskId, TaskId) {
    let mut balancer = balancer(modes);
    let space = balancer.add_space(vec![Mapping::new(0..1 << 18, Traits::PLAIN)], 0);
    balancer.set_resident(space, 1 << 18);
    let first = balancer.add_task(space, 100, None);
    let second = balancer.add_task(space, 101, Some(first));
    (balancer, first, second)
}

fn clock(now_ms: u64) -> Clock {
    Clock {
        now_ns: now_ms * MS,
        runtime_ns: now_ms * MS,
    }
}

impl Balancer {
    fn touch(&mut self, task: TaskId, cpu: u32, node: u16, last: Cpupid) -> Touch {
        self.runs(task, cpu);
        Touch {
            task,
            cpu,
            node: NodeId(node),
            pages: 1,
            last,
            writable: true,
            shared: false,
        }
    }

    fn none(&self) -> Cpupid {
        self.config.format.none()
    }

    /// A whole sequence of scans.
    fn sequence(&mut self, task: TaskId) {
        let space = SpaceId(self.tasks[task.0 as usize].as_ref().unwrap().space as u32);
        let seq = self.progress(space).seq();
        while self.progress(space).seq() == seq {
            self.scan(task, &clock(1_000_000), |_, _| 1);
        }
    }
}

#[test]
fn the_first_scan_waits_for_the_delay_and_for_as_much_cpu_time() {
    let (mut balancer, first, second) = with_tasks(1);
    // The first task's stamp is 0, its period the delay: due after more than 1 s.
    assert!(!balancer.tick(first, &clock(1000)));
    assert!(balancer.tick(first, &clock(1001)));
    // Four windows of 256 MB in 1 GiB: period 1000 / 4 = 250 ms from now on.
    let task = balancer.task(first).unwrap();
    assert_eq!((task.period_ms(), task.stamp_ns()), (250, 1000 * MS));
    assert!(balancer.begin_scan(first, &clock(1001)));
    // Two ticks, so that the other is likely to be first next time.
    assert_eq!(balancer.task(first).unwrap().stamp_ns(), 1002 * MS);
    // The thread began 15000 ns (smax 60000 / 4 as nanoseconds) and two ticks in.
    assert_eq!(balancer.task(second).unwrap().stamp_ns(), 15_000 + 2 * MS);
    assert!(!balancer.tick(second, &clock(1002)));
    // Due itself, but the space's next scan is at 1001 + 250.
    assert!(!balancer.tick(second, &clock(1003)));
    assert!(!balancer.begin_scan(second, &clock(1250)));
    assert!(balancer.begin_scan(second, &clock(1251)));
    // A thread whose stamp is set keeps the delay as its period.
    assert_eq!(balancer.task(second).unwrap().period_ms(), 1000);
}

#[test]
fn a_scan_costs_its_task_thirty_two_times_its_time() {
    let (mut balancer, first, _) = with_tasks(1);
    assert!(balancer.tick(first, &clock(1001)));
    balancer.end_scan(first, 3 * MS);
    // Stamp 1000 + 96, period 250: next at 1346, cost 3 of 99 ms.
    assert!(!balancer.tick(first, &clock(1346)));
    assert!(balancer.tick(first, &clock(1347)));
}

#[test]
fn a_first_touch_is_private_and_local_is_judged_where_the_page_was() {
    let (mut balancer, first, _) = with_tasks(3);
    let none = balancer.none();
    let touch = balancer.touch(first, 0, 2, none);
    // Slow memory in tiering mode: nothing is counted if it stays.
    let stayed = balancer.record(&touch, Outcome::Stayed, &clock(0));
    assert_eq!(stayed, Recorded::default());
    // Promoted: counted for the node it came to, private, and remote.
    let moved = balancer.record(&touch, Outcome::Moved(NodeId(0)), &clock(0));
    let counted = moved.counted.unwrap();
    assert_eq!((counted.mem, counted.cpu), (NodeId(0), NodeId(0)));
    assert!(counted.private && !counted.local && !counted.failed);
}

#[test]
fn slow_memory_without_tiering_counts_if_its_toucher_is_real() {
    let (mut balancer, first, _) = with_tasks(1);
    // CPU 9 of 4 is none: a time.
    let stale = balancer.touch(first, 0, 2, Cpupid(9 << 8));
    let recorded = balancer.record(&stale, Outcome::Stayed, &clock(0));
    assert_eq!(recorded.counted, None);
    assert_eq!(balancer.should_move(&stale), Verdict::Stale);
    let real = balancer.touch(first, 0, 2, Cpupid(1 << 8 | 100));
    assert!(
        balancer
            .record(&real, Outcome::Stayed, &clock(0))
            .counted
            .is_some()
    );
}

#[test]
fn threads_of_a_process_group_over_shared_pages() {
    let (mut balancer, first, second) = with_tasks(1);
    balancer.runs(first, 0);
    balancer.runs(second, 2);
    let format = balancer.config.format;
    // The second meets a page of the first, which has no group yet: a group of one.
    let touch = balancer.touch(second, 2, 0, format.pack(0, 100));
    let recorded = balancer.record(&touch, Outcome::Stayed, &clock(0));
    assert_eq!(recorded.join, Some(Join::Stays));
    assert!(!recorded.counted.unwrap().private);
    let younger = balancer.task(second).unwrap().group().unwrap();
    // The first meets one of the second's: equal sizes, and its group is newer.
    let touch = balancer.touch(first, 0, 1, format.pack(2, 101));
    let recorded = balancer.record(&touch, Outcome::Stayed, &clock(0));
    assert_eq!(recorded.join, Some(Join::Stays));
    // The second, older group: joins.
    let touch = balancer.touch(second, 2, 0, format.pack(0, 100));
    let recorded = balancer.record(&touch, Outcome::Stayed, &clock(0));
    let group = balancer.task(first).unwrap().group().unwrap();
    assert_eq!(recorded.join, Some(Join::Joined(group)));
    assert!(group > younger);
    assert_eq!(balancer.group_of(second).unwrap().members(), 2);
    // Read-only pages make no groups.
    let (mut balancer, first, second) = with_tasks(1);
    balancer.runs(second, 2);
    let touch = Touch {
        writable: false,
        ..balancer.touch(first, 0, 1, format.pack(2, 101))
    };
    assert_eq!(
        balancer.record(&touch, Outcome::Stayed, &clock(0)).join,
        None
    );
    assert!(balancer.task(first).unwrap().group().is_none());
}

#[test]
fn a_stranger_with_the_same_bits_makes_a_private_fault() {
    let (mut balancer, first, _) = with_tasks(1);
    let elsewhere = balancer.add_space(Vec::new(), 0);
    let stranger = balancer.add_task(elsewhere, 200, None);
    balancer.runs(stranger, 3);
    let format = balancer.config.format;
    // Both get groups; the stranger's is the newer, so the first would join it.
    let page = balancer.touch(first, 0, 1, format.pack(2, 7));
    balancer.record(&page, Outcome::Stayed, &clock(0));
    let page = balancer.touch(stranger, 3, 1, format.pack(2, 7));
    balancer.record(&page, Outcome::Stayed, &clock(0));
    let page = balancer.touch(first, 0, 1, format.pack(3, 200));
    let recorded = balancer.record(&page, Outcome::Stayed, &clock(0));
    assert_eq!(recorded.join, Some(Join::Stranger));
    assert!(recorded.counted.unwrap().private);
    // On a page of a shared mapping they join.
    let page = Touch {
        shared: true,
        ..page
    };
    let recorded = balancer.record(&page, Outcome::Stayed, &clock(0));
    assert!(matches!(recorded.join, Some(Join::Joined(_))));
}

#[test]
fn placement_waits_for_a_sequence_and_prefers_where_the_memory_is() {
    let (mut balancer, first, _) = with_tasks(1);
    let own = balancer.config.format.pack(0, 100);
    let touch = balancer.touch(first, 0, 1, own);
    for _ in 0..5 {
        assert!(!balancer.record(&touch, Outcome::Stayed, &clock(5)).placed);
    }
    balancer.sequence(first);
    let recorded = balancer.record(&touch, Outcome::Stayed, &clock(6));
    // All five faults on node 1, from node 0: run there.
    assert!(recorded.placed);
    assert_eq!(recorded.run_on, Some(NodeId(1)));
    let task = balancer.task(first).unwrap();
    assert_eq!(task.preferred(), Some(NodeId(1)));
    assert_eq!(task.faults().averages().mem.of(NodeId(1)), 5);
    // None local and none shared (local + shared = 0): period 1000 doubles.
    assert_eq!(task.period_ms(), 2000);
    assert_eq!(balancer.spaces[0].next_scan_ms, Some(6 + 2000));
    // The next try is min(1000, 2000 / 16) = 125 ms away.
    let later = |b: &mut Balancer, ms| b.record(&touch, Outcome::Stayed, &clock(ms)).run_on;
    assert_eq!(later(&mut balancer, 131), None);
    assert_eq!(later(&mut balancer, 132), Some(NodeId(1)));
}

#[test]
fn faults_within_the_active_nodes_of_a_group_are_local() {
    let (mut balancer, first, second) = with_tasks(1);
    let format = balancer.config.format;
    for _ in 0..4 {
        let touch = balancer.touch(second, 2, 0, format.pack(0, 100));
        balancer.record(&touch, Outcome::Stayed, &clock(0));
        let touch = balancer.touch(first, 0, 1, format.pack(2, 101));
        balancer.record(&touch, Outcome::Stayed, &clock(0));
    }
    assert_eq!(balancer.groups().iter().count(), 1);
    balancer.sequence(first);
    for (task, cpu, node, last) in [(first, 0, 1, (2, 101)), (second, 2, 0, (0, 100))] {
        let touch = balancer.touch(task, cpu, node, format.pack(last.0, last.1));
        balancer.record(&touch, Outcome::Stayed, &clock(10));
    }
    // Both nodes make CPU faults of the group: active, and remote shared is local.
    assert_eq!(balancer.group_of(first).unwrap().active_nodes(), 2);
    let touch = balancer.touch(first, 0, 1, format.pack(2, 101));
    let recorded = balancer.record(&touch, Outcome::Stayed, &clock(10));
    assert!(recorded.counted.unwrap().local);
}

#[test]
fn a_page_follows_an_old_task_at_the_second_touch_only() {
    let (mut balancer, first, second) = with_tasks(1);
    let format = balancer.config.format;
    for task in [first, second] {
        let entry = balancer.tasks[task.0 as usize].as_mut().unwrap();
        (entry.preferred, entry.seen_seq) = (Some(NodeId(0)), 5);
    }
    // The second (node 1) touched it; the first now: another node.
    let mut touch = balancer.touch(first, 0, 1, format.pack(2, 101));
    assert_eq!(balancer.should_move(&touch), Verdict::OtherNode);
    touch.last = balancer.signature(&touch);
    assert_eq!(balancer.should_move(&touch), Verdict::Own);
}

#[test]
fn a_task_that_ends_takes_its_faults_along() {
    let (mut balancer, first, second) = with_tasks(1);
    let format = balancer.config.format;
    balancer.runs(first, 0);
    let touch = balancer.touch(second, 2, 0, format.pack(0, 100));
    balancer.record(&touch, Outcome::Stayed, &clock(0));
    balancer.sequence(second);
    balancer.record(&touch, Outcome::Stayed, &clock(10));
    assert_eq!(balancer.group_of(second).unwrap().total(), 1);
    balancer.remove_task(second);
    assert!(balancer.task(second).is_none());
    assert_eq!(balancer.groups().iter().count(), 0);
    assert_eq!(balancer.spaces[0].threads, 1);
}
