//! Memory of this process's own on a node of its choice, for measuring it.
//!
//! Made of [`Line`]s, the unit in which memory is read and written, and in
//! huge pages where the kernel has some: otherwise a measurement would be one
//! of the translation of addresses too. The pages are made there at once, so that
//! nothing of that is measured either; a node that has not enough of them is an
//! error here and not a signal later.

use super::{Errno, mempolicy};
use memtide_core::units::NodeId;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::null_mut;

/// Bytes in a line of cache. A machine whose lines are longer is measured as
/// well, two lines of ours at a time.
pub const LINE_BYTES: usize = 64;

/// What x86 and most of the others call a huge page.
const HUGE_BYTES: usize = 2 << 20;

/// `MPOL_BIND`: these nodes and no others.
const BIND: u32 = 2;

/// A line of cache.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line(pub [u64; LINE_BYTES / 8]);

/// A private anonymous mapping on one node.
#[derive(Debug)]
pub struct NodeMemory {
    map: *mut c_void,
    map_bytes: usize,
    /// The first huge page of the map.
    lines: *mut Line,
    count: usize,
}

// SAFETY: the mapping belongs to no thread; references to its lines follow the
// rules of references, because they borrow the one owner.
unsafe impl Send for NodeMemory {}
// SAFETY: as above.
unsafe impl Sync for NodeMemory {}

impl NodeMemory {
    /// Maps `bytes`, rounded up to whole huge pages, with every page made and on
    /// `node`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, or if this process may not use the node or it has
    /// no memory; `ENOMEM` if it has not enough.
    pub fn map(bytes: usize, node: NodeId) -> Result<NodeMemory, Errno> {
        let bytes = bytes
            .checked_next_multiple_of(HUGE_BYTES)
            .filter(|bytes| *bytes > 0)
            .ok_or(Errno::INVAL)?;
        // Room for the first huge page to begin where one can.
        let map_bytes = bytes.checked_add(HUGE_BYTES).ok_or(Errno::NOMEM)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let map = unsafe { rustix::mm::mmap_anonymous(null_mut(), map_bytes, protection, flags) }?;
        let skipped = (map as usize).next_multiple_of(HUGE_BYTES) - map as usize;
        let memory = NodeMemory {
            map,
            map_bytes,
            // SAFETY: `skipped` is below the huge page that was mapped more.
            lines: unsafe { map.byte_add(skipped) }.cast(),
            count: bytes / LINE_BYTES,
        };
        let mut mask = [0; mempolicy::MASK_WORDS];
        let word = mask.get_mut(node.index() / 64).ok_or(Errno::INVAL)?;
        *word = 1 << (node.index() % 64);
        mempolicy::mbind(memory.address(), memory.bytes(), BIND, &mask, 0)?;
        // A kernel without huge pages refuses, and then there are none.
        let _ = memory.advise(Advice::LinuxHugepage);
        match memory.advise(Advice::LinuxPopulateWrite) {
            // Before 5.14 pages are made by touching them.
            Err(Errno::INVAL) => memory.touch(),
            other => other?,
        }
        Ok(memory)
    }

    /// Address of the first byte, a huge page's.
    pub fn address(&self) -> usize {
        self.lines as usize
    }

    /// How many bytes, in whole huge pages.
    pub fn bytes(&self) -> usize {
        self.count * LINE_BYTES
    }

    /// All of it.
    pub fn lines(&self) -> &[Line] {
        // SAFETY: `count` lines inside the mapping, which lives as long as
        // `self`, aligned to a huge page; any bytes are a line.
        unsafe { std::slice::from_raw_parts(self.lines, self.count) }
    }

    /// All of it, to write.
    pub fn lines_mut(&mut self) -> &mut [Line] {
        // SAFETY: as in `lines`; borrowed mutably as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.lines, self.count) }
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: our own mapping; the two pieces of advice given above make
        // pages and change no content.
        unsafe { rustix::mm::madvise(self.lines.cast(), self.bytes(), advice) }
    }

    fn touch(&self) {
        for page in 0..self.bytes() / 4096 {
            // SAFETY: inside the mapping, which nobody else has a reference to
            // yet.
            unsafe { self.lines.cast::<u8>().add(page * 4096).write_volatile(0) };
        }
    }
}

impl Drop for NodeMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; references to its lines
        // cannot outlive `self`. The result is of no use: the range is ours.
        let _ = unsafe { rustix::mm::munmap(self.map, self.map_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_there_and_on_the_node() {
        let allowed = mempolicy::get_allowed().unwrap();
        let word = allowed.iter().position(|word| *word != 0).unwrap();
        let node = NodeId((word * 64) as u16 + allowed[word].trailing_zeros() as u16);
        let mut memory = NodeMemory::map(3 << 20, node).unwrap();
        assert_eq!(memory.bytes(), 4 << 20);
        assert_eq!(memory.address() % HUGE_BYTES, 0);
        for line in memory.lines_mut() {
            line.0[7] = 1;
        }
        let sum: u64 = memory.lines().iter().map(|line| line.0[7]).sum();
        assert_eq!(sum, (4 << 20) / 64);
        for address in (memory.address()..).step_by(4096).take(1024) {
            assert_eq!(mempolicy::get_node_of(address), Ok(u32::from(node.0)));
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        assert_eq!(NodeMemory::map(0, NodeId(0)).unwrap_err(), Errno::INVAL);
        // No kernel has this node.
        assert_eq!(NodeMemory::map(1, NodeId(1023)).unwrap_err(), Errno::INVAL);
        assert_eq!(
            NodeMemory::map(1, NodeId(60_000)).unwrap_err(),
            Errno::INVAL
        );
        assert_eq!(
            NodeMemory::map(usize::MAX, NodeId(0)).unwrap_err(),
            Errno::INVAL
        );
    }
}
