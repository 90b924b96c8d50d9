//! Where the pages of a piece of memory are, as runs.

use memtide_core::units::NodeId;
use std::collections::BTreeMap;

/// Memory that is mapped once or more.
#[derive(Clone, Debug, Default)]
pub(super) struct Object {
    /// Runs of pages by their first: how many, and where.
    pub(super) runs: BTreeMap<u64, (u64, NodeId)>,
    pub(super) huge: bool,
    /// Processes that map it.
    pub(super) mappers: u32,
}

impl Object {
    /// The runs within `from..to`: first, pages, node.
    pub(super) fn within(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u64, u64, NodeId)> + '_ {
        let begin = self.runs.range(..=from).next_back();
        let begin = begin.map_or(from, |(&first, _)| first);
        let runs = self.runs.range(begin..to.max(begin));
        runs.filter_map(move |(&first, &(pages, node))| {
            let (low, high) = (first.max(from), (first + pages).min(to));
            (low < high).then(|| (low, high - low, node))
        })
    }

    /// Makes a run begin at `page`, if one is there.
    fn split(&mut self, page: u64) {
        if let Some((&first, &(pages, node))) = self.runs.range(..page).next_back()
            && first + pages > page
        {
            self.runs.insert(first, (page - first, node));
            self.runs.insert(page, (first + pages - page, node));
        }
    }

    /// Puts `from..to`, all present, on `node`.
    pub(super) fn place(&mut self, from: u64, to: u64, node: NodeId) {
        self.split(from);
        self.split(to);
        while let Some((&first, _)) = self.runs.range(from..to).next() {
            self.runs.remove(&first);
        }
        let (mut from, mut to) = (from, to);
        if let Some((&first, &(pages, other))) = self.runs.range(..from).next_back()
            && (first + pages, other) == (from, node)
        {
            from = first;
        }
        if let Some(&(pages, other)) = self.runs.get(&to)
            && other == node
        {
            self.runs.remove(&to);
            to += pages;
        }
        self.runs.insert(from, (to - from, node));
    }
}
