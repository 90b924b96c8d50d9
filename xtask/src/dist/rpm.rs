//! An RPM package. It holds the same files as the Debian one, and is not signed.

use anyhow::{Context, Result};
use rpm::{BuildConfig, CompressionType, FileOptions, PackageBuilder};

use super::{Entry, Release};

pub fn package(release: &Release, entries: &[Entry]) -> Result<Vec<u8>> {
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
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    for entry in sorted {
        let mode = u16::try_from(entry.mode).context("permissions")?;
        let options = FileOptions::new(format!("/{}", entry.path)).permissions(mode);
        let options = match entry.path.starts_with("usr/share/doc/") {
            true => options.doc(),
            false => options,
        };
        builder.with_file_contents(entry.content.clone(), options)?;
    }
    let mut package = Vec::new();
    builder.build()?.write(&mut package)?;
    Ok(package)
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
            ("usr/bin/memtide", 0o755),
            ("usr/share/doc/memtide/README.md", 0o644),
        ]
        .map(|(path, mode)| Entry {
            path: path.to_owned(),
            mode,
            content: b"content".to_vec(),
        });
        let one = package(&release, &files).unwrap();
        assert_eq!(one, package(&release, &files).unwrap());
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
            ["/usr/bin/memtide", "/usr/share/doc/memtide/README.md"]
        );
    }
}
