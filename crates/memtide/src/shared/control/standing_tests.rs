//! A service's standing, as it is said, described and documented.

use super::super::interface::DESCRIPTION;
use super::*;
use crate::shared::lines::tests::{documented, keys};
use memtide_loop::report::TierStatus;
use std::collections::BTreeSet;

/// Of a service that has something of everything.
pub fn standing() -> Standing {
    let node = |node, tier, fast, free| Node {
        node,
        tier,
        fast,
        memory_bytes: 8 << 30,
        free_bytes: free,
        latency_ns: Some(112).filter(|_| fast),
    };
    Standing {
        version: "0.2.0".to_owned(),
        pid: 4711,
        run_ms: 100_000,
        age_ms: 0,
        setup: Setup {
            source: "DAMON".to_owned(),
            gate: "pghot".to_owned(),
            selected: "all".to_owned(),
            rate_limit_bytes: 4 << 30,
            headroom_bytes: 16 << 20,
            observe_cpu_percent: 5,
            dry_run: false,
        },
        doing: "glance".to_owned(),
        rests: None,
        processes: 3,
        fast_bytes: 3 << 30,
        slow_bytes: 1 << 30,
        promoted_bytes: 512 << 20,
        demoted_bytes: 64 << 20,
        returned_bytes: 32 << 20,
        unmovable_bytes: 4 << 10,
        looks: 7,
        lost_reports: 0,
        cpu_ms: 400,
        observation_cpu_ms: 1_200,
        nodes: vec![
            node(0, Some(4), true, Some(1 << 30)),
            node(1, Some(22), false, None),
        ],
        pressure: Some(Pressure {
            stalled_ms: 2_500,
            limit_bytes: 4 << 30,
            slowed: false,
        }),
        account: Some(Account {
            won_ns_per_s: 12_340_000,
            spent_ns_per_s: 4_100_000,
            won_ms: 1_200,
            spent_ms: 400,
            resting: 1,
        }),
        balancing: Some(Balancing {
            source: Some("pebs".to_owned()),
            rests: None,
            processes: 2,
            threads: 9,
            placed_threads: 4,
            accesses: 80_000,
            local_accesses: 72_000,
            moved_bytes: 96 << 20,
            unmovable_bytes: 4 << 10,
            forbidden_bytes: 0,
            no_room_bytes: 0,
            cpu_ms: 150,
            rested_ms: 0,
        }),
        weights: Some(Weights {
            table: Some("0=9,2=1".to_owned()),
            rests: None,
            processes: 4,
            refused: 1,
            moved_bytes: 48 << 20,
            cpu_ms: 20,
        }),
        pagers: Some(Pagers {
            rests: None,
            processes: 2,
            not_read: 1,
            budget_bytes: 4 << 30,
            evicted_bytes: 96 << 20,
            refilled_bytes: 12 << 20,
            unmapped_bytes: 128 << 20,
            flushes: 50,
            overruns: 3,
            held_back: 1,
            cpu_ms: 30,
            files: vec![PagerFile {
                name: "model.gguf".to_owned(),
                mapped_bytes: 8 << 30,
                resident_bytes: 3 << 30,
                evicted_bytes: 96 << 20,
                refilled_bytes: 12 << 20,
            }],
            other_files: 1,
            others: PagerFile {
                mapped_bytes: 1 << 30,
                ..PagerFile::default()
            },
        }),
        classes: vec![
            Class {
                name: "batch".to_owned(),
                within: Some("db".to_owned()),
                high_bytes: Some(2 << 30),
                waiting_bytes: 1 << 20,
                fast_touched_permille: Some(123),
                tiered: true,
                demotes: true,
                demotes_idle: true,
                ..Class::default()
            },
            Class {
                name: "db".to_owned(),
                within: None,
                fast_bytes: Some(2 << 30),
                low_bytes: 1 << 30,
                high_bytes: None,
                promoted_bytes: 300 << 20,
                demoted_bytes: 0,
                returned_bytes: 16 << 20,
                waiting_bytes: 0,
                left_alone: false,
                tiered: true,
                demotes: true,
                demotes_idle: false,
                paused: false,
                balanced: true,
                spread: false,
                pressure: Some(Pressure {
                    stalled_ms: 10,
                    limit_bytes: 4 << 30,
                    slowed: false,
                }),
                fast_access_permille: Some(950),
                fast_touched_permille: Some(800),
            },
        ],
        access_fairness_permille: None,
        touched_fairness_permille: Some(651),
        reload: Some(Reload {
            unix_ms: 1_800_000_000_000,
            taken: true,
        }),
        refused: None,
    }
}

#[test]
fn a_state_that_is_older_than_the_watchdog_waits_is_of_a_service_that_hangs() {
    let aged = |age| {
        let mut parameters = standing().parameters();
        set_age(&mut parameters, age);
        Standing::heard(parameters).unwrap()
    };
    assert_eq!(aged(Duration::ZERO), standing());
    assert_eq!(aged(HANGS).hangs(), None);
    let late = HANGS + Duration::from_millis(1);
    assert_eq!(aged(late).hangs(), Some(late));
    let unit = include_str!("../../../../../packaging/memtide.service");
    assert!(unit.contains(&format!("\nWatchdogSec={}\n", HANGS.as_secs())));
}

/// The fields of a type of the description, with their types.
fn described(name: &str) -> Vec<(String, String)> {
    let start = format!("\ntype {name} (");
    let (_, rest) = DESCRIPTION.split_once(&start).expect(name);
    let (fields, _) = rest.split_once(')').unwrap();
    let field = |field: &str| {
        let (name, kind) = field.split_once(':').unwrap();
        (name.trim().to_owned(), kind.trim().to_owned())
    };
    fields.split(',').map(field).collect()
}

fn check(value: &Value, kind: &str) {
    match (kind, value) {
        ("int", Value::Number(number)) => assert!(number.is_u64()),
        ("bool", Value::Bool(_)) | ("string", Value::String(_)) => {}
        (kind, value) => match (kind.strip_prefix('?'), kind.strip_prefix("[]")) {
            (Some(_), _) if value.is_null() => {}
            (Some(kind), _) => check(value, kind),
            (_, Some(kind)) => value
                .as_array()
                .unwrap()
                .iter()
                .for_each(|one| check(one, kind)),
            _ => {
                let described = described(kind);
                let object = value.as_object().expect(kind);
                assert_eq!(object.len(), described.len(), "{kind}");
                for (name, kind) in described {
                    check(&object[&name], &kind);
                }
            }
        },
    }
}

#[test]
fn what_is_said_is_what_is_described_and_heard() {
    let said = standing().parameters();
    check(&said["status"], "Standing");
    assert_eq!(Standing::heard(said), Some(standing()));
    assert_eq!(Standing::heard(Parameters::new()), None);
    let process = Process::of(&ProcessStatus::default(), PageSize::KIB_4);
    check(&serde_json::to_value(process).unwrap(), "Process");
}

#[test]
fn what_status_prints_is_documented() {
    let (_, documented) = documented("status");
    let mut printed = BTreeSet::new();
    keys(&serde_json::to_value(standing()).unwrap(), "", &mut printed);
    let printed: BTreeSet<_> = printed.iter().map(|key| key[1..].to_owned()).collect();
    assert_eq!(documented, printed);
}

/// 400 ms of 100 s are 0.4 %.
#[test]
fn pages_become_bytes_and_times_shares() {
    let status = Status {
        at_ms: 100_000,
        cpu: std::time::Duration::from_millis(400),
        tiering: Some(TierStatus {
            top_pages: 3,
            returned_pages: 2,
            observing: "look",
            ..TierStatus::default()
        }),
        ..Status::default()
    };
    let root = memtide_linux::fs::Root::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../memtide-linux/tests/fixtures/two-sockets"
    ));
    let nodes = memtide_linux::fs::topology::read(&root).unwrap().topology;
    let setup = Setup::of("DAMON", &TierOptions::DEFAULT, Some(Path::new("/db")));
    assert_eq!((&*setup.gate, &*setup.selected), ("pghot", "/db"));
    let standing = Standing::of(&status, PageSize::KIB_4, &setup, &nodes);
    assert_eq!(standing.fast_bytes, 12 << 10);
    assert_eq!(standing.returned_bytes, 8 << 10);
    assert_eq!(standing.nodes.len(), 2);
    assert_eq!(standing.nodes[0].free_bytes, None);
    assert_eq!(standing.cpu_percent().0, 0.4);
    assert_eq!(
        (standing.account, standing.nodes[0].latency_ns),
        (None, None)
    );
    assert!(standing.doing().starts_with("looks"));
}
