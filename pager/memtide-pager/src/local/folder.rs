//! How processes of one user find each other's copies.
//!
//! Copies have no names. So each node has a note in a folder of memtide's own, a line for each
//! process and copy: which version of which file, and under which number of which thread the copy
//! is open. Who needs one opens it there, by procfs, where the kernel lets nobody but this user.
//! A line is only a hint: what is opened is checked, and a line that leads nowhere is removed.
//! A process that is killed leaves its lines behind and nothing else.
//!
//! The lock of a node ([`Turn`]) is held while copies are looked for, made and filled. So there is
//! one copy of a version on a node, and their sizes add up to the budget at most. It ends with its
//! process.

use super::copy::{Copy, MemoryFile, Seen, seen};
use super::version::Version;
use memtide_core::units::NodeId;
use memtide_linux::files::{FolderError, Lock, Private};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A note that is larger was not written by us: 10,000 copies have less.
const LONGEST_NOTE: u64 = 4 << 20;
/// Numbers in a line.
const NUMBERS: usize = 12;

/// Where processes of this user find each other, for one purpose.
pub(crate) fn path_of_user(purpose: &str) -> PathBuf {
    let user = rustix::process::geteuid();
    match user.is_root() {
        true => format!("/run/memtide-{purpose}").into(),
        // Where every user may make a folder and memory files are at home; one that another user
        // made is refused.
        false => format!("/dev/shm/memtide-{purpose}-{}", user.as_raw()).into(),
    }
}

/// The folder.
#[derive(Debug)]
pub(crate) struct Folder {
    private: Private,
    /// What tells of a descriptor in procfs: [`seen`].
    look: Look,
}

type Look = fn(&Path) -> io::Result<Option<Seen>>;

/// A line of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    version: Version,
    process: u32,
    thread: u32,
    number: u32,
    memory: MemoryFile,
}

impl Line {
    fn path(&self) -> PathBuf {
        let Line {
            process,
            thread,
            number,
            ..
        } = self;
        format!("/proc/{process}/task/{thread}/fd/{number}").into()
    }

    /// Memory of the copy, in bytes; `None` if it is not open there.
    ///
    /// Where the kernel does not tell, it is taken for open and for as large as it may be, because
    /// its memory counts. So a line whose process's number another user's process has by now counts
    /// until that one ends, too.
    fn bytes(&self, look: Look) -> Option<u64> {
        match look(&self.path()) {
            Ok(seen) => seen
                .filter(|seen| seen.memory == self.memory)
                .map(|seen| seen.bytes),
            Err(_) => Some(self.version.bytes),
        }
    }

    fn text(&self) -> String {
        let mut numbers = self.version.words().to_vec();
        let (device, inode) = self.memory;
        let rest = [self.process, self.thread, self.number].map(u64::from);
        numbers.extend(rest);
        numbers.extend([device, inode]);
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        words.join(" ") + "\n"
    }

    fn parse(text: &str) -> Option<Line> {
        let numbers: Option<Vec<u64>> = text
            .split_ascii_whitespace()
            .map(|word| word.parse().ok())
            .collect();
        let numbers: [u64; NUMBERS] = numbers?.try_into().ok()?;
        let [.., process, thread, number, device, inode] = numbers;
        let mut version = [0; 7];
        version.copy_from_slice(&numbers[..7]);
        Some(Line {
            version: Version::from_words(version),
            process: u32::try_from(process).ok()?,
            thread: u32::try_from(thread).ok()?,
            number: u32::try_from(number).ok()?,
            memory: (device, inode),
        })
    }
}

/// A node's lock, and what its note says.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    folder: &'a Folder,
    _lock: Lock,
    node: NodeId,
    /// As they are written.
    noted: Vec<Line>,
    /// Those that lead somewhere, or may.
    lines: Vec<Line>,
}

impl Folder {
    /// Makes it if it is not there.
    pub fn open(path: &Path) -> Result<Folder, FolderError> {
        Private::make(path).map(|private| Folder {
            private,
            look: seen,
        })
    }

    /// The node's turn; `None` while another process has it.
    pub fn turn(&self, node: NodeId) -> Result<Option<Turn<'_>>, FolderError> {
        let Some(lock) = self.private.lock(&format!("node{node}.lock"))? else {
            return Ok(None);
        };
        let bytes = self
            .private
            .read(&note(node), LONGEST_NOTE)?
            .unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        // A line that makes no sense is one that leads nowhere.
        let noted: Vec<Line> = text.lines().filter_map(Line::parse).collect();
        let mut lines = noted.clone();
        lines.retain(|line| line.bytes(self.look).is_some());
        Ok(Some(Turn {
            folder: self,
            _lock: lock,
            node,
            noted,
            lines,
        }))
    }
}

impl Folder {
    /// Says to all processes that somebody reads much on the node that has no room in copies there.
    /// `since_boot` is the machine's time now.
    pub fn want(&self, node: NodeId, since_boot: Duration) -> Result<(), FolderError> {
        let text = format!("{}\n", since_boot.as_millis());
        self.private.replace(&wish(node), text.as_bytes())
    }

    /// Takes that back. Who else wants room says so again.
    pub fn no_longer_want(&self, node: NodeId) {
        // What stays is old soon.
        let _ = self.private.remove(&wish(node));
    }

    /// When that was said last.
    pub fn wanted(&self, node: NodeId) -> Option<Duration> {
        let bytes = self.private.read(&wish(node), 32).ok()??;
        let text = std::str::from_utf8(&bytes).ok()?;
        text.trim_end().parse().ok().map(Duration::from_millis)
    }
}

fn wish(node: NodeId) -> String {
    format!("node{node}.wanted")
}

fn note(node: NodeId) -> String {
    format!("node{node}.copies")
}

impl Turn<'_> {
    /// A copy of this version that another process has, opened.
    pub fn find(&self, version: &Version) -> Option<Copy> {
        let of_it = self.lines.iter().filter(|line| line.version == *version);
        let mut opened = of_it
            .filter_map(|line| Copy::open(&line.path(), line.memory, *version, self.node).ok());
        opened.next()
    }

    /// The copies on the node that are not among `known`, opened, whoever has them.
    pub fn others(&self, known: &BTreeSet<MemoryFile>) -> Vec<Copy> {
        let lines = self
            .lines
            .iter()
            .filter(|line| !known.contains(&line.memory));
        let by_memory: BTreeMap<MemoryFile, Vec<&Line>> =
            lines.fold(BTreeMap::new(), |mut all, line| {
                all.entry(line.memory).or_default().push(line);
                all
            });
        let open =
            |line: &&Line| Copy::open(&line.path(), line.memory, line.version, self.node).ok();
        by_memory
            .values()
            .filter_map(|lines| lines.iter().find_map(open))
            .collect()
    }

    /// Notes that thread `thread` of this process has `copy` open.
    pub fn add(&mut self, copy: &Copy, thread: u32) -> Result<(), FolderError> {
        self.lines.push(Line {
            version: copy.version,
            process: std::process::id(),
            thread,
            number: copy.number().cast_unsigned(),
            memory: copy.memory,
        });
        self.write()
    }

    /// Removes the lines of this process about `memory`, or all of them.
    pub fn remove(&mut self, memory: Option<MemoryFile>) -> Result<(), FolderError> {
        let own = std::process::id();
        self.lines.retain(|line| {
            line.process != own || memory.is_some_and(|memory| line.memory != memory)
        });
        self.write()
    }

    /// Memory of all copies on the node, in bytes.
    pub fn bytes(&self) -> u64 {
        let look = self.folder.look;
        let copies: BTreeMap<MemoryFile, &Line> =
            self.lines.iter().map(|line| (line.memory, line)).collect();
        copies.values().filter_map(|line| line.bytes(look)).sum()
    }

    fn write(&mut self) -> Result<(), FolderError> {
        if self.lines == self.noted {
            return Ok(());
        }
        let name = note(self.node);
        match self.lines.is_empty() {
            true => self.folder.private.remove(&name)?,
            false => {
                let text: String = self.lines.iter().map(Line::text).collect();
                self.folder.private.replace(&name, text.as_bytes())?;
            }
        }
        self.noted.clone_from(&self.lines);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_linux::files::Private;

    fn version(bytes: u64) -> Version {
        Version {
            file: (1, 2),
            bytes,
            written: (-3, 4),
            changed: (5, 6),
        }
    }

    fn copy(bytes: u64) -> Copy {
        Copy::make(version(bytes), NodeId(0), |_, _| Ok(())).unwrap()
    }

    fn thread() -> u32 {
        rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .cast_unsigned()
    }

    fn folder() -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(&place.path().join("local")).unwrap();
        (place, folder)
    }

    #[test]
    fn a_line_is_read_as_it_is_written() {
        let line = Line {
            version: version(7),
            process: 8,
            thread: 9,
            number: 10,
            memory: (11, 12),
        };
        assert_eq!(Line::parse(&line.text()), Some(line));
        for wrong in ["", "1 2 3", "a b c d e f g h i j k l"] {
            assert_eq!(Line::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_copy_is_found_by_its_version_and_counted_once() {
        let (_place, folder) = folder();
        let copy = copy(4096);
        let mut turn = folder.turn(NodeId(0)).unwrap().unwrap();
        turn.add(&copy, thread()).unwrap();
        // A second process that has it, as this one might.
        let again = turn.find(&version(4096)).expect("noted");
        turn.add(&again, thread()).unwrap();
        assert_eq!(again.memory, copy.memory);
        assert!(turn.find(&version(4097)).is_none());
        assert_eq!(turn.bytes(), 4096, "the header's page, of one copy");
        // While it lasts, nobody else has a turn on this node.
        assert!(folder.turn(NodeId(0)).unwrap().is_none());
        assert!(folder.turn(NodeId(1)).unwrap().is_some());
        drop(turn);
        let mut turn = folder.turn(NodeId(0)).unwrap().unwrap();
        assert_eq!(turn.lines.len(), 2);
        turn.remove(None).unwrap();
        assert!(folder.private.read(&note(NodeId(0)), 10).unwrap().is_none());
    }

    #[test]
    fn what_the_dead_left_is_removed_with_the_next_word() {
        let (_place, folder) = folder();
        let (gone, stays) = (copy(4096), copy(8192));
        let mut turn = folder.turn(NodeId(0)).unwrap().unwrap();
        turn.add(&gone, thread()).unwrap();
        drop((gone, turn));
        let mut turn = folder.turn(NodeId(0)).unwrap().unwrap();
        assert!(turn.find(&version(4096)).is_none());
        turn.add(&stays, thread()).unwrap();
        drop(turn);
        let turn = folder.turn(NodeId(0)).unwrap().unwrap();
        assert_eq!(turn.noted.len(), 1);
        assert_eq!(turn.lines[0].version, version(8192));
    }

    /// As of a process that is not dumpable any more: nobody can open its copy, which has its memory
    /// all the same.
    #[test]
    fn what_the_kernel_does_not_tell_of_is_kept_and_counts() {
        let (_place, mut folder) = folder();
        let (hidden, own) = (copy(4096), copy(8192));
        let mut turn = folder.turn(NodeId(0)).unwrap().unwrap();
        turn.add(&hidden, thread()).unwrap();
        drop((hidden, turn));
        folder.look = |_| Err(io::ErrorKind::PermissionDenied.into());
        let mut turn = folder.turn(NodeId(0)).unwrap().unwrap();
        assert_eq!(turn.bytes(), 4096, "all of the file may be in it");
        assert!(turn.find(&version(4096)).is_none());
        turn.add(&own, thread()).unwrap();
        drop(turn);
        let turn = folder.turn(NodeId(0)).unwrap().unwrap();
        assert_eq!(turn.noted.len(), 2);
        drop(turn);
        folder.look = seen;
        assert_eq!(folder.turn(NodeId(0)).unwrap().unwrap().lines.len(), 1);
    }

    #[test]
    fn a_note_that_makes_no_sense_is_no_copy() {
        let (place, folder) = folder();
        let private = Private::make(&place.path().join("local")).unwrap();
        private
            .replace(&note(NodeId(0)), b"1 2\n\xff\nx\n")
            .unwrap();
        let turn = folder.turn(NodeId(0)).unwrap().unwrap();
        assert!(turn.find(&version(1)).is_none());
        assert_eq!(turn.bytes(), 0);
    }
}
