//! Which source tells who uses what.
//!
//! With `auto` the best that works here is taken: hardware that samples
//! accesses; then the hint faults of the kernel's own scans. Write faults work
//! nearly everywhere, but they take soft-dirty bits away from others, so they
//! are never chosen by themselves; who has nothing else is told of them.

use super::args::SourceArg;
use anyhow::bail;
use memtide_linux::fs::Root;
use memtide_linux::live::balance::ears::{Ears, HintFaultEars, WriteFaultEars, WriteFaultRate};

/// Faults a second that are worth their price, some microseconds each.
const WRITE_FAULTS_PER_SECOND: u64 = 5000;
/// The shortest time between two rounds of a process, in ms.
const ROUND_MS: u64 = 500;
/// 16 GiB: a round then costs the process some seconds of CPU time, once in a
/// quarter of an hour.
const MOST_PAGES: u64 = 4 << 20;

/// A source, and what its user should know about it.
pub struct Opened {
    /// The source.
    pub ears: Box<dyn Ears>,
    /// Whether each page comes once in a round or a scan, so that how often it was
    /// seen says nothing.
    pub by_rounds: bool,
    /// Sentences for people.
    pub notices: Vec<String>,
}

/// Opens the source that was asked for, or with `auto` the best that works.
pub fn open(wanted: SourceArg, root: &Root, rate: Option<u64>) -> anyhow::Result<Opened> {
    if wanted != SourceArg::Auto {
        return open_one(wanted, root, rate);
    }
    let mut reasons = Vec::new();
    for candidate in [SourceArg::Ibs, SourceArg::Pebs, SourceArg::Faults] {
        match open_one(candidate, root, rate) {
            Ok(opened) => return Ok(opened),
            Err(reason) => reasons.push(format!("{reason:#}")),
        }
    }
    bail!(
        "nothing here tells who uses which page: {}; --source writes would make writes fault, at the price of others' soft-dirty bits",
        reasons.join("; ")
    )
}

fn open_one(wanted: SourceArg, root: &Root, rate: Option<u64>) -> anyhow::Result<Opened> {
    match wanted {
        SourceArg::Auto => unreachable!("auto tries the others"),
        SourceArg::Ibs => bail!("ibs: not built in yet"),
        SourceArg::Pebs => bail!("pebs: not built in yet"),
        SourceArg::Faults => {
            let ears =
                HintFaultEars::open(root).map_err(|why| anyhow::anyhow!("hint faults: {why}"))?;
            Ok(Opened {
                ears: Box::new(ears),
                by_rounds: true,
                notices: vec![
                    "the kernel balances, too; its scans decide how often pages are seen".into(),
                ],
            })
        }
        SourceArg::Writes => {
            let rate = WriteFaultRate {
                per_second: rate.unwrap_or(WRITE_FAULTS_PER_SECOND),
                shortest_ms: ROUND_MS,
                most_pages: MOST_PAGES,
            };
            let ears = WriteFaultEars::open(root, rate)
                .map_err(|why| anyhow::anyhow!("write faults: {why}"))?;
            Ok(Opened {
                ears: Box::new(ears),
                by_rounds: true,
                notices: vec![
                    "write faults: soft-dirty bits of the managed processes are lost to others; reads are not seen".into(),
                ],
            })
        }
    }
}
