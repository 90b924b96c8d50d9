//! What balancing says of where things stand and of the end.

use crate::shared::outside::outside;
use crate::shared::report::Printer;
use memtide_loop::report::{Spent, Status};
use serde::Serialize;

#[derive(Serialize)]
struct Summary<'a> {
    why: &'a str,
    freed_tasks: usize,
    #[serde(flatten)]
    status: &'a Status,
}

/// Where things stand, once a second.
pub fn status(printer: &mut Printer, status: &Status) {
    printer.status(status, |printer| sentence(printer, status));
}

/// The end.
pub fn summary(printer: &mut Printer, status: &Status, why: &str, freed_tasks: usize) {
    self::status(printer, status);
    let content = &Summary {
        why,
        freed_tasks,
        status,
    };
    printer.summary(content, |printer| {
        sentences(printer, status, why, freed_tasks)
    });
}

/// Where things stand beside tiering, once a second.
pub fn beside(printer: &mut Printer, status: &Status) {
    printer.beside("balancing", status, |printer| short(printer, status));
}

/// The end beside tiering.
pub fn summary_beside(printer: &mut Printer, status: &Status, why: &str, freed_tasks: usize) {
    let content = &Summary {
        why,
        freed_tasks,
        status,
    };
    printer.summary_beside("balancing_summary", content, |printer| {
        let sentences = sentences(printer, status, why, freed_tasks);
        format!("balancing: {sentences}")
    });
}

/// In few words.
pub fn short(printer: &Printer, status: &Status) -> String {
    let balance = status.balancing.clone().unwrap_or_default();
    format!(
        "balancing {} processes: moved {}, {} threads placed",
        status.processes,
        printer.size(balance.moved_pages),
        balance.placed_tasks,
    )
}

fn sentences(printer: &Printer, status: &Status, why: &str, freed_tasks: usize) -> String {
    let balance = status.balancing.clone().unwrap_or_default();
    let local = (balance.local_samples * 100)
        .checked_div(balance.samples)
        .map_or("none seen".to_owned(), |share| format!("{share} % local"));
    let price = balance.ns_per_moved_page.map_or(String::new(), |ns| {
        format!("; {:.1} us a moved page", ns as f64 / 1000.0)
    });
    let threads = match balance.placed_tasks + freed_tasks {
        0 => String::new(),
        _ => format!("; {freed_tasks} threads may run anywhere again"),
    };
    format!(
        "{} after {:.1} s: moved {} ({} pages), not movable {}, forbidden {}, without room {}{threads}\n\
         {}: {} accesses seen ({local}), {} lost, {} moments dropped\n\
         CPU time: {:.2} s, {:.2} % of one CPU (limit {} %), rested {:.1} s; {}{price}",
        outside(why),
        status.at_ms as f64 / 1000.0,
        printer.size(balance.moved_pages),
        balance.moved_pages,
        printer.size(status.failed_pages),
        printer.size(balance.forbidden_pages),
        printer.size(balance.no_room_pages),
        outside(&balance.source),
        balance.samples,
        status.lost,
        balance.invalid_windows,
        status.cpu.as_secs_f64(),
        balance.cpu_percent,
        balance.cpu_limit_percent,
        balance.rested_ms as f64 / 1000.0,
        causes(&balance.spent),
    )
}

fn sentence(printer: &Printer, status: &Status) -> String {
    let balance = status.balancing.clone().unwrap_or_default();
    let local = balance
        .local_permille
        .map_or("no accesses".to_owned(), |local| {
            format!("{:.1} % local", local as f64 / 10.0)
        });
    format!(
        "{:.0} s  {} processes  {} threads  {local}  moved {}  cpu {:.2} s ({:.2} %)",
        status.at_ms as f64 / 1000.0,
        status.processes,
        balance.tasks,
        printer.size(balance.moved_pages),
        status.cpu.as_secs_f64(),
        balance.cpu_percent,
    )
}

/// Where the time went, without what is next to nothing.
fn causes(spent: &Spent) -> String {
    let Spent {
        refresh_ns,
        protect_ns,
        samples_ns,
        locate_ns,
        decide_ns,
        move_ns,
    } = *spent;
    let all = [
        ("processes", refresh_ns),
        ("provoking", protect_ns),
        ("samples", samples_ns),
        ("locating", locate_ns),
        ("deciding", decide_ns),
        ("moving", move_ns),
    ];
    let told = all.iter().filter(|(_, ns)| *ns >= 5_000_000);
    let told: Vec<String> = told
        .map(|(what, ns)| format!("{what} {:.2}", *ns as f64 / 1e9))
        .collect();
    match told.is_empty() {
        true => "nothing took long".to_owned(),
        false => told.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::outside::{HOSTILE, shows_hostile};
    use memtide_core::units::PageSize;
    use memtide_loop::report::BalanceStatus;

    /// What ended the run is ours today; a source is named by the kernel.
    #[test]
    fn what_others_chose_is_written_out() {
        let printer = Printer::new(false, PageSize::KIB_4);
        let balancing = Some(BalanceStatus {
            source: HOSTILE.into(),
            ..BalanceStatus::default()
        });
        let status = Status {
            balancing,
            ..Status::default()
        };
        let text = sentences(&printer, &status, HOSTILE, 1);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text:?}");
        assert!(
            shows_hostile(lines[0]) && shows_hostile(lines[1]),
            "{text:?}"
        );
    }
}
