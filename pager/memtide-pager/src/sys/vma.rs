//! What is mapped at an address, asked by one `ioctl` on the process's maps file
//! (`PROCMAP_QUERY`, Linux 6.11).

use super::{Errno, check};
use memtide_linux::fs::proc::maps::Mapping;
use std::os::fd::{AsFd, AsRawFd};

/// `_IOWR('f', 17, struct procmap_query)` of `linux/fs.h`.
const PROCMAP_QUERY: libc::Ioctl = 0xc068_6611u32 as libc::Ioctl;
/// Flags of what was found: `PROCMAP_QUERY_VMA_READABLE` and its kin.
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
/// `PROCMAP_QUERY_COVERING_OR_NEXT_VMA`.
const OR_NEXT: u64 = 0x10;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// A mapping of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vma {
    pub start: usize,
    pub end: usize,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    /// Writes would reach the file: no page of it is anybody's own.
    pub shared: bool,
    /// Byte of the file at `start`.
    pub offset: u64,
    /// 0 if it maps no file.
    pub inode: u64,
}

impl Vma {
    pub fn covers(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

impl From<&Mapping> for Vma {
    fn from(mapping: &Mapping) -> Vma {
        Vma {
            start: mapping.start as usize,
            end: mapping.end as usize,
            readable: mapping.read,
            writable: mapping.write,
            executable: mapping.execute,
            shared: mapping.shared,
            offset: mapping.offset,
            inode: mapping.inode,
        }
    }
}

/// The one of `vmas`, which ascend, that covers `address`; `ENOENT` if none does.
pub(crate) fn among(vmas: &[Vma], address: usize) -> Result<Vma, Errno> {
    let behind = vmas.partition_point(|vma| vma.end <= address);
    let found = vmas.get(behind).filter(|vma| vma.start <= address);
    found.copied().ok_or(Errno::NOENT)
}

/// The mapping that covers `address`; `ENOENT` if none does, `ENOTTY` before
/// Linux 6.11. `maps` is this process's `/proc/self/maps`.
pub(crate) fn at(maps: &impl AsFd, address: usize) -> Result<Vma, Errno> {
    ask(maps, address, 0)
}

/// The same, or the next one behind.
pub(crate) fn at_or_behind(maps: &impl AsFd, address: usize) -> Result<Vma, Errno> {
    ask(maps, address, OR_NEXT)
}

fn ask(maps: &impl AsFd, address: usize, query_flags: u64) -> Result<Vma, Errno> {
    let mut query = Query {
        size: size_of::<Query>() as u64,
        query_flags,
        query_addr: address as u64,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes the struct, whose size it is told.
    let result = unsafe { libc::ioctl(maps.as_fd().as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    check(result.into())?;
    Ok(Vma {
        start: query.vma_start as usize,
        end: query.vma_end as usize,
        readable: query.vma_flags & READABLE != 0,
        writable: query.vma_flags & WRITABLE != 0,
        executable: query.vma_flags & EXECUTABLE != 0,
        shared: query.vma_flags & SHARED != 0,
        offset: query.vma_offset,
        inode: query.inode,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn own_memory_is_found() {
        let maps = File::open("/proc/self/maps").unwrap();
        let word = Box::new(7u64);
        let address = &raw const *word as usize;
        match at(&maps, address) {
            Ok(vma) => {
                assert!(vma.writable && vma.inode == 0);
                assert!((vma.start..vma.end).contains(&address));
                assert_eq!(at(&maps, 0), Err(Errno::NOENT));
            }
            Err(errno) => {
                assert_eq!(errno, Errno::NOTTY);
                println!("skipped: this kernel has no PROCMAP_QUERY");
            }
        }
    }
}
