//! `memtide pause` and `memtide resume`: whether the running service moves a class's pages.

use crate::shared::context::Context;
use crate::shared::control::client::Client;
use crate::shared::outside::outside;
use serde::Serialize;
use std::process::ExitCode;

/// Have the running service leave a class's pages where they are
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The class, as memtide status shows it
    #[arg(value_name = "CLASS")]
    class: String,
}

/// Have the running service move a paused class's pages again
#[derive(clap::Args, Debug)]
pub struct ResumeArgs {
    /// The class, as memtide status shows it
    #[arg(value_name = "CLASS")]
    class: String,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Report {
    class: String,
    paused: bool,
    changed: bool,
}

/// Runs `memtide pause`.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    ask(args.class, true, context)
}

/// Runs `memtide resume`.
pub fn resume(args: ResumeArgs, context: &Context) -> anyhow::Result<ExitCode> {
    ask(args.class, false, context)
}

fn ask(class: String, paused: bool, context: &Context) -> anyhow::Result<ExitCode> {
    let changed = Client::connect(&context.root)?.pause(&class, paused)?;
    let report = Report {
        class,
        paused,
        changed,
    };
    match context.json {
        true => context.print_json(&report)?,
        false => context.print(&text(&report))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(report: &Report) -> String {
    let what = match (report.paused, report.changed) {
        (true, true) => "paused: its pages stay where they are",
        (true, false) => "was paused already",
        (false, true) => "resumed: its pages move again",
        (false, false) => "was not paused",
    };
    format!("class {}: {what}\n", outside(&report.class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::lines::tests::{documented, keys};
    use crate::shared::outside::{HOSTILE, shows_hostile};
    use std::collections::BTreeSet;

    #[test]
    fn it_is_one_line_whatever_the_class_is_called() {
        let report = Report {
            class: HOSTILE.to_owned(),
            paused: true,
            changed: true,
        };
        let line = text(&report);
        assert!(shows_hostile(line.trim_end_matches('\n')), "{line:?}");
        let (_, documented) = documented("pause");
        let mut printed = BTreeSet::new();
        keys(&serde_json::to_value(report).unwrap(), "", &mut printed);
        let printed: BTreeSet<_> = printed.iter().map(|key| key[1..].to_owned()).collect();
        assert_eq!(documented, printed);
    }
}
