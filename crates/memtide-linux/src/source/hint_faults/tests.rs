use super::*;
use crate::sys::own_memory::OwnPages;

fn root_with(path: &str, text: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    root
}

#[test]
fn every_state_of_numa_balancing_has_a_name() {
    let setting = "proc/sys/kernel/numa_balancing";
    let none = tempfile::tempdir().unwrap();
    assert!(matches!(
        HintFaults::available(none.path()),
        Err(HintFaultsError::NoBalancing { .. })
    ));
    let off = root_with(setting, "0\n");
    let error = HintFaults::available(off.path()).unwrap_err();
    assert!(matches!(error, HintFaultsError::BalancingOff { .. }));
    assert!(error.to_string().contains("numa_balancing is 0"), "{error}");
    let tiering = root_with(setting, "2\n");
    assert_eq!(
        HintFaults::available(tiering.path()).unwrap(),
        BalancingMode {
            normal: false,
            tiering: true
        }
    );
    let odd = root_with(setting, "yes\n");
    assert!(matches!(
        HintFaults::available(odd.path()),
        Err(HintFaultsError::Malformed { .. })
    ));
}

#[test]
fn rings_share_the_budget() {
    let options = Options::default();
    assert_eq!(ring_pages(&options, 1), 1024); // 16,384 would be allowed by the budget
    assert_eq!(ring_pages(&options, 16), 1024); // 16,384 / 16 = 1,024
    assert_eq!(ring_pages(&options, 17), 512); // 963, rounded down
    assert_eq!(ring_pages(&options, 1000), 64); // 16, but never below 64
    let odd = Options {
        ring_pages: 100,
        ring_budget_pages: 0,
        ..options
    };
    assert_eq!(ring_pages(&odd, 0), 64);
}

#[test]
fn cpu_lists_are_read() {
    assert_eq!(parse_cpu_list("0-2,5"), Some(vec![0, 1, 2, 5]));
    assert_eq!(parse_cpu_list("7"), Some(vec![7]));
    assert_eq!(parse_cpu_list(""), None);
    assert_eq!(parse_cpu_list("0-4000000000"), None);
}

#[test]
fn a_process_that_is_not_there_is_named() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        root: root.path().into(),
        ..Options::default()
    };
    let error = HintFaults::attach(&[42], options).unwrap_err();
    assert!(error.to_string().contains("proc/42/task"), "{error}");
}

#[test]
fn a_zero_physical_address_is_none() {
    let layout = HintFaults::new(&[], Options::default()).layout;
    let mut body = [0u8; 40];
    body[..4].copy_from_slice(&7u32.to_ne_bytes());
    assert_eq!(decode(layout, &body).unwrap().physical, None);
    body[32..].copy_from_slice(&4096u64.to_ne_bytes());
    let fault = decode(layout, &body).unwrap();
    assert_eq!((fault.pid, fault.physical), (7, Some(4096)));
    assert_eq!(decode(layout, &body[..32]), None);
}

/// Needs perf for one's own thread; where that is refused the test says so.
#[test]
fn first_touches_of_this_thread_arrive() {
    let pid = std::process::id();
    let mut source = match HintFaults::attach(&[pid], Options::default()) {
        Ok(source) => source,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    // An allocator may give memory that was touched before.
    let memory = OwnPages::map(64).unwrap();
    (0..64).for_each(|page| memory.write(page, 1));
    let first = memory.address() as u64;
    let mut seen = std::collections::BTreeSet::new();
    let polled = source.poll(&mut |fault| {
        assert_eq!(fault.pid, pid);
        seen.insert(fault.address & !4095);
    });
    let polled = polled.unwrap();
    assert_eq!(polled.processes_alive, 1);
    let touched = (0..64).filter(|page| seen.contains(&(first + page * 4096)));
    assert_eq!(touched.count(), 64, "{polled:?}");
}
