//! What a source saw: somebody touched a page.

use crate::units::{Millis, NodeId, PageNumber};
use crate::vmstat::Counter;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Who noticed the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A NUMA hint fault: names the accessing node, late by the scan period.
    HintFault,
    /// The accessed bits of page tables: says that, not by whom nor how often.
    PageTableScan,
    /// A DAMON region's access count.
    Damon,
    /// A hardware sample (AMD IBS, Intel PEBS): names the node, exact in time.
    Hardware,
}

impl Source {
    /// Every source, in the order of their bits in a [`SourceSet`].
    pub const ALL: [Source; 4] = [
        Source::HintFault,
        Source::Hardware,
        Source::PageTableScan,
        Source::Damon,
    ];

    /// The counter that counts this source's reports.
    pub fn counter(self) -> Counter {
        match self {
            Source::HintFault => Counter::PghotRecordedHintfaults,
            Source::PageTableScan => Counter::PghotRecordedPgtscans,
            Source::Damon => Counter::PghotRecordedDamon,
            Source::Hardware => Counter::PghotRecordedHwhints,
        }
    }

    fn bit(self) -> u8 {
        match self {
            Source::HintFault => 1,
            Source::Hardware => 2,
            Source::PageTableScan => 4,
            Source::Damon => 8,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::HintFault => "hint faults",
            Source::PageTableScan => "page-table scan",
            Source::Damon => "DAMON",
            Source::Hardware => "hardware hints",
        })
    }
}

/// Which sources are listened to. Bits 0 and 1 are those of pghot v7's
/// `vm.pghot_enabled_sources` (hint faults, hardware hints); the others are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SourceSet(u8);

impl SourceSet {
    /// No source: the kernel's default, nothing is recorded.
    pub const NONE: SourceSet = SourceSet(0);
    /// Every source.
    pub const ALL: SourceSet = SourceSet(15);

    /// This set and `source`.
    pub fn with(self, source: Source) -> SourceSet {
        SourceSet(self.0 | source.bit())
    }

    /// Whether `source` is listened to.
    pub fn contains(self, source: Source) -> bool {
        self.0 & source.bit() != 0
    }

    /// The set of these bits, `None` if one of them means no source.
    pub fn from_bits(bits: u8) -> Option<SourceSet> {
        (bits & !SourceSet::ALL.0 == 0).then_some(SourceSet(bits))
    }

    /// The set as bits.
    pub fn bits(self) -> u8 {
        self.0
    }
}

/// One access to one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The page.
    pub page: PageNumber,
    /// The node of the CPU that accessed it, if the source knows.
    pub node: Option<NodeId>,
    /// Who noticed.
    pub source: Source,
    /// When, on the store's clock.
    pub at: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_no_set() {
        assert_eq!(SourceSet::from_bits(16), None);
        let set = SourceSet::from_bits(0b0010).unwrap();
        assert!(set.contains(Source::Hardware) && !set.contains(Source::HintFault));
        let all = Source::ALL
            .into_iter()
            .fold(SourceSet::NONE, SourceSet::with);
        assert_eq!(all, SourceSet::ALL);
        assert_eq!(all.bits(), 15);
    }
}
