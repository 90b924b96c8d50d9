//! `/proc/PID/status`: one `Name:` and its values a line.
//!
//! Kernel threads and zombies lack the `Vm` lines, kernels before 6.8 lack
//! `Kthread`, kernels without cpusets lack `Mems_allowed_list`: all `None`.

use crate::fs::list::{at_line, nodes_at_line};
use crate::fs::parse::{ParseError, hex, lines, number, quoted, small, words};
use memtide_core::units::NodeId;
use std::collections::BTreeSet;

/// What memtide uses of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The process that the thread belongs to; its own pid for a process.
    pub tgid: Option<u32>,
    /// The real user id.
    pub uid: Option<u32>,
    /// The effective user id.
    pub effective_uid: Option<u32>,
    /// Its pid in each pid namespace, the reader's first, its own last.
    pub namespace_pids: Option<Vec<u32>>,
    /// True for the kernel's own threads.
    pub kernel_thread: Option<bool>,
    /// Memory in use, in bytes.
    pub resident: Option<u64>,
    /// The CPUs that it may run on, by its cpuset and by its own choice.
    pub cpus_allowed: Option<BTreeSet<u32>>,
    /// The nodes that its cpuset allows.
    pub mems_allowed: Option<BTreeSet<NodeId>>,
    /// Effective capabilities, one bit each.
    pub effective_capabilities: Option<u64>,
}

/// Parses the file.
pub fn parse(bytes: &[u8]) -> Result<Status, ParseError> {
    let mut status = Status::default();
    for (line, content) in lines(bytes) {
        let Some(colon) = content.iter().position(|byte| *byte == b':') else {
            let problem = format!("{} is not \"Name: values\"", quoted(content));
            return Err(ParseError::new(line, "field", problem));
        };
        let (name, values) = (&content[..colon], content[colon + 1..].trim_ascii());
        let first = words(values).next().unwrap_or_default();
        match name {
            b"Tgid" => status.tgid = Some(small(first, line, "Tgid")?),
            b"Uid" => {
                let effective = words(values).nth(1).unwrap_or_default();
                status.uid = Some(small(first, line, "Uid")?);
                status.effective_uid = Some(small(effective, line, "Uid")?);
            }
            b"NSpid" => {
                let pids = words(values).map(|pid| small(pid, line, "NSpid"));
                status.namespace_pids = Some(pids.collect::<Result<_, _>>()?);
            }
            b"Kthread" => status.kernel_thread = Some(number(first, line, "Kthread")? != 0),
            b"VmRSS" => {
                let kib = number(first, line, "VmRSS")?;
                let bytes = kib
                    .checked_mul(1024)
                    .ok_or_else(|| ParseError::new(line, "VmRSS", format!("{kib} is too large")))?;
                status.resident = Some(bytes);
            }
            b"Cpus_allowed_list" => {
                status.cpus_allowed = Some(at_line(values, line, "Cpus_allowed_list")?);
            }
            b"Mems_allowed_list" => {
                status.mems_allowed = Some(nodes_at_line(values, line, "Mems_allowed_list")?);
            }
            b"CapEff" => status.effective_capabilities = Some(hex(first, line, "CapEff")?),
            _ => {}
        }
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_a_container() {
        let text = b"Name:\tredis: x\nTgid:\t900\nUid:\t1000\t1001\t1000\t1000\nNSpid:\t900\t12\n\
            Kthread:\t0\nVmRSS:\t    1736 kB\nCapEff:\t0000000000800000\n\
            Cpus_allowed_list:\t1-3\nMems_allowed:\t00000000,00000005\nMems_allowed_list:\t0,2\n";
        let status = parse(text).unwrap();
        assert_eq!(status.tgid, Some(900));
        assert_eq!((status.uid, status.effective_uid), (Some(1000), Some(1001)));
        assert_eq!(status.namespace_pids, Some(vec![900, 12]));
        assert_eq!(status.kernel_thread, Some(false));
        assert_eq!(status.resident, Some(1736 * 1024));
        assert_eq!(
            status.mems_allowed,
            Some(BTreeSet::from([NodeId(0), NodeId(2)]))
        );
        assert_eq!(status.cpus_allowed, Some(BTreeSet::from([1, 2, 3])));
        assert_eq!(status.effective_capabilities, Some(1 << 23));
    }

    #[test]
    fn what_a_kernel_thread_lacks_is_none() {
        let status = parse(b"Name:\tkswapd0\nTgid:\t50\n").unwrap();
        assert_eq!(status.resident, None);
        assert_eq!(status.kernel_thread, None);
        assert_eq!(status.mems_allowed, None);
    }

    #[test]
    fn errors_name_line_and_field() {
        let says = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            says("Name:\ta\nTgid:\tx"),
            "2: Tgid: \"x\" is not an unsigned number"
        );
        assert_eq!(says("Uid:\t0"), "1: Uid: \"\" is not an unsigned number");
        assert_eq!(
            says("nothing"),
            "1: field: \"nothing\" is not \"Name: values\""
        );
        assert_eq!(
            says("Mems_allowed_list:\t0-"),
            "1: Mems_allowed_list: \"\" is not an unsigned number"
        );
    }
}
