//! What a change of the cpuset does.

use super::*;

/// The effective nodes of a policy made in one cpuset after a change to another.
fn rebound(kernel: Kernel, word: u32, nodes: &str, cpusets: &[&str]) -> (String, String) {
    let mut p = process_on("0-7", "0", kernel);
    p.set_cpuset(&cpusets[0].parse().unwrap());
    p.set(word, nodes).unwrap();
    for cpuset in &cpusets[1..] {
        p.set_cpuset(&cpuset.parse().unwrap());
    }
    let effective = p.policy().unwrap().nodes.to_string();
    (effective, p.ask_task(0).2)
}

fn effective(word: u32, nodes: &str, cpusets: &[&str]) -> String {
    rebound(Kernel::WITH_AUTO, word, nodes, cpusets).0
}

#[test]
fn static_nodes_come_back() {
    let word = BIND | STATIC_NODES;
    assert_eq!(effective(word, "1,3,5", &["0-7", "0-3"]), "1,3");
    assert_eq!(effective(word, "1,3,5", &["0-7", "0-3", "4-7"]), "5");
    // Nothing left: all that is allowed.
    assert_eq!(effective(word, "1", &["0-7", "4-5"]), "4-5");
    assert_eq!(effective(word, "1", &["0-7", "4-5", "0-1"]), "1");
}

#[test]
fn relative_nodes_count_within_the_set() {
    let word = INTERLEAVE | RELATIVE_NODES;
    // 1 % 3 = 1, 3 % 3 = 0, 5 % 3 = 2: all three of {4, 6, 7}.
    assert_eq!(effective(word, "1,3,5", &["4,6-7"]), "4,6-7");
    // 1 % 2 = 1, 3 % 2 = 1, 5 % 2 = 1: the second of {2, 5}.
    assert_eq!(effective(word, "1,3,5", &["4,6-7", "2,5"]), "5");
    assert_eq!(effective(word, "1,3,5", &["4,6-7", "2,5", "0-7"]), "1,3,5");
}

#[test]
fn positions_are_kept_without_a_flag() {
    // 1 and 3 are second and fourth: second and fourth of {4, 5, 6, 7}.
    assert_eq!(effective(BIND, "1,3", &["0-3", "4-7"]), "5,7");
    // Modulo 2: both the second of {6, 7}. What was lost stays lost.
    assert_eq!(effective(BIND, "1,3", &["0-3", "6-7"]), "7");
    assert_eq!(effective(BIND, "1,3", &["0-3", "6-7", "0-3"]), "1");
}

#[test]
fn preferred_policies_stay_but_forget_the_callers_mask() {
    for mode in [PREFERRED, PREFERRED_MANY] {
        let after = |word| rebound(Kernel::WITH_AUTO, mode | word, "1", &["0-3", "4-7"]);
        assert_eq!(after(0), ("1".into(), "1".into()));
        assert_eq!(after(STATIC_NODES), ("1".into(), "4-7".into()));
    }
    let relative = PREFERRED | RELATIVE_NODES;
    let before = rebound(Kernel::WITH_AUTO, relative, "5", &["0-3"]);
    assert_eq!(before, ("1".into(), "5".into()));
}

#[test]
fn balancing_alone_is_counted_in_the_wrong_set_before_7() {
    let word = BIND | NUMA_BALANCING;
    let after = |kernel| rebound(kernel, word, "1,3", &["0-3", "4-7"]);
    assert_eq!(after(Kernel::WITH_AUTO), ("5,7".into(), "5,7".into()));
    // Among the caller's nodes {1, 3} they are first and second.
    assert_eq!(after(Kernel::BEFORE_AUTO), ("4-5".into(), "4-7".into()));
}

#[test]
fn mappings_are_bound_anew_as_well() {
    let mut p = process();
    p.set_cpuset(&"0-1".parse().unwrap());
    p.bind(0..2, BIND, "1", 0).unwrap();
    p.bind(2..4, INTERLEAVE | STATIC_NODES, "0,3", 0).unwrap();
    assert_eq!(p.write(0..4), "1100");
    p.munmap(at(0), 0).unwrap_err();
    p.set_cpuset(&"2-3".parse().unwrap());
    // Pages went by position, 0 to 2 and 1 to 3.
    assert_eq!(p.nodes(0..4), "3322");
    assert_eq!(p.ask_at(0, F_ADDR), (Ok(()), 2, "3".into()));
    let word = (INTERLEAVE | STATIC_NODES) as i32;
    assert_eq!(p.ask_at(2, F_ADDR), (Ok(()), word, "0,3".into()));
    p.mmap(at(100), 4096).unwrap();
    // The CPU is still on node 0; in the cpuset, node 2 is the nearest.
    assert_eq!(p.write(100..101), "2");
    assert_eq!(p.ask_task(F_MEMS_ALLOWED).2, "2-3");
    assert_eq!(p.set(BIND, "0"), Err(22));
}

#[test]
fn zero_pages_and_the_same_nodes_stay() {
    let mut p = process();
    p.ask_at(0, F_NODE | F_ADDR).0.unwrap();
    p.write(1..2);
    p.set(PREFERRED | STATIC_NODES, "1").unwrap();
    // A node without memory changes nothing, so nothing is remembered anew.
    p.set_cpuset(&"0-5".parse().unwrap());
    assert_eq!(p.ask_task(0).2, "1");
    p.set_cpuset(&"3".parse().unwrap());
    assert_eq!(p.nodes(0..2), "-3");
    assert_eq!(p.ask_task(0).2, "3");
    // None with memory: all of them, as the group above has.
    p.set_cpuset(&"9".parse().unwrap());
    assert_eq!(p.ask_task(F_MEMS_ALLOWED).2, "0-3");
}

#[test]
fn a_policy_outside_the_cpuset_gives_way() {
    let mut p = process();
    p.set(PREFERRED_MANY, "0-1").unwrap();
    p.set_cpuset(&"2-3".parse().unwrap());
    assert_eq!(p.write(0..1), "2");
    // A positional remap may leave a node outside: 1 is not in {0}.
    let mut p = process();
    p.set_cpuset(&"0-1".parse().unwrap());
    p.set(INTERLEAVE, "0-1").unwrap();
    p.set_cpuset(&"0".parse().unwrap());
    assert_eq!(p.write(0..4), "0000");
}

#[test]
fn misplaced_pages_of_a_process() {
    let mut p = process();
    p.write(0..2);
    p.bind(1..2, BIND | NUMA_BALANCING, "0-1", 0).unwrap();
    p.run_on(NodeId(1)).unwrap();
    assert_eq!(p.misplaced(BASE, || true), Some(NodeId(1)));
    assert_eq!(p.misplaced(BASE, || false), None);
    assert_eq!(p.misplaced(BASE + 1, || true), Some(NodeId(1)));
    assert_eq!(p.misplaced(BASE + 2, || true), None);
    p.bind(1..2, BIND, "0-1", 0).unwrap();
    assert_eq!(p.misplaced(BASE + 1, || unreachable!()), None);
}
