//! What `memtide rebalance` shows: a bar while it works, a table at the end.

use crate::shared::context::Context;
use crate::shared::outside::outside;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use memtide_core::units::{NodeId, PageSize};
use memtide_linux::respread::{End, MappingReport, Report, Stayed};
use std::collections::BTreeSet;
use std::io::IsTerminal;

/// Mappings smaller than this have no row of their own, in pages.
const SMALL: u64 = 256;

/// A bar on standard error, if that is a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar for `pages` pages.
    pub fn new(context: &Context, pages: u64) -> Progress {
        let bar = ProgressBar::new(pages);
        let style = "{wide_bar} {pos}/{len} pages, {msg} moved, {eta} left";
        bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
        if context.json || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Progress(bar)
    }

    /// Where things stand.
    pub fn show(&self, looked_at: u64, moved: u64) {
        self.0.set_position(looked_at);
        self.0.set_message(moved.to_string());
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// The report for people.
pub fn text(report: &Report, page: PageSize) -> String {
    let after = report.after.iter().flatten();
    let nodes: BTreeSet<NodeId> = after.chain(&report.before).map(|(node, _)| *node).collect();
    let share = |pages: &[(NodeId, u64)]| shares(pages, &nodes);
    let large = |mapping: &&MappingReport| mapping.moved > 0 || pages(&mapping.before) >= SMALL;
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let heads = nodes
        .iter()
        .map(NodeId::to_string)
        .collect::<Vec<_>>()
        .join("/");
    let now = if report.dry_run { "would be" } else { "after" };
    table.set_header([
        "MAPPING".to_owned(),
        "MEMORY".into(),
        format!("BEFORE ({heads})"),
        format!("{} ({heads})", now.to_uppercase()),
        if report.dry_run {
            "WOULD MOVE".into()
        } else {
            "MOVED".into()
        },
        "STAYED".into(),
    ]);
    for mapping in report.mappings.iter().filter(large) {
        table.add_row([
            format!("{:x} {}", mapping.address, outside(&mapping.name)),
            size(pages(&mapping.before), page),
            share(&mapping.before),
            mapping
                .after
                .as_deref()
                .map_or_else(|| "gone".into(), share),
            mapping.moved.to_string(),
            match &mapping.left {
                Some(why) => format!("all: {}", outside(why)),
                None => stayed(mapping.stayed),
            },
        ]);
    }
    let others = report.mappings.iter().filter(|mapping| !large(mapping));
    let (count, rest) = others.fold((0, 0), |(n, sum), m| (n + 1, sum + pages(&m.before)));
    for column in [1, 4] {
        let column = table.column_mut(column).expect("there are six");
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text: String = table
        .lines()
        .map(|line| format!("{}\n", line.trim().trim_end()))
        .collect();
    if count > 0 {
        let rest = size(rest, page);
        text.push_str(&format!(
            "and {count} small mappings with {rest}, nothing moved\n"
        ));
    }
    text.push_str(&sentence(report, page, share));
    text
}

fn sentence(report: &Report, page: PageSize, share: impl Fn(&[(NodeId, u64)]) -> String) -> String {
    let Report {
        pid, name, weights, ..
    } = report;
    let name = outside(name);
    let moved = size(report.moved, page);
    let how = match (report.end, report.reached, report.dry_run) {
        (End::ProcessEnded, ..) => {
            format!("process {pid} ({name}) ended meanwhile; {moved} had moved")
        }
        (End::Interrupted, ..) => format!("interrupted; {moved} had moved"),
        (End::Done, true, true) => format!("dry run: {moved} would move"),
        (End::Done, true, false) => format!("{moved} moved"),
        (End::Done, false, _) => {
            format!("not reached: {moved} moved, and much that should have did not")
        }
    };
    let now = match &report.after {
        Some(after) => format!("; shares {}, wanted {weights}", share(after)),
        None => String::new(),
    };
    let left = match report.left_pages {
        0 => String::new(),
        pages => format!("; {} in mappings that stay as they are", size(pages, page)),
    };
    let stayed = stayed(report.stayed);
    let stayed = match stayed.is_empty() {
        true => String::new(),
        false => format!("; pages that stayed: {stayed}"),
    };
    format!("process {pid} ({name}): {how}{now}{left}{stayed}\n").replace(
        &format!("process {pid} ({name}): process {pid}"),
        &format!("process {pid}"),
    )
}

fn pages(on: &[(NodeId, u64)]) -> u64 {
    on.iter().map(|(_, pages)| pages).sum()
}

/// `90.0/0.0/10.0 %` for `nodes`.
fn shares(on: &[(NodeId, u64)], nodes: &BTreeSet<NodeId>) -> String {
    let all = pages(on).max(1) as f64;
    let of = |node: &NodeId| {
        on.iter()
            .find(|(id, _)| id == node)
            .map_or(0, |(_, pages)| *pages)
    };
    let words: Vec<String> = nodes
        .iter()
        .map(|node| format!("{:.1}", 100.0 * of(node) as f64 / all))
        .collect();
    format!("{} %", words.join("/"))
}

fn stayed(stayed: Stayed) -> String {
    let words = [
        (stayed.shared, "shared with other processes"),
        (stayed.busy, "busy"),
        (stayed.no_memory, "target full"),
        (stayed.other, "refused by the kernel"),
    ];
    let words = words.iter().filter(|(pages, _)| *pages > 0);
    let words: Vec<String> = words.map(|(pages, why)| format!("{pages} {why}")).collect();
    words.join(", ")
}

/// As `memtide tier` writes sizes.
pub fn size(pages: u64, page: PageSize) -> String {
    match pages * page.bytes() {
        bytes @ 0..0x10_0000 => format!("{} KiB", bytes >> 10),
        bytes => format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::outside::{HOSTILE, shows_hostile};
    use serde_json::Value;

    const STAYED: Stayed = Stayed {
        shared: 3,
        busy: 0,
        no_memory: 0,
        other: 0,
    };

    fn mapping(address: u64, pages: u64, name: &str) -> MappingReport {
        MappingReport {
            address,
            pages,
            name: name.into(),
            policy: "default".into(),
            before: vec![(NodeId(0), pages)],
            after: Some(vec![(NodeId(0), pages)]),
            moved: 0,
            stayed: Stayed::default(),
            left: None,
        }
    }

    /// 25,600 pages of 4 KiB are 100 MiB, a tenth of them 2,560.
    fn report() -> Report {
        let spread = MappingReport {
            after: Some(vec![(NodeId(0), 23_040), (NodeId(2), 2_560)]),
            moved: 2_560,
            stayed: STAYED,
            ..mapping(0x7f00_0000_0000, 25_600, "[anonymous]")
        };
        let left = MappingReport {
            policy: "bind:1".into(),
            left: Some("its policy bind:1 leaves out node 0".into()),
            ..mapping(0x7f10_0000_0000, 512, "/dev/shm/x")
        };
        Report {
            pid: 7,
            name: "x".into(),
            weights: "0=9,2=1".into(),
            dry_run: false,
            end: End::Done,
            reached: true,
            spread_pages: 25_609,
            left_pages: 512,
            before: vec![(NodeId(0), 25_609)],
            after: Some(vec![(NodeId(0), 23_049), (NodeId(2), 2_560)]),
            moved: 2_560,
            stayed: STAYED,
            mappings: vec![mapping(0x1000, 9, "/bin/x"), spread, left],
        }
    }

    #[test]
    fn large_mappings_have_a_row_and_small_ones_a_sum() {
        let expected = "\
MAPPING                      MEMORY  BEFORE (0/2)  AFTER (0/2)  MOVED  STAYED
7f0000000000 [anonymous]  100.0 MiB  100.0/0.0 %   90.0/10.0 %   2560  3 shared with other processes
7f1000000000 /dev/shm/x     2.0 MiB  100.0/0.0 %   100.0/0.0 %      0  all: its policy bind:1 leaves out node 0
and 1 small mappings with 36 KiB, nothing moved
process 7 (x): 10.0 MiB moved; shares 90.0/10.0 %, wanted 0=9,2=1; 2.0 MiB in mappings that stay as they are; pages that stayed: 3 shared with other processes
";
        let text = text(&report(), PageSize::KIB_4);
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            expected.lines().collect::<Vec<_>>()
        );
    }

    #[test]
    fn every_end_is_told_as_what_it_is() {
        let last = |report: &Report| {
            text(report, PageSize::KIB_4)
                .lines()
                .last()
                .unwrap()
                .to_owned()
        };
        let gone = Report {
            end: End::ProcessEnded,
            reached: false,
            after: None,
            ..report()
        };
        assert!(
            last(&gone).starts_with("process 7 (x) ended meanwhile; 10.0 MiB had moved; 2.0 MiB")
        );
        let stopped = Report {
            end: End::Interrupted,
            reached: false,
            ..report()
        };
        assert!(
            last(&stopped).starts_with("process 7 (x): interrupted; 10.0 MiB had moved; shares")
        );
        let short = Report {
            reached: false,
            ..report()
        };
        assert!(last(&short).starts_with("process 7 (x): not reached: 10.0 MiB moved"));
        let dry = Report {
            dry_run: true,
            ..report()
        };
        assert!(last(&dry).starts_with("process 7 (x): dry run: 10.0 MiB would move"));
        assert!(text(&dry, PageSize::KIB_4).contains("WOULD BE (0/2)  WOULD MOVE"));
    }

    /// Its owner names a process, and whoever makes a file names a mapping.
    #[test]
    fn what_others_chose_is_written_out() {
        let mut report = Report {
            name: HOSTILE.into(),
            ..report()
        };
        report.mappings[2].name = HOSTILE.into();
        report.mappings[1].left = Some(HOSTILE.into());
        let lines = |report: &Report| -> Vec<String> {
            let text = text(report, PageSize::KIB_4);
            text.lines().map(str::to_owned).collect()
        };
        let shown = lines(&report);
        // The heads, two mappings, the small ones, and the end.
        assert_eq!(shown.len(), 5, "{shown:?}");
        for line in [1, 2, 4] {
            assert!(shows_hostile(&shown[line]), "{:?}", shown[line]);
        }
        report.end = End::ProcessEnded;
        assert!(shows_hostile(lines(&report).last().unwrap()));
    }

    fn keys(value: &Value, path: &str, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let path = match path.is_empty() {
                        true => name.clone(),
                        false => format!("{path}.{name}"),
                    };
                    keys(value, &path, into);
                    into.insert(path);
                }
            }
            Value::Array(values) => {
                let path = format!("{path}[]");
                values.iter().for_each(|value| keys(value, &path, into));
            }
            _ => {}
        }
    }

    #[test]
    fn the_schema_is_documented() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let section = guide.split("\n## ").find(|s| s.starts_with("rebalance\n"));
        let documented: BTreeSet<String> = section
            .expect("docs/json.md has a section rebalance")
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .map(str::to_owned)
            .collect();
        let mut printed = BTreeSet::new();
        keys(&serde_json::to_value(report()).unwrap(), "", &mut printed);
        assert_eq!(
            documented, printed,
            "documented on the left, printed on the right"
        );
    }
}
