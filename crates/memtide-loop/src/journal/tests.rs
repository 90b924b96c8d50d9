//! A run on the fake world, written down and run again.

use super::*;
use crate::balance::{BalanceConfig, Balancer};
use crate::options::{BalanceOptions, TierOptions};
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::tier::{TierConfig, Tierer};
use crate::world::Outcome;
use memtide_core::tiering::space::VirtualPage;

/// Lines as text.
#[derive(Default)]
struct Text(Vec<String>);

impl Journal for Text {
    fn line(&mut self, line: Line<'_>) {
        self.0.push(serde_json::to_string(&line).unwrap());
    }
}

fn entries(lines: &[String]) -> Vec<(Call, Answer)> {
    let read = |line: &String| serde_json::from_str(line).unwrap();
    lines
        .iter()
        .map(read)
        .filter_map(|entry| match entry {
            Entry::Call { call, answer } => Some((call, answer)),
            Entry::Step | Entry::Finish | Entry::Event(_) => None,
        })
        .collect()
}

fn world() -> FakeWorld {
    let mut world = FakeWorld::two_tiers(300, 3000);
    world.processes.push(FakeProcess::new(6, 0, 250, FAST));
    let mut process = FakeProcess::new(7, 1000, 2000, SLOW);
    process.hot = (1000..3000).step_by(20).map(VirtualPage).collect();
    world.processes.push(process);
    world.refuse.insert((7, VirtualPage(1020)), Outcome::Busy);
    world
}

/// So many turns of tiering over `world`, and the end.
fn tier(world: &mut dyn World, turns: usize) -> Vec<String> {
    let journal = RefCell::new(Text::default());
    let options = TierOptions {
        explain: true,
        rest: true,
        ..TierOptions::DEFAULT
    };
    let config = TierConfig::new(&options, world.topology(), world.page(), 5).unwrap();
    let mut world = Recording::new(world, &journal);
    let mut tierer = Tierer::new(&mut world, config);
    for _ in 0..turns {
        journal.borrow_mut().line(Line::Step);
        let mut nobody = ();
        let mut reporter = Telling::new(&mut nobody, &journal);
        if tierer.step(&mut world, &mut reporter).is_err() {
            break;
        }
    }
    journal.borrow_mut().line(Line::Finish);
    let _ = tierer.finish(&mut world);
    journal.into_inner().0
}

#[test]
fn a_journal_runs_again_byte_for_byte() {
    let mut live = world();
    let facts = Facts::of(&live);
    let written = tier(&mut live, 200);
    assert!(written.iter().any(|line| line.contains("move_pages")));
    assert!(written.iter().any(|line| line.contains(r#""event":{"at""#)));
    // The facts, too, go through text.
    let facts = serde_json::from_str(&serde_json::to_string(&facts).unwrap()).unwrap();
    let mut again = Replaying::new(facts, entries(&written).into_iter()).unwrap();
    assert_eq!(tier(&mut again, 200), written);
    assert_eq!(again.difference(), None);
}

/// Nodes' latencies are answers like all others. A world that cannot tell them, as in a
/// journal from before worlds could, is not asked, and nothing of them is in its journal.
#[test]
fn latencies_run_again_and_are_asked_only_where_they_are_told() {
    let mut live = world();
    live.latencies = [(FAST, 100), (SLOW, 250)].into();
    let facts = Facts::of(&live);
    let written = tier(&mut live, 200);
    let asked = |lines: &[String]| lines.iter().any(|line| line.contains("canary"));
    assert!(facts.canary && asked(&written));
    let mut again = Replaying::new(facts, entries(&written).into_iter()).unwrap();
    assert_eq!(tier(&mut again, 200), written);
    assert_eq!(again.difference(), None);
    let mut blind = world();
    let facts = serde_json::to_string(&Facts::of(&blind)).unwrap();
    assert!(!facts.contains("canary"));
    assert!(!serde_json::from_str::<Facts>(&facts).unwrap().canary);
    assert!(!asked(&tier(&mut blind, 200)));
}

#[test]
fn another_decision_is_named() {
    let mut live = world();
    let facts = Facts::of(&live);
    let written = tier(&mut live, 200);
    let mut entries = entries(&written);
    // Somebody wrote another page's move.
    let moved = entries.iter_mut().find_map(|(call, _)| match call {
        Call::MovePages { runs, .. } => Some(runs),
        _ => None,
    });
    moved.unwrap()[0].first.0 += 1;
    let mut again = Replaying::new(facts, entries.into_iter()).unwrap();
    let replayed = tier(&mut again, 200);
    assert_ne!(replayed, written);
    assert!(again.difference().unwrap().contains("MovePages"));
}

#[test]
fn a_journal_cut_short_ends_the_run() {
    let mut live = world();
    let facts = Facts::of(&live);
    let written = tier(&mut live, 50);
    let entries = entries(&written[..written.len() / 2]);
    let mut again = Replaying::new(facts, entries.into_iter()).unwrap();
    assert!(tier(&mut again, 50).len() < written.len());
    assert!(again.difference().unwrap().ends_with("it had ended"));
}

/// Changes the first answer that `change` knows; what the run again says of it.
fn changed(change: impl Fn(&mut Answer) -> bool) -> String {
    let mut live = world();
    let facts = Facts::of(&live);
    let mut entries = entries(&tier(&mut live, 200));
    let found = entries.iter_mut().any(|(_, answer)| change(answer));
    assert!(found, "no answer of the kind");
    let mut again = Replaying::new(facts, entries.into_iter()).unwrap();
    tier(&mut again, 200);
    again.difference().unwrap_or("none").to_owned()
}

#[test]
fn what_no_world_answers_never_reaches_the_loop() {
    let says = |change: &dyn Fn(&mut Answer) -> bool, what: &str| {
        let difference = changed(change);
        assert_eq!(difference, format!("no world answers with {what}"));
    };
    let area = |change: fn(&mut Vec<crate::world::Area>)| {
        move |answer: &mut Answer| match answer {
            Answer::AddressSpace(Some(space)) => {
                change(&mut space.areas);
                true
            }
            _ => false,
        }
    };
    says(
        &area(|areas| areas[0].pages = u64::MAX),
        "pages beyond the address space",
    );
    says(
        &area(|areas| areas.push(areas[0].clone())),
        "mappings that overlap",
    );
    says(
        &|answer| match answer {
            Answer::Survey { found, .. } if !found.is_empty() => {
                found[0].node = NodeId(1024);
                true
            }
            _ => false,
        },
        "such a node",
    );
    says(
        &|answer| match answer {
            Answer::Settled(all) if !all.is_empty() => {
                all[0].pages += 1 << 30;
                true
            }
            _ => false,
        },
        "more pages than were to move",
    );
    says(
        &|answer| match answer {
            Answer::Rooms(rooms) => {
                rooms[0].1.high = u64::MAX;
                true
            }
            _ => false,
        },
        "so much room",
    );
    says(
        &|answer| match answer {
            Answer::Processes(seen) => {
                seen[0].ticks = u64::MAX;
                true
            }
            _ => false,
        },
        "so large a number",
    );
    let moments = std::cell::Cell::new(0);
    says(
        &|answer| match answer {
            Answer::Number(ns) if *ns > 0 => {
                moments.set(moments.get() + 1);
                let back = moments.get() == 20;
                if back {
                    *ns = 0;
                }
                back
            }
            _ => false,
        },
        "a moment before the last one",
    );
}

#[test]
fn facts_of_no_machine_are_refused() {
    let mut facts = Facts::of(&world());
    facts.boot_ms = u64::MAX;
    let error = Replaying::new(facts, std::iter::empty()).err().unwrap();
    assert_eq!(error.to_string(), "no machine has so large a number");
    let mut facts = Facts::of(&world());
    facts.topology.nodes[0].cpus = vec![u32::MAX];
    let error = Replaying::new(facts, std::iter::empty()).err().unwrap();
    assert_eq!(error.to_string(), "no machine has such a CPU");
    let text = serde_json::to_string(&Facts::of(&world())).unwrap();
    let text = text.replace("\"page\":4096", "\"page\":0");
    let error = serde_json::from_str::<Facts>(&text).unwrap_err();
    assert!(error.to_string().contains("4096 to 65536"), "{error}");
}

#[test]
fn balancing_runs_again_too() {
    let run = |world: &mut dyn World| {
        let journal = RefCell::new(Text::default());
        let page = world.page();
        let mut world = Recording::new(world, &journal);
        let config = BalanceConfig::new(&BalanceOptions::DEFAULT, page, false).unwrap();
        let mut balancer = Balancer::new(&mut world, config).unwrap();
        for _ in 0..50 {
            journal.borrow_mut().line(Line::Step);
            balancer.step(&mut world, &mut ()).unwrap();
        }
        balancer.finish(&mut world).unwrap();
        journal.into_inner().0
    };
    let mut live = FakeWorld::two_nodes(1000, 1000);
    live.processes.push(FakeProcess::new(7, 0x10, 64, SLOW));
    let facts = Facts::of(&live);
    let written = run(&mut live);
    let mut again = Replaying::new(facts, entries(&written).into_iter()).unwrap();
    assert_eq!(run(&mut again), written);
}

#[test]
fn a_source_that_cuts_is_told_to_cut_and_does_so_again() {
    let source = SourceId(0);
    let run = |world: &mut dyn World| {
        let journal = RefCell::new(Text::default());
        let mut world = Recording::new(world, &journal);
        assert!(world.cuts(source));
        world.glance_in_pieces(source, &[], 512, 250).unwrap();
        journal.into_inner().0
    };
    let mut live = world();
    live.cuts = true;
    let facts = Facts::of(&live);
    let written = run(&mut live);
    assert_eq!(live.piece, Some(512));
    let mut again = Replaying::new(facts, entries(&written).into_iter()).unwrap();
    assert_eq!(run(&mut again), written);
    assert_eq!(again.difference(), None);
}

#[test]
fn tiers_by_hand_come_back_as_they_were() {
    let nodes = |id, cpus: &[u32]| NodeInput {
        id: NodeId(id),
        online: true,
        memory_bytes: 1 << 30,
        cpus: cpus.to_vec(),
        distances: None,
        figures: Default::default(),
        tier: None,
    };
    let own = Topology::try_from(TopologyInput::new(vec![nodes(0, &[0]), nodes(1, &[1])])).unwrap();
    let by_hand = own.with_tiers(&"1/0".parse().unwrap()).unwrap();
    for topology in [own, by_hand] {
        let written = serde_json::to_string(&input(&topology)).unwrap();
        let read: TopologyInput = serde_json::from_str(&written).unwrap();
        let again = Topology::try_from(read).unwrap();
        for node in topology.nodes() {
            assert_eq!(again.is_top_tier(node.id), topology.is_top_tier(node.id));
            assert_eq!(again.promotion_target(node.id), node.promotion_target);
        }
    }
}
