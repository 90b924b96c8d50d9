//! Whether a policy would be accepted, and at which of the kernel's checks it
//! would not.
//!
//! The checks are the model's own, asked one by one in the kernel's order;
//! here is only what to say when one fails.

use super::machine::Description;
use super::words::{mode_name, policy_name};
use memtide_core::mempolicy::process::{MF_MOVE, MF_MOVE_ALL, MF_STRICT};
use memtide_core::mempolicy::{
    Errno, Mode, ModeFlags, NUMA_BALANCING, Policy, RELATIVE_NODES, RawMask, Request, STATIC_NODES,
    parse_mode,
};
use memtide_core::nodemask::NodeMask;

/// A policy as it would be in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its mode; [`Mode::Default`] removes a policy.
    pub mode: Mode,
    /// Its flags.
    pub flags: ModeFlags,
    /// The caller's mask.
    pub asked: NodeMask,
    /// The nodes in force.
    pub effective: NodeMask,
}

/// A policy that the kernel would not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What the call would return.
    pub errno: Errno,
    /// For people: why, and what to do.
    pub why: String,
}

fn refuse<T>(errno: Errno, why: String) -> Result<T, Refused> {
    Err(Refused { errno, why })
}

/// Judges set_mempolicy(2), or mbind(2) of a mapped range with `mbind_flags`.
pub fn judge(
    description: &Description,
    word: u32,
    mask: &RawMask,
    maxnode: u64,
    mbind_flags: Option<u32>,
) -> Result<Accepted, Refused> {
    let machine = &description.machine;
    let (mode, flags) = match parse_mode(word) {
        Ok(parsed) => parsed,
        Err(errno) => return refuse(errno, why_no_mode(word)),
    };
    let asked = match mask.nodes(maxnode, machine.page()) {
        Ok(nodes) => nodes,
        Err(errno) => return refuse(errno, why_no_mask(errno, maxnode, machine.page().bytes())),
    };
    check_mbind(mbind_flags.unwrap_or(0), machine.input().capable)?;
    let request = match Request::new(mode, flags, asked) {
        Ok(request) => request,
        Err(errno) => return refuse(errno, why_no_request(mode, flags, &asked)),
    };
    let Some(request) = request else {
        return Ok(Accepted {
            mode,
            flags,
            asked,
            effective: NodeMask::EMPTY,
        });
    };
    let process = description.process();
    match Policy::new(request, process.allowed(), machine) {
        Ok(policy) => Ok(Accepted {
            mode: policy.mode,
            flags: policy.flags,
            asked,
            effective: policy.nodes,
        }),
        Err(errno) => {
            let allowed = process.allowed();
            let why = format!(
                "none of the nodes {asked} is left: allowed are {allowed}, the cpuset's nodes that \
                 have memory; name one of those"
            );
            refuse(errno, why)
        }
    }
}

fn why_no_mode(word: u32) -> String {
    let number = word & !(STATIC_NODES | RELATIVE_NODES | NUMA_BALANCING);
    let Some(mode) = Mode::ALL.get(number as usize) else {
        return format!("mode word {word:#x} has no known mode; modes are 0 to 6");
    };
    if word & STATIC_NODES != 0 && word & RELATIVE_NODES != 0 {
        return "static and relative exclude each other; take one".to_owned();
    }
    format!(
        "balancing goes with bind and preferred-many, not with {}",
        mode_name(*mode)
    )
}

fn why_no_mask(errno: Errno, maxnode: u64, page_bytes: u64) -> String {
    if errno == Errno::EFAULT {
        return "the mask cannot be read".to_owned();
    }
    match maxnode {
        0 => "maxnode 0 with a mask wraps around; give one more than the mask has bits".to_owned(),
        _ if maxnode - 1 > 8 * page_bytes => format!(
            "maxnode {maxnode} is more than a page of bits; the most is {}",
            8 * page_bytes + 1
        ),
        _ => "the mask names a node past 1023; no kernel has that many".to_owned(),
    }
}

fn check_mbind(flags: u32, capable: bool) -> Result<(), Refused> {
    let unknown = flags & !(MF_STRICT | MF_MOVE | MF_MOVE_ALL);
    if unknown != 0 {
        let why = format!("flags {unknown:#x} are unknown; there are strict 1, move 2, move-all 4");
        return refuse(Errno::EINVAL, why);
    }
    match flags & MF_MOVE_ALL != 0 && !capable {
        true => refuse(
            Errno::EPERM,
            "move-all needs CAP_SYS_NICE; take move".to_owned(),
        ),
        false => Ok(()),
    }
}

fn why_no_request(mode: Mode, flags: ModeFlags, asked: &NodeMask) -> String {
    let name = mode_name(mode);
    match (asked.is_empty(), mode) {
        (true, Mode::Local) | (true, Mode::Preferred) => format!(
            "{} without nodes takes neither static nor relative",
            policy_name(mode, flags)
        ),
        (true, _) => format!("{name} needs at least one node; name some"),
        (false, _) => format!("{name} takes no nodes; leave {asked} out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINES: [&str; 2] = [
        r#"{"machine":{"memory_nodes":"0-2","cpu_nodes":"0-1","kernel":"6.12","cpuset":"1-2"}}"#,
        r#"{"machine":{"memory_nodes":"0,2","cpu_nodes":"0","kernel":"7.2","capable":false}}"#,
    ];

    /// Every mode word that may mean something, with every kind of mask: the
    /// judge and the model's call say the same.
    #[test]
    fn the_judge_agrees_with_the_call() {
        let masks = [
            RawMask::Null,
            RawMask::Unreadable,
            RawMask::Words(vec![0]),
            RawMask::Words(vec![0b101]),
            RawMask::Words(vec![0b1000]),
            RawMask::Words(vec![u64::MAX; 20]),
        ];
        for machine in MACHINES {
            let description = Description::read(machine).unwrap();
            for word in (0..8).flat_map(|mode| (0..8).map(move |flags| mode | flags << 13)) {
                for mask in &masks {
                    for maxnode in [0, 1, 3, 64, 1025, 1281, 40_000] {
                        compare(&description, word, mask, maxnode);
                    }
                }
            }
        }
    }

    fn compare(description: &Description, word: u32, mask: &RawMask, maxnode: u64) {
        let what = format!("{word:#x} {mask:?} {maxnode}");
        let mut process = description.process();
        let called = process.set_mempolicy(word, mask, maxnode);
        match judge(description, word, mask, maxnode, None) {
            Ok(accepted) => {
                assert_eq!(called, Ok(()), "{what}");
                let nodes = process.policy().map(|policy| policy.nodes);
                assert_eq!(nodes.unwrap_or_default(), accepted.effective, "{what}");
            }
            Err(refused) => assert_eq!(called, Err(refused.errno), "{what}"),
        }
        process.mmap(1 << 40, 4096).unwrap();
        for flags in 0..16 {
            let called = process.mbind(1 << 40, 4096, word.into(), mask, maxnode, flags);
            let judged = judge(description, word, mask, maxnode, Some(flags));
            let judged = judged.map(drop).map_err(|refused| refused.errno);
            assert_eq!(judged, called, "{what} {flags}");
        }
    }
}
