//! What the pagers of a machine did, summed so that it may be told for ever.
//!
//! A board has the counts of one process, and they go when it ends. Who draws rates wants counters
//! that only grow. So what is summed is by how much each count grew since the last look; what was
//! there at the first round, before anybody looked, counts for nothing. What a pager did between the
//! last look and its end is lost: a round's worth at most.
//!
//! Files go by their own names, without folders: they are what an operator knows, and a metric that
//! anybody on the machine may read tells no more than that. The first [`MOST_FILES`] names have a place
//! each, those with most mapped first. All others are summed, and how many they are is told. A place is
//! free again an hour after the last process with such a file was seen. So there are never more names,
//! and no more new ones an hour, whatever processes show.
//!
//! How much of a file is in memory is the same for all processes that map it. So the largest of their
//! figures counts, and not the sum.

use super::find::Shown;
use memtide_linux::fs::proc::Process;
use memtide_pager::board::{Figures, Posted};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Names of files that have figures of their own.
const MOST_FILES: usize = 64;
/// How long a name keeps its place when no process has the file any more.
const KEPT: Duration = Duration::from_secs(3600);

/// What is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagerFigures {
    /// Processes with a pager that has not ended.
    pub processes: u64,
    /// Processes that seem to have one of which nothing can be read.
    pub not_read: u64,
    /// Memory that they may take together.
    pub budget_bytes: u64,
    /// What they did.
    pub counts: PagerCounts,
    /// By name of the file.
    pub files: Vec<FileFigures>,
    /// Files without a place among these: how many were seen last.
    pub other_files: u64,
    /// What they are together.
    pub others: Figures,
    /// TLB shootdown interrupts of the machine since it began, where the kernel counts them.
    pub shootdowns: Option<u64>,
    /// Processor time of looking.
    pub cpu: Duration,
}

/// Sums over all processes since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagerCounts {
    /// Pages chosen for eviction.
    pub evicted_pages: u64,
    /// Pages that came into memory a second time or more.
    pub refilled_pages: u64,
    /// Pages unmapped.
    pub unmapped_pages: u64,
    /// Flushes with which they were.
    pub flushes: u64,
    /// Looks that found more in memory than the budget.
    pub overruns: u64,
    /// Times that programs had to wait for each of their pages.
    pub held_back: u64,
}

/// A file's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFigures {
    /// Its name without its folder, as a process shows it.
    pub name: String,
    /// What it is and what became of it.
    pub figures: Figures,
}

impl PagerCounts {
    fn of(posted: &Posted) -> PagerCounts {
        let all = &posted.statistics;
        PagerCounts {
            evicted_pages: all.evicted_pages,
            refilled_pages: all.refilled_pages,
            unmapped_pages: all.zapped_pages,
            flushes: all.flush_calls,
            overruns: all.budget_overruns,
            held_back: all.held_back,
        }
    }

    fn grow(&mut self, before: &PagerCounts, now: &PagerCounts) {
        let grown = |sum: &mut u64, before: u64, now: u64| {
            *sum = sum.saturating_add(now.saturating_sub(before));
        };
        grown(
            &mut self.evicted_pages,
            before.evicted_pages,
            now.evicted_pages,
        );
        grown(
            &mut self.refilled_pages,
            before.refilled_pages,
            now.refilled_pages,
        );
        grown(
            &mut self.unmapped_pages,
            before.unmapped_pages,
            now.unmapped_pages,
        );
        grown(&mut self.flushes, before.flushes, now.flushes);
        grown(&mut self.overruns, before.overruns, now.overruns);
        grown(&mut self.held_back, before.held_back, now.held_back);
    }
}

/// A process as it was seen last.
#[derive(Debug, Default)]
struct Last {
    counts: PagerCounts,
    files: BTreeMap<String, Figures>,
    rest: Figures,
    other_files: u64,
    /// How large each path of a name is in memory.
    resident: BTreeMap<String, u64>,
    budget_bytes: u64,
    ended: bool,
}

#[derive(Debug)]
struct Place {
    /// Only what counts.
    figures: Figures,
    /// When a process had it last.
    seen: Duration,
}

/// The sums.
#[derive(Debug, Default)]
pub struct Sums {
    processes: BTreeMap<Process, Last>,
    places: BTreeMap<String, Place>,
    counts: PagerCounts,
    others: Figures,
    shootdowns_before: Option<u64>,
    begun: bool,
}

/// The last part of a path; of a path of which only the end is known, of that end.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn add(to: &mut Figures, more: &Figures) {
    to.mapped_bytes = to.mapped_bytes.saturating_add(more.mapped_bytes);
    to.resident_bytes = to.resident_bytes.saturating_add(more.resident_bytes);
    to.evicted_pages = to.evicted_pages.saturating_add(more.evicted_pages);
    to.refilled_pages = to.refilled_pages.saturating_add(more.refilled_pages);
}

/// By how much what only grows has grown.
fn growth(before: &Figures, now: &Figures) -> Figures {
    Figures {
        evicted_pages: now.evicted_pages.saturating_sub(before.evicted_pages),
        refilled_pages: now.refilled_pages.saturating_sub(before.refilled_pages),
        ..Figures::default()
    }
}

impl Last {
    fn of(posted: &Posted) -> Last {
        let mut last = Last {
            counts: PagerCounts::of(posted),
            rest: posted.rest,
            other_files: posted.more_files,
            budget_bytes: posted.statistics.budget_bytes,
            ended: posted.ended,
            ..Last::default()
        };
        for file in &posted.files {
            let of_name = last.files.entry(name_of(&file.name).to_owned());
            add(of_name.or_default(), &file.figures);
            let resident = last.resident.entry(file.name.clone()).or_default();
            *resident = resident.saturating_add(file.figures.resident_bytes);
        }
        last
    }
}

impl Sums {
    /// Takes over a round: what the processes that are `there` show that were looked at. Of one that is
    /// there and was not, the last figures stay. `shootdowns` is the machine's count.
    pub fn round(
        &mut self,
        now: Duration,
        there: &BTreeSet<Process>,
        shown: &[Shown],
        shootdowns: Option<u64>,
    ) {
        self.processes.retain(|process, _| there.contains(process));
        self.shootdowns_before = self.shootdowns_before.or(shootdowns);
        let mut all: Vec<(Process, Last)> = Vec::new();
        let mut mapped: BTreeMap<String, u64> = BTreeMap::new();
        // Half written, a name may be two halves.
        for one in shown.iter().filter(|one| !one.seen.torn) {
            let last = Last::of(&one.seen.posted);
            for (name, figures) in &last.files {
                let sum = mapped.entry(name.clone()).or_default();
                *sum = sum.saturating_add(figures.mapped_bytes);
            }
            all.push((one.process, last));
        }
        self.give_places(now, mapped);
        for (process, last) in all {
            let known = self.processes.get(&process);
            // What it did before anybody looked is not told.
            let nothing = Last::default();
            let before = known.or((self.begun).then_some(&nothing)).unwrap_or(&last);
            self.counts.grow(&before.counts, &last.counts);
            add(&mut self.others, &growth(&before.rest, &last.rest));
            for (name, figures) in &last.files {
                let before = before.files.get(name).copied().unwrap_or_default();
                let into = match self.places.get_mut(name) {
                    Some(place) => &mut place.figures,
                    None => &mut self.others,
                };
                add(into, &growth(&before, figures));
            }
            self.processes.insert(process, last);
        }
        self.begun = true;
    }

    /// Gives the names places, as long as there are any.
    fn give_places(&mut self, now: Duration, mapped: BTreeMap<String, u64>) {
        let processes = self.processes.values();
        let known = processes.flat_map(|last| last.files.keys());
        for name in known.chain(mapped.keys()) {
            if let Some(place) = self.places.get_mut(name) {
                place.seen = now;
            }
        }
        self.places
            .retain(|_, place| now.saturating_sub(place.seen) < KEPT);
        let mut new: Vec<(u64, String)> = mapped
            .into_iter()
            .filter(|(name, _)| !self.places.contains_key(name))
            .map(|(name, mapped)| (mapped, name))
            .collect();
        new.sort_unstable_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        for (_, name) in new.into_iter().take(MOST_FILES - self.places.len()) {
            let figures = Figures::default();
            let seen = now;
            self.places.insert(name, Place { figures, seen });
        }
    }

    /// What there is to tell; names of files only if they are wanted.
    pub fn figures(
        &self,
        by_file: bool,
        not_read: u64,
        shootdowns: Option<u64>,
        cpu: Duration,
    ) -> PagerFigures {
        let mut resident: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut other_names, mut more_files) = (BTreeSet::new(), 0u64);
        let mut told = PagerFigures {
            not_read,
            counts: self.counts,
            shootdowns: shootdowns
                .zip(self.shootdowns_before)
                .map(|(now, before)| now.saturating_sub(before)),
            cpu,
            others: self.others,
            ..PagerFigures::default()
        };
        let places = self.places.iter();
        let mut files: BTreeMap<&str, Figures> = places
            .map(|(name, place)| (&**name, place.figures))
            .collect();
        for last in self.processes.values().filter(|last| !last.ended) {
            told.processes += 1;
            told.budget_bytes = told.budget_bytes.saturating_add(last.budget_bytes);
            more_files = more_files.saturating_add(last.other_files);
            for (path, bytes) in &last.resident {
                let most = resident.entry(path).or_default();
                *most = (*most).max(*bytes);
            }
            let is_mapped = |figures: &Figures| Figures {
                mapped_bytes: figures.mapped_bytes,
                ..Figures::default()
            };
            for (name, figures) in &last.files {
                let of_name = files.get_mut(&**name);
                if of_name.is_none() {
                    other_names.insert(&**name);
                }
                let into = of_name.unwrap_or(&mut told.others);
                add(into, &is_mapped(figures));
            }
            let rest = Figures {
                resident_bytes: last.rest.resident_bytes,
                ..is_mapped(&last.rest)
            };
            add(&mut told.others, &rest);
        }
        for (path, bytes) in resident {
            let into = files.get_mut(name_of(path)).unwrap_or(&mut told.others);
            into.resident_bytes = into.resident_bytes.saturating_add(bytes);
        }
        told.other_files = more_files.saturating_add(other_names.len() as u64);
        if by_file {
            let file = |(name, figures): (&str, Figures)| FileFigures {
                name: name.to_owned(),
                figures,
            };
            told.files = files.into_iter().map(file).collect();
        } else {
            told.other_files = told.other_files.saturating_add(files.len() as u64);
            files.values().for_each(|more| add(&mut told.others, more));
        }
        told
    }
}

#[cfg(test)]
#[path = "sums_tests.rs"]
pub mod tests;
