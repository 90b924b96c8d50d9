//! `memtide status`: the state of the running service.

use crate::shared::context::Context;
use crate::shared::control::client::Client;
use crate::shared::control::standing::{Balancing, Class, Node, Pagers, Reload, Standing, Weights};
use crate::shared::outside::{self, outside};
use crate::shared::table::table;
use crate::shared::words::amount;
use anyhow::bail;
use comfy_table::CellAlignment::{Left, Right};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

/// Show the state of the running service: tiers, classes, what it does
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command.
pub fn run(_: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let standing = Client::connect(&context.root)?.status()?;
    match context.json {
        true => context.print_json(&standing)?,
        false => context.print(&text(&standing, context.styled))?,
    }
    if let Some(age) = standing.hangs() {
        let pid = standing.pid;
        let age = age.as_secs();
        bail!("the service hangs: process {pid} has told nothing for {age} s; restart it");
    }
    Ok(ExitCode::SUCCESS)
}

fn text(standing: &Standing, styled: bool) -> String {
    let Standing { setup, .. } = standing;
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key:<10}{}", outside::line(&value));
    };
    let dry = if setup.dry_run {
        ", moves nothing (dry run)"
    } else {
        ""
    };
    line(
        "service",
        format!(
            "memtide {}, process {}{dry}",
            standing.version, standing.pid
        ),
    );
    line("doing", standing.doing());
    line(
        "run",
        format!(
            "since {}; source {}, gate {}, processes of {}",
            humantime::format_duration(Duration::from_secs(standing.run_ms / 1000)),
            setup.source,
            setup.gate,
            setup.selected
        ),
    );
    line(
        "limits",
        format!(
            "promotes {} a second at most, keeps {} free on each fast node",
            amount(setup.rate_limit_bytes),
            amount(setup.headroom_bytes)
        ),
    );
    let (own, observing) = standing.cpu_percent();
    line(
        "CPU",
        format!(
            "{own:.1} % of one for memtide, {observing:.1} % for observing, of which {} % are allowed in the long run",
            setup.observe_cpu_percent
        ),
    );
    line(
        "managed",
        format!(
            "{} processes with {} on fast nodes and {} on slow ones",
            standing.processes,
            amount(standing.fast_bytes),
            amount(standing.slow_bytes)
        ),
    );
    line(
        "moved",
        format!(
            "promoted {}, demoted {}, returned {}, not movable {}; {} looks, {} reports lost",
            amount(standing.promoted_bytes),
            amount(standing.demoted_bytes),
            amount(standing.returned_bytes),
            amount(standing.unmovable_bytes),
            standing.looks,
            standing.lost_reports
        ),
    );
    if let Some(account) = &standing.account {
        line(
            "account",
            format!(
                "{}; since the run began won {}, spent {}",
                account.now(),
                time_of(account.won_ms),
                time_of(account.spent_ms)
            ),
        );
    }
    if let Some(fairness) = standing.fairness() {
        line("fairness", format!("{fairness} (1 is equal)"));
    }
    if let Some(pressure) = &standing.pressure {
        let seconds = time_of(pressure.stalled_ms);
        let limit = amount(pressure.limit_bytes);
        let what = match pressure.slowed {
            true => format!("promotion is slowed to {limit} a second"),
            false => "promotion is not slowed".to_owned(),
        };
        line(
            "pressure",
            format!("programs waited {seconds} for memory since the run began; {what}"),
        );
    }
    if let Some(balancing) = &standing.balancing {
        line("balancing", balanced(balancing));
    }
    if let Some(weights) = &standing.weights {
        line("weights", weighted(weights));
    }
    // A machine without any has nothing to say.
    if let Some(pagers) = standing.pagers.as_ref().filter(|pagers| pagers.any()) {
        line("pagers", paged(pagers));
    }
    if standing.reload.is_some() || standing.refused.is_some() {
        let at = standing.reload.map_or("?".to_owned(), time);
        let what = match &standing.refused {
            Some(why) => format!("refused, the old configuration is in force: {why}"),
            None => "taken".to_owned(),
        };
        line("reload", format!("{at}, {what}"));
    }
    let _ = writeln!(text, "\n{}", nodes(&standing.nodes, styled));
    if !standing.classes.is_empty() {
        let _ = writeln!(text, "\n{}", classes(&standing.classes, styled));
    }
    text
}

fn balanced(balancing: &Balancing) -> String {
    if let Some(why) = &balancing.rests {
        return format!("nothing is balanced: {why}");
    }
    let local = (balancing.local_accesses * 100).checked_div(balancing.accesses);
    let local = local.map_or("none seen".to_owned(), |percent| {
        format!("{percent} % local")
    });
    format!(
        "{} processes, source {}; moved {}, not movable {}, forbidden {}, without room {}; accesses {local}; {} of {} threads placed",
        balancing.processes,
        balancing.source.as_deref().unwrap_or("?"),
        amount(balancing.moved_bytes),
        amount(balancing.unmovable_bytes),
        amount(balancing.forbidden_bytes),
        amount(balancing.no_room_bytes),
        balancing.placed_threads,
        balancing.threads,
    )
}

fn weighted(weights: &Weights) -> String {
    let table = match &weights.table {
        Some(table) => format!("the kernel's table reads {table} until the service ends"),
        None => "the kernel's table is left alone".to_owned(),
    };
    if let Some(why) = &weights.rests {
        return format!("{table}; nothing is spread: {why}");
    }
    match weights.processes {
        0 if weights.moved_bytes == 0 => table,
        processes => format!(
            "{table}; {processes} processes are spread, {} of them cannot be; moved {}",
            weights.refused,
            amount(weights.moved_bytes)
        ),
    }
}

fn paged(pagers: &Pagers) -> String {
    if let Some(why) = &pagers.rests {
        return format!("not seen: {why}");
    }
    let resident = pagers.files.iter().map(|file| file.resident_bytes);
    let resident = resident.fold(pagers.others.resident_bytes, u64::saturating_add);
    let not_read = match pagers.not_read {
        0 => String::new(),
        not_read => format!(", {not_read} more cannot be read"),
    };
    format!(
        "{} processes{not_read}; {} in memory, budgets {}; evicted {}, refilled {}; {} unmapped with {} flushes; {} overruns, held back {} times",
        pagers.processes,
        amount(resident),
        amount(pagers.budget_bytes),
        amount(pagers.evicted_bytes),
        amount(pagers.refilled_bytes),
        amount(pagers.unmapped_bytes),
        pagers.flushes,
        pagers.overruns,
        pagers.held_back,
    )
}

fn time_of(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1000.0)
}

/// In UTC; what no calendar has is not known.
fn time(reload: Reload) -> String {
    const YEAR_10000: u64 = 253_402_300_800;
    let seconds = reload.unix_ms / 1000;
    match seconds < YEAR_10000 {
        true => {
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            humantime::format_rfc3339_seconds(at).to_string()
        }
        false => "?".to_owned(),
    }
}

fn nodes(nodes: &[Node], styled: bool) -> String {
    let header = [
        ("node", Right),
        ("tier", Left),
        ("memory", Right),
        ("free", Right),
        ("latency", Right),
    ];
    let mut table = table(&header, styled);
    for node in nodes {
        let speed = if node.fast { "fast" } else { "slow" };
        let tier = node
            .tier
            .map_or(speed.to_owned(), |tier| format!("{tier} {speed}"));
        let free = node.free_bytes.map_or("?".to_owned(), amount);
        let latency = node.latency_ns;
        let latency = latency.map_or("?".to_owned(), |ns| format!("{ns} ns"));
        let memory = amount(node.memory_bytes);
        table.add_row([node.node.to_string(), tier, memory, free, latency]);
    }
    table.trim_fmt()
}

fn classes(classes: &[Class], styled: bool) -> String {
    let header = [
        ("class", Left),
        ("uses", Right),
        ("low", Right),
        ("high", Right),
        ("promoted", Right),
        ("demoted", Right),
        ("returned", Right),
        ("waiting", Right),
        ("fast use", Right),
        ("", Left),
    ];
    let mut table = table(&header, styled);
    for class in classes {
        let mut states = class.states();
        if let Some(around) = &class.within {
            let comma = if states.is_empty() { "" } else { ", " };
            states += &format!("{comma}in {}", outside(around));
        }
        table.add_row([
            outside(&class.name).into_owned(),
            class.fast_bytes.map_or("?".to_owned(), amount),
            amount(class.low_bytes),
            class.high_bytes.map_or("-".to_owned(), amount),
            amount(class.promoted_bytes),
            amount(class.demoted_bytes),
            amount(class.returned_bytes),
            amount(class.waiting_bytes),
            class.served(),
            states,
        ]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::control::standing::tests::standing;
    use crate::shared::outside::HOSTILE;
    use memtide_linux::text::is_hidden;

    /// 400 ms and 1200 ms of 100 s.
    #[test]
    fn a_status_says_what_there_is() {
        let text = text(&standing(), false);
        for line in [
            "service memtide 0.2.0, process 4711",
            "doing rests, and glances at few pages until one of them is hot",
            "run since 1m 40s; source DAMON, gate pghot, processes of all",
            "CPU 0.4 % of one for memtide, 1.2 % for observing, of which 5 % are allowed in the long run",
            "managed 3 processes with 3.0 GiB on fast nodes and 1.0 GiB on slow ones",
            "moved promoted 512.0 MiB, demoted 64.0 MiB, returned 32.0 MiB, not movable 4 KiB; 7 looks, 0 reports lost",
            "reload 2027-01-15T08:00:00Z, taken",
            "account wins 12.3 ms a second, spends 4.1, 1 process rests; since the run began won 1.2 s, spent 0.4 s",
            "pressure programs waited 2.5 s for memory since the run began; promotion is not slowed",
            "balancing 2 processes, source pebs; moved 96.0 MiB, not movable 4 KiB, forbidden 0 KiB, without room 0 KiB; accesses 90 % local; 4 of 9 threads placed",
            "weights the kernel's table reads 0=9,2=1 until the service ends; 4 processes are spread, 1 of them cannot be; moved 48.0 MiB",
            "pagers 2 processes, 1 more cannot be read; 3.0 GiB in memory, budgets 4.0 GiB; evicted 96.0 MiB, refilled 12.0 MiB; 128.0 MiB unmapped with 50 flushes; 3 overruns, held back 1 times",
            "0 4 fast 8.0 GiB 1.0 GiB 112 ns",
            "1 22 slow 8.0 GiB ? ?",
            "fairness 0.651 by touched pages (1 is equal)",
            "batch ? 0 KiB 2.0 GiB 0 KiB 0 KiB 0 KiB 1.0 MiB 12 % pages in db",
            "db 2.0 GiB 1.0 GiB - 300.0 MiB 0 KiB 16.0 MiB 0 KiB 95 % acc. keeps idle pages, balanced",
        ] {
            let there = |there: &str| there.split_whitespace().eq(line.split(' '));
            assert!(text.lines().any(there), "{line}\n{text}");
        }
        assert!(!text.contains("refused"), "{text}");
    }

    #[test]
    fn that_promotion_is_slowed_is_said() {
        let mut one = standing();
        let pressure = one.pressure.as_mut().unwrap();
        (pressure.slowed, pressure.limit_bytes) = (true, 64 << 20);
        one.classes[0].pressure = one.pressure;
        let text = text(&one, false);
        assert!(
            text.contains("; promotion is slowed to 64.0 MiB a second\n"),
            "{text}"
        );
        let mut lines = text.lines();
        assert!(
            lines.any(|line| line.starts_with("batch") && line.ends_with("pressed, in db")),
            "{text}"
        );
    }

    #[test]
    fn why_nothing_is_balanced_is_said() {
        let mut one = standing();
        one.balancing = Some(Balancing {
            rests: Some("ibs: not here".to_owned()),
            ..Balancing::default()
        });
        let text = text(&one, false);
        let wanted = "\nbalancing nothing is balanced: ibs: not here\n";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn that_a_class_is_spread_is_said_and_why_none_is() {
        let mut one = standing();
        (one.classes[0].spread, one.classes[0].tiered) = (true, false);
        one.classes[0].paused = true;
        one.weights = Some(Weights {
            rests: Some("no list".to_owned()),
            ..Weights::default()
        });
        let said = text(&one, false);
        let rests = "\nweights   the kernel's table is left alone; nothing is spread: no list\n";
        assert!(said.contains(rests), "{said}");
        let ends = |text: &str, word: &str| {
            let mut lines = text.lines();
            lines.any(|line| line.starts_with("batch") && line.ends_with(&format!("{word}, in db")))
        };
        assert!(ends(&said, " paused, spread"), "{said}");
        one.classes[0].paused = false;
        let said = text(&one, false);
        assert!(
            ends(&said, " spread") && !said.contains("not tiered"),
            "{said}"
        );
    }

    #[test]
    fn what_others_chose_is_written_out() {
        let mut one = standing();
        one.refused = Some(HOSTILE.to_owned());
        one.reload = Some(Reload {
            unix_ms: u64::MAX,
            taken: false,
        });
        one.version = HOSTILE.to_owned();
        one.rests = Some(HOSTILE.to_owned());
        one.setup.selected = HOSTILE.to_owned();
        one.setup.source = HOSTILE.to_owned();
        one.balancing.as_mut().unwrap().source = Some(HOSTILE.to_owned());
        one.weights.as_mut().unwrap().table = Some(HOSTILE.to_owned());
        one.classes[0].name = HOSTILE.to_owned();
        let text = text(&one, false);
        assert!(
            !text.contains(|c: char| is_hidden(c) && c != '\n'),
            "{text:?}"
        );
        assert_eq!(
            text.lines().count(),
            super::text(&standing(), false).lines().count()
        );
        assert!(text.contains("\nreload    ?, refused, "), "{text}");
    }
}
