//! No memory on purpose: the nth allocation of a process is refused, alone or with all after it.
//!
//! A Rust program that is refused memory is aborted, wherever it was; what asks the C library or asks
//! fallibly gets an error instead. Either way what must hold is what holds after a kill: files are old
//! or new, and what was lent is put back by the next start. Since the process ends, each try is a
//! process of its own, with a library (`refusals.c`) that takes the place of the C library's allocator.
//!
//! [`Library::each`] runs a command so, for a growing number; or a test runs itself ([`itself`]) and says with
//! [`begin`] from where on its own thread's allocations count.
//!
//! Left out: allocations that are mappings of their own (`HugePages`), which do not ask the C library.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SOURCE: &str = include_str!("refusals.c");
/// An allocation of so many bytes is [`begin`]; nobody else makes one.
const MARK: usize = 7_654_321;
/// Where a test that runs itself is to work.
const PLACE: &str = "REFUSE_PLACE";
/// How [`std::process::abort`] ends a process.
const SIGABRT: i32 = 6;

/// The library, built.
#[derive(Debug)]
pub struct Library {
    folder: PathBuf,
    path: PathBuf,
}

/// How a process ended that was refused memory.
#[derive(Debug)]
pub enum Ended {
    /// As if nothing had been refused, or with what it could do without.
    Done,
    /// With an error, said in one line.
    Failed(String),
    /// Aborted.
    Aborted,
}

impl Library {
    /// Builds it in `folder`, with the machine's C compiler.
    ///
    /// # Panics
    ///
    /// There is none, or it does not build.
    pub fn build(folder: &Path) -> Library {
        let (source, path) = (folder.join("refusals.c"), folder.join("refusals.so"));
        std::fs::write(&source, SOURCE).expect("a folder to write to");
        let status = Command::new("cc")
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
            .arg(&source)
            .arg("-o")
            .arg(&path)
            .status();
        assert!(status.expect("cc, the C compiler").success());
        Library {
            folder: folder.to_owned(),
            path,
        }
    }

    /// Has `command` go on with the library, and refused its `nth` allocation.
    fn run(&self, command: &mut Command, nth: u64, how: &str) -> Output {
        command
            .env("LD_PRELOAD", &self.path)
            .env("REFUSE_NTH", nth.to_string())
            .env("REFUSE_HOW", how)
            .env("REFUSE_COUNT", self.count_path())
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null());
        command.output().expect("the command runs")
    }

    fn count_path(&self) -> PathBuf {
        self.folder.join("count")
    }

    /// Runs what `command` makes, anew for each try, and refuses it an allocation: near the first and
    /// near the last ones each, between them one an eighth further each time. `check` is told of
    /// what `prepare` made how the process ended, and in words which try it was.
    ///
    /// Returns how many tries did not end as if nothing had been refused.
    ///
    /// # Panics
    ///
    /// It does not succeed if nothing is refused, does not end, or ends by anything but an error of
    /// one line or by being aborted.
    pub fn each<T>(
        &self,
        prepare: impl Fn() -> T,
        command: impl Fn(&T) -> Command,
        check: impl Fn(&T, Ended, &str),
    ) -> u64 {
        let made = prepare();
        let _ = std::fs::remove_file(self.count_path());
        let output = self.run(&mut command(&made), 0, "once");
        assert!(output.status.success(), "{output:?}");
        let count = std::fs::read_to_string(self.count_path());
        let count: u64 = count.expect("it was counted").parse().expect("a number");
        assert!(count > 0, "it allocates nothing");
        check(&made, Ended::Done, "nothing refused");
        let mut ended = 0;
        for how in ["once", "ever"] {
            for nth in tries(count) {
                let made = prepare();
                let output = self.run(&mut command(&made), nth, how);
                let at = format!("allocation {nth} of {count}, {how}");
                let how_it_ended = judge(&output, &at);
                ended += u64::from(!matches!(how_it_ended, Ended::Done));
                check(&made, how_it_ended, &at);
            }
        }
        ended
    }
}

/// Which allocations of `count` are tried: an eighth further each time, from both ends, as the work
/// that matters is at the end of some processes.
fn tries(count: u64) -> Vec<u64> {
    let mut all = std::collections::BTreeSet::new();
    let mut step = 1;
    while step <= count {
        all.extend([step, count + 1 - step]);
        step = (step + 1).max(step * 9 / 8);
    }
    all.into_iter().collect()
}

fn judge(output: &Output, at: &str) -> Ended {
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.signal() == Some(SIGABRT) {
        // Rust's words, or the C library's.
        assert!(said.contains("memory"), "{at}: {said}");
        return Ended::Aborted;
    }
    match output.status.code() {
        Some(0) => Ended::Done,
        Some(1 | 2) => {
            assert!(said.starts_with("memtide: "), "{at}: {said}");
            assert_eq!(said.lines().count(), 1, "{at}: {said}");
            assert!(!said.contains("a mistake in memtide"), "{at}: {said}");
            Ended::Failed(said.into_owned())
        }
        _ => panic!("{at}: {}: {said}", output.status),
    }
}

/// The test `name`, with its modules, as a process of its own that works at `place`.
pub fn itself(name: &str, place: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args([name, "--exact", "--nocapture", "--test-threads", "1"])
        .env("REFUSE_MARK", MARK.to_string())
        .env(PLACE, place);
    command
}

/// Where to work, in a test that runs itself.
pub fn place() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(|place: OsString| place.into())
}

/// From here on this thread's allocations count.
pub fn begin() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(MARK)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_tried_one_by_one() {
        let tries = tries(1000);
        assert!(
            tries.starts_with(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            "{tries:?}"
        );
        assert!(
            tries.ends_with(&[998, 999, 1000]) && tries.len() > 60,
            "{tries:?}"
        );
        assert_eq!(super::tries(2), [1, 2]);
    }

    /// What is refused, and what a process makes of it.
    #[test]
    fn the_chosen_allocation_is_refused_and_no_other() {
        const NAME: &str = "files::refusals::tests::the_chosen_allocation_is_refused_and_no_other";
        if let Some(place) = place() {
            let taken = |bytes| Vec::<u8>::new().try_reserve_exact(std::hint::black_box(bytes));
            let (one, two) = (taken(7), taken(8));
            begin();
            let three = (taken(9), taken(10), taken(11));
            let refused = [three.0, three.1, three.2].map(|taken| taken.is_err());
            assert!(one.is_ok() && two.is_ok());
            std::fs::write(place.join("told"), format!("{refused:?}")).unwrap();
            std::process::exit(0);
        }
        let library = tempfile::tempdir().unwrap();
        let tried = std::cell::RefCell::new(Vec::new());
        Library::build(library.path()).each(
            || tempfile::tempdir().unwrap(),
            |place| itself(NAME, place.path()),
            |place, _, at| {
                let told = std::fs::read_to_string(place.path().join("told"));
                tried
                    .borrow_mut()
                    .push((at.to_owned(), told.unwrap_or_default()));
            },
        );
        let tried = tried.into_inner();
        let told = |nth, how| {
            let begins = format!("allocation {nth} of ");
            let fits = |(at, _): &&(String, String)| at.starts_with(&begins) && at.ends_with(how);
            &tried.iter().find(fits).expect("tried").1
        };
        assert_eq!(tried[0].1, "[false, false, false]");
        assert_eq!(told(1, "once"), "[true, false, false]");
        assert_eq!(told(2, "once"), "[false, true, false]");
        assert_eq!(told(3, "once"), "[false, false, true]");
        // From then on, also what writes it down: the process is ended.
        assert_eq!(told(1, "ever"), "");
    }
}
