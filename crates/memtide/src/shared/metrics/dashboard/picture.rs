//! `docs/dashboard.svg`: panels where Grafana puts them, with lines, axes and legends.
//!
//! Text is as wide as the reader's font has it, so that places are kept for letters of a wide font. The
//! picture has a dark ground of its own, and needs nothing else than itself.

use super::scale::Scale;
use super::{Answered, Answers};
use crate::shared::markup::escaped;
use std::fmt::Write as _;

const WIDTH: u32 = 1200;
const MARGIN: u32 = 16;
/// Between panels.
const GAP: u32 = 8;
/// A column and a row of the grid.
const COLUMN: u32 = (WIDTH - 2 * MARGIN + GAP) / 24;
const ROW: u32 = 22;
/// Above all panels.
const HEAD: u32 = 60;
/// Of a panel: what is free beside words, the height of its title, of the times, and of a row of its legend.
const INSET: f64 = 12.0;
const TITLE: f64 = 34.0;
const TIMES: f64 = 18.0;
const LEGEND: f64 = 17.0;
/// For the marks at the left.
const AXIS: f64 = 76.0;
const SIZE: f64 = 12.0;
const GROUND: &str = "#15181c";
const PANEL: &str = "#1d2127";
const EDGE: &str = "#2a2f37";
const WORDS: &str = "#d5d9de";
const DIM: &str = "#98a0aa";
const COLORS: [&str; 12] = [
    "#4cc48b", "#dfc24a", "#6aa9ec", "#f0914e", "#f2777a", "#5fd0d8", "#b48ae8", "#e88ac0",
    "#9bbf3f", "#8f9fd8", "#c9a27a", "#b9c2cc",
];
/// Minutes between marks of time.
const EVERY_MIN: i64 = 5;

/// Who does not see it is told `about`.
pub fn svg(answers: &Answers, about: &str, (from_s, to_s): (i64, i64)) -> String {
    let panels = &answers.panels;
    let rows = panels
        .iter()
        .map(|of| of.panel.at[1] + of.panel.at[3])
        .max();
    let height = HEAD + rows.unwrap_or(0) * ROW - GAP + MARGIN;
    let title = escaped(&answers.dashboard.title);
    let about = escaped(about);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, 'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"{SIZE}\" \
         fill=\"{WORDS}\" role=\"img\" aria-labelledby=\"t d\">\n\
         <title id=\"t\">The dashboard {title}</title>\n<desc id=\"d\">{about}</desc>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"{GROUND}\"/>\n"
    );
    svg += &head(answers, &title, (from_s, to_s));
    for of in panels {
        svg += &panel(of, (from_s, to_s));
    }
    svg + "</svg>\n"
}

/// The dashboard's name, its variables, and the time that is shown.
fn head(answers: &Answers, title: &str, (from_s, to_s): (i64, i64)) -> String {
    let line = 36;
    let mut head = format!(
        "<text x=\"{MARGIN}\" y=\"{line}\" font-size=\"20\" font-weight=\"bold\">{title}</text>\n"
    );
    let mut left = f64::from(MARGIN) + wide(title, 20.0) + 32.0;
    for (_, label, asked) in &answers.dashboard.variables {
        // Of those that are asked for, all are shown.
        let value = if asked.is_some() { "All" } else { "Prometheus" };
        let label = escaped(label);
        let _ = writeln!(
            head,
            "<text x=\"{left:.0}\" y=\"{line}\" fill=\"{DIM}\">{label}</text>"
        );
        left += wide(&label, SIZE) + 10.0;
        let box_wide = wide(value, SIZE) + 20.0;
        let _ = writeln!(
            head,
            "<rect x=\"{left:.0}\" y=\"20\" width=\"{box_wide:.0}\" height=\"24\" rx=\"3\" fill=\"{PANEL}\" stroke=\"{EDGE}\"/>\n\
             <text x=\"{:.0}\" y=\"{line}\">{value}</text>",
            left + 10.0
        );
        left += box_wide + 24.0;
    }
    let shown = format!("{} to {} UTC", clock(from_s), clock(to_s));
    let right = WIDTH - MARGIN;
    head + &format!(
        "<text x=\"{right}\" y=\"{line}\" text-anchor=\"end\" fill=\"{DIM}\">{shown}</text>\n"
    )
}

/// The part of a panel in which lines are.
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    times: (i64, i64),
    most: f64,
}

impl Plot {
    fn x(&self, at_s: i64) -> f64 {
        let part = (at_s - self.times.0) as f64 / (self.times.1 - self.times.0) as f64;
        self.left + part * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - value / self.most * (self.bottom - self.top)
    }
}

fn panel(of: &Answered, times: (i64, i64)) -> String {
    let [column, row, columns, rows] = of.panel.at;
    let (x, y) = (MARGIN + column * COLUMN, HEAD + row * ROW);
    let (width, height) = (columns * COLUMN - GAP, rows * ROW - GAP);
    let title = escaped(&of.panel.title);
    let mut svg = format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"{PANEL}\" stroke=\"{EDGE}\"/>\n\
         <text x=\"{}\" y=\"{}\" font-size=\"13\" font-weight=\"bold\">{title}</text>\n",
        x + INSET as u32,
        y + 21
    );
    let (x, y) = (f64::from(x), f64::from(y));
    let (right, bottom) = (x + f64::from(width) - INSET, y + f64::from(height));
    let names: Vec<&str> = of.lines.iter().map(|(name, _)| name.as_str()).collect();
    let legend = places(&names, right - x - INSET);
    let legend_rows = legend.last().map_or(0, |(row, _)| row + 1);
    let legend_top = bottom - 8.0 - legend_rows as f64 * LEGEND;
    let series = series(of);
    let values = series.iter().flatten().map(|(_, _, to)| *to);
    let scale = Scale::new(&of.panel.unit, values.fold(0.0, f64::max));
    let plot = Plot {
        left: x + AXIS,
        right,
        top: y + TITLE,
        bottom: legend_top - TIMES - 4.0,
        times,
        most: scale.top(),
    };
    svg += &axes(&plot, &scale);
    for (n, points) in series.iter().enumerate() {
        svg += &drawn(&plot, points, COLORS[n % COLORS.len()], of.panel.fill);
    }
    for (n, ((row, left), name)) in legend.iter().zip(&names).enumerate() {
        let (left, line) = (x + INSET + left, legend_top + *row as f64 * LEGEND + 12.0);
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.0}\" y=\"{:.0}\" width=\"14\" height=\"3\" fill=\"{}\"/>\
             <text x=\"{:.0}\" y=\"{line:.0}\">{}</text>",
            line - 6.0,
            COLORS[n % COLORS.len()],
            left + 20.0,
            escaped(name)
        );
    }
    svg
}

/// Of each line its points: when, from where and to where it is filled. A stacked line begins where the one
/// before it ends.
fn series(of: &Answered) -> Vec<Vec<(i64, f64, f64)>> {
    let mut below = std::collections::BTreeMap::<i64, f64>::new();
    let lines = of.lines.iter();
    let stack = |(_, line): &(String, super::Line)| {
        let points = line.points.iter();
        let point = |&(at, value): &(i64, f64)| {
            let from = below.get(&at).copied().unwrap_or(0.0);
            if of.panel.stacked {
                below.insert(at, from + value);
                return (at, from, from + value);
            }
            (at, 0.0, value)
        };
        points.map(point).collect()
    };
    lines.map(stack).collect()
}

fn axes(plot: &Plot, scale: &Scale) -> String {
    let mut svg = String::new();
    let (left, right) = (plot.left, plot.right);
    for (value, word) in scale.marks.iter().zip(&scale.words) {
        let y = plot.y(*value);
        let _ = writeln!(
            svg,
            "<path d=\"M{left:.0} {y:.1}H{right:.0}\" stroke=\"{EDGE}\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"11\" fill=\"{DIM}\">{word}</text>",
            left - 8.0,
            y + 4.0
        );
    }
    let every_s = EVERY_MIN * 60;
    let (from, to) = plot.times;
    let first = from.div_euclid(every_s) * every_s;
    let marks = (first..=to).step_by(every_s as usize);
    for at in marks.filter(|at| *at >= from) {
        let anchor = match at {
            _ if at == from => "start",
            _ if at == to => "end",
            _ => "middle",
        };
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"11\" fill=\"{DIM}\">{}</text>",
            plot.x(at),
            plot.bottom + 16.0,
            clock(at)
        );
    }
    svg
}

/// A line, and the area below it.
fn drawn(plot: &Plot, points: &[(i64, f64, f64)], color: &str, fill: u64) -> String {
    let mut svg = String::new();
    // Where points are missing, nothing is drawn.
    let step = points.windows(2).map(|pair| pair[1].0 - pair[0].0).min();
    let step = step.unwrap_or(1);
    for piece in points.chunk_by(|one, next| next.0 - one.0 == step) {
        let upper = path(plot, piece.iter().map(|&(at, _, to)| (at, to)));
        if fill > 0 {
            let lower = path(plot, piece.iter().rev().map(|&(at, from, _)| (at, from)));
            let opacity = fill as f64 / 100.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{upper}L{lower}Z\" fill=\"{color}\" fill-opacity=\"{opacity}\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{upper}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\" stroke-linejoin=\"round\"/>"
        );
    }
    svg
}

/// Points as a path has them, without those that lie between two of the same height.
fn path(plot: &Plot, points: impl Iterator<Item = (i64, f64)>) -> String {
    let places: Vec<(String, String)> = points
        .map(|(at, value)| {
            (
                format!("{:.1}", plot.x(at)),
                format!("{:.1}", plot.y(value)),
            )
        })
        .collect();
    let turns = |n: &usize| {
        let same = |other: Option<&(String, String)>| other.is_some_and(|of| of.1 == places[*n].1);
        let before = n.checked_sub(1).and_then(|before| places.get(before));
        !(same(before) && same(places.get(n + 1)))
    };
    let kept = (0..places.len()).filter(turns);
    let kept: Vec<String> = kept
        .map(|n| format!("{} {}", places[n].0, places[n].1))
        .collect();
    kept.join("L")
}

/// Row and place from the left of each entry of a legend.
fn places(names: &[&str], width: f64) -> Vec<(usize, f64)> {
    let (mut row, mut left) = (0, 0.0);
    let mut place = |name: &&str| {
        let wide = 20.0 + wide(name, SIZE) + 14.0;
        if left > 0.0 && left + wide > width {
            (row, left) = (row + 1, 0.0);
        }
        let at = (row, left);
        left += wide;
        at
    };
    names.iter().map(&mut place).collect()
}

/// How wide words are at most, in most fonts.
fn wide(words: &str, size: f64) -> f64 {
    let letter = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ' ' | '\'' => 0.35,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.98,
        c if c.is_uppercase() => 0.75,
        _ => 0.62,
    };
    words.chars().map(letter).sum::<f64>() * size
}

/// Hours and minutes in UTC.
fn clock(at_s: i64) -> String {
    let minutes = at_s.div_euclid(60);
    format!(
        "{:02}:{:02}",
        minutes.div_euclid(60).rem_euclid(24),
        minutes.rem_euclid(60)
    )
}

#[test]
fn a_legend_goes_on_in_the_next_row() {
    // Six letters are 44.6 wide, with their line and a blank 78.6.
    let rows = |width| {
        places(&["abcdef"; 3], width)
            .iter()
            .map(|at| at.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(rows(240.0), [0, 0, 0]);
    assert_eq!(rows(235.0), [0, 0, 1]);
    assert_eq!(rows(10.0), [0, 1, 2]);
}

#[test]
fn what_is_missing_is_not_drawn() {
    let plot = Plot {
        left: 0.0,
        right: 100.0,
        top: 0.0,
        bottom: 10.0,
        times: (0, 100),
        most: 10.0,
    };
    let points = [
        (0, 0.0, 1.0),
        (10, 0.0, 1.0),
        (20, 0.0, 1.0),
        (40, 0.0, 2.0),
        (50, 0.0, 3.0),
    ];
    let svg = drawn(&plot, &points, "red", 0);
    let paths: Vec<&str> = svg
        .lines()
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert_eq!(paths, ["M0.0 9.0L20.0 9.0", "M40.0 8.0L50.0 7.0"]);
}

#[test]
fn times_are_of_a_day() {
    assert_eq!(clock(1_767_268_800), "12:00");
    assert_eq!(clock(1_767_268_800 + 12 * 3600 + 65), "00:01");
}
