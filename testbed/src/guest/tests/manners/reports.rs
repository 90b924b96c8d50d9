//! What memtide says is what happened, and it says it of every page.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use super::settings::Settings;
use super::{PATIENCE, SLOW, SMALL, until_home};
use crate::guest::late::in_time;
use crate::guest::memtide::{Line, Memtide, Range, tier};
use crate::guest::pace;
use crate::guest::procfs::vmstat;
use crate::guest::subject::{KnownPages, Victim, census_cold, census_hot};
use crate::guest::sys::{PAGE_SIZE, query_nodes};
use crate::guest::tests::Context;

/// A pipe that takes no other line holds about 64 KiB.
const FULL_PIPE: usize = 48 << 10;

/// How long memtide looks around while nothing may move, in quiet time.
const LOOK_AROUND: Duration = Duration::from_secs(4);

fn addresses(range: &Range) -> impl Iterator<Item = usize> + use<> {
    let first = range.address;
    (0..range.pages).map(move |page| first + page * PAGE_SIZE)
}

/// Where memtide's lines say that a victim's pages are, all of which began on [`SLOW`].
#[derive(Debug)]
pub(super) struct Told {
    pid: u32,
    /// By address, as far as runs were told.
    places: HashMap<usize, u32>,
    /// Pages that went up, known or not.
    pub(super) promoted: u64,
    /// Pages that went down, known or not.
    pub(super) demoted: u64,
}

impl Told {
    /// Follows the lines of a run that managed one victim.
    ///
    /// # Errors
    /// When a line contradicts an earlier one, or gives no reason.
    pub(super) fn of(known: &[KnownPages], lines: &[Line]) -> Result<Self> {
        let [known] = known else {
            bail!("one victim of one process is expected");
        };
        let all = known.hot.iter().chain(&known.cold);
        let mut told = Self {
            pid: known.pid,
            places: all.map(|&address| (address, SLOW)).collect(),
            promoted: 0,
            demoted: 0,
        };
        for line in lines {
            told.take(line)
                .with_context(|| format!("a contradiction in {line:?}"))?;
        }
        Ok(told)
    }

    fn take(&mut self, line: &Line) -> Result<()> {
        match line {
            Line::Moved {
                direction,
                dry_run: false,
                range,
                from,
                to,
                why,
            } => {
                ensure!(!why.is_empty(), "no reason is given");
                self.count(direction, range.pages as u64)?;
                for address in addresses(range) {
                    self.check(address, *from)?;
                    if let Some(place) = self.places.get_mut(&address) {
                        *place = *to;
                    }
                }
            }
            Line::MovedPages {
                direction,
                pid,
                pages,
            } => {
                ensure!(*pid == self.pid, "another process's pages moved");
                self.count(direction, *pages)?;
            }
            Line::Stayed { range, node, .. } => {
                for address in addresses(range) {
                    self.check(address, *node)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, direction: &str, pages: u64) -> Result<()> {
        match direction {
            "promotion" => self.promoted += pages,
            "demotion" => self.demoted += pages,
            other => bail!("no direction: {other:?}"),
        }
        Ok(())
    }

    fn check(&self, address: usize, node: u32) -> Result<()> {
        let place = self.places.get(&address);
        ensure!(
            place.is_none_or(|place| *place == node),
            "page {address:#x} is said to be on node {node} and was on {place:?}"
        );
        Ok(())
    }

    /// That the kernel agrees, page by page.
    pub(super) fn check_places(&self) -> Result<()> {
        let addresses: Vec<usize> = self.places.keys().copied().collect();
        let answers = query_nodes(self.pid, &addresses)?;
        let wrong = addresses
            .iter()
            .zip(answers)
            .filter(|(address, answer)| u32::try_from(*answer) != Ok(self.places[*address]))
            .count();
        ensure!(
            wrong == 0,
            "{wrong} of {} pages are not where memtide's lines say",
            addresses.len()
        );
        Ok(())
    }
}

/// How many of `pages` are in `set`.
fn within(pages: &[usize], set: &HashSet<usize>) -> usize {
    pages.iter().filter(|address| set.contains(address)).count()
}

/// Nothing moves, and what would have moved are the hot pages.
pub(super) fn dry_run(context: &mut Context) -> Result<()> {
    let victim = Victim::start(SMALL, 1)?;
    let known = victim.known_pages();
    let migrated = |name: &str| anyhow::Ok(vmstat()?.get(name).copied().unwrap_or(0));
    // Compaction moves pages, too, within their node, and counts what it looks at.
    let (before, compacted) = (
        migrated("pgmigrate_success")?,
        migrated("compact_migrate_scanned")?,
    );
    let mut memtide = Memtide::start(&["--dry-run"], &victim.pids())?;
    pace::sleep(LOOK_AROUND);
    memtide.check()?;
    let lines = memtide.end(Signal::TERM)?.clean()?;
    let moved = migrated("pgmigrate_success")? - before;
    let by_others = migrated("compact_migrate_scanned")? > compacted;
    let (hot, cold) = (census_hot(&known, &[SLOW])?, census_cold(&known, &[SLOW])?);
    ensure!(
        hot.there == hot.asked && cold.there == cold.asked && (moved == 0 || by_others),
        "a dry run moved pages: hot {hot:?}, cold {cold:?}, pgmigrate_success grew by {moved}"
    );
    let mut planned = HashSet::new();
    for line in &lines {
        if let Line::Moved { dry_run, range, .. } = line {
            ensure!(dry_run, "a dry run says that pages moved: {line:?}");
            planned.extend(addresses(range));
        }
    }
    let known = &known[0];
    let (hot, cold) = (within(&known.hot, &planned), within(&known.cold, &planned));
    context.note(format!(
        "{hot} of {} hot and {cold} of {} cold pages would move",
        known.hot.len(),
        known.cold.len()
    ))?;
    // A dry run flushes nothing, so that accesses may hide for a while.
    in_time(hot * 100 >= known.hot.len() * 99, || {
        let all = known.hot.len();
        format!("only {hot} of {all} hot pages would move")
    })?;
    ensure!(
        cold * 100 <= known.cold.len(),
        "{cold} of {} cold pages would move",
        known.cold.len()
    );
    // Whether it counts what would move or nothing at all: a page counts at most once.
    let counted = match lines.last() {
        Some(Line::Summary(counts)) => counts.pgpromote_success,
        other => bail!("the last line is no summary: {other:?}"),
    };
    ensure!(
        counted <= planned.len() as u64,
        "the summary counts {counted} promotions, but only {} pages would move",
        planned.len()
    );
    Ok(())
}

/// Each page is accounted for: it moved, or it stayed, with a reason, and no line contradicts another.
pub(super) fn explain(context: &mut Context) -> Result<()> {
    let victim = Victim::start(SMALL, 1)?;
    let known = victim.known_pages();
    let mut memtide = Memtide::start(&["--explain"], &victim.pids())?;
    let dram = context.dram.clone();
    until_home(&mut memtide, &known, &dram, PATIENCE)?;
    std::thread::sleep(Duration::from_secs(1));
    let lines = memtide.end(Signal::TERM)?.clean()?;
    Told::of(&known, &lines)?.check_places()?;
    let (mut moved, mut stayed) = (HashSet::new(), HashSet::new());
    for line in &lines {
        match line {
            Line::Moved { range, .. } => moved.extend(addresses(range)),
            Line::Stayed { range, why, .. }
                if ["untouched", "too_rarely"].contains(&why.reason.as_str()) =>
            {
                stayed.extend(addresses(range));
            }
            _ => {}
        }
    }
    let known = &known[0];
    let on_slow = |pages: &[usize]| -> Result<Vec<usize>> {
        let answers = query_nodes(known.pid, pages)?;
        let both = pages.iter().zip(answers);
        Ok(both
            .filter(|(_, node)| u32::try_from(*node) == Ok(SLOW))
            .map(|(address, _)| *address)
            .collect())
    };
    let hot_left = on_slow(&known.hot)?.len();
    let cold_left = on_slow(&known.cold)?;
    let hot_told = within(&known.hot, &moved);
    let cold_told = within(&cold_left, &stayed);
    context.note(format!(
        "{} lines; {hot_told} of {} hot pages moved with a reason, {cold_told} of {} cold ones stayed with one",
        lines.len(),
        known.hot.len(),
        cold_left.len()
    ))?;
    ensure!(
        hot_told + hot_left == known.hot.len(),
        "{hot_told} of {} hot pages are said to have moved, {hot_left} have not",
        known.hot.len()
    );
    ensure!(
        cold_told == cold_left.len(),
        "nothing is said of {} cold pages that stayed",
        cold_left.len() - cold_told
    );
    Ok(())
}

/// Who reads the output has stalled: pages come home all the same, and a signal ends it, with a word of
/// what nobody read.
pub(super) fn nobody_reads(context: &mut Context) -> Result<()> {
    let before = Settings::now();
    let victim = Victim::start(SMALL, 1)?;
    let (mut output, pipe) = std::io::pipe()?;
    let command = tier(&["--explain", "--json"], &victim.pids());
    let mut memtide = Memtide::spawn_into(command, pipe)?;
    let dram = context.dram.clone();
    until_home(&mut memtide, &victim.known_pages(), &dram, PATIENCE)?;
    let ended = memtide.end(Signal::TERM)?;
    before.check_unchanged()?;
    let mut there = Vec::new();
    output.read_to_end(&mut there)?;
    // Less, and nobody has been held up.
    ensure!(
        there.len() > FULL_PIPE,
        "only {} bytes were written",
        there.len()
    );
    let [word] = &ended.errors[..] else {
        bail!("it said {:?}", ended.errors);
    };
    ensure!(
        word.starts_with("memtide: output lost, ") && ended.status.success(),
        "it ended with {}: {word}",
        ended.status
    );
    context.note(word.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [usize; 2] = [0x1000, 0x2000];

    fn told(lines: &[&str]) -> Result<Told> {
        let known = KnownPages {
            pid: 1,
            hot: vec![KNOWN[0]],
            cold: vec![KNOWN[1]],
        };
        let lines = lines.iter().map(|line| Line::parse(line));
        Told::of(&[known], &lines.collect::<Result<Vec<_>>>()?)
    }

    const UP: &str = r#"{"event":"moved","direction":"promotion","dry_run":false,"from":2,"to":0,
                        "range":{"pid":1,"address":4096,"pages":1},"why":"hot"}"#;
    const STAYS: &str = r#"{"event":"stayed","node":2,"why":{"reason":"untouched"},
                           "range":{"pid":1,"address":4096,"pages":2}}"#;

    #[test]
    fn a_page_that_left_does_not_stay() {
        let fine = told(&[STAYS, UP]).unwrap();
        assert_eq!((fine.promoted, fine.places[&KNOWN[0]]), (1, 0));
        assert!(told(&[UP, STAYS]).is_err());
        assert!(told(&[UP, UP]).is_err());
    }
}
