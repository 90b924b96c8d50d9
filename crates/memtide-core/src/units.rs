//! The quantities that the rest of the crate counts in.
//!
//! An index, a count and a size are different types, so that the compiler
//! refuses to add a page number to a number of bytes.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A NUMA node's id, as the kernel numbers it. Ids may have holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u16);

impl NodeId {
    /// Node ids are below this: ten bits, the kernel's own largest `NODES_SHIFT`.
    pub const LIMIT: u16 = 1024;

    /// The id as an index into an array with one slot a node.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A page's index in a dense space of pages. What the space means is the
/// backend's business: frame numbers on the simulated machine, slots of the
/// watched mappings on a live one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageNumber(pub u64);

/// A moment, in milliseconds since an origin that the caller chose.
///
/// Records keep only the low bits of it, so the origin does not matter, but
/// one store must see one origin.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// Milliseconds from `earlier` to here, zero if `earlier` is later.
    pub fn since(self, earlier: Millis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The size of a base page in bytes: a power of two of at least 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct PageSize(u32);

impl TryFrom<u32> for PageSize {
    type Error = &'static str;

    fn try_from(bytes: u32) -> Result<PageSize, &'static str> {
        PageSize::new(bytes).ok_or("a page has 4096 to 65536 bytes, a power of two")
    }
}

impl From<PageSize> for u32 {
    fn from(page: PageSize) -> u32 {
        page.0
    }
}

impl PageSize {
    /// 4 KiB, x86's only base page.
    pub const KIB_4: PageSize = PageSize(4096);

    /// `bytes` as a page size, or `None` if no Linux machine has such pages.
    pub fn new(bytes: u32) -> Option<PageSize> {
        (bytes.is_power_of_two() && (4096..=65536).contains(&bytes)).then_some(PageSize(bytes))
    }

    /// The size in bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.0)
    }

    /// The base-two logarithm of the size.
    pub fn shift(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// How many whole pages `bytes` are.
    pub fn pages(self, bytes: u64) -> u64 {
        bytes >> self.shift()
    }
}
