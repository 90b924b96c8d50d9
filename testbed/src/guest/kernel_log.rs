//! What the kernel said while a test ran: who was killed for memory, whose program crashed, what it
//! warned of. A test that fails shows it, for otherwise nobody can tell a victim that ended from one that
//! was ended.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// The last lines are shown: a report of what went wrong ends with who it was.
const SHOWN: usize = 12;
/// The kernel's longest record and what it puts before it.
const RECORD_BYTES: usize = 16 << 10;

/// A place in the kernel's log.
#[derive(Debug)]
pub struct KernelLog(Option<File>);

impl KernelLog {
    /// Begins at what the kernel says next. A kernel without a log says nothing.
    #[must_use]
    pub fn from_now_on() -> Self {
        let log = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg");
        Self(
            log.ok()
                .filter(|mut log| log.seek(SeekFrom::End(0)).is_ok()),
        )
    }

    /// The last lines since then, joined into one, or nothing if there are none.
    #[must_use]
    pub fn said(&mut self) -> Option<String> {
        let log = self.0.as_mut()?;
        let mut lines = Vec::new();
        let mut record = vec![0; RECORD_BYTES];
        loop {
            match log.read(&mut record) {
                Ok(0) => break,
                Ok(length) => lines.extend(line(&String::from_utf8_lossy(&record[..length]))),
                // Records were lost before they were read; the next ones follow.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let shown = &lines[lines.len().saturating_sub(SHOWN)..];
        (!shown.is_empty()).then(|| shown.join("; "))
    }
}

/// The text of a record of the kernel's own: what stands between the first semicolon and the fields of devices.
/// What programs write there has a facility above the eight levels.
fn line(record: &str) -> Option<String> {
    let (head, text) = record.split_once(';')?;
    let level: u32 = head.split(',').next()?.parse().ok()?;
    let line = text.lines().next()?;
    (level < 8).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_its_text() {
        let record = "6,339,5140900,-;NET: ten; eleven\n SUBSYSTEM=net\n";
        assert_eq!(line(record).unwrap(), "NET: ten; eleven");
        assert_eq!(line("6,339"), None);
        assert_eq!(line("30,340,5140901,-;systemd[1]: Started"), None);
    }
}
