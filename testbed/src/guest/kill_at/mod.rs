//! A program killed right before the nth thing that it changes outside of itself.
//!
//! Kills at random moments find what lasts long. What lies between two system calls, as between a note and
//! what it speaks of, they hardly ever hit. So the program is traced: a seccomp filter has it stop before
//! each call that could change something, and only there, so that it is as fast as ever between them. What
//! stops is looked at: a write to a pipe or a socket, or a question where pages are, changes nothing and goes
//! on. What changes something is a *step*. The program is killed before the step whose number was asked for,
//! all its threads at once, as by `kill -9`.
//!
//! DAMON is told of its regions in up to thousands of writes in a row, which leave the same behind but for a
//! number. Such a *series* is one step, and `--into` says before which of its writes the kill comes; if it
//! has fewer, before the step after it.
//!
//! With `--after` steps are counted from a message on, such as a service sends to its manager when it begins
//! to stop. How many steps come before that differs from run to run, and after it hardly ever does.
//!
//! At the end one line on standard error says what was done ([`Told`]).

mod steps;
mod sys;

use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use steps::{Does, Steps, does};
use sys::Stop;

/// What the last line on standard error begins with.
const TELLS: &str = "kill-at: ";
/// Exit status of the tracer when it has killed, as a shell has it.
pub const KILLED: i32 = 128 + libc::SIGKILL;

/// Which program, and when.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Count from when it sends something that begins so
    #[arg(long, value_name = "TEXT")]
    after: Option<String>,
    /// Kill before this one of a series of writes
    #[arg(long, default_value_t = 1)]
    into: u64,
    /// Kill before this step
    step: u64,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What the tracer did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Steps that were counted.
    pub steps: u64,
    /// The call before which the program was killed, and of what; `None` if it ended by itself.
    pub killed: Option<String>,
}

impl Told {
    /// Takes the line that tells it from what came on standard error.
    ///
    /// # Errors
    /// There is none.
    pub fn take(errors: &mut Vec<String>) -> Result<Told> {
        let at = errors.iter().position(|line| line.starts_with(TELLS));
        let line = at.map(|at| errors.remove(at));
        let line = line.with_context(|| format!("the tracer told nothing: {errors:?}"))?;
        serde_json::from_str(&line[TELLS.len()..]).context(line)
    }
}

/// Runs the program; returns only on error, and otherwise ends as the program did.
///
/// # Errors
/// It cannot be started or traced.
pub fn main(options: &Options) -> Result<()> {
    let (name, arguments) = options.words.split_first().context("no program")?;
    let mut command = Command::new(name);
    command.args(arguments);
    sys::trace(&mut command);
    let child = command.spawn().with_context(|| name.clone())?;
    let program = child.id().cast_signed();
    // As it begins it stands.
    loop {
        match sys::next()? {
            Some((thread, Stop::Ended(status))) if thread == program => {
                bail!("{name} ended with {status} before it began")
            }
            Some(_) => break,
            None => {}
        }
    }
    sys::follow(program).context("cannot trace it")?;
    sys::pass_signals_to(program)?;
    sys::go_on(program, 0);
    let (status, told) = watch(options, program)?;
    eprintln!("{TELLS}{}", serde_json::to_string(&told)?);
    std::process::exit(status)
}

/// Follows the program until it has ended: its exit status, and what to tell.
fn watch(options: &Options, program: i32) -> Result<(i32, Told)> {
    let mut steps = Steps::new(options.step, options.into);
    let mut counts = options.after.is_none();
    let mut killed = None;
    loop {
        let Some((thread, stop)) = sys::next()? else {
            continue;
        };
        match stop {
            // Of the first thread the kernel tells last.
            Stop::Ended(status) if thread == program => {
                // A signal has nobody to be passed on to.
                sys::pass_signals_to(0)?;
                let told = Told {
                    steps: steps.counted(),
                    killed,
                };
                return Ok((status, told));
            }
            Stop::Ended(_) => {}
            Stop::Signal(signal) => sys::go_on(thread, signal),
            Stop::Other => sys::go_on(thread, 0),
            Stop::Call => {
                // One that was killed does not come to its call.
                if killed.is_some() {
                    continue;
                }
                match about(thread)? {
                    Some(Does::Sends(text)) => {
                        counts |=
                            (options.after.as_ref()).is_some_and(|sign| text.starts_with(sign));
                    }
                    Some(Does::Changes(what)) if counts && steps.is_due(&what) => {
                        killed = Some(what);
                        sys::kill(program);
                        continue;
                    }
                    Some(Does::Changes(_)) | None => {}
                }
                sys::go_on(thread, 0);
            }
        }
    }
}

/// What the call does that a standing thread is about to make.
fn about(thread: i32) -> Result<Option<Does>> {
    let (number, arguments) = match sys::call(thread) {
        Ok(call) => call,
        // Killed by somebody else.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error).context("cannot see the call"),
    };
    match does(Path::new(&format!("/proc/{thread}")), number, arguments) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        does => does.with_context(|| format!("call {number} of thread {thread}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_taken_from_among_others() {
        let told = |killed: Option<&str>| Told {
            steps: 3,
            killed: killed.map(str::to_owned),
        };
        for told in [told(None), told(Some("write /sys/a"))] {
            let line = format!("{TELLS}{}", serde_json::to_string(&told).unwrap());
            let mut lines = vec!["one".to_owned(), line, "two".to_owned()];
            assert_eq!(Told::take(&mut lines).unwrap(), told);
            assert_eq!(lines, ["one", "two"]);
            assert!(Told::take(&mut lines).is_err());
        }
    }
}
