//! A Debian package: an `ar` archive of the format's version and two compressed tar archives, one of
//! what dpkg wants to know, one of the files.

use std::fmt::Write as _;

use anyhow::Result;

use super::build::Built;
use super::{Entry, Release, archive, contents};

pub fn file_name(version: &str) -> String {
    format!("memtide_{version}-1_amd64.deb")
}

pub fn package(release: &Release, library: Option<&Built>, entries: &[Entry]) -> Result<Vec<u8>> {
    let entries: Vec<Entry> = entries.iter().map(where_debian_has_it).collect();
    let entries = entries.as_slice();
    let control = Entry {
        path: "control".to_owned(),
        mode: 0o644,
        content: control(release, library, entries).into_bytes(),
    };
    let removal = format!(
        "#!/bin/sh\nset -e\n[ \"$1\" = remove ] || exit 0\n{}",
        release.before_removal
    );
    let removal = Entry {
        path: "prerm".to_owned(),
        mode: 0o755,
        content: removal.into_bytes(),
    };
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        (
            "control.tar.gz",
            archive::tar_gz("./", &[control, conffiles(entries), removal], release.date)?,
        ),
        ("data.tar.gz", archive::tar_gz("./", entries, release.date)?),
    ];
    let mut package = ar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = ar::Header::new(name.into(), content.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(release.date);
        package.append(&header, content.as_slice())?;
    }
    Ok(package.into_inner()?)
}

/// The files that dpkg asks about before it replaces or removes what an administrator changed.
fn conffiles(entries: &[Entry]) -> Entry {
    let ours = entries
        .iter()
        .filter(|entry| contents::is_configuration(entry));
    let lines = ours.map(|entry| format!("/{}\n", entry.path));
    Entry {
        path: "conffiles".to_owned(),
        mode: 0o644,
        content: lines.collect::<String>().into_bytes(),
    }
}

/// Debian's zsh looks for packages' completions in a folder of its own.
fn where_debian_has_it(entry: &Entry) -> Entry {
    Entry {
        path: entry
            .path
            .replace("zsh/site-functions", "zsh/vendor-completions"),
        ..entry.clone()
    }
}

fn control(release: &Release, library: Option<&Built>, entries: &[Entry]) -> String {
    let kib: usize = entries
        .iter()
        .map(|entry| entry.content.len().div_ceil(1024))
        .sum();
    let mut text = format!(
        "Package: memtide\nVersion: {}-1\nArchitecture: amd64\nMaintainer: The memtide developers\n\
         Installed-Size: {kib}\nSection: admin\nPriority: optional\n",
        release.version
    );
    // The program needs nothing; only the preload library does, and only where it is used.
    if let Some((major, minor)) = library.and_then(|library| library.glibc) {
        let _ = writeln!(text, "Recommends: libc6 (>= {major}.{minor}), libgcc-s1");
    }
    let _ = writeln!(
        text,
        "Description: {}\n {}",
        release.summary,
        release.description.replace('\n', "\n ")
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn release() -> Release {
        Release {
            version: "1.2.3".to_owned(),
            date: 1_000_000_000,
            summary: "Short".to_owned(),
            description: "Longer,\nmuch longer.".to_owned(),
            before_removal: "true\n".to_owned(),
        }
    }

    #[test]
    fn its_members_are_those_that_dpkg_wants_in_its_order() {
        let files = [
            Entry {
                path: "usr/bin/memtide".to_owned(),
                mode: 0o755,
                content: vec![0; 1025],
            },
            Entry {
                path: contents::CONFIGURATION.to_owned(),
                mode: 0o644,
                content: Vec::new(),
            },
        ];
        let package = package(&release(), None, &files).unwrap();
        let mut archive = ar::Archive::new(package.as_slice());
        let mut members = Vec::new();
        while let Some(member) = archive.next_entry() {
            let mut member = member.unwrap();
            let mut content = Vec::new();
            member.read_to_end(&mut content).unwrap();
            members.push((
                String::from_utf8(member.header().identifier().to_vec()).unwrap(),
                content,
            ));
        }
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
        let mut control = tar::Archive::new(flate2::read::GzDecoder::new(members[1].1.as_slice()));
        let entries = control.entries().unwrap();
        let texts: Vec<(String, String)> = entries
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                (entry.path().unwrap().display().to_string(), text)
            })
            .collect();
        let names: Vec<&str> = texts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["conffiles", "control", "prerm"]);
        assert_eq!(texts[0].1, "/etc/memtide/memtide.toml\n");
        let control = &texts[1].1;
        assert!(
            control.starts_with("Package: memtide\nVersion: 1.2.3-1\n"),
            "{control}"
        );
        assert!(control.contains("\nInstalled-Size: 2\n"), "{control}");
        assert!(
            control.ends_with("\nDescription: Short\n Longer,\n much longer.\n"),
            "{control}"
        );
        assert!(texts[2].1.starts_with("#!/bin/sh\n"));
        assert_eq!(package, super::package(&release(), None, &files).unwrap());
    }
}
