//! As many open files as this process may have.
//!
//! Observing holds a descriptor for each process, and a service manager or a shell begins programs with a
//! soft limit of 1,024, for the sake of those that use select(2). The hard limit is meant for programs that
//! ask.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one. Where that is refused nothing changes.
pub fn ask() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = setrlimit(Resource::Nofile, all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_are_allowed_may_be_open() {
        ask();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
