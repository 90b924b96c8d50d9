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
