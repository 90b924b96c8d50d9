//! `get_mempolicy`.

use super::*;

fn query(p: &mut Process, maxnode: u64) -> Reply {
    p.get_mempolicy(Query {
        mode: true,
        mask: true,
        maxnode,
        addr: 0,
        flags: 0,
    })
}

#[test]
fn every_combination_of_flags() {
    let mut p = process();
    p.set(BIND | STATIC_NODES, "1,9").unwrap();
    p.bind(0..4, PREFERRED, "2", 0).unwrap();
    let einval = (Err(Errno::EINVAL), -1, String::new());
    for flags in 0..16 {
        let by_addr = p.ask_at(0, flags);
        let by_task = p.ask_task(flags);
        let unmapped = p.ask_at(100, flags);
        match flags {
            0 => {
                let word = (STATIC_NODES | BIND) as i32;
                assert_eq!(by_task, (Ok(()), word, "1,9".into()));
                assert_eq!(by_addr, einval);
            }
            // Only an interleaving task has a next node.
            F_NODE => assert_eq!((by_task, by_addr), (einval.clone(), einval.clone())),
            F_ADDR => {
                assert_eq!(by_addr, (Ok(()), 1, "2".into()));
                assert_eq!(by_task.0, Err(Errno::EFAULT));
                assert_eq!(unmapped.0, Err(Errno::EFAULT));
            }
            3 => {
                assert_eq!(by_addr, (Ok(()), 0, "2".into()));
                assert_eq!(unmapped.0, Err(Errno::EFAULT));
            }
            // The address does not matter.
            F_MEMS_ALLOWED => {
                assert_eq!(by_task, (Ok(()), 0, "0-3".into()));
                assert_eq!(by_addr, by_task);
            }
            _ => assert_eq!((by_task, by_addr), (einval.clone(), einval.clone())),
        }
    }
    // A mapping without policy does not answer with the task's.
    assert_eq!(p.ask_at(5, F_ADDR), (Ok(()), 0, String::new()));
}

#[test]
fn the_mode_is_written_before_a_mask_error() {
    let mut p = process();
    p.set(PREFERRED_MANY, "1").unwrap();
    // Too short for the possible nodes: nothing is written.
    for maxnode in [0, 3] {
        let reply = query(&mut p, maxnode);
        assert_eq!(reply.result, Err(Errno::EINVAL));
        assert_eq!((reply.mode, reply.mask), (None, vec![]));
    }
    // More than a page of mask.
    for maxnode in [32_770, u64::MAX - 62] {
        let reply = query(&mut p, maxnode);
        assert_eq!(reply.result, Err(Errno::EINVAL));
        assert_eq!((reply.mode, reply.mask), (Some(5), vec![]));
    }
    // Whole words are written.
    for (maxnode, words) in [(4, 1), (65, 1), (66, 2), (1024, 16), (32_769, 512)] {
        let reply = query(&mut p, maxnode);
        assert_eq!(reply.result, Ok(()));
        assert_eq!((reply.mask.len(), reply.mask[0]), (words, 2), "{maxnode}");
    }
    // Near 2^64 the length rounds to nothing.
    for maxnode in [u64::MAX, u64::MAX - 61] {
        let reply = query(&mut p, maxnode);
        assert_eq!((reply.result, reply.mask), (Ok(()), vec![]));
    }
    // Who does not want a mask may say any length.
    let reply = p.get_mempolicy(Query {
        mode: true,
        ..Query::default()
    });
    assert_eq!((reply.result, reply.mode), (Ok(()), Some(5)));
}

#[test]
fn the_next_node_of_an_interleaving_task() {
    let mut p = process();
    p.set(INTERLEAVE, "1,3").unwrap();
    assert_eq!(p.ask_task(F_NODE), (Ok(()), 1, "1,3".into()));
    p.files.write_node(NodeId(1), b"5").unwrap();
    p.set(WEIGHTED, "1,3").unwrap();
    // Three tables count: two of node 1's five are left.
    p.write(0..1);
    assert_eq!(p.ask_task(F_NODE), (Ok(()), 1, "1,3".into()));
    p.write(1..2);
    assert_eq!(p.counter.peek(p.landing.spread().unwrap()), NodeId(1));
}

#[test]
fn asking_for_a_node_reads_the_page() {
    let mut p = process();
    p.set(BIND, "2").unwrap();
    // The page of zeros is node 0's.
    assert_eq!(p.ask_at(3, F_NODE | F_ADDR), (Ok(()), 0, String::new()));
    assert_eq!(p.nodes(3..4), "-");
    assert_eq!(p.write(3..4), "2");
    assert_eq!(p.ask_at(3, F_NODE | F_ADDR).1, 2);
}

/// Four nodes take one word; node 64 of a static mask is in the second.
#[test]
fn nodes_that_cannot_be_are_told_within_the_words_of_those_that_can() {
    let mut p = process();
    p.set(BIND | STATIC_NODES, "1,63-64").unwrap();
    for maxnode in [64, 65, 1024] {
        let reply = query(&mut p, maxnode);
        assert_eq!(reply.mask[0], 1 << 1 | 1 << 63);
        assert!(reply.mask[1..].iter().all(|&word| word == 0));
    }
}

#[test]
fn flags_are_told_and_internal_ones_are_not() {
    let mut p = process();
    for mode in [
        BIND | NUMA_BALANCING,
        PREFERRED_MANY | NUMA_BALANCING | RELATIVE_NODES,
        WEIGHTED | STATIC_NODES,
    ] {
        p.set(mode, "1-2").unwrap();
        assert_eq!(p.ask_task(0).1, mode as i32);
        let bits = p.policy().unwrap().flags.bits();
        assert_eq!(bits, mode & MODE_FLAGS);
    }
    p.set(PREFERRED, "").unwrap();
    assert_eq!(p.ask_task(0), (Ok(()), LOCAL as i32, String::new()));
    assert_eq!(p.policy().unwrap().mode, Mode::Local);
}

#[test]
fn balancing_alone_keeps_the_callers_mask_before_7() {
    for (kernel, told) in [(Kernel::BEFORE_AUTO, "1,9"), (Kernel::WITH_AUTO, "1")] {
        let mut p = process_on("0-3", "0", kernel);
        p.set(BIND | NUMA_BALANCING, "1,9").unwrap();
        assert_eq!(p.ask_task(0).2, told);
    }
}
