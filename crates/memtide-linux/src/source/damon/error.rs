//! Why DAMON cannot be had, and what went wrong with it.

use super::Slot;
use super::knobs::KnobError;
use super::plan::PlanError;
use crate::lent::LentError;
use crate::perf::event::EventError;
use crate::perf::tracepoint::TracepointError;
use std::io;
use std::path::PathBuf;

/// Why DAMON cannot be used here or now.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The kernel has no DAMON or no sysfs interface to it.
    #[error("{}: absent; the kernel was built without DAMON_SYSFS", path.display())]
    NoDamon {
        /// The missing file.
        path: PathBuf,
    },
    /// The kernel's DAMON cannot watch virtual addresses.
    #[error("{}: does not list {wanted}; the kernel was built without DAMON_VADDR", path.display())]
    NoOperations {
        /// The list.
        path: PathBuf,
        /// What is missing.
        wanted: &'static str,
    },
    /// Somebody else uses DAMON's sysfs interface.
    #[error(
        "{}: {kdamonds} in use by another program; stop it, or write 0 there if nobody needs them",
        path.display()
    )]
    Busy {
        /// How many kdamonds there are.
        kdamonds: u64,
        /// The file that counts them.
        path: PathBuf,
    },
    /// Another memtide holds DAMON.
    #[error("{}: memtide{} holds DAMON; stop it first", note.display(), process(*pid))]
    HeldByMemtide {
        /// The process, as far as it has noted itself.
        pid: Option<u32>,
        /// The file that says so.
        note: PathBuf,
    },
    /// Who holds it cannot be noted, or what is noted makes no sense.
    #[error(transparent)]
    Lent(LentError),
    /// A user of DAMON inside the kernel keeps all others out.
    #[error("{}: {name} runs and lets nobody else use DAMON; write N there, or allow memtide to pause damon_stat", path.display())]
    Module {
        /// The module.
        name: &'static str,
        /// Its switch.
        path: PathBuf,
    },
    /// The tracepoint with the results is out of reach.
    #[error(transparent)]
    Tracepoint(#[from] TracepointError),
    /// The tracepoint lacks a field.
    #[error("damon:damon_aggregated: no field {field}; this kernel's DAMON is unknown to memtide")]
    NoField {
        /// The field's name.
        field: &'static str,
    },
    /// The caller may not change DAMON's settings.
    #[error("{0}; run as root")]
    NotPermitted(KnobError),
    /// A setting could not be read or written.
    #[error(transparent)]
    Knob(KnobError),
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" process {pid}"))
}

impl From<LentError> for Unavailable {
    fn from(error: LentError) -> Unavailable {
        Unavailable::Lent(error)
    }
}

impl From<KnobError> for Unavailable {
    fn from(error: KnobError) -> Unavailable {
        match error.errno() {
            Some(libc::EACCES | libc::EPERM) => Unavailable::NotPermitted(error),
            _ => Unavailable::Knob(error),
        }
    }
}

impl DamonError {
    /// Whether fewer targets would do.
    pub fn is_too_much(&self) -> bool {
        matches!(self, DamonError::Plan(PlanError::TooMany { .. })) || self.lacks_descriptors()
    }

    /// The process that is not there any more, if that is it.
    pub fn process_gone(&self) -> Option<u32> {
        match self {
            DamonError::Plan(PlanError::NoMappings { pid, .. }) => Some(*pid),
            DamonError::Process { pid, .. } if !self.lacks_descriptors() => Some(*pid),
            _ => None,
        }
    }

    /// Whether no descriptor was free, of this process's or of the machine's.
    fn lacks_descriptors(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            let errno = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::raw_os_error);
            if matches!(errno, Some(libc::EMFILE | libc::ENFILE)) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// What went wrong with a look or a watch.
#[derive(Debug, thiserror::Error)]
pub enum DamonError {
    /// The targets cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A setting was refused.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// The note of who holds DAMON.
    #[error(transparent)]
    Lent(#[from] LentError),
    /// The results are out of reach.
    #[error(transparent)]
    Event(#[from] EventError),
    /// A target is not there.
    #[error("process {pid}: {source}")]
    Process {
        /// The process.
        pid: u32,
        /// Why not.
        source: io::Error,
    },
    /// There is one session of each kind at a time.
    #[error("a {0:?} is at work already; stop it first")]
    InUse(Slot),
    /// Waiting failed.
    #[error("waiting for DAMON: {0}")]
    Wait(io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_gone_and_what_is_too_much() {
        let process = |errno| DamonError::Process {
            pid: 7,
            source: io::Error::from_raw_os_error(errno),
        };
        assert_eq!(process(libc::ESRCH).process_gone(), Some(7));
        assert!(!process(libc::ESRCH).is_too_much());
        let full = process(libc::EMFILE);
        assert_eq!(full.process_gone(), None);
        assert!(full.is_too_much());
        let knob = KnobError::Write {
            path: "nr_kdamonds".into(),
            value: "2".into(),
            source: io::Error::from_raw_os_error(libc::EMFILE),
        };
        assert!(DamonError::Knob(knob).is_too_much());
    }
}
