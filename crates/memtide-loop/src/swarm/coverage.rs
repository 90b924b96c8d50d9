//! Which faults met which part of the loop.

use std::fmt;

/// What goes wrong, or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NotPresent,
    Unmapped,
    Shared,
    Busy,
    NoMemory,
    NotAllowed,
    NoSuchNode,
    NotPermitted,
    Gone,
    Failed,
    Full,
    Died,
    Reused,
    Lost,
    Broke,
    Slow,
    Offline,
    Still,
    Leapt,
    ManyMappings,
    OtherHot,
    Swapped,
    Waits,
}

/// Names of [`Kind`], in its order.
pub(super) const KINDS: [&str; 23] = [
    "a move: not present",
    "a move: unmapped",
    "a move: shared",
    "a move: busy",
    "a move: no memory",
    "a move: not allowed",
    "a move: no such node",
    "a move: not permitted",
    "a move: process gone",
    "a move: another error",
    "a node is full",
    "a process died",
    "a pid is used again",
    "reports are lost",
    "a source broke",
    "passes take 50 times as long",
    "a node is offline",
    "the clock stands still",
    "the clock leapt",
    "100,000 mappings",
    "other pages are hot",
    "pages are swapped out",
    "programs wait for memory",
];

/// A part of the loop, by what it asks of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Refresh,
    Survey,
    Rooms,
    Look,
    Glance,
    Listen,
    Promote,
    Demote,
    Sample,
    Locate,
    Move,
    Threads,
}

/// Names of [`Part`], in its order; the last four are balancing's.
pub(super) const PARTS: [&str; 12] = [
    "refresh", "survey", "rooms", "look", "glance", "listen", "promote", "demote", "sample",
    "locate", "move", "threads",
];

/// How often each kind of fault met each part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    cells: [[u64; PARTS.len()]; KINDS.len()],
    /// Runs whose hot pages had to come home and did.
    pub came_home: u64,
    /// Pages that moved.
    pub moved: u64,
}

impl Coverage {
    /// Adds what another run met.
    pub fn add(&mut self, other: &Coverage) {
        for (own, other) in self.cells.iter_mut().zip(&other.cells) {
            for (own, other) in own.iter_mut().zip(other) {
                *own += other;
            }
        }
        self.came_home += other.came_home;
        self.moved += other.moved;
    }

    pub(super) fn met_index(&mut self, kind: usize, part: Part) {
        self.cells[kind][part as usize] += 1;
    }

    pub(super) fn met(&mut self, kind: Kind, part: Part) {
        self.cells[kind as usize][part as usize] += 1;
    }

    /// Pairs of a fault and a part that should meet and did not.
    pub fn empty(&self) -> Vec<(&'static str, &'static str)> {
        let mut empty = Vec::new();
        for (kind, cells) in self.cells.iter().enumerate() {
            for (part, times) in cells.iter().enumerate() {
                if *times == 0 && should_meet(kind, part) {
                    empty.push((KINDS[kind], PARTS[part]));
                }
            }
        }
        empty
    }
}

/// Whether a fault is one that a part can meet.
fn should_meet(kind: usize, part: usize) -> bool {
    let moves = [Part::Promote, Part::Demote, Part::Move].map(|part| part as usize);
    if kind <= Kind::Failed as usize {
        return moves.contains(&part);
    }
    match kind {
        // A source that was taken over from is asked for nothing more; a pass is long
        // only of looks and glances. Balancing has one source, and it does not break, and
        // heeds no pressure.
        kind if [Kind::Broke, Kind::Slow, Kind::Waits]
            .map(|kind| kind as usize)
            .contains(&kind) =>
        {
            part <= Part::Demote as usize
        }
        _ => true,
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:<29}", "")?;
        for part in PARTS {
            write!(to, "{part:>9}")?;
        }
        for (kind, cells) in KINDS.iter().zip(&self.cells) {
            write!(to, "\n{kind:<29}")?;
            for times in cells {
                write!(to, "{times:>9}")?;
            }
        }
        write!(
            to,
            "\n{} pages moved; in {} runs hot pages had to come home and did",
            self.moved, self.came_home
        )
    }
}
