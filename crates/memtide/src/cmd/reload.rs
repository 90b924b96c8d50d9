//! `memtide reload`: has the running service read its configuration again.

use crate::shared::context::Context;
use crate::shared::control::client::Client;
use crate::shared::outside;
use serde::Serialize;
use std::process::ExitCode;

/// Have the service take its configuration again, and wait until it is in force
#[derive(clap::Args, Debug)]
pub struct Args {}

/// The document of `--json`.
#[derive(Serialize)]
struct Report {
    changes: Vec<String>,
}

/// Runs the command.
pub fn run(_: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let changes = Client::connect(&context.root)?.reload()?;
    match context.json {
        true => context.print_json(&Report { changes })?,
        false => context.print(&text(&changes))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(changes: &[String]) -> String {
    match changes {
        [] => "nothing has changed\n".to_owned(),
        changes => changes
            .iter()
            .map(|change| format!("{}\n", outside::line(change)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::outside::{HOSTILE, shows_hostile};

    #[test]
    fn each_change_is_a_line() {
        assert_eq!(text(&[]), "nothing has changed\n");
        let lines = text(&["a was 1, is 2".to_owned(), HOSTILE.to_owned()]);
        let (first, second) = lines.trim_end().split_once('\n').unwrap();
        assert_eq!(first, "a was 1, is 2");
        assert!(shows_hostile(second), "{second:?}");
    }
}
