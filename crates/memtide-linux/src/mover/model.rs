//! A kernel made of a map, for the tests: it does what was measured, plainly.

use super::Process;
use super::kernel::Kernel;
use crate::sys::Errno;
use crate::sys::move_pages::MoveFlags;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const PAGE: usize = 4096;
pub(super) const HUGE: usize = 8 * PAGE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Shared,
    Pinned,
    Zero,
    /// The first page of a huge page of `HUGE` bytes.
    HugeHead,
}

/// What goes wrong in the nth call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The process is gone from then on.
    Gone,
    /// The pid belongs to somebody else from then on.
    Reused,
    /// The call fails and does nothing.
    Error(Errno),
    /// The call moves what it can and then fails, writing no status.
    ErrorAfterwards(Errno),
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub process: Process,
    pub pages: BTreeMap<usize, (i32, Kind)>,
    /// Free base pages a node; a node that is not here does not exist.
    pub free: BTreeMap<i32, usize>,
    pub forbidden: BTreeSet<i32>,
    pub sys_nice: bool,
    pub fault: Option<(usize, Fault)>,
    pub calls: usize,
    pub largest_call: usize,
    pub moves_of_stranger: usize,
    gone: bool,
    reused: bool,
}

impl Model {
    pub fn new(pages: impl IntoIterator<Item = (usize, (i32, Kind))>) -> Model {
        Model {
            process: Process {
                pid: 7,
                start_ticks: 100,
            },
            pages: pages.into_iter().collect(),
            free: (0..3).map(|node| (node, 1_000_000)).collect(),
            forbidden: BTreeSet::new(),
            sys_nice: true,
            fault: None,
            calls: 0,
            largest_call: 0,
            moves_of_stranger: 0,
            gone: false,
            reused: false,
        }
    }

    /// The page that `address` is in: its key.
    fn page_of(&self, address: usize) -> Option<usize> {
        let (&key, &(_, kind)) = self.pages.range(..=address).next_back()?;
        let bytes = if kind == Kind::HugeHead { HUGE } else { PAGE };
        (address < key + bytes).then_some(key)
    }

    fn status_of(&self, address: usize) -> i32 {
        match self.page_of(address).map(|key| self.pages[&key]) {
            None => -Errno::NOENT.raw_os_error(),
            Some((_, Kind::Zero)) => -Errno::FAULT.raw_os_error(),
            Some((node, _)) => node,
        }
    }

    /// Moves a run: how many pages failed, or out of memory. All or none of the
    /// statuses are written.
    fn migrate(
        &mut self,
        run: &mut Vec<(usize, usize)>,
        to: i32,
        status: &mut [i32],
    ) -> Result<usize, Errno> {
        let mut failed = 0;
        for &(_, key) in run.iter() {
            let kind = self.pages[&key].1;
            let need = if kind == Kind::HugeHead {
                HUGE / PAGE
            } else {
                1
            };
            if kind == Kind::Pinned {
                failed += 1;
            } else if self.free[&to] < need {
                run.clear();
                return Err(Errno::NOMEM);
            } else {
                *self.free.get_mut(&to).unwrap() -= need;
                let from = self.pages.insert(key, (to, kind)).unwrap().0;
                *self.free.get_mut(&from).unwrap() += need;
            }
        }
        if failed == 0 {
            run.iter().for_each(|&(index, _)| status[index] = to);
        }
        run.clear();
        Ok(failed)
    }

    fn move_to(
        &mut self,
        pages: &[usize],
        nodes: &[i32],
        status: &mut [i32],
        flags: MoveFlags,
    ) -> Result<usize, Errno> {
        if flags == MoveFlags::All && !self.sys_nice {
            return Err(Errno::PERM);
        }
        let mut run: Vec<(usize, usize)> = Vec::new();
        for (index, (&address, &to)) in pages.iter().zip(nodes).enumerate() {
            if !self.free.contains_key(&to) {
                return Err(Errno::NODEV);
            }
            if self.forbidden.contains(&to) {
                return Err(Errno::ACCESS);
            }
            let isolated = |key| run.iter().any(|&(_, k)| k == key);
            let verdict = match self.page_of(address).map(|key| (key, self.pages[&key])) {
                None => -Errno::NOENT.raw_os_error(),
                Some((_, (_, Kind::Zero))) => -Errno::FAULT.raw_os_error(),
                Some((_, (node, _))) if node == to => to,
                Some((_, (_, Kind::Shared))) if flags == MoveFlags::Exclusive => {
                    -Errno::ACCESS.raw_os_error()
                }
                Some((key, _)) if isolated(key) => -Errno::BUSY.raw_os_error(),
                Some((key, _)) => {
                    run.push((index, key));
                    continue;
                }
            };
            status[index] = verdict;
            let failed = self.migrate(&mut run, to, status)?;
            if failed > 0 {
                return Ok(failed + pages.len() - index - 1);
            }
        }
        match nodes.first() {
            Some(&to) => self.migrate(&mut run, to, status),
            None => Ok(0),
        }
    }
}

impl Kernel for Model {
    fn is_same(&mut self, process: Process) -> bool {
        assert_eq!(process, self.process);
        !self.gone && !self.reused
    }

    fn move_pages(
        &mut self,
        pid: u32,
        pages: &[usize],
        nodes: Option<&[i32]>,
        status: &mut [i32],
        flags: MoveFlags,
    ) -> Result<usize, Errno> {
        assert_eq!(pid, self.process.pid);
        self.calls += 1;
        let weight = |&page: &usize| match self.page_of(page).map(|key| self.pages[&key].1) {
            Some(Kind::HugeHead) => HUGE / PAGE,
            _ => 1,
        };
        self.largest_call = self.largest_call.max(pages.iter().map(weight).sum());
        if self.reused {
            self.moves_of_stranger += usize::from(nodes.is_some());
        }
        let fault = self
            .fault
            .filter(|&(nth, _)| nth == self.calls)
            .map(|(_, f)| f);
        match fault {
            Some(Fault::Gone) => self.gone = true,
            Some(Fault::Error(errno)) => return Err(errno),
            _ => {}
        }
        if self.gone {
            return Err(Errno::SRCH);
        }
        let result = match nodes {
            None => {
                pages
                    .iter()
                    .zip(&mut *status)
                    .for_each(|(&page, s)| *s = self.status_of(page));
                Ok(0)
            }
            Some(nodes) => {
                let before = status.to_vec();
                let result = self.move_to(pages, nodes, status, flags);
                if let Some(Fault::ErrorAfterwards(errno)) = fault {
                    status.copy_from_slice(&before);
                    return Err(errno);
                }
                result
            }
        };
        // The pid changes hands right after this call.
        if fault == Some(Fault::Reused) {
            self.reused = true;
        }
        result
    }
}
