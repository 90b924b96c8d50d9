//! `memtide doctor --restore`: puts back what a memtide that crashed left.

use crate::shared::context::Context;
use crate::shared::lent_weights::{self, Standing as TableStanding};
use crate::shared::outside::causes;
use crate::shared::source::damon_options;
use anyhow::bail;
use memtide_linux::fs::Root;
use memtide_linux::live::affinity::{self, Affinities};
use memtide_linux::probe::standing::{self, Standing};
use memtide_linux::source::damon::{Damon, Options};
use serde::Serialize;
use std::process::ExitCode;

/// The document of `--restore --json`.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Restored {
    /// What was put back, in a sentence.
    restored: Option<String>,
}

/// Runs the command.
pub fn run(context: &Context) -> anyhow::Result<ExitCode> {
    // What one of them leaves undone is no reason to leave the other.
    let weights = restore_weights(&context.root);
    let damon = restore_damon(damon_options(&context.root));
    let affinity = restore_affinity(&context.root);
    let restored = all([weights, damon, affinity])?;
    if context.json {
        context.print_json(&restored)?;
    } else {
        context.print(&match restored.restored {
            Some(left) => format!("Put back: {left}.\n"),
            None => "Nothing of a crashed memtide is left.\n".to_owned(),
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was put back of each thing, as one. A cause that several have is said once.
fn all(things: [anyhow::Result<Option<String>>; 3]) -> anyhow::Result<Restored> {
    let (mut restored, mut failed) = (Vec::new(), Vec::new());
    for thing in things {
        match thing {
            Ok(done) => restored.extend(done),
            Err(why) => {
                let why = causes(&why);
                if !failed.contains(&why) {
                    failed.push(why);
                }
            }
        }
    }
    let restored = (!restored.is_empty()).then(|| restored.join(", and "));
    match (failed.join("; "), restored) {
        (none, restored) if none.is_empty() => Ok(Restored { restored }),
        (why, None) => bail!(why),
        (why, Some(done)) => bail!("{why}; put back was: {done}"),
    }
}

/// The table of interleave weights, if a killed `memtide run` or service left it, or a change that was
/// cut short.
fn restore_weights(root: &Root) -> anyhow::Result<Option<String>> {
    let left = match lent_weights::standing(root)? {
        TableStanding::Left(left) => left.to_string(),
        // A note that puts nothing back, but could some day.
        TableStanding::Free if lent_weights::is_noted(root) => {
            "memtide run or service left a note of the interleave weights".to_owned()
        }
        TableStanding::Free | TableStanding::Lent | TableStanding::Hidden => return Ok(None),
    };
    // Without a turn another run has just begun, which has put it back itself.
    let Some(turn) = lent_weights::journal(root).turn()? else {
        return Ok(None);
    };
    match lent_weights::put_back_by(root, &turn) {
        Ok(change) => Ok(change.map(|_| left)),
        Err(why) => bail!("cannot put back that {left}: {why}"),
    }
}

/// The affinity of threads, if a killed `memtide balance --tasks` left it.
fn restore_affinity(root: &Root) -> anyhow::Result<Option<String>> {
    if !Affinities::is_left(root)? {
        return Ok(None);
    }
    // Without a turn another run has just begun, which has put it back itself.
    let Some(turn) = affinity::journal(root).turn()? else {
        return Ok(None);
    };
    let freed = Affinities::put_back_left(root, &turn)?;
    drop(turn);
    Ok(freed.map(|freed| format!("memtide balance left the affinity of {freed} threads")))
}

/// Taking DAMON over from a holder that is gone and giving it back is what
/// restores it; whatever another program has taken meanwhile stays.
fn restore_damon(options: Options) -> anyhow::Result<Option<String>> {
    let Standing::LeftOver(left) = standing::damon(&options)? else {
        return Ok(None);
    };
    let damon = match Damon::open(options.clone()) {
        Ok(damon) => damon,
        Err(why) => bail!("cannot put back that {left}: {why}"),
    };
    damon.restore()?;
    match standing::damon(&options)? {
        Standing::LeftOver(left) => bail!("it was put back and is there again: {left}"),
        _ => Ok(Some(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_linux::source::damon::holder::{self, Holder};
    use std::path::Path;

    fn machine(root: &Path) -> Options {
        let write = |file: &str, text: &str| {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("proc/sys/kernel/random/boot_id", "this-boot\n");
        write("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n");
        Options {
            root: root.into(),
            pause_damon_stat: true,
            ..Options::default()
        }
    }

    #[test]
    fn nothing_left_is_nothing_done() {
        let root = tempfile::tempdir().unwrap();
        let options = machine(root.path());
        assert_eq!(restore_damon(options).unwrap(), None);
        assert_eq!(restore_weights(&Root::new(root.path())).unwrap(), None);
        assert_eq!(restore_affinity(&Root::new(root.path())).unwrap(), None);
        assert!(!root.path().join("run").exists());
    }

    #[test]
    fn what_another_program_took_since_stays() {
        let root = tempfile::tempdir().unwrap();
        let options = machine(root.path());
        let holder = Holder {
            pid: 77,
            kdamonds: 2,
            paused_modules: Vec::new(),
        };
        holder::journal(root.path()).note(&holder).unwrap();
        // Three kdamonds where memtide had made two: not ours any more.
        let count = root
            .path()
            .join("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds");
        std::fs::write(&count, "3\n").unwrap();
        let error = restore_damon(options).unwrap_err().to_string();
        assert!(error.contains("process 77 held 2 kdamonds"), "{error}");
        assert!(error.contains("3 in use by another program"), "{error}");
        assert_eq!(std::fs::read_to_string(count).unwrap(), "3\n");
    }

    #[test]
    fn one_that_fails_does_not_hide_the_other() {
        let done = || Ok(Some("a".to_owned()));
        let fails = |why: &'static str| Err(anyhow::anyhow!(why));
        let none = || Ok(None);
        let says = |things| all(things).map_err(|why| why.to_string());
        let restored = |things| says(things).unwrap().restored;
        assert_eq!(restored([done(), none(), done()]).unwrap(), "a, and a");
        assert_eq!(restored([none(), done(), none()]).unwrap(), "a");
        assert_eq!(restored([none(), none(), none()]), None);
        let error = |things| says(things).unwrap_err();
        assert_eq!(error([fails("x"), none(), fails("y")]), "x; y");
        assert_eq!(error([fails("x"), fails("x"), fails("x")]), "x");
        assert_eq!(
            error([done(), fails("y"), fails("y")]),
            "y; put back was: a"
        );
    }
}
