use super::*;
use crate::fs::topology;
use crate::sys::own_memory::OwnPages;
use memtide_loop::world::{Outcome, SharedPages, Span};
use std::cell::Cell;
use std::rc::Rc;

/// A source that sees one page in each poll, or breaks.
struct Fake {
    breaks: bool,
    polls: Rc<Cell<u32>>,
    closes: Rc<Cell<u32>>,
}

impl Source for Fake {
    fn kind(&self) -> access::Source {
        access::Source::Damon
    }
    fn abilities(&self) -> Abilities {
        Abilities::default()
    }
    fn look(&mut self, _: &[Subject], _: Duration) -> Result<u64, SourceError> {
        Ok(0)
    }
    fn glance(&mut self, _: &[Subject], _: Duration) -> Result<(), SourceError> {
        Ok(())
    }
    fn poll(&mut self, _: Duration, sink: &mut dyn Sink) -> Result<(), SourceError> {
        self.polls.set(self.polls.get() + 1);
        if self.breaks {
            return Err(SourceError::Failed("it broke".into()));
        }
        sink.touched(View::Look, OwnerId(0), VirtualPage(1), 1);
        Ok(())
    }
    fn close(&mut self) -> Result<(), SourceError> {
        self.closes.set(self.closes.get() + 1);
        match self.breaks {
            true => Err(SourceError::Failed("and cannot be put back".into())),
            false => Ok(()),
        }
    }
    fn kernel_time(&mut self) -> Duration {
        Duration::ZERO
    }
    fn lost(&self) -> u64 {
        0
    }
}

/// The first breaks: it is closed once and asked no more, and the second is heard in the same wait and
/// in those after it. The break is told in between.
#[test]
fn a_source_that_breaks_does_not_silence_the_others() {
    let counts = || (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let all = [counts(), counts()];
    let source = |n: usize| {
        let (polls, closes) = all[n].clone();
        let breaks = n == 0;
        LiveSource::Views(Box::new(Fake {
            breaks,
            polls,
            closes,
        }))
    };
    let root = Root::default();
    let topology = topology::read(&root).unwrap().topology;
    let page = PageSize::new(rustix::param::page_size() as u32).unwrap();
    let selection = Selection::Pids(Vec::new());
    let sources = vec![source(0), source(1)];
    let mut world = LiveWorld::new(root, topology, page, selection, sources);
    let mut came = Came::default();
    assert_eq!(world.wait(0, &mut came), Ok(()));
    assert_eq!(came.reports.len(), 1);
    let broken = world.wait(0, &mut came);
    assert!(matches!(
        broken,
        Err(WorldError::Source {
            source_id: SourceId(0),
            ..
        })
    ));
    assert_eq!(world.wait(0, &mut came), Ok(()));
    assert_eq!(came.reports.len(), 2);
    let counted = |n: usize| (all[n].0.get(), all[n].1.get());
    assert_eq!((counted(0), counted(1)), ((1, 1), (2, 0)));
    // What could not be put back is an error at the end, and not tried again.
    assert!(world.close().is_err());
    assert_eq!((counted(0), counted(1)), ((1, 1), (2, 1)));
}

/// A process that has run before makes a world: what it spends is no more than what the process has
/// spent since.
#[test]
fn a_worlds_time_on_cpus_begins_with_it() {
    let root = Root::default();
    let topology = topology::read(&root).unwrap().topology;
    let page = PageSize::new(rustix::param::page_size() as u32).unwrap();
    let before = cpu_ns(ClockId::ProcessCPUTime);
    assert!(before > 0);
    let selection = Selection::Pids(Vec::new());
    let mut world = LiveWorld::new(root, topology, page, selection, Vec::new());
    let first = world.own_cpu_ns();
    assert!(first <= cpu_ns(ClockId::ProcessCPUTime) - before);
    assert!(world.own_cpu_ns() >= first);
}

/// Another thread works, and this one waits for it.
#[test]
fn a_threads_world_does_not_count_what_others_spend() {
    let root = Root::default();
    let topology = topology::read(&root).unwrap().topology;
    let page = PageSize::new(rustix::param::page_size() as u32).unwrap();
    let selection = Selection::Pids(Vec::new());
    let world = LiveWorld::new(root, topology, page, selection, Vec::new());
    let mut world = world.of_this_thread();
    const WORK_NS: u64 = 50_000_000;
    let other = std::thread::spawn(|| while cpu_ns(ClockId::ThreadCPUTime) < WORK_NS {});
    other.join().unwrap();
    assert!(world.own_cpu_ns() < WORK_NS / 2);
}

/// This process through the world: listed, read, surveyed, and its pages
/// are where they are asked to be.
#[test]
fn this_process_is_found_and_its_pages_are_there_already() {
    let root = Root::default();
    let topology = topology::read(&root).unwrap().topology;
    let page = PageSize::new(rustix::param::page_size() as u32).unwrap();
    let pid = std::process::id();
    let selection = Selection::Pids(vec![pid]);
    let mut world = LiveWorld::new(root, topology, page, selection, Vec::new());
    let mut seen = Vec::new();
    world.processes(&mut seen).unwrap();
    let [me] = seen[..] else {
        panic!("{seen:?}");
    };
    assert_eq!(me.process.pid, pid);
    let pages = OwnPages::map(16).unwrap();
    (0..16).for_each(|n| pages.write(n, 1));
    let mut memory = AddressSpace::default();
    let presence = world.address_space(me.process, &mut memory).unwrap();
    assert_eq!(presence, Presence::Here);
    let first = VirtualPage(pages.address() as u64 >> page.shift());
    let Some(area) = memory.area(first) else {
        println!("not checked further: this kernel has no numa_maps");
        return;
    };
    let mut found: Vec<Found> = Vec::new();
    let span = Span { first, pages: 16 };
    let presence = world.survey(me.process, &[span.into()], &mut |run| found.push(run));
    match presence {
        Err(WorldError::NotPermitted { .. } | WorldError::Survey { .. }) => {
            println!("not checked further: {presence:?}");
            return;
        }
        presence => assert_eq!(presence, Ok(Presence::Here)),
    }
    assert_eq!(found.iter().map(|run| run.pages).sum::<u64>(), 16);
    if let Some(counted) = area.counted {
        // The kernel counted what it says of each page, too.
        assert!(counted.pages >= 16, "{counted:?}");
        assert!(
            found.iter().all(|run| run.node == counted.node),
            "{found:?}"
        );
    }
    let mut settled = Vec::new();
    for run in &found {
        let how = MoveHow {
            batch: 8,
            shared: SharedPages::Leave,
        };
        let one = PageRun {
            first: run.first,
            pages: run.pages,
            huge: run.huge,
        };
        world.move_pages(me.process, run.node, &[one], how, &mut settled);
    }
    let there = |one: &&Settled| one.outcome == Outcome::AlreadyThere;
    let pages = settled.iter().filter(there).map(|one| one.pages);
    assert_eq!(pages.sum::<u64>(), 16, "{settled:?}");
    // Somebody who had this pid before is gone.
    let other = ProcessId {
        start_ticks: me.process.start_ticks + 1,
        ..me.process
    };
    let presence = world.address_space(other, &mut memory).unwrap();
    assert_eq!(presence, Presence::Gone);
    settled.clear();
    let one = PageRun {
        first,
        pages: 1,
        huge: false,
    };
    let how = MoveHow {
        batch: 8,
        shared: SharedPages::Leave,
    };
    world.move_pages(other, NodeId(0), &[one], how, &mut settled);
    assert_eq!(settled[0].outcome, Outcome::ProcessGone);
}

#[test]
fn time_passes_while_waiting_and_rooms_are_known() {
    let root = Root::default();
    let topology = topology::read(&root).unwrap().topology;
    let page = PageSize::new(rustix::param::page_size() as u32).unwrap();
    let nodes = topology.memory_nodes().len();
    let selection = Selection::Pids(Vec::new());
    let mut world = LiveWorld::new(root, topology, page, selection, Vec::new());
    let before = world.now_ns();
    world.wait(1, &mut Came::default()).unwrap();
    assert!(world.now_ns() > before);
    let mut rooms = Vec::new();
    world.rooms(&mut rooms).unwrap();
    assert!(rooms.len() <= nodes);
    assert!(rooms.iter().all(|(_, space)| space.present >= space.free));
}
