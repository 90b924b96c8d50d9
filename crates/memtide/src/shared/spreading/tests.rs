//! Spreading on a machine of which only numbers are known.

use super::*;
use crate::shared::pacing::Budget;
use crate::shared::tending::Done;
use memtide_core::units::NodeId;
use memtide_linux::respread::RespreadError;
use std::sync::mpsc::{Sender, channel};

/// Processes 7 of class a and 8 of class b have 8 pages each that are elsewhere; b's cannot be moved.
struct Fake {
    faults: u64,
    /// Told of each list.
    listed: Option<Sender<()>>,
    fails: bool,
    /// Processes that were looked at, each with its spread.
    looked_at: Vec<(u32, String)>,
}

impl Fake {
    fn new() -> Fake {
        Fake {
            faults: 1,
            listed: None,
            fails: false,
            looked_at: Vec::new(),
        }
    }
}

impl Spreader for Fake {
    fn spread(
        &mut self,
        process: Process,
        options: &Options,
        _: &mut Budget,
        pause: &mut dyn FnMut(Duration, u64) -> bool,
    ) -> Result<Done, RespreadError> {
        let looked_at = (process.pid, options.spread.to_string());
        self.looked_at.push(looked_at);
        match process.pid {
            7 => Ok(Done {
                moved: 8,
                moving: Duration::ZERO,
                whole: !pause(Duration::ZERO, 8),
            }),
            pid => Err(RespreadError::NotPermitted(pid)),
        }
    }
}

impl Machine for Fake {
    fn members(&mut self) -> Result<Vec<Member>, String> {
        if let Some(listed) = &self.listed {
            let _ = listed.send(());
        }
        self.faults += 1;
        let member = |pid, class| {
            let process = Process {
                pid,
                start_ticks: 5,
            };
            (process, self.faults, ClassId(class))
        };
        match self.fails {
            true => Err("no list".to_owned()),
            // The last one's class has no weights.
            false => Ok(vec![member(7, 0), member(8, 1), member(9, 2)]),
        }
    }

    fn counted(&mut self, spread: &Spread) -> Spread {
        // As if the table had other numbers for the same proportions.
        let weights = spread.weights().iter();
        Spread::new(weights.map(|(node, weight)| (*node, weight * 2))).unwrap()
    }

    fn cpu(&self) -> Duration {
        Duration::from_millis(3)
    }
}

fn classes(text: &str) -> Classes {
    toml::from_str(text).unwrap()
}

const THREE: &str = "[a]\nweights = '0=3,1=1'\n[b]\nweights = '0=1,1=1'\n[c]\n";

fn by_class(text: &str) -> ByClass {
    let wanted = Wanted {
        options: &WeightsOptions::default(),
        classes: &classes(text),
    };
    wanted.by_class(PageSize::KIB_4)
}

/// So many rounds.
fn rounds(machine: &mut Fake, shared: &Shared, rounds: usize) {
    let mut left = rounds;
    let wait = |_| {
        left = left.wrapping_sub(1);
        left == usize::MAX
    };
    let done = work(machine, &by_class(THREE), 1000, shared, wait);
    done.unwrap_or_else(|why| shared.fails(why));
}

#[test]
fn classes_with_weights_are_spread_and_no_others() {
    let classes = by_class(THREE);
    let named: Vec<_> = classes
        .iter()
        .map(|(name, (id, _))| (&**name, id.0))
        .collect();
    assert_eq!(named, [("a", 0), ("b", 1)]);
    let weights = classes["a"].1.spread.weights().to_vec();
    assert_eq!(weights, [(NodeId(0), 3), (NodeId(1), 1)]);
    let (mut machine, shared) = (Fake::new(), Shared::default());
    rounds(&mut machine, &shared, 2);
    let once = [(7, "0=6,1=2".to_owned()), (8, "0=2,1=2".to_owned())];
    assert_eq!(machine.looked_at, [&once[..], &once[..]].concat());
    let latest = shared.latest();
    let wanted = Figures {
        processes: 2,
        refused: 1,
        moved_pages: 16,
        cpu: Duration::from_millis(3),
    };
    assert_eq!(latest.figures, wanted);
    // Of a class that cannot be spread this is said once.
    let [said] = &latest.says[..] else {
        panic!("{:?}", latest.says);
    };
    assert!(
        said.starts_with("weights: class b: process 8: not permitted"),
        "{said}"
    );
}

#[test]
fn a_paused_class_is_not_looked_at() {
    let (mut machine, shared) = (Fake::new(), Arc::new(Shared::default()));
    let spreading = Spreading {
        running: Some(Running {
            shared: Arc::clone(&shared),
            thread: std::thread::spawn(|| {}),
        }),
        classes: [("a".to_owned(), ClassId(0))].into(),
        ..Spreading::default()
    };
    spreading.pause("a", true);
    rounds(&mut machine, &shared, 1);
    assert_eq!(machine.looked_at.len(), 1);
    assert_eq!(shared.latest().figures.moved_pages, 0);
    spreading.pause("a", false);
    rounds(&mut machine, &shared, 1);
    assert_eq!(machine.looked_at.len(), 3);
}

#[test]
fn what_cannot_be_listed_ends_it_which_is_said_once() {
    let mut machine = Fake {
        fails: true,
        ..Fake::new()
    };
    let shared = Shared::default();
    rounds(&mut machine, &shared, 5);
    let latest = shared.latest();
    assert_eq!(latest.failed.as_deref(), Some("no list"));
    assert_eq!(latest.says, ["nothing is spread by weights: no list"]);
}

#[test]
fn the_thread_ends_when_it_is_asked_to_and_is_missed_when_it_does_by_itself() {
    let (sender, listed) = channel();
    let make = || Fake {
        listed: Some(sender),
        ..Fake::new()
    };
    let running = Running::start(make, &by_class(THREE), 1000).unwrap();
    let spreading = Spreading {
        running: Some(running),
        ..Spreading::default()
    };
    listed.recv().unwrap();
    assert!(matches!(spreading.stands(), Some(Ok(_))));
    let mut printer = Printer::new(false, PageSize::KIB_4);
    spreading.finish(&mut printer).unwrap();

    let make = || -> Fake { panic!("a mistake") };
    let running = Running::start(make, &by_class(THREE), 1000).unwrap();
    while !running.thread.is_finished() {
        std::thread::yield_now();
    }
    let spreading = Spreading {
        running: Some(running),
        ..Spreading::default()
    };
    assert_eq!(
        spreading.stands(),
        Some(Err("its thread has ended".to_owned()))
    );
    let why = spreading.finish(&mut printer).unwrap_err().to_string();
    assert!(why.contains("a mistake of memtide's"), "{why}");
}

#[test]
fn where_it_stands_is_written_beside_the_kernels_table() {
    let class = |name: &str| crate::shared::control::standing::Class {
        name: name.to_owned(),
        ..Default::default()
    };
    let standing = || Standing {
        cpu_ms: 5,
        classes: vec![class("a"), class("c")],
        ..Standing::default()
    };
    let mut none = standing();
    Spreading::default().complete(&mut none, None, PageSize::KIB_4);
    assert_eq!(none, standing());
    let mut table = standing();
    Spreading::default().complete(&mut table, Some("0=3".to_owned()), PageSize::KIB_4);
    let weights = table.weights.unwrap();
    assert_eq!(
        (weights.table.as_deref(), weights.processes),
        (Some("0=3"), 0)
    );
    let rests = Spreading {
        rests: Some("why".to_owned()),
        ..Spreading::default()
    };
    let mut told = standing();
    rests.complete(&mut told, None, PageSize::KIB_4);
    assert_eq!(told.weights.unwrap().rests.as_deref(), Some("why"));
    let shared = Arc::new(Shared::default());
    rounds(&mut Fake::new(), &shared, 1);
    let runs = Spreading {
        running: Some(Running {
            shared,
            thread: std::thread::spawn(std::thread::park),
        }),
        rests: None,
        classes: [("a".to_owned(), ClassId(0))].into(),
    };
    let mut told = standing();
    runs.complete(&mut told, None, PageSize::KIB_4);
    let weights = told.weights.unwrap();
    assert_eq!((weights.processes, weights.refused), (2, 1));
    assert_eq!((weights.moved_bytes, told.cpu_ms), (8 << 12, 8));
    let spread: Vec<bool> = told.classes.iter().map(|class| class.spread).collect();
    assert_eq!(spread, [true, false]);
}
