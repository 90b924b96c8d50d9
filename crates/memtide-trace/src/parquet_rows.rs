//! Rows out of Parquet files.
//!
//! The file's row groups are read one after the other, and of each only our four columns, some
//! thousand values at a time, so that memory does not grow with the file. The types that other
//! programs write for these columns are taken: 32- and 64-bit integers with or without sign,
//! columns that might hold nulls but do not.
//!
//! The library panics on some damaged files instead of returning an error. What it does for us runs
//! in [`guarded`], which makes an error of that; nothing is read after an error.

use crate::parquet_columns::{Column, FlagColumn, IntegerColumn, reason};
use crate::{COLUMNS, Row};
use parquet::basic::{LogicalType, Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Values of a column that are held at a time.
const BATCH: usize = 8192;

/// A reader.
pub struct ParquetRows {
    file: SerializedFileReader<File>,
    /// Where each of [`COLUMNS`] stands in the file.
    places: [usize; 4],
    /// Length of the file.
    bytes: u64,
    next_group: usize,
    group: Option<Group>,
}

/// The row group that is being read.
struct Group {
    time_ns: IntegerColumn,
    thread: IntegerColumn,
    address: IntegerColumn,
    write: FlagColumn,
    /// Rows that were not given yet.
    left: u64,
    /// Position in the batch.
    at: usize,
    batch: usize,
}

impl ParquetRows {
    /// Reads the file's schema and looks for the columns.
    pub fn new(file: File) -> Result<ParquetRows, String> {
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        let file = guarded(|| SerializedFileReader::new(file).map_err(|error| reason(&error)))?;
        let schema = file.metadata().file_metadata().schema_descr_ptr();
        let mut places = [0; 4];
        for (index, name) in COLUMNS.iter().enumerate() {
            let mut columns = schema.columns().iter();
            let at = columns
                .position(|column| column.path().string() == *name)
                .ok_or_else(|| {
                    format!(
                        "it has no column {name}; its columns are {}",
                        COLUMNS.join(", ")
                    )
                })?;
            let column = schema.column(at);
            let fits = match column.physical_type() {
                Type::BOOLEAN => index == 3,
                Type::INT32 | Type::INT64 => index < 3,
                _ => false,
            };
            if !fits || column.max_rep_level() > 0 || column.max_def_level() > 1 {
                let right = if index == 3 { "boolean" } else { "an integer" };
                return Err(format!(
                    "column {name} is of type {}; it must be {right}",
                    column.physical_type()
                ));
            }
            places[index] = at;
        }
        Ok(ParquetRows {
            file,
            places,
            bytes,
            next_group: 0,
            group: None,
        })
    }

    /// The next row.
    pub fn next_row(&mut self) -> Option<Result<Row, String>> {
        loop {
            if let Some(group) = &mut self.group
                && group.left > 0
            {
                return Some(group.next_row());
            }
            if self.next_group == self.file.num_row_groups() {
                return None;
            }
            match guarded(|| self.open_group()) {
                Ok(group) => self.group = Some(group),
                Err(what) => return Some(Err(what)),
            }
            self.next_group += 1;
        }
    }

    fn open_group(&self) -> Result<Group, String> {
        self.check_places()?;
        let group = self
            .file
            .get_row_group(self.next_group)
            .map_err(|error| reason(&error))?;
        let schema = self.file.metadata().file_metadata().schema_descr_ptr();
        let integer = |index: usize| {
            let place = self.places[index];
            let reader = group
                .get_column_reader(place)
                .map_err(|error| reason(&error))?;
            let descriptor = schema.column(place);
            Ok::<_, String>(IntegerColumn::new(
                COLUMNS[index],
                reader,
                !is_unsigned(&descriptor),
            ))
        };
        let write = group
            .get_column_reader(self.places[3])
            .map_err(|error| reason(&error))?;
        let rows = group.metadata().num_rows();
        Ok(Group {
            time_ns: integer(0)?,
            thread: integer(1)?,
            address: integer(2)?,
            write: FlagColumn::new(COLUMNS[3], write),
            left: u64::try_from(rows).map_err(|_| "a row group has a negative length")?,
            at: 0,
            batch: 0,
        })
    }
}

impl Group {
    fn next_row(&mut self) -> Result<Row, String> {
        if self.at == self.batch {
            let want = BATCH.min(usize::try_from(self.left).unwrap_or(BATCH));
            for column in [
                &mut self.time_ns as &mut dyn Column,
                &mut self.thread,
                &mut self.address,
                &mut self.write,
            ] {
                guarded(|| column.load(want))?;
            }
            (self.at, self.batch) = (0, want);
        }
        let at = self.at;
        self.at += 1;
        self.left -= 1;
        let thread = self.thread.get(at)?;
        Ok(Row {
            time_ns: self.time_ns.get(at)?,
            thread: u32::try_from(thread)
                .map_err(|_| format!("thread is {thread}; it is a number up to {}", u32::MAX))?,
            address: self.address.get(at)?,
            write: self.write.get(at)?,
        })
    }
}

impl ParquetRows {
    /// The library trusts the lengths and places that a row group's description holds; a damaged file
    /// has others.
    fn check_places(&self) -> Result<(), String> {
        let group = self.file.metadata().row_group(self.next_group);
        for &place in &self.places {
            let column = group.column(place);
            let start = column
                .dictionary_page_offset()
                .unwrap_or_else(|| column.data_page_offset());
            let length = column.compressed_size();
            let fits = start >= 0
                && length >= 0
                && start
                    .checked_add(length)
                    .is_some_and(|end| u64::try_from(end).is_ok_and(|end| end <= self.bytes));
            if !fits || column.num_values() < 0 {
                return Err(format!(
                    "not a Parquet file that can be read: row group {} reaches outside the file",
                    self.next_group
                ));
            }
        }
        Ok(())
    }
}

fn is_unsigned(column: &ColumnDescriptor) -> bool {
    match column.logical_type_ref() {
        Some(LogicalType::Integer(integer)) => !integer.is_signed,
        _ => {
            use parquet::basic::ConvertedType::{UINT_8, UINT_16, UINT_32, UINT_64};
            matches!(
                column.converted_type(),
                UINT_8 | UINT_16 | UINT_32 | UINT_64
            )
        }
    }
}

/// What `read` gives, and an error if it panics.
fn guarded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err("not a Parquet file that can be read: it is damaged".to_owned()))
}
