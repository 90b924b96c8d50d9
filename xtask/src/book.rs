//! `cargo xtask book`: the book, from docs/ and the documents in the root.
//!
//! mdBook wants all pages in one folder with SUMMARY.md on top, while the repository's own documents
//! are in its root, where people look for them. So the pages are laid out once more under
//! `target/book`, each where it is in the repository; only the summary's links change.

use std::path::{Component, Path};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use testbed::lab::Workspace;

pub fn run() -> Result<i32> {
    let workspace = Workspace::find()?;
    let book = workspace.root.join("target/book");
    lay_out(&workspace.root, &book)?;
    match Command::new("mdbook").arg("build").arg(&book).status() {
        Ok(status) => ensure!(status.success(), "mdbook build: {status}"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "mdbook is not installed; cargo install mdbook --locked installs it. The pages to build \
             from are in {}",
            book.display()
        ),
        Err(error) => return Err(error).context("mdbook cannot be started"),
    }
    println!("{}", book.join("book/index.html").display());
    Ok(0)
}

/// Writes `book.toml` and `src/` into `book`, anew each time.
fn lay_out(root: &Path, book: &Path) -> Result<()> {
    if book.exists() {
        std::fs::remove_dir_all(book).with_context(|| book.display().to_string())?;
    }
    let pages = book.join("src");
    std::fs::create_dir_all(&pages)?;
    copy(&root.join("docs/book.toml"), &book.join("book.toml"))?;
    let file = root.join("docs/SUMMARY.md");
    let summary = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    for page in links(&summary) {
        let page = from_root(page);
        copy(&root.join(&page), &pages.join(&page))?;
    }
    for entry in std::fs::read_dir(root.join("docs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "svg") {
            let name = Path::new("docs").join(path.file_name().context("a picture's name")?);
            copy(&path, &pages.join(name))?;
        }
    }
    std::fs::write(pages.join("SUMMARY.md"), summary_from_root(&summary))?;
    // The summary is no page of the book; what mdBook makes of it is.
    let readme = pages.join("README.md");
    let text = std::fs::read_to_string(&readme)?;
    std::fs::write(readme, text.replace("](docs/SUMMARY.md)", "](toc.html)"))?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a page without a folder")?;
    std::fs::create_dir_all(folder)?;
    std::fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

/// Where the summary's links lead, as it has them.
fn links(summary: &str) -> impl Iterator<Item = &str> {
    let after = summary.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')').map(|(link, _)| link))
}

/// A link of docs/SUMMARY.md as a path from the root.
fn from_root(link: &str) -> String {
    let mut path = vec!["docs".to_owned()];
    for component in Path::new(link).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            other => path.push(other.as_os_str().to_string_lossy().into_owned()),
        }
    }
    path.join("/")
}

fn summary_from_root(summary: &str) -> String {
    let mut pieces = summary.split("](");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (link, rest) = piece.split_once(')').unwrap_or((piece, ""));
        text.push_str(&format!("]({}){rest}", from_root(link)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_leads_from_the_root() {
        assert_eq!(
            summary_from_root("# S\n- [A](../A.md)\n- [b](how-to/b.md) c\n"),
            "# S\n- [A](A.md)\n- [b](docs/how-to/b.md) c\n"
        );
    }

    #[test]
    fn every_page_is_laid_out() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let book = tempfile::tempdir().unwrap();
        let book = book.path().join("book");
        lay_out(&root, &book).unwrap();
        lay_out(&root, &book).unwrap();
        let summary = std::fs::read_to_string(book.join("src/SUMMARY.md")).unwrap();
        let pages: Vec<&str> = links(&summary).collect();
        assert!(pages.len() > 20, "{pages:?}");
        assert!(pages.contains(&"README.md") && pages.contains(&"docs/how-to/tier.md"));
        for page in pages {
            assert!(book.join("src").join(page).is_file(), "{page}");
        }
        assert!(book.join("src/docs/overview.svg").is_file());
        let readme = std::fs::read_to_string(book.join("src/README.md")).unwrap();
        assert!(!readme.contains("SUMMARY.md"));
    }
}
