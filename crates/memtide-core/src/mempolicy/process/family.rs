//! Processes that descend from one by fork(2), and the pages that they share.
//!
//! A child begins with its parent's policy, counter, CPU, mappings and pages.
//! What either writes is copied first, by the policy of who writes; the last
//! who has a page writes it where it is. Pages that several have stay where
//! they are when `mbind` moves without `MPOL_MF_MOVE_ALL`, and move for all of
//! them with it. All are in one cpuset; when it changes, each one's pages move
//! in turn, the eldest's first, so a shared page may move once for each.
//!
//! A mapping of which no page was ever written is not looked at by fork: the
//! child has no page of it, nor tables, though its parent has read zeros there.
//!
//! The page tables of a child advance its parent's counter. So does other
//! memory that the kernel takes for a fork, which is left out: after one, the
//! counter is right again when a policy has reset it.

use super::super::errno::Errno;
use super::super::rawmask::RawMask;
use super::calls::{MF_MOVE, MF_MOVE_ALL};
use super::pages::{Fork, Pages};
use super::{Process, count_tables};
use crate::nodemask::NodeMask;
use std::collections::BTreeMap;
use std::ops::Range;

/// One process of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(pub(super) u16);

/// A process and all that descend from it by fork(2).
#[derive(Clone, Debug)]
pub struct Family {
    /// Those that have not ended.
    members: BTreeMap<Member, Process>,
    /// How many forks there were.
    forks: u16,
}

impl Family {
    /// The first process of every family.
    pub const FIRST: Member = Member(0);
    /// Forks that a family can have.
    pub const MOST_FORKS: usize = u16::MAX as usize;

    /// A family of one.
    pub fn new(first: Process) -> Family {
        Family {
            members: BTreeMap::from([(Family::FIRST, first)]),
            forks: 0,
        }
    }

    /// A process that has not ended.
    pub fn get(&self, who: Member) -> Option<&Process> {
        self.members.get(&who)
    }

    /// The same, for every call that is not a method of the family.
    pub fn get_mut(&mut self, who: Member) -> Option<&mut Process> {
        self.members.get_mut(&who)
    }

    /// All that have not ended, the eldest first.
    pub fn members(&self) -> impl Iterator<Item = &Process> {
        self.members.values()
    }

    /// fork(2) by `parent`. `None` if that has ended, or after
    /// [`Family::MOST_FORKS`].
    pub fn fork(&mut self, parent: Member) -> Option<Member> {
        let forks = self.forks.checked_add(1)?;
        let child = self.get_mut(parent)?.fork(Fork::new(forks)?);
        self.forks = forks;
        let member = Member(forks);
        self.members.insert(member, child);
        Some(member)
    }

    /// A process ends; its pages go unless others have them.
    pub fn exit(&mut self, who: Member) {
        self.members.remove(&who);
    }

    /// As [`Process::touch`].
    ///
    /// # Errors
    ///
    /// As there; `ESRCH` if the process has ended.
    pub fn touch(&mut self, who: Member, first: u64, pages: u64) -> Result<(), Errno> {
        self.settle(who, first..first.saturating_add(pages));
        self.get_mut(who).ok_or(Errno::ESRCH)?.touch(first, pages)
    }

    /// As [`Process::mbind`].
    ///
    /// # Errors
    ///
    /// As there; `ESRCH` if the process has ended.
    #[expect(clippy::too_many_arguments, reason = "the system call's own")]
    pub fn mbind(
        &mut self,
        who: Member,
        start: u64,
        len: u64,
        mode: u64,
        mask: &RawMask,
        maxnode: u64,
        flags: u32,
    ) -> Result<(), Errno> {
        let page = self.get(who).ok_or(Errno::ESRCH)?.machine.page();
        let pages = page.pages(start)..page.pages(start.saturating_add(len)).saturating_add(1);
        if flags & (MF_MOVE | MF_MOVE_ALL) == MF_MOVE {
            self.settle(who, pages.clone());
        }
        let process = self.get_mut(who).ok_or(Errno::ESRCH)?;
        process.mbind(start, len, mode, mask, maxnode, flags)?;
        if flags & MF_MOVE_ALL != 0 {
            self.follow(who, pages);
        }
        Ok(())
    }

    /// As [`Process::set_cpuset`], for all of them.
    pub fn set_cpuset(&mut self, nodes: &NodeMask) {
        let all: Vec<Member> = self.members.keys().copied().collect();
        for who in all {
            if self.get_mut(who).is_some_and(|p| p.set_cpuset(nodes)) {
                self.follow(who, 0..u64::MAX);
            }
        }
    }

    /// Takes those of `who`'s pages for its own that no other has any more.
    fn settle(&mut self, who: Member, pages: Range<u64>) {
        if let Some(mut me) = self.take(who) {
            let others: Vec<&Pages> = self.members.values().map(|p| &p.pages).collect();
            me.pages.settle(pages, &others);
            self.members.insert(who, me);
        }
    }

    /// The pages that others share with `who` are where they are for `who`.
    fn follow(&mut self, who: Member, pages: Range<u64>) {
        if let Some(me) = self.take(who) {
            for other in self.members.values_mut() {
                other.pages.follow(pages.clone(), &me.pages);
            }
            self.members.insert(who, me);
        }
    }

    /// A process, for as long as others are looked at; none if there never
    /// were others.
    fn take(&mut self, who: Member) -> Option<Process> {
        match self.forks {
            0 => None,
            _ => self.members.remove(&who),
        }
    }
}

impl Process {
    /// A child of this process, which shares its pages.
    fn fork(&mut self, fork: Fork) -> Process {
        self.see_weights();
        let mut of_child = Pages::new(self.machine.page());
        let none = Pages::new(self.machine.page());
        let pages = std::mem::replace(&mut self.pages, none);
        let mut child = self.clone();
        self.pages = pages;
        let mut tables = 0;
        for range in self.mappings.written() {
            tables += self.pages.share(range, fork, &mut of_child);
        }
        child.mappings = self.mappings.inherited();
        child.pages = of_child;
        count_tables(&mut self.counter, &self.landing, tables);
        child
    }
}
