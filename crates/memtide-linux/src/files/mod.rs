//! Files that memtide keeps and makes, and files that it is given.
//!
//! Problem. memtide runs as root, in folders that others may write to, and it
//! can be killed between any two system calls. A file that is opened by name
//! may be somebody's link to something else; one that is written in place is
//! half a file if the writer dies; one that is read whole may never end.
//!
//! Approach. Three kinds of file, each handled in one place:
//!
//! - [`Private`] is a folder of our own under `/run`: nobody else may look in,
//!   and what it holds is written whole or not at all.
//! - [`Output`] is a file that the user asked for: written beside its place,
//!   synced and renamed, never through a link of somebody else's.
//! - [`input`] reads what the user named, up to a limit.

#[cfg(any(test, feature = "testing"))]
pub mod faults;
pub mod input;
mod output;
mod private;
#[cfg(any(test, feature = "testing"))]
pub mod refusals;

pub use output::{Output, append, write};
pub use private::{FolderError, Lock, Private};

use std::io;

/// Asked before each operation that changes something or reads what was noted.
/// Tests make the nth one fail, or have the process "die" there.
pub(crate) fn step(what: &str) -> io::Result<()> {
    #[cfg(any(test, feature = "testing"))]
    faults::ask(what)?;
    #[cfg(not(any(test, feature = "testing")))]
    let _ = what;
    Ok(())
}
