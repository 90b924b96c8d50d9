//! Standard output by a thread of its own: who reads it slowly, or not at all, does not stop the work.
//!
//! A write to a stopped terminal, or to a pager that waits for a key, lasts as long as they like. What
//! manages memory hands its lines over and goes on. [`MOST_BYTES`] of them wait. When these are full, lines
//! wait for room for a second in all; after that they are left out, and counted, until half of the room
//! is free again.

use crate::shared::system_journal::Entry;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What waits at most, in bytes, beside one piece of any length.
const MOST_BYTES: usize = 4 << 20;

/// Something to show.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// A line, or several.
    Text(String),
    /// The line of an event.
    Entry(Entry),
    /// The status line, instead of the one before.
    Status(String),
    /// No status line any more.
    NoStatus,
}

impl Piece {
    fn bytes(&self) -> usize {
        match self {
            Piece::Text(text) | Piece::Status(text) => text.len(),
            Piece::Entry(entry) => entry.bytes(),
            Piece::NoStatus => 0,
        }
    }

    /// Whether somebody misses it if it is left out: of status lines there is another one soon.
    fn is_text(&self) -> bool {
        matches!(self, Piece::Text(_) | Piece::Entry(_))
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Piece>,
    bytes: usize,
    /// Pieces that were shown so far.
    shown: u64,
    /// Whether one is being shown, and whether that is a text.
    showing: bool,
    showing_text: bool,
    /// How long lines have waited for room since there was enough of it.
    waited: Duration,
    /// Lines that were left out, or could not be written, and are not told of yet.
    lost: u64,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Something is there to be shown, or the end has come.
    came: Condvar,
    /// Something has been shown.
    went: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done`, as long as `patience` lasts. Whether it came to that, and how long it took.
    fn wait(
        &self,
        patience: Duration,
        done: impl Fn(&Queue) -> bool,
    ) -> (MutexGuard<'_, Queue>, bool, Duration) {
        let begun = Instant::now();
        let (queue, over) = self
            .went
            .wait_timeout_while(self.queue(), patience, |queue| !done(queue))
            .unwrap_or_else(PoisonError::into_inner);
        (queue, !over.timed_out(), begun.elapsed())
    }

    /// Shows what comes until the end.
    fn show(&self, mut show: impl FnMut(Piece) -> bool) {
        loop {
            let mut queue = self
                .came
                .wait_while(self.queue(), |queue| {
                    queue.waiting.is_empty() && !queue.closed
                })
                .unwrap_or_else(PoisonError::into_inner);
            let Some(piece) = queue.waiting.pop_front() else {
                return;
            };
            let (bytes, is_text) = (piece.bytes(), piece.is_text());
            (queue.showing, queue.showing_text) = (true, is_text);
            drop(queue);
            let went = show(piece);
            let mut queue = self.queue();
            queue.bytes -= bytes;
            queue.shown += 1;
            queue.lost += u64::from(!went && is_text);
            (queue.showing, queue.showing_text) = (false, false);
            if queue.bytes <= MOST_BYTES / 2 {
                queue.waited = Duration::ZERO;
            }
            drop(queue);
            self.went.notify_all();
        }
    }
}

/// How long who has something to show waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For room, until there is enough of it.
    pub room: Duration,
    /// At the end, for each piece to be shown, and for all of them.
    pub piece: Duration,
    pub all: Duration,
}

/// Where pieces are handed over.
#[derive(Debug)]
pub struct Outlet {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    patience: Patience,
}

impl Outlet {
    /// Has a thread that shows each piece by `show`, which says whether that went. Where no thread can be
    /// had, all is left out.
    pub fn new(patience: Patience, show: impl FnMut(Piece) -> bool + Send + 'static) -> Outlet {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let named = std::thread::Builder::new().name("output".to_owned());
        let thread = named.spawn(move || theirs.show(show)).ok();
        shared.queue().closed = thread.is_none();
        Outlet {
            shared,
            thread,
            patience,
        }
    }

    /// Hands `text` over, or leaves it out.
    pub fn text(&self, text: String) {
        self.hand_over(Piece::Text(text));
    }

    /// Hands the line of an event over, or leaves it out.
    pub fn entry(&self, entry: Entry) {
        self.hand_over(Piece::Entry(entry));
    }

    fn hand_over(&self, piece: Piece) {
        let room = |queue: &Queue| queue.bytes < MOST_BYTES;
        let mut queue = self.shared.queue();
        let patience = self.patience.room.saturating_sub(queue.waited);
        if !room(&queue) && !patience.is_zero() {
            drop(queue);
            let (after, _, took) = self.shared.wait(patience, room);
            queue = after;
            queue.waited += took;
        }
        let goes_on = queue.waited < self.patience.room && !queue.closed;
        match room(&queue) && goes_on {
            true => self.push(queue, piece),
            false => queue.lost += 1,
        }
    }

    /// Hands the status line over, only if nothing else waits: there is another one soon.
    pub fn status(&self, text: String) {
        let queue = self.shared.queue();
        if queue.waiting.is_empty() && !queue.showing {
            self.push(queue, Piece::Status(text));
        }
    }

    /// Takes the status line away.
    pub fn no_status(&self) {
        self.push(self.shared.queue(), Piece::NoStatus);
    }

    /// How many texts were lost since this was asked last. While there is no room to tell of them, none.
    pub fn lost(&self) -> u64 {
        let mut queue = self.shared.queue();
        match queue.waited.is_zero() && queue.bytes < MOST_BYTES {
            true => std::mem::take(&mut queue.lost),
            false => 0,
        }
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue>, piece: Piece) {
        queue.bytes += piece.bytes();
        queue.waiting.push_back(piece);
        drop(queue);
        self.shared.came.notify_one();
    }

    /// Ends when all has been shown, or when patience ends; how many texts never were.
    pub fn end(mut self) -> u64 {
        let all = |queue: &Queue| queue.waiting.is_empty() && !queue.showing;
        let until = Instant::now() + self.patience.all;
        loop {
            let shown = self.shared.queue().shown;
            let left = until.saturating_duration_since(Instant::now());
            let next = |queue: &Queue| all(queue) || queue.shown != shown;
            let (queue, went, _) = self.shared.wait(left.min(self.patience.piece), next);
            if all(&queue) || !went {
                break;
            }
        }
        let mut queue = self.shared.queue();
        queue.closed = true;
        let texts = queue.waiting.iter().filter(|piece| piece.is_text());
        let lost = queue.lost + texts.count() as u64 + u64::from(queue.showing_text);
        let stuck = queue.showing;
        queue.waiting.clear();
        drop(queue);
        self.shared.came.notify_one();
        if let Some(thread) = self.thread.take()
            && !stuck
        {
            let _ = thread.join();
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Longer than any machine needs.
    const LONG: Duration = Duration::from_secs(600);

    /// An outlet whose reader takes a piece for each permit, and the pieces that were taken.
    fn outlet(patience: Duration) -> (Outlet, Sender<()>, Receiver<Piece>) {
        let (permits, permitted) = channel();
        let (taken, pieces) = channel();
        let patience = Patience {
            room: patience,
            piece: patience,
            all: patience,
        };
        let outlet = Outlet::new(patience, move |piece| {
            permitted.recv().is_ok() && taken.send(piece).is_ok()
        });
        (outlet, permits, pieces)
    }

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn until_shown(outlet: &Outlet, pieces: u64) {
        drop(outlet.shared.wait(LONG, |queue| queue.shown == pieces));
    }

    #[test]
    fn pieces_are_shown_in_order_and_all_of_them_by_the_end() {
        let (outlet, permits, pieces) = outlet(LONG);
        (0..4).for_each(|_| permits.send(()).unwrap());
        outlet.status("now".to_owned());
        outlet.text("a".to_owned());
        outlet.text("b".to_owned());
        outlet.no_status();
        assert_eq!(outlet.end(), 0);
        let shown: Vec<Piece> = pieces.try_iter().collect();
        let status = Piece::Status("now".to_owned());
        assert_eq!(shown, [status, text("a"), text("b"), Piece::NoStatus]);
    }

    /// Who takes a line now and then does not get more than one who takes none: there is room again when
    /// half of what waited is gone.
    #[test]
    fn a_reader_that_stalls_costs_lines_which_are_counted() {
        let (outlet, permits, pieces) = outlet(Duration::from_nanos(1));
        let long = "x".repeat(MOST_BYTES / 2);
        outlet.text(long.clone());
        outlet.text(long.clone());
        for line in ["b", "c", "d"] {
            outlet.text(line.to_owned());
        }
        assert_eq!(outlet.lost(), 0, "nobody could be told");
        permits.send(()).unwrap();
        assert_eq!(pieces.recv(), Ok(Piece::Text(long)));
        until_shown(&outlet, 1);
        assert_eq!((outlet.lost(), outlet.lost()), (3, 0));
        outlet.text("e".to_owned());
        (0..2).for_each(|_| permits.send(()).unwrap());
        until_shown(&outlet, 3);
        assert_eq!(pieces.try_iter().last(), Some(text("e")));
    }

    #[test]
    fn a_slow_reader_gets_everything() {
        let (outlet, permits, pieces) = outlet(LONG);
        let long = "x".repeat(MOST_BYTES);
        std::thread::scope(|scope| {
            let lines = [long.clone(), long.clone(), "c".to_owned()];
            let outlet = &outlet;
            scope.spawn(move || lines.map(|line| outlet.text(line)));
            (0..3).for_each(|_| permits.send(()).unwrap());
        });
        assert_eq!(outlet.end(), 0);
        let shown: Vec<Piece> = pieces.try_iter().collect();
        assert_eq!(
            shown,
            [Piece::Text(long.clone()), Piece::Text(long), text("c")]
        );
    }

    #[test]
    fn the_end_waits_no_longer_than_patience_for_who_reads_nothing() {
        let (outlet, _permits, _) = outlet(Duration::ZERO);
        for line in ["a", "b", "c"] {
            outlet.text(line.to_owned());
        }
        outlet.no_status();
        assert_eq!(outlet.end(), 3);
    }

    /// It was counted as a line once, if the thread had it at the end.
    #[test]
    fn a_status_that_nobody_reads_is_no_lost_line() {
        let (outlet, _permits, _) = outlet(Duration::ZERO);
        outlet.no_status();
        while !outlet.shared.queue().showing {
            std::thread::yield_now();
        }
        assert_eq!(outlet.end(), 0);
    }

    #[test]
    fn what_cannot_be_written_is_lost() {
        let patience = Patience {
            room: LONG,
            piece: LONG,
            all: LONG,
        };
        let outlet = Outlet::new(patience, |piece| piece == text("b"));
        for line in ["a", "b", "c"] {
            outlet.text(line.to_owned());
        }
        assert_eq!(outlet.end(), 2);
    }
}
