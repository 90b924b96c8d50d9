//! The kernel's table of interleave weights, lent to one run or to the service.
//!
//! The table is the whole machine's. Who writes it for a while holds the journal's
//! turn, so that there is one at a time, and notes what stood there in a note of
//! its own. When the value is dropped, on whatever way out, the table is put
//! back. What a killed one left, the next one puts back, as does whoever else is
//! about to write the table or is asked to tidy up.

use crate::shared::outside::causes;
use anyhow::{Context as _, bail};
use memtide_core::units::NodeId;
use memtide_linux::fs::Root;
use memtide_linux::fs::node::Weights;
use memtide_linux::lent::{Journal, Kind, LentError, Turn};
use memtide_linux::weight_table::{Change, Remembered, WeightError, WeightTable};
use memtide_loop::options::in_words;
use std::collections::BTreeMap;

/// Where a run or the service notes what stood there, and who may write the table.
pub fn journal(root: &Root) -> Journal {
    Journal::new(root, Kind::RunWeights)
}

/// Whom the table belongs to at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody: it is as it was set for good.
    Free,
    /// A living run or service: what it reads will not last.
    Lent,
    /// A memtide that was killed.
    Left(Left),
    /// Only root can tell.
    Hidden,
}

/// Who was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A run or a service that had lent the table.
    Run,
    /// A change for good, half-way.
    Change,
}

/// What a killed memtide left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Which one.
    pub by: By,
    /// The table as it stands.
    pub now: Weights,
    /// The table before it.
    pub before: Weights,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (now, before) = (pairs(&self.now), pairs(&self.before));
        let auto = match self.before.auto {
            Some(true) => ", computed by the kernel",
            _ => "",
        };
        match self.by {
            By::Run => write!(
                f,
                "memtide run or service left the interleave weights {now} in place of {before}{auto}"
            ),
            By::Change => write!(
                f,
                "memtide weights was cut short and left the interleave weights {now}, half written, \
                 in place of {before}{auto}"
            ),
        }
    }
}

fn pairs(weights: &Weights) -> String {
    in_words(&weights.weights)
}

/// Whom the table under `root` belongs to. Reads only.
pub fn standing(root: &Root) -> Result<Standing, WeightError> {
    let told = match is_lent(root)? {
        Some(true) => return Ok(Standing::Lent),
        Some(false) => noted(root)?,
        None => return Ok(Standing::Hidden),
    };
    if let Some((table, noted)) = told {
        return Ok(Standing::Left(Left {
            by: By::Run,
            now: table.read()?,
            before: noted.before(),
        }));
    }
    let Some(table) = lasting(root)? else {
        return Ok(Standing::Free);
    };
    Ok(match table.cut_short()? {
        Some(before) => Standing::Left(Left {
            by: By::Change,
            now: table.read()?,
            before,
        }),
        None => Standing::Free,
    })
}

/// The table, noting what is changed for good; `None` on a kernel without one.
fn lasting(root: &Root) -> Result<Option<WeightTable>, WeightError> {
    match WeightTable::open(root) {
        Err(WeightError::NoTable { .. }) => Ok(None),
        table => table.map(Some),
    }
}

/// The table, if there is a note of what stood there that holds.
fn noted(root: &Root) -> Result<Option<(WeightTable, Remembered)>, WeightError> {
    let table = match open(root) {
        // The note, if there is one, is another kernel's.
        Err(WeightError::NoTable { .. }) => return Ok(None),
        table => table?,
    };
    Ok(table.remembered()?.map(|noted| (table, noted)))
}

/// Whether a living run or service holds the table; `None` if only root can tell.
pub fn is_lent(root: &Root) -> Result<Option<bool>, LentError> {
    match journal(root).is_held() {
        Err(error) if error.is_denied() => Ok(None),
        held => held.map(Some),
    }
}

/// Whether something is noted, of a living run or not, that holds or not.
pub fn is_noted(root: &Root) -> bool {
    journal(root).path().exists()
}

/// Puts back what a killed run left, and then what a killed change for good did, if
/// anything. The turn is that of [`journal`]. A run's note by which nothing is to be put
/// back is forgotten: a run was killed just before it would have forgotten it, or somebody
/// has written the table since. Later it could read by chance as that run had wanted it.
pub fn put_back_by(root: &Root, turn: &Turn) -> Result<Option<Change>, WeightError> {
    let of_run = match noted(root)? {
        Some((mut table, _)) => Some(table.restore(turn)?),
        None if is_noted(root) => {
            journal(root).forget()?;
            None
        }
        None => None,
    };
    let of_change = match lasting(root)? {
        Some(mut table) => table.mend(turn)?,
        None => None,
    };
    Ok(match (of_run, of_change) {
        (Some(first), Some(then)) => Some(Change {
            before: first.before,
            ..then
        }),
        (one, other) => one.or(other),
    })
}

/// Puts back what a killed memtide left, if anything. Returns what there is to say.
pub fn put_back_left(root: &Root) -> Option<String> {
    let attempt = || -> anyhow::Result<Option<String>> {
        match standing(root)? {
            Standing::Left(_) => {}
            Standing::Free if is_noted(root) => {}
            Standing::Free | Standing::Lent | Standing::Hidden => return Ok(None),
        }
        let put_back = match journal(root).turn()? {
            Some(turn) => put_back_by(root, &turn)?,
            None => None,
        };
        Ok(put_back.map(|_| PUT_BACK.to_owned()))
    };
    attempt().unwrap_or_else(|why| {
        Some(format!(
            "a killed memtide has left its interleave weights: {}",
            causes(&why)
        ))
    })
}

const PUT_BACK: &str = "put back the interleave weights that a killed memtide had left";

/// Who has the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// `memtide run --apply-weights`, until its program ends.
    Run,
    /// `memtide serve`.
    Service,
}

impl Holder {
    /// Until when it has the table.
    fn until(self) -> &'static str {
        match self {
            Holder::Run => "the program ends",
            Holder::Service => "the service ends",
        }
    }

    /// What asks for it, as an error begins.
    fn asks(self) -> &'static str {
        match self {
            Holder::Run => "--apply-weights: ",
            Holder::Service => "",
        }
    }
}

/// Said where somebody has written the table since.
pub const THEIRS: &str =
    "the interleave weights were changed by somebody else meanwhile, and are left so";

/// A table that reads as somebody wants it, until this is given back or dropped.
#[derive(Debug)]
pub struct Lent {
    table: WeightTable,
    turn: Turn,
    holder: Holder,
    held: bool,
}

impl Lent {
    /// Writes `weights`, all of them or none. The second is what to say.
    pub fn take(
        root: &Root,
        weights: &BTreeMap<NodeId, u8>,
        holder: Holder,
    ) -> anyhow::Result<(Lent, Vec<String>)> {
        let table = open(root)?;
        table.check(weights)?;
        let Some(turn) = journal(root).turn()? else {
            let asks = holder.asks();
            bail!(
                "{asks}another memtide run or service has written the interleave weights and holds \
                 them until it ends"
            );
        };
        let left = put_back_by(root, &turn)?;
        let mut notices: Vec<String> = left.iter().map(|_| PUT_BACK.to_owned()).collect();
        let mut lent = Lent {
            table,
            turn,
            holder,
            held: false,
        };
        notices.extend(lent.write(weights)?);
        Ok((lent, notices))
    }

    /// Writes other ones instead; what only the old ones name reads as before both. What to say.
    /// If that fails, the table is as it was before the old ones.
    pub fn change(&mut self, weights: &BTreeMap<NodeId, u8>) -> anyhow::Result<Vec<String>> {
        self.table.check(weights)?;
        let mut notices = match self.put_back()? {
            true => Vec::new(),
            false => vec![THEIRS.to_owned()],
        };
        notices.extend(self.write(weights)?);
        Ok(notices)
    }

    fn write(&mut self, weights: &BTreeMap<NodeId, u8>) -> Result<Option<String>, WeightError> {
        let change = self.table.write(&self.turn, weights)?;
        // If it read so already, there is nothing to put back.
        self.held = !change.written.is_empty();
        let until = self.holder.until();
        let auto = || format!("the kernel computes no interleave weights until {until}");
        Ok(change.auto_went_off().then(auto))
    }

    /// Puts back what stood there; whether nobody else has written the table since.
    pub fn give_back(mut self) -> anyhow::Result<bool> {
        self.put_back()
    }

    fn put_back(&mut self) -> anyhow::Result<bool> {
        if !std::mem::take(&mut self.held) {
            return Ok(true);
        }
        match self.table.restore(&self.turn) {
            Ok(_) => Ok(true),
            Err(WeightError::NothingRemembered) => Ok(false),
            Err(error) => Err(error).context("the interleave weights are not as they were"),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.held {
            let _ = self.table.restore(&self.turn);
        }
    }
}

fn open(root: &Root) -> Result<WeightTable, WeightError> {
    Ok(WeightTable::open(root)?.noting_in(journal(root)))
}

#[cfg(test)]
#[path = "lent_weights_tests.rs"]
mod tests;
