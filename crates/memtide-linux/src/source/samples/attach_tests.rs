use super::*;

fn root(online: Option<&str>) -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    if let Some(online) = online {
        let cpus = dir.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&cpus).unwrap();
        std::fs::write(cpus.join("online"), online).unwrap();
    }
    let root = Root::new(dir.path());
    (dir, root)
}

fn attached(root: Root, target: Target) -> Attached {
    Attached {
        root,
        ring_pages: 1024,
        ring_budget_pages: 16_384,
        max_thread_events: 64,
        processes: None,
        pids: Vec::new(),
        target,
        online: BTreeSet::from([0, 1, 2, 3]),
        threads: 0,
        physical: true,
        open: Vec::new(),
    }
}

#[test]
fn rings_share_the_budget() {
    let (_dir, root) = root(None);
    let attached = attached(root, Target::Cpus);
    assert_eq!(attached.share(1), 1024); // 16,384 would be allowed by the budget
    assert_eq!(attached.share(17), 512); // 963, rounded down
    assert_eq!(attached.share(10_000), 16); // 1, but never below 16
}

#[test]
fn units_of_some_cpus_are_opened_there_only() {
    let (_dir, root) = root(None);
    let options = Options {
        root: root.clone(),
        ..Options::default()
    };
    let mut streams = super::super::plan::streams(super::super::Kind::Faults, &options).unwrap();
    streams.push(streams[0].clone());
    // 9 is offline.
    streams[1].cpus = Some(BTreeSet::from([2, 3, 9]));
    let attached = attached(root, Target::Cpus);
    let wanted: Vec<_> = attached
        .wanted(&BTreeSet::new(), &streams)
        .into_iter()
        .collect();
    assert_eq!(wanted, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]);
}

#[test]
fn processes_that_ended_or_became_others_are_not_watched() {
    let (dir, root) = root(Some("0-1\n"));
    let process = |pid: u32, start: u64| {
        let task = dir.path().join(format!("proc/{pid}/task"));
        for tid in [pid, pid + 1] {
            std::fs::create_dir_all(task.join(tid.to_string())).unwrap();
        }
        let zeros = "0 ".repeat(30);
        let stat = format!("{pid} (x) S {}{start} {zeros}", &zeros[..36]);
        std::fs::write(dir.path().join(format!("proc/{pid}/stat")), stat).unwrap();
    };
    process(10, 5);
    process(20, 6);
    let mut attached = attached(root, Target::Threads);
    let who = |pid, start_ticks| Process { pid, start_ticks };
    // 20 started at another time, 30 is not there.
    attached.set_processes(vec![who(10, 5), who(20, 5), who(30, 5)]);
    let mut refreshed = Refreshed::default();
    let tids = attached.live_threads(&mut refreshed);
    assert_eq!(tids.into_iter().collect::<Vec<_>>(), [10, 11]);
    assert_eq!((refreshed.processes_alive, attached.pids), (1, vec![10]));
}

#[test]
fn online_cpus_are_read_under_the_root() {
    assert_eq!(
        online_cpus(&root(Some("0-1,4\n")).1).unwrap(),
        BTreeSet::from([0, 1, 4])
    );
    assert_eq!(online_cpus(&root(None).1).unwrap(), BTreeSet::from([0]));
    let error = online_cpus(&root(Some("all\n")).1).unwrap_err().to_string();
    assert!(error.contains("cpu/online"), "{error}");
}

#[test]
fn starving_is_to_be_on_for_a_while_and_never_to_run() {
    let with = |enabled_ns, running_ns| Refreshed {
        times: RunTimes {
            enabled_ns,
            running_ns,
        },
        ..Refreshed::default()
    };
    assert!(with(200_000_000, 0).is_starved());
    assert!(!with(200_000_000, 1).is_starved());
    // Too short to tell.
    assert!(!with(50_000_000, 0).is_starved());
}
