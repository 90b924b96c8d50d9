//! A column of a Parquet row group, a batch at a time.
//!
//! Parquet keeps nulls apart from values: a batch is a list of *levels* (1: there is a value, 0: it
//! is null) and a shorter list of values. Nulls have no meaning in a trace, so a batch without them
//! is the common case, and then place n of the batch is value n; otherwise the first null is noted,
//! and whoever asks for that place or a later one of the batch gets an error. Nothing after an error
//! is read, so later places need no right answer.

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;

/// What all columns can.
pub trait Column {
    /// Reads the next `rows` rows; fewer are an error.
    fn load(&mut self, rows: usize) -> Result<(), String>;
}

/// Values of one type with their levels.
struct Values<T: DataType> {
    name: &'static str,
    reader: ColumnReaderImpl<T>,
    levels: Vec<i16>,
    values: Vec<T::T>,
    first_null: Option<usize>,
}

impl<T: DataType> Values<T> {
    fn new(name: &'static str, reader: ColumnReaderImpl<T>) -> Values<T> {
        Values {
            name,
            reader,
            levels: Vec::new(),
            values: Vec::new(),
            first_null: None,
        }
    }

    fn load(&mut self, rows: usize) -> Result<(), String> {
        self.levels.clear();
        self.values.clear();
        let mut have = 0;
        while have < rows {
            let (read, _, _) = self
                .reader
                .read_records(rows - have, Some(&mut self.levels), None, &mut self.values)
                .map_err(|error| reason(&error))?;
            if read == 0 {
                return Err(format!("column {} ends before the others", self.name));
            }
            have += read;
        }
        self.first_null = match self.values.len() < have {
            true => Some(
                self.levels
                    .iter()
                    .position(|&level| level == 0)
                    .unwrap_or(0),
            ),
            false => None,
        };
        Ok(())
    }

    fn get(&self, at: usize) -> Result<&T::T, String> {
        if self.first_null.is_some_and(|null| null <= at) {
            return Err(format!("{} is null", self.name));
        }
        self.values
            .get(at)
            .ok_or_else(|| format!("column {} ends before the others", self.name))
    }
}

/// A column of integers, 32 or 64 bits wide.
pub struct IntegerColumn {
    values: Width,
    signed: bool,
}

enum Width {
    Narrow(Values<Int32Type>),
    Wide(Values<Int64Type>),
    Other(&'static str),
}

impl IntegerColumn {
    /// A column whose values have a sign or not.
    pub fn new(name: &'static str, reader: ColumnReader, signed: bool) -> IntegerColumn {
        let values = match reader {
            ColumnReader::Int32ColumnReader(reader) => Width::Narrow(Values::new(name, reader)),
            ColumnReader::Int64ColumnReader(reader) => Width::Wide(Values::new(name, reader)),
            _ => Width::Other(name),
        };
        IntegerColumn { values, signed }
    }

    /// The value at a place of the batch.
    pub fn get(&self, at: usize) -> Result<u64, String> {
        let (name, value) = match &self.values {
            Width::Narrow(values) => {
                let value = *values.get(at)?;
                // Without sign the bits are the number.
                let value = match self.signed {
                    true => i64::from(value),
                    false => i64::from(value as u32),
                };
                (values.name, value)
            }
            Width::Wide(values) => (values.name, *values.get(at)?),
            Width::Other(name) => return Err(not(name, "integers")),
        };
        match self.signed && value < 0 {
            true => Err(format!("{name} is {value}; it cannot be negative")),
            false => Ok(value as u64),
        }
    }
}

impl Column for IntegerColumn {
    fn load(&mut self, rows: usize) -> Result<(), String> {
        match &mut self.values {
            Width::Narrow(values) => values.load(rows),
            Width::Wide(values) => values.load(rows),
            Width::Other(name) => Err(not(name, "integers")),
        }
    }
}

/// A column of truth values.
pub struct FlagColumn(Result<Values<BoolType>, &'static str>);

impl FlagColumn {
    /// A column.
    pub fn new(name: &'static str, reader: ColumnReader) -> FlagColumn {
        FlagColumn(match reader {
            ColumnReader::BoolColumnReader(reader) => Ok(Values::new(name, reader)),
            _ => Err(name),
        })
    }

    /// The value at a place of the batch.
    pub fn get(&self, at: usize) -> Result<bool, String> {
        match &self.0 {
            Ok(values) => values.get(at).copied(),
            Err(name) => Err(not(name, "truth values")),
        }
    }
}

impl Column for FlagColumn {
    fn load(&mut self, rows: usize) -> Result<(), String> {
        match &mut self.0 {
            Ok(values) => values.load(rows),
            Err(name) => Err(not(name, "truth values")),
        }
    }
}

fn not(name: &str, what: &str) -> String {
    format!("a row group's column {name} does not hold {what}")
}

/// The library's error as a part of a sentence.
pub fn reason(error: &ParquetError) -> String {
    match error {
        ParquetError::General(what) | ParquetError::EOF(what) | ParquetError::NYI(what) => {
            let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("not a Parquet file that can be read: {what}")
        }
        other => format!("not a Parquet file that can be read: {other}"),
    }
}
