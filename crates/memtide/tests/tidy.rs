//! Rules about the text of the repository.
//!
//! - `unsafe` stands only where system calls are wrapped, so that it can be
//!   reviewed whole.
//! - Nothing names a place that exists on one developer's machine, nor the
//!   host of a package registry or mirror: the build takes both from the
//!   machine that it runs on.
//! - No file that people read is longer than 800 lines.
//! - A module with parts is a folder with a `mod.rs`, everywhere.
//! - A library for others prints nothing: clippy is told so in each.

use std::path::{Path, PathBuf};

/// Folders that are not ours to judge: built, fetched, or kept as they came.
const SKIPPED: &[&str] = &["target", ".git", "seeds", "corpus", "artifacts"];

const LONGEST: usize = 800;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Every text file with its path from the workspace.
fn files() -> Vec<(String, String)> {
    let root = workspace();
    let mut pending = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if SKIPPED.contains(&name.as_ref()) || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                pending.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let relative = path.strip_prefix(&root).unwrap();
                files.push((relative.to_string_lossy().into_owned(), text));
            }
        }
    }
    files.sort();
    files
}

fn may_be_unsafe(path: &str) -> bool {
    path.contains("/src/sys/")
        || path.starts_with("testbed/")
            && (path.ends_with("/sys.rs") || path.ends_with("/host_sys.rs"))
}

/// Rust code with comments, strings and characters replaced by spaces; line
/// ends stay, so that lines can be counted.
fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest),
            'r' if !ends_in_word(&code) => raw_string(rest).unwrap_or(0),
            '\'' => character(rest).unwrap_or(0),
            _ => 0,
        };
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let (gone, left) = rest.split_at(length);
            code.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = left;
        }
    }
    code
}

/// Length of a block comment; they nest.
fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at + 1 < bytes.len() {
        let step = match &bytes[at..at + 2] {
            b"/*" => 1,
            b"*/" => -1,
            _ => 0,
        };
        depth += step;
        at += if step == 0 { 1 } else { 2 };
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut escaped = true; // The opening quote does not close.
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn raw_string(rest: &str) -> Option<usize> {
    let inner = rest[1..].trim_start_matches('#');
    let hashes = rest.len() - 1 - inner.len();
    let inner = inner.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = 1 + hashes + 1;
    Some(
        inner
            .find(&end)
            .map_or(rest.len(), |at| start + at + end.len()),
    )
}

/// Length of a character; `None` for a lifetime or label.
fn character(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    match chars.next()? {
        (_, '\\') => {
            chars.next()?;
            chars.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
        }
        _ => chars
            .next()
            .filter(|(_, c)| *c == '\'')
            .map(|(at, _)| at + 1),
    }
}

fn ends_in_word(code: &str) -> bool {
    code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The lines on which `unsafe` is a word of its own.
fn unsafe_lines(source: &str) -> Vec<usize> {
    code_only(source)
        .lines()
        .zip(1..)
        .filter(|(line, _)| {
            line.split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "unsafe")
        })
        .map(|(_, number)| number)
        .collect()
}

fn fail_if_any(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn unsafe_stands_only_where_system_calls_are_wrapped() {
    let mut wrong = Vec::new();
    for (path, text) in files() {
        if path.ends_with(".rs") && !may_be_unsafe(&path) {
            for line in unsafe_lines(&text) {
                wrong.push(format!(
                    "{path}:{line}: unsafe outside src/sys; wrap the call there"
                ));
            }
        }
    }
    fail_if_any(&wrong);
}

#[test]
fn no_path_of_one_machine() {
    // Put together here, so that this file does not hold them itself.
    let folders = ["home", "Users", "work", "workspace"].map(|name| format!("/{name}/"));
    let here = workspace().to_string_lossy().into_owned();
    let mut wrong = Vec::new();
    for (path, text) in files() {
        for (line, number) in text.lines().zip(1..) {
            let at_root = |folder: &String| {
                line.match_indices(folder.as_str()).any(|(at, _)| {
                    // `a/work/b` and `$HOME/work/` are no absolute paths.
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "}._-*>".contains(c))
                })
            };
            if folders.iter().any(at_root) || line.contains(&here) {
                wrong.push(format!("{path}:{number}: a path of one machine: {line}"));
            }
        }
    }
    fail_if_any(&wrong);
}

#[test]
fn no_registry_hosts() {
    let hosts = registry_hosts();
    let mut wrong = Vec::new();
    for (path, text) in files() {
        // Cargo writes the canonical registry into its lock file.
        if path.ends_with("Cargo.lock") {
            continue;
        }
        for (line, number) in text.lines().zip(1..) {
            if hosts.iter().any(|host| names_host(line, host)) || names_private_registry(line) {
                wrong.push(format!("{path}:{number}: names a registry's host: {line}"));
            }
        }
    }
    fail_if_any(&wrong);
}

/// Put together here, so that this file does not hold them itself.
fn registry_hosts() -> Vec<String> {
    let known = [
        ["crates", "io"],
        ["pypi", "org"],
        ["npmjs", "org"],
        ["docker", "io"],
        ["golang", "org"],
        ["deb.debian", "org"],
    ];
    known.iter().map(|parts| parts.join(".")).collect()
}

/// True if `line` holds `host` as a name or as the end of one.
fn names_host(line: &str, host: &str) -> bool {
    let in_name = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    line.split(|c| !in_name(c))
        .map(|name| name.trim_matches('.'))
        .any(|name| name == host || name.ends_with(&format!(".{host}")))
}

/// True if `line` holds a URL whose host calls itself a registry or a mirror
/// of one, whatever company it belongs to.
fn names_private_registry(line: &str) -> bool {
    line.split("://").skip(1).any(|url| {
        let host = url.split(|c: char| "/\"' )>".contains(c)).next();
        host.is_some_and(|host| {
            ["registry.", "artifactory", "nexus.", "mirror."]
                .iter()
                .any(|word| host.contains(word))
        })
    })
}

#[test]
fn no_file_outgrows_its_reader() {
    let wrong: Vec<String> = files()
        .iter()
        .filter(|(path, _)| {
            [".rs", ".md", ".toml", ".sh"]
                .iter()
                .any(|end| path.ends_with(end))
        })
        .filter(|(_, text)| text.lines().count() > LONGEST)
        .map(|(path, text)| {
            let lines = text.lines().count();
            format!("{path}: {lines} lines, more than {LONGEST}; split it by idea")
        })
        .collect();
    fail_if_any(&wrong);
}

#[test]
fn the_scanner_tells_code_from_text() {
    let source = "// unsafe\n/* unsafe /* unsafe */ unsafe */\nlet a = \"unsafe \\\" unsafe\";\n\
        let b = r#\"unsafe \" unsafe\"#;\nlet c = '\"'; let d: &'static str = \"\";\n\
        #![deny(unsafe_code)]\nfn f() { unsafe { g() } }\n";
    assert_eq!(unsafe_lines(source), [7]);
    assert_eq!(unsafe_lines("let q = b'\\''; unsafe {}"), [1]);
}

#[test]
fn hosts_are_told_from_code() {
    let host = &registry_hosts()[0];
    assert!(names_host(&format!("see https://{host}/x"), host));
    assert!(names_host(&format!("index.{host}."), host));
    assert!(!names_host("crates", host));
    assert!(names_private_registry(&format!(
        "index = \"sparse+https:{}registry.example.com/\"",
        "//"
    )));
    assert!(!names_private_registry("let x = self.registry.get(1);"));
}

#[test]
fn a_module_with_parts_is_a_folder() {
    let paths: Vec<String> = files().into_iter().map(|(path, _)| path).collect();
    let both = |path: &&String| {
        let folder = path.strip_suffix(".rs").map(|module| format!("{module}/"));
        let inside = |folder: String| paths.iter().any(|path| path.starts_with(&folder));
        path.contains("/src/") && folder.is_some_and(inside)
    };
    let wrong: Vec<&String> = paths.iter().filter(both).collect();
    assert!(wrong.is_empty(), "make it FOLDER/mod.rs: {wrong:?}");
}

#[test]
fn libraries_print_nothing() {
    let rule = "#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]";
    let library = |path: &str| {
        let member = path.strip_suffix("/src/lib.rs")?;
        (member.starts_with("crates/") || member.starts_with("pager/")).then_some(())
    };
    let files = files();
    let libraries = files.iter().filter(|(path, _)| library(path).is_some());
    let (with, without): (Vec<_>, Vec<_>) = libraries.partition(|(_, text)| text.contains(rule));
    let without: Vec<&String> = without.iter().map(|(path, _)| path).collect();
    assert!(without.is_empty(), "add {rule} to {without:?}");
    assert!(with.len() >= 8, "libraries are looked for elsewhere");
}
