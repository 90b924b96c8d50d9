//! `memtide pager run --plain`: the same program with the same budget, kept by
//! the kernel.
//!
//! The program runs in a cgroup whose limit is the budget and what it has of
//! memory besides files, looked at ten times a second: so that its files get
//! the budget, as they do from the pager, whatever else it needs. memtide stays
//! beside it and takes the cgroup away at the end.

use super::args::{EnterArgs, RunArgs};
use super::limit::Limit;
use crate::shared::context::{Context, complain};
use crate::shared::program::{Program, block, not_started};
use anyhow::{Context as _, bail};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Memory of the kernel's for a program and its page tables, and what a program
/// takes before it is looked at.
const SLACK: u64 = 16 << 20;

/// Runs the program and returns its exit status.
pub fn run(args: &RunArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let limit = match Limit::make(&context.root) {
        Ok(limit) => limit,
        Err(why) => bail!("--plain: the program's memory cannot be limited: {why}"),
    };
    limit.set(args.budget + SLACK)?;
    let signals = block()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["pager", "enter"]).arg(limit.door());
    command.arg("--").args(&args.command);
    let mut program = Program::start(&mut command, &signals).context("cannot start a process")?;
    while !program.wait(Duration::from_millis(100)) {
        // It may be gone by now; then there is nothing to limit.
        if let Ok(bytes) = limit.anonymous() {
            let _ = limit.set(args.budget + SLACK + bytes);
        }
    }
    Ok(ExitCode::from(program.ended().unwrap_or(1)))
}

/// Goes into the cgroup and becomes the program.
pub fn enter(args: &EnterArgs) -> anyhow::Result<ExitCode> {
    let door = args.procs.display();
    std::fs::write(&args.procs, "0").with_context(|| format!("{door}: cannot go in"))?;
    let error = Command::new(&args.command[0])
        .args(&args.command[1..])
        .exec();
    let (code, why) = not_started(&args.command[0].to_string_lossy(), &error);
    complain(&why);
    Ok(ExitCode::from(code))
}
