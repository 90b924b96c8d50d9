//! What becomes of a call, decided from its arguments alone.
//!
//! Kept is what reads a regular file and never writes: `PROT_READ` and nothing
//! else, shared or private. Everything else goes to the kernel as it came.
//! Calls that would bring a whole file into memory at once would break the
//! budget: where they are only advice they are answered and not done; where
//! they are a promise, as `mlock` is, they are refused with the error that the
//! kernel gives when there is not enough memory for it.

use libc::c_int;
use memtide_pager::ReadOrder;

/// Whether a new mapping is one that may be kept, if its file is wanted.
pub fn may_keep(length: usize, prot: c_int, flags: c_int, fd: c_int) -> bool {
    const KINDS: [c_int; 3] = [
        libc::MAP_SHARED,
        libc::MAP_PRIVATE,
        libc::MAP_SHARED_VALIDATE,
    ];
    const FINE: c_int = libc::MAP_TYPE
        | libc::MAP_FIXED
        | libc::MAP_FIXED_NOREPLACE
        | libc::MAP_POPULATE
        | libc::MAP_NONBLOCK
        | libc::MAP_NORESERVE
        | libc::MAP_DENYWRITE
        | libc::MAP_EXECUTABLE;
    prot == libc::PROT_READ
        && fd >= 0
        && length > 0
        && flags & !FINE == 0
        && KINDS.contains(&(flags & libc::MAP_TYPE))
}

/// Whether the program asked for a private mapping.
pub fn is_private(flags: c_int) -> bool {
    flags & libc::MAP_TYPE == libc::MAP_PRIVATE
}

/// The flags with which a kept mapping is made: shared, for nothing that is
/// taken out of a shared mapping can be lost; and not filled at once.
pub fn kept_flags(flags: c_int) -> c_int {
    flags & !(libc::MAP_TYPE | libc::MAP_POPULATE | libc::MAP_NONBLOCK) | libc::MAP_SHARED
}

/// What becomes of an advice on kept pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advised {
    /// The kernel gets it.
    Kernel,
    /// It would read everything in: answered, and done as far as the budget allows.
    Nothing,
    /// It would have the kernel read in what lies around: answered, remembered for when the pages are kept no
    /// longer, and not done.
    Noted,
    /// It changes what the mapping is: kept no longer, then the kernel gets it.
    HandOver,
}

/// Reads fault from then on (Linux 6.13), also where another mapping must not lose that.
pub const MADV_GUARD_INSTALL: c_int = 102;

/// See [`Advised`].
pub fn advised(advice: c_int) -> Advised {
    match advice {
        libc::MADV_WILLNEED | libc::MADV_POPULATE_READ => Advised::Nothing,
        libc::MADV_HUGEPAGE => Advised::Noted,
        libc::MADV_DONTFORK | libc::MADV_REMOVE | libc::MADV_HWPOISON | MADV_GUARD_INSTALL => {
            Advised::HandOver
        }
        _ => Advised::Kernel,
    }
}

/// What an advice says about the order of reads, if it does.
pub fn order(advice: c_int) -> Option<ReadOrder> {
    match advice {
        libc::MADV_NORMAL => Some(ReadOrder::Normal),
        libc::MADV_RANDOM => Some(ReadOrder::Random),
        libc::MADV_SEQUENTIAL => Some(ReadOrder::Sequential),
        _ => None,
    }
}

/// Advice that the kernel remembers of a mapping, and that is lost when another
/// is put in its place: of each kind the last that was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lasting([Option<c_int>; KINDS.len()]);

/// The kinds: the order of reads, core dumps, merging of equal pages, huge pages.
const KINDS: [&[c_int]; 4] = [
    &[libc::MADV_NORMAL, libc::MADV_RANDOM, libc::MADV_SEQUENTIAL],
    &[libc::MADV_DODUMP, libc::MADV_DONTDUMP],
    &[libc::MADV_UNMERGEABLE, libc::MADV_MERGEABLE],
    &[libc::MADV_HUGEPAGE, libc::MADV_NOHUGEPAGE],
];

impl Lasting {
    /// With one more. Advice that does not last changes nothing.
    #[must_use]
    pub fn and(mut self, advice: c_int) -> Lasting {
        let kind = KINDS.iter().position(|kind| kind.contains(&advice));
        if let Some(kind) = kind {
            self.0[kind] = Some(advice);
        }
        self
    }

    /// The order of reads.
    pub fn order(self) -> c_int {
        self.0[0].unwrap_or(libc::MADV_NORMAL)
    }

    /// What to give a mapping that takes the place of one with all of it.
    pub fn given(self) -> impl Iterator<Item = c_int> {
        self.0.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::*;

    #[test]
    fn only_reading_is_kept() {
        for (prot, flags, kept) in [
            (PROT_READ, MAP_SHARED, true),
            (PROT_READ, MAP_PRIVATE | MAP_POPULATE, true),
            (PROT_READ, MAP_SHARED_VALIDATE, true),
            (PROT_READ, MAP_PRIVATE | MAP_FIXED, true),
            (PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, false),
            (PROT_READ, MAP_SHARED | MAP_LOCKED, false),
            (PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, false),
            (PROT_READ, MAP_PRIVATE | MAP_HUGETLB, false),
            (PROT_READ | PROT_WRITE, MAP_SHARED, false),
            (PROT_READ | PROT_EXEC, MAP_PRIVATE, false),
            (PROT_NONE, MAP_PRIVATE, false),
        ] {
            assert_eq!(may_keep(1, prot, flags, 3), kept, "{prot} {flags:x}");
        }
        assert!(!may_keep(0, PROT_READ, MAP_SHARED, 3));
        assert!(!may_keep(1, PROT_READ, MAP_SHARED, -1));
    }

    #[test]
    fn a_kept_mapping_is_shared_and_not_filled() {
        assert_eq!(
            kept_flags(MAP_PRIVATE | MAP_POPULATE | MAP_FIXED),
            MAP_SHARED | MAP_FIXED
        );
        assert_eq!(
            kept_flags(MAP_SHARED_VALIDATE | MAP_NORESERVE),
            MAP_SHARED | MAP_NORESERVE
        );
    }

    #[test]
    fn the_last_advice_of_a_kind_lasts() {
        let advice = Lasting::default().and(MADV_RANDOM).and(MADV_DONTDUMP);
        let advice = advice.and(MADV_WILLNEED).and(MADV_SEQUENTIAL);
        let given: Vec<c_int> = advice.given().collect();
        assert_eq!(given, [MADV_SEQUENTIAL, MADV_DONTDUMP]);
        assert_eq!(order(advice.order()), Some(ReadOrder::Sequential));
        assert_eq!(Lasting::default().order(), MADV_NORMAL);
        assert_eq!(advice.and(MADV_DONTNEED), advice);
    }

    #[test]
    fn advice() {
        assert_eq!(advised(MADV_WILLNEED), Advised::Nothing);
        assert_eq!(advised(MADV_HUGEPAGE), Advised::Noted);
        assert_eq!(advised(MADV_COLLAPSE), Advised::Kernel);
        assert_eq!(advised(MADV_RANDOM), Advised::Kernel);
        assert_eq!(advised(MADV_DONTNEED), Advised::Kernel);
        assert_eq!(advised(MADV_DONTFORK), Advised::HandOver);
    }
}
