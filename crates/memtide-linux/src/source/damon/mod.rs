//! DAMON, the kernel's access monitor, made page-exact.
//!
//! Problem. DAMON is on every stock kernel, sees every kind of memory (read-only
//! file mappings too, which never give a hint fault) and costs the watched
//! process nothing. But by itself it guesses: it samples one page of a region
//! and adapts the regions.
//!
//! Approach. Two ways of using it in which it guesses nothing:
//!
//! - **look** ([`Damon::look`]): every region is one page and one sample is
//!   one aggregation. Each pass says of every page whether it was accessed
//!   within the interval. Exact, and priced by the page: for some hundreds of
//!   MiB at a time.
//! - **watch** ([`Damon::watch`]): regions that the caller chose and that stay
//!   as they are, sampled often. Says how often each was accessed. For random
//!   samples of a large memory.
//!
//! - **watch in pieces** ([`Damon::watch_pieces`]): the same, of pieces into which
//!   the kernel cuts large ranges by itself, so that hundreds of thousands of
//!   them cost no time to name.
//!
//! [`plan`] explains how DAMON is made to do that; [`admin`] takes its
//! settings and gives them back; [`trace`] reads its results from a
//! tracepoint, with untouched regions filtered out inside the kernel.
//!
//! What every reader of accessed bits has to know, measured on Linux 6.12 and
//! 7.2: an access through a translation that the TLB still holds sets no bit,
//! so a process that never loses its TLB entries (few pages, an idle machine)
//! looks colder than it is, down to nothing. Pages that wait in a CPU's batch
//! for the LRU lists, at most 31 a CPU, are out of DAMON's reach: until the
//! batch is emptied, new ones look hot and activated ones cold. A huge page is
//! hot as a whole.
//!
//! Both can be at work at once, each on a kdamond of its own. Nobody else's
//! use of DAMON is disturbed: what stands in the way is a named
//! [`Unavailable`].
//!
//! Sources: *mm: Hot page tracking and promotion infrastructure* names page-table scanning as a source of
//! hot pages; DAMON is the stock kernel's way to do it. Interface:
//! `Documentation/admin-guide/mm/damon/usage`.

pub mod admin;
mod error;
pub mod holder;
pub mod knobs;
pub mod plan;
mod session;
pub mod trace;

pub use error::{DamonError, Unavailable};
pub use plan::{LookBy, LookLimits, Target};
pub use session::{Ended, Event, Polled, Session, kept_records};

use crate::lent::LentError;
use crate::perf::tracepoint::Tracepoint;
use admin::{Admin, Config};
use holder::Holder;
use knobs::Sysfs;
use plan::PlanError;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trace::Layout;

/// Which of the two kdamonds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The one that looks.
    Look,
    /// The one that watches.
    Watch,
}

/// How DAMON is to be taken.
#[derive(Clone, Debug)]
pub struct Options {
    /// The root of `/proc` and `/sys`.
    pub root: PathBuf,
    /// Turn the module `damon_stat` off while DAMON is held. It is on by
    /// default on newer kernels and keeps everyone else out; turning it off
    /// loses its statistics.
    pub pause_damon_stat: bool,
    /// Limits on a look.
    pub limits: LookLimits,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            root: "/".into(),
            pause_damon_stat: false,
            limits: LookLimits::default(),
        }
    }
}

/// DAMON, held by this process. Clones share it; when the last of them and of
/// the sessions goes, everything is as it was.
#[derive(Clone, Debug)]
pub struct Damon {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    tracepoint: Tracepoint,
    layout: Layout,
    options: Options,
}

#[derive(Debug)]
struct Inner {
    admin: Admin<Sysfs>,
    in_use: [bool; admin::SLOTS],
    /// Whether the kernel cuts given ranges, once that is known.
    kernel_splits: Option<bool>,
    /// How often cutting the whole span went wrong.
    span_failures: u32,
    /// How often cutting into pieces went wrong.
    piece_failures: u32,
}

/// A mapping that appears while the kernel cuts the whole span makes that go
/// wrong once; a kernel that cuts differently, every time.
const SPAN_FAILURES: u32 = 3;

/// What a memtide that crashed left of its hold on DAMON, in a sentence;
/// `None` if nothing is left. [`Damon::open`] puts it back.
///
/// # Errors
///
/// The note cannot be read.
pub fn left_over(options: &Options) -> Result<Option<String>, LentError> {
    admin::left_over(&options.root)
}

impl Damon {
    /// Takes DAMON.
    ///
    /// # Errors
    ///
    /// Why it cannot be had.
    pub fn open(options: Options) -> Result<Damon, Unavailable> {
        let root = &options.root;
        let knobs = Sysfs::new(root);
        let tracepoint = Tracepoint::find(root, "damon", "damon_aggregated");
        let holder = Holder::this_process();
        let admin = Admin::claim(knobs, root, holder, options.pause_damon_stat)?;
        // After the claim, so that a kernel without DAMON says that rather
        // than that it lacks DAMON's tracepoint.
        let tracepoint = tracepoint?;
        let layout = Layout::of(&tracepoint).map_err(|field| Unavailable::NoField { field })?;
        let inner = Inner {
            admin,
            in_use: [false; admin::SLOTS],
            kernel_splits: None,
            span_failures: 0,
            piece_failures: 0,
        };
        Ok(Damon {
            shared: Arc::new(Shared {
                inner: Mutex::new(inner),
                tracepoint,
                layout,
                options,
            }),
        })
    }

    /// Modules of the kernel's that are off while DAMON is held.
    pub fn paused_modules(&self) -> Vec<String> {
        self.lock().admin.paused_modules().to_vec()
    }

    /// Begins to look at every page of `targets`, again and again, `interval`
    /// apart. Each pass reports the pages that were accessed within it.
    ///
    /// The first look on a [`Damon`] tries out on this process whether the
    /// kernel cuts given ranges into pages, which takes some 20 ms.
    ///
    /// # Errors
    ///
    /// A look is at work, the ranges are unusable, a process is gone, or the
    /// kernel refused.
    pub fn look(&self, targets: &[Target], interval: Duration) -> Result<Session, DamonError> {
        let limits = self.shared.options.limits;
        if self.kernel_splits()? {
            return self.look_by(targets, interval, LookBy::KernelSplits);
        }
        let cut_spans = self.lock().span_failures < SPAN_FAILURES;
        let areas = self.areas(targets);
        let sizes: Vec<(u64, Option<u64>)> = targets
            .iter()
            .zip(&areas)
            .map(|(target, three)| {
                let span = three.as_ref().filter(|_| cut_spans);
                let wanted = plan::pages(&target.ranges);
                (wanted, span.map(|three| plan::pages(three)))
            })
            .collect();
        let ways = plan::choose(&sizes, limits).ok_or(PlanError::TooMany {
            pages: sizes.iter().map(|(wanted, _)| wanted).sum(),
            limit: limits.single_pages,
        })?;
        self.look_in_ways(targets, interval, &ways, &areas)
    }

    /// Looks in the given way, for measurements and for doctor.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look).
    pub fn look_by(
        &self,
        targets: &[Target],
        interval: Duration,
        by: LookBy,
    ) -> Result<Session, DamonError> {
        let areas = match by {
            LookBy::WholeSpan => self.areas(targets),
            _ => vec![None; targets.len()],
        };
        self.look_in_ways(targets, interval, &vec![by; targets.len()], &areas)
    }

    fn look_in_ways(
        &self,
        targets: &[Target],
        interval: Duration,
        ways: &[LookBy],
        areas: &[Option<[Range<u64>; 3]>],
    ) -> Result<Session, DamonError> {
        let limits = self.shared.options.limits;
        let plan = plan::look(targets, micros(interval), ways, areas, limits)?;
        // Where the ways are mixed, it is the span that can go wrong.
        let by = ways.iter().find(|way| **way == LookBy::WholeSpan);
        let by = by.or(ways.first()).copied();
        self.begin(Slot::Look, by, plan, targets)
    }

    /// Begins to watch the ranges of `targets` as one region each. A range is
    /// sampled every `sample`, at a page that changes; each pass is one
    /// `aggregate` long.
    ///
    /// # Errors
    ///
    /// A watch is at work, the ranges are unusable, a process is gone, or the
    /// kernel refused.
    pub fn watch(
        &self,
        targets: &[Target],
        sample: Duration,
        aggregate: Duration,
    ) -> Result<Session, DamonError> {
        let plan = plan::watch(targets, micros(sample), micros(aggregate))?;
        self.begin(Slot::Watch, None, plan, targets)
    }

    /// Begins to watch pieces of `piece` pages of the ranges, each as one region;
    /// the kernel cuts. Everything else is as in [`watch`](Self::watch).
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    pub fn watch_pieces(
        &self,
        targets: &[Target],
        piece: u64,
        interval: Duration,
    ) -> Result<Session, DamonError> {
        let plan = plan::pieces(targets, piece, micros(interval))?;
        self.begin(Slot::Watch, None, plan, targets)
    }

    /// Whether this kernel cuts ranges into pieces.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look).
    pub fn cuts_pieces(&self) -> Result<bool, DamonError> {
        Ok(self.kernel_splits()? && self.lock().piece_failures < SPAN_FAILURES)
    }

    /// Gives DAMON back at once; sessions that are still there end.
    ///
    /// # Errors
    ///
    /// What could not be undone. It stays noted.
    pub fn restore(&self) -> Result<(), DamonError> {
        self.lock().admin.restore()
    }

    /// Whether this kernel cuts given ranges into pages, tried out once.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look).
    pub fn kernel_splits(&self) -> Result<bool, DamonError> {
        if let Some(known) = self.lock().kernel_splits {
            return Ok(known);
        }
        let probe = vec![1u8; 64 * plan::PAGE as usize];
        let first = (probe.as_ptr() as u64).next_multiple_of(plan::PAGE);
        let target = Target {
            pid: std::process::id(),
            ranges: Vec::from([Range {
                start: first,
                end: first + 32 * plan::PAGE,
            }]),
        };
        let interval = Duration::from_millis(5);
        let mut session = self.look_by(&[target], interval, LookBy::KernelSplits)?;
        let began = Instant::now();
        let mut splits = None;
        while splits.is_none() && began.elapsed() < Duration::from_secs(2) {
            session.wait(Duration::from_millis(200))?;
            let polled = session.poll(&mut |_| {})?;
            splits = match polled.ended {
                Some(Ended::RegionsDiffer { .. }) => Some(false),
                Some(Ended::KdamondGone) => break,
                None => (polled.passes_completed > 0).then_some(true),
            };
        }
        session.stop()?;
        // On a machine too busy for an answer the question stays open.
        self.lock().kernel_splits = splits;
        Ok(splits.unwrap_or(false))
    }

    fn begin(
        &self,
        slot: Slot,
        by: Option<LookBy>,
        plan: plan::Plan,
        targets: &[Target],
    ) -> Result<Session, DamonError> {
        if std::mem::replace(&mut self.lock().in_use[slot as usize], true) {
            return Err(DamonError::InUse(slot));
        }
        let pids: Vec<u32> = targets.iter().map(|target| target.pid).collect();
        Session::start(self, slot, by, plan, &pids).inspect_err(|_| {
            self.lock().in_use[slot as usize] = false;
        })
    }

    /// The three areas of each target's address space; `None` for one of fewer
    /// than three mappings, or that is gone.
    fn areas(&self, targets: &[Target]) -> Vec<Option<[Range<u64>; 3]>> {
        let areas = |target: &Target| {
            let path = self.root().join(format!("proc/{}/maps", target.pid));
            let text = std::fs::read_to_string(path).ok()?;
            plan::three_areas(&mappings(&text))
        };
        targets.iter().map(areas).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves the tree ours to give back all the same.
        self.shared
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn root(&self) -> &Path {
        &self.shared.options.root
    }

    fn tracepoint(&self) -> &Tracepoint {
        &self.shared.tracepoint
    }

    fn layout(&self) -> Layout {
        self.shared.layout
    }

    /// Fills a kdamond in and turns it on. Returns its thread id and a moment
    /// that was surely before it began.
    fn turn_on(&self, slot: Slot, config: Config) -> Result<(u32, Instant), DamonError> {
        let mut inner = self.lock();
        inner.admin.prepare(slot as usize, config)?;
        let before = Instant::now();
        Ok((inner.admin.turn_on(slot as usize)?, before))
    }

    fn turn_off(&self, slot: Slot) -> Result<(), DamonError> {
        Ok(self.lock().admin.stop(slot as usize)?)
    }

    fn release(&self, slot: Slot) -> Result<(), DamonError> {
        let mut inner = self.lock();
        inner.in_use[slot as usize] = false;
        Ok(inner.admin.stop(slot as usize)?)
    }

    /// The kernel did not cut ranges into the pieces that were wanted.
    fn distrust_pieces(&self) {
        self.lock().piece_failures += 1;
    }

    /// A look of this kind did not come out as planned.
    fn distrust(&self, by: LookBy) {
        match by {
            LookBy::KernelSplits => self.lock().kernel_splits = Some(false),
            LookBy::WholeSpan => self.lock().span_failures += 1,
            LookBy::SinglePages => {}
        }
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}

/// The mappings of `/proc/PID/maps`. The vsyscall page is listed there but
/// belongs to no address space.
fn mappings(text: &str) -> Vec<Range<u64>> {
    text.lines()
        .filter(|line| !line.ends_with("[vsyscall]"))
        .filter_map(|line| {
            let (start, rest) = line.split_once('-')?;
            let end = rest.split(' ').next()?;
            Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_leave_the_vsyscall_page_out() {
        let text = "55d0-55d2 r--p 00000000 08:01 12   /bin/cat\n\
                    7ffe0000-7ffe2000 rw-p 00000000 00:00 0   [stack]\n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]\n";
        assert_eq!(mappings(text), [0x55d0..0x55d2, 0x7ffe_0000..0x7ffe_2000]);
    }

    #[test]
    fn a_kernel_without_damon_says_so() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        let write = |file: &str, text: &str| {
            let file = path.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("proc/sys/kernel/random/boot_id", "b\n");
        let pid = std::process::id();
        write(
            &format!("proc/{pid}/stat"),
            &format!("{pid} (x) S {}9", "0 ".repeat(18)),
        );
        let options = Options {
            root: path.into(),
            ..Options::default()
        };
        assert!(matches!(
            Damon::open(options.clone()),
            Err(Unavailable::NoDamon { .. })
        ));

        write("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n");
        let error = Damon::open(options).unwrap_err();
        assert!(
            matches!(error, Unavailable::Busy { kdamonds: 1, .. }),
            "{error}"
        );
        assert!(!path.join("run/memtide/damon.json").exists());
    }
}
