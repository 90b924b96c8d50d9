//! Sequences of calls out of a seed.
//!
//! Regions lie at fixed addresses, because interleaving goes by address; some touch, some leave holes
//! between them, so that a range may cross several. Each 2 MiB of addresses in use hold an *anchor*, a
//! page that is touched before all else and stays: it keeps the page table there, which would
//! otherwise be allocated again and again and advance the task's counter.
//!
//! The counter's next node can be asked for (`F_NODE` alone). That has one right answer only where
//! nothing unknown has advanced the counter, so it is asked either after a policy that does not count
//! (which is an error), or in a *window*: after the counter was reset, among calls for which the
//! kernel allocates nothing, or a page table and nothing else. The latter are touches on the *ladder*,
//! a long mapping where each touch is 2 MiB from all others.
//!
//! Every second seed forks: up to three processes make calls, each with its own idea of what is
//! mapped where.

use super::calls::{Call, Line, Machine, Mask, Place, Sequence, Word};
use super::draw::{Draw, INTERLEAVES, RELATIVE};
use crate::guest::procfs::parse_list;
use memory::{LOWEST, Region};
use processes::Other;

mod memory;
mod processes;

const F_NODE: u64 = 1;
const F_ADDR: u64 = 2;
const MOVE_ALL: u32 = 4;
const MOVES: u32 = 2 | MOVE_ALL;

/// What the task's counter may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    /// The policy does not count.
    Off,
    /// It was reset, and nothing unknown has advanced it.
    Known,
    /// Anything.
    Unknown,
}

/// `calls` calls or a few more on `machine`, always the same for the same seed.
#[must_use]
pub fn sequence(machine: &Machine, seed: u64, calls: usize) -> Sequence {
    let mut generator = Generator::new(machine, seed);
    generator.lay_out();
    while generator.calls.len() < calls {
        generator.step();
    }
    Sequence {
        machine: machine.clone(),
        calls: generator.calls,
    }
}

struct Generator {
    draw: Draw,
    nodes: u64,
    cpu_nodes: Vec<u32>,
    has_auto: bool,
    cpuset: u64,
    /// Whether there are forks.
    forks: bool,
    /// The process that makes the next call; none for the first.
    process: Option<String>,
    /// Who forked it.
    parent: Option<String>,
    /// Its counter.
    counter: Counter,
    /// Its memory.
    regions: Vec<Region>,
    /// The other processes that are there.
    others: Vec<Other>,
    /// How many there were.
    born: usize,
    /// The next rung of the ladder.
    rung: u64,
    calls: Vec<Line>,
}

impl Generator {
    fn new(machine: &Machine, seed: u64) -> Self {
        let list = |text: &str| parse_list(text).unwrap_or_default();
        let nodes = list(&machine.memory_nodes).len() as u64;
        Self {
            draw: Draw::new(seed),
            nodes,
            cpu_nodes: list(&machine.cpu_nodes),
            has_auto: machine.auto.is_some(),
            cpuset: list(&machine.cpuset).iter().map(|node| 1 << node).sum(),
            forks: seed.is_multiple_of(2),
            process: None,
            parent: None,
            counter: Counter::Off,
            regions: Vec::new(),
            others: Vec::new(),
            born: 0,
            rung: 0,
            calls: Vec::new(),
        }
    }

    /// Adds a call of the process whose turn it is.
    fn push(&mut self, call: Call) {
        let everybodys = matches!(
            call,
            Call::Cpuset { .. } | Call::Weight { .. } | Call::Auto { .. }
        );
        let process = self.process.clone().filter(|_| !everybodys);
        self.calls.push(Line { process, call });
    }

    fn step(&mut self) {
        if self.forks {
            self.change_processes();
        }
        match self.draw.below(100) {
            0..16 => self.set_any(),
            16..20 => self.window(),
            20..45 => self.bind(),
            45..51 => self.set_home(),
            51..68 => self.ask(),
            68..82 => self.touch(),
            82..86 => {
                let place = self.some_pages();
                self.push(Call::Where { place });
            }
            86..88 => self.map_somewhere(),
            88..91 => self.unmap(),
            91..94 => self.run_on(),
            94..96 => self.set_cpuset(true),
            96..99 => self.write_weight(),
            _ => self.write_auto(),
        }
    }

    fn set_any(&mut self) {
        let mode = self.draw.mode_word();
        let (mask, maxnode) = self.draw.mask(mode, self.nodes);
        self.counter = Counter::Unknown;
        self.push(Call::SetMempolicy {
            mode,
            mask,
            maxnode,
        });
    }

    /// A policy that is surely accepted, and calls after it for which the kernel allocates nothing.
    fn window(&mut self) {
        if self.process.is_some() {
            return;
        }
        let counts = self.draw.percent(70);
        let (mode, mask) = if counts {
            let mode = self.draw.one(&INTERLEAVES) | self.draw.nodes_flag();
            let mut mask = 1 + self.draw.below((1 << self.nodes) - 1);
            if mode & RELATIVE == 0 && mask & self.cpuset == 0 {
                mask |= self.cpuset;
            }
            (mode, Mask::Words(vec![Word(mask)]))
        } else {
            (self.draw.one(&[0, 4]), Mask::Null)
        };
        self.counter = if counts { Counter::Known } else { Counter::Off };
        self.push(Call::SetMempolicy {
            mode,
            mask,
            maxnode: 64,
        });
        for _ in 0..1 + self.draw.below(7) {
            match self.draw.below(16) {
                0..6 => self.climb(),
                6..12 => self.ask_task(F_NODE),
                12 => self.run_on(),
                13 | 14 => self.write_weight(),
                _ => self.set_cpuset(false),
            }
        }
        self.ask_task(F_NODE);
    }

    fn bind(&mut self) {
        let mode = self.draw.mode_word();
        let (mask, maxnode) = self.draw.mask(mode, self.nodes);
        let flags = self.draw.mbind_flags();
        let place = self.some_range();
        self.spoil_counter();
        self.push(Call::Mbind {
            place: place.clone(),
            mode,
            mask,
            maxnode,
            flags,
        });
        if flags & MOVE_ALL != 0 {
            self.look_everywhere();
        } else if flags & MOVES != 0 {
            self.look_at(place.region.as_deref());
        }
    }

    fn set_home(&mut self) {
        let place = self.some_range();
        let node = match self.draw.percent(85) {
            true => self.draw.below(self.nodes),
            false => self
                .draw
                .one(&[3, 63, 64, 1023, 1024, 1 << 31, 1 << 32, u64::MAX]),
        };
        let flags = if self.draw.percent(95) { 0 } else { 1 };
        self.spoil_counter();
        self.push(Call::SetMempolicyHomeNode { place, node, flags });
    }

    /// get_mempolicy(2) in any form that has one right answer.
    fn ask(&mut self) {
        let flags = self
            .draw
            .one(&[0, 0, 1, 2, 2, 2, 3, 3, 3, 4, 5, 6, 7, 8, 16, 1 << 32]);
        if flags & F_ADDR == 0 && flags < 8 && self.draw.percent(90) {
            return self.ask_task(flags);
        }
        let mut place = self.some_pages();
        place.pages = 0;
        place.offset = self.draw.one(&[0, 0, 0, 1, 4095]);
        if self.draw.percent(5) {
            place = Place {
                address: Some(Word(self.draw.one(&[0, 4096, LOWEST - 4096, u64::MAX]))),
                ..Place::default()
            };
        }
        self.push_question(place, flags);
    }

    /// The same about the task, with address 0.
    fn ask_task(&mut self, flags: u64) {
        if flags == F_NODE && self.counter == Counter::Unknown {
            return;
        }
        self.push_question(Place::default(), flags);
    }

    fn push_question(&mut self, place: Place, flags: u64) {
        let maxnode = match self.draw.percent(80) {
            true => self.draw.one(&[1024, 64, 1025, 128]),
            false => self.draw.maxnode(),
        };
        let (mode, mask) = (self.draw.percent(85), self.draw.percent(75));
        self.push(Call::GetMempolicy {
            mode,
            mask,
            maxnode,
            place,
            flags,
        });
    }

    fn run_on(&mut self) {
        let node = match self.draw.percent(95) {
            true => self.draw.one(&self.cpu_nodes.clone()),
            false => self.draw.below(self.nodes + 1) as u32,
        };
        self.push(Call::RunOn { node });
    }

    /// Another cpuset; or one with a node that has no memory, which fails.
    fn set_cpuset(&mut self, look: bool) {
        let mut cpuset = 1 + self.draw.below((1 << self.nodes) - 1);
        if self.draw.percent(5) {
            cpuset |= 1 << self.draw.one(&[self.nodes, 63]);
        } else {
            self.cpuset = cpuset;
        }
        let set = (0..64).filter(|node| cpuset >> node & 1 == 1);
        let nodes: Vec<String> = set.map(|node| node.to_string()).collect();
        self.push(Call::Cpuset {
            nodes: nodes.join(","),
        });
        if look {
            self.look_everywhere();
        }
    }

    fn write_weight(&mut self) {
        let node = match self.draw.percent(95) {
            true => self.draw.below(self.nodes) as u32,
            false => self.draw.one(&[3, 63, 1023]),
        };
        let text = self.draw.weight();
        self.push(Call::Weight { node, text });
    }

    fn write_auto(&mut self) {
        if self.has_auto {
            let text = self.draw.auto().to_owned();
            self.push(Call::Auto { text });
        }
    }

    fn spoil_counter(&mut self) {
        if self.counter == Counter::Known {
            self.counter = Counter::Unknown;
        }
    }
}

#[cfg(test)]
mod tests;
