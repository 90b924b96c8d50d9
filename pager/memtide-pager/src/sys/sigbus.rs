//! The SIGBUS handler and who is asked when a read of a region faults.
//!
//! A handler belongs to the whole process, and others may have had one before
//! us: faults outside every region, and those that nobody can serve, go on to
//! what was installed before, with the signal mask that it asked for.
//!
//! The handler runs in the middle of a load, on the thread that made it, on that
//! thread's ordinary stack (alternative stacks are made for small handlers).
//! Until it returns, the thread takes no other signal: a handler of the
//! program's that touched the same data would wait for itself. Regions are found in
//! a fixed table of slots. The fault is one of the program's own, at an address of a
//! region, which nobody touches with a lock of the pager's or an allocator's in hand.

use super::Errno;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Once, OnceLock};

/// Who serves faults in a range of addresses. Must be safe to call in a signal
/// handler.
pub(crate) trait Served: Send + Sync {
    /// First address and the one after the last.
    fn span(&self) -> (usize, usize);
    /// Whether the load that faulted may be tried again.
    fn fault(&self, address: usize) -> bool;
    /// A forked child starts, in which no thread of the pager's runs.
    fn forked(&self) {}
}

/// Regions that can be served at a time, in one process.
pub(crate) const SLOTS: usize = 256;

struct Slot {
    /// Handlers that are looking at `entry`; it may go only when there is none.
    users: AtomicUsize,
    entry: AtomicPtr<Arc<dyn Served>>,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        users: AtomicUsize::new(0),
        entry: AtomicPtr::new(null_mut()),
    }
}; SLOTS];

/// The process whose threads the counts of users are about.
static HOME: AtomicU32 = AtomicU32::new(0);

/// What was installed before us.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// What a test would have installed before, in a child of its own.
#[cfg(test)]
static PRETENDED: OnceLock<libc::sigaction> = OnceLock::new();

/// Has faults that are not ours go to `handler`, as if it had been there first.
#[cfg(test)]
pub(crate) fn pretend_before(handler: extern "C" fn(libc::c_int)) {
    // SAFETY: a `sigaction` may be all zeros.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    action.sa_sigaction = handler as *const () as usize;
    let _ = PRETENDED.set(action);
}

#[cfg(test)]
fn before() -> Option<&'static libc::sigaction> {
    PRETENDED.get().or(BEFORE.get())
}

#[cfg(not(test))]
fn before() -> Option<&'static libc::sigaction> {
    BEFORE.get()
}

/// Faults are served while this lives.
#[derive(Debug)]
pub(crate) struct Registration {
    slot: usize,
}

/// Installs the handler if need be, and serves faults through `served`.
///
/// # Errors
///
/// `ENOSPC` if every slot is taken; what sigaction(2) says.
pub(crate) fn serve(served: Arc<dyn Served>) -> Result<Registration, Errno> {
    install()?;
    super::fork::at_fork(in_child);
    // The first of all regions: nobody was counted yet, and others may be at the same.
    let here = std::process::id();
    if HOME.compare_exchange(0, here, SeqCst, SeqCst).is_err() && HOME.load(SeqCst) != here {
        settle_here();
    }
    let entry = Box::into_raw(Box::new(served));
    for (slot, place) in TABLE.iter().enumerate() {
        let taken = place
            .entry
            .compare_exchange(null_mut(), entry, SeqCst, SeqCst);
        if taken.is_ok() {
            return Ok(Registration { slot });
        }
    }
    // SAFETY: made by `Box::into_raw` above, and nobody else has seen it.
    drop(unsafe { Box::from_raw(entry) });
    Err(Errno::NOSPC)
}

impl Drop for Registration {
    fn drop(&mut self) {
        let place = &TABLE[self.slot];
        let entry = place.entry.swap(null_mut(), SeqCst);
        // A handler that counted itself before the swap may still read it; one
        // that comes later finds nothing. In a child that libc did not make, those
        // that counted themselves are threads of the parent's, which do not run here.
        while HOME.load(SeqCst) == std::process::id() && place.users.load(SeqCst) > 0 {
            std::thread::yield_now();
        }
        // SAFETY: made by `Box::into_raw` in `serve`, taken out of the table by
        // us alone, and no handler looks at it any more.
        drop(unsafe { Box::from_raw(entry) });
    }
}

/// Runs `act` on every region, or on the one that holds `address`.
fn each(address: Option<usize>, mut act: impl FnMut(&dyn Served) -> bool) -> bool {
    for place in &TABLE {
        if place.entry.load(SeqCst).is_null() {
            continue;
        }
        place.users.fetch_add(1, SeqCst);
        let entry = place.entry.load(SeqCst);
        let mut done = false;
        if !entry.is_null() {
            // SAFETY: the slot's entry is freed only after it was taken out and
            // `users` was seen at 0; we counted ourselves before we loaded it.
            let served = unsafe { &**entry };
            let (start, end) = served.span();
            if address.is_none_or(|address| (start..end).contains(&address)) {
                done = act(served);
            }
        }
        place.users.fetch_sub(1, SeqCst);
        if done {
            return true;
        }
    }
    false
}

/// Begins to count in this process: a child has one thread, and it is not in a fault.
fn settle_here() {
    for place in &TABLE {
        place.users.store(0, SeqCst);
    }
    HOME.store(std::process::id(), SeqCst);
}

extern "C" fn in_child() {
    settle_here();
    each(None, |served| {
        served.forked();
        false
    });
}

fn install() -> Result<(), Errno> {
    static ONCE: Once = Once::new();
    static FAILED: OnceLock<Errno> = OnceLock::new();
    ONCE.call_once(|| {
        // SAFETY: a `sigaction` may be all zeros, and the kernel fills it.
        let before = unsafe {
            let mut before = MaybeUninit::<libc::sigaction>::zeroed();
            libc::sigaction(libc::SIGBUS, std::ptr::null(), before.as_mut_ptr());
            before.assume_init()
        };
        // Before the handler can run.
        let _ = BEFORE.set(before);
        // SAFETY: as above; the handler keeps to what is allowed in one.
        let result = unsafe {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigfillset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const action, null_mut())
        };
        if result != 0 {
            let _ = FAILED.set(super::last());
        }
    });
    FAILED.get().copied().map_or(Ok(()), Err)
}

/// Whether SIGBUS still comes to us: a program may install a handler later, and
/// then it is that one's business to pass on what it does not know.
pub(crate) fn is_ours() -> bool {
    // SAFETY: a `sigaction` may be all zeros, and the kernel fills it.
    let now = unsafe {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == on_sigbus as *const () as usize
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: errno's place is the thread's own; the kernel gave us a valid info.
    let (errno, code, address) = unsafe {
        let errno = *libc::__errno_location();
        (errno, (*info).si_code, (*info).si_addr() as usize)
    };
    // Positive codes are the kernel's; others were sent by somebody.
    let served = code > 0 && each(Some(address), |served| served.fault(address));
    if !served {
        pass_on(signal, info, context, code > 0);
    }
    // SAFETY: as above. The interrupted code must not see our errno.
    unsafe { *libc::__errno_location() = errno };
}

/// To what was installed before.
fn pass_on(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    of_kernel: bool,
) {
    let Some(before) = before() else {
        return;
    };
    match before.sa_sigaction {
        libc::SIG_IGN if !of_kernel => {}
        // An ignored fault would fault again for ever: the kernel takes the
        // default action then, and so do we.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the default action runs nothing of ours. A load that
            // faulted is made again when we return, and ends the process; a
            // signal that was sent is sent again, and is delivered on return.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if !of_kernel {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            // SAFETY: the context is the kernel's, of the interrupted thread. The
            // mask is what that handler would have run with. The address is what
            // somebody installed as a handler of the kind that the flags say.
            unsafe {
                let context_mask = (*context.cast::<libc::ucontext_t>()).uc_sigmask;
                let mut mask = context_mask;
                for number in 1..=64 {
                    let wanted = libc::sigismember(&raw const before.sa_mask, number) == 1;
                    let itself = number == signal && before.sa_flags & libc::SA_NODEFER == 0;
                    if wanted || itself {
                        libc::sigaddset(&raw mut mask, number);
                    }
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, null_mut());
                if before.sa_flags & libc::SA_SIGINFO == 0 {
                    let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                    handler(signal);
                } else {
                    let handler: extern "C" fn(
                        libc::c_int,
                        *mut libc::siginfo_t,
                        *mut libc::c_void,
                    ) = std::mem::transmute(handler);
                    handler(signal, info, context);
                }
            }
        }
    }
}

/// Writes one line to standard error, from a signal handler too.
pub(crate) fn say(parts: &[&[u8]]) {
    for part in parts {
        // SAFETY: the kernel reads `part`, which outlives the call.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
}
