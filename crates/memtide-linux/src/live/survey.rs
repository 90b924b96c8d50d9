//! Where a process's pages are.
//!
//! Two questions to the kernel: which pages of a mapping are present, and which
//! of those are mapped as huge pages (`PAGEMAP_SCAN`, or on kernels before 6.7
//! the page map entry by entry, which does not tell huge pages apart); then on
//! which node each present page lies (`move_pages` without targets). Both
//! answer in runs.
//!
//! The second question costs ten times as much as the first (150 and 16 ns a
//! page on one machine), so it is asked as rarely as can be: once for each huge
//! page, and not at all in a range whose pages the kernel counted on one node, if
//! no more pages are present than it counted.

use crate::mover::{Kernel, Located, Locator, Process};
use crate::sys::Errno;
use crate::sys::pagemap::{OpenError, Pagemap, PagemapEntry};
use crate::sys::pagemap_scan::{Categories, PagemapScan, ScanError};
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::{NodeId, PageSize};
pub use memtide_loop::world::{Found, HUGE_PAGES};
use memtide_loop::world::{Sought, Span};
use std::ops::Range;
use std::path::Path;

/// Why a survey ended early.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The process ended.
    #[error("process {0} is gone")]
    Gone(u32),
    /// We may not look at the process.
    #[error(
        "process {0}: not allowed to look at its pages: run as root, or with CAP_SYS_PTRACE, CAP_SYS_NICE and CAP_DAC_READ_SEARCH"
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
    present: Vec<Present>,
    asked: Vec<(usize, usize)>,
    /// Called at the beginning, and for every so many pages that were asked about.
    alive: fn(),
    since_alive: usize,
}

/// Pages that are asked about until somebody is told that this goes on: about a quarter of a second's.
const ALIVE_PAGES: usize = 1 << 20;

/// A run of present pages of one kind.
#[derive(Clone, Copy, Debug)]
struct Present {
    first: u64,
    end: u64,
    huge: bool,
    /// Where they are, if that is known.
    node: Option<NodeId>,
}

impl Present {
    /// Its pages from `first` up to `end`, which are on `node`.
    fn on(&self, node: NodeId, first: u64, end: u64) -> Found {
        Found {
            first: VirtualPage(first),
            pages: end - first,
            node,
            huge: self.huge,
        }
    }

    /// Where the huge page that holds `page` ends, or the run.
    fn folio_end(&self, page: u64) -> u64 {
        ((page / HUGE_PAGES + 1) * HUGE_PAGES).min(self.end)
    }
}

impl<K: Kernel> Surveyor<K> {
    /// A surveyor that asks `kernel`.
    pub fn new(kernel: K, page: PageSize) -> Surveyor<K> {
        Surveyor {
            scan: PagemapScan::default(),
            locator: Locator::new(kernel, page, 8192),
            page,
            present: Vec::new(),
            asked: Vec::new(),
            alive: || (),
            since_alive: 0,
        }
    }

    /// Calls `alive` when a survey begins and now and then while it goes on: that of a terabyte in base pages takes a
    /// minute, and whoever watches this process counts turns.
    pub fn tell(&mut self, alive: fn()) {
        self.alive = alive;
    }

    /// Reports where the present pages of `spans` are, in order of address; `spans`
    /// are ascending. Pages that belong to no node are left out.
    pub fn survey_spans(
        &mut self,
        proc_root: &Path,
        process: Process,
        spans: &[Sought],
        found: impl FnMut(Found),
    ) -> Result<(), SurveyError> {
        (self.alive)();
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
        self.survey_map(&map, process, spans, found)
    }

    /// The same, by a page map that is open: its process may have ended since.
    fn survey_map(
        &mut self,
        map: &Pagemap,
        process: Process,
        spans: &[Sought],
        mut found: impl FnMut(Found),
    ) -> Result<(), SurveyError> {
        let pid = process.pid;
        let failed = |what: String| SurveyError::Failed { pid, what };
        self.present.clear();
        for sought in spans {
            self.present_runs(map, sought)
                .map_err(|error| match error {
                    ScanError::Kernel(Errno::SRCH) => SurveyError::Gone(pid),
                    error => failed(error.to_string()),
                })?;
        }
        let mut first = 0;
        while let Some(run) = self.present.get(first) {
            if let Some(node) = run.node {
                found(run.on(node, run.first, run.end));
                first += 1;
                continue;
            }
            let unknown = self.present[first..].iter();
            let end = first + unknown.take_while(|run| run.node.is_none()).count();
            self.locate(process, first..end, &mut found)
                .map_err(|errno| match errno {
                    Errno::SRCH | Errno::INVAL => SurveyError::Gone(pid),
                    Errno::PERM => SurveyError::NotPermitted(pid),
                    errno => failed(errno.to_string()),
                })?;
            first = end;
        }
        // Nobody was asked about a process without pages, and of a page map whose
        // process is gone some kernels say that nothing is there.
        let asked = self.present.iter().any(|run| run.node.is_none());
        match asked || self.locator.is_same(process) {
            true => Ok(()),
            false => Err(SurveyError::Gone(pid)),
        }
    }

    /// Asks where the present runs of `which` are.
    fn locate(
        &mut self,
        process: Process,
        which: Range<usize>,
        found: &mut impl FnMut(Found),
    ) -> Result<(), Errno> {
        let shift = self.page.shift();
        let present = &self.present[which];
        let asked = |first: u64, pages: u64| ((first << shift) as usize, pages as usize);
        self.asked.clear();
        for run in present {
            if !run.huge {
                self.asked.push(asked(run.first, run.end - run.first));
                continue;
            }
            let mut page = run.first;
            while page < run.end {
                self.asked.push(asked(page, 1));
                page = run.folio_end(page);
            }
        }
        // The answer is in the order of the question. It joins neighbours of two
        // runs, and tells of the first page of a huge one.
        let mut at = 0;
        let mut open: Option<Found> = None;
        let (alive, since_alive) = (self.alive, &mut self.since_alive);
        self.locator.locate(process, &self.asked, |answer| {
            *since_alive += answer.pages;
            if *since_alive >= ALIVE_PAGES {
                *since_alive = 0;
                alive();
            }
            let mut first = answer.address as u64 >> shift;
            let end = first + answer.pages as u64;
            while first < end {
                while present[at].end <= first {
                    at += 1;
                }
                let run = &present[at];
                let until = match run.huge {
                    true => run.folio_end(first),
                    false => run.end.min(end),
                };
                if let Located::Node(node) = answer.at {
                    let next = run.on(node, first, until);
                    match &mut open {
                        Some(open)
                            if open.first.0 + open.pages == first
                                && (open.node, open.huge) == (node, run.huge) =>
                        {
                            open.pages += next.pages;
                        }
                        _ => open.replace(next).into_iter().for_each(&mut *found),
                    }
                }
                first = until;
            }
        })?;
        open.into_iter().for_each(found);
        Ok(())
    }

    /// Adds the present runs of `sought`, and where they are if that is known.
    fn present_runs(&mut self, map: &Pagemap, sought: &Sought) -> Result<(), ScanError> {
        let before = self.present.len();
        self.scan_runs(map, sought.span)?;
        let runs = &mut self.present[before..];
        let present = runs.iter().map(|run| run.end - run.first).sum();
        let node = sought.counted.and_then(|counted| counted.holds(present));
        runs.iter_mut().for_each(|run| run.node = node);
        Ok(())
    }

    fn scan_runs(&mut self, map: &Pagemap, span: Span) -> Result<(), ScanError> {
        let before = self.present.len();
        let shift = self.page.shift();
        let range = span.first.0 << shift..(span.first.0 + span.pages) << shift;
        let present = &mut self.present;
        let scanned = self.scan.scan(map, range, |region| {
            let movable = region.categories.contains(Categories::PRESENT)
                && !region.categories.contains(Categories::ZERO);
            if movable {
                let next = Present {
                    first: region.start >> shift,
                    end: region.end >> shift,
                    huge: region.categories.contains(Categories::HUGE),
                    node: None,
                };
                push(present, before, next);
            }
        });
        match scanned {
            Err(ScanError::Absent) => present_by_entry(present, map, span),
            other => other,
        }
    }
}

fn present_by_entry(
    present: &mut Vec<Present>,
    map: &Pagemap,
    span: Span,
) -> Result<(), ScanError> {
    let before = present.len();
    let mut entries = [PagemapEntry::default(); 512];
    let mut at = span.first.0;
    let end = at + span.pages;
    while at < end {
        let wanted = (end - at).min(512) as usize;
        let got = map
            .read(at, &mut entries[..wanted])
            .map_err(ScanError::Kernel)?;
        if got == 0 {
            break;
        }
        for (page, entry) in (at..).zip(&entries[..got]) {
            if entry.present() {
                let next = Present {
                    first: page,
                    end: page + 1,
                    huge: false,
                    node: None,
                };
                push(present, before, next);
            }
        }
        at += got as u64;
    }
    Ok(())
}

/// Adds a run, grown onto the last one where it continues it; the first `kept` are
/// of another span.
fn push(runs: &mut Vec<Present>, kept: usize, next: Present) {
    match runs[kept..].last_mut() {
        Some(last) if last.end == next.first && last.huge == next.huge => {
            last.end = next.end;
        }
        _ => runs.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Root, proc};
    use crate::live::kernel::RunningKernel;
    use crate::sys::move_pages::MoveFlags;
    use crate::sys::own_memory::OwnPages;
    use memtide_loop::world::Counted;

    const SELF: Process = Process {
        pid: 0,
        start_ticks: 0,
    };

    /// Pages of odd and even MiB are on nodes 1 and 0; it remembers what was asked.
    #[derive(Debug, Default)]
    struct Stripes(std::rc::Rc<std::cell::RefCell<Vec<usize>>>);

    impl Kernel for Stripes {
        fn is_same(&mut self, _: Process) -> bool {
            true
        }

        fn move_pages(
            &mut self,
            _: u32,
            pages: &[usize],
            _: Option<&[i32]>,
            status: &mut [i32],
            _: MoveFlags,
        ) -> Result<usize, Errno> {
            self.0.borrow_mut().extend(pages);
            for (status, page) in status.iter_mut().zip(pages) {
                *status = (page >> 20 & 1) as i32;
            }
            Ok(0)
        }
    }

    fn present(first: u64, end: u64, huge: bool) -> Present {
        Present {
            first,
            end,
            huge,
            node: None,
        }
    }

    #[test]
    fn a_huge_page_is_asked_about_once_and_a_base_page_each() {
        let asked = Stripes::default();
        let remembered = asked.0.clone();
        let mut surveyor = Surveyor::new(asked, PageSize::KIB_4);
        // The last page of one huge page and two whole ones; then 300 base pages,
        // of which the first 256 are the even MiB 4.
        surveyor.present = vec![present(1023 - 512, 1536, true), present(1536, 1836, false)];
        let mut found = Vec::new();
        let all = 0..surveyor.present.len();
        surveyor
            .locate(SELF, all, &mut |one| found.push(one))
            .unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.first.0, one.pages, one.node.0, one.huge))
            .collect();
        // Page 511 is in MiB 1, pages 512 and 1024 begin the MiB 2 and 4.
        let huge = [(511, 1, 1, true), (512, 1024, 0, true)];
        assert_eq!(found[..2], huge);
        // 1536 is the first page of MiB 6, 1792 of MiB 7.
        assert_eq!(found[2..], [(1536, 256, 0, false), (1792, 44, 1, false)]);
        let asked: Vec<usize> = remembered.borrow().iter().map(|page| page >> 12).collect();
        assert_eq!(asked[..3], [511, 512, 1024]);
        assert_eq!(asked[3..], (1536..1836).collect::<Vec<_>>());
    }

    #[test]
    fn pages_whose_node_is_known_are_not_asked_about() {
        let memory = OwnPages::map(64).unwrap();
        (0..48).for_each(|page| memory.write(page, 1));
        let span = |first: u64, pages| Span {
            first: VirtualPage(memory.address() as u64 / 4096 + first),
            pages,
        };
        let counted = |pages| {
            let node = NodeId(5);
            Some(Counted { node, pages })
        };
        let asked = Stripes::default();
        let remembered = asked.0.clone();
        let mut surveyor = Surveyor::new(asked, PageSize::KIB_4);
        let sought = [
            Sought {
                span: span(0, 32),
                counted: counted(32),
            },
            // More is there than was counted.
            Sought {
                span: span(32, 16),
                counted: counted(15),
            },
            Sought::from(span(48, 16)),
        ];
        let own = Process {
            pid: std::process::id(),
            start_ticks: 0,
        };
        let mut found = Vec::new();
        let proc_root = Path::new("/proc");
        surveyor
            .survey_spans(proc_root, own, &sought, |one| found.push(one))
            .unwrap();
        // The first 32 are known, the next 16 are asked for, the last are not present.
        assert_eq!(
            found[0],
            Found {
                first: span(0, 1).first,
                pages: 32,
                node: NodeId(5),
                huge: false
            }
        );
        assert_eq!(found[1..].iter().map(|one| one.pages).sum::<u64>(), 16);
        assert_eq!(remembered.borrow().len(), 16);
    }

    /// It ends when its page map is open already.
    #[test]
    fn a_process_that_ends_while_it_is_looked_at_is_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id();
        let start_ticks = proc::Process::find(&Root::default(), pid)
            .unwrap()
            .start_ticks;
        let map = Pagemap::open(Path::new("/proc"), pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let page = PageSize::new(rustix::param::page_size() as u32).unwrap();
        let mut surveyor = Surveyor::new(RunningKernel::new(Default::default()), page);
        let process = Process { pid, start_ticks };
        let span = Span {
            first: VirtualPage(0),
            pages: 1 << 20,
        };
        let surveyed = surveyor.survey_map(&map, process, &[span.into()], |_| {});
        assert!(
            matches!(surveyed, Err(SurveyError::Gone(gone)) if gone == pid),
            "{surveyed:?}"
        );
    }
}
