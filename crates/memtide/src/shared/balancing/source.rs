//! Which source tells who uses what.
//!
//! With `auto` the best that works here is taken: hardware that samples
//! accesses; then the hint faults of the kernel's own scans. Write faults work
//! nearly everywhere, but they take soft-dirty bits away from others, so they
//! are never chosen by themselves; who has nothing else is told of them.

use anyhow::bail;
use memtide_core::units::PageSize;
use memtide_linux::fs::Root;
use memtide_linux::live::sampling::Sampling;
use memtide_linux::probe;
use memtide_linux::source::samples::period::RateTarget;
use memtide_linux::source::samples::{Kind, Options};
use memtide_loop::options::{BalanceSource, Rate, TierSource};
use memtide_loop::write_rounds::WriteFaultRate;
use std::time::Duration;

/// How long hardware may take to prove itself.
const PROOF: Duration = Duration::from_secs(5);

/// A source, and what its user should know about it.
pub struct Opened {
    /// The source.
    pub sampling: Sampling,
    /// Whether each page comes once in a round or a scan, so that how often it was
    /// seen says nothing.
    pub by_rounds: bool,
    /// The unit of hardware that it listens to, which nobody else should.
    pub hardware: Option<TierSource>,
    /// Sentences for people.
    pub notices: Vec<String>,
}

/// Opens the source that was asked for, or with `auto` the best that works. What tiering listens to is
/// `taken`: a unit of hardware that two want is had by each for a part of the time.
pub fn open(
    wanted: BalanceSource,
    root: &Root,
    rate: Option<Rate>,
    taken: &[TierSource],
) -> anyhow::Result<Opened> {
    choose(wanted, taken, |source| open_one(source, root, rate))
}

fn choose(
    wanted: BalanceSource,
    taken: &[TierSource],
    mut open_one: impl FnMut(BalanceSource) -> anyhow::Result<Opened>,
) -> anyhow::Result<Opened> {
    let mut open_free = |source| match taken.iter().find(|taken| hardware(source) == Some(**taken))
    {
        Some(taken) => bail!("{taken}: tiering listens to it; name other sources for one of both"),
        None => open_one(source),
    };
    if wanted != BalanceSource::Auto {
        return open_free(wanted);
    }
    let mut reasons = Vec::new();
    for candidate in [
        BalanceSource::Ibs,
        BalanceSource::Pebs,
        BalanceSource::Faults,
    ] {
        match open_free(candidate) {
            Ok(opened) => return Ok(opened),
            Err(reason) => reasons.push(crate::shared::outside::causes(&reason)),
        }
    }
    bail!(
        "nothing here tells who uses which page: {}; --source writes, or source = \"writes\" in [balance], would make writes fault, at the price of others' soft-dirty bits",
        reasons.join("; ")
    )
}

/// The unit of hardware that a source listens to, as tiering calls it.
fn hardware(source: BalanceSource) -> Option<TierSource> {
    match source {
        BalanceSource::Ibs => Some(TierSource::Ibs),
        BalanceSource::Pebs => Some(TierSource::Pebs),
        BalanceSource::Auto | BalanceSource::Faults | BalanceSource::Writes => None,
    }
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
            hardware: Some(match kind {
                Kind::Ibs => TierSource::Ibs,
                _ => TierSource::Pebs,
            }),
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
            hardware: None,
            notices: vec![
                "hint faults: the kernel balances, too, and its scans decide how often a page is seen"
                    .into(),
            ],
        }),
        BalanceSource::Writes => {
            let rate = WriteFaultRate::of(rate);
            Ok(Opened {
                sampling: Sampling::write_faults(&options, rate)
                    .map_err(|why| failed("write faults", why))?,
                by_rounds: true,
                hardware: None,
                notices: vec![
                    "write faults: reads are not seen, and others lose the soft-dirty bits of the managed processes"
                        .into(),
                ],
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BalanceSource::{Auto, Faults, Ibs, Pebs, Writes};

    /// What is tried on a machine where nothing works, and what is said then.
    fn tried(wanted: BalanceSource, taken: &[TierSource]) -> (Vec<BalanceSource>, String) {
        let mut tried = Vec::new();
        let chosen = choose(wanted, taken, |source| {
            tried.push(source);
            bail!("{source:?} is not here")
        });
        (tried, chosen.err().unwrap().to_string())
    }

    #[test]
    fn auto_tries_the_best_first_and_never_writes() {
        let (sources, why) = tried(Auto, &[]);
        assert_eq!(sources, [Ibs, Pebs, Faults]);
        let wanted = "nothing here tells who uses which page: Ibs is not here; Pebs is not here; Faults is not here; --source writes, ";
        assert!(why.starts_with(wanted), "{why}");
        assert_eq!(tried(Writes, &[]).0, [Writes]);
    }

    #[test]
    fn a_unit_that_tiering_listens_to_is_not_shared() {
        let taken = [TierSource::Damon, TierSource::Ibs];
        let (sources, why) = tried(Auto, &taken);
        assert_eq!(sources, [Pebs, Faults]);
        assert!(why.contains("ibs: tiering listens to it"), "{why}");
        let (sources, why) = tried(Ibs, &taken);
        assert_eq!((sources.len(), why.starts_with("ibs: tiering")), (0, true));
        // Of hint faults everybody hears.
        assert_eq!(tried(Faults, &[TierSource::HintFaults]).0, [Faults]);
    }
}
