//! A container by hand, as a runtime makes the one of `deploy/kubernetes.yaml`.
//!
//! The guest has no runtime, so its work is done here step by step. The container has the host's processes
//! (`hostPID`) and namespaces of its own for the rest but users. Its root is an empty folder with the program,
//! a `/proc` whose settings are read-only, a read-only `/sys`, and what the pod mounts. It has the
//! capabilities that were added and no way to others. [`main`] becomes the program, so whoever starts it has
//! the program as a child.
//!
//! The guest's own root cannot be left by pivot_root, which refuses an initial ram file system; the new root is
//! moved over it, as runtimes do in this case.

use std::fs::{copy, create_dir_all, write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_move,
    mount_remount,
};
use rustix::process::{chdir, chroot};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set, set_no_new_privs};

use super::sys::own_namespaces;

/// Where the program is in the container.
pub const PROGRAM: &str = "/usr/bin/memtide";
/// Where it comes from.
const BINARY: &str = "/bin/memtide";
/// Where the container's root is made.
const ROOT: &str = "/tmp/container";
/// What runtimes hide of /proc.
const HIDDEN: [&str; 2] = ["proc/kcore", "proc/interrupts"];

/// What the pod asks for.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// A capability to keep, without CAP_
    #[arg(long = "keep", value_name = "NAME")]
    keeps: Vec<String>,
    /// A file or folder of the host's to mount at the same place; with :ro read-only
    #[arg(long = "mount", value_name = "PATH")]
    mounts: Vec<String>,
    /// The cgroup that is to be the root of those that it sees
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Words for memtide
    #[arg(last = true)]
    words: Vec<String>,
}

/// Becomes memtide in a container.
///
/// # Errors
/// A step failed.
pub fn main(options: &Options) -> Result<()> {
    let keeps = capabilities(options.keeps.iter().map(String::as_str))?;
    if let Some(cgroup) = &options.cgroup {
        write(cgroup.join("cgroup.procs"), "0").context("cannot enter the cgroup")?;
    }
    own_namespaces().context("cannot have namespaces")?;
    root(&options.mounts)?;
    for capability in CapabilitySet::all().difference(keeps).iter() {
        // The kernel may be older than the name of a right.
        let _ = remove_capability_from_bounding_set(capability);
    }
    set_no_new_privs(true)?;
    let error = Command::new(PROGRAM)
        .args(&options.words)
        .env_clear()
        .env("PATH", "/usr/bin")
        .exec();
    Err(error).context(PROGRAM)
}

/// The set of capabilities with these names, which have no CAP_ in front.
///
/// # Errors
/// There is no such capability.
pub fn capabilities<'a>(names: impl Iterator<Item = &'a str>) -> Result<CapabilitySet> {
    names
        .map(|name| {
            CapabilitySet::from_name(name).with_context(|| format!("{name}: no capability"))
        })
        .collect()
}

/// Makes the root, and goes there.
fn root(mounts: &[String]) -> Result<()> {
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    let root = Path::new(ROOT);
    create_dir_all(root)?;
    mount("tmpfs", root, "tmpfs", MountFlags::empty(), None)?;
    for folder in ["usr/bin", "etc", "proc", "sys", "dev"] {
        create_dir_all(root.join(folder))?;
    }
    copy(BINARY, inside(root, PROGRAM)).context(BINARY)?;
    write(root.join("dev/null"), "")?;
    bind("/dev/null", &root.join("dev/null"), false)?;
    mount("proc", root.join("proc"), "proc", MountFlags::empty(), None)?;
    bind("/proc/sys", &root.join("proc/sys"), true)?;
    for hidden in HIDDEN {
        if root.join(hidden).exists() {
            bind("/dev/null", &root.join(hidden), false)?;
        }
    }
    mount("sysfs", root.join("sys"), "sysfs", MountFlags::RDONLY, None)?;
    for wanted in mounts {
        let path = wanted.strip_suffix(":ro").unwrap_or(wanted);
        let place = inside(root, path);
        if Path::new(path).is_dir() {
            let _ = create_dir_all(&place);
        } else {
            create_dir_all(place.parent().context("a place is in a folder")?)?;
            write(&place, "")?;
        }
        bind(path, &place, path != wanted)?;
    }
    let read_only = MountFlags::BIND | MountFlags::RDONLY;
    mount_remount(root, read_only, "")?;
    chdir(root)?;
    mount_move(root, "/")?;
    chroot(".")?;
    chdir("/")?;
    Ok(())
}

/// Where an absolute path is below `root`.
fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn bind(from: &str, to: &Path, read_only: bool) -> Result<()> {
    let place = || to.display().to_string();
    mount_bind_recursive(from, to).with_context(place)?;
    if read_only {
        mount_remount(to, MountFlags::BIND | MountFlags::RDONLY, "").with_context(place)?;
    }
    Ok(())
}
