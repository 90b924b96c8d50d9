//! One kdamond at work: reading what it found, pass by pass.

use super::plan::{Marker, Plan};
use super::trace::{self, Aggregated, Layout};
use super::{Damon, DamonError, LookBy, Slot};
use crate::perf::event::{self, Event as PerfEvent, EventError, Wait};
use crate::perf::tracepoint::Tracepoint;
use crate::perf::{SampleLayout, Scratch};
use crate::pidfd;
use crate::priority;
use crate::sys::perf_event::{self, Watch};
use perf_event_open_sys::bindings as b;
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A record in the ring: header, time, the payload's length and 48 bytes of
/// payload, padded.
const RECORD_BYTES: u64 = 72;

/// Smallest ring.
const MIN_RING_PAGES: u64 = 16;

/// Largest ring, in bytes.
const MAX_RING: u64 = 4 << 20;

/// Records that a ring keeps at most while nobody reads it.
pub fn kept_records() -> u64 {
    MAX_RING / RECORD_BYTES
}

/// A region in which accesses were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Index of the caller's target.
    pub target: usize,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// In how many samples of the pass it was accessed; at least 1.
    pub nr_accesses: u32,
    /// Aggregations since its access count last changed much.
    pub age: u32,
    /// The pass, counted from 0.
    pub pass: u64,
}

/// Why a session brings nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The kdamond has ended: every target's process is gone, or somebody
    /// turned it off.
    KdamondGone,
    /// The kernel's regions are not the ones that were planned, so the events
    /// mean nothing. The next look on this [`Damon`] goes about it differently.
    RegionsDiffer {
        /// Fewest regions planned for the last target.
        planned: u64,
        /// Regions of the target that differs.
        found: u64,
    },
}

/// What a poll brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Passes completed since the session began.
    pub passes_completed: u64,
    /// Events handed to the sink by this poll.
    pub events: u64,
    /// Records lost since the last poll because the ring was full. A pass
    /// with losses has missing pages, and may have lost its end.
    pub lost: u64,
    /// Set once the session is over.
    pub ended: Option<Ended>,
}

/// A kdamond at work. Dropping it turns the kdamond off.
#[derive(Debug)]
pub struct Session {
    damon: Damon,
    slot: Slot,
    by: Option<LookBy>,
    kdamond: u32,
    owners: Vec<usize>,
    wanted: Option<Vec<Vec<Range<u64>>>>,
    marker: Marker,
    regions: u64,
    /// The largest region that the kernel should have left, in bytes.
    largest: Option<u64>,
    layout: Layout,
    sample: SampleLayout,
    event: PerfEvent,
    _marker_event: OwnedFd,
    scratch: Scratch,
    /// One for each of the caller's targets.
    processes: Vec<OwnedFd>,
    pass: u64,
    /// The session came in the middle of a pass that must not be reported.
    skip: bool,
    ended: Option<Ended>,
    stopped: bool,
    /// The kdamond's.
    schedstat: Option<File>,
}

impl Session {
    pub(super) fn start(
        damon: &Damon,
        slot: Slot,
        by: Option<LookBy>,
        plan: Plan,
        pids: &[u32],
    ) -> Result<Session, DamonError> {
        let Plan {
            config,
            owners,
            wanted,
            marker,
            regions,
            largest,
        } = plan;
        let aggregation = Duration::from_micros(config.aggregate_us);
        let processes = pids
            .iter()
            .map(|&pid| {
                let failed = |error: Errno| DamonError::Process {
                    pid,
                    source: error.into(),
                };
                pidfd::open(pid).map_err(failed)
            })
            .collect::<Result<_, _>>()?;
        let (kdamond, before) = damon.turn_on(slot, config)?;
        priority::ask_for_kdamond(kdamond);
        let built = (|| {
            let tracepoint = damon.tracepoint();
            let (event, marker_event, sample) =
                open_events(kdamond, tracepoint, &marker, wanted.as_deref(), regions)?;
            Ok((event, marker_event, sample))
        })();
        let (event, marker_event, sample) = match built {
            Ok(built) => built,
            Err(error) => {
                damon.turn_off(slot)?;
                return Err(error);
            }
        };
        let schedstat = damon.root().join(format!("proc/{kdamond}/schedstat"));
        Ok(Session {
            schedstat: File::open(schedstat).ok(),
            damon: damon.clone(),
            slot,
            by,
            kdamond,
            owners,
            wanted,
            marker,
            regions,
            largest,
            layout: damon.layout(),
            sample,
            event,
            _marker_event: marker_event,
            scratch: Scratch::new(),
            processes,
            pass: 0,
            // The first pass cannot end before one aggregation has gone by.
            skip: before.elapsed() >= aggregation,
            ended: None,
            stopped: false,
        })
    }

    /// Hands every accessed region since the last poll to `sink`. An event
    /// belongs to a finished pass if its number is below the result's
    /// `passes_completed`. Nothing is allocated.
    ///
    /// # Errors
    ///
    /// poll(2) failed on the event.
    pub fn poll(&mut self, sink: &mut impl FnMut(Event)) -> Result<Polled, DamonError> {
        let hung_up = event::wait(std::iter::once(self.event.as_fd()), Duration::ZERO)
            .map_err(DamonError::Wait)?
            == Wait::HungUp;
        let Session {
            event,
            scratch,
            sample,
            layout,
            owners,
            wanted,
            marker,
            pass,
            skip,
            ended,
            largest,
            ..
        } = self;
        let mut events = 0;
        let walk = event.drain(scratch, |record| {
            if !record.is_sample() || matches!(ended, Some(Ended::RegionsDiffer { .. })) {
                return;
            }
            let payload = sample.decode(record.body).and_then(|sample| sample.raw);
            let Some(found) = payload.and_then(|payload| layout.read(payload)) else {
                return;
            };
            let last = found.target == marker.target && found.end == marker.end;
            // A larger one is a remainder that the kernel left uncut.
            let size = found.end.wrapping_sub(found.start);
            let uncut = largest.is_some_and(|largest| size > largest);
            let count_differs = last && !(marker.fewest..=marker.most).contains(&found.regions);
            if uncut || count_differs {
                *ended = Some(Ended::RegionsDiffer {
                    planned: marker.fewest,
                    found: found.regions,
                });
                return;
            }
            if !*skip
                && found.nr_accesses > 0
                && let Some(event) = owned(&found, owners, wanted.as_deref(), *pass)
            {
                events += 1;
                sink(event);
            }
            if last {
                *pass += u64::from(!*skip);
                *skip = false;
            }
        });
        if let Some(Ended::RegionsDiffer { .. }) = self.ended {
            match self.by {
                Some(by) => self.damon.distrust(by),
                None => self.damon.distrust_pieces(),
            }
        }
        if self.ended.is_none() && hung_up && walk.records == 0 {
            self.ended = Some(Ended::KdamondGone);
        }
        Ok(Polled {
            passes_completed: self.pass,
            events,
            lost: walk.lost,
            ended: self.ended,
        })
    }

    /// Waits for the end of a pass, for a half-full ring, or for the kdamond's
    /// end.
    ///
    /// # Errors
    ///
    /// poll(2) failed.
    pub fn wait(&self, timeout: Duration) -> Result<Wait, DamonError> {
        event::wait(std::iter::once(self.event.as_fd()), timeout).map_err(DamonError::Wait)
    }

    /// Which of the caller's targets are gone, by index.
    pub fn targets_gone(&self) -> impl Iterator<Item = usize> + '_ {
        self.processes
            .iter()
            .enumerate()
            .filter(|(_, fd)| pidfd::has_ended(fd))
            .map(|(n, _)| n)
    }

    /// The kdamond's thread id.
    pub fn kdamond_pid(&self) -> u32 {
        self.kdamond
    }

    /// How many regions a pass visits.
    pub fn regions(&self) -> u64 {
        self.regions
    }

    /// How the look is done; `None` for a watch.
    pub fn look_by(&self) -> Option<LookBy> {
        self.by
    }

    /// The CPU time that the kdamond has used, or `None` if it is gone.
    pub fn cpu_time(&self) -> Option<Duration> {
        // Asked twice a turn: one call each, and not the five of opening it every time.
        let file = self.schedstat.as_ref()?;
        let mut text = [0; 96];
        let length = file.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let nanoseconds = text.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Duration::from_nanos(nanoseconds))
    }

    /// Turns the kdamond off. It finishes its current sample first, so this
    /// takes up to one sampling interval.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn stop(mut self) -> Result<(), DamonError> {
        self.turn_off()
    }

    /// What turns the kdamond off when it is called, which takes as long as [`stop`](Self::stop). What
    /// the present pass sees can still be read meanwhile, and after.
    pub fn stopping(&mut self) -> impl FnOnce() -> Result<(), DamonError> + Send + 'static {
        self.stopped = true;
        let (damon, slot) = (self.damon.clone(), self.slot);
        move || damon.release(slot)
    }

    fn turn_off(&mut self) -> Result<(), DamonError> {
        if std::mem::replace(&mut self.stopped, true) {
            return Ok(());
        }
        self.damon.release(self.slot)
    }
}

impl AsFd for Session {
    /// Readable at the end of a pass and when the ring is half full.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Nobody is left to tell; `Damon` tries again when it goes.
        let _ = self.turn_off();
    }
}

/// The caller's event, or `None` if the kernel looked where nobody asked.
fn owned(
    found: &Aggregated,
    owners: &[usize],
    wanted: Option<&[Vec<Range<u64>>]>,
    pass: u64,
) -> Option<Event> {
    let kernel_target = usize::try_from(found.target).ok()?;
    let target = *owners.get(kernel_target)?;
    if let Some(wanted) = wanted
        && !trace::within(&wanted[target], found.start)
    {
        return None;
    }
    Some(Event {
        target,
        start: found.start,
        end: found.end,
        nr_accesses: found.nr_accesses,
        age: found.age,
        pass,
    })
}

/// The access event with the ring, and the marker event that writes into it.
fn open_events(
    kdamond: u32,
    tracepoint: &Tracepoint,
    marker: &Marker,
    wanted: Option<&[Vec<Range<u64>>]>,
    regions: u64,
) -> Result<(PerfEvent, OwnedFd, SampleLayout), DamonError> {
    let sample = SampleLayout::new((b::PERF_SAMPLE_TIME | b::PERF_SAMPLE_RAW).into())
        .expect("both fields are known");
    let page = rustix::param::page_size() as u64;
    // A pass in which all regions are accessed, if they are not too many; whoever listens
    // is woken when it is half full, and what is lost is counted.
    let mut ring_pages = (regions * RECORD_BYTES / page + 1)
        .next_power_of_two()
        .clamp(MIN_RING_PAGES, MAX_RING / page);
    let mut attr = b::perf_event_attr::default();
    attr.type_ = b::PERF_TYPE_TRACEPOINT;
    attr.config = tracepoint.id;
    attr.sample_type = sample.sample_type();
    attr.sample_period = 1;
    attr.set_disabled(1);
    let mut access = attr;
    access.set_watermark(1);
    attr.wakeup_events = 1;

    // Or a smaller ring, if we may not have as much.
    let event = loop {
        access.wakeup_watermark = (ring_pages * page / 2) as u32;
        match PerfEvent::open(&access, Watch::Thread(kdamond), ring_pages as usize) {
            Err(EventError::Ring { .. }) if ring_pages > MIN_RING_PAGES => ring_pages /= 2,
            other => break other?,
        }
    };
    let marker_event = event.open_into(&attr)?;
    let bounds = wanted.and_then(|wanted| {
        let all = || wanted.iter().flatten();
        Some(all().map(|range| range.start).min()?..all().map(|range| range.end).max()?)
    });
    event::set_filter(
        event.as_fd(),
        &trace::access_filter(marker, bounds.as_ref()),
    )?;
    event::set_filter(marker_event.as_fd(), &trace::marker_filter(marker))?;
    let enable = |fd| {
        perf_event::enable(fd).map_err(|source| EventError::Other {
            watch: Watch::Thread(kdamond),
            source,
        })
    };
    enable(event.as_fd())?;
    enable(marker_event.as_fd())?;
    Ok((event, marker_event, sample))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Aggregated = Aggregated {
        target: 1,
        regions: 4,
        start: 0x3000,
        end: 0x4000,
        nr_accesses: 2,
        age: 5,
    };

    #[test]
    fn the_kernels_second_target_may_be_the_callers_first() {
        let event = owned(&FOUND, &[0, 0, 1], None, 7).unwrap();
        assert_eq!((event.target, event.start, event.pass), (0, 0x3000, 7));
        assert_eq!(owned(&FOUND, &[0], None, 7), None);
    }

    #[test]
    fn what_nobody_asked_for_is_dropped() {
        let at = |first: u64| {
            Vec::from([Range {
                start: first,
                end: first + 0x1000,
            }])
        };
        let wanted = [at(0x9000), at(0x3000)];
        assert!(owned(&FOUND, &[0, 1], Some(&wanted), 0).is_some());
        let wanted = [at(0x3000), at(0x4000)];
        assert_eq!(owned(&FOUND, &[0, 1], Some(&wanted), 0), None);
    }
}
