//! The initial ram file system's archive format, "newc" cpio, written and nothing more.
//!
//! The kernel unpacks it from memory at boot (Documentation/driver-api/early-userspace, buffer
//! format). Each member is a 110-byte header of ASCII hexadecimal fields, the name with a NUL,
//! padding to 4 bytes, the data, padding to 4 bytes; a member named `TRAILER!!!` ends it. Archives
//! may follow one another. We write it ourselves because the guest's image is a list of a few
//! hundred members held in memory: no tool of the host is needed and the result is reproducible.

/// An archive being written. Directories are created for every member that needs them.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    directories: std::collections::BTreeSet<String>,
}

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

impl Archive {
    /// An empty archive.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a regular file; `path` is absolute, `mode` are permission bits.
    pub fn file(&mut self, path: &str, mode: u32, data: &[u8]) {
        self.parents(path);
        self.member(path, REGULAR | mode, (0, 0), data);
    }

    /// Adds a symbolic link at `path` to `target`.
    pub fn symlink(&mut self, path: &str, target: &str) {
        self.parents(path);
        self.member(path, SYMLINK | 0o777, (0, 0), target.as_bytes());
    }

    /// Adds a symbolic link at `path` to the folder `target`: what is added below `path` later lands there.
    pub fn folder_link(&mut self, path: &str, target: &str) {
        self.directories.insert(path.trim_matches('/').to_owned());
        self.symlink(path, target);
    }

    /// Adds a character device.
    pub fn device(&mut self, path: &str, mode: u32, major: u32, minor: u32) {
        self.parents(path);
        self.member(path, CHARACTER_DEVICE | mode, (major, minor), &[]);
    }

    /// Adds a directory and its parents.
    pub fn directory(&mut self, path: &str) {
        self.parents(path);
        let path = path.trim_matches('/');
        if !path.is_empty() && self.directories.insert(path.to_owned()) {
            self.member(path, DIRECTORY | 0o755, (0, 0), &[]);
        }
    }

    /// Writes the trailer and returns the archive.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.member("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.trim_matches('/').rsplit_once('/') {
            self.directory(parent);
        }
    }

    fn member(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        let name = path.trim_start_matches('/');
        self.inode += 1;
        let size = u32::try_from(data.len()).expect("a cpio member is below 4 GiB");
        let name_size = name.len() as u32 + 1;
        let links = if mode & DIRECTORY != 0 { 2 } else { 1 };
        self.bytes.extend_from_slice(b"070701");
        // inode, mode, uid, gid, links, mtime, size, device of the file (2), device number (2),
        // name size, checksum.
        let fields = [
            self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0,
        ];
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header 110 + "a" and NUL 2 = 112 (a multiple of 4), data 3 padded to 4: 116 bytes; the
    /// trailer is 110 + 11 = 121 padded to 124. 240 in all.
    #[test]
    fn one_file_is_240_bytes() {
        let mut archive = Archive::new();
        archive.file("/a", 0o755, b"xyz");
        let bytes = archive.finish();
        assert_eq!(bytes.len(), 240);
        assert_eq!(&bytes[..22], b"07070100000001000081ed");
        assert_eq!(&bytes[110..116], b"a\0xyz\0");
    }

    /// A folder of the same name would take the link's place.
    #[test]
    fn what_is_below_a_link_makes_no_folder_of_its_name() {
        let mut archive = Archive::new();
        archive.folder_link("/bin", "usr/bin");
        archive.file("/bin/a", 0o755, b"");
        let text = String::from_utf8_lossy(&archive.finish()).into_owned();
        assert_eq!(
            text.matches("\0bin\0").count() + text.matches("0bin\0").count(),
            1
        );
        assert!(text.find("usr/bin").unwrap() < text.find("bin/a\0").unwrap());
    }

    #[test]
    fn parents_come_first_and_once() {
        let mut archive = Archive::new();
        archive.file("/bin/a", 0o755, b"");
        archive.file("/bin/b", 0o755, b"");
        let text = String::from_utf8_lossy(&archive.finish()).into_owned();
        assert_eq!(text.matches("bin\0").count(), 1);
        assert!(text.find("bin\0").unwrap() < text.find("bin/a\0").unwrap());
    }
}
