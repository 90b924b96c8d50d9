//! What the library says: a line when it cannot do what it was asked, and a
//! report when the program ends.
//!
//! A program that ends by `_exit` or a signal reports nothing.

use super::section::{errno, section};
use super::{fork, home, state};
use crate::reasons::Reason;
use crate::report::Report;
use crate::settings::Stats;
use memtide_linux::files;
use memtide_linux::text::one_line;
use memtide_pager::Pager;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs when the library is loaded, before the program's `main`.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
#[cfg_attr(test, expect(dead_code))]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    section(|| {
        if state::settings().is_none() {
            return;
        }
        home::settle();
        fork::watch();
        crate::report::begin();
        // SAFETY: a function that lives as long as this library.
        unsafe { libc::atexit(at_end) };
    });
}

extern "C" fn at_end() {
    section(|| {
        let settings = state::settings()?;
        let (report, part, local) = {
            let inner = state::lock()?;
            let report = Report::now(inner.pager_now(), inner.local_now());
            let part = inner.pager_now().map(Pager::part);
            (report, part, inner.local_now().cloned())
        };
        // What others find of this process is taken back; the lock is not held for that.
        if let Some(part) = part {
            part();
        }
        if let Some(local) = local {
            local.end();
        }
        let report = report?;
        match &settings.stats {
            None if report.nothing_matched() && !had_children() => say(&report.sentence()),
            None => {}
            Some(Stats::Stderr) => say(&report.sentence()),
            Some(Stats::StderrJson) => put(report.json().as_bytes()),
            Some(Stats::File(path)) => {
                let added = files::append(path)
                    .and_then(|mut file| file.write_all(report.json().as_bytes()));
                if let Err(why) = added {
                    say(&format!("{}: cannot add the report: {why}", path.display()));
                }
            }
        }
        Some(())
    });
}

/// Whether the process waited for children, which may have mapped what it did not.
fn had_children() -> bool {
    // SAFETY: the kernel fills the struct, for which all zeros are a value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    usage.ru_minflt > 0
}

/// Says, for the first time in this process, why a mapping of `file` is not kept.
pub fn left_out(file: &Path, reason: Reason) {
    // The pager's own reason is said where it refuses.
    if reason.meet() && reason != Reason::Pager {
        say(&format!(
            "{}: left to the kernel: {}",
            file.display(),
            reason.words()
        ));
    }
}

/// Characters of a line.
const LONGEST: usize = 4000;

/// One line on standard error, whatever the names in it are.
pub fn say(what: &str) {
    let line = one_line(what, LONGEST);
    put(format!("memtide-pager: {line}\n").as_bytes());
}

/// The same, for the first thing of a kind in this process; `said` is the kind's.
pub fn say_once(said: &'static AtomicBool, what: &str) {
    if !said.swap(true, Ordering::Relaxed) {
        say(what);
    }
}

/// Nobody to tell if it fails. Not through the standard library's handle: a process that
/// forks while the evictor says something would leave its lock taken in the child.
fn put(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: bytes of ours; the descriptor is the program's, and may be closed.
        let written =
            unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// In a forked child the one who has it may not be there.
    #[test]
    fn nothing_waits_for_the_standard_librarys_lock() {
        let held = std::io::stderr().lock();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            put(b"memtide-pager: said by a test\n");
            tell.send(())
        });
        let said = told.recv_timeout(Duration::from_secs(60));
        drop(held);
        assert_eq!(said, Ok(()));
    }
}
