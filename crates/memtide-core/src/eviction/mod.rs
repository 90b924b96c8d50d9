//! What to evict when all that is known of use comes from polling.
//!
//! *Problem.* A cache's replacement algorithm is told of every hit. Memory that a
//! program reads by itself tells nobody; all that can be done is to unmap a piece
//! and to look later whether somebody had it mapped again. So use is known late,
//! rarely, and at the price of an unmap. The crates that implement S3-FIFO, SIEVE
//! or Clock-Pro own keys and values, learn of use through `get`, and evict one
//! entry inside `insert`: they cannot express a choice of a thousand, made ahead
//! of need, that may be taken back.
//!
//! *Idea.* The two queues of S3-FIFO (what is new is on *trial* in a small queue,
//! what proved itself is kept in the *main* one) with the admission test of LIRS:
//! a granule enters a full main queue only if the time between its last two uses
//! is shorter than the time for which some member has not been used at all. Time
//! is counted in pages that came into memory.
//!
//! *Terms.* A granule is a piece of data with an index in its region. A *probe*
//! unmaps a member of main only to see whether it is used again. Every granule
//! keeps the time of its last known use, resident or not, so the ghost queue is
//! as long as the data.
//!
//! *Several readers.* Programs that read the same data in turn, each at a place of its
//! own, drift apart or meet. Who is behind finds in memory what the one in front
//! brought in, as long as it stays there for the time between them, and is faster
//! then: so they meet if the trial queue is longer than what they drift in a time
//! slice or two, and read once what each would have read. Then main has half of the
//! memory and not seven eighths.
//!
//! *What stays true.* Where everything is read in turn and does not fit, the time
//! between uses is the same for all, no member is ever unused for longer, and so
//! the main queue stays: that prefix is read from memory on each turn, the rest
//! streams through the trial queue. LRU, FIFO, SIEVE and S3-FIFO keep nothing
//! then. A set that is used no more ages and is replaced. Each choice costs the
//! granules that it looks at, never all.

use std::collections::VecDeque;

/// A piece of a region's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Granule {
    /// What [`Eviction::add_region`] returned.
    pub region: u32,
    /// Position in the region, in granules.
    pub index: u32,
}

/// Pages of other victims for each page of a sample: where use cannot be seen, one
/// page in sixteen comes from main.
const BETWEEN_SAMPLES: u64 = 15;
/// Main holds at most this many eighths of the capacity, by whether several readers share it.
const MAIN_EIGHTHS: [u64; 2] = [7, 4];
/// Where use cannot be seen, the last part of main, one in so many, is for what
/// came again soon.
const SOON_PART: u64 = 16;
/// What comes again within this part of the mean time enters main at once.
const AT_ONCE_PART: u64 = 8;

/// Granules whose records are made together, with the first use of one of them:
/// data that nobody touches costs nothing here, however much of it there is.
const RECORDS_TOGETHER: usize = 1024;

/// How to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Pages that fit into memory.
    pub capacity_pages: u64,
    /// False: in order of arrival, with a second chance for what was used
    /// meanwhile.
    pub keep_main: bool,
    /// Whether an unmapped granule stays in memory for a while, so that it is
    /// seen when it is used again.
    pub second_chance: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Absent,
    Trial,
    Main,
    /// Of main, unmapped at the time in `unmapped_at`.
    Probed,
    /// Chosen; the caller is about to take its memory.
    Chosen,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// Last known use, in pages filled; 0 for never.
    used_at: u64,
    unmapped_at: u64,
    pages: u32,
    place: Place,
    /// Distinguishes this stay in a queue from earlier ones, whose entries are
    /// skipped when they are met.
    stay: u16,
}

/// The records of a region, as far as there are any.
#[derive(Debug, Default)]
struct Records(Vec<Option<Box<[Record; RECORDS_TOGETHER]>>>);

impl Records {
    fn get(&self, index: u32) -> Record {
        let (chunk, at) = place_of(index);
        let chunk = self.0.get(chunk).and_then(Option::as_ref);
        chunk.map_or(Record::default(), |records| records[at])
    }

    fn get_mut(&mut self, index: u32) -> &mut Record {
        let (chunk, at) = place_of(index);
        if self.0.len() <= chunk {
            self.0.resize_with(chunk + 1, || None);
        }
        let chunk = &mut self.0[chunk];
        &mut chunk.get_or_insert_with(|| Box::new([Record::default(); RECORDS_TOGETHER]))[at]
    }

    fn iter(&self) -> impl Iterator<Item = &Record> {
        self.0.iter().flatten().flat_map(|records| records.iter())
    }
}

fn place_of(index: u32) -> (usize, usize) {
    let index = index as usize;
    (index / RECORDS_TOGETHER, index % RECORDS_TOGETHER)
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    granule: Granule,
    stay: u16,
}

/// The queues over all regions.
#[derive(Debug)]
pub struct Eviction {
    config: Config,
    regions: Vec<Option<Records>>,
    trial: VecDeque<Entry>,
    main: VecDeque<Entry>,
    probed: VecDeque<Entry>,
    /// Pages in main, probed ones included.
    main_pages: u64,
    filled_pages: u64,
    /// Mean time, in pages filled, after which granules come again.
    mean_return: u64,
    warm: bool,
    /// Several readers use it.
    shared: bool,
    /// Pages of other victims until the next sample.
    until_sample: u64,
}

impl Eviction {
    /// With no region.
    #[must_use]
    pub fn new(config: Config) -> Eviction {
        Eviction {
            config,
            regions: Vec::new(),
            trial: VecDeque::new(),
            main: VecDeque::new(),
            probed: VecDeque::new(),
            main_pages: 0,
            filled_pages: 1,
            mean_return: 0,
            warm: false,
            shared: false,
            until_sample: BETWEEN_SAMPLES,
        }
    }

    /// Adds a region of any number of granules, none of them in memory.
    pub fn add_region(&mut self) -> u32 {
        let records = Some(Records::default());
        let free = self.regions.iter().position(Option::is_none);
        let at = free.unwrap_or(self.regions.len());
        match free {
            Some(at) => self.regions[at] = records,
            None => self.regions.push(records),
        }
        at as u32
    }

    /// Says whether several programs read it, from now on.
    pub fn share(&mut self, shared: bool) {
        self.shared = shared;
    }

    /// Forgets a region and everything of it.
    pub fn remove_region(&mut self, region: u32) {
        let Some(records) = self.regions[region as usize].take() else {
            return;
        };
        let of_main = |r: &&Record| matches!(r.place, Place::Main | Place::Probed);
        let gone: u64 = records
            .iter()
            .filter(of_main)
            .map(|r| u64::from(r.pages))
            .sum();
        self.main_pages -= gone;
        for queue in [&mut self.trial, &mut self.main, &mut self.probed] {
            queue.retain(|entry| entry.granule.region != region);
        }
    }

    /// Pages that came into memory so far: the clock.
    #[must_use]
    pub fn filled_pages(&self) -> u64 {
        self.filled_pages - 1
    }

    /// Whether the granule is in memory as far as is known, chosen or not.
    #[must_use]
    pub fn holds(&self, granule: Granule) -> bool {
        self.record(granule).place != Place::Absent
    }

    /// Pages of it in memory.
    #[must_use]
    pub fn pages(&self, granule: Granule) -> u32 {
        self.record(granule).pages
    }

    /// Whether it was chosen, and neither used nor dropped since.
    #[must_use]
    pub fn is_chosen(&self, granule: Granule) -> bool {
        self.record(granule).place == Place::Chosen
    }

    /// Says that `pages` pages of the granule are in memory. Returns true if it
    /// was there at an earlier time and came again. `used` tells whether a probed
    /// granule was used since its probe.
    pub fn appeared(
        &mut self,
        granule: Granule,
        pages: u32,
        mut used: impl FnMut(Granule) -> bool,
    ) -> bool {
        let record = self.record(granule);
        self.filled_pages += u64::from(pages.saturating_sub(record.pages));
        if record.place != Place::Absent {
            self.resize(granule, pages);
            if pages > record.pages && !self.config.second_chance {
                self.grew(granule);
            }
            return false;
        }
        let before = record.used_at;
        let again = before != 0;
        let now = self.filled_pages;
        let record = self.record_mut(granule);
        record.pages = pages;
        record.used_at = now;
        let since = now - before;
        let room = self.main_pages + u64::from(pages) <= self.main_limit_for(since, again);
        let proven = again || !self.warm;
        let enters = self.config.keep_main
            && proven
            && (room
                || self.replaces(since, again, &mut used)
                || again && self.replaces_at_once(since, &mut used));
        let place = match enters {
            true => Place::Main,
            false => Place::Trial,
        };
        self.put(granule, place);
        if again {
            self.mean_return = (self.mean_return * 15 + since) / 16;
        }
        again
    }

    /// More of a granule came: a use that is seen. What has entered main with a page
    /// and fills in slowly would take all of it.
    fn grew(&mut self, granule: Granule) {
        let record = self.record(granule);
        let since = self.filled_pages - record.used_at;
        self.record_mut(granule).used_at = self.filled_pages;
        let limit = self.main_limit();
        let room = self.main_pages <= limit - limit / SOON_PART;
        if record.place == Place::Main && !room && !self.is_soon(since) {
            self.put(granule, Place::Trial);
        }
    }

    /// Says that a chosen or probed granule was used again and stays.
    pub fn used(&mut self, granule: Granule, used: impl FnMut(Granule) -> bool) {
        let record = self.record(granule);
        let now = self.filled_pages;
        match record.place {
            Place::Absent => return,
            Place::Main | Place::Probed => self.put(granule, Place::Main),
            Place::Trial | Place::Chosen => {
                let since = now - record.used_at;
                if self.config.keep_main && self.replaces(since, true, used) {
                    self.put(granule, Place::Main);
                } else {
                    self.put(granule, Place::Trial);
                }
            }
        }
        self.record_mut(granule).used_at = now;
    }

    /// Puts a chosen granule back without its having been used: the kernel would
    /// not let it go.
    pub fn put_back(&mut self, granule: Granule) {
        if self.record(granule).place == Place::Chosen {
            self.put(granule, Place::Trial);
        }
    }

    /// Says that the granule left memory.
    pub fn dropped(&mut self, granule: Granule) {
        self.leave(granule);
        let record = self.record_mut(granule);
        record.place = Place::Absent;
        record.pages = 0;
        self.warm = true;
    }

    /// Chooses granules of `pages` pages in sum, `most` granules at most, into
    /// `chosen`. They stay in memory until [`Eviction::dropped`].
    pub fn choose(
        &mut self,
        pages: u64,
        most: usize,
        chosen: &mut Vec<Granule>,
        mut used: impl FnMut(Granule) -> bool,
    ) {
        let (mut sum, start) = (0, chosen.len());
        self.warm = true;
        while sum < pages && chosen.len() - start < most {
            // Main exceeds its limit when what is in it fills up, and when readers come.
            let over = self.main_pages > self.main_limit();
            let sample = match self.config.second_chance {
                true => over && self.shared,
                false => over || self.until_sample == 0,
            };
            let next = match sample {
                true => self.oldest_of_main(&mut used).or_else(|| self.pop_trial()),
                false => self.pop_trial().or_else(|| self.oldest_of_main(&mut used)),
            };
            let Some(granule) = next else {
                return;
            };
            let pages = u64::from(self.record(granule).pages.max(1));
            sum += pages;
            // In pages: where granules are filled in part, those of main are larger
            // than what is on trial.
            self.until_sample = match sample {
                true => pages * BETWEEN_SAMPLES,
                false => self.until_sample.saturating_sub(pages),
            };
            self.leave(granule);
            self.record_mut(granule).place = Place::Chosen;
            chosen.push(granule);
        }
    }

    /// Chooses this granule, wherever it is kept: it cannot leave without, or be
    /// left by, one that was chosen. False if it is not in memory or chosen already.
    pub fn choose_this(&mut self, granule: Granule) -> bool {
        if matches!(self.record(granule).place, Place::Absent | Place::Chosen) {
            return false;
        }
        self.leave(granule);
        self.record_mut(granule).place = Place::Chosen;
        true
    }

    /// Chooses up to `most` members of main to unmap and watch, longest kept
    /// first, into `probes`.
    pub fn probe(&mut self, most: usize, probes: &mut Vec<Granule>) {
        for _ in 0..most {
            // An eighth of main under probe gives candidates enough.
            if self.probed.len() > self.main.len() / 4 {
                return;
            }
            let Some(granule) = self.pop_main() else {
                return;
            };
            self.put(granule, Place::Probed);
            probes.push(granule);
        }
    }

    /// Whether a granule whose last two uses lie `since` apart may take the place
    /// of a member of main, which then goes to the exit of the trial queue.
    fn replaces(&mut self, since: u64, again: bool, mut used: impl FnMut(Granule) -> bool) -> bool {
        // What is used for the first time is not known to come again.
        let oldest = again.then(|| self.oldest_probed(&mut used)).flatten();
        let Some(oldest) = oldest else {
            return false;
        };
        let unused = self.filled_pages - self.record(oldest).unmapped_at;
        if unused <= since {
            return false;
        }
        self.put_first(oldest);
        true
    }

    /// Where use is seen by probes only, main begins with what came first, and it takes long until so much was
    /// probed that what is hot finds a place. What comes again at once takes that of the member that was kept for
    /// longest, whether that one is used or not.
    fn replaces_at_once(&mut self, since: u64, used: &mut impl FnMut(Granule) -> bool) -> bool {
        if !self.config.second_chance || since * AT_ONCE_PART > self.mean_return {
            return false;
        }
        let Some(oldest) = self.oldest_of_main(used) else {
            return false;
        };
        self.put_first(oldest);
        true
    }

    /// The member that was probed first and not used since. Those that were used
    /// go back to the end of main.
    fn oldest_probed(&mut self, used: &mut impl FnMut(Granule) -> bool) -> Option<Granule> {
        while let Some(&Entry { granule, stay }) = self.probed.front() {
            let live = self.is_live(granule, stay, Place::Probed);
            if live && !used(granule) {
                return Some(granule);
            }
            self.probed.pop_front();
            if live {
                let now = self.filled_pages;
                self.put(granule, Place::Main);
                self.record_mut(granule).used_at = now;
            }
        }
        None
    }

    fn oldest_of_main(&mut self, used: &mut impl FnMut(Granule) -> bool) -> Option<Granule> {
        self.oldest_probed(used).or_else(|| self.pop_main())
    }

    fn pop_trial(&mut self) -> Option<Granule> {
        while let Some(Entry { granule, stay }) = self.trial.pop_front() {
            if self.is_live(granule, stay, Place::Trial) {
                return Some(granule);
            }
        }
        None
    }

    fn pop_main(&mut self) -> Option<Granule> {
        while let Some(Entry { granule, stay }) = self.main.pop_front() {
            if self.is_live(granule, stay, Place::Main) {
                return Some(granule);
            }
        }
        None
    }

    fn is_live(&self, granule: Granule, stay: u16, place: Place) -> bool {
        let records = self.regions[granule.region as usize].as_ref();
        let record = records.map(|records| records.get(granule.index));
        record.is_some_and(|record| record.place == place && record.stay == stay)
    }

    fn put(&mut self, granule: Granule, place: Place) {
        self.leave(granule);
        let now = self.filled_pages;
        let record = self.record_mut(granule);
        record.stay = record.stay.wrapping_add(1);
        record.place = place;
        let (stay, pages) = (record.stay, u64::from(record.pages));
        if place == Place::Probed {
            record.unmapped_at = now;
        }
        let entry = Entry { granule, stay };
        match place {
            Place::Trial => self.trial.push_back(entry),
            Place::Main => self.main.push_back(entry),
            Place::Probed => self.probed.push_back(entry),
            Place::Absent | Place::Chosen => {}
        }
        if matches!(place, Place::Main | Place::Probed) {
            self.main_pages += pages;
        }
    }

    /// To the exit of the trial queue.
    fn put_first(&mut self, granule: Granule) {
        self.put(granule, Place::Trial);
        if let Some(entry) = self.trial.pop_back() {
            self.trial.push_front(entry);
        }
    }

    /// Out of the count of main; entries in queues die by their stay.
    fn leave(&mut self, granule: Granule) {
        let record = self.record(granule);
        if matches!(record.place, Place::Main | Place::Probed) {
            self.main_pages -= u64::from(record.pages);
        }
    }

    fn resize(&mut self, granule: Granule, pages: u32) {
        let record = self.record_mut(granule);
        let before = std::mem::replace(&mut record.pages, pages);
        if matches!(record.place, Place::Main | Place::Probed) {
            self.main_pages = self.main_pages - u64::from(before) + u64::from(pages);
        }
    }

    fn main_limit(&self) -> u64 {
        self.config.capacity_pages / 8 * MAIN_EIGHTHS[usize::from(self.shared)]
    }

    /// Pages that main may hold with a granule whose last two uses lie `since` apart.
    /// Members that were sampled though they were hot find their place free.
    fn main_limit_for(&self, since: u64, again: bool) -> u64 {
        let limit = self.main_limit();
        if self.config.second_chance || !again {
            return limit;
        }
        match self.is_soon(since) {
            true => limit,
            false => limit - limit / SOON_PART,
        }
    }

    /// Whether uses so far apart are closer than those of most that come again.
    fn is_soon(&self, since: u64) -> bool {
        since * 2 <= self.mean_return
    }

    fn record(&self, granule: Granule) -> Record {
        let records = self.regions[granule.region as usize].as_ref();
        records.expect("a region that was added").get(granule.index)
    }

    fn record_mut(&mut self, granule: Granule) -> &mut Record {
        let records = self.regions[granule.region as usize].as_mut();
        records
            .expect("a region that was added")
            .get_mut(granule.index)
    }
}

#[cfg(all(test, not(loom)))]
mod bound_tests;
#[cfg(all(test, not(loom)))]
mod parts_tests;
#[cfg(all(test, not(loom)))]
mod shared_tests;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod tree_tests;
