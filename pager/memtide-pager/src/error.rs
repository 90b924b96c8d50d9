//! What can go wrong, in one line each.

use rustix::io::Errno;
use std::path::PathBuf;

/// Why the pager could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that cannot be.
    #[error("{name} {value}: {advice}")]
    Setting {
        /// Which one.
        name: &'static str,
        /// What was given.
        value: String,
        /// What to give.
        advice: String,
    },
    /// A file that could not be opened, looked at or mapped.
    #[error("{path}: cannot {what}: {errno}")]
    File {
        /// Its path, or `fd N` for one that was given open.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The kernel's reason.
        errno: Errno,
    },
    /// Data with nothing in it.
    #[error("{0}: has no bytes; nothing to serve")]
    Empty(PathBuf),
    /// The data no longer is what it was when it was opened.
    #[error("{path}: {what} since it was opened; close it and open it again")]
    Changed {
        /// Its path.
        path: PathBuf,
        /// How it changed.
        what: String,
    },
    /// The data could not be read.
    #[error("{path}: reading {bytes} bytes at {offset}: {reason}")]
    Read {
        /// Its path or the name of its source.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// How many.
        bytes: usize,
        /// Why.
        reason: std::io::Error,
    },
    /// A mapping that the pager cannot take care of.
    #[error("mapping at {address:#x}, {bytes} bytes: {reason}")]
    NotAdoptable {
        /// Its first byte.
        address: usize,
        /// Its length.
        bytes: usize,
        /// What speaks against it.
        reason: String,
    },
    /// Userfaultfd, which the strict mode needs, is not to be had.
    #[error("userfaultfd: {errno}; {advice}")]
    Userfaultfd {
        /// The kernel's reason.
        errno: Errno,
        /// What grants it.
        advice: &'static str,
    },
    /// The kernel refuses the memory policy.
    #[error("memory policy {policy}: {errno}; {advice}")]
    MemoryPolicy {
        /// The policy, as it is written.
        policy: String,
        /// The kernel's reason.
        errno: Errno,
        /// What to do.
        advice: &'static str,
    },
    /// The mode does not serve this.
    #[error("{what}: only in strict mode; build the pager with Mode::Strict")]
    StrictOnly {
        /// What was asked.
        what: &'static str,
    },
    /// A thread that could not be started.
    #[error("cannot start the {name} thread: {reason}")]
    Thread {
        /// What it is for.
        name: &'static str,
        /// Why not.
        reason: std::io::Error,
    },
    /// A limit of the process.
    #[error("{what}: {errno}; {advice}")]
    Limit {
        /// What was tried.
        what: &'static str,
        /// The kernel's reason.
        errno: Errno,
        /// Which limit to raise.
        advice: &'static str,
    },
    /// Regions that need the evictor are still open.
    #[error("{0} strict regions are still open; drop them before shutting down")]
    RegionsOpen(usize),
    /// The process was forked; the evictor stayed with the parent.
    #[error("this process was forked from the pager's; start a pager of its own")]
    Forked,
    /// No copies are kept on the nodes where files are read.
    #[error("copies on each node: {0}")]
    NotLocal(String),
    /// The pager was shut down.
    #[error("the pager was shut down; start another")]
    ShutDown,
}

impl Error {
    pub(crate) fn setting(
        name: &'static str,
        value: impl std::fmt::Display,
        advice: impl Into<String>,
    ) -> Error {
        Error::Setting {
            name,
            value: value.to_string(),
            advice: advice.into(),
        }
    }
}
