//! The journal: a note and a lock for each thing that is lent.

use super::{FOLDER, Kind};
use crate::files::{FolderError, Lock, Private};
use crate::fs::{FsError, Root};
use memtide_core::keys::KeysOnce;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The most that a note may say, in bytes.
const LARGEST_NOTE: u64 = 64 << 20;

/// Why the journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LentError {
    /// The folder or a file in it.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Nothing that memtide has written reads like this.
    #[error(
        "{}: not a note of memtide's ({why}); nothing is put back by it: look at it and remove it",
        path.display()
    )]
    Malformed {
        /// The note.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A note larger than any that would be read again.
    #[error("{}: a note of {bytes} bytes is too large; at most {LARGEST_NOTE}", path.display())]
    TooLarge {
        /// The note.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// A file of the kernel.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl LentError {
    /// Whether it takes more rights.
    pub fn is_denied(&self) -> bool {
        match self {
            LentError::Folder(error) => error.is_denied(),
            LentError::Fs(error) => {
                error.is_errno(rustix::io::Errno::ACCESS) || error.is_errno(rustix::io::Errno::PERM)
            }
            LentError::Malformed { .. } | LentError::TooLarge { .. } => false,
        }
    }
}

/// The note and the lock of one thing that may be lent. Holds nothing open.
#[derive(Clone, Debug)]
pub struct Journal {
    root: Root,
    kind: Kind,
}

/// The right to change what is lent, until dropped: a note without somebody who
/// holds this was left.
#[derive(Debug)]
pub struct Turn {
    _lock: Lock,
}

/// The key under which a note names its boot.
const BOOT_ID: &str = "boot_id";

impl Journal {
    /// The journal of `kind` under `root`.
    pub fn new(root: &Root, kind: Kind) -> Journal {
        Journal {
            root: root.clone(),
            kind,
        }
    }

    /// Where the note is.
    pub fn path(&self) -> PathBuf {
        self.folder().join(self.kind.note())
    }

    /// Takes the turn, unless a living memtide has it.
    ///
    /// # Errors
    ///
    /// [`LentError::Folder`].
    pub fn turn(&self) -> Result<Option<Turn>, LentError> {
        let lock = Private::make(&self.folder())?.lock(self.kind.lock())?;
        Ok(lock.map(|lock| Turn { _lock: lock }))
    }

    /// Whether a living memtide has the turn.
    ///
    /// # Errors
    ///
    /// [`LentError::Folder`].
    pub fn is_held(&self) -> Result<bool, LentError> {
        match Private::open(&self.folder())? {
            Some(folder) => Ok(folder.is_locked(self.kind.lock())?),
            None => Ok(false),
        }
    }

    /// What is noted in this boot.
    ///
    /// # Errors
    ///
    /// [`LentError::Malformed`], [`LentError::Folder`], [`LentError::Fs`] if
    /// the boot's id cannot be read.
    pub fn noted<N: DeserializeOwned>(&self) -> Result<Option<N>, LentError> {
        let Some(folder) = Private::open(&self.folder())? else {
            return Ok(None);
        };
        let Some(bytes) = folder.read(self.kind.note(), LARGEST_NOTE)? else {
            return Ok(None);
        };
        let malformed = |why: serde_json::Error| self.malformed(&why.to_string());
        let KeysOnce = serde_json::from_slice(&bytes).map_err(malformed)?;
        let mut note: Map<String, Value> = serde_json::from_slice(&bytes).map_err(malformed)?;
        let Some(Value::String(boot_id)) = note.remove(BOOT_ID) else {
            return Err(self.malformed("it names no boot"));
        };
        // The boot first: a note of another one may be of another version.
        if boot_id != self.boot_id()? {
            return Ok(None);
        }
        let note = serde_json::from_value(Value::Object(note)).map_err(malformed)?;
        Ok(Some(note))
    }

    /// The error for a note that says what memtide never notes.
    pub fn malformed(&self, why: &str) -> LentError {
        LentError::Malformed {
            path: self.path(),
            why: why.to_owned(),
        }
    }

    /// Notes `note`, whole or not at all. The caller holds the turn.
    ///
    /// # Errors
    ///
    /// Whatever it is, what was noted before stands, or `note` does.
    pub fn note(&self, note: &impl Serialize) -> Result<(), LentError> {
        let mut note = serde_json::to_value(note).expect("a note is plain data");
        note[BOOT_ID] = Value::String(self.boot_id()?);
        let bytes = note.to_string().into_bytes();
        if bytes.len() as u64 > LARGEST_NOTE {
            return Err(LentError::TooLarge {
                path: self.path(),
                bytes: bytes.len() as u64,
            });
        }
        let folder = Private::make(&self.folder())?;
        Ok(folder.replace(self.kind.note(), &bytes)?)
    }

    /// Forgets what was noted. The caller holds the turn.
    ///
    /// # Errors
    ///
    /// The note is still there, or may be after a crash.
    pub fn forget(&self) -> Result<(), LentError> {
        match Private::open(&self.folder())? {
            Some(folder) => Ok(folder.remove(self.kind.note())?),
            None => Ok(()),
        }
    }

    fn folder(&self) -> PathBuf {
        self.root.path(FOLDER)
    }

    /// Empty on a copy of a machine that has none.
    fn boot_id(&self) -> Result<String, FsError> {
        let bytes = self.root.read("proc/sys/kernel/random/boot_id")?;
        let bytes = bytes.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Note {
        value: u32,
    }

    fn machine() -> (tempfile::TempDir, Journal) {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(&Root::new(dir.path()), Kind::Damon);
        (dir, journal)
    }

    fn boot(dir: &tempfile::TempDir, id: &str) {
        let folder = dir.path().join("proc/sys/kernel/random");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("boot_id"), format!("{id}\n")).unwrap();
    }

    #[test]
    fn a_note_lasts_for_its_boot_and_until_it_is_forgotten() {
        let (dir, journal) = machine();
        boot(&dir, "one");
        assert_eq!(journal.noted::<Note>().unwrap(), None);
        journal.note(&Note { value: 7 }).unwrap();
        assert_eq!(journal.noted().unwrap(), Some(Note { value: 7 }));
        boot(&dir, "two");
        assert_eq!(journal.noted::<Note>().unwrap(), None);
        boot(&dir, "one");
        journal.forget().unwrap();
        assert_eq!(journal.noted::<Note>().unwrap(), None);
    }

    #[test]
    fn what_is_no_note_of_ours_is_said_and_kept() {
        let (dir, journal) = machine();
        journal.note(&Note { value: 7 }).unwrap();
        for text in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"boot_id":"","value":"x"}"#,
            r#"{"boot_id":"","value":7,"value":8}"#,
        ] {
            std::fs::write(journal.path(), text).unwrap();
            let error = journal.noted::<Note>().unwrap_err().to_string();
            assert!(error.contains("damon.json: not a note"), "{text}: {error}");
            assert_eq!(error.lines().count(), 1);
        }
        assert!(journal.path().exists());
        drop(dir);
    }

    #[test]
    fn there_is_one_turn() {
        let (_dir, journal) = machine();
        assert!(!journal.is_held().unwrap());
        let turn = journal.turn().unwrap().unwrap();
        assert!(journal.is_held().unwrap());
        assert!(journal.turn().unwrap().is_none());
        drop(turn);
        assert!(!journal.is_held().unwrap());
        assert!(journal.turn().unwrap().is_some());
    }
}
