//! What is in each frame, and whether every access sees what it should.
//!
//! Frames get an identity of their content: of which page it is (a file's, or one of a mapping's own)
//! and of which version; a store makes a new version. A page's right content is its newest version, so
//! whatever order threads ran in, an access through a mapping must find exactly that in the frame to
//! which *its CPU's translation* leads, which may be an old one. What it finds instead is a stale read,
//! or a store that the page never sees.
//!
//! Content moves only with what really moves it: a read from storage, a copy, a store. It stays in a
//! frame that was freed until something else is put there, as in memory. Storage has the version that
//! was last written back, so that a store after that, through a translation that should have been gone,
//! is a lost one and shows.
//!
//! This is a check: it costs sixteen bytes for each page and some nanoseconds for each access, and is
//! there only where it is asked for.

use super::Regions;
use super::spaces::File;
use crate::page::{Frame, Slot};

/// The identity of content: of which page, and which version of it. 0: of nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content(u64);

impl Content {
    fn new(page: Slot, version: u32) -> Content {
        Content((u64::from(page) + 1) << 32 | u64::from(version))
    }

    /// The page, as the slot that owns it.
    #[must_use]
    pub fn page(self) -> Option<Slot> {
        ((self.0 >> 32) as Slot).checked_sub(1)
    }

    /// The version.
    #[must_use]
    pub fn version(self) -> u32 {
        self.0 as u32
    }
}

/// An access that found what it should not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "thread {thread} on CPU {cpu} {verb} slot {slot} through a translation to frame {frame}: it holds \
     {found:?}, the page has {right:?}", verb = if self.write { "stored to" } else { "read" }
)]
pub struct Stale {
    /// The thread.
    pub thread: u32,
    /// Its CPU.
    pub cpu: u32,
    /// The mapping's slot.
    pub slot: Slot,
    /// Where its translation led.
    pub frame: Frame,
    /// Whether it stored.
    pub write: bool,
    /// What is there.
    pub found: Content,
    /// What should be.
    pub right: Content,
}

/// The contents of all frames and pages.
pub struct Contents {
    frames: Vec<Content>,
    /// By slot of a mapping: the page that it shows, a file's or its own.
    shows: Vec<Slot>,
    /// By page: its newest version.
    versions: Vec<u32>,
    /// By page: the version that storage has.
    stored: Vec<u32>,
    /// Accesses looked at.
    checked: u64,
    /// Of them, those that found what they should not.
    wrong: u64,
    first: Option<Stale>,
}

impl Contents {
    /// Of a machine with so many frames, whose memory holds nothing yet.
    #[must_use]
    pub fn new(regions: &Regions, frames: Frame) -> Contents {
        let slots = regions.slots() as usize;
        let mut contents = Contents {
            frames: vec![Content::default(); frames as usize],
            shows: (0..regions.slots()).collect(),
            versions: vec![0; slots],
            stored: vec![0; slots],
            checked: 0,
            wrong: 0,
            first: None,
        };
        for region in regions.iter() {
            if let Some(file) = region.file {
                contents.map_file(region.slots(), &regions.files()[file]);
            }
        }
        contents
    }

    /// These slots show a file from its first page on.
    pub(super) fn map_file(&mut self, slots: std::ops::Range<Slot>, file: &File) {
        for (page, slot) in slots.enumerate() {
            self.show(slot, file.base + page as Slot);
        }
    }

    /// This slot shows that page of a file.
    pub(super) fn show(&mut self, slot: Slot, page: Slot) {
        self.shows[slot as usize] = page;
    }

    /// This slot shows memory of the mapping's own.
    pub(super) fn map_own(&mut self, slot: Slot) {
        self.shows[slot as usize] = slot;
    }

    /// What a reader of this slot must find.
    #[must_use]
    pub fn right(&self, slot: Slot) -> Content {
        let page = self.shows[slot as usize];
        Content::new(page, self.versions[page as usize])
    }

    /// What a frame holds.
    #[must_use]
    pub fn of_frame(&self, frame: Frame) -> Content {
        self.frames[frame as usize]
    }

    /// A thread accessed `slot` through a translation to `frame`: what it found there. A store makes a
    /// new version, in that frame.
    #[inline]
    pub fn access(
        &mut self,
        (thread, cpu): (u32, u32),
        slot: Slot,
        frame: Frame,
        write: bool,
    ) -> Content {
        let (found, right) = (self.of_frame(frame), self.right(slot));
        self.checked += 1;
        if found != right {
            self.wrong += 1;
            self.first.get_or_insert(Stale {
                thread,
                cpu,
                slot,
                frame,
                write,
                found,
                right,
            });
        }
        if write {
            self.frames[frame as usize] = self.next_version(self.shows[slot as usize]);
        }
        found
    }

    fn next_version(&mut self, page: Slot) -> Content {
        let version = &mut self.versions[page as usize];
        *version = version.wrapping_add(1);
        Content::new(page, *version)
    }

    /// New memory of zeros behind a mapping's own page.
    pub(super) fn cleared(&mut self, frame: Frame, slot: Slot) {
        self.map_own(slot);
        self.frames[frame as usize] = self.next_version(slot);
    }

    /// A file's page was read from storage.
    pub(super) fn read(&mut self, frame: Frame, page: Slot) {
        self.frames[frame as usize] = Content::new(page, self.stored[page as usize]);
    }

    /// A file's page was written back.
    pub(super) fn written_back(&mut self, page: Slot) {
        self.stored[page as usize] = self.versions[page as usize];
    }

    /// A page moved; what its old frame holds stays there.
    pub(super) fn copied(&mut self, from: Frame, to: Frame, pages: u32) {
        for page in 0..pages {
            self.frames[(to + page) as usize] = self.frames[(from + page) as usize];
        }
    }

    /// A file's page was copied into a page of the mapping's own. If what was copied was not the file's
    /// newest version, the copy is as wrong. `None`: the file's page was held meanwhile, but is gone.
    pub(super) fn copied_own(&mut self, from: Option<Frame>, to: Frame, slot: Slot) {
        let from = from.map_or(self.right(slot), |from| self.of_frame(from));
        let right = from == self.right(slot);
        self.map_own(slot);
        let own = self.next_version(slot);
        self.frames[to as usize] = if right { own } else { from };
    }

    /// Somebody writes a file's page: a new version, in its frame if it has one, and on storage if it
    /// has none.
    pub(super) fn rewritten(&mut self, page: Slot, frame: Option<Frame>) {
        let content = self.next_version(page);
        match frame {
            Some(frame) => self.frames[frame as usize] = content,
            None => self.written_back(page),
        }
    }

    /// A frame's memory failed: nothing is in it.
    pub(super) fn lost(&mut self, frame: Frame) {
        self.frames[frame as usize] = Content::default();
    }

    /// Accesses looked at.
    #[must_use]
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// Accesses that found what they should not.
    #[must_use]
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// The first of them.
    #[must_use]
    pub fn first(&self) -> Option<Stale> {
        self.first
    }
}
