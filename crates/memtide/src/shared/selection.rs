//! Which processes a loop manages, and whether it may.

use super::words::pid;
use anyhow::bail;
use clap::Args;
use memtide_linux::fs::Root;
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
pub fn selection(args: &SelectionArgs) -> Selection {
    match (&args.cgroup, args.all) {
        (None, false) => Selection::Pids(args.pid.clone()),
        (cgroup, _) => of_cgroup_or_all(cgroup.as_deref()),
    }
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
