//! Which processes to look at, by what was seen of them before.
//!
//! A look reads a process's list of mappings, which is a tenth of a millisecond for most and some
//! for those that have thousands. The list of processes is much cheaper, and it has the page faults
//! of each. A pager's numbers come into a process by such faults, and so does a new program (`exec`).
//! So who took no fault since the last look has nothing new to show.
//!
//! | last look | next look |
//! |---|---|
//! | never | now |
//! | a pager | each round |
//! | the library, and nothing shown yet | when it faults |
//! | no pager, or not allowed to look | when it faults, after 1, 2, 4, 8, then 16 rounds |
//! | shows nonsense | when it faults, after 16 rounds |
//! | keeps its reader waiting | never: a thread may wait there until the process ends |
//!
//! Where [`MOST_WAITING`] keep readers waiting, nobody is looked at for the first time any more, so
//! there are never many more such threads.

use super::find::Answer;
use memtide_linux::fs::proc::Process;
use std::collections::BTreeMap;

/// Rounds without a look at most.
const LONGEST: u64 = 16;
/// Processes that keep a reader waiting, before nobody new is looked at.
const MOST_WAITING: usize = 16;
/// Looks of a round: processes with a pager first, then those whose last look was earliest.
const MOST_LOOKS: usize = 1000;

/// A process and its page faults so far.
pub type Listed = (Process, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Never,
    Pager,
    Library,
    Nothing,
    Nonsense,
    Waits,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    last: Last,
    /// Page faults before the last look.
    faults: u64,
    /// The round of the last look.
    at: u64,
    /// Rounds from that one to the next look.
    rests: u64,
}

/// What is known of the processes that there are.
#[derive(Debug, Default)]
pub struct Known {
    all: BTreeMap<Process, Seen>,
    round: u64,
}

impl Known {
    /// Begins a round with the processes that there are now, and says which to look at.
    pub fn due(&mut self, listed: &[Listed]) -> Vec<u32> {
        self.round += 1;
        let before = std::mem::take(&mut self.all);
        let last = |process: &Process| before.get(process).map(|seen| seen.last);
        let waiting = listed
            .iter()
            .filter(|(process, _)| last(process) == Some(Last::Waits));
        let nobody_new = waiting.count() >= MOST_WAITING;
        let mut due = Vec::new();
        for (process, faults) in listed {
            let seen = before.get(process).copied().unwrap_or_default();
            let rested = self.round - seen.at >= seen.rests;
            let is_due = match seen.last {
                Last::Never => !nobody_new,
                Last::Pager => true,
                Last::Library | Last::Nothing | Last::Nonsense => {
                    rested && *faults != seen.faults && !nobody_new
                }
                Last::Waits => false,
            };
            if is_due {
                due.push((seen.last != Last::Pager, seen.at, *process, *faults));
            }
            self.all.insert(*process, seen);
        }
        due.sort_unstable();
        due.truncate(MOST_LOOKS);
        for (_, _, process, faults) in &due {
            // What comes while it is looked at is new the next time.
            self.all.entry(*process).or_default().faults = *faults;
        }
        due.iter().map(|(_, _, process, _)| process.pid).collect()
    }

    /// Notes what a look at a process of this round's list brought.
    pub fn note(&mut self, pid: u32, answer: &Answer) {
        let first = Process {
            pid,
            start_ticks: 0,
        };
        let mut of_pid = self.all.range_mut(first..);
        let Some((_, seen)) = of_pid.next().filter(|(process, _)| process.pid == pid) else {
            return;
        };
        let last = match answer {
            Answer::Shown(_) => Last::Pager,
            Answer::Silent => Last::Library,
            Answer::NoPager | Answer::Hidden | Answer::ThreadOf(_) | Answer::Gone => Last::Nothing,
            Answer::NotRead(_) => Last::Nonsense,
            Answer::Waits => Last::Waits,
        };
        seen.rests = match last {
            Last::Nothing if seen.last == Last::Nothing => (seen.rests * 2).min(LONGEST),
            Last::Nonsense => LONGEST,
            _ => 1,
        };
        (seen.last, seen.at) = (last, self.round);
    }

    /// Processes whose pager, or what looks like one, is not read.
    pub fn not_read(&self) -> u64 {
        let all = self.all.values();
        let not_read = all.filter(|seen| matches!(seen.last, Last::Nonsense | Last::Waits));
        not_read.count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> Process {
        Process {
            pid,
            start_ticks: u64::from(pid) + 7,
        }
    }

    /// Who is due when processes have so many faults.
    fn due(known: &mut Known, faults: &[(u32, u64)]) -> Vec<u32> {
        let listed: Vec<Listed> = (faults.iter())
            .map(|(pid, faults)| (process(*pid), *faults))
            .collect();
        known.due(&listed)
    }

    #[test]
    fn who_does_not_fault_is_looked_at_once() {
        let mut known = Known::default();
        assert_eq!(due(&mut known, &[(1, 5), (2, 5)]), [1, 2]);
        known.note(1, &Answer::NoPager);
        known.note(2, &Answer::Silent);
        for _ in 0..100 {
            assert_eq!(due(&mut known, &[(1, 5), (2, 5)]), [0; 0]);
        }
        // The new one first.
        assert_eq!(due(&mut known, &[(1, 6), (2, 6), (3, 0)]), [3, 1, 2]);
    }

    /// Rounds 1, 2, 4, 8, 16, 32, 48 of one that faults all the time.
    #[test]
    fn who_faults_and_has_no_pager_is_looked_at_ever_more_rarely() {
        let mut known = Known::default();
        let mut looks = Vec::new();
        for round in 1..60 {
            if !due(&mut known, &[(1, round)]).is_empty() {
                looks.push(round);
                known.note(1, &Answer::NoPager);
            }
        }
        assert_eq!(looks, [1, 2, 4, 8, 16, 32, 48]);
    }

    #[test]
    fn a_number_that_is_another_processs_by_now_is_new() {
        let mut known = Known::default();
        due(&mut known, &[(1, 5)]);
        known.note(1, &Answer::NoPager);
        let other = Process {
            pid: 1,
            start_ticks: 99,
        };
        assert_eq!(known.due(&[(other, 5)]), [1]);
        assert_eq!(known.all.len(), 1, "who has ended is forgotten");
    }

    #[test]
    fn who_keeps_a_reader_waiting_is_never_asked_again_and_many_keep_new_ones_from_it() {
        let mut known = Known::default();
        let mut all: Vec<(u32, u64)> = (1..=16).map(|pid| (pid, 0)).collect();
        assert_eq!(due(&mut known, &all).len(), 16);
        (1..16).for_each(|pid| known.note(pid, &Answer::Waits));
        known.note(16, &Answer::NotRead("nonsense".to_owned()));
        all.push((17, 0));
        assert_eq!(due(&mut known, &all), [17]);
        assert_eq!(known.not_read(), 16);
        known.note(17, &Answer::Waits);
        all.push((18, 0));
        assert_eq!(due(&mut known, &all), [0; 0]);
        // One of them ends.
        all.remove(0);
        assert_eq!(due(&mut known, &all), [18]);
    }

    /// A thousand looks a round: the rest comes in the next one, pagers come in each.
    #[test]
    fn a_round_is_bounded_and_pagers_come_first() {
        let mut known = Known::default();
        let all: Vec<(u32, u64)> = (1..=1500).map(|pid| (pid, 0)).collect();
        let first = due(&mut known, &all);
        assert_eq!(first.len(), MOST_LOOKS);
        first
            .iter()
            .for_each(|pid| known.note(*pid, &Answer::NoPager));
        let paged = Answer::Shown(Box::new(super::super::sums::tests::shown(1000, 1, &[])));
        known.note(1000, &paged);
        let second = due(&mut known, &all);
        assert_eq!((second.len(), second[0]), (501, 1000));
        assert_eq!(second[1..], (1001..=1500).collect::<Vec<u32>>());
    }
}
