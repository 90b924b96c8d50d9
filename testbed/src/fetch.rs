//! Gets QEMU, kernels and a few programs once, through the machine's own apt.
//!
//! Nothing of the machine is changed: apt runs with a state and cache directory of ours and with a
//! list of sources that copies the machine's (see `apt.rs`), so its signatures are
//! checked with the machine's own keys. What is installed already is used in place; what is missing
//! is downloaded and unpacked below the cache, `${XDG_CACHE_HOME:-~/.cache}/memtide-testbed`. A
//! folder there is complete or absent (unpacked aside, then renamed), so a second run reads nothing
//! from the network.
//!
//! Kernels are found, not pinned: the newest package `linux-image-6.12.*` of the installed release
//! or its backports, and `linux-image-7.2.*` of the testing or unstable suite. Where an image is
//! split, its `linux-binary-*` and `linux-modules-*` come with it.
//!
//! A guest with systemd has a small Debian 13 instead of our own few files: systemd, apt, dpkg and all
//! that they depend on, unpacked and never installed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::apt::Apt;
use crate::lock::Lock;

/// The release of a guest with systemd: the first whose systemd knows all that the unit says.
const DEBIAN: &str = "trixie";

/// The kernels that the tests run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelLine {
    /// The long-term kernel that stable distributions ship.
    V6_12,
    /// The newest.
    V7_2,
}

impl KernelLine {
    /// Both, oldest first.
    pub const ALL: [Self; 2] = [Self::V6_12, Self::V7_2];

    /// As people write it: `6.12`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_12 => "6.12",
            Self::V7_2 => "7.2",
        }
    }
}

impl std::str::FromStr for KernelLine {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|line| line.name() == text)
            .with_context(|| format!("no kernel {text:?}: there are 6.12 and 7.2"))
    }
}

/// A program and the folder of libraries that it needs beside the machine's own.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Unpacked packages that its libraries come from, when it is not the machine's own.
    pub root: Option<PathBuf>,
}

impl Program {
    /// Where the loader finds the libraries that are not the machine's own.
    #[must_use]
    pub fn library_path(&self) -> Option<String> {
        self.root.as_ref().map(|root| {
            let root = root.display();
            format!("{root}/usr/lib/x86_64-linux-gnu:{root}/lib/x86_64-linux-gnu")
        })
    }
}

/// The folder of everything fetched.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens the cache, making its folder.
    ///
    /// # Errors
    /// When neither XDG_CACHE_HOME nor HOME is set, or the folder cannot be made.
    pub fn open() -> Result<Self> {
        let base = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
            .context("no place for the cache: set XDG_CACHE_HOME or HOME")?;
        let root = base.join("memtide-testbed");
        std::fs::create_dir_all(&root)
            .with_context(|| format!("cannot make the cache {}", root.display()))?;
        Ok(Self { root })
    }

    /// A path below the cache.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// QEMU: the machine's own if it has one, else unpacked.
    ///
    /// # Errors
    /// When it must be fetched and apt cannot.
    pub fn qemu(&self) -> Result<Program> {
        self.program("qemu-system-x86", "qemu-system-x86_64")
    }

    /// redis-server, for the test with a real program.
    ///
    /// # Errors
    /// When it must be fetched and apt cannot.
    pub fn redis(&self) -> Result<Program> {
        self.program("redis-server", "redis-server")
    }

    /// mkfs.ext4, for disk images.
    ///
    /// # Errors
    /// When it must be fetched and apt cannot.
    pub fn mkfs(&self) -> Result<Program> {
        self.program("e2fsprogs", "mkfs.ext4")
    }

    /// dpkg and what it calls, which are the machine's own, and rpm.
    ///
    /// # Errors
    /// When one must be fetched and apt cannot.
    pub fn package_tools(&self) -> Result<Vec<Program>> {
        let dpkg = ["dpkg", "dpkg-deb", "dpkg-query", "dpkg-split"].map(|name| ("dpkg", name));
        let others = [("libc-bin", "ldconfig"), ("tar", "tar"), ("rpm", "rpm")];
        let all = dpkg.into_iter().chain(others);
        all.map(|(package, program)| self.program(package, program))
            .collect()
    }

    /// What rpm reads before it does anything, by its place in a file system.
    ///
    /// # Errors
    /// When rpm must be fetched and apt cannot.
    pub fn rpm_configuration(&self) -> Result<Vec<(String, PathBuf)>> {
        let root = self.program("rpm", "rpm")?.root;
        let root = root.unwrap_or_else(|| PathBuf::from("/"));
        ["rpmrc", "macros", "platform/x86_64-linux/macros"]
            .map(|name| format!("usr/lib/rpm/{name}"))
            .into_iter()
            .map(|name| Ok((format!("/{name}"), find_below(&root, &[&name])?)))
            .collect()
    }

    /// The root of a small Debian 13 with systemd, apt and dpkg, whose kernel is 6.12.
    ///
    /// # Errors
    /// When it must be fetched and apt cannot.
    pub fn debian(&self) -> Result<PathBuf> {
        self.complete_with(&format!("debian-{DEBIAN}"), |aside| {
            let apt = Apt::open_bare(self.path(&format!("apt-{DEBIAN}")), DEBIAN)?;
            apt.download_system(
                &["systemd", "apt", "dpkg", "tar", "libc-bin", "mount"],
                aside,
            )
        })
    }

    /// A static busybox: the guest's shell.
    ///
    /// # Errors
    /// When it must be fetched and apt cannot.
    pub fn busybox(&self) -> Result<PathBuf> {
        let folder = self.complete("busybox", |apt, aside| {
            apt.download(&["busybox-static".to_owned()], aside)
        })?;
        find_below(&folder, &["bin/busybox", "usr/bin/busybox"])
    }

    /// The unpacked packages of a kernel.
    ///
    /// # Errors
    /// When they must be fetched and apt cannot.
    pub fn kernel(&self, line: KernelLine) -> Result<PathBuf> {
        let name = format!("kernel-{}", line.name());
        self.complete(&name, |apt, aside| {
            let image = apt.newest_kernel(line.name())?;
            let mut packages = apt.kernel_parts(&image)?;
            packages.push(image);
            eprintln!("fetch: kernel {}: {}", line.name(), packages.join(", "));
            apt.download(&packages, aside)
        })
    }

    fn program(&self, package: &str, program: &str) -> Result<Program> {
        let unpacked = self.path(package);
        if !unpacked.exists()
            && let Some(path) = on_path(program)
        {
            return Ok(Program { path, root: None });
        }
        let root = self.complete(package, |apt, aside| {
            apt.download_with_missing(package, aside)
        })?;
        let places = ["usr/bin/", "usr/sbin/", "sbin/", "bin/"].map(|at| format!("{at}{program}"));
        let path = find_below(&root, &places.each_ref().map(String::as_str))?;
        Ok(Program {
            path,
            root: Some(root),
        })
    }

    /// The folder `name`, filled by `fill` if it is absent.
    fn complete(
        &self,
        name: &str,
        fill: impl FnOnce(&Apt, &Path) -> Result<()>,
    ) -> Result<PathBuf> {
        self.complete_with(name, |aside| fill(&Apt::open(self.path("apt"))?, aside))
    }

    fn complete_with(&self, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let folder = self.path(name);
        if folder.exists() {
            return Ok(folder);
        }
        let _lock = Lock::take(self.path("fetch.lock"), |_| {
            eprintln!("fetch: waiting for another fetch");
        })?;
        if folder.exists() {
            return Ok(folder);
        }
        eprintln!("fetch: {name} (once)");
        let aside = self.path(&format!("{name}.partial"));
        let _ = std::fs::remove_dir_all(&aside);
        std::fs::create_dir_all(&aside)?;
        fill(&aside).with_context(|| format!("cannot fetch {name}"))?;
        std::fs::rename(&aside, &folder)?;
        Ok(folder)
    }
}

/// The first of `places` that exists below `root`.
fn find_below(root: &Path, places: &[&str]) -> Result<PathBuf> {
    places
        .iter()
        .map(|place| root.join(place))
        .find(|path| path.exists())
        .with_context(|| {
            format!(
                "{} has no {}: remove the folder to fetch again",
                root.display(),
                places.join(", ")
            )
        })
}

/// A program of the machine: on PATH, or in the folders of root's programs that PATH may lack.
fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named_as_people_write_them() {
        assert_eq!("7.2".parse::<KernelLine>().unwrap(), KernelLine::V7_2);
        let error = "5.4".parse::<KernelLine>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no kernel \"5.4\": there are 6.12 and 7.2"
        );
    }

    #[test]
    fn unpacked_libraries_come_before_the_machines() {
        let root = Some(PathBuf::from("r"));
        let program = Program {
            path: PathBuf::from("r/usr/bin/p"),
            root,
        };
        let folders = "r/usr/lib/x86_64-linux-gnu:r/lib/x86_64-linux-gnu";
        assert_eq!(program.library_path().as_deref(), Some(folders));
    }
}
