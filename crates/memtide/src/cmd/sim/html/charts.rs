//! The charts: lines over time, bars, stacked bars, a heat map; each an SVG of its own.
//!
//! All are drawn on a canvas of twice the size at which they are shown, since the library places
//! things on whole pixels. Axes say their unit; which colour means what stands in the page beside
//! the chart.

use super::theme::{HEAT, Role, finish};
use anyhow::anyhow;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Pixels of a line chart: width and height.
const SIZE: (u32, u32) = (1480, 560);
/// Pixels of text, as the library counts them.
const TEXT: i32 = 30;
/// Pixels of a row of bars.
const ROW: u32 = 76;
/// Pixels for the names beside bars.
const NAMES: u32 = 400;

/// A line of a chart.
pub struct Line {
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
    /// As they are, large ones as `1.5 M`; from 0.
    Amount,
    /// Shares of 1, as per cent; from 0 to 100 %.
    Share,
}

/// Lines over simulated time.
pub fn lines(lines: &[Line], y_name: &str, scale: Scale) -> anyhow::Result<String> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let right = points().map(|point| point.0).fold(0.0, f64::max).max(1e-9);
    let top = match scale {
        Scale::Share => 1.0,
        Scale::Amount => points().map(|point| point.1).fold(0.0, f64::max).max(1e-9) * 1.06,
    };
    draw(SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(40)
            .x_label_area_size(84)
            .y_label_area_size(150)
            .build_cartesian_2d(0.0..right, 0.0..top)?;
        let label = |value: &f64| match scale {
            Scale::Share => format!("{:.0} %", value * 100.0),
            Scale::Amount => short(*value),
        };
        mesh(&mut chart, y_name, &label)?;
        for line in lines {
            let style = Role::Series(line.series).colour().stroke_width(4);
            let points = line.points.iter().copied();
            match line.dashed {
                true => chart.draw_series(DashedLineSeries::new(points, 14, 10, style))?,
                false => chart.draw_series(LineSeries::new(points, style))?,
            };
        }
        Ok(())
    })
}

/// Lines and points over an amount, both axes logarithmic; values must be above 0.
pub fn growth(lines: &[Line], x_name: &str, y_name: &str) -> anyhow::Result<String> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let least = points().map(of).fold(f64::INFINITY, f64::min);
        let most = points().map(of).fold(0.0, f64::max);
        match least.is_finite() {
            true => (least / 1.5).max(1e-6)..(most * 1.5).max(1e-5),
            false => 0.1..10.0,
        }
    };
    let (across, up) = (ends(|point| point.0), ends(|point| point.1));
    draw(SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(40)
            .x_label_area_size(84)
            .y_label_area_size(150)
            .build_cartesian_2d(across.log_scale(), up.log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(Role::Grid.colour().stroke_width(2))
            .axis_style(Role::Axis.colour().stroke_width(2))
            .label_style(text(TEXT))
            .axis_desc_style(text(TEXT))
            .x_desc(x_name)
            .y_desc(y_name)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .draw()?;
        for line in lines {
            let colour = Role::Series(line.series).colour();
            let points = line.points.iter().copied();
            match line.dashed {
                true => chart.draw_series(DashedLineSeries::new(
                    points.clone(),
                    14,
                    10,
                    colour.stroke_width(4),
                ))?,
                false => {
                    chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(4)))?
                }
            };
            chart.draw_series(points.map(|point| Circle::new(point, 7, colour.filled())))?;
        }
        Ok(())
    })
}

/// A bar with what was published beside it.
pub struct Bar {
    /// The configuration.
    pub name: String,
    /// Which colour.
    pub series: usize,
    /// How long it is.
    pub value: f64,
    /// What the document says, if it says anything.
    pub published: Option<f64>,
}

/// Bars from the top down, a thin one of what was published below each.
pub fn bars(bars: &[Bar], x_name: &str) -> anyhow::Result<String> {
    let values = || bars.iter().flat_map(|bar| [Some(bar.value), bar.published]);
    let right = values().flatten().fold(0.0, f64::max).max(1e-9) * 1.12;
    rows(bars.len(), right, x_name, |chart, row| {
        let bar = &bars[row];
        let top = row as f64;
        let (thick, end) = match bar.published {
            Some(_) => (0.54, 0.56),
            None => (0.68, 0.84),
        };
        let start = end - thick + if bar.published.is_some() { 0.12 } else { 0.0 };
        let ours = Rectangle::new(
            [(0.0, top + start), (bar.value, top + end)],
            Role::Series(bar.series).colour().filled(),
        );
        chart.draw_series(std::iter::once(ours))?;
        value_at(chart, bar.value, top + (start + end) / 2.0, TEXT - 2)?;
        if let Some(published) = bar.published {
            let theirs = Rectangle::new(
                [(0.0, top + 0.62), (published, top + 0.86)],
                Role::Mark.colour().filled(),
            );
            chart.draw_series(std::iter::once(theirs))?;
            value_at(chart, published, top + 0.74, TEXT - 4)?;
        }
        Ok(bar.name.clone())
    })
}

/// A row of parts, one after the other.
pub struct Stack {
    /// The configuration.
    pub name: String,
    /// Series and length of each part.
    pub parts: Vec<(usize, f64)>,
}

/// Stacked bars from the top down.
pub fn stacks(stacks: &[Stack], x_name: &str) -> anyhow::Result<String> {
    let sum = |stack: &Stack| stack.parts.iter().map(|part| part.1).sum::<f64>();
    let right = stacks.iter().map(sum).fold(0.0, f64::max).max(1e-9) * 1.12;
    rows(stacks.len(), right, x_name, |chart, row| {
        let top = row as f64;
        let mut at = 0.0;
        for &(series, length) in &stacks[row].parts {
            let part = Rectangle::new(
                [(at, top + 0.18), (at + length, top + 0.82)],
                Role::Series(series).colour().filled(),
            );
            chart.draw_series(std::iter::once(part))?;
            at += length;
        }
        value_at(chart, at, top + 0.5, TEXT - 2)?;
        Ok(stacks[row].name.clone())
    })
}

/// Accesses by group of pages (up) and time (to the right): `heat[group][time]`. The scale is
/// logarithmic; equal neighbours are drawn as one.
pub fn heat(seconds: &[f64], heat: &[Vec<u32>]) -> anyhow::Result<String> {
    let most = heat.iter().flatten().copied().max().unwrap_or(0).max(1);
    let columns = seconds.len().min(160);
    let right = seconds.last().copied().unwrap_or(0.0).max(1e-9);
    draw((SIZE.0, 520), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(40)
            .x_label_area_size(84)
            .y_label_area_size(150)
            .build_cartesian_2d(0.0..right, 0.0..1.0)?;
        let height = 1.0 / heat.len().max(1) as f64;
        let label = |share: &f64| format!("{:.0} %", share * 100.0);
        mesh(&mut chart, "of its pages, by address", &label)?;
        for (group, counts) in heat.iter().enumerate() {
            let bottom = group as f64 * height;
            for (from, to, level) in runs(counts, columns, most) {
                let x = |column: usize| edge(seconds, columns, column);
                let cell = Rectangle::new(
                    [(x(from), bottom + height), (x(to), bottom)],
                    Role::Heat(level).colour().filled(),
                );
                chart.draw_series(std::iter::once(cell))?;
            }
        }
        Ok(())
    })
}

/// The time at which a column of the heat map begins.
fn edge(seconds: &[f64], columns: usize, column: usize) -> f64 {
    match (column * seconds.len()).checked_div(columns) {
        None | Some(0) => 0.0,
        Some(samples) => seconds[samples - 1],
    }
}

/// Neighbouring columns of one level: first, one past the last, level. Columns without an access are
/// left out.
fn runs(counts: &[u32], columns: usize, most: u32) -> Vec<(usize, usize, usize)> {
    let level = |column: usize| {
        let (from, to) = (
            column * counts.len() / columns,
            (column + 1) * counts.len() / columns,
        );
        let highest = counts[from..to].iter().copied().max().unwrap_or(0);
        (highest > 0).then(|| {
            let share = f64::from(highest).ln_1p() / f64::from(most).ln_1p();
            ((share * HEAT as f64) as usize).min(HEAT - 1)
        })
    };
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for column in 0..columns {
        let Some(level) = level(column) else { continue };
        match runs.last_mut() {
            Some(run) if run.1 == column && run.2 == level => run.1 += 1,
            _ => runs.push((column, column + 1, level)),
        }
    }
    runs
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Plane<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// A canvas, drawn on and finished.
fn draw(size: (u32, u32), on: impl FnOnce(&Area<'_>) -> Drawn<'static>) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        on(&area)
            .and_then(|()| area.present())
            .map_err(|error| anyhow!("cannot draw a chart: {error}"))?;
    }
    Ok(finish(&svg))
}

fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&Role::Text.colour())
}

/// Axes with a grid behind; x is time.
fn mesh(
    chart: &mut Plane<'_, '_>,
    y_name: &str,
    y_label: &dyn Fn(&f64) -> String,
) -> Drawn<'static> {
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(Role::Grid.colour().stroke_width(2))
        .axis_style(Role::Axis.colour().stroke_width(2))
        .label_style(text(TEXT))
        .axis_desc_style(text(TEXT))
        .x_desc("simulated time in seconds")
        .y_desc(y_name)
        .x_labels(9)
        .y_labels(6)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(y_label)
        .draw()
}

/// A chart of rows from the top down; `row` draws one and says its name.
fn rows(
    count: usize,
    right: f64,
    x_name: &str,
    mut row: impl FnMut(
        &mut Plane<'_, '_>,
        usize,
    ) -> Result<String, DrawingAreaErrorKind<std::io::Error>>,
) -> anyhow::Result<String> {
    let height = count as u32 * ROW + 110;
    draw((SIZE.0, height), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(60)
            .x_label_area_size(84)
            .y_label_area_size(NAMES)
            .build_cartesian_2d(0.0..right, count as f64..0.0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(Role::Grid.colour().stroke_width(2))
            .axis_style(Role::Axis.colour().stroke_width(2))
            .label_style(text(TEXT))
            .axis_desc_style(text(TEXT))
            .disable_y_mesh()
            .y_labels(0)
            .x_desc(x_name)
            .x_labels(8)
            .x_label_formatter(&|value| short(*value))
            .draw()?;
        for n in 0..count {
            let name = row(&mut chart, n)?;
            let (x, y) = chart.backend_coord(&(0.0, n as f64 + 0.5));
            let style = text(TEXT).pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(name, (x - 16, y), style))?;
        }
        Ok(())
    })
}

/// A figure to the right of a bar's end.
fn value_at(chart: &mut Plane<'_, '_>, x: f64, y: f64, size: i32) -> Drawn<'static> {
    let style = text(size).pos(Pos::new(HPos::Left, VPos::Center));
    let beside = EmptyElement::at((x, y)) + Text::new(short(x), (10, 0), style);
    chart.draw_series(std::iter::once(beside)).map(drop)
}

/// A figure with three digits that count and a suffix: `1.25 M`.
pub fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, " G"),
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{scaled:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (63.04, "63"),
            (1234.0, "1234"),
            (20_000.0, "20 k"),
            (6_561_136.0, "6.56 M"),
            (2e9, "2 G"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn equal_neighbours_are_one_rectangle() {
        // ln(1+1)/ln(1+15) is 1/4 of 16 levels; nothing is drawn where nothing was accessed.
        assert_eq!(
            runs(&[0, 1, 1, 15, 0, 1], 6, 15),
            [(1, 3, 4), (3, 4, 15), (5, 6, 4)]
        );
        // Two samples a column: the higher one counts.
        assert_eq!(runs(&[0, 1, 1, 15], 2, 15), [(0, 1, 4), (1, 2, 15)]);
        assert_eq!(edge(&[1.0, 2.0, 3.0, 4.0], 2, 1), 2.0);
        assert_eq!(runs(&[], 0, 1), []);
    }

    #[test]
    fn charts_without_data_are_charts() {
        for svg in [
            lines(&[], "pages", Scale::Amount).unwrap(),
            growth(&[], "memory", "seconds").unwrap(),
            bars(&[], "s").unwrap(),
            stacks(&[], "s").unwrap(),
            heat(&[], &[]).unwrap(),
        ] {
            assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        }
    }
}
