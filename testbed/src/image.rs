//! The guest's whole file system: one cpio archive that the kernel unpacks into memory.
//!
//! `/init` is our own guest program (`src/bin/guest.rs`), so there is no distribution's start-up to
//! wait for or to explain. Beside it lie busybox and its applets, the `memtide` binary, the modules
//! of the job, the job itself, and whatever files the caller adds. Executables may be dynamic: the
//! libraries that `ldd` names are copied to the same paths.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cpio::Archive;
use crate::fetch::Program;
use crate::kernel::Module;
use crate::report::{JOB_PATH, Job};
use crate::system;

/// Everything that goes into one initial ram file system.
#[derive(Debug, Default)]
pub struct Contents {
    /// The guest program, which becomes `/init`.
    pub init: PathBuf,
    /// The busybox binary.
    pub busybox: PathBuf,
    /// Modules in loading order.
    pub modules: Vec<Module>,
    /// Programs, placed in `/bin` with the libraries they need.
    pub programs: Vec<Program>,
    /// Host files placed in `/bin` under their own names.
    pub files: Vec<PathBuf>,
    /// Host files by their place in the guest.
    pub placed: Vec<(String, PathBuf)>,
    /// Host programs and libraries that come to the guest in another way, and here bring those that they
    /// need.
    pub needing: Vec<PathBuf>,
    /// The root of a whole system, of which the guest has what [`crate::system`] takes; systemd is then
    /// process 1.
    pub system: Option<PathBuf>,
}

impl Contents {
    /// The archive for `job`; its module list is filled in here.
    ///
    /// # Errors
    /// When a file cannot be read, or a dynamic program lacks a library on this machine.
    pub fn build(&self, mut job: Job) -> Result<Vec<u8>> {
        let mut archive = Archive::new();
        let mut taken: BTreeSet<String> = ["busybox", "guest"].map(str::to_owned).into();
        if let Some(root) = &self.system {
            taken.extend(system::add(&mut archive, root)?);
        }
        for folder in ["proc", "sys", "dev", "tmp", "run", "mnt", "root"] {
            archive.directory(folder);
        }
        // The kernel opens it for init before devtmpfs is there.
        archive.device("/dev/console", 0o600, 5, 1);
        archive.file("/init", 0o755, &read(&self.init)?);
        archive.symlink("/bin/guest", "/init");
        archive.file("/bin/busybox", 0o755, &read(&self.busybox)?);
        archive.file("/etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n");
        archive.file("/etc/group", 0o644, b"root:x:0:\n");
        for (place, path) in &self.placed {
            archive.file(place, 0o644, &read(path)?);
        }
        let mut libraries = BTreeSet::new();
        let of_host = |path: &PathBuf| Program {
            path: path.clone(),
            root: None,
        };
        // A caller's file wins over a program of the same name.
        let files = self.files.iter().map(of_host);
        let programs = files.chain(self.programs.iter().cloned());
        let placed = programs.map(|program| (program, true));
        let needing = self.needing.iter().map(|path| (of_host(path), false));
        for (program, is_placed) in placed.chain(needing) {
            let name = program
                .path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let data = read(&program.path)?;
            if data.starts_with(b"\x7fELF") {
                for library in libraries_of(&program)? {
                    if libraries.insert(library.clone()) {
                        let place =
                            library.strip_prefix(program.root.as_deref().unwrap_or(Path::new("")));
                        let place = place.unwrap_or(&library).to_string_lossy().into_owned();
                        archive.file(&place, 0o755, &read(&library)?);
                    }
                }
            }
            if is_placed && taken.insert(name.clone()) {
                archive.file(&format!("/bin/{name}"), 0o755, &data);
            }
        }
        for applet in applets(&self.busybox)? {
            if !taken.contains(&applet) {
                archive.symlink(&format!("/bin/{applet}"), "busybox");
            }
        }
        for module in &self.modules {
            let path = format!("/lib/modules/{}.ko", module.name);
            archive.file(&path, 0o644, &module.data);
            job.modules.push(path);
        }
        archive.file(JOB_PATH, 0o644, &serde_json::to_vec(&job)?);
        Ok(archive.finish())
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = Command::new(busybox).arg("--list").output();
    let output = output.with_context(|| format!("cannot run {}", busybox.display()))?;
    ensure!(
        output.status.success(),
        "{} --list failed",
        busybox.display()
    );
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect())
}

/// The libraries and loader of a dynamic program; none for a static one.
fn libraries_of(program: &Program) -> Result<Vec<PathBuf>> {
    let mut command = Command::new("ldd");
    command.arg(&program.path).env("LC_ALL", "C");
    if let Some(path) = program.library_path() {
        command.env("LD_LIBRARY_PATH", path);
    }
    let output = command.output().context("cannot run ldd")?;
    parse_ldd(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("{} cannot run in the guest", program.path.display()))
}

/// The paths in ldd's words: `name => /path (0x...)` or `/path (0x...)`.
fn parse_ldd(text: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for line in text.lines().map(str::trim) {
        let named = line.split_once(" => ");
        ensure!(
            named.is_none_or(|(_, path)| path != "not found"),
            "library {} not found on this machine",
            line.split(' ').next().unwrap_or_default()
        );
        let path = named.map_or(line, |(_, path)| path);
        if path.starts_with('/') {
            paths.push(PathBuf::from(path.split(" (").next().unwrap_or(path)));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_lines() {
        let text = "\tlinux-vdso.so.1 (0x00)\n\tlibc.so.6 => /lib/libc.so.6 (0x01)\n\
                    \t/lib64/ld.so (0x02)\n\tstatically linked\n";
        let paths = parse_ldd(text).unwrap();
        assert_eq!(
            paths,
            [
                PathBuf::from("/lib/libc.so.6"),
                PathBuf::from("/lib64/ld.so")
            ]
        );
        let error = parse_ldd("\tlibx.so => not found\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "library libx.so not found on this machine"
        );
    }
}
