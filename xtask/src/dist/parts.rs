//! The crates that are linked into what a release hands out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, Package, PackageId};

/// The packages of ours that are built for a release.
const ROOTS: [&str; 2] = ["memtide", "memtide-pager-preload"];

/// A crate, ours or another's.
#[derive(Debug, Clone)]
pub struct Part {
    pub name: String,
    pub version: String,
    /// As an SPDX expression, if it says one.
    pub licence: Option<String>,
    /// Where its files are.
    pub folder: PathBuf,
    /// Whether it is one of this repository.
    pub ours: bool,
    /// Its archive's SHA-256, as the lock file has it.
    pub checksum: Option<String>,
    /// Which of the others it needs, by place in the list.
    pub needs: Vec<usize>,
}

/// All of them, sorted by name and version.
pub fn linked(root: &Path, target: &str) -> Result<Vec<Part>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .other_options([
            "--locked".to_owned(),
            "--filter-platform".to_owned(),
            target.to_owned(),
        ])
        .exec()
        .context("cargo metadata")?;
    let resolve = metadata
        .resolve
        .as_ref()
        .context("cargo metadata without a graph")?;
    let packages: BTreeMap<&PackageId, &Package> = metadata
        .packages
        .iter()
        .map(|package| (&package.id, package))
        .collect();
    // What runs only while building is not handed out.
    let needs: BTreeMap<&PackageId, Vec<&PackageId>> = resolve
        .nodes
        .iter()
        .map(|node| {
            let linked = node.deps.iter().filter(|dependency| {
                let mut kinds = dependency.dep_kinds.iter();
                kinds.any(|kind| kind.kind == DependencyKind::Normal)
            });
            (&node.id, linked.map(|dependency| &dependency.pkg).collect())
        })
        .collect();
    let is_root = |id: &&PackageId| ROOTS.iter().any(|root| packages[id].name.as_str() == *root);
    let mut pending: Vec<&PackageId> = metadata.workspace_members.iter().filter(is_root).collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = pending.pop() {
        if reached.insert(id) {
            pending.extend(&needs[id]);
        }
    }
    let mut order: Vec<&PackageId> = reached.into_iter().collect();
    order.sort_by_key(|id| (packages[id].name.as_str(), packages[id].version.clone()));
    let checksums = checksums(root)?;
    let place = |id: &&PackageId| order.iter().position(|other| other == id);
    order
        .iter()
        .map(|id| {
            let package = packages[id];
            let folder = package
                .manifest_path
                .parent()
                .context("a manifest without a folder")?;
            let (name, version) = (package.name.to_string(), package.version.to_string());
            let mut needs: Vec<usize> = needs[id].iter().filter_map(place).collect();
            needs.sort_unstable();
            needs.dedup();
            Ok(Part {
                checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
                name,
                version,
                licence: package.license.clone(),
                folder: folder.into(),
                ours: package.source.is_none(),
                needs,
            })
        })
        .collect()
}

/// The archives' hashes by name and version, from the lock file.
fn checksums(root: &Path) -> Result<BTreeMap<(String, String), String>> {
    let path = root.join("Cargo.lock");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lock: toml::Table = text.parse().with_context(|| path.display().to_string())?;
    let packages = lock.get("package").and_then(|packages| packages.as_array());
    let packages = packages.context("Cargo.lock without packages")?;
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    Ok(packages
        .iter()
        .filter_map(|package| {
            let name = (text(package, "name")?, text(package, "version")?);
            Some((name, text(package, "checksum")?))
        })
        .collect())
}
