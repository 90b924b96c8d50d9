//! `deny.toml` on everything that the lock files name: licences, sources, and what comes twice.
//!
//! `cargo deny check` reads the same lists; here they are checked without that program. What it does
//! besides (advisories, yanked versions) needs a database, and is a job of the hosted workflow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{Metadata, MetadataCommand, Package};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

/// libFuzzer's licence. Fuzz targets are handed out to nobody.
const FUZZER: Option<&str> = Some("NCSA");

#[derive(Deserialize)]
struct Lists {
    licenses: Licences,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licences {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

#[derive(Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().unwrap()
}

fn lists() -> Lists {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    toml::from_str(&text).unwrap()
}

/// A workspace's packages with all that they may ever need, on any machine.
fn graph(manifest: &str) -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join(manifest))
        .other_options(["--locked".to_owned()])
        .exec()
        .unwrap()
}

/// The repository's own, and that of the fuzz targets.
fn graphs() -> [Metadata; 2] {
    ["Cargo.toml", "fuzz/Cargo.toml"].map(graph)
}

/// What is not ours.
fn others(graph: &Metadata) -> impl Iterator<Item = &Package> {
    let root = root();
    let packages = graph.packages.iter();
    packages.filter(move |package| !package.manifest_path.as_std_path().starts_with(&root))
}

/// Whether an expression asks for a licence that is not allowed.
fn refused(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let expression = Expression::parse_mode(expression, ParseMode::LAX).unwrap();
    !expression.evaluate(|asked| {
        // An exception only ever allows more.
        let name = asked.license.id().map_or("", |id| id.name);
        allowed.contains(name)
    })
}

#[test]
fn every_licence_is_allowed_and_every_allowed_one_is_there() {
    let lists = lists();
    let allowed: BTreeSet<&str> = lists.licenses.allow.iter().map(String::as_str).collect();
    let mut seen = BTreeSet::new();
    for (graph, more) in graphs().into_iter().zip([None, FUZZER]) {
        let allowed: BTreeSet<&str> = allowed.iter().copied().chain(more).collect();
        for package in others(&graph) {
            let (name, version) = (&package.name, &package.version);
            let expression = package.license.clone().unwrap_or_default();
            assert!(!expression.is_empty(), "{name} {version}: no licence");
            let words = expression.split(|at: char| !(at.is_alphanumeric() || "-.".contains(at)));
            seen.extend(words.map(str::to_owned));
            assert!(
                !refused(&expression, &allowed),
                "{name} {version}: {expression}: not allowed by deny.toml; use another crate"
            );
        }
    }
    for name in allowed {
        assert!(seen.contains(name), "{name}: no package has it any more");
    }
}

#[test]
fn other_licences_are_refused() {
    let allowed = BTreeSet::from(["MIT"]);
    assert!(!refused("MIT/Apache-2.0", &allowed));
    assert!(!refused("GPL-3.0-only OR MIT", &allowed));
    assert!(refused("GPL-3.0-only", &allowed));
    assert!(refused("MIT AND Unicode-3.0", &allowed));
}

#[test]
fn everything_comes_from_the_default_registry() {
    for graph in graphs() {
        for package in others(&graph) {
            let source = package.source.as_ref();
            assert!(
                source.is_some_and(cargo_metadata::Source::is_crates_io),
                "{}: {source:?}",
                package.name
            );
        }
    }
}

#[test]
fn what_comes_twice_has_its_reason() {
    let skipped = lists().bans.skip;
    let mut used = BTreeSet::new();
    let graphs = graphs();
    let versions = graphs.iter().map(|graph| {
        let mut versions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for package in others(graph) {
            let all = versions.entry(package.name.as_str()).or_default();
            all.push(package.version.to_string());
        }
        versions
    });
    for (name, all) in versions.flatten().filter(|(_, all)| all.len() > 1) {
        let reason = |version: &String| {
            skipped.iter().position(|skip| {
                let (skipped, begin) = skip.name.split_once('@').unwrap();
                let rest = version.strip_prefix(begin);
                skipped == name && rest.is_some_and(|rest| rest.starts_with('.'))
            })
        };
        let reasons: Vec<Option<usize>> = all.iter().map(reason).collect();
        let without = reasons.iter().filter(|reason| reason.is_none()).count();
        assert!(
            without <= 1,
            "{name}: {all:?}: bring them together, or skip all but one in deny.toml and say why"
        );
        used.extend(reasons.into_iter().flatten());
    }
    for (number, skip) in skipped.iter().enumerate() {
        assert!(!skip.reason.is_empty(), "{}: why?", skip.name);
        assert!(used.contains(&number), "{}: comes once by now", skip.name);
    }
}
