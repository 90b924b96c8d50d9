//! Other options for a loop that runs.
//!
//! What was learned stays: where pages are and how hot, what looks found and cost, what moved, what classes
//! used and had promoted. So a reload is no new beginning.
//!
//! Options on which records and sources are built need another loop:
//! [`TierOptions::goes_on_with`](crate::options::TierOptions::goes_on_with) says which.

use super::exchange::Exchange;
use super::shared::idle_rounds;
use super::{Class, TierConfig, Tierer};
use crate::ledger::Renumbered;
use crate::options::Tiered;
use crate::world::World;
use std::collections::BTreeMap;

fn names(config: &TierConfig) -> Vec<&str> {
    let classes = config.classes.iter();
    classes.map(|class| class.name.as_str()).collect()
}

/// Who has other room on fast memory than all others: by name what is protected, what is the bound, and whether they
/// are left alone and what is done for them; and what is done for all others.
fn rooms(config: &TierConfig) -> (BTreeMap<&str, Room>, Tiered) {
    let others = (None, None, false, config.others);
    let room = |class: &Class| (class.low, class.high, class.leave_alone, class.tiered);
    let classes = config.classes.iter();
    let rooms = classes.map(|class| (class.name.as_str(), room(class)));
    (
        rooms.filter(|(_, room)| *room != others).collect(),
        config.others,
    )
}

type Room = (Option<u64>, Option<u64>, bool, Tiered);

impl Tierer {
    /// Goes on by `config`. Classes of the same name are the same classes, whatever their numbers; `world`
    /// counts by the new ones already.
    ///
    /// # Panics
    ///
    /// Records are kept for another threshold or window, or one of both moves nothing.
    pub fn follow(&mut self, world: &mut dyn World, config: TierConfig) {
        let old = &self.shared.config;
        assert_eq!(old.hotness, config.hotness, "records stay");
        assert_eq!(old.dry_run, config.dry_run, "what moved has moved");
        let now = world.now();
        let numbers = Renumbered::by_names(&names(old), &names(&config));
        let other_time = old.idle_after() != config.idle_after();
        let share = config.cadence.share_permille;
        let other_share = old.cadence.share_permille != share;
        let mbps = config.gate.rate_limit_mbps;
        let other_room = rooms(old) != rooms(&config);

        // Whose pages may leave for a moment is asked anew.
        self.flusher.recall(world, &mut self.shared.ledger);
        self.shared.follow(world, config, &numbers);
        self.demoter.renumber(&numbers);
        self.leaver.renumber(&numbers);
        self.promoter.set_rate_limit(mbps);
        if other_time {
            // Ages are in parts of the old time.
            self.shared.records.rounds = idle_rounds(&self.shared.config);
            self.leaver.begin_anew(&self.shared.config, now);
        }
        if other_share {
            self.listeners.set_budget(share);
            self.observer.set_share(now, share);
        }
        self.flusher.choose(world, &mut self.shared, now);
        self.refresh.is_due();
        self.listeners.changed();
        // Other classes make room, and other pages leave: who starved may not any more.
        if other_room {
            self.observer.exchange = Exchange::default();
            self.observer.nobody_starves(&self.shared, now);
        }
        self.observer.chooses_anew();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Classes, TierOptions};
    use crate::report::{ClassStatus, TierStatus};
    use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
    use crate::world::ClassId;
    use memtide_core::tiering::space::VirtualPage;

    fn config(world: &FakeWorld, options: &str, classes: &str) -> TierConfig {
        let options: TierOptions = toml::from_str(&format!("headroom = '0'\n{options}")).unwrap();
        let (topology, page) = (world.topology(), world.page());
        let config = TierConfig::new(&options, topology, page, 1).unwrap();
        let classes: Classes = toml::from_str(classes).unwrap();
        config.with_classes(&classes, topology, page)
    }

    /// Of process 7, of class 0, and process 8, of class 1, 100 of 1000 pages on slow memory are in use.
    fn world() -> FakeWorld {
        let mut world = FakeWorld::two_tiers(5000, 100_000);
        for (pid, class) in [(7, 0), (8, 1)] {
            let mut process = FakeProcess::new(pid, u64::from(pid) << 20, 1000, SLOW);
            process.hot = process.pages.keys().take(100).copied().collect();
            process.class = Some(ClassId(class));
            world.processes.push(process);
        }
        world
    }

    fn run(tierer: &mut Tierer, world: &mut FakeWorld, s: u64) {
        let end = world.now().0 + 1000 * s;
        while world.now().0 < end {
            world.processes.iter_mut().for_each(|one| one.ticks += 1);
            tierer.step(world, &mut ()).unwrap();
        }
    }

    fn status(tierer: &Tierer, world: &mut FakeWorld) -> TierStatus {
        tierer.status(world).tiering.unwrap()
    }

    fn class(tierer: &Tierer, world: &mut FakeWorld, name: &str) -> ClassStatus {
        let classes = status(tierer, world).classes;
        classes
            .into_iter()
            .find(|class| class.name == name)
            .unwrap()
    }

    #[test]
    fn classes_that_stay_keep_what_they_had_under_other_numbers() {
        let mut world = world();
        let first = config(&world, "", "[a]\n[b]\n");
        let mut tierer = Tierer::new(&mut world, first);
        run(&mut tierer, &mut world, 20);
        assert_eq!(tierer.pause(&mut world, "b", true), Some(true));
        let before = class(&tierer, &mut world, "b");
        assert!(before.promoted_pages >= 100);
        let (promoted, processes) = (status(&tierer, &mut world).pgpromote_success, 2);

        let second = config(&world, "", "[aa]\n[b]\n[c]\n");
        world.process(7).class = None;
        tierer.follow(&mut world, second);
        // Before any turn, too.
        assert_eq!(class(&tierer, &mut world, "b"), before);
        run(&mut tierer, &mut world, 2);
        assert_eq!(class(&tierer, &mut world, "b"), before);
        assert_eq!(class(&tierer, &mut world, "aa").promoted_pages, 0);
        assert_eq!(status(&tierer, &mut world).pgpromote_success, promoted);
        assert_eq!(tierer.status(&mut world).processes, processes);
        // It is still paused, and others are not.
        let hot = |first: u64| (first + 500..first + 600).map(VirtualPage).collect();
        world.process(8).hot = hot(8 << 20);
        world.process(7).hot = hot(7 << 20);
        run(&mut tierer, &mut world, 20);
        assert_eq!(
            class(&tierer, &mut world, "b").promoted_pages,
            before.promoted_pages
        );
        assert!(world.process(7).on(FAST) >= 200);
        assert_eq!(tierer.pause(&mut world, "b", false), Some(true));
        run(&mut tierer, &mut world, 20);
        assert!(world.process(8).on(FAST) >= 200);
    }

    #[test]
    fn a_class_lies_within_the_same_one_under_its_other_number() {
        let mut world = world();
        world.within = [(ClassId(1), ClassId(0))].into();
        let first = config(&world, "", "[a]\n[b]\n");
        let mut tierer = Tierer::new(&mut world, first);
        run(&mut tierer, &mut world, 20);
        let around = class(&tierer, &mut world, "a");
        let before = class(&tierer, &mut world, "b");
        assert_eq!(before.within.as_deref(), Some("a"));
        let second = config(&world, "", "[_]\n[a]\n[b]\n");
        tierer.follow(&mut world, second);
        assert_eq!(class(&tierer, &mut world, "a"), around);
        assert_eq!(class(&tierer, &mut world, "b"), before);
    }

    #[test]
    fn a_bound_holds_from_then_on() {
        let mut world = world();
        let first = config(&world, "", "[a]\n[b]\n");
        let mut tierer = Tierer::new(&mut world, first);
        run(&mut tierer, &mut world, 20);
        let second = config(&world, "", "[a]\nfast.high = '200KiB'\n[b]\n");
        tierer.follow(&mut world, second);
        run(&mut tierer, &mut world, 10);
        let used = world.process(7).on(FAST);
        assert!(used <= 51, "{used}");
        assert!(world.process(8).on(FAST) >= 100);
    }

    #[test]
    fn who_is_no_more_tiered_goes_and_may_come_back() {
        let mut world = world();
        let all = config(&world, "", "[a]\n[b]\n");
        let mut tierer = Tierer::new(&mut world, all.clone());
        run(&mut tierer, &mut world, 2);
        let without = config(&world, "", "[a]\ntier = false\n[b]\n");
        tierer.follow(&mut world, without);
        run(&mut tierer, &mut world, 2);
        assert_eq!(tierer.status(&mut world).processes, 1);
        let nobody = all.clone().with_others(Tiered {
            tier: false,
            ..Tiered::default()
        });
        world.process(8).class = None;
        tierer.follow(&mut world, nobody);
        run(&mut tierer, &mut world, 2);
        let managed = tierer.processes(Default::default(), 9);
        assert_eq!(managed.iter().map(|one| one.pid).collect::<Vec<_>>(), [7]);
        tierer.follow(&mut world, all);
        run(&mut tierer, &mut world, 20);
        assert_eq!(tierer.status(&mut world).processes, 2);
        assert!(world.process(8).on(FAST) >= 100);
    }

    /// Memory is idle for long when demotion by age is turned on: its time begins then.
    #[test]
    fn idle_pages_leave_when_the_new_time_has_passed() {
        let mut world = FakeWorld::two_tiers(20_000, 100_000);
        world
            .processes
            .push(FakeProcess::new(7, 7 << 20, 1000, FAST));
        let (off, on) = (
            config(&world, "", ""),
            config(&world, "demote_idle = '10m'", ""),
        );
        let mut tierer = Tierer::new(&mut world, off.clone());
        run(&mut tierer, &mut world, 900);
        assert_eq!(world.process(7).on(FAST), 1000);
        tierer.follow(&mut world, on.clone());
        run(&mut tierer, &mut world, 500);
        assert!(world.process(7).on(FAST) >= 999, "one commutes at most");
        run(&mut tierer, &mut world, 250);
        assert!(world.process(7).on(FAST) <= 1, "one commutes");
        tierer.follow(&mut world, off);
        run(&mut tierer, &mut world, 10);
        tierer.finish(&mut world).unwrap();
    }

    /// Hot pages that starved beside a protected class were searched for block by block. Where nothing is protected
    /// any more a look at all of them is sooner done.
    #[test]
    fn who_starved_beside_what_was_protected_is_looked_at_again() {
        let mut world = FakeWorld::two_tiers(1000, 100_000);
        let mut kept = FakeProcess::new(7, 7 << 20, 1000, FAST);
        kept.class = Some(ClassId(0));
        let mut other = FakeProcess::new(8, 8 << 20, 1000, SLOW);
        other.hot = other.pages.keys().take(500).copied().collect();
        other.class = Some(ClassId(1));
        world.processes = vec![kept, other];
        let protected = config(&world, "", "[a]\nfast.low = '4MiB'\n[b]\n");
        let mut tierer = Tierer::new(&mut world, protected.clone());
        run(&mut tierer, &mut world, 20);
        assert!(tierer.observer.searching.is_some(), "nobody starved");
        tierer.follow(&mut world, protected);
        assert!(tierer.observer.searching.is_some(), "nothing is other");
        let free = config(&world, "", "[a]\n[b]\n");
        tierer.follow(&mut world, free);
        assert!(tierer.observer.searching.is_none());
        run(&mut tierer, &mut world, 10);
        let home = world.process(8).on(FAST);
        assert!(home >= 500, "{home}");
    }

    #[test]
    fn another_rate_holds_from_then_on() {
        let mut world = FakeWorld::two_tiers(100_000, 100_000);
        let mut process = FakeProcess::new(7, 7 << 20, 50_000, SLOW);
        process.hot = process.pages.keys().copied().collect();
        world.processes.push(process);
        let slow = config(&world, "rate_limit = '1MiB'", "");
        let fast = config(&world, "", "");
        let mut tierer = Tierer::new(&mut world, slow);
        run(&mut tierer, &mut world, 10);
        let before = status(&tierer, &mut world).pgpromote_success;
        tierer.follow(&mut world, fast);
        run(&mut tierer, &mut world, 10);
        let after = status(&tierer, &mut world).pgpromote_success - before;
        assert!(after > 10 * before.max(1), "{before} {after}");
    }

    /// Nobody would see that it was followed, if nothing is other.
    #[test]
    fn the_same_again_and_again_changes_nothing() {
        let mut world = world();
        let same = config(&world, "", "[a]\nfast.high = '1MiB'\n[b]\n");
        let mut tierer = Tierer::new(&mut world, same.clone());
        for _ in 0..200 {
            tierer.follow(&mut world, same.clone());
            tierer.step(&mut world, &mut ()).unwrap();
        }
        run(&mut tierer, &mut world, 10);
        for pid in [7, 8] {
            assert!(world.process(pid).on(FAST) >= 100);
        }
        let moved = status(&tierer, &mut world).pgpromote_success;
        for _ in 0..200 {
            tierer.follow(&mut world, same.clone());
            tierer.step(&mut world, &mut ()).unwrap();
        }
        assert_eq!(status(&tierer, &mut world).pgpromote_success, moved);
    }
}
