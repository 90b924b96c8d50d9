//! A node mask as a system call gets it: an address and a number of bits.
//!
//! `maxnode` is one more than the number of bits that count, an old mistake
//! that became the interface. The kernel copies whole 64-bit words. Where the
//! caller names more bits than the kernel has nodes, the words beyond are read
//! first, from the last one down, and must be zero *whole*: there even a bit
//! past `maxnode - 1` is an error, elsewhere it is ignored.

use super::errno::Errno;
use crate::nodemask::NodeMask;
use crate::units::{NodeId, PageSize};

/// Bits in a mask that the kernel keeps (`MAX_NUMNODES`).
const KERNEL_BITS: u64 = NodeId::LIMIT as u64;

/// What a caller's mask pointer points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawMask {
    /// The null pointer.
    Null,
    /// These words, and zeros behind them.
    Words(Vec<u64>),
    /// Memory that cannot be read.
    Unreadable,
}

impl RawMask {
    /// The mask of these nodes.
    pub fn of(nodes: &NodeMask) -> RawMask {
        let mut words = vec![0; usize::from(NodeId::LIMIT) / 64];
        for node in nodes.iter() {
            words[node.index() / 64] |= 1u64 << (node.index() % 64);
        }
        RawMask::Words(words)
    }

    /// The nodes that the kernel reads out of it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `maxnode - 1` is more than a page of bits (so too for
    /// `maxnode` 0, which wraps around) or a node beyond the kernel's last is
    /// named; `EFAULT` if the memory cannot be read.
    pub fn nodes(&self, maxnode: u64, page: PageSize) -> Result<NodeMask, Errno> {
        let bits = maxnode.wrapping_sub(1);
        if bits == 0 || *self == RawMask::Null {
            return Ok(NodeMask::EMPTY);
        }
        if bits > 8 * page.bytes() {
            return Err(Errno::EINVAL);
        }
        let RawMask::Words(words) = self else {
            return Err(Errno::EFAULT);
        };
        let word = |i: u64| words.get(i as usize).copied().unwrap_or(0);
        let kept = bits.min(KERNEL_BITS);
        if (kept / 64..bits.div_ceil(64)).any(|i| bits > KERNEL_BITS && word(i) != 0) {
            return Err(Errno::EINVAL);
        }
        Ok((0..kept)
            .filter(|bit| word(bit / 64) >> (bit % 64) & 1 == 1)
            .map(|bit| NodeId(bit as u16))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[u64], maxnode: u64) -> Result<String, Errno> {
        RawMask::Words(words.to_vec())
            .nodes(maxnode, PageSize::KIB_4)
            .map(|n| n.to_string())
    }

    #[test]
    fn one_bit_fewer_than_maxnode_counts() {
        assert_eq!(read(&[0b111], 3).unwrap(), "0-1");
        assert_eq!(read(&[0b111], 1).unwrap(), "");
        assert_eq!(read(&[0b111], 0), Err(Errno::EINVAL));
        assert_eq!(read(&[u64::MAX; 16], 1025).unwrap(), "0-1023");
        for maxnode in [0, 1, 64, u64::MAX] {
            let null = RawMask::Null.nodes(maxnode, PageSize::KIB_4);
            assert_eq!(null, Ok(NodeMask::EMPTY));
        }
        for (maxnode, result) in [(1, Ok(NodeMask::EMPTY)), (2, Err(Errno::EFAULT))] {
            assert_eq!(RawMask::Unreadable.nodes(maxnode, PageSize::KIB_4), result);
        }
    }

    #[test]
    fn words_beyond_the_kernels_last_node_must_be_zero_whole() {
        let mut words = vec![0; 513];
        words[0] = 1;
        // 8 * 4096 bits are the most that is looked at.
        assert_eq!(read(&words, 32_769).unwrap(), "0");
        assert_eq!(read(&words, 32_770), Err(Errno::EINVAL));
        words[16] = 1 << 63;
        assert_eq!(read(&words, 1025).unwrap(), "0");
        // Bit 1087 lies far past maxnode 1026, but in a word that is read.
        assert_eq!(read(&words, 1026), Err(Errno::EINVAL));
        // Below, what lies past maxnode is ignored.
        assert_eq!(read(&[0, u64::MAX], 65).unwrap(), "");
    }
}
