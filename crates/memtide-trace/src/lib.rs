//! Recorded accesses to memory, on disk: Parquet for long recordings, CSV for short ones.
//!
//! A row says that a thread touched an address at a time, and whether it stored. Both formats have
//! the same four columns ([`COLUMNS`]). Rows come in time order: [`Rows`] gives them one after the
//! other, holds no more than a batch of them in memory, and stops at the first that makes no sense.
//! Whatever is wrong with a file is one [`TraceError`] with the file and the row. What the columns
//! mean in full stands in `docs/trace.md`.
// A library hands out what it knows; only the command prints.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod csv_rows;
mod parquet_columns;
mod parquet_rows;
mod write;

pub use write::Writer;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The names of the columns: what [`Row`] holds, in its order.
pub const COLUMNS: [&str; 4] = ["time_ns", "thread", "address", "write"];

/// An access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Nanoseconds; from when does not matter.
    pub time_ns: u64,
    /// Which thread; any number that tells threads apart.
    pub thread: u32,
    /// The virtual address, in bytes.
    pub address: u64,
    /// Whether it stored.
    pub write: bool,
}

/// How a file holds its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text, one row a line, below a line with the names of the columns.
    Csv,
    /// Parquet, uncompressed or compressed with Snappy.
    Parquet,
}

impl Format {
    /// The format that a file's name ends with, `None` if it is neither.
    #[must_use]
    pub fn of(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "csv" => Some(Format::Csv),
            "parquet" => Some(Format::Parquet),
            _ => None,
        }
    }
}

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}{what}", file.display(), place(*row))]
pub struct TraceError {
    /// The file.
    pub file: PathBuf,
    /// The row, the first being 1; `None` if it is about the file as a whole.
    pub row: Option<u64>,
    /// What is wrong, and what would be right.
    pub what: String,
}

fn place(row: Option<u64>) -> String {
    row.map_or_else(String::new, |row| format!("row {row}: "))
}

/// The rows of a file, in time order. After an error it ends.
pub struct Rows {
    source: Source,
    file: PathBuf,
    rows: u64,
    last_ns: u64,
    ended: bool,
}

enum Source {
    Csv(csv_rows::CsvRows),
    Parquet(Box<parquet_rows::ParquetRows>),
    Failed(Option<String>),
}

impl Rows {
    /// Opens a file whose name ends with `.csv` or `.parquet`.
    ///
    /// # Errors
    /// If it cannot be opened, if its name says neither format, or if it has not the columns.
    pub fn open(path: &Path) -> Result<Rows, TraceError> {
        let wrong = |what: String| TraceError {
            file: path.to_owned(),
            row: None,
            what,
        };
        let format = Format::of(path)
            .ok_or_else(|| wrong("a trace's name ends with .parquet or .csv".to_owned()))?;
        // A pipe that nobody writes to would be waited for, a device has no end.
        let about = path.metadata().map_err(|error| wrong(error.to_string()))?;
        if !about.is_file() {
            return Err(wrong("not a regular file; give one".to_owned()));
        }
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let source = match format {
            Format::Csv => Source::Csv(csv_rows::CsvRows::new(Box::new(file)).map_err(wrong)?),
            Format::Parquet => {
                let rows = parquet_rows::ParquetRows::new(file).map_err(wrong)?;
                Source::Parquet(Box::new(rows))
            }
        };
        Ok(Rows::of(source, path))
    }

    /// Rows of CSV text from anywhere; `name` stands for the file in errors.
    pub fn from_csv(text: impl Read + Send + 'static, name: &Path) -> Rows {
        let source = match csv_rows::CsvRows::new(Box::new(text)) {
            Ok(rows) => Source::Csv(rows),
            Err(what) => Source::Failed(Some(what)),
        };
        Rows::of(source, name)
    }

    fn of(source: Source, file: &Path) -> Rows {
        Rows {
            source,
            file: file.to_owned(),
            rows: 0,
            last_ns: 0,
            ended: false,
        }
    }

    /// The row, held against the one before.
    fn in_order(&mut self, row: Row) -> Result<Row, String> {
        if row.time_ns < self.last_ns {
            return Err(format!(
                "time_ns goes back from {} to {}; sort the rows by time_ns",
                self.last_ns, row.time_ns
            ));
        }
        self.last_ns = row.time_ns;
        Ok(row)
    }
}

impl Iterator for Rows {
    type Item = Result<Row, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = match &mut self.source {
            Source::Csv(rows) => rows.next_row(),
            Source::Parquet(rows) => rows.next_row(),
            Source::Failed(what) => what.take().map(Err),
        };
        let whole = matches!(self.source, Source::Failed(_));
        self.rows += 1;
        let next = next.map(|row| row.and_then(|row| self.in_order(row)));
        self.ended = !matches!(next, Some(Ok(_)));
        next.map(|row| {
            row.map_err(|what| TraceError {
                file: self.file.clone(),
                row: (!whole).then_some(self.rows),
                what,
            })
        })
    }
}

#[cfg(test)]
mod tests;
