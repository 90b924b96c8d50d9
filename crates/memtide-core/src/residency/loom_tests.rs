//! Every interleaving of readers and an evictor over one granule or two.
//!
//! The memory of a granule is a cell that loom watches: filling it, reading it and
//! taking it away at the same time would be reported. A broken evictor, which
//! gives the credit before it has taken the memory, must be found.

use super::{Credits, Residency, Stage};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::thread;

struct Memory {
    granules: Vec<Residency>,
    /// Pages of each granule; its owner's.
    held: Vec<AtomicU32>,
    credits: Credits,
    /// Pages that really take memory.
    taken: AtomicU32,
}

impl Memory {
    fn new(granules: usize, credits: u32) -> Arc<Memory> {
        Arc::new(Memory {
            granules: (0..granules).map(|_| Residency::default()).collect(),
            held: (0..granules).map(|_| AtomicU32::new(0)).collect(),
            credits: Credits::new(credits),
            taken: AtomicU32::new(0),
        })
    }

    /// As a reader does: brings it in, or finds that another did. False if there
    /// was no credit.
    fn bring(&self, index: usize) -> bool {
        let granule = &self.granules[index];
        loop {
            match granule.stage() {
                Stage::Here => return true,
                Stage::Absent | Stage::Failed => {
                    let stage = granule.stage();
                    if !matches!(stage, Stage::Absent | Stage::Failed)
                        || !granule.step(stage, Stage::Loading)
                    {
                        continue;
                    }
                    if self.credits.take(1, 1).is_none() {
                        let _ = granule.settle(Stage::Absent);
                        return false;
                    }
                    self.fill(index);
                    return true;
                }
                Stage::Loading | Stage::Leaving => {
                    granule.announce();
                    thread::yield_now();
                }
            }
        }
    }

    /// Puts a page in, and ends the ownership.
    fn fill(&self, index: usize) {
        let taken = self.taken.fetch_add(1, SeqCst) + 1;
        assert!(taken <= self.credits.total(), "more memory than credits");
        self.held[index].fetch_add(1, SeqCst);
        let _ = self.granules[index].settle(Stage::Here);
    }

    /// Brings in one more page of a granule that is here, if there is a credit.
    fn grow(&self, index: usize) -> bool {
        if !self.granules[index].step(Stage::Here, Stage::Loading) {
            return false;
        }
        if self.credits.take(1, 1).is_none() {
            let _ = self.granules[index].settle(Stage::Here);
            return false;
        }
        self.fill(index);
        true
    }

    fn evict(&self, index: usize, broken: bool) -> bool {
        if !self.granules[index].step(Stage::Here, Stage::Leaving) {
            return false;
        }
        let pages = self.held[index].swap(0, SeqCst);
        if broken {
            self.credits.give(pages);
        }
        self.taken.fetch_sub(pages, SeqCst);
        let _ = self.granules[index].settle(Stage::Absent);
        if !broken {
            self.credits.give(pages);
        }
        true
    }
}

fn two_granules_one_credit(broken: bool) {
    let memory = Memory::new(2, 1);
    assert!(memory.bring(0));
    let (a, b) = (memory.clone(), memory.clone());
    let reader = thread::spawn(move || a.bring(1));
    let evictor = thread::spawn(move || b.evict(0, broken));
    let brought = reader.join().unwrap();
    assert!(evictor.join().unwrap());
    assert_eq!(memory.credits.in_use(), u32::from(brought));
    assert_eq!(memory.taken.load(SeqCst), u32::from(brought));
}

#[test]
fn loom_memory_never_exceeds_the_credits() {
    loom::model(|| two_granules_one_credit(false));
}

#[test]
#[should_panic(expected = "more memory than credits")]
fn loom_finds_a_credit_given_before_the_memory() {
    loom::model(|| two_granules_one_credit(true));
}

#[test]
fn loom_two_readers_take_one_credit() {
    loom::model(|| {
        let memory = Memory::new(1, 2);
        let a = memory.clone();
        let reader = thread::spawn(move || a.bring(0));
        assert!(memory.bring(0) && reader.join().unwrap());
        assert_eq!((memory.credits.in_use(), memory.taken.load(SeqCst)), (1, 1));
    });
}

#[test]
fn loom_a_pinned_granule_stays() {
    loom::model(|| {
        let memory = Memory::new(1, 1);
        assert!(memory.bring(0));
        let a = memory.clone();
        let evictor = thread::spawn(move || a.evict(0, false));
        if memory.granules[0].pin() {
            assert_eq!(memory.taken.load(SeqCst), 1, "gone while pinned");
            assert_eq!(memory.granules[0].stage(), Stage::Here);
            memory.granules[0].unpin();
        }
        let left = evictor.join().unwrap();
        assert_eq!(memory.taken.load(SeqCst), u32::from(!left));
    });
}

#[test]
fn loom_a_granule_that_grows_leaves_with_all_that_it_has() {
    loom::model(|| {
        let memory = Memory::new(1, 2);
        assert!(memory.bring(0));
        let (a, b) = (memory.clone(), memory.clone());
        let reader = thread::spawn(move || a.grow(0));
        let evictor = thread::spawn(move || b.evict(0, false));
        if memory.granules[0].pin() {
            assert!(memory.taken.load(SeqCst) >= 1, "gone while pinned");
            memory.granules[0].unpin();
        }
        let (grown, left) = (reader.join().unwrap(), evictor.join().unwrap());
        let held = if left { 0 } else { 1 + u32::from(grown) };
        assert_eq!(memory.taken.load(SeqCst), held);
        assert_eq!(memory.credits.in_use(), held);
    });
}

#[test]
fn loom_an_announced_waiter_is_woken() {
    loom::model(|| {
        let memory = Memory::new(1, 1);
        assert!(memory.granules[0].step(Stage::Absent, Stage::Loading));
        let a = memory.clone();
        // Whoever would sleep was seen by whoever settles.
        let waiter = thread::spawn(move || a.granules[0].announce().is_some());
        let woken = memory.granules[0].settle(Stage::Here);
        assert_eq!(waiter.join().unwrap(), woken);
    });
}
