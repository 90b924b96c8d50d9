//! Why a world cannot go on.

use super::SourceId;
use serde::{Deserialize, Serialize};

/// What ends a run, or the use of one source. That a process ended is none of
/// these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorldError {
    /// A source broke, or does not begin. Others may go on.
    #[error("{what}")]
    Source {
        /// Which.
        source_id: SourceId,
        /// What happened, with the source's name, and what to do.
        what: String,
    },
    /// We may not look at a process.
    #[error(
        "process {pid}: not allowed to look at its pages: run as root, or with CAP_SYS_PTRACE, CAP_SYS_NICE and CAP_DAC_READ_SEARCH"
    )]
    NotPermitted {
        /// The process.
        pid: u32,
    },
    /// A process's pages could not be found for a reason that is not expected.
    #[error("process {pid}: cannot look at its pages: {what}")]
    Survey {
        /// The process.
        pid: u32,
        /// The kernel's words.
        what: String,
    },
    /// Something of the machine's could not be read or written.
    #[error("{what}")]
    Failed {
        /// What, where, and what to do.
        what: String,
    },
}
