//! Where a process shows what its pager does, and what stands there.
//!
//! The process may be anybody's, and who looks may be root. So nothing in it is taken on
//! trust: a name in the list of its mappings is only where to look, a number of bytes
//! that does not depend on it is read there, and [`board::parse`] takes any bytes. Memory
//! can also be made to keep a reader waiting for ever, by a file system in user space. So
//! it is read by a call that can be ended meanwhile ([`other_memory`]); `all.rs` gives up who
//! does not answer.

use super::LIBRARY;
use memtide_linux::fs::proc::{Process, maps};
use memtide_linux::fs::{FsError, Root};
use memtide_linux::sys::other_memory;
use memtide_pager::board::{self, Posted, Unreadable};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// How often it is read again while it is just being written.
const TRIES: usize = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// The list of mappings is read up to here: 65,530 mappings with paths of average length
/// are a fifth of it.
const MOST_MAPS_BYTES: u64 = 64 << 20;
/// Mappings with the name that are looked at. A pager has one, and a program may have others.
const MOST_NAMED: usize = 16;

/// What was found in a process.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What it shows.
    pub posted: Posted,
    /// The numbers are not of one moment: they stayed half written.
    pub torn: bool,
    /// Since they were written; `None` where the process has another clock.
    pub last_turn_ms: Option<u64>,
}

/// A process with a pager.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Who it is.
    pub process: Process,
    /// The name of its program's file.
    pub program: String,
    /// What its pager does.
    pub seen: Seen,
}

/// What there is to say of a process.
#[derive(Debug)]
pub enum Answer {
    /// It has a pager.
    Shown(Box<Shown>),
    /// It has none.
    NoPager,
    /// It has the library of `pager run`, which shows nothing.
    Silent,
    /// It is a thread of this process.
    ThreadOf(u32),
    /// It is somebody else's, and may have one.
    Hidden,
    /// It seems to have one, and this is why it is not shown.
    NotRead(String),
    /// Its memory keeps who reads it waiting. No pager's does.
    Waits,
    /// It ended.
    Gone,
}

/// Looks at a process.
pub fn look(root: &Root, pid: u32) -> Answer {
    let answer = Process::find(root, pid)
        .map_err(Trouble::from)
        .and_then(|process| {
            let answer = read(root, process);
            // What ends meanwhile gives errors, and what comes after it has its number.
            match process.is_alive(root)? {
                true => answer,
                false => Ok(Answer::Gone),
            }
        });
    answer.unwrap_or_else(|trouble| match trouble {
        Trouble::Gone => Answer::Gone,
        Trouble::NotRead(reason) => Answer::NotRead(reason),
    })
}

/// Why a process could not be looked at.
enum Trouble {
    Gone,
    NotRead(String),
}

impl From<FsError> for Trouble {
    fn from(error: FsError) -> Trouble {
        match error {
            FsError::Gone { .. } => Trouble::Gone,
            error => Trouble::NotRead(error.to_string()),
        }
    }
}

fn read(root: &Root, process: Process) -> Result<Answer, Trouble> {
    let status = process.status(root)?;
    if let Some(of) = status.tgid.filter(|of| *of != process.pid) {
        return Ok(Answer::ThreadOf(of));
    }
    let path = root.path(format!("proc/{}/maps", process.pid));
    let list = match Maps::read(&path) {
        Ok(list) => list,
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied => return Ok(Answer::Hidden),
        Err(why) => return Err(cannot_read(&path, &why)),
    };
    // The process, as it calls itself.
    let names = status.namespace_pids.unwrap_or_default();
    let own = names.last().copied().unwrap_or(process.pid);
    let mut refused = None;
    for &address in &list.named {
        match seen(root, process.pid, address) {
            Ok(seen) if seen.posted.pid == own => return shown(root, process, seen),
            // A child that shares its parent's memory for a while (vfork) has no pager.
            Ok(_) => {}
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    if let Some(why) = refused {
        // What began another program meanwhile shows nothing there any more.
        let now = Maps::read(&path).unwrap_or_default();
        if now.named == list.named {
            return Err(why);
        }
    }
    Ok(match list.library {
        true => Answer::Silent,
        false => Answer::NoPager,
    })
}

fn cannot_read(path: &Path, why: &io::Error) -> Trouble {
    match Errno::from_io_error(why) {
        Some(Errno::NOENT | Errno::SRCH) => Trouble::Gone,
        _ => Trouble::NotRead(format!("{}: cannot read: {why}", path.display())),
    }
}

/// What of a list of mappings is of use here.
#[derive(Debug, Default)]
struct Maps {
    /// Addresses of the first mappings with the name; whether they are what it says is seen
    /// there.
    named: Vec<u64>,
    /// The library of `pager run` is loaded.
    library: bool,
}

impl Maps {
    fn read(path: &Path) -> io::Result<Maps> {
        let mut lines = BufReader::new(File::open(path)?.take(MOST_MAPS_BYTES));
        let (mut found, mut line) = (Maps::default(), Vec::new());
        while lines.read_until(b'\n', &mut line)? > 0 {
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            found.library |= text.ends_with(LIBRARY.as_bytes());
            if text.ends_with(board::MAPPED_AS.as_bytes()) && found.named.len() < MOST_NAMED {
                found.named.extend(named(&line));
            }
            line.clear();
        }
        Ok(found)
    }
}

/// The address in a line whose end is the name, unless that is the end of a path.
fn named(line: &[u8]) -> Option<u64> {
    let mapping = maps::parse(line).ok()?.into_iter().next()?;
    let name = board::MAPPED_AS.trim_end_matches(" (deleted)");
    (mapping.path.as_deref() == Some(Path::new(name))).then_some(mapping.start)
}

/// What stands at an address.
fn seen(root: &Root, pid: u32, address: u64) -> Result<Seen, Trouble> {
    let memory = root.path(format!("proc/{pid}/mem"));
    let answer = match root.is_live() {
        true => posted(address, |at, into| Ok(other_memory::read(pid, at, into)?)),
        false => File::open(&memory)
            .and_then(|file| posted(address, |at, into| file.read_exact_at(into, at))),
    };
    let (posted, torn) = answer.map_err(|why| match why.kind() {
        io::ErrorKind::PermissionDenied => Trouble::NotRead(forbidden(root)),
        _ => cannot_read(&memory, &why),
    })?;
    let posted = posted.map_err(|why| Trouble::NotRead(why.to_string()))?;
    let last_turn_ms = match has_our_clock(root, pid) {
        true => board::now_ms().checked_sub(posted.written_ms),
        false => None,
    };
    Ok(Seen {
        posted,
        torn,
        last_turn_ms,
    })
}

/// What stands at an address, and whether it is not all of one moment.
fn posted(
    address: u64,
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<(Result<Posted, Unreadable>, bool)> {
    let sequence = || {
        let mut word = [0; 8];
        read(address.saturating_add(board::SEQUENCE_AT), &mut word)?;
        io::Result::Ok(u64::from_ne_bytes(word))
    };
    let mut bytes = vec![0; board::BYTES];
    let mut tries = 0..TRIES;
    loop {
        let before = sequence()?;
        read(address, &mut bytes)?;
        let whole = before.is_multiple_of(2) && before == sequence()?;
        let posted = board::parse(&bytes);
        // Who writes it may have been stopped meanwhile: each number is right by itself.
        if (whole && posted.is_ok()) || tries.next().is_none() {
            return Ok((posted, !whole));
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
}

/// Whether a process's monotonic clock is ours: it is not that of another time namespace, or
/// another machine.
fn has_our_clock(root: &Root, pid: u32) -> bool {
    let clock = |of: &str| root.path(format!("proc/{of}/ns/time")).read_link().ok();
    root.is_live() && clock("self") == clock(&pid.to_string())
}

fn shown(root: &Root, process: Process, seen: Seen) -> Result<Answer, Trouble> {
    let program = match process.executable(root)? {
        Some(path) => {
            let name = Path::new(std::ffi::OsStr::from_bytes(&path)).file_name();
            name.unwrap_or_default().to_string_lossy().into_owned()
        }
        None => process.stat(root)?.name,
    };
    Ok(Answer::Shown(Box::new(Shown {
        process,
        program,
        seen,
    })))
}

/// What to do where memory may not be read though the list of mappings may.
fn forbidden(root: &Root) -> String {
    let scope = root.number("proc/sys/kernel/yama/ptrace_scope");
    match scope.ok().flatten().filter(|scope| *scope > 0) {
        Some(scope) => format!(
            "its memory may not be read, because kernel.yama.ptrace_scope is {scope}; run as root, \
             with CAP_SYS_PTRACE"
        ),
        None => "its memory may not be read; run as root, with CAP_SYS_PTRACE".to_owned(),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::sync::OnceLock;

    /// A machine with process 7, whose mappings and memory these are.
    pub fn machine(maps: &str, memory: &[u8]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("proc/7");
        std::fs::create_dir_all(&process).unwrap();
        // Fields 3 to 23; the last but one is the start time.
        let stat = format!("7 (x) S 1 {}100 4096\n", "0 ".repeat(17));
        for (name, bytes) in [
            ("stat", stat.as_bytes()),
            ("status", b"NSpid:\t7\t7\n"),
            ("maps", maps.as_bytes()),
            ("mem", memory),
        ] {
            std::fs::write(process.join(name), bytes).unwrap();
        }
        let root = Root::new(folder.path());
        (folder, root)
    }

    fn reason(maps: &str, memory: &[u8]) -> String {
        let (_folder, root) = machine(maps, memory);
        match look(&root, 7) {
            Answer::NotRead(reason) => reason,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn what_only_has_the_name_is_refused_with_its_reason() {
        let named = "1000-5000 rw-p 00000000 00:01 9 /memfd:memtide-pager (deleted)\n";
        let none = "what it shows under that name are no statistics of a pager";
        assert_eq!(reason(named, &[0xa5; 0x6000]), none);
        assert_eq!(reason(named, &[0; 0x6000]), none);
        // Its memory ends before the pages do.
        assert!(reason(named, &[1; 0x2000]).contains("proc/7/mem: cannot read: "));
        for others in [
            "",
            "1000-5000 rw-p 00000000 00:01 9 /x/memfd:memtide-pager (deleted)\n",
            "1000-5000 rw-p 00000000 00:01 9 /memfd:memtide-pager\n",
            "no line of that file ends in /memfd:memtide-pager (deleted)\n",
        ] {
            assert_eq!(reason(others, &[]), "NoPager", "{others}");
        }
        let (_folder, root) = machine("", &[]);
        let answer = look(&root, 8);
        assert!(matches!(answer, Answer::Gone), "{answer:?}");
    }

    /// What a pager of this process shows.
    fn board() -> Vec<u8> {
        static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
        let bytes = BYTES.get_or_init(|| {
            let pager = memtide_pager::Pager::builder().budget(16 << 20).start();
            let pager = pager.unwrap();
            pager.show_statistics(board::Counts::default, None).unwrap();
            let maps = Maps::read(Path::new("/proc/self/maps")).unwrap();
            let mut bytes = vec![0; board::BYTES];
            other_memory::read(std::process::id(), maps.named[0], &mut bytes).unwrap();
            bytes
        });
        // It may have been copied while it was written.
        with_sequence(bytes, 2)
    }

    fn with_sequence(board: &[u8], sequence: u64) -> Vec<u8> {
        let mut bytes = board.to_vec();
        bytes[board::SEQUENCE_AT as usize..][..8].copy_from_slice(&sequence.to_ne_bytes());
        bytes
    }

    /// Process 7 is another machine's name for this one.
    fn looked_at(maps: &str, memory: &[u8]) -> Answer {
        let (folder, root) = machine(maps, memory);
        let status = format!("Tgid:\t7\nNSpid:\t7\t{}\n", std::process::id());
        std::fs::write(folder.path().join("proc/7/status"), status).unwrap();
        look(&root, 7)
    }

    #[test]
    fn among_several_of_the_name_the_one_that_is_a_pagers_is_taken() {
        let (board, garbage) = (board(), [0xa5; board::BYTES]);
        let named = "1000-5000 rw-p 00000000 00:01 9 /memfd:memtide-pager (deleted)\n\
                     5000-9000 rw-p 00000000 00:01 9 /memfd:memtide-pager (deleted)\n";
        let unmapped = [0; 0x1000];
        for (first, second) in [(&garbage[..], &board[..]), (&board, &garbage)] {
            let answer = looked_at(named, &[&unmapped, first, second].concat());
            let Answer::Shown(shown) = answer else {
                panic!("{answer:?}");
            };
            let Seen {
                posted,
                torn,
                last_turn_ms,
            } = shown.seen;
            assert_eq!(
                (shown.process.pid, posted.statistics.budget_bytes),
                (7, 16 << 20)
            );
            // The other machine's clock is not ours.
            assert_eq!((last_turn_ms, posted.ended, torn), (None, false, false));
        }
        // One of another process, whose memory this one has.
        let (_folder, root) = machine(named, &[&unmapped, &garbage[..], &board].concat());
        let answer = look(&root, 7);
        assert!(matches!(answer, Answer::NotRead(_)), "{answer:?}");
    }

    #[test]
    fn what_stays_half_written_is_shown_and_told() {
        let board = with_sequence(&board(), 3);
        let named = "1000-5000 rw-p 00000000 00:01 9 /memfd:memtide-pager (deleted)\n";
        let answer = looked_at(named, &[&[0; 0x1000], &board[..]].concat());
        assert!(
            matches!(&answer, Answer::Shown(shown) if shown.seen.torn),
            "{answer:?}"
        );
    }

    #[test]
    fn a_thread_and_a_process_whose_library_shows_nothing_are_told() {
        let library = "1000-5000 r-xp 00000000 08:01 9 /usr/lib/libmemtide_pager_preload.so\n";
        let (folder, root) = machine(library, &[]);
        let answer = look(&root, 7);
        assert!(matches!(answer, Answer::Silent), "{answer:?}");
        std::fs::write(folder.path().join("proc/7/status"), "Tgid:\t6\n").unwrap();
        let answer = look(&root, 7);
        assert!(matches!(answer, Answer::ThreadOf(6)), "{answer:?}");
    }

    #[test]
    fn who_may_not_read_is_told_why() {
        let (folder, root) = machine("", &[]);
        assert_eq!(
            forbidden(&root),
            "its memory may not be read; run as root, with CAP_SYS_PTRACE"
        );
        let yama = folder.path().join("proc/sys/kernel/yama");
        std::fs::create_dir_all(&yama).unwrap();
        std::fs::write(yama.join("ptrace_scope"), "1\n").unwrap();
        assert_eq!(
            forbidden(&root),
            "its memory may not be read, because kernel.yama.ptrace_scope is 1; run as root, \
             with CAP_SYS_PTRACE"
        );
    }
}
