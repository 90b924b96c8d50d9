//! An RPM package. It holds the same files as the Debian one, and is not signed.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use rpm::{BuildConfig, CompressionType, Dependency, FileOptions, PackageBuilder};

use super::build::Built;
use super::{Entry, Release, contents};

pub fn file_name(version: &str) -> String {
    format!("memtide-{version}-1.x86_64.rpm")
}

pub fn package(release: &Release, library: Option<&Built>, entries: &[Entry]) -> Result<Vec<u8>> {
    let date = u32::try_from(release.date).context("the commit is from after 2106")?;
    let config = BuildConfig::default()
        .compression(CompressionType::Gzip)
        .source_date(date);
    let licence = "MIT OR Apache-2.0";
    let mut builder = PackageBuilder::new(
        "memtide",
        &release.version,
        licence,
        "x86_64",
        &release.summary,
    );
    builder
        .using_config(config)
        .release("1")
        .description(&release.description)
        // Where it was built is nobody's business, and would differ.
        .build_host("localhost")
        // The argument is how many copies stay: none when the package goes for good.
        .pre_uninstall_script(format!(
            "[ \"$1\" = 0 ] || exit 0\n{}",
            release.before_removal
        ));
    // The program needs nothing; only the preload library does, and only where it is used.
    if let Some((major, minor)) = library.and_then(|library| library.glibc) {
        let needed = format!("libc.so.6(GLIBC_{major}.{minor})(64bit)");
        builder
            .recommends(Dependency::any(needed))
            .recommends(Dependency::any("libgcc_s.so.1()(64bit)"));
    }
    // rpm removes only the folders that a package says are its own.
    for folder in own_folders(entries) {
        builder.with_dir_entry(FileOptions::dir(format!("/{folder}")).permissions(0o755))?;
    }
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    for entry in sorted {
        let mode = u16::try_from(entry.mode).context("permissions")?;
        let options = FileOptions::new(format!("/{}", entry.path)).permissions(mode);
        let options = match entry.path.starts_with("usr/share/doc/") {
            true => options.doc(),
            false if contents::is_configuration(entry) => options.config().noreplace(),
            false => options,
        };
        builder.with_file_contents(entry.content.clone(), options)?;
    }
    let mut package = Vec::new();
    builder.build()?.write(&mut package)?;
    Ok(package)
}

/// The folders that no other package has.
fn own_folders(entries: &[Entry]) -> BTreeSet<String> {
    let folders = entries.iter().flat_map(|entry| {
        let above = Path::new(&entry.path).ancestors().skip(1);
        above.filter(|folder| folder.iter().any(|name| name == "memtide"))
    });
    folders.map(|folder| folder.display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_read_and_is_the_same_each_time() {
        let release = Release {
            version: "1.2.3".to_owned(),
            date: 1_000_000_000,
            summary: "Short".to_owned(),
            description: "Longer.".to_owned(),
            before_removal: "true\n".to_owned(),
        };
        let files = [
            ("etc/memtide/memtide.toml", 0o644),
            ("usr/bin/memtide", 0o755),
            ("usr/share/doc/memtide/README.md", 0o644),
        ]
        .map(|(path, mode)| Entry {
            path: path.to_owned(),
            mode,
            content: b"content".to_vec(),
        });
        let one = package(&release, None, &files).unwrap();
        assert_eq!(one, package(&release, None, &files).unwrap());
        let read = rpm::Package::parse(&mut one.as_slice()).unwrap();
        let metadata = &read.metadata;
        assert_eq!(metadata.get_version().unwrap(), "1.2.3");
        let paths: Vec<String> = metadata
            .get_file_entries()
            .unwrap()
            .into_iter()
            .map(|entry| entry.path().display().to_string())
            .collect();
        assert_eq!(
            paths,
            [
                "/etc/memtide",
                "/etc/memtide/memtide.toml",
                "/usr/bin/memtide",
                "/usr/share/doc/memtide",
                "/usr/share/doc/memtide/README.md"
            ]
        );
    }
}
