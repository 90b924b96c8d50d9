//! Mappings and files: which slots are whose.
//!
//! Region n's slots follow those of region n-1, each range beginning at a multiple of 512, so that the
//! head of a huge page is its slot with the low nine bits cleared. After the regions come the files'
//! page caches, one slot for each page of the longest mapping. A mapping shows its file from page 0.
//! File mappings without a number get a file of their own.

use super::error::KernelError;
use crate::page::{HUGE_PAGES, Slot};
use crate::workload::{Kind, Plan, RegionPlan};
use memtide_core::mempolicy::Policy;
use memtide_core::units::NodeId;

/// A mapping.
#[derive(Clone, Debug)]
pub struct Region {
    /// What the workload asked for.
    pub plan: RegionPlan,
    /// Its first slot.
    pub base: Slot,
    /// Position of its file in [`Regions::files`].
    pub file: Option<usize>,
    /// Where its page tables are, once it has any.
    pub page_table_node: Option<NodeId>,
    /// Whether it was given back.
    pub freed: bool,
}

impl Region {
    /// Its slots.
    #[must_use]
    pub fn slots(&self) -> std::ops::Range<Slot> {
        self.base..self.base + self.plan.pages
    }

    /// The policy that hint faults and scans ask.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        self.plan.policy_after.as_ref().unwrap_or(&self.plan.policy)
    }

    /// The virtual page number of a slot.
    #[must_use]
    pub fn vpn(&self, slot: Slot) -> u64 {
        self.plan.start_vpn + u64::from(slot - self.base)
    }
}

/// A file's page cache.
#[derive(Clone, Debug)]
pub struct File {
    /// Its first slot.
    pub base: Slot,
    /// Its pages.
    pub pages: u32,
    /// The regions that map it.
    pub mappings: Vec<usize>,
}

/// All mappings and files.
#[derive(Clone, Debug)]
pub struct Regions {
    list: Vec<Region>,
    files: Vec<File>,
    first_file_slot: Slot,
    slots: u32,
}

impl Regions {
    /// Lays out a plan's regions.
    pub fn new(plan: &Plan) -> Result<Regions, KernelError> {
        let mut next = 0u64;
        let mut list: Vec<Region> = Vec::new();
        let mut numbers: Vec<Option<u16>> = Vec::new();
        let mut files: Vec<File> = Vec::new();
        for region in &plan.regions {
            check(region)?;
            let at = list.len();
            let file = (region.kind != Kind::Anonymous).then(|| {
                let known = region
                    .file
                    .and_then(|n| numbers.iter().position(|&m| m == Some(n)));
                known.unwrap_or_else(|| {
                    numbers.push(region.file);
                    files.push(File {
                        base: 0,
                        pages: 0,
                        mappings: Vec::new(),
                    });
                    files.len() - 1
                })
            });
            if let Some(file) = file {
                files[file].pages = files[file].pages.max(region.pages);
                files[file].mappings.push(at);
            }
            list.push(Region {
                plan: region.clone(),
                base: fits(next)?,
                file,
                page_table_node: None,
                freed: false,
            });
            next = aligned(next + u64::from(region.pages));
        }
        let first_file_slot = fits(next)?;
        for file in &mut files {
            file.base = fits(next)?;
            next = aligned(next + u64::from(file.pages));
        }
        Ok(Regions {
            list,
            files,
            first_file_slot,
            slots: fits(next)?,
        })
    }

    /// How many slots there are, padding included.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// How many regions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Region `index` of the plan.
    #[must_use]
    pub fn get(&self, index: usize) -> &Region {
        &self.list[index]
    }

    /// The same, to change.
    pub fn get_mut(&mut self, index: usize) -> &mut Region {
        &mut self.list[index]
    }

    /// Region `index` shows something else from now on: a file, or anonymous memory. None of its pages
    /// may be mapped.
    pub(super) fn map_anew(&mut self, index: usize, file: Option<usize>) {
        for other in &mut self.files {
            other.mappings.retain(|&at| at != index);
        }
        let region = &mut self.list[index];
        region.file = file;
        region.plan.kind = match (file, region.plan.kind) {
            (None, _) => Kind::Anonymous,
            (Some(_), Kind::PrivateFile) => Kind::PrivateFile,
            (Some(_), _) => Kind::SharedFile,
        };
        if let Some(file) = file {
            debug_assert!(region.plan.pages <= self.files[file].pages);
            region.plan.huge = false;
            self.files[file].mappings.push(index);
        }
    }

    /// All regions in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Region> {
        self.list.iter()
    }

    /// All files in order.
    #[must_use]
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// The region of a slot that is not a file's.
    #[inline]
    #[must_use]
    pub fn index_of(&self, slot: Slot) -> usize {
        debug_assert!(slot < self.first_file_slot);
        self.list.partition_point(|r| r.base <= slot) - 1
    }

    /// Whether a slot is a file's page and not a mapping's.
    #[inline]
    #[must_use]
    pub fn is_file(&self, slot: Slot) -> bool {
        slot >= self.first_file_slot
    }

    /// Whether whatever a present entry of `slot` maps is the slot's own: so it is of a file's page and
    /// of anonymous memory. A mapping of a file may show the file's page or a private copy.
    #[inline]
    #[must_use]
    pub fn owns_itself(&self, slot: Slot) -> bool {
        self.files.is_empty() || self.is_file(slot) || self.get(self.index_of(slot)).file.is_none()
    }

    /// The file of a file's slot.
    #[must_use]
    pub fn file_index_of(&self, slot: Slot) -> usize {
        debug_assert!(self.is_file(slot));
        self.files.partition_point(|f| f.base <= slot) - 1
    }

    /// The slots at which the folio of `owner` may be mapped.
    #[must_use]
    pub fn mappings(&self, owner: Slot) -> Mappings<'_> {
        match self.is_file(owner) {
            false => Mappings::One(Some(owner)),
            true => {
                let file = &self.files[self.file_index_of(owner)];
                Mappings::Of {
                    regions: self,
                    left: file.mappings.iter(),
                    offset: owner - file.base,
                }
            }
        }
    }
}

/// See [`Regions::mappings`].
pub enum Mappings<'a> {
    /// Anonymous memory: the owner itself.
    One(Option<Slot>),
    /// A file's page: one slot in each mapping that reaches so far.
    Of {
        /// All regions.
        regions: &'a Regions,
        /// The mappings to come.
        left: std::slice::Iter<'a, usize>,
        /// The page in the file.
        offset: u32,
    },
}

impl Iterator for Mappings<'_> {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        match self {
            Mappings::One(slot) => slot.take(),
            Mappings::Of {
                regions,
                left,
                offset,
            } => left.find_map(|&at| {
                let region = &regions.list[at];
                (*offset < region.plan.pages).then(|| region.base + *offset)
            }),
        }
    }
}

fn check(region: &RegionPlan) -> Result<(), KernelError> {
    let name = || region.name.clone();
    if region.huge && region.kind != Kind::Anonymous {
        return Err(KernelError::HugeFile { region: name() });
    }
    if region.huge && !region.start_vpn.is_multiple_of(u64::from(HUGE_PAGES)) {
        return Err(KernelError::HugeStart {
            region: name(),
            start: region.start_vpn,
        });
    }
    Ok(())
}

fn aligned(slots: u64) -> u64 {
    slots.next_multiple_of(u64::from(HUGE_PAGES))
}

/// Slots are one less than 2^32 at most: the owner of a frame is stored plus one.
fn fits(slots: u64) -> Result<u32, KernelError> {
    let limit = u64::from(u32::MAX) - u64::from(HUGE_PAGES);
    match slots <= limit {
        true => Ok(slots as u32),
        false => Err(KernelError::TooManyPages {
            what: "the workload's regions",
            pages: slots,
            limit,
        }),
    }
}
