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
    let restored = both(both(weights, damon).map(|done| done.restored), affinity)?;
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

/// What was put back of one thing and of another, as one.
fn both(
    one: anyhow::Result<Option<String>>,
    other: anyhow::Result<Option<String>>,
) -> anyhow::Result<Restored> {
    match (one, other) {
        (Ok(one), Ok(other)) => {
            let restored: Vec<String> = one.into_iter().chain(other).collect();
            Ok(Restored {
                restored: (!restored.is_empty()).then(|| restored.join(", and ")),
            })
        }
        (Err(one), Err(other)) => bail!("{}; {}", causes(&one), causes(&other)),
        (Ok(Some(done)), Err(why)) | (Err(why), Ok(Some(done))) => {
            bail!("{}; put back was: {done}", causes(&why))
        }
        (Ok(None), Err(why)) | (Err(why), Ok(None)) => Err(why),
    }
}

/// The table of interleave weights, if a killed `memtide run` left it.
fn restore_weights(root: &Root) -> anyhow::Result<Option<String>> {
    let left = match lent_weights::standing(root)? {
        TableStanding::Left(left) => format!("memtide run {left}"),
        // A note that puts nothing back, but could some day.
        TableStanding::Free if lent_weights::is_noted(root) => {
            "memtide run left a note of the interleave weights".to_owned()
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
        let restored = |weights, damon| both(weights, damon).map_err(|why| why.to_string());
        assert_eq!(
            restored(done(), done()).unwrap().restored.as_deref(),
            Some("a, and a")
        );
        assert_eq!(
            restored(Ok(None), done()).unwrap().restored.as_deref(),
            Some("a")
        );
        assert_eq!(restored(fails("x"), fails("y")), Err("x; y".to_owned()));
        assert_eq!(
            restored(done(), fails("y")),
            Err("y; put back was: a".to_owned())
        );
        assert_eq!(restored(Ok(None), fails("y")), Err("y".to_owned()));
    }
}
