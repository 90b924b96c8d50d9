//! The oldest compiler that builds memtide is the same wherever it is named.

use std::path::{Path, PathBuf};

/// As the workspace's manifest has it.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn pages_and_scripts_name_the_oldest_compiler() {
    for path in [
        ".ci/run",
        ".github/workflows/ci.yml",
        "README.md",
        "docs/start/install.md",
    ] {
        let text = std::fs::read_to_string(root().join(path)).unwrap();
        let names = |line: &&str| line.contains("Rust 1.") || line.contains("RUSTUP_TOOLCHAIN:");
        let lines: Vec<&str> = text.lines().filter(names).collect();
        assert!(!lines.is_empty(), "{path}: names no compiler");
        for line in lines {
            assert!(line.contains(OLDEST), "{path}: {line}: not {OLDEST}");
        }
    }
}

#[test]
fn every_crate_inherits_it() {
    let folders = ["crates", "pager"].map(|name| std::fs::read_dir(root().join(name)).unwrap());
    let entries = folders.into_iter().flatten();
    let crates = entries.map(|entry| entry.unwrap().path().join("Cargo.toml"));
    let more = ["testbed/Cargo.toml", "xtask/Cargo.toml"].map(|path| root().join(path));
    for manifest in crates.chain(more) {
        let text = std::fs::read_to_string(&manifest).unwrap();
        let inherited = text.contains("\nrust-version.workspace = true\n");
        assert!(inherited, "{}: rust-version", manifest.display());
    }
}
