//! The licences of everything that is linked in, in one text. Equal texts stand there once, with the
//! names of all that come under them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::parts::Part;

/// How the files are called that hold a licence or a notice.
const NAMES: [&str; 6] = [
    "licen",
    "copying",
    "copyright",
    "notice",
    "unlicense",
    "patents",
];

/// The text, and what is to say about it.
pub struct Licences {
    pub text: Vec<u8>,
    pub state: Result<String, String>,
}

pub fn collect(root: &Path, parts: &[Part]) -> Result<Licences> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    let others = parts.iter().filter(|part| !part.ours);
    for part in others {
        let name = format!("{} {}", part.name, part.version);
        let texts = texts(&part.folder)?;
        if texts.is_empty() {
            let licence = part.licence.as_deref().unwrap_or("says nothing");
            without.push(format!("{name}: {licence}"));
        }
        for text in texts {
            by_text.entry(text).or_default().push(name.clone());
        }
    }
    let musl = root.join("packaging/musl-copyright.txt");
    let musl = std::fs::read_to_string(&musl).with_context(|| musl.display().to_string())?;
    let mut sections: Vec<(String, String)> = by_text
        .into_iter()
        .map(|(text, names)| (names.join(", "), text))
        .collect();
    sections.sort();
    sections.push(("musl".to_owned(), musl));
    let library = standard_library()?;
    if let Some(text) = &library {
        sections.push((
            "Rust's standard library and what it is made of (HTML)".to_owned(),
            text.clone(),
        ));
    }

    let mut text = String::from("Licences of what is linked into memtide's binaries.\n");
    if !without.is_empty() {
        text.push_str("\nPackages that hold no licence file; their manifests say:\n");
        text.extend(without.iter().map(|line| format!("  {line}\n")));
    }
    for (names, licence) in &sections {
        let line = "=".repeat(78);
        text.push_str(&format!(
            "\n{line}\n{names}\n{line}\n\n{}\n",
            licence.trim_end()
        ));
    }
    let state = match library {
        Some(_) => Ok(format!(
            "{} texts; {} packages hold none and are named",
            sections.len(),
            without.len()
        )),
        None => Err(
            "the toolchain came without its copyright notices; install it with the profile default"
                .to_owned(),
        ),
    };
    Ok(Licences {
        text: text.into_bytes(),
        state,
    })
}

/// The licence files in a package's own folder, sorted by name.
fn texts(folder: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if NAMES.iter().any(|begin| name.starts_with(begin)) && entry.path().is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
            Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))
        })
        .collect()
}

/// The notices that come with the toolchain.
fn standard_library() -> Result<Option<String>> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .context("cannot run rustc")?;
    let sysroot = String::from_utf8(output.stdout)?;
    let path = Path::new(sysroot.trim()).join("share/doc/rust/COPYRIGHT-library.html");
    Ok(std::fs::read_to_string(path).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_stand_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let part = |name: &str, text: Option<&str>| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            if let Some(text) = text {
                std::fs::write(path.join("LICENSE-MIT"), text).unwrap();
            }
            Part {
                name: name.to_owned(),
                version: "1.0.0".to_owned(),
                licence: Some("MIT".to_owned()),
                folder: path,
                ours: false,
                checksum: None,
                needs: Vec::new(),
            }
        };
        let parts = [
            part("one", Some("Do what you like.\r\n")),
            part("two", Some("Do what you like.\n")),
            part("three", None),
        ];
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = String::from_utf8(collect(&root, &parts).unwrap().text).unwrap();
        assert_eq!(text.matches("Do what you like.").count(), 1);
        assert!(text.contains("\none 1.0.0, two 1.0.0\n"), "{text}");
        assert!(text.contains("\n  three 1.0.0: MIT\n"));
        assert!(text.contains("Rich Felker"));
    }
}
