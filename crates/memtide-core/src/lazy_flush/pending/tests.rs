use super::*;

/// CPUs with old translations, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cpus(u8);

impl Pending for Cpus {
    fn fold(&mut self, other: Cpus) {
        self.0 |= other.0;
    }
    fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

fn lazy() -> LazyFlush<Cpus> {
    LazyFlush::new()
}

#[test]
fn one_flush_serves_all_that_were_unmapped_before() {
    let mut lazy = lazy();
    let stamps = [1, 2, 4].map(|cpu| lazy.defer(Cpus(cpu)).unwrap());
    let mut flushed = vec![];
    for stamp in stamps {
        lazy.take(stamp, |cpus| flushed.push(cpus));
    }
    assert_eq!(flushed, [Cpus(7)]);
    let tally = lazy.tally();
    assert_eq!((tally.deferred, tally.at_use, tally.satisfied), (3, 1, 2));
}

#[test]
fn a_page_that_nobody_unmapped_needs_nothing() {
    let mut lazy = lazy();
    lazy.defer(Cpus(1)).unwrap();
    assert!(!lazy.take(Stamp::NONE, |_| panic!("not due")));
    assert_eq!(lazy.tally().satisfied, 0);
}

#[test]
fn an_event_flushes_once_and_only_if_something_is_pending() {
    let mut lazy = lazy();
    assert!(!lazy.force(Cause::TurnedWritable, |_| panic!("nothing is pending")));
    let stamp = lazy.defer(Cpus(3)).unwrap();
    assert!(lazy.force(Cause::TurnedWritable, |cpus| assert_eq!(cpus, Cpus(3))));
    assert_eq!(lazy.due(stamp), Due::Nothing);
    assert_eq!(lazy.tally().forced[Cause::TurnedWritable as usize], 1);
}

#[test]
fn flushes_of_others_satisfy_what_they_cover() {
    let mut lazy = lazy();
    let stamp = lazy.defer(Cpus(3)).unwrap();
    lazy.covered(|cpus| cpus.0 &= !1);
    assert_eq!(lazy.due(stamp), Due::Flush);
    lazy.covered(|cpus| cpus.0 &= !2);
    assert_eq!(lazy.due(stamp), Due::Nothing);
    assert_eq!((lazy.tally().covered, lazy.tally().flushes()), (1, 0));
}

#[test]
fn unmaps_during_a_flush_belong_to_the_next() {
    let mut lazy = lazy();
    let before = lazy.defer(Cpus(1)).unwrap();
    let (round, what) = lazy.begin().unwrap();
    assert_eq!(what, Cpus(1));
    let during = lazy.defer(Cpus(2)).unwrap();
    assert_eq!(lazy.due(before), Due::Wait);
    assert_eq!(lazy.due(during), Due::Flush);
    assert!(lazy.begin().is_none(), "one flush at a time");
    assert_eq!(lazy.merge(before, during), during);
    lazy.end(round);
    assert_eq!(lazy.due(before), Due::Nothing);
    assert_eq!(lazy.due(during), Due::Flush);
}

#[test]
fn what_was_covered_during_a_flush_is_done_by_the_next_for_nothing() {
    let mut lazy = lazy();
    lazy.defer(Cpus(1)).unwrap();
    let (round, _) = lazy.begin().unwrap();
    let during = lazy.defer(Cpus(2)).unwrap();
    lazy.covered(|cpus| cpus.0 = 0);
    lazy.end(round);
    assert!(!lazy.take(during, |_| panic!("nothing is left to flush")));
    assert_eq!(lazy.due(during), Due::Nothing);
}

#[test]
fn a_pause_sends_unmaps_back() {
    let mut lazy = lazy();
    let before = lazy.defer(Cpus(1)).unwrap();
    lazy.pause();
    lazy.pause();
    lazy.resume();
    assert_eq!(lazy.defer(Cpus(2)), Err(Cpus(2)));
    assert_eq!(lazy.due(before), Due::Flush, "what is pending stays so");
    lazy.resume();
    assert!(lazy.defer(Cpus(2)).is_ok());
    assert_eq!(lazy.tally().refused, 1);
}

#[test]
fn merged_blocks_wait_for_their_latest_part() {
    let mut lazy = lazy();
    let old = lazy.defer(Cpus(1)).unwrap();
    lazy.force(Cause::Pressure, |_| ());
    let new = lazy.defer(Cpus(1)).unwrap();
    assert_eq!(lazy.merge(old, new), new);
    assert_eq!(lazy.merge(new, old), new);
    assert_eq!(lazy.merge(old, Stamp::NONE), Stamp::NONE);
}

#[test]
fn a_page_that_slept_through_any_number_of_generations_is_safe() {
    // A page is unmapped and flushed with its generation, then lies free while the
    // numbers come round more than twice. Whenever it is used, its own flush was
    // long ago; and a page unmapped just now is always due.
    let mut lazy = lazy();
    let sleeper = lazy.defer(Cpus(1)).unwrap();
    let mut needless = 0;
    for step in 0..140_000 {
        let fresh = lazy.defer(Cpus(1)).unwrap();
        assert_eq!(lazy.due(fresh), Due::Flush, "step {step}");
        assert_eq!(lazy.merge(sleeper, fresh), fresh);
        needless += u32::from(step > 0 && lazy.due(sleeper) == Due::Flush);
        assert!(lazy.take(fresh, |_| ()));
    }
    // 140,000 steps hold two more visits of its number: the price, two flushes.
    assert_eq!(needless, 2);
}
