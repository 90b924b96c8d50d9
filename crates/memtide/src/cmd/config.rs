//! `memtide config`: the service's configuration, as it comes and as it is.

use crate::shared::configuration::{Configuration, DEFAULT, Files, Row};
use crate::shared::context::{BadUsage, Context};
use crate::shared::outside::causes;
use clap::ArgGroup;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the service's default configuration, or the one in force
#[derive(clap::Args, Debug)]
#[command(group = ArgGroup::new("what").required(true))]
pub struct Args {
    /// Print the commented file that packages install
    #[arg(long, group = "what")]
    default: bool,

    /// Print every value that the files give, and which file each is from
    #[arg(long, group = "what")]
    show: bool,

    /// The main file; drop-ins are in FILE.d [default: /etc/memtide/memtide.toml]
    #[arg(long, value_name = "FILE", conflicts_with = "default")]
    config: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    if args.default {
        if context.json {
            let why = "--default prints a file in TOML; leave --json out, or use --show";
            return Err(BadUsage(why.to_owned()).into());
        }
        context.print(DEFAULT)?;
        return Ok(ExitCode::SUCCESS);
    }
    let files = Files::new(args.config.as_deref(), &context.root);
    let read = files.read();
    let (configuration, _) = read.map_err(|error| BadUsage(causes(&error)))?;
    match context.json {
        true => context.print_json(&configuration.rows())?,
        false => context.print(&shown(&configuration))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// As a file would say it, with the origin behind each value.
fn shown(configuration: &Configuration) -> String {
    let rows = configuration.rows();
    let line = |row: &Row| match row.value.is_null() {
        true => format!("# {} is not set", row.key),
        false => format!("{} = {}", row.key, row.text()),
    };
    let width = rows.iter().map(|row| line(row).chars().count()).max();
    let mut text = String::new();
    let mut table = "";
    for row in &rows {
        if row.table != table {
            let gap = if table.is_empty() { "" } else { "\n" };
            table = &row.table;
            let _ = writeln!(text, "{gap}[{table}]");
        }
        let _ = match row.value.is_null() {
            true => writeln!(text, "{}", line(row)),
            false => writeln!(
                text,
                "{:width$}  # {}",
                line(row),
                row.origin(),
                width = width.unwrap_or(0)
            ),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::configuration::{Layer, read};

    #[test]
    fn what_is_shown_is_a_file_with_the_same_values() {
        let layer = |file: &str, text: &str| Layer {
            file: file.to_owned(),
            text: text.to_owned(),
        };
        let one = read(&[
            layer("/a.toml", "[tier]\nwindow = '2s'\nobserve_cpu = 7\n"),
            layer("/a.toml.d/b.toml", "[select]\ncgroup = '/x \"y\"'\n"),
            layer(
                "/a.toml.d/c.toml",
                "[class.db]\ncgroup = '/db'\nfast.high = '50%'\n",
            ),
        ])
        .unwrap();
        let text = shown(&one);
        assert!(text.contains("window = \"2s\""), "{text}");
        assert!(text.contains("  # /a.toml:2:10\n"), "{text}");
        assert!(text.contains("  # /a.toml.d/b.toml:2:10\n"), "{text}");
        assert!(text.contains("  # default\n"), "{text}");
        assert!(text.contains("# listen is not set\n"), "{text}");
        assert!(text.contains("[class.db]\n"), "{text}");
        assert!(text.contains("fast.high = \"50%\""), "{text}");
        assert!(text.contains("# fast.low is not set\n"), "{text}");
        let again = read(&[layer("again", &text)]).unwrap();
        assert_eq!(again.settings, one.settings);
    }
}
