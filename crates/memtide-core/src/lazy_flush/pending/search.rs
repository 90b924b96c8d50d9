//! Every state that a small machine can reach, with generations of three bits.
//!
//! Two CPUs with translations, three frames, one page of a file that lives in one of
//! them or in none, and one flusher whose flush reaches the CPUs one by one. The numbers
//! come round after seven generations, so that frames which sleep through a whole
//! round are among the states. Looked at are the two moments at which a stale
//! translation would show: a frame is handed out (its content changes), and the
//! page is written (its older copies become wrong).
//!
//! A protocol that is broken on purpose, in each way that we could think of, must
//! be found out; otherwise the search proves nothing.

use super::*;
use std::collections::{HashMap, VecDeque};

const CPUS: usize = 2;
const FRAMES: usize = 3;
type Lazy = LazyFlush<Cpus, 3>;

/// CPUs that may hold old translations, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Cpus(u8);

impl Pending for Cpus {
    fn fold(&mut self, other: Cpus) {
        self.0 |= other.0;
    }
    fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    /// Holds the page, which is mapped.
    Home,
    /// On the free lists.
    Free(Stamp),
    /// Somebody else's.
    Used,
}

/// A flush that has begun: its generation, and the CPUs it has still to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flight {
    generation: Generation<3>,
    left: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Machine {
    lazy: Lazy,
    flight: Option<Flight>,
    frames: [Frame; FRAMES],
    /// For each CPU the frames that its translations of the page lead to, a bit each.
    tlb: [u8; CPUS],
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The page is read: its frame comes into the CPU's TLB.
    Read(usize),
    /// The page is unmapped without a flush, and its frame is free.
    UnmapLazily,
    /// The same with a flush at once.
    UnmapAtOnce,
    /// The page moves to another frame, without a flush.
    Migrate(usize),
    /// A free frame becomes the page's, read from storage.
    Refill(usize),
    /// A free frame becomes somebody else's.
    Allocate(usize),
    /// And comes back.
    GiveBack(usize),
    /// The page is written by somebody who needs no translation.
    Write,
    /// A CPU flushes everything for reasons of its own.
    OrdinaryFlush(usize),
    Begin,
    Reach(usize),
    End,
}

/// All steps: for each CPU, for each frame, and the rest.
fn steps() -> Vec<Step> {
    let cpus =
        (0..CPUS).flat_map(|cpu| [Step::Read(cpu), Step::OrdinaryFlush(cpu), Step::Reach(cpu)]);
    let frames = (0..FRAMES).flat_map(|frame| {
        [
            Step::Migrate(frame),
            Step::Refill(frame),
            Step::Allocate(frame),
            Step::GiveBack(frame),
        ]
    });
    let rest = [
        Step::UnmapLazily,
        Step::UnmapAtOnce,
        Step::Write,
        Step::Begin,
        Step::End,
    ];
    cpus.chain(frames).chain(rest).collect()
}

/// What the protocol gets wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// A due flush is not made before a frame is handed out.
    FlushSkipped,
    /// A write does not force the flush.
    ForceSkipped,
    /// A flush is declared over before it reached every CPU.
    EndsEarly,
    /// A frame is handed out while its flush is under way.
    NoWait,
    /// One CPU's flush counts for all.
    CoversTooMuch,
    /// Generations are compared as plain numbers.
    PlainNumbers,
}

/// A frame or a copy was readable through an old translation.
struct Stale;

impl Machine {
    fn new() -> Machine {
        Machine {
            lazy: Lazy::new(),
            flight: None,
            frames: std::array::from_fn(|frame| match frame {
                0 => Frame::Home,
                _ => Frame::Free(Stamp::NONE),
            }),
            tlb: [0; CPUS],
        }
    }

    fn home(&self) -> Option<usize> {
        self.frames.iter().position(|&frame| frame == Frame::Home)
    }

    fn holders(&self, frame: usize) -> Cpus {
        let bit = |cpu: usize| u8::from(self.tlb[cpu] >> frame & 1 == 1) << cpu;
        Cpus((0..CPUS).map(bit).sum())
    }

    fn due(&self, stamp: Stamp, fault: Fault) -> Due {
        let plain = |stamp| stamp > self.lazy.done.stamp().bits();
        match (self.lazy.due(stamp), fault) {
            (Due::Flush, Fault::FlushSkipped) | (Due::Wait, Fault::NoWait) => Due::Nothing,
            (Due::Flush, Fault::PlainNumbers) if !plain(stamp.bits()) => Due::Nothing,
            (due, _) => due,
        }
    }

    /// Takes a frame off the free lists; `None` if it is not there, or has to wait.
    fn take(&mut self, frame: usize, fault: Fault) -> Option<Result<(), Stale>> {
        let Frame::Free(stamp) = self.frames[frame] else {
            return None;
        };
        match self.due(stamp, fault) {
            Due::Nothing => {}
            Due::Flush if self.flight.is_none() => {
                let tlb = &mut self.tlb;
                self.lazy.take(stamp, |cpus| flush(tlb, cpus));
            }
            Due::Flush | Due::Wait => return None,
        }
        Some(match self.holders(frame) {
            Cpus(0) => Ok(()),
            _ => Err(Stale),
        })
    }

    /// One step; `None` where it cannot be made.
    fn step(&self, step: Step, fault: Fault) -> Option<Result<Machine, Stale>> {
        let mut next = self.clone();
        let outcome = match step {
            Step::Read(cpu) => {
                next.tlb[cpu] |= 1 << next.home()?;
                Ok(())
            }
            Step::UnmapLazily => {
                let home = next.home()?;
                let stamp = next.lazy.defer(next.holders(home)).ok()?;
                next.frames[home] = Frame::Free(stamp);
                Ok(())
            }
            Step::UnmapAtOnce => {
                let home = next.home()?;
                next.tlb.iter_mut().for_each(|tlb| *tlb &= !(1 << home));
                next.frames[home] = Frame::Free(Stamp::NONE);
                Ok(())
            }
            Step::Migrate(to) => {
                let from = next.home()?;
                let taken = next.take(to, fault)?;
                let stamp = next.lazy.defer(next.holders(from)).ok()?;
                next.frames[from] = Frame::Free(stamp);
                next.frames[to] = Frame::Home;
                taken
            }
            Step::Refill(frame) => {
                if next.home().is_some() {
                    return None;
                }
                let taken = next.take(frame, fault)?;
                next.frames[frame] = Frame::Home;
                taken
            }
            Step::Allocate(frame) => {
                let taken = next.take(frame, fault)?;
                next.frames[frame] = Frame::Used;
                taken
            }
            Step::GiveBack(frame) => {
                if next.frames[frame] != Frame::Used {
                    return None;
                }
                next.frames[frame] = Frame::Free(Stamp::NONE);
                Ok(())
            }
            Step::Write => {
                if next.flight.is_some() {
                    return None;
                }
                if fault != Fault::ForceSkipped {
                    let tlb = &mut next.tlb;
                    next.lazy
                        .force(Cause::ContentWritten, |cpus| flush(tlb, cpus));
                }
                let home = next.home().map_or(0, |frame| 1 << frame);
                match next.tlb.iter().all(|tlb| tlb & !home == 0) {
                    true => Ok(()),
                    false => Err(Stale),
                }
            }
            Step::OrdinaryFlush(cpu) => {
                next.tlb[cpu] = 0;
                let reached = match fault {
                    Fault::CoversTooMuch => u8::MAX,
                    _ => 1 << cpu,
                };
                next.lazy.covered(|cpus| cpus.0 &= !reached);
                Ok(())
            }
            Step::Begin => {
                let (round, cpus) = next.lazy.begin()?;
                next.flight = Some(Flight {
                    generation: round.0,
                    left: cpus.0,
                });
                Ok(())
            }
            Step::Reach(cpu) => {
                let flight = next.flight.as_mut()?;
                if flight.left >> cpu & 1 == 0 {
                    return None;
                }
                flight.left &= !(1 << cpu);
                next.tlb[cpu] = 0;
                Ok(())
            }
            Step::End => {
                let flight = next.flight?;
                if flight.left != 0 && fault != Fault::EndsEarly {
                    return None;
                }
                next.flight = None;
                next.lazy.end(Round(flight.generation));
                Ok(())
            }
        };
        // Counts are no part of a state.
        next.lazy.take_tally();
        Some(outcome.map(|()| next))
    }
}

fn flush(tlb: &mut [u8; CPUS], cpus: Cpus) {
    for (cpu, tlb) in tlb.iter_mut().enumerate() {
        if cpus.0 >> cpu & 1 == 1 {
            *tlb = 0;
        }
    }
}

/// Visits every state; how many there are, or the steps to the first stale read.
fn search(fault: Fault) -> Result<usize, Vec<Step>> {
    let start = Machine::new();
    let mut came_by: HashMap<Machine, Option<(Machine, Step)>> = HashMap::new();
    came_by.insert(start.clone(), None);
    let mut queue = VecDeque::from([start]);
    let steps = steps();
    while let Some(machine) = queue.pop_front() {
        for &step in &steps {
            match machine.step(step, fault) {
                None => {}
                Some(Ok(next)) if came_by.contains_key(&next) => {}
                Some(Ok(next)) => {
                    came_by.insert(next.clone(), Some((machine.clone(), step)));
                    queue.push_back(next);
                }
                Some(Err(Stale)) => {
                    let mut way = vec![step];
                    let mut at = &machine;
                    while let Some((before, step)) = &came_by[at] {
                        way.push(*step);
                        at = before;
                    }
                    way.reverse();
                    return Err(way);
                }
            }
        }
    }
    Ok(came_by.len())
}

#[test]
fn no_reachable_state_reads_anything_stale() {
    let states = search(Fault::Nothing).unwrap_or_else(|way| panic!("stale after {way:?}"));
    println!("{states} states");
    assert!(
        states > 10_000,
        "only {states} states: the search is too small"
    );
}

#[test]
fn each_way_to_break_it_is_found() {
    for fault in [
        Fault::FlushSkipped,
        Fault::ForceSkipped,
        Fault::EndsEarly,
        Fault::NoWait,
        Fault::CoversTooMuch,
        Fault::PlainNumbers,
    ] {
        let way = search(fault).expect_err("a broken protocol passed");
        println!("{fault:?}: {way:?}");
    }
}
