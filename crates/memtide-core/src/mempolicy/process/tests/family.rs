//! Parents and children: which pages they share, and until when.

use super::super::family::{Family, Member};
use super::*;

const CHILD: Member = Member(1);

/// A parent on node 0 with pages 0 to 7 on nodes 0 and 1 in turns, and its child
/// on node 1.
fn two() -> Family {
    let mut parent = process();
    parent.bind(0..8, INTERLEAVE, "0-1", 0).unwrap();
    assert_eq!(parent.write(0..8), "01010101");
    let mut family = Family::new(parent);
    assert_eq!(family.fork(Family::FIRST), Some(CHILD));
    family.get_mut(CHILD).unwrap().run_on(NodeId(1)).unwrap();
    family
}

fn shown(family: &Family, who: Member) -> String {
    family.get(who).unwrap().nodes(0..8)
}

fn bind(family: &mut Family, who: Member, pages: Range<u64>, nodes: &str, flags: u32) {
    let len = (pages.end - pages.start) << 12;
    let start = at(pages.start);
    family
        .mbind(who, start, len, BIND.into(), &mask(nodes), 1024, flags)
        .unwrap();
}

fn touch(family: &mut Family, who: Member, pages: Range<u64>) {
    let first = BASE + pages.start;
    family.touch(who, first, pages.end - pages.start).unwrap();
}

/// Both have policies of their own after the fork: the parent's pages 0 and 1
/// are copied to its node 3, and the child's stay.
#[test]
fn who_writes_first_gets_a_copy_by_its_own_policy() {
    let mut family = two();
    bind(&mut family, Family::FIRST, 0..4, "3", 0);
    touch(&mut family, Family::FIRST, 0..2);
    assert_eq!(shown(&family, Family::FIRST), "33010101");
    assert_eq!(shown(&family, CHILD), "01010101");
    // The child is alone with 0 and 1 now, and shares 2.
    bind(&mut family, CHILD, 0..4, "2", 0);
    touch(&mut family, CHILD, 0..3);
    assert_eq!(shown(&family, CHILD), "01210101");
    // So is the parent with 2.
    touch(&mut family, Family::FIRST, 0..4);
    assert_eq!(shown(&family, Family::FIRST), "33030101");
}

#[test]
fn the_last_one_writes_in_place() {
    let mut family = two();
    family.exit(Family::FIRST);
    assert!(family.get(Family::FIRST).is_none());
    bind(&mut family, CHILD, 0..8, "2", 0);
    touch(&mut family, CHILD, 0..8);
    assert_eq!(shown(&family, CHILD), "01010101");
    // Pages of three: the eldest has gone, so one copy is made for the two.
    let grandchild = family.fork(CHILD).unwrap();
    touch(&mut family, CHILD, 0..1);
    touch(&mut family, grandchild, 0..1);
    assert_eq!(shown(&family, CHILD), "21010101");
    assert_eq!(shown(&family, grandchild), "01010101");
}

#[test]
fn shared_pages_move_for_all_or_stay() {
    let mut family = two();
    touch(&mut family, CHILD, 0..1);
    bind(&mut family, CHILD, 0..4, "3", MF_MOVE);
    assert_eq!(shown(&family, CHILD), "31010101");
    bind(&mut family, CHILD, 0..4, "3", MF_MOVE_ALL);
    assert_eq!(shown(&family, CHILD), "33330101");
    assert_eq!(shown(&family, Family::FIRST), "03330101");
    // Moved pages are still shared.
    bind(&mut family, CHILD, 0..4, "2", MF_MOVE);
    assert_eq!(shown(&family, CHILD), "23330101");
}

/// From 0-1 to 1-2, what lay on 1 goes to 2 and what lay on 0 to 1: first the
/// parent's, then the child's, so that what they share goes on to 2.
#[test]
fn a_cpuset_moves_shared_pages_once_for_each() {
    let mut family = two();
    touch(&mut family, CHILD, 0..2);
    family.set_cpuset(&"0-1".parse().unwrap());
    assert_eq!(shown(&family, CHILD), "01010101");
    family.set_cpuset(&"1-2".parse().unwrap());
    assert_eq!(shown(&family, Family::FIRST), "12222222");
    assert_eq!(shown(&family, CHILD), "12222222");
}

/// What was only read in a mapping without pages is not in the child; beside a
/// page it is.
#[test]
fn a_mapping_without_pages_is_not_copied() {
    let mut parent = process();
    parent.read(BASE);
    let mut family = Family::new(parent);
    let child = family.fork(Family::FIRST).unwrap();
    assert_eq!(family.get(child).unwrap().table_pages(), 0);
    touch(&mut family, Family::FIRST, 1..2);
    let child = family.fork(Family::FIRST).unwrap();
    let pages = &family.get(child).unwrap().pages;
    assert_eq!(pages.get(BASE), Entry::ZERO_PAGE);
    assert_eq!(pages.get(BASE + 1).node(), Some(NodeId(0)));
}

/// In a child, parts of what was one mapping have owners of their own: cut
/// before the fork, they are not joined after it, and not with what is new.
#[test]
fn inherited_mappings_do_not_join() {
    let mut parent = process();
    parent.write(0..8);
    parent.bind(0..4, BIND, "0", 0).unwrap();
    let mut family = Family::new(parent);
    family.fork(Family::FIRST).unwrap();
    for (who, mappings) in [(Family::FIRST, 1), (CHILD, 2)] {
        let process = family.get_mut(who).unwrap();
        process.bind(0..4, DEFAULT, "", 0).unwrap();
        process.mmap(at(64), 1 << 12).unwrap();
        let all = process.mappings.overlapping(0..u64::MAX).count();
        assert_eq!(all, mappings + usize::from(who == CHILD), "{who:?}");
    }
}

/// A page table that a fork makes counts by the weights of that moment.
#[test]
fn a_fork_sees_new_weights() {
    let mut parent = process();
    parent.write(0..1);
    parent.set(WEIGHTED, "0-1").unwrap();
    parent.files().write_node(NodeId(0), b"9").unwrap();
    let mut family = Family::new(parent);
    family.fork(Family::FIRST).unwrap();
    // Three tables, of nine pages that node 0 gets now.
    let parent = family.get_mut(Family::FIRST).unwrap();
    assert_eq!(parent.ask_task(F_NODE).1, 0);
}

#[test]
fn forks_end() {
    let mut family = two();
    for _ in 1..Family::MOST_FORKS {
        let child = family.fork(Family::FIRST).unwrap();
        family.exit(child);
    }
    assert_eq!(family.fork(Family::FIRST), None);
}
