//! Finding a tracepoint and the layout of its payload.
//!
//! tracefs describes each tracepoint in two files: `id` holds the number for
//! `perf_event_attr.config`, `format` lists the payload's fields with offset
//! and size. The offsets differ between kernels, so they are read, never
//! assumed. One line of `format`:
//!
//! ```text
//!     field:unsigned long start;  offset:24;  size:8;  signed:0;
//! ```
//!
//! tracefs is mounted at `/sys/kernel/tracing`, or, on older set-ups, inside
//! debugfs. It may also not be mounted at all; then nothing is mounted here,
//! and the error says how to do it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Where tracefs may be mounted, relative to the root.
const MOUNTS: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];

/// Why a tracepoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TracepointError {
    /// No `events` folder at any of the usual places.
    #[error(
        "tracefs: no events under {}/sys/kernel/tracing; mount it (mount -t tracefs tracefs /sys/kernel/tracing) and run as root",
        root.display()
    )]
    NotMounted {
        /// The root that was searched.
        root: PathBuf,
    },
    /// The kernel does not have this tracepoint.
    #[error("{}: no such tracepoint; the kernel was built without it", path.display())]
    Absent {
        /// The tracepoint's folder.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file does not say what it should.
    #[error("{}: line {line}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// What is wrong there.
        what: String,
    },
}

/// Where a field stands in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the payload's start.
    pub offset: usize,
    /// Bytes: 1, 2, 4 or 8.
    pub size: usize,
}

impl Field {
    /// The field's value, zero-extended, or `None` if the payload is too short.
    pub fn read(self, payload: &[u8]) -> Option<u64> {
        let bytes = payload.get(self.offset..self.offset.checked_add(self.size)?)?;
        Some(match self.size {
            1 => bytes[0].into(),
            2 => u16::from_ne_bytes(bytes.try_into().ok()?).into(),
            4 => u32::from_ne_bytes(bytes.try_into().ok()?).into(),
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }
}

/// A tracepoint: its id and its integer fields by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// What goes into `perf_event_attr.config`.
    pub id: u64,
    /// The fields of 1, 2, 4 or 8 bytes.
    pub fields: BTreeMap<String, Field>,
}

impl Tracepoint {
    /// Looks up `group:name` under `root`.
    ///
    /// # Errors
    ///
    /// tracefs is not mounted, the tracepoint is absent, or its files cannot
    /// be read or parsed.
    pub fn find(root: &Path, group: &str, name: &str) -> Result<Tracepoint, TracepointError> {
        let events = MOUNTS
            .iter()
            .map(|mount| root.join(mount).join("events"))
            .find(|events| events.is_dir())
            .ok_or_else(|| TracepointError::NotMounted {
                root: root.to_owned(),
            })?;
        let folder = events.join(group).join(name);
        if !folder.is_dir() {
            return Err(TracepointError::Absent { path: folder });
        }
        let read = |file: &str| {
            let path = folder.join(file);
            std::fs::read_to_string(&path)
                .map(|text| (path.clone(), text))
                .map_err(|source| TracepointError::Read { path, source })
        };
        let (path, id) = read("id")?;
        let id = id.trim().parse().map_err(|_| TracepointError::Malformed {
            path,
            line: 1,
            what: format!("{:?} is not a tracepoint's id", id.trim()),
        })?;
        let (path, format) = read("format")?;
        let fields = parse_format(&format).map_err(|(line, what)| TracepointError::Malformed {
            path,
            line,
            what,
        })?;
        Ok(Tracepoint { id, fields })
    }

    /// The field `name`, or `None` if this kernel's tracepoint lacks it.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.get(name).copied()
    }
}

/// The integer fields of a `format` file. Arrays and strings are left out.
///
/// # Errors
///
/// The line (counted from one) and what is wrong with it.
pub fn parse_format(text: &str) -> Result<BTreeMap<String, Field>, (usize, String)> {
    let mut fields = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let Some(description) = line.trim_start().strip_prefix("field:") else {
            continue;
        };
        let mut parts = description.split(';').map(str::trim);
        let declaration = parts.next().unwrap_or("");
        let (mut offset, mut size) = (None, None);
        for part in parts {
            if let Some(value) = part.strip_prefix("offset:") {
                offset = value.trim().parse().ok();
            } else if let Some(value) = part.strip_prefix("size:") {
                size = value.trim().parse().ok();
            }
        }
        let name = declaration.rsplit([' ', '\t', '*']).next().unwrap_or("");
        let (Some(offset), Some(size), false) = (offset, size, name.is_empty()) else {
            return Err((
                number + 1,
                format!("field {declaration:?} lacks a name, offset or size"),
            ));
        };
        if matches!(size, 1 | 2 | 4 | 8) && !name.contains('[') {
            fields.insert(name.to_owned(), Field { offset, size });
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: &str = "name: damon_aggregated\nID: 599\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:48;\tsize:16;\tsigned:0;\n\n\
        print fmt: \"%lu\", REC->target_id\n";

    fn tree(mount: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let folder = root
            .path()
            .join(mount)
            .join("events/damon/damon_aggregated");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("id"), "599\n").unwrap();
        std::fs::write(folder.join("format"), FORMAT).unwrap();
        root
    }

    #[test]
    fn either_mount_point_is_found() {
        for mount in MOUNTS {
            let root = tree(mount);
            let found = Tracepoint::find(root.path(), "damon", "damon_aggregated").unwrap();
            assert_eq!(found.id, 599);
            assert_eq!(
                found.field("nr_accesses"),
                Some(Field {
                    offset: 40,
                    size: 4
                })
            );
            assert_eq!(
                found.field("common_pid"),
                Some(Field { offset: 4, size: 4 })
            );
            assert_eq!(found.field("comm[16]"), None);
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let empty = tempfile::tempdir().unwrap();
        let error = Tracepoint::find(empty.path(), "damon", "damon_aggregated").unwrap_err();
        assert!(matches!(error, TracepointError::NotMounted { .. }));
        assert!(error.to_string().contains("mount -t tracefs"));

        let root = tree(MOUNTS[0]);
        let error = Tracepoint::find(root.path(), "damon", "other").unwrap_err();
        assert!(matches!(error, TracepointError::Absent { .. }));

        let folder = root
            .path()
            .join(MOUNTS[0])
            .join("events/damon/damon_aggregated");
        std::fs::write(folder.join("format"), "\n\tfield:int x;\tsize:4;\n").unwrap();
        let error = Tracepoint::find(root.path(), "damon", "damon_aggregated").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    #[test]
    fn a_field_is_read_at_its_offset_or_not_at_all() {
        let mut payload = [0; 16];
        payload[4..8].copy_from_slice(&9u32.to_ne_bytes());
        assert_eq!(Field { offset: 4, size: 4 }.read(&payload), Some(9));
        assert_eq!(
            Field {
                offset: 12,
                size: 8
            }
            .read(&payload),
            None
        );
        assert_eq!(
            Field {
                offset: usize::MAX,
                size: 8
            }
            .read(&payload),
            None
        );
    }

    proptest! {
        #[test]
        fn any_text_parses_or_does_not(text in "(\tfield:|[a-z ]|;|offset:|size:|[0-9]|\n){0,60}") {
            let _ = parse_format(&text);
        }
    }
}
