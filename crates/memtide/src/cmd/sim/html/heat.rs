//! The heat map: which pages were hot when.
//!
//! The pages of the workload stand from the bottom up in the order of their addresses, each group of the
//! series as high as its share of the pages, and regions are named beside it. A colour is a rate:
//! accesses to a page in a second, so that a group of few pages and one of many compare, and an interval
//! that is short with one that is long. The scale is logarithmic: [`DECADES`] powers of ten below the
//! hottest cell; what is colder has the first colour, what was not accessed none.

use super::charts::{at, marks, svg};
use super::figures::{exact, short, ticks};
use super::{escape, theme};
use crate::cmd::sim::words::{bytes, grouped};
use memtide_sim::result::{HeatPart, Series};
use std::fmt::Write as _;

/// Powers of ten that the colours tell apart.
const DECADES: f64 = 3.0;
/// Most columns; neighbours become one where there are more.
const COLUMNS: usize = 160;
/// How far apart the names of regions stand at least, in thousandths of the map's height.
const APART: f64 = 150.0;
/// Base pages' size.
const PAGE: u64 = 4096;

/// A group: its edges in thousandths from the bottom, its pages, and its regions.
struct Group {
    from: f64,
    to: f64,
    pages: u64,
    name: String,
}

/// A region: its name, its edges, its pages.
#[derive(Debug, PartialEq)]
struct Region {
    name: String,
    from: f64,
    to: f64,
    pages: u64,
}

/// Columns: where each begins and ends in seconds, and which samples it holds.
struct Column {
    from_s: f64,
    to_s: f64,
    samples: std::ops::Range<usize>,
}

fn columns(seconds: &[f64]) -> Vec<Column> {
    let count = seconds.len().min(COLUMNS);
    let before = |sample: usize| {
        if sample == 0 {
            0.0
        } else {
            seconds[sample - 1]
        }
    };
    let column = |n: usize| {
        let samples = n * seconds.len() / count..(n + 1) * seconds.len() / count;
        Column {
            from_s: before(samples.start),
            to_s: before(samples.end),
            samples,
        }
    };
    (0..count).map(column).collect()
}

fn groups(series: &Series) -> Vec<Group> {
    let parts = &series.heat_parts;
    let all: u64 = parts.iter().map(|part| part.pages).sum();
    let mut before = 0;
    let group = |n: usize| {
        let of = || parts.iter().filter(move |part| part.group == n);
        let pages: u64 = of().map(|part| part.pages).sum();
        let mut names: Vec<&str> = of().map(|part| part.region.as_str()).collect();
        names.dedup();
        let place = |pages: u64| pages as f64 / all.max(1) as f64 * 1000.0;
        let from = place(before);
        before += pages;
        Group {
            from,
            to: place(before),
            pages,
            name: names.join(", "),
        }
    };
    (0..series.heat.len()).map(group).collect()
}

fn regions(parts: &[HeatPart]) -> Vec<Region> {
    let all: u64 = parts.iter().map(|part| part.pages).sum();
    let mut regions: Vec<Region> = Vec::new();
    let mut before = 0;
    for part in parts {
        let place = |pages: u64| pages as f64 / all.max(1) as f64 * 1000.0;
        let (from, to) = (place(before), place(before + part.pages));
        before += part.pages;
        match regions.last_mut() {
            Some(last) if last.name == part.region => {
                last.to = to;
                last.pages += part.pages;
            }
            _ => regions.push(Region {
                name: part.region.clone(),
                from,
                to,
                pages: part.pages,
            }),
        }
    }
    regions
}

/// The step of the scale of a rate; `None` where nothing was accessed.
fn step(rate: f64, most: f64) -> Option<usize> {
    let share = 1.0 + (rate / most).log10() / DECADES;
    (rate > 0.0).then(|| ((share.max(0.0) * theme::HEAT as f64) as usize).min(theme::HEAT - 1))
}

/// What a map is drawn from.
struct Map<'a> {
    series: &'a Series,
    columns: Vec<Column>,
    groups: Vec<Group>,
    /// When the last column ends.
    right_s: f64,
    /// What a simulated access stands for.
    scale: u32,
}

impl Map<'_> {
    /// Simulated accesses in a cell.
    fn accesses(&self, group: usize, column: &Column) -> u64 {
        let all = &self.series.heat[group][column.samples.clone()];
        all.iter().map(|&count| u64::from(count)).sum()
    }

    /// Accesses to a page in a second.
    fn rate(&self, group: usize, column: &Column) -> f64 {
        let pages_s = self.groups[group].pages as f64 * (column.to_s - column.from_s);
        match pages_s > 0.0 {
            true => self.accesses(group, column) as f64 * f64::from(self.scale) / pages_s,
            false => 0.0,
        }
    }

    fn highest_rate(&self) -> f64 {
        let of = |n| self.columns.iter().map(move |column| self.rate(n, column));
        (0..self.groups.len()).flat_map(of).fold(0.0, f64::max)
    }

    fn x(&self, seconds: f64) -> f64 {
        seconds / self.right_s * 1000.0
    }

    /// A path for each step of the scale; equal neighbours are one rectangle.
    fn cells(&self, most: f64) -> String {
        let mut paths = vec![String::new(); theme::HEAT];
        for (n, group) in self.groups.iter().enumerate() {
            let (top, bottom) = (at(1000.0 - group.to), at(1000.0 - group.from));
            let step_of = |column: &Column| step(self.rate(n, column), most);
            for equal in self.columns.chunk_by(|a, b| step_of(a) == step_of(b)) {
                let Some(step) = step_of(&equal[0]) else {
                    continue;
                };
                let to_s = equal[equal.len() - 1].to_s;
                let (from, to) = (at(self.x(equal[0].from_s)), at(self.x(to_s)));
                let _ = write!(paths[step], "M{from} {top}H{to}V{bottom}H{from}z");
            }
        }
        let mut drawing = String::new();
        for (step, path) in paths
            .iter()
            .enumerate()
            .filter(|(_, path)| !path.is_empty())
        {
            let colour = theme::heat(step);
            let _ = writeln!(
                drawing,
                "<path class=\"cells\" style=\"fill:{colour}\" d=\"{path}\"/>"
            );
        }
        drawing
    }

    /// What the script shows at the pointer, as attributes: edges, times, names and counts.
    fn data(&self) -> String {
        let tops = self.groups.iter().map(|group| at(group.to));
        let times = self.columns.iter().map(|column| exact(column.to_s));
        let names = self.groups.iter().map(|group| {
            let name = format!("{}, {} pages", group.name, grouped(group.pages));
            name.replace('\n', " ")
        });
        let cells = (0..self.groups.len()).map(|n| {
            let row = self
                .columns
                .iter()
                .map(|column| self.accesses(n, column).to_string());
            row.collect::<Vec<_>>().join(",")
        });
        format!(
            "data-scale=\"{}\" data-tops=\"{}\" data-times=\"{}\" data-groups=\"{}\" data-cells=\"{}\"",
            self.scale,
            tops.collect::<Vec<_>>().join(","),
            times.collect::<Vec<_>>().join(";"),
            escape(&names.collect::<Vec<_>>().join("\n")),
            cells.collect::<Vec<_>>().join(";")
        )
    }
}

/// The map; `None` where there is nothing to draw. `scale` is what a simulated access stands for.
pub fn map(title: &str, series: &Series, scale: u32) -> Option<String> {
    let columns = columns(&series.seconds);
    let right_s = columns.last()?.to_s;
    if series.heat_parts.is_empty() || right_s <= 0.0 {
        return None;
    }
    let map = Map {
        series,
        columns,
        groups: groups(series),
        right_s,
        scale,
    };
    let most = map.highest_rate();
    let mut drawing = map.cells(most);
    let regions = regions(&series.heat_parts);
    for region in regions.iter().skip(1) {
        let edge = at(1000.0 - region.from);
        let _ = writeln!(drawing, "<path class=\"edge\" d=\"M0 {edge}H1000\"/>");
    }
    let said = regions.iter().map(said).collect::<Vec<_>>().join("; ");
    let about = format!("Accesses by page and time. Regions from the bottom up: {said}.");
    Some(format!(
        "{}<p class=\"soft\">Regions from the bottom up: {}.</p>\n\
         <div class=\"chart heat\" tabindex=\"0\" role=\"group\" aria-label=\"{}: a heat map; arrow \
         keys read its values\" {}>\n<div class=\"plot\"><div class=\"ys regions\" aria-hidden=\"true\">{}\
         </div><div class=\"area\">{}</div></div>\n<div class=\"xs\" aria-hidden=\"true\">{}</div>\n\
         <p class=\"x-name\">simulated time in seconds</p>\n</div>\n",
        scale_of(most),
        escape(&said),
        escape(title),
        map.data(),
        names(&regions),
        svg(title, &about, &drawing),
        marks(&ticks(right_s, 5), &|mark| map.x(mark), "left", &short),
    ))
}

fn said(region: &Region) -> String {
    format!(
        "{} ({})",
        region.name,
        bytes(region.pages.saturating_mul(PAGE))
    )
}

/// Names of regions at their middle, and apart from each other. Those without room are left out; the line
/// above the map has them all.
fn names(regions: &[Region]) -> String {
    let mut html = String::new();
    let mut next = 0.0;
    for region in regions {
        let middle = f64::max((region.from + region.to) / 2.0, next + APART / 2.0);
        if middle + APART / 2.0 > 1000.0 + APART / 4.0 {
            continue;
        }
        next = middle + APART / 2.0;
        let _ = write!(
            html,
            "<span style=\"bottom:{:.2}%\">{}</span>",
            middle / 10.0,
            escape(&region.name)
        );
    }
    html
}

/// The colours from few to many.
fn scale_of(most: f64) -> String {
    let colours: Vec<String> = (0..theme::HEAT).map(theme::heat).collect();
    format!(
        "<p class=\"soft\">{} or fewer <span class=\"scale\" style=\"background:linear-gradient(90deg,{})\">\
         </span> {} accesses to a page in a second; the scale is logarithmic, and what was not accessed has \
         no colour</p>\n",
        short(most / 10f64.powf(DECADES)),
        colours.join(","),
        short(most)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(group: usize, region: &str, pages: u64) -> HeatPart {
        HeatPart {
            group,
            region: region.to_owned(),
            pages,
        }
    }

    #[test]
    fn groups_are_as_high_as_their_pages() {
        let series = Series {
            seconds: vec![1.0, 3.0],
            heat: vec![vec![30, 0], vec![10, 20]],
            heat_parts: vec![part(0, "a", 3), part(1, "<b>", 1)],
            ..Series::default()
        };
        // Rates: 30 / (3 pages * 1 s) = 10; 10 / 1 = 10; 20 / (1 * 2 s) = 10. All are the hottest colour.
        let map = map("Heat", &series, 1).unwrap();
        assert!(
            map.contains("d=\"M0 250H333.3V1000H0zM0 0H1000V250H0z\""),
            "{map}"
        );
        assert!(
            map.contains("data-cells=\"30,0;10,20\" ")
                || map.contains("data-cells=\"30,0;10,20\">")
        );
        assert!(map.contains("a (12 KiB); &lt;b&gt; (4 KiB)") && !map.contains("<b>"));
        let regions = regions(&series.heat_parts);
        assert_eq!((regions[1].from, regions[1].to), (750.0, 1000.0));
    }

    #[test]
    fn a_region_over_several_groups_is_named_once() {
        let parts = [part(0, "a", 1), part(1, "a", 1), part(1, "b", 2)];
        let named: Vec<_> = regions(&parts)
            .into_iter()
            .map(|r| (r.name, r.pages))
            .collect();
        assert_eq!(named, [("a".to_owned(), 2), ("b".to_owned(), 2)]);
    }

    #[test]
    fn three_powers_of_ten_have_colours_of_their_own() {
        assert_eq!(step(0.0, 1000.0), None);
        assert_eq!(step(1000.0, 1000.0), Some(15));
        assert_eq!(step(1.0, 1000.0), Some(0));
        assert_eq!(step(0.001, 1000.0), Some(0));
        // Half of the decades: 1 + log10(0.0316) / 3 is 1/2 of 16 steps.
        assert_eq!(step(31.7, 1000.0), Some(8));
    }

    #[test]
    fn a_run_without_series_has_no_map() {
        assert_eq!(map("Heat", &Series::default(), 1), None);
    }
}
