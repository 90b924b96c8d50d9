//! What `memtide pager status` tells: the document of `docs/json-pager.md`,
//! pager status.

use crate::shared::pagers::Shown;
use memtide_pager::Statistics;
use memtide_pager::board::{Counts, Figures, File};
use serde::Serialize;

/// The document.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// By process id.
    pub processes: Vec<Process>,
    /// Those that could not be read though they seem to have a pager, or were asked for.
    pub not_read: Vec<NotRead>,
    /// Processes of others, which may have pagers.
    pub hidden_processes: u64,
    /// Processes for which there was no time, because others kept the reader waiting.
    pub left_out_processes: u64,
}

/// A process with a pager.
#[derive(Debug, Serialize)]
pub struct Process {
    pub pid: u32,
    pub program: String,
    /// Since the numbers were written; `None` where the process has another clock.
    pub last_turn_ms: Option<u64>,
    /// The pager ended, and the process goes on.
    pub ended: bool,
    /// The numbers are not of one moment: they stayed half written.
    pub torn: bool,
    /// Of the whole machine since the program began.
    pub machine_shootdowns: Option<u64>,
    #[serde(flatten)]
    pub counts: Counts,
    pub pager: Statistics,
    pub files: Vec<File>,
    pub other_files: OtherFiles,
}

/// The files behind the first ones, summed.
#[derive(Debug, Serialize)]
pub struct OtherFiles {
    pub count: u64,
    #[serde(flatten)]
    pub figures: Figures,
}

/// A process of which nothing is told.
#[derive(Debug, Serialize)]
pub struct NotRead {
    pub pid: u32,
    pub reason: String,
}

impl Process {
    /// From what it shows; `shootdowns` is the machine's count now.
    pub fn new(shown: Shown, shootdowns: Option<u64>) -> Process {
        let Shown {
            process,
            program,
            seen,
        } = shown;
        let posted = seen.posted;
        let meanwhile = shootdowns.zip(posted.shootdowns_before);
        Process {
            pid: process.pid,
            program,
            last_turn_ms: seen.last_turn_ms,
            ended: posted.ended,
            torn: seen.torn,
            machine_shootdowns: meanwhile.map(|(now, then)| now.saturating_sub(then)),
            counts: posted.counts,
            pager: posted.statistics,
            files: posted.files,
            other_files: OtherFiles {
                count: posted.more_files,
                figures: posted.rest,
            },
        }
    }
}
