//! Random calls of parents and children against a trivially correct model: a
//! page is a counted cell that holds its node, and who has it holds the cell.

use memtide_core::mempolicy::{
    Errno, Family, Kernel, Machine, MachineInput, Member, Process, RawMask, WeightFiles,
};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

const NODES: u16 = 3;
/// Across the border of a page table.
const BASE: u64 = (5 << 27) - 6;
const PAGES: u64 = 12;
const BIND: u64 = 2;
const MOVE: u32 = 2;
const MOVE_ALL: u32 = 4;

#[derive(Clone, Debug)]
enum Call {
    Fork,
    Exit,
    Mmap,
    Munmap,
    Touch,
    /// To one node.
    Bind(u16, u32),
    /// Where the process runs, and so where its pages without policy go.
    RunOn(u16),
}

/// A page without policy goes to the CPU's node.
#[derive(Clone, Default)]
struct Model {
    here: u16,
    bound: BTreeMap<u64, Option<u16>>,
    pages: BTreeMap<u64, Rc<Cell<u16>>>,
}

impl Model {
    fn touch(&mut self, range: std::ops::Range<u64>) -> Result<(), Errno> {
        for page in range {
            let bound = self.bound.get(&page).ok_or(Errno::EFAULT)?;
            let node = bound.unwrap_or(self.here);
            let alone = |page: &Rc<_>| Rc::strong_count(page) == 1;
            if !self.pages.get(&page).is_some_and(alone) {
                self.pages.insert(page, Rc::new(Cell::new(node)));
            }
        }
        Ok(())
    }

    fn bind(&mut self, range: std::ops::Range<u64>, node: u16, flags: u32) -> Result<(), Errno> {
        if range.clone().any(|page| !self.bound.contains_key(&page)) {
            return Err(Errno::EFAULT);
        }
        for page in range {
            self.bound.insert(page, Some(node));
            if let Some(cell) = self.pages.get(&page) {
                let alone = Rc::strong_count(cell) == 1;
                if flags & MOVE_ALL != 0 || flags & MOVE != 0 && alone {
                    cell.set(node);
                }
            }
        }
        Ok(())
    }
}

fn calls() -> impl Strategy<Value = Vec<(usize, u64, u64, Call)>> {
    let flags = prop_oneof![Just(0), Just(MOVE), Just(MOVE_ALL)];
    let call = prop_oneof![
        2 => Just(Call::Fork),
        1 => Just(Call::Exit),
        2 => Just(Call::Mmap),
        1 => Just(Call::Munmap),
        6 => Just(Call::Touch),
        6 => (0..NODES, flags).prop_map(|(node, flags)| Call::Bind(node, flags)),
        1 => (0..NODES).prop_map(Call::RunOn),
    ];
    proptest::collection::vec((0..6usize, 0..PAGES, 1..=PAGES, call), 1..60)
}

fn nodes(text: &str) -> NodeMask {
    text.parse().unwrap()
}

proptest! {
    #[test]
    fn pages_are_shared_as_cells_are(calls in calls(), auto in any::<bool>()) {
        let kernel = if auto { Kernel::WITH_AUTO } else { Kernel::BEFORE_AUTO };
        let all = nodes("0-2");
        let machine = Arc::new(Machine::new(MachineInput::new(all, all, kernel)).unwrap());
        let files = WeightFiles::new(&machine, None);
        let mut family = Family::new(Process::new(machine, &all, files));
        let mut models = vec![(Family::FIRST, Model::default())];
        for (who, first, length, call) in calls {
            let at = who % models.len();
            let member: Member = models[at].0;
            let range = BASE + first..BASE + (first + length).min(PAGES);
            let (start, pages) = (range.start << 12, range.end - range.start);
            let alone = models.len() == 1;
            let model = &mut models[at].1;
            match call {
                Call::Fork => {
                    let child = model.clone();
                    models.push((family.fork(member).unwrap(), child));
                }
                Call::Exit if !alone => {
                    models.remove(at);
                    family.exit(member);
                }
                Call::Exit => {}
                Call::Mmap => {
                    let process = family.get_mut(member).unwrap();
                    let mapped = process.mmap(start, pages << 12);
                    let free = range.clone().all(|page| !model.bound.contains_key(&page));
                    prop_assert_eq!(mapped, if free { Ok(()) } else { Err(Errno::EEXIST) });
                    if free {
                        model.bound.extend(range.map(|page| (page, None)));
                    }
                }
                Call::Munmap => {
                    family.get_mut(member).unwrap().munmap(start, pages << 12).unwrap();
                    model.bound.retain(|page, _| !range.contains(page));
                    model.pages.retain(|page, _| !range.contains(page));
                }
                Call::Touch => {
                    let touched = family.touch(member, range.start, pages);
                    prop_assert_eq!(touched, model.touch(range));
                }
                Call::Bind(node, flags) => {
                    let mask = RawMask::of(&nodes(&node.to_string()));
                    let bound = family.mbind(member, start, pages << 12, BIND, &mask, 64, flags);
                    prop_assert_eq!(bound, model.bind(range, node, flags));
                }
                Call::RunOn(node) => {
                    family.get_mut(member).unwrap().run_on(NodeId(node)).unwrap();
                    model.here = node;
                }
            }
            for (member, model) in &models {
                let process = family.get(*member).unwrap();
                for page in BASE..BASE + PAGES {
                    let node = process.node_of(page).map(|node| node.0);
                    prop_assert_eq!(node, model.pages.get(&page).map(|cell| cell.get()));
                }
            }
        }
    }
}
