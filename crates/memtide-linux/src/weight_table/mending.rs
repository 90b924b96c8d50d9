//! Noting what stands in the table before it is written, and putting it back.

use super::{Change, Remembered, Undone, WeightError, WeightTable};
use crate::fs::node::Weights;
use crate::lent::Turn;
use crate::source::damon::knobs::Knobs;
use memtide_core::units::NodeId;
use std::collections::BTreeMap;

impl<K: Knobs> WeightTable<K> {
    /// What stood there before memtide's first change since this boot, if
    /// nobody else has written the table since memtide's last.
    ///
    /// # Errors
    ///
    /// [`WeightError::Before`], [`WeightError::Lent`] if the table or the note
    /// cannot be read.
    pub fn remembered(&self) -> Result<Option<Remembered>, WeightError> {
        self.remembered_at(&self.read()?)
    }

    /// The same, if the table read as `now`.
    ///
    /// # Errors
    ///
    /// [`WeightError::Lent`] if the note cannot be read.
    pub fn remembered_at(&self, now: &Weights) -> Result<Option<Remembered>, WeightError> {
        Ok(self.noted()?.filter(|noted| noted.still_holds(now)))
    }

    /// Puts back what [`remembered`](Self::remembered) says, and forgets it. A
    /// note of what stands there already is forgotten, too: it was put back by
    /// one that was killed then.
    ///
    /// # Errors
    ///
    /// [`WeightError::NothingRemembered`], [`WeightError::Before`],
    /// [`WeightError::Lent`], [`WeightError::Write`].
    pub fn restore(&mut self, _turn: &Turn) -> Result<Change, WeightError> {
        let now = self.read()?;
        let noted = self.noted()?.ok_or(WeightError::NothingRemembered)?;
        if noted.is_as_before(&now) {
            self.note(None)?;
        }
        if !noted.still_holds(&now) {
            return Err(WeightError::NothingRemembered);
        }
        let change = self.put_back(&noted.before())?;
        self.note(None)?;
        Ok(change)
    }

    /// How the table stood before a change that was cut short, if it was: a write
    /// for good or a reset was killed, or failed and could not be undone.
    ///
    /// # Errors
    ///
    /// As [`remembered`](Self::remembered).
    pub fn cut_short(&self) -> Result<Option<Weights>, WeightError> {
        let now = self.read()?;
        Ok(self.noted()?.and_then(|noted| noted.cut_short(&now)))
    }

    /// Puts back what stood there before a change that was cut short; `None` if
    /// none was. What memtide changed before that change stays, and is remembered.
    ///
    /// # Errors
    ///
    /// As [`restore`](Self::restore).
    pub fn mend(&mut self, _turn: &Turn) -> Result<Option<Change>, WeightError> {
        let now = self.read()?;
        let Some(noted) = self.noted()?.filter(Remembered::is_under_way) else {
            return Ok(None);
        };
        let before = noted.cut_short(&now);
        let change = match &before {
            Some(before) => Some(self.put_back(before)?),
            None => None,
        };
        match noted.is_as_before(&before.unwrap_or(now)) {
            true => self.note(None)?,
            false => self.note(Some(&noted.ended()))?,
        }
        Ok(change)
    }

    /// Makes the table read as `wanted` again, which it read before. What was
    /// put back stays if the rest cannot be: the note is there for another try.
    fn put_back(&mut self, wanted: &Weights) -> Result<Change, WeightError> {
        let before = self.read()?;
        let there = wanted.weights.iter().filter(|w| self.nodes.contains(w.0));
        let nodes: Vec<NodeId> = there.map(|(node, _)| *node).collect();
        match self.undo(wanted, &nodes) {
            Undone::Failed(error) => {
                let cause = *error;
                let undone = self.undo(&before, &nodes);
                Err(WeightError::Write { cause, undone })
            }
            _ => Ok(Change {
                before,
                after: self.read()?,
                written: nodes,
            }),
        }
    }

    /// Notes what stands there, unless it is our own doing, and what is wanted.
    /// The note before, and the new one.
    pub(super) fn remember(
        &self,
        now: &Weights,
        wanted: &BTreeMap<NodeId, u8>,
    ) -> Result<(Option<Remembered>, Remembered), WeightError> {
        let earlier = self.noted()?.filter(|noted| noted.still_holds(now));
        let note = Remembered::intending(earlier.clone(), now, wanted);
        self.note(Some(&note))?;
        Ok((earlier, note))
    }

    pub(super) fn note(&self, note: Option<&Remembered>) -> Result<(), WeightError> {
        match note {
            Some(note) => self.journal.note(note)?,
            None => self.journal.forget()?,
        }
        Ok(())
    }

    fn noted(&self) -> Result<Option<Remembered>, WeightError> {
        let noted: Option<Remembered> = self.journal.noted()?;
        if let Some(noted) = &noted
            && noted.writes().any(|weight| *weight == 0)
        {
            return Err(self.journal.malformed("0 is no weight").into());
        }
        Ok(noted)
    }
}
