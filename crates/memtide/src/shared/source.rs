//! Which sources of accesses are listened to.
//!
//! With `auto` those are the best that work here. One that sees what is in use and
//! what is not: DAMON, which sees every kind of memory; or else NUMA hint faults, which
//! the kernel makes anyway while `kernel.numa_balancing` is on. And hardware that
//! samples, if it proves itself: what it names is in use, for next to nothing.
//! Page-table scans are exact and fast but take the accessed bits away from reclaim, so
//! they are never chosen by themselves.
//!
//! Of sources that were named, those that work are taken, and of the others it is said
//! why they do not.

use crate::shared::outside::causes;
use anyhow::bail;
use memtide_core::access;
use memtide_core::units::PageSize;
use memtide_linux::fs::Root;
use memtide_linux::live::LiveSource;
use memtide_linux::live::sampling::Sampling;
use memtide_linux::probe;
use memtide_linux::source::damon::{self, Damon};
use memtide_linux::source::from_damon::DamonSource;
use memtide_linux::source::from_hint_faults::HintFaultSource;
use memtide_linux::source::from_page_table::PageTableSource;
use memtide_linux::source::hint_faults;
use memtide_linux::source::samples::period::RateTarget;
use memtide_linux::source::samples::{Kind, Options};
use memtide_loop::options::{TierOptions, TierSource};
use std::time::Duration;

/// How long hardware may take to prove itself.
const PROOF: Duration = Duration::from_secs(5);

/// A source, and what its user should know about it.
struct One {
    source: LiveSource,
    notices: Vec<String>,
}

/// Sources, and what their user should know about them.
pub struct Opened {
    /// At least one, if anybody is tiered.
    pub sources: Vec<LiveSource>,
    /// Sentences for people.
    pub notices: Vec<String>,
}

impl Opened {
    /// None, for who tiers nobody.
    pub fn none() -> Opened {
        Opened {
            sources: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn add(&mut self, one: One) {
        self.sources.push(one.source);
        self.notices.extend(one.notices);
    }

    /// Says what cannot be done by sources that only tell of single accesses.
    fn told(mut self, named: &[TierSource]) -> Opened {
        let only = |source: &TierSource| source.samples() || *source == TierSource::HintFaults;
        if named.iter().all(only) {
            let names = words(named);
            let text = format!(
                "{names}: what is hot is seen, and not what is idle, so nothing is demoted to make room; --source damon,... sees both"
            );
            self.notices.push(text);
        }
        self
    }
}

fn words(named: &[TierSource]) -> String {
    let names: Vec<&str> = named.iter().map(|source| source.name()).collect();
    names.join(", ")
}

/// Opens the sources that were asked for, or with `auto` the best that work. A unit of hardware that
/// balancing listens to is `taken`: had by two, each would have it for a part of the time.
pub fn open(
    options: &TierOptions,
    root: &Root,
    page: PageSize,
    taken: Option<TierSource>,
) -> anyhow::Result<Opened> {
    let open_one = |source| open_one(source, options, root, page);
    match options.source.is_auto() {
        true => best(|source| match taken {
            Some(taken) if source == taken => bail!("{taken}: balancing listens to it"),
            _ => open_one(source),
        }),
        false => named(options.source.named(), open_one),
    }
}

fn best(mut open_one: impl FnMut(TierSource) -> anyhow::Result<One>) -> anyhow::Result<Opened> {
    let mut opened = Opened::none();
    let (mut taken, mut reasons) = (Vec::new(), Vec::new());
    for groups in [
        [TierSource::Damon, TierSource::HintFaults],
        [TierSource::Ibs, TierSource::Pebs],
    ] {
        for candidate in groups {
            match open_one(candidate) {
                Ok(one) => {
                    opened.add(one);
                    if candidate.samples() {
                        let text = format!("{candidate}: it has proved itself, and is heard, too");
                        opened.notices.push(text);
                    } else {
                        opened.notices.append(&mut reasons);
                    }
                    taken.push(candidate);
                    break;
                }
                // Most machines lack one maker's hardware, and virtual ones both:
                // that is no news where something else works.
                Err(reason) => reasons.push(causes(&reason)),
            }
        }
    }
    if opened.sources.is_empty() {
        bail!(
            "no source of accesses works here: {}; memtide doctor says more",
            reasons.join("; ")
        )
    }
    if taken.iter().all(|source| source.samples()) {
        opened.notices.append(&mut reasons);
    }
    Ok(opened.told(&taken))
}

fn named(
    wanted: &[TierSource],
    mut open_one: impl FnMut(TierSource) -> anyhow::Result<One>,
) -> anyhow::Result<Opened> {
    let mut opened = Opened::none();
    let (mut taken, mut reasons) = (Vec::new(), Vec::new());
    for &source in wanted {
        match open_one(source) {
            Ok(one) => {
                opened.add(one);
                taken.push(source);
            }
            Err(reason) => reasons.push(causes(&reason)),
        }
    }
    if taken.is_empty() {
        bail!("{}", reasons.join("; "));
    }
    let others = words(&taken);
    let without = |reason: String| format!("{reason}; going on with {others}");
    opened.notices.extend(reasons.into_iter().map(without));
    Ok(opened.told(&taken))
}

fn open_one(
    source: TierSource,
    options: &TierOptions,
    root: &Root,
    page: PageSize,
) -> anyhow::Result<One> {
    match source {
        TierSource::Damon => open_damon(root, page),
        TierSource::HintFaults => open_hint_faults(root, page),
        TierSource::PageTable => open_page_table(root),
        TierSource::Ibs => open_hardware(Kind::Ibs, options, root, page),
        TierSource::Pebs => open_hardware(Kind::Pebs, options, root, page),
    }
}

/// Whether [`open`] can succeed after the end of a run that listens to `held`. What that run holds
/// nobody else can open; the others are opened and closed again.
pub fn can_open(
    options: &TierOptions,
    held: &[access::Source],
    root: &Root,
    page: PageSize,
) -> anyhow::Result<()> {
    let is_held = |source: &TierSource| {
        held.contains(&match source {
            TierSource::Damon => access::Source::Damon,
            TierSource::HintFaults => access::Source::HintFault,
            TierSource::PageTable => access::Source::PageTableScan,
            TierSource::Ibs | TierSource::Pebs => access::Source::Hardware,
        })
    };
    let wanted = match options.source.is_auto() {
        true => &[TierSource::Damon][..],
        false => options.source.named(),
    };
    match wanted.iter().any(is_held) {
        true => Ok(()),
        false => open(options, root, page, None).map(drop),
    }
}

/// How this machine's DAMON is taken.
pub fn damon_options(root: &Root) -> damon::Options {
    damon::Options {
        root: root.path("/"),
        pause_damon_stat: true,
        // Beyond some thousand, naming single pages takes longer than a look is
        // worth; what is left over has its turn later.
        limits: damon::LookLimits {
            single_pages: 4096,
            ..damon::LookLimits::default()
        },
    }
}

fn open_damon(root: &Root, page: PageSize) -> anyhow::Result<One> {
    let options = damon_options(root);
    let mut notices = Vec::new();
    if let Some(left) = damon::left_over(&options)? {
        notices.push(format!("putting back what a crashed memtide left: {left}"));
    }
    let damon = Damon::open(options).map_err(|why| anyhow::anyhow!("DAMON: {why}"))?;
    for module in damon.paused_modules() {
        notices.push(format!(
            "{module} is off while memtide runs; it keeps others out of DAMON"
        ));
    }
    Ok(One {
        source: LiveSource::Views(Box::new(DamonSource::new(damon, root.clone(), page))),
        notices,
    })
}

fn open_hint_faults(root: &Root, page: PageSize) -> anyhow::Result<One> {
    let options = hint_faults::Options {
        root: root.path("/"),
        ..Default::default()
    };
    let source = HintFaultSource::open(options, page)
        .map_err(|why| anyhow::anyhow!("hint faults: {why}"))?;
    Ok(One {
        source: LiveSource::Views(Box::new(source)),
        notices: Vec::new(),
    })
}

fn open_page_table(root: &Root) -> anyhow::Result<One> {
    let source = PageTableSource::open(&root.path("/"))
        .map_err(|why| anyhow::anyhow!("page-table scan: {why}"))?;
    Ok(One {
        source: LiveSource::Views(Box::new(source)),
        notices: vec!["page-table scan: reclaim does not see the accesses that it sees".into()],
    })
}

/// What opens does not always sample: as doctor does, see it work first.
fn open_hardware(
    kind: Kind,
    options: &TierOptions,
    root: &Root,
    page: PageSize,
) -> anyhow::Result<One> {
    let name = kind.name();
    probe::samples::prove(kind, root, page, PROOF, &|| false)
        .map_err(|why| anyhow::anyhow!("{name}: {why}"))?;
    let options = Options {
        root: root.clone(),
        rate: RateTarget {
            per_cpu_second: options.sample_rate.get(),
        },
        ..Options::default()
    };
    let sampling =
        Sampling::hardware(kind, &options).map_err(|why| anyhow::anyhow!("{name}: {why}"))?;
    Ok(One {
        source: LiveSource::Samples(Box::new(sampling)),
        notices: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use TierSource::{Damon, HintFaults, Ibs, PageTable, Pebs};
    use memtide_linux::source::observe::{Abilities, Sink, Source, SourceError, Subject};

    /// Stands for one that was opened.
    struct Fake;

    impl Source for Fake {
        fn kind(&self) -> access::Source {
            access::Source::Damon
        }
        fn abilities(&self) -> Abilities {
            Abilities::default()
        }
        fn look(&mut self, _: &[Subject], _: Duration) -> Result<u64, SourceError> {
            Ok(0)
        }
        fn glance(&mut self, _: &[Subject], _: Duration) -> Result<(), SourceError> {
            Ok(())
        }
        fn poll(&mut self, _: Duration, _: &mut dyn Sink) -> Result<(), SourceError> {
            Ok(())
        }
        fn close(&mut self) -> Result<(), SourceError> {
            Ok(())
        }
        fn kernel_time(&mut self) -> Duration {
            Duration::ZERO
        }
        fn lost(&self) -> u64 {
            0
        }
    }

    /// A machine where these work.
    fn only(works: &[TierSource]) -> impl FnMut(TierSource) -> anyhow::Result<One> {
        |source| match works.contains(&source) {
            true => Ok(One {
                source: LiveSource::Views(Box::new(Fake)),
                notices: vec![format!("{source} opened")],
            }),
            false => bail!("{source}: not here"),
        }
    }

    fn notices(opened: &Opened) -> Vec<&str> {
        opened.notices.iter().map(String::as_str).collect()
    }

    #[test]
    fn auto_takes_one_that_looks_and_hardware_that_proves_itself() {
        let opened = best(only(&[Damon, HintFaults, PageTable, Pebs])).unwrap();
        let wanted = [
            "damon opened",
            "pebs opened",
            "pebs: it has proved itself, and is heard, too",
        ];
        assert_eq!(notices(&opened), wanted);
        assert_eq!(opened.sources.len(), 2);
        // Hardware that most machines lack is no news.
        let opened = best(only(&[Damon])).unwrap();
        assert_eq!(notices(&opened), ["damon opened"]);
    }

    #[test]
    fn auto_says_what_it_makes_do_with() {
        let opened = best(only(&[HintFaults])).unwrap();
        let told = notices(&opened);
        assert_eq!(told[..2], ["hint-faults opened", "damon: not here"]);
        assert!(told[2].starts_with("hint-faults: what is hot is seen, and not what is idle"));
        let opened = best(only(&[Ibs])).unwrap();
        let told = notices(&opened).join("; ");
        for words in [
            "damon: not here",
            "hint-faults: not here",
            "ibs: what is hot",
        ] {
            assert!(told.contains(words), "{told}");
        }
        let error = best(only(&[PageTable])).err().unwrap().to_string();
        assert!(
            error.starts_with("no source of accesses works here: damon: not here; hint-faults"),
            "{error}"
        );
    }

    #[test]
    fn of_those_that_are_named_one_that_is_missing_is_told_and_the_others_go_on() {
        let opened = named(&[Damon, Ibs, Pebs], only(&[Damon, Pebs])).unwrap();
        let told = notices(&opened);
        let wanted = [
            "damon opened",
            "pebs opened",
            "ibs: not here; going on with damon, pebs",
        ];
        assert_eq!(told, wanted);
        let error = named(&[Ibs, Pebs], only(&[])).err().unwrap().to_string();
        assert_eq!(error, "ibs: not here; pebs: not here");
    }
}
