use super::*;
use crate::fs::Root;
use crate::live::processes::Selection;
use crate::mover::Config;
use crate::sys::Errno;
use crate::sys::move_pages::MoveFlags;
use memtide_core::balancing::TaskId;
use memtide_core::units::PageNumber;

/// Process 7 has four pages at 0x10000 on node 1; the third is pinned.
struct FakeKernel {
    nodes: [i32; 4],
    same: bool,
    moves: usize,
}

impl Kernel for FakeKernel {
    fn is_same(&mut self, process: mover::Process) -> bool {
        self.same && process.pid == 7
    }

    fn move_pages(
        &mut self,
        _: u32,
        pages: &[usize],
        nodes: Option<&[i32]>,
        status: &mut [i32],
        _: MoveFlags,
    ) -> Result<usize, Errno> {
        self.moves += usize::from(nodes.is_some());
        for (n, address) in pages.iter().enumerate() {
            let page = (address - 0x10000) >> 12;
            if let (Some(nodes), true) = (nodes, page != 2) {
                self.nodes[page] = nodes[n];
            }
            let busy = nodes.is_some() && page == 2;
            status[n] = if busy { -16 } else { self.nodes[page] };
        }
        Ok(0)
    }
}

struct Machine {
    _folder: tempfile::TempDir,
    processes: Processes,
    space: Space,
    placement: Placement,
    mover: Mover<FakeKernel>,
}

fn machine(same: bool) -> Machine {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path = folder.path().join("proc/7").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("stat", &crate::fs::proc::stat::tests::line(7, "x", 0, 5));
    write("maps", "00010000-00014000 rw-p 00000000 00:00 0 \n");
    write(
        "numa_maps",
        "00010000 default anon=4 dirty=4 N1=4 kernelpagesize_kB=4\n",
    );
    write("status", "Name:\tx\n");
    let root = Root::new(folder.path());
    let mut processes = Processes::new(root, PageSize::KIB_4, Selection::Pids(vec![7]));
    processes.refresh().unwrap();
    let (mut space, mut placement) = (Space::new(1), Placement::new());
    space
        .place_runs(OwnerId(0), VirtualPage(0x10), 4, |_, dense, pages| {
            placement.set_run(dense, pages, NodeId(1), false);
        })
        .unwrap();
    let kernel = FakeKernel {
        nodes: [1; 4],
        same,
        moves: 0,
    };
    Machine {
        _folder: folder,
        processes,
        space,
        placement,
        mover: Mover::new(kernel, Config::default()),
    }
}

#[derive(Default)]
struct Events(Vec<Event>);

impl Reporter for Events {
    fn event(&mut self, _: Millis, event: Event) {
        self.0.push(event);
    }
}

/// All four pages to node 0; what was told, the sums, and what the core heard.
fn carried(
    machine: &mut Machine,
    dry_run: bool,
    explain: bool,
) -> (Vec<Event>, Sums, Vec<(u64, bool)>) {
    let first = machine.space.find(OwnerId(0), VirtualPage(0x10)).unwrap();
    let moves: Vec<PageMove> = (0..4)
        .map(|n| PageMove {
            page: PageNumber(first.0 + n),
            pages: 1,
            task: TaskId(0),
            from: NodeId(1),
            to: NodeId(0),
            frequency: 2,
            why: Verdict::Own,
        })
        .collect();
    let mut books = Books {
        processes: &machine.processes,
        space: &machine.space,
        placement: &mut machine.placement,
        mover: &mut machine.mover,
        page: PageSize::KIB_4,
        at: Millis(9),
        dry_run,
        explain,
    };
    let (mut events, mut heard) = (Events::default(), Vec::new());
    let sums = books.carry_out(&moves, &mut events, |wanted, moved| {
        heard.push((wanted.page.0 - first.0, moved));
    });
    heard.sort_unstable();
    (events.0, sums, heard)
}

#[test]
fn sums_where_nobody_asks_why() {
    let mut machine = machine(true);
    let (events, sums, heard) = carried(&mut machine, false, false);
    assert_eq!((sums.moved, sums.failed), (3, 1));
    assert_eq!(heard, [(0, true), (1, true), (2, false), (3, true)]);
    let moved = MovedPages {
        pid: 7,
        from: NodeId(1),
        to: NodeId(0),
        pages: 3,
    };
    assert_eq!(events, [Event::MovedPages(moved)]);
    assert_eq!(machine.placement.resident(NodeId(0)), 3);
}

#[test]
fn runs_with_their_reason_where_somebody_does() {
    let (events, _, _) = carried(&mut machine(true), false, true);
    let runs: Vec<(u64, u64, bool)> = events
        .iter()
        .map(|event| match event {
            Event::Moved { range, why, .. } => {
                assert!(
                    why.starts_with("used from node 0: the same thread"),
                    "{why}"
                );
                (range.address, range.pages, true)
            }
            Event::Stayed { range, node, .. } => {
                assert_eq!(*node, NodeId(1));
                (range.address, range.pages, false)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        runs,
        [(0x10000, 2, true), (0x12000, 1, false), (0x13000, 1, true)]
    );
}

#[test]
fn a_dry_run_calls_nobody_and_tells_once() {
    let mut machine = machine(true);
    let (events, sums, _) = carried(&mut machine, true, false);
    assert_eq!(sums.moved, 4);
    assert!(matches!(
        &events[..],
        [Event::Moved { dry_run: true, range, .. }] if range.pages == 4
    ));
    assert_eq!(machine.mover.kernel().moves, 0);
    assert_eq!(machine.placement.resident(NodeId(0)), 4);
}

#[test]
fn a_process_that_is_another_by_now_is_left_alone() {
    let mut machine = machine(false);
    let (events, sums, heard) = carried(&mut machine, false, true);
    assert_eq!((sums.moved, sums.failed), (0, 0));
    assert!(events.is_empty() && heard.iter().all(|(_, moved)| !moved));
    assert_eq!(machine.mover.kernel().moves, 0);
}
