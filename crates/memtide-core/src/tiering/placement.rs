//! Where each page is, two bytes a page.
//!
//! The decision needs to know of each page on which node it lies, whether it
//! is part of a huge page, and whether it is *stuck*: one that the kernel would
//! not move is not tried again in every round.
//!
//! Memory is dense in sections, like the hotness store's, and counts of
//! resident pages by node are kept as pages come and go.

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
}

/// The map. See the module's essay.
#[derive(Debug, Default)]
pub struct Placement {
    sections: Vec<Option<Box<[u16]>>>,
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
        let bits = *self.sections.get(section)?.as_ref()?.get(slot)?;
        (bits & PRESENT != 0).then_some(Place { bits })
    }

    /// The pages `first..first + pages`, which lie in one section, are on
    /// `node`. A stuck page found on another node than before is stuck no more.
    pub fn set_run(&mut self, first: PageNumber, pages: u64, node: NodeId, huge: bool) {
        let wanted = PRESENT | (node.0 & NODE) | if huge { HUGE } else { 0 };
        let (section, slot) = split(first);
        self.section(section);
        let Placement { sections, resident } = self;
        let section = sections[section].as_mut().expect("made above");
        for bits in &mut section[slot..slot + pages as usize] {
            let old = *bits;
            let stayed = old & PRESENT != 0 && old & NODE == node.0;
            *bits = wanted | if stayed { old & STUCK } else { 0 };
            if !stayed {
                count(resident, old, -1);
                count(resident, wanted, 1);
            }
        }
    }

    /// The pages `first..first + pages`, which lie in one section, are gone.
    pub fn clear_run(&mut self, first: PageNumber, pages: u64) {
        let (section, slot) = split(first);
        let Placement { sections, resident } = self;
        let Some(Some(section)) = sections.get_mut(section) else {
            return;
        };
        for bits in &mut section[slot..slot + pages as usize] {
            count(resident, *bits, -1);
            *bits = 0;
        }
    }

    /// Forgets the pages of a section before it is surveyed anew, all but those
    /// that are stuck: they are still stuck if they are found where they were.
    pub fn clear_unstuck(&mut self, section: u32) {
        let Placement { sections, resident } = self;
        let Some(Some(section)) = sections.get_mut(section as usize) else {
            return;
        };
        for bits in section.iter_mut().filter(|bits| **bits & STUCK == 0) {
            count(resident, *bits, -1);
            *bits = 0;
        }
    }

    /// Forgets a section whose owner is gone.
    pub fn clear_section(&mut self, section: u32) {
        let first = PageNumber(u64::from(section) * SECTION_PAGES as u64);
        self.clear_run(first, SECTION_PAGES as u64);
        if let Some(slot) = self.sections.get_mut(section as usize) {
            *slot = None;
        }
    }

    /// The kernel would not move this page.
    pub fn set_stuck(&mut self, page: PageNumber) {
        let (section, slot) = split(page);
        if let Some(Some(section)) = self.sections.get_mut(section)
            && section[slot] & PRESENT != 0
        {
            section[slot] |= STUCK;
        }
    }

    /// Pages that were stuck may be tried again.
    pub fn unstick(&mut self) {
        for section in self.sections.iter_mut().flatten() {
            for bits in section.iter_mut() {
                *bits &= !STUCK;
            }
        }
    }

    /// How many present pages are on `node`.
    pub fn resident(&self, node: NodeId) -> u64 {
        self.resident.get(node.index()).copied().unwrap_or(0)
    }

    /// The pages `first..first + pages`, which lie in one section: each with
    /// its place, absent ones as `None`.
    pub fn run(&self, first: PageNumber, pages: u64) -> impl Iterator<Item = Option<Place>> + '_ {
        (first.0..first.0 + pages).map(|page| self.get(PageNumber(page)))
    }

    fn section(&mut self, section: usize) -> &mut [u16] {
        if self.sections.len() <= section {
            self.sections.resize_with(section + 1, || None);
        }
        self.sections[section].get_or_insert_with(|| vec![0; SECTION_PAGES].into_boxed_slice())
    }
}

fn split(page: PageNumber) -> (usize, usize) {
    (
        (page.0 / SECTION_PAGES as u64) as usize,
        (page.0 % SECTION_PAGES as u64) as usize,
    )
}

fn count(resident: &mut Vec<u64>, bits: u16, change: i64) {
    if bits & PRESENT == 0 {
        return;
    }
    let node = usize::from(bits & NODE);
    if resident.len() <= node {
        resident.resize(node + 1, 0);
    }
    resident[node] = resident[node].wrapping_add_signed(change);
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
}
