//! `get_mempolicy(2)`, `set_mempolicy(2)`, `mbind(2)`,
//! `set_mempolicy_home_node(2)`: the caller's own memory policy, raw.
//!
//! A mode is the kernel's number with its flags in it (`MPOL_BIND |
//! MPOL_F_NUMA_BALANCING` is 0x2002); what is valid is the kernel's to say, and
//! `memtide_core::mempolicy` predicts it. A nodemask is words of 64 nodes, node
//! 0 in the lowest bit of the first word.
//!
//! The kernel takes the number of bits *plus one*, a mistake of long ago that
//! programs depend on. Only this file knows.

use super::{Errno, check};

/// Words in a mask that holds every node of every kernel (`NODES_SHIFT` <= 10).
pub const MASK_WORDS: usize = 16;

/// A nodemask large enough for any answer.
pub type Mask = [u64; MASK_WORDS];

/// `mbind`: fail with `EIO` if a page is where the policy forbids it.
pub const MF_STRICT: u32 = 1 << 0;
/// Mode: take pages from where the thread runs.
pub const DEFAULT: u32 = 0;
/// Mode: take pages from any of these nodes first, and from others when they
/// are full (Linux 5.15 and later).
pub const PREFERRED_MANY: u32 = 5;
/// `mbind`: move pages that only this process maps.
pub const MF_MOVE: u32 = 1 << 1;
/// `mbind`: move shared pages too; needs `CAP_SYS_NICE`.
pub const MF_MOVE_ALL: u32 = 1 << 2;

const F_NODE: u64 = 1;
const F_ADDR: u64 = 2;
const F_MEMS_ALLOWED: u64 = 4;

/// The calling thread's mode and nodemask.
pub fn get_policy() -> Result<(u32, Mask), Errno> {
    get(0, 0)
}

/// Mode and nodemask that hold at `address` of this process.
pub fn get_policy_at(address: usize) -> Result<(u32, Mask), Errno> {
    get(address, F_ADDR)
}

/// The nodes that the calling thread's cpuset allows.
pub fn get_allowed() -> Result<Mask, Errno> {
    get(0, F_MEMS_ALLOWED).map(|(_, mask)| mask)
}

/// The node of the page at `address` of this process. An untouched page is
/// allocated to answer.
pub fn get_node_of(address: usize) -> Result<u32, Errno> {
    get(address, F_NODE | F_ADDR).map(|(node, _)| node)
}

fn get(address: usize, flags: u64) -> Result<(u32, Mask), Errno> {
    let mut mode: libc::c_int = 0;
    let mut mask: Mask = [0; MASK_WORDS];
    // SAFETY: `mode` and `mask` outlive the call and the kernel writes one int
    // and at most `bits - 1` bits of mask, which is what `mask` holds. The
    // address is only looked up.
    check(unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            mask.as_mut_ptr(),
            bits(&mask),
            address,
            flags,
        )
    })?;
    Ok((mode.cast_unsigned(), mask))
}

/// Sets the calling thread's policy. An empty slice passes no mask at all.
pub fn set_policy(mode: u32, mask: &[u64]) -> Result<(), Errno> {
    // SAFETY: the kernel reads `mask.len() * 64` bits; a policy changes where
    // later pages lie, not what memory holds.
    check(unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::c_long::from(mode),
            pointer(mask),
            bits(mask),
        )
    })
    .map(drop)
}

/// Sets the policy of `bytes` bytes at `address` (page-aligned) of this
/// process. `flags` is a sum of [`MF_STRICT`], [`MF_MOVE`], [`MF_MOVE_ALL`].
pub fn mbind(
    address: usize,
    bytes: usize,
    mode: u32,
    mask: &[u64],
    flags: u32,
) -> Result<(), Errno> {
    // SAFETY: as in `set_policy`; pages that move keep contents and address.
    check(unsafe {
        libc::syscall(
            libc::SYS_mbind,
            address,
            bytes,
            libc::c_long::from(mode),
            pointer(mask),
            bits(mask),
            libc::c_long::from(flags),
        )
    })
    .map(drop)
}

/// Sets the node that a `BIND` or `PREFERRED_MANY` range takes pages from
/// first (Linux 5.17+).
pub fn set_home_node(address: usize, bytes: usize, node: u32) -> Result<(), Errno> {
    // SAFETY: numbers only; the range is looked up in this process.
    check(unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy_home_node,
            address,
            bytes,
            libc::c_ulong::from(node),
            0 as libc::c_ulong,
        )
    })
    .map(drop)
}

fn pointer(mask: &[u64]) -> *const u64 {
    if mask.is_empty() {
        std::ptr::null()
    } else {
        mask.as_ptr()
    }
}

/// The `maxnode` argument: one more than the bits in the mask, 0 for no mask.
fn bits(mask: &[u64]) -> u64 {
    if mask.is_empty() {
        0
    } else {
        mask.len() as u64 * 64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: u32 = 0;
    const BIND: u32 = 2;

    /// Runs `test` on a thread of its own, because a policy belongs to a thread.
    fn isolated(test: impl FnOnce() + Send + 'static) {
        if let Err(errno) = get_policy() {
            eprintln!("not tested: get_mempolicy is unusable here: {errno}");
            return;
        }
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_policy_that_was_set_is_the_policy_that_is_read() {
        isolated(|| {
            let allowed = get_allowed().unwrap();
            let word = allowed.iter().position(|&w| w != 0).unwrap();
            let mut mask: Mask = [0; MASK_WORDS];
            mask[word] = allowed[word] & allowed[word].wrapping_neg();
            set_policy(BIND, &mask).unwrap();
            assert_eq!(get_policy().unwrap(), (BIND, mask));
            set_policy(DEFAULT, &[]).unwrap();
            assert_eq!(get_policy().unwrap(), (DEFAULT, [0; MASK_WORDS]));
        });
    }

    #[test]
    fn the_highest_bit_of_a_word_is_not_lost() {
        assert_eq!(bits(&[1 << 63]), 65);
        assert_eq!(bits(&[]), 0);
        // A mask of one word is as good as one of sixteen, where it suffices.
        isolated(|| {
            let allowed = get_allowed().unwrap();
            if allowed[0] != 0 {
                assert_eq!(set_policy(BIND, &allowed[..1]), Ok(()));
            }
        });
    }

    #[test]
    fn a_range_takes_a_policy_of_its_own() {
        isolated(|| {
            let page = rustix::param::page_size();
            let memory = vec![1u8; 3 * page];
            let start = (memory.as_ptr() as usize).next_multiple_of(page);
            let allowed = get_allowed().unwrap();
            mbind(start, page, BIND, &allowed, 0).unwrap();
            assert_eq!(get_policy_at(start).unwrap().0, BIND);
            let node = get_node_of(start).unwrap() as usize;
            assert_ne!(allowed[node / 64] >> (node % 64) & 1, 0);
            mbind(start, page, DEFAULT, &[], 0).unwrap();
            assert_eq!(get_policy_at(start).unwrap().0, DEFAULT);
        });
    }

    #[test]
    fn an_invalid_mode_is_the_kernels_einval() {
        isolated(|| assert_eq!(set_policy(77, &[]), Err(Errno::INVAL)));
    }
}
