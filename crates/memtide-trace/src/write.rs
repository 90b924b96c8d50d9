//! Writing a trace.
//!
//! A [`Writer`] takes rows in time order and is finished with [`Writer::finish`]; a Parquet file
//! that was not finished cannot be read. Parquet files get row groups of a million rows, compressed
//! with Snappy.

use crate::{COLUMNS, Format, Row};
use parquet::basic::Compression;
use parquet::data_type::{BoolType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::io::{Error, Write};
use std::sync::Arc;

/// Rows of a Parquet row group.
const GROUP: usize = 1 << 20;

const SCHEMA: &str = "message trace {
    required int64 time_ns (INTEGER(64,false));
    required int32 thread (INTEGER(32,false));
    required int64 address (INTEGER(64,false));
    required boolean write;
}";

/// Writes rows.
pub struct Writer<W: Write + Send>(Sink<W>);

enum Sink<W: Write + Send> {
    Csv(W),
    Parquet {
        file: Box<SerializedFileWriter<W>>,
        rows: Vec<Row>,
    },
}

impl<W: Write + Send> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// What writing to `out` gives.
    pub fn new(mut out: W, format: Format) -> std::io::Result<Writer<W>> {
        Ok(Writer(match format {
            Format::Csv => {
                writeln!(out, "{}", COLUMNS.join(","))?;
                Sink::Csv(out)
            }
            Format::Parquet => {
                let schema = Arc::new(parse_message_type(SCHEMA).map_err(plain)?);
                let properties = WriterProperties::builder()
                    .set_compression(Compression::SNAPPY)
                    .build();
                let file =
                    SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(plain)?;
                Sink::Parquet {
                    file: Box::new(file),
                    rows: Vec::new(),
                }
            }
        }))
    }

    /// Writes a row; its time is that of the row before or later.
    ///
    /// # Errors
    /// What writing gives.
    pub fn write(&mut self, row: &Row) -> std::io::Result<()> {
        match &mut self.0 {
            Sink::Csv(out) => writeln!(
                out,
                "{},{},0x{:x},{}",
                row.time_ns, row.thread, row.address, row.write
            ),
            Sink::Parquet { file, rows } => {
                rows.push(*row);
                match rows.len() < GROUP {
                    true => Ok(()),
                    false => write_group(file, rows).map_err(plain),
                }
            }
        }
    }

    /// Writes what is left and the file's end. Gives back what was written to.
    ///
    /// # Errors
    /// What writing gives.
    pub fn finish(self) -> std::io::Result<W> {
        match self.0 {
            Sink::Csv(mut out) => {
                out.flush()?;
                Ok(out)
            }
            Sink::Parquet { mut file, mut rows } => {
                if !rows.is_empty() {
                    write_group(&mut file, &mut rows).map_err(plain)?;
                }
                let mut out = file.into_inner().map_err(plain)?;
                out.flush()?;
                Ok(out)
            }
        }
    }
}

/// The error of what was written to, where it is one, without the library's words.
fn plain(error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<Error>() {
            Ok(cause) => *cause,
            Err(cause) => Error::other(cause),
        },
        error => Error::other(error),
    }
}

fn write_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    rows: &mut Vec<Row>,
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    // The bits of a number without sign are kept as they are.
    let times: Vec<i64> = rows.iter().map(|row| row.time_ns as i64).collect();
    column::<Int64Type, W>(&mut group, &times)?;
    let threads: Vec<i32> = rows.iter().map(|row| row.thread as i32).collect();
    column::<Int32Type, W>(&mut group, &threads)?;
    let addresses: Vec<i64> = rows.iter().map(|row| row.address as i64).collect();
    column::<Int64Type, W>(&mut group, &addresses)?;
    let writes: Vec<bool> = rows.iter().map(|row| row.write).collect();
    column::<BoolType, W>(&mut group, &writes)?;
    group.close()?;
    rows.clear();
    Ok(())
}

fn column<T: parquet::data_type::DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let mut column = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("the schema has too few columns".to_owned()))?;
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}
