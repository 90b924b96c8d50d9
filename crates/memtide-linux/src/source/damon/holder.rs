//! Who holds DAMON, noted where a crash leaves it.
//!
//! Whether the holder still lives is told by the journal's lock; its number is
//! for people.

use super::admin::SLOTS;
use crate::fs::Root;
use crate::lent::{Journal, Kind, LentError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The one module that memtide turns off while it holds DAMON.
pub const PAUSABLE: &str = "damon_stat";

/// Who holds the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// How many kdamonds it made.
    pub kdamonds: u64,
    /// Modules that it turned off and means to turn on again.
    pub paused_modules: Vec<String>,
}

impl Holder {
    /// This process.
    pub fn this_process() -> Holder {
        Holder {
            pid: std::process::id(),
            kdamonds: SLOTS as u64,
            paused_modules: Vec::new(),
        }
    }
}

/// Where a holder under `root` is noted, and who may hold.
pub fn journal(root: &Path) -> Journal {
    Journal::new(&Root::new(root), Kind::Damon)
}

/// The holder that is noted in this boot.
///
/// # Errors
///
/// The note cannot be read, or names a module that memtide never turns off.
pub fn noted(journal: &Journal) -> Result<Option<Holder>, LentError> {
    let holder: Option<Holder> = journal.noted()?;
    if let Some(holder) = &holder
        && holder.paused_modules.iter().any(|name| name != PAUSABLE)
    {
        return Err(journal.malformed("it names a module that memtide never turns off"));
    }
    Ok(holder)
}
