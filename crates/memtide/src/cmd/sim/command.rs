//! The command that makes a report again, for those who get the report.
//!
//! It has every option that decides what is in the report, and no other: not how many runs went at once,
//! and not what the outputs were called. Files are named without their folders: whose folders they are is
//! nobody else's business, and the same report is made wherever they lie.

use super::args::RunArgs;
use crate::shared::outside;
use std::path::Path;

/// The line, in the words of a shell.
pub fn line(args: &RunArgs) -> String {
    let mut words = vec!["memtide".to_owned(), "sim".to_owned(), "run".to_owned()];
    let mut add = |option: &str, value: &str| words.extend([option.to_owned(), quoted(value)]);
    if let Some(trace) = &args.trace {
        add("--trace", &without_folder(&trace.to_string_lossy()));
    }
    if let Some(machine) = &args.machine {
        add("--machine", &without_folder(machine));
    }
    if args.seed != 1 {
        add("--seed", &args.seed.to_string());
    }
    if args.seeds != 1 {
        add("--seeds", &args.seeds.to_string());
    }
    match args.scale {
        Some(1) => add("--scale", "1"),
        Some(scale) => add("--scale", &format!("1/{scale}")),
        None => {}
    }
    for only in &args.only {
        add("--only", only);
    }
    let flags = [
        ("--check", args.check),
        ("--no-scale-error", args.no_scale_error),
    ];
    words.extend(
        flags
            .iter()
            .filter(|flag| flag.1)
            .map(|flag| flag.0.to_owned()),
    );
    let scenarios = args
        .scenarios
        .iter()
        .map(|word| quoted(&without_folder(word)));
    words.splice(3..3, scenarios);
    words.push("--report report.html".to_owned());
    words.join(" ")
}

fn without_folder(word: &str) -> String {
    let name = Path::new(word).file_name();
    name.map_or(word.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let word = outside::outside(word);
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-+=,/:@%".contains(c);
    match !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        true => word.into_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::sim::args::{Args, Command};
    use clap::{Args as _, FromArgMatches as _};

    fn of(words: &[&str]) -> String {
        let command = Args::augment_args(clap::Command::new("sim"));
        let words = ["sim", "run"].iter().chain(words);
        let matches = command.try_get_matches_from(words).unwrap();
        match Args::from_arg_matches(&matches).unwrap().command {
            Command::Run(args) => line(&args),
            _ => unreachable!("the words say run"),
        }
    }

    #[test]
    fn what_decides_the_results_is_in_it_and_folders_are_not() {
        let said = of(&[
            "a/it's.toml",
            "zipf-drift",
            "--json",
            "out",
            "--report",
            "/tmp/x.html",
            "--jobs",
            "2",
            "--seeds",
            "3",
            "--scale",
            "1/4",
            "--only",
            "a, b",
            "--yes",
            "--check",
        ]);
        assert_eq!(
            said,
            "memtide sim run 'it'\\''s.toml' zipf-drift --seeds 3 --scale 1/4 --only 'a, b' --check \
             --report report.html"
        );
        let said = of(&[
            "--trace",
            "/data/r.csv",
            "--machine",
            "zen5-cxl",
            "--seed",
            "7",
        ]);
        let expected =
            "memtide sim run --trace r.csv --machine zen5-cxl --seed 7 --report report.html";
        assert_eq!(said, expected);
    }
}
