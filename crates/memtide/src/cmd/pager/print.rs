//! The comparison as text: a row for each way of reading, then what it means.

use super::args::{Pattern, Way};
use super::report::{Against, Report, WayReport};
use crate::shared::outside::outside;
use crate::shared::table::table;
use comfy_table::CellAlignment::{Left, Right};
use std::fmt::Write as _;

/// The whole of it.
pub fn text(report: &Report, styled: bool) -> String {
    let pattern = match report.pattern {
        Pattern::Uniform => "any page",
        Pattern::Hot => "98 % of the reads in half the budget",
        Pattern::Sweep => "page after page",
    };
    let threads = match report.threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    };
    let mut text = format!(
        "{}: {}, budget {}, {threads}, {pattern}\n\n",
        outside(&report.file),
        size(report.file_bytes),
        size(report.budget_bytes),
    );
    let mut table = table(
        &[
            ("", Left),
            ("reads/s", Right),
            ("evicted", Right),
            ("refilled", Right),
            ("shootdowns", Right),
            ("a page", Right),
            ("peak in memory", Right),
        ],
        styled,
    );
    for way in &report.ways {
        table.add_row(row(way));
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}\n", table.trim_fmt());
    for line in sentences(report) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn row(way: &WayReport) -> Vec<String> {
    let or = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), thousands);
    let measured = &way.measured;
    vec![
        way_words(way.way).to_owned(),
        thousands(way.reads_per_s as u64),
        or(measured.evicted_pages),
        or(measured.refilled_pages),
        or(measured.shootdowns),
        way.shootdowns_per_evicted_page
            .map_or_else(|| "?".to_owned(), |each| format!("{each:.5}")),
        measured
            .peak_resident_bytes
            .map_or_else(|| "?".to_owned(), size),
    ]
}

/// What a way is called.
pub fn way_words(way: Way) -> &'static str {
    match way {
        Way::Kernel => "plain mmap",
        Way::Eager => "pager, page by page",
        Way::Lazy => "pager",
    }
}

fn sentences(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(why) = &report.no_limit {
        lines.push(format!(
            "Plain mmap is left out, its memory cannot be limited: {why}."
        ));
    }
    lines.extend(report.lazy_against.iter().map(against));
    let ways = &report.ways;
    if let Some(unmap) = ways.iter().find_map(|way| {
        let lazy = way.way == Way::Lazy;
        way.measured.unmap.as_ref().filter(|_| lazy)
    }) {
        lines.push(format!("Unmapped by {unmap}."));
    }
    lines.extend(by_node(report));
    let left = ways
        .iter()
        .map(|way| way.measured.left_in_memory_bytes)
        .max();
    if let Some(left) = left.filter(|left| *left > report.budget_bytes / 10) {
        lines.push(format!(
            "{} of the file stayed in memory when a way began: others use it too.",
            size(left)
        ));
    }
    let wrong: u64 = ways.iter().map(|way| way.measured.wrong_pages).sum();
    let checked = ways.iter().all(|way| way.measured.checked);
    lines.push(match (checked, wrong) {
        (false, _) => {
            "Bytes were read and not checked: memtide pager --make writes files that are."
                .to_owned()
        }
        (true, 0) => "Every byte that was read was right.".to_owned(),
        (true, wrong) => format!(
            "WRONG: {} reads showed other bytes than the file has.",
            thousands(wrong)
        ),
    });
    let others = ways
        .iter()
        .filter_map(|way| way.measured.others_shootdowns_per_s);
    let others = others.fold(0.0, f64::max);
    lines.push(format!(
        "Shootdowns are the whole machine's: other programs added up to {others:.0} a second."
    ));
    lines
}

/// Where the pager's data lay, on a machine with more than one node for it.
fn by_node(report: &Report) -> Option<String> {
    let lazy = report.ways.iter().find(|way| way.way == Way::Lazy)?;
    let nodes = lazy.measured.mapped.as_ref()?;
    let sum: u64 = nodes.iter().map(|on| on.bytes).sum();
    if sum == 0 || (nodes.len() == 1 && report.memory_policy.is_none()) {
        return None;
    }
    let parts = nodes.iter().map(|on| {
        let percent = 100.0 * on.bytes as f64 / sum as f64;
        format!("{percent:.1} % on node {}", on.node)
    });
    let parts: Vec<String> = parts.collect();
    let policy = report.memory_policy.as_ref();
    let policy = policy.map_or_else(String::new, |policy| format!(", by {policy}"));
    Some(format!(
        "Mapped by the pager at the end: {}{policy}.",
        parts.join(", ")
    ))
}

fn against(against: &Against) -> String {
    let reads = format!("{:+.0} %", (against.reads_ratio - 1.0) * 100.0);
    let other = way_words(against.way);
    match against.shootdowns_ratio {
        Some(ratio) if ratio <= 1.0 => format!(
            "Against {other}: {:.2} % fewer shootdowns a page, {reads} reads.",
            (1.0 - ratio) * 100.0
        ),
        Some(ratio) => {
            format!("Against {other}: {ratio:.1} times the shootdowns a page, {reads} reads.")
        }
        None => format!("Against {other}: {reads} reads."),
    }
}

/// Bytes in the unit that suits them.
pub fn size(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..0x10_0000 => format!("{:.1} KiB", value / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", value / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", value / f64::from(1 << 30)),
    }
}

/// `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(size(4096), "4.0 KiB");
        assert_eq!(size(3 << 19), "1.5 MiB");
        assert_eq!(size(1 << 30), "1.0 GiB");
    }

    #[test]
    fn what_is_less_and_what_is_more() {
        let of = |shootdowns_ratio, reads_ratio| {
            against(&Against {
                way: Way::Eager,
                shootdowns_ratio,
                reads_ratio,
            })
        };
        assert_eq!(
            of(Some(0.0016), 1.25),
            "Against pager, page by page: 99.84 % fewer shootdowns a page, +25 % reads."
        );
        assert_eq!(
            of(Some(1.5), 0.9),
            "Against pager, page by page: 1.5 times the shootdowns a page, -10 % reads."
        );
        assert_eq!(of(None, 1.0), "Against pager, page by page: +0 % reads.");
    }
}
