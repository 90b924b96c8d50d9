//! What the evictor does for files that several processes keep ([`super::group`]).

use super::group::{Group, Rooms};
use super::{FileMode, FileRegion, Gone, Inner, Sight};
use crate::bell::Bell;
use crate::builder::{Mode, Settings, Unmapping};
use crate::unmap::lock;
use memtide_core::eviction::Granule;
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Places for the tables of groups, where this pager meets others: mapped now, while the program waits.
pub(super) fn rooms(settings: &Settings) -> Option<Rooms> {
    let meets = settings.mode == Mode::File && settings.unmapping == Unmapping::Lazy;
    settings.together.as_ref().filter(|_| meets)?;
    // The C library keeps the stack of a thread that ended, for those that the evictor starts later.
    let _ = crate::sys::apart::apart(|| Ok(()));
    Rooms::new().ok()
}

/// How long a leader waits for followers, for all files together.
const PATIENCE: Duration = Duration::from_millis(5);
/// How long it waits before it does what other leaders ask for.
const SLICE: Duration = Duration::from_micros(500);

/// Something to do for a file without the lock of the books ([`Group`]).
#[derive(Debug)]
struct Errand {
    region: usize,
    /// Device and inode.
    file: (u64, u64),
    /// Taken out of the books meanwhile; nothing where it is to be joined.
    group: Option<Group>,
}

fn key(region: &FileRegion) -> (u64, u64) {
    (region.facts.device, region.facts.inode)
}

impl FileMode {
    /// Joins groups, leaves them, and runs their errands. Whether files are to be read in another order now. For the
    /// evictor, before its round.
    pub(super) fn meet_others(&self) -> bool {
        let (left, errands) = self.errands(&mut lock(&self.inner));
        // Those first: a file may be mapped again, and this process has the lead until then.
        drop(left);
        if errands.is_empty() {
            return false;
        }
        let ran: Vec<_> = errands.into_iter().map(|errand| self.run(errand)).collect();
        let mut guard = lock(&self.inner);
        let inner = &mut *guard;
        let mut orders = false;
        for (errand, followed) in ran {
            let there = inner.regions.get_mut(errand.region);
            let there = there.and_then(Option::as_mut);
            let there = there.filter(|there| key(there) == errand.file && !inner.parted);
            let Some(there) = there else {
                inner.left.extend(errand.group);
                continue;
            };
            (there.group, there.joins) = (errand.group, false);
            let follows = there.follows();
            orders |= follows != followed;
            match follows {
                // Its pages are another one's to count.
                true => self.close_books(inner, errand.region),
                // From here on they are counted here.
                false if followed => inner.unseen.forget(),
                false => {}
            }
        }
        orders
    }

    /// Groups to leave, and what is to be done for files.
    fn errands(&self, inner: &mut Inner) -> (Vec<Group>, Vec<Errand>) {
        let now = Instant::now();
        let (parted, mut errands) = (inner.parted, Vec::new());
        for (number, region) in inner.regions.iter_mut().enumerate() {
            let Some(region) = region else { continue };
            let joins = std::mem::take(&mut region.joins) && !parted && self.may_join(region);
            let group = region.group.take_if(|group| group.has_errand(now));
            if joins || group.is_some() {
                errands.push(Errand {
                    region: number,
                    file: key(region),
                    group,
                });
            }
        }
        (std::mem::take(&mut inner.left), errands)
    }

    /// What came of it, and whether the file was followed before.
    fn run(&self, mut errand: Errand) -> (Errand, bool) {
        let now = Instant::now();
        let followed = errand.group.as_ref().is_some_and(|group| !group.leads());
        if let Some(group) = &mut errand.group {
            group.run_errand(now);
        }
        // Who is lost joins those who are not.
        if errand.group.as_ref().is_none_or(|group| group.is_lost(now)) {
            errand.group = None;
            let (rooms, folder) = (self.rooms.as_ref(), self.settings.together.as_ref());
            let (granule, read) = (self.settings.granule_bytes, self.kernel.read_bytes());
            errand.group = rooms.zip(folder).and_then(|(rooms, folder)| {
                Group::join(rooms, folder, errand.file, granule, read, now)
            });
        }
        (errand, followed)
    }

    /// Where that serves anything: who sees only what he maps cannot lead, and eager ways are there to be compared.
    fn may_join(&self, region: &FileRegion) -> bool {
        let lazy = self.settings.unmapping == Unmapping::Lazy;
        lazy && region.sight == Sight::CountedThenSeen && !region.views.is_empty()
    }

    /// Does what leaders ask for, and says to followers how things stand. `orders`: files are to be read in another
    /// order now.
    pub(super) fn keep_together(
        &self,
        inner: &mut Inner,
        read_bytes: Option<u64>,
        mut orders: bool,
    ) {
        let rarely = inner.rounds.is_multiple_of(super::evict::CHECK_FILES);
        let held_back = inner.held_back;
        for region in inner.regions.iter_mut().flatten() {
            let (resident, by_need) = (region.resident_pages, region.around.by_need());
            // Who has lost its descriptor can drop nothing.
            if rarely && !region.file.is_ours() {
                inner.left.extend(region.group.take());
            }
            let Some(group) = region.group.as_mut().filter(|group| group.leads()) else {
                continue;
            };
            group.lead(resident, by_need || held_back);
            // What they map is our business, too, and files grow.
            let followed = group.is_followed();
            if followed
                && (rarely || !region.reaches_all)
                && let Ok(facts) = self.kernel.facts(region.file.as_fd())
            {
                self.reach_all(region, facts.bytes);
            }
            region.reaches_all = followed;
        }
        let mut regions = inner.regions.iter().flatten();
        inner.eviction.share(regions.any(FileRegion::is_followed));
        orders |= self.follow_leaders(inner, read_bytes);
        if orders {
            self.tell_orders(inner);
        }
    }

    /// Does what leaders ask for. Whether files are to be read in another order now.
    fn follow_leaders(&self, inner: &mut Inner, read_bytes: Option<u64>) -> bool {
        let (mut followed, mut orders, now) = (0, false, Instant::now());
        for number in 0..inner.regions.len() {
            let region = inner.regions[number].as_mut();
            let Some(region) = region.filter(|region| region.follows()) else {
                continue;
            };
            let Some(group) = region.group.as_mut() else {
                continue;
            };
            let (stretches, by_need) = group.follow(now);
            orders |= std::mem::replace(&mut region.told_by_need, by_need) != by_need;
            self.unmap_stretches(inner, number, &stretches);
            // It may have been mapped nowhere any more.
            let region = inner.regions[number].as_ref();
            if let Some(group) = region.and_then(|region| region.group.as_ref()) {
                group.done(read_bytes);
                followed += group.resident();
            }
        }
        inner.followed_pages = followed;
        orders
    }

    /// Unmaps stretches of granules wherever this process maps them.
    fn unmap_stretches(&self, inner: &mut Inner, number: usize, stretches: &[Range<u32>]) {
        let Some(region) = inner.regions[number].as_ref() else {
            return;
        };
        let granule = self.settings.granule_bytes as u64;
        let parts = stretches.iter().flat_map(|stretch| {
            let offset = u64::from(stretch.start) * granule;
            let bytes = stretch.len() as u64 * granule;
            let views = region.views.iter();
            views.filter_map(move |view| view.part(offset, bytes))
        });
        let parts: Vec<_> = parts.collect();
        if parts.is_empty() {
            return;
        }
        let mut gone = Vec::new();
        // What could not be unmapped is still mapped: the leader finds that.
        let _ = self.unmap(&inner.regions, parts, &mut gone);
        for range in gone {
            self.cut_in(inner, range, None, Gone::Unmapped);
        }
    }

    /// Has followers unmap what this process unmapped now.
    pub(super) fn post_unmapped(&self, inner: &mut Inner, granules: &[Granule]) {
        for (number, region) in inner.regions.iter_mut().enumerate() {
            let Some(region) = region else { continue };
            let Some(group) = region.group.as_ref().filter(|group| group.is_followed()) else {
                continue;
            };
            let of = granules
                .iter()
                .filter(|granule| granule.region as usize == number);
            let mut indices: Vec<u32> = of.map(|granule| granule.index).collect();
            indices.sort_unstable();
            indices.dedup();
            if !indices.is_empty() {
                group.post(&indices);
                region.posted = true;
            }
        }
    }

    /// Waits until followers did so; and does what other leaders ask for, who may be followers of this one.
    pub(super) fn wait_for_followers(&self, inner: &mut Inner) {
        let posted = |inner: &Inner| {
            let regions = inner.regions.iter();
            regions
                .map(|region| region.as_ref().is_some_and(|region| region.posted))
                .collect()
        };
        let posted: Vec<bool> = posted(inner);
        let end = Instant::now() + PATIENCE;
        for number in (0..posted.len()).filter(|number| posted[*number]) {
            while let Some(region) = inner.regions[number].as_mut() {
                region.posted = false;
                let Some(group) = region.group.as_mut() else {
                    break;
                };
                let done = group.done_so_far();
                if !group.is_behind() {
                    break;
                }
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    group.give_up();
                    break;
                }
                group.wait(done, left.min(SLICE));
                if inner.followed_pages > 0 && self.follow_leaders(inner, None) {
                    self.tell_orders(inner);
                }
            }
        }
    }

    /// Pages that followers had read in since the last time. Each tells it for all that it reads, whatever it
    /// follows.
    pub(super) fn came_to_others(&self, inner: &mut Inner) -> u64 {
        let groups = inner.regions.iter_mut().flatten();
        let groups = groups.filter_map(|region| region.group.as_mut());
        let leading = groups.filter(|group| group.leads());
        let bytes = leading.map(Group::others_read).max();
        bytes.unwrap_or(0) / self.page_bytes as u64
    }

    /// Leaves what is kept together to the others: this process ends.
    pub fn part(&self) {
        let mut inner = self.inner();
        inner.parted = true;
        let mut groups = std::mem::take(&mut inner.left);
        let regions = inner.regions.iter_mut().flatten();
        groups.extend(regions.filter_map(|region| region.group.take()));
        drop(inner);
        drop(groups);
    }

    /// Waits for the evictor's bell, and for leaders' words.
    pub fn wait(&self, bell: &Bell, heard: u32, limit: Duration) {
        let inner = self.inner();
        let regions = inner.regions.iter().flatten();
        let following = regions.filter(|region| region.follows());
        let groups = following.filter_map(|region| region.group.as_ref());
        let tables: Vec<_> = groups.map(Group::bell).collect();
        drop(inner);
        let words: Vec<_> = tables
            .iter()
            .map(|(table, heard)| (Group::word(table), *heard))
            .collect();
        bell.wait_with(heard, &words, limit);
    }
}

impl FileRegion {
    /// Whether the program's other processes, or others', map it under this pager's lead.
    pub(super) fn is_followed(&self) -> bool {
        self.group.as_ref().is_some_and(Group::is_followed)
    }
}

#[cfg(test)]
mod tests {
    use crate::faults::{Faulty, PAGE, builder, numbered, value};
    use crate::kernel::{Kernel as _, Linux};
    use crate::pager::Pager;
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const PAGES: usize = 4096;

    /// Both map and read all of it, so that neither could drop a page by itself.
    #[test]
    fn two_pagers_of_one_file_keep_the_budget_together() {
        let place = tempfile::tempdir().unwrap();
        let file = numbered(PAGES);
        let fd = file.as_file().as_fd();
        let linux = Linux::new().unwrap();
        let cached = || linux.count_cached(fd, 0, (PAGES * PAGE) as u64);
        rustix::fs::fadvise(fd, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if cached() != Ok(0) {
            println!("skipped: files here stay in memory, or there is no cachestat");
            return;
        }
        let start = || {
            let mut settings = builder(PAGES, 4).check().unwrap();
            settings.together = Some(place.path().join("groups"));
            Pager::start_on(settings, Arc::new(Faulty::sound())).unwrap()
        };
        let (first, second) = (start(), start());
        let regions = [&first, &second].map(|pager| {
            let region = pager.open(file.path()).unwrap();
            // Its evictor had a turn: the first leads.
            assert!(pager.settle());
            region
        });
        // Until the evictors had their turns: else all would be unmapped once, at the end.
        let until = Instant::now() + Duration::from_secs(60);
        let few = || first.statistics().dropped_pages < PAGES as u64 && Instant::now() < until;
        let mut sweeps = 0;
        while sweeps < 3 || few() {
            sweeps += 1;
            for page in 0..PAGES {
                for region in &regions {
                    let word = &region.as_slice()[page * PAGE..page * PAGE + 8];
                    assert_eq!(word, value(page).to_le_bytes());
                }
            }
        }
        assert!(first.settle() && second.settle());
        let budget = PAGES as u64 / 4;
        let left = cached().unwrap();
        assert!(left <= budget, "{left} pages of {budget}");
        // One chooses, and both unmap.
        let (led, followed) = (first.statistics(), second.statistics());
        assert!(led.dropped_pages >= PAGES as u64, "{led:?}");
        assert_eq!((followed.evicted_pages, followed.dropped_pages), (0, 0));
        assert!(followed.flush_calls > 0, "{followed:?}");
        // The other goes on when the first ends.
        drop(regions);
        let region = second.open(file.path()).unwrap();
        drop(first);
        for page in 0..PAGES {
            let word = &region.as_slice()[page * PAGE..page * PAGE + 8];
            assert_eq!(word, value(page).to_le_bytes());
        }
        assert!(second.settle());
        assert!(cached().unwrap() <= budget);
        assert!(second.statistics().dropped_pages > 0);
    }
}
