//! The repository's own chores; `cargo xtask help` lists them.

use clap::{Parser, Subcommand};

mod book;
mod dist;
mod fuzz;
mod guest;
mod lab;
mod pager_programs;
mod random_programs;
mod reproduction;
mod swarm;
mod test;

/// memtide's chores: boot guests, run the tests, fetch what they need.
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Boot a guest for one command, or for a shell on this terminal
    Lab(lab::Arguments),
    /// Run every check: format, lints, unit and documentation tests, loom, guests on both kernels
    Test(test::Arguments),
    /// Show a program's hot pages moving to DRAM, second by second
    Demo(lab::DemoArguments),
    /// Run the end-to-end tests in guests
    Guest(guest::Arguments),
    /// Build the fuzz targets and run each for a while; needs a C++ compiler
    Fuzz(fuzz::Arguments),
    /// Run random programs with the preloaded pager and without it, and compare
    RandomPrograms(random_programs::Arguments),
    /// Run every published experiment on the simulated machine and rewrite docs/reproduction.md's
    /// tables; with --release, or it takes an hour
    Reproduction(reproduction::Arguments),
    /// Compare real programs with no limit, under the kernel's cgroup and with the pager
    PagerPrograms(pager_programs::Arguments),
    /// Run the loop over machines, programs, options and faults that seeds draw
    Swarm(swarm::Arguments),
    /// Build the book, searched offline; needs mdbook
    Book,
    /// Build the static binary, packages, bill of materials, licences and checksums
    Dist(dist::Arguments),
    /// Fetch QEMU, both kernels and the guest's programs (once; later runs do nothing)
    Fetch,
}

fn main() {
    let result = match Arguments::parse().chore {
        Chore::Lab(arguments) => lab::run(&arguments),
        Chore::Test(arguments) => test::run(&arguments),
        Chore::Demo(arguments) => lab::demo(&arguments),
        Chore::Guest(arguments) => guest::run(&arguments),
        Chore::Fuzz(arguments) => fuzz::run(&arguments),
        Chore::RandomPrograms(arguments) => random_programs::run(&arguments),
        Chore::Reproduction(arguments) => reproduction::run_chore(&arguments),
        Chore::PagerPrograms(arguments) => pager_programs::run(&arguments),
        Chore::Swarm(arguments) => swarm::run(&arguments),
        Chore::Book => book::run(),
        Chore::Dist(arguments) => dist::run(&arguments),
        Chore::Fetch => lab::fetch().map(|()| 0),
    };
    match result {
        Ok(status) => std::process::exit(status),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            std::process::exit(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The lines of pages that begin with our name, and the words between backticks that do.
    fn shown(folder: &Path, lines: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && folder.ends_with("docs") {
                shown(&path, lines);
            } else if path.extension().is_some_and(|end| end == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                let pieces = text.lines().flat_map(|line| line.split('`'));
                let pieces = pieces.map(|piece| piece.trim().trim_start_matches("$ "));
                let ours = pieces.filter(|piece| piece.starts_with("cargo xtask "));
                lines.extend(ours.map(|piece| format!("{}: {piece}", path.display())));
            }
        }
    }

    #[test]
    fn chores_that_the_pages_name_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut lines = Vec::new();
        shown(&root, &mut lines);
        shown(&root.join("docs"), &mut lines);
        shown(&root.join("testbed"), &mut lines);
        assert!(lines.len() > 20, "{lines:?}");
        for line in lines {
            let command = line.split_once("cargo xtask ").unwrap().1;
            // A comment, or a column that says what it does.
            let command = command.split(" #").next().unwrap();
            let command = command.split("  ").next().unwrap();
            // Quotes hold words together; what is in them does not matter here.
            let quoted = command.split('\'').enumerate();
            let plain: String = quoted
                .map(|(at, text)| if at % 2 == 1 { "quoted" } else { text })
                .collect();
            let words = std::iter::once("xtask").chain(plain.split_whitespace());
            match Arguments::try_parse_from(words) {
                Ok(_) => {}
                Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {}
                Err(error) => panic!("{line}: {error}"),
            }
        }
    }
}
