//! Pages that people read: every link of them leads somewhere, the book holds
//! them all, and the first of them stays short. Nothing here needs a network;
//! links to other hosts are not followed.

mod pages;

use pages::{Page, all, root};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

const README_LINES: usize = 120;

fn parser(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// Where its links and pictures lead.
fn targets(text: &str) -> Vec<String> {
    parser(text)
        .filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url.into_string())
            }
            _ => None,
        })
        .collect()
}

/// The names by which its headings can be linked, as mdBook and the hosts of
/// repositories make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in parser(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let name = anchor(&heading.take().unwrap_or_default());
                let copies = (1..).map(|number| format!("{name}-{number}"));
                let free = std::iter::once(name.clone()).chain(copies);
                anchors.extend(free.into_iter().find(|name| !anchors.contains(name)));
            }
            _ => {}
        }
    }
    anchors
}

fn anchor(heading: &str) -> String {
    heading
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || "-_".contains(c) => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

/// `path` without `.` and `..`, all by words.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => assert!(tidy.pop(), "{}: above the root", path.display()),
            Component::CurDir => {}
            other => tidy.push(other),
        }
    }
    tidy
}

/// The file that a link of `page` leads to, and the anchor; none if it leads
/// to another host.
fn resolve(page: &str, target: &str) -> Option<(String, Option<String>)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor.to_owned())),
        None => (target, None),
    };
    let folder = Path::new(page).parent().unwrap();
    let path = match file {
        "" => page.to_owned(),
        file => tidy(&folder.join(file)).display().to_string(),
    };
    Some((path, anchor))
}

fn broken(pages: &[Page], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let anchors: BTreeMap<&str, BTreeSet<String>> = pages
        .iter()
        .map(|page| (page.path.as_str(), anchors(&page.text)))
        .collect();
    let mut wrong = Vec::new();
    for page in pages {
        for target in targets(&page.text) {
            let Some((path, anchor)) = resolve(&page.path, &target) else {
                continue;
            };
            if !exists(&path) {
                wrong.push(format!("{}: {target}: there is no such file", page.path));
            } else if let Some(anchor) = anchor
                && !anchors
                    .get(path.as_str())
                    .is_some_and(|a| a.contains(&anchor))
            {
                wrong.push(format!("{}: {target}: no such heading", page.path));
            }
        }
    }
    wrong
}

fn fail_if_any(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    fail_if_any(&broken(&all(), |path| root().join(path).exists()));
}

#[test]
fn the_book_holds_every_page_and_links_to_no_other() {
    let pages = all();
    let summary = pages.iter().find(|page| page.path == "docs/SUMMARY.md");
    let held: BTreeSet<String> = targets(&summary.unwrap().text)
        .iter()
        .filter_map(|target| Some(resolve("docs/SUMMARY.md", target)?.0))
        .collect();
    let mut wrong = Vec::new();
    for page in &pages {
        let inside = held.contains(&page.path);
        if page.path.starts_with("docs/") && !inside && page.path != "docs/SUMMARY.md" {
            wrong.push(format!("{}: not in docs/SUMMARY.md", page.path));
        }
        for target in targets(&page.text).iter().filter(|_| inside) {
            let Some((path, _)) = resolve(&page.path, target) else {
                continue;
            };
            if path.ends_with(".md") && !held.contains(&path) && path != "docs/SUMMARY.md" {
                wrong.push(format!("{}: {target}: not in the book", page.path));
            }
        }
    }
    fail_if_any(&wrong);
}

/// The places in the repository that a page names in code: `crates/memtide/src`, say. `NAME` and `*`
/// stand for a name.
fn places(text: &str) -> Vec<String> {
    const FOLDERS: [&str; 7] = [
        "crates/",
        "pager/",
        "docs/",
        "testbed/",
        "xtask/",
        "scenarios/",
        "fuzz/",
    ];
    let codes = parser(text).filter_map(|event| match event {
        Event::Code(code) => Some(code.into_string()),
        _ => None,
    });
    codes
        .filter(|code| FOLDERS.iter().any(|folder| code.starts_with(folder)))
        .filter(|code| !code.contains(' '))
        .map(|code| {
            let named = code
                .find("NAME")
                .or(code.find('*'))
                .map_or(code.len(), |at| code[..at].rfind('/').unwrap_or(0));
            code[..named].to_owned()
        })
        .collect()
}

#[test]
fn every_place_that_a_page_names_is_there() {
    let pages = all();
    let mut wrong = Vec::new();
    for page in pages.iter().filter(|page| page.path != "CHANGELOG.md") {
        for place in places(&page.text) {
            if !root().join(&place).exists() {
                wrong.push(format!("{}: {place}: there is no such place", page.path));
            }
        }
    }
    fail_if_any(&wrong);
    assert_eq!(
        places("`crates/a/NAME.rs` `scenarios/*.toml` `cargo x` `docs/a b`, docs/c"),
        ["crates/a", "scenarios"]
    );
}

#[test]
fn the_readme_is_read_in_one_sitting() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(lines <= README_LINES, "{lines} lines");
}

#[test]
fn the_changelog_begins_with_this_version() {
    let log = std::fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let mut headings = log.lines().filter_map(|line| line.strip_prefix("## "));
    assert_eq!(headings.next(), Some("Unreleased"));
    let newest = headings.next().and_then(|line| line.split_once(" - "));
    assert_eq!(
        newest.map(|(version, _)| version),
        Some(env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_broken_link_is_named() {
    let page = |path: &str, text: &str| Page {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let pages = [
        page(
            "docs/a/b.md",
            "# One\n[x](../c.md#two-words) [y](../c.md#tow) | [z](gone.md) <https://example.com>\n\
             ![p](../p.svg) [here](#one) `[code](no.md)`",
        ),
        page("docs/c.md", "## Two `words`?\n"),
    ];
    let exists = |path: &str| ["docs/a/b.md", "docs/c.md", "docs/p.svg"].contains(&path);
    assert_eq!(
        broken(&pages, exists),
        [
            "docs/a/b.md: ../c.md#tow: no such heading",
            "docs/a/b.md: gone.md: there is no such file"
        ]
    );
}

#[test]
fn headings_of_one_name_are_told_apart() {
    let anchors = anchors("# A b\n## A b\n## A, b\n");
    assert_eq!(
        anchors.into_iter().collect::<Vec<_>>(),
        ["a-b", "a-b-1", "a-b-2"]
    );
}
