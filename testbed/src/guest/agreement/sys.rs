//! The system calls under test, with every argument as the caller likes, and what the executor needs
//! around them. All `unsafe` of the executor stands here.
//!
//! The calls may be nonsense, but not harmful to this program: memory is mapped, unmapped and written
//! only inside [`ARENA`], which the program itself never uses; masks are read from and written to a
//! buffer that is larger than the kernel ever copies; all else changes only where pages lie.
//!
//! Every function returns what the kernel returned: 0 or more, or a negative error number.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Addresses that belong to the calls: below where the kernel puts programs, their heaps, libraries
/// and stacks.
pub const ARENA: Range<u64> = 0x1000_0000_0000..0x5000_0000_0000;

const PAGE: u64 = 4096;
const EFAULT: i64 = libc::EFAULT as i64;
const ENOMEM: i64 = libc::ENOMEM as i64;
/// Words of a mask buffer; the kernel copies at most one page of bits, 512 words.
pub const MASK_WORDS: usize = 1024;

/// Memory for a node mask, on both sides of a call.
#[derive(Debug)]
pub struct MaskBuffer(Box<[u64; MASK_WORDS]>);

impl MaskBuffer {
    /// A buffer of zeros.
    pub fn new() -> Self {
        Self(Box::new([0; MASK_WORDS]))
    }

    /// Fills it with `words`, followed by words of `rest`.
    pub fn fill(&mut self, words: impl Iterator<Item = u64>, rest: u64) {
        self.0.fill(rest);
        for (place, word) in self.0.iter_mut().zip(words) {
            *place = word;
        }
    }

    /// The words.
    pub fn words(&self) -> &[u64; MASK_WORDS] {
        &self.0
    }
}

/// What the pointer to a call's mask is.
#[derive(Debug, Clone, Copy)]
pub enum MaskPointer<'a> {
    /// Null.
    Null,
    /// An address where this program has nothing.
    Unreadable,
    /// A buffer.
    To(&'a MaskBuffer),
}

impl MaskPointer<'_> {
    fn raw(self) -> *const u64 {
        match self {
            Self::Null => std::ptr::null(),
            Self::Unreadable => std::ptr::without_provenance(ARENA.start as usize - 4096),
            Self::To(buffer) => buffer.0.as_ptr(),
        }
    }
}

/// What a system call returned, negated error numbers included.
fn answer(result: libc::c_long) -> i64 {
    if result == -1 {
        // SAFETY: the C library's own error number of this thread.
        -i64::from(unsafe { *libc::__errno_location() })
    } else {
        result
    }
}

/// set_mempolicy(2).
pub fn set_mempolicy(mode: i64, mask: MaskPointer<'_>, maxnode: u64) -> i64 {
    let mask = mask.raw();
    // SAFETY: no memory that the kernel may read, or a buffer longer than what it reads.
    answer(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, maxnode) })
}

/// mbind(2).
pub fn mbind(range: (u64, u64), mode: i64, mask: MaskPointer<'_>, maxnode: u64, flags: u32) -> i64 {
    let mask = mask.raw();
    let (start, length) = range;
    // SAFETY: the mask as in set_mempolicy; the range's contents do not change.
    answer(unsafe { libc::syscall(libc::SYS_mbind, start, length, mode, mask, maxnode, flags) })
}

/// set_mempolicy_home_node(2).
pub fn set_mempolicy_home_node(range: (u64, u64), node: u64, flags: u64) -> i64 {
    let call = libc::SYS_set_mempolicy_home_node;
    let (start, length) = range;
    // SAFETY: the range's contents do not change.
    answer(unsafe { libc::syscall(call, start, length, node, flags) })
}

/// get_mempolicy(2).
pub fn get_mempolicy(
    mode: Option<&mut i32>,
    mask: Option<&mut MaskBuffer>,
    maxnode: u64,
    address: u64,
    flags: u64,
) -> i64 {
    let mode = mode.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let mask = mask.map_or(std::ptr::null_mut(), |buffer| buffer.0.as_mut_ptr());
    // SAFETY: null, or a word and a buffer longer than what the kernel writes, both borrowed mutably.
    answer(unsafe { libc::syscall(libc::SYS_get_mempolicy, mode, mask, maxnode, address, flags) })
}

fn in_arena(start: u64, bytes: u64) -> bool {
    let end = start.checked_add(bytes);
    ARENA.contains(&start) && end.is_some_and(|end| end <= ARENA.end)
}

/// mmap(2) of private anonymous memory at `start`, which must be free and in the arena.
pub fn map(start: u64, bytes: u64) -> i64 {
    if !in_arena(start, bytes) {
        return -ENOMEM;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: NOREPLACE leaves what is mapped as it is.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            start,
            bytes,
            protection,
            flags,
            -1_i64,
            0_i64,
        )
    };
    answer(result).min(0)
}

/// munmap(2) in the arena.
pub fn unmap(start: u64, bytes: u64) -> i64 {
    if !in_arena(start, bytes) {
        return -i64::from(libc::EINVAL);
    }
    // SAFETY: nothing of this program lies in the arena.
    answer(unsafe { libc::syscall(libc::SYS_munmap, start, bytes) })
}

/// Writes a byte of `zeros` (/dev/zero) at `address` in the arena, as a store would, but with an error
/// where a store would end the program.
pub fn touch(zeros: BorrowedFd<'_>, address: u64) -> i64 {
    if !in_arena(address, 1) {
        return -EFAULT;
    }
    // SAFETY: nothing of this program lies in the arena.
    let result = unsafe { libc::syscall(libc::SYS_read, zeros.as_raw_fd(), address, 1_usize) };
    answer(result).min(0)
}

/// The node of the page at each address, or a negated error number.
pub fn nodes_of(addresses: &[u64], nodes: &mut [i32]) -> i64 {
    assert_eq!(addresses.len(), nodes.len());
    // SAFETY: both arrays have the length given; with null nodes nothing moves.
    answer(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            addresses.len(),
            addresses.as_ptr(),
            std::ptr::null::<i32>(),
            nodes.as_mut_ptr(),
            0,
        )
    })
}

/// Has every CPU put the pages that it keeps for later on the kernel's lists: move_pages(2) does, also
/// if no page is to move.
pub fn put_pages_on_lists() -> i64 {
    let nothing = std::ptr::NonNull::<i32>::dangling().as_ptr();
    let (myself, pages, flags) = (0, 0_usize, 0);
    let call = libc::SYS_move_pages;
    // SAFETY: of arrays without elements the kernel reads and writes nothing.
    answer(unsafe { libc::syscall(call, myself, pages, nothing, nothing, nothing, flags) })
}

/// The node of the kernel's page of zeros, which stands for memory that was only read.
///
/// # Errors
/// When the kernel does not say.
pub fn zero_page_node() -> io::Result<u32> {
    const F_NODE_OF_ADDR: u64 = 3;
    let refused = |ret: i64| io::Error::from_raw_os_error(-ret as i32);
    let ret = map(ARENA.start, PAGE);
    if ret < 0 {
        return Err(refused(ret));
    }
    let mut node = 0;
    let ret = get_mempolicy(Some(&mut node), None, 0, ARENA.start, F_NODE_OF_ADDR);
    unmap(ARENA.start, PAGE);
    match ret {
        0.. => Ok(node.cast_unsigned()),
        _ => Err(refused(ret)),
    }
}

/// No huge pages for this process and those that it starts.
///
/// # Errors
/// The kernel's.
pub fn without_huge_pages() -> io::Result<()> {
    // SAFETY: this option takes numbers and touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Gives up CAP_SYS_NICE.
///
/// # Errors
/// The kernel's.
pub fn drop_nice() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_SYS_NICE: u32 = 23;
    let header = [VERSION_3, 0];
    // Effective, permitted, inheritable; once for the low 32 rights and once for the others.
    let mut sets = [0_u32; 6];
    // SAFETY: the header's version asks for exactly two sets of three words.
    let got =
        answer(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) });
    for set in &mut sets[..3] {
        *set &= !(1 << CAP_SYS_NICE);
    }
    // SAFETY: as above, read only.
    let set = answer(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) });
    match got.min(set) {
        0 => Ok(()),
        refused => Err(io::Error::from_raw_os_error(-refused as i32)),
    }
}

/// Has `pid` run on `cpus` only.
///
/// # Errors
/// The kernel's, as when there is none.
pub fn run_on(pid: i32, cpus: &[u32]) -> io::Result<()> {
    // SAFETY: a set of bits, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < 1024) {
        // SAFETY: below the number of its bits.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: the set outlives the call.
    let result = unsafe { libc::sched_setaffinity(pid, size_of_val(&set), &raw const set) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Words that a process shares with its children, there from the start.
#[derive(Debug)]
pub struct SharedWords {
    start: *mut u64,
    words: usize,
}

impl SharedWords {
    /// Zeros.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(words: usize) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping anywhere.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), words * 8, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: start.cast(),
            words,
        })
    }

    /// Reads one.
    pub fn get(&self, index: usize) -> u64 {
        assert!(index < self.words);
        // SAFETY: inside the mapping, aligned; volatile because another process writes it.
        unsafe { self.start.add(index).read_volatile() }
    }

    /// Writes one.
    pub fn set(&self, index: usize, word: u64) {
        assert!(index < self.words);
        // SAFETY: as in `get`; no reference into the mapping exists.
        unsafe { self.start.add(index).write_volatile(word) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and no reference into it exists.
        unsafe { libc::munmap(self.start.cast(), self.words * 8) };
    }
}

/// `malloc` of so many bytes, never freed, with the first byte of each page written if `whole`, else
/// of the first page; the address.
pub fn eat(bytes: usize, whole: bool) -> usize {
    // SAFETY: the C library's allocation; volatile writes stay inside it.
    unsafe {
        let start = libc::malloc(bytes).cast::<u8>();
        assert!(!start.is_null(), "no memory");
        let end = if whole { bytes } else { 1 };
        for at in (0..end).step_by(PAGE as usize) {
            start.add(at).write_volatile(1);
        }
        start.add(end - 1).write_volatile(1);
        start as usize
    }
}
