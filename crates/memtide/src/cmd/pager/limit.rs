//! A memory limit for one process: a cgroup below our own, gone afterwards.
//!
//! Both generations are known. Nothing that exists is written to, so a machine
//! where the memory controller is not given to children of our cgroup has no
//! limit to offer, and says why. In version 2 a cgroup with processes in it has
//! no such children; one beside our own may be possible then.
//!
//! A run that is killed leaves an empty cgroup behind; the next run removes it.

use anyhow::Context as _;
use memtide_linux::fs::Root;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What all our cgroups are called, before the process id.
const NAME: &str = "memtide-pager-";

/// Generation of the memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A cgroup of our own.
#[derive(Debug)]
pub struct Limit {
    folder: PathBuf,
    version: Version,
}

impl Limit {
    /// Makes one, empty and without a limit. The error says in a clause why
    /// there can be none.
    pub fn make(root: &Root) -> Result<Limit, String> {
        let mut why = "no memory cgroup is mounted".to_owned();
        for (folder, version) in places(root) {
            match make_in(&folder, version) {
                Ok(limit) => return Ok(limit),
                Err(reason) => why = format!("{}: {reason}", folder.display()),
            }
        }
        Err(why)
    }

    /// Puts a process in.
    pub fn add(&self, pid: u32) -> anyhow::Result<()> {
        self.write("cgroup.procs", u64::from(pid))
    }

    /// Limits the memory to `bytes` more than what is used now, and returns how
    /// much that is in all.
    pub fn allow(&self, bytes: u64) -> anyhow::Result<u64> {
        let used = match self.version {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        };
        let text = self.read(used)?;
        let used: u64 = text.trim().parse().with_context(|| used.to_owned())?;
        self.set(used + bytes)?;
        Ok(used + bytes)
    }

    /// Limits the memory to `bytes` in all.
    pub fn set(&self, bytes: u64) -> anyhow::Result<()> {
        let limit = match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        self.write(limit, bytes)
    }

    /// Memory in it that is no file's, in bytes.
    pub fn anonymous(&self) -> anyhow::Result<u64> {
        let name = match self.version {
            Version::One => "rss ",
            Version::Two => "anon ",
        };
        let text = self.read("memory.stat")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let bytes = line.and_then(|line| line.trim().parse().ok());
        bytes.with_context(|| format!("memory.stat has no {name}"))
    }

    /// The file to which a process that wants in writes 0.
    pub fn door(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = self.folder.join(file);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    fn write(&self, file: &str, value: u64) -> anyhow::Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, value.to_string())
            .with_context(|| format!("{}: cannot write {value}", path.display()))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // A process that just ended may still be counted for a moment.
        for _ in 0..50 {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                _ => return,
            }
        }
    }
}

fn make_in(parent: &Path, version: Version) -> Result<Limit, String> {
    remove_left_over(parent);
    let folder = parent.join(format!("{NAME}{}", std::process::id()));
    fs::create_dir(&folder).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "no child may be made here by this user".to_owned()
        }
        _ => error.to_string(),
    })?;
    let limit = Limit { folder, version };
    let file = match version {
        Version::One => "memory.limit_in_bytes",
        Version::Two => "memory.max",
    };
    match limit.folder.join(file).exists() {
        true => Ok(limit),
        false => Err("its children have no memory controller".to_owned()),
    }
}

/// Removes what killed runs left: cgroups named after processes that are gone.
fn remove_left_over(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name
            .strip_prefix(NAME)
            .and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Where to try, the best first.
fn places(root: &Root) -> Vec<(PathBuf, Version)> {
    let read = |path: &str| fs::read_to_string(root.path(path)).unwrap_or_default();
    let (cgroups, mounts) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
    let mut places = Vec::new();
    if let Some(own) = own_folder(&cgroups, &mounts, Version::One) {
        places.push((own, Version::One));
    }
    if let Some(own) = own_folder(&cgroups, &mounts, Version::Two) {
        let beside = own.parent().map(Path::to_owned);
        places.push((own, Version::Two));
        places.extend(beside.map(|folder| (folder, Version::Two)));
    }
    places
}

/// The folder of our own cgroup in the hierarchy that has the memory controller.
fn own_folder(cgroups: &str, mounts: &str, version: Version) -> Option<PathBuf> {
    // `4:memory:/path`; version 2 has the number 0 and no controllers.
    let own = cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let fits = match version {
            Version::One => controllers.split(',').any(|word| word == "memory"),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        fits.then(|| path.to_owned())
    })?;
    // `id parent device root point options tags... - type source options`.
    mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (mount_root, point) = (front.next()?, front.next()?);
        let mut back = back.split(' ');
        let (kind, options) = (back.next()?, back.nth(1)?);
        let fits = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|word| word == "memory"),
            Version::Two => kind == "cgroup2",
        };
        let below = Path::new(&own).strip_prefix(mount_root).ok();
        fits.then(|| Path::new(point).join(below.unwrap_or(Path::new(""))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cgroup_is_found_in_either_generation() {
        let cgroups = "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/user.slice/me\n";
        let mounts = "\
            24 23 0:20 / /proc rw - proc proc rw\n\
            30 29 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpuacct\n\
            31 29 0:28 /a /sys/fs/cgroup/memory rw shared:7 - cgroup cgroup rw,memory\n\
            32 29 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let folder = |version| own_folder(cgroups, mounts, version).unwrap();
        // The mount shows the hierarchy from /a on.
        assert_eq!(folder(Version::One), Path::new("/sys/fs/cgroup/memory/b"));
        assert_eq!(
            folder(Version::Two),
            Path::new("/sys/fs/cgroup/unified/user.slice/me")
        );
        assert_eq!(own_folder("0::/\n", mounts, Version::One), None);
        assert_eq!(own_folder(cgroups, "", Version::Two), None);
    }
}
