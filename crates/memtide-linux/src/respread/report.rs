//! What became of a process's pages, mapping by mapping.

use super::Options;
use super::areas::Area;
use crate::mover::{Outcome, Settled};
use memtide_core::units::NodeId;
use serde::Serialize;
use std::collections::BTreeMap;

/// Pages by node, ascending; nodes without pages are left out.
pub type PagesByNode = Vec<(NodeId, u64)>;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Every page was looked at.
    Done,
    /// The process ended before.
    ProcessEnded,
    /// The caller stopped it.
    Interrupted,
}

/// Base pages that are not on their node although their mapping may be spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stayed {
    /// Other processes map them too.
    pub shared: u64,
    /// Pinned, or in use by the kernel.
    pub busy: u64,
    /// Their target was full.
    pub no_memory: u64,
    /// The kernel would not, for another reason.
    pub other: u64,
}

impl Stayed {
    /// Pages that should have moved and did not: all but the shared ones.
    pub fn failed(&self) -> u64 {
        self.busy + self.no_memory + self.other
    }
}

/// One mapping. Counts are of base pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MappingReport {
    /// Address of its first byte.
    pub address: u64,
    /// Its length.
    pub pages: u64,
    /// The file, a name such as `[heap]`, or `[anonymous]`.
    pub name: String,
    /// Its policy in the kernel's words.
    pub policy: String,
    /// Where its pages were.
    pub before: PagesByNode,
    /// Where they are, or with a dry run would be; `None` if the process has
    /// ended or the mapping is gone.
    pub after: Option<PagesByNode>,
    /// Pages that moved, or would have.
    pub moved: u64,
    /// Pages that did not.
    pub stayed: Stayed,
    /// Why the mapping was left as it is, if it was.
    pub left: Option<String>,
}

/// One process. Counts are of base pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The process.
    pub pid: u32,
    /// Its program's name.
    pub name: String,
    /// The spread by which indices were counted.
    pub weights: String,
    /// Whether nothing was moved.
    pub dry_run: bool,
    /// How it ended.
    pub end: End,
    /// Whether all but a hundredth of the pages that may be spread are where
    /// they belong.
    pub reached: bool,
    /// Pages of mappings that may be spread, before.
    pub spread_pages: u64,
    /// Pages of mappings that were left.
    pub left_pages: u64,
    /// Where the pages that may be spread were.
    pub before: PagesByNode,
    /// Where they are, or with a dry run would be.
    pub after: Option<PagesByNode>,
    /// Pages that moved, or would have.
    pub moved: u64,
    /// Pages that did not.
    pub stayed: Stayed,
    /// The mappings with pages, in order of address.
    pub mappings: Vec<MappingReport>,
}

/// What is counted meanwhile.
#[derive(Debug)]
pub(super) struct Books {
    name: String,
    by_area: BTreeMap<u64, Counts>,
    pub(super) looked_at: u64,
    pub(super) gone: bool,
}

#[derive(Debug, Default)]
struct Counts {
    moved: u64,
    stayed: Stayed,
    /// What moving changed, by node.
    change: BTreeMap<NodeId, i64>,
}

impl Books {
    pub(super) fn new(name: String, areas: &[Area]) -> Books {
        let counts = |area: &Area| (area.first.0, Counts::default());
        Books {
            name,
            by_area: areas.iter().map(counts).collect(),
            looked_at: 0,
            gone: false,
        }
    }

    pub(super) fn settled(&mut self, area: &Area, settled: &Settled) {
        let pages = settled.pages as u64;
        self.looked_at += pages;
        let counts = self.by_area.entry(area.first.0).or_default();
        let stayed = &mut counts.stayed;
        match settled.outcome {
            Outcome::Moved { from } => {
                counts.moved += pages;
                *counts.change.entry(from).or_default() -= pages as i64;
                *counts.change.entry(settled.target).or_default() += pages as i64;
            }
            // Somebody else moved it, freed it, or ended.
            Outcome::AlreadyThere
            | Outcome::NotPresent
            | Outcome::ZeroOrUnmapped
            | Outcome::ProcessGone => {}
            Outcome::Shared => stayed.shared += pages,
            Outcome::Busy => stayed.busy += pages,
            Outcome::NoMemory => stayed.no_memory += pages,
            Outcome::NotAllowed
            | Outcome::NoSuchNode
            | Outcome::NotPermitted
            | Outcome::Failed(_) => stayed.other += pages,
        }
    }

    pub(super) fn moved(&self) -> u64 {
        self.by_area.values().map(|counts| counts.moved).sum()
    }

    fn stayed(&self) -> Stayed {
        let mut sum = Stayed::default();
        for Counts { stayed, .. } in self.by_area.values() {
            sum.shared += stayed.shared;
            sum.busy += stayed.busy;
            sum.no_memory += stayed.no_memory;
            sum.other += stayed.other;
        }
        sum
    }

    /// Busy pages come free, and full nodes empty as others move away.
    pub(super) fn may_try_again(&self) -> bool {
        let stayed = self.stayed();
        stayed.busy + stayed.no_memory > 0
    }

    /// What stayed is counted anew in each pass.
    pub(super) fn begin_pass(&mut self) {
        self.looked_at = 0;
        for counts in self.by_area.values_mut() {
            counts.stayed = Stayed::default();
        }
    }

    pub(super) fn report(
        self,
        pid: u32,
        areas: &[Area],
        after: Option<&[Area]>,
        options: &Options,
        interrupted: bool,
    ) -> Report {
        let mapping = |area: &Area| self.mapping(area, after, options);
        let mappings: Vec<MappingReport> = areas.iter().map(mapping).collect();
        let pages = |left: bool| {
            let some = areas.iter().filter(|area| area.stays.is_some() == left);
            some.map(Area::present).sum()
        };
        let spread = || mappings.iter().filter(|mapping| mapping.left.is_none());
        let sum = |one: &dyn Fn(&MappingReport) -> PagesByNode| {
            let mut sum: BTreeMap<NodeId, u64> = BTreeMap::new();
            for (node, pages) in spread().flat_map(one) {
                *sum.entry(node).or_default() += pages;
            }
            sum.into_iter().collect::<PagesByNode>()
        };
        let (stayed, spread_pages) = (self.stayed(), pages(false));
        let end = match (self.gone, interrupted) {
            (true, _) => End::ProcessEnded,
            (false, true) => End::Interrupted,
            (false, false) => End::Done,
        };
        Report {
            pid,
            weights: options.spread.to_string(),
            dry_run: options.dry_run,
            end,
            reached: end == End::Done && stayed.failed() * 100 <= spread_pages,
            spread_pages,
            left_pages: pages(true),
            before: sum(&|mapping| mapping.before.clone()),
            after: (!self.gone).then(|| sum(&|mapping| mapping.after.clone().unwrap_or_default())),
            moved: self.moved(),
            stayed,
            name: self.name,
            mappings,
        }
    }

    fn mapping(&self, area: &Area, after: Option<&[Area]>, options: &Options) -> MappingReport {
        let none = Counts::default();
        let counts = self.by_area.get(&area.first.0).unwrap_or(&none);
        let now = after.and_then(|after| after.iter().find(|now| now.first == area.first));
        MappingReport {
            address: area.first.0 << options.page.shift(),
            pages: area.pages,
            name: area.name.clone(),
            policy: area.policy.clone(),
            before: area.on.clone(),
            after: match options.dry_run {
                true => Some(changed(&area.on, &counts.change)),
                false => now.map(|now| now.on.clone()),
            },
            moved: counts.moved,
            stayed: counts.stayed,
            left: area.stays.clone(),
        }
    }
}

/// `before` after `change`.
fn changed(before: &[(NodeId, u64)], change: &BTreeMap<NodeId, i64>) -> PagesByNode {
    let mut pages: BTreeMap<NodeId, u64> = before.iter().copied().collect();
    for (node, change) in change {
        let pages = pages.entry(*node).or_default();
        *pages = pages.saturating_add_signed(*change);
    }
    pages.into_iter().filter(|(_, pages)| *pages > 0).collect()
}
