//! Taking lines out of all caches, so that the next read of them asks memory.
//!
//! Memory of a measurement's own would otherwise have to be many times as large as
//! the caches, and lie idle on each node.

use super::node_memory::Line;

/// Whether this kind of processor lets programs do that.
pub const SUPPORTED: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Writes `line` back if it was changed, and has every cache forget it. When that is
/// done is not told: [`wait`] for it. Does nothing where it is not [`SUPPORTED`].
#[inline]
pub fn flush(line: &Line) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `clflush` of a line that is borrowed; it changes no content.
    unsafe {
        std::arch::asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: `dc civac` of a line that is borrowed; it changes no content, and Linux
    // lets programs use it.
    unsafe {
        std::arch::asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = line;
}

/// Waits until all lines that were flushed before are gone.
#[inline]
pub fn wait() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a fence.
    unsafe {
        std::arch::asm!("mfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier.
    unsafe {
        std::arch::asm!("dsb sy", options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_stays() {
        let mut lines = [Line([7; 8]); 4];
        lines[2].0[3] = 8;
        lines.iter().for_each(flush);
        wait();
        let sum: u64 = lines.iter().flat_map(|line| line.0).sum();
        assert_eq!(sum, 4 * 8 * 7 + 1);
    }
}
