//! Reading ahead of sequential readers.
//!
//! The kernel reads ahead too, but on the faulting thread's account: what it
//! reads follows that thread's memory policy. The pager's threads carry the
//! policy of the pager. A stream is a run of granules that came into memory
//! where the last such run ended, whole ones: pages here and there are random reads.

use super::{FileMode, Inner};
use crate::bell::Bell;
use crate::sys::known_file::KnownFile;
use crate::unmap::lock;
use memtide_core::eviction::Granule;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Mutex;

/// Streams that a region remembers.
const STREAMS: usize = 8;
/// A stream is read ahead of once it went on so often.
const SEQUENTIAL: u32 = 2;
/// Requests that wait; the oldest goes when there are more.
const WAITING: usize = 64;
/// Bytes of one call.
const PIECE: u64 = 1 << 20;

/// Where streams of a region ended, latest last.
#[derive(Debug, Default)]
pub(super) struct Streams(VecDeque<Stream>);

#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Granule after the last that came.
    end: u32,
    /// Granule after the last that was asked for.
    asked: u32,
    /// How often it went on where it had ended. Random reads do so once by chance.
    times: u32,
}

/// What is to be read in.
#[derive(Debug)]
pub(crate) struct Request {
    region: u32,
    file: KnownFile,
    offset: u64,
    bytes: u64,
}

/// Requests, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    queue: Mutex<VecDeque<Request>>,
    pub bell: Bell,
}

impl Wanted {
    fn push(&self, request: Request) {
        let mut queue = lock(&self.queue);
        if queue.len() >= WAITING {
            queue.pop_front();
        }
        queue.push_back(request);
        drop(queue);
        self.bell.ring();
    }

    /// The next request.
    pub fn pop(&self) -> Option<Request> {
        lock(&self.queue).pop_front()
    }

    pub fn forget(&self, region: u32) {
        lock(&self.queue).retain(|request| request.region != region);
    }
}

impl FileMode {
    /// Notes granules `from..to` that came into memory as a whole.
    pub(super) fn note_stream(&self, inner: &mut Inner, number: usize, (from, to): (u32, u32)) {
        let ahead = (self.settings.read_ahead.bytes / self.settings.granule_bytes) as u32;
        if ahead == 0 {
            return;
        }
        let Inner {
            regions, eviction, ..
        } = inner;
        let Some(region) = regions[number].as_mut() else {
            return;
        };
        let granules = region.excluded.len() as u32;
        let streams = &mut region.streams.0;
        let found = streams
            .iter()
            .position(|s| (s.end..=s.asked).contains(&from));
        let Some(at) = found else {
            if streams.len() == STREAMS {
                streams.pop_front();
            }
            streams.push_back(Stream {
                end: to,
                asked: to,
                times: 0,
            });
            return;
        };
        let Some(mut stream) = streams.remove(at) else {
            return;
        };
        stream.end = to;
        stream.times += 1;
        if stream.times < SEQUENTIAL {
            stream.asked = to;
            streams.push_back(stream);
            return;
        }
        let until = (to + ahead).min(granules);
        let mut start = stream.asked.max(to);
        let holds = |index| {
            eviction.holds(Granule {
                region: number as u32,
                index,
            })
        };
        while start < until && holds(start) {
            start += 1;
        }
        stream.asked = stream.asked.max(until);
        streams.push_back(stream);
        if start >= until {
            return;
        }
        let Ok(file) = region.file.try_clone() else {
            self.counters.failed_calls.add(1);
            return;
        };
        let granule_bytes = self.settings.granule_bytes as u64;
        self.wanted.push(Request {
            region: number as u32,
            file,
            offset: region.offset + u64::from(start) * granule_bytes,
            bytes: u64::from(until - start) * granule_bytes,
        });
    }

    /// Asks for part of a region.
    pub fn read_ahead(&self, number: u32, offset: u64, bytes: u64) {
        let inner = lock(&self.inner);
        let Some(region) = inner.regions[number as usize].as_ref() else {
            return;
        };
        let bytes = bytes
            .min((region.range.bytes as u64).saturating_sub(offset))
            .min(self.settings.budget_bytes / 2);
        match region.file.try_clone() {
            Ok(file) if bytes > 0 => self.wanted.push(Request {
                region: number,
                file,
                offset: region.offset + offset,
                bytes,
            }),
            Ok(_) => {}
            Err(_) => self.counters.failed_calls.add(1),
        }
    }

    /// Reads what was asked for, piece by piece, so that a large request keeps
    /// nobody waiting for long.
    pub fn serve(&self, request: Request, stopped: impl Fn() -> bool) {
        let (mut offset, end) = (request.offset, request.offset + request.bytes);
        while offset < end && !stopped() {
            let bytes = PIECE.min(end - offset);
            let before = self
                .kernel
                .count_cached(request.file.as_fd(), offset, bytes);
            match self.kernel.read_ahead(request.file.as_fd(), offset, bytes) {
                Ok(()) => {
                    let there = before.unwrap_or(0);
                    let pages = bytes.div_ceil(self.page_bytes as u64);
                    self.counters
                        .read_ahead_pages
                        .add(pages.saturating_sub(there));
                }
                Err(_) => self.counters.failed_calls.add(1),
            }
            offset += bytes;
        }
    }
}
