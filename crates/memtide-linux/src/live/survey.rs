//! Where a process's pages are.
//!
//! Two questions to the kernel: which pages of a mapping are present, and which
//! of those are mapped as huge pages (`PAGEMAP_SCAN`, or on kernels before 6.7
//! the page map entry by entry, which does not tell huge pages apart); then on
//! which node each present page lies (`move_pages` without targets). Both
//! answer in runs.

use crate::mover::{Kernel, Located, Locator, Process};
use crate::sys::Errno;
use crate::sys::pagemap::{OpenError, Pagemap, PagemapEntry};
use crate::sys::pagemap_scan::{Categories, PagemapScan, ScanError};
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::PageSize;
pub use memtide_loop::world::{Found, HUGE_PAGES};
use std::path::Path;

/// Why a survey ended early.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The process ended.
    #[error("process {0} is gone")]
    Gone(u32),
    /// We may not look at the process.
    #[error(
        "process {0}: not allowed to look at its pages: run as root, or with CAP_SYS_PTRACE and CAP_SYS_NICE"
    )]
    NotPermitted(u32),
    /// Something that is not expected.
    #[error("process {pid}: cannot look at its pages: {what}")]
    Failed {
        /// The process.
        pid: u32,
        /// The kernel's words.
        what: String,
    },
}

/// Surveys processes. Keep one: it reuses its buffers.
#[derive(Debug)]
pub struct Surveyor<K> {
    scan: PagemapScan,
    locator: Locator<K>,
    page: PageSize,
    present: Vec<(VirtualPage, u64, bool)>,
}

impl<K: Kernel> Surveyor<K> {
    /// A surveyor that asks `kernel`.
    pub fn new(kernel: K, page: PageSize) -> Surveyor<K> {
        Surveyor {
            scan: PagemapScan::default(),
            locator: Locator::new(kernel, page, 8192),
            page,
            present: Vec::new(),
        }
    }

    /// Reports where the present pages of `ranges` are, in order of address: first
    /// page and number of pages of each, ascending. Pages that belong to no node
    /// are left out.
    pub fn survey_ranges(
        &mut self,
        proc_root: &Path,
        process: Process,
        ranges: impl IntoIterator<Item = (VirtualPage, u64)>,
        found: impl FnMut(Found),
    ) -> Result<(), SurveyError> {
        let pid = process.pid;
        let failed = |what: String| SurveyError::Failed { pid, what };
        let map = match Pagemap::open(proc_root, pid) {
            Ok(map) => map,
            Err(OpenError::NoAddressSpace { .. }) => return Err(SurveyError::Gone(pid)),
            Err(OpenError::Open {
                errno: Errno::NOENT | Errno::SRCH,
                ..
            }) => {
                return Err(SurveyError::Gone(pid));
            }
            Err(OpenError::Open {
                errno: Errno::ACCESS | Errno::PERM,
                ..
            }) => {
                return Err(SurveyError::NotPermitted(pid));
            }
            Err(error) => return Err(failed(error.to_string())),
        };
        self.survey_map(&map, process, ranges, found)
    }

    /// The same, by a page map that is open: its process may have ended since.
    fn survey_map(
        &mut self,
        map: &Pagemap,
        process: Process,
        ranges: impl IntoIterator<Item = (VirtualPage, u64)>,
        mut found: impl FnMut(Found),
    ) -> Result<(), SurveyError> {
        let pid = process.pid;
        let failed = |what: String| SurveyError::Failed { pid, what };
        self.present.clear();
        for (first, pages) in ranges {
            self.present_runs(map, first, pages)
                .map_err(|error| match error {
                    ScanError::Kernel(Errno::SRCH) => SurveyError::Gone(pid),
                    error => failed(error.to_string()),
                })?;
        }
        let shift = self.page.shift();
        let ranges: Vec<(usize, usize)> = self
            .present
            .iter()
            .map(|(first, pages, _)| ((first.0 << shift) as usize, *pages as usize))
            .collect();
        let present = &self.present;
        let mut at = 0;
        self.locator
            .locate(process, &ranges, |run| {
                let Located::Node(node) = run.at else {
                    return;
                };
                // The answer is in the order of the question; where it joins
                // two runs of the question it is cut again.
                let (mut first, end) = (run.address as u64 >> shift, run.pages as u64);
                let end = first + end;
                while first < end {
                    while present[at].0.0 + present[at].1 <= first {
                        at += 1;
                    }
                    let (start, length, huge) = present[at];
                    let pages = (start.0 + length).min(end) - first;
                    found(Found {
                        first: VirtualPage(first),
                        pages,
                        node,
                        huge,
                    });
                    first += pages;
                }
            })
            .map_err(|errno| match errno {
                Errno::SRCH | Errno::INVAL => SurveyError::Gone(pid),
                Errno::PERM => SurveyError::NotPermitted(pid),
                errno => failed(errno.to_string()),
            })?;
        Ok(())
    }

    fn present_runs(
        &mut self,
        map: &Pagemap,
        first: VirtualPage,
        pages: u64,
    ) -> Result<(), ScanError> {
        let shift = self.page.shift();
        let range = first.0 << shift..(first.0 + pages) << shift;
        let present = &mut self.present;
        let scanned = self.scan.scan(map, range, |region| {
            let movable = region.categories.contains(Categories::PRESENT)
                && !region.categories.contains(Categories::ZERO);
            if movable {
                let first = VirtualPage(region.start >> shift);
                let huge = region.categories.contains(Categories::HUGE);
                push(present, first, (region.end - region.start) >> shift, huge);
            }
        });
        match scanned {
            Err(ScanError::Absent) => present_by_entry(present, map, first, pages),
            other => other,
        }
    }
}

fn present_by_entry(
    present: &mut Vec<(VirtualPage, u64, bool)>,
    map: &Pagemap,
    first: VirtualPage,
    pages: u64,
) -> Result<(), ScanError> {
    let mut entries = [PagemapEntry::default(); 512];
    let mut at = first.0;
    let end = first.0 + pages;
    while at < end {
        let wanted = (end - at).min(512) as usize;
        let got = map
            .read(at, &mut entries[..wanted])
            .map_err(ScanError::Kernel)?;
        if got == 0 {
            break;
        }
        for (n, entry) in entries[..got].iter().enumerate() {
            if entry.present() {
                push(present, VirtualPage(at + n as u64), 1, false);
            }
        }
        at += got as u64;
    }
    Ok(())
}

/// Adds a run, grown onto the last one where it continues it.
fn push(runs: &mut Vec<(VirtualPage, u64, bool)>, first: VirtualPage, pages: u64, huge: bool) {
    match runs.last_mut() {
        Some((last, length, kind)) if last.0 + *length == first.0 && *kind == huge => {
            *length += pages;
        }
        _ => runs.push((first, pages, huge)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::kernel::RunningKernel;

    /// It ends when its page map is open already.
    #[test]
    fn a_process_that_ends_while_it_is_looked_at_is_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id();
        let map = Pagemap::open(Path::new("/proc"), pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let page = PageSize::new(rustix::param::page_size() as u32).unwrap();
        let mut surveyor = Surveyor::new(RunningKernel::new(Default::default()), page);
        let process = Process {
            pid,
            start_ticks: 0,
        };
        let ranges = [(VirtualPage(0), 1 << 20)];
        let surveyed = surveyor.survey_map(&map, process, ranges, |_| {});
        assert!(
            matches!(surveyed, Err(SurveyError::Gone(gone)) if gone == pid),
            "{surveyed:?}"
        );
    }
}
