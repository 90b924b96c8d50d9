//! Charts of bars, plain and stacked. Each bar has its value beside it, and what the script shows in
//! `data-tip`: everything that the bar is made of, with six digits.

use super::charts::{at, lower, svg};
use super::figures::{exact, short};
use super::{escape, tables, theme};
use crate::cmd::sim::words::ratio;
use std::fmt::Write as _;

/// A bar with what was published beside it.
pub struct Bar {
    /// The configuration.
    pub name: String,
    /// Which colour.
    pub series: usize,
    /// How long it is; `None` if that is not known.
    pub value: Option<f64>,
    /// From where to where the true value may be.
    pub interval: Option<(f64, f64)>,
    /// What the document says, if it says anything.
    pub published: Option<f64>,
}

/// Bars from the top down, from 0 on, with a line at 1; a thin one of what was published below each.
pub fn bars(title: &str, bars: &[Bar]) -> String {
    let values = bars.iter().flat_map(|bar| {
        let high = bar.interval.map(|interval| interval.1);
        [bar.value, bar.published, high, Some(1.0)]
    });
    let right = values.flatten().fold(0.0, f64::max).max(1e-9);
    let place = |value: f64| at(value / right * 1000.0);
    let rows = bars.iter().map(|bar| {
        let mut drawing = format!("<path class=\"one\" d=\"M{} 0V1000\"/>", place(1.0));
        let mut said = vec![format!(
            "{}: {}",
            bar.name,
            bar.value.map_or("not known".to_owned(), exact)
        )];
        let height = if bar.published.is_some() { 520 } else { 720 };
        if let Some(value) = bar.value {
            let _ = write!(
                drawing,
                "<rect class=\"ours\" style=\"fill:{}\" y=\"100\" width=\"{}\" height=\"{height}\"/>",
                theme::series(bar.series),
                place(value)
            );
        }
        if let Some((low, high)) = bar.interval {
            let middle = 100 + height / 2;
            let (from, to) = (place(low), place(high));
            let _ = write!(
                drawing,
                "<path class=\"interval\" d=\"M{from} {middle}H{to}M{from} {0}V{1}M{to} {0}V{1}\"/>",
                middle - 130,
                middle + 130
            );
            said.push(format!("95 %: {} to {}", exact(low), exact(high)));
        }
        if let Some(published) = bar.published {
            let _ = write!(
                drawing,
                "<rect class=\"mark\" y=\"680\" width=\"{}\" height=\"220\"/>",
                place(published)
            );
            said.push(format!("published: {}", exact(published)));
        }
        let value = bar.value.map_or("–".to_owned(), ratio);
        let beside = bar.published.map_or(String::new(), |published| {
            let published = ratio(published);
            format!(" <small>published {published}</small>")
        });
        row(&bar.name, &said.join("; "), &drawing, &format!("{value}{beside}"))
    });
    rowed(title, rows.collect())
}

/// A row of parts, one after the other.
pub struct Stack {
    /// The configuration.
    pub name: String,
    /// Name, series and length of each part.
    pub parts: Vec<(&'static str, usize, f64)>,
}

/// Stacked bars from the top down, in a unit.
pub fn stacks(title: &str, stacks: &[Stack], unit: &str) -> String {
    let sum = |stack: &Stack| stack.parts.iter().map(|part| part.2).sum::<f64>();
    let right = stacks.iter().map(sum).fold(0.0, f64::max).max(1e-9);
    let rows = stacks.iter().map(|stack| {
        let mut from = 0.0;
        let mut drawing = String::new();
        let mut said = vec![format!("{}: {} {unit}", stack.name, exact(sum(stack)))];
        for &(name, series, length) in &stack.parts {
            if length <= 0.0 {
                continue;
            }
            let _ = write!(
                drawing,
                "<rect style=\"fill:{}\" x=\"{}\" y=\"140\" width=\"{}\" height=\"720\"/>",
                theme::series(series),
                at(from / right * 1000.0),
                at(length / right * 1000.0)
            );
            said.push(format!("{name}: {} {unit}", exact(length)));
            from += length;
        }
        let value = format!("{} {unit}", short(from));
        row(&stack.name, &said.join("; "), &drawing, &value)
    });
    let rows = rowed(title, rows.collect());
    let names: Vec<&str> = stacks
        .first()
        .map(|first| first.parts.iter().map(|part| part.0).collect())
        .unwrap_or_default();
    let head: Vec<String> = std::iter::once("configuration".to_owned())
        .chain(names.iter().map(|name| format!("{name}, {unit}")))
        .chain([format!("all, {unit}")])
        .collect();
    let cells = stacks.iter().map(|stack| {
        let parts = stack.parts.iter().map(|part| exact(part.2));
        let all = std::iter::once(stack.name.clone()).chain(parts);
        tables::Row::plain(all.chain([exact(sum(stack))]).collect())
    });
    let label = format!("Values of {}", lower(title));
    format!(
        "{rows}<details class=\"values\"><summary>{}</summary>\n{}</details>\n",
        escape(&label),
        tables::table(&label, 1, &head, cells)
    )
}

fn rowed(title: &str, rows: Vec<String>) -> String {
    format!(
        "<div class=\"chart bars\" tabindex=\"0\" role=\"group\" aria-label=\"{}: bars; arrow keys read \
         their values\">\n{}</div>\n",
        escape(title),
        rows.concat()
    )
}

/// A row of bars; `value` is HTML.
fn row(name: &str, said: &str, drawing: &str, value: &str) -> String {
    format!(
        "<div class=\"bar\" data-tip=\"{0}\"><span class=\"name\">{1}</span><span class=\"track\">{2}\
         </span><span class=\"value\">{value}</span></div>\n",
        escape(said),
        escape(name),
        svg(name, said, drawing)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bar = Bar {
            name: "a".to_owned(),
            series: 1,
            value: Some(0.5),
            interval: Some((0.4, 0.6)),
            published: Some(2.0),
        };
        let chart = bars("Time", &[bar]);
        // Of 2, the longest: a half is 250 of 1000, and 1 is 500.
        assert!(chart.contains("y=\"100\" width=\"250\""), "{chart}");
        assert!(chart.contains("M500 0V1000") && chart.contains("width=\"1000\" height=\"220\""));
        assert!(chart.contains("a: 0.5; 95 %: 0.4 to 0.6; published: 2"));
    }

    #[test]
    fn nothing_to_show_is_no_mistake() {
        for chart in [bars("a", &[]), stacks("a", &[], "s")] {
            assert!(chart.contains("class=\"chart bars\"") && !chart.contains("NaN"));
        }
    }
}
