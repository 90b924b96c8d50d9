//! An open perf event with its ring, and what the kernel's refusals mean.

use super::ring::{self, Record, Scratch, Walk};
use crate::sys::perf_event::{self, RingMap, Watch};
use perf_event_open_sys::bindings::{self as b, perf_event_attr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Why an event could not be had.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The caller lacks the right.
    #[error(
        "perf event on {watch:?}: not permitted (kernel.perf_event_paranoid = {}); run as root or with CAP_PERFMON",
        paranoid.map_or("unknown".to_owned(), |level| level.to_string())
    )]
    NotPermitted {
        /// What it was to watch.
        watch: Watch,
        /// `kernel.perf_event_paranoid`.
        paranoid: Option<i32>,
    },
    /// The thread ended before the event was there.
    #[error("perf event on {watch:?}: the thread is gone")]
    Gone {
        /// What it was to watch.
        watch: Watch,
    },
    /// The kernel or the hardware has no such event.
    #[error("perf event on {watch:?}: not supported here: {source}")]
    Unsupported {
        /// What it was to watch.
        watch: Watch,
        /// The kernel's word.
        source: io::Error,
    },
    /// Somebody else has the unit, or all of it.
    #[error("perf event on {watch:?}: busy; another program has the unit, stop it to use it here")]
    Busy {
        /// What it was to watch.
        watch: Watch,
    },
    /// The ring could not be mapped.
    #[error(
        "perf ring of {pages} pages: {source}; raise kernel.perf_event_mlock_kb, or run with CAP_IPC_LOCK"
    )]
    Ring {
        /// Data pages asked for.
        pages: usize,
        /// The kernel's word.
        source: io::Error,
    },
    /// The kernel refused a filter expression.
    #[error("perf filter {filter:?}: {source}")]
    Filter {
        /// The expression.
        filter: String,
        /// The kernel's word.
        source: io::Error,
    },
    /// Anything else, such as too many open files.
    #[error("perf event on {watch:?}: {source}")]
    Other {
        /// What it was to watch.
        watch: Watch,
        /// The kernel's word.
        source: io::Error,
    },
}

impl EventError {
    fn opening(watch: Watch, source: io::Error) -> EventError {
        match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => EventError::NotPermitted {
                watch,
                paranoid: paranoid(Path::new("/")),
            },
            Some(libc::ESRCH) => EventError::Gone { watch },
            Some(libc::EBUSY) => EventError::Busy { watch },
            Some(libc::ENOENT | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV) => {
                EventError::Unsupported { watch, source }
            }
            _ => EventError::Other { watch, source },
        }
    }
}

/// `kernel.perf_event_paranoid` under `root`, or `None` if it cannot be read.
pub fn paranoid(root: &Path) -> Option<i32> {
    let path = root.join("proc/sys/kernel/perf_event_paranoid");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The `read_format` of an event whose [`Event::run_times`] are asked for.
pub const RUN_TIMES: u64 =
    (b::PERF_FORMAT_TOTAL_TIME_ENABLED | b::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

/// How long an event should have counted, and how long it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    /// Nanoseconds for which it was on and what it watches ran.
    pub enabled_ns: u64,
    /// Those of them during which it had a counter.
    pub running_ns: u64,
}

/// What [`wait`] ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// There is something to read.
    Ready,
    /// What the event watched has ended. There may still be something to read.
    HungUp,
    /// Nothing within the time.
    TimedOut,
}

/// An event and its ring.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
    /// The event that must count beside it for it to be sampled.
    leader: Option<OwnedFd>,
    ring: RingMap,
    watch: Watch,
    /// How far the ring was looked through, for [`Event::drain_seen`].
    seen: u64,
}

impl Event {
    /// Opens an event with a ring of `ring_pages` data pages (a power of two).
    ///
    /// # Errors
    ///
    /// See [`EventError`].
    pub fn open(
        attr: &perf_event_attr,
        watch: Watch,
        ring_pages: usize,
    ) -> Result<Event, EventError> {
        Event::open_led(attr, None, watch, ring_pages)
    }

    /// As [`open`](Self::open), in a group that an event of `leader` leads: it
    /// counts and is not sampled. Both are on at the end.
    ///
    /// # Errors
    ///
    /// See [`EventError`].
    pub fn open_led(
        attr: &perf_event_attr,
        leader: Option<&perf_event_attr>,
        watch: Watch,
        ring_pages: usize,
    ) -> Result<Event, EventError> {
        let opening = |source| EventError::opening(watch, source);
        let leader = leader
            .map(|leader| perf_event::open(leader, watch, None))
            .transpose()
            .map_err(opening)?;
        let group = leader.as_ref().map(AsFd::as_fd);
        let fd = perf_event::open(attr, watch, group).map_err(opening)?;
        let ring = RingMap::map(fd.as_fd(), ring_pages).map_err(|source| EventError::Ring {
            pages: ring_pages,
            source,
        })?;
        if let Some(leader) = &leader {
            perf_event::enable(leader.as_fd()).map_err(opening)?;
        }
        Ok(Event {
            fd,
            leader,
            ring,
            watch,
            seen: 0,
        })
    }

    /// Opens a second event on the same thread or CPU that writes into this
    /// one's ring. It lives as long as the descriptor returned.
    ///
    /// # Errors
    ///
    /// See [`EventError`].
    pub fn open_into(&self, attr: &perf_event_attr) -> Result<OwnedFd, EventError> {
        let watch = self.watch;
        let fd = perf_event::open(attr, watch, None)
            .map_err(|source| EventError::opening(watch, source))?;
        perf_event::set_output(fd.as_fd(), self.fd.as_fd())
            .map_err(|source| EventError::Other { watch, source })?;
        Ok(fd)
    }

    /// What the event watches.
    pub fn watch(&self) -> Watch {
        self.watch
    }

    /// Whether a second event leads it.
    pub fn is_led(&self) -> bool {
        self.leader.is_some()
    }

    /// Sets after how many events the next samples are taken.
    ///
    /// # Errors
    ///
    /// The unit cannot count that far.
    pub fn set_period(&self, period: u64) -> io::Result<()> {
        perf_event::set_period(self.fd.as_fd(), period)
    }

    /// Nanoseconds for which it should have counted, and for which it did: less
    /// where it has to share the unit, none where somebody else keeps it. Only
    /// of an event that was opened with [`RUN_TIMES`].
    ///
    /// # Errors
    ///
    /// What read(2) says.
    pub fn run_times(&self) -> io::Result<RunTimes> {
        let mut words = [0; 24];
        match rustix::io::read(&self.fd, &mut words)? {
            // Value, then the two times.
            24 => Ok(RunTimes {
                enabled_ns: ring::u64_at(&words, 8).unwrap_or(0),
                running_ns: ring::u64_at(&words, 16).unwrap_or(0),
            }),
            // It could not be put on the unit at all.
            _ => Ok(RunTimes::default()),
        }
    }

    /// Whether what it watched has ended; then no more records come.
    pub fn has_ended(&self) -> bool {
        let mut fd = [PollFd::new(&self.fd, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let ended = PollFlags::HUP | PollFlags::ERR;
        poll(&mut fd, Some(&at_once)).is_ok() && fd[0].revents().intersects(ended)
    }

    /// Hands every record that is ready to `each` and leaves it in the ring.
    pub fn look(&mut self, scratch: &mut Scratch, each: impl FnMut(Record<'_>)) -> Walk {
        let pending = self.ring.pending();
        let head = pending.head;
        let walk = ring::walk(pending.older, pending.newer, scratch, each);
        self.seen = head;
        walk
    }

    /// Hands every record that the last [`look`](Self::look) saw to `each`, and
    /// frees the room.
    pub fn drain_seen(&mut self, scratch: &mut Scratch, each: impl FnMut(Record<'_>)) -> Walk {
        let pending = self.ring.pending_until(self.seen);
        let head = pending.head;
        let walk = ring::walk(pending.older, pending.newer, scratch, each);
        self.ring.consume(head);
        walk
    }

    /// Frees the room of every record that the last [`look`](Self::look) saw.
    pub fn discard_seen(&mut self) {
        self.ring.consume(self.seen);
    }

    /// Hands every record that is ready to `each` and frees the room.
    pub fn drain(&mut self, scratch: &mut Scratch, each: impl FnMut(Record<'_>)) -> Walk {
        let pending = self.ring.pending();
        let head = pending.head;
        let seen = ring::walk(pending.older, pending.newer, scratch, each);
        self.ring.consume(head);
        seen
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets a tracepoint event's filter.
///
/// # Errors
///
/// [`EventError::Filter`] with the expression.
pub fn set_filter(event: BorrowedFd<'_>, filter: &str) -> Result<(), EventError> {
    CString::new(filter)
        .map_err(io::Error::from)
        .and_then(|text| perf_event::set_filter(event, &text))
        .map_err(|source| EventError::Filter {
            filter: filter.to_owned(),
            source,
        })
}

/// Waits until one of `events` has something to read.
///
/// # Errors
///
/// What poll(2) says; an interrupted call counts as [`Wait::TimedOut`].
pub fn wait<'a>(
    events: impl Iterator<Item = BorrowedFd<'a>>,
    timeout: Duration,
) -> io::Result<Wait> {
    let mut fds: Vec<PollFd<'_>> = events
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let timeout = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(Wait::TimedOut),
        Ok(_) if fds.iter().any(|fd| fd.revents().contains(PollFlags::IN)) => Ok(Wait::Ready),
        Ok(_) => Ok(Wait::HungUp),
        Err(error) => Err(error.into()),
    }
}
