//! Where each page is, by runs where that is enough.
//!
//! The decision needs to know of each page on which node it lies, whether it
//! is part of a huge page, and whether it is *stuck*: one that the kernel would
//! not move is not tried again in every round.
//!
//! Most memory lies where its neighbours do. So pages are kept in *groups* of
//! 2 MiB, and a group whose pages are all alike is one word; only one whose
//! pages differ has a word each. What is asked of a terabyte (which pages are on
//! which tier) is then answered from half a million words instead of a quarter
//! of a billion, and [`Placement::runs`] gives the answer as runs.
//!
//! Counts of resident pages by node, of all and of each section, are kept as pages come
//! and go.

use crate::dense::SECTION_PAGES;
use crate::units::{NodeId, PageNumber};

/// What is known of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    bits: u16,
}

const NODE: u16 = NodeId::LIMIT - 1;
const HUGE: u16 = 1 << 10;
const STUCK: u16 = 1 << 11;
const PRESENT: u16 = 1 << 15;

/// Pages of a group.
const GROUP: usize = 512;
const GROUPS: usize = SECTION_PAGES / GROUP;

impl Place {
    /// The node on which the page lies.
    pub fn node(self) -> NodeId {
        NodeId(self.bits & NODE)
    }

    /// Whether the page is mapped as part of a huge page.
    pub fn huge(self) -> bool {
        self.bits & HUGE != 0
    }

    /// Whether the last try to move the page failed for a reason that will not
    /// pass soon.
    pub fn stuck(self) -> bool {
        self.bits & STUCK != 0
    }

    fn of(bits: u16) -> Option<Place> {
        (bits & PRESENT != 0).then_some(Place { bits })
    }
}

/// The pages of 2 MiB.
#[derive(Clone, Debug)]
enum Group {
    /// All alike.
    Even(u16),
    /// Each for itself.
    Pages(Box<[u16; GROUP]>),
}

impl Group {
    const EMPTY: Group = Group::Even(0);

    fn get(&self, slot: usize) -> u16 {
        match self {
            Group::Even(bits) => *bits,
            Group::Pages(pages) => pages[slot],
        }
    }

    /// Replaces each word of `slots` by what `change` makes of it. What came and
    /// went is counted.
    fn change(
        &mut self,
        slots: std::ops::Range<usize>,
        counts: &mut Counts<'_>,
        change: impl Fn(u16) -> u16,
    ) {
        match self {
            Group::Even(bits) => {
                let (old, new) = (*bits, change(*bits));
                if old == new {
                    return;
                }
                counts.add(old, -(slots.len() as i32));
                counts.add(new, slots.len() as i32);
                if slots.len() == GROUP {
                    *bits = new;
                    return;
                }
                let mut pages = Box::new([old; GROUP]);
                pages[slots].fill(new);
                *self = Group::Pages(pages);
            }
            Group::Pages(pages) => {
                for bits in &mut pages[slots] {
                    let (old, new) = (*bits, change(*bits));
                    if old & (PRESENT | NODE) != new & (PRESENT | NODE) {
                        counts.add(old, -1);
                        counts.add(new, 1);
                    }
                    *bits = new;
                }
                let first = pages[0];
                if pages.iter().all(|bits| *bits == first) {
                    *self = Group::Even(first);
                }
            }
        }
    }
}

#[derive(Debug)]
struct Section {
    groups: Box<[Group]>,
    resident: Vec<u32>,
}

/// Resident pages by node: of all, and of the section that changes.
struct Counts<'a> {
    all: &'a mut Vec<u64>,
    own: &'a mut Vec<u32>,
}

impl Counts<'_> {
    fn add(&mut self, bits: u16, change: i32) {
        if bits & PRESENT == 0 {
            return;
        }
        let node = usize::from(bits & NODE);
        if self.all.len() <= node {
            self.all.resize(node + 1, 0);
        }
        if self.own.len() <= node {
            self.own.reserve_exact(node + 1 - self.own.len());
            self.own.resize(node + 1, 0);
        }
        self.all[node] = self.all[node].wrapping_add_signed(i64::from(change));
        self.own[node] = self.own[node].wrapping_add_signed(change);
    }
}

/// The map. See the module's essay.
#[derive(Debug, Default)]
pub struct Placement {
    sections: Vec<Option<Section>>,
    resident: Vec<u64>,
}

impl Placement {
    /// A map in which no page is present.
    pub fn new() -> Placement {
        Placement::default()
    }

    /// What is known of `page`; `None` if it is not present.
    pub fn get(&self, page: PageNumber) -> Option<Place> {
        let (section, slot) = split(page);
        let group = &self.sections.get(section)?.as_ref()?.groups[slot / GROUP];
        Place::of(group.get(slot % GROUP))
    }

    /// The pages `first..first + pages`, which lie in one section, are on
    /// `node`. A stuck page found on another node than before is stuck no more.
    pub fn set_run(&mut self, first: PageNumber, pages: u64, node: NodeId, huge: bool) {
        let wanted = PRESENT | (node.0 & NODE) | if huge { HUGE } else { 0 };
        let (section, _) = split(first);
        self.section(section);
        self.change(first, pages, |old| {
            let stayed = old & PRESENT != 0 && old & NODE == node.0;
            wanted | if stayed { old & STUCK } else { 0 }
        });
        let (there, most) = (self.resident(node), self.sections.len() * SECTION_PAGES);
        assert!(
            there <= most as u64,
            "{there} pages are counted on node {node}, there are {most}"
        );
    }

    /// The pages `first..first + pages`, which lie in one section, are gone.
    pub fn clear_run(&mut self, first: PageNumber, pages: u64) {
        self.change(first, pages, |_| 0);
    }

    /// Forgets the pages of a section before it is surveyed anew, all but those
    /// that are stuck: they are still stuck if they are found where they were.
    pub fn clear_unstuck(&mut self, section: u32) {
        self.change(first_of(section), SECTION_PAGES as u64, |old| {
            if old & STUCK == 0 { 0 } else { old }
        });
    }

    /// Forgets a section whose owner is gone.
    pub fn clear_section(&mut self, section: u32) {
        self.clear_run(first_of(section), SECTION_PAGES as u64);
        if let Some(slot) = self.sections.get_mut(section as usize) {
            *slot = None;
        }
    }

    /// The kernel would not move this page.
    pub fn set_stuck(&mut self, page: PageNumber) {
        self.change(
            page,
            1,
            |old| {
                if old & PRESENT == 0 { old } else { old | STUCK }
            },
        );
    }

    /// Pages that were stuck may be tried again.
    pub fn unstick(&mut self) {
        for section in 0..self.sections.len() {
            let first = first_of(section as u32);
            self.change(first, SECTION_PAGES as u64, |old| old & !STUCK);
        }
    }

    /// How many present pages are on `node`.
    pub fn resident(&self, node: NodeId) -> u64 {
        self.resident.get(node.index()).copied().unwrap_or(0)
    }

    /// How many present pages of a section are on each node, by the node's number. There
    /// are none on nodes beyond the end.
    pub fn residents_of(&self, section: u32) -> &[u32] {
        let section = self.sections.get(section as usize);
        section
            .and_then(|section| section.as_ref())
            .map_or(&[], |section| &section.resident)
    }

    /// Gives the present ones of the pages `first..first + pages`, which lie in
    /// one section, to `visit` as runs of one place, ascending: the first, how
    /// many, and where. Two runs that follow one another may be alike.
    pub fn runs(
        &self,
        first: PageNumber,
        pages: u64,
        mut visit: impl FnMut(PageNumber, u64, Place),
    ) {
        let (section, slot) = split(first);
        let Some(Some(Section { groups, .. })) = self.sections.get(section) else {
            return;
        };
        // A run that goes on: its first slot, its end, its word.
        let mut open = (slot, slot, 0_u16);
        let mut add = |from: usize, to: usize, bits: u16| {
            if bits == open.2 && from == open.1 {
                open.1 = to;
                return;
            }
            let (begin, end, word) = std::mem::replace(&mut open, (from, to, bits));
            if let Some(place) = Place::of(word)
                && begin < end
            {
                let page = PageNumber(first.0 + (begin - slot) as u64);
                visit(page, (end - begin) as u64, place);
            }
        };
        for (group, slots) in parts(slot, pages) {
            let base = group * GROUP;
            match &groups[group] {
                Group::Even(bits) => add(base + slots.start, base + slots.end, *bits),
                Group::Pages(words) => {
                    for slot in slots {
                        add(base + slot, base + slot + 1, words[slot]);
                    }
                }
            }
        }
        // Nothing goes on behind the last.
        add(usize::MAX, usize::MAX, 0);
    }

    /// Bytes held now.
    pub fn memory_bytes(&self) -> usize {
        let of_group = |group: &Group| match group {
            Group::Even(_) => 0,
            Group::Pages(pages) => size_of_val(&**pages),
        };
        let of_section = |section: &Section| {
            let pages: usize = section.groups.iter().map(of_group).sum();
            size_of_val(&*section.groups) + pages + section.resident.capacity() * size_of::<u32>()
        };
        let slots = self.sections.capacity() * size_of::<Option<Section>>();
        let sections = self.sections.iter().flatten();
        slots + sections.map(of_section).sum::<usize>()
    }

    fn change(&mut self, first: PageNumber, pages: u64, change: impl Fn(u16) -> u16) {
        let (section, slot) = split(first);
        assert!(
            slot as u64 + pages <= SECTION_PAGES as u64,
            "in one section"
        );
        let Placement { sections, resident } = self;
        let Some(Some(section)) = sections.get_mut(section) else {
            return;
        };
        let mut counts = Counts {
            all: resident,
            own: &mut section.resident,
        };
        for (group, slots) in parts(slot, pages) {
            section.groups[group].change(slots, &mut counts, &change);
        }
    }

    fn section(&mut self, section: usize) {
        if self.sections.len() <= section {
            self.sections.resize_with(section + 1, || None);
        }
        self.sections[section].get_or_insert_with(|| Section {
            groups: vec![Group::EMPTY; GROUPS].into_boxed_slice(),
            resident: Vec::new(),
        });
    }
}

/// The groups that hold `pages` slots of a section from `slot` on, and which of
/// their own slots those are.
fn parts(slot: usize, pages: u64) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let end = slot + pages as usize;
    let groups = slot / GROUP..end.div_ceil(GROUP);
    groups.map(move |group| {
        let base = group * GROUP;
        let from = slot.max(base) - base;
        (group, from..(end - base).min(GROUP))
    })
}

fn first_of(section: u32) -> PageNumber {
    PageNumber(u64::from(section) * SECTION_PAGES as u64)
}

fn split(page: PageNumber) -> (usize, usize) {
    (
        (page.0 / SECTION_PAGES as u64) as usize,
        (page.0 % SECTION_PAGES as u64) as usize,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CXL: NodeId = NodeId(2);
    const DRAM: NodeId = NodeId(0);

    #[test]
    fn residents_are_counted_as_pages_come_move_and_go() {
        let mut placement = Placement::new();
        placement.set_run(PageNumber(100), 512, CXL, true);
        assert_eq!(placement.resident(CXL), 512);
        placement.set_run(PageNumber(100), 12, DRAM, false);
        assert_eq!(
            (placement.resident(CXL), placement.resident(DRAM)),
            (500, 12)
        );
        // Setting the same again changes nothing.
        placement.set_run(PageNumber(100), 12, DRAM, false);
        assert_eq!(
            (placement.resident(CXL), placement.resident(DRAM)),
            (500, 12)
        );
        placement.clear_section(0);
        assert_eq!((placement.resident(CXL), placement.resident(DRAM)), (0, 0));
        assert_eq!(placement.get(PageNumber(100)), None);
    }

    #[test]
    #[should_panic(expected = "pages are counted on node 2, there are 32768")]
    fn a_count_that_ran_below_zero_is_noticed() {
        let mut placement = Placement::new();
        placement.set_run(PageNumber(0), 1, CXL, false);
        placement.resident[2] = u64::MAX;
        placement.set_run(PageNumber(1), 0, CXL, false);
    }

    #[test]
    fn a_page_that_moved_by_itself_is_not_stuck() {
        let mut placement = Placement::new();
        let page = PageNumber(40_000);
        placement.set_stuck(page);
        assert_eq!(placement.get(page), None);
        placement.set_run(page, 1, CXL, false);
        placement.set_stuck(page);
        placement.set_run(page, 1, CXL, false);
        assert!(placement.get(page).unwrap().stuck());
        placement.set_run(page, 1, DRAM, false);
        let place = placement.get(page).unwrap();
        assert!(!place.stuck() && !place.huge());
        assert_eq!(place.node(), DRAM);
        placement.set_stuck(page);
        placement.unstick();
        assert!(!placement.get(page).unwrap().stuck());
    }

    /// A word a page: trivially right.
    #[derive(Default)]
    struct Model(std::collections::BTreeMap<u64, (u16, bool, bool)>);

    impl Model {
        fn set_run(&mut self, first: u64, pages: u64, node: u16, huge: bool) {
            for page in first..first + pages {
                let old = self.0.get(&page);
                let stuck = old.is_some_and(|&(at, _, stuck)| at == node && stuck);
                self.0.insert(page, (node, huge, stuck));
            }
        }
    }

    #[test]
    fn groups_are_what_single_pages_would_be() {
        const S: u64 = SECTION_PAGES as u64;
        let mut random = 1_u64;
        let mut below = |n: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % n
        };
        let (mut placement, mut model) = (Placement::new(), Model::default());
        for round in 0..600 {
            let section = below(2);
            let slot = below(4 * GROUP as u64) / 100 * [1, 100][below(2) as usize];
            let pages = [1, 40, GROUP as u64, 3 * GROUP as u64][below(4) as usize];
            let (first, node, huge) = (section * S + slot, below(3) as u16, below(4) == 0);
            match below(8) {
                0 => {
                    placement.clear_run(PageNumber(first), pages);
                    model
                        .0
                        .retain(|page, _| !(first..first + pages).contains(page));
                }
                1 => {
                    placement.set_stuck(PageNumber(first));
                    model.0.entry(first).and_modify(|at| at.2 = true);
                }
                2 if round % 10 == 0 => {
                    placement.unstick();
                    model.0.values_mut().for_each(|at| at.2 = false);
                }
                3 if round % 10 == 0 => {
                    placement.clear_unstuck(section as u32);
                    let inside = section * S..(section + 1) * S;
                    model.0.retain(|page, at| at.2 || !inside.contains(page));
                }
                _ => {
                    placement.set_run(PageNumber(first), pages, NodeId(node), huge);
                    model.set_run(first, pages, node, huge);
                }
            }
            for node in 0..3 {
                let there = model.0.values().filter(|at| at.0 == node).count() as u64;
                assert_eq!(placement.resident(NodeId(node)), there, "round {round}");
                let own = |section| {
                    let by_node = placement.residents_of(section);
                    u64::from(by_node.get(usize::from(node)).copied().unwrap_or(0))
                };
                assert_eq!(own(0) + own(1), there, "round {round}");
                let inside = model.0.range(..S).filter(|(_, at)| at.0 == node).count();
                assert_eq!(own(0), inside as u64, "round {round}");
            }
            let (from, length) = (section * S + below(600), below(2000));
            let mut pages = Vec::new();
            placement.runs(PageNumber(from), length, |first, n, place| {
                let at = (place.node().0, place.huge(), place.stuck());
                pages.extend((first.0..first.0 + n).map(|page| (page, at)));
            });
            let expected: Vec<_> = model
                .0
                .range(from..from + length)
                .map(|(p, at)| (*p, *at))
                .collect();
            assert_eq!(pages, expected, "round {round}");
            for page in (from..from + length).step_by(7) {
                let at = placement.get(PageNumber(page));
                let at = at.map(|place| (place.node().0, place.huge(), place.stuck()));
                assert_eq!(at, model.0.get(&page).copied(), "round {round}");
            }
        }
    }

    #[test]
    fn memory_follows_the_runs_and_not_the_pages() {
        const S: u64 = SECTION_PAGES as u64;
        let mut placement = Placement::new();
        // 128 GiB of one node: 1024 sections of 64 groups of 16 bytes, 40 a section, and 4 for
        // each node up to CXL's number.
        let plain = 1024 * (64 * 16 + 40 + 3 * 4);
        for section in 0..1024 {
            placement.set_run(PageNumber(section * S), S, CXL, false);
        }
        assert_eq!(placement.memory_bytes(), plain);
        // One page that differs costs its group's words, until it does not any more.
        let page = PageNumber(7 * S + 700);
        placement.set_run(page, 1, DRAM, false);
        assert_eq!(placement.memory_bytes(), plain + 1024);
        placement.set_run(page, 1, CXL, false);
        assert_eq!(placement.memory_bytes(), plain);
    }
}
