//! Charts of lines: over time, and over an amount.
//!
//! A chart must be readable on a telephone and on a wall. Text in a drawing shrinks with the drawing, so
//! only what has no text is a drawing: an SVG of 1000 by 1000 that is stretched to its box, with lines
//! whose width does not stretch. Axes' figures and names stand around it as text of the page.
//!
//! The values of a chart of lines stand in a table below it, in a fold. That table serves those who do
//! not see the chart or want to copy it, and the page's script (`page.js`) reads from it what it shows at
//! the pointer: so both say the same.

use super::figures::{exact, powers, short, ticks};
use super::{escape, legend, tables, theme};
use std::fmt::Write as _;

/// A line of a chart.
pub struct Line {
    /// What it is of.
    pub name: String,
    /// Which colour.
    pub series: usize,
    /// Drawn in dashes: a bound, not a kernel.
    pub dashed: bool,
    /// Points, x ascending.
    pub points: Vec<(f64, f64)>,
}

/// How the values of the y axis are written.
#[derive(Clone, Copy)]
pub enum Scale {
    /// As they are, in this unit; from 0.
    Amount(&'static str),
    /// Shares of 1, as per cent; from 0 to 100 %.
    Share,
}

impl Scale {
    fn unit(self) -> &'static str {
        match self {
            Scale::Amount(unit) => unit,
            Scale::Share => "%",
        }
    }

    /// A value without its unit.
    fn exact(self, value: f64) -> String {
        match self {
            Scale::Amount(_) => exact(value),
            Scale::Share => exact(value * 100.0),
        }
    }

    fn short(self, value: f64) -> String {
        match self {
            Scale::Amount(_) => short(value),
            Scale::Share => format!("{:.0} %", value * 100.0),
        }
    }
}

/// An axis: its name, its values' place from 0 to 1000, and its marks.
struct Axis<'a> {
    name: &'a str,
    place: &'a dyn Fn(f64) -> f64,
    marks: Vec<f64>,
}

/// Lines over simulated time.
pub fn lines(title: &str, lines: &[Line], y_name: &str, scale: Scale) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let right = points().map(|point| point.0).fold(0.0, f64::max).max(1e-9);
    let top = match scale {
        Scale::Share => 1.0,
        Scale::Amount(_) => points().map(|point| point.1).fold(0.0, f64::max).max(1e-9) * 1.04,
    };
    let x = Axis {
        name: "simulated time in seconds",
        place: &|value| value / right * 1000.0,
        marks: ticks(right, 5),
    };
    let y = Axis {
        name: y_name,
        place: &|value| value / top * 1000.0,
        marks: ticks(top, 4),
    };
    plane(title, lines, &x, &y, scale, false)
}

/// Lines and points over an amount, both axes logarithmic; values must be above 0.
pub fn growth(title: &str, lines: &[Line], x_name: &str, y_name: &str) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let least = points().map(of).fold(f64::INFINITY, f64::min);
        let most = points().map(of).fold(0.0, f64::max);
        match least.is_finite() {
            true => ((least / 1.5).max(1e-6), (most * 1.5).max(1e-5)),
            false => (0.1, 10.0),
        }
    };
    let place = |(from, to): (f64, f64)| {
        move |value: f64| (value.max(1e-12) / from).ln() / (to / from).ln() * 1000.0
    };
    let (across, up) = (ends(|point| point.0), ends(|point| point.1));
    let x = Axis {
        name: x_name,
        place: &place(across),
        marks: powers(across.0, across.1),
    };
    let y = Axis {
        name: y_name,
        place: &place(up),
        marks: powers(up.0, up.1),
    };
    plane(title, lines, &x, &y, Scale::Amount("s"), true)
}

/// A place on a drawing: a decimal is a tenth of a pixel at most.
pub(super) fn at(place: f64) -> String {
    let text = format!("{:.1}", place.clamp(-10.0, 1010.0));
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn plane(
    title: &str,
    lines: &[Line],
    x: &Axis<'_>,
    y: &Axis<'_>,
    scale: Scale,
    dots: bool,
) -> String {
    let mut drawing = String::new();
    for &mark in &x.marks {
        let _ = write!(drawing, "M{} 0V1000", at((x.place)(mark)));
    }
    for &mark in &y.marks {
        let _ = write!(drawing, "M0 {}H1000", at(1000.0 - (y.place)(mark)));
    }
    let mut drawing = format!("<path class=\"grid\" d=\"{drawing}\"/>\n");
    for line in lines {
        let mut points = String::new();
        for &(along, up) in &line.points {
            let _ = write!(
                points,
                "{},{} ",
                at((x.place)(along)),
                at(1000.0 - (y.place)(up))
            );
        }
        let points = points.trim_end();
        let class = match (line.dashed, line.series >= theme::SERIES) {
            (true, _) => "line dashed",
            (false, true) => "line dotted",
            (false, false) => "line",
        };
        let colour = theme::series(line.series);
        let _ = writeln!(
            drawing,
            "<polyline class=\"{class}\" style=\"stroke:{colour}\" points=\"{points}\"/>"
        );
        if dots {
            // A line of no length with round ends is a dot that does not stretch.
            for point in points.split(' ').filter(|point| !point.is_empty()) {
                let _ = writeln!(
                    drawing,
                    "<path class=\"dot\" style=\"stroke:{colour}\" d=\"M{point}h0.01\"/>"
                );
            }
        }
    }
    let ends = lines.iter().filter_map(|line| {
        let last = line.points.last()?;
        let (value, unit) = (scale.exact(last.1), scale.unit());
        Some(format!("{} ends at {value} {unit}", line.name))
    });
    let about = format!(
        "Lines of {} over {}. {}.",
        y.name,
        x.name,
        ends.collect::<Vec<_>>().join("; ")
    );
    let names = lines
        .iter()
        .map(|line| (line.series, line.dashed, line.name.as_str()));
    format!(
        "{}<div class=\"chart lines\" tabindex=\"0\" role=\"group\" data-unit=\"{}\" aria-label=\"{}: a chart; \
         arrow keys read its values\">\n<p class=\"y-name\">{}</p>\n<div class=\"plot\"><div class=\"ys\" \
         aria-hidden=\"true\">{}</div><div class=\"area\">{}</div></div>\n<div class=\"xs\" \
         aria-hidden=\"true\">{}</div>\n<p class=\"x-name\">{}</p>\n</div>\n{}",
        legend(names),
        escape(scale.unit()),
        escape(title),
        escape(y.name),
        marks(&y.marks, y.place, "bottom", &|value| scale.short(value)),
        svg(title, &about, &drawing),
        marks(&x.marks, x.place, "left", &short),
        escape(x.name),
        values(title, lines, x, scale)
    )
}

/// The figures beside an axis, from its `side` on; places are from 0 to 1000.
pub(super) fn marks(
    marks: &[f64],
    place: &dyn Fn(f64) -> f64,
    side: &str,
    text: &dyn Fn(f64) -> String,
) -> String {
    let all = marks.iter().map(|&mark| {
        let place = place(mark) / 10.0;
        // The last one would stand over the edge.
        let last = match side == "left" && place > 94.0 {
            true => " class=\"last\"",
            false => "",
        };
        let figure = text(mark);
        format!("<span{last} style=\"{side}:{place:.2}%\">{figure}</span>")
    });
    all.collect()
}

/// A drawing that fills its box, with what it says to those who do not see it.
pub(super) fn svg(title: &str, about: &str, drawing: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\"><title>{}</title>\
         <desc>{}</desc>\n{drawing}</svg>",
        escape(title),
        escape(about)
    )
}

/// The table of values, in a fold: a row for each x that a line has a point at.
fn values(title: &str, lines: &[Line], x: &Axis<'_>, scale: Scale) -> String {
    let mut points: Vec<(f64, usize, f64)> = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        points.extend(line.points.iter().map(|&(along, up)| (along, n, up)));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut html = format!(
        "<table>\n<thead><tr><th scope=\"col\">{}</th>",
        escape(x.name)
    );
    for line in lines {
        let _ = write!(html, "<th scope=\"col\">{}</th>", escape(&line.name));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    let mut rest = points.as_slice();
    while let Some(&(along, ..)) = rest.first() {
        let name = exact(along);
        let same = |point: &&(f64, usize, f64)| exact(point.0) == name;
        let count = rest.iter().take_while(same).count();
        let (row, others) = rest.split_at(count);
        rest = others;
        let _ = write!(html, "<tr data-x={}><td>{name}", at((x.place)(along)));
        for n in 0..lines.len() {
            let of = row.iter().rfind(|point| point.1 == n);
            let cell = of.map_or(String::new(), |point| scale.exact(point.2));
            let _ = write!(html, "<td>{cell}");
        }
        html.push('\n');
    }
    html.push_str("</tbody></table>");
    fold(title, scale.unit(), &html)
}

/// A table in a fold below its chart.
fn fold(title: &str, unit: &str, table: &str) -> String {
    let label = format!("Values of {}, in {unit}", lower(title));
    format!(
        "<details class=\"values\"><summary>{}</summary>\n{}</details>\n",
        escape(&label),
        tables::wide(&label, table)
    )
}

pub(super) fn lower(title: &str) -> String {
    let mut letters = title.chars();
    let first = letters.next().map(|first| first.to_lowercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: Vec<(f64, f64)>) -> Line {
        Line {
            name: "<a>".to_owned(),
            series: 0,
            dashed: false,
            points,
        }
    }

    #[test]
    fn a_line_is_where_its_values_are() {
        let chart = lines(
            "Pages",
            &[line(vec![(1.0, 20.0), (4.0, 40.0)])],
            "pages",
            Scale::Amount("pages"),
        );
        // The axes go to 4 s and to 41.6 pages: 20 are 480.8 of 1000 up, and 40 are 961.5.
        assert!(chart.contains("points=\"250,519.2 1000,38.5\""), "{chart}");
        assert!(chart.contains("<tr data-x=250><td>1<td>20\n"), "{chart}");
        assert!(chart.contains("&lt;a&gt; ends at 40 pages") && !chart.contains("<a>"));
    }

    #[test]
    fn lines_of_other_moments_have_rows_of_their_own() {
        let chart = lines(
            "Work",
            &[
                line(vec![(1.0, 0.5), (2.0, 1.0)]),
                line(vec![(2.0, 0.25), (4.0, 1.0)]),
            ],
            "work",
            Scale::Share,
        );
        for row in [
            "<td>1<td>50<td>\n",
            "<td>2<td>100<td>25\n",
            "<td>4<td><td>100\n",
        ] {
            assert!(chart.contains(row), "{row}: {chart}");
        }
    }

    #[test]
    fn charts_without_data_are_charts() {
        for chart in [
            lines("a", &[], "pages", Scale::Amount("pages")),
            growth("a", &[], "memory", "seconds"),
        ] {
            assert!(chart.contains("class=\"chart ") && !chart.contains("NaN"));
        }
    }
}
