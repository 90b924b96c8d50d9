//! Which of our crates may depend on which.
//!
//! The core decides and knows nobody; what touches a kernel or simulates one
//! knows the core; the command knows all; nothing knows the command. A new
//! crate says here what it may know.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const COMMAND: &str = "memtide";

/// A crate and what it may depend on. [`None`] is anything but the command.
const ALLOWED: &[(&str, Option<&[&str]>)] = &[
    ("memtide-core", Some(&[])),
    ("memtide-loop", Some(&["memtide-core"])),
    ("memtide-linux", Some(&["memtide-core", "memtide-loop"])),
    ("memtide-trace", Some(&["memtide-core"])),
    (
        "memtide-sim",
        Some(&["memtide-core", "memtide-loop", "memtide-trace"]),
    ),
    ("memtide-pager", Some(&["memtide-core", "memtide-linux"])),
    ("memtide-pager-c", Some(&["memtide-pager"])),
    (
        "memtide-pager-preload",
        Some(&["memtide-core", "memtide-linux", "memtide-pager"]),
    ),
    (COMMAND, None),
    ("testbed", None),
    ("xtask", None),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn manifest(path: &Path) -> toml::Table {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The manifests of the workspace's members, with `crates/*` spelled out.
fn members() -> Vec<PathBuf> {
    let root = manifest(&workspace().join("Cargo.toml"));
    let mut members = Vec::new();
    for pattern in root["workspace"]["members"].as_array().unwrap() {
        let pattern = pattern.as_str().unwrap();
        match pattern.strip_suffix("/*") {
            None => members.push(workspace().join(pattern).join("Cargo.toml")),
            Some(folder) => members.extend(
                std::fs::read_dir(workspace().join(folder))
                    .unwrap()
                    .map(|entry| entry.unwrap().path().join("Cargo.toml"))
                    .filter(|path| path.is_file()),
            ),
        }
    }
    members
}

/// The packages that a manifest depends on in any way: ordinary, build and
/// development dependencies, also those of one target only.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    const TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest
        .get("target")
        .and_then(|targets| targets.as_table());
    let targets = targets.into_iter().flat_map(|targets| targets.values());
    let places = targets.filter_map(|target| target.as_table());
    std::iter::once(manifest)
        .chain(places)
        .flat_map(|place| {
            TABLES
                .iter()
                .filter_map(|table| place.get(*table)?.as_table())
        })
        .flatten()
        .map(|(key, value)| {
            let renamed = value.get("package").and_then(|name| name.as_str());
            renamed.unwrap_or(key).to_owned()
        })
        .collect()
}

/// The sentences about what is wrong.
fn wrong_arrows(crates: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, dependencies) in crates {
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            wrong.push(format!(
                "{name}: not in the table; say in tests/arrows.rs what it may depend on"
            ));
            continue;
        };
        for dependency in dependencies.iter().filter(|d| crates.contains_key(*d)) {
            let fine = match allowed {
                Some(allowed) => allowed.contains(&dependency.as_str()),
                None => dependency != COMMAND,
            };
            if !fine {
                wrong.push(format!("{name} -> {dependency}: this arrow is not allowed"));
            }
        }
    }
    wrong
}

#[test]
fn the_arrows_between_our_crates() {
    let crates: BTreeMap<String, Vec<String>> = members()
        .iter()
        .map(|path| manifest(path))
        .map(|manifest| {
            let name = manifest["package"]["name"].as_str().unwrap().to_owned();
            (name, dependencies(&manifest))
        })
        .collect();
    assert!(crates.len() >= 5, "the members were not found: {crates:?}");
    let wrong = wrong_arrows(&crates);
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn a_wrong_arrow_is_named() {
    let check = |text: &str, name: &str| {
        let manifest: toml::Table = text.parse().unwrap();
        let mut crates: BTreeMap<String, Vec<String>> = ALLOWED
            .iter()
            .map(|(name, _)| (name.to_string(), Vec::new()))
            .collect();
        crates.insert(name.to_owned(), dependencies(&manifest));
        wrong_arrows(&crates)
    };
    assert_eq!(
        check(
            "[target.'cfg(unix)'.dev-dependencies]\nx = { package = \"memtide-linux\" }",
            "memtide-core"
        ),
        ["memtide-core -> memtide-linux: this arrow is not allowed"]
    );
    assert_eq!(
        check("[dependencies]\nmemtide = {}", "xtask"),
        ["xtask -> memtide: this arrow is not allowed"]
    );
    assert!(
        check(
            "[dependencies]\nmemtide-core = {}\nlibc = \"1\"",
            "memtide-linux"
        )
        .is_empty()
    );
    assert_eq!(
        check("", "memtide-new"),
        ["memtide-new: not in the table; say in tests/arrows.rs what it may depend on"]
    );
}

/// What a source file of the command may not name, with the reason.
fn wrong_use(path: &str, text: &str, commands: &[String]) -> Vec<String> {
    let own = path.strip_prefix("cmd/").map(|rest| {
        let first = rest.split('/').next().unwrap_or(rest);
        first.trim_end_matches(".rs")
    });
    let mut wrong = Vec::new();
    for command in commands {
        if text.contains(&format!("crate::cmd::{command}")) && own != Some(command) {
            wrong.push(format!(
                "{path} -> cmd/{command}: move what both need to shared/"
            ));
        }
    }
    wrong
}

/// `main.rs` dispatches; besides it nobody knows a command but the command itself.
#[test]
fn no_command_knows_another() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let commands: Vec<String> = std::fs::read_dir(source.join("cmd"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| name != "mod")
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    let mut pending = vec![source.clone()];
    let mut wrong = Vec::new();
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let name = path.strip_prefix(&source).unwrap().to_string_lossy();
                wrong.extend(wrong_use(&name, &text, &commands));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    let knows = wrong_use("cmd/run/mod.rs", "use crate::cmd::tier::size;", &commands);
    assert_eq!(
        knows,
        ["cmd/run/mod.rs -> cmd/tier: move what both need to shared/"]
    );
}

/// A source file's code without its unit tests and comments.
fn production(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    let code = |line: &str| line.split("//").next().unwrap_or("").to_owned();
    let lines: Vec<String> = text[..end].lines().map(code).collect();
    lines.join("\n")
}

/// The modules right below a crate's root that a text names with `crate::`.
fn named(code: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let words = match rest.strip_prefix('{') {
            Some(group) => group.split("};").next().unwrap_or(group),
            None => rest
                .split(|c: char| c != '_' && !c.is_alphanumeric())
                .next()
                .unwrap_or(rest),
        };
        let words = words.split(|c: char| c != '_' && !c.is_alphanumeric());
        named.extend(
            words
                .filter(|word| modules.contains(*word))
                .map(str::to_owned),
        );
    }
    named
}

/// Whether `from` reaches itself.
fn in_a_cycle(from: &str, arrows: &BTreeMap<String, BTreeSet<String>>) -> bool {
    let mut seen = BTreeSet::new();
    let mut pending: Vec<&String> = arrows.get(from).into_iter().flatten().collect();
    while let Some(module) = pending.pop() {
        if module == from {
            return true;
        }
        if seen.insert(module) {
            pending.extend(arrows.get(module).into_iter().flatten());
        }
    }
    false
}

/// A newcomer can read a crate from the bottom: no module right below its root knows, by whatever way,
/// one that knows it.
#[test]
fn no_module_knows_itself_by_way_of_another() {
    let mut wrong = Vec::new();
    for manifest in members() {
        let source = manifest.parent().unwrap().join("src");
        let stem = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
        let entries = std::fs::read_dir(&source).unwrap();
        let tops: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        let modules: BTreeSet<String> = tops.iter().map(|path| stem(path)).collect();
        let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut pending: Vec<(String, PathBuf)> = tops
            .iter()
            .map(|path| (stem(path), path.clone()))
            .filter(|(module, _)| module != "lib" && module != "main")
            .collect();
        while let Some((module, path)) = pending.pop() {
            let name = stem(&path);
            if name == "tests" {
                continue;
            }
            if path.is_dir() {
                let inside = std::fs::read_dir(&path).unwrap();
                pending.extend(inside.map(|entry| (module.clone(), entry.unwrap().path())));
            } else if path.extension().is_some_and(|e| e == "rs") && !name.ends_with("tests") {
                let text = std::fs::read_to_string(&path).unwrap();
                let mut named = named(&production(&text), &modules);
                named.remove(&module);
                arrows.entry(module).or_default().extend(named);
            }
        }
        for module in arrows.keys().filter(|module| in_a_cycle(module, &arrows)) {
            let folder = source.strip_prefix(workspace()).unwrap().display();
            wrong.push(format!(
                "{folder}/{module}: knows itself by way of {:?}",
                arrows[module]
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
