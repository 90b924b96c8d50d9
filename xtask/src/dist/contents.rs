//! What a package installs, and where.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::build::Built;
use super::{Entry, Release, archive};

const DOC: &str = "usr/share/doc/memtide";

/// The documents that come along, from the repository's root.
const DOCUMENTS: [&str; 5] = [
    "README.md",
    "SECURITY.md",
    "SPECIFICATION.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
];

/// Folders that come along: experiments; a dashboard, rules for alerts, files for containers.
const FOLDERS: [&str; 2] = ["scenarios", "deploy"];

/// What administrators change: an upgrade leaves their version.
pub const CONFIGURATION: &str = "etc/memtide/memtide.toml";

/// Whether an entry's place is for administrators' files.
pub fn is_configuration(entry: &Entry) -> bool {
    entry.path.starts_with("etc/")
}

/// Everything, in no order that counts. `program` runs here, and tells of `binary` what it tells of
/// itself.
pub fn entries(
    root: &Path,
    release: &Release,
    binary: &Built,
    program: &Path,
    library: Option<&Built>,
    licences: &[u8],
    sbom: &[u8],
) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut add = |path: String, mode, content: Vec<u8>| {
        entries.push(Entry {
            path,
            mode,
            content,
        })
    };
    add("usr/bin/memtide".to_owned(), 0o755, binary.content.clone());
    if let Some(library) = library {
        // Where the program looks for it: ../lib/memtide from its own folder.
        let path = "usr/lib/memtide/libmemtide_pager_preload.so";
        add(path.to_owned(), 0o644, library.content.clone());
    }
    for (name, page) in man_pages(program)? {
        add(
            format!("usr/share/man/man1/{name}.gz"),
            0o644,
            archive::gzip(&page)?,
        );
    }
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/memtide"),
        ("zsh", "usr/share/zsh/site-functions/_memtide"),
        ("fish", "usr/share/fish/vendor_completions.d/memtide.fish"),
    ] {
        add(
            path.to_owned(),
            0o644,
            output(program, &["generate", "completion", shell])?,
        );
    }
    add(
        CONFIGURATION.to_owned(),
        0o644,
        output(program, &["config", "--default"])?,
    );
    add(
        "usr/lib/systemd/system/memtide.service".to_owned(),
        0o644,
        read(&root.join("packaging/memtide.service"))?,
    );
    for folder in FOLDERS {
        for (path, content) in files(&root.join(folder))? {
            add(format!("usr/share/memtide/{folder}/{path}"), 0o644, content);
        }
    }
    for name in DOCUMENTS {
        add(format!("{DOC}/{name}"), 0o644, read(&root.join(name))?);
    }
    let changes = read(&root.join("CHANGELOG.md"))?;
    add(
        format!("{DOC}/changelog.gz"),
        0o644,
        archive::gzip(&changes)?,
    );
    add(
        format!("{DOC}/copyright"),
        0o644,
        read(&root.join("LICENSE"))?,
    );
    add(
        format!("{DOC}/THIRD-PARTY-LICENSES.txt.gz"),
        0o644,
        archive::gzip(licences)?,
    );
    add(
        format!("{DOC}/memtide-{}.cdx.json", release.version),
        0o644,
        sbom.to_vec(),
    );
    Ok(entries)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

/// The files below a folder with their paths in it, sorted.
fn files(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            let below = files(&entry.path())?.into_iter();
            found.extend(below.map(|(path, content)| (format!("{name}/{path}"), content)));
        } else {
            found.push((name, read(&entry.path())?));
        }
    }
    found.sort();
    Ok(found)
}

/// What the program writes about itself: the pages are those of this very build.
fn man_pages(binary: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = tempfile::tempdir()?;
    let path = folder
        .path()
        .to_str()
        .context("a temporary folder with a strange name")?;
    output(binary, &["generate", "man", path])?;
    files(folder.path())
}

fn output(binary: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(binary)
        .args(arguments)
        .output()
        .with_context(|| binary.display().to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "memtide {}: {errors}",
        arguments.join(" ")
    );
    Ok(output.stdout)
}
