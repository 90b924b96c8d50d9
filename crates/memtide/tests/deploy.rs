//! The dashboard and the alerts ask for metrics that there are.

use std::collections::BTreeSet;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/{path}")).expect(path)
}

/// The words in `text` that are names of memtide's metrics.
fn names(text: &str) -> BTreeSet<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let words = text.split(word).filter(|word| word.starts_with("memtide_"));
    words.map(str::to_owned).collect()
}

/// docs/metrics.md is compared with what is told by a test beside the families.
fn documented() -> BTreeSet<String> {
    let page = read("docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let first = rows.filter_map(|row| row.split('`').next());
    first.map(str::to_owned).collect()
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let text = read("deploy/grafana-dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(
        dashboard["id"].is_null(),
        "an id of one Grafana means nothing to another"
    );
    assert_eq!(dashboard["uid"], "memtide-overview");
    let documented = documented();
    let (mut asked, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = &panel["title"];
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        // Grafana's schema requires it.
        assert!(panel["options"]["legend"]["calcs"].is_array(), "{title}");
        let at = &panel["gridPos"];
        assert!(
            places.insert((at["x"].as_u64(), at["y"].as_u64())),
            "{title} lies on another"
        );
        for target in panel["targets"].as_array().unwrap() {
            asked.extend(names(target["expr"].as_str().unwrap()));
        }
    }
    assert!(asked.len() > 10, "{asked:?}");
    let unknown: Vec<_> = asked.difference(&documented).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let current = &variable["current"];
        assert!(current["text"].is_string() && current["value"].is_string());
        let query = variable["definition"].as_str().unwrap_or_default();
        assert!(names(query).is_subset(&documented), "{query}");
    }
}

#[test]
fn alerts_ask_for_what_there_is() {
    let text = read("deploy/prometheus-rules.yml");
    let asked: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "))
        .flat_map(names)
        .collect();
    assert!(asked.len() > 3, "{asked:?}");
    let tried = names(&read("crates/memtide/tests/data/alerts.yml"));
    let documented = documented();
    let all = asked.union(&tried);
    let unknown: Vec<_> = all.filter(|name| !documented.contains(*name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
