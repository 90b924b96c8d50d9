//! Which content of a file a copy is of.
//!
//! A copy belongs to one version: device, inode, size, and the times of the last write and the
//! last change. Two writes within one tick of the file system's clock leave one time, so a
//! version counts only when it has *rested*: its times are older than any tick. From then on
//! every write gives the file another time, because a file system takes it from the clock.

use crate::sys::Errno;
use std::os::fd::BorrowedFd;

/// Seconds that a file's times must be old: a hundred times the longest tick of a file system
/// that is copied from, and the one second of ext4 with small inodes.
pub(crate) const REST_S: i64 = 2;

/// Seconds and nanoseconds since 1970.
pub(crate) type Moment = (i64, i64);

/// A file, wherever its name leads by now: device and inode.
pub(crate) type Identity = (u64, u64);

/// What says that the bytes are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub file: Identity,
    pub bytes: u64,
    pub written: Moment,
    pub changed: Moment,
}

impl Version {
    /// As it is now.
    pub fn of(file: BorrowedFd<'_>) -> Result<Version, Errno> {
        let stat = rustix::fs::fstat(file)?;
        Ok(Version {
            file: (stat.st_dev, stat.st_ino),
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            written: (stat.st_mtime, stat.st_mtime_nsec.cast_signed()),
            changed: (stat.st_ctime, stat.st_ctime_nsec.cast_signed()),
        })
    }

    /// Whether the next write is sure to make it another one.
    pub fn has_rested(&self, now: Moment) -> bool {
        let old = |then: Moment| (then.0.saturating_add(REST_S), then.1) < now;
        old(self.written) && old(self.changed)
    }

    /// As a copy's header holds it.
    pub fn words(&self) -> [u64; 7] {
        let seconds = |moment: Moment| moment.0.cast_unsigned();
        let rest = |moment: Moment| moment.1.cast_unsigned();
        [
            self.file.0,
            self.file.1,
            self.bytes,
            seconds(self.written),
            rest(self.written),
            seconds(self.changed),
            rest(self.changed),
        ]
    }

    /// From its [`words`](Self::words).
    pub fn from_words(words: [u64; 7]) -> Version {
        let [device, inode, bytes, ws, wn, cs, cn] = words;
        let moment = |seconds: u64, rest: u64| (seconds.cast_signed(), rest.cast_signed());
        Version {
            file: (device, inode),
            bytes,
            written: moment(ws, wn),
            changed: moment(cs, cn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_100_5: Version = Version {
        file: (1, 2),
        bytes: 3,
        written: (90, 0),
        changed: (100, 5),
    };

    /// Changed at 100 s and 5 ns, it has rested from 102 s and 6 ns on.
    #[test]
    fn a_version_rests_before_it_counts() {
        assert!(!AT_100_5.has_rested((100, 5)));
        assert!(!AT_100_5.has_rested((102, 5)));
        assert!(AT_100_5.has_rested((102, 6)));
        // A time in the future never rests, and the sum does not run over.
        let ahead = Version {
            written: (i64::MAX, 0),
            ..AT_100_5
        };
        assert!(!ahead.has_rested((1 << 40, 0)));
    }

    #[test]
    fn words_hold_all_of_it() {
        let before_1970 = Version {
            written: (-7, 999),
            ..AT_100_5
        };
        for version in [AT_100_5, before_1970] {
            assert_eq!(Version::from_words(version.words()), version);
        }
    }
}
