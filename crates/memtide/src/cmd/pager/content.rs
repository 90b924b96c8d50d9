//! Files whose every byte is known: what `--make` writes and readers check.
//!
//! Word n (of 64 bits, little endian) is (n + 1) times an odd constant, modulo
//! 2^64. So no two words of a file are equal, and a page that shows another
//! page's bytes, or a part of one, or zeros, is wrong in every word.

use std::io::{self, Write};

/// Any odd number with its bits well mixed will do.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Words of a read: what the kernel calls a page on most machines.
pub const PAGE_WORDS: usize = 512;
/// Bytes of a read.
pub const PAGE_BYTES: u64 = 4096;

/// Word `index`.
pub fn word(index: u64) -> u64 {
    (index.wrapping_add(1)).wrapping_mul(STEP)
}

/// How many of `words`, the words of page `page`, are not what they should be.
/// `None` as a word stands for nothing that was read.
pub fn wrong_words(words: impl Iterator<Item = u64>, page: u64) -> usize {
    let mut right = word(page * PAGE_WORDS as u64);
    let mut differing = 0;
    for word in words {
        differing += usize::from(u64::from_le(word) != right);
        right = right.wrapping_add(STEP);
    }
    differing
}

/// Writes `bytes` bytes, whole pages. `progress` hears how many are written.
pub fn write(to: &mut impl Write, bytes: u64, mut progress: impl FnMut(u64)) -> io::Result<()> {
    let mut chunk = Vec::with_capacity(1 << 20);
    let mut at = 0;
    while at < bytes {
        chunk.clear();
        let end = (at + (1 << 20)).min(bytes);
        for index in at / 8..end / 8 {
            chunk.extend_from_slice(&word(index).to_le_bytes());
        }
        to.write_all(&chunk)?;
        at = end;
        progress(at);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    fn page(bytes: &[u8], page: usize) -> impl Iterator<Item = u64> {
        let words = bytes[page * 4096..][..4096].chunks_exact(8);
        words.map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
    }

    #[test]
    fn what_is_written_is_right_and_nothing_else() {
        let mut file = tempfile::tempfile().unwrap();
        write(&mut file, 3 << 19, |_| {}).unwrap();
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        // 1.5 MiB are 384 pages.
        assert_eq!(bytes.len(), 384 * 4096);
        for number in [0, 1, 255, 256, 383] {
            assert_eq!(wrong_words(page(&bytes, number), number as u64), 0);
            // Another page's bytes are wrong in every word, and so are zeros.
            assert_eq!(wrong_words(page(&bytes, number), 7), PAGE_WORDS);
        }
        assert_eq!(wrong_words(std::iter::repeat_n(0, 512), 0), 512);
        bytes[4096 + 77] ^= 1;
        assert_eq!(wrong_words(page(&bytes, 1), 1), 1);
    }
}
