//! The processes under management, in slots.

use crate::report::Direction;
use crate::world::{AddressSpace, ClassId, Presence, ProcessId, ProcessSeen, World, WorldError};
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::Millis;
use std::collections::{BTreeMap, BTreeSet};

/// How long new processes are read in one refresh: where many came, or some whose
/// mappings are long, the rest has to wait, and the loop does not.
const ADMIT_MS: u64 = 1000;

/// The new number of each class that there is still, by its old one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renumbered(Vec<Option<ClassId>>);

impl Renumbered {
    /// Of classes with the `old` names, which are now those with the `new` ones.
    pub fn by_names(old: &[&str], new: &[&str]) -> Renumbered {
        let new: BTreeMap<&str, ClassId> = new.iter().copied().zip((0..).map(ClassId)).collect();
        Renumbered(old.iter().map(|name| new.get(name).copied()).collect())
    }

    /// The new number of the class that had the number `old`.
    pub fn new_of(&self, old: ClassId) -> Option<ClassId> {
        *self.0.get(old.0 as usize)?
    }

    /// The same values under the new numbers; those of classes that are no more go.
    pub fn rekey<T>(&self, by_class: &mut BTreeMap<ClassId, T>) {
        let old = std::mem::take(by_class).into_iter();
        by_class.extend(old.filter_map(|(class, value)| Some((self.new_of(class)?, value))));
    }
}

/// One managed process.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Who it is.
    pub process: ProcessId,
    /// Its slot in the space of pages.
    pub owner: OwnerId,
    /// What it maps, and what its owner allows.
    pub memory: AddressSpace,
    /// When it started, since boot.
    pub born: Millis,
    /// Since when it is managed, by the world's time.
    pub since: Millis,
    /// Processor time that it has used, in clock ticks.
    pub ticks: u64,
    /// Page faults that it took: none means that its memory is as it was.
    pub faults: u64,
    /// The class that it belongs to.
    pub class: Option<ClassId>,
    /// Pages of it that moved to faster nodes.
    pub promoted_pages: u64,
    /// Pages of it that moved to slower ones.
    pub demoted_pages: u64,
    /// Of both, pages that came back soon: see [`RETURN_MS`](crate::tier::RETURN_MS).
    pub returned_pages: u64,
}

/// What a refresh found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Slots of processes that are new.
    pub came: Vec<OwnerId>,
    /// Slots of processes that are gone, and who had them. Somebody in
    /// [`Changes::came`] may have one of them by now.
    pub went: Vec<(OwnerId, ProcessId)>,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.came.is_empty() && self.went.is_empty()
    }
}

/// All managed processes.
#[derive(Debug, Default)]
pub struct Processes {
    slots: Vec<Option<Watched>>,
    by_id: BTreeMap<ProcessId, OwnerId>,
    free: BTreeSet<OwnerId>,
    seen: Vec<ProcessSeen>,
    left_alone: BTreeSet<ClassId>,
    /// Whether those of no class are left alone, too.
    classless_left_alone: bool,
    paused: BTreeSet<ClassId>,
}

impl Processes {
    /// Processes of these classes are not managed, nor are those of no class if it is so said; those
    /// that come into such a class go.
    pub fn leave_alone(&mut self, classes: impl IntoIterator<Item = ClassId>, classless: bool) {
        self.left_alone = classes.into_iter().collect();
        self.classless_left_alone = classless;
    }

    /// Classes have other numbers from now on, or are no more. Who is in which one is asked at the
    /// next refresh; until then it is in the one that it was in.
    pub fn renumber(&mut self, numbers: &Renumbered) {
        for watched in self.slots.iter_mut().flatten() {
            watched.class = watched.class.and_then(|class| numbers.new_of(class));
        }
        let paused = std::mem::take(&mut self.paused);
        self.paused = paused
            .iter()
            .filter_map(|old| numbers.new_of(*old))
            .collect();
    }

    /// Pages of these processes stay where they are, until the class is resumed.
    pub fn pause(&mut self, class: ClassId, paused: bool) {
        match paused {
            true => self.paused.insert(class),
            false => self.paused.remove(&class),
        };
    }

    /// Whether pages of this class's processes stay where they are.
    pub fn is_paused(&self, class: Option<ClassId>) -> bool {
        class.is_some_and(|class| self.paused.contains(&class))
    }

    /// The managed processes, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &Watched> {
        self.slots.iter().flatten()
    }

    /// The process in `owner`'s slot.
    pub fn get(&self, owner: OwnerId) -> Option<&Watched> {
        self.slots.get(owner.0 as usize)?.as_ref()
    }

    /// So many pages of the process in `owner`'s slot moved; `returned` of them came
    /// back.
    pub fn moved(&mut self, owner: OwnerId, direction: Direction, pages: u64, returned: u64) {
        let slot = self.slots.get_mut(owner.0 as usize);
        let Some(watched) = slot.and_then(|slot| slot.as_mut()) else {
            return;
        };
        match direction {
            Direction::Promotion => watched.promoted_pages += pages,
            Direction::Demotion => watched.demoted_pages += pages,
        }
        watched.returned_pages += returned;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Looks for processes that came or went by `now`, and reads the mappings of new
    /// ones.
    pub fn refresh(&mut self, world: &mut dyn World, now: Millis) -> Result<Changes, WorldError> {
        let mut seen = std::mem::take(&mut self.seen);
        let listed = world.processes(&mut seen);
        if self.classless_left_alone || !self.left_alone.is_empty() {
            let left_alone = |class: Option<ClassId>| match class {
                Some(class) => self.left_alone.contains(&class),
                None => self.classless_left_alone,
            };
            seen.retain(|seen| !left_alone(seen.class));
        }
        let changes = listed.and_then(|()| self.update(world, &seen, now));
        self.seen = seen;
        changes
    }

    fn update(
        &mut self,
        world: &mut dyn World,
        seen: &[ProcessSeen],
        now: Millis,
    ) -> Result<Changes, WorldError> {
        let mut changes = Changes::default();
        let alive: BTreeSet<ProcessId> = seen.iter().map(|seen| seen.process).collect();
        for (owner, slot) in (0..).map(OwnerId).zip(&mut self.slots) {
            if let Some(watched) = slot.take_if(|watched| !alive.contains(&watched.process)) {
                self.by_id.remove(&watched.process);
                self.free.insert(owner);
                changes.went.push((owner, watched.process));
            }
        }
        let mut began = None;
        for seen in seen {
            match self.by_id.get(&seen.process) {
                Some(owner) => {
                    if let Some(watched) = &mut self.slots[owner.0 as usize] {
                        watched.ticks = seen.ticks;
                        watched.faults = seen.faults;
                        watched.class = seen.class;
                    }
                }
                // The rest comes with the next refresh.
                None if began.is_some_and(|began| world.now().since(began) > ADMIT_MS) => {}
                None => {
                    began.get_or_insert_with(|| world.now());
                    changes.came.extend(self.admit(world, seen, now)?);
                }
            }
        }
        self.hold();
        Ok(changes)
    }

    /// A slot that two processes had would give one the other's pages.
    fn hold(&self) {
        let (slots, taken, free) = (self.slots.len(), self.by_id.len(), self.free.len());
        assert_eq!(
            taken + free,
            slots,
            "each slot is free or has one process: {taken} have one, {free} are free"
        );
    }

    /// Reads the mappings and policies of a process anew. Of one that is gone
    /// the old ones stay until the next refresh.
    pub fn reread(&mut self, world: &mut dyn World, owner: OwnerId) -> Result<(), WorldError> {
        let Some(Some(watched)) = self.slots.get_mut(owner.0 as usize) else {
            return Ok(());
        };
        match world.address_space(watched.process, &mut watched.memory)? {
            Presence::Here | Presence::Gone => Ok(()),
        }
    }

    fn admit(
        &mut self,
        world: &mut dyn World,
        seen: &ProcessSeen,
        now: Millis,
    ) -> Result<Option<OwnerId>, WorldError> {
        let mut memory = AddressSpace::default();
        // It may have ended while it was read.
        if world.address_space(seen.process, &mut memory)? == Presence::Gone {
            return Ok(None);
        }
        let owner = self.free.pop_first().unwrap_or_else(|| {
            self.slots.push(None);
            OwnerId(self.slots.len() as u32 - 1)
        });
        self.by_id.insert(seen.process, owner);
        let slot = &mut self.slots[owner.0 as usize];
        assert!(slot.is_none(), "slot {} has a process", owner.0);
        *slot = Some(Watched {
            process: seen.process,
            owner,
            memory,
            born: seen.born,
            since: now,
            ticks: seen.ticks,
            faults: seen.faults,
            class: seen.class,
            promoted_pages: 0,
            demoted_pages: 0,
            returned_pages: 0,
        });
        Ok(Some(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FAST, FakeProcess, FakeWorld};

    fn two() -> (FakeWorld, Processes) {
        let mut world = FakeWorld::two_tiers(100, 100);
        for pid in [6, 7] {
            let first = u64::from(pid) * 100;
            world.processes.push(FakeProcess::new(pid, first, 10, FAST));
        }
        let mut processes = Processes::default();
        assert_eq!(
            processes.refresh(&mut world, Millis(0)).unwrap().came.len(),
            2
        );
        (world, processes)
    }

    /// Each takes 0.3 s to read: four take more than a second, and the other six have to wait.
    #[test]
    fn many_newcomers_do_not_hold_up_the_loop() {
        let mut world = FakeWorld::two_tiers(100, 100);
        world.read_ns = 300_000_000;
        for pid in 1..=10 {
            let first = u64::from(pid) * 100;
            world.processes.push(FakeProcess::new(pid, first, 10, FAST));
        }
        let mut processes = Processes::default();
        let mut came = || {
            let began = world.now();
            let changes = processes.refresh(&mut world, began).unwrap();
            assert!(changes.went.is_empty());
            assert!(world.now().since(began) <= ADMIT_MS + 300);
            changes.came.len()
        };
        assert_eq!([came(), came(), came(), came()], [4, 4, 2, 0]);
    }

    #[test]
    #[should_panic(expected = "each slot is free or has one process: 2 have one, 1 are free")]
    fn a_slot_that_is_free_and_taken_is_noticed() {
        let (mut world, mut processes) = two();
        processes.free.insert(OwnerId(1));
        let _ = processes.refresh(&mut world, Millis(0));
    }

    #[test]
    #[should_panic(expected = "slot 1 has a process")]
    fn a_process_in_anothers_slot_is_noticed() {
        let (mut world, mut processes) = two();
        processes.free.insert(OwnerId(1));
        world.processes.push(FakeProcess::new(8, 2000, 10, FAST));
        let _ = processes.refresh(&mut world, Millis(0));
    }
}
