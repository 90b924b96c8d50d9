//! Exact accesses of every page, from the accessed bits in the page tables.
//!
//! # Problem
//!
//! The processor notes in every page's table entry that the page was used, and
//! no interface of a stock kernel gives these bits to user space page by page.
//! (Per mapping smaps does, per region DAMON does.)
//!
//! # Approach
//!
//! `/proc/PID/clear_refs` clears the bits of a whole process. `/proc/kcore` shows
//! all of the machine's memory, so a reader who knows where the tables begin can
//! walk them like the processor: [`walk`] does. Where they begin is
//! `mm_struct.pgd` of the process's `task_struct.mm`; the task is found on the
//! kernel's list of tasks, which begins at the symbol `init_task`
//! ([`kallsyms`]), and the members' offsets come from the kernel's own type
//! description ([`btf`]). All of this is read once a run; per process there is
//! one walk along the list of tasks, and per scan two small reads that find the
//! process again: another pid, start or address space is noticed.
//!
//! A round is [`PageTableScan::clear`], time in which the process works, and
//! [`PageTableScan::scan`], which reports touched *and* untouched pages. It is
//! the fastest exact scan there is.
//!
//! Measured in the test guest (software emulation, so only the proportions
//! count), Linux 6.12 and 7.2, 16,384 pages of which a scattered eighth was
//! touched, twelve rounds of reads and writes, never a page wrong: clear 1.1 and
//! 1.4 ms, scan 1.1 ms (36 tables, 4,100 runs); as 32 huge pages 0.1 ms each.
//! Opening takes 230 and 300 ms once, attaching 0.5 to 1.7 ms a process. Of a
//! process that built and freed 64 tables without pause, 600 scans met 6,000
//! and 7,600 vanishing tables and reported no page that was not there. The
//! example `page_table` repeats this.
//!
//! # Price
//!
//! - **Reclaim loses what we clear.** The kernel's own page ageing reads the
//!   same bits; a page that only we saw touched looks idle to it. On a machine
//!   that reclaims, clear seldom. This is why the source is opt-in.
//! - Clearing holds the process's map lock for writing: its page faults and
//!   mappings wait, for about 0.1 microseconds a page.
//! - An access through a translation that the processor still remembers (TLB) sets
//!   no bit, and clearing does not flush it. A process that stays on one
//!   processor without any flush hides accesses (seen: a shell in an endless
//!   loop, none of whose 175 pages of text looked touched); scheduling, faults
//!   and a working set larger than the TLB reveal them.
//! - Explicit huge pages (hugetlb) are not cleared by the kernel and stay
//!   accessed for ever.
//! - It needs `CAP_SYS_RAWIO` and `CAP_SYSLOG` in practice: root, on a kernel
//!   that is not locked down.
//!
//! # Correctness under change
//!
//! The process runs on while it is read. [`walk`] says how a vanished table is
//! noticed. A scan whose process ended or executed another program half-way ends in
//! [`ScanError::Changed`]: what it reported is to be thrown away.

pub mod btf;
pub mod kallsyms;
pub mod kcore;
mod task;
pub mod walk;

pub use task::Layout;
pub use walk::{PageRun, WalkStats};

use crate::mover::Process;
use btf::{Btf, BtfError};
use kcore::{Kcore, KcoreError};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use task::{Found, Tasks};
use walk::{PHYSICAL_MASK, Root, Walk};

/// Why this machine has no accessed-bit scan.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The kernel refuses because it is locked down.
    #[error("{path}: the kernel is locked down ({mode}); boot without lockdown to use this source")]
    Lockdown {
        /// The file that it refused.
        path: PathBuf,
        /// The mode in force.
        mode: String,
    },
    /// We may not read or see what is needed.
    #[error("{path}: not permitted; run with {capability}")]
    NoPermission {
        /// The file.
        path: PathBuf,
        /// What would permit it.
        capability: &'static str,
    },
    /// The kernel was built without the file.
    #[error("{path}: not there; use a kernel with {option}")]
    NotBuilt {
        /// The file.
        path: PathBuf,
        /// The kernel's option.
        option: &'static str,
    },
    /// Addresses of symbols are hidden.
    #[error("{path}: addresses are hidden; run with CAP_SYSLOG and kernel.kptr_restrict below 2")]
    SymbolsHidden {
        /// The file.
        path: PathBuf,
    },
    /// A symbol that every kernel had.
    #[error("{path}: no symbol {symbol}; this kernel's list of tasks is unknown")]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        symbol: &'static str,
    },
    /// Page tables that this code cannot walk.
    #[error("page tables of ELF machine {machine} are unknown; only x86-64 (62) is")]
    UnknownMachine {
        /// The machine's ELF number.
        machine: u16,
    },
    /// The kernel's types cannot be used.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// Kernel memory cannot be read.
    #[error(transparent)]
    Memory(#[from] KcoreError),
    /// A file cannot be read.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

/// Why a process cannot be cleared or scanned.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Not among the kernel's tasks, or a later process of that number.
    #[error("process {pid} that started at tick {start}: not running; look it up again")]
    Gone {
        /// The pid.
        pid: u32,
        /// Its start.
        start: u64,
    },
    /// A kernel thread, or a process that is exiting.
    #[error("process {pid}: has no memory of its own; choose a user process that is not exiting")]
    NoMemory {
        /// The pid.
        pid: u32,
    },
    /// It executed another program or ended during the scan.
    #[error("process {pid}: its memory was replaced during the scan; drop this scan's runs")]
    Changed {
        /// The pid.
        pid: u32,
    },
    /// The caller forgot [`PageTableScan::attach`].
    #[error("process {pid}: not attached; attach it first")]
    NotAttached {
        /// The pid.
        pid: u32,
    },
    /// Clearing failed.
    #[error("{path}: {error}")]
    Clear {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Kernel memory cannot be read any more.
    #[error(transparent)]
    Memory(#[from] KcoreError),
}

/// The accessed-bit scanner of a machine.
#[derive(Debug)]
pub struct PageTableScan {
    root: PathBuf,
    kcore: Kcore,
    tasks: Tasks,
    levels: u32,
    physical_mask: u64,
    attached: HashMap<Process, Attached>,
    walk: Walk,
}

#[derive(Debug)]
struct Attached {
    /// Where its `task_struct` was last.
    task: u64,
    /// Opened once: it keeps naming this process when the pid is used again.
    clear: File,
    clear_path: PathBuf,
}

impl PageTableScan {
    /// Reads what is needed of the kernel, below `root` (`/` on a live machine).
    /// Takes tens of milliseconds, nearly all of it the kernel's own work for
    /// `kallsyms`; keep the result.
    pub fn open(root: &Path) -> Result<PageTableScan, Unavailable> {
        let kcore = open_kcore(root)?;
        if kcore.machine() != kcore::X86_64 {
            return Err(Unavailable::UnknownMachine {
                machine: kcore.machine(),
            });
        }
        let five = kcore.five_levels().ok_or_else(|| KcoreError::Malformed {
            path: root.join("proc/kcore"),
            what: "no direct map",
        })?;
        let layout = read_layout(root)?;
        let (init_task, mask_at) = read_symbols(root)?;
        let mut mask = [0; 8];
        let mask = match mask_at {
            Some(address) if kcore.read_virtual(address, &mut mask) => u64::from_le_bytes(mask),
            _ => PHYSICAL_MASK,
        };
        Ok(PageTableScan {
            root: root.to_owned(),
            kcore,
            tasks: Tasks::new(layout, init_task),
            levels: if five { 5 } else { 4 },
            physical_mask: mask,
            attached: HashMap::new(),
            walk: Walk::default(),
        })
    }

    /// Finds the process's memory. Attaching it again does nothing.
    pub fn attach(&mut self, process: Process) -> Result<(), ScanError> {
        if self.attached.contains_key(&process) {
            return Ok(());
        }
        let clear_path = self.root.join(format!("proc/{}/clear_refs", process.pid));
        // Open first, verify then: the file names the process of the moment of
        // opening, and if the right one is alive afterwards it was it.
        let clear =
            OpenOptions::new()
                .write(true)
                .open(&clear_path)
                .map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => gone(process),
                    _ => ScanError::Clear {
                        path: clear_path.clone(),
                        error,
                    },
                })?;
        self.kcore.refresh()?;
        let found = self
            .tasks
            .find(&self.kcore, process)
            .ok_or_else(|| gone(process))?;
        if found.mm == 0 {
            return Err(ScanError::NoMemory { pid: process.pid });
        }
        let attached = Attached {
            task: found.task,
            clear,
            clear_path,
        };
        self.attached.insert(process, attached);
        Ok(())
    }

    /// Forgets the process.
    pub fn detach(&mut self, process: Process) {
        self.attached.remove(&process);
    }

    /// Clears the accessed bits of all pages of the process.
    pub fn clear(&mut self, process: Process) -> Result<(), ScanError> {
        let attached = self
            .attached
            .get(&process)
            .ok_or(ScanError::NotAttached { pid: process.pid })?;
        match attached.clear.write_all_at(b"1", 0) {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(gone(process)),
            Err(error) => Err(ScanError::Clear {
                path: attached.clear_path.clone(),
                error,
            }),
        }
    }

    /// Reports the present pages of `ranges` (virtual page numbers, best sorted)
    /// as runs, touched and untouched, in order.
    pub fn scan(
        &mut self,
        process: Process,
        ranges: &[Range<u64>],
        mut on: impl FnMut(PageRun),
    ) -> Result<WalkStats, ScanError> {
        self.kcore.refresh()?;
        let found = self.locate(process)?;
        let changed = || ScanError::Changed { pid: process.pid };
        let table = self
            .tasks
            .page_table(&self.kcore, found.mm)
            .and_then(|address| self.kcore.physical(address))
            .ok_or_else(changed)?;
        let root = Root {
            table,
            levels: self.levels,
            physical_mask: self.physical_mask,
        };
        let stats = self.walk.walk(&self.kcore, root, ranges, &mut on);
        if stats.unreadable > 0 {
            // Tables in memory that was added: the kernel lists it on opening.
            self.kcore.reopen()?;
        }
        match self.tasks.read(&self.kcore, found.task, process) {
            Some(now) if now == found => Ok(stats),
            _ => Err(changed()),
        }
    }

    /// The process's task and memory of now.
    fn locate(&mut self, process: Process) -> Result<Found, ScanError> {
        let attached = self
            .attached
            .get_mut(&process)
            .ok_or(ScanError::NotAttached { pid: process.pid })?;
        let known = self.tasks.read(&self.kcore, attached.task, process);
        // Executing a program from another thread replaces the task.
        let found = match known.filter(|found| found.mm != 0) {
            Some(found) => found,
            None => self
                .tasks
                .find(&self.kcore, process)
                .ok_or_else(|| gone(process))?,
        };
        if found.mm == 0 {
            return Err(ScanError::NoMemory { pid: process.pid });
        }
        attached.task = found.task;
        Ok(found)
    }
}

fn gone(process: Process) -> ScanError {
    ScanError::Gone {
        pid: process.pid,
        start: process.start_ticks,
    }
}

fn open_kcore(root: &Path) -> Result<Kcore, Unavailable> {
    let path = root.join("proc/kcore");
    let (path, error) = match Kcore::open(&path) {
        Ok(kcore) => return Ok(kcore),
        Err(KcoreError::Io { path, error }) => (path, error),
        Err(error) => return Err(error.into()),
    };
    if error.kind() != io::ErrorKind::PermissionDenied {
        return Err(unreadable(
            path,
            error,
            "CAP_SYS_RAWIO",
            "CONFIG_PROC_KCORE",
        ));
    }
    match lockdown(root) {
        Some(mode) => Err(Unavailable::Lockdown { path, mode }),
        None => Err(unreadable(
            path,
            error,
            "CAP_SYS_RAWIO",
            "CONFIG_PROC_KCORE",
        )),
    }
}

/// The lockdown mode in force, if it forbids reading kernel memory. The file
/// lists all modes, the chosen one in brackets.
fn lockdown(root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(root.join("sys/kernel/security/lockdown")).ok()?;
    let (_, rest) = text.split_once('[')?;
    let (mode, _) = rest.split_once(']')?;
    (mode == "confidentiality").then(|| mode.to_owned())
}

fn read_layout(root: &Path) -> Result<Layout, Unavailable> {
    let path = root.join("sys/kernel/btf/vmlinux");
    let file = std::fs::read(&path)
        .map_err(|error| unreadable(path, error, "root's rights", "CONFIG_DEBUG_INFO_BTF"))?;
    Ok(Layout::from_btf(&Btf::parse(&file)?)?)
}

/// The addresses of `init_task` and, where the kernel has it, `physical_mask`.
fn read_symbols(root: &Path) -> Result<(u64, Option<u64>), Unavailable> {
    let path = root.join("proc/kallsyms");
    let read = || {
        let text = BufReader::with_capacity(1 << 18, File::open(&path)?);
        kallsyms::addresses(text, ["init_task", "physical_mask"])
    };
    match read() {
        Ok([Some(0), _]) => Err(Unavailable::SymbolsHidden { path }),
        Ok([Some(init_task), mask]) => Ok((init_task, mask)),
        Ok([None, _]) => Err(Unavailable::NoSymbol {
            path,
            symbol: "init_task",
        }),
        Err(error) => Err(unreadable(path, error, "CAP_SYSLOG", "CONFIG_KALLSYMS_ALL")),
    }
}

fn unreadable(
    path: PathBuf,
    error: io::Error,
    capability: &'static str,
    option: &'static str,
) -> Unavailable {
    match error.kind() {
        io::ErrorKind::NotFound => Unavailable::NotBuilt { path, option },
        io::ErrorKind::PermissionDenied => Unavailable::NoPermission { path, capability },
        _ => Unavailable::Io { path, error },
    }
}

#[cfg(test)]
mod tests;
