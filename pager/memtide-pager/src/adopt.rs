//! Whether a mapping that somebody else made may be unmapped page by page.
//!
//! `MADV_DONTNEED` on a page of a file that was never written to loses nothing.
//! On a private mapping that was written to, it loses what was written. So the
//! whole range must be mapped, readable, not writable, and of the very file.

use crate::error::Error;
use crate::kernel::{FileFacts, Kernel, Range};
use crate::sys::Errno;
use crate::sys::vma::{Vma, among};
use memtide_linux::sys::pagemap::PagemapEntry;

/// What lies where: asked for each address, or, where the kernel answers no single
/// question, read once for all that are judged together.
pub(crate) struct Layout<'a> {
    kernel: &'a dyn Kernel,
    read: Option<Vec<Vma>>,
}

impl Layout<'_> {
    pub fn of(kernel: &dyn Kernel) -> Layout<'_> {
        Layout { kernel, read: None }
    }

    pub fn at(&mut self, address: usize) -> Result<Vma, Errno> {
        if self.read.is_none() {
            match self.kernel.query(address) {
                Err(Errno::NOTTY) => self.read = Some(self.kernel.vmas()?),
                other => return other,
            }
        }
        among(self.read.as_deref().unwrap_or_default(), address)
    }

    /// Where the next mapping behind `address` begins, at which there is none. All answers
    /// from then on are those of one reading of all mappings.
    pub fn end_of_hole(&mut self, address: usize) -> Result<usize, Errno> {
        let vmas = match &self.read {
            Some(vmas) => vmas,
            None => self.read.insert(self.kernel.vmas()?),
        };
        let next = vmas.partition_point(|vma| vma.end <= address);
        Ok(vmas.get(next).map_or(usize::MAX, |vma| vma.start))
    }
}

/// The pages that `bytes` bytes at `address` take.
pub(crate) fn pages(address: usize, bytes: usize, offset: u64) -> Result<Range, Error> {
    let page = rustix::param::page_size();
    let wrong = |reason: &str| Error::NotAdoptable {
        address,
        bytes,
        reason: reason.to_owned(),
    };
    if bytes == 0 || !address.is_multiple_of(page) || !offset.is_multiple_of(page as u64) {
        return Err(wrong("give whole pages, and at least one"));
    }
    bytes
        .checked_next_multiple_of(page)
        .filter(|whole| address.checked_add(*whole).is_some())
        .filter(|whole| offset.checked_add(*whole as u64).is_some())
        .map(|bytes| Range {
            start: address,
            bytes,
        })
        .ok_or_else(|| wrong("goes beyond the last address or the last byte of any file"))
}

/// Whether `range` may be unmapped page by page.
pub(crate) fn judge(
    layout: &mut Layout<'_>,
    range: Range,
    offset: u64,
    facts: &FileFacts,
) -> Result<(), Error> {
    let wrong = |reason: String| Error::NotAdoptable {
        address: range.start,
        bytes: range.bytes,
        reason,
    };
    let shared = judge_among(|at| layout.at(at), range, offset, facts).map_err(wrong)?;
    match shared {
        true => Ok(()),
        false => nothing_of_its_own(layout.kernel, range),
    }
}

/// A private mapping that was written to once holds pages of its own, though it is
/// read-only by now; unmapping them would lose what was written.
fn nothing_of_its_own(kernel: &dyn Kernel, range: Range) -> Result<(), Error> {
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

/// Whether all of it is a shared mapping, in which no page can have been written to.
fn judge_among(
    mut vma_at: impl FnMut(usize) -> Result<Vma, Errno>,
    range: Range,
    offset: u64,
    facts: &FileFacts,
) -> Result<bool, String> {
    let (mut at, mut shared) = (range.start, true);
    while at < range.end() {
        let place = format!("{at:#x}");
        let vma = vma_at(at).map_err(|errno| match errno {
            Errno::NOENT => format!("nothing is mapped at {place}; give mapped pages only"),
            errno => format!("the kernel does not say what is mapped at {place}: {errno}"),
        })?;
        if !vma.readable {
            return Err(format!("not readable at {place}; map it PROT_READ"));
        }
        if vma.writable {
            return Err(format!(
                "writable at {place}: what is written would be lost; map it PROT_READ"
            ));
        }
        // Some file systems show another device number here than stat does.
        if vma.inode != facts.inode {
            return Err(format!(
                "maps another file at {place}; give the file that is mapped"
            ));
        }
        if vma.offset + (at - vma.start) as u64 != offset + (at - range.start) as u64 {
            return Err(format!(
                "maps another part of the file at {place}; give its offset"
            ));
        }
        shared &= vma.shared;
        at = vma.end;
    }
    Ok(shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_linux::fs::proc::maps;

    const FACTS: FileFacts = FileFacts {
        bytes: 0x8000,
        written: (0, 0),
        device: 1,
        inode: 77,
    };

    fn judged(text: &str, start: usize, bytes: usize, offset: u64) -> Result<bool, String> {
        let mappings = maps::parse(text.as_bytes()).unwrap();
        let vmas: Vec<Vma> = mappings.iter().map(Vma::from).collect();
        let range = Range { start, bytes };
        judge_among(|at| among(&vmas, at), range, offset, &FACTS)
    }

    #[test]
    fn a_readable_mapping_of_the_file_is_taken() {
        let two = "10000-14000 r--s 00000000 08:01 77 /a\n14000-18000 r--p 00004000 08:01 77 /a\n";
        assert_eq!(judged(two, 0x10000, 0x4000, 0), Ok(true));
        // The second is private: its pages have to be looked at.
        assert_eq!(judged(two, 0x12000, 0x4000, 0x2000), Ok(false));
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

    #[test]
    fn what_goes_beyond_the_last_address_is_refused() {
        let page = rustix::param::page_size();
        let last = usize::MAX - page + 1;
        for (address, bytes, offset) in [
            (last, 2 * page, 0),
            (last, page, 0),
            (page, usize::MAX, 0),
            (page, usize::MAX - page + 2, 0),
            (page, page, u64::MAX - page as u64 + 1),
        ] {
            let error = pages(address, bytes, offset).unwrap_err().to_string();
            assert!(error.contains("goes beyond"), "{error}");
        }
        assert_eq!(pages(page, 1, 0).unwrap().bytes, page);
    }
}
