//! `memtide pager status`: what the pagers of running programs do.
//!
//! A process with a pager shows its counters in its own memory
//! ([`memtide_pager::board`]). They are found and read there ([`pagers`]), without a word
//! to the process, and printed under the names that `memtide pager run --stats` has.
//! What may not be read, or is no such thing, is named with its reason and keeps nobody
//! else's from being shown.

mod print;
mod report;

use super::args::StatusArgs;
use crate::shared::context::{Context, complain};
use crate::shared::pagers::{self, Answer, Patience, look_at_all};
use anyhow::{Context as _, bail};
use memtide_linux::fs::interrupts::tlb_shootdowns;
use memtide_linux::fs::proc;
use report::{NotRead, Process, Report};
use std::collections::BTreeSet;
use std::process::ExitCode;

const HIDDEN: &str = "it may not be looked into; run as root, with CAP_SYS_PTRACE";
const NO_PAGER: &str = "it has no pager: memtide pager run did not start it";
const SILENT: &str = "it has the pager's library, which shows nothing: no file of --files was \
                      mapped, MEMTIDE_PAGER_STATUS is off, fork did not make the process, or its \
                      standard error says why";

/// Runs the command.
pub fn run(args: &StatusArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let asked_for: BTreeSet<u32> = args.pids.iter().copied().collect();
    let named = !asked_for.is_empty();
    let pids = match named {
        true => asked_for,
        false => {
            let all = proc::list(&context.root)?.into_iter();
            let programs = all.filter(|listed| !listed.stat.kernel_thread);
            programs.map(|listed| listed.process.pid).collect()
        }
    };
    let report = gather(pids, named, context)?;
    let nothing = report.processes.is_empty() && report.not_read.is_empty();
    if nothing && report.left_out_processes == 0 {
        let hidden = match report.hidden_processes {
            0 => String::new(),
            n => format!(" ({})", print::hidden(n)),
        };
        bail!("no program is seen to have a pager{hidden}; memtide pager run starts one");
    }
    match context.json {
        true => context.print_json(&report)?,
        false => {
            for not_read in &report.not_read {
                complain(&format!("process {}: {}", not_read.pid, not_read.reason));
            }
            if report.left_out_processes > 0 {
                complain(&format!(
                    "{} processes were not looked at, because others kept this command waiting; \
                     ask for them by their ids",
                    report.left_out_processes
                ));
            }
            context.print(&print::text(&report, context.styled))?;
        }
    }
    // One that was not asked for by its number may be anybody's, and play tricks.
    let fine = match named {
        true => report.not_read.is_empty() && report.left_out_processes == 0,
        false => !report.processes.is_empty(),
    };
    Ok(if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Looks at every process. That one has no pager is worth a word if it was `named`.
fn gather(pids: BTreeSet<u32>, named: bool, context: &Context) -> anyhow::Result<Report> {
    let pids = pids.into_iter().collect();
    let looked = look_at_all(&context.root, pids, Patience::default())
        .context("no thread can be started to look at processes")?;
    let mut report = Report {
        left_out_processes: looked.left_out,
        ..Report::default()
    };
    let shootdowns = tlb_shootdowns(&context.root).ok().flatten();
    for (pid, answer) in looked.answers {
        let reason = match answer {
            Answer::Shown(process) => {
                report.processes.push(Process::new(*process, shootdowns));
                continue;
            }
            Answer::NotRead(reason) => reason,
            Answer::Waits => pagers::WAITS.to_owned(),
            Answer::Hidden if !named => {
                report.hidden_processes += 1;
                continue;
            }
            _ if !named => continue,
            Answer::Hidden => HIDDEN.to_owned(),
            Answer::NoPager => NO_PAGER.to_owned(),
            Answer::Silent => SILENT.to_owned(),
            Answer::ThreadOf(of) => format!("it is a thread of process {of}; ask for that one"),
            Answer::Gone => "there is no such process".to_owned(),
        };
        report.not_read.push(NotRead { pid, reason });
    }
    Ok(report)
}
