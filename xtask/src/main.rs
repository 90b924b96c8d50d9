//! The repository's own chores; `cargo xtask help` lists them.

use clap::{Parser, Subcommand};

mod book;
mod dist;
mod guest;
mod lab;
mod reproduction;
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
    /// Show a program's hot pages coming home, second by second
    Demo(lab::DemoArguments),
    /// Run the end-to-end tests in guests
    Guest(guest::Arguments),
    /// Run every published experiment on the simulated machine and rewrite docs/reproduction.md's
    /// tables; with --release, or it takes an hour
    Reproduction(reproduction::Arguments),
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
        Chore::Reproduction(arguments) => reproduction::run_chore(&arguments),
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
