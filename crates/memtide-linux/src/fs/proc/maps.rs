//! `/proc/PID/maps`: the mappings of an address space.
//!
//! A line is `start-end perms offset device inode   path`. The path is the
//! rest of the line: it may hold spaces, it may end in ` (deleted)`, and for
//! what is no file it is a name in brackets or nothing.

use crate::fs::parse::{ParseError, Parsed, hex, lines, number, quoted, unescape};
use std::path::PathBuf;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Address of the first byte.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// Its pages can be read.
    pub read: bool,
    /// Its pages can be written.
    pub write: bool,
    /// Its pages can be executed.
    pub execute: bool,
    /// Writes reach the file or the other mappers; otherwise copy on write.
    pub shared: bool,
    /// Byte offset in the file.
    pub offset: u64,
    /// Device numbers, major and minor; 0:0 without a file.
    pub device: (u32, u32),
    /// The file's inode number; 0 without a file.
    pub inode: u64,
    /// The file, or a name in brackets such as `[heap]`.
    pub path: Option<PathBuf>,
    /// The file has no name any more.
    pub deleted: bool,
}

impl Mapping {
    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Never true of a parsed mapping.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// True if it maps a file, in a file system or in memory.
    pub fn is_file(&self) -> bool {
        self.inode != 0
    }

    /// True for what the kernel itself maps (`[vdso]`, `[vvar]`,
    /// `[vsyscall]`, `[uprobes]`): its pages cannot be moved.
    pub fn is_special(&self) -> bool {
        const SPECIAL: [&str; 5] = [
            "[vdso]",
            "[vvar]",
            "[vvar_vclock]",
            "[vsyscall]",
            "[uprobes]",
        ];
        !self.is_file()
            && self
                .path
                .as_ref()
                .is_some_and(|path| SPECIAL.iter().any(|name| path.as_os_str() == *name))
    }
}

/// Parses the file.
pub fn parse(bytes: &[u8]) -> Result<Vec<Mapping>, ParseError> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for (line, content) in lines(bytes) {
        let mapping = parse_line(content, line)?;
        follows(mappings.last(), &mapping, line)?;
        mappings.push(mapping);
    }
    Ok(mappings)
}

/// Callers search mappings by address, so the order is checked once, here.
pub(crate) fn follows(before: Option<&Mapping>, mapping: &Mapping, line: usize) -> Parsed<()> {
    match before {
        Some(before) if before.end > mapping.start => Err(ParseError::new(
            line,
            "address range",
            format!(
                "{:x} begins inside or before the mapping above",
                mapping.start
            ),
        )),
        _ => Ok(()),
    }
}

/// Parses one line; `smaps` has the same one over each block.
pub(crate) fn parse_line(content: &[u8], line: usize) -> Parsed<Mapping> {
    let mut fields = content.splitn(6, |byte| *byte == b' ');
    let mut field = |name: &str| {
        fields
            .next()
            .ok_or_else(|| ParseError::new(line, name, "missing"))
    };
    let range = field("address range")?;
    let flags = field("permissions")?;
    let offset = hex(field("offset")?, line, "offset")?;
    let device = field("device")?;
    let inode = number(field("inode")?, line, "inode")?;
    let name = field("path").unwrap_or_default().trim_ascii_start();

    let (start, end) = pair(range, b'-', line, "address range")?;
    if start >= end {
        let problem = format!("{} is empty or backwards", quoted(range));
        return Err(ParseError::new(line, "address range", problem));
    }
    let (major, minor) = pair(device, b':', line, "device")?;
    let part = |value: u64| {
        u32::try_from(value)
            .map_err(|_| ParseError::new(line, "device", format!("{value:x} is too large")))
    };
    let [
        r @ (b'r' | b'-'),
        w @ (b'w' | b'-'),
        x @ (b'x' | b'-'),
        s @ (b's' | b'p'),
    ] = flags
    else {
        let problem = format!("{} is not of the form \"rwxp\"", quoted(flags));
        return Err(ParseError::new(line, "permissions", problem));
    };
    let (name, deleted) = match name.strip_suffix(b" (deleted)") {
        Some(name) => (name, true),
        None => (name, false),
    };
    Ok(Mapping {
        start,
        end,
        read: *r == b'r',
        write: *w == b'w',
        execute: *x == b'x',
        shared: *s == b's',
        offset,
        device: (part(major)?, part(minor)?),
        inode,
        path: (!name.is_empty()).then(|| unescape(name)),
        deleted,
    })
}

fn pair(bytes: &[u8], separator: u8, line: usize, item: &str) -> Parsed<(u64, u64)> {
    let Some(middle) = bytes.iter().position(|byte| *byte == separator) else {
        let problem = format!(
            "{} has no \"{}\" in it",
            quoted(bytes),
            char::from(separator)
        );
        return Err(ParseError::new(line, item, problem));
    };
    Ok((
        hex(&bytes[..middle], line, item)?,
        hex(&bytes[middle + 1..], line, item)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn files_names_and_nothing() {
        let maps = parse(
            b"55d0c0a00000-55d0c0a21000 r-xp 00001000 fe:01 1234                   /usr/bin/a b\n\
              7f0000000000-7f0000200000 rw-s 00000000 00:01 99                     /memfd:x (deleted)\n\
              7f0000200000-7f0000201000 ---p 00000000 00:00 0 \n\
              7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                      [stack]\n\
              ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0              [vsyscall]\n",
        )
        .unwrap();
        assert_eq!(maps[0].path.as_deref(), Some(Path::new("/usr/bin/a b")));
        assert_eq!(maps[0].device, (0xfe, 1));
        assert_eq!((maps[0].offset, maps[0].len()), (0x1000, 0x21000));
        assert!(maps[0].execute && !maps[0].write && maps[0].is_file());
        assert!(maps[1].deleted && maps[1].shared);
        assert_eq!(maps[1].path.as_deref(), Some(Path::new("/memfd:x")));
        assert_eq!(maps[2].path, None);
        assert!(!maps[2].read && !maps[2].is_file());
        assert!(!maps[3].is_special());
        assert!(maps[4].is_special());
    }

    #[test]
    fn errors_name_line_and_field() {
        let says = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        let good = "1000-2000 rw-p 00000000 00:00 0 \n";
        assert_eq!(
            says(&format!("{good}{good}")),
            "2: address range: 1000 begins inside or before the mapping above"
        );
        assert_eq!(
            says("2000-1000 rw-p 0 0:0 0"),
            "1: address range: \"2000-1000\" is empty or backwards"
        );
        assert_eq!(
            says("1000-2000 rwp 0 0:0 0"),
            "1: permissions: \"rwp\" is not of the form \"rwxp\""
        );
        assert_eq!(says("1000-2000 rw-p 0 0:0"), "1: inode: missing");
        assert_eq!(
            says("1000-2000 rw-p 0 00 0"),
            "1: device: \"00\" has no \":\" in it"
        );
        assert_eq!(
            says("1000-zz rw-p 0 0:0 0"),
            "1: address range: \"zz\" is not a hexadecimal number"
        );
    }
}
