//! The machine's apt, run beside the machine: our state, our cache, our list of sources.
//!
//! apt-get and apt-cache do all the work, signatures included; this file gives them folders of ours,
//! a copy of the machine's sources with more suites of the same archive ([`crate::apt_source`]), and
//! reads their answers. Which of the known packages is the newest kernel is decided here, because
//! their names carry the version and apt does not compare names.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};

use crate::apt_source::{Source, parse_deb822, parse_one_line};

/// Programs come from the machine's release; only names that it lacks come from a later suite.
const PREFERENCES: &str = "Package: *\nPin: release a=testing\nPin-Priority: 100\n\n\
                           Package: *\nPin: release a=unstable\nPin-Priority: 100\n";

/// apt with our own state, cache and sources.
pub(crate) struct Apt {
    root: PathBuf,
    /// What apt takes to be installed.
    status: PathBuf,
}

impl Apt {
    /// Writes the sources and, once in this process, updates the lists. Nothing is remembered from
    /// one run to the next: whoever gets here lacks a package, and old lists name files that are gone.
    pub(crate) fn open(root: PathBuf) -> Result<Self> {
        static UPDATED: AtomicBool = AtomicBool::new(false);
        for folder in ["state/lists/partial", "cache/archives/partial", "etc"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        let status = PathBuf::from("/var/lib/dpkg/status");
        let apt = Self { root, status };
        if UPDATED.swap(true, Ordering::Relaxed) {
            return Ok(apt);
        }
        std::fs::write(apt.root.join("etc/own.sources"), sources()?)?;
        std::fs::write(apt.root.join("etc/preferences"), PREFERENCES)?;
        apt.update()?;
        Ok(apt)
    }

    /// apt for a machine of the distribution's release `codename` that has no package yet.
    pub(crate) fn open_bare(root: PathBuf, codename: &str) -> Result<Self> {
        for folder in ["state/lists/partial", "cache/archives/partial", "etc"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        let status = root.join("status");
        std::fs::write(&status, "")?;
        let (_, mut main) = machine_release()?;
        main.suites = vec![codename.to_owned()];
        main.components = vec!["main".to_owned()];
        std::fs::write(root.join("etc/own.sources"), main.to_deb822())?;
        std::fs::write(root.join("etc/preferences"), "")?;
        let apt = Self { root, status };
        apt.update()?;
        Ok(apt)
    }

    fn update(&self) -> Result<()> {
        eprintln!("fetch: reading the package lists");
        let mut update = self.command("apt-get");
        let update = update
            .arg("update")
            .output()
            .context("cannot run apt-get")?;
        let said = String::from_utf8_lossy(&update.stderr).into_owned();
        // A suite that this mirror lacks is not fatal yet: the package may be in another one.
        for line in said.lines().filter(|line| line.contains("Failed to fetch")) {
            eprintln!("fetch: {line}");
        }
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let root = self.root.display();
        let mut command = Command::new(program);
        for option in [
            format!("Dir::State={root}/state"),
            format!("Dir::Cache={root}/cache"),
            format!("Dir::State::status={}", self.status.display()),
            "Dir::Etc::sourcelist=/dev/null".to_owned(),
            format!("Dir::Etc::sourceparts={root}/etc"),
            format!("Dir::Etc::preferences={root}/etc/preferences"),
            "Dir::Etc::preferencesparts=/dev/null".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::Retries=3".to_owned(),
            "Binary::apt::APT::Keep-Downloaded-Packages=true".to_owned(),
            // The lists lie in a folder that apt's own user may not be able to enter.
            "APT::Sandbox::User=root".to_owned(),
            // Our lock covers our folders, and the machine's package database is only read.
            "Debug::NoLocking=1".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null());
        command
    }

    fn stdout(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = self
            .command(program)
            .args(arguments)
            .output()
            .with_context(|| format!("cannot run {program}"))?;
        ensure!(
            output.status.success(),
            "{program} {}: {}",
            arguments.join(" "),
            last_line(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The newest plain image of a line such as `6.12`.
    pub(crate) fn newest_kernel(&self, line: &str) -> Result<String> {
        let names = self.stdout("apt-cache", &["pkgnames", "linux-image-"])?;
        let candidates = kernel_packages(&names, line);
        // A name may be known only from another package's words; such a one has no record.
        candidates
            .into_iter()
            .find(|name| {
                self.stdout("apt-cache", &["show", name])
                    .is_ok_and(|text| !text.is_empty())
            })
            .with_context(|| {
                format!(
                    "no package linux-image-{}.*-amd64 in this mirror's release, backports, \
                     testing or unstable suites",
                    line
                )
            })
    }

    /// The packages that a split image depends on.
    pub(crate) fn kernel_parts(&self, image: &str) -> Result<Vec<String>> {
        let record = self.stdout("apt-cache", &["show", image])?;
        Ok(record
            .lines()
            .filter_map(|line| line.strip_prefix("Depends:"))
            .flat_map(|depends| depends.split([',', '|']))
            .filter_map(|clause| clause.split_whitespace().next())
            .filter(|name| name.starts_with("linux-binary-") || name.starts_with("linux-modules-"))
            .map(str::to_owned)
            .collect())
    }

    /// Downloads exactly `packages` and unpacks them into `folder`.
    pub(crate) fn download(&self, packages: &[String], folder: &Path) -> Result<()> {
        let debs = self.fresh_folder("download")?;
        let output = self
            .command("apt-get")
            .arg("download")
            .args(packages)
            .current_dir(&debs)
            .output()
            .context("cannot run apt-get")?;
        ensure!(
            output.status.success(),
            "apt-get download {}: {}",
            packages.join(" "),
            last_line(&output.stderr)
        );
        unpack_all(&debs, folder)
    }

    /// Downloads `package` and those of its dependencies that the machine lacks.
    pub(crate) fn download_with_missing(&self, package: &str, folder: &Path) -> Result<()> {
        let debs = self.fresh_folder("archives")?;
        std::fs::create_dir_all(debs.join("partial"))?;
        let output = self
            .command("apt-get")
            .arg("-o")
            .arg(format!("Dir::Cache::archives={}", debs.display()))
            .args([
                "install",
                "--yes",
                "--download-only",
                "--no-install-recommends",
                package,
            ])
            .output()
            .context("cannot run apt-get")?;
        ensure!(
            output.status.success(),
            "apt-get install --download-only {package}: {}",
            last_line(&output.stderr)
        );
        unpack_all(&debs, folder)
    }

    /// Downloads `packages` and all that they depend on, and unpacks them into `folder`, which then is the
    /// root of a machine that has them. Their scripts are not run.
    pub(crate) fn download_system(&self, packages: &[&str], folder: &Path) -> Result<()> {
        let debs = self.fresh_folder("archives")?;
        std::fs::create_dir_all(debs.join("partial"))?;
        let options = [
            "install",
            "--yes",
            "--download-only",
            "--no-install-recommends",
        ];
        let output = self
            .command("apt-get")
            .arg("-o")
            .arg(format!("Dir::Cache::archives={}", debs.display()))
            .args(options)
            .args(packages)
            .output()
            .context("cannot run apt-get")?;
        ensure!(
            output.status.success(),
            "apt-get install --download-only {}: {}",
            packages.join(" "),
            last_line(&output.stderr)
        );
        let known = installed(&debs)?;
        unpack_all(&debs, folder)?;
        let book = folder.join("var/lib/dpkg/status");
        std::fs::write(&book, known).with_context(|| book.display().to_string())
    }

    fn fresh_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.root.join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// The machine's sources of its own release, and the same archive's other suites.
fn sources() -> Result<String> {
    let all = machine_sources(Path::new("/etc/apt"))?;
    let (codename, main) = machine_release()?;
    let own = |source: &&Source| {
        let mut suites = source.suites.iter();
        suites.any(|suite| suite.starts_with(&codename))
    };
    let mut sources: Vec<Source> = all.iter().filter(own).cloned().collect();
    let backports = format!("{codename}-backports");
    for suite in [backports.as_str(), "testing", "unstable"] {
        let mut source = main.with_suites(&[suite]);
        source.components = vec!["main".to_owned()];
        sources.push(source);
    }
    Ok(sources.iter().map(Source::to_deb822).collect())
}

/// The machine's release by its code name, and where its packages come from.
fn machine_release() -> Result<(String, Source)> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map_or("sid", |name| name.trim_matches('"'));
    let all = machine_sources(Path::new("/etc/apt"))?;
    let main = main_source(&all, codename).with_context(|| {
        format!("apt's configuration has no source for {codename} main to take packages from")
    })?;
    Ok((codename.to_owned(), main.clone()))
}

/// What dpkg writes down of packages that are installed.
fn installed(debs: &Path) -> Result<String> {
    let mut known = String::new();
    for deb in packages_in(debs)? {
        let output = Command::new("dpkg-deb").arg("--field").arg(&deb).output();
        let output = output.context("cannot run dpkg-deb")?;
        ensure!(output.status.success(), "cannot read {}", deb.display());
        known += "Status: install ok installed\n";
        known += &String::from_utf8_lossy(&output.stdout);
        known.push('\n');
    }
    Ok(known)
}

/// The packages in a folder, in the order of their names.
fn packages_in(debs: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(debs)?.flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.retain(|path| path.extension().is_some_and(|extension| extension == "deb"));
    all.sort();
    Ok(all)
}

/// The last line of what a program said.
fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    said.lines().last().unwrap_or("failed").to_owned()
}

/// Every source of binary packages in apt's configuration folder.
fn machine_sources(apt: &Path) -> Result<Vec<Source>> {
    let mut files = vec![apt.join("sources.list")];
    if let Ok(entries) = std::fs::read_dir(apt.join("sources.list.d")) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let mut sources = Vec::new();
    for file in files {
        let parse: fn(&str) -> Vec<Source> = match file.extension().and_then(|e| e.to_str()) {
            Some("list") => parse_one_line,
            Some("sources") => parse_deb822,
            _ => continue,
        };
        if let Ok(text) = std::fs::read_to_string(&file) {
            sources.extend(parse(&text));
        }
    }
    ensure!(
        !sources.is_empty(),
        "{} names no package sources",
        apt.display()
    );
    Ok(sources)
}

/// The source of the distribution itself: its code name's own suite, with `main`.
fn main_source<'a>(sources: &'a [Source], codename: &str) -> Option<&'a Source> {
    sources.iter().find(|source| {
        source
            .suites
            .iter()
            .any(|suite| suite == codename || suite == "sid" || suite == "unstable")
            && source
                .components
                .iter()
                .any(|component| component == "main")
    })
}

/// The plain amd64 images of one kernel line among package names, newest first.
fn kernel_packages(names: &str, line: &str) -> Vec<String> {
    let mut found: Vec<(Vec<u64>, String)> = names
        .lines()
        .filter_map(|name| {
            let version = name.strip_prefix("linux-image-")?.strip_suffix("-amd64")?;
            let after = version.strip_prefix(line)?;
            // A dash would be a variant: -rt, -cloud, -rc1.
            (after.starts_with(['.', '+']) && !version.contains('-'))
                .then(|| (numbers(version), name.to_owned()))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, name)| name).collect()
}

/// The runs of digits of a version, for ordering.
fn numbers(version: &str) -> Vec<u64> {
    version
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

fn unpack_all(debs: &Path, folder: &Path) -> Result<()> {
    let all = packages_in(debs)?;
    for deb in &all {
        let status = Command::new("dpkg-deb")
            .arg("-x")
            .arg(deb)
            .arg(folder)
            .status();
        ensure!(
            status.context("cannot run dpkg-deb")?.success(),
            "cannot unpack {}",
            deb.display()
        );
    }
    if all.is_empty() {
        bail!("apt downloaded nothing: the package is installed, but its program was not found");
    }
    std::fs::remove_dir_all(debs)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 6.12.90 follows 6.12.9 although the text sorts before it.
    #[test]
    fn the_newest_plain_image_wins() {
        let names = "linux-image-6.12.9+deb12-amd64\nlinux-image-6.12.90+deb12-amd64\n\
                     linux-image-6.12.90+deb12.1-amd64\nlinux-image-6.12.95+deb12-rt-amd64\n\
                     linux-image-6.12.95+deb12-amd64-dbg\nlinux-image-6.1.0-30-amd64\n";
        assert_eq!(
            kernel_packages(names, "6.12"),
            [
                "linux-image-6.12.90+deb12.1-amd64",
                "linux-image-6.12.90+deb12-amd64",
                "linux-image-6.12.9+deb12-amd64",
            ]
        );
    }

    #[test]
    fn the_security_archive_is_not_the_distribution() {
        let sources = parse_one_line(
            "deb file:/security twelve-security main\ndeb file:/mirror twelve main\n",
        );
        assert_eq!(
            main_source(&sources, "twelve").unwrap().uris,
            ["file:/mirror"]
        );
    }
}
