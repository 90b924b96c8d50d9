//! What tiering says of where things stand and of the end.

use crate::shared::outside::outside;
use crate::shared::report::Printer;
use memtide_loop::report::{AccountStatus, ClassStatus, Status, TierSpent, TierStatus};
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
struct Summary<'a> {
    why: &'a str,
    #[serde(flatten)]
    status: &'a Status,
}

/// Where things stand, once a second.
pub fn status(printer: &mut Printer, status: &Status) {
    printer.status(status, |printer| sentence(printer, status));
}

/// The end.
pub fn summary(printer: &mut Printer, status: &Status, why: &str) {
    self::status(printer, status);
    printer.summary(&Summary { why, status }, |printer| {
        sentences(printer, status, why)
    });
}

/// The same in few words, for who manages services.
pub fn short(printer: &Printer, status: &Status) -> String {
    let tier = status.tiering.clone().unwrap_or_default();
    let mut text = format!(
        "tiering {} processes: {} on fast nodes, {} on slow ones; promoted {}, demoted {}",
        status.processes,
        printer.size(tier.top_pages),
        printer.size(tier.lower_pages),
        printer.size(tier.pgpromote_success),
        printer.size(tier.pgdemote_proactive),
    );
    if tier.pressure.is_some_and(|pressure| pressure.slowed) {
        text += "; promotion slowed by pressure";
    }
    for class in &tier.classes {
        text += &format!("; {}", share(printer, class));
    }
    text
}

/// What a class uses of its share.
fn share(printer: &Printer, class: &ClassStatus) -> String {
    if class.left_alone {
        return format!("class {} left alone", outside(&class.name));
    }
    let size = |pages: Option<u64>| pages.map_or("unknown".to_owned(), |pages| printer.size(pages));
    let mut text = format!("class {}", outside(&class.name));
    if let Some(around) = &class.within {
        text += &format!(" in {}", outside(around));
    }
    text += &format!(" {}", size(class.fast_pages));
    let bounds = [
        ("low", Some(class.low_pages).filter(|low| *low > 0)),
        ("high", class.high_pages),
    ];
    for (name, pages) in bounds {
        if let Some(pages) = pages {
            text += &format!(" {name} {}", printer.size(pages));
        }
    }
    let done = class.done().words();
    if !done.is_empty() {
        text += &format!(" {done}");
    }
    if class.paused {
        text += " paused";
    }
    if class.pressure.is_some_and(|pressure| pressure.slowed) {
        text += " slowed by pressure";
    }
    text
}

/// The same, and what became of it.
fn class(printer: &Printer, class: &ClassStatus) -> String {
    format!(
        "{} promoted {} demoted {} returned {} waiting {}",
        share(printer, class),
        printer.size(class.promoted_pages),
        printer.size(class.demoted_pages),
        printer.size(class.returned_pages),
        printer.size(class.waiting_pages),
    )
}

fn sentence(printer: &Printer, status: &Status) -> String {
    let tier = status.tiering.clone().unwrap_or_default();
    let free: Vec<String> = tier
        .free_pages
        .iter()
        .map(|(node, pages)| format!("n{node} {}", printer.size(*pages)))
        .collect();
    let mut text = format!(
        "{:.0} s  {} processes  fast {}  slow {}  promoted {}  demoted {}  returned {}  free {}  {}  cpu {:.2} + {:.2} s",
        status.at_ms as f64 / 1000.0,
        status.processes,
        printer.size(tier.top_pages),
        printer.size(tier.lower_pages),
        printer.size(tier.pgpromote_success),
        printer.size(tier.pgdemote_proactive),
        printer.size(tier.returned_pages),
        free.join(" "),
        tier.observing,
        status.cpu.as_secs_f64(),
        tier.kernel_cpu.as_secs_f64(),
    );
    if let Some(account) = &tier.account {
        text += &format!(
            "  won {:.1} spent {:.1} ms/s",
            ms(account.won_ns_per_s),
            ms(account.spent_ns_per_s)
        );
        if account.resting_processes > 0 {
            text += &format!("  {} at rest", account.resting_processes);
        }
    }
    if let Some(pressure) = tier.pressure.filter(|pressure| pressure.slowed) {
        let limit = printer.size(pressure.limit_pages);
        text += &format!("  promotion slowed by pressure to {limit}/s");
    }
    for one in &tier.classes {
        text += &format!("  {}", class(printer, one));
    }
    text
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// What promotion won and cost, a line of its own.
fn account(account: &AccountStatus) -> String {
    let TierSpent {
        moves_ns,
        faults_ns,
        own_ns,
        observing_ns,
    } = account.spent;
    let mut text = format!(
        "\npromotion saved programs about {:.0} ms; moves took {:.0} ms, hint faults {:.0}, memtide {:.0}, \
         observing {:.0}",
        ms(account.won_ns),
        ms(moves_ns),
        ms(faults_ns),
        ms(own_ns),
        ms(observing_ns)
    );
    let latencies = account.latencies_ns.iter();
    let latencies: Vec<_> = latencies
        .map(|(node, ns)| format!("n{node} {ns} ns"))
        .collect();
    if !latencies.is_empty() {
        text += &format!("; at the end nodes answer after {}", latencies.join(", "));
    }
    text
}

fn sentences(printer: &Printer, status: &Status, why: &str) -> String {
    let TierStatus {
        top_pages,
        lower_pages,
        pgpromote_success,
        pgdemote_proactive,
        demoted_idle_pages,
        returned_pages,
        passes,
        kernel_cpu,
        account,
        ..
    } = status.tiering.clone().unwrap_or_default();
    let idle = |pages| format!("; {} of it idle for long", printer.size(pages));
    let idle = demoted_idle_pages.map(idle).unwrap_or_default();
    let seconds = |time: Duration| time.as_secs_f64();
    let elapsed = status.at_ms as f64 / 1000.0;
    let share = |time: Duration| 100.0 * seconds(time) / elapsed.max(0.001);
    format!(
        "{} after {elapsed:.1} s: promoted {} (pgpromote_success {}), demoted {} \
         (pgdemote_proactive {}{}), returned within two minutes {}, not movable {}\n\
         managed processes hold {} on fast nodes and {} on slow ones\n\
         CPU time: memtide {:.2} s ({:.1} %), the kernel observing for it {:.2} s ({:.1} %); \
         {} looks, {} reports lost{}",
        outside(why),
        printer.size(pgpromote_success),
        pgpromote_success,
        printer.size(pgdemote_proactive),
        pgdemote_proactive,
        idle,
        printer.size(returned_pages),
        printer.size(status.failed_pages),
        printer.size(top_pages),
        printer.size(lower_pages),
        seconds(status.cpu),
        share(status.cpu),
        seconds(kernel_cpu),
        share(kernel_cpu),
        passes,
        status.lost,
        account.as_ref().map(self::account).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::outside::{HOSTILE, shows_hostile};
    use memtide_core::units::PageSize;

    /// What ended the run is ours today; whoever adds a name to it need not think of this.
    #[test]
    fn what_others_chose_is_written_out() {
        let printer = Printer::new(false, PageSize::KIB_4);
        let text = sentences(&printer, &Status::default(), HOSTILE);
        assert_eq!(text.lines().count(), 3, "{text:?}");
        assert!(shows_hostile(text.lines().next().unwrap()), "{text:?}");
    }
}
