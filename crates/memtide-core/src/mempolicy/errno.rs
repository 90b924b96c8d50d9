//! The error numbers that memory-policy calls return, with Linux's values.

use std::fmt;

/// Why the kernel refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the documentation: errno(3)
pub enum Errno {
    EPERM = 1,
    ENOENT = 2,
    ESRCH = 3,
    EIO = 5,
    E2BIG = 7,
    ENOMEM = 12,
    EFAULT = 14,
    EEXIST = 17,
    ENODEV = 19,
    EINVAL = 22,
    ENOSYS = 38,
    EOPNOTSUPP = 95,
}

impl Errno {
    /// The positive number; a system call returns it negated.
    pub fn code(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Errno {}
