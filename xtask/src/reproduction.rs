//! `cargo xtask reproduction`: runs every published experiment again and rewrites the tables of
//! `docs/reproduction.md`.

use anyhow::{Context, anyhow};
use memtide_sim::scenario::{Options, Quiet, coarse, reproduction::render, run, shipped};
use std::path::Path;

/// Rewrite the tables of docs/reproduction.md.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only say whether they are current
    #[arg(long)]
    check: bool,
}

/// Exit status 1 if `--check` finds a difference.
pub fn run_chore(arguments: &Arguments) -> anyhow::Result<i32> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reproduction.md");
    let document = std::fs::read_to_string(&path).context("docs/reproduction.md")?;
    let options = Options {
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        ..Options::default()
    };
    let fresh = render(&document, &mut |name| {
        eprintln!("{name}");
        let scenario = shipped(name).ok_or_else(|| format!("no scenario {name}"))?;
        let scenario = scenario.read().map_err(|error| error.to_string())?;
        run(&scenario, &options, &Quiet).map_err(|error| error.to_string())
    })
    .and_then(|document| {
        coarse::render(&document, &mut |scenario| {
            let scale = coarse::scale(scenario);
            eprintln!("{} at 1/{scale}", scenario.name);
            let options = Options {
                scale: Some(scale),
                ..options.clone()
            };
            run(scenario, &options, &Quiet).map_err(|error| error.to_string())
        })
    })
    .map_err(|error| anyhow!("docs/reproduction.md: {error}"))?;
    if fresh == document {
        return Ok(0);
    }
    if arguments.check {
        eprintln!("docs/reproduction.md is not current: run cargo xtask reproduction");
        return Ok(1);
    }
    std::fs::write(&path, fresh).context("docs/reproduction.md")?;
    Ok(0)
}
