//! `cargo xtask book`: the book, from docs/ and the documents in the root.
//!
//! mdBook wants all pages in one folder with SUMMARY.md on top, while the repository's own documents
//! are in its root, where people look for them. So the pages are laid out once more under
//! `target/book`, each where it is in the repository; only the summary's links change.

use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use testbed::lab::Workspace;
use testbed::report::Verdict;

const MISSING: &str = "mdbook is not installed; cargo install mdbook --locked installs it";

pub fn run() -> Result<i32> {
    let workspace = Workspace::find()?;
    match build(&workspace)? {
        Some(index) => println!("{}", index.display()),
        None => bail!(
            "{MISSING}. The pages to build from are in {}",
            book(&workspace).display()
        ),
    }
    Ok(0)
}

/// Whether the book builds, as a step of all checks.
pub fn verdict(workspace: &Workspace) -> Verdict {
    match build(workspace) {
        Ok(Some(_)) => Verdict::Passed,
        Ok(None) => Verdict::Skipped(MISSING.to_owned()),
        Err(error) => Verdict::Failed(format!("{error:#}")),
    }
}

fn book(workspace: &Workspace) -> PathBuf {
    workspace.root.join("target/book")
}

/// The first page of the built book; none without mdbook.
fn build(workspace: &Workspace) -> Result<Option<PathBuf>> {
    let book = book(workspace);
    lay_out(&workspace.root, &book)?;
    match Command::new("mdbook").arg("build").arg(&book).status() {
        Ok(status) => ensure!(status.success(), "mdbook build: {status}"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("mdbook cannot be started"),
    }
    let html = book.join("book");
    let summary = std::fs::read_to_string(book.join("src/SUMMARY.md"))?;
    all_are_searched(&html, &summary)?;
    nothing_is_loaded(&html)?;
    Ok(Some(html.join("index.html")))
}

/// The search index comes with the book, and has every page.
fn all_are_searched(html: &Path, summary: &str) -> Result<()> {
    let mut index = String::new();
    for entry in std::fs::read_dir(html)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("searchindex") && name.ends_with(".js") {
            index = std::fs::read_to_string(html.join(&*name))?;
        }
    }
    ensure!(
        !index.is_empty(),
        "{}: there is no search index",
        html.display()
    );
    for page in links(summary) {
        let page = page
            .replace("README.md", "index.md")
            .replace(".md", ".html");
        ensure!(html.join(&page).is_file(), "{page}: mdbook did not make it");
        ensure!(index.contains(&page), "{page}: not in the search index");
    }
    Ok(())
}

/// No page and no style needs a network. Links that readers follow may lead anywhere.
fn nothing_is_loaded(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            nothing_is_loaded(&path)?;
            continue;
        }
        let found = match path.extension().and_then(|end| end.to_str()) {
            Some("html") => loaded_by_page(&std::fs::read_to_string(&path)?),
            Some("css" | "svg") => loaded_by_style(&std::fs::read_to_string(&path)?),
            _ => None,
        };
        if let Some(what) = found {
            bail!("{}: loads {what} over the network", path.display());
        }
    }
    Ok(())
}

fn is_elsewhere(link: &str) -> bool {
    let link = link.trim_start_matches(['"', '\'', ' ']);
    ["http:", "https:", "//"]
        .iter()
        .any(|start| link.starts_with(start))
}

fn loaded_by_page(text: &str) -> Option<String> {
    // mdBook's script asks the playground which crates it has, where a page has code for it.
    if text.contains("class=\"playground") {
        return Some("what Rust's playground knows".to_owned());
    }
    let tags = text.split('<').skip(1);
    let tags = tags.filter_map(|rest| rest.split_once('>').map(|(tag, _)| tag));
    let loading = tags.filter(|tag| tag.split_whitespace().next() != Some("a"));
    let in_tags = loading.flat_map(|tag| {
        let values = [" src=", " href=", " srcset=", " data="];
        values.into_iter().flat_map(|name| tag.split(name).skip(1))
    });
    let mut in_tags = in_tags.filter(|value| is_elsewhere(value));
    in_tags
        .next()
        .map(str::to_owned)
        .or_else(|| loaded_by_style(text))
}

fn loaded_by_style(text: &str) -> Option<String> {
    let mut values = ["url(", "@import "]
        .into_iter()
        .flat_map(|name| text.split(name).skip(1));
    let value = values.find(|value| is_elsewhere(value))?;
    Some(
        value
            .split([')', ';'])
            .next()
            .unwrap_or_default()
            .to_owned(),
    )
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
    fn what_a_page_loads_is_found() {
        let fine = "<a href=\"https://example.org\">x</a><link rel=\"icon\" href=\"icon.svg\">\
                    <script src=\"book.js\"></script><pre>&lt;img src=\"https://e\"&gt;</pre>";
        assert_eq!(loaded_by_page(fine), None);
        for page in [
            "<script async src=\"https://example.org/x.js\">",
            "<link rel=\"stylesheet\" href='http://example.org/x.css'>",
            "<img src=//example.org/x.png>",
            "<style>@import \"https://example.org/x.css\";</style>",
            "<pre><pre class=\"playground\"><code class=\"language-rust\">",
        ] {
            assert!(loaded_by_page(page).is_some(), "{page}");
        }
        assert_eq!(loaded_by_style("a { background: url('x.png') }"), None);
        assert_eq!(
            loaded_by_style("@font-face { src: url(https://e/x.woff2) }").as_deref(),
            Some("https://e/x.woff2")
        );
    }

    #[test]
    fn every_page_is_in_the_index() {
        let book = tempfile::tempdir().unwrap();
        let summary = "- [A](README.md)\n- [b](docs/b.md)\n";
        let why = || all_are_searched(book.path(), summary).map_err(|error| error.to_string());
        let write = |name: &str, text: &str| std::fs::write(book.path().join(name), text).unwrap();
        assert!(why().unwrap_err().contains("no search index"));
        write("searchindex-1.js", "[\"index.html#a\"]");
        write("index.html", "");
        assert_eq!(why().unwrap_err(), "docs/b.html: mdbook did not make it");
        std::fs::create_dir(book.path().join("docs")).unwrap();
        write("docs/b.html", "");
        assert_eq!(why().unwrap_err(), "docs/b.html: not in the search index");
        write("searchindex-1.js", "[\"index.html#a\",\"docs/b.html#b\"]");
        assert_eq!(why(), Ok(()));
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
        for picture in ["overview.svg", "top.svg", "dashboard.svg"] {
            assert!(book.join("src/docs").join(picture).is_file(), "{picture}");
        }
        let readme = std::fs::read_to_string(book.join("src/README.md")).unwrap();
        assert!(!readme.contains("SUMMARY.md"));
    }
}
