//! The packages of a release around programs that were built for something else: what a guest installs,
//! tries and removes in every run of the tests. Only the programs differ from those of a release.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::build::{Built, STATIC};
use super::{Release, contents, deb, licences, parts, release, rpm, sbom};

/// Any time will do, and no commit is needed for it.
const DATE: u64 = 1_767_225_600;

/// Where the packages lie.
#[derive(Debug)]
pub struct Packages {
    pub deb: PathBuf,
    pub rpm: PathBuf,
    /// The preload library that is in both.
    pub library: PathBuf,
}

/// Packs a static `memtide` and the preload library into `folder`.
pub fn packages_for_a_trial(
    root: &Path,
    memtide: &Path,
    library: &Path,
    folder: &Path,
) -> Result<Packages> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let release = Release {
        date: DATE,
        ..release(root)?
    };
    let binary = Built::stripped(memtide, folder)?;
    let library = Built::stripped(library, folder)?;
    let parts = parts::linked(root, STATIC)?;
    let licences = licences::collect(root, &parts)?.text;
    let sbom = sbom::cyclone_dx(&release, &parts)?;
    let (program, some) = (&binary.path, Some(&library));
    let entries = contents::entries(root, &release, &binary, program, some, &licences, &sbom)?;
    let put = |name: String, content: Vec<u8>| {
        let path = folder.join(name);
        std::fs::write(&path, content).with_context(|| path.display().to_string())?;
        anyhow::Ok(path)
    };
    let version = &release.version;
    Ok(Packages {
        deb: put(
            deb::file_name(version),
            deb::package(&release, some, &entries)?,
        )?,
        rpm: put(
            rpm::file_name(version),
            rpm::package(&release, some, &entries)?,
        )?,
        library: library.path,
    })
}
