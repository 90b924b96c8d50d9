//! Where touched pages land.

use super::*;

#[test]
fn without_a_policy_pages_are_local() {
    let mut p = process();
    assert_eq!(p.write(0..2), "00");
    p.run_on(NodeId(1)).unwrap();
    assert_eq!(p.write(0..4), "0011");
    assert_eq!(p.run_on(NodeId(2)), Err(Errno::EINVAL));
}

#[test]
fn each_mode_places_by_its_rule() {
    for (mode, nodes, placed) in [
        (PREFERRED, "2-3", "222222"),
        (PREFERRED, "", "000000"),
        (LOCAL, "", "000000"),
        (BIND, "2-3", "222222"),
        (BIND, "0,3", "000000"),
        (PREFERRED_MANY, "1,3", "111111"),
        (INTERLEAVE, "0-2", "012012"),
        (WEIGHTED, "1,3", "111311"),
    ] {
        let mut p = process();
        p.files.write_node(NodeId(1), b"3").unwrap();
        p.set(mode, nodes).unwrap();
        // BASE is 0 modulo 3, and 3 * 2^33 is 0 modulo 4.
        assert_eq!(p.write(0..6), placed, "{mode} {nodes}");
    }
}

#[test]
fn the_address_decides_and_not_the_order_of_touching() {
    let mut p = process();
    p.set(INTERLEAVE, "0-2").unwrap();
    p.write(5..6);
    p.write(1..2);
    assert_eq!(p.nodes(0..6), "-1---2");
    assert_eq!(p.write(0..6), "012012");
}

#[test]
fn a_mappings_policy_goes_before_the_tasks() {
    let mut p = process();
    p.set(BIND, "3").unwrap();
    p.bind(2..4, PREFERRED, "1", 0).unwrap();
    assert_eq!(p.write(0..6), "331133");
    let why = p.place_of(BASE + 2).unwrap();
    assert_eq!((why.source, why.node), (PolicySource::Mapping, NodeId(1)));
    assert_eq!(p.place_of(BASE).unwrap().source, PolicySource::Task);
    assert_eq!(p.place_of(BASE + 64), None);
}

#[test]
fn the_explanation_says_the_place_in_the_round() {
    let mut p = process();
    p.files.write_node(NodeId(0), b"5").unwrap();
    p.set(WEIGHTED, "0-1").unwrap();
    let why = p.place_of(BASE + 11).unwrap();
    let turn = Turn {
        round: 6,
        position: 5,
        weight: 1,
    };
    assert_eq!((why.turn, why.node), (Some(turn), NodeId(1)));
    p.set(DEFAULT, "").unwrap();
    let why = p.place_of(BASE).unwrap();
    assert_eq!((why.source, why.turn), (PolicySource::BuiltIn, None));
}

#[test]
fn new_weights_count_for_new_pages_only() {
    let mut p = process();
    p.set(WEIGHTED, "0-1").unwrap();
    assert_eq!(p.write(0..4), "0101");
    p.files.write_node(NodeId(0), b"3").unwrap();
    // 4 is 0 modulo 4.
    assert_eq!(p.write(0..8), "01010001");
}

#[test]
fn pages_stop_at_a_hole() {
    let mut p = process();
    p.munmap(at(4), 2 << 12).unwrap();
    assert_eq!(p.touch(BASE + 2, 8), Err(Errno::EFAULT));
    assert_eq!(p.nodes(0..8), "--00----");
    assert_eq!(p.touch(BASE + 100, 0), Ok(()));
}

#[test]
fn a_node_without_memory_gives_way_by_distance() {
    // Node 1 has a CPU and no memory; from it node 2 comes before node 0.
    let mut p = process_on("0,2", "0-1", Kernel::WITH_AUTO);
    p.mmap(at(0), 8 << 12).unwrap();
    p.run_on(NodeId(1)).unwrap();
    assert_eq!(p.write(0..1), "2");
    p.set(BIND, "0").unwrap();
    assert_eq!(p.write(1..2), "0");
    p.set(LOCAL, "").unwrap();
    assert_eq!(p.write(2..3), "2");
    assert_eq!(p.set(BIND, "1"), Err(22));
}

#[test]
fn unmapped_memory_is_gone_and_comes_anew() {
    let mut p = process();
    p.bind(0..4, BIND, "3", 0).unwrap();
    assert_eq!(p.write(0..4), "3333");
    assert_eq!(p.mmap(at(2), 4096), Err(Errno::EEXIST));
    p.munmap(at(1), 2 << 12).unwrap();
    assert_eq!(p.nodes(0..4), "3--3");
    p.mmap(at(1), 2 << 12).unwrap();
    assert_eq!(p.write(0..4), "3003");
    for (start, len) in [(at(0), 0), (at(0) + 1, 4096), (1 << 47, 4096)] {
        assert_eq!(p.munmap(start, len), Err(Errno::EINVAL));
    }
    assert_eq!(p.mmap((1 << 47) - 4096, 4096), Err(Errno::ENOMEM));
    assert_eq!(p.mmap(at(0), 0), Err(Errno::EINVAL));
}

#[test]
fn each_page_table_advances_the_counter_by_one() {
    let next = |p: &mut Process| p.ask_task(F_NODE).1;
    let mut p = process_on("0-3", "0", Kernel::BEFORE_AUTO);
    p.mmap(at(0), 2 << 30).unwrap();
    p.set(INTERLEAVE, "0-3").unwrap();
    assert_eq!(next(&mut p), 0);
    // The first page needs a table of each of three levels.
    p.write(0..1);
    assert_eq!(next(&mut p), 3);
    // 512 pages share the lowest, so there is one more; 2^18 share the middle.
    p.write(1..512);
    assert_eq!(next(&mut p), 3);
    p.write(512..513);
    assert_eq!(next(&mut p), 0);
    p.write(1 << 18..(1 << 18) + 1);
    assert_eq!(next(&mut p), 2);
    // A table goes with the last mapping in its span.
    p.munmap(at(0), 256 << 12).unwrap();
    p.mmap(at(0), 256 << 12).unwrap();
    p.write(0..1);
    assert_eq!(next(&mut p), 2);
    p.munmap(at(0), 512 << 12).unwrap();
    p.mmap(at(0), 512 << 12).unwrap();
    p.write(0..1);
    assert_eq!(next(&mut p), 3);
    // Without a policy nothing is counted; the next one starts anew.
    p.set(DEFAULT, "").unwrap();
    p.write(1024..1025);
    p.set(WEIGHTED, "1-3").unwrap();
    assert_eq!(next(&mut p), 1);
}

#[test]
fn the_documents_64_k_pages_in_a_process() {
    let mut p = process_on("0-1", "0-1", Kernel::BEFORE_AUTO);
    p.mmap(at(0), 65_793 << 12).unwrap();
    p.files.write_node(NodeId(0), b"5\n").unwrap();
    p.set(WEIGHTED, "0-1").unwrap();
    p.touch(BASE, 65_793).unwrap();
    let on_0 = (0..65_793).filter(|&i| p.node_of(BASE + i) == Some(NodeId(0)));
    // BASE is 0 modulo 6; 65,793 = 6 * 10,965 + 3.
    assert_eq!(on_0.count(), 54_828);
}
