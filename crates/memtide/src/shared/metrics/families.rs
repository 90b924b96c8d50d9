//! What a status says, as families of metrics.
//!
//! Names and units follow Prometheus' conventions: base units (seconds, bytes), counters that only
//! grow, no rates, shares from 0 to 1 and only where counters cannot give them, no label without an
//! end (no pid, no address). `docs/metrics.md` has
//! them all; a test compares.

use crate::shared::outside::outside;
use crate::shared::pagers::{FileFigures, PagerCounts, PagerFigures};
use crate::shared::spreading::Figures as SpreadFigures;
use memtide_core::units::PageSize;
use memtide_loop::report::{
    AccountStatus, BalanceStatus, ClassStatus, PressureStatus, Status, TierStatus,
};
use memtide_pager::board::Figures;
use prometheus_client::registry::Unit;
use std::time::Duration;

/// What several loops have.
const PROCESSES: &str = "Managed processes";
const CPU: &str = "Processor time of memtide itself";

/// A label and its value.
pub type Label = (&'static str, String);

/// Samples of one name.
#[derive(Clone, Debug)]
pub struct Family {
    /// Without its unit, and without `_total`.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// A part of the name.
    pub unit: Option<Unit>,
    /// Whether it only grows.
    pub counter: bool,
    /// By their labels.
    pub samples: Vec<(Vec<Label>, Value)>,
}

/// A sample's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Of what comes one by one.
    Whole(u64),
    /// Of time, and of shares.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Whole(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Value {
        Value::Whole(value as u64)
    }
}

impl From<Duration> for Value {
    fn from(value: Duration) -> Value {
        Value::Real(value.as_secs_f64())
    }
}

/// A share.
fn ratio(permille: u32) -> Value {
    Value::Real(f64::from(permille) / 1000.0)
}

/// The families of the status of the loop of this name, in a fixed order.
pub fn families(name: &'static str, page: PageSize, status: &Status) -> Vec<Family> {
    let mut all = Families {
        name,
        page: page.bytes(),
        all: Vec::new(),
    };
    all.common(status);
    if let Some(tiering) = &status.tiering {
        all.tiering(tiering);
    }
    if let Some(balancing) = &status.balancing {
        all.balancing(balancing);
    }
    all.all
}

/// The families of balancing beside another loop: where it stands, or no status if it rests.
pub fn of_balancing(page: PageSize, status: Option<&Status>) -> Vec<Family> {
    let name = "balance";
    let mut all = status.map_or_else(Vec::new, |status| families(name, page, status));
    let mut works = Families {
        name,
        page: page.bytes(),
        all: Vec::new(),
    };
    works.gauge(
        "memtide_balancing_works",
        "Whether the service balances, 1, or rests although that is wanted, 0",
        u64::from(status.is_some()),
    );
    all.append(&mut works.all);
    all
}

/// The families of spreading by weights beside a loop: what was done, or nothing if it rests.
pub fn of_spreading(page: PageSize, figures: Option<&SpreadFigures>) -> Vec<Family> {
    let mut all = Families {
        name: "weights",
        page: page.bytes(),
        all: Vec::new(),
    };
    if let Some(figures) = figures {
        let SpreadFigures {
            processes,
            refused,
            moved_pages,
            cpu,
        } = figures;
        all.gauge("memtide_processes", PROCESSES, *processes);
        all.seconds("memtide_cpu", CPU, [(vec![], *cpu)]);
        all.gauge(
            "memtide_spread_refused_processes",
            "Processes whose memory cannot be spread at present",
            *refused,
        );
        all.bytes_moved(
            "memtide_spread",
            "Memory that moved to the node that its class's weights give it, or would have in a dry run",
            *moved_pages,
        );
    }
    all.gauge(
        "memtide_spreading_works",
        "Whether the service spreads memory by weights, 1, or rests although that is wanted, 0",
        u64::from(figures.is_some()),
    );
    all.all
}

/// The families of pagers of running programs: what they do, or nothing if they are not seen.
pub fn of_pagers(page: PageSize, figures: Option<&PagerFigures>) -> Vec<Family> {
    let mut all = Families {
        name: "pagers",
        page: page.bytes(),
        all: Vec::new(),
    };
    if let Some(figures) = figures {
        all.pagers(figures);
    }
    all.gauge(
        "memtide_pagers_seen",
        "Whether pagers of running programs are looked for, 1, or that is not possible although it is wanted, 0",
        u64::from(figures.is_some()),
    );
    all.all
}

/// The families of two loops: of a name that both have, the samples of both.
pub fn join(one: &[Family], other: &[Family]) -> Vec<Family> {
    let mut all = one.to_vec();
    for family in other {
        match all.iter_mut().find(|known| known.name == family.name) {
            Some(known) => known.samples.extend(family.samples.iter().cloned()),
            None => all.push(family.clone()),
        }
    }
    all
}

/// What came of the files of a service's configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loaded {
    /// Since 1970 in UTC, when the one in force was taken.
    pub taken: Duration,
    /// Whether they were taken when they were read last.
    pub successful: bool,
}

/// The families of a service's configuration.
pub fn of_configuration(name: &'static str, loaded: Loaded) -> Vec<Family> {
    let mut all = Families {
        name,
        page: 1,
        all: Vec::new(),
    };
    all.gauge(
        "memtide_config_last_reload_successful",
        "Whether the configuration was taken when it was read last, 1 or 0",
        u64::from(loaded.successful),
    );
    all.add(
        "memtide_config_last_reload_success_timestamp",
        "When the configuration in force was taken, since 1970 in UTC",
        Some(Unit::Seconds),
        false,
        [(vec![], loaded.taken)],
    );
    all.all
}

struct Families {
    name: &'static str,
    page: u64,
    all: Vec<Family>,
}

impl Families {
    fn common(&mut self, status: &Status) {
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        self.gauges(
            "memtide_build_info",
            "The version that runs; always 1",
            [(version, 1u64)],
        );
        self.gauge("memtide_processes", PROCESSES, status.processes);
        self.seconds("memtide_cpu", CPU, [(vec![], status.cpu)]);
        self.bytes_moved(
            "memtide_unmovable",
            "Memory that the kernel would not move, each time it was asked",
            status.failed_pages,
        );
        self.counter(
            "memtide_lost_reports",
            "Reports or samples of accesses that were lost",
            status.lost,
        );
    }

    fn tiering(&mut self, status: &TierStatus) {
        let TierStatus {
            top_pages,
            lower_pages,
            pgpromote_success,
            pgpromote_candidate,
            pgpromote_candidate_nrl,
            pgdemote_proactive,
            demoted_idle_pages,
            returned_pages,
            pghot_recorded_accesses,
            passes,
            free_pages,
            observing,
            kernel_cpu,
            classes,
            access_fairness_permille,
            touched_fairness_permille,
            account,
            pressure,
        } = status;
        let tier = |tier: &str| vec![("tier", tier.to_owned())];
        let managed = [(tier("fast"), *top_pages), (tier("slow"), *lower_pages)];
        self.bytes(
            "memtide_managed",
            "Memory of managed processes, by tier",
            managed,
        );
        let free: Vec<_> = free_pages
            .iter()
            .map(|(node, pages)| (vec![("node", node.to_string())], *pages))
            .collect();
        self.bytes("memtide_node_free", "Free memory of a node", free);
        self.bytes_moved(
            "memtide_promoted",
            "Memory that moved to a faster tier, or would have in a dry run (pgpromote_success)",
            *pgpromote_success,
        );
        self.bytes_moved(
            "memtide_demoted",
            "Memory that moved to a slower tier, or would have in a dry run (pgdemote_proactive)",
            *pgdemote_proactive,
        );
        if let Some(pages) = demoted_idle_pages {
            self.bytes_moved(
                "memtide_demoted_idle",
                "Of that, memory that nobody had touched for the time of demote_idle",
                *pages,
            );
        }
        self.bytes_moved(
            "memtide_returned",
            "Of what moved up or down, memory that was back within two minutes, as far as memtide remembers; never too much",
            *returned_pages,
        );
        self.bytes_moved(
            "memtide_promotion_candidates",
            "Hot memory that the rate limit counted (pgpromote_candidate)",
            *pgpromote_candidate,
        );
        self.bytes_moved(
            "memtide_promotion_candidates_unlimited",
            "Hot memory that went up for there was plenty of room (pgpromote_candidate_nrl)",
            *pgpromote_candidate_nrl,
        );
        self.counter(
            "memtide_recorded_accesses",
            "Accesses that were recorded (pghot_recorded_accesses)",
            *pghot_recorded_accesses,
        );
        self.counter("memtide_passes", "Complete looks at every page", *passes);
        let states = ["look", "glance", "samples"];
        let states = states.map(|state| {
            let is = u64::from(state == *observing);
            (vec![("state", state.to_owned())], is)
        });
        self.gauges("memtide_observing", "What is being done, 1 or 0", states);
        self.seconds(
            "memtide_observation_cpu",
            "Processor time that the kernel spent observing on memtide's behalf",
            [(vec![], *kernel_cpu)],
        );
        if let Some(account) = account {
            self.account(account);
        }
        if let Some(pressure) = pressure {
            let PressureStatus {
                stalled_ms,
                limit_pages,
                slowed: _,
            } = pressure;
            self.seconds(
                "memtide_memory_stall",
                "Time in which some task of the machine waited for memory, since the loop began",
                [(vec![], Duration::from_millis(*stalled_ms))],
            );
            self.bytes(
                "memtide_promotion_limit",
                "Memory that may be promoted a second at present: rate_limit, or less under pressure",
                [(vec![], *limit_pages)],
            );
        }
        self.classes(classes);
        let fairness = [
            ("accesses", *access_fairness_permille),
            ("touched_pages", *touched_fairness_permille),
        ];
        let fairness = fairness.into_iter().filter_map(|(of, permille)| {
            let label = vec![("of", of.to_owned())];
            Some((label, ratio(permille?)))
        });
        self.gauges(
            "memtide_fairness_ratio",
            "How equal the shares of accesses, or of touched pages, are that fast memory serves of each class: Jain's index",
            fairness,
        );
    }

    fn account(&mut self, account: &AccountStatus) {
        let AccountStatus {
            won_ns_per_s: _,
            spent_ns_per_s: _,
            won_ns,
            spent,
            latencies_ns,
            resting_processes,
        } = account;
        let time = |ns: u64| Duration::from_nanos(ns);
        self.seconds(
            "memtide_won",
            "Time that promoted memory saved programs, as far as can be estimated",
            [(vec![], time(*won_ns))],
        );
        let by_cause = [
            ("moves", spent.moves_ns),
            ("faults", spent.faults_ns),
            ("own", spent.own_ns),
            ("observing", spent.observing_ns),
        ];
        self.seconds(
            "memtide_tiering_spent",
            "Time that tiering took, by what it was spent on",
            by_cause.map(|(on, ns)| (vec![("on", on.to_owned())], time(ns))),
        );
        let latencies = latencies_ns.iter().map(|(node, ns)| {
            let label = vec![("node", node.to_string())];
            (label, time(u64::from(*ns)))
        });
        self.add(
            "memtide_node_latency",
            "How late a node answers a load under its present load",
            Some(Unit::Seconds),
            false,
            latencies,
        );
        self.gauge(
            "memtide_resting_processes",
            "Processes of which nothing is promoted, because that cost more than it won",
            *resting_processes,
        );
    }

    fn classes(&mut self, classes: &[ClassStatus]) {
        let known = |pages: fn(&ClassStatus) -> Option<u64>| {
            let sample = move |class: &ClassStatus| {
                let label = vec![("class", class.name.clone())];
                Some((label, pages(class)?))
            };
            classes.iter().filter_map(sample).collect::<Vec<_>>()
        };
        self.bytes(
            "memtide_class_fast",
            "Fast memory that a class and the classes within it use",
            known(|class| class.fast_pages),
        );
        self.bytes(
            "memtide_class_fast_low",
            "Fast memory of a class that is not taken for others (fast.low)",
            known(|class| Some(class.low_pages)),
        );
        self.bytes(
            "memtide_class_fast_high",
            "The most fast memory that a class may use (fast.high)",
            known(|class| class.high_pages),
        );
        self.bytes(
            "memtide_class_waiting",
            "Hot memory of a class that its fast.high, or one around it, keeps on slower tiers",
            known(|class| Some(class.waiting_pages)),
        );
        let shares = |permille: fn(&ClassStatus) -> Option<u32>| {
            let sample = move |class: &ClassStatus| {
                let label = vec![("class", class.name.clone())];
                Some((label, ratio(permille(class)?)))
            };
            classes.iter().filter_map(sample).collect::<Vec<_>>()
        };
        self.gauges(
            "memtide_class_fast_access_ratio",
            "Of accesses of a class that were sampled in the last half minute, those to fast memory",
            shares(|class| class.fast_access_permille),
        );
        self.gauges(
            "memtide_class_fast_touched_ratio",
            "Of pages of a class that were seen touched in the last half minute, those on fast memory",
            shares(|class| class.fast_touched_permille),
        );
        let stalls = classes.iter().filter_map(|class| {
            let stalled = Duration::from_millis(class.pressure?.stalled_ms);
            Some((vec![("class", class.name.clone())], stalled))
        });
        self.seconds(
            "memtide_class_memory_stall",
            "Time in which some task of a class waited for memory, since the loop began",
            stalls.collect::<Vec<_>>(),
        );
        self.bytes(
            "memtide_class_promotion_limit",
            "Memory of a class that may be promoted a second at present: rate_limit, or less under pressure",
            known(|class| Some(class.pressure?.limit_pages)),
        );
        self.bytes_moved_by(
            "memtide_class_promoted",
            "Memory of a class that moved to a faster tier, or would have in a dry run",
            known(|class| Some(class.promoted_pages)),
        );
        self.bytes_moved_by(
            "memtide_class_demoted",
            "Memory of a class that moved to a slower tier, or would have in a dry run",
            known(|class| Some(class.demoted_pages)),
        );
        self.bytes_moved_by(
            "memtide_class_returned",
            "Of both, memory of a class that was back within two minutes, as far as memtide remembers",
            known(|class| Some(class.returned_pages)),
        );
    }

    fn balancing(&mut self, status: &BalanceStatus) {
        let BalanceStatus {
            source,
            tasks,
            samples,
            local_samples,
            local_permille: _,
            invalid_windows,
            period,
            moved_pages,
            forbidden_pages,
            no_room_pages,
            placed_tasks,
            cpu_percent: _,
            cpu_limit_percent: _,
            rested_ms,
            spent,
            ns_per_moved_page: _,
        } = status;
        self.gauges(
            "memtide_source_info",
            "What tells of accesses; always 1",
            [(vec![("source", source.clone())], 1u64)],
        );
        self.gauge(
            "memtide_tasks",
            "Threads that were seen using memory",
            *tasks,
        );
        self.gauge(
            "memtide_placed_tasks",
            "Threads whose affinity is set at present, or proposed",
            *placed_tasks,
        );
        self.counter("memtide_samples", "Accesses that were seen", *samples);
        self.counter(
            "memtide_local_samples",
            "Accesses that were seen, to memory on the node of the CPU",
            *local_samples,
        );
        self.counter(
            "memtide_invalid_windows",
            "Moments whose samples were dropped, for some of them were lost",
            *invalid_windows,
        );
        let period = period.map(|period| (vec![], period));
        self.gauges(
            "memtide_sample_period",
            "Operations between two samples",
            period,
        );
        self.bytes_moved(
            "memtide_balanced",
            "Memory that moved to the node that uses it, or would have in a dry run",
            *moved_pages,
        );
        self.bytes_moved(
            "memtide_forbidden",
            "Memory that a policy or cpuset kept where it was",
            *forbidden_pages,
        );
        self.bytes_moved(
            "memtide_no_room",
            "Memory that found no room where it is used",
            *no_room_pages,
        );
        self.seconds(
            "memtide_rested",
            "Time of rest, to keep to the limit of processor time",
            [(vec![], Duration::from_millis(*rested_ms))],
        );
        let by_cause = [
            ("refresh", spent.refresh_ns),
            ("protect", spent.protect_ns),
            ("samples", spent.samples_ns),
            ("locate", spent.locate_ns),
            ("decide", spent.decide_ns),
            ("move", spent.move_ns),
        ];
        self.seconds(
            "memtide_spent",
            "Processor time of the loop, by what it was spent on",
            by_cause.map(|(on, ns)| (vec![("on", on.to_owned())], Duration::from_nanos(ns))),
        );
    }

    fn pagers(&mut self, figures: &PagerFigures) {
        let PagerFigures {
            processes,
            not_read,
            budget_bytes,
            counts,
            files,
            other_files,
            others,
            shootdowns,
            cpu,
        } = figures;
        let PagerCounts {
            // By file.
            evicted_pages: _,
            refilled_pages: _,
            unmapped_pages,
            flushes,
            overruns,
            held_back,
        } = counts;
        self.gauge(
            "memtide_pager_processes",
            "Processes with a pager",
            *processes,
        );
        self.gauge(
            "memtide_pager_unread_processes",
            "Processes that seem to have a pager of which nothing can be read",
            *not_read,
        );
        self.gauge(
            "memtide_pager_other_files",
            "Files that pagers serve without a label of their own",
            *other_files,
        );
        let whole = |bytes: u64| [(vec![], bytes)];
        let bytes = Some(Unit::Bytes);
        self.add(
            "memtide_pager_budget",
            "Memory that pagers may keep files' data in, of all processes",
            bytes.clone(),
            false,
            whole(*budget_bytes),
        );
        // Others have an empty name, which no file has.
        let of = |figure: fn(&Figures) -> u64| {
            let all = files
                .iter()
                .map(|FileFigures { name, figures }| (&**name, figures));
            let others =
                (*other_files > 0 || *others != Figures::default()).then_some(("", others));
            let label = |name: &str| vec![("file", outside(name).into_owned())];
            let sample = move |(name, figures): (&str, &Figures)| (label(name), figure(figures));
            all.chain(others).map(sample).collect::<Vec<_>>()
        };
        self.add(
            "memtide_pager_file_mapped",
            "Memory that processes with pagers map of files, by name of the file",
            bytes.clone(),
            false,
            of(|figures| figures.mapped_bytes),
        );
        self.add(
            "memtide_pager_file_resident",
            "What of files that pagers serve is in memory, by name of the file",
            bytes,
            false,
            of(|figures| figures.resident_bytes),
        );
        self.bytes_moved_by(
            "memtide_pager_file_evicted",
            "Memory of files that pagers chose for eviction, by name of the file",
            of(|figures| figures.evicted_pages),
        );
        self.bytes_moved_by(
            "memtide_pager_file_refilled",
            "Memory of files that came back, by name of the file",
            of(|figures| figures.refilled_pages),
        );
        self.bytes_moved(
            "memtide_pager_unmapped",
            "Memory that pagers unmapped",
            *unmapped_pages,
        );
        self.counter(
            "memtide_pager_flushes",
            "Flushes of a process's translations by which pagers unmapped",
            *flushes,
        );
        self.counter(
            "memtide_pager_overruns",
            "Looks of pagers that found more in memory than the budget",
            *overruns,
        );
        self.counter(
            "memtide_pager_held_back",
            "Times that programs had to wait for each of their pages, because of that",
            *held_back,
        );
        self.seconds(
            "memtide_pager_looking_cpu",
            "Processor time of memtide's looks at pagers, a part of its own",
            [(vec![], *cpu)],
        );
        let shootdowns = shootdowns.map(|count| (vec![], count));
        self.add(
            "memtide_tlb_shootdowns",
            "TLB shootdown interrupts of the whole machine",
            None,
            true,
            shootdowns,
        );
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: impl Into<Value>) {
        self.add(name, help, None, false, [(vec![], value)]);
    }

    fn gauges<V: Into<Value>>(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Vec<Label>, V)>,
    ) {
        self.add(name, help, None, false, samples);
    }

    fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add(name, help, None, true, [(vec![], value)]);
    }

    fn seconds(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Vec<Label>, Duration)>,
    ) {
        self.add(name, help, Some(Unit::Seconds), true, samples);
    }

    /// Of so many pages at present.
    fn bytes(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Vec<Label>, u64)>,
    ) {
        let page = self.page;
        let samples = samples
            .into_iter()
            .map(|(labels, pages)| (labels, pages * page));
        self.add(name, help, Some(Unit::Bytes), false, samples);
    }

    /// Of so many pages since the start.
    fn bytes_moved(&mut self, name: &'static str, help: &'static str, pages: u64) {
        self.bytes_moved_by(name, help, vec![(vec![], pages)]);
    }

    /// The same with labels.
    fn bytes_moved_by(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: Vec<(Vec<Label>, u64)>,
    ) {
        let page = self.page;
        let samples = samples.into_iter();
        // What processes show has any size.
        let samples = samples.map(|(labels, pages)| (labels, pages.saturating_mul(page)));
        self.add(name, help, Some(Unit::Bytes), true, samples);
    }

    fn add<V: Into<Value>>(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        counter: bool,
        samples: impl IntoIterator<Item = (Vec<Label>, V)>,
    ) {
        let samples = samples.into_iter().map(|(mut labels, value)| {
            labels.insert(0, ("loop", self.name.to_owned()));
            (labels, value.into())
        });
        let samples: Vec<_> = samples.collect();
        // A name without a sample says nothing.
        if !samples.is_empty() {
            self.all.push(Family {
                name,
                help,
                unit,
                counter,
                samples,
            });
        }
    }
}
