//! The guest's one program: init, worker and victim, by its first argument.

use clap::{Parser, Subcommand};
use testbed::guest::agreement::{agree, eat, execute};
use testbed::guest::{contain, demo, init, kill_at, pace, sets, victim};

/// Plays a part in the test guest.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Do the job of this boot (started by process 1)
    Work,
    /// Do it as a service of systemd's
    Serve,
    /// Touch memory, and say which
    Victim(victim::Options),
    /// Run sets of threads whose memory lies elsewhere
    Sets(sets::Options),
    /// Show hot pages coming home
    Demo(demo::Options),
    /// Tell how long known work takes here
    Pace(pace::Options),
    /// Become a program in a container made by hand
    Contain(contain::Options),
    /// Run a program and kill it before the nth thing that it changes
    KillAt(kill_at::Options),
    Execute(execute::Options),
    Agree(agree::Options),
    Eat(eat::Options),
}

fn main() -> anyhow::Result<()> {
    if std::process::id() == 1 {
        init::main();
    }
    match Arguments::parse().part {
        Part::Work => init::work(),
        Part::Serve => init::serve(),
        Part::Victim(options) => victim::main(&options),
        Part::Sets(options) => sets::main(&options),
        Part::Demo(options) => demo::main(options),
        Part::Pace(options) => pace::main(options),
        Part::Contain(options) => contain::main(&options),
        Part::KillAt(options) => kill_at::main(&options),
        Part::Execute(options) => execute::main(&options),
        Part::Agree(options) => agree::main(&options),
        Part::Eat(options) => eat::main(&options),
    }
}
