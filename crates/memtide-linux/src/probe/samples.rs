//! Whether sampled accesses are those that are made.
//!
//! A thread reads 64 of 512 pages of this process, over and over, and every
//! one of them must be sampled and no other. Page faults come only once: there,
//! the 64 pages are touched for the first time. For the proof every access
//! counts, also those that caches answer, so hardware is opened without the
//! filters that keep them out otherwise.

use super::judge::{Judge, Verdict};
use super::source::{Proof, words};
use super::toucher::{Pace, Toucher};
use super::{PAGES, hot_pages};
use crate::fs::Root;
use crate::fs::proc::Process;
use crate::source::observe::{Abilities, Sink, View};
use crate::source::samples::{Kind, Options, SampleError, SampleSource, Scope};
use crate::sys::Errno;
use crate::sys::own_memory::OwnPages;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::PageSize;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ME: OwnerId = OwnerId(0);
/// How long the proof may be deaf to being stopped.
const POLL: Duration = Duration::from_millis(50);
/// A loop that only reads does about a thousand million operations a second: so
/// some ten thousand samples, well below what the kernel allows. No multiple of
/// the loop's length, so that every page has its turn.
const PERIOD: u64 = 100_003;

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum Unproved {
    /// Memory to try it on could not be had.
    #[error("no pages to try it on: {0}")]
    Pages(Errno),
    /// It cannot be opened, or failed.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// It reported something else than what happened.
    #[error("{}", words(&.0.sightings, .0.elapsed))]
    Wrong(Proof),
    /// The caller did not want to wait any longer.
    #[error("interrupted")]
    Interrupted,
}

/// Proves `kind` on pages of this process, within `limit`. `stopped` is asked
/// several times a second.
///
/// # Errors
///
/// Why it is not proved.
pub fn prove(
    kind: Kind,
    root: &Root,
    page: PageSize,
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<Proof, Unproved> {
    let me = Process::current(root).map_err(SampleError::from)?;
    let options = Options {
        root: root.clone(),
        cached_too: true,
        first_period: (kind != Kind::Faults).then_some(PERIOD),
        ..Options::default()
    };
    let pages = Arc::new(OwnPages::map(PAGES).map_err(Unproved::Pages)?);
    let hot = hot_pages(PAGES);
    if kind != Kind::Faults {
        (0..PAGES).for_each(|page| pages.write(page, 1));
    }
    let first = VirtualPage(pages.address() as u64 >> page.shift());
    let abilities = Abilities::default();
    let mut judge = Judge::new(ME, first, PAGES, &hot, abilities);
    // Opened before the thread begins, so that its first touches count, and
    // looked over again once it is there.
    let mut source = SampleSource::open(kind, Scope::Processes(vec![me]), &options)?;
    let _toucher = match kind {
        Kind::Faults => {
            hot.iter().for_each(|page| pages.write(*page, 1));
            None
        }
        _ => Some(Toucher::start(pages.clone(), hot, Pace::ReadOnly).map_err(Unproved::Pages)?),
    };
    let began = Instant::now();
    let mut lost = 0;
    let mut starved = false;
    loop {
        if stopped() {
            return Err(Unproved::Interrupted);
        }
        starved |= source.refresh()?.is_starved();
        let polled = source.poll(&mut |access| {
            let page = VirtualPage(access.address >> page.shift());
            judge.touched(View::Look, ME, page, 1);
        });
        lost += polled.walk.lost;
        let proof = Proof {
            sightings: judge.sightings(),
            elapsed: began.elapsed(),
            lost,
        };
        match judge.verdict(proof.elapsed, limit) {
            Verdict::Wait => std::thread::sleep(POLL),
            Verdict::Proved => return Ok(proof),
            Verdict::Failed if starved && proof.sightings.best.seen == 0 => {
                let kind = kind.name();
                return Err(SampleError::Starved { kind }.into());
            }
            Verdict::Failed => return Err(Unproved::Wrong(proof)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_faults_prove_themselves_where_perf_may_be_used() {
        let root = Root::default();
        match prove(
            Kind::Faults,
            &root,
            PageSize::KIB_4,
            Duration::from_secs(10),
            &|| false,
        ) {
            Ok(proof) => assert_eq!(proof.sightings.best.seen, 64),
            Err(Unproved::Sample(error)) => eprintln!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn what_is_not_there_is_not_proved() {
        let root = tempfile::tempdir().unwrap();
        let error = prove(
            Kind::Ibs,
            &Root::new(root.path()),
            PageSize::KIB_4,
            Duration::ZERO,
            &|| false,
        )
        .unwrap_err();
        assert!(matches!(error, Unproved::Sample(_)), "{error}");
    }
}
