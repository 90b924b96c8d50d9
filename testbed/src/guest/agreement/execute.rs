//! `guest execute`: a file of calls, answered by the kernel.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};

use super::calls::{Answer, Call, Sequence};
use super::cast::Cast;
use super::child::{self, Child, decode, is_for_parent, words_needed};
use super::machine::Group;
use super::sys::{self, SharedWords};
use crate::guest::sys::{die_with_parent, fork};

/// Let the kernel answer a file of calls for `memtide policy replay`
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The file; `-` is standard input
    file: PathBuf,
}

/// Answers the file, a line for each call.
///
/// # Errors
/// When the file makes no sense or the calls cannot be made.
pub fn main(options: &Options) -> Result<()> {
    let mut text = String::new();
    if options.file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text)?;
    } else {
        text = std::fs::read_to_string(&options.file)
            .with_context(|| format!("cannot read {}", options.file.display()))?;
    }
    let sequence = Sequence::parse(&text)?;
    let mut lines = String::new();
    for answer in run(&sequence)? {
        lines.push_str(&serde_json::to_string(&answer)?);
        lines.push('\n');
    }
    print!("{lines}");
    Ok(())
}

/// Has a child make the calls; must be called by a program of one thread.
///
/// # Errors
/// When the child cannot be started or dies.
pub fn run(sequence: &Sequence) -> Result<Vec<Answer>> {
    sys::without_huge_pages()?;
    let cast = Cast::new(sequence)?;
    let answers = SharedWords::new(words_needed(sequence, &cast))?;
    let group = Group::new(&format!("agreement-{}", std::process::id()))?;
    let child_event = || eventfd(0, EventfdFlags::empty());
    let (wants_parent, parent_is_done) = (child_event()?, child_event()?);
    let events = (
        rustix::io::dup(&wants_parent)?,
        rustix::io::dup(&parent_is_done)?,
    );
    let mut child = Child::new(sequence, &cast, &answers, events)?;
    let Some(pid) = start(&mut child, &parent_is_done)? else {
        unreachable!("the child ends in start()");
    };
    let parent = Parent {
        sequence,
        cast: &cast,
        answers: &answers,
        group,
        pid,
        wants_parent,
        parent_is_done,
    };
    let of_parent = parent.run()?;
    let mut of_parent = of_parent.into_iter();
    let mut at = child::first_answer(&cast);
    let calls = sequence.calls.iter().map(|line| &line.call);
    calls
        .map(|call| match is_for_parent(call) {
            true => of_parent
                .next()
                .context("an answer of the parent's is missing"),
            false => Ok(decode(&answers, &mut at, call)),
        })
        .collect()
}

/// Forks; the child waits for its parent's first word, makes the calls and ends. So do its
/// descendants.
fn start(child: &mut Child<'_>, first_word: &OwnedFd) -> Result<Option<Pid>> {
    let Some(pid) = fork()? else {
        let ready =
            die_with_parent().is_ok() && rustix::io::read(first_word, &mut [0_u8; 8]).is_ok();
        let well = ready && child.run();
        std::process::exit(i32::from(!well));
    };
    Ok(Pid::from_raw(pid))
}

struct Parent<'a> {
    sequence: &'a Sequence,
    cast: &'a Cast,
    answers: &'a SharedWords,
    group: Group,
    pid: Pid,
    wants_parent: OwnedFd,
    parent_is_done: OwnedFd,
}

impl Parent<'_> {
    /// Makes the parent's calls when their turn comes, and waits for the child's end.
    fn run(&self) -> Result<Vec<Answer>> {
        let machine = &self.sequence.machine;
        let pid = self.pid.as_raw_nonzero().get();
        self.group.write("cpuset.mems", &machine.cpuset)?;
        self.group.write("cgroup.procs", &pid.to_string())?;
        let run_on = Call::RunOn {
            node: machine.run_on,
        };
        ensure!(self.group.call(pid, &run_on)?.ret == 0, "no CPU to run on");
        child::set_pid(self.answers, 0, pid);
        let mut answers = Vec::new();
        let done = || rustix::io::write(&self.parent_is_done, &1_u64.to_ne_bytes());
        done()?;
        let calls = self.sequence.calls.iter().zip(&self.cast.roles);
        for (line, role) in calls.filter(|(line, _)| is_for_parent(&line.call)) {
            self.wait_for_turn()?;
            let pid = child::pid(self.answers, role.actor);
            answers.push(self.group.call(pid, &line.call)?);
            done()?;
        }
        let Some((_, status)) = waitpid(Some(self.pid), WaitOptions::empty())? else {
            bail!("the child did not end");
        };
        ensure!(
            status.exit_status() == Some(0),
            "the child died: {status:?}"
        );
        Ok(answers)
    }

    fn wait_for_turn(&self) -> Result<()> {
        let ended = pidfd_open(self.pid, PidfdFlags::empty())?;
        let mut both = [
            PollFd::new(&self.wants_parent, PollFlags::IN),
            PollFd::new(&ended, PollFlags::IN),
        ];
        poll(&mut both, None)?;
        ensure!(!both[0].revents().is_empty(), "the child died");
        rustix::io::read(&self.wants_parent, &mut [0_u8; 8])?;
        Ok(())
    }
}
