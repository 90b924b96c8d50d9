//! The report: one HTML page that holds everything it shows, so that it can be mailed, opened
//! offline and read years later.
//!
//! Every scenario is a section: what was found, in words; the comparison as a table and as bars
//! beside the published figures; what all configurations have in common over time; then each
//! configuration by itself. Each chart has a sentence that says how to read it. The page holds no
//! script; light and dark follow the reader's setting ([`theme`]).

pub(super) mod charts;
mod overlaid;
mod single;
mod theme;

use super::causes::CAUSES;
use super::comparison::{COUNTS, Case, Comparison, MeasureKind, NodeLine, Outcome};
use super::table::counts;
use super::words::{amount, bytes, grouped, percent, ratio};
use std::fmt::Write as _;
use theme::{HEAT, Role};

const STYLE: &str = include_str!("page.css");

/// The page of all scenarios.
pub fn page(comparisons: &[Comparison]) -> anyhow::Result<String> {
    let title = match comparisons {
        [one] => format!("{}: {}", one.name, one.title),
        many => format!("{} simulated experiments", many.len()),
    };
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        escape(&title)
    );
    if comparisons.len() > 1 {
        let _ = writeln!(page, "<h1>{}</h1>\n<nav>", escape(&title));
        for one in comparisons {
            let _ = writeln!(page, "<a href=\"#{0}\">{0}</a>", escape(&one.name));
        }
        page.push_str("</nav>\n");
    }
    for comparison in comparisons {
        section(comparison, comparisons.len() == 1, &mut page)?;
    }
    let _ = write!(
        page,
        "<footer>Written by memtide {}. A run with the same scenario, seed and scale gives the same \
         page.</footer>\n</main>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    Ok(page)
}

fn section(comparison: &Comparison, alone: bool, page: &mut String) -> anyhow::Result<()> {
    let level = if alone { "h1" } else { "h2" };
    let _ = writeln!(
        page,
        "<section>\n<{level} id=\"{}\">{}</{level}>",
        escape(&comparison.name),
        escape(&comparison.title)
    );
    let document = match &comparison.document {
        Some(document) => format!(" After {}.", escape(document.trim_end_matches('.'))),
        None => String::new(),
    };
    let _ = writeln!(
        page,
        "<p class=\"soft\">Scenario {}, seed {}, {}.{document}</p>",
        escape(&comparison.name),
        comparison.seed,
        match comparison.scale {
            1 => "full size".to_owned(),
            scale => format!("at 1/{scale}: each simulated page stands for {scale}"),
        },
    );
    machine(comparison, page);
    for case in &comparison.cases {
        if !case.name.is_empty() {
            let _ = writeln!(page, "<h2>{}</h2>", escape(&case.name));
        }
        let summary = escape(&case.summary);
        let _ = writeln!(page, "<p class=\"finding\">{summary}</p>");
        if case.measure.kind == MeasureKind::Pages {
            let guide = "How many pages of each mapping lie on each node, and how many the document \
                         counted there.";
            card(
                page,
                "Pages by node",
                guide,
                &placed(case, &comparison.nodes),
            );
            continue;
        }
        card(page, "Comparison", &table_guide(case), &table(case));
        super::programs::html(case, page);
        let chart = overlaid::values(case)?;
        let title = overlaid::values_title(case);
        card(page, title, &overlaid::values_guide(case), &chart);
        overlaid::over_time(case, page)?;
        overlaid::overhead(case, page)?;
        super::translations::html(case, page);
        single::each(case, &comparison.nodes, page)?;
    }
    super::home::html(comparison, page)?;
    meanings(comparison, page);
    page.push_str("</section>\n");
    Ok(())
}

fn machine(comparison: &Comparison, page: &mut String) {
    let nodes: Vec<String> = comparison
        .nodes
        .iter()
        .map(|node| {
            let cpus = match node.cpus {
                0 => "no CPUs".to_owned(),
                cpus => format!("{cpus} CPUs"),
            };
            let tier = if node.top_tier {
                "fast tier"
            } else {
                "slow tier"
            };
            format!(
                "node {} ({}, {cpus}, {tier})",
                node.id,
                bytes(node.memory_bytes)
            )
        })
        .collect();
    let _ = writeln!(
        page,
        "<p class=\"soft\">The machine: {}.</p>",
        escape(&nodes.join("; "))
    );
}

fn table_guide(case: &Case) -> String {
    let value = match case.measure.kind {
        MeasureKind::Time => "Time is simulated time, and less is better.",
        MeasureKind::Score => "The score is the workload's own, and more is better.",
        MeasureKind::Pages => "Where the pages lie is the result.",
    };
    let marked = case
        .configurations
        .iter()
        .any(|outcome| outcome.published.as_ref().is_some_and(|p| p.mark.is_some()));
    let marked = if marked {
        " An asterisk marks figures that the document itself doubts or withdraws."
    } else {
        ""
    };
    let oracle = case
        .configurations
        .iter()
        .find(|o| o.run.configuration == "oracle");
    let bounds = match oracle.map(|oracle| oracle.run.estimate.as_deref()) {
        None => String::new(),
        Some(None) => ", a bound on what placing pages by their rates can reach".to_owned(),
        Some(Some(why)) => format!("; here that is an estimate and no bound: {}", escape(why)),
    };
    let oracle = match oracle {
        None => "",
        Some(_) => {
            "; oracle knows the rate of every page, but not which is accessed next, and moves at no cost"
        }
    };
    format!(
        "{value} A ratio is the value over that of the first row. Compare ratio with ratio: a \
         simulated second is no second of the machine that the published figures come from.{marked} \
         Rows in italics are no kernels: static moves nothing, which may be better or worse than \
         moving{oracle}{bounds}."
    )
}

fn table(case: &Case) -> String {
    let outcomes = &case.configurations;
    let published = outcomes.iter().any(|outcome| outcome.published.is_some());
    let mut head = vec![
        match case.measure.kind {
            MeasureKind::Time => "time",
            MeasureKind::Score | MeasureKind::Pages => "score",
        },
        "ratio",
    ];
    if published {
        head.extend(["published", "published ratio"]);
    }
    head.push("fast tier");
    let several = super::programs::are_several(case);
    head.extend(several.then_some("fairness"));
    let counts: Vec<_> = COUNTS
        .iter()
        .filter(|(_, count)| outcomes.iter().any(|outcome| count(outcome) > 0))
        .collect();
    head.extend(counts.iter().map(|(name, _)| name));
    let moved = |outcome: &Outcome| outcome.published.as_ref()?.pages_moved;
    let any_moved = outcomes.iter().any(|outcome| moved(outcome).is_some());
    head.extend(any_moved.then_some("published moves"));
    let mut html = String::from("<div class=\"wide\"><table>\n<tr><th>configuration</th>");
    for name in head {
        let _ = write!(html, "<th>{name}</th>");
    }
    html.push_str("</tr>\n");
    for outcome in outcomes {
        let mut cells = vec![
            amount(outcome.value, &case.measure.unit),
            outcome.ratio.map_or("–".to_owned(), ratio),
        ];
        if published {
            match &outcome.published {
                Some(figure) => {
                    let mark = if figure.mark.is_some() { "*" } else { "" };
                    let value = figure.value.map(|value| amount(value, &case.measure.unit));
                    cells.push(format!("{}{mark}", value.as_deref().unwrap_or("–")));
                    cells.push(figure.ratio.map_or("–".to_owned(), ratio));
                }
                None => cells.extend(["–".to_owned(), "–".to_owned()]),
            }
        }
        cells.push(percent(outcome.run.fast_share));
        cells.extend(several.then(|| super::programs::fairness(outcome)));
        cells.extend(counts.iter().map(|(_, count)| grouped(count(outcome))));
        if any_moved {
            cells.push(moved(outcome).map_or("–".to_owned(), grouped));
        }
        let class = if outcome.bound {
            " class=\"bound\""
        } else {
            ""
        };
        let _ = write!(
            html,
            "<tr{class}><td>{}</td>",
            escape(&outcome.run.configuration)
        );
        for cell in cells {
            let _ = write!(html, "<td>{}</td>", escape(&cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    html
}

/// Where the pages of each mapping lie.
fn placed(case: &Case, nodes: &[NodeLine]) -> String {
    let mut html =
        String::from("<div class=\"wide\"><table>\n<tr><th>configuration</th><th>mapping</th>");
    for node in nodes {
        let _ = write!(html, "<th>node {}</th>", node.id);
    }
    html.push_str("<th>published</th></tr>\n");
    for outcome in &case.configurations {
        for mapping in &outcome.run.placed {
            let published = outcome.published.as_ref();
            let published = published.and_then(|published| published.pages.get(&mapping.region));
            let _ = write!(
                html,
                "<tr><td>{}</td><td>{}</td>",
                escape(&outcome.run.configuration),
                escape(&mapping.region)
            );
            for &pages in &mapping.pages {
                let _ = write!(html, "<td>{}</td>", grouped(pages));
            }
            let published = published.map_or("–".to_owned(), |pages| counts(pages));
            let _ = writeln!(html, "<td>{published}</td></tr>");
        }
    }
    html.push_str("</table></div>\n");
    html
}

fn meanings(comparison: &Comparison, page: &mut String) {
    page.push_str("<div class=\"card\"><h3>What the configurations are</h3>\n<dl>\n");
    let mut named = std::collections::BTreeSet::new();
    let outcomes = comparison
        .cases
        .iter()
        .flat_map(|case| &case.configurations);
    for outcome in outcomes.filter(|outcome| named.insert(&outcome.run.configuration)) {
        let _ = writeln!(
            page,
            "<dt>{}</dt><dd>{}</dd>",
            escape(&outcome.run.configuration),
            escape(&outcome.about)
        );
    }
    page.push_str(
        "</dl>\n<h3 style=\"margin-top:18px\">What the causes of overhead are</h3>\n<dl>\n",
    );
    for cause in CAUSES {
        let beside = if cause.beside {
            " (beside the application)"
        } else {
            ""
        };
        let _ = writeln!(
            page,
            "<dt>{}</dt><dd>{}{beside}</dd>",
            cause.name, cause.about
        );
    }
    page.push_str("</dl></div>\n");
}

/// A titled box with a chart or table.
pub(super) fn card(page: &mut String, title: &str, guide: &str, content: &str) {
    let _ = write!(
        page,
        "<figure class=\"card\"><h3>{}</h3>\n<figcaption>{}</figcaption>\n{content}</figure>\n",
        escape(title),
        escape(guide)
    );
}

/// Which colour means what.
pub(super) fn legend<'a>(entries: impl Iterator<Item = (usize, bool, &'a str)>) -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for (series, dashed, name) in entries {
        let class = if dashed { "swatch dashed" } else { "swatch" };
        let _ = write!(
            html,
            "<li><span class=\"{class}\" style=\"--colour:var({})\"></span>{}</li>",
            Role::Series(series).variable(),
            escape(name)
        );
    }
    html.push_str("</ul>\n");
    html
}

/// The colours of the heat map from few to many.
fn heat_scale() -> String {
    let colours: Vec<String> = (0..HEAT)
        .map(|step| format!("var({})", Role::Heat(step).variable()))
        .collect();
    format!(
        "<p class=\"soft\">few <span class=\"scale\" style=\"background:linear-gradient(90deg,{})\">\
         </span> many accesses, logarithmic</p>\n",
        colours.join(",")
    )
}

/// Configurations with their places, which decide their colours.
fn entries(outcomes: &[Outcome]) -> impl Iterator<Item = (usize, bool, &str)> {
    outcomes
        .iter()
        .enumerate()
        .map(|(n, outcome)| (n, outcome.bound, outcome.run.configuration.as_str()))
}

/// Text as HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::comparison::samples;
    use super::*;

    #[test]
    fn the_page_holds_everything_it_shows() {
        let mut comparison = samples::comparison();
        comparison.title = "A <b> & \"c\"".to_owned();
        let page = page(&[comparison]).unwrap();
        assert!(page.contains("A &lt;b&gt; &amp; &quot;c&quot;"));
        // Nothing is fetched: the only addresses are names of formats.
        let fetched = ["src=", "@import", "url(", "<script", "<link", "href=\"http"];
        for word in fetched {
            assert!(!page.contains(word), "{word}");
        }
        // Three charts over time, two of bars, three for each of five runs.
        assert_eq!(page.matches("<svg ").count(), 3 + 2 + 3 * 5);
        // No colour that only stands for a role is left.
        assert!(!page.contains("\"#01"));
        assert!(!page.contains("NaN"));
        assert!(page.len() < 1 << 20, "{} bytes", page.len());
    }

    #[test]
    fn a_bound_is_spoken_of_only_beside_an_oracle() {
        let mut comparison = samples::comparison();
        let text = "a bound on what placing pages by their rates can reach";
        assert!(table_guide(&comparison.cases[0]).contains(text));
        let rows = &mut comparison.cases[0].configurations;
        rows.retain(|outcome| outcome.run.configuration != "oracle");
        let without = table_guide(&comparison.cases[0]);
        assert!(
            !without.contains("bound") && !without.contains("oracle"),
            "{without}"
        );
    }

    #[test]
    fn the_same_comparison_gives_the_same_page() {
        let page = |_| page(&[samples::comparison(), samples::comparison()]).unwrap();
        assert_eq!(page(0), page(1));
    }
}
