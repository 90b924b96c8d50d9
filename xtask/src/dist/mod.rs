//! `cargo xtask dist`: everything that a release hands out, under `target/dist`.
//!
//! What is handed out is a function of the commit and of the toolchain: paths of this machine are
//! mapped away, times are the commit's, nothing iterates in the order of a hash. `--check` builds
//! twice and compares every byte.
//!
//! Whatever cannot be made on this machine is a line of STATE.txt with its reason, and the exit status
//! is 1 if a file is missing because of it.

mod archive;
mod build;
mod contents;
mod deb;
mod licences;
mod parts;
mod rpm;
mod sbom;
mod trial;

pub use build::{AARCH64, STATIC, missing};
pub use trial::{Packages, packages_for_a_trial};

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use testbed::lab::Workspace;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Build a second time from nothing, and fail unless every byte is the same
    #[arg(long)]
    check: bool,
}

/// A file as it is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place from the root of the file system, without a slash before it.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
    /// What it holds.
    pub content: Vec<u8>,
}

/// What is released.
#[derive(Debug, Clone)]
pub struct Release {
    /// Its version.
    pub version: String,
    /// The time of its commit, in seconds since 1970.
    pub date: u64,
    /// What a package says of it, in a line.
    pub summary: String,
    /// The same in a paragraph.
    pub description: String,
    /// What a package runs before it is removed.
    pub before_removal: String,
}

/// The files of a release by name, and what became of each part.
#[derive(Debug, Default, PartialEq, Eq)]
struct Made {
    files: BTreeMap<String, Vec<u8>>,
    states: Vec<State>,
}

/// A part of a release: made, or not and why.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    /// The part.
    pub part: String,
    /// What is to know of it, or why it was not made.
    pub outcome: Result<String, String>,
}

pub fn run(arguments: &Arguments) -> Result<i32> {
    let workspace = Workspace::find()?;
    let made = make(&workspace.root)?;
    if arguments.check {
        eprintln!("dist: once more");
        compare(&made, &make(&workspace.root)?)?;
        eprintln!("dist: two builds, the same bytes");
    }
    let folder = workspace.root.join("target/dist");
    put(&folder, &made)?;
    print!("{}", state_text(&made.states));
    println!("{}", folder.display());
    Ok(i32::from(
        made.states.iter().any(|state| state.outcome.is_err()),
    ))
}

fn make(root: &Path) -> Result<Made> {
    let release = release(root)?;
    let mut made = Made::default();
    let mut note = |part: &str, outcome| {
        made.states.push(State {
            part: part.to_owned(),
            outcome,
        });
    };

    let static_binary = build::static_binary(root)?;
    let library = build::preload_library(root)?;
    note(
        "static binary, x86-64",
        static_binary
            .as_ref()
            .map(build::Built::words)
            .map_err(Clone::clone),
    );
    note(
        "preload library, x86-64, glibc",
        library
            .as_ref()
            .map(build::Built::words)
            .map_err(Clone::clone),
    );
    let aarch64 = build::aarch64_binary(root)?;
    note(
        "static binary, aarch64",
        aarch64
            .as_ref()
            .map(|built| format!("{}; no check here runs it", built.words()))
            .map_err(Clone::clone),
    );
    note(
        "service, unit and default configuration",
        Ok("in the packages; not enabled, not started".to_owned()),
    );

    let parts = parts::linked(root, build::STATIC)?;
    let licences = licences::collect(root, &parts)?;
    note("licences", licences.state.clone());
    let sbom = sbom::cyclone_dx(&release, &parts)?;
    note(
        "bill of materials",
        Ok(format!("{} crates, CycloneDX 1.5", parts.len())),
    );

    if let Ok(binary) = &static_binary {
        let library = library.as_ref().ok();
        let (program, licences) = (&binary.path, &licences.text);
        let entries = contents::entries(root, &release, binary, program, library, licences, &sbom)?;
        let version = &release.version;
        let folder = format!("memtide-{version}-x86_64-linux");
        let mut files = vec![
            (
                format!("{folder}.tar.gz"),
                archive::tarball(&folder, &entries, release.date)?,
            ),
            (
                deb::file_name(version),
                deb::package(&release, library, &entries)?,
            ),
            (
                rpm::file_name(version),
                rpm::package(&release, library, &entries)?,
            ),
        ];
        if let Ok(other) = &aarch64 {
            files.push(aarch64_tarball(root, &release, other, program)?);
        }
        for (name, content) in files {
            note(&name, Ok(format!("{} KiB", content.len() / 1024)));
            made.files.insert(name, content);
        }
    } else {
        for part in ["tarball", ".deb", ".rpm"] {
            note(part, Err("there is no static binary to pack".to_owned()));
        }
    }
    made.files
        .insert(format!("memtide-{}.cdx.json", release.version), sbom);
    made.files
        .insert("THIRD-PARTY-LICENSES.txt".to_owned(), licences.text);
    let state = state_text(&made.states);
    made.files
        .insert("STATE.txt".to_owned(), state.into_bytes());
    let sums = sums(&made.files);
    made.files
        .insert("SHA256SUMS".to_owned(), sums.into_bytes());
    Ok(made)
}

/// The archive for another processor. What it is made of is asked for it: some crates are needed on one
/// processor only. `program` runs here.
fn aarch64_tarball(
    root: &Path,
    release: &Release,
    binary: &build::Built,
    program: &Path,
) -> Result<(String, Vec<u8>)> {
    let parts = parts::linked(root, build::AARCH64)?;
    let licences = licences::collect(root, &parts)?.text;
    let sbom = sbom::cyclone_dx(release, &parts)?;
    let entries = contents::entries(root, release, binary, program, None, &licences, &sbom)?;
    let folder = format!("memtide-{}-aarch64-linux", release.version);
    let content = archive::tarball(&folder, &entries, release.date)?;
    Ok((format!("{folder}.tar.gz"), content))
}

fn release(root: &Path) -> Result<Release> {
    let read = |path: &str| {
        let path = root.join("packaging").join(path);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let text = read("description.txt")?;
    let (summary, description) = text
        .split_once('\n')
        .context("description.txt: one line only")?;
    Ok(Release {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        date: date(root)?,
        summary: summary.to_owned(),
        description: description.trim().to_owned(),
        before_removal: read("before-removal.sh")?,
    })
}

/// The commit's time, or what SOURCE_DATE_EPOCH says, as other tools for packages have it.
fn date(root: &Path) -> Result<u64> {
    if let Some(given) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let given = given.to_string_lossy().into_owned();
        return given
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH: {given}: not a number"));
    }
    let git = std::process::Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(root)
        .output();
    match git {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8(output.stdout)?;
            text.trim()
                .parse()
                .with_context(|| format!("git log: {text}"))
        }
        _ => bail!("no commit to take the time from; set SOURCE_DATE_EPOCH to seconds since 1970"),
    }
}

fn compare(one: &Made, other: &Made) -> Result<()> {
    let names = |made: &Made| made.files.keys().cloned().collect::<Vec<_>>();
    ensure!(
        names(one) == names(other),
        "the two builds made different files"
    );
    let different: Vec<&str> = one
        .files
        .iter()
        .filter(|(name, content)| other.files[*name] != **content)
        .map(|(name, _)| name.as_str())
        .collect();
    ensure!(
        different.is_empty(),
        "two builds differ in {}",
        different.join(", ")
    );
    Ok(())
}

fn put(folder: &Path, made: &Made) -> Result<()> {
    let cannot = || folder.display().to_string();
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(cannot)?;
    }
    std::fs::create_dir_all(folder).with_context(cannot)?;
    for (name, content) in &made.files {
        std::fs::write(folder.join(name), content)
            .with_context(|| format!("{}: {name}", folder.display()))?;
    }
    Ok(())
}

fn state_text(states: &[State]) -> String {
    let width = states
        .iter()
        .map(|state| state.part.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for State { part, outcome } in states {
        let words = match outcome {
            Ok(words) => words.clone(),
            Err(why) => format!("NOT MADE: {why}"),
        };
        let _ = writeln!(text, "{part:width$}  {words}");
    }
    text
}

/// As `sha256sum` prints them, so that `sha256sum -c` reads them.
fn sums(files: &BTreeMap<String, Vec<u8>>) -> String {
    files
        .iter()
        .fold(String::new(), |mut text, (name, content)| {
            for byte in Sha256::digest(content) {
                let _ = write!(text, "{byte:02x}");
            }
            let _ = writeln!(text, "  {name}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_made_says_why() {
        let state = |part: &str, outcome| State {
            part: part.to_owned(),
            outcome,
        };
        let text = state_text(&[
            state("one", Ok("3 KiB".to_owned())),
            state("other", Err("no compiler".to_owned())),
        ]);
        assert_eq!(text, "one    3 KiB\nother  NOT MADE: no compiler\n");
    }

    #[test]
    fn sums_are_those_of_sha256sum() {
        let files = BTreeMap::from([("empty".to_owned(), Vec::new())]);
        // The well-known hash of nothing.
        assert_eq!(
            sums(&files),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty\n"
        );
    }

    #[test]
    fn builds_that_differ_are_found_out() {
        let made = |content: &[u8]| Made {
            files: BTreeMap::from([("a".to_owned(), content.to_vec())]),
            states: Vec::new(),
        };
        assert!(compare(&made(b"x"), &made(b"x")).is_ok());
        let error = compare(&made(b"x"), &made(b"y")).unwrap_err();
        assert_eq!(error.to_string(), "two builds differ in a");
    }
}
