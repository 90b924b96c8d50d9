//! Why a file, or a part of it, is read where it is and not from a copy.

use serde::Serialize;

/// Each is told once, and stands in the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// Somebody has it open for writing, or the kernel does not tell whether: it is another
    /// user's, or leases are forbidden.
    Writer,
    /// It changed; its copies are of its former content.
    Changed,
    /// Its file system does not show in a file's times what another machine or a mapping wrote.
    FileSystem,
    /// It cannot be opened a second time, or is no regular file.
    Open,
    /// The copies on the node are as large as the budget.
    Budget,
    /// The node's memory is short.
    Memory,
    /// The kernel put the memory of a copy on another node.
    Elsewhere,
    /// The process has too many mappings to make more.
    Mappings,
    /// The folder through which processes find each other's copies cannot be used.
    Folder,
    /// The kernel refused something that a copy needs, or to map the file in a copy's place again.
    Kernel,
    /// The thread that makes copies failed.
    Failed,
}

impl Reason {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Reason::Writer => {
                "open for writing, or another user's, and then the kernel does not tell: it is \
                 read without a copy"
            }
            Reason::Changed => "changed: its copies were dropped",
            Reason::FileSystem => {
                "its file system does not tell of every write (only ext4, XFS, Btrfs, F2FS, \
                 EROFS and SquashFS do): it is read without a copy"
            }
            Reason::Open => "cannot be opened a second time: it is read without a copy",
            Reason::Budget => "the budget of the node is full: the rest is read without a copy",
            Reason::Memory => "the node is short of memory: it is read without a copy",
            Reason::Elsewhere => "the node gives no memory: it is read without a copy for now",
            Reason::Mappings => {
                "the process has too many mappings: the rest is read without a copy"
            }
            Reason::Folder => "copies cannot be shared, so none is made",
            Reason::Kernel => "the kernel refused a copy, or to map the file in its place",
            Reason::Failed => "the thread failed: everything is read without a copy",
        }
    }
}
