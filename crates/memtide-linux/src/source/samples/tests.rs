use super::*;
use crate::sys::own_memory::OwnPages;
use std::time::Instant;

/// perf for one's own threads; where that is refused the test says so.
fn own_faults(options: &Options) -> Option<SampleSource> {
    let me = Process::current(&options.root).unwrap();
    match SampleSource::open(Kind::Faults, Scope::Processes(vec![me]), options) {
        Ok(source) => Some(source),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn first_touches_of_own_pages_arrive_one_by_one() {
    let Some(mut source) = own_faults(&Options::default()) else {
        return;
    };
    let pages = OwnPages::map(64).unwrap();
    let first = pages.address() as u64 / 4096;
    (0..64).step_by(2).for_each(|page| pages.write(page, 1));
    let mut seen = std::collections::BTreeSet::new();
    let polled = source.poll(&mut |access| {
        assert_eq!(access.pid, std::process::id());
        if let Some(page) = (access.address / 4096).checked_sub(first)
            && page < 64
        {
            seen.insert(page);
        }
    });
    assert!(polled.window.is_valid(), "{polled:?}");
    assert_eq!(seen.len(), 32, "{polled:?}");
    assert!(seen.iter().all(|page| page % 2 == 0));
    assert_eq!(source.tally().accesses, polled.accesses);
    assert_eq!(source.tally().valid_windows, 1);
    let times = source.refresh().unwrap().times;
    assert!(times.enabled_ns > 0 && times.running_ns == times.enabled_ns);
}

#[test]
fn a_ring_that_overflows_makes_the_window_invalid() {
    // 16 pages hold 65,536 / 48 = 1,365 records; 4,096 faults do not fit.
    let options = Options {
        ring_pages: 16,
        ..Options::default()
    };
    let Some(mut source) = own_faults(&options) else {
        return;
    };
    let touch = |pages: &OwnPages, count| (0..count).for_each(|page| pages.write(page, 1));
    let pages = OwnPages::map(4096).unwrap();
    touch(&pages, 4096);
    source.poll(&mut |_| {});
    // The loss is told with the next record that finds room.
    let more = OwnPages::map(8).unwrap();
    touch(&more, 8);
    let polled = source.poll(&mut |_| panic!("handed on in an invalid window"));
    let Window::Invalid { lost, .. } = polled.window else {
        panic!("{polled:?}");
    };
    assert!(lost > 1000, "{polled:?}");
    assert!(polled.withheld >= 8);
    // The loss lengthens the period, and later windows are valid again.
    assert!(source.adapt(Duration::from_millis(100), 100));
    assert_eq!(source.periods().next().map(|(_, period)| period), Some(2));
    assert!(source.poll(&mut |_| {}).window.is_valid());
}

#[test]
fn threads_that_come_later_are_found() {
    let Some(mut source) = own_faults(&Options::default()) else {
        return;
    };
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (started, ready) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        started.send(()).unwrap();
        wait.recv().unwrap();
        let pages = OwnPages::map(16).unwrap();
        (0..16).for_each(|page| pages.write(page, 1));
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    });
    ready.recv().unwrap();
    assert!(source.refresh().unwrap().opened > 0);
    go.send(()).unwrap();
    let tid = thread.join().unwrap();
    let mut seen = 0;
    source.poll(&mut |access| seen += u64::from(access.tid == tid));
    assert!(seen >= 16, "{seen}");
    // Joined, it may still be in the list of threads for a moment.
    let until = Instant::now() + Duration::from_secs(60);
    let refreshed = loop {
        let refreshed = source.refresh().unwrap();
        if refreshed.closed > 0 {
            break refreshed;
        }
        assert!(Instant::now() < until, "{refreshed:?}");
        std::thread::yield_now();
    };
    assert_eq!(refreshed.processes_alive, 1);
}

#[test]
fn nobody_to_watch_is_said() {
    let gone = Process {
        pid: std::process::id(),
        start_ticks: u64::MAX,
    };
    let error = SampleSource::open(
        Kind::Faults,
        Scope::Processes(vec![gone]),
        &Options::default(),
    )
    .unwrap_err();
    assert_eq!(error.lack(), Lack::Ended);
}

/// CPUs under another root come and go; the events are true ones of this machine.
#[test]
fn cpus_that_go_offline_and_return_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let cpus = dir.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(&cpus).unwrap();
    let online = |list: &str| std::fs::write(cpus.join("online"), list).unwrap();
    online("0-1\n");
    let options = Options {
        root: Root::new(dir.path()),
        ..Options::default()
    };
    let mut source = match SampleSource::open(Kind::Faults, Scope::Machine, &options) {
        Ok(source) => source,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let coverage = source.coverage();
    assert_eq!(
        (coverage.by_thread, coverage.events, coverage.cpus),
        (false, 2, 2)
    );
    online("0\n");
    let refreshed = source.refresh().unwrap();
    assert_eq!((refreshed.cpus_lost, refreshed.closed), (1, 1));
    assert_eq!((source.coverage().events, source.coverage().cpus), (1, 1));
    online("0-1\n");
    let refreshed = source.refresh().unwrap();
    assert_eq!((refreshed.cpus_gained, refreshed.opened), (1, 1));
    // A CPU that the list has and the machine has not, as if it went just now.
    online("0-1,4000\n");
    assert!(source.refresh().is_err());
}
