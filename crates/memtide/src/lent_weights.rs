//! The kernel's table of interleave weights, lent to one run.
//!
//! The table is the whole machine's. A run that writes it holds a lock file, so
//! that there is one at a time, and notes what stood there in a file of its
//! own. When the value is dropped, on whatever way out, the table is put back.
//! The lock ends with its process, the note does not: a note without a lock is
//! of a run that was killed. The next run puts it back, as does whoever else is
//! about to write the table or is asked to tidy up.

use anyhow::{Context as _, bail};
use memtide_core::units::NodeId;
use memtide_linux::fs::Root;
use memtide_linux::fs::node::Weights;
use memtide_linux::sys::Errno;
use memtide_linux::weight_table::{Change, Remembered, WeightError, WeightTable};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::File;

/// Where the note is, under the root.
const NOTE: &str = "run/memtide/run-weights.json";
/// Where the lock is.
const LOCK: &str = "run/memtide/run-weights.lock";

/// Whom the table belongs to at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody: it is as it was set for good.
    Free,
    /// A living run: what it reads will not last.
    Lent,
    /// A run that was killed.
    Left(Left),
}

/// What a killed run left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The table as it stands.
    pub now: Weights,
    /// The table before that run.
    pub before: Weights,
}

impl std::fmt::Display for Left {
    /// To be read after who left it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (now, before) = (pairs(&self.now), pairs(&self.before));
        let auto = match self.before.auto {
            Some(true) => ", computed by the kernel",
            _ => "",
        };
        write!(
            f,
            "left the interleave weights {now} in place of {before}{auto}"
        )
    }
}

fn pairs(weights: &Weights) -> String {
    let pairs = weights.weights.iter();
    let pairs: Vec<String> = pairs.map(|(node, w)| format!("{node}={w}")).collect();
    pairs.join(",")
}

/// Whom the table under `root` belongs to. Reads only.
pub fn standing(root: &Root) -> Result<Standing, WeightError> {
    if is_lent(root) {
        return Ok(Standing::Lent);
    }
    let Some((table, noted)) = noted(root)? else {
        return Ok(Standing::Free);
    };
    Ok(Standing::Left(Left {
        now: table.read()?,
        before: noted.before(),
    }))
}

/// The table, if there is a note of what stood there that holds.
fn noted(root: &Root) -> Result<Option<(WeightTable, Remembered)>, WeightError> {
    if !root.path(NOTE).exists() {
        return Ok(None);
    }
    let table = match open(root) {
        // The note is another kernel's.
        Err(WeightError::NoTable { .. }) => return Ok(None),
        table => table?,
    };
    Ok(table.remembered()?.map(|noted| (table, noted)))
}

/// Whether a living run holds the table.
pub fn is_lent(root: &Root) -> bool {
    File::open(root.path(LOCK)).is_ok_and(|file| {
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    })
}

/// The right to write the table, until dropped.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

impl Turn {
    /// Takes it, unless a living run has it.
    pub fn take(root: &Root) -> anyhow::Result<Option<Turn>> {
        let path = root.path(LOCK);
        let create = || {
            std::fs::create_dir_all(root.path("run/memtide"))?;
            File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
        };
        let file =
            create().with_context(|| format!("{}: cannot open; run as root", path.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Turn { _lock: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno).with_context(|| format!("{}: cannot lock", path.display())),
        }
    }

    /// Puts back what a killed run left, if anything.
    pub fn put_back_left(&self, root: &Root) -> Result<Option<Change>, WeightError> {
        match noted(root)? {
            Some((mut table, _)) => table.restore().map(Some),
            None => Ok(None),
        }
    }
}

/// Puts back what a killed run left, if anything. Returns what there is to say.
pub fn put_back_left(root: &Root) -> Option<String> {
    let attempt = || -> anyhow::Result<Option<String>> {
        if !matches!(standing(root)?, Standing::Left(_)) {
            return Ok(None);
        }
        let put_back = match Turn::take(root)? {
            Some(turn) => turn.put_back_left(root)?,
            None => None,
        };
        Ok(put_back.map(|_| PUT_BACK.to_owned()))
    };
    attempt().unwrap_or_else(|why| {
        Some(format!(
            "a killed memtide run has left its interleave weights: {why:#}"
        ))
    })
}

const PUT_BACK: &str = "put back the interleave weights that a killed memtide run had left";

/// A table that reads as a run wants it, until this is given back or dropped.
#[derive(Debug)]
pub struct Lent {
    table: WeightTable,
    _turn: Turn,
    held: bool,
}

impl Lent {
    /// Writes `weights`, all of them or none.
    pub fn take(
        root: &Root,
        weights: &BTreeMap<NodeId, u8>,
    ) -> anyhow::Result<(Lent, Vec<String>)> {
        let table = open(root)?;
        table.check(weights)?;
        let Some(turn) = Turn::take(root)? else {
            bail!(
                "--apply-weights: another memtide run has written the interleave weights and holds \
                 them until its program ends"
            );
        };
        let left = turn.put_back_left(root)?;
        let mut notices: Vec<String> = left.iter().map(|_| PUT_BACK.to_owned()).collect();
        let mut lent = Lent {
            table,
            _turn: turn,
            held: false,
        };
        let change = lent.table.write(weights)?;
        // If it read so already, there is nothing to put back.
        lent.held = !change.written.is_empty();
        if change.auto_went_off() {
            notices.push("the kernel computes no interleave weights until the program ends".into());
        }
        Ok((lent, notices))
    }

    /// Puts back what stood there.
    pub fn give_back(mut self) -> anyhow::Result<()> {
        if !std::mem::take(&mut self.held) {
            return Ok(());
        }
        match self.table.restore() {
            Ok(_) => Ok(()),
            Err(WeightError::NothingRemembered) => bail!(
                "the interleave weights were changed by somebody else meanwhile, and are left so"
            ),
            Err(error) => Err(error).context("the interleave weights are not as they were"),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.held {
            let _ = self.table.restore();
        }
    }
}

fn open(root: &Root) -> Result<WeightTable, WeightError> {
    Ok(WeightTable::open(root)?.noting_in(root.path(NOTE)))
}
