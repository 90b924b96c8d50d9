//! The latest figures as text, in the two formats that are read everywhere.
//!
//! Sources: *OpenMetrics 1.0*; Prometheus' *Exposition formats*, text 0.0.4.

use super::families::{
    Family, Loaded, Value, families, join, of_balancing, of_configuration, of_pagers, of_spreading,
};
use crate::shared::pagers::PagerFigures;
use crate::shared::spreading::Figures as SpreadFigures;
use memtide_core::units::PageSize;
use memtide_loop::report::Status;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The latest figures.
#[derive(Debug)]
pub struct Exposition {
    name: &'static str,
    page: PageSize,
    latest: Arc<Latest>,
    registry: Registry,
}

#[derive(Debug, Default)]
struct Latest {
    run: Mutex<Vec<Family>>,
    balancing: Mutex<Vec<Family>>,
    spreading: Mutex<Vec<Family>>,
    pagers: Mutex<Vec<Family>>,
    configuration: Mutex<Vec<Family>>,
}

fn locked(families: &Mutex<Vec<Family>>) -> MutexGuard<'_, Vec<Family>> {
    families.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exposition {
    /// Those of a loop that has not begun.
    pub fn new(name: &'static str, page: PageSize) -> Exposition {
        let begun = families(name, page, &Status::default());
        let latest = Arc::new(Latest {
            run: Mutex::new(begun),
            ..Latest::default()
        });
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::clone(&latest)));
        Exposition {
            name,
            page,
            latest,
            registry,
        }
    }

    /// Takes over where things stand.
    pub fn tell(&self, status: &Status) {
        let families = families(self.name, self.page, status);
        *locked(&self.latest.run) = families;
    }

    /// Takes over where balancing stands beside the loop, if it is wanted.
    pub fn tell_of_balancing(&self, balancing: Option<Option<&Status>>) {
        let families = balancing.map(|status| of_balancing(self.page, status));
        *locked(&self.latest.balancing) = families.unwrap_or_default();
    }

    /// Takes over what spreading by weights has done beside the loop, if it is wanted.
    pub fn tell_of_spreading(&self, spreading: Option<Option<SpreadFigures>>) {
        let families = spreading.map(|figures| of_spreading(self.page, figures.as_ref()));
        *locked(&self.latest.spreading) = families.unwrap_or_default();
    }

    /// Takes over what pagers of running programs do, if anybody wants to know.
    pub fn tell_of_pagers(&self, pagers: Option<Option<PagerFigures>>) {
        let families = pagers.map(|figures| of_pagers(self.page, figures.as_ref()));
        *locked(&self.latest.pagers) = families.unwrap_or_default();
    }

    /// Takes over what came of a service's configuration.
    pub fn tell_of_configuration(&self, loaded: Loaded) {
        *locked(&self.latest.configuration) = of_configuration(self.name, loaded);
    }

    /// In OpenMetrics 1.0.
    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("a string takes everything");
        text
    }

    /// In Prometheus' text format 0.0.4.
    pub fn plain(&self) -> String {
        plain(&self.open_metrics())
    }
}

impl Collector for Latest {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let (run, balancing) = (locked(&self.run), locked(&self.balancing));
        let run = join(&run, &balancing);
        let run = join(&run, &locked(&self.spreading));
        // Nobody else tells of these.
        let (pagers, configuration) = (locked(&self.pagers), locked(&self.configuration));
        for family in run.iter().chain(&*pagers).chain(&*configuration) {
            let kind = match family.counter {
                true => MetricType::Counter,
                false => MetricType::Gauge,
            };
            let unit = family.unit.as_ref();
            let mut encoder = encoder.encode_descriptor(family.name, family.help, unit, kind)?;
            for (labels, value) in &family.samples {
                let mut encoder = encoder.encode_family(labels)?;
                match (family.counter, value) {
                    (true, Value::Whole(value)) => {
                        encoder.encode_counter::<NoLabelSet, _, u64>(value, None)?;
                    }
                    (true, Value::Real(value)) => {
                        encoder.encode_counter::<NoLabelSet, _, u64>(value, None)?;
                    }
                    (false, Value::Whole(value)) => encoder.encode_gauge(value)?,
                    (false, Value::Real(value)) => encoder.encode_gauge(value)?,
                }
            }
        }
        Ok(())
    }
}

/// OpenMetrics in the older format: there a counter's name is that of its samples, and units and
/// an end are not said.
fn plain(open_metrics: &str) -> String {
    let counter = |line: &'_ str| -> Option<String> {
        let name = line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?;
        Some(name.to_owned())
    };
    let counters: BTreeSet<String> = open_metrics.lines().filter_map(counter).collect();
    let mut text = String::new();
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => continue,
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                text += &format!("# {what} {name}_total {rest}");
            }
            _ => text += line,
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
pub mod tests {
    use super::super::dashboard::definition::Dashboard;
    use super::super::prometheus::Programs;
    use super::*;
    use crate::shared::pagers::{FileFigures, PagerCounts};
    use memtide_core::units::NodeId;
    use memtide_loop::report::{
        AccountStatus, BalanceStatus, ClassStatus, PressureStatus, Spent, TierStatus,
    };
    use memtide_pager::board::Figures;
    use std::collections::BTreeMap;
    use std::time::Duration;

    /// Of programs that wait.
    fn pressure(limit_pages: u64) -> Option<PressureStatus> {
        Some(PressureStatus {
            stalled_ms: 2500,
            limit_pages,
            slowed: true,
        })
    }

    /// Of a loop that has done something of everything.
    pub fn tiering() -> Exposition {
        let exposition = Exposition::new("tier", PageSize::KIB_4);
        exposition.tell(&Status {
            processes: 2,
            failed_pages: 3,
            lost: 4,
            cpu: Duration::from_millis(1500),
            tiering: Some(TierStatus {
                top_pages: 10,
                lower_pages: 20,
                pgpromote_success: 5,
                demoted_idle_pages: Some(0),
                returned_pages: 3,
                passes: 7,
                free_pages: vec![(NodeId(0), 1), (NodeId(2), 1 << 40)],
                observing: "look",
                kernel_cpu: Duration::from_millis(250),
                classes: vec![ClassStatus {
                    name: "db".to_owned(),
                    fast_pages: Some(9),
                    high_pages: Some(10),
                    demoted_pages: 1,
                    returned_pages: 2,
                    pressure: pressure(2),
                    fast_access_permille: Some(750),
                    fast_touched_permille: Some(1000),
                    ..ClassStatus::default()
                }],
                access_fairness_permille: Some(829),
                account: Some(AccountStatus {
                    won_ns: 1_500_000_000,
                    latencies_ns: vec![(NodeId(0), 112)],
                    resting_processes: 1,
                    ..AccountStatus::default()
                }),
                pressure: pressure(3),
                ..TierStatus::default()
            }),
            ..Status::default()
        });
        exposition
    }

    fn service() -> Exposition {
        let exposition = tiering();
        exposition.tell_of_configuration(Loaded {
            taken: Duration::from_millis(1_800_000_000_500),
            successful: false,
        });
        exposition
    }

    fn balancing() -> Exposition {
        let exposition = Exposition::new("balance", PageSize::KIB_4);
        exposition.tell(&Status {
            balancing: Some(BalanceStatus {
                source: "ibs \"a\\b\"\n".to_owned(),
                period: Some(4096),
                spent: Spent {
                    move_ns: 1,
                    ..Spent::default()
                },
                ..BalanceStatus::default()
            }),
            ..Status::default()
        });
        exposition
    }

    /// As 16 pages have come to the weights of two processes.
    const SPREAD: SpreadFigures = SpreadFigures {
        processes: 2,
        refused: 1,
        moved_pages: 16,
        cpu: Duration::from_millis(250),
    };

    /// Of two pagers, with a file whose name is a trick.
    fn paged() -> PagerFigures {
        let figures = |bytes: u64| Figures {
            mapped_bytes: 4 * bytes,
            resident_bytes: bytes,
            evicted_pages: 3,
            refilled_pages: 2,
        };
        let file = |name: &str, bytes| FileFigures {
            name: name.to_owned(),
            figures: figures(bytes),
        };
        PagerFigures {
            processes: 2,
            not_read: 1,
            budget_bytes: 1 << 30,
            counts: PagerCounts {
                unmapped_pages: 5,
                flushes: 1,
                held_back: u64::MAX,
                ..PagerCounts::default()
            },
            files: vec![file("model.gguf", 1 << 20), file("a\"} 1\n\u{1b}[2J", 1)],
            other_files: 7,
            others: figures(1 << 10),
            shootdowns: Some(99),
            cpu: Duration::from_millis(250),
        }
    }

    /// Of all that a service may do.
    fn both() -> Exposition {
        let exposition = service();
        exposition.tell_of_pagers(Some(Some(paged())));
        exposition.tell_of_spreading(Some(Some(SPREAD)));
        let balancing = Some(BalanceStatus::default());
        exposition.tell_of_balancing(Some(Some(&Status {
            balancing,
            ..Status::default()
        })));
        exposition
    }

    #[test]
    fn a_status_is_written_in_both_formats() {
        let (open, plain) = (service().open_metrics(), service().plain());
        for line in [
            "# HELP memtide_promoted_bytes Memory that moved to a faster tier, or would have in a dry run (pgpromote_success)",
            "# TYPE memtide_promoted_bytes counter",
            "# UNIT memtide_promoted_bytes bytes",
            "memtide_promoted_bytes_total{loop=\"tier\"} 20480",
            "# UNIT memtide_returned_bytes bytes",
            "memtide_returned_bytes_total{loop=\"tier\"} 12288",
            "memtide_managed_bytes{loop=\"tier\",tier=\"slow\"} 81920",
            "memtide_node_free_bytes{loop=\"tier\",node=\"2\"} 4503599627370496",
            "memtide_observing{loop=\"tier\",state=\"glance\"} 0",
            "memtide_memory_stall_seconds_total{loop=\"tier\"} 2.5",
            "memtide_promotion_limit_bytes{loop=\"tier\"} 12288",
            "memtide_class_promotion_limit_bytes{loop=\"tier\",class=\"db\"} 8192",
            "memtide_class_fast_bytes{loop=\"tier\",class=\"db\"} 36864",
            "memtide_class_demoted_bytes_total{loop=\"tier\",class=\"db\"} 4096",
            "memtide_class_returned_bytes_total{loop=\"tier\",class=\"db\"} 8192",
            "# TYPE memtide_class_fast_access_ratio gauge",
            "memtide_class_fast_access_ratio{loop=\"tier\",class=\"db\"} 0.75",
            "memtide_class_fast_touched_ratio{loop=\"tier\",class=\"db\"} 1.0",
            "memtide_fairness_ratio{loop=\"tier\",of=\"accesses\"} 0.829",
            "memtide_cpu_seconds_total{loop=\"tier\"} 1.5",
            "memtide_config_last_reload_successful{loop=\"tier\"} 0",
            "memtide_config_last_reload_success_timestamp_seconds{loop=\"tier\"} 1800000000.5",
        ] {
            assert!(open.lines().any(|there| there == line), "{line}\n{open}");
        }
        assert!(open.ends_with("\n# EOF\n"), "{open}");
        assert!(!open.contains("touched_pages"), "{open}");
        for line in [
            "# HELP memtide_promoted_bytes_total Memory that moved to a faster tier, or would have in a dry run (pgpromote_success)",
            "# TYPE memtide_promoted_bytes_total counter",
            "memtide_promoted_bytes_total{loop=\"tier\"} 20480",
            "# TYPE memtide_managed_bytes gauge",
        ] {
            assert!(plain.lines().any(|there| there == line), "{line}\n{plain}");
        }
        assert!(
            !plain.contains("EOF") && !plain.contains("# UNIT"),
            "{plain}"
        );
    }

    /// Two loops of one service: what both tell of is one family.
    #[test]
    fn balancing_beside_tiering_has_its_own_label() {
        let exposition = service();
        let lines = |exposition: &Exposition| -> BTreeSet<String> {
            exposition.plain().lines().map(str::to_owned).collect()
        };
        let alone = lines(&exposition);
        let status = Status {
            processes: 5,
            balancing: Some(BalanceStatus {
                moved_pages: 3,
                ..BalanceStatus::default()
            }),
            ..Status::default()
        };
        exposition.tell_of_balancing(Some(Some(&status)));
        let both = lines(&exposition);
        assert!(alone.is_subset(&both));
        for line in [
            "memtide_processes{loop=\"tier\"} 2",
            "memtide_processes{loop=\"balance\"} 5",
            "memtide_balanced_bytes_total{loop=\"balance\"} 12288",
            "memtide_balancing_works{loop=\"balance\"} 1",
        ] {
            assert!(both.contains(line), "{line}\n{both:#?}");
        }
        exposition.tell_of_balancing(Some(None));
        let rests = lines(&exposition);
        assert!(rests.contains("memtide_balancing_works{loop=\"balance\"} 0"));
        assert!(!rests.contains("memtide_processes{loop=\"balance\"} 5"));
        exposition.tell_of_balancing(None);
        assert_eq!(lines(&exposition), alone);
    }

    #[test]
    fn what_is_spread_stands_beside_the_loop_or_that_it_rests() {
        let exposition = service();
        let alone = exposition.plain();
        exposition.tell_of_spreading(Some(Some(SPREAD)));
        let both = exposition.plain();
        for line in [
            "memtide_processes{loop=\"tier\"} 2",
            "memtide_processes{loop=\"weights\"} 2",
            "memtide_cpu_seconds_total{loop=\"weights\"} 0.25",
            "memtide_spread_bytes_total{loop=\"weights\"} 65536",
            "memtide_spread_refused_processes{loop=\"weights\"} 1",
            "memtide_spreading_works{loop=\"weights\"} 1",
        ] {
            assert!(both.lines().any(|there| there == line), "{line}\n{both}");
        }
        exposition.tell_of_spreading(Some(None));
        let rests = exposition.plain();
        assert!(rests.contains("\nmemtide_spreading_works{loop=\"weights\"} 0\n"));
        assert!(!rests.contains("memtide_spread_bytes"));
        exposition.tell_of_spreading(None);
        assert_eq!(exposition.plain(), alone);
    }

    #[test]
    fn what_pagers_do_is_told_by_file_and_in_sums() {
        let exposition = service();
        let alone = exposition.plain();
        exposition.tell_of_pagers(Some(Some(paged())));
        let paged = exposition.plain();
        for line in [
            "memtide_pager_processes{loop=\"pagers\"} 2",
            "memtide_pager_unread_processes{loop=\"pagers\"} 1",
            "memtide_pager_budget_bytes{loop=\"pagers\"} 1073741824",
            "memtide_pager_file_mapped_bytes{loop=\"pagers\",file=\"model.gguf\"} 4194304",
            "memtide_pager_file_resident_bytes{loop=\"pagers\",file=\"model.gguf\"} 1048576",
            "memtide_pager_file_evicted_bytes_total{loop=\"pagers\",file=\"model.gguf\"} 12288",
            "memtide_pager_file_refilled_bytes_total{loop=\"pagers\",file=\"\"} 8192",
            "memtide_pager_other_files{loop=\"pagers\"} 7",
            "memtide_pager_unmapped_bytes_total{loop=\"pagers\"} 20480",
            "memtide_pager_flushes_total{loop=\"pagers\"} 1",
            "memtide_pager_held_back_total{loop=\"pagers\"} 18446744073709551615",
            "memtide_pager_looking_cpu_seconds_total{loop=\"pagers\"} 0.25",
            "memtide_tlb_shootdowns_total{loop=\"pagers\"} 99",
            "memtide_pagers_seen{loop=\"pagers\"} 1",
        ] {
            assert!(paged.lines().any(|there| there == line), "{line}\n{paged}");
        }
        // The trick is one line, with nothing in it that draws.
        let mut tricks = paged.lines().filter(|line| line.contains("file=\"a"));
        assert!(tricks.all(|line| line.contains("a\\\"} 1")), "{paged}");
        assert!(!paged.contains('\u{1b}'), "{paged}");
        // Sums alone: no file has a name.
        exposition.tell_of_pagers(Some(Some(PagerFigures::default())));
        assert!(!exposition.plain().contains("file="));
        exposition.tell_of_pagers(Some(None));
        let rests = exposition.plain();
        assert!(rests.contains("\nmemtide_pagers_seen{loop=\"pagers\"} 0\n"));
        assert!(!rests.contains("memtide_pager_"));
        exposition.tell_of_pagers(None);
        assert_eq!(exposition.plain(), alone);
    }

    /// 2,000 samples of classes, and those of pagers: less than 5 ms, by far.
    #[test]
    #[ignore = "a figure: cargo test --release -p memtide --bin memtide exposition -- --ignored --nocapture"]
    fn a_scrape_of_a_thousand_classes_takes() {
        let exposition = tiering();
        let class = |n: u32| ClassStatus {
            name: format!("class-{n}"),
            fast_pages: Some(9),
            high_pages: Some(10),
            pressure: pressure(2),
            fast_access_permille: Some(750),
            ..ClassStatus::default()
        };
        let classes = (0..1000).map(class).collect();
        let tiering = Some(TierStatus {
            classes,
            ..TierStatus::default()
        });
        exposition.tell(&Status {
            tiering,
            ..Status::default()
        });
        let measure = |what: &str| {
            let times = (0..100).map(|_| {
                let began = std::time::Instant::now();
                std::hint::black_box(exposition.plain().len());
                began.elapsed()
            });
            let mut times: Vec<Duration> = times.collect();
            times.sort();
            println!("{what}: median {:?}, longest {:?}", times[50], times[99]);
        };
        measure("without pagers");
        let files = (0..64).map(|n| FileFigures {
            name: format!("model-{n:05}-of-00064.safetensors"),
            ..FileFigures::default()
        });
        exposition.tell_of_pagers(Some(Some(PagerFigures {
            files: files.collect(),
            ..paged()
        })));
        measure("with 64 files of pagers");
    }

    #[test]
    fn values_from_outside_are_escaped() {
        let line = r#"memtide_source_info{loop="balance",source="ibs \"a\\b\"\n"} 1"#;
        for text in [balancing().open_metrics(), balancing().plain()] {
            assert!(text.lines().any(|there| there == line), "{text}");
        }
    }

    /// Each family stands together, is described before its samples, and is described once.
    #[test]
    fn families_stand_together() {
        for exposition in [service(), balancing(), both()] {
            let text = exposition.plain();
            let mut known = BTreeSet::new();
            let mut present = "";
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("# HELP ") {
                    present = rest.split(' ').next().unwrap();
                    assert!(known.insert(present), "{present} comes twice");
                } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                    let (name, kind) = rest.split_once(' ').unwrap();
                    assert_eq!(name, present);
                    assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
                } else {
                    let name = line.split('{').next().unwrap();
                    assert_eq!(name, present, "{line}");
                }
            }
        }
    }

    /// Labels of a line of the plain format; no value here has a comma.
    fn labels(line: &str) -> BTreeMap<&str, &str> {
        let within = line.split(['{', '}']).nth(1).unwrap_or_default();
        let pairs = within.split(',').filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(name, value)| (name, value.trim_matches('"')))
            .collect()
    }

    #[test]
    fn each_line_of_the_dashboard_has_a_name_of_its_own() {
        let told = both().plain();
        for panel in Dashboard::read().panels {
            let title = &panel.title;
            let mut names = BTreeSet::new();
            for target in &panel.targets {
                let words = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                let mut asked = target.expr.split(words);
                let asked = asked.find(|word| word.starts_with("memtide_")).unwrap();
                let family = format!("{asked}{{");
                // A sum has the labels that it is by.
                let by = target.expr.split_once(" by (");
                let by = by.and_then(|(_, rest)| rest.split_once(')'));
                let stays =
                    |label: &str| by.is_none_or(|(by, _)| by.split(", ").any(|one| one == label));
                let family = told.lines().filter(|line| line.starts_with(&family));
                let series = family.map(|line| {
                    let mut labels = labels(line);
                    labels.retain(|label, _| stays(label));
                    labels.insert("instance", "a");
                    labels
                });
                let series: BTreeSet<_> = series.collect();
                assert!(!series.is_empty(), "{title}: nobody tells of {asked}");
                for labels in series {
                    let name = target.legend(|label| labels.get(label).copied());
                    assert!(
                        names.insert(name.clone()),
                        "{title}: two lines are called {name}"
                    );
                }
            }
        }
    }

    #[test]
    fn metrics_are_documented() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let documented: BTreeSet<(String, String)> = guide
            .lines()
            .filter_map(|line| {
                let mut cells = line.split('|').map(str::trim).skip(1);
                let name = cells.next()?.strip_prefix("`memtide_")?.strip_suffix('`')?;
                Some((format!("memtide_{name}"), cells.next()?.to_owned()))
            })
            .collect();
        let mut told = BTreeSet::new();
        for exposition in [service(), balancing(), both()] {
            for line in exposition.plain().lines() {
                if let Some(typed) = line.strip_prefix("# TYPE ") {
                    let (name, kind) = typed.split_once(' ').unwrap();
                    told.insert((name.to_owned(), kind.to_owned()));
                }
            }
        }
        assert_eq!(
            documented, told,
            "documented on the left, told on the right"
        );
    }

    /// Names, units and help as Prometheus wants them.
    #[test]
    fn prometheus_finds_no_fault_with_what_is_told() {
        let Some(programs) = Programs::find() else {
            return;
        };
        for exposition in [tiering(), service(), balancing(), both()] {
            programs.promtool(&["check", "metrics"], &exposition.plain());
        }
    }
}
