//! The report: one HTML page that holds everything it shows, so that it can be mailed, opened
//! offline and read years later.
//!
//! Every scenario is a section: what was found, in words; the machine; the comparison as a table and as
//! bars beside the published figures; what all configurations have in common over time; then each
//! configuration by itself. Each chart has a sentence that says how to read it. Light and dark follow the
//! reader's setting ([`theme`]), and paper is light.
//!
//! The page is complete without its script, which shows the exact values of a chart at the pointer, a
//! finger, or the place that arrow keys choose; they stand in the tables below the charts, too. Everything
//! that comes from outside is escaped ([`escape`]), and the script writes text and never HTML.

mod bars;
pub(super) mod charts;
mod figures;
mod heat;
mod machine;
mod overlaid;
mod single;
pub(super) mod tables;
mod theme;

use super::causes::CAUSES;
use super::comparison::{Case, Comparison, MeasureKind, NodeLine, Outcome};
use super::table::{columns, counts, notes};
use super::words::{amount, grouped};
use std::fmt::Write as _;
use tables::Row;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page of all scenarios; `command` is the line that makes it again.
pub fn page(comparisons: &[Comparison], command: &str) -> String {
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
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        escape(&title)
    );
    if comparisons.len() > 1 {
        let _ = writeln!(page, "<h1>{}</h1>", escape(&title));
        let names = comparisons.iter().enumerate();
        page.push_str(&contents(
            names.map(|(n, one)| (format!("s{n}"), one.name.as_str())),
        ));
    }
    for (n, comparison) in comparisons.iter().enumerate() {
        section(comparison, n, comparisons.len() == 1, &mut page);
    }
    let _ = write!(
        page,
        "<footer><p>Written by memtide {}. This command makes the same page again, byte for byte; files \
         are named without their folders:</p>\n<pre tabindex=\"0\"><code>{}</code></pre></footer>\n</main>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        escape(command)
    );
    page
}

/// Links to parts of the page: an id and a name each.
fn contents<'a>(parts: impl Iterator<Item = (String, &'a str)>) -> String {
    let links = parts.map(|(id, name)| format!("<li><a href=\"#{id}\">{}</a></li>", escape(name)));
    let links: String = links.collect();
    format!("<nav aria-label=\"Parts of this page\"><ul>{links}</ul></nav>\n")
}

fn section(comparison: &Comparison, number: usize, alone: bool, page: &mut String) {
    let (level, below) = if alone { ("h1", "h2") } else { ("h2", "h3") };
    let _ = writeln!(
        page,
        "<section>\n<{level} id=\"s{number}\">{}</{level}>",
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
    let id = |case: usize| format!("s{number}-{case}");
    let named = comparison.cases.iter().enumerate();
    let named: Vec<(String, &str)> = named
        .filter(|(_, case)| !case.name.is_empty())
        .map(|(n, case)| (id(n), case.name.as_str()))
        .collect();
    if named.len() > 1 {
        page.push_str(&contents(named.into_iter()));
    }
    // With several cases before the first, with one below what was found.
    let common = |page: &mut String| {
        noted(comparison, page);
        machine::html(comparison, page);
    };
    let alone = comparison.cases.len() == 1;
    if !alone {
        common(page);
    }
    for (n, case) in comparison.cases.iter().enumerate() {
        if !case.name.is_empty() {
            let _ = writeln!(
                page,
                "<{below} id=\"{}\">{}</{below}>",
                id(n),
                escape(&case.name)
            );
        }
        // A figure and its sign stay on one line.
        let summary = escape(&case.summary).replace(" %", "&nbsp;%");
        let _ = writeln!(page, "<p class=\"finding\">{summary}</p>");
        if alone {
            common(page);
        }
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
        card(
            page,
            "Comparison",
            &table_guide(comparison, case),
            &table(case),
        );
        super::programs::html(case, page);
        overlaid::values(case, page);
        overlaid::over_time(case, page);
        overlaid::overhead(case, page);
        super::translations::html(case, page);
        single::each(case, &comparison.nodes, comparison.scale, page);
    }
    super::home::html(comparison, page);
    meanings(comparison, page);
    page.push_str("</section>\n");
}

/// What the reader has to know of the whole.
fn noted(comparison: &Comparison, page: &mut String) {
    let notes = notes(comparison);
    if notes.is_empty() {
        return;
    }
    page.push_str("<ul class=\"soft notes\">\n");
    for note in notes {
        let _ = writeln!(page, "<li>{}</li>", escape(&note));
    }
    page.push_str("</ul>\n");
}

fn table_guide(comparison: &Comparison, case: &Case) -> String {
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
    let any = |of: fn(&Outcome) -> bool| case.configurations.iter().any(of);
    let seeds = match any(|outcome| outcome.confidence.ratio.is_some()) {
        true => format!(
            " Values and ratios are medians over the seeds, 95 % is the interval of the ratio; all other \
             columns and all charts over time are of seed {}.",
            comparison.seed
        ),
        false => String::new(),
    };
    let coarse = match any(|outcome| outcome.confidence.scale_error.is_some()) {
        true => {
            " The error of scale is how far the ratio moves on a machine four times as coarse. A ratio marked \
             'by chance' moves by more than 0.02 on that machine with another seed."
        }
        false => "",
    };
    format!(
        "{value} A ratio is the value over that of the first row.{seeds}{coarse} Compare ratio with ratio: a \
         simulated second is no second of the machine that the published figures come from.{marked} \
         Rows in italics are no kernels: static moves nothing, which may be better or worse than \
         moving{oracle}{bounds}."
    )
}

fn table(case: &Case) -> String {
    let outcomes = &case.configurations;
    let mut columns = columns(case);
    for column in &mut columns {
        if column.0 == "published" {
            column.0 = "published ratio";
        }
    }
    let published = |of: fn(&super::comparison::Published) -> bool| {
        outcomes
            .iter()
            .any(|outcome| outcome.published.as_ref().is_some_and(of))
    };
    if published(|published| published.value.is_some()) {
        columns.push((
            "published value",
            Box::new(|outcome| {
                let value = outcome
                    .published
                    .as_ref()
                    .and_then(|published| published.value);
                value.map_or("-".to_owned(), |value| amount(value, &case.measure.unit))
            }),
        ));
    }
    if published(|published| published.pages_moved.is_some()) {
        columns.push((
            "published moves",
            Box::new(|outcome| {
                let moved = outcome
                    .published
                    .as_ref()
                    .and_then(|published| published.pages_moved);
                moved.map_or("-".to_owned(), grouped)
            }),
        ));
    }
    let head = std::iter::once("configuration").chain(columns.iter().map(|column| column.0));
    let head: Vec<&str> = head.collect();
    let rows = outcomes.iter().map(|outcome| {
        let cells = columns.iter().map(|(_, cell)| cell(outcome));
        let name = outcome.run.configuration.clone();
        Row {
            class: if outcome.bound { "bound" } else { "" },
            cells: std::iter::once(name).chain(cells).collect(),
        }
    });
    tables::table("Comparison", 1, &head, rows)
}

/// Where the pages of each mapping lie.
fn placed(case: &Case, nodes: &[NodeLine]) -> String {
    let mut head = vec!["configuration".to_owned(), "mapping".to_owned()];
    head.extend(nodes.iter().map(|node| format!("node {}", node.id)));
    head.push("published".to_owned());
    let mut rows = Vec::new();
    for outcome in &case.configurations {
        for mapping in &outcome.run.placed {
            let published = outcome.published.as_ref();
            let published = published.and_then(|published| published.pages.get(&mapping.region));
            let mut cells = vec![outcome.run.configuration.clone(), mapping.region.clone()];
            cells.extend(mapping.pages.iter().map(|&pages| grouped(pages)));
            cells.push(published.map_or("-".to_owned(), |pages| counts(pages)));
            rows.push(Row::plain(cells));
        }
    }
    tables::table("Pages by node", 2, &head, rows)
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
    page.push_str("</dl>\n<h3>What the causes of overhead are</h3>\n<dl>\n");
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
        "<section class=\"card\"><h3>{}</h3>\n<p class=\"guide\">{}</p>\n{content}</section>\n",
        escape(title),
        escape(guide)
    );
}

/// Which colour means what.
fn legend<'a>(entries: impl Iterator<Item = (usize, bool, &'a str)>) -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for (series, dashed, name) in entries {
        let class = if dashed { "swatch dashed" } else { "swatch" };
        let _ = write!(
            html,
            "<li><span class=\"{class}\" style=\"--colour:{}\"></span>{}</li>",
            theme::series(series),
            escape(name)
        );
    }
    html.push_str("</ul>\n");
    html
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
        let page = page(&[comparison], "memtide sim run '<a>'");
        assert!(
            page.contains("A &lt;b&gt; &amp; &quot;c&quot;") && page.contains("run '&lt;a&gt;'")
        );
        // Nothing is fetched: the only address is an empty picture, or a browser would ask for one.
        let page = page.replace("<link rel=\"icon\" href=\"data:,\">", "");
        let fetched = [
            "src=",
            "@import",
            "url(",
            "<link",
            "href=\"http",
            "innerHTML",
            "fetch(",
        ];
        for word in fetched {
            assert!(!page.contains(word), "{word}");
        }
        // Three charts over time and two over nodes for each of five runs; a map of each.
        assert_eq!(page.matches("class=\"chart lines\"").count(), 3 + 2 * 5);
        assert_eq!(page.matches("class=\"chart heat\"").count(), 5);
        assert_eq!(page.matches("class=\"chart bars\"").count(), 2);
        assert!(!page.contains("NaN") && !page.contains("inf\""));
        assert!(page.len() < 1 << 20, "{} bytes", page.len());
    }

    #[test]
    fn a_bound_is_spoken_of_only_beside_an_oracle() {
        let mut comparison = samples::comparison();
        let text = "a bound on what placing pages by their rates can reach";
        assert!(table_guide(&comparison, &comparison.cases[0]).contains(text));
        let rows = &mut comparison.cases[0].configurations;
        rows.retain(|outcome| outcome.run.configuration != "oracle");
        let without = table_guide(&comparison, &comparison.cases[0]);
        assert!(
            !without.contains("bound") && !without.contains("oracle"),
            "{without}"
        );
    }

    #[test]
    fn the_same_comparison_gives_the_same_page() {
        let page = |_| page(&[samples::comparison(), samples::comparison()], "memtide");
        assert_eq!(page(0), page(1));
    }
}
