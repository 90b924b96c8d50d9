//! Whether a page should follow the task that touched it.
//!
//! In this order:
//!
//! 1. the task's node has no memory: no;
//! 2. tiering, and the page is in slow memory: the promotion gate alone decides;
//! 3. the page is told who touched it now, and says who did before;
//! 4. no tiering, a slow page, and what it said is no CPU: no, it was a time;
//! 5. the task is young (no preferred node yet, or at most 4 scans seen), and
//!    nobody or itself touched the page before: yes;
//! 6. somebody did, from another node than the task's: no. A page moves only
//!    when two touches in a row come from one node;
//! 7. it was the task itself: yes. 8. The task has no group: yes;
//! 9. the task's node makes more than 3 times as many of the group's faults as
//!    the page's node: yes;
//! 10. else yes if the page's node has more memory faults for the CPU faults
//!     that it makes than the task's node, by more than 4 to 3.

use super::cpupid::{Cpupid, CpupidFormat};
use super::group::{ACTIVE_FRACTION, Group};
use super::machine::Machine;
use crate::units::NodeId;
use serde::Serialize;

/// Scans that a task has seen and is still young.
pub const YOUNG_SCANS: u64 = 4;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The task's pid.
    pub pid: u32,
    /// The node of its CPU.
    pub node: NodeId,
    /// Whether it has a preferred node and has seen more than [`YOUNG_SCANS`] scans.
    pub settled: bool,
    /// Its group.
    pub group: Option<&'a Group>,
}

/// Rules 4 to 10, with the number of the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// No: the task's node has no memory.
    NoMemory,
    /// No: what the page said was a time.
    Stale,
    /// Yes: a young task's own or untouched page.
    Young,
    /// No: the last touch came from another node.
    OtherNode,
    /// Yes: the task touched it last.
    Own,
    /// Yes: no group to ask.
    Alone,
    /// Yes: the task's node is far more active in the group.
    MoreActive,
    /// Yes: the page's node has more memory for its activity.
    Balance,
    /// No: the group's memory is spread as its activity is.
    Spread,
}

impl Verdict {
    /// Whether the page should move.
    #[must_use]
    pub fn moves(self) -> bool {
        !matches!(
            self,
            Verdict::NoMemory | Verdict::Stale | Verdict::OtherNode | Verdict::Spread
        )
    }
}

/// Whether a page on `src` whose last toucher was `old` should move to the
/// asker's node. `tiering`: tiering mode is on, so `src` is top tier here.
#[must_use]
pub fn should_move(
    asker: &Asker<'_>,
    src: NodeId,
    old: Cpupid,
    tiering: bool,
    format: &CpupidFormat,
    machine: &Machine,
    node_of_cpu: impl Fn(u32) -> Option<NodeId>,
) -> Verdict {
    if !machine.has_memory(asker.node) {
        return Verdict::NoMemory;
    }
    if !tiering && !machine.is_top_tier(src) && !format.is_valid(old) {
        return Verdict::Stale;
    }
    let (empty, own) = (format.is_empty(old), format.matches(old, asker.pid));
    if !asker.settled && (empty || own) {
        return Verdict::Young;
    }
    if !empty && node_of_cpu(format.cpu(old)) != Some(asker.node) {
        return Verdict::OtherNode;
    }
    if own {
        return Verdict::Own;
    }
    let Some(group) = asker.group else {
        return Verdict::Alone;
    };
    by_group(group, src, asker.node)
}

fn by_group(group: &Group, src: NodeId, dst: NodeId) -> Verdict {
    let sums = group.sums();
    let wide = |n: u64| u128::from(n);
    let (cpu_src, cpu_dst) = (wide(sums.cpu.of(src)), wide(sums.cpu.of(dst)));
    let (mem_src, mem_dst) = (wide(sums.mem.of(src)), wide(sums.mem.of(dst)));
    if cpu_dst > cpu_src * u128::from(ACTIVE_FRACTION) {
        Verdict::MoreActive
    } else if cpu_dst * mem_src * 3 > cpu_src * mem_dst * 4 {
        Verdict::Balance
    } else {
        Verdict::Spread
    }
}

#[cfg(test)]
mod tests {
    use super::super::faults::{Counted, Faults, Ran};
    use super::super::group::Groups;
    use super::super::machine::tests::{machine, pair};
    use super::*;

    const FORMAT: fn() -> CpupidFormat = || CpupidFormat::new(9, 8, 2).unwrap();
    const ME: u32 = 7;
    const OTHER: u32 = 8;

    /// CPU n is on node n.
    fn ask(group: Option<&Group>, settled: bool, src: u16, old: Cpupid) -> Verdict {
        let asker = Asker {
            pid: ME,
            node: NodeId(1),
            settled,
            group,
        };
        let node = |cpu| Some(NodeId(cpu as u16));
        should_move(&asker, NodeId(src), old, false, &FORMAT(), &pair(), node)
    }

    #[test]
    fn a_young_task_pulls_what_is_its_own_or_nobodys() {
        let format = FORMAT();
        assert_eq!(ask(None, false, 0, format.none()), Verdict::Young);
        // Its own from another node's CPU as well.
        assert_eq!(ask(None, false, 0, format.pack(0, ME)), Verdict::Young);
        assert_eq!(
            ask(None, false, 0, format.pack(0, OTHER)),
            Verdict::OtherNode
        );
    }

    #[test]
    fn a_settled_task_needs_two_touches_from_its_node() {
        let format = FORMAT();
        assert_eq!(ask(None, true, 0, format.pack(0, ME)), Verdict::OtherNode);
        assert_eq!(ask(None, true, 0, format.pack(1, ME)), Verdict::Own);
        assert_eq!(ask(None, true, 0, format.pack(1, OTHER)), Verdict::Alone);
        assert_eq!(ask(None, true, 0, format.none()), Verdict::Alone);
    }

    /// A group whose members fault `cpu[n]` pages from node n and `mem[n]` on it.
    fn group(cpu: [u64; 2], mem: [u64; 2]) -> Group {
        assert_eq!(cpu[0] + cpu[1], mem[0] + mem[1]);
        let mut faults = Faults::new(2);
        let mut from = cpu;
        for (node, pages) in mem.into_iter().enumerate() {
            for _ in 0..pages {
                let at = usize::from(from[0] == 0);
                from[at] -= 1;
                faults.count(&Counted {
                    pages: 1,
                    mem: NodeId(node as u16),
                    cpu: NodeId(at as u16),
                    private: false,
                    local: false,
                    failed: false,
                });
            }
        }
        faults.fold(Ran::ALWAYS);
        let mut groups = Groups::new();
        let id = groups.found(faults.averages());
        groups.get(id).unwrap().clone()
    }

    #[test]
    fn a_group_moves_memory_towards_its_activity() {
        let old = FORMAT().pack(1, OTHER);
        let verdict = |cpu, mem| ask(Some(&group(cpu, mem)), true, 0, old);
        // 81 of 100 from node 1: 81 > 3 * 19.
        assert_eq!(verdict([19, 81], [50, 50]), Verdict::MoreActive);
        // 60 * 50 * 3 = 9000 > 40 * 50 * 4 = 8000.
        assert_eq!(verdict([40, 60], [50, 50]), Verdict::Balance);
        // 50 * 57 * 3 = 8550 < 50 * 43 * 4 = 8600; with 58: 8700 > 8400.
        assert_eq!(verdict([50, 50], [57, 43]), Verdict::Spread);
        assert_eq!(verdict([50, 50], [58, 42]), Verdict::Balance);
        assert!(!Verdict::Spread.moves() && Verdict::Balance.moves());
        // A settled member's own page does not ask the group.
        let even = group([50, 50], [50, 50]);
        let own = ask(Some(&even), true, 0, FORMAT().pack(1, ME));
        assert_eq!(own, Verdict::Own);
    }

    #[test]
    fn no_memory_and_times_for_touchers_say_no() {
        let format = FORMAT();
        let asker = Asker {
            pid: ME,
            node: NodeId(0),
            settled: false,
            group: None,
        };
        let cxl = machine(&[&[10, 20], &[20, 10]], &[1]);
        let slow = |old| {
            let node = |cpu| Some(NodeId(cpu as u16));
            should_move(&asker, NodeId(1), old, false, &format, &cxl, node)
        };
        // A time of 5000 ms reads as CPU 19 of 2.
        assert_eq!(slow(format.time(5000)), Verdict::Stale);
        assert_eq!(slow(format.pack(0, ME)), Verdict::Young);
        let asker = Asker {
            node: NodeId(9),
            ..asker
        };
        let node = |_| None;
        let none = should_move(&asker, NodeId(0), format.none(), true, &format, &cxl, node);
        assert_eq!(none, Verdict::NoMemory);
    }
}
