//! What a batch decided.

use super::super::balancer::TaskId;
use super::super::gate::Verdict;
use super::super::group::GroupId;
use crate::pages::Immovable;
use crate::units::{NodeId, PageNumber};
use serde::Serialize;

/// A folio that shall move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PageMove {
    /// Its first page.
    pub page: PageNumber,
    /// Base pages.
    pub pages: u32,
    /// Who uses it.
    pub task: TaskId,
    /// Where it lies.
    pub from: NodeId,
    /// Where it shall go.
    pub to: NodeId,
    /// How often it was seen within the window.
    pub frequency: u8,
    /// The gate's reason.
    pub why: Verdict,
}

/// A task that shall run elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TaskMove {
    /// Who.
    pub task: TaskId,
    /// The node where most memory is that it, or its group, uses.
    pub to: NodeId,
    /// Its group, if it has one.
    pub group: Option<GroupId>,
    /// Accesses to memory on `to` in the averages of the task or its group.
    pub there: u64,
    /// To memory anywhere.
    pub all: u64,
}

/// Why a queued page stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stay {
    /// No memory stands behind it, or its task ended.
    Gone,
    /// It is on the node already.
    AtTarget,
    /// The gate, asked now that the page's node is known, says no.
    Gate(Verdict),
    /// Not seen often enough.
    Seldom,
    /// Another node's task touched it since.
    Contested,
    /// It just moved.
    Rests,
    /// Its owner does not allow it.
    Immovable(Immovable),
    /// The node is full.
    NoRoom,
    /// Its task shall run elsewhere.
    TaskMoves,
}

/// How many folios stayed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stays {
    /// [`Stay::Gone`].
    pub gone: u64,
    /// [`Stay::AtTarget`].
    pub at_target: u64,
    /// [`Stay::Gate`].
    pub gate: u64,
    /// [`Stay::Seldom`].
    pub seldom: u64,
    /// [`Stay::Contested`].
    pub contested: u64,
    /// [`Stay::Rests`].
    pub rests: u64,
    /// [`Stay::Immovable`].
    pub immovable: u64,
    /// [`Stay::NoRoom`].
    pub no_room: u64,
    /// [`Stay::TaskMoves`].
    pub task_moves: u64,
    /// The batch was full: they wait for the next.
    pub waiting: u64,
}

impl Stays {
    pub(super) fn add(&mut self, why: Stay) {
        *match why {
            Stay::Gone => &mut self.gone,
            Stay::AtTarget => &mut self.at_target,
            Stay::Gate(_) => &mut self.gate,
            Stay::Seldom => &mut self.seldom,
            Stay::Contested => &mut self.contested,
            Stay::Rests => &mut self.rests,
            Stay::Immovable(_) => &mut self.immovable,
            Stay::NoRoom => &mut self.no_room,
            Stay::TaskMoves => &mut self.task_moves,
        } += 1;
    }
}

/// A batch's decisions; kept by the caller and filled anew each time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Pages to move, those of one target together, then by task and address.
    pub moves: Vec<PageMove>,
    /// Tasks to run elsewhere.
    pub tasks: Vec<TaskMove>,
    /// Folios that stayed.
    pub stays: Stays,
}
