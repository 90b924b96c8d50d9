//! Page faults that are provoked: who writes where, without hardware and
//! without the kernel's NUMA balancing.
//!
//! Problem. A virtual machine has no hardware that samples accesses, and where
//! `kernel.numa_balancing` is off there are no hint faults. Accessed bits and
//! DAMON tell that a page is used, not by whom; nobody outside a process can
//! take its pages away from under it. Yet to balance one has to know which
//! thread on which node uses which page.
//!
//! Approach. Writing 4 to `/proc/PID/clear_refs` write-protects every page of
//! the process, so that the kernel notices which ones are written from then on
//! (*soft-dirty*). The next write to each takes a minor page fault, which costs
//! about what a hint fault does, and perf tells of it like of any other: the
//! thread, the CPU, the address. One *round* is one protection and the faults
//! that follow, one a written page.
//!
//! What to know. Writes are seen, reads are not, but for the rare one that
//! meets its page just as it is protected: the kernel takes the page away for
//! that moment. It is never chosen by itself: whoever else reads soft-dirty
//! bits (CRIU between two pre-dumps) loses what he had, and that cannot be put
//! back. The kernel must be built with `CONFIG_MEM_SOFT_DIRTY`, or the file
//! takes the number and nothing happens; [`prove`] finds out. A round protects
//! the whole address space, so its price is known beforehand from what is
//! resident, and rounds are as far apart as the target rate wants: see
//! [`memtide_loop::write_rounds`].

use super::hint_faults::{HintFaults, HintFaultsError, Options};
use crate::fs::proc::Process;
use crate::fs::{FsError, Root};
use std::io::{self, Write};
use std::path::PathBuf;

/// Why no faults can be provoked.
#[derive(Debug, thiserror::Error)]
pub enum WriteFaultsError {
    /// The kernel refused to protect a process's pages.
    #[error("{}: cannot write-protect its pages: {source}; run as root, for other users' processes with CAP_DAC_OVERRIDE", path.display())]
    Protect {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Protection has no effect.
    #[error("writes cannot be made to fault: this kernel was built without CONFIG_MEM_SOFT_DIRTY")]
    NoSoftDirty,
    /// The faults cannot be listened to.
    #[error(transparent)]
    Faults(#[from] HintFaultsError),
    /// The process list.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Makes a write of its own fault, and sees it arrive: a page of this process
/// is written, protected, and written again.
///
/// # Errors
///
/// Why it does not work here.
pub fn prove(root: &Root) -> Result<(), WriteFaultsError> {
    let me = Process::current(root)?;
    let options = Options {
        root: root.path("/"),
        ..Options::default()
    };
    let mut faults = HintFaults::attach(&[me.pid], options)?;
    let mut page = vec![1u8; 2 << 12];
    let address = page.as_ptr() as u64 + (1 << 12);
    faults.poll(&mut |_| ())?;
    protect(root, me)?;
    std::hint::black_box(&mut page)[1 << 12] = 2;
    let mut seen = false;
    faults.poll(&mut |fault| seen |= fault.address >> 12 == address >> 12)?;
    drop(page);
    seen.then_some(()).ok_or(WriteFaultsError::NoSoftDirty)
}

/// Begins a round for `process`: its next write to each page faults. Whether it
/// was still there.
///
/// # Errors
///
/// The kernel refused.
pub fn protect(root: &Root, process: Process) -> Result<bool, WriteFaultsError> {
    // The file is opened for the process that has the number now; it is the
    // one that was meant if that one still lives.
    let path = root.path(format!("proc/{}/clear_refs", process.pid));
    let file = std::fs::File::options().write(true).open(&path);
    let alive = process.is_alive(root)?;
    let written = file.and_then(|mut file| match alive {
        true => file.write_all(b"4"),
        false => Ok(()),
    });
    match written {
        Ok(()) => Ok(alive),
        Err(error) if !alive || gone(&error) => Ok(false),
        Err(source) => Err(WriteFaultsError::Protect { path, source }),
    }
}

fn gone(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    error.kind() == io::ErrorKind::NotFound || errno == Some(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_of_our_own_is_seen() {
        match prove(&Root::default()) {
            Ok(()) => {}
            Err(why) => println!("skipped: {why}"),
        }
    }

    #[test]
    fn a_dead_process_is_not_protected() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let process = Process {
            pid: 7,
            start_ticks: 1,
        };
        assert!(!protect(&root, process).unwrap());
    }
}
