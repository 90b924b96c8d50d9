//! Tar archives whose bytes follow from their content.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Result;
use flate2::{Compression, GzBuilder};

use super::Entry;

/// Compresses; the header holds neither a name nor a time.
pub fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut writer = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    writer.write_all(content)?;
    Ok(writer.finish()?)
}

/// A compressed archive of the entries under `prefix`, in order of path, with the folders that they
/// need. Everything belongs to root and is from `date`.
pub fn tar_gz(prefix: &str, entries: &[Entry], date: u64) -> Result<Vec<u8>> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut tar = tar::Builder::new(Vec::new());
    let mut folders = BTreeSet::new();
    for entry in sorted {
        let path = format!("{prefix}{}", entry.path);
        for (at, _) in path.match_indices('/') {
            let folder = &path[..=at];
            if folder != "./" && folders.insert(folder.to_owned()) {
                let mut header = header(tar::EntryType::Directory, 0o755, 0, date);
                tar.append_data(&mut header, folder, std::io::empty())?;
            }
        }
        let size = entry.content.len() as u64;
        let mut header = header(tar::EntryType::Regular, entry.mode, size, date);
        tar.append_data(&mut header, &path, entry.content.as_slice())?;
    }
    gzip(&tar.into_inner()?)
}

fn header(kind: tar::EntryType, mode: u32, size: u64, date: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(date);
    header.set_uid(0);
    header.set_gid(0);
    let _ = header.set_username("root");
    let _ = header.set_groupname("root");
    header
}

/// The archive for machines without packages: what they install, in a folder that may be anywhere.
pub fn tarball(folder: &str, entries: &[Entry], date: u64) -> Result<Vec<u8>> {
    let moved: Vec<Entry> = entries
        .iter()
        .map(|entry| Entry {
            path: entry.path.trim_start_matches("usr/").to_owned(),
            ..entry.clone()
        })
        .collect();
    tar_gz(&format!("{folder}/"), &moved, date)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    pub fn names(archive: &[u8]) -> Vec<(String, u32, u64)> {
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
        tar.entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                let path = entry.path().unwrap().display().to_string();
                (path, header.mode().unwrap(), header.mtime().unwrap())
            })
            .collect()
    }

    fn entry(path: &str, mode: u32) -> Entry {
        Entry {
            path: path.to_owned(),
            mode,
            content: b"content".to_vec(),
        }
    }

    #[test]
    fn folders_come_before_what_they_hold_and_order_does_not_matter() {
        let one = [entry("usr/share/b", 0o644), entry("usr/bin/a", 0o755)];
        let other = [one[1].clone(), one[0].clone()];
        let archive = tar_gz("./", &one, 7).unwrap();
        assert_eq!(archive, tar_gz("./", &other, 7).unwrap());
        let all = names(&archive);
        let paths: Vec<&str> = all.iter().map(|(path, ..)| path.as_str()).collect();
        let expected = ["usr/", "usr/bin/", "usr/bin/a", "usr/share/", "usr/share/b"];
        assert_eq!(
            paths
                .iter()
                .map(|path| path.trim_start_matches("./"))
                .collect::<Vec<_>>(),
            expected
        );
        assert_eq!((all[2].1, all[2].2), (0o755, 7));
    }

    #[test]
    fn a_tarball_is_one_folder() {
        let archive = tarball("memtide-1", &[entry("usr/bin/memtide", 0o755)], 7).unwrap();
        let paths: Vec<String> = names(&archive).into_iter().map(|(path, ..)| path).collect();
        assert_eq!(
            paths,
            ["memtide-1/", "memtide-1/bin/", "memtide-1/bin/memtide"]
        );
    }

    #[test]
    fn gzip_can_be_undone() {
        let mut text = String::new();
        let packed = gzip(b"words words words").unwrap();
        flate2::read::GzDecoder::new(packed.as_slice())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "words words words");
    }
}
