//! Accesses out of a `perf.data` file that somebody recorded.
//!
//! Problem. Who has a processor with IBS or PEBS can record what a program does
//! and send the file; whoever gets it wants the accesses, on any machine.
//!
//! Approach. [`Recording::open`] reads the head: which events there are, how
//! their samples are laid out, on what processor. An event is of use if its
//! samples say which thread touched which address: IBS, loads and stores with a
//! data source, page faults. [`Recording::read`] goes through the records once,
//! decodes samples as the live source does ([`Decoder`]), and hands on accesses
//! in the order of their times ([`order`]).
//!
//! How to record: `perf mem record`, or with IBS
//! `perf record -e ibs_op// --raw-samples -d --phys-data -W`, or without either
//! `perf record -e page-faults -c 1 -d`.
//!
//! Properties. Any bytes give accesses or one error; memory is bounded by a
//! multiple of the file's length: two rounds of its records, or all if it has no
//! rounds, and a name for each process, which a short record of a fork copies.
//! Compressed records (`-z`) are refused: they would take a C library to read.

mod header;
mod order;

pub use header::Event;

use super::access::{MemoryAccess, Refusals};
use super::decoder::{Decoder, Origin, Processor};
use super::ring::{Record, Walk, u32_at, u64_at};
use super::sample::SampleLayout;
use crate::files::input;
use header::Head;
use order::Order;
use perf_event_open_sys::bindings as b;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a process's name that are kept: the kernel's own names are shorter
/// (15, and up to 63 for its workers), and every fork copies one.
const LONGEST_NAME: usize = 64;
/// Events that an error names.
const MOST_NAMED: usize = 16;

/// Records that perf writes by itself.
mod perfs_own {
    pub const FINISHED_ROUND: u32 = 68;
    pub const AUXTRACE: u32 = 71;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Why a recording cannot be read. The file's name is for the caller to say.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// It is something else.
    #[error("no perf.data file; record one with perf mem record")]
    NotPerf,
    /// It comes from a machine of the other byte order.
    #[error("recorded on a machine of the other byte order; read it on one like that")]
    ByteOrder,
    /// It went through a pipe.
    #[error("recorded into a pipe; record into a file (perf record -o FILE)")]
    Pipe,
    /// perf was killed before it wrote the file's end.
    #[error("perf did not finish this file; end it with SIGINT, not SIGKILL")]
    Unfinished,
    /// A part of it makes no sense.
    #[error("damaged: {what} {why}")]
    Damaged {
        /// Which part.
        what: &'static str,
        /// What is wrong there.
        why: &'static str,
    },
    /// Its records are compressed.
    #[error("compressed; record without -z")]
    Compressed,
    /// None of its events tells addresses.
    #[error(
        "no event with addresses in it (has {events}); record with perf mem record, or with \
         -e ibs_op// --raw-samples -d, or with -e page-faults -d"
    )]
    NoAddresses {
        /// The events that it has.
        events: String,
    },
    /// An event's samples hold what cannot be decoded.
    #[error(
        "event {event}: its samples cannot be decoded ({fields:#x}); record without branches, registers and stacks"
    )]
    Fields {
        /// The event.
        event: String,
        /// The fields that are unknown here.
        fields: u64,
    },
    /// Several events whose samples do not say which is theirs.
    #[error("its samples do not say which event they belong to; record one event at a time")]
    Ambiguous,
}

/// What was in a recording besides its accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Accesses handed on.
    pub accesses: u64,
    /// Samples of events that tell no addresses.
    pub other_samples: u64,
    /// Samples that were no evidence of an access, by reason.
    pub refused: Refusals,
    /// Records in all, and what was lost.
    pub walk: Walk,
    /// Accesses that stood too late in the file and got the time of the one before.
    pub late: u64,
    /// Processes that were named, with the last name of each.
    pub names: BTreeMap<u32, Arc<str>>,
    /// Accesses by process.
    pub by_process: BTreeMap<u32, u64>,
}

/// Where a sample says which event it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhichEvent {
    /// There is only one, or all are alike.
    First,
    /// The id is so many bytes into the body.
    At(usize),
}

/// An opened recording.
#[derive(Debug)]
pub struct Recording<R> {
    file: R,
    head: Head,
    decoders: Vec<Option<Decoder>>,
    which: WhichEvent,
    by_id: BTreeMap<u64, usize>,
}

impl Recording<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// See [`RecordingError`].
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        Recording::new(BufReader::new(input::regular(path)?))
    }
}

impl<R: Read + Seek> Recording<R> {
    /// Reads the head of a recording, wherever it is.
    ///
    /// # Errors
    ///
    /// See [`RecordingError`].
    pub fn new(mut file: R) -> Result<Recording<R>, RecordingError> {
        let head = header::read(&mut file)?;
        let decoders = (head.events.iter())
            .map(|event| decoder(event, &head))
            .collect::<Result<Vec<_>, _>>()?;
        if decoders.iter().all(Option::is_none) {
            let some = head.events.iter().take(MOST_NAMED).map(shown);
            let mut events = some.collect::<Vec<_>>().join(", ");
            if let more @ 1.. = head.events.len().saturating_sub(MOST_NAMED) {
                events += &format!(" and {more} more");
            }
            return Err(RecordingError::NoAddresses { events });
        }
        let which = which_event(&head.events, &decoders)?;
        let ids = head.events.iter().enumerate();
        let by_id = ids
            .flat_map(|(number, event)| event.ids.iter().map(move |id| (*id, number)))
            .collect();
        Ok(Recording {
            file,
            head,
            decoders,
            which,
            by_id,
        })
    }

    /// The events that were recorded.
    pub fn events(&self) -> &[Event] {
        &self.head.events
    }

    /// Hands every access to `sink`, in the order of their times.
    ///
    /// # Errors
    ///
    /// What came before the error has been handed on.
    pub fn read(&mut self, mut sink: impl FnMut(&MemoryAccess)) -> Result<Summary, RecordingError> {
        let mut summary = Summary::default();
        let mut order = Order::default();
        let mut left = self.head.records.size;
        self.file.seek(SeekFrom::Start(self.head.records.offset))?;
        let damaged = |why| RecordingError::Damaged {
            what: "a record",
            why,
        };
        let mut buffer = vec![0; usize::from(u16::MAX)];
        let mut hand_on = |access: &MemoryAccess| sink(access);
        while left > 0 {
            let mut header = [0; 8];
            if left < 8 {
                return Err(damaged("is cut short"));
            }
            self.file.read_exact(&mut header)?;
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let misc = u16::from_ne_bytes([header[4], header[5]]);
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < 8 || size as u64 > left {
                return Err(damaged("has a size that cannot be"));
            }
            let body = &mut buffer[..size - 8];
            self.file.read_exact(body)?;
            left -= size as u64;
            let record = Record { kind, misc, body };
            summary.walk.count(&record);
            match kind {
                b::PERF_RECORD_SAMPLE => self.sample(record, &mut summary, &mut order),
                b::PERF_RECORD_COMM => named(record.body, &mut summary),
                b::PERF_RECORD_FORK => forked(record.body, &mut summary),
                perfs_own::FINISHED_ROUND => order.round(&mut hand_on),
                perfs_own::COMPRESSED | perfs_own::COMPRESSED2 => {
                    return Err(RecordingError::Compressed);
                }
                perfs_own::AUXTRACE => {
                    // As many bytes follow as it says, outside its own size.
                    let more = u64_at(record.body, 0).filter(|more| *more <= left);
                    let more = more.ok_or(damaged("has a size that cannot be"))?;
                    let step = i64::try_from(more).map_err(|_| damaged("is too long"))?;
                    self.file.seek(SeekFrom::Current(step))?;
                    left -= more;
                }
                _ => {}
            }
        }
        order.end(&mut hand_on);
        summary.late = order.late;
        Ok(summary)
    }

    fn sample(&self, record: Record<'_>, summary: &mut Summary, order: &mut Order) {
        let event = match self.which {
            WhichEvent::First => Some(0),
            WhichEvent::At(bytes) => {
                u64_at(record.body, bytes).and_then(|id| self.by_id.get(&id).copied())
            }
        };
        match event.and_then(|number| self.decoders[number]) {
            None => summary.other_samples += 1,
            Some(decoder) => match decoder.decode(record) {
                Ok(access) => {
                    summary.accesses += 1;
                    *summary.by_process.entry(access.pid).or_default() += 1;
                    order.add(access);
                }
                Err(why) => summary.refused.count(why),
            },
        }
    }
}

/// `pid`, `tid`, a name that ends with a zero byte: of the process if both are one.
fn named(body: &[u8], summary: &mut Summary) {
    if let (Some(pid), Some(tid)) = (u32_at(body, 0), u32_at(body, 4))
        && (pid == tid || !summary.names.contains_key(&pid))
    {
        let name = body[8..]
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        let name = &name[..name.len().min(LONGEST_NAME)];
        let name = String::from_utf8_lossy(name).into();
        summary.names.insert(pid, name);
    }
}

/// `pid`, parent's `pid`, `tid`, parent's `tid`: a new process has its parent's name.
fn forked(body: &[u8], summary: &mut Summary) {
    if let (Some(pid), Some(parent)) = (u32_at(body, 0), u32_at(body, 4))
        && pid != parent
        && let Some(name) = summary.names.get(&parent).cloned()
    {
        summary.names.insert(pid, name);
    }
}

fn shown(event: &Event) -> String {
    (event.name.clone())
        .unwrap_or_else(|| format!("type {} config {:#x}", event.kind, event.config))
}

/// How an event's samples are decoded; `None` if they tell no addresses.
fn decoder(event: &Event, head: &Head) -> Result<Option<Decoder>, RecordingError> {
    let needed = u64::from(b::PERF_SAMPLE_TID | b::PERF_SAMPLE_TIME | b::PERF_SAMPLE_ADDR);
    if event.sample_type & needed != needed {
        return Ok(None);
    }
    let unit = head.units.get(&event.kind).map(String::as_str);
    let faults = [
        b::PERF_COUNT_SW_PAGE_FAULTS,
        b::PERF_COUNT_SW_PAGE_FAULTS_MIN,
        b::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
    ];
    let is_ibs = unit == Some("ibs_op")
        || (event.name.as_deref()).is_some_and(|name| name.starts_with("ibs_op/"));
    let tells = event.sample_type & u64::from(b::PERF_SAMPLE_DATA_SRC) != 0;
    let origin = if event.kind == b::PERF_TYPE_SOFTWARE {
        match faults.iter().any(|fault| u64::from(*fault) == event.config) {
            true => Origin::Faults,
            false => return Ok(None),
        }
    } else if is_ibs {
        Origin::Ibs
    } else if tells && event.kind != b::PERF_TYPE_TRACEPOINT {
        Origin::Pebs
    } else {
        return Ok(None);
    };
    let layout = SampleLayout::new(event.sample_type).map_err(|error| RecordingError::Fields {
        event: shown(event),
        fields: error.unknown,
    })?;
    let processor: Processor = head.processor;
    Ok(Some(Decoder::new(layout, origin, processor).with_cached()))
}

fn which_event(
    events: &[Event],
    decoders: &[Option<Decoder>],
) -> Result<WhichEvent, RecordingError> {
    let has = |event: &Event, bit: u32| event.sample_type & u64::from(bit) != 0;
    let alike = |a: &Option<Decoder>, b: &Option<Decoder>| match (a, b) {
        (Some(a), Some(b)) => a.layout() == b.layout() && a.origin() == b.origin(),
        _ => false,
    };
    if events.len() == 1 || decoders.windows(2).all(|pair| alike(&pair[0], &pair[1])) {
        return Ok(WhichEvent::First);
    }
    if events
        .iter()
        .all(|event| has(event, b::PERF_SAMPLE_IDENTIFIER))
    {
        return Ok(WhichEvent::At(0));
    }
    let same = (events.windows(2)).all(|pair| pair[0].sample_type == pair[1].sample_type);
    if !same || !has(&events[0], b::PERF_SAMPLE_ID) {
        return Err(RecordingError::Ambiguous);
    }
    let before = [
        b::PERF_SAMPLE_IDENTIFIER,
        b::PERF_SAMPLE_IP,
        b::PERF_SAMPLE_TID,
        b::PERF_SAMPLE_TIME,
        b::PERF_SAMPLE_ADDR,
    ];
    let fields = before.iter().filter(|bit| has(&events[0], **bit)).count();
    Ok(WhichEvent::At(fields * 8))
}

#[cfg(test)]
mod tests;
