//! The mappings of a process (VMAs), each with its policy.
//!
//! Where mappings are cut and joined is visible: calls go mapping by mapping,
//! and the first error or the first hole that they meet decides. A change of
//! policy cuts the mappings at its ends and joins neighbours that have become
//! equal, unless their pages are tracked by different owners (`anon_vma`): the
//! first page written in a mapping gives it one, its neighbour's where the two
//! could be joined, else a new one. Of a mapping that came by fork(2) with pages,
//! the owner is a new one, and neither lends itself to neighbours without one.

use super::super::machine::Kernel;
use super::super::policy::Policy;
use std::collections::BTreeMap;
use std::ops::Range;

/// One mapping. Addresses are page numbers.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) end: u64,
    pub(super) policy: Option<Policy>,
    /// Who tracks its pages; `None` until one is written.
    owner: Option<u32>,
    /// Whether its pages came from a parent, who tracks them, too.
    inherited: bool,
}

/// All mappings of a process, by first page.
#[derive(Clone, Debug)]
pub(super) struct Mappings {
    by_start: BTreeMap<u64, Mapping>,
    next_owner: u32,
    kernel: Kernel,
}

impl Mappings {
    pub(super) fn new(kernel: Kernel) -> Mappings {
        Mappings {
            by_start: BTreeMap::new(),
            next_owner: 0,
            kernel,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// The mapping that holds `page`, with its range.
    pub(super) fn at(&self, page: u64) -> Option<(Range<u64>, &Mapping)> {
        let (&start, mapping) = self.by_start.range(..=page).next_back()?;
        (page < mapping.end).then_some((start..mapping.end, mapping))
    }

    /// The mappings that overlap `pages`, ascending.
    pub(super) fn overlapping(
        &self,
        pages: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, &Mapping)> {
        let first = self.at(pages.start).map_or(pages.start, |(r, _)| r.start);
        let overlapping = self.by_start.range(first..pages.end.max(first));
        overlapping.map(|(&start, m)| (start..m.end, m))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Mapping> {
        self.by_start.values_mut()
    }

    /// The mappings of a child: the same, each owner a new one.
    pub(super) fn inherited(&self) -> Mappings {
        let mut child = self.clone();
        child.next_owner = 0;
        let written = child.by_start.values_mut().filter(|m| m.owner.is_some());
        for mapping in written {
            mapping.owner = Some(child.next_owner);
            mapping.inherited = true;
            child.next_owner += 1;
        }
        child
    }

    /// The ranges of mappings in which a page was ever written, ascending.
    pub(super) fn written(&self) -> impl Iterator<Item = Range<u64>> {
        let written = self.by_start.iter().filter(|(_, m)| m.owner.is_some());
        written.map(|(&start, m)| start..m.end)
    }

    /// Adds a mapping without policy where there is none, joined with its
    /// neighbours where they have none either.
    pub(super) fn add(&mut self, pages: Range<u64>) {
        let fresh = Mapping {
            end: pages.end,
            policy: None,
            owner: None,
            inherited: false,
        };
        self.by_start.insert(pages.start, fresh);
        self.join(pages, None);
    }

    /// Takes the mappings out of `pages`; false if there were none.
    pub(super) fn remove(&mut self, pages: Range<u64>) -> bool {
        self.cut(pages.start);
        self.cut(pages.end);
        let gone: Vec<u64> = self.overlapping(pages).map(|(r, _)| r.start).collect();
        for start in &gone {
            self.by_start.remove(start);
        }
        !gone.is_empty()
    }

    /// Gives the part of one mapping that lies in `pages` this policy.
    ///
    /// `pages` must lie within the mapping at its start.
    pub(super) fn set_policy(&mut self, pages: Range<u64>, policy: Option<&Policy>) {
        let (_, mapping) = self.at(pages.start).expect("the caller saw the mapping");
        if Policy::same(mapping.policy.as_ref(), policy, &self.kernel) {
            return;
        }
        self.cut(pages.start);
        self.cut(pages.end);
        let mapping = self.by_start.get_mut(&pages.start).expect("cut above");
        mapping.policy = policy.cloned();
        self.join(pages, policy);
    }

    /// A page in the mapping at `page` is about to be written.
    pub(super) fn own(&mut self, page: u64) {
        let Some((range, mapping)) = self.at(page).filter(|(_, m)| m.owner.is_none()) else {
            return;
        };
        let like = |neighbour: Option<&Mapping>| {
            let same = |n: &&Mapping| {
                Policy::same(n.policy.as_ref(), mapping.policy.as_ref(), &self.kernel)
            };
            neighbour.filter(same).filter(|n| !n.inherited)?.owner
        };
        let before = || like(self.before(range.start).map(|(_, m)| m));
        let owner = like(self.by_start.get(&range.end)).or_else(before);
        let new = owner.unwrap_or(self.next_owner);
        self.next_owner += u32::from(owner.is_none());
        let mapping = self.by_start.get_mut(&range.start).expect("found above");
        mapping.owner = Some(new);
    }

    /// The mapping that ends where `page` starts.
    fn before(&self, page: u64) -> Option<(u64, &Mapping)> {
        let (range, mapping) = self.at(page.checked_sub(1)?)?;
        (range.end == page).then_some((range.start, mapping))
    }

    fn cut(&mut self, page: u64) {
        if let Some((range, mapping)) = self.at(page).filter(|(r, _)| r.start < page) {
            let tail = mapping.clone();
            self.by_start.insert(page, tail);
            let head = self.by_start.get_mut(&range.start).expect("found above");
            head.end = page;
        }
    }

    /// Joins the mapping at exactly `pages` with its neighbours. A mapping that
    /// both could take goes to both only if they could take each other.
    fn join(&mut self, pages: Range<u64>, policy: Option<&Policy>) {
        let Mapping {
            owner, inherited, ..
        } = self.by_start[&pages.start];
        let same = |m: &Mapping| Policy::same(m.policy.as_ref(), policy, &self.kernel);
        let takes = |m: &Mapping| {
            let adopts = self.kernel.written_merges_into_untouched && m.owner.is_none();
            m.owner == owner || owner.is_none() && !m.inherited || adopts && !inherited
        };
        let fits = |m: &&Mapping| same(m) && takes(m);
        let before = self.before(pages.start);
        let left = before.filter(|(_, m)| fits(m));
        let left = left.map(|(start, m)| (start, m.owner, m.inherited));
        let after = self.by_start.get(&pages.end);
        let right = after.filter(fits).map(|m| (m.end, m.owner, m.inherited));
        let compatible = |a: Option<u32>, b: Option<u32>| a.is_none() || b.is_none() || a == b;
        let right = right.filter(|r| left.is_none_or(|l| compatible(l.1, r.1)));
        if left.is_none() && right.is_none() {
            return;
        }
        let owners = [left.and_then(|l| l.1), right.and_then(|r| r.1), owner];
        let joined = Mapping {
            end: right.map_or(pages.end, |r| r.0),
            policy: policy.cloned(),
            owner: owners.into_iter().flatten().next(),
            inherited: inherited || left.is_some_and(|l| l.2) || right.is_some_and(|r| r.2),
        };
        self.by_start.remove(&pages.start);
        if right.is_some() {
            self.by_start.remove(&pages.end);
        }
        let start = left.map_or(pages.start, |l| l.0);
        self.by_start.insert(start, joined);
    }
}
