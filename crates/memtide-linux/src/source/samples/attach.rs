//! Keeps an event of each stream open on every thread or CPU that is watched.
//!
//! Problem. An event watches one thread or one CPU. Threads come and go, their
//! ids come back, processes end and their ids come back, CPUs go offline and
//! return. An event whose thread has ended stays open and silent.
//!
//! Approach. [`Attached::refresh`] compares what is open with what should be.
//! Threads are those of the processes that are watched, as long as the process
//! under that pid is still the one that it was. An event that has ended is
//! closed, and if there is a thread under its id, that is another one and gets
//! an event of its own. With more threads than is worth an event each, or where
//! the unit cannot follow threads, events go to CPUs, and what other processes
//! do is dropped here.
//!
//! A CPU that went offline takes its events with it; they are closed, and opened
//! anew when it returns. Both are counted.

use super::period::Paces;
use super::plan::Stream;
use super::{Options, Polled, SampleError, Scope, Window};
use crate::fs::list;
use crate::fs::proc::Process;
use crate::fs::{FsError, Root};
use crate::perf::event::{Event, EventError, RunTimes};
use crate::perf::{MemoryAccess, Record, Scratch, Walk};
use crate::sys::perf_event::Watch;
use perf_event_open_sys::bindings as b;
use std::collections::BTreeSet;

/// The smallest ring worth having, in pages.
const MIN_RING_PAGES: usize = 16;

/// A tenth of a second: a hundred times the kernel's turn for sharing a unit.
const LONG_ENOUGH_NS: u64 = 100_000_000;

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Whether threads are watched one by one; otherwise CPUs are.
    pub by_thread: bool,
    /// Events that are open.
    pub events: usize,
    /// CPUs that may be busy with what is watched.
    pub cpus: usize,
    /// Whether samples carry physical addresses.
    pub physical: bool,
}

/// What changed since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Watched processes that are still there. Zero if every process is watched.
    pub processes_alive: usize,
    /// Events opened.
    pub opened: usize,
    /// Events closed, because their thread ended or their CPU went offline.
    pub closed: usize,
    /// CPUs that went offline.
    pub cpus_lost: usize,
    /// CPUs that came online.
    pub cpus_gained: usize,
    /// For how long the events should have counted since the last look, and for
    /// how long they did, all together.
    pub times: RunTimes,
}

impl Refreshed {
    /// Whether the events were on for a while and never had the unit: somebody
    /// else keeps it.
    pub fn is_starved(&self) -> bool {
        self.times.enabled_ns >= LONG_ENOUGH_NS && self.times.running_ns == 0
    }
}

#[derive(Debug)]
struct Open {
    event: Event,
    stream: usize,
    /// Told to be throttled and not yet told to go on.
    throttled: bool,
    /// As of the last look.
    times: RunTimes,
}

#[derive(Debug)]
enum Target {
    Threads,
    Cpus,
}

/// The open events.
#[derive(Debug)]
pub(super) struct Attached {
    root: Root,
    ring_pages: usize,
    ring_budget_pages: usize,
    max_thread_events: usize,
    /// `None` is every process.
    processes: Option<Vec<Process>>,
    /// Their ids, sorted: what is handed on of what CPUs see.
    pids: Vec<u32>,
    target: Target,
    online: BTreeSet<u32>,
    threads: usize,
    /// Whether samples carry physical addresses.
    physical: bool,
    open: Vec<Open>,
}

impl Attached {
    /// Opens everything. Where physical addresses are refused and the rest is
    /// not, `streams` come back without.
    pub(super) fn open(
        streams: &mut Vec<Stream>,
        scope: Scope,
        options: &Options,
    ) -> Result<Attached, SampleError> {
        let (processes, target) = match scope {
            Scope::Processes(processes) => (Some(processes), Target::Threads),
            Scope::Machine => (None, Target::Cpus),
        };
        let mut attached = Attached {
            root: options.root.clone(),
            ring_pages: options.ring_pages,
            ring_budget_pages: options.ring_budget_pages,
            max_thread_events: options.max_thread_events,
            processes: None,
            pids: Vec::new(),
            target,
            online: BTreeSet::new(),
            threads: 0,
            physical: true,
            open: Vec::new(),
        };
        if let Some(processes) = processes {
            attached.set_processes(processes);
        }
        let refreshed = match attached.refresh(streams) {
            Err(SampleError::Event {
                source: EventError::NotPermitted { .. },
                ..
            }) if streams.iter().all(|s| s.with_fewer_rights().is_some()) => {
                for stream in streams.iter_mut() {
                    *stream = stream.with_fewer_rights().expect("asked above");
                }
                attached.open.clear();
                attached.physical = false;
                attached.refresh(streams)?
            }
            other => other?,
        };
        if attached.processes.is_some() && refreshed.processes_alive == 0 {
            return Err(SampleError::NobodyLeft);
        }
        Ok(attached)
    }

    /// From the next refresh on, these processes.
    pub(super) fn set_processes(&mut self, processes: Vec<Process>) {
        self.pids = processes.iter().map(|process| process.pid).collect();
        self.pids.sort_unstable();
        self.processes = Some(processes);
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.open.iter().map(|open| &open.event)
    }

    pub(super) fn coverage(&self) -> Coverage {
        let online = self.online.len().max(1);
        let by_thread = matches!(self.target, Target::Threads);
        Coverage {
            by_thread,
            events: self.open.len(),
            cpus: match by_thread {
                true => online.min(self.threads).max(1),
                false => online,
            },
            physical: self.physical,
        }
    }

    /// Sets the period of every event of a stream. One that refuses has ended.
    pub(super) fn set_period(&self, stream: usize, period: u64) {
        for open in self.open.iter().filter(|open| open.stream == stream) {
            let _ = open.event.set_period(period);
        }
    }

    /// See [`super::SampleSource::refresh`].
    pub(super) fn refresh(&mut self, streams: &mut [Stream]) -> Result<Refreshed, SampleError> {
        let mut refreshed = Refreshed::default();
        let online = online_cpus(&self.root)?;
        if !self.online.is_empty() {
            refreshed.cpus_lost = self.online.difference(&online).count();
            refreshed.cpus_gained = online.difference(&self.online).count();
        }
        self.online = online;
        refreshed.times = self.run_times();
        let tids = self.live_threads(&mut refreshed);
        self.threads = tids.len();
        if tids.len() * streams.len() > self.max_thread_events {
            self.target = Target::Cpus;
        }
        loop {
            let wanted = self.wanted(&tids, streams);
            match self.bring_about(&wanted, streams, &mut refreshed) {
                Err(SampleError::Event {
                    source: EventError::Unsupported { .. },
                    ..
                }) if matches!(self.target, Target::Threads) => {
                    // Older kernels cannot follow a thread with every unit.
                    self.target = Target::Cpus;
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok(refreshed),
            }
        }
    }

    /// What the events' times grew by since the last look.
    fn run_times(&mut self) -> RunTimes {
        let mut grown = RunTimes::default();
        for open in &mut self.open {
            // One that cannot be read has ended.
            let Ok(now) = open.event.run_times() else {
                continue;
            };
            let then = std::mem::replace(&mut open.times, now);
            grown.enabled_ns += now.enabled_ns.saturating_sub(then.enabled_ns);
            grown.running_ns += now.running_ns.saturating_sub(then.running_ns);
        }
        grown
    }

    /// The threads of the processes that are still the same.
    fn live_threads(&mut self, refreshed: &mut Refreshed) -> BTreeSet<u32> {
        let mut tids = BTreeSet::new();
        let Some(processes) = &self.processes else {
            return tids;
        };
        self.pids.clear();
        for process in processes {
            // One that cannot be read has ended meanwhile.
            if let Ok(threads) = process.threads(&self.root)
                && !threads.is_empty()
            {
                refreshed.processes_alive += 1;
                self.pids.push(process.pid);
                tids.extend(threads);
            }
        }
        self.pids.sort_unstable();
        tids
    }

    /// What should be open.
    fn wanted(&self, tids: &BTreeSet<u32>, streams: &[Stream]) -> BTreeSet<(usize, u32)> {
        let mut wanted = BTreeSet::new();
        for (number, stream) in streams.iter().enumerate() {
            match self.target {
                Target::Threads => wanted.extend(tids.iter().map(|tid| (number, *tid))),
                Target::Cpus => {
                    let has_unit = |cpu: &&u32| match &stream.cpus {
                        Some(cpus) => cpus.contains(*cpu),
                        None => true,
                    };
                    let cpus = self.online.iter().filter(has_unit);
                    wanted.extend(cpus.map(|cpu| (number, *cpu)));
                }
            }
        }
        wanted
    }

    fn bring_about(
        &mut self,
        wanted: &BTreeSet<(usize, u32)>,
        streams: &[Stream],
        refreshed: &mut Refreshed,
    ) -> Result<(), SampleError> {
        let by_thread = matches!(self.target, Target::Threads);
        let before = self.open.len();
        let mut there = BTreeSet::new();
        self.open.retain(|open| {
            let id = match (open.event.watch(), by_thread) {
                (Watch::Thread(tid), true) => tid,
                (Watch::Cpu(cpu), false) => cpu,
                _ => return false,
            };
            let keep = wanted.contains(&(open.stream, id)) && !open.event.has_ended();
            if keep {
                there.insert((open.stream, id));
            }
            keep
        });
        refreshed.closed += before - self.open.len();
        let pages = self.share(wanted.len());
        for &(number, id) in wanted.difference(&there) {
            let stream = &streams[number];
            let watch = match by_thread {
                true => Watch::Thread(id),
                false => Watch::Cpu(id),
            };
            match open_as_large_as_allowed(stream, watch, pages) {
                Ok(event) => {
                    refreshed.opened += 1;
                    self.open.push(Open {
                        event,
                        stream: number,
                        throttled: false,
                        times: RunTimes::default(),
                    });
                }
                // It ended since it was listed.
                Err(EventError::Gone { .. }) => {}
                Err(_) if !by_thread && !online_cpus(&self.root)?.contains(&id) => {}
                Err(source) => {
                    return Err(SampleError::Event {
                        stream: stream.name.clone(),
                        source,
                    });
                }
            }
        }
        Ok(())
    }

    /// A ring's size when `events` share the budget: a power of two.
    fn share(&self, events: usize) -> usize {
        let share = (self.ring_budget_pages / events.max(1)).max(1);
        let largest = self.ring_pages.max(1);
        (1 << share.ilog2())
            .max(MIN_RING_PAGES)
            .min(1 << largest.ilog2())
    }

    /// See [`super::SampleSource::poll`].
    pub(super) fn drain(
        &mut self,
        streams: &[Stream],
        paces: &mut Paces,
        scratch: &mut Scratch,
        sink: &mut impl FnMut(&MemoryAccess),
    ) -> Polled {
        let mut polled = Polled::default();
        let mut throttled_events = 0;
        for open in &mut self.open {
            let (walk, throttled) = open.look(scratch);
            throttled_events += u64::from(throttled);
            let missing = throttled || walk.lost > 0 || walk.malformed_bytes > 0;
            paces.note(open.stream, walk.samples, missing);
            polled.walk += walk;
        }
        let Walk {
            lost,
            malformed_bytes,
            ..
        } = polled.walk;
        if lost > 0 || malformed_bytes > 0 || throttled_events > 0 {
            polled.window = Window::Invalid {
                lost,
                throttled: throttled_events,
                malformed_bytes,
            };
        }
        let all = self.processes.is_none();
        for open in &mut self.open {
            if !polled.window.is_valid() {
                open.event.discard_seen();
                continue;
            }
            let decoder = streams[open.stream].decoder;
            let pids = &self.pids;
            open.event.drain_seen(scratch, |record| {
                if !record.is_sample() {
                    return;
                }
                match decoder.decode(record) {
                    Ok(access) if all || pids.binary_search(&access.pid).is_ok() => {
                        polled.accesses += 1;
                        sink(&access);
                    }
                    Ok(_) => polled.foreign += 1,
                    Err(why) => polled.refused.count(why),
                }
            });
        }
        if !polled.window.is_valid() {
            polled.withheld = polled.walk.samples;
        }
        polled
    }
}

impl Open {
    /// Looks through the ring without taking anything: what is there, and
    /// whether the event was throttled at any time since the last look.
    fn look(&mut self, scratch: &mut Scratch) -> (Walk, bool) {
        let mut now = self.throttled;
        let mut ever = now;
        let walk = self
            .event
            .look(scratch, |record: Record<'_>| match record.kind {
                b::PERF_RECORD_THROTTLE => (now, ever) = (true, true),
                b::PERF_RECORD_UNTHROTTLE => now = false,
                _ => {}
            });
        self.throttled = now;
        (walk, ever)
    }
}

/// Opens an event with a ring of `pages`, or a smaller one if the caller may not
/// have as much.
fn open_as_large_as_allowed(
    stream: &Stream,
    watch: Watch,
    mut pages: usize,
) -> Result<Event, EventError> {
    loop {
        match Event::open_led(&stream.attr, stream.leader.as_ref(), watch, pages) {
            Err(EventError::Ring { .. }) if pages > MIN_RING_PAGES => pages /= 2,
            other => return other,
        }
    }
}

/// The CPUs that are online; one, number 0, where there is no such file.
fn online_cpus(root: &Root) -> Result<BTreeSet<u32>, FsError> {
    let cpus = root.parse("sys/devices/system/cpu/online", list::parse)?;
    Ok(cpus.unwrap_or_else(|| BTreeSet::from([0])))
}

#[cfg(test)]
#[path = "attach_tests.rs"]
mod tests;
