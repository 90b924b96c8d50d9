//! What the calls return, and what they leave behind.

use super::*;

#[test]
fn mode_against_mask() {
    let refused = [
        (DEFAULT, "0"),
        (LOCAL, "0"),
        (LOCAL | STATIC_NODES, ""),
        (LOCAL | RELATIVE_NODES, ""),
        (PREFERRED | STATIC_NODES, ""),
        (PREFERRED | RELATIVE_NODES, ""),
        (BIND, ""),
        (INTERLEAVE, ""),
        (PREFERRED_MANY, ""),
        (WEIGHTED, ""),
        (BIND, "9"),
        (PREFERRED, "9"),
        (INTERLEAVE | NUMA_BALANCING, "0"),
        (u32::MAX, ""),
    ];
    let accepted = [
        (DEFAULT, ""),
        (DEFAULT | STATIC_NODES, ""),
        (LOCAL, ""),
        (PREFERRED, ""),
        (BIND, "0,9"),
        (BIND | NUMA_BALANCING, "0"),
        (PREFERRED_MANY | NUMA_BALANCING | STATIC_NODES, "0"),
        // 9 modulo the four nodes is 1.
        (BIND | RELATIVE_NODES, "9"),
    ];
    for (cases, result) in [(&refused[..], Err(22)), (&accepted[..], Ok(()))] {
        for &(mode, nodes) in cases {
            assert_eq!(process().set(mode, nodes), result, "{mode:#x} {nodes}");
            let bound = process().bind(0..1, mode, nodes, 0);
            assert_eq!(bound, result, "{mode:#x} {nodes}");
        }
    }
}

#[test]
fn a_refused_policy_leaves_the_old_one() {
    let mut p = process();
    p.set(BIND, "2").unwrap();
    assert_eq!(p.set(BIND, "9"), Err(22));
    assert_eq!(p.set(LOCAL, "1"), Err(22));
    assert_eq!(p.write(0..1), "2");
    assert_eq!(p.ask_task(0), (Ok(()), 2, "2".into()));
}

#[test]
fn mbind_checks_in_the_kernels_order() {
    let mut p = process();
    let mut call = |start, len, mode: u64, words: &[u64], flags| {
        p.mbind(start, len, mode, &RawMask::Words(words.to_vec()), 64, flags)
            .map_err(Errno::code)
    };
    // The mode word before the mask, the mask before the flags, those before
    // the address, and that before the length and the mode against the mask.
    assert_eq!(call(at(0), 4096, 7, &[1], 99), Err(22));
    assert_eq!(call(at(0), 4096, 2, &[1], 8), Err(22));
    assert_eq!(call(at(0) + 1, 4096, 2, &[1], 0), Err(22));
    assert_eq!(call(at(0) + 1, 0, 2, &[1], 0), Err(22));
    assert_eq!(call(at(0), 0, 2, &[], 0), Ok(()));
    assert_eq!(call(at(0), 4096, 2, &[], 0), Err(22));
    // A length that rounds to 2^64 rounds to nothing; below it wraps around.
    assert_eq!(call(at(0), u64::MAX - 4094, 2, &[], 0), Ok(()));
    assert_eq!(call(at(0), u64::MAX - 4095, 2, &[], 0), Err(22));
    // Only the low half of the mode word counts.
    assert_eq!(call(at(0), 4096, (1 << 32) | 2, &[1], 0), Ok(()));
    // One byte is a page.
    assert_eq!(call(at(63), 1, 2, &[1], 0), Ok(()));
    assert_eq!(call(at(63), 4097, 2, &[1], 0), Err(14));
}

#[test]
fn move_all_needs_the_capability() {
    let nodes = "0-1".parse().unwrap();
    let input = MachineInput {
        capable: false,
        ..MachineInput::new(nodes, nodes, Kernel::WITH_AUTO)
    };
    let machine = Arc::new(Machine::new(input).unwrap());
    let mut p = Process::new(machine.clone(), &nodes, WeightFiles::new(&machine, None));
    p.mmap(at(0), 4096).unwrap();
    assert_eq!(p.bind(0..1, BIND, "1", MF_MOVE_ALL), Err(1));
    assert_eq!(p.bind(0..1, BIND, "1", MF_MOVE_ALL | 8), Err(22));
    assert_eq!(p.bind(0..1, BIND, "1", MF_MOVE), Ok(()));
}

#[test]
fn holes() {
    let mut p = process();
    p.munmap(at(4), 4 << 12).unwrap();
    for (range, bind, default) in [
        (0..4, Ok(()), Ok(())),
        (2..10, Err(14), Ok(())),
        (4..10, Err(14), Ok(())),
        (2..6, Err(14), Ok(())),
        (4..8, Err(14), Err(14)),
    ] {
        assert_eq!(p.bind(range.clone(), BIND, "1", 0), bind, "{range:?}");
        assert_eq!(p.bind(range.clone(), LOCAL, "", 0), bind, "{range:?}");
        assert_eq!(p.bind(range.clone(), DEFAULT, "", 0), default, "{range:?}");
    }
    // A failed call installs nothing, not even before the hole.
    p.bind(2..10, BIND, "3", 0).unwrap_err();
    assert_eq!(p.write(2..3), "0");
}

#[test]
fn strict_refuses_wrong_pages_and_installs_nothing() {
    let mut p = process();
    p.write(2..3);
    assert_eq!(p.bind(0..4, BIND, "1", MF_STRICT), Err(5));
    assert_eq!(p.bind(0..2, BIND, "1", MF_STRICT), Ok(()));
    assert_eq!(p.write(0..4), "1100");
    // The default policy is never strict.
    assert_eq!(p.bind(0..4, DEFAULT, "", MF_STRICT), Ok(()));
    // The caller's mask counts, not the effective one: 4 is node 0 by
    // position, but the page on node 0 is not in the mask {4}.
    assert_eq!(p.bind(2..3, BIND | RELATIVE_NODES, "4", MF_STRICT), Err(5));
    assert_eq!(p.bind(2..3, BIND, "0-1", MF_STRICT), Ok(()));
    assert_eq!(p.bind(2..3, LOCAL, "", MF_STRICT), Err(5));
}

#[test]
fn strict_and_holes_come_mapping_by_mapping() {
    let mut p = process();
    p.write(0..1);
    p.bind(2..4, LOCAL, "", 0).unwrap();
    p.munmap(at(4), 60 << 12).unwrap();
    // Mappings 0..2 and 2..4: the wrong page is in the first, the hole behind
    // the second.
    assert_eq!(p.bind(0..6, BIND, "1", MF_STRICT), Err(5));
    // As one mapping the hole is found first.
    p.bind(0..4, DEFAULT, "", 0).unwrap();
    assert_eq!(p.bind(0..6, BIND, "1", MF_STRICT), Err(14));
}

#[test]
fn move_takes_wrong_pages_where_a_fault_would_put_them() {
    let mut p = process();
    p.write(0..8);
    p.bind(0..4, BIND, "3", MF_MOVE).unwrap();
    assert_eq!(p.nodes(0..8), "33330000");
    // Pages that lie in the mask stay, the others follow their address.
    p.bind(2..8, INTERLEAVE, "1,3", MF_MOVE | MF_STRICT)
        .unwrap();
    assert_eq!(p.nodes(0..8), "33331313");
    // Local and default take every page as wrong.
    p.run_on(NodeId(1)).unwrap();
    p.bind(0..2, LOCAL, "", MF_MOVE).unwrap();
    p.set(WEIGHTED, "2-3").unwrap();
    p.bind(4..8, DEFAULT, "", MF_MOVE_ALL).unwrap();
    assert_eq!(p.nodes(0..8), "11332323");
    // Preferred takes its first node, but leaves what lies in its mask.
    p.bind(0..4, PREFERRED, "0,3", MF_MOVE).unwrap();
    assert_eq!(p.nodes(0..4), "0033");
    // A hole, and nothing moves.
    assert_eq!(p.bind(60..70, BIND, "1", MF_MOVE), Err(14));
}

#[test]
fn zero_pages_neither_fail_nor_move() {
    let mut p = process();
    assert_eq!(p.ask_at(0, F_NODE | F_ADDR).1, 0);
    assert_eq!(p.bind(0..1, BIND, "2", MF_STRICT), Ok(()));
    assert_eq!(p.bind(0..1, BIND, "3", MF_MOVE), Ok(()));
    assert_eq!(p.nodes(0..1), "-");
    assert_eq!(p.ask_at(0, F_NODE | F_ADDR).1, 0);
    assert_eq!(p.write(0..1), "3");
}

#[test]
fn home_node() {
    let mut p = process();
    assert_eq!(p.home(0..4, 1), Err(2));
    p.bind(0..2, BIND, "1-3", 0).unwrap();
    p.bind(4..6, PREFERRED_MANY, "1-3", 0).unwrap();
    p.bind(8..10, INTERLEAVE, "1-3", 0).unwrap();
    p.bind(12..14, BIND, "1-3", 0).unwrap();
    // Mappings without policy are passed over; those before the one that
    // cannot have a home keep theirs.
    assert_eq!(p.home(0..14, 3), Err(95));
    // Interleave over three: page 8 is 2 modulo 3, the third node.
    assert_eq!(p.write(0..14), "33003300310011");
    assert_eq!(p.home(0..4, 4), Err(22));
    assert_eq!(p.home(0..4, 1 << 16), Err(22));
    let flagged = p.set_mempolicy_home_node(at(0), 4096, 1, 1);
    assert_eq!(flagged, Err(Errno::EINVAL));
    assert_eq!(p.home(12..12, 1), Ok(()));
    // The home may lie outside the mask; from node 0 the nearest is node 1.
    assert_eq!(p.home(13..14, 0), Ok(()));
    p.bind(13..14, BIND, "1-3", MF_MOVE).unwrap();
    // A new mbind puts the home back, the same policy or not.
    p.munmap(at(0), 64 << 12).unwrap();
    p.mmap(at(0), 64 << 12).unwrap();
    p.bind(0..4, BIND, "1-3", 0).unwrap();
    p.home(0..4, 2).unwrap();
    p.bind(2..4, BIND, "1-3", 0).unwrap();
    assert_eq!(p.write(0..4), "2211");
}

/// Pages 0 and 1 are bound and untouched, 2 and 3 have no policy and are
/// written; then `change` makes them equal. Whether the two have joined shows
/// in what is found first: a wrong page in the first, or the hole at page 4.
fn joins(kernel: Kernel, change: fn(&mut Process)) -> bool {
    let mut p = process_on("0-3", "0", kernel);
    p.mmap(at(0), 4 << 12).unwrap();
    p.bind(0..2, BIND, "0-1", 0).unwrap();
    p.write(2..3);
    change(&mut p);
    p.write(0..1);
    match p.bind(0..6, BIND, "3", MF_STRICT) {
        Err(5) => false,
        Err(14) => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn older_kernels_do_not_join_a_written_mapping_to_an_untouched_one() {
    let untouched_changes = |p: &mut Process| p.bind(0..2, DEFAULT, "", 0).unwrap();
    let written_changes = |p: &mut Process| p.bind(2..4, BIND, "0-1", 0).unwrap();
    assert!(joins(Kernel::BEFORE_AUTO, untouched_changes));
    assert!(joins(Kernel::WITH_AUTO, untouched_changes));
    assert!(!joins(Kernel::BEFORE_AUTO, written_changes));
    assert!(joins(Kernel::WITH_AUTO, written_changes));
}

#[test]
fn mappings_written_apart_stay_apart() {
    for kernel in [Kernel::BEFORE_AUTO, Kernel::WITH_AUTO] {
        assert!(!joins(kernel, |p| {
            p.write(0..1);
            p.bind(0..2, DEFAULT, "", 0).unwrap();
        }));
    }
}
