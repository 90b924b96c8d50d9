//! Which pages may be unmapped without a flush.
//!
//! The promise is that content does not change while somebody can still read it
//! through an old translation. So nobody may hold a translation that stores go
//! through, and whoever writes the content in another way must pass a place where
//! [`super::LazyFlush::force`] is called. A file that a server or another program
//! changes behind the kernel's back has no such place: those are refused, which
//! is the answer to the objection that was raised against the original.

use serde::Serialize;

/// What stands behind a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Backing {
    /// The process's own memory.
    Anonymous,
    /// A file whose writes all pass this kernel.
    File,
    /// A file that others change without this kernel taking part: a network or
    /// user-space file system.
    ForeignFile,
    /// Nothing that is known: not anonymous, and no file.
    Unknown,
}

/// What is asked about a page that is being unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PageFacts {
    /// Some entry that mapped it allowed stores.
    pub writable: bool,
    /// Base pages of the folio, as a power of two.
    pub order: u8,
    /// It belongs to a pool of reserved huge pages.
    pub hugetlb: bool,
    /// It lies in memory of a device.
    pub device: bool,
    /// The kernel overwrites pages as they become free (poisoning, zeroing).
    pub cleared_on_free: bool,
    /// What stands behind it.
    pub backing: Backing,
}

impl PageFacts {
    /// A base page of a local file that was mapped read-only: what lazy flushing
    /// is for.
    pub const READ_ONLY_FILE: PageFacts = PageFacts {
        writable: false,
        order: 0,
        hugetlb: false,
        device: false,
        cleared_on_free: false,
        backing: Backing::File,
    };
}

/// Why a page's translations are flushed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, thiserror::Error)]
pub enum Refusal {
    /// A store could go through an old translation.
    #[error("an entry that mapped the page allows stores")]
    Writable,
    /// Parts of it are reused on their own.
    #[error("the page is part of a larger folio")]
    Large,
    /// Reserved huge pages do not pass the free lists.
    #[error("the page belongs to a pool of huge pages")]
    Hugetlb,
    /// Device memory does not pass the free lists either.
    #[error("the page lies in memory of a device")]
    Device,
    /// Content changes the moment that the page is free.
    #[error("the kernel overwrites pages when they become free")]
    ClearedOnFree,
    /// Content may change with nobody to force the flush.
    #[error("the file changes without this kernel taking part")]
    Foreign,
    /// Nobody knows who would force the flush.
    #[error("the page is neither anonymous nor of a file")]
    Unknown,
}

/// Whether a page may be unmapped without a flush.
///
/// # Errors
///
/// The first reason why not.
pub fn eligible(page: &PageFacts) -> Result<(), Refusal> {
    let refusals = [
        (page.writable, Refusal::Writable),
        (page.hugetlb, Refusal::Hugetlb),
        (page.order > 0, Refusal::Large),
        (page.device, Refusal::Device),
        (page.cleared_on_free, Refusal::ClearedOnFree),
        (page.backing == Backing::ForeignFile, Refusal::Foreign),
        (page.backing == Backing::Unknown, Refusal::Unknown),
    ];
    match refusals.into_iter().find(|&(holds, _)| holds) {
        Some((_, refusal)) => Err(refusal),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_base_pages_may_wait() {
        let file = PageFacts::READ_ONLY_FILE;
        assert_eq!(eligible(&file), Ok(()));
        let anonymous = PageFacts {
            backing: Backing::Anonymous,
            ..file
        };
        assert_eq!(eligible(&anonymous), Ok(()));
    }

    #[test]
    fn each_single_reason_is_named() {
        let good = PageFacts::READ_ONLY_FILE;
        let backed = |backing| PageFacts { backing, ..good };
        let cases = [
            (
                PageFacts {
                    writable: true,
                    ..good
                },
                Refusal::Writable,
            ),
            (PageFacts { order: 9, ..good }, Refusal::Large),
            (
                PageFacts {
                    hugetlb: true,
                    ..good
                },
                Refusal::Hugetlb,
            ),
            (
                PageFacts {
                    device: true,
                    ..good
                },
                Refusal::Device,
            ),
            (
                PageFacts {
                    cleared_on_free: true,
                    ..good
                },
                Refusal::ClearedOnFree,
            ),
            (backed(Backing::ForeignFile), Refusal::Foreign),
            (backed(Backing::Unknown), Refusal::Unknown),
        ];
        for (page, refusal) in cases {
            assert_eq!(eligible(&page), Err(refusal));
        }
    }
}
