//! A configuration from its part of a scenario's file.

use super::words::in_words;
use super::{Acts, Bound, BySamples, Configuration, Interleave, Lru, Luf, Pghot, PromotionGate};
use crate::text::{Source, TextError};
use crate::units::{Nanos, Rate};
use memtide_core::access::{Source as AccessSource, SourceSet};
use memtide_core::balancing::{Counting, SampleSettings};
use memtide_core::hotness::{Config as HotnessConfig, Layout};
use memtide_core::nodemask::NodeMask;
use memtide_core::topology::Topology;
use memtide_core::units::NodeId;
use memtide_loop::balance::has_choice;
use memtide_loop::options::{
    self, BalanceOptions, BalanceSource, ClassOptions, Classes, Objection, TierOptions, TierSource,
    Tiered,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// As it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigurationText {
    pub name: Spanned<String>,
    about: Option<String>,
    numa_balancing: Option<Spanned<u8>>,
    demotion: Option<bool>,
    lru: Option<LruText>,
    pghot: Option<Spanned<PghotText>>,
    interleave: Option<Spanned<InterleaveText>>,
    scan_period_min: Option<Spanned<Nanos>>,
    scan_period_max: Option<Spanned<Nanos>>,
    scan_delay: Option<Spanned<Nanos>>,
    scan_size_mb: Option<u32>,
    hot_threshold: Option<Spanned<Nanos>>,
    rate_limit: Option<Rate>,
    bind_balancing: Option<bool>,
    samples: Option<Spanned<SamplesText>>,
    tier: Option<Spanned<TierOptions>>,
    #[serde(default)]
    class: BTreeMap<String, Spanned<ClassOptions>>,
    balance: Option<Spanned<BalanceOptions>>,
    luf: Option<bool>,
    luf_zones: Option<Spanned<bool>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SamplesText {
    act: ActText,
    period: Option<u32>,
    min_period: Option<u32>,
    max_period: Option<u32>,
    placement: Option<u32>,
    delay: Option<Nanos>,
    interval: Option<Nanos>,
    threshold: Option<u8>,
    window: Option<Nanos>,
    young_at_once: Option<bool>,
    misses_only: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ActText {
    Each,
    Batches,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LruText {
    Classic,
    Multigenerational,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PghotText {
    sources: Vec<AccessSource>,
    #[serde(default = "precise")]
    layout: Layout,
    threshold: Option<u8>,
    window: Option<Nanos>,
    #[serde(default)]
    gate: GateText,
    page_table_scan: Option<Nanos>,
    sample_period: Option<u32>,
    sample_misses_only: Option<bool>,
}

fn precise() -> Layout {
    Layout::Precise
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum GateText {
    #[default]
    Kernel,
    ThresholdFree,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InterleaveText {
    nodes: Vec<u16>,
    weights: Option<Vec<i64>>,
    #[serde(default)]
    targeted: bool,
}

/// How often the accessed bits are looked at if nobody says: the aging interval that the series uses.
const PAGE_TABLE_SCAN_MS: u32 = 4000;

impl ConfigurationText {
    /// Checks it, on a machine with these nodes.
    pub fn check(
        self,
        source: Source<'_>,
        topology: &Topology,
    ) -> Result<Configuration, TextError> {
        let mut made = Configuration::off(self.name.get_ref());
        if let Some(mode) = &self.numa_balancing {
            if *mode.get_ref() > 3 {
                let what = "numa_balancing: give 0 (off), 1 (normal), 2 (tiering) or 3 (both)";
                return Err(source.error(mode.span(), what));
            }
            made.numa_balancing = *mode.get_ref();
        }
        made.demotion = self.demotion.unwrap_or(made.demotion);
        made.lru = match self.lru {
            Some(LruText::Classic) => Lru::Classic,
            Some(LruText::Multigenerational) | None => Lru::Multigenerational,
        };
        for (key, text, field) in [
            (
                "scan_period_min",
                &self.scan_period_min,
                &mut made.scan_period_min_ms,
            ),
            (
                "scan_period_max",
                &self.scan_period_max,
                &mut made.scan_period_max_ms,
            ),
            ("scan_delay", &self.scan_delay, &mut made.scan_delay_ms),
            (
                "hot_threshold",
                &self.hot_threshold,
                &mut made.hot_threshold_ms,
            ),
        ] {
            let Some(text) = text else { continue };
            *field = millis(*text.get_ref())
                .filter(|&ms| ms > 0 || key == "scan_delay")
                .ok_or_else(|| {
                    let what = format!("{key}: give 1 ms to 1000 s, in whole milliseconds");
                    source.error(text.span(), &what)
                })?;
        }
        if made.scan_period_min_ms > made.scan_period_max_ms {
            let spans = [&self.scan_period_min, &self.scan_period_max];
            let span = spans
                .into_iter()
                .flatten()
                .next()
                .map_or(0..0, Spanned::span);
            let what = format!(
                "scan_period_min: {} ms are more than scan_period_max, {} ms; give less",
                made.scan_period_min_ms, made.scan_period_max_ms
            );
            return Err(source.error(span, &what));
        }
        made.scan_size_mb = self.scan_size_mb.unwrap_or(made.scan_size_mb).max(1);
        if let Some(Rate(bytes_per_s)) = self.rate_limit {
            made.rate_limit_mbps = (bytes_per_s / f64::from(1 << 20)).round().max(1.0) as u64;
        }
        made.bind_balancing = self.bind_balancing.unwrap_or(false);
        made.luf = match (self.luf, &self.luf_zones) {
            (Some(true), Some(zones)) if *zones.get_ref() => Some(Luf::Zones),
            (Some(true), _) => Some(Luf::Machine),
            (_, Some(zones)) if *zones.get_ref() => {
                let what = "luf_zones: without luf nothing is put off; add luf = true";
                return Err(source.error(zones.span(), what));
            }
            _ => None,
        };
        if let Some(text) = &self.pghot {
            let error = |what: String| source.error(text.span(), &format!("pghot: {what}"));
            let hot = pghot(text.get_ref()).map_err(error)?;
            if hot
                .sources
                .contains(memtide_core::access::Source::HintFault)
                && made.numa_balancing == 0
            {
                let what = "hint-fault: without balancing there are none; set numa_balancing = 2";
                return Err(error(what.to_owned()));
            }
            made.pghot = Some(hot);
        }
        if let Some(text) = &self.samples {
            let error = |what: String| source.error(text.span(), &format!("samples: {what}"));
            made.samples = Some(samples(text.get_ref()).map_err(error)?);
            if made.numa_balancing != 1 || made.pghot.is_some() {
                let what = "they balance: set numa_balancing = 1, and no pghot beside them";
                return Err(error(what.to_owned()));
            }
        }
        if let Some(text) = &self.interleave {
            let error = |what: String| source.error(text.span(), &format!("interleave: {what}"));
            made.interleave =
                Some(interleave(text.get_ref(), &topology.memory_nodes()).map_err(error)?);
        }
        if let Some(text) = self.tier {
            sampled(text.get_ref().source.named(), &made)
                .map_err(|what| source.error(text.span(), &format!("tier: {what}")))?;
            if let Some(tiers) = &text.get_ref().tiers {
                let wrong = |wrong| format!("tier: tiers {tiers}: {wrong}");
                let fits = topology.with_tiers(tiers).map_err(wrong);
                fits.map_err(|what| source.error(text.span(), &what))?;
            }
            made.tier = Some(text.into_inner());
        }
        made.classes = classes(source, self.class, made.tier.as_ref(), topology)?;
        if let Some(text) = self.balance {
            balance(text.get_ref(), &made, topology)
                .map_err(|what| source.error(text.span(), &format!("balance: {what}")))?;
            made.balance = Some(text.into_inner());
        }
        made.about = self.about.unwrap_or_else(|| in_words(&made));
        Ok(made)
    }
}

/// Classes by the service's own rules, and what of them a simulated program has.
fn classes(
    source: Source<'_>,
    class: BTreeMap<String, Spanned<ClassOptions>>,
    tier: Option<&TierOptions>,
    topology: &Topology,
) -> Result<Classes, TextError> {
    let spans: BTreeMap<String, _> = (class.iter())
        .map(|(name, class)| (name.clone(), class.span()))
        .collect();
    let wrong = |name: &str, what: &str| {
        let span = spans.get(name).cloned().unwrap_or(0..0);
        Err(source.error(span, what))
    };
    let Some((first, _)) = class.first_key_value() else {
        return Ok(Classes::new());
    };
    let Some(tier) = tier else {
        let what = format!(
            "class {first}: classes are memtide tier's; add tier = {{}}, or leave them out"
        );
        return wrong(first, &what);
    };
    for (name, class) in &class {
        if let Err(why) = options::check_name(name) {
            return wrong(name, &format!("class {name:?}: {why}"));
        }
        let class = class.get_ref();
        if class.user.is_some() || class.executable.is_some() {
            let what = "simulated programs have no users and executables; name a cgroup or a unit";
            return wrong(name, &format!("class {name}: {what}"));
        }
        if class.balance.is_some() {
            let what = "memtide balances beside tiering as a service only; leave balance out";
            return wrong(name, &format!("class {name}: {what}"));
        }
        if class.weights.is_some() {
            let what = "memtide spreads memory by weights as a service only; leave weights out, or give the row interleave";
            return wrong(name, &format!("class {name}: {what}"));
        }
        if class.pod_choice.is_some() {
            let what = "simulated pods choose nothing; name them by pod_qos or pod_uid";
            return wrong(name, &format!("class {name}: {what}"));
        }
    }
    let classes: Classes = (class.into_iter())
        .map(|(name, class)| (name, class.into_inner()))
        .collect();
    let by_hand = tier.tiers.as_ref().map(|tiers| topology.with_tiers(tiers));
    let topology = match &by_hand {
        Some(Ok(by_hand)) => by_hand,
        _ => topology,
    };
    let fast = Some(options::fast_bytes(topology));
    let nowhere = |_: &str, _: &str| None;
    let agree = options::agree(&classes, (Tiered::default(), false), &nowhere);
    match agree.and_then(|()| options::fit(&classes, &nowhere, fast)) {
        Ok(()) => Ok(classes),
        Err(Objection { class, key, what }) => {
            let head = match key {
                "" => String::new(),
                _ => format!("class {class}: "),
            };
            wrong(&class, &format!("{head}{what}"))
        }
    }
}

fn millis(Nanos(ns): Nanos) -> Option<u32> {
    let ms = ns / 1e6;
    (ms.fract() == 0.0 && ms <= 1e6).then_some(ms as u32)
}

fn pghot(text: &PghotText) -> Result<Pghot, String> {
    let threshold = text.threshold.unwrap_or(2);
    let default = HotnessConfig::new(text.layout);
    let window = match text.window {
        Some(window) => millis(window).ok_or("window: give whole milliseconds")?,
        None => default.window_ms(),
    };
    default
        .with_threshold(threshold)
        .and_then(|config| config.with_window_ms(window))
        .map_err(|error| error.to_string())?;
    let scan = match text.page_table_scan {
        Some(interval) => millis(interval)
            .filter(|&ms| ms > 0)
            .ok_or("page_table_scan: give whole milliseconds")?,
        None => PAGE_TABLE_SCAN_MS,
    };
    let sample_period = text.sample_period.unwrap_or(10_000);
    if sample_period < 16 {
        return Err(format!(
            "sample_period {sample_period}: give at least 16 operations"
        ));
    }
    let sources = text.sources.iter();
    Ok(Pghot {
        sources: sources.fold(SourceSet::NONE, |set, &source| set.with(source)),
        layout: text.layout,
        threshold,
        window_ms: window,
        gate: match text.gate {
            GateText::Kernel => PromotionGate::Kernel,
            GateText::ThresholdFree => PromotionGate::ThresholdFree,
        },
        page_table_scan_ms: scan,
        sample_period,
        sample_misses_only: text.sample_misses_only.unwrap_or(true),
    })
}

/// How often batches act if nobody says.
const BATCH_INTERVAL_MS: u32 = 100;

fn samples(text: &SamplesText) -> Result<BySamples, String> {
    let whole = |key: &str, time: Option<Nanos>, default: u32| match time {
        None => Ok(default),
        Some(time) => millis(time).ok_or(format!("{key}: give whole milliseconds, up to 1000 s")),
    };
    let batched = text.act == ActText::Batches;
    let only = [
        ("interval", text.interval.is_some()),
        ("threshold", text.threshold.is_some()),
        ("window", text.window.is_some()),
        ("young_at_once", text.young_at_once.is_some()),
    ];
    if let Some((key, _)) = only.iter().find(|(_, given)| *given && !batched) {
        return Err(format!("{key} is for act = \"batches\"; leave it out"));
    }
    let default = SampleSettings::default();
    let settings = SampleSettings {
        period: text.period.unwrap_or(default.period),
        min_period: text.min_period.unwrap_or(default.min_period),
        max_period: text.max_period.unwrap_or(default.max_period),
        placement_samples: text.placement.unwrap_or(default.placement_samples),
        delay_ms: whole("delay", text.delay, default.delay_ms)?,
        counting: match batched {
            true => Counting::Every,
            false => Counting::BetweenRetries,
        },
    };
    let hotness = HotnessConfig::new(Layout::Precise);
    let threshold = text.threshold.unwrap_or(hotness.threshold());
    let window_ms = whole("window", text.window, hotness.window_ms())?;
    hotness
        .with_threshold(threshold)
        .and_then(|config| config.with_window_ms(window_ms))
        .map_err(|error| error.to_string())?;
    Ok(BySamples {
        settings: settings.checked().map_err(|error| error.to_string())?,
        acts: match text.act {
            ActText::Each => Acts::Each,
            ActText::Batches => Acts::Batches {
                interval_ms: whole("interval", text.interval, BATCH_INTERVAL_MS)?.max(1),
                threshold,
                window_ms,
                young_at_once: text.young_at_once.unwrap_or(true),
            },
        },
        misses_only: text.misses_only.unwrap_or(true),
    })
}

/// Whether `memtide tier` can have these sources here.
fn sampled(named: &[TierSource], made: &Configuration) -> Result<(), &'static str> {
    let scans = made.numa_balancing != 0 && made.samples.is_none();
    if named.contains(&TierSource::HintFaults) && !scans {
        return Err(
            "there are no hint faults where the kernel does not scan; give numa_balancing = 1, 2 or 3, without samples",
        );
    }
    let samplers = named.iter().filter(|source| source.samples()).count();
    if samplers > 1 {
        return Err("ibs and pebs are of different makers' processors; name one of them");
    }
    let fed = |pghot: &Pghot| pghot.sources.contains(AccessSource::Hardware);
    if samplers > 0 && (made.samples.is_some() || made.pghot.as_ref().is_some_and(fed)) {
        return Err(
            "the hardware samples for one only; leave out its source or the kernel's samples",
        );
    }
    Ok(())
}

/// Whether `memtide balance` can run beside the rest of a configuration.
fn balance(
    options: &BalanceOptions,
    made: &Configuration,
    topology: &Topology,
) -> Result<(), &'static str> {
    let sampled = |pghot: &Pghot| pghot.sources.contains(AccessSource::Hardware);
    let scans = made.numa_balancing & 1 != 0 && made.samples.is_none();
    if options.source == BalanceSource::Faults && !scans {
        return Err(
            "there are no hint faults between sockets where the kernel does not scan for them; give numa_balancing = 1 or 3, without samples",
        );
    }
    if made.tier.is_some() {
        return Err("one loop runs beside the workload; give tier or balance");
    }
    let by_hardware = !options.source.is_of_faults();
    if by_hardware && (made.samples.is_some() || made.pghot.as_ref().is_some_and(sampled)) {
        return Err("the hardware samples for one only; leave out balance or the kernel's samples");
    }
    if !has_choice(topology) {
        return Err(
            "fewer than two nodes of this machine have both CPUs and memory, so every page is where it should be; leave it out",
        );
    }
    Ok(())
}

fn interleave(text: &InterleaveText, memory: &NodeMask) -> Result<Interleave, String> {
    if text.nodes.is_empty() {
        return Err("name at least one node".to_owned());
    }
    if let Some(node) = text.nodes.iter().find(|&&n| !memory.contains(NodeId(n))) {
        return Err(format!("node {node} has no memory; choose from {memory}"));
    }
    let twice = (1..text.nodes.len()).find(|&at| text.nodes[..at].contains(&text.nodes[at]));
    if let Some(at) = twice {
        return Err(format!(
            "node {} is named twice; name it once",
            text.nodes[at]
        ));
    }
    let ones = vec![1; text.nodes.len()];
    let weights = text.weights.as_ref().unwrap_or(&ones);
    if weights.len() != text.nodes.len() {
        return Err(format!(
            "{} weights for {} nodes; give one for each",
            weights.len(),
            text.nodes.len()
        ));
    }
    let weight = |&weight: &i64| match u8::try_from(weight) {
        Ok(weight @ 1..) => Ok(weight),
        _ => Err(format!("weight {weight}: weights are 1 to 255")),
    };
    let weights = weights.iter().map(weight).collect::<Result<Vec<u8>, _>>()?;
    Ok(Interleave {
        weights: text.nodes.iter().copied().zip(weights).collect(),
        targeted: text.targeted,
    })
}

impl Configuration {
    /// The two bounds that every comparison shows.
    pub(crate) fn bounds() -> [Configuration; 2] {
        [("static", Bound::Static), ("oracle", Bound::Oracle)].map(|(name, bound)| {
            let mut made = Configuration {
                bound: Some(bound),
                ..Configuration::off(name)
            };
            made.about = in_words(&made);
            made
        })
    }
}
