//! Rows out of CSV text.
//!
//! The first line names the columns, in any order; columns that we have no use for are passed over.
//! Numbers are decimal, addresses may be hexadecimal (`0x7f00`), `write` is `true`, `false`, `1` or
//! `0`. Lines may end with CR LF; spaces around a value do not matter. A line that is not text, or
//! has too few or too many values, is an error and not a guess.

use crate::{COLUMNS, Row};
use csv::{ByteRecord, ReaderBuilder, Trim};
use std::io::Read;

/// The longest line that is read, in bytes. A row of ours has some fifty.
const LONGEST_LINE: u64 = 64 << 10;

/// Text of which no line is longer than [`LONGEST_LINE`]: the library keeps a
/// line whole.
struct Lines {
    text: Box<dyn Read + Send>,
    /// Bytes since the last line's end.
    line: u64,
}

impl Read for Lines {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.text.read(out)?;
        for line in out[..bytes].split_inclusive(|byte| *byte == b'\n') {
            self.line += line.len() as u64;
            if self.line > LONGEST_LINE {
                let why = format!("a line is longer than {} KiB", LONGEST_LINE >> 10);
                return Err(std::io::Error::other(why));
            }
            if line.ends_with(b"\n") {
                self.line = 0;
            }
        }
        Ok(bytes)
    }
}

/// A reader that is past the line with the names.
pub struct CsvRows {
    reader: csv::Reader<Lines>,
    record: ByteRecord,
    /// Where in a line each column of [`COLUMNS`] stands.
    places: [usize; 4],
    values: usize,
}

impl CsvRows {
    /// Reads the names of the columns.
    pub fn new(text: Box<dyn Read + Send>) -> Result<CsvRows, String> {
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(Trim::All)
            .from_reader(Lines { text, line: 0 });
        let mut record = ByteRecord::new();
        reader
            .read_byte_record(&mut record)
            .map_err(|error| reason(&error))?;
        let mut places = [0; 4];
        for (place, name) in places.iter_mut().zip(COLUMNS) {
            let mut found = record
                .iter()
                .enumerate()
                .filter(|(_, value)| *value == name.as_bytes());
            let (Some((at, _)), None) = (found.next(), found.next()) else {
                return Err(format!(
                    "its first line does not name the column {name} once; it reads {} in any order",
                    COLUMNS.join(",")
                ));
            };
            *place = at;
        }
        let values = record.len();
        Ok(CsvRows {
            reader,
            record,
            places,
            values,
        })
    }

    /// The next row.
    pub fn next_row(&mut self) -> Option<Result<Row, String>> {
        match self.reader.read_byte_record(&mut self.record) {
            Ok(false) => None,
            Ok(true) => Some(self.row()),
            Err(error) => Some(Err(reason(&error))),
        }
    }

    fn row(&self) -> Result<Row, String> {
        if self.record.len() != self.values {
            return Err(format!(
                "{} values for {} columns",
                self.record.len(),
                self.values
            ));
        }
        let thread = self.number(1)?;
        Ok(Row {
            time_ns: self.number(0)?,
            thread: u32::try_from(thread)
                .map_err(|_| format!("thread is {thread}; it is a number up to {}", u32::MAX))?,
            address: self.number(2)?,
            write: match self.value(3) {
                b"true" | b"1" => true,
                b"false" | b"0" => false,
                other => return Err(format!("write is {}; it is true or false", quoted(other))),
            },
        })
    }

    fn value(&self, column: usize) -> &[u8] {
        self.record.get(self.places[column]).unwrap_or_default()
    }

    /// A number without a sign.
    fn number(&self, column: usize) -> Result<u64, String> {
        let value = self.value(column);
        let text = std::str::from_utf8(value).unwrap_or_default();
        let (digits, radix) = match text.strip_prefix("0x").filter(|_| column == 2) {
            Some(digits) => (digits, 16),
            None => (text, 10),
        };
        // `from_str_radix` would take a sign.
        let number = match digits.starts_with('+') {
            true => None,
            false => u64::from_str_radix(digits, radix).ok(),
        };
        number.ok_or_else(|| {
            let name = COLUMNS[column];
            let right = match column {
                2 => "a number from 0 to 2^64 - 1, decimal or as 0x7f00",
                _ => "a decimal number from 0 to 2^64 - 1",
            };
            format!("{name} is {}; it is {right}", quoted(value))
        })
    }
}

/// A value for people: text in quotes, cut.
fn quoted(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let short: String = text.chars().take(40).collect();
    format!("{short:?}")
}

fn reason(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Io(error) => format!("cannot be read: {error}"),
        _ => error.to_string(),
    }
}
