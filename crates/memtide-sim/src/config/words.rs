//! What a configuration means, in plain words, from its settings.

use super::{Acts, Bound, BySamples, Configuration, Interleave, Lru, Luf, Pghot, PromotionGate};
use memtide_core::access::{Source, SourceSet};
use memtide_core::hotness::Layout;
use memtide_loop::options::{
    BalanceOptions, BalanceSource, BalanceTasks, ClassOptions, TierGate, TierOptions, TierSource,
    Tiered,
};

/// One to four sentences.
pub(crate) fn in_words(configuration: &Configuration) -> String {
    match configuration.bound {
        Some(Bound::Static) => {
            return "No kernel: pages stay where they were first put, and looking after them costs \
                    nothing."
                .to_owned();
        }
        Some(Bound::Oracle) => {
            return "No kernel: pages are placed by how often each is accessed, which is known, and \
                    moving them costs nothing; which is accessed next is not known. No placement that \
                    knows no more beats it, or the result says why that is not proved."
                .to_owned();
        }
        None => {}
    }
    let mut sentences = vec![match &configuration.samples {
        Some(samples) => by_samples(samples),
        None => balancing(configuration).to_owned(),
    }];
    if let Some(pghot) = &configuration.pghot {
        sentences.push(tracking(pghot));
        sentences.push(gate(pghot).to_owned());
    }
    if let Some(interleave) = &configuration.interleave {
        sentences.push(interleaved(interleave));
    }
    if let Some(options) = &configuration.tier {
        sentences.push(tiered(options));
    }
    let classes = configuration.classes.iter();
    sentences.extend(classes.map(|(name, class)| shared(name, class)));
    if let Some(options) = &configuration.balance {
        sentences.push(balanced(options));
    }
    if configuration.bind_balancing {
        sentences.push(
            "Memory that is bound to several nodes may be balanced among them \
             (MPOL_F_NUMA_BALANCING)."
                .to_owned(),
        );
    }
    match configuration.luf {
        Some(Luf::Machine) => sentences.push(LAZY.to_owned()),
        Some(Luf::Zones) => {
            sentences.push(format!("{LAZY} Each node keeps its own account of that."))
        }
        None => {}
    }
    if !configuration.demotion {
        sentences
            .push("Cold pages are not demoted: memory that runs short is reclaimed.".to_owned());
    }
    if configuration.lru == Lru::Classic {
        sentences.push("Pages age on active and inactive lists instead of generations.".to_owned());
    }
    sentences.join(" ")
}

/// `memtide tier` with the options that differ from the usual.
fn tiered(options: &TierOptions) -> String {
    let names = |source: &TierSource| match source {
        TierSource::Damon => "DAMON",
        TierSource::HintFaults => "hint faults",
        TierSource::PageTable => "its own scans of the page tables",
        TierSource::Ibs | TierSource::Pebs => "hardware samples of cache misses",
    };
    let source = match options.source.named() {
        [] | [TierSource::Damon] => "DAMON finds".to_owned(),
        named => {
            let all: Vec<&str> = named.iter().map(names).collect();
            format!("{} find", all.join(" and "))
        }
    };
    let gate = match options.gate {
        TierGate::Pghot => "those that are touched often enough are promoted",
        TierGate::ThresholdFree => "the hottest that fit are promoted where that pays",
    };
    let tiers = options.tiers.as_ref().map_or(String::new(), |tiers| {
        format!(" Its tiers are {tiers}, from fast to slow.")
    });
    let dry = if options.dry_run {
        " It only says what it would do."
    } else {
        ""
    };
    format!(
        "memtide tier runs beside the programs: {source} hot pages of the slow tier, and {gate}.{tiers}{dry}"
    )
}

/// What a class may have.
fn shared(name: &str, class: &ClassOptions) -> String {
    let low = (class.fast.low)
        .map(|low| format!("its hot pages are kept in fast memory up to {low} (fast.low)"));
    let high =
        (class.fast.high).map(|high| format!("it is held to {high} of fast memory (fast.high)"));
    let alone = class.leave_alone.then(|| "it is left alone".to_owned());
    let done = class.tiered(Tiered::default()).words();
    let done = (!class.leave_alone && !done.is_empty()).then(|| match done {
        "keeps idle pages" => "its idle pages stay".to_owned(),
        done => format!("it is {done}"),
    });
    let parts = low.into_iter().chain(high).chain(alone).chain(done);
    let all: Vec<String> = parts.collect();
    match all.is_empty() {
        true => format!("Class {name} has no share of its own."),
        false => format!("Class {name}: {}.", all.join(", and ")),
    }
}

/// `memtide balance` with the options that differ from the usual.
fn balanced(options: &BalanceOptions) -> String {
    let tasks = match options.tasks {
        None => "",
        Some(BalanceTasks::Set) => ", and threads to the node of their memory",
        Some(BalanceTasks::Propose) => ", and says where threads should run",
    };
    let dry = if options.dry_run {
        " It only says what it would do."
    } else {
        ""
    };
    let tell = match options.source {
        BalanceSource::Auto | BalanceSource::Ibs | BalanceSource::Pebs => {
            "hardware samples of cache misses tell who uses a page"
        }
        BalanceSource::Faults => "the kernel's hint faults tell who uses a page",
        BalanceSource::Writes => "it makes writes fault, which tell who writes a page",
    };
    format!(
        "memtide balance runs beside the programs: {tell}, and it brings pages to the node that uses them{tasks}, within {} % of a CPU.{dry}",
        options.cpu_limit
    )
}

const LAZY: &str = "Lazy unmap flush: pages that were mapped read-only are taken away without an \
    interrupt to anybody; CPUs forget them when their memory is about to be used again.";

fn balancing(configuration: &Configuration) -> &'static str {
    match (configuration.numa_balancing, &configuration.pghot) {
        (0, None) => "NUMA balancing is off: the kernel moves no page to where it is used.",
        (0, Some(_)) => "NUMA balancing is off.",
        (1, _) => {
            "NUMA balancing (1): pages are made to fault now and then, and a page that faults from \
             another socket again moves to the CPUs that use it."
        }
        (2, Some(_)) => "Tiering by hint faults (2) says which pages are touched.",
        (2, None) => {
            "The kernel's tiering (2): pages of the slow tier are made to fault now and then, and one \
             that is touched soon after is promoted inside the fault."
        }
        _ => {
            "NUMA balancing and tiering together (3): hint faults move pages between sockets and \
             promote hot ones."
        }
    }
}

fn by_samples(samples: &BySamples) -> String {
    let settings = &samples.settings;
    let misses = match samples.misses_only {
        true => " of cache misses",
        false => "",
    };
    let acts = match samples.acts {
        Acts::Each => "each may move its page at once, in its task's time".to_owned(),
        Acts::Batches {
            interval_ms,
            threshold,
            window_ms,
            young_at_once,
        } => {
            let young = match young_at_once {
                true => ", a new task's own at the first",
                false => "",
            };
            format!(
                "every {interval_ms} ms a kernel thread moves in one batch what was seen {threshold} \
                 times within {} s{young}",
                f64::from(window_ms) / 1000.0
            )
        }
    };
    format!(
        "NUMA balancing (1) by hardware samples{misses} in place of hint faults, one every {} \
         operations at first, {} to {} by what they bring: {acts}.",
        settings.period, settings.min_period, settings.max_period
    )
}

fn tracking(pghot: &Pghot) -> String {
    let layout = match pghot.layout {
        Layout::Compact => "one byte a page",
        Layout::Precise => "four bytes a page",
    };
    format!(
        "Hot-page tracking is fed by {} and calls a page hot after {} within {} s ({layout}); threads \
         of their own move hot pages in batches.",
        sources(pghot),
        accesses(pghot.threshold),
        f64::from(pghot.window_ms) / 1000.0
    )
}

fn accesses(count: u8) -> String {
    match count {
        1 => "1 recorded access".to_owned(),
        count => format!("{count} recorded accesses"),
    }
}

fn sources(pghot: &Pghot) -> String {
    let misses = match pghot.sample_misses_only {
        true => ", cache misses only",
        false => "",
    };
    let names: Vec<String> = Source::ALL
        .into_iter()
        .filter(|source| pghot.sources.contains(*source))
        .map(|source| match source {
            Source::HintFault => "hint faults".to_owned(),
            Source::PageTableScan => format!(
                "scans of accessed bits every {} s",
                f64::from(pghot.page_table_scan_ms) / 1000.0
            ),
            Source::Hardware => format!(
                "hardware samples (one every {} operations{misses})",
                pghot.sample_period
            ),
            Source::Damon => "DAMON".to_owned(),
        })
        .collect();
    match pghot.sources == SourceSet::NONE {
        true => "nothing".to_owned(),
        false => names.join(" and "),
    }
}

fn gate(pghot: &Pghot) -> &'static str {
    match pghot.gate {
        PromotionGate::Kernel => {
            "They are promoted by the kernel's rule: at once while the fast tier has plenty of room, \
             else if they were touched lately enough and within a budget of bytes a second."
        }
        PromotionGate::ThresholdFree => {
            "They are promoted by memtide's own rule: the hottest pages that fit the fast tier, if \
             the move pays."
        }
    }
}

fn interleaved(interleave: &Interleave) -> String {
    let nodes: Vec<String> = interleave
        .weights
        .iter()
        .map(|(node, weight)| format!("{node}={weight}"))
        .collect();
    let what = match interleave.targeted {
        true => "Pages of the memory that is read and written most",
        false => "New pages",
    };
    let plain = interleave.weights.iter().all(|(_, weight)| *weight == 1);
    match plain {
        true => format!("{what} go to the nodes in turn, one page each."),
        false => format!(
            "{what} go to the nodes in turn, by weight ({}).",
            nodes.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_in_words() {
        let mut plain = Configuration::off("x");
        assert_eq!(
            in_words(&plain),
            "NUMA balancing is off: the kernel moves no page to where it is used."
        );
        plain.interleave = Some(Interleave {
            weights: vec![(0, 9), (2, 1)],
            targeted: true,
        });
        assert!(in_words(&plain).ends_with(
            "Pages of the memory that is read and written most go to the nodes in turn, by weight \
             (0=9, 2=1)."
        ));
        let balanced = Configuration {
            balance: Some(BalanceOptions {
                tasks: Some(BalanceTasks::Set),
                ..BalanceOptions::DEFAULT
            }),
            ..Configuration::off("z")
        };
        assert!(in_words(&balanced).ends_with(
            "memtide balance runs beside the programs: hardware samples of cache misses tell who uses \
             a page, and it brings pages to the node that uses them, and threads to the node of their \
             memory, within 5 % of a CPU."
        ));
        let tracked = Configuration {
            pghot: Some(Pghot {
                sources: SourceSet::NONE
                    .with(Source::Hardware)
                    .with(Source::PageTableScan),
                layout: Layout::Precise,
                threshold: 2,
                window_ms: 5000,
                gate: PromotionGate::ThresholdFree,
                page_table_scan_ms: 4000,
                sample_period: 100_000,
                sample_misses_only: true,
            }),
            ..Configuration::off("y")
        };
        assert_eq!(
            in_words(&tracked),
            "NUMA balancing is off. Hot-page tracking is fed by hardware samples (one every 100000 \
             operations, cache misses only) and scans of accessed bits every 4 s and calls a page hot \
             after 2 recorded accesses within 5 s (four bytes a page); threads of their own move hot \
             pages in batches. They are promoted by memtide's own rule: the hottest pages that fit \
             the fast tier, if the move pays."
        );
    }
}
