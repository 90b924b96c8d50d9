//! What is kept in this process: the pager, its mappings, and their lock.
//!
//! The order that keeps every byte right: a mapping is made, then kept; and
//! before a kept page is unmapped, moved, replaced or made writable, the pager
//! has let go of it. [`release`] does that and is asked first by every call
//! that does such a thing; where it fails the call is refused.
//!
//! Kept mappings are shared ones, also where the program asked for private
//! ones. Nothing can tell the difference while nobody writes; and a write that
//! went past us cannot be lost, because it cannot be made: the file is not open
//! for writing. When a page is let go but stays mapped, it becomes private
//! again first.
//!
//! A process that was made without the C library's `fork` shares or has copied
//! our state and has no evictor. [`home`] knows it; its calls go to the kernel as
//! they come.

use super::file::{Held, bytes_of, path};
use super::mmap::raw_mmap;
use super::section::{Outside, section};
use super::start::started;
use super::{alloc, exit, fork, home};
use crate::decide::{Lasting, MADV_GUARD_INSTALL};
use crate::pieces::{Piece, Pieces};
use crate::ranges::{MOST, Ranges};
use crate::reasons::{self, Reason};
use crate::settings::Settings;
use crate::tally::{TALLY, add, count};
use memtide_pager::local::{Replicas, put_file_back};
use memtide_pager::{Adopted, Pager, ReadOrder, Shown};
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// A file, and the pager's care for one mapping of it: it ends with the last
/// piece. Copies on nodes need none: they are forgotten by address.
#[derive(Debug)]
pub struct Kept {
    held: Arc<Held>,
    _care: Option<Adopted>,
}

type KeptPiece = Piece<Arc<Kept>>;

/// What the lock protects.
#[derive(Debug)]
pub struct Inner {
    pager: Option<Pager>,
    /// In its place, if copies were asked for.
    local: Option<Replicas>,
    pieces: Pieces<Arc<Kept>>,
}

static INNER: Mutex<Inner> = Mutex::new(Inner {
    pager: None,
    local: None,
    pieces: Pieces::new(),
});

/// The addresses of all pieces.
static RANGES: Ranges = Ranges::new();
/// Set when keeping makes no sense any more.
static OFF: AtomicBool = AtomicBool::new(false);
static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();

/// The settings, read when first asked for.
pub fn settings() -> Option<&'static Settings> {
    let read = || match Settings::read(|name| std::env::var_os(name)) {
        Ok(settings) => settings,
        Err(why) => {
            exit::say(&why);
            None
        }
    };
    SETTINGS.get_or_init(read).as_ref()
}

/// Whether any page of the range is kept, in this process. Takes no lock.
pub fn is_kept(range: &Range<usize>) -> bool {
    loop {
        match RANGES.overlap(range) {
            Some(false) => return false,
            Some(true) if !home::here() => return false,
            Some(true) if alloc::is_short() => {
                give_up_all();
                return false;
            }
            Some(true) => return true,
            // Who changes the ranges may be a thread that this process does not have.
            None if !home::here() => return false,
            None => std::hint::spin_loop(),
        }
    }
}

/// Whether mappings are kept at all any more.
pub fn is_on() -> bool {
    !OFF.load(Ordering::Relaxed) && !alloc::is_short()
}

/// Stops or resumes keeping new mappings.
pub fn switch(on: bool) {
    OFF.store(!on, Ordering::Relaxed);
}

/// Gives everything back to the kernel: there is no memory to keep it.
fn give_up_all() {
    section(|| {
        if Reason::Memory.meet() {
            let why = Reason::Memory.words();
            exit::say(&format!(
                "{why}: what is mapped is the kernel's from here on"
            ));
        }
        let mut inner = lock()?;
        let everything = inner.everything();
        let released = inner.release(&everything, Then::Stays);
        // Its threads need memory as well; what they did is still to be told.
        let (pager, local) = (inner.pager.clone(), inner.local.clone());
        drop(inner);
        drop(released);
        if let Some(local) = local {
            local.end();
        }
        let _ = pager?.shutdown();
        Some(())
    });
}

/// What the pager's tables take for a file of so many bytes, and some more.
fn table_bytes(file_bytes: u64) -> usize {
    let blocks = file_bytes.div_ceil(2 << 20);
    usize::try_from((1 << 20) + blocks * 1024).unwrap_or(usize::MAX)
}

/// The lock. `None` if somebody panicked with it, after which nothing is sure, and
/// in a process that our state is not about.
pub fn lock() -> Option<Locked> {
    if !home::here() {
        return None;
    }
    let held = fork::held();
    let forking = held.is_some();
    let guard = held.or_else(take_lock);
    guard.map(|guard| Locked {
        guard: Some(guard),
        forking,
    })
}

/// The lock itself, for who is about to fork.
pub fn take_lock() -> Option<MutexGuard<'static, Inner>> {
    INNER.lock().ok()
}

/// The lock, taken. A thread that holds it because it forks goes on holding it.
pub struct Locked {
    /// There until the drop.
    guard: Option<MutexGuard<'static, Inner>>,
    forking: bool,
}

impl Deref for Locked {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        self.guard.as_ref().expect("held until the drop")
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Inner {
        self.guard.as_mut().expect("held until the drop")
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take().filter(|_| self.forking) {
            fork::hold(guard);
        }
    }
}

/// What a released piece becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It stays mapped, as the program asked for it: private if it was.
    Stays,
    /// The caller takes it away now.
    Goes,
}

/// Pieces that are kept no longer.
pub type Released = Outside<Vec<KeptPiece>>;

/// Takes every kept page in `range` out of the pager's care. `None` if that
/// could not be done; the caller must then leave the pages alone.
pub fn release(range: &Range<usize>, then: Then) -> Option<Released> {
    section(|| Some(Outside::new(lock()?.release(range, then)?))).flatten()
}

/// Keeps again what was [`release`]d and did not go away.
pub fn keep_again(pieces: &Released) {
    section(|| {
        let mut inner = lock()?;
        for piece in pieces.iter() {
            inner.adopt(piece.with(piece.file.held.clone()));
        }
        Some(())
    });
}

/// Notes advice that the kernel took for kept pages.
pub fn advise(range: &Range<usize>, advice: i32) {
    if Lasting::default().and(advice) == Lasting::default() {
        return;
    }
    section(|| {
        let mut inner = lock()?;
        inner.pieces.advise(range, advice, Arc::ptr_eq);
        inner.publish();
        // It decides whether the kernel goes on reading as it was just told.
        let order = crate::decide::order(advice);
        if let (Some(pager), Some(order)) = (inner.pager_now(), order) {
            pager.advise(range.start, range.len(), order);
        }
        Some(())
    });
}

/// Keeps new or moved pages that show what `piece` shows. If they cannot be,
/// they become what the program asked for.
pub fn keep_moved(piece: &KeptPiece, range: Range<usize>) {
    section(|| {
        let mut inner = lock()?;
        inner.adopt(piece.with(piece.file.held.clone()).moved(range));
        Some(())
    });
}

/// Parts of `range`, ascending.
#[derive(Debug)]
pub enum Part {
    /// Kept, and still what was kept.
    Kept {
        /// To fill it with pages fails: the file ends before it does, or the program has
        /// guarded pages of it.
        faults: bool,
    },
    /// Somebody else's, or nothing.
    Other(Range<usize>),
}

/// What of `range` is kept and what is not, as the kernel sees it now; if it is to be
/// `filled`, what stands against that, too.
pub fn parts(range: &Range<usize>, filled: bool) -> Vec<Part> {
    section(|| Some(lock()?.parts(range, filled)))
        .flatten()
        .unwrap_or_default()
}

/// Whether all of `range` lies in one kept piece.
pub fn is_one_piece(range: &Range<usize>) -> bool {
    section(|| {
        let inner = lock()?;
        let mut pieces = inner.pieces.all().iter();
        Some(pieces.any(|piece| piece.range.start <= range.start && range.end <= piece.range.end))
    })
    .flatten()
    .unwrap_or(false)
}

/// The file behind `fd`, if it is one that is wanted.
pub fn wanted(fd: RawFd, private: bool) -> Option<Arc<Held>> {
    let settings = settings()?;
    let path = path(fd)?;
    if !settings.wants(&path) {
        return None;
    }
    let held = Held::new(fd, private);
    if held.is_none() {
        left_out(fd, Reason::File);
    }
    held.map(Arc::new)
}

/// Notes that a mapping of the file behind `fd` is not kept.
pub fn left_out(fd: RawFd, reason: Reason) {
    count(&TALLY.left_out);
    exit::left_out(&path(fd).unwrap_or_default(), reason);
}

/// The same for one of a kind that is never kept, if its file is wanted.
pub fn left_out_if_wanted(fd: RawFd) {
    section(|| {
        let file = path(fd)?;
        if settings()?.wants(&file) {
            count(&TALLY.left_out);
            exit::left_out(&file, Reason::Kind);
        }
        Some(())
    });
}

/// Has kept pages in `range` read in ahead of use, within the budget.
pub fn read_ahead(range: &Range<usize>) {
    section(|| read_ahead_now(range.start, range.len()));
}

/// The same inside of a [`section`].
pub fn read_ahead_now(start: usize, bytes: usize) {
    if let Some(inner) = lock()
        && let Some(pager) = inner.pager_now()
    {
        pager.read_ahead(start, bytes);
    }
}

/// Keeps a shared mapping that was just made. `false` if it cannot be.
pub fn keep(range: Range<usize>, offset: u64, private: bool, held: &Arc<Held>) -> bool {
    let bytes = range.len() as u64;
    let piece = Piece {
        range,
        offset,
        private,
        advice: Lasting::default(),
        file: held.clone(),
    };
    start_pager();
    let mut inner = lock();
    let file_bytes = held.fd().and_then(bytes_of).unwrap_or(0);
    let room = alloc::has(table_bytes(file_bytes));
    let full = inner
        .as_ref()
        .is_some_and(|inner| inner.pieces.all().len() >= MOST);
    let kept = room && inner.as_mut().is_some_and(|inner| inner.adopt_only(piece));
    if kept {
        count(&TALLY.kept);
        add(&TALLY.kept_bytes, bytes);
    } else if let Some(fd) = held.fd() {
        let reason = match (full, room && !alloc::is_short()) {
            (_, false) => Reason::Memory,
            (true, true) => Reason::Many,
            (false, true) => Reason::Pager,
        };
        left_out(fd.as_raw_fd(), reason);
    }
    kept
}

impl Inner {
    /// See [`release`].
    pub fn release(&mut self, range: &Range<usize>, then: Then) -> Option<Vec<KeptPiece>> {
        let cut = self.pieces.cut(range);
        // What goes away may stay if the call fails, and then nobody knows its copies.
        let back = cut
            .iter()
            .filter(|piece| self.without_copies(piece))
            .count();
        if let Some(pager) = &self.pager {
            for piece in &cut {
                let (start, bytes) = (piece.range.start, piece.range.len());
                match then {
                    Then::Stays => pager.forget(start, bytes),
                    Then::Goes => pager.forget_unmapped(start, bytes),
                };
            }
        }
        self.publish();
        let mut fine = true;
        if then == Then::Stays && !cut.is_empty() {
            count(&TALLY.handed_over);
            fine = back == cut.len() && cut.iter().all(make_private);
        }
        fine.then_some(cut)
    }

    /// Ends the care for a piece's copies: it is one mapping of its file again. Whether it is.
    fn without_copies(&self, piece: &KeptPiece) -> bool {
        let Some(local) = &self.local else {
            return true;
        };
        let file = piece.file.held.open();
        let file = file.as_ref().map(AsFd::as_fd);
        let forgotten = local.forget(piece.range.clone(), file);
        file.is_some() && forgotten.is_ok()
    }

    fn parts(&self, range: &Range<usize>, filled: bool) -> Vec<Part> {
        let mut kept = Vec::new();
        for piece in self.pieces.within(range) {
            let Some(file) = piece.file.held.open() else {
                kept.push((piece.range, false));
                continue;
            };
            let bytes = bytes_of(file.as_fd());
            let shown = memtide_pager::shown(piece.range.clone(), file.as_fd(), piece.offset);
            for part in shown.unwrap_or_default().into_iter().filter(|p| p.readable) {
                let end = part.offset + part.range.len() as u64;
                let ends = bytes
                    .is_some_and(|bytes| bytes.next_multiple_of(super::page_bytes() as u64) < end);
                let guards = || memtide_pager::guards(part.range.clone());
                let guarded = || guards().is_ok_and(|guards| !guards.is_empty());
                let faults = filled && (ends || guarded());
                kept.push((part.range, faults));
            }
        }
        let mut parts = Vec::new();
        let mut at = range.start;
        for (part, faults) in kept {
            if part.start > at {
                parts.push(Part::Other(at..part.start));
            }
            at = part.end;
            parts.push(Part::Kept { faults });
        }
        if at < range.end {
            parts.push(Part::Other(at..range.end));
        }
        parts
    }

    /// All addresses that are kept.
    pub fn everything(&self) -> Range<usize> {
        let pieces = self.pieces.all().iter();
        let start = pieces.clone().map(|piece| piece.range.start).min();
        let end = pieces.map(|piece| piece.range.end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    /// Keeps, or makes it what the program asked for.
    fn adopt(&mut self, piece: Piece<Arc<Held>>) {
        if !self.adopt_only(piece.clone()) {
            self.give_up(&piece);
        }
    }

    fn adopt_only(&mut self, piece: Piece<Arc<Held>>) -> bool {
        let one = self.adopt_each(std::slice::from_ref(&piece));
        one == [true] && self.publish()
    }

    /// Keeps what can be kept, one word for each; the caller publishes.
    fn adopt_each(&mut self, pieces: &[Piece<Arc<Held>>]) -> Vec<bool> {
        let room = MOST.saturating_sub(self.pieces.all().len());
        let room = if is_on() { room } else { 0 };
        let tried = &pieces[..pieces.len().min(room)];
        if tried.is_empty() {
            return vec![false; pieces.len()];
        }
        if self.local.is_some() {
            let each = pieces.iter().enumerate();
            return each
                .map(|(at, piece)| at < room && self.adopt_local(piece))
                .collect();
        }
        let Some(pager) = &self.pager else {
            return vec![false; pieces.len()];
        };
        let given = tried.iter().filter_map(|piece| {
            let (start, bytes) = (piece.range.start, piece.range.len());
            Some((start, bytes, piece.file.fd()?, piece.offset))
        });
        let given: Vec<_> = given.collect();
        // Mappings that were moved or inherited may still be as the pager had them.
        tried.iter().for_each(tell_order);
        let mut cares = match given.len() == tried.len() {
            true => pager.adopt_many(given).into_iter(),
            // A file that the program closed; alone, it spoils nothing for others.
            false if pieces.len() > 1 => {
                let each = pieces.iter();
                return each
                    .flat_map(|piece| self.adopt_each(std::slice::from_ref(piece)))
                    .collect();
            }
            false => return vec![false],
        };
        let mut kept = vec![false; pieces.len()];
        for (piece, kept) in pieces.iter().zip(&mut kept) {
            match cares.next() {
                Some(Ok(care)) => {
                    let order = crate::decide::order(piece.advice.order());
                    // Every mapping is looked at to find it; an order is rarely given.
                    let order = order.filter(|order| *order != ReadOrder::Normal);
                    if let (Some(pager), Some(order)) = (&self.pager, order) {
                        pager.advise(piece.range.start, piece.range.len(), order);
                    }
                    let held = piece.file.clone();
                    // What was there was unmapped unseen, or nothing could be put there.
                    drop(self.pieces.cut(&piece.range));
                    let _care = Some(care);
                    self.pieces.add(piece.with(Arc::new(Kept { held, _care })));
                    *kept = true;
                }
                Some(Err(why)) => {
                    static SAID: AtomicBool = AtomicBool::new(false);
                    exit::say_once(&SAID, &why.to_string());
                }
                None => {}
            }
        }
        kept
    }

    /// Has copies of a piece's file made on the node where the process reads it.
    fn adopt_local(&mut self, piece: &Piece<Arc<Held>>) -> bool {
        let (start, bytes) = (piece.range.start, piece.range.len());
        let held = piece.file.clone();
        let adopted = match (&self.local, held.fd()) {
            (Some(local), Some(fd)) => local.adopt(start, bytes, fd, piece.offset, None),
            _ => return false,
        };
        if let Err(why) = adopted {
            static SAID: AtomicBool = AtomicBool::new(false);
            exit::say_once(&SAID, &why.to_string());
            return false;
        }
        drop(self.pieces.cut(&piece.range));
        let _care = None;
        self.pieces.add(piece.with(Arc::new(Kept { held, _care })));
        true
    }

    /// Tells the readers without a lock. They hold [`MOST`] ranges; one cut more
    /// than that lets go of the piece that was cut last.
    fn publish(&mut self) -> bool {
        let mut fits = true;
        while !RANGES.set(self.pieces.all().iter().map(|piece| &piece.range)) {
            fits = false;
            let Some(last) = self.pieces.all().last().map(|piece| piece.range.clone()) else {
                return false;
            };
            let cut = self.pieces.cut(&last);
            if let Some(pager) = &self.pager {
                pager.forget(last.start, last.len());
            }
            count(&TALLY.handed_over);
            cut.iter().for_each(|piece| {
                self.without_copies(piece);
                make_private(piece);
            });
        }
        fits
    }

    /// What keeps copies, if they were asked for.
    pub fn local_now(&self) -> Option<&Replicas> {
        self.local.as_ref()
    }

    /// What the pager did, if there is one.
    pub fn pager_now(&self) -> Option<&Pager> {
        self.pager.as_ref()
    }

    /// In a forked child: the parent's evictor is not here, its mappings are.
    pub fn after_fork(&mut self) {
        TALLY.reset();
        reasons::reset();
        // Ending them would wait for a thread that stayed with the parent.
        std::mem::forget(self.pager.take());
        let had_copies = self.local.is_some();
        std::mem::forget(self.local.take());
        let everything = self.everything();
        let before = self.pieces.cut(&everything);
        let pieces: Vec<_> = before
            .iter()
            .map(|piece| piece.with(piece.file.held.clone()))
            .collect();
        std::mem::forget(before);
        for piece in pieces.iter().filter(|_| had_copies) {
            // A piece that shows copies after that shows the right bytes all the same.
            if let Some(file) = piece.file.open() {
                let _ = put_file_back(piece.range.clone(), file.as_fd(), piece.offset);
            }
        }
        // The only thread there is: nobody has any lock.
        if !pieces.is_empty() {
            (self.pager, self.local) = started();
        }
        let kept = self.adopt_each(&pieces);
        for (piece, kept) in pieces.iter().zip(kept) {
            match kept {
                true => {
                    count(&TALLY.kept);
                    add(&TALLY.kept_bytes, piece.range.len() as u64);
                }
                false => self.give_up(piece),
            }
        }
        self.publish();
    }

    /// Makes what could not be kept what the program asked for.
    fn give_up(&mut self, piece: &Piece<Arc<Held>>) {
        if piece.private {
            count(&TALLY.handed_over);
            remap_private(piece);
        }
    }
}

/// Starts the pager with the first mapping. Without the lock: starting a thread takes the
/// loader's, and who has that may be loading a library that maps what is wanted.
fn start_pager() {
    let missing = |inner: &Inner| inner.pager.is_none() && inner.local.is_none();
    if !is_on() || !lock().is_some_and(|inner| missing(&inner)) {
        return;
    }
    let (mut pager, mut local) = started();
    if let Some(mut inner) = lock()
        && missing(&inner)
    {
        (inner.pager, inner.local) = (pager.take(), local.take());
    }
    // Two threads may have mapped at once; the second one's ends here.
    drop((pager, local));
}

/// Makes a piece what the program asked for.
fn make_private(piece: &KeptPiece) -> bool {
    !piece.private || remap_private(&piece.with(piece.file.held.clone()))
}

/// Tells the kernel in which order the program said that it reads a piece.
fn tell_order(piece: &Piece<Arc<Held>>) {
    let (at, bytes, order) = (piece.range.start, piece.range.len(), piece.advice.order());
    // SAFETY: advice that changes no content.
    unsafe { libc::syscall(libc::SYS_madvise, at, bytes, order) };
}

/// Puts private mappings in the place of shared ones of the same bytes, where they still
/// are what we made: around us the program may have unmapped them, protected them, or
/// put memory of its own there.
fn remap_private(piece: &Piece<Arc<Held>>) -> bool {
    let Some(file) = piece.file.open() else {
        return false;
    };
    let shown = memtide_pager::shown(piece.range.clone(), file.as_fd(), piece.offset);
    shown.is_ok_and(|shown| {
        let mut parts = shown.iter();
        parts.all(|part| remap_part(part, file.as_fd(), piece.advice))
    })
}

/// Replaces one part, if it still is what was shown when all is ready for that.
fn remap_part(part: &Shown, file: BorrowedFd<'_>, advice: Lasting) -> bool {
    let Ok(guards) = memtide_pager::guards(part.range.clone()) else {
        return false;
    };
    let unchanged = || {
        let now = memtide_pager::shown(part.range.clone(), file, part.offset);
        now.is_ok_and(|now| now == [part.clone()])
    };
    let replaced = match guards.is_empty() {
        // SAFETY: the pages are a mapping of this file at this offset that nobody can write
        // to, and are replaced by one of the same bytes. The kernel does that in one step,
        // so that a reader sees the old or the new one.
        true => {
            unchanged()
                && unsafe { map_part(part, part.range.start, libc::MAP_FIXED, file) }
                    != libc::MAP_FAILED
        }
        false => replace_guarded(part, file, &guards, unchanged),
    };
    let at = part.range.start;
    for advice in advice.given().filter(|_| replaced) {
        // SAFETY: advice that changes no content, on the mapping just made. One that
        // is refused was refused before.
        unsafe { libc::syscall(libc::SYS_madvise, at, part.range.len(), advice) };
    }
    replaced
}

/// Maps what a part shows, as a private mapping.
///
/// # Safety
///
/// As mmap(2): with `MAP_FIXED`, what is at `at` is the caller's to replace.
unsafe fn map_part(
    part: &Shown,
    at: usize,
    flags: libc::c_int,
    file: BorrowedFd<'_>,
) -> *mut libc::c_void {
    let readable = if part.readable { libc::PROT_READ } else { 0 };
    let executable = if part.executable { libc::PROT_EXEC } else { 0 };
    // SAFETY: the caller's.
    unsafe {
        raw_mmap(
            at as *mut libc::c_void,
            part.range.len(),
            readable | executable,
            libc::MAP_PRIVATE | flags,
            file.as_raw_fd(),
            part.offset as libc::off_t,
        )
    }
}

/// Guards belong to the pages and not to the mapping, and no page may be without its guard
/// for a moment. So the new mapping is made elsewhere, gets them, and takes the old one's
/// place.
fn replace_guarded(
    part: &Shown,
    file: BorrowedFd<'_>,
    guards: &[Range<usize>],
    unchanged: impl Fn() -> bool,
) -> bool {
    // SAFETY: anywhere.
    let copy = unsafe { map_part(part, 0, 0, file) };
    if copy == libc::MAP_FAILED {
        return false;
    }
    let to = &part.range;
    if guard(copy as usize, to, guards) && unchanged() {
        let (bytes, flags) = (to.len(), libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
        // SAFETY: what is replaced shows the same bytes, and faults on the same pages. The
        // kernel does it in one step if it can do it at all.
        let moved = unsafe { libc::syscall(libc::SYS_mremap, copy, bytes, bytes, flags, to.start) };
        if moved != -1 {
            return true;
        }
        // It takes away what was there before it finds that it cannot: where there is a hole
        // now, the mapping is put back.
        // SAFETY: only where nothing is.
        let back = unsafe { map_part(part, to.start, libc::MAP_FIXED_NOREPLACE, file) };
        if back != libc::MAP_FAILED {
            // SAFETY: the copy, which nobody knows.
            unsafe { super::munmap::raw_munmap(copy, bytes) };
            return guard(to.start, to, guards);
        }
    }
    // SAFETY: the copy, which nobody knows.
    unsafe { super::munmap::raw_munmap(copy, to.len()) };
    false
}

/// Guards pages of the mapping at `from` as those of `to` are guarded.
fn guard(from: usize, to: &Range<usize>, guards: &[Range<usize>]) -> bool {
    guards.iter().all(|guard| {
        let at = from + (guard.start - to.start);
        // SAFETY: on a mapping of ours that shows a file's bytes.
        unsafe { libc::syscall(libc::SYS_madvise, at, guard.len(), MADV_GUARD_INSTALL) == 0 }
    })
}
