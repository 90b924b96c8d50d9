//! Several processes that keep one file.
//!
//! *Problem.* A page leaves memory only when nobody maps it. Pagers that choose by themselves choose different pages,
//! and none of these can go.
//!
//! *Way.* One of the processes *leads*: its pager alone looks at the file, chooses and drops. The others *follow*:
//! they unmap what they are told to, as soon as they are told, and say so. Pages that a follower's program touched
//! again cannot be dropped, and count as used. A table of a few pages, which they share, holds all of this: the
//! stretches to unmap in a ring, how far each follower came, and how the file is to be read around a fault.
//!
//! Who leads is decided by a lock that the kernel ends with its process. A follower takes the lead as soon as the
//! leader says that it ends, or was not heard for a while.
//!
//! Nobody has to be believed: what is said here decides what is unmapped and when, and the kernel frees a page only
//! after it is unmapped everywhere. So what stands in a table may cost time or memory, never a wrong byte.
//!
//! The tables are in a folder that only their user may read, by device, inode and granule. Where that cannot be made
//! each process is on its own.

use crate::bell::{wait_for_others, wake_others};
use crate::sys::Errno;
use crate::sys::apart::apart;
use crate::sys::table::{Asked, Places, Table};
use memtide_linux::files::Private;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// Where the words are. The first one is for the day on which that changes.
const AT_LAYOUT: usize = 0;
/// Stretches posted so far.
const AT_POSTED: usize = 1;
/// Whether nothing is to be read around a fault.
const AT_BY_NEED: usize = 2;
/// Pages of the file in memory.
const AT_RESIDENT: usize = 3;
/// Rounds of the leader, or [`GONE`].
const AT_BEAT: usize = 4;
/// Halves of words that are waited for: by followers, and by the leader.
const AT_BELL: usize = 5;
const AT_DONE: usize = 6;
/// For each member: one more than the stretches that it unmapped, 0 where there is none; and bytes that it read.
const AT_MEMBERS: usize = 16;
const MEMBERS: usize = 64;
/// The ring of stretches: the first granule, and how many.
const AT_RING: usize = 512;
const RING: usize = 4096;
/// Of a table.
const BYTES: usize = (AT_RING + RING) * 8;
/// Files that a process keeps together with others, at most.
const FILES: usize = 64;

const LAYOUT: u64 = 1;
const GONE: u64 = u64::MAX;
/// The lock of the leader, and those of the members.
const LEADER: u64 = 0;
const LOCKS: Range<u64> = 1..1 + MEMBERS as u64;
/// How long a leader is not heard until a follower tries to lead.
const SILENCE: Duration = Duration::from_millis(200);
/// How often the lead is tried for at most, and how long in vain, though nobody else has it, until one is on his own.
const PAUSE: Duration = Duration::from_millis(10);
const LOST: Duration = Duration::from_secs(1);
/// Rounds of a leader between two looks at whether followers are there; and, where nobody follows, at whether the table
/// still has its name. A look starts a thread, and nothing is evicted meanwhile.
const ROLL_CALL: u64 = 256;
const NAME_CALL: u64 = 64 * ROLL_CALL;
/// Pages that no file has.
const MOST_PAGES: u64 = 1 << 36;
/// What the names of tables begin with.
const NAME: &str = "pager-";
/// How often a table is tried for.
const TRIES: usize = 3;
/// All granules of the file.
const ALL: Range<u32> = 0..u32::MAX;

/// Places for the tables of a process, and as many for the locks of those that it leads.
#[derive(Clone, Debug)]
pub(super) struct Rooms {
    tables: Arc<Places>,
    leads: Arc<Places>,
}

impl Rooms {
    /// Keeps them.
    ///
    /// # Errors
    /// What mapping says.
    pub fn new() -> Result<Rooms, Errno> {
        Ok(Rooms {
            tables: Places::new(FILES, BYTES)?,
            leads: Places::new(FILES, BYTES)?,
        })
    }
}

/// A process's part in keeping a file.
///
/// Three things take a thread of their own, for which the C library may need a lock that a thread of the program has
/// while it waits for the evictor's books: [`join`](Group::join), [`run_errand`](Group::run_errand), and the end of
/// this value. So whoever does one of them has no lock.
#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
    rooms: Rooms,
    table: Arc<Table>,
    member: usize,
    /// Holds the lock, while this is the one that leads.
    leads: Option<Table>,
    /// Stretches that were read of the ring.
    read: u64,
    /// The bell, before that.
    heard: u32,
    /// Members that were waited for in vain.
    late: [bool; MEMBERS],
    /// Bytes that all others had read from devices.
    others_read: Option<u64>,
    /// What the leader's beat was, and when it changed or was missed.
    beat: (u64, Instant),
    /// The lead is to be tried for, or the roll to be called.
    errand: bool,
    /// When the lead was tried for, and since when that fails.
    tried: Option<Instant>,
    failed: Option<Instant>,
    /// What this one leads is found under its name no more.
    unnamed: bool,
}

impl Group {
    /// Joins those who keep the file, in `folder`. `read_bytes` is what the process had read from devices.
    pub fn join(
        rooms: &Rooms,
        folder: &Path,
        (device, inode): (u64, u64),
        granule_bytes: usize,
        read_bytes: Option<u64>,
        now: Instant,
    ) -> Option<Group> {
        let path = folder.join(format!("{NAME}{device:x}-{inode:x}-{granule_bytes}"));
        let mapped = apart(|| {
            Private::make(folder).map(drop).map_err(|_| Errno::ACCESS)?;
            // Somebody may remove it at that moment.
            let mut tries = (0..TRIES).map(|_| {
                let place = rooms.tables.take().ok_or(Errno::NOMEM)?;
                Table::map(place, &path, LOCKS, true)
            });
            let mapped = tries.find_map(|asked| match asked {
                Ok(Asked::Ours(table, lock)) => Some((table, lock)),
                Ok(Asked::Others) | Err(_) => None,
            });
            let (table, lock) = mapped.ok_or(Errno::AGAIN)?;
            let lead = ask_for_lead(rooms, &path, &table).ok().flatten();
            if lead.is_some() {
                remove_those_of_nobody(folder, &path);
            }
            Ok((table, lock, lead))
        });
        let (table, lock, leads) = mapped.ok()?;
        let words = table.words();
        let old = words[AT_LAYOUT].compare_exchange(0, LAYOUT, SeqCst, SeqCst);
        if old.is_err_and(|old| old != LAYOUT) {
            return None;
        }
        let member = (lock - LOCKS.start) as usize;
        let read = words[AT_POSTED].load(Acquire);
        let mut group = Group {
            path,
            rooms: rooms.clone(),
            member,
            errand: false,
            leads,
            read,
            heard: table.half(AT_BELL).load(SeqCst),
            late: [false; MEMBERS],
            others_read: None,
            beat: (words[AT_BEAT].load(SeqCst), now),
            tried: None,
            failed: None,
            unnamed: false,
            table: Arc::new(table),
        };
        let bytes = read_bytes.unwrap_or(0);
        group
            .said(AT_MEMBERS + 2 * member + 1)
            .store(bytes, Relaxed);
        let unmapped = read.wrapping_add(1);
        group.said(AT_MEMBERS + 2 * member).store(unmapped, SeqCst);
        group.errand = group.is_followed();
        Some(group)
    }

    fn said(&self, at: usize) -> &AtomicU64 {
        &self.table.words()[at]
    }

    pub fn leads(&self) -> bool {
        self.leads.is_some()
    }

    /// Whether [`run_errand`](Group::run_errand) is due.
    pub fn has_errand(&self, now: Instant) -> bool {
        let early = |tried: Instant| now.saturating_duration_since(tried) < PAUSE;
        self.errand && (self.leads() || !self.tried.is_some_and(early))
    }

    /// Whether the lead may be free.
    pub fn wants_the_lead(&self) -> bool {
        self.errand && !self.leads()
    }

    /// Tries for the lead, and strikes out members whose processes ended without a word.
    pub fn run_errand(&mut self, now: Instant) {
        self.errand = false;
        if !self.leads() {
            self.tried = Some(now);
            let (rooms, path, table) = (&self.rooms, &self.path, &*self.table);
            match apart(|| ask_for_lead(rooms, path, table)) {
                Ok(lead) => (self.leads, self.failed) = (lead, None),
                // The folder is gone, or not this user's any more.
                Err(_) => _ = self.failed.get_or_insert(now),
            }
        }
        if self.leads() {
            self.call_roll();
        }
    }

    /// Whether those who keep the file cannot find each other any more.
    pub fn is_lost(&self, now: Instant) -> bool {
        let long = |since| now.saturating_duration_since(since) > LOST;
        self.unnamed || self.failed.is_some_and(long)
    }

    fn call_roll(&mut self) {
        let locks: Vec<u64> = self
            .others()
            .map(|member| LOCKS.start + member as u64)
            .collect();
        let (path, table) = (&self.path, &*self.table);
        match apart(|| table.unlocked(path, &locks)) {
            Ok(unlocked) => {
                for lock in unlocked {
                    let member = (lock - LOCKS.start) as usize;
                    self.said(AT_MEMBERS + 2 * member).store(0, SeqCst);
                }
            }
            // Who comes now cannot come here.
            Err(Errno::NOENT | Errno::AGAIN) => self.unnamed = true,
            Err(_) => {}
        }
    }

    /// What a follower waits for, and up to where it knows it.
    pub fn bell(&self) -> (Arc<Table>, u32) {
        (self.table.clone(), self.heard)
    }

    pub fn word(table: &Table) -> &AtomicU32 {
        table.half(AT_BELL)
    }

    /// Other members.
    fn others(&self) -> impl Iterator<Item = usize> {
        let there = |member: &usize| self.said(AT_MEMBERS + 2 * member).load(SeqCst) > 0;
        let others = (0..MEMBERS).filter(move |member| *member != self.member);
        others.filter(there)
    }

    /// Whether anybody follows.
    pub fn is_followed(&self) -> bool {
        self.leads() && self.others().next().is_some()
    }

    // What a leader does.

    /// Begins a round: `resident` pages are in memory, and `by_need` nothing is read around a fault.
    pub fn lead(&mut self, resident: u64, by_need: bool) {
        let beat = self.said(AT_BEAT).load(Relaxed);
        // One behind the last one is that of nobody.
        let next = beat.wrapping_add(1) % GONE;
        let pause = match self.is_followed() {
            true => ROLL_CALL,
            false => NAME_CALL,
        };
        self.errand |= next.is_multiple_of(pause);
        self.said(AT_BEAT).store(next, SeqCst);
        self.said(AT_RESIDENT).store(resident, Relaxed);
        let told = self.said(AT_BY_NEED).swap(by_need.into(), SeqCst);
        if told != u64::from(by_need) {
            self.ring();
        }
    }

    fn ring(&self) {
        let bell = self.table.half(AT_BELL);
        bell.fetch_add(1, SeqCst);
        wake_others(bell);
    }

    /// Has followers unmap granules, which are sorted.
    pub fn post(&self, granules: &[u32]) {
        let posted = self.said(AT_POSTED).load(Relaxed);
        let mut at = posted;
        let mut put = |stretch: Range<u32>| {
            let word = u64::from(stretch.start) << 32 | u64::from(stretch.end - stretch.start);
            self.said(AT_RING + at as usize % RING).store(word, Relaxed);
            at = at.wrapping_add(1);
        };
        let runs = || granules.chunk_by(|a, b| a + 1 == *b);
        match runs().count() > RING / 4 {
            true => put(ALL),
            false => runs().for_each(|run| put(run[0]..run[run.len() - 1] + 1)),
        }
        self.said(AT_POSTED).store(at, Release);
        self.ring();
    }

    /// Members who did not unmap all that was posted.
    fn behind(&self) -> impl Iterator<Item = usize> {
        let posted = self.said(AT_POSTED).load(Relaxed);
        self.others().filter(move |member| {
            let unmapped = self.said(AT_MEMBERS + 2 * member).load(SeqCst);
            unmapped > 0 && unmapped.wrapping_sub(1) < posted
        })
    }

    /// Whether followers are to be waited for: those who are behind, but for those who were late the last time.
    pub fn is_behind(&mut self) -> bool {
        let behind: Vec<usize> = self.behind().collect();
        for (member, late) in self.late.iter_mut().enumerate() {
            *late &= behind.contains(&member);
        }
        behind.iter().any(|member| !self.late[*member])
    }

    /// Waits until a follower has done something, `limit` at most; `done` is up to where that is known.
    pub fn wait(&self, done: u32, limit: Duration) {
        wait_for_others(self.table.half(AT_DONE), done, limit);
    }

    /// Up to where it is known what followers have done.
    pub fn done_so_far(&self) -> u32 {
        self.table.half(AT_DONE).load(SeqCst)
    }

    /// Who is behind now is late.
    pub fn give_up(&mut self) {
        let behind: Vec<usize> = self.behind().collect();
        behind.iter().for_each(|member| self.late[*member] = true);
    }

    /// Bytes that other members had read from devices since the last time.
    pub fn others_read(&mut self) -> u64 {
        let read = |member| self.said(AT_MEMBERS + 2 * member + 1).load(Relaxed);
        let now: u64 = self.others().map(read).fold(0, u64::wrapping_add);
        let before = self.others_read.replace(now);
        // Who left takes his bytes along.
        before.map_or(0, |before| now.saturating_sub(before))
    }

    // What a follower does.

    /// Stretches to unmap, and whether the file is read by need.
    pub fn follow(&mut self, now: Instant) -> (Vec<Range<u32>>, bool) {
        self.heard = self.table.half(AT_BELL).load(SeqCst);
        let beat = self.said(AT_BEAT).load(SeqCst);
        let silent = beat == self.beat.0 && now.saturating_duration_since(self.beat.1) > SILENCE;
        if beat != self.beat.0 && beat != GONE {
            // Somebody leads, so nothing is lost.
            self.failed = None;
        }
        if beat != self.beat.0 || silent {
            self.beat = (beat, now);
        }
        self.errand = silent || beat == GONE;
        let posted = self.said(AT_POSTED).load(Acquire);
        let stretches = match posted.wrapping_sub(self.read) {
            0 => Vec::new(),
            new if new as usize > RING / 2 => vec![ALL],
            _ => {
                let read = (self.read..posted).map(|at| {
                    let word = self.said(AT_RING + at as usize % RING).load(Relaxed);
                    let (first, number) = ((word >> 32) as u32, word as u32);
                    first..first.saturating_add(number)
                });
                let read = read.collect();
                // They may have been written over meanwhile.
                let left = self.said(AT_POSTED).load(SeqCst).wrapping_sub(self.read);
                match left as usize > RING / 2 {
                    true => vec![ALL],
                    false => read,
                }
            }
        };
        self.read = posted;
        (stretches, self.said(AT_BY_NEED).load(SeqCst) != 0)
    }

    /// Says that all of it is unmapped, and how many bytes the process had read from devices, if that is known.
    pub fn done(&self, read_bytes: Option<u64>) {
        if let Some(bytes) = read_bytes {
            self.said(AT_MEMBERS + 2 * self.member + 1)
                .store(bytes, Relaxed);
        }
        let unmapped = self.read.wrapping_add(1);
        let said = self.said(AT_MEMBERS + 2 * self.member);
        if said.swap(unmapped, SeqCst) != unmapped {
            let done = self.table.half(AT_DONE);
            done.fetch_add(1, SeqCst);
            wake_others(done);
        }
    }

    /// Pages of the file in memory, as the leader says.
    pub fn resident(&self) -> u64 {
        // A child has no table.
        match self.table.is_here() {
            true => self.said(AT_RESIDENT).load(Relaxed).min(MOST_PAGES),
            false => 0,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.table.is_here() {
            return;
        }
        self.said(AT_MEMBERS + 2 * self.member).store(0, SeqCst);
        if self.leads.take().is_some() {
            self.said(AT_BEAT).store(GONE, SeqCst);
        }
        self.ring();
        let own = LOCKS.start + self.member as u64;
        let path = &self.path;
        let _ = apart(|| {
            Table::remove(path, &[LEADER..own, own + 1..LOCKS.end]);
            Ok(())
        });
    }
}

/// Removes tables of files that nobody keeps any more: who is killed leaves his. For a thread of its own.
fn remove_those_of_nobody(folder: &Path, own: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(NAME) && path != own {
            Table::remove(&path, &[LEADER..LOCKS.start, LOCKS]);
        }
    }
}

/// The lock of who leads; nothing while another one has it. For a thread of its own.
///
/// # Errors
/// Those of [`Table::map`]; `AGAIN` where the members have another table than this.
fn ask_for_lead(rooms: &Rooms, path: &Path, table: &Table) -> Result<Option<Table>, Errno> {
    let place = rooms.leads.take().ok_or(Errno::NOMEM)?;
    match Table::map(place, path, LEADER..LEADER + 1, false)? {
        Asked::Ours(lead, _) if lead.is_with(table) => Ok(Some(lead)),
        Asked::Ours(..) => Err(Errno::AGAIN),
        Asked::Others => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place(tempfile::TempDir, Rooms);

    impl Place {
        fn new() -> Place {
            Place(tempfile::tempdir().unwrap(), Rooms::new().unwrap())
        }

        fn folder(&self) -> PathBuf {
            self.0.path().join("groups")
        }

        fn join(&self, now: Instant) -> Group {
            Group::join(&self.1, &self.folder(), (1, 2), 1 << 16, None, now).unwrap()
        }
    }

    #[test]
    fn one_leads_and_the_others_do_as_they_are_told() {
        let (place, now) = (Place::new(), Instant::now());
        let mut first = place.join(now);
        assert!(first.leads() && !first.is_followed());
        first.post(&[1]);
        let (mut second, mut third) = (place.join(now), place.join(now));
        assert!(!second.leads() && !third.leads() && first.is_followed());
        // What was posted before they came is nothing to them.
        assert_eq!(second.follow(now), (vec![], false));
        first.post(&[3, 4, 5, 9]);
        first.lead(77, true);
        assert_eq!(second.follow(now), (vec![3..6, 9..10], true));
        assert_eq!((second.resident(), third.resident()), (77, 77));
        // The bell rang since the third heard it.
        assert_ne!(third.bell().1, Group::word(&first.table).load(SeqCst));
        second.done(Some(100));
        assert_eq!(third.follow(now), (vec![3..6, 9..10], true));
        third.done(Some(30));
        assert!(!first.is_behind());
        // What they read counts from the first time on.
        assert_eq!(first.others_read(), 0);
        second.done(Some(400));
        third.done(Some(31));
        assert_eq!(first.others_read(), 301);
        drop(second);
        assert_eq!(first.others_read(), 0);
        // Another file, and another granule, are other groups.
        let other = |file, granule| {
            Group::join(&place.1, &place.folder(), file, granule, None, now).unwrap()
        };
        assert!(other((1, 3), 1 << 16).leads() && other((1, 2), 1 << 14).leads());
    }

    #[test]
    fn who_is_late_is_waited_for_once() {
        let (place, now) = (Place::new(), Instant::now());
        let (mut first, mut second) = (place.join(now), place.join(now));
        assert!(!first.is_behind());
        first.post(&[1]);
        assert!(first.is_behind());
        first.give_up();
        assert!(!first.is_behind());
        first.post(&[2]);
        assert!(!first.is_behind());
        // It comes back.
        let before = first.done_so_far();
        assert_eq!(second.follow(now).0, [1..2, 2..3]);
        second.done(None);
        assert_ne!(first.done_so_far(), before);
        assert!(!first.is_behind());
        first.post(&[3]);
        assert!(first.is_behind());
    }

    impl Group {
        /// A turn of a follower, and what comes of it.
        fn turn(&mut self, now: Instant) {
            self.follow(now);
            if self.has_errand(now) {
                self.run_errand(now);
            }
        }
    }

    /// Its lock is free, its word stands.
    #[test]
    fn who_ended_without_a_word_is_struck_out() {
        let (place, now) = (Place::new(), Instant::now());
        let (mut first, second) = (place.join(now), place.join(now));
        drop(second);
        first.said(AT_MEMBERS + 2 * 9).store(5, SeqCst);
        assert!(first.is_followed());
        first.run_errand(now);
        first.said(AT_MEMBERS + 2 * 9).store(5, SeqCst);
        assert!(first.is_followed() && !first.has_errand(now));
        for _ in 0..ROLL_CALL {
            first.lead(1, false);
        }
        assert!(first.has_errand(now));
        first.run_errand(now);
        assert!(!first.is_followed());
    }

    #[test]
    fn who_leads_what_has_no_name_any_more_is_lost() {
        let (place, now) = (Place::new(), Instant::now());
        let mut first = place.join(now);
        first.run_errand(now);
        assert!(!first.is_lost(now));
        std::fs::remove_dir_all(place.folder()).unwrap();
        first.run_errand(now);
        assert!(first.is_lost(now));
        // Another one's by now.
        let mut second = place.join(now);
        assert!(second.leads());
        first.unnamed = false;
        first.run_errand(now);
        second.run_errand(now);
        assert!(first.is_lost(now) && !second.is_lost(now));
    }

    #[test]
    fn who_cannot_lead_though_nobody_does_is_lost() {
        let (place, now) = (Place::new(), Instant::now());
        let (first, mut second) = (place.join(now), place.join(now));
        std::fs::remove_dir_all(place.folder()).unwrap();
        drop(first);
        let ms = |ms| now + Duration::from_millis(ms);
        for at in [0, 500, 1000] {
            second.turn(ms(at));
            assert!(!second.leads() && !second.is_lost(ms(at)), "{at}");
        }
        assert!(second.is_lost(ms(1001)));
        // Others begin anew, with a table that is not his.
        let third = place.join(now);
        assert!(third.leads());
        drop(third);
        let _anew = place.join(now);
        second.turn(ms(2000));
        assert!(!second.leads());
    }

    #[test]
    fn a_process_leads_as_many_files_as_it_keeps_together() {
        let (place, now) = (Place::new(), Instant::now());
        let join = |inode| Group::join(&place.1, &place.folder(), (1, inode), 1 << 16, None, now);
        let all: Vec<Group> = (0..FILES as u64).filter_map(join).collect();
        assert_eq!(all.len(), FILES);
        assert!(all.iter().all(Group::leads));
        assert!(join(FILES as u64).is_none(), "one more");
        drop(all);
        assert!(join(7).is_some());
    }

    #[test]
    fn who_missed_some_unmaps_all() {
        let (place, now) = (Place::new(), Instant::now());
        let (first, mut second) = (place.join(now), place.join(now));
        for at in 0..RING as u32 {
            first.post(&[2 * at]);
        }
        assert_eq!(second.follow(now).0, [ALL]);
        assert_eq!(second.follow(now).0, []);
        // So many stretches that no ring holds them.
        let many: Vec<u32> = (0..RING as u32).map(|at| 2 * at).collect();
        first.post(&many);
        assert_eq!(second.follow(now).0, [ALL]);
    }

    #[test]
    fn a_follower_leads_when_the_leader_ends() {
        let (place, now) = (Place::new(), Instant::now());
        let (mut first, mut second) = (place.join(now), place.join(now));
        first.lead(5, false);
        let late = now + 3 * SILENCE;
        // It is heard, and then silent; but its lock is there.
        for (at, beats) in [(now, true), (late, false)] {
            if beats {
                first.lead(5, false);
            }
            second.turn(at);
            assert!(!second.leads());
        }
        drop(first);
        let late = late + PAUSE;
        second.turn(late);
        assert!(second.leads());
        second.lead(6, false);
        let mut third = place.join(late);
        third.turn(late);
        assert!(!third.leads());
        // One that was killed says nothing.
        let word = second.said(AT_BEAT).load(SeqCst);
        second.leads = None;
        third.turn(late + SILENCE);
        assert!(!third.leads(), "too early");
        third.turn(late + 2 * SILENCE);
        assert!(third.leads());
        assert_eq!(third.said(AT_BEAT).load(SeqCst), word);
    }

    #[test]
    fn nothing_is_left_of_a_group() {
        let (place, now) = (Place::new(), Instant::now());
        let left = || std::fs::read_dir(place.folder()).unwrap().count();
        let (first, second) = (place.join(now), place.join(now));
        assert_eq!(left(), 1);
        drop(first);
        assert_eq!(left(), 1);
        drop(second);
        assert_eq!(left(), 0);
        // Nor of one who was killed, once another one leads anything.
        let other = |inode| {
            let folder = place.folder();
            Group::join(&place.1, &folder, (1, inode), 1 << 16, None, now).unwrap()
        };
        let kept = other(7);
        for name in ["pager-1-9-65536", "else"] {
            std::fs::write(place.folder().join(name), "").unwrap();
        }
        assert!(place.join(now).leads());
        let mut names: Vec<_> = std::fs::read_dir(place.folder()).unwrap().collect();
        assert_eq!(names.len(), 2, "{names:?}");
        drop(kept);
        names.clear();
        assert_eq!(left(), 1, "what is not ours");
    }
}
