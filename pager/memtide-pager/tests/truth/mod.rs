//! Files whose pages hold their own numbers, and small helpers.

#![allow(dead_code)]

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tempfile::NamedTempFile;

pub const PAGE: usize = 4096;

/// What page `page` of the file made with `seed` says of itself.
pub fn value(page: usize, seed: u64) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed
}

/// A page is its value, over and over.
pub fn page_of(page: usize, seed: u64) -> Vec<u8> {
    value(page, seed).to_le_bytes().repeat(PAGE / 8)
}

/// The value that a page holds, or where it holds two.
pub fn page_number(bytes: &[u8]) -> Result<u64, String> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // First, last, and some between: all words would make the test one of memory.
    let first = word(0);
    for at in [8, 504, 2048, 3000, PAGE - 8] {
        if word(at) != first {
            return Err(format!("{first:#x} at 0, {:#x} at {at}", word(at)));
        }
    }
    Ok(first)
}

/// On disk, so that its pages are clean.
pub fn numbered_file(pages: usize, seed: u64) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    let mut bytes = Vec::with_capacity(pages * PAGE);
    (0..pages).for_each(|page| bytes.extend_from_slice(&page_of(page, seed)));
    file.write_all(&bytes).unwrap();
    file.as_file().sync_all().unwrap();
    file
}

/// How long a test runs: `MEMTIDE_PAGER_SECONDS`, or `default`.
pub fn seconds(default: u64) -> u64 {
    match std::env::var("MEMTIDE_PAGER_SECONDS") {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("MEMTIDE_PAGER_SECONDS={text}: give a whole number")),
        Err(_) => default,
    }
}

/// SplitMix64.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// Tells other threads to end, also when this one panics.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
