//! Whether a mapping that somebody else made may be unmapped page by page.
//!
//! `MADV_DONTNEED` on a page of a file that was never written to loses nothing.
//! On a private mapping that was written to, it loses what was written. So the
//! whole range must be mapped, readable, not writable, and of the very file.

use crate::error::Error;
use crate::kernel::{FileFacts, Kernel, Range};
use memtide_linux::fs::Root;
use memtide_linux::fs::proc::maps::{self, Mapping};
use memtide_linux::sys::pagemap::PagemapEntry;
use std::path::PathBuf;

/// The file's path if all is well.
pub(crate) fn judge(
    range: Range,
    offset: u64,
    facts: &FileFacts,
) -> Result<Option<PathBuf>, Error> {
    let wrong = |reason: String| Error::NotAdoptable {
        address: range.start,
        bytes: range.bytes,
        reason,
    };
    let page = rustix::param::page_size();
    if range.bytes == 0 || !range.start.is_multiple_of(page) || !offset.is_multiple_of(page as u64)
    {
        return Err(wrong("give whole pages, and at least one".to_owned()));
    }
    let bytes = Root::new("/")
        .read("proc/self/maps")
        .map_err(|error| wrong(error.to_string()))?
        .unwrap_or_default();
    let mappings = maps::parse(&bytes).map_err(|error| wrong(error.to_string()))?;
    judge_among(&mappings, range, offset, facts).map_err(wrong)
}

/// A private mapping that was written to once holds pages of its own, though it is
/// read-only by now; unmapping them would lose what was written.
pub(crate) fn nothing_of_its_own(kernel: &dyn Kernel, range: Range) -> Result<(), Error> {
    let page = rustix::param::page_size();
    let mut entries = vec![PagemapEntry::default(); 4096];
    for start in (range.start..range.end()).step_by(entries.len() * page) {
        let pages = ((range.end() - start) / page).min(entries.len());
        let wrong = match kernel.mapped(start, &mut entries[..pages]) {
            Err(errno) => Some(format!("its pages cannot be looked at: {errno}")),
            Ok(()) => entries[..pages]
                .iter()
                .any(|entry| entry.swapped() || entry.present() && !entry.file())
                .then(|| "holds pages that were written to: they would be lost".to_owned()),
        };
        if let Some(reason) = wrong {
            return Err(Error::NotAdoptable {
                address: range.start,
                bytes: range.bytes,
                reason,
            });
        }
    }
    Ok(())
}

fn judge_among(
    mappings: &[Mapping],
    range: Range,
    offset: u64,
    facts: &FileFacts,
) -> Result<Option<PathBuf>, String> {
    let (start, end) = (range.start as u64, range.end() as u64);
    let (mut at, mut path) = (start, None);
    for mapping in mappings.iter().filter(|m| m.end > start && m.start < end) {
        if mapping.start > at {
            break;
        }
        let place = format!("{:#x}", at);
        if !mapping.read {
            return Err(format!("not readable at {place}; map it PROT_READ"));
        }
        if mapping.write {
            return Err(format!(
                "writable at {place}: what is written would be lost; map it PROT_READ"
            ));
        }
        // Some file systems show another device number here than stat does.
        if mapping.inode != facts.inode {
            return Err(format!(
                "maps another file at {place}; give the file that is mapped"
            ));
        }
        if mapping.offset + (at - mapping.start) != offset + (at - start) {
            return Err(format!(
                "maps another part of the file at {place}; give its offset"
            ));
        }
        path = mapping.path.clone();
        at = mapping.end;
    }
    match at >= end {
        true => Ok(path),
        false => Err(format!(
            "nothing is mapped at {at:#x}; give mapped pages only"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: FileFacts = FileFacts {
        bytes: 0x8000,
        written: (0, 0),
        device: 1,
        inode: 77,
    };

    fn judged(text: &str, start: usize, bytes: usize, offset: u64) -> Result<(), String> {
        let mappings = maps::parse(text.as_bytes()).unwrap();
        judge_among(&mappings, Range { start, bytes }, offset, &FACTS).map(drop)
    }

    #[test]
    fn a_readable_mapping_of_the_file_is_taken() {
        let two = "10000-14000 r--s 00000000 08:01 77 /a\n14000-18000 r--p 00004000 08:01 77 /a\n";
        assert_eq!(judged(two, 0x10000, 0x8000, 0), Ok(()));
        assert_eq!(judged(two, 0x12000, 0x4000, 0x2000), Ok(()));
        assert!(
            judged(two, 0x12000, 0x4000, 0)
                .unwrap_err()
                .contains("another part")
        );
        assert!(
            judged(two, 0x12000, 0x8000, 0x2000)
                .unwrap_err()
                .contains("nothing is mapped at 0x18000")
        );
        assert!(
            judged(two, 0x8000, 0x4000, 0)
                .unwrap_err()
                .contains("nothing is mapped at 0x8000")
        );
    }

    #[test]
    fn what_would_lose_data_is_refused() {
        let text = |perms, inode| format!("10000-14000 {perms} 00000000 08:01 {inode} /a\n");
        let of = |text: String| judged(&text, 0x10000, 0x4000, 0).unwrap_err();
        assert!(of(text("rw-p", 77)).contains("writable"));
        assert!(of(text("---p", 77)).contains("not readable"));
        assert!(of(text("r--p", 78)).contains("another file"));
        assert!(of("10000-14000 r--p 00000000 00:00 0\n".to_owned()).contains("another file"));
    }
}
