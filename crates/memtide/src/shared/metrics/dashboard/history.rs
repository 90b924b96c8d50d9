//! What Prometheus would have scraped, as one text with times.

use std::fmt::Write as _;

/// What a machine told at a time of its run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    /// When.
    pub at_ms: u64,
    /// OpenMetrics.
    pub text: String,
}

/// OpenMetrics of several instances: of each its name and what it told. `begin_s` is when all runs began, in
/// seconds since 1970.
pub fn history(instances: &[(&str, Vec<Scrape>)], begin_s: u64) -> String {
    let mut all = String::new();
    for (instance, scrapes) in instances {
        for Scrape { at_ms, text } in scrapes {
            assert_eq!(at_ms % 1000, 0, "whole seconds");
            let at_s = begin_s + at_ms / 1000;
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                let (name, rest) = line.split_once('{').expect("each sample has labels");
                let _ = writeln!(all, "{name}{{instance=\"{instance}\",{rest} {at_s}");
            }
        }
    }
    all + "# EOF\n"
}

#[test]
fn a_sample_gets_its_instance_and_its_time() {
    let scrape = |at_ms, value| Scrape {
        at_ms,
        text: format!("# HELP a b.\n# TYPE a gauge\na{{loop=\"tier\"}} {value}\n# EOF\n"),
    };
    let all = [
        ("x", vec![scrape(0, 1), scrape(15_000, 2)]),
        ("y", vec![scrape(0, 3)]),
    ];
    assert_eq!(
        history(&all, 100),
        "a{instance=\"x\",loop=\"tier\"} 1 100\na{instance=\"x\",loop=\"tier\"} 2 115\n\
         a{instance=\"y\",loop=\"tier\"} 3 100\n# EOF\n"
    );
}
