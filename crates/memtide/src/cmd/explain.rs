//! `memtide explain`: why the running service has a page where it is.

use crate::shared::context::Context;
use crate::shared::control::client::Client;
use crate::shared::control::standing::Page;
use crate::shared::outside;
use crate::shared::words::pid;
use memtide_core::numbers;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Show what the running service knows of a page, and why it is where it is
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pid: u32,

    /// An address in it: hexadecimal with 0x, or decimal
    #[arg(value_name = "ADDRESS", value_parser = address)]
    address: u64,
}

fn address(text: &str) -> Result<u64, String> {
    let read = match text.strip_prefix("0x") {
        Some(digits) => numbers::hexadecimal(digits),
        None => numbers::decimal(text),
    };
    read.ok_or_else(|| "not an address; write it as 0x7f0012345000".to_owned())
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let page = Client::connect(&context.root)?.explain(args.pid, args.address)?;
    match context.json {
        true => context.print_json(&page)?,
        false => context.print(&text(&page))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(page: &Page) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key:<9}{}", outside::line(&value));
    };
    line("process", format!("{} {}", page.pid, page.name));
    let class = page.class.as_deref();
    line("class", class.unwrap_or("none").to_owned());
    let huge = if page.huge { ", in a huge page" } else { "" };
    line("page", format!("{:#x}{huge}", page.address));
    line(
        "mapping",
        format!(
            "{:#x}-{:#x}, {}",
            page.mapping_start, page.mapping_end, page.mapping
        ),
    );
    line("policy", page.policy.clone());
    let speed = page
        .fast
        .map_or("", |fast| if fast { ", fast" } else { ", slow" });
    let node = page.node.map(|node| format!("{node}{speed}"));
    line("node", node.unwrap_or("none".to_owned()));
    line("touched", touched(page));
    let moved = page.last_move.as_ref();
    let moved = moved.map(|moved| format!("{}, {} ms ago", moved.direction, moved.ms_ago));
    line("moved", moved.unwrap_or("not known".to_owned()));
    line("why", page.why.clone());
    text
}

fn touched(page: &Page) -> String {
    match (page.touches, page.touched_ms_ago) {
        (Some(touches), Some(ms)) => format!("{touches} times, last {ms} ms ago"),
        _ if page.untouched_looks > 0 => {
            format!("not in the last {} looks", page.untouched_looks)
        }
        _ => "not known".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::control::standing::Move;
    use crate::shared::lines::tests::{documented, keys};
    use crate::shared::outside::{HOSTILE, shows_hostile};
    use memtide_core::units::NodeId;
    use memtide_loop::report::{Direction, LastMove, PageReport};
    use memtide_loop::world::MemoryKind;
    use std::collections::BTreeSet;

    fn report() -> PageReport {
        PageReport {
            pid: 7,
            name: "redis".to_owned(),
            class: Some("db".to_owned()),
            address: 0x7000,
            mapping: MemoryKind::Anonymous,
            mapping_start: 0x4000,
            mapping_end: 0x9000,
            policy: "its pages may be anywhere".to_owned(),
            node: Some(NodeId(2)),
            fast: Some(false),
            huge: false,
            touches: Some(1),
            touched_ms_ago: Some(40),
            untouched_looks: 0,
            last_move: Some(LastMove {
                direction: Direction::Demotion,
                ms_ago: 5000,
            }),
            why: "it waits".to_owned(),
        }
    }

    /// What the loop says is what the client hears, prints and documents.
    #[test]
    fn a_page_is_told_in_lines() {
        let said = serde_json::to_value(report()).unwrap();
        let page: Page = serde_json::from_value(said.clone()).unwrap();
        assert_eq!(serde_json::to_value(&page).unwrap(), said);
        let expected = "process  7 redis\nclass    db\npage     0x7000\n\
                        mapping  0x4000-0x9000, anonymous\npolicy   its pages may be anywhere\n\
                        node     2, slow\ntouched  1 times, last 40 ms ago\n\
                        moved    demotion, 5000 ms ago\nwhy      it waits\n";
        assert_eq!(text(&page), expected);
        let (_, documented) = documented("explain");
        let mut printed = BTreeSet::new();
        keys(&said, "", &mut printed);
        let printed: BTreeSet<_> = printed.iter().map(|key| key[1..].to_owned()).collect();
        assert_eq!(documented, printed);
    }

    #[test]
    fn what_is_not_known_is_said_and_names_are_written_out() {
        let page = Page {
            name: HOSTILE.to_owned(),
            class: Some(HOSTILE.to_owned()),
            last_move: Some(Move {
                direction: HOSTILE.to_owned(),
                ms_ago: 1,
            }),
            why: HOSTILE.to_owned(),
            ..Page::default()
        };
        let text = text(&page);
        assert_eq!(text.lines().count(), 9);
        assert!(text.lines().next().is_some_and(shows_hostile), "{text}");
        assert!(
            text.contains("node     none\ntouched  not known\n"),
            "{text}"
        );
    }

    #[test]
    fn addresses_are_hexadecimal_or_decimal() {
        assert_eq!(address("0x7f0012345000"), Ok(0x7f00_1234_5000));
        assert_eq!(address("4096"), Ok(4096));
        for wrong in ["", "0x", "7f00", "-1", "0x1_0", "0xfffffffffffffffff"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
