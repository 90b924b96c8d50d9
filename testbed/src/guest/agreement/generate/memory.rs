//! The memory that a sequence uses: where regions lie, and which pieces of them calls name.

use super::Generator;
use crate::guest::agreement::calls::{Call, Place, Word};

pub(super) const HUGE_PAGE: u64 = 2 << 20;
/// 2 MiB pieces in use, and regions in each.
const SLOTS: u64 = 3;
const REGIONS_OF_SLOT: u64 = 3;
const LONGEST_REGION: u64 = 64;
/// Where pieces begin: a random multiple of 2 MiB from here on.
pub(super) const LOWEST: u64 = 0x1000_0000_0000;
const BASES: u64 = 1 << 22;
/// Touches on the ladder, and where it stands from the beginning.
const RUNGS: u64 = 256;
const LADDER_AT: u64 = 16 << 20;
const RUNG_PAGES: u64 = HUGE_PAGE / 4096;

#[derive(Debug, Clone)]
pub(super) struct Region {
    pub(super) name: String,
    pub(super) address: u64,
    pub(super) pages: u64,
    /// Whether a call has mapped it, so that its name means something.
    pub(super) known: bool,
    pub(super) mapped: Vec<bool>,
    pub(super) touched: Vec<bool>,
}

impl Generator {
    /// Chooses where regions are, and maps the anchors, the ladder and most regions.
    pub(super) fn lay_out(&mut self) {
        let base = LOWEST + self.draw.below(BASES) * HUGE_PAGE;
        self.push(Call::Mmap {
            region: "ladder".to_owned(),
            address: Word(base + LADDER_AT),
            pages: RUNGS * RUNG_PAGES,
        });
        self.climb();
        for slot in 0..SLOTS {
            let start = base + slot * HUGE_PAGE;
            let anchor = format!("anchor{slot}");
            self.push(Call::Mmap {
                region: anchor.clone(),
                address: Word(start + HUGE_PAGE - 4096),
                pages: 1,
            });
            self.push(Call::Touch {
                place: pages(&anchor, 0, 1),
            });
            let mut at = self.draw.below(32);
            for _ in 0..REGIONS_OF_SLOT {
                let pages = 1 + self.draw.below(LONGEST_REGION);
                let letter = char::from(b'a' + self.regions.len() as u8);
                self.regions.push(Region {
                    name: letter.to_string(),
                    address: start + at * 4096,
                    pages,
                    known: false,
                    mapped: vec![false; pages as usize],
                    touched: vec![false; pages as usize],
                });
                at += pages + self.draw.one(&[0, 0, 1, 15]);
            }
        }
        for region in 0..self.regions.len() {
            if region == 0 || self.draw.percent(70) {
                self.map(region);
            }
        }
    }

    /// Touches a page in the next 2 MiB of the ladder: one page table, or more at greater borders.
    pub(super) fn climb(&mut self) {
        if self.rung < RUNGS {
            let page = self.rung * RUNG_PAGES + self.draw.below(RUNG_PAGES);
            self.rung += 1;
            let place = pages("ladder", page, 1);
            self.push(Call::Touch { place });
        }
    }

    pub(super) fn touch(&mut self) {
        let (region, first, count) = self.some_piece();
        let target = &mut self.regions[region];
        for page in first..first + count {
            if page >= target.pages || !target.mapped[page as usize] {
                break;
            }
            target.touched[page as usize] = true;
        }
        let place = pages(&target.name, first, count);
        self.spoil_counter();
        self.push(Call::Touch { place });
    }

    pub(super) fn map(&mut self, region: usize) {
        let region = &mut self.regions[region];
        region.known = true;
        region.mapped.fill(true);
        let call = Call::Mmap {
            region: region.name.clone(),
            address: Word(region.address),
            pages: region.pages,
        };
        self.push(call);
        self.spoil_counter();
    }

    /// Maps a region that is gone, or now and then one that is still there, which fails.
    pub(super) fn map_somewhere(&mut self) {
        let free = |region: &Region| !region.mapped.contains(&true);
        let free: Vec<usize> = (0..self.regions.len())
            .filter(|&region| free(&self.regions[region]))
            .collect();
        if !free.is_empty() && self.draw.percent(80) {
            let region = self.draw.one(&free);
            return self.map(region);
        }
        let (region, first, count) = self.some_piece();
        let region = &self.regions[region];
        if region.mapped[first as usize..(first + count) as usize].contains(&true) {
            self.push(Call::Mmap {
                region: format!("{}-again", region.name),
                address: Word(region.address + first * 4096),
                pages: count,
            });
            self.spoil_counter();
        }
    }

    pub(super) fn unmap(&mut self) {
        let (region, first, count) = self.some_piece();
        let target = &mut self.regions[region];
        let (first, count) = match self.draw.percent(50) {
            true => (0, target.pages),
            false => (first, count.min(target.pages - first)),
        };
        let range = first as usize..(first + count) as usize;
        target.mapped[range.clone()].fill(false);
        target.touched[range].fill(false);
        let place = pages(&target.name, first, count);
        self.spoil_counter();
        self.push(Call::Munmap { place });
    }

    /// Where the pages of a region, or of all, are now.
    pub(super) fn look_at(&mut self, region: Option<&str>) {
        let regions = self
            .regions
            .iter()
            .filter(|of| of.touched.contains(&true) && region.is_none_or(|name| of.name == name));
        let calls = regions.map(|region| Call::Where {
            place: pages(&region.name, 0, region.pages),
        });
        calls
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|call| self.push(call));
    }

    /// A region that has been mapped once, and a piece of it.
    pub(super) fn some_piece(&mut self) -> (usize, u64, u64) {
        let known: Vec<usize> = (0..self.regions.len())
            .filter(|&region| self.regions[region].known)
            .collect();
        let region = self.draw.one(&known);
        let pages = self.regions[region].pages;
        if self.draw.percent(30) {
            return (region, 0, pages);
        }
        let first = self.draw.below(pages);
        (region, first, 1 + self.draw.below(pages - first))
    }

    pub(super) fn some_pages(&mut self) -> Place {
        let (region, first, count) = self.some_piece();
        pages(&self.regions[region].name, first, count)
    }

    /// A range for a call that takes any: a piece of a region, sometimes more, sometimes nonsense.
    pub(super) fn some_range(&mut self) -> Place {
        let mut place = self.some_pages();
        match self.draw.below(20) {
            0..14 => {}
            14..17 => place.pages += self.draw.below(LONGEST_REGION),
            17 => place.offset = self.draw.one(&[1, 8, 2048, 4095]),
            18 => place.length = Some(self.draw.one(&[0, 1, 4095, 4097, 8191])),
            _ => {
                let far = [
                    u64::MAX,
                    u64::MAX - 4094,
                    u64::MAX - 4095,
                    u64::MAX - 8191,
                    1 << 63,
                    1 << 47,
                ];
                place.length = Some(self.draw.one(&far));
            }
        }
        if place.length.is_some() {
            place.pages = 0;
        }
        place
    }
}

pub(super) fn pages(region: &str, first: u64, pages: u64) -> Place {
    Place {
        region: Some(region.to_owned()),
        first,
        pages,
        ..Place::default()
    }
}
