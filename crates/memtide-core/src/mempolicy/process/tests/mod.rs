use super::super::{Kernel, MODE_FLAGS, MachineInput, Mode, NUMA_BALANCING};
use super::super::{RELATIVE_NODES, RawMask, STATIC_NODES, WeightFiles};
use super::*;

const DEFAULT: u32 = 0;
const PREFERRED: u32 = 1;
const BIND: u32 = 2;
const INTERLEAVE: u32 = 3;
const LOCAL: u32 = 4;
const PREFERRED_MANY: u32 = 5;
const WEIGHTED: u32 = 6;

/// Page number of the tests' memory: 0 modulo 2, 3 and 6 and first of its PUD.
const BASE: u64 = 3 << 33;

fn mask(nodes: &str) -> RawMask {
    RawMask::of(&nodes.parse().unwrap())
}

fn at(page: u64) -> u64 {
    (BASE + page) << 12
}

/// A process on `memory` nodes, those of `cpus` with CPUs.
fn process_on(memory: &str, cpus: &str, kernel: Kernel) -> Process {
    let (memory, cpus) = (memory.parse().unwrap(), cpus.parse().unwrap());
    let machine = Arc::new(Machine::new(MachineInput::new(memory, cpus, kernel)).unwrap());
    let files = WeightFiles::new(&machine, None);
    Process::new(machine, &memory, files)
}

/// On nodes 0 to 3, the first two with CPUs, 64 pages mapped.
fn process() -> Process {
    let mut process = process_on("0-3", "0-1", Kernel::BEFORE_AUTO);
    process.mmap(at(0), 64 << 12).unwrap();
    process
}

impl Process {
    fn set(&mut self, mode: u32, nodes: &str) -> Result<(), i32> {
        self.set_mempolicy(mode, &mask(nodes), 1024)
            .map_err(Errno::code)
    }

    fn bind(&mut self, pages: Range<u64>, mode: u32, nodes: &str, flags: u32) -> Result<(), i32> {
        let len = (pages.end - pages.start) << 12;
        self.mbind(at(pages.start), len, mode.into(), &mask(nodes), 1024, flags)
            .map_err(Errno::code)
    }

    fn home(&mut self, pages: Range<u64>, node: u64) -> Result<(), i32> {
        let len = (pages.end - pages.start) << 12;
        self.set_mempolicy_home_node(at(pages.start), len, node, 0)
            .map_err(Errno::code)
    }

    /// Writes to pages and says where they are, a digit each, `-` for none.
    fn write(&mut self, pages: Range<u64>) -> String {
        self.touch(BASE + pages.start, pages.end - pages.start)
            .unwrap();
        self.nodes(pages)
    }

    fn nodes(&self, pages: Range<u64>) -> String {
        let digit = |p| self.node_of(BASE + p).map_or("-".into(), |n| n.to_string());
        pages.map(digit).collect()
    }

    fn ask_at(&mut self, page: u64, flags: u64) -> (Result<(), Errno>, i32, String) {
        let reply = self.get_mempolicy(Query {
            mode: true,
            mask: true,
            maxnode: 64,
            addr: at(page),
            flags,
        });
        shown(reply)
    }

    fn ask_task(&mut self, flags: u64) -> (Result<(), Errno>, i32, String) {
        let reply = self.get_mempolicy(Query {
            mode: true,
            mask: true,
            maxnode: 64,
            addr: 0,
            flags,
        });
        shown(reply)
    }
}

fn shown(reply: Reply) -> (Result<(), Errno>, i32, String) {
    let words = RawMask::Words(reply.mask);
    let nodes = words.nodes(1024, crate::units::PageSize::KIB_4).unwrap();
    (reply.result, reply.mode.unwrap_or(-1), nodes.to_string())
}

mod calls;
mod family;
mod placing;
mod queries;
mod rebinding;
