//! A process bound to nodes 1 and 3 of four: its pages go to and fro between those, and no page is
//! ever seen elsewhere, although threads on node 0 use some.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{GOAL, PROMISED, TABLE, balance, cells, end, number, shares, summary};
use crate::guest::late::within;
use crate::guest::memtide::Memtide;
use crate::guest::pace::Stretch;
use crate::guest::subject::{Victim, census_hot};
use crate::guest::tests::Context;

fn with(mut command: Command, words: &str) -> Command {
    command.args(words.split_whitespace());
    command
}

pub(super) fn stays_within(context: &mut Context) -> Result<()> {
    // Sets on nodes 1 and 3 have their memory swapped; the third is used from node 0 and may not go
    // there.
    let mut command = Command::new("memtide");
    command.args(["run", "--membind", "1,3", "/init", "sets"]);
    let words = "--threads 1 --size 8 --set 1:3 --set 3:1 --set 0:1";
    let victim = Victim::spawn(with(command, words), 3)?;
    let known = victim.known_pages();
    let allowed = |context: &str| -> Result<()> {
        let census = census_hot(&known, &[1, 3])?;
        // A page in the middle of a move is nowhere for a moment.
        ensure!(
            census.there + census.nowhere == census.asked,
            "{context}: pages on nodes that are forbidden: {census:?}"
        );
        Ok(())
    };
    allowed("before")?;
    let mut memtide = Memtide::spawn(balance(&["--source", "writes", "--explain"], &victim))?;
    let stretch = Stretch::begin();
    let seconds = loop {
        allowed("meanwhile")?;
        let least = shares(&known[..2], &[1, 3])?
            .into_iter()
            .fold(1.0, f64::min);
        if least >= GOAL {
            break stretch.elapsed().as_secs_f64();
        }
        within(&stretch, PROMISED, || {
            format!(
                "{:.1} % of a set's pages on its node and no more",
                least * 100.0
            )
        })?;
        memtide.check()?;
        std::thread::sleep(Duration::from_millis(50));
    };
    // Long enough for node 0 to be wanted again and again.
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        allowed("afterwards")?;
    }
    let lines = end(memtide)?;
    let summary = summary(&lines)?;
    let forbidden = number(summary, "forbidden_pages")?;
    let row = [
        ("s to 95 %", format!("{seconds:.1}")),
        ("moved", number(summary, "moved_pages")?.to_string()),
        ("forbidden", forbidden.to_string()),
    ];
    context.row(TABLE, cells("bound to 1 and 3 of 4", &row))?;
    let wrong = |line: &&serde_json::Value| {
        line["event"] == "moved" && !matches!(line["to"].as_u64(), Some(1 | 3))
    };
    let wrong = lines.iter().filter(wrong).count();
    ensure!(wrong == 0, "{wrong} moves to nodes that are forbidden");
    ensure!(
        forbidden > 0,
        "node 0 uses a set's pages and nothing says that they may not go there"
    );
    Ok(())
}
