//! Who holds DAMON, noted where a crash leaves it.
//!
//! A process id alone would not do: ids are used again, and a file may outlive
//! the boot that it speaks of. So the boot's id and the process's start time
//! stand beside it.

use super::admin::SLOTS;
use super::knobs::KnobError;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Who holds the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// The process.
    pub pid: u32,
    /// Its start time in clock ticks since boot, so that a reused id shows.
    pub start_time: u64,
    /// How many kdamonds it made.
    pub kdamonds: u64,
    /// Modules that it turned off and means to turn on again.
    pub paused_modules: Vec<String>,
}

impl Holder {
    /// This process.
    ///
    /// # Errors
    ///
    /// `/proc` cannot be read.
    pub fn this_process(root: &Path) -> Result<Holder, KnobError> {
        let path = root.join("proc/sys/kernel/random/boot_id");
        let boot_id = std::fs::read_to_string(&path)
            .map_err(|source| KnobError::Read { path, source })?
            .trim()
            .to_owned();
        let pid = std::process::id();
        let start_time = start_time(root, pid).ok_or_else(|| KnobError::Malformed {
            path: root.join(format!("proc/{pid}/stat")),
            value: String::new(),
            expected: "a process's state with a start time",
        })?;
        Ok(Holder {
            boot_id,
            pid,
            start_time,
            kdamonds: SLOTS as u64,
            paused_modules: Vec::new(),
        })
    }

    /// Whether the process is still there.
    pub(super) fn alive(&self, root: &Path, boot_id: &str) -> bool {
        self.boot_id == boot_id && start_time(root, self.pid) == Some(self.start_time)
    }
}

/// Field 22 of `/proc/PID/stat`, counted behind the name, which may hold anything.
fn start_time(root: &Path, pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(root.join(format!("proc/{pid}/stat"))).ok()?;
    let after_name = &text[text.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The holder that the state file names.
pub(super) fn read_holder(path: &Path) -> Result<Option<Holder>, KnobError> {
    match std::fs::read_to_string(path) {
        // A file that does not parse was cut short by a crash; it vouches for nothing.
        Ok(text) => Ok(serde_json::from_str(&text).ok()),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(KnobError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}
