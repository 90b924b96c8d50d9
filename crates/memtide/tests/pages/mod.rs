//! The Markdown pages of the repository, for the tests about them.

use std::path::{Path, PathBuf};

/// A page: its path from the repository's root, and its text.
pub struct Page {
    pub path: String,
    pub text: String,
}

pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

/// Every page below the root's `folder`, in order of path.
fn below(folder: &str, deep: bool, pages: &mut Vec<Page>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(root().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        let relative = path.strip_prefix(root()).unwrap().display().to_string();
        if path.is_dir() && deep {
            below(&relative, deep, pages);
        } else if relative.ends_with(".md") {
            let text = std::fs::read_to_string(&path).unwrap();
            pages.push(Page {
                path: relative,
                text,
            });
        }
    }
}

/// The pages in the root, those of the book, and the testbed's.
pub fn all() -> Vec<Page> {
    let mut pages = Vec::new();
    below("", false, &mut pages);
    below("docs", true, &mut pages);
    below("testbed", false, &mut pages);
    assert!(pages.len() > 20, "the pages were not found");
    pages
}
