//! The alerts, judged by a real Prometheus: `tests/data/alerts.yml` says on which machines each fires, and on
//! which it does not.

use super::prometheus::Programs;

const RULES: &str = include_str!("../../../../../deploy/prometheus-rules.yml");
const TRIED: &str = include_str!("../../../tests/data/alerts.yml");

/// The alerts that `text` names behind `before`, as often as it does.
fn named<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    let after = text.split(before).skip(1);
    let word = |c: char| !c.is_ascii_alphanumeric();
    after.map(move |rest| rest.split(word).next().unwrap_or(rest))
}

/// Needs no Prometheus.
#[test]
fn each_alert_is_tried() {
    let alerts: Vec<&str> = named(RULES, "- alert: ").collect();
    assert!(alerts.len() >= 7, "{alerts:?}");
    for alert in alerts {
        let asked = format!("expr: ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}}\n");
        let answers: Vec<&str> = TRIED.split(&asked).skip(1).collect();
        let silent = |answer: &&str| answer.trim_start().starts_with("exp_samples: []");
        assert!(answers.iter().any(silent), "{alert} may always fire");
        assert!(!answers.iter().all(silent), "{alert} may never fire");
    }
}

#[test]
fn prometheus_takes_the_rules() {
    let Some(programs) = Programs::find() else {
        return;
    };
    let words = ["check", "rules", "--lint=all", "--lint-fatal"];
    let rules = "deploy/prometheus-rules.yml";
    programs.promtool(&[&words[..], &[rules]].concat(), "");
}

#[test]
fn each_alert_fires_where_it_should_and_nowhere_else() {
    let Some(programs) = Programs::find() else {
        return;
    };
    programs.promtool(
        &["test", "rules", "crates/memtide/tests/data/alerts.yml"],
        "",
    );
}
