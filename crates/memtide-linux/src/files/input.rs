//! Reading what the user named, up to a limit.
//!
//! A name may be that of an endless device or a file of a terabyte. What is
//! read whole has a limit on its size; what is read line by line has one on the
//! line; what is read here and there must be a regular file, so that its length
//! is known and opening it does not wait for a writer.

use rustix::fs::{self, FileType, Mode, OFlags};
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;

fn too_large(what: &str, limit: u64) -> io::Error {
    let limit = match limit {
        mib if mib >= 1 << 20 => format!("{} MiB", mib >> 20),
        kib => format!("{} KiB", kib >> 10),
    };
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("{what} than {limit}, which is more than is read"),
    )
}

/// All of what is at most `limit` bytes, into `bytes`, which is empty.
///
/// # Errors
///
/// It cannot be read, or is larger.
pub fn whole(from: impl Read, mut bytes: Vec<u8>, limit: u64) -> io::Result<Vec<u8>> {
    from.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit {
        true => Err(too_large("larger", limit)),
        false => Ok(bytes),
    }
}

/// The whole text of a file of at most `limit` bytes.
///
/// # Errors
///
/// It cannot be read, is larger, or is no UTF-8.
pub fn text(path: &Path, limit: u64) -> io::Result<String> {
    text_of(File::open(path)?, limit)
}

/// The same of anything.
///
/// # Errors
///
/// As [`text`].
pub fn text_of(from: impl Read, limit: u64) -> io::Result<String> {
    let bytes = whole(from, Vec::new(), limit)?;
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "not a text in UTF-8");
    String::from_utf8(bytes).map_err(not_text)
}

/// The next line, without its end; `None` at the end of the file.
///
/// # Errors
///
/// It cannot be read, is longer than `limit` bytes, or is no UTF-8.
pub fn line(from: &mut impl BufRead, limit: u64) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    from.take(limit + 1).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    } else if bytes.len() as u64 > limit {
        return Err(too_large("a line that is longer", limit));
    }
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "not a text in UTF-8");
    String::from_utf8(bytes).map(Some).map_err(not_text)
}

/// Opens a regular file, and nothing else.
///
/// # Errors
///
/// It cannot be opened, or is a device, a pipe or a folder.
pub fn regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(fs::fstat(&file)?.st_mode);
    match kind {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(io::Error::other("not a regular file; give one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mknodat};

    #[test]
    fn what_never_ends_is_an_error_with_the_limit() {
        let says = |result: io::Result<String>| result.unwrap_err().to_string();
        let zero = Path::new("/dev/zero");
        assert!(says(text(zero, 1 << 20)).contains("larger than 1 MiB"));
        let mut endless = io::BufReader::new(File::open(zero).unwrap());
        let error = line(&mut endless, 2 << 10).unwrap_err().to_string();
        assert!(error.contains("longer than 2 KiB"), "{error}");
        assert!(
            regular(zero)
                .unwrap_err()
                .to_string()
                .contains("not a regular file")
        );
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        // Nobody writes to it, and opening it does not wait.
        assert!(regular(&fifo).is_err());
        assert!(regular(dir.path()).is_err());
    }

    #[test]
    fn lines_and_texts_up_to_the_limit() {
        let mut lines = &b"one\r\n\nthree"[..];
        let next = |lines: &mut &[u8]| line(lines, 5).unwrap();
        assert_eq!(next(&mut lines).as_deref(), Some("one"));
        assert_eq!(next(&mut lines).as_deref(), Some(""));
        assert_eq!(next(&mut lines).as_deref(), Some("three"));
        assert_eq!(next(&mut lines), None);
        assert_eq!(line(&mut &b"12345\n"[..], 5).unwrap().unwrap(), "12345");
        assert!(line(&mut &b"123456\n"[..], 5).is_err());
        assert!(line(&mut &b"\xff\n"[..], 5).is_err());
        assert_eq!(text_of(&b"12345"[..], 5).unwrap(), "12345");
        assert!(text_of(&b"123456"[..], 5).is_err());
        assert!(text_of(&b"\xff"[..], 5).is_err());
    }
}
