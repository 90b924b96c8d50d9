//! Which source of accesses is listened to.
//!
//! The best one that works here is taken: DAMON, which sees every kind of
//! memory; then NUMA hint faults, which the kernel makes anyway while
//! `kernel.numa_balancing` is on. Page-table scans are exact and fast but take
//! the accessed bits away from reclaim, so they are never chosen by themselves.

use anyhow::bail;
use memtide_core::access;
use memtide_core::units::PageSize;
use memtide_linux::fs::Root;
use memtide_linux::source::damon::{self, Damon};
use memtide_linux::source::from_damon::DamonSource;
use memtide_linux::source::from_hint_faults::HintFaultSource;
use memtide_linux::source::from_page_table::PageTableSource;
use memtide_linux::source::hint_faults;
use memtide_linux::source::observe::Source;
use memtide_loop::options::TierSource;

/// A source, and what its user should know about it.
pub struct Opened {
    /// The source.
    pub source: Box<dyn Source>,
    /// Sentences for people.
    pub notices: Vec<String>,
}

/// Opens the source that was asked for, or with `auto` the best that works.
pub fn open(wanted: TierSource, root: &Root, page: PageSize) -> anyhow::Result<Opened> {
    let open_one = |wanted| -> anyhow::Result<Opened> {
        match wanted {
            TierSource::Damon => open_damon(root, page),
            TierSource::HintFaults => open_hint_faults(root, page),
            TierSource::PageTable => open_page_table(root),
            TierSource::Auto => unreachable!("auto tries the others"),
        }
    };
    if wanted != TierSource::Auto {
        return open_one(wanted);
    }
    let mut reasons = Vec::new();
    for candidate in [TierSource::Damon, TierSource::HintFaults] {
        match open_one(candidate) {
            Ok(mut opened) => {
                opened.notices.extend(reasons);
                return Ok(opened);
            }
            Err(reason) => reasons.push(crate::shared::outside::causes(&reason)),
        }
    }
    bail!(
        "no source of accesses works here: {}; memtide doctor says more",
        reasons.join("; ")
    )
}

/// Whether [`open`] can succeed after the end of a run that listens to `held`. What that run holds
/// nobody else can open; the others are opened and closed again.
pub fn can_open(
    wanted: TierSource,
    held: access::Source,
    root: &Root,
    page: PageSize,
) -> anyhow::Result<()> {
    let is_held = match wanted {
        TierSource::Damon | TierSource::Auto => held == access::Source::Damon,
        TierSource::HintFaults => held == access::Source::HintFault,
        TierSource::PageTable => held == access::Source::PageTableScan,
    };
    match is_held {
        true => Ok(()),
        false => open(wanted, root, page).map(drop),
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

fn open_damon(root: &Root, page: PageSize) -> anyhow::Result<Opened> {
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
    Ok(Opened {
        source: Box::new(DamonSource::new(damon, root.clone(), page)),
        notices,
    })
}

fn open_hint_faults(root: &Root, page: PageSize) -> anyhow::Result<Opened> {
    let options = hint_faults::Options {
        root: root.path("/"),
        ..Default::default()
    };
    let source = HintFaultSource::open(options, page)
        .map_err(|why| anyhow::anyhow!("hint faults: {why}"))?;
    Ok(Opened {
        source: Box::new(source),
        notices: Vec::new(),
    })
}

fn open_page_table(root: &Root) -> anyhow::Result<Opened> {
    let source = PageTableSource::open(&root.path("/"))
        .map_err(|why| anyhow::anyhow!("page-table scan: {why}"))?;
    Ok(Opened {
        source: Box::new(source),
        notices: vec!["page-table scan: reclaim does not see the accesses that it sees".into()],
    })
}
