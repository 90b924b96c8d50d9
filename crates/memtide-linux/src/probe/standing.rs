//! Who has DAMON, found out only by reading.
//!
//! DAMON's settings belong to whoever filled them in. Before anything is tried
//! on DAMON it must be known that nobody else's work would be disturbed, and
//! whether a memtide that crashed left something that has to be put back first.

use crate::lent::LentError;
use crate::source::damon::admin::MODULES;
use crate::source::damon::holder;
use crate::source::damon::knobs::{KnobError, Knobs, Sysfs};
use crate::source::damon::{self, Options};
use std::path::PathBuf;

const COUNT: &str = "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";

/// How DAMON stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has it, or only `damon_stat`, which memtide may pause.
    Free,
    /// This kernel has none, or no interface to it.
    Absent {
        /// The missing file.
        path: PathBuf,
    },
    /// Another program has made kdamonds.
    Program {
        /// How many.
        kdamonds: u64,
        /// The file that counts them.
        path: PathBuf,
    },
    /// A module of the kernel's that cannot be paused has it.
    Module {
        /// The module.
        name: &'static str,
        /// Its switch.
        path: PathBuf,
    },
    /// A memtide that runs has it.
    Memtide {
        /// The process, as far as it has noted itself.
        pid: Option<u32>,
    },
    /// A memtide that crashed had it. What it left, in a sentence.
    LeftOver(String),
}

/// Why it cannot be told who has DAMON.
#[derive(Debug, thiserror::Error)]
pub enum StandingError {
    /// A file of the kernel's is there and cannot be read or understood.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// The same for the note.
    #[error(transparent)]
    Lent(#[from] LentError),
}

impl StandingError {
    /// Whether it takes more rights.
    pub fn is_denied(&self) -> bool {
        match self {
            StandingError::Knob(error) => {
                matches!(error.errno(), Some(libc::EACCES | libc::EPERM))
            }
            StandingError::Lent(error) => error.is_denied(),
        }
    }
}

/// Reads how DAMON stands.
///
/// # Errors
///
/// A file is there and cannot be read or understood.
pub fn damon(options: &Options) -> Result<Standing, StandingError> {
    // Before the count: a crash may also leave only damon_stat turned off.
    if let Some(left) = damon::left_over(options)? {
        return Ok(Standing::LeftOver(left));
    }
    let knobs = Sysfs::new(&options.root);
    let path = knobs.shown(COUNT);
    if !knobs.exists(COUNT) {
        return Ok(Standing::Absent { path });
    }
    let journal = holder::journal(&options.root);
    if journal.is_held()? {
        let pid = holder::noted(&journal)?.map(|holder| holder.pid);
        return Ok(Standing::Memtide { pid });
    }
    match knobs.read_number(COUNT)? {
        0 => {}
        kdamonds => return Ok(Standing::Program { kdamonds, path }),
    }
    let on = |name: &str| {
        let switch = format!("sys/module/{name}/parameters/enabled");
        knobs
            .read(&switch)
            .is_ok_and(|value| value == "Y")
            .then(|| knobs.shown(&switch))
    };
    let others = MODULES.into_iter().filter(|name| *name != "damon_stat");
    for name in others {
        if let Some(path) = on(name) {
            return Ok(Standing::Module { name, path });
        }
    }
    Ok(Standing::Free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::damon::holder::Holder;
    use std::path::Path;

    struct Machine(tempfile::TempDir);

    impl Machine {
        /// DAMON is there and free.
        fn new() -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            machine.write(COUNT, "0\n");
            machine.write("proc/sys/kernel/random/boot_id", "this-boot\n");
            machine
        }

        fn path(&self) -> &Path {
            self.0.path()
        }

        fn write(&self, file: &str, text: &str) {
            let file = self.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }

        fn noted(&self) {
            let holder = Holder {
                pid: 77,
                kdamonds: 2,
                paused_modules: vec!["damon_stat".into()],
            };
            holder::journal(self.path()).note(&holder).unwrap();
        }

        fn standing(&self) -> Standing {
            let options = Options {
                root: self.path().into(),
                ..Options::default()
            };
            damon(&options).unwrap()
        }
    }

    #[test]
    fn nobody_has_it() {
        let machine = Machine::new();
        machine.write("sys/module/damon_stat/parameters/enabled", "Y\n");
        assert_eq!(machine.standing(), Standing::Free);
        std::fs::remove_file(machine.path().join(COUNT)).unwrap();
        assert!(matches!(machine.standing(), Standing::Absent { .. }));
    }

    #[test]
    fn others_have_it() {
        let machine = Machine::new();
        machine.write("sys/module/damon_reclaim/parameters/enabled", "Y\n");
        let module = machine.standing();
        assert!(matches!(
            module,
            Standing::Module {
                name: "damon_reclaim",
                ..
            }
        ));
        machine.write(COUNT, "1\n");
        let program = machine.standing();
        assert!(matches!(program, Standing::Program { kdamonds: 1, .. }));
    }

    #[test]
    fn a_note_of_a_memtide_is_believed_as_far_as_it_lives() {
        let machine = Machine::new();
        machine.write(COUNT, "2\n");
        machine.noted();
        assert_eq!(
            machine.standing(),
            Standing::LeftOver("process 77 held 2 kdamonds and had turned damon_stat off".into())
        );
        let turn = holder::journal(machine.path()).turn().unwrap().unwrap();
        assert_eq!(machine.standing(), Standing::Memtide { pid: Some(77) });
        drop(turn);
        // A note of an earlier boot says nothing about this one's kdamonds.
        machine.write("proc/sys/kernel/random/boot_id", "the-next\n");
        assert!(matches!(machine.standing(), Standing::Program { .. }));
    }
}
