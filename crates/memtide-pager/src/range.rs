//! A part of this process's address space.

/// Addresses of this process; the layout of `struct iovec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Range {
    pub start: usize,
    pub bytes: usize,
}

impl Range {
    /// One past its last address; the last address there is for a range that would
    /// go beyond it, which the kernel maps nothing at.
    pub fn end(&self) -> usize {
        self.start.saturating_add(self.bytes)
    }
}
