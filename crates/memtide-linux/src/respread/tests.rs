//! A process made of files, and a kernel made of a map: every page ends up on
//! its node, and what goes wrong on the way is told.

use super::*;
use crate::sys::move_pages::MoveFlags;
use memtide_core::units::NodeId;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const PID: u32 = 77;
const FIRST: u64 = 0x1_0000;
const DRAM: NodeId = NodeId(0);
const CXL: NodeId = NodeId(2);

/// Where each page is, and what goes wrong.
#[derive(Debug, Default)]
struct Fake {
    nodes: BTreeMap<u64, i32>,
    busy: BTreeSet<u64>,
    /// Calls that move until the process is gone.
    lives: Option<usize>,
    moves: usize,
}

#[derive(Clone, Debug)]
struct Shared(Rc<RefCell<Fake>>);

impl Kernel for Shared {
    fn is_same(&mut self, _: Process) -> bool {
        self.0.borrow().lives != Some(0)
    }

    fn move_pages(
        &mut self,
        _: u32,
        pages: &[usize],
        nodes: Option<&[i32]>,
        status: &mut [i32],
        _: MoveFlags,
    ) -> Result<usize, Errno> {
        let mut fake = self.0.borrow_mut();
        if fake.lives == Some(0) {
            return Err(Errno::SRCH);
        }
        if nodes.is_some() {
            fake.lives = fake.lives.map(|lives| lives - 1);
        }
        for (at, address) in pages.iter().enumerate() {
            let page = *address as u64 >> 12;
            let Some(&now) = fake.nodes.get(&page) else {
                status[at] = -Errno::NOENT.raw_os_error();
                continue;
            };
            status[at] = now;
            let Some(&to) = nodes.map(|nodes| &nodes[at]) else {
                continue;
            };
            if fake.busy.contains(&page) {
                status[at] = -Errno::BUSY.raw_os_error();
            } else {
                fake.nodes.insert(page, to);
                fake.moves += 1;
                status[at] = to;
            }
        }
        Ok(0)
    }
}

/// A process with one anonymous mapping of `pages` pages; those that `fake`
/// knows are present.
fn machine(pages: u64, fake: &Fake, mems: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let proc = folder.path().join(format!("proc/{PID}"));
    std::fs::create_dir_all(&proc).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(proc.join(name), bytes).unwrap();
    let stat = format!("{PID} (x) S 1 2 3 4 -1 0 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24\n");
    write("stat", stat.as_bytes());
    write("status", format!("Mems_allowed_list:\t{mems}\n").as_bytes());
    let (start, end) = (FIRST << 12, (FIRST + pages) << 12);
    write(
        "maps",
        format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n").as_bytes(),
    );
    let on = |node: i32| fake.nodes.values().filter(|on| **on == node).count();
    let counts = format!("N0={} N2={}", on(0), on(2));
    let line = format!("{start:x} default anon=1 {counts} kernelpagesize_kB=4\n");
    write("numa_maps", line.as_bytes());
    let mut map = vec![0u8; ((FIRST + pages) * 8) as usize];
    for page in fake.nodes.keys() {
        map[*page as usize * 8 + 7] = 0x80;
    }
    write("pagemap", &map);
    folder
}

fn spread() -> Spread {
    Spread::new([(DRAM, 9), (CXL, 1)]).unwrap()
}

fn open(
    folder: &tempfile::TempDir,
    kernel: &Shared,
    dry_run: bool,
) -> Result<Respread<Shared>, RespreadError> {
    let options = Options {
        spread: spread(),
        shared: SharedPages::Leave,
        dry_run,
        page: PageSize::KIB_4,
    };
    Respread::open(&Root::new(folder.path()), kernel.clone(), PID, options)
}

/// Steps to the end, `portion` pages at a time, none of which is exceeded.
fn run(mut respread: Respread<Shared>, portion: u64) -> Report {
    loop {
        let before = respread.moved();
        let step = respread.step(portion).unwrap();
        assert!(respread.moved() - before <= portion);
        if step != Step::Going {
            return respread.finish(false).unwrap();
        }
    }
}

/// Every page but each seventh is there, on nodes in turn.
fn scattered(pages: u64) -> Fake {
    let there = (0..pages).filter(|page| page % 7 != 3);
    let place = |page: u64| (FIRST + page, [0, 2, 0][page as usize % 3]);
    Fake {
        nodes: there.map(place).collect(),
        ..Fake::default()
    }
}

fn misplaced(kernel: &Shared) -> usize {
    let fake = kernel.0.borrow();
    let at_home = |(page, node): &(&u64, &i32)| i32::from(spread().node_at(**page).0) == **node;
    fake.nodes.len() - fake.nodes.iter().filter(at_home).count()
}

#[test]
fn every_page_ends_on_its_node_by_the_fewest_moves() {
    for portion in [1, 100, 16_384] {
        let fake = scattered(3000);
        let folder = machine(3000, &fake, "0-2");
        let kernel = Shared(Rc::new(RefCell::new(fake)));
        let wrong = misplaced(&kernel);
        let planned = run(open(&folder, &kernel, true).unwrap(), portion);
        assert_eq!(
            (planned.moved as usize, kernel.0.borrow().moves),
            (wrong, 0)
        );
        let report = run(open(&folder, &kernel, false).unwrap(), portion);
        assert_eq!((misplaced(&kernel), kernel.0.borrow().moves), (0, wrong));
        assert_eq!(
            (report.end, report.reached, report.moved as usize),
            (End::Done, true, wrong)
        );
        // The dry run has foreseen it.
        let on = |node| {
            kernel
                .0
                .borrow()
                .nodes
                .values()
                .filter(|on| **on == node)
                .count() as u64
        };
        assert_eq!(planned.after, Some(vec![(DRAM, on(0)), (CXL, on(2))]));
        let again = run(open(&folder, &kernel, false).unwrap(), portion);
        assert_eq!(again.moved, 0);
    }
}

#[test]
fn a_process_that_ends_after_any_call_is_told_of_and_nothing_is_lost() {
    for lives in 0..4 {
        let fake = Fake {
            lives: Some(lives),
            ..scattered(5000)
        };
        let folder = machine(5000, &fake, "0-2");
        let kernel = Shared(Rc::new(RefCell::new(fake)));
        let report = run(open(&folder, &kernel, false).unwrap(), 512);
        assert_eq!((report.end, report.reached), (End::ProcessEnded, false));
        assert_eq!(report.moved as usize, kernel.0.borrow().moves);
        assert_eq!(report.after, None);
    }
}

#[test]
fn busy_pages_are_tried_in_each_pass_and_counted_once() {
    let mut fake = scattered(1000);
    let busy = fake
        .nodes
        .iter()
        .filter(|(page, node)| spread().node_at(**page) == CXL && **node == 0);
    fake.busy = busy.map(|(page, _)| *page).collect();
    let (stuck, present) = (fake.busy.len() as u64, fake.nodes.len() as u64);
    let folder = machine(1000, &fake, "0-2");
    let kernel = Shared(Rc::new(RefCell::new(fake)));
    let report = run(open(&folder, &kernel, false).unwrap(), 512);
    assert_eq!(
        (report.stayed.busy, misplaced(&kernel) as u64),
        (stuck, stuck)
    );
    // Some six in a hundred: too many.
    assert!(stuck * 100 > present && !report.reached);
    kernel.0.borrow_mut().busy.clear();
    assert!(run(open(&folder, &kernel, false).unwrap(), 512).reached);
    assert_eq!(misplaced(&kernel), 0);
}

#[test]
fn what_cannot_be_spread_is_refused_in_a_line() {
    let fake = scattered(10);
    let folder = machine(10, &fake, "0-1");
    let kernel = Shared(Rc::new(RefCell::new(fake)));
    let refused = || open(&folder, &kernel, false).unwrap_err().to_string();
    assert_eq!(refused(), "process 77: its cpuset, 0-1, leaves out node 2");
    let zombie = format!("{PID} (x) Z 1 2 3 4 -1 0 10 11 12 13 14 15 16 17 18 19 20 21 22 0 24\n");
    std::fs::write(folder.path().join(format!("proc/{PID}/stat")), zombie).unwrap();
    assert_eq!(
        refused(),
        "process 77 has no memory: it is a kernel thread, or has ended"
    );
    std::fs::remove_dir_all(folder.path().join(format!("proc/{PID}"))).unwrap();
    assert_eq!(refused(), "process 77 does not exist");
    assert_eq!(kernel.0.borrow().moves, 0);
}
