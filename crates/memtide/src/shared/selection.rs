//! Which processes a loop manages, and whether it may.

use super::words::pid;
use anyhow::bail;
use clap::Args;
use memtide_linux::fs::Root;
use memtide_linux::fs::cgroup::Cgroup;
use memtide_linux::fs::numa::{self, Capability};
use memtide_linux::live::processes::Selection;
use std::path::{Path, PathBuf};

/// Processes below this much address space are left alone by `--all`: they have
/// less to move than looking at them costs.
const LEAST_ADDRESS_SPACE: u64 = 8 << 20;

/// Which processes. Exactly one kind.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct SelectionArgs {
    /// Manage this process; may be given several times
    #[arg(long, value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pub pid: Vec<u32>,

    /// Manage all processes of this cgroup and of those below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Manage every process of the machine
    #[arg(long)]
    pub all: bool,

    /// Run what a journal tells of again, and compare; nothing is managed
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub from_journal: Option<PathBuf>,
}

/// Names the capability that is missing, before anything is tried.
pub fn check_privileges(root: &Root, dry_run: bool) -> anyhow::Result<()> {
    let Some(held) = numa::capabilities(root)? else {
        return Ok(());
    };
    let needed = match dry_run {
        true => &[Capability::SysPtrace, Capability::SysAdmin][..],
        false => &[
            Capability::SysPtrace,
            Capability::SysAdmin,
            Capability::SysNice,
        ][..],
    };
    let missing: Vec<&str> = needed
        .iter()
        .filter(|capability| !held.has(**capability))
        .map(|capability| capability.name())
        .collect();
    if !missing.is_empty() {
        bail!(
            "not permitted: {} is missing; run as root",
            missing.join(", ")
        );
    }
    Ok(())
}

/// The processes that were named.
///
/// # Errors
/// A cgroup is not there. Later it may go and come back; at the start this is a mistake.
pub fn selection(args: &SelectionArgs, root: &Root) -> anyhow::Result<Selection> {
    if let Some(path) = &args.cgroup {
        Cgroup::open(root, path)?;
    }
    Ok(match (&args.cgroup, args.all) {
        (None, false) => Selection::Pids(args.pid.clone()),
        (cgroup, _) => of_cgroup_or_all(cgroup.as_deref()),
    })
}

/// Those of a cgroup, or every process.
pub fn of_cgroup_or_all(cgroup: Option<&Path>) -> Selection {
    match cgroup {
        Some(path) => Selection::Cgroup(path.to_owned()),
        None => Selection::All {
            at_least: LEAST_ADDRESS_SPACE,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::outside::{HOSTILE, causes, message};
    use memtide_linux::text::is_hidden;

    /// As `main` says what went wrong.
    #[test]
    fn a_cgroup_whose_name_draws_on_the_terminal_is_refused_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        std::fs::create_dir_all(dir.path().join("cg").join(HOSTILE)).unwrap();
        let mounts = "31 23 0:28 / /cg rw shared:4 - cgroup2 cgroup2 rw\n";
        std::fs::write(dir.path().join("proc/self/mountinfo"), mounts).unwrap();
        for path in [HOSTILE.to_owned(), format!("/cg/{HOSTILE}")] {
            let args = SelectionArgs {
                pid: Vec::new(),
                cgroup: Some(path.into()),
                all: false,
                from_journal: None,
            };
            let error = selection(&args, &Root::new(dir.path())).unwrap_err();
            let said = message(&causes(&error));
            assert!(!said.contains(is_hidden), "{said:?}");
            assert!(said.contains("owned") && said.contains("cgroup"), "{said}");
        }
    }
}
