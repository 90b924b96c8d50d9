//! The head of a `perf.data` file: which events were recorded, and on what.
//!
//! All numbers are in the byte order of the machine that recorded. A *section*
//! is an offset and a size, 8 bytes each.
//!
//! | bytes | |
//! |---|---|
//! | 0-7 | `PERFILE2` |
//! | 8-15 | size of this header, 104; 16 of a file that went through a pipe |
//! | 16-23 | size of an event's entry |
//! | 24-39 | section of the events: a `perf_event_attr` each, and a section of its ids |
//! | 40-55 | section of the records |
//! | 56-71 | (a section that is no longer in use) |
//! | 72-103 | 256 bits: which features there are |
//!
//! Behind the records is a section for each feature, in the order of the bits.
//! Three are of use here: the name of each event (12), the processor (9), and
//! which number stands for which unit (16).
//!
//! Why this is read by hand: crates that read `perf.data` (looked at:
//! linux-perf-data 0.13) divide by sizes and reserve memory by counts that the
//! file states, so that a damaged file ends the process. Here a section is
//! believed only as far as the file reaches.
//!
//! (Format: `tools/perf/Documentation/perf.data-file-format.txt` of Linux.)

use super::RecordingError;
use crate::perf::decoder::Processor;
use crate::perf::ring::{u32_at, u64_at};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};

const MAGIC: u64 = u64::from_le_bytes(*b"PERFILE2");
const HEADER: usize = 104;
const PIPE_HEADER: u64 = 16;
/// The least that an event's description ever was: up to its flags.
const LEAST_ATTR: usize = 48;
/// More than the descriptions of any machine's events.
const MOST_METADATA: u64 = 64 << 20;

/// The features that are read.
mod feature {
    pub const PROCESSOR: u32 = 9;
    pub const EVENT_NAMES: u32 = 12;
    pub const UNITS: u32 = 16;
}

/// An event as it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `perf_event_attr.sample_type`.
    pub sample_type: u64,
    /// What records of it may be called.
    pub ids: Vec<u64>,
    /// Its name on the command line, if the file says it.
    pub name: Option<String>,
}

/// A stretch of the file that lies within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub offset: u64,
    pub size: u64,
}

/// What the head says.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub events: Vec<Event>,
    pub records: Section,
    pub processor: Processor,
    /// Names of units by their number.
    pub units: BTreeMap<u32, String>,
}

/// Reads within the file's length.
struct Bounded<R> {
    file: R,
    length: u64,
}

impl<R: Read + Seek> Bounded<R> {
    fn section(
        &self,
        bytes: &[u8],
        at: usize,
        what: &'static str,
    ) -> Result<Section, RecordingError> {
        let beyond = RecordingError::Damaged {
            what,
            why: "lies beyond the file's end",
        };
        let (Some(offset), Some(size)) = (u64_at(bytes, at), u64_at(bytes, at + 8)) else {
            return Err(beyond);
        };
        match offset.checked_add(size) {
            Some(end) if end <= self.length => Ok(Section { offset, size }),
            _ => Err(beyond),
        }
    }

    fn read(&mut self, section: Section, what: &'static str) -> Result<Vec<u8>, RecordingError> {
        if section.size > MOST_METADATA {
            let why = "is larger than any machine's";
            return Err(RecordingError::Damaged { what, why });
        }
        let mut bytes = vec![0; section.size as usize];
        self.file.seek(SeekFrom::Start(section.offset))?;
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Reads the head of `file`.
pub(super) fn read(file: &mut (impl Read + Seek)) -> Result<Head, RecordingError> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut file = Bounded { file, length };
    let begin = Section {
        offset: 0,
        size: length.min(HEADER as u64),
    };
    let header = file.read(begin, "the header")?;
    match u64_at(&header, 0) {
        Some(MAGIC) => {}
        Some(other) if other == MAGIC.swap_bytes() => return Err(RecordingError::ByteOrder),
        _ => return Err(RecordingError::NotPerf),
    }
    if u64_at(&header, 8) == Some(PIPE_HEADER) {
        return Err(RecordingError::Pipe);
    }
    if header.len() < HEADER {
        let (what, why) = ("the header", "is cut short");
        return Err(RecordingError::Damaged { what, why });
    }
    let entry_size = u64_at(&header, 16).unwrap_or(0);
    let entries = file.section(&header, 24, "the section of events")?;
    let records = file.section(&header, 40, "the section of records")?;
    if records.size == 0 {
        return Err(RecordingError::Unfinished);
    }
    let mut head = Head {
        events: events(&mut file, entries, entry_size)?,
        records,
        processor: Processor::default(),
        units: BTreeMap::new(),
    };
    let features = features(&mut file, &header, records)?;
    if let Some(section) = features.get(&feature::PROCESSOR) {
        let text = file.read(*section, "the processor's description")?;
        head.processor = processor(&text);
    }
    if let Some(section) = features.get(&feature::UNITS) {
        head.units = units(&file.read(*section, "the names of units")?);
    }
    if let Some(section) = features.get(&feature::EVENT_NAMES) {
        let names = event_names(&file.read(*section, "the names of events")?);
        for (event, name) in head.events.iter_mut().zip(names) {
            event.name = Some(name);
        }
    }
    Ok(head)
}

fn events<R: Read + Seek>(
    file: &mut Bounded<R>,
    entries: Section,
    entry_size: u64,
) -> Result<Vec<Event>, RecordingError> {
    let what = "the section of events";
    let damaged = |why| RecordingError::Damaged { what, why };
    let entry_size = usize::try_from(entry_size)
        .ok()
        .filter(|size| *size >= LEAST_ATTR + 16)
        .ok_or(damaged("has entries too short for an event"))?;
    let bytes = file.read(entries, what)?;
    let mut events = Vec::new();
    let mut ids_in_all = 0;
    for entry in bytes.chunks_exact(entry_size) {
        let ids = file.section(entry, entry_size - 16, "an event's ids")?;
        // Many events may claim the same large section.
        ids_in_all += ids.size;
        if ids_in_all > MOST_METADATA {
            return Err(damaged("has more ids than any machine's"));
        }
        let ids = file.read(ids, "an event's ids")?;
        events.push(Event {
            kind: u32_at(entry, 0).unwrap_or(0),
            config: u64_at(entry, 8).unwrap_or(0),
            sample_type: u64_at(entry, 24).unwrap_or(0),
            ids: (0..ids.len() / 8)
                .filter_map(|n| u64_at(&ids, n * 8))
                .collect(),
            name: None,
        });
    }
    match events.is_empty() {
        false => Ok(events),
        true => Err(damaged("is empty")),
    }
}

/// The sections of the features, by their bits.
fn features<R: Read + Seek>(
    file: &mut Bounded<R>,
    header: &[u8],
    records: Section,
) -> Result<BTreeMap<u32, Section>, RecordingError> {
    let what = "the table of features";
    let has = |bit: &u32| {
        let word = u64_at(header, 72 + (*bit as usize / 64) * 8).unwrap_or(0);
        word >> (bit % 64) & 1 == 1
    };
    let bits: Vec<u32> = (0..256).filter(has).collect();
    // Within the file, as `records` is: the sum cannot overflow.
    let table = Section {
        offset: records.offset + records.size,
        size: bits.len() as u64 * 16,
    };
    if table.offset + table.size > file.length {
        let why = "lies beyond the file's end";
        return Err(RecordingError::Damaged { what, why });
    }
    let bytes = file.read(table, what)?;
    let mut sections = BTreeMap::new();
    for (number, bit) in bits.into_iter().enumerate() {
        sections.insert(bit, file.section(&bytes, number * 16, "a feature")?);
    }
    Ok(sections)
}

/// A counted text at `at`, up to its first zero byte, and where the next thing is.
fn text_at(bytes: &[u8], at: usize) -> Option<(String, usize)> {
    let size = u32_at(bytes, at)? as usize;
    let start = at + 4;
    let end = start.checked_add(size)?;
    let field = bytes.get(start..end)?;
    let text = field.split(|byte| *byte == 0).next()?;
    Some((String::from_utf8_lossy(text).into_owned(), end))
}

/// `AuthenticAMD,25,1,1`: vendor, family, model, stepping.
fn processor(bytes: &[u8]) -> Processor {
    let Some((text, _)) = text_at(bytes, 0) else {
        return Processor::default();
    };
    let mut parts = text.split(',');
    let vendor = parts.next().unwrap_or_default();
    let mut number = || parts.next()?.trim().parse().ok();
    match (number(), number()) {
        (Some(family), Some(model)) => Processor::new(vendor, family, model),
        _ => Processor::default(),
    }
}

/// A count, then a number and a text each.
fn units(bytes: &[u8]) -> BTreeMap<u32, String> {
    let mut units = BTreeMap::new();
    let mut at = 4;
    for _ in 0..u32_at(bytes, 0).unwrap_or(0) {
        let Some(number) = u32_at(bytes, at) else {
            break;
        };
        let Some((name, next)) = text_at(bytes, at + 4) else {
            break;
        };
        units.insert(number, name);
        at = next;
    }
    units
}

/// A count, the size of a description; then of each event the description, the
/// number of its ids, its name and the ids.
fn event_names(bytes: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let size = u32_at(bytes, 4).unwrap_or(0) as usize;
    let mut at = 8usize;
    for _ in 0..u32_at(bytes, 0).unwrap_or(0) {
        let found = at.checked_add(size).and_then(|ids| {
            let count = u32_at(bytes, ids)? as usize;
            let (name, next) = text_at(bytes, ids + 4)?;
            Some((name, next.checked_add(count.checked_mul(8)?)?))
        });
        let Some((name, next)) = found else {
            break;
        };
        names.push(name);
        at = next;
    }
    names
}
