//! Which source tells who uses what.
//!
//! With `auto` the best that works here is taken: hardware that samples
//! accesses; then the hint faults of the kernel's own scans. Write faults work
//! nearly everywhere, but they take soft-dirty bits away from others, so they
//! are never chosen by themselves; who has nothing else is told of them.

use anyhow::bail;
use memtide_core::units::PageSize;
use memtide_linux::fs::Root;
use memtide_linux::live::sampling::{Sampling, WriteFaultRate};
use memtide_linux::probe;
use memtide_linux::source::samples::period::RateTarget;
use memtide_linux::source::samples::{Kind, Options};
use memtide_loop::options::{BalanceSource, Rate};
use std::time::Duration;

/// Faults a second that are worth their price, some microseconds each.
const WRITE_FAULTS_PER_SECOND: u64 = 5000;
/// The shortest time between two rounds of a process, in ms.
const ROUND_MS: u64 = 500;
/// A round then costs the process some seconds of CPU time, once in a quarter of
/// an hour.
const MOST_BYTES: u64 = 16 << 30;

/// How long hardware may take to prove itself.
const PROOF: Duration = Duration::from_secs(5);

/// A source, and what its user should know about it.
pub struct Opened {
    /// The source.
    pub sampling: Sampling,
    /// Whether each page comes once in a round or a scan, so that how often it was
    /// seen says nothing.
    pub by_rounds: bool,
    /// Sentences for people.
    pub notices: Vec<String>,
}

/// Opens the source that was asked for, or with `auto` the best that works.
pub fn open(wanted: BalanceSource, root: &Root, rate: Option<Rate>) -> anyhow::Result<Opened> {
    if wanted != BalanceSource::Auto {
        return open_one(wanted, root, rate);
    }
    let mut reasons = Vec::new();
    for candidate in [
        BalanceSource::Ibs,
        BalanceSource::Pebs,
        BalanceSource::Faults,
    ] {
        match open_one(candidate, root, rate) {
            Ok(opened) => return Ok(opened),
            Err(reason) => reasons.push(crate::shared::outside::causes(&reason)),
        }
    }
    bail!(
        "nothing here tells who uses which page: {}; --source writes would make writes fault, at the price of others' soft-dirty bits",
        reasons.join("; ")
    )
}

fn open_one(wanted: BalanceSource, root: &Root, rate: Option<Rate>) -> anyhow::Result<Opened> {
    let options = Options {
        root: root.clone(),
        rate: rate.map_or(RateTarget::default(), |rate| RateTarget {
            per_cpu_second: rate.get(),
        }),
        ..Options::default()
    };
    let failed = |name: &str, why| anyhow::anyhow!("{name}: {why}");
    let hardware = |kind: Kind| -> anyhow::Result<Opened> {
        // What opens does not always sample: as doctor does, see it work first.
        probe::samples::prove(kind, root, PageSize::KIB_4, PROOF, &|| false)
            .map_err(|why| anyhow::anyhow!("{}: {why}", kind.name()))?;
        Ok(Opened {
            sampling: Sampling::hardware(kind, &options).map_err(|why| failed(kind.name(), why))?,
            by_rounds: false,
            notices: Vec::new(),
        })
    };
    match wanted {
        BalanceSource::Auto => unreachable!("auto tries the others"),
        BalanceSource::Ibs => hardware(Kind::Ibs),
        BalanceSource::Pebs => hardware(Kind::Pebs),
        BalanceSource::Faults => Ok(Opened {
            sampling: Sampling::hint_faults(&options).map_err(|why| failed("hint faults", why))?,
            by_rounds: true,
            notices: vec![
                "hint faults: the kernel balances, too, and its scans decide how often a page is seen"
                    .into(),
            ],
        }),
        BalanceSource::Writes => {
            let rate = WriteFaultRate {
                per_second: rate.map_or(WRITE_FAULTS_PER_SECOND, |rate| u64::from(rate.get())),
                shortest_ms: ROUND_MS,
                most_bytes: MOST_BYTES,
            };
            Ok(Opened {
                sampling: Sampling::write_faults(&options, rate)
                    .map_err(|why| failed("write faults", why))?,
                by_rounds: true,
                notices: vec![
                    "write faults: reads are not seen, and others lose the soft-dirty bits of the managed processes"
                        .into(),
                ],
            })
        }
    }
}
