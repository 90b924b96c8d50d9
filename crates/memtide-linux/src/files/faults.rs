//! Faults on purpose: the nth operation on anything fails, or is the last one.
//!
//! Every operation that changes a file, or reads a note, asks [`ask`] first; so do the kernels
//! made of a map that tests use. [`trail`] names the operations of a piece of
//! work, and [`with`] runs it again with a fault at one of them. Work that
//! "dies" has every later one refused, too: what it would do on its way out
//! has no effect, as if it had been killed.

use std::cell::RefCell;
use std::io;

/// What happens at the chosen operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused with this errno; what follows works.
    Fail(i32),
    /// Neither it nor anything after it happens.
    Die,
}

#[derive(Debug, Default)]
struct Plan {
    at: Option<(usize, Fault)>,
    trail: Vec<String>,
}

thread_local! {
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
}

/// Whether the next operation happens.
pub fn ask(what: &str) -> io::Result<()> {
    PLAN.with_borrow_mut(|plan| {
        let Some(plan) = plan else {
            return Ok(());
        };
        let n = plan.trail.len();
        plan.trail.push(what.to_owned());
        match plan.at {
            Some((at, Fault::Fail(errno))) if n == at => Err(io::Error::from_raw_os_error(errno)),
            Some((at, Fault::Die)) if n >= at => Err(io::Error::other("dead")),
            _ => Ok(()),
        }
    })
}

fn run<T>(plan: Plan, work: impl FnOnce() -> T) -> (T, Plan) {
    struct Clear;
    impl Drop for Clear {
        fn drop(&mut self) {
            PLAN.set(None);
        }
    }
    PLAN.with_borrow_mut(|there| assert!(there.replace(plan).is_none(), "no plan in a plan"));
    let clear = Clear;
    let done = work();
    let plan = PLAN.take().expect("the plan that was set");
    drop(clear);
    (done, plan)
}

/// The operations of `work`, in order.
pub fn trail<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let (done, plan) = run(Plan::default(), work);
    (done, plan.trail)
}

/// Runs `work` with `fault` at its operation number `nth`.
pub fn with<T>(nth: usize, fault: Fault, work: impl FnOnce() -> T) -> T {
    let plan = Plan {
        at: Some((nth, fault)),
        ..Plan::default()
    };
    run(plan, work).0
}

/// Has `work` die at each of its operations in turn and at none, and after it
/// `next`, which is to mend that: it dies at each of its own operations in turn,
/// fails at it, or ends. Each pair has a world of its own. `judge` does what
/// the start after those does; it gets the world and the two places, for its
/// messages. How many pairs there were.
pub fn mended<W>(
    world: impl Fn() -> W,
    work: impl Fn(&W),
    next: impl Fn(&W),
    judge: impl Fn(&W, &str),
) -> usize {
    let mut pairs = 0;
    let mut whole = false;
    for nth in 0.. {
        for second in [Fault::Die, Fault::Fail(libc::ENOSPC)] {
            for mth in 0.. {
                let world = world();
                let plan = |nth, fault| Plan {
                    at: Some((nth, fault)),
                    ..Plan::default()
                };
                let first = run(plan(nth, Fault::Die), || work(&world)).1.trail;
                let then = run(plan(mth, second), || next(&world)).1.trail;
                let named = |trail: &[String], n| match trail.get(n) {
                    Some(what) => format!("{n} ({what})"),
                    None => "no operation".to_owned(),
                };
                let (one, two) = (named(&first, nth), named(&then, mth));
                judge(&world, &format!("died at {one}, then {second:?} at {two}"));
                pairs += 1;
                whole = nth >= first.len();
                if mth >= then.len() {
                    break;
                }
            }
        }
        if whole {
            break;
        }
    }
    pairs
}

/// A folder for a world, in memory where the machine has such a place: each
/// world is synced many times.
#[cfg(test)]
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder to write to")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Two operations, then three: every pair once, and those without a fault.
    #[test]
    fn every_pair_of_operations_is_tried() {
        let done = |n: &Cell<u32>, operations: &[u32]| {
            for operation in operations {
                if ask("add").is_ok() {
                    n.set(n.get() + operation);
                }
            }
        };
        let seen = RefCell::new(Vec::new());
        let pairs = mended(
            || Cell::new(0),
            |n| done(n, &[1, 10]),
            |n| done(n, &[100, 1000, 10000]),
            |n, _| seen.borrow_mut().push(n.get()),
        );
        let dies = [0, 100, 1100, 11100];
        let fails = [11000, 10100, 1100, 11100];
        let wanted = [0, 1, 11].into_iter();
        let wanted = wanted.flat_map(|first| dies.into_iter().chain(fails).map(move |n| n + first));
        assert_eq!(seen.into_inner(), wanted.collect::<Vec<u32>>());
        assert_eq!(pairs, 24);
    }
}
